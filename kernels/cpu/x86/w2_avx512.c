// w2_avx512.c: Q8 activations x int2 weights in layout x86, AVX-512 VNNI. The kernels are int_avx512.h's.
#include "kernels/cpu/x86/int_avx512.h"

#define BITS 2
ALL_FNS
static const tile_fns all[WAYS] = ALL_ROWS;

void lq_matmul_f32_q8_int2x86_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                     float *y, size_t ldy) {
    walk(w, a, all, t0, t1, m0, m1, y, ldy);
}
