// lend.c: a CPU whose slots that round and solve another device does: what they read is brought there, what they wrote
// comes back. The text goes through the model on that device itself (stream.c); all else stays where the host looks at
// it. Owns the other device, copies of matrices that many calls read, and one region of its memory that grows with the
// largest call.
#include "quant/pass.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A matrix of the host's that does not change, and its copy there; or one that is there alone, which is its own host.
typedef struct held { const void *host; void *there; size_t bytes; } held;
enum { HELD = 16 };

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

static bool sizes_of(lq_lent *l, const lq_round_args *a, lq_weight_size *size) {
    lq_err err;
    if (lq_weight_sizes(&a->type, a->w.rows, a->w.cols, size)) return true;
    lq_fail(&err, LQ_E_LIMIT, "device %s: a matrix of %d x %d is too large", l->far->name, a->w.rows, a->w.cols);
    stop(l, &err);
    return false;
}

static size_t mat_bytes(const lq_mat *m) {
    return ((size_t)(m->rows - 1) * m->stride + (size_t)m->cols) * lq_dtype_size(m->type);
}

// To the nearest.
static void far_round(lq_dev *d, const lq_round_args *a) {
    lq_lent *l = lent_of(d);
    lq_round_args far = *a;
    lq_weight_size size;
    if (!sizes_of(l, a, &size)) return;
    const size_t n = (size_t)a->w.rows, k = (size_t)a->w.cols, f = sizeof(float), e = sizeof(double);
    const size_t groups = (size_t)lq_weight_groups(&a->type, a->w.cols);
    if (a->type.kind != LQ_W_TABLE) far.table = NULL;
    moved m[] = {
        {&far.w.p, mat_bytes(&a->w), true, false, NULL}, {&far.table, f << a->type.bits, true, false, NULL},
        {&far.scale_by, n * groups * f, true, false, NULL}, {&far.scale_map, 256 * f, true, false, NULL},
        {&far.weight, k * f, true, false, NULL}, {&far.given_scale, size.scale, true, false, NULL},
        {&far.given_zero, size.zero, true, false, NULL}, {&far.q, size.q, false, true, NULL},
        {&far.scale, size.scale, false, true, NULL}, {&far.zero, size.zero, false, true, NULL},
        {&far.back, n * k * f, false, true, NULL}, {&far.error, n * e, false, true, NULL},
        {&far.norm, n * e, false, true, NULL}, {&far.worst, n * e, false, true, NULL},
        {&far.bad, 2 * sizeof *a->bad, false, true, NULL}, {&far.wide, sizeof *a->wide, false, true, NULL}};
    const int count = (int)(sizeof m / sizeof *m);
    if (!far_begin(l, m, count)) return;
    l->far->ops.round(l->far, &far);
    far_end(l, m, count);
}

static void far_choose(lq_dev *d, const lq_choose_args *a) {
    lq_lent *l = lent_of(d);
    lq_choose_args far = *a;
    lq_round_args *r = &far.a;
    lq_weight_size size;
    if (!sizes_of(l, r, &size)) return;
    const size_t n = (size_t)r->w.rows, k = (size_t)r->w.cols, f = sizeof(float), e = sizeof(double);
    const size_t groups = (size_t)lq_weight_groups(&r->type, r->w.cols);
    if (r->type.kind != LQ_W_TABLE) r->table = NULL;
    far.work = l; // is there alone
    moved m[] = {
        {&r->w.p, mat_bytes(&r->w), true, false, NULL}, {&r->table, f << r->type.bits, true, false, NULL},
        {&r->scale_by, n * groups * f, true, false, NULL}, {&r->scale_map, 256 * f, true, false, NULL},
        {&r->weight, k * f, true, false, NULL}, {&r->u, k * k * e, true, false, NULL},
        {&r->h, k * k * f, true, false, NULL}, {&far.repay, k * k * f, true, false, NULL},
        {&far.order, k * sizeof *far.order, true, false, NULL},
        {&far.apart, (size_t)far.aparts * sizeof *far.apart, true, false, NULL},
        {&r->q, size.q, false, true, NULL}, {&r->scale, size.scale, false, true, NULL},
        {&r->zero, size.zero, false, true, NULL}, {&r->back, n * k * f, false, true, NULL},
        {&r->error, n * e, false, true, NULL}, {&r->norm, n * e, false, true, NULL},
        {&r->worst, n * e, false, true, NULL}, {&far.loss, n * e, false, true, NULL},
        {&far.plain, n * e, false, true, NULL}, {&far.size, n * e, false, true, NULL},
        {&r->bad, 2 * sizeof *r->bad, false, true, NULL}, {&r->wide, sizeof *r->wide, false, true, NULL},
        {&far.work, lq_choose_bytes(a), false, false, NULL}};
    const int count = (int)(sizeof m / sizeof *m);
    if (!far_begin(l, m, count)) return;
    l->far->ops.choose(l->far, &far);
    far_end(l, m, count);
}

static void far_tries(lq_dev *d, const lq_tries_args *a) {
    lq_lent *l = lent_of(d);
    lq_tries_args far = *a;
    const size_t n = (size_t)a->w.rows, k = (size_t)a->w.cols, f = sizeof(float), tries = (size_t)a->tries;
    const size_t table = a->type.kind == LQ_W_TABLE ? f << a->type.bits : 0, rows = a->h ? 0 : (size_t)a->x.rows;
    if (!table) far.table = NULL;
    if (a->h) far.x.p = far.y.p = NULL;
    moved m[] = {
        {&far.w.p, ((n - 1) * a->w.stride + k) * lq_dtype_size(a->w.type), true, false, NULL},
        {&far.by, tries * k * f, true, false, NULL}, {&far.table, table, true, false, NULL},
        {&far.scale_by, tries * lq_scale_count(&a->type, a->w.rows, a->w.cols) * f, true, false, NULL},
        {&far.scale_map, 256 * f, true, false, NULL}, {&far.h, k * k * f, true, false, NULL},
        {&far.x.p, rows * a->x.stride * f, true, false, NULL}, {&far.y.p, rows * a->y.stride * f, true, false, NULL}};
    const int count = (int)(sizeof m / sizeof *m);
    if (!far_begin(l, m, count)) return;
    l->far->ops.tries(l->far, &far);
    far_end(l, m, count);
}

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

static bool lends(const lq_dev *d) { return d->ops.choose == far_choose; }

lq_dev *lq_lend_on(lq_dev *d) { return lends(d) ? lent_of(d)->far : NULL; }

static held *place_of(lq_lent *l, const void *host) {
    held *h = l->held;
    while (h < l->held + HELD && h->host != host) h++;
    return h < l->held + HELD ? h : NULL;
}

void lq_lend_hold(lq_dev *d, const void *host, size_t bytes) {
    if (!host || !lends(d)) return;
    lq_lent *l = lent_of(d);
    held *h = place_of(l, NULL);
    if (!h || place_of(l, host) || bytes > l->far->ops.room(l->far) / 4 ||
        !l->far->ops.alloc(l->far, bytes, &h->there, &(lq_err){0})) return; // calls bring it, then
    h->host = host, h->bytes = bytes;
    l->far->ops.put(l->far, h->there, host, bytes);
}

bool lq_lend_keep(lq_dev *d, void *there, size_t bytes) {
    held *h = there ? place_of(lent_of(d), NULL) : NULL;
    if (h) *h = (held){there, there, bytes};
    return h || !there;
}

void lq_lend_drop(lq_dev *d, const void *host) {
    held *h = host && d && lends(d) ? place_of(lent_of(d), host) : NULL;
    if (!h) return;
    if (h->there != host) lent_of(d)->far->ops.free(lent_of(d)->far, h->there);
    *h = (held){0};
}

// Half of what is left, and what was taken for calls, is theirs. What a library makes of some rows it makes of TOGETHER
// at a time (choose.c): as long as borders fall between them the height decides no bit.
int64_t lq_lend_rows(lq_dev *d, int64_t n, size_t bytes) {
    enum { TOGETHER = 2048 };
    const lq_lent *l = lends(d) ? lent_of(d) : NULL;
    if (!l) return 0;
    const size_t most = (l->far->ops.room(l->far) + l->bytes) / 2 / bytes;
    if (most >= (size_t)n) return n;
    return most >= TOGETHER ? (int64_t)(most / TOGETHER * TOGETHER) : most > 1 ? (int64_t)most : 1;
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
    l->dev.ops.choose = far_choose;
    l->dev.ops.tries = far_tries;
    return &l->dev;
}

void lq_lend_close(lq_lent *l) {
    if (!l) return;
    if (l->room) l->far->ops.free(l->far, l->room);
    lq_dev_close(l->far);
    free(l);
}
