// fold.c: factors of an input's columns, and where they come from: the matrices that read the input are multiplied, and
// what stands before it is divided, a norm or the rows of another matrix, so that the model computes what it did. Owns
// nothing: factors live in the block. Refused (lq_fold_can): an input behind a nonlinearity, a residual as it is, or
// rows that somebody else reads too.
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>

bool lq_searches(unsigned transform) {
    for (int i = 0; i < LQ_TRANSFORMS; i++)
        if (transform >> i & 1 && lq_transforms[i].search) return true;
    return false;
}

bool lq_reads(const lq_module *m, int input) {
    const lq_slot *s = &m->it->slot;
    return s->role != LQ_ROLES && s->k && s->input == input;
}

bool lq_fold_each(const lq_block *b, int input) {
    return b->input[input].count && b->input[input].before == LQ_B_ROWS;
}

static const lq_part *attention(const lq_block *b) { return lq_layer_attn(&b->plan->desc.layer[b->layer]); }

// What a layer puts into the cache may be read by layers behind it.
static bool lends(const lq_block *b) {
    const lq_desc *d = &b->plan->desc;
    for (int l = 0; l < d->layers; l++)
        if (l != b->layer && d->layer[l].kv_from == b->layer) return true;
    return false;
}

bool lq_fold_can(const lq_block *b, int input) {
    const lq_input *in = &b->input[input];
    const lq_module *by = lq_block_find(b, in->by, false);
    if (in->before == LQ_B_NONE || !by || !lq_searches(by->it->recipe.transform)) return false;
    for (const lq_module *m = b->module; m < b->module + b->modules; m++)
        if (lq_reads(m, input) && !lq_searches(m->it->recipe.transform)) return false;
    const lq_slot *s = &by->it->slot;
    if (in->before == LQ_B_NORM) return !s->k && s->n == in->k;
    if (in->before == LQ_B_ROWS) return s->k && s->n == in->k && s->count == in->count;
    const lq_part *a = attention(b);
    return a && !lends(b) && s->n == (int64_t)a->kv_heads * a->v_dim && in->k == (int64_t)a->heads * a->v_dim;
}

// The row of V that makes column j of o.
static int64_t row_of_v(const lq_part *a, int64_t j) {
    return j / a->v_dim / (a->heads / a->kv_heads) * a->v_dim + j % a->v_dim;
}

void lq_fold_even(const lq_block *b, int input, float *v) {
    const lq_part *a = b->input[input].before == LQ_B_V ? attention(b) : NULL;
    const int64_t share = a ? a->heads / a->kv_heads : 1;
    for (int64_t j = 0; share > 1 && j < b->input[input].k; j++) {
        if (j / a->v_dim % share) continue; // not the first head of its group
        double sum = 0;
        for (int64_t h = 0; h < share; h++) sum += (double)v[j + h * a->v_dim];
        for (int64_t h = 0; h < share; h++) v[j + h * a->v_dim] = (float)(sum / (double)share);
    }
}

static float *ones(size_t n) {
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; v && i < n; i++) v[i] = 1;
    return v;
}

static bool divide_vector(lq_block *b, lq_role role, bool bias, const float *by, int64_t n, int64_t at, float one,
                          lq_err *err) {
    lq_module *m = lq_block_find(b, role, bias);
    if (!m) return true;
    float *v = lq_block_vector(b, m, err);
    for (int64_t i = 0; v && i < n; i++) v[at + i] = (one + v[at + i]) / by[i] - one;
    return v;
}

// A norm's gamma and beta; or the rows of a matrix, and its bias.
static bool divide(lq_block *b, int input, int64_t at, const float *by /* [n] */, int64_t n, lq_err *err) {
    const lq_input *in = &b->input[input];
    const bool norm = in->before == LQ_B_NORM, of_residual = in->by >= LQ_R_NORM_0 && in->by <= LQ_R_NORM_2;
    if (norm) {
        const float one = b->plan->desc.norm_plus_one && of_residual ? 1 : 0;
        return divide_vector(b, in->by, false, by, n, 0, one, err) && divide_vector(b, in->by, true, by, n, 0, 0, err);
    }
    for (int64_t i = 0; i < n; i++) b->share[input][at + i] /= by[i];
    return divide_vector(b, in->by, true, by, n, at, 0, err);
}

bool lq_fold(lq_block *b, int input, int expert, const float *factor, lq_err *err) {
    const lq_input *in = &b->input[input];
    const bool each = lq_fold_each(b, input), v = in->before == LQ_B_V;
    const lq_part *a = v ? attention(b) : NULL;
    const int64_t k = in->k, n = v ? (int64_t)a->kv_heads * a->v_dim : k, at = each ? expert * k : 0;
    const size_t count = each ? (size_t)in->count : 1;
    bool any = false;
    for (int64_t j = 0; j < k; j++) any |= factor[j] != 1;
    if (!any) return true;
    float *row = malloc((size_t)n * sizeof *row);
    if (!b->factor[input]) b->factor[input] = ones(count * (size_t)k);
    if (!b->share[input]) b->share[input] = ones(count * (size_t)n);
    if (!row || !b->factor[input] || !b->share[input]) {
        free(row);
        return lq_fail(err, LQ_E_MEMORY, "no memory for the factors of %zu columns", count * (size_t)k);
    }
    for (int64_t j = 0; j < k; j++) {
        b->factor[input][at + j] *= factor[j];
        row[v ? row_of_v(a, j) : j] = factor[j];
    }
    for (lq_module *m = b->module; m < b->module + b->modules; m++) {
        const lq_slot *s = &m->it->slot;
        if (lq_reads(m, input)) m->edit.column = b->factor[input], m->edit.columns = each ? k : 0;
        if (in->before == LQ_B_NORM || s->role != in->by || !s->k) continue;
        m->edit.row = b->share[input], m->edit.rows = each ? n : 0;
    }
    const bool done = divide(b, input, each ? expert * n : 0, row, n, err);
    free(row);
    return done;
}

// --- what searches of factors share ---

bool lq_seek_heard(void *seek) {
    const lq_seek *s = seek;
    return !s->tick || s->tick(s->arg, 0, 0);
}

int lq_seek_first(const lq_seek *s) { return s->expert < 0 ? 0 : s->expert; }

int lq_seek_end(const lq_seek *s, const lq_module *m) {
    return s->expert >= 0 ? s->expert + 1 : m->it->slot.count ? m->it->slot.count : 1;
}

int64_t lq_seek_rows(int64_t k, int64_t n, int64_t count, int64_t elements) {
    enum { ROWS = 64 };
    const int64_t all = elements / k > ROWS ? elements / k : ROWS, each = all / count;
    return each < 1 ? 1 : each < n ? each : n;
}

bool lq_seek_even(const lq_seek *s, double least, double *v, lq_err *err) {
    const int64_t k = s->w->k;
    double top = 0;
    float *f = malloc((size_t)k * sizeof *f);
    if (!f) return lq_fail(err, LQ_E_MEMORY, "no memory to search factors of %lld columns", (long long)k);
    for (int64_t j = 0; j < k; j++) f[j] = (float)v[j];
    lq_fold_even(s->b, s->input, f);
    for (int64_t j = 0; j < k; j++) top = fmax(top, (double)f[j]);
    for (int64_t j = 0; j < k; j++) v[j] = top > 0 ? fmax((double)f[j] / top, least) : 1;
    free(f);
    return true;
}
