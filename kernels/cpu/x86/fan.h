// fan.h: up to 8 rows of activations side by side, for kernels that multiply weights by them as these come from memory.
// Owns nothing.
//
// Three pointers and a distance say where the rows are, so that a step needs few registers. In asm: compilers keep a
// pointer to each row, in memory, and what a core can load is what such a loop lives by.
#ifndef LQ_FAN_H
#define LQ_FAN_H
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>
#include <stddef.h>

enum { FAN = 8 };
typedef struct fan { const char *p[3]; ptrdiff_t row; } fan;

INLINE fan fan_of(const void *x, size_t row) { // row: bytes from one to the next
    const char *p = x;
    const ptrdiff_t r = (ptrdiff_t)row;
    return (fan){{p, p + 3 * r, p + 6 * r}, r};
}

typedef struct fan_reads { char all[1 << 20]; } fan_reads; // more than is read
#define FAN_LOAD(PLACE) \
    __asm__("vmovdqu64 " PLACE ", %0" : "=v"(v) : "r"(p), "r"(x->row), "m"(*(const fan_reads *)(const void *)p))
INLINE __m512i fan_load(const fan *x, const int i) { // 64 bytes of row i
    const char *p = x->p[i / 3];
    __m512i v;
    if (i % 3 == 0) FAN_LOAD("(%1)");
    else if (i % 3 == 1) FAN_LOAD("(%1,%2)");
    else FAN_LOAD("(%1,%2,2)");
    return v;
}

// 32 columns of two weight rows, as bf16, against those of M rows, which go on to the next 32.
INLINE void fan_dots(__m512 s[2][FAN], __m512i u, __m512i v, fan *x, const int M) {
    EACH (int i = 0; i < M; i++) {
        const __m512bh xi = (__m512bh)fan_load(x, i);
        s[0][i] = _mm512_dpbf16_ps(s[0][i], (__m512bh)u, xi);
        s[1][i] = _mm512_dpbf16_ps(s[1][i], (__m512bh)v, xi);
    }
    EACH (int i = 0; i < (M + 2) / 3; i++) x->p[i] += 64;
}
#endif
