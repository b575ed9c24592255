// dot_avx512bf16.c: bf16 activations x rows of bf16 weights with vdpbf16ps. Owns nothing.
//
// Order of sums, the same at every M: k is cut at multiples of CUT; in a cut lane i adds k = 2i + 1 and 2i (mod 32, in
// this order, as the instruction does) from 0; lanes are added 8, 4, 2 and 1 apart; cuts are added in order. Products
// are exact in f32, each sum is rounded once; numbers and sums below 2^-126 are 0 to the instruction. A tile is 4 rows
// of weights.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

enum { TILE = 4, PAIRS = 32 /* k of a step */, CUT = 2048, TALL = 6, FEW = 2, SPAN = 8 /* cuts */, AHEAD_BYTES = 512 };

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
INLINE void cut_dots(const uint16_t *w, const uint16_t *const x[FEW], int len, __m512 s[FEW], const int M) {
    int j = 0;
    EACH (int i = 0; i < M; i++) s[i] = vf_zero();
    for (; j + PAIRS <= len; j += PAIRS) {
        const __m512bh v = load(w + j);
        EACH (int i = 0; i < M; i++) s[i] = _mm512_dpbf16_ps(s[i], v, load(x[i] + j));
    }
    if (j == len) return;
    EACH (int i = 0; i < M; i++) s[i] = _mm512_dpbf16_ps(s[i], load_some(w + j, len - j), load(x[i] + j));
}

INLINE void sums_store(const area *a, int64_t n, int m, __m128 v, bool more) {
    float *y = a->y + (size_t)m * a->ldy + (size_t)n, part[TILE];
    if (a->n - n >= TILE) {
        _mm_storeu_ps(y, more ? _mm_add_ps(_mm_loadu_ps(y), v) : v);
        return;
    }
    _mm_storeu_ps(part, v);
    for (int c = 0; c < a->n - n; c++) y[c] = more ? y[c] + part[c] : part[c];
}

// A tile against one or two rows: each weight row from end to end, as memory likes it, a cut's sums put aside until
// those of all four are there.
INLINE void few(const area *a, int64_t n, int m, const int M) {
    _Alignas(64) float part[SPAN][FEW][TILE][VEC];
    for (int64_t k = 0; k < a->k; k += SPAN * CUT) {
        const int64_t end = a->k - k < SPAN * CUT ? a->k : k + SPAN * CUT;
        for (int r = 0; r < TILE; r++) {
            const uint16_t *w = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * (size_t)a->k, *x[FEW];
            for (int64_t c = k; c < end; c += CUT) {
                __m512 s[FEW];
                EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + c;
                cut_dots(w + c, x, end - c < CUT ? (int)(end - c) : CUT, s, M);
                EACH (int i = 0; i < M; i++) vf_store(part[(c - k) / CUT][i][r], s[i]);
            }
        }
        for (int64_t c = k; c < end; c += CUT)
            EACH (int i = 0; i < M; i++) {
                float (*p)[VEC] = part[(c - k) / CUT][i];
                sums_store(a, n, m + i, fold4(vf_load(p[0]), vf_load(p[1]), vf_load(p[2]), vf_load(p[3])), c > 0);
            }
    }
}

// A tile against M rows over one cut. Rows behind the last weight repeat it and are not stored.
INLINE void block(const area *a, int64_t n, int m, int64_t k, int len, const int M) {
    const uint16_t *w[TILE], *x[TALL];
    __m512 s[TILE][TALL];
    int j = 0;
    EACH (int r = 0; r < TILE; r++) w[r] = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * (size_t)a->k + k;
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + k;
    EACH (int r = 0; r < TILE; r++) EACH (int i = 0; i < M; i++) s[r][i] = vf_zero();
    for (; j + PAIRS <= len; j += PAIRS) {
        __m512bh v[TILE];
        EACH (int r = 0; r < TILE; r++) v[r] = load(w[r] + j);
        EACH (int r = 0; r < TILE; r++) _mm_prefetch((const char *)(w[r] + j) + AHEAD_BYTES, _MM_HINT_T0);
        EACH (int i = 0; i < M; i++) {
            const __m512bh u = load(x[i] + j);
            EACH (int r = 0; r < TILE; r++) s[r][i] = _mm512_dpbf16_ps(s[r][i], v[r], u);
        }
    }
    if (j < len)
        EACH (int i = 0; i < M; i++)
            EACH (int r = 0; r < TILE; r++)
                s[r][i] = _mm512_dpbf16_ps(s[r][i], load_some(w[r] + j, len - j), load(x[i] + j));
    EACH (int i = 0; i < M; i++) sums_store(a, n, m + i, fold4(s[0][i], s[1][i], s[2][i], s[3][i]), k > 0);
}

typedef void block_fn(const area *, int64_t n, int m, int64_t k, int len);
#define BLOCK(M) \
    static void block##M(const area *a, int64_t n, int m, int64_t k, int len) { block(a, n, m, k, len, M); }
BLOCK(1) BLOCK(2) BLOCK(3) BLOCK(4) BLOCK(5) BLOCK(6)
static block_fn *const blocks[TALL] = {block1, block2, block3, block4, block5, block6};

// A cut of the next activations into L2, while that of these meets tile i of so many.
static void ahead(const area *a, int m, int m1, int64_t k, int len, int64_t i, int64_t tiles) {
    const int from = (int)(len * i / tiles), to = (int)(len * (i + 1) / tiles);
    for (const int end = m1 - m < TALL ? m1 : m + TALL; m < end; m++)
        for (int j = from; j < to; j += PAIRS)
            _mm_prefetch((const char *)(a->x + (size_t)m * a->x_row + k + j), _MM_HINT_T1);
}

// Many rows: a cut of their activations stays in L1, that of the weights in L2.
lq_ukr_run lq_matmul_f32_bf16_bf16any_avx512bf16; // named in ukr.c
void lq_matmul_f32_bf16_bf16any_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0,
                                           int m1, float *y, size_t ldy) {
    const area a = {.w = w->q, .x = act->q, .x_row = act->q_row, .n = w->n, .k = w->k, .y = y, .ldy = ldy};
    const int rows = m1 - m0, parts = (rows + TALL - 1) / TALL;
    if (rows <= FEW) {
        for (int64_t t = t0; t < t1; t++)
            if (rows == 1) few(&a, t * TILE, m0, 1);
            else few(&a, t * TILE, m0, 2);
        return;
    }
    for (int64_t k = 0; k < w->k; k += CUT) {
        const int len = (int)(w->k - k < CUT ? w->k - k : CUT);
        for (int p = 0, m = m0, tall; p < parts; p++, m += tall) {
            tall = (m1 - m + parts - p - 1) / (parts - p);
            for (int64_t t = t0; t < t1; t++) {
                ahead(&a, m + tall, m1, k, len, t - t0, t1 - t0);
                blocks[tall - 1](&a, t * TILE, m, k, len);
            }
        }
    }
}
