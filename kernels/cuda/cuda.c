// cuda.c: the device "cuda": opens a GPU by number and fills its table of slots; memory, recordings, errors. Owns what
// lq_cuda_open makes. Refuses a program that was built for another version of the slots, and a GPU that is not there.
#include "kernels/cuda/fast.h"
#include "kernels/cuda/pa.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/plain/plain.h"
#include "kernels/cuda/solver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lq_cuda_break(lq_dev *d, const lq_err *why) {
    lq_cuda *c = lq_cuda_of(d);
    if (!c->broken) c->why = *why;
    c->broken = true;
}

// --- memory and control ---

static bool cuda_alloc(lq_dev *d, size_t bytes, void **out, lq_err *err) {
    return lq_gpu_alloc(lq_cuda_of(d)->gpu, bytes, out, err);
}

static void cuda_free(lq_dev *d, void *p) { lq_gpu_free(lq_cuda_of(d)->gpu, p); }

static void cuda_put(lq_dev *d, void *dst, const void *src, size_t n) {
    if (n) lq_gpu_put(lq_cuda_of(d)->gpu, dst, src, n);
}

static void cuda_get(lq_dev *d, void *dst, const void *src, size_t n) {
    if (n) lq_gpu_get(lq_cuda_of(d)->gpu, dst, src, n);
}

static void cuda_copy(lq_dev *d, void *dst, const void *src, size_t n) {
    if (n) lq_gpu_copy(lq_cuda_of(d)->gpu, dst, src, n);
}

static bool cuda_sync(lq_dev *d, lq_err *err) {
    const lq_cuda *c = lq_cuda_of(d);
    if (!lq_gpu_sync(c->gpu, err)) return false;
    if (c->broken && err) *err = c->why;
    return !c->broken;
}

static size_t cuda_room(lq_dev *d) { return lq_gpu_room(lq_cuda_of(d)->gpu); }

struct lq_graph { lq_gpu_graph *of; };

static bool cuda_record(lq_dev *d, lq_record_fn *fn, void *arg, lq_graph **out, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    lq_graph *g = malloc(sizeof *g);
    *out = NULL;
    if (!g) return lq_fail(err, LQ_E_MEMORY, "device %s: no memory for a graph", d->name);
    if (!lq_gpu_record(c->gpu, err)) {
        free(g);
        return false;
    }
    c->recording = true;
    fn(arg);
    c->recording = false;
    if (!lq_gpu_recorded(c->gpu, &g->of, err)) {
        free(g);
        return false;
    }
    *out = g;
    return true;
}

static void cuda_replay(lq_dev *d, lq_graph *g) { lq_gpu_replay(lq_cuda_of(d)->gpu, g->of); }

static void cuda_forget(lq_dev *d, lq_graph *g) {
    if (g) lq_gpu_forget(lq_cuda_of(d)->gpu, g->of);
    free(g);
}

void *lq_cuda_work(lq_dev *d, size_t bytes) {
    lq_cuda *c = lq_cuda_of(d);
    lq_err err;
    if (bytes <= c->work_bytes) return c->work;
    if (c->work) lq_gpu_free(c->gpu, c->work);
    c->work = NULL;
    c->work_bytes = 0;
    if (!lq_gpu_alloc(c->gpu, bytes, &c->work, &err)) {
        lq_cuda_break(d, &err);
        return NULL;
    }
    c->work_bytes = bytes;
    return c->work;
}

// --- what a model asks ---

static bool cuda_can(lq_dev *d, const lq_wtype *t, lq_layout layout, lq_err *err) {
    if (layout == LQ_ANY || layout == LQ_CUDA) return true;
    char name[LQ_WTYPE_TEXT];
    lq_wtype_name(t, name, sizeof name);
    return lq_fail(err, LQ_E_UNSUPPORTED, "device %s: no kernel for weights %s in layout %s", d->name, name,
                   lq_layout_names[layout]);
}

// Memory of the device that only grows; what was there is lost.
static bool grown(lq_cuda *c, float **p, size_t *have, size_t bytes, lq_err *err) {
    void *more;
    if (bytes <= *have) return true;
    if (!lq_gpu_alloc(c->gpu, bytes, &more, err)) return false;
    if (*p) lq_gpu_free(c->gpu, *p);
    *p = more;
    *have = bytes;
    return true;
}

static bool cuda_reserve(lq_dev *d, const lq_dev_limits *l, lq_err *err) {
    lq_cuda *c = lq_cuda_of(d);
    size_t bytes;
    if (!lq_mul_size((size_t)l->rows * (size_t)l->heads * sizeof *c->sums, (size_t)l->dv, &bytes))
        return lq_fail(err, LQ_E_LIMIT, "device %s: attention of %d rows is too large", d->name, l->rows);
    if (d->act != LQ_F32 && (!grown(c, &c->sums, &c->sums_bytes, bytes, err) ||
                             !grown(c, &c->apart, &c->apart_bytes, lq_pa_workspace(l, c->sms), err))) return false;
    return lq_cuda_sample_reserve(d, l, err);
}

// --- opening ---

void lq_cuda_close(lq_dev *d) {
    lq_cuda *c = d->self;
    if (c && c->gpu) lq_cuda_stacks_free(d);
    if (c) {
        if (c->gpu) lq_fast_close(d);
        if (c->gpu) lq_cuda_sample_close(d);
        if (c->metered) lq_gpu_free(c->gpu, c->metered);
        if (c->sums) lq_gpu_free(c->gpu, c->sums);
        if (c->gpu && c->work) lq_gpu_free(c->gpu, c->work);
        lq_solver_close(c->solver);
        if (c->gpu) lq_gpu_close(c->gpu);
        lq_dev_close(c->cpu);
    }
    free(c);
    free(d);
}

// Fast mode names what its bits come from.
static bool open_library(lq_dev *d, lq_err *err) {
    if (!lq_fast_library_open(d, err)) return false;
    const size_t n = strlen(d->isa);
    snprintf(d->isa + n, sizeof d->isa - n, ", %s", lq_fast_library_name(d));
    return true;
}

static bool open_gpu(lq_dev *d, int number, const lq_dev_opts *o, lq_err *err) {
    lq_cuda *c = d->self;
    lq_gpu_info info;
    if (!lq_gpu_open(number, &c->gpu, &info, err)) return false;
    snprintf(d->isa, sizeof d->isa, "sm_%d, %.34s", info.capability, info.name);
    if (!lq_dev_open("cpu", &(lq_dev_opts){.isa = "c", .threads = o->threads}, &c->cpu, err)) return false;
    d->pool = c->cpu->pool;
    lq_gpu_help(c->gpu, d->pool);
    c->processors = info.processors;
    return lq_plain_prepare(c->gpu, err) && lq_cuda_meter_open(d, err) && lq_cuda_sample_open(d, err) &&
           (d->act == LQ_F32 || lq_fast_open(d, info.capability, err)) &&
           (d->numerics != LQ_NUM_FAST || open_library(d, err));
}

bool lq_cuda_open(int version, const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    *out = NULL;
    if (version != LQ_OPS_VERSION)
        return lq_fail(err, LQ_E_UNSUPPORTED, "device %s: the plug-in is of version %d, the program of %d", name,
                       LQ_OPS_VERSION, version);
    lq_dev *d = calloc(1, sizeof *d);
    lq_cuda *c = calloc(1, sizeof *c);
    if (!d || !c) {
        free(d);
        free(c);
        return lq_fail(err, LQ_E_MEMORY, "device %s: no memory", name);
    }
    const bool exact = o->numerics == LQ_NUM_EXACT;
    *d = (lq_dev){.name = "cuda", .layout = exact ? LQ_ANY : LQ_CUDA, .numerics = o->numerics,
                  .act = exact ? LQ_F32 : LQ_BF16, .ranks = 1, .self = c};
    if (!open_gpu(d, name[4] ? atoi(name + 5) : 0, o, err)) {
        lq_cuda_close(d);
        return false;
    }
    d->ops = (lq_ops){.can = cuda_can, .reserve = cuda_reserve, .room = cuda_room, .alloc = cuda_alloc,
                      .free = cuda_free, .put = cuda_put, .get = cuda_get, .copy = cuda_copy, .sync = cuda_sync,
                      .record = cuda_record, .replay = cuda_replay, .forget = cuda_forget};
    lq_cuda_slots(&d->ops);
    lq_cuda_sample_slots(&d->ops);
    lq_cuda_meter_slots(&d->ops);
    lq_cuda_round_slots(&d->ops);
    lq_cuda_solve_slots(&d->ops);
    lq_cuda_choose_slots(&d->ops);
    lq_cuda_tries_slots(&d->ops);
    *out = d;
    return true;
}
