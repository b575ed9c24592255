// scan.h: the linear recurrence of a head's state, as the host sees it: which ones these kernels make, arguments, grid.
// Plain C. The state is read and written once and stays in registers over the rows of its sequence, which are gone
// through in order: what a prefill is cut into changes no bit. q, k, v, y are bf16; decay, beta and state f32.
#ifndef LQ_SCAN_H
#define LQ_SCAN_H
#include "kernels/ops.h"

// A block has 64 columns (of dv) of a head of a sequence, a warp 8 of them, each in 4 lanes; rows come 8 at a time.
enum { LQ_SCAN_THREADS = 256, LQ_SCAN_COLS = 64, LQ_SCAN_ROWS = 8, LQ_SCAN_ONE = 16 };
// Bytes of shared memory: k, q, factors [8][dk]; v, y [8][64]; the factor of a row, beta.
#define LQ_SCAN_SHARED(dk) (LQ_SCAN_ROWS * (3 * (dk) + 2 * LQ_SCAN_COLS + 2) * 4)
// Most rows of a state, blocks on a multiprocessor; without and with delta. Heads of one column have a thread each
// (scan_one).
#define LQ_SCAN_KERNELS(K) \
    K(lq_scan_64, 64, false, 2) K(lq_scan_128, 128, false, 2) K(lq_scan_256, 256, false, 1) \
    K(lq_scan_delta_64, 64, true, 2) K(lq_scan_delta_128, 128, true, 2) K(lq_scan_delta_256, 256, true, 1)

typedef struct lq_scan_of { lq_scan_args a; lq_rows rows; } lq_scan_of; // a.rows is NULL

static inline bool lq_scan_mat(const lq_mat *m, lq_dtype type, int cols) {
    const int each = type == LQ_F32 ? 4 : 8;
    return m->type == type && cols % each == 0 && m->stride % (size_t)each == 0 && (uintptr_t)m->p % 16 == 0;
}

// A thread for each head.
static inline bool lq_scan_one_fits(const lq_scan_args *a) {
    return a->dv == 1 && a->dk % 8 == 0 && a->dk <= LQ_SCAN_ONE && lq_scan_mat(&a->q, LQ_BF16, a->dk) &&
           lq_scan_mat(&a->k, LQ_BF16, a->dk) && a->v.type == LQ_BF16 && a->y.type == LQ_BF16 &&
           a->decay.type == LQ_F32 && (!a->decay_per_k || lq_scan_mat(&a->decay, LQ_F32, a->dk)) &&
           (!a->beta.p || a->beta.type == LQ_F32) && (uintptr_t)a->state % 16 == 0;
}

static inline bool lq_scan_fits(const lq_scan_args *a) {
    return a->dv % 8 == 0 && a->dk % 16 == 0 && a->dk <= 256 && lq_scan_mat(&a->q, LQ_BF16, a->dk) &&
           lq_scan_mat(&a->k, LQ_BF16, a->dk) && lq_scan_mat(&a->v, LQ_BF16, a->dv) &&
           lq_scan_mat(&a->y, LQ_BF16, a->dv) && a->decay.type == LQ_F32 &&
           (!a->decay_per_k || lq_scan_mat(&a->decay, LQ_F32, a->dk)) && (!a->beta.p || a->beta.type == LQ_F32) &&
           (uintptr_t)a->state % 16 == 0;
}

// Blocks of the heads; of the second dimension there is one for each sequence, and one for what is padding.
static inline unsigned lq_scan_blocks(const lq_scan_args *a) {
    if (a->dv == 1) return (unsigned)((a->heads + LQ_SCAN_THREADS - 1) / LQ_SCAN_THREADS);
    return (unsigned)(a->heads * ((a->dv + LQ_SCAN_COLS - 1) / LQ_SCAN_COLS));
}
#endif
