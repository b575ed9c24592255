// round.h (plain): the kernels of the slots round and refine, with the bits of portable C: what each is given, and how
// it is launched. kernels/cuda/round.c says in which order.
#ifndef LQ_PLAIN_ROUND_H
#define LQ_PLAIN_ROUND_H
#include "kernels/cuda/gpu.h"
#include "kernels/round.h"
#ifdef __cplusplus
extern "C" {
#endif

// Columns whose errors are spread together; lanes of a row's figures; rows that one task looks through; rows of a task
// that spreads.
enum { LQ_ROUND_BLOCK = 32, LQ_ROUND_LANES = 8, LQ_ROUND_STRIPE = 256, LQ_ROUND_TOGETHER = 4 };

// A call, and what its kernels hand each other.
typedef struct lq_plain_round {
    lq_rounding r;
    lq_figures *to;     // [n] spread: so far
    float *range;       // [n][groups][2] of rows that share scales
    int32_t *z;         // [n][groups] zero points before they are packed
    float *top, *lane;  // [n] a row's largest scale; [n][lanes][3] its figures: error, norm, largest
    float *e, *u;       // [columns at hand][n] what each row is to hear; [columns at hand][k] rows of u
    uint8_t *hears;     // [n] whether a row hears of them
    uint8_t *live, *changed; // [n] refine: whether the sweep before, this sweep changed anything
    float *less;        // [columns of a group][n]
    int64_t *bad;       // [stripes]
    int64_t b0, b1;     // the columns at hand
} lq_plain_round;

// Of rows that hear: x[row][c] -= e[0] u[0][c], then e[1] u[1][c] and so on, for all columns but from .. end; then,
// where it damps, x[row][b0 + i] -= e[i] damp. sparse: errors that are 0 say nothing.
typedef struct lq_plain_spread {
    float *x;
    size_t x_stride, u_stride;
    const float *e, *u;
    const uint8_t *hears;
    int64_t n, k, from, end, b0, b1;
    float damp;
    bool damps, sparse;
} lq_plain_spread;

#define LQ_PLAIN_ROUND_KERNELS(X) \
    X(round_begin, lq_plain_round) X(round_range, lq_plain_round) X(round_fit, lq_plain_round) \
    X(round_zeros, lq_plain_round) X(round_codes, lq_plain_round) X(round_top, lq_plain_round) \
    X(round_lanes, lq_plain_round) X(round_figures, lq_plain_round) X(round_back, lq_plain_round) \
    X(round_stripes, lq_plain_round) X(round_bad, lq_plain_round) \
    X(round_u, lq_plain_round) X(round_block, lq_plain_round) X(round_end, lq_plain_round) \
    X(spread, lq_plain_spread) X(refine_begin, lq_plain_round) X(refine_block, lq_plain_round) \
    X(refine_values, lq_plain_round) X(refine_less, lq_plain_round) X(refine_scale, lq_plain_round) \
    X(refine_turn, lq_plain_round)
#define LQ_PLAIN_LAUNCH(name, args) void lq_plain_##name##_run(lq_gpu *g, const args *a, size_t tasks);
LQ_PLAIN_ROUND_KERNELS(LQ_PLAIN_LAUNCH)
#undef LQ_PLAIN_LAUNCH

#ifdef __cplusplus
}
#endif
#endif
