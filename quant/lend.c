// lend.c: a CPU whose slots that round and solve another device does: what they read is brought there, what they wrote
// comes back. The text goes through the model on that device itself (stream.c); all else stays where the host looks at
// it. Owns the other device, copies of matrices that many calls read, and one region of its memory that grows with the
// largest call.
#include "quant/pass.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A matrix of the host's that does not change, and its copy there.
typedef struct held { const void *host; void *there; size_t bytes; } held;
enum { HELD = 4 };

struct lq_lent {
    lq_dev dev;    // first: what slots are given
    lq_dev *cpu, *far;
    held held[HELD];
    void *room;
    size_t bytes;
    bool broken;
    lq_err why;
};
static lq_lent *lent_of(lq_dev *d) { return (lq_lent *)(void *)d; }

// An array of a call: where its pointer stands, which becomes that of the other device.
typedef struct moved { void *at; size_t bytes; bool in, out; void *host; } moved;
enum { ALIGNED = 256 };

static void *held_at(const lq_lent *l, const void *host, size_t bytes) {
    for (int i = 0; i < HELD; i++)
        if (l->held[i].host == host && l->held[i].bytes == bytes) return l->held[i].there;
    return NULL;
}

static void stop(lq_lent *l, const lq_err *why) {
    if (!l->broken) l->why = *why;
    l->broken = true;
}

static bool far_begin(lq_lent *l, moved *m, int n) {
    size_t need = 0, used = 0;
    lq_err err;
    for (int i = 0; i < n; i++) {
        void *there;
        memcpy(&m[i].host, m[i].at, sizeof m[i].host);
        if (m[i].host && !m[i].out && (there = held_at(l, m[i].host, m[i].bytes)) != NULL) {
            memcpy(m[i].at, &there, sizeof there);
            m[i].host = NULL;
        }
        if (!m[i].host) m[i].bytes = 0;
        need += (m[i].bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    }
    if (l->broken) return false;
    if (need > l->bytes) {
        if (l->room) l->far->ops.free(l->far, l->room);
        l->room = NULL;
        l->bytes = 0;
        if (!l->far->ops.alloc(l->far, need, &l->room, &err)) {
            stop(l, &err);
            return false;
        }
        l->bytes = need;
    }
    for (int i = 0; i < n; i++) {
        void *there = (char *)l->room + used;
        if (!m[i].host) continue;
        used += (m[i].bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
        if (m[i].in) l->far->ops.put(l->far, there, m[i].host, m[i].bytes);
        memcpy(m[i].at, &there, sizeof there);
    }
    return true;
}

static void far_end(lq_lent *l, const moved *m, int n) {
    lq_err err;
    for (int i = 0; i < n; i++) {
        void *there;
        memcpy(&there, m[i].at, sizeof there);
        if (m[i].out && m[i].host) l->far->ops.get(l->far, m[i].host, there, m[i].bytes);
    }
    if (!l->far->ops.sync(l->far, &err)) stop(l, &err);
}

static bool far_sync(lq_dev *d, lq_err *err) {
    const lq_lent *l = lent_of(d);
    if (l->broken && err) *err = l->why;
    return !l->broken && l->cpu->ops.sync(l->cpu, err);
}

// Both, and what the text goes through the model in: the other one sums moments and makes factors.
static bool far_solver(lq_dev *d, char *out, size_t size, lq_err *err) {
    lq_lent *l = lent_of(d);
    if (!l->cpu->ops.solver(l->cpu, out, size, err)) return false;
    const size_t n = strlen(out);
    if (n + 2 >= size) return true;
    const int put = snprintf(out + n, size - n, ", %s, ", lq_dtypes[l->far->act].name);
    return put < 0 || (size_t)put >= size - n || l->far->ops.solver(l->far, out + n + put, size - n - (size_t)put, err);
}

static void far_factor(lq_dev *d, const lq_factor_args *a) {
    lq_factor_args far = *a;
    moved m[] = {{&far.h, (size_t)a->n * (size_t)a->n * sizeof *a->h, true, true, NULL}};
    *a->ok = false;
    if (!far_begin(lent_of(d), m, 1)) return;
    lent_of(d)->far->ops.factor(lent_of(d)->far, &far);
    far_end(lent_of(d), m, 1);
}

static void far_solve(lq_dev *d, const lq_solve_args *a) {
    const size_t n = (size_t)a->n;
    lq_solve_args far = *a;
    moved m[] = {{&far.u, n * n * sizeof *a->u, true, false, NULL},
                 {&far.b, n * (size_t)a->cols * sizeof *a->b, true, true, NULL}};
    if (!far_begin(lent_of(d), m, 2)) return;
    lent_of(d)->far->ops.solve(lent_of(d)->far, &far);
    far_end(lent_of(d), m, 2);
}

// round, or refine, which goes on from what round made.
static void far_rounding(lq_dev *d, const lq_round_args *a, bool again) {
    lq_lent *l = lent_of(d);
    lq_round_args far = *a;
    lq_weight_size size;
    lq_err err;
    const size_t n = (size_t)a->w.rows, k = (size_t)a->w.cols, f = sizeof(float), e = sizeof(double);
    if (!lq_weight_sizes(&a->type, a->w.rows, a->w.cols, &size)) {
        lq_fail(&err, LQ_E_LIMIT, "device %s: a matrix of %zu x %zu is too large", l->far->name, n, k);
        stop(l, &err);
        return;
    }
    const size_t groups = (size_t)lq_weight_groups(&a->type, a->w.cols), table = a->type.kind == LQ_W_TABLE ?
        f << a->type.bits : 0;
    const size_t w = ((n - 1) * a->w.stride + k) * lq_dtype_size(a->w.type);
    if (!table) far.table = NULL;
    moved m[] = {
        {&far.w.p, w, true, a->u && !again, NULL}, {&far.table, table, true, false, NULL},
        {&far.scale_by, n * groups * f, true, false, NULL}, {&far.scale_map, 256 * f, true, false, NULL},
        {&far.weight, k * f, true, false, NULL}, {&far.u, k * k * e, true, false, NULL},
        {&far.given_scale, size.scale, true, false, NULL}, {&far.given_zero, size.zero, true, false, NULL},
        {&far.q, size.q, again, true, NULL}, {&far.scale, size.scale, again, true, NULL},
        {&far.zero, size.zero, again, true, NULL}, {&far.back, n * k * f, again, true, NULL},
        {&far.error, n * e, again, true, NULL}, {&far.norm, n * e, again, true, NULL},
        {&far.worst, n * e, again, true, NULL}, {&far.bad, 2 * sizeof *a->bad, again, true, NULL},
        {&far.wide, sizeof *a->wide, again, true, NULL}, {&far.h, k * k * f, true, false, NULL},
        {&far.slope, n * k * f, true, true, NULL}};
    if (!again) far.h = NULL, far.slope = NULL;
    const int count = (int)(sizeof m / sizeof *m);
    if (!far_begin(l, m, count)) return;
    if (again) l->far->ops.refine(l->far, &far);
    else l->far->ops.round(l->far, &far);
    far_end(l, m, count);
}

static void far_round(lq_dev *d, const lq_round_args *a) { far_rounding(d, a, false); }
static void far_refine(lq_dev *d, const lq_round_args *a) { far_rounding(d, a, true); }

bool lq_lend_open(const lq_quant_opts *o, lq_lent **out, lq_err *err) {
    *out = NULL;
    if (!o->device || !strcmp(o->device, "cpu")) return true;
    lq_lent *l = calloc(1, sizeof *l);
    if (!l) return lq_fail(err, LQ_E_MEMORY, "no memory for a device");
    const lq_numerics mode = o->exact ? LQ_NUM_EXACT : LQ_NUM_DEFAULT;
    if (!lq_dev_open(o->device, &(lq_dev_opts){.threads = o->threads, .numerics = mode}, &l->far, err)) {
        free(l);
        return false;
    }
    *out = l;
    return true;
}

void lq_lend_hold(lq_dev *d, const void *host, size_t bytes) {
    if (d->ops.round != far_round || !host) return;
    lq_lent *l = lent_of(d);
    held *h = l->held;
    while (h < l->held + HELD && h->host) h++;
    if (h == l->held + HELD || bytes > l->far->ops.room(l->far) / 4 ||
        !l->far->ops.alloc(l->far, bytes, &h->there, &(lq_err){0})) return; // calls bring it, then
    h->host = host, h->bytes = bytes;
    l->far->ops.put(l->far, h->there, host, bytes);
}

void lq_lend_drop(lq_dev *d, const void *host) {
    if (!d || d->ops.round != far_round || !host) return;
    lq_lent *l = lent_of(d);
    for (held *h = l->held; h < l->held + HELD; h++) {
        if (h->host != host) continue;
        l->far->ops.free(l->far, h->there);
        *h = (held){0};
    }
}

lq_dev *lq_lend_far(const lq_lent *l) { return l ? l->far : NULL; }

lq_dev *lq_lend(lq_lent *l, lq_dev *cpu) {
    if (!l) return cpu;
    l->cpu = cpu;
    l->dev = *cpu;
    l->dev.ops.sync = far_sync;
    l->dev.ops.solver = far_solver;
    l->dev.ops.factor = far_factor;
    l->dev.ops.solve = far_solve;
    l->dev.ops.round = far_round;
    l->dev.ops.refine = far_refine;
    return &l->dev;
}

void lq_lend_close(lq_lent *l) {
    if (!l) return;
    if (l->room) l->far->ops.free(l->far, l->room);
    lq_dev_close(l->far);
    free(l);
}
