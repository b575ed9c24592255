// solve.c: the sums of second moments and the factor that GPTQ reads, with OpenBLAS underneath. Owns nothing.
//
// OpenBLAS's bits change with its thread count, so it is held to one thread and the work is cut into blocks of fixed borders.
#include "kernels/cpu/slots.h"
#include <cblas.h>
#include <lapacke.h>
#include <string.h>

enum { SIDE = 256, CHUNK = 2048 }; // columns of a block; rows whose f32 products are summed before they go to f64

typedef struct block { const lq_gram_args *a; int sides; } block;

// Block `task` of the upper half, counted row by row: h += sum over chunks of x^T x.
static void gram_block(void *arg, int task, int worker) {
    const block *b = arg;
    const lq_gram_args *a = b->a;
    (void)worker;
    int i = 0, rest = task, n = a->x.cols;
    for (; rest >= b->sides - i; i++) rest -= b->sides - i;
    int j0 = (i + rest) * SIDE, i0 = i * SIDE, in = n - i0 < SIDE ? n - i0 : SIDE, jn = n - j0 < SIDE ? n - j0 : SIDE;
    float *product = a->work + (size_t)i0 * (size_t)n + j0; // a block's own part of work, [in][n] of it
    for (int r = 0; r < a->x.rows; r += CHUNK) {
        int rows = a->x.rows - r < CHUNK ? a->x.rows - r : CHUNK;
        const float *x = lq_mat_row(&a->x, r);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, in, jn, rows, 1.0f, x + i0, (int)a->x.stride, x + j0, (int)a->x.stride, 0.0f,
                    product, n);
        for (int y = 0; y < in; y++) {
            double *h = a->h + (size_t)(i0 + y) * (size_t)n + j0;
            for (int c = i0 == j0 ? y : 0; c < jn; c++) h[c] += (double)product[(size_t)y * (size_t)n + (size_t)c];
        }
    }
}

void lq_gram_c(lq_dev *d, const lq_gram_args *a) {
    block b = {a, (a->x.cols + SIDE - 1) / SIDE};
    openblas_set_num_threads(1);
    lq_pool_run(d->pool, gram_block, &b, b.sides * (b.sides + 1) / 2);
}

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
    (void)d;
    size_t n = (size_t)a->n;
    openblas_set_num_threads(1);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) a->h[i * n + j] = 0;
    turn(a->h, n * n);
    *a->ok = LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', a->n, a->h, a->n) == 0 &&
             LAPACKE_dtrtri(LAPACK_COL_MAJOR, 'U', 'N', a->n, a->h, a->n) == 0;
    turn(a->h, n * n);
}
