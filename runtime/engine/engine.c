// engine.c: the continuous batcher. One step: admit, build one batch that mixes decode rows and chunks of prefills, run
// the forward, sample, deliver. Owns the KV cache, the buffers and every request; a step allocates nothing.
//
// A sequence knows `len` tokens, of which `done` stand in the cache. A step feeds it up to `len - done` more;
// when none is left the last row's logits give the next token. Decoding, prefilling and recomputing after a
// preemption are the same thing.
#include "runtime/engine/beam.h"
#include "runtime/engine/state.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BESIDE = 4096,        // requests that count with others in the queue
    BESIDE_PREFILL = 128, // tokens of prompts beside who decodes, on a CPU: fewer cost the prompt more
    BATCH = 512           // tokens in a step
};
static const size_t queue_bytes = (size_t)1 << 30; // what requests may hold in all, before they are refused as too many

double lq_engine_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// --- opening ---

// Blocks of a group where those without a window have n. With a window, what all sequences can hold at once: between
// two steps a window's tokens, wherever the borders of blocks fall in them, and in a step what they are fed; and what
// the prefix cache keeps of as many that ended.
static int64_t group_blocks(const lq_engine *e, int g, int page, int64_t n) {
    const int64_t windows = (int64_t)e->max_seqs + 1 + e->ended;
    const int64_t most = windows * e->window_blocks[g] + (e->max_batch + page - 1) / page;
    return e->window_blocks[g] && most < n ? most : n;
}

static double pool_bytes(const lq_engine *e, int page, int64_t n) {
    double bytes = 0;
    for (int g = 0; g < e->m->desc.groups; g++)
        bytes += (double)group_blocks(e, g, page, n) * page * (double)lq_kv_token_bytes(e->m, g);
    return bytes;
}

// The most blocks of a group without a window, at most `most`, with which everything takes no more than so many bytes.
static int64_t blocks_within(const lq_engine *e, int page, int64_t most, double bytes) {
    int64_t low = 0, high = most;
    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (pool_bytes(e, page, middle) <= bytes) low = middle;
        else high = middle - 1;
    }
    return low;
}

static int blocks_by(const lq_engine *e, size_t kv_bytes, int page) {
    const int64_t per_seq = (e->m->ctx + page - 1) / page, least = per_seq * 4 > 4096 ? per_seq * 4 : 4096;
    if (kv_bytes) return (int)blocks_within(e, page, INT32_MAX / 2, (double)kv_bytes);
    const int64_t all = per_seq * e->max_seqs, most = all < least ? all : least;
    return (int)blocks_within(e, page, most < INT32_MAX / 2 ? most : INT32_MAX / 2,
                              (double)(e->m->dev->ops.room(e->m->dev) / 4));
}

// More than the machine has is a slip of the hand: it would be found out when the cache is half full.
static bool kv_fits(const lq_engine *e, size_t kv_bytes, lq_err *err) {
    const double has = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return !e->m->dev->host || has <= 0 || (double)kv_bytes <= has ||
           lq_fail(err, LQ_E_MEMORY, "a KV cache of %.6g GB: this machine has %.3g GB of memory",
                   (double)kv_bytes * 1e-9, has * 1e-9);
}

// Windows that the prefix cache keeps take no room from a whole context.
static int blocks_for(lq_engine *e, size_t kv_bytes, int page) {
    e->ended = e->caches ? e->max_seqs : 0;
    const int blocks = blocks_by(e, kv_bytes, page);
    if (!e->ended || (int64_t)blocks * page >= e->m->ctx) return blocks;
    e->ended = 0;
    return blocks_by(e, kv_bytes, page);
}

#define NEW(p, n) ((p) = calloc((size_t)(n), sizeof *(p)))
static bool open_arrays(lq_engine *e, lq_err *err) {
    const int seqs = e->max_seqs + 1, rows = e->max_batch, wants = rows + seqs;
    bool done = NEW(e->running, seqs) && NEW(e->take, seqs) && NEW(e->ids, rows) &&
                NEW(e->seq, rows) && NEW(e->pos, rows) && NEW(e->first, seqs + 1) && NEW(e->slot, seqs) &&
                NEW(e->out, wants) && NEW(e->wants, wants) && NEW(e->draw, wants) && NEW(e->drawn, wants) &&
                NEW(e->top_id, wants * LQ_TOP) && NEW(e->top_logprob, wants * LQ_TOP) &&
                NEW(e->text, lq_seq_work(e->m)) && NEW(e->all, e->all_cap) && NEW(e->pool_of, rows) &&
                NEW(e->hidden, rows);
    for (int g = 0; g < e->m->desc.groups; g++) done = done && NEW(e->src[g], seqs) && NEW(e->dst[g], seqs);
    return done || lq_fail(err, LQ_E_MEMORY, "no memory for an engine of %d sequences", e->max_seqs);
}

// A device with memory of its own has a host to put sequences aside with: 4 GiB, where nothing else was asked for.
static bool open_aside(lq_engine *e, const lq_engine_opts *o, const int *blocks, lq_err *err) {
    const size_t bytes = o->swap_bytes ? o->swap_bytes : e->m->dev->host ? 0 : (size_t)4 << 30;
    return o->no_swap || !bytes || lq_aside_open(e->m, &e->pool, e->now.kv_page, blocks, bytes, &e->aside, err);
}

static bool open_parts(lq_engine *e, const lq_engine_opts *o, lq_err *err) {
    const int page = o->kv_page ? o->kv_page : 32;
    if (page != 16 && page != 32 && page != 64)
        return lq_fail(err, LQ_E_USAGE, "a KV block of %d tokens: expected 16, 32 or 64", page);
    if (o->max_seqs < 0 || o->max_seqs > 4096 || o->max_batch < 0 || o->max_batch > 1 << 16 || o->max_queue < 0 ||
        o->max_queue > 1 << 20 || o->max_prefill < 0 || o->age_ms < 0)
        return lq_fail(err, LQ_E_USAGE,
                       "%d sequences, %d tokens in a step, a queue of %d: expected up to 4096, 65536 and 1048576",
                       o->max_seqs, o->max_batch, o->max_queue);
    e->max_seqs = o->max_seqs ? o->max_seqs : 64;
    e->max_batch = o->max_batch ? o->max_batch : BATCH;
    if (e->max_batch < e->max_seqs) e->max_batch = e->max_seqs;
    e->caches = !o->no_prefix;
    e->max_prefill = o->max_prefill ? o->max_prefill : e->max_batch;
    e->max_beside = o->max_prefill || !e->m->dev->host ? e->max_prefill : BESIDE_PREFILL;
    e->age = o->age_ms ? o->age_ms * 1e-3 : 10;
    e->max_queue = o->max_queue ? o->max_queue : 1024;
    e->all_cap = e->max_queue + 2 * e->max_seqs + BESIDE;
    for (int g = 0; g < e->m->desc.groups; g++)
        if (e->m->desc.group_window[g]) e->window_blocks[g] = (e->m->desc.group_window[g] - 1 + page - 1) / page + 2;
    if (!kv_fits(e, o->kv_bytes, err)) return false;
    const int blocks = blocks_for(e, o->kv_bytes, page);
    if (blocks < 1) return lq_fail(err, LQ_E_MEMORY, "the KV cache has no room for one block of %d tokens (%zu bytes)",
                                   page, lq_kv_token_bytes(e->m, -1) * (size_t)page);
    e->ctx = (int64_t)blocks * page < e->m->ctx ? blocks * page : e->m->ctx;
    lq_kv_opts kv = {.page = page, .groups = e->m->desc.groups, .max_seqs = e->max_seqs + 1, .max_len = e->ctx};
    memcpy(kv.window, e->m->desc.group_window, sizeof kv.window);
    for (int g = 0; g < kv.groups; g++) {
        kv.blocks[g] = (int)group_blocks(e, g, page, blocks);
        if (!kv.window[g]) e->full = g;
    }
    e->now.ctx = e->ctx;
    e->now.kv_page = page;
    e->now.kv_blocks = e->now.kv_free = kv.blocks[e->full];
    e->stats = e->now;
    if (!lq_kv_open(&kv, &e->kv, err) || !lq_prefix_open(e->kv, &kv, e->caches, &e->prefix, err)) return false;
    const lq_buffer_sizes buffers = {.rows = e->max_batch, .outs = 64, // more are done in pieces
                                     .max_len = e->ctx, .slots = e->max_seqs + 1,
                                     .table_stride = lq_kv_table_stride(e->kv)};
    return lq_kvpool_open(e->m, page, kv.blocks, &e->pool, err) && open_aside(e, o, kv.blocks, err) &&
           lq_buffers_open(e->m, &buffers, &e->b, err) && open_arrays(e, err);
}

// Whether the engine's thread leaves the blocks where they are. Who asked for them meanwhile is told.
static void be_still(lq_engine *e, bool still) {
    pthread_mutex_lock(&e->lock);
    e->still = still;
    if (still && e->asked) {
        lq_kv_map(e->kv, e->full, &e->map);
        e->asked = false;
        pthread_cond_broadcast(&e->stills);
    }
    pthread_mutex_unlock(&e->lock);
}

bool lq_engine_open(lq_model *m, const lq_engine_opts *o, lq_engine **out, lq_err *err) {
    static const lq_engine_opts none;
    *out = NULL;
    if (atomic_exchange(&m->taken, true))
        return lq_fail(err, LQ_E_USAGE, "another engine works on this model; open the model again for a second one");
    lq_engine *e = calloc(1, sizeof *e);
    if (!e) {
        m->taken = false;
        return lq_fail(err, LQ_E_MEMORY, "no memory for an engine");
    }
    e->m = m;
    e->tail = &e->incoming;
    e->next_id = 1;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->bell, &attr);
    pthread_cond_init(&e->stills, &attr);
    pthread_condattr_destroy(&attr);
    if (!open_parts(e, o ? o : &none, err)) {
        lq_engine_close(e);
        return false;
    }
    e->asked = true; // the map begins with what there is
    be_still(e, true);
    *out = e;
    return true;
}

static void forget(lq_engine *e, lq_req *q) { // under lock
    e->bytes -= q->bytes;
    for (int i = 0; i < e->alls; i++)
        if (e->all[i] == q) e->all[i] = e->all[--e->alls];
}

static void end_all(lq_engine *e, lq_req *q, lq_finish why, const char *error) {
    for (int c = 0; c < q->r.n; c++)
        if (q->seq[c].finish == LQ_RUNNING) lq_seq_end(&q->seq[c], why, error, e->text);
}

void lq_engine_close(lq_engine *e) {
    if (!e) return;
    while (e->alls) {
        lq_req *q = e->all[0];
        end_all(e, q, LQ_ABORTED, NULL);
        forget(e, q);
        lq_req_free(q);
    }
    lq_prefix_close(e->prefix);
    lq_kv_close(e->kv);
    lq_aside_close(e->aside);
    lq_kvpool_close(e->m, &e->pool);
    lq_buffers_close(e->m, e->b);
    void *const parts[] = {e->running, e->take, e->ids, e->seq, e->pos, e->first, e->slot, e->out, e->wants,
                           e->draw, e->drawn, e->top_id, e->top_logprob, e->text, e->all, e->pool_of, e->hidden};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    for (int g = 0; g < LQ_KV_GROUPS; g++) {
        free(e->src[g]);
        free(e->dst[g]);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->bell);
    pthread_cond_destroy(&e->stills);
    atomic_store(&e->m->taken, false);
    free(e);
}

lq_model *lq_engine_model(lq_engine *e) { return e->m; }
void lq_engine_hold(lq_engine *e, int at) { e->hold = at > 0 ? at : 0; }

// --- from other threads ---
bool lq_submit(lq_engine *e, const lq_request *r, uint64_t *id, lq_err *err) {
    return r->beams ? lq_beam_submit(e, r, id, err) : lq_engine_submit(e, r, NULL, id, err);
}

int lq_engine_ctx(const lq_engine *e) { return e->ctx; }

bool lq_engine_submit(lq_engine *e, const lq_request *r, lq_beam *of, uint64_t *id, lq_err *err) {
    lq_req *q;
    if (!lq_req_new(e->m, r, e->ctx, &q, err)) return false;
    pthread_mutex_lock(&e->lock);
    const int free = e->max_seqs - e->stats.running;
    const bool full = (!r->beside && e->queued >= e->max_queue + free) || e->alls == e->all_cap ||
                      (e->alls && e->bytes + q->bytes > queue_bytes);
    if (!full) {
        e->bytes += q->bytes;
        q->id = q->order = e->next_id++;
        q->arrived = lq_engine_clock();
        if (r->deadline_ms) q->until = q->arrived + r->deadline_ms * 1e-3;
        if ((q->beam = of)) atomic_fetch_add(&of->refs, 1);
        if (of && of->id) q->arrived = of->arrived, q->until = of->until;
        else if (of) of->id = q->id, of->arrived = q->arrived, of->until = q->until;
        if (id) *id = q->id;
        e->all[e->alls++] = q;
        e->queued += !r->beside;
        *e->tail = q;
        e->tail = &q->next;
        pthread_cond_signal(&e->bell);
    }
    pthread_mutex_unlock(&e->lock);
    if (full) {
        lq_req_free(q);
        return lq_fail(err, LQ_E_BUSY, "too many requests are waiting already");
    }
    return true;
}

void lq_cancel(lq_engine *e, uint64_t id) {
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->alls; i++) {
        lq_req *q = e->all[i];
        if (q->id != id && (!q->beam || q->beam->id != id)) continue;
        atomic_store(&q->cancelled, true);
        if (q->beam) atomic_store(&q->beam->cancelled, true);
    }
    e->woken = true;
    pthread_cond_signal(&e->bell);
    pthread_mutex_unlock(&e->lock);
}

void lq_engine_wake(lq_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->woken = true;
    pthread_cond_signal(&e->bell);
    pthread_mutex_unlock(&e->lock);
}

static struct timespec from_now(int ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

void lq_engine_wait(lq_engine *e, int ms) {
    const struct timespec until = from_now(ms);
    pthread_mutex_lock(&e->lock);
    int late = 0;
    while (!e->woken && !e->alls && !late)
        late = ms < 0 ? pthread_cond_wait(&e->bell, &e->lock) : pthread_cond_timedwait(&e->bell, &e->lock, &until);
    e->woken = false;
    pthread_mutex_unlock(&e->lock);
}

void lq_engine_describe(lq_engine *e, lq_engine_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    pthread_mutex_unlock(&e->lock);
}

static bool run_model(lq_engine *e, const lq_step *s, lq_err *err) {
    be_still(e, true);
    const bool done = lq_step_run(e->m, e->b, &e->pool, s, err);
    be_still(e, false);
    return done;
}

void lq_engine_blocks(lq_engine *e, lq_block_map *out) {
    const struct timespec until = from_now(10);
    pthread_mutex_lock(&e->lock);
    if (e->still) lq_kv_map(e->kv, e->full, &e->map);
    else e->asked = true;
    while (!e->still && e->asked && !pthread_cond_timedwait(&e->stills, &e->lock, &until)) continue;
    *out = e->map;
    pthread_mutex_unlock(&e->lock);
}

// --- the batch ---

static void want_rows(lq_engine *e, lq_seq *s, int from, int n, int first_row) {
    const lq_req *q = s->req;
    if (q->r.prompt_logprobs && s->choice == 0)
        for (int i = 0; i < n; i++)
            if (from + i + 1 >= q->reported && from + i + 1 < s->prompt)
                e->wants[e->want_count++] = (want){s, first_row + i, s->ids[from + i + 1]};
    if (from + n == s->len && !q->r.score_only) e->wants[e->want_count++] = (want){s, first_row + n - 1, -1};
    for (int at = q->pooled > from ? q->pooled : from; at < from + n && at < q->pool_end; at++) {
        e->pool_of[e->hiddens] = s;
        e->hidden[e->hiddens++] = first_row + at - from;
    }
}

// Where the rows of a batch stand: e->seq, pos, first and slot are filled.
static void place(lq_engine *e, lq_batch *batch, int rows, int seqs) {
    batch->rows = (lq_rows){.n = rows, .seqs = seqs, .seq = e->seq, .pos = e->pos, .at = e->pos, .first = e->first,
                            .slot = e->slot, .table_stride = lq_kv_table_stride(e->kv)};
    for (int g = 0; g < e->m->desc.groups; g++) batch->tables[g] = lq_kv_tables(e->kv, g);
    batch->changes = lq_kv_changes(e->kv, &batch->changed);
}

static int build(lq_engine *e, lq_batch *batch) {
    int rows = 0, seqs = 0;
    e->want_count = e->hiddens = 0;
    *batch = (lq_batch){.ids = e->ids};
    for (int i = 0; i < e->runs; i++) {
        lq_seq *s = e->running[i];
        if (!e->take[i]) continue;
        e->first[seqs] = rows;
        e->slot[seqs] = s->kv;
        want_rows(e, s, s->done, e->take[i], rows);
        for (int k = 0; k < e->take[i]; k++, rows++) {
            e->ids[rows] = s->ids[s->done + k];
            e->seq[rows] = seqs;
            e->pos[rows] = s->done + k;
        }
        if (e->pos[rows - 1] > batch->max_at) batch->max_at = e->pos[rows - 1];
        seqs++;
    }
    e->first[seqs] = rows;
    place(e, batch, rows, seqs);
    return rows;
}

bool lq_engine_warm(lq_engine *e, lq_err *err) {
    lq_batch none = {.ids = e->ids, .out = e->out};
    e->first[0] = 0;
    place(e, &none, 0, 0);
    return lq_step_warm(e->m, e->b, &e->pool, &none, e->max_seqs, err);
}

// --- the outcome ---

// The prompt becomes whole in this step: the other choices share its blocks, and each draws its own
// first token from the same row.
static void fork_choices(lq_engine *e, lq_seq *s, const want *w) {
    if (s->choice || s->len != s->prompt || s->req->r.n == 1) return;
    for (int c = 1; c < s->req->r.n; c++) {
        lq_seq *f = &s->req->seq[c];
        f->fed = s->prompt;
        if (e->runs == e->max_seqs) { // it reads the prompt again when there is a place
            f->late = true;
            lq_sched_put_back(e, f);
            continue;
        }
        f->kv = lq_kv_fork(e->kv, s->kv, s->len);
        lq_prefix_fork(e->prefix, s->kv, f->kv);
        f->done = s->len;
        e->take[e->runs] = 0;
        e->running[e->runs++] = f;
        e->wants[e->want_count++] = (want){f, w->row, -1};
    }
}

// The prompt's first token has no logprob; it is told before anything else of the request.
static void report_first(lq_engine *e, const lq_seq *s) {
    const float none = NAN;
    if (s->req->r.prompt_logprobs && !s->req->reported) lq_req_prompt(e->m, s->req, &none, NULL, 0, e->text);
}

// Without biases only a number that is none leaves nothing to draw.
static const char *blame(lq_engine *e, const lq_seq *s) {
    if (s->req->r.sampling.biases) return "no token is allowed, or the model's output is not a number";
    if (!*e->blame) lq_model_blame(e->m, e->blame, sizeof e->blame);
    return e->blame;
}

static void deliver(lq_engine *e, const want *w, int i) {
    lq_seq *s = w->seq;
    for (int k = 0; k < e->draw[i].top_n; k++)
        e->top[k] = (lq_top){e->top_id[i * LQ_TOP + k], e->top_logprob[i * LQ_TOP + k]};
    if (s->finish != LQ_RUNNING || s->req->cancelled) return; // by an earlier row of this step
    report_first(e, s);
    if (e->drawn[i].bad) lq_seq_end(s, LQ_FAILED, blame(e, s), e->text);
    else if (w->given >= 0) lq_req_prompt(e->m, s->req, &e->drawn[i].logprob, e->top, s->req->r.top_n, e->text);
    else {
        e->now.sampled_tokens++;
        lq_seq_take(e->m, s, &e->drawn[i], e->top, e->text);
    }
}

static void on_hidden(void *arg, int i, const float *h) {
    const lq_engine *e = arg;
    lq_embed_add(e->pool_of[i]->req, h);
}

// The whole step as data: what is copied, fed, and drawn.
static void compose(lq_engine *e, lq_step *s) {
    for (int i = 0, n = e->want_count; i < n; i++)
        if (e->wants[i].given < 0) fork_choices(e, e->wants[i].seq, &e->wants[i]);
    for (int i = 0; i < e->want_count; i++) {
        const want *w = &e->wants[i];
        e->out[i] = w->row;
        if (w->given < 0) lq_seq_draw(e->m, w->seq, &e->draw[i]);
        else e->draw[i] = (lq_draw){.given = true, .token = w->given, .top_n = w->seq->req->r.top_n};
    }
    s->batch.out = e->out;
    s->batch.outs = e->want_count;
    s->draw = e->draw;
    s->drawn = e->drawn;
    s->top_id = e->top_id;
    s->top_logprob = e->top_logprob;
    s->hidden = e->hidden;
    s->hiddens = e->hiddens;
    s->on_hidden = on_hidden;
    s->arg = e;
    for (int g = 0; g < e->m->desc.groups; g++)
        s->copies[g] = e->copies[g], s->src[g] = e->src[g], s->dst[g] = e->dst[g];
}

// Cancelled requests end; sequences that ended give everything back; a request goes with its last choice.
// Returns how many left the waiting list.
static int sweep(lq_engine *e) {
    int kept = 0;
    for (int i = 0; i < e->runs; i++) {
        lq_seq *s = e->running[i];
        if (s->finish == LQ_RUNNING) e->running[kept++] = s;
        else lq_prefix_leave(e->prefix, s->kv, s->ids, s->done, s->finish != LQ_FAILED);
    }
    e->runs = kept;
    return lq_sched_sweep(e);
}

static void account(lq_engine *e, const lq_req *q) {
    if (lq_beam_goes_on(q)) return; // it was counted
    switch (q->seq[0].finish) {
    case LQ_ABORTED: e->now.aborted++; break;
    case LQ_FAILED: e->now.failed++; break;
    default: e->now.finished++;
    }
}

static void reap(lq_engine *e) {
    pthread_mutex_lock(&e->lock);
    const int n = e->alls; // later ones are incoming
    pthread_mutex_unlock(&e->lock);
    const double now = lq_engine_clock();
    for (int i = 0; i < n; i++) {
        lq_req *q = e->all[i];
        if (!q->received) continue;
        if (atomic_load(&q->cancelled)) end_all(e, q, LQ_ABORTED, NULL);
        else if (q->until > 0 && now >= q->until) end_all(e, q, LQ_LATE, NULL);
    }
    const int left = sweep(e);
    pthread_mutex_lock(&e->lock);
    e->queued -= left;
    for (int i = 0; i < e->alls;) {
        lq_req *q = e->all[i];
        if (!q->received || q->live) { i++; continue; }
        account(e, q);
        forget(e, q);
        lq_req_free(q);
    }
    int waiting = 0;
    for (const lq_req *q = e->waiting; q; q = q->next) waiting++;
    for (const lq_seq *p = e->paused; p; p = p->next) waiting++;
    e->now.waiting = waiting;
    e->now.running = e->runs;
    e->now.swap_used = e->aside ? lq_aside_used(e->aside) : 0;
    e->now.kv_cached = lq_kv_cached(e->kv, e->full);
    e->now.kv_free = lq_kv_free_blocks(e->kv, e->full) + e->now.kv_cached;
    e->stats = e->now;
    e->more = e->alls > 0;
    pthread_mutex_unlock(&e->lock);
}

// A request that samples nothing is through when the cache holds its prompt.
static void end_score(lq_engine *e, lq_seq *s) {
    if (!s->req->r.score_only || s->finish != LQ_RUNNING || s->done < s->len) return;
    report_first(e, s);
    if (s->req->cancelled) return;
    if (!s->req->r.pool) lq_seq_end(s, LQ_LENGTH, NULL, e->text);
    else if (lq_embed_end(s->req)) lq_seq_end(s, LQ_STOP, NULL, e->text);
    else lq_seq_end(s, LQ_FAILED, blame(e, s), e->text);
}

// What was fed stands in the cache.
static void advance(lq_engine *e) {
    for (int i = 0; i < e->runs; i++) {
        lq_seq *s = e->running[i];
        s->done += e->take[i];
        const int fed = s->done < s->prompt ? s->done : s->prompt;
        if (fed > s->fed) {
            e->now.prompt_tokens += (uint64_t)(fed - s->fed);
            s->fed = fed;
        }
        e->take[i] = 0;
    }
}

// What a sequence has in the cache is there for others too, before windows leave it behind. Where a prompt ends, others
// may go on.
static void settle(lq_engine *e, const lq_seq *s) {
    if (s->finish != LQ_FAILED) lq_prefix_store(e->prefix, s->kv, s->ids, s->done);
    lq_kv_slide(e->kv, s->kv, s->done);
    if (e->caches && s->done == s->prompt) lq_kv_want(e->kv, s->kv);
}

bool lq_engine_step(lq_engine *e, bool *busy, lq_err *err) {
    lq_step step = {.draw = e->draw};
    const double start = lq_engine_clock();
    lq_err mine, *why = err ? err : &mine;
    bool done = true;
    be_still(e, false);
    lq_sched_receive(e);
    reap(e);
    lq_sched_admit(e);
    lq_sched_plan(e);
    if (build(e, &step.batch)) {
        compose(e, &step);
        done = run_model(e, &step, why);
        advance(e);
        for (int i = 0; done && i < e->want_count; i++) deliver(e, &e->wants[i], i);
        for (int i = 0; done && i < e->runs; i++) end_score(e, e->running[i]);
        for (int i = 0; i < e->runs; i++) {
            if (!done) end_all(e, e->running[i]->req, LQ_FAILED, why->text);
            else settle(e, e->running[i]);
        }
        e->now.steps++;
        e->now.step_seconds += lq_engine_clock() - start;
    }
    reap(e);
    be_still(e, true);
    if (busy) *busy = e->more;
    return done;
}

// --- a caller that is alone ---
typedef struct one { lq_on_event *on; void *arg; int live; lq_err *err; bool failed; } one;
static bool on_one(void *arg, const lq_event *ev) {
    one *o = arg;
    if (ev->finish != LQ_RUNNING) o->live--;
    if (ev->finish == LQ_FAILED && !o->failed) {
        o->failed = true;
        lq_fail(o->err, LQ_E_FORMAT, "%s", ev->error ? ev->error : "the request failed");
    }
    return !o->on || o->on(o->arg, ev);
}

bool lq_generate(lq_engine *e, const lq_request *r, lq_err *err) {
    one o = {r->on_event, r->arg, r->n ? r->n : 1, err, false};
    uint64_t id;
    lq_request mine = *r;
    mine.on_event = on_one;
    mine.arg = &o;
    if (!lq_submit(e, &mine, &id, err)) return false;
    while (o.live > 0)
        if (!lq_engine_step(e, NULL, NULL)) lq_cancel(e, id); // its last events say what happened
    return !o.failed;
}

typedef struct wanted { lq_on_logits *on; void *arg; size_t first; } wanted;
static bool on_row(void *arg, int out, const float *logits) {
    const wanted *w = arg;
    return w->on(w->arg, w->first + (size_t)out, logits);
}

bool lq_logits(lq_engine *e, const int32_t *ids, size_t count, size_t first, lq_on_logits *on, void *arg, lq_err *err) {
    const int vocab = e->m->desc.vocab;
    if (count > (size_t)e->ctx) return lq_fail(err, LQ_E_LIMIT, "%zu tokens, the context holds %d", count, e->ctx);
    if (first > count) return lq_fail(err, LQ_E_USAGE, "logits from position %zu of %zu", first, count);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return lq_fail(err, LQ_E_USAGE, "token %zu is %d, the vocabulary has %d", i, ids[i], vocab);
    be_still(e, false);
    const int kv = lq_kv_begin(e->kv);
    bool done = kv >= 0 && lq_kv_grow(e->kv, kv, (int)count, false);
    if (!done) lq_fail(err, LQ_E_BUSY, "the KV cache has no room for %zu tokens beside what is running", count);
    for (int at = 0; done && at < (int)count; at += e->max_batch) {
        const int n = (int)count - at < e->max_batch ? (int)count - at : e->max_batch;
        const int skip = (int)first > at ? (int)first - at : 0;
        wanted w = {on, arg, (size_t)(at + skip)};
        lq_step step = {.batch = {.ids = ids + at, .max_at = at + n - 1, .out = e->out}, .on_logits = on_row,
                        .arg = &w};
        if (!lq_kv_grow(e->kv, kv, at + n, true)) {
            done = lq_fail(err, LQ_E_BUSY, "the KV cache has no room for %d tokens beside what is running", at + n);
            break;
        }
        for (int i = 0; i < n; i++) e->seq[i] = 0, e->pos[i] = at + i;
        for (int row = skip; row < n; row++) e->out[step.batch.outs++] = row;
        e->first[0] = 0, e->first[1] = n, e->slot[0] = kv;
        place(e, &step.batch, n, 1);
        done = run_model(e, &step, err);
        lq_kv_slide(e->kv, kv, at + n);
    }
    if (kv >= 0) lq_kv_end(e->kv, kv);
    be_still(e, true);
    return done;
}
