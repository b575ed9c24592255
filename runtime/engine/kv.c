// kv.c: block tables, counts and the free list. Owns arrays of ids only; every array is made at open.
#include "runtime/engine/kv.h"
#include <stdlib.h>
#include <string.h>

typedef struct kv_group {
    int window;
    int32_t *table;  // [max_seqs][stride]; -1: no block
    int32_t *count;  // [blocks] users of each
    int32_t *free;   // [blocks] stack
    int frees;
    int *end;        // [max_seqs] entries of the table in use; those that a window has left behind are -1
    int *held;       // [max_seqs] of these, with a block
} kv_group;

struct lq_kv {
    lq_kv_opts o;
    int stride;
    kv_group g[LQ_KV_GROUPS];
    bool *used;      // [max_seqs]
    int32_t *changed; // [max_seqs] rows that a device's copy of the tables lacks
    bool *marked;    // [max_seqs] in `changed`
    int changes;
};

bool lq_kv_open(const lq_kv_opts *o, lq_kv **out, lq_err *err) {
    *out = NULL;
    if (o->page < 1 || o->groups < 1 || o->groups > LQ_KV_GROUPS || o->max_seqs < 1 || o->max_len < 1)
        return lq_fail(err, LQ_E_USAGE, "KV cache: page %d, %d groups, %d sequences of %d: all must be positive",
                       o->page, o->groups, o->max_seqs, o->max_len);
    for (int i = 0; i < o->groups; i++)
        if (o->blocks[i] < 1) return lq_fail(err, LQ_E_USAGE, "KV cache: group %d has %d blocks", i, o->blocks[i]);
    lq_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return lq_fail(err, LQ_E_MEMORY, "no memory for the KV cache's tables");
    kv->o = *o;
    kv->stride = (o->max_len + o->page - 1) / o->page;
    const size_t seqs = (size_t)o->max_seqs, entries = seqs * (size_t)kv->stride;
    kv->used = calloc(seqs, sizeof *kv->used);
    kv->changed = calloc(seqs, sizeof *kv->changed);
    kv->marked = calloc(seqs, sizeof *kv->marked);
    bool done = kv->used && kv->changed && kv->marked;
    for (int i = 0; i < o->groups; i++) {
        kv_group *g = &kv->g[i];
        const size_t blocks = (size_t)o->blocks[i];
        g->window = o->window[i];
        g->table = malloc(entries * sizeof *g->table);
        g->count = calloc(blocks, sizeof *g->count);
        g->free = malloc(blocks * sizeof *g->free);
        g->end = calloc(seqs, sizeof *g->end);
        g->held = calloc(seqs, sizeof *g->held);
        if (!g->table || !g->count || !g->free || !g->end || !g->held) { done = false; continue; }
        memset(g->table, -1, entries * sizeof *g->table);
        for (int b = 0; b < o->blocks[i]; b++) g->free[b] = o->blocks[i] - 1 - b;
        g->frees = o->blocks[i];
    }
    if (!done) {
        lq_kv_close(kv);
        return lq_fail(err, LQ_E_MEMORY, "no memory for the KV cache's tables: %d sequences of %d blocks", o->max_seqs,
                       kv->stride);
    }
    *out = kv;
    return true;
}

void lq_kv_close(lq_kv *kv) {
    if (!kv) return;
    for (int i = 0; i < LQ_KV_GROUPS; i++) {
        free(kv->g[i].table);
        free(kv->g[i].count);
        free(kv->g[i].free);
        free(kv->g[i].end);
        free(kv->g[i].held);
    }
    free(kv->used);
    free(kv->changed);
    free(kv->marked);
    free(kv);
}

static int32_t *row(const lq_kv *kv, int group, int seq) {
    return kv->g[group].table + (size_t)seq * (size_t)kv->stride;
}

static void mark(lq_kv *kv, int seq) {
    if (!kv->marked[seq]) kv->changed[kv->changes++] = seq;
    kv->marked[seq] = true;
}

int lq_kv_changes(lq_kv *kv, const int32_t **rows) {
    const int n = kv->changes;
    for (int i = 0; i < n; i++) kv->marked[kv->changed[i]] = false;
    kv->changes = 0;
    *rows = kv->changed;
    return n;
}

static void drop(kv_group *g, int seq, int32_t *entry) {
    if (*entry >= 0 && --g->count[*entry] == 0) g->free[g->frees++] = *entry;
    g->held[seq] -= *entry >= 0;
    *entry = -1;
}

static void take(kv_group *g, int32_t *entry) {
    *entry = g->free[--g->frees];
    g->count[*entry] = 1;
}

int lq_kv_begin(lq_kv *kv) {
    for (int s = 0; s < kv->o.max_seqs; s++)
        if (!kv->used[s]) {
            kv->used[s] = true;
            return s;
        }
    return -1;
}

void lq_kv_end(lq_kv *kv, int seq) {
    lq_kv_trim(kv, seq, 0);
    kv->used[seq] = false;
}

bool lq_kv_grow(lq_kv *kv, int seq, int len, bool all) {
    const int want = (len + kv->o.page - 1) / kv->o.page;
    if (want > kv->stride) return false;
    for (int i = 0; i < kv->o.groups; i++)
        if ((all || !kv->g[i].window) && kv->g[i].frees < want - kv->g[i].end[seq]) return false;
    for (int i = 0; i < kv->o.groups; i++) {
        kv_group *g = &kv->g[i];
        if ((!all && g->window) || g->end[seq] >= want) continue;
        g->held[seq] += want - g->end[seq];
        for (int b = g->end[seq]; b < want; b++) take(g, &row(kv, i, seq)[b]);
        g->end[seq] = want;
        mark(kv, seq);
    }
    return true;
}

void lq_kv_trim(lq_kv *kv, int seq, int len) {
    const int keep = (len + kv->o.page - 1) / kv->o.page;
    for (int i = 0; i < kv->o.groups; i++) {
        kv_group *g = &kv->g[i];
        if (keep >= g->end[seq]) continue;
        for (int b = keep; b < g->end[seq]; b++) drop(g, seq, &row(kv, i, seq)[b]);
        g->end[seq] = keep;
        mark(kv, seq);
    }
}

// The next token stands at position len and sees len - window + 1 ..; a block wholly before that is never read again.
void lq_kv_slide(lq_kv *kv, int seq, int len) {
    for (int i = 0; i < kv->o.groups; i++) {
        const int w = kv->g[i].window, first = w ? (len - w + 1) / kv->o.page : 0;
        for (int b = first - 1; b >= 0 && row(kv, i, seq)[b] >= 0; b--) {
            drop(&kv->g[i], seq, &row(kv, i, seq)[b]);
            mark(kv, seq);
        }
    }
}

int lq_kv_fork(lq_kv *kv, int seq, int len) {
    const int to = lq_kv_begin(kv), blocks = (len + kv->o.page - 1) / kv->o.page;
    if (to < 0) return -1;
    for (int i = 0; i < kv->o.groups; i++) {
        kv_group *g = &kv->g[i];
        g->end[to] = blocks < g->end[seq] ? blocks : g->end[seq];
        for (int b = 0; b < g->end[to]; b++) {
            const int32_t id = row(kv, i, seq)[b];
            row(kv, i, to)[b] = id;
            if (id < 0) continue;
            g->count[id]++;
            g->held[to]++;
        }
    }
    mark(kv, to);
    return to;
}

int lq_kv_own(lq_kv *kv, int group, int seq, int from, int to, int32_t *src, int32_t *dst, int cap) {
    kv_group *g = &kv->g[group];
    int32_t *entry = row(kv, group, seq);
    const int first = from / kv->o.page, end = (to + kv->o.page - 1) / kv->o.page;
    const int last = end < g->end[seq] ? end : g->end[seq];
    int n = 0;
    for (int b = first; b < last; b++) n += entry[b] >= 0 && g->count[entry[b]] > 1;
    if (n > g->frees || n > cap) return -1;
    n = 0;
    for (int b = first; b < last; b++) {
        if (entry[b] < 0 || g->count[entry[b]] == 1) continue;
        src[n] = entry[b];
        g->count[entry[b]]--;
        take(g, &entry[b]);
        mark(kv, seq);
        dst[n++] = entry[b];
    }
    return n;
}

const int32_t *lq_kv_tables(const lq_kv *kv, int group) { return kv->g[group].table; }
int lq_kv_table_stride(const lq_kv *kv) { return kv->stride; }
int lq_kv_free_blocks(const lq_kv *kv, int group) { return kv->g[group].frees; }
int lq_kv_held(const lq_kv *kv, int group, int seq) { return kv->g[group].held[seq]; }
int lq_kv_blocks(const lq_kv *kv, int group) { return kv->o.blocks[group]; }
