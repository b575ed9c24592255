// tok_unigram.c: Unigram: of all ways to cut a word into tokens the one of the highest sum of scores, of equal ones the
// one whose last token is the longest. One pass from the left: at each place the best way to get there is known.
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

enum { STRETCH = 4096 }; // bytes after which a place that all ways pass is looked for
static const float SUM_MAX = 100000;

static bool best_room(lq_tok_work *w, size_t n, lq_err *err) {
    void *p = w->best;
    if (!lq_tok_array_room(&p, &w->bests, n, sizeof *w->best, err)) return false;
    w->best = p;
    return true;
}

// Characters that are no tokens, side by side, are one piece: a token by chance, its bytes, or the unknown token.
static bool unknown_add(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    int32_t id = v->pieces ? -1 : lq_tok_vocab_find(v, p, n);
    bool done;
    if (id >= 0) return lq_tok_ids_add(w->out, &id, 1, err);
    return lq_tok_fallback_add(w, p, n, &done, err) && (done || lq_tok_unk_add(w, err));
}

// The tokens of p[0..n), from the best way to reach its end.
static bool path_add(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    lq_ids *path = &w->sym;
    path->n = 0;
    for (size_t end = n; end; end = w->best[end].start) {
        const int32_t pair[2] = {w->best[end].id, (int32_t)end};
        if (!lq_tok_ids_add(path, pair, 2, err)) return false;
    }
    size_t at = 0;
    for (size_t i = path->n; i; i -= 2) {
        const int32_t id = path->p[i - 2];
        const size_t end = (size_t)path->p[i - 1];
        if (id == v->unk && i > 2 && path->p[i - 4] == v->unk) continue; // `at` stays where the unknown ones begin
        if (!(id == v->unk ? unknown_add(w, p + at, end - at, err) : lq_tok_ids_add(w->out, &id, 1, err))) return false;
        at = end;
    }
    return true;
}

// What sentencepiece adds up are floats, in this order; a piece that users defined outweighs whatever is below it.
static double sum_of(const lq_tok_vocab *v, double before, int32_t id, size_t n) {
    if (!v->pieces) return before + (id < 0 ? v->unk_score : v->score[id]);
    if (id < 0) return (float)v->unk_score + (float)before;
    if (v->kind[id] & LQ_TOK_K_USER) return (float)(0.1 * (double)(n - 1)) + (float)before;
    return (float)v->score[id] + (float)before;
}

static inline void best_take(const lq_tok_vocab *v, lq_tok_best *to, double score, size_t start, int32_t id) {
    if (to->start != UINT32_MAX && !(score > to->score)) return;
    *to = (lq_tok_best){v->pieces ? (double)(float)score : score, (uint32_t)start, id};
}

// Where a sum of floats grows so large that its last digits are gone, sentencepiece begins at 0 again.
static void sums_lower(lq_tok_work *w, size_t at, size_t reach) {
    const float sum = (float)w->best[at].score;
    if (!w->t->vocab.pieces || (sum >= -SUM_MAX && sum <= SUM_MAX)) return;
    for (size_t i = at; i <= reach; i++)
        if (i == at || w->best[i].start != UINT32_MAX) w->best[i].score = (float)w->best[i].score - sum;
}

// All tokens that begin at `at` of p[0..n); *reach: the furthest end of any.
static bool place_walk(lq_tok_work *w, const char *p, size_t n, size_t at, size_t *reach, lq_err *err) {
    const lq_tok_vocab *v = &w->t->vocab;
    sums_lower(w, at, *reach);
    const double before = w->best[at].score;
    size_t len;
    uint32_t node = 0;
    bool single = false;
    lq_tok_char_get(p + at, &len);
    for (size_t i = at; i < n; i++) {
        node = lq_tok_tree_step(&v->tree, node, (uint8_t)p[i]);
        if (!node) break;
        const int32_t id = v->tree.token[node];
        if (id < 0) continue;
        if (i + 1 > *reach) {
            if (!best_room(w, i + 2, err)) return false;
            while (*reach < i + 1) w->best[++*reach].start = UINT32_MAX;
        }
        best_take(v, &w->best[i + 1], sum_of(v, before, id, i + 1 - at), at, id);
        if (i + 1 == at + len) single = true;
    }
    if (single) return true;
    if (v->unk < 0) return lq_tok_unk_add(w, err);
    if (at + len > *reach) {
        if (!best_room(w, at + len + 1, err)) return false;
        while (*reach < at + len) w->best[++*reach].start = UINT32_MAX;
    }
    best_take(v, &w->best[at + len], sum_of(v, before, -1, len), at, v->unk);
    return true;
}

// A long word is decided stretch by stretch: at places that no token spans, and where no unknown ones may go on.
bool lq_tok_unigram_word(lq_tok_work *w, const char *p, size_t n, lq_err *err) {
    size_t at = 0, reach = 0, len;
    if (n >= UINT32_MAX / 2) return lq_fail(err, LQ_E_LIMIT, "tokenizer: a word of %zu bytes", n);
    if (!best_room(w, 1, err)) return false;
    w->best[0] = (lq_tok_best){0, 0, -1};
    while (at < n) {
        if (!place_walk(w, p, n, at, &reach, err)) return false;
        lq_tok_char_get(p + at, &len);
        at += len;
        if (at < n && (at < STRETCH || reach > at || w->best[at].id == w->t->vocab.unk)) continue;
        if (!path_add(w, p, at, err)) return false;
        w->best[0].score = w->best[at].score;
        p += at;
        n -= at;
        at = reach = 0;
    }
    return true;
}
