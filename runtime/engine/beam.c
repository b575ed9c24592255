// beam.c: beam search. Owns a search from its submission to its last event.
//
// A hypothesis is worth the sum of its logprobs over the length of the answer (its end token counted) to the power of
// length_penalty. Of a round's candidates, best first, those that go on become the next beginnings, and of the first
// `beams` of them those that end are answers. The search is over at max_tokens, or when no beginning can come to be
// worth more than the answers there are, whatever it is continued with.
#include "runtime/engine/beam.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct node { int32_t parent, token; float logprob; } node; // parent -1: the prompt

typedef struct hypothesis { int32_t node; int length; double sum, worth; } hypothesis;

typedef struct candidate { double sum; int leg, at; } candidate;

typedef struct search search;
typedef struct leg { // a beginning, and what follows it
    search *s;
    hypothesis h;
    lq_top top[LQ_TOP];
    int tops;
} leg;

struct search {
    lq_beam *of;
    lq_engine *e;
    const lq_model *m;
    lq_req *q;    // the caller's request; it is never in the engine
    int width, wide, length, open; // wide: candidates of a leg; length: of the answer so far; open: legs that run
    float penalty;
    leg legs[LQ_BEAMS];
    int leg_count;
    hypothesis done[LQ_BEAMS]; // best first
    int done_count;
    node *nodes;
    lq_top *tops; // [nodes][top_n]
    int32_t node_count, node_cap;
    candidate *found; // [width][wide]
    int32_t *ids; // a leg's tokens
    char *work;
    lq_finish why;    // LQ_RUNNING: it goes on
    char error[512];
};

void lq_beam_release(lq_beam *b) {
    if (b && atomic_fetch_sub(&b->refs, 1) == 1) free(b);
}

static void search_free(search *s) {
    lq_beam_release(s->of);
    lq_req_free(s->q);
    void *const parts[] = {s->nodes, s->tops, s->found, s->ids, s->work, s};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

static double worth(const search *s, double sum, int length) { return sum / pow(length, (double)s->penalty); }

// --- nodes ---

static int32_t node_add(search *s, const leg *l, int at) {
    const int n = s->q->r.top_n;
    if (s->node_count == s->node_cap) {
        const int32_t cap = s->node_cap ? s->node_cap * 2 : 256;
        node *nodes = realloc(s->nodes, (size_t)cap * sizeof *nodes);
        if (nodes) s->nodes = nodes;
        lq_top *tops = n ? realloc(s->tops, (size_t)cap * (size_t)n * sizeof *tops) : NULL;
        if (tops) s->tops = tops;
        if (!nodes || (n && !tops)) return -1;
        s->node_cap = cap;
    }
    s->nodes[s->node_count] = (node){l->h.node, l->top[at].id, l->top[at].logprob};
    for (int i = 0; i < n; i++) s->tops[s->node_count * n + i] = l->top[i < l->tops ? i : l->tops - 1];
    return s->node_count++;
}

// The tokens of a hypothesis behind the prompt's.
static void ids_write(const search *s, const hypothesis *h, int32_t *to) {
    int at = h->length;
    for (int32_t i = h->node; i >= 0; i = s->nodes[i].parent) to[--at] = s->nodes[i].token;
}

// --- the end ---

static void done_add(search *s, const hypothesis *h) {
    int at = s->done_count;
    while (at > 0 && s->done[at - 1].worth < h->worth) at--;
    if (at == s->width) return;
    if (s->done_count < s->width) s->done_count++;
    memmove(&s->done[at + 1], &s->done[at], (size_t)(s->done_count - at - 1) * sizeof *h);
    s->done[at] = *h;
}

// Its tokens go the way of all tokens, so that text, offsets and ends are those of any other answer.
static void tell(search *s, lq_seq *q, const hypothesis *h) {
    int32_t *path = s->ids + s->q->prompt; // of nodes, then
    int at = h->length;
    for (int32_t i = h->node; i >= 0; i = s->nodes[i].parent) path[--at] = i;
    for (int i = 0; i < h->length && q->finish == LQ_RUNNING; i++) {
        const node *n = &s->nodes[path[i]];
        lq_seq_take(s->m, q, &(lq_drawn){n->token, n->logprob, 0},
                    s->tops ? s->tops + path[i] * s->q->r.top_n : NULL, s->work);
    }
}

static void finish(search *s) {
    const bool whole = s->why == LQ_RUNNING || s->why == LQ_LATE;
    const bool cut = s->why == LQ_LATE || s->length == s->q->max_tokens;
    for (int i = 0; i < s->leg_count && cut; i++) {
        hypothesis h = s->legs[i].h;
        h.worth = h.length ? worth(s, h.sum, h.length) : -INFINITY;
        done_add(s, &h);
    }
    for (int c = 0; c < s->q->r.n; c++) {
        lq_seq *q = &s->q->seq[c];
        if (whole && c < s->done_count) tell(s, q, &s->done[c]);
        if (q->finish == LQ_RUNNING) lq_seq_end(q, s->why ? s->why : LQ_LENGTH, *s->error ? s->error : NULL, s->work);
    }
    search_free(s);
}

// --- rounds ---

static bool on_leg(void *arg, const lq_event *e);

// Of the first one everything may be over, and the search gone, when this returns.
static bool leg_submit(search *s, leg *l, uint64_t *first, lq_err *err) {
    const lq_request *r = &s->q->r;
    lq_request sub = {.prompt = s->ids, .prompt_len = (size_t)(s->q->prompt + l->h.length), .max_tokens = 1,
                      .logprobs = true, .top_n = s->wide, .ignore_eos = true, .priority = r->priority,
                      .client = r->client, .salt = r->salt, .beside = r->beside || !first, .on_event = on_leg,
                      .arg = l, .deadline_ms = r->deadline_ms};
    if (first) sub.prompt_logprobs = r->prompt_logprobs, sub.prompt_from = r->prompt_from;
    ids_write(s, &l->h, s->ids + s->q->prompt);
    l->tops = 0;
    s->open++;
    if (lq_engine_submit(s->e, &sub, s->of, first, err)) return true;
    s->open--;
    return false;
}

static void fail(search *s, const char *why) {
    s->why = LQ_FAILED;
    snprintf(s->error, sizeof s->error, "%s", why);
}

static int better(const void *x, const void *y) {
    const candidate *a = x, *b = y;
    if (a->sum > b->sum || a->sum < b->sum) return a->sum > b->sum ? -1 : 1;
    return a->leg != b->leg ? (a->leg > b->leg) - (a->leg < b->leg) : (a->at > b->at) - (a->at < b->at);
}

// What this round found becomes the next one's beginnings, and answers.
static void choose(search *s) {
    hypothesis next[LQ_BEAMS];
    int found = 0, nexts = 0;
    for (int i = 0; i < s->leg_count; i++)
        for (int k = 0; k < s->legs[i].tops; k++)
            s->found[found++] = (candidate){s->legs[i].h.sum + (double)s->legs[i].top[k].logprob, i, k};
    qsort(s->found, (size_t)found, sizeof *s->found, better);
    s->length++;
    for (int i = 0; i < found && nexts < s->width && !s->why; i++) {
        const candidate *c = &s->found[i];
        const leg *l = &s->legs[c->leg];
        const bool ends = lq_req_ends(s->m, s->q, l->top[c->at].id);
        if ((ends && i >= s->width) || !(c->sum > -INFINITY)) continue;
        const hypothesis h = {node_add(s, l, c->at), s->length, c->sum, worth(s, c->sum, s->length)};
        if (h.node < 0) fail(s, "no memory for a search");
        else if (ends) done_add(s, &h);
        else next[nexts++] = h;
    }
    for (int i = 0; i < nexts; i++) s->legs[i].h = next[i];
    s->leg_count = nexts;
}

// Whether no beginning can come to be worth more than the last answer that would be told.
static bool settled(const search *s) {
    const int n = s->q->r.n;
    if (s->length == s->q->max_tokens || !s->leg_count) return true;
    if (s->done_count < n) return false;
    const double most = worth(s, s->legs[0].h.sum, s->penalty > 0 ? s->q->max_tokens : s->length + 1);
    return s->done[n - 1].worth >= most;
}

static void round_end(search *s) {
    lq_err err;
    if (!s->why && (atomic_load(&s->of->cancelled) || s->q->dropped)) s->why = LQ_ABORTED;
    if (!s->why) choose(s);
    if (s->why || settled(s)) {
        finish(s);
        return;
    }
    for (int i = 0; i < s->leg_count && !s->why; i++)
        if (!leg_submit(s, &s->legs[i], NULL, &err)) fail(s, err.text);
    if (s->why || atomic_load(&s->of->cancelled)) lq_cancel(s->e, s->of->id); // those on their way are its last
    if (!s->open) finish(s);
}

static bool on_leg(void *arg, const lq_event *e) {
    leg *l = arg;
    search *s = l->s;
    lq_req *q = s->q;
    q->id = s->of->id;
    if (e->prompt && !q->dropped) { // the first one tells of the prompt
        lq_event mine = *e;
        mine.id = q->id;
        mine.top_n = e->top_n < q->r.top_n ? e->top_n : q->r.top_n;
        q->dropped = q->r.on_event && !q->r.on_event(q->r.arg, &mine);
    } else if (e->count && !e->prompt) {
        l->tops = e->top_n;
        memcpy(l->top, e->top, (size_t)e->top_n * sizeof *l->top);
    }
    if (e->finish == LQ_RUNNING) return true;
    if (!s->length) q->cached = e->cached_tokens;
    if (e->finish > LQ_LENGTH && !s->why) {
        s->why = e->finish;
        if (e->error) snprintf(s->error, sizeof s->error, "%s", e->error);
    }
    if (!--s->open) round_end(s);
    return true;
}

// --- the beginning ---

static bool check(const lq_model *m, const lq_request *r, int wide, lq_err *err) {
    const lq_sampling *p = &r->sampling;
    const int n = r->n ? r->n : 1;
    if (r->beams < 0 || r->beams > LQ_BEAMS || n > r->beams)
        return lq_fail(err, LQ_E_USAGE, "beams is %d, expected n (%d) to %d", r->beams, n, LQ_BEAMS);
    if (wide > LQ_TOP || wide > m->desc.vocab)
        return lq_fail(err, LQ_E_USAGE, "beams and end tokens are %d together, expected at most %d", wide, LQ_TOP);
    if (r->stops || r->min_tokens || p->biases || p->presence != 0 || p->frequency != 0 ||
        (p->repetition != 0 && p->repetition != 1) || r->score_only || r->pool)
        return lq_fail(err, LQ_E_USAGE, "beam search knows no stop strings, min_tokens, biases or penalties");
    return isfinite(r->length_penalty) || lq_fail(err, LQ_E_USAGE, "length_penalty is not a number");
}

bool lq_beam_submit(lq_engine *e, const lq_request *r, uint64_t *id, lq_err *err) {
    const lq_model *m = lq_engine_model(e);
    uint64_t ignored;
    const int wide = r->beams + (r->ignore_eos ? 0 : m->desc.eoses) + r->stop_id_count;
    if (!check(m, r, wide, err)) return false;
    search *s = calloc(1, sizeof *s);
    if (!s) return lq_fail(err, LQ_E_MEMORY, "no memory for a search");
    if (!lq_req_new(m, r, lq_engine_ctx(e), &s->q, err)) {
        search_free(s);
        return false;
    }
    s->e = e;
    s->m = m;
    s->width = r->beams;
    s->wide = wide;
    s->penalty = r->length_penalty == 0 ? 1 : r->length_penalty;
    s->leg_count = 1;
    for (int i = 0; i < LQ_BEAMS; i++) s->legs[i].s = s;
    s->legs[0].h.node = -1;
    s->found = malloc((size_t)(s->width * wide) * sizeof *s->found);
    s->ids = malloc((size_t)(s->q->prompt + s->q->max_tokens) * sizeof *s->ids);
    s->work = malloc(lq_seq_work(m));
    if ((s->of = calloc(1, sizeof *s->of))) s->of->refs = 1;
    bool done = s->of && s->found && s->ids && s->work;
    if (!done) lq_fail(err, LQ_E_MEMORY, "no memory for a search");
    if (done) memcpy(s->ids, r->prompt, (size_t)s->q->prompt * sizeof *s->ids);
    done = done && leg_submit(s, &s->legs[0], id ? id : &ignored, err);
    if (!done) search_free(s);
    return done;
}
