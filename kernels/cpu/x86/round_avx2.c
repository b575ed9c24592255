// round_avx2.c: parts of the slot round with AVX2 (round_vec.h), and what elements come to: the lanes of a vector are
// those of the sums. (Sixteen at once would be no quicker: the division is not.) Owns nothing.
#include "kernels/cpu/x86/round_vec.h"
#include "kernels/round.h"

static bool range_of(const float *x, size_t n, float *lo, float *hi) {
    vf least[2], most[2], bad[2];
    EACH (int h = 0; h < 2; h++) least[h] = most[h] = bad[h] = vf_zero();
    for (size_t i = 0; i < n; i += 2 * VEC)
        EACH (int h = 0; h < 2; h++) {
            const vf v = vf_load(x + i + h * VEC);
            least[h] = vf_min(v, least[h]);
            most[h] = vf_max(v, most[h]);
            bad[h] = vf_add(bad[h], vf_mul(v, vf_zero()));
        }
    const float l = -vf_most(vf_minus(vf_min(least[0], least[1]))), m = vf_most(vf_max(most[0], most[1]));
    *lo = l < *lo ? l : *lo;
    *hi = m > *hi ? m : *hi;
    return !vf_any_nan(vf_add(bad[0], bad[1])) && *hi <= LQ_ROUND_LARGEST && *lo >= -LQ_ROUND_LARGEST;
}

// Values of integers as numbers with 1.5 * 2^23 added.
typedef struct grid { vf low, high, step, magic; } grid;
INLINE grid grid_of(float s, int32_t z, int bits) {
    return (grid){vf_set((float)-z), vf_set((float)((1 << bits) - 1 - z)), vf_set(s), vf_set(12582912.0f)};
}

INLINE vf near(const grid *g, vf t) { return vf_add(vf_max(vf_min(t, g->high), g->low), g->magic); }

static void codes_of(const float *x, size_t n, float s, int32_t z, int bits, float unit, int32_t *q, lq_lanes *sum) {
    const grid g = grid_of(s, z, bits);
    const vf part = vf_set(unit);
    vf error = vf_load(sum->error), norm = vf_load(sum->norm), most = vf_load(sum->max);
    for (size_t i = 0; i < n; i += VEC) {
        const vf t = vf_div(vf_load(x + i), g.step), c = near(&g, t);
        const vf e = vf_mul(vf_sub(t, vf_sub(c, g.magic)), part), v = vf_mul(t, part);
        const vi code = vi_and(vi_add(vi_bits(c), vi_set(z)), vi_set(255));
        memcpy(q + i, &code, sizeof code);
        error = vf_add(error, vf_mul(e, e));
        norm = vf_add(norm, vf_mul(v, v));
        most = vf_max(vf_abs(e), most);
    }
    vf_store(sum->error, error);
    vf_store(sum->norm, norm);
    vf_store(sum->max, most);
}

static void loss_of(const float *x, const float *weight, size_t n, float s, int32_t z, int bits, float *part) {
    const grid g = grid_of(s, z, bits);
    vf sum = vf_load(part);
    for (size_t i = 0; i < n; i += VEC) {
        const vf w = vf_load(x + i), e = vf_sub(w, vf_mul(vf_sub(near(&g, vf_div(w, g.step)), g.magic), g.step));
        sum = vf_add(sum, vf_mul(weight ? vf_mul(vf_load(weight + i), e) : e, e));
    }
    vf_store(part, sum);
}

const lq_rounds lq_rounds_avx2 = {range_of, codes_of, loss_of};
