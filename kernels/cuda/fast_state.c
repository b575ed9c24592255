// fast_state.c: mixers with a state in default mode, by the kernels of conv.cuh and scan.cuh.
#include "kernels/cuda/conv.h"
#include "kernels/cuda/fast.h"
#include "kernels/cuda/scan.h"

#define CONV_DECLARED(width) LQ_DECLARED(lq_conv_walk##width) LQ_DECLARED(lq_conv_tile##width)
#define CONV_LISTED(width) {lq_conv_walk##width, lq_conv_tile##width},
LQ_CONV_KERNELS(CONV_DECLARED)
static const struct { void (*walk)(void), (*tile)(void); } conv[] = {LQ_CONV_KERNELS(CONV_LISTED)};

#define SCAN_DECLARED(name, dk, delta, blocks) LQ_DECLARED(name)
#define SCAN_LISTED(name, dk, delta, blocks) {name, dk, delta},
LQ_SCAN_KERNELS(SCAN_DECLARED)
LQ_DECLARED(lq_scan_one)
static const struct { void (*entry)(void); int dk; bool delta; } scan[] = {LQ_SCAN_KERNELS(SCAN_LISTED)};
enum { SCANS = sizeof scan / sizeof *scan };

bool lq_fast_state_open(lq_dev *d, lq_err *err) {
    lq_gpu *g = lq_cuda_of(d)->gpu;
    for (int w = LQ_CONV_LEAST; w <= LQ_CONV_MOST; w++)
        if (!lq_gpu_prepare(g, lq_entry(conv[w - LQ_CONV_LEAST].walk), 0, err) ||
            !lq_gpu_prepare(g, lq_entry(conv[w - LQ_CONV_LEAST].tile), (size_t)LQ_CONV_SHARED(w), err)) return false;
    for (int i = 0; i < SCANS; i++)
        if (!lq_gpu_prepare(g, lq_entry(scan[i].entry), (size_t)LQ_SCAN_SHARED(scan[i].dk), err)) return false;
    return lq_gpu_prepare(g, lq_entry(lq_scan_one), 0, err);
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

bool lq_fast_scan(lq_dev *d, const lq_scan_args *a) {
    lq_scan_of of = {*a, *a->rows};
    lq_gpu_grid grid = {.blocks = lq_scan_blocks(a), .rows = (unsigned)a->rows->seqs + 1, .threads = LQ_SCAN_THREADS};
    void (*kernel)(void) = lq_scan_one;
    int i = 0;
    if (a->dv == 1 ? !lq_scan_one_fits(a) : !lq_scan_fits(a)) return false;
    of.a.rows = NULL;
    while (a->dv > 1 && (scan[i].dk < a->dk || scan[i].delta != a->delta)) i++;
    if (a->dv > 1) kernel = scan[i].entry, grid.shared = (size_t)LQ_SCAN_SHARED(scan[i].dk);
    lq_fast_launch(d, kernel, &of, sizeof of, grid);
    return true;
}
