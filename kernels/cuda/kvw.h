// kvw.h: K and V of bf16 into the pages of a cache, as the host sees it: arguments, grid, what it can do.
#ifndef LQ_KVW_H
#define LQ_KVW_H
#include "kernels/ops.h"

enum { LQ_KVW_THREADS = 128, LQ_KVW_WIDE = 768 }; // most numbers of a head

typedef struct lq_kvw_args { lq_kv_write_args a; lq_rows rows; } lq_kvw_args; // a.rows NULL

static inline bool lq_kvw_mat_fits(const lq_mat *m, int d) {
    return m->type == LQ_BF16 && ((uintptr_t)m->p | m->stride * 2) % 16 == 0 && d % 8 == 0 && d <= LQ_KVW_WIDE;
}

static inline bool lq_kvw_fits(const lq_kv_write_args *a) {
    const lq_cache *c = &a->cache;
    return (c->type == LQ_BF16 || c->type == LQ_F16 || c->type == LQ_I8 || c->type == LQ_E4M3) &&
           ((uintptr_t)c->data | c->block_stride) % 16 == 0 && lq_kvw_mat_fits(&a->k, c->dk) &&
           (c->v_in_k || lq_kvw_mat_fits(&a->v, c->dv));
}

// A warp for each vector: K of a row's heads, then V.
static inline unsigned lq_kvw_blocks(const lq_kv_write_args *a, int rows) {
    const size_t warps = (size_t)rows * (size_t)a->cache.kv_heads * (a->cache.v_in_k ? 1 : 2);
    return (unsigned)((warps * 32 + LQ_KVW_THREADS - 1) / LQ_KVW_THREADS);
}
#endif
