// tok_bpe.c: byte pair encoding of one word: its symbols, then the merge of the lowest rank (of equals: the leftmost)
// until none is left. Short stretches are scanned, long ones use a heap: n log n for any word.
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "runtime/text/tok.h"

enum { SCAN = 40, CELLS = 4096, NO_RANK = -1 };

// --- symbols ---

bool lq_tok_ids_room(lq_ids *ids, size_t more, lq_err *err) {
    void *p = ids->p;
    if (!lq_tok_array_room(&p, &ids->cap, ids->n + more, sizeof *ids->p, err)) return false;
    ids->p = p;
    return true;
}

bool lq_tok_ids_add(lq_ids *ids, const int32_t *p, size_t n, lq_err *err) {
    if (!lq_tok_ids_room(ids, n, err)) return false;
    if (n) memcpy(ids->p + ids->n, p, n * sizeof *p);
    ids->n += n;
    return true;
}

static bool sym_add(lq_tok_work *w, int32_t id, lq_err *err) {
    if (w->sym.n == w->sym.cap && !lq_tok_ids_room(&w->sym, 1, err)) return false;
    w->sym.p[w->sym.n++] = id;
    return true;
}

static bool unk_flush(lq_tok_work *w, bool *pending, lq_err *err) {
    if (!*pending) return true;
    *pending = false;
    return sym_add(w, w->t->vocab.unk, err);
}

// A character that is no token: its bytes, else the unknown token, else nothing. `text`: with prefix and suffix.
static bool stranger_add(lq_tok_work *w, const char *text, size_t n, bool *pending, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    bool all = v->byte_fallback && !v->byte_level;
    for (size_t i = 0; all && i < n; i++) all = v->byte_id[(uint8_t)text[i]] >= 0;
    if (all) { // an unknown token that is waiting goes on waiting
        for (size_t i = 0; i < n; i++) {
            if (!sym_add(w, v->byte_id[(uint8_t)text[i]], err)) return false;
        }
        return true;
    }
    if (v->unk_name) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: model.unk_token %.60s is not in the vocabulary",
                                    v->unk_name);
    if (v->unk < 0) return true;
    if (*pending && !v->fuse_unk && !unk_flush(w, pending, err)) return false;
    *pending = true;
    return true;
}

static int32_t char_id(const lq_tok_vocab *v, uint32_t c) {
    const int32_t *page = v->chars[c >> 8];
    return page ? page[c & 255] : -1;
}

static bool affixed_add(lq_tok_work *w, const char *p, size_t n, bool first, bool last, bool *pending, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    char t[144];
    size_t k = 0;
    if (!first && v->prefix) memcpy(t, v->prefix, k = strlen(v->prefix));
    memcpy(t + k, p, n);
    k += n;
    if (last && v->suffix) {
        memcpy(t + k, v->suffix, strlen(v->suffix));
        k += strlen(v->suffix);
    }
    int32_t id = lq_tok_vocab_find(v, t, k);
    return id < 0 ? stranger_add(w, t, k, pending, err) : unk_flush(w, pending, err) && sym_add(w, id, err);
}

static bool symbols_make(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    bool pending = false, affixed = v->prefix || v->suffix;
    char mapped[4];
    w->sym.n = 0;
    if (w->sym.cap < n && !lq_tok_ids_room(&w->sym, n, err)) return false;
    for (size_t i = 0, len; i < n; i += len) {
        const char *q = p + i;
        size_t k;
        int32_t id;
        if (v->byte_level) {
            len = 1;
            id = affixed ? -1 : v->byte_id[(uint8_t)*q];
            if (id < 0) {
                k = lq_tok_char_put(lq_tok_byte_char((uint8_t)*q), mapped);
                q = mapped;
            }
        } else {
            uint32_t c = lq_tok_char_get(q, &len);
            id = affixed ? -1 : char_id(v, c);
            k = len;
        }
        bool ok;
        if (id >= 0) ok = unk_flush(w, &pending, err) && sym_add(w, id, err);
        else if (affixed) ok = affixed_add(w, q, k, i == 0, i + len == n, &pending, err);
        else ok = stranger_add(w, q, k, &pending, err);
        if (!ok) return false;
    }
    return unk_flush(w, &pending, err);
}

// --- merging ---

static bool short_merge(lq_tok_work *w, const int32_t *sym, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    const lq_tok_merge *pair[SCAN]; // of symbol i and the next; NULL: none
    int32_t s[SCAN];
    memcpy(s, sym, n * sizeof *s);
    for (size_t i = 0; i + 1 < n; i++) pair[i] = lq_tok_merge_find(v, s[i], s[i + 1]);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (pair[i] && pair[i]->rank < rank) {
                rank = pair[i]->rank;
                best = i;
            }
        }
        if (best == n) break;
        s[best] = pair[best]->id;
        n--;
        memmove(s + best + 1, s + best + 2, (n - best - 1) * sizeof *s);
        if (best + 1 < n) {
            memmove(pair + best + 1, pair + best + 2, (n - best - 2) * sizeof *pair);
            pair[best] = lq_tok_merge_find(v, s[best], s[best + 1]);
        }
        if (best) pair[best - 1] = lq_tok_merge_find(v, s[best - 1], s[best]);
    }
    return lq_tok_ids_add(w->out, s, n, err);
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t key) {
    size_t i = (*n)++;
    while (i && heap[(i - 1) / 2] > key) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n) {
    uint64_t top = heap[0], key = heap[--*n];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < *n; i = k) {
        if (k + 1 < *n && heap[k + 1] < heap[k]) k++;
        if (heap[k] >= key) break;
        heap[i] = heap[k];
    }
    heap[i] = key;
    return top;
}

static bool links_room(lq_tok_work *w, size_t n, lq_err *err) {
    if (n <= w->links) return true;
    if (n >= UINT32_MAX) return lq_fail(err, LQ_E_LIMIT, "tokenizer: a word of %zu symbols", n);
    free(w->link);
    free(w->heap);
    w->links = 0;
    w->link = malloc(2 * n * sizeof *w->link);
    w->heap = malloc(3 * n * sizeof *w->heap); // each merge takes one entry away and adds two at most
    if (!w->link || !w->heap) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for a word of %zu symbols", n);
    w->links = n;
    return true;
}

static bool long_merge(lq_tok_work *w, int32_t *s, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    if (!links_room(w, n, err)) return false;
    uint32_t *before = w->link, *after = w->link + n; // after[last] = n
    uint64_t *heap = w->heap;
    size_t heaped = 0;
    for (size_t i = 0; i < n; i++) {
        before[i] = (uint32_t)i - 1;
        after[i] = (uint32_t)i + 1;
        const lq_tok_merge *m = i + 1 < n ? lq_tok_merge_find(v, s[i], s[i + 1]) : NULL;
        if (m) heap_push(heap, &heaped, (uint64_t)m->rank << 32 | i);
    }
    while (heaped) {
        uint64_t top = heap_pop(heap, &heaped);
        uint32_t i = (uint32_t)top;
        if (s[i] < 0 || after[i] == n) continue;
        uint32_t next = after[i];
        const lq_tok_merge *m = lq_tok_merge_find(v, s[i], s[next]);
        if (!m || m->rank != top >> 32) continue; // the pair is no longer what it was
        s[i] = m->id;
        s[next] = -1;
        after[i] = after[next];
        if (after[i] < n) before[after[i]] = i;
        m = i ? lq_tok_merge_find(v, s[before[i]], s[i]) : NULL;
        if (m) heap_push(heap, &heaped, (uint64_t)m->rank << 32 | before[i]);
        m = after[i] < n ? lq_tok_merge_find(v, s[i], s[after[i]]) : NULL;
        if (m) heap_push(heap, &heaped, (uint64_t)m->rank << 32 | i);
    }
    if (!lq_tok_ids_room(w->out, n, err)) return false;
    for (size_t i = 0; i < n; i = after[i]) w->out->p[w->out->n++] = s[i];
    return true;
}

// Between symbols that no token joins there is nothing to merge: each stretch is merged for itself.
static bool stretches_merge(lq_tok_work *w, lq_err *err) {
    const uint64_t *bits = w->t->vocab.adjacent;
    int32_t *s = w->sym.p;
    size_t n = w->sym.n;
    for (size_t i = 0; i < n;) {
        size_t end = bits ? i + 1 : n;
        while (end < n) {
            uint32_t slot = lq_tok_adjacent_slot(s[end - 1], s[end]);
            if (!(bits[slot >> 6] >> (slot & 63) & 1)) break;
            end++;
        }
        if (!(end - i <= SCAN ? short_merge(w, s + i, end - i, err) : long_merge(w, s + i, end - i, err))) return false;
        i = end;
    }
    return true;
}

// --- a word ---

static bool word_encode(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    return symbols_make(w, p, n, err) && stretches_merge(w, err);
}

static bool whole_find(lq_tok_work *w, const char *p, size_t n, bool *found, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    int32_t id;
    *found = false;
    if (v->byte_level) {
        char t[2 * LQ_TOK_MAX_CONTENT];
        size_t k = 0;
        if (n > LQ_TOK_MAX_CONTENT) return true;
        for (size_t i = 0; i < n; i++) k += lq_tok_char_put(lq_tok_byte_char((uint8_t)p[i]), t + k);
        id = lq_tok_vocab_find(v, t, k);
    } else id = lq_tok_vocab_find(v, p, n);
    if (id < 0) return true;
    *found = true;
    return lq_tok_ids_add(w->out, &id, 1, err);
}

bool lq_tok_bpe_word(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    if (w->t->vocab.ignore_merges) {
        bool found;
        if (!whole_find(w, p, n, &found, err)) return false;
        if (found) return true;
    }
    lq_tok_cell *c = NULL;
    if (w->cells && n <= sizeof c->key) {
        c = &w->cells[XXH3_64bits(p, n) % CELLS];
        if (c->n == n && !memcmp(c->key, p, n)) return lq_tok_ids_add(w->out, c->id, c->ids, err);
    }
    size_t had = w->out->n;
    if (!word_encode(w, p, n, err)) return false;
    size_t ids = w->out->n - had;
    if (c && ids <= sizeof c->id / sizeof *c->id) {
        c->n = (uint8_t)n;
        c->ids = (uint8_t)ids;
        memcpy(c->key, p, n);
        memcpy(c->id, w->out->p + had, ids * sizeof *c->id);
    }
    return true;
}
