// tally.c: the slot tally in portable C: what columns of an input come to, row by row. A task is a few columns, so that
// no sum depends on the threads. Owns nothing.
#include "kernels/cpu/slots.h"
#include <math.h>

enum { COLUMNS = 64 };

static void tally_columns(void *arg, int task, int worker) {
    const lq_tally_args *a = arg;
    const int first = task * COLUMNS, end = a->x.cols - first < COLUMNS ? a->x.cols : first + COLUMNS;
    (void)worker;
    for (int r = 0; r < a->x.rows; r++) {
        const float *x = lq_mat_row(&a->x, r);
        for (int c = first; a->lo && c < end; c++) a->lo[c] = x[c] < a->lo[c] ? x[c] : a->lo[c];
        for (int c = first; a->hi && c < end; c++) a->hi[c] = x[c] > a->hi[c] ? x[c] : a->hi[c];
        for (int c = first; a->sum && c < end; c++) a->sum[c] += (double)fabsf(x[c]);
        for (int c = first; a->square && c < end; c++) a->square[c] += (double)x[c] * (double)x[c];
    }
}

void lq_tally_c(lq_dev *d, const lq_tally_args *a) {
    lq_tally_args own = *a;
    lq_pool_run(d->pool, tally_columns, &own, (a->x.cols + COLUMNS - 1) / COLUMNS);
}
