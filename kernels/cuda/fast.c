// fast.c: the fast kernels are loaded when a device is opened in default mode. Owns what they work with beside their
// arguments.
#include "kernels/cuda/fast.h"
#include "kernels/cuda/w4s_pick.h"

bool lq_fast_open(lq_dev *d, int capability, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    c->capability = capability;
    c->sms = lq_w4s_sms(capability);
    c->shared = lq_w4s_shared(capability);
#ifdef LQ_HAS_90A // this binary has kernels of it
    c->large = capability == 90;
#endif
    return lq_fast_attn_open(d, err) && lq_fast_products_open(d, err) && lq_fast_rows_open(d, err) &&
           lq_fast_state_open(d, err) && lq_fast_w8a8_open(d, err);
}

void lq_fast_close(lq_dev *d) {
    lq_cuda *c = lq_cuda_of(d);
    lq_fast_library_close(d);
    if (c->parts) lq_gpu_free(c->gpu, c->parts);
    if (c->arrived) lq_gpu_free(c->gpu, c->arrived);
    if (c->apart) lq_gpu_free(c->gpu, c->apart);
}
