// dot_avx512.c: f32 activations x f32, f16 or bf16 weight rows with AVX-512 (dot_vec.h), and coded
// weights as f32 rows. Owns nothing.
#include "kernels/cpu/x86/dot_vec.h"

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
    const size_t cell = ((size_t)t * (size_t)lq_weight_groups(ty, w->k) + (size_t)(ty->group ? k / ty->group : 0)) *
        LQ_X86_ROWS;
    const uint8_t *p = (const uint8_t *)w->scale + cell * lq_dtype_size(ty->scale);
    __m512 v = ty->scale == LQ_F32   ? load((const char *)p, 0, LQ_F32)
               : ty->scale == LQ_F16 ? load((const char *)p, 0, LQ_F16)
                                     : load((const char *)p, 0, LQ_BF16);
    _mm512_storeu_ps(s, v);
    const void *zero = ty->asym ? w->zero + cell : NULL;
    _mm512_storeu_si512(z, ty->asym ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)zero))
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
            const void *at = bytes[r & 3] + (r >> 2) * 16;
            const __m512i c = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)at));
            const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(c, _mm512_set1_epi32(z[r]))),
                                           _mm512_set1_ps(s[r]));
            _mm512_mask_storeu_ps(dst + (size_t)r * (size_t)(k1 - k0) + (k - k0), some, v);
        }
    }
}

void lq_rows_f32_f32_intx86_avx512(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst) {
    if (w->type.bits == 4) unpack(w, t, k0, k1, dst, 4);
    else unpack(w, t, k0, k1, dst, 8);
}

// --- E4M3 rows as f32 rows, as they are (PLAIN) or times their scales ---

INLINE __m512 e4m3_widen(__m128i bytes) {
    const __m512i b = _mm512_cvtepu8_epi32(bytes), size = _mm512_and_si512(b, _mm512_set1_epi32(0x7f)),
        u = _mm512_slli_epi32(size, 20);
    const __m512i least = _mm512_set1_epi32(121 << 23); // 2^-6: numbers below it are what is left of 2^-6 and more
    __m512i v = _mm512_add_epi32(u, _mm512_set1_epi32(120 << 23));
    const __m512 low = _mm512_sub_ps(_mm512_castsi512_ps(_mm512_add_epi32(u, least)), _mm512_castsi512_ps(least));
    v = _mm512_mask_mov_epi32(v, _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(8)), _mm512_castps_si512(low));
    v = _mm512_mask_mov_epi32(v, _mm512_cmpeq_epi32_mask(size, _mm512_set1_epi32(0x7f)), _mm512_set1_epi32(0x7fc00000));
    return _mm512_castsi512_ps(_mm512_or_si512(v, _mm512_slli_epi32(_mm512_andnot_si512(_mm512_set1_epi32(0x7f), b),
                                                                    24)));
}

void lq_rows_f32_f32_e4m3any_avx512(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst) {
    for (int64_t n = t * LQ_FP8_ROWS; n < (t + 1) * LQ_FP8_ROWS && n < w->n; n++, dst += k1 - k0) {
        const uint8_t *q = (const uint8_t *)w->q + (size_t)(n * w->k);
        for (int64_t k = k0, end; k < k1; k = end) {
            end = w->type.group && (k / w->type.group + 1) * w->type.group < k1
                ? (k / w->type.group + 1) * w->type.group : k1;
            const __m512 s = _mm512_set1_ps(w->type.kind == LQ_W_PLAIN ? 1.0f : lq_ukr_scale(w, n, k));
            for (int64_t j = k; j < end; j += 16) {
                const __mmask16 some = end - j >= 16 ? 0xffff : (__mmask16)((1u << (end - j)) - 1);
                _mm512_mask_storeu_ps(dst + (j - k0), some,
                                      _mm512_mul_ps(e4m3_widen(_mm_maskz_loadu_epi8(some, q + j)), s));
            }
        }
    }
}
