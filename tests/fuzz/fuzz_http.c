// fuzz_http.c: any bytes as requests of HTTP/1.1, one behind the other. What is read does not depend on the pieces in
// which it comes, strings end within the head, and no more is taken than there is.
#include "runtime/serve/http.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool cond) {
    if (!cond) abort();
}

static bool inside(const char *s, const char *p, size_t n) { return (s >= p && s + strlen(s) < p + n) || !*s; }

static void head_check(const lq_head *h, const char *p, size_t n) {
    must(*h->method && inside(h->method, p, n) && inside(h->path, p, n) && inside(h->query, p, n) &&
         inside(h->host, p, n) && (*h->path == '/' || !strcmp(h->path, "*")));
    for (int i = 0; i < h->fields; i++) {
        must(*h->field[i].name && inside(h->field[i].name, p, n) && inside(h->field[i].value, p, n));
        for (const char *c = h->field[i].value; *c; c++) must(*c != '\r' && *c != '\n');
    }
    must(!h->chunked || h->length == 0);
}

// Sum and end of a body that comes in pieces of `step`.
typedef struct outcome { uint64_t sum; size_t used; int status; int at; } outcome;

static outcome body_read(const lq_head *h, const char *p, size_t n, size_t step) {
    outcome o = {14695981039346656037u, 0, 0, 0};
    lq_body b = lq_body_of(h);
    lq_fault fault = {0, NULL};
    while (o.used < n && b.at != LQ_BODY_WHOLE && !fault.status) {
        const char *d = NULL;
        size_t k, give = n - o.used < step ? n - o.used : step;
        const size_t took = lq_body_take(&b, p + o.used, give, &d, &k, &fault);
        must(took <= give && (took || fault.status) && (!k || (d >= p + o.used && d + k <= p + o.used + took)));
        for (size_t i = 0; i < k; i++) o.sum = (o.sum ^ (unsigned char)d[i]) * 1099511628211u;
        o.used += took;
    }
    o.status = fault.status;
    o.at = (int)b.at;
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *p = malloc(size + 1);
    size_t at = 0;
    memcpy(p, data, size);
    while (at < size) {
        size_t from = 0, slow = 0, slow_n = 0;
        lq_fault fault, other = {0, NULL};
        const size_t n = lq_head_find(p + at, size - at, &from, &fault);
        for (size_t have = 1; have <= size - at && !slow_n && !other.status; have++)
            slow_n = lq_head_find(p + at, have, &slow, &other);
        must(n == slow_n && fault.status == other.status && n <= size - at);
        if (!n) break;
        lq_head h;
        if (!lq_head_read(p + at, n, &h, &fault)) {
            must(fault.status >= 400 && fault.text);
            break;
        }
        head_check(&h, p + at, n);
        at += n;
        const outcome whole = body_read(&h, p + at, size - at, size), one = body_read(&h, p + at, size - at, 1);
        must(whole.sum == one.sum && whole.used == one.used && whole.status == one.status && whole.at == one.at);
        at += whole.used;
        if (whole.status || whole.at != LQ_BODY_WHOLE) break;
    }
    free(p);
    return 0;
}
