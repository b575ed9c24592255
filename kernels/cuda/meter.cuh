// meter.cuh: the plainest loops: one reads memory and keeps the exclusive or of its words, two keep tensor cores at
// work with numbers that stay in registers. What they leave shows that nothing was left out.
#ifndef LQ_CUDA_METER_CUH
#define LQ_CUDA_METER_CUH
#include "kernels/cuda/meter.h"
#include "kernels/cuda/simt.h"

namespace meter {
LQ_DEV uint32_t folded(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

LQ_DEV void left(const lq_meter_args &a, uint32_t v) {
    const int warp = (int)(blockIdx.x * (LQ_METER_THREADS / WARP) + threadIdx.x / WARP);
    for (int apart = WARP / 2; apart; apart /= 2) v ^= shfl_xor(v, apart);
    if (threadIdx.x % WARP == 0) st4(a.out + warp, v);
}

// One launch reads all pieces, as what a launch costs is no part of a read.
LQ_DEV void read(const lq_meter_args &a) {
    uint32_t v = 0;
    pdl_trigger();
    pdl_wait();
    for (int c = (int)blockIdx.x; c < a.count; c += (int)gridDim.x) {
        const uint4 *p = (const uint4 *)a.pieces[c].p;
        const size_t vectors = a.pieces[c].vectors;
        uint4 of[LQ_METER_LOADS];
        LQ_UNROLL
        for (int j = 0; j < LQ_METER_LOADS; j++) {
            const size_t i = (size_t)j * LQ_METER_THREADS + threadIdx.x;
            of[j] = i < vectors ? ldg16(p + i) : uint4{0, 0, 0, 0};
        }
        LQ_UNROLL
        for (int j = 0; j < LQ_METER_LOADS; j++) v ^= folded(of[j]);
    }
    left(a, v);
}

// Ones times ones: each multiply-add of tiles adds its depth to every sum.
LQ_DEV void multiply_bf16(const lq_meter_args &a) {
    const uint32_t one = 0x3f803f80u, ones[4] = {one, one, one, one};
    float sum[LQ_METER_MMAS][4] = {};
    pdl_trigger();
    pdl_wait();
    for (int i = 0; i < a.loops; i++)
        LQ_UNROLL
        for (int j = 0; j < LQ_METER_MMAS; j++) mma_bf16(sum[j], ones, one, one, sum[j]);
    float all = 0;
    LQ_UNROLL
    for (int j = 0; j < LQ_METER_MMAS; j++) all += sum[j][0] + sum[j][1] + sum[j][2] + sum[j][3];
    left(a, threadIdx.x % WARP ? 0 : bits_of(all));
}

LQ_DEV void multiply_s8(const lq_meter_args &a) {
    const uint32_t one = 0x01010101u, ones[4] = {one, one, one, one};
    int32_t sum[LQ_METER_MMAS][4] = {};
    pdl_trigger();
    pdl_wait();
    for (int i = 0; i < a.loops; i++)
        LQ_UNROLL
        for (int j = 0; j < LQ_METER_MMAS; j++) mma_s8(sum[j], ones, one, one, sum[j]);
    int32_t all = 0;
    LQ_UNROLL
    for (int j = 0; j < LQ_METER_MMAS; j++) all += sum[j][0] + sum[j][1] + sum[j][2] + sum[j][3];
    left(a, threadIdx.x % WARP ? 0 : (uint32_t)all);
}
}
#endif
