// emu_state.h: what the files of the emulated machine share: fibers, warps, blocks, shadow cells, the launch at hand.
#ifndef EMU_STATE_H
#define EMU_STATE_H
#include "tests/cuda/emu.h"
#include <deque>
#include <memory>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emu {
enum { PATIENCE = 20000 }; // rounds without a barrier, a warp instruction or a thread's end: nothing more will come
typedef std::vector<uint32_t> clock; // by block or thread: what it did in phases or moments below this one is known

// Who touched a cell, and when: the number of its block since the program began, the block's phase (barriers so far),
// the warp's (sync_warp so far), the thread's moment (what it published so far). async: a bulk copy that it began did.
struct stamp {
    uint32_t serial, phase, synced;
    uint32_t thread : 10, moment : 21, async : 1;
};

// Two bytes of memory. Of readers two are remembered, of different warps.
struct cell {
    stamp written, read, read_too;
    uint32_t owner; // of shared memory: the block that it serves
    bool filled, flying; // of shared memory: written; a copy to it is under way
    bool generic;        // written by a store or cp.async, which asynchronous readers see behind a fence
    uint8_t reading;     // products under way that read it
    uint32_t atomic, atomic_thread; // global memory: the block that touched it atomically last
};

struct copy { smem to; const unsigned char *from; unsigned bytes; int group; };

// Registers that a product had: its sums, or what it multiplies by.
struct operand {
    const unsigned char *p;
    unsigned bytes;
    bool sums;
    int busy;         // products under way
    uint32_t touched; // behind so many fences
};
struct moment { uint32_t at, phase; };

struct fiber {
    emu::thread seen; // by the kernel
    void *top; // of its stack
    bool done, waited;          // waited: pdl_wait is behind it
    const uint32_t *event;      // what it waits for: that this is no longer `before`
    uint32_t before;
    const char *doing;
    void *place;
    std::vector<copy> copies;
    int group, collectives;
    clock known, met, published; // acquired; read off atomics and not yet behind a fence; what its last fence covers
    clock heard;                 // of threads of its block, by barriers of some of them
    uint32_t moment;
    std::vector<struct moment> proxied; // its fences between stores and asynchronous readers
    std::vector<operand> operands;
    std::vector<uint32_t> commits; // products before each of them
    uint32_t issued, finished;     // products
    uint32_t register_fences, registers;
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

struct mbarrier {
    smem at;
    uint32_t count, pending, phase;
    int64_t bytes;    // that have been promised and have not come
    int waiting;      // threads
    clock now, done;  // what those who have arrived knew; in the last phase
};

struct flight {
    smem to;
    const unsigned char *from;
    unsigned bytes;
    mbarrier *bar;
    stamp begun;
};

struct named_barrier {
    uint32_t turn;
    int arrived, wanted;
    clock now, done;
};

// A product of four warps: 64 rows by registers of each lane, columns by the tile in shared memory that `b` describes.
struct sums { float of[128][64]; };
struct product {
    std::shared_ptr<sums> sum;
    float *d[128];
    const uint32_t *a[128];
    uint32_t was[128][4];
    uint64_t b;
    unsigned numbers; // of each lane
    bool add, done;
    int left;         // lanes that have not waited for it
    void *place;
};

struct warpgroup {
    int arrived;
    uint32_t turn, first; // first: the number of the first product that is kept
    product next;
    std::deque<product> products;
};

struct block {
    int id; // -1: nobody at home
    uint32_t serial, phase, waited_in; // waited_in: the phase of its first pdl_wait
    int alive, arrived;
    void *place;
    clock known;
    unsigned char *shared;
    cell *cells;
    struct cluster *with; // the others of its cluster
    std::vector<fiber> fibers;
    std::vector<warp> warps;
    std::vector<warpgroup> groups;
    std::deque<mbarrier> mbarriers;
    std::vector<flight> flights;
    named_barrier named[16];
    bool in_parts; // threads meet at barriers of some of them
};

// Blocks that meet in cluster_barrier: `size` of them, side by side in `blocks`.
struct cluster {
    block *first;
    unsigned size;
    int arrived;
    uint32_t turn;
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
bool passed_over(std::vector<void *> &list, void *place); // a barrier or fence, for the harm NO_BARRIER
void join(clock &to, const clock &from);
std::string shared_name(smem a);
std::string global_name(const void *p);
inline int lane_of() { return (int)(me->seen.index.x & 31); }
inline warp &warp_of() { return home->warps[me->seen.index.x / 32]; }

// Shadow memory.
cell *cell_reached(block &b, smem i, access how, uint32_t thread, void *place); // NULL: it may not be touched
bool shared_touched(smem a, unsigned bytes, access how, uint32_t thread, void *place);
bool async_touched(smem a, unsigned bytes, access how, uint32_t thread, void *place); // by what is no thread's own
bool global_touched(const void *p, unsigned bytes, access how, void *place);
void atomic_touched(const void *p, void *place);
void state_checked();
stamp stamp_of(uint32_t thread);

// Of sm_90a.
void told(clock &to);                           // by this thread: what it knows and did
void warp_met();                                // lanes of a warp, where barriers of some threads are in use
void operand_touched(const void *p, size_t bytes, bool write, void *place);
bool flights_land(block &b);                    // some of those that somebody waits for
void hopper_begun(block &b);
void hopper_left();                             // by this thread
void hopper_ended(block &b);

// Counters.
void request_made(bool shared, uint64_t at, unsigned bytes, bool write, void *place);
void matrix_requested(const smem rows[32], void *place);
void requests_folded(block &b); // at its end
}
#endif
