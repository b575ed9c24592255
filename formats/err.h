// err.h: how a function of lq fails, and arithmetic on sizes that files claim. Owns nothing.
//
// A function that can fail returns bool (true = done) and takes an lq_err last:
//     return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: ...", path, name);
// The text is one line: the file, the tensor, what was found and what was expected.
#ifndef LQ_ERR_H
#define LQ_ERR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lq_code {
    LQ_E_NONE,
    LQ_E_USAGE,       // the caller asked for something that makes no sense
    LQ_E_IO,          // the system refused: open, read, write, map, rename
    LQ_E_FORMAT,      // a file is not what it says it is
    LQ_E_LIMIT,       // a bound of lq or of the model would be passed
    LQ_E_MEMORY,      // memory or KV blocks that were needed are not there
    LQ_E_UNSUPPORTED, // well formed, but this build, model or device cannot do it
    LQ_E_DEVICE,      // an accelerator failed
    LQ_E_CANCELLED,
    LQ_E_BUSY         // the waiting queue is full: try again later
} lq_code;

typedef struct lq_err {
    lq_code code;
    char text[508];
} lq_err;

#if defined(__GNUC__)
#define LQ_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define LQ_COLD __attribute__((cold))
#else
#define LQ_PRINTF(f, a)
#define LQ_COLD
#endif

// Fills *err (which may be NULL) and returns false. What a terminal would obey in the text (controls, marks of
// direction) and what is not UTF-8 is replaced by '?': names of files and tensors are others' words.
bool lq_fail(lq_err *err, lq_code code, const char *fmt, ...) LQ_PRINTF(3, 4) LQ_COLD;
// Puts "<prefix>: " before the text that is there, where it does not begin so, and returns false.
bool lq_fail_in(lq_err *err, const char *fmt, ...) LQ_PRINTF(2, 3) LQ_COLD;

static inline bool lq_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool lq_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
// Rounds up to a multiple of `to`, a power of two.
static inline bool lq_align_size(size_t a, size_t to, size_t *out) {
    if (!lq_add_size(a, to - 1, out)) return false;
    *out &= ~(to - 1);
    return true;
}
#endif
