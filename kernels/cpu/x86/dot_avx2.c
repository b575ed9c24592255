// dot_avx2.c: f32 activations x f32, f16 or bf16 weight rows with AVX2 and FMA (dot_vec.h), and coded
// weights as f32 rows. Owns nothing.
#include "kernels/cpu/x86/dot_vec.h"

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
        const float scale = vf_first(load_some(sp, 0, 1, ty->scale == LQ_F16 ? LQ_F16 : ty->scale == LQ_F32 ? LQ_F32
                                               : LQ_BF16));
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

// --- E4M3 rows as f32 rows, as they are (PLAIN) or times their scales ---

INLINE __m256 e4m3_widen(__m128i bytes) {
    const __m256i b = _mm256_cvtepu8_epi32(bytes), size = _mm256_and_si256(b, _mm256_set1_epi32(0x7f)),
        u = _mm256_slli_epi32(size, 20);
    const __m256i least = _mm256_set1_epi32(121 << 23); // 2^-6: numbers below it are what is left of 2^-6 and more
    __m256i v = _mm256_add_epi32(u, _mm256_set1_epi32(120 << 23));
    const __m256 low = _mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(u, least)), _mm256_castsi256_ps(least));
    v = _mm256_blendv_epi8(v, _mm256_castps_si256(low), _mm256_cmpgt_epi32(_mm256_set1_epi32(8), size));
    v = _mm256_blendv_epi8(v, _mm256_set1_epi32(0x7fc00000), _mm256_cmpeq_epi32(size, _mm256_set1_epi32(0x7f)));
    return _mm256_castsi256_ps(_mm256_or_si256(v, _mm256_slli_epi32(_mm256_andnot_si256(_mm256_set1_epi32(0x7f), b),
                                                                    24)));
}

void lq_rows_f32_f32_e4m3any_avx2(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst) {
    for (int64_t n = t * LQ_FP8_ROWS; n < (t + 1) * LQ_FP8_ROWS && n < w->n; n++, dst += k1 - k0) {
        const uint8_t *q = (const uint8_t *)w->q + (size_t)(n * w->k);
        for (int64_t k = k0, end; k < k1; k = end) {
            end = w->type.group && (k / w->type.group + 1) * w->type.group < k1
                ? (k / w->type.group + 1) * w->type.group : k1;
            const __m256 s = _mm256_set1_ps(w->type.kind == LQ_W_PLAIN ? 1.0f : lq_ukr_scale(w, n, k));
            int64_t j = k;
            for (; j + 8 <= end; j += 8)
                _mm256_storeu_ps(dst + (j - k0),
                                 _mm256_mul_ps(e4m3_widen(_mm_loadl_epi64((const __m128i *)(const void *)(q + j))), s));
            if (j == end) continue;
            uint64_t rest = 0;
            float part[8];
            memcpy(&rest, q + j, (size_t)(end - j));
            _mm256_storeu_ps(part, _mm256_mul_ps(e4m3_widen(_mm_cvtsi64_si128((int64_t)rest)), s));
            memcpy(dst + (j - k0), part, (size_t)(end - j) * sizeof(float));
        }
    }
}
