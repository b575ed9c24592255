// w5_avx2.c: Q8 activations x int5 weights in layout x86, AVX2. The kernels are int_avx2.h's, of many rows
// panel_avx2.h's.
#define BITS 5
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/panel_avx2.h"

X86_UKR(int5)
BYTES_FNS(four, 4)
BYTES_FNS(eight, 8)
MANY_UKR(int5, four, eight)
