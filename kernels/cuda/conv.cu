// conv.cu: the kernels of conv.cuh.
#include "kernels/cuda/conv.cuh"

#define CONV(width) \
    LQ_KERNEL(lq_conv_walk##width, LQ_CONV_THREADS, 2, lq_conv_of) { \
        pdl_trigger(); \
        pdl_wait(); \
        conv::walk<width>(a); \
    } \
    LQ_KERNEL(lq_conv_tile##width, LQ_CONV_THREADS, 2, lq_conv_of) { \
        pdl_trigger(); \
        pdl_wait(); \
        conv::tile<width>(a); \
    }
LQ_CONV_KERNELS(CONV)
