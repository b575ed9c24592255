// w4_avx2.c: Q8 activations x int4 weights in layout x86, AVX2. The kernels are int_avx2.h's.
#define BITS 4
#include "kernels/cpu/x86/int_avx2.h"

X86_UKR(int4)
