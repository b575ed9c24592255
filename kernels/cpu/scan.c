// scan.c: mixers with a state instead of a cache, portable: the definition of conv and scan. Owns nothing;
// the state is the caller's. The rows of a sequence are walked in order, so that a prefill in chunks
// leaves the bits of one in a piece.
#include "kernels/math.h"
#include "kernels/cpu/slots.h"

enum { COLS = 64 };

// One sequence, COLS columns. Each step shifts the state: it has few rows, and then neither
// width nor y == x is a special case.
static void conv_part(void *arg, int task, int worker) {
    const lq_conv_args *a = arg;
    (void)worker;
    int cols = a->x.cols, parts = (cols + COLS - 1) / COLS, seq = task / parts, c0 = task % parts * COLS;
    int past = a->width - 1;
    int n = cols - c0 < COLS ? cols - c0 : COLS;
    float *state = a->state + lq_rows_slot(a->rows, seq) * (size_t)past * (size_t)cols + c0;
    for (int r = a->rows->first[seq]; r < a->rows->first[seq + 1]; r++) {
        const float *x = lq_mat_row(&a->x, r) + c0;
        float *y = lq_mat_row(&a->y, r) + c0;
        for (int i = 0; i < n; i++) {
            const float *w = a->w + (size_t)(c0 + i) * (size_t)a->width;
            float now = x[i], sum = a->bias ? a->bias[c0 + i] : 0;
            for (int t = 0; t < past; t++) {
                float *s = state + (size_t)t * (size_t)cols + i;
                sum += w[t] * *s;
                *s = t + 1 < past ? s[cols] : now;
            }
            sum += w[past] * now;
            y[i] = a->silu ? sum / (1.0f + lq_expf(-sum)) : sum;
        }
    }
}

void lq_conv_c(lq_dev *d, const lq_conv_args *a) {
    lq_conv_args copy = *a;
    lq_pool_run(d->pool, conv_part, &copy, a->rows->seqs * ((a->x.cols + COLS - 1) / COLS));
    lq_rows_blank(a->rows, &a->y);
}

// One sequence, one head, COLS columns of its state: the columns of S know nothing of each other.
static void scan_part(void *arg, int task, int worker) {
    const lq_scan_args *a = arg;
    (void)worker;
    int parts = (a->dv + COLS - 1) / COLS, c0 = task % parts * COLS, head = task / parts % a->heads;
    int seq = task / parts / a->heads;
    int n = a->dv - c0 < COLS ? a->dv - c0 : COLS, dk = a->dk;
    size_t group = (size_t)(head / (a->heads / a->groups));
    float *state = a->state + (lq_rows_slot(a->rows, seq) * (size_t)a->heads + (size_t)head) * (size_t)dk *
        (size_t)a->dv + c0;
    for (int r = a->rows->first[seq]; r < a->rows->first[seq + 1]; r++) {
        const float *q = lq_mat_row(&a->q, r) + group * (size_t)dk, *k = lq_mat_row(&a->k, r) + group * (size_t)dk;
        const float *v = lq_mat_row(&a->v, r) + (size_t)head * (size_t)a->dv + c0, *log_a = lq_mat_row(&a->decay, r);
        float *y = lq_mat_row(&a->y, r) + (size_t)head * (size_t)a->dv + c0, u[COLS], sum[COLS] = {0};
        float beta = a->beta.p ? lq_mat_row(&a->beta, r)[head] : 1.0f;
        float by = a->decay_per_k ? 1.0f : lq_expf(log_a[head]);
        for (int i = 0; i < dk; i++) {
            float *s = state + (size_t)i * (size_t)a->dv;
            float f = a->decay_per_k ? lq_expf(log_a[(size_t)head * (size_t)dk + (size_t)i]) : by;
            for (int c = 0; c < n; c++) {
                s[c] *= f;
                sum[c] += k[i] * s[c];
            }
        }
        for (int c = 0; c < n; c++) u[c] = beta * (a->delta ? v[c] - sum[c] : v[c]), sum[c] = 0;
        for (int i = 0; i < dk; i++) {
            float *s = state + (size_t)i * (size_t)a->dv;
            for (int c = 0; c < n; c++) {
                s[c] += k[i] * u[c];
                sum[c] += q[i] * s[c];
            }
        }
        for (int c = 0; c < n; c++) y[c] = sum[c];
    }
}

void lq_scan_c(lq_dev *d, const lq_scan_args *a) {
    lq_scan_args copy = *a;
    lq_pool_run(d->pool, scan_part, &copy, a->rows->seqs * a->heads * ((a->dv + COLS - 1) / COLS));
    lq_rows_blank(a->rows, &a->y);
}
