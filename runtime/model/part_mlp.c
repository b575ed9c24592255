// part_mlp.c: the MLP: up, or gate and up, a nonlinearity, down. The expert of a mixture that all rows share is one
// with roles of its own. Owns nothing.
#include "runtime/model/part.h"

static lq_role role_of(const lq_part *p, lq_role role) {
    return p->shared ? LQ_R_SHARED_GATE + (role - LQ_R_GATE) : role;
}

void lq_mlp_slots(lq_slots *s, const lq_part *p) {
    const int64_t dim = s->d->dim;
    const lq_role gate = role_of(p, LQ_R_GATE), up = role_of(p, LQ_R_UP), down = role_of(p, LQ_R_DOWN);
    const lq_role whole = p->shared ? LQ_R_SHARED_GATE_UP : LQ_R_GATE_UP;
    if (p->gated && p->gate_up) {
        lq_slots_rows(s, gate, s->x, p->ffn, dim, p->mlp_bias, (lq_rows_of){whole, 0, p->ffn, p->ffn});
        lq_slots_rows(s, up, s->x, p->ffn, dim, p->mlp_bias, (lq_rows_of){whole, p->ffn, p->ffn, p->ffn});
    } else {
        if (p->gated) lq_slots_matrix(s, gate, s->x, p->ffn, dim, p->mlp_bias);
        lq_slots_matrix(s, up, s->x, p->ffn, dim, p->mlp_bias);
    }
    if (p->shared_score) {
        lq_slots_matrix(s, LQ_R_SHARED_SCORE, s->x, 1, dim, false);
        s->slot[s->n - 1].quantizable = false;
    }
    // Without a gate a nonlinearity stands between up and down.
    const int mid = lq_slots_input(s, p->gated ? LQ_B_ROWS : LQ_B_NONE, up, p->ffn);
    lq_slots_matrix(s, down, mid, dim, p->ffn, p->mlp_bias);
    lq_slots_adds(s);
    if (p->act != LQ_XIELU) return;
    for (lq_role r = LQ_R_XIELU_ABOVE; r <= LQ_R_XIELU_LEAST; r++) lq_slots_vector(s, r, 1);
}

size_t lq_mlp_room(const lq_model *m, const lq_part *p, int rows) {
    const size_t scored = lq_take_bytes(m, rows, m->desc.dim) + lq_f32_bytes(rows, 1);
    return 2 * lq_take_bytes(m, rows, p->ffn) + (p->shared_score ? scored : 0);
}

size_t lq_mlp_held(const lq_part *p, int rows) {
    return (size_t)rows * ((size_t)p->ffn + p->shared_score) * sizeof(float);
}

const lq_bound *lq_mlp_reader(const lq_part *p, const lq_bound *w) {
    return &w[role_of(p, p->gated ? LQ_R_GATE : LQ_R_UP)];
}

void lq_mlp_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_dev *d = c->m->dev;
    const lq_bound *const read[] = {&w[role_of(p, LQ_R_GATE)], &w[role_of(p, LQ_R_UP)], &w[LQ_R_SHARED_SCORE]};
    const lq_mat gate = lq_take(c, x.rows, p->ffn), up = p->gated ? lq_take(c, x.rows, p->ffn) : (lq_mat){0};
    lq_mat score = {0}, out = y;
    if (p->shared_score) {
        score = lq_take_f32(c, x.rows, 1);
        out = lq_take(c, x.rows, y.cols);
    }
    if (!lq_apply(c, x, read + !p->gated, (const lq_mat[]){gate, up, score}, 1 + p->gated + p->shared_score)) return;
    const lq_bound *down = &w[role_of(p, LQ_R_DOWN)];
    lq_glu_args glu = {.fn = p->act, .gate = gate, .up = up, .y = gate, .act = lq_form_ahead(c, gate, down)};
    if (p->act == LQ_XIELU) {
        const lq_xielu *x4 = &c->m->xielu[c->layer];
        glu.alpha = x4->above, glu.below = x4->below, glu.beta = x4->beta, glu.least = x4->least;
    }
    c->ops->glu(d, &glu);
    if (p->shared_score) lq_hold(c, score);
    if (!lq_apply(c, gate, (const lq_bound *const[]){down}, &out, 1) || !p->shared_score) return;
    c->ops->glu(d, &(lq_glu_args){.fn = LQ_SIGMOID, .gate = score, .y = score});
    c->ops->mix(d, &(lq_mix_args){.x = out, .weight = score.p, .top_k = 1, .y = y, .fresh = true});
}
