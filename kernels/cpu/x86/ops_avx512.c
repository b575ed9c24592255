// ops_avx512.c: norm, rope, glu, scale, add, mix and sample with AVX-512 (ops_vec.h); fills the
// table of that ISA. Owns nothing.
#include "kernels/cpu/x86/ops_vec.h"

void lq_cpu_avx512_slots(lq_ops *o) { slots_fill(o); }
