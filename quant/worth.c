// worth.c: which parts of a model are worth least, by what calibration text says of them (docs/QUANT.md has the
// definitions). Layers: each is left out in turn of the whole model (probe.c), or the text goes through the model layer
// by layer and what each does to the residual is measured. Owns what is measured.
#include "quant/probe.h"
#include "quant/prune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice {
    const lq_worth *w;
    const lq_desc *d;   // of the model as it was
    lq_cut *cut;
    bool *gone, *tried; // [layers]
    double *measure;    // [layers] of influence; NULL: not measured
    int *order;         // [depth] which went first
    double *kld;        // [depth] and how far the model was then from itself
} choice;

// Rounds of the text, which a tick may stop.
static bool heard(const choice *c, lq_err *err) {
    return c->w->tick(c->w->arg, 0, 0) || lq_fail(err, LQ_E_CANCELLED, "stopped");
}

static void cut_layers(choice *c) {
    c->cut->layers = 0;
    for (int l = 0; l < c->d->layers; l++)
        if (!c->gone[l]) c->cut->layer[c->cut->layers++] = l;
}

// Whether what stays can be described.
static bool can_say(const choice *c, lq_err *err) {
    lq_desc d;
    lq_text config = {0};
    const bool can = lq_narrow(c->w->p->in, c->d, c->cut, &d, &config, err);
    if (can) lq_desc_free(&d);
    lq_text_free(&config);
    return can || lq_fail_in(err, "%s", lq_ckpt_path(c->w->p->in));
}

// The same without another layer; *hard: something else is wrong.
static bool can_go(choice *c, int layer, bool *hard, lq_err *err) {
    c->gone[layer] = true;
    cut_layers(c);
    const bool can = can_say(c, err);
    if (!can) *hard = err->code != LQ_E_UNSUPPORTED && err->code != LQ_E_FORMAT;
    c->gone[layer] = false;
    cut_layers(c);
    return can;
}

// `err` says why the last one that was tried has to stay.
static bool fail_none(const choice *c, int gone, lq_err *err) {
    return lq_fail_in(err, "%s: %d of %d layers can go, not %d", lq_ckpt_path(c->w->p->in), gone, c->d->layers,
                      c->w->what->depth);
}

// --- by what the model says ---

// The layer without which the model's probabilities are nearest to its own goes; then again, without it.
static bool choose_by_probe(choice *c, lq_probe *probe, lq_err *err) {
    for (int n = 0; n < c->w->what->depth; n++) {
        int best = -1;
        double least = INFINITY;
        for (int l = 0; l < c->d->layers; l++) {
            double kld;
            bool hard = false;
            if (c->gone[l]) continue;
            if (!heard(c, err)) return false;
            if (!can_go(c, l, &hard, err)) {
                if (hard) return false;
                continue;
            }
            lq_probe_skip(probe, l, true);
            const bool done = lq_probe_kld(probe, &kld, err);
            lq_probe_skip(probe, l, false);
            if (!done) return false;
            if (kld < least) best = l, least = kld;
        }
        if (best < 0) return fail_none(c, n, err);
        lq_probe_skip(probe, best, true);
        c->gone[best] = true;
        c->order[n] = best, c->kld[n] = least;
    }
    return true;
}

// Sequences of the text as far as what the model says of them has room.
static lq_calib probe_text(const lq_worth *w) {
    lq_calib text = *w->probes;
    lq_probe_fit(&text, w->p->in_desc.vocab);
    return text;
}

static bool probe_layers(choice *c, lq_err *err) {
    const lq_calib text = probe_text(c->w);
    lq_probe *probe;
    if (!lq_probe_open(c->w->p->o->in, &text, c->w->on, c->w->p->o->threads, &probe, err)) return false;
    const bool done = choose_by_probe(c, probe, err);
    lq_probe_close(probe);
    return done;
}

// --- by what they do to the residual ---

static size_t sample_cells(const choice *c) { return (size_t)c->w->text->len * (size_t)c->d->dim; }

// Adds the cosines between rows as they go into a layer and as they come out of it.
static void add_cosines(const choice *c, const float *before, const float *after, double *sum) {
    const size_t rows = (size_t)c->w->text->len, dim = (size_t)c->d->dim;
    for (size_t r = 0; r < rows; r++, before += dim, after += dim) {
        double ab = 0, aa = 0, bb = 0;
        for (size_t i = 0; i < dim; i++) {
            ab += (double)before[i] * (double)after[i];
            aa += (double)before[i] * (double)before[i];
            bb += (double)after[i] * (double)after[i];
        }
        *sum += aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 1;
    }
}

// Of all rows: they become `before`, or (sum) are compared with it.
static bool see_rows(const choice *c, const lq_stream *s, float *before, double *sum, lq_err *err) {
    const size_t cells = sample_cells(c);
    for (size_t i = 0; i < c->w->text->samples; i++) {
        lq_here rows;
        if (!lq_stream_rows(s, i, &rows, err)) return false;
        if (sum) add_cosines(c, before + i * cells, rows.x, sum);
        else memcpy(before + i * cells, rows.x, cells * sizeof *before);
        lq_here_close(&rows);
    }
    return true;
}

static bool measure_layers(choice *c, lq_stream *s, float *before, lq_err *err) {
    const double rows = (double)(c->w->text->samples * (size_t)c->w->text->len);
    for (int l = 0; l < c->d->layers; l++) {
        double sum = 0;
        if (!lq_stream_enter(s, l, err) || !see_rows(c, s, before, NULL, err) || !lq_stream_leave(s, NULL, err) ||
            !see_rows(c, s, before, &sum, err)) return false;
        c->measure[l] = 1 - sum / rows;
        if (!isfinite(c->measure[l]))
            return lq_fail(err, LQ_E_FORMAT, "%s: what layer %d makes of the calibration text is no number",
                           lq_ckpt_path(c->w->p->in), l);
    }
    return true;
}

// One layer after the other, the least first; one without which the others cannot be described stays.
static bool choose_by_influence(choice *c, lq_err *err) {
    for (int n = 0; n < c->w->what->depth;) {
        int best = -1;
        bool hard = false;
        for (int l = 0; l < c->d->layers; l++)
            if (!c->tried[l] && (best < 0 || c->measure[l] < c->measure[best])) best = l;
        if (best < 0) return fail_none(c, n, err);
        c->tried[best] = true;
        if (can_go(c, best, &hard, err)) c->gone[best] = true, c->order[n++] = best;
        else if (hard) return false;
    }
    return true;
}

// All alike.
static bool measure_open(choice *c, lq_err *err) {
    c->measure = calloc((size_t)c->d->layers, sizeof *c->measure);
    return c->measure || lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", c->d->layers);
}

static bool influence_layers(choice *c, lq_err *err) {
    const lq_worth *w = c->w;
    lq_rooms rooms = w->rooms;
    const lq_stream_opts o = {.in = w->p->o->in, .desc = c->d, .text = w->text, .threads = w->p->o->threads,
                              .on = lq_lend_far(w->p->o->lent), .rooms = &rooms, .spill = w->spill, .tick = w->tick,
                              .arg = w->arg};
    const size_t bytes = w->text->samples * sample_cells(c) * sizeof(float);
    lq_stream *s = NULL;
    float *before = NULL;
    bool done = measure_open(c, err) && lq_stream_open(&o, &s, err) &&
                (before = lq_room_open(&rooms, bytes, err)) != NULL &&
                lq_stream_begin(s, err) && measure_layers(c, s, before, err);
    lq_room_close(&rooms, before);
    lq_stream_close(s);
    return done && choose_by_influence(c, err);
}

// --- the whole ---

static void tell(const choice *c, lq_text *t) {
    const int n = c->w->what->depth;
    lq_text_fmt(t, "{\"layers\": %d, \"dropped\": [", c->d->layers);
    for (int i = 0; i < n; i++) lq_text_fmt(t, i ? ", %d" : "%d", c->order[i]);
    lq_text_fmt(t, "]");
    if (c->measure) {
        lq_text_fmt(t, ", \"influence\": [");
        for (int l = 0; l < c->d->layers; l++) lq_text_fmt(t, l ? ", %.6g" : "%.6g", c->measure[l]);
        lq_text_fmt(t, "]");
    } else if (n) {
        lq_text_fmt(t, ", \"kld\": [");
        for (int i = 0; i < n; i++) lq_text_fmt(t, i ? ", %.6g" : "%.6g", c->kld[i]);
        lq_text_fmt(t, "]");
    }
}

static bool choice_open(choice *c, const lq_worth *w, lq_cut *out, lq_err *err) {
    const lq_desc *d = &w->p->in_desc;
    const size_t layers = (size_t)d->layers, depth = (size_t)w->what->depth;
    *c = (choice){.w = w, .d = d, .cut = out, .gone = calloc(2 * layers, sizeof *c->gone),
                  .order = malloc((depth + 1) * sizeof *c->order), .kld = malloc((depth + 1) * sizeof *c->kld)};
    *out = (lq_cut){.what = *w->what, .was = d->layers, .layer = malloc(layers * sizeof *out->layer)};
    c->tried = c->gone + layers;
    return (c->gone && c->order && c->kld && out->layer) ||
           lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", d->layers);
}

static void choice_close(choice *c) {
    free(c->gone);
    free(c->order);
    free(c->kld);
    free(c->measure);
}

bool lq_prune_choose(const lq_worth *w, lq_cut *out, lq_text *told, lq_err *err) {
    choice c;
    bool done = choice_open(&c, w, out, err);
    if (done && w->what->depth) done = (w->what->influence ? influence_layers : probe_layers)(&c, err);
    if (done) cut_layers(&c), tell(&c, told);
    if (done && (out->what.mlp > 0 || out->what.heads > 0 || out->what.hidden > 0))
        done = can_say(&c, err) && lq_prune_widths(w, out, told, err);
    lq_text_fmt(told, "}");
    choice_close(&c);
    return done && (!told->failed || lq_fail(err, LQ_E_MEMORY, "no memory for what is said of what goes"));
}

bool lq_prune_guess(const lq_plan *p, const lq_prune *what, lq_cut *out, lq_err *err) {
    const lq_worth w = {.p = p, .what = what};
    choice c;
    const bool done = choice_open(&c, &w, out, err) && measure_open(&c, err) && choose_by_influence(&c, err);
    if (done) cut_layers(&c);
    choice_close(&c);
    return done;
}

size_t lq_prune_bytes(const lq_worth *w, bool refitted) {
    const lq_desc *d = &w->p->in_desc;
    const lq_calib text = probe_text(w);
    size_t sums = 0;
    int64_t widest = d->dim;
    for (int l = 0; l < d->layers; l++)
        for (int i = 0; i < d->layer[l].parts; i++) {
            const lq_part *p = &d->layer[l].part[i];
            const size_t own = (size_t)(p->experts ? p->experts : 1) * (size_t)p->ffn * (sizeof(double) + 16);
            if (own > sums) sums = own;
            if (p->ffn > widest) widest = p->ffn;
            if ((int64_t)p->heads * p->v_dim > widest) widest = (int64_t)p->heads * p->v_dim;
        }
    const size_t between = text.samples * (size_t)text.len * (size_t)d->dim * sizeof(float);
    const size_t said = w->what->depth && !w->what->influence ? lq_probe_bytes(&text, d->vocab) + between : 0;
    const size_t chunk = lq_stream_cost(d, w->text, refitted, refitted ? widest : d->dim).chunk;
    return sums + said + chunk + (refitted ? lq_refit_bytes(widest) : 0) + ((size_t)16 << 20);
}
