// on_gpu.cpp: the machine of tests/cuda/emu.h is a GPU: the same checks run on it, but nothing of what a kernel does is
// watched. Buffers stand between guard bytes in memory that host and GPU share.
#include "tests/cuda/emu.h"
#include "tests/gpu/gpu_calls.h"
#include <stdio.h>
#include <string.h>

namespace emu {
const bool watched = false;
bool has_90a() { return gpu_capability() == 90; }
const char *const kind_names[KINDS] = {"out of bounds", "misaligned", "uninitialised", "an input is written",
                                       "in flight", "a race", "a race of blocks", "diverged", "exited", "a deadlock",
                                       "before pdl_wait", "state left", "no fence.proxy", "an mbarrier misused",
                                       "registers of a product under way"};
enum { ZONE = 256, MARK = 0xA5 };
struct buffer { unsigned char *base; size_t bytes; bool state; };
static std::vector<buffer> buffers;

static void *reserve(size_t bytes, bool state) {
    unsigned char *base = (unsigned char *)gpu_memory(bytes + 2 * ZONE);
    memset(base, MARK, bytes + 2 * ZONE);
    buffers.push_back({base, bytes, state});
    return base + ZONE;
}

void *weights(const void *data, size_t bytes, const char *) { return memcpy(reserve(bytes, false), data, bytes); }
void *input(const void *data, size_t bytes, const char *) { return memcpy(reserve(bytes, false), data, bytes); }
void *changed(const void *data, size_t bytes, const char *) { return memcpy(reserve(bytes, false), data, bytes); }
void *output(size_t bytes, const char *) { return memset(reserve(bytes, false), 0xff, bytes); }
void *state(size_t bytes, const char *) { return memset(reserve(bytes, true), 0, bytes); }

void reset() {
    for (const buffer &b : buffers) gpu_free(b.base);
    buffers.clear();
}

bool zones_whole() {
    for (const buffer &b : buffers)
        for (size_t i = 0; i < ZONE; i++)
            if (b.base[i] != MARK || b.base[ZONE + b.bytes + i] != MARK) return false;
    return true;
}

result launch(dim3 grid, dim3 block, size_t shared, const options &how, const std::function<void()> &kernel) {
    const unsigned g[3] = {grid.x, grid.y, grid.z}, b[3] = {block.x, block.y, block.z};
    result r;
    gpu_shape(g, b, shared, how.cluster);
    kernel();
    gpu_wait();
    for (const buffer &s : buffers)
        for (size_t i = 0; s.state && i < s.bytes; i++)
            if (s.base[ZONE + i]) {
                r.findings.push_back({STATE_LEFT, 0, 0, -1, "a counter", NULL, 1});
                break;
            }
    return r;
}

bool result::has(kind what) const {
    for (const finding &f : findings)
        if (f.what == what) return true;
    return false;
}

double result::worst(bool) const { return 0; }

void result::print(size_t) const {
    for (const finding &f : findings) printf("  %s: %s\n", kind_names[f.what], f.where.c_str());
}

void result::print_counters() const {}
}
