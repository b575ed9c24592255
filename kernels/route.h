// route.h: which experts a row goes to, and how much of each: the one definition, of portable C and of the plain CUDA
// kernels. Scores that are not numbers count as the least, so that an expert is always a valid one; the weights stay
// what they are.
#ifndef LQ_ROUTE_H
#define LQ_ROUTE_H
#include "kernels/math.h"
#include "kernels/view.h"
#include <math.h>

// The best of n scores that is still there (ties to the lower index) is taken out.
LQ_FN int lq_route_best(const float *score, bool *taken, int n) {
    int best = -1;
    for (int e = 0; e < n; e++)
        if (!taken[e] && (best < 0 || score[e] > score[best])) best = e;
    taken[best] = true;
    return best;
}

// Leaves only the experts of the best groups.
LQ_FN void lq_route_groups(const lq_route_args *a, const float *score, bool *taken, int n) {
    float group[LQ_EXPERTS];
    bool out[LQ_EXPERTS];
    const int each = n / a->groups;
    for (int g = 0; g < a->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int e = g * each; e < (g + 1) * each; e++) {
            if (score[e] > first) second = first, first = score[e];
            else if (score[e] > second) second = score[e];
        }
        out[g] = false;
        group[g] = a->kind == LQ_ROUTE_SIGMOID && each > 1 ? first + second : first;
    }
    for (int i = 0; i < a->top_groups; i++) lq_route_best(group, out, a->groups);
    for (int e = 0; e < n; e++) taken[e] = !out[e / each];
}

// The part that the best has in the softmax over those left that are near it.
LQ_FN float lq_route_mixer(const lq_route_args *a, const float *x, const bool *taken, int best) {
    float sum = 0;
    for (int e = 0; e < a->logits.cols; e++) {
        const float far = fmaxf(fabsf(x[e]), x[best]);
        if ((taken[e] && e != best) || (x[best] - x[e]) / far > 2 * a->jitter) continue;
        sum += lq_expf(x[e] - x[best]);
    }
    return 1 / sum;
}

LQ_FN void lq_route_weights(const lq_route_args *a, const float *score, const int32_t *expert, float *weight) {
    float most = -INFINITY, sum = 0;
    for (int i = 0; i < a->top_k; i++) most = score[expert[i]] > most ? score[expert[i]] : most;
    for (int i = 0; i < a->top_k; i++) {
        weight[i] = a->kind == LQ_ROUTE_SOFTMAX_TOPK ? lq_expf(score[expert[i]] - most) : score[expert[i]];
        sum += weight[i];
    }
    for (int i = 0; i < a->top_k; i++) {
        if (a->kind == LQ_ROUTE_SOFTMAX_TOPK || a->renorm) weight[i] /= sum + 1e-20f;
        if (a->scale != 0) weight[i] *= a->scale;
    }
}

LQ_FN void lq_route_row(const lq_route_args *a, int row) {
    const int n = a->logits.cols;
    const float *x = lq_mat_row(&a->logits, row);
    float part[LQ_EXPERTS], score[LQ_EXPERTS], most = -INFINITY, sum = 0;
    bool taken[LQ_EXPERTS];
    int32_t *expert = a->expert + (size_t)row * (size_t)a->top_k;
    float *weight = a->weight + (size_t)row * (size_t)a->top_k;
    for (int e = 0; e < n; e++) most = x[e] > most ? x[e] : most;
    for (int e = 0; e < n; e++) {
        part[e] = a->kind == LQ_ROUTE_SIGMOID ? lq_sigmoidf(x[e]) : a->kind == LQ_ROUTE_SOFTMAX ? lq_expf(x[e] - most)
            : x[e];
        sum += part[e];
    }
    for (int e = 0; e < n; e++) {
        taken[e] = false;
        if (a->kind == LQ_ROUTE_SOFTMAX) part[e] /= sum;
        score[e] = a->bias ? part[e] + a->bias[e] : part[e];
        if (score[e] != score[e]) score[e] = -INFINITY;
    }
    if (a->groups > 1) lq_route_groups(a, score, taken, n);
    for (int i = 0; i < a->top_k; i++) {
        expert[i] = lq_route_best(score, taken, n);
        if (a->kind == LQ_ROUTE_MIXER) weight[i] = lq_route_mixer(a, x, taken, expert[i]);
    }
    if (a->kind != LQ_ROUTE_MIXER) lq_route_weights(a, part, expert, weight);
}
#endif
