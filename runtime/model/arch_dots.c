// arch_dots.c: mixtures whose experts are drawn by sigmoids, with a number for each expert that counts for the drawing
// alone, beside experts that all rows share, behind some layers with an MLP: dots.llm1 (norms of each head's q and k,
// windows), GLM-4.5 and 4.6 (half of a head turns; norms of q and k where the config says so).
#include "runtime/model/family.h"

#define SHARED LQ_LAYER "mlp.shared_experts."
const char *const lq_names_dots[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS,
    [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.gate.e_score_correction_bias=", [LQ_R_SHARED_GATE] = SHARED "gate_proj",
    [LQ_R_SHARED_UP] = SHARED "up_proj", [LQ_R_SHARED_DOWN] = SHARED "down_proj",
};
// Layers that guess further tokens, which transformers leaves out too.
const char *const lq_ignores_glm4_moe[] = {"model.layers.46.*", "model.layers.92.*", NULL};

// Layers of attention, experts and what is shared; the first `dense` have an MLP. `shared`: how many experts are one.
static bool mixtures(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[3], int dense, int shared,
                     lq_err *err) {
    lq_part *moe = &part[1];
    lq_part mlp = *moe;
    int experts = moe->experts, groups = 1, of = 1;
    float scale = 1;
    mlp.experts = mlp.experts_used = 0;
    mlp.route_renorm = false;
    moe->ffn = 1408;
    if (!(experts ? lq_config_int : lq_config_need)(c, "n_routed_experts", 1, LQ_EXPERTS, &experts, err) ||
        !lq_config_int(c, "moe_intermediate_size", 1, 1 << 20, &moe->ffn, err) ||
        !lq_config_int(c, "n_shared_experts", 1, 64, &shared, err) ||
        !lq_config_int(c, "n_group", 1, experts, &groups, err) ||
        !lq_config_int(c, "topk_group", 1, groups, &of, err) ||
        !lq_config_int(c, "first_k_dense_replace", 0, 1 << 20, &dense, err) ||
        !lq_config_bool(c, "norm_topk_prob", &moe->route_renorm, err) ||
        !lq_config_float(c, "routed_scaling_factor", &scale, err))
        return false;
    moe->experts = experts;
    if (moe->experts_used > experts) moe->experts_used = experts;
    if (!lq_config_experts(NULL, ckpt, lq_sources_experts, d, moe, err) ||
        !lq_config_int(c, "num_experts_per_tok", 1, experts, &moe->experts_used, err))
        return false;
    if (experts % groups || experts / groups < 2 || moe->experts_used > experts / groups * of || scale == 0)
        return lq_fail(err, LQ_E_FORMAT,
                       "config.json: n_routed_experts %d, n_group %d, topk_group %d, num_experts_per_tok %d and "
                       "routed_scaling_factor %g do not go together", experts, groups, of, moe->experts_used,
                       (double)scale);
    moe->route = LQ_ROUTE_SIGMOID;
    moe->route_bias = true;
    moe->route_scale = scale;
    if (groups > 1) moe->route_groups = groups, moe->route_top_groups = of;
    part[2] = mlp;
    part[2].ffn = moe->ffn * shared;
    part[2].beside = part[2].shared = true;
    if (!lq_layers_fill(d, part, 3, err)) return false;
    for (int i = 0; i < d->layers && i < dense; i++) d->layer[i].parts = 2, d->layer[i].part[1] = mlp;
    return true;
}

bool lq_describe_dots1(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[3] = {{.kv_heads = 32}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096, full = 62;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "max_window_layers", 0, 1 << 20, &full, err))
        return false;
    part[0].qk_norm = LQ_QK_HEAD;
    if (full > d->layers) full = d->layers;
    return lq_config_need(c, "num_experts_per_tok", 1, LQ_EXPERTS, &part[1].experts_used, err) &&
           mixtures(ckpt, c, d, part, 0, 1, err) && lq_layers_window(c, d, window, full, err);
}

bool lq_describe_glm4_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[3] = {{.kv_heads = 8}};
    bool bias = false, norms = false;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    if (!lq_config_rms(c, d, part, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_config_bool(c, "use_qk_norm", &norms, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0.5, &d->rope[0], err))
        return false;
    d->ropes = 1;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = bias;
    if (norms) part[0].qk_norm = LQ_QK_HEAD;
    part[1].experts = 128;
    part[1].experts_used = 8;
    part[1].route_renorm = true;
    return mixtures(ckpt, c, d, part, 1, 1, err) && lq_layers_window(c, d, 0, 0, err);
}
