// forward.c: one pass of a batch of rows through a model, as its description says. Reads the model, writes the buffers and the
// KV cache; allocates nothing. Every number of a row depends on that row and the cache alone, whatever else is in the batch.
#include "runtime/model/model.h"
#include <stdlib.h>
#include <string.h>

struct lq_buffers {
    int rows, outs;
    lq_mat h;                  // [rows][dim] the residual
    lq_mat x;                  // [rows][dim] normed
    lq_mat delta;              // [rows][dim] what the next norm adds to h
    lq_mat q, k, v, mix;       // [rows][heads * head_dim] ...
    lq_mat gate, up;           // [rows][ffn]
    lq_mat head_h, head_delta; // [outs][dim]
    lq_mat logits;             // [outs][vocab]
    void *act;                 // of lq_act_bytes
    lq_mat turned;             // [rows][widest k] inputs reordered or scaled for weights that ask for it
    int32_t *ints;             // device copies of a batch's indices, where the device is not the host
    size_t int_cap, int_used;
    bool pending;              // delta is still to be added
};

static lq_mat view(lq_mat m, int rows, int cols) {
    m.rows = rows;
    m.cols = cols;
    m.stride = (size_t)cols;
    return m;
}
static bool mat_new(const lq_model *m, int rows, int64_t cols, lq_mat *out, lq_err *err) {
    size_t bytes;
    *out = (lq_mat){.type = LQ_F32, .rows = rows, .cols = (int)cols, .stride = (size_t)cols};
    if (!lq_mul_size((size_t)rows, (size_t)cols * sizeof(float), &bytes)) return lq_fail(err, LQ_E_LIMIT, "a buffer of %d x %lld is too large", rows, (long long)cols);
    out->p = lq_model_alloc(m, bytes, err);
    return out->p != NULL;
}

// --- sizes ---
typedef struct widths { int64_t dim, q, k, v, mix, ffn, heads, v_dim; } widths;
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static widths widest(const lq_desc *d) {
    widths w = {.dim = d->dim};
    for (int i = 0; i < d->layers; i++) {
        const lq_layer *l = &d->layer[i];
        w.q = max64(w.q, (int64_t)l->heads * l->head_dim);
        w.k = max64(w.k, (int64_t)l->kv_heads * l->head_dim);
        w.v = max64(w.v, (int64_t)l->kv_heads * l->v_dim);
        w.mix = max64(w.mix, (int64_t)l->heads * l->v_dim);
        w.ffn = max64(w.ffn, l->ffn);
        w.heads = max64(w.heads, l->heads);
        w.v_dim = max64(w.v_dim, l->v_dim);
    }
    return w;
}
static void act_room(const lq_model *m, const lq_bound *b, int rows, size_t *most) {
    if (!b->w.q) return;
    const size_t n = lq_act_bytes(m->dev, &b->w, rows);
    if (n > *most) *most = n;
}
static bool turns(const lq_model *m) {
    for (int r = 0; r < LQ_ROLES; r++)
        for (int l = -1; l < m->desc.layers; l++) {
            const lq_weight *w = l < 0 ? &m->top[r].w : &m->layer[l][r].w;
            if (w->smooth || w->perm) return true;
        }
    return false;
}
static size_t most_act(const lq_model *m, int rows) {
    size_t most = 64;
    for (int r = 0; r < LQ_ROLES; r++) {
        act_room(m, &m->top[r], rows, &most);
        for (int l = 0; l < m->desc.layers; l++) act_room(m, &m->layer[l][r], rows, &most);
    }
    return most;
}

bool lq_buffers_open(const lq_model *m, int rows, int outs, int max_len, lq_buffers **out, lq_err *err) {
    *out = NULL;
    lq_buffers *b = calloc(1, sizeof *b);
    if (!b) return lq_fail(err, LQ_E_MEMORY, "no memory for buffers");
    const widths w = widest(&m->desc);
    const int most = rows > outs ? rows : outs; // rows of a matmul
    b->rows = rows;
    b->outs = outs;
    b->int_cap = m->dev->host ? 0 : (size_t)rows * (size_t)(max_len / 16 * m->desc.groups + 16) + 1024; // ids, positions and tables of pages of 16 or more
    const lq_dev_limits limits = {.rows = most, .outs = outs, .k = (int)max64(w.dim, max64(w.mix, w.ffn)),
                                  .n = (int)max64(max64(m->desc.vocab, w.ffn), max64(max64(w.q, w.dim), max64(w.k, w.v))),
                                  .heads = (int)w.heads, .dv = (int)w.v_dim, .max_at = max_len, .vocab = m->desc.vocab};
    bool done = mat_new(m, rows, w.dim, &b->h, err) && mat_new(m, rows, w.dim, &b->x, err) && mat_new(m, rows, w.dim, &b->delta, err) &&
                mat_new(m, rows, w.q, &b->q, err) && mat_new(m, rows, w.k, &b->k, err) && mat_new(m, rows, w.v, &b->v, err) &&
                mat_new(m, rows, w.mix, &b->mix, err) && mat_new(m, rows, w.ffn, &b->gate, err) && mat_new(m, rows, w.ffn, &b->up, err) &&
                mat_new(m, outs, w.dim, &b->head_h, err) && mat_new(m, outs, w.dim, &b->head_delta, err) &&
                mat_new(m, outs, m->desc.vocab, &b->logits, err) && (b->act = lq_model_alloc(m, most_act(m, most), err)) != NULL &&
                (!turns(m) || mat_new(m, most, limits.k, &b->turned, err)) &&
                (!b->int_cap || (b->ints = lq_model_alloc(m, b->int_cap * sizeof *b->ints, err)) != NULL) && m->dev->ops.reserve(m->dev, &limits, err);
    if (!done) {
        lq_buffers_close(m, b);
        return false;
    }
    *out = b;
    return true;
}
void lq_buffers_close(const lq_model *m, lq_buffers *b) {
    if (!b) return;
    void *const all[] = {b->h.p, b->x.p, b->delta.p, b->q.p, b->k.p, b->v.p, b->mix.p, b->gate.p, b->up.p, b->head_h.p, b->head_delta.p, b->logits.p, b->act, b->turned.p, b->ints};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) m->dev->ops.free(m->dev, all[i]);
    free(b);
}
lq_mat lq_buffers_residual(const lq_buffers *b, int rows) { return view(b->h, rows, b->h.cols); }

// --- steps ---

// y[i] = x w[i]^T + bias for the matrices of one set; those that read the same form of x go in one call.
static void apply(lq_model *m, lq_buffers *b, lq_mat x, const lq_bound *const *w, const lq_mat *y, int count) {
    bool done[LQ_MATS] = {false};
    for (int first = 0; first < count; first++) {
        if (done[first]) continue;
        const lq_weight *lead = &w[first]->w;
        lq_act act = {.x = lead->smooth || lead->perm ? view(b->turned, x.rows, x.cols) : x};
        lq_act_bind(m->dev, &act, lead, x.rows, b->act);
        m->dev->ops.quant(m->dev, &(lq_quant_args){.x = x, .act = &act});
        lq_matmul_args args = {.x = &act};
        for (int i = first; i < count; i++) {
            if (done[i] || !lq_act_same(m->dev, lead, &w[i]->w)) continue;
            args.w[args.count] = &w[i]->w;
            args.bias[args.count] = w[i]->bias;
            args.y[args.count++] = y[i];
            done[i] = true;
        }
        m->dev->ops.matmul(m->dev, &args);
    }
}
static void norm(lq_model *m, lq_mat x, const lq_mat *delta, const lq_bound *gamma, lq_mat y) {
    m->dev->ops.norm(m->dev, &(lq_norm_args){.kind = m->desc.norm, .eps = m->desc.norm_eps, .plus_one = m->desc.norm_plus_one, .x = x, .delta = delta,
                                             .gamma = gamma->v, .beta = gamma->bias, .y = y});
}
static const int32_t *on_device(lq_model *m, lq_buffers *b, const int32_t *src, size_t n) {
    if (m->dev->host || !src) return src;
    int32_t *dst = b->ints + b->int_used;
    b->int_used += n;
    m->dev->ops.put(m->dev, dst, src, n * sizeof *src);
    return dst;
}

static void attention(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch, int layer) {
    const lq_layer *l = &m->desc.layer[layer];
    const lq_bound *w = m->layer[layer];
    const int n = batch->rows.n;
    const lq_mat x = view(b->x, n, m->desc.dim), q = view(b->q, n, l->heads * l->head_dim), k = view(b->k, n, l->kv_heads * l->head_dim),
                 v = view(b->v, n, l->kv_heads * l->v_dim), mix = view(b->mix, n, l->heads * l->v_dim);
    const bool own = l->kv_from == layer;
    lq_rows rows = batch->rows;
    rows.tables = batch->tables[l->group];
    apply(m, b, x, (const lq_bound *const[]){&w[LQ_R_Q], &w[LQ_R_K], &w[LQ_R_V]}, (const lq_mat[]){q, k, v}, own ? 3 : 1);
    if (l->rope >= 0)
        m->dev->ops.rope(m->dev, &(lq_rope_args){.rows = &rows, .inv_freq = m->inv_freq[l->rope], .dim = m->desc.rope[l->rope].dim, .mscale = m->mscale[l->rope],
                                                 .interleaved = m->desc.rope[l->rope].interleaved, .head_dim = l->head_dim, .q = q, .k = own ? k : (lq_mat){0}});
    if (own) m->dev->ops.kv_write(m->dev, &(lq_kv_write_args){.rows = &rows, .k = k, .v = v, .cache = kv->layer[layer]});
    m->dev->ops.attn(m->dev, &(lq_attn_args){.rows = &rows, .q = q, .cache = kv->layer[layer], .heads = l->heads, .scale = l->attn_scale, .softcap = l->attn_softcap,
                                             .window = l->window, .chunk = l->chunk, .sinks = w[LQ_R_SINKS].v, .y = mix, .max_at = batch->max_at});
}
static void mlp(lq_model *m, lq_buffers *b, int layer, int n) {
    const lq_layer *l = &m->desc.layer[layer];
    const lq_bound *w = m->layer[layer];
    const lq_mat x = view(b->x, n, m->desc.dim), gate = view(b->gate, n, l->ffn), up = view(b->up, n, l->ffn);
    if (l->gated) apply(m, b, x, (const lq_bound *const[]){&w[LQ_R_GATE], &w[LQ_R_UP]}, (const lq_mat[]){gate, up}, 2);
    else apply(m, b, x, (const lq_bound *const[]){&w[LQ_R_UP]}, (const lq_mat[]){gate}, 1);
    m->dev->ops.glu(m->dev, &(lq_glu_args){.fn = l->act, .gate = gate, .up = l->gated ? up : (lq_mat){0}, .y = gate});
}

void lq_forward_embed(lq_model *m, lq_buffers *b, const lq_batch *batch) {
    b->int_used = 0;
    b->pending = false;
    const int32_t *ids = on_device(m, b, batch->ids, (size_t)batch->rows.n);
    m->dev->ops.embed(m->dev, &(lq_embed_args){.w = &m->top[LQ_R_EMBED].w, .ids = ids, .scale = m->desc.embed_scale, .y = view(b->h, batch->rows.n, m->desc.dim)});
}

void lq_forward_layer(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch, int layer, lq_observer *see, void *arg) {
    const lq_layer *l = &m->desc.layer[layer];
    const lq_bound *w = m->layer[layer];
    const int n = batch->rows.n;
    const lq_mat h = view(b->h, n, m->desc.dim), x = view(b->x, n, m->desc.dim), delta = view(b->delta, n, m->desc.dim);
    const lq_mat mix = view(b->mix, n, l->heads * l->v_dim), gate = view(b->gate, n, l->ffn);
    norm(m, h, b->pending ? &delta : NULL, &w[LQ_R_NORM_MIX], x);
    if (see) see(arg, layer, LQ_SET_QKV, &x);
    attention(m, b, kv, batch, layer);
    if (see) see(arg, layer, LQ_SET_O, &mix);
    apply(m, b, mix, (const lq_bound *const[]){&w[LQ_R_O]}, (const lq_mat[]){delta}, 1);
    m->dev->ops.reduce(m->dev, &(lq_reduce_args){.x = delta});
    norm(m, h, &delta, &w[LQ_R_NORM_MLP], x);
    if (see) see(arg, layer, LQ_SET_GATE_UP, &x);
    mlp(m, b, layer, n);
    if (see) see(arg, layer, LQ_SET_DOWN, &gate);
    apply(m, b, gate, (const lq_bound *const[]){&w[LQ_R_DOWN]}, (const lq_mat[]){delta}, 1);
    m->dev->ops.reduce(m->dev, &(lq_reduce_args){.x = delta});
    b->pending = true;
}

// The rows that want logits are gathered (a gather is an embedding whose table is the residual), normed and multiplied.
void lq_forward_head(lq_model *m, lq_buffers *b, const lq_batch *batch, lq_mat *logits) {
    const lq_ops *ops = &m->dev->ops;
    const int n = batch->outs, dim = m->desc.dim;
    const lq_mat h = view(b->head_h, n, dim), delta = view(b->head_delta, n, dim);
    const int32_t *out = on_device(m, b, batch->out, (size_t)n);
    lq_weight rows = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = batch->rows.n, .k = dim, .q = b->h.p};
    ops->embed(m->dev, &(lq_embed_args){.w = &rows, .ids = out, .y = h});
    rows.q = b->delta.p;
    if (b->pending) ops->embed(m->dev, &(lq_embed_args){.w = &rows, .ids = out, .y = delta});
    norm(m, h, b->pending ? &delta : NULL, &m->top[LQ_R_NORM_OUT], h);
    *logits = view(b->logits, n, m->desc.vocab);
    const lq_bound *head = &m->top[m->desc.tied ? LQ_R_EMBED : LQ_R_HEAD];
    apply(m, b, h, &head, logits, 1);
    if ((m->desc.logit_scale != 0 && m->desc.logit_scale != 1) || m->desc.logit_softcap != 0)
        ops->scale(m->dev, &(lq_scale_args){.x = *logits, .y = *logits, .scale = m->desc.logit_scale != 0 ? m->desc.logit_scale : 1, .cap = m->desc.logit_softcap});
}

// The batch's indices where the device reads them.
static lq_batch staged(lq_model *m, lq_buffers *b, const lq_batch *batch) {
    lq_batch s = *batch;
    const size_t n = (size_t)batch->rows.n, seqs = (size_t)batch->rows.seqs;
    s.rows.seq = on_device(m, b, batch->rows.seq, n);
    s.rows.pos = on_device(m, b, batch->rows.pos, n);
    s.rows.at = batch->rows.at == batch->rows.pos ? s.rows.pos : on_device(m, b, batch->rows.at, n);
    s.rows.first = on_device(m, b, batch->rows.first, seqs + 1);
    for (int g = 0; g < m->desc.groups; g++) s.tables[g] = on_device(m, b, batch->tables[g], seqs * (size_t)batch->rows.table_stride);
    return s;
}
void lq_forward(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *batch, lq_mat *logits) {
    lq_forward_embed(m, b, batch);
    const lq_batch s = staged(m, b, batch);
    for (int l = 0; l < m->desc.layers; l++) lq_forward_layer(m, b, kv, &s, l, NULL, NULL);
    *logits = (lq_mat){0};
    if (batch->outs) lq_forward_head(m, b, &s, logits);
}
