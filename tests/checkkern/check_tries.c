// check_tries.c: the slot tries of a device against loops in f64: what a matrix loses under many factors at once, by
// moments and by rows of the text. What elements are rounded to is the slot round's of portable C, and what rows are,
// quant's; both are checked by themselves.
#include "tests/checkkern/check_ops.h"

typedef struct trying {
    lq_tries_args a;
    lq_dev *ref;
    int n, k, rows;
    float *back;          // [n][k] of the try at hand
    double *v;            // [rows][k] the same
} trying;

static float *factors_of(int tries, int k) {
    float *by = ck_buf(sizeof *by * (size_t)tries * (size_t)k, 0);
    for (int i = 0; i < tries * k; i++) by[i] = i < k ? 1 : (float)exp2(ck_uniform() * 2);
    return by;
}

// A sum of a few outer products, so that rows lose different things.
static float *moments_of(int k) {
    float *h = ck_buf(sizeof *h * (size_t)k * (size_t)k, 0), *x = ck_buf(sizeof *x * 8 * (size_t)k, 0);
    ck_fill(x, 8 * (size_t)k);
    for (int i = 0; i < k; i++)
        for (int j = 0; j <= i; j++) {
            double sum = i == j;
            for (int r = 0; r < 8; r++) sum += (double)x[r * k + i] * (double)x[r * k + j];
            h[i * k + j] = h[j * k + i] = (float)sum;
        }
    return h;
}

static trying trying_of(lq_dev *ref, const char *type, int n, int k, int tries) {
    trying t = {.ref = ref, .n = n, .k = k};
    lq_err err;
    lq_wtype w;
    CHECK(lq_wtype_parse(type, &w, &err), "%s", err.text);
    float *scale2 = ck_buf(sizeof *scale2 * (size_t)tries, 0), *map = ck_buf(256 * sizeof *map, 0);
    const size_t cells = (size_t)tries * (size_t)n * (size_t)lq_weight_groups(&w, k);
    float *level = w.dq ? ck_buf(cells * sizeof *level, 0) : NULL, *offset = ck_buf(sizeof *offset * (size_t)tries, 0);
    for (size_t i = 0; level && i < cells; i++) level[i] = (float)(0.05 + 0.02 * ck_uniform());
    for (int i = 0; i < tries; i++) offset[i] = (float)(0.06 + 0.01 * ck_uniform());
    for (int i = 0; i < tries; i++) scale2[i] = (float)(30 * (1 + 0.5 * ck_uniform()) / (448 * 6));
    for (int i = 0; i < 256; i++) map[i] = (float)((2 * i - 255) / 255.0);
    bool *wide = ck_buf(sizeof *wide * (size_t)tries, 0);
    memset(wide, 1, sizeof *wide * (size_t)tries);
    t.a = (lq_tries_args){.w = ck_mat(n, k, 3), .tries = tries, .by = factors_of(tries, k), .type = w,
                          .table = lq_wtype_table(&w), .scale2 = scale2, .scale_by = level, .scale_map = map,
                          .scale_offset = offset, .wide = wide};
    t.back = ck_buf(sizeof *t.back * (size_t)n * (size_t)k, 0);
    return t;
}

// What the try makes of the matrix. False: a scale is too small.
static bool round_try(trying *t, int at) {
    lq_weight_size size;
    int64_t bad[2];
    bool wide;
    lq_mat w = ck_mat(t->n, t->k, 0);
    const size_t n = (size_t)t->n, row = (size_t)at * n * (size_t)lq_weight_groups(&t->a.type, t->k);
    for (int r = 0; r < t->n; r++)
        for (int c = 0; c < t->k; c++) lq_mat_row(&w, r)[c] = lq_mat_row(&t->a.w, r)[c] * t->a.by[at * t->k + c];
    lq_weight_sizes(&t->a.type, t->n, t->k, &size);
    t->ref->ops.round(t->ref, &(lq_round_args){
        .w = w, .type = t->a.type, .table = t->a.table, .scale2 = t->a.scale2[at],
        .scale_by = t->a.scale_by ? t->a.scale_by + row : NULL, .scale_map = t->a.scale_map,
        .scale_offset = t->a.scale_offset[at], .q = ck_buf(size.q, 0), .scale = ck_buf(size.scale, 0),
        .zero = ck_buf(size.zero, 0), .back = t->back, .error = ck_buf(8 * n, 0), .norm = ck_buf(8 * n, 0), .bad = bad,
        .wide = &wide});
    return !wide;
}

// d is two roundings off, and a product of it with a row of h as many as it has terms.
static void check_moments(lq_dev *ref, lq_dev *dev, const char *type, int n, int k, int tries) {
    trying t = trying_of(ref, type, n, k, tries);
    int wrong = 0;
    double worst = 0;
    float *h = moments_of(k);
    double *d = ck_buf(sizeof *d * (size_t)k, 0);
    t.a.h = h;
    t.a.loss = ck_buf(sizeof *t.a.loss * (size_t)tries * (size_t)n, 0);
    dev->ops.tries(dev, &t.a);
    for (int at = 0; at < tries; at++) {
        const bool fits = round_try(&t, at);
        wrong += t.a.wide[at] == fits;
        for (int r = 0; r < n && fits; r++) {
            double loss = 0, terms = 0;
            for (int c = 0; c < k; c++) {
                const float by = t.a.by[at * k + c];
                d[c] = ((double)(lq_mat_row(&t.a.w, r)[c] * by) - (double)t.back[r * k + c]) / (double)by;
            }
            for (int i = 0; i < k; i++)
                for (int j = 0; j < k; j++) {
                    loss += d[i] * (double)h[i * k + j] * d[j];
                    terms += fabs(d[i] * (double)h[i * k + j] * d[j]);
                }
            const double off = fabs(t.a.loss[at * n + r] - loss), room = EPS * (k + 5) * terms;
            wrong += !(off <= room);
            worst = room > 0 ? fmax(worst, off / room) : worst;
        }
    }
    CHECK(wrong == 0 && ck_gaps(&t.a.w), "tries %s %s %d x %d: %d losses of %d tries are wrong, %.2g of what may be",
          dev->isa, type, n, k, wrong, tries, worst);
    ck_done("tries by moments");
}

// Rows divided by the factors of a try, as their codes say.
static void round_text(trying *t, int at) {
    const lq_atype type = t->a.act;
    lq_mat x = ck_mat(t->rows, t->k, 0);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->k; c++) lq_mat_row(&x, r)[c] = lq_mat_row(&t->a.x, r)[c] / t->a.by[at * t->k + c];
    lq_weight reader = ck_reader(type, t->k);
    reader.act_scale = t->a.fixed + at, reader.act_zero = t->a.fixed_zero + at;
    const lq_act a = type.elem == LQ_F32 ? (lq_act){.x = x} : ck_act_of(&x, &reader, false);
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->k; c++) {
            double v = (double)lq_mat_row(&x, r)[c];
            if (type.elem == LQ_I8) {
                const size_t cell = (size_t)c / a.q_row * (size_t)a.apart + (size_t)r;
                const int code = ((const int8_t *)a.q)[cell * a.q_row + (size_t)c % a.q_row];
                v = (double)(code - (type.asym ? a.zero[r] : 0)) * (double)a.scale[cell];
            } else if (type.elem == LQ_E4M3) {
                v = ck_small(&a, r, c) * (double)a.scale[(size_t)c / a.q_group * (size_t)a.apart + (size_t)r];
            }
            t->v[r * t->k + c] = v;
        }
}

// What the products differ from y, squared and summed; *room: what f32 may make of it, where each product is as many
// roundings off as it has terms, and what stands for a code one.
static double error_of(const trying *t, double *room) {
    double sum = 0;
    *room = 0;
    for (int r = 0; r < t->rows; r++)
        for (int i = 0; i < t->n; i++) {
            double e = -(double)lq_mat_row(&t->a.y, r)[i], terms = fabs(e);
            for (int c = 0; c < t->k; c++) {
                e += t->v[r * t->k + c] * (double)t->back[i * t->k + c];
                terms += fabs(t->v[r * t->k + c] * (double)t->back[i * t->k + c]);
            }
            const double off = EPS * (t->k + 6) * terms;
            sum += e * e;
            *room += (2 * fabs(e) + off) * off;
        }
    return sum;
}

static void check_text(lq_dev *ref, lq_dev *dev, const char *type, int n, int k, int rows) {
    enum { AT_ONCE = 5 };
    trying t = trying_of(ref, type, n, k, AT_ONCE);
    float fixed[AT_ONCE];
    int32_t zero[AT_ONCE];
    double loss[AT_ONCE], room;
    int wrong = 0;
    t.rows = rows;
    t.a.x = ck_mat(rows, k, 2), t.a.y = ck_mat(rows, n, 1);
    t.a.act = lq_act_type(dev, &t.a.type);
    t.a.fixed = fixed, t.a.fixed_zero = zero;
    t.a.loss = loss;
    for (int i = 0; i < AT_ONCE; i++) fixed[i] = 0.2f + 0.05f * (float)i, zero[i] = i - 2, loss[i] = i;
    t.v = ck_buf(sizeof *t.v * (size_t)rows * (size_t)k, 0);
    dev->ops.tries(dev, &t.a);
    for (int at = 0; at < AT_ONCE; at++) {
        const bool fits = round_try(&t, at);
        round_text(&t, at);
        const double sum = at + error_of(&t, &room);
        wrong += fits ? !(fabs(loss[at] - sum) <= room + 1e-12 * sum) : loss[at] != at;
        wrong += t.a.wide[at] == fits;
    }
    CHECK(wrong == 0 && ck_gaps(&t.a.x) && ck_gaps(&t.a.y), "tries %s %s %d x %d of %d rows: %d errors are wrong",
          dev->isa, type, n, k, rows, wrong);
    ck_done("tries by rows");
}

// An element that has no code, and a scale that F16 has not: of these tries alone.
static void check_odd(lq_dev *ref, lq_dev *dev) {
    enum { N = 20, K = 64, SMALL = 2, LARGE = 3, AT_ONCE = 4 };
    for (int rows = 0; rows < 2; rows++) {
        trying t = trying_of(ref, "int4 g32 asym f16", N, K, AT_ONCE);
        float *by = (float *)(uintptr_t)t.a.by;
        double loss[AT_ONCE * N];
        for (int c = 0; c < K; c++) by[SMALL * K + c] = 0x1p-24f, by[LARGE * K + c] = 1;
        by[LARGE * K + 5] = 0x1p127f;
        lq_mat_row(&t.a.w, 7)[5] = 3;
        t.a.type.scale = LQ_F32;
        t.a.h = rows ? NULL : moments_of(K);
        if (rows) t.a.x = ck_mat(3, K, 0), t.a.y = ck_mat(3, N, 0);
        t.a.act = lq_act_type(dev, &t.a.type);
        t.a.loss = memset(loss, 0, sizeof loss);
        dev->ops.tries(dev, &t.a);
        CHECK(isnan(loss[rows ? LARGE : LARGE * N + 7]) && loss[SMALL] >= 0 && !t.a.wide[SMALL] && !t.a.wide[LARGE],
              "tries %s, way %d: what cannot be coded is %g", dev->isa, rows, loss[rows ? LARGE : LARGE * N + 7]);
        by[LARGE * K + 5] = 1;
        t.a.type.scale = LQ_F16;
        memset(loss, 0, sizeof loss);
        dev->ops.tries(dev, &t.a);
        CHECK(t.a.wide[SMALL] && !t.a.wide[0] && !t.a.wide[1] && !t.a.wide[LARGE] && loss[0] > 0,
              "tries %s, way %d: scales below F16's are told of others", dev->isa, rows);
        CHECK(!rows || (loss[SMALL] == 0 && loss[LARGE] > 0), "tries %s: %g is added where a scale has no F16",
              dev->isa, loss[SMALL]);
        ck_done("tries that fail");
    }
}

// The same rows of another plain type, and again.
static void check_types(lq_dev *ref, lq_dev *dev) {
    enum { N = 12, K = 80, AT_ONCE = 3 };
    trying t = trying_of(ref, "int4 g16 sym f32", N, K, AT_ONCE);
    double loss[3][AT_ONCE * N];
    uint16_t *half = ck_buf(sizeof *half * N * K, 0);
    t.a.h = moments_of(K);
    for (int r = 0; r < N; r++) {
        lq_dtypes[LQ_BF16].from_f32(lq_mat_row(&t.a.w, r), half + r * K, K);
        lq_dtypes[LQ_BF16].to_f32(half + r * K, lq_mat_row(&t.a.w, r), K);
    }
    for (int way = 0; way < 3; way++) {
        t.a.loss = loss[way];
        if (way == 2) t.a.w = (lq_mat){.p = half, .type = LQ_BF16, .rows = N, .cols = K, .stride = K};
        dev->ops.tries(dev, &t.a);
    }
    CHECK(!memcmp(loss[0], loss[1], sizeof *loss), "tries %s: other bits the second time", dev->isa);
    CHECK(!memcmp(loss[0], loss[2], sizeof *loss), "tries %s: other bits of bf16", dev->isa);
    ck_done("tries of bf16");
}

void check_tries(lq_dev *ref, lq_dev *dev) {
    static const char *const types[] = {"int4 g32 asym f16", "int3 g16 sym f32", "int8 row sym f32", "nf4 g64 f16",
                                        "mxfp4", "nvfp4", "e5m2 row f32", "e4m3 tensor f32", "int4 g32 r16 f32",
                                        "int4 g16 dq256", "nf4 g64 dq256"};
    static const char *const acts[] = {"int4 g32 asym f16", "int8 row sym f32 act i8 row",
                                       "int8 row sym f32 act i8 tensor",
                                       "int8 row sym f32 act i8 tensor asym", "int4 g64 asym f16 act i8 g32",
                                       "e4m3 row f32 act e4m3 row", "e4m3 g128 r128 f32 act e4m3 g128",
                                       "e4m3 tensor f32 act e4m3 tensor"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) check_moments(ref, dev, types[i], 21, 130, 6);
    check_moments(ref, dev, "int4 g32 asym f16", 150, 96, 4);
    check_moments(ref, dev, "int4 g16 sym f32", 5, 40, 70);
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) check_text(ref, dev, acts[i], 19, 256, 7);
    check_odd(ref, dev);
    check_types(ref, dev);
}
