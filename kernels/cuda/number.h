// number.h: a number of a matrix of f32 or bf16, and of a weight of any type in layout any or cuda, as f32: for kernels
// that go number by number, the plain ones and those that read an embedding.
#ifndef LQ_NUMBER_H
#define LQ_NUMBER_H
#include "formats/layout_cuda.h"
#include "kernels/math.h"
#include "kernels/view.h"

namespace number {
// --- rows of a matrix of f32 or bf16; codes of e4m3 are read alone ---

typedef struct line { char *p; bool half, code = false; } line;
LQ_FN line line_of(const lq_mat *m, int row) {
    const bool half = m->type == LQ_BF16;
    return line{(char *)m->p + (size_t)row * m->stride * (half ? 2 : 4), half};
}

LQ_FN line line_from(line l, int64_t at) { return line{l.p + at * (l.half ? 2 : 4), l.half}; }
LQ_FN line floats(const void *p) { return line{(char *)(uintptr_t)p, false}; }
LQ_FN line codes(const void *p) { return line{(char *)(uintptr_t)p, false, true}; }
LQ_FN float at(line l, int64_t i) {
    if (l.code) return lq_e4m3_widen(((uint8_t *)l.p)[i]);
    return l.half ? lq_bf16_widen(((uint16_t *)l.p)[i]) : ((float *)l.p)[i];
}

LQ_FN void put(line l, int64_t i, float v) {
    if (l.half) ((uint16_t *)l.p)[i] = (uint16_t)lq_bf16_narrow(v);
    else ((float *)l.p)[i] = v;
}

// --- weights ---

LQ_FN float elem_at(lq_dtype type, const void *p, size_t i) {
    switch (type) {
    case LQ_F32: return ((const float *)p)[i];
    case LQ_F16: return lq_f16_widen(((const uint16_t *)p)[i]);
    case LQ_BF16: return lq_bf16_widen(((const uint16_t *)p)[i]);
    case LQ_E4M3: return lq_e4m3_widen(((const uint8_t *)p)[i]);
    case LQ_E5M2: return lq_e5m2_widen(((const uint8_t *)p)[i]);
    case LQ_E8M0: return lq_e8m0_widen(((const uint8_t *)p)[i]);
    default: return (float)((const double *)p)[i];
    }
}

LQ_FN void elem_put(lq_dtype type, void *p, size_t i, float f) {
    switch (type) {
    case LQ_F16: ((uint16_t *)p)[i] = (uint16_t)lq_f16_narrow(f); break;
    case LQ_BF16: ((uint16_t *)p)[i] = (uint16_t)lq_bf16_narrow(f); break;
    case LQ_E4M3: ((uint8_t *)p)[i] = (uint8_t)lq_e4m3_narrow(f); break;
    default: ((float *)p)[i] = f;
    }
}

// Codes of a dense row begin on words of 32 bits.
LQ_FN uint32_t code_at(const void *row, int bits, int64_t i) {
    const uint32_t *word = (const uint32_t *)row;
    const int64_t bit = i * bits;
    const int at = (int)(bit & 31);
    uint32_t v = word[bit >> 5] >> at;
    if (at + bits > 32) v |= word[(bit >> 5) + 1] << (32 - at);
    return v & ((1u << bits) - 1);
}

LQ_FN size_t row_bytes(int bits, int64_t k) { return (size_t)((k * bits + 31) / 32) * 4; }
LQ_FN int64_t groups_of(const lq_wtype *t, int64_t k) { return t->group ? (k + t->group - 1) / t->group : 1; }

LQ_FN float scale_at(const lq_weight *w, int64_t row, int64_t group) {
    const lq_wtype *t = &w->type;
    const int64_t g = t->group ? group : 0;
    const size_t i = w->layout == LQ_CUDA && t->rows <= 1 ? lq_cuda_scale(w->n, row, g)
                     : (size_t)((t->rows > 1 ? row / t->rows : row) * groups_of(t, w->k) + g);
    if (!w->scale && t->dq) {
        const float product = w->scale_map[w->scale_code[i]] * w->scale2[i / LQ_DQ];
        return product + *w->scale_offset;
    }
    const float s = elem_at(t->scale, w->scale, i);
    return t->scale == LQ_E4M3 ? s * *w->scale2 : s;
}

LQ_FN int zero_at(const lq_weight *w, int64_t row, int64_t group) {
    const lq_wtype *t = &w->type;
    if (!t->asym) return 1 << (t->bits - 1);
    if (w->layout == LQ_CUDA) return lq_cuda_zero(w->zero, t->bits, w->n, row, t->group ? group : 0);
    return (int)code_at(w->zero + (size_t)row * row_bytes(t->bits, groups_of(t, w->k)), t->bits, t->group ? group : 0);
}

LQ_FN uint32_t weight_code(const lq_weight *w, int64_t row, int64_t k) {
    const int64_t unit = lq_cuda_unit(w->type.bits);
    if (w->layout == LQ_CUDA)
        return lq_cuda_code(w->q, w->type.bits, (w->k + unit - 1) / unit * unit, row, k);
    return code_at((const char *)w->q + (size_t)row * row_bytes(w->type.bits, w->k), w->type.bits, k);
}

// Stored column k of a row; bare: an element as it is, without its scale.
LQ_FN float weight_at(const lq_weight *w, int64_t row, int64_t k, bool bare) {
    const lq_wtype *t = &w->type;
    const int64_t g = t->group ? k / t->group : 0;
    if (t->kind == LQ_W_INT) return (float)((int)weight_code(w, row, k) - zero_at(w, row, g)) * scale_at(w, row, g);
    if (t->kind == LQ_W_TABLE) return w->table[weight_code(w, row, k)] * scale_at(w, row, g);
    float v;
    if (w->layout == LQ_CUDA) {
        const uint32_t code = weight_code(w, row, k);
        v = t->elem == LQ_E5M2 ? lq_e5m2_widen(code) : lq_e4m3_widen(code);
    } else v = elem_at(t->elem, w->q, (size_t)(row * w->k + k));
    return t->kind == LQ_W_PLAIN || bare ? v : v * scale_at(w, row, g);
}
}
#endif
