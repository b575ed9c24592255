// fp8_avx512bf16.c: bf16 activations (E4M3 held so too) x rows of 8-bit floats with vdpbf16ps, and these rows as bf16
// for AMX's product. Of weights that are not packed (see lq_dev_layout; fp8x86_avx512bf16.c has those that are). How a
// code becomes a number, fp8_book.h says. Owns nothing.
//
// Order of sums, the same at every M: K is cut at CUT columns, at fewer where a cell ends. In a cut lane i adds
// k = 2i + 1 and 2i (mod 32), as the instruction does, from 0; lanes are added 8, 4, 2 and 1 apart, and the sum is
// multiplied by the weight's scale (of E4M3: by wscale * ascale). A cut of several cells: the lanes of each join those
// of the cells before by fma with its factor, and are added at the end. Cuts are added in order.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/fp8_book.h"
#include "kernels/cpu/x86/vec.h"
#include <math.h>
#include <string.h>

enum { STEP = 64 /* codes */, TILE = 4 /* rows */, CUT = 2048, CELLS = CUT / 128, TALL = 6, TALL_CELLS = 4,
       BAND = 96, X_BYTES = 512 * 1024 /* of activations, in the second cache */ };

// 64 codes, turned so that what two unpacks make of the two bytes of each is in order. less: by what their exponents
// are, in place, for each 32 codes; NULL: they are not raised.
INLINE halves halves_in_order(__m512i v, const book *b, const uint16_t *less) {
    const __m512i turned = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), v);
    if (!less) return halves_of(turned, b, false, _mm512_setzero_si512(), _mm512_setzero_si512());
    return halves_of(turned, b, true, _mm512_set1_epi16((short)less[0]), _mm512_set1_epi16((short)less[1]));
}

INLINE halves halves_some(const uint8_t *q, int n, const book *b, const uint16_t *less) { // fewer than 64, then zeros
    return halves_in_order(_mm512_maskz_loadu_epi8(((uint64_t)1 << n) - 1, q), b, less);
}

// Of columns k .. k + n of a row, each 32 of them (and of whole 64): what their exponents are to be less by, from the
// scales of its groups. True: a scale is NaN.
INLINE bool less_of(const lq_weight *w, int64_t row, int64_t k, int64_t n, uint16_t *less) {
    const lq_wtype *t = &w->type;
    const int64_t band = t->rows > 1 ? row / t->rows : row, each = t->group / 32;
    const int64_t at = k / 32, last = (k + n - 1) / 32, end = (k + n + 63) / 64 * 2;
    const uint8_t *s = (const uint8_t *)w->scale + band * lq_weight_groups(t, w->k);
    bool nan = false;
    int64_t i = at;
    for (; each == 1 && i + 32 <= last + 1; i += 32) {
        const __m256i code = _mm256_loadu_si256((const __m256i *)(const void *)(s + i));
        const __m512i by = _mm512_sub_epi16(_mm512_set1_epi16(255), _mm512_cvtepu8_epi16(code));
        nan |= _mm512_testn_epi16_mask(by, by) != 0;
        _mm512_storeu_si512(less + (i - at), _mm512_slli_epi16(by, 7));
    }
    for (; i < end; i++) {
        const int code = i <= last ? s[i / each] : 0;
        nan |= code == 255;
        less[i - at] = (uint16_t)((255 - code) << 7);
    }
    return nan;
}

// --- rows as bf16 ---

// What is asked for, so many codes behind those at hand: the row whose turn is next, the next cut.
typedef struct ahead { ptrdiff_t row, next; } ahead;

// padded: zeros up to a multiple of 64 too. asks: for what; or NULL.
INLINE void row_halves(const uint8_t *q, int n, const book *b, const uint16_t *less, uint16_t *dst, const bool padded,
                       const ahead *asks) {
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        if (asks) {
            _mm_prefetch((const char *)q + i + asks->row, _MM_HINT_T0);
            _mm_prefetch((const char *)q + i + asks->next, _MM_HINT_T0);
        }
        const halves h = halves_in_order(_mm512_loadu_si512(q + i), b, less ? less + i / 32 : NULL);
        _mm512_storeu_si512(dst + i, h.first);
        _mm512_storeu_si512(dst + i + 32, h.second);
    }
    if (i == n) return;
    const uint64_t some = padded ? ~(uint64_t)0 : ((uint64_t)1 << (n - i)) - 1;
    const halves h = halves_some(q + i, n - i, b, less ? less + i / 32 : NULL);
    _mm512_mask_storeu_epi16(dst + i, (__mmask32)some, h.first);
    _mm512_mask_storeu_epi16(dst + i + 32, (__mmask32)(some >> 32), h.second);
}

lq_ukr_halves lq_rows_bf16_bf16_fp8any_avx512bf16; // named in ukr.c
void lq_rows_bf16_bf16_fp8any_avx512bf16(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, uint16_t *dst) {
    const book b = book_of(&w->type);
    const bool shifts = lq_fp8_shifts(&w->type);
    const int n = (int)(k1 - k0);
    uint16_t less[LQ_FP8_CUT / 32];
    for (int64_t r = t * LQ_ANY_ROWS; r < (t + 1) * LQ_ANY_ROWS && r < w->n; r++, dst += n) {
        const uint8_t *q = (const uint8_t *)w->q + (size_t)(r * w->k + k0);
        for (int i = 0; i < n; i += 64) _mm_prefetch((const char *)q + i + LQ_ANY_ROWS * (size_t)w->k, _MM_HINT_T0);
        const bool nan = shifts && less_of(w, r, k0, n, less);
        row_halves(q, n, &b, shifts ? less : NULL, dst, false, NULL);
        for (int i = 0; nan && i < n; i++) dst[i] = 0x7fc0;
    }
}

// --- products ---

// Columns k..end of a tile: its codes or, for many rows, what these are; the scales of its cells.
typedef struct cut {
    int64_t n, k, end, cell; // cell: its first
    int cells;
    const uint8_t *q[TILE]; // rows behind the last weight repeat it and are not stored
    ptrdiff_t next;         // codes from here to the cut whose turn is next
    int64_t band, band_k;   // rows and first column that all of `scale` holds for; -1: none
    _Alignas(64) float scale[TILE][CELLS];
    uint16_t *wide;         // [TILE][CUT], or NULL
    uint16_t less[TILE][CUT / 32]; // of scales that are shifts
} cut;

INLINE ahead ahead_of(const area *a, const cut *c, int r) {
    return (ahead){r + 1 < TILE ? a->k : c->next - a->k * (TILE - 1), c->next};
}

// A cut's sums of row m; of `cells` their factors are in them.
INLINE void sums_store(const area *a, const cut *c, int m, __m128 sum, const bool cells) {
    if (!cells) {
        const __m128 w = _mm_setr_ps(c->scale[0][0], c->scale[1][0], c->scale[2][0], c->scale[3][0]);
        const float x = a->ascale ? a->ascale[(size_t)c->cell * a->all + (size_t)m] : 1;
        sum = _mm_mul_ps(sum, _mm_mul_ps(w, _mm_set1_ps(x)));
    }
    store4(a->y + (size_t)m * a->ldy + (size_t)c->n, a->n - c->n, sum, c->k > 0);
}

// What the cells of a cut of R rows of a tile, from r on, and of M rows of activations are to be multiplied by.
INLINE void factors_of(const area *a, const cut *c, int r, int m, float *by, const int R, const int M) {
    _Alignas(64) float x[CELLS];
    for (int i = 0; i < M; i++, by += R * CELLS) {
        if (a->ascale) {
            const float *p = a->ascale + (size_t)c->cell * a->all + (size_t)(m + i);
            for (int g = 0; g < CELLS; g++) x[g] = g < c->cells ? p[(size_t)g * a->all] : 0;
        }
        const __m512 x_by = a->ascale ? vf_load(x) : vf_set(1);
        EACH (int j = 0; j < R; j++) vf_store(by + j * CELLS, vf_mul(vf_load(c->scale[r + j]), x_by));
    }
}

// --- blocks of rows ---

// Lines of the next tile, asked for while this one is computed with, one row behind the other, as memory likes it.
// What was asked for so early may have been forgotten: codes are asked for again shortly before their turn.
enum { SOON = 1024 };
typedef struct lines { const char *p; int64_t left; int each; } lines; // each: how many a step, of what is wide
INLINE void lines_ask(lines *l, const int n) {
    if (l->left <= 0) return;
    for (int i = 0; i < n; i++) _mm_prefetch(l->p + i * 64, _MM_HINT_T1);
    l->p += n * 64;
    l->left -= n;
}

// 32 columns of a tile against those of M rows, from k on.
INLINE void dots(const __m512i v[TILE], const uint16_t *const x[TALL], __m512 s[TILE][TALL], int64_t k, const int M) {
    EACH (int i = 0; i < M; i++) {
        const __m512bh u = (__m512bh)_mm512_loadu_si512(x[i] + k);
        EACH (int r = 0; r < TILE; r++) s[r][i] = _mm512_dpbf16_ps(s[r][i], (__m512bh)v[r], u);
    }
}

// n columns, up to 64.
INLINE void step(const area *a, const cut *c, const uint16_t *const x[TALL], __m512 s[TILE][TALL], int64_t k, int n,
                 const int M, const bool wide, const bool shifts) {
    __m512i first[TILE], second[TILE];
    EACH (int r = 0; r < TILE; r++) {
        if (wide) {
            first[r] = _mm512_load_si512(c->wide + r * CUT + k);
            continue;
        }
        const uint16_t *less = shifts ? c->less[r] + k / 32 : NULL;
        const halves h = n == STEP ? halves_in_order(_mm512_loadu_si512(c->q[r] + k), &a->b, less)
                                   : halves_some(c->q[r] + k, n, &a->b, less);
        first[r] = h.first, second[r] = h.second;
    }
    dots(first, x, s, k, M);
    if (n <= 32) return;
    EACH (int r = 0; r < TILE; r++)
        if (wide) second[r] = _mm512_load_si512(c->wide + r * CUT + k + 32);
    dots(second, x, s, k + 32, M);
}

INLINE void zero(__m512 s[TILE][TALL], const int M) {
    EACH (int r = 0; r < TILE; r++) EACH (int i = 0; i < M; i++) s[r][i] = vf_zero();
}

// A tile's cut against M rows. `cells`: it has several.
INLINE void block(const area *a, const cut *c, int m, lines *next, const int M, const bool cells, const bool wide,
                  const bool shifts) {
    const uint16_t *x[TALL];
    const int64_t len = c->end - c->k;
    __m512 s[TILE][TALL];
    _Alignas(64) float f[TALL][TILE][VEC]; // in memory: registers are for what a step adds to
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + c->k;
    zero(s, M);
    if (cells) EACH (int i = 0; i < M; i++) EACH (int r = 0; r < TILE; r++) vf_store(f[i][r], vf_zero());
    _Alignas(64) float by[TALL][TILE][CELLS]; // early: what was just written is long in coming back
    if (cells) factors_of(a, c, 0, m, by[0][0], TILE, M);
    int64_t k = 0;
    for (int g = 0; g < (cells ? c->cells : 1); g++) {
        const int64_t end = cells && len - k > a->cell ? k + a->cell : len;
        for (; k + STEP <= end; k += STEP) {
            if (next) lines_ask(next, wide ? next->each : TILE);
            if (!wide) EACH (int r = 0; r < TILE; r++) _mm_prefetch((const char *)c->q[r] + k + SOON, _MM_HINT_T1);
            step(a, c, x, s, k, STEP, M, wide, shifts);
        }
        if (k < end) step(a, c, x, s, k, (int)(end - k), M, wide, shifts);
        k = end;
        if (!cells) break;
        EACH (int r = 0; r < TILE; r++)
            EACH (int i = 0; i < M; i++) vf_store(f[i][r], vf_fma(s[r][i], vf_set(by[i][r][g]), vf_load(f[i][r])));
        __asm__ volatile("" ::: "memory"); // or a compiler takes them into registers and puts `s` into memory
        zero(s, M);
    }
    __m128 sum[TALL];
    EACH (int i = 0; i < M; i++)
        if (cells) sum[i] = fold4(vf_load(f[i][0]), vf_load(f[i][1]), vf_load(f[i][2]), vf_load(f[i][3]));
        else sum[i] = fold4(s[0][i], s[1][i], s[2][i], s[3][i]);
    for (int i = 0; i < M; i++) sums_store(a, c, m + i, sum[i], cells);
}

typedef void block_fn(const area *a, const cut *c, int m, lines *next);
typedef block_fn *const blocks[TALL];
#define BLOCK(M, NAME, ...)                                                         \
    static void NAME##M(const area *a, const cut *c, int m, lines *next) {          \
        block(a, c, m, next, M, __VA_ARGS__);                                       \
    }
#define TO_4(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__)
#define TO_6(X, ...) TO_4(X, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
TO_6(BLOCK, one_, false, false, false) TO_6(BLOCK, one_shifts_, false, false, true)
TO_6(BLOCK, one_wide_, false, true, false) TO_4(BLOCK, cells_, true, false, false)
TO_4(BLOCK, cells_shifts_, true, false, true) TO_4(BLOCK, cells_wide_, true, true, false)
#define FOUR(NAME) NAME##1, NAME##2, NAME##3, NAME##4
#define SIX(NAME) {FOUR(NAME), NAME##5, NAME##6}
static blocks one[3] = {SIX(one_), SIX(one_shifts_), SIX(one_wide_)}; // wide: shifts have been taken in
static blocks cells[3] = {{FOUR(cells_)}, {FOUR(cells_shifts_)}, {FOUR(cells_wide_)}};

// Scales of rows n.. of the cells of a cut.
static void scales_of(const area *a, cut *c) {
    const lq_weight *w = a->w;
    const lq_wtype *t = &w->type;
    const bool whole = a->group >= a->k;
    const int64_t first = whole ? 0 : c->k / a->group, count = whole ? 1 : (c->end - 1) / a->group - first + 1;
    const int64_t skip = c->cell - first * a->each; // of these, of the first scale
    if (!a->shifts && t->rows > 1) {
        const int64_t band = c->n / t->rows;
        const bool all = (c->n + TILE - 1) / t->rows == band;
        if (all && band == c->band && c->k == c->band_k) return;
        c->band = all ? band : -1, c->band_k = c->k;
    }
    int64_t before = -1;
    for (int r = 0; r < TILE; r++) {
        const int64_t row = c->n + r < a->n ? c->n + r : a->n - 1, band = t->rows > 1 ? row / t->rows : row;
        if (a->shifts) { // they are in the numbers
            const bool nan = less_of(w, row, c->k, c->end - c->k, c->less[r]);
            for (int g = 0; g < c->cells; g++) c->scale[r][g] = nan ? NAN : 1;
            continue;
        }
        if (band == before) {
            memcpy(c->scale[r], c->scale[r - 1], sizeof c->scale[r]);
            continue;
        }
        before = band;
        float s[CELLS] = {1};
        const size_t at = (size_t)(band * a->groups + first) * lq_dtype_size(t->scale);
        if (t->kind == LQ_W_FLOAT) lq_dtypes[t->scale].to_f32((const char *)w->scale + at, s, (size_t)count);
        const float by = t->kind == LQ_W_FLOAT && t->scale == LQ_E4M3 ? *w->scale2 : 1;
        int64_t at_cell = skip;
        for (int g = 0, i = 0; g < c->cells; g++) {
            c->scale[r][g] = s[i] * by;
            if (++at_cell == a->each) at_cell = 0, i++;
        }
    }
}

// Where a cut is: its tile, one of the group from..to, and its first column.
typedef struct spot { int64_t t, k, from, to; } spot;

// What stands behind t1 is asked for too: who goes on there is glad of it.
INLINE spot group_at(int64_t from, int64_t group, int64_t t1) {
    return (spot){from, 0, from, from < t1 && t1 < from + group ? t1 : from + group};
}

INLINE int64_t cut_end(const area *a, int64_t k) {
    int64_t end = k + (a->cell <= CUT ? CUT / a->cell * a->cell : CUT);
    if (a->cell > CUT && a->cell < a->k && end > (k / a->cell + 1) * a->cell) end = (k / a->cell + 1) * a->cell;
    return end < a->k ? end : a->k;
}

// The cut behind: the same of the group's next tile, the next of its first one, or that of the next group.
INLINE spot spot_behind(const area *a, spot s, int64_t group, int64_t t1) {
    if (s.t + 1 < s.to) return (spot){s.t + 1, s.k, s.from, s.to};
    const int64_t end = cut_end(a, s.k);
    return end < a->k ? (spot){s.from, end, s.from, s.to} : group_at(s.to, group, t1);
}

static void cut_begin(const area *a, spot at, spot next, cut *c) {
    const int64_t tile = a->k * TILE;
    c->n = at.t * TILE, c->k = at.k, c->end = cut_end(a, at.k), c->cell = a->cell < a->k ? at.k / a->cell : 0;
    c->cells = a->cell <= CUT ? (int)((c->end - at.k + a->cell - 1) / a->cell) : 1;
    c->next = (next.t - at.t) * tile + next.k - at.k;
    c->wide = NULL;
    scales_of(a, c);
    for (int r = 0; r < TILE; r++) {
        const int64_t row = c->n + r < a->n ? c->n + r : a->n - 1;
        c->q[r] = (const uint8_t *)a->w->q + (size_t)row * (size_t)a->k + (size_t)at.k;
    }
}

// The numbers of its codes to `wide`.
static void cut_widen(const area *a, cut *c, uint16_t *wide) {
    for (int r = 0; r < TILE; r++) {
        const ahead next = ahead_of(a, c, r);
        row_halves(c->q[r], (int)(c->end - c->k), &a->b, a->shifts ? c->less[r] : NULL, wide + r * CUT, true, &next);
    }
    c->wide = wide;
}

// Rows of a block. Of cells, blocks of one row less are faster, but two of them where one would do are not.
static int tall_of(bool split, int rows) {
    return !split ? TALL : rows <= 2 * TALL_CELLS ? TALL_CELLS : TALL_CELLS - 1;
}

static void parts_run(const area *a, const cut *c, int m, int m1, lines *next) {
    const int most = tall_of(c->cells > 1, m1 - m), parts = (m1 - m + most - 1) / most;
    const blocks *fns = c->cells > 1 ? cells : one;
    for (int p = 0, tall; p < parts; p++, m += tall) {
        tall = (m1 - m + parts - p - 1) / (parts - p);
        fns[c->wide ? 2 : a->shifts][tall - 1](a, c, m, next);
    }
}

// Tiles in groups, of which a cut of all comes before the next one. A group of one asks for the next tile meanwhile.
// wide: codes become bf16 once, there, in the first cache, for all rows.
static void walk(const area *a, int64_t t0, int64_t t1, int64_t group, int m0, int m1, uint16_t *wide) {
    cut c = {.band = -1};
    lines tile = {.left = 0};
    const int parts = (m1 - m0 + TALL - 1) / TALL;
    spot at = group_at(t0, group, t1), next;
    for (; at.t < t1; at = next) {
        next = spot_behind(a, at, group, t1);
        cut_begin(a, at, next, &c);
        if (group == 1 && at.k == 0)
            tile = (lines){(const char *)c.q[0] + a->k * TILE, (at.t + 2) * TILE > a->n ? 0 : a->k / STEP * TILE,
                           (TILE + parts - 1) / parts};
        if (wide) cut_widen(a, &c, wide);
        parts_run(a, &c, m0, m1, group == 1 ? &tile : NULL);
    }
}

lq_ukr_run lq_matmul_f32_bf16_fp8any_avx512bf16; // named in ukr.c
void lq_matmul_f32_bf16_fp8any_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0,
                                          int m1, float *y, size_t ldy) {
    const area a = area_of(w, act, y, ldy);
    _Alignas(64) uint16_t wide[TILE * CUT];
    const int rows = m1 - m0, most = tall_of(a.cell <= CUT / 2 && a.cell < a.k, rows);
    if (rows <= BAND && (size_t)rows * a.x_row * sizeof *a.x <= X_BYTES) {
        walk(&a, t0, t1, 1, m0, m1, rows > most ? wide : NULL);
        return;
    }
    for (int m = m0, n, bands = (rows + BAND - 1) / BAND; bands; bands--, m += n) { // a band's cut stays in L2
        n = (m1 - m + bands - 1) / bands;
        walk(&a, t0, t1, t1 - t0, m, m + n, wide);
    }
}
