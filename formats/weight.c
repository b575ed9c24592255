// weight.c: a checkpoint's tensors as weights that are ready to bind: whole ones, and rows picked out of larger
// tensors. Owns copies: those that make a tensor aligned live as long as the checkpoint, rows that were gathered
// until lq_ckpt_done. Refuses shapes that are not what was asked for, rows and matrices past a tensor's end, and
// columns that are out of range.
#include "formats/container.h"
#include "formats/layout.h"
#include "formats/parts.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef lq_kept kept;

static bool no_memory(const lq_ckpt *c, const char *name, size_t n, lq_err *err) {
    return lq_fail(err, LQ_E_MEMORY, "%s: tensor %s: no memory for a copy of %zu bytes", c->path, name, n);
}

// The tensor's bytes at a multiple of `to`: as they lie, or a copy (many weights share none, so one per tensor).
static bool aligned(const lq_ckpt *c, const lq_tensor *t, size_t to, const void **out, lq_err *err) {
    *out = t->data;
    if ((uintptr_t)t->data % to == 0) return true;
    lq_ckpt *m = (lq_ckpt *)(uintptr_t)c; // the list of copies is a cache behind a lock
    pthread_mutex_lock(&m->lock);
    kept *k = m->kept;
    // an empty tensor may begin where another does
    while (k && (k->key != t->data || k->keyed != t->bytes || k->picked)) k = k->next;
    if (!k && (k = lq_kept_new(t->bytes))) {
        memcpy(k->data, t->data, t->bytes);
        k->next = m->kept, k->key = t->data, k->keyed = t->bytes;
        m->kept = k;
    }
    pthread_mutex_unlock(&m->lock);
    if (!k) return no_memory(c, t->name, t->bytes, err);
    *out = k->data;
    return true;
}

// Every column once: nothing that indexes by these may leave the row.
static bool columns_check(const lq_ckpt *c, const char *name, const char *what, const int32_t *col, int64_t count,
                          int64_t k, lq_err *err) {
    uint8_t *seen = calloc((size_t)k / 8 + 1, 1);
    if (!seen) return lq_fail(err, LQ_E_MEMORY, "%s: weight %s: no memory", c->path, name);
    int64_t bad = -1;
    for (int64_t i = 0; i < count && bad < 0; i++) {
        if (col[i] < 0 || col[i] >= k || seen[col[i] >> 3] >> (col[i] & 7) & 1) bad = i;
        else seen[col[i] >> 3] |= (uint8_t)(1 << (col[i] & 7));
    }
    free(seen);
    if (bad < 0) return true;
    return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: %s[%lld] is %d, which is past %lld columns or there twice",
                   c->path, name, what, (long long)bad, col[bad], (long long)k);
}

typedef struct text { char p[LQ_RANK * 24]; } text;

static text shape_text(int rank, const int64_t *shape) {
    text t = {""};
    for (int i = 0, at = 0; i < rank; i++)
        at += snprintf(t.p + at, sizeof t.p - (size_t)at, i ? "x%lld" : "%lld", (long long)shape[i]);
    return t;
}

static bool number_check(const lq_ckpt *c, const lq_tensor *t, lq_err *err) {
    return lq_dtypes[t->type].number ||
           lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: is %s, expected a float type", c->path, t->name,
                   lq_dtypes[t->type].name);
}

static lq_wtype plain_type(lq_dtype t) {
    return (lq_wtype){.kind = LQ_W_PLAIN, .elem = t, .bits = 8 * (int)lq_dtype_size(t), .scale = LQ_F32};
}

static bool plain_bind(const lq_ckpt *c, const lq_tensor *t, int64_t n, int64_t k, lq_weight *out, lq_err *err) {
    bool matrix = k > 0;
    if (!number_check(c, t, err)) return false;
    if (t->rank != (matrix ? 2 : 1) || t->shape[0] != n || (matrix && t->shape[1] != k))
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: shape %s, expected %s", c->path, t->name,
                       shape_text(t->rank, t->shape).p, shape_text(matrix ? 2 : 1, (int64_t[]){n, k}).p);
    *out = (lq_weight){.type = plain_type(t->type), .n = n, .k = matrix ? k : 1};
    return aligned(c, t, lq_dtype_size(t->type), &out->q, err);
}

// Of scales that are codes: what they stand for is finite but for what overflows.
static bool levels_check(const lq_ckpt *c, const char *name, const lq_weight *w, lq_err *err) {
    const size_t blocks = lq_scale_blocks(lq_scale_count(&w->type, w->n, w->k));
    const struct { const char *part; const float *p; size_t count; } of[] = {
        {"scale_map", w->scale_map, 256}, {"scale2", w->scale2, blocks}, {"scale_offset", w->scale_offset, 1}};
    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < of[i].count; j++)
            if (!isfinite(of[i].p[j]))
                return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: %s[%zu] is %g, expected a finite number", c->path,
                               name, of[i].part, j, (double)of[i].p[j]);
    return true;
}

static bool numbers_check(const lq_ckpt *c, const char *name, const lq_weight *w, lq_err *err) {
    if (w->type.dq && !levels_check(c, name, w, err)) return false;
    if (w->scale2 && !w->type.dq && !(*w->scale2 >= 0 && *w->scale2 <= FLT_MAX))
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: scale2 is %g, expected a number that is not below 0", c->path,
                       name, (double)*w->scale2);
    if (w->act_scale && !(*w->act_scale > 0 && *w->act_scale <= FLT_MAX))
        return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: act_scale is %g, expected a number above 0", c->path, name,
                       (double)*w->act_scale);
    return !w->act_zero || (*w->act_zero >= INT8_MIN && *w->act_zero <= INT8_MAX) ||
           lq_fail(err, LQ_E_FORMAT, "%s: weight %s: act_zero is %d, expected -128 to 127", c->path, name,
                   *w->act_zero);
}

// A part of `count` matrices, each at a multiple of 64: as it lies, or a copy with room between them.
// *stride: from one to the next.
static bool spaced(const lq_ckpt *c, const lq_tensor *t, int64_t count, size_t *stride, const void **out, lq_err *err) {
    const size_t bytes = t->bytes / (size_t)count;
    size_t all;
    *stride = bytes;
    // files align the first; memory of others may not
    if (count == 1 || bytes % LQ_ALIGN == 0) return aligned(c, t, LQ_ALIGN, out, err);
    if (!lq_align_size(bytes, LQ_ALIGN, stride) || !lq_mul_size(*stride, (size_t)count, &all))
        return no_memory(c, t->name, t->bytes, err);
    lq_ckpt *m = (lq_ckpt *)(uintptr_t)c;
    pthread_mutex_lock(&m->lock);
    kept *k = m->kept;
    while (k && (k->key != t->data || k->n != all || k->picked)) k = k->next;
    if (!k && (k = lq_kept_new(all))) {
        for (int64_t i = 0; i < count; i++)
            memcpy(k->data + (size_t)i * *stride, (const char *)t->data + (size_t)i * bytes, bytes);
        k->next = m->kept, k->key = t->data, k->keyed = t->bytes;
        m->kept = k;
    }
    pthread_mutex_unlock(&m->lock);
    if (!k) return no_memory(c, t->name, all, err);
    *out = k->data;
    return true;
}

// The same of one that others made: wherever it lies, as who picks from it copies what must not lie there. One that has
// to be unpacked has no parts yet.
static void foreign_bind(const lq_foreign *f, const lq_typed *w, int64_t at, lq_weight *out) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE];
    const size_t count = w->count ? (size_t)w->count : 1;
    *out = (lq_weight){.type = w->type, .layout = w->layout, .n = w->n, .k = w->k, .table = lq_wtype_table(&w->type)};
    if (f->lie != LQ_LIE_OURS) return;
    out->q = (const char *)q->data + q->bytes / count * (size_t)at;
    out->scale = (const char *)s->data + s->bytes / count * (size_t)at;
}

// Matrix `at` of a coded weight, which is a stack or (at 0) one matrix. Scales that are codes are not widened yet.
static bool coded_bind(const lq_ckpt *c, const lq_typed *w, int64_t at, lq_weight *out, lq_err *err) {
    char full[LQ_NAME + 16];
    *out = (lq_weight){.type = w->type, .layout = w->layout, .n = w->n, .k = w->k, .table = lq_wtype_table(&w->type)};
    for (lq_part_id i = 0; i < LQ_PARTS; i++) {
        const void *p;
        size_t stride;
        snprintf(full, sizeof full, "%s%s", w->name, lq_part_suffix(i));
        const lq_tensor *t = lq_part_may(i, &w->type) ? lq_ckpt_find(c, full) : NULL;
        if (!t) continue;
        if (!spaced(c, t, w->count ? w->count : 1, &stride, &p, err)) return false;
        lq_part_set(i, out, (const char *)p + (size_t)at * stride);
        if (i == LQ_PART_OUTLIER_COLS) out->outliers = (int32_t)t->shape[t->rank - 1];
    }
    return numbers_check(c, w->name, out, err) &&
           (!out->perm || columns_check(c, w->name, "perm", out->perm, w->k, w->k, err)) &&
           (!out->outliers || columns_check(c, w->name, "outlier_cols", out->outlier, out->outliers, w->k, err));
}

static void copy_keep(lq_ckpt *c, kept *k) {
    pthread_mutex_lock(&c->lock);
    k->next = c->kept, c->kept = k;
    pthread_mutex_unlock(&c->lock);
}

// What codes of scales stand for, from scale `first` on those of `out`: in memory of their own until lq_ckpt_done.
static bool scales_widen(const lq_ckpt *c, const char *name, const lq_weight *w, size_t first, lq_weight *out,
                         lq_err *err) {
    const size_t count = lq_scale_count(&out->type, out->n, out->k);
    kept *to = lq_kept_new(count * sizeof(float));
    if (!to) return no_memory(c, name, count * sizeof(float), err);
    float *scale = (float *)(void *)to->data;
    for (size_t i = 0; i < count; i++) scale[i] = lq_scale_get(w, first + i);
    out->scale = scale;
    to->picked = true;
    copy_keep((lq_ckpt *)(uintptr_t)c, to); // as in `aligned`
    return true;
}

bool lq_ckpt_weight(const lq_ckpt *c, const char *name, int64_t n, int64_t k, lq_weight *out, lq_err *err) {
    const lq_tensor *t = lq_ckpt_find(c, name);
    const lq_typed *w = lq_ckpt_typed(c, name);
    if (t && !w) return plain_bind(c, t, n, k, out, err);
    if (!w) return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is missing", c->path, name);
    if (!w->count && w->n == n && w->k == k) {
        lq_pick p = {.name = ""};
        if (!lq_foreign_of(c, w))
            return coded_bind(c, w, 0, out, err) && (!w->type.dq || scales_widen(c, name, out, 0, out, err));
        snprintf(p.name, sizeof p.name, "%s", name);
        return lq_ckpt_pick((lq_ckpt *)(uintptr_t)c, &p, n, k, out, NULL, err);
    }
    const int64_t is[] = {w->count, w->n, w->k};
    return lq_fail(err, LQ_E_FORMAT, "%s: weight %s: is %s, expected %s", c->path, name,
                   (w->count ? shape_text(3, is) : shape_text(2, is + 1)).p, shape_text(2, (int64_t[]){n, k}).p);
}

// --- rows of a tensor ---

// What a pick takes from: the matrix that it names, as it is stored.
typedef struct source {
    lq_weight w;      // plain: q may lie at any address
    int64_t shape[4]; // of the whole tensor or weight
    int rank;
    const void *data; // its bytes, and how many: what is given back when the rows are done with
    size_t bytes;
    const lq_typed *packed; // it has to be unpacked
} source;

static bool together(const lq_pick *p, int64_t n) { return !p->run || n <= p->run || p->step == p->run; }

static bool pick_refuse(const lq_ckpt *c, const lq_pick *p, const source *s, int64_t n, int64_t k, lq_err *err) {
    char rows[160] = "", of[96] = "";
    if (p->run)
        snprintf(rows, sizeof rows, " from row %lld on, %lld of every %lld", (long long)p->first, (long long)p->run,
                 (long long)p->step);
    else if (p->first)
        snprintf(rows, sizeof rows, " from row %lld on", (long long)p->first);
    if (p->stack) snprintf(of, sizeof of, ", of matrix %lld of %lld", (long long)p->at, (long long)p->stack);
    if (p->each) snprintf(rows, sizeof rows, " from row %lld of each %lld on", (long long)p->first, (long long)p->each);
    return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: shape %s, expected %s%s%s%s", c->path, p->name,
                   shape_text(s->rank, s->shape).p, shape_text(k ? 2 : 1, (int64_t[]){n, k}).p, rows, of,
                   p->across && k ? ", stored across" : "");
}

static bool source_find(const lq_ckpt *c, const lq_pick *p, int64_t n, int64_t k, source *s, lq_err *err) {
    const lq_typed *w = lq_ckpt_typed(c, p->name);
    const lq_tensor *t = w ? NULL : lq_ckpt_find(c, p->name);
    const lq_foreign *f = w ? lq_foreign_of(c, w) : NULL;
    const int64_t stack = p->each ? 0 : p->stack;
    const int front = stack > 0;
    *s = (source){.rank = 0};
    if (!t && !w) return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s is missing", c->path, p->name);
    if (w) {
        if (w->count) s->shape[s->rank++] = w->count;
        s->shape[s->rank++] = w->n, s->shape[s->rank++] = w->k;
        if (!k || w->count != stack || p->at < 0 || (front && p->at >= stack)) return pick_refuse(c, p, s, n, k, err);
        if (!f) return coded_bind(c, w, front ? p->at : 0, &s->w, err);
        foreign_bind(f, w, front ? p->at : 0, &s->w);
        s->bytes = f->part[LQ_F_CODES]->bytes / (front ? (size_t)stack : 1);
        s->data = (const uint8_t *)f->part[LQ_F_CODES]->data + (front ? (size_t)p->at : 0) * s->bytes;
        s->packed = f->lie == LQ_LIE_OURS ? NULL : w;
        return true;
    }
    s->rank = t->rank < 4 ? t->rank : 4;
    memcpy(s->shape, t->shape, (size_t)s->rank * sizeof *s->shape);
    if (!number_check(c, t, err)) return false;
    const bool one = !t->rank && !k && !front; // a number by itself is a vector of one
    if ((t->rank != front + (k ? 2 : 1) && !one) ||
        (front && (t->shape[0] != stack || p->at < 0 || p->at >= stack)) || stack < 0)
        return pick_refuse(c, p, s, n, k, err);
    s->w = (lq_weight){.type = plain_type(t->type), .n = one ? 1 : t->shape[front],
                         .k = k ? t->shape[front + 1] : 1};
    s->bytes = t->bytes / (front ? (size_t)stack : 1); // no remainder: the shape's product was checked
    s->data = s->w.q = (const uint8_t *)t->data + (front ? (size_t)p->at : 0) * s->bytes;
    return true;
}

// Whether these rows are in the source; with `across` its rows are the pick's columns.
static bool rows_check(const lq_ckpt *c, const lq_pick *p, const source *s, int64_t n, int64_t k, lq_err *err) {
    const bool turned = p->across && k;
    const int64_t have = turned ? s->w.k : s->w.n, wide = turned && !p->each ? s->w.n : turned ? k : s->w.k;
    bool ok = n > 0 && n <= INT32_MAX && wide == (k ? k : 1) && p->first >= 0 && p->run >= 0 && p->step >= 0;
    ok = ok && p->first <= have && p->run <= have && p->step <= have; // so that nothing below overflows
    ok = ok && (!p->step || p->step >= p->run);                       // step 0: the same rows again and again
    if (ok && !p->first && !p->run && !p->step) ok = n == have;
    if (ok) {
        const int64_t runs = p->run ? (n - 1) / p->run : 0;
        ok = (!runs || p->step <= have / runs) && lq_pick_row(p, n - 1) < have &&
             (!runs || lq_pick_row(p, runs * p->run - 1) < have) && n / 65536 <= have;
    }
    return ok || pick_refuse(c, p, s, n, k, err);
}

// A matrix that is rows of a larger one, as the pick of these rows; *skip: of rows that become columns, so many stand
// before them.
static bool part_of(const lq_ckpt *c, lq_pick *p, const source *s, int64_t n, int64_t k, int64_t *skip, lq_err *err) {
    const int64_t rows = p->across ? k : n;
    *skip = 0;
    if (!p->each) return true;
    if (!k || p->run || p->step || p->each < 0 || p->stack < 1 || p->at < 0 || p->at >= p->stack || p->first < 0 ||
        s->w.n / p->each != p->stack || s->w.n % p->each || p->first > p->each || rows > p->each - p->first)
        return pick_refuse(c, p, s, n, k, err);
    *skip = p->across ? p->at * p->each + p->first : 0;
    p->first = p->across ? 0 : p->at * p->each + p->first;
    if (!p->across) p->run = p->step = n;
    return true;
}

static kept *copy_new(size_t n, const source *s) {
    kept *k = lq_kept_new(n);
    if (k) k->picked = true, k->key = s->data, k->keyed = s->bytes;
    return k;
}

// --- across: [k][rows] becomes [n][k] ---

enum { TURN = 32 };

// Columns of `count` stored rows at `at` become pieces of the picked rows.
static void turn(const lq_pick *p, int64_t n, int64_t k, size_t size, const char *const *at, int count, int64_t first,
                 char *dst) {
    for (int64_t i0 = 0; i0 < n; i0 += TURN)
        for (int64_t i = i0; i < n && i < i0 + TURN; i++) {
            char *d = dst + ((size_t)i * (size_t)k + (size_t)first) * size;
            const size_t from = (size_t)lq_pick_row(p, i) * size;
            if (size == 2)
                for (int j = 0; j < count; j++) memcpy(d + 2 * j, at[j] + from, 2);
            else if (size == 4)
                for (int j = 0; j < count; j++) memcpy(d + 4 * j, at[j] + from, 4);
            else
                for (int j = 0; j < count; j++) memcpy(d + size * (size_t)j, at[j] + from, size);
        }
}

// 16 rows of a weight that lies otherwise than any, as any has them: those that were asked for last. Of layout any it
// has no room and gives the weight itself.
typedef struct untiled {
    int64_t at;
    lq_laid laid;
    lq_weight_out to;
    lq_weight rows;
    uint8_t *room;
} untiled;

static bool band_open(untiled *b, const lq_weight *w) {
    lq_weight_size size;
    *b = (untiled){.at = -1, .rows = *w};
    if (w->layout == LQ_ANY) return true;
    b->rows.type.rows = 0, b->rows.layout = LQ_ANY, b->rows.n = LQ_BAND;
    b->laid = lq_laid_of(LQ_ANY, &b->rows.type, LQ_BAND, w->k);
    if (!lq_weight_sizes(&b->rows.type, LQ_BAND, w->k, &size)) return false;
    const size_t zero = size.scale + (size_t)-(int64_t)size.scale % 4; // codes and zero points end at multiples of 4
    b->room = malloc(size.q + 64 + zero + size.zero);
    if (!b->room) return false;
    uint8_t *scale = b->room + (size.q + 63) / 64 * 64;
    b->to = (lq_weight_out){b->room, scale, w->zero ? scale + zero : NULL};
    b->rows.q = b->room, b->rows.scale = scale, b->rows.zero = b->to.zero;
    return true;
}

// The weight that has the row, and which of its rows it is.
static const lq_weight *band_row(untiled *b, const lq_weight *w, int64_t *row) {
    if (w->layout == LQ_ANY) return w;
    if (b->at != *row / LQ_BAND) {
        b->at = *row / LQ_BAND;
        lq_band_pack(w, b->at, &b->laid, b->to, 0);
        if (w->outliers) b->rows.outlier_w = w->outlier_w + (size_t)b->at * LQ_BAND * (size_t)w->outliers;
    }
    *row %= LQ_BAND;
    return &b->rows;
}

// A coded row as the product sees it: `smooth` is part of its columns.
static void row_widen(untiled *b, const lq_weight *w, int64_t row, float *dst) {
    const lq_weight *of = band_row(b, w, &row);
    lq_weight_row_any(of, row, dst);
    for (int64_t j = 0; j < w->k && w->smooth; j++) dst[j] *= w->smooth[j];
}

static bool pick_across(lq_ckpt *c, const lq_pick *p, const source *s, int64_t skip, int64_t n, int64_t k,
                        lq_weight *out, lq_err *err) {
    const lq_weight *w = &s->w;
    const bool coded = w->type.kind != LQ_W_PLAIN;
    const lq_dtype elem = coded ? LQ_F32 : w->type.elem;
    const size_t size = lq_dtype_size(elem), cols = (size_t)w->k;
    size_t bytes = 0, row;
    const bool fits = lq_mul_size((size_t)n, (size_t)k * size, &bytes) && lq_mul_size(cols, TURN * sizeof(float), &row);
    kept *to = fits ? copy_new(bytes, s) : NULL;
    float *wide = fits && coded ? malloc(row) : NULL;
    untiled b = {.room = NULL};
    bool ok = to && (!coded || (wide && band_open(&b, w)));
    for (int64_t j0 = 0; j0 < k && ok; j0 += TURN) {
        const char *at[TURN];
        const int count = k - j0 < TURN ? (int)(k - j0) : TURN;
        for (int j = 0; j < count; j++) {
            if (coded) row_widen(&b, w, skip + j0 + j, wide + (size_t)j * cols);
            at[j] = coded ? (const char *)(wide + (size_t)j * cols)
                          : (const char *)w->q + (size_t)(skip + j0 + j) * cols * size;
        }
        turn(p, n, k, size, at, count, j0, to->data);
    }
    free(wide);
    free(b.room);
    if (!ok) return free(to), no_memory(c, p->name, bytes, err);
    copy_keep(c, to);
    *out = (lq_weight){.type = plain_type(elem), .n = n, .k = k, .q = to->data};
    return true;
}

// --- rows ---

// Whether scales of bands of rows stay bands: each band of picked rows lies in one band of the source's.
static bool bands_stay(const lq_pick *p, int64_t n, int rows) {
    if (rows <= 1 || rows == LQ_ROWS_ALL) return true;
    if (p->each % rows) return false; // so that all parts of a matrix are of one type
    for (int64_t i = 0; i < n; i++)
        if (lq_pick_row(p, i) / rows != lq_pick_row(p, i / rows * rows) / rows) return false;
    return true;
}

// Bytes from row to row, or of x86 from tile to tile, of the parts that have rows.
typedef struct strides { size_t q, scale, zero; } strides;

static strides strides_of(const lq_weight *w) {
    lq_weight_size one;
    lq_wtype t = w->type;
    t.rows = 0;
    lq_layout_sizes(w->layout == LQ_X86 ? LQ_X86 : LQ_ANY, &t, 1, w->k, &one); // of a row or of a tile
    return (strides){one.q, one.scale, one.zero};
}

// A block of scales that are codes must begin where rows do that are picked, and these lie together.
static bool codes_stay(const lq_wtype *t, int64_t k, bool lie_together, int64_t first) {
    return t->dq && lie_together && (size_t)first * (size_t)lq_weight_groups(t, k) % LQ_DQ == 0;
}

bool lq_ckpt_codes_stay(const lq_typed *w, const lq_pick *p, int64_t n) {
    return codes_stay(&w->type, w->k, p->each || together(p, n), p->each ? p->at * p->each + p->first : p->first);
}

// Of scales that are codes, those of rows from `first` on; none, if they cannot stay.
static void codes_from(lq_weight *w, bool lie_together, int64_t first) {
    const size_t at = (size_t)first * (size_t)lq_weight_groups(&w->type, w->k);
    w->type.dq = codes_stay(&w->type, w->k, lie_together, first);
    if (!w->type.dq) w->scale_code = NULL, w->scale2 = w->scale_map = w->scale_offset = NULL;
    if (w->scale_code) w->scale_code += at, w->scale2 += at / LQ_DQ;
}

static bool at_64(const void *p, size_t offset) { return ((uintptr_t)p + offset) % LQ_ALIGN == 0; }

// The rows where they lie, if they lie together and every part begins where a weight's must.
static bool pick_borrow(const lq_pick *p, const source *s, int64_t n, lq_weight *out) {
    const lq_weight *w = &s->w;
    const int unit = w->layout == LQ_X86 ? 16 : 1, bands = w->type.rows > 1 ? w->type.rows : unit;
    if (!together(p, n) || p->first % unit || (n % unit && p->first + n != w->n)) return false;
    if (w->layout == LQ_CUDA && n != w->n) return false; // scales of other rows lie between
    if (!bands_stay(p, n, w->type.rows)) return false;
    const strides by = strides_of(w);
    const size_t at = (size_t)(p->first / unit), band = (size_t)(p->first / bands);
    const size_t o = (size_t)p->first * (size_t)w->outliers * 2;
    if (w->type.kind == LQ_W_PLAIN) {
        if (((uintptr_t)w->q + at * by.q) % lq_dtype_size(w->type.elem)) return false;
    } else if (!at_64(w->q, at * by.q) || (w->scale && !at_64(w->scale, band * by.scale)) ||
               !at_64(w->zero, at * by.zero) || !at_64(w->outlier_w, o)) {
        return false;
    }
    *out = *w;
    out->n = n;
    out->q = (const uint8_t *)w->q + at * by.q;
    if (w->scale) out->scale = (const uint8_t *)w->scale + band * by.scale;
    if (w->zero) out->zero = w->zero + at * by.zero;
    if (w->outlier_w) out->outlier_w = w->outlier_w + o / 2;
    if (w->type.dq) codes_from(out, true, p->first);
    return true;
}

// Row `from` of a part in tiles becomes row `to`: of every `unit` bytes x 16, its own `unit`.
static void lane_copy(uint8_t *dst, const uint8_t *src, size_t tile, int64_t to, int64_t from, size_t unit) {
    dst += (size_t)(to / 16) * tile + (size_t)(to % 16) * unit;
    src += (size_t)(from / 16) * tile + (size_t)(from % 16) * unit;
    for (size_t i = 0; i < tile; i += 16 * unit) memcpy(dst + i, src + i, unit);
}

static void rows_copy(const lq_pick *p, const lq_weight *w, int64_t n, bool bands, uint8_t *q, uint8_t *scale,
                      uint8_t *zero) {
    const strides by = strides_of(w);
    const size_t size = lq_dtype_size(w->type.scale);
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = lq_pick_row(p, i), band = w->type.rows > 1 ? r / w->type.rows : r;
        if (w->layout == LQ_X86) {
            lane_copy(q, w->q, by.q, i, r, 4);
            lane_copy(scale, w->scale, by.scale, i, r, size);
            if (zero) lane_copy(zero, w->zero, by.zero, i, r, 1);
            continue;
        }
        memcpy(q + (size_t)i * by.q, (const uint8_t *)w->q + (size_t)r * by.q, by.q);
        const size_t to = (size_t)(bands ? i / w->type.rows : i) * by.scale;
        if (w->type.dq)
            for (size_t g = 0; g < by.scale / size; g++)
                ((float *)(void *)(scale + to))[g] = lq_scale_get(w, (size_t)r * by.scale / size + g);
        else if (w->scale) memcpy(scale + to, (const uint8_t *)w->scale + (size_t)band * by.scale, by.scale);
        if (zero) memcpy(zero + (size_t)i * by.zero, w->zero + (size_t)r * by.zero, by.zero);
    }
}

// The same of layout cuda, where 64 rows lie in each other: 16 at a time, through layout any. `to`: as it becomes.
static bool stripes_copy(const lq_pick *p, const lq_weight *w, const lq_weight *to, lq_weight_out dst) {
    untiled from = {.room = NULL}, put = {.room = NULL};
    const bool ok = band_open(&from, w) && band_open(&put, w);
    const lq_laid laid = lq_laid_of(LQ_CUDA, &to->type, to->n, to->k);
    const strides by = strides_of(w);
    for (int64_t i = 0; i < lq_laid_rows(LQ_CUDA, to->n) && ok; i++) {
        const size_t at = (size_t)(i % LQ_BAND);
        if (i < to->n) {
            int64_t r = lq_pick_row(p, i);
            if (to->type.rows > 1)
                memcpy((uint8_t *)dst.scale + (size_t)(i / to->type.rows) * by.scale,
                       (const uint8_t *)w->scale + (size_t)(r / to->type.rows) * by.scale, by.scale);
            const lq_weight *of = band_row(&from, w, &r);
            const uint8_t *q = of->q, *scale = of->scale;
            memcpy((uint8_t *)put.to.q + at * by.q, q + (size_t)r * by.q, by.q);
            memcpy((uint8_t *)put.to.scale + at * by.scale, scale + (size_t)r * by.scale, by.scale);
            if (w->zero) memcpy((uint8_t *)put.to.zero + at * by.zero, of->zero + (size_t)r * by.zero, by.zero);
        }
        if (at < LQ_BAND - 1) continue;
        put.rows.n = to->n - (i - (int64_t)at);
        lq_band_pack(&put.rows, 0, &laid, dst, i / LQ_BAND);
    }
    free(from.room);
    free(put.room);
    return ok;
}

static bool pick_copy(lq_ckpt *c, const lq_pick *p, const source *s, int64_t n, lq_weight *out, lq_err *err) {
    const lq_weight *w = &s->w;
    *out = *w;
    out->n = n;
    const bool stay = bands_stay(p, n, w->type.rows);
    if (!stay) out->type.rows = 0;
    if (w->type.dq) codes_from(out, together(p, n), p->first);
    lq_weight_size size;
    const size_t one = (size_t)w->outliers * sizeof(uint16_t);
    size_t o = 0, part[4], all = 0;
    bool ok = lq_layout_sizes(w->layout, &out->type, n, w->k, &size) &&
              lq_mul_size((size_t)n, one, &o);
    const size_t of[4] = {size.q, size.scale, size.zero, o};
    for (int i = 0; i < 4 && ok; i++) {
        part[i] = all;
        ok = lq_add_size(all, of[i], &all) && lq_align_size(all, LQ_ALIGN, &all);
    }
    kept *to = ok ? copy_new(all, s) : NULL;
    if (!to) return no_memory(c, p->name, all, err);
    uint8_t *at = (uint8_t *)to->data, *zero = w->zero ? at + part[2] : NULL;
    if (w->layout == LQ_X86) { // rows that pad the last tile
        if (w->type.asym || w->type.kind == LQ_W_TABLE) memset(at, 0, size.q);
        else lq_x86_fill(at, size.q, w->type.bits);
        memset(at + part[1], 0, all - part[1]);
    }
    if (w->layout != LQ_CUDA) rows_copy(p, w, n, stay && w->type.rows > 1, at, at + part[1], zero);
    else if (!stripes_copy(p, w, out, (lq_weight_out){at, at + part[1], zero}))
        return free(to), no_memory(c, p->name, all, err);
    for (int64_t i = 0; i < n && o; i++)
        memcpy(at + part[3] + (size_t)i * one, w->outlier_w + (size_t)lq_pick_row(p, i) * (size_t)w->outliers, one);
    out->q = at;
    if (size.scale) out->scale = at + part[1];
    if (w->zero) out->zero = zero;
    if (w->outliers) out->outlier_w = (const uint16_t *)(const void *)(at + part[3]);
    copy_keep(c, to);
    return true;
}

// --- what has to be unpacked ---

// Rows of it in layout any, in memory of their own.
static kept *unpack(lq_ckpt *c, const lq_pick *p, const source *s, int64_t n, lq_weight *out, lq_err *err) {
    const lq_typed *w = s->packed;
    *out = s->w;
    out->n = n;
    if (!bands_stay(p, n, w->type.rows)) out->type.rows = 0;
    if (w->type.dq) codes_from(out, together(p, n), p->first);
    lq_weight_size size;
    size_t part[9], all = 0;
    bool ok = lq_weight_sizes(&out->type, n, w->k, &size);
    const bool perm = lq_unpack_perm(c, w), table = w->type.kind == LQ_W_TABLE && !out->table;
    const size_t codes = ok && out->type.dq ? lq_scale_count(&out->type, n, w->k) : 0;
    const size_t blocks = codes ? lq_scale_blocks(codes) : w->type.scale == LQ_E4M3;
    const size_t of[9] = {size.q, size.scale, size.zero, perm ? (size_t)w->k * sizeof(int32_t) : 0,
                          table ? sizeof(float) << w->type.bits : 0, blocks * sizeof(float),
                          codes, codes ? 256 * sizeof(float) : 0, codes ? sizeof(float) : 0};
    for (int i = 0; i < 9 && ok; i++) {
        part[i] = all;
        ok = lq_add_size(all, of[i], &all) && lq_align_size(all, LQ_ALIGN, &all);
    }
    kept *to = ok ? copy_new(all, s) : NULL;
    if (!to) return no_memory(c, p->name, all, err), NULL;
    void *at[9];
    for (int i = 0; i < 9; i++) at[i] = of[i] ? to->data + part[i] : NULL;
    const lq_unpacked parts = {.q = at[0], .scale = at[1], .zero = at[2], .perm = at[3], .table = at[4],
                               .scale2 = at[5], .scale_code = at[6], .scale_map = at[7], .scale_offset = at[8],
                               .rows = out->type.rows};
    if (!lq_unpack(c, w, p, n, &parts, err)) return free(to), NULL;
    out->q = at[0], out->scale = at[1], out->zero = at[2], out->perm = at[3], out->scale2 = at[5];
    out->scale_code = at[6], out->scale_map = at[7], out->scale_offset = at[8];
    if (table) out->table = at[4];
    return to;
}

static bool pick_unpack(lq_ckpt *c, const lq_pick *p, const source *s, int64_t n, lq_weight *out, lq_err *err) {
    kept *to = unpack(c, p, s, n, out, err);
    if (to) copy_keep(c, to);
    return to;
}

// What is also turned is unpacked whole for that.
static bool pick_turned(lq_ckpt *c, const lq_pick *p, const source *s, int64_t skip, int64_t n, int64_t k,
                        lq_weight *out, lq_err *err) {
    source whole = *s;
    const lq_pick all = {.at = p->at};
    kept *to = unpack(c, &all, s, s->w.n, &whole.w, err);
    const bool done = to && pick_across(c, p, &whole, skip, n, k, out, err);
    free(to);
    return done;
}

bool lq_ckpt_pick(lq_ckpt *c, const lq_pick *p, int64_t n, int64_t k, lq_weight *out, bool *plain, lq_err *err) {
    source s;
    int64_t skip;
    *out = (lq_weight){0};
    if (!memchr(p->name, 0, sizeof p->name))
        return lq_fail(err, LQ_E_USAGE, "%s: a pick whose name does not end", c->path);
    if (!source_find(c, p, n, k, &s, err)) return false;
    lq_pick own = *p;
    if (s.packed && s.packed->upright && !p->each) own.across = false;
    if (!part_of(c, &own, &s, n, k, &skip, err)) return false;
    p = &own;
    if (!rows_check(c, p, &s, n, k, err)) return false;
    const bool turned = p->across && k;
    if (plain) *plain = turned && s.w.type.kind != LQ_W_PLAIN;
    if (turned && s.packed) return pick_turned(c, p, &s, skip, n, k, out, err);
    if (turned) return pick_across(c, p, &s, skip, n, k, out, err);
    if (s.packed) return pick_unpack(c, p, &s, n, out, err);
    if (!pick_borrow(p, &s, n, out)) return pick_copy(c, p, &s, n, out, err);
    return !s.w.type.dq ||
           scales_widen(c, p->name, &s.w, (size_t)p->first * (size_t)lq_weight_groups(&s.w.type, s.w.k), out, err);
}

// A copy that begins at p, off the list; NULL: there is none.
static kept *copy_take(lq_ckpt *c, const void *p) {
    kept **at = &c->kept;
    while (*at && !((*at)->picked && (const void *)(*at)->data == p)) at = &(*at)->next;
    kept *copy = *at;
    if (copy) *at = copy->next;
    return copy;
}

void lq_ckpt_done(lq_ckpt *c, const lq_weight *w) {
    pthread_mutex_lock(&c->lock);
    kept *copy = copy_take(c, w->q), *scales = copy_take(c, w->scale);
    pthread_mutex_unlock(&c->lock);
    lq_weight_size size;
    if (copy) lq_ckpt_drop_bytes(c, copy->key, copy->keyed);
    else if (lq_layout_sizes(w->layout, &w->type, w->n, w->k, &size)) {
        lq_ckpt_drop_bytes(c, w->q, size.q);
        lq_ckpt_drop_bytes(c, w->scale, size.scale);
        lq_ckpt_drop_bytes(c, w->zero, size.zero);
        if (w->scale_code) lq_ckpt_drop_bytes(c, w->scale_code, size.scale / sizeof(float));
    }
    free(copy);
    free(scales);
}
