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
    out = os.path.join(path, "out.bin")
    cmd = [dump, path, os.path.join(path, "ids.bin"), out, str(tokens), isa, str(threads), str(batch), mode]
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode:
        return None, r.stderr.strip()
    return np.fromfile(out, "<f4").reshape(tokens, -1), ""


flags = open("/proc/cpuinfo").read()
isas = ["c"] + (["avx2"] if "avx2" in flags else []) + (["avx512"] if "avx512_vnni" in flags else [])
skipped += 3 - len(isas)
with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    for name in models.MODELS:
        path, tokens = os.path.join(folder, name), make_models.tokens(name)
        cfg, w, ids = make_models.load(path)
        golden = np.load(os.path.join(here, "logits", name + ".npy"))
        first, why = logits(path, tokens)
        if first is None and "is not one lq knows" in why:
            skipped += 1
            print(f"SKIPPED: {name}: lq does not know {cfg['architectures'][0]}")
            continue
        bound = decoder_np.bound(cfg, w, ids)[:: make_models.EVERY]
        for isa in isas:
            got, why = logits(path, tokens, isa)
            if got is None:
                check(False, f"{name} {isa}: {why}")
                continue
            got = got[:: make_models.EVERY]
            worst = (np.abs(got - golden).max(-1) / bound).max() if got.shape == golden.shape else np.inf
            check(worst <= 1, f"{name} {isa}: off by {worst:.2f} of the bound")
            print(f"{name:14} {isa:7} largest error {np.abs(got - golden).max():.2e}, {worst:.2f} of the bound")
        for mode in ("exact", "default"):
            first, why = logits(path, tokens, mode=mode)
            for threads, batch in ((1, 512), (2, 1), (2, 7), (2, 64), (3, 33)):
                got, why = logits(path, tokens, threads=threads, batch=batch, mode=mode)
                same = got is not None and first is not None and got.tobytes() == first.tobytes()
                check(same, f"{name} {mode}: other bits with {threads} threads, chunks of {batch} {why}")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed != 0)
