// round_avx512.c: a part of the slot round with AVX-512 (round_vec.h). Owns nothing.
#include "kernels/cpu/x86/round_vec.h"
