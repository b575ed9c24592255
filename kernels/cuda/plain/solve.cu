// solve.cu: what stands around the products and factors of a library in the slots gram and factor: sums in f64, an
// order of indices that is reversed, a look at a diagonal; and the slots tally and arrange.
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

// h [i][j] of the whole, from its upper half.
LQ_FN double cell(const lq_arrange_args *a, int64_t i, int64_t j) { return a->h[i < j ? i * a->k + j : j * a->k + i]; }

// Task: an element of each of the results.
LQ_TASK_KERNEL(arrange, lq_arrange_args) {
    const int64_t task = (int64_t)lq_task_id(), k = p.k, i = task / k, j = task % k;
    if (task >= k * k) return;
    if (p.diagonal && i == 0) p.diagonal[j] = cell(&p, j, j);
    if (p.mean || p.u) {
        const double v = cell(&p, p.order[i], p.order[j]) / p.rows;
        if (p.mean) p.mean[task] = (float)v;
        if (p.u) p.u[task] = j < i ? 0 : i < j ? v : v + (double)p.added;
    }
    if (p.g) p.owed[task] = (p.g[p.order[i] * k + j] - cell(&p, p.order[i], j)) / p.rows;
    if (p.repay) p.repay[p.order[i] * k + j] = p.share * (float)p.owed[task];
}

LQ_PLAIN_SOLVE_KERNELS(LQ_LAUNCH)
