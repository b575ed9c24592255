// scaled.c: matrices of 8 bits as other programs store them: a tensor of E4M3 or I8, and beside it under its name and
// "_scale_inv" or "_scale" what its elements are times: one number for all, one for each row, or one for each block of
// rows and columns. Owns nothing. Refuses scales of other types and shapes, and rows of I8 that no codes of ours fit.
#include "formats/container.h"
#include <stdio.h>
#include <string.h>

static const char *const tails[] = {"_scale_inv", "_scale"};

const lq_tensor *lq_ckpt_scales(const lq_ckpt *c, const lq_tensor *t) {
    char name[LQ_NAME + 16];
    const lq_tensor *s = NULL;
    if (!c->shards || c->shard->sum || (t->type != LQ_E4M3 && t->type != LQ_I8) || t->rank < 2) return NULL;
    for (size_t i = 0; i < sizeof tails / sizeof *tails && !s; i++) {
        snprintf(name, sizeof name, "%s%s", t->name, tails[i]);
        s = lq_ckpt_find(c, name);
    }
    return s;
}

const lq_tensor *lq_ckpt_scaled(const lq_ckpt *c, const char *name) {
    char of[LQ_NAME];
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        const size_t tail = strlen(tails[i]);
        if (n <= tail || n >= sizeof of || strcmp(name + n - tail, tails[i]) != 0) continue;
        snprintf(of, sizeof of, "%.*s", (int)(n - tail), name);
        const lq_tensor *t = lq_ckpt_find(c, of), *s = t ? lq_ckpt_scales(c, t) : NULL;
        if (s && !strcmp(s->name, name)) return t;
    }
    return NULL;
}

// The power of two of which `count` cover n; 0: there is none. There is only one unless one block covers all.
static int64_t block_of(int64_t n, int64_t count) {
    int64_t b = 1;
    while (b < n && (n - 1) / b + 1 > count) b *= 2;
    return n > 0 && (n - 1) / b + 1 == count ? b : 0;
}

// The type of a matrix [n][k] with scales of this shape.
static bool type_of(const int64_t *shape, int rank, int64_t n, int64_t k, lq_wtype *t) {
    const int64_t rows = rank ? shape[0] : 1, cols = rank > 1 ? shape[1] : 1;
    if (rank > 2 || rows < 1 || cols < 1) return false;
    if (rows == 1 && cols == 1) return t->rows = LQ_ROWS_ALL, true;
    if (rows == n && cols == 1) return true;
    const int64_t band = block_of(n, rows), group = block_of(k, cols);
    if (rank != 2 || !band || !group || band > 1 << 20 || group > 32768) return false;
    t->rows = (int)(rows == 1 && band < 128 ? 128 : band);
    t->group = cols == 1 ? 0 : (int)group;
    return t->group % 16 == 0;
}

bool lq_scales_bind(const lq_ckpt *c, const lq_tensor *t, int64_t stack, int64_t at, lq_weight *w, lq_err *err) {
    const lq_tensor *s = lq_ckpt_scales(c, t);
    const int front = stack > 0;
    lq_wtype type = {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8};
    if (!s) return true;
    if (t->type == LQ_I8) type.kind = LQ_W_INT, type.elem = LQ_U8;
    if (t->type == LQ_I8 && w->k % 4)
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: tensor %s: rows of %lld codes, expected a multiple of 4", c->path,
                       t->name, (long long)w->k);
    type.scale = s->type;
    if (s->type != LQ_F32 && s->type != LQ_F16 && s->type != LQ_BF16)
        return lq_fail(err, LQ_E_FORMAT, "%s: tensor %s: scales in %s, expected f32, f16 or bf16", c->path, s->name,
                       lq_dtypes[s->type].name);
    if (s->rank < front || (front && s->shape[0] != stack) ||
        !type_of(s->shape + front, s->rank - front, w->n, w->k, &type))
        return lq_fail(err, LQ_E_FORMAT,
                       "%s: tensor %s: scales that do not fit a matrix of %lld x %lld: expected one, one a row, or one "
                       "for each block of a power of two", c->path, s->name, (long long)w->n, (long long)w->k);
    w->type = type;
    w->scale = (const char *)s->data + s->bytes / (front ? (size_t)stack : 1) * (size_t)at;
    return true;
}
