// w5_avx2.c: Q8 activations x int5 weights in layout x86, AVX2. The kernels are int_avx2.h's.
#include "kernels/cpu/x86/int_avx2.h"

#define BITS 5
X86_UKR(int5)
