// cost.c: what a step asks of a machine, counted from the model, and what the machine could do, measured.
#include "runtime/model/part.h"
#include <math.h>
#include <stdlib.h>

// --- counted ---

static const lq_part *experts_of(const lq_layer *l) {
    for (int i = 0; i < l->parts; i++)
        if (l->part[i].experts) return &l->part[i];
    return NULL;
}

static size_t weight_bytes(const lq_weight *w) {
    lq_weight_size size;
    return w->q && lq_pack_sizes(w->layout, &w->type, w->n, w->k, &size) ? size.q + size.scale + size.zero : 0;
}

// A matrix that `rows` rows read; of a stack each of them `used` matrices.
static void add_matrix(const lq_model *m, const lq_bound *b, double rows, int used, lq_work *out) {
    const double share = b->stack ? (double)used / b->count : 1;
    const double macs = (double)b->w.n * (double)b->w.k * rows * (b->stack ? used : 1);
    if (!b->w.q) return;
    double bytes = b->stack ? 0 : (double)weight_bytes(&b->w);
    for (int i = 0; b->stack && i < b->count; i++) bytes += (double)weight_bytes(&b->stack[i]);
    out->bytes += bytes * (b->stack ? 1 - pow(1 - share, rows) : 1);
    const bool dots = lq_act_type(m->dev, &b->w.type).elem == LQ_I8;
    *(dots ? &out->dots : lq_act_halves(m->dev, &b->w) ? &out->halves : &out->fmas) += macs;
}

// Positions that the row at position `at` sees, its own included.
static int64_t seen(const lq_part *a, int64_t at) {
    int64_t n = at + 1;
    if (a->chunk) n = at % a->chunk + 1;
    return a->window && n > a->window ? a->window : n;
}

static void add_attention(const lq_model *m, const lq_part *a, int seqs, int at, int rows, lq_work *out) {
    const double width = (double)a->head_dim + a->v_dim;
    int64_t all = 0;
    for (int64_t i = at; i < (int64_t)at + rows; i++) all += seen(a, i);
    const bool halves = lq_attn_type(m->dev, m->kv_type, a->head_dim) == LQ_BF16;
    *(halves ? &out->halves : &out->fmas) += (double)seqs * (double)all * a->heads * width;
    const double each = a->kv_heads * (a->kind == LQ_P_MLA ? a->head_dim : width) * (double)lq_dtype_size(m->kv_type);
    out->bytes += (double)seqs * (double)(seen(a, at) + rows - 1) * each;
}

// A row of each sequence is asked about.
void lq_model_work(const lq_model *m, int seqs, int at, int rows, lq_work *out) {
    const double all = (double)seqs * rows;
    const int trimmed = lq_trims(seqs * rows, seqs) ? lq_trim_layer(&m->desc) : m->desc.layers;
    *out = (lq_work){0};
    for (int l = 0; l < m->desc.layers; l++) {
        const lq_layer *layer = &m->desc.layer[l];
        const lq_part *a = lq_layer_attn(layer), *moe = experts_of(layer);
        const int left = l < trimmed ? rows : 1;
        for (int r = 0; r < LQ_ROLES; r++) {
            const bool heads = r == LQ_R_K_B || r == LQ_R_V_B, kept = r == LQ_R_K || r == LQ_R_V || r == LQ_R_KV_A;
            const double read = l == trimmed && kept ? all : (double)seqs * left;
            add_matrix(m, &m->layer[l][r], read, heads ? a->heads : moe ? moe->experts_used : 1, out);
        }
        if (a) add_attention(m, a, seqs, at + rows - left, left, out);
    }
    add_matrix(m, &m->top[LQ_R_PROJECT_IN], all, 1, out);
    add_matrix(m, &m->top[LQ_R_TOKENS_IN], all, 1, out);
    add_matrix(m, &m->top[LQ_R_PROJECT_OUT], seqs, 1, out);
    add_matrix(m, &m->top[m->desc.tied ? LQ_R_EMBED : LQ_R_HEAD], seqs, 1, out);
}

// Of the layers and then of what stands around them; NULL: there is none, or rows of it are only looked up.
static const lq_weight *matrix_at(const lq_model *m, size_t at) {
    const size_t l = at / LQ_ROLES, r = at % LQ_ROLES;
    const bool top = l == (size_t)m->desc.layers;
    const lq_weight *w = top ? &m->top[r].w : &m->layer[l][r].w;
    if (top && (r == LQ_R_POSITION || r == LQ_R_TOKENS || (r == LQ_R_EMBED && !m->desc.tied))) return NULL;
    return w->q ? w : NULL;
}

bool lq_model_shape(const lq_model *m, size_t i, int64_t *n, int64_t *k) {
    const size_t count = ((size_t)m->desc.layers + 1) * LQ_ROLES;
    for (size_t at = 0; at < count; at++) {
        const lq_weight *w = matrix_at(m, at), *v;
        bool had = !w;
        for (size_t b = 0; !had && b < at; b++) had = (v = matrix_at(m, b)) && v->n == w->n && v->k == w->k;
        if (had || i--) continue;
        *n = w->n;
        *k = w->k;
        return true;
    }
    return false;
}

// --- measured ---

typedef struct spans { lq_span *s; size_t count, cap; } spans;

static bool add_span(spans *s, const void *p, size_t n) {
    if (!n) return true;
    if (!lq_grow((void **)&s->s, s->count, &s->cap, sizeof *s->s)) return false;
    s->s[s->count++] = (lq_span){p, n};
    return true;
}

static bool add_weight(spans *s, const lq_weight *w) {
    lq_weight_size size;
    if (!w->q || !lq_pack_sizes(w->layout, &w->type, w->n, w->k, &size)) return true;
    return add_span(s, w->q, size.q) && add_span(s, w->scale, size.scale) && add_span(s, w->zero, size.zero);
}

static bool add_bound(spans *s, const lq_bound *b) {
    bool done = b->stack || add_weight(s, &b->w);
    for (int i = 0; done && b->stack && i < b->count; i++) done = add_weight(s, &b->stack[i]);
    return done;
}

// Bytes a second. Small models are read again and again, as a decode does, and come from the cache.
static double read_rate(lq_model *m) {
    spans s = {0};
    bool done = add_bound(&s, &m->top[LQ_R_PROJECT_IN]) && add_bound(&s, &m->top[LQ_R_PROJECT_OUT]) &&
                add_bound(&s, &m->top[LQ_R_TOKENS_IN]) &&
                add_bound(&s, &m->top[m->desc.tied ? LQ_R_EMBED : LQ_R_HEAD]);
    for (int l = 0; done && l < m->desc.layers; l++)
        for (int r = 0; done && r < LQ_ROLES; r++) done = add_bound(&s, &m->layer[l][r]);
    double bytes = 0, all = 0, seconds = 0;
    for (size_t i = 0; i < s.count; i++) bytes += (double)s.s[i].n;
    while (done && bytes > 0 && seconds < 0.01) {
        const double took = m->dev->ops.read_time(m->dev, s.s, s.count);
        if (!(took > 0)) break;
        seconds += took;
        all += bytes;
    }
    free(s.s);
    return seconds > 0 ? all / seconds : 0;
}

size_t lq_model_room(lq_model *m) { return m->dev->ops.room(m->dev); }

void lq_model_ceiling(lq_model *m, lq_work *out) {
    const lq_ops *ops = &m->dev->ops;
    *out = (lq_work){read_rate(m), ops->peak(m->dev, LQ_I8), m->dev->bf16 ? ops->peak(m->dev, LQ_BF16) : 0,
                     ops->peak(m->dev, LQ_F32)};
}
