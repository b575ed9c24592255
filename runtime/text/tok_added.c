// tok_added.c: added tokens: pieces of text that are tokens before anything else is done to the text around them.
// At each place the longest one is taken. Refuses tokens of more than LQ_TOK_MAX_CONTENT bytes, and two that are the
// same text once normalized.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

// --- reading ---

static int text_order(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

// A token of a list, or of an object that has it under its id.
static bool item_merge(cJSON *into, const cJSON *k, lq_err *err) {
    char *end = k->string;
    const double id = k->string ? strtod(k->string, &end) : 0;
    if (!lq_json_str(k, "content") || (k->string && (*end || end == k->string)))
        return lq_fail(err, LQ_E_FORMAT, "tokenizer_config.json: added_tokens_decoder: \"%.20s\" is not an id with content",
                       k->string ? k->string : "");
    cJSON *item = cJSON_Duplicate(k, true);
    if (k->string) cJSON_DeleteItemFromObjectCaseSensitive(item, "id");
    return (item && (!k->string || cJSON_AddNumberToObject(item, "id", id)) && cJSON_AddItemToArray(into, item)) ||
           lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
}

bool lq_tok_added_merge(cJSON *into, const cJSON *from, lq_err *err) {
    size_t n = 0, i = 0;
    for (const cJSON *k = into->child; k; k = k->next) n++;
    const char **known = malloc((n + 1) * sizeof *known);
    if (!known) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu added tokens", n);
    for (const cJSON *k = into->child; k; k = k->next) {
        const char *s = lq_json_str(k, "content");
        known[i++] = s ? s : "";
    }
    if (n) qsort(known, n, sizeof *known, text_order);
    bool ok = true;
    for (const cJSON *k = from ? from->child : NULL; ok && k; k = k->next) {
        const char *s = lq_json_str(k, "content");
        if (!s || !n || !bsearch(&s, known, n, sizeof *known, text_order)) ok = item_merge(into, k, err);
    }
    free(known);
    return ok;
}

static bool added_read(const cJSON *json, int32_t id, lq_tok_added *a, lq_err *err) {
    static const char what[] = "tokenizer.json: added_tokens";
    const char *text = lq_json_str(json, "content");
    if (!text) return lq_fail(err, LQ_E_FORMAT, "%s: no content", what);
    if (strlen(text) > LQ_TOK_MAX_CONTENT)
        return lq_fail(err, LQ_E_LIMIT, "%s: content of more than %d bytes", what, LQ_TOK_MAX_CONTENT);
    *a = (lq_tok_added){.n = strlen(text), .id = id};
    if (!lq_json_bool(json, "special", &a->special, what, err) ||
        !lq_json_bool(json, "lstrip", &a->lstrip, what, err) ||
        !lq_json_bool(json, "rstrip", &a->rstrip, what, err) ||
        !lq_json_bool(json, "single_word", &a->single, what, err)) {
        return false;
    }
    a->normalized = !a->special;
    if (!lq_json_bool(json, "normalized", &a->normalized, what, err)) return false;
    a->content = lq_tok_text_copy(text, a->n, err);
    return a->content != NULL;
}

bool lq_tok_added_parse(const cJSON *added, lq_tokenizer *t, lq_err *err) {
    size_t n = 0;
    for (const cJSON *k = added ? added->child : NULL; k; k = k->next) n++;
    t->added = calloc(n + 1, sizeof *t->added);
    if (!t->added) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu added tokens", n);
    for (const cJSON *k = added ? added->child : NULL; k; k = k->next) {
        const char *text = lq_json_str(k, "content");
        if (!*text) continue;
        int32_t id = lq_tok_vocab_find(&t->vocab, text, strlen(text));
        if (id < 0) id = (int32_t)cJSON_GetObjectItemCaseSensitive(k, "id")->valuedouble;
        if (!added_read(k, id, &t->added[t->addeds], err)) return false;
        t->addeds++;
    }
    return true;
}

int32_t lq_tok_added_id(const lq_tokenizer *t, const char *p, size_t n) {
    int32_t id = lq_tok_vocab_find(&t->vocab, p, n);
    for (size_t i = 0; id < 0 && i < t->addeds; i++) {
        if (t->added[i].n == n && !memcmp(t->added[i].content, p, n)) id = t->added[i].id;
    }
    return id;
}

// --- the trie ---

static size_t edge_slot(const lq_tok_trie *t, uint32_t node, uint8_t byte) {
    return (size_t)((((uint64_t)node << 8 | byte) * 0x9e3779b97f4a7c15u) >> 24) & t->mask;
}

// The child of a node, or 0 (the root is nobody's child).
static uint32_t edge_find(const lq_tok_trie *t, uint32_t node, uint8_t byte) {
    for (size_t i = edge_slot(t, node, byte); t->edge[i].byte >= 0; i = (i + 1) & t->mask) {
        if (t->edge[i].node == node && t->edge[i].byte == byte) return t->edge[i].child;
    }
    return 0;
}

// The index of the token that stood there for the same text, or -1.
static int32_t trie_add(lq_tok_trie *t, const lq_tok_added *a, size_t index, const char *p, size_t n) {
    uint32_t node = 0;
    if (!n) return -1;
    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)p[i];
        uint32_t child = edge_find(t, node, b);
        if (!child) {
            size_t s = edge_slot(t, node, b);
            while (t->edge[s].byte >= 0) s = (s + 1) & t->mask;
            child = (uint32_t)t->nodes++;
            t->edge[s] = (lq_tok_edge){node, child, b};
            t->token[child] = -1;
        }
        node = child;
    }
    const int32_t had = t->token[node];
    t->token[node] = (int32_t)index;
    t->begins[(uint8_t)p[0]] = true;
    t->any = true;
    if (!a->special) t->plain = true;
    return had;
}

static bool trie_make(lq_tok_trie *t, size_t bytes, lq_err *err) {
    size_t size = 16;
    while (size < 2 * bytes) size *= 2;
    t->edge = malloc(size * sizeof *t->edge);
    t->token = malloc((bytes + 1) * sizeof *t->token);
    if (!t->edge || !t->token) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
    for (size_t i = 0; i < size; i++) t->edge[i].byte = -1;
    t->mask = size - 1;
    t->nodes = 1;
    t->token[0] = -1;
    return true;
}

void lq_tok_trie_free(lq_tok_trie *trie) {
    free(trie->edge);
    free(trie->token);
}

// A token that is looked for in normalized text is written as that, so that decoders undo what normalizers did.
static bool shown_set(lq_tokenizer *t, lq_tok_added *a, const lq_tok_buf *normal, lq_err *err) {
    if (normal->n == a->n && !memcmp(normal->p, a->content, a->n)) return true;
    a->shown = lq_tok_text_copy(normal->p, normal->n, err);
    a->shown_n = normal->n;
    t->renamed = true;
    return a->shown != NULL;
}

lq_bytes lq_tok_written(const lq_tokenizer *t, int32_t id) {
    const lq_tok_vocab *v = &t->vocab;
    for (size_t i = 0; t->renamed && (v->kind[id] & LQ_TOK_K_ADDED) && i < t->addeds; i++)
        if (t->added[i].id == id && t->added[i].shown) return (lq_bytes){t->added[i].shown, t->added[i].shown_n};
    return (lq_bytes){v->text + v->at[id], v->len[id]};
}

bool lq_tok_added_index(lq_tokenizer *t, lq_err *err) {
    lq_tok_buf all = {0};
    lq_tok_work w = {.t = t};
    size_t exact = 0, *end = calloc(t->addeds + 1, sizeof *end); // of each normalized content in `all`
    bool ok = end || lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
    for (size_t i = 0; i < t->addeds; i++) w.norm_left += t->added[i].n;
    w.norm_left = lq_tok_growth(w.norm_left);
    for (size_t i = 0; ok && i < t->addeds; i++) {
        lq_tok_added *a = &t->added[i];
        lq_tok_lead lead = {0};
        w.a.n = 0;
        if (a->normalized)
            ok = lq_tok_buf_add(&w.a, a->content, a->n, err) && lq_tok_norm_run(t, &w, &lead, err) &&
                 lq_tok_buf_add(&all, w.a.p, w.a.n, err) && shown_set(t, a, &w.a, err);
        else exact += a->n;
        end[i + 1] = all.n;
    }
    lq_tok_work_free(&w);
    ok = ok && trie_make(&t->exact, exact, err) && trie_make(&t->normal, all.n, err);
    for (size_t i = 0; ok && i < t->addeds; i++) {
        const lq_tok_added *a = &t->added[i];
        int32_t same = -1;
        if (a->normalized) same = trie_add(&t->normal, a, i, all.p + end[i], end[i + 1] - end[i]);
        else trie_add(&t->exact, a, i, a->content, a->n);
        if (same >= 0 && t->added[same].id != a->id) // the library takes either, by chance
            ok = lq_fail(err, LQ_E_UNSUPPORTED,
                         "tokenizer.json: added_tokens: %d \"%.40s\" and %d \"%.40s\" are the same text once normalized",
                         (int)t->added[same].id, t->added[same].content, (int)a->id, a->content);
    }
    free(all.p);
    free(end);
    return ok;
}

// --- looking ---

static bool piece_add(lq_tok_pieces *o, size_t at, size_t end, int32_t id, lq_err *err) {
    if (!lq_grow((void **)&o->p, o->n, &o->cap, sizeof *o->p))
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu pieces", o->n);
    o->p[o->n++] = (lq_tok_piece){at, end, id};
    return true;
}

static size_t char_back(const char *p, size_t at) { // where the character before `at` begins
    do at--;
    while (at && ((uint8_t)p[at] & 0xc0) == 0x80);
    return at;
}

static bool stands_alone(const char *p, size_t n, size_t at, size_t end) {
    size_t len;
    if (at && lq_tok_char_is(lq_tok_char_get(p + char_back(p, at), &len), LQ_TOK_WORD)) return false;
    return end == n || !lq_tok_char_is(lq_tok_char_get(p + end, &len), LQ_TOK_WORD);
}

static size_t spaces_left(const char *p, size_t at, size_t floor) {
    size_t len;
    while (at > floor) {
        size_t back = char_back(p, at);
        if (!lq_tok_char_is(lq_tok_char_get(p + back, &len), LQ_TOK_SPACE)) break;
        at = back;
    }
    return at;
}

static size_t spaces_right(const char *p, size_t n, size_t at) {
    size_t len;
    while (at < n && lq_tok_char_is(lq_tok_char_get(p + at, &len), LQ_TOK_SPACE)) at += len;
    return at;
}

static int32_t longest_find(const lq_tok_trie *trie, const char *p, size_t n, size_t at, size_t *end) {
    int32_t found = -1;
    uint32_t node = 0;
    for (size_t i = at; i < n; i++) {
        node = edge_find(trie, node, (uint8_t)p[i]);
        if (!node) break;
        if (trie->token[node] >= 0) {
            found = trie->token[node];
            *end = i + 1;
        }
    }
    return found;
}

bool lq_tok_added_find(const lq_tokenizer *t, const lq_tok_trie *trie, const char *p, size_t n, bool special,
                       lq_tok_pieces *out, lq_err *err) {
    size_t done = 0;
    out->n = 0;
    for (size_t i = 0; (special ? trie->any : trie->plain) && i < n;) {
        size_t end = i;
        int32_t k = trie->begins[(uint8_t)p[i]] ? longest_find(trie, p, n, i, &end) : -1;
        if (k < 0) {
            i++;
            continue;
        }
        const lq_tok_added *a = &t->added[k];
        size_t at = i;
        i = end;
        if (a->special && !special) continue; // it is text, and nothing within it is looked for
        if (a->single && !stands_alone(p, n, at, end)) continue;
        // The token before may have taken this one's spaces.
        if (a->lstrip) at = at > done ? spaces_left(p, at, done) : done;
        if (a->rstrip) end = spaces_right(p, n, end);
        if (done < at && !piece_add(out, done, at, -1, err)) return false;
        if (at < end && !piece_add(out, at, end, a->id, err)) return false;
        done = end;
    }
    return done >= n || piece_add(out, done, n, -1, err);
}
