// part_token.c: what a layer is told of the token: a gate of the residual, times numbers that the token has for this
// layer (lq_buffers.tokens), and back to the residual's width. Owns nothing.
#include "runtime/model/part.h"

void lq_token_slots(lq_slots *s, const lq_part *p) {
    lq_slots_matrix(s, LQ_R_TOKEN_GATE, s->x, p->ffn, s->d->dim, false);
    const int mid = lq_slots_input(s, LQ_B_NONE, LQ_R_TOKEN_GATE, p->ffn);
    lq_slots_matrix(s, LQ_R_TOKEN_OUT, mid, s->d->dim, p->ffn, false);
    lq_slots_adds(s);
}

size_t lq_token_room(const lq_model *m, const lq_part *p, int rows) { return lq_take_bytes(m, rows, p->ffn); }

size_t lq_token_held(const lq_part *p, int rows) { return (size_t)rows * (size_t)p->ffn * sizeof(float); }

const lq_bound *lq_token_reader(const lq_part *p, const lq_bound *w) {
    (void)p;
    return &w[LQ_R_TOKEN_GATE];
}

void lq_token_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_dev *d = c->m->dev;
    const size_t wide = (size_t)c->m->desc.layers * (size_t)p->ffn, at = (size_t)c->layer * (size_t)p->ffn;
    const lq_mat gate = lq_take(c, x.rows, p->ffn);
    const lq_mat told = {.p = (char *)c->b->tokens.p + at * lq_dtype_size(d->act), .type = d->act, .rows = x.rows,
                         .cols = p->ffn, .stride = wide};
    if (!lq_apply(c, x, (const lq_bound *const[]){&w[LQ_R_TOKEN_GATE]}, &gate, 1)) return;
    c->ops->glu(d, &(lq_glu_args){.fn = p->act, .gate = gate, .up = told, .y = gate,
                                  .act = lq_form_ahead(c, gate, &w[LQ_R_TOKEN_OUT])});
    lq_apply(c, gate, (const lq_bound *const[]){&w[LQ_R_TOKEN_OUT]}, &y, 1);
}
