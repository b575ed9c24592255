// names.h: the arguments of names.cu.
#ifndef LQ_NAMES_H
#define LQ_NAMES_H
#include <stdint.h>

typedef struct lq_names_args {
    const uint32_t *in;          // [256]
    uint32_t *out, *counter;     // [4096], [2]
} lq_names_args;
#endif
