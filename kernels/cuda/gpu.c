// gpu.c: the driver of gpu.h by the CUDA runtime: one stream, what it is given runs in order. The first error stays.
#include "kernels/cuda/pinned.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

struct lq_gpu {
    int device, capability;
    cudaStream_t stream;
    cudaEvent_t mark[LQ_GPU_MARKS];
    lq_pinned *pinned;
    cudaError_t error;
    const char *doing; // what failed
};
struct lq_gpu_graph { cudaGraph_t graph; cudaGraphExec_t exec; };

static bool failed(lq_err *err, const char *doing, cudaError_t e) {
    return lq_fail(err, e == cudaErrorMemoryAllocation ? LQ_E_MEMORY : LQ_E_DEVICE, "device cuda: %s: %s", doing,
                   cudaGetErrorString(e));
}

static void note(lq_gpu *g, const char *doing, cudaError_t e) {
    if (e == cudaSuccess || g->error != cudaSuccess) return;
    g->error = e;
    g->doing = doing;
}

// Any thread may call; each has a device of its own that is the current one.
static lq_gpu *here(lq_gpu *g) {
    note(g, "choosing it", cudaSetDevice(g->device));
    return g;
}

bool lq_gpu_open(int device, lq_gpu **out, lq_gpu_info *info, lq_err *err) {
    int count = 0;
    struct cudaDeviceProp p;
    *out = NULL;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || !count)
        return lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: there is no GPU here (%s)", cudaGetErrorString(e));
    if (device >= count)
        return lq_fail(err, LQ_E_USAGE, "device cuda:%d: expected cuda:0 to cuda:%d", device, count - 1);
    if ((e = cudaSetDevice(device)) != cudaSuccess || (e = cudaGetDeviceProperties(&p, device)) != cudaSuccess)
        return failed(err, "opening it", e);
    lq_gpu *g = calloc(1, sizeof *g);
    if (!g) return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    g->device = device;
    e = cudaStreamCreateWithFlags(&g->stream, cudaStreamNonBlocking);
    for (int i = 0; i < LQ_GPU_MARKS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&g->mark[i], cudaEventDisableTiming);
    if ((e != cudaSuccess && !failed(err, "a stream and its events", e)) || !lq_pinned_open(g, &g->pinned, err)) {
        lq_gpu_close(g);
        return false;
    }
    snprintf(info->name, sizeof info->name, "%.63s", p.name);
    info->capability = g->capability = p.major * 10 + p.minor;
    info->processors = p.multiProcessorCount;
    info->memory = p.totalGlobalMem;
    *out = g;
    return true;
}

void lq_gpu_close(lq_gpu *g) {
    here(g);
    if (g->stream) cudaStreamSynchronize(g->stream);
    lq_pinned_close(g->pinned);
    for (int i = 0; i < LQ_GPU_MARKS && g->mark[i]; i++) cudaEventDestroy(g->mark[i]);
    if (g->stream) cudaStreamDestroy(g->stream);
    free(g);
}

bool lq_gpu_alloc(lq_gpu *g, size_t bytes, void **out, lq_err *err) {
    here(g);
    cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    if (e == cudaSuccess) {
        if ((e = cudaMemsetAsync(*out, 0, bytes ? bytes : 1, g->stream)) == cudaSuccess) return true;
        cudaFree(*out);
    }
    *out = NULL;
    cudaGetLastError(); // it is told here
    return lq_fail(err, e == cudaErrorMemoryAllocation ? LQ_E_MEMORY : LQ_E_DEVICE, "device cuda: %zu bytes: %s", bytes,
                   cudaGetErrorString(e));
}

void lq_gpu_free(lq_gpu *g, void *p) {
    here(g);
    note(g, "work before memory is given back", cudaStreamSynchronize(g->stream));
    note(g, "giving memory back", cudaFree(p));
}

size_t lq_gpu_room(lq_gpu *g) {
    size_t left = 0, all = 0;
    here(g);
    note(g, "asking for memory that is left", cudaMemGetInfo(&left, &all));
    return left;
}

void lq_gpu_copy(lq_gpu *g, void *dst, const void *src, size_t n) {
    here(g);
    note(g, "a copy on the device", cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToDevice, g->stream));
}

// --- what pinned.c stands on ---

lq_pinned *lq_gpu_pinned(lq_gpu *g) { return g->pinned; }

bool lq_gpu_pin(lq_gpu *g, size_t bytes, void **out, lq_err *err) {
    here(g);
    const cudaError_t e = cudaHostAlloc(out, bytes, cudaHostAllocDefault);
    if (e == cudaSuccess) return true;
    *out = NULL;
    cudaGetLastError(); // it is told here
    return lq_fail(err, e == cudaErrorMemoryAllocation ? LQ_E_MEMORY : LQ_E_DEVICE,
                   "device cuda: %zu bytes of the host's memory, pinned: %s", bytes, cudaGetErrorString(e));
}

void lq_gpu_unpin(lq_gpu *g, void *p) {
    here(g);
    note(g, "giving pinned memory back", cudaFreeHost(p));
}

void lq_gpu_up(lq_gpu *g, void *dst, const void *pinned, size_t n) {
    here(g);
    note(g, "a copy to the device", cudaMemcpyAsync(dst, pinned, n, cudaMemcpyHostToDevice, g->stream));
}

void lq_gpu_down(lq_gpu *g, void *pinned, const void *src, size_t n) {
    here(g);
    note(g, "a copy from the device", cudaMemcpyAsync(pinned, src, n, cudaMemcpyDeviceToHost, g->stream));
}

void lq_gpu_mark(lq_gpu *g, int mark) {
    here(g);
    note(g, "an event", cudaEventRecord(g->mark[mark], g->stream));
}

void lq_gpu_reach(lq_gpu *g, int mark) {
    here(g);
    note(g, "a kernel", cudaEventSynchronize(g->mark[mark]));
}

bool lq_gpu_finish(lq_gpu *g, lq_err *err) {
    here(g);
    note(g, "a kernel", cudaStreamSynchronize(g->stream));
    return g->error == cudaSuccess || failed(err, g->doing, g->error);
}

// --- kernels ---

bool lq_gpu_prepare(lq_gpu *g, const void *kernel, size_t shared, lq_err *err) {
    struct cudaFuncAttributes of;
    here(g);
    cudaError_t e = cudaFuncGetAttributes(&of, kernel);
    if (e == cudaSuccess && shared > LQ_GPU_SHARED)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    if (e == cudaSuccess) return true;
    cudaGetLastError(); // it is told here
    return failed(err, "a kernel of this binary", e);
}

void *lq_gpu_stream(lq_gpu *g) { return here(g)->stream; }

void lq_gpu_launch(lq_gpu *g, const void *kernel, const void *args, size_t bytes, lq_gpu_grid grid) {
    void *list[] = {(void *)(uintptr_t)args};
    cudaLaunchAttribute attrs[2];
    unsigned count = 0;
    if (grid.early && g->capability >= 90)
        attrs[count++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                               .val = {.programmaticStreamSerializationAllowed = 1}};
    if (grid.cluster)
        attrs[count++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeClusterDimension,
                                               .val = {.clusterDim = {1, grid.cluster, 1}}};
    const cudaLaunchConfig_t how = {.gridDim = {grid.blocks, grid.rows ? grid.rows : 1, 1},
                                    .blockDim = {grid.threads, 1, 1},
                                    .dynamicSmemBytes = grid.shared,
                                    .stream = g->stream,
                                    .attrs = attrs,
                                    .numAttrs = count};
    (void)bytes;
    if (!grid.blocks) return;
    here(g);
    note(g, "launching a kernel", cudaLaunchKernelExC(&how, kernel, list));
}

double lq_gpu_seconds(lq_gpu *g, void (*work)(void *arg), void *arg) {
    cudaEvent_t begin = NULL, end = NULL;
    float ms = 0;
    here(g);
    note(g, "an event", cudaEventCreate(&begin));
    note(g, "an event", cudaEventCreate(&end));
    if (g->error == cudaSuccess) {
        note(g, "an event", cudaEventRecord(begin, g->stream));
        work(arg);
        note(g, "an event", cudaEventRecord(end, g->stream));
        note(g, "a kernel that is timed", cudaEventSynchronize(end));
        if (g->error == cudaSuccess) note(g, "an event", cudaEventElapsedTime(&ms, begin, end));
    }
    if (begin) cudaEventDestroy(begin);
    if (end) cudaEventDestroy(end);
    return (double)ms * 1e-3;
}

bool lq_gpu_record(lq_gpu *g, lq_err *err) {
    here(g);
    const cudaError_t e = cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal);
    return e == cudaSuccess || failed(err, "recording a graph", e);
}

bool lq_gpu_recorded(lq_gpu *g, lq_gpu_graph **out, lq_err *err) {
    lq_gpu_graph *graph = calloc(1, sizeof *graph);
    cudaGraph_t captured = NULL;
    cudaError_t e = cudaStreamEndCapture(g->stream, &captured);
    *out = NULL;
    if (!graph) {
        if (captured) cudaGraphDestroy(captured);
        return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory for a graph");
    }
    graph->graph = captured;
    if (e == cudaSuccess) e = cudaGraphInstantiate(&graph->exec, captured, 0);
    if (e == cudaSuccess) {
        *out = graph;
        return true;
    }
    if (captured) cudaGraphDestroy(captured);
    free(graph);
    return failed(err, "recording a graph", e);
}

void lq_gpu_replay(lq_gpu *g, lq_gpu_graph *graph) {
    here(g);
    note(g, "replaying a graph", cudaGraphLaunch(graph->exec, g->stream));
}

void lq_gpu_forget(lq_gpu *g, lq_gpu_graph *graph) {
    if (!graph) return;
    here(g);
    note(g, "work before a graph goes", cudaStreamSynchronize(g->stream));
    cudaGraphExecDestroy(graph->exec);
    cudaGraphDestroy(graph->graph);
    free(graph);
}
