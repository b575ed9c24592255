// gptq.c: rounding with what is known of a matrix's input: GPTQ's spreading of errors over the columns that are still
// to be rounded, in an order of its own, and the choice row by row between it and plain rounding (the slot choose).
// Owns what is made of an input once for all its matrices, where its moments are, and the scratch of a band of rows.
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DAMPINGS = 6 }; // how often the damping grows tenfold before an input is given up

// --- an input ---

// Groups are moved whole; the last one, if it is shorter, stays the last.
static void order_columns(const double *diagonal, int64_t k, const lq_recipe *r, lq_ranked *by, int32_t *out) {
    const bool grouped = r->order == LQ_ORDER_GROUPS && r->type.group;
    const int64_t size = grouped ? r->type.group : k, whole = grouped ? k / size : 0;
    for (int64_t j = 0; j < k; j++) out[j] = (int32_t)j;
    if (r->order == LQ_ORDER_NONE) return;
    for (int64_t g = 0; g < whole; g++) {
        by[g] = (lq_ranked){0, g};
        for (int64_t j = g * size; j < (g + 1) * size; j++) by[g].size += diagonal[j];
    }
    lq_rank(by, (size_t)whole);
    for (int64_t g = 0; g < whole; g++)
        for (int64_t j = 0; j < size; j++) out[g * size + j] = (int32_t)(by[g].at * size + j);
    for (int64_t g = 0; g < k; g += size) {
        const int64_t n = k - g < size ? k - g : size;
        for (int64_t j = 0; j < n; j++) by[j] = (lq_ranked){diagonal[out[g + j]], out[g + j]};
        lq_rank(by, (size_t)n);
        for (int64_t j = 0; j < n; j++) out[g + j] = (int32_t)by[j].at;
    }
}

// Moments, and where they and all that is made of them lie.
typedef struct source {
    lq_dev *on;
    const double *h, *g;
    const lq_watch *w;
    double *diagonal;   // [k] with the host
    int32_t *order;     // [k] where they are
    void *there;        // its memory, where that is not the host
} source;

static void *cells_open(const source *m, size_t bytes, lq_err *err) {
    const size_t k = (size_t)m->w->k;
    return lq_by_open(m->on, m->w->rooms, k * k * bytes, err);
}

static void cells_close(const source *m, void *p) { lq_by_close(m->on, m->w->rooms, p); }

static lq_arrange_args arrange_args(const source *m) {
    return (lq_arrange_args){.k = (int)m->w->k, .rows = (double)m->w->rows, .h = m->h, .order = m->order};
}

// The diagonal, with the host; and where the order will stand there.
static bool begin(source *m, int32_t *order, lq_err *err) {
    const size_t k = (size_t)m->w->k, bytes = k * sizeof *m->diagonal;
    void *there = m->diagonal;
    m->order = NULL;
    lq_arrange_args a = arrange_args(m);
    m->order = order;
    if (!m->on->host && !m->on->ops.alloc(m->on, bytes, &there, err)) return false;
    a.diagonal = there;
    m->on->ops.arrange(m->on, &a);
    if (m->on->host) return true;
    m->on->ops.get(m->on, m->diagonal, there, bytes);
    m->order = m->there = there; // is larger than it need be
    return m->on->ops.sync(m->on, err);
}

// u of h and so much on its diagonal; more where that has no factor.
static bool factor(const source *m, const lq_recipe *r, lq_solve *s, lq_err *err) {
    double mean = 0;
    bool ok = false;
    for (int64_t j = 0; j < s->k; j++) mean += m->diagonal[j] / (double)m->w->rows / (double)s->k;
    s->damp = r->damp > 0 ? (double)r->damp : 0.01;
    for (int i = 0; i < DAMPINGS && !ok; i++) {
        if (i) s->damp *= 10;
        s->added = mean > 0 ? (float)(s->damp * mean) : 1;
        lq_arrange_args a = arrange_args(m);
        a.mean = i ? NULL : s->h, a.u = s->u, a.added = s->added;
        m->on->ops.arrange(m->on, &a);
        m->on->ops.factor(m->on, &(lq_factor_args){.h = s->u, .n = (int)s->k, .ok = &ok});
        if (!m->on->ops.sync(m->on, err)) return false;
    }
    if (ok) return true;
    cells_close(m, s->u);
    s->u = NULL;
    return true;
}

// With G the moments of the inputs as they are now and as they were, least squares makes of a row w: w G^T H^-1. Of
// that, a share: w + share * w (G - H)^T (H + damping)^-1.
static bool repay(const source *m, const lq_recipe *r, lq_solve *s, lq_err *err) {
    lq_arrange_args a = arrange_args(m);
    double *owed = cells_open(m, sizeof *owed, err);
    bool done = owed && (s->repay = cells_open(m, sizeof *s->repay, err)) != NULL;
    if (done) {
        a.owed = owed, a.g = m->g;
        m->on->ops.arrange(m->on, &a);
        m->on->ops.solve(m->on, &(lq_solve_args){.u = s->u, .n = (int)s->k, .b = owed, .cols = (int)s->k});
        a.g = NULL, a.repay = s->repay, a.share = r->repay;
        m->on->ops.arrange(m->on, &a);
        done = m->on->ops.sync(m->on, err);
    }
    cells_close(m, owed);
    return done;
}

// All that is made where the moments are.
static bool make(source *m, const lq_recipe *r, lq_solve *s, lq_ranked *by, lq_err *err) {
    const size_t k = (size_t)s->k;
    const bool spreads = r->rounding == LQ_ROUND_GPTQ;
    s->on = m->on;
    if (!begin(m, s->order, err) || (spreads && (s->u = cells_open(m, sizeof *s->u, err)) == NULL) ||
        (s->h = cells_open(m, sizeof *s->h, err)) == NULL) return false;
    order_columns(m->diagonal, s->k, spreads ? r : &(lq_recipe){0}, by, s->order);
    s->turns = false;
    for (size_t i = 0; i < k; i++) {
        s->turns |= s->order[i] != (int32_t)i;
        s->weight[i] = (float)(m->diagonal[s->order[i]] / (double)m->w->rows);
    }
    if (m->there) m->on->ops.put(m->on, m->there, s->order, k * sizeof *s->order);
    if (spreads) return factor(m, r, s, err) && (!m->g || !s->u || r->repay == 0 || repay(m, r, s, err));
    lq_arrange_args a = arrange_args(m);
    a.mean = s->h;
    m->on->ops.arrange(m->on, &a);
    return m->on->ops.sync(m->on, err);
}

typedef struct part { void *p; size_t bytes; } part;
enum { PARTS = 3 };

static void parts_of(const lq_solve *s, part *out) {
    const size_t cells = (size_t)s->k * (size_t)s->k;
    out[0] = (part){s->u, cells * sizeof *s->u};
    out[1] = (part){s->h, cells * sizeof *s->h};
    out[2] = (part){s->repay, cells * sizeof *s->repay};
}

static void parts_close(lq_solve *s) {
    part all[PARTS];
    parts_of(s, all);
    for (int i = 0; s->on && i < PARTS; i++) {
        lq_lend_drop(s->dev, all[i].p);
        lq_by_close(s->on, s->rooms, all[i].p);
    }
    s->u = NULL, s->h = s->repay = NULL;
}

// Where the moments still are on a device that has room for what is made of them. False: it is the host's to make.
static bool make_far(lq_dev *far, source *m, const lq_recipe *r, lq_solve *s, lq_ranked *by, lq_err *err) {
    const size_t k = (size_t)s->k, each = 12 + (m->w->by_g ? 12 : 0);
    if (!far || far != m->w->on || !m->w->by_h || k * k * each > far->ops.room(far) / 4 * 3) return false;
    m->on = far, m->h = m->w->by_h, m->g = m->w->by_g;
    part all[PARTS];
    bool done = make(m, r, s, by, err);
    far->ops.free(far, m->there);
    m->there = NULL;
    parts_of(s, all);
    for (int i = 0; done && i < PARTS; i++) done = lq_lend_keep(s->dev, all[i].p, all[i].bytes);
    if (!done) parts_close(s);
    return done;
}

static bool make_here(source *m, const lq_recipe *r, lq_solve *s, lq_ranked *by, lq_err *err) {
    if (!lq_watch_here(m->w, err)) return false;
    m->on = s->dev, m->h = m->w->h, m->g = m->w->g;
    part all[PARTS];
    const bool done = make(m, r, s, by, err);
    parts_of(s, all);
    for (int i = 0; done && i < PARTS; i++) lq_lend_hold(s->dev, all[i].p, all[i].bytes);
    return done;
}

bool lq_solve_make(lq_dev *dev, const lq_watch *w, const lq_recipe *r, lq_solve *s, lq_err *err) {
    const size_t k = (size_t)w->k;
    const bool spreads = r->rounding == LQ_ROUND_GPTQ;
    lq_ranked *by = malloc(k * sizeof *by);
    source m = {.w = w, .diagonal = malloc(k * sizeof *m.diagonal)};
    *s = (lq_solve){.rooms = w->rooms, .dev = dev, .k = w->k, .stays = !spreads || r->order != LQ_ORDER_COLUMNS,
                    .sweeps = r->refine, .even = spreads && r->range == LQ_RANGE_MSE,
                    .clips = !spreads && r->transform & LQ_T_CLIP};
    s->order = malloc(k * sizeof *s->order);
    s->weight = malloc(k * sizeof *s->weight);
    bool done = (by && m.diagonal && s->order && s->weight) ||
                lq_fail(err, LQ_E_MEMORY, "no memory for an input of %zu columns", k);
    done = done && (make_far(lq_lend_on(dev), &m, r, s, by, err) || make_here(&m, r, s, by, err));
    free(by);
    free(m.diagonal);
    if (!done) lq_solve_close(s);
    return done;
}

static lq_choose_args choose_args(const lq_solve *s, const lq_round_args *a) {
    lq_choose_args c = {.a = *a, .order = s->turns ? s->order : NULL, .stays = s->stays, .repay = s->repay,
                        .work = s->work};
    if (s->apart) c.apart = s->apart->column, c.aparts = s->apart->count;
    c.a.weight = s->even ? NULL : s->weight;
    c.a.u = s->u, c.a.h = s->h, c.a.damp = s->added, c.a.sweeps = s->u ? s->sweeps : 0;
    return c;
}

bool lq_solve_room(lq_solve *s, const lq_wtype *t, int64_t rows, bool copied, lq_err *err) {
    const size_t band = copied ? (size_t)rows * (size_t)s->k : 0;
    lq_round_args a = {.w = {.rows = (int)rows, .cols = (int)s->k}, .type = *t, .scale_by = s->weight};
    a.type.scale = LQ_F32; // which it may become
    const lq_choose_args c = choose_args(s, &a);
    const size_t work = lq_lend_on(s->dev) ? 0 : lq_choose_bytes(&c);
    if (band > s->room) {
        free(s->band);
        s->band = malloc(band * sizeof *s->band);
        s->room = s->band ? band : 0;
    }
    if (work > s->work_room) {
        free(s->work);
        s->work = malloc(work);
        s->work_room = s->work ? work : 0;
    }
    return (band <= s->room && work <= s->work_room) ||
           lq_fail(err, LQ_E_MEMORY, "no memory for %lld rows of %lld", (long long)rows, (long long)s->k);
}

int64_t lq_solve_height(const lq_solve *s, const lq_wtype *t, int64_t n) {
    const lq_round_args a = {.w = {.rows = (int)n, .cols = (int)s->k}, .type = *t, .scale_by = s->weight};
    const lq_choose_args c = choose_args(s, &a);
    return s->hidden ? 0 : lq_lend_rows(s->dev, n, lq_choose_bytes(&c) / (size_t)n + 8 * (size_t)s->k);
}

void lq_solve_close(lq_solve *s) {
    parts_close(s);
    free(s->order);
    free(s->band);
    free(s->work);
    free(s->weight);
    *s = (lq_solve){0};
}

// --- rows ---

// What rows become when their ranges are searched, beside what they are when these are taken whole.
typedef struct clipped {
    uint8_t *q, *scale, *zero;
    size_t q_row, scale_row, zero_row; // bytes
    double *figure;                    // [5][n] error, norm, worst, loss, the same
    double *hidden[2];                 // [n] what the MLP loses by both, if that counts
    float *back;                       // [n][k] if it counts
} clipped;

static bool clipped_open(clipped *c, const lq_solve *s, const lq_round_args *a, lq_err *err) {
    const lq_wtype *t = &a->type;
    const size_t n = (size_t)a->w.rows, k = (size_t)s->k, groups = (size_t)lq_weight_groups(t, s->k);
    c->q_row = t->kind == LQ_W_FLOAT ? k : lq_code_row_bytes(t->bits, s->k);
    c->scale_row = groups * lq_dtype_size(t->scale);
    c->zero_row = t->asym ? lq_code_row_bytes(t->bits, (int64_t)groups) : 0;
    c->q = malloc(n * c->q_row);
    c->scale = malloc(n * c->scale_row);
    c->zero = malloc(n * c->zero_row + 1);
    c->figure = malloc(7 * n * sizeof *c->figure);
    c->back = s->hidden ? malloc(n * k * sizeof *c->back) : NULL;
    if (!c->q || !c->scale || !c->zero || !c->figure || (s->hidden && !c->back))
        return lq_fail(err, LQ_E_MEMORY, "no memory for %zu rows of %zu", n, k);
    c->hidden[0] = c->figure + 5 * n, c->hidden[1] = c->figure + 6 * n;
    return true;
}

static void clipped_close(clipped *c) {
    free(c->q);
    free(c->scale);
    free(c->zero);
    free(c->figure);
    free(c->back);
}

// False: see err, or *bad and *wide.
static bool choose(lq_dev *dev, const lq_choose_args *c, lq_err *err) {
    c->a.bad[0] = c->a.bad[1] = -1;
    *c->a.wide = false;
    dev->ops.choose(dev, c);
    return dev->ops.sync(dev, err) && c->a.bad[0] < 0 && !*c->a.wide;
}

// A row that loses less by them has them.
static void take_clipped(const lq_choose_args *c, const clipped *x, size_t row) {
    const size_t n = (size_t)c->a.w.rows;
    double *to[] = {c->a.error, c->a.norm, c->a.worst, c->loss};
    memcpy((uint8_t *)c->a.q + row * x->q_row, x->q + row * x->q_row, x->q_row);
    if (c->a.type.rows <= 1)
        memcpy((uint8_t *)c->a.scale + row * x->scale_row, x->scale + row * x->scale_row, x->scale_row);
    if (x->zero_row) memcpy((uint8_t *)c->a.zero + row * x->zero_row, x->zero + row * x->zero_row, x->zero_row);
    for (size_t i = 0; i < 4; i++) to[i][row] = x->figure[i * n + row];
}

// Ranges as they are, then searched; of rows that share them, as they are. The latter may be refined.
static bool clip_rows(lq_dev *dev, const lq_solve *s, int64_t first, lq_choose_args *c, clipped *x, lq_err *err) {
    const int64_t n = c->a.w.rows;
    lq_choose_args d = *c;
    c->a.fit = LQ_FIT_RANGE;
    c->a.back = d.a.back = x->back;
    if (!choose(dev, c, err) || (s->hidden && !lq_hidden_error(s->hidden, first, n, x->back, x->hidden[0], err)))
        return false;
    if (c->a.type.rows > 1) d.a.fit = LQ_FIT_RANGE;
    d.a.sweeps = s->sweeps;
    d.a.q = x->q, d.a.scale = x->scale, d.a.zero = x->zero, d.a.error = x->figure, d.a.norm = x->figure + n;
    d.a.worst = x->figure + 2 * n, d.loss = x->figure + 3 * n, d.plain = x->figure + 4 * n, d.size = NULL;
    if (!choose(dev, &d, err) || (s->hidden && !lq_hidden_error(s->hidden, first, n, x->back, x->hidden[1], err)))
        return false;
    for (int64_t r = 0; r < n; r++)
        if (d.loss[r] < c->loss[r] && (!s->hidden || x->hidden[1][r] < x->hidden[0][r]))
            take_clipped(c, x, (size_t)r);
    return true;
}

bool lq_solve_rows(lq_dev *dev, const lq_solve *s, int64_t first, lq_round_args *a, const lq_solved *out, lq_err *err) {
    lq_choose_args c = choose_args(s, a);
    clipped x = {0};
    c.loss = out->loss, c.plain = out->plain, c.size = out->norm;
    a->bad[0] = a->bad[1] = -1;
    *a->wide = false;
    const bool done = s->clips ? clipped_open(&x, s, a, err) && clip_rows(dev, s, first, &c, &x, err)
                               : choose(dev, &c, err);
    clipped_close(&x);
    // What cannot be coded is told by the caller, who knows the matrix.
    return done || a->bad[0] >= 0 || *a->wide;
}
