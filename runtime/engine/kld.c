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
    s->nll.window -= lq;
    s->ref.window -= lp;
    s->ratio.window += lp - lq;
    s->kld.window += kld;
    s->diff.window += diff;
    s->diff2.window += diff * diff;
    s->same.window += best == ref->best;
    s->bin[bin] += kld, s->bins[bin]++;
    if (s->n < s->cap) s->value[s->n++] = kld;
}

void lq_sum_end(lq_sum *s) {
    s->all += s->window;
    s->squares += s->window * s->window;
    s->window = 0;
}

void lq_klds_end(lq_klds *s) {
    lq_sum *const all[] = {&s->nll, &s->ref, &s->ratio, &s->kld, &s->diff, &s->diff2, &s->same};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lq_sum_end(all[i]);
    s->windows++;
}

double lq_sum_error(const lq_sum *s, size_t windows, size_t positions) {
    const double w = (double)windows, mean = s->all / w;
    if (windows < 2) return NAN;
    return sqrt(fmax((s->squares / w - mean * mean) / (w - 1), 0)) * w / (double)positions;
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

lq_kld lq_klds_result(lq_klds *s) {
    if (!s->n) return (lq_kld){0};
    const double n = (double)s->n, rms = sqrt(s->diff2.all / n);
    const size_t w = s->windows;
    qsort(s->value, s->n, sizeof *s->value, by_value);
    lq_kld k = {.mean = s->kld.all / n, .error = lq_sum_error(&s->kld, w, s->n), .min = s->value[0],
                .median = quantile(s, 0.5), .p90 = quantile(s, 0.9), .p95 = quantile(s, 0.95),
                .p99 = quantile(s, 0.99), .p999 = quantile(s, 0.999), .max = s->value[s->n - 1],
                .same_top = s->same.all / n, .same_top_error = lq_sum_error(&s->same, w, s->n),
                .diff = s->diff.all / n, .diff_error = lq_sum_error(&s->diff, w, s->n), .diff_rms = rms,
                .diff_rms_error = rms > 0 ? lq_sum_error(&s->diff2, w, s->n) / (2 * rms) : 0,
                .ref_ppl = exp(s->ref.all / n), .ref_error = exp(s->ref.all / n) * lq_sum_error(&s->ref, w, s->n),
                .ln_ratio = s->ratio.all / n, .ln_ratio_error = lq_sum_error(&s->ratio, w, s->n)};
    for (int i = 0; i < LQ_KLD_BINS; i++) k.at[i] = s->bins[i] ? s->bin[i] / (double)s->bins[i] : NAN;
    return k;
}
