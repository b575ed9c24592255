// prefix.c: the tree of prefix.h. Owns nodes, a hash table over (parent, salt, tokens) and how far each sequence is
// part of the tree; counts blocks in a kv that is the caller's. A hash only says where to look: tokens are compared.
// Every array is made at open.
#include "runtime/engine/prefix.h"
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

enum { ROOT = 0, NONE = -1 };
enum { LOOKED = 64 }; // of the nodes behind one: the newest, when a beginning ends within a block

typedef struct node {
    int32_t parent, child, next, prev; // next, prev: behind the same parent
    int32_t users;                     // sequences whose last whole block this is
    int32_t count;                     // tokens; fewer than a page: a leaf
    uint64_t salt;
    uint64_t hash;
    int32_t block[LQ_KV_GROUPS];       // NONE: gone
} node;

typedef struct path { int32_t node; int blocks; uint64_t salt; } path;

struct lq_prefix {
    lq_kv *kv;
    int page, groups, window[LQ_KV_GROUPS];
    bool on;
    node *node;      // [nodes], the root first
    int32_t *ids;    // [nodes][page]
    int32_t free;    // the first of those that are not in the tree, by next
    int used;
    int32_t *slot;   // [mask + 1] nodes of whole blocks, by hash; NONE: free
    uint64_t mask, seed;
    int32_t *owner[LQ_KV_GROUPS]; // [blocks] a block's node
    path *path;      // [max_seqs]
};

// --- opening ---

// Each node has a block of the group without a window. Where all have one, a node may have lost its block to keep those
// behind it in reach: as many are there as all sequences have.
static size_t nodes_for(const lq_kv_opts *o) {
    size_t most = 0;
    for (int g = 0; g < o->groups; g++) {
        if (!o->window[g]) return (size_t)o->blocks[g] + 1;
        if ((size_t)o->blocks[g] > most) most = (size_t)o->blocks[g];
    }
    return most + (size_t)o->max_seqs * (size_t)((o->max_len + o->page - 1) / o->page) + 1;
}

static bool open_arrays(lq_prefix *p, const lq_kv_opts *o) {
    const size_t nodes = p->on ? nodes_for(o) : 1;
    p->mask = 1;
    while (p->mask < nodes * 2) p->mask *= 2;
    p->slot = malloc(p->mask * sizeof *p->slot);
    p->node = calloc(nodes, sizeof *p->node);
    p->ids = calloc(nodes, (size_t)o->page * sizeof *p->ids);
    p->path = calloc((size_t)o->max_seqs, sizeof *p->path);
    bool done = p->slot && p->node && p->ids && p->path;
    for (int g = 0; p->on && g < o->groups; g++)
        done = (p->owner[g] = malloc((size_t)o->blocks[g] * sizeof **p->owner)) && done;
    if (!done) return false;
    memset(p->slot, NONE, p->mask * sizeof *p->slot);
    p->mask--;
    p->free = NONE;
    for (size_t n = nodes - 1; n > ROOT; n--) p->node[n].next = p->free, p->free = (int32_t)n;
    p->node[ROOT] = (node){.parent = NONE, .child = NONE, .next = NONE, .prev = NONE};
    return getrandom(&p->seed, sizeof p->seed, 0) == (ssize_t)sizeof p->seed;
}

static void evict(void *arg, int group, int32_t block);

bool lq_prefix_open(lq_kv *kv, const lq_kv_opts *o, bool on, lq_prefix **out, lq_err *err) {
    lq_prefix *p = *out = calloc(1, sizeof *p);
    if (p) *p = (lq_prefix){.kv = kv, .page = o->page, .groups = o->groups, .on = on};
    if (p) memcpy(p->window, o->window, sizeof p->window);
    if (!p || !open_arrays(p, o)) {
        lq_prefix_close(p);
        *out = NULL;
        return lq_fail(err, LQ_E_MEMORY, "no memory for the prefix cache");
    }
    lq_kv_evictor(kv, evict, p);
    return true;
}

void lq_prefix_close(lq_prefix *p) {
    if (!p) return;
    for (int g = 0; g < LQ_KV_GROUPS; g++) free(p->owner[g]);
    free(p->slot);
    free(p->node);
    free(p->ids);
    free(p->path);
    free(p);
}

int lq_prefix_nodes(const lq_prefix *p) { return p->used; }

// --- nodes ---

static int32_t *ids_of(const lq_prefix *p, int32_t n) { return p->ids + (size_t)n * (size_t)p->page; }

static uint64_t hash_of(const lq_prefix *p, int32_t parent, const int32_t *ids, uint64_t salt) {
    const uint64_t from[2] = {salt, (uint64_t)parent};
    return XXH64(ids, (size_t)p->page * sizeof *ids, XXH64(from, sizeof from, p->seed));
}

// The node of a whole block behind another.
static int32_t follow(const lq_prefix *p, int32_t parent, const int32_t *ids, uint64_t salt) {
    const uint64_t hash = hash_of(p, parent, ids, salt);
    for (uint64_t at = hash & p->mask; p->slot[at] != NONE; at = (at + 1) & p->mask) {
        const node *n = &p->node[p->slot[at]];
        if (n->hash == hash && n->parent == parent && n->salt == salt &&
            !memcmp(ids_of(p, p->slot[at]), ids, (size_t)p->page * sizeof *ids))
            return p->slot[at];
    }
    return NONE;
}

static int32_t add(lq_prefix *p, int32_t parent, const int32_t *ids, int count, uint64_t salt) {
    const int32_t i = p->free, first = p->node[parent].child;
    if (i == NONE) return NONE;
    node *n = &p->node[i];
    p->free = n->next;
    p->used++;
    *n = (node){.parent = parent, .child = NONE, .next = first, .prev = NONE, .count = count, .salt = salt};
    for (int g = 0; g < LQ_KV_GROUPS; g++) n->block[g] = NONE;
    memcpy(ids_of(p, i), ids, (size_t)count * sizeof *ids);
    if (first != NONE) p->node[first].prev = i;
    p->node[parent].child = i;
    if (count < p->page) return i;
    n->hash = hash_of(p, parent, ids, salt);
    uint64_t at = n->hash & p->mask;
    while (p->slot[at] != NONE) at = (at + 1) & p->mask;
    p->slot[at] = i;
    return i;
}

// Out of the table: those behind it in a row of entries move up, unless they stand before the place they look from.
static void unhash(lq_prefix *p, int32_t i) {
    uint64_t gap = p->node[i].hash & p->mask;
    while (p->slot[gap] != i) gap = (gap + 1) & p->mask;
    for (uint64_t at = (gap + 1) & p->mask; p->slot[at] != NONE; at = (at + 1) & p->mask) {
        const uint64_t home = p->node[p->slot[at]].hash & p->mask;
        if (((at - home) & p->mask) < ((at - gap) & p->mask)) continue;
        p->slot[gap] = p->slot[at];
        gap = at;
    }
    p->slot[gap] = NONE;
}

static void drop(lq_prefix *p, node *n, int group) {
    const int32_t block = n->block[group];
    n->block[group] = NONE;
    if (block != NONE) lq_kv_uncache(p->kv, group, block);
}

static bool useless(const lq_prefix *p, const node *n) {
    for (int g = 0; g < p->groups; g++)
        if (n->block[g] != NONE) return false;
    return n->child == NONE && !n->users;
}

// A node without blocks that leads nowhere goes, and with it those that led to nothing else.
static void prune(lq_prefix *p, int32_t i) {
    while (i != ROOT && useless(p, &p->node[i])) {
        node *n = &p->node[i];
        const int32_t parent = n->parent;
        if (n->next != NONE) p->node[n->next].prev = n->prev;
        if (n->prev != NONE) p->node[n->prev].next = n->next;
        else p->node[parent].child = n->next;
        if (n->count == p->page) unhash(p, i);
        n->next = p->free;
        p->free = i;
        p->used--;
        i = parent;
    }
}

// Without its block of the group that keeps all a node leads nowhere; one of a few tokens needs all its blocks.
static void evict(void *arg, int group, int32_t block) {
    lq_prefix *p = arg;
    const int32_t i = p->owner[group][block];
    node *n = &p->node[i];
    const bool all = !p->window[group] || n->count < p->page;
    for (int g = 0; g < p->groups; g++)
        if (all || g == group) drop(p, n, g);
    prune(p, i);
}

// --- looking up ---

typedef struct search {
    int blocks;             // whole ones of the path so far
    int gap[LQ_KV_GROUPS];  // from this one on they are all there
} search;

// The first block that the token behind n others sees.
static int first_seen(const lq_prefix *p, int g, int n) {
    const int w = p->window[g];
    return w && n >= w ? (n - w + 1) / p->page : 0;
}

static void go_on(search *s, const lq_prefix *p, const node *n) {
    for (int g = 0; g < p->groups; g++)
        if (n->block[g] == NONE) s->gap[g] = s->blocks + 1;
    s->blocks++;
}

// Whether a beginning of n tokens can be gone on from.
static bool usable(const search *s, const lq_prefix *p, int n) {
    for (int g = 0; g < p->groups; g++)
        if (s->gap[g] > first_seen(p, g, n)) return false;
    return true;
}

// How many tokens of a block agree.
static int agree(const int32_t *a, const int32_t *b, int most) {
    int n = 0;
    while (n < most && a[n] == b[n]) n++;
    return n;
}

// Behind the whole blocks the longest beginning of another.
static void find_part(const lq_prefix *p, const search *s, int32_t parent, const int32_t *ids, int most, uint64_t salt,
                      lq_hit *hit) {
    int looked = 0;
    for (int32_t i = p->node[parent].child; i != NONE && looked < LOOKED; i = p->node[i].next, looked++) {
        const node *n = &p->node[i];
        const int at = s->blocks * p->page, count = n->count < most - at ? n->count : most - at;
        const int same = agree(ids_of(p, i), ids + at, count);
        search with = *s;
        if (!same || at + same <= hit->tokens || n->salt != salt) continue;
        go_on(&with, p, n);
        bool alone = n->count == same && same < p->page;
        for (int g = 0; g < p->groups; g++)
            alone = alone && n->block[g] != NONE && lq_kv_count(p->kv, g, n->block[g]) == 1;
        if (!usable(&with, p, at + same)) continue;
        hit->tokens = at + same, hit->blocks = s->blocks;
        hit->node = parent, hit->part = i;
        hit->whole = alone;
    }
}

static void count_blocks(const lq_prefix *p, lq_hit *hit) {
    for (int g = 0; g < p->groups; g++) {
        int32_t i = hit->node;
        for (int b = hit->blocks - 1; b >= first_seen(p, g, hit->tokens); b--, i = p->node[i].parent) {
            hit->held[g]++;
            hit->alone[g] += lq_kv_count(p->kv, g, p->node[i].block[g]) == 1;
        }
        if (hit->part == NONE) continue;
        hit->held[g] += hit->whole;
        hit->alone[g] += lq_kv_count(p->kv, g, p->node[hit->part].block[g]) == 1;
    }
}

void lq_prefix_find(const lq_prefix *p, const int32_t *ids, int most, uint64_t salt, lq_hit *out) {
    search s = {0};
    int32_t n = ROOT, next;
    *out = (lq_hit){.node = ROOT, .part = NONE};
    while (p->used && s.blocks < most / p->page && (next = follow(p, n, ids + s.blocks * p->page, salt)) != NONE) {
        n = next;
        go_on(&s, p, &p->node[n]);
        if (!usable(&s, p, s.blocks * p->page)) continue;
        out->tokens = s.blocks * p->page;
        out->blocks = s.blocks, out->node = n;
    }
    if (p->used && s.blocks * p->page < most) find_part(p, &s, n, ids, most, salt, out);
    count_blocks(p, out);
}

// --- sequences ---

static void leave_node(lq_prefix *p, path *t) {
    p->node[t->node].users--;
    prune(p, t->node);
}

static void go_to(lq_prefix *p, path *t, int32_t n) {
    p->node[n].users++;
    t->node = n;
}

void lq_prefix_enter(lq_prefix *p, int seq, uint64_t salt, const lq_hit *hit) {
    path *t = &p->path[seq];
    *t = (path){.blocks = hit->blocks, .salt = salt};
    go_to(p, t, hit->node);
    int32_t i = hit->node;
    for (int b = hit->blocks - 1; b >= 0; b--, i = p->node[i].parent)
        for (int g = 0; g < p->groups; g++)
            lq_kv_attach(p->kv, g, seq, b, b < first_seen(p, g, hit->tokens) ? NONE : p->node[i].block[g]);
    if (hit->part == NONE) return;
    node *n = &p->node[hit->part];
    for (int g = 0; g < p->groups; g++) lq_kv_attach(p->kv, g, seq, hit->blocks, n->block[g]);
    for (int g = 0; hit->whole && g < p->groups; g++) drop(p, n, g);
    if (hit->whole) prune(p, hit->part);
}

// A node has a sequence's blocks where it lacks them, and the sequence the node's.
static void unite(lq_prefix *p, int32_t i, int seq, int at) {
    for (int g = 0; g < p->groups; g++) {
        const int32_t mine = lq_kv_entry(p->kv, g, seq, at);
        int32_t *its = &p->node[i].block[g];
        if (mine == NONE || mine == *its) continue;
        if (*its != NONE) lq_kv_replace(p->kv, g, seq, at, *its);
        else {
            *its = mine;
            p->owner[g][mine] = i;
            lq_kv_cache(p->kv, g, mine);
        }
    }
}

void lq_prefix_store(lq_prefix *p, int seq, const int32_t *ids, int done) {
    path *t = &p->path[seq];
    while (p->on && (t->blocks + 1) * p->page <= done) {
        const int32_t *block = ids + t->blocks * p->page;
        int32_t n = follow(p, t->node, block, t->salt);
        if (n == NONE) n = add(p, t->node, block, p->page, t->salt);
        if (n == NONE) return; // all nodes are in use: once more after the next step
        unite(p, n, seq, t->blocks);
        p->node[t->node].users--;
        go_to(p, t, n);
        t->blocks++;
    }
}

void lq_prefix_fork(lq_prefix *p, int seq, int to) {
    p->path[to] = p->path[seq];
    go_to(p, &p->path[to], p->path[seq].node);
}

// What others have of it already is not kept twice.
static void store_end(lq_prefix *p, int seq, const int32_t *ids, int count) {
    const path *t = &p->path[seq];
    int looked = 0;
    for (int32_t i = p->node[t->node].child; i != NONE && looked < LOOKED; i = p->node[i].next, looked++)
        if (p->node[i].salt == t->salt && p->node[i].count >= count && agree(ids_of(p, i), ids, count) == count) return;
    const int32_t n = add(p, t->node, ids, count, t->salt);
    if (n != NONE) unite(p, n, seq, t->blocks);
}

void lq_prefix_leave(lq_prefix *p, int seq, const int32_t *ids, int done, bool end) {
    path *t = &p->path[seq];
    const int from = t->blocks * p->page;
    if (p->on && end && done > from && done < from + p->page) store_end(p, seq, ids + from, done - from);
    lq_kv_end(p->kv, seq);
    leave_node(p, t);
}
