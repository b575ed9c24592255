// rope.h: the rotation of queries and keys by their position, as the host sees it: arguments, grid, what it can do.
#ifndef LQ_ROPE_H
#define LQ_ROPE_H
#include "kernels/ops.h"

enum {
    LQ_ROPE_THREADS = 128,
    LQ_ROPE_PART = 512, // times four pairs, of a block
    LQ_ROPE_DIM = 1024, // most numbers of a head that are turned
    LQ_ROPE_SHARED = LQ_ROPE_DIM / 2 * 4 * 4
};

typedef struct lq_rope_bf16_args { lq_rope_args a; lq_rows rows; } lq_rope_bf16_args; // a.rows NULL

static inline bool lq_rope_mat_fits(const lq_mat *m, int head_dim) {
    return !m->p || (m->type == LQ_BF16 && ((uintptr_t)m->p | m->stride * 2) % 16 == 0 && m->cols % head_dim == 0);
}

static inline bool lq_rope_fits(const lq_rope_args *a) {
    return a->dim % 8 == 0 && a->dim <= LQ_ROPE_DIM && a->dim <= a->head_dim && a->head_dim % 8 == 0 &&
           lq_rope_mat_fits(&a->q, a->head_dim) && lq_rope_mat_fits(&a->k, a->head_dim);
}

// Heads of a row of q or k; tasks of four pairs each, of both.
#define LQ_ROPE_HEADS(a, m) ((a)->m.p ? (a)->m.cols / (a)->head_dim : 0)
#define LQ_ROPE_TASKS(a) ((LQ_ROPE_HEADS(a, q) + LQ_ROPE_HEADS(a, k)) * ((a)->dim / 8))

// Blocks beside each other (y) for each row (x).
static inline unsigned lq_rope_parts(const lq_rope_args *a) {
    return (unsigned)((LQ_ROPE_TASKS(a) + LQ_ROPE_PART - 1) / LQ_ROPE_PART);
}
#endif
