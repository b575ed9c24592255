// conv.h: the causal convolution of each column in bf16, as the host sees it: which ones these kernels make, arguments,
// grid. Plain C. Sums are f32 in the order of kernels/cpu/scan.c, rounded once: the bits of the plain kernel, however
// rows are divided. Two kernels for each width: `walk` has a thread for 8 columns of a sequence, which goes through its
// rows, for few of them; `tile` 32 rows of 64 columns at a time in shared memory.
#ifndef LQ_CONV_H
#define LQ_CONV_H
#include "kernels/ops.h"

enum { LQ_CONV_THREADS = 256, LQ_CONV_COLS = 64, LQ_CONV_ROWS = 32, LQ_CONV_LEAST = 2, LQ_CONV_MOST = 4 };
#define LQ_CONV_SHARED(width) (((width) - 1 + LQ_CONV_ROWS) * LQ_CONV_COLS * 4)
#define LQ_CONV_KERNELS(K) K(2) K(3) K(4)

typedef struct lq_conv_of { lq_conv_args a; lq_rows rows; } lq_conv_of; // a.rows is NULL

static inline bool lq_conv_mat(const lq_mat *m) {
    return m->type == LQ_BF16 && m->cols % 8 == 0 && m->stride % 8 == 0 && (uintptr_t)m->p % 16 == 0;
}

static inline bool lq_conv_fits(const lq_conv_args *a) {
    const uintptr_t vectors = (uintptr_t)a->w | (uintptr_t)a->bias | (uintptr_t)a->state;
    return lq_conv_mat(&a->x) && lq_conv_mat(&a->y) && a->width >= LQ_CONV_LEAST && a->width <= LQ_CONV_MOST &&
           vectors % 16 == 0;
}

// Few rows a sequence: the walk.
static inline bool lq_conv_few(const lq_rows *r) { return r->n <= 8 * r->seqs; }

// Blocks that have the columns; of the second dimension there is one for each sequence, and one for what is padding.
static inline unsigned lq_conv_blocks(int cols, bool few) {
    const int each = few ? 8 * LQ_CONV_THREADS : LQ_CONV_COLS;
    return (unsigned)((cols + each - 1) / each);
}
#endif
