// smooth.c: the transform "smooth" (SmoothQuant): columns of an input are multiplied by max|x|^a / max|w|^(1-a), over
// all that reads it, so that what makes activations hard to round goes into the weights. a is tried in steps on some of
// the rows that the text gives: what the readers make of them, weights and activations rounded as they will be, against
// what they made; for all inputs of the model or of a layer together, or for each. Left as they are: inputs that no a
// makes better. Owns the rows that are tried.
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = LQ_ALPHAS + 1 };
static const double least = 1e-5; // of the largest size

// Some rows of a module's matrices, and what they make of the input.
typedef struct reader {
    lq_module *m;
    lq_weight w;        // plain, f32
    float *p, *y;       // [w.n][k], [rows][w.n]
} reader;

typedef struct search {
    const lq_seek *s;
    int64_t k;
    int rows;
    reader *r;          // [readers]
    int readers;
    double *x, *w;      // [k] largest magnitudes
    float *row, *most;  // [threads][k] of a matrix: a row, the largest magnitudes of those before it
    float *lo, *hi;     // [k] the least and the largest of the rows of the text, 0 counted in
    float *by;          // [TRIES][k] factors, the first are ones
} search;

static lq_mat mat_of(float *p, int rows, int64_t cols) {
    return (lq_mat){.p = p, .type = LQ_F32, .rows = rows, .cols = (int)cols, .stride = (size_t)cols};
}

typedef struct seen {
    const search *a;
    const lq_weight *w;
    lq_edit edit;
    float *to;          // [per][k] row i * n / per is the i-th; NULL: none is taken
    int64_t per;
} seen;

static void see_row(void *arg, int task, int worker) {
    const seen *m = arg;
    const int64_t k = m->a->k, i = m->to ? (task * m->per + m->w->n - 1) / m->w->n : 0;
    float *row = m->a->row + worker * k, *most = m->a->most + worker * k;
    lq_weight_row(m->w, task, row);
    lq_edit_row(&m->edit, task, row, k);
    for (int64_t j = 0; j < k; j++) most[j] = fabsf(row[j]) > most[j] ? fabsf(row[j]) : most[j];
    if (m->to && i < m->per && i * m->w->n / m->per == task) memcpy(m->to + i * k, row, (size_t)k * sizeof *row);
}

// The sizes of a module's columns; some of its rows, if there is a reader to take them.
static bool read_module(search *a, const lq_module *m, reader *r, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const int first = lq_seek_first(a->s), count = lq_seek_end(a->s, m) - first;
    const int64_t per = lq_seek_rows(a->k, s->n, count, LQ_TRIED / 2); // each is tried with rows of the text, too
    if (r) {
        const size_t n = (size_t)(count * per);
        *r = (reader){.m = (lq_module *)(uintptr_t)m, .p = malloc(n * (size_t)a->k * sizeof *r->p),
                      .y = malloc((size_t)a->rows * n * sizeof *r->y)};
        if (!r->p || !r->y) return lq_fail(err, LQ_E_MEMORY, "no memory for rows of %s", s->name);
        r->w = (lq_weight){.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = (int64_t)n, .k = a->k,
                           .q = r->p};
    }
    for (int i = 0; i < count; i++) {
        lq_pick from;
        lq_weight w;
        if (!lq_item_pick(a->s->b->plan->in, m->it, first + i, &from, err) ||
            !lq_ckpt_pick(a->s->b->plan->in, &from, s->n, s->k, &w, NULL, err)) return false;
        lq_pool *pool = a->s->dev->pool;
        const size_t k = (size_t)a->k, cells = (size_t)lq_pool_threads(pool) * k;
        memset(a->most, 0, cells * sizeof *a->most);
        lq_pool_run(pool, see_row, &(seen){a, &w, lq_edit_of(&m->edit, first + i),
                                           r ? r->p + (size_t)(i * per) * k : NULL, per}, (int)s->n);
        for (size_t j = 0; j < cells; j++) a->w[j % k] = fmax(a->w[j % k], (double)a->most[j]);
        lq_ckpt_done(a->s->b->plan->in, &w);
    }
    return true;
}

static float *factors(const search *a, int at) { return a->by + (size_t)at * (size_t)a->k; }

// The largest of them times the least is 1.
static void candidate(const search *a, double alpha, float *f) {
    double lo = INFINITY, hi = 0;
    for (int64_t j = 0; j < a->k; j++) {
        const double v = pow(a->x[j], alpha) / pow(a->w[j], 1 - alpha);
        lo = fmin(lo, v), hi = fmax(hi, v);
    }
    for (int64_t j = 0; j < a->k; j++)
        f[j] = (float)(pow(a->x[j], alpha) / pow(a->w[j], 1 - alpha) / sqrt(lo * hi));
}

// A scale for all rows divided by these factors, of the whole range.
static lq_fixed span(const search *a, lq_atype t, const float *f) {
    double lo = 0, hi = 0;
    for (int64_t j = 0; j < a->k; j++) {
        lo = fmin(lo, (double)(a->lo[j] / f[j]));
        hi = fmax(hi, (double)(a->hi[j] / f[j]));
    }
    return lq_fixed_of(lq_fixed_form(t), lo, hi, 0);
}

// The errors of what all readers make with each of these factors.
static bool errors(const search *a, int tries, double *error /* [tries] */, lq_err *err) {
    float scale[TRIES];
    int32_t zero[TRIES];
    for (int i = 0; i < tries; i++) error[i] = 0;
    for (const reader *r = a->r; r < a->r + a->readers; r++) {
        const lq_wtype *t = &r->m->it->recipe.type;
        for (int i = 0; i < tries && t->act.fixed; i++) {
            const lq_fixed f = span(a, t->act, factors(a, i));
            scale[i] = f.scale, zero[i] = f.zero;
        }
        const lq_tries_args args = {
            .tries = tries, .by = a->by, .type = *t, .x = mat_of(a->s->w->some, a->rows, a->k),
            .y = mat_of(r->y, a->rows, r->w.n), .act = lq_act_type(a->s->dev, t),
            .fixed = t->act.fixed ? scale : NULL, .fixed_zero = t->act.fixed ? zero : NULL};
        if (!lq_tries_matrix(a->s, &r->w, &(lq_edit){0}, &args, error, err)) return false;
    }
    return true;
}

static void span_columns(const search *a) {
    for (size_t i = 0; i < (size_t)a->rows * (size_t)a->k; i++) {
        const float x = a->s->w->some[i];
        const size_t j = i % (size_t)a->k;
        if (i == j) a->lo[j] = a->hi[j] = 0;
        a->lo[j] = x < a->lo[j] ? x : a->lo[j];
        a->hi[j] = x > a->hi[j] ? x : a->hi[j];
    }
}

static bool open_search(search *a, lq_err *err) {
    const lq_block *b = a->s->b;
    const size_t k = (size_t)a->k, cells = (size_t)lq_pool_threads(a->s->dev->pool) * k;
    a->r = calloc((size_t)b->modules, sizeof *a->r);
    a->x = malloc(k * sizeof *a->x);
    a->w = calloc(k, sizeof *a->w);
    a->row = malloc(cells * sizeof *a->row);
    a->most = malloc(cells * sizeof *a->most);
    a->lo = malloc(k * sizeof *a->lo);
    a->hi = malloc(k * sizeof *a->hi);
    a->by = malloc(TRIES * k * sizeof *a->by);
    if (!a->r || !a->x || !a->w || !a->row || !a->most || !a->lo || !a->hi || !a->by)
        return lq_fail(err, LQ_E_MEMORY, "no memory to search factors of %zu columns", k);
    for (int i = 0; i < b->modules; i++) {
        const lq_module *m = &b->module[i];
        if (!lq_reads(m, a->s->input)) continue;
        const bool tried = m->it->round && m->it->recipe.type.kind != LQ_W_PLAIN;
        if (!read_module(a, m, tried ? &a->r[a->readers++] : NULL, err)) return false;
    }
    for (size_t j = 0; j < k; j++) a->x[j] = (double)a->s->w->absmax[j];
    if (!lq_seek_even(a->s, least, a->x, err) || !lq_seek_even(a->s, least, a->w, err)) return false;
    span_columns(a);
    lq_dev *d = a->s->dev;
    const lq_act act = {.x = mat_of(a->s->w->some, a->rows, a->k)};
    for (const reader *r = a->r; r < a->r + a->readers; r++)
        d->ops.matmul(d, &(lq_matmul_args){.x = &act, .count = 1, .w = {&r->w}, .y = {mat_of(r->y, a->rows, r->w.n)}});
    lq_lend_hold(d, a->s->w->some, (size_t)a->rows * k * sizeof *a->s->w->some);
    return d->ops.sync(d, err);
}

static void close_search(search *a) {
    for (int i = 0; a->r && i < a->readers; i++) free(a->r[i].p), free(a->r[i].y);
    lq_lend_drop(a->s->dev, a->s->w->some);
    free(a->r);
    free(a->x);
    free(a->w);
    free(a->row);
    free(a->most);
    free(a->lo);
    free(a->hi);
    free(a->by);
}

// What the readers made of the rows.
static double norm_of(const search *a) {
    double sum = 0;
    for (const reader *r = a->r; r < a->r + a->readers; r++)
        for (size_t i = 0; i < (size_t)a->rows * (size_t)r->w.n; i++) sum += (double)r->y[i] * (double)r->y[i];
    return sum;
}

bool lq_smooth_search(const lq_seek *s, float *factor, lq_err *err) {
    search a = {.s = s, .k = s->w->k, .rows = s->w->somes};
    const double given = s->b->tally ? 0 : s->b->alpha;
    double *tally = s->b->tally, error[TRIES], alpha = given > 0 ? given : 0;
    if (!tally && given == 0) return true;
    bool done = open_search(&a, err);
    if (done && given > 0) candidate(&a, given, factor);
    for (int64_t j = 0; done && j < a.k; j++) a.by[j] = 1;
    for (int i = 1; done && i < TRIES && !(given > 0); i++) candidate(&a, (double)i / LQ_ALPHAS, factors(&a, i));
    if (!(given > 0)) done = done && errors(&a, TRIES, error, err);
    const double norm = done && tally ? norm_of(&a) : 0;
    for (int i = 0; i < TRIES && norm > 0; i++) tally[i] += error[i] / norm;
    for (int i = 1, best = 0; done && i < TRIES && !tally && !(given > 0); i++) {
        if (!(error[i] < error[best])) continue;
        best = i, alpha = (double)i / LQ_ALPHAS;
        memcpy(factor, factors(&a, i), (size_t)a.k * sizeof *factor);
    }
    for (int i = 0; done && i < a.readers; i++)
        if (alpha > 0) a.r[i].m->alpha = alpha;
    close_search(&a);
    return done;
}
