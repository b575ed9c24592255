// plain_avx2.c: what plain_vec.h has with AVX2 and FMA. Owns nothing.
#include "kernels/cpu/x86/plain_vec.h"
