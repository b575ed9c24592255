// check_matmul.c: the slots quant, matmul and moe of a device: threads, several matrices at once, bias, perm and
// smooth, outlier columns, exact mode of every kind of weight.
#include "tests/checkkern/checkkern.h"

static lq_mat mat_of(int rows, int cols) { return ck_mat(rows, cols, 2); }

// --- quant ---

static bool act_same(const lq_act *a, const lq_act *b) {
    const size_t G = (size_t)a->type.group, groups = ((size_t)a->x.cols + G - 1) / G, rows = (size_t)a->x.rows;
    bool ok = true;
    for (size_t g = 0; g < groups; g++) {
        const size_t at = g * (size_t)a->apart, bt = g * (size_t)b->apart;
        ok &= !memcmp((int8_t *)a->q + at * G, (int8_t *)b->q + bt * G, rows * G) &&
            !memcmp(a->sum + at, b->sum + bt, rows * 4);
        for (size_t r = 0; r < rows; r++) ok &= ck_same(a->scale[at + r], b->scale[bt + r]);
    }
    return ok;
}

// The rule, in f64 and from the header's words: within half a step of x, the largest at 127, the sum the sum.
static bool act_true(const lq_act *a, const lq_mat *v) {
    const int G = a->type.group;
    bool ok = true;
    for (int r = 0; r < v->rows; r++)
        for (int g = 0; g * G < v->cols; g++) {
            const size_t u = (size_t)g * (size_t)a->apart + (size_t)r;
            const int8_t *q = (const int8_t *)a->q + u * (size_t)G;
            const float *x = lq_mat_row(v, r) + g * G;
            const int n = v->cols - g * G < G ? v->cols - g * G : G;
            double top = 0;
            int sum = 0, highest = 0;
            for (int i = 0; i < n; i++) top = fmax(top, fabs((double)x[i]));
            ok &= a->scale[u] == (float)top / 127.0f;
            for (int i = 0; i < n; i++) {
                ok &= fabs((double)x[i] - (double)q[i] * top / 127) <= top / 127 * (0.5 + 127 * 0x1p-22);
                highest = abs(q[i]) > highest ? abs(q[i]) : highest;
            }
            for (int i = 0; i < G; i++) sum += q[i];
            for (int i = n; i < G; i++) ok &= q[i] == 0;
            ok &= sum == a->sum[u] && (top == 0 || highest == 127);
        }
    return ok;
}

// Groups that are tiny, huge or not numbers: the same on all ISAs, and as pack.h says.
static void check_quant_extremes(lq_dev *ref, lq_dev *dev) {
    static const float tops[] = {0, -0.0f, 1e-45f, 1e-38f, 0x1.fffffep-101f, 0x1p-100f, 1e-20f, 1e20f, 3.4e38f,
                                 INFINITY, -INFINITY, NAN, -NAN};
    enum { TOPS = sizeof tops / sizeof *tops, G = 32, K = 2 * G + 8 };
    const lq_mat x = mat_of(TOPS, K);
    for (int r = 0; r < TOPS; r++)
        for (int i = 0; i < K; i++) lq_mat_row(&x, r)[i] = i % 7 == 3 ? tops[r] : i % 2 ? -tops[r] / 3 : 0;
    lq_act p = {.x = x}, q = {.x = x};
    const lq_atype t = {.elem = LQ_I8, .group = G};
    const lq_weight reader = ck_reader(t, K);
    lq_act_bind(dev, &p, &reader, TOPS, ck_buf(lq_act_bytes(dev, &reader, TOPS), 0));
    lq_act_bind(ref, &q, &reader, TOPS, ck_buf(lq_act_bytes(ref, &reader, TOPS), 0));
    dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &p});
    ref->ops.quant(ref, &(lq_quant_args){.x = x, .act = &q});
    CHECK(act_same(&p, &q), "quant %s: extreme groups have other bits than portable C", dev->isa);
    for (int u = 0; u < 3 * TOPS; u++) {
        const float top = fabsf(tops[u % TOPS]);
        int most = 0;
        for (int i = 0; i < G; i++)
            most = abs(((int8_t *)p.q)[u * G + i]) > most ? abs(((int8_t *)p.q)[u * G + i]) : most;
        const bool tiny = top < 0x1p-100f, sick = !isfinite(top);
        CHECK(tiny   ? p.scale[u] == 0
              : sick ? !isfinite(p.scale[u])
                     : p.scale[u] == top / 127.0f,
              "quant %s: scale of a group of %g", dev->isa, (double)top);
        CHECK(most == (tiny || sick ? 0 : 127), "quant %s: codes of a group of %g reach %d", dev->isa, (double)top,
              most);
    }
    ck_done("quant of extremes");
}

static void check_quant(lq_dev *ref, lq_dev *dev) {
    static const int shapes[][3] = {{1, 16, 16},     {1, 2048, 128},   {3, 100, 32}, {17, 389, 64},
                                    {70, 1500, 128}, {2, 40000, 4096}, {5, 96, 48},  {33, 700, 20}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int rows = shapes[s][0], k = shapes[s][1];
        const lq_atype t = {.elem = LQ_I8, .group = shapes[s][2]};
        const lq_mat x = mat_of(rows, k);
        float *smooth = ck_buf((size_t)k * 4, 0);
        int32_t *perm = ck_buf((size_t)k * 4, 0), out[2] = {k / 3, k - 1};
        ck_fill(smooth, (size_t)k);
        for (int i = 0; i < k; i++) perm[i] = i;
        for (int i = k - 1; i > 0; i--) {
            const int j = ck_below(i + 1), keep = perm[i];
            perm[i] = perm[j];
            perm[j] = keep;
        }
        for (int way = 0; way < 10; way++) {
            const lq_mat v = mat_of(rows, k), turned = mat_of(rows, k), keep = mat_of(rows, k); // v: what is rounded
            lq_weight w = ck_reader(t, k);
            w.smooth = way & 1 ? smooth : NULL;
            w.perm = way & 2 ? perm : NULL;
            w.outlier = out;
            w.outliers = way >= 4 && way < 8 ? 2 : 0;
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < k; j++) {
                    const int c = w.perm ? perm[j] : j;
                    lq_mat_row(&turned, r)[j] = lq_mat_row(&x, r)[c] * (w.smooth ? smooth[c] : 1);
                    lq_mat_row(&v, r)[j] = w.outliers && (j == out[0] || j == out[1]) ? 0 : lq_mat_row(&turned, r)[j];
                }
            lq_act p = {.x = way & 1 || way > 7 ? keep : x}, q = {0};
            lq_act_bind(dev, &p, &w, rows, ck_buf(lq_act_bytes(dev, &w, rows), 0));
            lq_act_bind(ref, &q, &w, rows, ck_buf(lq_act_bytes(ref, &w, rows), 0));
            dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &p});
            ref->ops.quant(ref, &(lq_quant_args){.x = x, .act = &q});
            CHECK(act_same(&p, &q), "quant %s rows %d k %d group %d way %d: other bits than portable C", dev->isa, rows,
                  k, t.group, way);
            CHECK(act_true(&p, &v), "quant %s rows %d k %d group %d way %d: not the rule", dev->isa, rows, k, t.group,
                  way);
            if (p.x.p == keep.p) CHECK(ck_mat_same(&keep, &turned), "quant %s: x in stored order", dev->isa);
        }
        const lq_mat plain = mat_of(rows, k);
        lq_act p = {.x = plain, .smooth = smooth};
        dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &p});
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < k; j++)
                if (!ck_same(lq_mat_row(&plain, r)[j], lq_mat_row(&x, r)[j] * smooth[j]))
                    CHECK(false, "quant %s: plain x is not x * smooth", dev->isa);
        ck_done("quant");
    }
}

// Every E4M3 number that is finite and not negative, from its definition: 4 bits of exponent less 7, 3 of fraction.
static double e4m3_number(int code) {
    return code < 8 ? ldexp(code, -9) : ldexp(1 + code % 8 / 8.0, code / 8 - 7);
}

static double e4m3_nearest(double v) { // ties to the even code
    enum { LAST = 0x7e };
    const double size = fabs(v);
    int best = 0;
    for (int c = 1; c <= LAST; c++) {
        const double now = fabs(size - e4m3_number(c)), was = fabs(size - e4m3_number(best));
        if (now < was || (now == was && c % 2 == 0)) best = c;
    }
    return v < 0 ? -e4m3_number(best) : e4m3_number(best);
}

// All numbers, the middles between them and what is beside those, and what is too large: with the file's scale of 1.
static void check_e4m3(lq_dev *dev) {
    enum { K = 0x7f * 8 + 8 };
    const float one = 1;
    lq_weight w = ck_reader((lq_atype){.elem = LQ_E4M3, .fixed = true}, K);
    w.act_scale = &one;
    const lq_mat x = mat_of(1, K);
    float *v = x.p;
    for (int c = 0; c < 0x7f; c++) {
        const double mid = (e4m3_number(c) + (c < 0x7e ? e4m3_number(c + 1) : 480)) / 2;
        const float near[4] = {(float)e4m3_number(c), (float)mid, nextafterf((float)mid, 0),
                               nextafterf((float)mid, 1e9f)};
        for (int i = 0; i < 8; i++) v[c * 8 + i] = i < 4 ? near[i] : -near[i - 4];
    }
    for (int i = 0; i < 8; i++)
        v[K - 8 + i] = (float[]){460, -470, 1e9f, -3e38f, 1e-40f, -1e-5f, 0x1p-10f, 0x1.000002p-10f}[i];
    lq_act a = {0};
    lq_act_bind(dev, &a, &w, 1, ck_buf(lq_act_bytes(dev, &w, 1), 0));
    dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &a});
    int wrong = 0;
    for (int i = 0; i < K; i++) wrong += ck_small(&a, 0, i) != e4m3_nearest((double)v[i]);
    CHECK(wrong == 0, "quant %s: %d numbers of E4M3 are not the nearest", dev->isa, wrong);
    ck_done("quant e4m3");
}

// What is rounded with a scale of the row or of the file, or in other groups than the weight's: the rule of ops.h,
// number by number, on v made apart; then the fused act of norm against quant.
static void check_form(lq_dev *dev, lq_atype t, int group, int rows, int k, int way) {
    static const float fixed = 0.043f;
    static const int32_t zero = -37;
    char what[160];
    snprintf(what, sizeof what, "quant %s %s g%d%s of a weight's g%d, k %d way %d", dev->isa, lq_dtypes[t.elem].name,
             t.group, t.fixed ? " fixed" : "", group, k, way);
    const bool i8 = t.elem == LQ_I8;
    lq_weight w = ck_reader(t, k);
    w.type.group = group;
    w.act_scale = &fixed;
    w.act_zero = &zero;
    float *smooth = ck_buf((size_t)k * 4, 0);
    int32_t *perm = ck_buf((size_t)k * 4, 0), out[2] = {k / 3, k - 1};
    for (int i = 0; i < k; i++) {
        smooth[i] = (float)(1 + 0.3 * ck_uniform());
        perm[i] = k - 1 - i;
    }
    w.smooth = way & 1 ? smooth : NULL;
    w.perm = way & 2 ? perm : NULL;
    w.outlier = out;
    w.outliers = way & 4 ? 2 : 0;
    lq_mat x = mat_of(rows, k), y = mat_of(rows, k), v = mat_of(rows, k);
    if (rows > 2) lq_mat_row(&x, 2)[k / 2] = INFINITY;
    lq_act a = {.x = way & 1 ? v : (lq_mat){0}}, b = a;
    const size_t bytes = lq_act_bytes(dev, &w, rows);
    void *pa = ck_buf(bytes, 0), *pb = ck_buf(bytes, 0);
    memset(pa, 0, bytes);
    memset(pb, 0, bytes);
    lq_act_bind(dev, &a, &w, rows, pa);
    lq_act_bind(dev, &b, &w, rows, pb);
    dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &a});
    const int cell = (int)(i8 ? a.q_row : a.q_group), span = t.group ? t.group : k;
    int wrong = 0;
    for (int r = 0; r < rows; r++) {
        float *u = lq_mat_row(&y, r); // v, as the rule takes it
        for (int j = 0; j < k; j++) {
            const int c = w.perm ? perm[j] : j;
            u[j] = (w.outliers && (j == out[0] || j == out[1])) ? 0 : w.smooth ? lq_mat_row(&x, r)[c] * smooth[c]
                : lq_mat_row(&x, r)[c];
        }
        for (int s0 = 0; s0 < k; s0 += span) {
            const int s1 = s0 + span < k ? s0 + span : k;
            float most = 0;
            for (int j = s0; j < s1; j++) most = fabsf(u[j]) > most ? fabsf(u[j]) : most;
            const float top = i8 ? 127 : 448, scale = t.fixed ? fixed : most / top;
            const float by = t.fixed ? 1 / fixed : top / most;
            for (int j = s0; j < s1; j++) {
                const size_t at = (size_t)(j / cell) * (size_t)a.apart + (size_t)r;
                if (!isfinite(most)) {
                    wrong += isfinite(a.scale[at]) != 0;
                    continue;
                }
                wrong += a.scale[at] != scale;
                const double code = i8 ? fmin(127, fmax(t.asym ? -128 : -127,
                                                        rint((double)(u[j] * by)) + (t.asym ? zero : 0)))
                                       : e4m3_nearest((double)(u[j] * by));
                wrong += code != (i8 ? ((int8_t *)a.q)[at * (size_t)cell + (size_t)(j % cell)]
                                  : ck_small(&a, r, j));
            }
        }
        for (int c = 0; i8 && c * cell < k; c++) {
            const size_t at = (size_t)c * (size_t)a.apart + (size_t)r;
            int sum = 0;
            for (int j = 0; j < cell; j++) sum += ((int8_t *)a.q)[at * (size_t)cell + (size_t)j];
            wrong += sum != a.sum[at];
        }
        if (t.asym) wrong += a.zero[r] != zero;
    }
    CHECK(wrong == 0, "%s: %d things are not the rule", what, wrong);
    const lq_mat n = mat_of(rows, k);
    dev->ops.norm(dev, &(lq_norm_args){.eps = 1e-6f, .x = x, .y = n, .act = &b});
    dev->ops.quant(dev, &(lq_quant_args){.x = n, .act = &a});
    CHECK(!memcmp(pa, pb, bytes), "%s: the act of norm differs from quant of y", what);
    dev->ops.glu(dev, &(lq_glu_args){.gate = x, .up = n, .y = n, .act = &b});
    dev->ops.quant(dev, &(lq_quant_args){.x = n, .act = &a});
    CHECK(!memcmp(pa, pb, bytes), "%s: the act of glu differs from quant of y", what);
    ck_done(what);
}

static void check_forms(lq_dev *dev) {
    static const struct { lq_atype t; int group; } forms[] = {
        {{.elem = LQ_I8}, 0}, {{.elem = LQ_I8, .fixed = true}, 0}, {{.elem = LQ_I8, .fixed = true, .asym = true}, 0},
        {{.elem = LQ_I8}, 32}, {{.elem = LQ_I8, .group = 128}, 32}, {{.elem = LQ_I8, .group = 32}, 128},
        {{.elem = LQ_I8, .fixed = true}, 64}, {{.elem = LQ_E4M3}, 0}, {{.elem = LQ_E4M3, .group = 128}, 128},
        {{.elem = LQ_E4M3}, 128}, {{.elem = LQ_E4M3, .fixed = true}, 0},
    };
    check_e4m3(dev);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (int way = 0; way < 8; way++)
            check_form(dev, forms[f].t, forms[f].group, way % 3 + 1, way % 2 ? 389 : 256, way);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) // a row that several threads make, where they may
        check_form(dev, forms[f].t, forms[f].group, 1, 3333, 0);
    check_form(dev, (lq_atype){.elem = LQ_I8}, 0, 2, 100000, 2); // more columns than a worker has scratch for
    check_form(dev, (lq_atype){.elem = LQ_E4M3}, 0, 2, 100000, 6);
}

// --- matmul ---

static const lq_wtype types[] = {
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .asym = true, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 3, .group = 64, .scale = LQ_F32},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = 1 /* fp4 */, .group = 32, .scale = LQ_E8M0},
    {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F32, .act = {.elem = LQ_I8}},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F32, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 64, .scale = LQ_F16, .act = {.elem = LQ_I8}},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 5, .group = 32, .asym = true, .scale = LQ_F16,
     .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F32, .act = {.elem = LQ_E4M3}},
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128, .scale = LQ_F32,
     .act = {.elem = LQ_E4M3, .group = 128}},
    // moe to here
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .rows = LQ_ROWS_ALL, .scale = LQ_F32,
     .act = {.elem = LQ_E4M3, .fixed = true}},
    {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 64, .scale = LQ_F32},
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128, .scale = LQ_F32},
    {.kind = LQ_W_FLOAT, .elem = LQ_E5M2, .bits = 8, .group = 2048, .scale = LQ_F16, .act = {.elem = LQ_E4M3}},
};
enum { TYPES = sizeof types / sizeof *types, MOE_TYPES = 13 };

// In the form of `like`, which is of as many columns.
static lq_act act_as(const lq_mat *x, const lq_weight *w, const lq_act *like) {
    const bool bf16 = like->halves || like->type.elem == LQ_BF16;
    return like->type.elem == LQ_F32 ? ck_act(x, (lq_atype){0}) : ck_act_of(x, w, bf16);
}

// y = x w^T + bias for one row at a time on one thread: what a matmul of any shape on any number of threads must equal.
static void row_by_row(lq_dev *dev, const lq_weight *w, const lq_mat *x, const lq_act *like, const float *bias,
                       const lq_mat *y) {
    for (int m = 0; m < x->rows; m++) {
        lq_mat row = *x;
        row.p = lq_mat_row(x, m);
        row.rows = 1;
        const lq_act a = act_as(&row, w, like);
        lq_mat to = *y;
        to.p = lq_mat_row(y, m);
        to.rows = 1;
        dev->ops.matmul(dev, &(lq_matmul_args){.x = &a, .count = 1, .w = {w}, .bias = {bias}, .y = {to}});
    }
}

// Against f64: the weight's rows times what the activation says it holds. Roundings: of an f32 product
// within a cell, then of each cell.
// rough: f32 by tiles of bf16 is 2^-15 of each product off; a sum of 32 k is rounded 16 + 1 times, and three are
// added to what is there; numbers and sums below 2^-126 are 0.
static bool close_f64(const lq_weight *any, lq_layout layout, const lq_act *a, const float *bias, const lq_mat *y,
                      bool rough) {
    float *row = ck_buf((size_t)any->k * 4, 0);
    const int64_t k0 = any->k, cell = a->type.elem == LQ_I8 ? (int64_t)a->q_row : a->type.elem == LQ_E4M3
        ? (int64_t)a->q_group : k0;
    const int64_t chain = ck_chain(&any->type, layout, a->type.elem, k0);
    const double blocks = (double)(chain + k0 / LQ_K_CUT + 3 * ((k0 + cell - 1) / cell) + any->outliers + 2);
    const double off = rough ? 0x1p-15 + 0x1p-24 * (17 + 3 * ((double)k0 / 32 + 1)) : 0;
    bool ok = true;
    for (int64_t n = 0; n < any->n; n++) {
        lq_weight_row_any(any, n, row);
        for (int m = 0; m < y->rows; m++) {
            double want = bias ? (double)bias[n] : 0, size = fabs(want), small = 0;
            for (int64_t k = 0; k < k0; k++) {
                const int64_t at = k / cell * a->apart + m;
                double x;
                if (a->type.elem == LQ_F32) x = (double)lq_mat_row(&a->x, m)[k];
                else if (a->type.elem == LQ_BF16)
                    x = (double)lq_bf16_f32(((const uint16_t *)a->q)[(size_t)m * a->q_row + (size_t)k]);
                else if (a->type.elem == LQ_E4M3)
                    x = ck_small(a, m, k) * (double)a->scale[at];
                else x = (((int8_t *)a->q)[at * cell + k % cell] - (a->zero ? a->zero[m] : 0)) * (double)a->scale[at];
                want += (double)row[k] * x;
                size += fabs((double)row[k] * x);
                small += 0x1p-126 * (4 + fabs(x) + fabs((double)row[k]));
            }
            const double room = (0x1p-24 * (blocks + 4) + off) * size + (rough ? small : 0);
            ok &= fabs((double)lq_mat_row(y, m)[n] - want) <= room;
        }
    }
    return ok;
}

static void check_slot(lq_dev *dev, lq_dev *one, const lq_wtype *t, bool exact, int rows, int k) {
    const int ns[3] = {75, CK_WATCHED && rows > 7 ? 33 : 300, 16};
    char what[200], name[64];
    lq_wtype_name(t, name, sizeof name);
    snprintf(what, sizeof what, "matmul %s %s%s rows %d k %d", dev->isa, name, exact ? " exact" : "", rows, k);
    const lq_mat x = mat_of(rows, k);
    lq_weight any[3], w[3];
    lq_act a = {.x = x};
    lq_matmul_args args = {.x = &a, .count = 3};
    dev->numerics = exact ? LQ_NUM_EXACT : LQ_NUM_DEFAULT;
    const bool rough = dev->host && lq_cpu_of(dev)->rough;
    for (int i = 0; i < 3; i++) {
        any[i] = ck_weight(t, ns[i], k, 0);
        any[i].act_scale = any[0].act_scale; // they read one x
        any[i].act_zero = any[0].act_zero;
        w[i] = ck_weight_on(dev, &any[i]);
        args.w[i] = &w[i];
        args.y[i] = mat_of(rows, ns[i]);
        if (i == 1) continue;
        float *bias = ck_buf((size_t)ns[i] * 4, 4);
        ck_fill(bias, (size_t)ns[i]);
        args.bias[i] = bias;
    }
    CHECK(lq_act_same(dev, &w[0], &w[1]) && lq_act_same(dev, &w[0], &w[2]), "%s: one act for three weights of a type",
          what);
    lq_act_bind(dev, &a, &w[0], rows, ck_buf(lq_act_bytes(dev, &w[0], rows), 0));
    dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &a});
    dev->numerics = LQ_NUM_DEFAULT;
    dev->ops.matmul(dev, &args);
    for (int i = 0; i < 3; i++) {
        const lq_mat z = mat_of(rows, ns[i]);
        row_by_row(one, &w[i], &x, &a, args.bias[i], &z);
        CHECK(ck_mat_same(&args.y[i], &z), "%s matrix %d: other bits than row by row on one thread", what, i);
        CHECK(ck_gaps(&args.y[i]), "%s matrix %d: wrote between rows", what, i);
        CHECK(close_f64(&any[i], w[i].layout, &a, args.bias[i], &args.y[i], rough), "%s matrix %d: far from f64", what,
              i);
    }
    ck_done(what);
}

// The code of a column stands for 0.
static void set_nothing(const lq_weight *w, int64_t row, int64_t c) {
    const lq_wtype *t = &w->type;
    const int64_t groups = lq_weight_groups(t, w->k);
    uint8_t *q = (uint8_t *)(uintptr_t)w->q;
    const uint8_t *zero = w->zero + (size_t)row * lq_code_row_bytes(t->bits, groups);
    uint32_t code = t->asym ? lq_code_get(zero, t->bits, t->group ? c / t->group : 0) : 1u << (t->bits - 1);
    if (t->kind == LQ_W_FLOAT) {
        q[(size_t)row * (size_t)w->k + (size_t)c] = 0;
        return;
    }
    for (uint32_t i = 0; t->kind == LQ_W_TABLE && i < 1u << t->bits; i++)
        if (lq_wtype_table(t)[i] == 0) code = i;
    lq_code_set(q + (size_t)row * lq_code_row_bytes(t->bits, w->k), t->bits, c, code);
}

// perm, smooth and outlier columns: quant and matmul together against f64 on lq_weight_row,
// which knows the logical columns.
static void check_columns(lq_dev *dev, const char *type, int rows, int apart, int way, bool exact) {
    enum { K = 1200, APART = 1100 };
    const bool outliers = way & 1;
    double rough = dev->host && lq_cpu_of(dev)->rough ? 0x1p-15 : 0;
    const int k = K, n = 70;
    lq_wtype t;
    lq_err err;
    if (!lq_wtype_parse(type, &t, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    lq_weight any = ck_weight(&t, n, k, 0);
    const lq_mat x = mat_of(rows, k), v = mat_of(rows, k), y = mat_of(rows, n);
    int32_t *perm = ck_buf((size_t)k * 4, 0), *out = ck_buf(APART * 4, 0);
    uint16_t *out_w = ck_buf((size_t)n * APART * 2, 0);
    float *smooth = ck_buf((size_t)k * 4, 0), *ones = ck_buf((size_t)k * 4, 0), *row = ck_buf((size_t)k * 4, 0);
    float *row2 = ck_buf((size_t)k * 4, 0);
    for (int i = 0; i < k; i++) {
        perm[i] = (i * 7 + 5) % k; // 7 and k have no common factor
        smooth[i] = (float)(1.5 + ck_uniform());
        ones[i] = 1;
    }
    for (int i = 0; i < apart; i++) out[i] = (11 + i * 101) % k; // 101 and k have none either
    for (int i = 0; i < n * apart; i++) out_w[i] = lq_f32_bf16((float)ck_uniform());
    if (outliers) {
        any.outliers = apart;
        any.outlier = out;
        any.outlier_w = out_w;
        for (int64_t r = 0; r < n; r++)
            for (int i = 0; i < apart; i++) set_nothing(&any, r, out[i]);
    }
    if (way != 1) any.perm = perm;
    any.smooth = smooth;
    dev->numerics = exact ? LQ_NUM_EXACT : LQ_NUM_DEFAULT;
    const lq_weight w = ck_weight_on(dev, &any);
    const lq_atype at = lq_act_type(dev, &t);
    if (at.elem == LQ_BF16) rough = 0x1p-9;
    lq_act a = {.x = v};
    lq_act_bind(dev, &a, &w, rows, ck_buf(lq_act_bytes(dev, &w, rows), 0));
    dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &a});
    dev->numerics = LQ_NUM_DEFAULT;
    dev->ops.matmul(dev, &(lq_matmul_args){.x = &a, .count = 1, .w = {&w}, .y = {y}});
    const int G = at.elem == LQ_I8 ? (int)a.q_row : k;
    bool ok = true, rows_same = true;
    for (int r = 0; r < n; r++) {
        lq_weight_row(&any, r, row);
        lq_weight_row(&w, r, row2);
        rows_same &= !memcmp(row, row2, (size_t)k * 4);
        for (int m = 0; m < rows; m++) {
            double want = 0, size = 0, step = 0;
            for (int c = 0; c < k; c++) {
                const double vx = (double)(lq_mat_row(&x, m)[c] * smooth[c]);
                want += (double)row[c] * vx;
                size += fabs((double)row[c] * vx);
            }
            for (int g = 0; g * G < k && at.elem == LQ_I8; g++)     // half a step of every activation of a cell
                for (int j = g * G; j < (g + 1) * G && j < k; j++) {
                    const int c = any.perm ? perm[j] : j;
                    step += fabs((double)row[c]) * 0.5001 * (double)a.scale[g * a.apart + m];
                }
            ok &= fabs((double)lq_mat_row(&y, m)[r] - want) <= step + (0x1p-24 * (k / 8 + 8) + rough) * size;
        }
    }
    CHECK(rows_same, "lq_weight_row: layout %s is not layout any", lq_layout_names[w.layout]);
    CHECK(ok, "matmul %s %s of %d rows with %d columns apart, way %d%s: far from f64", dev->isa, type, rows, apart, way,
          exact ? " exact" : "");
    ck_done("columns");
}

// --- moe ---

// Experts of very different loads (one has nothing, one a single row), or by turns where there is
// no order; scales of two types.
static void check_moe(lq_dev *dev, const lq_wtype *t, int rows, bool by_slot, bool order) {
    enum { EXPERTS = 5, K = 160, N = 40, SLOTS = 400 };
    char what[160], name[64];
    const int top_k = order ? 2 : 1, slots = rows * top_k;
    int32_t expert[SLOTS], sorted[SLOTS], start[EXPERTS + 1] = {0};
    for (int s = 0; s < slots; s++) expert[s] = !order ? s % EXPERTS : s == 3 ? 2 : s % 2 ? 4 : ck_below(2);
    for (int e = 0, at = 0; e < EXPERTS; start[++e] = at)
        for (int s = 0; s < slots; s++)
            if (expert[s] == e) sorted[at++] = s;
    lq_weight any[2][EXPERTS], w[2][EXPERTS];
    const float *bias[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < 2; i++) {
            lq_wtype own = *t;
            if (e == 1 && own.scale == LQ_F16) own.scale = LQ_F32;
            any[i][e] = ck_weight(&own, N, K, 0);
            any[i][e].act_scale = any[0][0].act_scale;
            any[i][e].act_zero = any[0][0].act_zero;
            w[i][e] = ck_weight_on(dev, &any[i][e]);
        }
        float *b = ck_buf(N * 4, 0);
        ck_fill(b, N);
        bias[e] = b;
    }
    lq_wtype_name(t, name, sizeof name);
    snprintf(what, sizeof what, "moe %s %s rows %d%s%s", dev->isa, name, rows, by_slot ? " by slot" : "",
             order ? "" : " by turns");
    const lq_mat x = mat_of(by_slot ? slots : rows, K), y[2] = {mat_of(slots, N), mat_of(slots, N)};
    const bool plain = lq_act_type(dev, t).elem == LQ_F32;
    const lq_act a = plain ? ck_act(&x, (lq_atype){0}) : ck_act_of(&x, &w[0][0], dev->bf16);
    dev->ops.moe(dev, &(lq_moe_args){.x = &a, .x_by_slot = by_slot, .slots = slots, .top_k = top_k, .experts = EXPERTS,
                                     .order = order ? sorted : NULL,
                                     .start = order ? start : NULL, .count = 2, .w = {w[0], w[1]}, .bias = {bias, NULL},
                                     .y = {y[0], y[1]}});
    const lq_mat alone = mat_of(slots, N); // one expert after the other: each touches its own slots
    for (int e = 0; order && e < EXPERTS; e++)
        dev->ops.moe(dev, &(lq_moe_args){.x = &a, .x_by_slot = by_slot, .slots = slots, .top_k = top_k, .experts = 1,
                                         .order = sorted, .start = start + e, .count = 1, .w = {w[0] + e},
                                         .bias = {bias + e}, .y = {alone}});
    CHECK(!order || ck_mat_same(&alone, &y[0]), "%s: experts one by one give other bits", what);
    for (int i = 0; i < 2; i++) {
        bool same = true;
        lq_mat z = mat_of(1, N);
        for (int s = 0; s < slots; s++) {
            lq_mat row = x;
            row.p = lq_mat_row(&x, by_slot ? s : s / top_k);
            row.rows = 1;
            row_by_row(dev, &w[i][expert[s]], &row, &a, i ? NULL : bias[expert[s]], &z);
            for (int c = 0; c < N; c++) same &= ck_same(lq_mat_row(&z, 0)[c], lq_mat_row(&y[i], s)[c]);
        }
        CHECK(same && ck_gaps(&y[i]), "%s matrix %d: not the matmul of each slot", what, i);
    }
    ck_done(what);
}

// More matrices than a layer has experts (each of many heads has one): by turns, and with an order.
static void check_many(lq_dev *dev, bool order) {
    enum { MANY = LQ_EXPERTS + 40, K = 64, N = 24, KINDS = 3 };
    const lq_wtype t = {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_F16};
    lq_weight any[KINDS], kinds[KINDS], *w = ck_buf(MANY * sizeof *w, 0);
    int32_t *sorted = ck_buf(2 * MANY * sizeof *sorted, 0), *start = ck_buf((MANY + 1) * sizeof *start, 0);
    for (int i = 0; i < KINDS; i++) {
        any[i] = ck_weight(&t, N, K, 0);
        kinds[i] = ck_weight_on(dev, &any[i]);
    }
    for (int e = 0; e < MANY; e++) {
        w[e] = kinds[e % KINDS];
        start[e + 1] = 2 * (e + 1);
        for (int i = 0; i < 2; i++) sorted[2 * e + i] = i * MANY + e; // what turns are too
    }
    const lq_mat x = mat_of(2 * MANY, K), y = mat_of(2 * MANY, N), z = mat_of(1, N);
    const lq_act a = ck_act_of(&x, &w[0], dev->bf16);
    dev->ops.moe(dev, &(lq_moe_args){.x = &a, .x_by_slot = true, .slots = 2 * MANY, .top_k = 1, .experts = MANY,
                                     .order = order ? sorted : NULL, .start = order ? start : NULL, .count = 1,
                                     .w = {w}, .y = {y}});
    bool same = true;
    for (int s = 0; s < 2 * MANY; s++) {
        lq_mat row = x, one = z;
        row.p = lq_mat_row(&x, s);
        row.rows = 1;
        row_by_row(dev, &w[s % MANY], &row, &a, NULL, &one);
        same &= !memcmp(one.p, lq_mat_row(&y, s), N * sizeof(float));
    }
    CHECK(same && ck_gaps(&y), "moe %s of %d matrices%s: not the matmul of each slot", dev->isa, MANY,
          order ? "" : " by turns");
    ck_done("moe of many matrices");
}

static const char *cap_of(const lq_dev *dev) {
    if (!dev->host || dev->layout == LQ_ANY) return "c";
    return strstr(dev->isa, "amx") ? "amx" : strstr(dev->isa, "bf16") ? "avx512bf16"
        : strstr(dev->isa, "avx512") ? "avx512" : strstr(dev->isa, "vnni") ? "avxvnni" : "avx2";
}

// With scratch for all rows, for a few of them (so that experts are cut), and for none.
static void check_moes(lq_dev *dev, lq_dev *one) {
    lq_err err;
    lq_dev *few;
    if (!ck_open(&(lq_dev_opts){.isa = cap_of(dev), .threads = 2}, &few, &err) ||
        !few->ops.reserve(few, &(lq_dev_limits){.rows = 20, .k = 160, .slots = 20, .vocab = 8}, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    for (int i = 0; i < MOE_TYPES; i++) {
        for (int way = 0; way < 4; way++) check_moe(dev, &types[i], way / 2 ? 11 : 190, way % 2, true);
        check_moe(dev, &types[i], 123, true, false);
        check_moe(few, &types[i], 190, i % 2, true);
        check_moe(few, &types[i], 4, true, false);
        check_moe(one, &types[i], 23, true, i % 2);
    }
    for (int order = 0; order < 2; order++) check_many(dev, order), check_many(few, order);
    lq_dev_close(few);
}

static void check_matmul_slot(lq_dev *dev, lq_dev *one) {
    for (int i = 0; i < TYPES; i++)
        for (int exact = 0; exact < 2; exact++) {
            check_slot(dev, one, &types[i], exact, 1, 1100);
            check_slot(dev, one, &types[i], exact, 7, 256);
            check_slot(dev, one, &types[i], exact, 66, 320);
        }
    static const char *const apart[] = {"int4 g64", "int4 g64 asym", "int3 g32 asym", "int8 row", "int8 act i8", "nf4",
                                        "nvfp4", "e5m2 row f32", "e4m3 row f32"};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        for (int way = 0; way < 8; way++) {
            check_columns(dev, apart[i], way & 4 ? 70 : 3, 3, way & 3, i % 2);
            check_columns(dev, apart[i], way & 4 ? 40 : 1, way & 2 ? 1100 : 37, way & 3, !(i % 2));
        }
}

// f32 by tiles of bf16: with scratch for all rows, and for a few at a time.
void check_rough(void) {
    enum { MANY = 90 };
    const lq_dev_limits limits[2] = {{.rows = MANY, .k = 1100, .vocab = 8}, {.rows = 16, .k = 1100, .vocab = 8}};
    lq_err err;
    lq_dev *dev, *one;
    if (!ck_begin("matmul by tiles", "amx")) return;
    for (int i = 0; i < 2; i++) {
        const lq_dev_opts o = {.isa = "amx", .threads = 3 - i, .rough = true};
        lq_dev_opts alone = o;
        alone.threads = 1;
        if (!ck_open(&o, &dev, &err) || !ck_open(&alone, &one, &err) ||
            !dev->ops.reserve(dev, &limits[i], &err) || !one->ops.reserve(one, &limits[0], &err)) {
            CHECK(false, "%s", err.text);
            return;
        }
        for (int t = 0; t < TYPES; t++) {
            check_slot(dev, one, &types[t], true, 1, 1100 - 1069 * i);
            check_slot(dev, one, &types[t], true, 7 + 10 * i, 256);
            check_slot(dev, one, &types[t], true, MANY, 320);
        }
        check_columns(dev, "int4 g64", 40, 3, 3, true);
        lq_dev_close(dev);
        lq_dev_close(one);
    }
}

// One row's form out of glu, which several threads make, against quant's.
static void check_glu_parts(lq_dev *dev, const lq_weight *w) {
    const lq_mat gate = ck_mat(1, (int)w->k, 3), y = ck_mat(1, (int)w->k, 0);
    const size_t bytes = lq_act_bytes(dev, w, 1);
    void *pa = ck_buf(bytes, 0), *pb = ck_buf(bytes, 0);
    lq_act a = {.x = y}, b = {.x = y};
    lq_act_bind(dev, &a, w, 1, pa);
    lq_act_bind(dev, &b, w, 1, pb);
    memset(pa, 0xEE, bytes);
    memset(pb, 0xEE, bytes);
    dev->ops.glu(dev, &(lq_glu_args){.gate = gate, .up = y, .y = y, .act = &a});
    dev->ops.quant(dev, &(lq_quant_args){.x = y, .act = &b});
    CHECK(!memcmp(pa, pb, bytes), "%s %lld columns: the act of glu differs from quant of y", dev->isa, (long long)w->k);
}

// What a device with bf16 has beside the rest: its rows, activations that are what a converter of one number makes of
// x, and products of matrices and experts.
void check_bf16(lq_dev *ref, lq_dev *dev) {
    enum { K = 1109, ROWS = 3 };
    lq_err err;
    lq_dev *one;
    check_ukrs(lq_cpu_of(dev)->isa, ref);
    if (!ck_begin("matmul", dev->isa)) return;
    static const lq_wtype halved[] = {
        {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16}, {.kind = LQ_W_PLAIN, .elem = LQ_E4M3, .bits = 8},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F32},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F32, .act = {.elem = LQ_E4M3}},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128, .scale = LQ_F32,
         .act = {.elem = LQ_E4M3, .group = 128}},
        {.kind = LQ_W_FLOAT, .elem = LQ_E5M2, .bits = 8, .group = 256, .scale = LQ_BF16},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .rows = LQ_ROWS_ALL, .scale = LQ_F32,
         .act = {.elem = LQ_E4M3, .fixed = true}},
    };
    const lq_wtype t = halved[0];
    const lq_weight w = ck_weight(&t, 5, K, 0);
    for (size_t i = 0; i < sizeof halved / sizeof *halved; i++)
        for (int64_t k = 3333; k <= 4096; k += 4096 - 3333) {
            const lq_weight wide = ck_weight(&halved[i], 5, k, 0);
            check_glu_parts(dev, &wide);
        }
    const lq_mat x = ck_mat(ROWS, K, 3);
    lq_act a = {.x = x};
    lq_act_bind(dev, &a, &w, ROWS, ck_buf(lq_act_bytes(dev, &w, ROWS), 0));
    dev->ops.quant(dev, &(lq_quant_args){.x = x, .act = &a});
    bool same = a.type.elem == LQ_BF16 && a.q_row % 32 == 0 && a.q_row >= K;
    for (int m = 0; same && m < ROWS; m++)
        for (size_t k = 0; k < a.q_row; k++)
            same &= ((const uint16_t *)a.q)[(size_t)m * a.q_row + k] ==
                    (k < K ? lq_f32_bf16(lq_mat_row(&x, m)[k]) : 0);
    CHECK(same, "quant %s: bf16 is not x to the nearest", dev->isa);
    if (!lq_dev_open("cpu", &(lq_dev_opts){.isa = "avx512bf16", .threads = 1}, &one, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    for (size_t i = 0; i < sizeof halved / sizeof *halved; i++) {
        for (int exact = 0; exact < 2; exact++) {
            check_slot(dev, one, &halved[i], exact, 1, 5000);
            check_slot(dev, one, &halved[i], exact, 7, 256);
            check_slot(dev, one, &halved[i], exact, 66, 2100);
        }
        for (int way = 0; way < 4; way++) check_moe(dev, &halved[i], way / 2 ? 11 : 190, way % 2, true);
        check_moe(one, &halved[i], 23, true, true);
    }
    lq_dev_close(one);
}

void check_matmul(lq_dev *ref, lq_dev *dev) {
    lq_err err;
    lq_dev *one;
    if (!ck_open(&(lq_dev_opts){.isa = cap_of(dev), .threads = 1}, &one, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    if (ck_begin("quant", dev->isa)) {
        check_quant(ref, dev);
        check_quant_extremes(ref, dev);
        check_forms(dev);
    }
    if (ck_begin("matmul", dev->isa)) check_matmul_slot(dev, one);
    if (ck_begin("moe", dev->isa)) check_moes(dev, one);
    lq_dev_close(one);
}
