// dot_avx512.c: what dot_vec.h has with AVX-512, and codes of layout x86 as f32 rows. Owns nothing.
#include "kernels/cpu/x86/codes_avx512.h"
#include "kernels/cpu/x86/dot_vec.h"

// 16 k of 16 rows, the first or second of the CODES_K at q: o[j], 128-bit lane l = the codes of row 4l + j.
INLINE void codes16(const uint8_t *q, const int bits, const int half, __m512i o[4]) {
    __m512i v[4];
    EACH (int i = 0; i < 4; i++) v[i] = codes_4k(q, bits, 4 * half + i);
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpacklo_epi32(v[2], v[3]);
    const __m512i c = _mm512_unpackhi_epi32(v[0], v[1]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    o[0] = _mm512_unpacklo_epi64(a, b);
    o[1] = _mm512_unpackhi_epi64(a, b);
    o[2] = _mm512_unpacklo_epi64(c, d);
    o[3] = _mm512_unpackhi_epi64(c, d);
}

static void group_cells(const lq_weight *w, int64_t t, int64_t k, float s[16], int32_t z[16]) {
    const lq_wtype *ty = &w->type;
    const int64_t g = t * lq_weight_groups(ty, w->k) + (ty->group ? k / ty->group : 0);
    const size_t cell = (size_t)g * LQ_X86_ROWS;
    const char *p = (const char *)w->scale + cell * lq_dtype_size(ty->scale);
    _mm512_storeu_ps(s, vf_of_scales(p, ty->scale, w->scale2 ? *w->scale2 : 1, true));
    const void *zero = ty->asym ? w->zero + cell : NULL;
    _mm512_storeu_si512(z, ty->asym ? _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)zero))
                                    : _mm512_set1_epi32(1 << (ty->bits - 1)));
}

INLINE void unpack(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row, const int bits,
                   const bool table) {
    const int64_t unit = lq_x86_group(&w->type), wide = (w->k + unit - 1) / unit * unit;
    const uint8_t *q = (const uint8_t *)w->q + (size_t)(t * wide) * 2 * (size_t)bits;
    const int rows = w->n - t * LQ_X86_ROWS < LQ_X86_ROWS ? (int)(w->n - t * LQ_X86_ROWS) : LQ_X86_ROWS;
    const __m512 book = table ? _mm512_loadu_ps(lq_wtype_table(&w->type)) : vf_zero();
    float s[16];
    int32_t z[16];
    for (int64_t k = k0; k < k1; k += 16) {
        if (k == k0 || (w->type.group && k % w->type.group == 0)) group_cells(w, t, k, s, z);
        const __mmask16 some = k1 - k >= 16 ? 0xffff : (__mmask16)((1u << (k1 - k)) - 1);
        __m512i o[4];
        _Alignas(64) uint8_t bytes[4][64];
        const int64_t first = k / CODES_K(bits) * CODES_K(bits);
        if (k == first) codes16(q + first * 2 * bits, bits, 0, o);
        else codes16(q + first * 2 * bits, bits, 1, o);
        EACH (int j = 0; j < 4; j++) _mm512_store_si512(bytes[j], o[j]);
        for (int r = 0; r < rows; r++) {
            const void *at = bytes[r & 3] + (r >> 2) * 16;
            const __m512i c = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)at));
            const __m512 v = table ? _mm512_permutexvar_ps(c, book)
                                   : _mm512_cvtepi32_ps(_mm512_sub_epi32(c, _mm512_set1_epi32(z[r])));
            _mm512_mask_storeu_ps(dst + (size_t)r * row + (k - k0), some, vf_mul(v, vf_set(s[r])));
        }
    }
}

void lq_rows_f32_f32_codedx86_avx512(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    if (w->type.kind == LQ_W_TABLE) {
        unpack(w, t, k0, k1, dst, row, 4, true);
        return;
    }
    switch (w->type.bits) {
    case 2: unpack(w, t, k0, k1, dst, row, 2, false); break;
    case 3: unpack(w, t, k0, k1, dst, row, 3, false); break;
    case 4: unpack(w, t, k0, k1, dst, row, 4, false); break;
    case 5: unpack(w, t, k0, k1, dst, row, 5, false); break;
    case 6: unpack(w, t, k0, k1, dst, row, 6, false); break;
    default: unpack(w, t, k0, k1, dst, row, 8, false);
    }
}
