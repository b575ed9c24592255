// math.h: exp, tanh, erf, log, sine and cosine, so that no result of lq depends on which
// libm is installed, nor those of portable C and of the plain CUDA kernels on which of them ran. Owns nothing.
//
// Each f32 function is free of branches, so that a plain loop over it becomes vector code. The AVX2 and AVX-512 files
// use the same coefficients with fused multiply-adds: within one ISA there is one exp, but for attention's weights,
// which there are 2^t (vf_exp2).
#ifndef LQ_MATH_H
#define LQ_MATH_H
#include "formats/elem.h"

// exp(r) = 1 + r + r^2 P(r), |r| <= ln2 / 2: relative error of P's part 3.3e-9.
#define LQ_EXP_0 0.49999994f
#define LQ_EXP_1 0.166665152f
#define LQ_EXP_2 0.041668456f
#define LQ_EXP_3 0.00836941879f
#define LQ_EXP_4 0.00138131424f
#define LQ_LOG2E 1.44269504f
#define LQ_LN2_HI 0.693145752f   // 15 bits: a multiple up to 2^8 is exact
#define LQ_LN2_LO 1.42860682e-6f
#define LQ_EXP_LEAST (-87.33654f) // below: 0, for a result under the least normal number costs as much as ten others
#define LQ_EXP_MOST 89.0f        // above: infinity
#define LQ_ROUNDER 12582912.0f   // 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits

// 2^r = 1 + r P(r), |r| <= 1/2: relative error 3e-9.
#define LQ_EXP2_0 0.693147182f
#define LQ_EXP2_1 0.240226477f
#define LQ_EXP2_2 0.0555035956f
#define LQ_EXP2_3 0.00961849932f
#define LQ_EXP2_4 0.00133909704f
#define LQ_EXP2_5 0.000153292785f
#define LQ_EXP2_LEAST (-126.0f) // below: 0

// Within 2 ulp; exact at 0; what is below the least normal number is 0; NaN stays NaN.
LQ_FN float lq_expf(float x) {
    float c = x < LQ_EXP_LEAST ? LQ_EXP_LEAST : x;
    c = c > LQ_EXP_MOST ? LQ_EXP_MOST : c;
    float t = c * LQ_LOG2E + LQ_ROUNDER, f = t - LQ_ROUNDER;
    float r = (c - f * LQ_LN2_HI) - f * LQ_LN2_LO;
    float p = (((LQ_EXP_4 * r + LQ_EXP_3) * r + LQ_EXP_2) * r + LQ_EXP_1) * r + LQ_EXP_0;
    p = (p * (r * r) + r) + 1.0f;
    int32_t n = (int32_t)(lq_bits(t) - 0x4b400000u), half = n >> 1; // 2^n in two factors: n runs from -126 to 128
    p = p * lq_float(((uint32_t)half + 127u) << 23) * lq_float(((uint32_t)n - (uint32_t)half + 127u) << 23);
    return x < LQ_EXP_LEAST ? 0 : p;
}

LQ_FN float lq_sigmoidf(float x) { return 1.0f / (1.0f + lq_expf(-x)); }

// tanh(x) = x + x^3 P(x^2) below LQ_TANH_CUT, 1 - 2 / (exp(2x) + 1) above.
#define LQ_TANH_CUT 0.625f
#define LQ_TANH_0 (-0.333332688f)
#define LQ_TANH_1 0.133310929f
#define LQ_TANH_2 (-0.053709656f)
#define LQ_TANH_3 0.0205388106f
#define LQ_TANH_4 (-0.00559100742f)

LQ_FN float lq_tanhf(float x) {
    float z = x * x;
    float p = (((LQ_TANH_4 * z + LQ_TANH_3) * z + LQ_TANH_2) * z + LQ_TANH_1) * z + LQ_TANH_0;
    float a = lq_float(lq_bits(x) & 0x7fffffffu);
    float big = 1.0f - 2.0f / (lq_expf(a + a) + 1.0f);
    big = lq_float(lq_bits(big) | (lq_bits(x) & 0x80000000u));
    return a < LQ_TANH_CUT ? p * z * x + x : big;
}

// erf(x) = x P(x^2) up to LQ_ERF_CUT; above it erfc(x) = exp(-x^2) t Q(t), t = 1 / (1 + x / 2).
#define LQ_ERF_CUT 0.95f
LQ_FN_DATA float lq_erf_p[6] = {1.12837911f, -0.376124471f, 0.112813205f, -0.026748864f, 0.00496750604f,
                                  -0.000586207956f};
LQ_FN_DATA float lq_erf_q[8] = {0.282099932f, 0.282001585f, 0.247343853f, 0.176795289f,
                                 0.0668903068f, 0.072491698f, -0.21729055f, 0.0901644304f};

// The normal distribution up to x: the factor of gelu. Small values keep their relative precision.
LQ_FN float lq_phif(float x) {
    float a = lq_float(lq_bits(x) & 0x7fffffffu) * 0.707106781f, z = a * a;
    float p = lq_erf_p[5], t = 1.0f / (1.0f + 0.5f * a), q = lq_erf_q[7];
    for (int i = 4; i >= 0; i--) p = p * z + lq_erf_p[i];
    for (int i = 6; i >= 0; i--) q = q * t + lq_erf_q[i];
    float half = 0.5f * (p * a), tail = 0.5f * (lq_expf(-z) * t * q);
    float near = x < 0 ? 0.5f - half : 0.5f + half, far = x < 0 ? tail : 1.0f - tail;
    return a < LQ_ERF_CUT ? near : far;
}

// The natural logarithm of a positive, normal number, to 1e-15.
LQ_FN double lq_log(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    int e = (int)(u >> 52) - 1023;
    u = (u & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m, sum = 0;
    memcpy(&m, &u, sizeof m);
    if (m > 1.4142135623730951) m *= 0.5, e++;
    double s = (m - 1) / (m + 1), z = s * s;
    for (int i = 21; i >= 1; i -= 2) sum = sum * z + 1.0 / i;
    return 2 * s * sum + e * 0.69314718055994530942;
}

// Sine and cosine of |x| < 2^24, to 1e-11. pi / 2 in three parts; the first has 29 bits,
// so that its multiples are exact.
#define LQ_PIO2_A 1.570796325802803
#define LQ_PIO2_B 9.920935796805404e-10
#define LQ_2_PI 0.63661977236758134308
#define LQ_ROUNDER_D 6755399441055744.0
LQ_FN_DATA double lq_sin_c[6] = {1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800};
LQ_FN_DATA double lq_cos_c[7] = {1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600};

LQ_FN void lq_sincos(double x, double *sine, double *cosine) {
    double t = x * LQ_2_PI + LQ_ROUNDER_D, f = t - LQ_ROUNDER_D;
    double r = (x - f * LQ_PIO2_A) - f * LQ_PIO2_B, z = r * r, s = lq_sin_c[5], c = lq_cos_c[6];
    for (int i = 4; i >= 0; i--) s = s * z + lq_sin_c[i];
    for (int i = 5; i >= 0; i--) c = c * z + lq_cos_c[i];
    s *= r;
    uint64_t q;
    memcpy(&q, &t, sizeof q);
    double a = q & 1 ? c : s, b = q & 1 ? s : c;
    *sine = q & 2 ? -a : a;
    *cosine = (q + 1) & 2 ? -b : b;
}
#endif
