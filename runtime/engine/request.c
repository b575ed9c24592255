// request.c: checks and copies requests; stop strings, end tokens, penalties' counts and events of one sequence.
// Refuses at submit, by name, whatever a later step could not do.
#include "runtime/engine/beam.h"
#include "runtime/engine/request.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { MAX_STOPS = 64, MAX_STOP_BYTES = 4096, MAX_CHOICES = 128, MAX_BIASES = 1 << 16, MAX_STOP_IDS = 1024 };

// --- checks ---
static bool in_range(const char *name, double v, double min, double max, lq_err *err) {
    return (v >= min && v <= max) || lq_fail(err, LQ_E_USAGE, "%s is %g, expected %g to %g", name, v, min, max);
}

// The numbers that are handed on to the sampler as they are, and their limits. Each is a float, or `whole` an int.
static const struct {
    const char *name;
    bool whole;
    size_t from, to; // in lq_sampling, in lq_draw
    double min, max;
} numbers[] = {
#define NUMBER(field) offsetof(lq_sampling, field), offsetof(lq_draw, field)
    {"temperature", false, NUMBER(temperature), 0, 100},
    {"top_p", false, NUMBER(top_p), 0, 1},
    {"min_p", false, NUMBER(min_p), 0, 1},
    {"typical_p", false, NUMBER(typical), 0, 1},
    {"top_k", true, NUMBER(top_k), 0, INT32_MAX},
    {"repetition_penalty", false, NUMBER(repetition), 0, 100},
    {"presence_penalty", false, NUMBER(presence), -100, 100},
    {"frequency_penalty", false, NUMBER(frequency), -100, 100},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static bool check_sampling(const lq_model *m, const lq_sampling *s, lq_err *err) {
    for (size_t i = 0; i < NUMBERS; i++) {
        const void *at = (const char *)s + numbers[i].from;
        const double v = numbers[i].whole ? *(const int *)at : (double)*(const float *)at;
        if (!in_range(numbers[i].name, v, numbers[i].min, numbers[i].max, err)) return false;
    }
    if (!in_range("number of biases", s->biases, 0, MAX_BIASES, err)) return false;
    if (s->repetition > 0 && s->repetition < 0.01f)
        return lq_fail(err, LQ_E_USAGE, "repetition_penalty is %g, expected 0 (off) or 0.01 to 100",
                       (double)s->repetition);
    if (s->biases && (!s->bias_id || !s->bias))
        return lq_fail(err, LQ_E_USAGE, "%d biases, but no list of them", s->biases);
    for (int i = 0; i < s->biases; i++) {
        if (s->bias_id[i] < 0 || s->bias_id[i] >= m->desc.vocab)
            return lq_fail(err, LQ_E_USAGE, "logit_bias names token %d, the vocabulary has %d", s->bias_id[i],
                           m->desc.vocab);
        if (isnan(s->bias[i]) || s->bias[i] > 1e9f)
            return lq_fail(err, LQ_E_USAGE, "logit_bias of token %d is %g, expected a number", s->bias_id[i],
                           (double)s->bias[i]);
    }
    return true;
}

static bool check(const lq_model *m, const lq_request *r, int ctx, lq_err *err) {
    if (!r->prompt_len || !r->prompt) return lq_fail(err, LQ_E_USAGE, "the prompt has no tokens");
    const bool whole = r->score_only || r->pool; // nothing is sampled
    if (whole && r->prompt_len > (size_t)ctx)
        return lq_fail(err, LQ_E_LIMIT, "the prompt has %zu tokens, the context holds %d", r->prompt_len, ctx);
    if (r->prompt_from < 0 || (size_t)r->prompt_from > r->prompt_len)
        return lq_fail(err, LQ_E_USAGE, "prompt_from is %d, the prompt has %zu tokens", r->prompt_from, r->prompt_len);
    if (whole && r->n > 1)
        return lq_fail(err, LQ_E_USAGE, "n is %d, expected 1 where nothing is sampled", r->n);
    if (!whole && r->prompt_len >= (size_t)ctx)
        return lq_fail(err, LQ_E_LIMIT, "the prompt has %zu tokens, the context holds %d and needs one to answer",
                       r->prompt_len, ctx);
    for (size_t i = 0; i < r->prompt_len; i++)
        if (r->prompt[i] < 0 || r->prompt[i] >= m->desc.vocab)
            return lq_fail(err, LQ_E_USAGE, "prompt token %zu is %d, the vocabulary has %d", i, r->prompt[i],
                           m->desc.vocab);
    if (!in_range("n", r->n, 0, MAX_CHOICES, err) || !in_range("top_n", r->top_n, 0, LQ_TOP, err) ||
        !in_range("stops", r->stops, 0, MAX_STOPS, err) ||
        !in_range("stop_ids", r->stop_id_count, 0, MAX_STOP_IDS, err) ||
        !in_range("max_tokens", r->max_tokens, 0, INT32_MAX, err) ||
        !in_range("min_tokens", r->min_tokens, 0, INT32_MAX, err))
        return false;
    if ((r->stops && !r->stop) || (r->stop_id_count && !r->stop_ids))
        return lq_fail(err, LQ_E_USAGE, "stops are counted but not given");
    for (int i = 0; i < r->stops; i++) {
        const size_t n = r->stop[i] ? strlen(r->stop[i]) : 0;
        if (!n || n > MAX_STOP_BYTES)
            return lq_fail(err, LQ_E_USAGE, "stop string %d has %zu bytes, expected 1 to %d", i, n, MAX_STOP_BYTES);
    }
    return check_sampling(m, &r->sampling, err) && lq_embed_check(m, r, err);
}

// --- making ---
static bool copy_stops(lq_req *q, const lq_request *r) {
    if (!r->stops) return true;
    q->stop = calloc((size_t)r->stops, sizeof *q->stop);
    q->stop_len = calloc((size_t)r->stops, sizeof *q->stop_len);
    if (!q->stop || !q->stop_len) return false;
    for (int i = 0; i < r->stops; i++) {
        if (!(q->stop[i] = strdup(r->stop[i]))) return false;
        q->stop_len[i] = strlen(r->stop[i]);
        if (q->stop_len[i] > q->longest_stop) q->longest_stop = q->stop_len[i];
    }
    return true;
}

// The caller's biases, then every end token with -inf: min_tokens uses all, later tokens only the caller's.
static bool copy_biases(const lq_model *m, lq_req *q, const lq_request *r) {
    const int n = r->sampling.biases, all = n + m->desc.eoses + r->stop_id_count;
    q->bias_id = malloc((size_t)(all + 1) * sizeof *q->bias_id);
    q->bias = malloc((size_t)(all + 1) * sizeof *q->bias);
    q->stop_ids = malloc((size_t)(r->stop_id_count + 1) * sizeof *q->stop_ids);
    if (!q->bias_id || !q->bias || !q->stop_ids) return false;
    if (n) memcpy(q->bias_id, r->sampling.bias_id, (size_t)n * sizeof *q->bias_id);
    if (n) memcpy(q->bias, r->sampling.bias, (size_t)n * sizeof *q->bias);
    if (r->stop_id_count) memcpy(q->stop_ids, r->stop_ids, (size_t)r->stop_id_count * sizeof *q->stop_ids);
    for (int i = n; i < all; i++) {
        q->bias_id[i] = i - n < m->desc.eoses ? m->desc.eos[i - n] : r->stop_ids[i - n - m->desc.eoses];
        q->bias[i] = -INFINITY;
    }
    return true;
}

static bool penalised(const lq_sampling *s) {
    return (s->repetition != 0 && s->repetition != 1) || s->presence != 0 || s->frequency != 0;
}

static void count_token(lq_seq *s, int32_t id, bool prompt) {
    uint32_t at = (uint32_t)id * 2654435761u;
    while (s->seen_slot[at %= (uint32_t)s->seen_cap] >= 0 && s->seen[s->seen_slot[at]] != id) at++;
    int i = s->seen_slot[at];
    if (i < 0) {
        i = s->seen_slot[at] = s->seens++;
        s->seen[i] = id;
        s->seen_n[i] = s->prompt_n[i] = 0;
    }
    uint16_t *n = prompt ? &s->prompt_n[i] : &s->seen_n[i];
    if (*n < UINT16_MAX) ++*n;
}

static bool seq_new(const lq_model *m, lq_req *q, int choice) {
    lq_seq *s = &q->seq[choice];
    const size_t all = (size_t)q->prompt + (size_t)q->max_tokens;
    const size_t distinct = all < (size_t)m->desc.vocab ? all : (size_t)m->desc.vocab;
    *s = (lq_seq){.req = q, .choice = choice, .kv = -1, .len = q->prompt, .prompt = q->prompt};
    s->held_cap = q->longest_stop + lq_seq_work(m);
    q->bytes += all * sizeof *s->ids + s->held_cap + sizeof *s;
    s->ids = malloc(all * sizeof *s->ids);
    s->held = malloc(s->held_cap);
    if (!s->ids || !s->held) return false;
    memcpy(s->ids, q->r.prompt, (size_t)q->prompt * sizeof *s->ids);
    if (choice) s->detok = q->seq[0].detok;
    for (int i = 0; !choice && i < q->prompt; i++) lq_detok_next(m->tok, &s->detok, s->ids[i], s->held);
    if (!penalised(&q->r.sampling)) return true;
    q->bytes += distinct * 16;
    s->seen_cap = (int)(distinct * 2);
    s->seen = malloc(distinct * sizeof *s->seen);
    s->seen_n = malloc(distinct * sizeof *s->seen_n);
    s->prompt_n = malloc(distinct * sizeof *s->prompt_n);
    s->seen_slot = malloc((size_t)s->seen_cap * sizeof *s->seen_slot);
    if (!s->seen || !s->seen_n || !s->prompt_n || !s->seen_slot) return false;
    memset(s->seen_slot, -1, (size_t)s->seen_cap * sizeof *s->seen_slot);
    for (int i = 0; i < q->prompt; i++) count_token(s, s->ids[i], true);
    return true;
}

bool lq_req_new(const lq_model *m, const lq_request *r, int ctx, lq_req **out, lq_err *err) {
    *out = NULL;
    if (!check(m, r, ctx, err)) return false;
    lq_req *q = calloc(1, sizeof *q);
    if (!q) return lq_fail(err, LQ_E_MEMORY, "no memory for a request");
    q->r = *r;
    if (!q->r.n) q->r.n = 1;
    q->live = q->r.n;
    q->prompt = (int)r->prompt_len;
    q->max_tokens = r->max_tokens && r->max_tokens < ctx - q->prompt ? r->max_tokens : ctx - q->prompt;
    q->r.score_only = r->score_only || r->pool;
    if (q->r.score_only) q->max_tokens = 0;
    if (r->prompt_logprobs) q->reported = r->prompt_from;
    q->seed = r->sampling.seed;
    bool done = r->sampling.seeded || getrandom(&q->seed, sizeof q->seed, 0) == (ssize_t)sizeof q->seed;
    done = done && (q->seq = calloc((size_t)q->r.n, sizeof *q->seq)) != NULL && copy_stops(q, r) &&
           copy_biases(m, q, r) && lq_embed_open(m, q);
    for (int i = 0; done && i < q->r.n; i++) done = seq_new(m, q, i);
    if (!done) {
        lq_req_free(q);
        return lq_fail(err, LQ_E_MEMORY, "no memory for a request of %zu tokens", r->prompt_len);
    }
    q->r.prompt = q->seq[0].ids;
    q->r.sampling.bias_id = q->bias_id;
    q->r.sampling.bias = q->bias;
    q->r.stop = NULL;
    q->r.stop_ids = q->stop_ids;
    *out = q;
    return true;
}

void lq_req_free(lq_req *q) {
    if (!q) return;
    lq_beam_release(q->beam);
    for (int i = 0; q->seq && i < q->r.n; i++) {
        lq_seq *s = &q->seq[i];
        void *const parts[] = {s->ids, s->held, s->seen, s->seen_n, s->prompt_n, s->seen_slot};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) free(parts[k]);
    }
    for (int i = 0; q->stop && i < q->r.stops; i++) free(q->stop[i]);
    void *const parts[] = {q->seq, q->stop, q->stop_len, q->bias_id, q->bias, q->stop_ids, q->sum, q->vector};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) free(parts[k]);
    free(q);
}

// --- drawing ---
void lq_seq_draw(const lq_model *m, const lq_seq *s, lq_draw *d) {
    const lq_req *q = s->req;
    const lq_sampling *p = &q->r.sampling;
    const int sampled = s->len - s->prompt, ends = m->desc.eoses + q->r.stop_id_count;
    *d = (lq_draw){.bias_id = q->bias_id, .bias = q->bias, .biases = p->biases + (sampled < q->r.min_tokens ? ends : 0),
                   .seen = s->seen, .seen_n = s->seen_n, .prompt_n = s->prompt_n, .seens = s->seens, .seed = q->seed,
                   .choice = (uint32_t)s->choice, .position = (uint32_t)s->len,
                   .top_n = q->r.logprobs ? q->r.top_n : 0, .no_logprob = !q->r.logprobs};
    for (size_t i = 0; i < NUMBERS; i++)
        memcpy((char *)d + numbers[i].to, (const char *)p + numbers[i].from, sizeof(float));
}

// --- text ---
size_t lq_seq_work(const lq_model *m) { return LQ_DETOK_ROOM(lq_tokenizer_longest(m->tok)) + 64; }

bool lq_req_ends(const lq_model *m, const lq_req *q, int32_t id) {
    for (int i = 0; i < q->r.stop_id_count; i++)
        if (q->stop_ids[i] == id) return true;
    return !q->r.ignore_eos && lq_token_is_end(m, id);
}

// The first stop string in the held text; of several that begin there, the first of the request's list. -1: none.
static int find_stop(const lq_seq *s, size_t *at) {
    const lq_req *q = s->req;
    int found = -1;
    for (int i = 0; i < q->r.stops; i++) {
        const char *p = memmem(s->held, s->holds, q->stop[i], q->stop_len[i]);
        if (p && (found < 0 || (size_t)(p - s->held) < *at)) {
            found = i;
            *at = (size_t)(p - s->held);
        }
    }
    return found;
}

// How many bytes at the end of the held text may be the beginning of a stop string.
static size_t stop_prefix(const lq_seq *s) {
    const lq_req *q = s->req;
    for (size_t n = q->longest_stop < s->holds ? q->longest_stop : s->holds; n > 0; n--)
        for (int i = 0; i < q->r.stops; i++)
            if (q->stop_len[i] > n && !memcmp(s->held + s->holds - n, q->stop[i], n)) return n;
    return 0;
}

static int characters(const char *p, size_t n) {
    int chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)p[i] & 0xC0) != 0x80;
    return chars;
}

// One who wants no more still hears of the end.
static void tell_caller(lq_req *q, const lq_event *e) {
    if ((q->dropped && e->finish == LQ_RUNNING) || !q->r.on_event || q->r.on_event(q->r.arg, e)) return;
    q->dropped = true;
    q->cancelled = true;
}

static void tell(lq_seq *s, lq_event *e) {
    lq_req *q = s->req;
    e->id = q->id;
    e->choice = s->choice;
    e->prompt_tokens = q->prompt;
    e->cached_tokens = q->cached;
    e->sampled_tokens = s->len - s->prompt;
    e->finish = s->finish;
    if (s->finish == LQ_STOP) e->embedding = q->vector, e->dims = q->dims;
    if (s->finish != LQ_RUNNING) q->live--;
    tell_caller(q, e);
}

void lq_req_prompt(const lq_model *m, lq_req *q, const float *logprob, const lq_top *top, int top_n, char *work) {
    const int32_t *token = &q->r.prompt[q->reported++];
    const int at = q->told_chars;
    q->told_chars += characters(work, lq_detok_next(m->tok, &q->told, *token, work));
    tell_caller(q, &(lq_event){.id = q->id, .text = "", .prompt = true, .tokens = token, .logprobs = logprob,
                               .top = top_n ? top : NULL,
                               .top_n = top_n, .offsets = &at, .count = 1, .stop_index = -1, .prompt_tokens = q->prompt,
                               .cached_tokens = q->cached});
}

void lq_seq_take(const lq_model *m, lq_seq *s, const lq_drawn *d, const lq_top *top, char *work) {
    lq_req *q = s->req;
    const int begins = s->chars;
    lq_event e = {.tokens = &d->token, .offsets = &begins, .logprobs = q->r.logprobs ? &d->logprob : NULL,
                  .top = q->r.logprobs && q->r.top_n ? top : NULL, .top_n = q->r.top_n, .count = 1, .stop_index = -1};
    s->ids[s->len++] = d->token;
    if (s->seen) count_token(s, d->token, false);
    const int sampled = s->len - s->prompt;
    size_t fresh = 0, deliver;
    if (lq_req_ends(m, q, d->token) && sampled > q->r.min_tokens) s->finish = LQ_STOP;
    if (s->finish == LQ_RUNNING || q->r.keep_stop) fresh = lq_detok_next(m->tok, &s->detok, d->token, work);
    if (s->finish == LQ_RUNNING && sampled == q->max_tokens) s->finish = LQ_LENGTH;
    if (s->finish != LQ_RUNNING) fresh += lq_detok_end(&s->detok, work + fresh);
    s->chars += characters(work, fresh);
    memcpy(s->held + s->holds, work, fresh);
    deliver = s->holds += fresh;
    size_t at = 0;
    const int stop = sampled > q->r.min_tokens && q->r.stops ? find_stop(s, &at) : -1;
    if (stop >= 0) {
        s->finish = LQ_STOP;
        e.stop_index = stop;
        deliver = at + (q->r.keep_stop ? q->stop_len[stop] : 0);
    } else if (s->finish == LQ_RUNNING) deliver -= stop_prefix(s);
    e.text = s->held;
    e.text_len = deliver;
    tell(s, &e);
    memmove(s->held, s->held + deliver, s->holds - deliver);
    s->holds -= deliver;
}

void lq_seq_end(lq_seq *s, lq_finish why, const char *error, char *work) {
    const size_t n = lq_detok_end(&s->detok, work);
    memcpy(s->held + s->holds, work, n);
    s->finish = why;
    tell(s, &(lq_event){.text = s->held, .text_len = s->holds + n, .stop_index = -1, .error = error});
    s->holds = 0;
}
