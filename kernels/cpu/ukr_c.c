// ukr_c.c: the micro-kernels in portable C: what every other row is measured against. They
// own nothing and refuse nothing.
//
//   I8 x int     dot is exact over a cell of the activations, or over LQ_I8_SPAN k where both have one scale for the
//   row;
//                y = fma((float)dot, wscale * ascale, y), in order, from +0
//   I8 x table   the same of a codebook's whole numbers, wscale being times their unit
//   f32 x float  16 sums by k mod 16, halved 8, 4, 2, 1; one such sum per LQ_K_CUT of k, added in order
#include "kernels/cpu/ukr.h"
#include <math.h>
#include <string.h>

enum { PIECE = 256, ROWS = 16 };

// Where the scale of (row, group) is, and in x86 its zero point.
static size_t cell_of(const lq_weight *w, int64_t row, int64_t g) {
    const size_t groups = (size_t)lq_weight_groups(&w->type, w->k);
    if (!w->type.group) g = 0;
    if (w->layout == LQ_X86)
        return ((size_t)row / LQ_X86_ROWS * groups + (size_t)g) * LQ_X86_ROWS + (size_t)row % LQ_X86_ROWS;
    return (w->type.rows > 1 ? (size_t)row / (size_t)w->type.rows : (size_t)row) * groups + (size_t)g;
}

float lq_ukr_scale(const lq_weight *w, int64_t row, int64_t k) {
    return lq_scale_get(w, cell_of(w, row, w->type.group ? k / w->type.group : 0));
}

static int zero_at(const lq_weight *w, int64_t row, int64_t g) {
    const lq_wtype *t = &w->type;
    if (!t->asym) return 1 << (t->bits - 1);
    if (w->layout == LQ_X86) return w->zero[cell_of(w, row, g)];
    const size_t bytes = lq_code_row_bytes(t->bits, lq_weight_groups(t, w->k));
    return (int)lq_code_get(w->zero + (size_t)row * bytes, t->bits, t->group ? g : 0);
}

// Codes k0..k0+n of a row, in stored order.
static void codes(const lq_weight *w, int64_t row, int64_t k0, int n, uint8_t *dst) {
    const int bits = w->type.bits;
    if (w->layout == LQ_ANY) {
        const uint8_t *src = (const uint8_t *)w->q + (size_t)row * lq_code_row_bytes(bits, w->k);
        if (bits == 8) memcpy(dst, src + k0, (size_t)n);
        else if (bits == 4) for (int i = 0; i < n; i++) dst[i] =
            (uint8_t)(src[(k0 + i) / 2] >> ((k0 + i) % 2 * 4) & 15);
        else for (int i = 0; i < n; i++) dst[i] = (uint8_t)lq_code_get(src, bits, k0 + i);
        return;
    }
    const int64_t unit = lq_x86_group(&w->type), wide = (w->k + unit - 1) / unit * unit;
    const uint8_t *src = (const uint8_t *)w->q + (size_t)(row / LQ_X86_ROWS * wide * bits * 2 + row % LQ_X86_ROWS * 4);
    for (int i = 0, some; i < n; i += some) {
        const int64_t first = (k0 + i) / 32 * 32;
        const int skip = (int)(k0 + i - first);
        uint8_t part[32];
        some = n - i < 32 - skip ? n - i : 32 - skip;
        lq_x86_get(src + first * bits * 2, bits, skip + some, part);
        memcpy(dst + i, part + skip, (size_t)some);
    }
}

// A codebook's whole numbers are codes with a zero point.
static void codes_looked_up(const lq_codebook *b, int n, uint8_t *q) {
    for (int i = 0; i < n; i++) q[i] = (uint8_t)(b->whole[q[i]] + b->most);
}

static void int_row(const lq_weight *w, const lq_act *a, int64_t n, int m0, int rows, float *y, size_t ldy) {
    const lq_codebook *book = lq_wtype_book(&w->type);
    const int G = (int)a->q_row, all = a->apart;
    const int64_t groups = (w->k + G - 1) / G, span = lq_i8_span(w, a) / G;
    float sum[ROWS] = {0};
    int64_t dot[ROWS];
    for (int m = 0; a->more && m < rows; m++) sum[m] = y[(size_t)(m0 + m) * ldy + (size_t)n];
    for (int64_t g = 0; g < groups; g++) {
        const size_t u = (size_t)g * (size_t)all + (size_t)m0;
        const int64_t wg = w->type.group ? g * G / w->type.group : 0;
        const int zero = book ? book->most : zero_at(w, n, wg), end = (int)(w->k - g * G < G ? w->k - g * G : G);
        if (g % span == 0) memset(dot, 0, sizeof dot);
        for (int m = 0; m < rows; m++) dot[m] -= zero * a->sum[u + (size_t)m];
        for (int k = 0; k < end; k += PIECE) {
            uint8_t q[PIECE];
            const int len = end - k < PIECE ? end - k : PIECE;
            codes(w, n, g * G + k, len, q);
            if (book) codes_looked_up(book, len, q);
            for (int m = 0; m < rows; m++) {
                const int8_t *x = (const int8_t *)a->q + (u + (size_t)m) * (size_t)G + k;
                int32_t s = 0, code_sum = -len * zero;
                for (int i = 0; i < len; i++) s += q[i] * x[i];
                for (int i = 0; a->zero && i < len; i++) code_sum += q[i];
                dot[m] += s - (a->zero ? a->zero[m0 + m] * code_sum : 0);
            }
        }
        if ((g + 1) % span && g + 1 < groups) continue;
        const float scale = lq_scale_get(w, cell_of(w, n, wg)) * (book ? book->unit : 1);
        for (int m = 0; m < rows; m++) sum[m] = fmaf((float)dot[m], scale * a->scale[u + (size_t)m], sum[m]);
    }
    for (int m = 0; m < rows; m++) y[(size_t)(m0 + m) * ldy + (size_t)n] = sum[m];
}

static void int_tiles(const lq_weight *w, const lq_act *a, int64_t n0, int64_t n1, int m0, int m1, float *y,
                      size_t ldy) {
    for (int64_t n = n0; n < n1 && n < w->n; n++)
        for (int m = m0; m < m1; m += ROWS) int_row(w, a, n, m, m1 - m < ROWS ? m1 - m : ROWS, y, ldy);
}

void lq_matmul_f32_q8_codedany_c(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                               size_t ldy) {
    int_tiles(w, a, t0, t1, m0, m1, y, ldy);
}

void lq_matmul_f32_q8_codedx86_c(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                               size_t ldy) {
    int_tiles(w, a, t0 * LQ_X86_ROWS, t1 * LQ_X86_ROWS, m0, m1, y, ldy);
}

// Without fused multiply-add: in plain C that is a call.
static float dot(const float *x, const float *w, int n) {
    float s[16] = {0};
    int k = 0;
    for (; k + 16 <= n; k += 16)
        for (int i = 0; i < 16; i++) s[i] += x[k + i] * w[k + i];
    for (int i = 0; k + i < n; i++) s[i] += x[k + i] * w[k + i];
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

static void float_tiles(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                        size_t ldy) {
    const size_t size = lq_dtype_size(w->type.elem), w_row = a->w_row ? a->w_row : (size_t)w->k;
    for (int64_t n = t0; n < t1 && n < w->n; n++)
        for (int64_t k = 0; k < w->k; k += LQ_K_CUT) {
            float row[LQ_K_CUT];
            const int len = (int)(w->k - k < LQ_K_CUT ? w->k - k : LQ_K_CUT);
            const char *from = (const char *)w->q + ((size_t)n * w_row + (size_t)k) * size;
            lq_dtypes[w->type.elem].to_f32(from, row, (size_t)len);
            for (int m = m0; m < m1; m++) {
                float s = dot(lq_mat_row(&a->x, m) + k, row, len), *to = y + (size_t)m * ldy + (size_t)n;
                *to = k || a->more ? *to + s : s;
            }
        }
}

void lq_matmul_f32_f32_f32any_c(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                                size_t ldy) {
    float_tiles(w, a, t0, t1, m0, m1, y, ldy);
}

void lq_matmul_f32_f32_f16any_c(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                                size_t ldy) {
    float_tiles(w, a, t0, t1, m0, m1, y, ldy);
}

void lq_matmul_f32_f32_bf16any_c(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                                 size_t ldy) {
    float_tiles(w, a, t0, t1, m0, m1, y, ldy);
}

static void row_part(const lq_weight *w, int64_t row, int64_t k0, int n, float *dst) {
    const lq_wtype *t = &w->type;
    const size_t size = lq_dtype_size(t->elem);
    if (t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT)
        lq_dtypes[t->elem].to_f32((const char *)w->q + (size_t)(row * w->k + k0) * size, dst, (size_t)n);
    if (t->kind == LQ_W_PLAIN) return;
    uint8_t q[LQ_K_CUT];
    if (t->kind != LQ_W_FLOAT) codes(w, row, k0, n, q);
    for (int i = 0, end; i < n; i = end) {
        const int64_t g = t->group ? (k0 + i) / t->group : 0, last = (g + 1) * t->group;
        const float s = lq_scale_get(w, cell_of(w, row, g));
        end = t->group && last < k0 + n ? (int)(last - k0) : n;
        const int zero = t->kind == LQ_W_INT ? zero_at(w, row, g) : 0;
        for (int j = i; j < end; j++)
            dst[j] = (t->kind == LQ_W_INT ? (float)(q[j] - zero) : t->kind == LQ_W_TABLE ? w->table[q[j]] : dst[j]) * s;
    }
}

void lq_rows_f32_f32_codedany_c(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    (void)row;
    row_part(w, t, k0, (int)(k1 - k0), dst);
}

void lq_rows_f32_f32_codedx86_c(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    for (int64_t r = 0; r < LQ_X86_ROWS && t * LQ_X86_ROWS + r < w->n; r++)
        row_part(w, t * LQ_X86_ROWS + r, k0, (int)(k1 - k0), dst + (size_t)r * row);
}
