// packed.h: matrices of numbers in layout x86 as streams of lines: where a cut of k ends, and what of them is asked for
// before its turn. Owns nothing.
#ifndef LQ_PACKED_H
#define LQ_PACKED_H
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { LINE = 64 /* bytes: 4 of each of 16 rows */, NEAR = 4096, FAR = 16384 /* bytes */ };

INLINE vm columns(int64_t n, int64_t at) { // of VEC rows of weights from `at` on that are in the result
    const int64_t left = n - at;
    return vm_first(left < 0 ? 0 : left < VEC ? (int)left : VEC);
}

// Rows of the first part of so many, up to `tall`: the rest are whole blocks of `high`.
INLINE int first_part(int rows, const int tall, const int high) {
    return rows <= tall ? rows : rows - (rows - tall + high - 1) / high * high;
}

INLINE int64_t cut_end(int64_t k, int64_t end, const int64_t cut) { return end - k < cut ? end : k + cut; }

// passing: a tile's turn comes once, its lines go to the first cache and nowhere else.
INLINE void line_ask(const char *w, const bool passing) {
    if (passing) {
        _mm_prefetch(w + FAR, _MM_HINT_NTA);
        _mm_prefetch(w + NEAR, _MM_HINT_NTA);
    } else {
        _mm_prefetch(w + FAR, _MM_HINT_T1);
        _mm_prefetch(w + NEAR, _MM_HINT_T1);
    }
}

// One of them, bytes of a tile and of one k of it, and how many blocks of rows meet it: k in cuts, `wide` tiles at a
// time of a pass of `pass`, with `steps` for a cut's two k, each of which asks for something.
typedef struct packed {
    const char *w;
    size_t tile, column;
    int64_t tiles, k, cut, pass;
    int wide, steps, blocks;
} packed;

// What is asked for on the way, into the second cache: with each step so many bytes further; 0: nothing new.
typedef struct ahead { const char *at; size_t step; } ahead;
INLINE void ahead_ask(ahead *a) {
    _mm_prefetch(a->at, _MM_HINT_T1);
    a->at += a->step;
}

// The share of block b of what comes behind the cut at k of the tiles from t on. That is their next cut, or the first
// one of the tiles a pass behind, whoever's they are. (The last share of a tile may end some lines further.)
INLINE ahead ahead_of(const packed *p, int64_t t, int64_t k, int b) {
    const int64_t end = cut_end(k, p->k, p->cut), next = end < p->k ? end : 0;
    const int share = p->blocks < p->wide ? 1 : p->blocks / p->wide; // so many blocks for a tile
    const int64_t tile = (next ? t : t + p->pass) + b / share;
    const size_t bytes = (size_t)(cut_end(next, p->k, p->cut) - next) * p->column;
    const size_t own = (size_t)(end - k + 1) / 2 * (size_t)p->steps, all = own * (size_t)share;
    const size_t step = (bytes + all - 1) / all, from = (size_t)(b % share) * own * step;
    if (b / share >= p->wide || tile >= p->tiles || from >= bytes) return (ahead){p->w + (size_t)t * p->tile, 0};
    return (ahead){p->w + (size_t)tile * p->tile + (size_t)next * p->column + from, step};
}

// X, a macro, of every height up to 6, and up to 12; the functions that it names, for a table.
#define TO_6(X, NAME, ...)                                                                                            \
    X(NAME, 1, __VA_ARGS__) X(NAME, 2, __VA_ARGS__) X(NAME, 3, __VA_ARGS__) X(NAME, 4, __VA_ARGS__)                   \
    X(NAME, 5, __VA_ARGS__) X(NAME, 6, __VA_ARGS__)
#define TO_12(X, NAME, ...)                                                                                           \
    TO_6(X, NAME, __VA_ARGS__) X(NAME, 7, __VA_ARGS__) X(NAME, 8, __VA_ARGS__) X(NAME, 9, __VA_ARGS__)                \
    X(NAME, 10, __VA_ARGS__) X(NAME, 11, __VA_ARGS__) X(NAME, 12, __VA_ARGS__)
#define NAME_OF(NAME, M, ...) NAME##M,
#endif
