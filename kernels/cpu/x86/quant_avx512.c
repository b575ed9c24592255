// quant_avx512.c: Q8 activations with AVX-512: the bits of lq_q8_c.
#include "kernels/cpu/cpu.h"
#include <immintrin.h>

static void row_of(const float *x, int k, const lq_act *a, int row, int g0) {
    const int G = (int)a->q_row;
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    for (int g = g0; k > 0; g++, x += G, k -= G) {
        if (k < G || G % 16) {
            lq_q8_c.row(x, k, a, row, g);
            return;
        }
        const size_t u = (size_t)g * (size_t)a->x.rows + (size_t)row;
        int8_t *q = (int8_t *)a->q + u * (size_t)G;
        __m512i bits = _mm512_setzero_si512();
        for (int i = 0; i < G; i += 16) bits = _mm512_max_epi32(bits, _mm512_and_si512(mask, _mm512_loadu_si512(x + i)));
        const int32_t top = _mm512_reduce_max_epi32(bits);
        const float absmax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(top)));
        const bool some = top < 0x7f800000 && absmax >= 0x1p-100f;
        const __m512 inverse = _mm512_set1_ps(some ? 127.0f / absmax : 0);
        __m512i sum = _mm512_setzero_si512();
        for (int i = 0; i < G; i += 16) {
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
            if (!some) v = _mm512_setzero_si512();
            sum = _mm512_add_epi32(sum, v);
            _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtsepi32_epi8(v));
        }
        a->scale[u] = absmax < 0x1p-100f ? 0 : absmax / 127.0f;
        a->sum[u] = _mm512_reduce_add_epi32(sum);
    }
}

static uint32_t top_of(const float *x, int n) {
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i bits = _mm512_setzero_si512();
    int i = 0;
    for (; i + 16 <= n; i += 16) bits = _mm512_max_epi32(bits, _mm512_and_si512(mask, _mm512_loadu_si512(x + i)));
    const uint32_t top = (uint32_t)_mm512_reduce_max_epi32(bits), rest = lq_q8_c.top(x + i, n - i);
    return top > rest ? top : rest;
}

static int32_t codes_of(const float *x, int n, const lq_q8_by *by, int8_t *q) {
    const __m512 inverse = _mm512_set1_ps(by->inverse), far = _mm512_set1_ps(512.0f), near = _mm512_set1_ps(-512.0f);
    const __m512i zero = _mm512_set1_epi32(by->zero), least = _mm512_set1_epi32(by->least), most = _mm512_set1_epi32(127);
    __m512i sum = _mm512_setzero_si512();
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 v = _mm512_max_ps(_mm512_min_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse), far), near);
        const __m512i c = _mm512_min_epi32(_mm512_max_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(v), zero), least), most);
        sum = _mm512_add_epi32(sum, c);
        _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtsepi32_epi8(c));
    }
    return _mm512_reduce_add_epi32(sum) + lq_q8_c.codes(x + i, n - i, by, q + i);
}

const lq_q8 lq_q8_avx512 = {row_of, top_of, codes_of};
