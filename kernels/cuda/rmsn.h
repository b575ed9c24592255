// rmsn.h: x + residual, and its RMS norm as bf16, as the host sees it: arguments and how many threads a row has.
#ifndef LQ_RMSN_H
#define LQ_RMSN_H
#include <stddef.h>
#include <stdint.h>

enum { LQ_RMSN_THREADS = 256, LQ_RMSN_SHARED = 64, LQ_RMSN_MOST = 256 * 8 * 8 };

typedef struct lq_rmsn_args {
    const uint16_t *x;    // [rows][k] of bf16
    uint16_t *residual;   // [rows][k] of bf16, becomes x + residual; NULL: x alone
    const uint16_t *gain; // [k] of bf16
    uint16_t *y;          // [rows][k] of bf16
    int rows, k;          // k a multiple of 8, at most LQ_RMSN_MOST
    float eps, plus;      // y = v / sqrt(mean v^2 + eps) * (gain + plus)
} lq_rmsn_args;
#endif
