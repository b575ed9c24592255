// ukr.h: the micro-kernels of a CPU: the inner loops of matmul, one row of lq_ukrs[] each. The
// loops around them are matmul.c's.
//
// To add one: write its file, add its row to ukr.c. checkkern tests it and times it because it is in the table.
#ifndef LQ_UKR_H
#define LQ_UKR_H
#include "kernels/cpu/cpu.h"

// Rows of activations that a product of coded weights takes at once; batches of more than LQ_FEW_ROWS and (f16, bf16)
// LQ_RUN_ROWS rows widen each weight once instead.
enum { LQ_THIN_ROWS = 2, LQ_FEW_ROWS = 4, LQ_RUN_ROWS = 32 };

// f32 dot products are cut at multiples of this many k; the parts are added in index order.
enum { LQ_K_CUT = 1024 };

// k whose integer products are added exactly before a scale is applied: a cell of the activations, or where both have
// one scale for the row as many as int32 holds (255 * 127 each, 255 * 255 where both have zero points).
enum { LQ_I8_SPAN = 65536 };
static inline int64_t lq_i8_span(const lq_weight *w, const lq_act *a) {
    if (w->type.group || a->type.group) return (int64_t)a->q_row;
    return a->zero ? LQ_I8_SPAN / 2 : LQ_I8_SPAN;
}

// Weight rows of a tile of lq_rows_*any_*: a cut of them as f32 stays in the first cache. Of rows of f16 and bf16:
// those of the kernels beside which they stand.
enum { LQ_ANY_ROWS = 8, LQ_HALF_ROWS = 4 };

// k within which no scale that is no shift changes of 8-bit floats x bf16 activations, or E4M3 ones held so.
static inline int64_t lq_fp8_cell(const lq_weight *w, const lq_act *a) {
    if (a->type.elem == LQ_E4M3) return (int64_t)a->q_group;
    return w->type.kind == LQ_W_FLOAT && w->type.group && !lq_fp8_shifts(&w->type) ? w->type.group : w->k;
}

// k of a part of K that 8-bit floats become bf16 for.
enum { LQ_FP8_CUT = 1024 };

// The scale of column k of a row, in layout any or x86.
float lq_ukr_scale(const lq_weight *w, int64_t row, int64_t k);

// What the elements of `rows` weight rows from n on, without scales (bf16: but shifts), came to over a part of K from
// k0 on is added to y: y = y + sum * (wscale * ascale), multiply and add apart. sum [m1 - m0][lds], at most 64 rows.
void lq_ukr_scaled(const lq_weight *w, const lq_act *a, int64_t n, int rows, int64_t k0, int64_t cell, int m0, int m1,
                   const float *sum, size_t lds, float *y, size_t ldy);

// y[m][n] = sum over k of a[m][k] w[n][k] for rows m0..m1 and the weight rows of tiles t0..t1; with a->more (rows of
// layout x86 and f32 ones): the sum goes on from y. y has ldy floats from row to row and starts at row 0, column 0 of
// the whole result; columns behind w->n are not written.
typedef void lq_ukr_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                        size_t ldy);
// The same for LQ_MANY_ROWS rows of activations and more, in LQ_MANY_BYTES of scratch that begin at a line of 64 bytes.
// A turn is tiles that share what the kernel makes of activations, where its row says so.
enum { LQ_MANY_ROWS = 16, LQ_MANY_TURN = 16 /* tiles */, LQ_MANY_BYTES = 536 * 1024 };
typedef void lq_ukr_many(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                         size_t ldy, void *scratch);
// Tile t, columns k0..k1 (stored order, k1 <= k0 + LQ_K_CUT, both multiples of 16 or the end), dequantized to
// dst[tile_n][row]: exactly lq_weight_row's numbers. Rows behind w->n are not written.
typedef void lq_ukr_rows(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row);

// Tile t, columns k0..k1, of 8-bit floats as bf16, which each of them is, without scales but shifts:
// dst[tile_n][k1 - k0].
typedef void lq_ukr_halves(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, uint16_t *dst);

// Columns k0..k1 of a tile of LQ_X86_ROWS rows of int codes, or of a codebook's whole numbers, as int8 of layout x86,
// with scales in f32 and zero points; `group` 0: whole rows have one scale. Columns are padded to whole units; k0
// stands at one. code_sum [span][row]: sums of the codes less their zero points over each `span` columns, for
// activations with a zero point; else NULL.
typedef struct lq_ukr_tile {
    uint8_t *q, *zero;
    float *scale;
    int32_t *code_sum;
    int64_t k0, k1, unit, group, span;
} lq_ukr_tile;
typedef void lq_ukr_codes(const lq_weight *w, int64_t t, const lq_ukr_tile *to);

typedef struct lq_ukr {
    const char *name;
    unsigned needs;      // LQ_ISA_* bits
    unsigned unless;     // those with which a row of another layout is better
    lq_dtype act;
    lq_wkind kind;
    int bits;            // INT: of a code, 0: any
    lq_dtype elem;       // PLAIN and FLOAT: of an element
    bool any_kind;       // whatever has codes or elements: `rows` by lq_wkind at run time
    lq_layout layout;
    int tile_n;          // weight rows of a tile
    lq_ukr_run *run;     // either this,
    lq_ukr_many *many;   // (beside it, or NULL: the same bits for LQ_MANY_ROWS rows and more; alone: for all)
    bool turns;          // `many` goes by turns of LQ_MANY_TURN tiles
    lq_ukr_rows *rows;   // or this: then the f32 x f32 row does the rest,
    lq_ukr_halves *halves; // or this: then the bf16 x bf16 row does the rest,
    lq_ukr_codes *codes; // or this, of int8 activations: then the int8 row of layout x86 does the rest
    int few;             // `run` and `rows`: `run` for batches of up to so many rows
} lq_ukr;

extern const lq_ukr lq_ukrs[]; // the best of a kind first
extern const int lq_ukr_count;

// Whether a row computes this product; two rows with equal answers for every product are of one kind.
bool lq_ukr_fits(const lq_ukr *u, const lq_wtype *w, lq_layout layout, lq_dtype act);
// The rows of a device with these ISA bits: the first usable one of each kind, NULL ends.
void lq_ukr_choose(unsigned isa, const lq_ukr **out /* [lq_ukr_count + 1] */);
// NULL: none; then `can` has said so before a weight came here.
const lq_ukr *lq_ukr_find(const lq_dev *d, const lq_weight *w, lq_dtype act);

// The whole of matmul but bias for tiles of one matrix on the calling thread: what a task
// does. `scratch` has LQ_SHARE bytes.
void lq_ukr_tiles(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1,
                  int m0, int m1, float *y, size_t ldy, void *scratch);
#endif
