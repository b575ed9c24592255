// meter.c: the slots that measure a GPU: the kernels of meter.cuh, timed on the device.
#include "kernels/cuda/meter.h"
#include "kernels/cuda/fast.h"

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

typedef struct job { const lq_dev *d; const lq_span *s; size_t count; void (*kernel)(void); int loops; } job;

static void launch(const job *j, unsigned blocks, const lq_meter_args *a) {
    const unsigned processors = (unsigned)lq_cuda_of(j->d)->processors;
    lq_fast_launch(j->d, j->kernel, a, sizeof *a,
                   (lq_gpu_grid){.blocks = blocks * processors, .threads = LQ_METER_THREADS});
}

static void read_all(void *arg) {
    const job *j = arg;
    for (size_t i = 0; i < j->count; i++)
        launch(j, READ_BLOCKS, &(lq_meter_args){.p = j->s[i].p, .vectors = j->s[i].n / 16,
                                              .out = lq_cuda_of(j->d)->metered});
}

static void multiply_all(void *arg) {
    const job *j = arg;
    launch(j, 1, &(lq_meter_args){.loops = j->loops, .out = lq_cuda_of(j->d)->metered});
}

// The better of two.
static double seconds_of(void (*work)(void *), job *j) {
    lq_gpu *g = lq_cuda_of(j->d)->gpu;
    const double a = lq_gpu_seconds(g, work, j), b = lq_gpu_seconds(g, work, j);
    return a < b ? a : b;
}

static double read_time(lq_dev *d, const lq_span *s, size_t count) {
    return seconds_of(read_all, &(job){.d = d, .s = s, .count = count, .kernel = lq_meter_read_bytes});
}

// Tensor cores by mma, as all products of default mode; exact mode has none that stands on an instruction.
static double peak(lq_dev *d, lq_dtype act) {
    job j = {.d = d, .kernel = act == LQ_I8 ? lq_meter_s8 : lq_meter_bf16, .loops = 64};
    if (d->act == LQ_F32) return 0;
    const double macs = (double)(act == LQ_I8 ? LQ_METER_S8_MACS : LQ_METER_BF16_MACS) * LQ_METER_MMAS * WARPS *
                        lq_cuda_of(d)->processors;
    double took = seconds_of(multiply_all, &j);
    while (took > 0 && took < 0.002 && j.loops < 1 << 20) {
        j.loops *= 4;
        took = seconds_of(multiply_all, &j);
    }
    return took > 0 ? macs * j.loops / took : 0;
}

void lq_cuda_meter_slots(lq_ops *o) {
    o->read_time = read_time;
    o->peak = peak;
}
