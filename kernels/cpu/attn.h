// attn.h: where K and V lie in a paged cache and what a row may see of it: shared by kv_write
// and every version of attention.
#ifndef LQ_ATTN_H
#define LQ_ATTN_H
#include "kernels/cpu/cpu.h"
#include <float.h>
#include <math.h>

// Bytes of scratch for attention within these limits: partial results of a long decode that all threads share.
size_t lq_attn_work(const lq_dev_limits *l);

// K or V of one block and head: [page][lq_cache_width] elements.
static inline char *lq_cache_at(const lq_cache *c, int32_t block, int head, bool v) {
    size_t k = (size_t)c->page * (size_t)c->dk, both = k + (c->v_in_k ? 0 : (size_t)c->page * (size_t)c->dv);
    size_t elems = (size_t)head * both + (v && !c->v_in_k ? k : 0);
    return (char *)c->data + (size_t)block * c->block_stride + elems * lq_dtype_size(c->type);
}

static inline int lq_cache_width(const lq_cache *c, bool v) { return v && !c->v_in_k ? c->dv : c->dk; }

// I8: the scales of one block and head, [page].
static inline float *lq_cache_scale(const lq_cache *c, int32_t block, int head, bool v) {
    return c->scale + (((size_t)block * (size_t)c->kv_heads + (size_t)head) * 2 + (v && !c->v_in_k)) * (size_t)c->page;
}

// E4M3: the one scale of a head.
static inline float lq_cache_head_scale(const lq_cache *c, int head, bool v) {
    return c->type == LQ_E4M3 && c->scale ? c->scale[head * 2 + (v && !c->v_in_k)] : 1.0f;
}

// What a row sees: `from` <= position <= at, and from tree_base on only what the tree says.
typedef struct lq_sight {
    int from, at, tree_base;
    uint64_t tree;
} lq_sight;
static inline lq_sight lq_sight_of(const lq_attn_args *a, int row) {
    const lq_rows *r = a->rows;
    lq_sight s = {0, r->at[row], INT32_MAX, 0};
    if (a->window > 0 && r->pos[row] >= a->window) s.from = r->pos[row] - a->window + 1;
    if (a->chunk > 0 && r->pos[row] / a->chunk * a->chunk > s.from) s.from = r->pos[row] / a->chunk * a->chunk;
    if (r->tree) {
        s.tree = r->tree[row];
        s.tree_base = r->tree_base[r->seq[row]];
        if (s.from > s.tree_base) s.from = s.tree_base;
    }
    return s;
}

// Bit i: position j + i is seen.
static inline uint16_t lq_sight_mask(const lq_sight *s, int j) {
    int left = s->at - j, skip = s->from - j;
    uint32_t m = left < 0 ? 0 : left >= 15 ? 0xffffu : (2u << left) - 1;
    if (skip > 0) m &= skip > 15 ? 0 : 0xffffu << skip;
    if (s->tree_base <= s->at && s->tree_base < j + 16) {
        int base = s->tree_base - j; // tree bit 0 is bit `base` of the mask
        uint64_t t = base >= 0 ? s->tree << base | ((1u << base) - 1) : -base < 64 ? s->tree >> -base : 0;
        m &= (uint32_t)(t & 0xffff);
    }
    return (uint16_t)m;
}

// What position j adds to the score of a row at position `at`.
static inline float lq_alibi(const lq_attn_args *a, int head, int at, int j) {
    if (!a->alibi_coarse) return a->alibi[head] * (float)(j - at);
    return a->scale * lq_bf16_f32(lq_f32_bf16(a->alibi[head] * lq_bf16_f32(lq_f32_bf16((float)j))));
}

// A head's result so far over splits: exp(score - m) summed and weighted. It begins with m = -FLT_MAX and l = 0, and a
// split that a row does not see leaves every bit as it was.
typedef struct lq_partial { float m, l; } lq_partial;
#endif
