// forward.c: one pass of a batch of rows through a model, as its description says. Reads the model, writes the
// buffers and the KV cache; allocates nothing. Every number of a row depends on that row and the cache alone,
// whatever else is in the batch.
#include "runtime/model/part.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- buffers ---

static bool mat_new(const lq_model *m, lq_dtype type, int rows, int64_t cols, lq_mat *out, lq_err *err) {
    size_t bytes;
    *out = (lq_mat){.type = type, .rows = rows, .cols = (int)cols, .stride = (size_t)cols};
    if (!lq_mul_size((size_t)rows, (size_t)cols * lq_dtype_size(type), &bytes))
        return lq_fail(err, LQ_E_LIMIT, "a buffer of %d x %lld is too large", rows, (long long)cols);
    out->p = lq_model_alloc(m, bytes, err);
    return out->p != NULL;
}

size_t lq_take_bytes(const lq_model *m, int rows, int64_t cols) {
    return ((size_t)rows * (size_t)cols * lq_dtype_size(m->dev->act) + 63) & ~(size_t)63;
}

void *lq_take_raw(lq_run *c, size_t bytes) {
    void *p = c->b->work + c->used;
    c->used += (bytes + 63) & ~(size_t)63;
    return p;
}

lq_mat lq_take(lq_run *c, int rows, int64_t cols) {
    return (lq_mat){.p = lq_take_raw(c, lq_take_bytes(c->m, rows, cols)), .type = c->m->dev->act, .rows = rows,
                    .cols = (int)cols, .stride = (size_t)cols};
}

lq_mat lq_take_f32(lq_run *c, int rows, int cols) {
    return (lq_mat){.p = lq_take_raw(c, lq_f32_bytes(rows, cols)), .type = LQ_F32, .rows = rows, .cols = cols,
                    .stride = (size_t)cols};
}

// What the largest batch asks of the device, and the room for what stands between its ops.
typedef struct sizes { lq_dev_limits limits; size_t work, act; bool turns; } sizes;

static int larger(int a, int64_t b) { return b > a ? (int)b : a; }
static void size_weight(const lq_model *m, const lq_weight *w, int rows, sizes *s) {
    if (!w->q) return;
    const size_t act = lq_act_bytes(m->dev, w, rows);
    if (act > s->act) s->act = act;
    s->turns |= w->smooth || w->perm;
    s->limits.k = larger(s->limits.k, w->k);
    s->limits.n = larger(s->limits.n, w->n);
}

static sizes sizes_of(const lq_model *m, const lq_buffer_sizes *o) {
    const lq_desc *d = &m->desc;
    const int most = larger(o->rows, o->outs);
    sizes s = {.limits = {.rows = most, .outs = o->outs, .k = d->dim, .n = d->vocab, .max_at = o->max_len,
                          .vocab = d->vocab}, .act = 64, .work = 64};
    for (int l = 0; l < d->layers; l++)
        for (int i = 0; i < d->layer[l].parts; i++) {
            const lq_part *p = &d->layer[l].part[i];
            const size_t work = lq_parts[p->kind].room(m, p, o->rows);
            if (work > s.work) s.work = work;
            s.limits.heads = larger(s.limits.heads, p->heads);
            s.limits.dv = larger(s.limits.dv, p->v_dim);
            const int each = p->kind == LQ_P_MLA ? p->heads : p->experts_used;
            s.limits.slots = larger(s.limits.slots, (int64_t)o->rows * each);
        }
    s.limits.rows = larger(most, s.limits.slots);
    for (int r = 0; r < LQ_ROLES; r++) {
        size_weight(m, &m->top[r].w, most, &s);
        for (int l = 0; l < d->layers; l++)
            size_weight(m, &m->layer[l][r].w, m->layer[l][r].count ? s.limits.rows : o->rows, &s);
    }
    const size_t told = lq_take_bytes(m, o->rows, (int64_t)d->layers * d->token_dim);
    if (told > s.work) s.work = told;
    return s;
}

bool lq_buffers_open(const lq_model *m, const lq_buffer_sizes *o, lq_buffers **out, lq_err *err) {
    *out = NULL;
    lq_buffers *b = calloc(1, sizeof *b);
    if (!b) return lq_fail(err, LQ_E_MEMORY, "no memory for buffers");
    const sizes s = sizes_of(m, o);
    const lq_dtype act = m->dev->act;
    const int dim = m->desc.dim, each = larger(m->desc.vocab, 2 * lq_desc_wide(&m->desc));
    b->outs = o->outs;
    b->max_len = o->max_len;
    if (!m->dev->host) b->int_cap = lq_stage_room(o);
    bool done = mat_new(m, act, o->rows, dim, &b->h, err) && mat_new(m, act, o->rows, dim, &b->x, err) &&
                mat_new(m, act, o->rows, dim, &b->delta, err) && mat_new(m, act, o->rows, dim, &b->more, err) &&
                mat_new(m, act, o->outs, dim, &b->head_h, err) && mat_new(m, act, o->outs, dim, &b->head_delta, err) &&
                mat_new(m, LQ_F32, o->outs, m->desc.vocab, &b->logits, err) &&
                (b->work = lq_model_alloc(m, s.work, err)) != NULL &&
                (b->act = lq_model_alloc(m, s.act, err)) != NULL && lq_trim_open(b, o, err) &&
                (!s.turns || mat_new(m, act, s.limits.rows, s.limits.k, &b->turned, err)) &&
                (!m->desc.token_dim ||
                 mat_new(m, act, o->rows, (int64_t)m->desc.layers * m->desc.token_dim, &b->tokens, err)) &&
                (!b->int_cap || (b->ints = lq_model_alloc(m, b->int_cap * sizeof *b->ints, err)) != NULL);
    const size_t table = (size_t)o->slots * (size_t)o->table_stride * sizeof(int32_t);
    for (int g = 0; done && b->int_cap && g < m->desc.groups; g++)
        done = (b->tables[g] = lq_model_alloc(m, table, err)) != NULL;
    if (done && b->int_cap && (!(b->staged = malloc(b->int_cap * sizeof *b->staged)) ||
                               !(b->host = malloc((size_t)o->outs * (size_t)each * sizeof *b->host))))
        done = lq_fail(err, LQ_E_MEMORY, "no memory for logits of %d rows", o->outs);
    if (!done || !m->dev->ops.reserve(m->dev, &s.limits, err)) {
        lq_buffers_close(m, b);
        return false;
    }
    *out = b;
    return true;
}

void lq_buffers_close(const lq_model *m, lq_buffers *b) {
    if (!b) return;
    lq_recordings_free(m, b);
    void *const all[] = {b->h.p, b->x.p, b->delta.p, b->more.p, b->head_h.p, b->head_delta.p, b->logits.p, b->work,
                         b->act, b->turned.p, b->tokens.p, b->ints};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) m->dev->ops.free(m->dev, all[i]);
    for (int g = 0; g < LQ_KV_GROUPS; g++)
        if (b->tables[g]) m->dev->ops.free(m->dev, b->tables[g]);
    free(b->staged);
    free(b->host);
    free(b->trim);
    free(b);
}

// --- layers ---

static void norm(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, int gammas, lq_mat y, lq_act *act) {
    const lq_desc *d = &c->m->desc;
    c->ops->norm(c->m->dev, &(lq_norm_args){.kind = d->norm, .eps = d->norm_eps, .plus_one = d->norm_plus_one,
                                            .x = x, .delta = delta, .gamma = gamma->v,
                                            .beta = gamma->bias, .gammas = gammas, .y = y, .act = act});
}

void lq_norm(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, lq_mat y) {
    norm(c, x, delta, gamma, 0, y, NULL);
}

void lq_norm_turns(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, int gammas, lq_mat y) {
    norm(c, x, delta, gamma, gammas, y, NULL);
}

void lq_norm_for(lq_run *c, lq_mat x, const lq_mat *delta, const lq_bound *gamma, lq_mat y, const lq_bound *reader) {
    norm(c, x, delta, gamma, 0, y, lq_form_ahead(c, y, reader));
}

// Adds what is pending to the residual, unless that can be left to a norm that reads it.
static void enter(lq_run *c, lq_mat h, bool norm_follows) {
    lq_buffers *b = c->b;
    if (b->pending == 0 || (norm_follows && b->pending == 1)) return;
    c->ops->add(c->m->dev, &(lq_add_args){.x = lq_view(b->delta, h.rows, h.cols), .y = h, .scale = b->pending});
    b->pending = 0;
}

// The residual of all rows from their ids, and of the real ones (padding has no position) from where they stand.
static void embed(lq_run *c, lq_mat h, int real) {
    const lq_model *m = c->m;
    const lq_ops *ops = &m->dev->ops;
    const lq_mat x = m->desc.embed_dim ? lq_view(c->b->x, h.rows, m->desc.embed_dim) : h;
    ops->embed(m->dev, &(lq_embed_args){.w = &m->top[LQ_R_EMBED].w, .ids = c->batch.ids,
                                        .scale = m->desc.embed_scale, .y = x});
    c->layer = -1;
    if (m->desc.embed_dim) lq_apply(c, x, (const lq_bound *const[]){&m->top[LQ_R_PROJECT_IN]}, &h, 1);
    if (m->desc.positions) {
        const lq_mat delta = lq_view(c->b->delta, real, h.cols);
        ops->embed(m->dev, &(lq_embed_args){.w = &m->top[LQ_R_POSITION].w, .ids = c->batch.rows.pos, .y = delta});
        ops->add(m->dev, &(lq_add_args){.x = delta, .y = lq_view(h, real, h.cols)});
    }
    if (m->desc.embed_norm) lq_norm(c, h, NULL, &m->top[LQ_R_NORM_EMBED], h);
}

// What each layer is told of a row's token: numbers of its own, and what a matrix makes of its embedding.
static void tell(lq_run *c, int rows) {
    const lq_model *m = c->m;
    const lq_ops *ops = &m->dev->ops;
    const int each = m->desc.token_dim, wide = m->desc.layers * each;
    const lq_mat x = lq_view(c->b->x, rows, m->desc.dim), y = lq_view(c->b->tokens, rows, wide);
    c->used = 0;
    c->layer = -1;
    const lq_mat own = lq_take(c, rows, wide), layers = lq_view(y, rows * m->desc.layers, each);
    ops->embed(m->dev, &(lq_embed_args){.w = &m->top[LQ_R_EMBED].w, .ids = c->batch.ids,
                                        .scale = m->desc.embed_scale, .y = x});
    lq_apply(c, x, (const lq_bound *const[]){&m->top[LQ_R_TOKENS_IN]}, &y, 1);
    ops->scale(m->dev, &(lq_scale_args){.x = y, .y = y, .scale = (float)(1 / sqrt(m->desc.dim))});
    lq_norm(c, layers, NULL, &m->top[LQ_R_NORM_TOKENS], layers);
    ops->embed(m->dev, &(lq_embed_args){.w = &m->top[LQ_R_TOKENS].w, .ids = c->batch.ids,
                                        .scale = m->desc.token_scale, .y = own});
    ops->add(m->dev, &(lq_add_args){.x = own, .y = y});
    ops->scale(m->dev, &(lq_scale_args){.x = y, .y = y, .scale = (float)sqrt(0.5)});
}

void lq_forward_begin(lq_run *c, lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch,
                      const lq_mat *residual) {
    *c = (lq_run){.m = m, .b = b, .kv = kv, .ops = &m->dev->ops};
    lq_stage(c, batch, batch->rows.n, batch->rows.seqs);
    lq_forward_start(c, residual, batch->rows.first[batch->rows.seqs]);
}

void lq_forward_start(lq_run *c, const lq_mat *residual, int real) {
    const lq_model *m = c->m;
    const lq_mat h = lq_view(c->b->h, c->batch.rows.n, m->desc.dim);
    c->b->pending = 0;
    c->ahead = NULL;
    if (residual) m->dev->ops.scale(m->dev, &(lq_scale_args){.x = *residual, .y = h, .scale = 1});
    else embed(c, h, real);
    if (m->desc.token_dim) tell(c, c->batch.rows.n);
}

lq_mat lq_part_reads(lq_run *c, int layer, int i) {
    const lq_part *p = &c->m->desc.layer[layer].part[i];
    const lq_bound *w = c->m->layer[layer];
    const int n = c->batch.rows.n, dim = c->m->desc.dim;
    const lq_mat h = lq_view(c->b->h, n, dim), delta = lq_view(c->b->delta, n, dim), x = lq_view(c->b->x, n, dim);
    const bool pre = p->place & LQ_PRE;
    if (!p->beside) enter(c, h, pre);
    if (!pre) return h;
    lq_norm_for(c, h, c->b->pending != 0 && !p->beside ? &delta : NULL, &w[LQ_R_NORM_0 + i], x,
                lq_parts[p->kind].reader(p, w));
    return x;
}

void lq_forward_layer(lq_run *c, int layer) {
    lq_buffers *b = c->b;
    lq_dev *d = c->m->dev;
    const lq_layer *l = &c->m->desc.layer[layer];
    const lq_bound *w = c->m->layer[layer];
    const int n = c->batch.rows.n, dim = c->m->desc.dim;
    const lq_mat h = lq_view(b->h, n, dim), delta = lq_view(b->delta, n, dim), more = lq_view(b->more, n, dim);
    lq_mat x = h;
    c->layer = layer;
    c->stopped = false;
    if (c->left) lq_run_idle(c);
    for (int i = 0; i < l->parts && !c->stopped; i++) {
        const lq_part *p = &l->part[i];
        const lq_mat y = p->beside ? more : delta;
        c->ahead = NULL;
        if (!p->beside || p->own_norm) x = lq_part_reads(c, layer, i);
        c->used = 0;
        c->said = p->beside;
        c->again = i + 1 < l->parts && l->part[i + 1].beside && !l->part[i + 1].own_norm;
        lq_parts[p->kind].run(c, p, w, x, y);
        if (c->stopped) return;
        c->ops->reduce(d, &(lq_reduce_args){.x = y});
        if (p->place & LQ_POST) lq_norm(c, y, NULL, &w[LQ_R_NORM_POST_0 + i], y);
        if (p->place & LQ_OVER) lq_norm(c, h, &y, &w[LQ_R_NORM_POST_0 + i], h);
        else if (p->beside) c->ops->add(d, &(lq_add_args){.x = y, .y = delta, .scale = p->scale});
        else b->pending = p->scale != 0 ? p->scale : 1;
        if (p->place & LQ_SUM) lq_norm(c, delta, NULL, &w[LQ_R_NORM_POST_0 + i], delta);
    }
    if (!c->m->scale) return;
    enter(c, h, false);
    c->ops->scale(d, &(lq_scale_args){.x = h, .y = h, .scale = c->m->scale[layer]});
}

lq_mat lq_forward_settle(lq_run *c) {
    const lq_mat h = lq_view(c->b->h, c->batch.rows.n, c->m->desc.dim);
    enter(c, h, false);
    return h;
}

void lq_gather(lq_run *c, const void *table, const int32_t *rows, lq_mat y) {
    const lq_dev *d = c->m->dev;
    const lq_wtype type = {.kind = LQ_W_PLAIN, .elem = d->act, .bits = 8 * (int)lq_dtype_size(d->act)};
    const lq_weight w = {.type = type, .n = c->batch.rows.n, .k = y.cols, .q = table};
    d->ops.embed(c->m->dev, &(lq_embed_args){.w = &w, .ids = rows, .y = y});
}

// What the head reads: rows are gathered and normed.
static lq_mat head_input(lq_run *c, const int32_t *out, int n) {
    lq_model *m = c->m;
    lq_buffers *b = c->b;
    const int dim = m->desc.dim;
    const lq_mat h = lq_view(b->head_h, n, dim), delta = lq_view(b->head_delta, n, dim);
    enter(c, lq_view(b->h, c->batch.rows.n, dim), !m->desc.head_raw);
    lq_gather(c, b->h.p, out, h);
    if (b->pending != 0) lq_gather(c, b->delta.p, out, delta);
    const lq_bound *reader = &m->top[m->desc.embed_dim ? LQ_R_PROJECT_OUT : m->desc.tied ? LQ_R_EMBED : LQ_R_HEAD];
    c->ahead = NULL;
    if (!m->desc.head_raw)
        lq_norm_for(c, h, b->pending != 0 ? &delta : NULL, &m->top[LQ_R_NORM_OUT], h, reader);
    c->layer = -1;
    if (!m->desc.embed_dim) return h;
    const lq_mat x = lq_view(b->head_delta, n, m->desc.embed_dim);
    lq_apply(c, h, (const lq_bound *const[]){&m->top[LQ_R_PROJECT_OUT]}, &x, 1);
    return x;
}

lq_mat lq_forward_head(lq_run *c, const int32_t *out, int n) {
    return lq_head(c, lq_stage_out(c, lq_places(c, out, n), n, n), n);
}

lq_mat lq_forward_hidden(lq_run *c, const int32_t *out, int n) {
    return head_input(c, lq_stage_out(c, lq_places(c, out, n), n, n), n);
}

lq_mat lq_head(lq_run *c, const int32_t *out, int n) {
    lq_model *m = c->m;
    const lq_mat x = head_input(c, out, n), logits = lq_view(c->b->logits, n, m->desc.vocab);
    lq_bound head = m->top[m->desc.tied ? LQ_R_EMBED : LQ_R_HEAD];
    head.bias = m->top[LQ_R_HEAD].bias;
    lq_apply(c, x, (const lq_bound *const[]){&head}, &logits, 1);
    if ((m->desc.logit_scale != 0 && m->desc.logit_scale != 1) || m->desc.logit_softcap != 0 || m->head_by)
        m->dev->ops.scale(m->dev, &(lq_scale_args){.x = logits, .y = logits,
                                                   .scale = m->desc.logit_scale != 0 ? m->desc.logit_scale : 1,
                                                   .cap = m->desc.logit_softcap, .by = m->head_by});
    return logits;
}
