// fast_attn.c: attention, positions, K and V of default mode, by the kernels of pa.cuh, rope.cuh and kvw.cuh.
#include "kernels/cuda/fast.h"
#include "kernels/cuda/kvw.h"
#include "kernels/cuda/pa.h"
#include "kernels/cuda/rope.h"

#define PA_DECLARED(name, dk, dv, type, wm, wc, blocks, places) void name(void);
#define PA_LISTED(name, dk, dv, type, wm, wc, blocks, places) name,
LQ_PA_KERNELS(PA_DECLARED)
static void (*const pa[])(void) = {LQ_PA_KERNELS(PA_LISTED)};
LQ_DECLARED(lq_rope_bf16)
#define KVW(X) X(lq_kvw_bf16) X(lq_kvw_f16) X(lq_kvw_i8) X(lq_kvw_e4m3)
#define KVW_TURNED(X) X(lq_kvw_turned_bf16) X(lq_kvw_turned_f16) X(lq_kvw_turned_i8) X(lq_kvw_turned_e4m3)
KVW(LQ_DECLARED)
KVW_TURNED(LQ_DECLARED)
static void (*const small[])(void) = {lq_rope_bf16, KVW(LQ_LISTED) KVW_TURNED(LQ_LISTED)};
static void (*const kvw[])(void) = {KVW(LQ_LISTED)}, (*const kvw_turned[])(void) = {KVW_TURNED(LQ_LISTED)};

// Kernels that want more shared memory than this GPU has are left out: others or the plain one run.
bool lq_fast_attn_open(lq_dev *d, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        if (!lq_gpu_prepare(c->gpu, lq_entry(small[i]), LQ_GPU_SHARED, err)) return false;
    for (int i = 0; i < LQ_PA_COUNT; i++) {
        const size_t bytes = (size_t)lq_pa_kernel_of(i).shared;
        if (bytes <= c->shared && !lq_gpu_prepare(c->gpu, lq_entry(pa[i]), bytes, err)) return false;
    }
    return true;
}

bool lq_fast_rope(lq_dev *d, const lq_rope_args *a) {
    lq_rope_bf16_args p = {*a, *a->rows};
    if (!lq_rope_fits(a)) return false;
    p.a.rows = NULL;
    lq_fast_launch(d, lq_rope_bf16, &p, sizeof p,
                   (lq_gpu_grid){.blocks = (unsigned)p.rows.n, .threads = LQ_ROPE_THREADS, .shared = LQ_ROPE_SHARED,
                                 .rows = lq_rope_parts(a)});
    return true;
}

bool lq_fast_kv_write(lq_dev *d, const lq_kv_write_args *a) {
    lq_kvw_args p = {*a, *a->rows};
    const lq_dtype type = a->cache.type;
    const int i = type == LQ_BF16 ? 0 : type == LQ_F16 ? 1 : type == LQ_I8 ? 2 : 3;
    if (!lq_kvw_fits(a)) return false;
    if (lq_kvw_turned_fits(a)) {
        const lq_kvw_turned_args t = lq_kvw_turned_of(a);
        lq_fast_launch(d, kvw_turned[i], &t, sizeof t,
                       (lq_gpu_grid){.blocks = (unsigned)t.rows.n, .threads = LQ_ROPE_THREADS,
                                     .shared = LQ_ROPE_SHARED, .rows = lq_kvw_turned_blocks(&t)});
        return true;
    }
    if (a->rope) d->ops.rope(d, a->rope);
    p.a.rows = NULL;
    p.a.rope = NULL;
    lq_fast_launch(d, kvw[i], &p, sizeof p,
                   (lq_gpu_grid){.blocks = lq_kvw_blocks(a, p.rows.n), .threads = LQ_KVW_THREADS});
    return true;
}

bool lq_fast_attn(lq_dev *d, const lq_attn_args *a) {
    lq_cuda *c = lq_cuda_of(d);
    lq_pa_launch launches[2];
    if (!lq_pa_fits(a, (int)c->shared)) return false;
    const int count = lq_pa_plan(a, a->rows, c->apart, c->apart_bytes, (int)c->shared, c->sms, launches);
    for (int i = 0; i < count; i++) {
        const lq_pa_launch *l = &launches[i];
        const lq_pa_kernel k = lq_pa_kernel_of(l->id);
        lq_fast_launch(d, pa[l->id], &l->args, sizeof l->args,
                       (lq_gpu_grid){.blocks = l->x, .threads = (unsigned)k.threads, .shared = (size_t)k.shared,
                                     .rows = l->y});
    }
    return true;
}
