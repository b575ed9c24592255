// elem.h: what is done element by element to matrices of bf16, as the host sees it: glu, add, scale (also of f32:
// logits), mix and the rows of an embedding. Plain C: arguments, which of them these kernels take, grid. A thread has 8
// columns where they are bf16. Results are portable C's in f32 on what is read, rounded once.
#ifndef LQ_ELEM_CUDA_H
#define LQ_ELEM_CUDA_H
#include "kernels/cuda/acts.h"

enum { LQ_ELEM_THREADS = 256, LQ_GLU_THREADS = 512, LQ_ELEM_PIECE = 4 * LQ_ELEM_THREADS };

// Copies of arguments, without what points to the host.
typedef struct lq_glu_of { lq_glu_args a; } lq_glu_of;
typedef struct lq_glu_act_of { lq_glu_args a; lq_acts_args quant; } lq_glu_act_of; // quant.x is y: a row for a block
typedef struct lq_add_of { lq_add_args a; } lq_add_of;
typedef struct lq_scale_of { lq_scale_args a; } lq_scale_of;
typedef struct lq_mix_of { lq_mix_args a; } lq_mix_of;
typedef struct lq_embed_of { const uint16_t *w; const int32_t *ids; int64_t rows; float scale; lq_mat y; } lq_embed_of;
typedef struct lq_embed_coded_of { lq_weight w; const int32_t *ids; float scale; lq_mat y; } lq_embed_coded_of;

static inline unsigned lq_elem_blocks(int rows, int cols) {
    return (unsigned)(((int64_t)rows * (cols / 8) + LQ_ELEM_THREADS - 1) / LQ_ELEM_THREADS);
}

// Blocks of those that go number by number, each through LQ_ELEM_PIECE columns of a row.
#define LQ_ELEM_PIECES(cols) (((cols) + LQ_ELEM_PIECE - 1) / LQ_ELEM_PIECE)

static inline bool lq_elem_mat(const lq_mat *m) {
    return m->type == LQ_BF16 && m->cols % 8 == 0 && m->stride % 8 == 0 && (uintptr_t)m->p % 16 == 0;
}

static inline bool lq_glu_fits(const lq_glu_args *a) {
    return lq_elem_mat(&a->gate) && (!a->up.p || lq_elem_mat(&a->up)) && lq_elem_mat(&a->y);
}

static inline bool lq_add_fits(const lq_add_args *a) { return lq_elem_mat(&a->x) && lq_elem_mat(&a->y); }
static inline bool lq_scale_fits(const lq_scale_args *a) {
    return lq_elem_mat(&a->x) && lq_elem_mat(&a->y) && (uintptr_t)a->by % 16 == 0;
}

// In f32, wherever rows begin.
static inline bool lq_scale_f32_fits(const lq_scale_args *a) { return a->x.type == LQ_F32 && a->y.type == LQ_F32; }

static inline bool lq_mix_fits(const lq_mix_args *a) { return lq_elem_mat(&a->x) && lq_elem_mat(&a->y); }

// Rows of bf16 as they are, with nothing apart and in their order; all others go number by number.
static inline bool lq_embed_fits(const lq_embed_args *a) {
    const lq_weight *w = a->w;
    const bool f32 = a->y.type == LQ_F32 && a->y.cols % 8 == 0 && a->y.stride % 4 == 0 && (uintptr_t)a->y.p % 16 == 0;
    return w->type.kind == LQ_W_PLAIN && w->type.elem == LQ_BF16 && w->layout == LQ_ANY && !w->perm && !w->outliers &&
           w->k == a->y.cols && (uintptr_t)w->q % 16 == 0 && (f32 || lq_elem_mat(&a->y));
}
#endif
