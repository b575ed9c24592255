// couples.h: two k of 16 weight rows, as layout x86 has numbers of bf16, against those of rows of activations,
// broadcast. Owns nothing.
#ifndef LQ_COUPLES_H
#define LQ_COUPLES_H
#include "kernels/cpu/x86/packed.h"

enum { HIGH = 6, WIDE = 4 /* rows and tiles of a block */, TALL = 12 /* rows that meet a tile as it comes */,
       CUT = 4096 /* k: of WIDE tiles they stay in the second cache */ };

typedef int32_t __attribute__((may_alias, aligned(2))) couple;
INLINE __m512i couple_of(const uint16_t *x) { return _mm512_set1_epi32(*(const couple *)(const void *)x); }
INLINE __m512 dot2(__m512 s, __m512i w, __m512i x) { return _mm512_dpbf16_ps(s, (__m512bh)w, (__m512bh)x); }

// Every second pair of k from w and x on, `count` of them, of N tiles, `tile` bytes apart, against HIGH rows.
INLINE void couples_dot(const char *w, size_t tile, const uint16_t *x, size_t x_row, int64_t count,
                        __m512 s[HIGH][WIDE], ahead *next, const int N) {
    EACH (int m = 0; m < HIGH; m++) EACH (int i = 0; i < N; i++) s[m][i] = vf_zero();
    for (int64_t p = 0; p < count; p++, w += 2 * LINE, x += 4) {
        __m512i v[WIDE];
        ahead_ask(next);
        EACH (int i = 0; i < N; i++) v[i] = _mm512_loadu_si512(w + (size_t)i * tile);
        EACH (int m = 0; m < HIGH; m++) {
            const __m512i u = couple_of(x + (size_t)m * x_row);
            EACH (int i = 0; i < N; i++) s[m][i] = dot2(s[m][i], v[i], u);
        }
    }
}
#endif
