// block.h: what a number in a checkpoint is: element types, and a matrix whose elements are codes with scales.
// Everything here is a description of bytes that somebody else owns.
//
// lq_dtypes[] is one of the four tables of lq: to add an element type, add its name to
// lq_dtype and its row to dtypes.c.
#ifndef LQ_BLOCK_H
#define LQ_BLOCK_H
#include "formats/err.h"
#include "formats/fn.h"
#include <math.h>

typedef enum lq_dtype {
    LQ_F32, LQ_F16, LQ_BF16, LQ_F64, LQ_E4M3, LQ_E5M2, LQ_E8M0,
    LQ_I8, LQ_U8, LQ_I16, LQ_U16, LQ_I32, LQ_U32, LQ_I64, LQ_U64, LQ_BOOL,
    LQ_DTYPES
} lq_dtype;

typedef struct lq_dtype_row {
    const char *name;        // "bf16": what lq prints and reads
    const char *safetensors; // "BF16", or NULL where safetensors has no such type
    int bytes;               // of one element
    bool number;             // a float type, which a weight may have
    void (*to_f32)(const void *src, float *dst, size_t n);   // exact (F64: to the nearest), NaN stays NaN
    bool (*from_f32)(const float *src, void *dst, size_t n); // nearest even; false if a finite value became infinite
} lq_dtype_row;
extern const lq_dtype_row lq_dtypes[LQ_DTYPES];

lq_dtype lq_dtype_of(const char *name);             // by lq's name; LQ_DTYPES if there is none
lq_dtype lq_dtype_of_safetensors(const char *name); // by safetensors' name
size_t lq_dtype_size(lq_dtype t);                   // bytes of one element

static inline float lq_bf16_f32(uint16_t h) { union { uint32_t u; float f; } x = {(uint32_t)h << 16}; return x.f; }
uint16_t lq_f32_bf16(float f);
float lq_f16_f32(uint16_t h);
uint16_t lq_f32_f16(float f); // nearest even, overflow gives infinity

// How the elements of a weight matrix [n][k] are stored. A group is `group` consecutive k of one row (of `rows` rows).
typedef enum lq_wkind {
    LQ_W_PLAIN, // elements of type `elem`; no scale
    LQ_W_INT,   // w = (q - z) * s; symmetric: z = 2^(bits-1), not stored
    LQ_W_TABLE, // w = table[q] * s; the table is a row of lq_codebooks[], or the file's own
    LQ_W_FLOAT  // w = (float)elem * s: fp8 with scales
} lq_wkind;

// What the activations that meet a weight become. All zero: they stay as they are.
typedef struct lq_atype {
    lq_dtype elem; // F32: not rounded (f32 on a CPU, bf16 on CUDA); I8; E4M3
    int group;     // k that share a scale; 0: the whole row
    bool fixed;    // one scale (and zero point) for all, which the file has; else each row or group finds its own
    bool asym;     // I8: with a zero point
} lq_atype;

enum { LQ_ROWS_ALL = 0x7fffffff, LQ_DQ = 256 };
typedef struct lq_wtype {
    lq_wkind kind;
    lq_dtype elem;  // PLAIN and FLOAT: the element; else LQ_U8
    int bits;       // of one code (PLAIN: of one element)
    int group;      // k per scale, a multiple of 16; 0: the whole row has one
    int rows;       // rows per scale; 0 or 1: each row has its own; 128 for block fp8; LQ_ROWS_ALL: one for all rows
    bool asym;      // zero points are stored
    lq_dtype scale; // F16, F32 or BF16; of TABLE and FLOAT also E8M0, or E4M3 times `scale2` of the whole matrix
    bool dq;        // F32 that files have as codes of 8 bits, LQ_DQ of which share a scale of their own: "dq256"
    int book;       // TABLE: 1 + the row of lq_codebooks[]; 0: the file has the table
    lq_atype act;   // not zero: this form of the activations belongs to the format, in every mode; zero: the device's
} lq_wtype;

// Tables that have a name, by which a type is spelt: "fp4 g64 f16". A name never changes its values (codebooks.c).
typedef struct lq_codebook {
    const char *name;
    int bits;
    const float *value; // [2^bits] of each code
    const int8_t *whole; // [2^bits] the same in units of `unit`, rounded: what products of integers multiply by
    int most;            // the largest of these, and the least without its sign
    float unit;
} lq_codebook;
extern const lq_codebook lq_codebooks[];
extern const int lq_codebook_count;
int lq_codebook_of(const char *name);              // what lq_wtype.book is then; 0: there is none of this name
const lq_codebook *lq_wtype_book(const lq_wtype *t);
const float *lq_wtype_table(const lq_wtype *t);    // [2^bits]; NULL, both: not of a named codebook

// Where the codes of a matrix lie. LQ_ANY is the file's neutral layout, the others belong to devices (docs/FORMAT.md).
typedef enum lq_layout { LQ_ANY, LQ_X86, LQ_CUDA, LQ_LAYOUTS } lq_layout;
extern const char *const lq_layout_names[LQ_LAYOUTS];

enum { LQ_OUTLIERS = 65536 };

// A weight matrix y = x W^T, borrowed. Parts a type does not have are NULL.
//   any: q     plain and float: [n][k] elements; int and table: [n][row bytes], k consecutive, dense, LSB first, rows
//              padded to 4 bytes
//        scale [n][groups] of type.scale (type.rows > 1: [ceil(n/rows)][groups])
//        zero  [n][row bytes of groups], packed like codes
typedef struct lq_weight {
    lq_wtype type;
    lq_layout layout;
    int64_t n, k;
    const void *q;
    const void *scale;
    const uint8_t *zero;
    const float *scale2;        // [1] of type.scale E4M3: every scale is times it, rounded to f32
                                // type.dq: [scales / 256], and scale i, in the order of `scale`, is in f32
    const uint8_t *scale_code;  //   scale_map[scale_code[i]] * scale2[i / 256] + *scale_offset
    const float *scale_map, *scale_offset; // [256], [1]; NULL, all four, where `scale` stands for itself
    const int32_t *perm;        // [k] stored column j is logical column perm[j]
    const float *smooth;        // [k] x is multiplied by this before it is used
    const float *table;         // [2^bits] of LQ_W_TABLE
    const int32_t *outlier;     // [outliers] stored columns kept apart; their codes stand for 0
    const uint16_t *outlier_w;  // [n][outliers] bf16
    int32_t outliers;           // at most LQ_OUTLIERS
    const float *act_scale;     // [1] of type.act.fixed
    const int32_t *act_zero;    // [1] of type.act.fixed and .asym
    const int32_t *code_sum;    // [n] sums of a row's codes less z, made where a model binds; type.act.asym
} lq_weight;

LQ_FN int64_t lq_weight_groups(const lq_wtype *t, int64_t k) {
    return t->group ? (k + t->group - 1) / t->group : 1;
}

LQ_FN size_t lq_code_row_bytes(int bits, int64_t k) { return (size_t)((k * bits + 31) / 32) * 4; }

// Bytes of each part in layout any; false if they do not fit a size_t.
typedef struct lq_weight_size { size_t q, scale, zero; } lq_weight_size;
bool lq_weight_sizes(const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out);
// Bytes of each part in any layout; false also where the layout has no form for the type: such a weight stays LQ_ANY.
bool lq_layout_sizes(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out);
// The layout that a coded weight of a file has: the file's where the type has a form in it, else any.
lq_layout lq_layout_in(lq_layout file, const lq_wtype *t, int64_t n, int64_t k);
// One row in layout any, dequantized: (q - z) * s in f32, in logical column order, outliers put in, `smooth` left out.
void lq_weight_row_any(const lq_weight *w, int64_t row, float *dst /* [k] */);
// Code i of a dense packed row of codes of so many bits.
LQ_FN uint32_t lq_code_get(const uint8_t *row, int bits, int64_t i) {
    int64_t at = i * bits;
    int shift = (int)(at & 7);
    uint32_t v = row[at >> 3];
    if (shift + bits > 8) v |= (uint32_t)row[(at >> 3) + 1] << 8;
    return v >> shift & ((1u << bits) - 1);
}

LQ_FN void lq_code_set(uint8_t *row, int bits, int64_t i, uint32_t q) {
    int64_t at = i * bits;
    int shift = (int)(at & 7);
    uint32_t mask = ((1u << bits) - 1) << shift, v = q << shift & mask;
    uint8_t *p = row + (at >> 3);
    p[0] = (uint8_t)((p[0] & ~mask) | v);
    if (shift + bits > 8) p[1] = (uint8_t)((p[1] & ~(mask >> 8)) | v >> 8);
}

float lq_scale_get(const lq_weight *w, size_t i); // the i-th of its scales as they lie
// What a code of a scale stands for, and the code of what is nearest to s of all that a map, which does not fall, has:
// of two the smaller, of equal ones the first.
LQ_FN float lq_scale_value(const float *map /* [256] */, uint8_t code, float by, float offset) {
    const float product = map[code] * by;
    return product + offset;
}

LQ_FN uint8_t lq_scale_code(const float *map /* [256] */, float by, float offset, float s) {
    int lo = 0, hi = 255; // the first that is not below s, or the last
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (lq_scale_value(map, (uint8_t)mid, by, offset) < s) lo = mid + 1;
        else hi = mid;
    }
    const double above = (double)lq_scale_value(map, (uint8_t)lo, by, offset) - (double)s;
    if (lo && (double)s - (double)lq_scale_value(map, (uint8_t)(lo - 1), by, offset) <= fabs(above)) lo--;
    const float is = lq_scale_value(map, (uint8_t)lo, by, offset);
    while (lo && lq_scale_value(map, (uint8_t)(lo - 1), by, offset) == is) lo--;
    return (uint8_t)lo;
}

size_t lq_scale_count(const lq_wtype *t, int64_t n, int64_t k); // in layout any; of a size that lq_weight_sizes takes
static inline size_t lq_scale_blocks(size_t scales) { return (scales - 1) / LQ_DQ + 1; } // that share one, of type.dq

// "bf16", "int4 g128 sym f16", "int8 row sym f16", "fp4 g64 f16", "e4m3 g128 r128 f32", "int8 row sym f32 act i8 row":
// the text form used in files, reports and on the command line. The parser takes shorthand too: "int4" (g128 sym f16),
// "int4 g32 asym", "int8" (row sym f16), "int8 act i8" (each row of activations its scale), "nf4" (g64 f16), "nf4
// dq256" (nf4 g64 dq256), "mxfp4" (fp4 g32 e8m0), "nvfp4" (fp4 g16 e4m3).
enum { LQ_WTYPE_TEXT = 64 }; // the longest is shorter
void lq_wtype_name(const lq_wtype *t, char *buf, size_t size);
bool lq_wtype_parse(const char *text, lq_wtype *out, lq_err *err);
bool lq_wtype_equal(const lq_wtype *a, const lq_wtype *b);
double lq_wtype_bits(const lq_wtype *t, int64_t k); // bits per weight with scales and zeros
#endif
