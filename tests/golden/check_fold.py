#!/usr/bin/python3
# check_fold.py LQ: factors of an input's columns are taken out of what stands before it: the exact-mode logits of every tiny model, all of its
# inputs multiplied by random factors (fold_model.c) and kept in f32, against those transformers computed in f64 of the plain one. Which inputs can
# be folded is held by what is known of a layer of each kind.
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import decoder_np
import make_models
import models
from counted import check, end
from dumped import logits

build = os.path.dirname(os.path.abspath(sys.argv[1]))
FOLDED = {  # of a layer: norm, o, norm, down; those behind a nonlinearity, a residual without a norm or a bound are left alone
    "llama3": (4, 4), "gqa": (4, 4), "mha": (4, 4), "qwen2": (4, 4), "mixtral": (4, 4), "neox": (4, 3), "neox_plain": (4, 3),
    "gpt_oss_mx": (4, 2),  # whose experts are codes that stay
}  # fmt: skip


def check_model(path, name):
    cfg, w, ids = make_models.load(path)
    out = os.path.join(path, "folded.lq")
    r = subprocess.run([os.path.join(build, "fold_model"), path, out], capture_output=True, text=True)
    if r.returncode:
        return check(False, f"{name}: {r.stderr.strip()}")
    inputs, folded = map(int, r.stdout.split())
    if name in FOLDED:
        layers = cfg["num_hidden_layers"]
        check((inputs, folded) == tuple(layers * n for n in FOLDED[name]), f"{name}: {folded} of {inputs} inputs were folded")
    got, why = logits(out, make_models.tokens(name))
    if got is None:
        return check(False, f"{name}: {why}")
    # Each weight is multiplied and divided once more, up to three roundings, each no more than that of its products.
    golden, bound = np.load(os.path.join(here, "logits", name + ".npy")), 4 * decoder_np.bound(cfg, w, ids)
    rows = slice(None, None, make_models.EVERY)
    worst = (np.abs(got[rows] - golden).max(-1) / bound[rows]).max()
    check(worst <= 1, f"{name}: folded, off by {worst:.2f} of the bound")
    print(f"{name:22} {folded:2} of {inputs:2} inputs, largest error {np.abs(got[rows] - golden).max():.2e}, {worst:.2f} of the bound")


with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    for name in models.MODELS:
        check_model(os.path.join(folder, name), name)
sys.exit(end())
