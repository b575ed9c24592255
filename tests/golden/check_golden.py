#!/usr/bin/python3
# check_golden.py LQ: exact-mode logits of tiny random models of every architecture against those transformers computed
# in f64 (tests/golden/logits, made by make_golden.py), within what f32 arithmetic explains (decoder_np.bound), on every
# ISA; then the same models quantized, against a forward over what rtn_reference.py makes of their weights; and the same
# bits for any chunk of the prefill, any number of threads, and where only the last positions are asked for.
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each of the processes that share the models
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, ".."))
import decoder_np
import make_models
import counted
import rtn_reference
from counted import check, end, skip
from dumped import logits

lq = os.path.abspath(sys.argv[1])


LAYER = re.compile(r"(^|\.)((layers|h|blocks)\.\d+|project_(in|out)|per_layer_model_projection)\.")


ROUTERS = ("gate.wg.weight", "router.gate.weight", "moe.gate.weight", "mlp.gate.weight", "router.weight", "router.layer.weight", "shared_expert_gate.weight", "e_score_correction_bias")


def grouped(rows):
    a = rows.reshape(-1, rows.shape[-1]).astype(np.float32)
    return rtn_reference.dequantize(*rtn_reference.quantize(a, 4, 32, False), 32).astype(np.float64).reshape(rows.shape)


def rounded(cfg, w):
    """What `lq quantize --type "int4 g32"` makes of a checkpoint: every matrix of a layer but routers, fused or not. A head's
    matrices of latents are two: that of K is turned around, as it meets q."""
    out, shapes = {}, make_models.shapes(cfg)
    for name, a in w.items():
        if cfg.get("_mx") and shapes[name][1] == "stack1d":  # stays as it is
            what = ""
        else:
            what = shapes[name][1] if LAYER.search(name) and a.ndim >= 2 else ""
        if name.endswith("kv_b_proj.weight"):
            heads, nope = a.reshape(cfg["num_attention_heads"], -1, a.shape[-1]), cfg["qk_nope_head_dim"]
            k = np.swapaxes(grouped(np.swapaxes(heads[:, :nope], 1, 2)), 1, 2)
            a = np.concatenate([k, grouped(heads[:, nope:])], 1).reshape(a.shape)
        elif what in ("matrix", "conv1d", "stack1d") and not name.endswith(ROUTERS):
            turned = a if what == "matrix" else np.swapaxes(a, -1, -2)  # others are [k][n]
            rows = grouped(turned)
            a = rows if what == "matrix" else np.swapaxes(rows, -1, -2)
        out[name] = a
    return out


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
        for batch in (512, 33):  # rows about which nobody asks do not go through all layers
            got, why = logits(path, tokens, batch=batch, mode=mode, pool="tail")
            same = got is not None and first is not None and got.tobytes() == first[-9:].tobytes()
            check(same, f"{what} {mode}: other bits where the last ones alone are asked for, chunks of {batch} {why}")


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


def check_states(path, name):
    """Embeddings against transformers' last hidden states. A vector of f32 sums is off by far less than an angle that a cosine shows."""
    golden, tokens = np.load(os.path.join(here, "states", name + ".npy")).astype(np.float64), make_models.tokens(name)
    for pool, want in zip(("last", "mean"), golden):
        vectors = [logits(path, tokens, isa, batch=batch, pool=pool) for isa in isas for batch in (7, 512)]
        for got, why in vectors:
            good = got is not None and got.shape == (1, len(want))
            off = 1 - got[0].astype(np.float64) @ want / np.linalg.norm(want) if good else 1
            check(good and abs(off) < 1e-6 and np.abs(got[0] - want).max() < 1e-5, f"{name} {pool}: off by {off:.1e} {why}")
        same = {got.tobytes() for got, _ in vectors[-2:] if got is not None}
        check(len(same) == 1, f"{name} {pool}: other bits in other chunks")


def check_quantized(path, name):
    """The same model quantized: what a fused tensor or a stack of experts becomes must mean the same."""
    tokens, (cfg, w, ids) = make_models.tokens(name), make_models.load(path)
    cmd = [
        lq,
        "quantize",
        path,
        path + ".lq",
        "--method",
        "rtn",
        "--type",
        "int4 g32",
        "--embed",
        "keep",
        "--head",
        "keep",
        "--quiet",
    ]
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode:
        return check(False, f"{name} int4: {r.stderr.strip()}")
    beside, whole = (make_models.MODELS[name][2][key] for key in ("beside", "whole"))
    if beside:  # of other parts of a larger model; else of layers that no forward reads
        listed = subprocess.run([lq, "inspect", path + ".lq", "--tensors"], capture_output=True, text=True).stdout
        for other in beside:
            check((other in listed) == bool(whole), f"{name} int4: {other} was {'not ' if whole else ''}carried along")
    os.rename(path + ".lq", os.path.join(path, "int4.lq"))
    w = rounded(cfg, w)
    if decoder_np.margin(cfg, w, ids) < 1e-4:
        return check(False, f"{name} int4: a router is too near a tie for a bound to mean anything")
    got, why = logits(os.path.join(path, "int4.lq"), tokens)
    if got is None:
        return check(False, f"{name} int4: {why}")
    want = decoder_np.forward(cfg, w, ids, ctx=len(ids))[:: make_models.EVERY]
    within(f"{name} int4", got, want, decoder_np.bound(cfg, w, ids))
    same_bits(f"{name} int4", os.path.join(path, "int4.lq"), tokens)


def check_one(path):
    """Both, in a process of its own; what it counted."""
    counted.passed = counted.failed = 0
    name = os.path.basename(path)
    check_model(path, name)
    if name in make_models.STATES:
        check_states(path, name)
    check_quantized(path, name)
    sys.stdout.flush()
    return counted.passed, counted.failed


flags = open("/proc/cpuinfo").read()
isas = ["c"] + (["avx2"] if "avx2" in flags else []) + (["avx512"] if "avx512_vnni" in flags else [])
for isa in ("avx2", "avx512")[len(isas) - 1 :]:
    skip(f"{isa}: this CPU does not have it")
with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    with multiprocessing.Pool() as pool:
        for good, bad in pool.imap_unordered(check_one, [os.path.join(folder, name) for name in make_models.MODELS]):
            counted.passed, counted.failed = counted.passed + good, counted.failed + bad
    got, why = logits(os.path.join(folder, "gpt2"), 101)
    check(got is None and "learned 100 positions" in why, f"a context longer than the learned positions: {why}")
    told = subprocess.run([lq, "inspect", os.path.join(folder, "gpt2")], capture_output=True, text=True).stdout
    check("2 layers, 60 wide, 4 heads, 259 words, 100 tokens of context" in told, f"inspect of other names: {told}")
sys.exit(end())
