// dot_vec.h: f32 activations x f32, f16 or bf16 weight rows for the ISA this is compiled for. Owns nothing.
//
// Order of sums, the same at every M: k is cut at multiples of LQ_K_CUT; in a cut lane i adds k = i mod VEC with
// fma, from 0; lanes are added VEC / 2 apart, then half of that, down to 1 apart; cuts are added in order. A
// tile is 4 weight rows. A block has up to TALL rows of activations; up to WIDE of them take two tiles at a
// time, to hide the latency of the sums. Up to LQ_RUN_ROWS rows are bound by memory: a block asks for the lines of the
// next one, and shortly before their turn for its own again, as a processor with its hands full forgets.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/lines.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

#define walk NAME(walk)
#define ahead NAME(ahead)

enum { TILE = 4 };
enum { TALL_AHEAD = 512, SOON = 1024 }; // bytes: of weights that wait in the second cache, or in memory
enum { ASKING = 2 }; // parts of rows: the others find the weights in a cache
#if defined(__AVX512F__)
enum { TALL = 6, WIDE = 2 };
#else
enum { TALL = 3, WIDE = 1 };
#endif

INLINE vf load(const char *row, int k, const lq_dtype e) {
    if (e == LQ_F32) return vf_load((const float *)(const void *)row + k);
    return e == LQ_F16 ? vf_of_f16(row + 2 * (size_t)k) : vf_of_bf16(row + 2 * (size_t)k);
}

// n < VEC of them, then 0: nothing behind the last one is read.
INLINE vf load_some(const char *row, int k, int n, const lq_dtype e) {
    _Alignas(64) char part[VEC * 4] = {0};
    const size_t size = e == LQ_F32 ? 4 : 2;
    memcpy(part, row + (size_t)k * size, (size_t)n * size);
    return load(part, 0, e);
}

typedef struct area { // of one call: rows of weights and of activations
    const char *w;
    size_t w_row; // bytes
    int64_t n;
    const float *x;
    size_t x_row; // elements
    float *y;
    size_t ldy;
    bool more; // y has the sums of columns before them
    bool asks; // weights are asked for before their turn,
    bool ends; // those of a row from end to end
} area;

// VEC columns from j on, R x M; of weights and activations the fewer stay in registers.
INLINE void step(vf s[8][TALL], const char *const w[8], const float *const x[TALL], int j, const int R, const int M,
                 const lq_dtype e) {
    vf few[8];
    if (M <= R) {
        EACH (int i = 0; i < M; i++) few[i] = vf_load(x[i] + j);
        EACH (int r = 0; r < R; r++) {
            const vf v = load(w[r], j, e);
            EACH (int i = 0; i < M; i++) s[r][i] = vf_fma(v, few[i], s[r][i]);
        }
    } else {
        EACH (int r = 0; r < R; r++) few[r] = load(w[r], j, e);
        EACH (int r = 0; r < R; r++) _mm_prefetch(w[r] + (size_t)j * (e == LQ_F32 ? 4 : 2) + TALL_AHEAD, _MM_HINT_T0);
        EACH (int i = 0; i < M; i++) {
            const vf b = vf_load(x[i] + j);
            EACH (int r = 0; r < R; r++) s[r][i] = vf_fma(few[r], b, s[r][i]);
        }
    }
}

// Of the R rows behind a block (at the end its own) the same cut, or where its cuts follow each other as much of the
// whole rows.
INLINE lines lines_behind(const area *a, int64_t n, int64_t k, int len, const int R, const size_t size) {
    const char *next = a->w + (size_t)(n + 2 * R > a->n ? n : n + R) * a->w_row;
    if (a->ends) return (lines){next + (size_t)R * (size_t)k * size, 0, SIZE_MAX, 0};
    return lines_of(next + (size_t)k * size, a->w_row, len / VEC, VEC * size, R);
}

// R weight rows from n x M activation rows from m over the cut k..k+len. Rows behind the last
// weight repeat it and are not stored.
INLINE void block(const area *a, int64_t n, int m, int64_t k, int len, const int R, const int M, const lq_dtype e) {
    const char *w[8];
    const float *x[TALL];
    vf s[8][TALL];
    EACH (int r = 0; r < R; r++)
        w[r] = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * a->w_row + (size_t)k * (e == LQ_F32 ? 4 : 2);
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + k;
    EACH (int r = 0; r < R; r++) EACH (int i = 0; i < M; i++) s[r][i] = vf_zero();
    int j = 0;
    const size_t size = e == LQ_F32 ? 4 : 2;
    lines next = lines_behind(a, n, k, len, R, size);
    for (; j + VEC <= len; j += VEC) {
        if (a->asks) {
            lines_ask(&next, R * VEC * (int)size / 64);
            if ((size_t)j * size % 64 == 0)
                EACH (int r = 0; r < R; r++) _mm_prefetch(w[r] + (size_t)j * size + SOON, _MM_HINT_T1);
        }
        step(s, w, x, j, R, M, e);
    }
    if (j < len)
        EACH (int i = 0; i < M; i++) {
            const vf b = load_some((const char *)x[i], j, len - j, LQ_F32);
            EACH (int r = 0; r < R; r++) s[r][i] = vf_fma(load_some(w[r], j, len - j, e), b, s[r][i]);
        }
    EACH (int r = 0; r < R; r += TILE) {
        const int64_t left = a->n - n - r;
        EACH (int i = 0; i < M; i++) {
            float *y = a->y + (size_t)(m + i) * a->ldy + (size_t)(n + r);
            store4(y, left, fold4(s[r][i], s[r + 1][i], s[r + 2][i], s[r + 3][i]), k || a->more);
        }
    }
}

typedef void block_fn(const area *, int64_t n, int m, int64_t k, int len);
#define FN_NAME(E, R, M) NAME(block_##E##_##R##_##M)
#define FN(E, R, M) \
    static void FN_NAME(E, R, M)(const area *a, int64_t n, int m, int64_t k, int len) { \
        block(a, n, m, k, len, R, M, LQ_##E);                                           \
    }
#if defined(__AVX512F__)
#define FNS(E) FN(E, 4, 1) FN(E, 4, 2) FN(E, 4, 3) FN(E, 4, 4) FN(E, 4, 5) FN(E, 4, 6) FN(E, 8, 1) FN(E, 8, 2)
#define ROW(E) {{FN_NAME(E, 4, 1), FN_NAME(E, 4, 2), FN_NAME(E, 4, 3), FN_NAME(E, 4, 4), FN_NAME(E, 4, 5), FN_NAME(E, 4, 6)}, \
                {FN_NAME(E, 8, 1), FN_NAME(E, 8, 2)}}
#else
#define FNS(E) FN(E, 4, 1) FN(E, 4, 2) FN(E, 4, 3) FN(E, 8, 1)
#define ROW(E) {{FN_NAME(E, 4, 1), FN_NAME(E, 4, 2), FN_NAME(E, 4, 3)}, {FN_NAME(E, 8, 1)}}
#endif
FNS(F32) FNS(F16) FNS(BF16)
static block_fn *const f32_fns[2][TALL] = ROW(F32), *const f16_fns[2][TALL] = ROW(F16);
static block_fn *const bf16_fns[2][TALL] = ROW(BF16);

// A cut of the next activations into L2, while that of these meets tile i of so many.
static void ahead(const area *a, int m, int m1, int64_t k, int len, int64_t i, int64_t tiles) {
    const int from = (int)(len * i / tiles), to = (int)(len * (i + 1) / tiles);
    for (const int end = m1 - m < TALL ? m1 : m + TALL; m < end; m++)
        for (int j = from; j < to; j += 16)
            _mm_prefetch((const char *)(a->x + (size_t)m * a->x_row + k + j), _MM_HINT_T1);
}

// Few rows: weight rows from end to end, as memory likes it. Many: a cut of the activations stays in
// L1, that of the weights in L2.
static void walk(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 block_fn *const fns[2][TALL]) {
    const int rows = m1 - m0, parts = (rows + TALL - 1) / TALL;
    const bool asks = !act->w_row && rows <= LQ_RUN_ROWS;
    area a = {.w = w->q, .w_row = (act->w_row ? act->w_row : (size_t)w->k) * lq_dtype_size(w->type.elem), .n = w->n,
              .x = act->x.p, .x_row = act->x.stride, .y = y, .ldy = ldy, .more = act->more, .asks = asks,
              .ends = rows <= TALL};
    const int64_t n1 = t1 * TILE < w->n ? t1 * TILE : w->n;
    if (rows <= TALL) {
        for (int64_t n = t0 * TILE, step_n; n < n1; n += step_n) {
            step_n = rows <= WIDE && n1 - n > TILE ? 2 * TILE : TILE;
            for (int64_t k = 0; k < w->k; k += LQ_K_CUT)
                fns[step_n > TILE][rows - 1](&a, n, m0, k, (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT));
        }
        return;
    }
    for (int64_t k = 0; k < w->k; k += LQ_K_CUT) {
        const int len = (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT);
        for (int p = 0, m = m0, tall; p < parts; p++, m += tall) {
            tall = (m1 - m + parts - p - 1) / (parts - p);
            a.asks = asks && p < ASKING;
            for (int64_t t = t0; t < t1; t++) {
                ahead(&a, m + tall, m1, k, len, t - t0, t1 - t0);
                fns[0][tall - 1](&a, t * TILE, m, k, len);
            }
        }
    }
}

void NAME(lq_matmul_f32_f32_f32any)(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                    float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, f32_fns);
}

void NAME(lq_matmul_f32_f32_f16any)(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                    float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, f16_fns);
}

void NAME(lq_matmul_f32_f32_bf16any)(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,
                                     float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, bf16_fns);
}
