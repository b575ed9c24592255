// arch_ernie.c: ERNIE 4.5: Llama in which pairs of neighbours turn; dense, or with a mixture in place of some MLPs,
// drawn from the softmax of all experts with a number for each that counts for the drawing alone, beside experts that
// all rows share; and the text part of one with eyes, whose mixtures have experts of text and experts of images.
#include "runtime/model/family.h"
#include <string.h>

#define SHARED LQ_LAYER "mlp.shared_experts."
const char *const lq_names_ernie_moe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS,
    [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.moe_statics.e_score_correction_bias=", [LQ_R_SHARED_GATE] = SHARED "gate_proj",
    [LQ_R_SHARED_UP] = SHARED "up_proj", [LQ_R_SHARED_DOWN] = SHARED "down_proj",
};
const char *const lq_names_ernie_vl[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_ROUTER] = LQ_LAYER "mlp.text_moe.gate",
    [LQ_R_EXPERT_GATE] = LQ_LAYER "mlp.text_moe.experts.%d.gate_proj",
    [LQ_R_EXPERT_UP] = LQ_LAYER "mlp.text_moe.experts.%d.up_proj",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "mlp.text_moe.experts.%d.down_proj",
    [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.text_moe.gate.moe_statics.e_score_correction_bias=",
    [LQ_R_SHARED_GATE] = SHARED "gate_proj", [LQ_R_SHARED_UP] = SHARED "up_proj",
    [LQ_R_SHARED_DOWN] = SHARED "down_proj",
};
// Experts of images, and what images go through.
const char *const lq_ignores_ernie_vl[] = {
    "+model.layers.*.mlp.experts.*", "+model.layers.*.mlp.gate.weight_1", "+model.resampler_model.*",
    "+model.vision_*", "+model.language_model.layers.*.mlp.vision_moe.*", NULL,
};
// Layers that guess further tokens.
const char *const lq_ignores_ernie_moe[] = {"model.mtp_*", NULL};

static bool read(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    d->tied = true;
    d->rope[0].theta = 500000;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "use_bias", &part[0], err)) return false;
    part[1].mlp_bias = part[0].q_bias;
    d->rope[0].interleaved = true;
    return true;
}

bool lq_describe_ernie(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 2, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    (void)ckpt;
    if (!read(c, d, part, err)) return false;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

// A number of a mixture: of models with eyes a list of that of text and that of images.
static bool number(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(c, key), *first = cJSON_GetArrayItem(item, 0);
    if (!cJSON_IsArray(item)) return lq_config_int(c, key, min, max, out, err);
    if (!cJSON_IsNumber(first) || !(first->valuedouble >= (double)min && first->valuedouble <= (double)max))
        return lq_fail(err, LQ_E_FORMAT, "config.json: %s does not begin with a number from %lld to %lld", key,
                       (long long)min, (long long)max);
    *out = (int)first->valuedouble;
    return true;
}

// The mixture (part[1]), and what all rows share (part[2]: *shared experts), in place of the MLP that stands in part 1.
static bool mixture(const cJSON *c, lq_part part[3], int *shared, bool lists, lq_err *err) {
    bool (*const get)(const cJSON *, const char *, int64_t, int64_t, int *, lq_err *) = lists ? number : lq_config_int;
    lq_part *moe = &part[1];
    int experts = 64, used = 6, ffn = 1536;
    float least = 0;
    if (!get(c, "moe_num_experts", 1, LQ_EXPERTS, &experts, err) ||
        !get(c, "moe_intermediate_size", 1, 1 << 20, &ffn, err) ||
        !lq_config_int(c, "moe_num_shared_experts", 0, 64, shared, err) ||
        !lq_config_float(c, "moe_norm_min", &least, err))
        return false;
    if (used > experts) used = experts;
    if (!lq_config_int(c, "moe_k", 1, experts, &used, err)) return false;
    if (least > 1e-6f) // what the shares of the chosen are divided by, if their sum is less
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: moe_norm_min %g, expected next to nothing", (double)least);
    part[2] = *moe;
    part[2].ffn = ffn * *shared;
    part[2].beside = part[2].shared = true;
    moe->ffn = ffn;
    moe->mlp_bias = false;
    moe->experts = experts;
    moe->experts_used = used;
    moe->route = LQ_ROUTE_SOFTMAX;
    moe->route_bias = moe->route_renorm = true;
    moe->route_bias_of = 1;
    return true;
}

// The layers that have a mixture.
static bool layers(const cJSON *c, lq_desc *d, const lq_part *mlp, bool lists, lq_err *err) {
    bool (*const get)(const cJSON *, const char *, int64_t, int64_t, int *, lq_err *) = lists ? number : lq_config_int;
    int first = 1, last = -1, every = 1;
    if (!get(c, "moe_layer_start_index", 0, 1 << 20, &first, err) ||
        !get(c, "moe_layer_end_index", -1, 1 << 20, &last, err) ||
        !lq_config_int(c, "moe_layer_interval", 1, 1 << 20, &every, err))
        return false;
    if (last < 0) last = d->layers - 1;
    for (int i = 0; i < d->layers; i++)
        if (i < first || i > last || (i + 1) % every) d->layer[i].parts = 2, d->layer[i].part[1] = *mlp;
    return true;
}

bool lq_describe_ernie_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const char *const fused[LQ_ROLES] = {
        LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.gate.moe_statics.e_score_correction_bias=",
    };
    lq_part part[3] = {{.kv_heads = 4}};
    int shared = 2;
    if (!read(c, d, part, err)) return false;
    const lq_part mlp = part[1];
    d->head_bias = mlp.mlp_bias;
    lq_ends(d, 1, 2);
    return mixture(c, part, &shared, false, err) && lq_config_experts(NULL, ckpt, fused, d, &part[1], err) &&
           lq_layers_fill(d, part, shared ? 3 : 2, err) && layers(c, d, &mlp, false, err) &&
           lq_layers_window(c, d, 0, 0, err);
}

// As the first checkpoints have them: experts of images behind those of text, routers as [k][n], two rows of numbers.
static bool stored_first(const lq_ckpt *ckpt) {
    static const char router[] = ".mlp.gate.weight";
    for (size_t i = 0; i < lq_ckpt_count(ckpt); i++) {
        const char *name = lq_ckpt_at(ckpt, i)->name;
        const size_t n = strlen(name), end = sizeof router - 1;
        if (n > end && !strcmp(name + n - end, router)) return true;
    }
    return false;
}

bool lq_describe_ernie_vl(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const char *const first[LQ_ROLES] = {
        LQ_NAMES_EXPERTS, [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.moe_statics.e_score_correction_bias=",
    };
    static const char *const fused[LQ_ROLES] = {LQ_NAMES_FUSED("mlp.text_moe.", "gate")};
    static const lq_sizes silent = {2560, 28, 20, 12288, 103424};
    lq_part part[3] = {{.kv_heads = 4}};
    int shared = 2;
    d->silent = &silent;
    if (!read(c, d, part, err)) return false;
    const lq_part mlp = part[1];
    if (d->rope[0].kind != LQ_ROPE_DEFAULT)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: a scaling of positions of a %s", d->arch->name);
    if (!mixture(c, part, &shared, true, err) || !lq_config_experts(NULL, ckpt, fused, d, &part[1], err)) return false;
    if (stored_first(ckpt)) {
        d->sources = first;
        part[1].router_across = true;
        part[1].route_bias_of = 2;
    }
    return lq_layers_fill(d, part, shared ? 3 : 2, err) &&
           (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(c, "mlp_layer_types")) ? lq_layers_dense(c, d, &mlp, 0, err)
            : layers(c, d, &mlp, true, err)) &&
           lq_layers_window(c, d, 0, 0, err);
}
