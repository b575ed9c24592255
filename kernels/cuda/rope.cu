// rope.cu: the kernel of rope.cuh.
#include "kernels/cuda/rope.cuh"

LQ_KERNEL(lq_rope_bf16, LQ_ROPE_THREADS, 8, lq_rope_bf16_args) { rope::row(a); }
