// w4l_pick.h: when a kernel of w4l.h takes a product that w4s could make, and how it is launched; for the host. It may
// go by the number of tokens, since both make the same bits: an HGMMA rounds each step of 16 columns as an HMMA does
// (gpu_check_w4l on an H200, 2026-11-27: 0 of 277,857 numbers differ).
#ifndef LQ_W4L_PICK_H
#define LQ_W4L_PICK_H
#include "kernels/cuda/w4l.h"
#include "kernels/cuda/w4s_pick.h"
#ifdef __cplusplus
extern "C" {
#endif

#define LQ_W4L_DECLARED(name, kind, codes, bits, group) void name(void);
LQ_W4L_KERNELS(LQ_W4L_DECLARED)
#ifdef __cplusplus
}
#endif

typedef struct lq_w4l_kernel {
    void (*entry)(void);
    const char *name;
    int kind, bits, group;
    size_t shared;
} lq_w4l_kernel;
#define LQ_W4L_LISTED(name, kind, codes, bits, group) {name, #name, kind, bits, group, LQ_W4L_SHARED(bits)},
static const lq_w4l_kernel lq_w4l_kernels[] = {LQ_W4L_KERNELS(LQ_W4L_LISTED)};
enum { LQ_W4L_COUNT = sizeof lq_w4l_kernels / sizeof *lq_w4l_kernels };

typedef struct lq_w4l_plan {
    const lq_w4l_kernel *kernel; // NULL: w4s has it
    unsigned x, y;
} lq_w4l_plan;

// Tokens that are in one matrix's call, or slots of `experts`: more than w4s takes at a time, and blocks for half of
// the multiprocessors at least, since a block makes all cuts of k.
static inline lq_w4l_plan lq_w4l_plan_of(const lq_w4s_form *f, int m, int experts, int n, int sms) {
    lq_w4l_plan p = {NULL, 0, 0};
    const int some = experts > 0 ? lq_w4s_least(experts, m) : 1;
    if (m / (some > 0 ? some : 1) <= 64) return p;
    p.x = (unsigned)((n + LQ_W4L_ROWS - 1) / LQ_W4L_ROWS);
    // Each expert's last tile may have one slot.
    p.y = (unsigned)((m + some * (LQ_W4L_TOKENS - 1)) / LQ_W4L_TOKENS);
    if ((size_t)p.x * p.y * 2 < (size_t)sms) return p;
    for (int i = 0; i < LQ_W4L_COUNT; i++) {
        const lq_w4l_kernel *of = &lq_w4l_kernels[i];
        if (of->kind == f->kind && of->bits == f->bits && of->group == f->group) p.kernel = of;
    }
    return p;
}
#endif
