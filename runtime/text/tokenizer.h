// tokenizer.h: text to token ids and back, exactly as the model's own tokenizer does it.
#ifndef LQ_TOKENIZER_H
#define LQ_TOKENIZER_H
#include "formats/ckpt.h"
#include "runtime/lq.h"

typedef struct lq_ids { int32_t *p; size_t n, cap; } lq_ids; // grows; free(p)

// Where the files of a tokenizer come from: a checkpoint, a folder, memory.
typedef struct lq_tok_files {
    bool (*get)(void *from, const char *name, lq_bytes *out, lq_err *err); // absent: out->p == NULL
    void *from;
    const char *only; // the file that is to be read, whatever else there is; NULL: the first of those there are
} lq_tok_files;
// From tokenizer.json, else tekken.json, tokenizer.model (of sentencepiece or tiktoken), *.tiktoken, vocab.json with
// merges.txt, vocab.txt; and what tokenizer_config.json and others say beside them. Keeps nothing of the files.
bool lq_tokenizer_read(const lq_tok_files *files, lq_tokenizer **out, lq_err *err);
bool lq_tokenizer_open(lq_ckpt *c, lq_tokenizer **out, lq_err *err);
// From the bytes of tokenizer.json and tokenizer_config.json (which may be empty).
bool lq_tokenizer_parse(lq_bytes json, lq_bytes config, lq_tokenizer **out, lq_err *err);

int lq_tokenizer_vocab(const lq_tokenizer *t);        // 1 + the highest id
int32_t lq_tokenizer_id(const lq_tokenizer *t, const char *token, size_t n); // of a token by its content; -1: none

// flags: LQ_TOK_SPECIAL, LQ_TOK_PARSE of lq.h. Any bytes are accepted: what is not UTF-8 becomes U+FFFD per maximal
// subpart. Appends to *out. Thread-safe.
bool lq_tokenizer_encode(const lq_tokenizer *t, const char *text, size_t n, int flags, lq_ids *out, lq_err *err);

// The bytes of one token in the middle of a text, which may be part of a character. Valid as long as the tokenizer.
lq_bytes lq_tokenizer_bytes(const lq_tokenizer *t, int32_t id);

int32_t lq_tokenizer_bos(const lq_tokenizer *t);    // what LQ_TOK_SPECIAL puts first; -1: nothing
// The tokens that end a text: eos_token of tokenizer_config.json, and those that end a turn by their names. How many.
size_t lq_tokenizer_ends(const lq_tokenizer *t, int32_t *ids, size_t cap);
size_t lq_tokenizer_longest(const lq_tokenizer *t); // bytes of the longest token

// Incremental, UTF-8-safe text of a growing sequence. Plain data: copy it to fork a sequence.
typedef struct lq_detok {
    bool special;     // special tokens are printed
    uint8_t begun;    // 0: no token yet; 1 + n: n of sentencepiece's spaces were dropped at the beginning; 255: all are
    bool space;       // one that is written only if a token follows
    bool bytewise;    // one U+FFFD for each byte, not for each broken character
    uint8_t held[4];  // bytes of an unfinished character
    uint8_t holds;
} lq_detok;
// Writes the text that became certain with this token: whole characters only, bytes that can't become one as U+FFFD.
// buf must have room for LQ_DETOK_ROOM(token) bytes.
#define LQ_DETOK_ROOM(bytes) (3 * ((bytes) + 4))
size_t lq_detok_next(const lq_tokenizer *t, lq_detok *d, int32_t id, char *buf);
// Of a text that is whole: how many ids ahead are tokens of bytes, and how many such, where they are no characters
// together: each is then U+FFFD. While a text grows, only bytes become so that no later one can make a character of.
size_t lq_detok_run(const lq_tokenizer *t, const lq_detok *d, const int32_t *ids, size_t count, size_t *broken);
size_t lq_detok_broken(const lq_tokenizer *t, lq_detok *d, size_t bytes, char *buf); // writes 3 * bytes
size_t lq_detok_end(lq_detok *d, char *buf); // what was held back
#endif
