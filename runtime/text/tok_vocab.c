// tok_vocab.c: the vocabulary and merges of a BPE model, and the tables that find them.
// Refuses models that are not BPE, ids out of bounds, merges whose parts or result are no tokens.
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "runtime/text/tok.h"

enum { ADJACENT_ROUNDS = 64 };

// --- tokens ---

static bool id_read(const cJSON *json, const char *what, int32_t *id, lq_err *err) {
    double d = cJSON_IsNumber(json) ? json->valuedouble : -1;
    if (!(d >= 0 && d < LQ_TOK_MAX_ID) || d != (double)(int32_t)d) {
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: %s: an id must be a whole number from 0 to %d", what,
                       LQ_TOK_MAX_ID - 1);
    }
    *id = (int32_t)d;
    return true;
}

static bool sizes_take(const cJSON *list, bool is_added, int32_t *count, size_t *bytes, lq_err *err) {
    for (const cJSON *k = list ? list->child : NULL; k; k = k->next) {
        const char *text = is_added ? lq_json_str(k, "content") : k->string;
        int32_t id = 0;
        if (!text) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: an added token without content");
        if (!id_read(is_added ? cJSON_GetObjectItemCaseSensitive(k, "id") : k,
                     is_added ? "added_tokens" : "model.vocab", &id, err)) return false;
        if (id >= *count) *count = id + 1;
        *bytes += strlen(text) + 1;
    }
    return true;
}

static void token_put(lq_tok_vocab *v, int32_t id, const char *text, uint8_t kind, uint32_t *used) {
    size_t n = strlen(text);
    memcpy(v->text + *used, text, n + 1);
    v->at[id] = *used;
    v->len[id] = (uint32_t)n;
    v->kind[id] |= kind;
    *used += (uint32_t)n + 1;
}

static bool hash_make(lq_tok_vocab *v, const cJSON *vocab, lq_err *err) {
    size_t n = 0, size = 16;
    for (const cJSON *k = vocab->child; k; k = k->next) n++;
    while (size < 2 * n) size *= 2;
    v->hash = malloc(size * sizeof *v->hash);
    if (!v->hash) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
    memset(v->hash, 0xff, size * sizeof *v->hash);
    v->hash_mask = size - 1;
    for (int32_t id = 0; id < v->count; id++) {
        if (!(v->kind[id] & LQ_TOK_K_MODEL)) continue;
        size_t i = XXH3_64bits(v->text + v->at[id], v->len[id]) & v->hash_mask;
        while (v->hash[i] >= 0) i = (i + 1) & v->hash_mask;
        v->hash[i] = id;
    }
    return true;
}

int32_t lq_tok_vocab_find(const lq_tok_vocab *v, const char *p, size_t n) {
    for (size_t i = XXH3_64bits(p, n) & v->hash_mask; v->hash[i] >= 0; i = (i + 1) & v->hash_mask) {
        int32_t id = v->hash[i];
        if (v->len[id] == n && !memcmp(v->text + v->at[id], p, n)) return id;
    }
    return -1;
}

static bool tokens_parse(const cJSON *vocab, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    size_t bytes = 0;
    uint32_t used = 0;
    if (!cJSON_IsObject(vocab) || !vocab->child)
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: model.vocab is not an object of tokens");
    if (!sizes_take(vocab, false, &v->count, &bytes, err) || !sizes_take(added, true, &v->count, &bytes, err))
        return false;
    if (bytes > UINT32_MAX / 4) return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: %zu bytes of tokens", bytes);
    size_t n = (size_t)v->count;
    v->text = malloc(bytes);
    v->at = calloc(n + 1, sizeof *v->at);
    v->len = calloc(n, sizeof *v->len);
    v->kind = calloc(n, 1);
    if (!v->text || !v->at || !v->len || !v->kind)
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
    for (const cJSON *k = vocab->child; k; k = k->next) {
        int32_t id = (int32_t)k->valuedouble;
        if (v->kind[id]) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: id %d belongs to two tokens", (int)id);
        token_put(v, id, k->string, LQ_TOK_K_MODEL, &used);
    }
    if (!hash_make(v, vocab, err)) return false;
    // Of an added token that the model has too, the model's id counts, not the one that is claimed.
    for (const cJSON *k = added ? added->child : NULL; k; k = k->next) {
        const char *text = lq_json_str(k, "content");
        int32_t id = lq_tok_vocab_find(v, text, strlen(text));
        if (id < 0) id = (int32_t)cJSON_GetObjectItemCaseSensitive(k, "id")->valuedouble;
        if (v->kind[id] && strcmp(v->text + v->at[id], text)) {
            return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: added token %.60s: id %d belongs to another token", text,
                           (int)id);
        }
        if (!v->kind[id]) token_put(v, id, text, 0, &used);
        v->kind[id] |= LQ_TOK_K_ADDED | (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(k, "special")) ? LQ_TOK_K_SPECIAL
                                         : 0);
    }
    return true;
}

// --- merges ---

static size_t merge_slot(const lq_tok_vocab *v, uint64_t pair) {
    return (size_t)((pair * 0x9e3779b97f4a7c15u) >> 32) & v->merge_mask;
}

const lq_tok_merge *lq_tok_merge_find(const lq_tok_vocab *v, int32_t a, int32_t b) {
    uint64_t pair = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    for (size_t i = merge_slot(v, pair);; i = (i + 1) & v->merge_mask) {
        if (v->merge[i].pair == pair) return &v->merge[i];
        if (v->merge[i].pair == UINT64_MAX) return NULL;
    }
}

// "a b": at the space that has a token on either side. Mostly there is only one.
static bool merge_text_split(const lq_tok_vocab *v, const char *s, int32_t *a, int32_t *b) {
    for (const char *q = strchr(s, ' '); q; q = strchr(q + 1, ' ')) {
        *a = lq_tok_vocab_find(v, s, (size_t)(q - s));
        *b = lq_tok_vocab_find(v, q + 1, strlen(q + 1));
        if (*a >= 0 && *b >= 0) return true;
    }
    return false;
}

static bool merge_read(lq_tok_vocab *v, const cJSON *json, uint32_t rank, lq_tok_buf *joined, lq_err *err) {
    int32_t a = -1, b = -1;
    if (cJSON_IsString(json)) {
        if (!merge_text_split(v, json->valuestring, &a, &b)) a = b = -1;
    } else if (cJSON_IsArray(json) && json->child && json->child->next && !json->child->next->next &&
               cJSON_IsString(json->child) &&
               cJSON_IsString(json->child->next)) {
        a = lq_tok_vocab_find(v, json->child->valuestring, strlen(json->child->valuestring));
        b = lq_tok_vocab_find(v, json->child->next->valuestring, strlen(json->child->next->valuestring));
    }
    if (a < 0 || b < 0) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: model.merges[%u] is not a pair of tokens",
                                       (unsigned)rank);
    size_t skip = v->prefix ? strlen(v->prefix) : 0;
    if (skip > v->len[b]) skip = v->len[b];
    joined->n = 0;
    if (!lq_tok_buf_add(joined, v->text + v->at[a], v->len[a], err) ||
        !lq_tok_buf_add(joined, v->text + v->at[b] + skip, v->len[b] - skip, err)) {
        return false;
    }
    int32_t id = lq_tok_vocab_find(v, joined->p, joined->n);
    if (id < 0) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: model.merges[%u] makes what is not in the vocabulary",
                               (unsigned)rank);
    uint64_t pair = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    size_t i = merge_slot(v, pair);
    while (v->merge[i].pair != UINT64_MAX && v->merge[i].pair != pair) i = (i + 1) & v->merge_mask;
    v->merge[i] = (lq_tok_merge){pair, rank, id};
    return true;
}

static bool merges_parse(const cJSON *merges, lq_tok_vocab *v, lq_err *err) {
    size_t n = 0, size = 16;
    if (!cJSON_IsArray(merges)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: model.merges is not an array");
    for (const cJSON *k = merges->child; k; k = k->next) n++;
    if (n > UINT32_MAX / 4) return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: %zu merges", n);
    while (size < 2 * n) size *= 2;
    v->merge = malloc(size * sizeof *v->merge);
    if (!v->merge) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu merges", n);
    for (size_t i = 0; i < size; i++) v->merge[i].pair = UINT64_MAX;
    v->merge_mask = size - 1;
    lq_tok_buf joined = {0};
    bool ok = true;
    uint32_t rank = 0;
    for (const cJSON *k = merges->child; ok && k; k = k->next) ok = merge_read(v, k, rank++, &joined, err);
    free(joined.p);
    return ok;
}

// --- the model ---

static bool affix_read(const cJSON *model, const char *key, char **out, lq_err *err) {
    const char *s = lq_json_str(model, key);
    if (!s || !*s) return true;
    if (strlen(s) > 64) return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: model.%s has more than 64 bytes", key);
    *out = lq_tok_text_copy(s, strlen(s), err);
    return *out != NULL;
}

bool lq_tok_vocab_parse(const cJSON *model, const cJSON *added, lq_tok_vocab *v, lq_err *err) {
    static const char what[] = "tokenizer.json: model";
    if (!cJSON_IsObject(model)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: no model");
    const char *type = lq_json_str(model, "type"), *unk = lq_json_str(model, "unk_token");
    if (type ? strcmp(type, "BPE") != 0 : !cJSON_HasObjectItem(model, "merges")) {
        return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: model of type %s is not known, only BPE",
                       type ? type : "(none)");
    }
    const cJSON *dropout = cJSON_GetObjectItemCaseSensitive(model, "dropout");
    if (dropout && !cJSON_IsNull(dropout) && dropout->valuedouble != 0) {
        return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: model.dropout must be null or 0");
    }
    if (!lq_json_bool(model, "byte_fallback", &v->byte_fallback, what, err) ||
        !lq_json_bool(model, "fuse_unk", &v->fuse_unk, what, err) ||
        !lq_json_bool(model, "ignore_merges", &v->ignore_merges, what, err) ||
        !affix_read(model, "continuing_subword_prefix", &v->prefix, err) ||
        !affix_read(model, "end_of_word_suffix", &v->suffix, err)) {
        return false;
    }
    if (!tokens_parse(cJSON_GetObjectItemCaseSensitive(model, "vocab"), added, v, err)) return false;
    v->unk = unk ? lq_tok_vocab_find(v, unk, strlen(unk)) : -1;
    if (unk && v->unk < 0 && !(v->unk_name = lq_tok_text_copy(unk, strlen(unk), err))) return false;
    return merges_parse(cJSON_GetObjectItemCaseSensitive(model, "merges"), v, err);
}

void lq_tok_vocab_free(lq_tok_vocab *v) {
    for (int i = 0; v->chars && i < 0x1100; i++) free(v->chars[i]);
    free(v->chars);
    free(v->text);
    free(v->at);
    free(v->len);
    free(v->kind);
    free(v->hash);
    free(v->merge);
    free(v->adjacent);
    free(v->unk_name);
    free(v->prefix);
    free(v->suffix);
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

// The first and last symbol of every token, from those of the tokens it is merged from. A token that has two different
// ones (or is both a symbol and merged) makes *known false: then no word is cut short.
static bool ends_find(const lq_tok_vocab *v, int32_t *first, int32_t *last) {
    for (int round = 0; round < ADJACENT_ROUNDS; round++) {
        bool changed = false;
        for (size_t i = 0; i <= v->merge_mask; i++) {
            const lq_tok_merge *m = &v->merge[i];
            if (m->pair == UINT64_MAX) continue;
            int32_t f = first[m->pair >> 32], l = last[(uint32_t)m->pair];
            if (f >= 0 && first[m->id] != f) {
                if (first[m->id] >= 0) return false;
                first[m->id] = f;
                changed = true;
            }
            if (l >= 0 && last[m->id] != l) {
                if (last[m->id] >= 0) return false;
                last[m->id] = l;
                changed = true;
            }
        }
        if (!changed) return true;
    }
    return false;
}

// Two symbols that stand side by side in no merged token can never be merged across: a
// word is cut there before merging.
static bool adjacent_index(lq_tok_vocab *v, lq_err *err) {
    size_t n = (size_t)v->count;
    if (v->prefix || v->suffix) return true;
    int32_t *first = malloc(n * sizeof *first), *last = malloc(n * sizeof *last);
    uint64_t *bits = calloc(LQ_TOK_ADJACENT / 64, sizeof *bits);
    bool known = first && last && bits;
    if (known) {
        memset(first, 0xff, n * sizeof *first);
        for (int32_t id = 0; id < v->count; id++) {
            size_t len;
            if (!v->len[id]) continue;
            lq_tok_char_get(v->text + v->at[id], &len);
            if (len == v->len[id] || id == v->unk) first[id] = id;
        }
        for (int b = 0; b < 256; b++) {
            if (v->byte_id[b] >= 0) first[v->byte_id[b]] = v->byte_id[b];
        }
        memcpy(last, first, n * sizeof *last);
        known = ends_find(v, first, last);
    } else lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    for (size_t i = 0; known && i <= v->merge_mask; i++) {
        uint64_t pair = v->merge[i].pair;
        if (pair == UINT64_MAX) continue;
        int32_t a = last[pair >> 32], b = first[(uint32_t)pair];
        if (a < 0 || b < 0) continue; // a part that no text leads to
        uint32_t slot = lq_tok_adjacent_slot(a, b);
        bits[slot >> 6] |= 1ull << (slot & 63);
    }
    bool ok = first && last && bits;
    if (known) v->adjacent = bits;
    else free(bits);
    free(first);
    free(last);
    return ok;
}

bool lq_tok_vocab_index(lq_tok_vocab *v, lq_err *err) {
    bytes_index(v);
    return chars_index(v, err) && adjacent_index(v, err);
}
