// kvw.cu: the kernels of kvw.cuh, two for each type of a cache.
#include "kernels/cuda/kvw.cuh"

#define KVW(name, type) \
    LQ_KERNEL(lq_kvw_##name, LQ_KVW_THREADS, 8, lq_kvw_args) { kvw::vector<type>(a); } \
    LQ_KERNEL(lq_kvw_turned_##name, LQ_ROPE_THREADS, 8, lq_kvw_turned_args) { kvw::turned_vectors<type>(a); }

KVW(bf16, LQ_BF16)
KVW(f16, LQ_F16)
KVW(i8, LQ_I8)
KVW(e4m3, LQ_E4M3)
