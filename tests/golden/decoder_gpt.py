# decoder_gpt.py: the decoders of models_gpt.py in numpy and f64, with the arithmetic of decoder_np.py: one forward, and
# for each architecture a class that says where it differs. Written from the models' descriptions and not from lq.
import numpy as np

from decoder_np import attention, layernorm, linear, rope, rope_freqs, rope_settings, unary


class Decoder:
    """GPT-2's names and habits; those that came after it change a few."""

    layer, norm_1, norm_2 = "transformer.h.%d.", "ln_1", "ln_2"
    embed, positions, norm_out, head = "transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"
    out, up, down = "attn.c_proj", "mlp.c_fc", "mlp.c_proj"
    conv1d, parallel, first, rotary = False, False, 0, False
    eps_key, act_key = "layer_norm_epsilon", "activation_function"

    def __init__(self, cfg, w):
        self.cfg, self.w = cfg, w
        if self.embed + ".weight" not in w:
            self.w = {"transformer." + name: a for name, a in w.items()}
        self.heads = cfg.get("n_head", cfg.get("num_attention_heads"))
        self.kv_heads = cfg.get("num_key_value_heads") or self.heads
        self.dim = cfg.get("n_embd", cfg.get("hidden_size"))
        self.layers = cfg.get("n_layer", cfg.get("num_hidden_layers"))
        self.d = cfg.get("head_dim") or self.dim // self.heads
        self.eps = float(np.float32(cfg[self.eps_key]))
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

    def scale(self, layer):
        return self.d**-0.5

    def window(self, layer):
        return 0

    def attend(self, f, x, i):
        p, t = self.layer % i, len(x)
        q, k, v = (linear(f, x, *part) for part in self.qkv(p))
        q, k = self.turn(f, q, self.heads, i), self.turn(f, k, self.kv_heads, i)
        v = v.reshape(t, self.kv_heads, self.d)
        y = attention(f, q, k, v, self.kv_heads, self.window(i), self.scale(i))
        return self.project(f, y, p + self.out)

    def turn(self, f, x, heads, layer):
        return x.reshape(len(x), heads, self.d)

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
            if self.parallel:
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


KINDS = {"gpt2": GPT2}


def forward(f, cfg, w, ids):
    return KINDS[cfg["model_type"]](cfg, w).forward(f, ids)
