// loop.c: connections on one thread, by epoll. Owns sockets and what is read from and to be written to them.
//
// Nothing here waits, and a connection is worked on at one place alone: events and the caller's replies only note what
// there is to do (`todo`), then `run` takes a connection as far as it goes.
//
// A request that is not whole has WHOLE_SECONDS, and a large body as many more as it needs at BODY_RATE; a reply must
// go on within STALL_SECONDS; between requests a client may be silent for idle_seconds. When all places are taken, the
// one that has been silent longest makes room; where none is, SPARE more are let in, whom the caller may turn away: so
// that whoever asks for the server's health is answered. There are no more places than descriptors for them.
//
// What is not read of a refused request is read and dropped, and a connection that ends is closed for writing first:
// else the system would take the reply back from a client that is still sending.
#include "runtime/serve/loop.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SPARE = 16, FILES = 8, // descriptors for all else
    WHOLE_SECONDS = 10, SPARE_SECONDS = 2, LINGER_SECONDS = 2, STALL_SECONDS = 60,
    BODY_RATE = 16 << 10, // bytes a second
    DROPPED = 64 << 20,   // of a body that nobody wants
    AT_ONCE = 64 << 10, READS = 8, // bytes, and how many steps, before others have their turn
    KEPT = 16 << 10       // of a buffer between requests
};

typedef enum input { SHAKE, HEAD, BODY, DONE, LINGER } input;
typedef enum reply { NONE, BEGUN, WHOLE } reply;

struct lq_conn {
    lq_loop *loop;
    lq_conn *next, *prev, *todo; // of all; of those with something to do
    int fd;
    lq_tls *tls;
    struct in6_addr from;
    input in;
    reply out;
    uint32_t got, armed; // events of epoll
    bool noted, dead, cut, spare;
    bool half, told;     // the client says no more; the caller knows
    bool keep, old, bare /* of a HEAD: no body */, want_write;
    double deadline, since; // 0: none; since: when it fell silent
    lq_text read;        // [from, n): not looked at yet
    size_t from_at, looked;
    lq_body body;
    size_t taken;        // bytes of it
    void *ask;           // NULL: no exchange
    lq_text head, tail;  // to be sent, one behind the other
    size_t sent;         // of both
};

struct lq_loop {
    lq_loop_calls calls;
    lq_loop_opts o;
    int epoll, wake;
    bool listening;
    int count, busy;
    lq_conn *all, *todo;
    double now, swept;
    char date[40];
    time_t dated;
    char scratch[AT_ONCE];
};

double lq_serve_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void note(lq_conn *c) {
    if (c->noted) return;
    c->noted = true;
    c->todo = c->loop->todo;
    c->loop->todo = c;
}

static void limit(lq_conn *c, double s) { c->deadline = c->loop->now + s; }
static size_t unread(const lq_conn *c) { return c->read.n - c->from_at; }
size_t lq_conn_unsent(const lq_conn *c) { return c->head.n + c->tail.n - c->sent; }
bool lq_conn_spare(const lq_conn *c) { return c->spare; }
bool lq_conn_begun(const lq_conn *c) { return c->out != NONE; }

static void empty(lq_text *t) {
    t->n = 0;
    if (t->cap > KEPT) {
        lq_text_free(t);
        *t = (lq_text){0};
    }
}

// --- life of a connection ---

static void listen_again(lq_loop *l, bool on) {
    if (l->listening == on) return;
    l->listening = on;
    epoll_ctl(l->epoll, EPOLL_CTL_MOD, l->o.socket,
              &(struct epoll_event){.events = on ? EPOLLIN : 0, .data.ptr = &l->o.socket});
}

static void end_exchange(lq_conn *c, bool sent) {
    void *ask = c->ask;
    if (!ask) return;
    c->ask = NULL;
    c->loop->busy--;
    c->loop->calls.end(ask, sent);
}

static void drop(lq_conn *c) {
    lq_loop *l = c->loop;
    if (c->dead) return;
    c->dead = true;
    end_exchange(c, false);
    lq_tls_close(c->tls);
    close(c->fd);
    lq_text_free(&c->read);
    lq_text_free(&c->head);
    lq_text_free(&c->tail);
    if (c->prev) c->prev->next = c->next;
    else l->all = c->next;
    if (c->next) c->next->prev = c->prev;
    l->count--;
    listen_again(l, true);
    note(c); // it is freed when nothing names it any more
}

static bool same_place(const lq_conn *c, const struct in6_addr *from) {
    return !memcmp(&c->from, from, sizeof *from);
}

static bool may_enter(lq_loop *l, const struct in6_addr *from) {
    int n = 0;
    for (const lq_conn *c = l->all; c && l->o.max_per_address; c = c->next) n += same_place(c, from);
    return !l->o.max_per_address || n < l->o.max_per_address;
}

static bool is_idle(const lq_conn *c) { return c->in == HEAD && !unread(c) && !c->ask && !c->spare; }

// The one that has been silent longest goes, if that is more than a second.
static void make_room(lq_loop *l) {
    lq_conn *oldest = NULL;
    for (lq_conn *c = l->all; c; c = c->next)
        if (is_idle(c) && (!oldest || c->since < oldest->since)) oldest = c;
    if (oldest && oldest->since < l->now - 1) drop(oldest);
}

static void address_of(const struct sockaddr_storage *a, struct in6_addr *out) {
    *out = (struct in6_addr){0};
    if (a->ss_family == AF_INET6) *out = ((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    else memcpy(out, &((const struct sockaddr_in *)(const void *)a)->sin_addr, sizeof(struct in_addr));
}

static void socket_prepare(int fd) {
    const int on = 1, idle = 30, every = 10, count = 3; // for a client that went without a word
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void conn_new(lq_loop *l, int fd, const struct sockaddr_storage *a) {
    struct in6_addr from;
    address_of(a, &from);
    if (l->count >= l->o.max_connections) make_room(l);
    lq_conn *c = may_enter(l, &from) ? calloc(1, sizeof *c) : NULL;
    if (c && l->o.tls && !(c->tls = lq_tls_open(l->o.tls, fd))) {
        free(c);
        c = NULL;
    }
    if (c) {
        c->loop = l, c->fd = fd, c->from = from;
        c->in = c->tls ? SHAKE : HEAD;
        c->spare = l->count >= l->o.max_connections;
        c->armed = EPOLLIN | EPOLLRDHUP;
        c->since = l->now;
        limit(c, c->spare ? SPARE_SECONDS : WHOLE_SECONDS);
    }
    if (!c || epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = c->armed, .data.ptr = c}) != 0) {
        if (c) lq_tls_close(c->tls);
        free(c);
        close(fd);
        return;
    }
    socket_prepare(fd);
    c->next = l->all;
    if (c->next) c->next->prev = c;
    l->all = c;
    l->count++;
    note(c);
}

// A few at a time: those that are in have their turn too.
static void let_in(lq_loop *l) {
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage a;
        socklen_t size = sizeof a;
        if (l->count >= l->o.max_connections + SPARE) make_room(l);
        const bool full = l->count >= l->o.max_connections + SPARE;
        const int fd = full ? -1 : accept4(l->o.socket, (struct sockaddr *)&a, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) conn_new(l, fd, &a);
        else if (!full && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        else if (full || (errno != ECONNABORTED && errno != EINTR)) {
            listen_again(l, false); // until a place or a descriptor is given back, or the next look around
            return;
        }
    }
}

// --- replies ---

static const char *date(lq_loop *l) {
    struct tm tm;
    const time_t t = time(NULL);
    if (t != l->dated && gmtime_r(&t, &tm)) strftime(l->date, sizeof l->date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    l->dated = t;
    return l->date;
}

static void head_write(lq_conn *c, int status, const char *type, const char *fields) {
    lq_text_fmt(&c->head, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, lq_status_text(status), date(c->loop));
    if (type) lq_text_fmt(&c->head, "Content-Type: %s\r\n", type);
    lq_text_fmt(&c->head, "%sConnection: %s\r\n", fields ? fields : "", c->keep ? "keep-alive" : "close");
}

void lq_conn_reply(lq_conn *c, int status, const char *type, const char *fields, lq_text *body, bool close) {
    if (c->out != NONE) return;
    if (close) c->keep = false;
    c->out = WHOLE;
    head_write(c, status, type, fields);
    if (status != 204 && status != 304) lq_text_fmt(&c->head, "Content-Length: %zu\r\n", body->n);
    lq_text_fmt(&c->head, "\r\n");
    lq_text_free(&c->tail);
    if (c->bare) lq_text_free(body);
    c->tail = c->bare ? (lq_text){0} : *body;
    *body = (lq_text){0};
    note(c);
}

void lq_conn_begin(lq_conn *c, int status, const char *type, const char *fields) {
    if (c->out != NONE) return;
    if (c->old) c->keep = false;
    c->out = BEGUN;
    head_write(c, status, type, fields);
    lq_text_fmt(&c->head, c->old ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
    note(c);
}

void lq_conn_send(lq_conn *c, const char *p, size_t n) {
    if (c->out != BEGUN || !n) return;
    if (!c->old) lq_text_fmt(&c->head, "%zx\r\n", n);
    lq_text_add(&c->head, p, n);
    if (!c->old) lq_text_add(&c->head, "\r\n", 2);
    note(c);
}

void lq_conn_finish(lq_conn *c) {
    if (c->out != BEGUN) return;
    if (!c->old) lq_text_add(&c->head, "0\r\n\r\n", 5);
    c->out = WHOLE;
    note(c);
}

void lq_conn_cut(lq_conn *c) {
    c->cut = true;
    note(c);
}

bool lq_conn_probe(lq_conn *c, const char *comment, size_t n) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (c->out == BEGUN) lq_conn_send(c, comment, n);
    else if (c->out == NONE && !c->old) lq_text_add(&c->head, go_on, sizeof go_on - 1);
    else return false;
    note(c);
    return true;
}

// --- reading and writing ---

// More bytes, at p; 0: none yet; -1: there will be none.
static ssize_t more(lq_conn *c, char *p, size_t n) {
    ssize_t got;
    do got = c->tls ? lq_tls_recv(c->tls, p, n) : recv(c->fd, p, n, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) return got;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

static ssize_t push(lq_conn *c) {
    const size_t n = c->head.n, head = c->sent < n ? c->sent : n, tail = c->sent - head;
    struct iovec v[2];
    size_t parts = 0;
    if (head < n) v[parts++] = (struct iovec){c->head.p + head, n - head};
    if (tail < c->tail.n) v[parts++] = (struct iovec){c->tail.p + tail, c->tail.n - tail};
    if (c->tls) return lq_tls_send(c->tls, v[0].iov_base, v[0].iov_len);
    if (parts == 1) return send(c->fd, v[0].iov_base, v[0].iov_len, MSG_NOSIGNAL);
    const struct msghdr m = {.msg_iov = v, .msg_iovlen = parts};
    return sendmsg(c->fd, &m, MSG_NOSIGNAL);
}

// False: the connection has broken.
static bool flush(lq_conn *c) {
    if (c->head.failed || c->tail.failed) return false;
    while (lq_conn_unsent(c)) {
        const ssize_t n = push(c);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
        if (n < 0 && c->in == DONE && c->deadline <= 0) limit(c, STALL_SECONDS);
        if (n < 0) return true;
        c->sent += (size_t)n;
        if (c->in == DONE) limit(c, STALL_SECONDS);
    }
    if (c->sent) {
        c->sent = 0;
        empty(&c->head);
        empty(&c->tail);
        if (c->in == DONE) c->deadline = 0;
    }
    return true;
}

// What is sent already goes, where much of a stream is left.
static void shrink(lq_conn *c) {
    if (c->sent < KEPT || c->sent > c->head.n || c->tail.n) return;
    memmove(c->head.p, c->head.p + c->sent, c->head.n - c->sent);
    c->head.n -= c->sent;
    c->sent = 0;
}

// --- a request comes in ---

static bool fault_reply(lq_conn *c, const lq_fault *fault) {
    lq_loop *l = c->loop;
    c->keep = false;
    c->in = DONE;
    c->deadline = 0;
    if (c->ask) {
        if (c->out == NONE) l->calls.fault(c->ask, fault);
        return true;
    }
    c->out = NONE;
    c->bare = c->old = c->told = false;
    c->ask = l->calls.head(l->calls.arg, c, NULL, fault);
    l->busy += c->ask != NULL;
    return c->ask != NULL;
}

static void body_end(lq_conn *c) {
    c->in = DONE;
    c->deadline = 0;
    if (c->out == NONE) c->loop->calls.whole(c->ask);
}

// Returns false: the connection is closed.
static bool head_begin(lq_conn *c, size_t n) {
    lq_loop *l = c->loop;
    lq_head h;
    lq_fault fault;
    c->out = NONE;
    c->looked = c->taken = 0;
    c->told = false;
    if (!lq_head_read(c->read.p + c->from_at, n, &h, &fault)) return fault_reply(c, &fault);
    c->keep = h.keep, c->old = h.old, c->bare = !strcmp(h.method, "HEAD");
    c->body = lq_body_of(&h);
    c->ask = l->calls.head(l->calls.arg, c, &h, NULL);
    c->from_at += n;
    if (!c->ask) return false;
    l->busy++;
    if (c->body.at == LQ_BODY_WHOLE) {
        body_end(c);
        return true;
    }
    if (c->out != NONE && (h.waits || h.length > DROPPED)) { // what is not sent yet need not come
        c->keep = false;
        c->in = DONE;
        return true;
    }
    if (h.waits) lq_conn_probe(c, NULL, 0);
    c->in = BODY;
    limit(c, WHOLE_SECONDS);
    return true;
}

// Bytes of a body. Returns how many were its own.
static size_t body_feed(lq_conn *c, const char *p, size_t n) {
    size_t used = 0;
    while (used < n && c->in == BODY) {
        const char *data;
        size_t data_n;
        lq_fault fault;
        used += lq_body_take(&c->body, p + used, n - used, &data, &data_n, &fault);
        c->taken += data_n;
        if (data_n && c->out == NONE) c->loop->calls.body(c->ask, data, data_n);
        if (c->taken > DROPPED && c->out != NONE) c->keep = false, c->in = DONE;
        if (fault.status) fault_reply(c, &fault);
        else if (c->body.at == LQ_BODY_WHOLE && c->in == BODY) body_end(c);
    }
    return used;
}

// What is left of what was read stays.
static void settle(lq_conn *c) {
    if (c->from_at == c->read.n) {
        c->from_at = 0;
        empty(&c->read);
    } else if (c->from_at) {
        memmove(c->read.p, c->read.p + c->from_at, unread(c));
        c->read.n -= c->from_at;
        c->from_at = 0;
    }
}

typedef enum went { ON, WAITS, BROKE } went;

// Bytes that came: to the body as far as they are its own, else behind those not looked at yet.
static went take_more(lq_conn *c) {
    const ssize_t n = more(c, c->loop->scratch, AT_ONCE);
    if (n <= 0) return n < 0 ? BROKE : WAITS;
    if (c->in == LINGER) return ON;
    const size_t used = c->in == BODY ? body_feed(c, c->loop->scratch, (size_t)n) : 0;
    settle(c);
    if (c->in == HEAD && !unread(c)) limit(c, c->spare ? SPARE_SECONDS : WHOLE_SECONDS);
    lq_text_add(&c->read, c->loop->scratch + used, (size_t)n - used);
    if (c->in == BODY) {
        const double rate = BODY_RATE;
        c->deadline += (double)n / rate;
    }
    return c->read.failed ? BROKE : ON;
}

static went take_head(lq_conn *c) {
    lq_fault fault;
    while (unread(c) >= 2 && !c->looked && !memcmp(c->read.p + c->from_at, "\r\n", 2)) c->from_at += 2;
    const size_t n = unread(c) ? lq_head_find(c->read.p + c->from_at, unread(c), &c->looked, &fault) : 0;
    if (n) return head_begin(c, n) ? ON : BROKE;
    if (unread(c) && fault.status) return fault_reply(c, &fault) ? ON : BROKE;
    return take_more(c);
}

static went take_body(lq_conn *c) {
    if (!unread(c)) return take_more(c);
    c->from_at += body_feed(c, c->read.p + c->from_at, unread(c));
    return ON;
}

static went step_in(lq_conn *c) {
    switch (c->in) {
    case SHAKE: {
        const int done = lq_tls_shake(c->tls, &c->want_write);
        if (done > 0) c->in = HEAD;
        return done < 0 ? BROKE : done ? ON : WAITS;
    }
    case HEAD: return take_head(c);
    case BODY: return take_body(c);
    case LINGER: return take_more(c);
    default: break;
    }
    if (c->half && !c->told && c->ask && c->out != WHOLE) {
        c->told = true;
        c->loop->calls.half(c->ask);
    }
    return WAITS;
}

// The reply is out: the next request, or the end.
static void next(lq_conn *c) {
    end_exchange(c, true);
    c->out = NONE;
    if (c->keep) {
        c->in = HEAD;
        settle(c);
        c->since = c->loop->now;
        limit(c, unread(c) ? WHOLE_SECONDS : c->loop->o.idle_seconds);
        return;
    }
    c->in = LINGER;
    limit(c, LINGER_SECONDS);
    if (c->tls) lq_tls_end(c->tls);
    shutdown(c->fd, SHUT_WR);
}

static void arm(lq_conn *c) {
    const bool reads = c->in == HEAD || c->in == BODY || c->in == LINGER || (c->in == SHAKE && !c->want_write);
    const bool writes = lq_conn_unsent(c) || (c->in == SHAKE && c->want_write);
    const uint32_t want = (reads ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0) | (c->half ? 0 : EPOLLRDHUP);
    if (want == c->armed) return;
    c->armed = want;
    epoll_ctl(c->loop->epoll, EPOLL_CTL_MOD, c->fd, &(struct epoll_event){.events = want, .data.ptr = c});
}

// As far as it goes.
static void run(lq_conn *c) {
    const uint32_t got = c->got;
    int reads = 0;
    bool broke = c->cut || (got & (EPOLLERR | EPOLLHUP));
    c->got = 0;
    if (got & EPOLLRDHUP) c->half = true;
    while (!broke) {
        const went w = reads < READS ? step_in(c) : WAITS;
        reads += w == ON;
        broke = w == BROKE || !flush(c);
        if (!broke && c->in == DONE && c->out == WHOLE && !lq_conn_unsent(c)) next(c);
        else if (w == WAITS) break;
    }
    if (broke) {
        drop(c);
        return;
    }
    shrink(c);
    if (reads == READS) note(c); // what was read already, epoll does not see
    arm(c);
}

// --- the loop ---

static void too_late(lq_conn *c) {
    static const lq_fault late = {408, "the request did not come within its time"};
    const bool begun = (c->in == HEAD && unread(c)) || (c->in == BODY && c->out == NONE);
    if (!begun || !fault_reply(c, &late)) drop(c);
    else note(c);
}

static void sweep(lq_loop *l) {
    if (l->now - l->swept < 1) return;
    l->swept = l->now;
    for (lq_conn *c = l->all, *following; c; c = following) {
        following = c->next;
        if (c->deadline > 0 && l->now > c->deadline) too_late(c);
    }
    listen_again(l, l->count < l->o.max_connections + SPARE);
}

static void take_events(lq_loop *l, int ms) {
    struct epoll_event ev[256];
    const int n = epoll_wait(l->epoll, ev, 256, ms);
    bool knocks = false;
    l->now = lq_serve_clock();
    for (int i = 0; i < n; i++) {
        uint64_t count;
        void *const what = ev[i].data.ptr;
        if (what == &l->o.socket) knocks = true;
        else if (what == &l->wake || what == l) {
            // Another's eventfd stays as it is; it has been seen once, as it is edge-triggered.
            if (what == &l->wake && read(l->wake, &count, sizeof count) < 0) continue;
        } else {
            lq_conn *c = what;
            c->got |= ev[i].events;
            note(c);
        }
    }
    if (knocks) let_in(l);
}

void lq_loop_run(lq_loop *l) {
    for (int ms; (ms = l->calls.round(l->calls.arg)) >= 0;) {
        lq_conn *c = l->todo, *rest;
        l->todo = NULL;
        for (; c; c = rest) {
            rest = c->todo;
            c->noted = false;
            if (c->dead) free(c);
            else run(c);
        }
        sweep(l);
        take_events(l, l->todo ? 0 : ms);
    }
}

static bool watch(lq_loop *l, int fd, uint32_t events, void *as) {
    struct epoll_event e = {.events = events, .data.ptr = as};
    return fd >= 0 && epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

bool lq_loop_watch(lq_loop *l, int fd) { return watch(l, fd, EPOLLIN | EPOLLET, l); }

// A connection is a descriptor: how many this process may still open, less those that are kept for others.
static int64_t places_left(void) {
    struct rlimit r;
    int64_t open = 0;
    DIR *d = getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < INT_MAX ? opendir("/proc/self/fd") : NULL;
    if (!d) return INT_MAX;
    for (const struct dirent *e; (e = readdir(d));) open += *e->d_name != '.';
    closedir(d);
    return (int64_t)r.rlim_cur - (open - 1) - SPARE - FILES; // one was the folder's
}

bool lq_loop_open(const lq_loop_opts *o, const lq_loop_calls *calls, lq_loop **out, lq_err *err) {
    lq_loop *l = *out = calloc(1, sizeof *l);
    if (!l) {
        close(o->socket);
        return lq_fail(err, LQ_E_MEMORY, "no memory for connections");
    }
    l->o = *o;
    l->calls = *calls;
    l->now = l->swept = lq_serve_clock();
    l->listening = true;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int64_t places = places_left();
    if (places < l->o.max_connections) l->o.max_connections = (int)places;
    if (places < 1) lq_fail(err, LQ_E_IO, "the limit of open files leaves no place for a connection (ulimit -n)");
    else if (watch(l, l->wake, EPOLLIN, &l->wake) && watch(l, o->socket, EPOLLIN, &l->o.socket)) return true;
    else lq_fail(err, LQ_E_IO, "the server can't watch its sockets: %s", strerror(errno));
    lq_loop_close(l);
    *out = NULL;
    return false;
}

void lq_loop_close(lq_loop *l) {
    if (!l) return;
    while (l->all) drop(l->all);
    while (l->todo) {
        lq_conn *c = l->todo;
        l->todo = c->todo;
        free(c);
    }
    close(l->o.socket);
    if (l->epoll >= 0) close(l->epoll);
    if (l->wake >= 0) close(l->wake);
    free(l);
}

void lq_loop_wake(lq_loop *l) {
    const uint64_t one = 1;
    const ssize_t n = write(l->wake, &one, sizeof one); // full means that it is awake already
    (void)n;
}

double lq_loop_now(const lq_loop *l) { return l->now; }
int lq_loop_count(const lq_loop *l) { return l->busy; }
int lq_loop_places(const lq_loop *l) { return l->o.max_connections; }
