// check_ops.c: the slots embed, norm, rope, glu, scale and add of a device against f64 arithmetic written from the
// words of ops.h; odd sizes, gaps between rows, NaN and huge values, and a row's bits alone and in a batch. The other
// slots: check_attn.c, check_rows.c, check_mix.c, check_sample.c. Bounds are counts of roundings times EPS times the
// size of what is rounded.
#include "tests/checkkern/check_ops.h"
#include "kernels/math.h"

static const int widths[] = {1, 3, 15, 16, 17, 33, 64, 100, 576, 2053};
enum { WIDTHS = sizeof widths / sizeof *widths };

lq_dev *twin_open(const lq_dev *dev, int threads) {
    char isa[64];
    lq_err err;
    lq_dev *d;
    snprintf(isa, sizeof isa, "%s", dev->isa);
    isa[strcspn(isa, " ")] = 0;
    if (strstr(dev->isa, "avx2 vnni")) snprintf(isa, sizeof isa, "avxvnni");
    if (strstr(dev->isa, "bf16")) snprintf(isa, sizeof isa, "avx512bf16");
    if (strstr(dev->isa, "amx")) snprintf(isa, sizeof isa, "amx");
    const lq_dev_opts o = {.isa = isa, .threads = threads, .numerics = dev->numerics};
    if (!(dev->host ? ck_open(&o, &d, &err) : lq_dev_open(dev->name, &o, &d, &err)) || !ck_reserve(d, &err)) {
        printf("checkkern: %s\n", err.text);
        exit(2);
    }
    return d;
}

static lq_mat copy_of(const lq_mat *m) {
    lq_mat c = ck_mat(m->rows, m->cols, m->stride - (size_t)m->cols);
    memcpy(c.p, m->p, (size_t)m->rows * m->stride * sizeof(float));
    return c;
}

static void check_exp(void) {
    double worst = 0;
    bool flushed = true;
    for (uint32_t u = 0; u < 0x42b80000u; u += 61) // 0 .. 92 and back
        for (int s = 0; s < 2; s++) {
            float x = s ? -lq_float(u) : lq_float(u), y = lq_expf(x);
            double t = exp((double)x), ulp = ldexp(1, ilogb(t) - 23);
            if (t < 0x1.000001p-126) flushed &= y == 0 || fabs(y - t) <= 2 * ulp;
            else if (t < 0x1.ffffffp127 && fabs(y - t) / ulp > worst) worst = fabs(y - t) / ulp;
        }
    CHECK(worst <= 2 && flushed, "exp: %.3f ulp", worst);
    CHECK(lq_expf(0) == 1 && lq_expf(-INFINITY) == 0 && isinf(lq_expf(INFINITY)) && isnan(lq_expf(NAN)) &&
          lq_expf(-105) == 0, "exp: ends");
}

static void check_embed(lq_dev *dev) {
    static const lq_wtype types[] = {{.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32},
                                     {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16},
                                     {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_F16},
                                     {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16}};
    for (size_t t = 0; t < 4; t++) {
        const int k = 96, n = 40, rows = 7;
        lq_weight any = ck_weight(&types[t], n, k, 0), w = ck_weight_on(dev, &any);
        lq_mat y = ck_mat(rows, k, 5);
        int32_t ids[7] = {39, 0, 3, 3, 17, 38, 1};
        float want[96];
        bool ok = true;
        for (int scaled = 0; scaled < 2; scaled++) {
            dev->ops.embed(dev, &(lq_embed_args){.w = &w, .ids = ids, .scale = scaled ? 3.3f : 0, .y = y});
            for (int r = 0; r < rows; r++) {
                lq_weight_row_any(&any, ids[r], want);
                for (int c = 0; c < k; c++) ok &= lq_mat_row(&y, r)[c] == (scaled ? want[c] * 3.3f : want[c]);
            }
        }
        CHECK(ok && ck_gaps(&y), "embed %s type %zu", dev->isa, t);
        ck_done("embed");
    }
}

// --- norm ---

static bool norm_true(const lq_norm_args *a) {
    bool ok = true;
    for (int r = 0; r < a->x.rows; r++) {
        const float *x = lq_mat_row(&a->x, r), *y = lq_mat_row(&a->y, r);
        const int n = a->x.cols;
        double mean = 0, sum = 0;
        for (int i = 0; i < n && a->kind == LQ_NORM_LAYER; i++) mean += (double)x[i] / n;
        for (int i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
        const double by = 1 / sqrt((a->kind == LQ_NORM_L2 ? sum : sum / n) + (double)a->eps);
        for (int i = 0; i < n; i++) {
            const double g = a->gamma ? (double)a->gamma[i] + a->plus_one : 1, b = a->beta ? (double)a->beta[i] : 0;
            const double v = (x[i] - mean) * by * g;
            const double one = a->gamma && a->plus_one ? 1 + fabs((double)a->gamma[i]) : fabs(g);
            ok &= near(y[i], v + b, EPS * (6 * fabs((x[i] - mean) * by) * one + 2 * fabs(b)) + 1e-15 *
                       fabs(mean * by * g));
        }
    }
    return ok;
}

static void norm_case(lq_dev *dev, lq_norm_kind kind, int cols, int way) {
    const int rows = 5;
    lq_mat x = ck_mat(rows, cols, 3), delta = ck_mat(rows, cols, 1), y = ck_mat(rows, cols, 7), gb = ck_mat(2, cols, 0);
    lq_mat y1 = ck_mat(rows, cols, 2);
    lq_mat x1 = copy_of(&x), sum = copy_of(&x);
    lq_norm_args a = {.kind = kind, .eps = 1e-5f, .plus_one = way & 1, .x = x, .y = y};
    if (way & 2) a.delta = &delta;
    if (way != 4) a.gamma = lq_mat_row(&gb, 0);
    if (way & 1) a.beta = lq_mat_row(&gb, 1);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols && a.delta; c++) lq_mat_row(&sum, r)[c] += lq_mat_row(&delta, r)[c];
    dev->ops.norm(dev, &a);
    CHECK(ck_mat_same(&x, &sum), "norm %s %d cols %d way %d: x", dev->isa, kind, cols, way);
    CHECK(norm_true(&a), "norm %s %d cols %d way %d: y", dev->isa, kind, cols, way);
    CHECK(ck_gaps(&x) && ck_gaps(&y), "norm %s %d cols %d way %d: gaps", dev->isa, kind, cols, way);
    for (int r = 0; r < rows; r++) { // alone
        lq_mat d = row_of(&delta, r);
        lq_norm_args b = a;
        b.x = row_of(&x1, r), b.y = row_of(&y1, r);
        if (a.delta) b.delta = &d;
        dev->ops.norm(dev, &b);
    }
    CHECK(ck_mat_same(&y, &y1), "norm %s %d cols %d way %d: a row alone has other bits", dev->isa, kind, cols, way);
    a.delta = NULL;
    a.y = a.x; // in place
    dev->ops.norm(dev, &a);
    CHECK(ck_mat_same(&x, &y), "norm %s %d cols %d way %d: in place", dev->isa, kind, cols, way);
    ck_done("norm");
}

static void norm_act(lq_dev *dev, int cols) {
    const lq_atype t = {.elem = LQ_I8, .group = 32};
    lq_mat x = ck_mat(6, cols, 3), y = ck_mat(6, cols, 1), plain = ck_mat(6, cols, 4);
    lq_act a = {0}, b = {0};
    const lq_weight w = ck_reader(t, cols);
    const size_t bytes = lq_act_bytes(dev, &w, 6);
    void *pa = ck_buf(bytes, 0), *pb = ck_buf(bytes, 0);
    lq_act_bind(dev, &a, &w, 6, pa);
    lq_act_bind(dev, &b, &w, 6, pb);
    dev->ops.norm(dev, &(lq_norm_args){.eps = 1e-6f, .x = x, .y = y, .act = &a});
    dev->ops.quant(dev, &(lq_quant_args){.x = y, .act = &b});
    CHECK(!memcmp(pa, pb, bytes), "norm %s cols %d: act differs from quant of y", dev->isa, cols);
    dev->ops.glu(dev, &(lq_glu_args){.gate = x, .up = y, .y = y, .act = &a});
    dev->ops.quant(dev, &(lq_quant_args){.x = y, .act = &b});
    CHECK(!memcmp(pa, pb, bytes), "glu %s cols %d: act differs from quant of y", dev->isa, cols);
    lq_act p = {.x = plain};
    dev->ops.norm(dev, &(lq_norm_args){.eps = 1e-6f, .x = x, .y = y, .act = &p});
    CHECK(ck_mat_same(&plain, &y), "norm %s cols %d: plain act", dev->isa, cols);
    ck_done("norm act");
}

// Rows that take turns with several weights: each as it is alone with its own.
static void norm_turns(lq_dev *dev, int cols) {
    enum { ROWS = 7, TURNS = 3 };
    lq_mat x = ck_mat(ROWS, cols, 2), y = ck_mat(ROWS, cols, 1), y1 = ck_mat(ROWS, cols, 5);
    lq_mat gb = ck_mat(2, TURNS * cols, 0);
    lq_norm_args a = {.kind = LQ_NORM_LAYER, .eps = 1e-5f, .x = x, .y = y, .gammas = TURNS,
                      .gamma = lq_mat_row(&gb, 0), .beta = lq_mat_row(&gb, 1)};
    dev->ops.norm(dev, &a);
    a.gammas = 0;
    for (int r = 0; r < ROWS; r++) {
        a.x = row_of(&x, r), a.y = row_of(&y1, r);
        a.gamma = lq_mat_row(&gb, 0) + r % TURNS * cols, a.beta = lq_mat_row(&gb, 1) + r % TURNS * cols;
        dev->ops.norm(dev, &a);
    }
    CHECK(ck_mat_same(&y, &y1) && ck_gaps(&y), "norm %s cols %d: weights in turn", dev->isa, cols);
    ck_done("norm turns");
}

static void check_norm(lq_dev *dev) {
    for (int kind = 0; kind < 3; kind++)
        for (int w = 0; w < WIDTHS; w++)
            for (int way = 0; way < 5; way++) norm_case(dev, (lq_norm_kind)kind, widths[w], way);
    for (int w = 0; w < WIDTHS; w++) norm_turns(dev, widths[w]);
    norm_act(dev, 64);
    norm_act(dev, 2052);
    // One bad row spoils itself only; squares past f32's range are no reason to fail.
    lq_mat x = ck_mat(4, 70, 2), y = ck_mat(4, 70, 2), z = ck_mat(4, 70, 2);
    lq_norm_args a = {.eps = 1e-5f, .x = x, .y = y};
    dev->ops.norm(dev, &a);
    lq_mat_row(&x, 1)[69] = NAN;
    lq_mat_row(&x, 3)[5] = 3e38f;
    a.y = z;
    dev->ops.norm(dev, &a);
    bool ok = true;
    for (int c = 0; c < 70; c++) {
        for (int r = 0; r < 4; r += 2) ok &= lq_mat_row(&y, r)[c] == lq_mat_row(&z, r)[c];
        ok &= isnan(lq_mat_row(&z, 1)[c]);
    }
    CHECK(ok && norm_true(&a), "norm %s: NaN and huge values", dev->isa);
    ck_done("norm special");
}

// --- rope ---

static void rope_case(lq_dev *dev, int dim, int head_dim, bool interleaved, float mscale, float beta) {
    enum { ROWS = 6, QH = 3, KH = 2, EVERY = 4095 };
    static const int32_t pos[ROWS] = {0, 1, 131071, 4094, 4095, 30000};
    const int ahead = interleaved; // so that position 4094 is past the first step, or not
    const int32_t first[2] = {0, ROWS};
    lq_rows rows = {.n = ROWS, .seqs = 1, .pos = pos, .first = first};
    lq_mat q = ck_mat(ROWS, QH * head_dim, 5), k = ck_mat(ROWS, KH * head_dim, 0), q0 = copy_of(&q), k0 = copy_of(&k);
    float *freq = ck_buf((size_t)dim / 2 * sizeof *freq, 4);
    for (int i = 0; i < dim / 2; i++) freq[i] = (float)pow(10000, -2.0 * i / dim);
    dev->ops.rope(dev, &(lq_rope_args){.rows = &rows, .inv_freq = freq, .dim = dim, .mscale = mscale,
                                       .interleaved = interleaved, .q_beta = beta, .q_every = EVERY, .q_ahead = ahead,
                                       .head_dim = head_dim, .q = q, .k = dim == 16 ? (lq_mat){0} : k});
    bool ok = true;
    for (int m = 0; m < (dim == 16 ? 1 : 2); m++)
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < (m ? KH : QH); h++) {
                const float *x = lq_mat_row(m ? &k0 : &q0, r) + h * head_dim;
                const float *y = lq_mat_row(m ? &k : &q, r) + h * head_dim;
                for (int i = 0; i < head_dim; i++) {
                    if (i >= dim) {
                        ok &= x[i] == y[i];
                        continue;
                    }
                    const int pair = interleaved ? i / 2 : i % (dim / 2), second = interleaved ? i % 2 : i >= dim / 2;
                    const int a = interleaved ? 2 * pair : pair, b = interleaved ? a + 1 : a + dim / 2;
                    const double t = (double)((float)pos[r] * freq[pair]), just = mscale != 0 ? (double)mscale : 1;
                    const double by = m ? just : just * (1 + (double)beta * log(1 + (pos[r] + ahead) / EVERY));
                    const double want = by * (second ? x[b] * cos(t) + x[a] * sin(t) : x[a] * cos(t) - x[b] * sin(t));
                    ok &= near(y[i], want, by * EPS * (beta != 0 ? 8 : 4) * (fabs((double)x[a]) + fabs((double)x[b])));
                }
            }
    CHECK(ok && ck_gaps(&q), "rope %s dim %d of %d interleaved %d", dev->isa, dim, head_dim, interleaved);
    ck_done("rope");
}

static void check_rope(lq_dev *dev) {
    static const int dims[][2] = {{2, 2}, {16, 24}, {20, 20}, {64, 64}, {128, 128}, {64, 192}, {34, 40}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int way = 0; way < 2; way++) {
            rope_case(dev, dims[i][0], dims[i][1], way, way ? 1.25f : 0, 0);
            rope_case(dev, dims[i][0], dims[i][1], way, 0, 0.1f);
        }
}

// --- glu ---

static const double XIELU_BELOW = 0.875, XIELU_BETA = 0.375, XIELU_LEAST = -0x1p-20;

// fn(x) in f64 and how many roundings of its own size a f32 evaluation may be off: exp's argument is rounded too.
static double unary_true(lq_unary fn, double x, double alpha, double *roundings) {
    const double u = x + 0.044715 * x * x * x;
    switch (fn) {
    case LQ_SILU: *roundings = 10 + 2 * fabs(alpha * x); return x / (1 + exp(-alpha * x));
    case LQ_GELU: *roundings = 30 + 4 * x * x; return x * 0.5 * erfc(-x * M_SQRT1_2);
    case LQ_GELU_TANH: *roundings = 10 + 8 * fabs(1.6 * u); return x / (1 + exp(-2 * sqrt(M_2_PI) * u));
    case LQ_RELU: *roundings = 0; return x < 0 ? 0 : x;
    case LQ_RELU2: *roundings = 1; return x < 0 ? 0 : x * x;
    case LQ_SIGMOID: *roundings = 8; return 1 / (1 + exp(-x));
    case LQ_TANH: *roundings = 9; return tanh(x);
    case LQ_XIELU: { // relative to a difference of what is larger
        const double e = expm1(fmin(x, XIELU_LEAST)), line = XIELU_BETA * x;
        const double t = x > 0 ? alpha * x * x + line : XIELU_BELOW * (e - x) + line;
        const double below = XIELU_BELOW * (16 * fabs(e) + 3 * fabs(x)) + 3 * fabs(line);
        *roundings = (x > 0 ? 4 * alpha * x * x + 3 * line : below) / fabs(t);
        return t;
    }
    }
    return NAN;
}

static void glu_case(lq_dev *dev, lq_unary fn, int cols, int way) {
    const int rows = 3;
    lq_mat gate = ck_mat(rows, cols, 3), up = ck_mat(rows, cols, 1), y = ck_mat(rows, cols, 2);
    lq_mat y1 = ck_mat(rows, cols, 2);
    for (int c = 0; c < cols; c++) lq_mat_row(&gate, 1)[c] = (float)(110.0 * ck_uniform());
    if (cols > 16) lq_mat_row(&gate, 2)[0] = NAN, lq_mat_row(&gate, 2)[16] = INFINITY, lq_mat_row(&up, 2)[3] = NAN;
    lq_glu_args a = {.fn = fn, .gate = gate, .y = y};
    if (way) a.up = up;
    if (way == 2) a.alpha = 1.702f, a.up_add = 1, a.clamp = 7;
    if (fn == LQ_XIELU) a.below = 0.875f, a.beta = 0.375f, a.least = -0x1p-20f, a.alpha = way == 2 ? a.alpha : 1;
    dev->ops.glu(dev, &a);
    int bad = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            float g = lq_mat_row(&gate, r)[c], u = lq_mat_row(&up, r)[c];
            if (way == 2 && g > 7) g = 7;
            if (way == 2 && fabsf(u) > 7) u = u > 0 ? 7 : -7;
            double roundings, t = unary_true(fn, (double)g, way == 2 ? (double)1.702f : 1, &roundings);
            // 2^-120: where exp(-x) is past f32's range the answer is 0.
            const double room = EPS * (roundings + 3) * fabs(t) + 0x1p-120;
            if (way) t *= (double)u + (double)a.up_add;
            bad += !near(lq_mat_row(&y, r)[c], t, room * (way ? fabs((double)u) + (double)a.up_add : 1));
        }
    CHECK(bad == 0 && ck_gaps(&y), "glu %s fn %d cols %d way %d: %d wrong", dev->isa, fn, cols, way, bad);
    for (int r = 0; r < rows; r++) {
        lq_glu_args b = a;
        b.gate = row_of(&gate, r), b.y = row_of(&y1, r);
        if (way) b.up = row_of(&up, r);
        dev->ops.glu(dev, &b);
    }
    CHECK(ck_mat_same(&y, &y1), "glu %s fn %d cols %d: a row alone has other bits", dev->isa, fn, cols);
    a.y = gate;
    dev->ops.glu(dev, &a);
    CHECK(ck_mat_same(&y, &gate), "glu %s fn %d cols %d: in place", dev->isa, fn, cols);
    ck_done("glu");
}

static void check_scale_add(lq_dev *dev, int cols) {
    lq_mat x = ck_mat(3, cols, 2), y = ck_mat(3, cols, 3), y0 = copy_of(&y), z = ck_mat(3, cols, 0);
    int bad = 0;
    dev->ops.add(dev, &(lq_add_args){.x = x, .y = y, .scale = 0.3f});
    dev->ops.scale(dev, &(lq_scale_args){.x = x, .y = z, .scale = 0.7f, .cap = 30});
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < cols; c++) {
            const double v = (double)lq_mat_row(&x, r)[c], was = (double)lq_mat_row(&y0, r)[c];
            const double t = tanh(v * (double)0.7f / 30) * 30;
            bad += !near(lq_mat_row(&y, r)[c], was + (double)0.3f * v, EPS * (2 * fabs(0.3 * v) + 2 * fabs(was)));
            bad += !near(lq_mat_row(&z, r)[c], t, EPS * 14 * fabs(t));
        }
    CHECK(bad == 0 && ck_gaps(&y), "add, scale %s cols %d: %d wrong", dev->isa, cols, bad);
    dev->ops.scale(dev, &(lq_scale_args){.x = x, .y = z, .scale = 0.7f, .by = lq_mat_row(&y0, 1)});
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < cols; c++) {
            const double t = (double)lq_mat_row(&x, r)[c] * (double)lq_mat_row(&y0, 1)[c] * (double)0.7f;
            bad += !near(lq_mat_row(&z, r)[c], t, EPS * 2 * fabs(t));
        }
    CHECK(bad == 0 && ck_gaps(&z), "scale %s cols %d: %d wrong by columns", dev->isa, cols, bad);
    dev->ops.scale(dev, &(lq_scale_args){.x = x, .y = x, .scale = 0.5f});
    dev->ops.add(dev, &(lq_add_args){.x = x, .y = y0});
    dev->ops.add(dev, &(lq_add_args){.x = x, .y = x, .scale = 1});
    CHECK(ck_gaps(&x), "scale %s cols %d", dev->isa, cols);
    lq_mat_row(&x, 0)[0] = NAN, lq_mat_row(&x, 1)[0] = INFINITY, lq_mat_row(&x, 2)[cols - 1] = -INFINITY;
    dev->ops.scale(dev, &(lq_scale_args){.x = x, .y = z, .scale = 1, .limit = 0.25f});
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < cols; c++) {
            const float v = lq_mat_row(&x, r)[c], got = lq_mat_row(&z, r)[c];
            bad += isnan(v) ? !isnan(got) : got != fminf(fmaxf(v, -0.25f), 0.25f);
        }
    CHECK(bad == 0 && ck_gaps(&z), "scale %s cols %d: %d beyond the limit", dev->isa, cols, bad);
    ck_done("scale and add");
}

void check_ops(lq_dev *ref, lq_dev *dev) {
    (void)ref; // every slot is compared with f64 arithmetic, the portable ones are checked as a device of their own
    if (dev->isa[0] == 'c' && ck_begin("exp", "")) check_exp();
    if (ck_begin("embed", dev->isa)) check_embed(dev);
    if (ck_begin("norm", dev->isa)) check_norm(dev);
    if (ck_begin("rope", dev->isa)) check_rope(dev);
    if (ck_begin("glu", dev->isa))
        for (int w = 0; w < WIDTHS; w++)
            for (int fn = LQ_SILU; fn <= LQ_XIELU; fn++)
                for (int way = 0; way < 3; way++) glu_case(dev, (lq_unary)fn, widths[w], way);
    if (ck_begin("scale add", dev->isa))
        for (int w = 0; w < WIDTHS; w++) check_scale_add(dev, widths[w]);
    check_attn(dev);
    if (ck_begin("rows of rope, kv_write, attn, conv, scan", dev->isa)) check_rows(dev);
    check_mix(dev);
    if (ck_begin("sample", dev->isa)) check_sample(dev);
    if (ck_begin("round", dev->isa)) check_round(ref, dev);
    if (ck_begin("choose arrange", dev->isa)) check_choose(ref, dev);
    if (ck_begin("tries", dev->isa)) check_tries(ref, dev);
}
