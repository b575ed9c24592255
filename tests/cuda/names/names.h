// names.h: the arguments of names.cu.
#ifndef LQ_NAMES_H
#define LQ_NAMES_H
#include <stdint.h>

typedef struct lq_names_args {
    const uint32_t *in;          // [256]
    uint32_t *out, *counter;     // [4096], [2]
} lq_names_args;

enum { LQ_NAMES_90A_WORDS = 68 * 128, LQ_NAMES_90A_SHARED = 16384 + 1024 + 16 };
typedef struct lq_names_90a_args {
    const uint32_t *in; // [4096 + 512]
    uint32_t *out;      // [LQ_NAMES_90A_WORDS]
} lq_names_90a_args;
#endif
