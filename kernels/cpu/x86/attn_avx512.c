// attn_avx512.c: attention with AVX-512 (attn_vec.h). Owns nothing.
#include "kernels/cpu/x86/attn_vec.h"
