// fast_rows.c: norms, what goes number by number, embeddings and routing of default mode, by the kernels of rmsn.cuh,
// elem.cuh and route.cuh.
#include "kernels/cuda/elem.h"
#include "kernels/cuda/fast.h"
#include "kernels/cuda/rmsn.h"
#include "kernels/cuda/route.h"

#define ROWS(X) \
    X(lq_rmsn_k256) X(lq_rmsn_k4096) X(lq_rmsn_k16384) X(lq_elem_glu) X(lq_elem_add) X(lq_elem_scale) X(lq_elem_mix) \
    X(lq_elem_embed) X(lq_elem_embed_coded) X(lq_elem_scale_f32) X(lq_route_rows) X(lq_route_sort)
#define CODED(X) X(lq_rmsn_act_k4096) X(lq_rmsn_act_k16384) X(lq_elem_glu_act)
ROWS(LQ_DECLARED)
CODED(LQ_DECLARED)
static void (*const rows[])(void) = {ROWS(LQ_LISTED)};
static void (*const coded[])(void) = {CODED(LQ_LISTED)}; // a row of these stands in shared memory

bool lq_fast_rows_open(lq_dev *d, lq_err *err) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!lq_gpu_prepare(lq_cuda_of(d)->gpu, lq_entry(rows[i]), 0, err)) return false;
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++)
        if (!lq_gpu_prepare(lq_cuda_of(d)->gpu, lq_entry(coded[i]), lq_cuda_of(d)->shared, err)) return false;
    return true;
}

// The other form of y that is to be made; NULL: none.
static lq_act *form_of(lq_act *act, const lq_mat *y) {
    return act && act->type.elem == LQ_F32 && (!act->x.p || act->x.p == y->p) ? NULL : act;
}

// Whether the kernel that makes y makes this form too; else `quant` does, behind it.
static bool fused(const lq_dev *d, const lq_act *act, const lq_mat *y) {
    return act && lq_acts_fits(y, act, lq_cuda_of(d)->shared);
}

static void quantize(lq_dev *d, const lq_mat *y, lq_act *act) {
    if (act) d->ops.quant(d, &(lq_quant_args){.x = *y, .act = act});
}

bool lq_fast_norm(lq_dev *d, const lq_norm_args *a) {
    lq_act *act = form_of(a->act, &a->y);
    if (!lq_rmsn_fits(a)) return false;
    const lq_rmsn_args r = lq_rmsn_of(a);
    if (!r.rows) return true;
    if (fused(d, act, &a->y)) {
        const lq_rmsn_act_args both = {r, {a->y, *act}};
        const lq_gpu_grid grid = {(unsigned)r.rows, LQ_RMSN_THREADS, .shared = lq_acts_shared(r.k)};
        lq_fast_launch(d, r.k <= 4096 ? lq_rmsn_act_k4096 : lq_rmsn_act_k16384, &both, sizeof both, grid);
        return true;
    }
    void (*kernel)(void) = r.k <= LQ_RMSN_NARROW ? lq_rmsn_k256 : r.k <= 4096 ? lq_rmsn_k4096 : lq_rmsn_k16384;
    const lq_gpu_grid grid = {lq_rmsn_blocks(&r), LQ_RMSN_THREADS, .shared = LQ_RMSN_SHARED};
    lq_fast_launch(d, kernel, &r, sizeof r, grid);
    quantize(d, &a->y, act);
    return true;
}

static void launch_elem(lq_dev *d, void (*kernel)(void), const void *args, size_t bytes, const lq_mat *y) {
    const unsigned blocks = lq_elem_blocks(y->rows, y->cols);
    if (blocks) lq_fast_launch(d, kernel, args, bytes, (lq_gpu_grid){.blocks = blocks, .threads = LQ_ELEM_THREADS});
}

static void launch_pieces(lq_dev *d, void (*kernel)(void), const void *args, size_t bytes, int count, int cols) {
    const unsigned blocks = (unsigned)count * (unsigned)LQ_ELEM_PIECES(cols);
    if (blocks) lq_fast_launch(d, kernel, args, bytes, (lq_gpu_grid){.blocks = blocks, .threads = LQ_ELEM_THREADS});
}

bool lq_fast_glu(lq_dev *d, const lq_glu_args *a) {
    const lq_glu_of of = {*a};
    lq_act *act = form_of(a->act, &a->y);
    if (!lq_glu_fits(a)) return false;
    if (fused(d, act, &a->y)) {
        const lq_glu_act_of both = {*a, {a->y, *act}};
        const lq_gpu_grid grid = {(unsigned)a->y.rows, LQ_GLU_THREADS, .shared = lq_acts_shared(a->y.cols)};
        if (a->y.rows) lq_fast_launch(d, lq_elem_glu_act, &both, sizeof both, grid);
        return true;
    }
    launch_elem(d, lq_elem_glu, &of, sizeof of, &a->y);
    quantize(d, &a->y, act);
    return true;
}

bool lq_fast_add(lq_dev *d, const lq_add_args *a) {
    const lq_add_of of = {*a};
    if (!lq_add_fits(a)) return false;
    launch_elem(d, lq_elem_add, &of, sizeof of, &a->x);
    return true;
}

bool lq_fast_scale(lq_dev *d, const lq_scale_args *a) {
    const lq_scale_of of = {*a};
    if (lq_scale_f32_fits(a)) launch_pieces(d, lq_elem_scale_f32, &of, sizeof of, a->x.rows, a->x.cols);
    else if (lq_scale_fits(a)) launch_elem(d, lq_elem_scale, &of, sizeof of, &a->x);
    else return false;
    return true;
}

bool lq_fast_mix(lq_dev *d, const lq_mix_args *a) {
    const lq_mix_of of = {*a};
    if (!lq_mix_fits(a)) return false;
    launch_elem(d, lq_elem_mix, &of, sizeof of, &a->y);
    return true;
}

void lq_fast_embed(lq_dev *d, const lq_embed_args *a) {
    const lq_embed_of rows_of = {a->w->q, a->ids, a->w->n, a->scale, a->y};
    const lq_embed_coded_of coded_of = {*a->w, a->ids, a->scale, a->y};
    if (lq_embed_fits(a)) launch_elem(d, lq_elem_embed, &rows_of, sizeof rows_of, &a->y);
    else launch_pieces(d, lq_elem_embed_coded, &coded_of, sizeof coded_of, a->y.rows, (int)a->w->k);
}

// Scores are f32; what the plain kernels do has the same bits.
bool lq_fast_route(lq_dev *d, const lq_route_args *a) {
    const lq_route_of of = {*a};
    const lq_sort_of sort = {a->expert, a->order, a->start, a->logits.rows * a->top_k, a->logits.cols};
    if (a->logits.type != LQ_F32) return false;
    const lq_gpu_grid warps = {lq_route_blocks(a), LQ_ROUTE_THREADS, .shared = lq_route_shared(a)};
    if (a->logits.rows) lq_fast_launch(d, lq_route_rows, &of, sizeof of, warps);
    lq_fast_launch(d, lq_route_sort, &sort, sizeof sort,
                   (lq_gpu_grid){.blocks = lq_sort_blocks(sort.experts), .threads = LQ_SORT_THREADS});
    return true;
}
