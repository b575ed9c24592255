// codebooks.c: lq_codebooks[]: the tables of values that have a name. A type that says the name needs no table in
// the file, and what a name means never changes: another table is another row. To add one: its values and its row
// here, its line in docs/FORMAT.md, and its values again in tests/unit/test_formats.c and
// tests/golden/rtn_reference.py, from where they come.
#include "formats/block.h"
#include <string.h>

#define VALUES static const _Alignas(64) float
#define WHOLE static const _Alignas(16) int8_t

// Four bits of a float: sign, two of exponent, one of mantissa (e2m1), as they are, so that
// codes of mxfp4 and nvfp4 are these.
VALUES fp4[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// In halves they are whole.
WHOLE fp4_halves[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// NormalFloat of QLoRA, as bitsandbytes has it: quantiles of a normal distribution over the
// largest, 7 below 0 and 8 above.
VALUES nf4[16] = {-1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
                  -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
                  0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                  0.7229568362236023f, 1};

// Of the units that make them whole numbers of 8 bits, the one that costs the weights of a normal distribution least:
// 0.5 % of what they typically are, where nf4 itself has cost them 9 %.
#define NF4_UNIT (1.0f / 124.12f)
WHOLE nf4_whole[16] = {-124, -86, -65, -49, -35, -23, -11, 0, 10, 20, 31, 42, 55, 70, 90, 124};

const lq_codebook lq_codebooks[] = {
    {"fp4", 4, fp4, fp4_halves, 12, 0.5f},
    {"nf4", 4, nf4, nf4_whole, 124, NF4_UNIT},
};
const int lq_codebook_count = (int)(sizeof lq_codebooks / sizeof *lq_codebooks);

int lq_codebook_of(const char *name) {
    for (int i = 0; i < lq_codebook_count; i++)
        if (!strcmp(lq_codebooks[i].name, name)) return i + 1;
    return 0;
}

const lq_codebook *lq_wtype_book(const lq_wtype *t) {
    return t->kind == LQ_W_TABLE && t->book ? &lq_codebooks[t->book - 1] : NULL;
}

const float *lq_wtype_table(const lq_wtype *t) {
    const lq_codebook *b = lq_wtype_book(t);
    return b ? b->value : NULL;
}
