// rows_avx2.c: coded weights of layout any as f32 rows with AVX2 (rows_vec.h), and 8-bit floats by few rows at once
// (thin_vec.h). Owns nothing.
#include "kernels/cpu/x86/rows_vec.h"
#include "kernels/cpu/x86/thin_vec.h"
