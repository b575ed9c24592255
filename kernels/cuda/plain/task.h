// task.h: kernels whose threads know nothing of each other: a thread is a task. Under nvcc they are CUDA kernels, under
// a C++ compiler functions that an emulated driver calls task by task.
#ifndef LQ_TASK_H
#define LQ_TASK_H
#include "kernels/cuda/gpu.h"

enum { LQ_TASKS = 64 }; // of a block
#ifdef __CUDACC__
#define LQ_TASK_KERNEL(name, args) extern "C" __global__ void __launch_bounds__(LQ_TASKS) name##_kernel(const args p)
#define LQ_TASK_ENTRY(name, args) ((const void *)name##_kernel)
#define LQ_TASK_NAMED(name)
static __device__ __forceinline__ size_t lq_task_id() { return (size_t)blockIdx.x * LQ_TASKS + threadIdx.x; }
#else
extern "C" size_t lq_task_now;
extern "C" const char *lq_task_name; // of what is launched next
#define LQ_TASK_NAMED(name) lq_task_name = #name;
#define LQ_TASK_KERNEL(name, args) static void name##_kernel(const args &p)
#define LQ_TASK_ENTRY(name, args) ((const void *)+[](const void *p) { name##_kernel(*(const args *)p); })
static inline size_t lq_task_id() { return lq_task_now; }
#endif

#define LQ_LAUNCH(name, args) \
    extern "C" void lq_plain_##name##_run(lq_gpu *g, const args *a, size_t tasks) { \
        static_assert(sizeof *a <= LQ_GPU_ARGS, "more than a kernel may be given"); \
        LQ_TASK_NAMED(name) \
        lq_gpu_launch(g, LQ_TASK_ENTRY(name, args), a, sizeof *a, {(unsigned)((tasks + LQ_TASKS - 1) / LQ_TASKS), LQ_TASKS, \
                                                              0, 1, 0, false, false}); \
    }
#endif
