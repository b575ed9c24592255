// choose.h (plain): the kernels of the slot choose: what each is given, and how it is launched. kernels/cuda/choose.c
// says in which order.
#ifndef LQ_PLAIN_CHOOSE_H
#define LQ_PLAIN_CHOOSE_H
#include "kernels/choose.h"
#include "kernels/cuda/gpu.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct lq_plain_choose {
    lq_choosing c;
    bool repaid; // y is what rows are added to
} lq_plain_choose;

// to[row] = x y^T of each row, by lanes; most: the largest |x| too. better: of rows that have the spread codes alone.
typedef struct lq_plain_dots {
    lq_choosing c;
    const float *x, *y; // [n][k]
    double *to, *most;  // [n]; most NULL: not
    bool better;
} lq_plain_dots;

#define LQ_PLAIN_CHOOSE_KERNELS(X) \
    X(choose_columns, lq_plain_choose) X(choose_apart, lq_plain_choose) X(choose_order, lq_plain_choose) \
    X(choose_scales, lq_plain_choose) X(choose_differ, lq_plain_choose) X(choose_damp, lq_plain_choose) \
    X(choose_dots, lq_plain_dots) X(choose_sums, lq_plain_dots) X(choose_codes, lq_plain_choose) \
    X(choose_groups, lq_plain_choose) X(choose_zeros, lq_plain_choose) X(choose_end, lq_plain_choose)
#define LQ_PLAIN_LAUNCH(name, args) void lq_plain_##name##_run(lq_gpu *g, const args *a, size_t tasks);
LQ_PLAIN_CHOOSE_KERNELS(LQ_PLAIN_LAUNCH)
#undef LQ_PLAIN_LAUNCH

#ifdef __cplusplus
}
#endif
#endif
