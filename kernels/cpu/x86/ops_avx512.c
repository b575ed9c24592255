// ops_avx512.c: norm, rope, glu, scale, add and the passes of sample with AVX-512; fills the table of that ISA. Owns nothing.
//
// As in ref.c a row is one task. Sums are f64 in 16 lanes (column mod 16) that are added at the end, lane 0 to 15.
#include "kernels/cpu/sample.h"
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/math_avx512.h"
#include "kernels/cpu/x86/slots_avx512.h"
#include <math.h>

typedef struct job { lq_dev *d; const void *a; } job;
static void rows_run(lq_dev *d, lq_task *fn, const void *a, int rows) { lq_pool_run(d->pool, fn, &(job){d, a}, rows); }

static inline __m512d low_pd(__m512 x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
static inline __m512d high_pd(__m512 x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
static inline __m512 join_pd(__m512d low, __m512d high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}
static double lanes_add(__m512d low, __m512d high) {
    double lane[16], sum = 0;
    _mm512_storeu_pd(lane, low);
    _mm512_storeu_pd(lane + 8, high);
    for (int i = 0; i < 16; i++) sum += lane[i];
    return sum;
}

// --- norm ---

static double mean_of(const float *x, int n) {
    __m512d a = _mm512_setzero_pd(), b = a;
    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_maskz_loadu_ps(tail512(n - i), x + i);
        a = _mm512_add_pd(a, low_pd(v));
        b = _mm512_add_pd(b, high_pd(v));
    }
    return lanes_add(a, b) / n;
}

// The squares of x - mean; what delta holds is added to x on the way.
static double squares(float *x, const float *delta, int n, double mean) {
    __m512d a = _mm512_setzero_pd(), b = a, m = _mm512_set1_pd(mean);
    for (int i = 0; i < n; i += 16) {
        __mmask16 k = tail512(n - i);
        __m512 v = _mm512_maskz_loadu_ps(k, x + i);
        if (delta) {
            v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(k, delta + i));
            _mm512_mask_storeu_ps(x + i, k, v);
        }
        __m512d low = _mm512_maskz_sub_pd((__mmask8)k, low_pd(v), m), high = _mm512_maskz_sub_pd((__mmask8)(k >> 8), high_pd(v), m);
        a = _mm512_fmadd_pd(low, low, a);
        b = _mm512_fmadd_pd(high, high, b);
    }
    return lanes_add(a, b);
}

static void norm_row(void *arg, int row, int worker) {
    const job *j = arg;
    const lq_norm_args *a = j->a;
    (void)worker;
    int n = a->x.cols;
    float *x = lq_mat_row(&a->x, row), *y = lq_mat_row(&a->y, row);
    const float *delta = a->delta ? lq_mat_row(a->delta, row) : NULL;
    double mean = 0;
    if (a->kind == LQ_NORM_LAYER) {
        for (int i = 0; delta && i < n; i++) x[i] += delta[i];
        delta = NULL;
        mean = mean_of(x, n);
    }
    double sum = squares(x, delta, n, mean);
    __m512 by = SET((float)(1 / sqrt((a->kind == LQ_NORM_L2 ? sum : sum / n) + a->eps))), one = SET(a->plus_one ? 1.0f : 0.0f);
    __m512d m = _mm512_set1_pd(mean);
    for (int i = 0; i < n; i += 16) {
        __mmask16 k = tail512(n - i);
        __m512 v = _mm512_maskz_loadu_ps(k, x + i);
        if (mean != 0) v = join_pd(_mm512_sub_pd(low_pd(v), m), _mm512_sub_pd(high_pd(v), m));
        v = _mm512_mul_ps(v, by);
        if (a->gamma) v = _mm512_mul_ps(v, _mm512_add_ps(one, _mm512_maskz_loadu_ps(k, a->gamma + i)));
        if (a->beta) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(k, a->beta + i));
        _mm512_mask_storeu_ps(y + i, k, v);
    }
    lq_cpu_row_act(j->d, y, a->act, row);
}
static void norm(lq_dev *d, const lq_norm_args *a) { rows_run(d, norm_row, a, a->x.rows); }

// --- rope ---

static void sincos512(__m512d x, __m512d *sine, __m512d *cosine) {
    __m512d rounder = _mm512_set1_pd(LQ_ROUNDER_D), t = _mm512_fmadd_pd(x, _mm512_set1_pd(LQ_2_PI), rounder), f = _mm512_sub_pd(t, rounder);
    __m512d r = _mm512_fnmadd_pd(f, _mm512_set1_pd(LQ_PIO2_B), _mm512_fnmadd_pd(f, _mm512_set1_pd(LQ_PIO2_A), x)), z = _mm512_mul_pd(r, r);
    __m512d s = _mm512_set1_pd(lq_sin_c[5]), c = _mm512_set1_pd(lq_cos_c[6]);
    for (int i = 4; i >= 0; i--) s = _mm512_fmadd_pd(s, z, _mm512_set1_pd(lq_sin_c[i]));
    for (int i = 5; i >= 0; i--) c = _mm512_fmadd_pd(c, z, _mm512_set1_pd(lq_cos_c[i]));
    s = _mm512_mul_pd(s, r);
    __m512i q = _mm512_castpd_si512(t), one = _mm512_set1_epi64(1), two = _mm512_set1_epi64(2);
    __mmask8 odd = _mm512_test_epi64_mask(q, one);
    __m512d a = _mm512_mask_mov_pd(s, odd, c), b = _mm512_mask_mov_pd(c, odd, s), minus = _mm512_set1_pd(-0.0);
    *sine = _mm512_mask_xor_pd(a, _mm512_test_epi64_mask(q, two), a, minus);
    *cosine = _mm512_mask_xor_pd(b, _mm512_test_epi64_mask(_mm512_add_epi64(q, one), two), b, minus);
}

// Rotates up to 16 pairs of each head: (x[i], x[i + far]), or neighbours.
static void heads_rotate(const lq_rope_args *a, float *x, const float *end, int i, int n, __m512 s, __m512 c) {
    int half = a->dim / 2;
    if (a->interleaved) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        __mmask16 k = tail512(2 * n), m = n > 8 ? tail512(2 * n - 16) : 0;
        for (x += 2 * i; x < end; x += a->head_dim) {
            __m512 p = _mm512_maskz_loadu_ps(k, x), q = _mm512_maskz_loadu_ps(m, x + 16);
            __m512 u = _mm512_permutex2var_ps(p, even, q), v = _mm512_permutex2var_ps(p, odd, q);
            __m512 y = _mm512_fnmadd_ps(v, s, _mm512_mul_ps(u, c)), z = _mm512_fmadd_ps(u, s, _mm512_mul_ps(v, c));
            _mm512_mask_storeu_ps(x, k, _mm512_permutex2var_ps(y, low, z));
            _mm512_mask_storeu_ps(x + 16, m, _mm512_permutex2var_ps(y, high, z));
        }
        return;
    }
    __mmask16 k = tail512(n);
    for (x += i; x < end; x += a->head_dim) {
        __m512 u = _mm512_maskz_loadu_ps(k, x), v = _mm512_maskz_loadu_ps(k, x + half);
        _mm512_mask_storeu_ps(x, k, _mm512_fnmadd_ps(v, s, _mm512_mul_ps(u, c)));
        _mm512_mask_storeu_ps(x + half, k, _mm512_fmadd_ps(u, s, _mm512_mul_ps(v, c)));
    }
}

static void rope_row(void *arg, int row, int worker) {
    const lq_rope_args *a = ((job *)arg)->a;
    (void)worker;
    __m512 pos = SET((float)a->rows->pos[row]), by = SET(a->mscale != 0 ? a->mscale : 1.0f);
    for (int i = 0; i < a->dim / 2; i += 16) {
        int n = a->dim / 2 - i < 16 ? a->dim / 2 - i : 16;
        __m512 angle = _mm512_mul_ps(pos, _mm512_maskz_loadu_ps(tail512(n), a->inv_freq + i));
        __m512d s[2], c[2];
        sincos512(low_pd(angle), &s[0], &c[0]);
        sincos512(high_pd(angle), &s[1], &c[1]);
        __m512 sine = _mm512_mul_ps(join_pd(s[0], s[1]), by), cosine = _mm512_mul_ps(join_pd(c[0], c[1]), by);
        float *q = lq_mat_row(&a->q, row), *k = a->k.p ? lq_mat_row(&a->k, row) : NULL;
        if (a->q.p) heads_rotate(a, q, q + a->q.cols, i, n, sine, cosine);
        if (k) heads_rotate(a, k, k + a->k.cols, i, n, sine, cosine);
    }
}
static void rope(lq_dev *d, const lq_rope_args *a) { rows_run(d, rope_row, a, a->rows->n); }

// --- glu ---

__attribute__((always_inline)) static inline __m512 unary512(const lq_unary fn, __m512 x, __m512 alpha) {
    switch (fn) {
    case LQ_SILU: return silu512(x, alpha);
    case LQ_GELU: return _mm512_mul_ps(x, phi512(x));
    case LQ_GELU_TANH: {
        __m512 cube = _mm512_mul_ps(_mm512_mul_ps(_mm512_mul_ps(SET(0.044715f), x), x), x), u = _mm512_add_ps(x, cube);
        return _mm512_div_ps(x, _mm512_add_ps(SET(1.0f), exp512(_mm512_mul_ps(SET(-1.59576912f), u))));
    }
    case LQ_RELU: return _mm512_max_ps(_mm512_setzero_ps(), x);
    case LQ_RELU2: return _mm512_mul_ps(_mm512_max_ps(_mm512_setzero_ps(), x), _mm512_max_ps(_mm512_setzero_ps(), x));
    case LQ_SIGMOID: return sigmoid512(x);
    case LQ_TANH: return tanh512(x);
    }
    return x;
}

__attribute__((always_inline)) static inline void glu_cols(const lq_unary fn, const lq_glu_args *a, const float *gate, const float *up,
                                                           float *y) {
    __m512 alpha = SET(a->alpha != 0 ? a->alpha : 1.0f), most = SET(a->clamp), add = SET(a->up_add);
    for (int i = 0; i < a->y.cols; i += 16) {
        __mmask16 k = tail512(a->y.cols - i);
        __m512 g = _mm512_maskz_loadu_ps(k, gate + i), u = up ? _mm512_maskz_loadu_ps(k, up + i) : _mm512_setzero_ps();
        if (a->clamp != 0) {
            g = _mm512_min_ps(most, g);
            u = _mm512_max_ps(negate512(most), _mm512_min_ps(most, u));
        }
        g = unary512(fn, g, alpha);
        _mm512_mask_storeu_ps(y + i, k, up ? _mm512_mul_ps(g, _mm512_add_ps(u, add)) : g);
    }
}

static void glu_row(void *arg, int row, int worker) {
    const job *j = arg;
    const lq_glu_args *a = j->a;
    (void)worker;
    const float *gate = lq_mat_row(&a->gate, row), *up = a->up.p ? lq_mat_row(&a->up, row) : NULL;
    float *y = lq_mat_row(&a->y, row);
    switch (a->fn) {
    case LQ_SILU: glu_cols(LQ_SILU, a, gate, up, y); break;
    case LQ_GELU: glu_cols(LQ_GELU, a, gate, up, y); break;
    case LQ_GELU_TANH: glu_cols(LQ_GELU_TANH, a, gate, up, y); break;
    case LQ_RELU: glu_cols(LQ_RELU, a, gate, up, y); break;
    case LQ_RELU2: glu_cols(LQ_RELU2, a, gate, up, y); break;
    case LQ_SIGMOID: glu_cols(LQ_SIGMOID, a, gate, up, y); break;
    case LQ_TANH: glu_cols(LQ_TANH, a, gate, up, y); break;
    }
    lq_cpu_row_act(j->d, y, a->act, row);
}
static void glu(lq_dev *d, const lq_glu_args *a) { rows_run(d, glu_row, a, a->y.rows); }

// --- scale, add ---

static void scale_row(void *arg, int row, int worker) {
    const lq_scale_args *a = ((job *)arg)->a;
    (void)worker;
    const float *x = lq_mat_row(&a->x, row);
    float *y = lq_mat_row(&a->y, row);
    __m512 by = SET(a->scale), cap = SET(a->cap);
    for (int i = 0; i < a->x.cols; i += 16) {
        __mmask16 k = tail512(a->x.cols - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, x + i), by);
        _mm512_mask_storeu_ps(y + i, k, a->cap != 0 ? _mm512_mul_ps(tanh512(_mm512_div_ps(v, cap)), cap) : v);
    }
}
static void scale(lq_dev *d, const lq_scale_args *a) { rows_run(d, scale_row, a, a->x.rows); }

static void add_row(void *arg, int row, int worker) {
    const lq_add_args *a = ((job *)arg)->a;
    (void)worker;
    const float *x = lq_mat_row(&a->x, row);
    float *y = lq_mat_row(&a->y, row);
    __m512 by = SET(a->scale != 0 ? a->scale : 1.0f);
    for (int i = 0; i < a->x.cols; i += 16) {
        __mmask16 k = tail512(a->x.cols - i);
        _mm512_mask_storeu_ps(y + i, k, _mm512_fmadd_ps(_mm512_maskz_loadu_ps(k, x + i), by, _mm512_maskz_loadu_ps(k, y + i)));
    }
}
static void add(lq_dev *d, const lq_add_args *a) { rows_run(d, add_row, a, a->x.rows); }

// --- sample ---

static float most(const float *x, int n) {
    __m512 best = SET(-INFINITY);
    __mmask16 nan = 0;
    for (int i = 0; i < n; i += 16) {
        __m512 v = _mm512_mask_loadu_ps(SET(-INFINITY), tail512(n - i), x + i);
        nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        best = _mm512_max_ps(v, best);
    }
    return nan ? NAN : _mm512_reduce_max_ps(best);
}

static double exp_sum(const float *x, int n, float m) {
    __m512d a = _mm512_setzero_pd(), b = a;
    for (int i = 0; i < n; i += 16) {
        __mmask16 k = tail512(n - i);
        __m512 e = _mm512_maskz_mov_ps(k, exp512(_mm512_sub_ps(_mm512_maskz_loadu_ps(k, x + i), SET(m))));
        a = _mm512_add_pd(a, low_pd(e));
        b = _mm512_add_pd(b, high_pd(e));
    }
    return lanes_add(a, b);
}

static void sample(lq_dev *d, const lq_sample_args *a) {
    static const lq_logit_passes passes = {most, exp_sum};
    lq_sample_with(d, a, &passes);
}

void lq_cpu_avx512_slots(lq_ops *o) {
    o->norm = norm;
    o->rope = rope;
    o->attn = lq_attn_avx512;
    o->glu = glu;
    o->scale = scale;
    o->add = add;
    o->sample = sample;
}
