// math_avx512.h: kernels/cpu/math.h's functions on 16 lanes, with fused multiply-adds: the one exp of AVX-512. Owns nothing.
#ifndef LQ_MATH_AVX512_H
#define LQ_MATH_AVX512_H
#include "kernels/cpu/math.h"
#include <immintrin.h>

#define SET(x) _mm512_set1_ps(x)

// max and min give their second operand where one is NaN, so that NaN stays NaN.
static inline __m512 exp512(__m512 x) {
    __m512 c = _mm512_min_ps(SET(LQ_EXP_MOST), _mm512_max_ps(SET(LQ_EXP_LEAST), x));
    __m512 f = _mm512_roundscale_ps(_mm512_mul_ps(c, SET(LQ_LOG2E)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(f, SET(LQ_LN2_LO), _mm512_fnmadd_ps(f, SET(LQ_LN2_HI), c));
    __m512 p = _mm512_fmadd_ps(SET(LQ_EXP_4), r, SET(LQ_EXP_3));
    p = _mm512_fmadd_ps(p, r, SET(LQ_EXP_2));
    p = _mm512_fmadd_ps(p, r, SET(LQ_EXP_1));
    p = _mm512_fmadd_ps(p, r, SET(LQ_EXP_0));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), SET(1.0f));
    return _mm512_scalef_ps(p, f);
}

static inline __m512 negate512(__m512 x) { return _mm512_xor_ps(x, SET(-0.0f)); }
// x / (1 + exp(-a x))
static inline __m512 silu512(__m512 x, __m512 a) {
    return _mm512_div_ps(x, _mm512_add_ps(SET(1.0f), exp512(negate512(_mm512_mul_ps(a, x)))));
}
static inline __m512 sigmoid512(__m512 x) { return _mm512_div_ps(SET(1.0f), _mm512_add_ps(SET(1.0f), exp512(negate512(x)))); }

static inline __m512 tanh512(__m512 x) {
    __m512 z = _mm512_mul_ps(x, x), a = _mm512_abs_ps(x);
    __m512 p = _mm512_fmadd_ps(SET(LQ_TANH_4), z, SET(LQ_TANH_3));
    p = _mm512_fmadd_ps(p, z, SET(LQ_TANH_2));
    p = _mm512_fmadd_ps(p, z, SET(LQ_TANH_1));
    p = _mm512_fmadd_ps(p, z, SET(LQ_TANH_0));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
    __m512 big = _mm512_sub_ps(SET(1.0f), _mm512_div_ps(SET(2.0f), _mm512_add_ps(exp512(_mm512_add_ps(a, a)), SET(1.0f))));
    big = _mm512_or_ps(big, _mm512_and_ps(x, SET(-0.0f)));
    return _mm512_mask_mov_ps(big, _mm512_cmp_ps_mask(a, SET(LQ_TANH_CUT), _CMP_LT_OQ), small);
}

static inline __m512 phi512(__m512 x) {
    __m512 a = _mm512_mul_ps(_mm512_abs_ps(x), SET(0.707106781f)), z = _mm512_mul_ps(a, a);
    __m512 t = _mm512_div_ps(SET(1.0f), _mm512_fmadd_ps(SET(0.5f), a, SET(1.0f))), p = SET(lq_erf_p[5]), q = SET(lq_erf_q[7]);
    for (int i = 4; i >= 0; i--) p = _mm512_fmadd_ps(p, z, SET(lq_erf_p[i]));
    for (int i = 6; i >= 0; i--) q = _mm512_fmadd_ps(q, t, SET(lq_erf_q[i]));
    __m512 half = _mm512_mul_ps(SET(0.5f), _mm512_mul_ps(p, a));
    __m512 tail = _mm512_mul_ps(SET(0.5f), _mm512_mul_ps(_mm512_mul_ps(exp512(negate512(z)), t), q));
    __mmask16 below = _mm512_cmp_ps_mask(x, SET(0.0f), _CMP_LT_OQ);
    __m512 near = _mm512_mask_sub_ps(_mm512_add_ps(SET(0.5f), half), below, SET(0.5f), half);
    __m512 far = _mm512_mask_mov_ps(_mm512_sub_ps(SET(1.0f), tail), below, tail);
    return _mm512_mask_mov_ps(far, _mm512_cmp_ps_mask(a, SET(LQ_ERF_CUT), _CMP_LT_OQ), near);
}

// Lanes in use of the last, partial vector of n.
static inline __mmask16 tail512(int n) { return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1); }
#endif
