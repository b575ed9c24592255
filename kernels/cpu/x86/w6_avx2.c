// w6_avx2.c: Q8 activations x int6 weights in layout x86, AVX2. The kernels are int_avx2.h's.
#include "kernels/cpu/x86/int_avx2.h"

#define BITS 6
X86_UKR(int6)
