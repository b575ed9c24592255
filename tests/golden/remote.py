# remote.py: models that transformers does not have, as models that it has: the same numbers under other names. What
# decoder_np.py and make_golden.py compute of them is what they compute of the twin.
import numpy as np


def renamed(w, names):
    out = {}
    for name, a in w.items():
        for old, new in names:
            name = name.replace(old, new)
        out[name] = a
    return out


def llama(cfg, **changes):
    cfg = {**cfg, "architectures": ["LlamaForCausalLM"], "model_type": "llama", **changes}
    return cfg


def internlm2(cfg, w):
    """wqkv has for each head of k its query heads, then k, then v."""
    w = renamed(w, [
        ("model.tok_embeddings", "model.embed_tokens"), ("output.", "lm_head."), ("attention_norm", "input_layernorm"),
        ("ffn_norm", "post_attention_layernorm"), ("attention.wo", "self_attn.o_proj"), ("attention.", "self_attn."),
        ("feed_forward.w1", "mlp.gate_proj"), ("feed_forward.w3", "mlp.up_proj"), ("feed_forward.w2", "mlp.down_proj"),
    ])
    kv, d = cfg["num_key_value_heads"], cfg["hidden_size"] // cfg["num_attention_heads"]
    for name in [n for n in w if ".wqkv." in n]:
        a = w.pop(name)
        a = a.reshape(kv, -1, d, *a.shape[1:])
        for part, b in zip("qkv", (a[:, :-2], a[:, -2], a[:, -1])):
            w[name.replace("wqkv", part + "_proj")] = b.reshape(-1, *a.shape[3:])
    return llama(cfg, attention_bias=cfg["bias"]), w


def exaone(cfg, w):
    w = renamed(w, [
        ("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm"), ("transformer.h.", "model.layers."),
        ("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm"), ("attn.attention.out_proj", "self_attn.o_proj"),
        ("attn.attention", "self_attn"), ("c_fc_0", "gate_proj"), ("c_fc_1", "up_proj"), ("c_proj", "down_proj"),
    ])
    return llama(cfg, num_hidden_layers=cfg["num_layers"], rms_norm_eps=cfg["layer_norm_epsilon"], hidden_act=cfg["activation_function"]), w


def baichuan(cfg, w):
    w = dict(w)
    for name in [n for n in w if "W_pack" in n]:
        for part, a in zip("qkv", np.split(w.pop(name), 3)):
            w[name.replace("W_pack", part + "_proj")] = a
    return llama(cfg, num_key_value_heads=cfg["num_attention_heads"]), w


def baichuan2(cfg, w):
    cfg, w = baichuan(cfg, w)
    w["lm_head.weight"] = w["lm_head.weight"] / np.sqrt((w["lm_head.weight"] ** 2).sum(-1, keepdims=True))
    return cfg, w


def orion(cfg, w):
    return {
        **cfg, "architectures": ["StableLmForCausalLM"], "model_type": "stablelm", "layer_norm_eps": cfg["rms_norm_eps"],
        "partial_rotary_factor": 1.0, "use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False,
    }, w


def minicpm(cfg, w):
    d = cfg["hidden_size"] // cfg["num_attention_heads"]
    return {
        **cfg, "architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": cfg["scale_emb"],
        "residual_multiplier": cfg["scale_depth"] / cfg["num_hidden_layers"] ** 0.5, "attention_multiplier": d**-0.5,
        "logits_scaling": cfg["hidden_size"] / cfg["dim_model_base"],
    }, w


def deepseek(cfg, w):
    """What all rows share is half of itself twice, as its twin has a score whose sigmoid is 1/2 where its weights are 0."""
    w = renamed(w, [("mlp.shared_experts.", "mlp.shared_expert.")])
    for name in [n for n in w if "shared_expert.down_proj" in n]:
        w[name] = 2 * w[name]
        w[name.replace("shared_expert.down_proj", "shared_expert_gate")] = np.zeros((1, cfg["hidden_size"]))
    return {
        **cfg, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": cfg["n_routed_experts"],
        "shared_expert_intermediate_size": cfg["moe_intermediate_size"] * cfg["n_shared_experts"], "qkv_bias": False,
        "mlp_only_layers": list(range(cfg["first_k_dense_replace"])), "use_sliding_window": False,
    }, w


def internlm(cfg, w):
    turns = cfg["rotary"]
    rope = {"type": turns["type"], "factor": turns["scaling_factor"]}
    # Llama has biases of all four or none, as it has.
    return llama(cfg, attention_bias=cfg["bias"], rope_theta=turns["base"], rope_scaling=rope), w


def qwen(cfg, w):
    w = renamed(w, [
        ("transformer.wte", "model.embed_tokens"), ("transformer.ln_f", "model.norm"), ("transformer.h.", "model.layers."),
        ("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm"), ("attn.c_proj", "self_attn.o_proj"),
        ("attn.c_attn", "self_attn.W_pack"), ("mlp.w1", "mlp.up_proj"), ("mlp.w2", "mlp.gate_proj"), ("mlp.c_proj", "mlp.down_proj"),
    ])
    for name in [n for n in w if "W_pack" in n]:
        for part, a in zip("qkv", np.split(w.pop(name), 3)):
            w[name.replace("W_pack", part + "_proj")] = a
    return {
        **cfg, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "intermediate_size": cfg["intermediate_size"] // 2,
        "rope_theta": cfg["rotary_emb_base"], "rms_norm_eps": cfg["layer_norm_epsilon"], "use_sliding_window": False,
    }, w


def chatglm(cfg, w):
    w = renamed(w, [
        ("transformer.embedding.word_embeddings", "model.embed_tokens"), ("transformer.encoder.final_layernorm", "model.norm"),
        ("transformer.output_layer", "lm_head"), ("transformer.encoder.layers.", "model.layers."),
        ("self_attention.dense", "self_attn.o_proj"), ("self_attention.", "self_attn."), ("dense_h_to_4h", "gate_up_proj"),
        ("dense_4h_to_h", "down_proj"),
    ])
    d, kv = cfg["kv_channels"], cfg["multi_query_group_num"]
    ends = np.cumsum([cfg["num_attention_heads"] * d, kv * d])
    for name in [n for n in w if "query_key_value" in n]:
        for part, a in zip("qkv", np.split(w.pop(name), ends)):
            w[name.replace("query_key_value", part + "_proj")] = a
    return {
        **cfg, "architectures": ["GlmForCausalLM"], "model_type": "glm", "num_key_value_heads": kv, "head_dim": d,
        "num_hidden_layers": cfg["num_layers"], "intermediate_size": cfg["ffn_hidden_size"], "rope_theta": 10000.0 * cfg["rope_ratio"],
        "rms_norm_eps": cfg["layernorm_epsilon"], "max_position_embeddings": cfg["seq_length"], "pad_token_id": 258,
        "vocab_size": cfg["padded_vocab_size"], "partial_rotary_factor": 0.5, "attention_bias": cfg["add_qkv_bias"],
    }, w


TWINS = {
    "deepseek": deepseek,
    "orion": orion,
    "internlm": internlm, "internlm2": internlm2, "exaone": exaone, "baichuan": baichuan, "baichuan2": baichuan2, "minicpm": minicpm, "qwen": qwen,
    "chatglm": chatglm,
}


def twin(cfg, w):
    return TWINS[cfg["model_type"]](cfg, w) if cfg.get("model_type") in TWINS else (cfg, w)
