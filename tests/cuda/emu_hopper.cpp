// emu_hopper.cpp: what sm_90a has beside the rest. mbarriers, and bulk copies that land when somebody waits for them
// and not before; barriers of some threads; products of four warps, which are computed when the first of their lanes
// waits: until then the sums hold NaN, and neither they nor the other operands may be touched.
#include "tests/cuda/emu_state.h"
#include <algorithm>
#include <string.h>

namespace emu {
static uint32_t index_of(const fiber *f) { return f->seen.index.x; }
static warpgroup &group_of() { return home->groups[index_of(me) / 128]; }

// --- who knows of whom ---

void told(clock &to) {
    const uint32_t t = index_of(me);
    join(to, me->heard);
    if (to.size() <= t) to.resize(home->fibers.size());
    to[t] = ++me->moment;
}

void warp_met() {
    if (!home->in_parts) return;
    const uint32_t first = index_of(me) / 32 * 32;
    fiber *last = me;
    clock all;
    for (uint32_t l = 0; l < 32; l++) me = &home->fibers[first + l], told(all);
    for (uint32_t l = 0; l < 32; l++) home->fibers[first + l].heard = all;
    me = last;
}

void proxy_fence() {
    if (passed_over(run.got.fences, __builtin_return_address(0))) return;
    me->proxied.push_back({me->moment++, home->phase});
}

void barrier_of(unsigned id, unsigned threads) {
    void *place = __builtin_return_address(0);
    if (passed_over(run.got.barriers, place)) return;
    named_barrier &b = home->named[id % 16];
    home->in_parts = true;
    if (id < 1 || id > 15 || threads % 32 || (b.arrived && b.wanted != (int)threads))
        find(DIVERGED, "barrier " + std::to_string(id) + " of " + std::to_string(threads) + " threads", place);
    b.wanted = (int)threads;
    told(b.now);
    if (++b.arrived < b.wanted) pause(&b.turn, "a barrier of some threads", place);
    else {
        b.done = b.now;
        b.now.clear();
        b.arrived = 0;
        b.turn++;
        run.patience = PATIENCE;
    }
    join(me->heard, b.done);
}

// --- mbarriers ---

static mbarrier *barrier_at(smem at, void *place) {
    if (!shared_touched(at, 8, READ, index_of(me), place)) stop();
    for (mbarrier &b : home->mbarriers)
        if (b.at == at) return &b;
    find(MBARRIER, shared_name(at) + " is none", place);
    stop();
    return NULL;
}

void mbarrier_init(smem at, uint32_t arrivals) {
    void *place = __builtin_return_address(0);
    if (!shared_touched(at, 8, WRITE, index_of(me), place)) stop();
    home->in_parts = true;
    for (const mbarrier &b : home->mbarriers)
        if (b.at == at) find(MBARRIER, shared_name(at) + " is initialised twice", place);
    home->mbarriers.push_back({at, arrivals, arrivals, 0, 0, 0, clock(), clock()});
}

static void phase_ended(mbarrier &b) {
    if (b.pending || b.bytes) return;
    b.pending = b.count;
    b.phase++;
    b.done = b.now;
    b.now.clear();
    run.patience = PATIENCE;
}

void mbarrier_arrive(smem at, uint32_t bytes) {
    void *place = __builtin_return_address(0);
    maybe_pause();
    mbarrier *b = barrier_at(at, place);
    if (!b->pending) {
        find(MBARRIER, shared_name(at) + ": more arrivals than " + std::to_string(b->count), place);
        return;
    }
    if (bytes && run.how.wrong == WRONG_BYTES) bytes += 16;
    told(b->now);
    b->bytes += bytes;
    b->pending--;
    phase_ended(*b);
}

bool mbarrier_waited(smem at, uint32_t parity) {
    void *place = __builtin_return_address(0);
    maybe_pause();
    mbarrier *b = barrier_at(at, place);
    passed_over(run.got.waits, place);
    if (run.how.wrong == WRONG_PARITY && run.how.at == place) parity ^= 1;
    if ((b->phase & 1) == (parity & 1)) {
        b->waiting++;
        pause(&b->phase, "an mbarrier", place);
        b->waiting--;
        return false;
    }
    join(me->heard, b->done);
    return true;
}

// --- bulk copies ---

void copy_bulk(smem to, const void *from, unsigned bytes, smem bar) {
    void *place = __builtin_return_address(0);
    maybe_pause();
    mbarrier *b = barrier_at(bar, place);
    const uint32_t t = index_of(me);
    if (!async_touched(bar, 8, READ, t, place) || !async_touched(to, bytes, WRITE, t, place)) stop();
    if (to % 16 || bytes % 16 || (uintptr_t)from % 16 || !bytes)
        find(MISALIGNED, shared_name(to) + ", " + std::to_string(bytes) + " bytes of " + global_name(from), place);
    for (unsigned i = 0; i < bytes; i += 16)
        if (!global_touched((const char *)from + i, 16, READ, place)) stop();
    memset(home->shared + to, 0xff, bytes);
    for (smem i = to / 2; i < (to + bytes) / 2; i++) home->cells[i].flying = true;
    stamp begun = stamp_of(t);
    begun.async = 1;
    me->moment++;
    home->flights.push_back({to, (const unsigned char *)from, bytes, b, begun});
}

static void land(const flight &f) {
    memcpy(home->shared + f.to, f.from, f.bytes);
    for (smem i = f.to / 2; i < (f.to + f.bytes) / 2; i++) {
        cell &c = home->cells[i];
        c.flying = c.generic = false;
        c.filled = true;
        c.written = f.begun;
    }
    clock &now = f.bar->now;
    if (now.size() <= f.begun.thread) now.resize(home->fibers.size());
    now[f.begun.thread] = std::max(now[f.begun.thread], (uint32_t)f.begun.moment + 1);
    f.bar->bytes -= f.bytes;
    phase_ended(*f.bar);
}

bool flights_land(block &b) {
    size_t left = 0;
    const size_t before = b.flights.size();
    home = &b;
    for (size_t i = 0; i < b.flights.size(); i++) {
        if (b.flights[i].bar->waiting && draw() % 2) land(b.flights[i]);
        else b.flights[left++] = b.flights[i];
    }
    b.flights.resize(left);
    return before > 0 && std::any_of(b.mbarriers.begin(), b.mbarriers.end(),
                                     [](const mbarrier &m) { return m.waiting > 0; });
}

// --- products of a warpgroup ---

static bool overlap(const operand &o, const void *p, size_t bytes) {
    const unsigned char *c = (const unsigned char *)p;
    return c < o.p + o.bytes && o.p < c + bytes;
}

void operand_touched(const void *p, size_t bytes, bool write, void *place) {
    for (operand &o : me->operands) {
        if (!overlap(o, p, bytes)) continue;
        o.touched = me->register_fences;
        if (o.busy && (o.sums || write))
            find(OPERANDS, o.sums ? "sums of a product under way" : "what a product under way multiplies by", place);
    }
}

static operand &operand_at(const void *p, unsigned bytes, bool sums) {
    for (operand &o : me->operands)
        if (o.p == p && o.bytes == bytes) return o;
    // What lay there before is gone.
    me->operands.erase(std::remove_if(me->operands.begin(), me->operands.end(),
                                      [=](const operand &o) { return overlap(o, p, bytes) && !o.busy; }),
                       me->operands.end());
    me->operands.push_back({(const unsigned char *)p, bytes, sums, 0, 0});
    return me->operands.back();
}

static void operand_used(const void *p, unsigned bytes, bool sums, void *place) {
    operand &o = operand_at(p, bytes, sums);
    if (o.touched == me->register_fences)
        find(OPERANDS, sums ? "sums were touched behind the last fence" : "a was written behind the last fence", place);
    o.busy++;
}

// Where column k of row r of the tile is: bits 4 to 6 of an address are turned by bits 7 to 9.
static smem tile_at(uint64_t tile, unsigned r, unsigned k) {
    const uint32_t start = (uint32_t)(tile & 0x3fff) * 16, eight = (uint32_t)(tile >> 32 & 0x3fff) * 16;
    const uint32_t at = start + r / 8 * eight + r % 8 * 128 + k * 2;
    return at ^ (at >> 7 & 7) << 4;
}

static void tile_read(const product &p, int begun, void *place) {
    const uint32_t t = index_of(me);
    for (unsigned r = 0; r < 2 * p.numbers; r++)
        for (unsigned k = 0; k < 16; k += 8) {
            const smem at = tile_at(p.b, r, k);
            if (!begun)
                for (smem i = at / 2; i < at / 2 + 8; i++) home->cells[i].reading--;
            if (!async_touched(at, 16, READ, t, place)) stop();
            if (begun)
                for (smem i = at / 2; i < at / 2 + 8; i++) home->cells[i].reading++;
        }
}

// As some lane 0 of the four warps, the same from beginning to end of a product.
static void as_reader(const warpgroup &g, const product &p, int begun) {
    fiber *last = me;
    const size_t group = (size_t)(&g - home->groups.data());
    me = &home->fibers[group * 128 + (size_t)(p.b >> 1 & 3) * 32];
    tile_read(p, begun, p.place);
    me = last;
}

static void whole_product_begun(warpgroup &g, product &p) {
    const uint64_t known = (uint64_t)0x3fff | (uint64_t)0x3fff << 16 | (uint64_t)0x3fff << 32 | (uint64_t)3 << 62;
    if (p.b >> 62 != 1 || (p.b & ~known) || (p.b >> 3 & 7))
        find(MISALIGNED, "a tile that is not of rows of 128 bytes, or not at 1024", p.place);
    p.left = 128;
    as_reader(g, p, 1);
    g.products.push_back(p);
    g.next = product();
    g.arrived = 0;
    g.turn++;
    run.patience = PATIENCE;
}

void product_begun(float *d, unsigned numbers, const uint32_t *a, uint64_t b, bool add) {
    void *place = __builtin_return_address(0);
    warpgroup &g = group_of();
    product &p = g.next;
    const uint32_t lane = index_of(me) % 128;
    if (g.arrived && (p.place != place || p.b != b || p.add != add || p.numbers != numbers)) {
        find(DIVERGED, "two wgmma of one warpgroup", place);
        stop();
    }
    operand_used(d, numbers * 4, true, place);
    operand_used(a, 16, false, place);
    if (!g.arrived) {
        p.place = place, p.b = b, p.add = add, p.numbers = numbers, p.done = false;
        for (const product &q : g.products) // the last one that had these sums
            if (q.d[lane] == d) p.sum = q.sum;
        if (operand_at(d, numbers * 4, true).busy == 1) p.sum = std::make_shared<sums>();
    }
    p.d[lane] = d;
    p.a[lane] = a;
    memcpy(p.was[lane], a, 16);
    if (operand_at(d, numbers * 4, true).busy == 1) memcpy(p.sum->of[lane], d, numbers * 4);
    memset(d, 0xff, numbers * 4);
    me->issued++;
    if (++g.arrived < 128) pause(&g.turn, "wgmma", place);
    else whole_product_begun(g, p);
}

static double bf16(uint32_t bits) {
    const uint32_t u = bits << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

// As mma_of_bf16: a step is summed in double, in order, and rounded once.
static void multiply(warpgroup &g, product &p) {
    static double a[64][16], b[16][128];
    const unsigned columns = 2 * p.numbers;
    as_reader(g, p, 0);
    for (unsigned r = 0; r < columns; r++)
        for (unsigned k = 0; k < 16; k++) {
            uint16_t v;
            memcpy(&v, home->shared + tile_at(p.b, r, k), 2);
            b[k][r] = bf16(v);
        }
    for (int l = 0; l < 128; l++)
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++)
                a[l / 32 * 16 + l % 32 / 4 + 8 * (i & 1)][2 * (l % 4) + h + 8 * (i >> 1)] =
                    bf16(p.was[l][i] >> 16 * h & 0xffff);
    for (int row = 0; row < 64; row++) {
        double sum[128];
        const int first = row / 16 * 32 + row % 8 * 4, upper = row % 16 / 8 * 2;
        for (unsigned c = 0; c < columns; c++)
            sum[c] = p.add ? (double)p.sum->of[first + (int)(c % 8 / 2)][c / 8 * 4 + upper + c % 2] : 0;
        for (int k = 0; k < 16; k++)
            for (unsigned c = 0; c < columns; c++) sum[c] += a[row][k] * b[k][c];
        for (unsigned c = 0; c < columns; c++)
            p.sum->of[first + (int)(c % 8 / 2)][c / 8 * 4 + upper + c % 2] = (float)sum[c];
    }
    p.done = true;
}

void product_fence() {
    if (passed_over(run.got.fences, __builtin_return_address(0))) return;
    me->register_fences++;
}

void product_commit() { me->commits.push_back(me->issued); }

// One more of this lane's products is over: it has its sums, unless a later one adds to them.
static void product_finished(warpgroup &g, void *place) {
    const uint32_t lane = index_of(me) % 128;
    for (uint32_t i = 0; i <= me->finished - g.first; i++)
        if (!g.products[i].done) multiply(g, g.products[i]);
    product &p = g.products[me->finished - g.first];
    if (memcmp(p.a[lane], p.was[lane], 16)) find(OPERANDS, "what a product under way multiplies by", place);
    operand_at(p.a[lane], 16, false).busy--;
    if (!--operand_at(p.d[lane], p.numbers * 4, true).busy) memcpy(p.d[lane], p.sum->of[lane], p.numbers * 4);
    p.left--;
    me->finished++;
}

void product_wait(unsigned groups) {
    void *place = __builtin_return_address(0);
    warpgroup &g = group_of();
    if (run.how.wrong == WEAK_PRODUCTS) groups++;
    const size_t n = me->commits.size();
    for (const uint32_t end = n > groups ? me->commits[n - 1 - groups] : 0; me->finished < end;)
        product_finished(g, place);
    for (; !g.products.empty() && !g.products[0].left; g.first++) g.products.pop_front();
    maybe_pause();
}

// --- blocks ---

void registers_set(unsigned n) {
    if (n % 8 || n < 24 || n > 256)
        find(DIVERGED, std::to_string(n) + " registers", __builtin_return_address(0));
    me->registers = n;
}

void hopper_begun(block &b) {
    b.groups.clear();
    b.groups.resize((b.fibers.size() + 127) / 128);
    b.mbarriers.clear();
    b.flights.clear();
    b.in_parts = false;
    for (named_barrier &n : b.named) n = named_barrier();
    for (fiber &f : b.fibers) {
        f.heard.clear();
        f.proxied.clear();
        f.operands.clear();
        f.commits.clear();
        f.moment = f.issued = f.finished = f.registers = f.register_fences = 0;
    }
}

void hopper_left() {
    if (me->issued > me->finished) find(IN_FLIGHT, "a product, at the end of the thread", NULL);
    me->operands.clear();
}

void hopper_ended(block &b) {
    size_t registers = 0;
    for (size_t i = 0; i < b.fibers.size(); i++) {
        registers += b.fibers[i].registers;
        if (b.fibers[i].registers != b.fibers[i / 128 * 128].registers)
            find(DIVERGED, "warps of one warpgroup with other numbers of registers", NULL);
    }
    if (registers > 65536) find(DIVERGED, std::to_string(registers) + " registers of one block", NULL);
    if (!b.flights.empty()) find(IN_FLIGHT, shared_name(b.flights[0].to) + ", at the end of the block", NULL);
    for (const mbarrier &m : b.mbarriers)
        if (m.bytes) find(MBARRIER, shared_name(m.at) + ": " + std::to_string(m.bytes) + " bytes at the end", NULL);
}
}
