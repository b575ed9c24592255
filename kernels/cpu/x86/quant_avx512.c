// quant_avx512.c: Q8 activations with AVX-512: the bits of lq_q8_row_c.
#include "kernels/cpu/cpu.h"
#include <immintrin.h>

void lq_q8_row_avx512(const float *x, int k, const lq_act *a, int row, int g0) {
    const int G = a->type.group;
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    for (int g = g0; k > 0; g++, x += G, k -= G) {
        if (k < G || G % 16) {
            lq_q8_row_c(x, k, a, row, g);
            return;
        }
        const size_t u = (size_t)g * (size_t)a->x.rows + (size_t)row;
        int8_t *q = a->q + u * (size_t)G;
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
