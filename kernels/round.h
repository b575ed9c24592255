// round.h: what becomes of a group, of an element and of a row's figures in the slots round and refine: the one
// definition, of portable C (cpu/round.c) and of CUDA kernels (cuda/plain/round.cu). Pointers are as the arguments have
// them. Nothing here sums over more than an element: the orders of sums are those of round.c.
#ifndef LQ_ROUND_H
#define LQ_ROUND_H
#include "formats/elem.h"
#include "kernels/ops.h"
#include <math.h>

// Beyond it, half a step more than the largest element might be no number of f32.
#define LQ_ROUND_LARGEST 0x1p127f

// A call's arguments, and what follows from them.
typedef struct lq_rounding {
    lq_round_args a;
    int64_t n, k, groups, group, band; // columns that share a scale, rows that do
    size_t elem, q_row, zero_row, scale; // bytes of an element of w, of a row of codes and of zero points, of a scale
} lq_rounding;
enum { LQ_REFINED = 1024 }; // the most columns of a group whose scale `refine` moves
lq_rounding lq_rounding_of(const lq_round_args *a);

// What became of a row.
typedef struct lq_figures { double error, norm, worst; } lq_figures;

LQ_FN void lq_figures_add(lq_figures *to, float w, float v) {
    const double e = fabs((double)w - (double)v);
    to->error += e * e;
    to->norm += (double)w * (double)w;
    if (e > to->worst) to->worst = e;
}

// --- elements of float types ---

LQ_FN float lq_elem_widen(lq_dtype t, uint32_t code) {
    switch (t) {
    case LQ_F16: return lq_f16_widen(code);
    case LQ_BF16: return lq_bf16_widen(code);
    case LQ_E4M3: return lq_e4m3_widen(code);
    case LQ_E5M2: return lq_e5m2_widen(code);
    case LQ_E8M0: return lq_e8m0_widen(code);
    default: return lq_float(code);
    }
}

LQ_FN uint32_t lq_elem_narrow(lq_dtype t, float f) {
    switch (t) {
    case LQ_F16: return lq_f16_narrow(f);
    case LQ_BF16: return lq_bf16_narrow(f) & 0xffff;
    case LQ_E4M3: return lq_e4m3_narrow(f);
    case LQ_E5M2: return lq_e5m2_narrow(f);
    case LQ_E8M0: return lq_e8m0_narrow(f);
    default: return lq_bits(f);
    }
}

LQ_FN float lq_elem_read(lq_dtype t, const void *p, size_t i) {
    if (t == LQ_F32) return ((const float *)p)[i];
    if (t == LQ_F64) return (float)((const double *)p)[i];
    return lq_elem_widen(t, t == LQ_F16 || t == LQ_BF16 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i]);
}

LQ_FN void lq_elem_write(lq_dtype t, void *p, size_t i, float f) {
    if (t == LQ_F32) ((float *)p)[i] = f;
    else if (t == LQ_F64) ((double *)p)[i] = (double)f;
    else if (t == LQ_F16 || t == LQ_BF16) ((uint16_t *)p)[i] = (uint16_t)lq_elem_narrow(t, f);
    else ((uint8_t *)p)[i] = (uint8_t)lq_elem_narrow(t, f);
}

LQ_FN bool lq_elem_finite(float x) { return (lq_bits(x) & 0x7f800000) != 0x7f800000; }

LQ_FN float lq_round_element(const lq_round_args *a, int64_t row, int64_t c) {
    return lq_elem_read(a->w.type, a->w.p, (size_t)row * a->w.stride + (size_t)c);
}

// Whether an element can be coded at all.
LQ_FN bool lq_round_can(const lq_round_args *a, float x) {
    const lq_dtype t = a->type.elem;
    if (a->type.kind != LQ_W_PLAIN) return fabsf(x) <= LQ_ROUND_LARGEST;
    return lq_elem_finite(x) && lq_elem_finite(lq_elem_widen(t, lq_elem_narrow(t, x)));
}

// --- scales ---

// The largest value of a code.
LQ_FN float lq_round_top(const lq_round_args *a) {
    float top = 0;
    if (a->type.kind == LQ_W_FLOAT) return a->type.elem == LQ_E5M2 ? 57344.0f : 448.0f;
    for (int i = 0; a->type.kind == LQ_W_TABLE && i < 1 << a->type.bits; i++)
        top = fabsf(a->table[i]) > top ? fabsf(a->table[i]) : top;
    return top;
}

// 2^(floor(log2 m) - floor(log2 top)), within E8M0.
LQ_FN float lq_round_power(float m, float top) {
    const int e = m > 0 ? ilogbf(m) - ilogbf(top) : -127;
    return ldexpf(1, e < -127 ? -127 : e > 127 ? 127 : e);
}

// The scale of a range. Adding 0 makes that of a group of zeros +0.
LQ_FN float lq_round_scale(const lq_round_args *a, float lo, float hi) {
    const lq_wtype *t = &a->type;
    const float m = hi > -lo ? hi : -lo, by = a->scale2;
    if (t->scale == LQ_E8M0) return lq_round_power(m, lq_round_top(a));
    if (t->scale == LQ_E4M3) return by > 0 ? fminf(m / (lq_round_top(a) * by), 448.0f) + 0.0f : 0;
    if (t->kind != LQ_W_INT) return m / lq_round_top(a) + 0.0f;
    if (t->asym) return (float)(((double)hi - (double)lo) / ((1 << t->bits) - 1));
    return (hi > -lo ? hi : lo) / (float)-(1 << (t->bits - 1)) + 0.0f;
}

LQ_FN int32_t lq_round_zero(const lq_round_args *a, float lo, float s) {
    const lq_wtype *t = &a->type;
    const float top = (float)((1 << t->bits) - 1);
    if (!t->asym) return 1 << (t->bits - 1);
    if (!(s > 0)) return 0; // of codes of scales none may be near a small one
    const float z = rintf(-lo / s);
    return (int32_t)(z > top ? top : z);
}

LQ_FN bool lq_round_leaves(const lq_round_args *a, float s) {
    return a->type.scale == LQ_F16 && s != 0 && !(fabsf(s) >= 0x1p-14f && fabsf(s) <= 65504.0f);
}

// The share of a group's range that is tried i-th. A scale of few bits may have been rounded down, so that the largest
// elements have no code: what is tried 0th is the next one, where there is one.
LQ_FN float lq_round_next(const lq_round_args *a) {
    return a->type.scale == LQ_E8M0 ? 2 : a->type.scale == LQ_E4M3 ? 1.125f : 1;
}

LQ_FN float lq_round_share(const lq_round_args *a, int i) {
    return i ? (float)(1 - (1 - (double)a->least) * i / (a->steps - 1)) : lq_round_next(a);
}

LQ_FN size_t lq_round_at(const lq_rounding *r, int64_t row, int64_t g) {
    return (size_t)(row / r->band * r->groups + g);
}

// A scale as it will be stored, as it counts: that of group g of the rows that share it with this one.
LQ_FN float lq_round_stored(const lq_rounding *r, int64_t row, int64_t g, float s) {
    const lq_round_args *a = &r->a;
    if (a->scale_by) {
        const float by = a->scale_by[lq_round_at(r, row, g)];
        return lq_scale_value(a->scale_map, lq_scale_code(a->scale_map, by, a->scale_offset, s), by, a->scale_offset);
    }
    s = lq_elem_widen(a->type.scale, lq_elem_narrow(a->type.scale, s));
    return a->type.scale == LQ_E4M3 ? s * a->scale2 : s;
}

LQ_FN void lq_round_put_scale(const lq_rounding *r, int64_t row, int64_t g, float s) {
    if (r->a.scale_by) s = lq_round_stored(r, row, g, s);
    lq_elem_write(r->a.type.scale, r->a.scale, lq_round_at(r, row, g), s);
}

LQ_FN float lq_round_scale_at(const lq_rounding *r, int64_t row, int64_t g) {
    const float s = lq_elem_read(r->a.type.scale, r->a.scale, lq_round_at(r, row, g));
    return r->a.type.scale == LQ_E4M3 ? s * r->a.scale2 : s;
}

LQ_FN int32_t lq_round_zero_at(const lq_rounding *r, int64_t row, int64_t g) {
    const int bits = r->a.type.bits;
    if (!r->a.type.asym) return r->a.type.kind == LQ_W_INT ? 1 << (bits - 1) : 0;
    return (int32_t)lq_code_get((const uint8_t *)r->a.zero + (size_t)row * r->zero_row, bits, g);
}

// --- codes ---

LQ_FN float lq_round_magic(float x) { return x + 12582912.0f - 12582912.0f; } // 1.5 * 2^23; ties to even

// One element: its code, and what that stands for.
LQ_FN float lq_round_code(const lq_round_args *a, float w, float s, int32_t z, uint32_t *q) {
    const lq_wtype *t = &a->type;
    float x = s == 0 ? 0 : w / s;
    if (t->kind == LQ_W_INT) {
        const float low = (float)-z, high = (float)((1 << t->bits) - 1 - z);
        x = lq_round_magic(x < low ? low : x > high ? high : x);
        *q = (uint32_t)((int32_t)x + z);
        return x * s;
    }
    if (t->kind == LQ_W_FLOAT) {
        const float top = lq_round_top(a);
        *q = lq_elem_narrow(t->elem, x < -top ? -top : x > top ? top : x);
        return lq_elem_widen(t->elem, *q) * s;
    }
    const float *table = a->table;
    uint32_t best = 0;
    for (uint32_t i = 1; i < 1u << t->bits; i++) {
        const float near = fabsf(x - table[i]), nearest = fabsf(x - table[best]);
        if (near < nearest || (near == nearest && best & 1 && !(i & 1))) best = i;
    }
    *q = best;
    return table[best] * s;
}

LQ_FN uint32_t lq_round_code_at(const lq_rounding *r, int64_t row, int64_t c) {
    const uint8_t *q = (const uint8_t *)r->a.q + (size_t)row * r->q_row;
    return r->a.type.kind == LQ_W_FLOAT ? q[c] : lq_code_get(q, r->a.type.bits, c);
}

LQ_FN void lq_round_put_code(const lq_rounding *r, int64_t row, int64_t c, uint32_t code) {
    uint8_t *q = (uint8_t *)r->a.q + (size_t)row * r->q_row;
    if (r->a.type.kind == LQ_W_FLOAT) q[c] = (uint8_t)code;
    else lq_code_set(q, r->a.type.bits, c, code);
}

// What a code stands for, of scale 1.
LQ_FN float lq_round_value(const lq_round_args *a, uint32_t q, int32_t z) {
    if (a->type.kind == LQ_W_INT) return (float)((int32_t)q - z);
    return a->type.kind == LQ_W_TABLE ? a->table[q] : lq_elem_widen(a->type.elem, q);
}

// An element of a row with codes.
LQ_FN float lq_round_back(const lq_rounding *r, int64_t row, int64_t c) {
    const int64_t g = c / r->group;
    return lq_round_value(&r->a, lq_round_code_at(r, row, c), lq_round_zero_at(r, row, g)) *
        lq_round_scale_at(r, row, g);
}

// --- refining ---

LQ_FN float lq_refine_curve(const lq_rounding *r, int64_t c) {
    return r->a.h[(size_t)c * (size_t)r->k + (size_t)c] + r->a.damp;
}

// Whether the code that is nearest to where the loss is least is surely the one that is there: what integers stand for
// lies s apart, and f32 is not a hundredth of that off.
LQ_FN bool lq_refine_stays(const lq_round_args *a, float slope, float s, float curve) {
    const float half = 0.49f * fabsf(s) * curve;
    return a->type.kind == LQ_W_INT && fabsf(s) > 0x1p-100f && half > 0x1p-100f && fabsf(slope) < half;
}

// One element, all others as they are: the code that is nearest to where the row's loss is least is taken if the row
// then loses less. What the element changed by; 0: nothing was changed.
LQ_FN float lq_refine_code(const lq_rounding *r, int64_t row, int64_t c, float slope, float s, float curve) {
    if (lq_refine_stays(&r->a, slope, s, curve)) return 0;
    const int32_t z = lq_round_zero_at(r, row, c / r->group);
    const uint32_t was = lq_round_code_at(r, row, c);
    const float old = lq_round_value(&r->a, was, z) * s;
    uint32_t q;
    const float now = lq_round_code(&r->a, old + slope / curve, s, z, &q), by = now - old;
    if (q == was || !(by * (by * curve - 2 * slope) < 0)) return 0;
    lq_round_put_code(r, row, c, q);
    return by;
}

// The scale of a group of a row that is its own band, moved by least squares where the row then loses less. fall,
// curve: of the loss along the group's values of scale 1. What the scale changed by; 0: nothing was changed.
LQ_FN float lq_refine_scale(const lq_rounding *r, int64_t row, int64_t g, double fall, double curve) {
    const float s = lq_round_scale_at(r, row, g);
    if (!(curve > 0)) return 0;
    float raw = (float)((double)s + fall / curve);
    if (r->a.type.scale == LQ_E4M3) raw = r->a.scale2 > 0 ? raw / r->a.scale2 : 0;
    const float now = lq_round_stored(r, row, g, raw), by = now - s;
    if (by == 0 || !lq_elem_finite(now) || lq_round_leaves(&r->a, raw)) return 0;
    if (!((double)by * ((double)by * curve - 2 * fall) < 0)) return 0;
    lq_round_put_scale(r, row, g, raw);
    return by;
}
#endif
