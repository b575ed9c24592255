// dq.h: weights as rows of bf16, and scales of rows as f32, for products that a library makes (lt.h), as the host and
// the kernels see it: arguments, grid, shared memory. Plain C. What they take is what w4s_pick.h takes, where k % 8 ==
// 0.
// A number is bf16(f32(s) * (q - z)), of a table bf16(s * f32 of the table): rounded to f32 where s is not short, then
// to bf16.
#ifndef LQ_DQ_H
#define LQ_DQ_H
#include "formats/block.h"
#include "kernels/cuda/w4s.h"

// A block of threads makes 64 rows x 256 columns: a warp 16 x 128, by tiles of 64 columns in shared memory.
enum { LQ_DQ_THREADS = 256, LQ_DQ_STRIPE = 64, LQ_DQ_COLUMNS = 256, LQ_DQ_TILE = 16 * 128, LQ_DQ_TABLE = 64 };
#define LQ_DQ_WARP(bits) (256 * (bits) + LQ_DQ_TILE + LQ_DQ_TABLE)
#define LQ_DQ_SHARED(bits) (LQ_DQ_THREADS / 32 * LQ_DQ_WARP(bits))

// The kernels: name, kind of codes, their type in w4s_codes.cuh, bits.
#define LQ_DQ_KERNELS(K)                                                                     \
    K(lq_dq_int2, LQ_W4S_INTS, ints<2>, 2) K(lq_dq_int3, LQ_W4S_INTS, ints<3>, 3)            \
    K(lq_dq_int4, LQ_W4S_INTS, ints<4>, 4) K(lq_dq_int5, LQ_W4S_INTS, ints<5>, 5)            \
    K(lq_dq_int6, LQ_W4S_INTS, ints<6>, 6) K(lq_dq_int8, LQ_W4S_INTS, ints<8>, 8)            \
    K(lq_dq_table, LQ_W4S_SIXTEEN, sixteen, 4) K(lq_dq_fp8, LQ_W4S_FLOATS, floats, 8)

typedef struct lq_dq_args {
    lq_w4s_matrix w;       // the whole matrix
    uint16_t *to;          // [rows][k] from 16 bytes on: rows first .. of the matrix
    int n, k, first, rows; // first: a multiple of LQ_DQ_STRIPE
    int step_shift, every; // step of 16 columns >> this is its group, which begins where it has none of these bits
    int share_shift, groups, narrow; // as in w4s.h
} lq_dq_args;

// Rows of f16.
typedef struct lq_dq_f16_args {
    const uint16_t *w;
    uint16_t *to;
    int64_t numbers; // a multiple of 8
} lq_dq_f16_args;

// y += bias, after a product that knows none.
typedef struct lq_dq_bias_args {
    void *y;           // [m][stride] of bf16 or f32, rows begin at 16 bytes
    const float *bias; // [n] from 16 bytes on
    int64_t stride;
    int m, n, f32;     // n % 8 == 0
} lq_dq_bias_args;

// So many columns, 16 times a power of two, share a scale; 0: all do.
static inline void lq_dq_grouped(lq_dq_args *a, int columns) {
    a->step_shift = 0;
    while (a->step_shift < 30 && (!columns || (int64_t)16 << a->step_shift < columns)) a->step_shift++;
    a->every = (1 << a->step_shift) - 1;
}

// The scale of each row of a weight that has one for a row, or for several, as f32.
typedef struct lq_dq_scales_args { lq_weight w; float *to; /* [n] */ } lq_dq_scales_args;

static inline unsigned lq_dq_blocks(int64_t numbers) { // of the kernels of f16 and bias: 8 numbers a thread
    return (unsigned)((numbers / 8 + LQ_DQ_THREADS - 1) / LQ_DQ_THREADS);
}
#endif
