// table4_avx2.c: Q8 activations x codes of 4 bits of a codebook in layout x86, AVX2. The kernels are int_avx2.h's, of
// many rows wide_avx2.h's.
#define TABLE true
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/wide_avx2.h"

#define BITS 4
X86_UKR(table4)
WIDE_UKR(table4)
