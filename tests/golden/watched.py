# watched.py: what scripts share that hold `lq quantize` with calibration against numpy: the program, the sequences that it cuts a text into, what
# decoder_np's forward gives to each matrix on them, and the divergence of what was made from what it was made of.
import json
import os
import subprocess
import sys

import numpy as np

import decoder_np
from counted import check

lq = os.path.abspath(sys.argv[1])


def run(*args):
    r = subprocess.run([lq, *map(str, args)], capture_output=True, text=True)
    check(r.returncode == 0, f"lq {' '.join(map(str, args))}: {r.stderr.strip()}")
    return r.stdout


def config(model):
    return json.load(open(os.path.join(model, "config.json")))


def sequences_of(model, text, length):
    ids = json.loads(run("tokenize", model, text, "--no-special", "--json"))["ids"]
    bos = json.loads(run("tokenize", model, "-p", "", "--json"))["ids"]
    own = length - len(bos)
    return [np.array(bos + ids[i : i + own]) for i in range(0, len(ids) // own * own, own)]


class Watch(decoder_np.Exact):
    """Keeps what each matrix was given."""

    def __init__(self):
        self.x = {}

    def input(self, x, w):
        self.x.setdefault(id(w), []).append(x)
        return x


def inputs(cfg, w, sequences):
    """name -> all rows that the matrix of this name reads; of one that read nothing, none."""
    f = Watch()
    for ids in sequences:
        decoder_np.forward(cfg, w, ids, f)
    return {name: np.concatenate(f.x[id(a)]) if id(a) in f.x else np.zeros((0, a.shape[-1])) for name, a in w.items() if a.ndim == 2}


def kld(model, files, text):
    r = json.loads(run("eval", *files, "--against", model, "--exact", "--protocol", "llamacpp512", "--text", text, "--json"))["results"]
    return [m["kld"]["mean"] for m in r]
