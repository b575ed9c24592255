#!/usr/bin/python3
# check_templates.py LQ: chat templates against what Jinja2 makes of them with transformers' settings: templates of our
# own (templates.json), others' (hashes, where shared/data is), the clock, and templates that are out to harm.
import datetime
import json
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..")]
import template_cases as cases  # noqa: E402
from counted import check, end, skip  # noqa: E402

program = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "render_templates")
slow = float(os.environ.get("LQ_SLOW", 1))
renderer = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def render(source, given):
    """("text", it) or ("error", the line)"""
    ask = {"template": source, "vars": {k: json.dumps(v) for k, v in given.items()}}
    renderer.stdin.write(json.dumps(ask).encode() + b"\n")
    renderer.stdin.flush()
    (answer,) = json.loads(renderer.stdout.readline()).items()
    return answer


def reason(line):
    """An error without "template: line 3: "."""
    return line.split(": ", 2)[-1][:200] if line.startswith("template: line ") else line[:200]


def check_ours():
    rows = json.load(open(os.path.join(here, "templates.json"), encoding="utf-8"))
    asked = list(cases.cases())
    check([t for t, _ in asked] == [r["template"] for r in rows], "templates.json is not of these cases: make it again")
    for row, (source, given) in zip(rows, asked):
        kind, text = render(source, given)
        if "text" in row:
            check((kind, text) == ("text", row["text"]), f"{source!r} gives\n  {text!r}, not\n  {row['text']!r}")
        else:
            check(kind == "error" and reason(text) == row["error"], f"{source!r}: {kind} {text!r}, not the error {row['error']!r}")


def check_third():
    if not os.path.isdir(cases.THIRD):
        return skip("others' templates (shared/data/templates) are not there")
    want = dict(line.split(" ", 1)[::-1] for line in open(os.path.join(here, "templates_third.txt"), encoding="utf-8").read().splitlines())
    seen = 0
    for name, source, inputs in cases.third():
        got = (render(source, x) for x in inputs)
        got = cases.digest((kind, reason(text) if kind == "error" else text) for kind, text in got)
        check(got == want.get(name), f"{name}: not what Jinja2 makes of it")
        seen += 1
    check(seen == len(want), f"{seen} of others' templates, {len(want)} have hashes")


def check_clock():
    form = "%Y-%m-%d %d %b %B %A %a %j %H %M %p %y %% %e %-d %D x %U %Z%z|"
    for _ in range(3): # the minute may end in between
        before = datetime.datetime.now().strftime(form)
        kind, text = render("{{ strftime_now(f) }}", {"f": form})
        if before == datetime.datetime.now().strftime(form):
            break
    check((kind, text) == ("text", before), f"strftime_now: {text!r}, not {before!r}")


# Each ends in one line, in bounded time and memory.
HOSTILE = [
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "{{ range(1000000000) }}", "{{ 'x' * 1000000000000 }}", "{{ [0] * 1000000000 }}", "{{ 'x' * 100000000 * 100 }}",
    "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s == ns.s[0] }}",
    "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s | tojson }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{% macro m() %}{% for x in range(100000) %}{{ m() }}{% endfor %}{% endmacro %}{{ m() }}",
    "{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}", "{{ " + "[" * 3000 + "]" * 3000 + " }}", "{{ " + "-" * 100000 + "1 }}",
    "{{ " + "not " * 100000 + "1 }}", "{{ 1" + " + 1" * 100000 + " }}", "{{ x" + ".x" * 100000 + " }}", "{{ 1" + " if 1 else 1" * 100000 + " }}",
    "{% if 1 %}" * 100000, "{% for x in [1] %}" * 1000 + "{% endfor %}" * 1000, "{{ 'a'|center(1000000000) }}", "{{ '%1000000000d' % 1 }}",
    "{{ '{:1000000000}'.format(1) }}", "{{ 2 ** 100 }}", "{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775808 }}", "{{ -9223372036854775807 - 2 }}",
    "{% set ns = namespace(s='a' * 100000) %}{% for i in range(100000) %}{{ ns.s | replace('a', 'bb') | length }}{% endfor %}",
    "{% for i in range(100000) %}{{ ('a' * 100000).find('b') }}{% endfor %}", "{% for i in range(100000) %}{{ (range(100000) | list) == i }}{% endfor %}",
    "{% for i in range(100000) %}{{ range(100000) | sort | length }}{% endfor %}", "{{ ('a' * 1000000).rsplit('aab' * 100000) | length }}{{ 1 / 0 }}",
    "{{ range(100000) | map('string') | join(',' * 100000) }}", "{{ 'a' * 3000000 | tojson(indent=1000000000) }}", "{{ [1] | tojson(indent=1000000000) }}",
    "{% set x = 'a' * 1000000 %}{{ x.strip(x) }}{% for i in range(100000) %}{{ x.strip('b' * 1000000) }}{% endfor %}",
    "{% set s = '}' * 1000001 %}{{ s.format() }}", "{{ 'x'.zfill(10000000000) }}", "{{ 'a\tb'.expandtabs(1000000000) }}", "{{ [1] | slice(1000000000) | list }}",
    "{{ [1] | batch(1000000000, 0) | list | length }}", "{% filter indent(1000000000) %}a\nb{% endfilter %}", "{{ {}" + " | dictsort" * 100000 + " }}",
    "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "{{ m(**{'a': 1}) }}{% macro m(a) %}{% endmacro %}", "{{ dict(range(5)) }}",
]


def processor_time():
    """Seconds that the renderer has computed."""
    fields = open(f"/proc/{renderer.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_hostile():
    for source in HOSTILE:
        begun = processor_time()
        kind, text = render(source, {})
        took = processor_time() - begun
        check(kind == "error" and "\n" not in text and len(text) < 508, f"{source[:80]!r}: {kind} {text[:200]!r}, not one line of an error")
        check(took < 10 * slow, f"{source[:80]!r}: {took:.1f} s")
    check(render("still {{ 'here' }}", {}) == ("text", "still here"), "it renders no more")


check_ours()
check_third()
check_clock()
check_hostile()
renderer.stdin.close()
peak = os.wait4(renderer.pid, 0)[2].ru_maxrss >> 10
check(peak < 600, f"it took {peak} MB at most")
sys.exit(end())
