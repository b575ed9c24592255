// tok_text.h: what the tokenizer's parts know of text: growing buffers, UTF-8, classes of
// characters, bytes as characters.
#ifndef LQ_TOK_TEXT_H
#define LQ_TOK_TEXT_H
#include "formats/err.h"
#include <stddef.h>
#include <stdint.h>

enum { LQ_TOK_MAX_TEXT = 1 << 30 }; // bytes of a text

typedef struct lq_tok_buf {
    char *p;
    size_t n, cap;
    size_t max; // what lq_tok_buf_add refuses to pass; 0: LQ_TOK_MAX_TEXT
} lq_tok_buf;
// Room for `need` elements of an array; what has to hold just one more is lq_grow's.
bool lq_tok_array_room(void **p, size_t *cap, size_t need, size_t size, lq_err *err);
bool lq_tok_buf_room(lq_tok_buf *b, size_t more, lq_err *err);
bool lq_tok_buf_add(lq_tok_buf *b, const char *p, size_t n, lq_err *err);

uint32_t lq_tok_char_get(const char *p, size_t *len);   // of valid UTF-8
size_t lq_tok_char_put(uint32_t c, char *p);            // 1..4 bytes
// Length of the maximal subpart at p; *valid: it is a whole character.
size_t lq_tok_char_check(const uint8_t *p, size_t n, bool *valid);
bool lq_tok_utf8_clean(const char *p, size_t n, lq_tok_buf *out, bool *changed, lq_err *err);

// Classes of characters as the Rust standard library knows them.
typedef enum lq_tok_class {
    LQ_TOK_SPACE, LQ_TOK_NUMERIC, LQ_TOK_PUNCTUATION, LQ_TOK_WORD, LQ_TOK_MARK, LQ_TOK_MARK_NONSPACING, LQ_TOK_OTHER
} lq_tok_class;
bool lq_tok_char_is(uint32_t c, lq_tok_class k);
bool lq_tok_char_is_later(uint32_t c); // too new for the reference's tables

// GPT-2's alphabet: each byte has a printable character.
uint32_t lq_tok_byte_char(uint8_t b);
int lq_tok_char_byte(uint32_t c); // -1: none
bool lq_tok_bytes_map(const char *p, size_t n, lq_tok_buf *out, lq_err *err);
size_t lq_tok_chars_size(const char *p, size_t chars); // in bytes, of so many at p
// Appends the bytes that base64 stands for; false where it is none (or there is no memory).
bool lq_tok_base64(const char *p, size_t n, lq_tok_buf *out, lq_err *err);
char *lq_tok_text_copy(const char *p, size_t n, lq_err *err); // NUL-terminated
#endif
