// solve.c: the slots tally, gram, factor, solve and arrange on a CUDA device: a library's products and factors
// (solver.h), which is opened at the first use, and kernels around them. Where it is missing they leave their results
// as they are and `sync` says why. factor waits for its work, as the host is told at once whether there is a factor.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plain/solve.h"
#include "kernels/cuda/solver.h"
#include <stdio.h>

enum { CHUNK = 2048 }; // rows whose f32 products are summed before they go to f64

lq_solver *lq_cuda_solver(lq_dev *d) {
    lq_cuda *c = lq_cuda_of(d);
    lq_err err;
    if (!c->solver && !lq_solver_open(c->gpu, &c->solver, &err)) lq_cuda_break(d, &err);
    return c->solver;
}

static bool solver(lq_dev *d, char *out, size_t size, lq_err *err) {
    const lq_solver *s = lq_cuda_solver(d);
    if (!s) return d->ops.sync(d, err);
    snprintf(out, size, "%s, %s", lq_solver_name(s), d->isa);
    return true;
}

static const void *row_of(const lq_mat *m, int r) {
    return (const char *)m->p + (size_t)r * m->stride * lq_dtype_size(m->type);
}

static void tally(lq_dev *d, const lq_tally_args *a) {
    lq_plain_tally_run(lq_cuda_of(d)->gpu, a, (size_t)a->x.cols);
}

static void gram(lq_dev *d, const lq_gram_args *a) {
    lq_solver *s = lq_cuda_solver(d);
    const int m = a->x.cols, n = a->with ? a->with->cols : m;
    const lq_plain_matrix add = {.h = a->h, .from = a->work, .m = m, .n = n, .half = !a->with};
    lq_err err;
    for (int r = 0; s && r < a->x.rows; r += CHUNK) {
        const lq_solver_product p = {.x = row_of(&a->x, r), .x_stride = a->x.stride, .half = a->x.type == LQ_BF16,
                                     .y = a->with ? row_of(a->with, r) : NULL,
                                     .y_stride = a->with ? a->with->stride : 0, .m = m, .n = n, .c = a->work,
                                     .rows = a->x.rows - r < CHUNK ? a->x.rows - r : CHUNK};
        if (!lq_solver_multiply(s, &p, &err)) {
            lq_cuda_break(d, &err);
            return;
        }
        lq_plain_matrix_add_run(lq_cuda_of(d)->gpu, &add, (size_t)m * (size_t)n);
    }
}

// As in cpu/solve.c: J h J = L L^T with the reversal J of the index order, U = J L^-1 J.
static void factor(lq_dev *d, const lq_factor_args *a) {
    lq_solver *s = lq_cuda_solver(d);
    lq_gpu *g = lq_cuda_of(d)->gpu;
    const size_t n = (size_t)a->n, pairs = (n * n + 1) / 2;
    int *info = s ? lq_cuda_work(d, 3 * sizeof *info) : NULL, found[3] = {0};
    lq_plain_matrix h = {.h = a->h, .m = a->n, .n = a->n, .half = true, .info = info};
    lq_err err;
    *a->ok = false;
    if (!info) return;
    lq_plain_matrix_turn_run(g, &h, pairs);
    if (!lq_solver_invert(s, a->h, a->n, info, &err)) {
        lq_cuda_break(d, &err);
        return;
    }
    lq_plain_matrix_check_run(g, &h, n);
    h.half = false, h.info = NULL;
    lq_plain_matrix_turn_run(g, &h, pairs);
    lq_gpu_get(g, found, info, sizeof found);
    if (!lq_gpu_sync(g, &err)) lq_cuda_break(d, &err);
    else *a->ok = !found[0] && !found[1] && !found[2];
}

static void solve(lq_dev *d, const lq_solve_args *a) {
    lq_solver *s = lq_cuda_solver(d);
    lq_err err;
    for (int turned = 0; s && turned < 2; turned++)
        if (!lq_solver_triangle(s, a->u, a->n, turned, a->b, a->cols, &err)) {
            lq_cuda_break(d, &err);
            return;
        }
}

static void arrange(lq_dev *d, const lq_arrange_args *a) {
    lq_plain_arrange_run(lq_cuda_of(d)->gpu, a, (size_t)a->k * (size_t)a->k);
}

void lq_cuda_solve_slots(lq_ops *o) {
    o->solver = solver;
    o->tally = tally;
    o->gram = gram;
    o->factor = factor;
    o->solve = solve;
    o->arrange = arrange;
}
