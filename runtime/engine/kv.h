// kv.h: who owns which block of the KV cache. Pure bookkeeping over block ids; the bytes belong to the model's device.
//
// Layers with one window form a group and share block tables; a block id is valid for all layers of its group.
// A block is `page` tokens. Blocks are counted: forks share them and the first writer copies (lq_kv_own). A cache may
// count blocks too (prefix.c); those that it alone holds are as good as free: where none is left, the one that has been
// of no use longest is asked back. Nothing here allocates after open.
#ifndef LQ_KV_H
#define LQ_KV_H
#include "runtime/lq.h"
#include "runtime/model/arch.h"

typedef struct lq_kv lq_kv;
typedef struct lq_kv_opts {
    int page;
    int groups;
    int blocks[LQ_KV_GROUPS]; // of each group
    int window[LQ_KV_GROUPS]; // of each group; 0: all
    int max_seqs, max_len;  // tables: [max_seqs][ceil(max_len / page)]
} lq_kv_opts;

bool lq_kv_open(const lq_kv_opts *o, lq_kv **out, lq_err *err);
void lq_kv_close(lq_kv *kv);

// A sequence's slot (a row of the tables), or -1: none free.
int lq_kv_begin(lq_kv *kv);
void lq_kv_end(lq_kv *kv, int seq);                  // gives every block back, the last one first
// Makes room for positions [0, len) of a sequence in the groups without a window, with `all` in every group: a window
// needs room when its tokens are about to come. False (and nothing taken) when blocks have run out.
bool lq_kv_grow(lq_kv *kv, int seq, int len, bool all);
// The same of a sequence whose first `len` tokens are about to be put there: in every group, but a window gets room for
// what the token behind them sees, and loses what it does not.
bool lq_kv_regain(lq_kv *kv, int seq, int len);
void lq_kv_trim(lq_kv *kv, int seq, int len);        // forget positions past len
void lq_kv_slide(lq_kv *kv, int seq, int len);       // free what every window has left behind
int lq_kv_fork(lq_kv *kv, int seq, int len);         // a new sequence that shares [0, len); -1: no slot
// Blocks of positions [from, to) that others see too are replaced; the caller copies src[i] to dst[i] in the group's
// layers. Returns how many; -1 (and nothing done) when blocks have run out or there are more than cap.
int lq_kv_own(lq_kv *kv, int group, int seq, int from, int to, int32_t *src, int32_t *dst, int cap);

// --- for a cache ---
//
// What it holds alone goes in this order: first blocks that a window left behind and no hit ever asked for, then what
// sequences gave back, each in the order in which that happened. Of one sequence the last block goes first.

// Called where a block is needed and none is free: lq_kv_uncache of this one, which the cache alone holds.
typedef void lq_kv_evict(void *arg, int group, int32_t block);
void lq_kv_evictor(lq_kv *kv, lq_kv_evict *evict, void *arg);
void lq_kv_cache(lq_kv *kv, int group, int32_t block);   // the cache counts a block that a sequence has
void lq_kv_uncache(lq_kv *kv, int group, int32_t block); // and no longer
// The entry `at` of a new sequence's table is a block of the cache; -1: a window left it behind.
void lq_kv_attach(lq_kv *kv, int group, int seq, int at, int32_t block);
// Another block of the same contents in place of one that is in use.
void lq_kv_replace(lq_kv *kv, int group, int seq, int at, int32_t block);
// The blocks that a sequence's windows hold now are kept like those it ends with when they are left behind.
void lq_kv_want(lq_kv *kv, int seq);
int32_t lq_kv_entry(const lq_kv *kv, int group, int seq, int at); // of a sequence's table; -1: no block
int lq_kv_count(const lq_kv *kv, int group, int32_t block);  // users of a block, the cache too
int lq_kv_cached(const lq_kv *kv, int group);                // blocks that the cache alone holds

const int32_t *lq_kv_tables(const lq_kv *kv, int group); // [max_seqs][stride], kept from step to step; row: sequence
// Rows of the tables that changed since the last call, in any group: for a device that keeps a
// copy. At most max_seqs of them.
int lq_kv_changes(lq_kv *kv, const int32_t **rows);
int lq_kv_table_stride(const lq_kv *kv);
int lq_kv_free_blocks(const lq_kv *kv, int group);
int lq_kv_held(const lq_kv *kv, int group, int seq); // blocks of a sequence, shared ones too
int lq_kv_blocks(const lq_kv *kv, int group);
void lq_kv_map(const lq_kv *kv, int group, lq_block_map *out); // what each block of the group is for
#endif
