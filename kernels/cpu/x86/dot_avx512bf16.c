// dot_avx512bf16.c: bf16 activations x rows of bf16 weights with vdpbf16ps. Owns nothing.
//
// Order of sums, the same at every M: k is cut at multiples of CUT; in a cut lane i adds k = 2i + 1 and 2i (mod 32, in
// this order, as the instruction does) from 0; lanes are added 8, 4, 2 and 1 apart; cuts are added in order. Products
// are exact in f32, each sum is rounded once; numbers and sums below 2^-126 are 0 to the instruction. A tile is 4 rows
// of weights.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { TILE = 4, PAIRS = 32 /* k of a step */, CUT = 2048, TALL = 6, BAND = 96, SPAN = 8 /* cuts */,
       SOON = 512 /* columns */, MANY = 8,
       ASKING = 2 };

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

// Of a cut; x has zeros behind its last column.
INLINE __m512 cut_dot(const uint16_t *w, const uint16_t *x, int len) {
    __m512 s = vf_zero();
    int j = 0;
    for (; j + PAIRS <= len; j += PAIRS) s = _mm512_dpbf16_ps(s, load(w + j), load(x + j));
    return j == len ? s : _mm512_dpbf16_ps(s, load_some(w + j, len - j), load(x + j));
}

INLINE void sums_store(const area *a, int64_t n, int m, __m128 v, bool more) {
    store4(a->y + (size_t)m * a->ldy + (size_t)n, a->n - n, v, more);
}

// A tile against one row: each weight row from end to end, as memory likes it, a cut's sums put aside until those of
// all four are there.
static void one(const area *a, int64_t n, int m) {
    _Alignas(64) float part[SPAN][TILE][VEC];
    const uint16_t *x = a->x + (size_t)m * a->x_row;
    for (int64_t k = 0; k < a->k; k += SPAN * CUT) {
        const int64_t end = a->k - k < SPAN * CUT ? a->k : k + SPAN * CUT;
        for (int r = 0; r < TILE; r++) {
            const uint16_t *w = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * (size_t)a->k;
            for (int64_t c = k; c < end; c += CUT)
                vf_store(part[(c - k) / CUT][r], cut_dot(w + c, x + c, end - c < CUT ? (int)(end - c) : CUT));
        }
        for (int64_t c = k; c < end; c += CUT) {
            float (*p)[VEC] = part[(c - k) / CUT];
            sums_store(a, n, m, fold4(vf_load(p[0]), vf_load(p[1]), vf_load(p[2]), vf_load(p[3])), c > 0);
        }
    }
}

// A cut of the next tile, asked for line by line while this one is computed with: one row behind the other, as memory
// likes it. A processor that has its hands full forgets what it is asked for, so every block of rows asks for all of it
// again, and for its own tile's lines shortly before their turn. Of more than MANY blocks only the first ASKING do.
typedef struct lines { const char *p; size_t row, left, all; } lines; // left: steps of the row at p

static lines lines_of(const area *a, int64_t n, int64_t k, int len) { // of the tile behind that of n, or its own
    const size_t all = ((size_t)len / PAIRS + TILE - 1) / TILE, row = (size_t)a->k * 2;
    const int64_t next = n + 2 * TILE > a->n ? n : n + TILE;
    return (lines){(const char *)(a->w + (size_t)next * (size_t)a->k + k), row - all * TILE * 64, all, all};
}

INLINE void lines_ask(lines *l) {
    EACH (int i = 0; i < TILE; i++) _mm_prefetch(l->p + i * 64, _MM_HINT_T1);
    l->p += TILE * 64;
    if (--l->left) return;
    l->p += l->row;
    l->left = l->all;
}

// A tile against M rows over one cut. Rows behind the last weight repeat it and are not stored.
INLINE void block(const area *a, int64_t n, int m, int64_t k, int len, const int M, const bool asks) {
    lines next = lines_of(a, n, k, len);
    const uint16_t *w[TILE], *x[TALL];
    __m512 s[TILE][TALL];
    int j = 0;
    EACH (int r = 0; r < TILE; r++) w[r] = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * (size_t)a->k + k;
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + k;
    EACH (int r = 0; r < TILE; r++) EACH (int i = 0; i < M; i++) s[r][i] = vf_zero();
    for (; j + PAIRS <= len; j += PAIRS) {
        __m512bh v[TILE];
        EACH (int r = 0; r < TILE; r++) v[r] = load(w[r] + j);
        if (asks) {
            lines_ask(&next);
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

// A band of two rows and more: a tile's cut stays in L1 for all of them, theirs in L2.
static void band(const area *a, int64_t t0, int64_t t1, int m0, int m1) {
    const int parts = (m1 - m0 + TALL - 1) / TALL;
    for (int64_t k = 0; k < a->k; k += CUT) {
        const int len = (int)(a->k - k < CUT ? a->k - k : CUT);
        for (int64_t t = t0; t < t1; t++)
            for (int p = 0, m = m0, tall; p < parts; p++, m += tall) {
                tall = (m1 - m + parts - p - 1) / (parts - p);
                blocks[parts > MANY && p >= ASKING][tall - 2](a, t * TILE, m, k, len);
            }
    }
}

lq_ukr_run lq_matmul_f32_bf16_bf16any_avx512bf16; // named in ukr.c
void lq_matmul_f32_bf16_bf16any_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0,
                                           int m1, float *y, size_t ldy) {
    const area a = {.w = w->q, .x = act->q, .x_row = act->q_row, .n = w->n, .k = w->k, .y = y, .ldy = ldy};
    const int rows = m1 - m0;
    if (rows == 1) {
        for (int64_t t = t0; t < t1; t++) one(&a, t * TILE, m0);
        return;
    }
    for (int m = m0, n, bands = (rows + BAND - 1) / BAND; bands; bands--, m += n) {
        n = (m1 - m + bands - 1) / bands;
        band(&a, t0, t1, m, m + n);
    }
}
