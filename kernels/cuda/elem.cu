// elem.cu: the kernels of elem.cuh.
#include "kernels/cuda/elem.cuh"

#define ELEM(name, of, body) \
    LQ_KERNEL(name, LQ_ELEM_THREADS, 2, of) { \
        pdl_trigger(); \
        pdl_wait(); \
        body; \
    }

ELEM(lq_elem_glu, lq_glu_of, elem::glu(a.a))
ELEM(lq_elem_add, lq_add_of, elem::add(a.a))
ELEM(lq_elem_scale, lq_scale_of, elem::scale(a.a))
ELEM(lq_elem_mix, lq_mix_of, elem::mix(a.a))
ELEM(lq_elem_embed, lq_embed_of, elem::embed(a))
