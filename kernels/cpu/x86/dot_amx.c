// dot_amx.c: bf16 activations x bf16 weights by tiles (tiles.h), whatever their number: rows, or packed as layout x86
// has them, whose pairs of k lie as a register wants them. Owns nothing.
//
// Order of sums, the same at every M: 32 k at a time, as amx.h says of one product. What lies behind the last k is 0.
//
// A pass is up to 512 rows x 8 tiles of 16 weight rows, whose sums lie in scratch; up to 64 rows x one tile, whose sums
// stay in registers. K goes by in ranges: those of two tiles, or of one, become a panel of pairs in the first cache
// (packed, they are one), which all rows meet, 32 or 64 at a time. Rows of activations are read where they lie, an odd
// number of lines apart (act.c), so that they do not meet in a cache.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/tiles.h"
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>

enum { SIDE = TILE_ROWS, SUMS = SIDE * SIDE, DEEP = 32, RANGE = 256 /* k */,
       MOST_ROWS = 512, STRIPS = MOST_ROWS / SIDE, MOST_TILES = 8, LOW_STRIPS = 4, LOW_RANGE = 64,
       LOW_AHEAD = 256 /* k */, K_BYTES = TILE_WIDE / 2 /* of a tile */ };

// What a call has of scratch. A block is two strips x two tiles: the first strip's with both tiles, then the second's.
typedef struct work {
    float f[MOST_TILES / 2][STRIPS / 2][4][SUMS]; // sums so far
    char panel[2][RANGE / DEEP * TILE_BYTES];     // [k / 32][16 pairs][16 weight rows][2]
    float edge[SUMS];
    uint16_t tail[SIDE][DEEP];
} work;
_Static_assert(sizeof(work) <= LQ_MANY_BYTES, "what ukr.h says");

typedef struct pass {
    const uint16_t *w;
    const char *packed; // NULL: rows
    size_t tile;        // bytes of one, packed
    const char *x;
    size_t x_row;       // bytes
    int64_t n, k;
    float *y;
    size_t ldy;
    int64_t t0;         // its first tile
    int tiles, m0, rows, strips;
    struct work *work;
} pass;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
// The last strip ends with the rows, and has some of the one before where they are no multiple of 16: equal numbers.
// (Fewer than 16 rows: registers have as many.)
INLINE int row_of(const pass *p, int strip) { return p->strips == 1 ? 0 : (int)least(strip * SIDE, p->rows - SIDE); }

// --- panels ---

// 16 pairs of k of 16 rows, from `at` on, to their transpose.
INLINE void turned(const char *const row[SIDE], size_t at, char *to) {
    EACH (int q = 0; q < 4; q++) {
        __m512i z[4]; // lane l: four pairs of row 4l + r
        EACH (int r = 0; r < 4; r++) {
            const char *const *p = row + r;
            const size_t from = at + 16 * (size_t)q;
            z[r] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(p[0] + from)));
            z[r] = _mm512_inserti32x4(z[r], _mm_loadu_si128((const __m128i *)(const void *)(p[4] + from)), 1);
            z[r] = _mm512_inserti32x4(z[r], _mm_loadu_si128((const __m128i *)(const void *)(p[8] + from)), 2);
            z[r] = _mm512_inserti32x4(z[r], _mm_loadu_si128((const __m128i *)(const void *)(p[12] + from)), 3);
        }
        const __m512i a = _mm512_unpacklo_epi32(z[0], z[1]), b = _mm512_unpackhi_epi32(z[0], z[1]);
        const __m512i c = _mm512_unpacklo_epi32(z[2], z[3]), d = _mm512_unpackhi_epi32(z[2], z[3]);
        _mm512_store_si512(to + TILE_WIDE * (4 * q), _mm512_unpacklo_epi64(a, c));
        _mm512_store_si512(to + TILE_WIDE * (4 * q + 1), _mm512_unpackhi_epi64(a, c));
        _mm512_store_si512(to + TILE_WIDE * (4 * q + 2), _mm512_unpacklo_epi64(b, d));
        _mm512_store_si512(to + TILE_WIDE * (4 * q + 3), _mm512_unpackhi_epi64(b, d));
    }
}

// Columns k0..k1 of tile t. Rows behind the last weight repeat it and are not stored. next: what is fetched into the
// second cache, as far from the rows; 0: nothing.
INLINE void panel_make(const pass *p, int64_t t, int64_t k0, int64_t k1, ptrdiff_t next, char *to) {
    const char *row[SIDE], *tail[SIDE];
    for (int r = 0; r < SIDE; r++) {
        row[r] = (const char *)(p->w + (size_t)least(t * SIDE + r, p->n - 1) * (size_t)p->k);
        tail[r] = (const char *)p->work->tail[r];
    }
    for (int64_t k = k0; k < k1; k += DEEP, to += TILE_BYTES) {
        const int left = (int)(p->k - k);
        if (next)
            EACH (int r = 0; r < SIDE; r++)
                _mm_prefetch((const char *)((uintptr_t)row[r] + (uintptr_t)(2 * k + next)), _MM_HINT_T1);
        if (left >= DEEP) {
            turned(row, (size_t)k * 2, to);
            continue;
        }
        for (int r = 0; r < SIDE; r++)
            _mm512_storeu_si512(p->work->tail[r], _mm512_maskz_loadu_epi16((1u << left) - 1, row[r] + (size_t)k * 2));
        turned(tail, 0, to);
    }
}

// How many bytes `tiles` and `k` further are: of rows each of them.
INLINE ptrdiff_t apart(const pass *p, int64_t tiles, int64_t k) {
    return p->packed ? tiles * (ptrdiff_t)p->tile + k * K_BYTES : 2 * (tiles * SIDE * p->k + k);
}

// Where the panel is: a packed one lies there, but for a last register that is not full.
INLINE const char *panel_of(const pass *p, int64_t t, int64_t k0, int64_t k1, ptrdiff_t next, char *to) {
    if (!p->packed) {
        panel_make(p, t, k0, k1, next, to);
        return to;
    }
    const char *from = p->packed + apart(p, t, k0);
    const size_t bytes = (size_t)(k1 - k0 + 1) / 2 * TILE_WIDE, over = bytes % TILE_BYTES;
    if (next)
        for (size_t i = 0; i < bytes; i += TILE_WIDE)
            _mm_prefetch((const char *)((uintptr_t)from + i + (uintptr_t)next), _MM_HINT_T1);
    if (!over) return from;
    memcpy(to, from, bytes);
    memset(to + bytes, 0, TILE_BYTES - over);
    return to;
}

// --- blocks ---

INLINE void sum_store(const int sum, float *to, size_t row) { // registers have names, not numbers
    if (sum == 0) tile_store(0, to, row);
    if (sum == 1) tile_store(1, to, row);
    if (sum == 2) tile_store(2, to, row);
    if (sum == 3) tile_store(3, to, row);
}

// One register's sums to y.
INLINE void sum_out(const pass *p, const int sum, int tile, int strip) {
    const int64_t n = (p->t0 + tile) * SIDE, left = p->n - n;
    float *y = p->y + (size_t)(p->m0 + row_of(p, strip)) * p->ldy + (size_t)n, *edge = p->work->edge;
    if (left >= SIDE) {
        sum_store(sum, y, p->ldy * sizeof *y);
        return;
    }
    sum_store(sum, edge, TILE_WIDE);
    for (int r = 0; r < SIDE && r < p->rows; r++)
        _mm512_mask_storeu_ps(y + (size_t)r * p->ldy, (__mmask16)((1u << left) - 1), _mm512_load_ps(edge + r * SIDE));
}

INLINE void sums_out(const pass *p, int tile, int strip, const bool high, const bool wide) {
    sum_out(p, 0, tile, strip);
    if (wide) sum_out(p, 1, tile + 1, strip);
    if (high) sum_out(p, 2, tile, strip + 1);
    if (high && wide) sum_out(p, 3, tile + 1, strip + 1);
}

// Columns k0..k1, whose panels are b and c, of one or two strips.
INLINE void range_dots(const pass *p, int64_t k0, int64_t k1, const char *b, const char *c, int strip, const bool high,
                       const bool wide) {
    const char *x = p->x + (size_t)(p->m0 + row_of(p, strip)) * p->x_row + (size_t)k0 * 2;
    const size_t row = p->x_row, below = (size_t)(row_of(p, strip + high) - row_of(p, strip)) * row;
    for (int64_t k = k0; k < k1; k += DEEP, x += TILE_WIDE, b += TILE_BYTES, c += TILE_BYTES) {
        tile_load(4, x, row);
        tile_load(6, b, TILE_WIDE);
        if (wide) tile_load(7, c, TILE_WIDE);
        if (high) tile_load(5, x + below, row);
        tile_dot_bf16(0, 4, 6);
        if (wide) tile_dot_bf16(1, 4, 7);
        if (high) tile_dot_bf16(2, 5, 6);
        if (high && wide) tile_dot_bf16(3, 5, 7);
    }
}

// --- passes ---

// Up to 64 rows with one tile. Memory is what takes the time. Of rows the processor asks for it itself: 16 streams, of
// which it only cannot know where the next tile's begin; what is packed is asked for line by line.
INLINE void low_run(const pass *p, const int strips) {
    const int64_t last = p->k > LOW_AHEAD ? p->k - LOW_AHEAD : 0; // from where on the next tile of rows is asked for
    const ptrdiff_t next = p->packed ? apart(p, 0, LOW_AHEAD) : apart(p, 1, -last);
    const char *x[LOW_STRIPS];
    for (int i = 0; i < strips; i++) x[i] = p->x + (size_t)(p->m0 + row_of(p, i)) * p->x_row;
    tile_zero(0);
    if (strips > 1) tile_zero(1);
    if (strips > 2) tile_zero(2);
    if (strips > 3) tile_zero(3);
    for (int64_t k0 = 0, k1; k0 < p->k; k0 = k1) {
        k1 = least(k0 + LOW_RANGE, p->k);
        const char *b = panel_of(p, p->t0, k0, k1, p->packed || k0 >= last ? next : 0, p->work->panel[0]);
        for (int64_t k = k0; k < k1; k += DEEP, b += TILE_BYTES) {
            tile_load(6, b, TILE_WIDE);
            tile_load(4, x[0] + 2 * k, p->x_row);
            tile_dot_bf16(0, 4, 6);
            if (strips > 1) tile_load(5, x[1] + 2 * k, p->x_row);
            if (strips > 1) tile_dot_bf16(1, 5, 6);
            if (strips > 2) tile_load(4, x[2] + 2 * k, p->x_row);
            if (strips > 2) tile_dot_bf16(2, 4, 6);
            if (strips > 3) tile_load(5, x[3] + 2 * k, p->x_row);
            if (strips > 3) tile_dot_bf16(3, 5, 6);
        }
    }
    sum_out(p, 0, 0, 0);
    if (strips > 1) sum_out(p, 1, 0, 1);
    if (strips > 2) sum_out(p, 2, 0, 2);
    if (strips > 3) sum_out(p, 3, 0, 3);
}

INLINE void block_run(const pass *p, int64_t k0, int64_t k1, const char *const b[2], int tile, int strip,
                      const bool high, const bool wide) {
    float (*f)[SUMS] = p->work->f[tile / 2][strip / 2];
    if (k0) sums_load(f, high, wide);
    else sums_zero(high, wide);
    range_dots(p, k0, k1, b[0], b[1], strip, high, wide);
    if (k1 < p->k) sums_store(f, high, wide);
    else sums_out(p, tile, strip, high, wide);
}

// How far behind columns k0..k1 of two tiles those lie that are needed next: the same of the next two, or the next
// columns of the first two, or the first columns of the next pass.
static ptrdiff_t next_of(const pass *p, int tile, int64_t k0, int64_t k1) {
    if (tile + 2 < p->tiles) return apart(p, 2, 0);
    return k1 < p->k ? apart(p, -tile, k1 - k0) : apart(p, 2, -k0);
}

static void high_run(const pass *p) {
    for (int64_t k0 = 0, k1; k0 < p->k; k0 = k1) {
        k1 = least(k0 + RANGE, p->k);
        for (int tile = 0; tile < p->tiles; tile += 2) {
            const bool wide = tile + 1 < p->tiles;
            const ptrdiff_t next = next_of(p, tile, k0, k1);
            const char *b[2] = {NULL, p->work->panel[1]};
            for (int i = 0; i <= wide; i++) b[i] = panel_of(p, p->t0 + tile + i, k0, k1, next, p->work->panel[i]);
            for (int strip = 0; strip < p->strips; strip += 2) {
                const bool high = strip + 1 < p->strips;
                if (high && wide) block_run(p, k0, k1, b, tile, strip, true, true);
                else if (high) block_run(p, k0, k1, b, tile, strip, true, false);
                else if (wide) block_run(p, k0, k1, b, tile, strip, false, true);
                else block_run(p, k0, k1, b, tile, strip, false, false);
            }
        }
    }
}

static void pass_run(const pass *p) {
    if (p->strips > LOW_STRIPS) high_run(p);
    else if (p->strips == 1) low_run(p, 1);
    else if (p->strips == 2) low_run(p, 2);
    else if (p->strips == 3) low_run(p, 3);
    else low_run(p, 4);
}

static void passes_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                       size_t ldy, void *scratch) {
    pass p = {.w = w->q, .x = a->q, .x_row = a->q_row * 2, .n = w->n, .k = w->k, .y = y, .ldy = ldy, .work = scratch};
    if (w->layout == LQ_X86) p.packed = w->q, p.tile = lq_x86_row(&w->type, w->k) * SIDE;
    const int most = m1 - m0 <= LOW_STRIPS * SIDE ? 1 : MOST_TILES;
    tiles_begin(TILE_WIDE, m1 - m0 < SIDE ? m1 - m0 : SIDE);
    for (int m = m0, parts = (m1 - m0 + MOST_ROWS - 1) / MOST_ROWS; parts > 0; parts--, m += p.rows) {
        const int even = (m1 - m + parts - 1) / parts;
        p.m0 = m;
        p.rows = parts > 1 ? (even + 2 * SIDE - 1) / (2 * SIDE) * 2 * SIDE : m1 - m;
        p.strips = (p.rows + SIDE - 1) / SIDE;
        for (p.t0 = t0; p.t0 < t1; p.t0 += most) {
            p.tiles = (int)least(t1 - p.t0, most);
            pass_run(&p);
        }
    }
    tiles_end();
}

lq_ukr_many lq_matmul_f32_bf16_bf16any_amx, lq_matmul_f32_bf16_bf16x86_amx; // named in ukr.c
void lq_matmul_f32_bf16_bf16any_amx(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                    float *y, size_t ldy, void *scratch) {
    passes_run(w, a, t0, t1, m0, m1, y, ldy, scratch);
}

void lq_matmul_f32_bf16_bf16x86_amx(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                    float *y, size_t ldy, void *scratch) {
    passes_run(w, a, t0, t1, m0, m1, y, ldy, scratch);
}
