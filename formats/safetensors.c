// safetensors.c: the header of a safetensors file as a table of tensors. Nothing of it is believed before it is
// checked. Refused: a length past the file or 100 MB, JSON that is not strict, unknown fields and types,
// extents that are not shape x size, bytes that no tensor or two tensors claim, metadata that is not strings,
// names with control characters.
#include "formats/container.h"
#include "formats/json.h"
#include "formats/kind.h"
#include <stdlib.h>
#include <string.h>

static const size_t header_max = 100 * 1000 * 1000;

typedef struct reader {
    lq_shard *s;
    lq_json_walk walk;
    char *free_at;  // of the arena
    size_t cap, meta_cap;
    size_t data;    // bytes behind the header
    lq_err *err;
} reader;

bool lq_name_ok(const char *name, size_t n) {
    if (n == 0 || n >= LQ_NAME) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
    return true;
}

// The decoded string at the walk; its NUL stands where the closing quote's room is, so the
// header's size is enough for all.
static const char *string_take(reader *r, size_t *n) {
    char *p = r->free_at;
    *n = lq_json_take_str(&r->walk, p);
    p[*n] = 0;
    r->free_at += *n + 1;
    return p;
}

static bool grow(void **p, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t want = *cap ? *cap * 2 : 64;
    void *q = realloc(*p, want * size);
    if (!q) return false;
    *p = q, *cap = want;
    return true;
}

static bool meta_take(reader *r) {
    lq_shard *s = r->s;
    if (lq_json_next(&r->walk) != '{')
        return lq_fail(r->err, LQ_E_FORMAT, "%s: __metadata__ is not an object", s->path);
    lq_json_take(&r->walk);
    while (lq_json_next(&r->walk) != '}') {
        size_t n, m;
        const char *key = string_take(r, &n);
        if (strlen(key) != n) return lq_fail(r->err, LQ_E_FORMAT, "%s: NUL in a name of __metadata__", s->path);
        if (lq_json_next(&r->walk) != '"')
            return lq_fail(r->err, LQ_E_FORMAT, "%s: metadata \"%.100s\" is not a string", s->path, key);
        size_t at = (size_t)(r->walk.p + 1 - s->header);
        const char *value = string_take(r, &m);
        if (strlen(value) != m) return lq_fail(r->err, LQ_E_FORMAT, "%s: NUL in metadata \"%.100s\"", s->path, key);
        if (!grow((void **)&s->meta, s->metas, &r->meta_cap, sizeof *s->meta))
            return lq_fail(r->err, LQ_E_MEMORY, "%s: no memory for the header", s->path);
        s->meta[s->metas++] = (lq_meta){key, value, at};
    }
    lq_json_take(&r->walk);
    return true;
}

static bool shape_take(reader *r, lq_tensor *t) {
    if (lq_json_next(&r->walk) != '[')
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: the shape is not a list", r->s->path, t->name);
    lq_json_take(&r->walk);
    while (lq_json_next(&r->walk) != ']') {
        uint64_t v;
        if (t->rank == LQ_RANK)
            return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: more than %d dimensions", r->s->path, t->name, LQ_RANK);
        if (!lq_json_take_u64(&r->walk, &v) || v > INT64_MAX)
            return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: dimension %d is not a whole number below 2^63",
                           r->s->path, t->name, t->rank);
        t->shape[t->rank++] = (int64_t)v;
    }
    lq_json_take(&r->walk);
    return true;
}

static bool offsets_take(reader *r, const char *name, uint64_t at[2]) {
    int n = 0;
    if (lq_json_next(&r->walk) == '[') {
        lq_json_take(&r->walk);
        while (n < 2 && lq_json_next(&r->walk) != ']' && lq_json_take_u64(&r->walk, &at[n])) n++;
    }
    if (n != 2 || lq_json_next(&r->walk) != ']')
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: data_offsets are not two whole numbers", r->s->path, name);
    lq_json_take(&r->walk);
    return true;
}

static bool extents_check(const reader *r, lq_tensor *t, const uint64_t at[2]) {
    size_t want = lq_dtype_size(t->type);
    bool fits = true;
    for (int i = 0; i < t->rank && fits; i++) fits = lq_mul_size(want, (size_t)t->shape[i], &want);
    if (!fits) return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: the shape's product is past 2^64", r->s->path,
                              t->name);
    if (at[0] > at[1] || at[1] > r->data)
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: bytes %llu to %llu of %zu that there are%s",
                       r->s->path, t->name, (unsigned long long)at[0], (unsigned long long)at[1], r->data,
                       at[0] > at[1] ? "" : ": the file is cut short");
    if (at[1] - at[0] != want)
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: takes %llu bytes, shape and type say %zu", r->s->path,
                       t->name, (unsigned long long)(at[1] - at[0]), want);
    t->data = r->s->map + r->s->data_at + at[0];
    t->bytes = want;
    return true;
}

static bool tensor_take(reader *r, const char *name, size_t n) {
    lq_shard *s = r->s;
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    lq_tensor t = {.name = name, .type = LQ_DTYPES};
    uint64_t at[2] = {0};
    int seen = 0;
    if (strlen(name) != n || !lq_name_ok(name, n))
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor name \"%.100s\" is empty, too long or has control characters",
                       s->path, name);
    if (lq_json_next(&r->walk) != '{')
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: is not described by an object", s->path, name);
    lq_json_take(&r->walk);
    while (lq_json_next(&r->walk) != '}') {
        size_t m;
        char *mark = r->free_at; // a field's name and type need not be kept
        const char *key = string_take(r, &m);
        if (!strcmp(key, "dtype") && lq_json_next(&r->walk) == '"') {
            const char *dtype = string_take(r, &m);
            t.type = lq_dtype_of_safetensors(dtype);
            if (t.type == LQ_DTYPES || strlen(dtype) != m)
                return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: unknown type \"%.40s\"", s->path, name, dtype);
            seen |= DTYPE;
        } else if (!strcmp(key, "shape")) {
            if (!shape_take(r, &t)) return false;
            seen |= SHAPE;
        } else if (!strcmp(key, "data_offsets")) {
            if (!offsets_take(r, name, at)) return false;
            seen |= OFFSETS;
        } else {
            return lq_fail(r->err, LQ_E_FORMAT,
                           "%s: tensor %s: field \"%.40s\", expected dtype (a string), shape and data_offsets",
                           s->path, name, key);
        }
        r->free_at = mark;
    }
    lq_json_take(&r->walk);
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return lq_fail(r->err, LQ_E_FORMAT, "%s: tensor %s: dtype, shape or data_offsets is missing", s->path, name);
    if (!extents_check(r, &t, at)) return false;
    if (!grow((void **)&s->tensor, s->count, &r->cap, sizeof *s->tensor))
        return lq_fail(r->err, LQ_E_MEMORY, "%s: no memory for the header", s->path);
    s->tensor[s->count++] = t;
    return true;
}

static int by_place(const void *x, const void *y) {
    const lq_tensor *a = x, *b = y;
    const char *p = a->data, *q = b->data;
    if (p != q) return p < q ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); // an empty tensor stands before the one that begins there
}

static bool tiling_check(const reader *r) {
    const lq_shard *s = r->s;
    const uint8_t *at = s->map + s->data_at, *end = s->map + s->bytes;
    for (size_t i = 0; i < s->count; at = (const uint8_t *)s->tensor[i].data + s->tensor[i].bytes, i++) {
        const uint8_t *p = s->tensor[i].data;
        if (p < at)
            return lq_fail(r->err, LQ_E_FORMAT, "%s: tensors %s and %s overlap", s->path, s->tensor[i ? i - 1 : 0].name,
                           s->tensor[i].name);
        if (p > at)
            return lq_fail(r->err, LQ_E_FORMAT, "%s: %zu bytes before tensor %s belong to none", s->path,
                           (size_t)(p - at), s->tensor[i].name);
    }
    if (at != end) return lq_fail(r->err, LQ_E_FORMAT, "%s: the last %zu bytes belong to no tensor", s->path,
                                  (size_t)(end - at));
    return true;
}

bool lq_safetensors_read(lq_shard *s, lq_err *err) {
    if (s->bytes < 8) return lq_fail(err, LQ_E_FORMAT, "%s: %zu bytes are too few for a safetensors file", s->path,
                                     s->bytes);
    uint64_t n;
    const char *kind = lq_kind_of(s->map, s->bytes);
    memcpy(&n, s->map, 8);
    const bool fits = n >= 2 && n <= s->bytes - 8 && n <= header_max;
    if (kind && (!fits || s->map[8] != '{'))
        return lq_fail(err, LQ_E_FORMAT, "%s: not a safetensors file: is %s", s->path, kind);
    if (n > s->bytes - 8 || n > header_max)
        return lq_fail(err, LQ_E_FORMAT,
                       "%s: not a safetensors file, or cut short: header of %llu bytes in a file of %zu", s->path,
                       (unsigned long long)n, s->bytes);
    const char *text = s->header = malloc((size_t)n + 1);
    s->arena = malloc((size_t)n + 1);
    if (!s->header || !s->arena) return lq_fail(err, LQ_E_MEMORY, "%s: no memory for the header", s->path);
    memcpy(s->header, s->map + 8, (size_t)n);
    if (n < 2 || text[0] != '{')
        return lq_fail(err, LQ_E_FORMAT, "%s: not a safetensors file: the header does not begin with {", s->path);
    if (!lq_json_check(text, (size_t)n, (lq_json_limits){header_max, 4}, s->path, err)) return false;
    s->data_at = 8 + (size_t)n;
    reader r = {.s = s, .walk = {text, text + n}, .free_at = s->arena, .data = s->bytes - s->data_at, .err = err};
    lq_json_take(&r.walk);
    while (lq_json_next(&r.walk) != '}') {
        size_t len;
        const char *name = string_take(&r, &len);
        bool meta = !strcmp(name, "__metadata__") && len == strlen(name);
        if (!(meta ? meta_take(&r) : tensor_take(&r, name, len))) return false;
    }
    bool sorted = true;
    for (size_t i = 1; i < s->count && sorted; i++) sorted = by_place(&s->tensor[i - 1], &s->tensor[i]) <= 0;
    if (!sorted) qsort(s->tensor, s->count, sizeof *s->tensor, by_place);
    return tiling_check(&r);
}
