// meter.h: what a device can do at most, measured where it is: bytes that it reads, multiply-adds that it does; and how
// much of both each of a CPU's micro-kernels reaches. None of the figures is a proven ceiling: they are what the
// plainest loop reaches at that moment.
#ifndef LQ_METER_H
#define LQ_METER_H
#include "kernels/ops.h"

// Seconds that all threads take to read these bytes once; the better of one stream a thread and of eight.
double lq_meter_read(lq_dev *d, const lq_span *s, size_t count);
// Multiply-adds a second of all threads, by the instruction that products with such activations stand on: I8 the dot
// product of bytes, else fused multiply-add. 0: there is none to measure (portable C).
double lq_meter_peak(lq_dev *d, lq_dtype act);

// --- micro-kernels ---

enum { LQ_METER_MOST = 100 }; // repetitions
// One row of lq_ukrs[] on one type, one shape and one height: each repetition timed between two plain reads of as many
// bytes, which lie elsewhere, and two runs of the bare instruction; the better of each two. On one thread all times are
// that thread's own. Behind them come lines of lq_pack, from layout any to the device's: without rows of activations,
// and bytes are those that it reads and those that it writes.
typedef struct lq_meter_line {
    const char *kernel;
    char type[64];        // of the weight
    int64_t n, k;         // of a matrix
    int rows;             // of activations; 0: lq_pack
    size_t bytes;         // of a matrix; of lq_pack twice as many
    int count;            // repetitions
    double seconds[LQ_METER_MOST]; // of one matrix
    double read[LQ_METER_MOST];    // bytes a second
    double peak[LQ_METER_MOST];    // multiply-adds a second; 0: none
} lq_meter_line;

typedef struct lq_meter_shape { int64_t n, k; } lq_meter_shape;
typedef struct lq_meter_opts {
    const char *name;     // rows that have it in their name; NULL: all
    const char *isa;      // no better than this; NULL: all this machine has
    int threads, repeats;
    const lq_meter_shape *shapes;
    int count;            // 0: a set of ours
    bool (*on)(void *arg, const lq_meter_line *line); // false stops
    void *arg;
} lq_meter_opts;
bool lq_meter_known(const char *name); // whether a row has it in its name
struct lq_ukr;
bool lq_meter_has(const struct lq_ukr *u); // whether the list has a type for this row: checkkern wants one for each
// Every row this machine can run, with each type of a list that it would be given. A matrix of more than 128 MB is
// cut to its first rows. Refuses where memory has no room for 512 MB of matrices: fewer would come from the caches.
bool lq_meter_kernels(const lq_meter_opts *o, lq_err *err);
#endif
