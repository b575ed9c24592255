// arch_phi3.c: Phi-3 and 4: Llama with fused tensors, a part of each head turned, longrope. Phi-3.5-MoE: LayerNorms,
// experts that are drawn one after the other, longrope with factors of its own.
#include "runtime/model/family.h"

const char *const lq_names_phi3[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP,
    [LQ_R_QKV] = LQ_LAYER "self_attn.qkv_proj", [LQ_R_GATE_UP] = LQ_LAYER "mlp.gate_up_proj",
};
static const char *const fused[LQ_ROLES] = {LQ_NAMES_FUSED("mlp.", "router")};

bool lq_describe_phi3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    int window = 0;
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = d->rope[0].original_ctx = 4096;
    if (!lq_config_rms(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 1, &d->rope[0], err))
        return false;
    d->ropes = 1;
    if (d->rope[0].kind != LQ_ROPE_DEFAULT && d->rope[0].kind != LQ_ROPE_LONG)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: the rope_type of a Phi-3 is not longrope");
    part[0].qkv = LQ_QKV_ROWS;
    part[1].gate_up = true;
    lq_ends(d, 1, 32000);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

// Cosine and sine have a factor for short and one for long contexts.
static bool read_mscales(const cJSON *c, lq_rope *r, lq_err *err) {
    const cJSON *scaling = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    if (!cJSON_IsObject(scaling)) scaling = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    if (r->kind == LQ_ROPE_DEFAULT) return true;
    if (r->kind != LQ_ROPE_LONG)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: the rope_type of a Phi-MoE is not longrope");
    if (!lq_json_num(scaling, "short_mscale", &r->short_mscale, "config.json", err) ||
        !lq_json_num(scaling, "long_mscale", &r->long_mscale, "config.json", err))
        return false;
    return (r->short_mscale > 0 && r->long_mscale > 0) ||
           lq_fail(err, LQ_E_FORMAT, "config.json: short_mscale %g and long_mscale %g, expected more than 0",
                   r->short_mscale, r->long_mscale);
}

bool lq_describe_phimoe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}}, *moe = &part[1];
    int window = 0;
    double jitter = 0.01;
    d->norm_eps = 1e-5f;
    d->rope[0].theta = 1e6;
    d->ctx = 1 << 17;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !read_mscales(c, &d->rope[0], err) || !lq_config_bool(c, "lm_head_bias", &d->head_bias, err) ||
        !lq_json_num(c, "router_jitter_noise", &jitter, "config.json", err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    moe->experts = 16;
    moe->experts_used = 2;
    if (!lq_config_experts(c, ckpt, fused, d, moe, err)) return false;
    if (moe->experts_used != 2 || !(jitter >= 0 && jitter <= 1))
        return lq_fail(err, LQ_E_UNSUPPORTED,
                       "config.json: num_experts_per_tok %d and router_jitter_noise %g, expected 2 and 0 to 1",
                       moe->experts_used, jitter);
    moe->route = LQ_ROUTE_MIXER;
    moe->route_jitter = (float)jitter;
    d->norm = LQ_NORM_LAYER;
    d->norm_bias = true;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}
