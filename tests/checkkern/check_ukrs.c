// check_ukrs.c: each row of lq_ukrs[], with every type it takes, against an independent product in f64,
// at odd sizes, tails and batch heights, with the bits of a row equal at every height, and the integer
// rows equal to the portable ones.
#include "kernels/meter.h"
#include "tests/checkkern/emulated.h"

enum { TOP = 70 }; // rows of the largest batch whose rows meet other heights: above it passes differ (check_tall)

static void name_of(const lq_ukr *u, const lq_weight *w, int rows, char *buf, size_t size) {
    char type[64];
    lq_wtype_name(&w->type, type, sizeof type);
    snprintf(buf, size, "%s %s n %lld k %lld rows %d", u->name, type, (long long)w->n, (long long)w->k, rows);
}

// --- the products, from their definition ---

// Halves of e2m1; what nf4's numbers are rounded to.
static double unit_of(const lq_wtype *t) {
    return t->kind != LQ_W_TABLE ? 1 : t->book == lq_codebook_of("fp4") ? 0.5 : 1 / 124.12;
}

// codes: of the row less its zero points, or a codebook's numbers in its unit. Products of columns that share all
// scales are added as integers.
static double product_int(const lq_weight *any, const lq_act *a, const int16_t *codes, int m, int64_t n, double *size) {
    const int64_t G = (int64_t)a->q_row, apart = a->apart, whole = any->type.group ||
        a->type.group ? G : a->type.asym ? 32768 : 65536;
    double want = 0;
    for (int64_t k0 = 0; k0 < any->k; k0 += whole) {
        const int zero = a->type.asym ? *any->act_zero : 0;
        int64_t dot = 0;
        for (int64_t c = k0; c < k0 + whole && c < any->k; c += G) {
            const int8_t *x = (const int8_t *)a->q + (c / G * apart + m) * G;
            for (int64_t k = c; k < c + G && k < any->k; k++) dot += codes[k] * (x[k - c] - zero);
        }
        double scale = (double)ck_scale(any, n, any->type.group ? k0 / any->type.group : 0) * unit_of(&any->type);
        if (any->type.scale == LQ_E4M3) scale *= (double)*any->scale2;
        const double term = (double)dot * scale * (double)a->scale[k0 / G * apart + m];
        want += term;
        *size += fabs(term);
    }
    return want;
}

static void codes_of(const lq_weight *any, int64_t n, int16_t *codes) {
    const lq_wtype *t = &any->type;
    const uint8_t *q = (const uint8_t *)any->q + (size_t)n * lq_code_row_bytes(t->bits, any->k);
    const uint8_t *z = t->asym ? any->zero + (size_t)n * lq_code_row_bytes(t->bits, lq_weight_groups(t, any->k)) : NULL;
    for (int64_t k = 0; k < any->k && t->kind == LQ_W_TABLE; k++)
        codes[k] = (int16_t)lrint((double)lq_wtype_table(t)[lq_code_get(q, t->bits, k)] / unit_of(t));
    for (int64_t k = 0; k < any->k && t->kind == LQ_W_INT; k++)
        codes[k] = (int16_t)((int)lq_code_get(q, t->bits, k) -
                             (z ? (int)lq_code_get(z, t->bits, t->group ? k / t->group : 0) : 1 << (t->bits - 1)));
}

static double widened(uint16_t bf16) {
    float f;
    lq_dtypes[LQ_BF16].to_f32(&bf16, &f, 1);
    return (double)f;
}

// The row as numbers and an activation as numbers: x itself, or rounded to bf16 or E4M3.
static double product_float(const float *row, const lq_act *a, int m, int64_t k, double *size) {
    double want = 0;
    for (int64_t i = 0; i < k; i++) {
        double x = a->type.elem == LQ_F32 ? (double)lq_mat_row(&a->x, m)[i]
            : a->type.elem == LQ_BF16 ? widened(((const uint16_t *)a->q)[(size_t)m * a->q_row + (size_t)i])
            : ck_small(a, m, i);
        if (a->type.elem == LQ_E4M3) x *= (double)a->scale[(size_t)i / a->q_group * (size_t)a->apart + (size_t)m];
        want += (double)row[i] * x;
        *size += fabs((double)row[i] * x);
    }
    return want;
}

// The definition of all integer products.
static const lq_ukr *portable_int(void) {
    int i = 0;
    while (strcmp(lq_ukrs[i].name, "lq_matmul_f32_q8_codedany_c")) i++;
    return &lq_ukrs[i];
}

// --- one weight, one row of the table ---

static void check_values(const lq_ukr *u, const lq_weight *any, const lq_act *a, const lq_mat *y, const char *what) {
    const int64_t k = any->k, cuts = (k + LQ_K_CUT - 1) / LQ_K_CUT;
    const double blocks =
        u->act == LQ_I8 ? (double)((k + (int64_t)a->q_row - 1) / (int64_t)a->q_row)
        : (double)(ck_chain(&any->type, u->layout, u->act, k) + cuts);
    float *row = ck_buf((size_t)k * sizeof(float), 0);
    int16_t *codes = ck_buf((size_t)k * sizeof(int16_t), 0);
    double worst = 0;
    for (int64_t n = 0; n < any->n; n++) {
        if (u->act == LQ_I8) codes_of(any, n, codes);
        else lq_weight_row_any(any, n, row);
        for (int m = 0; m < y->rows; m++) {
            double size = 0;
            const double want = u->act == LQ_I8 ? product_int(any, a, codes, m, n, &size)
                : product_float(row, a, m, k, &size);
            const double error = fabs((double)lq_mat_row(y, m)[n] - want), bound = 0x1p-24 * (blocks + 4) * size;
            if (!(error <= bound)) worst = fmax(worst, bound > 0 ? error / bound : INFINITY);
            if (isnan(error)) worst = INFINITY;
        }
    }
    CHECK(worst == 0, "%s: %.3g of the bound", what, worst);
}

// Where the type leaves it open, f32 rows are given what exact mode gives them, those of bf16 what default mode does.
static lq_act act_for(const lq_ukr *u, const lq_mat *x, const lq_weight *w) {
    if (w->type.act.elem == LQ_F32 && u->act != LQ_I8) return ck_act(x, (lq_atype){.elem = u->act});
    return ck_act_of(x, w, u->act == LQ_BF16);
}

static void check_heights(const lq_dev *ref, const lq_ukr *u, const lq_weight *w, const lq_mat *x, const lq_act *a,
                          const lq_mat *y, const char *what) {
    const int64_t tiles = (w->n + u->tile_n - 1) / u->tile_n;
    void *scratch = ck_buf(LQ_SHARE, 0);
    // heights 1..17 and 33, quantized alone, tiles cut anywhere; watched: the last rows, which end with the buffer
    for (int rows = 1; rows <= 34 && rows <= x->rows; rows += rows < 17 ? 1 : 16) {
        bool same = true, gaps = true;
        for (int m = CK_WATCHED ? x->rows - rows : 0; m + rows <= x->rows; m += rows < 3 ? 7 : rows) {
            lq_mat part = *x;
            part.p = lq_mat_row(x, m);
            part.rows = rows;
            const lq_act b = act_for(u, &part, w);
            const lq_mat z = ck_mat(rows, (int)w->n, 3);
            const int64_t mid = ck_below((int)tiles + 1);
            lq_ukr_tiles(ref, u, w, &b, 0, mid, 0, rows, z.p, z.stride, scratch);
            lq_ukr_tiles(ref, u, w, &b, mid, tiles, 0, rows, z.p, z.stride, scratch);
            lq_mat of = *y;
            of.p = lq_mat_row(y, m);
            of.rows = rows;
            same &= ck_mat_same(&z, &of);
            gaps &= ck_gaps(&z);
        }
        CHECK(same, "%s: other bits in batches of %d", what, rows);
        CHECK(gaps, "%s: wrote between rows in batches of %d", what, rows);
    }
    const lq_mat z = ck_mat(x->rows, (int)w->n, 0); // parts of one batch
    for (int m = 0, h = 1; m < x->rows; m += h, h = 1 + h * 2 % 23)
        lq_ukr_tiles(ref, u, w, a, 0, tiles, m, m + h < x->rows ? m + h : x->rows, z.p, z.stride, scratch);
    CHECK(ck_mat_same(&z, y), "%s: other bits in parts of a batch", what);
}

// `ref` gives the f32 row that a `rows` kernel is followed by: the one of the same ISA.
static void check_one(const lq_dev *ref, const lq_ukr *u, const lq_wtype *t, int64_t n, int64_t k, int rows) {
    const size_t off = (size_t)ck_below(64);
    char what[200];
    const lq_weight any = ck_weight(t, n, k, t->kind == LQ_W_PLAIN ? off / 4 * 4 : off);
    const lq_weight w = ck_weight_in(&any, u->layout, off);
    name_of(u, &w, rows, what, sizeof what);
    const lq_mat x = ck_mat(rows, (int)k, 1), y = ck_mat(rows, (int)n, 5);
    const lq_act a = act_for(u, &x, &w);
    void *scratch = ck_buf(LQ_SHARE, 0);
    lq_ukr_tiles(ref, u, &w, &a, 0, (n + u->tile_n - 1) / u->tile_n, 0, rows, y.p, y.stride, scratch);
    CHECK(ck_gaps(&y), "%s: wrote between rows", what);
    check_values(u, &any, &a, &y, what);
    if (u->act == LQ_I8) {
        const lq_mat z = ck_mat(rows, (int)n, 0);
        const lq_ukr *c = portable_int();
        c->run(&any, &a, 0, n, 0, rows, z.p, z.stride);
        CHECK(ck_mat_same(&y, &z), "%s: other bits than %s", what, c->name);
    }
    if (u->act == LQ_BF16 && u->layout == LQ_X86 && u->needs & LQ_ISA_AMX) { // packed or not, tiles add in one order
        const lq_mat z = ck_mat(rows, (int)n, 0);
        const lq_ukr *r = lq_ukr_find(ref, &any, LQ_BF16);
        lq_ukr_tiles(ref, r, &any, &a, 0, (n + r->tile_n - 1) / r->tile_n, 0, rows, z.p, z.stride, scratch);
        CHECK(ck_mat_same(&y, &z), "%s: other bits than %s", what, r->name);
    }
    if (rows <= TOP) check_heights(ref, u, &w, &x, &a, &y, what);
    ck_done(what);
}

// --- tiles as f32: what a weight means, bit for bit, of all codes and of scales of any size ---

static void check_tiles(const lq_dev *ref, const lq_ukr *u, const lq_wtype *t) {
    static const int cuts[][2] = {{0, 1024}, {1024, 1311}, {48, 464}, {0, 16}, {1296, 1311}};
    static const float scales[] = {3e38f, -0x1p119f, 1e-44f, INFINITY, NAN, 0};
    enum { TILE_N = 37, TILE_K = 1311 };
    const lq_weight any = ck_weight(t, TILE_N, TILE_K, 3 * lq_dtype_size(t->elem) % 4);
    const size_t size = t->kind == LQ_W_INT || t->kind == LQ_W_TABLE ? 0 : lq_dtype_size(t->elem);
    for (size_t i = 0; i < size * TILE_N * TILE_K; i++) ((uint8_t *)(uintptr_t)any.q)[i] = (uint8_t)ck_rand();
    for (int i = 0; t->kind != LQ_W_PLAIN && t->scale == LQ_F32 && t->rows <= 1 && i < 6; i++)
        ((float *)(uintptr_t)any.scale)[i * lq_weight_groups(t, TILE_K)] = scales[i];
    for (int i = 0; t->kind != LQ_W_PLAIN && lq_dtype_size(t->scale) == 1 && i < 255; i++)
        ((uint8_t *)(uintptr_t)any.scale)[i % (TILE_N / 3)] = (uint8_t)ck_rand(); // NaN too
    const lq_weight w = ck_weight_in(&any, u->layout, 7);
    float *row = ck_buf(TILE_K * sizeof(float), 0);
    char what[200];
    name_of(u, &w, 0, what, sizeof what);
    int wrong = 0;
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
        for (int64_t n = 0, len = cuts[c][1] - cuts[c][0]; n < TILE_N; n++) {
            const int64_t first = n / u->tile_n * u->tile_n, rows = TILE_N - first;
            const int64_t wide = len + (int64_t)c % 2 * 16, last = (rows < u->tile_n ? rows : u->tile_n) - 1;
            float *tile = ck_buf((size_t)(last * wide + len) * sizeof(float), 0);
            u->rows(&w, n / u->tile_n, cuts[c][0], cuts[c][1], tile, (size_t)wide);
            lq_weight_row_any(&any, n, row);
            for (int64_t i = 0; i < len; i++) wrong += !ck_same(tile[(n - first) * wide + i], row[cuts[c][0] + i]);
        }
    CHECK(!wrong, "%s: %d numbers are not the weight's", what, wrong);
    enum { MANY = LQ_RUN_ROWS + 1 }; // few rows may take another path than many
    const lq_mat x = ck_mat(MANY, TILE_K, 0), y = ck_mat(MANY, TILE_N, 0), z = ck_mat(MANY, TILE_N, 0);
    const lq_act a = act_for(u, &x, &w);
    void *scratch = ck_buf(LQ_SHARE, 0);
    const int64_t tiles = (TILE_N + u->tile_n - 1) / u->tile_n;
    lq_ukr_tiles(ref, u, &w, &a, 0, tiles, 0, MANY, y.p, y.stride, scratch);
    for (int m = 0; m < MANY; m += 3) lq_ukr_tiles(ref, u, &w, &a, 0, tiles, m, m + 3, z.p, z.stride, scratch);
    CHECK(ck_mat_same(&y, &z), "%s: extreme weights give other bits to few rows", what);
    ck_done(what);
}

// --- extreme numbers: a sick row or scale stays where it is, and looks the same as in portable C ---

// scale2: of E4M3 scales, 0: as they come
static void check_extremes(const lq_dev *ref, const lq_ukr *u, const lq_wtype *t, float scale2) {
    static const uint8_t small[] = {0x7f, 0xff, 1, 0x83}; // NaN, and numbers whose exponent is the least
    static const float sick[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-39f, 1e-30f, 0, -0.0f};
    const int rows = 40, n = 37, k = 320;
    char what[200];
    const lq_weight any = ck_weight(t, n, k, 0);
    if ((t->kind == LQ_W_INT || u->act == LQ_I8) && t->scale == LQ_F32 && t->rows <= 1) {
        float *s = (float *)(uintptr_t)any.scale;
        s[0] = NAN;
        s[lq_weight_groups(t, k)] = INFINITY;
        s[2 * lq_weight_groups(t, k)] = 1e-44f;
        s[3 * lq_weight_groups(t, k)] = 3e38f;
    }
    for (int i = 0; i < 4 && u->act == LQ_I8 && lq_dtype_size(t->scale) == 1 && t->rows <= 1; i++)
        ((uint8_t *)(uintptr_t)any.scale)[i * lq_weight_groups(t, k)] = small[i];
    if (scale2 > 0) *(float *)(uintptr_t)any.scale2 = scale2;
    const lq_weight w = ck_weight_in(&any, u->layout, 0);
    name_of(u, &w, rows, what, sizeof what);
    lq_mat x = ck_mat(rows, k, 0);
    const lq_mat y = ck_mat(rows, n, 0), z = ck_mat(rows, n, 0);
    void *scratch = ck_buf(LQ_SHARE, 0);
    lq_act a = act_for(u, &x, &w);
    const int64_t tiles = (n + u->tile_n - 1) / u->tile_n;
    lq_ukr_tiles(ref, u, &w, &a, 0, tiles, 0, rows, z.p, z.stride, scratch);
    for (int i = 0; i < 9; i++)
        for (int c = 0; c < 3; c++) lq_mat_row(&x, 3 * i + 2)[(i * 37 + c * 100) % k] = sick[i];
    memset(lq_mat_row(&x, 30), 0, (size_t)k * sizeof(float));
    a = act_for(u, &x, &w);
    lq_ukr_tiles(ref, u, &w, &a, 0, tiles, 0, rows, y.p, y.stride, scratch);
    bool others = true, ill = true;
    for (int m = 0; m < rows; m++)
        for (int c = 4; c < n; c++) {
            const float got = lq_mat_row(&y, m)[c];
            const bool changed = m == 30 || (m < 27 && m % 3 == 2);
            if (!changed) others &= ck_same(got, lq_mat_row(&z, m)[c]);
            if (m == 2 || m == 5 || m == 8) ill &= !isfinite(got);
            if (m == 30) ill &= got == 0;
        }
    CHECK(others, "%s: a sick row changed another one", what);
    CHECK(ill, "%s: NaN or infinity was lost, or 0 is not 0", what);
    if (u->act == LQ_I8) {
        const lq_ukr *c = portable_int();
        c->run(&any, &a, 0, n, 0, rows, z.p, z.stride);
        CHECK(ck_mat_same(&y, &z), "%s: extreme numbers give other bits than %s", what, c->name);
    }
    ck_done(what);
}

// Saturated codes and activations: the largest sums there are.
static void check_saturated(const lq_dev *ref, const lq_ukr *u, const lq_wtype *t, int64_t k) {
    char what[200];
    const int rows = CK_WATCHED ? 5 : k > 4096 ? 33 : 37, n = CK_WATCHED || k > 4096 ? 33 : 64;
    const lq_weight any = ck_weight(t, n, k, 0);
    for (int64_t i = 0; i < n * k; i++)
        lq_code_set((uint8_t *)(uintptr_t)any.q + (size_t)(i / k) * lq_code_row_bytes(t->bits, k), t->bits, i % k,
                    i / k % 3 == 0 || (i / k % 3 == 1 && i % 8 < 4) ? (1u << t->bits) - 1 : 0);
    const lq_weight w = ck_weight_in(&any, u->layout, 0);
    const lq_mat x = ck_mat(rows, (int)k, 0), y = ck_mat(rows, n, 0), z = ck_mat(rows, n, 0);
    for (int m = 0; m < rows; m++)
        for (int64_t i = 0; i < k; i++) lq_mat_row(&x, m)[i] = m % 3 == 0 || (m % 3 == 1 && i % 8 < 4) ? 2.0f : -2.0f;
    if (t->act.fixed) *(float *)(uintptr_t)any.act_scale = 0.001f;
    if (t->act.asym) {
        *(int32_t *)(uintptr_t)any.act_zero = k % 2 ? 127 : -128;
        lq_code_sums(&any, (int32_t *)(uintptr_t)any.code_sum);
    }
    const lq_act a = act_for(u, &x, &w);
    name_of(u, &w, rows, what, sizeof what);
    lq_ukr_tiles(ref, u, &w, &a, 0, (n + u->tile_n - 1) / u->tile_n, 0, rows, y.p, y.stride, ck_buf(LQ_SHARE, 0));
    check_values(u, &any, &a, &y, what);
    const lq_ukr *c = portable_int();
    c->run(&any, &a, 0, n, 0, rows, z.p, z.stride);
    CHECK(ck_mat_same(&y, &z), "%s: saturated: other bits than %s", what, c->name);
    ck_done(what);
}

// Scales that are shifts are taken into the numbers of bf16: exactly those, 0 where bf16 has no normal number, none
// beyond all that it has. A weight row has one element whose scale and code are tried, the activations are 1.
static void check_shifts(const lq_dev *ref, const lq_ukr *u, int rows) {
    static const uint8_t scales[] = {0, 1, 7, 9, 100, 126, 127, 128, 200, 245, 247, 254, 255};
    enum { N = 256 * sizeof scales, K = 320 };
    const lq_wtype t = {.kind = LQ_W_FLOAT, .elem = u->elem, .bits = 8, .group = 32, .scale = LQ_E8M0};
    char what[200];
    const lq_weight w = ck_weight(&t, N, K, 0);
    uint8_t *q = (uint8_t *)(uintptr_t)w.q, *s = (uint8_t *)(uintptr_t)w.scale;
    memset(q, 0, (size_t)N * K);
    memset(s, 127, (size_t)N * (K / 32));
    for (int r = 0; r < N; r++) {
        const int at = r * 37 % K;
        q[r * K + at] = (uint8_t)r;
        s[r * (K / 32) + at / 32] = scales[r / 256];
    }
    const lq_mat x = ck_mat(rows, K, 0), y = ck_mat(rows, N, 0);
    for (int i = 0; i < rows * K; i++) lq_mat_row(&x, i / K)[i % K] = 1;
    const lq_weight lies = ck_weight_in(&w, u->layout, 0);
    const lq_act a = act_for(u, &x, &lies);
    name_of(u, &w, rows, what, sizeof what);
    lq_ukr_tiles(ref, u, &lies, &a, 0, (N + u->tile_n - 1) / u->tile_n, 0, rows, y.p, y.stride, ck_buf(LQ_SHARE, 0));
    int wrong = 0;
    for (int r = 0; r < N; r++) {
        float number;
        const uint8_t code = (uint8_t)r, scale = scales[r / 256];
        lq_dtypes[u->elem].to_f32(&code, &number, 1);
        double want = ldexp((double)number, scale - 127);
        if (fabs(want) < 0x1p-126) want = 0;
        const bool none = scale == 255 || !(fabs(want) < 0x1p128);
        for (int m = 0; m < rows; m++) {
            const float got = lq_mat_row(&y, m)[r];
            wrong += none ? isfinite(got) : (double)got != want;
        }
    }
    CHECK(wrong == 0, "%s: %d shifted numbers of %d", what, wrong, N * rows);
    ck_done(what);
}

// --- which types and shapes ---

static const struct {
    int n, k, rows;
} shapes[] = {{1, 16, 3}, {15, 64, 17}, {16, 128, 33}, {17, 100, TOP}, {33, 389, 18}, {80, 1536, 35}, {67, 2501, 37}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// Whether the rule of activations, in default or in exact mode, brings matrices of this type to this row.
static bool reaches(const lq_ukr *u, const lq_wtype *t) {
    const lq_dev modes[2] = {{.q8 = true, .bf16 = u->act == LQ_BF16}, {.q8 = true, .numerics = LQ_NUM_EXACT}};
    bool any = false;
    for (int i = 0; i < 2; i++) {
        const lq_weight w = {.type = *t, .k = 1 << 20};
        const lq_dtype act = lq_act_type(&modes[i], t).elem;
        any |= lq_ukr_fits(u, t, u->layout, lq_act_halves(&modes[i], &w) ? LQ_BF16 : act);
    }
    return any && (u->layout == LQ_ANY || lq_pack_has(u->layout, t, 64, 512));
}

// The largest sums of the widest spans of integers, and more than one span.
static void check_widest(const lq_dev *ref, const lq_ukr *u) {
    static const lq_wtype types[] = {
        {.kind = LQ_W_INT, .elem = LQ_U8, .group = LQ_GROUP_MAX, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .scale = LQ_F32, .asym = true, .act = {.elem = LQ_I8}},
        {.kind = LQ_W_INT, .elem = LQ_U8, .scale = LQ_F16, .asym = true, .act = {.elem = LQ_I8, .fixed = true}},
        {.kind = LQ_W_INT, .elem = LQ_U8, .scale = LQ_F32, .asym = true,
         .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
        {.kind = LQ_W_TABLE, .elem = LQ_U8, .book = 2, .group = LQ_GROUP_MAX, .scale = LQ_F16},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int bits = 4; bits <= 8; bits += 4) {
            lq_wtype t = types[i];
            t.bits = bits;
            if ((t.book && bits != lq_codebooks[t.book - 1].bits) || !reaches(u, &t)) continue;
            check_saturated(ref, u, &t, LQ_GROUP_MAX);
            lq_weight_size size; // a layout may have no such row
            if (i % 2 && lq_layout_sizes(u->layout, &t, 64, 65536 + 4096, &size))
                check_saturated(ref, u, &t, 65536 + 4096);
        }
}

// Rows that are wider than a span of integer sums and than the scratch for a tile: a product comes in parts of K.
static void check_parts(const lq_dev *ref, const lq_ukr *u, int rows) {
    enum { WIDE = LQ_I8_SPAN + LQ_GROUP_MAX / 2 + 77 };
    static const lq_wtype types[] = {
        {.bits = 3, .group = 64, .scale = LQ_F16}, {.bits = 4, .group = 16, .asym = true, .scale = LQ_F32},
        {.bits = 8, .scale = LQ_F16}, {.bits = 2, .group = LQ_GROUP_MAX, .asym = true, .scale = LQ_BF16},
        {.bits = 5, .asym = true, .scale = LQ_F32, .act = {.elem = LQ_I8}},
        {.bits = 8, .asym = true, .scale = LQ_F16, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
        {.bits = 4, .group = 48, .scale = LQ_F16, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
        {.bits = 6, .group = LQ_GROUP_MAX, .scale = LQ_F32, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
        {.bits = 4, .book = 2, .group = 32, .scale = LQ_F16}, {.bits = 4, .book = 1, .scale = LQ_E8M0},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        lq_wtype t = types[i];
        lq_weight_size size;
        t.kind = t.book ? LQ_W_TABLE : LQ_W_INT;
        t.elem = LQ_U8;
        if (reaches(u, &t) && lq_layout_sizes(u->layout, &t, 19, WIDE, &size)) check_one(ref, u, &t, 19, WIDE, rows);
    }
}

// Every type of the list that this row takes. A portable row with many of them gets one of the shapes with each.
static void check_row(const lq_dev *ref, const lq_ukr *u) {
    int n, fitting = 0, tried = 0;
    bool found = false, high[3] = {false};
    const lq_wtype *types = ck_types(&n);
    for (int i = 0; i < n; i++) fitting += reaches(u, &types[i]);
    for (int i = 0; i < n; i++) {
        lq_wtype t = types[i];
        if (!reaches(u, &t)) continue;
        found |= lq_ukr_find(ref, &(lq_weight){.type = t, .layout = u->layout}, u->act) == u;
        const int every = fitting > 20 && !u->needs ? SHAPES : t.act.elem == LQ_F32 ? 1 : 2;
        for (int s = 0; s < SHAPES; s++)
            if ((tried + s) % every == 0) {
                const int less = CK_WATCHED && shapes[s].k > LQ_K_CUT ? 7 : 1; // what is wide needs no height
                check_one(ref, u, &t, shapes[s].n, shapes[s].k, shapes[s].rows / less);
            }
        const int kind = t.group == 128 ? 0 : t.group == 32 ? 1 : 2;
        if (!high[kind]) check_one(ref, u, &t, CK_WATCHED ? 33 : kind ? 96 : 160, kind ? 256 : 640, 512);
        high[kind] = true;
        if (u->layout == LQ_X86 && u->act == LQ_BF16) { // in cuts of 4096: more than one, and one tile behind four
            check_one(ref, u, &t, 77, CK_WATCHED ? 4501 : 9001, CK_WATCHED ? 19 : 37);
            check_one(ref, u, &t, 77, 813, 83);
        }
        if (u->act == LQ_I8) check_saturated(ref, u, &t, t.act.asym && t.asym ? 1089 : 1088);
        for (int j = 0; j < 3 && u->act == LQ_I8 && lq_dtype_size(t.scale) == 1; j++)
            if (j == 0 || t.scale == LQ_E4M3) check_extremes(ref, u, &t, j == 2 ? 0x1p121f : j == 1 ? 1e-40f : 0);
        if (t.kind == LQ_W_INT || u->act == LQ_I8) t.scale = LQ_F32; // which has numbers that are not finite
        check_extremes(ref, u, &t, 0);
        if (u->rows) check_tiles(ref, u, &t);
        tried++;
    }
    if (u->act == LQ_BF16 && u->kind == LQ_W_FLOAT) check_shifts(ref, u, 3), check_shifts(ref, u, 33);
    if (u->act == LQ_I8) check_widest(ref, u);
    if (u->act == LQ_I8) check_parts(ref, u, 5);
    CHECK(tried > 0, "%s: none of the types to try (types.c) fits this row", u->name);
    CHECK(found || !tried, "%s: rows above it take all that it could", u->name);
}

// Tall rows of layout any that are recoded: several tiles at a time, in parts of K; with zero points of activations
// for whole rows, and for groups, which go tile by tile.
static void check_recoded(const lq_dev *ref, const lq_ukr *u) {
    static const lq_wtype types[] = {
        {.bits = 3, .group = 64, .asym = true, .scale = LQ_F16}, {.bits = 5, .group = 16, .scale = LQ_BF16},
        {.bits = 6, .asym = true, .scale = LQ_F32, .act = {.elem = LQ_I8}},
        {.bits = 7, .scale = LQ_F16, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
        {.bits = 3, .group = 128, .asym = true, .scale = LQ_F16, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
        {.bits = 4, .book = 2, .group = 64, .scale = LQ_F16}, {.bits = 4, .book = 1, .group = 16, .scale = LQ_E4M3},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        lq_wtype t = types[i];
        t.kind = t.book ? LQ_W_TABLE : LQ_W_INT;
        t.elem = LQ_U8;
        if (t.kind != u->kind) continue;
        CHECK(reaches(u, &t), "%s: type %zu of tall ones does not fit it", u->name, i);
        check_one(ref, u, &t, CK_WATCHED ? 35 : 291, CK_WATCHED ? 700 : 5003, CK_WATCHED ? 17 : 83);
        check_one(ref, u, &t, 37, 700, 35);
    }
    check_parts(ref, u, CK_WATCHED ? 17 : 21);
}

// Of plain numbers: more tiles than share x, more rows than a pass has and more columns than a cut, then the fewest
// rows of a block; with the bits of few rows.
static void check_passes(const lq_dev *ref, const lq_ukr *u, const lq_wtype *t) {
    const int shapes_of[2][3] = {{16 * LQ_MANY_TURN + 37, CK_WATCHED ? 1181 : 2501, CK_WATCHED ? 101 : 213},
                                 {37, 1181, LQ_MANY_ROWS + 3}};
    for (int i = 0; i < 2; i++) {
        const int n = shapes_of[i][0], k = shapes_of[i][1], rows = shapes_of[i][2];
        char what[200];
        const lq_weight any = ck_weight(t, n, k, 0), w = ck_weight_in(&any, u->layout, 0);
        const lq_mat x = ck_mat(rows, k, 3), y = ck_mat(rows, n, 3), z = ck_mat(rows, n, 3);
        const lq_act a = act_for(u, &x, &w);
        const int64_t tiles = (n + u->tile_n - 1) / u->tile_n;
        name_of(u, &w, rows, what, sizeof what);
        lq_ukr_tiles(ref, u, &w, &a, 0, tiles, 0, rows, y.p, y.stride, ck_buf(LQ_SHARE, 0));
        u->run(&w, &a, 0, tiles, 0, rows, z.p, z.stride);
        check_values(u, &any, &a, &y, what);
        CHECK(ck_mat_same(&y, &z), "%s: other bits than few rows have", what);
        CHECK(ck_gaps(&y), "%s: wrote between rows", what);
        ck_done(what);
    }
}

// Rows with a way of their own for many rows of activations, where these are more than one pass, the last one of odd
// height; in parts of K, of this row and of int8 that rows of layout any are recoded to.
static void check_tall(const lq_dev *ref, const lq_ukr *u) {
    static const lq_wtype types[] = {{.bits = 4, .group = 64, .asym = true, .scale = LQ_BF16},
                                     {.bits = 4, .scale = LQ_F32, .act = {.elem = LQ_I8}},
                                     {.bits = 8, .group = 128, .asym = true, .scale = LQ_F16},
                                     {.bits = 8, .group = 1024, .scale = LQ_F16},
                                     {.bits = 3, .group = 288, .scale = LQ_F16}, // of 48 k and units of 32
                                     {.bits = 5, .group = 480, .asym = true, .scale = LQ_F16},
                                     {.bits = 6, .group = 672, .scale = LQ_F32},
                                     {.bits = 8, .scale = LQ_F16, .act = {.elem = LQ_I8, .fixed = true, .asym = true}},
                                     {.bits = 4, .book = 2, .group = 64, .scale = LQ_F32}};
    const bool amx = u->needs & LQ_ISA_AMX;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        lq_wtype t = types[i];
        t.kind = t.book ? LQ_W_TABLE : LQ_W_INT;
        t.elem = LQ_U8;
        if (reaches(u, &t)) check_one(ref, u, &t, CK_WATCHED ? 33 : 145, t.group > 640 ? 2500 : 640, amx ? 291 : 801);
    }
    const lq_wtype plain = {.kind = LQ_W_PLAIN, .elem = u->elem, .bits = 8 * (int)lq_dtype_size(u->elem)};
    if (u->kind == LQ_W_PLAIN) {
        CHECK(reaches(u, &plain), "%s: it does not take a plain type", u->name);
        check_passes(ref, u, &plain);
    }
    check_parts(ref, u, CK_WATCHED ? 17 : 21);
    for (int i = 0; i < lq_ukr_count; i++)
        if (lq_ukrs[i].codes && lq_ukrs[i].needs == (u->needs & ~(unsigned)LQ_ISA_AMX) && u->bits == 8)
            check_recoded(ref, &lq_ukrs[i]);
}

// What this ISA has no row for is multiplied by tiles: no type of the list ends in a portable product.
static void check_tiled(unsigned isa, const lq_dev *ref) {
    int n;
    const lq_wtype *types = ck_types(&n);
    for (int i = 0; i < n; i++)
        for (int exact = 0; exact < 2; exact++)
            for (int layout = LQ_ANY; layout <= LQ_X86; layout++) {
                const lq_dev mode = {.q8 = true, .bf16 = isa & LQ_ISA_BF16,
                                     .numerics = exact ? LQ_NUM_EXACT : LQ_NUM_DEFAULT};
                const lq_weight w = {.type = types[i], .layout = (lq_layout)layout};
                char name[LQ_WTYPE_TEXT];
                const bool number = types[i].kind == LQ_W_PLAIN || types[i].kind == LQ_W_FLOAT;
                const bool own = !number && lq_pack_has(LQ_X86, &types[i], 64, 512);
                if (layout != LQ_ANY && !own) continue; // (numbers are rows where there is no other)
                const lq_ukr *u = lq_ukr_find(ref, &w, lq_act_type(&mode, &types[i]).elem);
                lq_wtype_name(&types[i], name, sizeof name);
                CHECK(u && (!isa || u->needs || u->rows), "%s in layout %s%s: %s", name, lq_layout_names[layout],
                      exact ? " exact" : "", u ? u->name : "no row");
                CHECK(!u || !u->codes || (!u->run && !u->rows), "%s: not only by tiles", u->name);
            }
}

void check_ukrs(unsigned isa, lq_dev *ref) {
    const unsigned before = lq_cpu_of(ref)->isa;
    lq_ukr_choose(isa, lq_cpu_of(ref)->ukr);
    if (!(isa & LQ_ISA_AMX) && ck_begin("tiled", "")) check_tiled(isa, ref);
    for (int i = 0; i < lq_ukr_count; i++) {
        const lq_ukr *u = &lq_ukrs[i];
        const unsigned own = isa & LQ_ISA_AMX ? LQ_ISA_AMX : isa & (LQ_ISA_BF16 | LQ_ISA_VNNI); // all else was tried
        if (u->needs & ~isa || (u->needs == 0) != (isa == 0) || (u->needs == LQ_ISA_AVX2 && isa & LQ_ISA_AVX512) ||
            (own && !(u->needs & own)))
            continue;
        if (!ck_begin(u->name, ck_emu_is() ? "emulated" : "")) continue;
        CHECK(lq_meter_has(u), "%s: none of the types to time (meter.c) fits this row", u->name);
        // `rows` kernels end in the f32 row of this ISA; the integer reference stays layout any's.
        lq_ukr_choose(u->needs, lq_cpu_of(ref)->ukr);
        const lq_ukr **chosen = lq_cpu_of(ref)->ukr;
        if (ck_emu_is()) ck_emu_rows(chosen);
        while (*chosen && strcmp((*chosen)->name, u->name)) chosen++;
        if (ck_emu_is()) u = *chosen;
        check_row(ref, u);
        if (u->many && u->run) check_tall(ref, u);
    }
    lq_ukr_choose(before, lq_cpu_of(ref)->ukr);
}
