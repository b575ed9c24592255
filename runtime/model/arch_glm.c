// arch_glm.c: GLM: Llama with gate and up as one tensor, and half of each head turned in pairs of neighbours. GLM-4 of
// April 2025: norms behind each part too.
#include "runtime/model/family.h"

const char *const lq_names_glm[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_GATE_UP] = LQ_LAYER "mlp.gate_up_proj",
    [LQ_R_NORM_POST_0] = LQ_LAYER "post_self_attn_layernorm", [LQ_R_NORM_POST_1] = LQ_LAYER "post_mlp_layernorm",
};

static bool describe(const cJSON *c, lq_desc *d, lq_norm_place place, lq_err *err) {
    static const int ends[] = {151329, 151336, 151338};
    lq_part part[2] = {{.kv_heads = 2, .head_dim = 128}};
    bool bias = true;
    d->norm_eps = 1.5625e-7f;
    d->ctx = 1 << 17;
    if (!lq_config_rms(c, d, part, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0.5, &d->rope[0], err))
        return false;
    d->rope[0].interleaved = true;
    d->ropes = 1;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = bias;
    part[1].gate_up = true;
    part[0].place = part[1].place = place;
    for (int i = 0; i < 3; i++)
        if (ends[i] < d->vocab) d->eos[d->eoses++] = ends[i];
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_glm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    (void)ckpt;
    return describe(c, d, LQ_PRE, err);
}

bool lq_describe_glm4(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    (void)ckpt;
    return describe(c, d, LQ_SANDWICH, err);
}
