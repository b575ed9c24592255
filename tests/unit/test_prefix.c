// test_prefix.c: the tree of cached beginnings, over random lives of sequences in a cache that is too small. Beside it
// stands a memory in which each place holds a hash of all tokens up to it, so that a block's contents tell what it is:
// whatever is found must be right, nothing longer may be there (every cached block is looked at, without a tree), every
// block is free or counted by those that have it, and in the end all can be had. Then the order in which blocks go.
#include "runtime/engine/prefix.h"
#include "tests/unit/test.h"

enum { SEQS = 5, PAGE = 4, LEN = 64, MOST = 40, GROUPS = 2, STRIDE = LEN / PAGE };

typedef struct life { // of a sequence
    bool live;
    int len, done;
    uint64_t salt;
    int32_t ids[LEN];
    uint64_t hash[LEN]; // of salt and tokens up to here
} life;

typedef struct world {
    lq_kv *kv;
    lq_prefix *p;
    lq_kv_opts o;
    life seq[SEQS], past[64];
    uint64_t memory[GROUPS][MOST][PAGE];
    uint64_t random;
    int pasts, finds, hits, parts, shares, copies, lacks, forks;
} world;

static int draw(world *w, int n) {
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((w->random >> 33) % (uint64_t)n);
}

static void hash(life *l) {
    uint64_t h = (l->salt + 1) << 32;
    for (int i = 0; i < l->len; i++) {
        h = (h ^ (uint64_t)(l->ids[i] + 1)) * 0x9e3779b97f4a7c15u;
        l->hash[i] = h ^= h >> 29;
    }
}

static int32_t entry(const world *w, int g, int seq, int at) { return lq_kv_entry(w->kv, g, seq, at); }

static int first_seen(const world *w, int g, int n) { // by definition: the token at n sees n - window + 1 ..
    const int window = w->o.window[g], at = window ? n - window + 1 : 0;
    return at > 0 ? at / PAGE : 0;
}

static int users(const world *w, int g, int block) {
    int n = 0;
    for (int s = 0; s < SEQS; s++)
        for (int b = 0; b < STRIDE; b++) n += entry(w, g, s, b) == block;
    return n;
}

static bool cached(const world *w, int g, int block) { return lq_kv_count(w->kv, g, block) > users(w, g, block); }

// Whether a block is in the cache that holds positions [at, to) of a sequence.
static bool stands(const world *w, const life *l, int g, int at, int to) {
    for (int b = 0; b < w->o.blocks[g]; b++) {
        if (!cached(w, g, b)) continue;
        int i = at;
        while (i < to && w->memory[g][b][i % PAGE] == l->hash[i]) i++;
        if (i == to) return true;
    }
    return false;
}

static bool usable(const world *w, const life *l, int n) {
    for (int g = 0; g < w->o.groups; g++)
        for (int b = first_seen(w, g, n); b * PAGE < n; b++)
            if (!stands(w, l, g, b * PAGE, (b + 1) * PAGE < n ? (b + 1) * PAGE : n)) return false;
    return true;
}

// The longest beginning: of whole blocks, and of what goes beyond the last of those that the tree knows.
static void look(const world *w, const life *l, int most, int *whole, int *longest) {
    int known = 0;
    *whole = *longest = 0;
    while ((known + 1) * PAGE <= most && stands(w, l, 0, known * PAGE, (known + 1) * PAGE)) known++;
    for (int n = 1; n <= most; n++) {
        if (!usable(w, l, n)) continue;
        if (n % PAGE == 0) *whole = n;
        if (n % PAGE == 0 || w->o.window[0] || n > known * PAGE) *longest = n;
    }
}

static bool counts(const world *w) {
    for (int g = 0; g < w->o.groups; g++) {
        int used = 0, alone = 0, held = 0;
        for (int b = 0; b < w->o.blocks[g]; b++) {
            const int have = users(w, g, b), count = lq_kv_count(w->kv, g, b);
            if (count != have && count != have + 1) return false;
            used += count > 0;
            alone += count == 1 && !have;
            held += count > have;
        }
        if (used + lq_kv_free_blocks(w->kv, g) != w->o.blocks[g] || alone != lq_kv_cached(w->kv, g)) return false;
        if (!w->o.window[g] && held != lq_prefix_nodes(w->p)) return false; // a node each
    }
    return true;
}

// All that the next token sees is there.
static bool right(const world *w, int seq) {
    const life *l = &w->seq[seq];
    for (int g = 0; g < w->o.groups; g++) {
        const int window = w->o.window[g];
        for (int i = window && l->done >= window ? l->done - window + 1 : 0; i < l->done; i++) {
            const int32_t b = entry(w, g, seq, i / PAGE);
            if (b < 0 || w->memory[g][b][i % PAGE] != l->hash[i]) return false;
        }
    }
    return true;
}

static void end(world *w, int seq, bool all) {
    life *l = &w->seq[seq];
    w->past[w->pasts++ % 64] = *l;
    lq_prefix_leave(w->p, seq, l->ids, l->done, all);
    l->live = false;
}

// One that goes on from another, or is new.
static void begin(world *w) {
    life l = {.live = true, .salt = (uint64_t)draw(w, 8) / 7};
    lq_hit hit;
    int whole, longest;
    if (w->pasts && draw(w, 5)) {
        const life *from = &w->past[draw(w, w->pasts < 64 ? w->pasts : 64)];
        l.len = draw(w, 3) ? from->len - draw(w, from->len < 6 ? from->len : 6) : draw(w, from->len + 1);
        memcpy(l.ids, from->ids, sizeof l.ids);
    }
    for (int n = 1 + draw(w, 9); n > 0 && l.len < LEN - 12; n--) l.ids[l.len++] = draw(w, 3);
    if (!l.len) l.len = 1;
    hash(&l);
    lq_prefix_find(w->p, l.ids, l.len - 1, l.salt, &hit);
    look(w, &l, l.len - 1, &whole, &longest);
    const bool exact = w->o.groups > 1 || !w->o.window[0];
    CHECK(exact ? hit.tokens == longest : hit.tokens >= whole && hit.tokens <= longest,
          "%d tokens were found, not %d (%d in whole blocks)", hit.tokens, longest, whole);
    w->finds++, w->hits += hit.tokens > 0, w->parts += hit.part >= 0;
    const int seq = lq_kv_begin(w->kv);
    if (seq < 0) return;
    int had[GROUPS], held = 0;
    for (int g = 0; g < w->o.groups; g++) had[g] = lq_kv_cached(w->kv, g);
    lq_prefix_enter(w->p, seq, l.salt, &hit);
    l.done = hit.tokens;
    w->seq[seq] = l;
    for (int g = 0; g < w->o.groups; g++) {
        for (int b = held = 0; b < STRIDE; b++) held += entry(w, g, seq, b) >= 0;
        CHECK(held - (hit.part >= 0 && !hit.whole) == hit.held[g] && had[g] - lq_kv_cached(w->kv, g) == hit.alone[g],
              "group %d: %d blocks held, %d were alone", g, hit.held[g], hit.alone[g]);
    }
    CHECK(right(w, seq), "what was found is another's");
}

// Some tokens more, as a step feeds them.
static void feed(world *w, int seq) {
    life *l = &w->seq[seq];
    int32_t src[2], dst[2];
    const int next = l->done + 1 + draw(w, 9), to = next < l->len ? next : l->len;
    if (l->done == l->len) return end(w, seq, draw(w, 6));
    bool room = lq_kv_grow(w->kv, seq, to, true);
    for (int g = 0; room && g < w->o.groups; g++) {
        const int n = lq_kv_own(w->kv, g, seq, l->done, to, src, dst, 2);
        room = n >= 0;
        for (int i = 0; i < n; i++, w->copies++) memcpy(w->memory[g][dst[i]], w->memory[g][src[i]], sizeof **w->memory);
    }
    if (!room) {
        w->lacks++;
        return end(w, seq, false);
    }
    for (int i = l->done; i < to; i++)
        for (int g = 0; g < w->o.groups; g++) {
            const int32_t b = entry(w, g, seq, i / PAGE);
            CHECK(lq_kv_count(w->kv, g, b) == 1, "what is written is shared");
            w->memory[g][b][i % PAGE] = l->hash[i];
            for (int k = i % PAGE + 1; k < PAGE; k++) w->memory[g][b][k] = 0; // others left it there
        }
    l->done = to;
    lq_prefix_store(w->p, seq, l->ids, l->done);
    lq_kv_slide(w->kv, seq, l->done);
    if (draw(w, 4) == 0) lq_kv_want(w->kv, seq);
    if (l->done == l->len && l->len < LEN && draw(w, 3)) { // an answer
        l->ids[l->len++] = draw(w, 3);
        hash(l);
    }
}

static void fork_one(world *w, int seq) {
    const int to = lq_kv_fork(w->kv, seq, w->seq[seq].done);
    if (to < 0) return;
    lq_prefix_fork(w->p, seq, to);
    w->seq[to] = w->seq[seq];
    w->forks++;
}

static bool open_world(world *w, const lq_kv_opts *o, bool on) {
    lq_err err = {0};
    memset(w, 0, sizeof *w);
    w->o = *o;
    w->random = (uint64_t)o->blocks[0];
    const bool done = lq_kv_open(o, &w->kv, &err) && lq_prefix_open(w->kv, o, on, &w->p, &err);
    CHECK(done, "%s", err.text);
    return done;
}

static void close_world(world *w) {
    lq_prefix_close(w->p);
    lq_kv_close(w->kv);
}

static void lives(lq_kv_opts o, const char *what) {
    static world w;
    o.page = PAGE, o.max_seqs = SEQS, o.max_len = LEN;
    if (!open_world(&w, &o, true)) return;
    for (int step = 0; step < 12000; step++) {
        const int s = draw(&w, SEQS), act = draw(&w, 12);
        if (!w.seq[s].live) begin(&w);
        else if (act == 0) fork_one(&w, s);
        else if (act == 1) end(&w, s, draw(&w, 2));
        else feed(&w, s);
        if (counts(&w)) continue;
        CHECK(false, "%s: step %d: a block is lost, or counted twice", what, step);
        return;
    }
    CHECK(w.finds > 500 && w.hits * 3 > w.finds && w.parts > 100 && w.copies > 100 && w.forks > 20 &&
          (w.lacks > 20 || o.blocks[0] > 20),
          "%s: %d looked up, %d found, %d within a block, %d copies, %d lacked blocks, %d forks: too little is reached",
          what, w.finds, w.hits, w.parts, w.copies, w.lacks, w.forks);
    for (int s = 0; s < SEQS; s++)
        if (w.seq[s].live) end(&w, s, true);
    int least = STRIDE;
    for (int g = 0; g < o.groups; g++) {
        CHECK(lq_kv_free_blocks(w.kv, g) + lq_kv_cached(w.kv, g) == o.blocks[g], "%s: a block is not given back", what);
        if (o.blocks[g] < least) least = o.blocks[g];
    }
    // As many sequences as it takes for every block.
    for (int s = 0, left = o.blocks[0]; left > 0 && s < SEQS; s++, left -= least) {
        const int seq = lq_kv_begin(w.kv), n = left < least ? left : least;
        CHECK(lq_kv_grow(w.kv, seq, n * PAGE, o.groups == 1), "%s: blocks that are free cannot be had", what);
    }
    CHECK(lq_prefix_nodes(w.p) == 0, "%s: %d nodes of no use", what, lq_prefix_nodes(w.p));
    close_world(&w);
}

// --- the order in which blocks go ---

// A sequence of so many tokens comes and goes; returns how many of them were there.
static int visit(world *w, int32_t kind, int len, uint64_t salt) {
    life *l;
    lq_hit hit;
    int32_t src[2], dst[2];
    const int seq = lq_kv_begin(w->kv);
    l = &w->seq[seq];
    *l = (life){.len = len, .salt = salt};
    for (int i = 0; i < len; i++) l->ids[i] = kind;
    lq_prefix_find(w->p, l->ids, len - 1, salt, &hit);
    lq_prefix_enter(w->p, seq, salt, &hit);
    for (l->done = hit.tokens; l->done < len; l->done++) {
        CHECK(lq_kv_grow(w->kv, seq, l->done + 1, true), "no block for a token");
        for (int g = 0; g < w->o.groups; g++)
            CHECK(lq_kv_own(w->kv, g, seq, l->done, l->done + 1, src, dst, 2) >= 0, "no block for a copy");
        lq_prefix_store(w->p, seq, l->ids, l->done + 1);
        lq_kv_slide(w->kv, seq, l->done + 1);
    }
    lq_prefix_leave(w->p, seq, l->ids, len, true);
    return hit.tokens;
}

static int found(const world *w, int32_t kind, int len, uint64_t salt) {
    int32_t ids[LEN];
    lq_hit hit;
    for (int i = 0; i < len; i++) ids[i] = kind;
    lq_prefix_find(w->p, ids, len, salt, &hit);
    return hit.tokens;
}

static void order(void) {
    static world w;
    lq_kv_opts o = {.page = PAGE, .groups = 1, .blocks = {8}, .max_seqs = 2, .max_len = LEN};
    if (!open_world(&w, &o, true)) return;
    for (int k = 1; k <= 3; k++) visit(&w, k, 8, 0); // 6 of 8 blocks
    CHECK(visit(&w, 1, 8, 0) == 7, "a prompt that is there is read again"); // the last token is
    visit(&w, 4, 12, 0); // the last block of the one that was used longest ago makes room
    CHECK(found(&w, 2, 8, 0) == 4 && found(&w, 1, 8, 0) == 8 && found(&w, 3, 8, 0) == 8 && found(&w, 4, 12, 0) == 12,
          "%d of 2, %d of 1, %d of 3", found(&w, 2, 8, 0), found(&w, 1, 8, 0), found(&w, 3, 8, 0));
    CHECK(found(&w, 1, 8, 9) == 0 && visit(&w, 1, 8, 9) == 0, "another salt finds it");
    visit(&w, 5, 32, 0);
    CHECK(found(&w, 5, 32, 0) == 32 && lq_prefix_nodes(w.p) == 8 && !found(&w, 1, 8, 0), "all blocks for one");
    close_world(&w);
    if (!open_world(&w, &o, false)) return;
    visit(&w, 1, 8, 0);
    CHECK(!found(&w, 1, 8, 0) && !lq_kv_cached(w.kv, 0) && lq_kv_free_blocks(w.kv, 0) == 8, "it is off, and keeps");
    close_world(&w);
}

// What windows leave behind goes before what a sequence ends with, unless it was asked for once.
static void passed(void) {
    static world w;
    lq_kv_opts o = {.page = PAGE, .groups = 2, .blocks = {40, 9}, .window = {0, 8}, .max_seqs = 2, .max_len = LEN};
    if (!open_world(&w, &o, true)) return;
    visit(&w, 1, 16, 0); // of 8 tokens in 4 blocks; two are left behind
    CHECK(found(&w, 1, 16, 0) == 16 && found(&w, 1, 8, 0) == 8, "a window of 8: %d of 16 and %d of 8 are there",
          found(&w, 1, 16, 0), found(&w, 1, 8, 0));
    visit(&w, 2, 48, 0); // twelve more: it takes what was left behind, its own too
    CHECK(found(&w, 1, 16, 0) == 16 && !found(&w, 1, 8, 0) && found(&w, 2, 48, 0) == 48, "%d, %d, %d",
          found(&w, 1, 16, 0), found(&w, 1, 8, 0), found(&w, 2, 48, 0));
    CHECK(visit(&w, 1, 32, 0) == 16, "a sequence goes on from another's end");
    visit(&w, 3, 36, 0);
    CHECK(found(&w, 1, 16, 0) == 16 && found(&w, 1, 24, 0) == 16, "where it went on from, others may: %d",
          found(&w, 1, 24, 0));
    close_world(&w);
}

int main(void) {
    lives((lq_kv_opts){.groups = 1, .blocks = {40}}, "no windows");
    lives((lq_kv_opts){.groups = 1, .blocks = {17}}, "no windows, hardly room for one");
    lives((lq_kv_opts){.groups = 2, .blocks = {40, 24}, .window = {0, 9}}, "a window");
    lives((lq_kv_opts){.groups = 2, .blocks = {40, 17}, .window = {0, 1}}, "a window of one");
    lives((lq_kv_opts){.groups = 2, .blocks = {17, 17}, .window = {0, 30}}, "a window, hardly room for one");
    lives((lq_kv_opts){.groups = 1, .blocks = {24}, .window = {10}}, "a window everywhere");
    order();
    passed();
    return test_end();
}
