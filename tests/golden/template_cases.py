#!/usr/bin/python3
"""Templates of our own, one for each thing that the language has, and conversations for others' templates. What they
give is Jinja2's to say: with a Python that has transformers, `template_cases.py` writes templates.json (what each of
ours gives) and templates_third.txt (hashes of what others' templates give), which check_templates.py holds lq to."""
import glob
import hashlib
import itertools
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
THIRD = os.path.join(HERE, "../../../shared/data/templates")

# --- ours ---

VARS = {
    "i": 7, "neg": -3, "zero": 0, "f": 2.5, "big": 1e16, "small": 1e-5, "whole": 3.0, "s": "Hello World", "pad": " \t a b\n",
    "u": "Grüße ß İ ΑΣ ΑΣΑ 你好 🙂 ǆ ﬁ", "e": "", "n": None, "yes": True, "no": False, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"],
    "le": [], "d": {"a": 1, "b": [1, 2], "c": {"x": "y"}}, "keys": {"items": 5, "B": 2, "a": 1}, "html": "<a href='x'>&\"</a>",
    "ld": [{"name": "x", "v": 2, "k": {"q": 1}}, {"name": "Y", "v": 1}, {"name": "z", "v": None}],
    "mixed": [1, "1", 1.0, None, True, [1], {"a": 1}], "js": "a\"b\\c\n\u0001\u007f\u2028/é🙂", "num": " 42 ", "real": "3.75",
    "pairs": [["k", 1], ["j", 2]], "tree": [{"v": 1, "sub": [{"v": 2, "sub": []}, {"v": 3, "sub": [{"v": 4}]}]}],
}
EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2, 7 // 2, -7 // 2, 7 % 3, -7 % 3, 7.5 // 2, -7.5 % 2, 2 ** 10, 2 ** -1, 2 ** 3 ** 2, -2 ** 2
1_000 + 0x1f + 0o17 + 0b101 + 1e3 + 1.5e-3, 10 / 4, 10 / 5, 10000000123456789 / -3, 0.1 + 0.2, 1e16, 1e15, 1e22, 1.0, 123456789.125, 1e-4, 1e-5
f, big, small, whole, 1e300 * big * 1e10 * 1e300, -(big * 1e300 * 1e300), yes + 1, no * 5, yes, none, [1.0, none, true, 'x', "it's", '"', 'a\n\\']
'a' 'b' ~ 1 ~ none ~ 1.5 ~ [1], 'ab' * 3, 3 * 'ab', [1] * 2 + [2], (1,) + (2, 3), 'a' + 'b', (1,), ()
1 < 2 < 3, 1 < 3 < 2, 'a' < 'b', [1, 2] < [1, 3], 1 == 1.0 == true, 'a' in 'abc', 'b' not in 'abc', 2 in l, 'a' in d, 1 in 'x' or 3
not yes, yes and 0, 0 or 'x', '' and 1, no or none, not not 1, 1 if yes else 2, 1 if no, (1 if no) is defined
s[0], s[-1], s[1:4], s[::-1], s[-3:], s[:-3], s[::2], s[5:1:-1], u[-2:], u[3], l[0], l[-1], l[1:], l[::-1], l[5] is defined, l[-9:9]
d.a, d['a'], d.b[0], d.c.x, d['c']['x'], d.nope is defined, d['nope'] is undefined, keys.items is mapping, keys['items'], d.b.0
undef, [undef], undef is defined, undef | default('D'), e | default('D'), e | default('D', true), n | d('D'), undef == undef2
{'a': 1, 'b': {'c': [1, 2]}}, {1: 2, 'x': none, 2.5: (1,)}, {'a': 1}.a, {'a': 1, 'a': 2}, [[], {}, ()], {true: 1, 1: 2}
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), u.upper(), u.lower(), u.title(), u.capitalize(), u.swapcase()
pad.strip(), [pad.lstrip(), pad.rstrip()], s.strip('Hd'), s.rstrip('dl'), s.lstrip('eH'), '<<x>>'.strip('<'), u.strip('Gﬁ')
s.split(), s.split('o'), s.split('o', 1), s.rsplit('o', 1), pad.split(), ' a  b '.split(' '), 'a,b'.split(',')[1], 'abc'.split('x'), s.split(maxsplit=1)
s.replace('o', '0'), s.replace('o', '0', 1), 'aaa'.replace('', '-'), s.startswith('He'), s.endswith(('x', 'ld')), s.startswith('W', 6)
s.find('o'), s.find('o', 5), s.rfind('o'), s.find('zz'), s.index('W'), s.count('l'), u.find('你'), 'a\nb\r\nc'.splitlines(), 'x'.join(['a', 'b'])
'7'.zfill(3), '-7'.zfill(4), 'ab'.center(7, '*'), 'ab'.ljust(4, '.') ~ 'ab'.rjust(4), 'a=b=c'.partition('='), 'a=b=c'.rpartition('='), 'x'.partition('=')
'12'.isdigit(), 'ab'.isalpha(), 'a1'.isalnum(), ' '.isspace(), 'AB'.isupper(), 'ab1'.islower(), 'pre-fix'.removeprefix('pre'), 'x.py'.removesuffix('.py'), 'a\tb'.expandtabs(4)
'{} {}'.format(1, 'x'), '{0}{1}{0}'.format('a', 'b'), '{n:>5}|{n:<5}|{n:^5}'.format(n='ab'), '{:05.2f} {:+d} {:,} {:x} {:#b} {:e} {:%} {:.3} {:.3} {:.1} {:.6}'.format(3.14159, 5, 1234567, 255, 5, 12345.678, 0.25, 273.0, 27.25, 1e-7, 1.5), '{{}}{a[b]}{c.d}'.format(a={'b': 1}, c={'d': 2})
'%s %d %5.2f %05d %-5s| %x %% %r' % ('a', 3, 2.5, 42, 'b', 255, 'q'), '%(a)s' % {'a': 1}, 'x%sy' % 5, '%s' | format('z'), '%c%o%e' % (65, 8, 12.5)
d.items(), d.keys(), d.values(), d.get('a'), d.get('z'), d.get('z', 0), d.items() | list, d | items | list, d.keys() | list | length, l.index(1), l.count(3)
l | sort, ls | sort, ls | sort(case_sensitive=true), ls | sort(reverse=true), ld | sort(attribute='name') | map(attribute='name') | list, keys | dictsort, keys | dictsort(true), keys | dictsort(by='value', reverse=true)
l | first, l | last, l | length, s | length, d | count, le | first is defined, l | min, l | max, ls | min, l | sum, ld | map(attribute='v') | select | sum, [1.5, 2] | sum(start=1), s | first, range(5) | last
ls | join, ls | join(', '), l | join('-'), ld | join('/', attribute='name'), [1, none, 'x'] | join('|'), s | list, l | reverse | list, s | reverse, ls | unique | list, ['a', 'A', 'b'] | unique | list, ['a', 'A'] | unique(true) | list
ls | map('upper') | list, ld | map(attribute='k.q', default='?') | list, ld | selectattr('v') | map(attribute='name') | join, ld | rejectattr('v', 'none') | list | length, ld | selectattr('name', 'equalto', 'Y') | list, l | select('odd') | list, l | reject('gt', 1) | list, l | select('in', [1, 2]) | list
[1, 2, 3, 4, 5] | batch(2) | list, [1, 2, 3] | batch(2, 0) | list, [1, 2, 3, 4, 5] | slice(3) | list, [1, 2] | slice(3, 'x') | list, ld | groupby('v', default=0) | map('first') | list, ld | selectattr('v') | groupby('v') | list
s | upper, s | lower, 'hello wORLD (x)-y' | title, 'hELLO' | capitalize, pad | trim, 'xxaxx' | trim('x'), 'a\nb\n\nc' | indent, 'a\nb' | indent(2, true), 'a\n\nb' | indent('> ', blank=true), s | replace('l', 'L'), s | replace('l', 'L', 1), 'ab' | center(6)
'foo bar baz qux' | truncate(9), 'foo bar baz qux' | truncate(9, true), 'foo bar baz' | truncate(11), 'foo bar baz qux' | truncate(9, false, '!', 0), s | wordcount, 'a b/c?d=é&' | urlencode, {'a b': 'c/d', 'x': 1} | urlencode, 1000 | filesizeformat, 1 | filesizeformat, 1536 | filesizeformat(true)
num | int, real | int, 'x' | int, 'x' | int(5), 'ff' | int(base=16), '0x1F' | int(0, 16), 3.9 | int, none | int, '3.5' | float, 'x' | float, ('nan' ~ e) | float, 2.675 | round(2), 2.5 | round, 3.5 | round, 42.55 | round(1, 'floor'), 42.51 | round(1, 'ceil'), 5 | round, -7 | abs, 1234 | round(-2), yes | int
html | e, html | escape, (html | safe) ~ html, (html | safe) + '<', '<' + ('<b>' | safe), html | safe | string, html | forceescape, [html | safe], (html | safe).upper(), html | e | e, '<%s>' | safe % 'x'
d | tojson, mixed | tojson, js | tojson, js | tojson(ensure_ascii=true), keys | tojson(sort_keys=true), d | tojson(indent=2), d | tojson(indent='--'), d | tojson(separators=(',', ':')), [] | tojson(indent=1), {} | tojson, 1.0 | tojson, 1e100 | tojson, 'é' | tojson, (1, 2) | tojson, {1: 2, none: 3, true: 4, 1.5: 5} | tojson
mixed, mixed | string, d, ld[0], pairs, u, [u], ['\x00\x1f\x7f\u200b\u3000'], d.items(), range(3), range(1, 9, 2), range(5)[1:3], namespace(a=1), html
i is odd, i is even, i is divisibleby 7, i is divisibleby(2), s is string, i is number, f is float, i is integer, yes is boolean, yes is true, no is false, n is none, d is mapping, l is sequence, l is iterable, s is iterable, range(2) is sequence, d.items() is sequence, undef is sequence
i is not none, 'a' is lower, 'A' is upper, i is eq 7, i is ne 7, i is gt 3, i is lessthan 3, i is ge 7, 'a' is in ls, i is sameas 7, d is sameas d, [] is sameas [], 'upper' is filter, 'nope' is filter, 'odd' is test, range is callable, s is callable, (s | safe) is escaped
yes is true and no is false or none is none, not i is odd, i is not odd, -i is lt 0, i in [7] and i not in [8], i + 1 is even
dict(a=1, b=2), dict([['a', 1]], c=3), dict({'x': 1}), dict(pairs), range(0), range(10, 0, -3) | list, (x, 1) if x is defined else 'no'
'a well-known foo--bar co-op-er-ate ---x-y-z Supercalifragilistic\n\n  b c' | wordwrap(9), s | wordwrap(3), s | wordwrap(3, false), 'x y-z' | wordwrap(2, wrapstring='|'), 'ab-cdef' | wordwrap(4, true, '|', false), 'a--b c-d' | wordwrap(3), '' | wordwrap, 'a\n' | wordwrap
'%3c|%-3c|%c' % (65, 'b', 228), range(4).index(2), range(0, 9, 3).count(3), range(3).count('a'), '½'.isnumeric(), '½'.isdecimal(), '²'.isdigit(), '²'.isdecimal(), '٣'.isdecimal()
(html | e).expandtabs() + '<', (html | e | truncate(9)) + '<', (html | e | center(50)) + '<', ('1' | e).zfill(3) + '<', ('-' | e).join([1, '<', none]), ('<%s>' | e) % '&', ('%s %d %r' | e) % ('<' | safe, 3, '<'), ('{} {x}' | e).format('<', x='&' | safe)
d | pprint, mixed | pprint, keys | pprint, {'b': 1, 'a': {'z': l, 'y': [ls * 9, s * 9]}} | pprint, (s ~ ' \n') * 12 | pprint, [(s ~ ' ') * 12] | pprint, 'x' * 99 | pprint, ['x' * 99, {'k' * 70: [1, 22222222, {}, []]}] | pprint, (l * 30,) | pprint, ((s,) * 9) | pprint, {1: 'a', 'x': 2, none: 3, (1, 2): [4] * 40, 2.5: 5} | pprint, [s | e, (s * 20) | e] | pprint, [undef, range(3), namespace(a=1), d.items()] | pprint, '' | pprint, [''] | pprint, (ld * 3) | groupby('v', default=0) | pprint
html | striptags, '<b>a</b>  x <!-- <p> --> y\u3000z\n' | striptags, 'a <!-- b' | striptags, 'a <b' | striptags, 'a > b <i>' | striptags, '<<i>>' | striptags, ' &amp;lt; &copy &copy; &notx &frac12; &quotx &A &; &# &#; & ' | striptags, '&#65;&#x41&#0;&#x80;&#128;&#xd800;&#x110000;&#11;&#13;&#xfffe;|' | striptags, (html | e | striptags) + '<', n | striptags, undef | striptags, [1, '<b>'] | striptags
s.__class__ is defined, d._private is defined, l.append is defined, d.update is defined, s.upper is callable, s['upper']() | length
"""
TEMPLATES = [
    # loops
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}"
    "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{{ loop.changed(x > 1) }} {% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}{% for x in l if x > 9 %}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for (a, b) in pairs %}{{ a }}{{ b }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}E{% endfor %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in le %}x{% else %}empty{% endfor %}{% for x in undef %}x{% else %}undef{% endfor %}{% for c in 'añ🙂' %}[{{ c }}]{% endfor %}",
    "{% for x in l %}{% for y in ls %}{{ loop.index }}{{ loop.last }}{% endfor %}{{ loop.index }}{{ loop }}{% endfor %}",
    "{% for t in tree recursive %}{{ loop.depth }}:{{ t.v }}{% if t.sub %}({{ loop(t.sub) }}){% endif %}{% endfor %}",
    "{% set gen = l | map('string') %}{% for x in gen %}{{ x }}{% endfor %}|{% for x in gen %}{{ x }}{% endfor %}|{{ gen | list }}",
    "{% for x in l %}{% set y = x %}{{ y }}{% endfor %}{{ y }}{% set z = 1 %}{% for x in l %}{{ z }}{% set z = z + x %}{{ z }} {% endfor %}{{ z }}",
    "{% set ns = namespace(n=0, t='') %}{% for x in l if ns.n < 4 %}{% set ns.n = ns.n + x %}{% set ns.t = ns.t ~ x %}{% endfor %}{{ ns.n }}{{ ns.t }}",
    "{% for a in ld | selectattr('v') %}{{ a.name }}{{ loop.last }}{% endfor %}{% for x in range(3) | reverse %}{{ x }}{% endfor %}",
    "{% set ns = namespace(o='') %}{% for i in range(5000) %}{% set ns.o = ns.o ~ (s * 9) ~ (i | string) %}{% set ns.o = ns.o + '.' %}{% endfor %}"
    "{{ ns.o | length }}{{ ns.o[-20:] }}{% set a = ns.o + 'a' %}{% set b = ns.o + 'bc' %}{{ a[-3:] }}{{ b[-3:] }}{{ (a + 'x')[-3:] }}{{ (b[:-1] + 'y')[-3:] }}{{ b[-3:] }}",
    # conditionals, scopes
    "{% if i > 5 %}A{% elif i > 3 %}B{% else %}C{% endif %}{% if no %}A{% elif i == 7 %}B{% endif %}{% if undef %}x{% else %}y{% endif %}",
    "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}{% if no %}{% set i = 1 %}{% endif %}{{ i }}{% set i = i + 1 %}{{ i }}",
    "{% macro m() %}{{ late }}{{ i }}{% endmacro %}{{ m() }}{% set late = 'set' %}{{ m() }}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% for x in [1] %}{{ s2 }}{{ s }}{% endfor %}{% set s2 = 'b' %}{% for x in [1] %}{{ s2 }}{% endfor %}",
    "{% with a = 1, b = i %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}{% with %}{% set w = 2 %}{{ w }}{% endwith %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, (e2, f2)) = (3, (4, 5)) %}{{ c }}{{ e2 }}{{ f2 }}{% set t = 1, 2 %}{{ t }}",
    "{% set x %}a{{ i }} {% if yes %}b{% endif %}{% endset %}[{{ x }}]{% set y | upper | trim %} c {% endset %}[{{ y }}]",
    "{% filter upper | replace('A', '-') %}a{{ s }}b{% endfilter %}{% generation %}gen {{ i }}{% endgeneration %}{% block b %}in block {{ s }}{% endblock %}",
    "{% set x = 'set' %}{% for y in l %}{% set z = y %}{% block b2 %}{% for q in [1] %}{{ x }}{{ y }}{{ z }}{{ i }}{% endfor %}{% endblock %}{% endfor %}",
    "{% set ns = namespace(a=1) %}{% set ns.b = [ns] %}{{ ns }}{{ (-0.4) | round(0, 'ceil') }}{{ -0.0 | round }}{{ 'a' ~ (-0.0) % 1 }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{% set ns.c, ns.a = 3, 4 %}{{ ns }}{{ ns['c'] }}",
    "{% print i, s %}{% raw %}{{ no }} {% if %}{# #}{% endraw %}{# comment {{ x }} #}|{%- raw -%}  a  {%- endraw -%}|",
    # macros
    "{% macro m(a, b=2, c='x' ~ a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=4, a=5) }} {{ m(1, c=none) }} {{ m() }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m(*l) }}{{ m(**{'a': 9, 'z': 8}) }}",
    "{% macro m(t) %}<{{ t }}>{{ caller(1, b=2) }}</{{ t }}>{% endmacro %}{% call(a, b, c=3) m('x') %}{{ a }}{{ b }}{{ c }}{{ s }}{% endcall %}",
    "{% macro fact(n) %}{% if n < 2 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }}{{ fact.name }}{{ fact.arguments }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}{{ a() | upper }}{% set r = a() %}{{ r ~ r }}{{ a }}",
    "{%- macro m() -%}  x  {%- endmacro -%}[{{ m() }}][{{- m() -}}]",
    "{% for x in l if x %}{{ loop }}{% endfor %}", "{{ '{:,}'.format(s) }}", "{{ '{:+}'.format(s) }}", "{{ '{: }'.format(s) }}", "{{ '{:#}'.format(s) }}",
    "{{ '{:=9}'.format(s) }}", "{{ s | wordwrap(0) }}", "{{ i | wordwrap }}", "{{ ('{:4}' | e).format(html | e) }}",
    # white space
    "a\n  {% if yes %}\n  b\n  {% endif %}\n  c\n{{ i }}\n\n{{ i }}  \n",
    "  {%- if yes -%}  \n x \n  {%- endif +%}\n y \n   {%+ if yes %}\n z{% endif %}\n",
    "a {#- c -#} b\n  {# c #}\n  d {# e #} f\n{#+ x +#}\ng",
    "\t{% set x = 1 %}\t\n {{- x -}} \n\n{%- set y = 2 %}\n\n{{ y }}\n\n",
    "{% raw +%}\n a\n {% endraw %}\n b\r\n c\rd",
    "{{ 'a\\nb\\t\\x41\\u00e9\\U0001f642\\101\\'' }}{{ \"x\\\ny\" }}{{ '\\d' }}",
    "x{{ {'a': {'b': 1}} }}}{{ '}}' }}{% if '%}' %}{% endif %}",
    # what is refused
    "{{ raise_exception('No way: ' ~ i) }}", "\n\n{% if yes %}\n{{ undef.x }}{% endif %}", "{{ undef + 1 }}", "{{ d.x.y }}", "{{ n.x.y }}",
    "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ l[9].x }}", "{{ d.nope() }}", "{{ s() }}", "{{ s + 1 }}", "{{ 1 + s }}", "{{ s + none }}",
    "{{ l + s }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ n | length }}", "{{ i | tojson | nope }}", "{{ i is nope }}",
    "{% if no %}{{ i | nope }}{% endif %}fine", "{% if yes %}{{ i | nope }}{% endif %}", "{% for x in i %}{% endfor %}", "{{ 'a' < 1 }}",
    "{{ undef < 1 }}", "{{ 1 in 'a' }}", "{{ 1 in 1 }}", "{% set a, b = [1] %}", "{% set d.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ {[]: 1} }}", "{{ undef | tojson }}", "{{ range(1000000) }}", "{{ m(1) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% include 'x' %}", "{{ '%d' % 'x' }}", "{{ '%s%s' % 1 }}", "{{ [1, 'a'] | sort }}",
    "{% if %}", "{% if yes %}", "{% endif %}", "{% for x in l %}{% endif %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1", "{% set 1 = 2 %}", "{% nope %}",
    "{{ a b }}", "{% raw %}", "{# ", "{{ 'a }}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ x is a is b }}", "{{ ] }}", "{{ ? }}",
    "{% for loop in l %}{% endfor %}", "{% else %}", "a\n{% for x in l %}\n{{ x }\n{% endfor %}",
    # what others' templates do
    "{{- bos_token }}{%- for m in messages %}{%- if m.role not in ['user', 'assistant'] %}{{- raise_exception('bad role ' + m.role) }}{%- endif %}"
    "{{- '<|' ~ m['role'] ~ '|>\\n' ~ (m.content | trim) ~ '\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}",
    "{%- set ns = namespace(found=false) %}{%- for m in messages[::-1] %}{%- set idx = messages | length - 1 - loop.index0 %}"
    "{%- if not ns.found and m.role == 'user' %}{%- set ns.found = true %}{{- idx }}{%- endif %}{%- endfor %}{{ messages[0].reasoning_content is defined }}",
    "{%- macro render(c) %}{%- if c is string %}{{- c }}{%- else %}{%- for p in c %}{%- if p.type == 'text' %}{{- p.text }}{%- endif %}{%- endfor %}"
    "{%- endif %}{%- endmacro %}{% for m in messages %}{{ render(m.content) }}{% endfor %}{{ tools }}{{ documents }}",
]
CHAT = [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Yo", "reasoning": "hm", "tool_calls": None}, {"role": "user", "content": "Bye\n"}]


def cases():
    for line in EXPRESSIONS.strip().split("\n"):
        yield "{{ [" + line + "] }}" if "undef, " not in line else "{{ (" + line + ") }}", dict(VARS)
    for t in TEMPLATES:
        yield t, dict(VARS, bos_token="<s>", messages=CHAT) if "messages" in t else dict(VARS)


# --- others' ---

def call(args, **more):
    return {"id": "call_1___", "type": "function", "function": {"name": "get_weather", "arguments": args}, **more}


def conversations():
    user = {"role": "user", "content": "Hello <there> & \"you\"!\n  Grüße 你好 🙂 "}
    system = {"role": "system", "content": "You help.\n\n"}
    bot = {"role": "assistant", "content": "Hi.\n<think>hm\nwell</think>\n\nanswer"}
    calls = {"role": "assistant", "content": "", "tool_calls": [call({"city": "Zürich", "n": 3, "x": 1.5, "o": {"a": [1, {"b": None}], "t": True}})]}
    texts = {"role": "assistant", "content": None, "tool_calls": [call("{\"city\": \"Z\\u00fcrich\"}"), call("{}", id="abcdefghi")]}
    tool = {"role": "tool", "tool_call_id": "call_1___", "name": "get_weather", "content": "{\"temp\": 21.5}"}
    parts = {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": " two"}]}
    thought = {"role": "assistant", "reasoning_content": "let me think", "content": "Answer."}
    older = {"role": "assistant", "thinking": "thought", "content": "Answer.", "tool_calls": calls["tool_calls"]}
    odd = [{"role": "user", "content": x} for x in ("", None, [], 5, {"a": 1})]
    yield from ([user], [system, user, bot], [system, user, bot, user], [user, user], [bot], [system], [system, user, calls, tool, bot, user])
    yield from ([user, texts, tool, bot], [user, calls, tool, user, older, tool], [system, user, thought, user, thought], [parts], [user, bot, parts])
    yield from ([{"role": "system", "content": [{"type": "text", "text": "sys"}]}, parts], [{"role": "developer", "content": "dev"}, user])
    yield from ([{"role": "weird", "content": "x"}, user], [user, {"role": "assistant", "content": None}, user], [user, calls], [{"role": "user"}])
    yield from ([x] for x in odd)


def options():
    tools = [{"type": "function", "function": {
        "name": "get_weather", "description": "Get \"the\" weather\nnow <b>", "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "The city"}, "unit": {"type": "string", "enum": ["c", "f"]},
            "n": {"type": ["integer", "null"], "default": 1.0}, "o": {"type": "array", "items": {"type": "number"}}}}}},
        {"type": "function", "function": {"name": "f2", "description": "", "parameters": {"type": "object", "properties": {}}}}]
    yield {}
    yield {"tools": tools, "add_generation_prompt": True}
    yield {"tools": [t["function"] for t in tools], "enable_thinking": True, "thinking": True, "reasoning_effort": "high"}
    yield {"enable_thinking": False, "thinking": False, "add_generation_prompt": True, "documents": [{"title": "T", "text": "ü"}], "tools": []}


def third():
    """Name, source and inputs of each of others' templates; the date is a fixed one."""
    for path in sorted(glob.glob(os.path.join(THIRD, "**/*.jinja"), recursive=True)):
        source = open(path, newline="", encoding="utf-8").read()
        if "strftime_now" in source:
            source = "{% macro fixed_now(f) %}26 Jul 2024{% endmacro %}" + source.replace("strftime_now", "fixed_now")
        tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        yield os.path.relpath(path, THIRD), source, [dict(tokens, messages=m, **o) for m, o in itertools.product(conversations(), options())]


def told(message):
    """The beginning of an error as one line, which is how lq tells it."""
    return "".join("?" if ord(c) < 32 else c for c in message)[:200]


def digest(results):
    h = hashlib.sha256()
    for kind, text in results:
        h.update(f"{kind} {len(text)} ".encode() + text.encode())
    return h.hexdigest()[:32]


# --- Jinja2's answers ---

def reference(source, given):
    from transformers.utils import chat_template_utils
    given = dict(given)
    try:
        if "messages" in given:
            chat = [{k: v for k, v in m.items() if v is not None} for m in given.pop("messages")] # as apply_chat_template
            return "text", chat_template_utils.render_jinja_template([chat], chat_template=source, **given)[0][0]
        given = {"tools": None, "documents": None, "add_generation_prompt": False, **given}
        return "text", chat_template_utils._compile_jinja_template(source).render(**given)
    except Exception as e: # whatever a template may raise
        return "error", told("maximum recursion depth exceeded" if isinstance(e, RecursionError) else str(e))


def make():
    rows = [{"template": t, kind: out} for t, given in cases() for kind, out in [reference(t, given)]]
    with open(os.path.join(HERE, "templates.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]\n")
    with open(os.path.join(HERE, "templates_third.txt"), "w", encoding="utf-8") as f:
        for name, source, inputs in third():
            f.write(f"{digest(reference(source, x) for x in inputs)} {name}\n")


if __name__ == "__main__":
    make()
