// part_moe.c: a mixture of experts: a router chooses some MLPs for each row, and what they say is mixed. Owns nothing.
#include "runtime/model/part.h"

void lq_moe_slots(lq_slots *s, const lq_part *p) {
    const int64_t dim = s->d->dim;
    s->input[s->x].count = p->experts;
    lq_slots_matrix(s, LQ_R_ROUTER, s->x, p->experts, dim, false);
    s->slot[s->n - 1].quantizable = false; // small, and what it decides is not smooth
    const lq_rows_of gate = {LQ_R_EXPERT_GATE_UP, 0, p->ffn, p->ffn};
    const lq_rows_of up = {LQ_R_EXPERT_GATE_UP, p->ffn, p->ffn, p->ffn};
    lq_slots_stack(s, LQ_R_EXPERT_GATE, s->x, p->experts, p->ffn, dim, p->gate_up ? &gate : NULL);
    lq_slots_stack(s, LQ_R_EXPERT_UP, s->x, p->experts, p->ffn, dim, p->gate_up ? &up : NULL);
    const int mid = lq_slots_input(s, LQ_B_ROWS, LQ_R_EXPERT_UP, p->ffn);
    s->input[mid].count = p->experts;
    lq_slots_stack(s, LQ_R_EXPERT_DOWN, mid, p->experts, dim, p->ffn, NULL);
    lq_slots_adds(s);
}

static size_t index_bytes(const lq_part *p, size_t rows) { // expert, weight, order of each slot; borders of experts
    return (3 * rows * (size_t)p->experts_used + (size_t)p->experts + 1) * sizeof(int32_t) + 4 * 64;
}

size_t lq_moe_room(const lq_model *m, const lq_part *p, int rows) {
    const int slots = rows * p->experts_used;
    return lq_take_bytes(m, rows, p->experts) + 2 * lq_take_bytes(m, slots, p->ffn) +
           lq_take_bytes(m, slots, m->desc.dim) + index_bytes(p, (size_t)rows);
}

void lq_moe_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_dev *d = c->m->dev;
    const int slots = x.rows * p->experts_used;
    const lq_mat logits = lq_take(c, x.rows, p->experts), gate = lq_take(c, slots, p->ffn),
                 up = lq_take(c, slots, p->ffn), out = lq_take(c, slots, y.cols);
    const size_t ints = (size_t)slots * sizeof(int32_t);
    int32_t *expert = lq_take_raw(c, ints), *order = lq_take_raw(c, ints);
    int32_t *start = lq_take_raw(c, ((size_t)p->experts + 1) * sizeof *start);
    float *weight = lq_take_raw(c, ints);
    if (!lq_apply(c, x, (const lq_bound *const[]){&w[LQ_R_ROUTER]}, &logits, 1)) return;
    d->ops.route(d, &(lq_route_args){.kind = p->route, .logits = logits, .top_k = p->experts_used,
                                     .renorm = p->route_renorm, .scale = p->route_scale,
                                     .jitter = p->route_jitter, .expert = expert,
                                     .weight = weight, .order = order, .start = start});
    const lq_bound *const both[] = {&w[LQ_R_EXPERT_GATE], &w[LQ_R_EXPERT_UP]};
    lq_routed r = {.order = order, .start = start, .top_k = p->experts_used};
    if (!lq_apply_stack(c, x, &r, both, (const lq_mat[]){gate, up}, 2)) return;
    d->ops.glu(d, &(lq_glu_args){.fn = p->act, .gate = gate, .up = up, .y = gate});
    r.by_slot = true;
    if (!lq_apply_stack(c, gate, &r, (const lq_bound *const[]){&w[LQ_R_EXPERT_DOWN]}, &out, 1)) return;
    d->ops.mix(d, &(lq_mix_args){.x = out, .weight = weight, .top_k = p->experts_used, .y = y, .fresh = true});
}
