// pack.c: weights between layouts, bit-exactly, their rows and the sums of their codes. Pure: it owns nothing and
// cannot fail; sizes are checked where a file is opened (lq_layout_sizes). Where things lie, formats/layout.c knows;
// the layouts are drawn in docs/KERNELS.md.
#include "kernels/pack.h"
#include <string.h>

// What layout x86 has in memory alone: 8-bit floats with scales, as it has codes of 8 bits, and plain elements.
static bool is_number(const lq_wtype *t) {
    const bool small = t->elem == LQ_E4M3 || t->elem == LQ_E5M2;
    return t->kind == LQ_W_PLAIN ? small || t->elem == LQ_BF16 || t->elem == LQ_F16 || t->elem == LQ_F32
                                 : t->kind == LQ_W_FLOAT && small && t->bits == 8 && !t->dq;
}

static bool is_plain(lq_layout layout, const lq_wtype *t) {
    return layout == LQ_X86 && t->kind == LQ_W_PLAIN && is_number(t);
}

// The bytes of plain elements: codes of 8 bits without scales, a word each group.
static lq_weight bytes_of(const lq_weight *w) {
    lq_weight b = *w;
    b.type = (lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 4};
    b.k = w->k * (int64_t)lq_dtype_size(w->type.elem);
    b.scale = NULL;
    return b;
}

size_t lq_x86_row(const lq_wtype *t, int64_t k) {
    const lq_weight w = {.type = *t, .k = k}, b = t->kind == LQ_W_PLAIN ? bytes_of(&w) : w;
    return (size_t)lq_laid_wide(LQ_X86, &b.type, b.k);
}

bool lq_pack_sizes(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out) {
    if (layout != LQ_X86 || !is_number(t)) return lq_layout_sizes(layout, t, n, k, out);
    if (!lq_weight_sizes(t, n, k, out)) return false;
    const size_t rows = (size_t)lq_laid_rows(layout, n), groups = (size_t)lq_weight_groups(t, k);
    const bool apart = t->kind == LQ_W_PLAIN || t->rows > 1; // no scale is a row's own
    return lq_mul_size(rows, lq_x86_row(t, k), &out->q) &&
           (apart || lq_mul_size(rows, groups * lq_dtype_size(t->scale), &out->scale));
}

bool lq_pack_has(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k) {
    lq_weight_size size;
    return lq_pack_sizes(layout, t, n, k, &size);
}

enum { TASK = 1 << 16, SHARES = 8 }; // bytes of codes in any at least; tasks of a thread, where there are such

typedef struct pack_job {
    const lq_weight *w;
    lq_weight_out dst;
    lq_laid to;
    int64_t bands, each; // of a task
} pack_job;

static void bands_task(void *arg, int task, int worker) {
    (void)worker;
    const pack_job *j = arg;
    const int64_t first = task * j->each, end = first + j->each < j->bands ? first + j->each : j->bands;
    for (int64_t b = first; b < end; b++) lq_band_pack(j->w, b, &j->to, j->dst, b);
}

void lq_pack(const lq_weight *src, lq_layout to, lq_weight_out dst, lq_pool *pool) {
    lq_weight_size size;
    if (!lq_pack_sizes(to, &src->type, src->n, src->k, &size)) return;
    const bool same = src->layout == to;
    if (same) memcpy(dst.q, src->q, size.q);
    if (same && size.zero) memcpy(dst.zero, src->zero, size.zero);
    if ((same && size.scale) || src->type.rows > 1) memcpy(dst.scale, src->scale, size.scale); // of one order in all
    if (same) return;
    const lq_weight bytes = bytes_of(src);
    if (is_plain(to, &src->type) || is_plain(src->layout, &src->type)) src = &bytes;
    pack_job j = {.w = src, .dst = dst, .to = lq_laid_of(to, &src->type, src->n, src->k)};
    const int64_t band = LQ_BAND * (int64_t)j.to.row_bytes;
    j.bands = (lq_laid_rows(to, src->n) + LQ_BAND - 1) / LQ_BAND;
    j.each = j.bands / ((pool ? lq_pool_threads(pool) : 1) * SHARES);
    if (j.each * band < TASK) j.each = TASK / band + 1;
    const int tasks = (int)((j.bands + j.each - 1) / j.each);
    if (pool) lq_pool_run(pool, bands_task, &j, tasks);
    else for (int t = 0; t < tasks; t++) bands_task(&j, t, 0);
}

// What codes of one group mean, before the scale.
static void codes_widen(const lq_weight *w, const uint8_t *code, int64_t count, float z, float *dst) {
    const float *table = w->type.book ? lq_wtype_table(&w->type) : w->table;
    if (w->type.kind == LQ_W_FLOAT) lq_dtypes[w->type.elem].to_f32(code, dst, (size_t)count);
    else if (w->type.kind == LQ_W_TABLE)
        for (int64_t i = 0; i < count; i++) dst[i] = table[code[i]];
    else
        for (int64_t i = 0; i < count; i++) dst[i] = (float)code[i] - z;
}

static void plain_row(const lq_weight *w, int64_t row, float *dst) {
    const lq_weight b = bytes_of(w);
    const lq_laid l = lq_laid_of(LQ_X86, &b.type, b.n, b.k);
    const int64_t size = b.k / w->k;
    for (int64_t at = 0; at < b.k; at += LQ_PIECE) {
        lq_piece p;
        lq_codes_get(&l, w->q, row - row % 16 + row % 8, at, p);
        lq_dtypes[w->type.elem].to_f32(p[row % 16 / 8], dst + at / size,
                                       (size_t)((b.k - at < LQ_PIECE ? b.k - at : LQ_PIECE) / size));
    }
}

void lq_weight_row(const lq_weight *w, int64_t row, float *dst) {
    if (w->layout == LQ_ANY) {
        lq_weight_row_any(w, row, dst);
        return;
    }
    if (is_plain(w->layout, &w->type)) {
        plain_row(w, row, dst);
        return;
    }
    const lq_wtype *t = &w->type;
    const lq_laid l = lq_laid_of(w->layout, t, w->n, w->k);
    const int64_t group = t->group ? t->group : w->k;
    lq_piece p;
    for (int64_t at = 0, end; at < w->k; at = end) { // within one piece and one group
        const int64_t first = at / LQ_PIECE * LQ_PIECE, g = at / group;
        float part[LQ_PIECE];
        if (at == first) lq_codes_get(&l, w->q, row - row % 16 + row % 8, first, p);
        end = first + LQ_PIECE < (g + 1) * group ? first + LQ_PIECE : (g + 1) * group;
        end = end < w->k ? end : w->k;
        const float s = lq_scale_get(w, lq_laid_scale(&l, row, g));
        const float z = t->asym ? (float)lq_zero_get(&l, w->zero, row, g) : (float)(1 << (t->bits - 1));
        codes_widen(w, p[row % 16 / 8] + (at - first), end - at, z, part);
        for (int64_t c = at; c < end; c++) dst[w->perm ? w->perm[c] : c] = part[c - at] * s;
    }
    for (int32_t o = 0; o < w->outliers; o++)
        dst[w->perm ? w->perm[w->outlier[o]] : w->outlier[o]] = lq_bf16_f32(w->outlier_w[row * w->outliers + o]);
}

void lq_code_sums(const lq_weight *w, int32_t *sum) {
    const lq_wtype *t = &w->type;
    const lq_laid l = lq_laid_of(w->layout, t, w->n, w->k);
    const int64_t group = t->group ? t->group : w->k;
    for (int64_t row = 0; row < w->n; row += row % 8 < 7 ? 1 : 9) {
        int64_t total[2] = {0, 0};
        for (int64_t first = 0; first < w->k; first += LQ_PIECE) {
            lq_piece p;
            lq_codes_get(&l, w->q, row, first, p);
            for (int64_t c = 0; c < LQ_PIECE && first + c < w->k; c++)
                for (int h = 0; h < 2 && row + 8 * h < w->n; h++) total[h] += p[h][c];
        }
        for (int h = 0; h < 2 && row + 8 * h < w->n; h++) {
            for (int64_t g = 0; g < l.groups; g++) {
                const int64_t count = g + 1 < l.groups ? group : w->k - g * group;
                total[h] -= count * (t->asym ? lq_zero_get(&l, w->zero, row + 8 * h, g) : 1 << (t->bits - 1));
            }
            sum[row + 8 * h] = (int32_t)total[h];
        }
    }
}
