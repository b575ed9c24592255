// emu.h: the emulated machine as tests see it: memory of a device, launches, what was found and counted in one.
//
// Threads are fibers that change places at barriers, warp instructions, atomics and now and then at an access, in an
// order that a seed decides. What is looked for does not wait for a schedule that makes it visible: two accesses race
// when nothing orders them, whichever came first. What it cannot see stands in docs/KERNELS.md.
#ifndef EMU_H
#define EMU_H
#include "kernels/cuda/simt_emu.h"
#include <functional>
#include <string>
#include <vector>

namespace emu {
enum kind {
    OUT_OF_BOUNDS, // of a buffer, or of shared memory
    MISALIGNED,    // for its size
    UNINITIALISED, // read before it was written
    WRITES_INPUT,  // a store into a buffer that the kernel may only read, or a read-only load of one that it may write
    IN_FLIGHT,     // touched while an asynchronous copy to it is under way, or left so at the end
    RACE,          // two threads of a block, one writes, no barrier between them
    BLOCK_RACE,    // two blocks, one writes, nothing published and acquired between them
    DIVERGED,      // lanes of a warp, or threads of a block, meet in different instructions
    EXITED,        // a barrier was completed by threads that had left, a block of a cluster is written to that has
    DEADLOCK,      // nobody can go on
    BEFORE_WAIT,   // something other than weights was touched before pdl_wait
    STATE_LEFT,    // counters that are not zero at the end
    PROXY,         // an asynchronous reader of what was stored, and nobody fenced between
    MBARRIER,      // not initialised, more arrivals than it expects, or bytes that were promised and never came
    OPERANDS,      // registers of a wgmma were touched while it was under way, or no wgmma_fence stands between
    KINDS
};
extern const char *const kind_names[KINDS];
bool has_90a(); // the machine has what sm_90a has
extern const bool watched; // false: the machine is a GPU (tests/gpu/on_gpu.cpp), which finds and counts nothing

struct finding {
    kind what;
    int block, thread, other; // other: the thread or block it collides with, or -1
    std::string where;        // buffer and offset, or who waits for what
    void *place;              // in the kernel's code, or NULL
    unsigned times;           // found at this place
};

// Requests that warps made of memory at one place of the code. For global memory `moved` counts sectors of 32 bytes,
// for shared memory passes over the banks; `least` is what the same bytes need at best.
struct counter {
    void *place;
    bool shared, write;
    unsigned bytes; // of a lane
    uint64_t requests, moved, least;
};

// What is done wrong on purpose, to see that it is found.
enum harm {
    NONE,
    NO_BARRIER,   // the barrier or fence at `at` is passed over
    WEAK_WAIT,    // cp_async_wait lets one group more be in flight
    WHOLE_COPIES, // cp_async16 reads 16 bytes, whatever it was told
    LOST_LANE,    // lane 7 of warp 1 passes over its third warp instruction
    NO_WRAP,      // atomic_inc goes on counting
    NO_PDL_WAIT,
    WEAK_PRODUCTS, // wgmma_wait lets one group more be under way
    WRONG_PARITY,  // mbar_try_wait asks for the other phase
    WRONG_BYTES    // mbar_arrive_expect promises 16 bytes more
};

struct options {
    unsigned seed = 1;
    unsigned resident = 3; // blocks at work at once
    unsigned cluster = 1;  // blocks of the second dimension that are one cluster, all at work at once
    harm wrong = NONE;
    void *at = nullptr;
};

struct result {
    std::vector<finding> findings; // one for each kind and place
    std::vector<counter> counters;
    std::vector<void *> barriers, fences, waits; // their places; waits: for mbarriers
    bool has(kind what) const;
    // The largest moved / least of global or shared memory; 0 without any.
    double worst(bool shared) const;
    void print(size_t most = 6) const;
    void print_counters() const;
};

// Buffers with red zones. Weights and inputs hold a copy of data and are read alone, weights also before pdl_wait;
// output holds NaN and must be written before it is read; changed is an input that may be written; state is zero, and
// again at the end of each launch.
enum { MOST_SHARED = 232448, MOST_RESIDENT = 8 };
void *weights(const void *data, size_t bytes, const char *name);
void *input(const void *data, size_t bytes, const char *name);
void *changed(const void *data, size_t bytes, const char *name);
void *output(size_t bytes, const char *name);
void *state(size_t bytes, const char *name);
void reset();         // forgets all buffers
void adopt(void *memory, size_t bytes); // of somebody who says what is allowed there: nothing is looked for in it
bool zones_whole();   // nothing was written between buffers, also by code that is not watched

result launch(dim3 grid, dim3 block, size_t shared, const options &how, const std::function<void()> &kernel);
}
#endif
