// rope.c: rotary positions: what a config says of them, and the frequencies that follow, in f32 as transformers
// computes them; the slopes of ALiBi. Refuses scalings it does not know and scalings that lack a number they need.
#include "runtime/model/arch.h"
#include <math.h>
#include <string.h>

static const double TAU = 6.283185307179586;

static const struct { const char *name; lq_rope_kind kind; } kinds[] = {
    {"default", LQ_ROPE_DEFAULT}, {"linear", LQ_ROPE_LINEAR}, {"dynamic", LQ_ROPE_DYNAMIC}, {"yarn", LQ_ROPE_YARN},
    {"mrope", LQ_ROPE_DEFAULT}, // of text all axes have the same position
    {"llama3", LQ_ROPE_LLAMA3},   {"longrope", LQ_ROPE_LONG}, {"su", LQ_ROPE_LONG},
    {"proportional", LQ_ROPE_SHARE},
};

static const char *const in_4 = "config.json: rope_scaling", *const in_5 = "config.json: rope_parameters";

static bool factors_read(const cJSON *scaling, const char *what, const char *key, int n, float *out, lq_err *err) {
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(scaling, key), *v;
    if (!cJSON_IsArray(a)) return lq_fail(err, LQ_E_FORMAT, "%s.%s is not an array", what, key);
    int i = 0;
    cJSON_ArrayForEach(v, a) {
        if (i == n || !cJSON_IsNumber(v) || !(v->valuedouble > 0))
            return lq_fail(err, LQ_E_FORMAT, "%s.%s must hold %d positive numbers", what, key, n);
        out[i++] = (float)v->valuedouble;
    }
    return i == n || lq_fail(err, LQ_E_FORMAT, "%s.%s holds %d numbers, expected %d", what, key, i, n);
}

static bool needs(const cJSON *s, const char *what, const char *key, lq_err *err) {
    return cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(s, key)) ||
           lq_fail(err, LQ_E_FORMAT, "%s.%s is missing", what, key);
}

// yarn: the factor of cos and sin by the two keys that some models give instead of attention_factor.
static bool yarn_mscale(const cJSON *s, const char *what, lq_rope *r, lq_err *err) {
    double one = 0, all = 0;
    if (!lq_json_num(s, "mscale", &one, what, err) || !lq_json_num(s, "mscale_all_dim", &all, what, err)) return false;
    if (one > 0 && all > 0 && !(r->attn_factor > 0) && r->factor > 1)
        r->attn_factor = (0.1 * one * log(r->factor) + 1) / (0.1 * all * log(r->factor) + 1);
    return true;
}

static bool scaling_read(const cJSON *s, const char *what, bool named, int original_ctx, lq_rope *r, lq_err *err) {
    const char *type = lq_json_str(s, "rope_type");
    if (!type) type = lq_json_str(s, "type");
    if (!type && !(named && cJSON_GetObjectItemCaseSensitive(s, "factor"))) type = "default";
    if (!type) return lq_fail(err, LQ_E_FORMAT, "%s names no rope_type", what);
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strcmp(kinds[i].name, type)) i++;
    if (i == sizeof kinds / sizeof *kinds)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: unknown rope_type \"%s\"", what, type);
    r->kind = kinds[i].kind;
    int64_t original = original_ctx;
    const bool asked = r->kind != LQ_ROPE_DEFAULT && r->kind != LQ_ROPE_LONG && r->kind != LQ_ROPE_SHARE;
    if (asked && !needs(s, what, "factor", err)) return false;
    if (r->kind == LQ_ROPE_LLAMA3 && !needs(s, what, "original_max_position_embeddings", err)) return false;
    if (!lq_json_num(s, "factor", &r->factor, what, err) ||
        !lq_json_num(s, "low_freq_factor", &r->low_factor, what, err) ||
        !lq_json_num(s, "high_freq_factor", &r->high_factor, what, err) ||
        !lq_json_num(s, "beta_fast", &r->beta_fast, what, err) ||
        !lq_json_num(s, "beta_slow", &r->beta_slow, what, err) ||
        !lq_json_num(s, "attention_factor", &r->attn_factor, what, err) ||
        !lq_json_bool(s, "truncate", &r->truncate, what, err) ||
        !lq_json_int(s, "original_max_position_embeddings", 1, 1 << 30, &original, what, err))
        return false;
    r->original_ctx = (int)original;
    if (!(r->factor > 0) || !isfinite(r->factor))
        return lq_fail(err, LQ_E_FORMAT, "%s: factor %g, expected a positive number", what, r->factor);
    if (r->kind == LQ_ROPE_LLAMA3 && !(r->low_factor > 0 && r->high_factor >= r->low_factor))
        return lq_fail(err, LQ_E_FORMAT, "%s: low_freq_factor %g and high_freq_factor %g, expected 0 < low <= high",
                       what, r->low_factor, r->high_factor);
    if (r->kind == LQ_ROPE_YARN && !(r->beta_fast > r->beta_slow && r->beta_slow > 0))
        return lq_fail(err, LQ_E_FORMAT, "%s: beta_fast %g and beta_slow %g, expected 0 < slow < fast", what,
                       r->beta_fast, r->beta_slow);
    if (r->kind == LQ_ROPE_YARN && !yarn_mscale(s, what, r, err)) return false;
    if (r->kind == LQ_ROPE_LONG)
        return factors_read(s, what, "short_factor", r->dim / 2, r->short_factor, err) &&
               factors_read(s, what, "long_factor", r->dim / 2, r->long_factor, err);
    return true;
}

// null, absent or an object.
static bool object_check(const cJSON *config, const char *key, lq_err *err) {
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(config, key);
    return !o || cJSON_IsNull(o) || cJSON_IsObject(o) ||
           lq_fail(err, LQ_E_FORMAT, "config.json: %s is not an object", key);
}

// An object with a scaling for each kind of layer: only some models say which layers are of which kind.
static bool flat_check(const cJSON *o, const char *key, lq_err *err) {
    const cJSON *v;
    cJSON_ArrayForEach(v, o)
        if (cJSON_IsObject(v))
            return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s has \"%s\" for some layers alone", key, v->string);
    return true;
}

static const cJSON *object(const cJSON *config, const char *key) {
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(config, key);
    return cJSON_IsObject(o) && o->child ? o : NULL;
}

// The rope of a config (NULL: it says nothing of it) whose scaling is the object `scaling` of name `from`, or NULL.
// What stands there goes before what stands beside it.
static bool rope_read(const cJSON *config, const lq_rope_keys *keys, const cJSON *scaling, const char *from,
                      int head_dim, int ctx, lq_rope *r, lq_err *err) {
    static const char *const what = "config.json";
    const char *outside = keys->inside ? "" : "original_max_position_embeddings";
    const int beside = r->original_ctx;
    double partial = keys->partial != 0 ? keys->partial : 1;
    *r = (lq_rope){.kind = LQ_ROPE_DEFAULT, .theta = r->theta > 0 ? r->theta : 10000, .factor = 1, .beta_fast = 32,
                   .beta_slow = 1, .truncate = true, .original_ctx = ctx};
    int64_t original = beside ? beside : ctx; // Phi-3 has it beside rope_scaling, not inside
    if (!lq_json_int(config, outside, 1, LQ_CTX_MAX, &original, what, err) ||
        !lq_json_num(config, keys->theta, &r->theta, what, err) ||
        !lq_json_num(config, keys->share, &partial, what, err) ||
        !lq_json_num(scaling, "rope_theta", &r->theta, what, err) ||
        !lq_json_num(scaling, "partial_rotary_factor", &partial, what, err))
        return false;
    if (!(r->theta > 1) || !isfinite(r->theta))
        return lq_fail(err, LQ_E_FORMAT, "%s: rope_theta %g, expected more than 1", what, r->theta);
    if (!(partial > 0 && partial <= 1))
        return lq_fail(err, LQ_E_FORMAT, "%s: partial_rotary_factor %g, expected 0 to 1", what, partial);
    r->dim = (int)(head_dim * (keys->partial != 0 ? partial : 1));
    if (r->dim < 2 || r->dim % 2 || r->dim > LQ_ROPE_DIM)
        return lq_fail(err, LQ_E_FORMAT, "%s: rotary dimension %d, expected an even number up to %d", what, r->dim,
                       LQ_ROPE_DIM);
    r->original_ctx = (int)original;
    if (scaling && !scaling_read(scaling, from, !strcmp(from, in_4), (int)original, r, err)) return false;
    // Without a scaling transformers does not ask for the share of models that turn whole heads; with one it fails.
    if (keys->partial == 0 && partial != 1 && r->kind != LQ_ROPE_DEFAULT && r->kind != LQ_ROPE_SHARE)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: partial_rotary_factor %g of a model that turns whole heads", what,
                       partial);
    if (beside || cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(config, outside))) r->original_ctx = (int)original;
    r->share = partial;
    if (r->kind == LQ_ROPE_DYNAMIC) r->original_ctx = ctx; // transformers asks no other key
    if (r->kind == LQ_ROPE_LONG && !(r->attn_factor > 0)) {
        const bool given = cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(scaling, "factor"));
        // of what the model was made for, not opened with
        const double ratio = given ? r->factor : (double)ctx / r->original_ctx;
        r->attn_factor = ratio <= 1 ? 1 : sqrt(1 + log(ratio) / log(r->original_ctx));
    }
    return true;
}

bool lq_rope_read_as(const cJSON *config, const lq_rope_keys *keys, int head_dim, int ctx, lq_rope *r, lq_err *err) {
    const cJSON *params = object(config, "rope_parameters"), *scaling = object(config, "rope_scaling");
    return object_check(config, "rope_parameters", err) && object_check(config, "rope_scaling", err) &&
           flat_check(params, "rope_parameters", err) && flat_check(scaling, "rope_scaling", err) &&
           rope_read(config, keys, scaling ? scaling : params, scaling ? in_4 : in_5, head_dim, ctx, r, err);
}

bool lq_rope_read(const cJSON *config, int head_dim, int ctx, double partial, lq_rope *r, lq_err *err) {
    const lq_rope_keys keys = {"rope_theta", "partial_rotary_factor", partial, false};
    return lq_rope_read_as(config, &keys, head_dim, ctx, r, err);
}

bool lq_rope_read_kinds(const cJSON *config, int head_dim, int ctx, lq_rope *full, lq_rope *sliding, lq_err *err) {
    static const lq_rope_keys keys = {"rope_theta", "partial_rotary_factor", 0, .inside = true};
    const cJSON *both = cJSON_GetObjectItemCaseSensitive(config, "rope_parameters"), *of[2] = {NULL};
    const cJSON *scaling = object(config, "rope_scaling"), *v;
    static const char *const kinds_of[2] = {"full_attention", "sliding_attention"};
    if (!object_check(config, "rope_parameters", err) || !object_check(config, "rope_scaling", err) ||
        !flat_check(scaling, "rope_scaling", err))
        return false;
    for (int i = 0; i < 2; i++)
        if (cJSON_IsObject(both)) of[i] = object(both, kinds_of[i]);
    cJSON_ArrayForEach(v, both)
        if (strcmp(v->string, kinds_of[0]) != 0 && strcmp(v->string, kinds_of[1]) != 0)
            return lq_fail(err, LQ_E_UNSUPPORTED,
                           "config.json: rope_parameters has \"%s\", expected %s and %s", v->string, kinds_of[0],
                           kinds_of[1]);
    if (scaling && of[0])
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_scaling beside rope_parameters.%s", kinds_of[0]);
    const int dim = full->dim ? full->dim : head_dim, narrow = sliding->dim ? sliding->dim : head_dim;
    return rope_read(config, &keys, scaling ? scaling : of[0], scaling ? in_4 : in_5, dim, ctx, full, err) &&
           rope_read(NULL, &keys, of[1], in_5, narrow, ctx, sliding, err);
}

// The dimension whose wavelength makes `turns` turns in the original context.
static double yarn_border(const lq_rope *r, double turns) {
    return r->dim * log(r->original_ctx / (turns * TAU)) / (2 * log(r->theta));
}

static void yarn(const lq_rope *r, float *f, float *mscale) {
    double low = yarn_border(r, r->beta_fast), high = yarn_border(r, r->beta_slow);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, r->dim - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < r->dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low), keep = 1 - fminf(fmaxf(ramp, 0), 1);
        f[i] = f[i] / (float)r->factor * (1 - keep) + f[i] * keep;
    }
    *mscale = r->factor <= 1 ? 1 : (float)(0.1 * log(r->factor) + 1);
}

static void llama3(const lq_rope *r, float *f) {
    double low = r->original_ctx / r->low_factor, high = r->original_ctx / r->high_factor;
    for (int i = 0; i < r->dim / 2; i++) {
        float wave = (float)TAU / f[i], scaled = f[i] / (float)r->factor;
        if (wave > (float)low) f[i] = scaled;
        else if (wave >= (float)high && low > high) {
            float smooth = ((float)r->original_ctx / wave - (float)r->low_factor) /
                (float)(r->high_factor - r->low_factor);
            f[i] = (1 - smooth) * f[i] / (float)r->factor + smooth * f[i];
        }
    }
}

void lq_rope_resolve(const lq_rope *r, int ctx, float *f, float *mscale) {
    double theta = r->theta;
    if (r->kind == LQ_ROPE_DYNAMIC && ctx > r->original_ctx)
        theta *= pow(r->factor * ctx / r->original_ctx - (r->factor - 1), (double)r->dim / (r->dim - 2));
    for (int i = 0; i < r->dim / 2; i++) f[i] = 1.0f / (float)pow((float)theta, (float)(2 * i) / (float)r->dim);
    *mscale = 1;
    switch (r->kind) {
    case LQ_ROPE_NONE:
        for (int i = 0; i < r->dim / 2; i++) f[i] = 0;
        break;
    case LQ_ROPE_LINEAR:
        for (int i = 0; i < r->dim / 2; i++) f[i] /= (float)r->factor;
        break;
    case LQ_ROPE_SHARE:
        for (int i = 0; i < r->dim / 2; i++) f[i] = i < (int)(r->share * r->dim) / 2 ? f[i] / (float)r->factor : 0;
        break;
    case LQ_ROPE_YARN: yarn(r, f, mscale); break;
    case LQ_ROPE_LLAMA3: llama3(r, f); break;
    case LQ_ROPE_LONG: {
        const float *by = ctx > r->original_ctx ? r->long_factor : r->short_factor;
        for (int i = 0; i < r->dim / 2; i++) f[i] /= by[i];
        break;
    }
    default: break;
    }
    if ((r->kind == LQ_ROPE_YARN || r->kind == LQ_ROPE_LONG) && r->attn_factor > 0) *mscale = (float)r->attn_factor;
    if (r->short_mscale > 0) *mscale = (float)(ctx > r->original_ctx ? r->long_mscale : r->short_mscale);
    for (int i = 0; r->backward && i < r->dim / 2; i++) f[i] = -f[i];
}

// Powers of 2^(-8 / n) for n a power of two; other numbers of heads take those of half as many as the next one, then
// every second of that one's.
void lq_alibi_slopes(int heads, bool coarse, float *out) {
    int n = 1;
    while (n < heads) n *= 2;
    const int first = n == heads ? n : n / 2;
    for (int i = 0; i < heads; i++) {
        const double power = i < first ? (double)(i + 1) / first : (double)(2 * (i - first) + 1) / n;
        out[i] = (float)exp2(-8 * power);
        if (coarse) out[i] = lq_bf16_f32(lq_f32_bf16(out[i]));
    }
}
