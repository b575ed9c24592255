#!/usr/bin/env python3
"""eval.py LQ: lq eval as a person or script uses it: several models in one table, JSON, files that are there already, the page (one
file, well-formed, everything escaped, names that do not overlap, round ticks), and Ctrl-C. The figures are checked in tests/golden."""
import html.parser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

lq = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
demo, text = os.path.join(root, "calib_data", "demo"), os.path.join(root, "calib_data", "test.txt")
slow = float(os.environ.get("LQ_SLOW", "1"))
passed = failed = 0


def check(good, what, more=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED:", what, repr(more)[:300] if more != "" else "")


def run(*words):
    return subprocess.run([lq, *words], capture_output=True, stdin=subprocess.DEVNULL, text=True)


class Page(html.parser.HTMLParser):
    """The elements of a page; every one is closed, in order."""
    EMPTY = {"meta"}

    def __init__(self, source):
        super().__init__()
        self.open, self.all, self.texts, self.good = [], [], [], True
        self.feed(source)
        self.good = self.good and not self.open

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self.good = self.good and bool(self.open) and self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", self.all[-1][1], data))


def overlaps(page):
    """Pairs of names in one chart that lie on each other, by their middle and a letter's least width."""
    charts, bad = [], []
    for tag, attrs, data in page.texts:
        if tag == "text" and attrs.get("class") == "title" and data.startswith("file size"):
            charts.append([])
        if tag == "text" and attrs.get("class") == "name" and charts:
            charts[-1].append((float(attrs["x"]), float(attrs["y"]), len(data) * 5.2, data))
    for names in charts:
        bad += [(a[3], b[3]) for i, a in enumerate(names) for b in names[:i] if abs(a[0] - b[0]) < (a[2] + b[2]) / 2 and abs(a[1] - b[1]) < 11]
    return charts, bad


def pages():
    evil = "a<b>&\"'\u202e\x1b[1m model with a name that is far too long for any chart.lq"
    models = ["near1.lq", "near2.lq", "near3.lq", evil]
    for m, kind in zip(models, ("int4 g32", "int4 g32", "int4 g32 f32", "int3 g32")):
        run("quantize", demo, m, "--type", kind, "--quiet")
    models.append("near4.lq")
    shutil.copy("near1.lq", "near4.lq") # without a report
    open("near2.lq.report.json", "w").write('{"modules": [{"name": "<i>.1.x", "rel_error": "many"}, 3, {"rel_error": 1}, {"name": "a.3.<i>", "rel_error": 0.5}]}')
    open("near3.lq.report.json", "w").write("{no JSON")
    ask = ["--text", text, "--windows", "2", "--window", "64", "--quiet", "--exact"]
    r = run("eval", *models, demo, *ask, "--against", demo, "--html", "page.html")
    check(r.returncode == 0, "a page", r.stderr)
    source = open("page.html", encoding="utf-8").read()
    page = Page(source)
    check(page.good, "the page's elements are not closed in order", page.open)
    check(source.startswith("<!DOCTYPE html>") and not {"script", "link", "img", "iframe", "i", "b>"} & {t for t, _ in page.all}, "elements of a page that needs nothing else")
    check(not re.search(r"https?:|url\(|@import|\son[a-z]+=", source), "the page refers to something outside")
    check("\x1b" not in source and "\u202e" not in source and "a<b>" not in source, "a file's name is not escaped")
    check("&lt;b&gt;&amp;&quot;&#39;\\u{202e}\\x1b[1m" in source and "&lt;i&gt;" in source, "an escaped name is missing")
    charts, bad = overlaps(page)
    check(len(charts) == 4 and [len(c) for c in charts] == [6, 5, 6, 5] and not bad, "names in the charts", (bad, [len(c) for c in charts]))
    ticks = [float(d) for t, a, d in page.texts if t == "text" and a.get("class") == "tick" and re.fullmatch(r"[-0-9.e]+", d)]
    check(len(ticks) > 20 and all(len(f"{v:.6e}".rstrip("0123456789").split("e")[0].rstrip("0").replace(".", "")) <= 4 for v in ticks), "ticks are not round", ticks)
    check(source.count("Error by layer") == 4 - 1 and source.count("<figure>") == 9, "figures", source.count("<figure>"))
    check("prefers-color-scheme:dark" in source and "width=device-width" in source, "dark, or phones")
    check(not os.path.exists("page.html.partial"), "a rest of the page")
    again = run("eval", demo, *ask, "--html", "page.html")
    check(again.returncode == 2 and "--force" in again.stderr and open("page.html").read() == source, "a page that is there", again.stderr)
    check(run("eval", demo, *ask, "--html", "page.html", "--force").returncode == 0 and "Divergence" not in open("page.html").read(), "a page of one model, over another")
    check(run("eval", demo, *ask, "--html", "none/page.html").returncode == 1, "a page in a folder that is not there")


def tables():
    ask = ["--text", text, "--windows", "1", "--window", "64", "--quiet"]
    r = run("eval", "near1.lq", demo, *ask, "--against", demo)
    rows = [line.split() for line in r.stdout.splitlines() if "llamacpp512  " in line or "gptq2048  " in line]
    check([row[:3] for row in rows] == [[m, p, a] for a in ("exact", "default") for p in ("gptq2048", "llamacpp512") for m in ("near1.lq", "demo")], "the table's rows", r.stdout)
    out = json.loads(run("eval", "near1.lq", demo, *ask, "--against", demo, "--json").stdout)
    check(out["against"] == demo and [m["model"] for m in out["models"]] == ["near1.lq", demo] and len(out["results"]) == 8 and out["tasks"] == [], "JSON", out)
    check(out["models"][0]["bytes"] == os.path.getsize("near1.lq") and len(out["results"][0]["kld"]["by_position"]) == 32, "sizes and positions")
    check("kld" not in json.loads(run("eval", demo, *ask, "--json").stdout)["results"][0], "a divergence from nothing")
    for words, says in ((["--save-logits", "l.safetensors"], "--protocol"), (["--against", demo, "--save-logits", "l.safetensors", "--protocol", "gptq2048"], "without --against"),
                        (["--exact", "--served"], "exclude")):
        r = run("eval", demo, *ask, *words)
        check(r.returncode == 2 and says in r.stderr, words, r.stderr)
    r = run("eval", demo, "--against", demo)
    check(r.returncode == 2 and "--text FILE is missing" in r.stderr, "no text", r.stderr)
    r = run("eval", demo, *ask, "--against", "nothing-here")
    check(r.returncode == 1 and "nothing-here" in r.stderr and r.stderr.count("\n") == 1, "no reference", r.stderr)


def interrupts():
    with open("long.txt", "w") as f:
        f.write(open(text).read() * 20)
    with open("many.jsonl", "w") as f:
        f.write('{"query": "Once upon a time there was a boy who", "choices": ["went home.", "sang a song."], "gold": 1}\n' * 50000)
    for words in (["--text", "long.txt", "--against", demo], ["--text", "long.txt", "--protocol", "gptq2048", "--save-logits", "s.safetensors"], ["--tasks", "many.jsonl"]):
        child = subprocess.Popen([lq, "eval", demo, *words, "--html", "stopped.html"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        time.sleep(1.0 * slow)
        child.send_signal(signal.SIGINT)
        started = time.monotonic()
        _, err = child.communicate()
        check(child.returncode == 1 and b"stopped" in err and time.monotonic() - started < 2 * slow + 1, f"Ctrl-C: {words}", (child.returncode, err, time.monotonic() - started))
        check(not os.path.exists("stopped.html") and not os.path.exists("s.safetensors"), f"files of {words} that was stopped")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pages()
    tables()
    interrupts()
    os.chdir("/")
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(failed != 0)
