// family.c: reading a config.json into a description: single keys, the sizes that every decoder has, layers and their
// windows. Refuses numbers that make no sense.
#include "runtime/model/family.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const what = "config.json";

bool lq_config_null(const cJSON *c, const char *key) { return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(c, key)); }

bool lq_config_need(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err) {
    int64_t v = INT64_MIN;
    if (!lq_json_int(c, key, min, max, &v, what, err)) return false;
    if (v == INT64_MIN) return lq_fail(err, LQ_E_FORMAT, "%s: %s is missing", what, key);
    *out = (int)v;
    return true;
}

bool lq_config_int(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err) {
    int64_t v = *out;
    if (lq_config_null(c, key)) return true;
    if (!lq_json_int(c, key, min, max, &v, what, err)) return false;
    *out = (int)v;
    return true;
}

bool lq_config_bool(const cJSON *c, const char *key, bool *out, lq_err *err) {
    return lq_json_bool(c, key, out, what, err);
}

bool lq_config_act(const cJSON *c, const char *key, lq_unary *out, lq_err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(c, key);
    if (item && !cJSON_IsNull(item) && !cJSON_IsString(item))
        return lq_fail(err, LQ_E_FORMAT, "%s: %s is not a string", what, key);
    static const struct { const char *name; lq_unary fn; } rows[] = {
        {"silu", LQ_SILU}, {"swish", LQ_SILU}, {"gelu", LQ_GELU}, {"relu", LQ_RELU}, {"relu2", LQ_RELU2},
        {"gelu_pytorch_tanh", LQ_GELU_TANH}, {"gelu_new", LQ_GELU_TANH}, {"gelu_fast", LQ_GELU_TANH},
        {"gelu_python_tanh", LQ_GELU_TANH}, {"gelu_accurate", LQ_GELU_TANH}, {"gelu_python", LQ_GELU},
        {"sigmoid", LQ_SIGMOID}, {"tanh", LQ_TANH},
    };
    const char *name = lq_json_str(c, key);
    if (!name) return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) { *out = rows[i].fn; return true; }
    return lq_fail(err, LQ_E_UNSUPPORTED, "%s: %s \"%s\" is not one lq knows", what, key, name);
}

bool lq_config_eps(const cJSON *c, const char *key, float *out, lq_err *err) {
    double v = *out;
    if (!lq_json_num(c, key, &v, what, err)) return false;
    if (!(v > 0 && v < 1)) return lq_fail(err, LQ_E_FORMAT, "%s: %s %g, expected between 0 and 1", what, key, v);
    *out = (float)v;
    return true;
}

// The name that a config has, of a family's own and the one that all know; neither: the family's.
static const char *spelt(const cJSON *c, const char *own, const char *common) {
    return !cJSON_GetObjectItemCaseSensitive(c, own) && cJSON_GetObjectItemCaseSensitive(c, common) ? common : own;
}

bool lq_config_float(const cJSON *c, const char *key, float *out, lq_err *err) {
    double v = *out;
    if (lq_config_null(c, key)) v = 0;
    if (!lq_json_num(c, key, &v, what, err)) return false;
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, key)) && !(v > 0 && v < 1e30))
        return lq_fail(err, LQ_E_FORMAT, "%s: %s is %g, expected more than 0", what, key, v);
    *out = (float)v;
    return true;
}

bool lq_config_sizes(const cJSON *c, lq_desc *d, lq_part *attn, lq_part *mlp, lq_err *err) {
    static const lq_size_keys llama = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                       "max_position_embeddings", .ffn = "intermediate_size"};
    return lq_config_sizes_as(c, &llama, d, attn, mlp, err);
}

bool lq_config_sizes_as(const cJSON *c, const lq_size_keys *k, lq_desc *d, lq_part *attn, lq_part *mlp, lq_err *err) {
    const bool share = !attn->head_dim && !cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "head_dim"));
    const char *dim = spelt(c, k->dim, "hidden_size"), *head = spelt(c, k->heads, "num_attention_heads");
    const lq_sizes none = {0}, *silent = d->silent ? d->silent : &none;
    int heads = attn->heads ? attn->heads : silent->heads;
    bool (*const size)(const cJSON *, const char *, int64_t, int64_t, int *, lq_err *) =
        d->silent ? lq_config_int : lq_config_need;
    d->dim = silent->dim, d->layers = silent->layers;
    if (!d->vocab) d->vocab = silent->vocab;
    if (!size(c, dim, 1, 1 << 20, &d->dim, err) ||
        !size(c, spelt(c, k->layers, "num_hidden_layers"), 1, 4096, &d->layers, err) ||
        !(heads ? lq_config_int : lq_config_need)(c, head, 1, 1 << 14, &heads, err))
        return false;
    mlp->ffn = k->ffn_by ? k->ffn_by * d->dim : silent->ffn;
    if ((k->ffn && !(mlp->ffn ? lq_config_int : lq_config_need)(c, k->ffn, 1, 1 << 22, &mlp->ffn, err)) ||
        !(d->vocab ? lq_config_int : lq_config_need)(c, "vocab_size", 1, 1 << 24, &d->vocab, err))
        return false;
    *attn = (lq_part){.kind = LQ_P_ATTN, .place = LQ_PRE, .heads = heads,
                      .kv_heads = attn->kv_heads ? attn->kv_heads : heads,
                      .head_dim = attn->head_dim ? attn->head_dim : d->dim / heads};
    *mlp = (lq_part){.kind = LQ_P_MLP, .place = LQ_PRE, .ffn = mlp->ffn, .gated = true, .act = LQ_SILU};
    if (!d->ctx) d->ctx = 2048;
    if (lq_config_null(c, "num_key_value_heads")) attn->kv_heads = heads;
    if (!lq_config_int(c, "num_key_value_heads", 1, 1 << 14, &attn->kv_heads, err) ||
        !lq_config_int(c, "head_dim", 1, 4096, &attn->head_dim, err) ||
        !lq_config_int(c, spelt(c, k->ctx, "max_position_embeddings"), 1, LQ_CTX_MAX, &d->ctx, err) ||
        !lq_config_bool(c, "tie_word_embeddings", &d->tied, err))
        return false;
    if (heads % attn->kv_heads)
        return lq_fail(err, LQ_E_FORMAT, "%s: %s %d is not a multiple of num_key_value_heads %d", what, head, heads,
                       attn->kv_heads);
    if (attn->head_dim < 1)
        return lq_fail(err, LQ_E_FORMAT, "%s: %s %d is more than %s %d", what, head, heads, dim, d->dim);
    if (share && d->dim % heads)
        return lq_fail(err, LQ_E_FORMAT, "%s: %s %d is not a multiple of %s %d", what, dim, d->dim, head, heads);
    if ((int64_t)heads * attn->head_dim > 1 << 22)
        return lq_fail(err, LQ_E_FORMAT, "%s: %d heads of %d, expected no more than %d in all", what, heads,
                       attn->head_dim, 1 << 22);
    attn->v_dim = attn->head_dim;
    attn->attn_scale = (float)(1 / sqrt(attn->head_dim));
    return true;
}

bool lq_heads_share(const lq_desc *d, const lq_part *attn, lq_err *err) {
    return (int64_t)attn->head_dim * attn->heads == d->dim ||
           lq_fail(err, LQ_E_UNSUPPORTED, "%s: head_dim %d, but %d heads share a width of %d", what, attn->head_dim,
                   attn->heads, d->dim);
}

bool lq_layers_fill(lq_desc *d, const lq_part *part, int parts, lq_err *err) {
    d->layer = calloc((size_t)d->layers, sizeof *d->layer);
    if (!d->layer) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", d->layers);
    for (int i = 0; i < d->layers; i++) {
        d->layer[i].parts = parts;
        d->layer[i].kv_from = i;
        memcpy(d->layer[i].part, part, (size_t)parts * sizeof *part);
    }
    return true;
}

// Layers with one window form a group of the KV cache.
static bool group_layers(lq_desc *d, lq_err *err) {
    d->groups = 0;
    for (int i = 0; i < d->layers; i++) {
        const lq_part *a = lq_layer_attn(&d->layer[i]);
        int g = 0;
        if (!a) continue;
        while (g < d->groups && d->group_window[g] != a->window) g++;
        if (g == LQ_KV_GROUPS)
            return lq_fail(err, LQ_E_UNSUPPORTED, "%s: more than %d different windows", what, LQ_KV_GROUPS);
        if (g == d->groups) d->group_window[d->groups++] = a->window;
        d->layer[i].group = g;
    }
    return true;
}

static bool layer_types(const cJSON *types, lq_desc *d, int window, lq_err *err) {
    int i = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, types) {
        if (!cJSON_IsString(v) || i == d->layers) break;
        const bool slides = !strcmp(v->valuestring, "sliding_attention");
        if (!slides && strcmp(v->valuestring, "full_attention") != 0)
            return lq_fail(err, LQ_E_UNSUPPORTED,
                           "%s: layer_types has \"%s\", expected full_attention or sliding_attention", what,
                           v->valuestring);
        if (slides && !window)
            return lq_fail(err, LQ_E_FORMAT, "%s: layer_types has sliding_attention, but there is no sliding_window",
                           what);
        d->layer[i].part[0].window = slides ? window : 0;
        i++;
    }
    return (!v && i == d->layers) || lq_fail(err, LQ_E_FORMAT, "%s: layer_types is not a list of %d words", what,
                                             d->layers);
}

bool lq_layers_group(const cJSON *c, lq_desc *d, int window, lq_err *err) {
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(c, "layer_types");
    if (types && !cJSON_IsNull(types) && !layer_types(types, d, window, err)) return false;
    return group_layers(d, err);
}

bool lq_layers_window(const cJSON *c, lq_desc *d, int window, int from, lq_err *err) {
    for (int i = from; i < d->layers; i++) d->layer[i].part[0].window = window;
    return lq_layers_group(c, d, window, err);
}

bool lq_layers_ropes(const cJSON *c, lq_desc *d, int window, int every, lq_err *err) {
    // Which layers slide says which rope they have: without a window it must be said.
    if (!window && !cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(c, "layer_types")))
        return lq_fail(err, LQ_E_FORMAT, "%s: sliding_window is null, and there are no layer_types", what);
    if (!lq_layers_pattern(c, d, window, every, err)) return false;
    for (int i = 0; i < d->layers; i++) d->layer[i].part[0].rope = d->layer[i].part[0].window ? 1 : 0;
    return true;
}

bool lq_layers_pattern(const cJSON *c, lq_desc *d, int window, int every, lq_err *err) {
    for (int i = 0; i < d->layers; i++)
        if ((i + 1) % every) d->layer[i].part[0].window = window;
    return lq_layers_group(c, d, window, err);
}

bool lq_config_rms(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm = LQ_NORM_RMS;
    if (d->norm_eps == 0) d->norm_eps = 1e-6f;
    return lq_config_sizes(c, d, &part[0], &part[1], err) && lq_config_act(c, "hidden_act", &part[1].act, err) &&
           lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err);
}

bool lq_config_llama(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    if (!lq_config_rms(c, d, part, err) || !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err))
        return false;
    d->ropes = 1;
    return true;
}

bool lq_config_bias(const cJSON *c, const char *key, lq_part *attn, lq_err *err) {
    bool bias = attn->q_bias;
    if (!lq_config_bool(c, key, &bias, err)) return false;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = bias;
    return true;
}

void lq_ends(lq_desc *d, int bos, int eos) {
    if (bos >= 0 && bos < d->vocab) d->bos = bos;
    if (eos >= 0 && eos < d->vocab) d->eos[0] = eos, d->eoses = 1;
}

bool lq_config_experts(const cJSON *c, const lq_ckpt *ckpt, const char *const *sources, lq_desc *d, lq_part *moe,
                       lq_err *err) {
    static const char fused[] = ".experts.gate_up_proj";
    // transformers 5 writes the one for what 4 called the other.
    const char *count = spelt(c, "num_experts", "num_local_experts");
    int experts = moe->experts, used = moe->experts_used;
    if (!lq_config_int(c, count, 1, LQ_EXPERTS, &experts, err) ||
        !lq_config_int(c, "num_experts_per_tok", 1, experts, &used, err))
        return false;
    if (used > experts)
        return lq_fail(err, LQ_E_FORMAT, "%s: num_experts_per_tok %d is more than %s %d", what, used, count, experts);
    moe->kind = LQ_P_MOE;
    moe->experts = experts;
    moe->experts_used = used;
    for (size_t i = 0; i < lq_ckpt_count(ckpt); i++) {
        const char *name = lq_ckpt_at(ckpt, i)->name;
        const size_t n = strlen(name), end = sizeof fused - 1;
        if (n < end || strcmp(name + n - end, fused) != 0) continue;
        d->sources = sources;
        moe->gate_up = true;
        break;
    }
    return true;
}
