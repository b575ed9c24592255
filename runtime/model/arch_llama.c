// arch_llama.c: Llama and those in its shape: an RMS norm before each of attention and a gated MLP. Mistral (windows),
// Qwen2 (biases, windows in some layers), Phi-3 (fused tensors, partial rope), Mixtral (a mixture in place of the MLP).
#include "runtime/model/family.h"

#define ATTENTION                                                                                                      \
    [LQ_R_EMBED] = "model.embed_tokens", [LQ_R_NORM_OUT] = "model.norm", [LQ_R_HEAD] = "lm_head",                      \
    [LQ_R_NORM_0] = LQ_LAYER "input_layernorm", [LQ_R_NORM_1] = LQ_LAYER "post_attention_layernorm",                   \
    [LQ_R_Q] = LQ_LAYER "self_attn.q_proj", [LQ_R_K] = LQ_LAYER "self_attn.k_proj", [LQ_R_V] = LQ_LAYER "self_attn.v_proj", \
    [LQ_R_O] = LQ_LAYER "self_attn.o_proj"
#define MLP [LQ_R_GATE] = LQ_LAYER "mlp.gate_proj", [LQ_R_UP] = LQ_LAYER "mlp.up_proj", [LQ_R_DOWN] = LQ_LAYER "mlp.down_proj"

const char *const lq_names_llama[LQ_ROLES] = {ATTENTION, MLP};
const char *const lq_names_phi3[LQ_ROLES] = {
    ATTENTION, MLP, [LQ_R_QKV] = LQ_LAYER "self_attn.qkv_proj", [LQ_R_GATE_UP] = LQ_LAYER "mlp.gate_up_proj",
};
const char *const lq_names_mixtral[LQ_ROLES] = {
    ATTENTION, [LQ_R_ROUTER] = LQ_LAYER "block_sparse_moe.gate",
        [LQ_R_EXPERT_GATE] = LQ_LAYER "block_sparse_moe.experts.%d.w1",
    [LQ_R_EXPERT_UP] = LQ_LAYER "block_sparse_moe.experts.%d.w3",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "block_sparse_moe.experts.%d.w2",
};

// What all of them say in the same words.
static bool read(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm = LQ_NORM_RMS;
    if (d->norm_eps == 0) d->norm_eps = 1e-6f;
    if (!lq_config_sizes(c, d, &part[0], &part[1], err) ||
        !lq_config_act(c, "hidden_act", &part[1].act, err) ||
        !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 1, &d->rope[0], err))
        return false;
    d->ropes = 1;
    return true;
}

// What transformers takes where a config is silent.
static void ends(lq_desc *d, int bos, int eos) {
    if (bos < d->vocab) d->bos = bos;
    if (eos < d->vocab) d->eos[0] = eos, d->eoses = 1;
}

bool lq_describe_llama(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    bool bias = false;
    (void)ckpt;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "rope_interleaved")))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_interleaved is true");
    if (!read(c, d, part, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = part[0].o_bias = bias;
    if (d->vocab > 2) ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_mistral(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096;
    (void)ckpt;
    d->ctx = 1 << 17;
    if (!read(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err)) return false;
    ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

bool lq_describe_mixtral(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}}, *moe = &part[1];
    int window = 0, experts = 8, used = 2;
    d->norm_eps = 1e-5f;
    d->rope[0].theta = 1e6;
    (void)ckpt;
    d->ctx = 1 << 17;
    if (!read(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "num_local_experts", 1, LQ_EXPERTS, &experts, err) ||
        !lq_config_int(c, "num_experts_per_tok", 1, experts, &used, err))
        return false;
    moe->kind = LQ_P_MOE;
    moe->experts = experts;
    moe->experts_used = used;
    moe->route = LQ_ROUTE_SOFTMAX;
    moe->route_renorm = true;
    ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

bool lq_describe_qwen2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32}};
    bool slides = false;
    int window = 4096, full = 28; // so many layers before the first that slides
    (void)ckpt;
    d->ctx = 1 << 15;
    if (!read(c, d, part, err) || !lq_config_bool(c, "use_sliding_window", &slides, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "max_window_layers", 0, 1 << 20, &full, err))
        return false;
    if (lq_config_null(c, "sliding_window")) slides = false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = true;
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, slides ? window : 0,
                                                               full < d->layers ? full : d->layers, err);
}

bool lq_describe_phi3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    int window = 0;
    d->norm_eps = 1e-5f;
    (void)ckpt;
    d->ctx = 4096;
    if (!read(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err)) return false;
    part[0].qkv = LQ_QKV_ROWS;
    part[1].gate_up = true;
    ends(d, 1, 32000);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}
