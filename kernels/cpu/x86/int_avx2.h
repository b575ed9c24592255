// int_avx2.h: Q8 activations x int weights, or those of a codebook, in layout x86 with AVX2, instantiated by w2_avx2.c
// and so on, with AVX-VNNI by w2_avxvnni.c and so on: BITS is how many a code has, TABLE whether it is looked up, VNNI
// whether there is vpdpbusd.
// The arithmetic is int_avx512.h's, and so are the bits, also of `whole` and of a part of K. A block is a tile, two
// halves of 8 weight rows, x up to 4 rows of activations; of codes of 8 bits without AVX-VNNI a half x more than 2
// (LQ_MANY_ROWS and more: panel_avx2.h).
#ifndef LQ_INT_AVX2_H
#define LQ_INT_AVX2_H
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"
#include <string.h>

#ifndef TABLE
#define TABLE false
#define CELLS_32 SET(g32_, false, 32)
#define FNS_32 ALL(g32_)
#else // which gcc 12 makes slower so
#define CELLS_32
#define FNS_32 ALL(any)
#endif
#ifndef VNNI
#define VNNI false
#define ISA avx2
#endif

enum { TALL = 4, HALF = 8, LOW_MOST = 15, PASS_BYTES = 256 * 1024, AHEAD = 4096, PAGES_AHEAD = 8192,
       SCALE_AHEAD = 512, FAR = 16384 };
#define LOW (VNNI || BITS != 8 ? TALL : 2) // rows that meet a whole tile: for sums of more there are no registers

INLINE __m256i load32(const void *q) { return _mm256_loadu_si256((const __m256i *)q); }

INLINE __m256i bcast4(const void *x) { // of 4 k, of 2 in 16 bits
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256 scales_of(const lq_weight *w, const uint8_t *p, const lq_codebook *book) { // of 8 rows
    const __m256 s = vf_of_scales(p, w->type.scale, w->scale2 ? *w->scale2 : 1, TABLE);
    return TABLE ? vf_mul(s, vf_set(book->unit)) : s;
}

// Of 8 rows, of which only `left` may be there: what their sums begin with where a part of K follows another, their
// code_sum, and where the sums go.
INLINE size_t bytes_of(int64_t left) { return 4 * (size_t)(left < 0 ? 0 : left < HALF ? left : HALF); }
INLINE __m256 begin8(const float *y, int64_t left) {
    float v[HALF] = {0};
    memcpy(v, y, bytes_of(left));
    return _mm256_loadu_ps(v);
}

INLINE __m256i codes8(const int32_t *sum, int64_t left) {
    int32_t v[HALF] = {0};
    memcpy(v, sum, bytes_of(left));
    return load32(v);
}

INLINE void put8(float *y, int64_t left, __m256 f) {
    float v[HALF];
    if (left >= HALF) {
        _mm256_storeu_ps(y, f);
        return;
    }
    _mm256_storeu_ps(v, f);
    memcpy(y, v, bytes_of(left));
}

INLINE __m256i book_of(const lq_codebook *b) {
    return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(const void *)b->whole));
}

// --- codes ---

// Field f of a plane of so many bits, shifted to bit `to`; the bits beside it are others'.
INLINE __m256i plane_field(const uint8_t *q, const int width, const int f, const int to) {
    const int per = 8 / width, from = f % per * width;
    const __m256i v = load32(q + f / per * 64);
    if (from > to) return _mm256_srli_epi16(v, from - to);
    return from < to ? _mm256_slli_epi16(v, to - from) : v;
}

// 4 k of codes in planes, the f-th of 32 k (codes_avx512.h).
INLINE __m256i planes4(const uint8_t *q, int f) {
    const int low = BITS > 4 ? 4 : 2;
    const __m256i all = _mm256_set1_epi8((char)((1 << BITS) - 1)), mask = _mm256_set1_epi8((char)((1 << low) - 1));
    __m256i v = plane_field(q, low, f, 0);
    if (BITS > low) {
        const __m256i high = _mm256_andnot_si256(mask, plane_field(q + 64 * low, BITS - low, f, low));
        v = _mm256_or_si256(_mm256_and_si256(v, mask), high);
    }
    return _mm256_and_si256(v, all);
}

// 4 k of codes of a half, without a sign: the f-th of 16 k, of 32 where they lie in planes.
INLINE __m256i codes4(const uint8_t *q, int f, __m256i book) {
    if (BITS < 8 && BITS != 4) return planes4(q, f);
    __m256i v = load32(q + (BITS == 4 ? f / 2 : f) * 64);
    if (BITS == 8) return v;
    if (f % 2) v = _mm256_srli_epi16(v, 4);
    v = _mm256_and_si256(v, _mm256_set1_epi8(0x0f));
    return TABLE ? _mm256_shuffle_epi8(book, v) : v;
}

// --- by vpmaddubsw: pairs of products, as many as add in 16 bits ---

// A sum of 16 bits and what is added to it, now: gcc 12 else adds in an order for which there are not registers enough.
INLINE __m256i add16(__m256i sum, __m256i v) {
    sum = _mm256_add_epi16(sum, v);
    __asm__("" : "+x"(sum));
    return sum;
}

INLINE void widen(__m256i sum[TALL], const __m256i part[TALL], const int by, const int M) {
    const __m256i all = _mm256_set1_epi16((short)by);
    EACH (int m = 0; m < M; m++) sum[m] = _mm256_add_epi32(sum[m], _mm256_madd_epi16(part[m], all));
}

// `steps` times 4 k of H halves of a tile; of `most` of these a pair of products adds exactly in 16 bits.
INLINE void steps(__m256i sum[2][TALL], __m256i book, const uint8_t *q, const int8_t *x, int G, const int steps,
                  const int most, const int M, const int H) {
    const int unit = BITS == 4 ? 4 : 8; // steps that lie together
    __m256i part[2][TALL];
    EACH (int f = 0; f < steps; f++) {
        __m256i v[2];
        EACH (int h = 0; h < H; h++) v[h] = codes4(q + f / unit * unit * 8 * BITS + 32 * h, f % unit, book);
        EACH (int m = 0; m < M; m++) {
            const __m256i x4 = bcast4(x + (size_t)m * (size_t)G + 4 * f);
            EACH (int h = 0; h < H; h++) {
                const __m256i two = _mm256_maddubs_epi16(v[h], x4);
                part[h][m] = f % most ? add16(part[h][m], two) : two;
            }
        }
        if ((f + 1) % most == 0)
            EACH (int h = 0; h < H; h++) widen(sum[h], part[h], 1, M);
    }
}

// A pair of products of codes is at most 15 * 128 * 2, of 5 bits 31 * 128 * 2, of 6 63 * 128 * 2; of whole numbers up
// to LOW_MOST, and that added, 30 * 128 * 2.
INLINE void group_pairs(__m256i sum[2][TALL], __m256i book, const uint8_t *q, const int8_t *x, int G, const int M,
                        const int H) {
    const int most = TABLE || BITS == 5 ? 4 : BITS <= 4 ? 8 : 2;
    int k = 0;
    for (; k + 32 <= G; k += 32, q += 64 * BITS) steps(sum, book, q, x + k, G, 8, most, M, H);
    if (BITS == 4 && k < G) steps(sum, book, q, x + k, G, 4, 4, M, H); // groups are multiples of 16
}

// Of codes of 8 bits, and of whole numbers with the largest added, the lower and the upper four bits are multiplied
// apart: eight pairs of products of each are at most 15 * 128 * 2 * 8.
typedef struct looked { __m256i low, high; } looked;
INLINE looked nibbles4(const uint8_t *q, int f, looked book) { // of 4 k, the f-th
    const __m256i low = _mm256_set1_epi8(0x0f);
    __m256i v = load32(q + (BITS == 4 ? f / 2 : f) * 64);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    if (BITS == 8) return (looked){_mm256_and_si256(v, low), high};
    v = f % 2 ? high : _mm256_and_si256(v, low);
    return (looked){_mm256_shuffle_epi8(book.low, v), _mm256_shuffle_epi8(book.high, v)};
}

INLINE void steps8(__m256i sum[TALL], looked book, const uint8_t *q, const int8_t *x, int G, const int steps,
                   const int M) {
    __m256i low[TALL], high[TALL];
    EACH (int f = 0; f < steps; f++) {
        const looked v = nibbles4(q, f, book);
        EACH (int m = 0; m < M; m++) {
            const __m256i x4 = bcast4(x + (size_t)m * (size_t)G + 4 * f);
            const __m256i l = _mm256_maddubs_epi16(v.low, x4), h = _mm256_maddubs_epi16(v.high, x4);
            low[m] = f ? add16(low[m], l) : l;
            high[m] = f ? add16(high[m], h) : h;
        }
    }
    widen(sum, low, 1, M);
    widen(sum, high, 16, M);
}

INLINE void group8(__m256i sum[TALL], __m256i book, const uint8_t *q, const int8_t *x, int G, const int M) {
    const __m256i low = _mm256_set1_epi8(0x0f);
    const looked parts = {_mm256_and_si256(book, low), _mm256_and_si256(_mm256_srli_epi16(book, 4), low)};
    int k = 0;
    for (; k + 32 <= G; k += 32, q += 64 * BITS) steps8(sum, parts, q, x + k, G, 8, M);
    if (k < G) steps8(sum, parts, q, x + k, G, 4, M);
}

// --- by vpdpbusd ---

INLINE __m256i dot4(__m256i sum, __m256i codes, __m256i x) { // on any machine with AVX-512 in its other form (tests)
#ifdef LQ_VNNI_EVEX
    __asm__("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(x));
#elif defined(__AVXVNNI__)
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(codes), "x"(x));
#else
    (void)codes, (void)x;
#endif
    return sum;
}

// A tile's halves. Of few rows each has two sums, or what comes next would wait for what was before.
INLINE void group_dots(__m256i sum[2][TALL], __m256i book, const uint8_t *q, const int8_t *x, int G, const int M) {
    const int steps = BITS == 4 || BITS == 8 ? 4 : 8, all = 2 * M;
    const bool two = M <= 2;
    __m256i odd[2][TALL];
    EACH (int i = 0; i < all; i++) odd[i / M][i % M] = _mm256_setzero_si256();
    for (int k = 0; k < G; k += 4 * steps, q += 8 * steps * BITS)
        EACH (int f = 0; f < steps; f++) {
            const __m256i v = codes4(q, f, book), u = codes4(q + 32, f, book);
            EACH (int m = 0; m < M; m++) {
                const __m256i x4 = bcast4(x + (size_t)m * (size_t)G + k + 4 * f);
                __m256i (*to)[TALL] = two && f % 2 ? odd : sum;
                to[0][m] = dot4(to[0][m], v, x4);
                to[1][m] = dot4(to[1][m], u, x4);
            }
        }
    if (!two) return;
    EACH (int i = 0; i < all; i++) sum[i / M][i % M] = _mm256_add_epi32(sum[i / M][i % M], odd[i / M][i % M]);
}

// --- blocks ---

// Of H halves.
INLINE void group_sums(__m256i sum[2][TALL], const lq_codebook *book, const uint8_t *q, const int8_t *x, int G,
                       const int M, const int H) {
    const int all = H * M;
    EACH (int i = 0; i < all; i++) sum[i / M][i % M] = _mm256_setzero_si256();
    __m256i above = _mm256_setzero_si256();
    if (TABLE) above = _mm256_add_epi8(book_of(book), _mm256_set1_epi8((char)book->most));
    if (VNNI) group_dots(sum, above, q, x, G, M);
    else if (BITS == 8 || (TABLE && book->most > LOW_MOST))
        EACH (int h = 0; h < H; h++) group8(sum[h], above, q + 32 * h, x, G, M);
    else group_pairs(sum, above, q, x, G, M, H);
}

// Codes have no sign: their zero points times the sum of x are taken off, which without zero points is one number.
INLINE __m256i centre(__m256i sum, const lq_codebook *book, const uint8_t *zero, int32_t xsum) {
    const __m256i all = _mm256_set1_epi32(xsum);
    if (TABLE) return _mm256_sub_epi32(sum, _mm256_mullo_epi32(all, _mm256_set1_epi32(book->most)));
    if (!zero) return _mm256_sub_epi32(sum, _mm256_slli_epi32(all, BITS - 1));
    const __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)zero));
    return _mm256_sub_epi32(sum, _mm256_mullo_epi32(z, all));
}

INLINE void lines_ask(const uint8_t *p, int n, const bool near) {
    for (int i = 0; i < n; i += 64) {
        if (near) _mm_prefetch((const char *)p + i, _MM_HINT_T0);
        else _mm_prefetch((const char *)p + i, _MM_HINT_T1);
    }
}

// Behind a group, what int_avx512.h asks for; of a table there is so much to do that once and late is enough.
INLINE void group_ask(const uint8_t *q, int bytes, const int M) {
    if (TABLE) {
        if (M <= 2) lines_ask(q + AHEAD, bytes, true);
        return;
    }
    if (VNNI && BITS == 8 && M <= 2) {
        lines_ask(q + PAGES_AHEAD, 1, false);
        return;
    }
    lines_ask(q + FAR, bytes, false);
    lines_ask(q + AHEAD, bytes, false);
}

// Halves `half` and on, H of them, of tile t x M rows. first: nobody has read their lines yet. fixed: how many k a cell
// has; 0: whatever.
INLINE void block(const lq_weight *w, const lq_act *a, int64_t t, int half, int m0, bool first, float *y, size_t ldy,
                  const int M, const int H, const bool whole, const int fixed) {
    const int G = fixed ? fixed : (int)a->q_row, unit = lq_x86_group(&w->type), groups = (int)((w->k + G - 1) / G);
    const lq_codebook *book = TABLE ? lq_wtype_book(&w->type) : NULL;
    const int span = whole ? (int)(lq_i8_span(w, a) / G) : 1;
    const bool grouped = w->type.group, asym = w->type.asym;
    const size_t size = lq_dtype_size(w->type.scale), cells = (size_t)lq_weight_groups(&w->type, w->k);
    const size_t cell = (size_t)t * cells * LQ_X86_ROWS + (size_t)half * HALF;
    const size_t tile = (size_t)((w->k + unit - 1) / unit * unit) * (size_t)(2 * BITS);
    const uint8_t *q = (const uint8_t *)w->q + (size_t)t * tile + (size_t)half * 32;
    const uint8_t *ws = (const uint8_t *)w->scale + cell * size, *wz = asym ? w->zero + cell : NULL;
    const int64_t n = t * LQ_X86_ROWS + half * HALF;
    __m256 f[2][TALL];
    __m256i total[2][TALL];
    EACH (int h = 0; h < H; h++)
        EACH (int m = 0; m < M; m++) {
            const int64_t left = w->n - n - h * HALF;
            f[h][m] = a->more ? begin8(y + (size_t)(m0 + m) * ldy + (size_t)(n + h * HALF), left) : _mm256_setzero_ps();
            total[h][m] = _mm256_setzero_si256();
        }
    for (int g = 0; g < groups; g++, q += G * 2 * BITS) {
        const size_t u = (size_t)g * (size_t)a->apart + (size_t)m0;
        const int8_t *x = (const int8_t *)a->q + u * (size_t)G;
        const bool ends = whole && ((g + 1) % span == 0 || g + 1 == groups);
        __m256i sum[2][TALL];
        if (first) group_ask(q, G * 2 * BITS, M);
        // Scales are a stream too thin for the machine to look ahead in.
        if (first && grouped) lines_ask(ws + SCALE_AHEAD, 1, true);
        group_sums(sum, book, q, x, G, M, H);
        EACH (int h = 0; h < H; h++) {
            const __m256 s = scales_of(w, ws + (size_t)(h * HALF) * size, book);
            EACH (int m = 0; m < M; m++) {
                __m256i dot = centre(sum[h][m], book, asym ? wz + h * HALF : NULL, a->sum[u + (size_t)m]);
                if (whole) {
                    dot = total[h][m] = _mm256_add_epi32(total[h][m], dot);
                    if (!ends) continue;
                    if (a->zero) {
                        const __m256i codes = codes8(w->code_sum + n + h * HALF + g / span * LQ_X86_ROWS,
                                                     w->n - n - h * HALF);
                        dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(codes, _mm256_set1_epi32(a->zero[m0 + m])));
                    }
                    total[h][m] = _mm256_setzero_si256();
                }
                f[h][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                                          _mm256_mul_ps(s, _mm256_set1_ps(a->scale[u + (size_t)m])), f[h][m]);
            }
        }
        if (grouped) ws += LQ_X86_ROWS * size;
        if (grouped && asym) wz += LQ_X86_ROWS;
    }
    EACH (int h = 0; h < H; h++)
        EACH (int m = 0; m < M; m++)
            put8(y + (size_t)(m0 + m) * ldy + (size_t)(n + h * HALF), w->n - n - h * HALF, f[h][m]);
}

typedef void block_fn(const lq_weight *, const lq_act *, int64_t t, int half, int m, bool first, float *y, size_t ldy);
#define FN(NAME, M, H, WHOLE, G)                                                                     \
    static void NAME##M(const lq_weight *w, const lq_act *a, int64_t t, int half, int m, bool first, \
                        float *y, size_t ldy) {                                                      \
        block(w, a, t, half, m, first, y, ldy, M, H, WHOLE, G);                                      \
    }
#define SET(NAME, ...)                                      \
    FN(NAME, 1, 2, __VA_ARGS__) FN(NAME, 2, 2, __VA_ARGS__) \
    FN(NAME, 3, LOW / 2, __VA_ARGS__) FN(NAME, 4, LOW / 2, __VA_ARGS__)
#define ALL(NAME) {NAME##1, NAME##2, NAME##3, NAME##4}

// Parts of rows meet as many tiles as stay in the second cache, so that activations come from there or nearer.
INLINE void walk(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 block_fn *const all[3][TALL]) {
    block_fn *const *fns = all[a->zero || lq_i8_span(w, a) > (int64_t)a->q_row ? 2 : a->q_row == 32];
    const int64_t tile = w->k * w->type.bits * 2 + 1, pass = m1 - m0 > TALL ? 1 + PASS_BYTES / tile : 1;
    for (int64_t end; t0 < t1; t0 = end) {
        end = t1 - t0 < pass ? t1 : t0 + pass;
        for (int m = m0; m < m1; m += TALL) {
            const int rows = m1 - m < TALL ? m1 - m : TALL;
            for (int64_t h = 2 * t0; h < 2 * end && h * HALF < w->n; h += rows <= LOW ? 2 : 1)
                fns[rows - 1](w, a, h / 2, (int)(h % 2), m, m == m0 && h % 2 == 0, y, ldy);
        }
    }
}

// The kernel of weights of this name, whose codes have so many BITS.
#define X86_UKR(OF) X86_UKR_OF(OF, ISA)
#define X86_UKR_OF(OF, ON) X86_UKR_ON(OF, ON)
#define X86_UKR_ON(OF, ON)                                                                                    \
    SET(any, false, 0) CELLS_32 SET(whole, true, 0)                                                           \
    static block_fn *const fns[3][TALL] = {ALL(any), FNS_32, ALL(whole)};                                     \
    lq_ukr_run lq_matmul_f32_q8_##OF##x86_##ON;                                                               \
    void lq_matmul_f32_q8_##OF##x86_##ON(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, \
                                         int m1, float *y, size_t ldy) {                                      \
        walk(w, a, t0, t1, m0, m1, y, ldy, fns);                                                              \
    }
#endif
