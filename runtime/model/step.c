// step.c: one step of an engine: its batch is brought to the device, blocks are copied, the model runs over the rows,
// and of those that are wanted tokens are drawn or logits handed out. Owns the recordings of its buffers: on a device
// that is not the host, steps that mostly decode are padded to one of a few sizes and replayed.
#include "runtime/model/part.h"
#include <stdlib.h>
#include <string.h>

// --- the batch where the device reads it ---

size_t lq_stage_room(const lq_buffer_sizes *o) {
    const size_t rows = (size_t)o->rows, seqs = (size_t)(o->slots > o->rows ? o->slots : o->rows);
    return 6 * rows + 3 * seqs + (size_t)o->outs + 2;
}

// `have` numbers and as many of `pad` as are missing from `want`, behind those that stand there; where the device has
// them.
static const int32_t *staged(lq_buffers *b, size_t *used, const void *src, int have, int want, int32_t pad) {
    int32_t *to = b->staged + *used;
    if (!src) return NULL;
    memcpy(to, src, (size_t)have * sizeof *to);
    for (int i = have; i < want; i++) to[i] = pad;
    *used += (size_t)want;
    return b->ints + (to - b->staged);
}

// Tables stay on the device from step to step: only rows that changed are brought.
void lq_stage(lq_run *c, const lq_batch *batch, int rows, int seqs) {
    lq_buffers *b = c->b;
    lq_dev *d = c->m->dev;
    lq_rows *r = &c->batch.rows;
    const lq_rows *from = &batch->rows;
    const size_t stride = (size_t)from->table_stride;
    size_t used = 0;
    c->batch = *batch;
    if (d->host) return;
    const int n = from->n, s = from->seqs;
    r->n = rows, r->seqs = seqs;
    r->tree = (const uint64_t *)(const void *)staged(b, &used, from->tree, 2 * n, 2 * rows, 0); // 8 bytes each
    c->batch.ids = staged(b, &used, batch->ids, n, rows, 0);
    r->seq = staged(b, &used, from->seq, n, rows, 0);
    r->pos = staged(b, &used, from->pos, n, rows, 0);
    r->at = staged(b, &used, from->at, n, rows, 0);
    r->first = staged(b, &used, from->first, s + 1, seqs + 1, from->first[s]);
    r->slot = staged(b, &used, from->slot, s, seqs, 0);
    r->tree_base = staged(b, &used, from->tree ? from->tree_base : NULL, s, seqs, 0);
    d->ops.put(d, b->ints, b->staged, used * sizeof *b->ints);
    for (int g = 0; g < c->m->desc.groups; g++) {
        for (int i = 0; i < batch->changes; i++) {
            const size_t at = (size_t)batch->changed[i] * stride;
            d->ops.put(d, b->tables[g] + at, batch->tables[g] + at, stride * sizeof(int32_t));
        }
        c->batch.tables[g] = b->tables[g];
    }
}

const int32_t *lq_stage_out(lq_run *c, const int32_t *out, int have, int want) {
    lq_buffers *b = c->b;
    size_t used = b->int_cap - (size_t)b->outs;
    if (c->m->dev->host) return out;
    const int32_t *to = staged(b, &used, out, have, want, 0);
    c->m->dev->ops.put(c->m->dev, b->ints + (to - b->ints), b->staged + (to - b->ints), (size_t)want * sizeof *to);
    return to;
}

static void copy_blocks(lq_model *m, const lq_kvpool *kv, const lq_step *s) {
    for (int l = 0; l < m->desc.layers; l++) {
        const lq_layer *layer = &m->desc.layer[l];
        const int g = layer->group, n = s->copies[g];
        if (n && layer->kv_from == l && lq_layer_attn(layer))
            m->dev->ops.kv_copy(m->dev, &(lq_kv_copy_args){.cache = kv->layer[l], .n = n, .src = s->src[g],
                                                           .dst = s->dst[g]});
    }
}

// --- recordings ---

// The size that so many rows are padded to; 0: they are not.
static int padded(const lq_buffers *b, int n) {
    static const int sizes[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (n <= sizes[i]) return sizes[i] < b->h.rows ? sizes[i] : b->h.rows;
    return 0;
}

// What positions up to max_at are recorded as.
static int bound_of(const lq_buffers *b, int max_at) {
    int bound = LQ_SPLIT;
    while (bound <= max_at) bound *= 2;
    return bound < b->max_len ? bound : b->max_len;
}

// Most of its rows want logits, as sequences that decode do. The first step of all is run as it is: it leaves nothing
// to be made ready within a recording.
static int recorded_rows(const lq_model *m, const lq_buffers *b, const lq_step *s) {
    const lq_rows *r = &s->batch.rows;
    const int rows = m->dev->host || !b->warm ? 0 : padded(b, r->n);
    const bool fits = rows && s->batch.outs && padded(b, s->batch.outs) == rows && rows <= b->outs && r->seqs <= rows;
    return fits && r->slot && !r->tree && !s->hiddens ? rows : 0;
}

static void compute(void *arg) {
    lq_run *c = arg;
    lq_forward_start(c, NULL, c->batch.rows.n);
    for (int l = 0; l < c->m->desc.layers; l++) lq_forward_layer(c, l);
    lq_head(c, c->b->ints + (c->b->int_cap - (size_t)c->b->outs), c->batch.rows.n);
}

// A library that makes products finds its way when it first sees a shape, and not within a recording: it is shown them
// by rows that are nobody's, which leave no trace.
static void show_shapes(lq_run *c) {
    const int seqs = c->batch.rows.seqs;
    c->batch.rows.seqs = 0;
    compute(c);
    c->batch.rows.seqs = seqs;
}

// The recording of so many rows at positions up to max_at; the one that was longest unused makes room.
static lq_recording *recording(lq_run *c, int rows, int max_at, lq_err *err) {
    lq_buffers *b = c->b;
    lq_dev *d = c->m->dev;
    lq_recording *r = NULL;
    for (int i = 0; i < b->recordings; i++) {
        lq_recording *one = &b->recorded[i];
        if (one->rows == rows && one->max_at == max_at) return one;
        if (!r || one->used < r->used) r = one;
    }
    if (b->recordings < LQ_RECORDINGS) r = &b->recorded[b->recordings++];
    else d->ops.forget(d, r->graph);
    *r = (lq_recording){.rows = rows, .max_at = max_at};
    if (d->numerics == LQ_NUM_FAST) show_shapes(c);
    if (d->ops.record(d, compute, c, &r->graph, err)) return r;
    *r = b->recorded[--b->recordings];
    return NULL;
}

static bool replay(lq_run *c, const lq_step *s, int rows, lq_err *err) {
    const lq_batch *batch = &s->batch;
    lq_buffers *b = c->b;
    lq_dev *d = c->m->dev;
    lq_stage(c, batch, rows, rows);
    lq_stage_out(c, batch->out, batch->outs, rows);
    c->batch.max_at = bound_of(b, batch->max_at);
    lq_recording *r = recording(c, rows, c->batch.max_at, err);
    if (!r) return false;
    r->used = ++b->replays;
    d->ops.replay(d, r->graph);
    return true;
}

// All rows are padding.
bool lq_step_warm(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_batch *none, int rows, lq_err *err) {
    lq_run c = {.m = m, .b = b, .kv = kv, .ops = &m->dev->ops};
    const int most = rows < b->outs ? rows : b->outs;
    for (int n = 1, size; !m->dev->host && n <= most && (size = padded(b, n)) != 0 && size <= b->outs; n = size + 1)
        for (int at = 0; at < b->max_len; at = c.batch.max_at) {
            lq_stage(&c, none, size, size);
            lq_stage_out(&c, none->out, 0, size);
            c.batch.max_at = bound_of(b, at);
            if (!b->warm) compute(&c);
            b->warm = true;
            if (!recording(&c, size, c.batch.max_at, err)) return false;
        }
    return m->dev->ops.sync(m->dev, err);
}

void lq_recordings_free(const lq_model *m, lq_buffers *b) {
    for (int i = 0; i < b->recordings; i++) m->dev->ops.forget(m->dev, b->recorded[i].graph);
    b->recordings = 0;
}

// --- one step ---

// Of wanted rows from .. from + n - 1.
static bool hand_out(lq_run *c, const lq_step *s, lq_mat logits, int from, lq_err *err) {
    lq_dev *d = c->m->dev;
    const size_t vocab = (size_t)c->m->desc.vocab;
    if (s->draw)
        d->ops.sample(d, &(lq_sample_args){.logits = logits, .draw = s->draw + from, .out = s->drawn + from,
                                           .top_id = s->top_id + (size_t)from * LQ_TOP,
                                           .top_logprob = s->top_logprob + (size_t)from * LQ_TOP});
    if (!s->on_logits) return true;
    const float *host = logits.p;
    if (!d->host) d->ops.get(d, c->b->host, logits.p, (size_t)logits.rows * vocab * sizeof *host), host = c->b->host;
    if (!d->ops.sync(d, err)) return false;
    for (int i = 0; i < logits.rows; i++)
        if (!s->on_logits(s->arg, from + i, host + (size_t)i * vocab))
            return lq_fail(err, LQ_E_CANCELLED, "stopped");
    return true;
}

// The same of what the head reads.
static bool hand_hidden(lq_run *c, const lq_step *s, lq_mat x, int from, lq_err *err) {
    lq_dev *d = c->m->dev;
    const size_t wide = (size_t)x.cols, n = (size_t)x.rows * wide;
    const float *host = x.p;
    if (!d->host) {
        float *raw = c->b->host + (size_t)c->b->outs * wide; // as the device has it
        d->ops.get(d, raw, x.p, n * lq_dtype_size(x.type));
        if (!d->ops.sync(d, err)) return false;
        lq_dtypes[x.type].to_f32(raw, c->b->host, n);
        host = c->b->host;
    }
    for (int i = 0; i < x.rows; i++) s->on_hidden(s->arg, from + i, host + (size_t)i * wide);
    return true;
}

bool lq_step_run(lq_model *m, lq_buffers *b, lq_kvpool *kv, const lq_step *s, lq_err *err) {
    lq_run c = {.m = m, .b = b, .kv = kv, .ops = &m->dev->ops};
    const int rows = recorded_rows(m, b, s);
    copy_blocks(m, kv, s);
    if (rows) {
        lq_mat logits = b->logits;
        logits.rows = s->batch.outs;
        return replay(&c, s, rows, err) && hand_out(&c, s, logits, 0, err) && m->dev->ops.sync(m->dev, err);
    }
    lq_forward_begin(&c, m, b, kv, &s->batch, NULL);
    for (int l = 0; l < m->desc.layers; l++) {
        if (l == lq_trim_layer(&m->desc) && !lq_trim(&c, s)) break;
        lq_forward_layer(&c, l);
    }
    for (int from = 0; from < s->hiddens; from += b->outs) { // as many at a time as there are buffers for
        const int n = s->hiddens - from < b->outs ? s->hiddens - from : b->outs;
        if (!hand_hidden(&c, s, lq_forward_hidden(&c, s->hidden + from, n), from, err)) return false;
    }
    for (int from = 0; from < s->batch.outs; from += b->outs) {
        const int n = s->batch.outs - from < b->outs ? s->batch.outs - from : b->outs;
        if (!hand_out(&c, s, lq_forward_head(&c, s->batch.out + from, n), from, err)) return false;
    }
    b->warm = true;
    return m->dev->ops.sync(m->dev, err);
}
