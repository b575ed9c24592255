// couples.h: two k of 16 weight rows, as layout x86 has numbers of bf16, against those of rows of activations,
// broadcast. Owns nothing.
#ifndef LQ_COUPLES_H
#define LQ_COUPLES_H
#include "kernels/cpu/x86/packed.h"

enum { HIGH = 6, SIDES = 2 /* rows and tiles of a block */, TALL = 12 /* rows that meet a tile as it comes */,
       WIDE = 4, CUT = 4096 /* tiles, and k of them, that stay in the second cache while blocks pass by */ };
_Static_assert(WIDE == 2 * SIDES, "each four k of a block ask once: of the tiles that wait, once for two k");

typedef int32_t __attribute__((may_alias, aligned(2))) couple;
INLINE __m512i couple_of(const uint16_t *x) { return _mm512_set1_epi32(*(const couple *)(const void *)x); }
INLINE __m512 dot2(__m512 s, __m512i w, __m512i x) { return _mm512_dpbf16_ps(s, (__m512bh)w, (__m512bh)x); }

// `count` times four k from w and x on of N tiles, `tile` bytes apart, against HIGH rows.
INLINE void couples_dot(const char *w, size_t tile, const uint16_t *x, size_t x_row, int64_t count,
                        __m512 even[HIGH][SIDES], __m512 odd[HIGH][SIDES], ahead *next, const int N) {
    EACH (int m = 0; m < HIGH; m++) EACH (int i = 0; i < N; i++) even[m][i] = odd[m][i] = vf_zero();
    for (int64_t p = 0; p < count; p++, w += 2 * LINE, x += 4) {
        __m512i v[SIDES], u[SIDES];
        ahead_ask(next);
        EACH (int i = 0; i < N; i++) v[i] = _mm512_loadu_si512(w + (size_t)i * tile);
        EACH (int i = 0; i < N; i++) u[i] = _mm512_loadu_si512(w + (size_t)i * tile + LINE);
        EACH (int m = 0; m < HIGH; m++) {
            const uint16_t *from = x + (size_t)m * x_row;
            const __m512i first = couple_of(from), second = couple_of(from + 2);
            EACH (int i = 0; i < N; i++) even[m][i] = dot2(even[m][i], v[i], first);
            EACH (int i = 0; i < N; i++) odd[m][i] = dot2(odd[m][i], u[i], second);
        }
    }
}
#endif
