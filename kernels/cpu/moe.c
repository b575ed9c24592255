// moe.c: which experts a row goes to, and the sum of what they said, portable: the definition of route (its
// rows: route.h) and mix. Owns nothing.
#include "kernels/cpu/slots.h"
#include "kernels/route.h"

static void route_row(void *arg, int row, int worker) {
    (void)worker;
    lq_route_row(arg, row);
}

void lq_route_c(lq_dev *d, const lq_route_args *a) {
    lq_route_args copy = *a;
    int slots = a->logits.rows * a->top_k, experts = a->logits.cols;
    lq_pool_rows(d->pool, route_row, &copy, a->logits.rows);
    // A counting sort: start[e] runs through the slots of e while they are placed, and so ends where e + 1 begins.
    memset(a->start, 0, ((size_t)experts + 1) * sizeof *a->start);
    for (int s = 0; s < slots; s++) a->start[a->expert[s] + 1]++;
    for (int e = 0; e < experts; e++) a->start[e + 1] += a->start[e];
    for (int s = 0; s < slots; s++) a->order[a->start[a->expert[s]]++] = s;
    memmove(a->start + 1, a->start, (size_t)experts * sizeof *a->start);
    a->start[0] = 0;
}

static void mix_row(void *arg, int row, int worker) {
    enum { COLS = 64 };
    const lq_mix_args *a = arg;
    (void)worker;
    const float *weight = a->weight ? a->weight + (size_t)row * (size_t)a->top_k : NULL;
    float *y = lq_mat_row(&a->y, row);
    for (int c = 0; c < a->y.cols; c += COLS) {
        int n = a->y.cols - c < COLS ? a->y.cols - c : COLS;
        float sum[COLS] = {0};
        for (int s = 0; s < a->top_k; s++) {
            const float *x = lq_mat_row(&a->x, row * a->top_k + s) + c;
            for (int i = 0; i < n; i++) sum[i] += (weight ? weight[s] : 1) * x[i];
        }
        for (int i = 0; i < n; i++) y[c + i] = a->fresh ? sum[i] : y[c + i] + sum[i];
    }
}

void lq_mix_c(lq_dev *d, const lq_mix_args *a) {
    lq_mix_args copy = *a;
    lq_pool_rows(d->pool, mix_row, &copy, a->y.rows);
}
