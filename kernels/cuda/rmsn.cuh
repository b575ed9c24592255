// rmsn.cuh: the sum of x and residual, rounded to bf16, and its RMS norm. One block of 256 threads for each row, at any
// number of rows; the row stays in registers, 16 bytes at a time. Squares: a thread's in order of columns, lanes 16, 8,
// 4, 2, 1 apart, then the warps in order. So a row's bits depend on that row alone.
#ifndef LQ_RMSN_CUH
#define LQ_RMSN_CUH
#include "kernels/cuda/simt.h"
#include "kernels/cuda/rmsn.h"

namespace rmsn {
enum { WARPS = LQ_RMSN_THREADS / WARP };

// Two numbers of bf16 and two more, added and rounded; their squares go on to `sum`.
LQ_DEV uint32_t added(uint32_t x, uint32_t residual) {
    return bf16x2_of(bf16_low(x) + bf16_low(residual), bf16_high(x) + bf16_high(residual));
}

LQ_DEV float squares(uint32_t v, float sum) {
    sum = fmaf(bf16_low(v), bf16_low(v), sum);
    return fmaf(bf16_high(v), bf16_high(v), sum);
}

LQ_DEV uint32_t normed(uint32_t v, uint32_t gain, float by, float plus) {
    return bf16x2_of(bf16_low(v) * by * (bf16_low(gain) + plus), bf16_high(v) * by * (bf16_high(gain) + plus));
}

// The sum over the block, the same bits in each thread.
LQ_DEV float block_sum(float v, smem at) {
    for (int apart = WARP / 2; apart; apart /= 2) v += shfl_xor(v, apart);
    if (threadIdx.x % WARP == 0) sts4(at + threadIdx.x / WARP * 4, bits_of(v));
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < WARPS; i++) sum += float_of(lds4(at + i * 4));
    return sum;
}

// VECTORS of 8 columns a thread; 256 * 8 * VECTORS is at least k.
template <int VECTORS, bool RESIDUAL> LQ_DEV void row(const lq_rmsn_args &a) {
    pdl_trigger();
    const size_t from = (size_t)blockIdx.x * a.k;
    const int thread = (int)threadIdx.x;
    uint4 v[VECTORS];
    float sum = 0;
    pdl_wait();
    LQ_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        const int column = (i * LQ_RMSN_THREADS + thread) * 8;
        if (column >= a.k) break;
        v[i] = ldg16(a.x + from + column);
        if (RESIDUAL) {
            const uint4 r = ld16(a.residual + from + column);
            v[i] = {added(v[i].x, r.x), added(v[i].y, r.y), added(v[i].z, r.z), added(v[i].w, r.w)};
            st16(a.residual + from + column, v[i]);
        }
        sum = squares(v[i].w, squares(v[i].z, squares(v[i].y, squares(v[i].x, sum))));
    }
    const float by = rsqrt_approx(block_sum(sum, smem_base()) / (float)a.k + a.eps);
    LQ_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        const int column = (i * LQ_RMSN_THREADS + thread) * 8;
        if (column >= a.k) break;
        const uint4 g = ldg16(a.gain + column);
        st16(a.y + from + column, {normed(v[i].x, g.x, by, a.plus), normed(v[i].y, g.y, by, a.plus),
                                   normed(v[i].z, g.z, by, a.plus), normed(v[i].w, g.w, by, a.plus)});
    }
}
}
#endif
