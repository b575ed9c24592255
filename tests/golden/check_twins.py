#!/usr/bin/python3
# check_twins.py LQ: the demo model's twins (calib_data/twins.py) are what they are said to be: the same or nearly the same text, with what
# makes large models hard to quantize, seen in their activations by a forward in numpy, and in what plain rounding costs them.
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
calib = os.path.join(here, "../../calib_data")
sys.path[:0] = [os.path.join(here, ".."), calib]
sys.dont_write_bytecode = True
import twins  # noqa: E402
from bpe import BEGIN, Tokenizer  # noqa: E402
from counted import check, end, told  # noqa: E402

lq, demo = os.path.abspath(sys.argv[1]), os.path.join(calib, "demo")
KINDS = ("gains", "massive", "outliers")


def run(*words):
    r = subprocess.run([lq, *words], capture_output=True, text=True)
    check(r.returncode == 0, " ".join(words), r.stderr)
    return r.stdout


def divergence(reference, *models):
    """What `lq eval` says of each model against the reference, by its file's name."""
    words = ("--text", "short.txt", "--against", reference, "--protocol", "llamacpp512", "--exact", "--json", "-q")
    return {os.path.splitext(r["model"])[0]: r for r in json.loads(run("eval", *models, *words))["results"]}


def test_activations():
    tok = Tokenizer.load(demo + "/tokenizer.json")
    with open(calib + "/test.txt", encoding="utf-8") as f:
        ids = np.array(([BEGIN] + tok.encode(f.read(8000)))[:1024])
    for kind in ("demo", *KINDS):
        cfg, w = twins.load(demo if kind == "demo" else kind)
        seen = twins.forward(cfg, w, ids)
        h = np.concatenate([np.abs(s["down"]) for s in seen[:-1]], 1)
        loud = h[0].argmax()  # the neuron that says most of the first token
        first, others = h[0, loud], h[1:, loud].max()
        # Of each channel the usual size; the fourth largest beside the median one.
        usual = [np.sort(np.median(np.abs(s[n]), 0)) for s in seen[:-1] for n in ("attention", "mlp")]
        times = min(u[-4] / np.median(u) for u in usual)
        held = {"demo": first < 300 and times < 6, "gains": times > 8, "massive": first > 1000 and first > 50 * others, "outliers": times > 30}
        told(held[kind], f"{kind}: a neuron says {first:.0f} of the first token, {others:.0f} at most of others; the fourth channel is {times:.1f} times the median one")


def test_text():
    got = divergence(demo, *KINDS)
    for kind, limit in (("gains", 0.0), ("massive", 0.02), ("outliers", 0.1)):
        kld = got[kind]["kld"]
        told(kld["mean"] <= limit, f"{kind}: perplexity {got[kind]['perplexity']:.4f}, KL divergence {kld['mean']:.6f}, at most {limit}")
    check(got["gains"]["kld"]["max"] == 0, "gains: every logit is the same")


def test_cost():
    """What rounding costs each model against itself: that of the demo is the measure of the twins'."""
    for kind, hard in (("int8 act i8", ("gains", "outliers")), ("int4 g32", ("gains", "outliers"))):
        cost = {}
        for m in (demo, *KINDS):
            out = os.path.basename(m) + ".lq"
            run("quantize", "-q", "-f", m, out, "--type", kind)
            cost[os.path.basename(m)] = divergence(m, out)[os.path.basename(m)]["kld"]["mean"]
        for m in KINDS:
            told(m not in hard or cost[m] > 2 * cost["demo"], f"{kind}: {m} {cost[m]:.6f}, the demo {cost['demo']:.6f}")


def main():
    with tempfile.TemporaryDirectory(prefix="lq-test-twins-") as work:
        os.chdir(work)
        subprocess.run([sys.executable, "-B", calib + "/twins.py", "."], check=True)
        with open(calib + "/test.txt", encoding="utf-8") as f, open("short.txt", "w", encoding="utf-8") as out:
            out.write(f.read(12000))
        test_activations()
        test_text()
        test_cost()


main()
sys.exit(end())
