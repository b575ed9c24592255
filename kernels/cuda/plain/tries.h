// tries.h (plain): the kernels of the slot tries: what each is given, and how it is launched. kernels/cuda/tries.c says
// in which order.
#ifndef LQ_PLAIN_TRIES_H
#define LQ_PLAIN_TRIES_H
#include "kernels/cuda/gpu.h"
#include "kernels/round.h"
#ifdef __cplusplus
extern "C" {
#endif

// The most tries of a launch; partial sums of a row, each of every so manieth column.
enum { LQ_TRIES = 64, LQ_TRIES_LANES = 32 };

// Some tries of a call. r: of the matrix as it lies; what differs from try to try stands here.
typedef struct lq_plain_tries {
    lq_rounding r;
    int tries;
    const float *by;     // [tries][k]
    float scale2[LQ_TRIES], offset[LQ_TRIES], fixed[LQ_TRIES];
    int32_t fixed_zero[LQ_TRIES];
    int64_t bands;       // rows that share scales, n / r.band of them
    float *range;        // [tries][n][groups][2]
    float *scale;        // [tries][bands][groups] as they count
    int32_t *z;          // the same: zero points
    int *bad, *wide;     // [tries]
    float *d;            // [tries][n][k] (w by - q) / by, or (rows) q
    bool rows;           // by rows of the text
    lq_mat x;            // [text][k]
    lq_atype act;
    int64_t spans;       // of a row of x, that share a scale
    uint32_t *top;       // [tries][text][spans] largest magnitudes, as bits
    float *v;            // [tries][text][k] x / by, rounded
} lq_plain_tries;

// Sums of products a[row][c] b[row][c], or (squares) of (a - b)^2, of the rows of all tries; b has b_rows rows, which
// tries share if they are fewer.
typedef struct lq_plain_sums {
    const float *a, *b;
    int64_t rows, b_rows, cols; // of all tries
    size_t b_stride;
    bool squares;
    double *lane;        // [rows][LQ_TRIES_LANES]
    double *sum;         // [rows]
    const int *bad;      // [tries] no number is the sum of such a one
    int64_t each;        // rows of a try
} lq_plain_sums;

#define LQ_PLAIN_TRIES_KERNELS(X) \
    X(tries_begin, lq_plain_tries) X(tries_range, lq_plain_tries) X(tries_fit, lq_plain_tries) \
    X(tries_round, lq_plain_tries) X(tries_top, lq_plain_tries) X(tries_act, lq_plain_tries) \
    X(tries_lanes, lq_plain_sums) X(tries_sums, lq_plain_sums)
#define LQ_PLAIN_LAUNCH(name, args) void lq_plain_##name##_run(lq_gpu *g, const args *a, size_t tasks);
LQ_PLAIN_TRIES_KERNELS(LQ_PLAIN_LAUNCH)
#undef LQ_PLAIN_LAUNCH

#ifdef __cplusplus
}
#endif
#endif
