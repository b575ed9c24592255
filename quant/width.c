// width.c: which columns and heads of a model are worth least: the mean magnitude of what calibration text gives to the
// matrices that read them, layer by layer as the model was (docs/QUANT.md), summed where the text goes by. Owns the
// sums of an input.
#include "quant/prune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct seeing {
    lq_columns *of; // [max(1, experts)]
    int64_t k;
    int experts;    // each with rows of its own; 0: all rows
} seeing;

static int sets_of(const seeing *s) { return s->experts ? s->experts : 1; }

static bool look(void *arg, const lq_sight *s, lq_err *err) {
    const seeing *t = arg;
    lq_dev *on = t->of[0].on;
    lq_picked p;
    if (!t->experts) lq_columns_add(&t->of[0], &s->x);
    if (!t->experts) return true;
    bool done = lq_picked_open(&p, on, s, t->experts, err);
    for (int e = 0; done && e < t->experts; e++) {
        lq_mat x;
        done = lq_picked_take(&p, e, 0, &s->x, &x, err);
        if (done && x.rows) lq_columns_add(&t->of[e], &x);
    }
    done = done && on->ops.sync(on, err);
    lq_picked_close(&p);
    return done;
}

static bool seeing_open(seeing *s, lq_dev *on, lq_err *err) {
    s->of = calloc((size_t)sets_of(s), sizeof *s->of);
    if (!s->of) return lq_fail(err, LQ_E_MEMORY, "no memory for the sums of an input");
    for (int e = 0; e < sets_of(s); e++)
        if (!lq_columns_open(&s->of[e], on, s->k, false, err)) return false;
    return true;
}

static void seeing_close(seeing *s) {
    for (int e = 0; s->of && e < sets_of(s); e++) lq_columns_close(&s->of[e]);
    free(s->of);
}

// The `stay` largest of n, of equals the first, in their order; *share: what they are of all.
static bool largest(const double *v, int n, int stay, int32_t *out, double *share, lq_err *err) {
    double all = 0, left = 0;
    lq_ranked *w = malloc((size_t)n * sizeof *w);
    if (!w) return lq_fail(err, LQ_E_MEMORY, "no memory for %d sums", n);
    for (int i = 0; i < n; i++) w[i] = (lq_ranked){v[i], i}, all += v[i];
    lq_rank(w, (size_t)n);
    for (int i = 0; i < stay; i++) left += w[i].size;
    lq_rank_places(w, (size_t)stay, out);
    free(w);
    *share = all > 0 ? left / all : 1;
    return true;
}

typedef struct widths {
    const lq_worth *w;
    const lq_desc *d;   // of the model as it was
    lq_cut *cut;
    double *channel;    // [dim]
    double *share[LQ_WIDTHS]; // [layers] of an input's magnitude that stays
} widths;

static bool reads_residual(lq_role r) {
    return (r >= LQ_R_Q && r <= LQ_R_V) || r == LQ_R_ATTN_GATE || r == LQ_R_Q_A || r == LQ_R_KV_A || r == LQ_R_GATE ||
           r == LQ_R_UP || r == LQ_R_ROUTER || r == LQ_R_SHARED_GATE || r == LQ_R_SHARED_UP;
}

// What an input is of, by who reads it.
enum { NOTHING = -2, RESIDUAL = -1 };
static int kind_of(const lq_desc *d, const lq_slot *slots, int n, int input) {
    for (int i = 0; i < n; i++) {
        if (slots[i].input != input || !slots[i].k) continue;
        const lq_layer *l = &d->layer[slots[i].layer];
        switch (slots[i].role) {
        case LQ_R_O: return lq_layer_attn(l)->kind == LQ_P_ATTN ? LQ_W_HEADS : NOTHING;
        case LQ_R_DOWN: return LQ_W_MLP;
        case LQ_R_EXPERT_DOWN: return LQ_W_EXPERTS;
        case LQ_R_SHARED_DOWN: return LQ_W_SHARED;
        default: if (reads_residual(slots[i].role)) return RESIDUAL;
        }
    }
    return NOTHING;
}

static bool wanted(const widths *t, int kind) {
    const lq_prune *p = &t->cut->what;
    return kind == RESIDUAL ? p->hidden > 0 : kind == LQ_W_HEADS ? p->heads > 0 : kind != NOTHING && p->mlp > 0;
}

// Of the sums of an input: which of its heads or columns stay.
static bool choose(widths *t, int layer, int kind, seeing *s, lq_err *err) {
    const lq_layer *l = &t->d->layer[layer];
    const lq_part *p = lq_width_part(l, (lq_width)kind);
    const int lists = sets_of(s);
    const int n = kind == LQ_W_HEADS ? p->kv_heads : p->ffn, wide = (int)(s->k / n);
    const int stay = kind == LQ_W_HEADS ? lq_keep_kv(p, &t->cut->what) : lq_keep_ffn(t->d, l, p, &t->cut->what);
    int32_t *list = t->cut->of[kind][layer] = malloc((size_t)lists * (size_t)stay * sizeof *list);
    if (!list) return lq_fail(err, LQ_E_MEMORY, "no memory for lists of %d", stay);
    double sum = 0;
    for (int e = 0; e < lists; e++) {
        double *v = s->of[e].sum, share;
        for (int i = 0; i < n && wide > 1; i++) { // columns of a head together
            double all = 0;
            for (int k = 0; k < wide; k++) all += v[i * wide + k];
            v[i] = all;
        }
        if (!largest(v, n, stay, list + (int64_t)e * stay, &share, err)) return false;
        sum += share;
    }
    t->share[kind][layer] = sum / lists;
    return true;
}

static bool all_numbers(const widths *t, int layer, const seeing *s, lq_err *err) {
    bool all = true;
    for (int e = 0; e < sets_of(s); e++) {
        if (!lq_columns_end(&s->of[e], err)) return false;
        for (int64_t i = 0; i < s->k; i++) all &= isfinite(s->of[e].sum[i]) != 0;
    }
    return all || lq_fail(err, LQ_E_FORMAT, "%s: what layer %d is given of the calibration text is no number",
                             lq_ckpt_path(t->w->p->in), layer);
}

static bool see_layer(widths *t, lq_stream *st, int layer, lq_err *err) {
    lq_input input[LQ_INPUTS];
    int n, inputs = lq_desc_inputs(t->d, layer, input);
    lq_slot *slots = lq_desc_slots(t->d, layer, &n);
    bool done = slots || lq_fail(err, LQ_E_MEMORY, "no memory for the weights of a layer");
    for (int i = 0; done && i < inputs; i++) {
        const int kind = kind_of(t->d, slots, n, i);
        seeing s = {.k = input[i].k, .experts = kind == LQ_W_EXPERTS ? input[i].count : 0};
        if (!wanted(t, kind)) continue;
        done = seeing_open(&s, lq_stream_on(st), err) &&
               (s.experts ? lq_stream_see_apart(st, i, 0, false, look, &s, err)
                          : lq_stream_see(st, i, false, look, &s, err)) && all_numbers(t, layer, &s, err);
        if (kind != RESIDUAL) done = done && choose(t, layer, kind, &s, err);
        else for (int64_t j = 0; done && j < s.k; j++) t->channel[j] += s.of[0].sum[j];
        seeing_close(&s);
    }
    free(slots);
    return done;
}

static bool see_all(widths *t, lq_err *err) {
    const lq_worth *w = t->w;
    lq_rooms rooms = w->rooms;
    const lq_stream_opts o = {.in = w->p->o->in, .desc = t->d, .text = w->text, .threads = w->p->o->threads,
                              .on = lq_lend_far(w->p->o->lent), .rooms = &rooms, .spill = w->spill, .tick = w->tick,
                              .arg = w->arg};
    lq_stream *s = NULL;
    bool done = lq_stream_open(&o, &s, err) && lq_stream_begin(s, err);
    for (int i = 0; done && i < t->cut->layers; i++) // those that went already say nothing
        done = lq_stream_enter(s, t->cut->layer[i], err) && see_layer(t, s, t->cut->layer[i], err) &&
               lq_stream_leave(s, NULL, err);
    lq_stream_close(s);
    return done;
}

static bool choose_channels(widths *t, double *share, lq_err *err) {
    const int dim = t->d->dim, stay = lq_keep(dim, t->cut->what.hidden, t->cut->what.group);
    t->cut->channel = malloc((size_t)stay * sizeof *t->cut->channel);
    if (!t->cut->channel) return lq_fail(err, LQ_E_MEMORY, "no memory for a list of %d", stay);
    return largest(t->channel, dim, stay, t->cut->channel, share, err);
}

static void tell(const widths *t, double channels, lq_text *told) {
    static const char *const names[LQ_WIDTHS] = {"heads", "mlp", "experts", "shared"};
    const lq_prune *p = &t->cut->what;
    if (p->hidden > 0)
        lq_text_fmt(told, ", \"hidden\": {\"of\": %d, \"stay\": %d, \"share\": %.6g}", t->d->dim,
                    lq_keep(t->d->dim, p->hidden, p->group), channels);
    for (int kind = 0; kind < LQ_WIDTHS; kind++) {
        const char *comma = "";
        bool any = false;
        for (int i = 0; i < t->cut->layers; i++) {
            const int at = t->cut->layer[i];
            const lq_layer *l = &t->d->layer[at];
            const lq_part *q = lq_width_part(l, (lq_width)kind);
            if (!q || !t->cut->of[kind] || !t->cut->of[kind][at]) continue;
            if (!any)
                lq_text_fmt(told, ", \"%s\": {\"of\": %d, \"stay\": %d, \"share\": [", names[kind],
                            kind == LQ_W_HEADS ? q->kv_heads : q->ffn,
                            kind == LQ_W_HEADS ? lq_keep_kv(q, p) : lq_keep_ffn(t->d, l, q, p));
            any = true;
            lq_text_fmt(told, "%s%.6g", comma, t->share[kind][at]);
            comma = ", ";
        }
        if (any) lq_text_fmt(told, "]}");
    }
}

bool lq_prune_widths(const lq_worth *w, lq_cut *cut, lq_text *told, lq_err *err) {
    const lq_desc *d = &w->p->in_desc;
    widths t = {.w = w, .d = d, .cut = cut, .channel = calloc((size_t)d->dim, sizeof *t.channel)};
    double channels = 1;
    bool done = t.channel || lq_fail(err, LQ_E_MEMORY, "no memory for %d sums", d->dim);
    for (int i = 0; done && i < LQ_WIDTHS; i++) {
        if (!wanted(&t, i)) continue;
        cut->of[i] = calloc((size_t)d->layers, sizeof *cut->of[i]);
        t.share[i] = calloc((size_t)d->layers, sizeof *t.share[i]);
        done = (cut->of[i] && t.share[i]) || lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", d->layers);
    }
    done = done && see_all(&t, err) && (cut->what.hidden <= 0 || choose_channels(&t, &channels, err));
    if (done) tell(&t, channels, told);
    for (int i = 0; i < LQ_WIDTHS; i++) free(t.share[i]);
    free(t.channel);
    return done;
}
