// elem.h: one number between f32 and the small floats: the one definition, of dtypes.c and of CUDA kernels. Without
// branches, so that a loop over it becomes vector code. From f32 to the nearest, ties to even; that does not depend on
// whether the machine flushes denormals.
#ifndef LQ_ELEM_H
#define LQ_ELEM_H
#include "formats/fn.h"
#include <stdint.h>
#include <string.h>

LQ_FN uint32_t lq_bits(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
LQ_FN float lq_float(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }

// A small float widens by moving its bits; subnormals come right by subtracting the smallest
// normal from "1.m" at its exponent.
LQ_FN float lq_f16_widen(uint32_t h) {
    uint32_t u = (h & 0x7fff) << 13;
    uint32_t normal = u + (112u << 23), special = u | 0x7f800000;
    uint32_t sub = lq_bits(lq_float(u + (113u << 23)) - lq_float(113u << 23));
    uint32_t r = u >= 0x0f800000 ? special : u < 0x00800000 ? sub : normal;
    return lq_float(r | (h & 0x8000) << 16);
}

LQ_FN float lq_bf16_widen(uint32_t h) { return lq_float(h << 16); }

LQ_FN float lq_e4m3_widen(uint32_t b) {
    uint32_t u = (b & 0x7f) << 20;
    uint32_t normal = u + (120u << 23);
    uint32_t sub = lq_bits(lq_float(u + (121u << 23)) - lq_float(121u << 23));
    uint32_t r = (b & 0x7f) == 0x7f ? 0x7fc00000 : u < 0x00800000 ? sub : normal;
    return lq_float(r | (b & 0x80) << 24);
}

LQ_FN float lq_e5m2_widen(uint32_t b) { return lq_f16_widen(b << 8); }

// A power of two, 2^(b - 127), and NaN.
LQ_FN float lq_e8m0_widen(uint32_t b) {
    return lq_float(b == 255 ? 0x7fc00000u : b ? b << 23 : 0x00400000u);
}

// To the nearest power of two, in between upwards; NaN of what is none. 2^-127 is half of the least normal number.
LQ_FN uint32_t lq_e8m0_narrow(float f) {
    const uint32_t u = lq_bits(f), up = (u + 0x00400000u) >> 23;
    return u - 1 >= 0x7f800000u - 1 || up > 254 ? 255 : u < 0x00600000u ? 0 : up;
}

// Rounds |f| to a float of `keep` fewer mantissa bits whose exponent is rebased by `bias`; below the smallest normal
// the sum with `magic`, whose ulp is the type's smallest step, does the rounding.
LQ_FN uint32_t lq_float_narrow(uint32_t u, int keep, uint32_t bias, float magic) {
    uint32_t half = (1u << (keep - 1)) - 1;
    uint32_t normal = (u + half + (u >> keep & 1) - (bias << 23)) >> keep;
    uint32_t sub = lq_bits(lq_float(u) + magic) - lq_bits(magic);
    return u < (bias + 1) << 23 ? sub : normal;
}

LQ_FN uint32_t lq_f16_narrow(float f) {
    uint32_t b = lq_bits(f), u = b & 0x7fffffff;
    uint32_t in = u < 0x47800000 ? u : 0; // 2^16 and above, infinity and NaN are set below
    uint32_t r = lq_float_narrow(in, 13, 112, 0.5f);
    r = u >= 0x47800000 ? 0x7c00 : r;
    r = u > 0x7f800000 ? 0x7e00 : r;
    return r | (b >> 16 & 0x8000);
}

LQ_FN uint32_t lq_bf16_narrow(float f) {
    uint32_t u = lq_bits(f);
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (u & 0x7fffffff) > 0x7f800000 ? (u >> 16 | 0x40) : r;
}

LQ_FN float lq_bf16_near(float f) { return lq_bf16_widen(lq_bf16_narrow(f)); }

LQ_FN uint32_t lq_e4m3_narrow(float f) {
    uint32_t b = lq_bits(f), u = b & 0x7fffffff;
    uint32_t r = lq_float_narrow(u < 0x44000000 ? u : 0x44000000, 20, 120, 16384.0f); // 512: far above 448
    return (r > 0x7e ? 0x7f : r) | (b >> 24 & 0x80);
}

LQ_FN uint32_t lq_e5m2_narrow(float f) {
    uint32_t b = lq_bits(f), u = b & 0x7fffffff;
    uint32_t in = u < 0x47800000 ? u : 0;
    uint32_t r = lq_float_narrow(in, 21, 112, 128.0f);
    r = u >= 0x47800000 ? 0x7c : r;
    r = u > 0x7f800000 ? 0x7e : r;
    return r | (b >> 24 & 0x80);
}
#endif
