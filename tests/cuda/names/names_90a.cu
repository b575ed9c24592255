// names_90a.cu: as names.cu, the names that only sm_90a has. One warpgroup.
#include "kernels/cuda/simt.h"
#include "tests/cuda/names/names.h"

namespace names {
// 128 x 64 numbers of bf16 below 2 for a tile, then 1 KiB that a bulk copy brings. A template, so that nothing of it is
// made where LQ_ON_90A leaves it out.
template <int THREADS> LQ_DEV void of_warpgroup(const lq_names_90a_args &a) {
    const int t = (int)threadIdx.x;
    const smem tile = smem_base(), copied = tile + 16384, bar = copied + 1024;
    const uint32_t small = 0xbfffbfffu;
    uint32_t *out = a.out + t, r[4];
    float d[64];
    registers_up<240>();
    if (t == 0) {
        mbar_init(bar, 5);
        fence_proxy_async();
    }
    __syncthreads();
    if (t < 32 && elect_one()) {
        mbar_arrive_expect(bar, 1024);
        copy_bulk(copied, a.in, 1024, bar, l2_evict_first());
    }
    for (int i = 0; i < 8; i++) { // row t, chunk i
        const uint4 v = ldg16(a.in + 32 * t + 4 * i);
        sts16(tile + 128 * t + (i ^ t % 8) * 16, {v.x & small, v.y & small, v.z & small, v.w & small});
    }
    fence_proxy_async();
    sync_warp();
    if (t % WARP == 0) mbar_arrive(bar);
    mbar_wait(bar, 0);
    const uint2 v = lds8(copied + 8 * t);
    st4(out, v.x);
    st4(out + 128, v.y);
    for (int i = 0; i < 4; i++) r[i] = ldg4(a.in + 4096 + 4 * t + i) & small;
    LQ_UNROLL
    for (int i = 0; i < 64; i++) d[i] = (float)(i - t);
    wgmma_fence(r, d);
    wgmma_bf16(d, r, tile_rows128(tile), true);
    wgmma_bf16(d, r, tile_rows128(tile) + 2, true);
    wgmma_commit();
    wgmma_wait<0>(d);
    LQ_UNROLL
    for (int i = 0; i < 64; i++) st4(out + 128 * (i + 2), bits_of(d[i]));
    wgmma_fence(r);
    wgmma_bf16(d, r, tile_rows128(tile) + 4, a.out == NULL);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_wait<0>(d);
    st4(out + 66 * 128, bits_of(d[0]));
    st4(out + 67 * 128, bits_of(d[63]));
    sync_named(1, THREADS);
    registers_down<200>();
}
}

LQ_KERNEL(lq_simt_names_90a, 128, 1, lq_names_90a_args) {
    pdl_trigger();
    pdl_wait();
    LQ_ON_90A(names::of_warpgroup<128>(a);)
}
