// elem.cu: the kernels of elem.cuh.
#include "kernels/cuda/elem.cuh"

#define ELEM(name, threads, of, body) \
    LQ_KERNEL(name, threads, 2, of) { \
        pdl_trigger(); \
        pdl_wait(); \
        body; \
    }

ELEM(lq_elem_glu, LQ_ELEM_THREADS, lq_glu_of, elem::glu(a.a))
ELEM(lq_elem_glu_act, LQ_GLU_THREADS, lq_glu_act_of, elem::glu_coded(a))
ELEM(lq_elem_add, LQ_ELEM_THREADS, lq_add_of, elem::add(a.a))
ELEM(lq_elem_scale, LQ_ELEM_THREADS, lq_scale_of, elem::scale(a.a))
ELEM(lq_elem_scale_f32, LQ_ELEM_THREADS, lq_scale_of, elem::scale_f32(a.a))
ELEM(lq_elem_mix, LQ_ELEM_THREADS, lq_mix_of, elem::mix(a.a))
ELEM(lq_elem_embed, LQ_ELEM_THREADS, lq_embed_of, elem::embed(a))
ELEM(lq_elem_embed_coded, LQ_ELEM_THREADS, lq_embed_coded_of, elem::embed_coded(a))
