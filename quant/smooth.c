// smooth.c: the transform "smooth" (SmoothQuant): columns of an input are multiplied by max|x|^a / max|w|^(1-a), over
// all that reads it, so that what makes activations hard to round goes into the weights. a is tried in steps on some of
// the rows that the text gives: what the readers make of them, weights and activations rounded as they will be, against
// what they made; for all inputs of the model or of a layer together, or for each. Left as they are: inputs that no a
// makes better. Owns the rows that are tried.
#include "kernels/pack.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    float *f, *row;     // [k]
    float *in, *out;    // [rows][k], [rows][largest w.n]
    void *codes;
} search;

static lq_mat mat_of(float *p, int rows, int64_t cols) {
    return (lq_mat){.p = p, .type = LQ_F32, .rows = rows, .cols = (int)cols, .stride = (size_t)cols};
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
        const lq_edit edit = lq_edit_of(&m->edit, first + i);
        lq_pick from;
        lq_weight w;
        if (!lq_item_pick(a->s->b->plan->in, m->it, first + i, &from, err) ||
            !lq_ckpt_pick(a->s->b->plan->in, &from, s->n, s->k, &w, NULL, err)) return false;
        for (int64_t l = 0, taken = 0; l < s->n; l++) {
            lq_weight_row(&w, l, a->row);
            lq_edit_row(&edit, l, a->row, a->k);
            for (int64_t j = 0; j < a->k; j++) a->w[j] = fmax(a->w[j], fabs((double)a->row[j]));
            if (!r || taken == per || l != taken * s->n / per) continue;
            memcpy(r->p + (size_t)(i * per + taken++) * (size_t)a->k, a->row, (size_t)a->k * sizeof *a->row);
        }
        lq_ckpt_done(a->s->b->plan->in, &w);
    }
    return true;
}

// The largest of the factors times the least is 1.
static void factors(const search *a, double alpha) {
    double lo = INFINITY, hi = 0;
    for (int64_t j = 0; j < a->k; j++) {
        const double v = pow(a->x[j], alpha) / pow(a->w[j], 1 - alpha);
        lo = fmin(lo, v), hi = fmax(hi, v);
    }
    for (int64_t j = 0; j < a->k; j++)
        a->f[j] = (float)(pow(a->x[j], alpha) / pow(a->w[j], 1 - alpha) / sqrt(lo * hi));
}

// A scale for all rows, of the whole range.
static lq_fixed span(const search *a, lq_atype t) {
    double lo = 0, hi = 0;
    for (size_t i = 0; i < (size_t)a->rows * (size_t)a->k; i++) {
        lo = fmin(lo, (double)a->in[i]);
        hi = fmax(hi, (double)a->in[i]);
    }
    return lq_fixed_of(lq_fixed_form(t), lo, hi, 0);
}

// What a reader makes of the input with factors in it, all rounded, is in a->out.
static bool apply(const search *a, const reader *r, lq_err *err) {
    lq_dev *d = a->s->dev;
    lq_weight_size size;
    lq_weight_out raw;
    lq_act act = {0};
    lq_fixed fixed = {0};
    int32_t *sum = NULL;
    const lq_edit edit = {.column = a->f};
    if (!lq_weight_sizes(&r->m->it->recipe.type, r->w.n, a->k, &size))
        return lq_fail(err, LQ_E_LIMIT, "it is too large");
    lq_lay_out(a->codes, &size, true, &raw);
    lq_matrix q = {.w = &r->w, .dev = d, .edit = &edit, .q = raw.q, .scale = raw.scale, .zero = raw.zero,
                   .tick = lq_seek_heard, .arg = (void *)(uintptr_t)a->s};
    if (!lq_quantize_matrix(&(lq_recipe){.type = r->m->it->recipe.type}, &q, err)) return false;
    lq_weight w = {.type = q.type, .n = r->w.n, .k = a->k, .q = raw.q, .scale = raw.scale, .zero = raw.zero,
                   .scale2 = &q.scale2, .table = lq_wtype_table(&q.type)};
    if (w.type.act.fixed) fixed = span(a, w.type.act), w.act_scale = &fixed.scale;
    if (w.type.act.asym) w.act_zero = &fixed.zero, w.code_sum = sum = malloc((size_t)w.n * sizeof *sum);
    const size_t bytes = lq_act_bytes(d, &w, a->rows);
    void *base = bytes ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
    bool done = (!bytes || base) && (!w.type.act.asym || sum);
    if (!done) lq_fail(err, LQ_E_MEMORY, "no memory for %d rows", a->rows);
    if (done) {
        if (sum) lq_code_sums(&w, sum);
        const lq_mat x = mat_of(a->in, a->rows, a->k);
        act.x = x;
        lq_act_bind(d, &act, &w, a->rows, base);
        act.x = x;
        if (act.type.elem != LQ_F32) d->ops.quant(d, &(lq_quant_args){.x = x, .act = &act});
        d->ops.matmul(d, &(lq_matmul_args){.x = &act, .count = 1, .w = {&w}, .y = {mat_of(a->out, a->rows, w.n)}});
        done = d->ops.sync(d, err);
    }
    free(sum);
    free(base);
    return done;
}

// The error of what all readers make with the factors at hand.
static bool error_of(const search *a, double *error, lq_err *err) {
    *error = 0;
    for (int i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->k; j++)
            a->in[(size_t)i * (size_t)a->k + (size_t)j] = a->s->w->some[(size_t)i * (size_t)a->k + (size_t)j] / a->f[j];
    for (const reader *r = a->r; r < a->r + a->readers; r++) {
        if (!apply(a, r, err)) return false;
        for (size_t i = 0; i < (size_t)a->rows * (size_t)r->w.n; i++) {
            const double e = (double)(a->out[i] - r->y[i]);
            *error += e * e;
        }
    }
    return true;
}

static bool open_search(search *a, lq_err *err) {
    const lq_block *b = a->s->b;
    const size_t k = (size_t)a->k, rows = (size_t)a->rows;
    size_t codes = 64;
    int64_t most = 1;
    a->r = calloc((size_t)b->modules, sizeof *a->r);
    a->x = malloc(k * sizeof *a->x);
    a->w = calloc(k, sizeof *a->w);
    a->f = malloc(k * sizeof *a->f);
    a->row = malloc(k * sizeof *a->row);
    a->in = malloc(rows * k * sizeof *a->in);
    if (!a->r || !a->x || !a->w || !a->f || !a->row || !a->in)
        return lq_fail(err, LQ_E_MEMORY, "no memory to search factors of %zu columns", k);
    for (int i = 0; i < b->modules; i++) {
        const lq_module *m = &b->module[i];
        if (!lq_reads(m, a->s->input)) continue;
        const bool tried = m->it->round && m->it->recipe.type.kind != LQ_W_PLAIN;
        if (!read_module(a, m, tried ? &a->r[a->readers++] : NULL, err)) return false;
        if (!tried) continue;
        const reader *r = &a->r[a->readers - 1];
        const size_t bytes = lq_module_bytes(&m->it->recipe.type, r->w.n, a->k);
        codes = bytes > codes ? bytes : codes;
        most = r->w.n > most ? r->w.n : most;
    }
    for (size_t j = 0; j < k; j++) a->x[j] = (double)a->s->w->absmax[j];
    if (!lq_seek_even(a->s, least, a->x, err) || !lq_seek_even(a->s, least, a->w, err)) return false;
    a->codes = aligned_alloc(64, (codes + 63) & ~(size_t)63);
    a->out = malloc(rows * (size_t)most * sizeof *a->out);
    if (!a->codes || !a->out) return lq_fail(err, LQ_E_MEMORY, "no memory for a matrix that is tried");
    lq_dev *d = a->s->dev;
    const lq_act act = {.x = mat_of(a->s->w->some, a->rows, a->k)};
    for (const reader *r = a->r; r < a->r + a->readers; r++)
        d->ops.matmul(d, &(lq_matmul_args){.x = &act, .count = 1, .w = {&r->w}, .y = {mat_of(r->y, a->rows, r->w.n)}});
    return d->ops.sync(d, err);
}

static void close_search(search *a) {
    for (int i = 0; a->r && i < a->readers; i++) free(a->r[i].p), free(a->r[i].y);
    free(a->r);
    free(a->x);
    free(a->w);
    free(a->f);
    free(a->row);
    free(a->in);
    free(a->out);
    free(a->codes);
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
    const double given = s->b->alpha;
    double *tally = s->b->tally, best = 0, error = 0, alpha = 0;
    if (!tally && given == 0) return true;
    bool done = open_search(&a, err);
    const double norm = done && tally ? norm_of(&a) : 0;
    for (int64_t j = 0; done && j < a.k; j++) a.f[j] = 1;
    done = done && error_of(&a, &best, err);
    if (done && norm > 0) tally[0] += best / norm;
    for (int i = 1; done && i <= LQ_ALPHAS; i++) {
        const double tried = !tally && given > 0 ? given : (double)i / LQ_ALPHAS;
        factors(&a, tried);
        done = error_of(&a, &error, err);
        if (done && norm > 0) tally[i] += error / norm;
        if (tally) continue;
        if (done && (error < best || given > 0)) {
            best = error, alpha = tried;
            memcpy(factor, a.f, (size_t)a.k * sizeof *factor);
        }
        if (given > 0) break;
    }
    for (int i = 0; done && i < a.readers; i++)
        if (alpha > 0) a.r[i].m->alpha = alpha;
    close_search(&a);
    return done;
}
