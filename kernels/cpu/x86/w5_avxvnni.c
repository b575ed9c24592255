// w5_avxvnni.c: Q8 activations x int5 weights in layout x86, AVX-VNNI. The kernels are int_avx2.h's.
#define VNNI true
#define ISA avxvnni
#define BITS 5
#include "kernels/cpu/x86/int_avx2.h"

X86_UKR(int5)
