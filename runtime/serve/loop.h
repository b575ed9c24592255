// loop.h: connections of HTTP/1.1 on one thread: a socket that listens, reading, writing, time limits. What is asked
// and answered is the caller's, who is told by calls, all on the loop's thread, and answers then or later.
#ifndef LQ_LOOP_H
#define LQ_LOOP_H
#include "runtime/serve/http.h"
#include "runtime/serve/tls.h"
#include "formats/json.h"

typedef struct lq_loop lq_loop;
typedef struct lq_conn lq_conn;

// The parts of an exchange, in this order. `ask` is the caller's own of one exchange.
typedef struct lq_loop_calls {
    // A head is in, or a fault in its place: what came is no request, and is to be replied to. Whoever replies at once
    // is not told of the body. NULL: no memory, the connection is closed.
    void *(*head)(void *arg, lq_conn *c, const lq_head *h, const lq_fault *fault);
    // More of the body as it comes, and its end; or a fault, which is to be replied to.
    void (*body)(void *ask, const char *p, size_t n);
    void (*whole)(void *ask);
    void (*fault)(void *ask, const lq_fault *fault);
    // The client has closed its half of the connection, or all of it: if all, `end` comes once something is sent.
    void (*half)(void *ask);
    // The connection is not the exchange's any more. sent: all of the reply was handed to the system.
    void (*end)(void *ask, bool sent);
    // Each time round, at least each second: how many ms the loop may sleep, 1000 at most. Negative: it ends.
    int (*round)(void *arg);
    void *arg;
} lq_loop_calls;

typedef struct lq_loop_opts {
    int socket;           // that listens; the loop's from here on
    lq_tls_keys *tls;     // NULL: none
    int max_connections;  // beyond them a few are let in as lq_conn_spare; idle ones make room. Lowered to what the
                          // limit of open files leaves
    int max_per_address;  // 0: any number
    int idle_seconds;     // for a connection on which nothing is asked
} lq_loop_opts;

bool lq_loop_open(const lq_loop_opts *o, const lq_loop_calls *calls, lq_loop **out, lq_err *err);
void lq_loop_close(lq_loop *l);
void lq_loop_run(lq_loop *l);
void lq_loop_wake(lq_loop *l);          // from any thread
bool lq_loop_watch(lq_loop *l, int fd); // an eventfd that wakes the loop too; its owner's
double lq_serve_clock(void);            // seconds of a clock that nobody sets
double lq_loop_now(const lq_loop *l);   // seconds, as of the last time that something came
int lq_loop_count(const lq_loop *l);    // connections on which a request is under way
int lq_loop_places(const lq_loop *l);   // max_connections, as it came to be

// A whole reply. `fields`: more of the head, whole lines; may be NULL. The text is taken: *body is empty afterwards.
// close: the connection ends with it.
void lq_conn_reply(lq_conn *c, int status, const char *type, const char *fields, lq_text *body, bool close);
// A reply that comes in pieces: its head, any number of pieces, its end. cut: what was promised does not come.
void lq_conn_begin(lq_conn *c, int status, const char *type, const char *fields);
void lq_conn_send(lq_conn *c, const char *p, size_t n);
void lq_conn_finish(lq_conn *c);
void lq_conn_cut(lq_conn *c);
// Sends what a client that is still there does not mind, and one that has gone answers with a reset: `comment`, in a
// reply that has begun; else 100 Continue. False: there is nothing of the kind (HTTP/1.0).
bool lq_conn_probe(lq_conn *c, const char *comment, size_t n);
size_t lq_conn_unsent(const lq_conn *c);
bool lq_conn_spare(const lq_conn *c); // let in beyond max_connections
bool lq_conn_begun(const lq_conn *c);
#endif
