// fast_state.c: mixers with a state in default mode, by the kernels of conv.cuh.
#include "kernels/cuda/conv.h"
#include "kernels/cuda/fast.h"

#define CONV_DECLARED(width) LQ_DECLARED(lq_conv_walk##width) LQ_DECLARED(lq_conv_tile##width)
#define CONV_LISTED(width) {lq_conv_walk##width, lq_conv_tile##width},
LQ_CONV_KERNELS(CONV_DECLARED)
static const struct { void (*walk)(void), (*tile)(void); } conv[] = {LQ_CONV_KERNELS(CONV_LISTED)};

bool lq_fast_state_open(lq_dev *d, lq_err *err) {
    lq_gpu *g = lq_cuda_of(d)->gpu;
    for (int w = LQ_CONV_LEAST; w <= LQ_CONV_MOST; w++)
        if (!lq_gpu_prepare(g, lq_entry(conv[w - LQ_CONV_LEAST].walk), 0, err) ||
            !lq_gpu_prepare(g, lq_entry(conv[w - LQ_CONV_LEAST].tile), (size_t)LQ_CONV_SHARED(w), err)) return false;
    return true;
}

bool lq_fast_conv(lq_dev *d, const lq_conv_args *a) {
    lq_conv_of of = {*a, *a->rows};
    if (!lq_conv_fits(a)) return false;
    of.a.rows = NULL;
    const bool few = lq_conv_few(a->rows);
    const int i = a->width - LQ_CONV_LEAST;
    lq_fast_launch(d, few ? conv[i].walk : conv[i].tile, &of, sizeof of,
                   (lq_gpu_grid){.blocks = lq_conv_blocks(a->x.cols, few), .rows = (unsigned)a->rows->seqs + 1,
                                 .threads = LQ_CONV_THREADS, .shared = few ? 0 : (size_t)LQ_CONV_SHARED(a->width)});
    return true;
}
