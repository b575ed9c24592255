// solver.h: what the CUDA backend asks of a library of dense matrices, which works in the order of the driver's stream.
// Two answer: solver.c (cuBLAS and cuSOLVER) and tests/cuda/solver_emu.c, whose machine is this one. Matrices are
// row-major and on the device. What a call could not begin is false; what it did later the driver's lq_gpu_sync says.
#ifndef LQ_SOLVER_H
#define LQ_SOLVER_H
#include "kernels/cuda/gpu.h"

typedef struct lq_solver lq_solver;
bool lq_solver_open(lq_gpu *g, lq_solver **out, lq_err *err); // false: such a library is not there
void lq_solver_close(lq_solver *s);
const char *lq_solver_name(const lq_solver *s); // with its version

// c[m][n] = x^T y in f32, of x [rows][m] and y [rows][n], both of f32 or (half) of bf16; y NULL: it is x, and no more
// than the upper half is made for sure.
typedef struct lq_solver_product {
    const void *x, *y;
    bool half;
    size_t x_stride, y_stride;
    int rows, m, n;
    float *c;
} lq_solver_product;
bool lq_solver_multiply(lq_solver *s, const lq_solver_product *p, lq_err *err);

// y[rows][m] = x h^T in f32, of x [rows][k] and h [m][k].
bool lq_solver_apply(lq_solver *s, const float *x, size_t x_stride, int rows, const float *h, int m, int k, float *y,
                     lq_err *err);

// Of a [n][n] the lower half, symmetric positive definite: L^-1 of a = L L^T; the upper half is left. info [2], on the
// device: 0 where it has a factor, and where that has an inverse.
bool lq_solver_invert(lq_solver *s, double *a, int n, int *info, lq_err *err);
// b[n][cols] = u b, of an upper u [n][n]; turned: u^T b.
bool lq_solver_triangle(lq_solver *s, const double *u, int n, bool turned, double *b, int cols, lq_err *err);
#endif
