// part_attn.c: attention over the paged cache: q, k, v, rope, the cache, o. Full and windowed, grouped queries, K and V
// of another layer. Owns nothing.
#include "runtime/model/part.h"

void lq_attn_slots(lq_slots *s, const lq_part *p) {
    const int64_t dim = s->d->dim, hd = p->head_dim;
    const int64_t q = p->heads * hd, k = p->kv_heads * hd, v = (int64_t)p->kv_heads * p->v_dim;
    const int64_t share = p->heads / p->kv_heads, group = (share + 2) * hd; // of query_key_value: query heads, rows
    const lq_rows_of rows[][3] = { // by form
        {{0}}, {{LQ_R_QKV, 0, q, q}, {LQ_R_QKV, q, k, k}, {LQ_R_QKV, q + k, v, v}},
        {{LQ_R_QKV, 0, share * hd, group}, {LQ_R_QKV, share * hd, hd, group}, {LQ_R_QKV, (share + 1) * hd, hd, group}},
        {{LQ_R_QKV, 0, q / 4, q / 4 * 3}, {LQ_R_QKV, q / 2, q / 4, q / 4 * 3}, {LQ_R_QKV, q / 4, q / 4, q / 4 * 3}},
        {{LQ_R_Q, 0, q, q}, {LQ_R_K, 0, k, k}, {LQ_R_K, 0, k, k}},
    };
    const bool own = s->d->layer[s->layer].kv_from == s->layer;
    const struct { lq_role role; int64_t n; bool bias; } m[3] = {
        {LQ_R_Q, q, p->q_bias}, {LQ_R_K, k, p->k_bias}, {LQ_R_V, v, p->v_bias},
    };
    for (int i = 0; i < (own ? 3 : 1); i++) {
        if (p->qkv == LQ_QKV_APART) lq_slots_matrix(s, m[i].role, s->x, m[i].n, dim, m[i].bias);
        else lq_slots_rows(s, m[i].role, s->x, m[i].n, dim, m[i].bias, rows[p->qkv][i]);
    }
    if (p->qk_norm == LQ_QK_HEADS) {
        lq_slots_head_norms(s, LQ_R_Q_NORM, p->heads, hd);
        if (own) lq_slots_head_norms(s, LQ_R_K_NORM, p->kv_heads, hd);
    } else if (p->qk_norm && p->qk_norm != LQ_QK_BARE) {
        lq_slots_norm(s, LQ_R_Q_NORM, p->qk_norm == LQ_QK_HEAD ? hd : q, p->qk_norm_bias);
        if (own) lq_slots_norm(s, LQ_R_K_NORM, p->qk_norm == LQ_QK_HEAD ? hd : k, p->qk_norm_bias);
    }
    if (p->attn_gate) lq_slots_matrix(s, LQ_R_ATTN_GATE, s->x, (int64_t)p->heads * p->v_dim, dim, false);
    if (p->sinks) lq_slots_vector(s, LQ_R_SINKS, p->heads);
    const int64_t mix = (int64_t)p->heads * p->v_dim;
    // Bounds and gates stay where they are, a norm takes factors away.
    const bool fixed = p->clip != 0 || p->attn_gate || p->v_norm || !own;
    const int mixed = lq_slots_input(s, fixed ? LQ_B_NONE : LQ_B_V, LQ_R_V, mix);
    lq_slots_matrix(s, LQ_R_O, mixed, dim, mix, p->o_bias);
    lq_slots_adds(s);
}

size_t lq_attn_room(const lq_model *m, const lq_part *p, int rows) {
    const int64_t q = (int64_t)p->heads * p->head_dim, k = (int64_t)p->kv_heads * p->head_dim;
    const int64_t v = (int64_t)p->kv_heads * p->v_dim, mix = (int64_t)p->heads * p->v_dim;
    return lq_take_bytes(m, rows, q) + lq_take_bytes(m, rows, k) + lq_take_bytes(m, rows, v) +
           (p->attn_gate ? 2 : 1) * lq_take_bytes(m, rows, mix);
}

size_t lq_attn_held(const lq_part *p, int rows) {
    return (size_t)rows * (size_t)p->heads * (size_t)p->v_dim * sizeof(float);
}

// Rows lie one behind the other: each head is one.
static lq_mat by_heads(lq_mat x, int head_dim) {
    x.rows *= x.cols / head_dim;
    x.cols = head_dim;
    x.stride = (size_t)head_dim;
    return x;
}

static void qk_norm(lq_run *c, const lq_part *p, const lq_bound *gamma, lq_mat x) {
    const int heads = x.cols / p->head_dim;
    if (p->qk_norm != LQ_QK_WHOLE) x = by_heads(x, p->head_dim);
    lq_norm_turns(c, x, NULL, gamma, p->qk_norm == LQ_QK_HEADS ? heads : 0, x);
}

static void clip(lq_run *c, float limit, lq_mat x) {
    if (x.p) c->ops->scale(c->m->dev, &(lq_scale_args){.x = x, .y = x, .scale = 1, .limit = limit});
}

static void qk_norms(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat q, lq_mat k) {
    if (q.p) qk_norm(c, p, &w[LQ_R_Q_NORM], q);
    if (k.p) qk_norm(c, p, &w[LQ_R_K_NORM], k);
}

static lq_rope_args turn_of(const lq_model *m, const lq_part *p, const lq_rows *rows, lq_mat q, lq_mat k) {
    const lq_rope *r = &m->desc.rope[p->rope];
    return (lq_rope_args){.rows = rows, .inv_freq = m->inv_freq[p->rope], .dim = r->dim, .mscale = m->mscale[p->rope],
                          .interleaved = r->interleaved, .head_dim = p->head_dim, .q_beta = (float)r->q_beta,
                          .q_every = r->original_ctx, .q_ahead = r->q_ahead, .q = q, .k = k};
}

// Those that are there (gate, q; k and v) as attention reads them, k and v in the cache too. False: the observer wants
// no more.
static bool make(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, const lq_rows *rows, lq_mat gate, lq_mat q,
                 lq_mat k, lq_mat v) {
    lq_model *m = c->m;
    const struct { lq_role role; lq_mat y; } each[] = {{LQ_R_ATTN_GATE, gate}, {LQ_R_Q, q}, {LQ_R_K, k}, {LQ_R_V, v}};
    const lq_bound *read[LQ_MATS];
    lq_mat made[LQ_MATS];
    int n = 0;
    for (int i = 0; i < LQ_MATS; i++)
        if (each[i].y.p) read[n] = &w[each[i].role], made[n++] = each[i].y;
    if (!lq_apply(c, x, read, made, n)) return false;
    if (p->qk_norm && !p->qk_norm_late) qk_norms(c, p, w, q, k);
    if (p->v_norm && v.p) lq_norm(c, by_heads(v, p->v_dim), NULL, &(lq_bound){0}, by_heads(v, p->v_dim));
    if (p->v_scale != 0 && v.p) c->ops->scale(m->dev, &(lq_scale_args){.x = v, .y = v, .scale = p->v_scale});
    for (int i = 0; p->clip != 0 && i < 3; i++) clip(c, p->clip, (const lq_mat[]){q, k, v}[i]);
    const bool late = p->qk_norm && p->qk_norm_late, turned = p->rope >= 0, together = turned && k.p && !late;
    const lq_rope_args turn = turned ? turn_of(m, p, rows, q, k) : (lq_rope_args){0};
    if (turned && !together) c->ops->rope(m->dev, &turn);
    if (late) qk_norms(c, p, w, q, k);
    if (k.p)
        c->ops->kv_write(m->dev, &(lq_kv_write_args){.rows = rows, .k = k, .v = v, .cache = c->kv->layer[c->layer],
                                                     .rope = together ? &turn : NULL});
    return true;
}

void lq_attn_keep(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x) {
    const lq_rows rows = lq_layer_rows(c);
    const lq_mat k = lq_take(c, rows.n, (int64_t)p->kv_heads * p->head_dim),
                 v = lq_take(c, rows.n, (int64_t)p->kv_heads * p->v_dim);
    make(c, p, w, x, &rows, (lq_mat){0}, (lq_mat){0}, k, v);
}

const lq_bound *lq_attn_reader(const lq_part *p, const lq_bound *w) {
    (void)p;
    return &w[LQ_R_Q];
}

void lq_attn_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_model *m = c->m;
    const bool own = m->desc.layer[c->layer].kv_from == c->layer;
    const lq_rows rows = lq_layer_rows(c);
    const lq_mat q = lq_take(c, rows.n, (int64_t)p->heads * p->head_dim),
                 k = own ? lq_take(c, rows.n, (int64_t)p->kv_heads * p->head_dim) : (lq_mat){0},
                 v = own ? lq_take(c, rows.n, (int64_t)p->kv_heads * p->v_dim) : (lq_mat){0},
                 mix = lq_take(c, rows.n, (int64_t)p->heads * p->v_dim),
                 gate = p->attn_gate ? lq_take(c, rows.n, mix.cols) : (lq_mat){0};
    if (!make(c, p, w, x, &rows, gate, q, k, v)) return;
    const lq_cache cache = c->kv->layer[c->layer];
    c->ops->attn(m->dev, &(lq_attn_args){.rows = &rows, .q = q, .cache = cache, .heads = p->heads,
                                         .scale = p->attn_scale, .softcap = p->attn_softcap, .window = p->window,
                                         .chunk = p->chunk, .sinks = p->sinks ? w[LQ_R_SINKS].v : NULL,
                                         .alibi = p->alibi ? m->slopes : NULL, .alibi_coarse = p->alibi_coarse,
                                         .y = mix, .max_at = c->batch.max_at});
    if (p->attn_gate)
        c->ops->glu(m->dev, &(lq_glu_args){.fn = LQ_SIGMOID, .gate = gate, .up = mix, .y = gate,
                                           .act = lq_form_ahead(c, gate, &w[LQ_R_O])});
    c->k = own ? &k : NULL;
    c->v = own ? &v : NULL;
    lq_apply(c, p->attn_gate ? gate : mix, (const lq_bound *const[]){&w[LQ_R_O]}, &y, 1);
    c->k = c->v = NULL;
}
