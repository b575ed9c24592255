# models_moe.py: mixtures of experts beside those of models.py, in its form.
from models import (
    ARCHS, DECODER, DEFAULT, MODELS, NAMES, attention, experts_apart, experts_fused, gated, model, norms,
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
