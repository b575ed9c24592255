// check_round.c: the slots round and refine of a device against plain loops in f64 written from ops.h and
// docs/QUANT.md: every element the nearest of its codes, scales from the ranges, errors spread column by column,
// searched scales that lose no more than any that was tried.
#include "tests/checkkern/check_ops.h"
#include <float.h>

typedef struct rounding {
    lq_round_args a;
    lq_weight w;       // what came out
    int64_t bad[2];
    bool wide;
    float *src;        // [n][k] before it is spoilt
} rounding;

static lq_wtype type_of(const char *text) {
    lq_wtype t;
    lq_err err;
    CHECK(lq_wtype_parse(text, &t, &err), "%s", err.text);
    return t;
}

// The values that a code of the type may stand for, of scale 1 and zero point z; how many.
static int values_of(const lq_wtype *t, const float *table, int z, double *v) {
    int n = 0;
    if (t->kind == LQ_W_INT)
        for (; n < 1 << t->bits; n++) v[n] = n - z;
    if (t->kind == LQ_W_TABLE)
        for (; n < 1 << t->bits; n++) v[n] = (double)table[n];
    for (int c = 0; t->kind == LQ_W_FLOAT && c < 256; c++) { // e4m3: sign, four bits of exponent, three of mantissa
        const int e = c >> 3 & 15, m = c & 7;
        if ((c & 127) == 127) continue;
        const double x = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        v[n++] = c & 128 ? -x : x;
    }
    return n;
}

static void rounding_open(rounding *r, const char *type, int n, int k, double *u) {
    static float table[16];
    const lq_wtype t = type_of(type);
    lq_weight_size size;
    lq_weight_sizes(&t, n, k, &size);
    *r = (rounding){.src = ck_buf(sizeof(float) * (size_t)n * (size_t)k, 0)};
    for (int i = 0; i < n * k; i++)
        r->src[i] = (float)(ck_uniform() + ck_uniform() + ck_uniform()) * (ck_below(40) ? 0.1f : 0.5f);
    if (t.book) memcpy(table, lq_wtype_table(&t), sizeof table);
    for (int i = 0; i < 16 && !t.book; i++) table[i] = (float)((i - 7) * (i > 7 ? 8 : 7)) / 64; // -0.77 .. 1
    lq_mat m = ck_mat(n, k, 5);
    for (int i = 0; i < n; i++) memcpy(lq_mat_row(&m, i), r->src + (size_t)i * (size_t)k, sizeof(float) * (size_t)k);
    r->a = (lq_round_args){.w = m, .type = t, .table = table, .u = u, .q = ck_buf(size.q, 1),
                           .scale = ck_buf(size.scale, 4), .zero = size.zero ? ck_buf(size.zero, 3) : NULL,
                           .back = ck_buf(sizeof(float) * (size_t)n * (size_t)k, 0), .error = ck_buf(8 * (size_t)n, 0),
                           .norm = ck_buf(8 * (size_t)n, 0), .worst = ck_buf(8 * (size_t)n, 0)};
    r->w = (lq_weight){.type = t, .n = n, .k = k, .q = r->a.q, .scale = r->a.scale, .zero = r->a.zero, .table = table};
}

static void rounding_run(lq_dev *dev, rounding *r, const char *type) {
    lq_round_args a = r->a;
    a.bad = r->bad, a.wide = &r->wide;
    dev->ops.round(dev, &a);
    CHECK(r->bad[0] == -1 && r->bad[1] == -1 && !r->wide, "round %s: refused", type);
}

// The range of the group of column c in the rows that share its scale, of w [n][k].
static void range_of(const rounding *r, const double *w, int64_t row, int64_t c, double *lo, double *hi) {
    const lq_wtype *t = &r->w.type;
    const int64_t k = r->w.k, c0 = t->group ? c / t->group * t->group : 0, c1 = t->group &&
        c0 + t->group < k ? c0 + t->group : k;
    const int64_t band = t->rows > 1 ? t->rows : 1, r0 = row / band * band;
    const int64_t r1 = r0 + band < r->w.n ? r0 + band : r->w.n;
    *lo = *hi = 0;
    for (int64_t i = r0; i < r1; i++)
        for (int64_t j = c0; j < c1; j++) *lo = fmin(*lo, w[i * k + j]), *hi = fmax(*hi, w[i * k + j]);
}

static double scale_for(const lq_wtype *t, double lo, double hi, const float *table, double *zero) {
    const int top = 1 << t->bits;
    double s = fmax(hi, -lo) / 448;
    if (t->scale == LQ_E8M0) {
        *zero = 0;
        return exp2(floor(log2(fmax(hi, -lo))) - floor(log2(t->kind == LQ_W_TABLE ? (double)table[7] : 448)));
    }
    if (t->kind == LQ_W_TABLE) s = fmax(hi, -lo) / (double)table[15];
    if (t->kind == LQ_W_INT) s = t->asym ? (hi - lo) / (top - 1) : (hi > -lo ? hi : lo) / -(top / 2.0);
    *zero = t->kind != LQ_W_INT ? 0 : t->asym ? rint(-lo / (double)(float)s) : top / 2.0;
    return s;
}

// How far the nearest of those values is from x.
static double distance(const double *v, int n, double x) {
    double least = INFINITY;
    for (int i = 0; i < n; i++) least = fmin(least, fabs(x - v[i]));
    return least;
}

// The whole rule in f64, column by column. Where f32 may take either of two codes, the device's is gone on from.
static void check_against_f64(lq_dev *dev, const char *type, int n, int k, bool spread) {
    rounding r;
    double *u = spread ? ck_buf(sizeof(double) * (size_t)k * (size_t)k, 0) : NULL;
    double *w = ck_buf(sizeof(double) * (size_t)n * (size_t)k, 0);
    double v[256], *zero = ck_buf(sizeof(double) * (size_t)n, 0), *error = ck_buf(8 * (size_t)n, 0);
    for (int i = 0; spread && i < k * k; i++)
        u[i] = i / k == i % k ? 1 + 0.5 * ck_uniform() : i / k < i % k ? 0.2 * ck_uniform() : NAN;
    rounding_open(&r, type, n, k, u);
    for (int i = 0; i < n * k; i++) w[i] = (double)r.src[i];
    memset(error, 0, 8 * (size_t)n);
    rounding_run(dev, &r, type);
    const lq_wtype *t = &r.w.type;
    // What f32 loses: half an ulp of each quotient and product, and of each column's share, of the largest value.
    const double room = EPS * (spread ? 3.0 * k : 4);
    int wrong = 0;
    for (int c = 0; c < k; c++)
        for (int i = 0; i < n; i++) {
            const double s = (double)ck_scale(&r.w, i, t->group ? c / t->group : 0), got = (double)r.a.back[i * k + c];
            const double x = w[i * k + c];
            if (t->group ? c % t->group == 0 : c == 0) {
                double lo, hi;
                range_of(&r, w, i, c, &lo, &hi);
                wrong += fabs(s - scale_for(t, lo, hi, r.a.table, &zero[i])) > (room + EPS) * fabs(s);
            }
            const int count = values_of(t, r.a.table, (int)zero[i], v);
            const double top = t->kind == LQ_W_INT ? 1 << t->bits : fabs(v[count / 2 - 1]) + fabs(v[count - 1]);
            wrong += distance(v, count, got / s) > room * top ||
                fabs(x / s - got / s) > distance(v, count, x / s) + 2 * room * top;
            error[i] += (x - got) * (x - got);
            for (int l = c + 1; spread && l < k; l++) w[i * k + l] -= (x - got) / u[c * k + c] * u[c * k + l];
        }
    for (int i = 0; i < n; i++) wrong += fabs(error[i] - r.a.error[i]) > 1e-3 * error[i] + 1e-12;
    CHECK(wrong == 0, "round %s %s %d x %d%s: %d wrong", dev->isa, type, n, k, spread ? " spread" : "", wrong);
    // `back` is what a reader of the weight sees.
    float *row = ck_buf(sizeof(float) * (size_t)k, 0);
    bool same = true;
    for (int i = 0; i < n; i++) {
        lq_weight_row_any(&r.w, i, row);
        for (int c = 0; c < k; c++) same &= row[c] == r.a.back[i * k + c];
    }
    CHECK(same, "round %s %s %d x %d: back is not what the codes say", dev->isa, type, n, k);
    ck_done("round");
}

// The scale that was found loses no more than any of those that were tried, in f64.
static void check_search(lq_dev *dev, const char *type, int n, int k) {
    enum { STEPS = 12 };
    rounding r;
    float *weight = ck_buf(sizeof(float) * (size_t)k, 0);
    double v[256], *w = ck_buf(sizeof(double) * (size_t)n * (size_t)k, 0);
    for (int c = 0; c < k; c++) weight[c] = (float)fabs(ck_uniform());
    rounding_open(&r, type, n, k, NULL);
    r.a.fit = LQ_FIT_SEARCH, r.a.steps = STEPS, r.a.least = 0.4f, r.a.weight = weight;
    for (int i = 0; i < n * k; i++) w[i] = (double)r.src[i];
    rounding_run(dev, &r, type);
    const lq_wtype *t = &r.w.type;
    const int group = t->group ? t->group : k;
    int wrong = 0, smaller = 0;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < k; c += group) {
            const int end = c + group < k ? c + group : k;
            double lo, hi, zero, loss = 0, least = INFINITY, whole = 0;
            range_of(&r, w, i, c, &lo, &hi);
            for (int j = c; j < end; j++)
                loss += (double)weight[j] * pow(w[i * k + j] - (double)r.a.back[i * k + j], 2);
            for (int p = t->scale == LQ_E8M0 ? -1 : 0; p < STEPS; p++) {
                const double share = p < 0 ? 2 : 1 - (1 - 0.4) * p / (STEPS - 1);
                const double s = (double)(float)scale_for(t, lo * share, hi * share, r.a.table, &zero);
                double sum = 0;
                const int count = values_of(t, r.a.table, (int)zero, v);
                for (int j = c; j < end; j++)
                    sum += (double)weight[j] * pow(s * distance(v, count, w[i * k + j] / s), 2);
                least = fmin(least, sum);
                if (p == 0) whole = s;
            }
            wrong += loss > least * 1.0001 + 1e-12;
            smaller += fabs((double)ck_scale(&r.w, i, t->group ? c / group : 0)) < 0.999 * fabs(whole);
        }
    CHECK(wrong == 0 && (smaller > 0 || values_of(t, r.a.table, 0, v) > 16),
          "round %s %s %d x %d searched: %d lose too much, %d are smaller",
          dev->isa, type, n, k, wrong, smaller);
    ck_done("round searched");
}

// How codes are found: to the nearest, errors spread over the columns behind, or scales searched.
typedef enum { NEAREST, SPREAD, SEARCHED } way_to;

static bool same_bytes(const rounding *a, const rounding *b) {
    const size_t n = (size_t)a->w.n, k = (size_t)a->w.k;
    lq_weight_size size;
    lq_weight_sizes(&a->w.type, a->w.n, a->w.k, &size);
    return !memcmp(a->a.q, b->a.q, size.q) && !memcmp(a->a.scale, b->a.scale, size.scale) &&
        (!size.zero || !memcmp(a->a.zero, b->a.zero, size.zero)) &&
        !memcmp(a->a.back, b->a.back, n * k * sizeof(float)) &&
        !memcmp(a->a.error, b->a.error, 8 * n) && !memcmp(a->a.norm, b->a.norm, 8 * n) &&
        !memcmp(a->a.worst, b->a.worst, 8 * n);
}

// The same bytes on any number of threads and on any device, and again from the scales alone.
static void check_same(lq_dev *dev, lq_dev *other, const char *type, int n, int k, way_to way) {
    rounding a, b;
    lq_weight_size size;
    double *u = way == SPREAD ? ck_buf(sizeof(double) * (size_t)k * (size_t)k, 0) : NULL;
    float *weight = ck_buf(sizeof(float) * (size_t)k, 0);
    for (int i = 0; u && i < k * k; i++) u[i] = i / k == i % k ? 1.5 : 0.1 * ck_uniform();
    for (int c = 0; c < k; c++) weight[c] = (float)fabs(ck_uniform());
    rounding_open(&a, type, n, k, u);
    rounding_open(&b, type, n, k, u);
    if (way == SEARCHED) {
        a.a.fit = b.a.fit = LQ_FIT_SEARCH, a.a.steps = b.a.steps = 15, a.a.least = b.a.least = 0.6f;
        a.a.weight = b.a.weight = weight;
    }
    lq_weight_sizes(&a.w.type, n, k, &size);
    for (int c = 0; c < k && c < 32; c++) lq_mat_row(&a.a.w, n / 2)[c] = 0; // whose scale is 0
    for (int i = 0; i < n; i++) memcpy(lq_mat_row(&b.a.w, i), lq_mat_row(&a.a.w, i), sizeof(float) * (size_t)k);
    rounding_run(dev, &a, type);
    rounding_run(other, &b, type);
    CHECK(same_bytes(&a, &b), "round %s %s, way %d: other bits than %s", dev->isa, type, way, other->isa);
    if (way != SPREAD && size.scale) {
        void *q = b.a.q;
        memset(q, 0xee, size.q), memset(b.a.scale, 0xee, size.scale);
        b.a.q = NULL;
        rounding_run(other, &b, type);
        b.a.q = q;
        b.a.given_scale = a.a.scale, b.a.given_zero = a.a.zero;
        CHECK(!memcmp(a.a.scale, b.a.scale, size.scale), "round %s: other scales without codes", type);
        rounding_run(other, &b, type);
        CHECK(!memcmp(a.a.q, b.a.q, size.q), "round %s: other codes from given scales", type);
    }
    ck_done("round bits");
}

// Codes and scales made better: the same bytes on both. Any slope does, where nobody asks whether rows lose less.
static void check_refine_same(lq_dev *dev, lq_dev *other, const char *type, int n, int k) {
    rounding r[2];
    const size_t cells = (size_t)k * (size_t)k, values = (size_t)n * (size_t)k * sizeof(float);
    float *h = ck_buf(sizeof *h * cells, 0), *slope[2] = {ck_buf(values, 0), ck_buf(values, 0)};
    for (int i = 0; i < k; i++)
        for (int j = i; j < k; j++) h[i * k + j] = h[j * k + i] = i == j ? 3 : (float)ck_uniform() / (float)(1 + j - i);
    for (int i = 0; i < n * k; i++) slope[0][i] = slope[1][i] = (float)ck_uniform();
    for (int i = 0; i < 2; i++) rounding_open(&r[i], type, n, k, NULL);
    for (int i = 0; i < n; i++) memcpy(lq_mat_row(&r[1].a.w, i), lq_mat_row(&r[0].a.w, i), sizeof(float) * (size_t)k);
    for (int i = 0; i < 2; i++) {
        lq_dev *on = i ? other : dev;
        rounding_run(on, &r[i], type);
        lq_round_args a = r[i].a;
        a.bad = r[i].bad, a.wide = &r[i].wide, a.h = h, a.damp = 0.05f, a.slope = slope[i], a.sweeps = 3;
        on->ops.refine(on, &a);
    }
    CHECK(same_bytes(&r[0], &r[1]) && !memcmp(slope[0], slope[1], values), "refine %s %s: other bits than %s", dev->isa,
          type, other->isa);
    ck_done("refine bits");
}

// d (h + damp) d^T of a row, in f64.
static double row_loss(const float *h, double damp, const double *d, int k) {
    double sum = 0;
    for (int i = 0; i < k; i++) {
        double part = damp * d[i];
        for (int j = 0; j < k; j++) part += (double)h[i * k + j] * d[j];
        sum += part * d[i];
    }
    return sum;
}

static void differences(const lq_weight *w, const float *src, int row, float *back, double *d) {
    lq_weight_row_any(w, row, back);
    for (int c = 0; c < w->k; c++) d[c] = (double)src[(size_t)row * (size_t)w->k + (size_t)c] - (double)back[c];
}

// Loss, and what the slope and `back` should be, row by row; wrong counts what is not.
static void check_refined(const rounding *r, const float *h, const float *slope, double damp, double *loss,
                          int *wrong) {
    const int n = (int)r->w.n, k = (int)r->w.k;
    float *back = ck_buf(sizeof *back * (size_t)k, 0);
    double *d = ck_buf(sizeof *d * (size_t)k, 0);
    for (int i = 0; i < n; i++) {
        differences(&r->w, r->src, i, back, d);
        loss[i] = row_loss(h, damp, d, k);
        for (int j = 0; j < k; j++) {
            double t = damp * d[j], size = fabs(t);
            for (int c = 0; c < k; c++) t += (double)h[c * k + j] * d[c], size += fabs((double)h[c * k + j]);
            // Each change of a code or scale rounds the slope once more.
            *wrong += fabs(t - (double)slope[i * k + j]) > EPS * 40.0 * k * size;
            *wrong += back[j] != r->a.back[i * k + j];
        }
    }
}

// Codes and scales are changed where a row then loses less, until no single code could be better.
static void check_refine(lq_dev *dev, const char *type, int n, int k) {
    rounding r;
    const size_t cells = (size_t)k * (size_t)k;
    float *h = ck_buf(sizeof *h * cells, 0), *slope = ck_buf(sizeof *slope * (size_t)n * (size_t)k, 0);
    float *x = ck_buf(sizeof *x * 2 * cells, 0), *back = ck_buf(sizeof *back * (size_t)k, 0);
    double *before = ck_buf(8 * (size_t)n, 0), *after = ck_buf(8 * (size_t)n, 0), *d = ck_buf(8 * (size_t)k, 0), v[256];
    const double damp = 0.05;
    for (size_t i = 0; i < 2 * cells; i++) x[i] = ck_uniform() + (i % (size_t)k ? 0.5f * x[i - 1] : 0);
    for (size_t i = 0; i < cells; i++) {
        double sum = 0;
        for (int t = 0; t < 2 * k; t++) sum += (double)x[t * k + (int)i / k] * (double)x[t * k + (int)i % k];
        h[i] = (float)(sum / 2 / k);
    }
    rounding_open(&r, type, n, k, NULL);
    rounding_run(dev, &r, type);
    for (int i = 0; i < n; i++) {
        differences(&r.w, r.src, i, back, d);
        before[i] = row_loss(h, damp, d, k);
        for (int j = 0; j < k; j++) {
            double t = damp * d[j];
            for (int c = 0; c < k; c++) t += (double)h[c * k + j] * d[c];
            slope[i * k + j] = (float)t;
        }
    }
    lq_round_args a = r.a;
    a.bad = r.bad, a.wide = &r.wide, a.h = h, a.damp = (float)damp, a.slope = slope, a.sweeps = 50;
    dev->ops.refine(dev, &a);
    int wrong = 0, worse = 0, better = 0, left = 0;
    check_refined(&r, h, slope, damp, after, &wrong);
    for (int i = 0; i < n; i++) {
        worse += after[i] > before[i] * (1 + 1e-5), better += after[i] < before[i] * 0.98;
        for (int j = 0; j < k; j++) {
            const lq_wtype *t = &r.w.type;
            const int64_t g = t->group ? j / t->group : 0;
            const double s = (double)ck_scale(&r.w, i, g), curve = (double)h[j * k + j] + damp;
            const int z = t->kind != LQ_W_INT ? 0 : t->asym ? (int)lq_code_get(r.w.zero + (size_t)i *
                lq_code_row_bytes(t->bits, lq_weight_groups(t, k)), t->bits, g) : 1 << (t->bits - 1);
            const int count = values_of(t, r.a.table, z, v);
            const double now = (double)r.a.back[i * k + j], best = now + (double)slope[i * k + j] / curve;
            left += s != 0 && fabs(best - now) > fabs(s) * distance(v, count, best / s) + 1e-4 * fabs(s) * 256;
        }
    }
    CHECK(!wrong && !worse && !left && better > n / 2, "refine %s %s %d x %d: %d wrong, %d rows worse, %d better, %d codes left",
          dev->isa, type, n, k, wrong, worse, better, left);
    ck_done("refine");
}

// Scales that are codes: each is one of what its codes can stand for, of a group's range the nearest of them, however
// the codes of the elements were found; and the elements' codes are chosen with it.
static void check_levels(lq_dev *dev, const char *type, int n, int k) {
    rounding r;
    float map[256]; // uneven, and 0 is not among them
    for (int i = 0; i < 256; i++) map[i] = (float)(i < 128 ? i - 128 : i - 100) / 155;
    for (int way = 0; way < 3; way++) { // to the nearest, searched, spread
        double *u = way == 2 ? ck_buf(sizeof(double) * (size_t)k * (size_t)k, 0) : NULL;
        for (int i = 0; u && i < k * k; i++) u[i] = i / k == i % k ? 1.5 : i / k < i % k ? 0.2 * ck_uniform() : NAN;
        rounding_open(&r, type, n, k, u);
        const lq_wtype *t = &r.w.type;
        const int groups = (int)lq_weight_groups(t, k);
        float *by = ck_buf(sizeof(float) * (size_t)(n * groups), 0);
        for (int i = 0; i < n * groups; i++) by[i] = i % 7 ? 0.02f + 0.3f * (float)(ck_uniform() + 1) : 0;
        r.a.scale_by = by, r.a.scale_map = map, r.a.scale_offset = 0.11f;
        if (way == 1) r.a.fit = LQ_FIT_SEARCH, r.a.steps = 20, r.a.least = 0.5f;
        rounding_run(dev, &r, type);
        double v[256], *w = ck_buf(sizeof(double) * (size_t)n * (size_t)k, 0), lo, hi, zero;
        for (int i = 0; i < n * k; i++) w[i] = (double)r.src[i];
        int strange = 0, far = 0, wrong = 0;
        for (int i = 0; i < n * groups; i++) {
            const double s = (double)((const float *)r.a.scale)[i];
            for (int c = 0; c < 256; c++) v[c] = (double)(float)(map[c] * by[i]) + (double)r.a.scale_offset;
            strange += distance(v, 256, s) > EPS * (fabs(s) + (double)by[i] + 1);
            range_of(&r, w, i / groups, i % groups * t->group, &lo, &hi);
            const double want = scale_for(t, lo, hi, r.a.table, &zero);
            far += !way && fabs(s - want) > distance(v, 256, want) + 4 * EPS * (fabs(want) + 1);
        }
        for (int i = 0; i < n * k && way < 2; i++) {
            const int row = i / k, g = t->group ? i % k / t->group : 0;
            const double s = (double)((const float *)r.a.scale)[row * groups + g], got = (double)r.a.back[i];
            const size_t zeros = lq_code_row_bytes(t->bits, groups);
            const int z = t->kind != LQ_W_INT ? 0 : t->asym
                ? (int)lq_code_get((const uint8_t *)r.a.zero + (size_t)row * zeros, t->bits, g) : 1 << (t->bits - 1);
            const int count = values_of(t, r.a.table, z, v);
            wrong += fabs(w[i] - got) > fabs(s) * distance(v, count, w[i] / s) + 32 * EPS * (fabs(w[i]) + fabs(s));
        }
        CHECK(!strange && !far && !wrong, "round %s %s: way %d: %d scales are no codes', %d not the nearest, %d codes",
              dev->isa, type, way, strange, far, wrong);
        ck_done("round levels");
    }
}

static void check_refused(lq_dev *dev) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f};
    static const char *const types[] = {"int4 g16 sym f32", "e4m3 tensor f32", "int8 g32 asym f32", "bf16"};
    rounding r;
    for (int i = 0; i < 16; i++) {
        const bool plain = i % 4 == 3;
        rounding_open(&r, types[i % 4], 70, 50, NULL);
        // what bf16 rounds to infinity
        lq_mat_row(&r.a.w, 33)[47] = plain && odd[i / 4] == 3e38f ? FLT_MAX : odd[i / 4];
        lq_mat_row(&r.a.w, 66)[1] = NAN;
        lq_round_args a = r.a;
        a.bad = r.bad, a.wide = &r.wide;
        dev->ops.round(dev, &a);
        CHECK(r.bad[0] == 33 && r.bad[1] == 47, "round %s of %g: bad at %lld, %lld", types[i % 4], (double)odd[i / 4],
              (long long)r.bad[0], (long long)r.bad[1]);
        ck_done("round refused");
    }
    rounding_open(&r, "int4 g16 sym f16", 40, 32, NULL);
    for (int c = 16; c < 32; c++) lq_mat_row(&r.a.w, 39)[c] = 1e-6f;
    lq_round_args a = r.a;
    a.bad = r.bad, a.wide = &r.wide;
    dev->ops.round(dev, &a);
    CHECK(r.wide, "round: a scale below f16's normal range is not told");
    ck_done("round wide");
}

// An element hears of one error after the other: the bits of the plain loop, whatever the width and however many rows,
// and none behind it.
static void check_spread(const lq_dev *dev) {
    enum { MOST = 200, ERRORS = 37, ROWS = 7 };
    static float u[ERRORS * MOST], e[ROWS][ERRORS], w[ROWS][MOST + 1], want[ROWS][MOST + 1];
    static const size_t widths[] = {0, 1, 15, 16, 31, 63, 64, 65, 128, 199};
    for (int i = 0; i < ERRORS * MOST; i++) u[i] = sinf((float)(i + 1) * 1.7f);
    for (int i = 0; i < ROWS * ERRORS; i++) e[i / ERRORS][i % ERRORS] = cosf((float)i * 2.3f) * (i % 5 ? 1 : 1000);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t rows = 0; rows <= ROWS; rows++) {
            const size_t n = widths[i];
            lq_hearer row[ROWS];
            for (size_t r = 0; r < ROWS; r++) {
                row[r] = (lq_hearer){w[r], e[r]};
                for (size_t c = 0; c <= MOST; c++) w[r][c] = want[r][c] = tanf((float)(c + r));
            }
            for (size_t r = 0; r < rows; r++)
                for (size_t c = 0; c < n; c++)
                    for (size_t b = 0; b < ERRORS; b++) want[r][c] -= e[r][b] * u[b * MOST + c];
            lq_cpu_of(dev)->spread(row, rows, u, MOST, ERRORS, n);
            CHECK(!memcmp(w, want, sizeof w), "spread %s: %zu columns of %zu rows are not those of the plain loop",
                  dev->isa, n, rows);
        }
}

// The range of elements: the plain loop's, and none where one of them, wherever it stands, is no number to code.
static void check_range(const lq_dev *dev) {
    enum { MOST = 48 };
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    float x[MOST];
    for (size_t n = 0; n <= MOST; n += 2 * LQ_LANES)
        for (int turn = 0; turn < 8; turn++) {
            float lo = turn & 1 ? -0.5f : 0, hi = turn & 2 ? 0.25f : 0, least = lo, most = hi;
            for (size_t i = 0; i < n; i++) {
                x[i] = tanf((float)(i + 7 * (size_t)turn)) * (turn & 4 ? 0.01f : 1);
                least = x[i] < least ? x[i] : least;
                most = x[i] > most ? x[i] : most;
            }
            const bool found = lq_cpu_of(dev)->rounds->range(x, n, &lo, &hi);
            CHECK(found && ck_same(lo, least) && ck_same(hi, most), "range %s of %zu: %g to %g, not %g to %g",
                  dev->isa, n, (double)lo, (double)hi, (double)least, (double)most);
        }
    for (size_t i = 0; i < MOST; i++)
        for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
            float lo = 0, hi = 0;
            const float was = x[i];
            x[i] = odd[k];
            CHECK(!lq_cpu_of(dev)->rounds->range(x, MOST, &lo, &hi), "range %s: takes %g at %zu", dev->isa,
                  (double)odd[k], i);
            x[i] = was;
        }
}

// What elements lose by a scale: lane by lane the bits of the plain loop, ties and what lies beyond the codes included.
static void check_loss(const lq_dev *dev) {
    enum { MOST = 136 };
    static float x[MOST], weight[MOST];
    static const struct { float s; int z, bits; } codes[] = {{0.25f, 8, 4}, {-0.1f, 4, 3}, {3e-3f, 77, 8},
                                                             {0x1p-140f, 1, 2}};
    for (int i = 0; i < MOST; i++) {
        x[i] = i % 3 ? sinf((float)i * 1.7f) : (float)(i - 60) / 8;
        weight[i] = expf(sinf((float)i));
    }
    for (size_t t = 0; t < sizeof codes / sizeof *codes; t++)
        for (size_t n = 0; n <= MOST; n += LQ_LANES)
            for (int weighted = 0; weighted < 2; weighted++) {
                float part[LQ_LANES], want[LQ_LANES];
                const float low = (float)-codes[t].z, high = (float)((1 << codes[t].bits) - 1 - codes[t].z);
                for (int i = 0; i < LQ_LANES; i++) part[i] = want[i] = (float)i / 3;
                for (size_t i = 0; i < n; i++) {
                    const float e = x[i] - rintf(fmaxf(fminf(x[i] / codes[t].s, high), low)) * codes[t].s;
                    want[i % LQ_LANES] += weighted ? weight[i] * e * e : e * e;
                }
                lq_cpu_of(dev)->rounds->loss(x, weighted ? weight : NULL, n, codes[t].s, codes[t].z, codes[t].bits,
                                                part);
                CHECK(!memcmp(part, want, sizeof part), "loss %s: %zu elements of scale %g are not those of the plain loop",
                      dev->isa, n, (double)codes[t].s);
            }
}

// Elements between two values of a table, and beyond its ends: the nearest, of two that are equally near the even code,
// and the same code where columns are rounded one by one.
static void check_ties(lq_dev *dev, const char *type) {
    enum { K = 256 };
    static double u[K * K];
    static const float one = 1;
    double v[256], sorted[16];
    int values = 0, at = 0, wrong = 0;
    rounding r[2];
    for (int i = 0; i < K * K; i++) u[i] = i / K == i % K;
    for (int way = 0; way < 2; way++) rounding_open(&r[way], type, 1, K, way ? u : NULL), r[way].a.given_scale = &one;
    const int count = values_of(&r[0].w.type, r[0].a.table, 0, v);
    for (double last = -INFINITY, next; last < INFINITY; last = next) {
        next = INFINITY;
        for (int i = 0; i < count; i++) next = v[i] > last && v[i] < next ? v[i] : next;
        if (next < INFINITY) sorted[values++] = next;
    }
    float *x = lq_mat_row(&r[0].a.w, 0);
    for (int i = 0; i + 1 < values; i++) {
        float e = (float)((sorted[i] + sorted[i + 1]) / 2);
        for (int ulp = 0; ulp < 3; ulp++) e = nextafterf(e, -INFINITY);
        for (int ulp = 0; ulp < 7; ulp++, e = nextafterf(e, INFINITY)) x[at++] = e;
        x[at++] = (float)sorted[i], x[at++] = (float)sorted[i] * 30;
    }
    while (at < K) x[at++] = (float)sorted[values - 1] * 1.5f;
    float kept[K];
    memcpy(kept, x, sizeof kept);
    memcpy(lq_mat_row(&r[1].a.w, 0), kept, sizeof kept);
    for (int way = 0; way < 2; way++) rounding_run(dev, &r[way], type);
    for (int c = 0; c < K; c++) {
        const uint32_t q = lq_code_get(r[0].w.q, r[0].w.type.bits, c);
        int even = 0;
        for (int i = 0; i < count; i += 2) even |= fabs((double)kept[c] - v[i]) == distance(v, count, (double)kept[c]);
        wrong += fabs((double)kept[c] - v[q]) > distance(v, count, (double)kept[c]) * (1 + EPS);
        wrong += even && q % 2; // only of exact ties may both be
        wrong += q != lq_code_get(r[1].w.q, r[1].w.type.bits, c);
    }
    CHECK(!wrong, "round %s %s: %d of what is between two values or beyond all", dev->isa, type, wrong);
    ck_done("round ties");
}

void check_round(lq_dev *ref, lq_dev *dev) {
    static const char *const types[] = {"int4 g16 sym f32", "int4 g32 asym f32", "int3 row sym f32",
                                        "int8 g48 asym f32", "int2 g256 sym f32",
                                        "e4m3 g32 f32", "e4m3 row f32", "table4 g16 f32"};
    lq_dev *other = twin_open(dev, 1);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_against_f64(dev, types[i], 9, 40, true);
        check_against_f64(dev, types[i], 35, 300, true);
        check_against_f64(dev, types[i], 35, 300, false);
        check_search(dev, types[i], 7, 130);
        check_same(dev, other, types[i], 150, 600, SPREAD);
        check_same(dev, other, types[i], 150, 600, NEAREST);
        for (way_to w = NEAREST; w <= SEARCHED; w++) check_same(dev, ref, types[i], 37, 330, w);
        check_refine(dev, types[i], 21, 100);
        check_refine_same(dev, ref, types[i], 21, 330);
    }
    check_search(dev, "mxfp4", 40, 160);
    check_search(dev, "e4m3 g32 e8m0", 40, 160);
    check_search(dev, "nf4 g64 f32", 7, 130);
    check_ties(dev, "fp4 row f32");
    check_ties(dev, "nf4 row f32");
    check_ties(dev, "table4 row f32");
    check_levels(dev, "nf4 g64 dq256", 9, 130);
    check_levels(dev, "int4 g16 dq256", 21, 100);
    check_levels(dev, "int3 g32 asym dq256", 21, 100);
    static const char *const bands[] = {"e4m3 tensor f32", "e4m3 g32 r16 f32", "int4 g32 r16 sym f32",
                                        "int8 tensor sym f32", "int8 row r4 sym f32"};
    for (size_t i = 0; i < sizeof bands / sizeof *bands; i++) {
        check_against_f64(dev, bands[i], 37, 100, false);
        check_same(dev, other, bands[i], 150, 600, NEAREST);
        check_same(dev, ref, bands[i], 37, 330, NEAREST);
        check_same(dev, ref, bands[i], 37, 330, SEARCHED);
        check_refine_same(dev, ref, bands[i], 21, 330);
    }
    static const char *const more[] = {"mxfp4", "nf4 g64 f16", "e4m3 g32 e8m0", "e5m2 row f32", "int5 g32 asym bf16"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (way_to w = NEAREST; w <= SEARCHED; w++) check_same(dev, ref, more[i], 37, 330, w);
    check_same(dev, ref, "bf16", 37, 330, NEAREST);
    check_same(dev, ref, "f16", 37, 330, NEAREST);
    if (dev->host) check_spread(dev), check_range(dev), check_loss(dev);
    check_refused(dev);
    lq_dev_close(other);
}
