// rotate.c: the transform "rotate": the residual is written in another basis, in which no channel stands out, and so is
// what attention takes out of its cache, head by head. Everything is folded into the weights: the model computes what
// it did. Refused: models whose residual does not stand between RMS norms alone.
#include "quant/pass.h"
#include <stdlib.h>

bool lq_rotate_plan(lq_desc *d, lq_err *err) {
    const char *why = d->norm != LQ_NORM_RMS || d->norm_bias ? "whose norms are not RMS norms" : NULL;
    if (d->head_unit) why = "whose head has rows of length 1";
    if (d->embed_norm) why = "with a norm behind its embedding";
    for (int l = 0; l < d->layers && !why; l++)
        for (int i = 0; i < d->layer[l].parts; i++)
            if (d->layer[l].part[i].place != LQ_PRE) why = "with norms behind its parts";
    if (why) return lq_fail(err, LQ_E_UNSUPPORTED, "a %s, %s, cannot be rotated", d->arch->name, why);
    d->tied = false; // the head takes the factors of the norm before it, the embedding does not
    return true;
}

// The factors of the norm before an input go into the columns of what reads it; the norm itself is left with none.
static bool fold_norm(lq_block *b, int input, lq_err *err) {
    const lq_input *in = &b->input[input];
    lq_module *norm = lq_block_find(b, in->by, false);
    float *v = lq_block_vector(b, norm, err);
    if (!v) return false;
    float *factor = b->factor[input] = malloc((size_t)in->k * sizeof *factor);
    if (!factor) return lq_fail(err, LQ_E_MEMORY, "no memory for the %lld factors of a norm", (long long)in->k);
    const float one = b->plan->desc.norm_plus_one ? 1 : 0;
    for (int64_t i = 0; i < in->k; i++) {
        factor[i] = one + v[i];
        v[i] = 1 - one;
    }
    return true;
}

// Whether an input is the residual behind one of its norms.
static bool of_residual(const lq_input *in) {
    return in->before == LQ_B_NORM && (in->by == LQ_R_NORM_OUT || (in->by >= LQ_R_NORM_0 && in->by <= LQ_R_NORM_2));
}

static bool turn_rows(lq_block *b, lq_module *m, const lq_turn *t, lq_err *err) {
    m->edit.out = t;
    if (m->it->slot.k) return true;
    float *bias = lq_block_vector(b, m, err);
    const int64_t n = m->it->slot.n;
    for (int i = 0; bias && i < (m->it->slot.count ? m->it->slot.count : 1); i++) lq_turn_run(t, bias + i * n, n, 1);
    return bias;
}

bool lq_rotate_whole(const lq_slot *s) { return s->adds || s->role == LQ_R_V; }

bool lq_rotate_run(lq_block *b, lq_err *err) {
    const lq_desc *d = &b->plan->desc;
    const lq_part *attn = b->layer < 0 ? NULL : lq_layer_attn(&d->layer[b->layer]);
    const lq_turn *residual = &b->turn[0], *head = &b->turn[1];
    lq_role v = LQ_ROLES; // whose rows o's columns are
    lq_turn_make(d->dim, &b->turn[0]);
    if (attn) lq_turn_make(attn->v_dim, &b->turn[1]);
    for (int i = 0; i < b->inputs; i++) {
        if (b->input[i].before == LQ_B_V) v = b->input[i].by;
        if (of_residual(&b->input[i]) && lq_block_find(b, b->input[i].by, false) && !fold_norm(b, i, err)) return false;
    }
    for (lq_module *m = b->module; m < b->module + b->modules; m++) {
        const lq_slot *s = &m->it->slot;
        if (s->role == LQ_ROLES) continue; // nobody's
        const lq_input *in = s->input < 0 ? NULL : &b->input[s->input];
        if (s->role == LQ_R_EMBED || s->role == LQ_R_POSITION) m->edit.in = residual;
        if (in && of_residual(in)) m->edit.column = b->factor[s->input], m->edit.in = residual;
        if (in && in->before == LQ_B_V) m->edit.in = head;
        if (s->adds && !turn_rows(b, m, residual, err)) return false;
        if (s->role == v && !turn_rows(b, m, head, err)) return false;
    }
    return true;
}
