// attn_avx2.c: attention with AVX2 (attn_vec.h). Owns nothing.
#include "kernels/cpu/x86/attn_vec.h"
