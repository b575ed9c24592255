// kvw.cu: the kernels of kvw.cuh, one for each type of a cache.
#include "kernels/cuda/kvw.cuh"

#define KVW(name, type) \
    LQ_KERNEL(name, LQ_KVW_THREADS, 8, lq_kvw_args) { kvw::vector<type>(a); }

KVW(lq_kvw_bf16, LQ_BF16)
KVW(lq_kvw_f16, LQ_F16)
KVW(lq_kvw_i8, LQ_I8)
KVW(lq_kvw_e4m3, LQ_E4M3)
