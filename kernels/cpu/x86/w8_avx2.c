// w8_avx2.c: Q8 activations x int8 weights in layout x86, AVX2. The kernels are int_avx2.h's, of many rows
// wide_avx2.h's.
#define BITS 8
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/wide_avx2.h"

X86_UKR(int8)

lq_ukr_many lq_many_f32_q8_int8x86_avx2;
void lq_many_f32_q8_int8x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                                 size_t ldy, void *scratch) {
    wide_run(w, a, t0, t1, m0, m1, y, ldy, scratch);
}
