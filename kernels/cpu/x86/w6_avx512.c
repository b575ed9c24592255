// w6_avx512.c: Q8 activations x int6 weights in layout x86, AVX-512 VNNI. The kernels are int_avx512.h's.
#include "kernels/cpu/x86/int_avx512.h"

#define BITS 6
X86_UKR(int6)
