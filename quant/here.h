// here.h: a matrix of any device as f32 on the host, row after row.
#ifndef LQ_HERE_H
#define LQ_HERE_H
#include "kernels/ops.h"

typedef struct lq_here {
    const float *x;  // [rows][cols]
    float *own;      // what was made for it; NULL: it is the matrix itself
} lq_here;
// dev: where the matrix lies; NULL: it lies with the host, whatever its type is. Waits for the device.
bool lq_here_open(lq_dev *dev, const lq_mat *m, lq_here *out, lq_err *err);
void lq_here_close(lq_here *h);
// Back to where it lies, rounded to its type.
bool lq_here_put(lq_dev *dev, const lq_here *h, const lq_mat *m, lq_err *err);
#endif
