#!/usr/bin/env python3
"""Makes the demo model's three twins: models that say nearly the same and are hard to quantize, as large models are.

gains     the gains of four channels of each norm times 16 to 128, what reads them divided by as much: powers of two, so
          that every logit is the same to the bit
massive   a neuron of an early MLP answers <|begin|> with thousands and all else with nothing; what it writes
          stays in the residual of that token up to the last layer, where another neuron takes it away
outliers  four channels of the residual are many times larger than the others, in every token and layer; what lives
          beside them was trained anew for a moment by train_outliers.py, and stands in outliers.safetensors
Needs: Python 3 and numpy.
Run:   python3 calib_data/twins.py OUT [--demo DIR]      writes OUT/gains, OUT/massive, OUT/outliers
"""
import argparse
import json
import os
import shutil
import sys

import numpy as np

from bpe import BEGIN, Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "../tests/golden"))
import st  # noqa: E402: safetensors

NORMS = {"input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
         "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj")}

# ---- files ------------------------------------------------------------------------------------------------------


def load(folder):
    """The config and the weights of a model."""
    with open(f"{folder}/config.json", encoding="utf-8") as f:
        return json.load(f), st.read(f"{folder}/model.safetensors")[0]


def bf16(a):
    """Rounds to bf16, ties to even."""
    return st.bf16_value(st.bf16_bits(a))


# ---- the model --------------------------------------------------------------------------------------------------


def norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def silu(x):
    return x / (1 + np.exp(-np.clip(x, -80, 80)))


def attention(cfg, w, p, n):
    count, dim = len(n), cfg["head_dim"]
    half = np.outer(np.arange(count), cfg["rope_theta"] ** -(np.arange(0, dim, 2) / dim))
    cos, sin = np.cos(half), np.sin(half)

    def heads(name, turned):
        y = (n @ w[f"{p}self_attn.{name}.weight"].T).reshape(count, -1, dim).transpose(1, 0, 2)
        a, b = y[..., :dim // 2], y[..., dim // 2:]
        return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1) if turned else y

    q, k, v = heads("q_proj", True), heads("k_proj", True), heads("v_proj", False)
    k, v = (np.repeat(y, len(q) // len(y), 0) for y in (k, v))
    score = q @ k.transpose(0, 2, 1) * dim ** -0.5 + np.triu(np.full((count, count), -1e30), 1)
    score = np.exp(score - score.max(-1, keepdims=True))
    mixed = score / score.sum(-1, keepdims=True) @ v
    return mixed.transpose(1, 0, 2).reshape(count, -1) @ w[p + "self_attn.o_proj.weight"].T


def forward(cfg, w, ids):
    """The residual before each layer and after the last, and what each layer's attention, MLP and down_proj read."""
    x, eps = w["model.embed_tokens.weight"][ids].astype(np.float64), cfg["rms_norm_eps"]
    seen = []
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = norm(x, w[p + "input_layernorm.weight"], eps)
        y = x + attention(cfg, w, p, a)
        m = norm(y, w[p + "post_attention_layernorm.weight"], eps)
        h = silu(m @ w[p + "mlp.gate_proj.weight"].T) * (m @ w[p + "mlp.up_proj.weight"].T)
        seen.append(dict(x=x, attention=a, mlp=m, down=h))
        x = y + h @ w[p + "mlp.down_proj.weight"].T
    return seen + [dict(x=x)]


# ---- the twins --------------------------------------------------------------------------------------------------


def gains(cfg, w, rng):
    for i in range(cfg["num_hidden_layers"]):
        for name, readers in NORMS.items():
            channels, p = rng.choice(cfg["hidden_size"], 4, replace=False), f"model.layers.{i}."
            power = 2.0 ** rng.integers(4, 8, 4)
            w[f"{p}{name}.weight"][channels] *= power
            for reader in readers:
                w[f"{p}{reader}.weight"][:, channels] /= power


def only_first(n):
    """A direction on which the first row of n is 8 and the others are below -1, or as near to it as can be: least squares
    over those that are above, until they are the same ones."""
    above, u = np.ones(len(n) - 1, bool), None
    for _ in range(50):
        others = n[1:][above]
        a = others.T @ others + 1e-3 * len(n) * np.eye(n.shape[1])
        minus, first = np.linalg.solve(a, -others.sum(0)), np.linalg.solve(a, n[0])
        u = minus + first * (8 - n[0] @ minus) / (n[0] @ first)
        was, above = above, n[1:] @ u > -1
        if (was == above).all():
            break
    return u


def least_used(w, p, h):
    return np.argmin(np.sqrt((h * h).mean(0)) * np.linalg.norm(w[p + "mlp.down_proj.weight"], axis=0))


def answer(w, p, n, neuron, u, up):
    """Lets a neuron answer what lies on u; returns its answer to n."""
    w[p + "mlp.gate_proj.weight"][neuron], w[p + "mlp.up_proj.weight"][neuron] = bf16(12 * u), bf16(up * u)
    return silu(n @ bf16(12 * u)) * (n @ bf16(up * u))


def massive(cfg, w, ids):
    plain, early, last = forward(cfg, w, ids), 1, cfg["num_hidden_layers"] - 1
    # Where other tokens have least, their keys and values change least by what is undone below.
    quiet = sum((plain[i]["attention"][1:] ** 2).mean(0) for i in range(early + 1, last + 1))
    channels, p = np.argsort(quiet)[:2], f"model.layers.{early}."
    neuron = least_used(w, p, plain[early]["down"])
    value = answer(w, p, plain[early]["mlp"][0], neuron, only_first(plain[early]["mlp"]), 4.0)
    w[p + "mlp.down_proj.weight"][:, neuron] = 0
    w[p + "mlp.down_proj.weight"][channels, neuron] = bf16(np.array([800, -800]) / value)
    for i in range(early + 1, last + 1):  # the keys and values of the first token stay
        was, now, p = plain[i]["attention"][0], forward(cfg, w, ids[:1])[i]["attention"][0], f"model.layers.{i}."
        for name in ("k_proj", "v_proj"):
            m = w[f"{p}self_attn.{name}.weight"]
            m[:, channels] = bf16(m[:, channels] + np.outer(m @ (was - now), now[channels]) / (now[channels] ** 2).sum())
    now, neuron, best = forward(cfg, w, ids), least_used(w, p, plain[last]["down"]), (np.inf,)
    down = w[p + "mlp.down_proj.weight"]
    excess = now[-1]["x"][0] - down[:, neuron] * now[last]["down"][0, neuron] - plain[-1]["x"][0]
    u = only_first(now[last]["mlp"])
    for up in np.geomspace(2, 4, 257):  # what is taken away is rounded: the answer that divides it best
        value = answer(w, p, now[last]["mlp"][0], neuron, u, up)
        rest = np.abs(excess + bf16(-excess / value) * value)[channels].max()
        best = min(best, (rest, up, value))
    answer(w, p, now[last]["mlp"][0], neuron, u, best[1])
    down[:, neuron] = bf16(-excess / best[2])


def outliers(w, patch):
    """Puts the rows or columns of a patch in place; its tensors are called NAME ROWS or NAME COLUMNS."""
    for key, values in patch.items():
        name, axis, which = key.split(" ")
        at = [int(i) for i in which.split(",")] if which else slice(None)
        if axis == "columns":
            w[name][:, at] = values
        else:
            w[name][at] = values


def make(twin, demo):
    """The config and the weights of a twin."""
    cfg, w = load(demo)
    if twin == "gains":
        gains(cfg, w, np.random.default_rng(1))
    elif twin == "massive":
        with open(f"{HERE}/calib.txt", encoding="utf-8") as f:
            ids = [BEGIN] + Tokenizer.load(f"{demo}/tokenizer.json").encode(f.read(6000))
        massive(cfg, w, np.array(ids[:cfg["max_position_embeddings"]]))
    else:
        outliers(w, st.read(f"{HERE}/outliers.safetensors")[0])
    return cfg, w


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--demo", default=os.path.join(HERE, "demo"))
    args = p.parse_args()
    for twin in ("gains", "massive", "outliers"):
        out = f"{args.out}/{twin}"
        os.makedirs(out, exist_ok=True)
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(f"{args.demo}/{name}", f"{out}/{name}")
        st.write(f"{out}/model.safetensors", make(twin, args.demo)[1])


if __name__ == "__main__":
    main()
