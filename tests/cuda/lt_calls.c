// lt_calls.c: what kernels/cuda/lt.c asks of cuBLASLt, where there is neither GPU nor cuBLASLt: lt_library.c is loaded
// in its place, device memory is the host's. Products are held against sums in f64.
#include "formats/elem.h"
#include "kernels/cuda/lt.h"
#include "tests/unit/test.h"
#include <dlfcn.h>
#include <math.h>

// The driver, as far as lt.c asks for it.
bool lq_gpu_alloc(lq_gpu *g, size_t bytes, void **out, lq_err *err) {
    (void)g, (void)err;
    *out = calloc(1, bytes);
    return true;
}

void lq_gpu_free(lq_gpu *g, void *p) { (void)g, free(p); }
void *lq_gpu_stream(lq_gpu *g) { return g; }

static uint32_t seed = 3;

static float uniform(void) { // -1 .. 1
    seed = seed * 1664525 + 1013904223;
    return (float)(int32_t)seed * 0x1p-31f;
}

static uint16_t *some(size_t n) {
    uint16_t *p = aligned_alloc(64, (n * sizeof *p + 63) / 64 * 64);
    for (size_t i = 0; i < n; i++) p[i] = (uint16_t)lq_bf16_narrow(uniform());
    return p;
}

// Of e4m3, finite.
static uint8_t *codes(size_t n) {
    uint8_t *p = aligned_alloc(64, (n + 63) / 64 * 64);
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)lq_e4m3_narrow(uniform());
    return p;
}

static float *scales(int n) {
    float *p = malloc((size_t)n * sizeof *p);
    for (int i = 0; i < n; i++) p[i] = 1.5f + uniform();
    return p;
}

typedef struct problem { lq_lt_product p; float *y; size_t n; } problem;

static problem problem_of(int m, int n, int k, int gap, bool f32, bool scaled) {
    problem o = {.p = {.m = m, .n = n, .k = k, .f32 = f32}};
    if (scaled) o.p.x_scale = scales(m), o.p.w_scale = scales(n), gap *= 2;
    o.p.x_stride = (size_t)(k + gap), o.p.w_stride = (size_t)(k + 2 * gap), o.p.y_stride = (size_t)(n + 3 * gap);
    const size_t of_x = (size_t)m * o.p.x_stride, of_w = (size_t)n * o.p.w_stride;
    if (scaled) o.p.x = codes(of_x), o.p.w = codes(of_w);
    else o.p.x = some(of_x), o.p.w = some(of_w);
    o.n = (size_t)m * o.p.y_stride;
    o.p.y = aligned_alloc(64, (o.n * 4 + 63) / 64 * 64);
    memset(o.p.y, 0x7f, o.n * 4);
    return o;
}

static void problem_free(problem *o) {
    free((void *)(uintptr_t)o->p.x);
    free((void *)(uintptr_t)o->p.w);
    free((void *)(uintptr_t)o->p.x_scale);
    free((void *)(uintptr_t)o->p.w_scale);
    free(o->p.y);
}

static double number(const lq_lt_product *p, const void *of, size_t at) {
    return (double)(p->x_scale ? lq_e4m3_widen(((const uint8_t *)of)[at]) : lq_bf16_widen(((const uint16_t *)of)[at]));
}

// Sums of k products in f32, in order, times two scales, and half a unit of bf16; what is no result is as it was.
static int wrong(const problem *o) {
    const lq_lt_product *p = &o->p;
    int count = 0;
    for (size_t i = 0; i < o->n; i++) {
        const size_t row = i / p->y_stride, col = i % p->y_stride;
        const float y = p->f32 ? ((float *)p->y)[i] : lq_bf16_widen(((uint16_t *)p->y)[i]);
        if (col >= (size_t)p->n) {
            count += p->f32 ? lq_bits(y) != 0x7f7f7f7f : lq_bits(y) != 0x7f7f0000;
            continue;
        }
        double sum = 0, size = 0;
        for (size_t s = 0; s < (size_t)p->k; s++) {
            const double t = number(p, p->x, row * p->x_stride + s) * number(p, p->w, col * p->w_stride + s);
            sum += t, size += fabs(t);
        }
        const double by = p->x_scale ? (double)p->x_scale[row] * (double)p->w_scale[col] : 1;
        const double off = 0x1p-24 * (p->k + 2) * size + (p->f32 ? 0 : 0x1p-8 * fabs(sum));
        count += !(fabs((double)y - sum * by) <= off * fabs(by));
    }
    return count;
}

static void check_problem(lq_lt *l, problem o, const char *what, bool known) {
    CHECK(lq_lt_multiply(l, &o.p, known), "%s %d x %d x %d", what, o.p.m, o.p.n, o.p.k);
    CHECK(wrong(&o) == 0, "%s %d x %d x %d, f32 %d: %d wrong", what, o.p.m, o.p.n, o.p.k, o.p.f32, wrong(&o));
    problem_free(&o);
}

static void check_product(lq_lt *l, int m, int n, int k, int gap, bool f32, bool known) {
    check_problem(l, problem_of(m, n, k, gap, f32, false), "bf16", known);
}

int main(void) {
    lq_lt *l;
    lq_err err;
    char unused;
    if (!lq_lt_open((lq_gpu *)(void *)&unused, &l, &err)) {
        printf("FAILED: %s\n", err.text);
        return 1;
    }
    void *library = dlopen("libcublasLt.so." LT_MAJOR, RTLD_NOW | RTLD_NOLOAD);
    size_t (*asked)(void) = NULL;
    if (library) *(void **)&asked = dlsym(library, "lt_library_asked");
    if (!asked) {
        printf("FAILED: another cuBLASLt than lt_library.c is loaded\n");
        return 1;
    }
    CHECK(!strcmp(lq_lt_name(l), "cuBLASLt 130000"), "%s", lq_lt_name(l));
    for (int gap = 0; gap <= 8; gap += 8)
        for (int f32 = 0; f32 < 2; f32++) {
            check_product(l, 9, 64, 40, gap, f32, false);
            check_product(l, 16, 64, 40, gap, f32, true); // of the same bucket
            check_product(l, 33, 8, 136, gap, f32, false);
            check_product(l, 1, 64, 40, gap, f32, true);
        }
    CHECK(asked() == 8, "the library was asked %zu times", asked());
    problem none = problem_of(9, 24, 40, 0, false, false), later = problem_of(17, 64, 40, 0, false, false);
    CHECK(!lq_lt_multiply(l, &none.p, false) && !lq_lt_multiply(l, &none.p, false) && asked() == 9,
          "a shape that the library has no way for is asked for once: %zu", asked());
    CHECK(!lq_lt_multiply(l, &later.p, true) && asked() == 9, "in a recording nothing is asked: %zu", asked());
    check_product(l, 17, 64, 40, 0, false, false);
    // Of the same shape, but e4m3: asked for once more, each with the scales of its own call; then bf16 as before.
    const size_t before = asked();
    for (int i = 0; i < 6; i++) check_problem(l, problem_of(9, 64, 48, 8, i % 2, true), "e4m3", i > 1);
    check_product(l, 9, 64, 48, 16, false, false);
    CHECK(asked() == before + 3, "asked %zu times for two of e4m3 and one of bf16", asked() - before);
    for (int n = 32; n < 1200; n += 8) check_product(l, 2, n, 8, 0, true, false); // more than there was room for
    check_product(l, 9, 64, 40, 0, false, true);
    problem_free(&none);
    problem_free(&later);
    lq_lt_close(l);
    dlclose(library);
    return test_end();
}
