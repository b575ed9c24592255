// state.h: an engine's own, shared by engine.c (requests in, steps, what comes of them) and schedule.c (who runs, and
// how much of whom a step feeds).
#ifndef LQ_STATE_H
#define LQ_STATE_H
#include "runtime/engine/aside.h"
#include "runtime/engine/prefix.h"
#include "runtime/engine/request.h"
#include <pthread.h>

typedef struct want { // a row whose logits are wanted
    lq_seq *seq;
    int32_t row;
    int32_t given; // the prompt token whose logprob is asked for; -1: a token is to be drawn
} want;

enum { LQ_CLIENTS = 256 };
typedef struct lq_turn { uint64_t client, round; } lq_turn;

struct lq_engine {
    lq_model *m;
    lq_buffers *b;
    lq_kv *kv;
    lq_prefix *prefix;
    lq_aside *aside;             // NULL: who is preempted is computed again
    bool caches;                 // what sequences leave in the KV cache is of use to others
    int ended;                   // of so many there is room for what their windows hold
    lq_kvpool pool;
    int max_seqs, max_batch, max_queue, ctx;
    int max_prefill, max_beside; // tokens of prompts in a step; while anyone decodes
    int full;                    // the group of layers without a window; 0 where all have one
    int window_blocks[LQ_KV_GROUPS]; // that a sequence needs in a group with a window at most; 0: it has none

    pthread_mutex_t lock;        // of what follows, up to the map, and of kv while it is still
    pthread_cond_t bell;
    lq_req *incoming, **tail;    // submitted, not seen by a step yet
    lq_req **all;                // [all_cap] every live request, for lq_cancel
    int alls, all_cap, queued;
    size_t bytes;                // of all live requests
    bool woken;
    uint64_t next_id;
    lq_engine_stats stats;
    bool still, asked;           // no step moves blocks before it has the lock; somebody waits for that
    pthread_cond_t stills;
    lq_block_map map;            // as it was told last

    lq_req *waiting;             // no choice of which has run: by rank
    lq_seq *paused;              // preempted, or choices for which there was no place: by rank
    lq_seq **running;            // [max_seqs] in order of admission
    int runs, passes;            // passes: how many requests went by the one that waits first
    bool turn;
    uint64_t round;              // of the request that started last
    lq_turn turns[LQ_CLIENTS];   // the last one of each client, at a place by its number
    double looked, age;          // when it was last looked who has waited long; seconds that are long
    int hold;                    // prompts are fed no further; 0: to their end
    bool more;                   // requests are open, also such as no step has seen
    lq_engine_stats now;         // the step's own; copied to stats at its end
    int *take;                   // [max_seqs] tokens to feed of running[i]

    int32_t *ids, *seq, *pos, *first, *slot, *out; // of the batch
    int32_t *src[LQ_KV_GROUPS], *dst[LQ_KV_GROUPS]; // [max_seqs + 1] blocks to copy first: each's last, if it is shared
    int copies[LQ_KV_GROUPS];
    want *wants;                 // [max_batch + max_seqs]
    int want_count;
    lq_seq **pool_of;            // [max_batch] whose embedding takes the state of row hidden[i]
    int32_t *hidden;
    int hiddens;
    lq_draw *draw;               // [max_batch + max_seqs]
    lq_drawn *drawn;
    int32_t *top_id;             // [max_batch + max_seqs][LQ_TOP]
    float *top_logprob;
    lq_top top[LQ_TOP];
    char *text;                  // lq_seq_work bytes
    char blame[512];             // why the model's output is no number, once that was looked for
};

// schedule.c. All of it on the engine's thread.
void lq_sched_receive(lq_engine *e);       // what was submitted joins those that wait
void lq_sched_admit(lq_engine *e);         // whoever there is room for runs
void lq_sched_plan(lq_engine *e);          // e->take: what each is fed; some may have to give their blocks back
void lq_sched_put_back(lq_engine *e, lq_seq *s); // a sequence without a place in the cache waits for one
int lq_sched_sweep(lq_engine *e);          // who has ended waits no more; how many requests left the waiting list
#endif
