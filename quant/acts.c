// acts.c: what is stored beside weights by what their inputs are: the columns that stay in 16 bits because what is in
// them is large, and of activations that are rounded a scale that holds for all rows. Both are of all that the text
// gives the input, of experts too: the runtime gives x one form for all who read it. Owns the sums that they are found
// by.
#include "quant/here.h"
#include "quant/pass.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES = 40, BANDS = 16 }; // of the range, each 2^-1/4 of the one before; in which columns are summed

// --- what is asked for ---

float lq_salient_share(const lq_recipe *r) {
    return r->share > 0 ? r->share : r->salient == LQ_SALIENT_OUTLIER ? 0.0625f : 0.01f;
}

int lq_acts_limit(const lq_recipe *r, int64_t k) {
    if (r->salient == LQ_SALIENT_NONE) return 0;
    const double most = (double)k * (double)lq_salient_share(r);
    return most < 1 ? 1 : most < LQ_OUTLIERS ? (int)most : LQ_OUTLIERS;
}

bool lq_acts_reads(const lq_module *m, int input) {
    return m->it->round && lq_reads(m, input) &&
           (m->it->recipe.salient != LQ_SALIENT_NONE || m->it->recipe.type.act.fixed ||
            lq_recipe_weighs(&m->it->recipe));
}

int lq_fixed_form(lq_atype t) { return t.elem == LQ_E4M3 ? LQ_FIXED_E4M3 : t.asym ? LQ_FIXED_ASYM : LQ_FIXED_SYM; }

// --- the sizes of columns ---

typedef struct sizes { lq_columns c; int64_t rows; } sizes;

static bool look_sizes(void *arg, const lq_sight *s, lq_err *err) {
    sizes *z = arg;
    (void)err;
    z->rows += s->x.rows;
    lq_columns_add(&z->c, &s->x);
    return true;
}

// As many as may be, the largest first: outliers by the magnitude that reaches the threshold, else by the sum of
// squares, which is what an error in all rows of a column comes to.
static bool find_outliers(lq_acts *a, const lq_recipe *r, const sizes *z, lq_err *err) {
    const bool sums = r->salient == LQ_SALIENT_COLUMNS;
    const double least = sums ? 0x1p-1000 : r->threshold > 0 ? (double)r->threshold : 6;
    const int most = lq_acts_limit(r, a->k);
    lq_ranked *by = malloc((size_t)a->k * sizeof *by);
    int n = 0;
    a->outlier = malloc((size_t)most * sizeof *a->outlier);
    if (!by || !a->outlier) {
        free(by);
        return lq_fail(err, LQ_E_MEMORY, "no memory for an input of %lld columns", (long long)a->k);
    }
    for (int64_t j = 0; j < a->k; j++) {
        const double size = sums ? z->c.square[j] : (double)fmaxf(-z->c.lo[j], z->c.hi[j]);
        if (size >= least) by[n++] = (lq_ranked){size, j};
    }
    lq_rank(by, (size_t)n);
    a->outliers = n < most ? n : most;
    a->left = sums ? 0 : n - a->outliers;
    lq_rank_places(by, (size_t)a->outliers, a->outlier);
    free(by);
    return true;
}

// --- a scale for all rows ---

// Rows of a matrix whose columns are summed: band by band, so that the sums do not depend on the threads.
typedef struct summed {
    const lq_weight *w;
    lq_edit edit;
    float *row;   // [BANDS][k]
    double *sum;  // [BANDS][k]
} summed;

static void sum_band(void *arg, int band, int worker) {
    const summed *s = arg;
    const int64_t k = s->w->k, first = s->w->n * band / BANDS, last = s->w->n * (band + 1) / BANDS;
    float *row = s->row + (int64_t)band * k;
    double *sum = s->sum + (int64_t)band * k;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        lq_weight_row(s->w, i, row);
        lq_edit_row(&s->edit, i, row, k);
        for (int64_t j = 0; j < k; j++) sum[j] += (double)row[j] * (double)row[j];
    }
}

// What an error of 1 in a column comes to in the outputs: the sum of squares of its weights, of all who read it so.
static bool find_costs(lq_acts *a, const lq_block *b, int input, lq_pool *pool, lq_err *err) {
    const size_t k = (size_t)a->k;
    summed s = {.row = malloc(BANDS * k * sizeof *s.row), .sum = calloc(BANDS * k, sizeof *s.sum)};
    bool done = (s.row && s.sum) || lq_fail(err, LQ_E_MEMORY, "no memory for an input of %zu columns", k);
    for (const lq_module *m = b->module; done && m < b->module + b->modules; m++) {
        const lq_slot *slot = &m->it->slot;
        if (!lq_acts_reads(m, input) || !m->it->recipe.type.act.fixed) continue;
        for (int i = 0; done && i < (slot->count ? slot->count : 1); i++) {
            lq_pick from;
            lq_weight w;
            done = lq_item_pick(b->plan->in, m->it, i, &from, err) &&
                   lq_ckpt_pick(b->plan->in, &from, slot->n, slot->k, &w, NULL, err);
            if (!done) break;
            s.w = &w, s.edit = lq_edit_of(&m->edit, i);
            lq_pool_run(pool, sum_band, &s, BANDS);
            lq_ckpt_done(b->plan->in, &w);
        }
    }
    for (size_t j = 0; done && j < k; j++)
        for (size_t i = 0; i < BANDS; i++) a->cost[j] += s.sum[i * k + j];
    free(s.row);
    free(s.sum);
    return done;
}

lq_fixed lq_fixed_of(int form, double lo, double hi, int share) {
    const double least = 0x1p-100, part = exp2(-share / 4.0), top = fmax(-lo, hi) * part;
    if (!(top > 0)) return (lq_fixed){.scale = 1};
    if (form == LQ_FIXED_E4M3) return (lq_fixed){.scale = (float)fmax(top / 448, least)};
    if (form == LQ_FIXED_SYM) return (lq_fixed){.scale = (float)fmax(top / 127, least)};
    lq_fixed f = {.scale = (float)fmax((fmax(hi, 0) - fmin(lo, 0)) * part / 255, least)};
    f.zero = (int32_t)rint(fmax(-128, fmin(127, -128 - fmin(lo, 0) * part / (double)f.scale)));
    return f;
}

typedef struct tried {
    const lq_acts *a;
    const float *x; // [rows][k]
    int rows;
    double lo, hi;
    float *row;     // [threads][k]
    uint8_t *code;  // [threads][k]
    double sum[LQ_FIXED][SHARES];
} tried;

// A row as it is rounded, in `out`.
static void round_row(int form, lq_fixed f, const float *x, int64_t k, uint8_t *code, float *out) {
    const float by = 1 / f.scale, most = form == LQ_FIXED_E4M3 ? 448 : 127, magic = 12582912; // 1.5 * 2^23
    const float low = form == LQ_FIXED_ASYM ? (float)(-128 - f.zero) : -most;
    const float high = form == LQ_FIXED_ASYM ? (float)(127 - f.zero) : most;
    for (int64_t j = 0; j < k; j++) {
        const float v = x[j] * by;
        out[j] = v < low ? low : v > high ? high : v;
    }
    if (form == LQ_FIXED_E4M3) {
        lq_dtypes[LQ_E4M3].from_f32(out, code, (size_t)k);
        lq_dtypes[LQ_E4M3].to_f32(code, out, (size_t)k);
    } else {
        for (int64_t j = 0; j < k; j++) out[j] = (out[j] + magic) - magic; // rint, of what is below 2^22
    }
    for (int64_t j = 0; j < k; j++) out[j] *= f.scale;
}

static void try_one(void *arg, int task, int worker) {
    tried *t = arg;
    const int form = task / SHARES, share = task % SHARES;
    const int64_t k = t->a->k;
    float *row = t->row + (size_t)worker * (size_t)k;
    double sum = 0;
    if (!t->a->wants[form]) return;
    const lq_fixed f = lq_fixed_of(form, t->lo, t->hi, share);
    for (int r = 0; r < t->rows; r++) {
        const float *x = t->x + (size_t)r * (size_t)k;
        round_row(form, f, x, k, t->code + (size_t)worker * (size_t)k, row);
        for (int64_t j = 0; j < k; j++) {
            const double e = (double)(x[j] - row[j]);
            sum += e * e * t->a->cost[j];
        }
    }
    t->sum[form][share] += sum;
}

typedef struct trying { tried *t; lq_pool *pool; lq_dev *on; } trying;

static bool look_errors(void *arg, const lq_sight *s, lq_err *err) {
    const trying *y = arg;
    lq_here here;
    if (!lq_here_open(y->on, &s->x, &here, err)) return false;
    y->t->x = here.x, y->t->rows = s->x.rows;
    lq_pool_run(y->pool, try_one, y->t, LQ_FIXED * SHARES);
    lq_here_close(&here);
    return true;
}

// Of all shares of the range the one with the least error, the largest of equals.
static bool find_scales(lq_acts *a, lq_stream *s, const lq_block *b, int input, const sizes *z, lq_err *err) {
    lq_pool *pool = lq_stream_dev(s)->pool;
    const size_t k = (size_t)a->k, threads = (size_t)lq_pool_threads(pool);
    tried *t = calloc(1, sizeof *t);
    float *row = malloc(threads * k * sizeof *row);
    uint8_t *code = malloc(threads * k);
    a->cost = calloc(k, sizeof *a->cost);
    bool done = (t && row && code && a->cost) || lq_fail(err, LQ_E_MEMORY, "no memory for an input of %zu columns", k);
    done = done && find_costs(a, b, input, pool, err);
    for (int i = 0; done && a->aside && i < a->outliers; i++) a->cost[a->outlier[i]] = 0;
    if (done) {
        *t = (tried){.a = a, .row = row, .code = code};
        for (size_t j = 0; j < k; j++) {
            if (!(a->cost[j] > 0)) continue; // nobody reads it, or not so
            t->lo = fmin(t->lo, (double)z->c.lo[j]);
            t->hi = fmax(t->hi, (double)z->c.hi[j]);
        }
        done = lq_stream_see(s, input, false, look_errors, &(trying){t, pool, lq_stream_on(s)}, err);
    }
    for (int form = 0; done && form < LQ_FIXED; form++) {
        int best = 0;
        for (int i = 1; i < SHARES; i++) best = t->sum[form][i] < t->sum[form][best] ? i : best;
        a->fixed[form] = lq_fixed_of(form, t->lo, t->hi, best);
    }
    free(t);
    free(row);
    free(code);
    return done;
}

// --- an input ---

bool lq_acts_make(lq_stream *s, const lq_block *b, int input, lq_acts *a, lq_err *err) {
    const size_t k = (size_t)b->input[input].k;
    const lq_recipe *outliers = NULL; // of the first who wants them
    bool fixed = false, weighs = false;
    *a = (lq_acts){.k = (int64_t)k, .aside = true};
    for (const lq_module *m = b->module; m < b->module + b->modules; m++) {
        const lq_recipe *r = &m->it->recipe;
        if (!lq_acts_reads(m, input)) continue;
        if (r->salient != LQ_SALIENT_NONE && !outliers) outliers = r;
        weighs |= lq_recipe_weighs(r);
        if (!r->type.act.fixed) continue;
        a->wants[lq_fixed_form(r->type.act)] = fixed = true;
        a->aside &= r->salient != LQ_SALIENT_NONE;
    }
    sizes z = {0};
    bool done = lq_columns_open(&z.c, lq_stream_on(s), a->k, true, err) &&
                lq_stream_see(s, input, false, look_sizes, &z, err) && lq_columns_end(&z.c, err);
    for (size_t j = 0; done && j < k; j++)
        if (!isfinite(z.c.square[j]))
            done = lq_fail(err, LQ_E_FORMAT, "layer %d: the text makes an input of its matrices infinite or NaN, column "
                           "%zu; expected finite numbers", b->layer, j);
    if (weighs && done)
        done = (a->weight = malloc(k * sizeof *a->weight)) != NULL ||
               lq_fail(err, LQ_E_MEMORY, "no memory for an input of %zu columns", k);
    for (size_t j = 0; done && weighs && j < k; j++) a->weight[j] = (float)(z.c.square[j] / (double)z.rows);
    done = done && (!outliers || find_outliers(a, outliers, &z, err)) &&
           (!fixed || find_scales(a, s, b, input, &z, err));
    lq_columns_close(&z.c);
    if (!done) lq_acts_close(a);
    return done;
}

void lq_acts_close(lq_acts *a) {
    free(a->outlier);
    free(a->weight);
    free(a->cost);
    *a = (lq_acts){0};
}

// --- a matrix ---

static size_t line(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

size_t lq_acts_bytes(const lq_recipe *r, int64_t n, int64_t k) {
    const size_t o = (size_t)lq_acts_limit(r, k);
    return line(o * sizeof(int32_t)) + line(o * (size_t)n * sizeof(uint16_t)) + 64;
}

void lq_acts_lay(const lq_acts *a, const lq_recipe *r, uint8_t *at, lq_weight *w) {
    if (r->salient != LQ_SALIENT_NONE && a->outliers) {
        const size_t o = (size_t)a->outliers;
        w->outliers = a->outliers;
        memcpy(at, a->outlier, o * sizeof *a->outlier);
        w->outlier = (const int32_t *)(void *)at;
        at += line(o * sizeof *a->outlier);
        w->outlier_w = (const uint16_t *)(void *)at;
        at += line(o * (size_t)w->n * sizeof(uint16_t));
    }
    if (!w->type.act.fixed) return;
    const lq_fixed *f = &a->fixed[lq_fixed_form(w->type.act)];
    float *scale = (float *)(void *)at;
    int32_t *zero = (int32_t *)(void *)(at + sizeof *scale);
    *scale = f->scale, *zero = f->zero;
    w->act_scale = scale;
    if (w->type.act.asym) w->act_zero = zero;
}
