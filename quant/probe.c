// probe.c: how far a model's probabilities go from its own when some of its matrices are exchanged, or layers left out.
// Owns the model and what a sequence needs to go through it, the logits that it gave first, the residual at a layer
// before which nothing is changed, and what stood where something was put.
//
// What is exchanged in a layer changes no layer before it, so that a run begins there; K and V that a later layer reads
// of an earlier one are made again, which it then begins with. Rows are the same bits wherever they begin.
//
// On a device of its own memory the model lies there; what is kept of it lies with the host, and is compared there.
#include "quant/probe.h"
#include "runtime/model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 32, OUTS = 64 }; // tokens of a block of the cache; rows whose logits are made together

// What stood at a place, and what that had of the device's memory. layer: of -1 .. layers, the first it changes.
typedef struct taken { lq_weight *at, was; lq_bound *of; size_t memories; int layer; } taken;
typedef struct skipped { int parts; float scale; bool is; } skipped;

struct lq_probe {
    const lq_calib *text;
    lq_model *m;
    lq_buffers *b;        // of a sequence
    lq_kvpool kv;
    int32_t *seq, *pos, *table, *out;
    int32_t ends[2];      // of its rows
    int stride;           // blocks of a sequence
    char *h;              // [samples * len][dim] the residual before layer `at`, of the model as it is; at < 0: none
    int at;
    void *near, *here;    // of a device of its own memory: a sample of h there, some rows of logits here
    float *first;         // [rows][vocab], rows = samples * (len - from)
    double *sums;         // [rows] ln of the sums of its exponentials
    double *apart;        // [rows] the divergence of each
    size_t vocab, from;   // position of a sequence whose logits are the first that count
    taken *took;
    size_t takes, cap;
    skipped *skip;        // [layers]
    // of a run
    size_t row;
    bool keeps;
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

typedef struct said { lq_probe *p; const float *logits; } said;

static void on_logits(void *arg, int task, int worker) {
    lq_probe *p = ((said *)arg)->p;
    const size_t row = p->row + (size_t)task;
    const float *logits = ((said *)arg)->logits + (size_t)task * p->vocab;
    float *first = p->first + row * p->vocab;
    (void)worker;
    if (p->keeps) {
        memcpy(first, logits, p->vocab * sizeof *first);
        p->sums[row] = log_sum(logits, p->vocab);
        return;
    }
    const double a = p->sums[row], b = log_sum(logits, p->vocab);
    double sum = 0;
    for (size_t i = 0; i < p->vocab; i++) {
        const double ln = (double)first[i] - a;
        if (ln > -40) sum += (double)expf((float)ln) * (ln - ((double)logits[i] - b));
    }
    p->apart[row] = sum;
}

// --- a sequence ---

static size_t bytes_of(const lq_mat *m) { return (size_t)m->rows * (size_t)m->cols * lq_dtype_size(m->type); }

// Where the residual of a sample is kept.
static lq_mat kept_at(const lq_probe *p, size_t sample) {
    lq_mat h = {.type = p->m->dev->act, .rows = p->text->len, .cols = p->m->desc.dim,
                .stride = (size_t)p->m->desc.dim};
    h.p = p->h + sample * bytes_of(&h);
    return h;
}

// Brings a sample to a layer: from its ids, or from where it is kept.
static void sample_begin(lq_probe *p, size_t sample, bool kept, lq_run *run) {
    static const int32_t slot;
    const int len = p->text->len;
    lq_batch batch = {.ids = p->text->ids + sample * (size_t)len, .max_at = len - 1,
                      .rows = {.n = len, .seqs = 1, .seq = p->seq, .pos = p->pos, .at = p->pos, .first = p->ends,
                               .slot = &slot, .table_stride = p->stride}, .changed = &slot, .changes = 1};
    for (int g = 0; g < LQ_KV_GROUPS; g++) batch.tables[g] = p->table;
    lq_mat h = kept_at(p, sample);
    if (kept && p->near) {
        p->m->dev->ops.put(p->m->dev, p->near, h.p, bytes_of(&h));
        h.p = p->near;
    }
    lq_forward_begin(run, p->m, p->b, &p->kv, &batch, kept ? &h : NULL);
}

// The first layer that does not say what it did, or that later ones read K and V of once that is so; -1: what stands
// before them.
static int first_changed(const lq_probe *p) {
    const lq_desc *d = &p->m->desc;
    int first = d->layers;
    for (size_t i = 0; i < p->takes; i++) first = p->took[i].layer < first ? p->took[i].layer : first;
    for (int l = 0; l < first; l++)
        if (p->skip[l].is) first = l;
    for (int l = d->layers - 1; first >= 0 && l >= first; l--)
        if (lq_layer_attn(&d->layer[l]) && d->layer[l].kv_from < first) first = d->layer[l].kv_from;
    return first;
}

// The kept residual is that before layer `to`, where nothing before it is changed.
static bool advance(lq_probe *p, int to, lq_err *err) {
    lq_dev *dev = p->m->dev;
    const bool kept = p->at >= 0 && p->at <= to;
    if (p->at == to) return true;
    for (size_t i = 0; i < p->text->samples; i++) {
        lq_run run;
        sample_begin(p, i, kept, &run);
        for (int l = kept ? p->at : 0; l < to; l++) lq_forward_layer(&run, l);
        const lq_mat h = lq_forward_settle(&run);
        if (!dev->ops.sync(dev, err)) return false;
        dev->ops.get(dev, kept_at(p, i).p, h.p, bytes_of(&h));
        if (!dev->ops.sync(dev, err)) return false;
    }
    p->at = to;
    return true;
}

static bool run(lq_probe *p, bool keeps, lq_err *err) {
    const int from = keeps ? 0 : first_changed(p), rows = p->text->len - (int)p->from;
    lq_dev *dev = p->m->dev;
    p->row = 0, p->keeps = keeps;
    if (from >= 0 && !advance(p, from, err)) return false;
    for (size_t i = 0; i < p->text->samples; i++) {
        lq_run run;
        sample_begin(p, i, from >= 0, &run);
        for (int l = from < 0 ? 0 : from; l < p->m->desc.layers; l++) lq_forward_layer(&run, l);
        for (int at = 0; at < rows; at += OUTS) {
            const int n = rows - at < OUTS ? rows - at : OUTS;
            lq_mat logits = lq_forward_head(&run, p->out + at, n);
            if (p->here) dev->ops.get(dev, p->here, logits.p, bytes_of(&logits)), logits.p = p->here;
            if (!dev->ops.sync(dev, err)) return false;
            lq_pool_run(dev->pool, on_logits, &(said){p, logits.p}, n);
            p->row += (size_t)n;
        }
    }
    return true;
}

static bool says_numbers(const lq_probe *p, lq_err *err) {
    for (size_t i = 0; i < rows_of(p->text); i++)
        if (!isfinite(p->sums[i]))
            return lq_fail(err, LQ_E_FORMAT, "%s: what it says of the calibration text is no number",
                           lq_ckpt_path(p->m->ckpt));
    return true;
}

// --- the whole ---

static bool tables_open(lq_probe *p, lq_err *err) {
    const lq_calib *t = p->text;
    const size_t len = (size_t)t->len;
    for (size_t i = 0; i < t->samples * len; i++)
        if (t->ids[i] < 0 || t->ids[i] >= p->m->desc.vocab)
            return lq_fail(err, LQ_E_FORMAT, "%s: its tokenizer makes token %d of the calibration text, the vocabulary "
                           "has %d", lq_ckpt_path(p->m->ckpt), t->ids[i], p->m->desc.vocab);
    p->stride = (t->len + PAGE - 1) / PAGE;
    p->seq = calloc(len, sizeof *p->seq);
    p->pos = malloc(len * sizeof *p->pos);
    p->out = malloc(len * sizeof *p->out);
    p->table = malloc((size_t)p->stride * sizeof *p->table);
    p->h = malloc(t->samples * len * (size_t)p->m->desc.dim * lq_dtype_size(p->m->dev->act));
    p->first = malloc(lq_probe_bytes(t, p->m->desc.vocab));
    p->sums = malloc(rows_of(t) * sizeof *p->sums);
    p->apart = malloc(rows_of(t) * sizeof *p->apart);
    if (!p->m->dev->host) p->here = malloc(OUTS * p->vocab * sizeof *p->first);
    p->skip = calloc((size_t)p->m->desc.layers, sizeof *p->skip);
    if (!p->seq || !p->pos || !p->out || !p->table || !p->h || !p->first || !p->sums ||
        !p->apart || !p->skip || (!p->m->dev->host && !p->here))
        return lq_fail(err, LQ_E_MEMORY, "no memory for the logits of %zu tokens", rows_of(t));
    p->ends[1] = t->len;
    for (int i = 0; i < t->len; i++) p->pos[i] = i, p->out[i] = (int32_t)p->from + i;
    for (int i = 0; i < p->stride; i++) p->table[i] = i;
    return true;
}

static bool forward_open(lq_probe *p, lq_err *err) {
    const lq_buffer_sizes sizes = {.rows = p->text->len, .outs = OUTS, .max_len = p->stride * PAGE, .slots = 1,
                                   .table_stride = p->stride};
    int blocks[LQ_KV_GROUPS];
    for (int g = 0; g < LQ_KV_GROUPS; g++) blocks[g] = p->stride;
    const lq_mat sample = kept_at(p, 0);
    if (!p->m->dev->host && !p->m->dev->ops.alloc(p->m->dev, bytes_of(&sample), &p->near, err)) return false;
    return lq_kvpool_open(p->m, PAGE, blocks, &p->kv, err) && lq_buffers_open(p->m, &sizes, &p->b, err);
}

bool lq_probe_open(const char *in, const lq_calib *text, lq_dev *on, int threads, lq_probe **out, lq_err *err) {
    lq_probe *p = *out = calloc(1, sizeof *p);
    if (!p) return lq_fail(err, LQ_E_MEMORY, "no memory for a probe");
    p->text = text;
    p->from = (size_t)text->len / 2;
    p->at = -1;
    const lq_model_opts opts = {.threads = threads, .exact = !on || on->numerics == LQ_NUM_EXACT, .ctx = text->len,
                                 .mapped = true};
    if (on ? lq_model_open_on(in, &opts, on, &p->m, err) : lq_model_open(in, &opts, &p->m, err)) {
        p->vocab = (size_t)p->m->desc.vocab;
        if (tables_open(p, err) && forward_open(p, err) && run(p, true, err) && says_numbers(p, err)) return true;
    }
    lq_probe_close(p);
    *out = NULL;
    return false;
}

void lq_probe_close(lq_probe *p) {
    if (!p) return;
    lq_probe_restore(p);
    for (int l = 0; p->skip && l < p->m->desc.layers; l++) lq_probe_skip(p, l, false);
    if (p->b) lq_buffers_close(p->m, p->b);
    if (p->m) lq_kvpool_close(p->m, &p->kv);
    if (p->near) p->m->dev->ops.free(p->m->dev, p->near);
    if (p->m) lq_model_close(p->m);
    free(p->seq);
    free(p->pos);
    free(p->out);
    free(p->table);
    free(p->h);
    free(p->first);
    free(p->sums);
    free(p->apart);
    free(p->here);
    free(p->took);
    free(p->skip);
    free(p);
}

lq_dev *lq_probe_dev(const lq_probe *p) { return p->m->dev; }

static bool put(lq_probe *p, int layer, lq_bound *of, size_t memories, lq_weight *at, const lq_weight *w, lq_err *err) {
    if (!lq_grow((void **)&p->took, p->takes, &p->cap, sizeof *p->took))
        return lq_fail(err, LQ_E_MEMORY, "no memory for a list");
    p->took[p->takes++] = (taken){at, *at, of, memories, layer};
    *at = *w;
    return true;
}

bool lq_probe_put(lq_probe *p, int layer, lq_role role, int at, const lq_weight *w, lq_err *err) {
    const bool behind = role == LQ_R_PROJECT_OUT || role == LQ_R_HEAD;
    lq_bound *b = layer < 0 ? &p->m->top[role] : &p->m->layer[layer][role];
    const size_t had = b->memories;
    lq_weight own = *w;
    if (behind) layer = p->m->desc.layers;
    if (!p->m->dev->host && !lq_bind_weight(p->m, b, &own, err)) {
        lq_unbind_from(p->m, b, had);
        return false;
    }
    return (!b->stack || put(p, layer, b, had, &b->stack[at], &own, err)) &&
           (at > 0 || put(p, layer, b, had, &b->w, &own, err));
}

void lq_probe_restore(lq_probe *p) {
    while (p->takes) {
        const taken *t = &p->took[--p->takes];
        *t->at = t->was;
        lq_unbind_from(p->m, t->of, t->memories);
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
    *out = 0;
    for (size_t i = 0; i < rows_of(p->text); i++) *out += p->apart[i];
    *out /= (double)rows_of(p->text);
    return true;
}
