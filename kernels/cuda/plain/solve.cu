// solve.cu: what stands around the products and factors of a library in the slots gram and factor: sums in f64, an
// order of indices that is reversed, a look at a diagonal; and the slot tally.
#include "kernels/cuda/plain/solve.h"
#include "formats/elem.h"
#include "kernels/cuda/plain/task.h"

// Task: an element of [m][n].
LQ_TASK_KERNEL(matrix_add, lq_plain_matrix) {
    const int64_t task = (int64_t)lq_task_id();
    if (task < p.m * p.n && (!p.half || task % p.n >= task / p.n)) p.h[task] += (double)p.from[task];
}

LQ_FN double number_of(const lq_plain_matrix *p, int64_t i) { return p->half && i % p->n < i / p->n ? 0 : p->h[i]; }

// Task: a number and its counterpart; that in the middle is its own.
LQ_TASK_KERNEL(matrix_turn, lq_plain_matrix) {
    const int64_t task = (int64_t)lq_task_id(), last = p.n * p.n - 1 - task;
    if (task < 3 && p.info) p.info[task] = 0;
    if (task > last) return;
    const double a = number_of(&p, task), b = number_of(&p, last);
    p.h[task] = b;
    p.h[last] = a;
}

// Task: a number of the diagonal.
LQ_TASK_KERNEL(matrix_check, lq_plain_matrix) {
    const int64_t task = (int64_t)lq_task_id();
    if (task >= p.n) return;
    const double x = p.h[task * p.n + task];
    if (!(x - x == 0) || x == 0) p.info[2] = 1;
}

// Task: a column, row after row.
LQ_TASK_KERNEL(tally, lq_tally_args) {
    const int64_t c = (int64_t)lq_task_id();
    if (c >= p.x.cols) return;
    const bool half = p.x.type == LQ_BF16;
    float lo = p.lo ? p.lo[c] : 0, hi = p.hi ? p.hi[c] : 0;
    double sum = p.sum ? p.sum[c] : 0, square = p.square ? p.square[c] : 0;
    for (int r = 0; r < p.x.rows; r++) {
        const size_t at = (size_t)r * p.x.stride + (size_t)c;
        const float x = half ? lq_bf16_widen(((const uint16_t *)p.x.p)[at]) : ((const float *)p.x.p)[at];
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
        sum += (double)fabsf(x);
        square += (double)x * (double)x;
    }
    if (p.lo) p.lo[c] = lo;
    if (p.hi) p.hi[c] = hi;
    if (p.sum) p.sum[c] = sum;
    if (p.square) p.square[c] = square;
}

LQ_PLAIN_SOLVE_KERNELS(LQ_LAUNCH)
