// embed.c: one vector of a whole sequence: which states it is pooled of, as sentence-transformers' files beside a model
// say, and the pooling. Sums are in f64 and in the order of the tokens, so that a vector has the same bits however
// its prompt was cut. Refuses what would be another vector than the model's makers mean.
#include "runtime/engine/request.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// By what sentence-transformers calls them: "pooling_mode_<word>": true, or "pooling_mode": "<name>".
static const struct { const char *word, *name; lq_pooling pool; } kinds[] = {
    {"lasttoken", "lasttoken", LQ_POOL_LAST},
    {"mean_tokens", "mean", LQ_POOL_MEAN},
    {"cls_token", "cls", LQ_POOL_FIRST},
    {"weightedmean_tokens", "weightedmean", LQ_POOL_WEIGHTED},
    {"mean_sqrt_len_tokens", "mean_sqrt_len_tokens", LQ_POOL_ROOT},
    {"max_tokens", "max", LQ_POOL_MAX},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

// --- what a model says ---

// A folder has the second as "1_Pooling/config.json".
static const char *const chain_file = "modules.json", *const pool_file = "1_Pooling.json";

// *out is NULL where there is no such file.
static bool read_json(const lq_model *m, const char *name, cJSON **out, lq_err *err) {
    char *text;
    size_t n;
    *out = NULL;
    if (!lq_model_file(m, name, &text, &n, err)) return false;
    const bool done = !text || lq_json_parse(text, n, (lq_json_limits){.bytes = n, .depth = 16}, name, out, err);
    lq_free(text);
    return done;
}

static bool unsupported(const char *file, const char *what, lq_err *err) {
    return lq_fail(err, LQ_E_UNSUPPORTED, "%s: an embedding of this model is %s: lq makes none such", file, what);
}

// Behind the model a pooling, and at most a normalization.
static bool read_chain(const cJSON *tree, bool *raw, lq_err *err) {
    int at = 0;
    if (!cJSON_IsArray(tree)) return lq_fail(err, LQ_E_FORMAT, "%s is not an array", chain_file);
    *raw = true;
    for (const cJSON *v = tree->child; v; v = v->next, at++) {
        const char *type = lq_json_str(v, "type"), *path = lq_json_str(v, "path");
        const char *dot = type ? strrchr(type, '.') : NULL;
        const char *name = dot ? dot + 1 : type;
        if (!name) return lq_fail(err, LQ_E_FORMAT, "%s: entry %d has no type", chain_file, at);
        if (at == 0 && !strcmp(name, "Transformer")) continue;
        if (at == 1 && !strcmp(name, "Pooling") && path && !strcmp(path, "1_Pooling")) continue;
        if (at != 2 || strcmp(name, "Normalize") != 0)
            return lq_fail(err, LQ_E_UNSUPPORTED, "%s: entry %d is a %.60s, expected a Transformer, a Pooling in 1_Pooling "
                           "and at most a Normalize: lq makes no such embeddings", chain_file, at, name);
        *raw = false;
    }
    return at > 1 || unsupported(chain_file, "not pooled", err);
}

static bool read_kind(const cJSON *tree, lq_pooling *pool, lq_err *err) {
    const char *said = lq_json_str(tree, "pooling_mode");
    int found = 0;
    for (size_t i = 0; i < KINDS; i++) {
        char key[64];
        bool on = said && !strcmp(said, kinds[i].name);
        snprintf(key, sizeof key, "pooling_mode_%s", kinds[i].word);
        if (!lq_json_bool(tree, key, &on, pool_file, err)) return false;
        if (on) *pool = kinds[i].pool;
        found += on;
    }
    return found == 1 || unsupported(pool_file, found ? "several poolings side by side" : "of an unknown pooling", err);
}

// The head of a rotated model reads states in a basis of their own, without the factors of the last norm.
static bool rotated(const lq_model *m) {
    const char *recipe = lq_ckpt_meta(m->ckpt, "lq.recipe");
    cJSON *tree = NULL;
    if (!recipe || !lq_json_parse(recipe, strlen(recipe), (lq_json_limits){1u << 20, 16}, "lq.recipe", &tree, NULL))
        return false;
    const char *transform = lq_json_str(tree, "transform");
    const bool is = transform && strstr(transform, "rotate");
    cJSON_Delete(tree);
    return is;
}

bool lq_model_pooling(const lq_model *m, lq_pooling *pool, bool *raw, lq_err *err) {
    cJSON *chain = NULL, *kind = NULL;
    *pool = LQ_POOL_LAST;
    *raw = false;
    if (rotated(m))
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s was rotated: its states are not those that embeddings are made of; "
                       "quantize it by another method", lq_ckpt_path(m->ckpt));
    bool done = read_json(m, chain_file, &chain, err) && (!chain || read_chain(chain, raw, err)) &&
                read_json(m, pool_file, &kind, err) && (!kind || read_kind(kind, pool, err));
    cJSON_Delete(chain);
    cJSON_Delete(kind);
    return done;
}

// --- pooling ---

bool lq_embed_check(const lq_model *m, const lq_request *r, lq_err *err) {
    const int wide = lq_desc_wide(&m->desc);
    if (!r->pool) return true;
    if ((int)r->pool < 0 || r->pool > LQ_POOL_MAX)
        return lq_fail(err, LQ_E_USAGE, "pool is %d, expected 0 to %d", (int)r->pool, LQ_POOL_MAX);
    return (r->pool_dims >= 0 && r->pool_dims <= wide) ||
           lq_fail(err, LQ_E_USAGE, "dimensions is %d, an embedding of this model has %d", r->pool_dims, wide);
}

bool lq_embed_open(const lq_model *m, lq_req *q) {
    if (!q->r.pool) return true;
    q->wide = lq_desc_wide(&m->desc);
    q->dims = q->r.pool_dims ? q->r.pool_dims : q->wide;
    q->pooled = q->r.pool == LQ_POOL_LAST ? q->prompt - 1 : 0;
    q->pool_end = q->r.pool == LQ_POOL_FIRST ? 1 : q->prompt;
    q->bytes += (size_t)q->wide * sizeof *q->sum + (size_t)q->dims * sizeof *q->vector;
    q->sum = calloc((size_t)q->wide, sizeof *q->sum);
    q->vector = calloc((size_t)q->dims, sizeof *q->vector);
    return q->sum && q->vector;
}

void lq_embed_add(lq_req *q, const float *h) {
    const double weight = q->r.pool == LQ_POOL_WEIGHTED ? q->pooled + 1 : 1;
    const bool first = q->pooled == 0, most = q->r.pool == LQ_POOL_MAX;
    for (int i = 0; i < q->wide; i++) {
        const double v = (double)h[i];
        if (!most) q->sum[i] += weight * v;
        else if (first || v > q->sum[i] || isnan(v)) q->sum[i] = v;
    }
    q->pooled++;
}

// What the sum is over.
static double share(const lq_req *q) {
    const double n = q->prompt;
    switch (q->r.pool) {
    case LQ_POOL_MEAN: return n;
    case LQ_POOL_WEIGHTED: return n * (n + 1) / 2;
    case LQ_POOL_ROOT: return sqrt(n);
    default: return 1;
    }
}

bool lq_embed_end(lq_req *q) {
    double square = 0, over = share(q);
    for (int i = 0; i < q->dims; i++) square += q->sum[i] * q->sum[i];
    if (!isfinite(square)) return false;
    if (!q->r.pool_raw) over = square > 0 ? sqrt(square) : 1;
    for (int i = 0; i < q->dims; i++) q->vector[i] = (float)(q->sum[i] / over);
    return true;
}
