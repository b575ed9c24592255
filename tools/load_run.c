// load_run.c: the load of `lq bench serve`: one thread, one epoll, a connection for each request that is on its way,
// kept for the next one. Times are taken when bytes are read. Owns the connections. A request that fails is counted and
// told; what is refused as a whole is a system without room for connections.
#include "tools/load.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

typedef struct connection {
    int fd;
    struct runner *of;
    lq_load_request *q; // NULL: idle
    bool used;          // it has served one: it may have been closed meanwhile
    bool heard, ended;  // something came back; the stream said [DONE]
    bool writing;       // epoll tells when there is room for more
    double now;         // when the piece at hand was read
    int64_t chunks;
    lq_text out, body;  // body: of an answer that is no stream
    size_t sent;
    lq_load_http http;
    lq_load_events events;
    struct connection *next_idle;
    size_t at;          // in the list of all
} connection;

typedef struct runner {
    lq_load *l;
    int epoll, timer;
    double start, checked;
    connection **all, *idle;
    size_t count, cap, active;
    lq_load_request *q;
    size_t n, begun, over;
    lq_bar bar;
    bool warm;
} runner;

static double now_of(const runner *r) { return lq_seconds() - r->start; }

// --- connections ---

static void drop(runner *r, connection *c) {
    close(c->fd); // which takes it out of the epoll
    r->all[c->at] = r->all[--r->count];
    r->all[c->at]->at = c->at;
    for (connection **p = &r->idle; *p; p = &(*p)->next_idle)
        if (*p == c) {
            *p = c->next_idle;
            break;
        }
    lq_text *const texts[] = {&c->out, &c->body, &c->http.line, &c->events.line, &c->events.data};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) lq_text_free(texts[i]);
    free(c);
}

static void count_failure(lq_load *l, const char *kind, const char *text) {
    size_t i = 0;
    while (i < LQ_LOAD_KINDS - 1 && l->kinds[i].n && strcmp(l->kinds[i].name, kind) != 0) i++;
    snprintf(l->kinds[i].name, sizeof l->kinds[i].name, "%s", i == LQ_LOAD_KINDS - 1 ? "others" : kind);
    l->kinds[i].n++;
    if (!l->error[0]) snprintf(l->error, sizeof l->error, "%s", text);
}

// The request is over; NULL: it went well.
static void finish(runner *r, connection *c, const char *kind, const char *text) {
    lq_load_request *q = c->q;
    char status[32];
    c->q = NULL;
    q->over = true;
    q->good = !kind;
    if (q->output_said < 0) q->output_said = c->chunks;
    if (q->status && q->status != 200 && kind) snprintf(status, sizeof status, "HTTP %d", q->status), kind = status;
    if (kind) count_failure(r->l, kind, text);
    if (kind) q->kind = kind == status ? "HTTP" : kind;
    r->active--;
    r->over++;
    if (kind || !c->http.keep || c->http.part != LQ_LOAD_DONE) {
        drop(r, c);
        return;
    }
    c->used = true;
    c->next_idle = r->idle;
    r->idle = c;
}

static bool watch(runner *r, connection *c, int how, bool writing) {
    struct epoll_event e = {.events = EPOLLIN | (writing ? EPOLLOUT : 0u), .data.ptr = c};
    c->writing = writing;
    return !epoll_ctl(r->epoll, how, c->fd, &e);
}

static connection *connect_new(runner *r, lq_err *err) {
    void *all = r->all;
    connection *c = calloc(1, sizeof *c);
    if (!c || !lq_grow(&all, r->count, &r->cap, sizeof *r->all)) {
        r->all = all;
        free(c);
        return lq_fail(err, LQ_E_MEMORY, "no memory for %zu connections", r->count + 1), NULL;
    }
    r->all = all;
    const int one = 1;
    c->of = r;
    c->fd = socket(r->l->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd >= 0) setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (c->fd < 0 || (connect(c->fd, r->l->address, (socklen_t)r->l->address_size) && errno != EINPROGRESS) ||
        !watch(r, c, EPOLL_CTL_ADD, true)) {
        lq_fail(err, LQ_E_IO, "connection %zu: %s", r->count + 1, strerror(errno));
        if (c->fd >= 0) close(c->fd);
        free(c);
        return NULL;
    }
    c->at = r->count;
    r->all[r->count++] = c;
    return c;
}

// --- what comes back ---

static bool on_chunk(void *arg, const char *p, size_t n, lq_err *err) {
    connection *c = arg;
    lq_load_request *q = c->q;
    lq_load_chunk chunk;
    if (n == 6 && !memcmp(p, "[DONE]", 6)) return c->ended = true;
    if (!lq_load_chunk_read(p, n, &chunk, err)) return false;
    if (chunk.failed) return lq_fail(err, LQ_E_CANCELLED, "%s", chunk.error);
    if (chunk.input >= 0) q->input_said = chunk.input;
    if (chunk.output >= 0) q->output_said = chunk.output;
    if (!chunk.choice) return true;
    if (chunk.content) {
        void *gaps = q->gaps;
        if (c->chunks && !lq_grow(&gaps, q->gap_count, &q->gap_cap, sizeof *q->gaps))
            return lq_fail(err, LQ_E_MEMORY, "no memory for the times of a stream");
        q->gaps = gaps;
        if (c->chunks) q->gaps[q->gap_count++] = c->now - q->last;
        else q->first = c->now;
        c->chunks++;
    }
    q->last = c->now;
    return true;
}

static bool on_body(void *arg, const char *p, size_t n, lq_err *err) {
    connection *c = arg;
    if (c->http.status == 200 && c->http.events) return lq_load_events_read(&c->events, p, n, on_chunk, c, err);
    if (c->body.n < 1 << 26) lq_text_add(&c->body, p, n);
    return true;
}

// The answer is whole: what is it worth?
static void conclude(runner *r, connection *c) {
    lq_load_request *q = c->q;
    lq_err err = {0};
    char message[300];
    q->status = c->http.status;
    if (q->status != 200) {
        size_t n = (size_t)snprintf(message, sizeof message, "HTTP %d: ", q->status);
        lq_load_message(c->body.p, c->body.n, message + n, sizeof message - n);
        finish(r, c, "HTTP", message);
    } else if (!c->http.events && !on_chunk(c, c->body.p ? c->body.p : "", c->body.n, &err))
        finish(r, c, err.code == LQ_E_CANCELLED ? "error in the answer" : "malformed", err.text);
    else if (c->http.events && !c->ended && !c->http.sized && !c->http.chunked)
        finish(r, c, "cut off", "the server closed the connection in the middle of an answer");
    else if (!c->chunks && q->output_said <= 0) finish(r, c, "no token", "HTTP 200, and an answer without a token");
    else {
        if (!q->first) q->first = q->last ? q->last : c->now; // tokens without a text
        if (!q->last) q->last = q->first;
        finish(r, c, NULL, NULL);
    }
}

// --- sending ---

static void begin_on(connection *c, lq_load_request *q) {
    c->q = q;
    c->heard = c->ended = false;
    c->chunks = 0;
    c->sent = c->body.n = c->events.line.n = c->events.data.n = 0;
    c->events.any = false;
    lq_load_http_begin(&c->http);
}

// 0 or an errno.
static int send_more(runner *r, connection *c) {
    bool full = false;
    while (c->sent < c->out.n && !full) {
        const ssize_t n = send(c->fd, c->out.p + c->sent, c->out.n - c->sent, MSG_NOSIGNAL);
        if (n > 0) c->sent += (size_t)n;
        else if (errno == EAGAIN) full = true;
        else if (errno == EPIPE || errno == ECONNRESET) break; // it may have answered all the same
        else if (errno != EINTR) return errno;
    }
    return full == c->writing || watch(r, c, EPOLL_CTL_MOD, full) ? 0 : errno;
}

static const char *kind_of(int error) {
    switch (error) {
    case ECONNREFUSED: return "connection refused";
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH: return "no connection";
    default: return "connection lost";
    }
}

// Starts q: on a connection that waits, else on a new one.
static bool begin(runner *r, lq_load_request *q, bool fresh, lq_err *err) {
    lq_text body = {0}, out = {0};
    lq_load_body(r->l, q, &body);
    lq_load_head(r->l, "POST", r->l->chat ? "/chat/completions" : "/completions", body.n, &out);
    lq_text_add(&out, body.p ? body.p : "", body.n);
    const bool whole = !body.failed && !out.failed;
    lq_text_free(&body);
    if (!whole) return lq_text_free(&out), lq_fail(err, LQ_E_MEMORY, "no memory for a request");
    if (!fresh) q->sent = now_of(r);
    if (r->l->closed) q->due = q->sent;
    connection *c = fresh ? NULL : r->idle;
    if (c) r->idle = c->next_idle;
    else if (!(c = connect_new(r, err))) return lq_text_free(&out), false;
    lq_text_free(&c->out);
    c->out = out;
    begin_on(c, q);
    if (!fresh && ++r->active > r->l->peak && !r->warm) r->l->peak = r->active;
    const int failed = send_more(r, c);
    if (failed) finish(r, c, kind_of(failed), strerror(failed));
    return true;
}

// A connection that was kept may have been closed before the request came: it is sent once more, on a new one.
static bool lost(runner *r, connection *c, const char *kind, const char *text, lq_err *err) {
    lq_load_request *q = c->q;
    if (!q) return drop(r, c), true;
    if (!c->used || c->heard) return finish(r, c, kind, text), true;
    c->q = NULL;
    drop(r, c);
    return begin(r, q, true, err);
}

static bool on_socket(runner *r, connection *c, unsigned what, lq_err *err) {
    char piece[65536];
    lq_err failed = {0};
    const int unsent = c->q && (what & EPOLLOUT) ? send_more(r, c) : 0;
    if (unsent) return lost(r, c, kind_of(unsent), strerror(unsent), err);
    if (!(what & (EPOLLIN | EPOLLHUP | EPOLLERR))) return true;
    const ssize_t n = recv(c->fd, piece, sizeof piece, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    c->now = now_of(r);
    if (n < 0) {
        const int error = errno;
        return lost(r, c, kind_of(error), strerror(error), err);
    }
    if (!c->q) return drop(r, c), true; // closed, or it speaks unasked
    if (n > 0) {
        c->heard = true;
        if (!lq_load_http_read(&c->http, piece, (size_t)n, on_body, c, &failed)) {
            c->q->status = c->http.status;
            finish(r, c, failed.code == LQ_E_CANCELLED ? "error in the answer" : "malformed", failed.text);
            return true;
        }
    } else if (!lq_load_http_end(&c->http, &failed)) {
        c->q->status = c->http.status == 200 ? 200 : 0;
        return lost(r, c, "cut off", failed.text, err);
    }
    if (c->http.part == LQ_LOAD_DONE) conclude(r, c);
    return true;
}

// --- when ---

// How many that are due may begin. A baseline begins a batch when the one before is over: static when it is full,
// dynamic also when its oldest has waited long enough.
static size_t room(const runner *r, size_t due, double now) {
    const lq_load *l = r->l;
    const size_t waiting = due - r->begun;
    if (l->baseline == LQ_LOAD_NONE || r->warm) return r->active < l->most ? l->most - r->active : 0;
    if (r->active) return 0;
    const bool full = waiting >= l->most || due == r->n;
    const bool old = l->baseline == LQ_LOAD_DYNAMIC && waiting && now - r->q[r->begun].due >= l->wait;
    return full || old ? l->most : 0;
}

static size_t due_at(const runner *r, double now) {
    size_t low = r->begun, high = r->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->q[middle].due <= now) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool begin_due(runner *r, lq_err *err) {
    const double now = now_of(r);
    const size_t due = due_at(r, now);
    for (size_t free = room(r, due, now); free && r->begun < due; free--)
        if (!begin(r, &r->q[r->begun++], false, err)) return false;
    return true;
}

// The timer rings when the next one is due, or has waited long enough.
static void set_timer(const runner *r) {
    const size_t due = due_at(r, now_of(r));
    double at = due < r->n ? r->q[due].due : 0;
    if (r->l->baseline == LQ_LOAD_DYNAMIC && r->begun < due && !r->active) {
        const double old = r->q[r->begun].due + r->l->wait;
        if (!at || old < at) at = old;
    }
    if (!at) return;
    at += r->start;
    const struct itimerspec when = {.it_value = {(time_t)at, (long)((at - floor(at)) * 1e9)}};
    timerfd_settime(r->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void end_late(runner *r) {
    const double now = now_of(r);
    char text[64];
    if (now - r->checked < 0.05) return;
    r->checked = now;
    snprintf(text, sizeof text, "no whole answer within %g s", r->l->timeout);
    for (size_t i = r->count; i-- > 0;) // from the end: one that is dropped is followed by one that was looked at
        if (r->all[i]->q && now - r->all[i]->q->sent > r->l->timeout) finish(r, r->all[i], "timeout", text);
}

static void show(runner *r) {
    char note[80];
    snprintf(note, sizeof note, "%zu on their way, %zu waiting", r->active, due_at(r, now_of(r)) - r->begun);
    lq_bar_at(&r->bar, r->over, note);
}

static bool loop(runner *r, lq_err *err) {
    enum { MOST = 256 };
    struct epoll_event e[MOST];
    while (r->over < r->n && !lq_input_stopped()) {
        if (!begin_due(r, err)) return false;
        set_timer(r);
        const int n = epoll_wait(r->epoll, e, MOST, 100);
        if (n < 0 && errno != EINTR) return lq_fail(err, LQ_E_IO, "epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            uint64_t rings;
            if (e[i].data.ptr) {
                if (!on_socket(r, e[i].data.ptr, e[i].events, err)) return false;
            } else if (read(r->timer, &rings, sizeof rings) < 0 && errno != EAGAIN)
                return lq_fail(err, LQ_E_IO, "timer: %s", strerror(errno));
        }
        end_late(r);
        show(r);
    }
    return true;
}

// --- all of it ---

static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static bool run_all(runner *r, lq_load_request *q, size_t n, const char *what, lq_err *err) {
    r->q = q;
    r->n = n;
    r->begun = r->over = 0;
    r->checked = 0;
    r->start = lq_seconds();
    lq_bar_begin(&r->bar, what, "requests", n, r->l->quiet);
    const bool done = loop(r, err);
    lq_bar_end(&r->bar);
    return done;
}

// Requests like the first ones, whose tokens are others: the server's cache does not know the measured ones afterwards.
static bool warm_up(runner *r, size_t n, lq_err *err) {
    lq_load *l = r->l;
    lq_load_request *q = calloc(n, sizeof *q);
    if (!q) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu requests", n);
    for (size_t i = 0; i < n; i++) {
        const lq_load_request *like = &l->q[i % l->n];
        q[i] = (lq_load_request){.draw = ~like->draw, .input = like->input, .output = like->output, .text = like->text,
                                 .input_said = -1, .output_said = -1};
    }
    r->warm = true;
    bool done = run_all(r, q, n, "warm-up", err);
    r->warm = false;
    if (done && l->error[0]) done = lq_fail(err, LQ_E_IO, "warm-up: %s", l->error);
    for (size_t i = 0; i < n; i++) free(q[i].gaps);
    free(q);
    return done;
}

static bool make_room(size_t want, lq_err *err) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= want + 32) return true;
    limit.rlim_cur = limit.rlim_max < want + 32 ? limit.rlim_max : want + 32;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= want + 32) return true;
    return lq_fail(err, LQ_E_LIMIT, "%zu requests at a time: the system allows this process %llu files; "
                   "a smaller --concurrency, or `ulimit -n`", want, (unsigned long long)limit.rlim_cur);
}

bool lq_load_run(lq_load *l, size_t warm, lq_err *err) {
    runner r = {.l = l, .epoll = epoll_create1(EPOLL_CLOEXEC),
                .timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
    struct epoll_event ring = {.events = EPOLLIN};
    bool done = r.epoll >= 0 && r.timer >= 0 && !epoll_ctl(r.epoll, EPOLL_CTL_ADD, r.timer, &ring);
    if (!done) lq_fail(err, LQ_E_IO, "epoll: %s", strerror(errno));
    if (done) done = make_room(l->most < l->n ? l->most : l->n, err);
    if (done && warm) done = warm_up(&r, warm, err);
    if (done && !lq_input_stopped()) {
        const double cpu = cpu_seconds();
        done = run_all(&r, l->q, l->n, "bench serve", err);
        l->seconds = now_of(&r);
        l->cpu = cpu_seconds() - cpu;
    }
    l->stopped = lq_input_stopped();
    while (r.count) drop(&r, r.all[r.count - 1]);
    free(r.all);
    if (r.epoll >= 0) close(r.epoll);
    if (r.timer >= 0) close(r.timer);
    return done;
}

void lq_load_free(lq_load *l) {
    for (size_t i = 0; i < l->n; i++) {
        free(l->q[i].text);
        free(l->q[i].blocks);
        free(l->q[i].gaps);
    }
    free(l->q);
    free(l->model_told);
    free(l->address);
    *l = (lq_load){0};
}
