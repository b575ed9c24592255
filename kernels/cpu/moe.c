// moe.c: which experts a row goes to, and the sum of what they said, portable: the definition of route and
// mix. Owns nothing. Scores that are not numbers count as the least, so that an expert is always a valid one;
// the weights stay what they are.
#include "kernels/math.h"
#include "kernels/cpu/slots.h"
#include <math.h>

// The best of n scores that is still there (ties to the lower index) is taken out.
static int best_take(float *score, bool *taken, int n) {
    int best = -1;
    for (int e = 0; e < n; e++)
        if (!taken[e] && (best < 0 || score[e] > score[best])) best = e;
    taken[best] = true;
    return best;
}

// Leaves only the experts of the best groups.
static void groups_choose(const lq_route_args *a, const float *score, bool *taken, int n) {
    float group[LQ_EXPERTS];
    bool out[LQ_EXPERTS] = {false};
    int each = n / a->groups;
    for (int g = 0; g < a->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * each; e < (g + 1) * each; e++) {
            if (score[e] > first) second = first, first = score[e];
            else if (score[e] > second) second = score[e];
        }
        group[g] = a->kind == LQ_ROUTE_SIGMOID && each > 1 ? first + second : first;
    }
    for (int i = 0; i < a->top_groups; i++) best_take(group, out, a->groups);
    for (int e = 0; e < n; e++) taken[e] = !out[e / each];
}

// The part that the best has in the softmax over those left that are near it.
static float mixer_weight(const lq_route_args *a, const float *x, const bool *taken, int best) {
    float sum = 0;
    for (int e = 0; e < a->logits.cols; e++) {
        const float far = fmaxf(fabsf(x[e]), x[best]);
        if ((taken[e] && e != best) || (x[best] - x[e]) / far > 2 * a->jitter) continue;
        sum += lq_expf(x[e] - x[best]);
    }
    return 1 / sum;
}

static void route_row(void *arg, int row, int worker) {
    const lq_route_args *a = arg;
    (void)worker;
    const float *x = lq_mat_row(&a->logits, row);
    float p[LQ_EXPERTS], score[LQ_EXPERTS], most = -INFINITY, sum = 0;
    float *weight = a->weight + (size_t)row * (size_t)a->top_k;
    bool taken[LQ_EXPERTS] = {false};
    int n = a->logits.cols, *expert = a->expert + (size_t)row * (size_t)a->top_k;
    for (int e = 0; e < n; e++) most = x[e] > most ? x[e] : most;
    for (int e = 0; e < n; e++) {
        p[e] = a->kind == LQ_ROUTE_SIGMOID ? lq_sigmoidf(x[e]) : a->kind == LQ_ROUTE_SOFTMAX ? lq_expf(x[e] - most)
            : x[e];
        sum += p[e];
    }
    for (int e = 0; e < n; e++) {
        if (a->kind == LQ_ROUTE_SOFTMAX) p[e] /= sum;
        score[e] = a->bias ? p[e] + a->bias[e] : p[e];
        if (score[e] != score[e]) score[e] = -INFINITY;
    }
    if (a->groups > 1) groups_choose(a, score, taken, n);
    for (int i = 0; i < a->top_k; i++) {
        expert[i] = best_take(score, taken, n);
        if (a->kind == LQ_ROUTE_MIXER) weight[i] = mixer_weight(a, x, taken, expert[i]);
    }
    if (a->kind == LQ_ROUTE_MIXER) return;

    most = -INFINITY, sum = 0;
    for (int i = 0; i < a->top_k; i++) most = p[expert[i]] > most ? p[expert[i]] : most;
    for (int i = 0; i < a->top_k; i++) {
        weight[i] = a->kind == LQ_ROUTE_SOFTMAX_TOPK ? lq_expf(p[expert[i]] - most) : p[expert[i]];
        sum += weight[i];
    }
    bool whole = a->kind == LQ_ROUTE_SOFTMAX_TOPK || a->renorm;
    for (int i = 0; i < a->top_k; i++) {
        if (whole) weight[i] /= sum + 1e-20f;
        if (a->scale != 0) weight[i] *= a->scale;
    }
}

void lq_route_c(lq_dev *d, const lq_route_args *a) {
    lq_route_args copy = *a;
    int slots = a->logits.rows * a->top_k, experts = a->logits.cols;
    lq_pool_run(d->pool, route_row, &copy, a->logits.rows);
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
    lq_pool_run(d->pool, mix_row, &copy, a->y.rows);
}
