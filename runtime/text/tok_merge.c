// tok_merge.c: the merges of BPE: which two symbols become which token, and in what order.
// Refuses merges whose parts or result are no tokens, and vocabularies with absurdly many ways to join two tokens.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

enum { ADJACENT_ROUNDS = 64 };
#define JOIN_WORK (1ull << 32) // bytes that are hashed to find all ways to join two tokens

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

static void merge_put(lq_tok_vocab *v, lq_tok_merge m) {
    size_t i = merge_slot(v, m.pair);
    while (v->merge[i].pair != UINT64_MAX && v->merge[i].pair != m.pair) i = (i + 1) & v->merge_mask;
    v->merge[i] = m;
}

bool lq_tok_merges_begin(lq_tok_vocab *v, size_t n, lq_err *err) {
    size_t size = 16;
    if (n > UINT32_MAX / 4) return lq_fail(err, LQ_E_LIMIT, "tokenizer: %zu merges", n);
    while (size < 2 * n) size *= 2;
    v->merge = malloc(size * sizeof *v->merge);
    if (!v->merge) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu merges", n);
    for (size_t i = 0; i < size; i++) v->merge[i].pair = UINT64_MAX;
    v->merge_mask = size - 1;
    return true;
}

bool lq_tok_merge_add(lq_tok_vocab *v, uint32_t i, const char *a, size_t a_n, const char *b, size_t b_n,
                      lq_tok_buf *joined, const char *what, lq_err *err) {
    int32_t left = lq_tok_vocab_find(v, a, a_n), right = lq_tok_vocab_find(v, b, b_n);
    if (left < 0 || right < 0)
        return lq_fail(err, LQ_E_FORMAT, "%s[%u] is not a pair of tokens", what, (unsigned)i);
    size_t skip = v->prefix ? strlen(v->prefix) : 0;
    if (skip > b_n) skip = b_n;
    joined->n = 0;
    if (!lq_tok_buf_add(joined, a, a_n, err) || !lq_tok_buf_add(joined, b + skip, b_n - skip, err)) return false;
    int32_t id = lq_tok_vocab_find(v, joined->p, joined->n);
    if (id < 0) return lq_fail(err, LQ_E_FORMAT, "%s[%u] makes what is not in the vocabulary", what, (unsigned)i);
    merge_put(v, (lq_tok_merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, i, id});
    return true;
}

// --- every way to join two tokens ---

typedef struct joins { lq_tok_merge *p; size_t n, cap; } joins;
typedef struct rated { double score; int32_t id; } rated;

static int rated_order(const void *a, const void *b) {
    const rated *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

// Tokens of equal score have one rank: of their merges the leftmost goes first.
static uint32_t *ranks_make(const lq_tok_vocab *v, lq_err *err) {
    const size_t n = (size_t)v->count;
    uint32_t *rank = malloc((n + 1) * sizeof *rank), last = 0;
    rated *list = malloc((n + 1) * sizeof *list);
    if (!rank || !list) {
        lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu tokens", n);
        free(rank);
        rank = NULL;
    }
    for (size_t i = 0; rank && i < n; i++) list[i] = (rated){v->pieces ? v->score[i] : -(double)i, (int32_t)i};
    if (rank) qsort(list, n, sizeof *list, rated_order);
    for (size_t i = 0; rank && i < n; i++) {
        if (i && list[i].score < list[i - 1].score) last++;
        rank[list[i].id] = last;
    }
    free(list);
    return rank;
}

// The symbol of a part: a token, or a character by itself.
static int32_t part_find(const lq_tok_vocab *v, const char *p, size_t n) {
    int32_t id = lq_tok_vocab_find(v, p, n);
    if (id >= 0 || !v->pieces) return id;
    size_t len;
    uint32_t c = lq_tok_char_get(p, &len);
    return len == n ? lq_tok_sym_stray(v, c) : -1;
}

static bool token_join(const lq_tok_vocab *v, int32_t id, uint32_t rank, joins *out, lq_err *err) {
    const char *p = v->text + v->at[id];
    const size_t n = v->len[id];
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        lq_tok_char_get(p + i, &len);
        int32_t a = i ? part_find(v, p, i) : -1, b = a < 0 ? -1 : part_find(v, p + i, n - i);
        if (b < 0) continue;
        if (!lq_grow((void **)&out->p, out->n, &out->cap, sizeof *out->p))
            return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu merges", out->n);
        out->p[out->n++] = (lq_tok_merge){(uint64_t)(uint32_t)a << 32 | (uint32_t)b, rank, id};
    }
    return true;
}

bool lq_tok_merges_join(lq_tok_vocab *v, const char *what, lq_err *err) {
    unsigned long long work = 0;
    joins all = {0};
    for (int32_t id = 0; id < v->count; id++)
        if (v->kind[id] & LQ_TOK_K_MODEL) work += (unsigned long long)v->len[id] * v->len[id];
    if (work > JOIN_WORK)
        return lq_fail(err, LQ_E_LIMIT, "%s: tokens too long to find what they are merged from", what);
    uint32_t *rank = ranks_make(v, err);
    bool ok = rank != NULL;
    for (int32_t id = 0; ok && id < v->count; id++)
        if (v->kind[id] & LQ_TOK_K_MODEL) ok = token_join(v, id, rank[id], &all, err);
    ok = ok && lq_tok_merges_begin(v, all.n, err);
    for (size_t i = 0; ok && i < all.n; i++) merge_put(v, all.p[i]);
    free(rank);
    free(all.p);
    return ok;
}

// --- what may stand side by side ---

// Symbols beyond the vocabulary are whole characters.
static int32_t end_of(const lq_tok_vocab *v, const int32_t *ends, uint32_t sym) {
    return sym < (uint32_t)v->count ? ends[sym] : (int32_t)sym;
}

// The first and last symbol of every token, from those of the tokens it is merged from. A token that has two different
// ones (or is both a symbol and merged) makes it false: then no word is cut short.
static bool ends_find(const lq_tok_vocab *v, int32_t *first, int32_t *last) {
    for (int round = 0; round < ADJACENT_ROUNDS; round++) {
        bool changed = false;
        for (size_t i = 0; i <= v->merge_mask; i++) {
            const lq_tok_merge *m = &v->merge[i];
            if (m->pair == UINT64_MAX) continue;
            int32_t f = end_of(v, first, (uint32_t)(m->pair >> 32)), l = end_of(v, last, (uint32_t)m->pair);
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

static void ends_begin(const lq_tok_vocab *v, int32_t *first) {
    memset(first, 0xff, (size_t)v->count * sizeof *first);
    for (int32_t id = 0; id < v->count; id++) {
        size_t len;
        if (!v->len[id]) continue;
        lq_tok_char_get(v->text + v->at[id], &len);
        if (len == v->len[id] || id == v->unk) first[id] = id;
    }
    for (int b = 0; b < 256 && !v->pieces; b++)
        if (v->byte_id[b] >= 0) first[v->byte_id[b]] = v->byte_id[b];
}

// Two symbols that stand side by side in no merged token can never be merged across: a word is cut there before
// merging. Not so where merges are taken back in the order in which they were seen.
bool lq_tok_merges_index(lq_tok_vocab *v, lq_err *err) {
    size_t n = (size_t)v->count;
    if (v->prefix || v->suffix || v->unused) return true;
    int32_t *first = malloc((n + 1) * sizeof *first), *last = malloc((n + 1) * sizeof *last);
    uint64_t *bits = calloc(LQ_TOK_ADJACENT / 64, sizeof *bits);
    bool known = first && last && bits;
    if (known) {
        ends_begin(v, first);
        memcpy(last, first, n * sizeof *last);
        known = ends_find(v, first, last);
    } else lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    for (size_t i = 0; known && i <= v->merge_mask; i++) {
        uint64_t pair = v->merge[i].pair;
        if (pair == UINT64_MAX) continue;
        int32_t a = end_of(v, last, (uint32_t)(pair >> 32)), b = end_of(v, first, (uint32_t)pair);
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
