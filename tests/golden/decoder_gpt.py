# decoder_gpt.py: the decoders of models_gpt.py in numpy and f64, with the arithmetic of decoder_np.py: one forward, and
# for each architecture a class that says where it differs. Written from the models' descriptions and not from lq.
import numpy as np

from decoder_np import attention, layernorm, linear, rope, rope_freqs, rope_settings, unary


class Decoder:
    """GPT-2's names and habits; those that came after it change a few."""

    layer, norm_1, norm_2 = "transformer.h.%d.", "ln_1", "ln_2"
    embed, positions, norm_out, head = "transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"
    out, up, down = "attn.c_proj", "mlp.c_fc", "mlp.c_proj"
    conv1d, neighbours, first = False, False, 0
    eps_key, act_key = "layer_norm_epsilon", "activation_function"

    def __init__(self, cfg, w, ctx):
        self.cfg, self.w, self.ctx = cfg, w, ctx
        if self.embed + ".weight" not in w:
            self.w = {"transformer." + name: a for name, a in w.items()}
        self.heads = cfg.get("n_head", cfg.get("num_attention_heads"))
        self.kv_heads = cfg.get("num_key_value_heads") or self.heads
        self.dim = cfg.get("n_embd", cfg.get("hidden_size"))
        self.layers = cfg.get("n_layer", cfg.get("num_hidden_layers"))
        self.d = cfg.get("head_dim") or self.dim // self.heads
        self.eps = float(np.float32(cfg.get(self.eps_key, 1e-5)))
        self.act = cfg[self.act_key]

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
        return x

    def attend(self, f, x, i):
        p, t = self.layer % i, len(x)
        q, k, v = (self.clip(linear(f, x, *part)) for part in self.qkv(p))
        q, k = self.turn(f, q, self.heads, p + "self_attn.q_"), self.turn(f, k, self.kv_heads, p + "self_attn.k_")
        v = v.reshape(t, self.kv_heads, self.d)
        y = attention(f, q, k, v, self.kv_heads, self.window(i), self.scale(i))
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
        h = self.w[self.embed + ".weight"][ids]
        if not self.positions:
            return h
        h = h + self.w[self.positions + ".weight"][self.first : self.first + len(ids)]
        return f.moved(h, np.abs(h))

    def forward(self, f, ids):
        h = self.begin(f, ids)
        add = lambda a, b: f.moved(a + b, np.abs(a + b))
        for i in range(self.layers):
            p = self.layer % i
            x = self.norm(f, h, p + self.norm_1)
            y = self.attend(f, x, i)
            if self.parallel():
                x = self.norm(f, h, p + self.norm_2) if self.norm_2 else x
                h = add(h, add(y, self.mlp(f, x, p)))
            else:
                h = add(h, y)
                h = add(h, self.mlp(f, self.norm(f, h, p + self.norm_2), p))
        h = self.norm(f, h, self.norm_out)
        w = self.w[(self.embed if self.cfg["tie_word_embeddings"] else self.head) + ".weight"]
        return linear(f, h, w, self.w.get(self.head + ".bias"))


class GPT2(Decoder):
    conv1d = True

    def scale(self, layer):
        by = self.d**-0.5 if self.cfg.get("scale_attn_weights", True) else 1.0
        return by / (layer + 1) if self.cfg.get("scale_attn_by_inverse_layer_idx") else by


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

    def clip(self, x):
        most = self.cfg.get("clip_qkv")
        return np.clip(x, -most, most) if most else x


KINDS = {
    "gpt2": GPT2, "gptj": GPTJ, "phi": Phi, "stablelm": StableLM, "starcoder2": StarCoder2, "nemotron": Nemotron,
    "olmo": OLMo,
}


def forward(f, cfg, w, ids, ctx):
    return KINDS[cfg["model_type"]](cfg, w, ctx).forward(f, ids)
