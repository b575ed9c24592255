// w3_avx512.c: Q8 activations x int3 weights in layout x86, AVX-512 VNNI. The kernels are int_avx512.h's.
#include "kernels/cpu/x86/int_avx512.h"

#define BITS 3
X86_UKR(int3)
