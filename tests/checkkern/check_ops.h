// check_ops.h: what check_ops.c, check_attn.c, check_mix.c and check_sample.c share.
#ifndef CHECK_OPS_H
#define CHECK_OPS_H
#include "tests/checkkern/checkkern.h"

#define EPS 0x1p-24 // half an ulp of 1: the most that one f32 rounding moves a result, relative to it

// Another device of the same ISA with this many threads.
lq_dev *twin_open(const lq_dev *dev, int threads);
// y is within `room` of the truth; two NaN agree, and two equal infinities.
static inline bool near(float y, double truth, double room) {
    if (isnan(truth) || isinf(truth)) return isnan(truth) ? isnan(y) : (double)y == truth;
    return fabs((double)y - truth) <= room + 0x1p-148;
}

static inline lq_mat row_of(const lq_mat *m, int row) {
    lq_mat r = *m;
    r.p = lq_mat_row(m, row);
    r.rows = 1;
    return r;
}

void check_attn(lq_dev *dev);
void check_rows(lq_dev *dev);   // sequences without rows, slots, padding: every slot that takes lq_rows
void check_mix(lq_dev *dev);    // route, mix, conv, scan, gram, factor, solve, reduce, gather
void check_sample(lq_dev *dev);
void check_round(lq_dev *ref, lq_dev *dev);
void check_choose(lq_dev *ref, lq_dev *dev); // and arrange
void check_tries(lq_dev *ref, lq_dev *dev);
#endif
