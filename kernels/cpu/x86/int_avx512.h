// int_avx512.h: Q8 activations x int4 or int8 weights in layout x86 with AVX-512 VNNI, instantiated by w4_avx512.c and
// w8_avx512.c. Within a group all is integer and exact; over groups y = fma((float)dot, wscale * ascale, y), in order,
// from +0, or from y where a part of K follows another. Where weights and activations have one scale for the whole row,
// groups are added as integers up to LQ_I8_SPAN k; where activations have zero points, so is a group or as many (both:
// `whole`). No kernel does anything else and none splits K, hence all give the same bits.
//
// thin: 1 to 16 rows x one tile, which is one contiguous stream, or up to 4 rows x four tiles.
// block: 9 to 12 rows x two tiles.
#ifndef LQ_INT_AVX512_H
#define LQ_INT_AVX512_H
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cpu/x86/block_avx512.h"

enum { AHEAD_BYTES = 4096, STREAM_AHEAD = 2048 /* where there are several */, TALL = 12, THIN = 16, THIN_ROWS = 32,
       FEW_ROWS = 4, STREAMS = 4 };

// One call's view of a weight and of its activations. Tiles, groups and their steps in bytes.
typedef struct cut {
    const uint8_t *q, *scale, *zero;        // of the first tile; zero NULL: symmetric
    size_t q_tile, scale_tile, zero_tile;   // from tile to tile
    size_t scale_group, zero_group;         // from group to group: 0 where a row has one scale
    lq_dtype scale_type;
    int groups, G, all;                     // all: rows of the batch
    const int8_t *x;                        // [groups][all][G]
    const float *xscale;                    // [groups][all]
    const int32_t *xsum;                    // [groups][all]
    const int32_t *xzero, *code_sum;        // [all], [span][tile][16]: activations with zero points; else NULL
    int64_t n;
    int span;                               // groups that are added as integers
    bool whole, more;
} cut;

INLINE cut cut_of(const lq_weight *w, const lq_act *a) {
    const int G = (int)a->q_row, unit = lq_x86_group(&w->type), groups = (int)((w->k + G - 1) / G);
    const size_t cells = (size_t)lq_weight_groups(&w->type, w->k) * LQ_X86_ROWS, size = w->type.scale == LQ_F32 ? 4 : 2;
    return (cut){.q = w->q, .scale = w->scale, .zero = w->type.asym ? w->zero : NULL,
                 .q_tile = (size_t)((w->k + unit - 1) / unit * unit) * LQ_X86_ROWS * (size_t)w->type.bits / 8,
                 .scale_tile = cells * size, .zero_tile = cells, .scale_group = w->type.group ? LQ_X86_ROWS * size : 0,
                 .zero_group = w->type.group ? LQ_X86_ROWS : 0, .scale_type = w->type.scale, .groups = groups, .G = G,
                 .all = a->x.rows, .x = a->q, .xscale = a->scale, .xsum = a->sum, .xzero = a->zero,
                 .code_sum = w->code_sum, .n = w->n, .span = (int)(lq_i8_span(w, a) / G),
                 .whole = a->zero || lq_i8_span(w, a) > G, .more = a->more};
}

INLINE __m512 scale16(const uint8_t *p, lq_dtype t) {
    if (t == LQ_F32) return _mm512_loadu_ps(p);
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (t == LQ_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

// The scales of a tile's rows in group g.
INLINE __m512 scales_of(const cut *c, int64_t t, int g) {
    return scale16(c->scale + (size_t)t * c->scale_tile + (size_t)g * c->scale_group, c->scale_type);
}

// Minus their zero points; the upper halves of the lanes are 0 for vpdpwssd.
INLINE __m512i minus_zeros_of(const cut *c, int64_t t, int g, const int bits) {
    const uint8_t *zero = c->zero ? c->zero + (size_t)t * c->zero_tile + (size_t)g * c->zero_group : NULL;
    const __m512i z = zero ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zero))
                           : _mm512_set1_epi32(1 << (bits - 1));
    return _mm512_and_si512(_mm512_sub_epi32(_mm512_setzero_si512(), z), _mm512_set1_epi32(0xffff));
}

// dot - zero * sum(x): what the codes' offset added is taken off. A sum of up to 256 int8 fits 16 bits.
INLINE __m512i centre(__m512i dot, __m512i z, int32_t xsum, const int G) {
    if (G <= 256) return _mm512_dpwssd_epi32(dot, z, _mm512_set1_epi32(xsum));
    z = _mm512_srai_epi32(_mm512_slli_epi32(z, 16), 16);
    return _mm512_add_epi32(dot, _mm512_mullo_epi32(z, _mm512_set1_epi32(xsum)));
}

// vpdpbusd with the four activations broadcast from memory. As asm, because gcc 12 spills
// the sums around the intrinsic.
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

// A group of `whole`: dot joins the integers, which join y behind the last group of a span. Only a tile that is a part
// of K, or has groups, has more than one span of code sums.
INLINE bool span_ends(const cut *c, int g) { return g + 1 == c->groups || (g + 1) % c->span == 0; }
INLINE __m512i code_sums(const cut *c, int64_t t, int g) {
    const int32_t *sum = c->xzero ? c->code_sum + (t + g / c->span) * LQ_X86_ROWS : NULL;
    return sum ? _mm512_maskz_loadu_epi32(columns(c->n, t), sum) : _mm512_setzero_si512();
}

INLINE void add_whole(const cut *c, int32_t *sum, float *y, __m512i dot, __m512 wscale, __m512i codes, int m, size_t u,
                      bool last) {
    dot = _mm512_add_epi32(dot, _mm512_load_si512(sum));
    if (last) {
        __m512i whole = dot;
        if (c->xzero) whole = _mm512_sub_epi32(whole, _mm512_mullo_epi32(codes, _mm512_set1_epi32(c->xzero[m])));
        _mm512_store_ps(y, add_group(_mm512_load_ps(y), whole, wscale, c->xscale[u]));
        dot = _mm512_setzero_si512();
    }
    _mm512_store_si512(sum, dot);
}

// What the sums of a row of a tile begin with.
INLINE __m512 begin(const cut *c, const float *y, __mmask16 some) {
    return c->more ? _mm512_maskz_loadu_ps(some, y) : _mm512_setzero_ps();
}

// 16 k of one tile against M rows. Up to 4 rows have registers for a sum per nibble; then high nibbles
// are not shifted down: they give 16 * code, and their sum is shifted once per group, which is exact.
// Several sums hide vpdpbusd's latency. One stream at memory's speed is best left to the machine's own prefetching.
INLINE void thin16(__m512i h[16][2], __m512i l[4][2], const uint8_t *q, const int8_t *x, const int bits,
                   const int T, const int M, const int G) {
    const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8((char)0xf0);
    const int ahead = T > 1 ? STREAM_AHEAD : AHEAD_BYTES;
    EACH (int i = 0; i < bits / 2; i++) {
        const __m512i v = _mm512_loadu_si512(q + i * 64);
        if (T > 1 || M > FEW_ROWS) _mm_prefetch((const char *)q + ahead + i * 64, _MM_HINT_T0);
        if (bits == 8) {
            EACH (int m = 0; m < M; m++)
                dot4(M <= 4 && i & 1 ? &l[m][M <= 2 ? i >> 1 : 0] : &h[m][M <= 2 ? i >> 1 : 0], v, x + m * G + i * 4);
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

// T tiles, group by group in turn: one stream for T = 1, as many as tiles else.
INLINE void thin(const cut *c, int64_t t0, int m0, float *y, size_t ldy, __mmask16 tail, const int bits, const int T,
                 const int M, const int G, const bool whole) {
    const bool two = M <= 4, shifted = two && bits == 4;
    _Alignas(64) float f[STREAMS][16][16];
    _Alignas(64) int32_t sum[STREAMS][16][16]; // of `whole`
    EACH (int t = 0; t < T; t++)
        EACH (int m = 0; m < M; m++)
            _mm512_store_ps(f[t][m], begin(c, y + (size_t)(m0 + m) * ldy + (size_t)(t0 + t) * 16,
                                           t == T - 1 ? tail : 0xffff));
    EACH (int t = 0; whole && t < T; t++)
        EACH (int m = 0; m < M; m++) _mm512_store_si512(sum[t][m], _mm512_setzero_si512());
    for (int g = 0; g < c->groups; g++) {
        const size_t u = (size_t)g * (size_t)c->all + (size_t)m0;
        const bool last = whole && span_ends(c, g);
        ROLLED for (int t = 0; t < T; t++) {
            const uint8_t *q = c->q + (size_t)(t0 + t) * c->q_tile + (size_t)g * (size_t)(G * 2 * bits);
            const int8_t *x = c->x + u * (size_t)G;
            __m512i h[16][2], l[4][2];
            EACH (int m = 0; m < M; m++) {
                h[m][0] = _mm512_setzero_si512();
                if (two) h[m][1] = l[m][0] = l[m][1] = _mm512_setzero_si512();
            }
            ROLLED for (int k = 0; k < G; k += 16, q += 32 * bits, x += 16) thin16(h, l, q, x, bits, T, M, G);
            const __m512 s = scales_of(c, t0 + t, g);
            const __m512i z = minus_zeros_of(c, t0 + t, g, bits);
            const __m512i codes = last ? code_sums(c, t0 + t, g) : _mm512_setzero_si512();
            EACH (int m = 0; m < M; m++) {
                __m512i dot = h[m][0];
                if (M <= 2) { dot = _mm512_add_epi32(dot, h[m][1]); l[m][0] = _mm512_add_epi32(l[m][0], l[m][1]); }
                if (shifted) dot = _mm512_srai_epi32(dot, 4);
                if (two) dot = _mm512_add_epi32(dot, l[m][0]);
                dot = centre(dot, z, c->xsum[u + (size_t)m], G);
                if (whole) add_whole(c, sum[t][m], f[t][m], dot, s, codes, m0 + m, u + (size_t)m, last);
                else _mm512_store_ps(f[t][m], add_group(_mm512_load_ps(f[t][m]), dot, s, c->xscale[u + (size_t)m]));
            }
        }
        __asm__ volatile("" ::: "memory");
    }
    EACH (int t = 0; t < T; t++) {
        const __mmask16 mask = t == T - 1 ? tail : 0xffff;
        EACH (int m = 0; m < M; m++)
            _mm512_mask_storeu_ps(y + (size_t)(m0 + m) * ldy + (size_t)(t0 + t) * 16, mask, _mm512_load_ps(f[t][m]));
    }
}

// The sums of a cell that wait in memory: of `whole`, or of more k than ADD takes.
INLINE void block_add(const cut *c, int64_t t0, int g, size_t u, int32_t dots[][2][16], float f[][2][16],
                      int32_t sum[][2][16], const int bits, const int M, const int G, const bool whole) {
    const bool last = whole && span_ends(c, g);
    const int m0 = (int)(u - (size_t)g * (size_t)c->all);
    EACH (int t = 0; t < 2; t++) {
        const __m512 s = scales_of(c, t0 + t, g);
        const __m512i z = minus_zeros_of(c, t0 + t, g, bits);
        const __m512i codes = last ? code_sums(c, t0 + t, g) : _mm512_setzero_si512();
        EACH (int m = 0; m < M; m++) {
            const __m512i dot = centre(_mm512_load_si512(dots[m][t]), z, c->xsum[u + (size_t)m], G);
            if (whole) add_whole(c, sum[m][t], f[m][t], dot, s, codes, m0 + m, u + (size_t)m, last);
            else _mm512_store_ps(f[m][t], add_group(_mm512_load_ps(f[m][t]), dot, s, c->xscale[u + (size_t)m]));
        }
    }
}

// 2 tiles x M rows over all of K, cell by cell; y waits in L1.
#define BLOCK(M)                                                                                                        \
CELL(cell_add##M, ROWS##M, M, BITS, DOTS, END_ADD)                                                                      \
CELL(cell_put##M, ROWS##M, M, BITS, DOTS, END_PUT)                                                                      \
INLINE void block##M(const cut *c, int64_t t0, int m0, float *y, size_t ldy, __mmask16 tail, const int G, const bool whole) { \
    const uint8_t *q = c->q + (size_t)t0 * c->q_tile;                                                                   \
    _Alignas(64) float f[M][2][16];                                                                                     \
    _Alignas(64) int32_t dots[M][2][16], sum[M][2][16];                                                                 \
    EACH (int m = 0; m < M; m++) {                                                                                      \
        const float *from = y + (size_t)(m0 + m) * ldy + (size_t)t0 * 16;                                               \
        _mm512_store_ps(f[m][0], begin(c, from, 0xffff));                                                               \
        _mm512_store_ps(f[m][1], begin(c, from + 16, tail));                                                            \
    }                                                                                                                   \
    memset(sum, 0, whole ? sizeof sum : 0);                                                                             \
    for (int g = 0; g < c->groups; g++, q += G * 2 * BITS) {                                                            \
        const size_t u = (size_t)g * (size_t)c->all + (size_t)m0;                                                       \
        const int8_t *x = c->x + u * (size_t)G;                                                                         \
        if (whole || G > 256) {                                                                                         \
            cell_put##M(q, c->q_tile, x, (size_t)G, &(cell_end){.y = dots});                                            \
            block_add(c, t0, g, u, dots, f, sum, BITS, M, G, whole);                                                    \
        } else cell_add##M(q, c->q_tile, x, (size_t)G, &(cell_end){                                                     \
            {minus_zeros_of(c, t0, g, BITS), minus_zeros_of(c, t0 + 1, g, BITS)},                                       \
            {scales_of(c, t0, g), scales_of(c, t0 + 1, g)}, f, c->xsum + u, c->xscale + u});                            \
    }                                                                                                                   \
    EACH (int m = 0; m < M; m++) {                                                                                      \
        float *to = y + (size_t)(m0 + m) * ldy + (size_t)t0 * 16;                                                       \
        _mm512_storeu_ps(to, _mm512_load_ps(f[m][0]));                                                                  \
        _mm512_mask_storeu_ps(to + 16, tail, _mm512_load_ps(f[m][1]));                                                  \
    }                                                                                                                   \
}

// Every height and the usual groups as constants; GROUP 0 is any other one, `whole` or not (and all under a sanitizer,
// to build in time), ROW is `whole` with groups of LQ_ROW_GROUP.
#define G_0 c->G
#define G_32 32
#define G_64 64
#define G_128 128
#define G_ROW LQ_ROW_GROUP
#define WHOLE_0 c->whole
enum { WHOLE_32 = 0, WHOLE_64 = 0, WHOLE_128 = 0, WHOLE_ROW = 1, WAYS = 5 };
typedef void block_fn(const cut *, int64_t t, int m, float *y, size_t ldy, __mmask16);
#define THIN_FN(GROUP, M)                                                                                              \
    static void thin##GROUP##_##M(const cut *c, int64_t t, int m, float *y, size_t ldy, __mmask16 k) {                 \
        thin(c, t, m, y, ldy, k, BITS, 1, M, G_##GROUP, WHOLE_##GROUP);                                                \
    }
#define FEW_FN(GROUP, M)                                                                                               \
    static void few##GROUP##_##M(const cut *c, int64_t t, int m, float *y, size_t ldy, __mmask16 k) {                  \
        thin(c, t, m, y, ldy, k, BITS, STREAMS, M, G_##GROUP, WHOLE_##GROUP);                                          \
    }
#define TWO_FN(GROUP, M)                                                                                               \
    static void two##GROUP##_##M(const cut *c, int64_t t, int m, float *y, size_t ldy, __mmask16 k) {                  \
        block##M(c, t, m, y, ldy, k, G_##GROUP, WHOLE_##GROUP);                                                        \
    }
#define SIXTEEN(X, GROUP) X(GROUP, 1) X(GROUP, 2) X(GROUP, 3) X(GROUP, 4) X(GROUP, 5) X(GROUP, 6) X(GROUP, 7) X(GROUP, 8) \
    X(GROUP, 9) X(GROUP, 10) X(GROUP, 11) X(GROUP, 12) X(GROUP, 13) X(GROUP, 14) X(GROUP, 15) X(GROUP, 16)
#define FOUR(X, GROUP) X(GROUP, 9) X(GROUP, 10) X(GROUP, 11) X(GROUP, 12)
#define FEW(X, GROUP) X(GROUP, 1) X(GROUP, 2) X(GROUP, 3) X(GROUP, 4)
#define GROUP_FNS(GROUP) SIXTEEN(THIN_FN, GROUP) FOUR(TWO_FN, GROUP) FEW(FEW_FN, GROUP)
#define THIN_NAME(GROUP, M) thin##GROUP##_##M,
#define TWO_NAME(GROUP, M) [M - 1] = two##GROUP##_##M,
#define FEW_NAME(GROUP, M) few##GROUP##_##M,
#define GROUP_ROW(GROUP) {{SIXTEEN(THIN_NAME, GROUP)}, {FOUR(TWO_NAME, GROUP)}, {FEW(FEW_NAME, GROUP)}}
#ifdef LQ_SANITIZED
#define ALL_FNS GROUP_FNS(0)
#define ALL_ROWS {GROUP_ROW(0), GROUP_ROW(0), GROUP_ROW(0), GROUP_ROW(0), GROUP_ROW(0)}
#else
#define ALL_FNS GROUP_FNS(0) GROUP_FNS(32) GROUP_FNS(64) GROUP_FNS(128) GROUP_FNS(ROW)
#define ALL_ROWS {GROUP_ROW(0), GROUP_ROW(32), GROUP_ROW(64), GROUP_ROW(128), GROUP_ROW(ROW)}
#endif

// Up to 4 rows four tiles at a time where a core alone reads several streams faster than one (Intel's do; Zen 4 reads
// several at 0.7 to 0.8 of one's rate); up to 32 rows the thin kernel in parts of at most 16; above them two tiles at a
// time. Rows are dealt evenly over parts, so that above 32 only heights 9 to 12 occur.
INLINE void walk(const lq_weight *w, const lq_act *a, block_fn *const all[WAYS][3][THIN], int64_t t0, int64_t t1,
                 int m0, int m1, float *y, size_t ldy) {
    const cut c = cut_of(w, a);
    const int plain = c.G == 128 ? 3 : c.G == 64 ? 2 : c.G == 32 ? 1 : 0;
    block_fn *const (*fns)[THIN] = all[!c.whole ? plain : c.G == LQ_ROW_GROUP ? 4 : 0];
    const int rows = m1 - m0, streams = __builtin_cpu_is("amd") ? 0 : FEW_ROWS;
    for (int step; t0 < t1; t0 += step) {
        const int kind = rows > THIN_ROWS && t1 - t0 >= 2 ? 1 : rows <= streams && t1 - t0 >= STREAMS ? 2 : 0;
        const int parts = kind == 1 ? (rows + TALL - 1) / TALL : (rows + THIN - 1) / THIN;
        step = kind == 1 ? 2 : kind == 2 ? STREAMS : 1;
        const __mmask16 tail = columns(w->n, t0 + step - 1);
        for (int p = 0, m = m0; p < parts; p++) {
            const int tall = (m1 - m + parts - p - 1) / (parts - p);
            fns[kind][tall - 1](&c, t0, m, y, ldy, tail);
            m += tall;
        }
    }
}
#endif
