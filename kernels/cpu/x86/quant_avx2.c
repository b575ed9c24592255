// quant_avx2.c: activations in int8 with AVX2 (quant_vec.h). Owns nothing.
#include "kernels/cpu/x86/quant_vec.h"
