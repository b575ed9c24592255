// w4_avx2.c: Q8 activations x int4 weights in layout x86, AVX2. The kernels are int_avx2.h's, of many rows
// panel_avx2.h's.
#define BITS 4
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/panel_avx2.h"

X86_UKR(int4)
BYTES_FNS(eight, 8)
BYTES_FNS(sixteen, 16)
MANY_UKR(int4, eight, sixteen)
