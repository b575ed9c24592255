// arch_llama4.c: Llama 4, alone and as the text part of one with eyes: Llama in which pairs of neighbours turn, in
// layers that see their own chunk of the context alone and norm each head's q and k without weights; every fourth layer
// sees all, knows no positions, and has scores that grow with them. A mixture in place of some MLPs: experts read rows
// times the sigmoids of their scores, beside one that all rows share.
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

#define MLP LQ_LAYER "feed_forward."
const char *const lq_names_llama4[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, [LQ_R_GATE] = MLP "gate_proj", [LQ_R_UP] = MLP "up_proj",
    [LQ_R_DOWN] = MLP "down_proj", [LQ_R_ROUTER] = MLP "router", [LQ_R_EXPERT_GATE] = MLP "experts.%d.gate_proj",
    [LQ_R_EXPERT_UP] = MLP "experts.%d.up_proj", [LQ_R_EXPERT_DOWN] = MLP "experts.%d.down_proj",
    [LQ_R_SHARED_GATE] = MLP "shared_expert.gate_proj", [LQ_R_SHARED_UP] = MLP "shared_expert.up_proj",
    [LQ_R_SHARED_DOWN] = MLP "shared_expert.down_proj",
};

// Which layers turn; those that do see chunks, unless layer_types says otherwise. An empty list of them is none.
static bool layers(const cJSON *c, lq_desc *d, int still, int chunk, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(c, "no_rope_layers"), *v;
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(c, "layer_types");
    const bool told = cJSON_IsArray(list) && list->child, typed = types && !cJSON_IsNull(types);
    int every = 4, i = 0;
    if (!lq_config_int(c, "no_rope_layer_interval", 1, 1 << 12, &every, err)) return false;
    for (int l = 0; l < d->layers; l++) d->layer[l].part[0].rope = (l + 1) % every ? 0 : still;
    cJSON_ArrayForEach(v, list) {
        if (!cJSON_IsNumber(v) || i == d->layers) break;
        d->layer[i++].part[0].rope = v->valuedouble != 0 ? 0 : still;
    }
    if (list && !cJSON_IsNull(list) && (!cJSON_IsArray(list) || (told && i < d->layers)))
        return lq_fail(err, LQ_E_FORMAT, "config.json: no_rope_layers is not a list of %d numbers", d->layers);
    v = cJSON_IsArray(types) ? types->child : NULL;
    for (int l = 0; l < d->layers; l++, v = v ? v->next : NULL) {
        lq_part *p = &d->layer[l].part[0];
        const char *type = cJSON_IsString(v) && (l < d->layers - 1 || !v->next) ? v->valuestring : "";
        const bool chunks = typed ? !strcmp(type, "chunked_attention") : p->rope == 0;
        if (typed && !chunks && strcmp(type, "full_attention") != 0)
            return lq_fail(err, LQ_E_FORMAT, "config.json: layer_types is not a list of %d words, full_attention or "
                           "chunked_attention", d->layers);
        if (chunks && !chunk)
            return lq_fail(err, LQ_E_FORMAT, "config.json: attention_chunk_size is null, but layer %d has chunks", l);
        if (chunks) p->chunk = p->window = chunk; // so far back it can see at most: the cache keeps no more
        if (p->rope) p->qk_norm = LQ_QK_PLAIN;
    }
    return lq_layers_group(NULL, d, 0, err);
}

// Which layers have a mixture: those in moe_layers, or each so-manieth.
static bool mixtures(const cJSON *c, lq_desc *d, const lq_part part[3], const lq_part *mlp, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(c, "moe_layers"), *v;
    const bool told = list && !cJSON_IsNull(list);
    lq_part dense[2] = {part[0], *mlp};
    int every = 1;
    if (!lq_config_int(c, "interleave_moe_layer_step", 1, 1 << 20, &every, err)) return false;
    if (told && !cJSON_IsArray(list))
        return lq_fail(err, LQ_E_FORMAT, "config.json: moe_layers is not a list of layers");
    if (!lq_layers_fill(d, dense, 2, err)) return false;
    for (int l = every - 1; l < d->layers && !told; l += every)
        d->layer[l].parts = 3, memcpy(d->layer[l].part, part, 3 * sizeof *part);
    cJSON_ArrayForEach(v, list) {
        if (!cJSON_IsNumber(v)) return lq_fail(err, LQ_E_FORMAT, "config.json: moe_layers is not a list of layers");
        if (!(v->valuedouble >= 0 && v->valuedouble < d->layers) || v->valuedouble != floor(v->valuedouble)) continue;
        lq_layer *l = &d->layer[(int)v->valuedouble];
        l->parts = 3;
        memcpy(l->part, part, 3 * sizeof *part);
    }
    return true;
}

// desc.rope[1] of the layers that do not turn; *still is its index, or -1.
static bool growth(const cJSON *c, lq_desc *d, int *still, lq_err *err) {
    const cJSON *tuned = cJSON_GetObjectItemCaseSensitive(c, "attn_temperature_tuning");
    bool grows = !cJSON_IsNumber(tuned) || tuned->valuedouble != 0; // the first configs say 4
    lq_rope *r = &d->rope[1];
    *r = (lq_rope){.kind = LQ_ROPE_NONE, .dim = d->rope[0].dim, .interleaved = true, .theta = 10000, .q_beta = 0.1,
                   .original_ctx = 8192, .q_ahead = 1};
    if ((!cJSON_IsNumber(tuned) && !lq_config_bool(c, "attn_temperature_tuning", &grows, err)) ||
        !lq_json_num(c, "attn_scale", &r->q_beta, "config.json", err) ||
        !lq_config_int(c, "floor_scale", 1, LQ_CTX_MAX, &r->original_ctx, err))
        return false;
    *still = grows ? 1 : -1;
    d->ropes = grows ? 2 : 1;
    return true;
}

bool lq_describe_llama4(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const char *const fused[LQ_ROLES] = {LQ_NAMES_FUSED("feed_forward.", "router")};
    static const lq_sizes silent = {5120, 48, 40, 8192, 202048};
    lq_part part[3] = {{.kv_heads = 8, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}}, *moe = &part[1], mlp;
    bool norms = true;
    int still = -1, chunk = lq_config_null(c, "attention_chunk_size") ? 0 : 8192, wide = 16384;
    if (d->body) d->silent = &silent; // a text part
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    d->rope[0].theta = 500000;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "use_qk_norm", &norms, err) || !growth(c, d, &still, err) ||
        !lq_config_int(c, "attention_chunk_size", 1, LQ_CTX_MAX, &chunk, err) ||
        !lq_config_int(c, "intermediate_size_mlp", 1, 1 << 22, &wide, err))
        return false;
    d->rope[0].interleaved = true;
    if (norms) part[0].qk_norm = LQ_QK_BARE;
    part[0].qk_norm_late = true;
    mlp = part[2] = *moe;
    mlp.ffn = wide;
    part[2].beside = part[2].shared = true;
    moe->experts = 16;
    moe->experts_used = 1;
    moe->route = LQ_ROUTE_SIGMOID;
    moe->weigh_input = true;
    if (!lq_config_experts(c, ckpt, fused, d, moe, err)) return false;
    moe->expert_across = moe->gate_up;
    lq_ends(d, 1, 2);
    return mixtures(c, d, part, &mlp, err) && layers(c, d, still, chunk, err);
}
