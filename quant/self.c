// self.c: calibration text that the model writes itself, for whoever has none of its kind: sequences of tokens, each
// drawn as the model's own probabilities say. Owns the model and the engine while they are written. A sequence that is
// written is kept beside the output (measured.c), so that no run writes it again.
//
// A sequence is one text after another, as models were trained on: each begins as the tokenizer begins a text, else
// with the token that ends one, else with any token, and ends where the model ends it or the sequence is full. What is
// drawn depends on the seed, the sequence and the text's number in it alone: not on how many are written side by side.
//
// Refused: a model of which no sequence fits the memory that may be used.
#include "formats/words.h"
#include "quant/prune.h"
#include "runtime/model/model.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { TOGETHER = 64, PAGE = 32, OUTS = 64, TRIES = 1000 };
static const size_t cache_most = (size_t)1 << 30; // what all sequences' K and V may take together

typedef struct writing writing;
typedef struct sequence {
    writing *of;
    int32_t *ids;       // [len] of the text
    size_t at;          // which it is
    int n, texts;       // tokens, texts that were begun
} sequence;

struct writing {
    const lq_quant_opts *o;
    lq_calib *c;
    lq_measured *kept;
    lq_dev *on;         // where the model runs; NULL: on a CPU
    lq_model *m;
    lq_engine *e;
    int32_t begin;      // what a text begins with; -1: any token
    sequence *seq;      // [together]
    int together;       // sequences that are written side by side
    size_t next, done, tokens; // sequences that were begun, that are there; tokens that were drawn in this run
    bool *there;        // [samples]
    double start;
    lq_err *err;
    bool failed;
};

// --- what it takes ---

// Of the cache, a token: in f16, of all layers that have one of their own.
static size_t token_bytes(const lq_desc *d) {
    size_t bytes = 0;
    for (int l = 0; l < d->layers; l++) {
        const lq_part *p = lq_layer_attn(&d->layer[l]);
        if (p && d->layer[l].kv_from == l)
            bytes += (size_t)p->kv_heads * (size_t)(p->head_dim + p->v_dim) * sizeof(uint16_t);
    }
    return bytes;
}

// What codes take that are not read as they are mapped; of a model that runs elsewhere (far) all is brought there, one
// tensor after the other.
static size_t copied_bytes(const lq_ckpt *in, bool far) {
    size_t bytes = 0;
    for (size_t i = 0; i < lq_ckpt_count(in); i++) {
        const lq_tensor *t = lq_ckpt_at(in, i);
        if (far) bytes = t->bytes > bytes ? t->bytes : bytes;
        else if (t->type != LQ_F32 && t->type != LQ_F16 && t->type != LQ_BF16) bytes += t->bytes;
    }
    return bytes;
}

static size_t cache_bytes(const lq_desc *d, int len, int together) {
    return (size_t)together * (size_t)(len / PAGE + 2) * PAGE * token_bytes(d);
}

// Where the model runs, its weights aside.
static size_t run_bytes(const lq_desc *d, int len, int together) {
    const lq_calib step = {.samples = 1, .len = together};
    size_t widest = (size_t)d->dim;
    for (int l = 0; l < d->layers; l++)
        for (int i = 0; i < d->layer[l].parts; i++)
            if ((size_t)d->layer[l].part[i].ffn > widest) widest = (size_t)d->layer[l].part[i].ffn;
    return cache_bytes(d, len, together) + lq_stream_cost(d, &step, false, (int64_t)widest).chunk +
           OUTS * ((size_t)d->vocab + 2 * (size_t)d->dim) * sizeof(float);
}

// Of the host.
static size_t need(const lq_ckpt *in, const lq_desc *d, int len, int together, bool far) {
    const size_t logits = OUTS * (size_t)d->vocab * sizeof(float);
    return (far ? logits : run_bytes(d, len, together)) + copied_bytes(in, far) + (8u << 20);
}

// What writes the text: of a pruned model the whole one.
static const char *writer_of(const lq_quant_opts *o) { return o->pruned ? o->pruned->in : o->in; }

static bool fail_room(const lq_quant_opts *o, const lq_ckpt *in, const lq_desc *d, int len, bool far, lq_err *err) {
    char more[64] = "";
    int fits = len;
    while (fits > 1 && need(in, d, fits, 1, far) > o->max_ram) fits /= 2;
    if (fits > 1) snprintf(more, sizeof more, " (--seqlen %d fits)", fits);
    const lq_words needs = lq_words_bytes((double)need(in, d, len, 1, far)), most = lq_words_bytes((double)o->max_ram);
    return lq_fail(err, LQ_E_LIMIT, "memory: to write calibration text itself the model needs %s for a sequence of %d "
                   "tokens, more than the %s it may use%s; or give it a text (--calib FILE)", needs.text, len,
                   most.text, more);
}

// Where the text is written (NULL: on a CPU), how many sequences side by side, the memory that it takes, their cache.
typedef struct room { lq_dev *on; int together; size_t memory, cache; } room;

static bool find_room(const lq_quant_opts *o, const lq_calib *c, room *r, lq_err *err) {
    lq_ckpt *in;
    lq_desc d = {0};
    bool done = lq_ckpt_open(writer_of(o), &in, err);
    if (!done) return false;
    done = lq_desc_read(in, &d, err);
    int n = c->samples < TOGETHER ? (int)c->samples : TOGETHER;
    while (done && n > 1 && cache_bytes(&d, c->len, n) > cache_most) n--;
    done = done && lq_whole_on(o, writer_of(o), run_bytes(&d, c->len, n), &r->on, err);
    const bool far = done && r->on;
    while (done && n > 1 && o->max_ram && need(in, &d, c->len, n, far) > o->max_ram) n--;
    if (done) *r = (room){r->on, n, need(in, &d, c->len, n, far), cache_bytes(&d, c->len, n)};
    if (done && o->max_ram && r->memory > o->max_ram) done = fail_room(o, in, &d, c->len, far, err);
    lq_desc_free(&d);
    lq_ckpt_close(in);
    return done;
}

bool lq_self_plan(const lq_quant_opts *o, lq_calib *c, lq_err *err) {
    room r;
    c->of = c->samples;
    c->drawn = malloc(c->samples * sizeof *c->drawn);
    if (!c->drawn) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu sequences", c->samples);
    for (size_t i = 0; i < c->samples; i++) c->drawn[i] = i;
    if (!find_room(o, c, &r, err)) return false;
    c->memory = r.memory;
    return true;
}

// --- a sequence ---

static uint64_t draw_of(const writing *w, const sequence *s, int try) {
    const uint64_t of[] = {w->o->seed, s->at, (uint64_t)s->texts, (uint64_t)try};
    return XXH64(of, sizeof of, 0);
}

// A token that is text.
static bool any_token(const writing *w, const sequence *s, int32_t *out, lq_err *err) {
    lq_model_info info;
    lq_model_describe(w->m, &info);
    size_t n = 0;
    for (int i = 1; !n && i <= TRIES; i++) {
        char *text;
        *out = (int32_t)(draw_of(w, s, i) % (uint64_t)info.vocab);
        if (!lq_detokenize(w->m, out, 1, false, &text, &n, err)) return false;
        lq_free(text);
    }
    return true;
}

static bool on_token(void *arg, const lq_event *e);

// The next text of a sequence. One that has room for no more than its first token is done with that.
static bool begin_text(sequence *s, lq_err *err) {
    writing *w = s->of;
    int32_t first = w->begin;
    if (first < 0 && !any_token(w, s, &first, err)) return false;
    s->ids[s->n++] = first;
    if (s->n == w->c->len) return true;
    const lq_request r = {.prompt = &first, .prompt_len = 1, .max_tokens = w->c->len - s->n,
                          .sampling = {.temperature = 1, .seeded = true, .seed = draw_of(w, s, 0)},
                          .on_event = on_token, .arg = s};
    s->texts++;
    return lq_submit(w->e, &r, &(uint64_t){0}, err);
}

static bool keep(writing *w, const sequence *s, lq_err *err) {
    const size_t len = (size_t)w->c->len;
    double *figures = malloc(len * sizeof *figures);
    if (!figures) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu tokens", len);
    for (size_t i = 0; i < len; i++) figures[i] = s->ids[i];
    const bool done = lq_measured_put(w->kept, s->at, figures, w->c->len, err);
    free(figures);
    w->done++;
    return done;
}

// The next sequence that is not there, in a place that has become free.
static bool begin_next(writing *w, sequence *s, lq_err *err) {
    while (w->next < w->c->samples && w->there[w->next]) w->next++;
    if (w->next == w->c->samples) return true;
    *s = (sequence){.of = w, .at = w->next, .ids = w->c->ids + w->next * (size_t)w->c->len};
    w->next++;
    return begin_text(s, err);
}

static bool on_token(void *arg, const lq_event *e) {
    sequence *s = arg;
    writing *w = s->of;
    if (w->failed) return false;
    if (e->count && !e->prompt) s->ids[s->n++] = e->tokens[0], w->tokens++;
    if (e->finish == LQ_RUNNING) return true;
    bool done = e->finish == LQ_STOP || e->finish == LQ_LENGTH;
    if (!done) lq_fail(w->err, LQ_E_FORMAT, "%s: %s", writer_of(w->o), e->error ? e->error : "its text ended");
    done = done && (s->n == w->c->len || begin_text(s, w->err));
    if (done && s->n == w->c->len) done = keep(w, s, w->err) && begin_next(w, s, w->err);
    w->failed = !done;
    return done;
}

// --- all of them ---

// Everything that decides the tokens.
static bool hash_all(const writing *w, uint64_t *out, lq_err *err) {
    const uint64_t numbers[] = {LQ_QUANT_NUMERICS, w->o->seed, (uint64_t)w->c->len};
    char isa[192];
    uint64_t input[2];
    lq_ckpt *in;
    if (!lq_whole_isa(w->on, isa, sizeof isa, err) || !lq_ckpt_open(writer_of(w->o), &in, err)) return false;
    const bool done = lq_input_hash(in, NULL, input, err);
    lq_ckpt_close(in);
    *out = XXH64(input, sizeof input, XXH64(numbers, sizeof numbers, XXH64(isa, strlen(isa), 0x73656c66)));
    return done;
}

// Sequences that an earlier run wrote.
static bool take_kept(writing *w, lq_err *err) {
    const size_t len = (size_t)w->c->len;
    double *figures = malloc(len * sizeof *figures);
    if (!figures) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu tokens", len);
    for (size_t i = 0; i < w->c->samples; i++) {
        if (!lq_measured_get(w->kept, i, figures, w->c->len)) continue;
        w->there[i] = true;
        w->done++;
        for (size_t j = 0; j < len; j++) w->c->ids[i * len + j] = (int32_t)figures[j];
    }
    free(figures);
    return true;
}

static bool heard(const writing *w, lq_err *err) {
    const double all = (double)w->c->samples * w->c->len, passed = lq_now() - w->start;
    double have = (double)w->done * w->c->len;
    char what[160], left[96] = "";
    for (int i = 0; i < w->together; i++) have += w->seq[i].n < w->c->len ? w->seq[i].n : 0;
    const double rate = passed > 0.3 ? (double)w->tokens / passed : 0;
    if (rate > 0)
        snprintf(left, sizeof left, ", %s tokens/s, %s left", lq_words_count(rate).text,
                 lq_words_time((all - have) / rate).text);
    snprintf(what, sizeof what, "writing text, %zu of %zu sequences%s", w->done, w->c->samples, left);
    return !w->o->tick || w->o->tick(w->o->arg, 0, 0, what) ||
           lq_fail(err, LQ_E_CANCELLED, "stopped after %zu of %zu sequences of the model's own text%s%s%s", w->done,
                   w->c->samples, w->o->dry_run ? "" : ", which ", w->o->dry_run ? "" : w->o->out,
                   w->o->dry_run ? "" : ".partial keeps: the same command goes on from there");
}

static bool open_writing(writing *w, const room *r, lq_err *err) {
    lq_model_info info;
    const bool exact = w->on && w->on->numerics == LQ_NUM_EXACT, served = w->on && !exact; // with its own cache
    const lq_model_opts model = {.threads = w->o->threads, .ctx = w->c->len, .kv = served ? NULL : "f16",
                                 .exact = exact, .mapped = true}; // as `need` has it
    const lq_engine_opts engine = {.max_seqs = r->together, .max_batch = r->together, .kv_page = PAGE,
                                   .kv_bytes = r->cache, .no_prefix = true}; // no two begin alike
    if (!(w->on ? lq_model_open_on(writer_of(w->o), &model, w->on, &w->m, err)
                : lq_model_open(writer_of(w->o), &model, &w->m, err))) return false;
    lq_model_describe(w->m, &info);
    w->begin = lq_token_bos(w->m);
    for (int32_t id = 0; w->begin < 0 && id < info.vocab; id++)
        if (lq_token_is_end(w->m, id)) w->begin = id;
    return lq_engine_open(w->m, &engine, &w->e, err);
}

static bool write_all(writing *w, lq_err *err) {
    w->seq = calloc((size_t)w->together, sizeof *w->seq);
    if (!w->seq) return lq_fail(err, LQ_E_MEMORY, "no memory for %d sequences", w->together);
    w->start = lq_now();
    w->err = err;
    for (int i = 0; i < w->together; i++)
        if (!begin_next(w, &w->seq[i], err)) return false;
    for (bool busy = true; busy;)
        if (!heard(w, err) || !lq_engine_step(w->e, &busy, err) || w->failed) return false;
    return true;
}

bool lq_self_write(const lq_quant_opts *o, lq_calib *c, lq_err *err) {
    writing w = {.o = o, .c = c};
    uint64_t of;
    room r;
    if (c->ids) return true;
    c->ids = calloc(c->samples * (size_t)c->len, sizeof *c->ids);
    w.there = calloc(c->samples, sizeof *w.there);
    bool done = (c->ids && w.there) || lq_fail(err, LQ_E_MEMORY, "no memory for %zu sequences", c->samples);
    done = done && find_room(o, c, &r, err);
    w.on = done ? r.on : NULL;
    done = done && hash_all(&w, &of, err) && lq_measured_open(o, of, &w.kept, err) && take_kept(&w, err);
    if (done && w.done < c->samples) {
        char where[128];
        lq_whole_words(o, r.on, where, sizeof where);
        lq_tell(o, "calibration text: the model writes %zu sequences of %d tokens, %d side by side, in %s of memory%s",
                c->samples - w.done, c->len, r.together, lq_words_bytes((double)r.memory).text, where);
        w.together = r.together;
        done = open_writing(&w, &r, err) && write_all(&w, err);
    }
    w.failed = !done; // whom the engine tells of their end
    if (w.e) lq_engine_close(w.e);
    if (w.m) lq_model_close(w.m);
    lq_measured_close(w.kept);
    free(w.seq);
    free(w.there);
    return done;
}
