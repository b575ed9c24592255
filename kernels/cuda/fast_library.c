// fast_library.c: products of fast mode that a library makes (lt.h): of many tokens, with weights as rows of bf16,
// which they are or are made by the kernels of dq.cuh, some rows at a time in scratch that all matrices share, or of
// activations and weights that are both e4m3, with a scale for a row of each. Owns library and scratch.
// What the library does not take, and few tokens, the kernels of default mode do.
#include "kernels/cuda/dq.h"
#include "kernels/cuda/fast.h"
#include "kernels/cuda/lt.h"
#include "kernels/cuda/w4s_pick.h"
#include <stdlib.h>

struct lq_library {
    lq_lt *lt;
    void *rows; // SCRATCH bytes
};
enum { SCRATCH = 32 << 20, SCRATCH_ROWS = SCRATCH / 2, FEW = 8, FEW_SCALED = 64 };

#define DECLARED(name, kind, codes, bits) void name(void);
#define LISTED(name, kind, codes, bits) {name, kind, bits},
LQ_DQ_KERNELS(DECLARED)
LQ_DECLARED(lq_dq_f16)
LQ_DECLARED(lq_dq_scales)
LQ_DECLARED(lq_dq_bias)
static const struct { void (*entry)(void); int kind, bits; } kernels[] = {LQ_DQ_KERNELS(LISTED)};
enum { KERNELS = sizeof kernels / sizeof *kernels };

bool lq_fast_library_open(lq_dev *d, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    c->library = calloc(1, sizeof *c->library);
    if (!c->library) return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    for (int i = 0; i < KERNELS; i++)
        if (!lq_gpu_prepare(c->gpu, lq_entry(kernels[i].entry), (size_t)LQ_DQ_SHARED(kernels[i].bits), err))
            return false;
    if (!lq_gpu_prepare(c->gpu, lq_entry(lq_dq_f16), 0, err) ||
        !lq_gpu_prepare(c->gpu, lq_entry(lq_dq_scales), 0, err) ||
        !lq_gpu_prepare(c->gpu, lq_entry(lq_dq_bias), 0, err)) return false;
    return lq_gpu_alloc(c->gpu, SCRATCH, &c->library->rows, err) && lq_lt_open(c->gpu, &c->library->lt, err);
}

void lq_fast_library_close(lq_dev *d) {
    lq_cuda *c = lq_cuda_of(d);
    if (!c->library) return;
    lq_lt_close(c->library->lt);
    if (c->library->rows) lq_gpu_free(c->gpu, c->library->rows);
    free(c->library);
}

const char *lq_fast_library_name(const lq_dev *d) { return lq_lt_name(lq_cuda_of(d)->library->lt); }

// The tokens from which on the library is faster. Rows of bf16 are read as they are. What is made of codes is written
// and read again, which costs as much as some hundred tokens do, against kernels whose largest tile has 64 tokens or
// 32.
static int many(const lq_w4s_form *f, const lq_weight *w) {
    int tokens = 0;
    if (w->type.kind == LQ_W_PLAIN && w->type.elem == LQ_BF16) return FEW + 1;
    for (int i = 0; i < LQ_W4S_COUNT; i++) {
        const lq_w4s_kernel *of = &lq_w4s_kernels[i];
        if (of->kind == f->kind && of->bits == f->bits && of->group == f->group && of->tokens > tokens)
            tokens = of->tokens;
    }
    return 4 * tokens;
}

// Rows first .. of a weight to the scratch.
static void rows_make(lq_dev *d, const lq_weight *w, const lq_w4s_form *f, int first, int rows) {
    const lq_library *l = lq_cuda_of(d)->library;
    const int64_t k = w->k;
    if (f->kind == LQ_W4S_ROWS16) {
        const lq_dq_f16_args a = {(const uint16_t *)w->q + first * k, l->rows, rows * k};
        lq_fast_launch(d, lq_dq_f16, &a, sizeof a,
                       (lq_gpu_grid){.blocks = lq_dq_blocks(a.numbers), .threads = LQ_DQ_THREADS});
        return;
    }
    lq_dq_args a = {.w = {.w = w->q, .scale = w->scale, .zero = w->zero, .scale2 = w->scale2, .table = w->table,
                          .scale_type = f->scale},
                    .to = l->rows, .n = (int)w->n, .k = (int)k, .first = first, .rows = rows,
                    .share_shift = f->share_shift, .groups = f->groups, .narrow = f->narrow};
    lq_dq_grouped(&a, w->type.group);
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i].kind == f->kind && kernels[i].bits == f->bits)
            lq_fast_launch(d, kernels[i].entry, &a, sizeof a,
                           (lq_gpu_grid){.blocks = (unsigned)(rows + LQ_DQ_STRIPE - 1) / LQ_DQ_STRIPE,
                                         .rows = (unsigned)(k + LQ_DQ_COLUMNS - 1) / LQ_DQ_COLUMNS,
                                         .threads = LQ_DQ_THREADS, .shared = (size_t)LQ_DQ_SHARED(kernels[i].bits)});
}

// Whether y, and how the weight lies, are as the library is told that they are.
static bool lies(const lq_weight *w, const float *bias, const lq_mat *y) {
    const bool f32 = y->type == LQ_F32;
    return (f32 || y->type == LQ_BF16) && y->stride % (f32 ? 4 : 8) == 0 && lq_aligned(y->p, 16) &&
           w->k % 8 == 0 && w->n % 8 == 0 && !w->outliers && lq_aligned(w->q, 16) && lq_aligned(bias, 16);
}

static bool fits(const lq_act *x, const lq_weight *w) {
    return x->type.elem == LQ_F32 && x->x.type == LQ_BF16 && x->x.stride % 8 == 0 && lq_aligned(x->x.p, 16) &&
           w->k <= SCRATCH_ROWS / LQ_DQ_STRIPE && lq_aligned(w->scale, 4) && lq_aligned(w->zero, 2);
}

// Both in e4m3, and one scale for a row of each.
static bool fits_scaled(const lq_act *x, const lq_weight *w) {
    return x->type.elem == LQ_E4M3 && !x->type.group && x->x.type == LQ_BF16 && lq_aligned(x->q, 16) &&
           x->q_row % 16 == 0 && w->type.kind == LQ_W_FLOAT && w->type.elem == LQ_E4M3 && !w->type.group &&
           w->layout == LQ_ANY && w->k % 16 == 0 && w->n <= SCRATCH / 4 && lq_aligned(w->scale, 4);
}

static void add_bias(lq_dev *d, int rows, int n, const float *bias, const lq_mat *y) {
    const lq_dq_bias_args b = {y->p, bias, (int64_t)y->stride, rows, n, y->type == LQ_F32};
    if (bias) lq_fast_launch(d, lq_dq_bias, &b, sizeof b,
                             (lq_gpu_grid){.blocks = lq_dq_blocks((int64_t)b.m * b.n), .threads = LQ_DQ_THREADS});
}

static bool multiply_scaled(lq_dev *d, const lq_act *x, const lq_weight *w, const float *bias, const lq_mat *y) {
    const lq_cuda *c = lq_cuda_of(d);
    const bool own = w->type.scale == LQ_F32 && w->type.rows <= 1 && w->scale;
    const lq_dq_scales_args scales = {*w, c->library->rows};
    const lq_lt_product p = {.x = x->q, .w = w->q, .x_scale = x->scale, .w_scale = own ? w->scale : scales.to,
                             .m = x->x.rows, .n = (int)w->n, .k = (int)w->k, .x_stride = x->q_row,
                             .w_stride = (size_t)w->k, .f32 = y->type == LQ_F32, .y_stride = y->stride, .y = y->p};
    if (!own) lq_fast_launch(d, lq_dq_scales, &scales, sizeof scales,
                             (lq_gpu_grid){.blocks = (unsigned)(w->n + LQ_DQ_THREADS - 1) / LQ_DQ_THREADS,
                                           .threads = LQ_DQ_THREADS});
    if (!lq_lt_multiply(c->library->lt, &p, c->recording)) return false;
    add_bias(d, p.m, p.n, bias, y);
    return true;
}

bool lq_fast_library(lq_dev *d, const lq_act *x, const lq_weight *w, const float *bias, const lq_mat *y) {
    const lq_cuda *c = lq_cuda_of(d);
    lq_w4s_form f;
    if (!c->library || !lies(w, bias, y)) return false;
    if (fits_scaled(x, w))
        return c->capability >= 89 && x->x.rows > FEW_SCALED && multiply_scaled(d, x, w, bias, y);
    if (!fits(x, w) || !lq_w4s_fits(&w->type, w->layout, w->n, w->k, &f) ||
        x->x.rows < many(&f, w)) return false;
    const bool made = w->type.kind != LQ_W_PLAIN || w->type.elem != LQ_BF16, f32 = y->type == LQ_F32;
    const int64_t stripes = lq_w4s_stripes((int)w->n), most = made ? SCRATCH_ROWS / LQ_DQ_STRIPE / w->k : stripes;
    const int64_t slices = (stripes + most - 1) / most, each = (stripes + slices - 1) / slices * LQ_DQ_STRIPE;
    for (int64_t first = 0; first < w->n; first += each) {
        const int64_t rows = w->n - first < each ? w->n - first : each;
        const lq_lt_product p = {.x = x->x.p, .w = made ? c->library->rows : w->q, .m = x->x.rows, .n = (int)rows,
                                 .k = (int)w->k, .x_stride = x->x.stride, .w_stride = (size_t)w->k, .f32 = f32,
                                 .y_stride = y->stride, .y = (char *)y->p + (size_t)first * (f32 ? 4 : 2)};
        if (made) rows_make(d, w, &f, (int)first, (int)rows);
        if (!lq_lt_multiply(c->library->lt, &p, c->recording)) return false;
    }
    add_bias(d, x->x.rows, (int)w->n, bias, y);
    return true;
}
