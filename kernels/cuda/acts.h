// acts.h: activations of bf16 as codes of 8 bits (the slot `quant`), as the host sees it: which forms this kernel
// makes, arguments, shared memory. Plain C. A block of threads has a row.
#ifndef LQ_ACTS_H
#define LQ_ACTS_H
#include "kernels/ops.h"

enum { LQ_ACTS_THREADS = 256, LQ_ACTS_HEAD = 64 };

typedef struct lq_acts_args { lq_mat x; lq_act act; } lq_acts_args;

// A row as it is to be rounded stands in shared memory, in f32.
static inline size_t lq_acts_shared(int k) { return LQ_ACTS_HEAD + (size_t)k * 4; }

static inline bool lq_acts_mat(const lq_mat *m) {
    return m->type == LQ_BF16 && m->stride % 4 == 0 && (uintptr_t)m->p % 8 == 0;
}

// Whether this kernel makes a form: by shapes, types and alignment, never by the number of rows; `shared`: most bytes
// that a block may have.
static inline bool lq_acts_fits(const lq_mat *x, const lq_act *a, size_t shared) {
    const uintptr_t vectors = (uintptr_t)a->smooth | (uintptr_t)a->perm;
    return lq_acts_mat(x) && x->cols % 4 == 0 && (!a->x.p || lq_acts_mat(&a->x)) && a->x.type == LQ_BF16 &&
           vectors % 16 == 0 && a->q_row % 4 == 0 && (uintptr_t)a->q % 4 == 0 && lq_acts_shared(x->cols) <= shared;
}
#endif
