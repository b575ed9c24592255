// slots_avx512.h: the slots of AVX-512 that have a file of their own; ops_avx512.c puts them into the table.
#ifndef LQ_SLOTS_AVX512_H
#define LQ_SLOTS_AVX512_H
#include "kernels/cpu/cpu.h"

void lq_attn_avx512(lq_dev *d, const lq_attn_args *a);
#endif
