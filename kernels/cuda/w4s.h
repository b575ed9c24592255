// w4s.h: products of bf16 activations with packed weights, as the host and the kernels see them: arguments, the shape
// of a kernel's work, shared memory. Plain C. Which kernel takes what is in w4s_pick.h; weights are in layout cuda
// (docs/FORMAT.md, section 6.1) or, of 16 bits, rows as they are.
#ifndef LQ_W4S_H
#define LQ_W4S_H
#include <stddef.h>
#include <stdint.h>

enum {
    LQ_W4S_THREADS = 256,
    LQ_W4S_STRIPE = 64, // rows of weights that lie together
    LQ_W4S_STEP = 256   // columns between two barriers
};

// Of a kernel for codes of `bits`, scales for each `group` columns (0: none) and so many tokens: the rows of weights
// that a block of threads makes; stages of its ring, and bytes of one; groups whose scales it reads at a time, bytes of
// those; bytes of the sums of cuts that it has behind it, where registers do not hold them; all of its shared memory.
#define LQ_W4S_ROWS(bits, tokens) ((tokens) >= 32 && (bits) < 16 ? 128 : 64)
#define LQ_W4S_STAGES(bits, tokens) ((tokens) >= 32 || (bits) == 16 ? 2 : 3)
#define LQ_W4S_KEPT(bits, tokens) ((tokens) < 64 ? 0 : (tokens) * (LQ_W4S_ROWS(bits, tokens) + 4) * 4)
#define LQ_W4S_STAGE(bits, tokens) (LQ_W4S_ROWS(bits, tokens) * LQ_W4S_STEP / 8 * (bits) + (tokens) * LQ_W4S_STEP * 2)
#define LQ_W4S_GROUPS(group, bits, tokens) \
    ((group) == 0 ? 0 : (group) < 32 ? 16 : ((group) == 32 ? 16 : 8) * 64 / LQ_W4S_ROWS(bits, tokens))
#define LQ_W4S_PANEL(group, bits, tokens) (LQ_W4S_GROUPS(group, bits, tokens) * LQ_W4S_ROWS(bits, tokens) * 8)
// Bytes of sums of a half of a step, of all a block's tokens; cuts that a cluster's first block has room for beside its
// own, where its ring was.
#define LQ_W4S_HALF(bits, tokens) ((tokens) * (LQ_W4S_ROWS(bits, tokens) + 4) * 4)
#define LQ_W4S_MET(bits, tokens) \
    ((LQ_W4S_STAGES(bits, tokens) * LQ_W4S_STAGE(bits, tokens) - 2 * LQ_W4S_HALF(bits, tokens)) / \
     ((tokens) * LQ_W4S_ROWS(bits, tokens) * 4))
#define LQ_W4S_SHARED(group, bits, tokens) \
    (LQ_W4S_STAGES(bits, tokens) * LQ_W4S_STAGE(bits, tokens) + 2 * LQ_W4S_PANEL(group, bits, tokens) + \
     LQ_W4S_KEPT(bits, tokens))

typedef enum lq_w4s_scale {
    LQ_W4S_BF16, LQ_W4S_F16, LQ_W4S_F32, LQ_W4S_E8M0, LQ_W4S_E4M3 // E4M3: times *scale2
} lq_w4s_scale;

typedef struct lq_w4s_matrix {
    const void *w;
    const void *scale;    // in the order of layout cuda; shared by several rows: of layout any
    const void *zero;     // NULL: symmetric
    const float *bias;    // [n] from 8 bytes on, or NULL
    const float *scale2;  // [1]
    const float *table;   // [16] from 16 bytes on
    lq_w4s_scale scale_type;
} lq_w4s_matrix;

// One of the matrices that read x, and where its product goes.
typedef struct lq_w4s_one {
    lq_w4s_matrix matrix;
    const lq_w4s_matrix *experts; // [count] on the device, or NULL
    void *y;                      // [m][y_stride] of bf16 or f32; it begins at 4 or 8 bytes
    int64_t y_stride;
    int n, f32;                   // f32: y is of f32
    int cut;                      // columns of one cut, a multiple of LQ_W4S_STEP; at least k: one cut
    int side;                     // blocks that share a tile's cuts, all of them; 1: a block makes all
    int first;                    // its first block of rows in the grid
} lq_w4s_one;
enum { LQ_W4S_JOINED = 4 };

// y[row] = x[row] w^T, of up to LQ_W4S_JOINED matrices of one form. With `experts`, slot s of m has an expert: with
// `order` expert e has the slots order[start[e]] .. order[start[e + 1] - 1], else s % count. y has a row for each slot,
// x one for each top_k of them.
typedef struct lq_w4s_args {
    lq_w4s_one of[LQ_W4S_JOINED];
    const int32_t *order, *start;
    const uint16_t *x;            // [..][x_stride] of bf16; rows begin at 16 bytes
    float *parts;                 // where blocks share cuts: [tile][block of rows][cut][tokens][rows]
    uint32_t *arrived;            // [tile][block of rows], zero before and after
    int64_t x_stride;
    int joined, m, k;
    int side;                     // the largest of all
    int cluster;                  // blocks that share cuts are a cluster, of `side`: parts and arrived are not used
    int count, top_k;             // experts; slots that share a row of x, 1: none do
    int group_shift;              // so many doublings of the kernel's group is a group of the weights
    int share_shift, groups;      // 1 << share_shift rows share a scale, 0: none do; groups of a row
    int narrow;                   // of the formats of a kernel the narrower one: E5M2, of 16 bits F16
} lq_w4s_args;

// The kernels: name, kind of codes, their type in w4s_codes.cuh, bits, columns that share a scale, tokens, blocks on a
// multiprocessor. Of one kind and group all numbers of tokens have the same bits.
enum { LQ_W4S_INTS, LQ_W4S_SIXTEEN, LQ_W4S_FLOATS, LQ_W4S_ROWS16 };
#define LQ_W4S_PLANES(K, b)                                             \
    K(lq_w4s_int##b##_g32_t8, LQ_W4S_INTS, ints<b>, b, 32, 8, 2)        \
    K(lq_w4s_int##b##_g32_t32, LQ_W4S_INTS, ints<b>, b, 32, 32, 1)      \
    K(lq_w4s_int##b##_g128_t8, LQ_W4S_INTS, ints<b>, b, 128, 8, 2)      \
    K(lq_w4s_int##b##_g128_t32, LQ_W4S_INTS, ints<b>, b, 128, 32, 1)
#define LQ_W4S_KERNELS(K)                                               \
    K(lq_w4s_int4_g32_t8, LQ_W4S_INTS, ints<4>, 4, 32, 8, 2)            \
    K(lq_w4s_int4_g32_t16, LQ_W4S_INTS, ints<4>, 4, 32, 16, 2)          \
    K(lq_w4s_int4_g32_t32, LQ_W4S_INTS, ints<4>, 4, 32, 32, 1)          \
    K(lq_w4s_int4_g64_t8, LQ_W4S_INTS, ints<4>, 4, 64, 8, 2)            \
    K(lq_w4s_int4_g64_t16, LQ_W4S_INTS, ints<4>, 4, 64, 16, 2)          \
    K(lq_w4s_int4_g64_t32, LQ_W4S_INTS, ints<4>, 4, 64, 32, 1)          \
    K(lq_w4s_int4_g128_t8, LQ_W4S_INTS, ints<4>, 4, 128, 8, 3)          \
    K(lq_w4s_int4_g128_t16, LQ_W4S_INTS, ints<4>, 4, 128, 16, 2)        \
    K(lq_w4s_int4_g128_t32, LQ_W4S_INTS, ints<4>, 4, 128, 32, 1)        \
    K(lq_w4s_int4_g128_t64, LQ_W4S_INTS, ints<4>, 4, 128, 64, 1)        \
    K(lq_w4s_int8_g32_t8, LQ_W4S_INTS, ints<8>, 8, 32, 8, 2)            \
    K(lq_w4s_int8_g32_t32, LQ_W4S_INTS, ints<8>, 8, 32, 32, 1)          \
    K(lq_w4s_int8_g128_t8, LQ_W4S_INTS, ints<8>, 8, 128, 8, 2)          \
    K(lq_w4s_int8_g128_t16, LQ_W4S_INTS, ints<8>, 8, 128, 16, 2)        \
    K(lq_w4s_int8_g128_t32, LQ_W4S_INTS, ints<8>, 8, 128, 32, 1)        \
    K(lq_w4s_table_g16_t8, LQ_W4S_SIXTEEN, sixteen, 4, 16, 8, 2)        \
    K(lq_w4s_table_g16_t32, LQ_W4S_SIXTEEN, sixteen, 4, 16, 32, 1)      \
    K(lq_w4s_table_g32_t8, LQ_W4S_SIXTEEN, sixteen, 4, 32, 8, 2)        \
    K(lq_w4s_table_g32_t16, LQ_W4S_SIXTEEN, sixteen, 4, 32, 16, 2)      \
    K(lq_w4s_table_g32_t32, LQ_W4S_SIXTEEN, sixteen, 4, 32, 32, 1)      \
    K(lq_w4s_fp8_g32_t8, LQ_W4S_FLOATS, floats, 8, 32, 8, 2)            \
    K(lq_w4s_fp8_g32_t32, LQ_W4S_FLOATS, floats, 8, 32, 32, 1)          \
    K(lq_w4s_fp8_g128_t8, LQ_W4S_FLOATS, floats, 8, 128, 8, 2)          \
    K(lq_w4s_fp8_g128_t16, LQ_W4S_FLOATS, floats, 8, 128, 16, 2)        \
    K(lq_w4s_fp8_g128_t32, LQ_W4S_FLOATS, floats, 8, 128, 32, 1)        \
    K(lq_w4s_16_t8, LQ_W4S_ROWS16, rows16, 16, 0, 8, 2)                 \
    K(lq_w4s_16_t16, LQ_W4S_ROWS16, rows16, 16, 0, 16, 2)               \
    K(lq_w4s_16_t32, LQ_W4S_ROWS16, rows16, 16, 0, 32, 1)               \
    K(lq_w4s_16_t64, LQ_W4S_ROWS16, rows16, 16, 0, 64, 1)               \
    LQ_W4S_PLANES(K, 2) LQ_W4S_PLANES(K, 3) LQ_W4S_PLANES(K, 5) LQ_W4S_PLANES(K, 6)

static inline int lq_w4s_stripes(int n) { return (n + LQ_W4S_STRIPE - 1) / LQ_W4S_STRIPE; }
static inline int lq_w4s_cuts(int k, int cut) { return k <= cut ? 1 : (k + cut - 1) / cut; }

// Where k is cut: never by m, so that a row's bits do not depend on its batch. Multiples of 1024, until there are about
// two blocks for each of `sms` multiprocessors; `sms` is a constant of the architecture, not of the machine.
static inline int lq_w4s_cut(int n, int k, int sms) {
    const int most = (k + 1023) / 1024, want = (2 * sms + lq_w4s_stripes(n) - 1) / lq_w4s_stripes(n);
    const int cuts = want < most ? want : most;
    return (most + cuts - 1) / cuts * 1024;
}
#endif
