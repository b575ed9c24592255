// recipe.c: a recipe as JSON, as it stands in a file's metadata and as --recipe takes it: what is read overrides the
// method's row, what is written says everything that decides the bytes. Owns nothing.
#include "quant/pass.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char *const alphas[] = {"model", "layer", "input", NULL};
static const char *const orders[] = {"none", "columns", "groups", NULL};

// --- reading ---

static bool fail_word(const char *key, const char *word, lq_err *err) {
    return lq_fail(err, LQ_E_USAGE, "recipe: \"%s\": there is no \"%s\"", key, word);
}

// The place of a word in a list; -1: it is not there, which *err says.
static int place_of(const char *key, const char *word, size_t n, const char *const *words, size_t count, lq_err *err) {
    for (size_t i = 0; i < count && words[i]; i++)
        if (strlen(words[i]) == n && !memcmp(words[i], word, n)) return (int)i;
    fail_word(key, word, err);
    return -1;
}

static bool read_word(const cJSON *json, const char *key, const char *const *words, size_t count, int *out,
                      lq_err *err) {
    const char *word = lq_json_str(json, key);
    if (!word) return !cJSON_GetObjectItemCaseSensitive(json, key) ||
                      lq_fail(err, LQ_E_USAGE, "recipe: \"%s\" is not a word", key);
    *out = place_of(key, word, strlen(word), words, count, err);
    return *out >= 0;
}

// "smooth+clip"
static bool read_transforms(const cJSON *json, unsigned *out, lq_err *err) {
    const char *words = lq_json_str(json, "transform"), *names[LQ_TRANSFORMS];
    if (!words) return true;
    for (int i = 0; i < LQ_TRANSFORMS; i++) names[i] = lq_transforms[i].name;
    *out = 0;
    for (size_t n; *words && strcmp(words, "none") != 0; words += n + (words[n] == '+')) {
        n = strcspn(words, "+");
        const int i = place_of("transform", words, n, names, LQ_TRANSFORMS, err);
        if (i < 0) return false;
        *out |= 1u << i;
    }
    return true;
}

static bool read_number(const cJSON *json, const char *key, double least, double most, float *out, lq_err *err) {
    double x = (double)*out;
    if (!lq_json_num(json, key, &x, "recipe", err)) return false;
    if (!(x >= least && x <= most))
        return lq_fail(err, LQ_E_USAGE, "recipe: \"%s\" is %g, expected %g to %g", key, x, least, most);
    *out = (float)x;
    return true;
}

bool lq_recipe_alpha(const char *text, lq_recipe *r, lq_err *err) {
    char *end;
    const double x = strtod(text, &end);
    if (end != text && !*end && x > 0 && x <= 1) {
        r->alpha = (float)x;
        return true;
    }
    for (int i = 0; alphas[i]; i++)
        if (!strcmp(alphas[i], text)) {
            r->alpha = 0, r->alpha_of = (lq_alpha_of)i;
            return true;
        }
    return lq_fail(err, LQ_E_USAGE,
                   "alpha: \"%.40s\", expected a number above 0 and up to 1, \"input\", \"layer\" or \"model\"", text);
}

// A number, 0 for what is searched, or whose it is.
static bool read_alpha(const cJSON *json, lq_recipe *r, lq_err *err) {
    const char *word = lq_json_str(json, "alpha");
    if (word) return lq_recipe_alpha(word, r, err) || lq_fail_in(err, "recipe");
    return read_number(json, "alpha", 0, 1, &r->alpha, err);
}

static bool known_key(const char *key) {
    // Those of the last line follow from the others, or stand for options (lq_recipe_opts).
    static const char *const keys[] = {"method", "transform", "rounding", "order", "damp", "repay", "refine", "range",
                                       "steps", "least", "type", "salient", "alpha", "threshold", "share",
                                       "modules", "mixed", "kv_scales", "refit", "match", "stats", "embed", "head",
                                       "calib", "prune", "from"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

// Whether and how ranges are searched. Without the word the rounding says it: "search" is "nearest" with one, and no
// steps are no search.
static bool read_range(const cJSON *json, lq_recipe *r, lq_err *err) {
    const char *names[LQ_RANGES], *rounding = lq_json_str(json, "rounding");
    int64_t steps = r->steps;
    int range = r->range;
    for (size_t i = 0; i < LQ_RANGES; i++) names[i] = lq_range_name(i);
    if (!lq_json_int(json, "steps", 0, 1000, &steps, "recipe", err)) return false;
    const bool counted = cJSON_GetObjectItemCaseSensitive(json, "steps") != NULL;
    if (rounding && !strcmp(rounding, "search")) range = LQ_RANGE_MSE;
    if (rounding && !strcmp(rounding, "nearest")) range = LQ_RANGE_FULL;
    if (rounding && !strcmp(rounding, "gptq") && counted) range = LQ_RANGE_WEIGHTED;
    if (counted && !steps) range = LQ_RANGE_FULL;
    if (!read_word(json, "range", names, LQ_RANGES, &range, err)) return false;
    r->range = (lq_range)range, r->steps = (int)steps;
    return true;
}

static bool read_parts(const cJSON *json, lq_recipe *r, lq_err *err) {
    int rounding = r->rounding, order = r->order, salient = r->salient;
    int64_t refine = r->refine;
    bool refit = !r->as_cut;
    const char *word = lq_json_str(json, "rounding");
    const bool search = word && !strcmp(word, "search");
    for (const cJSON *m = json->child; m; m = m->next)
        if (!known_key(m->string)) return lq_fail(err, LQ_E_USAGE, "recipe: there is no \"%s\"", m->string);
    if (!read_transforms(json, &r->transform, err) ||
        (!search && !read_word(json, "rounding", lq_rounding_names, 2, &rounding, err)) || !read_range(json, r, err) ||
        !read_word(json, "order", orders, 3, &order, err) ||
        !read_word(json, "salient", lq_salient_names, 3, &salient, err) ||
        !read_alpha(json, r, err) ||
        !read_number(json, "threshold", 0, 1e30, &r->threshold, err) ||
        !read_number(json, "share", 0, 1, &r->share, err) ||
        !read_number(json, "damp", 0, 10, &r->damp, err) || !read_number(json, "repay", 0, 1, &r->repay, err) ||
        !read_number(json, "least", 0, 1, &r->least, err) ||
        !lq_json_int(json, "refine", 0, 1000, &refine, "recipe", err) ||
        !lq_json_bool(json, "kv_scales", &r->kv_scales, "recipe", err) ||
        !lq_json_bool(json, "refit", &refit, "recipe", err))
        return false;
    r->as_cut = !refit;
    r->salient = (lq_salient)salient;
    r->rounding = search ? LQ_ROUND_NEAREST : (lq_rounding)rounding;
    r->order = (lq_order)order, r->refine = (int)refine;
    const char *type = lq_json_str(json, "type");
    return !type || !strcmp(type, "keep") || lq_wtype_parse(type, &r->type, err) || lq_fail_in(err, "recipe");
}

static bool take_word(const cJSON *json, const char *key, const char **to, lq_err *err) {
    const char *word = lq_json_str(json, key);
    if (!word && cJSON_GetObjectItemCaseSensitive(json, key))
        return lq_fail(err, LQ_E_USAGE, "recipe: \"%s\" is not a word", key);
    if (word && !*to) *to = word;
    return true;
}

// The text that was looked at, and how.
static bool take_calib(const cJSON *c, lq_quant_opts *o, lq_err *err) {
    static const char *const keys[] = {"text", "samples", "seqlen", "seed", "tokens", "all_experts", NULL};
    const char *text = NULL;
    int64_t samples = (int64_t)o->samples, seqlen = o->seqlen, seed = 0;
    bool all = false;
    if (!c) return true;
    if (!cJSON_IsObject(c)) return lq_fail(err, LQ_E_USAGE, "recipe: \"calib\" is no object {...}");
    for (const cJSON *m = c->child; m; m = m->next)
        if (place_of("calib", m->string, strlen(m->string), keys, 6, err) < 0) return false;
    if (!take_word(c, "text", &text, err) || !lq_json_int(c, "samples", 1, 1 << 20, &samples, "recipe", err) ||
        !lq_json_int(c, "seqlen", 2, 1 << 20, &seqlen, "recipe", err) ||
        !lq_json_int(c, "seed", 0, (int64_t)1 << 53, &seed, "recipe", err) ||
        !lq_json_bool(c, "all_experts", &all, "recipe", err))
        return false;
    if (text && !o->calib && strcmp(text, "built-in") != 0) o->calib = text;
    if (!o->samples) o->samples = (size_t)samples;
    if (!o->seqlen) o->seqlen = (int)seqlen;
    if (!o->seed && !o->seeded) o->seed = (uint64_t)seed;
    o->all_experts |= all;
    return true;
}

bool lq_recipe_opts(lq_quant_opts *o, cJSON **held, lq_err *err) {
    *held = NULL;
    if (!o->recipe) return true;
    const lq_json_limits limits = {16u << 20, 16};
    if (!lq_json_parse(o->recipe, strlen(o->recipe), limits, "recipe", held, err)) return false;
    const cJSON *json = *held;
    if (!cJSON_IsObject(json)) return lq_fail(err, LQ_E_USAGE, "recipe: it is no object {...}");
    if (cJSON_GetObjectItemCaseSensitive(json, "match"))
        return lq_fail(err, LQ_E_USAGE, "recipe: \"match\" belongs to a rule of \"modules\"");
    return take_word(json, "method", &o->method, err) && take_word(json, "type", &o->type, err) &&
           take_word(json, "embed", &o->embed, err) && take_word(json, "head", &o->head, err) &&
           take_calib(cJSON_GetObjectItemCaseSensitive(json, "calib"), o, err);
}

bool lq_recipe_read(const cJSON *json, lq_recipe *r, cJSON **rules, bool *mixed, lq_err *err) {
    *rules = NULL;
    return read_parts(json, r, err) && lq_json_bool(json, "mixed", mixed, "recipe", err) &&
           lq_rules_read(json, rules, err);
}

// What a rule may say of one matrix.
bool lq_recipe_rule(const cJSON *rule, lq_recipe *r, bool *keep, lq_err *err) {
    static const char *const keys[] = {"match", "type",   "rounding", "order", "damp",
                                       "repay", "refine", "range",    "steps", "least"};
    enum { KEYS = sizeof keys / sizeof *keys };
    for (const cJSON *m = rule->child; m; m = m->next) {
        int i = 0;
        while (i < KEYS && strcmp(m->string, keys[i]) != 0) i++;
        if (i == KEYS) return lq_fail(err, LQ_E_USAGE, "a rule has no \"%s\"", m->string);
    }
    const char *type = lq_json_str(rule, "type");
    *keep = type ? !strcmp(type, "keep") : *keep;
    return read_parts(rule, r, err);
}

// --- writing ---

// "smooth+clip" of the bits that are set, "none" of none.
static void put_bits(lq_text *t, const char *key, unsigned bits, const char *const *names) {
    lq_text_fmt(t, "\"%s\": \"%s", key, bits ? "" : "none");
    for (unsigned i = 0; bits >> i; i++)
        if (bits >> i & 1) lq_text_fmt(t, "%s%s", bits & ((1u << i) - 1) ? "+" : "", names[i]);
    lq_text_fmt(t, "\", ");
}

// In as few digits as give it back.
static void put_number(lq_text *t, const char *key, float x) {
    char digits[32];
    for (int n = 1; n <= 9; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, (double)x);
        if (strtof(digits, NULL) == x) break;
    }
    lq_text_fmt(t, ", \"%s\": %s", key, digits);
}

void lq_recipe_put(lq_text *t, const lq_recipe *r) {
    const char *transforms[LQ_TRANSFORMS];
    for (int i = 0; i < LQ_TRANSFORMS; i++) transforms[i] = lq_transforms[i].name;
    put_bits(t, "stats", lq_recipe_needs(r), lq_stat_names);
    put_bits(t, "transform", r->transform, transforms);
    lq_text_fmt(t, "\"rounding\": \"%s\", \"salient\": \"%s\"", lq_rounding_names[r->rounding],
                lq_salient_names[r->salient]);
    if (r->transform & LQ_T_SMOOTH && r->alpha > 0) put_number(t, "alpha", r->alpha);
    else if (r->transform & LQ_T_SMOOTH)
        lq_text_fmt(t, ", \"alpha\": \"%s\"", alphas[r->alpha_of]);
    if (r->salient == LQ_SALIENT_OUTLIER) put_number(t, "threshold", r->threshold > 0 ? r->threshold : 6);
    if (r->salient != LQ_SALIENT_NONE) put_number(t, "share", lq_salient_share(r));
    if (r->kv_scales) lq_text_fmt(t, ", \"kv_scales\": true");
    if (r->as_cut) lq_text_fmt(t, ", \"refit\": false");
    const bool searched = r->range != LQ_RANGE_FULL, tried = searched || r->transform & LQ_T_CLIP;
    if (searched || r->rounding == LQ_ROUND_GPTQ) lq_text_fmt(t, ", \"range\": \"%s\"", lq_range_name(r->range));
    if (tried && r->steps) lq_text_fmt(t, ", \"steps\": %d", r->steps);
    if (tried && r->least > 0) put_number(t, "least", r->least);
    if (r->rounding != LQ_ROUND_GPTQ) return;
    lq_text_fmt(t, ", \"order\": \"%s\"", orders[r->order]);
    if (r->damp > 0) put_number(t, "damp", r->damp);
    if (r->refine) lq_text_fmt(t, ", \"refine\": %d", r->refine);
    put_number(t, "repay", r->repay);
}

static void tokens_hash(const lq_calib *c, char out[17]) {
    snprintf(out, 17, "%016" PRIx64, XXH64(c->ids, c->samples * (size_t)c->len * sizeof *c->ids, 0));
}

bool lq_recipe_calibrated(const cJSON *recipe, const lq_calib *c) {
    const cJSON *calib = recipe ? cJSON_GetObjectItemCaseSensitive(recipe, "calib") : NULL;
    const char *tokens = calib ? lq_json_str(calib, "tokens") : NULL;
    char own[17];
    if (!c->ids) return true;
    tokens_hash(c, own);
    return !tokens || !strcmp(tokens, own);
}

// The text by its tokens.
void lq_recipe_put_calib(lq_text *t, const lq_calib *c, const lq_quant_opts *o) {
    char tokens[17] = "";
    if (c->ids) tokens_hash(c, tokens);
    lq_text_fmt(t, ", \"calib\": {\"text\": ");
    lq_text_json(t, c->source, strlen(c->source));
    lq_text_fmt(t, ", \"samples\": %zu, \"seqlen\": %d, \"seed\": %" PRIu64 ", \"tokens\": \"%s\"%s}", c->samples,
                c->len, o->seed, tokens, o->all_experts ? ", \"all_experts\": true" : "");
}
