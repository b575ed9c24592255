// table4_avx2.c: Q8 activations x codes of 4 bits of a codebook in layout x86, AVX2. The kernels are int_avx2.h's, of
// many rows panel_avx2.h's: as words if the codebook's bytes would be multiplied by halves.
#define TABLE true
#define BITS 4
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/panel_avx2.h"

X86_UKR(table4)
BYTES_FNS(eight, 8)
WORDS_FNS

lq_ukr_many lq_many_f32_q8_table4x86_avx2;
void lq_many_f32_q8_table4x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                   float *y, size_t ldy, void *scratch) {
    if (lq_wtype_book(&w->type)->most > LOW_MOST)
        panels_run(w, a, t0, t1, m0, m1, y, ldy, scratch, &in_words, &in_words);
    else panels_run(w, a, t0, t1, m0, m1, y, ldy, scratch, &eight, &eight);
}
