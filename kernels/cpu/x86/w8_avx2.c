// w8_avx2.c: Q8 activations x int8 weights in layout x86, AVX2. The kernels are int_avx2.h's, of many rows
// panel_avx2.h's.
#define BITS 8
#include "kernels/cpu/x86/int_avx2.h"
#include "kernels/cpu/x86/panel_avx2.h"

X86_UKR(int8)
WORDS_FNS
MANY_UKR(int8, in_words, in_words)
