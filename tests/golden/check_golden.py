#!/usr/bin/python3
# check_golden.py LQ: exact-mode logits of tiny random models of every architecture against those transformers computed
# in f64 (tests/golden/logits, made by make_golden.py), within what f32 arithmetic explains (decoder_np.bound), on every
# ISA; and the same bits for any chunk of the prefill and any number of threads.
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import decoder_np
import make_models
import models

dump = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "dump_logits")
passed = failed = skipped = 0


def check(good, what):
    global passed, failed
    passed, failed = passed + good, failed + (not good)
    if not good:
        print("FAILED:", what)


def logits(path, tokens, isa="auto", threads=2, batch=512, mode="exact"):
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    ids, out = os.path.join(folder, "ids.bin"), os.path.join(folder, "out.bin")
    r = subprocess.run(
        [dump, path, ids, out, str(tokens), isa, str(threads), str(batch), mode], capture_output=True, text=True
    )
    if r.returncode:
        return None, r.stderr.strip()
    return np.fromfile(out, "<f4").reshape(tokens, -1), ""


def within(what, got, want, bound):
    rows = slice(None, None, make_models.EVERY)
    worst = (np.abs(got[rows] - want).max(-1) / bound[rows]).max() if got[rows].shape == want.shape else np.inf
    check(worst <= 1, f"{what}: off by {worst:.2f} of the bound")
    print(f"{what:22} largest error {np.abs(got[rows] - want).max():.2e}, {worst:.2f} of the bound")


def same_bits(what, path, tokens):
    for mode in ("exact", "default"):
        first, why = logits(path, tokens, mode=mode)
        for threads, batch in ((1, 512), (2, 1), (2, 7), (2, 64), (3, 33)):
            got, why = logits(path, tokens, threads=threads, batch=batch, mode=mode)
            same = got is not None and first is not None and got.tobytes() == first.tobytes()
            check(same, f"{what} {mode}: other bits with {threads} threads, chunks of {batch} {why}")


def check_model(path, name):
    tokens, (cfg, w, ids) = make_models.tokens(name), make_models.load(path)
    golden, bound = np.load(os.path.join(here, "logits", name + ".npy")), decoder_np.bound(cfg, w, ids)
    for isa in isas:
        got, why = logits(path, tokens, isa)
        if got is None:
            check(False, f"{name} {isa}: {why}")
        else:
            within(f"{name} {isa}", got, golden, bound)
    same_bits(name, path, tokens)


flags = open("/proc/cpuinfo").read()
isas = ["c"] + (["avx2"] if "avx2" in flags else []) + (["avx512"] if "avx512_vnni" in flags else [])
skipped += 3 - len(isas)
with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    for name in models.MODELS:
        check_model(os.path.join(folder, name), name)
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
