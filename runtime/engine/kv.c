// kv.c: block tables, counts, the free list, and the order in which blocks that a cache alone holds are given up. Owns
// arrays of ids only; every array is made at open.
#include "runtime/engine/kv.h"
#include <stdlib.h>
#include <string.h>

enum { CACHED = 1, WANTED = 2 }; // flags of a block; wanted: a hit asked for it, or a prompt ended with it
enum { PASSED, KEPT, LISTS };    // of blocks that the cache alone holds: those that go first, and the others

typedef struct kv_group {
    int window;
    int32_t *table;  // [max_seqs][stride]; -1: no block
    int32_t *count;  // [blocks] users of each
    int32_t *free;   // [blocks] stack
    int frees;
    uint8_t *flag;   // [blocks]
    int32_t *next, *prev; // [blocks + LISTS] rings of blocks that the cache alone holds; the last entries: their heads
    int heads, alone; // heads: where they begin; alone: how many such blocks there are
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
    lq_kv_evict *evict;
    void *evict_arg;
};

static bool group_open(kv_group *g, int blocks, size_t seqs, size_t stride) {
    const size_t n = (size_t)blocks;
    g->table = malloc(seqs * stride * sizeof *g->table);
    g->count = calloc(n, sizeof *g->count);
    g->free = malloc(n * sizeof *g->free);
    g->flag = calloc(n, sizeof *g->flag);
    g->next = malloc((n + LISTS) * sizeof *g->next);
    g->prev = malloc((n + LISTS) * sizeof *g->prev);
    g->end = calloc(seqs, sizeof *g->end);
    g->held = calloc(seqs, sizeof *g->held);
    if (!g->table || !g->count || !g->free || !g->flag || !g->next || !g->prev || !g->end || !g->held) return false;
    memset(g->table, -1, seqs * stride * sizeof *g->table);
    for (int b = 0; b < blocks; b++) g->free[b] = blocks - 1 - b;
    for (int l = 0; l < LISTS; l++) g->next[blocks + l] = g->prev[blocks + l] = blocks + l;
    g->heads = g->frees = blocks;
    return true;
}

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
    const size_t seqs = (size_t)o->max_seqs;
    kv->used = calloc(seqs, sizeof *kv->used);
    kv->changed = calloc(seqs, sizeof *kv->changed);
    kv->marked = calloc(seqs, sizeof *kv->marked);
    bool done = kv->used && kv->changed && kv->marked;
    for (int i = 0; i < o->groups; i++) {
        kv->g[i].window = o->window[i];
        done = group_open(&kv->g[i], o->blocks[i], seqs, (size_t)kv->stride) && done;
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
        free(kv->g[i].flag);
        free(kv->g[i].next);
        free(kv->g[i].prev);
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

// --- users of a block ---

static void join(kv_group *g, int32_t block, int list) {
    const int32_t head = g->heads + list, last = g->prev[head];
    g->next[last] = g->prev[head] = block;
    g->prev[block] = last;
    g->next[block] = head;
    g->alone++;
}

static void part(kv_group *g, int32_t block) {
    g->next[g->prev[block]] = g->next[block];
    g->prev[g->next[block]] = g->prev[block];
    g->alone--;
}

static bool is_alone(const kv_group *g, int32_t block) { return g->count[block] == 1 && g->flag[block] & CACHED; }

static void share(kv_group *g, int32_t block) {
    if (is_alone(g, block)) part(g, block);
    g->count[block]++;
}

// A sequence has no use for it any more. `passed`: because a window left it behind.
static void lose(kv_group *g, int32_t block, bool passed) {
    if (--g->count[block] == 0) g->free[g->frees++] = block;
    else if (is_alone(g, block)) join(g, block, passed && !(g->flag[block] & WANTED) ? PASSED : KEPT);
}

static void drop(kv_group *g, int seq, int32_t *entry, bool passed) {
    if (*entry >= 0) lose(g, *entry, passed);
    g->held[seq] -= *entry >= 0;
    *entry = -1;
}

// Blocks that may be taken.
static int left(const kv_group *g) { return g->frees + g->alone; }

static void take(lq_kv *kv, int group, int32_t *entry) {
    kv_group *g = &kv->g[group];
    const int32_t passed = g->next[g->heads + PASSED], kept = g->next[g->heads + KEPT];
    if (!g->frees) kv->evict(kv->evict_arg, group, passed < g->heads ? passed : kept);
    *entry = g->free[--g->frees];
    g->count[*entry] = 1;
    g->flag[*entry] = 0;
}

// --- sequences ---

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
        if ((all || !kv->g[i].window) && left(&kv->g[i]) < want - kv->g[i].end[seq]) return false;
    for (int i = 0; i < kv->o.groups; i++) {
        kv_group *g = &kv->g[i];
        if ((!all && g->window) || g->end[seq] >= want) continue;
        g->held[seq] += want - g->end[seq];
        for (int b = g->end[seq]; b < want; b++) take(kv, i, &row(kv, i, seq)[b]);
        g->end[seq] = want;
        mark(kv, seq);
    }
    return true;
}

// The first entry that the token behind `len` others sees.
static int first_seen(const lq_kv *kv, int group, int len) {
    const int w = kv->g[group].window;
    return w && len >= w ? (len - w + 1) / kv->o.page : 0;
}

bool lq_kv_regain(lq_kv *kv, int seq, int len) {
    const int want = (len + kv->o.page - 1) / kv->o.page;
    if (want > kv->stride) return false;
    for (int i = 0; i < kv->o.groups; i++) {
        const int seen = first_seen(kv, i, len), end = kv->g[i].end[seq];
        if (left(&kv->g[i]) < want - (seen > end ? seen : end)) return false;
    }
    for (int i = 0; i < kv->o.groups; i++) {
        kv_group *g = &kv->g[i];
        const int seen = first_seen(kv, i, len);
        int32_t *entry = row(kv, i, seq);
        for (int b = 0; b < seen && b < g->end[seq]; b++) drop(g, seq, &entry[b], true);
        for (; g->end[seq] < want; g->end[seq]++) {
            const int b = g->end[seq];
            if (b < seen) entry[b] = -1;
            else take(kv, i, &entry[b]);
            g->held[seq] += b >= seen;
        }
    }
    mark(kv, seq);
    return true;
}

void lq_kv_trim(lq_kv *kv, int seq, int len) {
    const int keep = (len + kv->o.page - 1) / kv->o.page;
    for (int i = 0; i < kv->o.groups; i++) {
        kv_group *g = &kv->g[i];
        if (keep >= g->end[seq]) continue;
        for (int b = g->end[seq] - 1; b >= keep; b--) drop(g, seq, &row(kv, i, seq)[b], false);
        g->end[seq] = keep;
        mark(kv, seq);
    }
}

// The next token stands at position len and sees len - window + 1 ..; a block wholly before that is never read again.
void lq_kv_slide(lq_kv *kv, int seq, int len) {
    for (int i = 0; i < kv->o.groups; i++) {
        const int w = kv->g[i].window, first = w ? (len - w + 1) / kv->o.page : 0;
        for (int b = first - 1; b >= 0 && row(kv, i, seq)[b] >= 0; b--) {
            drop(&kv->g[i], seq, &row(kv, i, seq)[b], true);
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
            share(g, id);
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
    if (n > left(g) || n > cap) return -1;
    n = 0;
    for (int b = first; b < last; b++) {
        if (entry[b] < 0 || g->count[entry[b]] == 1) continue;
        src[n] = entry[b];
        take(kv, group, &dst[n]);
        lose(g, entry[b], false);
        entry[b] = dst[n++];
        mark(kv, seq);
    }
    return n;
}

// --- for a cache ---

void lq_kv_evictor(lq_kv *kv, lq_kv_evict *evict, void *arg) {
    kv->evict = evict;
    kv->evict_arg = arg;
}

void lq_kv_cache(lq_kv *kv, int group, int32_t block) {
    kv->g[group].flag[block] |= CACHED;
    kv->g[group].count[block]++;
}

void lq_kv_uncache(lq_kv *kv, int group, int32_t block) {
    kv_group *g = &kv->g[group];
    if (is_alone(g, block)) part(g, block);
    g->flag[block] = 0;
    lose(g, block, false);
}

void lq_kv_attach(lq_kv *kv, int group, int seq, int at, int32_t block) {
    kv_group *g = &kv->g[group];
    row(kv, group, seq)[at] = block;
    if (g->end[seq] <= at) g->end[seq] = at + 1;
    mark(kv, seq);
    if (block < 0) return;
    share(g, block);
    g->flag[block] |= WANTED;
    g->held[seq]++;
}

void lq_kv_replace(lq_kv *kv, int group, int seq, int at, int32_t block) {
    int32_t *entry = &row(kv, group, seq)[at];
    share(&kv->g[group], block);
    lose(&kv->g[group], *entry, false);
    *entry = block;
    mark(kv, seq);
}

void lq_kv_want(lq_kv *kv, int seq) {
    for (int i = 0; i < kv->o.groups; i++) {
        const kv_group *g = &kv->g[i];
        for (int b = g->end[seq] - 1; g->window && b >= 0 && row(kv, i, seq)[b] >= 0; b--)
            g->flag[row(kv, i, seq)[b]] |= WANTED;
    }
}

int32_t lq_kv_entry(const lq_kv *kv, int group, int seq, int at) { return row(kv, group, seq)[at]; }
int lq_kv_count(const lq_kv *kv, int group, int32_t block) { return kv->g[group].count[block]; }
int lq_kv_cached(const lq_kv *kv, int group) { return kv->g[group].alone; }

const int32_t *lq_kv_tables(const lq_kv *kv, int group) { return kv->g[group].table; }
int lq_kv_table_stride(const lq_kv *kv) { return kv->stride; }
int lq_kv_free_blocks(const lq_kv *kv, int group) { return kv->g[group].frees; }
int lq_kv_held(const lq_kv *kv, int group, int seq) { return kv->g[group].held[seq]; }
int lq_kv_blocks(const lq_kv *kv, int group) { return kv->o.blocks[group]; }

void lq_kv_map(const lq_kv *kv, int group, lq_block_map *out) {
    const kv_group *g = &kv->g[group];
    const int blocks = kv->o.blocks[group], each = (blocks + LQ_BLOCK_CELLS - 1) / LQ_BLOCK_CELLS;
    *out = (lq_block_map){.blocks = blocks, .page = kv->o.page, .each = each, .cells = (blocks + each - 1) / each};
    for (int cell = 0, b = 0; cell < out->cells; cell++)
        for (const int end = blocks - b < each ? blocks : b + each; b < end; b++) {
            const int seqs = g->count[b] - (g->flag[b] & CACHED);
            const lq_block_use use = seqs > 1 ? LQ_BLOCK_SHARED : seqs ? LQ_BLOCK_HELD :
                                     g->count[b] ? LQ_BLOCK_CACHED : LQ_BLOCK_FREE;
            out->count[use]++;
            if (use > out->cell[cell]) out->cell[cell] = (uint8_t)use;
        }
}
