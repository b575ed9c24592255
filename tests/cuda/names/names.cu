// names.cu: a kernel that uses every name of simt.h, so that ptxas assembles each, and a GPU can be held against the
// emulated machine. One warp. What the words mean does not matter.
#include "kernels/cuda/simt.h"
#include "tests/cuda/names/names.h"

// A word of each lane, 32 further on each time.
struct sheet {
    uint32_t *at;
};

LQ_DEV void put(sheet &s, uint32_t a) {
    st4(s.at + threadIdx.x, a);
    s.at += 32;
}

LQ_DEV void put4(sheet &s, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    put(s, a);
    put(s, b);
    put(s, c);
    put(s, d);
}

LQ_DEV void of_memory(sheet &s, const uint32_t *from, smem mine, smem copies) {
    put4(s, ldg2(from), ldg4(from), ldg8(from).y, ldg16(from).w);
    put4(s, ldg1(from), (uint32_t)thread_again(), 0, 0);
    put4(s, ld2(from), ld4(from), ld8(from).x, ld16(from).z);
    cp_async16(copies, from, 16, l2_evict_first());
    cp_async_commit();
    cp_async16(copies + 512, from + 4, 12);
    cp_async_commit();
    cp_async_wait<1>();
    put(s, lds16(copies).x);
    cp_async_wait<0>();
    put(s, lds8(copies + 512 + 8).y);
    sts4(mine, ldg4(from));
    sts8(mine + 8, ldg8(from));
    put4(s, lds4(mine), lds8(mine + 8).y, 0, 0);
    st16(s.at + 4 * threadIdx.x, ldg16(from));
    st8(s.at + 128 + 2 * threadIdx.x, ldg8(from));
    st2((uint16_t *)(s.at + 192) + threadIdx.x, ldg2(from));
    s.at += 224;
}

LQ_DEV void of_warps(sheet &s, uint4 v, smem mine) {
    const uint32_t small = 0xbfffbfffu, a[4] = {v.x & small, v.y & small, v.z & small, v.w & small}; // bf16 below 2
    uint32_t r[4];
    float sums[4] = {1, 2, 3, 4};
    int32_t counts[4] = {1, 2, 3, 4};
    sts16(mine, v);
    sync_warp();
    ldmatrix_x4(r, mine);
    put4(s, r[0], r[1], r[2], r[3]);
    ldmatrix_x4_trans(r, mine);
    put4(s, r[0], r[1], r[2], r[3]);
    sync_warp();
    mma_bf16(sums, a, a[2], a[3], sums);
    put4(s, bits_of(sums[0]), bits_of(sums[1]), bits_of(sums[2]), bits_of(sums[3]));
    mma_s8(counts, r, v.x, v.y, counts);
    put4(s, (uint32_t)counts[0], (uint32_t)counts[1], (uint32_t)counts[2], (uint32_t)counts[3]);
    put4(s, shfl(v.x, 7), shfl_xor(v.x, 3), bits_of(shfl_xor(float_of(v.y), 16)), vote_ballot(v.x & 1));
    put4(s, vote_any(v.x & 2), vote_all(v.x & 4), 0, 0);
}

LQ_DEV void of_threads(sheet &s, uint4 v) {
    const uint32_t small = 0xbfffbfffu;
    const float x = float_of(v.x & 0x41ffffff), y = float_of(v.y & 0x41ffffff); // up to 32
    put4(s, bf16x2_fma(v.x & small, v.y & small, v.z & small), bf16x2_of(x, y), and_or(v.x, v.y, v.z), 0);
    put4(s, prmt(v.x, v.y, v.z & 0x7777), prmt(v.x, v.y, 0xba98), bits_of(f16_float(v.x & 0xbfff)),
         bits_of(mul_rn(x, y) + rcp_approx(x)));
    put4(s, bf16x2_fma(v.x & small, v.y & small, v.z & small), bf16x2_of(x, y), and_or(v.x, v.y, v.z),
         (uint32_t)bits_set(v.x));
    put4(s, prmt(v.x, v.y, v.z & 0x7777), prmt(v.x, v.y, 0xba98), bits_of(f16_float(v.x & 0xbfff)), 0);
    put4(s, bits_of(exp2_approx(x)), bits_of(rsqrt_approx(y + 1)), bits_of(bf16_low(v.x)), bits_of(bf16_high(v.x)));
}

LQ_KERNEL(lq_simt_names, 32, 1, lq_names_args) {
    const smem mine = smem_base() + 16 * threadIdx.x; // 512 bytes for ldmatrix, then twice 512 for copies
    const uint32_t *from = a.in + 8 * threadIdx.x;
    sheet s = {a.out};
    pdl_trigger();
    pdl_wait();
    of_memory(s, from, mine, mine + 512);
    of_warps(s, ldg16(from), mine);
    of_threads(s, ldg16(from));
    __threadfence();
    atomic_add(a.counter, 1);
    atomic_inc(a.counter + 1, 31);
    atomic_inc_ordered(a.counter + 1, 31);
    cluster_sync(); // of one block
    st8_cluster(mine + 512, 0, {threadIdx.x, 7});
    cluster_sync();
    put4(s, lds4(mine + 512), lds4(mine + 516), 0, 0);
    if (threadIdx.x == 0)
        while (ld_acquire(a.counter) != 32) {}
    sync_warp();
    if (threadIdx.x == 0) atomic_add(a.counter, (uint32_t)-32);
    __syncthreads();
}
