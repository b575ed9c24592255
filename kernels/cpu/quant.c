// quant.c: the slot `quant`: activations in the form a matmul reads. The rule stands in pack.h (lq_atype).
#include "kernels/cpu/cpu.h"
#include <math.h>
#include <string.h>

// NaN and infinity compare as larger than all finite numbers when their bits are taken as integers.
static uint32_t magnitude(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u & 0x7fffffff;
}

void lq_q8_row_c(const float *x, int k, const lq_act *a, int row, int g0) {
    const int G = a->type.group;
    for (int g = g0; k > 0; g++, x += G, k -= G) {
        const size_t u = (size_t)g * (size_t)a->x.rows + (size_t)row;
        const int n = k < G ? k : G;
        int8_t *q = a->q + u * (size_t)G;
        uint32_t top = 0;
        for (int i = 0; i < n; i++) top = magnitude(x[i]) > top ? magnitude(x[i]) : top;
        float absmax;
        memcpy(&absmax, &top, 4);
        const bool some = top < 0x7f800000 && absmax >= 0x1p-100f;
        const float inverse = some ? 127.0f / absmax : 0;
        int32_t sum = 0;
        for (int i = 0; i < n; i++) {
            q[i] = some ? (int8_t)lrintf(x[i] * inverse) : 0;
            sum += q[i];
        }
        if (n < G) memset(q + n, 0, (size_t)(G - n));
        a->scale[u] = absmax < 0x1p-100f ? 0 : absmax / 127.0f;
        a->sum[u] = sum;
    }
}

typedef struct quant_job { lq_dev *d; const lq_quant_args *a; int rows; /* of a task */ } quant_job;

// v[j] for stored columns j0..j0+n.
static void transform(const lq_quant_args *a, const float *x, int j0, int n, float *v) {
    for (int j = 0; j < n; j++) {
        const int c = a->perm ? a->perm[j0 + j] : j0 + j;
        v[j] = a->smooth ? x[c] * a->smooth[c] : x[c];
    }
}

static void quant_row(const quant_job *job, int r, float *scratch, size_t room) {
    const lq_quant_args *a = job->a;
    lq_act *act = a->act;
    const int k = a->x.cols;
    const float *x = lq_mat_row(&a->x, r);
    if (act->x.p && act->x.p != a->x.p) {
        float *v = lq_mat_row(&act->x, r);
        transform(a, x, 0, k, v);
        if (!a->outliers) x = v;
    }
    if (act->type.elem != LQ_I8) return;
    if (x != lq_mat_row(&a->x, r) || (!a->perm && !a->smooth && !a->outliers)) {
        ((const lq_cpu *)job->d->self)->q8(x, k, act, r, 0);
        return;
    }
    const int G = act->type.group, part = (int)(room / sizeof(float)) / G * G;
    for (int j = 0; j < k; j += part) {
        const int n = k - j < part ? k - j : part;
        transform(a, x, j, n, scratch);
        for (int i = 0; i < a->outliers; i++)
            if (a->outlier[i] >= j && a->outlier[i] < j + n) scratch[a->outlier[i] - j] = 0;
        ((const lq_cpu *)job->d->self)->q8(scratch, n, act, r, j / G);
    }
}

static void quant_task(void *arg, int task, int worker) {
    const quant_job *j = arg;
    for (int r = task * j->rows; r < (task + 1) * j->rows && r < j->a->x.rows; r++)
        quant_row(j, r, lq_cpu_work(j->d, worker), lq_cpu_share(j->d));
}

void lq_quant_cpu(lq_dev *d, const lq_quant_args *a) {
    const int task = 16384; // elements: about as long as a fork takes
    const lq_act *act = a->act;
    if (act->type.elem != LQ_I8 && (!act->x.p || act->x.p == a->x.p)) return;
    quant_job j = {.d = d, .a = a, .rows = 1 + task / (a->x.cols + 1)};
    lq_pool_run(d->pool, quant_task, &j, (a->x.rows + j.rows - 1) / j.rows);
}
