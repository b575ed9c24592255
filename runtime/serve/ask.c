// ask.c: a request from its head to the end of its answer. Owns the requests; what is said in them is the protocols'.
//
// Refuses bodies past a limit, strangers, and everything new while the server drains.
//
// A client that is gone is cancelled at once; one that does not read is cancelled when its unread bytes pass
// STREAM_CAP. A client that only closed its own half may still be reading: it is sent something that it ignores, and
// that a closed socket answers with a reset.
#include "runtime/serve/serve.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    STREAM_CAP = 1 << 20,  // bytes a stream's client may leave unread, beside what the socket holds
    BODIES = 16,           // request bodies of the largest size that may be in memory at once
    LINES = 1280,          // bytes of a head's lines
    ASKED = 1024           // of the headers that a page would send
};

// --- life ---

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

// Not under its lock: the engine has one of its own. The ids do not change once its worker is through.
static void cancel(request *r) {
    for (int64_t i = 0; i < r->part_count; i++) lq_cancel(r->s->e, r->parts[i].id);
}

static void list(request *r, bool in) {
    server *s = r->s;
    pthread_mutex_lock(&s->open_lock);
    if (in) {
        r->next = s->open;
        if (r->next) r->next->prev = r;
        s->open = r;
    } else {
        if (r->prev) r->prev->next = r->next;
        else s->open = r->next;
        if (r->next) r->next->prev = r->prev;
    }
    pthread_mutex_unlock(&s->open_lock);
}

void lq_ask_news(request *r) {
    server *s = r->s;
    if (r->told) return;
    r->told = true;
    atomic_fetch_add(&r->refs, 1);
    pthread_mutex_lock(&s->news_lock);
    r->news = s->news;
    s->news = r;
    pthread_mutex_unlock(&s->news_lock);
}

// --- replies ---

static const char json_type[] = "application/json", stream_type[] = "text/event-stream; charset=utf-8";

// Lines of the head that every reply has, and those of its status.
static const char *fields(request *r, char *to, size_t size) {
    int n = snprintf(to, size, "X-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\nRequest-Id: %s\r\n", r->id, r->id);
    char *const end = to + size;
#define ADD(...) n += snprintf(to + n, (size_t)(end - to - n), __VA_ARGS__)
    if (*r->origin) ADD("Access-Control-Allow-Origin: %s\r\nAccess-Control-Expose-Headers: X-Request-Id, Request-Id, Retry-After\r\n", r->origin);
    if (lq_guard_varies(r->s->o)) ADD("Vary: Origin\r\n");
    if (r->status == 401) ADD("WWW-Authenticate: Bearer\r\n");
    if (r->status == 405 && r->allow) ADD("Allow: %s\r\n", r->allow);
    if (r->status == 429 || r->status == 503) ADD("Retry-After: %d\r\n", r->wait > 0 ? r->wait : 1);
    if (r->page) n += lq_page_fields(r, to + n, (size_t)(end - to - n));
#undef ADD
    return to;
}

static void reply(request *r, int status, const char *type, lq_text *body) {
    static const char failed[] = "{\"error\":{\"message\":\"no memory for the answer\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
    char lines[LINES];
    if (body->failed) {
        lq_text_free(body);
        *body = (lq_text){0};
        lq_text_add(body, failed, sizeof failed - 1);
        status = 500, type = json_type;
    }
    r->status = status;
    atomic_fetch_add(&r->s->replies[status / 100], 1);
    const bool closes = lq_conn_spare(r->conn);
    lq_conn_reply(r->conn, status, type, fields(r, lines, sizeof lines), body, closes);
}

static void reply_refusal(request *r, const lq_refusal *no) {
    r->out.n = 0;
    lq_refusal_write(no, r->route ? r->route->path : NULL, r->id, &r->out);
    reply(r, no->status, json_type, &r->out);
}

static void stream_begin(request *r) {
    char lines[LINES];
    r->status = 200;
    atomic_fetch_add(&r->s->replies[2], 1);
    fields(r, lines, sizeof lines - 32);
    strcat(lines, "Cache-Control: no-cache\r\n");
    lq_conn_begin(r->conn, 200, stream_type, lines);
}

// --- what the engine says ---

static void count_tokens(part *p, const lq_event *e) {
    request *r = p->r;
    server *s = r->s;
    if (!e->count || e->prompt) return;
    const double now = lq_serve_clock();
    if (r->first == 0) {
        r->first = now;
        lq_times_add(&s->first, now - r->begun);
    } else if (p->last > 0 && r->answer.n == 1) lq_times_add(&s->between, now - p->last);
    p->last = now;
}

static bool on_event(void *arg, const lq_event *e) {
    part *p = arg;
    request *r = p->r;
    server *s = r->s;
    bool wanted = true;
    pthread_mutex_lock(&r->lock);
    lq_answer *a = &r->answer;
    if (!r->refused) {
        count_tokens(p, e);
        lq_answer_event(a, p->prompt, e);
        wanted = !a->failure.status;
        if (a->stream ? a->out.n > 0 : !a->open) lq_ask_news(r);
    } else wanted = false;
    pthread_mutex_unlock(&r->lock);
    if (e->finish == LQ_RUNNING) return wanted;
    atomic_fetch_add(&s->ended[e->finish], 1);
    if (--p->live) return wanted;
    release(r);
    atomic_fetch_sub(&s->live, 1);
    return wanted;
}

// Part of a request that failed is not worth the rest of it; nobody waits for one whose client is gone.
static void give_up(request *r) {
    pthread_mutex_lock(&r->lock);
    r->refused = true;
    const bool running = r->taken && r->answer.open;
    pthread_mutex_unlock(&r->lock);
    if (running) cancel(r);
}

static void news_take(request *r) {
    bool ended, failed;
    pthread_mutex_lock(&r->lock);
    r->told = false;
    lq_answer *a = &r->answer;
    lq_conn *c = r->conn;
    if (!c || !r->worked) {
        pthread_mutex_unlock(&r->lock);
        return;
    }
    ended = r->taken && !a->open;
    failed = ended && a->failure.status;
    if (ended) r->refused = true;
    if (r->taken && a->stream) {
        if (!lq_conn_begun(c)) stream_begin(r);
        lq_conn_send(c, a->out.p, a->out.n);
        failed = failed || a->out.failed;
        a->out.n = 0;
    }
    pthread_mutex_unlock(&r->lock);
    if (failed) cancel(r); // its other parts
    if (!r->taken && r->no.status) reply_refusal(r, &r->no);
    else if (!r->taken) reply(r, 200, r->route->type, &r->out);
    else if (a->stream && lq_conn_unsent(c) > STREAM_CAP) {
        give_up(r);
        lq_conn_cut(c);
    } else if (ended && a->stream) lq_conn_finish(c);
    else if (ended && a->failure.status) reply_refusal(r, &a->failure);
    else if (ended) reply(r, 200, json_type, &a->out);
}

void lq_ask_take_news(server *s) {
    atomic_store(&s->poked, false);
    pthread_mutex_lock(&s->news_lock);
    request *r = s->news, *rest;
    s->news = NULL;
    pthread_mutex_unlock(&s->news_lock);
    for (; r; r = rest) {
        rest = r->news;
        news_take(r);
        release(r);
    }
}

void lq_ask_cancel_all(server *s) {
    pthread_mutex_lock(&s->open_lock);
    for (request *r = s->open; r; r = r->next) {
        pthread_mutex_lock(&r->lock);
        const bool running = r->taken && r->answer.open;
        pthread_mutex_unlock(&r->lock);
        if (running) cancel(r);
    }
    pthread_mutex_unlock(&s->open_lock);
}

// --- completions ---

// Whether new requests are taken; else it refuses this one.
static bool takes(request *r) {
    const int drain = atomic_load(&r->s->drain);
    const char *why = drain == LQ_DRAINED ? "the server was drained and takes no new requests"
                                          : "the server is shutting down";
    return drain == LQ_TAKES || lq_refuse(&r->no, 503, NULL, NULL, "%s", why);
}

// All prompts or none: those submitted before one that is refused are cancelled.
static bool parts_submit(request *r, const lq_completion *c) {
    const int count = (int)r->part_count;
    int done = 0;
    lq_err err;
    atomic_fetch_add(&r->refs, count);
    // Before the look at `drain`: who drains sets that first and then waits for these.
    atomic_fetch_add(&r->s->live, count);
    bool submitted = takes(r);
    while (submitted && done < count) {
        part *p = &r->parts[done];
        lq_request q = lq_completion_request(c, done);
        *p = (part){.r = r, .prompt = done, .live = q.n};
        q.on_event = on_event;
        q.arg = p;
        q.beside = done > 0;
        q.client = r->client ? r->client : r->number + 1;
        if (lq_submit(r->s->e, &q, &p->id, &err)) done++;
        else submitted = lq_refuse_error(&r->no, lq_completion_param(c), &err);
    }
    if (submitted) return true;
    r->part_count = done;
    give_up(r);
    cancel(r);
    atomic_fetch_sub(&r->refs, count - done);
    atomic_fetch_sub(&r->s->live, count - done);
    return false;
}

static bool completion_run(request *r, const char *rest) {
    server *s = r->s;
    lq_completion c;
    (void)rest;
    if (!takes(r)) return false;
    if (!lq_completion_parse(&s->api, lq_dialect_at(r->route->path), r->body.n ? r->body.p : "", r->body.n, &c, &r->no))
        return false;
    bool begun = lq_completion_encode(&s->api, &c, &r->no);
    if (begun) {
        r->number = atomic_fetch_add(&s->number, 1);
        r->parts = calloc((size_t)c.prompt_count, sizeof *r->parts);
        begun = r->parts && lq_answer_begin(&r->answer, &s->api, &c, s->prefix + r->number, (int64_t)time(NULL));
        if (!begun) lq_refuse(&r->no, 500, NULL, NULL, "no memory for a request");
        r->part_count = begun ? c.prompt_count : 0;
        begun = begun && parts_submit(r, &c);
    }
    lq_completion_free(&c);
    return begun;
}

// --- the other endpoints ---

static bool reply_run(request *r, lq_replier *replier) {
    return replier(&r->s->api, r->body.n ? r->body.p : "", r->body.n, &r->out, &r->no);
}

static bool tokenize_run(request *r, const char *rest) { return (void)rest, reply_run(r, lq_tokenize_reply); }
static bool detokenize_run(request *r, const char *rest) { return (void)rest, reply_run(r, lq_detokenize_reply); }
static bool count_run(request *r, const char *rest) { return (void)rest, reply_run(r, lq_count_reply); }
static bool info_run(request *r, const char *rest) { return (void)rest, reply_run(r, lq_tokenizer_info_reply); }

static bool models_run(request *r, const char *rest) {
    const lq_api *api = &r->s->api;
    if (*rest && strcmp(rest, api->name))
        return lq_refuse(&r->no, 404, "model", "model_not_found", "there is no model of this name here, only %.200s",
                         api->name);
    lq_models_reply(api, !*rest, r->s->started, &r->out);
    return true;
}

// Alive: the engine's last step did not fail.
static bool health_run(request *r, const char *rest) {
    (void)rest;
    if (atomic_load(&r->s->sick)) return lq_refuse(&r->no, 503, NULL, NULL, "the last step of the engine failed");
    lq_text_fmt(&r->out, "{\"status\":\"ok\"}");
    return true;
}

// Takes requests: alive, not draining.
static bool ready_run(request *r, const char *rest) {
    return takes(r) && health_run(r, rest);
}

// What runs goes on; /ready says no until it is taken back.
static bool drain_run(request *r, const char *rest) {
    int was = LQ_TAKES;
    lq_engine_stats e;
    (void)rest;
    atomic_compare_exchange_strong(&r->s->drain, &was, LQ_DRAINED);
    lq_engine_describe(r->s->e, &e);
    if (was == LQ_TAKES) lq_log_add(r->s, "drained: no new requests until /admin/resume");
    lq_text_fmt(&r->out, "{\"status\":\"draining\",\"running\":%d,\"waiting\":%d}", e.running, e.waiting);
    return true;
}

static bool resume_run(request *r, const char *rest) {
    int was = LQ_DRAINED;
    (void)rest;
    atomic_compare_exchange_strong(&r->s->drain, &was, LQ_TAKES);
    if (was == LQ_LEAVES) return takes(r);
    if (was == LQ_DRAINED) lq_log_add(r->s, "resumed: new requests are taken");
    lq_text_fmt(&r->out, "{\"status\":\"ok\"}");
    return true;
}

static const route routes[] = {
    {"/v1/completions", false, true, false, false, json_type, completion_run},
    {"/v1/chat/completions", false, true, false, false, json_type, completion_run},
    {"/v1/embeddings", false, true, false, false, json_type, completion_run},
    {"/v1/responses", false, true, false, false, json_type, completion_run},
    {"/v1/messages", false, true, false, false, json_type, completion_run},
    {"/v1/messages/count_tokens", false, true, false, false, json_type, count_run},
    {"/generate", false, true, false, false, json_type, completion_run},
    {"/generate_stream", false, true, false, false, json_type, completion_run},
    {"/", false, true, false, false, json_type, completion_run},
    {"/v1/models", false, false, false, false, json_type, models_run},
    {"/v1/models/", true, false, false, false, json_type, models_run},
    {"/tokenize", false, true, false, false, json_type, tokenize_run},
    {"/detokenize", false, true, false, false, json_type, detokenize_run},
    {"/tokenizer_info", false, false, false, false, json_type, info_run},
    {"/metrics", false, false, false, false, "text/plain; version=0.0.4; charset=utf-8", lq_metrics_run},
    {"/kv_blocks", false, false, false, false, json_type, lq_blocks_run},
    {"/", false, false, true, false, NULL, lq_page_run},
    {"/page/", true, false, true, false, NULL, lq_page_run},
    {"/health", false, false, true, false, json_type, health_run},
    {"/ready", false, false, true, false, json_type, ready_run},
    {"/admin/drain", false, true, false, true, json_type, drain_run},
    {"/admin/resume", false, true, false, true, json_type, resume_run},
};

// --- a request comes in ---

static bool route_find(request *r, const char *path, const char *method) {
    const bool post = !strcmp(method, "POST"), head = !strcmp(method, "HEAD"), get = head || !strcmp(method, "GET");
    r->method = post ? "POST" : head ? "HEAD" : get ? "GET" : "-";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const route *t = &routes[i];
        const size_t n = strlen(t->path);
        if (t->prefix ? strncmp(path, t->path, n) != 0 || !path[n] : strcmp(path, t->path) != 0) continue;
        if (t->run == lq_page_run && r->s->o->no_page) continue;
        r->allow = r->route ? "GET, HEAD, POST" : t->post ? "POST" : "GET, HEAD";
        r->route = t;
        if (!(t->post ? post : get)) continue; // another may answer that here
        return (r->rest = strdup(path + n)) || lq_refuse(&r->no, 500, NULL, NULL, "no memory for a request");
    }
    if (!r->route) return lq_refuse(&r->no, 404, NULL, "not_found", "there is nothing at this path");
    return lq_refuse(&r->no, 405, NULL, "method_not_allowed", "%s answers %s", r->route->path, r->allow);
}

// What the client calls the request, where that is a plain word; else a name of ours.
static void id_make(request *r, const lq_head *h) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:";
    const char *given = h ? lq_head_value(h, "X-Request-Id") : NULL;
    const size_t n = given ? strlen(given) : 0;
    if (n && n < sizeof r->id && strspn(given, plain) == n) memcpy(r->id, given, n + 1);
    else snprintf(r->id, sizeof r->id, "req-%016" PRIx64, r->s->prefix + atomic_fetch_add(&r->s->ids, 1));
}

// A page asks whether it may ask, and with which headers: what its library has to say beside those read here is let in.
static void preflight(request *r, const lq_head *h) {
    char lines[LINES + ASKED];
    const char *more = lq_head_value(h, "Access-Control-Request-Headers");
    lq_text none = {0};
    r->status = 204;
    if (!more || !*more || strlen(more) > ASKED || !lq_words_plain(more)) more = NULL;
    const size_t n = strlen(fields(r, lines, LINES));
    snprintf(lines + n, sizeof lines - n, "Vary: Access-Control-Request-Headers\r\nAccess-Control-Allow-Methods: GET, POST\r\n"
             "Access-Control-Max-Age: 600\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, X-Api-Key, X-Request-Id%s%s\r\n",
             more ? ", " : "", more ? more : "");
    atomic_fetch_add(&r->s->replies[2], 1);
    lq_conn_reply(r->conn, 204, NULL, lines, &none, false);
}

static bool refuse_large(request *r) {
    return lq_refuse(&r->no, 413, NULL, NULL, "the body is larger than %zu bytes", r->s->max_body);
}

static bool may_come(request *r, const lq_head *h) {
    const bool found = route_find(r, h->path, h->method);
    if (!lq_guard_host(r, h) || !lq_guard_key(r, h)) return false; // a stranger is told of no path
    if (!found) return false;
    if (lq_conn_spare(r->conn) && !r->route->free)
        return lq_refuse(&r->no, 503, NULL, NULL, "too many connections are open");
    if (h->length > r->s->max_body) return refuse_large(r);
    lq_page_look(r, h);
    return r->route->admin || ((!r->route->post || lq_guard_type(r, h)) && lq_guard_rate(r));
}

static void *on_head(void *arg, lq_conn *c, const lq_head *h, const lq_fault *fault) {
    server *s = arg;
    request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->s = s;
    r->conn = c;
    r->begun = lq_serve_clock();
    r->method = "-";
    atomic_init(&r->refs, 1);
    pthread_mutex_init(&r->lock, NULL);
    id_make(r, h);
    list(r, true);
    if (h) lq_guard_origin(r, h);
    if (fault) lq_refuse(&r->no, fault->status, NULL, NULL, "%s", fault->text);
    else if (*r->origin && !strcmp(h->method, "OPTIONS")) {
        preflight(r, h);
        return r;
    } else may_come(r, h);
    if (r->no.status) reply_refusal(r, &r->no);
    return r;
}

static void on_body(void *ask, const char *p, size_t n) {
    request *r = ask;
    server *s = r->s;
    if (r->body.n + n > s->max_body) refuse_large(r);
    else if (atomic_fetch_add(&s->bodies, n) + n > s->max_body * BODIES) {
        atomic_fetch_sub(&s->bodies, n);
        lq_refuse(&r->no, 503, NULL, NULL, "too many large requests at once");
    } else {
        r->counted += n;
        lq_text_add(&r->body, p, n);
        if (r->body.failed) lq_refuse(&r->no, 500, NULL, NULL, "no memory for the body");
    }
    if (!r->no.status) return;
    body_drop(r);
    reply_refusal(r, &r->no);
}

static void on_fault(void *ask, const lq_fault *fault) {
    request *r = ask;
    lq_refuse(&r->no, fault->status, NULL, NULL, "%s", fault->text);
    reply_refusal(r, &r->no);
}

// What is read only is answered here; what has a body is a worker's.
static void on_whole(void *ask) {
    request *r = ask;
    if (!r->route->post) {
        if (!r->route->run(r, r->rest)) reply_refusal(r, &r->no);
        else reply(r, r->status ? r->status : 200, r->type ? r->type : r->route->type, &r->out);
        return;
    }
    atomic_fetch_add(&r->refs, 1);
    if (lq_job_add(r)) return;
    release(r);
    lq_refuse(&r->no, 503, NULL, NULL, "too many requests are being read");
    reply_refusal(r, &r->no);
}

void lq_ask_work(request *r) {
    pthread_mutex_lock(&r->lock);
    const bool wanted = !r->refused;
    pthread_mutex_unlock(&r->lock);
    const bool done = wanted && r->route->run(r, r->rest);
    body_drop(r);
    pthread_mutex_lock(&r->lock);
    r->worked = true;
    r->taken = done && r->part_count > 0;
    const bool gone = r->refused && r->taken;
    lq_ask_news(r);
    pthread_mutex_unlock(&r->lock);
    if (gone) cancel(r);
    release(r);
}

static void on_half(void *ask) {
    static const char comment[] = ":\n\n";
    request *r = ask;
    if (!lq_conn_probe(r->conn, comment, sizeof comment - 1)) lq_conn_cut(r->conn);
}

static void log_words(const request *r, double seconds, bool whole, bool counts) {
    char line[400], tokens[96] = "", first[48] = "";
    const lq_answer *a = &r->answer;
    if (counts)
        snprintf(tokens, sizeof tokens, " %" PRId64 "+%" PRId64 " tokens%s", a->prompt_tokens, a->sampled_tokens,
                 a->stream ? " streamed" : "");
    if (counts && r->first > 0)
        snprintf(first, sizeof first, ", first after %.0f ms", (r->first - r->begun) * 1e3);
    snprintf(line, sizeof line, "%s %s %s %d%s%s, %.1f ms%s", r->id, r->method, r->route ? r->route->path : "-",
             r->status, tokens, first, seconds * 1e3, whole ? "" : ", cut off");
    lq_log_add(r->s, line);
}

static void log_json(const request *r, double seconds, bool whole, bool counts) {
    const lq_answer *a = &r->answer;
    char when[48];
    lq_text t = {0};
    lq_text_fmt(&t, "{\"time\":\"%s\",\"id\":\"%s\",\"method\":\"%s\",\"route\":\"%s\",\"status\":%d,\"ms\":%.1f",
                lq_log_time(when, sizeof when), r->id, r->method, r->route ? r->route->path : "-", r->status,
                seconds * 1e3);
    if (r->client) lq_text_fmt(&t, ",\"key\":%" PRIu64, r->client);
    if (counts)
        lq_text_fmt(&t, ",\"stream\":%s,\"prompt_tokens\":%" PRId64 ",\"cached_tokens\":%" PRId64
                    ",\"completion_tokens\":%" PRId64,
                    a->stream ? "true" : "false", a->prompt_tokens, a->cached_tokens, a->sampled_tokens);
    if (r->first > 0) lq_text_fmt(&t, ",\"ttft_ms\":%.1f", (r->first - r->begun) * 1e3);
    lq_text_fmt(&t, ",\"whole\":%s}", whole ? "true" : "false");
    if (!t.failed) lq_log_put(r->s, t.p);
    lq_text_free(&t);
}

// The route, not the path: that is the client's text. An id has plain characters alone.
static void log_line(const request *r, bool whole, bool counts) {
    const double seconds = lq_serve_clock() - r->begun;
    // Looks at the server are no news.
    if ((r->status == 200 || r->status == 304) && r->route && !r->route->post) return;
    if (r->s->o->log_json) log_json(r, seconds, whole, counts);
    else log_words(r, seconds, whole, counts);
}

static void on_end(void *ask, bool sent) {
    request *r = ask;
    pthread_mutex_lock(&r->lock);
    r->conn = NULL;
    r->refused = true;
    const bool running = r->taken && r->answer.open, counted = r->taken && sent;
    const bool counts = r->worked && r->part_count; // until then they are the worker's
    pthread_mutex_unlock(&r->lock); // nobody changes the answer from here on
    list(r, false);
    if (counted) lq_times_add(&r->s->whole, lq_serve_clock() - r->begun);
    log_line(r, sent, counts);
    if (running) cancel(r);
    release(r);
}

const lq_loop_calls lq_ask_calls = {.head = on_head, .body = on_body, .whole = on_whole, .fault = on_fault,
                                    .half = on_half, .end = on_end};
