// hosted.c: slots that the host does for a CUDA device, in portable C: what they read is brought to it, what they wrote
// goes back. Owns the copies while a slot runs. The bits are those of a CPU.
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include <stdlib.h>

// Arrays of one call: where each is on the device, and its copy.
enum { MOST = 20 };
typedef struct moved { void *dev, *host; size_t bytes; bool back; } moved;
typedef struct call { lq_dev *d; moved a[MOST]; int n; bool failed; } call;

// A copy of `bytes` of the device; NULL stays NULL. back: what the slot leaves there goes back.
static void *take(call *c, const void *dev, size_t bytes, bool back) {
    lq_err err;
    if (!dev || c->failed) return NULL;
    void *host = malloc(bytes ? bytes : 1);
    if (!host) {
        c->failed = true;
        lq_fail(&err, LQ_E_MEMORY, "device cuda: no memory for %zu bytes on the host", bytes);
        lq_cuda_break(c->d, &err);
        return NULL;
    }
    c->a[c->n++] = (moved){(void *)(uintptr_t)dev, host, bytes, back};
    c->d->ops.get(c->d, host, dev, bytes);
    return host;
}

static size_t mat_bytes(const lq_mat *m) {
    return m->rows ? ((size_t)(m->rows - 1) * m->stride + (size_t)m->cols) * lq_dtype_size(m->type) : 0;
}

static lq_mat take_mat(call *c, const lq_mat *m, bool back) {
    lq_mat out = *m;
    out.p = take(c, m->p, mat_bytes(m), back);
    return out;
}

// All copies are there, or nothing is on its way to them.
static bool ready(call *c) {
    lq_err err;
    if (!lq_gpu_sync(lq_cuda_of(c->d)->gpu, &err) && !c->failed) {
        c->failed = true;
        lq_cuda_break(c->d, &err);
    }
    return !c->failed;
}

// What was written goes back, and what went wrong on the host went wrong here.
static void done(call *c) {
    lq_dev *cpu = lq_cuda_of(c->d)->cpu;
    lq_err err;
    if (!c->failed && !cpu->ops.sync(cpu, &err)) lq_cuda_break(c->d, &err);
    for (int i = 0; i < c->n; i++) {
        if (c->a[i].back && !c->failed) c->d->ops.put(c->d, c->a[i].dev, c->a[i].host, c->a[i].bytes);
        free(c->a[i].host);
    }
}

static lq_dev *cpu_of(const lq_dev *d) { return lq_cuda_of(d)->cpu; }

// --- quantization: what no kernel rounds yet ---

void lq_cuda_host_round(lq_dev *d, const lq_round_args *a) {
    call c = {.d = d};
    lq_round_args host = *a;
    lq_weight_size size;
    const size_t n = (size_t)a->w.rows, k = (size_t)a->w.cols, f = sizeof(float), e = sizeof(double);
    if (!lq_weight_sizes(&a->type, a->w.rows, a->w.cols, &size)) {
        lq_err err;
        lq_fail(&err, LQ_E_LIMIT, "device cuda: a matrix of %d x %d is too large", a->w.rows, a->w.cols);
        lq_cuda_break(d, &err);
        return;
    }
    const size_t scales = lq_scale_count(&a->type, a->w.rows, a->w.cols);
    host.w = take_mat(&c, &a->w, true);
    host.table = a->type.kind == LQ_W_TABLE ? take(&c, a->table, f << a->type.bits, false) : NULL;
    host.scale_by = take(&c, a->scale_by, scales * f, false);
    host.scale_map = take(&c, a->scale_map, 256 * f, false);
    host.weight = take(&c, a->weight, k * f, false);
    host.u = take(&c, a->u, k * k * e, false);
    host.given_scale = take(&c, a->given_scale, size.scale, false);
    host.given_zero = take(&c, a->given_zero, size.zero, false);
    host.q = take(&c, a->q, size.q, true);
    host.scale = take(&c, a->scale, size.scale, true);
    host.zero = take(&c, a->zero, size.zero, true);
    host.back = take(&c, a->back, n * k * f, true);
    host.error = take(&c, a->error, n * e, true);
    host.norm = take(&c, a->norm, n * e, true);
    host.worst = take(&c, a->worst, n * e, true);
    host.bad = take(&c, a->bad, 2 * sizeof *a->bad, true);
    host.wide = take(&c, a->wide, sizeof *a->wide, true);
    if (ready(&c)) cpu_of(d)->ops.round(cpu_of(d), &host);
    done(&c);
}
