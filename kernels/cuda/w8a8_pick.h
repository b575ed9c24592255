// w8a8_pick.h: which kernel of w8a8.h multiplies a weight, and how it is launched; for the host. By type, shape and
// alignment it is decided what fits; by the number of tokens, only how many a block takes.
#ifndef LQ_W8A8_PICK_H
#define LQ_W8A8_PICK_H
#include "kernels/cuda/tuned.h"
#include "kernels/cuda/w8a8.h"
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif
#define LQ_W8A8_DECLARED(name, codes, kind, group, tokens, blocks) void name(void);
LQ_W8A8_KERNELS(LQ_W8A8_DECLARED)
#ifdef __cplusplus
}
#endif

typedef struct lq_w8a8_kernel {
    void (*entry)(void);
    const char *name;
    int kind, group, tokens;
    size_t shared;
} lq_w8a8_kernel;
#define LQ_W8A8_LISTED(name, codes, kind, group, tokens, blocks) \
    {name, #name, kind, group, tokens, LQ_W8A8_SHARED(tokens)},
static const lq_w8a8_kernel lq_w8a8_kernels[] = {LQ_W8A8_KERNELS(LQ_W8A8_LISTED)};
enum { LQ_W8A8_COUNT = sizeof lq_w8a8_kernels / sizeof *lq_w8a8_kernels };

// 1 << result is n; -1: no power of two.
static inline int lq_w8a8_log2(int64_t n) {
    for (int i = 0; i < 31; i++)
        if (n == (int64_t)1 << i) return i;
    return -1;
}

// Whether the weight is rows of bytes with scales, all where they are read at their own size.
static inline bool lq_w8a8_rows(const lq_weight *w) {
    const uintptr_t words = (uintptr_t)w->scale | (uintptr_t)w->code_sum | (uintptr_t)w->scale2;
    if (w->n < 1 || w->n > 32 * 65535 || w->k < 16 || w->k > INT32_MAX / 2 || w->k % 16) return false;
    return w->layout == LQ_ANY && w->type.bits == 8 && w->scale && (uintptr_t)w->q % 16 == 0 && words % 4 == 0 &&
           (w->type.scale == LQ_F32 || w->type.scale == LQ_F16 || w->type.scale == LQ_BF16 ||
            w->type.scale == LQ_E8M0 || w->type.scale == LQ_E4M3);
}

// Whether one scale of the row of x and one of the row of w serve all of K, and sums over it fit int32.
static inline bool lq_w8a8_whole(const lq_act *x, const lq_wtype *t, int64_t k) {
    if (t->group || x->type.group) return false;
    return x->type.elem == LQ_E4M3 || k <= (x->zero ? 32768 : 65536);
}

// What of the arguments types and shapes decide, and the kernels' kind and group.
typedef struct lq_w8a8_form { int kind, group, cell, group_shift, share_shift, groups; } lq_w8a8_form;

// false: the plain kernel must do it; by types, shapes and alignment, never by the number of rows.
static inline bool lq_w8a8_fits(const lq_act *x, const lq_weight *w, const lq_mat *y, lq_w8a8_form *f) {
    const lq_wtype *t = &w->type;
    const bool whole = lq_w8a8_whole(x, t, w->k), ints = x->type.elem == LQ_I8;
    const int64_t cell = whole ? w->k : (int64_t)(ints ? x->q_row : x->q_group);
    if (ints ? t->kind != LQ_W_INT : x->type.elem != LQ_E4M3 || t->kind != LQ_W_FLOAT) return false;
    if (!lq_w8a8_rows(w)) return false;
    if ((uintptr_t)x->q % 16 || x->q_row % 16 || (ints && lq_w8a8_log2((int64_t)x->q_row) < 0)) return false;
    if (x->x.type != LQ_BF16 || x->outliers != w->outliers || (w->outliers && (!x->x.p || !w->outlier_w))) return false;
    if (!whole && !t->group && !x->type.group) return false;
    if (x->zero && (!whole || !w->code_sum)) return false;
    if (y->type != LQ_BF16 && y->type != LQ_F32) return false;
    if ((uintptr_t)y->p % (y->type == LQ_F32 ? 8 : 4)) return false;
    f->kind = ints ? LQ_W8A8_INTS : LQ_W8A8_FLOATS;
    f->group = whole ? 0 : cell % 128 == 0 ? 128 : 32;
    f->cell = (int)cell;
    f->groups = (int)lq_weight_groups(t, w->k);
    f->group_shift = t->group ? t->group % cell ? -1 : lq_w8a8_log2(t->group / cell) : 31;
    f->share_shift = t->rows == LQ_ROWS_ALL ? 31 : t->rows > 1 ? lq_w8a8_log2(t->rows) : 0;
    if (!whole && (cell < 32 || lq_w8a8_log2(cell) < 0 || (!ints && f->group == 32))) return false;
    return f->group_shift >= 0 && f->share_shift >= 0;
}

// What the form says of the arguments.
static inline void lq_w8a8_set(lq_w8a8_args *a, const lq_w8a8_form *f) {
    a->cell = f->cell;
    a->group_shift = f->group_shift;
    a->share_shift = f->share_shift;
    a->groups = f->groups;
}

// Whether columns apart are as these kernels read them, of weights that others multiply.
static inline bool lq_w8a8_apart_fits(const lq_act *x, const lq_weight *w) {
    return x->outliers == w->outliers && x->x.p && x->x.type == LQ_BF16 && w->outlier_w && w->n <= 32 * 65535;
}

// How a call is launched: x tiles of tokens, y blocks of rows of all matrices.
typedef struct lq_w8a8_plan {
    const lq_w8a8_kernel *kernel; // NULL: none has so little shared memory
    unsigned x, y, threads;
} lq_w8a8_plan;

// Of all matrices of this kind; for lq_tuned_find.
static inline lq_tuned lq_w8a8_tuned(int kind, int group, int capability) {
    const lq_tuned like = {capability, LQ_TUNED_W8A8, kind, 8, group, 0, 0, 0, 0, 0, 0};
    return like;
}

// Of matrices with n[0] .. n[joined - 1] rows, for m tokens or slots of `experts`; the kernel that `tuned` says (NULL:
// nothing was measured), or the smallest that takes all tokens, or the largest.
static inline lq_w8a8_plan lq_w8a8_plan_of(int kind, int group, int m, int experts, const int *n, int joined,
                                           size_t shared, const lq_tuned *tuned) {
    lq_w8a8_plan p;
    memset(&p, 0, sizeof p);
    const int some = experts < m ? experts : m, each = some > 0 ? (m + some - 1) / some : m;
    const int want = tuned ? tuned->tokens : 0;
    for (int i = 0; i < LQ_W8A8_COUNT; i++) {
        const lq_w8a8_kernel *of = &lq_w8a8_kernels[i];
        if (of->kind != kind || of->group != group || of->shared > shared) continue;
        const int than = p.kernel ? p.kernel->tokens : 0;
        const bool better = than < each ? of->tokens > than : of->tokens >= each && of->tokens < than;
        if (!p.kernel || of->tokens == want || (than != want && better)) p.kernel = of;
    }
    if (!p.kernel) return p;
    const int tokens = p.kernel->tokens, rows = LQ_W8A8_ROWS(tokens);
    // Each expert's last tile may have one slot.
    p.x = (unsigned)(((size_t)m + (size_t)(some > 0 ? some : 1) * (size_t)(tokens - 1)) / (size_t)tokens);
    for (int i = 0; i < joined; i++) p.y += (unsigned)((n[i] + rows - 1) / rows);
    p.threads = (unsigned)LQ_W8A8_THREADS(tokens);
    return p;
}
#endif
