// vec.h: one vocabulary for a vector of f32: 16 lanes where the file is compiled for AVX-512, 8 where it is for
// AVX2. So what is called *_vec.h is written once and compiled for both; what is static there says its ISA by NAME,
// so that a backtrace tells the two apart. Owns nothing. Where an operand of max or min is NaN the second one wins.
#ifndef LQ_VEC_H
#define LQ_VEC_H
#include "kernels/math.h"
#include <immintrin.h>
#include <math.h>
#include <string.h>

#if defined(__AVX512F__) && !defined(LQ_VNNI_EVEX)
// A Zen 5 reads one stream faster than four, and takes lines best past its second cache; a Zen 4 does not read so, and
// no other has been tried. Of other cores with VNNI one of Intel's has vp2intersect too, of those with BF16 none.
static inline bool is_zen5(void) { return __builtin_cpu_supports("avx512vp2intersect"); }

enum { VEC = 16 };
#if defined(NAME)
// attn_amx.c has its own
#elif defined(__AVX512BF16__)
#define NAME(x) x##_avx512bf16
#else
#define NAME(x) x##_avx512
#endif
typedef __m512 vf;
typedef __m512i vi; // of int32
typedef __mmask16 vm; // which lanes
typedef struct vd { __m512d a, b; } vd;

static inline vm vm_bits(uint32_t b) { return (vm)b; }
static inline vm vm_first(int n) { return n >= VEC ? (vm)0xffff : (vm)((1u << n) - 1); }
static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline vf vf_load_m(vm m, const float *p) { return _mm512_maskz_loadu_ps(m, p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline void vf_store_m(vm m, float *p, vf x) { _mm512_mask_storeu_ps(p, m, x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }   // c + a b
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); } // c - a b
static inline vf vf_and(vf a, vf b) { return _mm512_and_ps(a, b); }
static inline vf vf_or(vf a, vf b) { return _mm512_or_ps(a, b); }
static inline vf vf_xor(vf a, vf b) { return _mm512_xor_ps(a, b); }
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); } // a 2^n
static inline vf vf_pick(vm m, vf a, vf b) { return _mm512_mask_mov_ps(b, m, a); } // m ? a : b
static inline vm vf_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vm vf_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline bool vf_any_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
static inline float vf_first(vf a) { return _mm512_cvtss_f32(a); }
static inline vf vf_of_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline vf vf_of_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

// Of couples of bf16, the first numbers or the second ones.
static inline vf vf_of_couple(const void *p, bool second) {
    const __m512i x = _mm512_loadu_si512(p), high = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_castsi512_ps(second ? _mm512_and_si512(x, high) : _mm512_slli_epi32(x, 16));
}

static inline vf vf_set_two(const float *x) { // in turn
    double two;
    memcpy(&two, x, sizeof two);
    return _mm512_castpd_ps(_mm512_set1_pd(two));
}

static inline vf vf_evens(vf a, vf b) { // lanes 0, 2 .. of a, then of b
    const __m512i i = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_ps(a, i, b);
}

static inline vf vf_odds(vf a, vf b) {
    const __m512i i = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_ps(a, i, b);
}

static inline vf vf_of_i8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }
// 2^-8 of it: its bits are those of a half with another bias, but for the code that is NaN: there 0x80 carries.
static inline vf vf_of_e4m3_small(const void *p) {
    const __m256i x = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7);
    const __m256i h = _mm256_and_si256(x, _mm256_set1_epi16((short)0xbf80));
    const __m256i carry = _mm256_and_si256(_mm256_add_epi16(h, _mm256_set1_epi16(0x80)), _mm256_set1_epi16(0x4000));
    return _mm512_cvtph_ps(_mm256_or_si256(h, carry));
}

static inline vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_of(vf x) { return _mm512_cvtps_epi32(x); } // to the nearest, ties to even
static inline vi vi_of_u8(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
static inline vi vi_shift23(vi x) { return _mm512_slli_epi32(x, 23); }
static inline vm vi_equal(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
static inline vf vf_bits(vi x) { return _mm512_castsi512_ps(x); }
static inline vi vi_bits(vf x) { return _mm512_castps_si512(x); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
static inline vi vi_min(vi a, vi b) { return _mm512_min_epi32(a, b); }
static inline int32_t vi_most(vi a) { return _mm512_reduce_max_epi32(a); }
static inline int32_t vi_sum(vi a) { return _mm512_reduce_add_epi32(a); }
static inline void vi_store_i8(int8_t *p, const vi x[1]) { // 16 of them
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(x[0]));
}

static inline __m128 vf_fold(vf a) { // lanes 8 apart are added, then 4 apart
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}

static inline vd vd_of(vf x) {
    return (vd){_mm512_cvtps_pd(_mm512_castps512_ps256(x)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))};
}

static inline vf vf_of(vd x) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(x.a)), _mm512_cvtpd_ps(x.b), 1);
}

static inline vd vd_set(double x) { return (vd){_mm512_set1_pd(x), _mm512_set1_pd(x)}; }
static inline vd vd_add(vd x, vd y) { return (vd){_mm512_add_pd(x.a, y.a), _mm512_add_pd(x.b, y.b)}; }
static inline vd vd_sub(vd x, vd y) { return (vd){_mm512_sub_pd(x.a, y.a), _mm512_sub_pd(x.b, y.b)}; }
static inline vd vd_square(vd x, vd sum) {
    return (vd){_mm512_fmadd_pd(x.a, x.a, sum.a), _mm512_fmadd_pd(x.b, x.b, sum.b)};
}

static inline void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x.a), _mm512_storeu_pd(p + 8, x.b); }
#else
enum { VEC = 8 };
#define NAME(x) x##_avx2
typedef __m256 vf;
typedef __m256i vi;
typedef __m256i vm; // lanes of all ones or zeros
typedef struct vd { __m256d a, b; } vd;

static inline vm vm_bits(uint32_t b) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)b), bit), bit);
}

static inline vm vm_first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline vf vf_load_m(vm m, const float *p) { return _mm256_maskload_ps(p, m); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline void vf_store_m(vm m, float *p, vf x) { _mm256_maskstore_ps(p, m, x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_and(vf a, vf b) { return _mm256_and_ps(a, b); }
static inline vf vf_or(vf a, vf b) { return _mm256_or_ps(a, b); }
static inline vf vf_xor(vf a, vf b) { return _mm256_xor_ps(a, b); }
static inline vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_scale2(vf a, vf n) { // in two factors: n runs from -126 to 128
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), bias = _mm256_set1_epi32(127);
    __m256i u = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i v = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(u)), _mm256_castsi256_ps(v));
}

static inline vf vf_pick(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m)); }
static inline vm vf_less(vf a, vf b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
static inline vm vf_equal(vf a, vf b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)); }
static inline bool vf_any_nan(vf a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }
static inline float vf_first(vf a) { return _mm256_cvtss_f32(a); }
static inline vf vf_of_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline vf vf_of_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}

static inline vf vf_of_couple(const void *p, bool second) {
    const __m256i x = _mm256_loadu_si256(p), high = _mm256_set1_epi32((int)0xffff0000);
    return _mm256_castsi256_ps(second ? _mm256_and_si256(x, high) : _mm256_slli_epi32(x, 16));
}

static inline vf vf_set_two(const float *x) {
    double two;
    memcpy(&two, x, sizeof two);
    return _mm256_castpd_ps(_mm256_set1_pd(two));
}

static inline vf vf_evens(vf a, vf b) {
    const __m256d x = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(x, 0xd8));
}

static inline vf vf_odds(vf a, vf b) {
    const __m256d x = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(x, 0xd8));
}

static inline vf vf_of_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))); }
static inline vf vf_of_e4m3_small(const void *p) {
    const __m128i x = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);
    const __m128i h = _mm_and_si128(x, _mm_set1_epi16((short)0xbf80));
    const __m128i carry = _mm_and_si128(_mm_add_epi16(h, _mm_set1_epi16(0x80)), _mm_set1_epi16(0x4000));
    return _mm256_cvtph_ps(_mm_or_si128(h, carry));
}

static inline vi vi_load(const int32_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
static inline vi vi_of(vf x) { return _mm256_cvtps_epi32(x); }
static inline vi vi_of_u8(const void *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
static inline vi vi_shift23(vi x) { return _mm256_slli_epi32(x, 23); }
static inline vm vi_equal(vi a, vi b) { return _mm256_cmpeq_epi32(a, b); }
static inline vf vf_bits(vi x) { return _mm256_castsi256_ps(x); }
static inline vi vi_bits(vf x) { return _mm256_castps_si256(x); }
static inline vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
static inline vi vi_min(vi a, vi b) { return _mm256_min_epi32(a, b); }
static inline int32_t vi_most(vi a) {
    __m128i t = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    t = _mm_max_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

static inline int32_t vi_sum(vi a) {
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1)));
}

static inline void vi_store_i8(int8_t *p, const vi x[2]) {
    const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x[0], x[1]), 0xd8);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}

static inline __m128 vf_fold(vf a) { return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); }
static inline vd vd_of(vf x) {
    return (vd){_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}

static inline vf vf_of(vd x) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(x.a)), _mm256_cvtpd_ps(x.b), 1);
}

static inline vd vd_set(double x) { return (vd){_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
static inline vd vd_add(vd x, vd y) { return (vd){_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)}; }
static inline vd vd_sub(vd x, vd y) { return (vd){_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b)}; }
static inline vd vd_square(vd x, vd sum) {
    return (vd){_mm256_fmadd_pd(x.a, x.a, sum.a), _mm256_fmadd_pd(x.b, x.b, sum.b)};
}

static inline void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x.a), _mm256_storeu_pd(p + 4, x.b); }
#endif

static inline vf vf_only(vm m, vf a) { return vf_pick(m, a, vf_zero()); } // 0 elsewhere
static inline vf vf_abs(vf x) { return vf_and(x, vf_set(lq_float(0x7fffffffu))); }
static inline vf vf_minus(vf x) { return vf_xor(x, vf_set(-0.0f)); }
static inline vf vf_of_e4m3(const void *p) { return vf_mul(vf_of_e4m3_small(p), vf_set(256.0f)); }
static inline vf vf_of_e8m0(const void *p) { // 2^-127 is half of the least normal number, 255 is none
    const vi e = vi_of_u8(p);
    const vf power = vf_bits(vi_max(vi_shift23(e), vi_set(0x00400000)));
    return vf_pick(vi_equal(e, vi_set(255)), vf_set(NAN), power);
}

// VEC scales of a type that a weight of ints has, or with `small` any: e8m0, or e4m3 times `by`.
static inline vf vf_of_scales(const void *p, lq_dtype t, float by, const bool small) {
    if (small && t == LQ_E8M0) return vf_of_e8m0(p);
    if (small && t == LQ_E4M3) return vf_mul(vf_of_e4m3(p), vf_set(by));
    return t == LQ_F32 ? vf_load(p) : t == LQ_F16 ? vf_of_f16(p) : vf_of_bf16(p);
}

static inline __m128 fold4(vf a, vf b, vf c, vf d) { // the sums of four vectors
    const __m128 p = vf_fold(a), q = vf_fold(b), r = vf_fold(c), s = vf_fold(d);
    const __m128 pq = _mm_add_ps(_mm_unpacklo_ps(p, q), _mm_unpackhi_ps(p, q));
    const __m128 rs = _mm_add_ps(_mm_unpacklo_ps(r, s), _mm_unpackhi_ps(r, s));
    return _mm_add_ps(_mm_movelh_ps(pq, rs), _mm_movehl_ps(rs, pq));
}

// The first `left` of four sums to y, or more: added to what is there.
static inline void store4(float *y, int64_t left, __m128 v, bool more) {
    float part[4];
    if (left >= 4) {
        _mm_storeu_ps(y, more ? _mm_add_ps(_mm_loadu_ps(y), v) : v);
        return;
    }
    _mm_storeu_ps(part, v);
    for (int c = 0; c < left; c++) y[c] = more ? y[c] + part[c] : part[c];
}

// Lanes in order: one sum whatever the compiler.
static inline double vd_sum(vd x) {
    double lane[VEC], sum = 0;
    vd_store(lane, x);
    for (int i = 0; i < VEC; i++) sum += lane[i];
    return sum;
}

static inline float vf_sum(vf x) {
    float lane[VEC], sum = 0;
    vf_store(lane, x);
    for (int i = 0; i < VEC; i++) sum += lane[i];
    return sum;
}

static inline float vf_most(vf x) {
    float lane[VEC];
    vf_store(lane, x);
    for (int i = 1; i < VEC; i++) lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    return lane[0];
}

// --- math.h's functions, with fused multiply-adds ---

static inline vf vf_exp(vf x) {
    vf c = vf_min(vf_set(LQ_EXP_MOST), vf_max(vf_set(LQ_EXP_LEAST), x)), f = vf_round(vf_mul(c, vf_set(LQ_LOG2E)));
    vf r = vf_fnma(f, vf_set(LQ_LN2_LO), vf_fnma(f, vf_set(LQ_LN2_HI), c));
    vf p = vf_fma(vf_set(LQ_EXP_4), r, vf_set(LQ_EXP_3));
    p = vf_fma(p, r, vf_set(LQ_EXP_2));
    p = vf_fma(p, r, vf_set(LQ_EXP_1));
    p = vf_fma(p, r, vf_set(LQ_EXP_0));
    p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set(1.0f));
    return vf_pick(vf_less(x, vf_set(LQ_EXP_LEAST)), vf_zero(), vf_scale2(p, f));
}

// 2^t of t up to 0, within 1 ulp; exact at whole numbers. Below the least normal number 0; NaN stays NaN.
static inline vf vf_exp2(vf t) {
    vf f = vf_round(t), r = vf_sub(t, f), p = vf_fma(vf_set(LQ_EXP2_5), r, vf_set(LQ_EXP2_4));
    p = vf_fma(p, r, vf_set(LQ_EXP2_3));
    p = vf_fma(p, r, vf_set(LQ_EXP2_2));
    p = vf_fma(p, r, vf_set(LQ_EXP2_1));
    p = vf_fma(p, r, vf_set(LQ_EXP2_0));
    p = vf_fma(p, r, vf_set(1.0f));
    return vf_pick(vf_less(t, vf_set(LQ_EXP2_LEAST)), vf_zero(), vf_scale2(p, f));
}

// x / (1 + exp(-a x))
static inline vf vf_silu(vf x, vf a) { return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_minus(vf_mul(a, x))))); }
static inline vf vf_sigmoid(vf x) { return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), vf_exp(vf_minus(x)))); }

static inline vf vf_tanh(vf x) {
    vf z = vf_mul(x, x), a = vf_abs(x), p = vf_fma(vf_set(LQ_TANH_4), z, vf_set(LQ_TANH_3));
    p = vf_fma(p, z, vf_set(LQ_TANH_2));
    p = vf_fma(p, z, vf_set(LQ_TANH_1));
    p = vf_fma(p, z, vf_set(LQ_TANH_0));
    vf small = vf_fma(vf_mul(p, z), x, x);
    vf big = vf_sub(vf_set(1.0f), vf_div(vf_set(2.0f), vf_add(vf_exp(vf_add(a, a)), vf_set(1.0f))));
    return vf_pick(vf_less(a, vf_set(LQ_TANH_CUT)), small, vf_or(big, vf_and(x, vf_set(-0.0f))));
}

static inline vf vf_phi(vf x) {
    vf a = vf_mul(vf_abs(x), vf_set(0.707106781f)), z = vf_mul(a, a), half = vf_set(0.5f), one = vf_set(1.0f);
    vf t = vf_div(one, vf_fma(half, a, one)), p = vf_set(lq_erf_p[5]), q = vf_set(lq_erf_q[7]);
    for (int i = 4; i >= 0; i--) p = vf_fma(p, z, vf_set(lq_erf_p[i]));
    for (int i = 6; i >= 0; i--) q = vf_fma(q, t, vf_set(lq_erf_q[i]));
    vf middle = vf_mul(half, vf_mul(p, a)), tail = vf_mul(half, vf_mul(vf_mul(vf_exp(vf_minus(z)), t), q));
    vm below = vf_less(x, vf_zero());
    vf near = vf_pick(below, vf_sub(half, middle), vf_add(half, middle)), far = vf_pick(below, tail, vf_sub(one, tail));
    return vf_pick(vf_less(a, vf_set(LQ_ERF_CUT)), near, far);
}
#endif
