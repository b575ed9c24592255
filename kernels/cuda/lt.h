// lt.h: what the CUDA backend asks of a library of products of bf16 and of e4m3, which works in the order of the
// driver's stream. Two answer: lt.c (cuBLASLt) and tests/cuda/lt_emu.c, whose machine is this one. Sums are f32,
// rounded once; of the same shape they have one order, which the number of rows may change.
#ifndef LQ_LT_H
#define LQ_LT_H
#include "kernels/cuda/gpu.h"

// y = x w^T, row-major, on the device. Rows begin at 16 bytes.
typedef struct lq_lt_product {
    const void *x, *w; // [m][x_stride] and [n][w_stride] of bf16, with scales of e4m3
    const float *x_scale, *w_scale; // [m] and [n] that a row's sums are times; NULL, both: none
    void *y;           // [m][y_stride] of bf16 or f32
    size_t x_stride, w_stride, y_stride;
    int m, n, k;
    bool f32;
} lq_lt_product;

typedef struct lq_lt lq_lt;
bool lq_lt_open(lq_gpu *g, lq_lt **out, lq_err *err); // false: such a library is not there
void lq_lt_close(lq_lt *l);
const char *lq_lt_name(const lq_lt *l); // with its version
// false: it has no way for such a product, and nothing was begun. How it goes is found once for each shape, and for
// numbers of rows up to the next power of two; `known`: only if it was found before, as within a recording.
bool lq_lt_multiply(lq_lt *l, const lq_lt_product *p, bool known);
#endif
