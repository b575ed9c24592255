// int_amx.c: Q8 activations x int4 or int8 weights in layout x86 by tiles of int8 (tiles.h), for 16 rows and more;
// fewer are the AVX-512 kernels'. The bits are theirs: within a span of cells all is integer and exact, a finished span
// is added to y as in int_avx512.h. Owns nothing, refuses nothing.
//
// A pass is up to 8 tiles of weights x 256 rows (up to 64 rows 2 tiles, two streams), whose sums lie in scratch. K
// goes by in ranges: those of two tiles become a panel of signed codes in the first cache (int4 less the zero point,
// int8 less 128), which all rows meet, 32 at a time. Rows of activations are read where they lie. A block's sums of a
// cell go to memory once, and are scaled behind the dots of the next cell, so that the vector units have what to do
// while those run.
#include "kernels/cpu/x86/int_avx512.h"
#include "kernels/cpu/x86/tiles.h"

enum { SIDE = TILE_ROWS, SUMS = SIDE * SIDE, ROW_BYTES = SIDE * 4, RANGE = 512 /* k */, MOST_ROWS = 256,
       STRIPS = MOST_ROWS / SIDE, MOST_TILES = 8, LOW_ROWS = 64, LOW_TILES = 2 };

// A block whose sums of the span that ends with cell g lie in `out`. high, wide: strips and tiles of it.
typedef struct ended { int g, strip, tile, high, wide; } ended;

// What a call has of scratch.
typedef struct work {
    float f[MOST_TILES][STRIPS][SUMS];      // y so far
    int32_t sum[MOST_TILES][STRIPS][SUMS];  // of a span that no range holds
    int32_t out[4][SUMS];
    int8_t panel[2][RANGE * SIDE];          // [k / 4][16][4]
} work;
_Static_assert(sizeof(work) <= LQ_MANY_BYTES && (int)SIDE == LQ_MANY_ROWS, "what ukr.h says");

typedef struct pass {
    cut c;
    int64_t t0;             // its first tile
    int tiles, most;        // of this pass, of any
    int m0, rows;
    int strips, depth;      // of 16 rows each; k of a tile register
    struct work *work;
} pass;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
// The last strip ends with the rows, and has some of the one before where they are no multiple of 16: equal numbers.
INLINE int row_of(const pass *p, int strip) { return (int)least(strip * SIDE, p->rows - SIDE); }

INLINE __m512i zero_bytes(const cut *c, int64_t t, int64_t g) { // of a tile's rows, four of each
    if (!c->zero) return _mm512_set1_epi8(8);
    const uint8_t *zero = c->zero + (size_t)t * c->zero_tile + (size_t)g * c->zero_group;
    return _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zero)),
                              _mm512_set1_epi32(0x01010101));
}

// Columns k0..k1 of tile t as rows of tile registers. What comes of it next, or of the pass behind, is fetched into L2.
INLINE void panel_make(const pass *p, int64_t t, int64_t k0, int64_t k1, int8_t *to, const int bits) {
    const cut *c = &p->c;
    const __m512i low = _mm512_set1_epi8(0x0f), middle = _mm512_set1_epi8((char)0x80);
    const uint8_t *q = c->q + (size_t)t * c->q_tile + (size_t)k0 * (size_t)(2 * bits);
    const size_t next = k1 < (int64_t)c->groups * c->G ? (size_t)(k1 - k0) * (size_t)(2 * bits)
        : (size_t)p->most * c->q_tile - (size_t)k0 * (size_t)(2 * bits);
    for (int64_t k = k0, end; k < k1; k = end) {
        const __m512i zero = bits == 4 ? zero_bytes(c, t, k / c->G) : middle;
        end = least((k / c->G + 1) * c->G, k1);
        for (int64_t i = k; i < end; i += 8, q += 16 * bits, to += 2 * ROW_BYTES) {
            __m512i a = _mm512_loadu_si512(q), b;
            _mm_prefetch((const char *)((uintptr_t)q + next), _MM_HINT_T1);
            if (bits == 8) _mm_prefetch((const char *)((uintptr_t)q + next + 64), _MM_HINT_T1);
            if (bits == 4) {
                b = _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(a, 4), low), zero);
                a = _mm512_sub_epi8(_mm512_and_si512(a, low), zero);
            } else {
                b = _mm512_xor_si512(_mm512_loadu_si512(q + 64), zero);
                a = _mm512_xor_si512(a, zero);
            }
            _mm512_store_si512(to, a);
            _mm512_store_si512(to + ROW_BYTES, b);
        }
    }
}

// --- what a span came to ---

// Sums of 16 rows' codes over the cells of the span that ends with g.
INLINE void span_sums(const pass *p, int g, int m, int32_t *to) {
    __m512i sum = _mm512_setzero_si512();
    for (int i = g / p->c.span * p->c.span; i <= g; i++)
        sum = _mm512_add_epi32(sum, _mm512_loadu_si512(p->c.xsum + (size_t)i * (size_t)p->c.all + (size_t)m));
    _mm512_store_si512(to, sum);
}

// One tile's sums of 16 rows from m of the batch on, to f. centred: int8 has zero points, and 128 is off; shifted:
// activations have one.
INLINE void span_add(const pass *p, const int32_t *dot, int64_t t, int g, int m, float *f, const bool centred,
                     const bool shifted) {
    const cut *c = &p->c;
    const float *xscale = c->xscale + (size_t)g * (size_t)c->all + (size_t)m;
    const __m512 s = scales_of(c, t, g);
    _Alignas(64) int32_t xsum[SIDE];
    __m512i zero = _mm512_setzero_si512(), codes = zero;
    if (centred) {
        zero = _mm512_srai_epi32(_mm512_slli_epi32(minus_zeros_of(c, t, g, 8), 16), 16);
        zero = _mm512_add_epi32(zero, _mm512_set1_epi32(128));
        span_sums(p, g, m, xsum);
    }
    if (shifted) codes = code_sums(c, t, g);
    EACH (int r = 0; r < SIDE; r++) {
        __m512i v = _mm512_load_si512(dot + r * SIDE);
        if (centred) v = _mm512_add_epi32(v, _mm512_mullo_epi32(zero, _mm512_set1_epi32(xsum[r])));
        if (shifted) v = _mm512_sub_epi32(v, _mm512_mullo_epi32(codes, _mm512_set1_epi32(c->xzero[m + r])));
        _mm512_store_ps(f + r * SIDE, add_group(_mm512_load_ps(f + r * SIDE), v, s, xscale[r]));
    }
}

// The sums in `out` to where they belong, if there are any.
static void ended_add(const pass *p, ended *e, int bits) {
    const bool centred = bits == 8 && p->c.zero, shifted = p->c.xzero;
    for (int i = 0; i < 2 * e->high; i++) {
        const int strip = e->strip + i / 2, tile = e->tile + i % 2, m = p->m0 + row_of(p, strip);
        if (i % 2 >= e->wide) continue;
        float *f = p->work->f[tile][strip];
        if (shifted) span_add(p, p->work->out[i], p->t0 + tile, e->g, m, f, bits == 8, true);
        else if (centred) span_add(p, p->work->out[i], p->t0 + tile, e->g, m, f, true, false);
        else span_add(p, p->work->out[i], p->t0 + tile, e->g, m, f, false, false);
    }
    e->high = 0;
}

// --- dots ---

// Of a part of a cell: two strips of rows `below` bytes apart, two tiles of a panel.
INLINE void cell_dots(const int8_t *x, size_t below, int G, const int8_t *b, int len, int depth, const bool high,
                      const bool wide) {
    for (int k = 0; k < len; k += depth, b += depth * SIDE, x += depth) {
        tile_load(4, x, (size_t)G);
        tile_load(6, b, ROW_BYTES);
        if (wide) tile_load(7, b + RANGE * SIDE, ROW_BYTES);
        if (high) tile_load(5, x + below, (size_t)G);
        tile_dot_i8(0, 4, 6);
        if (wide) tile_dot_i8(1, 4, 7);
        if (high) tile_dot_i8(2, 5, 6);
        if (high && wide) tile_dot_i8(3, 5, 7);
    }
}

INLINE void sums_store(int32_t *a, int32_t *b, int32_t *c, int32_t *d, const bool high, const bool wide) {
    tile_store(0, a, ROW_BYTES);
    if (wide) tile_store(1, b, ROW_BYTES);
    if (high) tile_store(2, c, ROW_BYTES);
    if (high && wide) tile_store(3, d, ROW_BYTES);
}

INLINE void sums_zero(const bool high, const bool wide) {
    tile_zero(0);
    if (wide) tile_zero(1);
    if (high) tile_zero(2);
    if (high && wide) tile_zero(3);
}

INLINE void sums_load(const int32_t *a, const int32_t *b, const int32_t *c, const int32_t *d, const bool high,
                      const bool wide) {
    tile_load(0, a, ROW_BYTES);
    if (wide) tile_load(1, b, ROW_BYTES);
    if (high) tile_load(2, c, ROW_BYTES);
    if (high && wide) tile_load(3, d, ROW_BYTES);
}

// Columns k0..k1 of one or two tiles, which are in the panel, with one or two strips.
INLINE void block_range(const pass *p, int64_t k0, int64_t k1, int tile, int strip, ended *e, const int bits,
                        const bool high, const bool wide) {
    const cut *c = &p->c;
    const int row = row_of(p, strip), G = c->G, t = wide, s = high;
    const size_t below = (size_t)(row_of(p, strip + s) - row) * (size_t)G;
    int32_t (*sum)[STRIPS][SUMS] = p->work->sum + tile;
    int g = (int)(k0 / G);
    for (int64_t k = k0, end; k < k1; k = end, g++) {
        const int64_t cell = (int64_t)g * G;
        const int8_t *x = c->x + ((size_t)g * (size_t)c->all + (size_t)(p->m0 + row)) * (size_t)G + (k - cell);
        end = least(cell + G, k1);
        if (k == cell && (c->span == 1 || g % c->span == 0)) sums_zero(high, wide);
        else if (k == k0) sums_load(sum[0][strip], sum[t][strip], sum[0][strip + s], sum[t][strip + s], high, wide);
        cell_dots(x, below, G, p->work->panel[0] + (k - k0) * SIDE, (int)(end - k), p->depth, high, wide);
        ended_add(p, e, bits);
        if (end == cell + G && (c->span == 1 || span_ends(c, g))) {
            sums_store(p->work->out[0], p->work->out[1], p->work->out[2], p->work->out[3], high, wide);
            *e = (ended){g, strip, tile, 1 + s, 1 + t};
        } else if (end == k1) {
            sums_store(sum[0][strip], sum[t][strip], sum[0][strip + s], sum[t][strip + s], high, wide);
        }
    }
}

INLINE void pass_range(const pass *p, int64_t k0, int64_t k1, ended *e, const int bits) {
    for (int tile = 0; tile < p->tiles; tile += 2) {
        const bool wide = tile + 1 < p->tiles;
        for (int i = 0; i <= wide; i++) panel_make(p, p->t0 + tile + i, k0, k1, p->work->panel[i], bits);
        for (int strip = 0; strip < p->strips; strip += 2) {
            const bool high = strip + 1 < p->strips;
            if (high && wide) block_range(p, k0, k1, tile, strip, e, bits, true, true);
            else if (high) block_range(p, k0, k1, tile, strip, e, bits, true, false);
            else if (wide) block_range(p, k0, k1, tile, strip, e, bits, false, true);
            else block_range(p, k0, k1, tile, strip, e, bits, false, false);
        }
    }
}

// --- from y and back ---

static void y_begin(const pass *p, const float *y, size_t ldy) {
    for (int t = 0; t < p->tiles; t++) {
        const __mmask16 some = columns(p->c.n, p->t0 + t);
        for (int r = 0; r < p->strips * SIDE; r++) {
            const int row = row_of(p, r / SIDE) + r % SIDE;
            const float *from = y + (size_t)(p->m0 + row) * ldy + (size_t)(p->t0 + t) * SIDE;
            _mm512_store_ps(p->work->f[t][0] + r * SIDE, begin(&p->c, from, some));
        }
    }
}

static void y_end(const pass *p, float *y, size_t ldy) {
    for (int r = 0; r < p->strips * SIDE; r++) {
        const int row = row_of(p, r / SIDE) + r % SIDE;
        float *to = y + (size_t)(p->m0 + row) * ldy + (size_t)p->t0 * SIDE;
        for (int t = 0; t < p->tiles; t++)
            _mm512_mask_storeu_ps(to + t * SIDE, columns(p->c.n, p->t0 + t),
                                  _mm512_load_ps(p->work->f[t][0] + r * SIDE));
    }
}

// k of a tile register: all of them are full, or else as much as divides a cell.
static int depth_of(int G) {
    int depth = G < TILE_WIDE ? G : TILE_WIDE;
    while (G % depth) depth -= 16;
    return depth;
}

INLINE void pass_run(const pass *p, float *y, size_t ldy, const int bits) {
    const int64_t G = p->c.G, k = p->c.groups * G, cells = RANGE / G * G, part = RANGE / p->depth * p->depth;
    ended e = {0};
    y_begin(p, y, ldy);
    for (int64_t k0 = 0, k1; k0 < k; k0 = k1) {
        k1 = cells ? least(k0 + cells, k) : least(k0 + part, (k0 / G + 1) * G);
        pass_range(p, k0, k1, &e, bits);
    }
    ended_add(p, &e, bits);
    y_end(p, y, ldy);
}

// Rows are dealt over passes by whole blocks, but for the last one.
INLINE void passes_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                       size_t ldy, void *scratch, const int bits) {
    pass p = {.c = cut_of(w, a), .work = scratch};
    p.depth = depth_of(p.c.G);
    p.most = m1 - m0 <= LOW_ROWS ? LOW_TILES : MOST_TILES;
    tiles_begin(p.depth);
    for (int m = m0, parts = (m1 - m0 + MOST_ROWS - 1) / MOST_ROWS; parts > 0; parts--, m += p.rows) {
        const int even = (m1 - m + parts - 1) / parts;
        p.m0 = m;
        p.rows = parts > 1 ? (even + 2 * SIDE - 1) / (2 * SIDE) * 2 * SIDE : m1 - m;
        p.strips = (p.rows + SIDE - 1) / SIDE;
        for (p.t0 = t0; p.t0 < t1; p.t0 += p.most) {
            p.tiles = (int)least(t1 - p.t0, p.most);
            pass_run(&p, y, ldy, bits);
        }
    }
    tiles_end();
}

lq_ukr_many lq_matmul_f32_q8_int4x86_amx, lq_matmul_f32_q8_int8x86_amx;

void lq_matmul_f32_q8_int4x86_amx(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                                  size_t ldy, void *scratch) {
    passes_run(w, a, t0, t1, m0, m1, y, ldy, scratch, 4);
}

void lq_matmul_f32_q8_int8x86_amx(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                                  size_t ldy, void *scratch) {
    passes_run(w, a, t0, t1, m0, m1, y, ldy, scratch, 8);
}
