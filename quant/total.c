// total.c: what rows of the report come to together: of which kind a matrix is, sums over a layer, over a kind, over
// both. Owns nothing.
#include "quant/pass.h"
#include <math.h>
#include <string.h>

const char *const lq_quant_kinds[LQ_KINDS] = {"embed", "attention", "mlp", "experts", "head"};

const char *lq_quant_kind(const lq_slot *s) {
    enum { EMBED, ATTENTION, MLP, EXPERTS, HEAD };
    int kind = MLP;
    if (s->layer < 0) kind = s->role == LQ_R_HEAD || s->role == LQ_R_PROJECT_OUT ? HEAD : EMBED;
    else if (s->role >= LQ_R_Q && s->role <= LQ_R_V_B) kind = ATTENTION;
    else if (s->role >= LQ_R_ROUTER && s->role <= LQ_R_SHARED_SCORE) kind = EXPERTS;
    return lq_quant_kinds[kind];
}

lq_quant_total lq_quant_sum(const lq_quant_result *r, int layer, const char *kind) {
    lq_quant_total t = {.out_error = -1, .out_plain = -1};
    double error = 0, norm = 0, loss = 0, plain = 0, of = 0;
    for (const lq_quant_row *row = r->rows; row < r->rows + r->count; row++) {
        if ((layer != LQ_ALL_LAYERS && row->layer != layer) || (kind && strcmp(row->kind, kind) != 0)) continue;
        const int count = row->count ? row->count : 1;
        const double n = (double)count * (double)row->n * (double)row->k;
        t.matrices += count;
        t.weights += n;
        t.before += n * row->before / 8, t.after += n * row->bits / 8;
        error += row->error, norm += row->norm;
        loss += row->loss, plain += row->loss_plain, of += row->loss_norm;
    }
    t.rel_error = norm > 0 ? sqrt(error / norm) : 0;
    if (of > 0) t.out_error = sqrt(loss / of), t.out_plain = sqrt(plain / of);
    return t;
}
