// rmsn.cu: the kernels of rmsn.cuh, for rows up to 4,096 and 16,384 columns, with and without a residual.
#include "kernels/cuda/rmsn.cuh"

#define RMSN(name, vectors, residual) \
    LQ_KERNEL(name, LQ_RMSN_THREADS, 2, lq_rmsn_args) { rmsn::row<vectors, residual>(a); }

RMSN(lq_rmsn_k4096, 2, false)
RMSN(lq_rmsn_k4096_add, 2, true)
RMSN(lq_rmsn_k16384, 8, false)
RMSN(lq_rmsn_k16384_add, 8, true)
