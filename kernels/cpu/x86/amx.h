// amx.h: f32 products by AMX: numbers as two of bf16, tiles of them in both orders, and blocks of 2 x 2 tiles of sums.
//
// x = hi + lo + e: hi is x rounded to bf16, lo what is left rounded to bf16, |e| <= 2^-17 |x|. x y is taken as
// lo hi + hi hi + hi lo; what it leaves out (lo lo and both e) is at most 2^-15 |x y|. Numbers and sums below 2^-126
// are 0 to AMX. Of what is no number, or rounds to infinity, lo is no number and hi hi + hi lo is none.
//
// Order of sums: 32 k at a time, those of even and those of odd k are two chains of fused multiply-adds from 0; they
// are added to each other, and that to the sum so far: lo hi first, then hi hi, then hi lo.
#ifndef LQ_AMX_H
#define LQ_AMX_H
#include "kernels/cpu/x86/tiles.h"
#include <immintrin.h>
#include <stdbool.h>

enum { TILE = 16, DEEP = 32, PAIR_BYTES = 2 * TILE_BYTES }; // columns, k of a tile; hi and lo of it

// Lane i of *hi and *lo: the parts of a[i] and, above them, of b[i].
static inline void split(__m512 a, __m512 b, __m512i *hi, __m512i *lo) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    *hi = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    a = _mm512_sub_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(*hi, 16)));
    b = _mm512_sub_ps(b, _mm512_castsi512_ps(_mm512_and_si512(*hi, _mm512_set1_epi32((int)0xffff0000u))));
    *lo = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

// 16 x 16 lanes of 32 bits to their transpose.
static inline void turn(const __m512i in[16], char *out) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(in[i], in[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(in[i], in[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + 2 + j]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + 2 + j]);
        }
    for (int j = 0; j < 4; j++) { // b[4q + j], 128-bit lane l: rows 4q .. 4q+3 of column 4l + j
        const __m512i low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
        const __m512i high = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
        const __m512i low2 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
        const __m512i high2 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        _mm512_storeu_si512(out + 64 * j, _mm512_shuffle_i32x4(low, low2, 0x88));
        _mm512_storeu_si512(out + 64 * (4 + j), _mm512_shuffle_i32x4(high, high2, 0x88));
        _mm512_storeu_si512(out + 64 * (8 + j), _mm512_shuffle_i32x4(low, low2, 0xdd));
        _mm512_storeu_si512(out + 64 * (12 + j), _mm512_shuffle_i32x4(high, high2, 0xdd));
    }
}

// A block of 32 x 32 sums, rows `ld` apart, of a[i] x b[j] over so many steps of 32 k; more: on top of what is there.
// a: [step][hi, lo][16 rows][32 k]; b: [step][hi, lo][16 pairs of k][16 columns][2]. half: b has no lo.
static inline void product(const char *const a[2], const char *const b[2], int steps, const bool half, const bool more,
                           float *sum, size_t ld) {
    float *const below = sum + TILE * ld;
    const size_t row = ld * sizeof *sum;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    if (more) {
        tile_load(0, sum, row);
        tile_load(1, sum + TILE, row);
        tile_load(2, below, row);
        tile_load(3, below + TILE, row);
    }
    for (size_t at = 0; at < (size_t)steps * PAIR_BYTES; at += PAIR_BYTES) {
        tile_load(4, a[0] + at + TILE_BYTES, 64);
        tile_load(6, b[0] + at, 64);
        tile_load(7, b[1] + at, 64);
        tile_load(5, a[1] + at + TILE_BYTES, 64);
        tile_dot_bf16(0, 4, 6);
        tile_dot_bf16(1, 4, 7);
        tile_dot_bf16(2, 5, 6);
        tile_dot_bf16(3, 5, 7);
        tile_load(4, a[0] + at, 64);
        tile_load(5, a[1] + at, 64);
        tile_dot_bf16(0, 4, 6);
        tile_dot_bf16(1, 4, 7);
        tile_dot_bf16(2, 5, 6);
        tile_dot_bf16(3, 5, 7);
        if (half) continue;
        tile_load(6, b[0] + at + TILE_BYTES, 64);
        tile_load(7, b[1] + at + TILE_BYTES, 64);
        tile_dot_bf16(0, 4, 6);
        tile_dot_bf16(1, 4, 7);
        tile_dot_bf16(2, 5, 6);
        tile_dot_bf16(3, 5, 7);
    }
    tile_store(0, sum, row);
    tile_store(1, sum + TILE, row);
    tile_store(2, below, row);
    tile_store(3, below + TILE, row);
}
#endif
