// kld.c: how far a model's distribution is from a reference's, position by position: the KL divergence of the reference
// and the model, their first choices, the probability of the token that was there; and what is said of all positions
// together, with the meaning that llama.cpp's perplexity tool gives to each figure. All in f64.
#include "runtime/engine/eval.h"
#include <math.h>
#include <stdlib.h>

double lq_logsum(const float *x, size_t n, size_t *best) {
    size_t top = 0;
    double sum = 0;
    for (size_t i = 1; i < n; i++) top = x[i] > x[top] ? i : top;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)x[top]);
    *best = top;
    return log(sum) + (double)x[top];
}

bool lq_klds_open(lq_klds *s, size_t positions) {
    *s = (lq_klds){.cap = positions};
    size_t bytes;
    return lq_mul_size(positions, sizeof *s->value, &bytes) && (s->value = malloc(bytes ? bytes : 1)) != NULL;
}

void lq_klds_close(lq_klds *s) {
    free(s->value);
    s->value = NULL;
}

void lq_klds_add(lq_klds *s, const lq_ref_row *ref, const float *logits, double sum, size_t best, size_t vocab,
                 size_t token, int bin) {
    double kld = 0;
    for (size_t i = 0; i < vocab; i++) {
        const double lp = (double)ref->x[i] - ref->sum, p = exp(lp);
        if (p > 0 && lp > ref->floor) kld += p * (lp - ((double)logits[i] - sum));
    }
    const double lp = (double)ref->x[token] - ref->sum, lq = (double)logits[token] - sum, diff = exp(lq) - exp(lp);
    s->nll -= lq, s->nll2 += lq * lq;
    s->ref -= lp, s->ref2 += lp * lp;
    s->cross += lq * lp;
    s->kld += kld, s->kld2 += kld * kld;
    s->diff += diff, s->diff2 += diff * diff, s->diff4 += diff * diff * diff * diff;
    s->same += best == ref->best;
    s->bin[bin] += kld, s->bins[bin]++;
    if (s->n < s->cap) s->value[s->n++] = kld;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Between the two values that stand around it.
static double quantile(const lq_klds *s, double share) {
    const double at = share * (double)(s->n - 1);
    const size_t i = (size_t)at, next = i + 1 < s->n ? i + 1 : i;
    return s->value[i] + (at - (double)i) * (s->value[next] - s->value[i]);
}

// Variance of a mean, of the sums of n values and of their squares (or of two series and their products).
static double variance(double a, double b, double ab, double n) {
    const double var = n > 1 ? (ab / n - a / n * (b / n)) / (n - 1) : 0;
    return var;
}

static double error_of(double sum, double sum2, double n) { return sqrt(fmax(variance(sum, sum, sum2, n), 0)); }

lq_kld lq_klds_result(lq_klds *s) {
    if (!s->n) return (lq_kld){0};
    const double n = (double)s->n, same = (double)s->same / n, rms = sqrt(s->diff2 / n);
    qsort(s->value, s->n, sizeof *s->value, by_value);
    const double ratio = variance(s->nll, s->nll, s->nll2, n) + variance(s->ref, s->ref, s->ref2, n) -
                         2 * variance(s->nll, s->ref, s->cross, n);
    lq_kld k = {.mean = s->kld / n, .error = error_of(s->kld, s->kld2, n), .min = s->value[0],
                .median = quantile(s, 0.5), .p90 = quantile(s, 0.9), .p95 = quantile(s, 0.95),
                .p99 = quantile(s, 0.99), .p999 = quantile(s, 0.999), .max = s->value[s->n - 1],
                .same_top = same, .same_top_error = n > 1 ? sqrt(same * (1 - same) / (n - 1)) : 0,
                .diff = s->diff / n, .diff_error = error_of(s->diff, s->diff2, n), .diff_rms = rms,
                .diff_rms_error = rms > 0 ? error_of(s->diff2, s->diff4, n) / (2 * rms) : 0,
                .ref_ppl = exp(s->ref / n), .ref_error = exp(s->ref / n) * error_of(s->ref, s->ref2, n),
                .ln_ratio = (s->nll - s->ref) / n, .ln_ratio_error = sqrt(fmax(ratio, 0))};
    for (int i = 0; i < LQ_KLD_BINS; i++) k.at[i] = s->bins[i] ? s->bin[i] / (double)s->bins[i] : NAN;
    return k;
}
