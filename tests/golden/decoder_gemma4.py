# decoder_gemma4.py: Gemma 4 in numpy and f64, with the arithmetic of decoder_np.py. Written from the model's description
# and not from lq.
import math

import numpy as np

from decoder_np import attention, linear, rmsnorm, rope, unary

ROPES = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
# What make_golden.py leaves out, each by its word in `_less`, to show that it matters.
FEATURES = ("tokens", "scale", "v_norm", "double", "k_eq_v", "still")


def kinds(cfg):
    n = cfg["num_hidden_layers"]
    out = list(cfg.get("layer_types") or ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(n)])
    return out[: n - 1] + ["full_attention"]


def heads_of(cfg, layer, kind):
    """Of k and v: how many, and how wide."""
    kv, d = cfg["num_key_value_heads"], cfg["head_dim"]
    if "per_layer_config" in cfg:
        own = cfg["per_layer_config"].get(str(layer), {})
        return own.get("num_key_value_heads", kv), own.get("head_dim", d)
    if kind == "sliding_attention":
        return kv, d
    return (cfg.get("num_global_key_value_heads") or kv) if cfg.get("attention_k_eq_v") else kv, cfg.get("global_head_dim", 512)


def donor(cfg, layer):
    """The layer whose K and V this one uses."""
    of, first = kinds(cfg), cfg["num_hidden_layers"] - cfg.get("num_kv_shared_layers", 0)
    return layer if layer < first else max(i for i in range(first) if of[i] == of[layer])


def frequencies(cfg, kind, d):
    p = (cfg.get("rope_parameters") or ROPES)[kind]
    freqs = p["rope_theta"] ** -(np.arange(0, d, 2) / d)
    if p["rope_type"] == "proportional":  # the other pairs stand still
        freqs = freqs / p.get("factor", 1.0)
        if cfg.get("_less") != "still":
            freqs[int(p.get("partial_rotary_factor", 1.0) * d // 2) :] = 0
    return freqs


def has(cfg, feature):
    """Whether a model can tell a feature from its absence."""
    asked = {
        "tokens": cfg.get("hidden_size_per_layer_input", 256), "k_eq_v": cfg.get("attention_k_eq_v"),
        "double": cfg.get("num_kv_shared_layers") and cfg.get("use_double_wide_mlp"),
    }
    return asked.get(feature, True)


def add(f, a, b):
    return f.moved(a + b, np.abs(a + b))


def forward(f, cfg, w, ids):
    less, eps, t = cfg.get("_less"), float(np.float32(cfg["rms_norm_eps"])), len(ids)
    dim, layers, each = cfg["hidden_size"], cfg["num_hidden_layers"], cfg.get("hidden_size_per_layer_input", 256)
    pair = lambda name: (w[name + ".weight"], w.get(name + ".bias"))
    norm = lambda x, name: rmsnorm(f, x, w[name + ".weight"], eps)
    act = cfg.get("hidden_activation", "gelu_pytorch_tanh")
    h = w["model.embed_tokens.weight"][ids] * math.sqrt(dim)
    h = f.moved(h, 2 * np.abs(h))
    if each:
        told = linear(f, h, w["model.per_layer_model_projection.weight"]) / math.sqrt(dim)
        told = norm(f.moved(told, 2 * np.abs(told)).reshape(t, layers, each), "model.per_layer_projection_norm")
        own = (w["model.embed_tokens_per_layer.weight"][ids] * math.sqrt(each)).reshape(t, layers, each)
        told = add(f, told, f.moved(own, 2 * np.abs(own))) / math.sqrt(2)
    cache = {}
    for i, kind in enumerate(kinds(cfg)):
        if i in cfg.get("_gone", ()):
            continue
        p, (kv, d), heads = f"model.layers.{i}.", heads_of(cfg, i, kind), cfg["num_attention_heads"]
        freqs, of = frequencies(cfg, kind, d), donor(cfg, i)
        x = norm(h, p + "input_layernorm")
        q = norm(linear(f, x, *pair(p + "self_attn.q_proj")).reshape(t, heads, d), p + "self_attn.q_norm")
        q = rope(f, q, freqs, 1.0, heads)
        if of == i:
            k = linear(f, x, *pair(p + "self_attn.k_proj")).reshape(t, kv, d)
            one = cfg.get("attention_k_eq_v") and kind == "full_attention"
            v = k if one else linear(f, x, *pair(p + "self_attn.v_proj")).reshape(t, kv, d)
            if one and less == "k_eq_v":
                v = -k
            v = v if less == "v_norm" else rmsnorm(f, v, 1.0, eps)
            cache[i] = rope(f, norm(k, p + "self_attn.k_norm"), freqs, 1.0, kv), v
        k, v = cache[of]
        y = attention(f, q, k, v, kv, cfg.get("sliding_window", 512) if kind == "sliding_attention" else 0, 1.0)
        h = add(f, h, norm(linear(f, y, *pair(p + "self_attn.o_proj")), p + "post_attention_layernorm"))
        x, wide = norm(h, p + "pre_feedforward_layernorm"), cfg["intermediate_size"]
        gate, up, down = (w[f"{p}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        if less == "double":
            gate, up, down = gate[:wide], up[:wide], down[:, :wide]
        y = unary(f, act, linear(f, x, gate)) * linear(f, x, up)
        y = linear(f, f.moved(y, np.abs(y)), down)
        h = add(f, h, norm(y, p + "post_feedforward_layernorm"))
        if each:
            y = unary(f, act, linear(f, h, w[p + "per_layer_input_gate.weight"])) * told[:, i]
            y = linear(f, f.moved(y, np.abs(y)), w[p + "per_layer_projection.weight"])
            h = h if less == "tokens" else add(f, h, norm(y, p + "post_per_layer_input_norm"))
        h = h if less == "scale" else f.moved(h * w[p + "layer_scalar"], np.abs(h * w[p + "layer_scalar"]))
    head = w["lm_head.weight" if "lm_head.weight" in w else "model.embed_tokens.weight"]
    y, cap = linear(f, norm(h, "model.norm"), head), cfg.get("final_logit_softcapping")
    if cap:
        y = cap * np.tanh(y / cap)
        y = f.moved(y, 8 * np.abs(y))
    return y
