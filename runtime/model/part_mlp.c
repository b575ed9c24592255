// part_mlp.c: the MLP: up, or gate and up, a nonlinearity, down. Owns nothing.
#include "runtime/model/part.h"

void lq_mlp_slots(lq_slots *s, const lq_part *p) {
    const int64_t dim = s->d->dim;
    if (p->gated && p->gate_up) {
        lq_slots_rows(s, LQ_R_GATE, s->x, p->ffn, dim, p->mlp_bias, (lq_rows_of){LQ_R_GATE_UP, 0, p->ffn, p->ffn});
        lq_slots_rows(s, LQ_R_UP, s->x, p->ffn, dim, p->mlp_bias, (lq_rows_of){LQ_R_GATE_UP, p->ffn, p->ffn, p->ffn});
    } else {
        if (p->gated) lq_slots_matrix(s, LQ_R_GATE, s->x, p->ffn, dim, p->mlp_bias);
        lq_slots_matrix(s, LQ_R_UP, s->x, p->ffn, dim, p->mlp_bias);
    }
    // Without a gate a nonlinearity stands between up and down.
    const int mid = lq_slots_input(s, p->gated ? LQ_B_ROWS : LQ_B_NONE, LQ_R_UP, p->ffn);
    lq_slots_matrix(s, LQ_R_DOWN, mid, dim, p->ffn, p->mlp_bias);
    lq_slots_adds(s);
}

size_t lq_mlp_room(const lq_model *m, const lq_part *p, int rows) { return 2 * lq_take_bytes(m, rows, p->ffn); }

void lq_mlp_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_dev *d = c->m->dev;
    const lq_mat gate = lq_take(c, x.rows, p->ffn), up = p->gated ? lq_take(c, x.rows, p->ffn) : (lq_mat){0};
    const lq_bound *const both[] = {&w[LQ_R_GATE], &w[LQ_R_UP]};
    if (!lq_apply(c, x, both + !p->gated, (const lq_mat[]){gate, up}, 1 + p->gated)) return;
    d->ops.glu(d, &(lq_glu_args){.fn = p->act, .gate = gate, .up = up, .y = gate});
    lq_apply(c, gate, (const lq_bound *const[]){&w[LQ_R_DOWN]}, &y, 1);
}
