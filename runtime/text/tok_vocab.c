// tok_vocab.c: the tokens of a model and those that were added, by id and by content.
// Refuses ids out of bounds, two tokens of one id, more bytes of tokens than an offset holds.
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "runtime/text/tok.h"

// --- tokens ---

bool lq_tok_entry_add(lq_tok_entries *list, lq_tok_entry e, lq_err *err) {
    if (!lq_grow((void **)&list->p, list->n, &list->cap, sizeof *list->p))
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", list->n);
    list->p[list->n++] = e;
    return true;
}

static bool id_ok(double id, const char *what, lq_err *err) {
    return (id >= 0 && id < LQ_TOK_MAX_ID && id == (double)(int32_t)id) ||
           lq_fail(err, LQ_E_FORMAT, "%s: an id must be a whole number from 0 to %d", what, LQ_TOK_MAX_ID - 1);
}

static bool sizes_take(const lq_tok_entries *list, const cJSON *added, int32_t *count, size_t *bytes, const char *what,
                       lq_err *err) {
    for (size_t i = 0; i < list->n; i++) {
        const lq_tok_entry *e = &list->p[i];
        if (!id_ok(e->id, what, err)) return false;
        if (e->id >= *count) *count = e->id + 1;
        *bytes += e->n + 1;
    }
    for (const cJSON *k = added ? added->child : NULL; k; k = k->next) {
        const char *text = lq_json_str(k, "content");
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(k, "id");
        if (!text) return lq_fail(err, LQ_E_FORMAT, "%s: an added token without content", what);
        if (!id_ok(cJSON_IsNumber(id) ? id->valuedouble : -1, what, err)) return lq_fail_in(err, "added_tokens");
        if (id->valuedouble >= *count) *count = (int32_t)id->valuedouble + 1;
        *bytes += strlen(text) + 1;
    }
    return *bytes <= UINT32_MAX / 4 || lq_fail(err, LQ_E_LIMIT, "%s: %zu bytes of tokens", what, *bytes);
}

static void token_put(lq_tok_vocab *v, int32_t id, const char *text, size_t n, uint32_t *used) {
    if (n) memcpy(v->text + *used, text, n);
    v->text[*used + n] = 0;
    v->at[id] = *used;
    v->len[id] = (uint32_t)n;
    *used += (uint32_t)n + 1;
}

// Of tokens with equal content the last one is found.
static bool hash_make(lq_tok_vocab *v, size_t n, bool *twice, lq_err *err) {
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    v->hash = malloc(size * sizeof *v->hash);
    if (!v->hash) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
    memset(v->hash, 0xff, size * sizeof *v->hash);
    v->hash_mask = size - 1;
    for (int32_t id = 0; id < v->count; id++) {
        if (!(v->kind[id] & LQ_TOK_K_MODEL)) continue;
        const char *text = v->text + v->at[id];
        size_t i = XXH3_64bits(text, v->len[id]) & v->hash_mask;
        for (int32_t k; (k = v->hash[i]) >= 0; i = (i + 1) & v->hash_mask)
            if (v->len[k] == v->len[id] && !memcmp(v->text + v->at[k], text, v->len[id])) break;
        *twice = *twice || v->hash[i] >= 0;
        v->hash[i] = id;
    }
    return true;
}

int32_t lq_tok_vocab_find(const lq_tok_vocab *v, const char *p, size_t n) {
    for (size_t i = XXH3_64bits(p, n) & v->hash_mask; v->hash[i] >= 0; i = (i + 1) & v->hash_mask) {
        int32_t id = v->hash[i];
        if (v->len[id] == n && (!n || !memcmp(v->text + v->at[id], p, n))) return id;
    }
    return -1;
}

// The model's id goes before the one that is claimed.
static bool added_put(lq_tok_vocab *v, const cJSON *added, bool renames, uint32_t *used, const char *what,
                      lq_err *err) {
    for (const cJSON *k = added ? added->child : NULL; k; k = k->next) {
        const char *text = lq_json_str(k, "content");
        const size_t n = strlen(text);
        int32_t id = lq_tok_vocab_find(v, text, n);
        if (id < 0) id = (int32_t)cJSON_GetObjectItemCaseSensitive(k, "id")->valuedouble;
        const bool other = v->kind[id] && (v->len[id] != n || memcmp(v->text + v->at[id], text, n) != 0);
        if (other && !renames)
            return lq_fail(err, LQ_E_FORMAT, "%s: added token %.60s: id %d belongs to another token", what, text,
                           (int)id);
        if (other) v->kind[id] = LQ_TOK_K_ABSENT; // found no more: where its hash leads stands this text now
        if (!v->kind[id]) token_put(v, id, text, n, used);
        const bool special = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(k, "special"));
        v->kind[id] |= LQ_TOK_K_ADDED | (special ? LQ_TOK_K_SPECIAL : 0);
    }
    return true;
}

// Of tokens with equal content all are special, or none.
static void special_spread(lq_tok_vocab *v) {
    for (int32_t id = 0; id < v->count; id++) {
        if (!(v->kind[id] & LQ_TOK_K_MODEL)) continue;
        const int32_t k = lq_tok_vocab_find(v, v->text + v->at[id], v->len[id]);
        if (k >= 0) v->kind[id] |= v->kind[k] & LQ_TOK_K_SPECIAL;
    }
}

bool lq_tok_vocab_make(lq_tok_vocab *v, const lq_tok_entries *list, const cJSON *added, bool renames, const char *what,
                       lq_err *err) {
    size_t bytes = 0;
    uint32_t used = 0;
    if (!sizes_take(list, added, &v->count, &bytes, what, err)) return false;
    size_t n = (size_t)v->count;
    v->text = malloc(bytes + 1);
    v->at = calloc(n + 1, sizeof *v->at);
    v->len = calloc(n + 1, sizeof *v->len);
    v->kind = calloc(n + 1, 1);
    v->score = calloc(n + 1, sizeof *v->score);
    if (!v->text || !v->at || !v->len || !v->kind || !v->score)
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
    for (size_t i = 0; i < list->n; i++) {
        const lq_tok_entry *e = &list->p[i];
        if (v->kind[e->id])
            return lq_fail(err, LQ_E_FORMAT, "%s: id %d belongs to two tokens", what, (int)e->id);
        token_put(v, e->id, e->text, e->n, &used);
        v->kind[e->id] = e->kind;
        v->score[e->id] = e->score;
    }
    bool twice = false;
    if (!hash_make(v, list->n, &twice, err) || !added_put(v, added, renames, &used, what, err)) return false;
    if (twice) special_spread(v);
    return true;
}

void lq_tok_vocab_free(lq_tok_vocab *v) {
    for (int i = 0; v->chars && i < 0x1100; i++) free(v->chars[i]);
    free(v->chars);
    free(v->text);
    free(v->at);
    free(v->len);
    free(v->kind);
    free(v->score);
    free(v->hash);
    free(v->merge);
    free(v->adjacent);
    free(v->unk_name);
    free(v->prefix);
    free(v->suffix);
    lq_tok_tree_free(&v->tree);
    lq_tok_tree_free(&v->user);
}

// --- tables ---

static bool chars_index(lq_tok_vocab *v, lq_err *err) {
    v->chars = calloc(0x1100, sizeof *v->chars);
    if (!v->chars) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    for (int32_t id = 0; id < v->count; id++) {
        size_t len;
        if (!(v->kind[id] & LQ_TOK_K_MODEL) || !v->len[id] || v->len[id] > 4) continue;
        uint32_t c = lq_tok_char_get(v->text + v->at[id], &len);
        if (len != v->len[id]) continue;
        int32_t **page = &v->chars[c >> 8];
        if (!*page) {
            *page = malloc(256 * sizeof **page);
            if (!*page) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
            memset(*page, 0xff, 256 * sizeof **page);
        }
        (*page)[c & 255] = id;
    }
    return true;
}

static void bytes_index(lq_tok_vocab *v) {
    static const char digits[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; b++) {
        char t[8] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        size_t n = 6;
        if (v->byte_level) n = lq_tok_char_put(lq_tok_byte_char((uint8_t)b), t);
        v->byte_id[b] = lq_tok_vocab_find(v, t, n);
    }
}

// The trees of Unigram and WordPiece walk all bytes of a text from each place, so their tokens have a limit.
static bool trees_index(lq_tok_vocab *v, lq_err *err) {
    if (v->model != LQ_TOK_UNIGRAM && v->model != LQ_TOK_WORDPIECE) return true;
    for (int32_t id = 0; id < v->count; id++) {
        if ((v->kind[id] & LQ_TOK_K_MODEL) && v->len[id] > LQ_TOK_MAX_CONTENT)
            return lq_fail(err, LQ_E_LIMIT, "tokenizer: token %d has %u bytes, more than %d", (int)id,
                           (unsigned)v->len[id], LQ_TOK_MAX_CONTENT);
    }
    if (!lq_tok_tree_make(&v->tree, v, LQ_TOK_K_MODEL, LQ_TOK_K_UNUSED, err)) return false;
    v->within = 0;
    for (const char *p = v->prefix; p && *p; p++) {
        v->within = lq_tok_tree_step(&v->tree, v->within, (uint8_t)*p);
        if (!v->within) return v->within = UINT32_MAX, true;
    }
    return true;
}

bool lq_tok_vocab_index(lq_tok_vocab *v, lq_err *err) {
    if (!v->pieces) bytes_index(v);
    return chars_index(v, err) && trees_index(v, err) && (v->model != LQ_TOK_BPE || lq_tok_merges_index(v, err));
}
