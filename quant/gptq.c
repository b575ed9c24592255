// gptq.c: rounding with what is known of a matrix's input: GPTQ's spreading of errors over the columns that are still
// to be rounded, in an order of its own, and the choice row by row between it and plain rounding. Owns what is made of
// an input once for all its matrices, and the scratch of a band of rows.
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DAMPINGS = 6 }; // how often the damping grows tenfold before an input is given up

// --- an input ---

static double diagonal(const lq_watch *w, int64_t j) { return w->h[(size_t)j * (size_t)w->k + (size_t)j]; }

// Groups are moved whole; the last one, if it is shorter, stays the last.
static void order_columns(const lq_watch *w, const lq_recipe *r, lq_ranked *by, int32_t *out) {
    const bool grouped = r->order == LQ_ORDER_GROUPS && r->type.group;
    const int64_t k = w->k, size = grouped ? r->type.group : k, whole = grouped ? k / size : 0;
    for (int64_t j = 0; j < k; j++) out[j] = (int32_t)j;
    if (r->order == LQ_ORDER_NONE) return;
    for (int64_t g = 0; g < whole; g++) {
        by[g] = (lq_ranked){0, g};
        for (int64_t j = g * size; j < (g + 1) * size; j++) by[g].size += diagonal(w, j);
    }
    lq_rank(by, (size_t)whole);
    for (int64_t g = 0; g < whole; g++)
        for (int64_t j = 0; j < size; j++) out[g * size + j] = (int32_t)(by[g].at * size + j);
    for (int64_t g = 0; g < k; g += size) {
        const int64_t n = k - g < size ? k - g : size;
        for (int64_t j = 0; j < n; j++) by[j] = (lq_ranked){diagonal(w, out[g + j]), out[g + j]};
        lq_rank(by, (size_t)n);
        for (int64_t j = 0; j < n; j++) out[g + j] = (int32_t)by[j].at;
    }
}

// h [i][j] of the whole, from its upper half.
static double cell(const lq_watch *w, int32_t i, int32_t j) {
    return w->h[(size_t)(i < j ? i : j) * (size_t)w->k + (size_t)(i < j ? j : i)];
}

typedef struct filled { const lq_watch *w; lq_solve *s; } filled;

static void fill_row(void *arg, int i, int worker) {
    const filled *a = arg;
    const size_t k = (size_t)a->w->k;
    double *u = a->s->u ? a->s->u + (size_t)i * k : NULL;
    (void)worker;
    for (size_t j = 0; j < k; j++) {
        const double v = cell(a->w, a->s->order[i], a->s->order[j]) / (double)a->w->rows;
        a->s->h[(size_t)i * k + j] = (float)v;
        if (u) u[j] = (int)j < i ? 0 : v;
    }
    a->s->weight[i] = a->s->h[(size_t)i * k + (size_t)i];
    if (u) u[i] += (double)a->s->added;
}

// u of h and so much on its diagonal; more where that has no factor.
static bool factor(lq_dev *dev, const lq_watch *w, const lq_recipe *r, lq_solve *s, lq_err *err) {
    double mean = 0;
    bool ok = false;
    for (int64_t j = 0; j < w->k; j++) mean += diagonal(w, j) / (double)w->rows / (double)w->k;
    s->damp = r->damp > 0 ? (double)r->damp : 0.01;
    for (int i = 0; i < DAMPINGS && !ok; i++) {
        if (i) s->damp *= 10;
        s->added = mean > 0 ? (float)(s->damp * mean) : 1;
        lq_pool_run(dev->pool, fill_row, &(filled){w, s}, (int)w->k);
        dev->ops.factor(dev, &(lq_factor_args){.h = s->u, .n = (int)w->k, .ok = &ok});
        if (!dev->ops.sync(dev, err)) return false;
    }
    if (ok) return true;
    lq_room_close(s->rooms, s->u);
    s->u = NULL;
    return true;
}

// With G the moments of the inputs as they are now and as they were, least squares makes of a row w: w G^T H^-1. Of
// that, a share: w + share * w (G - H)^T (H + damping)^-1.
static bool repay(lq_dev *dev, const lq_watch *w, const lq_recipe *r, lq_solve *s, lq_err *err) {
    const size_t k = (size_t)w->k;
    double *d = NULL;
    int32_t *back = malloc(k * sizeof *back);
    bool done = back || lq_fail(err, LQ_E_MEMORY, "no memory for an input of %zu columns", k);
    done = done && (d = lq_room_open(s->rooms, k * k * sizeof *d, err)) != NULL &&
           (s->repay = lq_room_open(s->rooms, k * k * sizeof *s->repay, err)) != NULL;
    for (size_t i = 0; done && i < k; i++) {
        const size_t from = (size_t)s->order[i];
        back[from] = (int32_t)i;
        for (size_t j = 0; j < k; j++)
            d[i * k + j] = (w->g[from * k + j] - cell(w, (int32_t)from, (int32_t)j)) / (double)w->rows;
    }
    if (done) dev->ops.solve(dev, &(lq_solve_args){.u = s->u, .n = (int)k, .b = d, .cols = (int)k});
    done = done && dev->ops.sync(dev, err);
    for (size_t i = 0; done && i < k * k; i++)
        s->repay[i] = r->repay * (float)d[(size_t)back[i / k] * k + i % k];
    lq_room_close(s->rooms, d);
    free(back);
    return done;
}

bool lq_solve_make(lq_dev *dev, const lq_watch *w, const lq_recipe *r, lq_solve *s, lq_err *err) {
    const size_t k = (size_t)w->k;
    const bool spreads = r->rounding == LQ_ROUND_GPTQ;
    lq_ranked *by = malloc(k * sizeof *by);
    *s = (lq_solve){.rooms = w->rooms, .dev = dev, .k = w->k, .stays = !spreads || r->order != LQ_ORDER_COLUMNS,
                    .sweeps = r->refine, .even = spreads && r->range == LQ_RANGE_MSE,
                    .clips = !spreads && r->transform & LQ_T_CLIP};
    s->order = malloc(k * sizeof *s->order);
    s->weight = malloc(k * sizeof *s->weight);
    bool done = (by && s->order && s->weight) ||
                lq_fail(err, LQ_E_MEMORY, "no memory for an input of %zu columns", k);
    done = done && (!spreads || (s->u = lq_room_open(s->rooms, k * k * sizeof *s->u, err)) != NULL) &&
           (s->h = lq_room_open(s->rooms, k * k * sizeof *s->h, err)) != NULL;
    if (done) order_columns(w, spreads ? r : &(lq_recipe){0}, by, s->order);
    for (size_t i = 0; done && i < k; i++) s->turns |= s->order[i] != (int32_t)i;
    free(by);
    if (done && !spreads) lq_pool_run(dev->pool, fill_row, &(filled){w, s}, (int)w->k);
    else done = done && factor(dev, w, r, s, err) && (!w->g || !s->u || r->repay == 0 || repay(dev, w, r, s, err));
    if (done && s->u) lq_lend_hold(dev, s->u, k * k * sizeof *s->u);
    if (done && s->u && s->sweeps) lq_lend_hold(dev, s->h, k * k * sizeof *s->h);
    if (!done) lq_solve_close(s);
    return done;
}

bool lq_solve_room(lq_solve *s, int64_t rows, lq_err *err) {
    const size_t want = 5 * (size_t)rows * (size_t)s->k;
    if (want <= s->room) return true;
    free(s->band);
    s->band = malloc(want * sizeof *s->band);
    s->room = s->band ? want : 0;
    return s->band || lq_fail(err, LQ_E_MEMORY, "no memory for %lld rows of %lld", (long long)rows, (long long)s->k);
}

void lq_solve_close(lq_solve *s) {
    lq_lend_drop(s->dev, s->u);
    lq_lend_drop(s->dev, s->h);
    free(s->order);
    free(s->band);
    lq_room_close(s->rooms, s->u);
    lq_room_close(s->rooms, s->h);
    lq_room_close(s->rooms, s->repay);
    free(s->weight);
    *s = (lq_solve){0};
}

// --- rows ---

typedef struct band {
    const lq_solve *s;
    const lq_round_args *a;
    int64_t n, k;
    size_t q_row, scale_row, zero_row; // bytes
    float *w, *work, *back, *y;        // [n][k] in order: as wanted, spoilt, as rounded, products
    uint8_t *plain;                    // codes, scales and zero points of plain rounding
    float *by;                         // [n][groups] what a scale in dq256 has, in order; NULL: they stand as they are
    double *loss, *plain_loss;         // [n] of the two roundings
    double *own;                       // [3][n] for the slot
    double *hidden[2];                 // [n] what the MLP loses by them, if that counts
    bool spread;                       // the second has been done
} band;

// Whether a row has the second.
static bool better(const band *b, size_t row) {
    return b->spread && b->loss[row] < b->plain_loss[row] &&
           (!b->s->hidden || b->hidden[1][row] < b->hidden[0][row]);
}

static lq_mat mat_of(const band *b, float *p) {
    return (lq_mat){.p = p, .type = LQ_F32, .rows = (int)b->n, .cols = (int)b->k, .stride = (size_t)b->k};
}

// y = x h^T, h [k][k].
static void product(lq_dev *dev, const band *b, float *x, const float *h) {
    const lq_weight w = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = b->k, .k = b->k, .q = h};
    const lq_act act = {.x = mat_of(b, x)};
    dev->ops.matmul(dev, &(lq_matmul_args){.x = &act, .count = 1, .w = {&w}, .y = {mat_of(b, b->y)}});
}

static void repay_row(void *arg, int row, int worker) {
    const band *b = arg;
    float *w = (float *)b->a->w.p + (size_t)row * b->a->w.stride;
    (void)worker;
    for (int64_t j = 0; j < b->k; j++) w[j] += b->y[(size_t)row * (size_t)b->k + (size_t)j];
}

static void order_row(void *arg, int row, int worker) {
    const band *b = arg;
    float *from = (float *)b->a->w.p + (size_t)row * b->a->w.stride;
    float *w = b->w + (size_t)row * (size_t)b->k;
    (void)worker;
    for (int i = 0; b->s->apart && i < b->s->apart->count; i++) from[b->s->apart->column[i]] = 0;
    if (!b->s->turns) memcpy(w, from, (size_t)b->k * sizeof *w);
    else for (int64_t j = 0; j < b->k; j++) w[j] = from[b->s->order[j]];
    memcpy(b->work + (size_t)row * (size_t)b->k, w, (size_t)b->k * sizeof *w);
}

// work = w - back, of which product makes y.
static void differ_row(void *arg, int row, int worker) {
    const band *b = arg;
    const size_t at = (size_t)row * (size_t)b->k;
    (void)worker;
    for (size_t j = at; j < at + (size_t)b->k; j++) b->work[j] = b->w[j] - b->back[j];
    for (size_t j = 0; b->s->under && j < (size_t)b->k; j++) b->work[at + j] /= b->s->under[j];
}

typedef struct summed { const band *b; const float *x, *y; double *to; } summed;

static void sum_row(void *arg, int row, int worker) {
    const summed *s = arg;
    const size_t k = (size_t)s->b->k, at = (size_t)row * k;
    (void)worker;
    s->to[row] = lq_dot(s->x + at, s->y + at, k);
}

// |X x^T|^2 of each row of x [n][k].
static void quad(lq_dev *dev, const band *b, float *x, double *to) {
    product(dev, b, x, b->s->h);
    lq_pool_run(dev->pool, sum_row, &(summed){b, x, b->y, to}, (int)b->n);
}

// What a row lost by the rounding that was done last, if that is the one it will have; work has the differences.
static void figures(void *arg, int row, int worker) {
    const band *b = arg;
    const size_t at = (size_t)row * (size_t)b->k;
    double worst = 0;
    (void)worker;
    if (b->spread && !better(b, (size_t)row)) return;
    for (int64_t j = 0; j < b->k; j++) {
        const double e = fabs((double)b->work[at + (size_t)j]);
        worst = e > worst ? e : worst;
    }
    b->a->error[row] = lq_dot(b->work + at, b->work + at, (size_t)b->k);
    b->a->norm[row] = lq_dot(b->w + at, b->w + at, (size_t)b->k);
    b->a->worst[row] = worst;
}

// Codes of a row as they were rounded, to where their columns stand.
static void codes_home(const band *b, uint8_t *q, const uint8_t *from) {
    const lq_wtype *t = &b->a->type;
    if (t->kind != LQ_W_FLOAT) memset(q, 0, b->q_row);
    for (int64_t j = 0; j < b->k; j++) {
        const int32_t at = b->s->order[j];
        if (t->kind == LQ_W_FLOAT) q[at] = from[j];
        else lq_code_set(q, t->bits, at, lq_code_get(from, t->bits, j));
    }
}

// Group g of the order stands where its first column does.
static void groups_home(const band *b, uint8_t *scale, uint8_t *zero, const uint8_t *from, const uint8_t *from_zero) {
    const lq_wtype *t = &b->a->type;
    const int64_t groups = lq_weight_groups(t, b->k), size = t->group ? t->group : b->k;
    const size_t bytes = lq_dtype_size(t->scale);
    if (t->asym) memset(zero, 0, b->zero_row);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t at = b->s->order[g * size] / size;
        memcpy(scale + (size_t)at * bytes, from + (size_t)g * bytes, bytes);
        if (t->asym) lq_code_set(zero, t->bits, at, lq_code_get(from_zero, t->bits, g));
    }
}

// Of a row: the codes that lose less, where its columns stand. plain: [n] codes, [n] scales, [n] zero points.
static void choose_row(void *arg, int task, int worker) {
    const band *b = arg;
    const size_t row = (size_t)task;
    const bool own = b->a->type.rows <= 1; // scales of its own
    uint8_t *q = (uint8_t *)b->a->q + row * b->q_row, *scale = (uint8_t *)b->a->scale + row * b->scale_row;
    uint8_t *zero = b->a->zero ? (uint8_t *)b->a->zero + row * b->zero_row : NULL;
    uint8_t *pq = b->plain + row * b->q_row, *ps = b->plain + (size_t)b->n * b->q_row + row * b->scale_row;
    uint8_t *pz = b->plain + (size_t)b->n * (b->q_row + b->scale_row) + row * b->zero_row;
    (void)worker;
    if (better(b, row)) {
        memcpy(pq, q, b->q_row);
        if (own) memcpy(ps, scale, b->scale_row);
        if (zero) memcpy(pz, zero, b->zero_row);
    }
    if (b->s->stays && b->s->turns) {
        codes_home(b, q, pq);
        if (own) groups_home(b, scale, zero, ps, pz);
        return;
    }
    memcpy(q, pq, b->q_row);
    if (own) memcpy(scale, ps, b->scale_row);
    if (zero) memcpy(zero, pz, b->zero_row);
}

// What codes of scales have that belong to them, in the order of the groups.
static bool order_levels(band *b, lq_err *err) {
    const lq_wtype *t = &b->a->type;
    const int64_t groups = lq_weight_groups(t, b->k), size = t->group ? t->group : b->k;
    if (!b->a->scale_by || !b->s->stays) return true;
    if (!(b->by = malloc((size_t)(b->n * groups) * sizeof *b->by)))
        return lq_fail(err, LQ_E_MEMORY, "no memory for the scales of %lld rows", (long long)b->n);
    for (int64_t i = 0; i < b->n * groups; i++)
        b->by[i] = b->a->scale_by[i - i % groups + b->s->order[i % groups * size] / size];
    return true;
}

static bool band_open(band *b, const lq_solve *s, const lq_round_args *a, const lq_solved *out, lq_err *err) {
    const lq_wtype *t = &a->type;
    *b = (band){.s = s, .a = a, .n = a->w.rows, .k = s->k, .loss = out->loss, .plain_loss = out->plain};
    const size_t cells = (size_t)b->n * (size_t)b->k, groups = (size_t)lq_weight_groups(t, b->k);
    b->q_row = t->kind == LQ_W_FLOAT ? (size_t)b->k : lq_code_row_bytes(t->bits, b->k);
    b->scale_row = groups * lq_dtype_size(t->scale);
    b->zero_row = t->asym ? lq_code_row_bytes(t->bits, (int64_t)groups) : 0;
    b->plain = malloc((size_t)b->n * (b->q_row + b->scale_row + b->zero_row));
    b->own = malloc(5 * (size_t)b->n * sizeof *b->own);
    if (!b->plain || !b->own)
        return lq_fail(err, LQ_E_MEMORY, "no memory for %lld rows of %lld", (long long)b->n, (long long)b->k);
    b->hidden[0] = b->own + 3 * b->n, b->hidden[1] = b->own + 4 * b->n;
    b->w = s->band + cells, b->work = b->w + cells, b->back = b->work + cells, b->y = b->back + cells;
    return order_levels(b, err);
}

static void band_close(band *b) {
    free(b->plain);
    free(b->own);
    free(b->by);
}

// One of the two roundings of w; false: *bad or *wide says why there is no result.
static bool round_once(lq_dev *dev, const band *b, lq_round_args r, double *loss, lq_err *err) {
    r.back = b->back;
    r.weight = b->s->even ? NULL : b->s->weight;
    r.error = b->own, r.norm = b->own + b->n, r.worst = b->own + 2 * b->n;
    dev->ops.round(dev, &r);
    if (!dev->ops.sync(dev, err) || r.bad[0] >= 0 || *r.wide) return false;
    lq_pool_run(dev->pool, differ_row, (void *)(uintptr_t)b, (int)b->n);
    quad(dev, b, b->work, loss);
    return dev->ops.sync(dev, err);
}

static bool round_plain(lq_dev *dev, const band *b, lq_err *err) {
    lq_round_args r = *b->a;
    if (b->by) r.scale_by = b->by;
    uint8_t *scale = b->plain + (size_t)b->n * b->q_row;
    r.w = mat_of(b, b->w);
    r.q = NULL;
    if (b->s->clips) r.fit = LQ_FIT_RANGE;
    if (b->a->type.rows > 1) { // found here for both
        r.error = b->own, r.norm = b->own + b->n, r.worst = NULL;
        dev->ops.round(dev, &r);
        if (!dev->ops.sync(dev, err) || r.bad[0] >= 0 || *r.wide) return false;
        r.given_scale = r.scale, r.given_zero = r.zero;
    } else {
        r.scale = scale;
        r.zero = scale + (size_t)b->n * b->scale_row;
    }
    r.q = b->plain;
    return round_once(dev, b, r, b->plain_loss, err);
}

// y += damping * (w - back), where y is (w - back) h.
static void damp_row(void *arg, int row, int worker) {
    const band *b = arg;
    const size_t at = (size_t)row * (size_t)b->k;
    (void)worker;
    for (size_t j = at; j < at + (size_t)b->k; j++) b->y[j] += b->s->added * (b->w[j] - b->back[j]);
}

static bool round_spread(lq_dev *dev, const band *b, lq_err *err) {
    lq_round_args r = *b->a;
    if (b->by) r.scale_by = b->by;
    memcpy(b->work, b->w, (size_t)b->n * (size_t)b->k * sizeof *b->w);
    r.w = mat_of(b, b->work);
    r.u = b->s->u;
    if (r.type.rows > 1) r.given_scale = r.scale, r.given_zero = r.zero;
    if (!round_once(dev, b, r, b->loss, err)) return false;
    if (!b->s->sweeps) return true;
    // y is (w - back) h from the last product.
    lq_pool_run(dev->pool, damp_row, (void *)(uintptr_t)b, (int)b->n);
    r.w = mat_of(b, b->w);
    r.u = NULL;
    r.back = b->back, r.h = b->s->h, r.damp = b->s->added, r.sweeps = b->s->sweeps, r.slope = b->y;
    dev->ops.refine(dev, &r);
    if (!dev->ops.sync(dev, err)) return false;
    lq_pool_run(dev->pool, differ_row, (void *)(uintptr_t)b, (int)b->n);
    quad(dev, b, b->work, b->loss);
    return dev->ops.sync(dev, err);
}

bool lq_solve_rows(lq_dev *dev, const lq_solve *s, int64_t first, lq_round_args *a, const lq_solved *out, lq_err *err) {
    band b;
    bool done = band_open(&b, s, a, out, err);
    a->bad[0] = a->bad[1] = -1;
    *a->wide = false;
    if (done && s->repay) {
        product(dev, &b, a->w.p, s->repay);
        lq_pool_run(dev->pool, repay_row, &b, (int)b.n);
    }
    if (done) {
        lq_pool_run(dev->pool, order_row, &b, (int)b.n);
        if (!s->under) quad(dev, &b, b.w, out->norm);
        else memset(out->norm, 0, (size_t)b.n * sizeof *out->norm);
    }
    done = done && round_plain(dev, &b, err) &&
           (!s->hidden || lq_hidden_error(s->hidden, first, b.n, b.back, b.hidden[0], err));
    if (done) lq_pool_run(dev->pool, figures, &b, (int)b.n);
    if (done && (s->u || s->clips)) {
        b.spread = true;
        done = round_spread(dev, &b, err) &&
               (!s->hidden || lq_hidden_error(s->hidden, first, b.n, b.back, b.hidden[1], err));
        if (done) lq_pool_run(dev->pool, figures, &b, (int)b.n);
    }
    if (done) lq_pool_run(dev->pool, choose_row, &b, (int)b.n);
    for (int64_t r = 0; done && r < b.n; r++)
        if (!better(&b, (size_t)r)) out->loss[r] = out->plain[r];
    // What cannot be coded is told by the caller, who knows the matrix.
    done = done || a->bad[0] >= 0 || *a->wide;
    band_close(&b);
    return done;
}
