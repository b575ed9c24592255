// meter.c: the slots that measure a GPU: the kernels of meter.cuh, timed on the device.
#include "kernels/cuda/meter.h"
#include "kernels/cuda/fast.h"
#include <limits.h>
#include <stdlib.h>

void lq_meter_read_bytes(void), lq_meter_bf16(void), lq_meter_s8(void);
enum { READ_BLOCKS = 2, WARPS = LQ_METER_THREADS / 32 }; // on a multiprocessor

bool lq_cuda_meter_open(lq_dev *d, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    void (*const all[])(void) = {lq_meter_read_bytes, lq_meter_bf16, lq_meter_s8};
    const size_t warps = (size_t)c->processors * READ_BLOCKS * WARPS;
    for (int i = 0; i < 3; i++)
        if (!lq_gpu_prepare(c->gpu, lq_entry(all[i]), 0, err)) return false;
    return lq_gpu_alloc(c->gpu, warps * sizeof(uint32_t), &c->metered, err);
}

typedef struct job { const lq_dev *d; void (*kernel)(void); unsigned blocks; lq_meter_args a; } job;

static void launch(void *arg) {
    const job *j = arg;
    const unsigned processors = (unsigned)lq_cuda_of(j->d)->processors;
    lq_fast_launch(j->d, j->kernel, &j->a, sizeof j->a,
                   (lq_gpu_grid){.blocks = j->blocks * processors, .threads = LQ_METER_THREADS});
}

// The better of two.
static double seconds_of(job *j) {
    lq_gpu *g = lq_cuda_of(j->d)->gpu;
    const double a = lq_gpu_seconds(g, launch, j), b = lq_gpu_seconds(g, launch, j);
    return a < b ? a : b;
}

// The spans in pieces; all (NULL: only counted). How many.
static size_t cut(const lq_span *s, size_t count, lq_meter_piece *all) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0, size = s[i].n / 16; at < size; at += LQ_METER_PIECE, n++) {
            const size_t left = size - at, vectors = left < LQ_METER_PIECE ? left : LQ_METER_PIECE;
            if (all) all[n] = (lq_meter_piece){(const char *)s[i].p + at * 16, vectors};
        }
    return n;
}

static double read_time(lq_dev *d, const lq_span *s, size_t count) {
    lq_gpu *g = lq_cuda_of(d)->gpu;
    const size_t n = cut(s, count, NULL);
    lq_meter_piece *all = malloc((n ? n : 1) * sizeof *all);
    void *there = NULL;
    double took = 0;
    lq_err err;
    if (all && n && n <= INT_MAX && lq_gpu_alloc(g, n * sizeof *all, &there, &err)) {
        cut(s, count, all);
        lq_gpu_put(g, there, all, n * sizeof *all);
        took = seconds_of(&(job){d, lq_meter_read_bytes, READ_BLOCKS,
                                 {.pieces = there, .count = (int)n, .out = lq_cuda_of(d)->metered}});
        lq_gpu_free(g, there);
    }
    free(all);
    return took;
}

// Tensor cores by mma, as all products of default mode; exact mode has none that stands on an instruction.
static double peak(lq_dev *d, lq_dtype act) {
    job j = {d, act == LQ_I8 ? lq_meter_s8 : lq_meter_bf16, 1, {.loops = 64, .out = lq_cuda_of(d)->metered}};
    if (d->act == LQ_F32) return 0;
    const double macs = (double)(act == LQ_I8 ? LQ_METER_S8_MACS : LQ_METER_BF16_MACS) * LQ_METER_MMAS * WARPS *
                        lq_cuda_of(d)->processors;
    double took = seconds_of(&j);
    while (took > 0 && took < 0.002 && j.a.loops < 1 << 20) {
        j.a.loops *= 4;
        took = seconds_of(&j);
    }
    return took > 0 ? macs * j.a.loops / took : 0;
}

void lq_cuda_meter_slots(lq_ops *o) {
    o->read_time = read_time;
    o->peak = peak;
}
