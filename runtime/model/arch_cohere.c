// arch_cohere.c: Cohere's Command R: Llama's tensors, LayerNorms without biases, attention and MLP side by
// side behind one norm, neighbours rotated in pairs, logits times a factor. Cohere2: windows in some layers,
// and the others know no positions; with a mixture in place of the MLPs behind the first ones, which may turn in all
// layers, alone or in the mean with experts that all rows share.
#include "runtime/model/family.h"
#include <string.h>

const char *const lq_names_cohere2_moe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS,
    [LQ_R_SHARED_GATE] = LQ_LAYER "mlp.shared_experts.gate_proj",
    [LQ_R_SHARED_UP] = LQ_LAYER "mlp.shared_experts.up_proj",
    [LQ_R_SHARED_DOWN] = LQ_LAYER "mlp.shared_experts.down_proj",
};

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

// A key that is one of two words; silent: the first.
static bool choice(const cJSON *c, const char *key, const char *first, const char *second, bool *other, lq_err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(c, key);
    const char *word = cJSON_IsString(item) ? item->valuestring : item ? "" : first;
    *other = !strcmp(word, second);
    return *other || !strcmp(word, first) ||
           lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s is not %s or %s", key, first, second);
}

// The norms are RMS norms where the config says what they add to the mean of squares.
static bool norms(const cJSON *c, lq_desc *d, lq_err *err) {
    if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "rms_norm_eps"))) return true;
    d->norm = LQ_NORM_RMS;
    return lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err);
}

// Part 1 is the mixture as `part` has the MLP, part 2 what all rows share: *shared of them. *mlp: of the first layers.
static bool mixture(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[3], lq_part *mlp, int *shared,
                    lq_err *err) {
    lq_part *moe = &part[1];
    bool sigmoid = false, sum = false, renorm = true;
    *mlp = part[2] = *moe;
    if (!lq_config_int(c, "prefix_dense_intermediate_size", 1, 1 << 22, &mlp->ffn, err) ||
        !lq_config_int(c, "num_shared_experts", 0, 64, shared, err) ||
        !lq_config_bool(c, "norm_topk_prob", &renorm, err) ||
        !choice(c, "expert_selection_fn", "softmax", "sigmoid", &sigmoid, err) ||
        !choice(c, "shared_expert_combination_strategy", "average", "sum", &sum, err))
        return false;
    moe->experts = 8;
    moe->experts_used = 2;
    moe->route = sigmoid ? LQ_ROUTE_SIGMOID : LQ_ROUTE_SOFTMAX_TOPK;
    moe->route_renorm = sigmoid && renorm;
    part[2].ffn *= *shared;
    part[2].shared = true;
    if (*shared && !sum) moe->scale = part[2].scale = 0.5f;
    return lq_config_experts(c, ckpt, lq_sources_experts, d, moe, err);
}

bool lq_describe_cohere2_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[3] = {{.head_dim = 128}}, mlp;
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096, every = 4, first = 0, first_every = 1, shared = 0;
    if (!read(c, d, part, err) || !norms(c, d, err) || !mixture(ckpt, c, d, part, &mlp, &shared, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "sliding_window_pattern", 1, 1 << 20, &every, err) ||
        !lq_config_int(c, "first_k_dense_replace", 0, 1 << 20, &first, err) ||
        !lq_config_int(c, "prefix_dense_sliding_window_pattern", 1, 1 << 20, &first_every, err))
        return false;
    if (!window) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: sliding_window is null");
    if (d->rope[0].kind != LQ_ROPE_DEFAULT && cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(c, "rope_scaling")))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_scaling: transformers reads rope_parameters alone of a %s",
                       d->arch->name);
    if (!lq_layers_fill(d, part, shared ? 3 : 2, err) || !lq_layers_dense(c, d, &mlp, first, err)) return false;
    for (int i = 0; i < d->layers; i++)
        if (i < first ? (i + 1) % first_every : (i - first + 1) % every) d->layer[i].part[0].window = window;
    if (!lq_layers_group(c, d, window, err)) return false;
    for (int i = 0; i < d->layers; i++) {
        const bool turns = first_every == 1 && d->layer[i].part[1].kind == LQ_P_MLP;
        if (!d->layer[i].part[0].window && !turns) d->layer[i].part[0].rope = -1;
    }
    return true;
}
