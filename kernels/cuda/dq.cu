// dq.cu: the kernels of dq.cuh.
#include "kernels/cuda/dq.cuh"

#define DQ(name, kind, codes, bits) \
    LQ_KERNEL(name, LQ_DQ_THREADS, 4, lq_dq_args) { dq::rows<dq::codes>(a); }
LQ_DQ_KERNELS(DQ)

LQ_KERNEL(lq_dq_f16, LQ_DQ_THREADS, 4, lq_dq_f16_args) {
    pdl_trigger();
    pdl_wait();
    dq::rows_of_f16(a);
}

LQ_KERNEL(lq_dq_scales, LQ_DQ_THREADS, 4, lq_dq_scales_args) {
    pdl_trigger();
    pdl_wait();
    dq::scales(a);
}

LQ_KERNEL(lq_dq_bias, LQ_DQ_THREADS, 4, lq_dq_bias_args) {
    pdl_trigger();
    pdl_wait();
    dq::bias(a);
}
