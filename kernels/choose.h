// choose.h: the slot choose on any device: how its scratch is divided, and what its parts are called. Pointers are as
// the arguments have them.
#ifndef LQ_CHOOSE_H
#define LQ_CHOOSE_H
#include "kernels/ops.h"

// What a rounding made of the rows, in order: scales of bands.
typedef struct lq_coded { uint8_t *q, *scale, *zero; } lq_coded;

typedef struct lq_choosing {
    lq_choose_args a;
    int64_t n, k, groups, group;         // columns that share a scale: of a row that has one all
    int64_t band, bands;                 // rows that share scales: those are found once, for both roundings
    size_t q_row, scale_row, zero_row;   // bytes
    float *w, *work, *back, *y;          // [n][k] in order: as wanted, spoilt and differences, as rounded, products
    float *by;                           // [n][groups] scale_by in order; NULL: it has none, or it is that
    lq_coded plain, spread;
    double *figure;                      // [3][n] of a rounding
    double *lane;                        // [n][2][LQ_CHOOSE_LANES] sums so far
    int32_t *place;                      // [k] where in the order a column is
    uint8_t *apart;                      // [k] whether it is kept apart
    int64_t *bad;                        // [LQ_CHOOSE_ROUNDS][2] of each call of round
    bool *wide;                          // [LQ_CHOOSE_ROUNDS]
} lq_choosing;
enum { LQ_CHOOSE_LANES = 8, LQ_CHOOSE_ROUNDS = 3 };

// Divides the scratch at `base` (NULL: it is measured). Returns its bytes.
size_t lq_choose_lay(const lq_choose_args *a, char *base, lq_choosing *out);

// Rows [n][k] of the scratch.
lq_mat lq_choose_mat(const lq_choosing *c, float *p);
// Where a call of round leaves its result: codes (NULL: scales alone), and figures of its own.
void lq_choose_to(const lq_choosing *c, const lq_coded *to, lq_round_args *r);
// What a call of refine has for the codes: the slope is y.
void lq_choose_swept(const lq_choosing *c, const lq_coded *codes, lq_round_args *r);

// Whether a row has the codes with errors spread.
LQ_FN bool lq_choose_spread(const lq_choosing *c, int64_t row) { return c->a.a.u && c->a.loss[row] < c->a.plain[row]; }

// Which group of scale_by, or of what is stored, group g of the order is: it stands where its first column does.
LQ_FN int64_t lq_choose_group(const lq_choosing *c, int64_t g) {
    return c->a.order && c->a.stays ? c->a.order[g * c->group] / c->group : g;
}
#endif
