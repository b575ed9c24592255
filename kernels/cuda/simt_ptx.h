// simt_ptx.h: the names of simt.h on a GPU, sm_80 and later: one PTX instruction each. The only file with asm, but
// for what sm_90a alone has. No name here has a meaning of its own: what it means stands in simt_emu.h, which computes
// it.
#ifndef LQ_SIMT_PTX_H
#define LQ_SIMT_PTX_H
#include <cuda_runtime.h>

#ifdef LQ_CHECKED // by tests on a GPU: the name is a function that launches the kernel with the arguments it is given
extern "C" void lq_checked_launch(const void *kernel, const void *args);
#define LQ_KERNEL(name, threads, blocks_per_sm, args) \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name##_gpu(const args a); \
    extern "C" void name(const void *given) { lq_checked_launch((const void *)name##_gpu, given); } \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name##_gpu(const args a)
#else
#define LQ_KERNEL(name, threads, blocks_per_sm, args) \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name(const args a)
#endif
#define LQ_UNROLL _Pragma("unroll")
#define LQ_UNROLL_4 _Pragma("unroll 4")
#define LQ_ROLLED _Pragma("unroll 1")
#define LQ_DEV static __device__ __forceinline__
#define LQ_METHOD __device__ __forceinline__ // of a struct

// threadIdx.x once more: what comes of it needs no register in between.
LQ_DEV int thread_again() {
    int i;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(i));
    return i;
}

// --- shared memory ---
typedef uint32_t smem;

LQ_DEV smem smem_base() {
    extern __shared__ __align__(1024) unsigned char lq_smem[];
    return (smem)__cvta_generic_to_shared(lq_smem);
}

LQ_DEV uint32_t lds4(smem a) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a) : "memory");
    return v;
}

LQ_DEV uint2 lds8(smem a) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a) : "memory");
    return v;
}

LQ_DEV uint4 lds16(smem a) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(a)
                 : "memory");
    return v;
}

LQ_DEV void sts4(smem a, uint32_t v) { asm volatile("st.shared.u32 [%0], %1;" ::"r"(a), "r"(v) : "memory"); }
LQ_DEV void sts8(smem a, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(a), "r"(v.x), "r"(v.y) : "memory");
}

LQ_DEV void sts16(smem a, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// --- global memory: ldg* may go through the read-only path, so nobody writes there during the launch ---
LQ_DEV uint32_t ldg1(const void *p) { return __ldg((const unsigned char *)p); }
LQ_DEV uint32_t ldg2(const void *p) { return __ldg((const unsigned short *)p); }
LQ_DEV uint32_t ldg4(const void *p) { return __ldg((const unsigned int *)p); }
LQ_DEV uint2 ldg8(const void *p) { return __ldg((const uint2 *)p); }
LQ_DEV uint4 ldg16(const void *p) { return __ldg((const uint4 *)p); }
LQ_DEV uint32_t ld2(const void *p) { return *(const unsigned short *)p; }
LQ_DEV uint32_t ld4(const void *p) { return *(const uint32_t *)p; }
LQ_DEV uint2 ld8(const void *p) { return *(const uint2 *)p; }
LQ_DEV uint4 ld16(const void *p) { return *(const uint4 *)p; }
LQ_DEV void st2(void *p, uint32_t v) { *(unsigned short *)p = (unsigned short)v; }
LQ_DEV void st4(void *p, uint32_t v) { *(uint32_t *)p = v; }
LQ_DEV void st8(void *p, uint2 v) { *(uint2 *)p = v; }
LQ_DEV void st16(void *p, uint4 v) { *(uint4 *)p = v; }

// --- asynchronous copies to shared memory ---
typedef uint64_t l2_policy;

LQ_DEV l2_policy l2_evict_first() {
    l2_policy p;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}

LQ_DEV void cp_async16(smem to, const void *from, unsigned bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

LQ_DEV void cp_async16(smem to, const void *from, unsigned bytes, l2_policy policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(bytes), "l"(policy)
                 : "memory");
}

LQ_DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> LQ_DEV void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// --- between blocks and kernels; __syncthreads and __threadfence are CUDA's ---
LQ_DEV uint32_t atomic_add(uint32_t *p, uint32_t v) { return atomicAdd(p, v); }
LQ_DEV uint32_t atomic_inc(uint32_t *p, uint32_t last) { return atomicInc(p, last); }
LQ_DEV void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

LQ_DEV void st8_cluster(smem a, uint32_t rank, uint2 v) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .u32 at;\nmapa.shared::cluster.u32 at, %0, %1;\nst.shared::cluster.v2.u32 [at], {%2, %3};\n}"
                 ::"r"(a), "r"(rank), "r"(v.x), "r"(v.y) : "memory");
#endif
}

LQ_DEV uint32_t atomic_inc_ordered(uint32_t *p, uint32_t last) {
    uint32_t v;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(v) : "l"(p), "r"(last) : "memory");
    return v;
}

LQ_DEV uint32_t ld_acquire(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

LQ_DEV void pdl_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

LQ_DEV void pdl_trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- warps ---
template <class T> LQ_DEV T shfl_xor(T v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
template <class T> LQ_DEV T shfl(T v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
LQ_DEV uint32_t vote_ballot(bool is) { return __ballot_sync(0xffffffffu, is); }
LQ_DEV bool vote_any(bool is) { return __any_sync(0xffffffffu, is); }
LQ_DEV bool vote_all(bool is) { return __all_sync(0xffffffffu, is); }
LQ_DEV void sync_warp() { __syncwarp(); }

LQ_DEV void ldmatrix_x4(uint32_t (&r)[4], smem row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

LQ_DEV void ldmatrix_x4_trans(uint32_t (&r)[4], smem row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

LQ_DEV void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

LQ_DEV void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const int32_t (&c)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

// --- arithmetic of one thread ---
LQ_DEV uint32_t bf16x2_fma(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

LQ_DEV uint32_t bf16x2_of(float low, float high) {
    uint32_t d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

LQ_DEV float f16_float(uint32_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
    return x;
}

LQ_DEV uint32_t and_or(uint32_t a, uint32_t mask, uint32_t with) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(mask), "r"(with));
    return d;
}

LQ_DEV int bits_set(uint32_t v) { return __popc(v); }

LQ_DEV uint32_t prmt(uint32_t a, uint32_t b, uint32_t select) {
    uint32_t d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(select));
    return d;
}

LQ_DEV float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A product that no compiler fuses with a sum.
LQ_DEV float mul_rn(float a, float b) { return __fmul_rn(a, b); }

LQ_DEV float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

LQ_DEV float rsqrt_approx(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif
