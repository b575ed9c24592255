// aside.c: blocks of the KV cache with the host. Owns one region of memory, cut into blocks of each group, of which
// those that belong to one sequence are a list. A page that was never used is none of the machine's.
#include "runtime/engine/aside.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { NONE = -1 };

typedef struct aside_group {
    char *data;
    size_t bytes;          // of a block
    int32_t *next, *entry; // [blocks] the next one of the same sequence, or that is free; where it stood in the table
    int32_t free;
    int frees, blocks;
} aside_group;

struct lq_aside {
    const lq_model *m;
    const lq_kvpool *pool;
    char *data;
    size_t bytes;
    int groups, page;
    aside_group g[LQ_KV_GROUPS];
};

static bool group_open(aside_group *g, int blocks, char *data) {
    g->data = data;
    g->frees = g->blocks = blocks;
    g->next = malloc((size_t)blocks * sizeof *g->next);
    g->entry = malloc((size_t)blocks * sizeof *g->entry);
    if (!g->next || !g->entry) return false;
    for (int b = 0; b < blocks; b++) g->next[b] = b + 1 < blocks ? b + 1 : NONE;
    return true;
}

bool lq_aside_open(const lq_model *m, const lq_kvpool *pool, int page, const int *blocks, size_t bytes, lq_aside **out,
                   lq_err *err) {
    lq_aside *a = *out = calloc(1, sizeof *a);
    double all = 0;
    int64_t n[LQ_KV_GROUPS] = {0};
    if (!a) return lq_fail(err, LQ_E_MEMORY, "no memory for an engine");
    a->m = m, a->pool = pool, a->groups = m->desc.groups, a->page = page;
    for (int g = 0; g < a->groups; g++) {
        a->g[g].bytes = lq_kv_block_bytes(m, pool, g);
        all += (double)a->g[g].bytes * blocks[g];
    }
    for (int g = 0; g < a->groups; g++) {
        const double share = all > 0 ? (double)bytes / all * blocks[g] : 0;
        n[g] = share < INT32_MAX / 2 ? (int64_t)share : INT32_MAX / 2;
        a->bytes += (size_t)n[g] * a->g[g].bytes;
    }
    void *data = a->bytes ? mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                 -1, 0) : NULL;
    if (data != MAP_FAILED) a->data = data;
    bool done = data != MAP_FAILED;
    char *at = a->data;
    for (int g = 0; done && g < a->groups; g++) {
        done = !n[g] || group_open(&a->g[g], (int)n[g], at);
        if (at) at += (size_t)n[g] * a->g[g].bytes;
    }
    if (done) return true;
    lq_aside_close(a);
    *out = NULL;
    return lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes of preempted sequences", bytes);
}

void lq_aside_close(lq_aside *a) {
    if (!a) return;
    for (int g = 0; g < a->groups; g++) {
        free(a->g[g].next);
        free(a->g[g].entry);
    }
    if (a->data) munmap(a->data, a->bytes);
    free(a);
}

int lq_aside_used(const lq_aside *a) {
    int n = 0;
    for (int g = 0; g < a->groups; g++) n += a->g[g].blocks - a->g[g].frees;
    return n;
}

static int entries(const lq_aside *a, int tokens) {
    const int page = a->page;
    return (tokens + page - 1) / page;
}

// Where the contents of a block stand that may not have been copied yet.
static int32_t source(const lq_aside_copies *c, int g, int32_t block) {
    for (int i = c->n[g] - 1; i >= 0; i--)
        if (c->dst[g][i] == block) return c->src[g][i];
    return block;
}

bool lq_aside_keep(lq_aside *a, const lq_kv *kv, lq_seq *s, int tokens, const lq_aside_copies *copies) {
    const int end = entries(a, tokens);
    for (int g = 0; g < a->groups; g++) {
        int need = 0;
        for (int at = 0; at < end; at++) need += lq_kv_entry(kv, g, s->kv, at) >= 0;
        if (need > a->g[g].frees) return false;
    }
    for (int g = 0; g < a->groups; g++) {
        aside_group *o = &a->g[g];
        s->aside.first[g] = NONE;
        for (int at = 0; at < end; at++) {
            const int32_t block = lq_kv_entry(kv, g, s->kv, at), to = o->free;
            if (block < 0) continue;
            const int32_t from = source(copies, g, block);
            o->free = o->next[to];
            o->frees--;
            o->entry[to] = at;
            o->next[to] = s->aside.first[g];
            s->aside.first[g] = to;
            lq_kv_out(a->m, a->pool, g, 1, &from, o->data + (size_t)to * o->bytes);
        }
    }
    s->aside.tokens = tokens;
    return true;
}

void lq_aside_back(lq_aside *a, const lq_kv *kv, lq_seq *s, int from) {
    for (int g = 0; g < a->groups; g++)
        for (int32_t b = s->aside.first[g]; b != NONE; b = a->g[g].next[b]) {
            const int at = a->g[g].entry[b];
            const int32_t to = at < from ? NONE : lq_kv_entry(kv, g, s->kv, at);
            if (to >= 0) lq_kv_in(a->m, a->pool, g, 1, &to, a->g[g].data + (size_t)b * a->g[g].bytes);
        }
    lq_aside_drop(a, s);
}

void lq_aside_drop(lq_aside *a, lq_seq *s) {
    if (!s->aside.tokens) return;
    for (int g = 0; g < a->groups; g++)
        for (int32_t b = s->aside.first[g], next; b != NONE; b = next) {
            next = a->g[g].next[b];
            a->g[g].next[b] = a->g[g].free;
            a->g[g].free = b;
            a->g[g].frees++;
        }
    s->aside.tokens = 0;
}
