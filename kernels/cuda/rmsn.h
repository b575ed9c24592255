// rmsn.h: x + delta, and its norm (RMS, LayerNorm, L2) as bf16, as the host sees it: which norms these kernels make,
// arguments, grid. Plain C. Rows of up to 256 columns have several in a block of threads, longer ones a block each.
#ifndef LQ_RMSN_H
#define LQ_RMSN_H
#include "kernels/cuda/acts.h"

enum { LQ_RMSN_THREADS = 256, LQ_RMSN_SHARED = 64, LQ_RMSN_NARROW = 256, LQ_RMSN_MOST = 256 * 8 * 8 };

typedef struct lq_rmsn_args {
    uint16_t *x;              // [rows][x_stride] of bf16; with delta it becomes x + delta
    const uint16_t *delta;    // [rows][delta_stride] of bf16, or NULL
    const float *gamma, *beta; // [gammas][k], row r has that of r % gammas; or NULL
    uint16_t *y;              // [rows][y_stride] of bf16; may be x
    int64_t x_stride, delta_stride, y_stride;
    int rows, k, gammas;
    int shift;                // 2^shift threads have a row
    int layer;                // 1: the mean is taken off first
    float over, eps, plus;    // v / sqrt(sum v^2 / over + eps) * (gamma + plus) + beta
} lq_rmsn_args;

// With the `act` of the norm, whose x is y: a block has a row, however short it is.
typedef struct lq_rmsn_act_args { lq_rmsn_args norm; lq_acts_args quant; } lq_rmsn_act_args;

static inline bool lq_rmsn_mat(const lq_mat *m) {
    return m->type == LQ_BF16 && m->stride % 8 == 0 && (uintptr_t)m->p % 16 == 0;
}

// Whether a norm, but for its `act`, is one of these kernels': by shapes, types and where rows begin, never by their
// number.
static inline bool lq_rmsn_fits(const lq_norm_args *a) {
    const uintptr_t vectors = (uintptr_t)a->gamma | (uintptr_t)a->beta;
    return a->x.cols % 8 == 0 && a->x.cols <= LQ_RMSN_MOST && lq_rmsn_mat(&a->x) && lq_rmsn_mat(&a->y) &&
           (!a->delta || lq_rmsn_mat(a->delta)) && vectors % 16 == 0;
}

// Of a narrow row a thread has 8 columns.
static inline int lq_rmsn_shift(int k) {
    int shift = 0;
    while (8 << shift < k) shift++;
    return k > LQ_RMSN_NARROW ? 8 : shift;
}

static inline lq_rmsn_args lq_rmsn_of(const lq_norm_args *a) {
    lq_rmsn_args r;
    r.x = (uint16_t *)a->x.p, r.y = (uint16_t *)a->y.p, r.delta = a->delta ? (const uint16_t *)a->delta->p : NULL;
    r.gamma = a->gamma, r.beta = a->beta, r.gammas = a->gammas ? a->gammas : 1;
    r.x_stride = (int64_t)a->x.stride, r.y_stride = (int64_t)a->y.stride;
    r.delta_stride = a->delta ? (int64_t)a->delta->stride : 0;
    r.rows = a->x.rows, r.k = a->x.cols, r.shift = lq_rmsn_shift(r.k), r.layer = a->kind == LQ_NORM_LAYER;
    r.over = a->kind == LQ_NORM_L2 ? 1.0f : (float)a->x.cols;
    r.eps = a->eps, r.plus = a->plus_one ? 1.0f : 0.0f;
    return r;
}

static inline unsigned lq_rmsn_blocks(const lq_rmsn_args *a) {
    const int each = LQ_RMSN_THREADS >> a->shift;
    return (unsigned)((a->rows + each - 1) / each);
}
#endif
