// block.c: a block on its way through the pass: its modules, what transforms have made of its vectors, and what is to
// become of a matrix when it is its turn. Owns the changed vectors and factors.
#include "kernels/pack.h"
#include "quant/pass.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const lq_transform lq_transforms[LQ_TRANSFORMS] = {
    {"rotate", lq_rotate_plan, lq_rotate_run, lq_rotate_whole, NULL},
    {"smooth", .search = lq_smooth_search},
    {"awq", NULL, NULL, NULL, lq_awq_search},
    {"clip", NULL, NULL, NULL, NULL},
};

bool lq_block_open(const lq_plan *p, size_t index, lq_block *b, lq_err *err) {
    const size_t first = p->first[index], n = p->first[index + 1] - first;
    *b = (lq_block){.plan = p, .layer = index == 0 || index + 1 == p->blocks ? -1 : (int)index - 1, .modules = (int)n,
                    .alpha = p->base.alpha > 0 ? (double)p->base.alpha : p->alpha};
    b->module = calloc(n + 1, sizeof *b->module);
    if (!b->module) return lq_fail(err, LQ_E_MEMORY, "no memory for a block of %zu tensors", n);
    for (size_t i = 0; i < n; i++) b->module[i].it = &p->items[first + i];
    b->inputs = lq_desc_inputs(&p->desc, b->layer, b->input);
    for (int i = 0; i < LQ_TRANSFORMS; i++)
        if (p->base.transform >> i & 1 && lq_transforms[i].run && !lq_transforms[i].run(b, err)) return false;
    return true;
}

void lq_block_close(lq_block *b) {
    for (int i = 0; i < b->modules; i++) {
        lq_module *m = &b->module[i];
        for (int k = 0; m->made && k < (m->it->slot.count ? m->it->slot.count : 1); k++) free(m->made[k].held);
        free(m->made);
        free(m->vector);
        free(m->reached);
    }
    for (int i = 0; i < LQ_INPUTS; i++) free(b->factor[i]), free(b->share[i]);
    free(b->module);
}

lq_module *lq_block_find(const lq_block *b, lq_role role, bool bias) {
    for (int i = 0; i < b->modules; i++) {
        const lq_slot *s = &b->module[i].it->slot;
        if (s->role == role && s->bias == bias) return &b->module[i];
    }
    return NULL;
}

float *lq_block_vector(lq_block *b, lq_module *m, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const size_t n = (size_t)s->n, count = s->count ? (size_t)s->count : 1;
    if (m->vector) return m->vector;
    float *all = malloc(count * n * sizeof *all);
    bool done = all || lq_fail(err, LQ_E_MEMORY, "no memory for a vector of %zu", count * n);
    for (size_t i = 0; done && i < count; i++) {
        lq_pick from;
        lq_weight w;
        done = lq_item_pick(b->plan->in, m->it, (int)i, &from, err) &&
               lq_ckpt_pick(b->plan->in, &from, s->n, 0, &w, NULL, err);
        if (!done) break;
        lq_dtypes[w.type.elem].to_f32(w.q, all + i * n, n);
        done = lq_weight_finite(&w, true, err) || lq_fail_in(err, "%s: tensor %s", lq_ckpt_path(b->plan->in), s->name);
        lq_ckpt_done(b->plan->in, &w);
    }
    if (done) return m->vector = all;
    free(all);
    return NULL;
}

// --- a matrix ---

int64_t lq_edit_odd(const float *row, int64_t k) {
    for (int64_t j = 0; j < k; j++)
        if (!isfinite(row[j])) return j;
    return -1;
}

lq_edit lq_edit_of(const lq_edit *e, int at) {
    lq_edit one = *e;
    if (e->column) one.column += at * e->columns;
    if (e->row) one.row += at * e->rows;
    return one;
}

void lq_edit_row(const lq_edit *e, int64_t at, float *row, int64_t k) {
    for (int64_t j = 0; j < k && e->row; j++) row[j] *= e->row[at];
    for (int64_t j = 0; j < k && e->column; j++) row[j] *= e->column[j];
    if (e->in) lq_turn_run(e->in, row, k, 1);
    for (int i = 0; i < e->aparts; i++) row[e->apart[i]] = 0;
}

void lq_edit_input(const lq_edit *e, float *x, int64_t k) {
    for (int64_t j = 0; j < k && e->column; j++) x[j] /= e->column[j];
    if (e->in) lq_turn_run(e->in, x, k, 1);
}

typedef struct edited {
    const lq_edit *e;
    const lq_weight *w;
    float *out;     // [n][k]
    float *stripes; // [threads][n][LQ_STRIPE]
    atomic_bool odd; // an element that is not finite was seen
} edited;

static void edit_row(void *arg, int task, int worker) {
    edited *x = arg;
    float *row = x->out + (size_t)task * (size_t)x->w->k;
    (void)worker;
    lq_weight_row(x->w, task, row);
    if (lq_edit_odd(row, x->w->k) >= 0) atomic_store(&x->odd, true);
    lq_edit_row(x->e, task, row, x->w->k);
}

static void turn_stripe(void *arg, int task, int worker) {
    const edited *x = arg;
    const size_t n = (size_t)x->w->n, k = (size_t)x->w->k, first = (size_t)task * LQ_STRIPE;
    const size_t wide = k - first < LQ_STRIPE ? k - first : LQ_STRIPE;
    float *stripe = x->stripes + (size_t)worker * n * LQ_STRIPE, *at = x->out + first;
    for (size_t i = 0; i < n; i++) memcpy(stripe + i * wide, at + i * k, wide * sizeof *at);
    lq_turn_run(x->e->out, stripe, (int64_t)n, (int64_t)wide);
    for (size_t i = 0; i < n; i++) memcpy(at + i * k, stripe + i * wide, wide * sizeof *at);
}

bool lq_weight_finite(const lq_weight *w, bool vector, lq_err *err) {
    const int64_t rows = vector ? 1 : w->n, cols = vector ? w->n : w->k;
    int64_t odd = -1, row = 0;
    float *x = malloc((size_t)cols * sizeof *x);
    if (!x) return lq_fail(err, LQ_E_MEMORY, "no memory for a row of %lld", (long long)cols);
    for (; odd < 0 && row < rows; row++) {
        if (vector) lq_dtypes[w->type.elem].to_f32(w->q, x, (size_t)cols);
        else lq_weight_row(w, row, x);
        odd = lq_edit_odd(x, cols);
    }
    if (odd >= 0)
        lq_fail(err, LQ_E_FORMAT, "row %lld, column %lld is %s, expected a finite number", (long long)row - 1,
                (long long)odd, isnan(x[odd]) ? "NaN" : "infinite");
    free(x);
    return odd < 0;
}

bool lq_edit_matrix(const lq_edit *e, const lq_weight *w, lq_pool *pool, float *out, lq_err *err) {
    edited x = {.e = e, .w = w, .out = out};
    lq_pool_run(pool, edit_row, &x, (int)w->n);
    if (x.odd) return lq_weight_finite(w, false, err);
    if (!e->out) return true;
    x.stripes = malloc((size_t)lq_pool_threads(pool) * (size_t)w->n * LQ_STRIPE * sizeof *x.stripes);
    if (!x.stripes) return lq_fail(err, LQ_E_MEMORY, "no memory to turn a matrix of %lld rows", (long long)w->n);
    lq_pool_run(pool, turn_stripe, &x, (int)((w->k + LQ_STRIPE - 1) / LQ_STRIPE));
    free(x.stripes);
    return true;
}
