// dot_avx2.c: f32 activations x f32, f16 or bf16 weight rows with AVX2 and FMA, and int weights of layout x86 as f32 rows.
//
// Order of sums, the same at every M: k is cut at multiples of LQ_K_CUT; in a cut lane i adds k = i mod 8 with fma, from 0;
// lanes are added 4 apart, 2 apart, 1 apart; cuts are added in order. A tile is 4 weight rows; a block has up to 3 rows of
// activations, one of them alone takes two tiles at a time, to hide the latency of the sums.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>
#include <string.h>

enum { TILE = 4, TALL = 3 };

INLINE __m256 load(const char *row, int k, const lq_dtype e) {
    if (e == LQ_F32) return _mm256_loadu_ps((const float *)(const void *)row + k);
    const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(row + 2 * (size_t)k));
    return e == LQ_F16 ? _mm256_cvtph_ps(h) : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
INLINE __m256 load_some(const char *row, int k, int n, const lq_dtype e) {
    _Alignas(32) char part[32] = {0};
    const size_t size = e == LQ_F32 ? 4 : 2;
    memcpy(part, row + (size_t)k * size, (size_t)n * size);
    return load(part, 0, e);
}
INLINE __m128 fold4(__m256 a, __m256 b, __m256 c, __m256 d) { // the sums of four vectors
    const __m128 p = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)),
                 q = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 r = _mm_add_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1)),
                 s = _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
    const __m128 pq = _mm_add_ps(_mm_unpacklo_ps(p, q), _mm_unpackhi_ps(p, q)), rs = _mm_add_ps(_mm_unpacklo_ps(r, s), _mm_unpackhi_ps(r, s));
    return _mm_add_ps(_mm_movelh_ps(pq, rs), _mm_movehl_ps(rs, pq));
}

typedef struct area { // of one call: rows of weights and of activations
    const char *w;
    size_t w_row; // bytes
    int64_t n;
    const float *x;
    size_t x_row; // elements
    float *y;
    size_t ldy;
} area;

// R weight rows from n x M activation rows from m over the cut k..k+len. Rows behind the last weight repeat it and are not stored.
INLINE void block(const area *a, int64_t n, int m, int64_t k, int len, const int R, const int M, const lq_dtype e) {
    const size_t size = e == LQ_F32 ? 4 : 2;
    const char *w[8];
    const float *x[TALL];
    __m256 s[8][TALL];
    EACH (int r = 0; r < R; r++) w[r] = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * a->w_row + (size_t)k * size;
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + k;
    EACH (int r = 0; r < R; r++) EACH (int i = 0; i < M; i++) s[r][i] = _mm256_setzero_ps();
    int j = 0;
    for (; j + 8 <= len; j += 8) {
        __m256 b[TALL];
        EACH (int i = 0; i < M; i++) b[i] = _mm256_loadu_ps(x[i] + j);
        EACH (int r = 0; r < R; r++) {
            const __m256 v = load(w[r], j, e);
            EACH (int i = 0; i < M; i++) s[r][i] = _mm256_fmadd_ps(v, b[i], s[r][i]);
        }
    }
    if (j < len)
        EACH (int i = 0; i < M; i++) {
            const __m256 b = load_some((const char *)x[i], j, len - j, LQ_F32);
            EACH (int r = 0; r < R; r++) s[r][i] = _mm256_fmadd_ps(load_some(w[r], j, len - j, e), b, s[r][i]);
        }
    EACH (int r = 0; r < R; r += TILE) {
        const int left = a->n - n - r >= TILE ? TILE : (int)(a->n - n - r);
        EACH (int i = 0; i < M; i++) {
            float *y = a->y + (size_t)(m + i) * a->ldy + (size_t)(n + r), v[TILE];
            _mm_storeu_ps(v, fold4(s[r][i], s[r + 1][i], s[r + 2][i], s[r + 3][i]));
            for (int c = 0; c < left; c++) y[c] = k ? y[c] + v[c] : v[c];
        }
    }
}

typedef void block_fn(const area *, int64_t n, int m, int64_t k, int len);
#define FN(E, R, M) \
    static void block_##E##_##R##_##M(const area *a, int64_t n, int m, int64_t k, int len) { block(a, n, m, k, len, R, M, LQ_##E); }
#define FNS(E) FN(E, 4, 1) FN(E, 4, 2) FN(E, 4, 3) FN(E, 8, 1)
FNS(F32) FNS(F16) FNS(BF16)
#define ROW(E) {block_##E##_4_1, block_##E##_4_2, block_##E##_4_3, block_##E##_8_1}
static block_fn *const f32_fns[TALL + 1] = ROW(F32), *const f16_fns[TALL + 1] = ROW(F16), *const bf16_fns[TALL + 1] = ROW(BF16);

// Few rows: weight rows from end to end, as memory likes it. Many: a cut of the activations stays in L1, that of the weights in L2.
static void walk(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 block_fn *const fns[TALL + 1]) {
    const area a = {.w = w->q,
                    .w_row = (size_t)w->k * lq_dtype_size(w->type.elem),
                    .n = w->n,
                    .x = act->x.p,
                    .x_row = act->x.stride,
                    .y = y,
                    .ldy = ldy};
    const int rows = m1 - m0, parts = (rows + TALL - 1) / TALL;
    const int64_t n1 = t1 * TILE < w->n ? t1 * TILE : w->n;
    if (rows <= TALL) {
        for (int64_t n = t0 * TILE, step; n < n1; n += step) {
            step = rows == 1 && n1 - n > TILE ? 2 * TILE : TILE;
            for (int64_t k = 0; k < w->k; k += LQ_K_CUT)
                fns[step > TILE ? TALL : rows - 1](&a, n, m0, k, (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT));
        }
        return;
    }
    for (int64_t k = 0; k < w->k; k += LQ_K_CUT)
        for (int p = 0, m = m0, tall; p < parts; p++, m += tall) {
            tall = (m1 - m + parts - p - 1) / (parts - p);
            for (int64_t n = t0 * TILE; n < n1; n += TILE) fns[tall - 1](&a, n, m, k, (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT));
        }
}
void lq_matmul_f32_f32_f32any_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, f32_fns);
}
void lq_matmul_f32_f32_f16any_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, f16_fns);
}
void lq_matmul_f32_f32_bf16any_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, bf16_fns);
}

// --- int codes of layout x86 as f32 rows ---

// 8 k of a row are two 32-bit words of codes: of steps side by side (int8) or of one step's nibbles (int4).
INLINE __m256i codes8(const uint8_t *q, const int bits) {
    uint32_t lo, hi;
    memcpy(&lo, q, 4);
    if (bits == 8) memcpy(&hi, q + 64, 4);
    else hi = lo >> 4 & 0x0f0f0f0f, lo &= 0x0f0f0f0f;
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)((uint64_t)hi << 32 | lo)));
}
INLINE void unpack_row(const lq_weight *w, int64_t t, int r, int64_t k0, int64_t k1, float *dst, const int bits) {
    const lq_wtype *ty = &w->type;
    const int64_t unit = lq_x86_group(ty), wide = (w->k + unit - 1) / unit * unit, groups = lq_weight_groups(ty, w->k);
    const uint8_t *q = (const uint8_t *)w->q + (size_t)(t * wide + k0) * 2 * (size_t)bits + (size_t)r * 4;
    for (int64_t k = k0, end; k < k1; k = end) {
        const size_t cell = (size_t)((t * groups + (ty->group ? k / ty->group : 0)) * LQ_X86_ROWS + r);
        const char *sp = (const char *)w->scale + cell * lq_dtype_size(ty->scale);
        const float scale = _mm256_cvtss_f32(load_some(sp, 0, 1, ty->scale == LQ_F16 ? LQ_F16 : ty->scale == LQ_F32 ? LQ_F32 : LQ_BF16));
        const __m256 s = _mm256_set1_ps(scale);
        const __m256i z = _mm256_set1_epi32(ty->asym ? w->zero[cell] : 1 << (bits - 1));
        end = ty->group && (k / ty->group + 1) * ty->group < k1 ? (k / ty->group + 1) * ty->group : k1;
        for (int64_t j = k; j < end; j += 8, q += 16 * bits) {
            const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(codes8(q, bits), z)), s);
            if (end - j >= 8) {
                _mm256_storeu_ps(dst + (j - k0), v);
                continue;
            }
            float part[8];
            _mm256_storeu_ps(part, v);
            memcpy(dst + (j - k0), part, (size_t)(end - j) * sizeof(float));
        }
    }
}
void lq_rows_f32_f32_intx86_avx2(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst) {
    for (int r = 0; r < LQ_X86_ROWS && t * LQ_X86_ROWS + r < w->n; r++)
        if (w->type.bits == 4) unpack_row(w, t, r, k0, k1, dst + (size_t)r * (size_t)(k1 - k0), 4);
        else unpack_row(w, t, r, k0, k1, dst + (size_t)r * (size_t)(k1 - k0), 8);
}
