// w8a8.cu: the kernels of w8a8.cuh: those of the list in w8a8.h. Nothing else instantiates them.
#include "kernels/cuda/w8a8.cuh"

#define W8A8(name, codes, kind, group, tokens, blocks) \
    LQ_KERNEL(name, LQ_W8A8_THREADS(tokens), blocks, lq_w8a8_args) { w8a8::product<w8a8::codes, group, tokens>(a); }
LQ_W8A8_KERNELS(W8A8)
