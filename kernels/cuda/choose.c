// choose.c: the slot choose on a CUDA device: which kernels, roundings and products of a library run in which order.
// Rows go by the library TOGETHER at a time from the call's first, as its bits depend on how many they are. Owns
// nothing: the scratch is the caller's, and round's and refine's own.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plain/choose.h"
#include "kernels/cuda/solver.h"

enum { TOGETHER = 2048 };

static lq_gpu *gpu_of(const lq_dev *d) { return lq_cuda_of(d)->gpu; }

// y = x h^T
static void product(lq_dev *d, const lq_choosing *c, const lq_mat *x, const float *h) {
    lq_solver *s = lq_cuda_solver(d);
    lq_err err;
    for (int64_t r = 0; s && r < c->n; r += TOGETHER) {
        const int rows = (int)(c->n - r < TOGETHER ? c->n - r : TOGETHER), k = (int)c->k;
        if (lq_solver_apply(s, (const float *)x->p + (size_t)r * x->stride, x->stride, rows, h, k, k, c->y + r * c->k,
                            &err)) continue;
        lq_cuda_break(d, &err);
        return;
    }
}

static void dots(lq_dev *d, const lq_choosing *c, lq_plain_dots s) {
    s.c = *c;
    lq_plain_choose_dots_run(gpu_of(d), &s, (size_t)c->n * LQ_CHOOSE_LANES);
    lq_plain_choose_sums_run(gpu_of(d), &s, (size_t)c->n);
}

static void quad(lq_dev *d, const lq_choosing *c, float *x, double *to) {
    const lq_mat m = lq_choose_mat(c, x);
    product(d, c, &m, c->a.a.h);
    dots(d, c, (lq_plain_dots){.x = x, .y = c->y, .to = to});
}

// Of w - back, which goes to work.
static void loss(lq_dev *d, const lq_plain_choose *p, double *to) {
    lq_plain_choose_differ_run(gpu_of(d), p, (size_t)(p->c.n * p->c.k));
    quad(d, &p->c, p->c.work, to);
}

static void figures(lq_dev *d, const lq_choosing *c, bool spread) {
    const lq_round_args *a = &c->a.a;
    dots(d, c, (lq_plain_dots){.x = c->work, .y = c->work, .to = a->error, .most = a->worst, .better = spread});
    dots(d, c, (lq_plain_dots){.x = c->w, .y = c->w, .to = a->norm, .better = spread});
}

// As in cpu/choose.c; which: of the calls of round.
static void round_once(lq_dev *d, const lq_choosing *c, lq_round_args r, int which, const lq_coded *to) {
    lq_choose_to(c, to, &r);
    r.bad = c->bad + 2 * which, r.wide = c->wide + which;
    d->ops.round(d, &r);
}

static void refine(lq_dev *d, const lq_plain_choose *p, const lq_coded *codes, double *to) {
    const lq_choosing *c = &p->c;
    lq_round_args r;
    lq_plain_choose_damp_run(gpu_of(d), p, (size_t)(c->n * c->k));
    lq_choose_swept(c, codes, &r);
    d->ops.refine(d, &r);
    loss(d, p, to);
}

static void round_plain(lq_dev *d, const lq_plain_choose *p) {
    const lq_choosing *c = &p->c;
    lq_round_args r = c->a.a;
    r.w = lq_choose_mat(c, c->w);
    r.u = NULL;
    if (c->band > 1) {
        lq_round_args found = r;
        found.weight = NULL;
        round_once(d, c, found, 2, &(lq_coded){NULL, c->plain.scale, c->plain.zero});
        r.given_scale = c->plain.scale, r.given_zero = c->plain.zero;
    }
    round_once(d, c, r, 0, &c->plain);
    loss(d, p, c->a.plain);
    if (!c->a.a.u && r.sweeps) refine(d, p, &c->plain, c->a.plain);
    figures(d, c, false);
}

static void round_spread(lq_dev *d, const lq_plain_choose *p) {
    const lq_choosing *c = &p->c;
    lq_round_args r = c->a.a;
    lq_gpu_copy(gpu_of(d), c->work, c->w, (size_t)c->n * (size_t)c->k * sizeof *c->w);
    r.w = lq_choose_mat(c, c->work);
    if (c->band > 1) r.given_scale = c->plain.scale, r.given_zero = c->plain.zero;
    round_once(d, c, r, 1, &c->spread);
    loss(d, p, c->a.loss);
    if (r.sweeps) refine(d, p, &c->spread, c->a.loss);
    figures(d, c, true);
}

// w as f32 where it is not, in what `back` will be.
static void repay(lq_dev *d, lq_plain_choose *p) {
    lq_mat x = p->c.a.a.w;
    if (x.type != LQ_F32) {
        lq_plain_choose plain = *p;
        plain.c.a.order = NULL, plain.c.w = p->c.back;
        x = lq_choose_mat(&p->c, p->c.back);
        lq_plain_choose_order_run(gpu_of(d), &plain, (size_t)(p->c.n * p->c.k));
    }
    product(d, &p->c, &x, p->c.a.repay);
    p->repaid = true;
}

static void choose(lq_dev *d, const lq_choose_args *a) {
    lq_plain_choose p = {.repaid = false};
    lq_choosing *c = &p.c;
    lq_gpu *g = gpu_of(d);
    static const int64_t none[2 * LQ_CHOOSE_ROUNDS] = {-1, -1, -1, -1, -1, -1};
    static const bool narrow[LQ_CHOOSE_ROUNDS];
    lq_choose_lay(a, a->work, c);
    if (a->a.back) c->back = a->a.back;
    const size_t n = (size_t)c->n, cells = n * (size_t)c->k, apart = a->a.type.kind == LQ_W_FLOAT;
    lq_gpu_put(g, c->bad, none, sizeof none);
    lq_gpu_put(g, c->wide, narrow, sizeof narrow);
    lq_plain_choose_columns_run(g, &p, (size_t)c->k);
    if (a->repay) repay(d, &p);
    if (a->aparts) lq_plain_choose_apart_run(g, &p, (size_t)a->aparts);
    lq_plain_choose_order_run(g, &p, cells);
    if (c->by) lq_plain_choose_scales_run(g, &p, n * (size_t)c->groups);
    if (a->size) quad(d, c, c->w, a->size);
    round_plain(d, &p);
    if (a->a.u) round_spread(d, &p);
    lq_plain_choose_codes_run(g, &p, n * (apart ? (size_t)c->k : c->q_row / 4));
    lq_plain_choose_groups_run(g, &p, (size_t)(c->bands * c->groups));
    if (c->zero_row) lq_plain_choose_zeros_run(g, &p, n * (c->zero_row / 4));
    lq_plain_choose_end_run(g, &p, n);
}

void lq_cuda_choose_slots(lq_ops *o) { o->choose = choose; }
