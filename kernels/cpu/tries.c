// tries.c: the slot tries on a CPU, of the other slots: a matrix times the factors of a try is rounded (round), and
// what it loses is a product (matmul) of the difference with moments, or of rounded rows of the text (quant) less what
// they came to. Sums have one order, so threads decide no bit. Owns the rows at hand while it runs.
#include "kernels/cpu/slots.h"
#include <math.h>
#include <stdlib.h>

// Rows that are rounded together by moments: so many elements, but no fewer rows, as each product reads all of h.
enum { CELLS = 1 << 17, ROWS = 128 };

typedef struct job {
    lq_dev *d;
    const lq_tries_args *a;
    int t;                // the try at hand,
    const float *by;      // its factors
    float scale2;
    int64_t k, first, n, rows; // rows first .. first + n of the matrix at hand, of at most so many
    float *w, *back, *out; // [rows][k] times `by`, as rounded and then what that differs by; products
    float *x;             // [text rows][k] divided
    void *q, *scale, *zero;
    double *figures;      // [3][rows] of round
    double *loss;         // [rows] of those at hand
    bool wide, bad;
} job;

static size_t up64(size_t n) { return (n + 63) & ~(size_t)63; }

static void *claim(size_t bytes) { return aligned_alloc(64, up64(bytes + !bytes)); }

static void edit_row(void *arg, int row, int worker) {
    const job *j = arg;
    const lq_mat *w = &j->a->w;
    float *to = j->w + (size_t)row * (size_t)j->k;
    (void)worker;
    lq_dtypes[w->type].to_f32((const char *)w->p + (size_t)(j->first + row) * w->stride * lq_dtype_size(w->type), to,
                              (size_t)j->k);
    for (int64_t c = 0; c < j->k; c++) to[c] *= j->by[c];
}

// What scales of the rows at hand may be.
static const float *levels(const job *j) {
    const size_t groups = (size_t)lq_weight_groups(&j->a->type, j->k);
    if (!j->a->scale_by) return NULL;
    return j->a->scale_by + ((size_t)j->t * (size_t)j->a->w.rows + (size_t)j->first) * groups;
}

// Those at hand, times `by`.
static void round_rows(job *j, float *back) {
    int64_t bad[2];
    lq_pool_run(j->d->pool, edit_row, j, (int)j->n);
    const lq_mat w = {.p = j->w, .type = LQ_F32, .rows = (int)j->n, .cols = (int)j->k, .stride = (size_t)j->k};
    j->d->ops.round(j->d, &(lq_round_args){
        .w = w, .type = j->a->type, .table = j->a->table, .scale2 = j->scale2, .scale_by = levels(j),
        .scale_map = j->a->scale_map, .scale_offset = j->a->scale_by ? j->a->scale_offset[j->t] : 0, .q = j->q,
        .scale = j->scale, .zero = j->a->type.asym ? j->zero : NULL, .back = back, .error = j->figures,
        .norm = j->figures + j->rows, .worst = j->figures + 2 * j->rows, .bad = bad, .wide = &j->wide});
    j->bad |= bad[0] >= 0;
}

static void differ_row(void *arg, int row, int worker) {
    const job *j = arg;
    const size_t at = (size_t)row * (size_t)j->k;
    (void)worker;
    float *d = j->back + at;
    for (int64_t c = 0; c < j->k; c++) d[c] = (j->w[at + (size_t)c] - d[c]) / j->by[c];
}

static void dot_row(void *arg, int row, int worker) {
    const job *j = arg;
    const size_t k = (size_t)j->k, at = (size_t)row * k;
    (void)worker;
    j->loss[row] = lq_dot(j->back + at, j->out + at, k);
}

// --- by moments ---

static void try_moments(job *j, double *loss) {
    const lq_tries_args *a = j->a;
    const lq_weight h = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = j->k, .k = j->k, .q = a->h};
    for (j->first = 0; j->first < a->w.rows && !j->wide; j->first += j->n) {
        j->n = a->w.rows - j->first < j->rows ? a->w.rows - j->first : j->rows;
        j->loss = loss + j->first;
        round_rows(j, j->back);
        if (j->wide || j->bad) continue;
        lq_pool_run(j->d->pool, differ_row, j, (int)j->n);
        const lq_mat d = {.p = j->back, .type = LQ_F32, .rows = (int)j->n, .cols = (int)j->k, .stride = (size_t)j->k};
        lq_mat y = d;
        y.p = j->out;
        const lq_act act = {.x = d};
        j->d->ops.matmul(j->d, &(lq_matmul_args){.x = &act, .count = 1, .w = {&h}, .y = {y}});
        lq_pool_run(j->d->pool, dot_row, j, (int)j->n);
    }
    for (int64_t r = 0; r < a->w.rows && j->bad; r++) loss[r] = NAN;
}

// --- by rows of the text ---

static void divide_row(void *arg, int row, int worker) {
    const job *j = arg;
    const float *x = lq_mat_row(&j->a->x, row);
    float *to = j->x + (size_t)row * (size_t)j->k;
    (void)worker;
    for (int64_t c = 0; c < j->k; c++) to[c] = x[c] / j->by[c];
}

// What the rounded matrix makes of the rounded rows. False: no memory.
static bool apply(const job *j) {
    const lq_tries_args *a = j->a;
    const int rows = a->x.rows;
    lq_dev *d = j->d;
    lq_weight w = {.type = a->type, .n = j->n, .k = j->k, .q = j->q, .scale = j->scale, .zero = j->zero,
                   .scale2 = &j->scale2, .table = a->table};
    int32_t *sum = NULL;
    if (w.type.act.fixed) w.act_scale = a->fixed + j->t;
    if (w.type.act.asym) {
        w.act_zero = a->fixed_zero + j->t;
        if (!(w.code_sum = sum = claim((size_t)w.n * sizeof *sum))) return false;
        lq_code_sums(&w, sum);
    }
    const size_t bytes = lq_act_bytes(d, &w, rows);
    void *base = bytes ? claim(bytes) : NULL;
    if (!bytes || base) {
        const lq_mat x = {.p = j->x, .type = LQ_F32, .rows = rows, .cols = (int)j->k, .stride = (size_t)j->k};
        const lq_mat y = {.p = j->out, .type = LQ_F32, .rows = rows, .cols = (int)j->n, .stride = (size_t)j->n};
        lq_act act = {.x = x};
        lq_act_bind(d, &act, &w, rows, base);
        act.x = x;
        if (act.type.elem != LQ_F32) d->ops.quant(d, &(lq_quant_args){.x = x, .act = &act});
        d->ops.matmul(d, &(lq_matmul_args){.x = &act, .count = 1, .w = {&w}, .y = {y}});
    }
    free(base);
    free(sum);
    return !bytes || base;
}

static bool try_rows(job *j, double *loss) {
    const lq_tries_args *a = j->a;
    j->first = 0, j->n = a->w.rows;
    round_rows(j, NULL);
    if (j->wide) return true;
    lq_pool_run(j->d->pool, divide_row, j, a->x.rows);
    if (!j->bad && !apply(j)) return false;
    for (int r = 0; r < a->x.rows && !j->bad; r++)
        for (int64_t i = 0; i < j->n; i++) {
            const double e = (double)(j->out[(size_t)r * (size_t)j->n + (size_t)i] - lq_mat_row(&a->y, r)[i]);
            *loss += e * e;
        }
    if (j->bad) *loss = NAN;
    return true;
}

// --- the slot ---

static bool job_open(job *j) {
    const lq_tries_args *a = j->a;
    const lq_wtype *t = &a->type;
    lq_weight_size size;
    j->k = a->w.cols;
    j->rows = !a->h ? a->w.rows : j->k * ROWS < CELLS ? CELLS / j->k : ROWS;
    if (t->rows > 1) j->rows = j->rows > t->rows ? j->rows / t->rows * t->rows : t->rows;
    if (j->rows > a->w.rows) j->rows = a->w.rows;
    if (!lq_weight_sizes(t, j->rows, j->k, &size)) return false;
    const size_t cells = (size_t)j->rows * (size_t)j->k, text = a->h ? 0 : (size_t)a->x.rows;
    j->w = claim(cells * sizeof *j->w);
    j->back = claim(a->h ? cells * sizeof *j->back : 0);
    j->out = claim((a->h ? cells : text * (size_t)j->rows) * sizeof *j->out);
    j->x = claim(text * (size_t)j->k * sizeof *j->x);
    j->q = claim(size.q);
    j->scale = claim(size.scale);
    j->zero = claim(size.zero);
    j->figures = claim(3 * (size_t)j->rows * sizeof *j->figures);
    return j->w && j->back && j->out && j->x && j->q && j->scale && j->zero && j->figures;
}

static void job_close(job *j) {
    void *all[] = {j->w, j->back, j->out, j->x, j->q, j->scale, j->zero, j->figures};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

void lq_tries_cpu(lq_dev *d, const lq_tries_args *a) {
    lq_cpu *c = lq_cpu_of(d);
    job j = {.d = d, .a = a};
    bool done = job_open(&j);
    for (int t = 0; done && t < a->tries; t++) {
        j.t = t;
        j.by = a->by + (size_t)t * (size_t)j.k;
        j.scale2 = a->scale2 ? a->scale2[t] : 0;
        j.wide = j.bad = false;
        if (a->h) try_moments(&j, a->loss + (size_t)t * (size_t)a->w.rows);
        else done = try_rows(&j, a->loss + t);
        a->wide[t] = j.wide;
    }
    if (!done && !c->broken) {
        c->broken = true;
        lq_fail(&c->why, LQ_E_MEMORY, "device cpu: no memory to try a matrix of %d x %d", a->w.rows, a->w.cols);
    }
    job_close(&j);
}
