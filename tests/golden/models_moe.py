# models_moe.py: mixtures of experts beside those of models.py, in its form.
from models import (
    ARCHS, DECODER, DEFAULT, EYES, NAMES, attention, experts_apart, experts_fused, gated, heads_of,
    layer_granite_moe, model, norms, qk_norms,
)

GATED = ("gate_proj", "up_proj", "down_proj")


def shared_experts(cfg, width, block="mlp.shared_experts.", bias=False):
    """What all rows go through beside a mixture: one MLP."""
    return gated({**cfg, "intermediate_size": width}, *(block + name for name in GATED), bias=bias)


def layer_ernie_moe(cfg):
    bias, ffn, count = cfg.get("use_bias", False), cfg["moe_intermediate_size"], cfg["moe_num_experts"]
    last, layer = cfg.get("moe_layer_end_index", -1), cfg["layer"]
    rows = norms(cfg) + attention(cfg, bias, bias)
    if layer < cfg["moe_layer_start_index"] or 0 <= last < layer or (layer + 1) % cfg.get("moe_layer_interval", 1):
        return rows + gated(cfg, bias=bias)
    if cfg.get("_fused"):
        rows += experts_fused(cfg, "mlp.", "gate", count, ffn)
        rows += [("mlp.gate.moe_statics.e_score_correction_bias=", 1, count, False)]
    else:
        rows += experts_apart(cfg, "mlp.", "gate", GATED, count, ffn)
        rows += [("mlp.moe_statics.e_score_correction_bias=", 1, count, False)]
    shared = cfg["moe_num_shared_experts"]
    return rows + (shared_experts(cfg, ffn * shared, bias=bias) if shared else [])


ARCHS["ernie4_5_moe"] = ("Ernie4_5_MoeForCausalLM", DECODER, layer_ernie_moe, NAMES)
model("ernie_moe", "ernie4_5_moe", {
    "num_hidden_layers": 3, "moe_num_experts": 7, "moe_k": 3, "moe_intermediate_size": 40, "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1, "head_dim": 20, "use_bias": True, "lm_head_bias": True,
    "rope_theta": 20000.0, "torch_dtype": "bfloat16",
})
model("ernie_moe_alone", "ernie4_5_moe", {
    "architectures": ["Ernie4_5_MoEForCausalLM"], "num_hidden_layers": 4, "moe_num_experts": 5, "moe_k": 2,
    "moe_intermediate_size": 32, "moe_num_shared_experts": 0, "moe_layer_start_index": 0, "moe_layer_end_index": 2,
    "moe_layer_interval": 2, "tie_word_embeddings": True, "num_key_value_heads": 1, "_fused": True,
    "rope_parameters": DEFAULT,
}, dtype="F32")


def layer_sigmoid(cfg):
    """Experts that are drawn by sigmoids: Solar Open, GLM-4.5V, K-EXAONE, Hy3, MiniMax-M2."""
    kind, bias, ffn = cfg["model_type"], cfg.get("attention_bias", False), cfg.get("moe_intermediate_size")
    rows = norms(cfg) + attention(cfg, bias, bias and kind == "hy_v3")
    count = cfg.get("n_routed_experts") or cfg.get("num_experts") or cfg.get("num_local_experts")
    if kind == "minimax_m2":
        rows += qk_norms(*heads_of(cfg))
    elif kind in ("exaone_moe", "hy_v3"):
        d = cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
        rows += qk_norms(d, d)
    types = cfg.get("mlp_layer_types") or ["dense"] * cfg.get("first_k_dense_replace", kind == "hy_v3") + ["sparse"] * 9
    if types[cfg["layer"]] == "dense":
        return rows + gated(cfg, bias=cfg.get("mlp_bias", False))
    router, draw, shared = "gate", "mlp.gate.e_score_correction_bias=", "mlp.shared_experts."
    if kind == "hy_v3" and not cfg.get("_fused"):
        router, draw, shared = "router.gate", "mlp.expert_bias=", "mlp.shared_mlp."
    elif kind == "exaone_moe" and not cfg.get("_fused") or kind in ("hy_v3", "minimax_m2"):
        draw = "mlp.e_score_correction_bias="
    block, names = "mlp.", GATED
    if kind == "minimax_m2":
        ffn = cfg["intermediate_size"]
        if not cfg.get("_fused"):
            block, names, draw = "block_sparse_moe.", ("w1", "w3", "w2"), "block_sparse_moe.e_score_correction_bias="
    if cfg.get("_fused"):
        rows += experts_fused(cfg, block, router, count, ffn)
    else:
        rows += experts_apart(cfg, block, router, names, count, ffn)
    rows.append((draw, count, 0, False))
    width = ffn * (cfg.get("n_shared_experts") or cfg.get("num_shared_experts") or 0)
    return rows + (shared_experts(cfg, width, shared, cfg.get("mlp_bias", False)) if width else [])


for _kind, _name in (
    ("solar_open", "SolarOpenForCausalLM"), ("glm4v_moe_text", "Glm4vMoeForConditionalGeneration"),
    ("exaone_moe", "ExaoneMoEForCausalLM"), ("hy_v3", "HYV3ForCausalLM"), ("minimax_m2", "MiniMaxM2ForCausalLM"),
):
    ARCHS[_kind] = (_name, DECODER, layer_sigmoid, NAMES)
model("solar", "solar_open", {
    "head_dim": 20, "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "n_shared_experts": 2,
    "n_group": 3, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "attention_bias": True,
    "rope_theta": 20000.0, "first_k_dense_replace": 0, "torch_dtype": "bfloat16",
})
model("glm4v_moe", "glm4v_moe_text", {
    "head_dim": 24, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.0,
    "attention_bias": True, "partial_rotary_factor": 0.5, "rope_theta": 20000.0, "num_key_value_heads": 1,
    "rope_scaling": {"rope_type": "default", "mrope_section": [2, 2, 2]},
}, whole={
    "architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe", "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "image_token_id": 3, "video_token_id": 4, "vision_config": {
        **EYES, "depth": 1, "num_heads": 2, "out_hidden_size": 64,
    },
}, prefix=("model.language_model.", ""), beside={"model.visual.post_layernorm.weight": (16,)})
model("k_exaone", "exaone_moe", {
    "num_hidden_layers": 5, "sliding_window": 26, "sliding_window_pattern": 4, "head_dim": 20, "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 1, "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5, "norm_topk_prob": True, "n_group": 1, "topk_group": 1, "rope_theta": 1e6,
    "torch_dtype": "bfloat16",
})
model("k_exaone_types", "exaone_moe", {
    "num_hidden_layers": 3, "sliding_window": 33, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "mlp_layer_types": ["sparse", "dense", "sparse"], "num_experts": 8, "num_experts_per_tok": 3, "_fused": True,
    "moe_intermediate_size": 24, "num_shared_experts": 2, "n_group": 4, "topk_group": 2, "norm_topk_prob": False,
    "routed_scaling_factor": 1.0, "tie_word_embeddings": True, "rope_parameters": DEFAULT,
}, dtype="F32")
model("hy3", "hy_v3", {
    "head_dim": 20, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 40, "num_shared_experts": 2,
    "router_scaling_factor": 2.0, "attention_bias": True, "mlp_bias": True, "rope_theta": 20000.0, "num_hidden_layers": 3,
    "torch_dtype": "bfloat16",
})
model("hy3_fused", "hy_v3", {
    "head_dim": 16, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 1,
    "router_scaling_factor": 1.0, "mlp_layer_types": ["sparse", "dense"], "num_key_value_heads": 1, "_fused": True,
    "tie_word_embeddings": True, "rope_parameters": DEFAULT,
}, dtype="F32")
model("minimax", "minimax_m2", {
    "head_dim": 20, "rotary_dim": 12, "num_local_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 40,
    "rope_theta": 5e6, "torch_dtype": "bfloat16",
})
model("minimax_fused", "minimax_m2", {
    "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 32, "_fused": True,
    "num_key_value_heads": 1, "rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5},
}, dtype="F32")

ARCHS["granitemoehybrid"] = ("GraniteMoeHybridForCausalLM", DECODER, layer_granite_moe, NAMES)
model("granite_hybrid", "granitemoehybrid", {
    "layer_types": ["attention"] * 2, "num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 72,
    "position_embedding_type": "rope", "embedding_multiplier": 2.0, "attention_multiplier": 0.2,
    "residual_multiplier": 0.5, "logits_scaling": 2.0, "rope_theta": 20000.0, "torch_dtype": "bfloat16",
    "mamba_n_heads": 8, "tie_word_embeddings": True,
})
model("granite_hybrid_moe", "granitemoehybrid", {
    "layer_types": ["attention"] * 2, "num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 40,
    "intermediate_size": 32, "position_embedding_type": "nope", "attention_multiplier": 0.3, "attention_bias": True,
    "num_key_value_heads": 1, "mamba_n_heads": 8,
}, dtype="F32")


def layer_llama4(cfg):
    bias, dim, ffn, block = cfg.get("attention_bias", False), cfg["hidden_size"], cfg["intermediate_size"], "feed_forward."
    rows, every = norms(cfg) + attention(cfg, bias, bias), cfg.get("interleave_moe_layer_step", 1)
    layers = cfg.get("moe_layers", range(every - 1, cfg["num_hidden_layers"], every))
    if cfg["layer"] not in layers:
        return rows + gated({**cfg, "intermediate_size": cfg["intermediate_size_mlp"]}, *(block + n for n in GATED))
    count = cfg["num_local_experts"]
    moe = [
        (block + "router", count, dim, False), (block + "experts.gate_up_proj=", (count, dim), 2 * ffn, False),
        (block + "experts.down_proj=", (count, ffn), dim, False),
    ]
    return rows + moe + shared_experts(cfg, ffn, block + "shared_expert.")


ARCHS["llama4_text"] = ("Llama4ForCausalLM", DECODER, layer_llama4, NAMES)
SCOUT = {
    "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
    "original_max_position_embeddings": 48,
}
# Chunks that no block of the cache divides, a floor that positions pass, a scaling whose ramp has no length.
model("llama4", "llama4_text", {
    "head_dim": 20, "num_hidden_layers": 5, "intermediate_size": 40, "intermediate_size_mlp": 72, "_across": True,
    "num_local_experts": 6, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 27,
    "floor_scale": 13, "attn_scale": 0.4, "attn_temperature_tuning": True, "use_qk_norm": True, "no_rope_layers": [],
    "no_rope_layer_interval": 3, "rope_theta": 500000.0, "rope_scaling": SCOUT, "torch_dtype": "bfloat16",
})
model("llama4_sight", "llama4_text", {
    "head_dim": 16, "num_hidden_layers": 3, "intermediate_size": 32, "intermediate_size_mlp": 48, "_across": True,
    "num_local_experts": 5, "num_experts_per_tok": 2, "moe_layers": [0, 2], "attention_chunk_size": 40, "floor_scale": 8192,
    "attn_temperature_tuning": False, "use_qk_norm": False, "no_rope_layers": [1, 0, 1], "attention_bias": True,
    "layer_types": ["chunked_attention", "full_attention", "full_attention"], "num_key_value_heads": 1,
    "rope_theta": 20000.0,
}, whole={
    "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "tie_word_embeddings": False,
    "vision_config": {
        **EYES, "model_type": "llama4_vision_model", "vision_output_dim": 16, "projector_input_dim": 16,
        "projector_output_dim": 16, "patch_size": 14, "image_size": 28,
    },
}, prefix=("language_model.model.", "language_model."), beside={"multi_modal_projector.linear_1.weight": (64, 16)},
   dtype="F32")


def layer_afmoe(cfg):
    dim, d, bias, ffn = cfg["hidden_size"], cfg["head_dim"], cfg.get("attention_bias", False), cfg["moe_intermediate_size"]
    around = ("pre_mlp_layernorm", "post_mlp_layernorm")
    rows = norms(cfg) + [(name, dim, 0, False) for name in around] + attention(cfg, bias, bias) + qk_norms(d, d)
    rows.append(("self_attn.gate_proj", heads_of(cfg)[0], dim, False))
    if cfg["layer"] < cfg["num_dense_layers"]:
        return rows + gated(cfg)
    count = cfg["num_experts"]
    experts, args = (experts_fused, ()) if cfg.get("_fused") else (experts_apart, (GATED,))
    rows += experts(cfg, "mlp.", "router.gate", *args, count, ffn) + [("mlp.expert_bias=", count, 0, False)]
    return rows + shared_experts(cfg, ffn * cfg["num_shared_experts"])


ARCHS["afmoe"] = ("AfmoeForCausalLM", DECODER, layer_afmoe, NAMES)
model("afmoe", "afmoe", {
    "head_dim": 20, "num_hidden_layers": 5, "num_dense_layers": 1, "num_experts": 7, "num_experts_per_tok": 3,
    "moe_intermediate_size": 40, "num_shared_experts": 2, "route_scale": 2.0, "global_attn_every_n_layers": 3,
    "sliding_window": 23, "mup_enabled": True, "rope_theta": 20000.0, "torch_dtype": "bfloat16",
})
model("afmoe_types", "afmoe", {
    "head_dim": 16, "num_dense_layers": 0, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "num_shared_experts": 1, "sliding_window": 37, "layer_types": ["full_attention", "sliding_attention"],
    "attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 1, "_fused": True,
    "rope_parameters": DEFAULT,
}, dtype="F32")


def layer_cohere2_moe(cfg):
    bias, ffn, count = cfg.get("attention_bias", False), cfg["intermediate_size"], cfg["num_experts"]
    rows, types = norms(cfg)[:1] + attention(cfg, bias, bias), cfg.get("mlp_layer_types")
    if types[cfg["layer"]] == "dense" if types else cfg["layer"] < cfg.get("first_k_dense_replace", 0):
        return rows + gated({**cfg, "intermediate_size": cfg.get("prefix_dense_intermediate_size", ffn)})
    experts, args = (experts_fused, ()) if cfg.get("_fused") else (experts_apart, (GATED,))
    rows += experts(cfg, "mlp.", "gate", *args, count, ffn)
    shared = cfg["num_shared_experts"]
    return rows + (shared_experts(cfg, ffn * shared) if shared else [])


ARCHS["cohere2_moe"] = ("Cohere2MoeForCausalLM", DECODER, layer_cohere2_moe, NAMES)
model("cohere2_mix", "cohere2_moe", {
    "head_dim": 20, "num_hidden_layers": 5, "intermediate_size": 40, "prefix_dense_intermediate_size": 72, "num_experts": 7,
    "num_experts_per_tok": 3, "num_shared_experts": 2, "shared_expert_combination_strategy": "average",
    "expert_selection_fn": "softmax", "first_k_dense_replace": 2, "prefix_dense_sliding_window_pattern": 1,
    "sliding_window": 23, "sliding_window_pattern": 2, "logit_scale": 0.5, "rms_norm_eps": None, "layer_norm_eps": 1e-4,
    "rope_theta": 20000.0, "attention_bias": True, "torch_dtype": "bfloat16",
})
model("cohere2_mix_rms", "cohere2_moe", {
    "head_dim": 16, "num_hidden_layers": 4, "intermediate_size": 32, "num_experts": 5, "num_experts_per_tok": 2,
    "num_shared_experts": 1, "shared_expert_combination_strategy": "sum", "expert_selection_fn": "sigmoid",
    "norm_topk_prob": False, "layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 37,
    "mlp_layer_types": ["dense", "sparse", "dense", "sparse"], "prefix_dense_sliding_window_pattern": 2,
    "logit_scale": 0.25, "rms_norm_eps": 1e-3, "tie_word_embeddings": True, "num_key_value_heads": 1, "_fused": True,
    "rope_parameters": DEFAULT,
}, dtype="F32")


def layer_mimo(cfg):
    dim, d, wide, ffn, layer = cfg["hidden_size"], cfg["head_dim"], cfg["v_head_dim"], cfg["moe_intermediate_size"], cfg["layer"]
    types, bias, heads = cfg.get("layer_types"), cfg.get("attention_bias", False), cfg["num_attention_heads"]
    slides = types[layer] == "sliding_attention" if types else layer > 0 and (layer + 1) % 6 > 0
    kv = cfg["num_key_value_heads"] * (2 if slides else 1)
    attn = [("q_proj", heads * d, dim, bias), ("k_proj", kv * d, dim, bias), ("v_proj", kv * wide, dim, bias)]
    rows = norms(cfg) + [("self_attn." + name, *shape) for name, *shape in attn]
    rows.append(("self_attn.o_proj", dim, heads * wide, False))
    if slides:
        rows.append(("self_attn.sinks=" if cfg.get("_fused") else "self_attn.attention_sink_bias=", heads, 0, False))
    types = cfg.get("mlp_layer_types") or ["dense"] + ["sparse"] * 9
    if types[layer] == "dense":
        return rows + gated(cfg)
    experts, args = (experts_fused, ()) if cfg.get("_fused") else (experts_apart, (GATED,))
    rows += experts(cfg, "mlp.", "gate", *args, cfg["n_routed_experts"], ffn)
    return rows + [("mlp.gate.e_score_correction_bias=", cfg["n_routed_experts"], 0, False)]


ARCHS["mimo_v2_flash"] = ("MiMoV2FlashForCausalLM", DECODER, layer_mimo, NAMES)
model("mimo", "mimo_v2_flash", {
    "head_dim": 24, "v_head_dim": 20, "num_key_value_heads": 1, "num_hidden_layers": 3, "moe_intermediate_size": 40,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 2, "topk_group": 1, "norm_topk_prob": True,
    "routed_scaling_factor": None, "sliding_window_size": 22, "attention_bias": True, "attention_value_scale": 0.6,
    "torch_dtype": "bfloat16",
})
model("mimo_types", "mimo_v2_flash", {
    "head_dim": 16, "v_head_dim": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "moe_intermediate_size": 32,
    "n_routed_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": False, "routed_scaling_factor": 1.5,
    "sliding_window": 37, "layer_types": ["sliding_attention", "full_attention"], "mlp_layer_types": ["sparse", "dense"],
    "attention_value_scale": None, "tie_word_embeddings": True, "_fused": True, "rope_parameters": {
        "full_attention": {**DEFAULT, "partial_rotary_factor": 0.75},
        "sliding_attention": {**DEFAULT, "rope_theta": 500.0, "partial_rotary_factor": 0.75},
    },
}, dtype="F32")


# ERNIE 4.5 with eyes: experts of images stand behind those of text, or (_fused) beside them.
def layer_ernie_vl(cfg):
    dim, count, ffn = cfg["hidden_size"], cfg["moe_num_experts"], cfg["moe_intermediate_size"][0]
    bias = cfg.get("use_bias", False)
    rows = norms(cfg) + attention(cfg, bias, bias)
    if (cfg.get("mlp_layer_types") or ["dense"] + ["sparse"] * 9)[cfg["layer"]] == "dense":
        return rows + gated(cfg, bias=bias)
    rows += shared_experts(cfg, ffn * cfg["moe_num_shared_experts"], bias=bias)
    if cfg.get("_fused"):
        rows += experts_fused(cfg, "mlp.text_moe.", "gate", count, ffn)
        return rows + [("mlp.text_moe.gate.moe_statics.e_score_correction_bias=", 1, count, False)]
    rows += experts_apart(cfg, "mlp.", "gate", GATED, count, ffn)[1:] + [("mlp.gate", dim, count, False)]
    return rows + [("mlp.moe_statics.e_score_correction_bias=", 2, count, False)]


def seen(layer, count, ffn, dim):
    """What images go through in a layer of the first checkpoints."""
    p = f"model.layers.{layer}.mlp."
    out = {p + "gate.weight_1": (dim, count), "model.resampler_model.mlp.bias": (dim,), "vision_model.ln.bias": (16,)}
    for e in range(count, 2 * count):
        out |= {f"{p}experts.{e}.{n}.weight": (dim, ffn) if "down" in n else (ffn, dim) for n in GATED}
    return out


ARCHS["ernie4_5_vl_moe_text"] = ("Ernie4_5_VLMoeForConditionalGeneration", DECODER, layer_ernie_vl, NAMES)
ERNIE_VL = {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_vl_moe",
    "vision_config": {**EYES, "depth": 1, "num_heads": 2},
}
MROPE = {"rope_type": "default", "mrope_section": [3, 3, 4]}
model("ernie_vl", "ernie4_5_vl_moe_text", {
    "head_dim": 20, "moe_num_experts": 5, "moe_k": 2, "moe_intermediate_size": [40, 24], "moe_num_shared_experts": 2,
    "rope_parameters": {**MROPE, "rope_theta": 20000.0}, "use_bias": True,
}, whole={**ERNIE_VL, "tie_word_embeddings": False}, beside=seen(1, 5, 24, 64), dtype="F32")
model("ernie_vl_v5", "ernie4_5_vl_moe_text", {
    "head_dim": 20, "moe_num_experts": 6, "moe_k": 3, "moe_intermediate_size": [32, 16], "moe_num_shared_experts": 1,
    "rope_parameters": {**MROPE, "rope_theta": 500.0}, "mlp_layer_types": ["sparse", "dense"], "num_key_value_heads": 1,
    "tie_word_embeddings": True, "_fused": True,
}, whole={**ERNIE_VL, "tie_word_embeddings": True}, prefix=("model.language_model.", ""),
   beside={"model.language_model.layers.0.mlp.vision_moe.gate.weight": (6, 64)}, dtype="F32")
