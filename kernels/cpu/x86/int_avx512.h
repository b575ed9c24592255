// int_avx512.h: Q8 activations x int4 or int8 weights in layout x86 with AVX-512 VNNI, instantiated by w4_avx512.c and
// w8_avx512.c. Within a group all is integer and exact; over groups y = fma((float)dot, wscale * ascale, y), in order, from +0.
// No kernel does anything else and none splits K, hence all give the same bits.
//
// thin: 1 to 16 rows x one tile, which is one contiguous stream. block: 9 to 12 rows x two tiles.
#ifndef LQ_INT_AVX512_H
#define LQ_INT_AVX512_H
#include "kernels/cpu/ukr.h"
#include <immintrin.h>
#include <string.h>

#ifdef __clang__
#define EACH _Pragma("unroll") for
#define ROLLED _Pragma("nounroll")
#else
#define EACH _Pragma("GCC unroll 16") for
#define ROLLED _Pragma("GCC unroll 1")
#endif
#define INLINE static inline __attribute__((always_inline))

enum { AHEAD_BYTES = 4096, TALL = 12, THIN = 16, THIN_ROWS = 32 };

// One call's view of a weight and of its activations. Tiles, groups and their steps in bytes.
typedef struct cut {
    const uint8_t *q, *scale, *zero;        // of the first tile; zero NULL: symmetric
    size_t q_tile, scale_tile, zero_tile;   // from tile to tile
    size_t scale_group, zero_group;         // from group to group: 0 where a row has one scale
    lq_dtype scale_type;
    int groups, G, all, bits;               // all: rows of the batch
    const int8_t *x;                        // [groups][all][G]
    const float *xscale;                    // [groups][all]
    const int32_t *xsum;                    // [groups][all]
} cut;

INLINE cut cut_of(const lq_weight *w, const lq_act *a) {
    const int G = a->type.group, groups = (int)((w->k + G - 1) / G);
    const size_t cells = (size_t)lq_weight_groups(&w->type, w->k) * LQ_X86_ROWS, size = w->type.scale == LQ_F32 ? 4 : 2;
    return (cut){.q = w->q, .scale = w->scale, .zero = w->type.asym ? w->zero : NULL,
                 .q_tile = (size_t)groups * (size_t)G * LQ_X86_ROWS * (size_t)w->type.bits / 8, .scale_tile = cells * size, .zero_tile = cells,
                 .scale_group = w->type.group ? LQ_X86_ROWS * size : 0, .zero_group = w->type.group ? LQ_X86_ROWS : 0,
                 .scale_type = w->type.scale, .groups = groups, .G = G, .all = a->x.rows, .bits = w->type.bits, .x = a->q, .xscale = a->scale, .xsum = a->sum};
}

INLINE __m512 scale16(const uint8_t *p, lq_dtype t) {
    if (t == LQ_F32) return _mm512_loadu_ps(p);
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (t == LQ_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
// Minus the zero points of 16 rows; the upper halves of the lanes are 0 for vpdpwssd.
INLINE __m512i minus_zero(const uint8_t *zero, const int bits) {
    const __m512i z = zero ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zero)) : _mm512_set1_epi32(1 << (bits - 1));
    return _mm512_and_si512(_mm512_sub_epi32(_mm512_setzero_si512(), z), _mm512_set1_epi32(0xffff));
}
// dot - zero * sum(x): what the codes' offset added is taken off. A sum of up to 256 int8 fits 16 bits.
INLINE __m512i centre(__m512i dot, __m512i z, int32_t xsum, const int G) {
    if (G <= 256) return _mm512_dpwssd_epi32(dot, z, _mm512_set1_epi32(xsum));
    return _mm512_add_epi32(dot, _mm512_mullo_epi32(_mm512_srai_epi32(_mm512_slli_epi32(z, 16), 16), _mm512_set1_epi32(xsum)));
}
INLINE __m512i bcast4(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, 4);
    return _mm512_set1_epi32(v);
}
// vpdpbusd with the four activations broadcast from memory. As asm, because gcc 12 spills the sums around the intrinsic.
typedef int32_t __attribute__((may_alias, aligned(1))) quad;
INLINE void dot4(__m512i *sum, __m512i codes, const int8_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*sum) : "v"(codes), "m"(*(const quad *)(const void *)x));
}
INLINE __m512 add_group(__m512 y, __m512i dot, __m512 wscale, float ascale) { // the one rounding order of all kernels
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(wscale, _mm512_set1_ps(ascale)), y);
}
INLINE __mmask16 columns(int64_t n, int64_t t) { // of tile t that are in the result
    const int64_t left = n - t * LQ_X86_ROWS;
    return left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
}

// 16 k of one tile against M rows. Up to 4 rows have registers for a sum per nibble; then high nibbles are not shifted down:
// they give 16 * code, and their sum is shifted once per group, which is exact. Several sums hide vpdpbusd's latency.
INLINE void thin16(__m512i h[16][2], __m512i l[4][2], const uint8_t *q, const int8_t *x, const int bits, const int M, const int G) {
    const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8((char)0xf0);
    EACH (int i = 0; i < bits / 2; i++) {
        const __m512i v = _mm512_loadu_si512(q + i * 64);
        _mm_prefetch((const char *)q + AHEAD_BYTES + i * 64, _MM_HINT_T0);
        if (bits == 8) {
            EACH (int m = 0; m < M; m++) dot4(M <= 4 && i & 1 ? &l[m][M <= 2 ? i >> 1 : 0] : &h[m][M <= 2 ? i >> 1 : 0], v, x + m * G + i * 4);
        } else if (M <= 4) {
            const __m512i vl = _mm512_and_si512(v, low), vh = _mm512_and_si512(v, high);
            EACH (int m = 0; m < M; m++) {
                dot4(&l[m][M <= 2 ? i : 0], vl, x + m * G + i * 8);
                dot4(&h[m][M <= 2 ? i : 0], vh, x + m * G + i * 8 + 4);
            }
        } else {
            const __m512i vl = _mm512_and_si512(v, low), vh = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
            EACH (int m = 0; m < M; m++) {
                dot4(&h[m][0], vl, x + m * G + i * 8);
                dot4(&h[m][0], vh, x + m * G + i * 8 + 4);
            }
        }
    }
}
INLINE void thin(const cut *c, int64_t t, int m0, float *y, size_t ldy, __mmask16 mask, const int bits, const int M, const int G) {
    const bool two = M <= 4, shifted = two && bits == 4;
    const uint8_t *q = c->q + (size_t)t * c->q_tile, *ws = c->scale + (size_t)t * c->scale_tile;
    const uint8_t *wz = c->zero ? c->zero + (size_t)t * c->zero_tile : NULL;
    _Alignas(64) float f[16][16];
    EACH (int m = 0; m < M; m++) _mm512_store_ps(f[m], _mm512_setzero_ps());
    for (int g = 0; g < c->groups; g++) {
        const size_t u = (size_t)g * (size_t)c->all + (size_t)m0;
        const int8_t *x = c->x + u * (size_t)G;
        __m512i h[16][2], l[4][2];
        EACH (int m = 0; m < M; m++) {
            h[m][0] = _mm512_setzero_si512();
            if (two) h[m][1] = l[m][0] = l[m][1] = _mm512_setzero_si512();
        }
        ROLLED for (int k = 0; k < G; k += 16, q += 32 * bits, x += 16) thin16(h, l, q, x, bits, M, G);
        const __m512 s = scale16(ws, c->scale_type);
        const __m512i z = minus_zero(wz, bits);
        EACH (int m = 0; m < M; m++) {
            __m512i dot = h[m][0];
            if (M <= 2) { dot = _mm512_add_epi32(dot, h[m][1]); l[m][0] = _mm512_add_epi32(l[m][0], l[m][1]); }
            if (shifted) dot = _mm512_srai_epi32(dot, 4);
            if (two) dot = _mm512_add_epi32(dot, l[m][0]);
            dot = centre(dot, z, c->xsum[u + (size_t)m], G);
            _mm512_store_ps(f[m], add_group(_mm512_load_ps(f[m]), dot, s, c->xscale[u + (size_t)m]));
        }
        __asm__ volatile("" : "+m"(f));
        ws += c->scale_group;
        if (wz) wz += c->zero_group;
    }
    EACH (int m = 0; m < M; m++) _mm512_mask_storeu_ps(y + (size_t)(m0 + m) * ldy + (size_t)t * 16, mask, _mm512_load_ps(f[m]));
}

// A register block of 2 tiles x M rows over all of K. int4 walks a group twice, first for the high nibbles, then, after one
// shift of the sums, for the low ones (from L1): unpacking costs one AND per 64 bytes and no buffer, and leaves 24 registers
// for sums (two tiles have half the ANDs of four). The float sums wait in L1, and the integer ones pass through it: without that border, or with arrays instead of
// named variables, gcc 12 spills in the inner loop.
#define T2(X, m) X(m, 0) X(m, 1)
#define M9(X, T) T(X, 0) T(X, 1) T(X, 2) T(X, 3) T(X, 4) T(X, 5) T(X, 6) T(X, 7) T(X, 8)
#define M10(X, T) M9(X, T) T(X, 9)
#define M11(X, T) M10(X, T) T(X, 10)
#define M12(X, T) M11(X, T) T(X, 11)
#define ZERO(m, t)    __m512i c##m##t = _mm512_setzero_si512();
#define MASKED(_, t)  const __m512i v##t = _mm512_and_si512(mask, _mm512_loadu_si512(p + t * tile_bytes));
#define LOADED(_, t)  const __m512i v##t = _mm512_loadu_si512(p + t * tile_bytes);
#define AHEAD(_, t)   _mm_prefetch((const char *)p + (t + 2) * tile_bytes, _MM_HINT_T1);
#define DOT(m, t)     __asm__("vpdpbusd %2, %1, %0" : "+v"(c##m##t) : "v"(v##t), "v"(b));
#define SHIFT(m, t)   c##m##t = _mm512_srai_epi32(c##m##t, 4);
#define PUT(m, t)     _mm512_store_si512(dots[m][t], c##m##t);
#define DOTS_OF(m, T) { const __m512i b = bcast4(px + m * G); T(DOT, m) }
#define EACH_ROW(T, m) DOTS_OF(m, T)
#define X_AHEAD(NM)   _mm_prefetch((const char *)x + (NM * G + (px - x) * NM), _MM_HINT_T0); // the next rows' activations
#define WALK4(R, PREFETCH) ROLLED for (int s = 0; s < G / 8; s++, p += 64, px += 8) { PREFETCH T2(MASKED, 0) M(DOT_ROW, T2) }
#define WALK8(R, PREFETCH) ROLLED for (int s = 0; s < G / 4; s++, p += 64, px += 4) { PREFETCH T2(LOADED, 0) M(DOT_ROW, T2) }
#define DOTS4(M, NM, R)                                                                     \
    __m512i mask = _mm512_set1_epi8((char)0xf0);                                            \
    px += 4;                                                                                \
    if (ahead) WALK4(R, T4(AHEAD, 0)) else WALK4(R, )                                       \
    M(SHIFT, T4)                                                                            \
    mask = _mm512_set1_epi8(0x0f);                                                          \
    p = q;                                                                                  \
    px = x;                                                                                 \
    WALK4(R, X_AHEAD(NM))
#define DOTS8(M, NM, R) if (ahead) WALK8(R, T4(AHEAD, 0)) else WALK8(R, X_AHEAD(NM))

#define BLOCK(NAME, DOTS, M, NM, R)                                                                                          \
INLINE void NAME(const cut *c, int64_t t0, int m0, float *y, size_t ldy, __mmask16 tail, const int G, const bool ahead) {     \
    const size_t tile_bytes = c->q_tile;                                                                                     \
    const uint8_t *q = c->q + (size_t)t0 * tile_bytes;                                                                       \
    _Alignas(64) float f[NM][4][16];                                                                                         \
    _Alignas(64) int32_t dots[NM][4][16];                                                                                    \
    EACH (int i = 0; i < NM; i++) EACH (int t = 0; t < 4; t++) _mm512_store_ps(f[i][t], _mm512_setzero_ps());                \
    for (int g = 0; g < c->groups; g++, q += G * 2 * BITS) {                                                                 \
        const size_t u = (size_t)g * (size_t)c->all + (size_t)m0;                                                            \
        const int8_t *x = c->x + u * (size_t)G, *px = x;                                                                     \
        const uint8_t *p = q;                                                                                                \
        {                                                                                                                    \
            M(ZERO, T4)                                                                                                      \
            DOTS(M, NM, R)                                                                                                   \
            M(PUT, T4)                                                                                                       \
        }                                                                                                                    \
        __asm__ volatile("" : "+m"(dots), "+m"(f));                                                                          \
        block_add(c, t0, g, u, dots, f, NM, G);                                                                              \
    }                                                                                                                        \
    EACH (int i = 0; i < NM; i++)                                                                                            \
        EACH (int t = 0; t < 4; t++)                                                                                         \
            _mm512_mask_storeu_ps(y + (size_t)(m0 + i) * ldy + (size_t)(t0 + t) * 16, t == 3 ? tail : (__mmask16)0xffff, _mm512_load_ps(f[i][t])); \
}
INLINE void block_add(const cut *c, int64_t t0, int g, size_t u, int32_t dots[][4][16], float f[][4][16], const int M, const int G) {
    const int bits = c->bits;
    EACH (int t = 0; t < 4; t++) {
        const __m512 s = scale16(c->scale + (size_t)(t0 + t) * c->scale_tile + (size_t)g * c->scale_group, c->scale_type);
        const __m512i z = minus_zero(c->zero ? c->zero + (size_t)(t0 + t) * c->zero_tile + (size_t)g * c->zero_group : NULL, bits);
        EACH (int m = 0; m < M; m++) {
            const __m512i dot = centre(_mm512_load_si512(dots[m][t]), z, c->xsum[u + (size_t)m], G);
            _mm512_store_ps(f[m][t], add_group(_mm512_load_ps(f[m][t]), dot, s, c->xscale[u + (size_t)m]));
        }
    }
}

// Every height and the usual groups as constants; GROUP 0 is any other one.
typedef void block_fn(const cut *, int64_t t, int m, float *y, size_t ldy, __mmask16);
#define ONE(NAME, CALL) static void NAME(const cut *c, int64_t t, int m, float *y, size_t ldy, __mmask16 k) { CALL; }
#define THIN_FN(GROUP, M) ONE(thin##GROUP##_##M, thin(c, t, m, y, ldy, k, BITS, M, GROUP ? GROUP : c->G))
#define SIXTEEN(X, GROUP) X(GROUP, 1) X(GROUP, 2) X(GROUP, 3) X(GROUP, 4) X(GROUP, 5) X(GROUP, 6) X(GROUP, 7) X(GROUP, 8) \
    X(GROUP, 9) X(GROUP, 10) X(GROUP, 11) X(GROUP, 12) X(GROUP, 13) X(GROUP, 14) X(GROUP, 15) X(GROUP, 16)
#define GROUP_FNS(GROUP) SIXTEEN(THIN_FN, GROUP)                                                                          \
    ONE(five##GROUP, block5(c, t, m, y, ldy, k, GROUP ? GROUP : c->G, false))                                             \
    ONE(six##GROUP, block6(c, t, m, y, ldy, k, GROUP ? GROUP : c->G, false))                                              \
    ONE(five_ahead##GROUP, block5(c, t, m, y, ldy, k, GROUP ? GROUP : c->G, true))                                        \
    ONE(six_ahead##GROUP, block6(c, t, m, y, ldy, k, GROUP ? GROUP : c->G, true))
#define THIN_NAME(GROUP, M) thin##GROUP##_##M,
#define GROUP_ROW(GROUP) {{SIXTEEN(THIN_NAME, GROUP)}, {[4] = five##GROUP, [5] = six##GROUP}, {[4] = five_ahead##GROUP, [5] = six_ahead##GROUP}}

// Up to 32 rows the thin kernel in parts of at most 16, above them four tiles at a time. Rows are dealt evenly over parts, so
// that above 32 only heights 5 and 6 occur. The first rows of four tiles also fetch the next four into L2.
INLINE void walk(const cut *c, block_fn *const fns[3][THIN], int64_t n, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    const int all = m1 - m0;
    while (t0 < t1) {
        const bool four = t1 - t0 >= 4 && all > THIN_ROWS;
        const int parts = four ? (all + TALL - 1) / TALL : (all + THIN - 1) / THIN;
        const __mmask16 tail = columns(n, four ? t0 + 3 : t0);
        for (int p = 0, m = m0; p < parts; p++) {
            const int rows = (m1 - m + parts - p - 1) / (parts - p);
            fns[!four ? 0 : p ? 1 : 2][rows - 1](c, t0, m, y, ldy, tail);
            m += rows;
        }
        t0 += four ? 4 : 1;
    }
}
#endif
