// acts.cu: the kernel of acts.cuh.
#include "kernels/cuda/acts.cuh"

LQ_KERNEL(lq_acts_rows, LQ_ACTS_THREADS, 2, lq_acts_args) { acts::rows(a); }
