// module.c: one matrix of a module: read where the checkpoint has it, changed as transforms said, rounded. Owns nothing
// but a copy of a matrix that has to be whole before it is rounded.
#include "quant/pass.h"
#include <stdlib.h>
#include <string.h>

uint8_t *lq_lay_out(uint8_t *at, const lq_weight_size *size, bool wide_scales, lq_weight_out *out) {
    const size_t sizes[3] = {size->q, wide_scales ? 2 * size->scale : size->scale, size->zero};
    void **const parts[3] = {&out->q, &out->scale, &out->zero};
    for (int i = 0; i < 3; i++) {
        *parts[i] = sizes[i] ? at : NULL;
        at += (sizes[i] + 63) & ~(size_t)63;
    }
    return at;
}

size_t lq_module_bytes(const lq_wtype *t, int64_t n, int64_t k) {
    lq_weight_size any;
    if (!lq_weight_sizes(t, n, k, &any)) return 0;
    return any.q + 2 * any.scale + any.zero + 4 * 64 + lq_levels_bytes(t, n, k);
}

// Who is told of a matrix's progress.
typedef struct told { lq_tick *tick; void *arg; } told;

static bool heard(void *arg) {
    const told *t = arg;
    return !t->tick || t->tick(t->arg, 0, 0);
}

// `from` is what is rounded: the source, or a changed copy of it.
static bool round_matrix(lq_dev *dev, const lq_module *m, const lq_weight *from, const lq_edit *edit,
                         const lq_given *given, void *buf, told *t, lq_made *x, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    lq_solve *solve = given ? given->solve : NULL;
    const lq_apart *apart = solve ? solve->apart : NULL;
    const lq_edit whole = edit ? *edit : (lq_edit){0};
    lq_edit rest = whole;
    lq_weight_size any;
    lq_weight_out raw;
    lq_weight beside = {.type = x->recipe.type, .n = s->n, .k = s->k};
    if (given && given->acts) lq_acts_lay(given->acts, &x->recipe, x->beside, &beside);
    if (beside.outliers && !apart) {
        rest.apart = beside.outlier, rest.aparts = beside.outliers;
        edit = &rest;
    }
    if (!lq_weight_sizes(&x->recipe.type, s->n, s->k, &any)) return lq_fail(err, LQ_E_LIMIT, "it is too large");
    uint8_t *behind = lq_lay_out(buf, &any, true, &raw);
    lq_levels levels = {0};
    if (x->recipe.type.dq) lq_levels_lay(behind, &x->recipe.type, s->n, s->k, &levels);
    lq_matrix q = {.w = from, .edit = edit, .solve = solve,
                   .weight = given && given->acts ? given->acts->weight : NULL, .dev = dev, .q = raw.q,
                   .scale = raw.scale, .zero = raw.zero, .levels = levels.code ? &levels : NULL, .tick = heard,
                   .arg = t};
    if (!lq_quantize_matrix(&x->recipe, &q, err)) return false;
    x->recipe.type = q.type;
    x->error = q.error, x->norm = q.norm, x->max_error = q.max_error;
    x->loss = q.loss, x->loss_plain = q.loss_plain, x->loss_norm = q.loss_norm;
    x->out = (lq_weight){.type = q.type, .layout = LQ_ANY, .n = s->n, .k = s->k, .q = raw.q, .scale = raw.scale,
                         .zero = raw.zero, .table = lq_wtype_table(&q.type), .act_scale = beside.act_scale,
                         .act_zero = beside.act_zero};
    x->scale2 = q.scale2;
    if (q.type.scale == LQ_E4M3) x->out.scale2 = &x->scale2;
    if (q.type.dq)
        x->out.scale_code = levels.code, x->out.scale_map = levels.map, x->out.scale2 = levels.by,
            x->out.scale_offset = levels.offset;
    if (!beside.outliers) return true;
    lq_weight made = x->out;
    if (solve && !solve->stays) made.perm = solve->order; // as its columns lie
    x->out.outlier = beside.outlier, x->out.outlier_w = beside.outlier_w, x->out.outliers = beside.outliers;
    return lq_apart_fill(dev, apart, from, &whole, &made, &beside, x, err);
}

// Where rows are turned the matrix has to be whole; what becomes of columns is done row by row as they are read.
static bool change_and_round(lq_dev *dev, const lq_module *m, int at, const lq_given *given, void *buf, told *t,
                             lq_made *x, lq_err *err) {
    const lq_edit own = lq_edit_of(&m->edit, at), *edit = &own;
    const bool changes = edit->in || edit->column || edit->row;
    if (!edit->out) return round_matrix(dev, m, &x->src, changes ? edit : NULL, given, buf, t, x, err);
    const int64_t n = x->src.n, k = x->src.k;
    lq_weight whole = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = n, .k = k};
    float *copy = malloc((size_t)n * (size_t)k * sizeof *copy);
    whole.q = copy;
    const bool done = (copy || lq_fail(err, LQ_E_MEMORY, "no memory for a matrix of %lld x %lld", (long long)n,
                                       (long long)k)) &&
                      lq_edit_matrix(edit, &x->src, dev->pool, copy, err) &&
                      round_matrix(dev, m, &whole, NULL, given, buf, t, x, err);
    free(copy);
    return done;
}

static bool fail_weight(const lq_plan *p, const lq_slot *s, const lq_pick *from, lq_err *err) {
    if (from->stack) lq_fail_in(err, "matrix %lld", (long long)from->at);
    return lq_fail_in(err, "%s: tensor %s", lq_ckpt_path(p->in), s->count ? from->name : s->name);
}

// What is no code is a number.
static bool finite_or_coded(const lq_slot *s, const lq_weight *w, lq_err *err) {
    return w->type.kind != LQ_W_PLAIN || lq_weight_finite(w, !s->k, err);
}

bool lq_module_make(const lq_plan *p, lq_dev *dev, const lq_module *m, int at, const lq_given *given, void *buf,
                    lq_tick *tick, void *arg, lq_made *x, lq_err *err) {
    const lq_slot *s = &m->it->slot;
    lq_pick from;
    if (!lq_item_pick(p->in, m->it, at, &from, err)) return false;
    if (!lq_ckpt_pick(p->in, &from, s->n, s->k, &x->src, NULL, err)) return false;
    x->out = x->src;
    x->out.type.dq &= m->it->recipe.type.dq;
    if (x->src.type.scale == LQ_E4M3) x->scale2 = *x->src.scale2;
    if (m->it->round ? change_and_round(dev, m, at, given, buf, &(told){tick, arg}, x, err)
                     : finite_or_coded(s, &x->src, err)) return true;
    lq_ckpt_done(p->in, &x->src);
    return err->code != LQ_E_CANCELLED && fail_weight(p, s, &from, err);
}

// Whether all of an item that is there as numbers is finite.
static bool item_finite(const lq_plan *p, const lq_item *it, lq_err *err) {
    const lq_slot *s = &it->slot;
    bool done = true;
    for (int at = 0; done && at < (s->count ? s->count : 1); at++) {
        lq_pick from;
        lq_weight w;
        done = lq_item_pick(p->in, it, at, &from, err) && lq_ckpt_pick(p->in, &from, s->n, s->k, &w, NULL, err);
        if (!done) break;
        done = finite_or_coded(s, &w, err) || fail_weight(p, s, &from, err);
        lq_ckpt_done(p->in, &w);
    }
    return done;
}

void lq_plan_odd(const lq_plan *p, lq_err *err) {
    for (size_t i = 0; i < p->count; i++) {
        const lq_slot *s = &p->items[i].slot;
        lq_err found = {0};
        if (s->role == LQ_ROLES || s->role == LQ_R_KV_SCALE || item_finite(p, &p->items[i], &found)) continue;
        if (found.code == LQ_E_FORMAT) *err = found;
        return;
    }
}
