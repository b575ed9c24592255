// fast_products.c: products of default mode, of one matrix and of experts', by the kernels of w4s.cuh, or where there
// are many tokens by those of w4l.cuh; those of activations of 8 bits are handed to fast_w8a8.c.
#include "kernels/cuda/fast.h"
#include "kernels/cuda/w4l_pick.h"
#include "kernels/cuda/w8a8_pick.h"

enum { PARTS = 4 << 20 }; // f32 of the workspace; where it does not do, a block makes all cuts

bool lq_fast_products_open(lq_dev *d, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    void *parts, *arrived;
    for (int i = 0; i < LQ_W4S_COUNT; i++) {
        const lq_w4s_kernel *kernel = &lq_w4s_kernels[i];
        if (kernel->shared > c->shared) continue;
        if (!lq_gpu_prepare(c->gpu, lq_entry(kernel->entry), kernel->shared, err)) return false;
    }
    for (int i = 0; i < LQ_W4L_COUNT && c->large; i++)
        if (!lq_gpu_prepare(c->gpu, lq_entry(lq_w4l_kernels[i].entry), lq_w4l_kernels[i].shared, err)) return false;
    if (!lq_gpu_alloc(c->gpu, PARTS * sizeof *c->parts, &parts, err)) return false;
    c->parts = parts;
    if (!lq_gpu_alloc(c->gpu, 2 * (size_t)c->sms * sizeof *c->arrived, &arrived, err)) return false;
    c->arrived = arrived;
    return true;
}

// A weight as the kernels have it; false: they do not.
static bool w4s_of(const lq_weight *w, const float *bias, lq_w4s_form *f, lq_w4s_matrix *m) {
    if (!lq_w4s_fits(&w->type, w->layout, w->n, w->k, f)) return false;
    *m = (lq_w4s_matrix){.w = w->q, .scale = w->scale, .zero = w->zero, .bias = bias, .scale2 = w->scale2,
                         .table = w->table, .scale_type = f->scale};
    return lq_aligned(w->q, 16) && lq_aligned(w->scale, 8) && lq_aligned(w->zero, 4) && lq_aligned(bias, 8) &&
           (f->kind != LQ_W4S_SIXTEEN || lq_aligned(w->table, 16));
}

// Whether x and y are as the kernels read and write them. What columns apart add is a second kernel's, which rounds y
// once more.
static bool w4s_takes(const lq_act *x, const lq_weight *w, const lq_mat *y) {
    if (w->outliers && !lq_w8a8_apart_fits(x, w)) return false;
    return x->type.elem == LQ_F32 && x->x.type == LQ_BF16 && x->x.stride % 8 == 0 && lq_aligned(x->x.p, 16) &&
           (y->type == LQ_BF16 || y->type == LQ_F32) && lq_aligned(y->p, y->type == LQ_F32 ? 8 : 4);
}

_Static_assert((int)LQ_W4S_JOINED == (int)LQ_MATS, "a launch takes all matrices of a call");

static bool same_form(const lq_w4s_form *a, const lq_w4s_form *b) {
    return a->kind == b->kind && a->bits == b->bits && a->group == b->group && a->group_shift == b->group_shift &&
           a->share_shift == b->share_shift && a->groups == b->groups && a->narrow == b->narrow;
}

static void w4s_run(lq_dev *d, lq_w4s_args *a, const lq_w4s_form *f, const lq_act *x, int experts) {
    const lq_cuda *c = lq_cuda_of(d);
    int n[LQ_W4S_JOINED], all = 0;
    a->x = x->x.p, a->x_stride = (int64_t)x->x.stride;
    a->parts = c->parts, a->arrived = c->arrived;
    if (!a->m) return;
    for (int i = 0; i < a->joined; i++) all += n[i] = a->of[i].n;
    const lq_w4s_on on = {c->capability, c->sms, c->shared, PARTS, 2 * (size_t)c->sms};
    const lq_tuned like = lq_w4s_tuned(f, c->capability);
    const lq_tuned *tuned = experts ? NULL : lq_tuned_find(lq_tuned_rows, LQ_TUNED_COUNT, &like, all, a->k, a->m);
    const lq_w4s_plan p = lq_w4s_plan_of(f, a->m, experts, n, a->joined, a->k, &on, tuned);
    lq_w4s_set(a, f, &p, c->sms);
    const lq_w4l_plan large =
        c->large && a->joined == 1 ? lq_w4l_plan_of(f, a->m, experts, n[0], c->sms) : (lq_w4l_plan){NULL, 0, 0};
    if (large.kernel) {
        lq_fast_launch(d, large.kernel->entry, a, sizeof *a,
                       (lq_gpu_grid){.blocks = large.x, .threads = LQ_W4L_THREADS, .shared = large.kernel->shared,
                                     .rows = large.y});
        return;
    }
    lq_fast_launch(d, p.kernel->entry, a, sizeof *a,
                   (lq_gpu_grid){.blocks = p.x, .threads = LQ_W4S_THREADS, .shared = p.kernel->shared, .rows = p.y,
                                 .cluster = p.cluster ? (unsigned)p.side : 0});
}

static lq_w4s_one one_of(const lq_w4s_matrix *m, const lq_weight *w, const lq_mat *y) {
    return (lq_w4s_one){.matrix = *m, .y = y->p, .y_stride = (int64_t)y->stride, .n = (int)w->n,
                        .f32 = y->type == LQ_F32};
}

int lq_fast_matmul(lq_dev *d, const lq_matmul_args *a, int first) {
    lq_w4s_form f, next;
    lq_w4s_args p = {.m = a->x->x.rows, .k = (int)a->w[first]->k, .count = 1, .top_k = 1};
    if (a->x->type.elem != LQ_F32) return lq_fast_w8a8(d, a, first);
    for (int i = first; i < a->count && p.joined < lq_fast_joined(p.m); i++) {
        lq_w4s_matrix m;
        if (!w4s_takes(a->x, a->w[i], &a->y[i]) || !w4s_of(a->w[i], a->bias[i], &next, &m)) break;
        if (p.joined && !same_form(&f, &next)) break;
        f = next;
        p.of[p.joined++] = one_of(&m, a->w[i], &a->y[i]);
    }
    if (p.joined) w4s_run(d, &p, &f, a->x, 0);
    for (int i = first; i < first + p.joined; i++)
        if (a->w[i]->outliers) lq_fast_apart(d, a->x, a->w[i], &a->y[i]);
    return p.joined;
}

bool lq_fast_stack(const lq_weight *w, const float *const *bias, int experts, lq_w4s_matrix *to) {
    lq_w4s_form f;
    for (int e = 0; e < experts; e++)
        if (!w4s_of(&w[e], bias ? bias[e] : NULL, &f, &to[e])) return false;
    return true;
}

int lq_fast_moe(lq_dev *d, const lq_moe_args *a, int first, const lq_cuda_stack *const *s) {
    lq_w4s_form f, next;
    lq_w4s_args p = {.m = a->slots, .k = (int)a->w[first]->k, .count = a->experts,
                     .top_k = a->x_by_slot ? 1 : a->top_k, .order = a->order, .start = a->start};
    if (a->x->type.elem != LQ_F32) return lq_fast_w8a8_moe(d, a, first, s);
    for (int i = first; i < a->count && p.joined < lq_fast_joined(p.m); i++) {
        lq_w4s_matrix m;
        if (!w4s_takes(a->x, a->w[i], &a->y[i])) break;
        if (!w4s_of(a->w[i], a->bias[i] ? *a->bias[i] : NULL, &next, &m)) break;
        if ((p.joined && !same_form(&f, &next)) || (s[i] ? !s[i]->fast : a->order != NULL)) break;
        f = next;
        lq_w4s_one *one = &p.of[p.joined++];
        *one = one_of(&m, a->w[i], &a->y[i]);
        if (s[i]) one->experts = lq_stack_fast(s[i], s[i]->dev);
    }
    if (p.joined) w4s_run(d, &p, &f, a->x, a->experts);
    for (int i = first; i < first + p.joined; i++)
        if (a->w[i]->outliers) lq_fast_apart_moe(d, a, i, s[i]);
    return p.joined;
}
