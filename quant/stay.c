// stay.c: which rows and columns of a weight stay, by its role, and the weight that is left of it.
#include "quant/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int lq_keep(int n, double share, int group) {
    // What had groups of one length has them still, if there are enough of them to take some away.
    const int unit = group && n % group == 0 && n / group >= 8 ? group : n % 16 == 0 && n >= 32 ? 16 : 1;
    const int stay = (int)lrint(share * n / unit) * unit;
    return share <= 0 ? n : stay < unit ? unit : stay < n ? stay : n;
}

// A width that config.json has once may be there several times as wide: it stays so.
int lq_keep_ffn(const lq_desc *was, const lq_layer *l, const lq_part *p, const lq_prune *what) {
    int base = p->ffn;
    for (int i = 0; p->shared && i < l->parts; i++)
        if (l->part[i].kind == LQ_P_MOE && p->ffn % l->part[i].ffn == 0) base = l->part[i].ffn;
    for (int i = 0; !p->shared && p->kind == LQ_P_MLP && i < was->layers; i++)
        for (int k = 0; k < was->layer[i].parts; k++) {
            const lq_part *q = &was->layer[i].part[k];
            if (q->kind == LQ_P_MLP && !q->shared && q->ffn < base && p->ffn % q->ffn == 0) base = q->ffn;
        }
    return p->ffn / base * lq_keep(base, what->mlp, what->group);
}

int lq_keep_kv(const lq_part *p, const lq_prune *what) {
    return p->kind == LQ_P_ATTN ? lq_keep(p->kv_heads, what->heads, 1) : p->kv_heads;
}

const lq_part *lq_width_part(const lq_layer *l, lq_width width) {
    for (int i = 0; i < l->parts; i++) {
        const lq_part *p = &l->part[i];
        if (width == LQ_W_HEADS ? p->kind == LQ_P_ATTN : width == LQ_W_EXPERTS ? p->kind == LQ_P_MOE :
            p->kind == LQ_P_MLP && p->shared == (width == LQ_W_SHARED)) return p;
    }
    return NULL;
}

void lq_stay_free(lq_stay *s) {
    free(s->row);
    free(s->column);
    *s = (lq_stay){0};
}

// Of blocks of `wide` each, those in the list.
static bool blocks(const int32_t *list, int64_t n, int64_t wide, int32_t **out, lq_err *err) {
    if (!list) return true;
    int32_t *all = *out = malloc((size_t)n * (size_t)wide * sizeof *all);
    if (!all) return lq_fail(err, LQ_E_MEMORY, "no memory for a list of %lld", (long long)(n * wide));
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < wide; k++) *all++ = (int32_t)(list[i] * wide + k);
    return true;
}

typedef struct staying {
    const lq_desc *was;
    const lq_cut *cut;
    const lq_slot *s;
    int at;
    lq_err *err;
} staying;

static bool residual(const staying *t, int32_t **out) {
    return blocks(t->cut->channel, lq_keep(t->was->dim, t->cut->what.hidden, t->cut->what.group), 1, out, t->err);
}

// Blocks of `wide` for each KV head.
static bool heads(const staying *t, const lq_part *a, int64_t wide, int32_t **out) {
    int32_t **of = t->cut->of[LQ_W_HEADS];
    return !of || a->kind != LQ_P_ATTN || blocks(of[t->s->layer], lq_keep_kv(a, &t->cut->what), wide, out, t->err);
}

static bool inner(const staying *t, lq_width width, int32_t **out) {
    const lq_layer *l = &t->was->layer[t->s->layer];
    const lq_part *p = lq_width_part(l, width);
    int32_t **of = t->cut->of[width];
    if (!p || !of || !of[t->s->layer]) return true;
    const int stay = lq_keep_ffn(t->was, l, p, &t->cut->what);
    return blocks(of[t->s->layer] + (int64_t)t->at * stay, stay, 1, out, t->err);
}

static bool of_attention(const staying *t, const lq_part *a, lq_stay *out) {
    const int64_t share = a->heads / a->kv_heads, hd = a->head_dim, v = a->v_dim;
    const bool matrix = t->s->k > 0 && !t->s->flat;
    switch (t->s->role) {
    case LQ_R_Q: return heads(t, a, share * hd, &out->row) && (!matrix || residual(t, &out->column));
    case LQ_R_K: return heads(t, a, hd, &out->row) && (!matrix || residual(t, &out->column));
    case LQ_R_V: return heads(t, a, v, &out->row) && (!matrix || residual(t, &out->column));
    case LQ_R_ATTN_GATE: return heads(t, a, share * v, &out->row) && (!matrix || residual(t, &out->column));
    case LQ_R_SINKS: return heads(t, a, share, &out->row);
    case LQ_R_O: return residual(t, &out->row) && (!matrix || heads(t, a, share * v, &out->column));
    case LQ_R_Q_NORM:
    case LQ_R_K_NORM: {
        const int64_t each = t->s->role == LQ_R_Q_NORM ? share : 1;
        if (a->qk_norm == LQ_QK_HEADS) return heads(t, a, each, &out->row);
        return a->qk_norm != LQ_QK_WHOLE || heads(t, a, each * hd, &out->row);
    }
    case LQ_R_Q_A:
    case LQ_R_KV_A: return !matrix || residual(t, &out->column);
    default: return true;
    }
}

static bool of_mlp(const staying *t, lq_stay *out) {
    const lq_role r = t->s->role;
    const bool matrix = t->s->k > 0 && !t->s->flat, shared = r >= LQ_R_SHARED_GATE && r <= LQ_R_SHARED_DOWN;
    const bool expert = r >= LQ_R_EXPERT_GATE && r <= LQ_R_EXPERT_DOWN;
    const lq_width width = expert ? LQ_W_EXPERTS : shared ? LQ_W_SHARED : LQ_W_MLP;
    if (r == LQ_R_DOWN || r == LQ_R_EXPERT_DOWN || r == LQ_R_SHARED_DOWN)
        return residual(t, &out->row) && (!matrix || inner(t, width, &out->column));
    return inner(t, width, &out->row) && (!matrix || residual(t, &out->column));
}

bool lq_stay_of(const lq_desc *was, const lq_cut *cut, const lq_slot *s, int at, lq_stay *out, lq_err *err) {
    const staying t = {was, cut, s, at, err};
    const lq_part *a = s->layer < 0 ? NULL : lq_layer_attn(&was->layer[s->layer]);
    const bool told = cut->layers < was->layers;
    *out = (lq_stay){0};
    bool done = true;
    if (s->role >= LQ_R_NORM_0 && s->role <= LQ_R_NORM_POST_2) done = residual(&t, &out->row);
    else if (a && s->role >= LQ_R_Q && s->role <= LQ_R_V_B) done = of_attention(&t, a, out);
    else if ((s->role >= LQ_R_GATE && s->role <= LQ_R_DOWN) ||
             (s->role >= LQ_R_EXPERT_GATE && s->role <= LQ_R_SHARED_DOWN)) done = of_mlp(&t, out);
    else if (s->role == LQ_R_NORM_EMBED || s->role == LQ_R_NORM_OUT) done = residual(&t, &out->row);
    else if (s->role == LQ_R_EMBED || s->role == LQ_R_POSITION || s->role == LQ_R_HEAD || s->role == LQ_R_ROUTER ||
             s->role == LQ_R_SHARED_SCORE) done = !s->k || residual(&t, &out->column);
    else if (told && (s->role == LQ_R_TOKENS || s->role == LQ_R_TOKENS_IN)) {
        int32_t **to = s->role == LQ_R_TOKENS ? &out->column : &out->row;
        done = blocks(cut->layer, cut->layers, was->token_dim, to, err); // numbers of layers
    }
    if (!done) lq_stay_free(out);
    return done;
}

bool lq_stay_take(const lq_stay *s, const lq_weight *from, int64_t n, int64_t k, void **held, lq_weight *out,
                  lq_err *err) {
    *held = NULL;
    *out = *from;
    if (!s->row && !s->column) return true;
    if (from->type.kind != LQ_W_PLAIN)
        return lq_fail(err, LQ_E_UNSUPPORTED, "it is quantized already: expected a checkpoint in bf16, f16 or f32");
    const size_t size = lq_dtype_size(from->type.elem), wide = k ? (size_t)k : 1, old = k ? (size_t)from->k : 1;
    char *to = *held = malloc((size_t)n * wide * size);
    if (!to) return lq_fail(err, LQ_E_MEMORY, "no memory for a matrix of %lld x %zu", (long long)n, wide);
    for (int64_t i = 0; i < n; i++) {
        const char *row = (const char *)from->q + (size_t)(s->row ? s->row[i] : i) * old * size;
        if (!s->column) memcpy(to, row, wide * size), to += wide * size;
        else for (size_t j = 0; j < wide; j++, to += size) memcpy(to, row + (size_t)s->column[j] * size, size);
    }
    out->q = *held, out->n = n, out->k = k ? k : 1;
    return true;
}
