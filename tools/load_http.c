// load_http.c: answers of HTTP/1.1 and the events in them, read from whatever pieces a socket gives. Owns the line that
// has not ended. Refuses what is no HTTP/1 answer, a length that is none, and lines past their limit.
#include "tools/load.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_LINE = 1 << 16, EVENT_LINE = 1 << 24 };

// The next line of p[0..n) without its end, NULL: it goes on in the next piece. A line that came in one piece is not
// copied. *took: bytes that are done with.
static const char *next_line(lq_text *kept, const char *p, size_t n, size_t *took, size_t *length) {
    const char *end = memchr(p, '\n', n), *line = p;
    *took = end ? (size_t)(end - p) + 1 : n;
    *length = *took - (end != NULL);
    if (!end || kept->n) {
        lq_text_add(kept, p, *length);
        line = kept->p;
        *length = kept->n;
    }
    if (!end) return NULL;
    if (*length && line[*length - 1] == '\r') --*length;
    return line ? line : p;
}

static bool refuse(lq_err *err, const char *what, const char *line, size_t n) {
    return lq_fail(err, LQ_E_FORMAT, "%s: %.*s", what, (int)(n < 80 ? n : 80), line);
}

void lq_load_http_begin(lq_load_http *h) {
    h->line.n = 0;
    *h = (lq_load_http){.line = h->line};
}

static bool read_status(lq_load_http *h, const char *p, size_t n, lq_err *err) {
    if (n < 12 || memcmp(p, "HTTP/1.", 7) != 0 || p[8] != ' ') return refuse(err, "no answer of HTTP/1.1", p, n);
    h->status = (p[9] - '0') * 100 + (p[10] - '0') * 10 + p[11] - '0';
    if (h->status < 100 || h->status > 999) return refuse(err, "no status of HTTP", p, n);
    h->keep = p[7] != '0';
    h->part = LQ_LOAD_HEADER;
    return true;
}

static bool read_number(const char *p, size_t n, int base, size_t *out, lq_err *err) {
    char text[24], *end;
    snprintf(text, sizeof text, "%.*s", (int)(n < 23 ? n : 23), p);
    *out = strtoull(text, &end, base);
    const size_t digits = (size_t)(end - text);
    if (!digits || digits > 15 || !strchr(base == 16 ? " ;\t" : " \t", *end) || strchr("+- \t", *text))
        return refuse(err, "no length", p, n);
    return true;
}

static bool has_word(const char *p, size_t n, const char *word) {
    for (const size_t m = strlen(word); n >= m; p++, n--)
        if (!strncasecmp(p, word, m)) return true;
    return false;
}

static bool read_header(lq_load_http *h, const char *p, size_t n, lq_err *err) {
    const char *colon = memchr(p, ':', n);
    if (!colon) return refuse(err, "no header", p, n);
    const size_t name = (size_t)(colon - p);
    const char *value = colon + 1;
    while (value < p + n && (*value == ' ' || *value == '\t')) value++;
    const size_t length = (size_t)(p + n - value);
    if (name == 14 && !strncasecmp(p, "Content-Length", 14))
        return h->sized = read_number(value, length, 10, &h->left, err);
    if (name == 17 && !strncasecmp(p, "Transfer-Encoding", 17)) h->chunked = has_word(value, length, "chunked");
    if (name == 10 && !strncasecmp(p, "Connection", 10))
        h->keep = !has_word(value, length, "close") && (h->keep || has_word(value, length, "keep-alive"));
    if (name == 12 && !strncasecmp(p, "Content-Type", 12)) h->events = has_word(value, length, "text/event-stream");
    return true;
}

// The empty line behind the headers.
static void end_head(lq_load_http *h) {
    if (h->status < 200) lq_load_http_begin(h); // 100 Continue and its like: the answer is still to come
    else if (h->status == 204 || h->status == 304) h->part = LQ_LOAD_DONE;
    else if (h->chunked) h->part = LQ_LOAD_SIZE;
    else if (h->sized) h->part = h->left ? LQ_LOAD_SIZED : LQ_LOAD_DONE;
    else h->part = LQ_LOAD_TO_END, h->keep = false;
}

static bool read_line(lq_load_http *h, const char *p, size_t n, lq_err *err) {
    switch (h->part) {
    case LQ_LOAD_STATUS: return read_status(h, p, n, err);
    case LQ_LOAD_HEADER:
        if (n) return read_header(h, p, n, err);
        end_head(h);
        return true;
    case LQ_LOAD_SIZE:
        if (!read_number(p, n, 16, &h->left, err)) return false;
        h->part = h->left ? LQ_LOAD_CHUNK : LQ_LOAD_TRAILER;
        return true;
    case LQ_LOAD_CHUNK_END:
        if (n) return refuse(err, "a chunk is longer than it says", p, n);
        h->part = LQ_LOAD_SIZE;
        return true;
    default: // of the trailers only the end matters
        if (!n) h->part = LQ_LOAD_DONE;
        return true;
    }
}

bool lq_load_http_read(lq_load_http *h, const char *p, size_t n, lq_load_sink *body, void *arg, lq_err *err) {
    while (n && h->part != LQ_LOAD_DONE) {
        size_t took = n, length;
        if (h->part == LQ_LOAD_SIZED || h->part == LQ_LOAD_CHUNK || h->part == LQ_LOAD_TO_END) {
            if (h->part != LQ_LOAD_TO_END && took > h->left) took = h->left;
            if (!body(arg, p, took, err)) return false;
            if (h->part != LQ_LOAD_TO_END && !(h->left -= took))
                h->part = h->part == LQ_LOAD_SIZED ? LQ_LOAD_DONE : LQ_LOAD_CHUNK_END;
        } else {
            const char *line = next_line(&h->line, p, n, &took, &length);
            if (h->line.failed || h->line.n > HEAD_LINE)
                return lq_fail(err, LQ_E_LIMIT, "a line of the answer's head is longer than %d bytes", HEAD_LINE);
            if (line && !read_line(h, line, length, err)) return false;
            if (line) h->line.n = 0;
        }
        p += took;
        n -= took;
    }
    if (n) h->keep = false; // bytes that nobody asked for
    return true;
}

bool lq_load_http_end(lq_load_http *h, lq_err *err) {
    h->keep = false;
    if (h->part == LQ_LOAD_TO_END) h->part = LQ_LOAD_DONE;
    if (h->part == LQ_LOAD_DONE) return true;
    if (h->part == LQ_LOAD_STATUS && !h->line.n)
        return lq_fail(err, LQ_E_IO, "the server closed the connection without an answer");
    return lq_fail(err, LQ_E_IO, "the server closed the connection in the middle of an answer");
}

// --- events ---

static bool take_line(lq_load_events *e, const char *p, size_t n, lq_load_sink *data, void *arg, lq_err *err) {
    if (n >= 5 && !memcmp(p, "data:", 5)) {
        const size_t from = n > 5 && p[5] == ' ' ? 6 : 5;
        if (e->any) lq_text_add(&e->data, "\n", 1);
        lq_text_add(&e->data, p + from, n - from);
        e->any = true;
    }
    if (n || !e->any) return true;
    e->any = false;
    const size_t length = e->data.n;
    e->data.n = 0;
    return data(arg, e->data.p ? e->data.p : "", length, err);
}

bool lq_load_events_read(lq_load_events *e, const char *p, size_t n, lq_load_sink *data, void *arg, lq_err *err) {
    while (n) {
        size_t took, length;
        const char *line = next_line(&e->line, p, n, &took, &length);
        if (line && !take_line(e, line, length, data, arg, err)) return false;
        if (line) e->line.n = 0;
        if (e->line.failed || e->data.failed || e->line.n > EVENT_LINE || e->data.n > EVENT_LINE)
            return lq_fail(err, LQ_E_LIMIT, "an event of the stream is longer than %d bytes", EVENT_LINE);
        p += took;
        n -= took;
    }
    return true;
}
