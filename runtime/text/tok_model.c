// tok_model.c: the model of a tokenizer.json: BPE, Unigram, WordPiece or WordLevel.
// Refuses other types, dropout, ids out of bounds, merges that are no pairs of tokens.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

static const char what[] = "tokenizer.json: model";

// --- tokens ---

static bool object_read(const cJSON *vocab, lq_tok_entries *list, lq_err *err) {
    if (!cJSON_IsObject(vocab) || !vocab->child)
        return lq_fail(err, LQ_E_FORMAT, "%s.vocab is not an object of tokens", what);
    for (const cJSON *k = vocab->child; k; k = k->next) {
        double id = cJSON_IsNumber(k) ? k->valuedouble : -1;
        if (!(id >= 0 && id < LQ_TOK_MAX_ID) || id != (double)(int32_t)id)
            return lq_fail(err, LQ_E_FORMAT, "%s.vocab: an id must be a whole number from 0 to %d", what,
                           LQ_TOK_MAX_ID - 1);
        lq_tok_entry e = {k->string, strlen(k->string), (int32_t)id, LQ_TOK_K_MODEL, 0};
        if (!lq_tok_entry_add(list, e, err)) return false;
    }
    return true;
}

// A score as the `tokenizers` library reads it: its digits, which need not fit a double, divided by a power of ten. One
// of seven is not the nearest double then, which decides between ways to cut a run of one character.
static double score_read(double score) {
    char text[32], digits[24];
    int precision = 14, exponent;
    for (; precision < 17; precision++) { // the digits after the first that tell this double from its neighbours
        snprintf(text, sizeof text, "%.*e", precision, fabs(score));
        if (strtod(text, NULL) == fabs(score)) break;
    }
    if (precision == 14 || sscanf(text + 2 + precision, "e%d", &exponent) != 1) return score;
    snprintf(digits, sizeof digits, "%c%.*s", *text, precision, text + 2);
    if (exponent > precision || exponent < precision - 300) return score;
    snprintf(text, sizeof text, "1e%d", precision - exponent);
    return copysign((double)strtoull(digits, NULL, 10) / strtod(text, NULL), score);
}

// Unigram: [["token", score], ...], a token's place is its id.
static bool pairs_read(const cJSON *vocab, lq_tok_entries *list, double *least, lq_err *err) {
    *least = INFINITY;
    if (!cJSON_IsArray(vocab)) return lq_fail(err, LQ_E_FORMAT, "%s.vocab is not an array of tokens", what);
    for (const cJSON *k = vocab->child; k; k = k->next) {
        const cJSON *text = cJSON_IsArray(k) ? k->child : NULL, *score = text ? text->next : NULL;
        if (!cJSON_IsString(text) || !cJSON_IsNumber(score) || score->next || list->n == LQ_TOK_MAX_ID)
            return lq_fail(err, LQ_E_FORMAT, "%s.vocab[%zu] is not a token and its score", what, list->n);
        lq_tok_entry e = {text->valuestring, strlen(text->valuestring), (int32_t)list->n, LQ_TOK_K_MODEL,
                          score_read(score->valuedouble)};
        if (e.score < *least) *least = e.score;
        if (!lq_tok_entry_add(list, e, err)) return false;
    }
    return true;
}

static bool unk_read(const cJSON *model, lq_tok_vocab *v, lq_err *err) {
    const char *unk = lq_json_str(model, "unk_token");
    v->unk = unk ? lq_tok_vocab_find(v, unk, strlen(unk)) : -1;
    return !unk || v->unk >= 0 || (v->unk_name = lq_tok_text_copy(unk, strlen(unk), err)) != NULL;
}

// --- merges ---

// "a b": at the space that has a token on either side. Mostly there is only one.
static const char *merge_cut(const lq_tok_vocab *v, const char *s) {
    for (const char *q = strchr(s, ' '); q; q = strchr(q + 1, ' '))
        if (lq_tok_vocab_find(v, s, (size_t)(q - s)) >= 0 && lq_tok_vocab_find(v, q + 1, strlen(q + 1)) >= 0) return q;
    return NULL;
}

static bool merge_read(lq_tok_vocab *v, const cJSON *json, uint32_t i, lq_tok_buf *joined, lq_err *err) {
    static const char where[] = "tokenizer.json: model.merges";
    const cJSON *a = cJSON_IsArray(json) ? json->child : NULL, *b = a ? a->next : NULL;
    if (cJSON_IsString(a) && cJSON_IsString(b) && !b->next)
        return lq_tok_merge_add(v, i, a->valuestring, strlen(a->valuestring), b->valuestring, strlen(b->valuestring),
                                joined, where, err);
    const char *s = cJSON_IsString(json) ? json->valuestring : NULL, *cut = s ? merge_cut(v, s) : NULL;
    if (!cut) return lq_fail(err, LQ_E_FORMAT, "%s[%u] is not a pair of tokens", where, (unsigned)i);
    return lq_tok_merge_add(v, i, s, (size_t)(cut - s), cut + 1, strlen(cut + 1), joined, where, err);
}

static bool merges_parse(const cJSON *merges, lq_tok_vocab *v, lq_err *err) {
    size_t n = 0;
    if (!cJSON_IsArray(merges)) return lq_fail(err, LQ_E_FORMAT, "%s.merges is not an array", what);
    for (const cJSON *k = merges->child; k; k = k->next) n++;
    if (!lq_tok_merges_begin(v, n, err)) return false;
    lq_tok_buf joined = {0};
    bool ok = true;
    uint32_t i = 0;
    for (const cJSON *k = merges->child; ok && k; k = k->next) ok = merge_read(v, k, i++, &joined, err);
    free(joined.p);
    return ok;
}

// --- the models ---

static bool affix_read(const cJSON *model, const char *key, char **out, lq_err *err) {
    const char *s = lq_json_str(model, key);
    if (!s || !*s) return true;
    if (strlen(s) > 64) return lq_fail(err, LQ_E_LIMIT, "%s.%s has more than 64 bytes", what, key);
    *out = lq_tok_text_copy(s, strlen(s), err);
    return *out != NULL;
}

static bool bpe_parse(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    const cJSON *dropout = cJSON_GetObjectItemCaseSensitive(model, "dropout");
    lq_tok_entries list = {0};
    if (dropout && !cJSON_IsNull(dropout) && dropout->valuedouble != 0)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s.dropout must be null or 0", what);
    bool ok = lq_json_bool(model, "byte_fallback", &v->byte_fallback, what, err) &&
              lq_json_bool(model, "fuse_unk", &v->fuse_unk, what, err) &&
              lq_json_bool(model, "ignore_merges", &v->ignore_merges, what, err) &&
              affix_read(model, "continuing_subword_prefix", &v->prefix, err) &&
              affix_read(model, "end_of_word_suffix", &v->suffix, err) &&
              object_read(cJSON_GetObjectItemCaseSensitive(model, "vocab"), &list, err) &&
              lq_tok_vocab_make(v, &list, added, false, "tokenizer.json", err) && unk_read(model, v, err) &&
              merges_parse(cJSON_GetObjectItemCaseSensitive(model, "merges"), v, err);
    free(list.p);
    return ok;
}

static bool unigram_parse(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    lq_tok_entries list = {0};
    double least;
    int64_t unk = -1;
    bool ok = pairs_read(cJSON_GetObjectItemCaseSensitive(model, "vocab"), &list, &least, err) &&
              lq_json_bool(model, "byte_fallback", &v->byte_fallback, what, err) &&
              lq_json_int(model, "unk_id", 0, (int64_t)list.n - 1, &unk, what, err) &&
              lq_tok_vocab_make(v, &list, added, false, "tokenizer.json", err);
    v->unk = (int32_t)unk;
    v->unk_score = least - 10;
    v->fuse_unk = true;
    free(list.p);
    return ok;
}

static bool words_parse(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    lq_tok_entries list = {0};
    int64_t most = 100;
    bool ok = object_read(cJSON_GetObjectItemCaseSensitive(model, "vocab"), &list, err) &&
              (v->model == LQ_TOK_WORDLEVEL ||
               (affix_read(model, "continuing_subword_prefix", &v->prefix, err) &&
                lq_json_int(model, "max_input_chars_per_word", 0, LQ_TOK_MAX_TEXT, &most, what, err))) &&
              lq_tok_vocab_make(v, &list, added, false, "tokenizer.json", err) && unk_read(model, v, err);
    v->max_chars = (size_t)most;
    free(list.p);
    return ok;
}

// Older files name no type: what they have tells it.
static const char *type_of(const cJSON *model) {
    const char *type = lq_json_str(model, "type");
    if (type) return type;
    if (cJSON_HasObjectItem(model, "merges")) return "BPE";
    if (cJSON_HasObjectItem(model, "max_input_chars_per_word")) return "WordPiece";
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(model, "vocab"))) return "Unigram";
    return cJSON_HasObjectItem(model, "unk_token") ? "WordLevel" : "(none)";
}

bool lq_tok_model_parse(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    static const struct {
        const char *type;
        bool (*parse)(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err);
    } rows[] = {[LQ_TOK_BPE] = {"BPE", bpe_parse}, [LQ_TOK_UNIGRAM] = {"Unigram", unigram_parse},
                [LQ_TOK_WORDPIECE] = {"WordPiece", words_parse}, [LQ_TOK_WORDLEVEL] = {"WordLevel", words_parse}};
    if (!cJSON_IsObject(model)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: no model");
    const char *type = type_of(model);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(type, rows[i].type)) continue;
        v->model = (lq_tok_model)i;
        return rows[i].parse(model, added, v, err);
    }
    return lq_fail(err, LQ_E_UNSUPPORTED, "%s of type %s is not known, only BPE, Unigram, WordPiece and WordLevel", what,
                   type);
}
