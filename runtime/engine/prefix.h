// prefix.h: which beginnings of token sequences the KV cache holds. A tree of blocks over token ids:
//
//     root -- [system prompt 0..31] -- [32..63] -+- [question A] -- [answer A] -- (its end)
//                                                +- [question B] -- (its end)
//
// A node is a block of `page` tokens that follow those of its parent, with the block's id in each window group. A
// sequence that begins with the tokens of a path shares the path's blocks. A node joins the tree as soon as its block
// is full; what a sequence leaves in its last block joins as a leaf of fewer tokens when it ends. Where a sequence
// departs from the tree within a block, it shares that one too, and lq_kv_own copies it before it is written to.
//
// The cache counts each of its blocks once (lq_kv_cache). Whoever shares a block shares those before it, and a
// sequence gives its last block back first, so that of the blocks which the cache alone holds the one that goes first
// is always a leaf's. In a group with a window blocks go one by one; a beginning is of use where all are there that its
// next token sees.
#ifndef LQ_PREFIX_H
#define LQ_PREFIX_H
#include "runtime/engine/kv.h"

typedef struct lq_prefix lq_prefix;

// What the tree holds of a sequence's beginning.
typedef struct lq_hit {
    int tokens, blocks;     // blocks: whole ones
    int32_t node, part;     // of the last whole block (0: the root), of the one in which they end (-1: there is none)
    bool whole;             // they are all that `part` has, and nobody else needs it: it becomes the sequence's own
    int held[LQ_KV_GROUPS]; // blocks that the sequence would have and need not take
    int alone[LQ_KV_GROUPS]; // blocks of which the cache would no longer be the only one to hold them
} lq_hit;

// Of a cache that was opened with these options. `on` false: it holds nothing, ever.
bool lq_prefix_open(lq_kv *kv, const lq_kv_opts *o, bool on, lq_prefix **out, lq_err *err);
void lq_prefix_close(lq_prefix *p);

// The longest beginning, of `most` tokens at most. Sequences of different salt share nothing.
void lq_prefix_find(const lq_prefix *p, const int32_t *ids, int most, uint64_t salt, lq_hit *out);
// A sequence that has nothing yet (lq_kv_begin) begins with what was found just now.
void lq_prefix_enter(lq_prefix *p, int seq, uint64_t salt, const lq_hit *hit);
// The first `done` tokens of a sequence stand in its blocks: those that are full join the tree. Where it has them
// already, the sequence takes the tree's and gives its own back.
void lq_prefix_store(lq_prefix *p, int seq, const int32_t *ids, int done);
void lq_prefix_fork(lq_prefix *p, int seq, int to); // after lq_kv_fork
// lq_kv_end. `end`: what stands in the last block joins as well.
void lq_prefix_leave(lq_prefix *p, int seq, const int32_t *ids, int done, bool end);

int lq_prefix_nodes(const lq_prefix *p); // in the tree
#endif
