// schedule.c: who runs and how much of whom a step feeds. Waiting requests and sequences stand by rank: those that have
// waited long, then by priority; of one rank clients take turns, in order of arrival. Owns nothing; refuses nobody, it
// only lets wait.
//
// Each choice of a request has a place of its own: where there are fewer places than choices the others wait, and draw
// the same tokens later, as a draw depends on seed, choice and position alone.
#include "runtime/engine/beam.h"
#include "runtime/engine/state.h"
#include <stdlib.h>
#include <string.h>

// How many requests may go by one that waits for blocks; how far behind it is looked for them.
enum { PASSES = 64, LOOKED = 256 };
static const double look_every = 0.1; // seconds

// --- rank ---

// Whether a is of a better rank than b, whoever came first.
static bool sooner(const lq_req *a, const lq_req *b) {
    return a->aged != b->aged ? a->aged : !a->aged && a->r.priority < b->r.priority;
}

static bool before(const lq_req *a, const lq_req *b) {
    if (sooner(a, b) || sooner(b, a)) return sooner(a, b);
    return !a->aged && a->round != b->round ? a->round < b->round : a->order < b->order;
}

// Its turn is the one after its client's last, but not before those that start now. Of clients whose numbers meet the
// later one counts alone.
static void give_turn(lq_engine *e, lq_req *q) {
    lq_turn *t = &e->turns[q->r.client % LQ_CLIENTS];
    q->round = e->round + 1;
    if (!q->r.client) return;
    if (t->client == q->r.client && t->round >= q->round) q->round = t->round + 1;
    *t = (lq_turn){q->r.client, q->round};
}

static void wait_in_line(lq_engine *e, lq_req *q) {
    lq_req **at = &e->waiting;
    while (*at && before(*at, q)) at = &(*at)->next;
    q->next = *at;
    *at = q;
}

// Of one rank those that have run come first.
static bool seq_before(const lq_seq *a, const lq_seq *b) {
    if (sooner(a->req, b->req) || sooner(b->req, a->req)) return sooner(a->req, b->req);
    if (a->late != b->late) return b->late;
    return a->req->order != b->req->order ? a->req->order < b->req->order : a->choice < b->choice;
}

void lq_sched_put_back(lq_engine *e, lq_seq *s) {
    lq_seq **at = &e->paused;
    s->kv = -1;
    s->done = 0;
    while (*at && seq_before(*at, s)) at = &(*at)->next;
    s->next = *at;
    *at = s;
}

// Who has waited long goes before all others.
static void look(lq_engine *e) {
    const double now = lq_engine_clock();
    lq_req *aged = NULL, **end = &aged;
    bool any = false;
    if (now - e->looked < look_every) return;
    e->looked = now;
    for (lq_req **at = &e->waiting; *at;) {
        lq_req *q = *at;
        if (q->aged || now - q->arrived < e->age) {
            at = &q->next;
            continue;
        }
        q->aged = true;
        *at = q->next;
        *end = q;
        end = &q->next;
    }
    *end = NULL;
    while (aged) {
        lq_req *q = aged;
        aged = q->next;
        wait_in_line(e, q);
    }
    for (const lq_seq *s = e->paused; s; s = s->next)
        if (!s->req->aged && now - s->req->arrived >= e->age) s->req->aged = any = true;
    lq_seq *again = e->paused;
    if (any) e->paused = NULL;
    while (any && again) {
        lq_seq *s = again;
        again = s->next;
        lq_sched_put_back(e, s);
    }
}

void lq_sched_receive(lq_engine *e) {
    pthread_mutex_lock(&e->lock);
    lq_req *in = e->incoming;
    e->incoming = NULL;
    e->tail = &e->incoming;
    pthread_mutex_unlock(&e->lock);
    while (in) {
        lq_req *q = in;
        in = q->next;
        q->received = true;
        give_turn(e, q);
        wait_in_line(e, q);
    }
    look(e);
}

int lq_sched_sweep(lq_engine *e) {
    int left = 0;
    for (lq_seq **at = &e->paused; *at;) {
        lq_seq *s = *at;
        if (s->finish == LQ_RUNNING) {
            at = &s->next;
            continue;
        }
        if (s->aside.tokens) lq_aside_drop(e->aside, s);
        *at = s->next;
    }
    for (lq_req **at = &e->waiting; *at;) {
        if ((*at)->live) at = &(*at)->next;
        else {
            left += !(*at)->r.beside;
            *at = (*at)->next;
        }
    }
    return left;
}

// --- room ---

// Blocks that a sequence of so many tokens comes to hold in a group.
static int blocks_of(const lq_engine *e, int g, int len) {
    const int n = (len + e->now.kv_page - 1) / e->now.kv_page, most = e->window_blocks[g];
    return most && most < n ? most : n;
}

// Blocks of a group that may be taken, from the prefix cache too, but for those that running sequences will still take
// for what they know: in a group with a window they take them as they are fed.
static int free_blocks(const lq_engine *e, int g) {
    int n = lq_kv_free_blocks(e->kv, g) + lq_kv_cached(e->kv, g);
    for (int i = 0; e->window_blocks[g] && i < e->runs; i++) {
        const int lacks = blocks_of(e, g, e->running[i]->len) - lq_kv_held(e->kv, g, e->running[i]->kv);
        n -= lacks > 0 ? lacks : 0;
    }
    return n;
}

// --- admission ---

// Tokens that a sequence waits to be fed.
static int due(const lq_engine *e, const lq_seq *s) {
    const int to = e->hold && s->done <= e->hold && s->prompt > e->hold ? e->hold : s->len;
    return to - s->done;
}

// How many of a sequence's tokens may come from the prefix cache: the last one's logits are wanted, those before each
// prompt token whose logprob is, and the states that an embedding still lacks.
static int most_found(const lq_seq *s) {
    const lq_req *q = s->req;
    const bool all = !q->r.prompt_logprobs || s->choice || q->reported >= s->prompt;
    const int most = all ? s->len - 1 : q->reported > 1 ? q->reported - 1 : 0;
    return q->pooled < q->pool_end && q->pooled < most ? q->pooled : most;
}

// Whether `len` tokens of which the cache holds so much find blocks and leave some.
static bool has_room(const lq_engine *e, int len, const lq_hit *hit, int leave) {
    for (int g = 0; g < e->m->desc.groups; g++)
        if (free_blocks(e, g) - hit->alone[g] < blocks_of(e, g, len) - hit->held[g] + leave) return false;
    return true;
}

// What a sequence begins with, where there is room for the rest. Where a block to copy to is what lacks, it goes
// without.
static bool find(const lq_engine *e, const lq_seq *s, int leave, lq_hit *hit) {
    const uint64_t salt = s->req->r.salt;
    lq_prefix_find(e->prefix, s->ids, most_found(s), salt, hit);
    if (has_room(e, s->len, hit, leave)) return true;
    if (hit->part < 0 || hit->whole) return false;
    lq_prefix_find(e->prefix, s->ids, hit->blocks * e->now.kv_page, salt, hit);
    return has_room(e, s->len, hit, leave);
}

// It was found: once for each request, and not again for one that was preempted.
static void count_hit(lq_engine *e, lq_seq *s) {
    lq_req *q = s->req;
    if (lq_beam_goes_on(q)) s->fed = s->prompt; // what a search has found of itself is no news
    else if (!s->choice && !q->entered && e->caches) {
        e->now.prefix_queries += (uint64_t)s->prompt;
        e->now.prefix_hits += (uint64_t)s->done;
    }
    q->entered = true;
    if (s->done > s->fed) s->fed = q->cached = s->done < s->prompt ? s->done : s->prompt;
}

// What was put aside comes back, behind what the cache still has of it in whole blocks. It goes on where it was.
static bool come_back(lq_engine *e, lq_seq *s) {
    const int page = e->now.kv_page;
    const uint64_t salt = s->req->r.salt;
    lq_hit hit;
    lq_prefix_find(e->prefix, s->ids, s->aside.tokens / page * page, salt, &hit);
    if (hit.part >= 0) lq_prefix_find(e->prefix, s->ids, hit.blocks * page, salt, &hit);
    const int kv = has_room(e, s->len, &hit, 0) && e->m->dev->ops.sync(e->m->dev, NULL) ? lq_kv_begin(e->kv) : -1;
    if (kv < 0) return false;
    lq_prefix_enter(e->prefix, kv, salt, &hit);
    if (!lq_kv_regain(e->kv, kv, s->aside.tokens) || !lq_kv_grow(e->kv, kv, s->len, false)) {
        lq_prefix_leave(e->prefix, kv, s->ids, hit.tokens, false);
        return false;
    }
    s->kv = kv;
    s->done = s->aside.tokens;
    lq_aside_back(e->aside, e->kv, s, hit.blocks);
    e->now.swapped++;
    e->running[e->runs++] = s;
    return true;
}

// Room for all tokens it knows.
static bool enter(lq_engine *e, lq_seq *s) {
    lq_hit hit;
    if (s->aside.tokens && (come_back(e, s) || e->runs)) return s->kv >= 0;
    if (s->aside.tokens) lq_aside_drop(e->aside, s);
    const int kv = find(e, s, 0, &hit) ? lq_kv_begin(e->kv) : -1;
    if (kv < 0) return false;
    lq_prefix_enter(e->prefix, kv, s->req->r.salt, &hit);
    if (!lq_kv_grow(e->kv, kv, s->len, false)) {
        lq_prefix_leave(e->prefix, kv, s->ids, hit.tokens, false);
        return false;
    }
    s->kv = kv;
    s->done = hit.tokens;
    count_hit(e, s);
    e->running[e->runs++] = s;
    return true;
}

// Whether a request may start: it has the blocks its prompt needs, and leaves one for each running sequence to grow
// into. What the cache holds is looked up where that decides.
static bool fits(const lq_engine *e, const lq_req *q) {
    static const lq_hit none;
    lq_hit hit;
    return !e->runs || has_room(e, q->prompt, &none, e->runs) || find(e, &q->seq[0], e->runs, &hit);
}

// Whether a running sequence is about to compute a whole block that this request begins with too: it has it for nothing
// when that is through.
static bool awaits(const lq_engine *e, const lq_req *q) {
    const int page = e->now.kv_page, most = most_found(&q->seq[0]);
    const int32_t *ids = q->seq[0].ids;
    for (int i = 0; e->caches && i < e->runs; i++) {
        const lq_seq *s = e->running[i];
        const int from = s->done / page * page, to = from + page;
        if (to <= most && to <= s->len && due(e, s) > 0 && s->req->r.salt == q->r.salt &&
            !memcmp(ids + from, s->ids + from, (size_t)page * sizeof *ids) &&
            !memcmp(ids, s->ids, (size_t)from * sizeof *ids))
            return true;
    }
    return false;
}

// The first of the waiting requests that may start: of those that are sooner than `than` (NULL: of all). What waits for
// blocks lets others by for a while (*by: it does now), what another computes for it for as long as that takes.
static lq_req **starter(lq_engine *e, const lq_req *than, bool *by) {
    int far = 0;
    *by = false;
    for (lq_req **at = &e->waiting; *at && far <= LOOKED && (!than || sooner(*at, than)); at = &(*at)->next, far++) {
        if (awaits(e, *at)) continue;
        if (fits(e, *at)) return at;
        if (e->passes >= PASSES) return NULL;
        *by = true;
    }
    return NULL;
}

static bool start_one(lq_engine *e, const lq_req *than) {
    bool by;
    lq_req **at = starter(e, than, &by), *q = at ? *at : NULL;
    if (!q || !enter(e, &q->seq[0])) return false;
    e->passes = by ? e->passes + 1 : at == &e->waiting ? 0 : e->passes;
    if (q->round > e->round) e->round = q->round;
    *at = q->next;
    q->next = NULL;
    pthread_mutex_lock(&e->lock);
    e->queued -= !q->r.beside;
    pthread_mutex_unlock(&e->lock);
    return true;
}

static bool go_on_one(lq_engine *e) {
    lq_seq *s = e->paused, *next = s->next;
    if (!enter(e, s)) return false;
    e->paused = next;
    s->next = NULL;
    return true;
}

// Preempted sequences come back before requests of their rank; choices that never had a place take turns with them.
void lq_sched_admit(lq_engine *e) {
    while (e->runs < e->max_seqs && (e->paused || e->waiting)) {
        const lq_seq *s = e->paused;
        e->turn = !e->turn;
        if (s && s->late && e->turn && e->waiting && !sooner(s->req, e->waiting) && start_one(e, NULL)) continue;
        if (start_one(e, s ? s->req : NULL)) continue;
        if (!s || !go_on_one(e)) return;
    }
}

// --- what a step feeds ---

// Blocks for positions [done, len), none of them shared: those that are get a copy, which the step makes before it
// writes anything. False when blocks have run out.
static bool reserve(lq_engine *e, lq_seq *s, int len) {
    if (!lq_kv_grow(e->kv, s->kv, len, true)) return false;
    for (int g = 0; g < e->m->desc.groups; g++) {
        const int have = e->copies[g];
        const int n = lq_kv_own(e->kv, g, s->kv, s->done, len, e->src[g] + have, e->dst[g] + have,
                                e->max_seqs + 1 - have);
        if (n < 0) return false;
        e->copies[g] += n;
    }
    return true;
}

// The sequence of the last rank, of several the newest, gives its blocks back; what it is fed in this step goes with
// it. Returns its place.
static int pause_one(lq_engine *e) {
    int i = e->runs - 1;
    for (int k = i - 1; k >= 0; k--)
        if (sooner(e->running[i]->req, e->running[k]->req)) i = k;
    lq_seq *s = e->running[i];
    memmove(&e->running[i], &e->running[i + 1], (size_t)(e->runs - i - 1) * sizeof *e->running);
    memmove(&e->take[i], &e->take[i + 1], (size_t)(e->runs - i - 1) * sizeof *e->take);
    e->runs--;
    const lq_aside_copies copies = {e->copies, e->src, e->dst};
    if (e->aside && s->done) lq_aside_keep(e->aside, e->kv, s, s->done, &copies);
    lq_prefix_leave(e->prefix, s->kv, s->ids, s->done, false); // its last block may be one that is not copied yet
    s->late = false;
    lq_sched_put_back(e, s);
    e->now.preempted++;
    return i;
}

// Prompts share what decoding leaves of a step: those that are through with an equal share are, and the rest goes to
// the others in order of admission. So a short one does not wait for a long one, and long ones end one after another.
static void share(lq_engine *e, int budget) {
    int many = 0, each;
    for (int i = 0; i < e->runs; i++) many += !e->take[i] && due(e, e->running[i]) > 0;
    each = many ? budget / many : 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < e->runs; i++) {
            const int left = due(e, e->running[i]);
            if (e->take[i] || left < 1 || (pass == 0 && left > each)) continue;
            e->take[i] = left < budget ? left : budget;
            budget -= e->take[i];
        }
}

void lq_sched_plan(lq_engine *e) {
    int budget = e->max_batch, most = e->max_prefill;
    memset(e->copies, 0, sizeof e->copies);
    for (int i = 0; i < e->runs; i++) {
        e->take[i] = due(e, e->running[i]) == 1;
        budget -= e->take[i];
        if (e->take[i] && most > e->max_beside) most = e->max_beside;
    }
    share(e, budget < most ? budget : most);
    // While one finds no blocks, the least important gives its own back: one behind it, one before it, or itself.
    for (int i = 0; i < e->runs;) {
        if (!e->take[i] || reserve(e, e->running[i], e->running[i]->done + e->take[i])) i++;
        else if (pause_one(e) < i) i--; // it moved up
    }
}
