// sample.c: from logits to a token: the definition of the slot on every ISA, but for two
// passes that it is given (sample.h).
//
// The stages work on one array: a stage drops a token by setting it to -infinity. After the temperature the best is
// 0, so that exp(l) is a token's weight. Ties go to the lower id everywhere. Allocates nothing: a worker has its
// share of the device's scratch.
#include "kernels/cpu/sample.h"
#include "kernels/draw.h"
#include <math.h>

enum { BLOCK = LQ_DRAW_BLOCK, LANES = LQ_DRAW_LANES };

typedef struct cand { float key; int32_t id; } cand;
typedef struct row {
    const lq_logit_passes *by;
    const lq_draw *want;
    int vocab;
    float *l;   // [vocab]
    cand *cands; // [vocab]
} row;
typedef struct job { const lq_dev *d; const lq_sample_args *a; const lq_logit_passes *by; } job;

// The sum of exp(x - m), in blocks as they are drawn from.
static double exp_sum(const lq_logit_passes *by, const float *x, int n, float m) {
    double sum = 0;
    for (int i = 0; i < n; i += BLOCK) sum += by->exp_sum(x + i, n - i < BLOCK ? n - i : BLOCK, m);
    return sum;
}

// --- candidates and how many of the best are wanted ---

static bool better(cand a, cand b) { return a.key > b.key || (a.key == b.key && a.id < b.id); }
static void swap(cand *a, cand *b) {
    cand t = *a;
    *a = *b;
    *b = t;
}

// Tokens that are there and not below `least`. Returns how many.
static int cands_fill(const row *r, float least) {
    int n = 0;
    for (int i = 0; i < r->vocab; i++)
        if (r->l[i] >= least && r->l[i] != -INFINITY) r->cands[n++] = (cand){r->l[i], i};
    return n;
}

// The last one of the best that are needed to reach `need`: each counts 1, or its weight exp(l) in units. Where all
// do not reach it, the last of all. A quickselect: what is better than the pivot comes first, then one of
// the two sides is looked at alone.
static cand cands_reach(const row *r, int n, uint64_t need, bool by_weight) {
    cand *c = r->cands, last = {-INFINITY, INT32_MAX};
    uint32_t random = 1; // of fixed seed: no order of logits makes it slow, and equal logits give equal tokens
    uint64_t before = 0;
    while (n > 0) {
        uint64_t sum = 0;
        int m = 0;
        random = random * 1664525u + 1013904223u;
        swap(&c[n - 1], &c[((uint64_t)random * (uint64_t)n) >> 32]);
        last = c[n - 1];
        for (int i = 0; i < n - 1; i++)
            if (better(c[i], last)) swap(&c[i], &c[m++]);
        swap(&c[m], &c[n - 1]);
        for (int i = 0; i < m; i++) sum += by_weight ? lq_draw_units(r->l[c[i].id]) : 1;
        if (before + sum >= need) {
            n = m;
            continue;
        }
        before += sum + (by_weight ? lq_draw_units(r->l[last.id]) : 1);
        if (before >= need) return last;
        c += m + 1, n -= m + 1;
    }
    return last;
}

static void drop_worse(const row *r, cand last) {
    for (int i = 0; i < r->vocab; i++)
        if (better(last, (cand){r->l[i], i})) r->l[i] = -INFINITY;
}

// --- the stages ---

static void logits_adjust(const row *r) {
    const lq_draw *w = r->want;
    for (int i = 0; i < w->biases; i++)
        if (w->bias_id[i] >= 0 && w->bias_id[i] < r->vocab) r->l[w->bias_id[i]] += w->bias[i];
    if (w->mask)
        for (int i = 0; i < r->vocab; i++)
            if (!(w->mask[i / 32] >> (i % 32) & 1)) r->l[i] = -INFINITY;
    for (int i = 0; i < w->seens; i++) {
        float *l = r->l + w->seen[i], n = w->seen_n[i], again = w->repetition;
        if (again != 0) *l = *l > 0 ? *l / again : *l * again;
        *l -= w->frequency * n + (n > 0 ? w->presence : 0);
    }
}

// No token below this is among the best k: k blocks have a maximum that is not below it.
static float top_k_least(const row *r, int k) {
    int n = 0;
    for (int i = 0; i < r->vocab; i += BLOCK, n++)
        r->cands[n] = (cand){r->by->most(r->l + i, r->vocab - i < BLOCK ? r->vocab - i : BLOCK), i};
    return k > n ? -INFINITY : cands_reach(r, n, (uint64_t)k, false).key;
}

static void keep_top_k(const row *r, int k) {
    int n = cands_fill(r, top_k_least(r, k));
    drop_worse(r, cands_reach(r, n, (uint64_t)k, false));
}

// The fewest best tokens with a share of at least p. All tokens under (1 - p) / vocab of the whole have less than 1 - p
// together, so they cannot be needed (half of it, to be far from rounding).
static void keep_top_p(const row *r, double p) {
    double whole = exp_sum(r->by, r->l, r->vocab, 0), least = 0.5 * (1 - p) * whole / r->vocab;
    int n = cands_fill(r, least > 1e-30 ? (float)lq_log(least) : -INFINITY);
    drop_worse(r, cands_reach(r, n, lq_draw_need(p * whole), true));
}

// The tokens whose surprise is nearest to the expected one, up to a share of p.
static void keep_typical(const row *r, double p) {
    double whole = exp_sum(r->by, r->l, r->vocab, 0), log_whole = lq_log(whole), entropy = 0;
    int n = 0;
    for (int b = 0; b < r->vocab; b += BLOCK) {
        double lane[LANES] = {0}, sum = 0;
        for (int i = b; i < r->vocab && i < b + BLOCK; i++)
            lane[i % LANES] += lq_draw_surprise(r->l[i], whole, log_whole);
        for (int k = 0; k < LANES; k++) sum += lane[k];
        entropy += sum;
    }
    for (int i = 0; i < r->vocab; i++)
        if (r->l[i] != -INFINITY) r->cands[n++] = (cand){lq_draw_typical(r->l[i], log_whole, entropy), i};
    cand last = cands_reach(r, n, lq_draw_need(p * whole), true);
    float best = -INFINITY;
    for (int i = 0; i < r->vocab; i++) {
        if (better(last, (cand){lq_draw_typical(r->l[i], log_whole, entropy), i})) r->l[i] = -INFINITY;
        best = r->l[i] > best ? r->l[i] : best;
    }
    for (int i = 0; i < r->vocab; i++) r->l[i] -= best;
}

// Walks the weights in order of id, whole blocks first.
static int32_t draw(const row *r) {
    double *sums = (double *)(void *)r->cands, whole = 0, sum = 0;
    int n = 0;
    for (int i = 0; i < r->vocab; i += BLOCK, n++) {
        sums[n] = r->by->exp_sum(r->l + i, r->vocab - i < BLOCK ? r->vocab - i : BLOCK, 0);
        whole += sums[n];
    }
    double target = lq_draw_uniform(r->want->seed, r->want->choice, r->want->position) * whole;
    int b = 0, last = -1;
    while (b < n - 1 && sum + sums[b] <= target) sum += sums[b++];
    for (int i = b * BLOCK; i < r->vocab; i++) {
        float w = lq_expf(r->l[i]);
        if (w == 0) continue;
        last = i;
        if ((sum += w) > target) return i;
    }
    // rounding left nothing behind the target: the last one that can be drawn
    for (int i = b * BLOCK; last < 0 && i-- > 0;)
        if (lq_expf(r->l[i]) != 0) last = i;
    return last;
}

static int32_t first_equal(const float *x, int n, float v) {
    for (int i = 0; i < n; i++)
        if (x[i] == v) return i;
    return -1;
}

static int32_t choose(const row *r) {
    const lq_draw *w = r->want;
    float best = r->by->most(r->l, r->vocab);
    if (!(best > -INFINITY && best < INFINITY)) return -1;
    if (w->temperature == 0) return first_equal(r->l, r->vocab, best);
    for (int i = 0; i < r->vocab; i++) r->l[i] = (r->l[i] - best) / w->temperature;
    if (w->min_p > 0) {
        float least = (float)lq_log(w->min_p);
        for (int i = 0; i < r->vocab; i++) r->l[i] = r->l[i] < least ? -INFINITY : r->l[i];
    }
    if (w->top_k > 0 && w->top_k < r->vocab) keep_top_k(r, w->top_k);
    if (w->top_p > 0 && w->top_p < 1) keep_top_p(r, w->top_p);
    if (w->typical > 0 && w->typical < 1) keep_typical(r, w->typical);
    return draw(r);
}

// The best n logits, sorted: each token that beats the last of them is put in its place.
static void top_list(const float *x, int vocab, int n, double log_whole, int32_t *id, float *logprob) {
    int have = 0;
    for (int i = 0; i < vocab; i++) {
        if (have == n && !(x[i] > x[id[n - 1]])) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && x[i] > x[id[at - 1]]; at--) id[at] = id[at - 1];
        id[at] = i;
    }
    for (int i = 0; i < n; i++) {
        logprob[i] = i < have ? (float)(x[id[i]] - log_whole) : -INFINITY;
        if (i >= have) id[i] = -1;
    }
}

// The maximum, and the block in which it stands first: only that is looked through again. NaN if there is a NaN.
static float most(const lq_logit_passes *by, const float *x, int n, int *block) {
    float best = -INFINITY;
    *block = 0;
    for (int i = 0; i < n && best == best; i += BLOCK) {
        const float m = by->most(x + i, n - i < BLOCK ? n - i : BLOCK);
        if (m <= best) continue;
        best = m;
        *block = i;
    }
    return best;
}

static void sample_row(void *arg, int index, int worker) {
    const job *j = arg;
    const lq_sample_args *a = j->a;
    const float *x = lq_mat_row(&a->logits, index);
    const lq_draw *w = a->draw + index;
    int n = a->logits.cols, top = w->top_n < LQ_TOP ? w->top_n : LQ_TOP, block;
    lq_drawn *out = a->out + index;
    *out = (lq_drawn){-1, 0, 1};
    float best = most(j->by, x, n, &block);
    if (!(best > -INFINITY && best < INFINITY)) return;
    const bool told = !w->no_logprob || w->given || top > 0;
    double log_whole = told ? best + lq_log(exp_sum(j->by, x, n, best)) : 0;
    if (top > 0) top_list(x, n, top, log_whole, a->top_id + (size_t)index * LQ_TOP,
                          a->top_logprob + (size_t)index * LQ_TOP);
    bool plain = !w->mask && !w->biases && !w->seens;
    if (w->given) out->token = w->token;
    else if (plain && w->temperature == 0) out->token = block + first_equal(x + block, n - block, best);
    else {
        char *work = lq_cpu_work(j->d, worker);
        row r = {j->by, w, n, (float *)(void *)work, (cand *)(void *)(work + lq_sample_work(n) / 3)};
        memcpy(r.l, x, (size_t)n * sizeof *x);
        logits_adjust(&r);
        out->token = choose(&r);
    }
    if (out->token < 0) return;
    if (told) out->logprob = (float)(x[out->token] - log_whole);
    out->bad = 0;
}

size_t lq_sample_work(int vocab) { return ((size_t)vocab + 15) / 16 * 64 * 3; }

void lq_sample_with(lq_dev *d, const lq_sample_args *a, const lq_logit_passes *by) {
    lq_pool_run(d->pool, sample_row, &(job){d, a, by}, a->logits.rows);
}
