// solve.h: the kernels around what a library solves (kernels/cuda/solve.c), and what columns come to.
#ifndef LQ_PLAIN_SOLVE_H
#define LQ_PLAIN_SOLVE_H
#include "kernels/cuda/gpu.h"
#include "kernels/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

// h += from, or of the upper half alone; with turn: all n * n numbers of h, in reverse order.
typedef struct lq_plain_matrix {
    double *h;
    const float *from;
    int64_t m, n;
    bool half;   // add: the upper half. turn: numbers below the diagonal count as 0
    int *info;   // [3] turn: 0 before; check: [2] is 1 where a number of the diagonal is none, or 0
} lq_plain_matrix;

#define LQ_PLAIN_SOLVE_KERNELS(X) X(matrix_add, lq_plain_matrix) X(matrix_turn, lq_plain_matrix) \
    X(matrix_check, lq_plain_matrix) X(tally, lq_tally_args) X(arrange, lq_arrange_args)
#define LQ_PLAIN_LAUNCH(name, args) void lq_plain_##name##_run(lq_gpu *g, const args *a, size_t tasks);
LQ_PLAIN_SOLVE_KERNELS(LQ_PLAIN_LAUNCH)
#undef LQ_PLAIN_LAUNCH

#ifdef __cplusplus
}
#endif
#endif
