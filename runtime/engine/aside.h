// aside.h: host memory for what preempted sequences have in the KV cache, so that they go on where they were instead of
// being computed again. Blocks are copied whole, in the order of the model's device; nothing allocates after open.
#ifndef LQ_ASIDE_H
#define LQ_ASIDE_H
#include "runtime/engine/kv.h"
#include "runtime/engine/request.h"

typedef struct lq_aside lq_aside;
typedef struct lq_aside_copies { // that the next step makes first: what dst[g][i] will hold still stands in src[g][i]
    const int *n;
    int32_t *const *src, *const *dst;
} lq_aside_copies;

// Room for as many blocks of each group as fit in so many bytes, in the proportion of `blocks`, a pool's.
bool lq_aside_open(const lq_model *m, const lq_kvpool *pool, int page, const int *blocks, size_t bytes,
                   lq_aside **out, lq_err *err);
void lq_aside_close(lq_aside *a);
// The first `tokens` of a running sequence, which stand in its blocks, are copied: s->aside. False: there is no room,
// and nothing was.
bool lq_aside_keep(lq_aside *a, const lq_kv *kv, lq_seq *s, int tokens, const lq_aside_copies *copies);
// Into the blocks that the sequence has now, those from entry `from` of its table on. Nothing is aside any more.
void lq_aside_back(lq_aside *a, const lq_kv *kv, lq_seq *s, int from);
void lq_aside_drop(lq_aside *a, lq_seq *s); // it ended
int lq_aside_used(const lq_aside *a);       // blocks, of all groups
#endif
