// meter.c: a CPU's ceilings and its micro-kernels beside them. Owns the memory that kernels are timed on. The speed of
// memory on a shared host moves within seconds: whoever compares takes ratios to what was timed right beside.
#include "kernels/meter.h"
#include "kernels/cpu/ukr.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { PARTS = 32,        // of a worker's work, claimed one by one
      PART_LEAST = 1 << 15, // bytes
      STREAMS_LEAST = 1 << 16 };

// Who times a kernel on one thread asks for that thread's time: then other work on the machine does not count.
typedef enum time_of { WALL, THREAD } time_of;
static double seconds(time_of of) {
    struct timespec t;
    clock_gettime(of == THREAD ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// --- reading ---

typedef struct read_job { const lq_span *s; size_t count, part, streams; _Atomic uint64_t sum; } read_job;

// Lines of 256 bytes of each stream in turn, asked for 4 KiB ahead.
static uint64_t read_bytes(const char *p, size_t n, size_t streams) {
    typedef uint64_t words __attribute__((vector_size(16), aligned(1), may_alias));
    words s[4] = {{0}};
    if (n < STREAMS_LEAST) streams = 1;
    const size_t stream = n / streams / 256 * 256;
    for (size_t i = 0; i < stream; i += 256)
        for (size_t t = 0; t < streams; t++) {
            const char *at = p + t * stream + i;
            const words *v = (const words *)(const void *)at;
            for (int l = 0; l < 4; l++) __builtin_prefetch((const void *)((uintptr_t)at + 4096 + (uintptr_t)l * 64));
            for (int l = 0; l < 4; l++) s[l] ^= v[l] ^ v[l + 4] ^ v[l + 8] ^ v[l + 12];
        }
    for (size_t i = streams * stream; i + 16 <= n; i += 16) s[0] ^= *(const words *)(const void *)(p + i);
    s[0] ^= s[1] ^ s[2] ^ s[3];
    return s[0][0] ^ s[0][1];
}

static void read_part(void *arg, int task, int worker) {
    read_job *j = arg;
    size_t skip = (size_t)task * j->part, left = j->part;
    uint64_t sum = 0;
    (void)worker;
    for (size_t i = 0; i < j->count && left; i++) {
        const size_t n = j->s[i].n;
        if (skip >= n) {
            skip -= n;
            continue;
        }
        const size_t here = n - skip < left ? n - skip : left;
        sum ^= read_bytes((const char *)j->s[i].p + skip, here, j->streams);
        left -= here;
        skip = 0;
    }
    j->sum ^= sum; // or the compiler would read nothing
}

static double read_seconds(lq_dev *d, const lq_span *s, size_t count, time_of of) {
    const size_t threads = (size_t)lq_pool_threads(d->pool);
    size_t all = 0, tasks = threads * PARTS;
    double best = INFINITY;
    for (size_t i = 0; i < count; i++) all += s[i].n;
    if (all / tasks < PART_LEAST) tasks = all / PART_LEAST > threads ? all / PART_LEAST : threads;
    for (size_t streams = 1; streams <= 8; streams += 7) {
        read_job j = {.s = s, .count = count, .part = all / tasks + 1, .streams = streams};
        const double begin = seconds(of);
        lq_pool_run(d->pool, read_part, &j, (int)tasks);
        best = fmin(best, seconds(of) - begin);
    }
    return best;
}

double lq_meter_read(lq_dev *d, const lq_span *s, size_t count) { return read_seconds(d, s, count, WALL); }

// --- multiply-adds: independent chains of the instruction that a kernel stands on ---

typedef enum peak_kind { NONE, TILE8, TILE16, DOT512, BF512, FMA512, DOT256, ADD256, FMA256 } peak_kind;
typedef struct peak_job { peak_kind kind; long loops; } peak_job;
enum { OPS = 12 }; // of the instruction in a loop
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DOT5(R) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #R "\n"
#define BF5(R) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" #R "\n"
#define FMA5(R) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" #R "\n"
#define DOT2(R) "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm" #R "\n"
#define ADD2(R) "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\nvpaddw %%ymm13, %%ymm" #R ", %%ymm" #R "\n"
#define FMA2(R) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #R "\n"
#define TILES(OP) OP(0) OP(1) OP(2) OP(3) OP(4) OP(5)
#define TILE8(R) "tdpbssd %%tmm7, %%tmm6, %%tmm" #R "\n"
#define TILE16(R) "tdpbf16ps %%tmm7, %%tmm6, %%tmm" #R "\n"
#define TILE_ZERO(R) "tilezero %%tmm" #R "\n"
#define ZERO(R) "vpxor %%xmm" #R ", %%xmm" #R ", %%xmm" #R "\n"
#define USED "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm13", "xmm14", "xmm15"
// One statement: nothing of the compiler's comes between setting the registers and the last use of them.
#define LOOP(OP)                                                                                                      \
    __asm__ volatile(CHAINS(ZERO) ZERO(14) ZERO(15) "1:\n" CHAINS(OP) "dec %0\njnz 1b\nvzeroupper\n" : "+r"(left)::"cc", USED)

// Registers of 16 rows of 64 bytes, which the compiler knows nothing of.
static const struct { uint8_t palette, zero[15]; uint16_t bytes[16]; uint8_t rows[16]; } full = {
    1, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
#define TILE_LOOP(OP)                                                                                            \
    __asm__ volatile("ldtilecfg %1\n" TILES(TILE_ZERO) TILE_ZERO(6) TILE_ZERO(7) "1:\n" TILES(OP) TILES(OP)       \
                     "dec %0\njnz 1b\ntilerelease\n" : "+r"(left) : "m"(full) : "cc")

static void peak_part(void *arg, int task, int worker) {
    const peak_job *j = arg;
    long left = j->loops;
    (void)task;
    (void)worker;
#if defined(__x86_64__)
    if (j->kind == TILE8) TILE_LOOP(TILE8);
    if (j->kind == TILE16) TILE_LOOP(TILE16);
    if (j->kind == DOT512) LOOP(DOT5);
    if (j->kind == BF512) LOOP(BF5);
    if (j->kind == FMA512) LOOP(FMA5);
    if (j->kind == DOT256) LOOP(DOT2);
    if (j->kind == ADD256) LOOP(ADD2);
    if (j->kind == FMA256) LOOP(FMA2);
#endif
    (void)left;
}

static double peak_of(lq_dev *d, peak_kind kind, time_of of) {
    static const int macs[] = {0, 16384, 8192, 64, 32, 16, 32, 32, 8};
    peak_job j = {kind, kind <= TILE16 ? 6000 : 64000};
    const int tasks = lq_pool_threads(d->pool) * PARTS;
    if (kind == NONE) return 0;
    const double begin = seconds(of);
    lq_pool_run(d->pool, peak_part, &j, tasks);
    return (double)j.loops * OPS * macs[kind] * tasks / (seconds(of) - begin);
}

static peak_kind kind_of(unsigned isa, lq_dtype act) {
    if (isa & LQ_ISA_AMX && act != LQ_F32) return act == LQ_I8 ? TILE8 : TILE16;
    if (isa & LQ_ISA_BF16 && act == LQ_BF16) return BF512;
    if (isa & LQ_ISA_AVX512) return act == LQ_I8 ? DOT512 : FMA512;
    if (isa & LQ_ISA_VNNI && act == LQ_I8) return DOT256;
    if (isa & LQ_ISA_AVX2) return act == LQ_I8 ? ADD256 : FMA256;
    return NONE;
}

double lq_meter_peak(lq_dev *d, lq_dtype act) { return peak_of(d, kind_of(lq_cpu_of(d)->isa, act), WALL); }

// --- matrices that fill memory ---

static const size_t ARENA = (size_t)512 << 20; // more than the caches of a core
static const size_t SLICE = (size_t)64 << 20;  // of it one repetition reads, and the next one the next
static const double MACS = 2e9, SLOW_MACS = 1e8; // of a repetition at most (portable C), or one matrix

typedef struct arena {
    char *p;
    lq_dtype holds;       // its bytes are elements of this type; LQ_U8: random bits
    lq_weight *w;         // [count] side by side
    int count, next;
    size_t one;           // bytes of each
    uint64_t draw;
    float table[256];
} arena;

static uint64_t arena_draw(arena *a) {
    a->draw ^= a->draw << 13;
    a->draw ^= a->draw >> 7;
    return a->draw ^= a->draw << 17;
}

static void arena_fill(arena *a, lq_dtype type) {
    float some[64];
    if (a->holds == type) return;
    a->holds = type;
    if (type == LQ_U8) {
        for (size_t i = 0; i < ARENA; i += 8) memcpy(a->p + i, &(uint64_t){arena_draw(a)}, 8);
        return;
    }
    for (int i = 0; i < 64; i++) some[i] = (float)(arena_draw(a) >> 40) * 0x1p-24f + 0.25f; // NaN is slow
    const size_t block = 64 * lq_dtype_size(type);
    lq_dtypes[type].from_f32(some, a->p, 64);
    for (size_t i = block; i + block <= ARENA; i += block) memcpy(a->p + i, a->p, block);
}

// Matrices of a type, cut to 128 MB each.
static bool arena_make(arena *a, const lq_wtype *t, lq_layout layout, int64_t n, int64_t k) {
    lq_weight_size size;
    static const float scale = 0.015625f;
    const size_t each = lq_dtype_size(t->scale);
    char coded[8];
    do {
        if (!lq_pack_sizes(layout, t, n, k, &size)) return false;
        a->one = (size.q + size.scale + size.zero + 63) / 64 * 64;
    } while (a->one > ARENA / 4 && (n = n / 2 / LQ_X86_ROWS * LQ_X86_ROWS) > 0);
    if (!n) return false;
    a->count = (int)(ARENA / a->one < 1 << 16 ? ARENA / a->one : 1 << 16);
    a->next = 0;
    free(a->w);
    a->w = calloc((size_t)a->count, sizeof *a->w);
    if (!a->w) return false;
    arena_fill(a, t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT ? t->elem : LQ_U8);
    lq_dtypes[t->scale].from_f32(&scale, coded, 1);
    for (int i = 0; i < a->count; i++) {
        char *at = a->p + (size_t)i * a->one;
        a->w[i] = (lq_weight){.type = *t, .layout = layout, .n = n, .k = k, .q = at, .scale = at + size.q,
                              .zero = size.zero ? (uint8_t *)at + size.q + size.scale : NULL, .table = a->table,
                              .scale2 = &scale};
        for (size_t c = 0; size.scale && c + each <= size.scale; c += each) memcpy(at + size.q + c, coded, each);
    }
    return true;
}

// --- one row of the table ---

typedef struct meter { lq_dev *d; const lq_meter_opts *o; time_of of; arena a; } meter;

static double matmuls(meter *m, int used, const lq_act *x, lq_mat y) {
    const double begin = seconds(m->of);
    for (int i = 0; i < used; i++) {
        const lq_matmul_args args = {.x = x, .count = 1, .w = {&m->a.w[m->a.next]}, .y = {y}};
        m->d->ops.matmul(m->d, &args);
        m->a.next = (m->a.next + 1) % m->a.count;
    }
    return seconds(m->of) - begin;
}

// From layout any to the device's, what a load waits for: each matrix to where half the arena on one lies.
static double packs(meter *m, int used) {
    const double begin = seconds(m->of);
    for (int i = 0; i < used; i++, m->a.next = (m->a.next + 1) % m->a.count) {
        const lq_weight *from = &m->a.w[m->a.next], *to = &m->a.w[(m->a.next + m->a.count / 2) % m->a.count];
        const lq_weight_out out = {(void *)(uintptr_t)to->q, (void *)(uintptr_t)to->scale, (void *)(uintptr_t)to->zero};
        lq_pack(from, m->d->layout, out, m->d->pool);
    }
    return seconds(m->of) - begin;
}

// Bytes a second of a read of as many matrices as a repetition takes, from those that are next but one turn.
static double read_rate(meter *m, int used) {
    const int from = (m->a.next + used) % m->a.count, here = m->a.count - from < used ? m->a.count - from : used;
    const lq_span s[] = {{m->a.p + (size_t)from * m->a.one, (size_t)here * m->a.one},
                         {m->a.p, (size_t)(used - here) * m->a.one}};
    return (double)used * (double)m->a.one / read_seconds(m->d, s, 2, m->of);
}

// u NULL: lq_pack.
static void time_line(meter *m, const lq_ukr *u, const lq_act *x, lq_mat y, lq_meter_line *line) {
    const peak_kind kind = u ? kind_of(u->needs, u->act) : NONE;
    const double macs = (double)line->n * (double)line->k * line->rows;
    double used_most = u ? (kind == NONE ? SLOW_MACS : MACS) / macs : INFINITY;
    if (used_most > ceil((double)SLICE / (double)m->a.one)) used_most = ceil((double)SLICE / (double)m->a.one);
    const int used = used_most > m->a.count ? m->a.count : used_most < 1 ? 1 : (int)used_most;
    // The first time warms up and does not count, unless it took so long that there is nothing left to warm.
    for (int i = -1; i < m->o->repeats; i++) {
        const double read = read_rate(m, used), peak = peak_of(m->d, kind, m->of);
        const double took = u ? matmuls(m, used, x, y) : packs(m, used);
        if (i < 0 && took < 0.5) continue;
        line->read[line->count] = fmax(read, read_rate(m, used));
        line->peak[line->count] = fmax(peak, peak_of(m->d, kind, m->of));
        line->seconds[line->count++] = took / used;
        if (i < 0) i = 0;
    }
}

static bool measure_line(meter *m, const lq_ukr *u, const lq_wtype *t, int64_t n, int64_t k, int rows, bool *go,
                         lq_err *err) {
    lq_meter_line line = {.kernel = u->name, .rows = rows};
    if (!arena_make(&m->a, t, u->layout, n, k)) return lq_fail(err, LQ_E_MEMORY, "no memory to time %s", u->name);
    const lq_weight *w = &m->a.w[0];
    const bool plain = u->act == LQ_F32 && t->act.elem != LQ_E4M3;
    const size_t act_bytes = plain ? 0 : lq_act_bytes(m->d, w, rows);
    float *x = malloc((size_t)rows * (size_t)k * sizeof *x), *y = malloc((size_t)rows * (size_t)w->n * sizeof *y);
    void *act = aligned_alloc(64, (act_bytes + 127) / 64 * 64);
    const bool done = x && y && act;
    if (done) {
        for (size_t i = 0; i < (size_t)rows * (size_t)k; i++) x[i] = (float)(arena_draw(&m->a) >> 40) * 0x1p-23f - 1;
        const lq_mat from = {.p = x, .rows = rows, .cols = (int)k, .stride = (size_t)k};
        lq_act a = {.type = {.elem = LQ_F32}, .x = from};
        if (!plain) {
            lq_act_bind(m->d, &a, w, rows, act);
            a.x.p = x;
            a.x.stride = (size_t)k;
            m->d->ops.quant(m->d, &(lq_quant_args){.x = from, .act = &a});
        }
        line.n = w->n;
        line.k = k;
        line.bytes = m->a.one;
        lq_wtype_name(t, line.type, sizeof line.type);
        time_line(m, u, &a, (lq_mat){.p = y, .rows = rows, .cols = (int)w->n, .stride = (size_t)w->n}, &line);
        *go = m->o->on(m->o->arg, &line);
    }
    free(x);
    free(y);
    free(act);
    return done || lq_fail(err, LQ_E_MEMORY, "no memory for %d rows to time %s with", rows, u->name);
}

// --- all of them ---

#define PACK "lq_pack"

enum { FP4 = 1, NF4 = 2 /* 1 + their rows of lq_codebooks[] */ };
static const lq_wtype types[] = {
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 128, .asym = true, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16, .act = {.elem = LQ_I8}},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 2, .group = 64, .asym = true, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 3, .group = 128, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 5, .group = 128, .scale = LQ_F16},
    {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 6, .group = 128, .scale = LQ_F16},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 2, .group = 64, .scale = LQ_F16},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 3, .group = 64, .scale = LQ_F16},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 64, .scale = LQ_F16},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = NF4, .group = 64, .scale = LQ_F16},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 6, .group = 64, .scale = LQ_F16},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = FP4, .group = 32, .scale = LQ_E8M0},
    {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = FP4, .group = 16, .scale = LQ_E4M3},
    {.kind = LQ_W_FLOAT, .elem = LQ_E5M2, .bits = 8, .scale = LQ_F16},
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F16},
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = LQ_F16, .act = {.elem = LQ_E4M3}},
    {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128, .scale = LQ_F16,
     .act = {.elem = LQ_E4M3, .group = 128}},
    {.kind = LQ_W_PLAIN, .elem = LQ_F64, .bits = 64},
};
static const lq_meter_shape shapes[] = {{5632, 2048}, {2048, 5632}}; // the MLP of a model of a billion parameters
static const int heights[] = {1, 4, 16, 128, 512};

// A device of this row's ISA takes it for such a weight: no row above it does.
static bool takes(const lq_ukr *u, const lq_wtype *t) {
    if (u->act == LQ_F32 && t->act.elem == LQ_I8) return false;
    if (u->act == LQ_I8 && t->kind == LQ_W_TABLE && !t->book) return false;
    const lq_ukr *first = lq_ukrs;
    while (first->needs & ~u->needs || !lq_ukr_fits(first, t, u->layout, u->act))
        if (++first == lq_ukrs + lq_ukr_count) return false;
    return first == u;
}

static lq_wtype plain_of(const lq_ukr *u) {
    return (lq_wtype){.kind = LQ_W_PLAIN, .elem = u->elem, .bits = (int)lq_dtype_size(u->elem) * 8};
}

bool lq_meter_has(const lq_ukr *u) {
    const lq_wtype plain = plain_of(u);
    bool has = u->kind == LQ_W_PLAIN && takes(u, &plain);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) has |= takes(u, &types[i]);
    return has;
}

static bool measure_type(meter *m, const lq_ukr *u, const lq_wtype *t, bool *go, lq_err *err) {
    const int count = m->o->count ? m->o->count : (int)(sizeof shapes / sizeof *shapes);
    const lq_meter_shape *s = m->o->count ? m->o->shapes : shapes;
    for (int i = 0; i < count; i++) {
        if (u->layout != LQ_ANY && !lq_pack_has(u->layout, t, s[i].n, s[i].k)) continue;
        for (size_t h = 0; *go && h < sizeof heights / sizeof *heights; h++)
            if (!measure_line(m, u, t, s[i].n, s[i].k, heights[h], go, err)) return false;
    }
    return true;
}

static bool measure_all(meter *m, lq_err *err) {
    const unsigned isa = lq_cpu_of(m->d)->isa;
    const bool bf16 = m->d->bf16;
    bool done = true, go = true;
    for (int i = 0; done && go && i < lq_ukr_count; i++) {
        const lq_ukr *u = &lq_ukrs[i];
        const lq_wtype plain = plain_of(u);
        if (u->needs & ~isa || (m->o->name && !strstr(u->name, m->o->name))) continue;
        lq_ukr_choose(u->needs, lq_cpu_of(m->d)->ukr);
        m->d->bf16 = u->needs & LQ_ISA_BF16 || u->act == LQ_BF16;
        if (u->kind == LQ_W_PLAIN) done = measure_type(m, u, &plain, &go, err);
        for (size_t t = 0; u->kind != LQ_W_PLAIN && done && go && t < sizeof types / sizeof *types; t++)
            if (takes(u, &types[t])) done = measure_type(m, u, &types[t], &go, err);
    }
    lq_ukr_choose(isa, lq_cpu_of(m->d)->ukr);
    m->d->bf16 = bf16;
    return done;
}

// Where the two layouts have as many bytes, which is so for rows and columns of a model.
static bool measure_packs(meter *m, lq_err *err) {
    const int count = m->o->count ? m->o->count : (int)(sizeof shapes / sizeof *shapes);
    const lq_meter_shape *s = m->o->count ? m->o->shapes : shapes;
    bool go = m->d->layout != LQ_ANY;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int i = 0; go && i < count; i++) {
            lq_weight_size here, there;
            if (types[t].act.elem != LQ_F32 || lq_dev_layout(m->d, &types[t], s[i].n, s[i].k) == LQ_ANY) continue;
            if (!arena_make(&m->a, &types[t], LQ_ANY, s[i].n, s[i].k))
                return lq_fail(err, LQ_E_MEMORY, "no memory to time " PACK);
            const lq_weight *w = &m->a.w[0];
            if (!lq_pack_sizes(LQ_ANY, &types[t], w->n, w->k, &here) ||
                !lq_pack_sizes(m->d->layout, &types[t], w->n, w->k, &there) || memcmp(&here, &there, sizeof here))
                continue;
            lq_meter_line line = {.kernel = PACK, .n = w->n, .k = w->k, .bytes = 2 * m->a.one};
            lq_wtype_name(&types[t], line.type, sizeof line.type);
            time_line(m, NULL, NULL, (lq_mat){0}, &line);
            go = m->o->on(m->o->arg, &line);
        }
    return true;
}

bool lq_meter_known(const char *name) {
    if (strstr(PACK, name)) return true;
    for (int i = 0; i < lq_ukr_count; i++)
        if (strstr(lq_ukrs[i].name, name)) return true;
    return false;
}

bool lq_meter_kernels(const lq_meter_opts *o, lq_err *err) {
    meter m = {.o = o, .a = {.draw = 88172645463325252u, .holds = LQ_F64}};
    void *p = NULL;
    const lq_dev_opts dev = {.threads = o->threads, .isa = o->isa};
    if (!lq_dev_open("cpu", &dev, &m.d, err)) return false;
    m.of = lq_pool_threads(m.d->pool) == 1 ? THREAD : WALL;
    const size_t room = m.d->ops.room(m.d), wanted = ARENA + ARENA / 4;
    bool done = room >= wanted || lq_fail(err, LQ_E_MEMORY, "timing kernels takes %zu MB of memory, %zu MB are free",
                                          wanted >> 20, room >> 20);
    if (done && posix_memalign(&p, 4096, ARENA)) done = lq_fail(err, LQ_E_MEMORY, "no memory for %zu bytes", ARENA);
    m.a.p = p;
    for (int i = 0; i < 256; i++) m.a.table[i] = (float)(i - 8) / 8;
    if (done) done = measure_all(&m, err);
    if (done && (!o->name || strstr(PACK, o->name))) done = measure_packs(&m, err);
    free(m.a.w);
    free(p);
    lq_dev_close(m.d);
    return done;
}
