// solver_emu.c: solver.h on a machine without a GPU: plain loops, launched on the emulated driver as kernels of one
// task, so that they reach its memory and keep its order.
#include "kernels/cuda/solver.h"
#include "formats/elem.h"
#include <stdlib.h>

struct lq_solver { lq_gpu *gpu; };

typedef struct application {
    const float *x, *h;
    size_t x_stride;
    int rows, m, k;
    float *y;
} application;
typedef struct inversion { double *a; int n, *info; } inversion;
typedef struct triangle { const double *u; double *b; int n, cols; bool turned; } triangle;

static bool once(lq_solver *s, void (*kernel)(const void *), const void *args, size_t bytes) {
    lq_gpu_launch(s->gpu, (const void *)(uintptr_t)kernel, args, bytes, (lq_gpu_grid){.blocks = 1, .threads = 1});
    return true;
}

bool lq_solver_open(lq_gpu *g, lq_solver **out, lq_err *err) {
    *out = malloc(sizeof **out);
    if (!*out) return lq_fail(err, LQ_E_MEMORY, "device cuda: no memory");
    (*out)->gpu = g;
    return true;
}

void lq_solver_close(lq_solver *s) { free(s); }

const char *lq_solver_name(const lq_solver *s) { return (void)s, "plain loops"; }

static float number(const lq_solver_product *p, const void *x, size_t at) {
    return p->half ? lq_bf16_widen(((const uint16_t *)x)[at]) : ((const float *)x)[at];
}

static void multiply(const void *args) {
    const lq_solver_product *p = args;
    const void *y = p->y ? p->y : p->x;
    const size_t stride = p->y ? p->y_stride : p->x_stride;
    for (int i = 0; i < p->m; i++)
        for (int j = p->y ? 0 : i; j < p->n; j++) {
            float sum = 0;
            for (int r = 0; r < p->rows; r++)
                sum += number(p, p->x, (size_t)r * p->x_stride + (size_t)i) *
                       number(p, y, (size_t)r * stride + (size_t)j);
            p->c[(size_t)i * (size_t)p->n + (size_t)j] = sum;
        }
}

bool lq_solver_multiply(lq_solver *s, const lq_solver_product *p, lq_err *err) {
    (void)err;
    return once(s, multiply, p, sizeof *p);
}

static void apply(const void *args) {
    const application *a = args;
    for (size_t r = 0; r < (size_t)a->rows; r++)
        for (size_t i = 0; i < (size_t)a->m; i++) {
            float sum = 0;
            for (size_t j = 0; j < (size_t)a->k; j++) sum += a->x[r * a->x_stride + j] * a->h[i * (size_t)a->k + j];
            a->y[r * (size_t)a->m + i] = sum;
        }
}

bool lq_solver_apply(lq_solver *s, const float *x, size_t x_stride, int rows, const float *h, int m, int k, float *y,
                     lq_err *err) {
    (void)err;
    return once(s, apply, &(application){x, h, x_stride, rows, m, k, y}, sizeof(application));
}

static void invert(const void *args) {
    const inversion *v = args;
    const size_t n = (size_t)v->n;
    double *a = v->a;
    for (size_t j = 0; j < n; j++)
        for (size_t i = j; i < n; i++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
            if (i == j && sum <= 0) { // NaN gets through, as it does through LAPACK's
                v->info[0] = (int)j + 1;
                return;
            }
            a[i * n + j] = i == j ? __builtin_sqrt(sum) : sum / a[j * n + j];
        }
    for (size_t j = 0; j < n; j++) {
        a[j * n + j] = 1 / a[j * n + j];
        for (size_t i = j + 1; i < n; i++) {
            double sum = 0;
            for (size_t k = j; k < i; k++) sum += a[i * n + k] * a[k * n + j];
            a[i * n + j] = -sum / a[i * n + i];
        }
    }
}

bool lq_solver_invert(lq_solver *s, double *a, int n, int *info, lq_err *err) {
    (void)err;
    return once(s, invert, &(inversion){a, n, info}, sizeof(inversion));
}

static void times(const void *args) {
    const triangle *t = args;
    const size_t n = (size_t)t->n, cols = (size_t)t->cols;
    for (size_t step = 0; step < n; step++) {
        const size_t i = t->turned ? n - 1 - step : step, first = t->turned ? 0 : i, end = t->turned ? i + 1 : n;
        for (size_t c = 0; c < cols; c++) {
            double sum = 0;
            for (size_t j = first; j < end; j++) sum += t->u[t->turned ? j * n + i : i * n + j] * t->b[j * cols + c];
            t->b[i * cols + c] = sum;
        }
    }
}

bool lq_solver_triangle(lq_solver *s, const double *u, int n, bool turned, double *b, int cols, lq_err *err) {
    (void)err;
    return once(s, times, &(triangle){u, b, n, cols, turned}, sizeof(triangle));
}
