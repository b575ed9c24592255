#!/usr/bin/python3
# check_scaled.py LQ: checkpoints of 8 bits as other programs write them: one scale for each block (weight_scale_inv,
# transformers' fp8), for each row or for all (weight_scale, compressed-tensors' fp8 and int8), of matrices alone, of
# fused ones and of stacks. The tiny models of models.py are rounded to them here; the logits of what that makes of their weights, in f64,
# are what lq's must be, within what f32 arithmetic explains; quantized to bf16 each number must be the product's.
import json
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
import st
from counted import check, end

lq = os.path.abspath(sys.argv[1])
dump = os.path.join(os.path.dirname(lq), "dump_logits")
CODES = np.arange(256, dtype=np.uint8)
VALUES = st.e4m3_value(CODES)
CODES, VALUES = CODES[np.isfinite(VALUES)], VALUES[np.isfinite(VALUES)]
CODES, VALUES = CODES[np.argsort(VALUES, kind="stable")], np.sort(VALUES, kind="stable")


def nearest(a):
    """Codes whose values are nearest to these."""
    i = np.searchsorted((VALUES[1:].astype(np.float64) + VALUES[:-1]) / 2, a)
    return CODES[i], VALUES[i]


def spread(scale, block, shape):
    """Scales of blocks, one for each element."""
    return scale.repeat(block[0], -2)[..., : shape[-2], :].repeat(block[1], -1)[..., : shape[-1]]


def rounded(a, block, kind, elem):
    """Codes, scales, and what they mean: every number is the f32 product that a reader gets."""
    rows, cols = -(-a.shape[-2] // block[0]), -(-a.shape[-1] // block[1])
    whole = np.zeros((*a.shape[:-2], rows * block[0], cols * block[1]))
    whole[..., : a.shape[-2], : a.shape[-1]] = np.abs(a)
    most = whole.reshape(*a.shape[:-2], rows, block[0], cols, block[1]).max((-3, -1))
    scale = (most / (448 if elem == "F8_E4M3" else 127)).astype(np.float32)
    if kind == "BF16":
        scale = st.bf16_value(st.bf16_bits(scale))
    wide = spread(scale, block, a.shape)
    if elem == "I8":
        values = np.clip(np.rint(a / wide), -128, 127)
        codes = values.astype(np.int8)
    else:
        codes, values = nearest(a / wide)
    return codes, scale, (values.astype(np.float32) * wide).astype(np.float32)


# Which model, blocks of how many rows and columns (0: all of them), the type of scales, what stands behind the name.
FORMS = [
    ("gqa", (32, 16), "F32", "_scale_inv"), ("gqa", (1, 0), "BF16", "_scale"), ("gqa", (0, 0), "F32", "_scale"),
    ("mha", (16, 32), "BF16", "_scale_inv"), ("phi3", (16, 16), "F32", "_scale_inv"), ("phi3", (1, 0), "F32", "_scale"),
    ("mixtral", (32, 32), "F32", "_scale_inv"), ("mixtral_fused", (16, 64), "F32", "_scale_inv"), ("mixtral_fused", (1, 0), "F32", "_scale"),
    ("gemma2", (128, 128), "F32", "_scale_inv"), ("neox", (64, 16), "F32", "_scale_inv"),
    ("gqa", (1, 0), "BF16", "_scale", "I8"), ("gqa", (0, 0), "F32", "_scale", "I8"), ("phi3", (1, 0), "F32", "_scale", "I8"),
    ("deepseek_v3", (32, 16), "F32", "_scale_inv"), ("youtu", (8, 16), "BF16", "_scale_inv"), ("deepseek_v2", (1, 0), "F32", "_scale"),
    ("deepseek_v3", (1, 0), "F32", "_scale", "I8"), ("deepseek_v2", (0, 0), "BF16", "_scale", "I8"),
    ("mixtral_fused", (1, 0), "F32", "_scale", "I8"), ("mixtral", (1, 0), "BF16", "_scale", "I8"), ("neox", (1, 0), "F32", "_scale", "I8"),
]


def make(path, name, block, kind, tail, elem="F8_E4M3"):
    """The model in this form; its config, and its weights as they are now meant."""
    cfg, w, ids = make_models.load(path)
    to, meant, how = path + ".scaled", {}, {"quant_method": "fp8" if tail == "_scale_inv" else "compressed-tensors"}
    if min(block) > 1:
        how["weight_block_size"] = block
    os.makedirs(to, exist_ok=True)
    out = {}
    for full, a in w.items():
        layer = ".layers." in full and a.ndim >= 2 and not full.endswith(("gate.weight", "norm.weight", "router.weight"))
        meant[full] = a
        if not layer:
            out[full] = ("F32", a.astype(np.float32))
            continue
        size = [b or n for b, n in zip(block, a.shape[-2:])]
        codes, scale, value = rounded(a, size, kind, elem)
        meant[full], out[full] = value.astype(np.float64), (elem, codes)
        scale = scale.reshape(-1)[:1] if block == (0, 0) else scale
        out[full + tail] = (kind, st.bf16_bits(scale) if kind == "BF16" else scale)
        if block == (0, 0):
            out[full.replace(".weight", ".input_scale")] = ("F32", np.float32([0.5]))
    st.put(os.path.join(to, "model.safetensors"), out)
    json.dump({**json.load(open(os.path.join(path, "config.json"))), "quantization_config": how}, open(os.path.join(to, "config.json"), "w"))
    for side in ("tokenizer.json", "ids.bin"):
        open(os.path.join(to, side), "wb").write(open(os.path.join(path, side), "rb").read())
    return to, cfg, meant, ids


def run(*words):
    return subprocess.run(words, capture_output=True, text=True)


def check_form(path, name, block, kind, tail, elem="F8_E4M3"):
    what, tokens = f"{name} {elem} {block} {kind} {tail}", make_models.tokens(name)
    to, cfg, w, ids = make(path, name, block, kind, tail, elem)
    out = os.path.join(to, "out.bin")
    want, bound = decoder_np.forward(cfg, w, ids, ctx=len(ids)), decoder_np.bound(cfg, w, ids)
    for isa in isas:
        r = run(dump, to, os.path.join(to, "ids.bin"), out, str(tokens), isa, "2", "512", "exact")
        if r.returncode:
            check(False, f"{what} {isa}: {r.stderr.strip()}")
            continue
        worst = (np.abs(np.fromfile(out, "<f4").reshape(tokens, -1) - want).max(-1) / bound).max()
        check(worst <= 1, f"{what} {isa}: off by {worst:.2f} of the bound")
    print(f"{what:48} {worst:.2f} of the bound")
    r = run(lq, "quantize", to, to + ".lq", "--type", "bf16", "--embed", "keep", "--head", "keep", "--force", "--quiet")
    check(r.returncode == 0, f"{what}: quantize to bf16: {r.stderr.strip()}")
    if r.returncode == 0 and not name.startswith("mixtral"):
        got = st.read(to + ".lq")[0]
        for full in (n for n in got if n in w and ".layers." in n and w[n].ndim == 2):
            same = np.array_equal(got[full], st.bf16_value(st.bf16_bits(w[full])))
            check(same, f"{what}: {full} in bf16 is not the product")
    r = run(lq, "quantize", to, to + ".lq", "--type", "int4 g32", "--force", "--quiet")
    check(r.returncode == 0, f"{what}: quantize to int4: {r.stderr.strip()}")
    r = run(lq, "inspect", to + ".lq", "--verify")
    check(r.returncode == 0, f"{what}: {r.stderr.strip()}")


def check_refused(path):
    """Scales that fit no block that the config says."""
    for block, says, said in (((32, 16), None, "weight_block_size"), ((32, 16), [64, 16], "weight_block_size"), ((24, 16), [24, 16], "scale")):
        to = make(path, "gqa", block, "F32", "_scale_inv")[0]
        cfg = json.load(open(os.path.join(to, "config.json")))
        cfg["quantization_config"]["weight_block_size"] = says
        json.dump(cfg, open(os.path.join(to, "config.json"), "w"))
        for words in (("run", to, "hi", "-n", "1"), ("quantize", to, to + ".lq", "--force")):
            r = run(lq, *words, "--quiet")
            check(r.returncode == 1 and said in r.stderr and r.stderr.count("\n") == 1, f"blocks {block}, config {says}: {r.stderr}")


flags = open("/proc/cpuinfo").read()
isas = ["c"] + (["avx2"] if "avx2" in flags else []) + (["avx512"] if "avx512_vnni" in flags else [])
with tempfile.TemporaryDirectory() as folder:
    make_models.make(folder)
    for row in FORMS:
        check_form(os.path.join(folder, row[0]), *row)
    check_refused(os.path.join(folder, "gqa"))
sys.exit(end())
