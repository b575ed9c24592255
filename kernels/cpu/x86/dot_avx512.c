// dot_avx512.c: f32 activations x f32, f16 or bf16 weight rows with AVX-512, and int weights of layout x86 as f32 rows.
//
// Order of sums, the same at every M: k is cut at multiples of LQ_K_CUT; in a cut lane i adds k = i mod 16 with fma, from 0;
// lanes are added 8 apart, 4 apart, 2 apart, 1 apart; cuts are added in order. A tile is 4 weight rows; one or two rows of
// activations take two tiles at a time, to hide the latency of the sums.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>
#include <string.h>

enum { TILE = 4, TALL = 6, AHEAD_BYTES = 1024 };

INLINE __m512 load(const char *row, int k, const lq_dtype e) {
    if (e == LQ_F32) return _mm512_loadu_ps(row + 4 * (size_t)k);
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)(row + 2 * (size_t)k));
    return e == LQ_F16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
INLINE __m512 load_some(const char *row, int k, __mmask16 mask, const lq_dtype e) {
    if (e == LQ_F32) return _mm512_maskz_loadu_ps(mask, row + 4 * (size_t)k);
    const __m256i h = _mm256_maskz_loadu_epi16(mask, row + 2 * (size_t)k);
    return e == LQ_F16 ? _mm512_cvtph_ps(h) : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
INLINE __m128 fold(__m512 v) { // lanes 8 apart, then 4 apart
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
INLINE __m128 fold4(__m512 a, __m512 b, __m512 c, __m512 d) { // the sums of four vectors
    const __m128 p = fold(a), q = fold(b), r = fold(c), s = fold(d);
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
    __m512 s[8][TALL];
    EACH (int r = 0; r < R; r++) w[r] = a->w + (size_t)(n + r < a->n ? n + r : a->n - 1) * a->w_row + (size_t)k * size;
    EACH (int i = 0; i < M; i++) x[i] = a->x + (size_t)(m + i) * a->x_row + k;
    EACH (int r = 0; r < R; r++) EACH (int i = 0; i < M; i++) s[r][i] = _mm512_setzero_ps();
    int j = 0;
    for (; j + 16 <= len; j += 16) {
        __m512 v[8];
        EACH (int r = 0; r < R; r++) {
            v[r] = load(w[r], j, e);
            if (M <= 2) _mm_prefetch(w[r] + (size_t)j * size + AHEAD_BYTES, _MM_HINT_T0);
        }
        EACH (int i = 0; i < M; i++) {
            const __m512 b = _mm512_loadu_ps(x[i] + j);
            EACH (int r = 0; r < R; r++) s[r][i] = _mm512_fmadd_ps(v[r], b, s[r][i]);
        }
    }
    if (j < len) {
        const __mmask16 some = (__mmask16)((1u << (len - j)) - 1);
        EACH (int i = 0; i < M; i++) {
            const __m512 b = _mm512_maskz_loadu_ps(some, x[i] + j);
            EACH (int r = 0; r < R; r++) s[r][i] = _mm512_fmadd_ps(load_some(w[r], j, some, e), b, s[r][i]);
        }
    }
    EACH (int r = 0; r < R; r += TILE) {
        const int64_t left = a->n - n - r;
        const __mmask8 real = left >= TILE ? 15 : left <= 0 ? 0 : (__mmask8)((1u << left) - 1);
        EACH (int i = 0; i < M; i++) {
            float *y = a->y + (size_t)(m + i) * a->ldy + (size_t)(n + r);
            __m128 v = fold4(s[r][i], s[r + 1][i], s[r + 2][i], s[r + 3][i]);
            if (k) v = _mm_add_ps(_mm_maskz_loadu_ps(real, y), v);
            _mm_mask_storeu_ps(y, real, v);
        }
    }
}

typedef void block_fn(const area *, int64_t n, int m, int64_t k, int len);
#define FN(E, R, M) \
    static void block_##E##_##R##_##M(const area *a, int64_t n, int m, int64_t k, int len) { block(a, n, m, k, len, R, M, LQ_##E); }
#define FNS(E) FN(E, 4, 1) FN(E, 4, 2) FN(E, 4, 3) FN(E, 4, 4) FN(E, 4, 5) FN(E, 4, 6) FN(E, 8, 1) FN(E, 8, 2)
FNS(F32) FNS(F16) FNS(BF16)
#define NAME(E, R, M) block_##E##_##R##_##M
#define ROW(E) {{NAME(E, 4, 1), NAME(E, 4, 2), NAME(E, 4, 3), NAME(E, 4, 4), NAME(E, 4, 5), NAME(E, 4, 6)}, {NAME(E, 8, 1), NAME(E, 8, 2)}}
static block_fn *const f32_fns[2][TALL] = ROW(F32), *const f16_fns[2][TALL] = ROW(F16), *const bf16_fns[2][TALL] = ROW(BF16);

// Few rows: weight rows from end to end, as memory likes it. Many: a cut of the activations stays in L1, that of the weights in L2.
static void walk(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 block_fn *const fns[2][TALL]) {
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
            step = rows <= 2 && n1 - n > TILE ? 2 * TILE : TILE;
            for (int64_t k = 0; k < w->k; k += LQ_K_CUT)
                fns[step > TILE][rows - 1](&a, n, m0, k, (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT));
        }
        return;
    }
    for (int64_t k = 0; k < w->k; k += LQ_K_CUT)
        for (int p = 0, m = m0, tall; p < parts; p++, m += tall) {
            tall = (m1 - m + parts - p - 1) / (parts - p);
            for (int64_t n = t0 * TILE; n < n1; n += TILE) fns[0][tall - 1](&a, n, m, k, (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT));
        }
}
void lq_matmul_f32_f32_f32any_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, f32_fns);
}
void lq_matmul_f32_f32_f16any_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, f16_fns);
}
void lq_matmul_f32_f32_bf16any_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy) {
    walk(w, a, t0, t1, m0, m1, y, ldy, bf16_fns);
}

// --- int codes of layout x86 as f32 rows ---

// 16 k of 16 rows: o[j], 128-bit lane l = the codes of row 4l + j.
INLINE void codes16(const uint8_t *q, const int bits, __m512i o[4]) {
    __m512i v[4];
    if (bits == 4) {
        const __m512i low = _mm512_set1_epi8(0x0f), a = _mm512_loadu_si512(q), b = _mm512_loadu_si512(q + 64);
        v[0] = _mm512_and_si512(a, low);
        v[1] = _mm512_and_si512(_mm512_srli_epi16(a, 4), low);
        v[2] = _mm512_and_si512(b, low);
        v[3] = _mm512_and_si512(_mm512_srli_epi16(b, 4), low);
    } else {
        EACH (int i = 0; i < 4; i++) v[i] = _mm512_loadu_si512(q + i * 64);
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpacklo_epi32(v[2], v[3]);
    const __m512i c = _mm512_unpackhi_epi32(v[0], v[1]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    o[0] = _mm512_unpacklo_epi64(a, b);
    o[1] = _mm512_unpackhi_epi64(a, b);
    o[2] = _mm512_unpacklo_epi64(c, d);
    o[3] = _mm512_unpackhi_epi64(c, d);
}
static void group_cells(const lq_weight *w, int64_t t, int64_t k, float s[16], int32_t z[16]) {
    const lq_wtype *ty = &w->type;
    const size_t cell = ((size_t)t * (size_t)lq_weight_groups(ty, w->k) + (size_t)(ty->group ? k / ty->group : 0)) * LQ_X86_ROWS;
    const uint8_t *p = (const uint8_t *)w->scale + cell * lq_dtype_size(ty->scale);
    __m512 v = ty->scale == LQ_F32   ? load((const char *)p, 0, LQ_F32)
               : ty->scale == LQ_F16 ? load((const char *)p, 0, LQ_F16)
                                     : load((const char *)p, 0, LQ_BF16);
    _mm512_storeu_ps(s, v);
    _mm512_storeu_si512(z, ty->asym ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(w->zero + cell)))
                                    : _mm512_set1_epi32(1 << (ty->bits - 1)));
}
INLINE void unpack(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, const int bits) {
    const int64_t unit = lq_x86_group(&w->type), wide = (w->k + unit - 1) / unit * unit;
    const uint8_t *q = (const uint8_t *)w->q + (size_t)(t * wide + k0) * 2 * (size_t)bits;
    const int rows = w->n - t * LQ_X86_ROWS < LQ_X86_ROWS ? (int)(w->n - t * LQ_X86_ROWS) : LQ_X86_ROWS;
    float s[16];
    int32_t z[16];
    for (int64_t k = k0; k < k1; k += 16, q += 32 * bits) {
        if (k == k0 || (w->type.group && k % w->type.group == 0)) group_cells(w, t, k, s, z);
        const __mmask16 some = k1 - k >= 16 ? 0xffff : (__mmask16)((1u << (k1 - k)) - 1);
        __m512i o[4];
        _Alignas(64) uint8_t bytes[4][64];
        codes16(q, bits, o);
        EACH (int j = 0; j < 4; j++) _mm512_store_si512(bytes[j], o[j]);
        for (int r = 0; r < rows; r++) {
            const __m512i c = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)(bytes[r & 3] + (r >> 2) * 16)));
            const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(c, _mm512_set1_epi32(z[r]))), _mm512_set1_ps(s[r]));
            _mm512_mask_storeu_ps(dst + (size_t)r * (size_t)(k1 - k0) + (k - k0), some, v);
        }
    }
}
void lq_rows_f32_f32_intx86_avx512(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst) {
    if (w->type.bits == 4) unpack(w, t, k0, k1, dst, 4);
    else unpack(w, t, k0, k1, dst, 8);
}
