// checkkern.c: walks every row of lq_ukrs[] and every slot of every table this CPU can run.
//   checkkern [--seed N] [--device cuda] [NAME]   checks, of all or of what has NAME in its or its ISA's name
// Exit 0 when all hold. --device: the slots of that device alone, which has to reach this program's memory.
#include "tests/checkkern/check_ops.h"
#include "tests/checkkern/emulated.h"
#include <stdarg.h>

int ck_passed, ck_failed, ck_skipped;

void ck_fail(const char *file, int line, const char *cond, const char *fmt, ...) {
    if (++ck_failed > 40) return;
    printf("%s:%d: FAILED: %s: ", file, line, cond);
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

// --- buffers ---

enum { GUARD = CK_WATCHED ? 0 : 256, BUFS = 16384, MARK = 0xA5 };
static struct { unsigned char *base; size_t before, bytes; } bufs[BUFS];
static int buf_count;

void *ck_buf(size_t bytes, size_t off) {
    const size_t before = GUARD + off;
    unsigned char *base = NULL;
    if (buf_count >= BUFS || posix_memalign((void **)&base, 64, before + bytes + GUARD + !bytes)) {
        printf("checkkern: no memory for a buffer of %zu bytes\n", bytes);
        exit(2);
    }
    memset(base, MARK, before + bytes + GUARD);
    bufs[buf_count].base = base;
    bufs[buf_count].before = before;
    bufs[buf_count++].bytes = bytes;
    return base + before;
}

void ck_done(const char *what) {
    const size_t guard = GUARD;
    bool ok = true;
    for (int i = 0; i < buf_count; i++) {
        const unsigned char *p = bufs[i].base;
        for (size_t j = 0; j < bufs[i].before; j++) ok &= p[j] == MARK;
        for (size_t j = 0; j < guard; j++) ok &= p[bufs[i].before + bufs[i].bytes + j] == MARK;
        free(bufs[i].base);
    }
    buf_count = 0;
    CHECK(ok, "%s: wrote outside of its buffers", what);
}

// --- random ---

static uint64_t state = 88172645463325252u, seed;
uint64_t ck_rand(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

double ck_uniform(void) { return (double)(ck_rand() >> 11) * 0x1p-52 - 1; }
int ck_below(int n) { return (int)(ck_rand() % (uint64_t)n); }
int64_t ck_chain(const lq_wtype *t, lq_layout layout, lq_dtype act, int64_t k) {
    const bool packed = t->kind == LQ_W_PLAIN && act == LQ_F32 && layout == LQ_X86;
    return (k < LQ_K_CUT ? k : LQ_K_CUT) / (packed ? 2 : 8);
}

void ck_fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = (float)(ck_uniform() * (ck_below(16) ? 1 : 30));
}

// --- what runs ---

static const char *only;
static int begun;

bool ck_begin(const char *name, const char *isa) {
    if (only && !strstr(name, only) && !strstr(isa, only)) return false;
    begun++;
    printf("%s %s\n", name, isa);
    fflush(stdout); // a crash leaves its name
    state = 1469598103934665603u + seed;
    for (const char *p = name; *p; p++) state = (state ^ (uint64_t)*p) * 1099511628211u;
    state = state ? state : 1;
    return true;
}

// --- weights and activations ---

static void put_float(void *to, lq_dtype t, size_t i, float f) {
    lq_dtypes[t].from_f32(&f, (char *)to + i * lq_dtype_size(t), 1);
}

lq_weight ck_weight(const lq_wtype *t, int64_t n, int64_t k, size_t off) {
    lq_weight_size size;
    lq_weight w = {.type = *t, .layout = LQ_ANY, .n = n, .k = k};
    if (!lq_weight_sizes(t, n, k, &size)) {
        printf("checkkern: a weight of %lld x %lld has no size\n", (long long)n, (long long)k);
        exit(2);
    }
    uint8_t *q = ck_buf(size.q, off), *zero = size.zero ? ck_buf(size.zero, off) : NULL;
    void *scale = size.scale ? ck_buf(size.scale, off & ~(size_t)3) : NULL;
    memset(q, 0, size.q);
    if (zero) memset(zero, 0, size.zero);
    const int64_t groups = lq_weight_groups(t, k);
    for (int64_t i = 0; i < n * k; i++) {
        if (t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT) put_float(q, t->elem, (size_t)i, (float)ck_uniform());
        else lq_code_set(q + (size_t)(i / k) * lq_code_row_bytes(t->bits, k), t->bits, i % k,
                         (uint32_t)ck_below(1 << t->bits));
    }
    for (size_t i = 0; i * lq_dtype_size(t->scale) < size.scale; i++)
        put_float(scale, t->scale, i, (float)(0.001 + fabs(ck_uniform()) * 0.1));
    for (int64_t i = 0; zero && i < n * groups; i++)
        lq_code_set(zero + (size_t)(i / groups) * lq_code_row_bytes(t->bits, groups), t->bits, i % groups,
                    (uint32_t)ck_below(1 << t->bits));
    w.q = q;
    w.scale = scale;
    w.zero = zero;
    if (t->kind != LQ_W_PLAIN && t->scale == LQ_E4M3) {
        float *by = ck_buf(sizeof *by, 0);
        *by = (float)(0.5 + fabs(ck_uniform()));
        w.scale2 = by;
    }
    if (t->act.fixed) {
        float *fixed = ck_buf(sizeof *fixed, 0);
        *fixed = (float)(0.02 + 0.01 * ck_uniform()); // some x of ck_fill are held to the range
        w.act_scale = fixed;
    }
    if (t->act.asym) {
        int32_t *shift = ck_buf(sizeof *shift, 0), *sum = ck_buf((size_t)n * sizeof *sum, 0);
        *shift = ck_below(256) - 128;
        lq_code_sums(&w, sum);
        w.act_zero = shift;
        w.code_sum = sum;
    }
    if (t->kind == LQ_W_TABLE) {
        float *table = ck_buf(sizeof(float) << t->bits, 0);
        if (t->book) memcpy(table, lq_wtype_table(t), sizeof(float) << t->bits);
        else ck_fill(table, (size_t)1 << t->bits);
        w.table = table;
    }
    return w;
}

lq_weight ck_weight_in(const lq_weight *any, lq_layout layout, size_t off) {
    lq_weight_size size;
    lq_weight w = *any;
    if (layout == LQ_ANY || !lq_pack_sizes(layout, &any->type, any->n, any->k, &size)) return w;
    lq_weight_out out = {
        .q = ck_buf(size.q, off), .scale = ck_buf(size.scale, off & ~(size_t)3),
            .zero = size.zero ? ck_buf(size.zero, off) : NULL};
    lq_pack(any, layout, out, NULL);
    w.layout = layout;
    w.q = out.q;
    w.scale = out.scale;
    w.zero = out.zero;
    return w;
}

lq_weight ck_weight_on(lq_dev *dev, const lq_weight *any) {
    return ck_weight_in(any, lq_dev_layout(dev, &any->type, any->n, any->k), 0);
}

float ck_scale(const lq_weight *any, int64_t row, int64_t group) {
    const int64_t groups = lq_weight_groups(&any->type, any->k), band = any->type.rows > 1 ? row / any->type.rows : row;
    float f;
    lq_dtypes[any->type.scale].to_f32(
        (const char *)any->scale + (size_t)(band * groups + (any->type.group ? group : 0)) *
        lq_dtype_size(any->type.scale), &f, 1);
    return f;
}

lq_weight ck_reader(lq_atype t, int64_t k) {
    lq_weight w = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32, .act = t}, .k = k};
    if (t.elem == LQ_I8) w.type = (lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .group = t.group,
                                             .scale = LQ_F32, .act = t};
    if (t.elem == LQ_E4M3) w.type = (lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = t.group,
                                               .scale = LQ_F32, .act = t};
    return w;
}

lq_act ck_act_of(const lq_mat *x, const lq_weight *w, bool bf16) {
    static lq_dev *c;
    lq_err err;
    if (!c && !lq_dev_open("cpu", &(lq_dev_opts){.isa = "c", .threads = 1}, &c, &err)) {
        printf("checkkern: %s\n", err.text);
        exit(2);
    }
    c->bf16 = bf16; // it has no product of it, but makes its activations
    lq_act a = {.x = *x};
    lq_act_bind(c, &a, w, x->rows, ck_buf(lq_act_bytes(c, w, x->rows), 0));
    c->ops.quant(c, &(lq_quant_args){.x = *x, .act = &a});
    return a;
}

lq_act ck_act(const lq_mat *x, lq_atype t) {
    const lq_weight w = ck_reader(t, x->cols);
    return ck_act_of(x, &w, true);
}

double ck_small(const lq_act *a, int row, int64_t col) {
    const size_t i = (size_t)row * a->q_row + (size_t)col;
    return (double)(a->halves ? lq_bf16_f32(((const uint16_t *)a->q)[i]) : ((const float *)a->q)[i]);
}

lq_mat ck_mat(int rows, int cols, size_t gap) {
    lq_mat m = {.type = LQ_F32, .rows = rows, .cols = cols, .stride = (size_t)cols + gap};
    m.p = ck_buf((size_t)rows * m.stride * sizeof(float), 4);
    for (int r = 0; r < rows; r++) {
        ck_fill(lq_mat_row(&m, r), (size_t)cols);
        for (size_t c = (size_t)cols; c < m.stride; c++) lq_mat_row(&m, r)[c] = NAN;
    }
    return m;
}

bool ck_gaps(const lq_mat *m) {
    bool ok = true;
    for (int r = 0; r < m->rows; r++)
        for (size_t c = (size_t)m->cols; c < m->stride; c++) ok &= isnan(lq_mat_row(m, r)[c]);
    return ok;
}

bool ck_mat_same(const lq_mat *a, const lq_mat *b) {
    bool ok = true;
    for (int r = 0; r < a->rows; r++)
        for (int c = 0; c < a->cols; c++) ok &= ck_same(lq_mat_row(a, r)[c], lq_mat_row(b, r)[c]);
    return ok;
}

// --- all tables ---

bool ck_reserve(lq_dev *d, lq_err *err) {
    static const lq_dev_limits most = {.rows = 600, .outs = 500, .k = 8192, .n = 8192, .heads = 16, .dv = 256,
                                       .max_at = 4096, .vocab = 150001, .slots = 400};
    return d->ops.reserve(d, &most, err);
}

static lq_dev *open_device(const char *name, const char *isa, int threads) {
    lq_err err;
    lq_dev *d;
    const lq_numerics exact = strcmp(name, "cpu") ? LQ_NUM_EXACT : LQ_NUM_DEFAULT; // matrices here are f32
    const lq_dev_opts o = {.isa = isa, .threads = threads, .numerics = exact};
    if (!(strcmp(name, "cpu") ? lq_dev_open(name, &o, &d, &err) : ck_open(&o, &d, &err)) || !ck_reserve(d, &err)) {
        printf("checkkern: %s\n", err.text);
        exit(2);
    }
    return d;
}

static int usage(void) {
    printf("usage: checkkern [--seed N] [--device cuda] [NAME]\n");
    return 2;
}

static void check_isa(lq_dev *ref, const char *isa) {
    lq_dev *d = open_device("cpu", isa, 3);
    const bool amx = !strcmp(isa, "amx"), bf16 = !strcmp(isa, "avx512bf16"), vnni = !strcmp(isa, "avxvnni");
    if (!strstr(d->isa, bf16 ? "bf16" : vnni ? "avx2 vnni" : isa)) {
        SKIP("%s: this CPU does not have it%s", isa, amx ? ", or the system does not grant it" : "");
        lq_dev_close(d);
        return;
    }
    const int before = ck_passed + ck_failed;
    if (bf16) check_bf16(ref, d), check_attn(d); // all else is what avx512 has
    else {
        check_ukrs(lq_cpu_of(d)->isa, ref);
        check_matmul(ref, d);
    }
    if (amx) check_attn(d), check_mix(d), check_rough(), check_emu_gram(d); // here too
    else if (!bf16 && !vnni) check_ops(ref, d);
    printf("%s: %d checks\n", d->isa, ck_passed + ck_failed - before);
    lq_dev_close(d);
}

// What is written for AVX-VNNI with the instruction of AVX-512, and for AMX on tiles in plain C.
static void check_emulated(lq_dev *ref) {
    const char *first;
    check_emu();
    if (ck_emu_can("avxvnni")) {
        ck_emu_begin();
        check_isa(ref, "avxvnni");
        ck_emu_end();
    } else SKIP("avxvnni emulated: this CPU does not have AVX-512");
    if (!ck_emu_can("amx")) {
        SKIP("amx emulated: this CPU does not have AVX-512 and its bf16");
        return;
    }
    ck_emu_begin();
    check_isa(ref, "amx");
    ck_emu_end();
    CHECK(ck_emu_faults(&first) == 0, "amx emulated: %d times %s", ck_emu_faults(&first), first);
    CHECK(ck_emu_released(), "amx emulated: tiles are not released");
}

int main(int argc, char **argv) {
    static const char *const isas[] = {"c", "avx2", "avxvnni", "avx512", "avx512bf16", "amx"};
    const char *device = NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--seed") && i + 1 < argc) seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--device") && i + 1 < argc) device = argv[++i];
        else if (argv[i][0] != '-' && !only) only = argv[i];
        else return usage();
    }
    lq_dev *ref = open_device("cpu", "c", 1);
    if (device) {
        setenv("LQ_EMU_AT_ONCE", "1", 1); // kernels are given the host's memory, looked at behind each call
        lq_dev *d = open_device(device, NULL, 3);
        check_matmul(ref, d);
        check_ops(ref, d);
        lq_dev_close(d);
    }
    for (size_t i = 0; !device && i < sizeof isas / sizeof *isas; i++) check_isa(ref, isas[i]);
    if (!device) check_emulated(ref);
    lq_dev_close(ref);
    if (!begun) CHECK(false, "no kernel and no slot has \"%s\" in its name", only);
    printf("%d passed, %d failed, %d skipped\n", ck_passed, ck_failed, ck_skipped);
    return ck_failed != 0;
}
