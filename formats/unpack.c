// unpack.c: rows of weights that other programs packed, in layout any: codes, scales and zero points keep their
// values, and where columns belong to groups in an order of their own, they are stored group by group with the perm
// that says so. Owns its scratch. Refuses groups that columns cannot have, and scales that are not finite.
#include "formats/container.h"
#include "formats/foreign.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAND = 16 }; // rows that are gathered together: neighbours share the lines of what lies across

typedef struct unpacking {
    const lq_foreign *f;
    const lq_typed *w;
    const lq_pick *p;
    int64_t n, groups;
    const lq_unpacked *out;
    const uint8_t *q, *scale, *zero; // of the matrix
    size_t row, words;      // bytes of a row of codes as ours are, words of it
    uint8_t *scratch;       // [threads][each]
    size_t each;
} unpacking;

static uint32_t word_at(const uint8_t *p, size_t i) {
    uint32_t x;
    memcpy(&x, p + 4 * i, 4);
    return x;
}

// Where the column `c` of eight that take turns stands in its word.
static int turn_of(int64_t c) { return (int)(c % 8 / 2 + c % 2 * 4); }

// --- codes ---

static void codes_down(const unpacking *u, const int64_t *row, int rows, uint8_t *to) {
    for (size_t i = 0; i < u->words; i++)
        for (int r = 0; r < rows; r++)
            memcpy(to + (size_t)r * u->row + 4 * i, u->q + 4 * (i * (size_t)u->w->n + (size_t)row[r]), 4);
}

static void codes_turns(const unpacking *u, const int64_t *row, int rows, uint8_t *to) {
    const size_t wide = (size_t)u->w->n / 8;
    for (int64_t j = 0; j < u->w->k; j += 8) {
        const int count = u->w->k - j < 8 ? (int)(u->w->k - j) : 8;
        for (int r = 0; r < rows; r++) {
            const int shift = 4 * turn_of(row[r]);
            const uint8_t *from = u->q + 4 * ((size_t)j * wide + (size_t)row[r] / 8);
            uint32_t x = 0;
            for (int i = 0; i < count; i++) x |= (word_at(from, (size_t)i * wide) >> shift & 15) << 4 * i;
            memcpy(to + (size_t)r * u->row + j / 2, &x, 4);
        }
    }
}

static void codes_rows(const unpacking *u, const int64_t *row, int rows, uint8_t *to) {
    const size_t k = (size_t)u->w->k;
    const size_t from = u->f->part[LQ_F_CODES]->type == LQ_I32 ? u->row : (k * (size_t)u->w->type.bits + 7) / 8;
    const bool halves = u->f->lie == LQ_LIE_HALVES, signs = u->f->lie == LQ_LIE_SIGNS;
    for (int r = 0; r < rows; r++) {
        uint8_t *at = to + (size_t)r * u->row;
        const uint8_t *codes = u->q + (size_t)row[r] * (signs ? k : halves ? k / 2 : from);
        if (u->row > from) memset(at + from, 0, u->row - from);
        if (halves) for (size_t i = 0; i < k / 2; i++) at[i] = (uint8_t)(codes[i] << 4 | codes[i] >> 4);
        else if (signs) for (size_t i = 0; i < k; i++) at[i] = codes[i] ^ 0x80;
        else memcpy(at, codes, from);
    }
}

static void codes_get(const unpacking *u, const int64_t *row, int rows, uint8_t *to) {
    if (u->f->lie == LQ_LIE_DOWN) codes_down(u, row, rows, to);
    else if (u->f->lie == LQ_LIE_TURNS) codes_turns(u, row, rows, to);
    else codes_rows(u, row, rows, to);
}

// One row's codes in another order; `wide`: room for k bytes.
static void codes_order(const unpacking *u, const uint8_t *from, uint8_t *to, uint8_t *wide) {
    const int bits = u->w->type.bits;
    const int64_t k = u->w->k;
    const int32_t *perm = u->out->perm;
    uint64_t have = 0;
    int fill = 0;
    if (bits == 4) for (int64_t j = 0; j < k; j++) wide[j] = from[j / 2] >> j % 2 * 4 & 15;
    else for (int64_t j = 0; j < k; j++) wide[j] = (uint8_t)lq_code_get(from, bits, j);
    for (int64_t j = 0; j < k; j++) {
        have |= (uint64_t)wide[perm[j]] << fill;
        fill += bits;
        if (fill < 32 && j + 1 < k) continue;
        const uint32_t x = (uint32_t)have;
        memcpy(to, &x, 4);
        to += 4, have >>= 32, fill -= 32;
        if (j + 1 == k && fill > 0) { // what is left is less than a word
            const uint32_t rest = (uint32_t)have;
            memcpy(to, &rest, 4);
        }
    }
}

// --- scales and zero points ---

static uint32_t zero_of(const unpacking *u, int64_t row, int64_t g) {
    const int bits = u->w->type.bits;
    const lq_tensor *z = u->f->part[LQ_F_ZERO];
    const size_t wide = (size_t)z->shape[1];
    if (u->f->lie == LQ_LIE_DOWN) return lq_code_get(u->zero + 4 * (size_t)g * wide, bits, row);
    if (u->f->lie == LQ_LIE_WIDE) return lq_code_get(u->zero + 4 * (size_t)row * wide, bits, g);
    if (u->f->lie == LQ_LIE_TURNS)
        return word_at(u->zero, (size_t)g * wide + (size_t)row / 8) >> 4 * turn_of(row) & 15;
    const size_t bit = (size_t)row * (size_t)bits, word = bit / 32, at = bit % 32;
    uint64_t x = word_at(u->zero, word * wide + (size_t)g);
    if (at + (size_t)bits > 32) x |= (uint64_t)word_at(u->zero, (word + 1) * wide + (size_t)g) << 32;
    return (uint32_t)(x >> at) & ((1u << bits) - 1);
}

// Scale i of those that are codes themselves.
static float scale_outer(const unpacking *u, size_t i) {
    float of, value;
    memcpy(&of, (const char *)u->f->part[LQ_F_OUTER]->data + i / (size_t)u->f->outer * sizeof of, sizeof of);
    memcpy(&value, (const char *)u->f->part[LQ_F_OUTER_TABLE]->data + u->scale[i] * sizeof value, sizeof value);
    const float product = value * of;
    return product + u->f->offset;
}

static void scales_get(const unpacking *u, int64_t row, int64_t g, uint8_t *to) {
    const lq_tensor *s = u->f->part[LQ_F_SCALE];
    const size_t size = lq_dtype_size(u->w->type.scale), groups = (size_t)u->groups;
    const int64_t band = u->w->type.rows > 1 ? row / u->w->type.rows : row;
    size_t at = (size_t)band * groups + (size_t)g;
    if (u->f->lie == LQ_LIE_DOWN || u->f->lie == LQ_LIE_TURNS) at = (size_t)g * (size_t)u->w->n + (size_t)row;
    if (u->f->lie == LQ_LIE_WIDE) at = (size_t)row * (size_t)s->shape[1] + (size_t)g;
    if (s->bytes == size) at = 0;
    if (u->f->part[LQ_F_OUTER]) {
        const float x = scale_outer(u, at);
        memcpy(to, &x, sizeof x);
    } else {
        memcpy(to, u->scale + at * size, size);
    }
    if (u->f->over != 0) {
        float x;
        memcpy(&x, to, sizeof x);
        x /= u->f->over;
        memcpy(to, &x, sizeof x);
    }
}

// --- the whole ---

static void unpack_band(void *arg, int task, int worker) {
    const unpacking *u = arg;
    const lq_wtype *t = &u->w->type;
    const int64_t first = (int64_t)task * BAND;
    const int rows = u->n - first < BAND ? (int)(u->n - first) : BAND;
    const size_t size = lq_dtype_size(t->scale), zeros = lq_code_row_bytes(t->bits, u->groups);
    const size_t band = u->out->rows > 1 ? (size_t)u->out->rows : 1;
    uint8_t *own = u->scratch ? u->scratch + (size_t)worker * u->each : NULL, *q = u->out->q + (size_t)first * u->row;
    int64_t row[BAND];
    for (int r = 0; r < rows; r++) row[r] = lq_pick_row(u->p, first + r);
    codes_get(u, row, rows, u->out->perm ? own : q);
    for (int r = 0; r < rows; r++) {
        const size_t i = (size_t)first + (size_t)r;
        if (u->out->perm) codes_order(u, own + (size_t)r * u->row, q + (size_t)r * u->row, own + BAND * u->row);
        for (int64_t g = 0; g < u->groups && i % band == 0; g++)
            scales_get(u, row[r], g, u->out->scale + (i / band * (size_t)u->groups + (size_t)g) * size);
        if (!t->asym) continue;
        uint8_t *zero = u->out->zero + i * zeros;
        memset(zero, 0, zeros);
        for (int64_t g = 0; g < u->groups; g++)
            lq_code_set(zero, t->bits, g, (zero_of(u, row[r], g) + u->f->less) & ((1u << t->bits) - 1));
    }
}

bool lq_unpack_perm(const lq_ckpt *c, const lq_typed *w) {
    const lq_foreign *f = lq_foreign_of(c, w);
    return f && f->part[LQ_F_ORDER] && c->orders && w->type.group;
}

// Columns by group, those of one group in their order. Each group but the last must be full.
static bool perm_get(const lq_ckpt *c, const unpacking *u, lq_err *err) {
    const lq_tensor *t = u->f->part[LQ_F_ORDER];
    const int64_t k = u->w->k, size = u->w->type.group;
    int64_t *next = malloc((size_t)u->groups * sizeof *next);
    bool ok = next || lq_fail(err, LQ_E_MEMORY, "%s: tensor %s: no memory for its groups", c->path, t->name);
    for (int64_t g = 0; g < u->groups && ok; g++) next[g] = g * size;
    for (int64_t i = 0; i < k && ok; i++) {
        int32_t g;
        memcpy(&g, (const char *)t->data + (size_t)i * sizeof g, sizeof g);
        if (g < 0 || g >= u->groups)
            ok = lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: number %lld is %d, expected 0 to %lld", c->path, t->name,
                         (long long)i, g, (long long)u->groups - 1);
        else if (next[g] >= k || next[g] >= (g + 1) * size)
            ok = lq_fail(err, LQ_E_UNSUPPORTED, "%s: tensor %s: group %d has more columns than the %lld of a group",
                         c->path, t->name, g, (long long)(g + 1 < u->groups ? size : k - g * size));
        else u->out->perm[next[g]++] = (int32_t)i;
    }
    free(next);
    return ok;
}

static bool scales_check(const lq_ckpt *c, const unpacking *u, lq_err *err) {
    const lq_wtype *t = &u->w->type;
    const size_t band = u->out->rows > 1 ? (size_t)u->out->rows : 1, size = lq_dtype_size(t->scale);
    const size_t count = ((size_t)u->n + band - 1) / band * (size_t)u->groups;
    float x[256];
    for (size_t at = 0; at < count; at += 256) {
        const size_t n = count - at < 256 ? count - at : 256;
        lq_dtypes[t->scale].to_f32(u->out->scale + at * size, x, n);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(x[i]))
                return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: the scale of row %zu, group %zu is not finite",
                               c->path, u->f->part[LQ_F_SCALE]->name, (at + i) / (size_t)u->groups,
                               (at + i) % (size_t)u->groups);
    }
    return true;
}

// Codes of scales as they are: those of the rows that are picked begin a block.
static void levels_get(const unpacking *u) {
    const lq_tensor *const *part = u->f->part;
    const size_t count = lq_scale_count(&u->w->type, u->n, u->w->k), at = (size_t)u->p->first * (size_t)u->groups;
    memcpy(u->out->scale_code, u->scale + at, count);
    memcpy(u->out->scale_map, part[LQ_F_OUTER_TABLE]->data, 256 * sizeof(float));
    memcpy(u->out->scale2, (const char *)part[LQ_F_OUTER]->data + at / LQ_DQ * sizeof(float),
           lq_scale_blocks(count) * sizeof(float));
    *u->out->scale_offset = u->f->offset;
}

// What belongs to the whole matrix.
static bool whole_get(const lq_ckpt *c, const unpacking *u, lq_err *err) {
    const lq_tensor *all = u->f->part[LQ_F_GLOBAL], *table = u->f->part[LQ_F_TABLE];
    if (u->out->perm && !perm_get(c, u, err)) return false;
    if (u->out->table && table) memcpy(u->out->table, table->data, table->bytes);
    if (u->out->scale_code) levels_get(u);
    if (!u->out->scale2 || u->out->scale_code) return true;
    float divisor;
    memcpy(&divisor, all->data, sizeof divisor);
    *u->out->scale2 = 1 / divisor;
    return (divisor > 0 && isfinite(*u->out->scale2)) ||
           lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: is %g, expected a number above 0", c->path, all->name,
                   (double)divisor);
}

bool lq_unpack(const lq_ckpt *c, const lq_typed *w, const lq_pick *p, int64_t n, const lq_unpacked *out, lq_err *err) {
    const lq_foreign *f = lq_foreign_of(c, w);
    const lq_tensor *const *part = f->part;
    const size_t count = w->count ? (size_t)w->count : 1, at = w->count ? (size_t)p->at : 0;
    unpacking u = {.f = f, .w = w, .p = p, .n = n, .groups = lq_weight_groups(&w->type, w->k), .out = out,
                   .row = lq_code_row_bytes(w->type.bits, w->k)};
    u.words = u.row / 4;
    if (part[LQ_F_ZERO]) u.zero = part[LQ_F_ZERO]->data;
    u.q = (const uint8_t *)part[LQ_F_CODES]->data + part[LQ_F_CODES]->bytes / count * at;
    u.scale = (const uint8_t *)part[LQ_F_SCALE]->data + part[LQ_F_SCALE]->bytes / count * at;
    u.each = out->perm ? (BAND * u.row + (size_t)w->k + 63) / 64 * 64 : 0;
    if (!whole_get(c, &u, err)) return false;
    const int threads = c->run ? c->run_threads : 1, tasks = (int)((n + BAND - 1) / BAND);
    u.scratch = u.each ? malloc((size_t)threads * u.each) : NULL;
    if (u.each && !u.scratch)
        return lq_fail(err, LQ_E_MEMORY, "%s: weight %s: no memory to unpack it", c->path, w->name);
    if (c->run) c->run(c->run_pool, unpack_band, &u, tasks);
    for (int i = 0; i < tasks && !c->run; i++) unpack_band(&u, i, 0);
    free(u.scratch);
    return scales_check(c, &u, err);
}
