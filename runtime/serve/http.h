// http.h: HTTP/1.1 as data. The head of a request and the framing of its body are read from bytes, wherever these come
// from; no socket is in sight. Strict: what two readers could read in two ways is refused (RFC 9112), and whoever sent
// it is not listened to any further.
#ifndef LQ_HTTP_H
#define LQ_HTTP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LQ_HEAD_BYTES = 32 << 10,  // of a whole head
    LQ_TARGET_BYTES = 8 << 10, // of its path and query
    LQ_HEAD_FIELDS = 100
};

// What a client is told of a request that cannot be read.
typedef struct lq_fault { int status; const char *text; } lq_fault;

typedef struct lq_field { const char *name, *value; } lq_field;

typedef struct lq_head {
    const char *method, *path, *query; // path: decoded; query: as it is, or ""
    const char *host;                  // "": none, HTTP/1.0 alone
    lq_field field[LQ_HEAD_FIELDS];
    int fields;
    uint64_t length; // of the body, if it is not chunked
    bool chunked, keep /* the connection goes on */, old /* HTTP/1.0 */, waits /* for leave to send its body */;
} lq_head;

// How many of n bytes are a head, its empty line included; 0: its end has not come. *from is what was looked through in
// vain, 0 for a new head. Fills *fault (status 0: none) where no head can come of these bytes.
size_t lq_head_find(const char *p, size_t n, size_t *from, lq_fault *fault);
// Reads a head of n bytes in place: strings of *h point into it.
bool lq_head_read(char *p, size_t n, lq_head *h, lq_fault *fault);
// A field's value by its name in any case; NULL: there is none. Of several the first.
const char *lq_head_value(const lq_head *h, const char *name);
// Whether a list like "a, b" has a word, in any case.
bool lq_words_have(const char *list, const char *word);
// Whether it is such a list: words as names of headers are, with commas between them.
bool lq_words_plain(const char *list);

// Where in a body its reader stands.
typedef struct lq_body {
    enum { LQ_BODY_DATA, LQ_BODY_SIZE, LQ_BODY_GAP, LQ_BODY_TRAILER, LQ_BODY_WHOLE } at;
    bool chunked;
    uint64_t left;      // bytes of data that follow
    char line[256];     // of a chunk's size, or of a trailer
    size_t line_n, trailers;
} lq_body;

lq_body lq_body_of(const lq_head *h);
// Takes up to n bytes and returns how many it took: *data_n of them, at *data, are the body's. at LQ_BODY_WHOLE: the
// rest is behind it. Fills *fault (status 0: none).
size_t lq_body_take(lq_body *b, const char *p, size_t n, const char **data, size_t *data_n, lq_fault *fault);

const char *lq_status_text(int status);
#endif
