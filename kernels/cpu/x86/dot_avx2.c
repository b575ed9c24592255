// dot_avx2.c: what dot_vec.h has with AVX2 and FMA, and codes of layout x86 as f32 rows. Owns nothing.
#include "kernels/cpu/x86/dot_vec.h"

static void unpack_row(const lq_weight *w, int64_t t, int r, int64_t k0, int64_t k1, float *dst) {
    const int bits = w->type.bits;
    const lq_wtype *ty = &w->type;
    const int64_t unit = lq_x86_group(ty), wide = (w->k + unit - 1) / unit * unit, groups = lq_weight_groups(ty, w->k);
    const uint8_t *q = (const uint8_t *)w->q + (size_t)(t * wide) * 2 * (size_t)bits + (size_t)r * 4;
    const float *book = lq_wtype_table(ty);
    const int64_t from = k0 / 32 * 32;
    uint8_t codes[LQ_K_CUT + 32];
    lq_x86_get(q + from * 2 * bits, bits, k1 - from, codes);
    for (int64_t k = k0, end; k < k1; k = end) {
        const size_t cell = (size_t)((t * groups + (ty->group ? k / ty->group : 0)) * LQ_X86_ROWS + r);
        const __m256 s = _mm256_set1_ps(lq_scale_get(w, cell));
        const __m256i z = _mm256_set1_epi32(ty->asym ? w->zero[cell] : 1 << (bits - 1));
        end = ty->group && (k / ty->group + 1) * ty->group < k1 ? (k / ty->group + 1) * ty->group : k1;
        for (int64_t j = k; j < end; j += 8) {
            const void *at = codes + (j - from);
            const __m256i c = _mm256_cvtepu8_epi32(_mm_loadl_epi64(at));
            const __m256 number = book ? _mm256_i32gather_ps(book, c, 4) : _mm256_cvtepi32_ps(_mm256_sub_epi32(c, z));
            const __m256 v = _mm256_mul_ps(number, s);
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

void lq_rows_f32_f32_codedx86_avx2(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    for (int r = 0; r < LQ_X86_ROWS && t * LQ_X86_ROWS + r < w->n; r++)
        unpack_row(w, t, r, k0, k1, dst + (size_t)r * row);
}
