// w4s_pick.h: which kernel of w4s.h multiplies a weight, and how it is launched; for the host. By type and shape it is
// decided what fits and in which order sums are made; by the number of tokens, only how many a block takes.
#ifndef LQ_W4S_PICK_H
#define LQ_W4S_PICK_H
#include "formats/block.h"
#include "kernels/cuda/tuned.h"
#include "kernels/cuda/w4s.h"
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

#define LQ_W4S_DECLARED(name, kind, codes, bits, group, tokens, blocks) void name(void);
LQ_W4S_KERNELS(LQ_W4S_DECLARED)
#ifdef __cplusplus
}
#endif

typedef struct lq_w4s_kernel {
    void (*entry)(void);
    const char *name;
    int kind, bits, group, tokens;
    int met; // cuts of k that may meet in a cluster's first block, beside its own
    size_t shared;
} lq_w4s_kernel;
#define LQ_W4S_LISTED(name, kind, codes, bits, group, tokens, blocks) \
    {name, #name, kind, bits, group, tokens, LQ_W4S_MET(bits, tokens), LQ_W4S_SHARED(group, bits, tokens)},
static const lq_w4s_kernel lq_w4s_kernels[] = {LQ_W4S_KERNELS(LQ_W4S_LISTED)};
enum { LQ_W4S_COUNT = sizeof lq_w4s_kernels / sizeof *lq_w4s_kernels };

// What of the arguments the type decides, and the kernels' kind, bits and group.
typedef struct lq_w4s_form {
    int kind, bits, group, group_shift, share_shift, groups, narrow;
    lq_w4s_scale scale;
} lq_w4s_form;

// 1 << result is n; -1: no power of two.
static inline int lq_w4s_log2(int64_t n) {
    for (int i = 0; i < 31; i++)
        if (n == (int64_t)1 << i) return i;
    return -1;
}

static inline bool lq_w4s_scale_of(const lq_wtype *t, lq_w4s_scale *out) {
    switch (t->scale) {
    case LQ_BF16: *out = LQ_W4S_BF16; return true;
    case LQ_F16: *out = LQ_W4S_F16; return true;
    case LQ_F32: *out = LQ_W4S_F32; return true;
    case LQ_E8M0: *out = LQ_W4S_E8M0; return true;
    case LQ_E4M3: *out = LQ_W4S_E4M3; return true;
    default: return false;
    }
}

// The widest group of the kernels of f->kind and bits that the type's is a power of two times of; rows: the widest.
static inline bool lq_w4s_group_of(int group, lq_w4s_form *f) {
    f->group = -1;
    for (int i = 0; i < LQ_W4S_COUNT; i++) {
        const lq_w4s_kernel *kernel = &lq_w4s_kernels[i];
        if (kernel->kind != f->kind || kernel->bits != f->bits || kernel->group <= f->group) continue;
        const int shift = group == 0 ? 31 : group % kernel->group ? -1 : lq_w4s_log2(group / kernel->group);
        if (shift < 0) continue;
        f->group = kernel->group;
        f->group_shift = shift;
    }
    return f->group >= 0;
}

// false: the plain kernel must do it. Tables whose values are read at 16 bytes, scales of several rows by a power of
// two, weights that lie as these kernels read them.
static inline bool lq_w4s_fits(const lq_wtype *t, lq_layout layout, int64_t n, int64_t k, lq_w4s_form *f) {
    memset(f, 0, sizeof *f);
    f->bits = t->bits;
    if (n < 1 || k < 1 || n > INT32_MAX / 2 || k > INT32_MAX / 2) return false;
    if (t->kind == LQ_W_PLAIN) {
        f->kind = LQ_W4S_ROWS16;
        f->narrow = t->elem == LQ_F16;
        return (t->elem == LQ_BF16 || t->elem == LQ_F16) && k % 8 == 0;
    }
    f->kind = t->kind == LQ_W_INT ? LQ_W4S_INTS : t->kind == LQ_W_TABLE ? LQ_W4S_SIXTEEN : LQ_W4S_FLOATS;
    f->narrow = t->kind == LQ_W_FLOAT && t->elem == LQ_E5M2;
    f->share_shift = t->rows == LQ_ROWS_ALL ? 31 : t->rows > 1 ? lq_w4s_log2(t->rows) : 0;
    f->groups = (int)lq_weight_groups(t, k);
    return layout == LQ_CUDA && f->share_shift >= 0 && lq_w4s_scale_of(t, &f->scale) && lq_w4s_group_of(t->group, f);
}

// How a call is launched: x blocks of rows of all matrices, y all else.
typedef struct lq_w4s_plan {
    const lq_w4s_kernel *kernel;
    unsigned x, y;
    int side;              // the most blocks that share cuts of one matrix
    bool cluster;          // they are one
    size_t parts, arrived; // numbers of each that it uses
} lq_w4s_plan;

// Most blocks of a cluster, and most tokens of a kernel for which they are one: on an H200 two blocks meet sooner there
// than in global memory (2048 x 2048, one token: 4.1 for 5.7 microseconds), four and more later, and for 32 tokens no
// sooner. 8 blocks are what every such GPU takes.
enum { LQ_W4S_CLUSTER = 2, LQ_W4S_CLUSTER_TOKENS = 16, LQ_W4S_CLUSTER_MOST = 8 };

static inline int lq_w4s_least(int a, int b) { return a < b ? a : b; }

// Multiprocessors that an architecture is taken to have; bytes of shared memory that a block of one may have.
static inline int lq_w4s_sms(int capability) { return capability >= 90 ? 132 : 108; }
static inline size_t lq_w4s_shared(int capability) {
    if (capability == 80 || capability == 87) return 163 << 10;
    return capability >= 90 && capability < 120 ? 227 << 10 : 99 << 10;
}

// The GPU, and what there is for products whose k is cut.
typedef struct lq_w4s_on {
    int capability;
    int sms;               // multiprocessors of the architecture: where k is cut decides bits
    size_t shared;         // most bytes that a block may have
    size_t parts, arrived; // numbers of each
} lq_w4s_on;

// Of all matrices of this form; for lq_tuned_find.
static inline lq_tuned lq_w4s_tuned(const lq_w4s_form *f, int capability) {
    const lq_tuned like = {capability, LQ_TUNED_W4S, f->kind, f->bits, f->group, 0, 0, 0, 0, 0, 0};
    return like;
}

// Whether a kernel of `tokens` serves `each` better than one of `than`: the smallest that takes all, or the largest.
static inline bool lq_w4s_better(int tokens, int than, int each) {
    return than < each ? tokens > than : tokens >= each && tokens < than;
}

// Of matrices with n[0] .. n[joined - 1] rows, for m tokens or slots of `experts`. `tuned` (NULL: nothing was measured)
// says which kernel and whether blocks share cuts; else they do where there is not work for all multiprocessors
// without. Where what there is does not do, a block makes all cuts.
static inline lq_w4s_plan lq_w4s_plan_of(const lq_w4s_form *f, int m, int experts, const int *n, int joined, int k,
                                         const lq_w4s_on *on, const lq_tuned *tuned) {
    lq_w4s_plan p;
    memset(&p, 0, sizeof p);
    const int some = lq_w4s_least(experts, m), each = some > 0 ? (m + some - 1) / some : m;
    for (int i = 0; i < LQ_W4S_COUNT; i++) {
        const lq_w4s_kernel *of = &lq_w4s_kernels[i];
        if (of->kind != f->kind || of->bits != f->bits || of->group != f->group || of->shared > on->shared) continue;
        if (!p.kernel || (tuned && of->tokens == tuned->tokens) ||
            ((!tuned || p.kernel->tokens != tuned->tokens) && lq_w4s_better(of->tokens, p.kernel->tokens, each)))
            p.kernel = of;
    }
    if (!p.kernel) return p;
    const int tokens = p.kernel->tokens, rows = LQ_W4S_ROWS(f->bits, tokens);
    // Each expert's last tile may have one slot.
    const size_t tiles = ((size_t)m + (size_t)(some > 0 ? some : 1) * (size_t)(tokens - 1)) / (size_t)tokens;
    int cuts = 1;
    for (int i = 0; i < joined; i++) {
        const int of = lq_w4s_cuts(k, lq_w4s_cut(n[i], k, on->sms));
        p.x += (unsigned)((n[i] + rows - 1) / rows);
        if (of > cuts) cuts = of;
    }
    p.side = cuts;
    p.arrived = tiles * p.x;
    p.parts = p.arrived * (size_t)cuts * (size_t)(tokens * rows);
    const bool busy = tuned ? !tuned->side : p.arrived >= 2 * (size_t)on->sms;
    p.cluster = on->capability >= 90 && tokens <= LQ_W4S_CLUSTER_TOKENS && cuts <= LQ_W4S_CLUSTER &&
                cuts - 1 <= p.kernel->met;
    if (p.cluster) p.parts = p.arrived = 0;
    if (cuts == 1 || busy || p.arrived > on->arrived || p.parts > on->parts) {
        p.side = 1;
        p.cluster = false;
        p.parts = p.arrived = 0;
    }
    p.y = (unsigned)(tiles * (size_t)p.side);
    return p;
}

// What form and plan say of the arguments, whose matrices have their n.
static inline void lq_w4s_set(lq_w4s_args *a, const lq_w4s_form *f, const lq_w4s_plan *p, int sms) {
    const int rows = LQ_W4S_ROWS(f->bits, p->kernel->tokens);
    for (int i = 0, first = 0; i < a->joined; i++) {
        lq_w4s_one *one = &a->of[i];
        one->cut = lq_w4s_cut(one->n, a->k, sms);
        one->side = p->side == 1 ? 1 : lq_w4s_cuts(a->k, one->cut);
        one->first = first;
        first += (one->n + rows - 1) / rows;
    }
    a->side = p->side;
    a->cluster = p->cluster;
    a->group_shift = f->group_shift;
    a->share_shift = f->share_shift;
    a->groups = f->groups;
    a->narrow = f->narrow;
}
#endif
