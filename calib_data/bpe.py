"""The demo model's tokenizer: a byte-level BPE, its trainer, and tokenizer.json in both directions. Needs Python 3 alone."""
import json
import re
from collections import Counter, defaultdict

SPECIALS = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
VOCAB = 1024
BEGIN, END, USER, ASSISTANT = range(VOCAB - len(SPECIALS), VOCAB)

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
# The same in the words of Python's re, which has no \p{}: a letter is [^\W\d_]. It differs on numerals that are not
# decimal digits (superscripts, fractions), which make_text.py does not write.
WORDS = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_alphabet():
    """GPT-2's map from bytes to printable characters, in the order of its vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def spell(word):
    return tuple(ALPHABET[b] for b in word.encode("utf-8"))


def join_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


def train_merges(text, number):
    """Byte pair encoding: joins the most frequent pair again and again; ties go to the smaller pair."""
    counts = Counter(WORDS.findall(text))
    words = [spell(w) for w in counts]
    weight = list(counts.values())
    pairs, where = Counter(), defaultdict(set)

    def account(i, sign):
        for pair in zip(words[i], words[i][1:]):
            pairs[pair] += sign * weight[i]
            where[pair].add(i)

    for i in range(len(words)):
        account(i, 1)
    merges = []
    while len(merges) < number:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for i in sorted(where.pop(best)):
            account(i, -1)
            words[i] = join_pair(words[i], best)
            account(i, 1)
        del pairs[best]
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = merges
        self.rank = {pair: i for i, pair in enumerate(merges)}
        names = list(ALPHABET.values()) + [a + b for a, b in merges]
        self.ids = {name: i for i, name in enumerate(names)}
        self.names = names + SPECIALS
        self.bytes = {c: b for b, c in ALPHABET.items()}
        self.cache = {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls([tuple(m.split(" ")) for m in json.load(f)["model"]["merges"]])

    def word(self, word):
        if word not in self.cache:
            symbols = spell(word)
            while len(symbols) > 1:
                pair = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, VOCAB))
                if pair not in self.rank:
                    break
                symbols = join_pair(symbols, pair)
            self.cache[word] = [self.ids[s] for s in symbols]
        return self.cache[word]

    def encode(self, text):
        return [i for w in WORDS.findall(text) for i in self.word(w)]

    def decode(self, ids):
        out = bytearray()
        for i in ids:
            name = self.names[i]
            out += name.encode() if name in SPECIALS else bytes(self.bytes[c] for c in name)
        return out.decode("utf-8", "replace")

    def json(self):
        special = lambda i: dict(id=i, content=self.names[i], single_word=False, lstrip=False, rstrip=False,
                                 normalized=False, special=True)
        begin = {"SpecialToken": {"id": SPECIALS[0], "type_id": 0}}
        part = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [special(i) for i in range(BEGIN, VOCAB)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, byte_level]},
            "post_processor": {
                "type": "TemplateProcessing", "single": [begin, part("A", 0)],
                "pair": [begin, part("A", 0), {"SpecialToken": {"id": SPECIALS[0], "type_id": 1}}, part("B", 1)],
                "special_tokens": {SPECIALS[0]: {"id": SPECIALS[0], "ids": [BEGIN], "tokens": [SPECIALS[0]]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": self.ids, "merges": [f"{a} {b}" for a, b in self.merges]},
        }
