// attn_amx.c: attention whose products are tiles of bf16 (attn_vec.h, tiles.h). Owns nothing.
#define LQ_ATTN_TILES
#define NAME(x) x##_amx
#include "kernels/cpu/x86/tiles.h"

#include "kernels/cpu/x86/attn_vec.h"
