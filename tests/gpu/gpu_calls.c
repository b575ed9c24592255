// gpu_calls.c: the few calls of the CUDA runtime that on_gpu.cpp needs, apart from it: both know a dim3. Ends the
// program in one line where a GPU refuses.
#include "tests/gpu/gpu_calls.h"
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

static struct { dim3 grid, block; size_t shared; unsigned cluster; } now;

static void must(cudaError_t e, const char *doing) {
    if (e == cudaSuccess) return;
    printf("FAILED: %s: %s\n0 passed, 1 failed, 0 skipped\n", doing, cudaGetErrorString(e));
    exit(1);
}

int gpu_capability(void) {
    struct cudaDeviceProp p;
    must(cudaGetDeviceProperties(&p, 0), "a GPU");
    return p.major * 10 + p.minor;
}

void *gpu_memory(size_t bytes) {
    void *p = NULL;
    must(cudaMallocManaged(&p, bytes, cudaMemAttachGlobal), "memory that host and GPU share");
    return p;
}

void gpu_free(void *p) { cudaFree(p); }

void gpu_shape(const unsigned grid[3], const unsigned block[3], size_t shared, unsigned cluster) {
    now.grid = (dim3){grid[0], grid[1], grid[2]};
    now.block = (dim3){block[0], block[1], block[2]};
    now.shared = shared;
    now.cluster = cluster;
}

void lq_checked_launch(const void *kernel, const void *args) {
    void *list[] = {(void *)(uintptr_t)args};
    if (now.shared > 48 << 10)
        must(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)now.shared),
             "shared memory");
    cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension,
                                   .val = {.clusterDim = {1, now.cluster, 1}}};
    const cudaLaunchConfig_t how = {.gridDim = now.grid, .blockDim = now.block, .dynamicSmemBytes = now.shared,
                                    .attrs = &cluster, .numAttrs = now.cluster > 1};
    must(cudaLaunchKernelExC(&how, kernel, list), "a launch");
}

void gpu_wait(void) { must(cudaDeviceSynchronize(), "a kernel"); }
