// round_vec.h: what the slots `round` and `refine` spend most on, for the ISA this is compiled for: errors spread over
// columns. The bits are those of lq_spread_c: an element hears of one error after the other. Owns nothing.
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { PARTS = VEC / 4, STEP = PARTS * VEC, TOGETHER = 4 }; // vectors of a row, rows that read a vector of u once

#define hear NAME(hear)
INLINE void hear(const lq_hearer *row, const int rows, const float *u, size_t stride, size_t errors, size_t c,
                 const int parts) {
    vf x[TOGETHER][PARTS];
    EACH (int r = 0; r < rows; r++)
        EACH (int p = 0; p < parts; p++) x[r][p] = vf_load(row[r].w + c + p * VEC);
    for (size_t b = 0; b < errors; b++) {
        vf of[PARTS];
        EACH (int p = 0; p < parts; p++) of[p] = vf_load(u + b * stride + c + p * VEC);
        EACH (int r = 0; r < rows; r++) {
            const vf by = vf_set(row[r].e[b]);
            EACH (int p = 0; p < parts; p++) x[r][p] = vf_sub(x[r][p], vf_mul(by, of[p]));
        }
    }
    EACH (int r = 0; r < rows; r++)
        EACH (int p = 0; p < parts; p++) vf_store(row[r].w + c + p * VEC, x[r][p]);
}

void NAME(lq_spread)(const lq_hearer *row, size_t rows, const float *u, size_t stride, size_t errors, size_t n) {
    const size_t most = n / STEP * STEP, whole = n / VEC * VEC;
    for (size_t c = 0; c < whole; c += c < most ? STEP : VEC) {
        size_t r = 0;
        for (; r + TOGETHER <= rows; r += TOGETHER) {
            if (c < most) hear(row + r, TOGETHER, u, stride, errors, c, PARTS);
            else hear(row + r, TOGETHER, u, stride, errors, c, 1);
        }
        for (; r < rows; r++) {
            if (c < most) hear(row + r, 1, u, stride, errors, c, PARTS);
            else hear(row + r, 1, u, stride, errors, c, 1);
        }
    }
    for (size_t r = 0; r < rows && whole < n; r++)
        lq_spread_c(&(lq_hearer){row[r].w + whole, row[r].e}, 1, u + whole, stride, errors, n - whole);
}
#undef hear
