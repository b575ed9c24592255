// choose.c: the slots choose and arrange: rows by the moments of what they are multiplied with, GPTQ's spreading of
// errors beside plain rounding; and what is made of moments for that. Owns nothing: a call's scratch is the caller's.
// Rows are independent and what is summed has one order, so threads decide no bit.
#include "kernels/choose.h"
#include "kernels/cpu/slots.h"
#include <math.h>
#include <string.h>

// --- scratch ---

static void *piece(char *base, size_t *used, size_t bytes) {
    void *p = base && bytes ? base + *used : NULL;
    *used += (bytes + 63) / 64 * 64;
    return p;
}

static void lay_codes(lq_coded *c, const lq_choosing *of, char *base, size_t *used) {
    const size_t n = (size_t)of->n;
    c->q = piece(base, used, n * of->q_row);
    c->scale = piece(base, used, (size_t)of->bands * of->scale_row);
    c->zero = piece(base, used, n * of->zero_row);
}

size_t lq_choose_lay(const lq_choose_args *a, char *base, lq_choosing *out) {
    const lq_wtype *t = &a->a.type;
    lq_choosing c = {.a = *a, .n = a->a.w.rows, .k = a->a.w.cols, .groups = lq_weight_groups(t, a->a.w.cols),
                     .group = t->group ? t->group : a->a.w.cols, .band = t->rows > 1 ? t->rows : 1};
    const size_t n = (size_t)c.n, k = (size_t)c.k, cells = n * k * sizeof *c.w;
    size_t used = 0;
    c.bands = (c.n + c.band - 1) / c.band;
    c.q_row = t->kind == LQ_W_FLOAT ? k : lq_code_row_bytes(t->bits, c.k);
    c.scale_row = (size_t)c.groups * lq_dtype_size(t->scale);
    c.zero_row = t->asym ? lq_code_row_bytes(t->bits, c.groups) : 0;
    c.w = piece(base, &used, cells);
    c.work = piece(base, &used, cells);
    c.y = piece(base, &used, cells);
    c.back = piece(base, &used, cells);
    c.by = piece(base, &used, a->a.scale_by && a->order && a->stays ? n * (size_t)c.groups * sizeof *c.by : 0);
    lay_codes(&c.plain, &c, base, &used);
    lay_codes(&c.spread, &c, base, &used);
    if (c.band > 1) c.spread.scale = c.plain.scale;
    c.figure = piece(base, &used, 3 * n * sizeof *c.figure);
    c.lane = piece(base, &used, n * 2 * LQ_CHOOSE_LANES * sizeof *c.lane);
    c.place = piece(base, &used, k * sizeof *c.place);
    c.apart = piece(base, &used, k);
    c.bad = piece(base, &used, LQ_CHOOSE_ROUNDS * 2 * sizeof *c.bad);
    c.wide = piece(base, &used, LQ_CHOOSE_ROUNDS * sizeof *c.wide);
    *out = c;
    return used;
}

size_t lq_choose_bytes(const lq_choose_args *a) {
    lq_choosing c;
    return lq_choose_lay(a, NULL, &c);
}

// --- rows ---

lq_mat lq_choose_mat(const lq_choosing *c, float *p) {
    return (lq_mat){.p = p, .type = LQ_F32, .rows = (int)c->n, .cols = (int)c->k, .stride = (size_t)c->k};
}

static void coded(const lq_choosing *c, const lq_coded *to, lq_round_args *r) {
    if (c->by) r->scale_by = c->by;
    r->q = to->q, r->scale = to->scale, r->zero = to->zero;
}

void lq_choose_to(const lq_choosing *c, const lq_coded *to, lq_round_args *r) {
    coded(c, to, r);
    r->back = to->q ? c->back : NULL;
    r->error = c->figure, r->norm = c->figure + c->n, r->worst = c->figure + 2 * c->n;
}

void lq_choose_swept(const lq_choosing *c, const lq_coded *codes, lq_round_args *r) {
    *r = c->a.a;
    coded(c, codes, r);
    r->w = lq_choose_mat(c, c->w);
    r->u = NULL;
    r->back = c->back, r->slope = c->y;
}

// y = x h^T, h [k][k].
static void product(lq_dev *d, const lq_choosing *c, lq_mat x, const float *h) {
    const lq_weight w = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = c->k, .k = c->k, .q = h};
    const lq_act act = {.x = x};
    d->ops.matmul(d, &(lq_matmul_args){.x = &act, .count = 1, .w = {&w}, .y = {lq_choose_mat(c, c->y)}});
}

static void repay_row(void *arg, int row, int worker) {
    const lq_choosing *c = arg;
    float *w = lq_mat_row(&c->a.a.w, row);
    (void)worker;
    for (int64_t j = 0; j < c->k; j++) w[j] += c->y[(size_t)row * (size_t)c->k + (size_t)j];
}

static void order_row(void *arg, int row, int worker) {
    const lq_choosing *c = arg;
    float *from = lq_mat_row(&c->a.a.w, row), *w = c->w + (size_t)row * (size_t)c->k;
    (void)worker;
    for (int i = 0; i < c->a.aparts; i++) from[c->a.apart[i]] = 0;
    if (!c->a.order) memcpy(w, from, (size_t)c->k * sizeof *w);
    else for (int64_t j = 0; j < c->k; j++) w[j] = from[c->a.order[j]];
    for (int64_t g = 0; c->by && g < c->groups; g++)
        c->by[row * c->groups + g] = c->a.a.scale_by[row * c->groups + lq_choose_group(c, g)];
}

// work = w - back, of which product makes y.
static void differ_row(void *arg, int row, int worker) {
    const lq_choosing *c = arg;
    const size_t at = (size_t)row * (size_t)c->k;
    (void)worker;
    for (size_t j = at; j < at + (size_t)c->k; j++) c->work[j] = c->w[j] - c->back[j];
}

double lq_dot(const float *x, const float *y, size_t n) {
    double sum[LQ_CHOOSE_LANES] = {0};
    for (size_t i = 0; i < n; i++) sum[i % LQ_CHOOSE_LANES] += (double)x[i] * (double)y[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

typedef struct summed { const lq_choosing *c; const float *x; double *to; } summed;

static void sum_row(void *arg, int row, int worker) {
    const summed *s = arg;
    const size_t k = (size_t)s->c->k, at = (size_t)row * k;
    (void)worker;
    s->to[row] = lq_dot(s->x + at, s->c->y + at, k);
}

// x h x^T of each row of x [n][k].
static void quad(lq_dev *d, const lq_choosing *c, float *x, double *to) {
    product(d, c, lq_choose_mat(c, x), c->a.a.h);
    lq_pool_run(d->pool, sum_row, &(summed){c, x, to}, (int)c->n);
}

typedef struct figured { const lq_choosing *c; bool spread; } figured;

// What a row lost by the rounding that was done last, if that is the one it will have; work has the differences.
static void figures(void *arg, int row, int worker) {
    const figured *f = arg;
    const lq_choosing *c = f->c;
    const size_t k = (size_t)c->k, at = (size_t)row * k;
    double worst = 0;
    (void)worker;
    if (f->spread && !lq_choose_spread(c, row)) return;
    for (size_t j = 0; j < k; j++) {
        const double e = fabs((double)c->work[at + j]);
        worst = e > worst ? e : worst;
    }
    c->a.a.error[row] = lq_dot(c->work + at, c->work + at, k);
    c->a.a.norm[row] = lq_dot(c->w + at, c->w + at, k);
    c->a.a.worst[row] = worst;
}

// --- codes where they are stored ---

static void codes_home(const lq_choosing *c, uint8_t *q, const uint8_t *from) {
    const lq_wtype *t = &c->a.a.type;
    if (!c->a.order || !c->a.stays) {
        memcpy(q, from, c->q_row);
        return;
    }
    if (t->kind != LQ_W_FLOAT) memset(q, 0, c->q_row);
    for (int64_t j = 0; j < c->k; j++) {
        const int32_t at = c->a.order[j];
        if (t->kind == LQ_W_FLOAT) q[at] = from[j];
        else lq_code_set(q, t->bits, at, lq_code_get(from, t->bits, j));
    }
}

static void scales_home(const lq_choosing *c, uint8_t *scale, const uint8_t *from) {
    const size_t bytes = lq_dtype_size(c->a.a.type.scale);
    for (int64_t g = 0; g < c->groups; g++)
        memcpy(scale + (size_t)lq_choose_group(c, g) * bytes, from + (size_t)g * bytes, bytes);
}

static void zeros_home(const lq_choosing *c, uint8_t *zero, const uint8_t *from) {
    const int bits = c->a.a.type.bits;
    memset(zero, 0, c->zero_row);
    for (int64_t g = 0; g < c->groups; g++) lq_code_set(zero, bits, lq_choose_group(c, g), lq_code_get(from, bits, g));
}

static void home_row(void *arg, int task, int worker) {
    const lq_choosing *c = arg;
    const size_t row = (size_t)task, q = row * c->q_row, zero = row * c->zero_row;
    const size_t scale = row / (size_t)c->band * c->scale_row;
    const lq_coded *from = lq_choose_spread(c, task) ? &c->spread : &c->plain;
    (void)worker;
    codes_home(c, (uint8_t *)c->a.a.q + q, from->q + q);
    if (task % c->band == 0) scales_home(c, (uint8_t *)c->a.a.scale + scale, from->scale + scale);
    if (c->zero_row) zeros_home(c, (uint8_t *)c->a.a.zero + zero, from->zero + zero);
}

// --- the slot ---

// Figures of its own, and codes of one of the two. False: *bad or *wide says why there is no result.
static bool round_once(lq_dev *d, const lq_choosing *c, lq_round_args r, const lq_coded *to) {
    lq_choose_to(c, to, &r);
    d->ops.round(d, &r);
    return r.bad[0] < 0 && !*r.wide;
}

// y += damping * (w - back), where y is (w - back) h.
static void damp_row(void *arg, int row, int worker) {
    const lq_choosing *c = arg;
    const size_t at = (size_t)row * (size_t)c->k;
    (void)worker;
    for (size_t j = at; j < at + (size_t)c->k; j++) c->y[j] += c->a.a.damp * (c->w[j] - c->back[j]);
}

// Of w - back, which goes to work.
static void loss(lq_dev *d, const lq_choosing *c, double *to) {
    lq_pool_run(d->pool, differ_row, (void *)(uintptr_t)c, (int)c->n);
    quad(d, c, c->work, to);
}

// y is (w - back) h from the last product.
static void refine(lq_dev *d, const lq_choosing *c, const lq_coded *codes, double *to) {
    lq_round_args r;
    lq_pool_run(d->pool, damp_row, (void *)(uintptr_t)c, (int)c->n);
    lq_choose_swept(c, codes, &r);
    d->ops.refine(d, &r);
    loss(d, c, to);
}

static bool round_plain(lq_dev *d, const lq_choosing *c) {
    lq_round_args r = c->a.a;
    r.w = lq_choose_mat(c, c->w);
    r.u = NULL;
    if (c->band > 1) { // found here for both
        lq_round_args found = r;
        found.weight = NULL;
        if (!round_once(d, c, found, &(lq_coded){NULL, c->plain.scale, c->plain.zero})) return false;
        r.given_scale = c->plain.scale, r.given_zero = c->plain.zero;
    }
    if (!round_once(d, c, r, &c->plain)) return false;
    loss(d, c, c->a.plain);
    if (!c->a.a.u && r.sweeps) refine(d, c, &c->plain, c->a.plain);
    lq_pool_run(d->pool, figures, &(figured){c, false}, (int)c->n);
    return true;
}

static bool round_spread(lq_dev *d, const lq_choosing *c) {
    lq_round_args r = c->a.a;
    memcpy(c->work, c->w, (size_t)c->n * (size_t)c->k * sizeof *c->w);
    r.w = lq_choose_mat(c, c->work);
    if (c->band > 1) r.given_scale = c->plain.scale, r.given_zero = c->plain.zero;
    if (!round_once(d, c, r, &c->spread)) return false;
    loss(d, c, c->a.loss);
    if (r.sweeps) refine(d, c, &c->spread, c->a.loss);
    lq_pool_run(d->pool, figures, &(figured){c, true}, (int)c->n);
    return true;
}

void lq_choose_c(lq_dev *d, const lq_choose_args *a) {
    lq_choosing c;
    lq_choose_lay(a, a->work, &c);
    if (a->a.back) c.back = a->a.back;
    if (a->repay) {
        product(d, &c, a->a.w, a->repay);
        lq_pool_run(d->pool, repay_row, &c, (int)c.n);
    }
    lq_pool_run(d->pool, order_row, &c, (int)c.n);
    if (a->size) quad(d, &c, c.w, a->size);
    if (!round_plain(d, &c) || (a->a.u && !round_spread(d, &c))) return;
    lq_pool_run(d->pool, home_row, &c, (int)c.n);
    for (int64_t r = 0; r < c.n; r++)
        if (!lq_choose_spread(&c, r)) a->loss[r] = a->plain[r];
}

// --- arrange ---

// h [i][j] of the whole, from its upper half.
static double cell(const lq_arrange_args *a, int32_t i, int32_t j) {
    return a->h[(size_t)(i < j ? i : j) * (size_t)a->k + (size_t)(i < j ? j : i)];
}

static void arrange_row(void *arg, int i, int worker) {
    const lq_arrange_args *a = arg;
    const size_t k = (size_t)a->k, at = (size_t)i * k, from = (size_t)(a->order ? a->order[i] : i);
    (void)worker;
    if (a->diagonal) a->diagonal[i] = cell(a, i, i);
    for (size_t j = 0; (a->mean || a->u) && j < k; j++) {
        const double v = cell(a, (int32_t)from, a->order[j]) / a->rows;
        if (a->mean) a->mean[at + j] = (float)v;
        if (a->u) a->u[at + j] = j < (size_t)i ? 0 : v;
    }
    if (a->u) a->u[at + (size_t)i] += (double)a->added;
    for (size_t j = 0; a->g && j < k; j++)
        a->owed[at + j] = (a->g[from * k + j] - cell(a, (int32_t)from, (int32_t)j)) / a->rows;
    for (size_t j = 0; a->repay && j < k; j++) a->repay[from * k + j] = a->share * (float)a->owed[at + j];
}

void lq_arrange_c(lq_dev *d, const lq_arrange_args *a) {
    lq_pool_run(d->pool, arrange_row, (void *)(uintptr_t)a, a->k);
}
