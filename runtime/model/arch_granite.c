// arch_granite.c: Granite: Llama with a factor on the embedding, the scores, what each part adds, and the logits.
#include "runtime/model/family.h"

static bool read(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    float scores = 1, adds = 1, logits = 1;
    d->embed_scale = 1;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_float(c, "embedding_multiplier", &d->embed_scale, err) ||
        !lq_config_float(c, "attention_multiplier", &scores, err) ||
        !lq_config_float(c, "residual_multiplier", &adds, err) || !lq_config_float(c, "logits_scaling", &logits, err))
        return false;
    if (d->embed_scale == 0 || scores == 0 || adds == 0 || logits == 0)
        return lq_fail(err, LQ_E_FORMAT, "config.json: a multiplier is null");
    d->logit_scale = 1 / logits;
    part[0].attn_scale = scores;
    part[0].scale = part[1].scale = adds;
    lq_ends(d, 1, 2);
    return true;
}

bool lq_describe_granite(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    return read(c, d, part, err) && lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) &&
           lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}
