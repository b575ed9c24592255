// simt_ptx_90a.h: the names of simt.h that only sm_90a has: one PTX instruction each, and nothing where something else
// is compiled. What they mean stands in simt_emu_90a.h.
#ifndef LQ_SIMT_PTX_90A_H
#define LQ_SIMT_PTX_90A_H
#include "kernels/cuda/simt_ptx.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define LQ_ON_90A(...) __VA_ARGS__
#else
#define LQ_ON_90A(...)
#endif

// --- mbarriers and bulk copies ---
LQ_DEV void mbar_init(smem bar, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

LQ_DEV void mbar_arrive(smem bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

LQ_DEV void mbar_arrive_expect(smem bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

LQ_DEV bool mbar_try_wait(smem bar, uint32_t parity) {
    uint32_t over;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(over) : "r"(bar), "r"(parity) : "memory");
    return over != 0;
}

LQ_DEV void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

LQ_DEV void copy_bulk(smem to, const void *from, uint32_t bytes, smem bar, l2_policy policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}

// --- warpgroups ---
#define LQ_EIGHT(d, i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define LQ_SIXTY_FOUR(d) \
    LQ_EIGHT(d, 0), LQ_EIGHT(d, 8), LQ_EIGHT(d, 16), LQ_EIGHT(d, 24), LQ_EIGHT(d, 32), LQ_EIGHT(d, 40), LQ_EIGHT(d, 48), \
        LQ_EIGHT(d, 56)

LQ_DEV void wgmma_bf16(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
        : LQ_SIXTY_FOUR(d)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add)
        : "memory");
}

LQ_DEV void wgmma_fence(uint32_t (&a)[4]) {
    asm volatile("wgmma.fence.sync.aligned;" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

LQ_DEV void wgmma_fence(uint32_t (&a)[4], float (&d)[64]) {
    asm volatile("wgmma.fence.sync.aligned;"
                 : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), LQ_SIXTY_FOUR(d)::"memory");
}

LQ_DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> LQ_DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> LQ_DEV void wgmma_wait(float (&d)[64]) {
    asm volatile("wgmma.wait_group.sync.aligned %64;" : LQ_SIXTY_FOUR(d) : "n"(N) : "memory");
}

LQ_DEV void sync_named(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int N> LQ_DEV void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> LQ_DEV void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

LQ_DEV bool elect_one() {
    uint32_t is;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(is)::"memory");
    return is != 0;
}
#endif
