// part_moe.c: a mixture of experts: a router chooses some MLPs for each row, and what they say is mixed. Owns nothing.
#include "runtime/model/part.h"

static void stack(lq_slots *s, const lq_part *p, lq_role role, int input, int64_t n, int64_t k, lq_rows_of from) {
    const bool whole = from.whole != LQ_ROLES;
    lq_slots_stack(s, role, input, p->experts, n, k, whole ? &from : NULL);
    if (p->expert_across) lq_slots_across(s);
    if (!p->expert_bias) return;
    from.whole = role == LQ_R_EXPERT_DOWN ? LQ_R_EXPERT_DOWN_BIAS : LQ_R_EXPERT_GATE_UP_BIAS;
    lq_slots_biases(s, role, p->experts, n, &from);
}

void lq_moe_slots(lq_slots *s, const lq_part *p) {
    const int64_t dim = s->d->dim, ffn = p->ffn;
    const lq_role both = p->gate_up ? LQ_R_EXPERT_GATE_UP : LQ_ROLES;
    s->input[s->x].count = p->experts;
    lq_slots_matrix(s, LQ_R_ROUTER, s->x, p->experts, dim, p->router_bias);
    if (p->router_across) lq_slots_across(s);
    // Small, and what it decides is not smooth.
    for (int i = s->n; i-- > 0 && s->slot[i].role == LQ_R_ROUTER;) s->slot[i].quantizable = false;
    if (p->route_bias && p->route_bias_of) lq_slots_first(s, LQ_R_ROUTE_BIAS, p->experts, p->route_bias_of);
    else if (p->route_bias) lq_slots_vector(s, LQ_R_ROUTE_BIAS, p->experts);
    const lq_rows_of gate = p->expert_turns ? (lq_rows_of){both, 0, 1, 2} : (lq_rows_of){both, 0, ffn, ffn};
    const lq_rows_of up = p->expert_turns ? (lq_rows_of){both, 1, 1, 2} : (lq_rows_of){both, ffn, ffn, ffn};
    stack(s, p, LQ_R_EXPERT_GATE, s->x, ffn, dim, gate);
    stack(s, p, LQ_R_EXPERT_UP, s->x, ffn, dim, up);
    // What is held to a range, or has something added, is not the product of up alone.
    const bool odd = p->up_add != 0 || p->act_clamp != 0;
    const int mid = lq_slots_input(s, odd ? LQ_B_NONE : LQ_B_ROWS, LQ_R_EXPERT_UP, ffn);
    s->input[mid].count = p->experts;
    stack(s, p, LQ_R_EXPERT_DOWN, mid, dim, ffn, (lq_rows_of){LQ_ROLES, 0, 0, 0});
    lq_slots_adds(s);
}

static size_t index_bytes(const lq_part *p, size_t rows) { // expert, weight, order of each slot; borders of experts
    return (3 * rows * (size_t)p->experts_used + (size_t)p->experts + 1) * sizeof(int32_t) + 4 * 64;
}

size_t lq_moe_room(const lq_model *m, const lq_part *p, int rows) {
    const int slots = rows * p->experts_used;
    return lq_f32_bytes(rows, p->experts) + 2 * lq_take_bytes(m, slots, p->ffn) +
           lq_take_bytes(m, slots, m->desc.dim) + index_bytes(p, (size_t)rows);
}

// Every row goes to experts first, first + 1 .. (behind the last comes expert 0), whatever the router says: what an
// observer wants to see of experts that the router sends little to.
static void send_all(const lq_run *c, const lq_part *p, int rows, int32_t *order, int32_t *start) {
    enum { PIECE = 512 };
    int32_t piece[PIECE], border[LQ_EXPERTS + 1];
    lq_dev *d = c->m->dev;
    int at = 0, n = 0;
    for (int e = 0; e < p->experts; e++) {
        const int i = (e - (c->sent - 1) + p->experts) % p->experts; // its slot in each row
        border[e] = at + n;
        for (int r = 0; i < p->experts_used && r < rows; r++) {
            piece[n++] = r * p->experts_used + i;
            if (n < PIECE) continue;
            d->ops.put(d, order + at, piece, sizeof piece);
            at += PIECE, n = 0;
        }
    }
    border[p->experts] = at + n;
    d->ops.put(d, order + at, piece, (size_t)n * sizeof *piece);
    d->ops.put(d, start, border, ((size_t)p->experts + 1) * sizeof *border);
}

size_t lq_moe_held(const lq_part *p, int rows) {
    const size_t slots = (size_t)rows * (size_t)p->experts_used;
    return (slots * ((size_t)p->ffn + 2) + (size_t)p->experts + 1) * sizeof(float);
}

// So many numbers of four bytes.
static lq_mat numbers(const void *p, int n) {
    return (lq_mat){.p = (void *)(uintptr_t)p, .type = LQ_F32, .rows = 1, .cols = n, .stride = (size_t)n};
}

// The router reads x as it is.
const lq_bound *lq_moe_reader(const lq_part *p, const lq_bound *w) {
    (void)p;
    return &w[LQ_R_EXPERT_GATE];
}

void lq_moe_run(lq_run *c, const lq_part *p, const lq_bound *w, lq_mat x, lq_mat y) {
    lq_dev *d = c->m->dev;
    const int slots = x.rows * p->experts_used;
    const lq_mat logits = lq_take_f32(c, x.rows, p->experts), gate = lq_take(c, slots, p->ffn),
                 up = lq_take(c, slots, p->ffn), out = lq_take(c, slots, y.cols);
    const size_t ints = (size_t)slots * sizeof(int32_t);
    int32_t *expert = lq_take_raw(c, ints), *order = lq_take_raw(c, ints);
    int32_t *start = lq_take_raw(c, ((size_t)p->experts + 1) * sizeof *start);
    float *weight = lq_take_raw(c, ints);
    if (!lq_apply(c, x, (const lq_bound *const[]){&w[LQ_R_ROUTER]}, &logits, 1)) return;
    c->ops->route(d, &(lq_route_args){.kind = p->route, .logits = logits, .top_k = p->experts_used,
                                      .renorm = p->route_renorm, .scale = p->route_scale,
                                      .bias = p->route_bias ? w[LQ_R_ROUTE_BIAS].v : NULL,
                                      .groups = p->route_groups, .top_groups = p->route_top_groups,
                                      .jitter = p->route_jitter, .expert = expert,
                                      .weight = weight, .order = order, .start = start});
    if (c->sent) send_all(c, p, x.rows, order, start);
    const lq_bound *const both[] = {&w[LQ_R_EXPERT_GATE], &w[LQ_R_EXPERT_UP]};
    lq_routed r = {.order = order, .start = start, .top_k = p->experts_used};
    if (!lq_apply_stack(c, x, &r, both, (const lq_mat[]){gate, up}, 2)) return;
    for (int i = 0; i < 2 && p->weigh_input; i++) { // the products are as if x had been
        const lq_mat m = i ? up : gate;
        c->ops->mix(d, &(lq_mix_args){.x = m, .weight = weight, .top_k = 1, .y = m, .fresh = true});
    }
    c->ops->glu(d, &(lq_glu_args){.fn = p->act, .alpha = p->act_alpha, .clamp = p->act_clamp, .up_add = p->up_add,
                                  .gate = gate, .up = up, .y = gate,
                                  .act = lq_form_ahead(c, gate, &w[LQ_R_EXPERT_DOWN])});
    r.by_slot = true;
    lq_hold(c, numbers(order, slots));
    lq_hold(c, numbers(start, p->experts + 1));
    lq_hold(c, numbers(weight, slots));
    if (!lq_apply_stack(c, gate, &r, (const lq_bound *const[]){&w[LQ_R_EXPERT_DOWN]}, &out, 1)) return;
    c->ops->mix(d, &(lq_mix_args){.x = out, .weight = p->weigh_input ? NULL : weight, .top_k = p->experts_used, .y = y,
                                  .fresh = true});
}
