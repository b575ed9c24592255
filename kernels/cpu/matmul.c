// matmul.c: the slots `matmul` and `moe` of every CPU: loops around the micro-kernels of ukr.c.
//
// The tiles of all matrices of a call are cut into runs of fixed borders; each worker owns a contiguous share of the runs, takes
// them one by one (memory is then read in order) and helps the others when its own are gone. Nothing of this touches a bit.
#include "kernels/cpu/slots.h"
#include "kernels/cpu/ukr.h"
#include <stdatomic.h>
#include <string.h>

enum { RUN_BYTES = 64 * 1024, RUN_TILES = 8, RUN_STREAMS = 4 /* tiles that a kernel reads side by side */, THIN_ROWS = 64, DEQUANT_ROWS = 32, MOE_MATS = 2 };

// --- one matrix, on the calling thread ---

// part[mn][16] = x[m..m+mn] w^T for up to 16 weight rows of `len` columns that are f32 now.
static void part_product(const lq_dev *d, const float *w, int rows, int64_t len, const float *x, size_t stride, int mn, float *part) {
    const lq_weight plain = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .layout = LQ_ANY, .n = rows, .k = len, .q = w};
    const lq_ukr *f32 = lq_ukr_find(d, &plain, LQ_F32);
    const lq_act a = {.x = {.p = (float *)(uintptr_t)x, .type = LQ_F32, .rows = mn, .cols = (int)len, .stride = stride}};
    f32->run(&plain, &a, 0, (rows + f32->tile_n - 1) / f32->tile_n, 0, mn, part, 16);
}

// Scratch: a cut of a tile, parts of a product, sums of a cell.
enum { DEQUANT_TILE = 16 * LQ_K_CUT, DEQUANT_PART = DEQUANT_ROWS * 16, CELL_ROWS = 512 };

static void tiles_dequantized(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t, int m0, int m1,
                              float *y, size_t ldy, float *scratch) {
    const int rows = (int)(w->n - t * u->tile_n < u->tile_n ? w->n - t * u->tile_n : u->tile_n);
    float *part = scratch + DEQUANT_TILE;
    for (int64_t k = 0; k < w->k; k += LQ_K_CUT) {
        const int64_t end = w->k - k < LQ_K_CUT ? w->k : k + LQ_K_CUT;
        u->rows(w, t, k, end, scratch);
        for (int m = m0; m < m1; m += DEQUANT_ROWS) {
            const int mn = m1 - m < DEQUANT_ROWS ? m1 - m : DEQUANT_ROWS;
            part_product(d, scratch, rows, end - k, lq_mat_row(&a->x, m) + k, a->x.stride, mn, part);
            for (int i = 0; i < mn; i++) {
                float *to = y + (size_t)(m + i) * ldy + (size_t)t * (size_t)u->tile_n;
                for (int r = 0; r < rows; r++) to[r] = k ? to[r] + part[i * 16 + r] : part[i * 16 + r];
            }
        }
    }
}

// E4M3 x 8-bit floats: the f32 product of the bare elements over a cell of the activations, then y = y + product * (wscale * ascale),
// multiply and add apart, cells in order.
static void tiles_scaled(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t, int m0, int m1, float *y,
                         size_t ldy, float *scratch) {
    const int rows = (int)(w->n - t * u->tile_n < u->tile_n ? w->n - t * u->tile_n : u->tile_n);
    const int64_t cell = (int64_t)a->q_group;
    float *part = scratch + DEQUANT_TILE, *sum = part + DEQUANT_PART, scale[16]; // sum [CELL_ROWS][16]
    lq_weight bare = *w;
    bare.type.kind = LQ_W_PLAIN;
    for (int64_t k0 = 0; k0 < w->k; k0 += cell) {
        const int64_t k1 = w->k - k0 < cell ? w->k : k0 + cell;
        const float *ascale = a->scale + (size_t)(k0 / cell) * (size_t)a->x.rows + (size_t)m0;
        for (int r = 0; r < rows; r++) scale[r] = lq_ukr_scale(w, t * u->tile_n + r, k0);
        for (int64_t k = k0; k < k1; k += LQ_K_CUT) {
            const int64_t end = k1 - k < LQ_K_CUT ? k1 : k + LQ_K_CUT;
            u->rows(&bare, t, k, end, scratch);
            for (int m = m0; m < m1; m += DEQUANT_ROWS) {
                const int mn = m1 - m < DEQUANT_ROWS ? m1 - m : DEQUANT_ROWS;
                part_product(d, scratch, rows, end - k, (const float *)a->q + (size_t)m * a->q_row + (size_t)k, a->q_row, mn, part);
                for (int i = 0; i < mn; i++) {
                    float *to = y + (size_t)(m + i) * ldy + (size_t)t * (size_t)u->tile_n, *s = sum + (size_t)(m - m0 + i) * 16;
                    for (int r = 0; r < rows; r++) s[r] = k > k0 ? s[r] + part[i * 16 + r] : part[i * 16 + r];
                    if (end < k1) continue;
                    for (int r = 0; r < rows; r++) to[r] = (k0 ? to[r] : 0) + s[r] * (scale[r] * ascale[m - m0 + i]);
                }
            }
        }
    }
}

void lq_ukr_tiles(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                  float *y, size_t ldy, void *scratch) {
    if (u->run) u->run(w, a, t0, t1, m0, m1, y, ldy);
    else if (a->type.elem == LQ_E4M3) {
        for (int64_t t = t0; t < t1; t++)
            for (int m = m0; m < m1; m += CELL_ROWS) tiles_scaled(d, u, w, a, t, m, m1 - m < CELL_ROWS ? m1 : m + CELL_ROWS, y, ldy, scratch);
    } else for (int64_t t = t0; t < t1; t++) tiles_dequantized(d, u, w, a, t, m0, m1, y, ldy, scratch);
    const int64_t n0 = t0 * u->tile_n, n1 = t1 * u->tile_n < w->n ? t1 * u->tile_n : w->n;
    for (int m = m0; w->outliers && m < m1; m++) {
        const float *x = lq_mat_row(&a->x, m);
        for (int64_t n = n0; n < n1; n++) {
            const uint16_t *ow = w->outlier_w + n * w->outliers;
            float sum = 0;
            for (int32_t o = 0; o < w->outliers; o++) sum += x[w->outlier[o]] * lq_bf16_f32(ow[o]);
            y[(size_t)m * ldy + (size_t)n] += sum;
        }
    }
}

// --- runs ---

typedef struct part { // one matrix of a call
    const lq_weight *w;
    const lq_ukr *u;
    const float *bias;
    float *y;
    size_t ldy;
    int64_t tiles, run; // tiles in all and of one run
    int first;          // number of its first run
} part;

static size_t tile_bytes(const lq_weight *w, const lq_ukr *u) {
    return (size_t)w->k * (size_t)u->tile_n * (size_t)(w->type.kind == LQ_W_PLAIN ? lq_dtype_size(w->type.elem) * 8 : (size_t)w->type.bits) / 8 + 1;
}
// Memory bound: runs of about RUN_BYTES. Compute bound: a few register blocks.
static int part_fill(part *p, const lq_dev *d, const lq_weight *w, lq_dtype act, int rows, int first) {
    p->w = w;
    p->u = lq_ukr_find(d, w, act);
    p->tiles = (w->n + p->u->tile_n - 1) / p->u->tile_n;
    p->run = RUN_TILES;
    if (rows <= THIN_ROWS) p->run = RUN_STREAMS * (1 + (int64_t)(RUN_BYTES / RUN_STREAMS / tile_bytes(w, p->u)));
    p->first = first;
    return first + (int)((p->tiles + p->run - 1) / p->run);
}
static void part_run(const lq_dev *d, const part *p, int64_t run, const lq_act *a, int m0, int m1, float *y, int worker) {
    const int64_t t0 = run * p->run, t1 = t0 + p->run < p->tiles ? t0 + p->run : p->tiles;
    lq_ukr_tiles(d, p->u, p->w, a, t0, t1, m0, m1, y, p->ldy, lq_cpu_work(d, worker));
    if (!p->bias) return;
    const int64_t n0 = t0 * p->u->tile_n, n1 = t1 * p->u->tile_n < p->w->n ? t1 * p->u->tile_n : p->w->n;
    for (int m = m0; m < m1; m++)
        for (int64_t n = n0; n < n1; n++) y[(size_t)m * p->ldy + (size_t)n] += p->bias[n];
}

typedef void run_fn(const void *job, int run, int worker);
typedef struct shares { lq_cpu *cpu; const void *job; run_fn *fn; int runs, workers; } shares;

static void share_task(void *arg, int task, int worker) {
    const shares *s = arg;
    for (int i = 0; i < s->workers; i++) {
        const int owner = (task + i) % s->workers, end = (int)((int64_t)s->runs * (owner + 1) / s->workers);
        for (int run; (run = atomic_fetch_add_explicit(&s->cpu->next[owner].run, 1, memory_order_relaxed)) < end;) s->fn(s->job, run, worker);
    }
}
static void run_all(lq_dev *d, run_fn *fn, const void *job, int runs) {
    shares s = {.cpu = d->self, .job = job, .fn = fn, .runs = runs, .workers = lq_pool_threads(d->pool)};
    if (s.workers > runs) s.workers = runs;
    for (int i = 0; i < s.workers; i++)
        atomic_store_explicit(&s.cpu->next[i].run, (int)((int64_t)runs * i / s.workers), memory_order_relaxed);
    lq_pool_run(d->pool, share_task, &s, s.workers);
}

// --- matmul ---

typedef struct matmul_job { const lq_dev *d; const lq_act *x; int count; part parts[LQ_MATS]; } matmul_job;

static void matmul_run(const void *arg, int run, int worker) {
    const matmul_job *j = arg;
    int i = j->count - 1;
    while (run < j->parts[i].first) i--;
    part_run(j->d, &j->parts[i], run - j->parts[i].first, j->x, 0, j->x->x.rows, j->parts[i].y, worker);
}

void lq_matmul_cpu(lq_dev *d, const lq_matmul_args *a) {
    matmul_job j = {.d = d, .x = a->x, .count = a->count};
    int runs = 0;
    for (int i = 0; i < a->count; i++) {
        runs = part_fill(&j.parts[i], d, a->w[i], a->x->type.elem, a->x->x.rows, runs);
        j.parts[i].bias = a->bias[i];
        j.parts[i].y = a->y[i].p;
        j.parts[i].ldy = a->y[i].stride;
    }
    run_all(d, matmul_run, &j, runs);
}

// --- moe: matmul of each expert over its slots ---

typedef struct moe_job {
    const lq_dev *d;
    const lq_moe_args *a;
    int runs[MOE_MATS]; // of one expert's matrix: experts have one shape
    int per_expert;
    part parts[MOE_MATS];
} moe_job;

// A run serves all slots of its expert, so that its weights come from memory once. Slots are rows that do not stand together.
static void moe_run(const void *arg, int run, int worker) {
    const moe_job *j = arg;
    const lq_moe_args *a = j->a;
    const int e = run / j->per_expert, i = run % j->per_expert >= j->parts[a->count - 1].first ? a->count - 1 : 0;
    part p = j->parts[i];
    p.w = a->w[i] + e;
    p.bias = a->bias[i] ? a->bias[i][e] : NULL;
    for (int s = a->start[e]; s < a->start[e + 1]; s++) {
        const int slot = a->order[s], row = a->x_by_slot ? slot : slot / a->top_k;
        // the kernel writes row `row` of what it is given: row `slot` of the result
        float *y = (float *)((uintptr_t)p.y + ((uintptr_t)slot - (uintptr_t)row) * p.ldy * sizeof(float));
        part_run(j->d, &p, run % j->per_expert - p.first, a->x, row, row + 1, y, worker);
    }
}

void lq_moe_cpu(lq_dev *d, const lq_moe_args *a) {
    moe_job j = {.d = d, .a = a};
    for (int i = 0; i < a->count; i++) {
        j.per_expert = part_fill(&j.parts[i], d, a->w[i], a->x->type.elem, 1, j.per_expert);
        j.parts[i].y = a->y[i].p;
        j.parts[i].ldy = a->y[i].stride;
    }
    run_all(d, moe_run, &j, j.per_expert * a->experts);
}
