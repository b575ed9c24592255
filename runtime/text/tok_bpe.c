// tok_bpe.c: byte pair encoding of one word: its symbols, then the merge of the lowest rank (of equals: the leftmost)
// until none is left. Short stretches are scanned, long ones use a heap: n log n for any word. Then sentencepiece's own
// rules: pieces that users defined, pieces that are taken apart again, characters that are no pieces.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

enum { SCAN = 40 };

// --- symbols ---

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
    bool all = v->byte_fallback;
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
            id = affixed ? -1 : lq_tok_char_id(v, c);
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

// A pair that may be merged. Of a piece that is taken apart again the last pair that was seen counts.
static const lq_tok_merge *pair_see(lq_tok_work *w, int32_t a, int32_t b) {
    const lq_tok_vocab *v = &w->t->vocab;
    const lq_tok_merge *m = lq_tok_merge_find(v, a, b);
    if (m && w->apart && (v->kind[m->id] & LQ_TOK_K_UNUSED)) w->apart[m->id] = m->pair;
    return m;
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
        const lq_tok_merge *m = i + 1 < n ? pair_see(w, s[i], s[i + 1]) : NULL;
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
        m = i ? pair_see(w, s[before[i]], s[i]) : NULL;
        if (m) heap_push(heap, &heaped, (uint64_t)m->rank << 32 | before[i]);
        m = after[i] < n ? pair_see(w, s[i], s[after[i]]) : NULL;
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
        const bool few = end - i <= SCAN && !w->apart;
        if (!(few ? short_merge(w, s + i, end - i, err) : long_merge(w, s + i, end - i, err))) return false;
        i = end;
    }
    return true;
}

// --- sentencepiece's pieces ---

static bool piece_symbols(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    w->sym.n = 0;
    if (w->sym.cap < n && !lq_tok_ids_room(&w->sym, n, err)) return false;
    for (size_t i = 0, len; i < n; i += len) {
        int32_t id;
        if ((len = lq_tok_tree_longest(&v->user, 0, p + i, n - i, &id)) > 0) id = lq_tok_sym_user(v, id);
        else {
            uint32_t c = lq_tok_char_get(p + i, &len);
            id = lq_tok_char_id(v, c);
            if (id < 0) id = lq_tok_sym_stray(v, c);
        }
        w->sym.p[w->sym.n++] = id;
    }
    return true;
}

static bool apart_make(lq_tok_work *w, lq_err *err) {
    const size_t n = (size_t)w->t->vocab.count;
    if (!w->t->vocab.unused || w->apart) return true;
    w->apart = malloc(n * sizeof *w->apart);
    if (!w->apart) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu pieces", n);
    memset(w->apart, 0xff, n * sizeof *w->apart);
    return true;
}

// A symbol becomes ids; *stray: the one before was unknown, and of those side by side only one is told.
static bool symbol_emit(lq_tok_work *w, int32_t sym, bool *stray, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    if (sym < 2 * v->count) {
        *stray = false;
        if (sym >= v->count) sym -= v->count;
        return lq_tok_ids_add(w->out, &sym, 1, err);
    }
    char text[4];
    bool done;
    const size_t n = lq_tok_char_put((uint32_t)(sym - 2 * v->count), text);
    if (!lq_tok_fallback_add(w, text, n, &done, err)) return false;
    if (!done && !*stray && !lq_tok_unk_add(w, err)) return false;
    *stray = !done;
    return true;
}

static bool symbols_emit(lq_tok_work *w, size_t had, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    lq_ids *in = &w->sym, todo = {0};
    bool ok = true, stray = false, plain = !w->apart;
    for (size_t i = had; plain && i < w->out->n; i++) plain = w->out->p[i] < v->count;
    if (plain) return true;
    in->n = 0;
    ok = lq_tok_ids_add(in, w->out->p + had, w->out->n - had, err);
    w->out->n = had;
    for (size_t i = 0; ok && i < in->n; i++) {
        ok = lq_tok_ids_add(&todo, &in->p[i], 1, err);
        while (ok && todo.n) {
            const int32_t sym = todo.p[--todo.n];
            const bool taken = w->apart && sym < v->count && (v->kind[sym] & LQ_TOK_K_UNUSED) &&
                               w->apart[sym] != UINT64_MAX;
            const int32_t parts[2] = {taken ? (int32_t)w->apart[sym] : 0, taken ? (int32_t)(w->apart[sym] >> 32) : 0};
            ok = taken ? lq_tok_ids_add(&todo, parts, 2, err) : symbol_emit(w, sym, &stray, err);
        }
    }
    free(todo.p);
    return ok;
}

static bool pieces_encode(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const size_t had = w->out->n;
    return apart_make(w, err) && piece_symbols(w, p, n, err) && stretches_merge(w, err) && symbols_emit(w, had, err);
}

// --- a word ---

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
    bool found = false;
    if (w->t->vocab.pieces) return pieces_encode(w, p, n, err);
    if (w->t->vocab.ignore_merges && !whole_find(w, p, n, &found, err)) return false;
    return found || (symbols_make(w, p, n, err) && stretches_merge(w, err));
}
