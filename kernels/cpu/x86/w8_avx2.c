// w8_avx2.c: Q8 activations x int8 weights in layout x86, AVX2. The kernels are int_avx2.h's, of many rows
// wide_avx2.h's.
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/wide_avx2.h"

#define BITS 8
X86_UKR(int8)
WIDE_UKR(int8)
