// round_avx2.c: a part of the slot round with AVX2 (round_vec.h). Owns nothing.
#include "kernels/cpu/x86/round_vec.h"
