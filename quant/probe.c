// probe.c: how far a model's probabilities go from its own when some of its matrices are exchanged, or layers left out.
// Owns the model, the engine that runs it, the logits that it gave first, and what stood where something was put.
#include "quant/probe.h"
#include "runtime/model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct taken { lq_weight *at, was; } taken;
typedef struct skipped { int parts; float scale; bool is; } skipped;

struct lq_probe {
    const lq_calib *text;
    lq_model *m;
    lq_engine *e;
    float *first;         // [rows][vocab], rows = samples * (len - from)
    double *sums;         // [rows] ln of the sums of its exponentials
    size_t vocab, from;   // position of a sequence whose logits are the first that count
    taken *took;
    size_t takes, cap;
    skipped *skip;        // [layers]
    // of a run
    size_t row;
    bool keeps;
    double kld;
};

static size_t rows_of(const lq_calib *t) { return t->samples * ((size_t)t->len - (size_t)t->len / 2); }

void lq_probe_fit(lq_calib *t, int vocab) {
    while (t->samples > 1 && lq_probe_bytes(t, vocab) > (size_t)1 << 29) t->samples--;
}

size_t lq_probe_bytes(const lq_calib *t, int vocab) { return rows_of(t) * (size_t)vocab * sizeof(float); }

// ln of the sum of exponentials
static double log_sum(const float *x, size_t n) {
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) top = (double)x[i] > top ? (double)x[i] : top;
    for (size_t i = 0; i < n; i++) sum += (double)expf((float)((double)x[i] - top));
    return top + log(sum);
}

static bool on_logits(void *arg, size_t position, const float *logits) {
    lq_probe *p = arg;
    const size_t row = p->row++;
    float *first = p->first + row * p->vocab;
    (void)position;
    if (p->keeps) {
        memcpy(first, logits, p->vocab * sizeof *first);
        p->sums[row] = log_sum(logits, p->vocab);
        return true;
    }
    const double a = p->sums[row], b = log_sum(logits, p->vocab);
    double sum = 0;
    for (size_t i = 0; i < p->vocab; i++) {
        const double ln = (double)first[i] - a;
        if (ln > -40) sum += (double)expf((float)ln) * (ln - ((double)logits[i] - b));
    }
    p->kld += sum;
    return true;
}

static bool run(lq_probe *p, bool keeps, lq_err *err) {
    p->row = 0, p->kld = 0, p->keeps = keeps;
    for (size_t i = 0; i < p->text->samples; i++)
        if (!lq_logits(p->e, p->text->ids + i * (size_t)p->text->len, (size_t)p->text->len, p->from, on_logits, p, err))
            return false;
    return true;
}

bool lq_probe_open(const char *in, const lq_calib *text, int threads, lq_probe **out, lq_err *err) {
    lq_probe *p = *out = calloc(1, sizeof *p);
    if (!p) return lq_fail(err, LQ_E_MEMORY, "no memory for a probe");
    p->text = text;
    p->from = (size_t)text->len / 2;
    bool done = lq_model_open(in, &(lq_model_opts){.threads = threads, .exact = true}, &p->m, err) &&
                lq_engine_open(p->m, &(lq_engine_opts){.max_seqs = 1}, &p->e, err);
    if (done) {
        p->vocab = (size_t)p->m->desc.vocab;
        p->first = malloc(lq_probe_bytes(text, p->m->desc.vocab));
        p->sums = malloc(rows_of(text) * sizeof *p->sums);
        p->skip = calloc((size_t)p->m->desc.layers, sizeof *p->skip);
        done = (p->first && p->sums && p->skip) ||
               lq_fail(err, LQ_E_MEMORY, "no memory for the logits of %zu tokens", rows_of(text));
    }
    if (done && run(p, true, err)) return true;
    lq_probe_close(p);
    *out = NULL;
    return false;
}

void lq_probe_close(lq_probe *p) {
    if (!p) return;
    lq_probe_restore(p);
    for (int l = 0; p->skip && l < p->m->desc.layers; l++) lq_probe_skip(p, l, false);
    if (p->e) lq_engine_close(p->e);
    if (p->m) lq_model_close(p->m);
    free(p->first);
    free(p->sums);
    free(p->took);
    free(p->skip);
    free(p);
}

lq_dev *lq_probe_dev(const lq_probe *p) { return p->m->dev; }

static bool put(lq_probe *p, lq_weight *at, const lq_weight *w, lq_err *err) {
    if (!lq_grow((void **)&p->took, p->takes, &p->cap, sizeof *p->took))
        return lq_fail(err, LQ_E_MEMORY, "no memory for a list");
    p->took[p->takes++] = (taken){at, *at};
    *at = *w;
    return true;
}

bool lq_probe_put(lq_probe *p, int layer, lq_role role, int at, const lq_weight *w, lq_err *err) {
    lq_bound *b = &p->m->layer[layer][role];
    return (!b->stack || put(p, &b->stack[at], w, err)) && (at > 0 || put(p, &b->w, w, err));
}

void lq_probe_restore(lq_probe *p) {
    while (p->takes) {
        p->takes--;
        *p->took[p->takes].at = p->took[p->takes].was;
    }
}

void lq_probe_skip(lq_probe *p, int layer, bool skip) {
    skipped *was = &p->skip[layer];
    int *parts = &p->m->desc.layer[layer].parts;
    float *scale = p->m->scale ? &p->m->scale[layer] : NULL;
    if (was->is == skip) return;
    if (skip) *was = (skipped){*parts, scale ? *scale : 1, true};
    was->is = skip;
    *parts = skip ? 0 : was->parts;
    if (scale) *scale = skip ? 1 : was->scale;
}

bool lq_probe_kld(lq_probe *p, double *out, lq_err *err) {
    if (!run(p, false, err)) return false;
    *out = p->kld / (double)rows_of(p->text);
    return true;
}
