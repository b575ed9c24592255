// route.cu: the kernels of route.cuh.
#include "kernels/cuda/route.cuh"

LQ_KERNEL(lq_route_rows, LQ_ROUTE_THREADS, 8, lq_route_of) { route::rows(a); }
LQ_KERNEL(lq_route_sort, LQ_SORT_THREADS, 4, lq_sort_of) { route::sort(a); }
