// simt.h: one source, two machines. Device code uses the names of this header, plain C++ and pointers: under nvcc they
// are CUDA and single PTX instructions (simt_ptx.h and simt_ptx_90a.h, the only files with asm), under g++ calls of an
// emulated machine that checks them (simt_emu.h, simt_emu_90a.h). Here stands what both machines share; what is not a
// name of both refuses to compile on one of them.
//
// A kernel is LQ_KERNEL(name, threads, blocks on a multiprocessor, type of its arguments) { ... a ... }.
//
// Rules for device code: shared memory is the one dynamic array and is addressed by `smem`, 32 bits from the block's
// first byte as the machine sees it; vectors of 8 and 16 bytes go through ld*, st*, lds* and sts*; warp-level names
// want all 32 lanes; a kernel calls pdl_wait before it touches anything but weights and which rows there are (lq_rows):
// no kernel writes either.
#ifndef LQ_SIMT_H
#define LQ_SIMT_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__CUDACC__)
#include "kernels/cuda/simt_ptx_90a.h"
#else
#include "kernels/cuda/simt_emu_90a.h"
#endif

enum { WARP = 32 };

LQ_DEV uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

LQ_DEV float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

// The two numbers of bf16 in a word; both are exact in f32.
LQ_DEV float bf16_low(uint32_t pair) { return float_of(pair << 16); }
LQ_DEV float bf16_high(uint32_t pair) { return float_of(pair & 0xffff0000u); }

// Of sm_90a: until the phase of this parity has ended.
LQ_DEV void mbar_wait(smem bar, uint32_t parity) {
    while (!mbar_try_wait(bar, parity)) {}
}

// A tile in shared memory as wgmma_bf16 takes it: rows of 64 numbers of bf16, 128 bytes, eight of them at 1024; the
// 16-byte chunks of row r stand at chunk ^ (r & 7). 16 columns further on are two more. Bits 0 to 13: its address in 16
// bytes; 16 to 29: 1, unused; 32 to 45: from eight rows to the next; 62, 63: chunks are turned within 128 bytes.
LQ_DEV uint64_t tile_rows128(smem at) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 / 16) << 32 | (uint64_t)1 << 16 | (at & 0x3ffff) / 16;
}
#endif
