// plain_avx512.c: what plain_vec.h has with AVX-512. Owns nothing.
#include "kernels/cpu/x86/plain_vec.h"
