// http.c: the server: a socket, libmicrohttpd's threads, the engine's thread and a watcher (the caller of lq_serve).
// Owns connections and the requests on them; what is said over them is openai.c's. Refuses bodies past a limit,
// strangers without the key, and everything new while it drains.
//
// A completion's connection is suspended while there is nothing to send. The engine's thread appends to the
// request's answer and resumes it; the watcher polls the sockets of open completions, because libmicrohttpd does
// not look at a suspended one. A client that is gone is cancelled at once; one that does not read is cancelled when
// its unread bytes pass STREAM_CAP. A client that only closed its own half may still be reading: a stream is sent a
// comment line, which a closed socket answers with a reset and a half open one ignores; a plain answer can't ask
// and counts the client as gone.
//
// libmicrohttpd polls: with epoll it never sees an end that comes together with the data before it, and does not clean
// up a stream that was ended behind an older idle connection, until the time limit takes that one.
//
// Locks: server.lock (the list), then request.lock (the answer), then the engine's or libmicrohttpd's
// own. on_event holds none of the engine's. A request lives until its connection and every one of its
// engine requests have let go of it.
#include "runtime/serve/server.h"
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    STREAM_CAP = 1 << 20,  // bytes a stream's client may leave unread, beside what the socket holds
    ANSWER_CAP = 64 << 20, // bytes of an answer that is not streamed
    BODIES = 16,           // request bodies of the largest size that may be in memory at once
    THREADS = 2,           // of libmicrohttpd
    IDLE_SECONDS = 120,    // a connection on which nothing moves is closed
    WHOLE_SECONDS = 10,    // also while a request on it is not whole yet
    FLUSH_SECONDS = 2,     // after the drain, for clients to read what is ready
    STREAM_BLOCK = 16 << 10
};

typedef struct request request;
typedef struct server server;
typedef enum outcome { ANSWERED, REFUSED, UNDER_WAY } outcome;

typedef struct route {
    const char *path;
    bool prefix, post, free; // free: no key needed
    const char *type;
    outcome (*run)(request *r, const char *rest);
} route;

typedef struct part { // one prompt in the engine
    request *r;
    int64_t prompt;
    uint64_t id;
    int live; // choices that have not ended; the engine thread's
} part;

struct request {
    server *s;
    struct MHD_Connection *conn;
    const route *route; // NULL: none
    char *rest;         // of the path, after a prefix
    lq_refusal no;      // known before the body is: status 0, none
    lq_text body, out;
    size_t counted;     // of the body, in server.bodies
    int status;
    bool reading, listed, unframed; // unframed: where its body ends is not certain
    const char *method, *allow; // "-": one that nothing here answers
    char id[64];                // X-Request-Id: the client's, or ours
    request *next, *prev; // in server.open
    double begun, first;
    atomic_int refs;

    pthread_mutex_t lock; // of what follows
    part *parts;          // [part_count]
    int64_t part_count;
    lq_answer answer;
    size_t taken;         // of answer.out
    int fd;
    uint64_t number;      // what the watcher knows it by
    bool suspended, refused /* what the engine says is not wanted */, gone, unwanted /* the watcher is to cancel it */;
};

struct server {
    lq_engine *e;
    const lq_serve_opts *o;
    lq_api api;
    char name[256];
    struct MHD_Daemon *daemon;
    pthread_t engine;
    bool engine_runs;
    int socket, epoll, wake;
    size_t max_body;
    int64_t started;
    uint64_t prefix;          // of ids
    pthread_mutex_t lock;
    request *open;            // those whose answer is under way
    atomic_bool draining, quit, sick;
    atomic_size_t bodies;     // bytes of bodies in memory
    atomic_int live;          // engine requests that have not ended
    atomic_uint_fast64_t number, ids, ended[LQ_FAILED + 1], replies[6]; // replies: by hundreds of the status
};

static atomic_int stops;         // calls of lq_serve_stop
static atomic_int stop_fd = -1;  // made once, kept: a signal handler may hold it
static atomic_flag serving = ATOMIC_FLAG_INIT;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void poke(int fd) {
    const uint64_t one = 1;
    const ssize_t n = write(fd, &one, sizeof one); // full means that it is awake already
    (void)n;
}

// --- requests ---

static void body_drop(request *r) {
    atomic_fetch_sub(&r->s->bodies, r->counted);
    r->counted = 0;
    lq_text_free(&r->body);
    r->body = (lq_text){0};
}

static void release(request *r) {
    if (atomic_fetch_sub(&r->refs, 1) != 1) return;
    body_drop(r);
    lq_answer_free(&r->answer);
    lq_text_free(&r->out);
    pthread_mutex_destroy(&r->lock);
    free(r->parts);
    free(r->rest);
    free(r);
}

static void request_resume(request *r) { // under its lock
    if (!r->suspended) return;
    r->suspended = false;
    MHD_resume_connection(r->conn);
}

// Not under its lock: the engine has one of its own. The ids do not change once the request is listed.
static void request_cancel(request *r) {
    for (int64_t i = 0; i < r->part_count; i++) lq_cancel(r->s->e, r->parts[i].id);
}

static void request_list(request *r) {
    server *s = r->s;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    const int on = 1, idle = 30, every = 10, count = 3;
    r->fd = info ? info->connect_fd : -1;
    setsockopt(r->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); // for a client that went without a word
    setsockopt(r->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(r->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(r->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    pthread_mutex_lock(&s->lock);
    r->listed = true;
    r->prev = NULL;
    r->next = s->open;
    if (r->next) r->next->prev = r;
    s->open = r;
    epoll_ctl(s->epoll, EPOLL_CTL_ADD, r->fd, &(struct epoll_event){.events = EPOLLRDHUP, .data.u64 = r->number});
    pthread_mutex_unlock(&s->lock);
    poke(s->wake); // what happened before it was listed is looked at now
}

static void request_unlist(request *r) {
    server *s = r->s;
    if (!r->listed) return;
    pthread_mutex_lock(&s->lock);
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, r->fd, NULL);
    if (r->prev) r->prev->next = r->next;
    else s->open = r->next;
    if (r->next) r->next->prev = r->prev;
    r->listed = false;
    pthread_mutex_unlock(&s->lock);
}

// --- what the engine says ---

static bool on_event(void *arg, const lq_event *e) {
    part *p = arg;
    request *r = p->r;
    server *s = r->s;
    pthread_mutex_lock(&r->lock);
    lq_answer *a = &r->answer;
    if (!r->refused) {
        if (r->first == 0 && e->count && !e->prompt) r->first = now();
        lq_answer_event(a, p->prompt, e);
        const bool overflow = a->stream ? a->out.n - r->taken > STREAM_CAP : a->bytes > ANSWER_CAP;
        if (overflow && a->stream) r->gone = true;
        else if (overflow) lq_answer_fail(a, 400, "the answer has grown past 64 MiB: ask for less in one request");
        if (overflow || a->failure.status) r->unwanted = true;
        if (r->gone || (a->stream ? a->out.n > r->taken : !a->open)) request_resume(r);
    }
    const bool unwanted = r->unwanted;
    if (r->gone) r->refused = true;
    pthread_mutex_unlock(&r->lock);
    if (e->finish == LQ_RUNNING) {
        if (unwanted) poke(s->wake);
        return true;
    }
    atomic_fetch_add(&s->ended[e->finish], 1);
    if (unwanted) poke(s->wake);
    if (--p->live) return true;
    release(r);
    atomic_fetch_sub(&s->live, 1);
    return true;
}

static void say(const server *s, const char *line) {
    if (s->o->log) s->o->log(s->o->arg, line);
}

static void *engine_run(void *arg) {
    server *s = arg;
    while (!atomic_load(&s->quit)) {
        bool busy = false;
        lq_err err = {0};
        const bool done = lq_engine_step(s->e, &busy, &err);
        // What ran has been told that it failed. The next request tries again, and /health says how that went.
        if (!done) say(s, err.text);
        if (!done || busy) atomic_store(&s->sick, !done);
        if (!busy) lq_engine_wait(s->e, -1);
    }
    return NULL;
}

// --- replies ---

static void header(struct MHD_Response *m, const char *name, const char *value) {
    MHD_add_response_header(m, name, value);
}

static enum MHD_Result reply_send(request *r, struct MHD_Response *m, int status, const char *type) {
    if (!m) return MHD_NO;
    header(m, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    header(m, "X-Content-Type-Options", "nosniff");
    header(m, "X-Request-Id", r->id);
    if (r->unframed) header(m, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == 401) header(m, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 405 && r->allow) header(m, MHD_HTTP_HEADER_ALLOW, r->allow);
    if (status == 429 || status == 503) header(m, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    r->status = status;
    atomic_fetch_add(&r->s->replies[status / 100], 1);
    const enum MHD_Result sent = MHD_queue_response(r->conn, (unsigned)status, m);
    MHD_destroy_response(m);
    return sent;
}

// The text is the request's own and lives as long as the connection needs it.
static enum MHD_Result reply_text(request *r, lq_text *t, int status, const char *type) {
    static char failed[] =
        "{\"error\":{\"message\":\"no memory for the answer\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
    const bool ok = !t->failed;
    const size_t n = ok ? t->n : sizeof failed - 1;
    struct MHD_Response *m = MHD_create_response_from_buffer(n, ok ? t->p : failed, MHD_RESPMEM_PERSISTENT);
    return reply_send(r, m, ok ? status : 500, ok ? type : "application/json");
}

static enum MHD_Result reply_refusal(request *r, const lq_refusal *no) {
    r->out.n = 0;
    lq_refusal_write(no, &r->out);
    return reply_text(r, &r->out, no->status, "application/json");
}

static enum MHD_Result reply_answer(request *r) {
    if (r->answer.failure.status) return reply_refusal(r, &r->answer.failure);
    return reply_text(r, &r->answer.out, 200, "application/json");
}

// libmicrohttpd asks for more of a stream.
static ssize_t stream_read(void *arg, uint64_t at, char *buf, size_t max) {
    request *r = arg;
    (void)at;
    pthread_mutex_lock(&r->lock);
    lq_text *out = &r->answer.out;
    ssize_t n = (ssize_t)(out->n - r->taken < max ? out->n - r->taken : max);
    if (r->gone || out->failed) n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (n) {
        memcpy(buf, out->p + r->taken, (size_t)n);
        r->taken += (size_t)n;
        if (r->taken == out->n) r->taken = out->n = 0;
        else if (r->taken > STREAM_CAP / 4) { // a slow client: keep what is left, not what was read
            memmove(out->p, out->p + r->taken, out->n - r->taken);
            out->n -= r->taken;
            r->taken = 0;
        }
    } else if (!r->answer.open) n = MHD_CONTENT_READER_END_OF_STREAM;
    else {
        MHD_suspend_connection(r->conn);
        r->suspended = true;
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

static enum MHD_Result reply_stream(request *r) {
    struct MHD_Response *m = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, stream_read, r, NULL);
    if (m) header(m, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return reply_send(r, m, 200, "text/event-stream; charset=utf-8");
}

// --- completions ---

static bool refuse_error(request *r, const lq_err *err) {
    switch (err->code) {
    case LQ_E_BUSY: return lq_refuse(&r->no, 429, NULL, "rate_limit_exceeded", "%s", err->text);
    case LQ_E_LIMIT: return lq_refuse(&r->no, 400, NULL, "context_length_exceeded", "%s", err->text);
    case LQ_E_USAGE:
    case LQ_E_UNSUPPORTED: return lq_refuse(&r->no, 400, NULL, NULL, "%s", err->text);
    default: return lq_refuse(&r->no, 500, NULL, NULL, "%s", err->text);
    }
}

static bool refuse_draining(request *r) { return lq_refuse(&r->no, 503, NULL, NULL, "the server is shutting down"); }

// All prompts or none: those submitted before one that is refused are cancelled.
static bool parts_submit(request *r, const lq_completion *c) {
    const int count = (int)r->part_count;
    int done = 0;
    bool submitted = true;
    lq_err err;
    atomic_fetch_add(&r->refs, count);
    // Before the look at `draining`: the watcher sets that first and then waits for these.
    atomic_fetch_add(&r->s->live, count);
    if (atomic_load(&r->s->draining)) submitted = refuse_draining(r);
    while (submitted && done < count) {
        part *p = &r->parts[done];
        lq_request q = lq_openai_request(c, done);
        *p = (part){.r = r, .prompt = done, .live = q.n};
        q.on_event = on_event;
        q.arg = p;
        q.beside = done > 0;
        q.client = r->number + 1;
        if (lq_submit(r->s->e, &q, &p->id, &err)) done++;
        else submitted = refuse_error(r, &err);
    }
    if (submitted) return true;
    pthread_mutex_lock(&r->lock);
    r->refused = true;
    pthread_mutex_unlock(&r->lock);
    r->part_count = done;
    request_cancel(r);
    atomic_fetch_sub(&r->refs, count - done);
    atomic_fetch_sub(&r->s->live, count - done);
    return false;
}

static outcome completion_run(request *r, const char *rest) {
    server *s = r->s;
    lq_completion c;
    (void)rest;
    if (atomic_load(&s->draining)) {
        refuse_draining(r);
        return REFUSED;
    }
    if (!lq_openai_parse(&s->api, r->body.n ? r->body.p : "", r->body.n, &c, &r->no)) return REFUSED;
    bool begun = lq_openai_encode(&s->api, &c, &r->no);
    if (begun) {
        r->number = atomic_fetch_add(&s->number, 1);
        r->parts = calloc((size_t)c.prompt_count, sizeof *r->parts);
        begun = r->parts && lq_answer_begin(&r->answer, &s->api, &c, s->prefix + r->number, (int64_t)time(NULL));
        if (!begun) lq_refuse(&r->no, 500, NULL, NULL, "no memory for a request");
        r->part_count = begun ? c.prompt_count : 0;
        begun = begun && parts_submit(r, &c);
    }
    lq_completion_free(&c);
    body_drop(r);
    if (begun) request_list(r);
    return begun ? UNDER_WAY : REFUSED;
}

// The whole answer, now or when the engine resumes the connection.
static enum MHD_Result completion_wait(request *r) {
    pthread_mutex_lock(&r->lock);
    const bool gone = r->gone, ended = !r->answer.open;
    if (!gone && !ended) {
        MHD_suspend_connection(r->conn);
        r->suspended = true;
    }
    pthread_mutex_unlock(&r->lock);
    return gone ? MHD_NO : ended ? reply_answer(r) : MHD_YES;
}

// --- the other endpoints ---

static outcome tokenize_run(request *r, const char *rest) {
    (void)rest;
    return lq_openai_tokenize(&r->s->api, r->body.n ? r->body.p : "", r->body.n, &r->out, &r->no) ? ANSWERED : REFUSED;
}

static outcome detokenize_run(request *r, const char *rest) {
    (void)rest;
    return lq_openai_detokenize(&r->s->api, r->body.n ? r->body.p : "", r->body.n, &r->out, &r->no) ? ANSWERED
        : REFUSED;
}

static outcome models_run(request *r, const char *rest) {
    const lq_api *api = &r->s->api;
    if (*rest && strcmp(rest, api->name)) {
        lq_refuse(&r->no, 404, "model", "model_not_found", "there is no model of this name here, only %.200s",
                  api->name);
        return REFUSED;
    }
    lq_openai_model(api, !*rest, r->s->started, &r->out);
    return ANSWERED;
}

// Alive: the engine's last step did not fail.
static outcome health_run(request *r, const char *rest) {
    (void)rest;
    const bool sick = atomic_load(&r->s->sick);
    if (sick) lq_refuse(&r->no, 503, NULL, NULL, "the last step of the engine failed");
    else lq_text_fmt(&r->out, "{\"status\":\"ok\"}");
    return sick ? REFUSED : ANSWERED;
}

// Takes requests: alive, not draining.
static outcome ready_run(request *r, const char *rest) {
    if (!atomic_load(&r->s->draining)) return health_run(r, rest);
    refuse_draining(r);
    return REFUSED;
}

static void metric(lq_text *out, const server *s, const char *name, const char *type, const char *help,
                   const char *label, double value) {
    if (help) lq_text_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    lq_text_fmt(out, "%s{model_name=", name);
    lq_text_json(out, s->api.name, strlen(s->api.name)); // a label's escapes are JSON's, for the characters a name has
    lq_text_fmt(out, "%s} %.17g\n", label, value);
}

static outcome metrics_run(request *r, const char *rest) {
    static const struct { const char *name; lq_finish finish; } reasons[] = {
        {"stop", LQ_STOP}, {"length", LQ_LENGTH}, {"abort", LQ_ABORTED},
    };
    server *s = r->s;
    lq_text *out = &r->out;
    lq_engine_stats e;
    char label[64];
    (void)rest;
    lq_engine_describe(s->e, &e);
    const double used = e.kv_blocks ? 1 - (double)e.kv_free / e.kv_blocks : 0;
    metric(out, s, "vllm:num_requests_running", "gauge", "Sequences in the engine's batch.", "", e.running);
    metric(out, s, "vllm:num_requests_waiting", "gauge", "Requests waiting for a place in it.", "", e.waiting);
    metric(out, s, "vllm:kv_cache_usage_perc", "gauge", "Part of the KV blocks in use; 1 is all.", "", used);
    metric(out, s, "vllm:gpu_cache_usage_perc", "gauge", "The same by its older name.", "", used);
    metric(out, s, "vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", "", (double)e.prompt_tokens);
    metric(out, s, "vllm:generation_tokens_total", "counter", "Tokens sampled.", "", (double)e.sampled_tokens);
    metric(out, s, "vllm:num_preemptions_total", "counter", "Sequences put back for want of KV blocks.", "",
           (double)e.preempted);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        snprintf(label, sizeof label, ",finished_reason=\"%s\"", reasons[i].name);
        metric(out, s, "vllm:request_success_total", "counter", i ? NULL : "Choices ended, by reason.", label,
               (double)atomic_load(&s->ended[reasons[i].finish]));
    }
    metric(out, s, "lq:request_failure_total", "counter", "Choices that failed in the engine.", "",
           (double)atomic_load(&s->ended[LQ_FAILED]));
    metric(out, s, "lq:kv_blocks", "gauge", "KV blocks there are.", "", e.kv_blocks);
    metric(out, s, "lq:kv_blocks_free", "gauge", "KV blocks that are free.", "", e.kv_free);
    metric(out, s, "lq:steps_total", "counter", "Steps of the engine.", "", (double)e.steps);
    metric(out, s, "lq:step_seconds_total", "counter", "Time in them.", "", e.step_seconds);
    for (int i = 2; i < 6; i++) {
        snprintf(label, sizeof label, ",code=\"%dxx\"", i);
        metric(out, s, "lq:http_replies_total", "counter", i == 2 ? "HTTP replies begun, by status." : NULL, label,
               (double)atomic_load(&s->replies[i]));
    }
    return ANSWERED;
}

static const char json_type[] = "application/json";
static const route routes[] = {
    {"/v1/completions", false, true, false, json_type, completion_run},
    {"/v1/models", false, false, false, json_type, models_run},
    {"/v1/models/", true, false, false, json_type, models_run},
    {"/tokenize", false, true, false, json_type, tokenize_run},
    {"/detokenize", false, true, false, json_type, detokenize_run},
    {"/metrics", false, false, false, "text/plain; version=0.0.4; charset=utf-8", metrics_run},
    {"/health", false, false, true, json_type, health_run},
    {"/ready", false, false, true, json_type, ready_run},
};

// --- a request comes in ---

// Takes as long for any key of one length.
static bool key_equal(const char *given, const char *key) {
    const size_t n = strlen(given), k = strlen(key);
    volatile unsigned char differ = n != k;
    for (size_t i = 0; i < n; i++) differ = (unsigned char)(differ | (given[i] ^ key[i % k]));
    return !differ;
}

static bool key_check(request *r) {
    const char *key = r->s->o->key;
    const char *given = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!key || (r->route && r->route->free)) return true;
    if (given && !strncasecmp(given, "Bearer ", 7) && key_equal(given + 7, key)) return true;
    return lq_refuse(&r->no, 401, NULL, "invalid_api_key", "this server wants its key as a bearer token");
}

// A page in a browser can send other types to a server on loopback without asking; this one it cannot.
static bool body_check(request *r) {
    const char *type = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    const char *coding = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_ENCODING);
    const size_t n = sizeof json_type - 1;
    if (!type || strncasecmp(type, json_type, n) || (type[n] && type[n] != ';' && type[n] != ' '))
        return lq_refuse(&r->no, 415, NULL, NULL, "the body must be JSON: Content-Type: application/json");
    if (coding && strcasecmp(coding, "identity"))
        return lq_refuse(&r->no, 415, NULL, NULL, "the body must not be compressed");
    return true;
}

typedef struct framing { int lengths, codings; bool number, chunked; } framing;

static enum MHD_Result framing_read(void *arg, enum MHD_ValueKind kind, const char *name, const char *value) {
    framing *f = arg;
    (void)kind;
    if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        f->lengths++;
        f->number = value && *value && !value[strspn(value, "0123456789")];
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        f->codings++;
        f->chunked = value && !strcasecmp(value, "chunked");
    }
    return MHD_YES;
}

// A proxy may see another end of such a body, and take what is behind it for a request (RFC 9112, 6.3).
static bool framing_check(request *r) {
    framing f = {0};
    MHD_get_connection_values(r->conn, MHD_HEADER_KIND, framing_read, &f);
    const bool two = f.lengths > 1 || f.codings > 1 || (f.lengths && f.codings);
    r->unframed = two || (f.lengths && !f.number) || (f.codings && !f.chunked);
    if (two) return lq_refuse(&r->no, 400, NULL, NULL, "expected one Content-Length or one Transfer-Encoding");
    if (f.lengths && !f.number) return lq_refuse(&r->no, 400, NULL, NULL, "Content-Length: expected a number");
    return !r->unframed || lq_refuse(&r->no, 501, NULL, NULL, "Transfer-Encoding: only chunked is known here");
}

static bool route_find(request *r, const char *url, const char *method) {
    const bool post = !strcmp(method, "POST"), head = !strcmp(method, "HEAD"), get = head || !strcmp(method, "GET");
    r->method = post ? "POST" : head ? "HEAD" : get ? "GET" : "-";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const route *t = &routes[i];
        const size_t n = strlen(t->path);
        if (t->prefix ? strncmp(url, t->path, n) != 0 || !url[n] : strcmp(url, t->path) != 0) continue;
        r->route = t;
        r->allow = t->post ? "POST" : "GET, HEAD";
        if (!(r->rest = strdup(url + n))) return lq_refuse(&r->no, 500, NULL, NULL, "no memory for a request");
        return (t->post ? post : get) || lq_refuse(&r->no, 405, NULL, "method_not_allowed", "%s answers %s", t->path,
                                                   r->allow);
    }
    return lq_refuse(&r->no, 404, NULL, "not_found", "there is nothing at this path");
}

// What the client calls the request, where that is a plain word; else a name of ours.
static void id_make(request *r) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:";
    const char *given = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "X-Request-Id");
    const size_t n = given ? strlen(given) : 0;
    if (n && n < sizeof r->id && strspn(given, plain) == n) memcpy(r->id, given, n + 1);
    else snprintf(r->id, sizeof r->id, "req-%016" PRIx64, r->s->prefix + atomic_fetch_add(&r->s->ids, 1));
}

static request *request_new(server *s, struct MHD_Connection *conn, const char *url, const char *method) {
    request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->s = s;
    r->conn = conn;
    r->fd = -1;
    r->begun = now();
    r->reading = true;
    atomic_init(&r->refs, 1);
    pthread_mutex_init(&r->lock, NULL);
    id_make(r);
    if (!framing_check(r)) return r;
    if (route_find(r, url, method) && key_check(r) && r->route->post) body_check(r);
    if (r->no.status == 404 || r->no.status == 405) key_check(r); // a stranger is told of no path
    return r;
}

static bool refuse_large(request *r) {
    return lq_refuse(&r->no, 413, NULL, NULL, "the body is larger than %zu bytes", r->s->max_body);
}

// The headers are in. A body that will not be read is waited out, so that the client sees the answer: unless it is
// huge, or the client waits for leave to send it.
static enum MHD_Result request_head(request *r) {
    const char *length = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *expect = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT);
    const unsigned long long n = length ? strtoull(length, NULL, 10) : 0;
    if (n > r->s->max_body && !r->no.status) refuse_large(r);
    if (!r->unframed && (!r->no.status || !n || (!expect && n / 16 <= r->s->max_body))) return MHD_YES;
    r->reading = false;
    return reply_refusal(r, &r->no);
}

static void request_limit(request *r, unsigned seconds) {
    MHD_set_connection_option(r->conn, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

static void request_body(request *r, const char *data, size_t n) {
    server *s = r->s;
    if (r->no.status) return;
    if (r->body.n + n > s->max_body) {
        refuse_large(r);
    } else if (atomic_fetch_add(&s->bodies, n) + n > s->max_body * BODIES) {
        atomic_fetch_sub(&s->bodies, n);
        lq_refuse(&r->no, 503, NULL, NULL, "too many large requests at once");
    } else {
        r->counted += n;
        lq_text_add(&r->body, data, n);
        if (r->body.failed) lq_refuse(&r->no, 500, NULL, NULL, "no memory for the body");
    }
    if (r->no.status) body_drop(r);
}

static enum MHD_Result request_run(request *r) {
    const outcome o = r->no.status ? REFUSED : r->route->run(r, r->rest);
    if (o != UNDER_WAY) body_drop(r);
    if (o == REFUSED) return reply_refusal(r, &r->no);
    if (o == ANSWERED) return reply_text(r, &r->out, 200, r->route->type);
    return r->answer.stream ? reply_stream(r) : completion_wait(r);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **state) {
    request *r = *state;
    (void)version;
    if (!r) {
        if (!(r = *state = request_new(cls, conn, url, method))) return MHD_NO;
        request_limit(r, WHOLE_SECONDS);
        return request_head(r);
    }
    if (*n) {
        request_body(r, data, *n);
        *n = 0;
        return MHD_YES;
    }
    if (!r->reading) return completion_wait(r); // resumed
    r->reading = false;
    request_limit(r, IDLE_SECONDS);
    return request_run(r);
}

static void request_log(const request *r, bool whole) {
    char line[400], tokens[128] = "";
    const lq_answer *a = &r->answer;
    const double t = now();
    if (!r->s->o->log || (r->status == 200 && !r->route->post)) return; // looks at the server are no news
    if (r->part_count)
        snprintf(tokens, sizeof tokens, " %" PRId64 "+%" PRId64 " tokens%s, first after %.0f ms", a->prompt_tokens,
                 a->sampled_tokens, a->stream ? " streamed" : "", r->first > 0 ? (r->first - r->begun) * 1e3 : 0);
    // The route, not the path: that is the client's text.
    snprintf(line, sizeof line, "%s %s %s %d%s, %.1f ms%s", r->id, r->method, r->route ? r->route->path : "-",
             r->status, tokens, (t - r->begun) * 1e3, whole ? "" : ", cut off");
    say(r->s, line);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **state, enum MHD_RequestTerminationCode why) {
    request *r = *state;
    (void)cls, (void)conn;
    if (!r) return;
    *state = NULL;
    request_unlist(r);
    pthread_mutex_lock(&r->lock);
    const bool open = r->answer.open > 0;
    const bool whole = why == MHD_REQUEST_TERMINATED_COMPLETED_OK && !r->gone;
    r->refused = true;
    r->suspended = false;
    pthread_mutex_unlock(&r->lock); // nobody changes the answer from here on
    request_log(r, whole);
    if (open) request_cancel(r);
    release(r);
}

// --- the watcher ---

static void watch_socket(server *s, uint64_t number, uint32_t events) {
    pthread_mutex_lock(&s->lock);
    request *r = s->open;
    while (r && r->number != number) r = r->next;
    if (r) {
        pthread_mutex_lock(&r->lock);
        const bool reset = (events & (EPOLLERR | EPOLLHUP)) != 0;
        const bool gone = r->answer.open && (reset || !r->answer.stream);
        if (gone) r->gone = r->refused = true;
        else if (!reset && r->answer.open) lq_text_add(&r->answer.out, ":\n\n", 3);
        if (r->answer.open) request_resume(r);
        pthread_mutex_unlock(&r->lock);
        if (gone) request_cancel(r);
        // The half-close stays true; only what comes after it is news.
        if (reset) epoll_ctl(s->epoll, EPOLL_CTL_DEL, r->fd, NULL);
        else epoll_ctl(s->epoll, EPOLL_CTL_MOD, r->fd, &(struct epoll_event){.events = 0, .data.u64 = number});
    }
    pthread_mutex_unlock(&s->lock);
}

static void cancel_unwanted(server *s, bool all) {
    pthread_mutex_lock(&s->lock);
    for (request *r = s->open; r; r = r->next) {
        pthread_mutex_lock(&r->lock);
        const bool cancel = all || r->unwanted, full = r->unwanted && r->gone;
        r->unwanted = false;
        pthread_mutex_unlock(&r->lock);
        if (cancel) request_cancel(r);
        if (full) shutdown(r->fd, SHUT_RDWR); // libmicrohttpd would wait for its client to read
    }
    pthread_mutex_unlock(&s->lock);
}

static bool any_open(server *s) {
    pthread_mutex_lock(&s->lock);
    const bool open = s->open != NULL;
    pthread_mutex_unlock(&s->lock);
    return open;
}

enum { WAKE = -1, STOP = -2 }; // among numbers of requests, which count from 0

static void watch(server *s) {
    double deadline = 0;
    for (;;) {
        struct epoll_event ev[64];
        const int n = epoll_wait(s->epoll, ev, 64, deadline > 0 ? 10 : -1);
        for (int i = 0; i < n; i++) {
            uint64_t count;
            const uint64_t number = ev[i].data.u64;
            if (number != (uint64_t)WAKE && number != (uint64_t)STOP) watch_socket(s, number, ev[i].events);
            else if (read(number == (uint64_t)WAKE ? s->wake : atomic_load(&stop_fd), &count, sizeof count) < 0)
                continue; // emptied by another
        }
        cancel_unwanted(s, false);
        if (atomic_load(&stops) && deadline == 0) {
            atomic_store(&s->draining, true);
            deadline = now() + (s->o->drain_seconds ? s->o->drain_seconds : 30);
            say(s, "shutting down: no new requests");
        }
        if (deadline > 0 && (atomic_load(&stops) > 1 || now() > deadline || !(any_open(s) || atomic_load(&s->live))))
            return;
    }
}

// --- life ---

static bool listen_on(server *s, char *host, size_t host_size, int *port, lq_err *err) {
    const char *want = s->o->host ? s->o->host : "127.0.0.1";
    const int number = s->o->port < 0 ? 0 : s->o->port ? s->o->port : 8080, on = 1;
    char service[16];
    if (s->o->port < -1 || s->o->port > 65535)
        return lq_fail(err, LQ_E_USAGE, "port %d: expected 1 to 65535", s->o->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
    snprintf(service, sizeof service, "%d", number);
    const int failed = getaddrinfo(want, service, &hints, &list);
    if (failed) return lq_fail(err, LQ_E_IO, "%s: %s", want, gai_strerror(failed));
    int why = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && s->socket < 0; a = a->ai_next) {
        s->socket = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s->socket >= 0 && setsockopt(s->socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
            bind(s->socket, a->ai_addr, a->ai_addrlen) == 0 &&
            listen(s->socket, 1024) == 0)
            break;
        why = errno;
        if (s->socket >= 0) close(s->socket);
        s->socket = -1;
    }
    freeaddrinfo(list);
    if (s->socket < 0) return lq_fail(err, LQ_E_IO, "can't listen on %s port %d: %s", want, number, strerror(why));
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    getsockname(s->socket, (struct sockaddr *)&at, &size);
    *port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                  : ((struct sockaddr_in *)&at)->sin_port);
    snprintf(host, host_size, "%s", want);
    return true;
}

static bool watcher_open(server *s, lq_err *err) {
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (atomic_load(&stop_fd) < 0) atomic_store(&stop_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (s->epoll >= 0 && s->wake >= 0 && atomic_load(&stop_fd) >= 0 &&
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->wake,
                  &(struct epoll_event){.events = EPOLLIN, .data.u64 = (uint64_t)WAKE}) == 0 &&
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, atomic_load(&stop_fd),
                  &(struct epoll_event){.events = EPOLLIN, .data.u64 = (uint64_t)STOP}) == 0) {
        if (atomic_load(&stops)) poke(s->wake); // asked to stop before it began
        return true;
    }
    return lq_fail(err, LQ_E_IO, "the server can't watch its sockets: %s", strerror(errno));
}

static bool daemon_open(server *s, lq_err *err) {
    const unsigned connections = s->o->max_connections > 0 ? (unsigned)s->o->max_connections : 1024;
    s->daemon = MHD_start_daemon(MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
                                 MHD_OPTION_LISTEN_SOCKET, s->socket,
                                 MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS, MHD_OPTION_CONNECTION_LIMIT,
                                 connections < THREADS ? (unsigned)THREADS : connections, MHD_OPTION_CONNECTION_TIMEOUT,
                                 (unsigned)WHOLE_SECONDS,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                 MHD_OPTION_END);
    s->socket = -1; // the daemon's now
    return s->daemon || lq_fail(err, LQ_E_IO, "the HTTP server could not be started: %s", strerror(errno));
}

// Everything that runs ends, so that no connection stays suspended; then the clients have a moment to read.
static void server_close(server *s) {
    atomic_store(&s->draining, true);
    while (s->engine_runs && atomic_load(&s->live)) {
        cancel_unwanted(s, true);
        usleep(2000);
    }
    for (const double until = now() + FLUSH_SECONDS; s->daemon && any_open(s) && now() < until;) usleep(2000);
    if (s->engine_runs) {
        atomic_store(&s->quit, true);
        lq_engine_wake(s->e);
        pthread_join(s->engine, NULL);
    }
    if (s->daemon) MHD_stop_daemon(s->daemon);
    if (s->socket >= 0) close(s->socket);
    if (s->epoll >= 0) close(s->epoll);
    if (s->wake >= 0) close(s->wake);
    pthread_mutex_destroy(&s->lock);
}

static bool server_run(server *s, lq_err *err) {
    char host[256];
    int port = 0;
    if (!listen_on(s, host, sizeof host, &port, err) || !watcher_open(s, err)) return false;
    s->engine_runs = pthread_create(&s->engine, NULL, engine_run, s) == 0;
    if (!s->engine_runs) return lq_fail(err, LQ_E_MEMORY, "the engine's thread could not be started");
    if (!daemon_open(s, err)) return false;
    if (s->o->ready) s->o->ready(s->o->arg, host, port);
    watch(s);
    return true;
}

bool lq_serve_try(const lq_serve_opts *o, lq_err *err) {
    static const lq_serve_opts none;
    server s = {.o = o ? o : &none, .socket = -1};
    char host[256];
    int port;
    const bool can = listen_on(&s, host, sizeof host, &port, err);
    if (s.socket >= 0) close(s.socket);
    return can;
}

bool lq_serve(lq_model *m, lq_engine *e, const lq_serve_opts *o, lq_err *err) {
    static const lq_serve_opts none;
    lq_model_info info;
    if (!o) o = &none;
    if (o->key && !*o->key) return lq_fail(err, LQ_E_USAGE, "the key is empty");
    if (atomic_flag_test_and_set(&serving)) return lq_fail(err, LQ_E_USAGE, "this process is serving already");
    lq_model_describe(m, &info);
    server *s = calloc(1, sizeof *s);
    if (!s) {
        atomic_flag_clear(&serving);
        return lq_fail(err, LQ_E_MEMORY, "no memory for a server");
    }
    s->e = e;
    s->o = o;
    s->socket = s->epoll = s->wake = -1;
    s->max_body = o->max_body ? o->max_body : 4 << 20;
    s->started = (int64_t)time(NULL);
    snprintf(s->name, sizeof s->name, "%s", o->name && *o->name ? o->name : info.arch);
    lq_engine_stats stats;
    lq_engine_describe(e, &stats);
    s->api = (lq_api){.model = m, .name = s->name, .vocab = info.vocab, .ctx = stats.ctx, .max_body = s->max_body,
                      .priorities = o->priorities};
    pthread_mutex_init(&s->lock, NULL);
    if (getrandom(&s->prefix, sizeof s->prefix, 0) != (ssize_t)sizeof s->prefix) s->prefix = (uint64_t)s->started << 32;
    const bool done = server_run(s, err);
    server_close(s);
    free(s);
    atomic_store(&stops, 0);
    atomic_flag_clear(&serving);
    return done;
}

void lq_serve_stop(void) {
    const int saved = errno, fd = (atomic_fetch_add(&stops, 1), atomic_load(&stop_fd));
    if (fd >= 0) poke(fd);
    errno = saved;
}
