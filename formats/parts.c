// parts.c: the table of a coded weight's parts: who has them, their type and shape, and
// which field of lq_weight they are.
#include "formats/parts.h"
#include <string.h>

// `shape`: of one matrix; returns the rank.
typedef struct part_row {
    const char *suffix;
    size_t field;
    bool (*needed)(const lq_wtype *t); // NULL: by every type
    bool optional;                     // every type may have it
    int (*shape)(const lq_weight *w, lq_dtype *type, int64_t *shape);
} part_row;

static bool has_zero(const lq_wtype *t) { return t->asym; }
static bool has_codes(const lq_wtype *t) { return t->dq; }
static bool has_scale(const lq_wtype *t) { return !t->dq; }
static bool has_scale2(const lq_wtype *t) { return t->dq || (t->kind != LQ_W_PLAIN && t->scale == LQ_E4M3); }
static bool has_table(const lq_wtype *t) { return t->kind == LQ_W_TABLE && !t->book; }
static bool has_act_scale(const lq_wtype *t) { return t->act.fixed; }
static bool has_act_zero(const lq_wtype *t) { return t->act.fixed && t->act.asym; }

// Rows that lie in each other, which a part's first number counts: tiles, stripes, or rows alone.
static int64_t tiles_of(const lq_weight *w) {
    return w->layout == LQ_X86 ? (w->n + 15) / 16 : w->layout == LQ_CUDA ? (w->n + 63) / 64 : w->n;
}

static int shape_q(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    lq_weight_size size;
    lq_layout_sizes(w->layout, &w->type, w->n, w->k, &size);
    *type = w->type.kind == LQ_W_FLOAT ? w->type.elem : LQ_U8;
    shape[0] = tiles_of(w);
    shape[1] = (int64_t)size.q / shape[0] / (int64_t)lq_dtype_size(*type);
    return 2;
}

// A number for each row and group: of x86 [tile][group][16], of cuda [group][stripe][wide].
static int shape_tiled(const lq_weight *w, int64_t wide, int64_t *shape) {
    const bool cuda = w->layout == LQ_CUDA;
    shape[cuda] = tiles_of(w);
    shape[!cuda] = lq_weight_groups(&w->type, w->k);
    shape[2] = wide;
    return 3;
}

static int shape_scale(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    *type = w->type.scale;
    if (w->layout != LQ_ANY && w->type.rows <= 1) return shape_tiled(w, w->layout == LQ_X86 ? 16 : 64, shape);
    shape[0] = w->type.rows > 1 ? (w->n - 1) / w->type.rows + 1 : w->n;
    shape[1] = lq_weight_groups(&w->type, w->k);
    return 2;
}

static int shape_codes(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    const int rank = shape_scale(w, type, shape);
    *type = LQ_U8;
    return rank;
}

static int shape_zero(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    *type = LQ_U8;
    if (w->layout != LQ_ANY) return shape_tiled(w, w->layout == LQ_X86 ? 16 : w->type.bits > 4 ? 64 : 32, shape);
    shape[0] = w->n;
    shape[1] = (int64_t)lq_code_row_bytes(w->type.bits, lq_weight_groups(&w->type, w->k));
    return 2;
}

static int vector(lq_dtype *type, int64_t *shape, lq_dtype t, int64_t n) {
    *type = t;
    shape[0] = n;
    return 1;
}

static int shape_table(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    return vector(type, shape, LQ_F32, (int64_t)1 << w->type.bits);
}

static int shape_one(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    return (void)w, vector(type, shape, LQ_F32, 1);
}

static int shape_map(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    return (void)w, vector(type, shape, LQ_F32, 256);
}

static int shape_scale2(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    const size_t count = w->type.dq ? lq_scale_blocks(lq_scale_count(&w->type, w->n, w->k)) : 1;
    return vector(type, shape, LQ_F32, (int64_t)count);
}

static int shape_act_zero(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    return (void)w, vector(type, shape, LQ_I32, 1);
}

static int shape_perm(const lq_weight *w, lq_dtype *type, int64_t *shape) { return vector(type, shape, LQ_I32, w->k); }
static int shape_smooth(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    return vector(type, shape, LQ_F32, w->k);
}

static int shape_cols(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    return vector(type, shape, LQ_I32, w->outliers);
}

static int shape_values(const lq_weight *w, lq_dtype *type, int64_t *shape) {
    shape[1] = w->outliers;
    return vector(type, shape, LQ_BF16, w->n) + 1;
}

#define FIELD(name) offsetof(lq_weight, name)
static const part_row parts[LQ_PARTS] = {
    [LQ_PART_Q] = {".q", FIELD(q), .shape = shape_q},
    [LQ_PART_SCALE] = {".scale", FIELD(scale), has_scale, .shape = shape_scale},
    [LQ_PART_SCALE_CODE] = {".scale", FIELD(scale_code), has_codes, .shape = shape_codes},
    [LQ_PART_SCALE_MAP] = {".scale_map", FIELD(scale_map), has_codes, .shape = shape_map},
    [LQ_PART_SCALE2] = {".scale2", FIELD(scale2), has_scale2, .shape = shape_scale2},
    [LQ_PART_SCALE_OFFSET] = {".scale_offset", FIELD(scale_offset), has_codes, .shape = shape_one},
    [LQ_PART_ZERO] = {".zero", FIELD(zero), has_zero, .shape = shape_zero},
    [LQ_PART_TABLE] = {".table", FIELD(table), has_table, .shape = shape_table},
    [LQ_PART_ACT_SCALE] = {".act_scale", FIELD(act_scale), has_act_scale, .shape = shape_one},
    [LQ_PART_ACT_ZERO] = {".act_zero", FIELD(act_zero), has_act_zero, .shape = shape_act_zero},
    [LQ_PART_PERM] = {".perm", FIELD(perm), .optional = true, .shape = shape_perm},
    [LQ_PART_SMOOTH] = {".smooth", FIELD(smooth), .optional = true, .shape = shape_smooth},
    [LQ_PART_OUTLIER_COLS] = {".outlier_cols", FIELD(outlier), .optional = true, .shape = shape_cols},
    [LQ_PART_OUTLIER_W] = {".outlier_w", FIELD(outlier_w), .optional = true, .shape = shape_values},
};

const char *lq_part_suffix(lq_part_id i) { return parts[i].suffix; }

bool lq_part_needed(lq_part_id i, const lq_wtype *t) {
    const part_row *p = &parts[i];
    return t->kind != LQ_W_PLAIN && !p->optional && (!p->needed || p->needed(t));
}

bool lq_part_may(lq_part_id i, const lq_wtype *t) {
    const part_row *p = &parts[i];
    return lq_part_needed(i, t) || (t->kind != LQ_W_PLAIN && p->optional);
}

bool lq_part_of(lq_part_id i, const lq_weight *w, int64_t count, lq_part_form *out) {
    lq_weight_size size;
    *out = (lq_part_form){.rank = 0};
    if (!lq_part_may(i, &w->type) || count < 0 || !lq_layout_sizes(w->layout, &w->type, w->n, w->k, &size))
        return false;
    const bool apart = i == LQ_PART_OUTLIER_COLS || i == LQ_PART_OUTLIER_W;
    if (apart && (w->outliers < 1 || w->outliers > w->k || w->outliers > LQ_OUTLIERS)) return false;
    const int front = count > 0;
    out->rank = front + parts[i].shape(w, &out->type, out->shape + front);
    out->bytes = lq_dtype_size(out->type);
    for (int d = front; d < out->rank; d++)
        if (!lq_mul_size(out->bytes, (size_t)out->shape[d], &out->bytes)) return false;
    size_t all;
    if (front) out->shape[0] = count;
    return lq_mul_size(out->bytes, front ? (size_t)count : 1, &all) && all <= INT64_MAX / 2;
}

const void *lq_part_get(lq_part_id i, const lq_weight *w) {
    const void *p;
    memcpy(&p, (const char *)w + parts[i].field, sizeof p);
    return p;
}

void lq_part_set(lq_part_id i, lq_weight *w, const void *p) { memcpy((char *)w + parts[i].field, &p, sizeof p); }

size_t lq_part_tail(const char *name) {
    const char *dot = strrchr(name, '.');
    for (int i = 0; i < LQ_PARTS && dot && dot > name; i++)
        if (!strcmp(dot, parts[i].suffix)) return strlen(dot);
    return 0;
}
