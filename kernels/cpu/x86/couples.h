// couples.h: two k of 16 weight rows, as layout x86 has numbers of bf16, against those of rows of activations,
// broadcast. Owns nothing.
#ifndef LQ_COUPLES_H
#define LQ_COUPLES_H
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { LINE = 64 /* bytes of a pair of k of 16 rows */, HIGH = 6, WIDE = 4 /* rows and tiles of a block */,
       TALL = 12 /* rows that meet a tile as it comes from memory */,
       CUT = 4096 /* k: of WIDE tiles they stay in the second cache */, NEAR = 4096, FAR = 16384 /* bytes */ };

// Rows of the first part of so many: the rest are whole blocks.
INLINE int first_part(int rows) { return rows <= TALL ? rows : rows - (rows - TALL + HIGH - 1) / HIGH * HIGH; }

INLINE vm columns(int64_t n, int64_t t) { // of tile t that are in the result
    return vm_first(n - t * VEC < VEC ? (int)(n - t * VEC) : VEC);
}

typedef int32_t __attribute__((may_alias, aligned(2))) couple;
INLINE __m512i couple_of(const uint16_t *x) { return _mm512_set1_epi32(*(const couple *)(const void *)x); }
INLINE __m512 dot2(__m512 s, __m512i w, __m512i x) { return _mm512_dpbf16_ps(s, (__m512bh)w, (__m512bh)x); }

INLINE int64_t cut_end(int64_t k, int64_t end) { return end - k < CUT ? end : k + CUT; }

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

// A matrix in layout x86: bytes of a tile and of one k of it.
typedef struct packed {
    const char *w;
    size_t tile, column;
    int64_t tiles, k;
} packed;

// What is asked for on the way, into the second cache: with each pair of k `step` bytes further; 0: nothing new.
typedef struct ahead { const char *at; size_t step; } ahead;

// Block b's of `blocks`: its share of what comes behind the cut at k of WIDE tiles from t on. That is their next cut,
// or the first one of the tiles behind, whoever's they are. (The last share of a tile may end some lines further.)
INLINE ahead ahead_of(const packed *p, int64_t t, int64_t k, int b, int blocks) {
    const int64_t end = cut_end(k, p->k), next = end < p->k ? end : 0;
    const int share = blocks < WIDE ? 1 : blocks / WIDE; // so many blocks for a tile
    const int64_t tile = (next ? t : t + WIDE) + b / share;
    const size_t bytes = (size_t)(cut_end(next, p->k) - next) * p->column, pairs = (size_t)(end - k + 1) / 2;
    const size_t steps = pairs * (size_t)share, step = (bytes + steps - 1) / steps;
    const size_t from = (size_t)(b % share) * pairs * step;
    if (b / share >= WIDE || tile >= p->tiles || from >= bytes) return (ahead){p->w + (size_t)t * p->tile, 0};
    return (ahead){p->w + (size_t)tile * p->tile + (size_t)next * p->column + from, step};
}

// Every second pair of k from w and x on, `count` of them, of N tiles, `tile` bytes apart, against HIGH rows.
INLINE void couples_dot(const char *w, size_t tile, const uint16_t *x, size_t x_row, int64_t count,
                        __m512 s[HIGH][WIDE], ahead *next, const int N) {
    EACH (int m = 0; m < HIGH; m++) EACH (int i = 0; i < N; i++) s[m][i] = vf_zero();
    for (int64_t p = 0; p < count; p++, w += 2 * LINE, x += 4) {
        __m512i v[WIDE];
        _mm_prefetch(next->at, _MM_HINT_T1);
        next->at += next->step;
        EACH (int i = 0; i < N; i++) v[i] = _mm512_loadu_si512(w + (size_t)i * tile);
        EACH (int m = 0; m < HIGH; m++) {
            const __m512i u = couple_of(x + (size_t)m * x_row);
            EACH (int i = 0; i < N; i++) s[m][i] = dot2(s[m][i], v[i], u);
        }
    }
}

// Every height of X, a macro.
#define TO_12(X, NAME, ...)                                                                                           \
    X(NAME, 1, __VA_ARGS__) X(NAME, 2, __VA_ARGS__) X(NAME, 3, __VA_ARGS__) X(NAME, 4, __VA_ARGS__)                   \
    X(NAME, 5, __VA_ARGS__) X(NAME, 6, __VA_ARGS__) X(NAME, 7, __VA_ARGS__) X(NAME, 8, __VA_ARGS__)                   \
    X(NAME, 9, __VA_ARGS__) X(NAME, 10, __VA_ARGS__) X(NAME, 11, __VA_ARGS__) X(NAME, 12, __VA_ARGS__)
#define NAME_OF(NAME, M, ...) NAME##M,
#endif
