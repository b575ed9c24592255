// route.h: which experts rows go to, and slots sorted by expert, as the host sees it: arguments, grid, shared memory.
// Plain C. Results are those of kernels/route.h bit for bit.
#ifndef LQ_CUDA_ROUTE_H
#define LQ_CUDA_ROUTE_H
#include "kernels/ops.h"

enum { LQ_ROUTE_THREADS = 64, LQ_SORT_THREADS = 256 }; // a warp for each row; for each expert

typedef struct lq_route_of { lq_route_args a; } lq_route_of;
typedef struct lq_sort_of { const int32_t *expert; int32_t *order, *start; int slots, experts; } lq_sort_of;

static inline unsigned lq_route_blocks(const lq_route_args *a) {
    return (unsigned)((a->logits.rows + LQ_ROUTE_THREADS / 32 - 1) / (LQ_ROUTE_THREADS / 32));
}

// Of each row: what the scores are, what is left to choose, what is summed, the chosen.
static inline size_t lq_route_row_shared(int experts, int top_k) { return (size_t)(3 * experts + top_k + 3) / 4 * 16; }
static inline size_t lq_route_shared(const lq_route_args *a) {
    return LQ_ROUTE_THREADS / 32 * lq_route_row_shared(a->logits.cols, a->top_k);
}

static inline unsigned lq_sort_blocks(int experts) {
    return (unsigned)((experts + LQ_SORT_THREADS / 32 - 1) / (LQ_SORT_THREADS / 32));
}
#endif
