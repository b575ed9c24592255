// arch_cohere.c: Cohere's Command R: Llama's tensors, LayerNorms without biases, attention and MLP side by
// side behind one norm, neighbours rotated in pairs, logits times a factor. Cohere2: windows in some layers,
// and the others know no positions.
#include "runtime/model/family.h"

static bool read(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm = LQ_NORM_LAYER;
    d->norm_eps = 1e-5f;
    d->tied = true;
    d->ctx = 8192;
    d->logit_scale = 0.0625f;
    if (!lq_config_sizes(c, d, &part[0], &part[1], err) || !lq_config_act(c, "hidden_act", &part[1].act, err) ||
        !lq_config_eps(c, "layer_norm_eps", &d->norm_eps, err) ||
        !lq_config_float(c, "logit_scale", &d->logit_scale, err) ||
        !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err))
        return false;
    if (d->logit_scale == 0) return lq_fail(err, LQ_E_FORMAT, "config.json: logit_scale is null");
    d->rope[0].interleaved = true;
    d->ropes = 1;
    part[1].beside = true;
    lq_ends(d, 5, 255001);
    return true;
}

bool lq_describe_cohere(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    bool qk_norm = false;
    (void)ckpt;
    d->rope[0].theta = 500000;
    if (!read(c, d, part, err) || !lq_config_bool(c, "use_qk_norm", &qk_norm, err)) return false;
    if (qk_norm) part[0].qk_norm = LQ_QK_HEADS;
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}

bool lq_describe_cohere2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096, every = 4;
    (void)ckpt;
    if (!read(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "sliding_window_pattern", 1, 1 << 20, &every, err) || !lq_heads_share(d, &part[0], err))
        return false;
    if (!window) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: sliding_window is null");
    if (!lq_layers_fill(d, part, 2, err) || !lq_layers_pattern(c, d, window, every, err)) return false;
    for (int i = 0; i < d->layers; i++)
        if (!d->layer[i].part[0].window) d->layer[i].part[0].rope = -1;
    return true;
}
