// layout.h: where the codes, scales and zero points of a coded weight lie in each layout (docs/FORMAT.md, sections 5
// and 6). One place that knows: lq_pack, rows that are picked out, sums of codes and sizes go through it. Pure
// functions.
//
// Codes come and go as pieces: LQ_PIECE columns of rows r and r + 8, which the layout cuda has in one word.
#ifndef LQ_LAYOUT_H
#define LQ_LAYOUT_H
#include "formats/block.h"

enum { LQ_BAND = 16, LQ_CUDA_ROWS = 64, LQ_PIECE = 128 };
typedef uint8_t lq_piece[2][LQ_PIECE]; // a code per byte

// A matrix of this type, n and k in a layout that has a form for it.
typedef struct lq_laid {
    lq_layout layout;
    int bits, rows;                           // of the type; rows is never 0
    int way;                                  // from any to x86: 0, this machine's best, or which of lq_turn_ways()
    int64_t n, k, wide, groups;               // wide: k with its padding
    size_t row_bytes, zero_bytes, scale_size; // of a row in layout any; of one scale
} lq_laid;
lq_laid lq_laid_of(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k);

int64_t lq_laid_wide(lq_layout layout, const lq_wtype *t, int64_t k);
int64_t lq_laid_rows(lq_layout layout, int64_t n); // n with its padding

// Rows `row` and row + 8 (row % 16 < 8) from column `first` on, a multiple of LQ_PIECE. Of what is behind the matrix
// nothing is promised when read; it is written as the piece has it where the layout has room for it, and as 0 in any.
void lq_codes_get(const lq_laid *l, const void *q, int64_t row, int64_t first, lq_piece out);
void lq_codes_put(const lq_laid *l, void *q, int64_t row, int64_t first, lq_piece in);
// `count` codes of a row of layout x86 from a column on that is a multiple of 32 (bits 4: 8, 8: 4), whose first word is
// at src; whole words are written, so up to a multiple of that.
void lq_x86_get(const uint8_t *src, int bits, int64_t count, uint8_t *dst);
// Tiles of layout x86 whose codes all mean 0, without zero points.
void lq_x86_fill(void *q, size_t bytes, int bits);
size_t lq_laid_scale(const lq_laid *l, int64_t row, int64_t group); // which of the scales, as they lie
uint8_t lq_zero_get(const lq_laid *l, const uint8_t *zero, int64_t row, int64_t group);

typedef struct lq_weight_out { void *q, *scale, *zero; } lq_weight_out; // buffers of lq_layout_sizes, zero may be NULL

// The LQ_BAND rows `band` become rows 16 * at .. of `to`, padding included. Scales that several rows of `to` share are
// left alone, and weights without scales (bytes) have none.
void lq_band_pack(const lq_weight *w, int64_t band, const lq_laid *to, lq_weight_out dst, int64_t at);
// From any to x86 there are ways of several instruction sets, with equal bytes; so many this machine has, best last.
int lq_turn_ways(void);
#endif
