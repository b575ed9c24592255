// rmsn.cuh: x + delta, rounded to bf16, and its norm. 256 threads have a row between them, or a row of up to 256
// columns has as many lanes of a warp as it has vectors of 8 columns, to a power of two. The row stays in registers, 16
// bytes at a time. Sums: a thread's in order of columns, lanes 16, 8, 4, 2, 1 apart (those of the row), then the warps
// in order: by the number of columns alone, so a row's bits depend on that row alone.
#ifndef LQ_RMSN_CUH
#define LQ_RMSN_CUH
#include "kernels/cuda/acts.cuh"
#include "kernels/cuda/rmsn.h"

namespace rmsn {
enum { WARPS = LQ_RMSN_THREADS / WARP };

// Two numbers of bf16 and two more, added and rounded.
LQ_DEV uint32_t added(uint32_t x, uint32_t delta) {
    return bf16x2_of(bf16_low(x) + bf16_low(delta), bf16_high(x) + bf16_high(delta));
}

// What two numbers, less the mean, add to a sum of squares.
LQ_DEV float squares(uint32_t v, float mean, float sum) {
    const float low = bf16_low(v) - mean, high = bf16_high(v) - mean;
    return fmaf(high, high, fmaf(low, low, sum));
}

// The sum over a row's threads, the same bits in each; `at`: eight words that nobody else uses.
template <bool WIDE> LQ_DEV float row_sum(float v, int lanes, smem at) {
    for (int apart = lanes / 2; apart; apart /= 2) v += shfl_xor(v, apart);
    if (!WIDE) return v;
    if (threadIdx.x % WARP == 0) sts4(at + threadIdx.x / WARP * 4, bits_of(v));
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < WARPS; i++) sum += float_of(lds4(at + i * 4));
    return sum;
}

// What gamma holds for four columns. Without one it is not read.
LQ_DEV uint4 gamma_of(const lq_rmsn_args &a, size_t column) {
    if (a.gamma) return ldg16(a.gamma + column);
    return {0, 0, 0, 0};
}

// Four columns; g is what gamma holds for them.
LQ_DEV uint2 normed(uint2 v, const lq_rmsn_args &a, float mean, float by, uint4 g, size_t column) {
    float f[4] = {(bf16_low(v.x) - mean) * by, (bf16_high(v.x) - mean) * by, (bf16_low(v.y) - mean) * by,
                  (bf16_high(v.y) - mean) * by};
    if (a.gamma) {
        f[0] *= float_of(g.x) + a.plus, f[1] *= float_of(g.y) + a.plus;
        f[2] *= float_of(g.z) + a.plus, f[3] *= float_of(g.w) + a.plus;
    }
    if (a.beta) {
        const uint4 b = ldg16(a.beta + column);
        f[0] += float_of(b.x), f[1] += float_of(b.y), f[2] += float_of(b.z), f[3] += float_of(b.w);
    }
    return {bf16x2_of(f[0], f[1]), bf16x2_of(f[2], f[3])};
}

// VECTORS of 8 columns a thread. WIDE: 256 threads for a row; else a part of a warp. KEPT: it is left where acts.cuh
// looks for it.
template <int VECTORS, bool WIDE, bool KEPT = false> LQ_DEV void row(const lq_rmsn_args &a) {
    pdl_trigger();
    const int shift = WIDE ? 8 : a.shift, threads = 1 << shift, lanes = WIDE ? WARP : threads;
    const int thread = (int)threadIdx.x & (threads - 1);
    const int at = (int)(blockIdx.x * (LQ_RMSN_THREADS >> shift) + (threadIdx.x >> shift));
    const bool mine = at < a.rows;
    uint16_t *x = a.x + (int64_t)at * a.x_stride;
    const size_t gamma = (size_t)(at % a.gammas) * (size_t)a.k;
    enum { EARLY = VECTORS <= 2 }; // gamma comes while the kernel before is still at work
    uint4 v[VECTORS], g[EARLY ? VECTORS : 1][2];
    float sum = 0, mean = 0;
    LQ_UNROLL
    for (int i = 0; EARLY && i < VECTORS; i++) {
        const int column = (i * threads + thread) * 8;
        if (column >= a.k) continue;
        g[i][0] = gamma_of(a, gamma + column);
        g[i][1] = gamma_of(a, gamma + column + 4);
    }
    pdl_wait();
    LQ_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        const int column = (i * threads + thread) * 8;
        v[i] = {0, 0, 0, 0};
        if (!mine || column >= a.k) continue;
        v[i] = ld16(x + column);
        if (a.delta) {
            const uint4 d = ldg16(a.delta + (int64_t)at * a.delta_stride + column);
            v[i] = {added(v[i].x, d.x), added(v[i].y, d.y), added(v[i].z, d.z), added(v[i].w, d.w)};
            st16(x + column, v[i]);
        }
    }
    if (a.layer) {
        LQ_UNROLL
        for (int i = 0; i < VECTORS; i++)
            sum += ((bf16_low(v[i].x) + bf16_high(v[i].x)) + (bf16_low(v[i].y) + bf16_high(v[i].y))) +
                   ((bf16_low(v[i].z) + bf16_high(v[i].z)) + (bf16_low(v[i].w) + bf16_high(v[i].w)));
        mean = row_sum<WIDE>(sum, lanes, smem_base() + 32) / (float)a.k;
        sum = 0;
    }
    LQ_UNROLL
    for (int i = 0; i < VECTORS; i++)
        if ((i * threads + thread) * 8 < a.k)
            sum = squares(v[i].w, mean, squares(v[i].z, mean, squares(v[i].y, mean, squares(v[i].x, mean, sum))));
    const float by = rsqrt_approx(row_sum<WIDE>(sum, lanes, smem_base()) / a.over + a.eps);
    if (!mine) return;
    LQ_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        const int column = (i * threads + thread) * 8;
        if (column >= a.k) continue;
        const uint4 near = EARLY ? g[EARLY ? i : 0][0] : gamma_of(a, gamma + column);
        const uint4 far = EARLY ? g[EARLY ? i : 0][1] : gamma_of(a, gamma + column + 4);
        const uint2 low = normed({v[i].x, v[i].y}, a, mean, by, near, gamma + column);
        const uint2 high = normed({v[i].z, v[i].w}, a, mean, by, far, gamma + column + 4);
        const uint4 y = {low.x, low.y, high.x, high.y};
        st16(a.y + (int64_t)at * a.y_stride + column, y);
        if (KEPT) sts16(smem_base() + LQ_ACTS_HEAD + column * 2, y);
    }
}

// Of a row of up to 256 columns the threads behind its last add zeros to its sums: it has the bits of those kernels
// that have several in a block.
template <int VECTORS> LQ_DEV void row_coded(const lq_rmsn_act_args &a) {
    row<VECTORS, true, true>(a.norm);
    __syncthreads();
    acts::coded<LQ_RMSN_THREADS>(a.quant, (int)blockIdx.x);
}
}
#endif
