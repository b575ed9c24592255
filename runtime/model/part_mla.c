// part_mla.c: attention over latents (MLA). What the cache keeps of a token is one latent, of which matrices of each
// head would make its K and V, and the part of K that is rotated, which all heads share. Neither K nor V is ever made:
// K's matrix goes to q and V's to what a head has mixed, so that all heads read the same cache. Owns nothing.
#include "runtime/model/part.h"

void lq_mla_slots(lq_slots *s, const lq_part *p) {
    const int64_t dim = s->d->dim, latent = p->v_dim, turned = p->head_dim - p->v_dim;
    const int64_t q = p->heads * (p->nope + turned), each = p->nope + p->v_out;
    if (p->q_rank) lq_slots_matrix(s, LQ_R_Q_A, s->x, p->q_rank, dim, p->latent_bias);
    else lq_slots_matrix(s, LQ_R_Q, s->x, q, dim, false);
    lq_slots_matrix(s, LQ_R_KV_A, s->x, p->head_dim, dim, p->latent_bias);
    if (p->q_rank) {
        lq_slots_norm(s, LQ_R_Q_A_NORM, p->q_rank, false);
        lq_slots_matrix(s, LQ_R_Q_B, lq_slots_input(s, LQ_B_NORM, LQ_R_Q_A_NORM, p->q_rank), q, p->q_rank, false);
    }
    lq_slots_norm(s, LQ_R_KV_A_NORM, latent, false);
    const int of_q = lq_slots_input(s, LQ_B_NONE, LQ_R_Q, p->nope);
    s->input[of_q].count = p->heads;
    lq_slots_stack(s, LQ_R_K_B, of_q, p->heads, latent, p->nope, &(lq_rows_of){.whole = LQ_R_KV_B});
    lq_slots_across(s);
    lq_slots_each(s, each);
    const int mixed = lq_slots_input(s, LQ_B_NONE, LQ_R_KV_A, latent);
    s->input[mixed].count = p->heads;
    lq_slots_stack(s, LQ_R_V_B, mixed, p->heads, p->v_out, latent,
                   &(lq_rows_of){.whole = LQ_R_KV_B, .first = p->nope});
    lq_slots_each(s, each);
    const int64_t out = (int64_t)p->heads * p->v_out;
    lq_slots_matrix(s, LQ_R_O, lq_slots_input(s, LQ_B_NONE, LQ_R_V_B, out), dim, out, p->o_bias);
    lq_slots_adds(s);
}

size_t lq_mla_room(const lq_model *m, const lq_part *p, int rows) {
    const int64_t h = p->heads, turned = p->head_dim - p->v_dim;
    return lq_take_bytes(m, rows, p->q_rank) + lq_take_bytes(m, rows, h * (p->nope + turned)) +
           lq_take_bytes(m, rows, p->head_dim) + lq_take_bytes(m, rows, h * p->head_dim) +
           lq_take_bytes(m, rows, h * p->v_dim) + lq_take_bytes(m, rows, h * p->v_out);
}

size_t lq_mla_held(const lq_part *p, int rows) {
    const size_t h = (size_t)p->heads, turned = (size_t)(p->head_dim - p->v_dim);
    const size_t of[] = {(size_t)p->q_rank + (size_t)p->head_dim, h * ((size_t)p->nope + turned) + (size_t)p->head_dim,
                         h * (size_t)p->v_dim, h * (size_t)p->v_out};
    size_t most = 0;
    for (int i = 0; i < 4; i++) most = of[i] > most ? of[i] : most;
    return (size_t)rows * most * sizeof(float);
}

// `cols` columns from `first` on of each of so many pieces of a row, as a row each.
static lq_mat pieces(const lq_run *c, lq_mat x, int pieces, int first, int cols) {
    const size_t stride = x.stride / (size_t)pieces;
    x.p = (char *)x.p + (size_t)first * lq_dtype_size(c->m->dev->act);
    return (lq_mat){.p = x.p, .type = x.type, .rows = x.rows * pieces, .cols = cols, .stride = stride};
}

static void latent_norm(lq_run *c, const lq_part *p, const lq_bound *gamma, lq_mat x, lq_act *act) {
    c->ops->norm(c->m->dev, &(lq_norm_args){.kind = LQ_NORM_RMS, .eps = p->latent_eps, .x = x,
                                            .gamma = gamma->v, .y = x, .act = act});
}

// q [rows][heads][nope + turned] and the latents. False: the observer wants no more.
static bool make(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat low, lq_mat q, lq_mat latent) {
    const lq_bound *const first[] = {&w[p->q_rank ? LQ_R_Q_A : LQ_R_Q], &w[LQ_R_KV_A]};
    if (!lq_apply(c, x, first, (const lq_mat[]){p->q_rank ? low : q, latent}, 2)) return false;
    latent_norm(c, p, &w[LQ_R_KV_A_NORM], pieces(c, latent, 1, 0, p->v_dim), NULL);
    if (!p->q_rank) return true;
    latent_norm(c, p, &w[LQ_R_Q_A_NORM], low, lq_form_ahead(c, low, &w[LQ_R_Q_B]));
    lq_hold(c, latent);
    return lq_apply(c, low, (const lq_bound *const[]){&w[LQ_R_Q_B]}, &q, 1);
}

// The rotated parts of q (if it is there), which stand behind those that met K's matrices, and of K.
static void turn(lq_run *c, const lq_part *p, const lq_rows *rows, lq_mat q, lq_mat latent) {
    lq_model *m = c->m;
    const lq_rope *r = &m->desc.rope[p->rope];
    const int rest = p->head_dim - p->v_dim;
    const lq_mat of_q = q.p ? pieces(c, q, 1, p->v_dim, q.cols - p->v_dim) : q;
    const lq_mat of_k = pieces(c, latent, 1, p->v_dim, rest);
    c->ops->rope(m->dev, &(lq_rope_args){.rows = rows, .inv_freq = m->inv_freq[p->rope], .dim = r->dim,
                                         .mscale = m->mscale[p->rope], .interleaved = r->interleaved,
                                         .head_dim = p->head_dim, .q_beta = (float)r->q_beta,
                                         .q_every = r->original_ctx, .q_ahead = r->q_ahead, .q = of_q,
                                         .k = of_k});
}

// What is not turned of q, larger in later positions.
static void grow(lq_run *c, const lq_part *p, const lq_rows *rows, lq_mat q) {
    lq_model *m = c->m;
    const lq_rope *r = &m->desc.rope[p->nope_rope];
    c->ops->rope(m->dev, &(lq_rope_args){.rows = rows, .inv_freq = m->inv_freq[p->nope_rope], .dim = r->dim,
                                         .head_dim = q.cols / p->heads, .q_beta = (float)r->q_beta,
                                         .q_every = r->original_ctx, .q_ahead = r->q_ahead, .q = q});
}

const lq_bound *lq_mla_reader(const lq_part *p, const lq_bound *w) { return &w[p->q_rank ? LQ_R_Q_A : LQ_R_Q]; }

static void write(lq_run *c, const lq_rows *rows, lq_mat latent) {
    c->ops->kv_write(c->m->dev, &(lq_kv_write_args){.rows = rows, .k = latent, .cache = c->kv->layer[c->layer]});
}

void lq_mla_keep(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x) {
    const lq_rows rows = lq_layer_rows(c);
    const lq_mat latent = lq_take(c, rows.n, p->head_dim);
    lq_apply(c, x, (const lq_bound *const[]){&w[LQ_R_KV_A]}, &latent, 1);
    latent_norm(c, p, &w[LQ_R_KV_A_NORM], pieces(c, latent, 1, 0, p->v_dim), NULL);
    if (p->rope >= 0) turn(c, p, &rows, (lq_mat){0}, latent);
    write(c, &rows, latent);
}

void lq_mla_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_model *m = c->m;
    const int h = p->heads, turned = p->head_dim - p->v_dim;
    const lq_rows rows = lq_layer_rows(c);
    const lq_mat low = lq_take(c, rows.n, p->q_rank), q = lq_take(c, rows.n, (int64_t)h * (p->nope + turned)),
                 latent = lq_take(c, rows.n, p->head_dim), wide = lq_take(c, rows.n, (int64_t)h * p->head_dim),
                 mix = lq_take(c, rows.n, (int64_t)h * p->v_dim), out = lq_take(c, rows.n, (int64_t)h * p->v_out);
    const lq_routed heads = {.top_k = 1, .by_slot = true};
    if (!make(c, p, w, x, low, q, latent)) return;
    if (p->nope_rope) grow(c, p, &rows, q);
    const lq_mat met = pieces(c, wide, h, 0, p->v_dim), said = pieces(c, out, h, 0, p->v_out);
    lq_hold(c, q);
    lq_hold(c, latent);
    if (!lq_apply_stack(c, pieces(c, q, h, 0, p->nope), &heads, (const lq_bound *const[]){&w[LQ_R_K_B]}, &met, 1))
        return;
    c->ops->scale(m->dev, &(lq_scale_args){.x = pieces(c, q, h, p->nope, turned),
                                           .y = pieces(c, wide, h, p->v_dim, turned), .scale = 1});
    if (p->rope >= 0) turn(c, p, &rows, wide, latent);
    const lq_cache cache = c->kv->layer[c->layer];
    write(c, &rows, latent);
    c->ops->attn(m->dev, &(lq_attn_args){.rows = &rows, .q = wide, .cache = cache, .heads = h, .scale = p->attn_scale,
                                         .window = p->window, .y = mix, .max_at = c->batch.max_at});
    if (!lq_apply_stack(c, pieces(c, mix, h, 0, p->v_dim), &heads, (const lq_bound *const[]){&w[LQ_R_V_B]}, &said, 1))
        return;
    c->k = &latent;
    lq_apply(c, out, (const lq_bound *const[]){&w[LQ_R_O]}, &y, 1);
    c->k = NULL;
}
