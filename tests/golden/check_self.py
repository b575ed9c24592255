#!/usr/bin/python3
# check_self.py LQ: `lq quantize --calib self`: the tokens that the model writes are drawn as its own probabilities say, by a numpy forward of each text; they
# and the file are the same for any number of threads, behind a run that was killed and from the recipe of the file; what has no room is told in a line.
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import decoder_np
import st
from counted import check, end, told
from watched import config, lq, run

demo = os.path.join(here, "../../calib_data/demo")
SAMPLES, LEN = 16, 96
WORDS = ("-m", "gptq", "--bits", 4, "--calib", "self", "--samples", SAMPLES, "--seqlen", LEN)


def quantize(out, *words):
    return subprocess.run([lq, "quantize", demo, out, "--force", *map(str, WORDS), *map(str, words)], capture_output=True, text=True)


def written(out):
    """The sequences that a run has kept so far, each on its line."""
    path = out + ".partial/measured"
    text = open(path).read() if os.path.exists(path) else ""
    return [json.loads(line.split(" ", 1)[1]) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def killed(out):
    """A run that is killed when all of its text is there."""
    p = subprocess.Popen([lq, "quantize", demo, out, "--quiet", *map(str, WORDS)])
    while p.poll() is None and len(written(out)) < SAMPLES:
        time.sleep(0.001)
    p.send_signal(signal.SIGKILL)
    p.wait()
    return written(out)


def texts_of(ids, bos):
    starts = [i for i, t in enumerate(ids) if t == bos] + [len(ids)]
    return [ids[a:b] for a, b in zip(starts, starts[1:])]


def probabilities(lines):
    """What -ln p of a drawn token is on average is the entropy of what it was drawn from: the differences, over their own variance, are a number of
    mean 0 and variance 1."""
    cfg, w = config(demo), {n: a.astype(np.float64) for n, a in st.read(os.path.join(demo, "model.safetensors"))[0].items()}
    bos = json.loads(run("tokenize", demo, "-p", "", "--json"))["ids"][0]
    apart = variance = count = 0
    for line in lines:
        ids = line[2:]
        check(len(ids) == LEN and ids[0] == bos, f"sequence {line[1]}: {len(ids)} tokens, the first is {ids[0]}")
        for text in texts_of(ids, bos):
            logits = decoder_np.forward(cfg, w, np.array(text), decoder_np.Exact())[: len(text) - 1]
            ln = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)
            p = np.exp(ln)
            h = -(p * ln).sum(1)
            apart += (-ln[np.arange(len(text) - 1), text[1:]] - h).sum()
            variance += ((p * ln * ln).sum(1) - h * h).sum()
            count += len(text) - 1
    z = apart / math.sqrt(variance)
    told(abs(z) < 4, f"{count} tokens: -ln p is {apart / count:.4f} above the entropy, {z:.2f} standard errors")
    check(len({tuple(line[2:]) for line in lines}) == SAMPLES, "no two sequences are the same")


with tempfile.TemporaryDirectory() as folder:
    out, other, again = (os.path.join(folder, name + ".lq") for name in ("out", "other", "again"))
    r = quantize(out, "--dry-run")
    check(r.returncode == 0 and '"text": "self"' in r.stderr and not os.path.exists(out + ".partial"), f"--dry-run: {r.stderr}")
    r = quantize(out, "--threads", 1)
    check(r.returncode == 0 and f"writes {SAMPLES} sequences" in r.stderr, f"exit {r.returncode}: {r.stderr}")
    whole, recipe = open(out, "rb").read(), st.read(out)[1]["lq.recipe"]
    check(not os.path.exists(out + ".partial"), "what was kept is gone with the rest")

    lines = killed(other)
    probabilities(lines)
    path = other + ".partial/measured"
    kept = open(path).read().splitlines(keepends=True)
    open(path, "w").write("".join(kept[:3]) + kept[3][:100])  # the fourth was torn
    r = quantize(other)
    check(r.returncode == 0 and f"writes {SAMPLES - 3} sequences" in r.stderr, f"behind three sequences: {r.stderr}")
    check(open(other, "rb").read() == whole, "the file of a run that went on differs")
    run("quantize", demo, again, "--recipe", recipe, "--quiet")
    check(open(again, "rb").read() == whole, "the recipe of a file makes the same file")
    seeds = [json.loads(recipe)["calib"]["tokens"]]
    run("quantize", demo, again, "--recipe", recipe, "--quiet", "--force", "--seed", 1)
    seeds.append(json.loads(st.read(again)[1]["lq.recipe"])["calib"]["tokens"])
    check(seeds[0] != seeds[1], "another seed writes another text")
    run("quantize", demo, again, "--recipe", st.read(again)[1]["lq.recipe"], "--quiet", "--force", "--seed", 0)
    check(open(again, "rb").read() == whole, "a seed of 0 that is said counts, whatever the recipe's is")

    r = quantize(again, "--max-ram", "9M")
    fits = re.search(r"--seqlen (\d+) fits", r.stderr)
    check(r.returncode == 1 and r.stderr.count("lq: ") == 1 and fits, f"no room: exit {r.returncode}: {r.stderr}")
sys.exit(end())
