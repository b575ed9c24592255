// w5_avx2.c: Q8 activations x int5 weights in layout x86, AVX2. The kernels are int_avx2.h's.
#include "kernels/cpu/x86/int_avx2.h"

#define BITS 5
FN(1) FN(2) FN(3) FN(4)
static block_fn *const fns[2][TALL] = {{block1, block2, block3, block4}, {whole1, whole2, whole3, whole4}};

void lq_matmul_f32_q8_int5x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                   float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, fns);
}
