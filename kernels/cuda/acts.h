// acts.h: activations of bf16 as codes of 8 bits (the slot `quant`, and the `act` of norm and glu), as the host sees
// it: which forms acts.cuh makes, arguments, shared memory. Plain C. A block of threads has a row.
#ifndef LQ_ACTS_H
#define LQ_ACTS_H
#include "kernels/ops.h"

enum { LQ_ACTS_THREADS = 256, LQ_ACTS_HEAD = 64 };

typedef struct lq_acts_args { lq_mat x; lq_act act; } lq_acts_args;

// The row stands in shared memory, in bf16.
static inline size_t lq_acts_shared(int k) { return LQ_ACTS_HEAD + (size_t)k * 2; }

static inline bool lq_acts_mat(const lq_mat *m) {
    return m->type == LQ_BF16 && m->stride % 4 == 0 && (uintptr_t)m->p % 8 == 0;
}

// Whether a form is made there: by shapes, types and alignment, never by the number of rows; `shared`: most bytes
// that a block may have.
static inline bool lq_acts_fits(const lq_mat *x, const lq_act *a, size_t shared) {
    const uintptr_t vectors = (uintptr_t)a->smooth | (uintptr_t)a->perm;
    return lq_acts_mat(x) && x->cols % 4 == 0 && (!a->x.p || lq_acts_mat(&a->x)) && a->x.type == LQ_BF16 &&
           vectors % 16 == 0 && a->q_row % 4 == 0 && (uintptr_t)a->q % 4 == 0 && lq_acts_shared(x->cols) <= shared;
}
#endif
