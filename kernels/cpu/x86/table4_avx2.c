// table4_avx2.c: Q8 activations x codes of 4 bits of a codebook in layout x86, AVX2. The kernels are int_avx2.h's, of
// many rows wide_avx2.h's if the codebook's bytes would be multiplied by halves.
#define TABLE true
#define BITS 4
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/wide_avx2.h"

X86_UKR(table4)

lq_ukr_many lq_many_f32_q8_table4x86_avx2;
void lq_many_f32_q8_table4x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                   float *y, size_t ldy, void *scratch) {
    if (lq_wtype_book(&w->type)->most > LOW_MOST) wide_run(w, a, t0, t1, m0, m1, y, ldy, scratch);
    else lq_matmul_f32_q8_table4x86_avx2(w, a, t0, t1, m0, m1, y, ldy);
}
