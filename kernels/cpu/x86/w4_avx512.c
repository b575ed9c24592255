// w4_avx512.c: Q8 activations x int4 weights in layout x86, AVX-512 VNNI. The kernels are int_avx512.h's.
#include "kernels/cpu/x86/int_avx512.h"

#define BITS 4
#define DOTS DOTS4
BLOCK(9) BLOCK(10) BLOCK(11) BLOCK(12)
GROUP_FNS(0) GROUP_FNS(32) GROUP_FNS(64) GROUP_FNS(128)

static block_fn *const fns[4][3][THIN] = {GROUP_ROW(0), GROUP_ROW(32), GROUP_ROW(64), GROUP_ROW(128)};

void lq_matmul_f32_q8_int4x86_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    const cut c = cut_of(w, a);
    const int row = c.G == 128 ? 3 : c.G == 64 ? 2 : c.G == 32 ? 1 : 0;
    walk(&c, fns[row], w->n, t0, t1, m0, m1, y, ldy);
}
