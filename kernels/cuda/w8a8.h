// w8a8.h: products of activations of 8 bits with weights of 8 bits, as the host and the kernels see them: arguments,
// the shape of a kernel's work, shared memory. Plain C. Which kernel takes what is in w8a8_pick.h; weights are rows as
// they are (layout any), activations what the slot `quant` made (acts.h).
#ifndef LQ_W8A8_H
#define LQ_W8A8_H
#include "kernels/ops.h"

enum { LQ_W8A8_STEP = 128 }; // columns between two barriers

// Of a kernel for so many tokens: warps side by side in rows of weights and in tokens; rows of weights that a block of
// threads makes; stages of its ring, and bytes of one; all of its shared memory, with the rows of x of its tokens.
#define LQ_W8A8_DOWN(tokens) ((tokens) <= 16 ? 2 : 4)
#define LQ_W8A8_ACROSS(tokens) ((tokens) == 128 ? 2 : 1)
#define LQ_W8A8_THREADS(tokens) (32 * LQ_W8A8_DOWN(tokens) * LQ_W8A8_ACROSS(tokens))
#define LQ_W8A8_ROWS(tokens) ((tokens) <= 16 ? 32 : (tokens) == 32 ? 64 : 128)
#define LQ_W8A8_STAGES(tokens) ((tokens) == 8 ? 7 : (tokens) == 16 ? 6 : (tokens) == 32 ? 4 : 3)
#define LQ_W8A8_STAGE(tokens) ((LQ_W8A8_ROWS(tokens) + (tokens)) * LQ_W8A8_STEP)
#define LQ_W8A8_SHARED(tokens) (LQ_W8A8_STAGES(tokens) * LQ_W8A8_STAGE(tokens) + 4 * (tokens))

// One of the matrices that read x, and where its product goes.
typedef struct lq_w8a8_one {
    lq_weight w;
    const float *bias;
    const lq_weight *experts;   // [count] on the device, or NULL
    const float *const *biases; // [count] on the device, or NULL
    lq_mat y;
    int n;
    int first;                  // its first block of rows in the grid
} lq_w8a8_one;

// y[row] = x[row] w^T + bias, of up to LQ_MATS matrices of one form. With `order` or several experts the rows of
// y are slots: expert e has the slots order[start[e]] .. order[start[e + 1] - 1], without an order slot s is of s %
// count; x has a row for each top_k of them.
typedef struct lq_w8a8_args {
    lq_w8a8_one of[LQ_MATS];
    const int32_t *order, *start;
    lq_act x;
    int joined, m, k;
    int count, top_k;
    int cell;        // columns within which no scale changes: all of them, or a power of two
    int group_shift; // so many doublings of it is a group of the weights; 31: a row has one
    int share_shift; // 1 << share_shift rows share a scale; 31: all
    int groups;      // of a row
} lq_w8a8_args;

// The kernels: name, what codes are in w8a8.cuh, kind, columns after which scales may change (0: never), tokens, blocks
// on a multiprocessor. Of one kind and group all numbers of tokens have the same bits. APART: columns that are kept
// apart of any weights; their product is added to what y holds.
enum { LQ_W8A8_INTS, LQ_W8A8_FLOATS, LQ_W8A8_APART };
#define LQ_W8A8_KERNELS(K)                                         \
    K(lq_w8a8_i8_t8, ints, LQ_W8A8_INTS, 0, 8, 4)                  \
    K(lq_w8a8_i8_t16, ints, LQ_W8A8_INTS, 0, 16, 4)                \
    K(lq_w8a8_i8_t32, ints, LQ_W8A8_INTS, 0, 32, 3)                \
    K(lq_w8a8_i8_t64, ints, LQ_W8A8_INTS, 0, 64, 2)                \
    K(lq_w8a8_i8_t128, ints, LQ_W8A8_INTS, 0, 128, 1)              \
    K(lq_w8a8_i8_g32_t8, ints, LQ_W8A8_INTS, 32, 8, 4)             \
    K(lq_w8a8_i8_g32_t32, ints, LQ_W8A8_INTS, 32, 32, 3)           \
    K(lq_w8a8_i8_g128_t8, ints, LQ_W8A8_INTS, 128, 8, 4)           \
    K(lq_w8a8_i8_g128_t32, ints, LQ_W8A8_INTS, 128, 32, 3)         \
    K(lq_w8a8_i8_g128_t64, ints, LQ_W8A8_INTS, 128, 64, 2)         \
    K(lq_w8a8_f8_t8, floats, LQ_W8A8_FLOATS, 0, 8, 4)              \
    K(lq_w8a8_f8_t16, floats, LQ_W8A8_FLOATS, 0, 16, 4)            \
    K(lq_w8a8_f8_t32, floats, LQ_W8A8_FLOATS, 0, 32, 3)            \
    K(lq_w8a8_f8_t64, floats, LQ_W8A8_FLOATS, 0, 64, 2)            \
    K(lq_w8a8_f8_g128_t8, floats, LQ_W8A8_FLOATS, 128, 8, 4)       \
    K(lq_w8a8_f8_g128_t32, floats, LQ_W8A8_FLOATS, 128, 32, 3)     \
    K(lq_w8a8_f8_g128_t64, floats, LQ_W8A8_FLOATS, 128, 64, 2)     \
    K(lq_w8a8_apart_t8, halves, LQ_W8A8_APART, 0, 8, 4)            \
    K(lq_w8a8_apart_t64, halves, LQ_W8A8_APART, 0, 64, 2)
#endif
