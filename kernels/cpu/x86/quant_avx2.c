// quant_avx2.c: Q8 activations with AVX2: the bits of lq_q8_c.
#include "kernels/cpu/cpu.h"
#include <immintrin.h>

static __m256i max8(const float *x, int n) { // of the magnitudes' bits; n a multiple of 8
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) top = _mm256_max_epi32(top, _mm256_and_si256(mask, _mm256_loadu_si256((const __m256i *)(const void *)(x + i))));
    return top;
}
static int32_t highest(__m256i v) {
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}
static int32_t total(__m256i v) {
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

static void row_of(const float *x, int k, const lq_act *a, int row, int g0) {
    const int G = (int)a->q_row;
    if (G % 16) {
        lq_q8_c.row(x, k, a, row, g0);
        return;
    }
    for (int g = g0; k > 0; g++, x += G, k -= G) {
        if (k < G) {
            lq_q8_c.row(x, k, a, row, g);
            return;
        }
        const size_t u = (size_t)g * (size_t)a->x.rows + (size_t)row;
        int8_t *q = (int8_t *)a->q + u * (size_t)G;
        const int32_t top = highest(max8(x, G));
        const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(top)));
        const bool some = top < 0x7f800000 && absmax >= 0x1p-100f;
        const __m256 inverse = _mm256_set1_ps(some ? 127.0f / absmax : 0);
        __m256i sum = _mm256_setzero_si256();
        for (int i = 0; i < G; i += 16) {
            __m256i lo = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
            __m256i hi = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), inverse));
            if (!some) lo = hi = _mm256_setzero_si256();
            sum = _mm256_add_epi32(sum, _mm256_add_epi32(lo, hi));
            const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
            _mm_storeu_si128((__m128i *)(void *)(q + i), _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
        }
        a->scale[u] = absmax < 0x1p-100f ? 0 : absmax / 127.0f;
        a->sum[u] = total(sum);
    }
}

static uint32_t top_of(const float *x, int n) {
    const int whole = n & ~7;
    const uint32_t top = (uint32_t)highest(max8(x, whole)), rest = lq_q8_c.top(x + whole, n - whole);
    return top > rest ? top : rest;
}

static __m256i codes8(const float *x, const lq_q8_by *by) {
    const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(by->inverse)), far = _mm256_set1_ps(512.0f);
    const __m256i c = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(v, far), _mm256_sub_ps(_mm256_setzero_ps(), far)));
    return _mm256_min_epi32(_mm256_max_epi32(_mm256_add_epi32(c, _mm256_set1_epi32(by->zero)), _mm256_set1_epi32(by->least)), _mm256_set1_epi32(127));
}
static int32_t codes_of(const float *x, int n, const lq_q8_by *by, int8_t *q) {
    __m256i sum = _mm256_setzero_si256();
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i lo = codes8(x + i, by), hi = codes8(x + i + 8, by), w = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
        sum = _mm256_add_epi32(sum, _mm256_add_epi32(lo, hi));
        _mm_storeu_si128((__m128i *)(void *)(q + i), _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
    }
    return total(sum) + lq_q8_c.codes(x + i, n - i, by, q + i);
}

const lq_q8 lq_q8_avx2 = {row_of, top_of, codes_of};
