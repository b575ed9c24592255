// simt_emu_90a.h: the names of simt.h that only sm_90a has, on the emulated machine: mbarriers, bulk copies, products
// of warpgroups, barriers of some threads. What each of them means stands here and in tests/cuda/emu_hopper.cpp.
#ifndef LQ_SIMT_EMU_90A_H
#define LQ_SIMT_EMU_90A_H
#include "kernels/cuda/simt_emu.h"

namespace emu {
void mbarrier_init(smem bar, uint32_t arrivals);
void mbarrier_arrive(smem bar, uint32_t bytes);
bool mbarrier_waited(smem bar, uint32_t parity);
void proxy_fence();
void copy_bulk(smem to, const void *from, unsigned bytes, smem bar);
void product_begun(float *d, unsigned numbers, const uint32_t *a, uint64_t b, bool add);
void product_fence();
void product_commit();
void product_wait(unsigned groups); // until at most so many groups are under way
void barrier_of(unsigned id, unsigned threads);
void registers_set(unsigned n);
}
#define LQ_ON_90A(...) __VA_ARGS__ // what other architectures compile nothing of

// An mbarrier is 8 bytes. Its phase ends when `arrivals` have come and all bytes that they promised.
LQ_DEV void mbar_init(smem bar, uint32_t arrivals) { emu::mbarrier_init(bar, arrivals); }
LQ_DEV void mbar_arrive(smem bar) { emu::mbarrier_arrive(bar, 0); }
LQ_DEV void mbar_arrive_expect(smem bar, uint32_t bytes) { emu::mbarrier_arrive(bar, bytes); }
// Whether the phase of this parity has ended; waits for a while.
LQ_DEV bool mbar_try_wait(smem bar, uint32_t parity) { return emu::mbarrier_waited(bar, parity); }
// Behind stores to shared memory (and cp.async that was waited for), before others are told: then products and bulk
// copies see them.
LQ_DEV void fence_proxy_async() { emu::proxy_fence(); }
// A multiple of 16 bytes, both at 16; they count for the barrier when they are there.
LQ_DEV void copy_bulk(smem to, const void *from, uint32_t bytes, smem bar, l2_policy) {
    emu::copy_bulk(to, from, bytes, bar);
}

// d = a b (+ d if `add`), bf16: of a warpgroup 64 rows, 16 of each warp (`a` as of mma_bf16), times 16 x 128 whose
// columns are rows of the tile b (tile_rows128); d as of mma_bf16, eight columns after eight. d and a may not be
// touched until it has been waited for, and whoever did touch them fences before the next.
LQ_DEV void wgmma_bf16(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
    emu::product_begun(d, 64, a, b, add);
}

LQ_DEV void wgmma_fence(uint32_t (&)[4]) { emu::product_fence(); } // and these registers were written before it
LQ_DEV void wgmma_fence(uint32_t (&)[4], float (&)[64]) { emu::product_fence(); }
LQ_DEV void wgmma_commit() { emu::product_commit(); }
template <int N> LQ_DEV void wgmma_wait() { emu::product_wait(N); }
template <int N> LQ_DEV void wgmma_wait(float (&)[64]) { emu::product_wait(N); } // and they are touched behind it

// Barrier `id`, 1 to 15, of so many threads, whole warps.
LQ_DEV void sync_named(int id, int threads) { emu::barrier_of((unsigned)id, (unsigned)threads); }
// Each warp of a warpgroup: how many registers a thread has from here on, fewer or more than before.
template <int N> LQ_DEV void registers_down() { emu::registers_set(N); }
template <int N> LQ_DEV void registers_up() { emu::registers_set(N); }

LQ_DEV bool elect_one() { // true in one lane, whichever
    uint32_t out;
    emu::collective(emu::ELECT, NULL, 0, &out, sizeof out);
    return out != 0;
}
#endif
