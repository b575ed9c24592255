// pinned.h: what pinned.c makes put, get and sync of gpu.h from. A driver has these, and one lq_pinned that it opens
// when its device is and closes before it goes.
#ifndef LQ_PINNED_H
#define LQ_PINNED_H
#include "kernels/cuda/gpu.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct lq_pinned lq_pinned;
bool lq_pinned_open(lq_gpu *g, lq_pinned **out, lq_err *err);
void lq_pinned_close(lq_pinned *p); // nothing is under way; NULL: it was never opened
lq_pinned *lq_gpu_pinned(lq_gpu *g);

// Memory of the host that the device reads and writes while the host goes on.
bool lq_gpu_pin(lq_gpu *g, size_t bytes, void **out, lq_err *err);
void lq_gpu_unpin(lq_gpu *g, void *p);
// Under way when they return: what is pinned stays as it is until then.
void lq_gpu_up(lq_gpu *g, void *dst, const void *pinned, size_t n);
void lq_gpu_down(lq_gpu *g, void *pinned, const void *src, size_t n);

enum { LQ_GPU_MARKS = 256 };
void lq_gpu_mark(lq_gpu *g, int mark);  // here, in the order of what is submitted
void lq_gpu_reach(lq_gpu *g, int mark); // returns when what was submitted before it is done
bool lq_gpu_finish(lq_gpu *g, lq_err *err); // when all is; false: the first error

#ifdef __cplusplus
}
#endif
#endif
