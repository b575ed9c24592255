// arch_qwen.c: Qwen: Llama's tensors and layers, with windows in some layers if the config turns them on. Qwen2 (biases
// of q, k and v), alone and as the text part of one with eyes; Qwen3 (no biases, a norm of each head's q and k), alone
// and with eyes. Of both a mixture in place of some MLPs, in Qwen2's beside an expert that all rows share.
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

const char *const lq_names_qwen_moe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS,
    [LQ_R_SHARED_GATE] = LQ_LAYER "mlp.shared_expert.gate_proj",
    [LQ_R_SHARED_UP] = LQ_LAYER "mlp.shared_expert.up_proj",
    [LQ_R_SHARED_DOWN] = LQ_LAYER "mlp.shared_expert.down_proj",
    [LQ_R_SHARED_SCORE] = LQ_LAYER "mlp.shared_expert_gate",
};

// The window of the layers behind the first max_window_layers (silent: `full`).
static bool windows(const cJSON *c, lq_desc *d, int full, lq_err *err) {
    bool slides = false;
    int window = 4096;
    if (!lq_config_bool(c, "use_sliding_window", &slides, err) ||
        !lq_config_int(c, "sliding_window", slides, LQ_CTX_MAX, &window, err) ||
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
    return lq_layers_fill(d, part, 2, err) && windows(c, d, 28, err);
}

bool lq_describe_qwen2_vl(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}};
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 15;
    d->rope[0].theta = 1e6;
    if (!lq_config_llama(c, d, part, err)) return false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = true;
    lq_ends(d, 151643, 151645);
    return lq_layers_fill(d, part, 2, err) && windows(c, d, 80, err);
}

bool lq_describe_qwen3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32, .head_dim = 128}};
    (void)ckpt;
    d->ctx = 1 << 15;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err)) return false;
    part[0].qk_norm = LQ_QK_HEAD;
    return lq_layers_fill(d, part, 2, err) && windows(c, d, 28, err);
}

// The mixture that all layers have but those of mlp_only_layers and those between each decoder_sparse_step-th.
static bool mixtures(const cJSON *c, lq_desc *d, const lq_part *part, int parts, const lq_part *mlp, lq_err *err) {
    const cJSON *dense = cJSON_GetObjectItemCaseSensitive(c, "mlp_only_layers"), *v;
    int every = 1;
    if (!lq_config_int(c, "decoder_sparse_step", 1, 1 << 20, &every, err)) return false;
    if (dense && !cJSON_IsNull(dense) && !cJSON_IsArray(dense))
        return lq_fail(err, LQ_E_FORMAT, "config.json: mlp_only_layers is not a list of layers");
    if (!lq_layers_fill(d, part, parts, err)) return false;
    for (int i = 0; i < d->layers; i++)
        if ((i + 1) % every) d->layer[i].parts = 2, d->layer[i].part[1] = *mlp;
    cJSON_ArrayForEach(v, dense) {
        if (!cJSON_IsNumber(v))
            return lq_fail(err, LQ_E_FORMAT, "config.json: mlp_only_layers is not a list of layers");
        if (!(v->valuedouble >= 0 && v->valuedouble < d->layers) || v->valuedouble != floor(v->valuedouble)) continue;
        lq_layer *l = &d->layer[(int)v->valuedouble];
        l->parts = 2;
        l->part[1] = *mlp;
    }
    return true;
}

static bool read_mixture(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part *moe, lq_err *err) {
    moe->route = LQ_ROUTE_SOFTMAX;
    return lq_config_int(c, "moe_intermediate_size", 1, 1 << 22, &moe->ffn, err) &&
           lq_config_bool(c, "norm_topk_prob", &moe->route_renorm, err) &&
           lq_config_experts(c, ckpt, lq_sources_experts, d, moe, err);
}

bool lq_describe_qwen2_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[3] = {{.kv_heads = 16}}, mlp;
    bool bias = true, slides = false;
    int window = 4096, until = 28;
    d->ctx = 1 << 15;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bool(c, "qkv_bias", &bias, err) ||
        !lq_config_bool(c, "use_sliding_window", &slides, err) ||
        !lq_config_int(c, "sliding_window", 0, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "max_window_layers", 0, 1 << 20, &until, err))
        return false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = bias;
    mlp = part[2] = part[1];
    part[1].ffn = 1408;
    part[1].experts = 60;
    part[1].experts_used = 4;
    part[2].ffn = 5632;
    part[2].beside = part[2].shared = part[2].shared_score = true;
    if (!read_mixture(ckpt, c, d, &part[1], err) ||
        !lq_config_int(c, "shared_expert_intermediate_size", 1, 1 << 22, &part[2].ffn, err) ||
        !mixtures(c, d, part, 3, &mlp, err))
        return false;
    if (!slides || lq_config_null(c, "sliding_window")) window = 0;
    for (int i = 0; i < d->layers && i < until; i += 2) d->layer[i].part[0].window = window;
    return lq_layers_group(c, d, window, err);
}

bool lq_describe_qwen3_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 4}}, mlp;
    bool slides = false;
    int window = 4096;
    d->ctx = 1 << 15;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "use_sliding_window", &slides, err) ||
        !lq_config_int(c, "sliding_window", 0, LQ_CTX_MAX, &window, err))
        return false;
    part[0].qk_norm = LQ_QK_HEAD;
    mlp = part[1];
    part[1].ffn = 768;
    part[1].experts = 128;
    part[1].experts_used = 8;
    if (!slides || lq_config_null(c, "sliding_window")) window = 0;
    return read_mixture(ckpt, c, d, &part[1], err) && mixtures(c, d, part, 2, &mlp, err) &&
           lq_layers_window(c, d, window, 0, err);
}

bool lq_describe_qwen3_vl(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 32, .head_dim = 128}};
    (void)ckpt;
    d->ctx = 128000;
    d->rope[0].theta = 500000;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err)) return false;
    part[0].qk_norm = LQ_QK_HEAD;
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

// Theirs are [k][n], or as transformers 5 holds them; the shape tells.
static bool stored_across(const lq_ckpt *ckpt, const lq_desc *d, int ffn) {
    static const char down[] = ".mlp.experts.down_proj";
    for (size_t i = 0; i < lq_ckpt_count(ckpt); i++) {
        const lq_tensor *t = lq_ckpt_at(ckpt, i);
        const size_t n = strlen(t->name), end = sizeof down - 1;
        if (n > end && !strcmp(t->name + n - end, down) && t->rank == 3)
            return t->shape[1] == ffn && t->shape[2] == d->dim && ffn != d->dim;
    }
    return false;
}

bool lq_describe_qwen3_vl_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 16}}, mlp;
    d->ctx = 128000;
    d->tied = true;
    d->rope[0].theta = 500000;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err)) return false;
    part[0].qk_norm = LQ_QK_HEAD;
    mlp = part[1];
    part[1].ffn = 1408;
    part[1].experts = 60;
    part[1].experts_used = 4;
    if (!read_mixture(ckpt, c, d, &part[1], err)) return false;
    part[1].route_renorm = true; // whatever norm_topk_prob says
    part[1].expert_across = stored_across(ckpt, d, part[1].ffn);
    return mixtures(c, d, part, 2, &mlp, err) && lq_layers_window(c, d, 0, 0, err);
}
