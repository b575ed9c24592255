// arch_layernorm.c: decoders in Llama's shape with LayerNorms: Phi-1 and 2 (an MLP without a gate beside the
// attention, biases everywhere), StableLM (partial rope, a norm of each head, an MLP beside where the config says so),
// StarCoder2 (biases, windows, no gate), Nemotron (norms of 1 + weight, a squared relu), OLMo 1 (norms without
// weights, q, k and v held within bounds), Persimmon (one matrix for q, k and v by heads, norms of both, a squared
// relu).
#include "runtime/model/family.h"

const char *const lq_names_phi[LQ_ROLES] = {
    [LQ_R_EMBED] = "model.embed_tokens", [LQ_R_NORM_OUT] = "model.final_layernorm", [LQ_R_HEAD] = "lm_head",
    [LQ_R_NORM_0] = LQ_LAYER "input_layernorm", [LQ_R_Q] = LQ_LAYER "self_attn.q_proj",
    [LQ_R_K] = LQ_LAYER "self_attn.k_proj", [LQ_R_V] = LQ_LAYER "self_attn.v_proj",
    [LQ_R_O] = LQ_LAYER "self_attn.dense", [LQ_R_Q_NORM] = LQ_LAYER "self_attn.q_layernorm",
    [LQ_R_K_NORM] = LQ_LAYER "self_attn.k_layernorm", [LQ_R_UP] = LQ_LAYER "mlp.fc1", [LQ_R_DOWN] = LQ_LAYER "mlp.fc2",
};
const char *const lq_names_stablelm[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_MLP, [LQ_R_Q] = LQ_LAYER "self_attn.q_proj",
    [LQ_R_K] = LQ_LAYER "self_attn.k_proj", [LQ_R_V] = LQ_LAYER "self_attn.v_proj",
    [LQ_R_O] = LQ_LAYER "self_attn.o_proj", [LQ_R_Q_NORM] = LQ_LAYER "self_attn.q_layernorm.norms.%d",
    [LQ_R_K_NORM] = LQ_LAYER "self_attn.k_layernorm.norms.%d",
};
const char *const lq_names_persimmon[LQ_ROLES] = {
    LQ_NAMES_NORMS, [LQ_R_EMBED] = "model.embed_tokens", [LQ_R_NORM_OUT] = "model.final_layernorm",
    [LQ_R_HEAD] = "lm_head", [LQ_R_QKV] = LQ_LAYER "self_attn.query_key_value", [LQ_R_Q] = LQ_LAYER "self_attn.query",
    [LQ_R_K] = LQ_LAYER "self_attn.key", [LQ_R_V] = LQ_LAYER "self_attn.value", [LQ_R_O] = LQ_LAYER "self_attn.dense",
    [LQ_R_Q_NORM] = LQ_LAYER "self_attn.q_layernorm", [LQ_R_K_NORM] = LQ_LAYER "self_attn.k_layernorm",
    [LQ_R_UP] = LQ_LAYER "mlp.dense_h_to_4h", [LQ_R_DOWN] = LQ_LAYER "mlp.dense_4h_to_h",
};
const char *const lq_names_starcoder2[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, [LQ_R_UP] = LQ_LAYER "mlp.c_fc", [LQ_R_DOWN] = LQ_LAYER "mlp.c_proj",
};

// What all of them say in the same words, but for the key of epsilon (NULL: none). act, and `partial` of a head that is
// rotated: where the config is silent.
static bool read(const cJSON *c, lq_desc *d, lq_part part[2], const char *eps, lq_unary act, double partial,
                 lq_err *err) {
    d->norm = LQ_NORM_LAYER;
    d->norm_eps = 1e-5f;
    if (!lq_config_sizes(c, d, &part[0], &part[1], err) || (eps && !lq_config_eps(c, eps, &d->norm_eps, err)))
        return false;
    part[1].act = act;
    d->ropes = 1;
    return lq_config_act(c, "hidden_act", &part[1].act, err) &&
           lq_rope_read(c, part[0].head_dim, d->ctx, partial, &d->rope[0], err);
}

// All layers alike, with one window; transformers does not read layer_types here.
static bool fill(lq_desc *d, const lq_part part[2], int window, lq_err *err) {
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, window, 0, err);
}

bool lq_describe_phi(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0], *mlp = &part[1];
    bool qk_norm = false;
    (void)ckpt;
    d->norm_bias = true;
    if (!read(c, d, part, "layer_norm_eps", LQ_GELU_TANH, 0.5, err) ||
        !lq_config_bool(c, "qk_layernorm", &qk_norm, err))
        return false;
    d->head_bias = true;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = attn->qk_norm_bias = true;
    attn->qk_norm = qk_norm ? LQ_QK_HEAD : LQ_QK_PLAIN;
    mlp->beside = mlp->mlp_bias = true;
    mlp->gated = false;
    lq_ends(d, 1, 2);
    return fill(d, part, 0, err);
}

bool lq_describe_stablelm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32}}, *attn = &part[0];
    bool bias = false, qk_norm = false;
    (void)ckpt;
    d->ctx = 4096;
    d->norm_bias = true;
    if (!read(c, d, part, "layer_norm_eps", LQ_SILU, 0.25, err) || !lq_config_bool(c, "use_qkv_bias", &bias, err) ||
        !lq_config_bool(c, "qk_layernorm", &qk_norm, err) ||
        !lq_config_bool(c, "use_parallel_residual", &part[1].beside, err) || !lq_heads_share(d, attn, err))
        return false;
    attn->q_bias = attn->k_bias = attn->v_bias = bias;
    attn->qk_norm = qk_norm ? LQ_QK_HEADS : LQ_QK_PLAIN;
    lq_ends(d, 0, 0);
    return fill(d, part, 0, err);
}

bool lq_describe_starcoder2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 2}}, *attn = &part[0], *mlp = &part[1];
    int window = 0;
    bool bias = true;
    (void)ckpt;
    d->ctx = 4096;
    d->tied = d->norm_bias = true;
    if (!read(c, d, part, "norm_epsilon", LQ_GELU_TANH, 1, err) || !lq_config_bool(c, "use_bias", &bias, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = mlp->mlp_bias = bias;
    mlp->gated = false;
    lq_ends(d, 50256, 50256);
    return fill(d, part, window, err);
}

bool lq_describe_nemotron(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *mlp = &part[1];
    (void)ckpt;
    d->ctx = 4096;
    d->norm_bias = d->norm_plus_one = true;
    if (!read(c, d, part, "norm_eps", LQ_RELU2, 0.5, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &mlp->mlp_bias, err))
        return false;
    mlp->gated = false;
    lq_ends(d, 2, 3);
    return fill(d, part, 0, err);
}

bool lq_describe_orion(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    d->ctx = 4096;
    d->norm_bias = true;
    if (!read(c, d, part, "rms_norm_eps", LQ_SILU, 1, err) || !lq_config_bias(c, "attention_bias", &part[0], err))
        return false;
    lq_ends(d, 1, 2);
    return fill(d, part, 0, err);
}

bool lq_describe_jais2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    d->ctx = 8192;
    d->norm_bias = true;
    if (!read(c, d, part, "layer_norm_eps", LQ_RELU2, 1, err)) return false;
    part[0].q_bias = part[1].mlp_bias = true;
    if (!lq_config_bias(c, "attention_bias", &part[0], err) || !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    part[1].gated = false;
    lq_ends(d, 0, 150024);
    return fill(d, part, 0, err);
}

bool lq_describe_persimmon(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0];
    bool qk_norm = true;
    (void)ckpt;
    d->ctx = 16384;
    d->norm_bias = true;
    if (!read(c, d, part, "layer_norm_eps", LQ_RELU2, 0.5, err) || !lq_heads_share(d, attn, err) ||
        !lq_config_bool(c, "qk_layernorm", &qk_norm, err))
        return false;
    attn->kv_heads = attn->heads;
    attn->qkv = LQ_QKV_GROUPS;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = attn->qk_norm_bias = part[1].mlp_bias = true;
    attn->qk_norm = qk_norm ? LQ_QK_HEAD : LQ_QK_PLAIN;
    part[1].gated = false;
    lq_ends(d, 1, 2);
    return fill(d, part, 0, err);
}

bool lq_describe_olmo(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0];
    (void)ckpt;
    d->norm_bare = true;
    if (!read(c, d, part, NULL, LQ_SILU, 1, err) || !lq_config_bias(c, "attention_bias", attn, err) ||
        !lq_config_float(c, "clip_qkv", &attn->clip, err))
        return false;
    lq_ends(d, -1, 50279);
    return fill(d, part, 0, err);
}
