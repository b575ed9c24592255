// test_http.c: heads and bodies of HTTP/1.1 against what RFC 9112 says of them, and the law that it does not matter in
// which pieces they come.
#include "runtime/serve/http.h"
#include "tests/unit/test.h"

typedef struct head_case { const char *text; int status; const char *path, *host; bool keep; } head_case;

// status 0: it is one.
static int head_of(char *copy, const char *text, size_t n, size_t step, lq_head *h) {
    size_t from = 0, found = 0;
    lq_fault fault = {0, NULL};
    for (size_t have = step; !found && !fault.status; have += step) {
        if (have > n) have = n;
        memcpy(copy, text, have); // a byte too many would show under ASan
        found = lq_head_find(copy, have, &from, &fault);
        if (have == n) break;
    }
    if (fault.status) return fault.status;
    if (!found) return -1;
    return lq_head_read(copy, found, h, &fault) ? 0 : fault.status;
}

#define R "\r\n"
#define HOST "Host: x" R
static const head_case heads[] = {
    {"GET / HTTP/1.1" R HOST R, 0, "/", "x", true},
    {"GET /a%20b?c=%20 HTTP/1.1" R HOST R, 0, "/a b", "x", true},
    {"GET http://other:80/p/q HTTP/1.1" R HOST R, 0, "/p/q", "x", true},
    {"GET http://other HTTP/1.1" R HOST R, 0, "/", "x", true},
    {"OPTIONS * HTTP/1.1" R HOST R, 0, "*", "x", true},
    {"GET / HTTP/1.0" R R, 0, "/", "", false},
    {"GET / HTTP/1.0" R "Connection: keep-alive" R R, 0, "/", "", true},
    {"GET / HTTP/1.1" R HOST "Connection: foo, Close" R R, 0, "/", "x", false},
    {"GET / HTTP/1.1" R HOST "connection: closed" R R, 0, "/", "x", true},
    {"GET / HTTP/1.7" R HOST R, 0, "/", "x", true},
    {"GET / HTTP/1.1" R "Host:\t x \t" R R, 0, "/", "x", true},
    {"GET / HTTP/1.1" R "Host:" R R, 0, "/", "", true},
    {"GET / HTTP/1.1" R R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST HOST R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1\nHost: x\n\n", 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R "Host: x\n" R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST "A: b\rC: d" R R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST "A: b" R " folded" R R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST "A : b" R R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST ": b" R R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST "no colon" R R, 400, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST "A: \x01" R R, 400, NULL, NULL, false},
    {"GET  / HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET /a b HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET x HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET /%0a HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET /%00 HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET /%4 HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET /\xc3\xa9 HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"G\xc3T / HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {" / HTTP/1.1" R HOST R, 400, NULL, NULL, false},
    {"GET /" R HOST R, 400, NULL, NULL, false},
    {"GET / http/1.1" R HOST R, 400, NULL, NULL, false},
    {"PRI * HTTP/2.0" R R, 505, NULL, NULL, false},
    {"GET / HTTP/1.12" R HOST R, 505, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Content-Length: 5" R "Content-Length: 5" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Content-Length: 5" R "Transfer-Encoding: chunked" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Content-Length: -5" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Content-Length: 5, 5" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Content-Length:" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Content-Length: 9999999999999999999" R R, 413, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Transfer-Encoding: gzip, chunked" R R, 501, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Transfer-Encoding: chunked" R "Transfer-Encoding: chunked" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.0" R HOST "Transfer-Encoding: chunked" R R, 400, NULL, NULL, false},
    {"POST / HTTP/1.1" R HOST "Expect: a miracle" R R, 417, NULL, NULL, false},
    {"GET / HTTP/1.1" R HOST, -1, NULL, NULL, false},
};

static void test_heads(void) {
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (size_t step = 1; step < 40; step += 6) {
            const head_case *k = &heads[i];
            const size_t n = strlen(k->text);
            char *copy = malloc(n + !n);
            lq_head h;
            const int status = head_of(copy, k->text, n, step, &h);
            CHECK(status == k->status, "%s: %d, expected %d", k->text, status, k->status);
            if (!status)
                CHECK(!strcmp(h.path, k->path) && !strcmp(h.host, k->host) && h.keep == k->keep, "%s: path %s, host %s",
                      k->text, h.path, h.host);
            free(copy);
        }
}

static void test_limits(void) {
    static char text[LQ_HEAD_BYTES + 64], copy[sizeof text];
    lq_head h;
    memset(text, 'a', sizeof text);
    memcpy(text, "GET /", 5);
    CHECK(head_of(copy, text, sizeof text, 4096, &h) == 414, "a URL without an end");
    memcpy(text + LQ_TARGET_BYTES + 64, " HTTP/1.1\r\nHost: x\r\n\r\n", 22);
    CHECK(head_of(copy, text, sizeof text, 4096, &h) == 414, "a long URL");
    memcpy(text, "GET / HTTP/1.1\r\nHost: x\r\nA: ", 28);
    memset(text + 28, 'a', sizeof text - 28);
    CHECK(head_of(copy, text, sizeof text, 4096, &h) == 431, "a header without an end");
    size_t n = 25;
    for (int i = 0; i < LQ_HEAD_FIELDS; i++, n += 6) memcpy(text + n, "A: b\r\n", 6);
    memcpy(text + n, "\r\n", 2);
    CHECK(head_of(copy, text, n + 2, 4096, &h) == 431, "101 headers");
    memcpy(text + n - 6, "\r\n", 2);
    CHECK(head_of(copy, text, n - 4, 4096, &h) == 0 && h.fields == LQ_HEAD_FIELDS, "100 headers");
    CHECK(lq_head_value(&h, "hOST") && !strcmp(lq_head_value(&h, "hOST"), "x") && !lq_head_value(&h, "B"), "a value");
    CHECK(lq_words_have("a,b , close", "CLOSE") && !lq_words_have("xclose, close-x", "close"), "words");
    CHECK(lq_words_plain("") && lq_words_plain("a") && lq_words_plain("x-a,\tb , c_d") && !lq_words_plain("a b") &&
              !lq_words_plain("a: b") && !lq_words_plain("a, \"b\"") && !lq_words_plain("a;b") && !lq_words_plain("a,\xe9"),
          "a list of words");
}

typedef struct body_case { bool chunked; uint64_t length; const char *text, *data, *behind; int status; } body_case;
static const body_case bodies[] = {
    {false, 5, "hello, you", "hello", ", you", 0},
    {false, 0, "hello", "", "hello", 0},
    {true, 0, "0" R R "GET", "", "GET", 0},
    {true, 0, "5" R "hello" R "00001" R "," R "A;x=y" R "0123456789" R "000" R R "x", "hello,0123456789", "x", 0},
    {true, 0, "3" R "abc" R "0" R "A: b" R "C: d" R R "x", "abc", "x", 0},
    {true, 0, "1 " R "a" R "0" R R, "a", "", 0},
    {true, 0, "5" R "hel" R "0" R R, NULL, NULL, 400},
    {true, 0, "2" R "hello" R "0" R R, NULL, NULL, 400},
    {true, 0, "zz" R, NULL, NULL, 400},
    {true, 0, R, NULL, NULL, 400},
    {true, 0, "-1" R, NULL, NULL, 400},
    {true, 0, "0x1" R "a" R "0" R R, NULL, NULL, 400},
    {true, 0, "1\na\n0\n\n", NULL, NULL, 400},
    {true, 0, "1\rx", NULL, NULL, 400},
    {true, 0, "fffffffffffffffff" R, NULL, NULL, 413},
};

static void test_bodies(void) {
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        for (size_t step = 1; step < 20; step++) {
            const body_case *k = &bodies[i];
            lq_body b = lq_body_of(&(lq_head){.chunked = k->chunked, .length = k->length});
            lq_fault fault = {0, NULL};
            const size_t n = strlen(k->text);
            char got[64];
            size_t at = 0, have = 0;
            while (at < n && b.at != LQ_BODY_WHOLE && !fault.status) {
                const char *data = NULL;
                size_t data_n, give = n - at < step ? n - at : step;
                at += lq_body_take(&b, k->text + at, give, &data, &data_n, &fault);
                if (data_n) memcpy(got + have, data, data_n);
                have += data_n;
            }
            CHECK(fault.status == k->status, "%s by %zu: %d, expected %d", k->text, step, fault.status, k->status);
            if (k->status) continue;
            CHECK(b.at == LQ_BODY_WHOLE && have == strlen(k->data) && !memcmp(got, k->data, have) &&
                  !strcmp(k->text + at, k->behind), "%s by %zu: %.*s, behind it %s", k->text, step, (int)have, got,
                  k->text + at);
        }
    lq_body b = lq_body_of(&(lq_head){.chunked = true});
    lq_fault fault = {0, NULL};
    size_t data_n;
    const char *data;
    lq_body_take(&b, "0\r\n", 3, &data, &data_n, &fault);
    for (int i = 0; i < 200 && !fault.status; i++) lq_body_take(&b, "A: b\r\n", 6, &data, &data_n, &fault);
    CHECK(fault.status == 431, "trailers without an end");
}

int main(void) {
    test_heads();
    test_limits();
    test_bodies();
    return test_end();
}
