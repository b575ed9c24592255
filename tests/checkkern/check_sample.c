// check_sample.c: the slot sample of a device. The distribution that a request asks for is worked out here in
// f64, by sorting; tokens drawn with fixed seeds are held against it: none outside of it, and Pearson's
// chi-square within 6 sigmas of its mean.
#include "kernels/cpu/x86/unroll.h"
#include "tests/checkkern/check_ops.h"

#if defined(LQ_SANITIZED)
enum { DRAWS = 10000 };
#else
enum { DRAWS = 100000 };
#endif
enum { VOCAB = 203, BATCH = 500 };

typedef struct wish { const char *name; lq_draw d; } wish;
typedef struct scored { double key; int id; } scored;

static int by_key(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key) - (x->key > y->key) : x->id - y->id;
}

// Keeps the first tokens of an order until they have a share of at least p, or k of them; the rest get 0.
static void keep_first(double *p, scored *order, int n, double share, int k) {
    double whole = 0, sum = 0;
    qsort(order, (size_t)n, sizeof *order, by_key);
    for (int i = 0; i < n; i++) whole += p[order[i].id];
    for (int i = 0; i < n; i++) {
        if (i >= k || sum >= share * whole) p[order[i].id] = 0, order[i].id = -1;
        else sum += p[order[i].id];
    }
}

static int order_of(const double *p, const double *key, scored *out) {
    int n = 0;
    for (int i = 0; i < VOCAB; i++)
        if (p[i] > 0) out[n++] = (scored){key[i], i};
    return n;
}

// What the words of lq_draw ask for, in their order.
static void distribution(const float *logits, const lq_draw *d, double *p) {
    double l[VOCAB], most = -INFINITY, sum = 0;
    scored order[VOCAB];
    for (int i = 0; i < VOCAB; i++) l[i] = (double)logits[i];
    for (int i = 0; i < d->biases; i++) l[d->bias_id[i]] += (double)d->bias[i];
    for (int i = 0; i < VOCAB; i++)
        if (d->mask && !(d->mask[i / 32] >> (i % 32) & 1)) l[i] = -INFINITY;
    for (int i = 0; i < d->seens; i++) {
        double *x = &l[d->seen[i]];
        // prompt and answer
        if (d->repetition != 0) *x = *x > 0 ? *x / (double)d->repetition : *x * (double)d->repetition;
        // the answer alone
        *x -= (double)d->frequency * d->seen_n[i] + (d->seen_n[i] ? (double)d->presence : 0);
    }
    for (int i = 0; i < VOCAB; i++) most = fmax(most, l[i]);
    for (int i = 0; i < VOCAB; i++) sum += p[i] = exp((l[i] - most) / (double)d->temperature);
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
    double best = 0;
    for (int i = 0; i < VOCAB; i++) best = fmax(best, p[i]);
    for (int i = 0; i < VOCAB; i++) p[i] = d->min_p > 0 && p[i] < (double)d->min_p * best ? 0 : p[i];
    if (d->top_k) keep_first(p, order, order_of(p, l, order), 2, d->top_k);
    if (d->top_p > 0 && d->top_p < 1) keep_first(p, order, order_of(p, l, order), (double)d->top_p, VOCAB);
    sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += p[i];
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
    if (d->typical > 0 && d->typical < 1) {
        double key[VOCAB], entropy = 0;
        for (int i = 0; i < VOCAB; i++) entropy -= p[i] > 0 ? p[i] * log(p[i]) : 0;
        for (int i = 0; i < VOCAB; i++) key[i] = p[i] > 0 ? -fabs(-log(p[i]) - entropy) : 0;
        keep_first(p, order, order_of(p, key, order), (double)d->typical, VOCAB);
        sum = 0;
        for (int i = 0; i < VOCAB; i++) sum += p[i];
        for (int i = 0; i < VOCAB; i++) p[i] /= sum;
    }
}

static void chi_square(lq_dev *dev, const float *logits, const wish *w) {
    static lq_draw draws[BATCH];
    static lq_drawn out[BATCH];
    // A GPU that is emulated takes milliseconds for each.
    const int n = strstr(dev->isa, "emulated") ? 100 : DRAWS, batch = n < BATCH ? n : BATCH;
    static int counts[VOCAB];
    double p[VOCAB], chi = 0, rest = 0;
    int outside = 0, bad = 0, cells = 0, rest_count = 0;
    // every row is the same logits: a stride of 0 would do, but guard and gap are worth having
    lq_mat m = ck_mat(BATCH, VOCAB, 3);
    for (int r = 0; r < BATCH; r++) memcpy(lq_mat_row(&m, r), logits, VOCAB * sizeof *logits);
    lq_sample_args a = {.logits = m, .draw = draws, .out = out};
    a.logits.rows = batch;
    memset(counts, 0, sizeof counts);
    distribution(logits, &w->d, p);
    for (int i = 0; i < n; i += batch) {
        for (int r = 0; r < batch; r++) {
            draws[r] = w->d;
            draws[r].seed = 0x123456789abcdefu + (uint64_t)(i % 3000 / 1000);
            draws[r].choice = (uint32_t)(r % 5);
            draws[r].position = (uint32_t)(i + r);
        }
        dev->ops.sample(dev, &a);
        CHECK(dev->ops.sync(dev, NULL), "sample %s: the device broke", dev->isa);
        for (int r = 0; r < batch; r++) {
            bad += out[r].bad;
            if (!out[r].bad) counts[out[r].token]++, outside += p[out[r].token] == 0;
        }
    }
    for (int i = 0; i < VOCAB; i++) { // cells with few expected go together
        if (p[i] * n < 10) rest += p[i] * n, rest_count += counts[i];
        else chi += pow(counts[i] - p[i] * n, 2) / (p[i] * n), cells++;
    }
    if (rest >= 10) chi += pow(rest_count - rest, 2) / rest, cells++;
    CHECK(!bad && !outside, "sample %s %s: %d bad, %d that were not to be drawn", dev->isa, w->name, bad, outside);
    CHECK(chi < cells - 1 + 6 * sqrt(2.0 * cells), "sample %s %s: chi-square %.1f for %d cells", dev->isa, w->name, chi,
          cells);
    CHECK(ck_gaps(&m), "sample %s: gaps", dev->isa);
    ck_done(w->name);
}

static void check_draws(lq_dev *dev) {
    static const int32_t bias_id[] = {3, 60, 202}, seen[] = {0, 5, 17, 100};
    static const float bias[] = {2, -100, 1.5f};
    static const uint16_t seen_n[] = {0, 1, 4, 0}, prompt_n[] = {2, 1, 0, 1};
    static uint32_t mask[(VOCAB + 31) / 32];
    for (size_t i = 0; i < sizeof mask / sizeof *mask; i++) mask[i] = (uint32_t)ck_rand();
    const wish wishes[] = {
        {"temperature 1", {.temperature = 1}},
        {"temperature 0.3", {.temperature = 0.3f}},
        {"temperature 4", {.temperature = 4}},
        {"min_p", {.temperature = 1, .min_p = 0.05f}},
        {"top_k", {.temperature = 1, .top_k = 7}},
        {"top_k above the vocabulary", {.temperature = 1, .top_k = 1000}},
        {"top_p", {.temperature = 1, .top_p = 0.8f}},
        {"top_p 0.999", {.temperature = 3, .top_p = 0.999f}},
        {"typical", {.temperature = 1, .typical = 0.6f}},
        {"all", {.temperature = 1.5f, .min_p = 0.002f, .top_k = 40, .top_p = 0.9f, .typical = 0.8f}},
        {"mask and bias", {.temperature = 1, .mask = mask, .bias_id = bias_id, .bias = bias, .biases = 3}},
        {"penalties", {.temperature = 1, .seen = seen, .seen_n = seen_n, .prompt_n = prompt_n, .seens = 4,
                       .repetition = 1.7f, .presence = 0.5f, .frequency = 0.25f}},
    };
    float logits[VOCAB];
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)(2.5 * (ck_uniform() + ck_uniform() + ck_uniform()));
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) chi_square(dev, logits, &wishes[i]);
}

// One row's answer, alone.
static lq_drawn one(lq_dev *dev, lq_mat m, const lq_draw *d, int32_t *id, float *logprob) {
    lq_drawn out;
    lq_sample_args a = {.logits = m, .draw = d, .out = &out, .top_id = id, .top_logprob = logprob};
    a.logits.rows = 1;
    dev->ops.sample(dev, &a);
    CHECK(dev->ops.sync(dev, NULL), "sample %s: the device broke", dev->isa);
    lq_draw quiet = *d;
    lq_drawn same;
    quiet.no_logprob = true;
    a.draw = &quiet;
    a.out = &same;
    dev->ops.sample(dev, &a);
    CHECK(dev->ops.sync(dev, NULL) && same.token == out.token && same.bad == out.bad,
          "sample %s: token %d where its logprob is not asked for, %d else", dev->isa, (int)same.token, (int)out.token);
    return out;
}

static void check_exact(lq_dev *dev, int vocab) {
    int32_t id[LQ_TOP];
    float lp[LQ_TOP];
    lq_mat m = ck_mat(1, vocab, 3);
    float *x = m.p;
    x[vocab - 1] = x[vocab / 2] = 40; // a tie, to the lower id
    double sum = 0;
    for (int i = 0; i < vocab; i++) sum += exp((double)x[i] - 40);
    const double whole = 40 + log(sum);
    lq_drawn o = one(dev, m, &(lq_draw){.top_n = LQ_TOP}, id, lp);
    CHECK(o.token == vocab / 2 && !o.bad, "sample %s vocab %d: greedy", dev->isa, vocab);
    CHECK(near(o.logprob, 40 - whole, EPS * (2 + 8 * fabs(40 - whole))), "sample %s vocab %d: logprob", dev->isa,
          vocab);
    bool ok = true;
    for (int i = 0; i < LQ_TOP && i < vocab; i++) {
        int above = 0;
        for (int j = 0; j < vocab; j++) above += x[j] > x[id[i]] || (x[j] == x[id[i]] && j < id[i]);
        ok &= above == i && near(lp[i], (double)x[id[i]] - whole, EPS * (8 + 8 * fabs((double)x[id[i]] - whole)));
    }
    for (int i = vocab; i < LQ_TOP; i++) ok &= id[i] == -1;
    CHECK(ok, "sample %s vocab %d: the best %d", dev->isa, vocab, LQ_TOP);
    o = one(dev, m, &(lq_draw){.given = true, .token = vocab - 1}, id, lp);
    CHECK(o.token == vocab - 1 && near(o.logprob, 40 - whole, EPS * (2 + 8 * fabs(40 - whole))),
          "sample %s: a given token", dev->isa);

    const int32_t tied[] = {vocab / 2, vocab - 1};
    const float up[] = {1, 1};
    o = one(dev, m, &(lq_draw){.bias_id = tied, .bias = up, .biases = 2}, id, lp);
    CHECK(o.token == vocab / 2 && !o.bad, "sample %s vocab %d: greedy among equals, with a bias", dev->isa, vocab);

    // A penalty is exact: 40 / 2 falls behind, and greedy shows which token leads.
    const int32_t seen[] = {vocab / 2, vocab - 1};
    const uint16_t said[] = {1, 0}, asked[] = {0, 1};
    lq_draw d = {.seen = seen, .seen_n = said, .prompt_n = asked, .seens = 2, .presence = 0.5f};
    if (vocab > 2) CHECK(one(dev, m, &d, id, lp).token == vocab - 1,
                         "sample %s: presence counts what was generated alone", dev->isa);
    d = (lq_draw){.seen = seen, .seen_n = said, .prompt_n = asked, .seens = 2, .repetition = 1e4f};
    o = one(dev, m, &d, id, lp);
    if (vocab > 2) CHECK(o.token != vocab / 2 && o.token != vocab - 1, "sample %s: repetition counts the prompt too",
                         dev->isa);
    for (int i = 0; i < vocab; i++) x[i] = -INFINITY;
    CHECK(one(dev, m, &(lq_draw){.temperature = 1}, id, lp).bad == 1, "sample %s: nothing to draw", dev->isa);
    x[vocab - 1] = -3;
    o = one(dev, m, &(lq_draw){.temperature = 1, .top_p = 0.5f, .top_k = 3, .min_p = 0.1f, .typical = 0.5f}, id, lp);
    CHECK(o.token == vocab - 1 && o.logprob == 0 && !o.bad, "sample %s: one token left", dev->isa);
    if (vocab > 1) x[0] = NAN;
    CHECK(vocab == 1 || one(dev, m, &(lq_draw){0}, id, lp).bad == 1, "sample %s: NaN", dev->isa);
    x[0] = INFINITY;
    CHECK(one(dev, m, &(lq_draw){.temperature = 1}, id, lp).bad == 1, "sample %s: infinity", dev->isa);
    ck_done("sample exact");
}

// Philox4x32-10's published answer for key 0 and counter 0 begins with 0x6627e8d5; that is the first number here.
static void check_philox(lq_dev *dev) {
    lq_mat m = ck_mat(1, 1024, 0);
    for (int i = 0; i < 1024; i++) ((float *)m.p)[i] = 0.5f;
    int32_t id[LQ_TOP];
    float lp[LQ_TOP];
    CHECK(one(dev, m, &(lq_draw){.temperature = 1}, id, lp).token == (int32_t)(0x6627e8d5u >> 22), "sample %s: Philox",
          dev->isa);
    ck_done("philox");
}

// The same wishes beside others, in another row, and over a vocabulary of 150,000.
static void check_alone(lq_dev *dev) {
    enum { N = 9, BIG = 150001 };
    static lq_draw draws[N];
    static lq_drawn all[N];
    lq_mat m = ck_mat(N, BIG, 1);
    int32_t id[LQ_TOP];
    float lp[LQ_TOP];
    for (int r = 0; r < N; r++)
        draws[r] = (lq_draw){.temperature = 1, .top_k = r % 3 ? 0 : 50, .top_p = r % 2 ? 0.95f : 0,
                             .typical = r == 7 ? 0.9f : 0, .seed = (uint64_t)r / 2, .position = 9};
    lq_sample_args a = {.logits = m, .draw = draws, .out = all};
    dev->ops.sample(dev, &a);
    CHECK(dev->ops.sync(dev, NULL), "sample %s: the device broke", dev->isa);
    for (int r = 0; r < N; r++) {
        lq_mat row = m;
        row.p = lq_mat_row(&m, r);
        const lq_drawn o = one(dev, row, &draws[r], id, lp);
        CHECK(!o.bad && o.token == all[r].token && o.logprob == all[r].logprob,
              "sample %s: row %d alone and in a batch", dev->isa, r);
    }
    ck_done("sample alone");
}

void check_sample(lq_dev *dev) {
    check_draws(dev);
    check_exact(dev, 1);
    check_exact(dev, 33);
    check_exact(dev, 1000);
    check_exact(dev, 32003);
    check_philox(dev);
    check_alone(dev);
}
