// w4l.h: products of bf16 activations with packed weights for many tokens, on GPUs of sm_90a alone, as the host and the
// kernels see them: kernels, shared memory. Plain C. Arguments, and the order of sums, are those of w4s.h; w4l_pick.h
// says when they are taken.
#ifndef LQ_W4L_H
#define LQ_W4L_H
#include "kernels/cuda/w4s.h"

enum {
    LQ_W4L_THREADS = 384, // a warpgroup that brings, two that multiply
    LQ_W4L_TOKENS = 128,
    LQ_W4L_ROWS = 128,    // of weights: a stripe for each of the two
    LQ_W4L_COLUMNS = 64,  // of a stage
    LQ_W4L_TILE = LQ_W4L_TOKENS * LQ_W4L_COLUMNS * 2,
    LQ_W4L_KEPT = LQ_W4L_ROWS * LQ_W4L_TOKENS * 4 // bytes of sums that are laid aside
};
#define LQ_W4L_STAGES(bits) ((bits) == 4 ? 4 : 3)
#define LQ_W4L_STAGE(bits) (LQ_W4L_TILE + LQ_W4L_ROWS * LQ_W4L_COLUMNS / 8 * (bits))
#define LQ_W4L_SHARED(bits) (LQ_W4L_STAGES(bits) * LQ_W4L_STAGE(bits) + 2 * LQ_W4L_KEPT + 16 * LQ_W4L_STAGES(bits))

// The kernels: name, kind of codes, their type in w4s_codes.cuh, bits, columns that share a scale. Those of w4s of the
// same kind, bits and group have the same bits.
#define LQ_W4L_KERNELS(K)                                  \
    K(lq_w4l_int4_g64, LQ_W4S_INTS, ints<4>, 4, 64)        \
    K(lq_w4l_int4_g128, LQ_W4S_INTS, ints<4>, 4, 128)      \
    K(lq_w4l_int8_g32, LQ_W4S_INTS, ints<8>, 8, 32)        \
    K(lq_w4l_int8_g128, LQ_W4S_INTS, ints<8>, 8, 128)      \
    K(lq_w4l_table_g16, LQ_W4S_SIXTEEN, sixteen, 4, 16)    \
    K(lq_w4l_table_g32, LQ_W4S_SIXTEEN, sixteen, 4, 32)    \
    K(lq_w4l_fp8_g32, LQ_W4S_FLOATS, floats, 8, 32)        \
    K(lq_w4l_fp8_g128, LQ_W4S_FLOATS, floats, 8, 128)
#endif
