// parts.h: the parts that a coded weight has in a .lq file, each a tensor `<weight><suffix>` (docs/FORMAT.md,
// section 4). One table, which everybody walks who writes, reads, counts or names them; a new part is a row
// of it. Plain weights have none.
#ifndef LQ_PARTS_H
#define LQ_PARTS_H
#include "formats/block.h"

typedef enum lq_part_id { // in the order in which they are written
    LQ_PART_Q,
    LQ_PART_SCALE, LQ_PART_SCALE_CODE, // one or the other, and of one name
    LQ_PART_SCALE_MAP, LQ_PART_SCALE2, LQ_PART_SCALE_OFFSET,
    LQ_PART_ZERO, LQ_PART_TABLE, LQ_PART_ACT_SCALE, LQ_PART_ACT_ZERO,
    LQ_PART_PERM, LQ_PART_SMOOTH, LQ_PART_OUTLIER_COLS, LQ_PART_OUTLIER_W,
    LQ_PARTS
} lq_part_id;

typedef struct lq_part_form {
    lq_dtype type;
    int rank;
    int64_t shape[4]; // of a stack with its count in front
    size_t bytes;     // of one matrix: the distance from one to the next in a stack
} lq_part_form;

const char *lq_part_suffix(lq_part_id i);               // ".q"
bool lq_part_needed(lq_part_id i, const lq_wtype *t);   // a weight of this type has it
bool lq_part_may(lq_part_id i, const lq_wtype *t);      // has it or may have it
// The part of one matrix, or (count > 0) of `count` that lie one behind the other; only type, layout, n, k and outliers
// of `w` are read. False: this weight has no such part, or its size cannot be.
bool lq_part_of(lq_part_id i, const lq_weight *w, int64_t count, lq_part_form *out);
// Where it lies: the field of lq_weight that it is bound to.
const void *lq_part_get(lq_part_id i, const lq_weight *w);
void lq_part_set(lq_part_id i, lq_weight *w, const void *p);
// Length of the suffix that makes `name` the name of a part; 0: it has none. Whether there is
// such a weight is another question.
size_t lq_part_tail(const char *name);
#endif
