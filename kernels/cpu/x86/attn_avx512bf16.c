// attn_avx512bf16.c: attention whose products are vdpbf16ps (attn_vec.h). Owns nothing.
#include "kernels/cpu/x86/attn_vec.h"
