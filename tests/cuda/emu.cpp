// emu.cpp: fibers and who runs next, barriers, launches, and what it means that nobody can go on.
#include "tests/cuda/emu_state.h"
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#error "fibers change places in assembler for x86-64"
#endif
extern "C" void emu_switch(void **from, void *to);
asm(".globl emu_switch\n"
    "emu_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n    ret\n");

namespace emu {
enum { STACK = 1 << 16, ENOUGH = 2000 };
launched run;
block blocks[MOST_RESIDENT];
block *home;
fiber *me;
thread *self;
static void *scheduler;
static uint32_t serials = 1;

uint32_t draw() {
    run.random = run.random * 1664525u + 1013904223u;
    return run.random >> 8;
}

// --- fibers ---

static void leave() {
    fiber *f = me;
    emu_switch(&f->top, scheduler);
}

void stop() {
    run.over = true;
    leave();
    abort(); // nobody comes back to a launch that is over
}

void pause(const uint32_t *event, const char *doing, void *place) {
    me->event = event;
    me->before = event ? *event : 0;
    me->doing = doing;
    me->place = place;
    leave();
}

void maybe_pause() {
    if (draw() % 64 == 0) pause(NULL, "an access", NULL);
}

void find(kind what, const std::string &where, void *place, int other) {
    for (finding &f : run.got.findings) {
        if (f.what != what || f.place != place) continue;
        f.times++;
        if (++run.found > ENOUGH) stop();
        return;
    }
    run.got.findings.push_back({what, home ? home->id : -1, me ? (int)me->seen.index.x : -1, other, where, place, 1});
}

bool passed_over(std::vector<void *> &list, void *place) {
    if (std::find(list.begin(), list.end(), place) == list.end()) list.push_back(place);
    return run.how.wrong == NO_BARRIER && run.how.at == place;
}

// --- barriers and fences ---

void join(clock &to, const clock &from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

static void barrier_done(block &b) {
    clock heard;
    for (fiber &f : b.fibers) join(b.known, f.known), join(heard, f.heard);
    for (fiber &f : b.fibers) f.heard = heard;
    b.arrived = 0;
    b.phase++;
    run.patience = PATIENCE;
}

void barrier() {
    void *place = __builtin_return_address(0);
    if (passed_over(run.got.barriers, place)) return;
    block &b = *home;
    if (b.arrived && b.place != place) find(DIVERGED, "two barriers of one block", place);
    b.place = place;
    if (++b.arrived < b.alive) return pause(&b.phase, "a barrier", place);
    if (b.alive < (int)b.fibers.size()) find(EXITED, "a barrier of fewer threads than the block has", place);
    barrier_done(b);
}

// All threads of a cluster that are left have come: whatever they did is known to each.
static void cluster_done(cluster &c) {
    clock all;
    for (block *b = c.first; b < c.first + c.size; b++) {
        if (b->id < 0) continue;
        barrier_done(*b);
        join(all, b->known);
        all.resize(run.grid.x * run.grid.y * run.grid.z);
        all[(size_t)b->id] = b->phase;
    }
    for (block *b = c.first; b < c.first + c.size; b++)
        if (b->id >= 0) b->known = all;
    c.arrived = 0;
    c.turn++;
}

static int cluster_alive(const cluster &c) {
    int alive = 0;
    for (const block *b = c.first; b < c.first + c.size; b++) alive += b->id < 0 ? 0 : b->alive;
    return alive;
}

void cluster_barrier() {
    void *place = __builtin_return_address(0);
    if (passed_over(run.got.barriers, place)) return;
    cluster &c = *home->with;
    if (home->arrived) find(DIVERGED, "a barrier of the block and one of its cluster", place);
    if (++c.arrived < cluster_alive(c)) return pause(&c.turn, "a barrier of a cluster", place);
    cluster_done(c);
}

void store_cluster(smem a, unsigned rank, const void *from, unsigned bytes) {
    void *place = __builtin_return_address(0);
    maybe_pause();
    if (rank >= home->with->size || (size_t)a + bytes > run.shared) {
        find(OUT_OF_BOUNDS, shared_name(a) + " of block " + std::to_string(rank) + " of a cluster", place);
        return;
    }
    block &to = home->with->first[rank];
    if (a % bytes) find(MISALIGNED, shared_name(a), place);
    if (to.id < 0 || to.alive == 0) {
        find(EXITED, shared_name(a) + " of a block that has left", place);
        return;
    }
    for (smem i = a / 2; i <= (a + bytes - 1) / 2; i++)
        if (cell *c = cell_reached(to, i, WRITE, me->seen.index.x, place)) c->filled = c->generic = true;
    memcpy(to.shared + a, from, bytes);
}

// What a fence covers: all that its block wrote before the last barrier, and what this thread knows of others.
void fence() {
    if (passed_over(run.got.fences, __builtin_return_address(0))) return;
    join(me->known, me->met);
    me->published = home->known;
    join(me->published, me->known);
    me->published.resize(run.grid.x * run.grid.y * run.grid.z);
    me->published[(size_t)home->id] = home->phase;
    maybe_pause();
}

static std::vector<std::pair<const uint32_t *, clock>> carried; // what atomics at an address have published

static clock &carried_by(const uint32_t *p) {
    for (auto &c : carried)
        if (c.first == p) return c.second;
    carried.push_back({p, clock()});
    return carried.back().second;
}

uint32_t atomic(uint32_t *p, uint32_t v, bool wrap) {
    pause(NULL, "an atomic", NULL);
    atomic_touched(p, __builtin_return_address(0));
    const uint32_t old = *p;
    if (run.how.wrong == NO_WRAP) *p = old + 1;
    else *p = !wrap ? old + v : old >= v ? 0 : old + 1;
    clock &c = carried_by(p);
    join(c, me->published);
    join(me->met, c);
    return old;
}

uint32_t acquire(const uint32_t *p) {
    pause(NULL, "a load that waits for another block", __builtin_return_address(0));
    atomic_touched(p, __builtin_return_address(0));
    join(me->known, carried_by(p));
    return *p;
}

void wait_for_grids() {
    if (run.how.wrong == NO_PDL_WAIT) return;
    me->waited = true;
    if (!home->waited_in) home->waited_in = home->phase;
}

// --- launches ---

static void begin() {
    (*run.kernel)();
    block &b = *home;
    me->done = true;
    run.patience = PATIENCE;
    if (!me->copies.empty()) find(IN_FLIGHT, shared_name(me->copies[0].to) + ", at the end of the thread", NULL);
    hopper_left();
    if (warp_of().arrived) find(DIVERGED, "lanes have left that others of their warp wait for", warp_of().place);
    b.alive--;
    if (b.arrived && b.arrived == b.alive) {
        find(EXITED, "a barrier that threads of the block never came to", b.place);
        barrier_done(b);
    }
    if (b.with->arrived && b.with->arrived == cluster_alive(*b.with)) cluster_done(*b.with);
    leave();
}

static cluster clusters[MOST_RESIDENT];

static void settle(block &b, int slot, int id) {
    static unsigned char *arena[MOST_RESIDENT];
    static void *stacks[MOST_RESIDENT][1024];
    const size_t threads = run.dim.x, cells = sizeof(cell) * (MOST_SHARED / 2);
    if (!arena[slot]) {
        void *p = mmap(NULL, cells + MOST_SHARED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        if (p == MAP_FAILED) abort();
        arena[slot] = (unsigned char *)p;
    }
    b.id = id;
    b.serial = run.first + (uint32_t)id;
    b.phase = 1;
    b.waited_in = 0;
    b.alive = (int)threads;
    b.arrived = 0;
    b.known.clear();
    b.with = &clusters[(unsigned)slot / run.how.cluster];
    b.cells = (cell *)arena[slot];
    b.shared = arena[slot] + cells;
    memset(b.shared, 0xff, run.shared);
    b.warps.resize(threads / 32);
    for (warp &w : b.warps) w.arrived = 0, w.turn = 1, w.synced = 1;
    b.fibers.resize(threads);
    hopper_begun(b);
    const unsigned gx = run.grid.x, gy = run.grid.y, n = (unsigned)id;
    for (size_t t = 0; t < threads; t++) {
        fiber &f = b.fibers[t];
        void *&stack = stacks[slot][t];
        if (!stack) stack = aligned_alloc(64, STACK);
        f.seen = {dim3((unsigned)t, 0, 0), dim3(n % gx, n / gx % gy, n / gx / gy), run.dim, run.grid, b.shared};
        f.done = f.waited = false;
        f.event = NULL;
        f.copies.clear();
        f.group = f.collectives = 0;
        f.known.clear(), f.met.clear(), f.published.clear();
        f.nth.clear();
        void **s = (void **)((unsigned char *)stack + STACK - 64);
        s[0] = (void *)begin;
        s[1] = NULL;
        f.top = s - 6;
    }
}

// Who waits for what: one line for each thing that threads of a block wait at.
static void stuck(int slots) {
    for (int i = 0; i < slots; i++) {
        block &b = blocks[i];
        if (b.id < 0) continue;
        std::vector<std::pair<void *, const char *>> said;
        home = &b;
        for (fiber &f : b.fibers) {
            if (f.done || !f.doing ||
                std::find(said.begin(), said.end(), std::make_pair(f.place, f.doing)) != said.end())
                continue;
            said.push_back({f.place, f.doing});
            int there = 0;
            for (fiber &g : b.fibers) there += !g.done && g.place == f.place && g.doing == f.doing;
            char text[160];
            snprintf(text, sizeof text, "%d of %d threads wait at %s, %d have left", there, (int)b.fibers.size(),
                     f.doing, (int)b.fibers.size() - b.alive);
            me = &f;
            find(DEADLOCK, text, f.place);
        }
    }
}

// Lets everybody who can run go on once, in an order drawn for this round; false: nobody could.
static bool round_done(int slots, std::vector<std::pair<block *, fiber *>> &ready) {
    ready.clear();
    bool landed = false;
    for (int i = 0; i < slots; i++) {
        if (blocks[i].id < 0) continue;
        landed |= flights_land(blocks[i]);
        for (fiber &f : blocks[i].fibers) {
            if (f.done || (f.event && *f.event == f.before)) continue;
            ready.push_back({&blocks[i], &f});
        }
    }
    for (size_t i = ready.size(); i > 1; i--) std::swap(ready[i - 1], ready[draw() % i]);
    for (auto &r : ready) {
        home = r.first;
        me = r.second;
        self = &me->seen;
        me->event = NULL;
        emu_switch(&scheduler, me->top);
        if (run.over) return true;
    }
    return (landed || !ready.empty()) && run.patience-- > 0;
}

result launch(dim3 grid, dim3 dim, size_t shared, const options &how, const std::function<void()> &kernel) {
    const uint32_t count = grid.x * grid.y * grid.z;
    if (dim.x % 32 || dim.x > 1024 || dim.y != 1 || dim.z != 1 || shared > MOST_SHARED || how.resident < 1 ||
        how.resident > MOST_RESIDENT || how.cluster < 1 || how.cluster > MOST_RESIDENT || grid.y % how.cluster) {
        fprintf(stderr, "emu: a launch that no machine takes\n");
        exit(2);
    }
    run = {&kernel, how, grid, dim, shared, serials, how.seed * 2654435761u + 1, false, 0, PATIENCE, result()};
    serials += count;
    carried.clear();
    std::vector<int> order; // of clusters
    for (uint32_t i = 0; i < count / how.cluster; i++) order.push_back((int)i);
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
    const int size = (int)how.cluster, at_once = std::max((int)how.resident / size, 1);
    const int slots = std::min(at_once, (int)order.size()) * size;
    std::vector<std::pair<block *, fiber *>> ready;
    size_t next = 0;
    const auto settle_next = [&](int first) {
        const int of = order[next++], x = of % (int)grid.x, y = of / (int)grid.x * size;
        clusters[first / size] = {&blocks[first], (unsigned)size, 0, 1};
        for (int r = 0; r < size; r++) settle(blocks[first + r], first + r, x + (int)grid.x * (y + r));
    };
    for (int i = 0; i < slots; i += size) settle_next(i);
    for (int left = slots; left && !run.over;) {
        if (!round_done(slots, ready)) {
            stuck(slots);
            break;
        }
        for (int i = 0; i < slots && !run.over; i++) {
            block &b = blocks[i];
            if (b.id < 0 || b.alive) continue;
            hopper_ended(b);
            requests_folded(b);
            b.id = -1;
            const int first = i / size * size;
            bool empty = true;
            for (int r = 0; r < size; r++) empty &= blocks[first + r].id < 0;
            if (empty && next < order.size()) settle_next(first), left += size - 1;
            else left--;
        }
    }
    for (int i = 0; i < slots; i++) {
        if (blocks[i].id >= 0) requests_folded(blocks[i]);
        blocks[i].id = -1;
    }
    self = NULL, me = NULL, home = NULL;
    state_checked();
    return run.got;
}
}
