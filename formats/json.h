// json.h: JSON from strangers. A strict iterative RFC 8259 check runs before cJSON, which is lax and recursive.
#ifndef LQ_JSON_H
#define LQ_JSON_H
#include "formats/err.h"
#include <cjson/cJSON.h>

typedef struct lq_json_limits {
    size_t bytes; // of the text
    int depth;    // of nesting
} lq_json_limits;

// Syntax, depth, UTF-8, lone surrogates, duplicate keys. `what` begins the error's text ("config.json").
bool lq_json_check(const char *text, size_t n, lq_json_limits lim, const char *what, lq_err *err);
// Checks, then parses. The tree is the caller's (cJSON_Delete). Refuses also what cJSON cannot hold: NUL inside a
// string, numbers of more than 63 characters.
bool lq_json_parse(const char *text, size_t n, lq_json_limits lim, const char *what, cJSON **out, lq_err *err);
// The same of what is written again: lq_text_tree tells each number as it was told. *at (may be NULL): where it fails,
// the byte at which reading ended.
bool lq_json_parse_exact(const char *text, size_t n, lq_json_limits lim, const char *what, cJSON **out, size_t *at,
                         lq_err *err);

// Typed reads of a member; absent (or null) leaves *out as it is and returns true, a wrong type or range
// is an error that names the key.
bool lq_json_int(const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out, const char *what,
                 lq_err *err);
bool lq_json_num(const cJSON *obj, const char *key, double *out, const char *what, lq_err *err);
bool lq_json_bool(const cJSON *obj, const char *key, bool *out, const char *what, lq_err *err);
const char *lq_json_str(const cJSON *obj, const char *key); // NULL if absent or not a string

// A walk over checked text without a tree: for big objects, and integers to the last digit.
typedef struct lq_json_walk { const char *p, *end; } lq_json_walk;
char lq_json_next(lq_json_walk *w); // first byte of the next value or closing bracket, not taken; 0 at the end
void lq_json_take(lq_json_walk *w); // takes one bracket
// Takes a string: decodes it into dst, where it is never longer than its text, and returns its length.
size_t lq_json_take_str(lq_json_walk *w, char *dst);
// Takes a number; false if it is not one of 0 .. 2^64-1 in plain digits.
bool lq_json_take_u64(lq_json_walk *w, uint64_t *out);
void lq_json_skip(lq_json_walk *w); // takes a whole value

// Makes room for element n of an array of `size` bytes each: doubles *cap where it is full.
// False: no memory, nothing changed.
bool lq_grow(void **p, size_t n, size_t *cap, size_t size);

// Length of the UTF-8 character at p, 0 if there is none.
size_t lq_utf8_len(const unsigned char *p, const unsigned char *end);
// The character of len bytes at s, where it is one that a terminal obeys or that nobody sees: controls, separators of
// lines, marks of direction. Else 0.
unsigned lq_utf8_unseen(const unsigned char *s, size_t len);

// A growing text for writing JSON (and other) output. Check `failed` once at the end.
typedef struct lq_text {
    char *p;
    size_t n, cap;
    bool failed;
} lq_text;
void lq_text_add(lq_text *t, const char *p, size_t n);
void lq_text_fmt(lq_text *t, const char *fmt, ...) LQ_PRINTF(2, 3);
// As a quoted JSON string: bytes that are not UTF-8 become U+FFFD, what a terminal would obey an escape (\u009b).
void lq_text_json(lq_text *t, const char *p, size_t n);
void lq_text_tree(lq_text *t, const cJSON *v); // a whole tree, without blanks; NULL: null
void lq_text_free(lq_text *t);
#endif
