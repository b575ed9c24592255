// element.h: what becomes of one number, or of the numbers that share a scale, in the slots rope, glu, scale, quant and
// kv_write: the one definition, of portable C and of the plain CUDA kernels.
#ifndef LQ_ELEMENT_H
#define LQ_ELEMENT_H
#include "kernels/math.h"
#include "kernels/ops.h"
#include <float.h>
#include <math.h>

// What q is also times at this position.
LQ_FN float lq_rope_q(const lq_rope_args *a, int pos) {
    const int past = a->q_beta != 0 ? (pos + a->q_ahead) / a->q_every : 0;
    return past ? 1.0f + a->q_beta * (float)lq_log(1.0 + past) : 1.0f;
}

// exp(x) - 1 is tanh(x / 2) (exp(x) + 1), which keeps its precision near 0.
LQ_FN float lq_xielu(const lq_glu_args *a, float x) {
    const float held = x > a->least ? a->least : x, grown = lq_tanhf(held * 0.5f) * (lq_expf(held) + 1.0f);
    return (x > 0 ? a->alpha * x * x : a->below * (grown - x)) + a->beta * x;
}

LQ_FN float lq_unary_at(const lq_glu_args *a, float x) {
    switch (a->fn) {
    case LQ_SILU: return x / (1.0f + lq_expf(-(a->alpha != 0 ? a->alpha : 1.0f) * x));
    case LQ_GELU: return x * lq_phif(x);
    case LQ_GELU_TANH: return x / (1.0f + lq_expf(-1.59576912f * (x + 0.044715f * x * x * x)));
    case LQ_RELU: return x < 0 ? 0 : x;
    case LQ_RELU2: return x < 0 ? 0 : x * x;
    case LQ_SIGMOID: return lq_sigmoidf(x);
    case LQ_TANH: return lq_tanhf(x);
    case LQ_XIELU: return lq_xielu(a, x);
    }
    return x;
}

// two: there is an up.
LQ_FN float lq_glu_pair(const lq_glu_args *a, float gate, bool two, float up) {
    const float most = a->clamp;
    if (most != 0) {
        gate = gate > most ? most : gate;
        up = up > most ? most : up < -most ? -most : up;
    }
    gate = lq_unary_at(a, gate);
    return two ? gate * (up + a->up_add) : gate;
}

LQ_FN float lq_glu_at(const lq_glu_args *a, float gate, const float *up) {
    return lq_glu_pair(a, gate, up != NULL, up ? *up : 0);
}

LQ_FN float lq_scale_at(const lq_scale_args *a, float x, int col) {
    float v = (a->by ? x * a->by[col] : x) * a->scale;
    if (a->cap != 0) v = lq_tanhf(v / a->cap) * a->cap;
    if (a->limit != 0) v = v > a->limit ? a->limit : v < -a->limit ? -a->limit : v;
    return v;
}

// --- activations ---

// To the nearest E4M3, ties to even, held to 448: below 2^-6 its numbers are 2^-9 apart, as f32 is at 2^14.
LQ_FN float lq_e4m3_round(float v) {
    const uint32_t u = lq_bits(v), size = u & 0x7fffffff;
    float r = lq_float((size + 0x7ffff + (size >> 20 & 1)) & ~0xfffffu), least = lq_float(size) + 16384.0f - 16384.0f;
    r = size < 0x3c800000 ? least : r > 448.0f ? 448.0f : r;
    return lq_float(lq_bits(r) | (u & 0x80000000));
}

// Those of x * inverse: as bf16, which has all of each, or f32.
LQ_FN void lq_e4m3_all(const float *x, int n, float inverse, void *q, bool halves) {
    float *number = (float *)q;
    uint16_t *half = (uint16_t *)q;
    if (halves) for (int i = 0; i < n; i++) half[i] = (uint16_t)(lq_bits(lq_e4m3_round(x[i] * inverse)) >> 16);
    else for (int i = 0; i < n; i++) number[i] = lq_e4m3_round(x[i] * inverse);
}

// F16, BF16, or E4M3 of x * by, which ends at 448.
LQ_FN void lq_narrow_all(const float *x, int n, lq_dtype t, float by, void *q) {
    uint16_t *half = (uint16_t *)q;
    uint8_t *small = (uint8_t *)q;
    if (t == LQ_BF16) for (int i = 0; i < n; i++) half[i] = (uint16_t)lq_bf16_narrow(x[i]);
    else if (t == LQ_F16) for (int i = 0; i < n; i++) half[i] = (uint16_t)lq_f16_narrow(x[i]);
    else for (int i = 0; i < n; i++) {
        const uint32_t u = lq_bits(x[i] * by), size = u & 0x7fffffff, most = 0x43e00000; // 448
        const uint32_t held = size > most && size <= 0x7f800000 ? most : size;
        small[i] = (uint8_t)lq_e4m3_narrow(lq_float(held | (u & 0x80000000)));
    }
}

// How v becomes int8: q = rint(v * inverse) + zero, held to least..127.
typedef struct lq_q8_by { float scale, inverse; int32_t zero, least; } lq_q8_by;

LQ_FN int32_t lq_q8_code(float x, const lq_q8_by *by) {
    float v = x * by->inverse;
    v = v > 512.0f ? 512.0f : v < -512.0f ? -512.0f : v;
    const int32_t c = (int32_t)rintf(v) + by->zero;
    return c > 127 ? 127 : c < by->least ? by->least : c;
}

// The scale of columns whose largest magnitude has the bits `top`. NaN and infinity compare as larger than all finite
// numbers when their bits are taken as integers.
LQ_FN lq_q8_by lq_q8_scale(const lq_act *a, uint32_t top) {
    const float most = a->type.elem == LQ_I8 ? 127.0f : 448.0f, absmax = lq_float(top);
    const float basis = a->type.fixed ? *a->fixed : absmax;
    const bool sick = top >= 0x7f800000, none = !sick && !(basis >= 0x1p-100f);
    lq_q8_by by;
    by.least = a->type.asym ? -128 : -127;
    by.zero = a->type.asym ? *a->fixed_zero : 0;
    by.scale = none ? 0 : !a->type.fixed ? absmax / most : sick ? NAN : basis;
    by.inverse = sick || none ? 0 : (a->type.fixed ? 1.0f : most) / basis;
    return by;
}
#endif
