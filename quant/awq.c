// awq.c: the transform "awq": columns of an input are multiplied by factors under which plain rounding of all that
// reads it loses least of what it makes of the text; a grid of factors between the inputs' sizes and the weights' is
// tried on some rows, and what is best there is taken only if no matrix loses more by it. Owns the rows that are tried.
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Steps of the exponent; what is tried: ones, and two forms of factors. The least part of a size.
enum { STEPS = 20, TRIES = 1 + 2 * STEPS + 1 };
static const double least = 1e-4;

// Some rows of a module, of a stack some of each matrix.
typedef struct reader {
    lq_module *m;
    lq_weight rows;     // plain, f32
    float *p;           // [rows.n][k]
} reader;

typedef struct search {
    const lq_seek *s;
    int64_t k;
    lq_solve h;
    reader *r;          // [block's modules]
    int readers;
    double *x, *w;      // [k] mean sizes of inputs, of weights within their group
    float *by;          // [TRIES][k] factors, the first are ones; in the end the second are the best
} search;

// --- sizes ---

// |w| over the largest of its group, summed.
static void add_sizes(double *to, const float *row, int64_t k, int64_t group, double times) {
    for (int64_t g = 0; g < k; g += group) {
        const int64_t end = g + group < k ? g + group : k;
        float top = 0;
        for (int64_t j = g; j < end; j++) top = fmaxf(top, fabsf(row[j]));
        for (int64_t j = g; j < end && top > 0; j++) to[j] += times * (double)(fabsf(row[j]) / top);
    }
}

// Rows i * n / per of each matrix. What is not finite is told when the matrix is rounded: *odd.
static bool take_rows(search *a, reader *r, bool *odd, lq_err *err) {
    const lq_slot *s = &r->m->it->slot;
    const lq_wtype *t = &r->m->it->recipe.type;
    const int first = lq_seek_first(a->s), count = lq_seek_end(a->s, r->m) - first;
    const int64_t per = lq_seek_rows(a->k, s->n, count, LQ_TRIED);
    r->p = malloc((size_t)(count * per) * (size_t)a->k * sizeof *r->p);
    if (!r->p) return lq_fail(err, LQ_E_MEMORY, "no memory for rows of %s", s->name);
    r->rows = (lq_weight){.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = count * per, .k = a->k,
                          .q = r->p};
    for (int i = 0; i < count; i++) {
        const lq_edit edit = lq_edit_of(&r->m->edit, first + i);
        lq_pick from;
        lq_weight w;
        if (!lq_item_pick(a->s->b->plan->in, r->m->it, first + i, &from, err) ||
            !lq_ckpt_pick(a->s->b->plan->in, &from, s->n, s->k, &w, NULL, err)) return false;
        for (int64_t l = 0; l < per; l++) {
            float *row = r->p + (size_t)(i * per + l) * (size_t)a->k;
            const int64_t at = l * s->n / per;
            lq_weight_row(&w, at, row);
            *odd |= lq_edit_odd(row, a->k) >= 0;
            lq_edit_row(&edit, at, row, a->k);
            add_sizes(a->w, row, a->k, t->group ? t->group : a->k, (double)s->n / (double)per);
        }
        lq_ckpt_done(a->s->b->plan->in, &w);
    }
    return true;
}

// --- losses ---

// What a matrix loses by plain rounding when its columns are multiplied by each of these factors.
static bool losses(search *a, const lq_module *m, const lq_weight *w, const lq_edit *edit, const float *by, int tries,
                   double *out, lq_err *err) {
    const lq_tries_args args = {.tries = tries, .by = by, .type = m->it->recipe.type, .h = a->h.h};
    return lq_tries_matrix(a->s, w, edit, &args, out, err);
}

// Factors `at` of the grid: x^alpha / w^(1-alpha), then x^alpha. The largest times the least is 1.
static void candidate(const search *a, int at, float *f) {
    const bool duo = at <= STEPS;
    const double alpha = (double)(duo ? at : at - STEPS) / STEPS;
    double lo = INFINITY, hi = 0;
    for (int64_t j = 0; j < a->k; j++) {
        const double v = pow(a->x[j], alpha) / (duo ? pow(a->w[j], 1 - alpha) : 1);
        f[j] = (float)v;
        lo = fmin(lo, v), hi = fmax(hi, v);
    }
    for (int64_t j = 0; j < a->k; j++) f[j] = (float)((double)f[j] / sqrt(lo * hi));
}

static float *factors(const search *a, int at) { return a->by + (size_t)at * (size_t)a->k; }

// The best of the grid on the rows that were taken. *any: it is better than none, for every module. What a module loses
// more by is not tried on the next one.
static bool try_all(search *a, bool *any, lq_err *err) {
    const lq_edit none = {0};
    const size_t row = (size_t)a->k * sizeof *a->by;
    double loss[TRIES], sum[TRIES] = {0};
    int left = TRIES, best = 0;
    for (int64_t j = 0; j < a->k; j++) a->by[j] = 1;
    for (int at = 1; at < TRIES; at++) candidate(a, at - 1, factors(a, at));
    for (int i = 0; i < a->readers; i++) {
        const reader *r = &a->r[i];
        if (!losses(a, r->m, &r->rows, &none, a->by, left, loss, err)) return false;
        int fit = 0;
        for (int at = 0; at < left; at++) {
            if (at && !(loss[at] <= loss[0])) continue;
            sum[fit] = sum[at] + loss[at];
            if (fit < at) memcpy(factors(a, fit), factors(a, at), row);
            fit++;
        }
        left = fit;
    }
    for (int at = 1; at < left; at++)
        if (sum[at] < sum[best]) best = at;
    *any = best > 0;
    if (best > 1) memcpy(factors(a, 1), factors(a, best), row);
    return true;
}

// What all matrices of a module lose, without the best factors and with them.
static bool whole_loss(search *a, const lq_module *m, double *plain, double *loss, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    lq_ckpt *in = a->s->b->plan->in;
    *plain = *loss = 0;
    for (int i = lq_seek_first(a->s); i < lq_seek_end(a->s, m); i++) {
        const lq_edit edit = lq_edit_of(&m->edit, i);
        double both[2];
        lq_pick from;
        lq_weight w;
        if (!lq_item_pick(in, m->it, i, &from, err) || !lq_ckpt_pick(in, &from, s->n, s->k, &w, NULL, err))
            return false;
        const bool done = losses(a, m, &w, &edit, a->by, 2, both, err);
        lq_ckpt_done(in, &w);
        if (!done && err->code == LQ_E_CANCELLED) return false;
        if (!done) return lq_fail_in(err, "%s: tensor %s", lq_ckpt_path(in), s->name);
        *plain += both[0], *loss += both[1];
    }
    return true;
}

// --- the whole ---

static bool open_search(search *a, bool *odd, lq_err *err) {
    const lq_block *b = a->s->b;
    const size_t k = (size_t)a->k;
    a->r = calloc((size_t)b->modules, sizeof *a->r);
    a->x = malloc(k * sizeof *a->x);
    a->w = calloc(k, sizeof *a->w);
    a->by = malloc(TRIES * k * sizeof *a->by);
    if (!a->r || !a->x || !a->w || !a->by)
        return lq_fail(err, LQ_E_MEMORY, "no memory to search factors of %zu columns", k);
    for (int i = 0; i < b->modules; i++) {
        lq_module *m = &b->module[i];
        if (!m->it->round || !lq_reads(m, a->s->input) || m->it->recipe.type.kind == LQ_W_PLAIN) continue;
        reader *r = &a->r[a->readers++];
        r->m = m;
        if (!take_rows(a, r, odd, err)) return false;
    }
    for (size_t j = 0; j < k; j++) a->x[j] = a->s->w->abssum[j];
    return lq_seek_even(a->s, least, a->x, err) && lq_seek_even(a->s, least, a->w, err) &&
           lq_solve_make(a->s->dev, a->s->w, &(lq_recipe){0}, &a->h, err);
}

static void close_search(search *a) {
    for (int i = 0; a->r && i < a->readers; i++) free(a->r[i].p);
    free(a->r);
    free(a->x);
    free(a->w);
    free(a->by);
    lq_solve_close(&a->h);
}

bool lq_awq_search(const lq_seek *s, float *factor, lq_err *err) {
    search a = {.s = s, .k = s->w->k};
    bool odd = false, any = false, done = open_search(&a, &odd, err);
    if (done && !odd && a.readers) done = try_all(&a, &any, err);
    for (int i = 0; done && any && i < a.readers; i++) {
        double plain, loss;
        done = whole_loss(&a, a.r[i].m, &plain, &loss, err);
        any = done && loss <= plain;
    }
    for (int64_t j = 0; done && any && j < a.k; j++) factor[j] = factors(&a, 1)[j];
    for (int i = 0; done && !any && s->expert < 0 && i < a.readers; i++)
        a.r[i].m->note = "awq found no factors of its input by which nothing loses more";
    close_search(&a);
    return done;
}
