// fast.h: how kernels of simt.h are launched, and which slots they take in default mode (fast*.c).
// Each lq_fast_<slot> answers whether it did the work (false: the plain kernel must): by types, shapes, strides and
// alignment alone, never by the number of rows, so that a row's bits do not depend on its batch.
#ifndef LQ_FAST_H
#define LQ_FAST_H
#include "kernels/cuda/cuda.h"

// What the host launches a kernel by.
#define LQ_DECLARED(name) void name(void);
#define LQ_LISTED(name) name,
static inline const void *lq_entry(void (*kernel)(void)) { return (const void *)(uintptr_t)kernel; }
static inline bool lq_aligned(const void *p, size_t to) { return (uintptr_t)p % to == 0; }

static inline void lq_fast_launch(const lq_dev *d, void (*kernel)(void), const void *args, size_t bytes,
                                  lq_gpu_grid grid) {
    grid.simt = grid.early = true;
    lq_gpu_launch(lq_cuda_of(d)->gpu, lq_entry(kernel), args, bytes, grid);
}

bool lq_fast_open(lq_dev *d, int capability, lq_err *err); // fast.c
void lq_fast_close(lq_dev *d);

bool lq_fast_products_open(lq_dev *d, lq_err *err); // fast_products.c, with the workspace of products whose k is cut
// Matrices that read the same rows and may go in one launch: of few tokens all of a call.
static inline int lq_fast_joined(int tokens) { return tokens <= 64 ? LQ_MATS : 1; }
// How many matrices they took, from `first` on. Of a stack that is NULL there is one expert.
int lq_fast_matmul(lq_dev *d, const lq_matmul_args *a, int first);
int lq_fast_moe(lq_dev *d, const lq_moe_args *a, int first, const lq_cuda_stack *const *s /* [count] */);
bool lq_fast_stack(const lq_weight *w, const float *const *bias, int experts, lq_w4s_matrix *to);

// In fast mode: products of many tokens, by a library. A row's bits then depend on its batch.
bool lq_fast_library_open(lq_dev *d, lq_err *err); // fast_library.c; false: it is not there
void lq_fast_library_close(lq_dev *d);
const char *lq_fast_library_name(const lq_dev *d);
bool lq_fast_library(lq_dev *d, const lq_act *x, const lq_weight *w, const float *bias, const lq_mat *y);

bool lq_fast_w8a8_open(lq_dev *d, lq_err *err); // fast_w8a8.c; the products are asked for by those above
bool lq_fast_quant(lq_dev *d, const lq_quant_args *a);
int lq_fast_w8a8(lq_dev *d, const lq_matmul_args *a, int first);
int lq_fast_w8a8_moe(lq_dev *d, const lq_moe_args *a, int first, const lq_cuda_stack *const *s);
void lq_fast_apart(lq_dev *d, const lq_act *x, const lq_weight *w, const lq_mat *y); // y += their product
void lq_fast_apart_moe(lq_dev *d, const lq_moe_args *a, int i, const lq_cuda_stack *s);

bool lq_fast_attn_open(lq_dev *d, lq_err *err); // fast_attn.c
bool lq_fast_rope(lq_dev *d, const lq_rope_args *a);
bool lq_fast_kv_write(lq_dev *d, const lq_kv_write_args *a);
bool lq_fast_attn(lq_dev *d, const lq_attn_args *a);

bool lq_fast_state_open(lq_dev *d, lq_err *err); // fast_state.c
bool lq_fast_conv(lq_dev *d, const lq_conv_args *a);
bool lq_fast_scan(lq_dev *d, const lq_scan_args *a);

bool lq_fast_rows_open(lq_dev *d, lq_err *err); // fast_rows.c
bool lq_fast_norm(lq_dev *d, const lq_norm_args *a);
bool lq_fast_glu(lq_dev *d, const lq_glu_args *a);
bool lq_fast_add(lq_dev *d, const lq_add_args *a);
bool lq_fast_scale(lq_dev *d, const lq_scale_args *a);
bool lq_fast_mix(lq_dev *d, const lq_mix_args *a);
void lq_fast_embed(lq_dev *d, const lq_embed_args *a);
bool lq_fast_route(lq_dev *d, const lq_route_args *a);
#endif
