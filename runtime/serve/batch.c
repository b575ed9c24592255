// batch.c: a batch: requests from a file through the protocols into the engine, and what they were answered into
// another file. Owns the requests that are under way.
//
// The caller's thread reads, parses, tokenizes, submits and writes; another one steps the engine. What the engine's
// queue holds is what is under way, so that steps are full and memory is bounded. A step's answers are handed over when
// it is through: of one that failed nothing is written, and the run breaks off.
#include "runtime/serve/batch.h"
#include "runtime/serve/loop.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { WAIT_MS = 100 }; // how long nothing may come before the caller is asked whether to go on

typedef struct ask ask;
typedef struct part { // one prompt in the engine
    ask *of;
    int64_t prompt;
    uint64_t id;
    int live; // choices that have not ended; the engine thread's
} part;

struct ask {
    lq_batch *b;
    ask *next, *prev;     // in b->live
    ask *ended;           // in b->fresh and b->ended
    uint64_t line, number;
    char *custom;         // [custom_len]; NULL: it has none
    size_t custom_len;
    char url[128];        // whose words errors are in; "": OpenAI's
    part *parts;          // [part_count]
    int64_t part_count;
    atomic_int open;      // parts that have not ended
    atomic_bool refused;  // what the engine says is not wanted
    lq_refusal no;        // why; status 0: it is not refused
    lq_answer answer;
};

struct lq_batch {
    lq_batch_files files;
    lq_batch_opts o;      // with strings of its own
    lq_batch_state now;
    lq_api api;
    char called[256];     // the model, by default
    lq_engine *e;
    double begun, ticked;
    uint64_t prefix, number, sampled; // of ids; requests so far; by the engine before
    ask *live;            // that the engine has
    ask *held;            // the one that has no place yet
    lq_completion asked;  // what it asks
    int64_t sent;         // parts of it that the engine has
    ask *fresh;           // ended in this step; the engine thread's
    atomic_bool quit;     // the engine's thread is to end
    pthread_mutex_t lock; // of what follows
    pthread_cond_t bell;
    ask *ended;
    bool broken;          // a step failed
    lq_err why;
};

// --- requests ---

static ask *ask_new(lq_batch *b, const lq_said *said) {
    ask *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->b = b;
    a->line = b->files.in.number;
    a->number = b->prefix + b->number++;
    if (said && said->custom) {
        if (!(a->custom = malloc(said->custom_len))) return free(a), NULL;
        memcpy(a->custom, said->custom, a->custom_len = said->custom_len);
    }
    if (said) memcpy(a->url, said->url, sizeof a->url);
    return a;
}

static void ask_free(ask *a) {
    lq_answer_free(&a->answer);
    free(a->parts);
    free(a->custom);
    free(a);
}

static void list(ask *a, bool in) {
    ask **first = &a->b->live;
    if (in) {
        a->next = *first;
        if (a->next) a->next->prev = a;
        *first = a;
    } else {
        if (a->prev) a->prev->next = a->next;
        else *first = a->next;
        if (a->next) a->next->prev = a->prev;
    }
}

// --- what is written ---

static void error_put(lq_text *to, const ask *a, const lq_refusal *no) {
    const char *const code = no->code ? no->code : no->status < 500 ? "invalid_request" : "server_error";
    lq_text_fmt(to, "{\"code\":\"%s\",\"message\":", code);
    char text[sizeof no->text + 32];
    snprintf(text, sizeof text, "line %" PRIu64 ": %s", a->line, no->text);
    lq_text_json(to, text, strlen(text));
    lq_text_fmt(to, ",\"param\":");
    if (*no->param) lq_text_json(to, no->param, strlen(no->param));
    else lq_text_fmt(to, "null");
    lq_text_fmt(to, ",\"line\":%" PRIu64 "}", a->line);
}

static void fail_note(lq_batch *b, const ask *a, const lq_refusal *no) {
    if (!b->now.failed++)
        snprintf(b->now.failure, sizeof b->now.failure, "line %" PRIu64 ": %.220s", a->line, no->text);
}

// `no` NULL: what the engine answered. A line that is no request (`no` without a status) has no response.
static bool answer_write(lq_batch *b, const ask *a, const lq_refusal *no, lq_err *err) {
    static const lq_refusal memory = {.status = 500, .text = "no memory for the answer"};
    lq_text t = {0};
    char id[24];
    snprintf(id, sizeof id, "req-%016" PRIx64, a->number);
    if (!no && a->answer.out.failed) no = &memory;
    lq_text_fmt(&t, "{\"id\":\"batch_req_%016" PRIx64 "\",\"custom_id\":", a->number);
    if (a->custom) lq_text_json(&t, a->custom, a->custom_len);
    else lq_text_fmt(&t, "null");
    if (no && !no->status) lq_text_fmt(&t, ",\"response\":null");
    else {
        lq_text_fmt(&t, ",\"response\":{\"status_code\":%d,\"request_id\":\"%s\",\"body\":", no ? no->status : 200, id);
        if (no) lq_refusal_write(no, *a->url ? a->url : NULL, id, &t);
        else lq_text_add(&t, a->answer.out.p, a->answer.out.n);
        lq_text_fmt(&t, "}");
    }
    lq_text_fmt(&t, ",\"error\":");
    if (no) error_put(&t, a, no);
    else lq_text_fmt(&t, "null");
    lq_text_fmt(&t, "}\n");
    const bool done = lq_batch_files_write(&b->files, &t, err);
    lq_text_free(&t);
    if (!done) return false;
    b->now.done++;
    if (no) fail_note(b, a, no);
    b->now.prompt_tokens += (uint64_t)a->answer.prompt_tokens;
    b->now.cached_tokens += (uint64_t)a->answer.cached_tokens;
    b->now.sampled_tokens += (uint64_t)a->answer.sampled_tokens;
    return true;
}

// What has ended. Of what cannot be written any more nothing is lost: it is asked again.
static bool ended_write(lq_batch *b, lq_err *err) {
    pthread_mutex_lock(&b->lock);
    ask *a = b->ended, *rest;
    b->ended = NULL;
    pthread_mutex_unlock(&b->lock);
    bool done = true;
    for (; a; a = rest) {
        rest = a->ended;
        const lq_refusal *no = a->no.status ? &a->no : a->answer.failure.status ? &a->answer.failure : NULL;
        done = done && answer_write(b, a, no, err);
        list(a, false);
        ask_free(a);
    }
    return done;
}

// --- the engine ---

static bool on_event(void *arg, const lq_event *e) {
    part *p = arg;
    ask *a = p->of;
    bool wanted = !atomic_load(&a->refused);
    if (wanted) {
        lq_answer_event(&a->answer, p->prompt, e);
        wanted = !a->answer.failure.status; // part of a request that failed is not worth the rest of it
    }
    if (e->finish == LQ_RUNNING || --p->live || atomic_fetch_sub(&a->open, 1) != 1) return wanted;
    a->ended = a->b->fresh;
    a->b->fresh = a;
    return wanted;
}

static void hand_over(lq_batch *b) {
    if (!b->fresh) return;
    pthread_mutex_lock(&b->lock);
    for (ask *a = b->fresh, *rest; a; a = rest) {
        rest = a->ended;
        a->ended = b->ended;
        b->ended = a;
    }
    pthread_cond_signal(&b->bell);
    pthread_mutex_unlock(&b->lock);
    b->fresh = NULL;
}

static void *engine_run(void *arg) {
    lq_batch *b = arg;
    while (!atomic_load(&b->quit)) {
        bool busy = false;
        lq_err err = {0};
        if (!lq_engine_step(b->e, &busy, &err)) {
            pthread_mutex_lock(&b->lock);
            b->broken = true;
            b->why = err;
            pthread_cond_signal(&b->bell);
            pthread_mutex_unlock(&b->lock);
            break;
        }
        hand_over(b);
        if (!busy) lq_engine_wait(b->e, -1);
    }
    return NULL;
}

// Until something has ended, or the caller is to be asked again.
static void ended_wait(lq_batch *b) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&b->lock);
    int late = 0;
    while (!b->ended && !b->broken && !late) late = pthread_cond_timedwait(&b->bell, &b->lock, &until);
    pthread_mutex_unlock(&b->lock);
}

// --- a line becomes a request ---

static bool line_refuse(lq_batch *b, const char *code, lq_err *err, const char *fmt, ...) LQ_PRINTF(4, 5);
static bool line_refuse(lq_batch *b, const char *code, lq_err *err, const char *fmt, ...) {
    lq_refusal no;
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    lq_refuse(&no, 0, NULL, code, "%s", text);
    ask *a = ask_new(b, NULL);
    if (!a) return lq_fail(err, LQ_E_MEMORY, "no memory for a request");
    const bool done = answer_write(b, a, &no, err);
    ask_free(a);
    return done;
}

static bool may_ask(const lq_said *said, lq_refusal *no) {
    if (strcmp(said->method, "POST"))
        return lq_refuse(no, 405, "method", "invalid_method", "method: expected \"POST\"");
    if (!lq_dialect_at(said->url))
        return lq_refuse(no, 404, "url", "invalid_url", "url: expected a path like /v1/chat/completions");
    return said->body || lq_refuse(no, 400, "body", "missing_body", "body: expected an object");
}

static bool ask_begin(lq_batch *b, ask *a, const lq_said *said, lq_refusal *no) {
    lq_completion *c = &b->asked;
    if (!may_ask(said, no)) return false;
    if (!lq_completion_parse(&b->api, lq_dialect_at(said->url), said->body, said->body_len, c, no)) return false;
    bool done = !c->stream || lq_refuse(no, 400, "stream", NULL, "stream: a batch's answers are whole");
    done = done && lq_completion_encode(&b->api, c, no);
    if (done) {
        a->part_count = c->prompt_count;
        a->parts = calloc((size_t)a->part_count, sizeof *a->parts);
        done = (a->parts && lq_answer_begin(&a->answer, &b->api, c, a->number, (int64_t)time(NULL))) ||
               lq_refuse(no, 500, NULL, NULL, "no memory for a request");
    }
    if (!done) lq_completion_free(c);
    return done;
}

// Whether it is to be asked: not what stands in the output already. *done: whether the run goes on.
static bool is_new(lq_batch *b, const lq_said *said, const char *broken, bool *done, lq_err *err) {
    lq_batch_files *f = &b->files;
    const uint64_t line = f->in.number;
    const lq_met name = said->custom ? lq_name_of(said->custom, said->custom_len, line) : lq_name_of_line(line);
    uint32_t before = 0;
    *done = line <= UINT32_MAX || lq_fail(err, LQ_E_LIMIT, "%s: has more than %u lines", f->in.path, UINT32_MAX);
    if (!*done) return false;
    if (lq_met_find(&f->told, name) || lq_met_find(&f->told, lq_name_of_line(line))) {
        if (!f->in_plain) b->now.before++;
        return false;
    }
    if (!said->custom) *done = line_refuse(b, "invalid_line", err, "%s", broken);
    else if (!f->in_plain && !lq_met_add(&f->asked, name, &before))
        *done = lq_fail(err, LQ_E_MEMORY, "no memory for a batch's names");
    else if (before)
        *done = line_refuse(b, "duplicate_custom_id", err, "custom_id \"%.*s\" is that of line %u too",
                            said->custom_len < 100 ? (int)said->custom_len : 100, said->custom, before);
    return *done && said->custom && !before;
}

static bool line_take(lq_batch *b, lq_line got, const char *text, size_t n, lq_err *err) {
    lq_batch_files *f = &b->files;
    lq_said said = {0};
    lq_err why = {0};
    lq_refusal no = {0};
    bool done;
    if (got == LQ_LINE && lq_said_blank(text, n)) return true;
    if (got == LQ_LINE_LONG) lq_fail(&why, LQ_E_LIMIT, "longer than %zu bytes", f->in.most);
    else if (lq_said_read(&f->in, text, n, "no request", &said, &why) && !said.custom)
        lq_fail(&why, LQ_E_FORMAT, "custom_id: expected a text that is not empty");
    if (!is_new(b, &said, why.text, &done, err)) return done;
    ask *a = ask_new(b, &said);
    if (!a) return lq_fail(err, LQ_E_MEMORY, "no memory for a request");
    if (ask_begin(b, a, &said, &no)) {
        b->held = a;
        b->sent = 0;
        atomic_init(&a->open, (int)a->part_count);
        list(a, true);
        return true;
    }
    done = answer_write(b, a, &no, err);
    ask_free(a);
    return done;
}

typedef enum turn { GOES_ON, WAITS, IS_OVER, FAILS } turn;

static turn line_next(lq_batch *b, lq_err *err) {
    const char *text;
    size_t n;
    const lq_line got = lq_lines_next(&b->files.in, WAIT_MS, &text, &n, err);
    switch (got) {
    case LQ_LINE:
    case LQ_LINE_LONG: return line_take(b, got, text, n, err) ? GOES_ON : FAILS;
    case LQ_LINE_WAIT: return GOES_ON; // it has waited
    case LQ_LINE_OVER: return b->live ? WAITS : IS_OVER;
    default: return FAILS;
    }
}

// What the engine does not take is refused when those parts of it have ended that it took.
static bool held_refuse(lq_batch *b, const lq_err *why, lq_err *err) {
    ask *a = b->held;
    const int rest = (int)(a->part_count - b->sent);
    lq_refuse_error(&a->no, lq_completion_param(&b->asked), why);
    atomic_store(&a->refused, true);
    if (atomic_fetch_sub(&a->open, rest) != rest) return true;
    const bool done = answer_write(b, a, &a->no, err);
    list(a, false);
    ask_free(a);
    return done;
}

static turn held_submit(lq_batch *b, lq_err *err) {
    ask *a = b->held;
    const int64_t count = a->part_count;
    bool done = true;
    // Once its last part is submitted, a is the engine thread's.
    while (done && b->sent < count) {
        part *p = &a->parts[b->sent];
        lq_request q = lq_completion_request(&b->asked, b->sent);
        lq_err why;
        *p = (part){.of = a, .prompt = b->sent, .live = q.n};
        q.on_event = on_event;
        q.arg = p;
        q.beside = b->sent > 0;
        if (lq_submit(b->e, &q, &p->id, &why)) {
            b->sent++;
            continue;
        }
        if (why.code == LQ_E_BUSY) return WAITS; // others are in the engine, or there would be a place
        done = held_refuse(b, &why, err);
        break;
    }
    b->held = NULL;
    lq_completion_free(&b->asked);
    return done ? GOES_ON : FAILS;
}

// --- the run ---

static bool tick_now(lq_batch *b, lq_batch_tick *tick, void *arg, bool always, lq_err *err) {
    const double at = lq_serve_clock();
    lq_engine_stats stats;
    if (!always && at - b->ticked < WAIT_MS * 1e-3) return true;
    b->ticked = at;
    lq_engine_describe(b->e, &stats);
    b->now.seconds = at - b->begun;
    b->now.running_tokens = stats.sampled_tokens - b->sampled;
    return !tick || tick(arg, &b->now) || lq_fail(err, LQ_E_CANCELLED, "stopped");
}

static bool is_broken(lq_batch *b, lq_err *err) {
    pthread_mutex_lock(&b->lock);
    const bool broken = b->broken;
    if (broken && err) *err = b->why;
    pthread_mutex_unlock(&b->lock);
    return broken;
}

static bool run(lq_batch *b, lq_batch_tick *tick, void *arg, lq_err *err) {
    turn t = GOES_ON;
    while (t != IS_OVER) {
        if (!ended_write(b, err) || is_broken(b, err) || !tick_now(b, tick, arg, false, err)) return false;
        t = b->held ? held_submit(b, err) : line_next(b, err);
        if (t == FAILS) return false;
        if (t == WAITS) ended_wait(b);
    }
    return true;
}

// Nothing of the run is left in the engine; what is through, and only that, is written.
static bool run_end(lq_batch *b, pthread_t thread, lq_err *err) {
    bool busy = true;
    atomic_store(&b->quit, true);
    lq_engine_wake(b->e);
    pthread_join(thread, NULL);
    const bool done = ended_write(b, err);
    for (const ask *a = b->live; a; a = a->next)
        for (int64_t i = 0; i < a->part_count; i++) lq_cancel(b->e, a->parts[i].id);
    while (busy) lq_engine_step(b->e, &busy, NULL);
    if (b->held) lq_completion_free(&b->asked);
    for (ask *a = b->live, *rest; a; a = rest) {
        rest = a->next;
        ask_free(a);
    }
    b->live = b->held = b->fresh = NULL;
    return done;
}

static void api_begin(lq_batch *b, lq_model *m, lq_engine *e) {
    lq_model_info info;
    lq_engine_stats stats;
    lq_model_describe(m, &info);
    lq_engine_describe(e, &stats);
    snprintf(b->called, sizeof b->called, "%s", b->o.name ? b->o.name : info.arch);
    b->e = e;
    b->sampled = stats.sampled_tokens;
    b->api = (lq_api){.model = m, .name = b->called, .vocab = info.vocab, .ctx = stats.ctx,
                      .max_body = b->o.max_body ? b->o.max_body : 4 << 20, .priorities = true};
    if (getrandom(&b->prefix, sizeof b->prefix, 0) != (ssize_t)sizeof b->prefix)
        b->prefix = (uint64_t)time(NULL) << 32;
}

bool lq_batch_run(lq_batch *b, lq_model *m, lq_engine *e, lq_batch_tick *tick, void *arg, lq_err *err) {
    const lq_serve_opts so = {.chat_template = b->o.chat_template};
    lq_err mine = {0};
    pthread_t thread;
    if (!err) err = &mine;
    if (b->begun > 0) return lq_fail(err, LQ_E_USAGE, "this batch was run already");
    b->begun = lq_serve_clock();
    api_begin(b, m, e);
    bool done = lq_api_open(&b->api, &so, err);
    if (done && pthread_create(&thread, NULL, engine_run, b))
        done = lq_fail(err, LQ_E_MEMORY, "the batch's thread could not be started");
    else if (done) {
        lq_err late;
        done = run(b, tick, arg, err);
        if (!run_end(b, thread, &late) && done) *err = late, done = false;
        tick_now(b, NULL, NULL, true, NULL);
    }
    lq_api_close(&b->api);
    if (!lq_batch_files_close(&b->files, done, &mine) && done) *err = mine, done = false;
    return done;
}

#define TEXTS(b) {&(b)->o.in, &(b)->o.out, &(b)->o.name, &(b)->o.chat_template}
enum { TEXT_COUNT = 4 };

bool lq_batch_open(const lq_batch_opts *o, lq_batch **out, lq_err *err) {
    pthread_condattr_t attr;
    lq_batch *b = *out = calloc(1, sizeof *b);
    if (!b) return lq_fail(err, LQ_E_MEMORY, "no memory for a batch");
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->bell, &attr);
    pthread_condattr_destroy(&attr);
    b->o = *o;
    const char **const texts[] = TEXTS(b);
    bool done = true;
    for (size_t i = 0; i < TEXT_COUNT; i++)
        if (*texts[i] && !(*texts[i] = strdup(*texts[i]))) done = lq_fail(err, LQ_E_MEMORY, "no memory for a batch");
    if (done && lq_batch_files_open(&b->files, &b->o, err)) {
        b->now.total = b->files.total;
        b->now.before = b->files.before;
        b->now.before_failed = b->files.before_failed;
        return true;
    }
    lq_batch_close(b);
    *out = NULL;
    return false;
}

void lq_batch_describe(const lq_batch *b, lq_batch_state *out) { *out = b->now; }

void lq_batch_close(lq_batch *b) {
    if (!b) return;
    lq_batch_files_close(&b->files, false, NULL);
    pthread_mutex_destroy(&b->lock);
    pthread_cond_destroy(&b->bell);
    const char **const texts[] = TEXTS(b);
    for (size_t i = 0; i < TEXT_COUNT; i++) free((char *)(uintptr_t)*texts[i]);
    free(b);
}
