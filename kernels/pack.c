// pack.c: weights between layouts, bit-exactly both ways. Pure: it owns nothing and cannot fail; sizes
// are checked where a file is opened (lq_layout_sizes). The x86 layout is drawn in docs/KERNELS.md. Words
// are little-endian, as files are.
#include "kernels/pack.h"
#include <string.h>

bool lq_pack_sizes(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out) {
    return lq_layout_sizes(layout, t, n, k, out);
}

bool lq_pack_has(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k) {
    lq_weight_size size;
    return lq_layout_sizes(layout, t, n, k, &size);
}

// --- x86: a word is 32 bits of one row: 8 codes of 4 bits (the low nibbles are k 0-3, the high
// ones k 4-7) or 4 codes of 8 ---

static uint32_t spread(uint32_t x) { // 4 nibbles to the low nibbles of 4 bytes
    x = (x | x << 8) & 0x00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f;
}

static uint32_t gather(uint32_t x) { // the low nibbles of 4 bytes side by side
    x = (x | x >> 4) & 0x00ff00ff;
    return (x | x >> 8) & 0xffff;
}

static uint32_t word_x86(uint32_t any, int bits) {
    return bits == 8 ? any : spread(any & 0xffff) | spread(any >> 16) << 4;
}

static uint32_t word_any(uint32_t x86, int bits) {
    return bits == 8 ? x86 : gather(x86 & 0x0f0f0f0f) | gather(x86 >> 4 & 0x0f0f0f0f) << 16;
}

typedef struct pack_job {
    const lq_weight *w;
    lq_weight_out to;
    int64_t steps, unit;    // words of a row in x86; the padded group
    int64_t groups;         // with a scale
    size_t row_bytes, zero_bytes, scale_size; // of layout any
} pack_job;

static pack_job job_of(const lq_weight *w, lq_weight_out to) {
    const lq_wtype *t = &w->type;
    pack_job j = {.w = w, .to = to, .unit = lq_x86_group(t), .groups = lq_weight_groups(t, w->k)};
    j.steps = (w->k + j.unit - 1) / j.unit * j.unit * t->bits / 32;
    j.row_bytes = lq_code_row_bytes(t->bits, w->k);
    j.zero_bytes = lq_code_row_bytes(t->bits, j.groups);
    j.scale_size = lq_dtype_size(t->scale);
    return j;
}

// Bits of word s that are columns below k.
static uint32_t word_keep(const pack_job *j, int64_t s) {
    int64_t bits = (j->w->k - s * (32 / j->w->type.bits)) * j->w->type.bits;
    return bits >= 32 ? UINT32_MAX : bits <= 0 ? 0 : (1u << bits) - 1;
}

// A whole word of the zero point of group g, as 32 / bits codes.
static uint32_t word_zero(const pack_job *j, int64_t row, int64_t g) {
    const lq_wtype *t = &j->w->type;
    uint32_t z = 1u << (t->bits - 1);
    if (t->asym) z = lq_code_get(j->w->zero + (size_t)row * j->zero_bytes, t->bits, g);
    return z * (t->bits == 4 ? 0x11111111u : 0x01010101u);
}

// Rows behind n: scale 0 and code = zero point, so that they are 0 whatever is done with them.
static void tile_to_x86(void *arg, int task, int worker) {
    (void)worker;
    const pack_job *j = arg;
    const lq_wtype *t = &j->w->type;
    const size_t tile = (size_t)task, cells = LQ_X86_ROWS * (size_t)j->groups;
    uint8_t *q = (uint8_t *)j->to.q + tile * (size_t)j->steps * 64;
    for (size_t r = 0; r < LQ_X86_ROWS; r++) {
        const int64_t row = (int64_t)(tile * LQ_X86_ROWS + r);
        const bool real = row < j->w->n;
        const uint8_t *src = (const uint8_t *)j->w->q + (size_t)row * j->row_bytes;
        for (int64_t s = 0; s < j->steps; s++) {
            uint32_t v = real || t->asym ? 0 : t->bits == 4 ? 0x88888888u : 0x80808080u;
            if (real) {
                const uint32_t keep = word_keep(j, s);
                if (keep) memcpy(&v, src + s * 4, 4);
                if (keep != UINT32_MAX) v = (v & keep) | (word_zero(j, row, j->groups - 1) & ~keep);
                v = word_x86(v, t->bits);
            }
            memcpy(q + (size_t)s * 64 + r * 4, &v, 4);
        }
        for (size_t g = 0; g < (size_t)j->groups; g++) {
            uint8_t *scale = (uint8_t *)j->to.scale + (tile * cells + g * LQ_X86_ROWS + r) * j->scale_size;
            if (real) memcpy(scale, (const uint8_t *)j->w->scale + ((size_t)row * (size_t)j->groups + g) *
                             j->scale_size, j->scale_size);
            else memset(scale, 0, j->scale_size);
            if (!t->asym) continue;
            const uint8_t *zero = j->w->zero + (size_t)row * j->zero_bytes;
            ((uint8_t *)j->to.zero)[tile * cells + g * LQ_X86_ROWS + r] = real
                ? (uint8_t)lq_code_get(zero, t->bits, (int64_t)g) : 0;
        }
    }
}

static void tile_to_any(void *arg, int task, int worker) {
    (void)worker;
    const pack_job *j = arg;
    const lq_wtype *t = &j->w->type;
    const size_t tile = (size_t)task, cells = LQ_X86_ROWS * (size_t)j->groups;
    const uint8_t *q = (const uint8_t *)j->w->q + tile * (size_t)j->steps * 64;
    for (size_t r = 0; r < LQ_X86_ROWS && (int64_t)(tile * LQ_X86_ROWS + r) < j->w->n; r++) {
        const size_t row = tile * LQ_X86_ROWS + r;
        uint8_t *dst = (uint8_t *)j->to.q + row * j->row_bytes;
        for (size_t s = 0; s < j->row_bytes / 4; s++) {
            uint32_t v;
            memcpy(&v, q + s * 64 + r * 4, 4);
            v = word_any(v, t->bits) & word_keep(j, (int64_t)s);
            memcpy(dst + s * 4, &v, 4);
        }
        if (t->asym) memset((uint8_t *)j->to.zero + row * j->zero_bytes, 0, j->zero_bytes);
        for (size_t g = 0; g < (size_t)j->groups; g++) {
            const size_t cell = tile * cells + g * LQ_X86_ROWS + r;
            memcpy((uint8_t *)j->to.scale + (row * (size_t)j->groups + g) * j->scale_size,
                   (const uint8_t *)j->w->scale + cell * j->scale_size, j->scale_size);
            if (t->asym) lq_code_set((uint8_t *)j->to.zero + row * j->zero_bytes, t->bits, (int64_t)g,
                                     j->w->zero[cell]);
        }
    }
}

void lq_pack(const lq_weight *src, lq_layout to, lq_weight_out dst, lq_pool *pool) {
    if (src->layout == to) {
        lq_weight_size size;
        if (!lq_pack_sizes(to, &src->type, src->n, src->k, &size)) return;
        memcpy(dst.q, src->q, size.q);
        if (size.scale) memcpy(dst.scale, src->scale, size.scale);
        if (size.zero) memcpy(dst.zero, src->zero, size.zero);
        return;
    }
    pack_job j = job_of(src, dst);
    lq_task *fn = to == LQ_X86 ? tile_to_x86 : tile_to_any;
    const int tiles = (int)((src->n + LQ_X86_ROWS - 1) / LQ_X86_ROWS);
    if (pool) lq_pool_run(pool, fn, &j, tiles);
    else for (int t = 0; t < tiles; t++) fn(&j, t, 0);
}

void lq_weight_row(const lq_weight *w, int64_t row, float *dst) {
    if (w->layout == LQ_ANY) {
        lq_weight_row_any(w, row, dst);
        return;
    }
    const lq_wtype *t = &w->type;
    const pack_job j = job_of(w, (lq_weight_out){0});
    const size_t tile = (size_t)row / LQ_X86_ROWS, r = (size_t)row % LQ_X86_ROWS;
    const uint8_t *q = (const uint8_t *)w->q + tile * (size_t)j.steps * 64 + r * 4;
    const int per = 32 / t->bits;
    for (int64_t c = 0; c < w->k; c++) {
        const size_t cell = (tile * (size_t)j.groups + (size_t)(t->group ? c / t->group : 0)) * LQ_X86_ROWS + r;
        const int i = (int)(c % per);
        const uint8_t byte = q[(size_t)(c / per) * 64 + (size_t)(i & 3)];
        const int code = t->bits == 8 ? byte : i < 4 ? byte & 15 : byte >> 4;
        const int zero = t->asym ? w->zero[cell] : 1 << (t->bits - 1);
        dst[w->perm ? w->perm[c] : c] = (float)(code - zero) * lq_scale_get(w, cell);
    }
    for (int32_t o = 0; o < w->outliers; o++)
        dst[w->perm ? w->perm[w->outlier[o]] : w->outlier[o]] = lq_bf16_f32(w->outlier_w[row * w->outliers + o]);
}

void lq_code_sums(const lq_weight *w, int32_t *sum) {
    const lq_wtype *t = &w->type;
    const pack_job j = job_of(w, (lq_weight_out){0});
    const int per = 32 / t->bits;
    for (int64_t row = 0; row < w->n; row++) {
        const size_t tile = (size_t)row / LQ_X86_ROWS, r = (size_t)row % LQ_X86_ROWS;
        const uint8_t *any = (const uint8_t *)w->q + (size_t)row * j.row_bytes;
        const uint8_t *x86 = (const uint8_t *)w->q + tile * (size_t)j.steps * 64 + r * 4;
        int64_t total = 0;
        for (int64_t c = 0; c < w->k; c++) {
            const int64_t g = t->group ? c / t->group : 0;
            int code, zero = 1 << (t->bits - 1);
            if (w->layout == LQ_ANY) {
                code = t->bits == 8 ? any[c] : (int)lq_code_get(any, t->bits, c);
                if (t->asym) zero = (int)lq_code_get(w->zero + (size_t)row * j.zero_bytes, t->bits, g);
            } else {
                const uint8_t byte = x86[(size_t)(c / per) * 64 + (size_t)(c & 3)];
                code = t->bits == 8 ? byte : c % 8 < 4 ? byte & 15 : byte >> 4;
                if (t->asym) zero = w->zero[(tile * (size_t)j.groups + (size_t)g) * LQ_X86_ROWS + r];
            }
            total += code - zero;
        }
        sum[row] = (int32_t)total;
    }
}
