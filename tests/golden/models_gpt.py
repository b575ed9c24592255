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
    return next(cfg[key] for key in ("n_embd", "d_model", "hidden_size") if key in cfg)


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


def gpt_linear(cfg, prefix, qkv):
    """GPT-2's as [out][in]."""
    t, dim, ffn = Tensors("transformer."), dim_of(cfg), cfg.get("n_inner") or cfg.get("intermediate_size") or 4 * dim_of(cfg)
    t.put("wte", (cfg["vocab_size"], dim), "embed")
    t.put("wpe", (cfg["n_positions"] if "n_positions" in cfg else cfg["max_position_embeddings"], dim), "embed")
    for i in range(cfg["n_layer"] if "n_layer" in cfg else cfg["num_layers"]):
        h = f"h.{i}."
        t.norm(h + "ln_1", dim)
        t.norm(h + "ln_2", dim)
        for name, n, bias in qkv:
            t.matrix(h + prefix + name, n, dim, bias)
        t.matrix(h + "mlp.c_fc", ffn, dim)
        t.matrix(h + "mlp.c_proj", dim, ffn)
    t.norm("ln_f", dim)
    return t.ends(cfg)


def bigcode(cfg):
    dim, d = cfg["n_embd"], cfg["n_embd"] // cfg["n_head"]
    rows = dim + 2 * d if cfg["multi_query"] else 3 * dim
    return gpt_linear(cfg, "attn.", [("c_attn", rows, True), ("c_proj", dim, True)])


def neo(cfg):
    dim = cfg["hidden_size"]
    names = [(name, dim, name == "out_proj") for name in ("q_proj", "k_proj", "v_proj", "out_proj")]
    return gpt_linear(cfg, "attn.attention.", names)


def biogpt(cfg):
    t, dim, ffn = Tensors("biogpt."), cfg["hidden_size"], cfg["intermediate_size"]
    t.put("embed_tokens", (cfg["vocab_size"], dim), "embed")
    t.put("embed_positions", (cfg["max_position_embeddings"] + 2, dim), "embed")
    for i in range(cfg["num_hidden_layers"]):
        h = f"layers.{i}."
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            t.norm(h + name, dim)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            t.matrix(f"{h}self_attn.{name}", dim, dim)
        t.matrix(h + "fc1", ffn, dim)
        t.matrix(h + "fc2", dim, ffn)
    t.norm("layer_norm", dim)
    return t.ends(cfg, "output_projection")


def opt(cfg):
    t, dim, ffn, bias = Tensors("model.decoder."), cfg["hidden_size"], cfg["ffn_dim"], cfg["enable_bias"]
    width = cfg.get("word_embed_proj_dim") or dim
    weights = cfg["layer_norm_elementwise_affine"]
    t.put("embed_tokens", (cfg["vocab_size"], width), "embed")
    t.put("embed_positions", (cfg["max_position_embeddings"] + 2, dim), "embed")
    if width != dim:
        t.matrix("project_in", dim, width, False)
        t.matrix("project_out", width, dim, False)
    for i in range(cfg["num_hidden_layers"]):
        h = f"layers.{i}."
        for name in ("self_attn_layer_norm", "final_layer_norm") if weights else ():
            t.norm(h + name, dim)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            t.matrix(f"{h}self_attn.{name}", dim, dim, bias)
        t.matrix(h + "fc1", ffn, dim, bias)
        t.matrix(h + "fc2", dim, ffn, bias)
    if weights and cfg["do_layer_norm_before"]:
        t.norm("final_layer_norm", dim)
    if not cfg["tie_word_embeddings"]:
        t["lm_head.weight"] = ((cfg["vocab_size"], width), "matrix")
    return t


def gptj(cfg):
    t, dim, ffn = Tensors("transformer."), cfg["n_embd"], cfg["n_inner"] or 4 * cfg["n_embd"]
    t.put("wte", (cfg["vocab_size"], dim), "embed")
    for i in range(cfg["n_layer"]):
        h = f"h.{i}."
        t.norm(h + "ln_1", dim)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            t.matrix(f"{h}attn.{name}", dim, dim, False)
        t.matrix(h + "mlp.fc_in", ffn, dim)
        t.matrix(h + "mlp.fc_out", dim, ffn)
    t.norm("ln_f", dim)
    return t.ends(cfg, bias=True)


def codegen(cfg):
    t = gptj(cfg)
    for i in range(cfg["n_layer"]):
        for name in ("q_proj", "k_proj", "v_proj"):
            del t[f"transformer.h.{i}.attn.{name}.weight"]
        t.matrix(f"h.{i}.attn.qkv_proj", 3 * cfg["n_embd"], cfg["n_embd"], False)
    return t


def persimmon(cfg):
    names = ("dense_h_to_4h", "dense_4h_to_h")
    t = llama(cfg, qkv=True, o=True, out="dense", mlp=names, mlp_bias=True, last="final_layernorm")
    for i in range(cfg["num_hidden_layers"]):
        h = f"layers.{i}.self_attn."
        for name in ("q_proj", "k_proj", "v_proj"):
            del t[f"model.{h}{name}.weight"], t[f"model.{h}{name}.bias"]
        t.matrix(h + "query_key_value", 3 * cfg["hidden_size"], cfg["hidden_size"])
        for name in "qk" if cfg["qk_layernorm"] else "":
            t.norm(f"{h}{name}_layernorm", head_dim(cfg))
    return t


def llama(cfg, norm="norm", bias=True, qkv=False, o=False, two=True, out="o_proj", mlp=None, mlp_bias=False, last="norm"):
    """Llama's tensors; norm: what norms are, or None; biases of norms, q k v, o and the MLP; two: a norm before the MLP."""
    t, dim, ffn, d = Tensors("model."), cfg["hidden_size"], cfg["intermediate_size"], head_dim(cfg)
    heads, kv = cfg["num_attention_heads"], kv_heads(cfg)
    t.put("embed_tokens", (cfg["vocab_size"], dim), "embed")
    for i in range(cfg["num_hidden_layers"]):
        h = f"layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm")[: 1 + two if norm else 0]:
            t.norm(h + name, dim, bias, norm)
        for name, n in (("q", heads), ("k", kv), ("v", kv)):
            t.matrix(f"{h}self_attn.{name}_proj", n * d, dim, qkv)
        t.matrix(f"{h}self_attn.{out}", dim, heads * d, o)
        for name in mlp or ("gate_proj", "up_proj", "down_proj"):
            shape = (dim, ffn) if name in ("down_proj", "fc2", "c_proj", "dense_4h_to_h") else (ffn, dim)
            t.matrix(f"{h}mlp.{name}", *shape, mlp_bias)
    if norm:
        t.norm(last, dim, bias, norm)
    return t.ends(cfg)


def head_dim(cfg):
    return cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]


def kv_heads(cfg):
    return cfg.get("num_key_value_heads") or cfg["num_attention_heads"]


def phi(cfg):
    t = llama(cfg, qkv=True, o=True, two=False, out="dense", mlp=("fc1", "fc2"), mlp_bias=True, last="final_layernorm")
    for i in range(cfg["num_hidden_layers"] if cfg.get("qk_layernorm") else 0):
        for name in "qk":
            t.norm(f"layers.{i}.self_attn.{name}_layernorm", head_dim(cfg))
    t["lm_head.bias"] = ((cfg["vocab_size"],), "vector")
    return t


def stablelm(cfg):
    t = llama(cfg, qkv=cfg["use_qkv_bias"], two=not cfg["use_parallel_residual"])
    for i in range(cfg["num_hidden_layers"] if cfg["qk_layernorm"] else 0):
        for name, heads in (("q", cfg["num_attention_heads"]), ("k", kv_heads(cfg))):
            for head in range(heads):
                t.norm(f"layers.{i}.self_attn.{name}_layernorm.norms.{head}", head_dim(cfg), False)
    return t


def starcoder2(cfg):
    bias = cfg["use_bias"]
    return llama(cfg, qkv=bias, o=bias, mlp=("c_fc", "c_proj"), mlp_bias=bias)


def nemotron(cfg):
    bias = cfg["attention_bias"]
    return llama(cfg, "norm1p", qkv=bias, o=bias, mlp=("up_proj", "down_proj"), mlp_bias=cfg["mlp_bias"])


def jais2(cfg):
    bias = cfg["attention_bias"]
    return llama(cfg, "norm", qkv=bias, o=bias, mlp=("up_proj", "down_proj"), mlp_bias=cfg["mlp_bias"])


def olmo(cfg):
    return llama(cfg, None, qkv=cfg["attention_bias"], o=cfg["attention_bias"])


def grouped(cfg, kv, bias, norms):
    """Falcon's and BLOOM's."""
    t, dim, heads = Tensors("" if cfg.get("bare") else "transformer."), cfg["hidden_size"], heads_of(cfg)
    ffn, rows = cfg.get("ffn_hidden_size") or 4 * dim, (heads + 2 * kv) * (dim // heads)
    t.put("word_embeddings", (cfg["vocab_size"], dim), "embed")
    for i in range(cfg["n_layer"] if "n_layer" in cfg else cfg["num_hidden_layers"]):
        h = f"h.{i}."
        for name in norms:
            t.norm(h + name, dim)
        t.matrix(h + "self_attention.query_key_value", rows, dim, bias)
        t.matrix(h + "self_attention.dense", dim, dim, bias)
        t.matrix(h + "mlp.dense_h_to_4h", ffn, dim, bias)
        t.matrix(h + "mlp.dense_4h_to_h", dim, ffn, bias)
    t.norm("ln_f", dim)
    return t


def heads_of(cfg):
    return cfg["n_head"] if "n_head" in cfg else cfg["num_attention_heads"]


def falcon(cfg):
    new, heads = cfg["new_decoder_architecture"], heads_of(cfg)
    norms = ["input_layernorm"] if new or cfg["parallel_attn"] else ["input_layernorm", "post_attention_layernorm"]
    if new and cfg.get("num_ln_in_parallel_attn") != 1:
        norms = ["ln_attn", "ln_mlp"]
    kv = cfg["num_kv_heads"] or heads if new else 1 if cfg["multi_query"] else heads
    return grouped(cfg, kv, cfg["bias"], norms).ends(cfg)


def bloom(cfg):
    t = grouped(cfg, heads_of(cfg), True, ["input_layernorm", "post_attention_layernorm"])
    t.norm("word_embeddings_layernorm", cfg["hidden_size"])
    return t.ends(cfg)


def mpt(cfg):
    t, dim = Tensors("transformer."), cfg["d_model"]
    t.put("wte", (cfg["vocab_size"], dim), "embed")
    for i in range(cfg["n_layers"]):
        h = f"blocks.{i}."
        t.norm(h + "norm_1", dim, False)
        t.norm(h + "norm_2", dim, False)
        t.matrix(h + "attn.Wqkv", 3 * dim, dim, False)
        t.matrix(h + "attn.out_proj", dim, dim, False)
        t.matrix(h + "ffn.up_proj", 4 * dim, dim, False)
        t.matrix(h + "ffn.down_proj", dim, 4 * dim, False)
    t.norm("norm_f", dim, False)
    return t.ends(cfg)


def cohere(cfg):
    bias = cfg["attention_bias"]
    t = llama(cfg, bias=False, qkv=bias, o=bias, two=False)
    for i in range(cfg["num_hidden_layers"] if cfg.get("use_qk_norm") else 0):
        for name, heads in (("q", cfg["num_attention_heads"]), ("k", kv_heads(cfg))):
            t.put(f"layers.{i}.self_attn.{name}_norm", (heads, head_dim(cfg)), "norm")
    return t


COMMON = {"vocab_size": 259, "bos_token_id": 256, "eos_token_id": 257}
GPT2 = {
    **COMMON, "n_embd": 60, "n_layer": 2, "n_head": 4, "n_positions": 100, "n_inner": None, "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new", "tie_word_embeddings": True,
}

BIGCODE = {**GPT2, "multi_query": True, "activation_function": "gelu_pytorch_tanh"}
NEO = {
    **COMMON, "hidden_size": 60, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 100, "intermediate_size": None,
    "attention_types": [[["global", "local"], 1]], "window_size": 30, "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
}
OPT = {
    **COMMON, "hidden_size": 60, "ffn_dim": 150, "num_hidden_layers": 2, "num_attention_heads": 4, "enable_bias": True,
    "max_position_embeddings": 100, "do_layer_norm_before": True, "layer_norm_elementwise_affine": True,
    "activation_function": "relu", "tie_word_embeddings": True, "pad_token_id": 258,
}
BIOGPT = {
    **COMMON, "hidden_size": 60, "intermediate_size": 150, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "gelu",
    "max_position_embeddings": 100, "tie_word_embeddings": True, "pad_token_id": 258, "scale_embedding": True, "layer_norm_eps": 1e-12,
}
GPTJ = {**GPT2, "tie_word_embeddings": False}
LLAMA = {
    **COMMON, "hidden_size": 64, "intermediate_size": 152, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": False, "rope_theta": 10000.0,
}
PHI = {**LLAMA, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5}
STABLELM = {
    **LLAMA, "hidden_act": "silu", "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "use_qkv_bias": False,
    "qk_layernorm": False, "use_parallel_residual": False,
}
STARCODER2 = {
    **LLAMA, "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": None,
    "tie_word_embeddings": True,
}
NEMOTRON = {
    **LLAMA, "hidden_act": "relu2", "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "attention_bias": False,
    "mlp_bias": False,
}
JAIS2 = {**LLAMA, "hidden_act": "relu2", "layer_norm_eps": 1e-4, "attention_bias": True, "mlp_bias": True}
OLMO = {**LLAMA, "hidden_act": "silu", "attention_bias": False, "clip_qkv": None}
FALCON = {
    **COMMON, "hidden_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": None, "alibi": False,
    "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "bias": False, "tie_word_embeddings": True,
    "activation": "gelu", "rope_theta": 10000.0, "max_position_embeddings": 128, "layer_norm_epsilon": 1e-5,
}
BLOOM = {
    **COMMON, "hidden_size": 60, "n_layer": 2, "n_head": 6, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
}
MPT = {
    **COMMON, "d_model": 60, "n_layers": 2, "n_heads": 4, "max_seq_len": 128, "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True, "attn_config": {"alibi": True},
}
COHERE = {
    **LLAMA, "hidden_act": "silu", "layer_norm_eps": 1e-5, "logit_scale": 0.0625, "attention_bias": False,
    "use_qk_norm": False, "tie_word_embeddings": True,
}

# model_type -> architectures[0], a config, its tensors
ARCHS = {
    "gpt2": ("GPT2LMHeadModel", GPT2, gpt2),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", BIGCODE, bigcode),
    "gpt_neo": ("GPTNeoForCausalLM", NEO, neo),
    "opt": ("OPTForCausalLM", OPT, opt),
    "biogpt": ("BioGptForCausalLM", BIOGPT, biogpt),
    "gptj": ("GPTJForCausalLM", GPTJ, gptj),
    "codegen": ("CodeGenForCausalLM", GPTJ, codegen),
    "persimmon": ("PersimmonForCausalLM", {**PHI, "hidden_act": "relu2", "qk_layernorm": True}, persimmon),
    "phi": ("PhiForCausalLM", PHI, phi),
    "stablelm": ("StableLmForCausalLM", STABLELM, stablelm),
    "starcoder2": ("Starcoder2ForCausalLM", STARCODER2, starcoder2),
    "nemotron": ("NemotronForCausalLM", NEMOTRON, nemotron),
    "jais2": ("Jais2ForCausalLM", JAIS2, jais2),
    "olmo": ("OlmoForCausalLM", OLMO, olmo),
    "falcon": ("FalconForCausalLM", FALCON, falcon),
    "bloom": ("BloomForCausalLM", BLOOM, bloom),
    "mpt": ("MptForCausalLM", MPT, mpt),
    "cohere": ("CohereForCausalLM", COHERE, cohere),
    "cohere2": ("Cohere2ForCausalLM", {**COHERE, "sliding_window": 30, "sliding_window_pattern": 4}, cohere),
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

model("bigcode", "gpt_bigcode", {})
model("bigcode_heads", "gpt_bigcode", {
    "multi_query": False, "scale_attn_weights": False, "activation_function": "gelu", "n_inner": 136, "n_embd": 48,
    "tie_word_embeddings": False,
}, dtype="F32")
model("neo_gpt", "gpt_neo", {})
model("neo_gpt_types", "gpt_neo", {
    "attention_types": [[["local"], 2], [["global"], 1]], "num_layers": 3, "window_size": 41, "intermediate_size": 144,
    "hidden_size": 32, "activation_function": "relu", "tie_word_embeddings": False,
}, dtype="F32")
model("opt", "opt", {})
model("biogpt", "biogpt", {})
model("opt_over", "opt", {
    "do_layer_norm_before": False, "word_embed_proj_dim": 44, "max_position_embeddings": 128, "num_hidden_layers": 3,
}, dtype="F16")
model("opt_plain", "opt", {
    "layer_norm_elementwise_affine": False, "enable_bias": False, "activation_function": "gelu", "word_embed_proj_dim": 72,
    "hidden_size": 72, "tie_word_embeddings": False, "num_attention_heads": 2,
}, dtype="F32")
model("opt_narrow", "opt", {"word_embed_proj_dim": 36, "tie_word_embeddings": False}, dtype="F32")

model("gptj", "gptj", {"rotary_dim": 8})
model("gptj_tied", "gptj", {
    "rotary_dim": 22, "n_embd": 44, "n_head": 2, "n_inner": 120, "activation_function": "relu", "tie_word_embeddings": True,
}, dtype="F32")

DEFAULT = {"rope_theta": 20000.0, "rope_type": "default"}
model("codegen", "codegen", {"rotary_dim": 6, "n_head": 4})
model("codegen_heads", "codegen", {"rotary_dim": 4, "n_head": 8, "n_embd": 64, "tie_word_embeddings": True}, dtype="F32")
model("persimmon", "persimmon", {"hidden_size": 80, "num_key_value_heads": 4})
model("persimmon_plain", "persimmon", {
    "qk_layernorm": False, "hidden_act": "gelu", "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.25},
    "num_key_value_heads": 4, "tie_word_embeddings": True,
}, dtype="F32")
model("phi", "phi", {"num_attention_heads": 4, "hidden_size": 80, "num_key_value_heads": None})
model("phi_norms", "phi", {
    "qk_layernorm": True, "hidden_size": 60, "hidden_act": "gelu", "layer_norm_eps": 1e-3, "num_key_value_heads": 1,
    "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.4}, "max_position_embeddings": 64,
}, dtype="F32")
model("stablelm", "stablelm", {"use_qkv_bias": True, "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 4})
model("stablelm_norms", "stablelm", {
    "qk_layernorm": True, "use_parallel_residual": True, "hidden_size": 60, "num_attention_heads": 3,
    "num_key_value_heads": 3, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.3},
}, dtype="F32")
model("stablelm_groups", "stablelm", {
    "qk_layernorm": True, "hidden_size": 72, "num_attention_heads": 6, "tie_word_embeddings": True,
    "partial_rotary_factor": 0.5, "hidden_act": "gelu",
}, dtype="F16", shards=2)
model("starcoder2", "starcoder2", {"sliding_window": 31, "head_dim": 18})
model("starcoder2_plain", "starcoder2", {
    "use_bias": False, "num_key_value_heads": 1, "tie_word_embeddings": False, "hidden_act": "gelu",
    "rope_parameters": DEFAULT, "num_attention_heads": 2,
}, dtype="F32")
model("nemotron", "nemotron", {"hidden_size": 80, "head_dim": 24})
model("nemotron_bias", "nemotron", {
    "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4, "tie_word_embeddings": True, "norm_eps": 1e-3,
    "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.25},
}, dtype="F32")
model("jais2", "jais2", {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True, "rope_theta": 5000.0})
model("olmo", "olmo", {"clip_qkv": 1.5, "num_key_value_heads": None})
model("olmo_bias", "olmo", {
    "attention_bias": True, "tie_word_embeddings": True, "hidden_size": 60, "rope_parameters": DEFAULT,
    "num_attention_heads": 2, "num_key_value_heads": 1,
}, dtype="F16")

model("falcon", "falcon", {})
model("falcon_groups", "falcon", {
    "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "num_attention_heads": 6, "multi_query": False,
    "rope_parameters": DEFAULT, "ffn_hidden_size": 140, "tie_word_embeddings": False,
}, dtype="F32")
model("falcon_one_norm", "falcon", {
    "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "activation": "relu",
}, dtype="F16")
model("falcon_alibi", "falcon", {
    "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "num_attention_heads": 12, "hidden_size": 96,
}, dtype="F32")
model("bloom", "bloom", {"bare": True})
model("bloom_pow", "bloom", {
    "n_head": 2, "hidden_size": 40, "tie_word_embeddings": False, "n_layer": 3, "layer_norm_epsilon": 1e-3,
}, dtype="F32")
model("mpt", "mpt", {"attn_config": {"clip_qkv": 1.2, "softmax_scale": 0.5, "alibi": True, "alibi_bias_max": 8}})
model("mpt_heads", "mpt", {"d_model": 70, "n_heads": 7, "tie_word_embeddings": False}, dtype="F32")
model("cohere", "cohere", {})
model("cohere_norms", "cohere", {
    "use_qk_norm": True, "attention_bias": True, "logit_scale": 0.5, "hidden_size": 72, "num_attention_heads": 6,
    "num_key_value_heads": 3, "rope_parameters": DEFAULT, "layer_norm_eps": 1e-3, "tie_word_embeddings": False,
}, dtype="F32")
model("cohere2", "cohere2", {"num_hidden_layers": 4})
model("cohere2_types", "cohere2", {
    "num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "full_attention"], "logit_scale": 1.5,
    "rope_parameters": DEFAULT, "attention_bias": True,
}, dtype="F16")


# What may be left out to show that it matters: model_type -> what it is called, and how the config looks without it.
WITHOUT = {
    "gpt2": [
        ("the other gelu", lambda c: {"activation_function": "gelu" if c["activation_function"] != "gelu" else "gelu_new"}),
        ("the other scale", lambda c: {"scale_attn_weights": not c.get("scale_attn_weights", True)}),
        ("no scale by layer", lambda c: {"scale_attn_by_inverse_layer_idx": False}),
        ("another epsilon", lambda c: {"layer_norm_epsilon": 1e-5}),
    ],
    "gpt_bigcode": [
        ("the other gelu", lambda c: {"activation_function": "gelu" if c["activation_function"] != "gelu" else "gelu_new"}),
        ("the other scale", lambda c: {"scale_attn_weights": not c.get("scale_attn_weights", True)}),
    ],
    "gpt_neo": [
        ("window + 1", lambda c: {"window_size": c["window_size"] + 1}),
        ("window - 1", lambda c: {"window_size": c["window_size"] - 1}),
        ("all layers local", lambda c: {"attention_types": [[["local"], c["num_layers"]]]}),
    ],
    "opt": [("gelu", lambda c: {"activation_function": "gelu"})],
    "biogpt": [
        ("not scaled", lambda c: {"scale_embedding": False}),
        ("relu", lambda c: {"hidden_act": "relu"}),
    ],
    "gptj": [
        ("fewer rotated", lambda c: {"rotary_dim": c["rotary_dim"] - 2}),
        ("the other gelu", lambda c: {"activation_function": "gelu"}),
    ],
    "codegen": [("fewer rotated", lambda c: {"rotary_dim": c["rotary_dim"] - 2})],
    "persimmon": [
        ("less of a head rotated", lambda c: less(c)),
        ("no norm of heads", lambda c: {"qk_layernorm": False}),
    ],
    "phi": [
        ("less of a head rotated", lambda c: less(c)),
        ("the other gelu", lambda c: {"hidden_act": "gelu" if c["hidden_act"] != "gelu" else "gelu_new"}),
        ("no norm of heads", lambda c: {"qk_layernorm": False}),
    ],
    "stablelm": [
        ("less of a head rotated", lambda c: less(c)),
        ("no norm of heads", lambda c: {"qk_layernorm": False}),
    ],
    "starcoder2": [("another gelu", lambda c: {"hidden_act": "gelu" if c["hidden_act"] != "gelu" else "gelu_new"})],
    "nemotron": [
        ("less of a head rotated", lambda c: less(c)),
        ("relu", lambda c: {"hidden_act": "relu"}),
        ("another epsilon", lambda c: {"norm_eps": 1e-5}),
    ],
    "falcon": [
        ("no ALiBi", lambda c: {"alibi": False}),
        ("a finer ALiBi", lambda c: {"fine": c["alibi"]}),
        ("the other gelu", lambda c: {} if c["alibi"] else {"activation": "gelu_new"}),
    ],
    "bloom": [
        ("no ALiBi", lambda c: {"level": True}),
        ("another epsilon", lambda c: {"layer_norm_epsilon": 1e-5}),
    ],
    "mpt": [
        ("no ALiBi", lambda c: {"level": True}),
        ("nothing clipped", lambda c: {"attn_config": without_key(c["attn_config"], "clip_qkv")}),
        ("the other scale", lambda c: {"attn_config": without_key(c["attn_config"], "softmax_scale")}),
    ],
    "cohere": [
        ("no norm of heads", lambda c: {"use_qk_norm": False}),
        ("the other factor", lambda c: {"logit_scale": 0.0625}),
        ("another epsilon", lambda c: {"layer_norm_eps": 1e-5}),
    ],
    "cohere2": [("the first layer alike", lambda c: {"layer_types": ["sliding_attention"] * 3} if "layer_types" in c else {})],
    "olmo": [("nothing clipped", lambda c: {"clip_qkv": None})],
}


def without_key(cfg, key):
    return {k: v for k, v in cfg.items() if k != key}


def less(cfg):
    """Two elements less of a head."""
    p = cfg.get("rope_parameters") or cfg
    share = p["partial_rotary_factor"] - 2 / head_dim(cfg) + 1e-9
    return {"rope_parameters": {"rope_theta": p["rope_theta"], "rope_type": "default", "partial_rotary_factor": share}}


def without(cfg):
    """The same config with one of its features wrong, by name."""
    for what, change in WITHOUT.get(cfg["model_type"], []):
        wrong = {**cfg, **change(cfg)}
        if any((wrong[key] or None) != (cfg.get(key) or None) for key in wrong):
            yield what, wrong
