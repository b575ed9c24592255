// emu_memory.cpp: buffers of the device, what is known of each of their bytes, and the rules of who may touch what.
// Accesses that kernels make through plain pointers arrive by the call-outs of gcc's -fsanitize=thread, which are
// answered here, not by libtsan.
#include "tests/cuda/emu_state.h"
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace emu {
enum { ARENA = 8 << 20, ZONE = 256, MARK = 0xA5 };
enum { THERE = 1, FILLED = 2, MINE = 4, WEIGHT = 8 }; // of a byte; MINE: the kernel may write it
alignas(1024) static unsigned char arena[ARENA];
static uint8_t bytes_are[ARENA];
static cell cells[ARENA / 2];
struct buffer { const char *name; size_t at, bytes; bool state; };
static std::vector<buffer> buffers;
static size_t end = ZONE;

static void *reserve(size_t bytes, const char *name, bool state, int are) {
    const size_t at = (end + ZONE + 255) / 256 * 256;
    if (at + bytes + ZONE > ARENA) {
        fprintf(stderr, "emu: %s: %zu bytes do not fit into the device\n", name, bytes);
        exit(2);
    }
    memset(arena + end, MARK, at - end);
    memset(arena + at + bytes, MARK, ZONE);
    memset(bytes_are + at, are, bytes);
    buffers.push_back({name, at, bytes, state});
    end = at + bytes;
    return arena + at;
}

static void *filled(const void *data, size_t bytes, const char *name, int are) {
    return memcpy(reserve(bytes, name, false, are), data, bytes);
}

void *weights(const void *data, size_t bytes, const char *name) {
    return filled(data, bytes, name, THERE | FILLED | WEIGHT);
}

void *input(const void *data, size_t bytes, const char *name) { return filled(data, bytes, name, THERE | FILLED); }
void *changed(const void *data, size_t bytes, const char *name) {
    return filled(data, bytes, name, THERE | FILLED | MINE);
}

void *output(size_t bytes, const char *name) { return memset(reserve(bytes, name, false, THERE | MINE), 0xff, bytes); }
void *state(size_t bytes, const char *name) {
    return memset(reserve(bytes, name, true, THERE | FILLED | MINE), 0, bytes);
}

void reset() {
    memset(bytes_are, 0, end + ZONE);
    buffers.clear();
    end = ZONE;
}

static uintptr_t adopted_at;
static size_t adopted_bytes;
void adopt(void *memory, size_t bytes) { adopted_at = (uintptr_t)memory, adopted_bytes = bytes; }
static bool adopted(const void *p) { return (uintptr_t)p - adopted_at < adopted_bytes; }

bool zones_whole() {
    size_t from = ZONE;
    for (size_t i = 0; i <= buffers.size(); i++) {
        const size_t to = i < buffers.size() ? buffers[i].at : end + ZONE;
        for (size_t j = from; j < to; j++)
            if (arena[j] != MARK) return false;
        if (i < buffers.size()) from = buffers[i].at + buffers[i].bytes;
    }
    return true;
}

void state_checked() {
    for (const buffer &b : buffers) {
        if (!b.state) continue;
        for (size_t i = 0; i < b.bytes; i++) {
            if (!arena[b.at + i]) continue;
            find(STATE_LEFT, global_name(arena + b.at + i), NULL);
            break;
        }
    }
}

std::string shared_name(smem a) { return "shared+" + std::to_string(a); }

std::string global_name(const void *p) {
    const size_t at = (size_t)((const unsigned char *)p - arena);
    const buffer *best = NULL;
    for (const buffer &b : buffers)
        if (b.at <= at || !best) best = &b;
    if (!best) return "nowhere";
    const long off = (long)at - (long)best->at;
    return std::string(best->name) + (off < 0 ? "" : "+") + std::to_string(off) + " of " + std::to_string(best->bytes);
}

// --- order ---

stamp stamp_of(uint32_t thread) {
    return {home->serial, home->phase, home->warps[thread / 32].synced, thread, home->fibers[thread].moment, 0};
}

static bool comes_before(const stamp &s) {
    if (s.serial < run.first) return true; // an earlier launch
    if (s.serial == home->serial) {
        const uint32_t t = me->seen.index.x;
        if (s.thread < me->heard.size() && s.moment < me->heard[s.thread]) return true;
        if (s.async) return false;
        return s.thread == t || s.phase < home->phase || (s.thread / 32 == t / 32 && s.synced < warp_of().synced);
    }
    const size_t b = s.serial - run.first;
    return (b < home->known.size() && s.phase < home->known[b]) || (b < me->known.size() && s.phase < me->known[b]);
}

static std::string against(const char *was, const stamp &s) {
    const bool here = s.serial == home->serial;
    return std::string(", ") + was + (here ? " by thread " : " by block ") +
           std::to_string(here ? s.thread : s.serial - run.first);
}

// Whether nothing races with this access of a cell, which is then remembered.
static bool in_order(cell &c, bool write, uint32_t thread, const std::string &name(uint64_t), uint64_t at,
                     void *place) {
    const stamp now = stamp_of(thread);
    const stamp *with = NULL;
    if (!comes_before(c.written)) with = &c.written;
    else if (write && !comes_before(c.read)) with = &c.read;
    else if (write && !comes_before(c.read_too)) with = &c.read_too;
    if (with) {
        const bool here = with->serial == home->serial;
        const char *was = with == &c.written ? write ? "written twice, before" : "read, but written"
                                             : "written, but read";
        find(here ? RACE : BLOCK_RACE, name(at) + against(was, *with), place,
             (int)(here ? with->thread : with->serial - run.first));
        return false;
    }
    if (write) c.written = now;
    else {
        if (c.read.serial != now.serial || c.read.thread / 32 != thread / 32) c.read_too = c.read;
        c.read = now;
    }
    return true;
}

// --- shared memory ---

static const std::string &shared_said(uint64_t a) {
    static std::string s;
    return s = shared_name((smem)a);
}

static const std::string &global_said(uint64_t p) {
    static std::string s;
    return s = global_name((const void *)p);
}

// A write that a store made is seen by asynchronous readers where who made it fenced behind it, and they know of that.
static bool fenced(const cell &c) {
    const fiber &by = home->fibers[c.written.thread];
    const auto f = std::lower_bound(by.proxied.begin(), by.proxied.end(), (uint32_t)c.written.moment,
                                    [](const moment &m, uint32_t at) { return m.at < at; });
    return f != by.proxied.end() && (&by == me || f->phase < home->phase ||
                                     (c.written.thread < me->heard.size() && f->at < me->heard[c.written.thread]));
}

static bool inside(smem a, unsigned bytes, void *place) {
    if ((size_t)a + bytes <= run.shared) return true;
    find(OUT_OF_BOUNDS, shared_name(a) + " of " + std::to_string(run.shared), place);
    return false;
}

// A cell of a block's shared memory that a thread may touch now, written or not; else NULL, and it is told why.
cell *cell_reached(block &b, smem i, access how, uint32_t thread, void *place) {
    cell &c = b.cells[i];
    if (c.owner != b.serial) c = cell(), c.owner = b.serial;
    if (c.flying || (how == WRITE && c.reading)) {
        find(IN_FLIGHT, shared_name(2 * i), place);
        return NULL;
    }
    return in_order(c, how == WRITE, thread, shared_said, 2 * i, place) ? &c : NULL;
}

bool async_touched(smem a, unsigned bytes, access how, uint32_t thread, void *place) {
    if (!inside(a, bytes, place)) return false;
    for (smem i = a / 2; i <= (a + bytes - 1) / 2; i++) {
        cell *c = cell_reached(*home, i, how, thread, place);
        if (!c) return true;
        if (how == READ && !c->filled) {
            find(UNINITIALISED, shared_name(2 * i), place);
            return true;
        }
        if (c->generic && how == READ && !fenced(*c)) {
            find(PROXY, shared_name(2 * i) + against("written", c->written), place, (int)c->written.thread);
            return true;
        }
    }
    return true;
}

bool shared_touched(smem a, unsigned bytes, access how, uint32_t thread, void *place) {
    if (!inside(a, bytes, place)) return false;
    if (bytes > 1 && a % bytes) find(MISALIGNED, shared_name(a), place);
    for (smem i = a / 2; i <= (a + bytes - 1) / 2; i++) {
        cell *c = cell_reached(*home, i, how, thread, place);
        if (!c) return true;
        if (how == WRITE) c->filled = c->generic = true;
        else if (!c->filled) {
            find(UNINITIALISED, shared_name(2 * i), place);
            return true;
        }
    }
    return true;
}

static void touch_shared(smem a, unsigned bytes, access how, void *place) {
    maybe_pause();
    if (!shared_touched(a, bytes, how, me->seen.index.x, place)) stop();
    request_made(true, a, bytes, how == WRITE, place);
}

void load_shared(void *to, smem a, unsigned bytes) {
    touch_shared(a, bytes, READ, __builtin_return_address(0));
    memcpy(to, home->shared + a, bytes);
}

void store_shared(smem a, const void *from, unsigned bytes) {
    touch_shared(a, bytes, WRITE, __builtin_return_address(0));
    memcpy(home->shared + a, from, bytes);
}

// --- global memory ---

static bool allowed(size_t at, unsigned bytes, access how, void *place) {
    int all = THERE | FILLED | MINE | WEIGHT, any = 0;
    for (unsigned i = 0; i < bytes; i++) all &= bytes_are[at + i], any |= bytes_are[at + i];
    const unsigned char *p = arena + at;
    if (!(all & THERE)) {
        find(OUT_OF_BOUNDS, global_name(p), place);
        return false;
    }
    if (how == WRITE && !(all & MINE)) {
        find(WRITES_INPUT, global_name(p), place);
        return false;
    }
    if (how == READ_ONLY && (any & MINE))
        find(WRITES_INPUT, global_name(p) + ", read as if nobody could write it", place);
    if (how != WRITE && !(all & FILLED)) find(UNINITIALISED, global_name(p), place);
    const bool waited = me->waited || (home->waited_in && home->waited_in < home->phase);
    if (!(all & WEIGHT) && !waited) find(BEFORE_WAIT, global_name(p), place);
    return true;
}

// False: not to be done, since it would harm what is not the kernel's.
bool global_touched(const void *p, unsigned bytes, access how, void *place) {
    if (adopted(p)) return true;
    const size_t at = (size_t)((const unsigned char *)p - arena);
    if (at >= ARENA - 16) {
        find(OUT_OF_BOUNDS, "an address of no buffer", place);
        return false;
    }
    if ((bytes & (bytes - 1)) == 0 && at % bytes) find(MISALIGNED, global_name(p), place);
    if (!allowed(at, bytes, how, place)) return false;
    for (size_t i = at / 2; i <= (at + bytes - 1) / 2; i++) {
        cell &c = cells[i];
        if (c.atomic >= run.first && (c.atomic != home->serial || c.atomic_thread != me->seen.index.x)) {
            find(BLOCK_RACE, global_name(p) + ", which others change atomically", place, (int)(c.atomic - run.first));
            break;
        }
        if (!in_order(c, how == WRITE, me->seen.index.x, global_said, (uint64_t)(arena + 2 * i), place)) break;
    }
    if (how == WRITE)
        for (unsigned i = 0; i < bytes; i++) bytes_are[at + i] |= FILLED;
    return true;
}

void atomic_touched(const void *p, void *place) {
    if (adopted(p)) return;
    const size_t at = (size_t)((const unsigned char *)p - arena);
    if (at >= ARENA - 16 || !allowed(at, 4, WRITE, place)) stop();
    if (at % 4) find(MISALIGNED, global_name(p), place);
    for (size_t i = at / 2; i < at / 2 + 2; i++) {
        cell &c = cells[i];
        if (!comes_before(c.written) || !comes_before(c.read))
            find(BLOCK_RACE, global_name(p) + ", also touched without atomics", place);
        c.atomic = home->serial;
        c.atomic_thread = me->seen.index.x;
    }
}

// Reads out of bounds are let pass when they stay on the device: they find what lies there, as on a GPU.
static void touch_global(const void *p, unsigned bytes, access how, void *place) {
    maybe_pause();
    if (adopted(p)) return;
    const bool fine = global_touched(p, bytes, how, place);
    if (!fine && (how == WRITE || (size_t)((const unsigned char *)p - arena) >= ARENA - 16)) stop();
    request_made(false, (uint64_t)((const unsigned char *)p - arena), bytes, how == WRITE, place);
}

void load(void *to, const void *p, unsigned bytes, access how) {
    touch_global(p, bytes, how, __builtin_return_address(0));
    memcpy(to, p, bytes);
}

void store(void *p, const void *from, unsigned bytes) {
    touch_global(p, bytes, WRITE, __builtin_return_address(0));
    memcpy(p, from, bytes);
}

// A plain pointer: of this block's shared memory, of the device, or of a fiber's own stack and the test's, which is
// nobody's business.
static void plain(const void *p, size_t bytes, access how, void *place) {
    if (!self || !bytes) return;
    const unsigned char *c = (const unsigned char *)p;
    if (c >= arena && c < arena + ARENA) touch_global(p, (unsigned)bytes, how, place);
    else if (c >= home->shared && c < home->shared + MOST_SHARED)
        touch_shared((smem)(c - home->shared), (unsigned)bytes, how, place);
    else if (!me->operands.empty()) operand_touched(p, bytes, how == WRITE, place);
}
}

// --- what gcc calls for each load and store of instrumented code ---
extern "C" {
#define PLACE __builtin_return_address(0)
#define ACCESS(n)                                                                   \
    void __tsan_read##n(void *p) { emu::plain(p, n, emu::READ, PLACE); }            \
    void __tsan_write##n(void *p) { emu::plain(p, n, emu::WRITE, PLACE); }          \
    void __tsan_unaligned_read##n(void *p) { emu::plain(p, n, emu::READ, PLACE); }  \
    void __tsan_unaligned_write##n(void *p) { emu::plain(p, n, emu::WRITE, PLACE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *p, size_t n) { emu::plain(p, n, emu::READ, PLACE); }
void __tsan_write_range(void *p, size_t n) { emu::plain(p, n, emu::WRITE, PLACE); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
