// dot_avx512bf16.c: bf16 activations x rows of bf16 weights with vdpbf16ps: of weights that are not packed (see
// lq_dev_layout; bf16x86_avx512bf16.c has those that are). Owns nothing.
//
// Order of sums, the same at every M: k is cut at multiples of CUT; in a cut lane i adds k = 2i + 1 and 2i (mod 32, in
// this order, as the instruction does) from 0; lanes are added 8, 4, 2 and 1 apart; cuts are added in order. Products
// are exact in f32, each sum is rounded once; numbers and sums below 2^-126 are 0 to the instruction. A tile is 4 rows
// of weights.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/lines.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { TILE = 4, PAIRS = 32 /* k of a step */, CUT = 2048, TALL = 6, SHORT = 4 * CUT /* half of L1 */,
       SOON = 512 /* columns */, MANY = 8, PASS = 16 /* tiles of which a cut stays in L2 */ };

typedef struct area { // of one call
    const uint16_t *w, *x;
    size_t x_row;
    int64_t n, k;
    float *y;
    size_t ldy;
} area;

INLINE __m512bh load(const uint16_t *p) { return (__m512bh)_mm512_loadu_si512(p); }
INLINE __m512bh load_some(const uint16_t *p, int n) { // then 0: nothing behind the last one is read
    return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p);
}

INLINE const uint16_t *weight(const area *a, int64_t n) { // behind the last one it is repeated, and not stored
    return a->w + (size_t)(n < a->n ? n : a->n - 1) * (size_t)a->k;
}

INLINE void sums_store(const area *a, int64_t n, int m, __m128 v, bool more) {
    store4(a->y + (size_t)m * a->ldy + (size_t)n, a->n - n, v, more);
}

INLINE __m256 half_dot(__m256 s, const uint16_t *w, const uint16_t *x) {
    return _mm256_dpbf16_ps(s, (__m256bh)_mm256_loadu_si256((const __m256i *)w),
                            (__m256bh)_mm256_loadu_si256((const __m256i *)x));
}

// A cut of one weight row. In halves of a step: with whole ones the loads run so far ahead of the chain of sums that
// the processor's own reading ahead falls behind (0.8 of what memory gives where that is much).
INLINE __m512 cut_dot(const uint16_t *w, const uint16_t *x, int len) {
    __m256 s = _mm256_setzero_ps(), t = s;
    int j = 0;
    for (; j + PAIRS <= len; j += PAIRS) {
        s = half_dot(s, w + j, x + j);
        t = half_dot(t, w + j + PAIRS / 2, x + j + PAIRS / 2);
    }
    const __m512 sum = _mm512_insertf32x8(_mm512_castps256_ps512(s), t, 1);
    return j == len ? sum : _mm512_dpbf16_ps(sum, load_some(w + j, len - j), load(x + j));
}

// A tile against one row of at most SHORT columns: each weight row from end to end, as memory likes it, a cut's sums
// put aside until those of all four are there.
static void one(const area *a, int64_t n, int m) {
    __m512 part[SHORT / CUT][TILE];
    const uint16_t *x = a->x + (size_t)m * a->x_row;
    for (int r = 0; r < TILE; r++)
        for (int64_t k = 0; k < a->k; k += CUT)
            part[k / CUT][r] = cut_dot(weight(a, n + r) + k, x + k, a->k - k < CUT ? (int)(a->k - k) : CUT);
    for (int64_t k = 0; k < a->k; k += CUT) {
        const __m512 *p = part[k / CUT];
        sums_store(a, n, m, fold4(p[0], p[1], p[2], p[3]), k > 0);
    }
}

// A longer row of x does not stay in L1 while weights pass by, so that a line of it is read once for the rows of two
// tiles (or one), which are asked for before their turn.
INLINE void one_long(const area *a, int64_t n, int m, const int R) {
    const uint16_t *w[2 * TILE], *x = a->x + (size_t)m * a->x_row;
    EACH (int r = 0; r < R; r++) w[r] = weight(a, n + r);
    for (int64_t k = 0, j = 0; k < a->k; k += CUT) {
        const int64_t end = a->k - k < CUT ? a->k : k + CUT;
        __m512 s[2 * TILE];
        EACH (int r = 0; r < R; r++) s[r] = vf_zero();
        for (; j + PAIRS <= end; j += PAIRS)
            EACH (int r = 0; r < R; r++) {
                _mm_prefetch((const char *)(w[r] + j + SOON), _MM_HINT_T1);
                s[r] = _mm512_dpbf16_ps(s[r], load(w[r] + j), load(x + j));
            }
        if (j < end)
            EACH (int r = 0; r < R; r++)
                s[r] = _mm512_dpbf16_ps(s[r], load_some(w[r] + j, (int)(end - j)), load(x + j));
        EACH (int r = 0; r < R; r += TILE)
            sums_store(a, n + r, m, fold4(s[r], s[r + 1], s[r + 2], s[r + 3]), k > 0);
        j = end;
    }
}

// A cut of the next tile (of the last one its own), asked for line by line while this one is computed with. A processor
// that has its hands full forgets what it is asked for, so every block of rows asks for all of it again, and for its
// own tile's lines shortly before their turn. Of more than MANY blocks only the first does.
INLINE lines lines_behind(const area *a, int64_t n, int64_t k, int len) {
    const int64_t next = n + 2 * TILE > a->n ? n : n + TILE;
    return lines_of((const char *)(a->w + (size_t)next * (size_t)a->k + k), (size_t)a->k * 2, len / PAIRS, 64, TILE);
}

// A tile against M rows over one cut.
INLINE void block(const area *a, int64_t n, int m, int64_t k, int len, const int M, const bool asks) {
    lines next = lines_behind(a, n, k, len);
    const uint16_t *w[TILE], *x[TALL];
    __m512 s[TILE][TALL];
    int j = 0;
    EACH (int r = 0; r < TILE; r++) w[r] = weight(a, n + r) + k;
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + k;
    EACH (int r = 0; r < TILE; r++) EACH (int i = 0; i < M; i++) s[r][i] = vf_zero();
    for (; j + PAIRS <= len; j += PAIRS) {
        __m512bh v[TILE];
        EACH (int r = 0; r < TILE; r++) v[r] = load(w[r] + j);
        if (asks) {
            lines_ask(&next, TILE);
            EACH (int r = 0; r < TILE; r++) _mm_prefetch((const char *)(w[r] + j + SOON), _MM_HINT_T1);
        }
        EACH (int i = 0; i < M; i++) {
            const __m512bh u = load(x[i] + j);
            EACH (int r = 0; r < TILE; r++) s[r][i] = _mm512_dpbf16_ps(s[r][i], v[r], u);
        }
    }
    if (j < len)
        EACH (int i = 0; i < M; i++)
            EACH (int r = 0; r < TILE; r++)
                s[r][i] = _mm512_dpbf16_ps(s[r][i], load_some(w[r] + j, len - j), load(x[i] + j));
    __m128 sum[TALL]; // apart from the stores: clang 14 keeps all of `s` in memory for a loop that it does not unroll
    EACH (int i = 0; i < M; i++) sum[i] = fold4(s[0][i], s[1][i], s[2][i], s[3][i]);
    for (int i = 0; i < M; i++) sums_store(a, n, m + i, sum[i], k > 0);
}

typedef void block_fn(const area *, int64_t n, int m, int64_t k, int len);
#define BLOCK(NAME, M, ASKS)                                                   \
    static void NAME(const area *a, int64_t n, int m, int64_t k, int len) { \
        block(a, n, m, k, len, M, ASKS);                                    \
    }
BLOCK(block2, 2, true) BLOCK(block3, 3, true) BLOCK(block4, 4, true) BLOCK(block5, 5, true) BLOCK(block6, 6, true)
BLOCK(quiet5, 5, false) BLOCK(quiet6, 6, false) // more than MANY are no smaller
static block_fn *const blocks[2][TALL - 1] = {{block2, block3, block4, block5, block6},
                                              {[TALL - 3] = quiet5, [TALL - 2] = quiet6}};

// Two rows and more, in blocks. Of a few blocks each meets a tile in turn, as that comes from memory. Of more a block's
// rows stay in L1 while the tiles of a pass come from L2: the smaller stream of the two.
static void rows_many(const area *a, int64_t t0, int64_t t1, int m0, int m1) {
    const int parts = (m1 - m0 + TALL - 1) / TALL;
    const int64_t pass = parts > MANY ? PASS : 1;
    for (int64_t k = 0; k < a->k; k += CUT) {
        const int len = (int)(a->k - k < CUT ? a->k - k : CUT);
        for (int64_t from = t0, to; from < t1; from = to) {
            to = t1 - from < pass ? t1 : from + pass;
            for (int p = 0, m = m0, tall; p < parts; p++, m += tall) {
                tall = (m1 - m + parts - p - 1) / (parts - p);
                block_fn *const run = blocks[parts > MANY && p > 0][tall - 2];
                for (int64_t t = from; t < to; t++) run(a, t * TILE, m, k, len);
            }
        }
    }
}

lq_ukr_run lq_matmul_f32_bf16_bf16any_avx512bf16; // named in ukr.c
void lq_matmul_f32_bf16_bf16any_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0,
                                           int m1, float *y, size_t ldy) {
    const area a = {.w = w->q, .x = act->q, .x_row = act->q_row, .n = w->n, .k = w->k, .y = y, .ldy = ldy};
    const int rows = m1 - m0;
    if (rows == 1) {
        if (w->k <= SHORT) {
            for (int64_t t = t0; t < t1; t++) one(&a, t * TILE, m0);
            return;
        }
        for (; t0 + 2 <= t1; t0 += 2) one_long(&a, t0 * TILE, m0, 2 * TILE);
        if (t0 < t1) one_long(&a, t0 * TILE, m0, TILE);
        return;
    }
    rows_many(&a, t0, t1, m0, m1);
}
