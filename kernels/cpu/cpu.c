// cpu.c: the device "cpu": finds out what this machine can do, fills its table of slots from the bottom up, gives it
// threads and scratch. Owns what lq_cpu_open makes. Refuses instruction sets it does not know; of those it knows it
// takes what the machine has.
#include "kernels/cpu/attn.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/slots.h"
#include "kernels/cpu/ukr.h"
#include "kernels/meter.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

struct lq_graph { lq_record_fn *fn; void *arg; };

// --- memory and control ---

enum { BORDER = 64, PAGE = 4096, LARGE = 16 * PAGE, HUGE_PAGE = 2 << 20 };

// A walk through much memory costs fewer page walks where its pages are large. As far as the system likes to.
static void huge_pages(char *p, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t from = ((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    const uintptr_t to = ((uintptr_t)p + bytes) / HUGE_PAGE * HUGE_PAGE;
    if (from < to) madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}

// calloc knows which memory is fresh from the system and does not write to it. (Much of it begins at a border of large
// pages, so that all but its end has such.) What it gave stands
// right before what is handed out.
static bool cpu_alloc(lq_dev *d, size_t bytes, void **out, lq_err *err) {
    (void)d;
    const size_t border = bytes >= HUGE_PAGE ? HUGE_PAGE : bytes >= LARGE ? PAGE : BORDER;
    size_t room;
    char *base = lq_add_size(bytes, border + sizeof(void *), &room) ? calloc(1, room) : NULL;
    *out = NULL;
    if (!base) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory for %zu bytes", bytes);
    char *p = base + sizeof(void *);
    p += (border - (uintptr_t)p % border) % border;
    memcpy(p - sizeof(void *), &base, sizeof base);
    huge_pages(p, bytes);
    *out = p;
    return true;
}

static void cpu_free(lq_dev *d, void *p) {
    (void)d;
    void *base = NULL;
    if (p) memcpy(&base, (char *)p - sizeof base, sizeof base);
    free(base);
}

static void cpu_put(lq_dev *d, void *dst, const void *src, size_t n) {
    (void)d;
    if (n) memcpy(dst, src, n);
}

static bool cpu_sync(lq_dev *d, lq_err *err) {
    const lq_cpu *c = lq_cpu_of(d);
    if (c->broken && err) *err = c->why;
    return !c->broken;
}

static bool cpu_record(lq_dev *d, lq_record_fn *fn, void *arg, lq_graph **out, lq_err *err) {
    (void)d;
    *out = malloc(sizeof **out);
    if (!*out) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory for a graph");
    **out = (lq_graph){fn, arg};
    return true;
}

static void cpu_replay(lq_dev *d, lq_graph *g) {
    (void)d;
    g->fn(g->arg);
}

static void cpu_forget(lq_dev *d, lq_graph *g) {
    (void)d;
    free(g);
}

// Scratch of at least `share` bytes per worker and `whole` in all. The old one stays where there is no memory for more.
static bool scratch(lq_dev *d, size_t share, size_t whole, lq_err *err) {
    lq_cpu *c = d->self;
    const size_t threads = (size_t)lq_pool_threads(d->pool);
    size_t bytes;
    if (share < (whole + threads - 1) / threads) share = (whole + threads - 1) / threads;
    if (share <= c->share) return true;
    if (!lq_align_size(share, BORDER, &share) || !lq_mul_size(share, threads, &bytes))
        return lq_fail(err, LQ_E_LIMIT, "device cpu: scratch too large");
    void *work = aligned_alloc(BORDER, bytes);
    if (!work) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory for %zu bytes of scratch", bytes);
    free(c->work);
    c->work = work;
    c->work_bytes = bytes;
    c->share = share;
    return true;
}

static bool cpu_reserve(lq_dev *d, const lq_dev_limits *l, lq_err *err) {
    const int threads = lq_pool_threads(d->pool);
    const size_t attn = threads > 1 ? lq_attn_work(l) : 0, moe = lq_moe_work(l, threads);
    const size_t rough = lq_cpu_of(d)->rough ? lq_rough_work(l, threads) : 0, most = attn > moe ? attn : moe;
    return scratch(d, lq_sample_work(l->vocab), most > rough ? most : rough, err);
}

static bool cpu_can(lq_dev *d, const lq_wtype *t, lq_layout layout, lq_err *err) {
    const lq_weight w = {.type = *t, .layout = layout};
    const lq_dtype act = lq_act_halves(d, &w) ? LQ_BF16 : lq_act_type(d, t).elem;
    char name[64];
    if (lq_ukr_find(d, &w, act)) return true;
    lq_wtype_name(t, name, sizeof name);
    return lq_fail(err, LQ_E_UNSUPPORTED, "device cpu %s: no kernel for weights %s in layout %s with activations %s",
                   d->isa, name, lq_layout_names[layout], lq_dtypes[act].name);
}

// --- what this CPU can do ---

#if defined(__x86_64__)
// The system saves a thread's tiles only of a process that asked for them; threads that it starts later have them too.
static bool amx_granted(unsigned saved) {
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18, TILES = 3 << 17 };
    unsigned a, b, c, d;
    if ((saved & TILES) != TILES || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a >> 5 & 1)) return false;
    const unsigned wanted = 1u << 22 | 1u << 24 | 1u << 25; // bf16, tiles, int8
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & wanted) != wanted) return false;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

static unsigned cpu_isa(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const bool fma = c >> 12 & 1, xsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!fma || !xsave || !avx || !f16c) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); // which registers the system saves
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const bool avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1, f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1;
    const bool vl = b >> 31 & 1, vnni = c >> 11 & 1, vbmi = c >> 1 & 1;
    if (!avx2 || !bmi2) return 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) a = 0;
    const unsigned narrow = LQ_ISA_AVX2 | (a >> 4 & 1 ? LQ_ISA_VNNI : 0u);
    if ((low & 0xe0) != 0xe0 || !f || !dq || !bw || !vl || !vnni) return narrow;
    const bool bf16 = vbmi && (a >> 5 & 1);
    return narrow | LQ_ISA_AVX512 | (bf16 ? LQ_ISA_BF16 : 0u) | (bf16 && amx_granted(low) ? LQ_ISA_AMX : 0u);
}
#else
static unsigned cpu_isa(void) { return 0; }
#endif

static const struct { const char *name; unsigned isa; } caps[] = {
    {"auto", ~0u}, {"c", 0}, {"avx2", LQ_ISA_AVX2}, {"avxvnni", LQ_ISA_AVX2 | LQ_ISA_VNNI},
    {"avx512", LQ_ISA_AVX2 | LQ_ISA_AVX512},
    {"avx512bf16", LQ_ISA_AVX2 | LQ_ISA_AVX512 | LQ_ISA_BF16},
    {"amx", LQ_ISA_AVX2 | LQ_ISA_AVX512 | LQ_ISA_BF16 | LQ_ISA_AMX},
};
const char *lq_cpu_isa(size_t i) { return i < sizeof caps / sizeof *caps ? caps[i].name : NULL; }

static bool isa_cap(const char *name, unsigned *isa, lq_err *err) {
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        if (!strcmp(name ? name : "auto", caps[i].name)) {
            *isa = cpu_isa() & caps[i].isa;
            return true;
        }
    return lq_fail(err, LQ_E_USAGE, "isa: found \"%.40s\", expected auto, c, avx2, avxvnni, avx512, avx512bf16 or amx", name);
}

static void slots_fill(lq_dev *d, unsigned isa, bool rough) {
    lq_cpu *c = d->self;
    c->isa = isa;
    c->q8 = &lq_q8_c;
    c->spread = lq_spread_c;
    c->rounds = &lq_rounds_c;
    lq_ops *o = &d->ops;
    *o = (lq_ops){.alloc = cpu_alloc, .free = cpu_free, .put = cpu_put, .get = cpu_put, .copy = cpu_put,
                  .sync = cpu_sync, .record = cpu_record, .replay = cpu_replay, .forget = cpu_forget,
                  .can = cpu_can, .reserve = cpu_reserve, .room = lq_room_cpu, .read_time = lq_meter_read,
                  .peak = lq_meter_peak};
    lq_cpu_c_slots(o);
    const char *name = "c";
#if defined(__x86_64__)
    if (isa & LQ_ISA_AVX2) {
        lq_cpu_avx2_slots(o);
        c->q8 = &lq_q8_avx2;
        c->spread = lq_spread_avx2;
        c->rounds = &lq_rounds_avx2;
        name = isa & LQ_ISA_VNNI ? "avx2 vnni" : "avx2";
    }
    if (isa & LQ_ISA_AVX512) {
        lq_cpu_avx512_slots(o);
        c->q8 = &lq_q8_avx512;
        c->spread = lq_spread_avx512;
        name = isa & LQ_ISA_BF16 ? "avx512 vnni bf16" : "avx512 vnni";
    }
    if (isa & LQ_ISA_BF16) o->attn = lq_attn_avx512bf16;
    if (isa & LQ_ISA_AMX) {
        lq_cpu_amx_slots(o);
        o->attn = lq_attn_amx;
        c->rough = rough ? &lq_rough_amx : NULL;
        name = "avx512 vnni bf16 amx"; // cpu_isa asks for both
    }
#endif
    d->bf16 = isa & LQ_ISA_BF16 && !rough;
    d->layout = isa ? LQ_X86 : LQ_ANY;
    lq_ukr_choose(isa | (rough ? LQ_ISA_ROUGH : 0u), c->ukr);
    snprintf(d->isa, sizeof d->isa, "%s", name);
}

void lq_cpu_close(lq_dev *d) {
    lq_cpu *c = d->self;
    lq_pool_close(d->pool);
    if (c) {
        free(c->next);
        free(c->ukr);
        free(c->work);
    }
    free(c);
    free(d);
}

static bool parts_open(lq_dev *d, int threads, lq_err *err) {
    lq_cpu *c = d->self = calloc(1, sizeof *c);
    if (!c) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory");
    if (!lq_pool_open(threads, &d->pool, err)) return false;
    c->next = aligned_alloc(sizeof *c->next, sizeof *c->next * (size_t)lq_pool_threads(d->pool));
    c->ukr = calloc((size_t)lq_ukr_count + 1, sizeof(lq_ukr *));
    if (!c->next || !c->ukr) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory");
    return scratch(d, LQ_SHARE, 0, err);
}

bool lq_cpu_open(const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    unsigned isa = 0;
    if (!isa_cap(o->isa, &isa, err)) return false;
    lq_dev *d = calloc(1, sizeof *d);
    if (!d) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory");
    *d = (lq_dev){.name = "cpu", .numerics = o->numerics, .act = LQ_F32, .host = true, .q8 = true, .ranks = 1};
    if (!parts_open(d, o->threads, err)) {
        lq_cpu_close(d);
        return false;
    }
    slots_fill(d, isa, o->rough);
    *out = d;
    return true;
}
