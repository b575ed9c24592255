// table4_avxvnni.c: Q8 activations x codes of 4 bits of a codebook in layout x86, AVX-VNNI. The kernels are
// int_avx2.h's.
#define TABLE true
#define VNNI true
#define ISA avxvnni
#define BITS 4
#include "kernels/cpu/x86/int_avx2.h"

X86_UKR(table4)
