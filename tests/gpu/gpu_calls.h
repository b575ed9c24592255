// gpu_calls.h: see gpu_calls.c.
#ifndef GPU_CALLS_H
#define GPU_CALLS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int gpu_capability(void); // 90: sm_90
void *gpu_memory(size_t bytes); // that host and GPU share
void gpu_free(void *p);
// Of what is launched next; blocks of the second dimension that are a cluster.
void gpu_shape(const unsigned grid[3], const unsigned block[3], size_t shared, unsigned cluster);
void lq_checked_launch(const void *kernel, const void *args); // simt_ptx.h calls it
void gpu_wait(void);
#ifdef __cplusplus
}
#endif
#endif
