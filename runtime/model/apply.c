// apply.c: the one place where a linear layer is applied: the observer, the forms of x that its weights ask for, which
// whoever makes x may make too, the product. Owns nothing.
#include "runtime/model/part.h"

static bool see(lq_run *c, int input, lq_mat x, const lq_routed *r) {
    const int holds = c->holds;
    c->holds = 0;
    if (!c->see || (c->left && c->from != input)) return true; // on the way back to where it was left
    c->holds = holds;
    c->x = x;
    if (c->left) lq_run_wake(c);
    lq_seen s = {.layer = c->layer, .input = input, .x = x, .k = c->k, .v = c->v};
    if (r) s.order = r->order, s.start = r->start, s.top_k = r->by_slot ? 1 : r->top_k;
    c->stopped = !c->see(c->arg, &s);
    if (!c->stopped) c->holds = 0;
    return !c->stopped;
}

// How a weight reads x; false: as it is.
static bool form_of(const lq_run *c, lq_mat x, const lq_weight *w, lq_act *act) {
    *act = (lq_act){0};
    lq_act_bind(c->m->dev, act, w, x.rows, c->b->act);
    act->x = x;
    if (act->smooth || act->perm) {
        // In the order of the weight only where it is read unrounded.
        act->x.p = act->type.elem == LQ_F32 || act->outliers ? c->b->turned.p : NULL;
        act->x.stride = (size_t)x.cols;
    }
    return act->type.elem != LQ_F32 || act->x.p != x.p;
}

// An observer may exchange the weights that read what it sees, and whoever comes back to where a layer was left has
// made nothing before: then each form is made where it is read.
lq_act *lq_form_ahead(lq_run *c, lq_mat x, const lq_bound *reader) {
    c->ahead = NULL;
    if (c->see || c->left || reader->each || !reader->w.q || !form_of(c, x, &reader->w, &c->act)) return NULL;
    c->ahead = &reader->w;
    c->ahead_of = x.p;
    return &c->act;
}

// x as a weight reads it. There is room for one form: another takes the place of what was made ahead.
static void form(lq_run *c, lq_mat x, const lq_weight *w, lq_act *act) {
    if (c->ahead && c->ahead_of == x.p && c->act.x.cols == w->k && lq_act_same(c->m->dev, c->ahead, w)) {
        *act = c->act;
        return;
    }
    if (!form_of(c, x, w, act)) return;
    c->ahead = NULL;
    c->ops->quant(c->m->dev, &(lq_quant_args){.x = x, .act = act});
}

bool lq_apply(lq_run *c, lq_mat x, const lq_bound *const *w, const lq_mat *y, int count) {
    lq_dev *d = c->m->dev;
    bool done[LQ_MATS] = {false};
    if (!see(c, w[0]->input, x, NULL)) return false;
    for (int first = 0; first < count; first++) {
        if (done[first]) continue;
        lq_act act;
        form(c, x, &w[first]->w, &act);
        lq_matmul_args args = {.x = &act};
        for (int i = first; i < count; i++) {
            if (done[i] || !lq_act_same(d, &w[first]->w, &w[i]->w)) continue;
            args.w[args.count] = &w[i]->w;
            args.bias[args.count] = w[i]->bias;
            args.y[args.count++] = y[i];
            done[i] = true;
        }
        c->ops->matmul(d, &args);
    }
    return true;
}

// Of matrices that each read x in an order of columns of their own, one after the other.
static void apply_each(lq_run *c, lq_mat x, const lq_routed *r, const lq_bound *w, lq_mat y) {
    lq_dev *d = c->m->dev;
    for (int e = 0; e < w->count; e++) {
        lq_act act;
        if (d->host && r->start[e] == r->start[e + 1]) continue;
        form(c, x, &w->stack[e], &act);
        c->ops->moe(d, &(lq_moe_args){.x = &act, .x_by_slot = r->by_slot, .slots = y.rows, .top_k = r->top_k,
                                      .experts = 1, .order = r->order, .start = r->start + e, .count = 1,
                                      .w = {&w->stack[e]}, .bias = {w->biases ? w->biases + e : NULL}, .y = {y}});
    }
}

bool lq_apply_stack(lq_run *c, lq_mat x, const lq_routed *r, const lq_bound *const *w, const lq_mat *y, int count) {
    lq_dev *d = c->m->dev;
    if (!see(c, w[0]->input, x, r)) return false;
    const bool one = count < 2 || (!w[0]->each && !w[1]->each && lq_act_same(d, &w[0]->w, &w[1]->w));
    for (int i = 0; i < count; i += one ? count : 1) {
        lq_act act;
        if (w[i]->each) {
            apply_each(c, x, r, w[i], y[i]);
            continue;
        }
        form(c, x, &w[i]->w, &act);
        lq_moe_args args = {.x = &act, .x_by_slot = r->by_slot, .slots = y[i].rows, .top_k = r->top_k,
                            .experts = w[i]->count, .order = r->order, .start = r->start, .count = one ? count : 1};
        for (int k = 0; k < args.count; k++) {
            args.w[k] = w[i + k]->stack, args.y[k] = y[i + k];
            args.bias[k] = w[i + k]->biases;
        }
        c->ops->moe(d, &args);
    }
    return true;
}
