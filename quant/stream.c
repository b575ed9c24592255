// stream.c: calibration text on its way through a model. Owns the models (which share a device), what they keep between
// layers, and the buffers of a chunk of rows. The only file of quant/ that runs a model.
//
// A layer is gone through once in each course: what a chunk of rows has come to at the input that is looked at is kept,
// and goes on from there when the next one is. A weight that is exchanged for another before that place lets the course
// begin anew; one that comes once more, as the file has it, does not.
//
// Samples are sequences of their own and are never cut, so that a chunk of some of them needs no cache but that of the
// layer at hand, which all layers may share but those whose K and V others read. On a CPU activations, residual and
// cache are f32; products of matrices may be rough (lq_model_opts), which is far below what rounding loses.
//
// On a device of its own memory (lq_stream_opts.on) they are what the device has in its mode. What is kept of the rows
// stays there where an eighth of what is left has room for it, else it lies with the host and is brought by chunks.
#include "formats/parts.h"
#include "quant/stream.h"
#include "runtime/model/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ROWS = 128, FAR_ROWS = 2048, PAGE = 32 }; // of a chunk, at least one sample; FAR: not on a CPU

// Large memory for all rows of a course.
typedef struct store { char *p; bool far; } store; // far: on a device that is not the host

// What a weight of the layer at hand was exchanged for.
typedef struct came { lq_role role; int at; lq_wtype type; XXH128_hash_t hash; } came;

struct lq_stream {
    const lq_calib *text;
    lq_model *m[LQ_COURSES];
    lq_dev *on;                 // the models'
    lq_dev *dev;                // what others are told the device is; NULL: it is the models'
    lq_buffers *b[LQ_COURSES];  // for the weights as they are bound
    lq_kvpool kv[LQ_COURSES];
    store *lent[LQ_COURSES];    // [layers] K and V of all samples, of layers whose cache others read; NULL: a chunk's
    store h[LQ_COURSES];        // [samples * len][dim] between layers, of the device's type
    store kept[LQ_COURSES];     // [chunks][each] bytes of each chunk at input
    void *chunk[LQ_COURSES];    // on the device: rows of h that lie with the host
    int at[LQ_COURSES];         // of the layer at hand; 0: where it begins
    size_t each[LQ_COURSES];
    lq_rooms *rooms;
    int layer[LQ_COURSES];      // at hand
    const int *of;              // lq_stream_opts'
    int courses, per;           // per: samples of a chunk
    int stride;                 // blocks of a sample
    int32_t *seq, *pos, *first, *slot, *table; // of a chunk
    void *was;                  // what an input is given as the model was, on the device
    size_t was_cap;
    void **own;                 // [owned] made for weights: first `tops` for those of no layer, then of that at hand
    size_t owned, tops;
    came *came;                 // [cames]
    size_t cames;
    lq_mat was_mat;
    lq_tick *tick;
    void *tick_arg;
    // of the run at hand
    int input, sent;            // sent: as in lq_run
    bool apart;                 // seen when it is known which rows are whose
    lq_looker *look;
    void *arg;
    lq_err *err;
    bool failed;
};

static int chunk_samples(const lq_calib *t, int rows) {
    const int per = rows / t->len > 1 ? rows / t->len : 1;
    return (size_t)per < t->samples ? per : (int)t->samples;
}

static size_t chunks_of(const lq_calib *t, int per) { return (t->samples + (size_t)per - 1) / (size_t)per; }

// What is kept of a chunk in the middle of any layer.
static size_t kept_most(const lq_desc *d, const lq_calib *t, int per) {
    size_t most = 0;
    for (int l = 0; l < d->layers; l++) {
        const size_t n = lq_forward_kept(d, l, per * t->len);
        most = n > most ? n : most;
    }
    return most;
}

// Whether other layers read what this one has in its cache.
static bool lends(const lq_desc *d, int layer) {
    for (int l = 0; l < d->layers; l++)
        if (l != layer && lq_layer_attn(&d->layer[l]) && d->layer[l].kv_from == layer) return true;
    return false;
}

static int blocks_of(const lq_calib *t) { return (t->len + PAGE - 1) / PAGE; }

// K and V of all samples that are kept, as they are read long after their layer.
static size_t lent_bytes(const lq_desc *d, const lq_calib *t) {
    size_t all = 0;
    for (int l = 0; l < d->layers; l++) {
        const lq_part *p = lq_layer_attn(&d->layer[l]);
        if (!p || !lends(d, l)) continue;
        all += t->samples * (size_t)blocks_of(t) * PAGE * (size_t)p->kv_heads * (size_t)(p->head_dim + p->v_dim) *
               sizeof(float);
    }
    return all;
}

lq_stream_size lq_stream_cost(const lq_desc *d, const lq_calib *t, bool paired, int64_t widest) {
    const int per = chunk_samples(t, ROWS);
    const size_t rows = (size_t)per * (size_t)t->len, courses = paired ? 2 : 1;
    const size_t between = t->samples * (size_t)t->len * (size_t)d->dim * sizeof(float);
    const size_t kept = between + chunks_of(t, per) * kept_most(d, t, per) + lent_bytes(d, t);
    const size_t seen = rows * (size_t)widest * sizeof(float); // as it was; and an expert's rows of both courses
    size_t wide = 0;
    bool experts = false;
    for (int l = 0; l < d->layers; l++)
        for (int i = 0; i < d->layer[l].parts; i++) {
            const lq_part *p = &d->layer[l].part[i];
            const size_t mix = (size_t)p->heads * (size_t)(2 * p->head_dim + 2 * p->v_dim);
            const size_t used = p->experts_used ? (size_t)p->experts_used : 1;
            const size_t ffn = used * (2 * (size_t)p->ffn + (size_t)(p->experts_used ? d->dim : 0));
            experts |= p->experts_used > 0;
            wide = mix > wide ? mix : wide;
            wide = ffn > wide ? ffn : wide;
        }
    const size_t chunk = courses * (rows * (6 * (size_t)d->dim + 2 * wide) + (size_t)d->vocab) * sizeof(float);
    // Once more what is seen: rough products' copy of it.
    return (lq_stream_size){.chunk = chunk + (experts ? 4 : 2) * seen, .kept = kept * courses};
}

// --- memory ---

// must: it has to be there, whatever is left.
static bool store_open(const lq_stream *s, size_t bytes, bool must, store *out, lq_err *err) {
    const lq_dev *d = s->on;
    void *p = NULL;
    *out = (store){.far = !d->host && (must || bytes <= d->ops.room(s->on) / 8)};
    if (out->far && !d->ops.alloc(s->on, bytes, &p, err)) return false;
    out->p = out->far ? p : lq_room_open(s->rooms, bytes, err);
    return out->p != NULL;
}

static void store_close(const lq_stream *s, store *t) {
    if (t->p && t->far) s->on->ops.free(s->on, t->p);
    else lq_room_close(s->rooms, t->p);
    *t = (store){0};
}

// --- opening ---

// A layer's own cache of a chunk, which it does not need.
static void cache_drop(const lq_stream *s, int c, int layer) {
    s->on->ops.free(s->on, s->kv[c].data[layer]);
    s->kv[c].data[layer] = NULL;
}

// Layers of one shape share a cache of a chunk; those that lend theirs have one of all samples.
static bool caches_share(lq_stream *s, int c, lq_err *err) {
    const lq_desc *d = &s->m[c]->desc;
    lq_cache *of = s->kv[c].layer;
    s->lent[c] = calloc((size_t)d->layers, sizeof *s->lent[c]);
    if (!s->lent[c]) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", d->layers);
    for (int l = 0; l < d->layers; l++) {
        const size_t blocks = s->text->samples * (size_t)s->stride;
        if (!of[l].data || d->layer[l].kv_from != l) continue;
        if (lends(d, l)) {
            if (!store_open(s, blocks * of[l].block_stride, true, &s->lent[c][l], err)) return false;
            cache_drop(s, c, l);
            continue;
        }
        int first = 0;
        while (s->lent[c][first].p || !of[first].data || of[first].block_stride != of[l].block_stride) first++;
        if (first < l) cache_drop(s, c, l);
        of[l].data = of[first].data;
    }
    return true;
}

// The cache of the layer at hand, where a chunk from this sample on has it.
static void cache_turn(lq_stream *s, int c, size_t sample) {
    lq_cache *own = &s->kv[c].layer[s->layer[c]];
    const lq_layer *l = &s->m[c]->desc.layer[s->layer[c]];
    char *lent = lq_layer_attn(l) ? s->lent[c][l->kv_from].p : NULL;
    if (lent) own->data = lent + sample * (size_t)s->stride * own->block_stride;
}

static bool model_open(lq_stream *s, const lq_stream_opts *o, lq_course c, lq_err *err) {
    const bool exact = !o->on || o->on->numerics == LQ_NUM_EXACT;
    lq_model_opts opts = {.threads = o->threads, .exact = exact, .rough = true, .ctx = s->text->len,
                          .beside = c ? s->m[0] : NULL};
    if (!lq_model_open_lean(c && o->was ? o->was : o->in, &opts, o->on, &s->m[c], err)) return false;
    s->on = s->m[0]->dev;
    if (c == LQ_AS_MADE) s->m[c]->desc.tied = o->desc->tied;
    int blocks[LQ_KV_GROUPS];
    for (int g = 0; g < LQ_KV_GROUPS; g++) blocks[g] = s->per * s->stride;
    if (!lq_kvpool_open(s->m[c], PAGE, blocks, &s->kv[c], err)) return false;
    return caches_share(s, c, err);
}

static bool chunk_open(lq_stream *s, lq_err *err) {
    const size_t rows = (size_t)s->per * (size_t)s->text->len, per = (size_t)s->per, stride = (size_t)s->stride;
    s->seq = malloc(rows * sizeof *s->seq);
    s->pos = malloc(rows * sizeof *s->pos);
    s->first = malloc((per + 1) * sizeof *s->first);
    s->slot = malloc(per * sizeof *s->slot);
    s->table = malloc(per * stride * sizeof *s->table);
    if (!s->seq || !s->pos || !s->first || !s->slot || !s->table)
        return lq_fail(err, LQ_E_MEMORY, "no memory for a chunk of calibration");
    for (size_t r = 0; r < rows; r++) {
        s->seq[r] = (int32_t)(r / (size_t)s->text->len);
        s->pos[r] = (int32_t)(r % (size_t)s->text->len);
    }
    for (int i = 0; i <= s->per; i++) s->first[i] = i * s->text->len;
    for (int i = 0; i < s->per; i++) s->slot[i] = i;
    for (int i = 0; i < s->per * s->stride; i++) s->table[i] = i;
    return true;
}

bool lq_stream_open(const lq_stream_opts *o, lq_stream **out, lq_err *err) {
    lq_stream *s = *out = calloc(1, sizeof *s);
    if (!s) return lq_fail(err, LQ_E_MEMORY, "no memory for calibration");
    s->text = o->text;
    s->tick = o->tick, s->tick_arg = o->arg;
    s->courses = o->paired ? 2 : 1;
    s->per = chunk_samples(o->text, !o->on || o->on->host ? ROWS : FAR_ROWS);
    s->stride = blocks_of(o->text);
    s->rooms = o->rooms;
    s->of = o->of;
    const size_t rows = o->text->samples * (size_t)o->text->len, left = s->rooms->left;
    if (o->spill) s->rooms->left = 0;
    bool done = chunk_open(s, err);
    for (int c = 0; done && c < s->courses; c++) {
        done = model_open(s, o, (lq_course)c, err);
        if (!done) break;
        const lq_desc *d = &s->m[c]->desc;
        s->each[c] = kept_most(d, o->text, s->per);
        done = store_open(s, rows * (size_t)d->dim * lq_dtype_size(s->on->act), false, &s->h[c], err) &&
               store_open(s, chunks_of(o->text, s->per) * s->each[c], false, &s->kept[c], err);
    }
    if (o->spill) s->rooms->left = left;
    if (done) return true;
    lq_stream_close(s);
    *out = NULL;
    return false;
}

static void own_free(lq_stream *s, size_t from) {
    while (s->owned > from) free(s->own[--s->owned]);
}

void lq_stream_close(lq_stream *s) {
    if (!s) return;
    for (int c = s->courses; c-- > 0;) {
        store_close(s, &s->h[c]);
        store_close(s, &s->kept[c]);
        if (s->chunk[c]) s->on->ops.free(s->on, s->chunk[c]);
        if (c == 0 && s->was) s->on->ops.free(s->on, s->was);
        if (!s->m[c]) continue;
        if (s->b[c]) lq_buffers_close(s->m[c], s->b[c]);
        for (int l = 0; s->lent[c] && l < s->m[c]->desc.layers; l++) store_close(s, &s->lent[c][l]);
        free(s->lent[c]);
        lq_kvpool_close(s->m[c], &s->kv[c]);
        lq_model_close(s->m[c]);
    }
    free(s->seq);
    free(s->pos);
    free(s->first);
    free(s->slot);
    free(s->table);
    own_free(s, 0);
    free(s->own);
    free(s->came);
    free(s);
}

lq_dev *lq_stream_dev(const lq_stream *s) { return s->dev ? s->dev : s->on; }
lq_dev *lq_stream_on(const lq_stream *s) { return s->on; }
void lq_stream_lend(lq_stream *s, lq_dev *dev) { s->dev = dev; }

lq_rooms *lq_stream_rooms(const lq_stream *s) { return s->rooms; }

// --- a chunk ---

// What is kept of a chunk is not looked at until all others had their turn.
static void chunk_rests(const lq_stream *s, int c, size_t sample, int samples) {
    const size_t row = (size_t)s->text->len * (size_t)s->m[c]->desc.dim * lq_dtype_size(s->on->act);
    if (!s->h[c].far) lq_room_rest(s->h[c].p, sample * row, (size_t)samples * row);
    if (!s->kept[c].far) lq_room_rest(s->kept[c].p, sample / (size_t)s->per * s->each[c], s->each[c]);
}

// Buffers are measured by the weights that are bound: those of the layer at hand.
static bool buffers_ready(lq_stream *s, int c, lq_err *err) {
    const lq_buffer_sizes sizes = {.rows = s->per * s->text->len, .outs = 1, .max_len = s->stride * PAGE,
                                   .slots = s->per, .table_stride = s->stride};
    return s->b[c] || lq_buffers_open(s->m[c], &sizes, &s->b[c], err);
}

static void buffers_stale(lq_stream *s, int c) {
    if (s->b[c]) lq_buffers_close(s->m[c], s->b[c]);
    s->b[c] = NULL;
}

// Where the rows of some samples are kept.
static lq_mat rows_of(const lq_stream *s, int c, size_t sample, int samples) {
    const int dim = s->m[c]->desc.dim;
    const lq_dtype act = s->on->act;
    return (lq_mat){.p = s->h[c].p + sample * (size_t)s->text->len * (size_t)dim * lq_dtype_size(act), .type = act,
                    .rows = samples * s->text->len, .cols = dim, .stride = (size_t)dim};
}

static size_t bytes_of(const lq_mat *m) { return (size_t)m->rows * (size_t)m->cols * lq_dtype_size(m->type); }

static bool rows_here(const lq_stream *s, int c, size_t sample, int samples, lq_here *out, lq_err *err) {
    const lq_mat m = rows_of(s, c, sample, samples);
    return lq_here_open(s->h[c].far || s->on->host ? s->on : NULL, &m, out, err);
}

bool lq_stream_rows(const lq_stream *s, size_t sample, lq_here *out, lq_err *err) {
    return rows_here(s, LQ_AS_MADE, sample, 1, out, err);
}

// The same where the device reads them.
static bool rows_near(lq_stream *s, int c, size_t sample, int samples, lq_mat *out, lq_err *err) {
    const size_t most = (size_t)s->per * (size_t)s->text->len * (size_t)s->m[c]->desc.dim * lq_dtype_size(s->on->act);
    *out = rows_of(s, c, sample, samples);
    if (s->on->host || s->h[c].far) return true;
    if (!s->chunk[c] && !s->on->ops.alloc(s->on, most, &s->chunk[c], err)) return false;
    s->on->ops.put(s->on, s->chunk[c], out->p, bytes_of(out));
    out->p = s->chunk[c];
    return true;
}

// What the device has of some rows goes to where they are kept.
static bool rows_keep(const lq_stream *s, int c, size_t sample, const lq_mat *h, lq_err *err) {
    const lq_mat to = rows_of(s, c, sample, h->rows / s->text->len);
    (s->on->host || s->h[c].far ? s->on->ops.copy : s->on->ops.get)(s->on, to.p, h->p, bytes_of(&to));
    return s->on->ops.sync(s->on, err);
}

// Brings the rows of some samples to a layer: from their ids, or from where they are kept.
static void chunk_begin(lq_stream *s, int c, size_t sample, int samples, const lq_mat *kept, lq_run *run) {
    const int rows = samples * s->text->len;
    lq_batch batch = {.ids = s->text->ids + sample * (size_t)s->text->len, .max_at = s->text->len - 1,
                      .rows = {.n = rows, .seqs = samples, .seq = s->seq, .pos = s->pos, .at = s->pos,
                               .first = s->first, .slot = s->slot, .table_stride = s->stride},
                      .changed = s->slot, .changes = s->per};
    for (int g = 0; g < LQ_KV_GROUPS; g++) batch.tables[g] = s->table;
    cache_turn(s, c, sample);
    lq_forward_begin(run, s->m[c], s->b[c], &s->kv[c], &batch, kept);
}

// Brings them to where their course stands in the layer at hand, and on. Rows that are not sent as the router says
// begin, and are not kept.
static bool chunk_go_on(lq_stream *s, int c, size_t sample, int samples, lq_observer *see, lq_run *run, lq_err *err) {
    lq_mat h;
    if (!rows_near(s, c, sample, samples, &h, err)) return false;
    chunk_begin(s, c, sample, samples, &h, run);
    run->see = see, run->arg = s;
    run->from = s->at[c];
    run->sent = s->sent;
    run->left = s->at[c] && !s->sent ? s->kept[c].p + sample / (size_t)s->per * s->each[c] : NULL;
    run->there = s->kept[c].far;
    lq_forward_layer(run, s->layer[c]);
    return true;
}

static int samples_at(const lq_stream *s, size_t sample) {
    const size_t left = s->text->samples - sample;
    return left < (size_t)s->per ? (int)left : s->per;
}

static bool told(const lq_stream *s, lq_err *err) {
    return s->tick(s->tick_arg, 0, 0) || lq_fail(err, LQ_E_CANCELLED, "stopped");
}

// Asks on the way through a layer, at each of its inputs.
static bool only_ask(void *arg, const lq_seen *seen) {
    lq_stream *s = arg;
    (void)seen;
    s->failed = s->failed || !told(s, s->err);
    return !s->failed;
}

// --- the way ---

bool lq_stream_begin(lq_stream *s, lq_err *err) {
    for (int c = 0; c < s->courses; c++) {
        if (!buffers_ready(s, c, err)) return false;
        for (size_t at = 0; at < s->text->samples; at += (size_t)s->per) {
            lq_run run;
            const int n = samples_at(s, at);
            if (!told(s, err)) return false;
            chunk_begin(s, c, at, n, NULL, &run);
            const lq_mat h = lq_forward_settle(&run);
            if (!rows_keep(s, c, at, &h, err)) return false;
            chunk_rests(s, c, at, n);
        }
        buffers_stale(s, c);
    }
    return true;
}

// Some samples go through the layer at hand.
static bool go_through(lq_stream *s, int c, size_t sample, int samples, lq_err *err) {
    lq_run run;
    if (!told(s, err) || !buffers_ready(s, c, err)) return false;
    if (!chunk_go_on(s, c, sample, samples, only_ask, &run, err) || s->failed) return false;
    const lq_mat h = lq_forward_settle(&run);
    return rows_keep(s, c, sample, &h, err);
}

static void let_go(lq_stream *s, int c) {
    buffers_stale(s, c);
    lq_unbind_layer(s->m[c], s->layer[c]);
}

static bool bind(lq_stream *s, int c, int layer, lq_err *err) {
    s->layer[c] = layer;
    s->at[c] = 0;
    return lq_bind_layer(s->m[c], layer, err);
}

bool lq_stream_enter(lq_stream *s, int layer, lq_err *err) {
    s->err = err, s->failed = false;
    for (int c = 0; c < s->courses; c++) {
        const int *of = c ? s->of : NULL, to = of ? of[layer] : layer;
        for (int l = !of ? to : layer ? of[layer - 1] + 1 : 0; l < to; l++) { // which the model as it becomes has not
            if (!bind(s, c, l, err)) return false;
            for (size_t at = 0; at < s->text->samples; at += (size_t)s->per) {
                if (!go_through(s, c, at, samples_at(s, at), err)) return false;
                chunk_rests(s, c, at, samples_at(s, at));
            }
            let_go(s, c);
        }
        if (!bind(s, c, to, err)) return false;
    }
    return true;
}

// All that a product with this weight depends on, but its type.
static XXH128_hash_t hash_of(const lq_weight *w) {
    struct { int64_t n, k, layout, outliers; XXH128_hash_t part[LQ_PARTS]; } all;
    const bool plain = w->type.kind == LQ_W_PLAIN;
    lq_part_form form = {.bytes = (size_t)(w->n * w->k) * lq_dtype_size(w->type.elem)};
    memset(&all, 0, sizeof all);
    all.n = w->n, all.k = w->k, all.layout = w->layout, all.outliers = w->outliers;
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        const void *p = lq_part_get(i, w);
        if (p && (plain ? i == LQ_PART_Q : lq_part_of(i, w, 0, &form))) all.part[i] = XXH3_128bits(p, form.bytes);
    }
    return XXH3_128bits(&all, sizeof all);
}

// Whether the weight is what stood there before, which is now known to be `w`. before: where it lies, for the first
// time; NULL: not with the host.
static bool came_again(lq_stream *s, lq_role role, int at, const lq_weight *w, const lq_weight *before) {
    const came now = {role, at, w->type, hash_of(w)};
    for (came *c = s->came; c < s->came + s->cames; c++)
        if (c->role == role && c->at == at) {
            const bool same = lq_wtype_equal(&c->type, &w->type) && XXH128_isEqual(c->hash, now.hash);
            *c = now;
            return same;
        }
    came *more = realloc(s->came, (s->cames + 1) * sizeof *more);
    if (!more) return false;
    s->came = more;
    s->came[s->cames++] = now;
    return before && lq_wtype_equal(&before->type, &w->type) && XXH128_isEqual(hash_of(before), now.hash);
}

// A weight that reads this input, or (0) one of which that is not known, is another now.
static void changed(lq_stream *s, int input) {
    if (input < s->at[LQ_AS_MADE]) s->at[LQ_AS_MADE] = 0;
}

// Memory for what a weight needs beside it, until the layer is left.
static void *own_room(lq_stream *s, size_t bytes, lq_err *err) {
    void **more = realloc(s->own, (s->owned + 1) * sizeof *more);
    if (more) s->own = more;
    void *p = more ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
    if (p) s->own[s->owned++] = p;
    else lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes of a weight", bytes);
    return p;
}

// The sums of codes that activations with a zero point need.
static bool sum_codes(lq_stream *s, lq_weight *w, lq_err *err) {
    int32_t *sum = own_room(s, (size_t)w->n * sizeof *sum, err);
    if (!sum) return false;
    lq_code_sums(w, sum);
    w->code_sum = sum;
    return true;
}

// A weight that a file has in the layout of another device, in layout any.
static bool unlay(lq_stream *s, lq_weight *w, lq_err *err) {
    lq_dev *d = s->on;
    lq_weight_size size;
    if (w->layout == LQ_ANY || d->ops.can(d, &w->type, w->layout, NULL)) return true;
    if (!lq_weight_sizes(&w->type, w->n, w->k, &size)) return lq_fail(err, LQ_E_LIMIT, "a weight is too large");
    const size_t scale = (size.q + 63) / 64 * 64, zero = scale + (size.scale + 63) / 64 * 64;
    uint8_t *at = own_room(s, zero + size.zero, err);
    if (!at) return false;
    lq_pack(w, LQ_ANY, (lq_weight_out){at, at + scale, at + zero}, d->pool);
    w->layout = LQ_ANY, w->q = at, w->scale = at + scale, w->zero = w->zero ? at + zero : NULL;
    return true;
}

// Where the models run elsewhere: a weight that the host has, for them.
static bool put_far(lq_stream *s, lq_bound *b, const lq_weight *w, lq_weight *to, lq_err *err) {
    lq_weight own = *w;
    if (own.type.dq) own.scale_code = NULL, own.scale2 = own.scale_map = own.scale_offset = NULL;
    if (!lq_bind_weight(s->m[LQ_AS_MADE], b, &own, err)) return false;
    *to = own;
    return true;
}

bool lq_stream_put_top(lq_stream *s, lq_role role, const lq_weight *w, lq_err *err) {
    lq_weight own = *w;
    lq_bound *b = &s->m[LQ_AS_MADE]->top[role];
    if (!s->on->host) return put_far(s, b, w, &b->w, err);
    const bool looked_up = role == LQ_R_EMBED || role == LQ_R_POSITION || role == LQ_R_TOKENS; // in any layout
    if (!looked_up && !unlay(s, &own, err)) return false;
    s->tops = s->owned;
    b->w = own;
    return true;
}

bool lq_stream_put(lq_stream *s, lq_role role, int at, const lq_weight *w, lq_err *err) {
    lq_bound *b = &s->m[LQ_AS_MADE]->layer[s->layer[LQ_AS_MADE]][role];
    lq_weight own = *w;
    const bool here = s->on->host;
    if (here && (!unlay(s, &own, err) || (w->type.act.asym && !sum_codes(s, &own, err)))) return false;
    const lq_weight *before = !here ? NULL : b->stack ? &b->stack[at] : &b->w;
    if (!came_again(s, role, at, &own, before)) changed(s, b->input);
    if (!here && !put_far(s, b, w, &own, err)) return false;
    if (b->stack) b->stack[at] = own;
    if (at == 0) b->w = own;
    buffers_stale(s, LQ_AS_MADE);
    return true;
}

void lq_stream_put_vector(lq_stream *s, const lq_slot *slot, const float *v) {
    lq_model *m = s->m[LQ_AS_MADE];
    lq_bound *b = &m->layer[s->layer[LQ_AS_MADE]][slot->role];
    const size_t n = (size_t)(slot->count ? slot->count : 1) * (size_t)(slot->k ? slot->n * slot->k : slot->n);
    float *there = (slot->bias ? b->bias : b->v) + slot->at, *before = malloc(n * sizeof *v);
    lq_err err;
    if (before) m->dev->ops.get(m->dev, before, there, n * sizeof *v);
    const bool same = before && m->dev->ops.sync(m->dev, &err) && !memcmp(before, v, n * sizeof *v);
    free(before);
    if (same) return;
    m->dev->ops.put(m->dev, there, v, n * sizeof *v);
    changed(s, 0);
    buffers_stale(s, LQ_AS_MADE);
}

// A router reads what its experts read, before it has said whose rows are whose.
static bool wanted(const lq_stream *s, const lq_seen *seen) {
    return seen->input == s->input && (!s->apart || seen->order || seen->top_k);
}

// What the wanted input is given as the model was, kept until the other course comes to it.
static bool catch_was(void *arg, const lq_seen *seen) {
    lq_stream *s = arg;
    if (!wanted(s, seen)) return only_ask(s, seen);
    const size_t row = (size_t)seen->x.cols * lq_dtype_size(seen->x.type), need = (size_t)seen->x.rows * row;
    lq_dev *d = s->on;
    if (need > s->was_cap) {
        if (s->was) d->ops.free(d, s->was);
        s->was = NULL, s->was_cap = 0;
        s->failed = !d->ops.alloc(d, need, &s->was, s->err);
        if (s->failed) return false;
        s->was_cap = need;
    }
    s->was_mat = seen->x;
    s->was_mat.p = s->was;
    s->was_mat.stride = (size_t)seen->x.cols;
    if (seen->x.stride == s->was_mat.stride) d->ops.copy(d, s->was, seen->x.p, need);
    else for (size_t r = 0; r < (size_t)seen->x.rows; r++)
        d->ops.copy(d, (char *)s->was + r * row,
                    (char *)seen->x.p + r * seen->x.stride * lq_dtype_size(seen->x.type), row);
    return false;
}

static bool show(void *arg, const lq_seen *seen) {
    lq_stream *s = arg;
    if (!wanted(s, seen)) return only_ask(s, seen);
    const lq_sight sight = {.x = seen->x, .was = s->courses > 1 && s->was_mat.rows == seen->x.rows ? &s->was_mat : NULL,
                            .order = seen->order, .start = seen->start, .top_k = seen->top_k, .k = seen->k,
                            .v = seen->v};
    s->failed = !s->look(s->arg, &sight, s->err);
    return false;
}

// In the courses first .. end; what the wanted input is given in the first one is shown.
static bool see(lq_stream *s, int input, int first, int end, lq_looker *look, void *arg, lq_err *err) {
    s->input = input, s->look = look, s->arg = arg, s->err = err, s->failed = false;
    s->was_mat.rows = 0;
    for (int c = first; c < end && !s->sent; c++)
        if (input < s->at[c]) s->at[c] = 0;
    for (size_t at = 0; at < s->text->samples && !s->failed; at += (size_t)s->per)
        for (int c = end; c-- > first && !s->failed;) {
            lq_run run;
            if (!told(s, err) || !buffers_ready(s, c, err)) return false;
            if (!chunk_go_on(s, c, at, samples_at(s, at), c > first ? catch_was : show, &run, err)) return false;
            if (run.stopped && !s->failed && !s->sent && s->at[c] < input)
                lq_forward_keep(&run, s->kept[c].p + at / (size_t)s->per * s->each[c], s->kept[c].far);
            if (!s->on->ops.sync(s->on, err)) return false;
            chunk_rests(s, c, at, samples_at(s, at));
        }
    for (int c = first; c < end && !s->sent; c++) s->at[c] = input;
    return !s->failed;
}

bool lq_stream_see(lq_stream *s, int input, bool paired, lq_looker *look, void *arg, lq_err *err) {
    return see(s, input, LQ_AS_MADE, paired ? s->courses : 1, look, arg, err);
}

bool lq_stream_see_was(lq_stream *s, int input, lq_looker *look, void *arg, lq_err *err) {
    s->apart = true;
    const bool done = see(s, input, LQ_AS_WAS, LQ_COURSES, look, arg, err);
    s->apart = false;
    return done;
}

void lq_stream_anew(lq_stream *s) {
    for (int c = 0; c < s->courses; c++) s->at[c] = 0;
}

bool lq_stream_see_apart(lq_stream *s, int input, int sent, bool paired, lq_looker *look, void *arg, lq_err *err) {
    s->sent = sent, s->apart = true;
    const bool done = lq_stream_see(s, input, paired, look, arg, err);
    s->sent = 0, s->apart = false;
    return done;
}

// Adds the sums of squares of how far rows of the two courses are apart, and of the second.
static bool add_apart(const lq_stream *s, size_t sample, int samples, double *error, double *norm, lq_err *err) {
    lq_here row[LQ_COURSES] = {{0}};
    bool done = true;
    for (int c = 0; done && c < LQ_COURSES; c++) done = rows_here(s, c, sample, samples, &row[c], err);
    const size_t cells = (size_t)samples * (size_t)s->text->len * (size_t)s->m[0]->desc.dim;
    for (size_t i = 0; done && i < cells; i++) {
        const double y = (double)row[1].x[i], e = (double)row[0].x[i] - y;
        *error += e * e;
        *norm += y * y;
    }
    for (int c = 0; c < LQ_COURSES; c++) lq_here_close(&row[c]);
    return done;
}

bool lq_stream_leave(lq_stream *s, double *error, lq_err *err) {
    double sum = 0, norm = 0;
    s->err = err, s->failed = false;
    for (size_t at = 0; at < s->text->samples; at += (size_t)s->per) {
        const int n = samples_at(s, at);
        for (int c = s->courses; c-- > 0;)
            if (!go_through(s, c, at, n, err)) return false;
        const bool pair = s->courses > 1 && s->m[0]->desc.dim == s->m[1]->desc.dim;
        if (error && pair && !add_apart(s, at, n, &sum, &norm, err)) return false;
        for (int c = 0; c < s->courses; c++) chunk_rests(s, c, at, n);
    }
    for (int c = 0; c < s->courses; c++) let_go(s, c);
    own_free(s, s->tops);
    s->cames = 0;
    if (error) *error = norm > 0 ? sqrt(sum / norm) : 0;
    return true;
}
