// check_choose.c: the slots choose and arrange of a device: what rows are said to lose is what their codes, read where
// they are stored, lose in f64; no row loses more than by plain rounding; errors that are spread have the codes of
// portable C; and what is made of moments is what ops.h says, number by number.
#include "tests/checkkern/check_ops.h"
#include <float.h>

typedef struct choice {
    lq_choose_args c;
    lq_weight w;           // what came out
    int64_t bad[2];
    bool wide;
    float *src;            // [n][k] as they stand
    double *want;          // [n][k] in order: what is rounded
    double *room;          // [n][k] that f32 may be off it
} choice;

typedef struct way {
    const char *type;
    bool orders, stays, spreads, pays, apart, half;
    int sweeps;
} way;

// Moments of rows that are like their neighbours, and a factor of what they are damped to.
static void moments_open(lq_dev *dev, choice *r, int k, const way *y) {
    const size_t cells = (size_t)k * (size_t)k;
    float *x = ck_buf(sizeof *x * 2 * cells, 0), *h = ck_buf(sizeof *h * cells, 0);
    float *weight = ck_buf(sizeof *weight * (size_t)k, 0);
    double *u = ck_buf(sizeof *u * cells, 0);
    bool ok = true;
    for (size_t i = 0; i < 2 * cells; i++) x[i] = (float)ck_uniform() + (i % (size_t)k ? 0.8f * x[i - 1] : 0);
    for (size_t i = 0; i < cells; i++) {
        double sum = 0;
        for (int t = 0; t < 2 * k; t++) sum += (double)x[t * k + (int)i / k] * (double)x[t * k + (int)i % k];
        h[i] = (float)(sum / 2 / k);
        u[i] = (double)h[i] + (i % (size_t)(k + 1) ? 0 : 0.01);
        if (i % (size_t)(k + 1) == 0) weight[i / (size_t)(k + 1)] = h[i];
    }
    if (y->spreads) dev->ops.factor(dev, &(lq_factor_args){.h = u, .n = k, .ok = &ok});
    CHECK(ok, "choose %s: no factor", dev->isa);
    r->c.a.h = h, r->c.a.weight = weight, r->c.a.damp = 0.01f;
    r->c.a.u = y->spreads ? u : NULL;
}

// Groups of columns change places, and columns in them; without groups all of them.
static int32_t *order_of(const lq_wtype *t, int k, bool stays) {
    int32_t *order = ck_buf(sizeof *order * (size_t)k, 0);
    const int size = stays && t->group ? t->group : k, whole = k / size;
    for (int j = 0; j < k; j++) order[j] = j < whole * size ? (whole - 1 - j / size) * size + j % size : j;
    for (int j = 0; j < k; j++) {
        const int end = j / size * size + size < k ? j / size * size + size : k, other = j + ck_below(end - j);
        const int32_t was = order[j];
        order[j] = order[other], order[other] = was;
    }
    return order;
}

// What is to be rounded, in f64.
static void want_of(choice *r, int n, int k) {
    const lq_choose_args *c = &r->c;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < k; j++) {
            const int at = c->order ? c->order[j] : j;
            const float *row = r->src + (size_t)i * (size_t)k;
            double v = (double)row[at], room = 0;
            for (int l = 0; c->repay && l < k; l++) {
                const double part = (double)row[l] * (double)c->repay[at * k + l];
                v += part, room += fabs(part);
            }
            for (int a = 0; a < c->aparts; a++)
                if (c->apart[a] == at) v = room = 0;
            r->want[i * k + j] = v;
            r->room[i * k + j] = c->repay ? EPS * ((k + 2) * room + fabs(v)) : 0;
        }
}

static void choice_open(lq_dev *dev, choice *r, const way *y, int n, int k) {
    lq_wtype t;
    lq_err err;
    lq_weight_size size;
    const size_t cells = (size_t)n * (size_t)k, rows = (size_t)n;
    CHECK(lq_wtype_parse(y->type, &t, &err), "%s", err.text);
    lq_weight_sizes(&t, n, k, &size);
    *r = (choice){.src = ck_buf(sizeof *r->src * cells, 0), .want = ck_buf(sizeof(double) * cells, 0),
                  .room = ck_buf(sizeof(double) * cells, 0)};
    moments_open(dev, r, k, y);
    lq_choose_args *c = &r->c;
    lq_mat w = ck_mat(n, k, 3);
    uint16_t *half = ck_buf(sizeof *half * cells, 0);
    for (int i = 0; i < n * k; i++) {
        half[i] = lq_f32_bf16((float)(ck_uniform() + ck_uniform()));
        r->src[i] = lq_mat_row(&w, i / k)[i % k] = lq_bf16_f32(half[i]);
    }
    c->a.w = !y->half ? w : (lq_mat){.p = half, .type = LQ_BF16, .rows = n, .cols = k, .stride = (size_t)k};
    c->a.type = t, c->a.table = lq_wtype_table(&t), c->a.fit = LQ_FIT_SEARCH, c->a.steps = 8, c->a.least = 0.6f;
    c->a.q = ck_buf(size.q, 0), c->a.scale = ck_buf(size.scale, 0), c->a.sweeps = y->sweeps;
    c->a.zero = size.zero ? ck_buf(size.zero, 0) : NULL;
    c->a.error = ck_buf(8 * rows, 0), c->a.norm = ck_buf(8 * rows, 0), c->a.worst = ck_buf(8 * rows, 0);
    c->loss = ck_buf(8 * rows, 0), c->plain = ck_buf(8 * rows, 0), c->size = ck_buf(8 * rows, 0);
    c->stays = y->stays;
    if (y->orders) c->order = order_of(&t, k, y->stays);
    float *repay = ck_buf(sizeof *repay * (size_t)k * (size_t)k, 0);
    int32_t *apart = ck_buf(sizeof *apart * 2, 0);
    for (int i = 0; i < k * k; i++) repay[i] = (float)ck_uniform() / (float)k;
    apart[0] = 1, apart[1] = k - 2;
    if (y->pays) c->repay = repay;
    if (y->apart) c->apart = apart, c->aparts = 2;
    want_of(r, n, k);
    r->w = (lq_weight){.type = t, .n = n, .k = k, .q = c->a.q, .scale = c->a.scale, .zero = c->a.zero,
                       .table = c->a.table};
}

static void choice_run(lq_dev *dev, choice *r) {
    lq_choose_args c = r->c;
    c.a.bad = r->bad, c.a.wide = &r->wide;
    c.work = ck_buf(lq_choose_bytes(&c), 0);
    dev->ops.choose(dev, &c);
    CHECK(dev->ops.sync(dev, NULL), "choose %s: the device broke", dev->isa);
}

// x h x^T in f64, and what f32 may be off it where each x[i] may be off by room[i].
static double form(const float *h, const double *x, const double *room, int k, double *off) {
    double sum = 0;
    *off = 0;
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++) {
            const double by = fabs((double)h[i * k + j]);
            sum += x[i] * (double)h[i * k + j] * x[j];
            *off += by * (EPS * (k + 4) * fabs(x[i] * x[j]) + 2 * (room[i] * fabs(x[j]) + room[i] * room[j]));
        }
    return sum;
}

// Row by row: what is told is what the codes lose, where they are stored.
static void check_told(const lq_dev *dev, const way *y, const choice *r, int n, int k) {
    const lq_choose_args *c = &r->c;
    float *row = ck_buf(sizeof *row * (size_t)k, 0);
    double *d = ck_buf(8 * (size_t)k, 0), *room = ck_buf(8 * (size_t)k, 0), off;
    int wrong = 0, worse = 0, better = 0, figures = 0;
    for (int i = 0; i < n; i++) {
        const double *want = r->want + (size_t)i * (size_t)k, *given = r->room + (size_t)i * (size_t)k;
        double error = 0, norm = 0, worst = 0;
        lq_weight_row_any(&r->w, i, row);
        for (int j = 0; j < k; j++) {
            const int at = c->order && c->stays ? c->order[j] : j;
            d[j] = want[j] - (double)row[at];
            room[j] = given[j] + EPS * 2 * fabs(d[j]);
            error += d[j] * d[j], norm += want[j] * want[j], worst = fmax(worst, fabs(d[j]));
        }
        const double loss = form(c->a.h, d, room, k, &off);
        wrong += !(fabs(loss - c->loss[i]) <= off);
        const double size = form(c->a.h, want, given, k, &off);
        wrong += !(fabs(size - c->size[i]) <= off);
        worse += !(c->loss[i] <= c->plain[i]), better += c->loss[i] < c->plain[i];
        figures += fabs(error - c->a.error[i]) > 1e-3 * error || fabs(norm - c->a.norm[i]) > 1e-3 * norm ||
            fabs(worst - c->a.worst[i]) > 1e-3 * worst;
    }
    CHECK(!wrong && !worse && !figures && (c->a.u ? better > n / 2 : !better),
          "choose %s %s %d x %d: %d losses wrong, %d rows worse, %d better, %d figures wrong", dev->isa, y->type, n, k,
          wrong, worse, better, figures);
}

static bool other_bytes(const void *a, const void *b, size_t row, size_t bytes) {
    return bytes && memcmp((const char *)a + row * bytes, (const char *)b + row * bytes, bytes);
}

// Of portable C, with the same rows: other sums may choose otherwise where both lose as much, and nothing else.
static void check_codes(lq_dev *ref, const way *y, const choice *r, int n, int k) {
    choice other = *r;
    lq_choose_args *c = &other.c;
    lq_weight_size size;
    lq_weight_sizes(&r->w.type, n, k, &size);
    lq_mat w = ck_mat(n, k, 3);
    for (int i = 0; i < n * k; i++) lq_mat_row(&w, i / k)[i % k] = r->src[i];
    c->a.w = w, c->a.q = ck_buf(size.q, 0), c->a.scale = ck_buf(size.scale, 0);
    c->a.zero = size.zero ? ck_buf(size.zero, 0) : NULL;
    c->a.error = ck_buf(8 * (size_t)n, 0), c->a.norm = ck_buf(8 * (size_t)n, 0), c->a.worst = ck_buf(8 * (size_t)n, 0);
    c->loss = ck_buf(8 * (size_t)n, 0), c->plain = ck_buf(8 * (size_t)n, 0), c->size = ck_buf(8 * (size_t)n, 0);
    choice_run(ref, &other);
    const lq_wtype *t = &r->w.type;
    const size_t q = t->kind == LQ_W_FLOAT ? (size_t)k : lq_code_row_bytes(t->bits, k);
    const size_t scale = t->rows <= 1 ? size.scale / (size_t)n : 0, zero = size.zero / (size_t)n;
    int moved = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        const double gap = fabs(c->loss[i] - c->plain[i]);
        if (gap < 1e-4 * c->plain[i]) continue;
        moved += other_bytes(c->a.q, r->c.a.q, i, q) || other_bytes(c->a.scale, r->c.a.scale, i, scale) ||
            other_bytes(c->a.zero, r->c.a.zero, i, zero) ||
            c->a.error[i] != r->c.a.error[i] || c->a.norm[i] != r->c.a.norm[i] || c->a.worst[i] != r->c.a.worst[i];
    }
    CHECK(!moved, "choose %s %d x %d: %d rows are not those of portable C", y->type, n, k, moved);
}

static void check_way(lq_dev *ref, lq_dev *dev, const way *y, int n, int k) {
    choice r;
    choice_open(dev, &r, y, n, k);
    choice_run(dev, &r);
    CHECK(r.bad[0] == -1 && !r.wide, "choose %s %s: refused", dev->isa, y->type);
    check_told(dev, y, &r, n, k);
    if (!y->pays && !y->sweeps) check_codes(ref, y, &r, n, k);
    ck_done("choose");
}

static void check_refused(lq_dev *dev) {
    const way y = {.type = "int4 g16 sym f16", .orders = true, .stays = true, .spreads = true};
    choice r;
    choice_open(dev, &r, &y, 40, 48);
    lq_mat_row(&r.c.a.w, 7)[33] = NAN;
    choice_run(dev, &r);
    CHECK(r.bad[0] == 7 && r.bad[1] >= 0, "choose %s: bad at %lld, %lld", dev->isa, (long long)r.bad[0],
          (long long)r.bad[1]);
    ck_done("choose refused");
    choice_open(dev, &r, &y, 40, 48);
    for (int c = 0; c < 48; c++) lq_mat_row(&r.c.a.w, 39)[c] = 1e-6f;
    choice_run(dev, &r);
    CHECK(r.bad[0] < 0 && r.wide, "choose %s: a scale below f16's normal range is not told", dev->isa);
    ck_done("choose wide");
}

// Each number is one of f64, rounded once.
static void check_arrange(lq_dev *dev, int k) {
    const size_t cells = (size_t)k * (size_t)k;
    double *h = ck_buf(8 * cells, 0), *g = ck_buf(8 * cells, 0);
    double *u = ck_buf(8 * cells, 0), *owed = ck_buf(8 * cells, 0);
    double *diagonal = ck_buf(8 * (size_t)k, 0);
    float *mean = ck_buf(4 * cells, 0), *repay = ck_buf(4 * cells, 0);
    const int32_t *order = order_of(&(lq_wtype){0}, k, false);
    for (int i = 0; i < k * k; i++) h[i] = i % k < i / k ? NAN : ck_uniform(), g[i] = ck_uniform();
    lq_arrange_args a = {.k = k, .rows = 17, .h = h, .g = g, .order = order, .mean = mean, .u = u, .added = 0.3f,
                         .owed = owed};
    dev->ops.arrange(dev, &a);
    dev->ops.arrange(dev, &(lq_arrange_args){.k = k, .h = h, .diagonal = diagonal});
    a = (lq_arrange_args){.k = k, .order = order, .owed = owed, .repay = repay, .share = 0.7f};
    dev->ops.arrange(dev, &a);
    CHECK(dev->ops.sync(dev, NULL), "arrange %s: the device broke", dev->isa);
    int wrong = 0;
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++) {
            const int p = order[i], q = order[j], at = i * k + j;
            const double v = (p < q ? h[p * k + q] : h[q * k + p]) / 17;
            const double o = (g[p * k + j] - (p < j ? h[p * k + j] : h[j * k + p])) / 17;
            wrong += mean[at] != (float)v || u[at] != (j < i ? 0 : v + (i == j ? (double)0.3f : 0)) || owed[at] != o;
            wrong += repay[p * k + j] != 0.7f * (float)o;
        }
    for (int i = 0; i < k; i++) wrong += diagonal[i] != h[i * k + i];
    CHECK(!wrong, "arrange %s %d: %d numbers wrong", dev->isa, k, wrong);
    ck_done("arrange");
}

void check_choose(lq_dev *ref, lq_dev *dev) {
    static const char *const types[] = {"int4 g16 sym f16", "int3 g32 asym f32", "int8 row asym f32", "nf4 g64 f32",
                                        "e4m3 g32 f32", "int4 g32 r16 sym f32", "e4m3 tensor f32"};
    lq_err err;
    char name[128];
    for (int k = 1; k < 80; k += 26) check_arrange(dev, k);
    if (!dev->ops.solver(dev, name, sizeof name, &err)) {
        SKIP("choose %s: %s", dev->isa, err.text);
        return;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const bool half = !dev->host;
        const way ways[] = {
            {types[i], .stays = true, .half = half},
            {types[i], .orders = true, .stays = true, .spreads = true, .apart = true},
            {types[i], .orders = true, .spreads = true, .half = half},
            {types[i], .orders = true, .stays = true, .spreads = true, .pays = true, .half = half, .sweeps = 3},
            {types[i], .stays = true, .spreads = true, .pays = true, .apart = true, .sweeps = 2}};
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) check_way(ref, dev, &ways[w], 37, w % 2 ? 100 : 96);
    }
    check_refused(dev);
}
