// arch_granite.c: Granite: Llama with a factor on the embedding, the scores, what each part adds, and the logits. With
// experts as stacks in place of the MLP, alone or beside one that all rows share. Of Granite 4.0 the models whose
// layers are all attention, with positions or without; those with a mamba are refused.
#include "runtime/model/family.h"
#include <string.h>

#define MOE LQ_LAYER "block_sparse_moe."
const char *const lq_names_granite_moe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, [LQ_R_ROUTER] = MOE "router.layer",
    [LQ_R_EXPERT_GATE] = MOE "experts.%d.gate_proj", [LQ_R_EXPERT_UP] = MOE "experts.%d.up_proj",
    [LQ_R_EXPERT_DOWN] = MOE "experts.%d.down_proj", [LQ_R_SHARED_GATE] = LQ_LAYER "shared_mlp.gate_proj",
    [LQ_R_SHARED_UP] = LQ_LAYER "shared_mlp.up_proj", [LQ_R_SHARED_DOWN] = LQ_LAYER "shared_mlp.down_proj",
};
#define SHARED                                                                                                         \
    [LQ_R_SHARED_GATE_UP] = LQ_LAYER "shared_mlp.input_linear", [LQ_R_SHARED_DOWN] = LQ_LAYER "shared_mlp.output_linear"
static const char *const sources[LQ_ROLES] = {
    [LQ_R_EXPERT_GATE_UP] = MOE "input_linear", [LQ_R_EXPERT_DOWN] = MOE "output_linear", SHARED,
};
static const char *const fused[LQ_ROLES] = {LQ_NAMES_FUSED("block_sparse_moe.", "router"), SHARED};

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

// Its first configs say attention and mamba, transformers 5 full_attention and linear_attention; silent, all are mamba.
static bool all_attend(const cJSON *c, const lq_desc *d, lq_err *err) {
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(c, "layer_types"), *v;
    int i = 0;
    cJSON_ArrayForEach(v, types) {
        const char *type = cJSON_IsString(v) ? v->valuestring : "";
        if (strcmp(type, "attention") != 0 && strcmp(type, "full_attention") != 0)
            return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: layer_types has \"%.64s\": of a %s lq knows layers of "
                           "attention alone", type, d->arch->name);
        i++;
    }
    return i == d->layers || lq_fail(err, LQ_E_UNSUPPORTED, "config.json: layer_types is not a list of %d words: lq "
                                     "knows no layers of mamba", d->layers);
}

static bool describe_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, int shared, lq_err *err) {
    lq_part part[3] = {{0}};
    if (!read(c, d, part, err)) return false;
    part[2] = part[1];
    part[2].ffn = shared;
    part[2].scale = 0; // that of the sum is part[1]'s
    part[2].beside = part[2].shared = part[2].gate_up = true;
    part[1].experts = 8;
    part[1].experts_used = 2;
    d->sources = sources;
    if (!lq_config_experts(c, ckpt, fused, d, &part[1], err)) return false;
    part[1].gate_up = true;
    part[1].route = LQ_ROUTE_SOFTMAX_TOPK;
    return lq_layers_fill(d, part, shared ? 3 : 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}

bool lq_describe_granite_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    return describe_moe(ckpt, c, d, 0, err);
}

bool lq_describe_granite_shared(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    int shared = 0;
    return lq_config_int(c, "shared_intermediate_size", 0, 1 << 22, &shared, err) &&
           describe_moe(ckpt, c, d, shared, err);
}

bool lq_describe_granite_hybrid(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[3] = {{0}};
    int shared = 1024, experts = 8;
    const char *positions = lq_json_str(c, "position_embedding_type");
    if (!lq_config_int(c, "shared_intermediate_size", 1, 1 << 22, &shared, err) ||
        !lq_config_int(c, "num_local_experts", 0, LQ_EXPERTS, &experts, err))
        return false;
    if (experts) {
        if (!describe_moe(ckpt, c, d, shared, err)) return false;
    } else {
        if (!read(c, d, part, err)) return false;
        d->sources = sources;
        part[1].ffn = shared;
        part[1].shared = part[1].gate_up = true;
        if (!lq_layers_fill(d, part, 2, err) || !lq_layers_window(NULL, d, 0, 0, err)) return false;
    }
    if (!positions || strcmp(positions, "rope") != 0) d->ropes = 0;
    for (int i = 0; i < d->layers && !d->ropes; i++) d->layer[i].part[0].rope = -1;
    return all_attend(c, d, err);
}
