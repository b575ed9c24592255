// sample.h: the passes over a row of logits that an ISA may do faster; all the choosing is in sample.c.
#ifndef LQ_SAMPLE_H
#define LQ_SAMPLE_H
#include "kernels/cpu/cpu.h"

typedef struct lq_logit_passes {
    float (*most)(const float *x, int n);             // the maximum; NaN if there is a NaN
    double (*exp_sum)(const float *x, int n, float m); // sum of exp(x - m), in lanes that are then added in order
} lq_logit_passes;

size_t lq_sample_work(int vocab); // bytes of a worker's scratch
void lq_sample_with(lq_dev *d, const lq_sample_args *a, const lq_logit_passes *by);
#endif
