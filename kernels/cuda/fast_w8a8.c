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

static void run(lq_dev *d, lq_w8a8_args *a, int kind, int group, int experts) {
    const lq_cuda *c = lq_cuda_of(d);
    const lq_tuned like = lq_w8a8_tuned(kind, group, c->capability);
    int n[LQ_MATS], all = 0;
    for (int i = 0; i < a->joined; i++) all += n[i] = a->of[i].n;
    const lq_tuned *tuned = experts ? NULL : lq_tuned_find(lq_tuned_rows, LQ_TUNED_COUNT, &like, all, a->k, a->m);
    const lq_w8a8_plan p = lq_w8a8_plan_of(kind, group, a->m, experts, n, a->joined, c->shared, tuned);
    const int rows = LQ_W8A8_ROWS(p.kernel->tokens);
    for (int i = 1; i < a->joined; i++) a->of[i].first = a->of[i - 1].first + (n[i - 1] + rows - 1) / rows;
    if (a->m)
        lq_fast_launch(d, p.kernel->entry, a, sizeof *a,
                       (lq_gpu_grid){.blocks = p.x, .threads = p.threads, .shared = p.kernel->shared, .rows = p.y});
}

static lq_w8a8_args of_rows(const lq_act *x, const lq_weight *w) {
    return (lq_w8a8_args){.x = *x, .m = x->x.rows, .k = (int)w->k, .count = 1, .top_k = 1};
}

static lq_w8a8_args of_slots(const lq_moe_args *a, int i) {
    return (lq_w8a8_args){.x = *a->x, .m = a->slots, .k = (int)a->w[i]->k, .order = a->order, .start = a->start,
                          .count = a->experts, .top_k = a->x_by_slot ? 1 : a->top_k};
}

static lq_w8a8_one one_of(const lq_weight *w, const float *bias, const lq_mat *y) {
    return (lq_w8a8_one){.w = *w, .bias = bias, .y = *y, .n = (int)w->n};
}

void lq_fast_apart(lq_dev *d, const lq_act *x, const lq_weight *w, const lq_mat *y) {
    lq_w8a8_args a = of_rows(x, w);
    a.of[a.joined++] = one_of(w, NULL, y);
    run(d, &a, LQ_W8A8_APART, 0, 0);
}

void lq_fast_apart_moe(lq_dev *d, const lq_moe_args *a, int i, const lq_cuda_stack *s) {
    lq_w8a8_args p = of_slots(a, i);
    p.of[p.joined++] = one_of(a->w[i], NULL, &a->y[i]);
    if (s) p.of[0].experts = s->dev;
    run(d, &p, LQ_W8A8_APART, 0, a->experts);
}

static bool same_form(const lq_w8a8_form *a, const lq_w8a8_form *b) {
    return a->kind == b->kind && a->group == b->group && a->cell == b->cell && a->group_shift == b->group_shift &&
           a->share_shift == b->share_shift && a->groups == b->groups;
}

int lq_fast_w8a8(lq_dev *d, const lq_matmul_args *a, int first) {
    lq_w8a8_args p = of_rows(a->x, a->w[first]);
    lq_w8a8_form f = {0}, next;
    for (int i = first; i < a->count && p.joined < lq_fast_joined(p.m); i++) {
        if (!lq_w8a8_fits(a->x, a->w[i], &a->y[i], &next) || (p.joined && !same_form(&f, &next))) break;
        f = next;
        p.of[p.joined++] = one_of(a->w[i], a->bias[i], &a->y[i]);
    }
    lq_w8a8_set(&p, &f);
    if (p.joined) run(d, &p, f.kind, f.group, 0);
    return p.joined;
}

static bool experts_fit(const lq_moe_args *a, int i, lq_w8a8_form *f) {
    for (int e = 0; e < a->experts; e++)
        if (!lq_w8a8_fits(a->x, &a->w[i][e], &a->y[i], f)) return false;
    return true;
}

int lq_fast_w8a8_moe(lq_dev *d, const lq_moe_args *a, int first, const lq_cuda_stack *const *s) {
    lq_w8a8_args p = of_slots(a, first);
    lq_w8a8_form f = {0}, next = {0};
    for (int i = first; i < a->count && p.joined < lq_fast_joined(p.m); i++) {
        if (!experts_fit(a, i, &next) || (p.joined && !same_form(&f, &next))) break;
        f = next;
        lq_w8a8_one *one = &p.of[p.joined++];
        *one = one_of(a->w[i], a->bias[i] ? *a->bias[i] : NULL, &a->y[i]);
        if (!s[i]) continue;
        one->experts = s[i]->dev;
        if (a->bias[i]) one->biases = (const float *const *)(const void *)(one->experts + a->experts);
    }
    lq_w8a8_set(&p, &f);
    if (p.joined) run(d, &p, f.kind, f.group, a->experts);
    return p.joined;
}
