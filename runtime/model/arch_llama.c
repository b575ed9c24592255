// arch_llama.c: Llama and those in its shape: an RMS norm before each of attention and a gated MLP. Mistral (windows),
// Phi-3 (fused tensors, partial rope), Mixtral (a mixture in place of the MLP).
#include "runtime/model/family.h"

const char *const lq_names_llama[LQ_ROLES] = {LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP};
const char *const lq_names_phi3[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP,
    [LQ_R_QKV] = LQ_LAYER "self_attn.qkv_proj", [LQ_R_GATE_UP] = LQ_LAYER "mlp.gate_up_proj",
};
const char *const lq_names_mixtral[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN,
    [LQ_R_ROUTER] = LQ_LAYER "block_sparse_moe.gate",
    [LQ_R_EXPERT_GATE] = LQ_LAYER "block_sparse_moe.experts.%d.w1",
    [LQ_R_EXPERT_UP] = LQ_LAYER "block_sparse_moe.experts.%d.w3",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "block_sparse_moe.experts.%d.w2",
};

bool lq_describe_llama(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "rope_interleaved")))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_interleaved is true");
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    if (d->vocab > 2) lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_mistral(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096;
    (void)ckpt;
    d->ctx = 1 << 17;
    if (!lq_config_llama(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

bool lq_describe_mixtral(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}}, *moe = &part[1];
    int window = 0, experts = 8, used = 2;
    d->norm_eps = 1e-5f;
    d->rope[0].theta = 1e6;
    (void)ckpt;
    d->ctx = 1 << 17;
    if (!lq_config_llama(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "num_local_experts", 1, LQ_EXPERTS, &experts, err) ||
        !lq_config_int(c, "num_experts_per_tok", 1, experts, &used, err))
        return false;
    moe->kind = LQ_P_MOE;
    moe->experts = experts;
    moe->experts_used = used;
    moe->route = LQ_ROUTE_SOFTMAX;
    moe->route_renorm = true;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

bool lq_describe_phi3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    int window = 0;
    d->norm_eps = 1e-5f;
    (void)ckpt;
    d->ctx = 4096;
    if (!lq_config_llama(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    part[0].qkv = LQ_QKV_ROWS;
    part[1].gate_up = true;
    lq_ends(d, 1, 32000);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}
