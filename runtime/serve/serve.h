// serve.h: what the files of the server share: the server, its requests, and who does what.
//
//   loop.c     connections, on the thread that called lq_serve; all that follows is called from there but where it says
//   ask.c      a request from its head to the end of its answer
//   guard.c    who may ask: hosts, origins, keys, rates
//   metrics.c  what is counted: /metrics, and /kv_blocks
//   page.c     the page at /
//   serve.c    life: threads, signals, the drain
//
// A body is parsed and made tokens by a worker, so that a large one holds nobody up, and the worker submits it. The
// engine's thread adds to an answer. Both put a request on the list of those with news (lq_ask_news), which the loop
// takes each time round: once a step, however many got a token in it.
//
// Locks: server.open_lock, then request.lock (the answer), then the engine's own or server.news_lock. on_event holds
// none of the engine's. A request lives until its connection, its worker, the list of news and every one of its engine
// requests have let go of it.
#ifndef LQ_SERVE_H
#define LQ_SERVE_H
#include "runtime/serve/loop.h"
#include "runtime/serve/server.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct request request;
typedef struct server server;
typedef struct life life;

typedef struct route {
    const char *path;
    bool prefix, post;
    bool free;                                      // no key is needed
    bool admin;                                     // an administrator's is
    const char *type;
    bool (*run)(request *r, const char *rest);      // the answer goes to r->out; false: r->no says why not
} route;

typedef struct part { // one prompt in the engine
    request *r;
    int64_t prompt;
    uint64_t id;
    int live;    // choices that have not ended; the engine thread's
    double last; // when its newest token came
} part;

struct request {
    server *s;
    lq_conn *conn;      // NULL: it has let go
    const route *route; // NULL: none
    char *rest;         // of the path, after a prefix
    lq_refusal no;
    int wait;           // seconds after which a refused one may try again; 0: it says nothing of that
    lq_text body, out;
    size_t counted;     // of the body, in server.bodies
    int status;         // of the reply; 0: 200
    const char *type;   // of the reply; NULL: the route's
    const struct lq_page *page; // a file of the page; NULL: it is none
    bool known;         // the client has that file already
    const char *method, *allow; // method "-": one that nothing here answers
    char id[64];        // X-Request-Id: the client's, or ours
    char origin[128];   // that may read the answer; "": none was named
    uint64_t client;    // whose it is, for the engine; 0: not known yet
    double begun, first;
    atomic_int refs;
    request *next, *prev;  // in server.open
    request *news, *job;   // in the lists of that name

    pthread_mutex_t lock;  // of what follows
    bool told;             // it is on the list of news
    bool worked;           // its worker is through
    bool taken;            // ... and it is in the engine
    bool refused;          // what the engine says is not wanted
    part *parts;           // [part_count]
    int64_t part_count;
    lq_answer answer;
    uint64_t number;
};

// Whether new requests are taken: an administrator's word can be taken back, the end cannot.
enum lq_drain { LQ_TAKES, LQ_DRAINED, LQ_LEAVES };

enum { LQ_BUCKETS = 14 };
typedef struct lq_times { // a histogram
    atomic_uint_fast64_t bucket[LQ_BUCKETS + 1], count;
    _Atomic double sum;
} lq_times;

typedef struct lq_purse { double tokens, at; } lq_purse; // of a key: what it may still ask for

struct server {
    lq_engine *e;
    const lq_serve_opts *o;
    lq_api api;
    char name[256], host[256], machine[256];
    lq_loop *loop;
    life *life;            // serve.c's
    lq_tls_keys *tls;
    size_t max_body;
    int64_t started;
    uint64_t prefix;       // of ids
    lq_purse *purses;      // [key_count, or 1]

    pthread_mutex_t open_lock;
    request *open;         // all there are
    pthread_mutex_t news_lock;
    request *news;
    pthread_mutex_t job_lock; // of what follows
    pthread_cond_t bell;
    request *jobs[2], **jobs_end[2]; // small ones and large ones
    int job_count;
    pthread_mutex_t log_lock; // of what follows
    pthread_cond_t log_bell;
    struct line *lines, **lines_end; // of the log, not written yet
    int line_count, lost;
    bool log_quit;

    atomic_bool poked, sick, quit; // quit: the engine's thread and the workers are to end
    atomic_int drain;      // enum lq_drain
    atomic_size_t bodies;  // bytes of bodies in memory
    atomic_int live;       // engine requests that have not ended
    atomic_uint_fast64_t number, ids, ended[LQ_FAILED + 1], replies[6]; // replies: by hundreds of the status
    lq_times first, between, whole; // seconds: to the first token, between two, to the end
};

// --- ask.c ---
extern const lq_loop_calls lq_ask_calls;  // but for `round` and `arg`
void lq_ask_news(request *r);             // any thread, under its lock
void lq_ask_take_news(server *s);
void lq_ask_work(request *r);             // a worker's
void lq_ask_cancel_all(server *s);
// serve.c
bool lq_job_add(request *r);              // false: there are too many
// Any thread; a disk that is slow holds nobody up. Words, or (`put`) a line as it is.
void lq_log_add(server *s, const char *words);
void lq_log_put(server *s, const char *line);
const char *lq_log_time(char *to, size_t size); // now, as logs have it

// --- guard.c ---
// Each true, or r->no says why not.
bool lq_guard_host(request *r, const lq_head *h);
bool lq_guard_key(request *r, const lq_head *h);
bool lq_guard_rate(request *r);
bool lq_guard_type(request *r, const lq_head *h);  // of a body
// Who may read the answer in a browser: fills r->origin.
void lq_guard_origin(request *r, const lq_head *h);
bool lq_guard_varies(const lq_serve_opts *o); // whether an answer depends on who asks

// --- metrics.c ---
void lq_times_add(lq_times *t, double s);
bool lq_metrics_run(request *r, const char *rest);
bool lq_blocks_run(request *r, const char *rest);

// --- page.c ---
void lq_page_look(request *r, const lq_head *h); // which file it is, and whether the client has it
bool lq_page_run(request *r, const char *rest);
int lq_page_fields(const request *r, char *to, size_t size); // lines of the head; returns as snprintf
#endif
