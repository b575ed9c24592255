// fp8x86_avx512bf16.c: bf16 activations (E4M3 held so too) x 8-bit floats in layout x86 with vdpbf16ps. Owns nothing.
//
// 64 codes, four k of 16 rows, become two vectors as bf16x86_avx512bf16.c has them: two pairs of k (fp8_book.h).
//
// Order of sums, the same at every M: k is cut at multiples of CUT and where a cell ends. In such a part the pairs of k
// that are even, counted from 0, are added in order from 0, of each k + 1 before k, the odd ones likewise, then both,
// and y = fma(sum, wscale * ascale, y), parts in order; the first is multiplied alone.
//
// thin: 1 to 12 rows x one tile, as it comes from memory. Of more rows what a tile's cut becomes is put aside for those
// behind: blocks of 6 rows x two tiles, with two more in turn for each part; y waits beside them.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/couples.h"
#include "kernels/cpu/x86/fp8_book.h"
#include <math.h>

enum { PARTS = CUT / 128, TILE = LQ_X86_ROWS, STEP = 64 /* codes: four k */ };

// Columns k .. end of a tile, and scales of its rows in each part.
typedef struct cut {
    int64_t t, k, end;
    _Alignas(64) float scale[PARTS][TILE];
} cut;

// 64 codes as two pairs of k. by: of scales that are shifts, what exponents are to be less by.
INLINE halves pairs_of(const char *q, const book *b, __m512i by, const bool shifts) {
    const __m512i turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    return halves_of(_mm512_shuffle_epi8(_mm512_loadu_si512(q), turn), b, shifts, by, by);
}

INLINE int64_t part_end(const area *a, int64_t k, int64_t end) {
    const int64_t to = (k / a->cell + 1) * a->cell;
    return to < end ? to : end;
}

// y of tile t and row m, and what it is before column k: -0 leaves the first product as it is.
INLINE float *y_at(const area *a, int64_t t, int m) { return a->y + (size_t)m * a->ldy + (size_t)t * TILE; }
INLINE __m512 y_before(const area *a, int64_t t, int m, int64_t k) {
    return k ? vf_load_m(columns(a->n, t * TILE), y_at(a, t, m)) : vf_set(-0.f);
}

// Scales of the activations of rows from m on in the cell at k; NULL: they have none.
INLINE const float *ascale_at(const area *a, int m, int64_t k) {
    return a->ascale ? a->ascale + (size_t)(k / a->cell) * a->all + (size_t)m : NULL;
}

INLINE __m512 scale_by(__m512 scale, const float *ascale) { return ascale ? vf_mul(scale, vf_set(*ascale)) : scale; }

// Scales of the rows of tile t in group g; shifts: their codes.
INLINE __m512 scales_of(const area *a, int64_t t, int64_t g) {
    const lq_weight *w = a->w;
    const lq_wtype *ty = &w->type;
    if (ty->kind == LQ_W_PLAIN) return vf_set(1);
    const int64_t first = t * TILE, last = first + TILE < a->n ? first + TILE - 1 : a->n - 1;
    const size_t size = lq_dtype_size(ty->scale), at = (size_t)((t * a->groups + g) * TILE) * size;
    const float by = ty->scale == LQ_E4M3 ? *w->scale2 : 1;
    if (ty->rows <= 1) return vf_of_scales((const char *)w->scale + at, ty->scale, by, true);
    if (first / ty->rows == last / ty->rows)
        return vf_set(lq_scale_get(w, (size_t)(first / ty->rows * a->groups + g)));
    float s[TILE] = {0};
    for (int r = 0; r <= last - first; r++) s[r] = lq_scale_get(w, (size_t)((first + r) / ty->rows * a->groups + g));
    return vf_load(s);
}

INLINE __m512i shifts_of(const area *a, int64_t t, int64_t g) {
    const lq_wtype *ty = &a->w->type;
    const uint8_t *code = a->w->scale;
    if (ty->rows <= 1)
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(code + (t * a->groups + g) * TILE)));
    _Alignas(64) int32_t s[TILE] = {0};
    for (int r = 0; r < TILE && t * TILE + r < a->n; r++) s[r] = code[(t * TILE + r) / ty->rows * a->groups + g];
    return _mm512_load_si512(s);
}

// What the exponents of columns from k on are to be less by, in both halves of a lane; nan: rows whose shift is none.
INLINE __m512i less_of(const area *a, int64_t t, int64_t k, __mmask16 *nan) {
    const __m512i less = _mm512_sub_epi32(_mm512_set1_epi32(255), shifts_of(a, t, k / a->group));
    const __m512i by = _mm512_slli_epi32(less, 7);
    *nan |= _mm512_testn_epi32_mask(less, less);
    return _mm512_or_si512(by, _mm512_slli_epi32(by, 16));
}

INLINE const char *codes_at(const area *a, int64_t t) { return (const char *)a->w->q + (size_t)t * a->row * TILE; }

// --- as codes come from memory ---

// put: the numbers go to `aside` and scales into c. Where a shift is NaN the part's scale is.
INLINE void thin(const area *a, cut *c, int m, char *aside, const bool shifts, const bool put, const int M) {
    const vm some = columns(a->n, c->t * TILE);
    const char *q = codes_at(a, c->t) + (size_t)c->k * TILE;
    const book b = a->b;
    int p = 0;
    for (int64_t k = c->k, end; k < c->end; k = end, p++) {
        __m512 even[TALL], odd[TALL];
        __mmask16 nan = 0;
        const uint16_t *x = a->x + (size_t)m * a->x_row + k;
        __m512 scale = shifts ? vf_zero() : scales_of(a, c->t, k / a->group);
        end = part_end(a, k, c->end);
        EACH (int r = 0; r < M; r++) even[r] = odd[r] = vf_zero();
        for (int64_t from = k, to; from < end; from = to) {
            to = shifts && end - from > 32 ? from + 32 : end;
            const __m512i by = shifts ? less_of(a, c->t, from, &nan) : _mm512_setzero_si512();
            for (int64_t i = from; i < to; i += 4, q += STEP, x += 4) {
                const halves v = pairs_of(q, &b, by, shifts);
                line_ask(q, true);
                if (put) {
                    _mm512_store_si512(aside, v.first);
                    _mm512_store_si512(aside + LINE, v.second);
                    aside += 2 * LINE;
                }
                EACH (int r = 0; r < M; r++) {
                    even[r] = dot2(even[r], v.first, couple_of(x + (size_t)r * a->x_row));
                    odd[r] = dot2(odd[r], v.second, couple_of(x + (size_t)r * a->x_row + 2));
                }
            }
        }
        if (shifts) scale = vf_pick(nan, vf_set(NAN), vf_set(1));
        if (put) vf_store(c->scale[p], scale);
        EACH (int r = 0; r < M; r++) {
            const __m512 by = scale_by(scale, ascale_at(a, m + r, k)), y = y_before(a, c->t, m + r, k);
            vf_store_m(some, y_at(a, c->t, m + r), vf_fma(vf_add(even[r], odd[r]), by, y));
        }
    }
}

// --- as numbers, which were put aside ---

enum { ASIDE = CUT / 2 * LINE }; // bytes of a cut of a tile
typedef struct sums { _Alignas(LINE) float of[WIDE][HIGH][TILE]; } sums; // y of blocks until their cut ends

// Part p, at k, of N tiles from c and w on joins y.
INLINE void part(const area *a, const cut *c, const char *w, int m, int p, int64_t k, int64_t end, ahead *next,
                 float y[][HIGH][TILE], const int N) {
    __m512 even[HIGH][SIDES], odd[HIGH][SIDES];
    const float *ascale = ascale_at(a, m, k);
    couples_dot(w + (k - c->k) / 2 * LINE, ASIDE, a->x + (size_t)m * a->x_row + k, a->x_row, (end - k + 3) / 4, even,
                odd, next, N);
    __asm__ volatile("" ::: "memory"); // y is not in registers before
    EACH (int r = 0; r < HIGH; r++) EACH (int i = 0; i < N; i++) even[r][i] = vf_add(even[r][i], odd[r][i]);
    EACH (int i = 0; i < N; i++) {
        const __m512 scale = vf_load(c[i].scale[p]);
        if (ascale) EACH (int r = 0; r < HIGH; r++)
            vf_store(y[i][r], vf_fma(even[r][i], scale_by(scale, ascale + r), vf_load(y[i][r])));
        else EACH (int r = 0; r < HIGH; r++) vf_store(y[i][r], vf_fma(even[r][i], scale, vf_load(y[i][r])));
    }
}

INLINE void block(const area *a, const cut *c, const char *w, int m, ahead next, sums *y, const int tiles,
                  const int N) {
    for (int i = 0; i < tiles; i++)
        EACH (int r = 0; r < HIGH; r++) vf_store(y->of[i][r], y_before(a, c[i].t, m + r, c->k));
    int p = 0;
    for (int64_t k = c->k, end; k < c->end; k = end, p++) {
        end = part_end(a, k, c->end);
        ROLLED for (int i = 0; i < tiles; i += N)
            part(a, c + i, w + (size_t)i * ASIDE, m, p, k, end, &next, y->of + i, N);
    }
    for (int i = 0; i < tiles; i++)
        EACH (int r = 0; r < HIGH; r++)
            vf_store_m(columns(a->n, c[i].t * TILE), y_at(a, c[i].t, m + r), vf_load(y->of[i][r]));
}

static void block_one(const area *a, const cut *c, const char *w, int m, sums *y) {
    block(a, c, w, m, (ahead){w, 0}, y, 1, 1);
}

static void block_wide(const area *a, const cut *c, const char *w, int m, ahead next, sums *y) {
    block(a, c, w, m, next, y, WIDE, SIDES);
}

// --- all rows ---

typedef void thin_fn(const area *a, cut *c, int m, char *aside);
#define THIN(NAME, M, SHIFTS, PUT)                                                                                     \
    static void NAME##M(const area *a, cut *c, int m, char *aside) { thin(a, c, m, aside, SHIFTS, PUT, M); }
TO_12(THIN, codes_, false, false) TO_12(THIN, shifts_, true, false)
TO_12(THIN, codes_put_, false, true) TO_12(THIN, shifts_put_, true, true)
static thin_fn *const thins[2][TALL] = {{TO_12(NAME_OF, codes_, )}, {TO_12(NAME_OF, shifts_, )}};
static thin_fn *const fills[2][TALL] = {{TO_12(NAME_OF, codes_put_, )}, {TO_12(NAME_OF, shifts_put_, )}};

lq_ukr_run lq_matmul_f32_bf16_fp8x86_avx512bf16; // named in ukr.c
void lq_matmul_f32_bf16_fp8x86_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1,
                                          float *y, size_t ldy) {
    const area a = area_of(w, act, y, ldy);
    cut c;
    for (int64_t t = t0; t < t1; t++)
        for (int64_t k = 0; k < a.k; k += CUT) {
            c.t = t, c.k = k, c.end = cut_end(k, a.k, CUT);
            for (int m = m0, some; m < m1; m += some) {
                some = m1 - m < TALL ? m1 - m : TALL;
                thins[a.shifts][some - 1](&a, &c, m, NULL);
            }
        }
}

lq_ukr_many lq_many_f32_bf16_fp8x86_avx512bf16; // named in ukr.c
void lq_many_f32_bf16_fp8x86_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1,
                                        float *y, size_t ldy, void *scratch) {
    const area a = area_of(w, act, y, ldy);
    struct { char aside[WIDE][ASIDE]; cut c[WIDE]; sums y; } *s = scratch;
    _Static_assert(sizeof *s <= LQ_MANY_BYTES, "scratch of `many`");
    const int first = first_part(m1 - m0, TALL, HIGH), blocks = (m1 - m0 - first) / HIGH;
    const packed all = {.w = codes_at(&a, 0), .tile = a.row * TILE, .column = TILE, .tiles = (a.n + TILE - 1) / TILE,
                        .k = a.k, .cut = CUT, .pass = WIDE, .wide = WIDE, .steps = 1, .blocks = blocks};
    for (int64_t from = t0, to; from < t1; from = to) {
        to = t1 - from < WIDE ? t1 : from + WIDE;
        for (int64_t k = 0, end; k < a.k; k = end) {
            end = cut_end(k, a.k, CUT);
            for (int64_t t = from; t < to; t++) {
                cut *c = &s->c[t - from];
                c->t = t, c->k = k, c->end = end;
                fills[a.shifts][first - 1](&a, c, m0, s->aside[t - from]);
            }
            for (int b = 0, m = m0 + first; b < blocks; b++, m += HIGH) {
                if (to - from == WIDE) block_wide(&a, s->c, s->aside[0], m, ahead_of(&all, from, k, b), &s->y);
                else for (int64_t t = from; t < to; t++) block_one(&a, &s->c[t - from], s->aside[t - from], m, &s->y);
            }
        }
    }
}
