// kv.h: who owns which block of the KV cache. Pure bookkeeping over block ids; the bytes belong to the model's device.
//
// Layers with one window form a group and share block tables; a block id is valid for all layers of its group.
// A block is `page` tokens. Blocks are counted: forks share them and the first writer copies (lq_kv_own).
// Nothing here allocates after open.
#ifndef LQ_KV_H
#define LQ_KV_H
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
void lq_kv_end(lq_kv *kv, int seq);                  // gives every block back
// Makes room for positions [0, len) of a sequence in the groups without a window, with `all` in every group: a window
// needs room when its tokens are about to come. False (and nothing taken) when blocks have run out.
bool lq_kv_grow(lq_kv *kv, int seq, int len, bool all);
void lq_kv_trim(lq_kv *kv, int seq, int len);        // forget positions past len
void lq_kv_slide(lq_kv *kv, int seq, int len);       // free what every window has left behind
int lq_kv_fork(lq_kv *kv, int seq, int len);         // a new sequence that shares [0, len); -1: no slot
// Blocks of positions [from, to) that others see too are replaced; the caller copies src[i] to dst[i] in the group's
// layers. Returns how many; -1 (and nothing done) when blocks have run out or there are more than cap.
int lq_kv_own(lq_kv *kv, int group, int seq, int from, int to, int32_t *src, int32_t *dst, int cap);

const int32_t *lq_kv_tables(const lq_kv *kv, int group); // [max_seqs][stride], kept from step to step; row: sequence
// Rows of the tables that changed since the last call, in any group: for a device that keeps a
// copy. At most max_seqs of them.
int lq_kv_changes(lq_kv *kv, const int32_t **rows);
int lq_kv_table_stride(const lq_kv *kv);
int lq_kv_free_blocks(const lq_kv *kv, int group);
int lq_kv_held(const lq_kv *kv, int group, int seq); // blocks of a sequence, shared ones too
int lq_kv_blocks(const lq_kv *kv, int group);
#endif
