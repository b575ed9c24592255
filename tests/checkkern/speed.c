// speed.c: each micro-kernel on this machine, as a fraction of what the machine can do. The speed of memory on a
// shared host moves within seconds: what is printed is the median of ratios, each to a plain read of the same
// bytes timed beside the kernel.
#include "tests/checkkern/checkkern.h"
#include <stdatomic.h>
#include <time.h>

enum { N = 5632, K = 2048, ROUNDS = 9 };
enum { PARTS = 32 }; // of a worker's work in a reference: claimed one by one, as a matmul's runs are
static const size_t SET_BYTES = (size_t)512 << 20; // more than the caches of a core; the same for kernel and read

// On one thread the time of the process: then other work on the machine does not count.
static clockid_t time_of = CLOCK_MONOTONIC;
static double now(void) {
    struct timespec t;
    clock_gettime(time_of, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int less(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *t, int n) {
    qsort(t, (size_t)n, sizeof *t, less);
    return t[n / 2];
}

// --- what the machine can do ---

static atomic_llong sink;
typedef struct read_job { const char *p; size_t bytes; int parts, streams; } read_job;
typedef long long vec __attribute__((vector_size(32)));
#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
static void read_part(void *arg, int task, int worker) {
    (void)worker;
    const read_job *j = arg;
    const size_t part = j->bytes / (size_t)j->parts / 4096 * 4096, stream = part / (size_t)j->streams;
    const char *p = j->p + (size_t)task * part;
    vec s[4] = {{0}};
    for (size_t i = 0; i < stream; i += 256)
        for (int t = 0; t < j->streams; t++) {
            const vec *v = (const vec *)(const void *)(p + (size_t)t * stream + i);
            for (size_t l = 0; l < 4; l++) __builtin_prefetch((const char *)v + 4096 + l * 64, 0, 3);
            for (int l = 0; l < 4; l++) s[l] ^= v[l] ^ v[l + 4];
        }
    atomic_fetch_add(&sink, s[0][0] ^ s[1][1] ^ s[2][2] ^ s[3][3]);
}

// The better of one stream and eight: which of them a machine likes is not known before.
static double read_time(lq_dev *d, const char *p, size_t bytes) {
    double best = INFINITY;
    for (int streams = 1; streams <= 8; streams += 7) {
        read_job j = {p, bytes, lq_pool_threads(d->pool) * PARTS, streams};
        const double t = now();
        lq_pool_run(d->pool, read_part, &j, j.parts);
        best = fmin(best, now() - t);
    }
    return best;
}

// Multiply-adds per second of all threads: independent chains of the instruction a kernel stands on.
typedef struct peak_job { int kind; long loops; } peak_job;
enum { DOT512, FMA512, DOT256, FMA256, NONE };
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DOT5(R) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #R "\n"
#define FMA5(R) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #R "\n"
#define DOT2(R) "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\nvpaddw %%ymm13, %%ymm" #R ", %%ymm" #R "\n"
#define FMA2(R) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #R "\n"
#define CLEAR __asm__ volatile("vpxor %%xmm14, %%xmm14, %%xmm14\nvpxor %%xmm15, %%xmm15, %%xmm15\n" ::: "xmm14", "xmm15");
#define LOOP(OP)                        \
    for (long i = 0; i < j->loops; i++) \
    __asm__ volatile(CHAINS(OP)::       \
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm13")
static void peak_part(void *arg, int task, int worker) {
    (void)task;
    (void)worker;
    const peak_job *j = arg;
#if defined(__x86_64__)
    CLEAR
    if (j->kind == DOT512) LOOP(DOT5);
    if (j->kind == FMA512) LOOP(FMA5);
    if (j->kind == DOT256) LOOP(DOT2);
    if (j->kind == FMA256) LOOP(FMA2);
#endif
    (void)j;
}

static double peak(lq_dev *d, int kind) {
    static const int macs[] = {64, 16, 32, 8, 1};
    peak_job j = {kind, 64000};
    const int tasks = lq_pool_threads(d->pool) * PARTS;
    const double t = now();
    lq_pool_run(d->pool, peak_part, &j, tasks);
    return (double)j.loops * 12 * macs[kind] * tasks / (now() - t);
}

static int peak_kind(const lq_ukr *u) {
    if (u->needs & LQ_ISA_AVX512) return u->act == LQ_I8 ? DOT512 : FMA512;
    if (u->needs & LQ_ISA_AVX2) return u->act == LQ_I8 ? DOT256 : FMA256;
    return NONE;
}

// --- one row of the table ---

typedef struct set { lq_weight *w; int count; char *base; size_t bytes; } set;

// Distinct matrices, together SET_BYTES of memory, filled with what does not overflow.
static bool set_make(const lq_wtype *t, lq_layout layout, set *s) {
    lq_weight_size size;
    if (!lq_pack_sizes(layout, t, N, K, &size)) return false;
    const size_t one = (size.q + size.scale + size.zero + 63) / 64 * 64;
    s->count = (int)(SET_BYTES / one);
    s->bytes = one * (size_t)s->count;
    s->w = calloc((size_t)s->count, sizeof *s->w);
    void *p = NULL;
    if (!s->w || posix_memalign(&p, 4096, s->bytes)) {
        free(s->w);
        return false;
    }
    s->base = p;
    static const float scale = 0.01f;
    float one64[64];
    for (int i = 0; i < 64; i++) one64[i] = (float)ck_uniform();
    const size_t block = t->kind == LQ_W_PLAIN ? 64 * lq_dtype_size(t->elem) : 8; // no denormals, no NaN: slow
    for (size_t i = 0; i + block <= s->bytes; i += block)
        if (t->kind == LQ_W_PLAIN) lq_dtypes[t->elem].from_f32(one64, s->base + i, 64);
        else *(uint64_t *)(void *)(s->base + i) = ck_rand() & (t->kind == LQ_W_FLOAT ? ~0x0808080808080808u : ~0ull);
    for (int i = 0; i < s->count; i++) {
        char *at = s->base + (size_t)i * one;
        s->w[i] = (lq_weight){.type = *t, .layout = layout, .n = N, .k = K, .q = at, .scale = at + size.q,
                              .zero = size.zero ? (uint8_t *)at + size.q + size.scale : NULL,
                              .table = lq_wtype_table(t), .scale2 = &scale};
        for (size_t c = 0, b = lq_dtype_size(t->scale); size.scale && c < size.scale / b; c++)
            lq_dtypes[t->scale].from_f32(&scale, at + size.q + c * b, 1);
    }
    return true;
}

static double set_time(lq_dev *d, const set *s, int used, const lq_act *a, lq_mat y) {
    const double t = now();
    for (int i = 0; i < used; i++) d->ops.matmul(d, &(lq_matmul_args){.x = a, .count = 1, .w = {&s->w[i]}, .y = {y}});
    return now() - t;
}

static void speed_of(lq_dev *d, const lq_ukr *u, const lq_wtype *t) {
    set s;
    char name[64];
    lq_wtype_name(t, name, sizeof name);
    if (!t->act.group && t->act.elem == LQ_I8 && !strstr(name, "act")) strcat(name, " act i8 row");
    if (!set_make(t, u->layout, &s)) {
        printf("  %s: no memory\n", name);
        return;
    }
    for (int pass = 0; pass < 4; pass++) {
        const int rows = pass == 0 ? 1 : pass == 1 ? 4 : pass == 2 ? 16 : 512, reps = pass < 3 ? ROUNDS : 5;
        int used = pass == 0 ? s.count : pass < 3 ? s.count / 2 + 1 : 4;
        if (peak_kind(u) == NONE) used = rows > 16 ? 1 : s.count / 16 + 1;
        const size_t bytes = s.bytes / (size_t)s.count * (size_t)used;
        const lq_mat x = ck_mat(rows, K, 0), y = ck_mat(rows, N, 0);
        const lq_act a = u->act == LQ_I8 || t->act.elem == LQ_E4M3 ? ck_act_of(&x, &s.w[0])
            : ck_act(&x, (lq_atype){.elem = LQ_F32});
        double t0[ROUNDS], of_read[ROUNDS], of_peak[ROUNDS];
        set_time(d, &s, used < 4 ? used : 4, &a, y);
        for (int i = 0; i < reps; i++) {
            const int kind = peak_kind(u);
            const double before = read_time(d, s.base, bytes), p = kind == NONE ? 0 : peak(d, kind);
            t0[i] = set_time(d, &s, used, &a, y);
            const double read = (before + read_time(d, s.base, bytes)) / 2, macs = (double)N * K * rows * used;
            of_read[i] = read / t0[i];
            of_peak[i] = kind == NONE ? 0 : macs / t0[i] / ((p + peak(d, kind)) / 2);
        }
        const double tm = median(t0, reps);
        printf("  %-26s M %3d: %7.3f ms a matrix, %6.1f GB/s = %3.0f %% of a plain read", name, rows, tm / used * 1e3,
               (double)bytes / tm / 1e9, 100 * median(of_read, reps));
        if (peak_kind(u) != NONE)
            printf(", %6.3f TOPS = %3.0f %% of peak", 2e-12 * N * K * rows * used / tm, 100 * median(of_peak, reps));
        printf("\n");
        fflush(stdout);
        ck_done("speed");
    }
    free(s.base);
    free(s.w);
}

void speed(lq_dev *d, const char *only) {
    const lq_wtype coded[] = {
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .asym = true, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16, .act = {.elem = LQ_I8}},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 2, .group = 64, .asym = true, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 3, .group = 128, .scale = LQ_F16},
        {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 6, .group = 128, .scale = LQ_F16},
        {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 64, .scale = LQ_F16, .book = lq_codebook_of("nf4")},
        {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_E8M0, .book = lq_codebook_of("fp4")},
        {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 16, .scale = LQ_E4M3, .book = lq_codebook_of("fp4")},
        {.kind = LQ_W_FLOAT, .elem = LQ_E5M2, .bits = 8, .scale = LQ_F16},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F16},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F16, .act = {.elem = LQ_E4M3}},
        {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128, .scale = LQ_F16,
         .act = {.elem = LQ_E4M3, .group = 128}},
    };
    const unsigned isa = lq_cpu_of(d)->isa;
    if (lq_pool_threads(d->pool) == 1) time_of = CLOCK_PROCESS_CPUTIME_ID;
    printf("%s, %d threads, %d x %d\n", d->isa, lq_pool_threads(d->pool), N, K);
    for (int i = 0; i < lq_ukr_count; i++) {
        const lq_ukr *u = &lq_ukrs[i];
        if (u->needs & ~isa || u->any_kind || (only && !strstr(u->name, only))) continue;
        lq_ukr_choose(u->needs, lq_cpu_of(d)->ukr);
        printf("%s\n", u->name);
        const lq_wtype plain = {.kind = LQ_W_PLAIN, .elem = u->elem, .bits = (int)lq_dtype_size(u->elem) * 8};
        if (u->kind == LQ_W_PLAIN) speed_of(d, u, &plain);
        else for (size_t t = 0; t < sizeof coded / sizeof *coded; t++)
                if (lq_ukr_fits(u, &coded[t], u->layout, u->act) &&
                    lq_ukr_find(d, &(lq_weight){.type = coded[t], .layout = u->layout}, u->act) == u)
                    speed_of(d, u, &coded[t]);
    }
    lq_ukr_choose(isa, lq_cpu_of(d)->ukr);
}
