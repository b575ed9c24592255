// w4s.cu: the kernels of w4s.cuh, one for each group, type of scale, and with zero points or z = 8. Nothing else
// instantiates them.
#include "kernels/cuda/w4s.cuh"

#define W4S(name, group, scale, zeros) \
    LQ_KERNEL(name, LQ_W4S_THREADS, 3, lq_w4s_args) { w4s::product<group, w4s::scale, zeros>(a); }
#define W4S_OF(name, group)               \
    W4S(name##_bf16, group, BF16, false)  \
    W4S(name##_bf16_zp, group, BF16, true) \
    W4S(name##_f16, group, F16, false)    \
    W4S(name##_f16_zp, group, F16, true)

W4S_OF(lq_w4s_t8_g32, 32)
W4S_OF(lq_w4s_t8_g64, 64)
W4S_OF(lq_w4s_t8_g128, 128)
W4S_OF(lq_w4s_t8_row, w4s::ROW)
