// levels.c: scales that are codes themselves ("dq256", docs/FORMAT.md): what those of a matrix can stand for is settled
// before its elements are rounded, so that these are rounded with the scales that a reader will see. Owns nothing.
#include "quant/pass.h"
#include <float.h>
#include <math.h>
#include <string.h>

static size_t up64(size_t n) { return (n + 63) & ~(size_t)63; }

size_t lq_levels_bytes(const lq_wtype *t, int64_t n, int64_t k) {
    const size_t count = t->dq ? lq_scale_count(t, n, k) : 0;
    return count ? up64(count) + up64(lq_scale_blocks(count) * sizeof(float)) + (256 + 16) * sizeof(float) : 0;
}

void lq_levels_lay(uint8_t *at, const lq_wtype *t, int64_t n, int64_t k, lq_levels *out) {
    const size_t count = lq_scale_count(t, n, k);
    float *numbers = (float *)(void *)(at + up64(count));
    *out = (lq_levels){.code = at, .map = numbers, .offset = numbers + 256, .by = numbers + 256 + 16};
}

void lq_levels_span(const lq_recipe *r, const float *scale, size_t count, lq_levels *out) {
    const bool searched = r->range != LQ_RANGE_FULL || r->transform & LQ_T_CLIP;
    const double room = r->rounding == LQ_ROUND_GPTQ ? 1.25 : 1;
    const double least = (searched ? r->least > 0 ? (double)r->least : 0.5 : 1) / room;
    double sum = 0;
    for (int i = 0; i < 256; i++) out->map[i] = (float)((2 * i - 255) / 255.0);
    for (size_t i = 0; i < count; i++) sum += (double)scale[i] * (least + room) / 2;
    *out->offset = (float)(sum / (double)count);
    for (size_t first = 0; first < count; first += LQ_DQ) {
        const size_t end = count - first < LQ_DQ ? count : first + LQ_DQ;
        double far = 0;
        for (size_t i = first; i < end; i++) {
            far = fmax(far, fabs((double)scale[i] * least - (double)*out->offset));
            far = fmax(far, fabs((double)scale[i] * room - (double)*out->offset));
        }
        out->by[first / LQ_DQ] = far < (double)FLT_MAX ? (float)far : FLT_MAX;
    }
}

void lq_levels_code(const float *scale, size_t count, const lq_levels *l) {
    for (size_t i = 0; i < count; i++) l->code[i] = lq_scale_code(l->map, l->by[i / LQ_DQ], *l->offset, scale[i]);
}
