// tries.c: the slot tries on a CUDA device: which kernels run in which order, with a library's products between them.
// As many tries at once as half of the memory that is left has room for, never fewer than one: what they come to goes
// to the host, and nothing else. Owns nothing: all of it lies in the device's scratch.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/plain/tries.h"
#include "kernels/cuda/solver.h"
#include <stdlib.h>

static lq_gpu *gpu_of(const lq_dev *d) { return lq_cuda_of(d)->gpu; }

// What the products of some tries lie in, beside what their kernels are given.
typedef struct room { float *y; double *lane, *sum; } room;

// The next piece of the scratch; base NULL: it is measured.
static void *piece(char *base, size_t *used, size_t bytes) {
    void *p = base ? base + *used : NULL;
    *used += (bytes + 255) / 256 * 256;
    return p;
}

static size_t lay_out(lq_plain_tries *p, room *m, char *base) {
    const size_t tries = (size_t)p->tries, n = (size_t)p->r.n, k = (size_t)p->r.k, groups = (size_t)p->r.groups;
    const size_t f = sizeof(float), text = p->rows ? (size_t)p->x.rows : 0, sums = tries * (p->rows ? text : n);
    size_t used = 0;
    p->range = piece(base, &used, 2 * tries * n * groups * f);
    p->scale = piece(base, &used, tries * (size_t)p->bands * groups * f);
    p->z = piece(base, &used, tries * (size_t)p->bands * groups * sizeof *p->z);
    p->bad = piece(base, &used, 2 * LQ_TRIES * sizeof *p->bad);
    p->wide = p->bad + LQ_TRIES;
    p->d = piece(base, &used, tries * n * k * f);
    p->top = piece(base, &used, tries * text * (size_t)p->spans * sizeof *p->top);
    p->v = piece(base, &used, tries * text * k * f);
    m->y = piece(base, &used, tries * n * (p->rows ? text : k) * f);
    m->lane = piece(base, &used, sums * LQ_TRIES_LANES * sizeof *m->lane);
    m->sum = piece(base, &used, sums * sizeof *m->sum);
    return used;
}

// As many tries from `first` on as have room.
static bool open_tries(lq_dev *d, const lq_tries_args *a, int first, lq_plain_tries *p, room *m) {
    const lq_cuda *c = lq_cuda_of(d);
    const size_t left = (lq_gpu_room(c->gpu) + c->work_bytes) / 2;
    *p = (lq_plain_tries){.r = lq_rounding_of(&(lq_round_args){
                              .w = a->w, .type = a->type, .table = a->table, .scale_map = a->scale_map}),
                          .rows = !a->h, .x = a->x, .act = a->act, .by = a->by + (size_t)first * (size_t)a->w.cols};
    if (a->scale_by) p->r.a.scale_by = a->scale_by + (size_t)first * (size_t)(p->r.n * p->r.groups);
    p->bands = (p->r.n + p->r.band - 1) / p->r.band;
    p->spans = a->act.group ? (p->r.k + a->act.group - 1) / a->act.group : 1;
    p->tries = a->tries - first < LQ_TRIES ? a->tries - first : LQ_TRIES;
    while (p->tries > 1 && lay_out(p, m, NULL) > left) p->tries--;
    for (int t = 0; t < p->tries; t++) {
        p->scale2[t] = a->scale2 ? a->scale2[first + t] : 0;
        p->offset[t] = a->scale_by ? a->scale_offset[first + t] : 0;
        p->fixed[t] = a->act.fixed && !a->h ? a->fixed[first + t] : 0;
        p->fixed_zero[t] = a->act.fixed && a->act.asym && !a->h ? a->fixed_zero[first + t] : 0;
    }
    char *base = lq_cuda_work(d, lay_out(p, m, NULL));
    if (base) lay_out(p, m, base);
    return base != NULL;
}

static void round_all(lq_dev *d, const lq_plain_tries *p) {
    const size_t tries = (size_t)p->tries, n = (size_t)p->r.n, groups = (size_t)p->r.groups;
    lq_plain_tries_begin_run(gpu_of(d), p, tries);
    lq_plain_tries_range_run(gpu_of(d), p, tries * n * groups);
    lq_plain_tries_fit_run(gpu_of(d), p, tries * (size_t)p->bands * groups);
    lq_plain_tries_round_run(gpu_of(d), p, tries * n * (size_t)p->r.k);
}

static void sums(lq_dev *d, const lq_plain_sums *s) {
    lq_plain_tries_lanes_run(gpu_of(d), s, (size_t)s->rows * LQ_TRIES_LANES);
    lq_plain_tries_sums_run(gpu_of(d), s, (size_t)s->rows);
}

// One product for all tries, each of whose rows has a sum.
static bool by_moments(lq_dev *d, lq_solver *s, const lq_tries_args *a, const lq_plain_tries *p, const room *m,
                       lq_err *err) {
    const int64_t rows = p->tries * p->r.n, k = p->r.k;
    if (!lq_solver_apply(s, p->d, (size_t)k, (int)rows, a->h, (int)k, (int)k, m->y, err)) return false;
    sums(d, &(lq_plain_sums){.a = p->d, .b = m->y, .rows = rows, .b_rows = rows, .cols = k, .b_stride = (size_t)k,
                             .lane = m->lane, .sum = m->sum, .bad = p->bad, .each = p->r.n});
    return true;
}

// A product for each try.
static bool by_rows(lq_dev *d, lq_solver *s, const lq_tries_args *a, const lq_plain_tries *p, const room *m,
                    lq_err *err) {
    const size_t text = (size_t)a->x.rows, n = (size_t)p->r.n, k = (size_t)p->r.k, tries = (size_t)p->tries;
    if (a->act.elem != LQ_F32) lq_plain_tries_top_run(gpu_of(d), p, tries * text * (size_t)p->spans);
    lq_plain_tries_act_run(gpu_of(d), p, tries * text * k);
    for (size_t t = 0; t < tries; t++)
        if (!lq_solver_apply(s, p->v + t * text * k, k, (int)text, p->d + t * n * k, (int)n, (int)k,
                             m->y + t * text * n, err)) return false;
    sums(d, &(lq_plain_sums){.a = m->y, .b = a->y.p, .rows = (int64_t)(tries * text), .b_rows = (int64_t)text,
                             .cols = (int64_t)n, .b_stride = a->y.stride, .squares = true, .lane = m->lane,
                             .sum = m->sum, .bad = p->bad, .each = (int64_t)text});
    return true;
}

// What they came to, for the host. Of rows of the text it is added up here, in their order.
static bool take(lq_dev *d, const lq_tries_args *a, int first, const lq_plain_tries *p, const room *m, lq_err *err) {
    const size_t each = p->rows ? (size_t)a->x.rows : (size_t)p->r.n, tries = (size_t)p->tries;
    int wide[LQ_TRIES];
    double *got = p->rows ? malloc(tries * each * sizeof *got) : a->loss + (size_t)first * each;
    bool done = got || lq_fail(err, LQ_E_MEMORY, "device cuda: no memory on the host");
    if (done) lq_gpu_get(gpu_of(d), got, m->sum, tries * each * sizeof *got);
    if (done) lq_gpu_get(gpu_of(d), wide, p->wide, tries * sizeof *wide);
    done = done && lq_gpu_sync(gpu_of(d), err);
    for (size_t t = 0; done && t < tries; t++) a->wide[(size_t)first + t] = wide[t] != 0;
    for (size_t i = 0; done && p->rows && i < tries * each; i++)
        if (!wide[i / each]) a->loss[(size_t)first + i / each] += got[i];
    if (p->rows) free(got);
    return done;
}

static void tries(lq_dev *d, const lq_tries_args *a) {
    lq_solver *s = lq_cuda_solver(d);
    lq_plain_tries p;
    room m;
    lq_err err;
    for (int first = 0; s && first < a->tries; first += p.tries) {
        if (!open_tries(d, a, first, &p, &m)) return;
        round_all(d, &p);
        if (!(a->h ? by_moments : by_rows)(d, s, a, &p, &m, &err) || !take(d, a, first, &p, &m, &err)) {
            lq_cuda_break(d, &err);
            return;
        }
    }
}

void lq_cuda_tries_slots(lq_ops *o) { o->tries = tries; }
