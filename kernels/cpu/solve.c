// solve.c: the sums of second moments and the factor that GPTQ reads, with OpenBLAS underneath. It is loaded at the
// first use, since few programs solve anything; where it is not there the slots leave their results as they are and
// `sync` says why. Owns nothing else.
//
// OpenBLAS's bits change with its thread count, so it is held to one thread and the work is
// cut into blocks of fixed borders.
#include "kernels/cpu/slots.h"
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { SIDE = 256, CHUNK = 2048 }; // columns of a block; rows whose f32 products are summed before they go to f64

// --- OpenBLAS ---

enum { ROW_MAJOR = 101, PLAIN = 111, TURNED = 112, UPPER = 121, ANY_DIAGONAL = 131, LEFT = 141 }; // as cblas.h has them
static struct {
    pthread_once_t once;
    bool there;
    char why[256];
    void (*set_num_threads)(int);
    char *(*config)(void), *(*core)(void);
    void (*sgemm)(int order, int turn_a, int turn_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
    void (*dtrmm)(int order, int side, int half, int turn, int diagonal, int m, int n, double alpha, const double *a,
                  int lda, double *b, int ldb);
    void (*potrf)(const char *half, const int *n, double *a, const int *lda, int *info);
    void (*trtri)(const char *half, const char *diagonal, const int *n, double *a, const int *lda, int *info);
} blas = {.once = PTHREAD_ONCE_INIT};

// As it is loaded OpenBLAS starts a thread for each core it may use, so for that moment it may use one.
static void *library_open(const char *name) {
    cpu_set_t all, one;
    const bool known = sched_getaffinity(0, sizeof all, &all) == 0;
    CPU_ZERO(&one);
    for (int i = 0; known && i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    const bool held = known && sched_setaffinity(0, sizeof one, &one) == 0;
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (held) sched_setaffinity(0, sizeof all, &all);
    return lib;
}

static void blas_load(void) {
    const struct { const char *name; void *at; } symbols[] = {
        {"openblas_set_num_threads", &blas.set_num_threads}, {"openblas_get_config", &blas.config},
        {"openblas_get_corename", &blas.core}, {"cblas_sgemm", &blas.sgemm}, {"cblas_dtrmm", &blas.dtrmm},
        {"dpotrf_", &blas.potrf}, {"dtrtri_", &blas.trtri},
    };
    void *lib = library_open("libopenblas.so.0");
    blas.there = lib != NULL;
    for (size_t i = 0; blas.there && i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(lib, symbols[i].name);
        memcpy(symbols[i].at, &f, sizeof f);
        blas.there = f != NULL;
    }
    if (blas.there) blas.set_num_threads(1);
    else snprintf(blas.why, sizeof blas.why, "%s", dlerror());
}

static bool blas_use(lq_dev *d) {
    lq_cpu *c = lq_cpu_of(d);
    pthread_once(&blas.once, blas_load);
    if (!blas.there) {
        c->broken = true;
        lq_fail(&c->why, LQ_E_UNSUPPORTED, "device cpu: OpenBLAS cannot be loaded, which gram and factor stand on (%s)",
                blas.why);
    }
    return blas.there;
}

// "OpenBLAS 0.3.21 SkylakeX": its version and the kernels it chose for this machine; the blocks above are fixed.
bool lq_solver_c(lq_dev *d, char *out, size_t size, lq_err *err) {
    if (!blas_use(d)) return d->ops.sync(d, err);
    const char *config = blas.config();
    const size_t name = strcspn(config, " "), version = config[name] ? 1 + strcspn(config + name + 1, " ") : 0;
    snprintf(out, size, "%.*s %s", (int)(name + version), config, blas.core());
    return true;
}

// --- gram ---

typedef struct block { const lq_gram_args *a; int sides; } block; // sides: blocks of a row of them

// Block `task` of the upper half, counted row by row, or of the whole: h += sum over chunks of x^T x, of x^T with.
static void gram_block(void *arg, int task, int worker) {
    const block *b = arg;
    const lq_gram_args *a = b->a;
    const lq_mat *with = a->with ? a->with : &a->x;
    (void)worker;
    int i = 0, j = task, m = a->x.cols, n = with->cols;
    if (a->with) i = task / b->sides, j = task % b->sides;
    else for (; j >= b->sides; i++) j -= b->sides - i - 1;
    int j0 = j * SIDE, i0 = i * SIDE, in = m - i0 < SIDE ? m - i0 : SIDE, jn = n - j0 < SIDE ? n - j0 : SIDE;
    float *product = a->work + (size_t)i0 * (size_t)n + j0; // a block's own part of work, [in][n] of it
    for (int r = 0; r < a->x.rows; r += CHUNK) {
        int rows = a->x.rows - r < CHUNK ? a->x.rows - r : CHUNK;
        blas.sgemm(ROW_MAJOR, TURNED, PLAIN, in, jn, rows, 1.0f, lq_mat_row(&a->x, r) + i0, (int)a->x.stride,
                   lq_mat_row(with, r) + j0, (int)with->stride, 0.0f, product, n);
        for (int y = 0; y < in; y++) {
            double *h = a->h + (size_t)(i0 + y) * (size_t)n + j0;
            const float *from = product + (size_t)y * (size_t)n;
            for (int c = i0 == j0 && !a->with ? y : 0; c < jn; c++) h[c] += (double)from[c];
        }
    }
}

static int sides(const lq_mat *x) { return (x->cols + SIDE - 1) / SIDE; }

void lq_gram_c(lq_dev *d, const lq_gram_args *a) {
    block b = {a, sides(a->with ? a->with : &a->x)};
    const int blocks = a->with ? sides(&a->x) * b.sides : b.sides * (b.sides + 1) / 2;
    if (blas_use(d)) lq_pool_run(d->pool, gram_block, &b, blocks);
}

// --- factor ---

static void turn(double *h, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        double t = h[i];
        h[i] = h[count - 1 - i];
        h[count - 1 - i] = t;
    }
}

// With J the reversal of the index order: J h J = L L^T, so h = R R^T with the upper R = J L J, and h^-1 = U^T U with
// U = R^-1 = J L^-1 J. Reversing all n * n numbers is J h J; the lower half by rows is LAPACK's upper half by columns.
void lq_factor_c(lq_dev *d, const lq_factor_args *a) {
    size_t n = (size_t)a->n;
    int info = 0;
    *a->ok = false;
    if (!blas_use(d)) return;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) a->h[i * n + j] = 0;
    turn(a->h, n * n);
    blas.potrf("U", &a->n, a->h, &a->n, &info);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(a->h[i * n + i])) info = 1; // potrf compares the diagonal with 0 only, and NaN gets there
    if (info == 0) blas.trtri("U", "N", &a->n, a->h, &a->n, &info);
    *a->ok = info == 0;
    turn(a->h, n * n);
}

// --- solve ---

static void solve_columns(void *arg, int task, int worker) {
    const lq_solve_args *a = arg;
    const int c = task * SIDE, n = a->cols - c < SIDE ? a->cols - c : SIDE;
    (void)worker;
    for (int turn_u = 0; turn_u < 2; turn_u++)
        blas.dtrmm(ROW_MAJOR, LEFT, UPPER, turn_u ? TURNED : PLAIN, ANY_DIAGONAL, a->n, n, 1.0, a->u, a->n, a->b + c,
                   a->cols);
}

void lq_solve_c(lq_dev *d, const lq_solve_args *a) {
    lq_solve_args own = *a;
    if (blas_use(d)) lq_pool_run(d->pool, solve_columns, &own, (a->cols + SIDE - 1) / SIDE);
}
