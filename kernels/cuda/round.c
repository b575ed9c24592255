// round.c: the slots round and refine on a CUDA device: which kernels run in which order. Gives to the host what no
// kernel does yet (lq_plain_round_fits). Owns nothing: what kernels hand each other lies in the device's scratch, which
// grows with the largest call there was.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plain/round.h"

// A search over rows that share a scale sums over all of them in one order.
static bool fits(const lq_round_args *a) {
    const bool shared = a->type.kind != LQ_W_PLAIN && a->type.rows > 1;
    return lq_dtypes[a->w.type].number && (!shared || a->given_scale || a->fit != LQ_FIT_SEARCH);
}

static lq_gpu *gpu_of(const lq_dev *d) { return lq_cuda_of(d)->gpu; }
static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

// The next piece of the scratch; base NULL: it is measured.
static void *piece(char *base, size_t *used, size_t bytes) {
    void *p = base ? base + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return p;
}

static size_t lay_out(lq_plain_round *p, char *base, int64_t columns) {
    const lq_rounding *r = &p->r;
    const size_t n = (size_t)r->n, cells = n * (size_t)r->groups, f = sizeof(float);
    const size_t stripes = (n + LQ_ROUND_STRIPE - 1) / LQ_ROUND_STRIPE;
    size_t used = 0;
    p->to = piece(base, &used, n * sizeof *p->to);
    p->range = piece(base, &used, r->band > 1 ? 2 * cells * f : 0);
    p->z = piece(base, &used, r->a.type.asym ? cells * sizeof *p->z : 0);
    p->top = piece(base, &used, n * f);
    p->lane = piece(base, &used, n * LQ_ROUND_LANES * 3 * f);
    p->e = piece(base, &used, (size_t)columns * n * f);
    p->less = piece(base, &used, (size_t)columns * n * f);
    p->u = piece(base, &used, r->a.u ? LQ_ROUND_BLOCK * (size_t)r->k * f : 0);
    p->hears = piece(base, &used, n);
    p->live = piece(base, &used, n);
    p->changed = piece(base, &used, n);
    p->bad = piece(base, &used, stripes * sizeof *p->bad);
    return used;
}

// columns: whose errors lie there at once.
static bool open_call(lq_dev *d, const lq_round_args *a, int64_t columns, lq_plain_round *p) {
    *p = (lq_plain_round){.r = lq_rounding_of(a)};
    char *base = lq_cuda_work(d, lay_out(p, NULL, columns));
    if (base) lay_out(p, base, columns);
    return base != NULL;
}

// What the columns at hand are to be heard by: all but from .. end.
static void spread(lq_dev *d, const lq_plain_round *p, lq_plain_spread s) {
    const int64_t sets = (p->r.n + LQ_ROUND_TOGETHER - 1) / LQ_ROUND_TOGETHER;
    s.e = p->e, s.hears = p->hears, s.n = p->r.n, s.k = p->r.k, s.b0 = p->b0, s.b1 = p->b1;
    lq_plain_spread_run(gpu_of(d), &s, (size_t)(sets * (s.from + s.k - s.end)));
}

// Groups of up to a block's columns lie whole in one, larger ones are cut: a group's range is taken when all before it
// are done.
static int64_t block_end(const lq_rounding *r, int64_t b) {
    if (r->group <= LQ_ROUND_BLOCK) return least_of(b + LQ_ROUND_BLOCK / r->group * r->group, r->k);
    return least_of(least_of(b + LQ_ROUND_BLOCK, (b / r->group + 1) * r->group), r->k);
}

static void round_spread(lq_dev *d, lq_plain_round *p) {
    const lq_rounding *r = &p->r;
    const size_t n = (size_t)r->n;
    for (p->b0 = 0; p->b0 < r->k; p->b0 = p->b1) {
        p->b1 = block_end(r, p->b0);
        lq_plain_round_u_run(gpu_of(d), p, (size_t)((p->b1 - p->b0) * r->k));
        lq_plain_round_block_run(gpu_of(d), p, n);
        spread(d, p, (lq_plain_spread){.x = r->a.w.p, .x_stride = r->a.w.stride, .u = p->u, .u_stride = (size_t)r->k,
                                       .end = p->b1});
    }
    lq_plain_round_end_run(gpu_of(d), p, n);
}

static void round_nearest(lq_dev *d, const lq_plain_round *p) {
    const lq_rounding *r = &p->r;
    const size_t n = (size_t)r->n, k = (size_t)r->k, groups = (size_t)r->groups;
    const bool apart = r->a.type.kind == LQ_W_FLOAT || r->a.type.kind == LQ_W_PLAIN;
    lq_gpu *g = gpu_of(d);
    if (r->a.type.kind != LQ_W_PLAIN && !r->a.given_scale) {
        if (r->band > 1) lq_plain_round_range_run(g, p, n * groups);
        lq_plain_round_fit_run(g, p, (size_t)((r->n + r->band - 1) / r->band) * groups);
        if (r->a.type.asym) lq_plain_round_zeros_run(g, p, n * (r->zero_row / 4));
    }
    if (!r->a.q) return;
    lq_plain_round_codes_run(g, p, n * (apart ? k : r->q_row / 4));
    if (r->a.type.kind != LQ_W_PLAIN) {
        lq_plain_round_top_run(g, p, n);
        lq_plain_round_lanes_run(g, p, n * LQ_ROUND_LANES);
    }
    lq_plain_round_figures_run(g, p, n);
    if (r->a.back) lq_plain_round_back_run(g, p, n * k);
}

static void round_rows(lq_dev *d, const lq_round_args *a) {
    const lq_wtype *t = &a->type;
    const size_t n = (size_t)a->w.rows;
    lq_plain_round p;
    lq_weight_size size;
    if (!fits(a)) {
        lq_cuda_host_round(d, a);
        return;
    }
    if (!open_call(d, a, LQ_ROUND_BLOCK, &p)) return;
    lq_plain_round_begin_run(gpu_of(d), &p, n);
    if (t->kind != LQ_W_PLAIN && a->given_scale && lq_weight_sizes(t, p.r.n, p.r.k, &size)) {
        if (a->scale != a->given_scale) lq_gpu_copy(gpu_of(d), a->scale, a->given_scale, size.scale);
        if (t->asym && a->zero != a->given_zero) lq_gpu_copy(gpu_of(d), a->zero, a->given_zero, size.zero);
    }
    if (a->u) round_spread(d, &p);
    else round_nearest(d, &p);
    lq_plain_round_stripes_run(gpu_of(d), &p, (n + LQ_ROUND_STRIPE - 1) / LQ_ROUND_STRIPE);
    lq_plain_round_bad_run(gpu_of(d), &p, 1);
}

// The scales of all groups, one after the other: what moves is spread like errors.
static void refine_scales(lq_dev *d, lq_plain_round *p) {
    const lq_rounding *r = &p->r;
    for (p->b0 = 0; p->b0 < r->k; p->b0 = p->b1) {
        p->b1 = least_of(p->b0 + r->group, r->k);
        if (p->b1 - p->b0 > LQ_REFINED) continue;
        const size_t values = (size_t)((p->b1 - p->b0) * r->n);
        lq_plain_refine_values_run(gpu_of(d), p, values);
        lq_plain_refine_less_run(gpu_of(d), p, values);
        lq_plain_refine_scale_run(gpu_of(d), p, (size_t)r->n);
        spread(d, p, (lq_plain_spread){.x = r->a.slope, .x_stride = (size_t)r->k, .u = r->a.h + p->b0 * r->k,
                                       .u_stride = (size_t)r->k, .from = r->k, .end = r->k, .damps = true,
                                       .damp = r->a.damp});
    }
}

static void refine(lq_dev *d, const lq_round_args *a) {
    const int64_t group = a->type.group && a->type.group < a->w.cols ? a->type.group : a->w.cols;
    const size_t n = (size_t)a->w.rows;
    lq_plain_round p;
    if (!open_call(d, a, group > LQ_REFINED || group < LQ_ROUND_BLOCK ? LQ_ROUND_BLOCK : group, &p)) return;
    const lq_rounding *r = &p.r;
    lq_plain_refine_begin_run(gpu_of(d), &p, n);
    for (int sweep = 0; sweep < a->sweeps; sweep++) {
        for (p.b0 = 0; p.b0 < r->k; p.b0 = p.b1) {
            p.b1 = least_of(p.b0 + LQ_ROUND_BLOCK, r->k);
            lq_plain_refine_block_run(gpu_of(d), &p, n);
            spread(d, &p, (lq_plain_spread){.x = a->slope, .x_stride = (size_t)r->k, .u = a->h + p.b0 * r->k,
                                            .u_stride = (size_t)r->k, .from = p.b0, .end = p.b1, .sparse = true});
        }
        if (r->band == 1) refine_scales(d, &p);
        lq_plain_refine_turn_run(gpu_of(d), &p, n);
    }
    if (a->back) lq_plain_round_back_run(gpu_of(d), &p, n * (size_t)r->k);
}

void lq_cuda_round_slots(lq_ops *o) {
    o->round = round_rows;
    o->refine = refine;
}
