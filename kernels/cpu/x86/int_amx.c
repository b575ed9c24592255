// int_amx.c: Q8 activations x int weights in layout x86 by tiles of int8 (tiles.h), for 16 rows and more;
// fewer are the AVX-512 kernels'. The bits are theirs: within a span of cells all is integer and exact, a finished span
// is added to y as in int_avx512.h. Owns nothing, refuses nothing.
//
// A pass is up to 8 tiles of weights x 512 rows (up to 64 rows 2 tiles, two streams), whose sums lie in scratch. K
// goes by in ranges: those of two tiles become a panel of signed codes in the first cache (less the zero point, of
// int8 less 128), which all rows meet, 32 at a time. Rows of activations are read where they lie. A block's sums of a
// cell go to memory once, and are scaled between the dots of the next cell, so that the vector units have what to do
// while those run.
#include "kernels/cpu/x86/int_avx512.h"
#include "kernels/cpu/x86/tiles.h"

enum { SIDE = TILE_ROWS, SUMS = SIDE * SIDE, ROW_BYTES = SIDE * 4, RANGE = 512 /* k */, MOST_ROWS = 512,
       STRIPS = MOST_ROWS / SIDE, MOST_TILES = 8, LOW_ROWS = 64, LOW_TILES = 2 };

// Of two strips x two tiles: the first strip's with both tiles, then the second one's.
typedef int32_t sums[4][SUMS];
typedef float floats[4][SUMS];

// What a call has of scratch.
typedef struct work {
    floats f[MOST_TILES / 2][STRIPS / 2];   // y so far
    sums sum[MOST_TILES / 2][STRIPS / 2];   // of a span that no range holds
    sums out;                               // of a span that has ended
    int8_t panel[2][RANGE * SIDE];          // [k / 4][16][4]
} work;
_Static_assert(sizeof(work) <= LQ_MANY_BYTES && (int)SIDE == LQ_MANY_ROWS, "what ukr.h says");

// A block whose sums of the span that ends with cell g wait in `out` to be added to y so far.
typedef struct ended {
    int g, tile, strip;
    bool waits, high, wide;                 // has a second strip, a second tile
} ended;

// Columns k0..k1 of tile t as rows of tile registers: a function for each number of bits.
struct pass;
typedef void panel_fn(const struct pass *p, int64_t t, int64_t k0, int64_t k1, int8_t *to);

typedef struct pass {
    cut c;
    panel_fn *panel;
    bool centred;           // int8 with zero points, of which the panel takes 128 off
    int64_t t0;             // its first tile
    int tiles, most;        // of this pass, of any
    int m0, rows;
    int strips, depth;      // of 16 rows each; k of a tile register
    struct work *work;
    float *y;
    size_t ldy;
} pass;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
// The last strip ends with the rows, and has some of the one before where they are no multiple of 16: equal numbers.
INLINE int row_of(const pass *p, int strip) { return (int)least(strip * SIDE, p->rows - SIDE); }

INLINE __m512i zero_bytes(const cut *c, int64_t t, int64_t g, const int bits) { // of a tile's rows, four of each
    if (!c->zero) return _mm512_set1_epi8((char)(1 << (bits - 1)));
    const uint8_t *zero = c->zero + (size_t)t * c->zero_tile + (size_t)g * c->zero_group;
    return _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zero)),
                              _mm512_set1_epi32(0x01010101));
}

// What comes of it next, or of the pass behind, is fetched into L2.
INLINE void panel_make(const pass *p, int64_t t, int64_t k0, int64_t k1, int8_t *to, const int bits,
                       const bool table) {
    const cut *c = &p->c;
    const __m512i look = table ? _mm512_broadcast_i32x4(_mm_load_si128((const void *)c->book->whole))
                               : _mm512_setzero_si512();
    const int step = CODES_K(bits), lines = step * bits / 32;
    const uint8_t *q = c->q + (size_t)t * c->q_tile + (size_t)k0 * (size_t)(2 * bits);
    const size_t next = k1 < (int64_t)c->groups * c->G ? (size_t)(k1 - k0) * (size_t)(2 * bits)
        : (size_t)p->most * c->q_tile - (size_t)k0 * (size_t)(2 * bits);
    for (int64_t k = k0, end; k < k1; k = end) {
        const __m512i zero = bits < 8 ? zero_bytes(c, t, k / c->G, bits) : _mm512_set1_epi8((char)0x80);
        end = least((k / c->G + 1) * c->G, k1);
        for (int64_t i = k; i < end; i += step, q += lines * 64) {
            EACH (int j = 0; j < lines; j++)
                _mm_prefetch((const char *)((uintptr_t)q + next + (size_t)j * 64), _MM_HINT_T1);
            EACH (int f = 0; f < step / 4; f++, to += ROW_BYTES) {
                const __m512i v = codes_4k(q, bits, f);
                _mm512_store_si512(to, table ? _mm512_shuffle_epi8(look, v) : _mm512_sub_epi8(v, zero));
            }
        }
    }
}

// --- what a span came to ---

// What zero points add to the sums of 16 rows from m on. centred: int8 has some, and 128 is off; shifted: activations
// have one.
static void block_shift(const pass *p, int64_t t, int m, int g, int32_t *dot, bool centred, bool shifted) {
    const cut *c = &p->c;
    _Alignas(64) int32_t xsum[SIDE];
    __m512i zero = _mm512_setzero_si512(), codes = zero;
    if (centred) {
        zero = _mm512_srai_epi32(_mm512_slli_epi32(minus_zeros_of(c, t, g), 16), 16);
        zero = _mm512_add_epi32(zero, _mm512_set1_epi32(128));
        span_sums(c, g, m, SIDE, xsum);
    }
    if (shifted) codes = code_sums(c, t, g);
    for (int r = 0; r < SIDE; r++) {
        __m512i v = _mm512_load_si512(dot + r * SIDE);
        if (centred) v = _mm512_add_epi32(v, _mm512_mullo_epi32(zero, _mm512_set1_epi32(xsum[r])));
        if (shifted) v = _mm512_sub_epi32(v, _mm512_mullo_epi32(codes, _mm512_set1_epi32(c->xzero[m + r])));
        _mm512_store_si512(dot + r * SIDE, v);
    }
}

// The first span's sums begin y, the last one's go to y itself, others to f.
typedef enum when { MIDDLE, FIRST, LAST, ONLY } when;
INLINE when when_of(const pass *p, int g) {
    const bool first = !p->c.more && g < p->c.span, last = g + 1 == p->c.groups;
    return first ? last ? ONLY : FIRST : last ? LAST : MIDDLE;
}

// Where all of that is. (Never in memory: what is read there has to wait for the sums that were written before.)
typedef struct where {
    const int32_t *dot;
    float *f, *y[2];                        // y and scales of each strip
    const float *xscale[2];
    size_t ldy;
    __m512 s[2];                            // of each tile's rows
    __mmask16 some[2];
} where;

INLINE where where_of(const pass *p, const ended *e) {
    const cut *c = &p->c;
    const int64_t t = p->t0 + e->tile;
    where w = {p->work->out[0], p->work->f[e->tile / 2][e->strip / 2][0], .ldy = p->ldy};
    EACH (int i = 0; i < 2; i++) {
        const size_t m = (size_t)(p->m0 + row_of(p, e->strip + i));
        w.y[i] = p->y + m * p->ldy + (size_t)t * SIDE;
        w.xscale[i] = c->xscale + (size_t)e->g * (size_t)c->all + m;
        w.s[i] = scales_of(c, i && e->wide ? t + 1 : t, e->g, c->book, false);
        w.some[i] = columns(c->n, i && e->wide ? t + 1 : t);
    }
    return w;
}

// Row i of a block, 0 to 63.
INLINE void row_add(const where *w, const int i, const when how) {
    const int strip = i / (2 * SIDE), tile = i / SIDE % 2, r = i % SIDE;
    const bool first = how == FIRST || how == ONLY, last = how == LAST || how == ONLY;
    const __m512 so_far = first ? _mm512_setzero_ps() : _mm512_load_ps(w->f + i * SIDE);
    const __m512 sum = add_group(so_far, _mm512_load_si512(w->dot + i * SIDE), w->s[tile], w->xscale[strip][r]);
    if (last) _mm512_mask_storeu_ps(w->y[strip] + (size_t)r * w->ldy + tile * SIDE, w->some[tile], sum);
    else _mm512_store_ps(w->f + i * SIDE, sum);
}

// Behind dot number `at` of a cell with as many dots as `of`: the rows that are its share.
INLINE void share_add(const where *w, int at, const int of, const when how) {
    const int n = 4 * SIDE / of;
    EACH (int i = at * n; i < at * n + n; i++) row_add(w, i, how);
}

// The whole of it, at once.
INLINE void all_add(const ended *e, const where *w, const when how) {
    share_add(w, 0, 4, how);
    if (e->wide) share_add(w, 1, 4, how);
    if (e->high) share_add(w, 2, 4, how);
    if (e->high && e->wide) share_add(w, 3, 4, how);
}

static void ended_add(const pass *p, ended *e) {
    if (!e->waits) return;
    const where w = where_of(p, e);
    switch (when_of(p, e->g)) {
    case FIRST: all_add(e, &w, FIRST); break;
    case LAST: all_add(e, &w, LAST); break;
    case ONLY: all_add(e, &w, ONLY); break;
    default: all_add(e, &w, MIDDLE);
    }
    e->waits = false;
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

// One step of it, with a share of what ended before behind each dot, so that vector units and tiles both have work.
INLINE void step_dots(const int8_t *x, size_t below, int G, const int8_t *b, const where *w, const int step,
                      const int steps, const when how) {
    const int of = 4 * steps;
    tile_load(4, x, (size_t)G);
    tile_load(6, b, ROW_BYTES);
    tile_load(7, b + RANGE * SIDE, ROW_BYTES);
    tile_load(5, x + below, (size_t)G);
    tile_dot_i8(0, 4, 6);
    share_add(w, 4 * step, of, how);
    tile_dot_i8(1, 4, 7);
    share_add(w, 4 * step + 1, of, how);
    tile_dot_i8(2, 5, 6);
    share_add(w, 4 * step + 2, of, how);
    tile_dot_i8(3, 5, 7);
    share_add(w, 4 * step + 3, of, how);
}

INLINE void both(const int8_t *x, size_t below, int G, const int8_t *b, int len, int depth, const where *w,
                 const when how) {
    if (len == depth) {
        step_dots(x, below, G, b, w, 0, 1, how);
        return;
    }
    step_dots(x, below, G, b, w, 0, 2, how);
    step_dots(x + depth, below, G, b + depth * SIDE, w, 1, 2, how);
    cell_dots(x + 2 * depth, below, G, b + 2 * depth * SIDE, len - 2 * depth, depth, true, true);
}

// All of a cell's part, and what ended before.
INLINE void cell_run(const pass *p, const int8_t *x, size_t below, const int8_t *b, int len, ended *e,
                     const bool high, const bool wide) {
    const int G = p->c.G, depth = p->depth;
    const when how = when_of(p, e->g);
    if (!high || !wide || !e->waits || !e->high || !e->wide || how == ONLY) {
        cell_dots(x, below, G, b, len, depth, high, wide);
        ended_add(p, e);
        return;
    }
    const where w = where_of(p, e);
    if (how == MIDDLE) both(x, below, G, b, len, depth, &w, MIDDLE);
    else if (how == FIRST) both(x, below, G, b, len, depth, &w, FIRST);
    else both(x, below, G, b, len, depth, &w, LAST);
    e->waits = false;
}

// The sums of the span that ends with cell g wait from here on.
INLINE void span_end(const pass *p, int g, int tile, int strip, ended *e, const bool high,
                     const bool wide) {
    const bool centred = p->centred, shifted = p->c.xzero;
    *e = (ended){g, tile, strip, true, high, wide};
    sums_store(p->work->out, high, wide);
    for (int i = 0; (centred || shifted) && i < 4; i++)
        if ((high || i < 2) && (wide || i % 2 == 0))
            block_shift(p, p->t0 + tile + i % 2, p->m0 + row_of(p, strip + i / 2), g, p->work->out[i], centred,
                        shifted);
}

// Where columns of a strip's rows begin, from k on, which is in cell g.
INLINE const int8_t *x_at(const pass *p, int g, int64_t k, int strip) {
    const size_t G = (size_t)p->c.G, row = (size_t)(p->m0 + row_of(p, strip));
    return p->c.x + ((size_t)g * (size_t)p->c.all + row) * G + ((size_t)k - (size_t)g * G);
}

// Columns k0..k1 of one or two tiles, which are in the panel, with one or two strips.
INLINE void block_range(const pass *p, int64_t k0, int64_t k1, int tile, int strip, ended *e,
                        const bool high, const bool wide) {
    const cut *c = &p->c;
    const int G = c->G, row = row_of(p, strip);
    const size_t below = (size_t)(row_of(p, strip + high) - row) * (size_t)G;
    sums *sum = &p->work->sum[tile / 2][strip / 2];
    int g = (int)(k0 / G);
    for (int64_t k = k0, end; k < k1; k = end, g++) {
        end = least((int64_t)(g + 1) * G, k1);
        if (k == (int64_t)g * G && (c->span == 1 || g % c->span == 0)) sums_zero(high, wide);
        else if (k == k0) sums_load(sum, high, wide);
        cell_run(p, x_at(p, g, k, strip), below, p->work->panel[0] + (k - k0) * SIDE, (int)(end - k), e, high, wide);
        if (end == (int64_t)(g + 1) * G && (c->span == 1 || span_ends(c, g)))
            span_end(p, g, tile, strip, e, high, wide);
        else if (end == k1) sums_store(sum, high, wide);
    }
}

INLINE void pass_range(const pass *p, int64_t k0, int64_t k1, ended *e) {
    for (int tile = 0; tile < p->tiles; tile += 2) {
        const bool wide = tile + 1 < p->tiles;
        for (int i = 0; i <= wide; i++) p->panel(p, p->t0 + tile + i, k0, k1, p->work->panel[i]);
        for (int strip = 0; strip < p->strips; strip += 2) {
            const bool high = strip + 1 < p->strips;
            if (high && wide) block_range(p, k0, k1, tile, strip, e, true, true);
            else if (high) block_range(p, k0, k1, tile, strip, e, true, false);
            else if (wide) block_range(p, k0, k1, tile, strip, e, false, true);
            else block_range(p, k0, k1, tile, strip, e, false, false);
        }
    }
}

// What y has to begin with, as blocks.
static void y_begin(const pass *p) {
    for (int t = 0; t < p->tiles; t++) {
        const __mmask16 some = columns(p->c.n, p->t0 + t);
        for (int r = 0; r < p->strips * SIDE; r++) {
            const int strip = r / SIDE, row = row_of(p, strip) + r % SIDE;
            const float *from = p->y + (size_t)(p->m0 + row) * p->ldy + (size_t)(p->t0 + t) * SIDE;
            float *to = p->work->f[t / 2][strip / 2][2 * (strip % 2) + t % 2] + r % SIDE * SIDE;
            _mm512_store_ps(to, _mm512_maskz_loadu_ps(some, from));
        }
    }
}

// k of a tile register: all of them are full, or else as much as divides a cell.
static int depth_of(int G) {
    int depth = G < TILE_WIDE ? G : TILE_WIDE;
    while (G % depth) depth -= 16;
    return depth;
}

INLINE void pass_run(const pass *p) {
    // Of a larger cell a part is whole registers and, whatever their depth, whole units of 32 codes.
    const int64_t G = p->c.G, k = p->c.groups * G, cells = RANGE / G * G, part = RANGE / p->depth * p->depth;
    ended e = {0};
    if (p->c.more) y_begin(p);
    for (int64_t k0 = 0, k1; k0 < k; k0 = k1) {
        k1 = cells ? least(k0 + cells, k) : least(k0 + part, (k0 / G + 1) * G);
        pass_range(p, k0, k1, &e);
    }
    ended_add(p, &e);
}

// Rows are dealt over passes by whole blocks, but for the last one.
static void passes_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                       size_t ldy, void *scratch, panel_fn *panel) {
    pass p = {.c = cut_of(w, a), .panel = panel, .work = scratch, .y = y, .ldy = ldy};
    p.centred = w->type.bits == 8 && p.c.zero;
    p.depth = depth_of(p.c.G);
    p.most = m1 - m0 <= LOW_ROWS ? LOW_TILES : MOST_TILES;
    tiles_begin(p.depth, SIDE);
    for (int m = m0, parts = (m1 - m0 + MOST_ROWS - 1) / MOST_ROWS; parts > 0; parts--, m += p.rows) {
        const int even = (m1 - m + parts - 1) / parts;
        p.m0 = m;
        p.rows = parts > 1 ? (even + 2 * SIDE - 1) / (2 * SIDE) * 2 * SIDE : m1 - m;
        p.strips = (p.rows + SIDE - 1) / SIDE;
        for (p.t0 = t0; p.t0 < t1; p.t0 += p.most) {
            p.tiles = (int)least(t1 - p.t0, p.most);
            pass_run(&p);
        }
    }
    tiles_end();
}

#define MANY_FN(OF, BITS, TABLED)                                                                                   \
    static void panel_##OF(const pass *p, int64_t t, int64_t k0, int64_t k1, int8_t *to) {                          \
        panel_make(p, t, k0, k1, to, BITS, TABLED);                                                                 \
    }                                                                                                               \
    lq_ukr_many lq_matmul_f32_q8_##OF##x86_amx;                                                                     \
    void lq_matmul_f32_q8_##OF##x86_amx(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0,        \
                                        int m1, float *y, size_t ldy, void *scratch) {                              \
        passes_run(w, a, t0, t1, m0, m1, y, ldy, scratch, panel_##OF);                                              \
    }
MANY_FN(int2, 2, false) MANY_FN(int3, 3, false) MANY_FN(int4, 4, false) MANY_FN(int5, 5, false)
MANY_FN(int6, 6, false) MANY_FN(int8, 8, false) MANY_FN(table4, 4, true)
