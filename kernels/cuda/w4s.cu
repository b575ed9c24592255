// w4s.cu: the kernels of w4s.cuh: those of the list in w4s.h. Nothing else instantiates them.
#include "kernels/cuda/w4s.cuh"

#define W4S(name, kind, codes, bits, group, tokens, blocks) \
    LQ_KERNEL(name, LQ_W4S_THREADS, blocks, lq_w4s_args) { w4s::product<w4s::codes, group, tokens>(a); }
LQ_W4S_KERNELS(W4S)
