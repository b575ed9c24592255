// w6_avx2.c: Q8 activations x int6 weights in layout x86, AVX2. The kernels are int_avx2.h's, of many rows
// panel_avx2.h's.
#define BITS 6
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/panel_avx2.h"

X86_UKR(int6)
BYTES_FNS(two, 2)
BYTES_FNS(four, 4)
MANY_UKR(int6, two, four)
