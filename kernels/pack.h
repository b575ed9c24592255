// pack.h: weights between layouts. Pure functions.
//
// A layout is a permutation of codes: packing and unpacking are exact inverses (tests/unit/test_pack.c).
// formats/layout.h says where things lie, docs/KERNELS.md draws each layout.
#ifndef LQ_PACK_H
#define LQ_PACK_H
#include "formats/layout.h"
#include "kernels/pool.h"

enum {
    LQ_X86_ROWS = 16,       // rows of a tile of LQ_X86; n is padded to that
    LQ_ROW_GROUP = 128,     // activations' group where a weight's row has one scale; LQ_X86 pads k to whole groups
    LQ_GROUP_MAX = 32768    // sums over larger groups would not fit int32
};
// LQ_X86's unit of k: the activations' group.
static inline int lq_x86_group(const lq_wtype *t) { return t->group ? t->group : LQ_ROW_GROUP; }

// Bytes of a row of numbers (f32, f16, bf16, 8-bit floats) in layout x86, which has them in memory alone.
size_t lq_x86_row(const lq_wtype *t, int64_t k);

// Whether weights of this type have a form in this layout; if not they stay LQ_ANY on that device.
bool lq_pack_has(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k);
// Bytes of each part in a layout.
bool lq_pack_sizes(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out);

// From any layout to any other. The pool may be NULL.
void lq_pack(const lq_weight *src, lq_layout to, lq_weight_out dst, lq_pool *pool);

// One row, dequantized, whatever the layout: the meaning of a weight. (q - z) * s in f32, logical column order, outlier
// columns (which are stored ones) from outlier_w.
void lq_weight_row(const lq_weight *w, int64_t row, float *dst /* [k] */);

// sum[n] of the codes of a row less their zero points, of LQ_W_INT: what lq_weight.code_sum holds.
void lq_code_sums(const lq_weight *w, int32_t *sum);
#endif
