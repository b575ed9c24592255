// w4l.cu: the kernels of w4l.cuh: those of the list in w4l.h. Nothing else instantiates them.
#include "kernels/cuda/w4l.cuh"

#define W4L(name, kind, codes, bits, group) \
    LQ_KERNEL(name, LQ_W4L_THREADS, 1, lq_w4s_args) { LQ_ON_90A((w4l::product<w4s::codes, group>(a));) }
LQ_W4L_KERNELS(W4L)
