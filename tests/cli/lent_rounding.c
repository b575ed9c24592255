// lent_rounding.c: an input's moments and a matrix that reads it, on the device "cuda": what is said to be lost is what
// the codes lose on the rows in f64; nothing as large as the moments, or as a matrix of f32, goes to the device or
// comes from it; and where the device has no room for what is made of moments the host makes it.
#include "quant/pass.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { K = 256, N = 300, ROWS = 700 };
static lq_dev *cpu, *far;
static lq_lent *lent;
static size_t put_bytes, got_bytes;
static void (*far_put)(lq_dev *, void *, const void *, size_t);
static void (*far_get)(lq_dev *, void *, const void *, size_t);

static void counted_put(lq_dev *d, void *dst, const void *src, size_t n) {
    put_bytes += n;
    far_put(d, dst, src, n);
}

static void counted_get(lq_dev *d, void *dst, const void *src, size_t n) {
    got_bytes += n;
    far_get(d, dst, src, n);
}

static float uniform(void) {
    static uint32_t seed = 11;
    seed = seed * 1664525 + 1013904223;
    return (float)((int)(seed >> 8) - (1 << 23)) / (1 << 23);
}

// Rows whose numbers are like their neighbours, some columns louder than others.
static void fill_rows(float *x, float *was) {
    for (int i = 0; i < ROWS * K; i++) {
        x[i] = uniform() * (i % 37 == 3 ? 6 : 1) + (i % K ? 0.7f * x[i - 1] : 0);
        was[i] = x[i] + 0.05f * uniform();
    }
}

static lq_mat mat_on(lq_dev *on, const float *x) {
    void *p = NULL;
    lq_err err;
    CHECK(on->ops.alloc(on, ROWS * K * sizeof *x, &p, &err), "%s", err.text);
    on->ops.put(on, p, x, ROWS * K * sizeof *x);
    return (lq_mat){.p = p, .type = LQ_F32, .rows = ROWS, .cols = K, .stride = K};
}

// Loss by the rows themselves, and what f32 may be off it: the sums of the moments, and of the form.
static double loss_of(const float *x, const lq_weight *w, const lq_weight *made, double *off) {
    double *size = calloc(K * K, sizeof *size), sum = 0;
    float row[K], back[K];
    *off = 0;
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                size[i * K + j] += fabs((double)x[t * K + i] * (double)x[t * K + j]) / ROWS;
    for (int r = 0; r < N; r++) {
        double d[K];
        lq_weight_row(w, r, row);
        lq_weight_row(made, r, back);
        for (int j = 0; j < K; j++) d[j] = (double)row[j] - (double)back[j];
        for (int t = 0; t < ROWS; t++) {
            double y = 0;
            for (int j = 0; j < K; j++) y += d[j] * (double)x[t * K + j];
            sum += y * y / ROWS;
        }
        for (int i = 0; i < K * K; i++) *off += (ROWS + K + 8) * 0x1p-24 * size[i] * fabs(d[i / K] * d[i % K]);
    }
    free(size);
    return sum;
}

// A search over rows that share scales is the host's: there the range is not searched.
typedef struct way { const char *type; lq_order order; lq_range range; bool paired, tight; } way;

// All but what the host's way needs: a call's arrays, not what is made of moments.
enum { PIECE = 1 << 17, PIECES = 1 << 9 };
static void fill_device(bool paired, void **piece) {
    const size_t leave = (size_t)K * K * (paired ? 28 : 14);
    lq_err err;
    for (int i = 0; i < PIECES && far->ops.room(far) > leave + PIECE; i++)
        if (!far->ops.alloc(far, PIECE, &piece[i], &err)) return;
}

static void check_way(const way *y, const float *x, const float *was, const uint16_t *half) {
    lq_rooms rooms = {.folder = ".", .left = (size_t)1 << 28};
    lq_dev *dev = lq_lend(lent, cpu);
    lq_recipe r = {.rounding = LQ_ROUND_GPTQ, .order = y->order, .range = y->range, .steps = 10, .least = 0.6f,
                   .refine = 3, .repay = 1};
    lq_err err = {0};
    lq_watch w;
    lq_solve s;
    lq_weight_size size;
    lq_weight_out raw;
    CHECK(lq_wtype_parse(y->type, &r.type, &err), "%s", err.text);
    const lq_mat at = mat_on(far, x), before = mat_on(far, was);
    float *work = lq_by_open(far, &rooms, K * K * sizeof *work, &err);
    CHECK(lq_watch_open(&w, far, &rooms, K, &(lq_watched){true, y->paired, false}, &err), "%s", err.text);
    CHECK(lq_watch_add(&w, &at, y->paired ? &before : NULL, work, &err) && lq_watch_end(&w, &err), "%s", err.text);
    lq_by_close(far, &rooms, work);
    far->ops.free(far, at.p), far->ops.free(far, before.p);
    void *filled[PIECES] = {NULL};
    if (y->tight) fill_device(y->paired, filled);

    put_bytes = got_bytes = 0;
    CHECK(lq_solve_make(dev, &w, &r, &s, &err), "%s: %s", y->type, err.text);
    CHECK(s.u && (s.repay != NULL) == y->paired && (s.on == far) == !y->tight, "%s: made elsewhere", y->type);
    // The order, the diagonal, whether there is a factor.
    CHECK(y->tight || (put_bytes <= K * 4 && got_bytes <= K * 8 + 64), "%s: %zu bytes put, %zu got of an input",
          y->type, put_bytes, got_bytes);

    const lq_weight from = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16}, .n = N, .k = K, .q = half};
    lq_weight_sizes(&r.type, N, K, &size);
    void *codes = aligned_alloc(64, (lq_module_bytes(&r.type, N, K) + 63) & ~(size_t)63);
    lq_lay_out(codes, &size, true, &raw);
    lq_matrix m = {.w = &from, .dev = dev, .solve = &s, .q = raw.q, .scale = raw.scale, .zero = raw.zero};
    put_bytes = got_bytes = 0;
    CHECK(lq_quantize_matrix(&r, &m, &err), "%s: %s", y->type, err.text);
    // Its elements, order and weights of columns; codes and figures of rows.
    CHECK(y->tight || (put_bytes <= N * K * 2 + K * 8 && got_bytes <= size.q + size.scale + size.zero + N * 48 + 64),
          "%s: %zu bytes put, %zu got of a matrix", y->type, put_bytes, got_bytes);
    CHECK(m.loss < m.loss_plain && m.loss_plain < m.loss_norm, "%s: loses %g, plainly %g of %g", y->type, m.loss,
          m.loss_plain, m.loss_norm);
    const lq_weight made = {.type = m.type, .n = N, .k = K, .q = raw.q, .scale = raw.scale, .zero = raw.zero,
                            .table = lq_wtype_table(&m.type), .perm = s.stays ? NULL : s.order};
    double off;
    const double loss = loss_of(x, &from, &made, &off);
    CHECK(y->paired || fabs(loss - m.loss) <= off, "%s: loses %g, said are %g, off by at most %g", y->type, loss,
          m.loss, off);
    free(codes);
    lq_solve_close(&s);
    lq_watch_close(&w);
    for (int i = 0; i < PIECES && filled[i]; i++) far->ops.free(far, filled[i]);
}

int main(void) {
    const lq_range searched = LQ_RANGE_WEIGHTED, full = LQ_RANGE_FULL;
    const way ways[] = {
        {"int4 g32 sym f16", LQ_ORDER_GROUPS, searched, false, false},
        {"int3 g48 asym f32", LQ_ORDER_COLUMNS, searched, false, false},
        {"e4m3 g64 r100 f32", LQ_ORDER_GROUPS, full, false, false},
        {"int4 g128 sym f16", LQ_ORDER_GROUPS, searched, true, false},
        {"int4 g32 sym f16", LQ_ORDER_NONE, searched, false, true},
        {"int4 g128 sym f16", LQ_ORDER_GROUPS, full, true, true}};
    lq_err err;
    const lq_quant_opts o = {.device = "cuda", .exact = true};
    setenv("LQ_EMU_MEMORY", "50000000", 0); // of a device that is emulated
    float *x = malloc(ROWS * K * sizeof *x), *was = malloc(ROWS * K * sizeof *was);
    uint16_t *half = malloc(N * K * sizeof *half);
    if (!lq_lend_open(&o, &lent, &err) || !lq_dev_open("cpu", &(lq_dev_opts){.threads = 1}, &cpu, &err)) {
        printf("FAILED: %s\n", err.text);
        return 1;
    }
    far = lq_lend_far(lent);
    far_put = far->ops.put, far_get = far->ops.get;
    far->ops.put = counted_put, far->ops.get = counted_get;
    fill_rows(x, was);
    for (int i = 0; i < N * K; i++) half[i] = lq_f32_bf16(uniform() + uniform());
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].tight && !strstr(far->isa, "emulated"))
            SKIP("a device of %zu bytes is not filled", far->ops.room(far));
        else check_way(&ways[i], x, was, half);
    }
    lq_lend_close(lent);
    lq_dev_close(cpu);
    free(x);
    free(was);
    free(half);
    return test_end();
}
