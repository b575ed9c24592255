// load_ask.c: what `lq bench serve` learns of a server before it puts load on it: which of its addresses answers, what
// its model is called, which token ids it takes, how many tokens a word is. One question at a time, a connection each.
#include "tools/load.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool lq_load_url(lq_load *l, const char *url, lq_err *err) {
    const char *p = url;
    if (!strncmp(p, "https://", 8)) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: https is not spoken, http is", url);
    if (!strncmp(p, "http://", 7)) p += 7;
    else if (strstr(p, "://")) return lq_fail(err, LQ_E_USAGE, "%s: is no URL like http://127.0.0.1:8080", url);
    const bool bracket = *p == '[';
    const char *end = bracket ? strchr(p, ']') : p + strcspn(p, ":/");
    const char *path = end ? end + bracket : p;
    if (bracket) p++;
    size_t port = 0;
    if (end && *path == ':') {
        port = strspn(++path, "0123456789");
        if (!port || port > 5) end = NULL;
        else snprintf(l->port, sizeof l->port, "%.*s", (int)port, path);
        path += port;
    } else snprintf(l->port, sizeof l->port, "80");
    size_t n = strlen(path);
    while (n && path[n - 1] == '/') n--;
    const bool v1 = n >= 3 && !memcmp(path + n - 3, "/v1", 3);
    if (!end || end == p || (size_t)(end - p) >= sizeof l->host || n + 4 > sizeof l->base || strpbrk(p, " \r\n\t?#") ||
        (*path && *path != '/'))
        return lq_fail(err, LQ_E_USAGE, "%s: is no URL like http://127.0.0.1:8080", url);
    snprintf(l->host, sizeof l->host, "%.*s", (int)(end - p), p);
    snprintf(l->base, sizeof l->base, "%.*s%s", (int)n, path, v1 ? "" : "/v1");
    return true;
}

void lq_load_head(const lq_load *l, const char *method, const char *path, size_t body, lq_text *out) {
    const bool six = strchr(l->host, ':') != NULL;
    lq_text_fmt(out, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: lq/%s\r\nAccept: */*\r\n", method, l->base, path,
                six ? "[" : "", l->host, six ? "]" : "", l->port, LQ_VERSION);
    if (l->key) lq_text_fmt(out, "Authorization: Bearer %s\r\n", l->key);
    if (body) lq_text_fmt(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body);
    lq_text_fmt(out, "\r\n");
}

// --- one question ---

static bool wait_until(int fd, short what, double end) {
    struct pollfd p = {.fd = fd, .events = what};
    while (!lq_input_stopped()) {
        const double left = end - lq_seconds();
        if (left <= 0) return errno = ETIMEDOUT, false;
        const int n = poll(&p, 1, left > 0.2 ? 200 : (int)(left * 1000) + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
    return errno = EINTR, false;
}

static int connect_to(const struct sockaddr *address, size_t size, int family, double end) {
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t length = sizeof error;
    if (fd < 0) return -1;
    if (!connect(fd, address, (socklen_t)size)) return fd;
    if (errno == EINPROGRESS && wait_until(fd, POLLOUT, end) &&
        !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) && !error) return fd;
    if (error) errno = error;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static bool keep_body(void *arg, const char *p, size_t n, lq_err *err) {
    lq_text *t = arg;
    lq_text_add(t, p, n);
    return !t->failed && t->n < (1 << 24) ? true : lq_fail(err, LQ_E_LIMIT, "an answer of over 16 MB");
}

static bool talk(int fd, const lq_text *out, lq_load_http *h, lq_text *answer, double end, lq_err *err) {
    char piece[16384];
    for (size_t sent = 0; sent < out->n;) {
        const ssize_t n = send(fd, out->p + sent, out->n - sent, MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        else if (errno == EPIPE || errno == ECONNRESET) break; // it may have answered before it heard all
        else if ((errno != EAGAIN && errno != EINTR) || !wait_until(fd, POLLOUT, end))
            return lq_fail(err, LQ_E_IO, "%s", strerror(errno));
    }
    while (h->part != LQ_LOAD_DONE) {
        const ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n > 0 && !lq_load_http_read(h, piece, (size_t)n, keep_body, answer, err)) return false;
        if (n == 0 && !lq_load_http_end(h, err)) return false;
        if (n < 0 && ((errno != EAGAIN && errno != EINTR) || !wait_until(fd, POLLIN, end)))
            return lq_fail(err, LQ_E_IO, "%s", strerror(errno));
    }
    return true;
}

// *status of HTTP, *answer its body. False: there was no answer.
static bool ask(const lq_load *l, const char *path, const lq_text *body, int *status, lq_text *answer, lq_err *err) {
    const double end = lq_seconds() + l->timeout;
    lq_text out = {0};
    lq_load_http h = {0};
    answer->n = 0;
    lq_load_head(l, body ? "POST" : "GET", path, body ? body->n : 0, &out);
    if (body) lq_text_add(&out, body->p, body->n);
    const int fd = connect_to(l->address, l->address_size, l->family, end);
    bool done = fd >= 0 ? true : lq_fail(err, LQ_E_IO, "%s", strerror(errno));
    if (done && out.failed) done = lq_fail(err, LQ_E_MEMORY, "no memory for a question");
    if (done) done = talk(fd, &out, &h, answer, end, err);
    if (fd >= 0) close(fd);
    *status = h.status;
    lq_text_free(&out);
    lq_text_free(&h.line);
    return done ? true : lq_fail_in(err, "%s:%s", l->host, l->port);
}

// --- the server ---

static bool find_address(lq_load *l, lq_err *err) {
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *all = NULL, *at;
    const int failed = getaddrinfo(l->host, l->port, &want, &all);
    if (failed) return lq_fail(err, LQ_E_IO, "%s: %s", l->host, gai_strerror(failed));
    for (at = all; at && !l->address; at = at->ai_next) {
        const int fd = connect_to(at->ai_addr, at->ai_addrlen, at->ai_family, lq_seconds() + 10);
        if (fd < 0) continue;
        close(fd);
        l->address = malloc(at->ai_addrlen);
        if (l->address) memcpy(l->address, at->ai_addr, at->ai_addrlen);
        l->address_size = at->ai_addrlen;
        l->family = at->ai_family;
    }
    const int error = errno;
    freeaddrinfo(all);
    return l->address ? true : lq_fail(err, LQ_E_IO, "%s:%s: %s", l->host, l->port, strerror(error));
}

static bool find_model(lq_load *l, lq_err *err) {
    lq_text answer = {0};
    cJSON *root = NULL;
    int status;
    char message[200];
    if (!ask(l, "/models", NULL, &status, &answer, err)) return lq_text_free(&answer), false;
    bool done = status == 200;
    if (!done) {
        lq_load_message(answer.p, answer.n, message, sizeof message);
        lq_fail(err, LQ_E_IO, "GET %s/models: HTTP %d: %s; --model names one", l->base, status, message);
    } else {
        const lq_json_limits limits = {1 << 24, 64};
        done = lq_json_parse(answer.p ? answer.p : "", answer.n, limits, "GET /v1/models", &root, err);
    }
    if (done) {
        const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "data"), 0);
        const char *id = first ? lq_json_str(first, "id") : NULL;
        l->model = l->model_told = id ? strdup(id) : NULL;
        if (!l->model) done = lq_fail(err, LQ_E_FORMAT, "GET %s/models: names no model; --model does", l->base);
    }
    cJSON_Delete(root);
    lq_text_free(&answer);
    return done;
}

// A request of so many tokens and of one token's answer. *input: tokens by usage, -1: not said.
static bool try_one(lq_load *l, int input, int *status, int64_t *input_said, lq_err *err) {
    lq_text body = {0}, answer = {0};
    lq_load_chunk c;
    const lq_load_request q = {.input = input, .output = 1, .draw = (uint64_t)input};
    lq_load_body(l, &q, &body);
    char *stream = body.failed ? NULL : strstr(body.p, ",\"stream\":true"); // asked in one piece
    if (stream) *stream = '}', body.n = (size_t)(stream - body.p) + 1;
    const bool done = ask(l, l->chat ? "/chat/completions" : "/completions", &body, status, &answer, err);
    const bool read = done && *status == 200 && lq_load_chunk_read(answer.p ? answer.p : "", answer.n, &c, NULL);
    *input_said = read ? c.input : -1;
    if (done && *status != 200) {
        char message[200];
        lq_load_message(answer.p, answer.n, message, sizeof message);
        lq_fail(err, LQ_E_IO, "a first request: HTTP %d: %s", *status, message);
    }
    lq_text_free(&body);
    lq_text_free(&answer);
    return done;
}

// Whether it refuses because of what stands in the request.
static bool is_refusal(int status) {
    return status == 400 || status == 404 || status == 415 || status == 422 || status == 500;
}

// Ids as a prompt, as high as the server takes them; words where it takes none.
static bool find_ids(lq_load *l, lq_err *err) {
    static const int sizes[] = {128000, 50000, 32000, 8000, 1000, 256};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int status;
        int64_t said;
        l->vocab = sizes[i];
        if (!try_one(l, 32, &status, &said, err)) return false;
        if (status == 200 && (said < 0 || said == 32)) return true;
        if (status != 200 && !is_refusal(status)) return false;
    }
    l->vocab = 0;
    return true;
}

// Two prompts of words say how many tokens a word is, and what a template adds.
static bool find_words(lq_load *l, lq_err *err) {
    enum { FEW = 32, MANY = 160 };
    int64_t few, many;
    int status;
    l->words = 1;
    l->beside = 0;
    const bool done = try_one(l, FEW, &status, &few, err) && status == 200 &&
        try_one(l, MANY, &status, &many, err) && status == 200;
    if (!done || few < 0 || many <= few) return done;
    l->words = (double)(MANY - FEW) / (double)(many - few);
    l->beside = (double)few - FEW / l->words;
    return true;
}

bool lq_load_meet(lq_load *l, lq_err *err) {
    bool made_up = false;
    if (!find_address(l, err) || (!l->model && !find_model(l, err))) return false;
    for (size_t i = 0; i < l->n; i++) made_up |= !l->q[i].text;
    if (!made_up) return true;
    const int prefix = l->prefix;
    l->prefix = 0;
    bool done = l->chat || l->vocab || find_ids(l, err);
    if (l->chat) l->vocab = 0;
    if (done && !l->vocab) done = find_words(l, err);
    l->prefix = prefix;
    return done;
}
