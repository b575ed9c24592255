// serve.c: the server's life: what it listens on, its threads, its end. Owns the server.
//
// The caller of lq_serve runs the loop; the engine and the workers have threads of their own. After lq_serve_stop, or a
// drain that was asked for, nothing new is taken; what runs ends within its time or is cancelled, and its clients have
// a moment to read what is ready.
#include "runtime/serve/serve.h"
#include <errno.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    WORKERS = 2,           // the first for small bodies alone
    SMALL = 64 << 10,      // bytes of a body
    JOBS = 4096,           // bodies that wait for a worker
    LINES = 8192,          // of the log that wait for its disk
    IDLE_SECONDS = 120,    // for a connection on which nothing is asked
    FLUSH_SECONDS = 2,     // after the drain, for clients to read what is ready
    QUIET_SECONDS = 1      // of doing nothing, before memory goes back to the system
};

typedef enum phase { SERVES, DRAINS, ENDS } phase;
struct life { // of the loop's thread
    phase phase;
    double until, flush, quiet; // quiet: since when nothing runs; 0: something does
    bool used;                  // since memory went back
};
typedef struct worker { server *s; int first; pthread_t thread; } worker; // first: 1: it takes large bodies too

static atomic_int stops;         // calls of lq_serve_stop
static atomic_int stop_fd = -1;  // made once, kept: a signal handler may hold it
static atomic_flag serving = ATOMIC_FLAG_INIT;

// --- the log ---

typedef struct line { struct line *next; char text[]; } line;

void lq_log_put(server *s, const char *text) {
    const size_t n = strlen(text) + 1;
    line *l = s->o->log ? malloc(sizeof *l + n) : NULL;
    if (!l) return;
    l->next = NULL;
    memcpy(l->text, text, n);
    pthread_mutex_lock(&s->log_lock);
    const bool room = s->line_count < LINES;
    if (room) {
        *s->lines_end = l;
        s->lines_end = &l->next;
        s->line_count++;
        pthread_cond_signal(&s->log_bell);
    } else s->lost++;
    pthread_mutex_unlock(&s->log_lock);
    if (!room) free(l);
}

const char *lq_log_time(char *to, size_t size) {
    struct timespec now;
    struct tm tm;
    char day[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &tm)) strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to, size, "%s.%03ldZ", day, now.tv_nsec / 1000000);
    return to;
}

void lq_log_add(server *s, const char *words) {
    lq_text t = {0};
    char when[48];
    lq_log_time(when, sizeof when);
    if (s->o->log_json) {
        lq_text_fmt(&t, "{\"time\":\"%s\",\"event\":", when);
        lq_text_json(&t, words, strlen(words));
        lq_text_fmt(&t, "}");
    } else lq_text_fmt(&t, "%s %s", when, words);
    if (!t.failed) lq_log_put(s, t.p);
    lq_text_free(&t);
}

static void lines_write(server *s, line *l, int lost) {
    char text[64];
    for (line *rest; l; l = rest) {
        rest = l->next;
        s->o->log(s->o->arg, l->text);
        free(l);
    }
    snprintf(text, sizeof text, "%d lines of the log are lost", lost);
    if (lost) lq_log_add(s, text);
}

static void *log_run(void *arg) {
    server *s = arg;
    pthread_mutex_lock(&s->log_lock);
    while (s->lines || !s->log_quit) {
        line *l = s->lines;
        const int lost = s->lost;
        s->lines = NULL;
        s->lines_end = &s->lines;
        s->line_count = s->lost = 0;
        if (!l) {
            pthread_cond_wait(&s->log_bell, &s->log_lock);
            continue;
        }
        pthread_mutex_unlock(&s->log_lock);
        lines_write(s, l, lost);
        pthread_mutex_lock(&s->log_lock);
    }
    pthread_mutex_unlock(&s->log_lock);
    return NULL;
}

// --- threads ---

static void wake(server *s) {
    if (!atomic_exchange(&s->poked, true)) lq_loop_wake(s->loop);
}

static void *engine_run(void *arg) {
    server *s = arg;
    while (!atomic_load(&s->quit)) {
        bool busy = false;
        lq_err err = {0};
        const bool done = lq_engine_step(s->e, &busy, &err);
        // What ran has been told that it failed. The next request tries again, and /health says how that went.
        if (!done) lq_log_add(s, err.text);
        if (!done || busy) atomic_store(&s->sick, !done);
        pthread_mutex_lock(&s->news_lock);
        const bool news = s->news != NULL;
        pthread_mutex_unlock(&s->news_lock);
        if (news) wake(s); // once, for all who got something in this step
        if (!busy) lq_engine_wait(s->e, -1);
    }
    return NULL;
}

bool lq_job_add(request *r) {
    server *s = r->s;
    const int large = r->body.n > SMALL;
    pthread_mutex_lock(&s->job_lock);
    const bool room = s->job_count < JOBS;
    if (room) {
        r->job = NULL;
        *s->jobs_end[large] = r;
        s->jobs_end[large] = &r->job;
        s->job_count++;
        pthread_cond_broadcast(&s->bell);
    }
    pthread_mutex_unlock(&s->job_lock);
    return room;
}

// The next one for a worker; NULL: it is to end.
static request *job_take(worker *w) {
    server *s = w->s;
    request *r = NULL;
    pthread_mutex_lock(&s->job_lock);
    while (!r && !atomic_load(&s->quit)) {
        const int at = w->first && s->jobs[1] ? 1 : 0;
        if (!(r = s->jobs[at])) {
            pthread_cond_wait(&s->bell, &s->job_lock);
            continue;
        }
        s->job_count--;
        if (!(s->jobs[at] = r->job)) s->jobs_end[at] = &s->jobs[at];
    }
    pthread_mutex_unlock(&s->job_lock);
    return r;
}

static void *worker_run(void *arg) {
    worker *w = arg;
    for (request *r; (r = job_take(w));) {
        lq_ask_work(r);
        wake(w->s);
    }
    return NULL;
}

// --- the loop's round ---

// Memory that is free goes back to the system when nothing has run for a while.
static void give_memory_back(life *f, double now, bool busy) {
    if (busy) f->used = true;
    if (busy || !f->used) f->quiet = 0;
    else if (f->quiet == 0) f->quiet = now;
    else if (now - f->quiet >= QUIET_SECONDS) {
        f->used = false;
#ifdef __GLIBC__
        malloc_trim(0);
#endif
    }
}

static int on_round(void *arg) {
    server *s = arg;
    life *f = s->life;
    const double now = lq_loop_now(s->loop);
    lq_ask_take_news(s);
    const bool open = lq_loop_count(s->loop) > 0, live = atomic_load(&s->live) > 0;
    give_memory_back(f, now, open || live);
    if (f->phase == SERVES && atomic_load(&stops)) {
        atomic_store(&s->drain, LQ_LEAVES);
        f->phase = DRAINS;
        f->until = now + (s->o->drain_seconds ? s->o->drain_seconds : 30);
        lq_log_add(s, "shutting down: no new requests");
    }
    if (f->phase == DRAINS && (atomic_load(&stops) > 1 || now > f->until || !(open || live))) f->phase = ENDS;
    if (f->phase != ENDS) return f->phase == SERVES ? 1000 : 10;
    lq_ask_cancel_all(s);
    if (!live && f->flush == 0) f->flush = now + FLUSH_SECONDS;
    return f->flush > 0 && (!open || now > f->flush) ? -1 : 2;
}

// --- life ---

static bool listen_on(const lq_serve_opts *o, int *socket_out, char *host, size_t host_size, int *port, lq_err *err) {
    const char *want = o->host ? o->host : "127.0.0.1";
    const int number = o->port < 0 ? 0 : o->port ? o->port : 8080, on = 1;
    char service[16];
    *socket_out = -1;
    if (o->port < -1 || o->port > 65535) return lq_fail(err, LQ_E_USAGE, "port %d: expected 1 to 65535", o->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
    snprintf(service, sizeof service, "%d", number);
    const int failed = getaddrinfo(want, service, &hints, &list);
    if (failed) return lq_fail(err, LQ_E_IO, "%s: %s", want, gai_strerror(failed));
    int why = EADDRNOTAVAIL, fd = -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
            bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 4096) == 0)
            break;
        why = errno;
        if (fd >= 0) close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0) return lq_fail(err, LQ_E_IO, "can't listen on %s port %d: %s", want, number, strerror(why));
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &size);
    *port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                  : ((struct sockaddr_in *)&at)->sin_port);
    snprintf(host, host_size, "%s", want);
    *socket_out = fd;
    return true;
}

static void places_tell(server *s, int wanted) {
    char text[120];
    const int places = lq_loop_places(s->loop);
    if (places == wanted) return;
    snprintf(text, sizeof text, "%d connections at once, not %d: the limit of open files leaves no more (ulimit -n)",
             places, wanted);
    lq_log_add(s, text);
}

static bool loop_open(server *s, int *port, lq_err *err) {
    lq_loop_calls calls = lq_ask_calls;
    lq_loop_opts o = {.tls = s->tls, .max_connections = s->o->max_connections ? s->o->max_connections : 1024,
                      .max_per_address = s->o->max_per_address, .idle_seconds = IDLE_SECONDS};
    calls.round = on_round;
    calls.arg = s;
    if (!listen_on(s->o, &o.socket, s->host, sizeof s->host, port, err)) return false;
    if (!lq_loop_open(&o, &calls, &s->loop, err)) return false;
    places_tell(s, o.max_connections);
    if (atomic_load(&stop_fd) < 0) atomic_store(&stop_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return lq_loop_watch(s->loop, atomic_load(&stop_fd)) ||
        lq_fail(err, LQ_E_IO, "the server can't watch its sockets: %s", strerror(errno));
}

static void threads_end(server *s, pthread_t *thread, int count) {
    pthread_mutex_lock(&s->job_lock);
    atomic_store(&s->quit, true);
    pthread_cond_broadcast(&s->bell);
    pthread_mutex_unlock(&s->job_lock);
    lq_engine_wake(s->e);
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
}

// Runs what serves, and ends it.
static bool server_run(server *s, lq_err *err) {
    worker workers[WORKERS];
    pthread_t thread[WORKERS + 1];
    int port = 0, count = 0;
    if (!loop_open(s, &port, err)) return false;
    count += pthread_create(&thread[0], NULL, engine_run, s) == 0;
    for (int i = 0; count == i + 1 && i < WORKERS; i++) {
        workers[i] = (worker){.s = s, .first = i > 0};
        count += pthread_create(&thread[count], NULL, worker_run, &workers[i]) == 0;
    }
    const bool all = count == WORKERS + 1;
    if (all && s->o->ready) s->o->ready(s->o->arg, s->host, port);
    if (all) lq_loop_run(s->loop);
    threads_end(s, thread, count);
    return all || lq_fail(err, LQ_E_MEMORY, "the server's threads could not be started");
}

bool lq_serve_try(const lq_serve_opts *o, lq_err *err) {
    static const lq_serve_opts none;
    char host[256];
    int port, fd;
    const bool can = listen_on(o ? o : &none, &fd, host, sizeof host, &port, err);
    if (fd >= 0) close(fd);
    return can;
}

static bool server_open(server *s, lq_model *m, lq_engine *e, const lq_serve_opts *o, lq_err *err) {
    lq_model_info info;
    lq_engine_stats stats;
    lq_model_describe(m, &info);
    lq_engine_describe(e, &stats);
    s->e = e;
    s->o = o;
    s->max_body = o->max_body ? o->max_body : 4 << 20;
    s->started = (int64_t)time(NULL);
    snprintf(s->name, sizeof s->name, "%s", o->name && *o->name ? o->name : info.arch);
    if (gethostname(s->machine, sizeof s->machine - 1)) *s->machine = '\0';
    s->api = (lq_api){.model = m, .name = s->name, .vocab = info.vocab, .ctx = stats.ctx, .max_body = s->max_body,
                      .priorities = o->priorities, .deadline_ms = o->deadline_seconds * 1000};
    if (getrandom(&s->prefix, sizeof s->prefix, 0) != (ssize_t)sizeof s->prefix) s->prefix = (uint64_t)s->started << 32;
    pthread_mutex_init(&s->open_lock, NULL);
    pthread_mutex_init(&s->news_lock, NULL);
    pthread_mutex_init(&s->job_lock, NULL);
    pthread_mutex_init(&s->log_lock, NULL);
    pthread_cond_init(&s->bell, NULL);
    pthread_cond_init(&s->log_bell, NULL);
    s->lines_end = &s->lines;
    for (int i = 0; i < 2; i++) s->jobs_end[i] = &s->jobs[i];
    if (!(s->purses = calloc((size_t)o->key_count + 1, sizeof *s->purses)))
        return lq_fail(err, LQ_E_MEMORY, "no memory for a server");
    if (!o->tls_cert != !o->tls_key)
        return lq_fail(err, LQ_E_USAGE, "TLS wants both a certificate and its key");
    return !o->tls_cert || lq_tls_load(o->tls_cert, o->tls_key, &s->tls, err);
}

static void requests_end(server *s) {
    lq_loop_close(s->loop);
    for (int i = 0; i < 2; i++)
        for (request *r = s->jobs[i], *rest; r; r = rest) { // nobody wants them any more
            rest = r->job;
            lq_ask_work(r);
        }
    lq_ask_take_news(s);
}

static void log_end(server *s, pthread_t log) {
    pthread_mutex_lock(&s->log_lock);
    s->log_quit = true;
    pthread_cond_signal(&s->log_bell);
    pthread_mutex_unlock(&s->log_lock);
    pthread_join(log, NULL);
}

static void server_close(server *s) {
    lq_tls_unload(s->tls);
    lq_api_close(&s->api);
    pthread_mutex_destroy(&s->open_lock);
    pthread_mutex_destroy(&s->news_lock);
    pthread_mutex_destroy(&s->job_lock);
    pthread_mutex_destroy(&s->log_lock);
    pthread_cond_destroy(&s->bell);
    pthread_cond_destroy(&s->log_bell);
    free(s->purses);
    free(s);
}

bool lq_serve(lq_model *m, lq_engine *e, const lq_serve_opts *o, lq_err *err) {
    static const lq_serve_opts none;
    if (!o) o = &none;
    for (int i = 0; i < o->key_count; i++)
        if (!*o->keys[i]) return lq_fail(err, LQ_E_USAGE, "key %d is empty", i + 1);
    if (atomic_flag_test_and_set(&serving)) return lq_fail(err, LQ_E_USAGE, "this process is serving already");
    life f = {0};
    server *s = calloc(1, sizeof *s);
    if (s) s->life = &f;
    pthread_t log;
    bool done = s ? server_open(s, m, e, o, err) : lq_fail(err, LQ_E_MEMORY, "no memory for a server");
    const bool logs = done && pthread_create(&log, NULL, log_run, s) == 0;
    if (done && !logs) done = lq_fail(err, LQ_E_MEMORY, "the log's thread could not be started");
    done = done && lq_api_open(&s->api, o, err) && server_run(s, err);
    if (s) requests_end(s);
    if (logs) log_end(s, log);
    if (s) server_close(s);
    atomic_store(&stops, 0);
    atomic_flag_clear(&serving);
    return done;
}

void lq_serve_stop(void) {
    const int saved = errno, fd = (atomic_fetch_add(&stops, 1), atomic_load(&stop_fd));
    const uint64_t one = 1;
    if (fd >= 0 && write(fd, &one, sizeof one) < 0) errno = 0; // full means that it is awake already
    errno = saved;
}
