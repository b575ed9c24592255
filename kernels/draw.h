// draw.h: what sampling makes of one logit or one number: the one definition, of portable C and of the CUDA kernels.
// Where tokens are kept until they have a share of the whole, weights are integers, so that their sum has no order.
#ifndef LQ_DRAW_H
#define LQ_DRAW_H
#include "kernels/math.h"
#include <math.h>

enum { LQ_DRAW_BLOCK = 512, LQ_DRAW_LANES = 16 }; // ids that are summed together, in so many lanes

// exp(l) of l <= 0 in units of 2^-44. Of 2^-20 and more it is exact; a million tokens fit.
LQ_FN uint64_t lq_draw_units(float l) { return (uint64_t)(int64_t)(lq_expf(l) * 0x1p44f); }
LQ_FN uint64_t lq_draw_need(double share) { return (uint64_t)(int64_t)(share * 0x1p44); }

// What a token adds to the expected surprise; the weights' sum is `whole`.
LQ_FN double lq_draw_surprise(float l, double whole, double log_whole) {
    return l == -INFINITY ? 0 : lq_expf(l) / whole * (log_whole - l);
}

// How near a token's surprise is to the expected one: 0 is best.
LQ_FN float lq_draw_typical(float l, double log_whole, double entropy) {
    return -(float)fabs(log_whole - l - entropy);
}

// Philox4x32-10, counter (position, choice, 0, 0): a number in [0, 1) with 53 bits.
LQ_FN double lq_draw_uniform(uint64_t seed, uint32_t choice, uint32_t position) {
    uint32_t c[4] = {position, choice, 0, 0}, k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        const uint64_t a = (uint64_t)c[0] * 0xd2511f53u, b = (uint64_t)c[2] * 0xcd9e8d57u;
        const uint32_t first = (uint32_t)(b >> 32) ^ c[1] ^ k0, third = (uint32_t)(a >> 32) ^ c[3] ^ k1;
        c[0] = first, c[1] = (uint32_t)b, c[2] = third, c[3] = (uint32_t)a;
    }
    return (double)((uint64_t)(c[0] >> 5) << 26 | c[1] >> 6) * 0x1p-53;
}
#endif
