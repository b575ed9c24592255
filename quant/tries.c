// tries.c: what a matrix loses under several factors of its columns (the slot tries): band by band and, on a CPU, try
// by try, so that somebody can be heard in between; another device is given all tries of a large band at once. Owns the
// rows at hand, and what follows from a whole matrix: what scales are times or stand for, and whether F16 holds them.
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 1 << 22 }; // elements that another device is given at once

typedef struct tried {
    const lq_seek *s;
    const lq_weight *w;
    lq_edit edit;         // but for columns
    lq_tries_args a;
    int64_t k, band, first; // rows of a band; where the one at hand begins
    size_t groups;
    float *rows;          // [band][k]; NULL: the matrix as it lies
    float *scale2;        // [tries]
    float *edited, *scale, *by, *offset; // of dq: [band][k], [n][groups], [tries][blocks], [tries]
    float *map, *level;   // [256], [tries][band][groups]
    double *loss;         // [tries][band] of a band's rows
    bool *wide;           // [tries] of any band
} tried;

static void widen_row(void *arg, int task, int worker) {
    const tried *t = arg;
    float *row = t->rows + (size_t)task * (size_t)t->k;
    (void)worker;
    lq_weight_row(t->w, t->first + task, row);
    lq_edit_row(&t->edit, t->first + task, row, t->k);
}

// Rows from t->first on.
static lq_mat rows_of(tried *t, int64_t n) {
    const lq_weight *w = t->w;
    lq_mat m = {.p = t->rows, .type = LQ_F32, .rows = (int)n, .cols = (int)t->k, .stride = (size_t)t->k};
    if (t->rows) {
        lq_pool_run(t->s->dev->pool, widen_row, t, (int)n);
        return m;
    }
    m.type = w->type.elem;
    m.p = (void *)((uintptr_t)w->q + (uintptr_t)t->first * (uintptr_t)t->k * lq_dtype_size(m.type));
    return m;
}

static bool heard(const tried *t, lq_err *err) {
    return lq_seek_heard((void *)(uintptr_t)t->s) || lq_fail(err, LQ_E_CANCELLED, "stopped");
}

static int64_t band_rows(const tried *t) {
    const int64_t left = t->w->n - t->first;
    return left < t->band ? left : t->band;
}

// --- what follows from all rows ---

// The largest magnitudes of columns, as far as each thread has seen any.
typedef struct tops { const tried *t; float *most, *row; /* [threads][k] */ } tops;

static void top_row(void *arg, int task, int worker) {
    const tops *z = arg;
    const int64_t k = z->t->k;
    float *row = z->row + worker * k, *most = z->most + worker * k;
    lq_weight_row(z->t->w, task, row);
    lq_edit_row(&z->t->edit, task, row, k);
    for (int64_t j = 0; j < k; j++)
        if (fabsf(row[j]) > most[j] && isfinite(row[j])) most[j] = fabsf(row[j]);
}

// The largest magnitude of a column times its factor is that of the products, as rounding keeps the order of numbers.
static bool find_scale2(tried *t, lq_err *err) {
    const int threads = lq_pool_threads(t->s->dev->pool);
    const size_t k = (size_t)t->k, cells = (size_t)threads * k;
    tops z = {t, calloc(cells, sizeof *z.most), malloc(cells * sizeof *z.row)};
    const bool done = (z.most && z.row) || lq_fail(err, LQ_E_MEMORY, "no memory for %zu columns", k);
    if (done) lq_pool_run(t->s->dev->pool, top_row, &z, (int)t->w->n);
    for (size_t j = 0; done && j < cells; j++) z.most[j % k] = fmaxf(z.most[j % k], z.most[j]);
    for (int i = 0; done && i < t->a.tries; i++) {
        float top = 0;
        for (size_t j = 0; j < k; j++) {
            const float x = z.most[j] * t->a.by[(size_t)i * k + j];
            top = x > top && isfinite(x) ? x : top;
        }
        t->scale2[i] = lq_scale2_of(&t->a.type, top);
    }
    free(z.most);
    free(z.row);
    return done;
}

// The scales of one try, for themselves, and what their codes are to span.
static bool find_levels(tried *t, int at, lq_err *err) {
    const size_t count = (size_t)t->w->n * t->groups, blocks = lq_scale_blocks(count), k = (size_t)t->k;
    double *own = malloc(2 * (size_t)t->band * sizeof *own);
    bool done = own || lq_fail(err, LQ_E_MEMORY, "no memory for %zu scales", count), wide;
    int64_t bad[2];
    for (t->first = 0; done && t->first < t->w->n; t->first += t->band) {
        const int64_t n = band_rows(t);
        lq_mat m = rows_of(t, n);
        if (!heard(t, err)) done = false;
        for (size_t i = 0; i < (size_t)n * k; i++) t->edited[i] = t->rows[i] * t->a.by[(size_t)at * k + i % k];
        m.p = t->edited;
        t->s->dev->ops.round(t->s->dev, &(lq_round_args){
            .w = m, .type = t->a.type, .table = t->a.table, .scale = t->scale + (size_t)t->first * t->groups,
            .error = own, .norm = own + t->band, .bad = bad, .wide = &wide});
        done = done && t->s->dev->ops.sync(t->s->dev, err);
    }
    lq_levels levels = {.map = t->map, .offset = t->offset + at, .by = t->by + (size_t)at * blocks};
    if (done) lq_levels_span(&(lq_recipe){.type = t->a.type}, t->scale, count, &levels);
    free(own);
    return done;
}

// What scales of the rows at hand may be, of `count` tries from `at` on.
static void put_levels(const tried *t, int at, int count, int64_t n) {
    const size_t blocks = lq_scale_blocks((size_t)t->w->n * t->groups), cells = (size_t)n * t->groups;
    for (int i = 0; i < count; i++)
        for (size_t j = 0; j < cells; j++)
            t->level[(size_t)i * cells + j] = t->by[(size_t)(at + i) * blocks +
                                                    ((size_t)t->first * t->groups + j) / LQ_DQ];
}

// --- bands ---

// `count` tries from `at` on of the rows at hand.
static bool try_band(tried *t, const lq_mat *rows, int at, int count, double *loss, lq_err *err) {
    lq_dev *dev = t->s->dev;
    lq_tries_args a = t->a;
    bool *wide = calloc((size_t)count, sizeof *wide);
    if (!wide) return lq_fail(err, LQ_E_MEMORY, "no memory for %d tries", count);
    if (a.scale_by) put_levels(t, at, count, rows->rows);
    a.w = *rows;
    a.tries = count;
    a.by += (size_t)at * (size_t)t->k;
    a.scale2 = t->scale2 + at;
    a.scale_offset = t->offset ? t->offset + at : NULL;
    if (a.fixed) a.fixed += at, a.fixed_zero += at;
    a.loss = a.h ? t->loss : loss + at;
    a.wide = wide;
    dev->ops.tries(dev, &a);
    const bool done = dev->ops.sync(dev, err);
    for (int i = 0; done && i < count; i++) {
        t->wide[at + i] |= wide[i];
        for (int r = 0; a.h && r < rows->rows; r++) loss[at + i] += t->loss[(size_t)i * (size_t)rows->rows + (size_t)r];
    }
    free(wide);
    return done;
}

// Tries at .. end of all rows.
static bool try_rows(tried *t, int at, int end, double *loss, lq_err *err) {
    const int step = lq_lend_on(t->s->dev) ? end - at : 1;
    for (int i = at; i < end && t->a.h; i++) loss[i] = 0;
    for (t->first = 0; t->first < t->w->n; t->first += t->band) {
        const lq_mat rows = rows_of(t, band_rows(t));
        for (int i = at; i < end; i += step)
            if (!heard(t, err) || !try_band(t, &rows, i, end - i < step ? end - i : step, loss, err)) return false;
    }
    return true;
}

static bool open_tried(tried *t, lq_err *err) {
    const lq_weight *w = t->w;
    const lq_wtype *type = &t->a.type;
    const size_t k = (size_t)t->k, tries = (size_t)t->a.tries;
    t->groups = (size_t)lq_weight_groups(type, t->k);
    t->band = lq_lend_on(t->s->dev) ? (BAND + t->k - 1) / t->k : (int64_t)(lq_band_bytes(t->k) / (k * sizeof(float)));
    if (type->rows > 1) t->band = t->band > type->rows ? t->band / type->rows * type->rows : type->rows;
    if (!t->a.h || t->band > w->n) t->band = w->n;
    const size_t band = (size_t)t->band, cells = band * k, count = (size_t)w->n * t->groups;
    const bool plain = w->type.kind == LQ_W_PLAIN && w->layout == LQ_ANY && !w->perm && !w->outliers;
    const bool changes = t->edit.row || t->edit.in || t->edit.aparts;
    bool done = (t->loss = malloc(tries * band * sizeof *t->loss)) && (t->wide = calloc(tries, sizeof *t->wide)) &&
                (t->scale2 = calloc(tries, sizeof *t->scale2)) &&
                ((plain && !changes && !type->dq) || (t->rows = malloc(cells * sizeof *t->rows)));
    if (type->dq)
        done = done && (t->edited = malloc(cells * sizeof *t->edited)) &&
               (t->scale = malloc(count * sizeof *t->scale)) &&
               (t->by = malloc(tries * lq_scale_blocks(count) * sizeof *t->by)) &&
               (t->offset = malloc(tries * sizeof *t->offset)) && (t->map = malloc(256 * sizeof *t->map)) &&
               (t->level = malloc(tries * band * t->groups * sizeof *t->level));
    t->a.scale_by = t->level, t->a.scale_map = t->map;
    return done || lq_fail(err, LQ_E_MEMORY, "no memory to try a matrix of %lld x %zu", (long long)w->n, k);
}

bool lq_tries_matrix(const lq_seek *s, const lq_weight *w, const lq_edit *edit, const lq_tries_args *a, double *loss,
                     lq_err *err) {
    tried t = {.s = s, .w = w, .edit = *edit, .a = *a, .k = w->k};
    t.edit.column = NULL;
    t.a.table = lq_wtype_table(&a->type);
    bool done = open_tried(&t, err);
    if (a->type.scale == LQ_E4M3) done = done && find_scale2(&t, err);
    for (int i = 0; a->type.dq && i < a->tries; i++) done = done && find_levels(&t, i, err);
    done = done && try_rows(&t, 0, a->tries, loss, err);
    t.a.type.scale = LQ_F32;
    for (int i = 0; done && i < a->tries; i++)
        if (t.wide[i]) done = try_rows(&t, i, i + 1, loss, err);
    float *all[] = {t.rows, t.scale2, t.edited, t.scale, t.by, t.offset, t.map, t.level};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(t.loss);
    free(t.wide);
    return done;
}
