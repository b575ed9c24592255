// hidden.c: what an MLP makes of some rows of its input, behind its nonlinearity: there, not in the products of gate
// and up, it shows whether a row that is rounded otherwise serves better. Owns those products.
#include "kernels/pack.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 64 }; // rows of a matrix that are multiplied at once

static lq_mat mat_of(float *p, int rows, int64_t cols, int64_t stride) {
    return (lq_mat){.p = p, .type = LQ_F32, .rows = rows, .cols = (int)cols, .stride = (size_t)stride};
}

static int64_t band_rows(int64_t k) { return (int64_t)(lq_band_bytes(k) / sizeof(float)) / k; }

static bool gates(lq_role r) { return r == LQ_R_GATE || r == LQ_R_EXPERT_GATE || r == LQ_R_SHARED_GATE; }

static bool lifts(lq_role r) { return r == LQ_R_UP || r == LQ_R_EXPERT_UP || r == LQ_R_SHARED_UP; }

bool lq_hidden_of(const lq_slot *s, const lq_recipe *r) {
    return (gates(s->role) || lifts(s->role)) && s->k && s->layer >= 0 && r->transform & LQ_T_CLIP &&
           r->rounding != LQ_ROUND_GPTQ && r->salient == LQ_SALIENT_NONE && r->type.kind != LQ_W_PLAIN;
}

size_t lq_hidden_bytes(const lq_slot *s) {
    return LQ_SOME * (size_t)(s->k + 3 * s->n + 2 * band_rows(s->k)) * sizeof(float);
}

static const lq_part *part_of(const lq_block *b, lq_role role) {
    const lq_layer *l = &b->plan->desc.layer[b->layer];
    for (int i = 0; i < l->parts; i++) {
        const lq_part *p = &l->part[i];
        if (role == LQ_R_EXPERT_UP ? p->kind == LQ_P_MOE : p->kind == LQ_P_MLP && p->shared == (role == LQ_R_SHARED_UP))
            return p;
    }
    return NULL;
}

// --- products ---

typedef struct rows_read {
    const lq_weight *w;
    lq_edit edit;
    int64_t first;
    float *to; // [BAND][k]
} rows_read;

static void read_row(void *arg, int row, int worker) {
    const rows_read *r = arg;
    float *to = r->to + (size_t)row * (size_t)r->w->k;
    (void)worker;
    lq_weight_row(r->w, r->first + row, to);
    lq_edit_row(&r->edit, r->first + row, to, r->w->k);
}

static void multiply(const lq_hidden *h, const float *w, int64_t n, const float *bias, lq_mat y) {
    const lq_weight plain = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = n, .k = h->x.cols, .q = w};
    const lq_act act = {.x = h->x};
    h->dev->ops.matmul(h->dev, &(lq_matmul_args){.x = &act, .count = 1, .w = {&plain}, .bias = {bias}, .y = {y}});
}

// All of x W^T.
static bool product(const lq_hidden *h, const lq_weight *w, const lq_edit *edit, const float *bias, float *to,
                    lq_err *err) {
    rows_read r = {.w = w, .edit = *edit, .to = malloc(BAND * (size_t)w->k * sizeof *r.to)};
    if (!r.to) return lq_fail(err, LQ_E_MEMORY, "no memory for rows of %lld", (long long)w->k);
    bool done = true;
    for (; done && r.first < w->n; r.first += BAND) {
        const int64_t n = w->n - r.first < BAND ? w->n - r.first : BAND;
        lq_pool_run(h->dev->pool, read_row, &r, (int)n);
        multiply(h, r.to, n, bias ? bias + r.first : NULL, mat_of(to + r.first, h->x.rows, n, h->n));
        done = h->dev->ops.sync(h->dev, err);
    }
    free(r.to);
    return done;
}

// The bias of a matrix as it is by now; *out stays NULL where there is none.
static bool bias_of(const lq_block *b, lq_role role, int at, float **out, lq_err *err) {
    const lq_module *m = lq_block_find(b, role, true);
    if (!m) return true;
    const size_t n = (size_t)m->it->slot.n;
    lq_pick from;
    lq_weight w;
    if (!(*out = malloc(n * sizeof **out))) return lq_fail(err, LQ_E_MEMORY, "no memory for a bias of %zu", n);
    if (m->vector) {
        memcpy(*out, m->vector + (size_t)at * n, n * sizeof **out);
        return true;
    }
    if (!lq_item_pick(b->plan->in, m->it, at, &from, err) ||
        !lq_ckpt_pick(b->plan->in, &from, (int64_t)n, 0, &w, NULL, err)) return false;
    lq_dtypes[w.type.elem].to_f32(w.q, *out, n);
    lq_ckpt_done(b->plan->in, &w);
    return true;
}

// What a module's matrix makes of x as it was.
static bool source(lq_hidden *h, const lq_block *b, const lq_module *m, float **bias, float *to, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    const lq_edit edit = lq_edit_of(&m->edit, h->at);
    lq_pick from;
    lq_weight w;
    if (!bias_of(b, s->role, h->at, bias, err) || !lq_item_pick(b->plan->in, m->it, h->at, &from, err) ||
        !lq_ckpt_pick(b->plan->in, &from, s->n, s->k, &w, NULL, err)) return false;
    const bool done = product(h, &w, &edit, *bias, to, err);
    lq_ckpt_done(b->plan->in, &w);
    return done;
}

// --- behind the nonlinearity ---

static void behind(const lq_hidden *h, lq_mat gate, lq_mat up, lq_mat y) {
    const lq_part *p = h->part;
    lq_glu_args a = {.fn = p->act, .gate = h->gate ? gate : up, .up = h->gate ? up : (lq_mat){0}, .y = y};
    if (p->kind == LQ_P_MOE) a.alpha = p->act_alpha, a.clamp = p->act_clamp, a.up_add = p->up_add;
    h->dev->ops.glu(h->dev, &a);
}

bool lq_hidden_open(lq_dev *dev, const lq_block *b, const lq_module *m, int at, const lq_watch *w, lq_hidden *h,
                    lq_err *err) {
    const lq_role up = gates(m->it->slot.role) ? m->it->slot.role + 1 : m->it->slot.role;
    const lq_module *pair[2] = {lq_block_find(b, up - 1, false), lq_block_find(b, up, false)};
    const lq_part *p = part_of(b, up);
    const size_t n = (size_t)m->it->slot.n, rows = (size_t)w->somes;
    lq_hidden_close(h);
    if (!p || p->act == LQ_XIELU || !pair[1] || !rows || pair[1]->edit.out) return true;
    if (!gates(up - 1) || !pair[0] || !lq_reads(pair[0], pair[1]->it->slot.input)) pair[0] = NULL;
    *h = (lq_hidden){.dev = dev, .part = p, .of = pair[1], .at = at, .n = (int64_t)n,
                     .x = mat_of(w->some, w->somes, w->k, w->k)};
    h->up = malloc(rows * n * sizeof *h->up);
    h->h = malloc(rows * n * sizeof *h->h);
    h->gate = pair[0] ? malloc(rows * n * sizeof *h->gate) : NULL;
    h->tried = malloc(2 * rows * (size_t)band_rows(w->k) * sizeof *h->tried);
    if (!h->up || !h->h || (pair[0] && !h->gate) || !h->tried)
        return lq_fail(err, LQ_E_MEMORY, "no memory for what %s makes of %zu rows", m->it->slot.name, rows);
    if ((pair[0] && !source(h, b, pair[0], &h->bias[0], h->gate, err)) ||
        !source(h, b, pair[1], &h->bias[1], h->up, err)) return false;
    const int64_t k = h->n;
    behind(h, mat_of(h->gate, h->x.rows, k, k), mat_of(h->up, h->x.rows, k, k), mat_of(h->h, h->x.rows, k, k));
    return dev->ops.sync(dev, err);
}

bool lq_hidden_made(lq_hidden *h, const lq_weight *gate, lq_err *err) {
    return product(h, gate, &(lq_edit){0}, h->bias[0], h->gate, err);
}

bool lq_hidden_error(const lq_hidden *h, int64_t first, int64_t n, const float *w, double *to, lq_err *err) {
    const int rows = h->x.rows;
    const lq_mat tried = mat_of(h->tried, rows, n, n), y = mat_of(h->tried + (size_t)rows * (size_t)n, rows, n, n);
    const float *bias = h->bias[h->lifts];
    multiply(h, w, n, bias ? bias + first : NULL, tried);
    if (h->lifts) behind(h, mat_of(h->gate ? h->gate + first : NULL, rows, n, h->n), tried, y);
    else behind(h, tried, mat_of(h->up + first, rows, n, h->n), y);
    if (!h->dev->ops.sync(h->dev, err)) return false;
    memset(to, 0, (size_t)n * sizeof *to);
    for (int r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) {
            const double e = (double)((float *)y.p)[(int64_t)r * n + i] - (double)h->h[r * h->n + first + i];
            to[i] += e * e;
        }
    return true;
}

void lq_hidden_close(lq_hidden *h) {
    free(h->gate);
    free(h->up);
    free(h->h);
    free(h->tried);
    free(h->bias[0]);
    free(h->bias[1]);
    *h = (lq_hidden){0};
}
