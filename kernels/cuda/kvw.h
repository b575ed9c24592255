// kvw.h: K and V of bf16 into the pages of a cache, as the host sees it: arguments, grid, what it can do.
#ifndef LQ_KVW_H
#define LQ_KVW_H
#include "kernels/cuda/rope.h"

enum { LQ_KVW_THREADS = 128, LQ_KVW_WIDE = 768 }; // most numbers of a head

typedef struct lq_kvw_args { lq_kv_write_args a; lq_rows rows; } lq_kvw_args; // a.rows, a.rope NULL
typedef struct lq_kvw_turned_args {
    lq_kv_write_args kv; // rows, rope NULL
    lq_rope_args rope;   // rows NULL
    lq_rows rows;
    int q_blocks, q_part, kv_part; // blocks of a row for q; times four pairs of q, or KV heads, of a block
} lq_kvw_turned_args;

static inline bool lq_kvw_mat_fits(const lq_mat *m, int d) {
    return m->type == LQ_BF16 && ((uintptr_t)m->p | m->stride * 2) % 16 == 0 && d % 8 == 0 && d <= LQ_KVW_WIDE;
}

static inline bool lq_kvw_fits(const lq_kv_write_args *a) {
    const lq_cache *c = &a->cache;
    return (c->type == LQ_BF16 || c->type == LQ_F16 || c->type == LQ_I8 || c->type == LQ_E4M3) &&
           ((uintptr_t)c->data | c->block_stride) % 16 == 0 && lq_kvw_mat_fits(&a->k, c->dk) &&
           (c->v_in_k || lq_kvw_mat_fits(&a->v, c->dv));
}

// Whether one launch does both; by type, shape and alignment.
static inline bool lq_kvw_turned_fits(const lq_kv_write_args *a) {
    return a->rope && !a->cache.v_in_k && a->rope->k.p == a->k.p && a->rope->head_dim == a->cache.dk &&
           lq_rope_fits(a->rope) && lq_kvw_fits(a);
}

// Few rows go in many small blocks, which are done sooner; of many each block's sines serve more.
static inline lq_kvw_turned_args lq_kvw_turned_of(const lq_kv_write_args *a) {
    lq_kvw_turned_args t = {*a, *a->rope, *a->rows, 0, 0, 0};
    const int each = a->rope->dim / 8, q = LQ_ROPE_HEADS(a->rope, q) * each;
    t.q_part = a->rows->n <= 16 ? LQ_ROPE_THREADS : LQ_ROPE_PART;
    t.kv_part = t.q_part / each > 0 ? t.q_part / each : 1;
    if (t.kv_part > a->cache.kv_heads) t.kv_part = a->cache.kv_heads;
    t.q_blocks = (q + t.q_part - 1) / t.q_part;
    t.kv.rows = t.rope.rows = NULL;
    t.kv.rope = NULL;
    return t;
}

static inline unsigned lq_kvw_turned_blocks(const lq_kvw_turned_args *t) {
    return (unsigned)(t->q_blocks + (t->kv.cache.kv_heads + t->kv_part - 1) / t->kv_part);
}

// A warp for each vector: K of a row's heads, then V.
static inline unsigned lq_kvw_blocks(const lq_kv_write_args *a, int rows) {
    const size_t warps = (size_t)rows * (size_t)a->cache.kv_heads * (a->cache.v_in_k ? 1 : 2);
    return (unsigned)((warps * 32 + LQ_KVW_THREADS - 1) / LQ_KVW_THREADS);
}
#endif
