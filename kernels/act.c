// act.c: which form of activations a weight wants and where its parts lie; what attention rounds to. Pure: it owns
// nothing and cannot fail.
#include "kernels/view.h"

// Whether products are of bf16, which every 8-bit float is, where scales that are no shifts, and those of activations
// that have one for `group` columns (0: for the row), hold for multiples of 128 columns.
static bool by_halves(const lq_dev *d, const lq_wtype *w, int group) {
    const bool small = w->elem == LQ_E4M3 || w->elem == LQ_E5M2, scaled = w->kind == LQ_W_FLOAT && !lq_fp8_shifts(w);
    if (!d->bf16 || d->numerics == LQ_NUM_EXACT || (w->kind != LQ_W_PLAIN && w->kind != LQ_W_FLOAT)) return false;
    return w->elem == LQ_BF16 || (small && group % 128 == 0 && (!scaled || w->group % 128 == 0));
}

lq_atype lq_act_type(const lq_dev *d, const lq_wtype *w) {
    if (w->act.elem != LQ_F32) return w->act;
    if (by_halves(d, w, 0)) return (lq_atype){.elem = LQ_BF16};
    const bool whole = w->kind == LQ_W_INT || lq_wtype_book(w);
    if (!whole || !d->q8 || d->numerics == LQ_NUM_EXACT || lq_x86_group(w) > LQ_GROUP_MAX)
        return (lq_atype){.elem = LQ_F32};
    return (lq_atype){.elem = LQ_I8, .group = lq_x86_group(w)};
}

lq_dtype lq_attn_type(const lq_dev *d, lq_dtype cache, int dk) {
    return d->bf16 && d->numerics != LQ_NUM_EXACT && cache != LQ_F32 && dk >= 32 ? LQ_BF16 : LQ_F32;
}

static int common(int a, int b) { // their largest common divisor; 0 divides nothing
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// k of a cell: no scale, neither of the weight nor of the activations, changes within one; halves: but for shifts.
static size_t cell_of(const lq_weight *w, lq_atype t, bool halves) {
    const int group = halves && lq_fp8_shifts(&w->type) ? 0 : w->type.group;
    if (t.elem == LQ_BF16) return (size_t)w->k; // there is none
    if (t.elem == LQ_E4M3) return group || t.group ? (size_t)common(group, t.group) : (size_t)w->k;
    const int unit = common(lq_x86_group(&w->type), t.group);
    return (size_t)(unit > LQ_GROUP_MAX ? common(unit, LQ_GROUP_MAX) : unit); // int32 has to hold its sum
}

bool lq_act_halves(const lq_dev *d, const lq_weight *w) {
    const lq_atype t = lq_act_type(d, &w->type);
    return t.elem == LQ_BF16 || (t.elem == LQ_E4M3 && by_halves(d, &w->type, t.group));
}

bool lq_act_same(const lq_dev *d, const lq_weight *a, const lq_weight *b) {
    const lq_atype t = lq_act_type(d, &a->type), u = lq_act_type(d, &b->type);
    if (t.elem != u.elem || t.group != u.group || t.fixed != u.fixed || t.asym != u.asym) return false;
    if (a->perm != b->perm || a->smooth != b->smooth || a->outlier != b->outlier || a->outliers != b->outliers)
        return false;
    if (t.fixed && (a->act_scale != b->act_scale || a->act_zero != b->act_zero)) return false;
    const bool halves = lq_act_halves(d, a);
    if (halves != lq_act_halves(d, b)) return false;
    return t.elem == LQ_F32 || cell_of(a, t, halves) == cell_of(b, t, halves);
}

// Bytes of q, scale, sum and zero, each up to a 64-byte border.
typedef struct sizes { size_t q, scale, sum, zero; } sizes;
static size_t lines(size_t bytes) { return (bytes + 63) & ~(size_t)63; }
static size_t bf16_row(int64_t k) { return lq_row_apart(k, 32); }
// Of codes too, which a GPU reads 32 bytes of at once: nothing is added to a row that ends with such a border.
static size_t f32_row(int64_t k) { return ((size_t)k + 15) & ~(size_t)15; }
// Rows from cell to cell: such that those of a row do not all meet in the same few lines of a cache.
static int rows_apart(int rows) { return rows < 16 ? rows : ((rows + 1) / 2 | 1) * 2; }
static sizes sizes_of(const lq_weight *w, lq_atype t, int rows, size_t cell, bool halves) {
    const size_t k = (size_t)w->k, cells = (k + cell - 1) / cell * (size_t)rows_apart(rows), n = (size_t)rows;
    const size_t row = halves ? bf16_row(w->k) * sizeof(uint16_t) : f32_row(w->k) * sizeof(float);
    if (t.elem == LQ_BF16) return (sizes){.q = lines(n * row)};
    if (t.elem == LQ_E4M3) return (sizes){.q = lines(n * row), .scale = lines(cells * 4)};
    return (sizes){.q = lines(cells * cell), .scale = lines(cells * 4), .sum = lines(cells * 4),
                   .zero = t.asym ? lines(n * 4) : 0};
}

size_t lq_act_bytes(const lq_dev *d, const lq_weight *w, int rows) {
    const lq_atype t = lq_act_type(d, &w->type);
    if (t.elem == LQ_F32) return 0;
    const bool halves = lq_act_halves(d, w);
    const sizes s = sizes_of(w, t, rows, cell_of(w, t, halves), halves);
    return s.q + s.scale + s.sum + s.zero;
}

void lq_act_bind(const lq_dev *d, lq_act *a, const lq_weight *w, int rows, void *base) {
    const lq_atype t = lq_act_type(d, &w->type);
    *a = (lq_act){.type = t, .x = {.p = a->x.p, .type = LQ_F32, .rows = rows, .cols = (int)w->k, .stride = a->x.stride},
                  .smooth = w->smooth, .perm = w->perm, .outlier = w->outlier, .outliers = w->outliers,
                  .fixed = t.fixed ? w->act_scale : NULL, .fixed_zero = t.fixed && t.asym ? w->act_zero : NULL};
    if (t.elem == LQ_F32) return;
    if (t.elem == LQ_BF16) {
        a->q = base;
        a->q_row = bf16_row(w->k);
        return;
    }
    a->halves = lq_act_halves(d, w);
    const size_t cell = cell_of(w, t, a->halves);
    const sizes s = sizes_of(w, t, rows, cell, a->halves);
    char *at = base;
    a->q = at;
    a->scale = (float *)(void *)(at += s.q);
    at += s.scale;
    if (s.sum) a->sum = (int32_t *)(void *)at;
    at += s.sum;
    if (s.zero) a->zero = (int32_t *)(void *)at;
    a->q_row = a->halves ? bf16_row(w->k) : t.elem == LQ_E4M3 ? f32_row(w->k) : cell;
    a->apart = rows_apart(rows);
    a->q_group = cell;
}
