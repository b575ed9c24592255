// round_vec.h: what the slot `round` spends most on, for the ISA this is compiled for: errors spread over columns. The
// bits are those of lq_spread_c: an element hears of one error after the other. Owns nothing.
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { PARTS = 4, STEP = PARTS * VEC };

void NAME(lq_spread)(float *w, const float *u, size_t stride, const float *e, size_t errors, size_t n) {
    size_t c = 0;
    for (; c + STEP <= n; c += STEP) {
        vf x[PARTS];
        EACH (int p = 0; p < PARTS; p++) x[p] = vf_load(w + c + p * VEC);
        for (size_t b = 0; b < errors; b++) {
            const vf by = vf_set(e[b]);
            EACH (int p = 0; p < PARTS; p++) x[p] = vf_sub(x[p], vf_mul(by, vf_load(u + b * stride + c + p * VEC)));
        }
        EACH (int p = 0; p < PARTS; p++) vf_store(w + c + p * VEC, x[p]);
    }
    lq_spread_c(w + c, u + c, stride, e, errors, n - c);
}
