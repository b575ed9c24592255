// rmsn.cu: the kernels of rmsn.cuh, for rows up to 256, 4,096 and 16,384 columns; and those that code what they make.
#include "kernels/cuda/rmsn.cuh"

#define RMSN(name, vectors, wide) \
    LQ_KERNEL(name, LQ_RMSN_THREADS, 2, lq_rmsn_args) { rmsn::row<vectors, wide>(a); }

RMSN(lq_rmsn_k256, 1, false)
RMSN(lq_rmsn_k4096, 2, true)
RMSN(lq_rmsn_k16384, 8, true)

LQ_KERNEL(lq_rmsn_act_k4096, LQ_RMSN_THREADS, 2, lq_rmsn_act_args) { rmsn::row_coded<2>(a); }
LQ_KERNEL(lq_rmsn_act_k16384, LQ_RMSN_THREADS, 2, lq_rmsn_act_args) { rmsn::row_coded<8>(a); }
