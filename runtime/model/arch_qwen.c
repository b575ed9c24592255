// arch_qwen.c: Qwen: Llama's tensors and layers, with windows in some layers if the config turns them on. Qwen2 (biases
// of q, k and v), Qwen3 (no biases, a norm of each head's q and k).
#include "runtime/model/family.h"

// The window of the layers behind the first max_window_layers.
static bool windows(const cJSON *c, lq_desc *d, lq_err *err) {
    bool slides = false;
    int window = 4096, full = 28;
    if (!lq_config_bool(c, "use_sliding_window", &slides, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "max_window_layers", 0, 1 << 20, &full, err))
        return false;
    if (lq_config_null(c, "sliding_window")) slides = false;
    return lq_layers_window(c, d, slides ? window : 0, full < d->layers ? full : d->layers, err);
}

bool lq_describe_qwen2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32}};
    (void)ckpt;
    d->ctx = 1 << 15;
    if (!lq_config_llama(c, d, part, err)) return false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = true;
    return lq_layers_fill(d, part, 2, err) && windows(c, d, err);
}

bool lq_describe_qwen3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32, .head_dim = 128}};
    (void)ckpt;
    d->ctx = 1 << 15;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err)) return false;
    part[0].qk_norm = LQ_QK_HEAD;
    return lq_layers_fill(d, part, 2, err) && windows(c, d, err);
}
