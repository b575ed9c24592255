// tokenizer.c: opens a tokenizer.json and turns text into ids. It owns the whole lq_tokenizer; the parts stand in
// tok_*.c. Refuses what is not BPE and every component that it does not know, in one line that names it.
#include <stdlib.h>
#include <string.h>
#include "runtime/lq.h"
#include "runtime/text/tok.h"

enum { JSON_BYTES = 256 << 20, JSON_DEPTH = 64 };

// --- opening ---

static int text_order(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

// Tokens that only tokenizer_config.json names are added tokens too.
static bool config_tokens_add(cJSON *added, const cJSON *config, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder");
    size_t n = 0, i = 0;
    if (!cJSON_IsObject(list)) return true;
    for (const cJSON *k = added->child; k; k = k->next) n++;
    const char **known = malloc((n + 1) * sizeof *known);
    if (!known) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu added tokens", n);
    for (const cJSON *k = added->child; k; k = k->next) {
        const char *s = lq_json_str(k, "content");
        known[i++] = s ? s : "";
    }
    if (n) qsort(known, n, sizeof *known, text_order);
    bool ok = true;
    for (const cJSON *k = list->child; ok && k; k = k->next) {
        const char *s = lq_json_str(k, "content");
        char *end;
        double id = strtod(k->string, &end);
        if (!s || *end || end == k->string) {
            ok = lq_fail(err, LQ_E_FORMAT,
                         "tokenizer_config.json: added_tokens_decoder: \"%.20s\" is not an id with content", k->string);
        } else if (!n || !bsearch(&s, known, n, sizeof *known, text_order)) {
            cJSON *item = cJSON_Duplicate(k, true);
            cJSON_DeleteItemFromObjectCaseSensitive(item, "id");
            ok = item && cJSON_AddNumberToObject(item, "id", id) && cJSON_AddItemToArray(added, item);
            if (!ok) lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
        }
    }
    free(known);
    return ok;
}

static bool parts_parse(cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err) {
    cJSON *added = cJSON_GetObjectItemCaseSensitive(json, "added_tokens");
    if (!added || cJSON_IsNull(added)) {
        cJSON_DeleteItemFromObjectCaseSensitive(json, "added_tokens");
        added = cJSON_AddArrayToObject(json, "added_tokens");
    }
    if (!cJSON_IsArray(added)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: added_tokens is not an array");
    return (!config || config_tokens_add(added, config, err)) &&
           lq_tok_model_parse(cJSON_GetObjectItemCaseSensitive(json, "model"), added, &t->vocab, err) &&
           lq_tok_norm_parse(cJSON_GetObjectItemCaseSensitive(json, "normalizer"), t, err) &&
           lq_tok_pre_parse(cJSON_GetObjectItemCaseSensitive(json, "pre_tokenizer"), t, err) &&
           lq_tok_dec_parse(cJSON_GetObjectItemCaseSensitive(json, "decoder"), t, err) &&
           lq_tok_added_parse(added, t, err) &&
           lq_tok_post_parse(cJSON_GetObjectItemCaseSensitive(json, "post_processor"), config, t, err) &&
           lq_tok_vocab_index(&t->vocab, err) && lq_tok_added_index(t, err) && lq_tok_dec_index(t, err);
}

bool lq_tokenizer_parse(lq_bytes json, lq_bytes config, lq_tokenizer **out, lq_err *err) {
    static const lq_json_limits limits = {JSON_BYTES, JSON_DEPTH};
    cJSON *tree = NULL, *side = NULL;
    lq_tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    bool ok = lq_json_parse(json.p, json.n, limits, "tokenizer.json", &tree, err) &&
              (!config.n || lq_json_parse(config.p, config.n, limits, "tokenizer_config.json", &side, err)) &&
              parts_parse(tree, side, t, err);
    cJSON_Delete(tree);
    cJSON_Delete(side);
    if (ok) *out = t;
    else lq_tokenizer_close(t);
    return ok;
}

bool lq_tokenizer_open(lq_ckpt *c, lq_tokenizer **out, lq_err *err) {
    lq_bytes json, config;
    *out = NULL;
    if (!lq_ckpt_file(c, "tokenizer.json", &json, err) || !lq_ckpt_file(c, "tokenizer_config.json", &config, err))
        return false;
    if (!json.p) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: there is no tokenizer.json", lq_ckpt_path(c));
    if (!config.p) config = (lq_bytes){"", 0};
    return lq_tokenizer_parse(json, config, out, err) || lq_fail_in(err, "%s", lq_ckpt_path(c));
}

void lq_tokenizer_close(lq_tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->norms; i++) {
        lq_tok_pattern_free(&t->norm[i].pattern);
        lq_tok_charsmap_free(&t->norm[i].map);
        free(t->norm[i].text);
    }
    for (int i = 0; i < t->decs; i++) {
        lq_tok_pattern_free(&t->dec[i].pattern);
        free(t->dec[i].text);
    }
    for (int i = 0; t->pre && i < LQ_TOK_MAX_OPS; i++) lq_tok_pattern_free(&t->pre[i].pattern);
    for (size_t i = 0; i < t->addeds; i++) free(t->added[i].content);
    free(t->norm);
    free(t->pre);
    free(t->dec);
    free(t->added);
    lq_tok_trie_free(&t->exact);
    lq_tok_trie_free(&t->normal);
    lq_tok_vocab_free(&t->vocab);
    free(t->before.p);
    free(t->after.p);
    free(t->bytes.p);
    free(t->bytes.at);
    free(t->first.p);
    free(t->first.at);
    free(t->unk_text);
    free(t);
}

// --- asking ---

int32_t lq_tokenizer_bos(const lq_tokenizer *t) { return t->before.n ? t->before.p[0] : -1; }
int lq_tokenizer_vocab(const lq_tokenizer *t) { return t->vocab.count; }

int32_t lq_tokenizer_id(const lq_tokenizer *t, const char *token, size_t n) {
    return lq_tok_added_id(t, token, n);
}

bool lq_tokenizer_is_special(const lq_tokenizer *t, int32_t id) {
    return lq_tok_is_special(&t->vocab, id);
}
