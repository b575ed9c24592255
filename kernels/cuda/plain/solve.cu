// solve.cu: what stands around the products and factors of a library in the slots gram and factor: sums in f64, an
// order of indices that is reversed, a look at a diagonal.
#include "kernels/cuda/plain/solve.h"
#include "formats/fn.h"
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

LQ_PLAIN_SOLVE_KERNELS(LQ_LAUNCH)
