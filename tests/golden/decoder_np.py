# decoder_np.py: the decoders of models.py in numpy and f64, written from the papers and the models' descriptions and
# not from lq, and what f32 arithmetic may do to their results.
#
# The bound on a logit comes from stochastic arithmetic: each operation's result is moved by a random number within what
# f32 rounding can add to that operation, (terms / 16 + 8) * U * sum|terms| for a sum (lq's reference adds in 16 lanes),
# and the logits' spread over several such runs is taken.
# (Adding up worst cases through all layers instead gives bounds of no use: each matrix multiplies them by its absolute
# row sums.) Where there are routers the bound means something only if none is near a tie: margin() says how far.
import math
import re

import numpy as np

import remote

U = 2.0**-24  # half an ulp of f32


def lanes(terms):
    return terms / 16 + 8


class Exact:
    margin = math.inf

    def input(self, x, w):
        """What x becomes before it meets the weight w."""
        return x

    def moved(self, y, terms):
        return y


class Rounded(Exact):
    """Moves results at random within `terms`, a bound already multiplied by all but U."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def moved(self, y, terms):
        return y + U * terms * self.rng.uniform(-1, 1, y.shape)


def rope_settings(cfg, local=False):
    """(theta, share of a head that is rotated, the scaling): of rope_parameters, or of keys of their own. local: of
    layers with a window, where those turn otherwise."""
    p, silent = cfg.get("rope_parameters") or {}, traits(cfg)
    p = p.get("sliding_attention" if local else "full_attention", p)
    scaling = p or cfg.get("rope_scaling") or {}
    if local and not p:
        return 500000.0 if cfg["model_type"] == "olmo3" else cfg.get("rope_local_base_freq", 10000.0), 1.0, {}
    theta = p.get("rope_theta", cfg.get("rope_theta", cfg.get("rotary_emb_base", silent["theta"])))
    share = p.get("partial_rotary_factor", cfg.get("partial_rotary_factor", cfg.get("rotary_pct", silent["share"])))
    return theta, share, scaling


def rope_freqs(cfg, dim, ctx, local=False):
    """inv_freq [dim / 2] and the factor of cos and sin, as the scaling of config.json says."""
    theta, _, scaling = rope_settings(cfg, local)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    factor = scaling.get("factor", 1.0)
    original = cfg.get("original_max_position_embeddings") or scaling.get(
        "original_max_position_embeddings", cfg["max_position_embeddings"]
    )
    if kind == "dynamic" and "alpha" in scaling:  # Hunyuan: the same at every length
        theta *= scaling["alpha"] ** (dim / (dim - 2))
    elif kind == "dynamic" and ctx > original:
        theta *= (factor * ctx / original - (factor - 1)) ** (dim / (dim - 2))
    freqs = theta ** -(np.arange(0, dim, 2) / dim)
    mscale = 1.0
    if kind == "linear":
        freqs = freqs / factor
    elif kind == "llama3":
        wave = 2 * math.pi / freqs
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (original / wave - low) / max(high - low, 1e-9)  # Llama 4: a border and no ramp
        freqs = freqs * np.clip(smooth, 0, 1) + freqs / factor * (1 - np.clip(smooth, 0, 1))
    elif kind == "yarn":
        border = lambda turns: dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
        outward = (math.floor, math.ceil) if scaling.get("truncate", True) else (float, float)
        low = max(outward[0](border(scaling.get("beta_fast", 32))), 0)
        high = min(outward[1](border(scaling.get("beta_slow", 1))), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        freqs = freqs / factor * ramp + freqs * (1 - ramp)
        grown = [0.1 * scaling.get(key, 1.0) * math.log(factor) + 1 for key in ("mscale", "mscale_all_dim")]
        both = scaling.get("mscale") and scaling.get("mscale_all_dim")
        mscale = scaling.get("attention_factor") or (grown[0] / grown[1] if both else 0.1 * math.log(factor) + 1)
    elif kind == "longrope":
        freqs = freqs / np.array(scaling["long_factor" if ctx > original else "short_factor"])
        longer = scaling.get("factor") or cfg["max_position_embeddings"] / original
        mscale = scaling.get("attention_factor") or (
            math.sqrt(1 + math.log(longer) / math.log(original)) if longer > 1 else 1.0
        )
        mscale = scaling.get("long_mscale" if ctx > original else "short_mscale", mscale)
    return freqs, mscale


def linear(f, x, w, bias=None):
    x = f.input(x, w)
    y = f.moved(x @ w.T, lanes(w.shape[1]) * (np.abs(x) @ np.abs(w).T))
    return y if bias is None else f.moved(y + bias, np.abs(y + bias))


def rmsnorm(f, x, gamma, eps):
    rel = f.moved(np.ones(x.shape[:-1] + (1,)), lanes(x.shape[-1]) / 2)  # of the root of the mean
    y = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * rel * gamma
    return f.moved(y, 3 * np.abs(y))


def layernorm(f, x, gamma, beta, eps):
    x = x - x.mean(-1, keepdims=True)
    x = f.moved(x, lanes(x.shape[-1]) * np.mean(np.abs(x), -1, keepdims=True) + np.abs(x))
    return f.moved(rmsnorm(f, x, gamma, eps) + beta, np.abs(beta))


def rope(f, x, freqs, mscale, heads, pairs=False):
    t, half = x.shape[0], len(freqs)
    x = x.reshape(t, heads, -1)
    angle = np.arange(t)[:, None] * freqs[None, :]
    angle = f.moved(angle, 4 * np.abs(angle))[:, None]  # frequency and product are rounded
    c, s = np.cos(angle) * mscale, np.sin(angle) * mscale
    first, second = slice(0, half), slice(half, 2 * half)
    if pairs:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    a, b, y = x[..., first], x[..., second], x.copy()
    y[..., first], y[..., second] = a * c - b * s, b * c + a * s
    terms = np.zeros_like(x)
    terms[..., first] = terms[..., second] = 5 * mscale * (np.abs(a) + np.abs(b))
    return f.moved(y, terms)


def attention(f, q, k, v, kv_heads, window, scale=None, cap=None, bias=None, sinks=None, chunk=0):
    t, heads, d = q.shape
    scale = d**-0.5 if scale is None else scale
    mask = np.tril(np.ones((t, t), bool))
    if window:  # the token itself counts
        mask &= ~np.tril(np.ones((t, t), bool), -window)
    if chunk:
        mask &= np.arange(t)[:, None] // chunk == np.arange(t) // chunk
    of = np.arange(heads) * kv_heads // heads
    q, k, v = (a.transpose(1, 0, 2) for a in (q, k[:, of], v[:, of]))  # [heads][t][d]
    s = q @ k.transpose(0, 2, 1) * scale
    s = f.moved(s, lanes(d) * (np.abs(q) @ np.abs(k).transpose(0, 2, 1)) * scale + 2 * np.abs(s))
    if cap:
        s = cap * np.tanh(s / cap)
        s = f.moved(s, 8 * np.abs(s))
    if bias is not None:  # [heads][row][position]
        s = f.moved(s + bias, np.abs(s + bias) + 2 * np.abs(bias))
    s = np.where(mask, s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    p = f.moved(p, 8 * p)
    total = p.sum(-1, keepdims=True)
    if sinks is not None:  # a score that sees nothing
        total = total + np.exp(sinks[:, None, None] - top)
    p /= f.moved(total, lanes(t) * total)
    out = f.moved(p @ v, t * (p @ np.abs(v)))
    return out.transpose(1, 0, 2).reshape(t, -1)


def erf(x):
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


UNARY = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "gelu_pytorch_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
UNARY["relu2"] = lambda x: np.maximum(x, 0) ** 2
UNARY["relu"] = lambda x: np.maximum(x, 0)
UNARY["gelu_new"] = UNARY["gelu_pytorch_tanh"]


def unary(f, name, x):
    return f.moved(UNARY[name](x), 8 * np.abs(x) if "gelu" in name else 8 * np.abs(UNARY[name](x)))


# What an architecture does other than Llama. pre, post: the norms before and behind attention and MLP (None: there is
# none); one: norms multiply by 1 + weight; qk: a norm of q and k, of each "head" or of the "whole"; late: behind the rope;
# bare: norms have no weights, and one stands behind the embedding; pairs: neighbours turn, not halves; backward: by angles below 0; every: without layer_types each so-manieth layer is the one without a window; local:
# layers with a window have a rope of their own; theta, share: of the rope, where the config is silent; inward: experts
# read x times their share.
LLAMA = {
    "pre": ("input_layernorm", "post_attention_layernorm"), "post": (None, None), "one": False, "qk": None,
    "late": False, "pairs": False, "bare": False, "backward": False, "every": 0, "local": False, "theta": 10000.0, "share": 1.0,
    "inward": False,
}
BEHIND = ("post_attention_layernorm", "post_feedforward_layernorm")
GEMMA2 = {"one": True, "pre": ("input_layernorm", "pre_feedforward_layernorm"), "post": BEHIND, "every": 2}
OLMO2 = {"pre": (None, None), "post": BEHIND, "qk": "whole"}
KINDS = {
    "gemma": {"one": True},
    "gemma2": GEMMA2,
    "vaultgemma": {**GEMMA2, "post": (None, None)},
    "apertus": {"pre": ("attention_layernorm", "feedforward_layernorm"), "qk": "head", "theta": 12e6},
    "nanochat": {"bare": True, "qk": "head", "backward": True},
    "glm4v_text": {"pairs": True, "post": ("post_self_attn_layernorm", "post_mlp_layernorm")},
    "gemma3_text": {**GEMMA2, "qk": "head", "every": 6, "local": True, "theta": 1e6},
    "qwen3": {"qk": "head"},
    "mixtral": {"theta": 1e6},
    "qwen3_moe": {"qk": "head"},
    "qwen3_vl_text": {"qk": "head", "theta": 500000.0},
    "qwen3_vl_moe_text": {"qk": "head", "theta": 500000.0},
    "helium": {"pairs": True, "theta": 100000.0},
    "cwm": {"theta": 1e6},
    "phimoe": {"theta": 1e6},
    "qwen2_5_vl_text": {"theta": 1e6},
    "olmo2": OLMO2,
    "dots1": {"qk": "head"},
    "glm4_moe": {"share": 0.5},
    "glm4v_moe_text": {"share": 0.5},
    "solar_open": {"theta": 1e6},
    "exaone_moe": {"qk": "head", "every": 4},
    "hy_v3": {"qk": "head", "theta": 11158840.0},
    "mimo_v2_flash": {"local": True, "theta": 5e6, "share": 0.334},
    "afmoe": {
        "qk": "head", "pre": ("input_layernorm", "pre_mlp_layernorm"),
        "post": ("post_attention_layernorm", "post_mlp_layernorm"),
    },
    "llama4_text": {"pairs": True, "theta": 500000.0, "inward": True},
    "minimax_m2": {"qk": "whole", "theta": 5e6},
    "deepseek_v2": {"pairs": True},
    "deepseek_v3": {"pairs": True},
    "glm4_moe_lite": {"pairs": True},
    "youtu": {"pairs": True},
    "mistral4": {"pairs": True},
    "axk1": {"pairs": True, "post": (None, "post_mlp_layernorm")},
    "olmoe": {"qk": "whole"},
    "flex_olmo": {**OLMO2, "theta": 500000.0},
    "gpt_oss": {"every": 2, "theta": 150000.0},
    "olmo3": {**OLMO2, "every": 4, "local": True, "theta": 500000.0},
    "exaone4": {**OLMO2, "qk": "head", "every": 4},
    "glm": {"pairs": True, "share": 0.5},
    "glm4": {"pairs": True, "share": 0.5, "post": ("post_self_attn_layernorm", "post_mlp_layernorm")},
    "smollm3": {"theta": 2e6},
    "ernie4_5": {"pairs": True, "theta": 500000.0},
    "ernie4_5_vl_moe_text": {"pairs": True, "theta": 500000.0},
    "ernie4_5_moe": {"pairs": True, "theta": 500000.0},
    "hunyuan_v1_dense": {"qk": "head", "late": True},
    "hunyuan_v1_moe": {"qk": "head", "late": True},
}


DRAW = ("e_score_correction_bias", "mlp.expert_bias")  # numbers of experts that count for the choice alone


def traits(cfg):
    """Of a config; `without` in it leaves some out."""
    return {**LLAMA, **KINDS.get(cfg.get("model_type"), {}), **cfg.get("without", {})}


class Parts:
    """A checkpoint by the parts of a layer: what an architecture calls them, and how it lays several in a tensor."""

    def __init__(self, cfg, w):
        self.cfg, self.w, self.kind = cfg, w, cfg.get("model_type", "llama")
        self.__dict__.update(traits(cfg))
        if cfg.get("use_qk_norm") and self.kind == "glm4_moe":
            self.qk = "head"
        self.heads = cfg["num_attention_heads"]
        self.kv_heads = cfg.get("num_key_value_heads") or self.heads
        self.d = cfg.get("qk_rope_head_dim") or cfg.get("head_dim") or cfg["hidden_size"] // self.heads
        self.pairs = self.pairs and cfg.get("rope_interleave", True)
        self.scale = cfg.get("query_pre_attn_scalar", self.d) ** -0.5
        if "granite" in self.kind:
            self.scale = cfg.get("attention_multiplier", 1.0)
        self.cap = cfg.get("attn_logit_softcapping")
        self.v_scale = cfg.get("attention_value_scale", 0.707) or 1 if self.kind == "mimo_v2_flash" else 1
        self.used = cfg.get("moe_k", cfg.get("num_experts_per_tok"))  # experts
        self.neox = self.kind == "gpt_neox"
        self.root = "gpt_neox." if self.neox else "model."
        self.attn = "attention." if self.neox else "self_attn."
        self.eps = float(np.float32(cfg["layer_norm_eps"] if self.neox else cfg.get("rms_norm_eps", 1e-6)))
        self.act = cfg.get("hidden_act", "gelu" if self.neox else "silu")
        if "gemma" in self.kind:  # "gelu" is what its first configs say of the approximation that it was trained with
            self.act = "gelu_pytorch_tanh"

    def pair(self, name):
        return self.w[name + ".weight"], self.w.get(name + ".bias")

    def window(self, layer):
        if "layer_types" not in self.cfg and self.every and self.cfg["sliding_window"]:
            every = self.cfg.get("sliding_window_pattern", self.every)
            return self.cfg["sliding_window"] if (layer + 1) % every else 0
        if self.kind == "mimo_v2_flash" and "layer_types" not in self.cfg:
            size = self.cfg.get("sliding_window_size", self.cfg.get("sliding_window", 129) - 1) + 1
            return size if layer and (layer + 1) % 6 else 0
        if self.kind == "afmoe" and "layer_types" not in self.cfg:
            return self.cfg["sliding_window"] if (layer + 1) % self.cfg.get("global_attn_every_n_layers", 4) else 0
        if self.kind == "cwm" and "layer_types" not in self.cfg:
            return self.cfg["sliding_window"] if layer % 4 else 0
        if "layer_types" in self.cfg:
            return self.cfg["sliding_window"] if self.cfg["layer_types"][layer] == "sliding_attention" else 0
        if self.kind == "qwen2_moe":
            slides = self.cfg.get("use_sliding_window") and layer < self.cfg["max_window_layers"] and layer % 2 == 0
            return self.cfg["sliding_window"] if slides else 0
        if self.kind == "qwen3_moe":
            return self.cfg["sliding_window"] if self.cfg.get("use_sliding_window") else 0
        if self.kind == "smollm3":
            return self.cfg["sliding_window"] if self.cfg.get("use_sliding_window") and not self.turns(layer) else 0
        if self.kind in ("qwen2", "qwen3", "qwen2_5_vl_text"):
            return (
                self.cfg["sliding_window"]
                if self.cfg.get("use_sliding_window") and layer >= self.cfg["max_window_layers"]
                else 0
            )
        return self.cfg.get("sliding_window") or 0

    def sinks(self, p):
        return self.w.get(p + "self_attn.sinks", self.w.get(p + "self_attn.attention_sink_bias"))

    def chunk(self, layer):
        """How many positions make a chunk that sees itself alone; 0: all see all."""
        types = self.cfg.get("layer_types")
        chunks = types[layer] == "chunked_attention" if types else self.turns(layer)
        return self.cfg["attention_chunk_size"] if self.kind == "llama4_text" and chunks else 0

    def grown(self, f, q, layer):
        """q [tokens][heads][d], larger in later positions where an architecture does that."""
        at, by = np.arange(len(q)), np.ones(len(q))
        if self.kind in ("ministral3", "mistral4"):
            tall = self.cfg["rope_parameters"]
            by += tall["llama_4_scaling_beta"] * np.log(1 + at // tall["original_max_position_embeddings"])
        elif self.kind == "llama4_text" and self.cfg["attn_temperature_tuning"] and not self.turns(layer):
            by += self.cfg["attn_scale"] * np.log(1 + (at + 1) // self.cfg["floor_scale"])
        else:
            return q
        q = q * by[:, None, None]
        return f.moved(q, 4 * np.abs(q))

    def turns(self, layer):
        """Whether a layer has positions."""
        if self.kind == "afmoe":
            return self.window(layer) > 0
        if self.kind == "llama4_text":
            told = self.cfg.get("no_rope_layers")
            return told[layer] if told else (layer + 1) % self.cfg.get("no_rope_layer_interval", 4)
        if self.kind == "granitemoehybrid":
            return self.cfg["position_embedding_type"] == "rope"
        if self.kind == "smollm3":
            list_of = self.cfg.get("no_rope_layers")
            return list_of[layer] if list_of else (layer + 1) % self.cfg.get("no_rope_layer_interval", 4)
        return self.kind not in ("exaone4", "exaone_moe") or not self.cfg["sliding_window"] or self.window(layer)

    def norm(self, f, x, name):
        if not name or (self.kind == "axk1" and name + ".weight" not in self.w):  # of layers with an MLP
            return x
        if self.bare:
            return rmsnorm(f, x, 1.0, self.eps)
        gamma, beta = self.pair(name)
        gamma = 1 + gamma if self.one else gamma
        return rmsnorm(f, x, gamma, self.eps) if beta is None else layernorm(f, x, gamma, beta, self.eps)

    def qkv(self, p):
        """Weight and bias of each of Q, K and V."""
        d, p = self.d, p + self.attn
        if self.kind == "phi3":
            ends = np.cumsum([self.heads * d, self.kv_heads * d, self.kv_heads * d])[:-1]
            return [(w, None) for w in np.split(self.w[p + "qkv_proj.weight"], ends)]
        if self.neox:  # of each head: its Q, its K, its V
            w, b = self.pair(p + "query_key_value")
            w = w.reshape(self.heads, 3, d, -1)
            b = None if b is None else b.reshape(self.heads, 3, d)
            return [(w[:, i].reshape(self.heads * d, -1), None if b is None else b[:, i].reshape(-1)) for i in range(3)]
        return [self.pair(p + name) for name in ("q_proj", "k_proj", "v_proj")]

    def qk_norm(self, f, x, p, which, heads, late):
        """q or k [tokens][heads * d], normed if the architecture does that before or behind the rope."""
        if not self.qk or late != self.late:
            return x
        hunyuan = {"q": "query_layernorm", "k": "key_layernorm"}
        name = p + "self_attn." + (hunyuan[which] if self.kind.startswith("hunyuan") else which + "_norm")
        shape = (-1, self.d) if self.qk == "head" else (-1, heads * self.d)
        return self.norm(f, x.reshape(shape), name).reshape(x.shape)

    def gated(self, f, x, gate, up, down):
        x = unary(f, self.act, linear(f, x, *gate)) * linear(f, x, *up)
        return linear(f, f.moved(x, np.abs(x)), *down)

    def clamped(self, f, x, gate, up, down):
        """gpt-oss: the gate is held from above, up from both sides, and 1 is added to it."""
        most, alpha = self.cfg.get("swiglu_limit", 7.0), self.cfg.get("swiglu_alpha", 1.702)
        gate, up = np.minimum(linear(f, x, *gate), most), np.clip(linear(f, x, *up), -most, most)
        x = f.moved(gate / (1 + np.exp(-alpha * gate)), 8 * np.abs(gate))
        return linear(f, f.moved(x * (up + 1), 2 * np.abs(x) * (np.abs(up) + 1)), *down)

    def mlp(self, f, x, p):
        if self.neox:
            x = unary(f, self.act, linear(f, x, *self.pair(p + "mlp.dense_h_to_4h")))
            return linear(f, x, *self.pair(p + "mlp.dense_4h_to_h"))
        if p + "mlp.gate_up_proj.weight" in self.w:
            gate, up = np.split(self.w[p + "mlp.gate_up_proj.weight"], 2)
            return self.gated(f, x, (gate,), (up,), self.pair(p + "mlp.down_proj"))
        if self.mixture(p) is None and p + "shared_mlp.input_linear.weight" in self.w:  # Granite 4.0
            return self.shared(f, x, p)
        if self.mixture(p):
            return self.experts(f, x, *self.mixture(p)) + self.shared(f, x, p)
        if self.kind == "apertus" and self.act == "xielu":
            x = linear(f, x, *self.pair(p + "mlp.up_proj"))
            return linear(f, self.xielu(f, x, p + "mlp.act_fn."), *self.pair(p + "mlp.down_proj"))
        if self.kind == "nanochat":
            return linear(f, unary(f, self.act, linear(f, x, *self.pair(p + "mlp.fc1"))), *self.pair(p + "mlp.fc2"))
        if self.kind == "arcee":
            x = unary(f, self.act, linear(f, x, *self.pair(p + "mlp.up_proj")))
            return linear(f, x, *self.pair(p + "mlp.down_proj"))
        block = p + ("feed_forward." if self.kind == "llama4_text" else "mlp.")
        return self.gated(f, x, *(self.pair(block + name) for name in ("gate_proj", "up_proj", "down_proj")))

    def xielu(self, f, x, p):
        above, below, beta, least = (self.w[p + name] for name in ("alpha_p", "alpha_n", "beta", "eps"))
        above, below = np.log1p(np.exp(above)), beta + np.log1p(np.exp(below))
        grown = np.expm1(np.minimum(x, least))
        y = np.where(x > 0, above * x * x, below * (grown - x)) + beta * x
        return f.moved(y, np.where(x > 0, 4 * above * x * x, below * (16 * np.abs(grown) + 3 * np.abs(x))) + 3 * np.abs(beta * x))

    def mixture(self, p):
        """The router of a layer and its experts (gate, up, down); None: it has none."""
        for block in (p + "block_sparse_moe.", p + "mlp.", p + "mlp.text_moe.", p + "feed_forward."):
            routers = [block + name for name in ("gate.weight", "gate.wg.weight", "router.gate.weight", "router.weight", "router.layer.weight")]
            router = next((name for name in routers if name in self.w), None)
            if router is None:
                continue
            if self.kind == "gpt_oss":  # [k][n], gate and up in turns
                up, down = ([self.w[f"{block}experts.{n}_proj{end}"] for end in ("", "_bias")] for n in ("gate_up", "down"))
                return router, [
                    [(a[:, half::2].T, b[half::2]) for half in (0, 1)] + [(c.T, d)] for a, b, c, d in zip(*up, *down)
                ]
            if self.cfg.get("_across"):
                up, down = (self.w[f"{block}experts.{n}_proj"] for n in ("gate_up", "down"))
                return router, [[*((half.T,) for half in np.split(a, 2, 1)), (b.T,)] for a, b in zip(up, down)]
            for up, down in (("experts.gate_up_proj", "experts.down_proj"), ("input_linear.weight", "output_linear.weight")):
                if block + up in self.w:
                    both = zip(self.w[block + up], self.w[block + down])
                    return router, [(*((half,) for half in np.split(a, 2)), (b,)) for a, b in both]
            old = block + "experts.0.w1.weight" in self.w
            names = ("w1", "w3", "w2") if old else ("gate_proj", "up_proj", "down_proj")
            return router, [[self.pair(f"{block}experts.{e}.{n}") for n in names] for e in range(self.cfg.get("moe_num_experts", len(self.w[router])))]
        return None

    def shared(self, f, x, p):
        """What the expert says that all rows share; its score, where it has one, is a number for each row."""
        if p + "shared_mlp.input_linear.weight" in self.w:
            gate, up = np.split(self.w[p + "shared_mlp.input_linear.weight"], 2)
            return self.gated(f, x, (gate,), (up,), self.pair(p + "shared_mlp.output_linear"))
        for name in (p + "mlp.shared_experts.", p + "mlp.shared_mlp.", p + "feed_forward.shared_expert."):
            if name + "up_proj.weight" in self.w:
                return self.gated(f, x, *(self.pair(f"{name}{n}_proj") for n in ("gate", "up", "down")))
        if p + "mlp.shared_expert_gate.weight" not in self.w:
            return 0
        y = self.gated(f, x, *(self.pair(f"{p}mlp.shared_expert.{n}_proj") for n in ("gate", "up", "down")))
        score = 1 / (1 + np.exp(-linear(f, x, self.w[p + "mlp.shared_expert_gate.weight"])))
        return f.moved(y * score, 10 * np.abs(y * score))

    def chosen(self, f, logits):
        """Which experts each row goes to, and how much each counts."""
        k = self.used
        if self.kind == "phimoe":
            return self.drawn(f, logits)
        if self.kind in ("deepseek_v2", "mistral4"):
            return self.by_group(f, logits)
        order = np.sort(logits, -1)
        f.margin = min(f.margin, (order[:, -k] - order[:, -k - 1]).min())
        chosen = np.argsort(-logits, -1, kind="stable")[:, :k]
        if self.kind == "llama4_text" or self.cfg.get("expert_selection_fn") == "sigmoid":
            share = 1 / (1 + np.exp(-np.take_along_axis(logits, chosen, -1)))
            if self.kind == "cohere2_moe" and self.cfg["norm_topk_prob"]:
                share = share / share.sum(-1, keepdims=True)
            return chosen, f.moved(share, 16 * share)
        share = np.exp(logits - logits.max(-1, keepdims=True))
        all_of = self.kind in ("qwen2_moe", "qwen3_moe", "olmoe", "flex_olmo")  # others: all of the chosen
        if all_of:  # of all experts; of the chosen alone where the config says so
            share = share / share.sum(-1, keepdims=True)
        share = np.take_along_axis(share, chosen, -1)
        if not all_of or self.cfg.get("norm_topk_prob"):
            share = share / share.sum(-1, keepdims=True)
        return chosen, f.moved(share, 16 * share)

    def by_group(self, f, logits):
        """DeepSeek V2: from the groups whose best is best; the shares are of all experts."""
        k, groups, top = (self.cfg[key] for key in ("num_experts_per_tok", "n_group", "topk_group"))
        of = logits.reshape(len(logits), groups, -1).max(-1)
        order = np.sort(of, -1)
        if top < groups:
            f.margin = min(f.margin, (order[:, -top] - order[:, -top - 1]).min())
        left = np.where(np.repeat(of >= order[:, -top, None], logits.shape[1] // groups, 1), logits, -np.inf)
        order = np.sort(left, -1)
        f.margin = min(f.margin, (order[:, -k] - order[:, -k - 1]).min())
        chosen = np.argsort(-left, -1, kind="stable")[:, :k]
        share = np.exp(logits - logits.max(-1, keepdims=True))
        share = np.take_along_axis(share / share.sum(-1, keepdims=True), chosen, -1)
        if self.kind != "deepseek_v2" and self.cfg["norm_topk_prob"]:
            share = share / share.sum(-1, keepdims=True)
        share = share * self.cfg["routed_scaling_factor"]
        return chosen, f.moved(share, 16 * share)

    def by_bias(self, f, logits, bias):
        """By sigmoids (ERNIE: the softmax) and a number for each expert, from the groups whose two best are best."""
        k, groups = self.used, self.cfg.get("n_group", 1)
        score = 1 / (1 + np.exp(-logits))
        if self.kind.startswith("ernie"):
            score = np.exp(logits - logits.max(-1, keepdims=True))
            score /= score.sum(-1, keepdims=True)
        choice = score + bias
        of = np.sort(choice.reshape(len(choice), groups, -1), -1)[..., -2:].sum(-1)
        order = np.sort(of, -1)
        top = self.cfg.get("topk_group", 1)
        if top < groups:
            f.margin = min(f.margin, (order[:, -top] - order[:, -top - 1]).min())
        left = np.repeat(of >= order[:, -top, None], choice.shape[1] // groups, 1)
        choice = np.where(left, choice, -np.inf)
        order = np.sort(choice, -1)
        f.margin = min(f.margin, (order[:, -k] - order[:, -k - 1]).min())
        chosen = np.argsort(-choice, -1, kind="stable")[:, :k]
        share = np.take_along_axis(score, chosen, -1)
        if self.cfg.get("norm_topk_prob", True):
            share = share / share.sum(-1, keepdims=True)
        share = share * (self.cfg.get("routed_scaling_factor", self.cfg.get("router_scaling_factor", self.cfg.get("route_scale", 1.0))) or 1)
        return chosen, f.moved(share, 16 * share)

    def drawn(self, f, logits):
        """One after the other: a best one's share is of the softmax over those that are left and near it."""
        left, near = np.ones(logits.shape, bool), 2 * self.cfg.get("router_jitter_noise", 0.01)
        chosen, share = [], []
        for _ in range(2):
            there = np.where(left, logits, -np.inf)
            best, two = there.argmax(-1), np.sort(there, -1)[:, -2:]
            top = two[:, 1:]
            far = (top - logits) / np.maximum(np.abs(logits), top)
            f.margin = min(f.margin, (two[:, 1] - two[:, 0]).min(), np.abs(far - near)[left].min())
            share.append(1 / np.exp(np.where(left & (far <= near), logits - top, -np.inf)).sum(-1))
            chosen.append(best)
            left[np.arange(len(best)), best] = False
        share = np.stack(share, -1)
        return np.stack(chosen, -1), f.moved(share, 16 * share)

    def experts(self, f, x, router, experts):
        w, b = self.pair(router[:-7])
        if self.kind == "ernie4_5_vl_moe_text" and "text_moe" not in router:  # [k][n]
            w = w.T
        logits, block = linear(f, x, w, b), re.match(r".*(mlp|moe|feed_forward)\.", router)[0]
        bias = next((a if a.ndim == 1 else a[0] for n, a in self.w.items() if n.startswith(block) and n.endswith(DRAW)), None)
        chosen, share = self.chosen(f, logits) if bias is None else self.by_bias(f, logits, bias)
        gated = self.clamped if self.kind == "gpt_oss" else self.gated
        y = np.zeros_like(x)
        for e, parts in enumerate(experts):
            row, place = np.nonzero(chosen == e)
            if len(row):
                by = share[row, place, None]
                z = gated(f, f.moved(x[row] * by, np.abs(x[row] * by)) if self.inward else x[row], *parts)
                y[row] += f.moved(z if self.inward else z * by, chosen.shape[1] * np.abs(z))
        return y

    def head(self):
        name = "embed_out.weight" if self.neox else "lm_head.weight"
        return self.w[
            name if name in self.w else self.root + ("embed_in.weight" if self.neox else "embed_tokens.weight")
        ]


def heads(f, m, x, layer, turns, sinks):
    """Attention of heads with K and V of their own or of a group."""
    cfg, w, p = m.cfg, m.w, f"{m.root}layers.{layer}."
    q, k, v = (linear(f, x, *part) for part in m.qkv(p))
    window = m.window(layer)
    q, k = m.qk_norm(f, q, p, "q", m.heads, False), m.qk_norm(f, k, p, "k", m.kv_heads, False)
    if cfg.get("clip_qkv"):
        q, k, v = (np.clip(a, -cfg["clip_qkv"], cfg["clip_qkv"]) for a in (q, k, v))
    kv = k.shape[-1] // m.d
    q, k, v = q.reshape(len(x), m.heads, m.d), k.reshape(len(x), kv, m.d), v.reshape(len(x), kv, -1)
    v = f.moved(v * m.v_scale, np.abs(v)) if m.v_scale != 1 else v
    if m.turns(layer):
        turn = turns[window > 0]
        q, k = rope(f, q, *turn, m.heads, m.pairs), rope(f, k, *turn, kv, m.pairs)
    q = m.grown(f, q, layer)
    if m.kind == "llama4_text" and cfg["use_qk_norm"] and m.turns(layer):
        q, k = rmsnorm(f, q, 1, m.eps), rmsnorm(f, k, 1, m.eps)
    q, k = m.qk_norm(f, q, p, "q", m.heads, True), m.qk_norm(f, k, p, "k", m.kv_heads, True)
    y = attention(f, q, k, v, kv, window, m.scale, m.cap, sinks=sinks, chunk=m.chunk(layer))
    if p + "self_attn.gate_proj.weight" in w:
        open_by = 1 / (1 + np.exp(-linear(f, x, w[p + "self_attn.gate_proj.weight"])))
        y = f.moved(y * open_by, 10 * np.abs(y * open_by))
    return y


def latents(f, m, x, p, turn):
    """Attention over latents: K and V would be what matrices of each head make of one latent of a token; those matrices go
    to q and to what was mixed instead, which is the same."""
    cfg, t, p = m.cfg, len(x), p + "self_attn."
    low = lambda y, name: rmsnorm(f, y, m.w[p + name + ".weight"], 1e-6)
    rank, nope = cfg["kv_lora_rank"], cfg["qk_nope_head_dim"]
    if cfg["q_lora_rank"] is None:
        q = linear(f, x, *m.pair(p + "q_proj"))
    else:
        q = linear(f, low(linear(f, x, *m.pair(p + "q_a_proj")), "q_a_layernorm"), *m.pair(p + "q_b_proj"))
    q = m.grown(f, q.reshape(t, m.heads, -1), 0)
    both = linear(f, x, *m.pair(p + "kv_a_proj_with_mqa"))
    latent, k = low(both[:, :rank], "kv_a_layernorm"), rope(f, both[:, rank:], *turn, 1, m.pairs)
    heads = m.w[p + "kv_b_proj.weight"].reshape(m.heads, -1, rank)
    met = np.stack([linear(f, q[:, h, :nope], heads[h, :nope].T) for h in range(m.heads)], 1)
    q = np.concatenate([met, rope(f, q[..., nope:], *turn, m.heads, m.pairs)], -1)
    k = np.concatenate([latent[:, None], k], -1)
    scaling, scale = rope_settings(cfg)[2], (nope + m.d) ** -0.5
    if scaling.get("mscale_all_dim"):
        scale *= (0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1) ** 2
    mixed = attention(f, q, k, latent[:, None], 1, 0, scale).reshape(t, m.heads, rank)
    return np.concatenate([linear(f, mixed[:, h], heads[h, nope:]) for h in range(m.heads)], -1)


def forward(cfg, w, ids, f=None, ctx=None):
    """Logits [len(ids)][vocab]. w: name -> f64 array, as in the checkpoint."""
    cfg, w = remote.twin(cfg, w)
    if cfg.get("model_type") in decoder_gpt.KINDS:
        return decoder_gpt.forward(f or Exact(), cfg, w, ids, ctx or len(ids))
    if cfg.get("model_type") == "gemma4_text":
        return decoder_gemma4.forward(f or Exact(), cfg, w, ids)
    if cfg.get("model_type") == "minicpm3":
        cfg = {
            **cfg, "embedding_multiplier": cfg["scale_emb"], "logits_scaling": cfg["hidden_size"] / cfg["dim_model_base"],
            "residual_multiplier": cfg["scale_depth"] / cfg["num_hidden_layers"] ** 0.5,
        }
    f, m = f or Exact(), Parts(cfg, w)
    rotated = cfg.get("rotary_dim") or int(m.d * rope_settings(cfg)[1])
    turns = [rope_freqs(cfg, rotated, ctx or cfg["max_position_embeddings"], local) for local in (False, m.local)]
    h = w[m.root + ("embed_in.weight" if m.neox else "embed_tokens.weight")][ids]
    rooted = "gemma" in m.kind or cfg.get("mup_enabled")
    by = math.sqrt(cfg["hidden_size"]) if rooted else cfg.get("embedding_multiplier", 1.0)
    adds = cfg.get("residual_multiplier", 1.0)
    h = f.moved(h * by, 2 * np.abs(h * by))
    if m.bare:
        h = m.norm(f, h, "model.norm")
    if m.backward:
        turns = [(-freqs, mscale) for freqs, mscale in turns]
    for i in range(cfg["num_hidden_layers"]):
        if i in cfg.get("_gone", ()):  # layers that were pruned
            continue
        cfg.get("_seen", []).append(h)  # what goes into each layer
        p = f"{m.root}layers.{i}."
        name = lambda norm: norm and p + norm
        x = m.norm(f, h, name(m.pre[0]))
        if p + "self_attn.kv_b_proj.weight" in w:
            y = latents(f, m, x, p, turns[0])
        else:
            y = heads(f, m, x, i, turns, m.sinks(p))
        y = linear(f, y, *m.pair(p + m.attn + ("dense" if m.neox else "o_proj")))
        y = m.norm(f, y, name(m.post[0])) * adds
        before, h = h, f.moved(h + y, np.abs(h + y) + np.abs(y))
        x = m.norm(f, before if m.neox and cfg.get("use_parallel_residual", True) else h, name(m.pre[1]))
        y = m.mlp(f, x, p)
        y = m.norm(f, y, name(m.post[1])) * adds
        h = f.moved(h + y, np.abs(h + y) + np.abs(y))
    cfg.get("_seen", []).append(h)
    x = m.norm(f, h, "gpt_neox.final_layer_norm" if m.neox else "model.norm")
    y, cap = linear(f, x, m.head(), w.get("lm_head.bias")) / cfg.get("logits_scaling", 1.0), cfg.get("final_logit_softcapping")
    y = f.moved(y, 2 * np.abs(y))
    if cap:
        y = cap * np.tanh(y / cap)
        y = f.moved(y, 8 * np.abs(y))
    return y


def margin(cfg, w, ids):
    """The least distance of a router's logit that was taken from the first that was not; inf: there is no router."""
    f = Exact()
    forward(cfg, w, ids, f, len(ids))
    return f.margin


def bound(cfg, w, ids, runs=8):
    """For each row, the largest error of a logit that f32 arithmetic explains: twice the largest seen over the runs."""
    exact = forward(cfg, w, ids, ctx=len(ids))
    spread = np.max(
        [np.abs(forward(cfg, w, ids, Rounded(seed), len(ids)) - exact) for seed in range(runs)], axis=(0, 2)
    )
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


import decoder_gemma4  # here, as they use what stands above
import decoder_gpt
