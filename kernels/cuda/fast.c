// fast.c: which slots the fast kernels take in default mode, and how they are launched. Each function answers whether
// it did the work: by types, shapes, strides and alignment alone, never by the number of rows, so that a row's bits do
// not depend on its batch. Owns the workspace of products whose k is cut, and that of attention.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/elem.h"
#include "kernels/cuda/kvw.h"
#include "kernels/cuda/pa.h"
#include "kernels/cuda/rmsn.h"
#include "kernels/cuda/rope.h"
#include "kernels/cuda/route.h"
#include "kernels/cuda/w4s.h"

// --- w4s: [group][scales in f16][zero points] ---

#define W4S_OF(X, name) X(name##_bf16) X(name##_bf16_zp) X(name##_f16) X(name##_f16_zp)
#define W4S(X) W4S_OF(X, lq_w4s_t8_g32) W4S_OF(X, lq_w4s_t8_g64) W4S_OF(X, lq_w4s_t8_g128) W4S_OF(X, lq_w4s_t8_row)
#define DECLARED(name) void name(void);
#define LISTED(name) name,
W4S(DECLARED)
static void (*const w4s[])(void) = {W4S(LISTED)};
enum { W4S_KERNELS = sizeof w4s / sizeof *w4s };

#define ROWS(X) \
    X(lq_rmsn_k256) X(lq_rmsn_k4096) X(lq_rmsn_k16384) X(lq_elem_glu) X(lq_elem_add) X(lq_elem_scale) X(lq_elem_mix) \
    X(lq_elem_embed) X(lq_route_rows) X(lq_route_sort)
ROWS(DECLARED)
static void (*const rows[])(void) = {ROWS(LISTED)};

static const void *entry(void (*kernel)(void)) { return (const void *)(uintptr_t)kernel; }

// --- attention, positions, K and V ---

#define PA_DECLARED(name, dk, dv, type, wm, wc, blocks) void name(void);
#define PA_LISTED(name, dk, dv, type, wm, wc, blocks) name,
LQ_PA_KERNELS(PA_DECLARED)
static void (*const pa[])(void) = {LQ_PA_KERNELS(PA_LISTED)};
DECLARED(lq_rope_bf16) DECLARED(lq_kvw_bf16) DECLARED(lq_kvw_f16) DECLARED(lq_kvw_i8) DECLARED(lq_kvw_e4m3)
static void (*const small[])(void) = {lq_rope_bf16, lq_kvw_bf16, lq_kvw_f16, lq_kvw_i8, lq_kvw_e4m3};

// Kernels that want more shared memory than sm_80 has are not in every binary: without them others or the plain one
// run.
static bool rows_open(lq_dev *d, int capability, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    enum { SMALL = 101376, SM80 = 166912, SM90 = 232448 }; // bytes that a block may have
    c->shared = capability == 90 || capability == 100 ? SM90 : capability == 80 || capability == 87 ? SM80 : SMALL;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (!lq_gpu_prepare(c->gpu, entry(small[i]), LQ_GPU_SHARED, err)) return false;
    for (int i = 0; i < LQ_PA_COUNT; i++) {
        const int bytes = lq_pa_kernel_of(i).shared;
        if (bytes > c->shared || lq_gpu_prepare(c->gpu, entry(pa[i]), (size_t)bytes, err)) continue;
        if (bytes <= SM80) return false;
        c->shared = SM80;
    }
    return true;
}

static lq_gpu_grid grid_of(unsigned x, unsigned y, unsigned threads, size_t shared) {
    return (lq_gpu_grid){.blocks = x, .threads = threads, .shared = shared, .rows = y, .simt = true, .early = true};
}

bool lq_fast_rope(lq_dev *d, const lq_rope_args *a) {
    lq_rope_bf16_args p = {*a, *a->rows};
    if (!lq_rope_fits(a)) return false;
    p.a.rows = NULL;
    lq_gpu_launch(lq_cuda_of(d)->gpu, entry(lq_rope_bf16), &p, sizeof p,
                  grid_of((unsigned)p.rows.n, lq_rope_parts(a), LQ_ROPE_THREADS, LQ_ROPE_SHARED));
    return true;
}

bool lq_fast_kv_write(lq_dev *d, const lq_kv_write_args *a) {
    lq_kvw_args p = {*a, *a->rows};
    const lq_dtype type = a->cache.type;
    if (!lq_kvw_fits(a)) return false;
    p.a.rows = NULL;
    void (*const kernel)(void) = type == LQ_BF16 ? lq_kvw_bf16 : type == LQ_F16 ? lq_kvw_f16
                                 : type == LQ_I8 ? lq_kvw_i8 : lq_kvw_e4m3;
    lq_gpu_launch(lq_cuda_of(d)->gpu, entry(kernel), &p, sizeof p,
                  grid_of(lq_kvw_blocks(a, p.rows.n), 1, LQ_KVW_THREADS, 0));
    return true;
}

bool lq_fast_attn(lq_dev *d, const lq_attn_args *a) {
    lq_cuda *c = lq_cuda_of(d);
    lq_pa_launch launches[2];
    if (!lq_pa_fits(a, c->shared)) return false;
    const int count = lq_pa_plan(a, a->rows, c->apart, c->apart_bytes, c->shared, c->sms, launches);
    for (int i = 0; i < count; i++) {
        const lq_pa_launch *l = &launches[i];
        const lq_pa_kernel k = lq_pa_kernel_of(l->id);
        lq_gpu_launch(c->gpu, entry(pa[l->id]), &l->args, sizeof l->args,
                      grid_of(l->x, l->y, (unsigned)k.threads, (size_t)k.shared));
    }
    return true;
}

// ---

bool lq_fast_open(lq_dev *d, int capability, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    // Of the architecture, not of the machine: where k is cut decides bits.
    c->sms = capability >= 90 ? 132 : 108;
    const size_t cells = 4 * (size_t)c->sms * LQ_W4S_TOKENS * LQ_W4S_STRIPE, stripes = 2 * (size_t)c->sms;
    void *parts, *arrived;
    for (int i = 0; i < W4S_KERNELS; i++)
        if (!lq_gpu_prepare(c->gpu, entry(w4s[i]), LQ_W4S_SHARED, err)) return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!lq_gpu_prepare(c->gpu, entry(rows[i]), 0, err)) return false;
    if (!lq_gpu_alloc(c->gpu, cells * sizeof *c->parts, &parts, err)) return false;
    c->parts = parts;
    if (!lq_gpu_alloc(c->gpu, stripes * sizeof *c->arrived, &arrived, err)) return false;
    c->arrived = arrived;
    return rows_open(d, capability, err);
}

void lq_fast_close(lq_dev *d) {
    lq_cuda *c = lq_cuda_of(d);
    if (c->parts) lq_gpu_free(c->gpu, c->parts);
    if (c->arrived) lq_gpu_free(c->gpu, c->arrived);
    if (c->apart) lq_gpu_free(c->gpu, c->apart);
}

static bool aligned(const void *p, size_t to) { return (uintptr_t)p % to == 0; }

// Which of w4s multiplies such a weight; -1: none.
static int w4s_of(const lq_weight *w) {
    const lq_wtype *t = &w->type;
    const int group = t->group == 32 ? 0 : t->group == 64 ? 1 : t->group == 128 ? 2 : t->group == 0 ? 3 : -1;
    if (w->layout != LQ_CUDA || t->kind != LQ_W_INT || t->bits != 4 || t->rows > 1 || w->outliers || group < 0 ||
        (t->scale != LQ_BF16 && t->scale != LQ_F16)) return -1;
    return group * 4 + (t->scale == LQ_F16) * 2 + t->asym;
}

bool lq_fast_matmul(lq_dev *d, const lq_act *x, const lq_weight *w, const float *bias, const lq_mat *y) {
    lq_cuda *c = lq_cuda_of(d);
    const int kernel = w4s_of(w);
    if (kernel < 0 || bias || x->type.elem != LQ_F32 || x->x.type != LQ_BF16 || y->type != LQ_BF16 ||
        x->x.stride % 8 || y->stride % 2 || !aligned(x->x.p, 16) || !aligned(y->p, 4)) return false;
    const int n = (int)w->n, k = (int)w->k, cut = lq_w4s_cut(n, k, c->sms);
    lq_w4s_args a = {.w = w->q, .scale = w->scale, .zero = (const void *)w->zero, .parts = c->parts,
                     .arrived = c->arrived, .x_stride = (int64_t)x->x.stride, .y_stride = (int64_t)y->stride,
                     .n = n, .k = k, .cut = cut};
    for (int row = 0; row < x->x.rows; row += LQ_W4S_TOKENS) {
        a.m = x->x.rows - row < LQ_W4S_TOKENS ? x->x.rows - row : LQ_W4S_TOKENS;
        a.x = (const uint16_t *)x->x.p + (size_t)row * x->x.stride;
        a.y = (uint16_t *)y->p + (size_t)row * y->stride;
        lq_gpu_launch(c->gpu, entry(w4s[kernel]), &a, sizeof a,
                      (lq_gpu_grid){(unsigned)lq_w4s_stripes(n), LQ_W4S_THREADS, LQ_W4S_SHARED,
                                    (unsigned)lq_w4s_cuts(k, cut), true, true});
    }
    return true;
}

// --- norms, elements, routing ---

static void launch(lq_dev *d, void (*kernel)(void), const void *args, size_t bytes, lq_gpu_grid grid) {
    grid.simt = grid.early = true;
    lq_gpu_launch(lq_cuda_of(d)->gpu, entry(kernel), args, bytes, grid);
}

// Whether there is no other form of y to make.
static bool idle(const lq_act *act, const lq_mat *y) {
    return !act || (act->type.elem == LQ_F32 && (!act->x.p || act->x.p == y->p));
}

bool lq_fast_norm(lq_dev *d, const lq_norm_args *given) {
    lq_norm_args a = *given;
    if (idle(a.act, &a.y)) a.act = NULL;
    if (!lq_rmsn_fits(&a)) return false;
    const lq_rmsn_args r = lq_rmsn_of(&a);
    void (*kernel)(void) = r.k <= LQ_RMSN_NARROW ? lq_rmsn_k256 : r.k <= 4096 ? lq_rmsn_k4096 : lq_rmsn_k16384;
    const lq_gpu_grid grid = {lq_rmsn_blocks(&r), LQ_RMSN_THREADS, .shared = LQ_RMSN_SHARED};
    if (r.rows) launch(d, kernel, &r, sizeof r, grid);
    return true;
}

static void launch_elem(lq_dev *d, void (*kernel)(void), const void *args, size_t bytes, const lq_mat *y) {
    const unsigned blocks = lq_elem_blocks(y->rows, y->cols);
    if (blocks) launch(d, kernel, args, bytes, (lq_gpu_grid){.blocks = blocks, .threads = LQ_ELEM_THREADS});
}

bool lq_fast_glu(lq_dev *d, const lq_glu_args *given) {
    lq_glu_of of = {*given};
    if (idle(of.a.act, &of.a.y)) of.a.act = NULL;
    if (!lq_glu_fits(&of.a)) return false;
    launch_elem(d, lq_elem_glu, &of, sizeof of, &of.a.y);
    return true;
}

bool lq_fast_add(lq_dev *d, const lq_add_args *a) {
    const lq_add_of of = {*a};
    if (!lq_add_fits(a)) return false;
    launch_elem(d, lq_elem_add, &of, sizeof of, &a->x);
    return true;
}

bool lq_fast_scale(lq_dev *d, const lq_scale_args *a) {
    const lq_scale_of of = {*a};
    if (!lq_scale_fits(a)) return false;
    launch_elem(d, lq_elem_scale, &of, sizeof of, &a->x);
    return true;
}

bool lq_fast_mix(lq_dev *d, const lq_mix_args *a) {
    const lq_mix_of of = {*a};
    if (!lq_mix_fits(a)) return false;
    launch_elem(d, lq_elem_mix, &of, sizeof of, &a->y);
    return true;
}

bool lq_fast_embed(lq_dev *d, const lq_embed_args *a) {
    const lq_embed_of of = {a->w->q, a->ids, a->w->n, a->scale, a->y};
    if (!lq_embed_fits(a)) return false;
    launch_elem(d, lq_elem_embed, &of, sizeof of, &a->y);
    return true;
}

// Scores are f32; what the plain kernels do has the same bits.
bool lq_fast_route(lq_dev *d, const lq_route_args *a) {
    const lq_route_of of = {*a};
    const lq_sort_of sort = {a->expert, a->order, a->start, a->logits.rows * a->top_k, a->logits.cols};
    if (a->logits.type != LQ_F32) return false;
    const lq_gpu_grid warps = {lq_route_blocks(a), LQ_ROUTE_THREADS, .shared = lq_route_shared(a)};
    if (a->logits.rows) launch(d, lq_route_rows, &of, sizeof of, warps);
    launch(d, lq_route_sort, &sort, sizeof sort,
           (lq_gpu_grid){.blocks = lq_sort_blocks(sort.experts), .threads = LQ_SORT_THREADS});
    return true;
}
