// sample.cu: the three kernels of sample.cuh.
#include "kernels/cuda/sample.cuh"

LQ_KERNEL(lq_sample_best, LQ_SAMPLE_THREADS, 4, lq_sample_of) { sample::best(a); }
LQ_KERNEL(lq_sample_sums, LQ_SAMPLE_THREADS, 4, lq_sample_of) { sample::sums(a); }
LQ_KERNEL(lq_sample_rows, LQ_SAMPLE_CHOOSERS, 1, lq_sample_of) { sample::rows(a); }
