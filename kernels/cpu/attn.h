// attn.h: what every version of attention of a CPU shares.
#ifndef LQ_ATTN_H
#define LQ_ATTN_H
#include "kernels/cpu/cpu.h"
#include <float.h>
#include <math.h>

// Bytes of scratch for attention within these limits: partial results of a long decode that all threads share.
size_t lq_attn_work(const lq_dev_limits *l);

// A head's result so far over splits: exp(score - m) summed and weighted (x86: to base 2, m too). It begins with
// m = -FLT_MAX and l = 0, and a split that a row does not see leaves every bit as it was.
typedef struct lq_partial { float m, l; } lq_partial;
#endif
