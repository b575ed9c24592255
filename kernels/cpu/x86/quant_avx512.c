// quant_avx512.c: activations in int8 with AVX-512 (quant_vec.h). Owns nothing.
#include "kernels/cpu/x86/quant_vec.h"
