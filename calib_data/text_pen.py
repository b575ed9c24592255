"""The pen that the text generator writes with: seeded choice, templates, and people with their pronouns.

A template is text in which [a|b|c] stands for one of its parts (they nest), {key} for a value, and {^key} for that
value with a capital letter. A title at the start of a sentence gets its capital too. Literal brackets and braces
can't be written in a template; such text is made in code.
"""
import re

CHOICE = re.compile(r"\[([^\[\]]*)\]")
START = re.compile(r"(^|[.!?]\"? |(?<!,)\n)(the|old) ")  # a sentence that begins with a title, as in the baker
VALUE = re.compile(r"\{(\^?)(\w+)\}")
HE = dict(he="he", him="him", his="his", himself="himself", boy="boy")
SHE = dict(he="she", him="her", his="her", himself="herself", boy="girl")
ONSETS = "b br ch d dr f fl g gr h j k kl l m n p pl qu r s sh sk st t th tr v w y z".split()
VOWELS = "a e i o u ai ea ie oo".split()
CODAS = "l n r s t m ck nd x".split() + [""] * 4


class Pen:
    def __init__(self, rng, inventive=False):
        self.rng, self.inventive = rng, inventive

    def pick(self, items):
        return items[int(self.rng.random() * len(items))]

    def some(self, items, low, high):
        return self.rng.sample(items, self.rng.randint(low, min(high, len(items))))

    def chance(self, p):
        return self.rng.random() < p

    def number(self, low, high):
        return self.rng.randint(low, high)

    def name(self, names):
        """One of the names; an inventive pen makes up half of them, so that a name can't be guessed, only remembered."""
        if not self.inventive or self.chance(0.5):
            return self.pick(names)
        syllables = (self.pick(ONSETS) + self.pick(VOWELS) for _ in range(self.number(1, 3)))
        return capital("".join(syllables) + self.pick(CODAS))

    def fill(self, template, values=None):
        """Makes the choices, innermost first, then puts the values in."""
        text = template
        while "[" in text:
            text = CHOICE.sub(lambda m: self.pick(m.group(1).split("|")), text)
        if "{" in text:
            text = VALUE.sub(lambda m: capital(values[m.group(2)]) if m.group(1) else str(values[m.group(2)]), text)
        return START.sub(lambda m: m.group(1) + capital(m.group(2)) + " ", text)


def capital(text):
    return text[:1].upper() + text[1:]


def an(noun):
    """The noun with its article."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def listing(items):
    """a, b and c"""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def person(prefix, name, words):
    """The values of one person: the name under the prefix in capitals or N, the pronouns under prefix + he and so on."""
    values = {prefix + key: word for key, word in words.items()}
    values[prefix.upper() or "N"] = name
    return values
