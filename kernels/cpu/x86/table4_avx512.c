// table4_avx512.c: Q8 activations x codes of 4 bits of a codebook in layout x86, AVX-512 VNNI. The kernels are
// int_avx512.h's.
#define TABLE true
#include "kernels/cpu/x86/int_avx512.h"

#define BITS 4
X86_UKR(table4)
