# llama_np.py: a Llama in numpy and f64, written from the papers and not from lq, and what f32 arithmetic may do to its result.
#
# The bound on a logit comes from stochastic arithmetic: each operation's result is moved by a random number within what f32 rounding can
# add to that operation, (terms / 16 + 8) * U * sum|terms| for a sum (lq's reference adds in 16 lanes), and the logits' spread over several
# such runs is taken.
# (Adding up worst cases through all layers instead gives bounds of no use: each matrix multiplies them by its absolute row sums.)
import math

import numpy as np

U = 2.0**-24  # half an ulp of f32


def lanes(terms):
    return terms / 16 + 8


class Exact:
    def moved(self, y, terms):
        return y


class Rounded:
    """Moves results at random within `terms`, a bound already multiplied by all but U."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def moved(self, y, terms):
        return y + U * terms * self.rng.uniform(-1, 1, y.shape)


def rope_freqs(cfg, dim, ctx):
    """inv_freq [dim / 2] and the factor of cos and sin, as the rope_scaling of config.json says."""
    theta = cfg.get("rope_theta", 10000.0)
    scaling = cfg.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    factor = scaling.get("factor", 1.0)
    original = scaling.get("original_max_position_embeddings", cfg["max_position_embeddings"])
    if kind == "dynamic" and ctx > original:
        theta *= (factor * ctx / original - (factor - 1)) ** (dim / (dim - 2))
    freqs = theta ** -(np.arange(0, dim, 2) / dim)
    mscale = 1.0
    if kind == "linear":
        freqs = freqs / factor
    elif kind == "llama3":
        wave = 2 * math.pi / freqs
        smooth = (original / wave - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
        freqs = freqs * np.clip(smooth, 0, 1) + freqs / factor * (1 - np.clip(smooth, 0, 1))
    elif kind == "yarn":
        border = lambda turns: dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        low = max(math.floor(border(scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(border(scaling.get("beta_slow", 1))), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        freqs = freqs / factor * ramp + freqs * (1 - ramp)
        mscale = scaling.get("attention_factor") or 0.1 * math.log(factor) + 1
    return freqs, mscale


def linear(f, x, w, bias=None):
    y = f.moved(x @ w.T, lanes(w.shape[1]) * (np.abs(x) @ np.abs(w).T))
    return y if bias is None else f.moved(y + bias, np.abs(y + bias))


def rmsnorm(f, x, gamma, eps):
    rel = f.moved(np.ones(x.shape[:-1] + (1,)), lanes(x.shape[-1]) / 2)  # of the root of the mean
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * rel * gamma
    return f.moved(y, 3 * np.abs(y))


def rope(f, x, freqs, mscale, heads):
    t, half = x.shape[0], len(freqs)
    x = x.reshape(t, heads, -1)
    angle = np.arange(t)[:, None] * freqs[None, :]
    angle = f.moved(angle, 4 * np.abs(angle))[:, None]  # frequency and product are rounded
    c, s = np.cos(angle) * mscale, np.sin(angle) * mscale
    a, b, y = x[..., :half], x[..., half : 2 * half], x.copy()
    y[..., :half], y[..., half : 2 * half] = a * c - b * s, b * c + a * s
    terms = np.zeros_like(x)
    terms[..., :half] = terms[..., half : 2 * half] = 5 * mscale * (np.abs(a) + np.abs(b))
    return f.moved(y, terms)


def attention(f, q, k, v, kv_heads):
    t, heads, d = q.shape
    out = np.zeros((t, heads, d))
    mask = np.tril(np.ones((t, t), bool))
    for h in range(heads):
        kh, vh = k[:, h * kv_heads // heads], v[:, h * kv_heads // heads]
        s = q[:, h] @ kh.T / math.sqrt(d)
        s = f.moved(s, lanes(d) * (np.abs(q[:, h]) @ np.abs(kh).T) / math.sqrt(d) + 2 * np.abs(s))
        s = np.where(mask, s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p = f.moved(p, 8 * p)
        p /= f.moved(p.sum(-1, keepdims=True), lanes(t) * p.sum(-1, keepdims=True))
        out[:, h] = f.moved(p @ vh, t * (p @ np.abs(vh)))
    return out.reshape(t, heads * d)


def swiglu(f, g, u):
    y = g / (1 + np.exp(-g)) * u
    return f.moved(y, 8 * np.abs(y))


def forward(cfg, w, ids, f=Exact(), ctx=None):
    """Logits [len(ids)][vocab]. w: name -> f64 array, as in the checkpoint."""
    heads, kv_heads = cfg["num_attention_heads"], cfg.get("num_key_value_heads") or cfg["num_attention_heads"]
    d = cfg.get("head_dim") or cfg["hidden_size"] // heads
    eps = float(np.float32(cfg.get("rms_norm_eps", 1e-6)))
    freqs, mscale = rope_freqs(cfg, d, ctx or cfg["max_position_embeddings"])
    h = w["model.embed_tokens.weight"][ids]
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        lin = lambda x, name: linear(f, x, w[p + name + ".weight"], w.get(p + name + ".bias"))
        x = rmsnorm(f, h, w[p + "input_layernorm.weight"], eps)
        q = rope(f, lin(x, "self_attn.q_proj"), freqs, mscale, heads)
        k = rope(f, lin(x, "self_attn.k_proj"), freqs, mscale, kv_heads)
        v = lin(x, "self_attn.v_proj").reshape(len(ids), kv_heads, d)
        h = h + lin(attention(f, q, k, v, kv_heads), "self_attn.o_proj")
        h = f.moved(h, np.abs(h))
        x = rmsnorm(f, h, w[p + "post_attention_layernorm.weight"], eps)
        h = h + lin(swiglu(f, lin(x, "mlp.gate_proj"), lin(x, "mlp.up_proj")), "mlp.down_proj")
        h = f.moved(h, np.abs(h))
    x = rmsnorm(f, h, w["model.norm.weight"], eps)
    return linear(f, x, w["lm_head.weight"] if "lm_head.weight" in w else w["model.embed_tokens.weight"])


def bound(cfg, w, ids, runs=8):
    """For each row, the largest error of a logit that f32 arithmetic explains: twice the largest seen over the runs."""
    exact = forward(cfg, w, ids, ctx=len(ids))
    spread = np.max([np.abs(forward(cfg, w, ids, Rounded(seed), len(ids)) - exact) for seed in range(runs)], axis=(0, 2))
    return 2 * spread


def perplexity(cfg, w, ids, window, first):
    """exp of the mean of -log p over windows of the ids; `first`: the first position whose successor is scored."""
    total, n = 0.0, 0
    for at in range(0, len(ids) - window + 1, window):
        part = np.asarray(ids[at : at + window])
        logits = forward(cfg, w, part)[first:-1]
        top = logits.max(-1, keepdims=True)
        logp = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        total -= logp[np.arange(len(logp)), part[first + 1 :]].sum()
        n += len(logp)
    return math.exp(total / n), n
