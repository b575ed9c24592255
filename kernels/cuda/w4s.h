// w4s.h: the product of a few tokens with weights of 4 bits, as the host sees it: arguments, grid, shared memory,
// workspace. Plain C, for the host that launches and for the kernel alike. Weights are in layout F16x64
// (docs/KERNELS.md).
#ifndef LQ_W4S_H
#define LQ_W4S_H
#include <stddef.h>
#include <stdint.h>

enum {
    LQ_W4S_TOKENS = 8,
    LQ_W4S_THREADS = 256,
    LQ_W4S_STRIPE = 64, // rows of weights that a block of threads makes
    LQ_W4S_STEP = 256,  // columns between two barriers
    LQ_W4S_STAGES = 4,
    LQ_W4S_STAGE = LQ_W4S_STRIPE * LQ_W4S_STEP / 2 + LQ_W4S_TOKENS * LQ_W4S_STEP * 2,
    LQ_W4S_SHARED = LQ_W4S_STAGES * LQ_W4S_STAGE
};

typedef struct lq_w4s_args {
    const void *w;         // [ceil n/64][ceil k/64][4][512 bytes]
    const void *scale;     // [groups][ceil n/64][64] of bf16 or f16, in the order of F16x64
    const uint32_t *zero;  // [groups][ceil n/64][8]; NULL for kernels of symmetric weights
    const uint16_t *bias;  // [n] of bf16, or NULL
    const uint16_t *x;     // [m][x_stride] of bf16; rows begin at 16 bytes
    uint16_t *y;           // [m][y_stride] of bf16; rows begin at 4 bytes
    float *parts;          // [cuts][ceil n/64][8][64]; NULL if k is not cut
    uint32_t *arrived;     // [ceil n/64], zero before and after; NULL if k is not cut
    int64_t x_stride, y_stride;
    int m, n, k;           // m at most LQ_W4S_TOKENS
    int cut;               // columns of one cut, a multiple of LQ_W4S_STEP; at least k: one cut
} lq_w4s_args;

static inline int lq_w4s_stripes(int n) { return (n + LQ_W4S_STRIPE - 1) / LQ_W4S_STRIPE; }
static inline int lq_w4s_cuts(int k, int cut) { return k <= cut ? 1 : (k + cut - 1) / cut; }

// Where k is cut: never by m, so that a row's bits do not depend on its batch. Multiples of 1024, until there are about
// two blocks for each of `sms` multiprocessors; `sms` is a constant of the architecture, not of the machine.
static inline int lq_w4s_cut(int n, int k, int sms) {
    const int most = (k + 1023) / 1024, want = (2 * sms + lq_w4s_stripes(n) - 1) / lq_w4s_stripes(n);
    const int cuts = want < most ? want : most;
    return (most + cuts - 1) / cuts * 1024;
}
#endif
