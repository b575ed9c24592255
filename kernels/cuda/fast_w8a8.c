// fast_w8a8.c: activations of 8 bits in default mode, by the kernel of acts.cuh, and their products, by those of
// w8a8.cuh; what columns apart add to the products of others.
#include "kernels/cuda/acts.h"
#include "kernels/cuda/fast.h"
#include "kernels/cuda/w8a8_pick.h"

LQ_DECLARED(lq_acts_rows)

bool lq_fast_w8a8_open(lq_dev *d, lq_err *err) {
    const lq_cuda *c = lq_cuda_of(d);
    for (int i = 0; i < LQ_W8A8_COUNT; i++) {
        const lq_w8a8_kernel *kernel = &lq_w8a8_kernels[i];
        if (kernel->shared > c->shared) continue;
        if (!lq_gpu_prepare(c->gpu, lq_entry(kernel->entry), kernel->shared, err)) return false;
    }
    return lq_gpu_prepare(c->gpu, lq_entry(lq_acts_rows), c->shared, err);
}

bool lq_fast_quant(lq_dev *d, const lq_quant_args *a) {
    const lq_acts_args p = {a->x, *a->act};
    if (!lq_acts_fits(&a->x, a->act, lq_cuda_of(d)->shared)) return false;
    const lq_gpu_grid rows = {(unsigned)a->x.rows, LQ_ACTS_THREADS, .shared = lq_acts_shared(a->x.cols)};
    if (a->x.rows) lq_fast_launch(d, lq_acts_rows, &p, sizeof p, rows);
    return true;
}

static void run(lq_dev *d, const lq_w8a8_args *a, int kind, int group, int experts) {
    const lq_cuda *c = lq_cuda_of(d);
    const lq_tuned like = lq_w8a8_tuned(kind, group, c->capability);
    const lq_tuned *tuned = experts ? NULL : lq_tuned_find(lq_tuned_rows, LQ_TUNED_COUNT, &like, a->n, a->k, a->m);
    const lq_w8a8_plan p = lq_w8a8_plan_of(kind, group, a->m, experts, a->n, c->shared, tuned);
    if (a->m)
        lq_fast_launch(d, p.kernel->entry, a, sizeof *a,
                       (lq_gpu_grid){.blocks = p.x, .threads = p.threads, .shared = p.kernel->shared, .rows = p.y});
}

static lq_w8a8_args of_one(const lq_act *x, const lq_weight *w, const lq_mat *y) {
    return (lq_w8a8_args){.one = *w, .x = *x, .y = *y, .m = x->x.rows, .n = (int)w->n, .count = 1, .top_k = 1};
}

static lq_w8a8_args of_experts(const lq_moe_args *a, int i, const lq_cuda_stack *s) {
    return (lq_w8a8_args){.one = *a->w[i], .experts = s ? s->dev : NULL, .x = *a->x, .y = a->y[i], .m = a->slots,
                          .n = (int)a->w[i]->n, .order = a->order, .start = a->start, .count = a->experts,
                          .top_k = a->x_by_slot ? 1 : a->top_k};
}

void lq_fast_apart(lq_dev *d, const lq_act *x, const lq_weight *w, const lq_mat *y) {
    const lq_w8a8_args a = of_one(x, w, y);
    run(d, &a, LQ_W8A8_APART, 0, 0);
}

void lq_fast_apart_moe(lq_dev *d, const lq_moe_args *a, int i, const lq_cuda_stack *s) {
    const lq_w8a8_args p = of_experts(a, i, s);
    run(d, &p, LQ_W8A8_APART, 0, a->experts);
}

bool lq_fast_w8a8(lq_dev *d, const lq_act *x, const lq_weight *w, const float *bias, const lq_mat *y) {
    lq_w8a8_args a = of_one(x, w, y);
    int kind, group;
    a.bias = bias;
    if (!lq_w8a8_fits(x, w, y, &kind, &group, &a)) return false;
    run(d, &a, kind, group, 0);
    return true;
}

bool lq_fast_w8a8_moe(lq_dev *d, const lq_moe_args *a, int i, const lq_cuda_stack *s) {
    lq_w8a8_args p = of_experts(a, i, s);
    int kind = 0, group = 0;
    p.bias = a->bias[i] ? *a->bias[i] : NULL;
    for (int e = 0; e < a->experts; e++)
        if (!lq_w8a8_fits(a->x, &a->w[i][e], &a->y[i], &kind, &group, &p)) return false;
    if (s && a->bias[i]) p.biases = (const float *const *)(const void *)(p.experts + a->experts);
    run(d, &p, kind, group, a->experts);
    return true;
}
