// gram_amx.c: the slot gram with AMX (amx.h). Each pass of rows is split into tiles once, in `work`; then the blocks of
// h, of fixed borders, are tasks. Owns nothing. Leaves sums of few columns, where no tiles fit into `work`, to gram_c.
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/amx.h"

enum { SIDE = 256, CUT = 16, MOST = 64 }; // columns of a block; steps of 32 rows: summed in f32, and of a pass
typedef struct pass {
    const lq_gram_args *a;
    const lq_mat *with;
    int row, steps;      // its first, and how many of 32
    char *left, *right;  // [strip of 16 columns][step][hi, lo]: rows of tiles are columns of x; pairs of rows of `with`
    int m, n, sides;     // columns, up to whole pairs of strips; blocks of a row of them
} pass;

static int pairs(int cols) { return (cols + 2 * TILE - 1) / (2 * TILE) * 2 * TILE; }

static __m512 load_row(const lq_mat *x, int row, int col) {
    const int left = row < x->rows ? x->cols - col : 0;
    const __mmask16 some = left >= TILE ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
    return some ? _mm512_maskz_loadu_ps(some, lq_mat_row(x, row) + col) : _mm512_setzero_ps();
}

// A strip of columns of a pass, either way or both.
static void pack(const pass *p, const lq_mat *x, int col, char *rows, char *pairs_of) {
    for (int s = 0; s < p->steps; s++) {
        __m512i hi[TILE], lo[TILE];
        for (int i = 0; i < TILE; i++) {
            const int r = p->row + s * DEEP + 2 * i;
            split(load_row(x, r, col), load_row(x, r + 1, col), &hi[i], &lo[i]);
        }
        for (int i = 0; pairs_of && i < TILE; i++) {
            _mm512_storeu_si512(pairs_of + s * PAIR_BYTES + 64 * i, hi[i]);
            _mm512_storeu_si512(pairs_of + s * PAIR_BYTES + TILE_BYTES + 64 * i, lo[i]);
        }
        if (!rows) continue;
        turn(hi, rows + s * PAIR_BYTES);
        turn(lo, rows + s * PAIR_BYTES + TILE_BYTES);
    }
}

static void pack_strip(void *arg, int task, int worker) {
    const pass *p = arg;
    const int own = p->m / TILE, other = p->a->with ? task - own : task;
    const size_t strip = (size_t)p->steps * PAIR_BYTES;
    (void)worker;
    if (other < 0) pack(p, &p->a->x, task * TILE, p->left + (size_t)task * strip, NULL);
    else pack(p, p->with, other * TILE, p->a->with ? NULL : p->left + (size_t)task * strip,
              p->right + (size_t)other * strip);
}

// h += a tile's sums; above: columns from the row on alone.
static void add(const pass *p, const float *sum, int i, int j, bool above) {
    const int rows = p->a->x.cols - i < TILE ? p->a->x.cols - i : TILE, cols = p->with->cols - j;
    const unsigned some = cols >= TILE ? 0xffff : cols > 0 ? (1u << cols) - 1 : 0;
    for (int y = 0; y < rows; y++) {
        const int before = above ? i + y - j : 0;
        const unsigned which = before >= TILE ? 0 : before > 0 ? some >> before << before : some;
        double *h = p->a->h + (size_t)(i + y) * (size_t)p->with->cols + j;
        for (int half = 0; half < 2 && which >> 8 * half; half++) {
            const __mmask8 k = (__mmask8)(which >> 8 * half);
            const __m512d v = _mm512_cvtps_pd(_mm256_loadu_ps(sum + y * 2 * TILE + 8 * half));
            _mm512_mask_storeu_pd(h + 8 * half, k, _mm512_add_pd(_mm512_maskz_loadu_pd(k, h + 8 * half), v));
        }
    }
}

// Block `task` of the upper half, counted row by row, or of the whole.
static void gram_block(void *arg, int task, int worker) {
    const pass *p = arg;
    const bool half = !p->a->with;
    const size_t strip = (size_t)p->steps * PAIR_BYTES;
    (void)worker;
    int bi = 0, bj = task;
    if (!half) bi = task / p->sides, bj = task % p->sides;
    else for (; bj >= p->sides; bi++) bj -= p->sides - bi - 1;
    const int i1 = (bi + 1) * SIDE < p->m ? (bi + 1) * SIDE : p->m;
    const int j1 = (bj + 1) * SIDE < p->n ? (bj + 1) * SIDE : p->n;
    _Alignas(64) float sum[2 * TILE * 2 * TILE];
    tiles_begin(TILE_WIDE, TILE);
    for (int s = 0; s < p->steps; s += CUT)
        for (int i = bi * SIDE; i < i1; i += 2 * TILE)
            for (int j = half && bi == bj ? i : bj * SIDE; j < j1; j += 2 * TILE) {
                const char *a = p->left + (size_t)(i / TILE) * strip + s * PAIR_BYTES;
                const char *b = p->right + (size_t)(j / TILE) * strip + s * PAIR_BYTES;
                product((const char *[]){a, a + strip}, (const char *[]){b, b + strip},
                        p->steps - s < CUT ? p->steps - s : CUT, false, false, sum, 2 * TILE);
                for (int t = 0; t < 4; t++) {
                    const int down = t / 2 * TILE, right = t % 2 * TILE;
                    add(p, sum + down * 2 * TILE + right, i + down, j + right, half && i == j);
                }
            }
    tiles_end();
}

void lq_gram_amx(lq_dev *d, const lq_gram_args *a) {
    pass p = {.a = a, .with = a->with ? a->with : &a->x};
    const size_t room = (size_t)a->x.cols * (size_t)p.with->cols;
    p.m = pairs(a->x.cols), p.n = pairs(p.with->cols), p.sides = (p.n + SIDE - 1) / SIDE;
    const size_t step = (size_t)(p.m + p.n) * PAIR_BYTES / TILE / sizeof(float);
    const int most = room / step < MOST ? (int)(room / step) : MOST;
    if (most == 0) {
        lq_gram_c(d, a);
        return;
    }
    p.left = (char *)a->work;
    for (; p.row < a->x.rows; p.row += p.steps * DEEP) {
        p.steps = (a->x.rows - p.row + DEEP - 1) / DEEP;
        if (p.steps > most) p.steps = most;
        p.right = p.left + (size_t)p.m / TILE * (size_t)p.steps * PAIR_BYTES;
        lq_pool_run(d->pool, pack_strip, &p, a->with ? (p.m + p.n) / TILE : p.n / TILE);
        lq_pool_run(d->pool, gram_block, &p,
                    a->with ? (p.m + SIDE - 1) / SIDE * p.sides : p.sides * (p.sides + 1) / 2);
    }
}

void lq_cpu_amx_slots(lq_ops *o) { o->gram = lq_gram_amx; }
