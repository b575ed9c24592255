// apart.c: columns that are kept in 16 bits: their weights. Where the others are rounded to the nearest these stay what
// they were. Where they are rounded by the moments of their input, the kept ones take over what they can of the others'
// errors: they are eliminated from the moments, as from a system of equations, before a code is chosen, and are
// put back in when all are. Owns what that takes of an input.
//
// With H the moments, S the kept columns and Q the others: whatever codes q the others get, the loss
// (w - v) H (w - v)^T is least where v_S = w_S + (w_Q - q) H_QS H_SS^-1, and is then that of w_Q - q under
// H_QQ - H_QS H_SS^-1 H_SQ.
#include "kernels/pack.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 6 }; // how often what is added to the diagonal grows tenfold before nothing is taken over

// --- an input ---

static double cell(const lq_watch *w, size_t i, size_t j) {
    return w->h[(i < j ? i : j) * (size_t)w->k + (i < j ? j : i)];
}

// The factor of H_SS, damped as gptq damps the rest; *ok false: it has none.
static bool factor(lq_dev *dev, const lq_watch *w, const lq_acts *acts, double damp, double *u, bool *ok, lq_err *err) {
    const size_t s = (size_t)acts->outliers;
    double mean = 0;
    for (size_t j = 0; j < (size_t)w->k; j++) mean += cell(w, j, j);
    for (size_t i = 0; i < s; i++) mean -= cell(w, (size_t)acts->outlier[i], (size_t)acts->outlier[i]);
    if ((size_t)w->k > s) mean /= (double)w->k - (double)s;
    *ok = false;
    for (int t = 0; t < TRIES && !*ok; t++, damp *= 10) {
        for (size_t i = 0; i < s; i++)
            for (size_t j = 0; j < s; j++)
                u[i * s + j] = cell(w, (size_t)acts->outlier[i], (size_t)acts->outlier[j]) + (i == j ? damp * mean : 0);
        dev->ops.factor(dev, &(lq_factor_args){.h = u, .n = (int)s, .ok = ok});
        if (!dev->ops.sync(dev, err)) return false;
    }
    return true;
}

typedef struct elimination {
    lq_watch *w;
    const lq_acts *acts;
    const bool *kept;   // [k]
    const double *take; // [S][k] H_SS^-1 H_S, ones where a column stands for itself
    const double *owed; // [S][k] H_SS^-1 (G_S - H_S); NULL: not paired
} elimination;

// A row of the moments, from those that the rows of S still are.
static void eliminate_row(void *arg, int row, int worker) {
    const elimination *e = arg;
    const size_t i = (size_t)row, k = (size_t)e->w->k;
    (void)worker;
    for (int o = 0; !e->kept[i] && o < e->acts->outliers; o++) {
        const double by = cell(e->w, i, (size_t)e->acts->outlier[o]);
        const double *take = e->take + (size_t)o * k, *owed = e->owed ? e->owed + (size_t)o * k : NULL;
        for (size_t j = i; j < k; j++) e->w->h[i * k + j] -= e->kept[j] ? 0 : by * take[j];
        for (size_t j = 0; owed && j < k; j++) e->w->g[i * k + j] -= by * (take[j] + owed[j]);
    }
}

static bool open(lq_apart *a, const lq_watch *w, const lq_acts *acts, lq_err *err) {
    const size_t s = (size_t)acts->outliers, k = (size_t)w->k;
    *a = (lq_apart){.rooms = w->rooms, .k = w->k, .count = acts->outliers, .column = acts->outlier};
    return (a->take = lq_room_open(a->rooms, s * k * sizeof *a->take, err)) != NULL &&
           (a->own = lq_room_open(a->rooms, s * k * sizeof *a->own, err)) != NULL &&
           (a->h = lq_room_open(a->rooms, s * s * sizeof *a->h, err)) != NULL;
}

bool lq_apart_make(lq_dev *dev, lq_watch *w, const lq_acts *acts, const lq_recipe *r, lq_apart *a, lq_err *err) {
    const size_t s = (size_t)acts->outliers, k = (size_t)w->k;
    const double damp = r->damp > 0 ? (double)r->damp : 0.01;
    double *u = NULL, *take = NULL, *owed = NULL;
    bool *kept = calloc(k, sizeof *kept), ok = false;
    bool done = open(a, w, acts, err) && lq_watch_here(w, err) &&
                (kept || lq_fail(err, LQ_E_MEMORY, "no memory for %zu columns", k)) &&
                (u = lq_room_open(a->rooms, s * s * sizeof *u, err)) != NULL &&
                (take = lq_room_open(a->rooms, s * k * sizeof *take, err)) != NULL &&
                (!w->g || (owed = lq_room_open(a->rooms, s * k * sizeof *owed, err)) != NULL) &&
                factor(dev, w, acts, damp, u, &ok, err);
    for (size_t i = 0; done && i < s; i++) {
        const size_t from = (size_t)acts->outlier[i];
        kept[from] = true;
        for (size_t j = 0; j < k; j++) take[i * k + j] = ok ? cell(w, from, j) : 0;
        for (size_t j = 0; owed && j < k; j++) owed[i * k + j] = ok ? w->g[from * k + j] - cell(w, from, j) : 0;
        for (size_t j = 0; j < s; j++) a->h[i * s + j] = cell(w, from, (size_t)acts->outlier[j]) / (double)w->rows;
    }
    if (done && ok) dev->ops.solve(dev, &(lq_solve_args){.u = u, .n = (int)s, .b = take, .cols = (int)k});
    if (done && ok && owed) dev->ops.solve(dev, &(lq_solve_args){.u = u, .n = (int)s, .b = owed, .cols = (int)k});
    done = done && dev->ops.sync(dev, err);
    for (size_t i = 0; done && i < s; i++)
        for (size_t j = 0; j < s; j++) take[i * k + (size_t)acts->outlier[j]] = i == j;
    for (size_t i = 0; done && i < s * k; i++) {
        a->take[i] = (float)take[i];
        a->own[i] = (float)(take[i] + (owed ? (double)r->repay * owed[i] : 0));
    }
    if (done) lq_pool_run(dev->pool, eliminate_row, &(elimination){w, acts, kept, take, owed}, (int)k);
    for (size_t i = 0; done && i < s; i++)
        for (size_t j = 0; j < k; j++) {
            const size_t o = (size_t)acts->outlier[i];
            w->h[o * k + j] = w->h[j * k + o] = 0;
            if (w->g) w->g[o * k + j] = 0;
        }
    lq_room_close(a->rooms, u);
    lq_room_close(a->rooms, take);
    lq_room_close(a->rooms, owed);
    free(kept);
    if (!done) lq_apart_close(a);
    return done;
}

void lq_apart_close(lq_apart *a) {
    lq_room_close(a->rooms, a->take);
    lq_room_close(a->rooms, a->own);
    lq_room_close(a->rooms, a->h);
    *a = (lq_apart){0};
}

// --- a matrix ---

typedef struct filling {
    const lq_apart *a;  // NULL: weights stay what they were
    const lq_weight *from, *made;
    const lq_edit *edit;
    const int32_t *column;
    int count;
    uint16_t *to;
    float *row;         // [threads][2][k] as it was, as it was made
    double *part;       // [threads][2][count] a kept weight of its own, what its rounding adds
    double *figure;     // [n][4] squares of errors, of weights; the same by the moments
    int32_t *odd;       // [n] the first kept column that cannot be rounded, or -1
} filling;

// x H x^T
static double quad(const float *h, const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) sum += x[i] * (double)h[(size_t)i * (size_t)n + (size_t)j] * x[j];
    return sum;
}

static void fill_row(void *arg, int task, int worker) {
    const filling *f = arg;
    const size_t k = (size_t)f->from->k, s = (size_t)f->count;
    float *w = f->row + (size_t)worker * 2 * k, *q = w + k;
    double *own = f->part + (size_t)worker * 2 * s, *off = own + s, *figure = f->figure + (size_t)task * 4;
    uint16_t *to = f->to + (size_t)task * s;
    f->odd[task] = -1;
    memset(figure, 0, 4 * sizeof *figure);
    lq_weight_row(f->from, task, w);
    lq_edit_row(f->edit, task, w, f->from->k);
    if (f->a) lq_weight_row(f->made, task, q);
    for (size_t o = 0; o < s; o++) {
        const double was = (double)w[f->column[o]];
        own[o] = f->a ? lq_dot(f->a->own + o * k, w, k) : was;
        const double v = f->a ? own[o] - lq_dot(f->a->take + o * k, q, k) : was;
        if (!(fabs(v) <= 0x1p127) && f->odd[task] < 0) f->odd[task] = (int32_t)o;
        to[o] = lq_f32_bf16((float)v);
        const double now = (double)lq_bf16_f32(to[o]);
        off[o] = now - v;
        figure[0] += (was - now) * (was - now);
        figure[1] += was * was;
    }
    if (!f->a) return;
    figure[2] = quad(f->a->h, off, f->count);
    figure[3] = quad(f->a->h, own, f->count);
}

static bool fail_odd(const filling *f, int row, lq_err *err) {
    const int32_t c = f->column[f->odd[row]];
    float *w = f->row;
    lq_weight_row(f->from, row, w);
    lq_edit_row(f->edit, row, w, f->from->k);
    return lq_fail(err, LQ_E_FORMAT, "row %d, column %d is %g, and cannot be kept in 16 bits; expected a number of at most 2^127", row,
                   c, (double)w[c]);
}

bool lq_apart_fill(lq_dev *dev, const lq_apart *a, const lq_weight *from, const lq_edit *edit, const lq_weight *made,
                   lq_weight *beside, lq_made *x, lq_err *err) {
    const size_t threads = (size_t)lq_pool_threads(dev->pool), k = (size_t)from->k, n = (size_t)from->n;
    const size_t s = (size_t)beside->outliers;
    filling f = {.a = a, .from = from, .made = made, .edit = edit, .column = beside->outlier, .count = beside->outliers,
                 .to = (uint16_t *)(uintptr_t)beside->outlier_w, .row = malloc(threads * 2 * k * sizeof *f.row),
                 .part = malloc(threads * 2 * s * sizeof *f.part), .figure = malloc(n * 4 * sizeof *f.figure),
                 .odd = malloc(n * sizeof *f.odd)};
    bool done = (f.row && f.part && f.figure && f.odd) ||
                lq_fail(err, LQ_E_MEMORY, "no memory for %zu columns of %zu rows", s, n);
    if (done) lq_pool_run(dev->pool, fill_row, &f, (int)n);
    for (size_t i = 0; done && i < n; i++) {
        const double *figure = f.figure + i * 4;
        if (f.odd[i] >= 0) done = fail_odd(&f, (int)i, err);
        x->error += figure[0], x->norm += figure[1];
        x->loss += figure[2], x->loss_plain += figure[2], x->loss_norm += figure[3];
    }
    free(f.row);
    free(f.part);
    free(f.figure);
    free(f.odd);
    return done;
}
