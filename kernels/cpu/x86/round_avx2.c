// round_avx2.c: parts of the slot round with AVX2 (round_vec.h), and what elements lose by a scale that is tried. Owns
// nothing.
#include "kernels/cpu/x86/round_vec.h"

// The lanes of a vector are those of the sums. Sixteen at once would be no quicker: the division is not.
void lq_loss_avx2(const float *x, const float *weight, size_t n, float s, int32_t z, int bits, float *part) {
    const vf low = vf_set((float)-z), high = vf_set((float)((1 << bits) - 1 - z)), step = vf_set(s);
    const vf magic = vf_set(12582912.0f);
    vf sum = vf_load(part);
    for (size_t i = 0; i < n; i += VEC) {
        const vf w = vf_load(x + i), c = vf_add(vf_max(vf_min(vf_div(w, step), high), low), magic);
        const vf e = vf_sub(w, vf_mul(vf_sub(c, magic), step));
        sum = vf_add(sum, vf_mul(weight ? vf_mul(vf_load(weight + i), e) : e, e));
    }
    vf_store(part, sum);
}
