// arch_olmo.c: decoders that norm what attention and MLP say, not what they read. OLMo 2 (norms of all of q and of k),
// OLMo 3 (windows in three of four layers, whose positions are not scaled), EXAONE 4 (norms of each head's q and k; no
// positions in the layers without a window). With experts in place of the MLP: OLMoE (Llama's norms, and of all of q
// and k), FlexOlmo (OLMo 2's).
#include "runtime/model/family.h"

const char *const lq_names_olmo2[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_MLP,
    [LQ_R_NORM_POST_0] = LQ_LAYER "post_attention_layernorm",
    [LQ_R_NORM_POST_1] = LQ_LAYER "post_feedforward_layernorm",
};

const char *const lq_names_olmoe[LQ_ROLES] = {LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_EXPERTS};
const char *const lq_names_flex_olmo[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_EXPERTS,
    [LQ_R_NORM_POST_0] = LQ_LAYER "post_attention_layernorm",
    [LQ_R_NORM_POST_1] = LQ_LAYER "post_feedforward_layernorm",
};

static bool read(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm_eps = 1e-5f;
    if (!lq_config_rms(c, d, part, err)) return false;
    part[0].place = part[1].place = LQ_POST;
    return true;
}

bool lq_describe_olmo2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    if (!read(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err))
        return false;
    d->ropes = 1;
    part[0].qk_norm = LQ_QK_WHOLE;
    lq_ends(d, -1, 50279);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_olmo3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096;
    (void)ckpt;
    if (!read(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    d->rope[0].theta = d->rope[1].theta = 500000; // rope_theta is of layers without a window alone
    if (!lq_rope_read_kinds(c, part[0].head_dim, d->ctx, &d->rope[0], &d->rope[1], err)) return false;
    d->ropes = 2;
    part[0].qk_norm = LQ_QK_WHOLE;
    lq_ends(d, -1, 50279);
    return lq_layers_fill(d, part, 2, err) && lq_layers_ropes(c, d, window, 4, err);
}

bool lq_layers_exaone(const cJSON *c, lq_desc *d, lq_err *err) {
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096, every = 4;
    if (!lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err)) return false;
    // The first configs spell the pattern, "LLLG", beside the list that counts.
    if (!cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(c, "layer_types")) && window &&
        !lq_config_int(c, "sliding_window_pattern", 1, 1 << 12, &every, err))
        return false;
    if (!lq_layers_pattern(c, d, window, every, err)) return false;
    for (int i = 0; window && i < d->layers; i++)
        if (!d->layer[i].part[0].window) d->layer[i].part[0].rope = -1;
    return true;
}

bool lq_describe_exaone4(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32}};
    (void)ckpt;
    if (!read(c, d, part, err) || !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err)) return false;
    d->ropes = 1;
    part[0].qk_norm = LQ_QK_HEAD;
    lq_ends(d, 0, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_exaone(c, d, err);
}

static bool mixture(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[2], int experts, int used,
                    lq_err *err) {
    d->norm_eps = d->norm_eps != 0 ? d->norm_eps : 1e-5f;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err)) return false;
    part[1].experts = experts;
    part[1].experts_used = used;
    part[1].route = LQ_ROUTE_SOFTMAX;
    part[0].qk_norm = LQ_QK_WHOLE;
    return lq_config_bool(c, "norm_topk_prob", &part[1].route_renorm, err) &&
           lq_config_experts(c, ckpt, lq_sources_experts, d, &part[1], err);
}

bool lq_describe_olmoe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    d->ctx = 4096;
    if (!mixture(ckpt, c, d, part, 64, 8, err) || !lq_config_float(c, "clip_qkv", &part[0].clip, err)) return false;
    lq_ends(d, -1, 50279);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_flex_olmo(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    d->norm_eps = 1e-6f;
    d->ctx = 4096;
    d->rope[0].theta = 500000;
    if (!mixture(ckpt, c, d, part, 7, 5, err)) return false;
    part[0].place = part[1].place = LQ_POST;
    lq_ends(d, -1, 100257);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}
