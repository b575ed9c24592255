# decoder_gpt.py: the decoders of models_gpt.py in numpy and f64, with the arithmetic of decoder_np.py: one forward, and
# for each architecture a class that says where it differs. Written from the models' descriptions and not from lq.
import numpy as np

from decoder_np import Parts, attention, layernorm, linear, rmsnorm, rope, rope_freqs, rope_settings, unary


def add(f, a, b):
    return f.moved(a + b, np.abs(a + b))


def by_groups(m, name):
    """Weight and bias of q, k and v out of one as [group][its q heads, k, v]."""
    w, b = m.pair(name)
    share = m.heads // m.kv_heads

    def split(a):
        a = a.reshape(m.kv_heads, share + 2, m.d, -1)
        return [part.reshape(-1, a.shape[-1]) for part in (a[:, :share], a[:, share], a[:, share + 1])]

    return list(zip(split(w), [None] * 3 if b is None else [part[:, 0] for part in split(b)]))


class Decoder:
    """GPT-2's names and habits; those that came after it change a few."""

    layer, norm_1, norm_2 = "transformer.h.%d.", "ln_1", "ln_2"
    embed, positions, norm_out, head = "transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"
    out, up, down = "attn.c_proj", "mlp.c_fc", "mlp.c_proj"
    conv1d, neighbours, first = False, False, 0
    eps_key, act_key, silent = "layer_norm_epsilon", "activation_function", "gelu"

    def __init__(self, cfg, w, ctx):
        self.cfg, self.w, self.ctx = cfg, w, ctx
        if self.embed + ".weight" not in w:
            self.w = {self.embed.split(".")[0] + "." + name: a for name, a in w.items()}
        one_of = lambda *keys: next(cfg[key] for key in keys if key in cfg)
        self.heads = one_of("n_head", "n_heads", "num_heads", "num_attention_heads")
        self.kv_heads = cfg.get("num_key_value_heads") or self.heads
        self.dim = one_of("n_embd", "d_model", "hidden_size")
        self.layers = one_of("n_layer", "n_layers", "num_layers", "num_hidden_layers")
        self.d = cfg.get("head_dim") or self.dim // self.heads
        self.eps = float(np.float32(cfg.get(self.eps_key, 1e-5)))
        self.act = cfg.get(self.act_key, self.silent)

    def pair(self, name):
        return self.w[name + ".weight"], self.w.get(name + ".bias")

    def project(self, f, x, name):
        w, b = self.pair(name)
        return linear(f, x, w.T if self.conv1d else w, b)

    def norm(self, f, x, name):
        w, b = self.pair(name)
        return layernorm(f, x, w, np.zeros_like(w) if b is None else b, self.eps)

    def fused(self, p, name):
        """Rows of q, then k, then v."""
        w, b = self.pair(p + name)
        ends = np.cumsum([self.heads * self.d, self.kv_heads * self.d])
        split = lambda a: np.split(a, ends)
        return list(zip(split(w.T if self.conv1d else w), [None] * 3 if b is None else split(b)))

    def qkv(self, p):
        return self.fused(p, "attn.c_attn")

    def mlp(self, f, x, p):
        return self.project(f, unary(f, self.act, self.project(f, x, p + self.up)), p + self.down)

    def parallel(self):
        return False

    def scale(self, layer):
        return self.d**-0.5

    def window(self, layer):
        return 0

    def clip(self, x):
        most = self.cfg.get("clip_qkv")
        return np.clip(x, -most, most) if most else x

    def bias(self, t):
        return None

    def attend(self, f, x, i):
        p, t = self.layer % i, len(x)
        q, k, v = (self.clip(linear(f, x, *part)) for part in self.qkv(p))
        q, k = self.turn(f, q, self.heads, p + "self_attn.q_"), self.turn(f, k, self.kv_heads, p + "self_attn.k_")
        v = v.reshape(t, self.kv_heads, self.d)
        y = attention(f, q, k, v, self.kv_heads, self.window(i), self.scale(i), bias=self.bias(t))
        return self.project(f, y, p + self.out)

    def turn(self, f, x, heads, name):
        """What stands between the projection and the scores: a norm of each head (whose name begins so), the rope."""
        return x.reshape(len(x), heads, self.d)

    def rotate(self, f, x, heads, freqs, mscale=1.0):
        """The first 2 * len(freqs) of a head: by halves, or each with its neighbour."""
        x, n = x.reshape(len(x), heads, self.d), 2 * len(freqs)
        if not self.neighbours:
            return rope(f, x, freqs, mscale, heads)
        halves = np.concatenate([x[..., 0:n:2], x[..., 1:n:2], x[..., n:]], -1)
        turned, y = rope(f, halves, freqs, mscale, heads), x.copy()
        y[..., 0:n:2], y[..., 1:n:2] = turned[..., : n // 2], turned[..., n // 2 : n]
        return y

    def begin(self, f, ids):
        h = self.look_up(f, ids)
        if not self.positions:
            return h
        return add(f, h, self.w[self.positions + ".weight"][self.first : self.first + len(ids)])

    def look_up(self, f, ids):
        return self.w[self.embed + ".weight"][ids]

    def steps(self, f, h, i):
        p = self.layer % i
        x = self.norm(f, h, p + self.norm_1)
        y = self.attend(f, x, i)
        if self.parallel():
            x = self.norm(f, h, p + self.norm_2) if self.norm_2 else x
            return add(f, h, add(f, y, self.mlp(f, x, p)))
        h = add(f, h, y)
        return add(f, h, self.mlp(f, self.norm(f, h, p + self.norm_2), p))

    def end(self, f, h):
        return self.norm(f, h, self.norm_out)

    def forward(self, f, ids):
        h = self.begin(f, ids)
        for i in (n for n in range(self.layers) if n not in self.cfg.get("_gone", ())):
            h = self.steps(f, h, i)
        h = self.end(f, h)
        w = self.w[(self.embed if self.cfg["tie_word_embeddings"] else self.head) + ".weight"]
        h = linear(f, h, w, self.w.get(self.head + ".bias"))
        return h * self.cfg["logit_scale"] if self.cfg.get("logit_scale") else h


class GPT2(Decoder):
    conv1d = True

    def scale(self, layer):
        by = self.d**-0.5 if self.cfg.get("scale_attn_weights", True) else 1.0
        return by / (layer + 1) if self.cfg.get("scale_attn_by_inverse_layer_idx") else by


class BigCode(Decoder):
    def qkv(self, p):
        return by_groups(self, p + "attn.c_attn")

    def __init__(self, cfg, w, ctx):
        super().__init__(cfg, w, ctx)
        self.kv_heads = 1 if cfg["multi_query"] else self.heads

    def scale(self, layer):
        return self.d**-0.5 if self.cfg.get("scale_attn_weights", True) else 1.0


class Neo(Decoder):
    out = "attn.attention.out_proj"

    def qkv(self, p):
        return [self.pair(p + f"attn.attention.{x}_proj") for x in "qkv"]

    def scale(self, layer):
        return 1.0

    def window(self, layer):
        kinds = [kind for some, times in self.cfg["attention_types"] for kind in some * times]
        return self.cfg["window_size"] if kinds[layer] == "local" else 0


class BioGPT(Decoder):
    layer, norm_1, norm_2 = "biogpt.layers.%d.", "self_attn_layer_norm", "final_layer_norm"
    embed, positions, norm_out, head = "biogpt.embed_tokens", "biogpt.embed_positions", "biogpt.layer_norm", "output_projection"
    out, up, down, first, eps_key, act_key = "self_attn.out_proj", "fc1", "fc2", 2, "no key", "hidden_act"

    def qkv(self, p):
        return [self.pair(p + f"self_attn.{x}_proj") for x in "qkv"]

    def look_up(self, f, ids):
        h = super().look_up(f, ids) * (self.dim**0.5 if self.cfg["scale_embedding"] else 1.0)
        return f.moved(h, 2 * np.abs(h))


class OPT(Decoder):
    layer, norm_1, norm_2 = "model.decoder.layers.%d.", "self_attn_layer_norm", "final_layer_norm"
    embed, positions, norm_out = "model.decoder.embed_tokens", "model.decoder.embed_positions", "model.decoder.final_layer_norm"
    out, up, down, first, eps_key = "self_attn.out_proj", "fc1", "fc2", 2, "no key"

    def qkv(self, p):
        return [self.pair(p + f"self_attn.{x}_proj") for x in "qkv"]

    def norm(self, f, x, name):
        if self.cfg["layer_norm_elementwise_affine"]:
            return super().norm(f, x, name)
        return layernorm(f, x, np.ones(x.shape[-1]), np.zeros(x.shape[-1]), self.eps)

    def narrow(self):
        return self.cfg.get("word_embed_proj_dim") not in (None, self.dim)

    def look_up(self, f, ids):
        h = super().look_up(f, ids)
        return self.project(f, h, "model.decoder.project_in") if self.narrow() else h

    def steps(self, f, h, i):
        if self.cfg["do_layer_norm_before"]:
            return super().steps(f, h, i)
        p = self.layer % i
        h = self.norm(f, add(f, h, self.attend(f, h, i)), p + self.norm_1)
        return self.norm(f, add(f, h, self.mlp(f, h, p)), p + self.norm_2)

    def end(self, f, h):
        if self.cfg["do_layer_norm_before"]:
            h = self.norm(f, h, self.norm_out)
        return self.project(f, h, "model.decoder.project_out") if self.narrow() else h


class GPTJ(Decoder):
    positions, norm_2, neighbours = None, None, True
    out, up, down = "attn.out_proj", "mlp.fc_in", "mlp.fc_out"

    def parallel(self):
        return True

    def qkv(self, p):
        return [self.pair(p + f"attn.{x}_proj") for x in "qkv"]

    def turn(self, f, x, heads, name):
        n = self.cfg["rotary_dim"]
        return self.rotate(f, x, heads, 10000.0 ** -(np.arange(0, n, 2) / n))


class CodeGen(GPTJ):
    def qkv(self, p):
        w = self.w[p + "attn.qkv_proj.weight"]
        w = w.reshape(4, 3, -1, w.shape[1])  # four times of q, v, k
        return [(w[:, i].reshape(-1, w.shape[-1]), None) for i in (0, 2, 1)]


class Llama(Decoder):
    """Llama's names, a rope as its config says, and LayerNorms."""

    layer, norm_1, norm_2 = "model.layers.%d.", "input_layernorm", "post_attention_layernorm"
    embed, positions, norm_out = "model.embed_tokens", None, "model.norm"
    out, up, down = "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"
    eps_key, act_key = "layer_norm_eps", "hidden_act"

    def qkv(self, p):
        return [self.pair(p + f"self_attn.{x}_proj") for x in "qkv"]

    def turn(self, f, x, heads, name):
        freqs, mscale = rope_freqs(self.cfg, int(self.d * rope_settings(self.cfg)[1]), self.ctx)
        return self.rotate(f, x, heads, freqs, mscale)


class Gated(Llama):
    def mlp(self, f, x, p):
        x = unary(f, self.act, self.project(f, x, p + "mlp.gate_proj")) * self.project(f, x, p + self.up)
        return self.project(f, f.moved(x, np.abs(x)), p + self.down)


class Phi(Llama):
    norm_2, norm_out = None, "model.final_layernorm"
    out, up, down = "self_attn.dense", "mlp.fc1", "mlp.fc2"

    def parallel(self):
        return True

    def turn(self, f, x, heads, name):
        if self.cfg.get("qk_layernorm"):
            x = self.norm(f, x.reshape(-1, heads, self.d), name + "layernorm")
        return super().turn(f, x, heads, name)


class Persimmon(Phi):
    norm_2 = "post_attention_layernorm"
    up, down = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"

    def parallel(self):
        return False

    def qkv(self, p):
        return by_groups(self, p + "self_attn.query_key_value")


class StableLM(Gated):
    def parallel(self):
        return self.cfg.get("use_parallel_residual", False)

    @property
    def norm_2(self):
        return None if self.parallel() else "post_attention_layernorm"

    def turn(self, f, x, heads, name):
        if self.cfg.get("qk_layernorm"):
            x = x.reshape(-1, heads, self.d)
            x = np.stack([self.norm(f, x[:, h], f"{name}layernorm.norms.{h}") for h in range(heads)], 1)
        return super().turn(f, x, heads, name)


class StarCoder2(Llama):
    up, down, eps_key = "mlp.c_fc", "mlp.c_proj", "norm_epsilon"

    def window(self, layer):
        return self.cfg.get("sliding_window") or 0


class Nemotron(Llama):
    eps_key = "norm_eps"

    def norm(self, f, x, name):
        w, b = self.pair(name)
        return layernorm(f, x, 1 + w, b, self.eps)


class OLMo(Gated):
    eps_key = "no key"

    def norm(self, f, x, name):
        return layernorm(f, x, np.ones(x.shape[-1]), np.zeros(x.shape[-1]), 1e-5)


def slopes(heads):
    """ALiBi's: powers of 2^(-8 / n), and between them those of twice as many heads where heads is no power of two."""
    n = 1 << heads.bit_length() - 1
    some = [2.0 ** (-8 * (i + 1) / n) for i in range(n)]
    return np.array((some + [2.0 ** (-4 * (2 * i + 1) / n) for i in range(n)])[:heads])


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


class Distance(Decoder):
    """ALiBi."""

    positions = None

    def bias(self, t):
        if self.cfg.get("level"):
            return None
        return slopes(self.heads)[:, None, None] * (np.arange(t)[None, :] - np.arange(t)[:, None])


class Grouped(Distance):
    """Falcon's names: query_key_value as [group][its q heads, k, v]."""

    layer, norm_1, norm_2 = "transformer.h.%d.", "input_layernorm", "post_attention_layernorm"
    embed, norm_out = "transformer.word_embeddings", "transformer.ln_f"
    out, up, down = "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"

    def qkv(self, p):
        return by_groups(self, p + "self_attention.query_key_value")


class Bloom(Grouped):
    silent = "gelu_pytorch_tanh"

    def begin(self, f, ids):
        return self.norm(f, super().begin(f, ids), "transformer.word_embeddings_layernorm")


class Falcon(Grouped):
    act_key = "activation"

    def __init__(self, cfg, w, ctx):
        super().__init__(cfg, w, ctx)
        new = cfg["new_decoder_architecture"]
        self.kv_heads = cfg["num_kv_heads"] or self.heads if new else 1 if cfg["multi_query"] else self.heads
        if new and cfg.get("num_ln_in_parallel_attn") != 1:
            self.norm_1, self.norm_2 = "ln_attn", "ln_mlp"
        elif self.parallel():
            self.norm_2 = None

    def parallel(self):
        return self.cfg["new_decoder_architecture"] or self.cfg["parallel_attn"]

    def bias(self, t):
        if not self.cfg["alibi"]:
            return None
        b = (lambda x: x) if self.cfg.get("fine") else bf16
        return (b(b(slopes(self.heads))[:, None] * b(np.arange(t))) * self.d**-0.5)[:, None, :]

    def turn(self, f, x, heads, name):
        if self.cfg["alibi"]:
            return super().turn(f, x, heads, name)
        return self.rotate(f, x, heads, *rope_freqs(self.cfg, self.d, self.ctx))


class MPT(Distance):
    layer, norm_1, norm_2, norm_out = "transformer.blocks.%d.", "norm_1", "norm_2", "transformer.norm_f"
    out, up, down = "attn.out_proj", "ffn.up_proj", "ffn.down_proj"

    def qkv(self, p):
        return self.fused(p, "attn.Wqkv")

    def scale(self, layer):
        return self.cfg["attn_config"].get("softmax_scale") or self.d**-0.5

    def clip(self, x):
        most = self.cfg["attn_config"].get("clip_qkv")
        return np.clip(x, -most, most) if most else x


class Cohere(Gated):
    norm_2, neighbours = None, True

    def parallel(self):
        return True

    def turn(self, f, x, heads, name):
        if self.cfg.get("use_qk_norm"):
            x = x.reshape(-1, heads, self.d)
            gamma = self.w[name + "norm.weight"]
            x = np.stack([layernorm(f, x[:, h], gamma[h], np.zeros(self.d), self.eps) for h in range(heads)], 1)
        return super().turn(f, x, heads, name)


class Cohere2(Cohere):
    def window(self, layer):
        cfg = self.cfg
        types = cfg.get("layer_types")
        slides = types[layer] == "sliding_attention" if types else (layer + 1) % cfg.get("sliding_window_pattern", 4) > 0
        return cfg["sliding_window"] if slides else 0

    def turn(self, f, x, heads, name):
        if self.window(int(name.split(".")[2])):
            return super().turn(f, x, heads, name)
        return x.reshape(-1, heads, self.d)


class Cohere2Moe(Cohere2):
    def dense(self, layer):
        types = self.cfg.get("mlp_layer_types")
        return types[layer] == "dense" if types else layer < self.cfg.get("first_k_dense_replace", 0)

    def window(self, layer):
        cfg, first = self.cfg, self.cfg.get("first_k_dense_replace", 0)
        if "layer_types" in cfg or not first:
            return super().window(layer)
        if layer < first:
            return cfg["sliding_window"] if (layer + 1) % cfg["prefix_dense_sliding_window_pattern"] else 0
        return super().window(layer - first)

    def turn(self, f, x, heads, name):
        if self.dense(int(name.split(".")[2])) and self.cfg["prefix_dense_sliding_window_pattern"] == 1:
            return Cohere.turn(self, f, x, heads, name)
        return super().turn(f, x, heads, name)

    def norm(self, f, x, name):
        eps = self.cfg.get("rms_norm_eps")
        return rmsnorm(f, x, self.w[name + ".weight"], eps) if eps else super().norm(f, x, name)

    def mlp(self, f, x, p):
        if self.dense(int(p.split(".")[2])):
            return super().mlp(f, x, p)
        m = Parts({**self.cfg, "rms_norm_eps": 1.0}, self.w)
        y = m.experts(f, x, *m.mixture(p))
        if not self.cfg["num_shared_experts"]:
            return y
        half = 1 if self.cfg["shared_expert_combination_strategy"] == "sum" else 2
        return add(f, y, m.shared(f, x, p)) / half


KINDS = {
    "cohere2_moe": Cohere2Moe,
    "gpt2": GPT2, "gpt_bigcode": BigCode, "gpt_neo": Neo, "opt": OPT, "gptj": GPTJ, "codegen": CodeGen,
    "persimmon": Persimmon, "phi": Phi, "stablelm": StableLM, "starcoder2": StarCoder2, "nemotron": Nemotron,
    "jais2": Llama, "biogpt": BioGPT,
    "olmo": OLMo, "falcon": Falcon, "bloom": Bloom, "mpt": MPT, "cohere": Cohere, "cohere2": Cohere2,
}


def forward(f, cfg, w, ids, ctx):
    return KINDS[cfg["model_type"]](cfg, w, ctx).forward(f, ids)
