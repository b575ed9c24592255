// dev.c: opens a device: finds out what this CPU can do, fills its table, gives it threads and scratch; loads the CUDA plug-in.
// Owns what lq_dev_open makes. Refuses names it does not know and accelerators that are not there.
#include "kernels/cpu/ukr.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct lq_graph { lq_record_fn *fn; void *arg; };

// --- memory and control of a CPU ---

static bool cpu_alloc(lq_dev *d, size_t bytes, void **out, lq_err *err) {
    (void)d;
    size_t room;
    *out = NULL;
    if (lq_align_size(bytes ? bytes : 1, 64, &room)) *out = aligned_alloc(64, room);
    if (!*out) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory for %zu bytes", bytes);
    memset(*out, 0, room);
    return true;
}
static void cpu_free(lq_dev *d, void *p) {
    (void)d;
    free(p);
}
static void cpu_put(lq_dev *d, void *dst, const void *src, size_t n) {
    (void)d;
    if (n) memcpy(dst, src, n);
}
static bool cpu_sync(lq_dev *d, lq_err *err) {
    (void)d;
    (void)err;
    return true;
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

// --- what this CPU can do ---

#if defined(__x86_64__)
static unsigned cpu_isa(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const bool fma = c >> 12 & 1, xsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!fma || !xsave || !avx || !f16c) return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); // which registers the system saves
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    const bool avx2 = b >> 5 & 1, bmi2 = b >> 8 & 1, f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    if (!avx2 || !bmi2) return 0;
    return LQ_ISA_AVX2 | ((low & 0xe0) == 0xe0 && f && dq && bw && vl && vnni ? LQ_ISA_AVX512 : 0u);
}
#else
static unsigned cpu_isa(void) { return 0; }
#endif

static const struct { const char *name; unsigned isa; } caps[] = {
    {"auto", ~0u}, {"c", 0}, {"avx2", LQ_ISA_AVX2}, {"avx512", LQ_ISA_AVX2 | LQ_ISA_AVX512}, {"amx", ~0u},
};
static bool isa_cap(const char *name, unsigned *isa, lq_err *err) {
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        if (!strcmp(name ? name : "auto", caps[i].name)) {
            *isa = cpu_isa() & caps[i].isa;
            return true;
        }
    return lq_fail(err, LQ_E_USAGE, "isa: found \"%.40s\", expected auto, c, avx2, avx512 or amx", name);
}

static void cpu_fill(lq_dev *d, unsigned isa) {
    lq_cpu *c = d->self;
    c->isa = isa;
    c->q8 = &lq_q8_c;
    lq_ops *o = &d->ops;
    *o = (lq_ops){.alloc = cpu_alloc, .free = cpu_free, .put = cpu_put, .get = cpu_put, .sync = cpu_sync,
                  .record = cpu_record, .replay = cpu_replay, .forget = cpu_forget};
    lq_cpu_c(o);
    const char *name = "c";
#if defined(__x86_64__)
    if (isa & LQ_ISA_AVX2) {
        lq_cpu_avx2_slots(o);
        c->q8 = &lq_q8_avx2;
        name = "avx2";
    }
    if (isa & LQ_ISA_AVX512) {
        lq_cpu_avx512_slots(o);
        c->q8 = &lq_q8_avx512;
        name = "avx512 vnni";
    }
#endif
    d->layout = isa ? LQ_X86 : LQ_ANY;
    d->act = LQ_F32;
    d->q8 = true;
    lq_ukr_choose(isa, d->ukr);
    snprintf(d->isa, sizeof d->isa, "%s", name);
}

// Scratch of at least `share` bytes per worker and `whole` in all. The old one stays where there is no memory for more.
static bool cpu_scratch(lq_dev *d, size_t share, size_t whole, lq_err *err) {
    lq_cpu *c = d->self;
    const size_t threads = (size_t)lq_pool_threads(d->pool);
    size_t bytes;
    if (share < (whole + threads - 1) / threads) share = (whole + threads - 1) / threads;
    if (share <= c->share) return true;
    if (!lq_align_size(share, 64, &share) || !lq_mul_size(share, threads, &bytes))
        return lq_fail(err, LQ_E_LIMIT, "device cpu: scratch too large");
    void *work = aligned_alloc(64, bytes);
    if (!work) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory for %zu bytes of scratch", bytes);
    free(d->work);
    d->work = work;
    d->work_bytes = bytes;
    c->share = share;
    return true;
}

static void cpu_close(lq_dev *d) {
    lq_cpu *c = d->self;
    lq_pool_close(d->pool);
    if (c) free(c->next);
    free(c);
    free(d->work);
    free(d);
}

static bool cpu_open(const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    unsigned isa = 0;
    if (!isa_cap(o->isa, &isa, err)) return false;
    lq_dev *d = calloc(1, sizeof *d);
    if (!d) return lq_fail(err, LQ_E_MEMORY, "device cpu: no memory");
    *d = (lq_dev){.name = "cpu", .numerics = o->numerics, .host = true, .ranks = 1, .self = calloc(1, sizeof(lq_cpu))};
    lq_cpu *c = d->self;
    if (!c || !lq_pool_open(o->threads, &d->pool, err)) {
        cpu_close(d);
        return c ? false : lq_fail(err, LQ_E_MEMORY, "device cpu: no memory");
    }
    const size_t line = sizeof *c->next, threads = (size_t)lq_pool_threads(d->pool);
    c->next = aligned_alloc(line, line * threads);
    if (!c->next || !cpu_scratch(d, LQ_SHARE, 0, err)) {
        bool next = c->next;
        cpu_close(d);
        return next ? false : lq_fail(err, LQ_E_MEMORY, "device cpu: no memory");
    }
    cpu_fill(d, isa);
    *out = d;
    return true;
}

// --- CUDA ---

typedef bool lq_cuda_open_fn(const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err);
typedef void lq_cuda_close_fn(lq_dev *d);

static void *plugin(lq_err *err) {
    void *lib = dlopen("liblq_cuda.so", RTLD_NOW | RTLD_LOCAL);
    if (!lib) lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: the plug-in liblq_cuda.so cannot be loaded (%s)", dlerror());
    return lib;
}
static bool cuda_open(const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    void *lib = plugin(err);
    if (!lib) return false;
    lq_cuda_open_fn *open;
    *(void **)&open = dlsym(lib, "lq_cuda_open");
    return open ? open(name, o, out, err)
                : lq_fail(err, LQ_E_UNSUPPORTED, "device cuda: liblq_cuda.so has no lq_cuda_open: it is of another version");
}
static void cuda_close(lq_dev *d) {
    void *lib = plugin(NULL);
    lq_cuda_close_fn *close = NULL;
    if (lib) *(void **)&close = dlsym(lib, "lq_cuda_close");
    if (close) close(d);
}
static bool cuda_name(const char *name) {
    if (strncmp(name, "cuda", 4)) return false;
    if (!name[4]) return true;
    return name[4] == ':' && name[5] && strlen(name) < 9 && strspn(name + 5, "0123456789") == strlen(name + 5);
}

// --- any device ---

bool lq_dev_open(const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    const lq_dev_opts none = {0};
    *out = NULL;
    if (!o) o = &none;
    if (!strcmp(name, "cpu")) return cpu_open(o, out, err);
    if (cuda_name(name)) return cuda_open(name, o, out, err);
    return lq_fail(err, LQ_E_USAGE, "device: found \"%.40s\", expected cpu, cuda or cuda:N", name);
}

void lq_dev_close(lq_dev *d) {
    if (!d) return;
    if (d->host) cpu_close(d);
    else cuda_close(d);
}

bool lq_dev_reserve(lq_dev *d, const lq_dev_limits *l, lq_err *err) {
    if (!d->host) return true; // the plug-in sizes its own when a model is loaded
    return cpu_scratch(d, 0, lq_cpu_slots_work(l, lq_pool_threads(d->pool)), err);
}
