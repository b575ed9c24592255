// state_slots.c: the slots conv and scan of the device "cuda" in default mode, as no model asks for them: bf16 beside
// portable C in f32 on the same numbers. What has portable C's order of sums has its bits, rounded; else a bound that
// counts roundings holds.
#include "formats/elem.h"
#include "kernels/ops.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS = 3, MOST = 64 };
static const int32_t slots[SEQS] = {2, 0, 1};
static lq_dev *cuda, *cpu;
static uint32_t seed = 7;

static float uniform(void) { // -1 .. 1, of 8 bits: exact in bf16
    seed = seed * 1664525 + 1013904223;
    return (float)((int)(seed >> 24) - 128) / 128;
}

// A matrix of f32 on the CPU and the same on the device, as bf16 or f32.
typedef struct pair { lq_mat cpu, cuda; } pair;

static void *on_cuda(const void *from, size_t bytes) {
    void *p = NULL;
    lq_err err;
    CHECK(cuda->ops.alloc(cuda, bytes, &p, &err), "%s", err.text);
    if (p) cuda->ops.put(cuda, p, from, bytes);
    return p;
}

static pair pair_of(int rows, int cols, float from, float size, bool wide) {
    const size_t n = (size_t)rows * (size_t)cols;
    float *f = malloc(n * sizeof *f);
    uint16_t *h = malloc(n * sizeof *h);
    for (size_t i = 0; i < n; i++) f[i] = from + size * uniform(), h[i] = (uint16_t)lq_bf16_narrow(f[i]);
    for (size_t i = 0; i < n && !wide; i++) f[i] = lq_bf16_widen(h[i]);
    const pair p = {{f, LQ_F32, rows, cols, (size_t)cols},
                    {wide ? on_cuda(f, n * sizeof *f) : on_cuda(h, n * sizeof *h), wide ? LQ_F32 : LQ_BF16, rows, cols,
                     (size_t)cols}};
    free(h);
    return p;
}

static void pair_free(pair *p) {
    free(p->cpu.p);
    cuda->ops.free(cuda, p->cuda.p);
}

// Three sequences, the middle one without rows, and a row of padding.
static int rows_of(int rows, int32_t *first, lq_rows *on_cpu, lq_rows *there) {
    first[0] = 0, first[1] = first[2] = rows / 3, first[3] = rows;
    *on_cpu = (lq_rows){.n = rows + 1, .seqs = SEQS, .first = first, .slot = slots};
    *there = *on_cpu;
    there->first = on_cuda(first, (SEQS + 1) * sizeof *first), there->slot = on_cuda(slots, sizeof slots);
    return rows + 1;
}

static void rows_free(const lq_rows *r) {
    cuda->ops.free(cuda, (void *)(uintptr_t)r->first);
    cuda->ops.free(cuda, (void *)(uintptr_t)r->slot);
}

// How many numbers of y are not portable C's, rounded; with `bound` ([rows][cols]) how many are further off.
static int apart(const pair *y, const double *bound) {
    const size_t n = (size_t)y->cpu.rows * (size_t)y->cpu.cols;
    uint16_t *got = malloc(n * sizeof *got);
    const float *want = y->cpu.p;
    int wrong = 0;
    cuda->ops.get(cuda, got, y->cuda.p, n * sizeof *got);
    cuda->ops.sync(cuda, NULL);
    for (size_t i = 0; i < n; i++)
        wrong += bound ? !(fabs((double)lq_bf16_widen(got[i]) - (double)want[i]) <= bound[i])
                       : got[i] != lq_bf16_narrow(want[i]);
    free(got);
    return wrong;
}

static bool same(const pair *state) {
    const size_t n = (size_t)state->cpu.rows * (size_t)state->cpu.cols * sizeof(float);
    void *got = malloc(n);
    cuda->ops.get(cuda, got, state->cuda.p, n);
    cuda->ops.sync(cuda, NULL);
    const bool is = !memcmp(got, state->cpu.p, n);
    free(got);
    return is;
}

static void check_conv(int width, int cols, int rows, bool silu) {
    int32_t first[SEQS + 1];
    lq_rows here, there;
    const int n = rows_of(rows, first, &here, &there);
    pair x = pair_of(n, cols, 0, 2, false), w = pair_of(cols, width, 0, 1, true), bias = pair_of(1, cols, 0, 1, true);
    pair y = pair_of(n, cols, 0, 1, false), state = pair_of(SEQS * (width - 1), cols, 0, 1, true);
    lq_conv_args a = {.rows = &here, .x = x.cpu, .y = y.cpu, .w = w.cpu.p, .bias = bias.cpu.p, .width = width,
                      .silu = silu, .state = state.cpu.p};
    cpu->ops.conv(cpu, &a);
    a.rows = &there, a.x = x.cuda, a.y = y.cuda, a.w = w.cuda.p, a.bias = bias.cuda.p, a.state = state.cuda.p;
    cuda->ops.conv(cuda, &a);
    CHECK(apart(&y, NULL) == 0, "conv width %d cols %d rows %d: %d differ", width, cols, rows, apart(&y, NULL));
    CHECK(same(&state), "conv width %d cols %d rows %d: other states", width, cols, rows);
    pair_free(&x), pair_free(&w), pair_free(&bias), pair_free(&y), pair_free(&state);
    rows_free(&there);
}

// Of each y what may be off: half a unit of bf16, and in both sums (row + 1) (dk + 8) + dk + 2 roundings of the
// magnitudes that stand in them.
static double *bounds_of(const lq_scan_args *a, const float *state) {
    const int cols = a->heads * a->dv, dk = a->dk;
    double *bound = calloc((size_t)a->y.rows * (size_t)cols, sizeof *bound), *s = calloc((size_t)dk, sizeof *s);
    for (int c = 0; c < cols * SEQS; c++) {
        const int seq = c / cols, head = c % cols / a->dv, group = head / (a->heads / a->groups) * dk;
        const float *of = state + (slots[seq] * a->heads + head) * dk * a->dv + c % a->dv;
        for (int i = 0; i < dk; i++) s[i] = fabs((double)of[i * a->dv]);
        for (int r = a->rows->first[seq]; r < a->rows->first[seq + 1]; r++) {
            const float *k = (const float *)a->k.p + (size_t)r * a->k.stride + group;
            const float *q = (const float *)a->q.p + (size_t)r * a->q.stride + group;
            double u = fabs((double)((const float *)a->v.p)[(size_t)r * a->v.stride + (size_t)(c % cols)]), y = 0;
            for (int i = 0; i < dk && a->delta; i++) u += fabs((double)k[i]) * s[i];
            for (int i = 0; i < dk; i++) s[i] += fabs((double)k[i]) * u, y += fabs((double)q[i]) * s[i];
            const int at = r - a->rows->first[seq];
            const float is = ((const float *)a->y.p)[(size_t)r * a->y.stride + (size_t)(c % cols)];
            bound[r * cols + c % cols] = 0x1.01p-8 * fabs((double)is) + 0x1p-23 * ((at + 1) * (dk + 8) + dk + 2) * y;
        }
    }
    free(s);
    return bound;
}

// Factors are at most 1, and so is beta.
static void check_scan(int heads, int groups, int dk, int dv, int rows, bool per_k, bool delta) {
    int32_t first[SEQS + 1];
    lq_rows here, there;
    const int n = rows_of(rows, first, &here, &there);
    pair q = pair_of(n, groups * dk, 0, 1, false), k = pair_of(n, groups * dk, 0, 0.1f, false);
    pair v = pair_of(n, heads * dv, 0, 1, false), y = pair_of(n, heads * dv, 0, 1, false);
    pair decay = pair_of(n, heads * (per_k ? dk : 1), -1, 0.5f, true), beta = pair_of(n, heads, 0.5f, 0.5f, true);
    pair state = pair_of(SEQS * heads, dk * dv, 0, 1, true);
    const size_t bytes = (size_t)(SEQS * heads * dk * dv) * sizeof(float);
    float *before = memcpy(malloc(bytes), state.cpu.p, bytes);
    lq_scan_args a = {.rows = &here, .heads = heads, .groups = groups, .dk = dk, .dv = dv, .q = q.cpu, .k = k.cpu,
                      .v = v.cpu, .y = y.cpu, .decay = decay.cpu, .decay_per_k = per_k, .beta = beta.cpu,
                      .delta = delta, .state = state.cpu.p};
    cpu->ops.scan(cpu, &a);
    double *bound = dv > 1 ? bounds_of(&a, before) : NULL;
    a.rows = &there, a.q = q.cuda, a.k = k.cuda, a.v = v.cuda, a.y = y.cuda, a.decay = decay.cuda;
    a.beta = beta.cuda, a.state = state.cuda.p;
    cuda->ops.scan(cuda, &a);
    CHECK(apart(&y, bound) == 0, "scan dk %d dv %d rows %d: %d differ", dk, dv, rows, apart(&y, bound));
    if (!bound) CHECK(same(&state), "scan dk %d dv 1 rows %d: other states", dk, rows);
    free(bound);
    free(before);
    pair_free(&q), pair_free(&k), pair_free(&v), pair_free(&y), pair_free(&decay), pair_free(&beta), pair_free(&state);
    rows_free(&there);
}

int main(void) {
    lq_err err;
    if (!lq_dev_open("cuda", NULL, &cuda, &err) || !lq_dev_open("cpu", &(lq_dev_opts){.isa = "c"}, &cpu, &err)) {
        printf("FAILED: %s\n", err.text);
        return 1;
    }
    for (int width = 2; width <= 5; width++) // 5: the plain kernel
        for (int rows = 6; rows <= MOST; rows += MOST - 6) {
            check_conv(width, 64, rows, false);
            check_conv(width, 200, rows, true);
            check_conv(width, 70, rows, true);
        }
    for (int way = 0; way < 4; way++) {
        check_scan(4, 2, 16, 32, 20, way & 1, way & 2);
        check_scan(2, 1, 128, 64, 9, way & 1, way & 2);
        check_scan(2, 2, 256, 8, 5, way & 1, way & 2);
        check_scan(300, 1, 16, 1, 12, way & 1, way & 2);
    }
    CHECK(cuda->ops.sync(cuda, &err), "%s", err.text);
    lq_dev_close(cuda);
    lq_dev_close(cpu);
    return test_end();
}
