# models_gpt.py: the tiny models of decoders with LayerNorms (GPT-2 and what came of it), as models.py has those in
# Llama's shape. Here an architecture lists all of its tensors: name -> (shape, what it is), from which make_models.py
# knows how large its numbers are: "matrix" [n][k], "conv1d" [k][n], "embed", "norm", "norm1p" (around 0), "vector".


class Tensors(dict):
    """Tensors of a checkpoint, by their names without what they begin with."""

    def __init__(self, prefix):
        super().__init__()
        self.prefix = prefix

    def put(self, name, shape, what, bias=None):
        self[self.prefix + name + ".weight"] = (shape, what)
        if bias:
            self[self.prefix + name + ".bias"] = ((bias,), "vector")

    def norm(self, name, dim, bias=True, what="norm"):
        self.put(name, (dim,), what, dim if bias else None)

    def matrix(self, name, n, k, bias=True):
        self.put(name, (n, k), "matrix", n if bias else None)

    def conv1d(self, name, n, k):
        self.put(name, (k, n), "conv1d", n)

    def ends(self, cfg, head="lm_head", bias=False):
        if not cfg["tie_word_embeddings"]:
            self[head + ".weight"] = ((cfg["vocab_size"], dim_of(cfg)), "matrix")
        if bias:
            self[head + ".bias"] = ((cfg["vocab_size"],), "vector")
        return self


def dim_of(cfg):
    return cfg["n_embd"] if "n_embd" in cfg else cfg["hidden_size"]


def gpt2(cfg):
    t, dim, ffn = Tensors("" if cfg.get("bare") else "transformer."), cfg["n_embd"], cfg["n_inner"] or 4 * cfg["n_embd"]
    t.put("wte", (cfg["vocab_size"], dim), "embed")
    t.put("wpe", (cfg["n_positions"], dim), "embed")
    for i in range(cfg["n_layer"]):
        h = f"h.{i}."
        t.norm(h + "ln_1", dim)
        t.norm(h + "ln_2", dim)
        t.conv1d(h + "attn.c_attn", 3 * dim, dim)
        t.conv1d(h + "attn.c_proj", dim, dim)
        t.conv1d(h + "mlp.c_fc", ffn, dim)
        t.conv1d(h + "mlp.c_proj", dim, ffn)
        if cfg.get("bare"):  # masks, as the first files of GPT-2 have them
            t[h + "attn.bias"] = ((1, 1, cfg["n_positions"], cfg["n_positions"]), "vector")
    t.norm("ln_f", dim)
    return t.ends(cfg)


COMMON = {"vocab_size": 259, "bos_token_id": 256, "eos_token_id": 257}
GPT2 = {
    **COMMON, "n_embd": 60, "n_layer": 2, "n_head": 4, "n_positions": 100, "n_inner": None, "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new", "tie_word_embeddings": True,
}

# model_type -> architectures[0], a config, its tensors
ARCHS = {
    "gpt2": ("GPT2LMHeadModel", GPT2, gpt2),
}

# name -> model_type, what differs in the config, and of the checkpoint. `bare`: names without what they begin with.
MODELS = {}


def model(name, kind, changes, **file):
    MODELS[name] = (kind, changes, file)


model("gpt2", "gpt2", {"bare": True})
model("gpt2_untied", "gpt2", {
    "tie_word_embeddings": False, "n_inner": 152, "scale_attn_by_inverse_layer_idx": True, "n_layer": 3, "n_positions": 128,
    "activation_function": "gelu", "layer_norm_epsilon": 1e-3,
}, dtype="F32")
model("gpt2_plain", "gpt2", {"scale_attn_weights": False, "n_embd": 48, "n_head": 2}, dtype="F16", shards=2)


# What may be left out to show that it matters: model_type -> what it is called, and how the config looks without it.
WITHOUT = {
    "gpt2": [
        ("the other gelu", lambda c: {"activation_function": "gelu" if c["activation_function"] != "gelu" else "gelu_new"}),
        ("the other scale", lambda c: {"scale_attn_weights": not c.get("scale_attn_weights", True)}),
        ("no scale by layer", lambda c: {"scale_attn_by_inverse_layer_idx": False}),
        ("another epsilon", lambda c: {"layer_norm_epsilon": 1e-5}),
    ],
}


def without(cfg):
    """The same config with one of its features wrong, by name."""
    for what, change in WITHOUT.get(cfg["model_type"], []):
        wrong = {**cfg, **change(cfg)}
        if any(wrong[key] != cfg.get(key) for key in wrong if key in cfg):
            yield what, wrong
