// emu_state.h: what the files of the emulated machine share: fibers, warps, blocks, shadow cells, the launch at hand.
#ifndef EMU_STATE_H
#define EMU_STATE_H
#include "tests/cuda/emu.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu {
enum { PATIENCE = 20000 }; // rounds without a barrier, a warp instruction or a thread's end: nothing more will come
typedef std::vector<uint32_t> clock; // by block: writes of its phases below this one are known

// Who touched a cell, and when: the number of its block since the program began, the block's phase (barriers so far),
// the warp's (sync_warp so far).
struct stamp { uint32_t serial, phase, synced, thread; };

// Two bytes of memory. Of readers two are remembered, of different warps.
struct cell {
    stamp written, read, read_too;
    uint32_t owner; // of shared memory: the block that it serves
    bool filled, flying; // of shared memory: written; a copy to it is under way
    uint32_t atomic, atomic_thread; // global memory: the block that touched it atomically last
};

struct copy { smem to; const unsigned char *from; unsigned bytes; int group; };

struct fiber {
    thread seen; // by the kernel
    void *top; // of its stack
    bool done, waited;          // waited: pdl_wait is behind it
    const uint32_t *event;      // what it waits for: that this is no longer `before`
    uint32_t before;
    const char *doing;
    void *place;
    std::vector<copy> copies;
    int group, collectives;
    clock known, met, published; // acquired; read off atomics and not yet behind a fence; what its last fence covers
    std::vector<uint32_t> nth;   // by counter: requests so far
};

struct request { uint32_t lanes; uint64_t at[32]; };

struct warp {
    unsigned char in[32][40], out[32][16];
    int arrived;
    warp_op op;
    void *place;
    uint32_t turn, synced;
    std::vector<std::vector<request>> requests; // by counter, then by turn
};

struct block {
    int id; // -1: nobody at home
    uint32_t serial, phase, waited_in; // waited_in: the phase of its first pdl_wait
    int alive, arrived;
    void *place;
    clock known;
    unsigned char *shared;
    cell *cells;
    std::vector<fiber> fibers;
    std::vector<warp> warps;
};

// The launch at hand.
struct launched {
    const std::function<void()> *kernel;
    options how;
    dim3 grid, dim;
    size_t shared;
    uint32_t first; // serial of its block 0
    uint32_t random;
    bool over;      // no use in going on
    uint64_t found, patience;
    result got;
};
extern launched run;
extern block blocks[MOST_RESIDENT];
extern block *home; // of who runs
extern fiber *me;

uint32_t draw();
void pause(const uint32_t *event, const char *doing,
           void *place); // until *event changes; NULL: until it is its turn again
void maybe_pause();
void stop(); // ends the launch from within a fiber
void find(kind what, const std::string &where, void *place, int other = -1);
std::string shared_name(smem a);
std::string global_name(const void *p);
inline int lane_of() { return (int)(me->seen.index.x & 31); }
inline warp &warp_of() { return home->warps[me->seen.index.x / 32]; }

// Shadow memory.
bool shared_touched(smem a, unsigned bytes, access how, uint32_t thread, void *place);
bool global_touched(const void *p, unsigned bytes, access how, void *place);
void atomic_touched(const void *p, void *place);
void state_checked();

// Counters.
void request_made(bool shared, uint64_t at, unsigned bytes, bool write, void *place);
void matrix_requested(const smem rows[32], void *place);
void requests_folded(block &b); // at its end
}
#endif
