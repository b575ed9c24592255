// pa.cu: the kernels of pa.cuh that LQ_PA_KERNELS names. Nothing else instantiates them.
#include "kernels/cuda/pa.cuh"

#define PA(name, dk, dv, type, wm, wc, blocks, places) \
    LQ_KERNEL(name, 32 * (wm) * (wc), blocks, lq_pa_args) { pa::attention<pa::shape<dk, dv, type, wm, wc, places>>(a); }
LQ_PA_SMALL(PA)
LQ_PA_TIGHT(PA)
LQ_PA_LARGE(PA)
