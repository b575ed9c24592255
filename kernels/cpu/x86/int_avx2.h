// int_avx2.h: Q8 activations x int weights, or those of a codebook, in layout x86 with AVX2, instantiated by w2_avx2.c
// and so on: BITS is how many a code has, TABLE whether it is looked up.
// The arithmetic is int_avx512.h's, and so are the bits, also of `whole` and of a part of K. A block is
// half a tile (8 weight rows) x up to 4 rows of activations.
#ifndef LQ_INT_AVX2_H
#define LQ_INT_AVX2_H
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"
#include <string.h>

#ifndef TABLE
#define TABLE false
#endif

enum { TALL = 4, HALF = 8, PASS_BYTES = 256 * 1024, LOW_MOST = 15 };

INLINE __m256i bcast4(const int8_t *x) {
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

INLINE __m256 scales_of(const lq_weight *w, const uint8_t *p) { // of 8 rows
    const __m256 s = vf_of_scales(p, w->type.scale, w->scale2 ? *w->scale2 : 1, TABLE);
    return TABLE ? vf_mul(s, vf_set(lq_wtype_book(&w->type)->unit)) : s;
}

// What the sums of 8 rows begin with where a part of K follows another.
INLINE __m256 begin8(const float *y, int64_t left) {
    float v[HALF] = {0};
    memcpy(v, y, (size_t)left * sizeof *v);
    return _mm256_loadu_ps(v);
}

INLINE __m256i codes8(const int32_t *sum, int64_t left) { // code_sum of 8 rows, 0 behind the last
    int32_t v[HALF] = {0};
    memcpy(v, sum, (size_t)left * sizeof *v);
    return _mm256_loadu_si256((const __m256i *)(const void *)v);
}

INLINE void widen(__m256i sum[TALL], const __m256i part[TALL], const int M) {
    EACH (int m = 0; m < M; m++) sum[m] = _mm256_add_epi32(sum[m], _mm256_madd_epi16(part[m], _mm256_set1_epi16(1)));
}

// 16 codes of 4 bits: a pair of products is at most 15 * 127 * 2, so 8 of them add exactly in
// 16 bits before they are widened.
INLINE void group4(__m256i sum[TALL], const uint8_t *q, const int8_t *x, int G, const int M) {
    const __m256i low = _mm256_set1_epi8(0x0f);
    for (int k = 0; k < G; ) {
        __m256i part[TALL];
        EACH (int m = 0; m < M; m++) part[m] = _mm256_setzero_si256();
        for (const int end = k + 32 < G ? k + 32 : G; k < end; k += 8, q += 64) {
            const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)q);
            const __m256i vl = _mm256_and_si256(v, low), vh = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
            EACH (int m = 0; m < M; m++) {
                const int8_t *xm = x + (size_t)m * (size_t)G + k;
                part[m] = _mm256_add_epi16(part[m], _mm256_maddubs_epi16(vl, bcast4(xm)));
                part[m] = _mm256_add_epi16(part[m], _mm256_maddubs_epi16(vh, bcast4(xm + 4)));
            }
        }
        widen(sum, part, M);
    }
}

// Field f of a plane of so many bits, shifted to bit `to`; the bits beside it are others'.
INLINE __m256i plane_field(const uint8_t *q, const int width, const int f, const int to) {
    const int per = 8 / width, from = f % per * width;
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + f / per * 64));
    if (from > to) return _mm256_srli_epi16(v, from - to);
    return from < to ? _mm256_slli_epi16(v, to - from) : v;
}

// Codes in planes, 32 k at a time (codes_avx512.h): as many products add in 16 bits as these hold.
INLINE void group_planes(__m256i sum[TALL], const uint8_t *q, const int8_t *x, int G, const int bits, const int M) {
    const int low = bits > 4 ? 4 : 2, most = bits <= 4 ? 8 : bits == 5 ? 4 : 2;
    const __m256i all = _mm256_set1_epi8((char)((1 << bits) - 1)), mask = _mm256_set1_epi8((char)((1 << low) - 1));
    for (int k = 0; k < G; k += 32, q += 64 * bits, x += 32) {
        __m256i part[TALL];
        EACH (int f = 0; f < 8; f++) {
            __m256i v = plane_field(q, low, f, 0);
            if (bits > low) {
                const __m256i high = _mm256_andnot_si256(mask, plane_field(q + 64 * low, bits - low, f, low));
                v = _mm256_or_si256(_mm256_and_si256(v, mask), high);
            }
            v = _mm256_and_si256(v, all);
            EACH (int m = 0; m < M; m++) {
                const __m256i two = _mm256_maddubs_epi16(v, bcast4(x + (size_t)m * (size_t)G + f * 4));
                part[m] = f % most ? _mm256_add_epi16(part[m], two) : two;
            }
            if ((f + 1) % most == 0) widen(sum, part, M);
        }
    }
}

// Codes of 8 bits less 128, as magnitude times a sign that the activation takes over: a pair is at most 128 * 127 * 2.
INLINE void group8(__m256i sum[TALL], const uint8_t *q, const int8_t *x, int G, const int M) {
    const __m256i top = _mm256_set1_epi8((char)0x80);
    for (int k = 0; k < G; k += 4, q += 64) {
        const __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)q), top);
        const __m256i size = _mm256_abs_epi8(v);
        __m256i part[TALL];
        EACH (int m = 0; m < M; m++)
            part[m] = _mm256_maddubs_epi16(size, _mm256_sign_epi8(bcast4(x + (size_t)m * (size_t)G + k), v));
        widen(sum, part, M);
    }
}

// The same for activations down to -128, which have zero points: pairs of products in 32 bits.
// Rows 0, 1, 4, 5 lie in `even`.
INLINE void group8_wide(__m256i sum[TALL], const uint8_t *q, const int8_t *x, int G, const int M) {
    const __m256i top = _mm256_set1_epi8((char)0x80);
    __m256i even[TALL], odd[TALL];
    EACH (int m = 0; m < M; m++) even[m] = odd[m] = _mm256_setzero_si256();
    for (int k = 0; k < G; k += 4, q += 64) {
        const __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)q), top);
        const __m256i lo = _mm256_srai_epi16(_mm256_unpacklo_epi8(v, v), 8);
        const __m256i hi = _mm256_srai_epi16(_mm256_unpackhi_epi8(v, v), 8);
        EACH (int m = 0; m < M; m++) {
            const __m256i b = bcast4(x + (size_t)m * (size_t)G + k);
            const __m256i x4 = _mm256_srai_epi16(_mm256_unpacklo_epi8(b, b), 8);
            even[m] = _mm256_add_epi32(even[m], _mm256_madd_epi16(lo, x4));
            odd[m] = _mm256_add_epi32(odd[m], _mm256_madd_epi16(hi, x4));
        }
    }
    EACH (int m = 0; m < M; m++) sum[m] = _mm256_add_epi32(sum[m], _mm256_hadd_epi32(even[m], odd[m]));
}

// 8 codes of 4 bits, looked up: those of the low nibbles and of the high ones.
typedef struct looked { __m256i low, high; } looked;
INLINE looked look_up(__m256i book, const uint8_t *q) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)q), low = _mm256_set1_epi8(0x0f);
    return (looked){_mm256_shuffle_epi8(book, _mm256_and_si256(v, low)),
                    _mm256_shuffle_epi8(book, _mm256_and_si256(_mm256_srli_epi16(v, 4), low))};
}

INLINE __m256i book_of(const lq_codebook *b) {
    return _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(const void *)b->whole));
}

// Whole numbers of up to LOW_MOST, and that added: four pairs of products are at most 30 * 127 * 8.
INLINE void group_low(__m256i sum[TALL], const lq_codebook *b, const uint8_t *q, const int8_t *x, int G, const int M) {
    const __m256i book = _mm256_add_epi8(book_of(b), _mm256_set1_epi8((char)b->most));
    for (int k = 0; k < G; k += 16, q += 128) {
        const looked first = look_up(book, q), second = look_up(book, q + 64);
        __m256i part[TALL];
        EACH (int m = 0; m < M; m++) {
            const int8_t *xm = x + (size_t)m * (size_t)G + k;
            part[m] = _mm256_maddubs_epi16(first.low, bcast4(xm));
            part[m] = _mm256_add_epi16(part[m], _mm256_maddubs_epi16(first.high, bcast4(xm + 4)));
            part[m] = _mm256_add_epi16(part[m], _mm256_maddubs_epi16(second.low, bcast4(xm + 8)));
            part[m] = _mm256_add_epi16(part[m], _mm256_maddubs_epi16(second.high, bcast4(xm + 12)));
        }
        widen(sum, part, M);
    }
}

// Others: magnitude times a sign that the activation takes over, as of 8 bits.
INLINE void group_high(__m256i sum[TALL], const lq_codebook *b, const uint8_t *q, const int8_t *x, int G, const int M) {
    const __m256i book = book_of(b), sizes = _mm256_abs_epi8(book);
    for (int k = 0; k < G; k += 8, q += 64) {
        const looked v = look_up(book, q), size = look_up(sizes, q);
        __m256i part[TALL];
        EACH (int m = 0; m < M; m++)
            part[m] = _mm256_maddubs_epi16(size.low, _mm256_sign_epi8(bcast4(x + (size_t)m * (size_t)G + k), v.low));
        widen(sum, part, M);
        EACH (int m = 0; m < M; m++)
            part[m] = _mm256_maddubs_epi16(size.high,
                                           _mm256_sign_epi8(bcast4(x + (size_t)m * (size_t)G + k + 4), v.high));
        widen(sum, part, M);
    }
}

// Half `half` of tile t x M rows. The codes were taken less `base`; the rest of the zero point comes from the sum of x.
INLINE void block(const lq_weight *w, const lq_act *a, int64_t t, int half, int m0, float *y, size_t ldy,
                  const int bits, const int M, const bool whole) {
    const int G = (int)a->q_row, unit = lq_x86_group(&w->type), groups = (int)((w->k + G - 1) / G);
    const lq_codebook *book = TABLE ? lq_wtype_book(&w->type) : NULL;
    const int base = bits == 8 ? 128 : 0, above = !TABLE ? 1 << (bits - 1) : book->most <= LOW_MOST ? book->most : 0;
    const int span = whole ? (int)(lq_i8_span(w, a) / G) : 1;
    const bool grouped = w->type.group, asym = w->type.asym;
    const size_t size = lq_dtype_size(w->type.scale), cells = (size_t)lq_weight_groups(&w->type, w->k);
    const size_t cell = (size_t)t * cells * LQ_X86_ROWS + (size_t)half * HALF;
    const size_t tile = (size_t)((w->k + unit - 1) / unit * unit) * (size_t)(2 * bits);
    const uint8_t *q = (const uint8_t *)w->q + (size_t)t * tile + (size_t)half * 32;
    const uint8_t *ws = (const uint8_t *)w->scale + cell * size, *wz = asym ? w->zero + cell : NULL;
    const int64_t n = t * LQ_X86_ROWS + half * HALF, left = w->n - n < HALF ? w->n - n : HALF;
    __m256 f[TALL];
    __m256i total[TALL];
    EACH (int m = 0; m < M; m++) {
        f[m] = a->more ? begin8(y + (size_t)(m0 + m) * ldy + (size_t)n, left) : _mm256_setzero_ps();
        total[m] = _mm256_setzero_si256();
    }
    for (int g = 0; g < groups; g++, q += G * 2 * bits) {
        const size_t u = (size_t)g * (size_t)a->x.rows + (size_t)m0;
        const int8_t *x = (const int8_t *)a->q + u * (size_t)G;
        __m256i sum[TALL];
        EACH (int m = 0; m < M; m++) sum[m] = _mm256_setzero_si256();
        if (TABLE && above) group_low(sum, book, q, x, G, M);
        else if (TABLE) group_high(sum, book, q, x, G, M);
        else if (bits == 4) group4(sum, q, x, G, M);
        else if (bits < 8) group_planes(sum, q, x, G, bits, M);
        else if (whole && a->zero) group8_wide(sum, q, x, G, M);
        else group8(sum, q, x, G, M);
        const __m256i z =
            asym ? _mm256_sub_epi32(_mm256_set1_epi32(base),
                                    _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)wz)))
                 : _mm256_set1_epi32(base - above);
        const __m256 s = scales_of(w, ws);
        EACH (int m = 0; m < M; m++) {
            __m256i dot = _mm256_add_epi32(sum[m], _mm256_mullo_epi32(z, _mm256_set1_epi32(a->sum[u + (size_t)m])));
            if (whole) {
                dot = total[m] = _mm256_add_epi32(total[m], dot);
                if ((g + 1) % span && g + 1 < groups) continue;
                const __m256i by = _mm256_set1_epi32(a->zero ? a->zero[m0 + m] : 0);
                const int32_t *codes = a->zero ? w->code_sum + n + g / span * LQ_X86_ROWS : NULL;
                if (codes) dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(codes8(codes, left), by));
                total[m] = _mm256_setzero_si256();
            }
            f[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(s, _mm256_set1_ps(a->scale[u + (size_t)m])),
                                   f[m]);
        }
        if (grouped) ws += LQ_X86_ROWS * size;
        if (grouped && asym) wz += LQ_X86_ROWS;
    }
    EACH (int m = 0; m < M; m++) {
        float *to = y + (size_t)(m0 + m) * ldy + (size_t)n, v[HALF];
        if (left == HALF) {
            _mm256_storeu_ps(to, f[m]);
            continue;
        }
        _mm256_storeu_ps(v, f[m]);
        for (int64_t c = 0; c < left; c++) to[c] = v[c];
    }
}

typedef void block_fn(const lq_weight *, const lq_act *, int64_t t, int half, int m, float *y, size_t ldy);
#define FN(M)                                                                                                     \
    static void block##M(const lq_weight *w, const lq_act *a, int64_t t, int half, int m, float *y, size_t ldy) { \
        block(w, a, t, half, m, y, ldy, BITS, M, false);                                                          \
    }                                                                                                             \
    static void whole##M(const lq_weight *w, const lq_act *a, int64_t t, int half, int m, float *y, size_t ldy) { \
        block(w, a, t, half, m, y, ldy, BITS, M, true);                                                           \
    }

// Parts of rows meet as many tiles as stay in the second cache, so that activations come from there or nearer.
INLINE void walk(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 block_fn *const all[2][TALL]) {
    block_fn *const *fns = all[a->zero || lq_i8_span(w, a) > (int64_t)a->q_row];
    const int64_t tile = w->k * w->type.bits * 2 + 1, pass = m1 - m0 > TALL ? 1 + PASS_BYTES / tile : 1;
    for (int64_t end; t0 < t1; t0 = end) {
        end = t1 - t0 < pass ? t1 : t0 + pass;
        for (int m = m0; m < m1; m += TALL)
            for (int64_t h = 2 * t0; h < 2 * end && h * HALF < w->n; h++)
                fns[(m1 - m < TALL ? m1 - m : TALL) - 1](w, a, h / 2, (int)(h % 2), m, y, ldy);
    }
}

// The kernel of weights of this name, whose codes have so many BITS.
#define X86_UKR(OF)                                                                                                  \
    FN(1) FN(2) FN(3) FN(4)                                                                                           \
    static block_fn *const fns[2][TALL] = {{block1, block2, block3, block4}, {whole1, whole2, whole3, whole4}};       \
    lq_ukr_run lq_matmul_f32_q8_##OF##x86_avx2;                                                                     \
    void lq_matmul_f32_q8_##OF##x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0,       \
                                           int m1, float *y, size_t ldy) {                                            \
        walk(w, a, t0, t1, m0, m1, y, ldy, fns);                                                                      \
    }
#endif
