// gpu.h: what the CUDA backend asks of a driver: memory, one stream of work in the order it is given, recordings of it.
// Two answer: gpu.c (the CUDA runtime) and tests/cuda/gpu_emu.c, whose machine is this one; put, get and sync are
// pinned.c's, for both. Launching, copying and replaying cannot fail: the first error stays, and lq_gpu_sync says it.
// One thread at a time may call, whichever it is.
#ifndef LQ_GPU_H
#define LQ_GPU_H
#include "kernels/pool.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct lq_gpu lq_gpu;
typedef struct lq_gpu_graph lq_gpu_graph;
typedef struct lq_gpu_info {
    char name[64];
    int capability; // 90: sm_90
    int processors;
    size_t memory;
} lq_gpu_info;

bool lq_gpu_open(int device, lq_gpu **out, lq_gpu_info *info, lq_err *err);
void lq_gpu_close(lq_gpu *g);
bool lq_gpu_alloc(lq_gpu *g, size_t bytes, void **out, lq_err *err); // zero
void lq_gpu_free(lq_gpu *g, void *p);
size_t lq_gpu_room(lq_gpu *g); // bytes that are left

void lq_gpu_put(lq_gpu *g, void *dst, const void *src /* [host] */, size_t n); // has read src when it returns
// There after lq_gpu_sync; dst must stay until then.
void lq_gpu_get(lq_gpu *g, void *dst /* [host] */, const void *src, size_t n);
void lq_gpu_help(lq_gpu *g, lq_pool *pool); // whose threads are idle where something large is put or got
void lq_gpu_copy(lq_gpu *g, void *dst, const void *src, size_t n);
bool lq_gpu_sync(lq_gpu *g, lq_err *err);
void *lq_gpu_stream(lq_gpu *g); // of the CUDA runtime: a library's work goes there; this thread's GPU is then this one

// A kernel takes one struct by value, of at most LQ_GPU_ARGS bytes.
enum { LQ_GPU_ARGS = 4000 };
typedef struct lq_gpu_grid {
    unsigned blocks, threads;
    size_t shared;  // bytes; more than LQ_GPU_SHARED must have been asked for by lq_gpu_prepare
    unsigned rows;  // blocks of the second dimension; 0: 1
    unsigned cluster; // so many of these are a cluster (sm_90 on); 0: none are
    bool simt;      // a kernel of simt.h; else of task.h
    bool early;     // it may begin before what was launched before it has ended: it waits for that itself
} lq_gpu_grid;
enum { LQ_GPU_SHARED = 48 << 10 };
// Loads a kernel that will be launched with at most so many bytes of shared memory: then a launch takes no memory, and
// a GPU that this binary has nothing for says so here.
bool lq_gpu_prepare(lq_gpu *g, const void *kernel, size_t shared, lq_err *err);
void lq_gpu_launch(lq_gpu *g, const void *kernel, const void *args, size_t bytes, lq_gpu_grid grid);

// Seconds that what `work` submits takes on the device.
double lq_gpu_seconds(lq_gpu *g, void (*work)(void *arg), void *arg);

// What is launched and copied on the device in between is kept, not done. Nothing may be put, got, allocated or waited
// for there.
bool lq_gpu_record(lq_gpu *g, lq_err *err);
bool lq_gpu_recorded(lq_gpu *g, lq_gpu_graph **out, lq_err *err);
void lq_gpu_replay(lq_gpu *g, lq_gpu_graph *graph);
void lq_gpu_forget(lq_gpu *g, lq_gpu_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
