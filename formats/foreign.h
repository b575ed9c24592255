// foreign.h: coded weights of other people's safetensors: what one is made of, and how its codes lie. foreign.c finds
// them by the names of their tensors and says what type they are, unpack.c turns rows of them into layout any.
// Inside formats/ only.
#ifndef LQ_FOREIGN_H
#define LQ_FOREIGN_H
#include "formats/ckpt.h"

typedef enum lq_foreign_part {
    LQ_F_CODES, LQ_F_SCALE, LQ_F_ZERO,
    LQ_F_ORDER,            // the group of each column
    LQ_F_SHAPE,
    LQ_F_GLOBAL,           // what all scales are divided by
    LQ_F_TABLE,
    LQ_F_OUTER, LQ_F_OUTER_TABLE, // of scales that are codes themselves: their scales, their table
    LQ_F_STATE,            // JSON
    LQ_F_PARTS
} lq_foreign_part;

typedef enum lq_lie {      // codes of a matrix [n][k], and with them its scales and zero points
    LQ_LIE_OURS,           // as in layout any: bound where they lie, at whatever address
    LQ_LIE_ROWS,           // [n][words], dense; scales [n][groups], zero points [words][groups], dense along n
    LQ_LIE_DOWN,           // [words][n], dense along k; scales [groups][n], zero points [groups][words]
    LQ_LIE_TURNS,          // [k][n / 8] words of 4 bits whose columns take turns; scales and zero points likewise
    LQ_LIE_WIDE,           // as ROWS; zero points [n][words], scales [n][8 * words]
    LQ_LIE_HALVES,         // one byte behind the other, the first code in the upper half
    LQ_LIE_SIGNS           // bytes, signed
} lq_lie;

typedef struct lq_foreign {
    const struct lq_form *form;
    const lq_tensor *part[LQ_F_PARTS]; // NULL: there is none
    lq_lie lie;
    bool less;             // zero points are stored as one less than they are, modulo 2^bits
    float offset;          // of scales that are codes: what is added to them
    int64_t outer;         // and how many of them share one of theirs
    float over;            // what scales are divided by; 0: nothing
} lq_foreign;

// What a config says of a whole checkpoint.
typedef struct lq_foreign_says {
    char method[32], form[64], version[32];
    bool asym;             // zero points are not all the same
    int64_t bits, group, block[2]; // 0: it does not say
} lq_foreign_says;

// Rows of a coded weight that does not lie as ours do, in layout any.
typedef struct lq_unpacked {
    uint8_t *q, *scale, *zero; // of lq_weight_sizes for n rows
    int rows;              // that share scales
    int32_t *perm;         // [k]; NULL: columns are in order
    float *table;          // [2^bits]; NULL: of a named codebook, or none
    float *scale2;         // [1] of scales in E4M3; of type.dq, where those codes stay, a number for each 256
    uint8_t *scale_code;   // and then what else belongs to them; NULL: only `scale` is wanted
    float *scale_map, *scale_offset;
} lq_unpacked;
const lq_foreign *lq_foreign_of(const lq_ckpt *c, const lq_typed *w); // NULL: it is a .lq file's
bool lq_unpack_perm(const lq_ckpt *c, const lq_typed *w);             // whether it has a perm
bool lq_unpack(const lq_ckpt *c, const lq_typed *w, const lq_pick *p, int64_t n, const lq_unpacked *out, lq_err *err);
#endif
