// emu_count.cpp: requests that warps make of memory, put together from what their lanes touch at one place of the code
// for the nth time, and what they cost; and how findings and counters are printed.
#include "tests/cuda/emu_state.h"
#include <algorithm>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

namespace emu {
const bool watched = true;
bool has_90a() { return true; }
const char *const kind_names[KINDS] = {"out of bounds",       "misaligned", "uninitialised",   "an input is written",
                                       "in flight",           "race",       "race of blocks",  "diverged",
                                       "barrier without all", "deadlock",   "before pdl_wait", "state left",
                                       "stored without fence.proxy", "an mbarrier misused",
                                       "registers of a product under way"};

// A counter is found by its place; a copy has two there, for the load and for the store.
static size_t counter_of(bool shared, bool write, unsigned bytes, void *place) {
    static std::vector<std::pair<uintptr_t, size_t>> table(1 << 12);
    static uint32_t of; // the launch that the table belongs to
    std::vector<counter> &counters = run.got.counters;
    if (of != run.first) std::fill(table.begin(), table.end(), std::make_pair((uintptr_t)0, (size_t)0)), of = run.first;
    const uintptr_t key = (uintptr_t)place * 2 + shared;
    for (size_t i = key * 0x9E3779B97F4A7C15u >> 52;; i = (i + 1) % table.size()) {
        if (table[i].first == key) return table[i].second;
        if (table[i].first) continue;
        table[i] = {key, counters.size()};
        counters.push_back({place, shared, write, bytes, 0, 0, 0});
        return counters.size() - 1;
    }
}

void request_made(bool shared, uint64_t at, unsigned bytes, bool write, void *place) {
    const size_t id = counter_of(shared, write, bytes, place);
    warp &w = warp_of();
    if (me->nth.size() <= id) me->nth.resize(id + 1);
    if (w.requests.size() <= id) w.requests.resize(id + 1);
    std::vector<request> &all = w.requests[id];
    const uint32_t turn = me->nth[id]++;
    if (all.size() <= turn) all.resize(turn + 1);
    all[turn].lanes |= 1u << lane_of();
    all[turn].at[lane_of()] = at;
}

// Passes over the 32 banks of 4 bytes that these lanes need: the most different words in one bank.
static unsigned passes(const uint64_t *at, int n, unsigned bytes) {
    uint64_t words[32 * 4];
    unsigned count = 0, most = 1, bank[32] = {0};
    for (int i = 0; i < n; i++)
        for (uint64_t w = at[i] / 4; w <= (at[i] + bytes - 1) / 4 && count < 128; w++) words[count++] = w;
    std::sort(words, words + count);
    for (unsigned i = 0; i < count; i++)
        if (!i || words[i] != words[i - 1]) most = std::max(most, ++bank[words[i] % 32]);
    return most;
}

static void fold_shared(counter &c, const uint64_t *at, int n) {
    const int together = c.bytes >= 16 ? 8 : c.bytes >= 8 ? 16 : 32;
    for (int i = 0; i < n; i += together) {
        c.moved += passes(at + i, std::min(n - i, together), c.bytes);
        c.least++;
    }
}

static void fold_global(counter &c, uint64_t *at, int n) {
    uint64_t sector = UINT64_MAX, end = 0, bytes = 0;
    std::sort(at, at + n);
    for (int i = 0; i < n; i++) {
        for (uint64_t s = at[i] / 32; s <= (at[i] + c.bytes - 1) / 32; s++)
            if (sector == UINT64_MAX || s > sector) c.moved++, sector = s;
        const uint64_t from = std::max(at[i], end);
        end = std::max(end, at[i] + c.bytes);
        bytes += end > from ? end - from : 0;
    }
    c.least += (bytes + 31) / 32;
}

void requests_folded(block &b) {
    for (warp &w : b.warps) {
        for (size_t id = 0; id < w.requests.size(); id++) {
            counter &c = run.got.counters[id];
            for (const request &r : w.requests[id]) {
                uint64_t at[32];
                int n = 0;
                for (int l = 0; l < 32; l++)
                    if (r.lanes >> l & 1) at[n++] = r.at[l];
                c.requests++;
                if (c.shared) fold_shared(c, at, n);
                else fold_global(c, at, n);
            }
        }
        w.requests.clear();
    }
}

// ldmatrix: four requests of eight rows.
void matrix_requested(const smem rows[32], void *place) {
    counter &c = run.got.counters[counter_of(true, false, 16, place)];
    c.requests++;
    for (int m = 0; m < 4; m++) {
        uint64_t at[8];
        for (int r = 0; r < 8; r++) at[r] = rows[8 * m + r];
        c.moved += passes(at, 8, 16);
        c.least++;
    }
}

// --- results ---

bool result::has(kind what) const {
    for (const finding &f : findings)
        if (f.what == what) return true;
    return false;
}

double result::worst(bool shared) const {
    double most = 0;
    for (const counter &c : counters)
        if (c.shared == shared && c.least) most = std::max(most, (double)c.moved / (double)c.least);
    return most;
}

// The line of a kernel that a call at this place stands in, where addr2line is there to tell; else its offset in the
// program. Of what was inlined the first that is not simt's.
static std::string line_of(void *place) {
    Dl_info info;
    if (!place || !dladdr(place, &info) || !info.dli_fname) return "?";
    char command[4200], line[400] = "";
    const size_t offset = (size_t)((char *)place - (char *)info.dli_fbase) - 1;
    snprintf(command, sizeof command, "addr2line -ise '%s' 0x%zx 2>/dev/null", info.dli_fname, offset);
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f) && !strncmp(line, "simt", 4)) {}
    if (f) pclose(f);
    if (!line[0] || line[0] == '?') snprintf(line, sizeof line, "program+0x%zx", offset);
    line[strcspn(line, " \n")] = '\0';
    return line;
}

void result::print(size_t most) const {
    for (size_t i = 0; i < findings.size() && i < most; i++) {
        const finding &f = findings[i];
        printf("  %s: %s: %s; block %d thread %d", line_of(f.place).c_str(), kind_names[f.what], f.where.c_str(),
               f.block, f.thread);
        printf(f.times > 1 ? "; %u times\n" : "\n", f.times);
    }
    if (findings.size() > most) printf("  and %zu more\n", findings.size() - most);
}

void result::print_counters() const {
    for (const counter &c : counters) {
        if (!c.requests) continue;
        printf("  %s: %s %s of %u bytes: %llu requests, %.2f %s each, %.2f at best\n", line_of(c.place).c_str(),
               c.shared ? "shared" : "global", c.write ? "store" : "load", c.bytes, (unsigned long long)c.requests,
               (double)c.moved / (double)c.requests, c.shared ? "passes" : "sectors",
               (double)c.least / (double)c.requests);
    }
}
}
