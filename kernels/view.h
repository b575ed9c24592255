// view.h: how arguments of slots are read: rows of a matrix and of a batch, K and V in a paged cache, what a row may
// see of it. Shared by CPUs and CUDA kernels; pointers are as the arguments have them.
#ifndef LQ_VIEW_H
#define LQ_VIEW_H
#include "formats/elem.h"
#include "kernels/ops.h"

LQ_FN float *lq_mat_row(const lq_mat *m, int row) { return (float *)m->p + (size_t)row * m->stride; }

// Elements from row to row of k ones, `line` of which are a line: an odd number of lines, so that equal columns of rows
// do not meet in a cache.
LQ_FN size_t lq_row_apart(int64_t k, size_t line) { return (((size_t)k + line - 1) / line | 1) * line; }

// Of a norm's weights or biases those of one row; NULL: it has none.
LQ_FN const float *lq_norm_gamma(const lq_norm_args *a, const float *gamma, int row) {
    return gamma && a->gammas ? gamma + (size_t)(row % a->gammas) * (size_t)a->x.cols : gamma;
}

// Rows that belong to a sequence; the others are padding.
LQ_FN int lq_rows_real(const lq_rows *r) { return r->first[r->seqs]; }
LQ_FN size_t lq_rows_slot(const lq_rows *r, int seq) { return (size_t)(r->slot ? r->slot[seq] : seq); }
LQ_FN const int32_t *lq_rows_table(const lq_rows *r, int seq) {
    return r->tables + lq_rows_slot(r, seq) * (size_t)r->table_stride;
}

LQ_FN size_t lq_cache_bytes(const lq_cache *c) { // of an element
    return c->type == LQ_F32 ? 4 : c->type == LQ_F16 || c->type == LQ_BF16 ? 2 : 1;
}

// K or V of one block and head: [page][lq_cache_width] elements.
LQ_FN char *lq_cache_at(const lq_cache *c, int32_t block, int head, bool v) {
    size_t k = (size_t)c->page * (size_t)c->dk, both = k + (c->v_in_k ? 0 : (size_t)c->page * (size_t)c->dv);
    size_t elems = (size_t)head * both + (v && !c->v_in_k ? k : 0);
    return (char *)c->data + (size_t)block * c->block_stride + elems * lq_cache_bytes(c);
}

LQ_FN int lq_cache_width(const lq_cache *c, bool v) { return v && !c->v_in_k ? c->dv : c->dk; }

// I8: the scales of one block and head, [page].
LQ_FN float *lq_cache_scale(const lq_cache *c, int32_t block, int head, bool v) {
    return c->scale + (((size_t)block * (size_t)c->kv_heads + (size_t)head) * 2 + (v && !c->v_in_k)) * (size_t)c->page;
}

// E4M3: the one scale of a head.
LQ_FN float lq_cache_head_scale(const lq_cache *c, int head, bool v) {
    return c->type == LQ_E4M3 && c->scale ? c->scale[head * 2 + (v && !c->v_in_k)] : 1.0f;
}

// What a row sees: `from` <= position <= at, and from tree_base on only what the tree says.
typedef struct lq_sight {
    int from, at, tree_base;
    uint64_t tree;
} lq_sight;
LQ_FN lq_sight lq_sight_of(const lq_attn_args *a, const lq_rows *r, int row) {
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
LQ_FN uint16_t lq_sight_mask(const lq_sight *s, int j) {
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
LQ_FN float lq_alibi(const lq_attn_args *a, int head, int at, int j) {
    if (!a->alibi_coarse) return a->alibi[head] * (float)(j - at);
    return a->scale * lq_bf16_near(a->alibi[head] * lq_bf16_near((float)j));
}
#endif
