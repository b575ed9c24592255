#!/usr/bin/python3
# check_rotate.py LQ: the transform "rotate". A rotated model computes what it did: the exact-mode logits of every tiny
# model, rotated and kept in f32, against those transformers computed in f64 of the plain one. The weights themselves
# against docs/QUANT.md in numpy f64, for widths of every kind of Hadamard matrix; and what must be refused.
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
import models
import st
from counted import check, end
from dumped import logits

lq = os.path.abspath(sys.argv[1])
PLAIN = ["--type", "f32", "--embed", "f32", "--head", "f32"]


def quantize(src, out, *words):
    return subprocess.run(
        [lq, "quantize", src, out, "--method", "hadamard", "--quiet", *words], capture_output=True, text=True
    )


# --- the definition ---


def is_prime(n):
    return n > 1 and all(n % i for i in range(2, int(n**0.5) + 1))


def paley(m):
    """A Hadamard matrix of order m after Paley, or None."""
    for q, two in ((m - 1, False), (m // 2 - 1, True)):
        if (two and m % 2) or not is_prime(q) or q % 4 != (1 if two else 3):
            continue
        squares = {x * x % q for x in range(1, q)}
        chi = np.array([0] + [1 if a in squares else -1 for a in range(1, q)])
        s = np.zeros((q + 1, q + 1))
        s[0, 1:] = 1
        s[1:, 0] = 1 if two else -1
        s[1:, 1:] = chi[(np.arange(q)[:, None] - np.arange(q)[None, :]) % q]
        if not two:
            return s + np.eye(q + 1)
        return np.kron(s, [[1, 1], [1, -1]]) + np.kron(np.eye(q + 1), [[1, -1], [-1, -1]])
    return None


def sylvester(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.kron(h, [[1, 1], [1, -1]])
    return h


def signs(n):
    out = []
    for i in range(n):
        z = 0x9E3779B97F4A7C15 * (i + 1) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        out.append(-1.0 if (z ^ z >> 31) >> 63 else 1.0)
    return np.array(out)


def turn(width):
    """The orthogonal matrix of a basis."""
    odd = width
    while odd % 2 == 0:
        odd //= 2
    h, m = sylvester(width // odd), odd
    while m <= 128 and width % m == 0 and m > 1:
        if paley(m) is not None:
            h = np.kron(paley(m), sylvester(width // m))
            break
        m *= 2
    assert (h @ h.T == len(h) * np.eye(len(h))).all()
    return signs(width)[:, None] * np.kron(np.eye(width // len(h)), h) / len(h) ** 0.5


def near(what, got, want, terms):
    """f32 arithmetic: sums of `terms` numbers of a row or column of `want`, each with an ulp of error and its own."""
    slack = 2.0**-24 * (terms + 8) * np.sqrt((want**2).sum() / min(want.shape)) + 1e-30
    worst = np.abs(got - want).max() / slack
    check(got.shape == want.shape and worst <= 1, f"{what}: off by {worst:.2f} of the bound")


def check_weights(folder, dim, heads, kv, tied):
    cfg = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": dim, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": 40, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "attention_bias": True, "tie_word_embeddings": tied,
    }  # fmt: skip
    path, hd, rng = os.path.join(folder, f"w{dim}_{heads}_{tied}"), dim // heads, np.random.default_rng(dim)
    shapes = {"model.embed_tokens.weight": (40, dim), "model.norm.weight": (dim,)}
    if not tied:
        shapes["lm_head.weight"] = (40, dim)
    for i in range(2):
        p = f"model.layers.{i}."
        for n, s in (
            ("input_layernorm.weight", (dim,)), ("post_attention_layernorm.weight", (dim,)), ("self_attn.q_proj.weight", (dim, dim)), ("self_attn.q_proj.bias", (dim,)),
            ("self_attn.k_proj.weight", (kv * hd, dim)), ("self_attn.k_proj.bias", (kv * hd,)), ("self_attn.v_proj.weight", (kv * hd, dim)),
            ("self_attn.v_proj.bias", (kv * hd,)), ("self_attn.o_proj.weight", (dim, dim)), ("self_attn.o_proj.bias", (dim,)), ("mlp.gate_proj.weight", (48, dim)),
            ("mlp.up_proj.weight", (48, dim)), ("mlp.down_proj.weight", (dim, 48)),
        ):  # fmt: skip
            shapes[p + n] = s
    w = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    os.makedirs(path)
    json.dump(cfg, open(os.path.join(path, "config.json"), "w"))
    st.write(os.path.join(path, "model.safetensors"), w, "F32")
    r = quantize(path, path + ".lq", *PLAIN)
    if r.returncode:
        return check(False, f"dim {dim}: {r.stderr.strip()}")
    got = st.read(path + ".lq")[0]
    w = {n: a.astype(np.float64) for n, a in w.items()}
    q, h = turn(dim), turn(hd)
    inner, outer = np.kron(np.eye(heads), h), np.kron(np.eye(kv), h)
    want = {"model.embed_tokens.weight": w["model.embed_tokens.weight"] @ q, "model.norm.weight": np.ones(dim)}
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    want["lm_head.weight"] = head * w["model.norm.weight"] @ q
    for i in range(2):
        p = f"model.layers.{i}."
        first, second = w[p + "input_layernorm.weight"], w[p + "post_attention_layernorm.weight"]
        a = {n[len(p) :]: x for n, x in w.items() if n.startswith(p)}
        for n in ("self_attn.q_proj", "self_attn.k_proj"):
            want[p + n + ".weight"], want[p + n + ".bias"] = a[n + ".weight"] * first @ q, a[n + ".bias"]
        want[p + "self_attn.v_proj.weight"] = outer.T @ (a["self_attn.v_proj.weight"] * first) @ q
        want[p + "self_attn.v_proj.bias"] = a["self_attn.v_proj.bias"] @ outer
        want[p + "self_attn.o_proj.weight"] = q.T @ a["self_attn.o_proj.weight"] @ inner
        want[p + "self_attn.o_proj.bias"] = a["self_attn.o_proj.bias"] @ q
        for n in ("gate", "up"):
            want[p + f"mlp.{n}_proj.weight"] = a[f"mlp.{n}_proj.weight"] * second @ q
        want[p + "mlp.down_proj.weight"] = q.T @ a["mlp.down_proj.weight"]
        want[p + "input_layernorm.weight"] = want[p + "post_attention_layernorm.weight"] = np.ones(dim)
    for n, x in want.items():
        check(n in got, f"dim {dim}: {n} is not there")
        if n in got:
            near(f"dim {dim} {n}", np.atleast_2d(got[n].astype(np.float64)), np.atleast_2d(x), 2 * dim)
    config = json.loads(bytes(got["lq.file/config.json"]))
    check(config["tie_word_embeddings"] is False, f"dim {dim}: config.json says tied")
    check({**config, "tie_word_embeddings": tied} == cfg, f"dim {dim}: config.json is changed elsewhere")


# --- the model computes what it did ---


def check_model(path, name):
    cfg, w, ids = make_models.load(path)
    out = os.path.join(path, "turned.lq")
    r = quantize(path, out, *PLAIN)
    if models.MODELS[name][1].get("_mx"):
        return check(r.returncode == 2 and "is quantized already" in r.stderr, f"{name}: {r.stderr.strip()}")
    refused = "cannot be rotated" in r.stderr and r.returncode == 1 and r.stderr.count("\n") == 1
    if refused:
        print(f"{name:22} {r.stderr.strip()[-60:]}")
        return check("norm" in r.stderr or "rows of length 1" in r.stderr, f"{name}: {r.stderr.strip()}")
    if r.returncode:
        return check(False, f"{name}: {r.stderr.strip()}")
    got, why = logits(out, make_models.tokens(name))
    if got is None:
        return check(False, f"{name}: {why}")
    # Twice what the arithmetic explains: each weight is rounded to f32 once more, which adds no more than the rounding
    # of its products does.
    golden, bound = np.load(os.path.join(here, "logits", name + ".npy")), 2 * decoder_np.bound(cfg, w, ids)
    rows = slice(None, None, make_models.EVERY)
    worst = (np.abs(got[rows] - golden).max(-1) / bound[rows]).max()
    check(worst <= 1, f"{name}: rotated, off by {worst:.2f} of the bound")
    print(f"{name:22} largest error {np.abs(got[rows] - golden).max():.2e}, {worst:.2f} of the bound")


with tempfile.TemporaryDirectory() as folder:
    for dim, heads, kv, tied in ((64, 4, 2, False), (48, 2, 1, True), (80, 4, 4, False), (56, 2, 2, True), (104, 2, 1, False), (90, 5, 5, True), (2, 1, 1, False)):
        check_weights(folder, dim, heads, kv, tied)
    make_models.make(folder)
    for name in models.MODELS:
        check_model(os.path.join(folder, name), name)
sys.exit(end())
