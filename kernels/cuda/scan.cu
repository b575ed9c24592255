// scan.cu: the kernels of scan.cuh.
#include "kernels/cuda/scan.cuh"

#define SCAN(name, dk, delta, blocks) \
    LQ_KERNEL(name, LQ_SCAN_THREADS, blocks, lq_scan_of) { \
        pdl_trigger(); \
        pdl_wait(); \
        scan::heads<dk, delta>(a); \
    }
LQ_SCAN_KERNELS(SCAN)

LQ_KERNEL(lq_scan_one, LQ_SCAN_THREADS, 2, lq_scan_of) {
    pdl_trigger();
    pdl_wait();
    scan::one(a);
}
