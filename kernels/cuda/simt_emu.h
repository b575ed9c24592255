// simt_emu.h: the names of simt.h on the emulated machine, and so what each of them means. tests/cuda/ is that machine;
// the functions of namespace emu below are all that device code calls of it. Here is no state: a name computes, or asks
// the machine.
#ifndef LQ_SIMT_EMU_H
#define LQ_SIMT_EMU_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
typedef uint32_t smem;

namespace emu {
struct thread {
    dim3 index, block, block_dim, grid_dim;
    unsigned char *shared; // of its block
};
extern thread *self; // who runs; NULL outside of a launch
enum access { READ, WRITE, READ_ONLY }; // READ_ONLY: of what nobody writes during the launch
enum warp_op { SHUFFLE, BALLOT, SYNC, LDMATRIX, LDMATRIX_TRANS, MMA_BF16, MMA_S8, ELECT };

// Each call remembers the place in the kernel that it returns to: a finding names it, a counter belongs to it.
void load(void *to, const void *p, unsigned bytes, access how); // one lane's part of one instruction
void store(void *p, const void *from, unsigned bytes);
void load_shared(void *to, smem a, unsigned bytes);
void store_shared(smem a, const void *from, unsigned bytes);
void copy_async(smem to, const void *from, unsigned bytes); // lands when it is waited for, not before
void copy_commit();
void copy_wait(int groups); // until at most so many groups are in flight
void collective(warp_op op, const void *in, unsigned in_bytes, void *out, unsigned out_bytes);
void barrier();
void cluster_barrier();
void store_cluster(smem a, unsigned rank, const void *from, unsigned bytes);
void fence();
uint32_t atomic(uint32_t *p, uint32_t v, bool wrap);
uint32_t acquire(const uint32_t *p);
void wait_for_grids();
}

// A kernel that is launched is a function that is given a pointer to its arguments.
#define LQ_KERNEL(name, threads, blocks_per_sm, args) \
    static void name##_of(const args &a); \
    extern "C" void name(const void *given) { name##_of(*(const args *)given); } \
    static void name##_of(const args &a)
#define LQ_UNROLL
#define LQ_UNROLL_4
#define LQ_ROLLED
#define LQ_DEV static inline __attribute__((always_inline))
#define LQ_METHOD inline __attribute__((always_inline)) // of a struct
#define __restrict__ __restrict
#define threadIdx (emu::self->index)
#define blockIdx (emu::self->block)
#define blockDim (emu::self->block_dim)
#define gridDim (emu::self->grid_dim)
LQ_DEV void __syncthreads() { emu::barrier(); }
LQ_DEV void __threadfence() { emu::fence(); }
LQ_DEV int thread_again() { return (int)threadIdx.x; }

// --- shared memory ---
LQ_DEV smem smem_base() { return 0; }

template <class T> LQ_DEV T emu_lds(smem a) {
    T v;
    emu::load_shared(&v, a, sizeof v);
    return v;
}

template <class T> LQ_DEV void emu_sts(smem a, T v) { emu::store_shared(a, &v, sizeof v); }
LQ_DEV uint32_t lds4(smem a) { return emu_lds<uint32_t>(a); }
LQ_DEV uint2 lds8(smem a) { return emu_lds<uint2>(a); }
LQ_DEV uint4 lds16(smem a) { return emu_lds<uint4>(a); }
LQ_DEV void sts4(smem a, uint32_t v) { emu_sts(a, v); }
LQ_DEV void sts8(smem a, uint2 v) { emu_sts(a, v); }
LQ_DEV void sts16(smem a, uint4 v) { emu_sts(a, v); }

// --- global memory ---
template <class T> LQ_DEV T emu_ld(const void *p, emu::access how) {
    T v;
    emu::load(&v, p, sizeof v, how);
    return v;
}

template <class T> LQ_DEV void emu_st(void *p, T v) { emu::store(p, &v, sizeof v); }
LQ_DEV uint32_t ldg1(const void *p) { return emu_ld<uint8_t>(p, emu::READ_ONLY); }
LQ_DEV uint32_t ldg2(const void *p) { return emu_ld<uint16_t>(p, emu::READ_ONLY); }
LQ_DEV uint32_t ldg4(const void *p) { return emu_ld<uint32_t>(p, emu::READ_ONLY); }
LQ_DEV uint2 ldg8(const void *p) { return emu_ld<uint2>(p, emu::READ_ONLY); }
LQ_DEV uint4 ldg16(const void *p) { return emu_ld<uint4>(p, emu::READ_ONLY); }
LQ_DEV uint32_t ld2(const void *p) { return emu_ld<uint16_t>(p, emu::READ); }
LQ_DEV uint32_t ld4(const void *p) { return emu_ld<uint32_t>(p, emu::READ); }
LQ_DEV uint2 ld8(const void *p) { return emu_ld<uint2>(p, emu::READ); }
LQ_DEV uint4 ld16(const void *p) { return emu_ld<uint4>(p, emu::READ); }
LQ_DEV void st2(void *p, uint32_t v) { emu_st(p, (uint16_t)v); }
LQ_DEV void st4(void *p, uint32_t v) { emu_st(p, v); }
LQ_DEV void st8(void *p, uint2 v) { emu_st(p, v); }
LQ_DEV void st16(void *p, uint4 v) { emu_st(p, v); }

// --- asynchronous copies: 16 bytes, of which `bytes` (0 to 16) are read and the rest is zero ---
typedef uint64_t l2_policy;
LQ_DEV l2_policy l2_evict_first() { return 0; }
LQ_DEV void cp_async16(smem to, const void *from, unsigned bytes) { emu::copy_async(to, from, bytes); }
LQ_DEV void cp_async16(smem to, const void *from, unsigned bytes, l2_policy) { emu::copy_async(to, from, bytes); }
LQ_DEV void cp_async_commit() { emu::copy_commit(); }
template <int N> LQ_DEV void cp_async_wait() { emu::copy_wait(N); }

// --- between blocks and kernels ---
LQ_DEV uint32_t atomic_add(uint32_t *p, uint32_t v) { return emu::atomic(p, v, false); }
LQ_DEV uint32_t atomic_inc(uint32_t *p, uint32_t last) { return emu::atomic(p, last, true); } // after `last` comes 0
// Blocks of a launch that says so are one cluster with those beside them in the second dimension, at work at the same
// time; `rank` counts them. All that are left meet in cluster_sync, behind which each knows what others wrote.
LQ_DEV void cluster_sync() { emu::cluster_barrier(); }
LQ_DEV void st8_cluster(smem a, uint32_t rank, uint2 v) { emu::store_cluster(a, rank, &v, sizeof v); }

// What its block wrote before is there for blocks that count on behind it, and what those before it wrote for its own.
LQ_DEV uint32_t atomic_inc_ordered(uint32_t *p, uint32_t last) {
    emu::fence();
    const uint32_t v = emu::atomic(p, last, true);
    emu::fence();
    return v;
}

LQ_DEV uint32_t ld_acquire(const uint32_t *p) { return emu::acquire(p); }
LQ_DEV void pdl_wait() { emu::wait_for_grids(); }
LQ_DEV void pdl_trigger() {}

// --- warps ---
template <class T> LQ_DEV T shfl(T v, int lane) {
    static_assert(sizeof(T) == 4, "a shuffle moves 32 bits");
    struct { T v; int lane; } in = {v, lane & 31};
    emu::collective(emu::SHUFFLE, &in, sizeof in, &v, sizeof v);
    return v;
}

template <class T> LQ_DEV T shfl_xor(T v, int mask) { return shfl(v, (int)(threadIdx.x & 31) ^ mask); }

LQ_DEV uint32_t vote_ballot(bool is) {
    uint32_t in = is, out;
    emu::collective(emu::BALLOT, &in, sizeof in, &out, sizeof out);
    return out;
}

LQ_DEV bool vote_any(bool is) { return vote_ballot(is) != 0; }
LQ_DEV bool vote_all(bool is) { return vote_ballot(is) == 0xffffffffu; }
LQ_DEV void sync_warp() { emu::collective(emu::SYNC, NULL, 0, NULL, 0); }

// Lane 8m + r names row r of matrix m, 16 bytes; lane l gets of matrix m row l/4, columns 2(l%4) and the next; trans:
// column l/4, rows 2(l%4) and the next.
LQ_DEV void ldmatrix_x4(uint32_t (&r)[4], smem row) { emu::collective(emu::LDMATRIX, &row, sizeof row, r, sizeof r); }
LQ_DEV void ldmatrix_x4_trans(uint32_t (&r)[4], smem row) {
    emu::collective(emu::LDMATRIX_TRANS, &row, sizeof row, r, sizeof r);
}

// d = a b + c: 16 x k times k x 8, k = 16 of bf16 or 32 of int8; fragments as the PTX ISA draws them.
LQ_DEV void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const float (&c)[4]) {
    struct { uint32_t a[4], b[2]; float c[4]; } in = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
    emu::collective(emu::MMA_BF16, &in, sizeof in, d, sizeof d);
}

LQ_DEV void mma_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const int32_t (&c)[4]) {
    struct { uint32_t a[4], b[2]; int32_t c[4]; } in = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
    emu::collective(emu::MMA_S8, &in, sizeof in, d, sizeof d);
}

// --- arithmetic of one thread ---
LQ_DEV float emu_float(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

// To nearest, ties to even; every NaN becomes the one that PTX names.
LQ_DEV uint32_t emu_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

// a * b + c of each half. The product of two bf16 and its sum with a third are rounded twice here (f32, bf16), once
// there: equal wherever the sum is exact in f32, as with the integers that weights are made of.
LQ_DEV uint32_t bf16x2_fma(uint32_t a, uint32_t b, uint32_t c) {
    const float low = __builtin_fmaf(emu_float(a << 16), emu_float(b << 16), emu_float(c << 16));
    const uint32_t top = 0xffff0000u;
    return emu_bf16(low) | emu_bf16(__builtin_fmaf(emu_float(a & top), emu_float(b & top), emu_float(c & top))) << 16;
}

LQ_DEV uint32_t bf16x2_of(float low, float high) { return emu_bf16(low) | emu_bf16(high) << 16; }

LQ_DEV float f16_float(uint32_t bits) {
    const uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return emu_float(sign | 0x7f800000 | fraction << 13);
    if (exponent) return emu_float(sign | (exponent + 112) << 23 | fraction << 13);
    return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
}

LQ_DEV int bits_set(uint32_t v) { return __builtin_popcount(v); }
LQ_DEV uint32_t and_or(uint32_t a, uint32_t mask, uint32_t with) { return (a & mask) | with; }

// Byte i of the result is byte select[4i .. 4i+2] of b:a; with bit 4i+3 eight times the sign of that byte.
LQ_DEV uint32_t prmt(uint32_t a, uint32_t b, uint32_t select) {
    const uint64_t from = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = select >> 4 * i, byte = (uint32_t)(from >> 8 * (s & 7)) & 255;
        d |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
    }
    return d;
}

LQ_DEV float mul_rn(float a, float b) { return a * b; }

// Exact to half an ulp here; there ex2.approx.ftz is within 2 ulp (results and arguments below 2^-126 are 0),
// rcp.approx.ftz within 1 and rsqrt.approx within a relative 2^-22.9.
LQ_DEV float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x; } // .ftz
LQ_DEV float exp2_approx(float x) { return flushed((float)__builtin_exp2((double)x)); }
LQ_DEV float rcp_approx(float x) { return flushed(1.0f / flushed(x)); }
LQ_DEV float rsqrt_approx(float x) { return (float)(1.0 / __builtin_sqrt((double)x)); }
#endif
