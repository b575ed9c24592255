// matmul.c: the slots `matmul` and `moe` of every CPU: loops around the micro-kernels of ukr.c.
//
// The tiles of all matrices of a call, whose borders are fixed, are cut into runs; each worker owns a contiguous share
// of the runs, takes them in order (memory is then read so) and helps the others when its own are gone. Nothing of this
// touches a bit.
#include "kernels/cpu/slots.h"
#include "kernels/cpu/ukr.h"
#include <stdatomic.h>
#include <string.h>

enum { RUN_BYTES = 64 * 1024, RUN_MOST_BYTES = 256 * 1024 /* where every worker has RUN_EACH runs */, RUN_EACH = 16,
      RUN_TILES = 8 /* of int8 products and packed f32 ones */, RUN_ROWS = 64 /* of others */,
      HALF_ROWS = 256 /* of bf16 */, SHARES = 4 /* runs of a thread */, RUN_MOST = 1024,
      RUN_STREAMS = 4 /* tiles that a kernel reads side by side */, THIN_ROWS = 64, DEQUANT_ROWS = 32, MOE_MATS = 2,
      APART_ROWS = 32, APART_COLS = 64 };

// --- one matrix, on the calling thread ---

static const lq_wtype bf16_type = {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16};

static size_t widened_row(int64_t len) { return lq_row_apart(len, 16); } // of a cut as f32

// y[mn][ldy] = x[m..m+mn] w^T for weight rows of `len` columns that are f32 now; more: y += it.
static void part_product(const lq_ukr *f32, const float *w, int rows, int64_t len, const float *x, size_t stride,
                         int mn, bool more, float *y, size_t ldy) {
    const lq_weight plain = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .layout = LQ_ANY, .n = rows,
                             .k = len, .q = w};
    const lq_act a = {.x = {.p = (float *)(uintptr_t)x, .type = LQ_F32, .rows = mn, .cols = (int)len,
                            .stride = stride}, .more = more, .w_row = widened_row(len)};
    f32->run(&plain, &a, 0, (rows + f32->tile_n - 1) / f32->tile_n, 0, mn, y, ldy);
}

static const lq_ukr *f32_row(const lq_dev *d) {
    return lq_ukr_find(d, &(lq_weight){.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}}, LQ_F32);
}

// Scratch: a cut of tiles as f32, then sums of a cell. Few rows of activations: one tile at a time, which stays in the
// first cache; many: as many as stay in the second, so that x is read less often.
enum { TALL_ROWS = 64, TALL_CUT = TALL_ROWS * (LQ_K_CUT + 16), ROUGH_ROWS = 256, CELL_ROWS = 512, RECODED_K = 16384,
       RECODED_MANY_K = 4096, CODES_BYTES = LQ_X86_ROWS * LQ_I8_SPAN + 4096, MANY_AT = CODES_BYTES - LQ_MANY_BYTES };

// Of a strip of x or of w.
static size_t strip_bytes(int64_t k) { return (size_t)((k + LQ_STEP - 1) / LQ_STEP) * LQ_STEP_BYTES; }

_Static_assert((TALL_CUT + ROUGH_ROWS * LQ_K_CUT) * sizeof(float) <= LQ_SHARE, "a cut as f32 and its strips");

_Static_assert(TALL_ROWS * LQ_FP8_CUT * 2 + CELL_ROWS * TALL_ROWS * 4 <= MANY_AT, "a cut as bf16 and its sums");

_Static_assert(MANY_AT > 0 && MANY_AT % 64 == 0, "scratch of `many` ends where that of codes does");

static int64_t tiles_at_once(const lq_ukr *u, int rows) { return rows > DEQUANT_ROWS ? TALL_ROWS / u->tile_n : 1; }

// Columns k..end of tiles t..end_t as f32.
static void tiles_widened(const lq_ukr *u, const lq_weight *w, int64_t t, int64_t end_t, int64_t k, int64_t end,
                          float *to, size_t row) {
    for (int64_t i = t; i < end_t; i++) u->rows(w, i, k, end, to + (size_t)((i - t) * u->tile_n) * row, row);
}

static void tiles_dequantized(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t0,
                              int64_t t1, int m0, int m1, float *y, size_t ldy, float *scratch) {
    const lq_ukr *f32 = f32_row(d);
    const int64_t at_once = tiles_at_once(u, m1 - m0);
    for (int64_t t = t0, end_t; t < t1; t = end_t) {
        end_t = t1 - t < at_once ? t1 : t + at_once;
        const int64_t n = t * u->tile_n, end_n = end_t * u->tile_n < w->n ? end_t * u->tile_n : w->n;
        for (int64_t k = 0, end; k < w->k; k = end) {
            end = w->k - k < LQ_K_CUT ? w->k : k + LQ_K_CUT;
            tiles_widened(u, w, t, end_t, k, end, scratch, widened_row(end - k));
            part_product(f32, scratch, (int)(end_n - n), end - k, lq_mat_row(&a->x, m0) + k, a->x.stride, m1 - m0,
                         k > 0, y + (size_t)m0 * ldy + (size_t)n, ldy);
        }
    }
}

void lq_ukr_scaled(const lq_weight *w, const lq_act *a, int64_t n, int rows, int64_t k0, int64_t cell, int m0, int m1,
                   const float *sum, size_t lds, float *y, size_t ldy) {
    const float *ascale = a->type.elem == LQ_E4M3 ? a->scale + (size_t)(k0 / cell) * (size_t)a->apart : NULL;
    const bool scaled = w->type.kind == LQ_W_FLOAT && !((a->halves || !ascale) && lq_fp8_shifts(&w->type));
    float scale[TALL_ROWS];
    for (int r = 0; r < rows; r++) {
        const bool same = r && w->type.rows > 1 && (n + r) % w->type.rows; // as the row before
        scale[r] = !scaled ? 1 : same ? scale[r - 1] : lq_ukr_scale(w, n + r, k0);
    }
    for (int m = m0; m < m1; m++, sum += lds) {
        const float by = ascale ? ascale[m] : 1;
        float *to = y + (size_t)m * ldy + (size_t)n;
        for (int r = 0; r < rows; r++) to[r] = (k0 ? to[r] : 0) + sum[r] * (scale[r] * by);
    }
}

// E4M3 x 8-bit floats: the f32 product of the bare elements over a cell of the activations, then y = y + product *
// (wscale * ascale), multiply and add apart, cells in order. At most CELL_ROWS rows of activations.
static void tiles_scaled(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t,
                         int64_t end_t, int m0, int m1, float *y, size_t ldy, float *scratch) {
    const int64_t cell = (int64_t)a->q_group, n = t * u->tile_n;
    const int rows = (int)((end_t * u->tile_n < w->n ? end_t * u->tile_n : w->n) - n);
    const lq_ukr *f32 = f32_row(d);
    float *sum = scratch + TALL_CUT; // [CELL_ROWS][TALL_ROWS]
    lq_weight bare = *w;
    bare.type.kind = LQ_W_PLAIN;
    for (int64_t k0 = 0; k0 < w->k; k0 += cell) {
        const int64_t k1 = w->k - k0 < cell ? w->k : k0 + cell;
        for (int64_t k = k0, end; k < k1; k = end) {
            end = k1 - k < LQ_K_CUT ? k1 : k + LQ_K_CUT;
            tiles_widened(u, &bare, t, end_t, k, end, scratch, widened_row(end - k));
            part_product(f32, scratch, rows, end - k, (const float *)a->q + (size_t)m0 * a->q_row + (size_t)k, a->q_row,
                         m1 - m0, k > k0, sum, TALL_ROWS);
        }
        lq_ukr_scaled(w, a, n, rows, k0, cell, m0, m1, sum, TALL_ROWS, y, ldy);
    }
}

// What is multiplied: the codes of E4M3 are numbers by now.
static lq_dtype held(const lq_act *a) { return a->halves ? LQ_BF16 : a->type.elem; }

// bf16, or E4M3 held so, x 8-bit floats: these become bf16, a part of K at a time: a cell, or what of it a cut holds;
// then y = y + product * (wscale * ascale), multiply and add apart, parts in order. At most CELL_ROWS rows of
// activations.
static void tiles_halved(const lq_ukr *bf16, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t,
                         int64_t end_t, int m0, int m1, float *y, size_t ldy, void *scratch) {
    const int64_t n = t * u->tile_n, cell = lq_fp8_cell(w, a), cut = cell < LQ_FP8_CUT ? cell : LQ_FP8_CUT;
    const int rows = (int)((end_t * u->tile_n < w->n ? end_t * u->tile_n : w->n) - n);
    uint16_t *part = scratch;
    float *sum = (float *)(void *)(part + TALL_ROWS * LQ_FP8_CUT); // [CELL_ROWS][TALL_ROWS]
    for (int64_t k0 = 0, k1; k0 < w->k; k0 = k1) {
        const int64_t end = (k0 / cell + 1) * cell < w->k ? (k0 / cell + 1) * cell : w->k;
        k1 = end - k0 < cut ? end : k0 + cut;
        for (int64_t i = t; i < end_t; i++) u->halves(w, i, k0, k1, part + (i - t) * u->tile_n * (k1 - k0));
        const lq_weight here = {.type = bf16_type, .n = rows, .k = k1 - k0, .q = part};
        const lq_act x = {.type = {.elem = LQ_BF16}, .x = a->x, .q = (uint16_t *)a->q + (size_t)m0 * a->q_row + k0,
                          .q_row = a->q_row};
        const int64_t tiles = (rows + bf16->tile_n - 1) / bf16->tile_n;
        if (bf16->many) bf16->many(&here, &x, 0, tiles, 0, m1 - m0, sum, TALL_ROWS, (char *)scratch + MANY_AT);
        else bf16->run(&here, &x, 0, tiles, 0, m1 - m0, sum, TALL_ROWS);
        lq_ukr_scaled(w, a, n, rows, k0, cell, m0, m1, sum, TALL_ROWS, y, ldy);
    }
}

// How much of a weight is recoded at a time: columns, whole spans of integer sums, and tiles: as many as a run has for
// `many`, which stay in the second cache, where scratch has room for them beside its own.
typedef struct portion { int64_t k, tiles; bool many; } portion;
static portion portion_of(const lq_ukr *int8, const lq_weight *w, const lq_act *a, int rows, bool whole) {
    const int64_t cell = (int64_t)a->q_row, span = lq_i8_span(w, a), all = (w->k + cell - 1) / cell * cell;
    const bool many = int8->many && rows >= LQ_MANY_ROWS;
    const int64_t most = many ? RECODED_MANY_K : RECODED_K;
    int64_t k = span > cell ? span : cell < most ? most / cell * cell : cell;
    if (k > all) k = all;
    const int64_t spans = a->zero ? (k + span - 1) / span : 0, scales = whole ? 1 : k / cell;
    const int64_t fit = many ? MANY_AT / LQ_X86_ROWS / (k + scales * 5 + spans * 4) : 0;
    if (fit < 2 || spans > 1) return (portion){k, 1, fit > 0}; // code_sum has one span of several tiles
    return (portion){k, fit < RUN_TILES ? fit : RUN_TILES, true};
}

// Columns to.k0 .. to.k1 of `count` tiles as one weight of layout x86, whose parts lie in `at`; sums: with code sums.
static void tiles_recode(const lq_ukr *u, const lq_weight *w, int64_t t, int64_t count, bool sums, lq_ukr_tile to,
                         lq_weight *tile, uint8_t *at) {
    const int64_t wide = (tile->k + to.unit - 1) / to.unit * to.unit, scales = to.group ? wide / to.unit : 1;
    tile->q = to.q = at;
    tile->scale = to.scale = (float *)(void *)(to.q + count * wide * LQ_X86_ROWS);
    tile->zero = to.zero = (uint8_t *)(to.scale + count * scales * LQ_X86_ROWS);
    tile->code_sum = to.code_sum = sums ? (int32_t *)(void *)(to.zero + count * scales * LQ_X86_ROWS) : NULL;
    for (int64_t i = 0; i < count; i++) {
        u->codes(w, t + i, &to);
        to.q += wide * LQ_X86_ROWS;
        to.scale += scales * LQ_X86_ROWS;
        to.zero += scales * LQ_X86_ROWS;
        if (sums) to.code_sum += LQ_X86_ROWS;
    }
}

// Int codes of layout any, recoded: a cell of the activations is the group of the tile. Of wide rows a part of K at a
// time; y is carried from part to part.
static void tiles_recoded(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1,
                          int m0, int m1, float *y, size_t ldy, void *scratch) {
    const int64_t cell = (int64_t)a->q_row, span = lq_i8_span(w, a);
    const bool whole = !w->type.group && cell == LQ_ROW_GROUP && (!a->type.group || a->type.group == LQ_ROW_GROUP);
    lq_weight tile = {.type = {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .group = whole ? 0 : (int)cell, .asym = true,
                               .scale = LQ_F32, .act = w->type.act}, .layout = LQ_X86};
    const lq_ukr *int8 = lq_ukr_find(d, &tile, LQ_I8);
    const portion p = portion_of(int8, w, a, m1 - m0, whole);
    for (int64_t t = t0, count; t < t1; t += count) {
        const int64_t n = t * LQ_X86_ROWS;
        count = t1 - t < p.tiles ? t1 - t : p.tiles;
        tile.n = w->n - n < count * LQ_X86_ROWS ? w->n - n : count * LQ_X86_ROWS;
        for (int64_t k0 = 0; k0 < w->k; k0 += p.k) {
            const size_t before = (size_t)(k0 / cell) * (size_t)a->apart;
            lq_act x = *a;
            x.q = (int8_t *)a->q + before * (size_t)cell;
            x.scale = a->scale + before;
            x.sum = a->sum + before;
            x.more = k0 > 0;
            tile.k = w->k - k0 < p.k ? w->k - k0 : p.k;
            const lq_ukr_tile to = {.k0 = k0, .k1 = k0 + tile.k, .unit = cell, .group = tile.type.group, .span = span};
            tiles_recode(u, w, t, count, a->zero, to, &tile, scratch);
            if (p.many) int8->many(&tile, &x, 0, count, m0, m1, y + n, ldy, (char *)scratch + MANY_AT);
            else int8->run(&tile, &x, 0, count, m0, m1, y + n, ldy);
        }
    }
}

static void tiles_product(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1,
                          int m0, int m1, float *y, size_t ldy, void *scratch) {
    if (u->codes) {
        tiles_recoded(d, u, w, a, t0, t1, m0, m1, y, ldy, scratch);
        return;
    }
    if (u->halves) {
        const lq_ukr *bf16 = lq_ukr_find(d, &(lq_weight){.type = bf16_type}, LQ_BF16);
        const int64_t one = 1 + (bf16->tile_n - 1) / u->tile_n, fit = tiles_at_once(u, m1 - m0);
        const int64_t at_once = fit > one ? fit : one;
        for (int64_t t = t0; t < t1; t += at_once)
            for (int m = m0; m < m1; m += CELL_ROWS)
                tiles_halved(bf16, u, w, a, t, t1 - t < at_once ? t1 : t + at_once, m,
                             m1 - m < CELL_ROWS ? m1 : m + CELL_ROWS, y, ldy, scratch);
        return;
    }
    if (!u->rows || (u->run && m1 - m0 <= u->few)) {
        if (u->many && (!u->run || m1 - m0 >= LQ_MANY_ROWS)) u->many(w, a, t0, t1, m0, m1, y, ldy, scratch);
        else u->run(w, a, t0, t1, m0, m1, y, ldy);
        return;
    }
    if (a->type.elem != LQ_E4M3) {
        tiles_dequantized(d, u, w, a, t0, t1, m0, m1, y, ldy, scratch);
        return;
    }
    const int64_t at_once = tiles_at_once(u, m1 - m0);
    for (int64_t t = t0; t < t1; t += at_once)
        for (int m = m0; m < m1; m += CELL_ROWS)
            tiles_scaled(d, u, w, a, t, t1 - t < at_once ? t1 : t + at_once, m,
                         m1 - m < CELL_ROWS ? m1 : m + CELL_ROWS, y, ldy, scratch);
}

// Columns that are kept apart: their part of x, gathered, and their weights are a product of f32 and bf16 of their own,
// added to y.
static void apart_product(const lq_dev *d, const lq_weight *w, const lq_act *a, int64_t n0, int64_t n1, int m0, int m1,
                          float *y, size_t ldy, float *scratch) {
    const lq_ukr *u = lq_ukr_find(d, &(lq_weight){.type = bf16_type}, LQ_F32);
    const size_t o = (size_t)w->outliers, room = CODES_BYTES / sizeof(float) / o;
    const int most = room < APART_ROWS ? (int)room : APART_ROWS;
    float sum[APART_ROWS * APART_COLS];
    for (int m = m0, rows; m < m1; m += rows) {
        rows = m1 - m < most ? m1 - m : most;
        for (int r = 0; r < rows; r++) {
            const float *x = lq_mat_row(&a->x, m + r);
            for (size_t i = 0; i < o; i++) scratch[(size_t)r * o + i] = x[w->outlier[i]];
        }
        const lq_act x = {.x = {.p = scratch, .type = LQ_F32, .rows = rows, .cols = (int)o, .stride = o}};
        for (int64_t n = n0, cols; n < n1; n += cols) {
            cols = n1 - n < APART_COLS ? n1 - n : APART_COLS;
            const lq_weight part = {.type = bf16_type, .n = cols, .k = w->outliers, .q = w->outlier_w + (size_t)n * o};
            u->run(&part, &x, 0, (cols + u->tile_n - 1) / u->tile_n, 0, rows, sum, APART_COLS);
            for (int r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++)
                    y[(size_t)(m + r) * ldy + (size_t)(n + c)] += sum[r * APART_COLS + c];
        }
    }
}

void lq_ukr_tiles(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0,
                  int m1, float *y, size_t ldy, void *scratch) {
    tiles_product(d, u, w, a, t0, t1, m0, m1, y, ldy, scratch);
    const int64_t n0 = t0 * u->tile_n, n1 = t1 * u->tile_n < w->n ? t1 * u->tile_n : w->n;
    if (w->outliers) apart_product(d, w, a, n0, n1, m0, m1, y, ldy, scratch);
}

// The same by tiles of bf16, of whatever height: strips of rows m0 .. m1 of x are there. Those of a cut of weight rows,
// which stay in the second cache, are made of a few rows as f32 at a time (f32 weights: where they lie).
static void tiles_rough(const lq_dev *d, const lq_ukr *u, const lq_weight *w, const char *x, int64_t t0, int64_t t1,
                        int m0, int m1, float *y, size_t ldy, float *scratch) {
    const lq_rough *r = lq_cpu_of(d)->rough;
    const int64_t at_once = ROUGH_ROWS / u->tile_n, few = TALL_ROWS / u->tile_n;
    const bool half = w->type.kind == LQ_W_PLAIN && w->type.elem == LQ_BF16;
    char *strips = (char *)(scratch + TALL_CUT);
    for (int64_t t = t0, end_t; t < t1; t = end_t) {
        end_t = t1 - t < at_once ? t1 : t + at_once;
        const int64_t n = t * u->tile_n, end_n = end_t * u->tile_n < w->n ? end_t * u->tile_n : w->n;
        for (int64_t k = 0, end; k < w->k; k = end) {
            end = w->k - k < LQ_K_CUT ? w->k : k + LQ_K_CUT;
            const size_t stride = (size_t)(u->rows ? end - k : w->k), strip = strip_bytes(end - k);
            for (int64_t i = n; i < end_n; i += LQ_STRIP) {
                const float *rows = u->rows ? scratch + (size_t)(i - n) % TALL_ROWS * stride
                                            : (const float *)w->q + (size_t)i * stride + k;
                if (u->rows && (i - n) % TALL_ROWS == 0) {
                    const int64_t first = i / u->tile_n;
                    tiles_widened(u, w, first, end_t - first < few ? end_t : first + few, k, end, scratch, stride);
                }
                r->strip(rows, stride, end_n - i < LQ_STRIP ? (int)(end_n - i) : LQ_STRIP, end - k, true,
                         strips + (size_t)(i - n) / LQ_STRIP * strip);
            }
            r->product(x + k / LQ_STEP * LQ_STEP_BYTES, strip_bytes(w->k), m1 - m0, strips, strip, (int)(end_n - n),
                       (int)((end - k + LQ_STEP - 1) / LQ_STEP), half, k > 0, y + (size_t)m0 * ldy + (size_t)n, ldy);
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

static int64_t rows_bytes(const lq_weight *w, int64_t rows) { // their elements or codes
    return rows * w->k * (w->type.kind == LQ_W_PLAIN ? (int64_t)lq_dtype_size(w->type.elem) * 8 : w->type.bits) / 8;
}

// Weight rows of a run: `most`, or less where every worker would not have `each` of `all` rows' runs.
static int64_t run_rows(const lq_dev *d, int64_t most, int64_t all, int each) {
    while (most > RUN_ROWS && all < most * each * lq_pool_threads(d->pool)) most /= 2;
    return most;
}

// Bytes of a run that is memory bound, of `all` of a call.
static int64_t run_bytes(const lq_dev *d, int64_t all) {
    const int64_t some = all / RUN_EACH / lq_pool_threads(d->pool);
    return some < RUN_BYTES ? RUN_BYTES : some < RUN_MOST_BYTES ? some : RUN_MOST_BYTES;
}

// Memory bound: runs of about so many bytes. Compute bound: a few register blocks; of bf16, which reads x from afar for
// each run, more.
static int part_fill(part *p, const lq_dev *d, const lq_weight *w, lq_dtype act, int rows, int64_t bytes, int64_t rough,
                     int first) {
    p->w = w;
    p->u = lq_ukr_find(d, w, act);
    p->tiles = (w->n + p->u->tile_n - 1) / p->u->tile_n;
    p->run = act == LQ_I8 || p->u->many || (p->u->run && act == LQ_F32 && w->layout == LQ_X86) ? RUN_TILES
        : (act == LQ_BF16 ? run_rows(d, HALF_ROWS, w->n, SHARES) : RUN_ROWS) / p->u->tile_n;
    if (p->u->turns) {
        const int64_t turn = run_rows(d, LQ_MANY_TURN * (int64_t)p->u->tile_n, w->n, SHARES) / p->u->tile_n;
        if (turn > p->run) p->run = turn;
    }
    if (rows <= THIN_ROWS) p->run = RUN_STREAMS * (1 + bytes / RUN_STREAMS / (rows_bytes(w, p->u->tile_n) + 1));
    if (p->run > RUN_MOST) p->run = RUN_MOST;
    if (rough) p->run = rough / p->u->tile_n;
    p->first = first;
    return first + (int)((p->tiles + p->run - 1) / p->run);
}

// By tiles of bf16: a cut at a time.
static int64_t rough_run(const lq_dev *d, const lq_matmul_args *a) {
    int64_t all = 0;
    for (int i = 0; i < a->count; i++) all += a->w[i]->n;
    return run_rows(d, ROUGH_ROWS, all, 2);
}

// strips: of rows m0 .. m1 of an F32 `a`; NULL: as it is.
static void part_run(const lq_dev *d, const part *p, int64_t run, const lq_act *a, const char *strips, int m0, int m1,
                     float *y, void *scratch) {
    const int64_t t0 = run * p->run, t1 = t0 + p->run < p->tiles ? t0 + p->run : p->tiles;
    const int64_t n0 = t0 * p->u->tile_n, n1 = t1 * p->u->tile_n < p->w->n ? t1 * p->u->tile_n : p->w->n;
    if (strips) {
        tiles_rough(d, p->u, p->w, strips, t0, t1, m0, m1, y, p->ldy, scratch);
        if (p->w->outliers) apart_product(d, p->w, a, n0, n1, m0, m1, y, p->ldy, scratch);
    } else lq_ukr_tiles(d, p->u, p->w, a, t0, t1, m0, m1, y, p->ldy, scratch);
    if (!p->bias) return;
    for (int m = m0; m < m1; m++)
        for (int64_t n = n0; n < n1; n++) y[(size_t)m * p->ldy + (size_t)n] += p->bias[n];
}

typedef void run_fn(const void *job, int run, int worker);
typedef struct shares { lq_cpu *cpu; const void *job; run_fn *fn; int runs, workers, threads; } shares;

// A worker begins with the share that is its own, or where there are fewer, its neighbours' too. It claims a part of
// the runs that are left there at once: a claim waits for all that was asked of memory before.
enum { SHARE_PARTS = 8 };
static void share_task(void *arg, int task, int worker) {
    const shares *s = arg;
    const int first = (int)((int64_t)worker * s->workers / s->threads);
    (void)task;
    for (int i = 0; i < s->workers; i++) {
        const int owner = (first + i) % s->workers, end = (int)((int64_t)s->runs * (owner + 1) / s->workers);
        atomic_int *next = &s->cpu->next[owner].run;
        for (int left; (left = end - atomic_load_explicit(next, memory_order_relaxed)) > 0;) {
            const int some = (left + SHARE_PARTS - 1) / SHARE_PARTS;
            int run = atomic_fetch_add_explicit(next, some, memory_order_relaxed);
            for (const int to = run + some < end ? run + some : end; run < to; run++) s->fn(s->job, run, worker);
        }
    }
}

static void run_all(lq_dev *d, run_fn *fn, const void *job, int runs) {
    const int threads = lq_pool_threads(d->pool);
    shares s = {.cpu = d->self, .job = job, .fn = fn, .runs = runs, .workers = runs < threads ? runs : threads,
                .threads = threads};
    for (int i = 0; i < s.workers; i++)
        atomic_store_explicit(&s.cpu->next[i].run, (int)((int64_t)runs * i / s.workers), memory_order_relaxed);
    lq_pool_run(d->pool, share_task, &s, s.workers);
}

// --- matmul ---
//
// By tiles of bf16 the rows of x are split once, as many in a pass as scratch holds (cut as for moe).

enum { ROUGH_BYTES = 16 << 20 };

typedef struct matmul_job {
    const lq_dev *d;
    const lq_act *x;
    int count;
    part parts[LQ_MATS];
    int m0, m1;   // rows of this pass
    char *strips; // of them, or NULL
} matmul_job;

static void matmul_run(const void *arg, int run, int worker) {
    const matmul_job *j = arg;
    int i = j->count - 1;
    while (run < j->parts[i].first) i--;
    void *own = j->strips ? (char *)lq_cpu_of(j->d)->work + (size_t)worker * LQ_SHARE : lq_cpu_work(j->d, worker);
    part_run(j->d, &j->parts[i], run - j->parts[i].first, j->x, j->strips, j->m0, j->m1, j->parts[i].y, own);
}

static void strip_of_x(void *arg, int task, int worker) {
    const matmul_job *j = arg;
    const int m = j->m0 + task * LQ_STRIP;
    (void)worker;
    lq_cpu_of(j->d)->rough->strip(lq_mat_row(&j->x->x, m), j->x->x.stride, j->m1 - m < LQ_STRIP ? j->m1 - m : LQ_STRIP,
                                  j->x->x.cols, false, j->strips + (size_t)task * strip_bytes(j->x->x.cols));
}

size_t lq_rough_work(const lq_dev_limits *l, int threads) {
    const size_t strip = strip_bytes(l->k), all = ((size_t)l->rows + LQ_STRIP - 1) / LQ_STRIP * strip;
    return (size_t)threads * LQ_SHARE + (all < ROUGH_BYTES ? all : strip < ROUGH_BYTES ? ROUGH_BYTES : strip);
}

static void matmul_rough(lq_dev *d, matmul_job *j, int runs) {
    const size_t workers = (size_t)lq_pool_threads(d->pool) * LQ_SHARE;
    const size_t fit = (lq_cpu_of(d)->work_bytes - workers) / strip_bytes(j->x->x.cols);
    const int rows = j->x->x.rows;
    if (fit == 0) { // nobody reserved it
        run_all(d, matmul_run, j, runs);
        return;
    }
    j->strips = (char *)lq_cpu_of(d)->work + workers;
    for (j->m0 = 0; j->m0 < rows; j->m0 = j->m1) {
        const size_t left = (size_t)(rows - j->m0);
        j->m1 = left > fit * LQ_STRIP ? j->m0 + (int)fit * LQ_STRIP : rows;
        lq_pool_run(d->pool, strip_of_x, j, (j->m1 - j->m0 + LQ_STRIP - 1) / LQ_STRIP);
        run_all(d, matmul_run, j, runs);
    }
}

void lq_matmul_cpu(lq_dev *d, const lq_matmul_args *a) {
    matmul_job j = {.d = d, .x = a->x, .count = a->count, .m1 = a->x->x.rows};
    const bool rough = lq_cpu_of(d)->rough && a->x->type.elem == LQ_F32;
    const int64_t rough_rows = rough ? rough_run(d, a) : 0;
    int64_t bytes = 0;
    int runs = 0;
    for (int i = 0; i < a->count; i++) bytes += rows_bytes(a->w[i], a->w[i]->n);
    const int64_t run = run_bytes(d, bytes);
    for (int i = 0; i < a->count; i++) {
        runs = part_fill(&j.parts[i], d, a->w[i], held(a->x), a->x->x.rows, run, rough_rows, runs);
        j.parts[i].bias = a->bias[i];
        j.parts[i].y = a->y[i].p;
        j.parts[i].ldy = a->y[i].stride;
    }
    if (rough) matmul_rough(d, &j, runs);
    else run_all(d, matmul_run, &j, runs);
}

// --- moe: matmul of each expert over its slots ---
//
// Slots are counted in the order of their experts. Rows of experts that have several are gathered beside each other, as
// many slots in a pass as scratch holds; an expert's product goes by blocks of rows into the worker's scratch, and from
// there to its slots. A row alone is multiplied where it is. Scratch is cut otherwise than elsewhere: LQ_SHARE for each
// worker, then the gathered rows.

enum { MOE_BYTES = 16 << 20, GATHER_FORK = 128 * 1024, BLOCK_AT = CODES_BYTES / 4,
      BLOCK = LQ_SHARE / 4 - BLOCK_AT, MOE_COLS = 512 /* about, of a run, so that a block has room for many rows */ };

typedef struct own_slots { int expert, s0, s1; } own_slots; // of an expert, in a pass

typedef struct moe_job {
    const lq_dev *d;
    const lq_moe_args *a;
    int per_expert;     // runs
    part parts[MOE_MATS];
    int s0, s1;         // slots of this pass
    own_slots *of;      // [count], of experts that have some
    int count;
    bool gathered;
    lq_act x;           // their rows, [s1 - s0]
} moe_job;

static int slots_before(const lq_moe_args *a, int e) { // expert e
    if (a->order) return a->start[e];
    const int each = a->slots / a->experts, more = a->slots % a->experts;
    return e * each + (e < more ? e : more);
}

static int slot_of(const lq_moe_args *a, int e, int s) {
    return a->order ? a->order[s] : (s - slots_before(a, e)) * a->experts + e;
}

static int row_of(const lq_moe_args *a, int slot) { return a->x_by_slot ? slot : slot / a->top_k; }

// Who has the slots of this pass, which ends sooner where these are more experts than `of` has room for.
static void slots_deal(moe_job *j) {
    j->count = 0;
    for (int e = 0; e < j->a->experts; e++) {
        own_slots o = {e, slots_before(j->a, e), slots_before(j->a, e + 1)};
        if (o.s0 < j->s0) o.s0 = j->s0;
        if (o.s1 > j->s1) o.s1 = j->s1;
        if (o.s0 >= o.s1) continue;
        if (j->count < LQ_EXPERTS) j->of[j->count++] = o;
        else j->s1 = o.s0;
    }
}

// Bytes of a row of an activation: x, q, and a scale and a sum for each of `cells`.
typedef struct row_bytes { size_t x, q, cells; } row_bytes;
static row_bytes bytes_of(const lq_act *x, bool with_x) {
    const size_t k = (size_t)x->x.cols, cell = x->q_group; // BF16: none
    row_bytes b = {.x = with_x ? ((k + 15) & ~(size_t)15) * sizeof(float) : 0};
    if (x->type.elem == LQ_F32) return b;
    if (x->type.elem == LQ_BF16) return (row_bytes){.x = b.x, .q = x->q_row * sizeof(uint16_t)};
    b.cells = (k + cell - 1) / cell;
    b.q = x->type.elem == LQ_I8 ? b.cells * cell : x->q_row * (x->halves ? sizeof(uint16_t) : sizeof(float));
    return b;
}

static bool wants_x(const lq_moe_args *a) {
    bool outliers = a->x->type.elem == LQ_F32;
    for (int i = 0; i < a->count; i++)
        for (int e = 0; e < a->experts; e++) outliers |= a->w[i][e].outliers > 0;
    return outliers;
}

static size_t all_bytes(row_bytes b) { return b.x + b.q + b.cells * 8 + 4; }

static void gathered_bind(moe_job *j, row_bytes b, char *at) {
    const lq_act *from = j->a->x;
    const size_t n = (size_t)(j->s1 - j->s0);
    j->x = (lq_act){.type = from->type, .halves = from->halves, .q_row = from->q_row,
                    .q_group = from->q_group, .apart = (int)n,
                    .x = {.p = b.x ? at : NULL, .type = LQ_F32, .rows = (int)n, .cols = from->x.cols,
                          .stride = b.x / sizeof(float)}};
    j->x.q = at += n * b.x;
    j->x.scale = (float *)(void *)(at += n * b.q);
    j->x.sum = from->sum ? (int32_t *)(void *)(at + n * b.cells * 4) : NULL;
    j->x.zero = from->zero ? (int32_t *)(void *)(at + n * b.cells * 8) : NULL;
}

// What a row has as a whole.
static void gather_row(const lq_act *from, int row, const lq_act *to, int i) {
    if (to->x.p) memcpy(lq_mat_row(&to->x, i), lq_mat_row(&from->x, row), (size_t)from->x.cols * sizeof(float));
    if (from->type.elem == LQ_F32) return;
    if (held(from) == LQ_BF16)
        memcpy((uint16_t *)to->q + (size_t)i * to->q_row, (const uint16_t *)from->q + (size_t)row * from->q_row,
               from->q_row * sizeof(uint16_t));
    if (held(from) == LQ_E4M3)
        memcpy((float *)to->q + (size_t)i * to->q_row, (const float *)from->q + (size_t)row * from->q_row,
               (size_t)from->x.cols * sizeof(float));
    if (from->zero) to->zero[i] = from->zero[row];
}

static void gather_cell(const lq_act *from, size_t u, const lq_act *to, size_t v) {
    const size_t cell = from->q_group;
    to->scale[v] = from->scale[u];
    if (from->type.elem != LQ_I8) return;
    int8_t *q = (int8_t *)to->q + v * cell;
    const int8_t *own = (const int8_t *)from->q + u * cell;
    for (size_t k = 0; k < cell; k += 16) memcpy(q + k, own + k, 16); // cells are multiples of that
    to->sum[v] = from->sum[u];
}

static void gather_rows(void *arg, int i, int worker) {
    const moe_job *j = arg;
    const own_slots o = j->of[i];
    (void)worker;
    for (int s = o.s0; o.s1 - o.s0 > 1 && s < o.s1; s++)
        gather_row(j->a->x, row_of(j->a, slot_of(j->a, o.expert, s)), &j->x, s - j->s0);
}

// Cells, which of all rows lie beside each other: a piece of a few for a band of experts.
enum { GATHER_CELLS = 4 };
typedef struct gathering { const moe_job *j; int cells, pieces, bands; } gathering;
static void gather_cells(void *arg, int task, int worker) {
    const gathering *g = arg;
    const moe_job *j = g->j;
    const lq_act *from = j->a->x, *to = &j->x;
    const int band = task / g->pieces, first = task % g->pieces * GATHER_CELLS;
    const int end = first + GATHER_CELLS < g->cells ? first + GATHER_CELLS : g->cells;
    (void)worker;
    for (int n = j->count * band / g->bands; n < j->count * (band + 1) / g->bands; n++) {
        const own_slots o = j->of[n];
        for (int s = o.s0; o.s1 - o.s0 > 1 && s < o.s1; s++) {
            const int row = row_of(j->a, slot_of(j->a, o.expert, s)), i = s - j->s0;
            for (size_t c = (size_t)first; c < (size_t)end; c++)
                gather_cell(from, c * (size_t)from->apart + (size_t)row, to, c * (size_t)to->apart + (size_t)i);
        }
    }
}

static void gather(moe_job *j, row_bytes b) {
    const bool fork = (size_t)(j->s1 - j->s0) * all_bytes(b) > GATHER_FORK;
    const bool whole = b.x || held(j->a->x) != LQ_I8 || j->a->x->zero; // rows have something as a whole
    gathering g = {j, (int)b.cells, ((int)b.cells + GATHER_CELLS - 1) / GATHER_CELLS, 1};
    if (fork) g.bands += 2 * lq_pool_threads(j->d->pool) / (g.pieces + 1);
    if (g.bands > j->count) g.bands = j->count;
    const int rows = whole ? j->count : 0, cells = g.pieces * g.bands;
    if (fork) {
        lq_pool_run(j->d->pool, gather_rows, j, rows);
        lq_pool_run(j->d->pool, gather_cells, &g, cells);
        return;
    }
    for (int i = 0; i < rows; i++) gather_rows(j, i, 0);
    for (int i = 0; i < cells; i++) gather_cells(&g, i, 0);
}

// A run serves all slots of its expert, so that its weights come from memory once.
static void moe_run(const void *arg, int run, int worker) {
    const moe_job *j = arg;
    const lq_moe_args *a = j->a;
    const own_slots o = j->of[run / j->per_expert];
    const int e = o.expert, s0 = o.s0, s1 = o.s1, own = run % j->per_expert;
    const int i = own >= j->parts[a->count - 1].first ? a->count - 1 : 0;
    part p = j->parts[i];
    p.w = a->w[i] + e;
    p.bias = a->bias[i] ? a->bias[i][e] : NULL;
    float *const y = p.y, *scratch = (float *)lq_cpu_of(j->d)->work + (size_t)worker * (LQ_SHARE / sizeof(float));
    float *block = scratch + BLOCK_AT;
    const int64_t at = own - p.first, n0 = at * p.run * p.u->tile_n;
    const int64_t end = (at + 1) * p.run * p.u->tile_n;
    const size_t cols = (size_t)((end < p.w->n ? end : p.w->n) - n0), ldy = p.ldy;
    if (!j->gathered || s1 - s0 == 1) {
        for (int s = s0; s < s1; s++) { // the kernel writes row `row` of what it is given: row `slot` of the result
            const int slot = slot_of(a, e, s), row = row_of(a, slot);
            part_run(j->d, &p, at, a->x, NULL, row, row + 1,
                     (float *)((uintptr_t)y + ((uintptr_t)slot - (uintptr_t)row) * ldy * sizeof(float)), scratch);
        }
        return;
    }
    const int tall = cols < BLOCK ? (int)(BLOCK / cols) : 1;
    p.ldy = cols;
    for (int s = s0; s < s1; s += tall) {
        const int n = s1 - s < tall ? s1 - s : tall, m = s - j->s0;
        part_run(j->d, &p, at, &j->x, NULL, m, m + n,
                 (float *)((uintptr_t)block - ((uintptr_t)m * cols + (uintptr_t)n0) * sizeof(float)), scratch);
        for (int r = 0; r < n; r++)
            memcpy(y + (size_t)slot_of(a, e, s + r) * ldy + (size_t)n0, block + (size_t)r * cols, cols * sizeof(float));
    }
}

size_t lq_moe_work(const lq_dev_limits *l, int threads) {
    size_t rows = (size_t)l->slots * ((size_t)l->k * sizeof(float) + 64);
    return l->slots ? (size_t)threads * LQ_SHARE + (rows < MOE_BYTES ? rows : MOE_BYTES) : 0;
}

void lq_moe_cpu(lq_dev *d, const lq_moe_args *a) {
    const size_t workers = (size_t)lq_pool_threads(d->pool) * LQ_SHARE, room = lq_cpu_of(d)->work_bytes - workers;
    own_slots of[LQ_EXPERTS];
    moe_job j = {.d = d, .a = a, .of = of};
    int64_t bytes = 0; // of as many experts as may have a slot
    for (int i = 0; i < a->count; i++)
        bytes += rows_bytes(a->w[i], a->w[i]->n) * (a->slots < a->experts ? a->slots : a->experts);
    const int64_t run = run_bytes(d, bytes);
    for (int i = 0; i < a->count; i++) {
        const int64_t most = rows_bytes(a->w[i], MOE_COLS);
        j.per_expert = part_fill(&j.parts[i], d, a->w[i], held(a->x), a->slots / a->experts, run < most ? run : most, 0,
                                 j.per_expert);
        j.parts[i].y = a->y[i].p;
        j.parts[i].ldy = a->y[i].stride;
    }
    const row_bytes b = bytes_of(a->x, wants_x(a));
    const size_t fit = room / all_bytes(b);
    for (int e = 0; fit > 1 && e < a->experts; e++) j.gathered |= slots_before(a, e + 1) - slots_before(a, e) > 1;
    for (; j.s0 < a->slots; j.s0 = j.s1) {
        j.s1 = j.gathered && (size_t)(a->slots - j.s0) > fit ? j.s0 + (int)fit : a->slots;
        slots_deal(&j);
        if (j.gathered) {
            gathered_bind(&j, b, (char *)lq_cpu_of(d)->work + workers);
            gather(&j, b);
        }
        run_all(d, moe_run, &j, j.per_expert * j.count);
    }
}
