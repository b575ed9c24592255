// foreign.c: coded weights of other people's safetensors, found by the names of their tensors and what a config says:
// each is a row of forms[], which knows what its parts are called and reads its type off their shapes. Owns the names
// of such weights. What has the names and not the shapes is left for tensors of their own names, and
// lq_ckpt_foreign_check says why.
#include "formats/foreign.h"
#include "formats/container.h"
#include "formats/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct lq_form {
    const char *mark;               // the end of a tensor's name that only such weights have
    const char *weight;             // what stands in its place in the name of the weight
    const char *part[LQ_F_PARTS];   // and in those of its parts
    bool (*is)(const lq_foreign *f);// whether it is one at all; NULL: always
    bool (*read)(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err); // its type, size and `lie`
    bool kept;                      // codes stay as they are where no type is asked for, and so does what is beside
    bool upright;
} lq_form;

// --- shapes ---

static bool shaped(const lq_tensor *t, int64_t n, int64_t k) {
    return t && t->rank == 2 && t->shape[0] == n && t->shape[1] == k;
}

static bool sized(const lq_tensor *t, int rank) {
    if (!t || t->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (t->shape[i] < 1 || t->shape[i] > INT32_MAX / 32) return false;
    return true;
}

static bool is_scale(const lq_tensor *t) { return t->type == LQ_F32 || t->type == LQ_F16 || t->type == LQ_BF16; }

static bool fail_shape(const lq_tensor *t, const char *of, lq_err *err) {
    char text[LQ_RANK * 24] = "";
    for (int i = 0, at = 0; i < t->rank; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, i ? ", %lld" : "%lld", (long long)t->shape[i]);
    return lq_fail(err, LQ_E_FORMAT, "tensor %s: %s [%s], which does not go with the other parts of a weight of %s",
                   t->name, lq_dtypes[t->type].name, text, of);
}

// So many groups of k columns: the size that the config says, or the one that divides k.
static bool group_set(const lq_tensor *t, int64_t k, int64_t groups, int64_t said, lq_wtype *type, lq_err *err) {
    int64_t size = 0;
    if (groups == 1) return type->group = 0, true;
    if (said > 0 && (k - 1) / said + 1 == groups) size = said;
    else if (groups > 0 && k % groups == 0) size = k / groups;
    type->group = (int)size;
    if (size > 0 && size % 16 == 0 && size <= 1 << 20) return true;
    return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: %lld groups of %lld columns, expected groups of a multiple of 16",
                   t->name, (long long)groups, (long long)k);
}

// --- mxfp4, as gpt-oss has its experts ---

// Codes of fp4, 32 to a block of 16 bytes, in order, the first in the low bits; the exponent of each block.
static bool is_mxfp4(const lq_foreign *f) {
    const lq_tensor *t = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE];
    if (t->type != LQ_U8 || !sized(t, 4) || t->shape[3] != 16 || !s || s->type != LQ_U8 || !sized(s, 3)) return false;
    return !memcmp(t->shape, s->shape, 3 * sizeof *t->shape);
}

static bool read_mxfp4(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const int64_t *shape = f->part[LQ_F_SCALE]->shape;
    (void)says;
    w->count = shape[0], w->n = shape[1], w->k = 32 * shape[2];
    return lq_wtype_parse("mxfp4", &w->type, err);
}

// --- 8 bits with scales beside them: transformers' fp8, compressed-tensors' fp8 and int8 ---

static bool is_scaled(const lq_foreign *f) {
    const lq_tensor *t = f->part[LQ_F_CODES];
    return (t->type == LQ_E4M3 || t->type == LQ_I8) && (t->rank == 2 || t->rank == 3);
}

// The power of two of which `count` cover n; 0: there is none. There is only one unless one block covers all.
static int64_t block_of(int64_t n, int64_t count) {
    int64_t b = 1;
    while (b < n && (n - 1) / b + 1 > count) b *= 2;
    return n > 0 && (n - 1) / b + 1 == count ? b : 0;
}

// The type of a matrix [n][k] with scales of this shape.
static bool bands_set(const int64_t *shape, int rank, int64_t n, int64_t k, lq_wtype *t) {
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

// A number of scales does not tell the size of a block from another one that needs as many: the config must say the
// power of two.
static bool blocks_said(const lq_foreign_says *says, const lq_tensor *s, int64_t n, int64_t k, lq_err *err) {
    const int64_t of[2] = {n, k};
    if (s->rank < 2) return true;
    const int64_t is[2] = {s->shape[s->rank - 2], s->shape[s->rank - 1]};
    bool fits = is[1] == 1 && (is[0] == 1 || is[0] == n);
    for (int i = 0; i < 2 && !fits; i++) {
        const int64_t b = says->block[i];
        if (b < 1 || (b & (b - 1)) || is[i] < 1 || (of[i] - 1) / b + 1 != is[i]) break;
        fits = i == 1;
    }
    return fits || lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: scales [%lld, %lld] of blocks, but config.json says no "
                           "weight_block_size of powers of two that makes them", s->name, (long long)is[0],
                           (long long)is[1]);
}

static bool read_scaled(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *t = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE];
    const int front = t->rank == 3;
    if (!sized(t, t->rank)) return fail_shape(t, "8 bits", err);
    w->count = front ? t->shape[0] : 0, w->n = t->shape[front], w->k = t->shape[front + 1];
    w->type = (lq_wtype){.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .scale = s->type};
    if (t->type == LQ_I8) w->type.kind = LQ_W_INT, w->type.elem = LQ_U8, f->lie = LQ_LIE_SIGNS;
    if (!is_scale(s))
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: scales in %s, expected f32, f16 or bf16", s->name,
                       lq_dtypes[s->type].name);
    if (s->rank < front || (front && s->shape[0] != w->count) ||
        !bands_set(s->shape + front, s->rank - front, w->n, w->k, &w->type))
        return lq_fail(err, LQ_E_FORMAT,
                       "tensor %s: scales that do not fit a matrix of %lld x %lld: expected one, one a row, or one "
                       "for each block of a power of two", s->name, (long long)w->n, (long long)w->k);
    return blocks_said(says, s, w->n, w->k, err);
}

// --- GPTQ and AWQ ---

static bool read_awq(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *z = f->part[LQ_F_ZERO];
    const char *version = *says->version ? says->version : strcmp(says->form, "gptq") ? says->form : "gemm";
    const bool wide = !strcmp(version, "gemv");
    w->type.bits = 4;
    if (!wide && strcmp(version, "gemm") != 0)
        return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: AWQ of version %s, expected gemm or gemv", q->name, version);
    if (wide) {
        w->n = q->shape[0], w->k = 8 * q->shape[1], f->lie = LQ_LIE_WIDE;
        const int64_t size = says->group > 0 ? says->group : w->k, groups = (w->k - 1) / size + 1;
        if (z->shape[1] < (groups - 1) / 8 + 1 || z->shape[0] != w->n || !shaped(s, w->n, 8 * z->shape[1]))
            return fail_shape(z, "AWQ, version gemv", err);
        return group_set(s, w->k, groups, size, &w->type, err);
    }
    w->n = s->shape[1], w->k = q->shape[0], f->lie = LQ_LIE_TURNS;
    if (w->n % 8 || q->shape[1] != w->n / 8) return fail_shape(q, "AWQ", err);
    if (!shaped(z, s->shape[0], w->n / 8)) return fail_shape(z, "AWQ", err);
    return group_set(s, w->k, s->shape[0], says->group, &w->type, err);
}

static bool read_gptq(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *z = f->part[LQ_F_ZERO];
    const lq_tensor *g = f->part[LQ_F_ORDER];
    const int64_t n = s->shape[1], bits = 32 * z->shape[1] / n;
    f->lie = LQ_LIE_DOWN, f->less = !strcmp(says->form, "gptq");
    if (!f->less && strcmp(says->form, "gptq_v2") != 0)
        return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: GPTQ of the form %s, expected gptq or gptq_v2", q->name,
                       says->form);
    if ((bits != 2 && bits != 3 && bits != 4 && bits != 8) || z->shape[1] * 32 != n * bits ||
        z->shape[0] != s->shape[0])
        return fail_shape(z, "GPTQ", err);
    if (q->shape[1] != n || q->shape[0] * 32 % bits) return fail_shape(q, "GPTQ", err);
    w->n = n, w->k = q->shape[0] * 32 / bits;
    w->type.bits = (int)bits;
    if (g && (g->type != LQ_I32 || g->rank != 1 || g->shape[0] != w->k)) return fail_shape(g, "GPTQ", err);
    return group_set(s, w->k, s->shape[0], says->group, &w->type, err);
}

static bool read_qweight(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *z = f->part[LQ_F_ZERO];
    if (!s || !z)
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: there are no %s beside it", q->name, s ? "qzeros" : "scales");
    if (q->type != LQ_I32 || !sized(q, 2)) return fail_shape(q, "GPTQ or AWQ", err);
    if (z->type != LQ_I32 || !sized(z, 2)) return fail_shape(z, "GPTQ or AWQ", err);
    if (!is_scale(s) || !sized(s, 2)) return fail_shape(s, "GPTQ or AWQ", err);
    w->type = (lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .asym = true, .scale = s->type};
    const bool awq = !strcmp(says->method, "awq") || (!*says->method && 8 * q->shape[1] == s->shape[1]);
    return (awq ? read_awq : read_gptq)(says, f, w, err);
}

// --- compressed-tensors, packed ---

static bool read_fp4(lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *all = f->part[LQ_F_GLOBAL];
    const bool nv = s->type == LQ_E4M3;
    w->n = q->shape[0], w->k = 2 * q->shape[1];
    f->lie = nv ? LQ_LIE_ROWS : LQ_LIE_OURS;
    if (w->k % (nv ? 16 : 32) || (s->type != LQ_U8 && s->type != LQ_E8M0 && !nv) ||
        !shaped(s, w->n, w->k / (nv ? 16 : 32)))
        return fail_shape(s, nv ? "nvfp4" : "mxfp4", err);
    if (nv && (!all || all->type != LQ_F32 || all->bytes != sizeof(float)))
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: there is no weight_global_scale, one number in f32, beside it",
                       q->name);
    return lq_wtype_parse(nv ? "nvfp4" : "mxfp4", &w->type, err);
}

// How many bits make so many words of k codes.
static int bits_of(int64_t k, int64_t words, int64_t said) {
    if (said >= 2 && said <= 8 && (k * said + 31) / 32 == words) return (int)said;
    for (int b = 2; b <= 8; b++)
        if ((k * b + 31) / 32 == words) return b;
    return 0;
}

static bool read_packed(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *z = f->part[LQ_F_ZERO];
    const lq_tensor *g = f->part[LQ_F_ORDER], *shape = f->part[LQ_F_SHAPE];
    int64_t size[2] = {0};
    if (!s) return lq_fail(err, LQ_E_FORMAT, "tensor %s: there is no weight_scale beside it", q->name);
    if (!sized(q, 2) || (q->type != LQ_U8 && q->type != LQ_I32)) return fail_shape(q, "compressed-tensors", err);
    if (q->type == LQ_U8) return read_fp4(f, w, err);
    if (!shape || shape->type != LQ_I64 || shape->bytes != sizeof size)
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: there is no weight_shape, two numbers in i64, beside it", q->name);
    memcpy(size, shape->data, sizeof size);
    const int bits = size[1] > 0 && size[1] <= INT32_MAX / 32 ? bits_of(size[1], q->shape[1], says->bits) : 0;
    if (!bits || size[0] != q->shape[0])
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: [%lld, %lld] words are no dense codes of a matrix %lld x %lld",
                       q->name, (long long)q->shape[0], (long long)q->shape[1], (long long)size[0], (long long)size[1]);
    w->n = size[0], w->k = size[1], f->lie = LQ_LIE_ROWS;
    w->type = (lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .bits = bits, .asym = z != NULL, .scale = s->type};
    const bool one = s->rank < 3 && s->bytes == lq_dtype_size(s->type);
    const int64_t groups = s->rank == 2 && !one ? s->shape[1] : 1;
    if (!is_scale(s) || (!one && s->rank == 1 && s->shape[0] != w->n) || (!one && s->rank == 2 && !sized(s, 2)) ||
        (!one && s->rank == 2 && s->shape[0] != w->n) || s->rank > 2)
        return fail_shape(s, "compressed-tensors", err);
    if (z && (z->type != LQ_I32 || !shaped(z, (w->n * bits + 31) / 32, groups)))
        return fail_shape(z, "compressed-tensors", err);
    if (g && (g->type != LQ_I32 || g->rank != 1 || g->shape[0] != w->k))
        return fail_shape(g, "compressed-tensors", err);
    int32_t first = 0;
    if (g) memcpy(&first, g->data, sizeof first);
    if (first == -1) f->part[LQ_F_ORDER] = NULL; // room that nobody filled
    return group_set(s, w->k, groups, says->group, &w->type, err);
}

// --- bitsandbytes ---

// The numbers of a state, which is a tensor of text.
static bool read_state(const lq_tensor *t, lq_foreign *f, lq_typed *w, int64_t *block, lq_err *err) {
    const lq_json_limits limits = {1 << 16, 8};
    cJSON *o = NULL;
    double offset = 0;
    if (t->type != LQ_U8 || !lq_json_parse(t->data, t->bytes, limits, t->name, &o, err))
        return t->type == LQ_U8 ? false : fail_shape(t, "bitsandbytes", err);
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(o, "shape");
    bool ok = cJSON_IsArray(shape) && cJSON_GetArraySize(shape) == 2;
    int64_t size[2] = {0};
    for (int i = 0; i < 2 && ok; i++) {
        const double v = cJSON_GetArrayItem(shape, i)->valuedouble;
        ok = v >= 1 && v <= INT32_MAX / 32;
        if (ok) size[i] = (int64_t)v;
    }
    w->n = size[0], w->k = size[1];
    if (!ok) lq_fail(err, LQ_E_FORMAT, "tensor %s: says no shape of two numbers", t->name);
    ok = ok && lq_json_int(o, "blocksize", 1, 1 << 20, block, t->name, err) &&
         lq_json_int(o, "nested_blocksize", 1, 1 << 20, &f->outer, t->name, err) &&
         lq_json_num(o, "nested_offset", &offset, t->name, err);
    f->offset = (float)offset;
    cJSON_Delete(o);
    return ok;
}

static bool floats(const lq_tensor *t, int64_t count) {
    return t && t->type == LQ_F32 && count > 0 && t->bytes == (size_t)count * sizeof(float);
}

static bool read_bnb4(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *table = f->part[LQ_F_TABLE];
    const lq_tensor *outer = f->part[LQ_F_OUTER], *map = f->part[LQ_F_OUTER_TABLE], *state = f->part[LQ_F_STATE];
    int64_t block = 0;
    (void)says;
    if (!s || !table)
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: there is no %s beside it", state->name,
                       s ? "quant_map" : "absmax");
    if (!read_state(state, f, w, &block, err)) return false;
    if (block < 1 || w->k % block || block % 16)
        return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: blocks of %lld, but rows of %lld: some belong to two rows",
                       q->name, (long long)block, (long long)w->k);
    const int64_t scales = w->n * (w->k / block);
    if (q->bytes != (size_t)(w->n * (w->k / 2))) return fail_shape(q, "bitsandbytes", err);
    if (!floats(table, 16)) return fail_shape(table, "bitsandbytes", err);
    if (outer ? s->type != LQ_U8 || s->bytes != (size_t)scales : !floats(s, scales))
        return fail_shape(s, "bitsandbytes", err);
    if (outer && (f->outer < 1 || !floats(outer, (scales - 1) / f->outer + 1)))
        return fail_shape(outer, "bitsandbytes", err);
    if (outer && !floats(map, 256))
        return lq_fail(err, LQ_E_FORMAT, "tensor %s: there is no nested_quant_map of 256 numbers beside it",
                       outer->name);
    float values[16];
    memcpy(values, table->data, sizeof values);
    for (int i = 0; i < 16; i++)
        if (!isfinite(values[i]))
            return lq_fail(err, LQ_E_FORMAT, "tensor %s: number %d is not finite", table->name, i);
    const int nf4 = lq_codebook_of("nf4");
    const bool named = nf4 && !memcmp(values, lq_codebooks[nf4 - 1].value, sizeof values);
    w->type = (lq_wtype){.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .scale = LQ_F32, .book = named ? nf4 : 0,
                         .group = block == w->k ? 0 : (int)block};
    w->type.dq = outer && f->outer == LQ_DQ;
    f->lie = LQ_LIE_HALVES;
    return true;
}

static bool read_bnb8(const lq_foreign_says *says, lq_foreign *f, lq_typed *w, lq_err *err) {
    const lq_tensor *q = f->part[LQ_F_CODES], *s = f->part[LQ_F_SCALE], *format = f->part[LQ_F_SHAPE];
    (void)says;
    if (q->type != LQ_I8 || !sized(q, 2)) return fail_shape(q, "bitsandbytes", err);
    if (format && (format->bytes != 1 || *(const uint8_t *)format->data != 0))
        return lq_fail(err, LQ_E_UNSUPPORTED, "tensor %s: codes in tiles, expected them by row", format->name);
    w->n = q->shape[0], w->k = q->shape[1], f->lie = LQ_LIE_SIGNS, f->over = 127;
    w->type = (lq_wtype){.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F32};
    return floats(s, w->n) || fail_shape(s, "bitsandbytes", err);
}

// --- all forms ---

#define BNB4(of)                                                                                                       \
    {".weight.quant_state.bitsandbytes__" of, ".weight",                                                               \
     {[LQ_F_CODES] = ".weight", [LQ_F_SCALE] = ".weight.absmax", [LQ_F_TABLE] = ".weight.quant_map",                   \
      [LQ_F_OUTER] = ".weight.nested_absmax", [LQ_F_OUTER_TABLE] = ".weight.nested_quant_map",                         \
      [LQ_F_STATE] = ".weight.quant_state.bitsandbytes__" of}, NULL, read_bnb4, true, true}
static const lq_form forms[] = {
    {"_blocks", "", {[LQ_F_CODES] = "_blocks", [LQ_F_SCALE] = "_scales"}, is_mxfp4, read_mxfp4, false, false},
    {".qweight", ".weight", {[LQ_F_CODES] = ".qweight", [LQ_F_SCALE] = ".scales", [LQ_F_ZERO] = ".qzeros",
     [LQ_F_ORDER] = ".g_idx"}, NULL, read_qweight, true, true},
    {".weight_packed", ".weight", {[LQ_F_CODES] = ".weight_packed", [LQ_F_SCALE] = ".weight_scale",
     [LQ_F_ZERO] = ".weight_zero_point", [LQ_F_ORDER] = ".weight_g_idx", [LQ_F_SHAPE] = ".weight_shape",
     [LQ_F_GLOBAL] = ".weight_global_scale"}, NULL, read_packed, true, true},
    BNB4("nf4"),
    BNB4("fp4"),
    {".SCB", ".weight", {[LQ_F_CODES] = ".weight", [LQ_F_SCALE] = ".SCB", [LQ_F_SHAPE] = ".weight_format"}, NULL,
     read_bnb8, true, true},
    {"_scale_inv", "", {[LQ_F_CODES] = "", [LQ_F_SCALE] = "_scale_inv"}, is_scaled, read_scaled, false, false},
    {"_scale", "", {[LQ_F_CODES] = "", [LQ_F_SCALE] = "_scale"}, is_scaled, read_scaled, false, false},
};

// The tensor `<stem><tail>`; NULL: there is none.
static const lq_tensor *beside(const lq_ckpt *c, const char *name, size_t stem, const char *tail) {
    char full[2 * LQ_NAME];
    snprintf(full, sizeof full, "%.*s%s", (int)stem, name, tail);
    return lq_ckpt_find(c, full);
}

// The form of which a tensor is the mark. *stem: the length of what stands before it.
static const lq_form *form_of(const lq_ckpt *c, const lq_tensor *t, lq_foreign *f, size_t *stem) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const lq_form *form = &forms[i];
        if (!lq_name_ends(t->name, form->mark)) continue;
        *stem = strlen(t->name) - strlen(form->mark);
        *f = (lq_foreign){.form = form};
        for (int p = 0; p < LQ_F_PARTS; p++)
            if (form->part[p]) f->part[p] = beside(c, t->name, *stem, form->part[p]);
        if (f->part[LQ_F_CODES] && (!form->is || form->is(f))) return form;
    }
    return NULL;
}

// --- what the config says ---

static void take_word(const cJSON *o, const char *key, char *to, size_t size) {
    const char *s = lq_json_str(o, key);
    if (s) snprintf(to, size, "%s", s);
    for (char *p = to; *p; p++)
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
}

static void take_int(const cJSON *o, const char *key, int64_t *to) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (cJSON_IsNumber(v) && v->valuedouble >= 1 && v->valuedouble <= 1 << 20) *to = (int64_t)v->valuedouble;
}

static void take_blocks(const cJSON *size, lq_foreign_says *s) {
    if (!cJSON_IsArray(size) || cJSON_GetArraySize(size) != 2 || s->block[0]) return;
    for (int i = 0; i < 2; i++) {
        const double b = cJSON_GetArrayItem(size, i)->valuedouble;
        s->block[i] = b >= 1 && b <= 1 << 20 && b == floor(b) ? (int64_t)b : 0;
    }
}

static void take_how(const cJSON *how, lq_foreign_says *s) {
    const cJSON *group, *sym = cJSON_GetObjectItemCaseSensitive(how, "sym");
    char packing[64] = "";
    take_word(how, "quant_method", s->method, sizeof s->method);
    take_word(how, "checkpoint_format", s->form, sizeof s->form);
    take_word(how, "version", s->version, sizeof s->version);
    take_word(how, "packing_format", packing, sizeof packing);
    take_int(how, "bits", &s->bits), take_int(how, "w_bit", &s->bits);
    take_int(how, "group_size", &s->group), take_int(how, "q_group_size", &s->group);
    s->asym = cJSON_IsFalse(sym) || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(how, "zero_point"));
    take_blocks(cJSON_GetObjectItemCaseSensitive(how, "weight_block_size"), s);
    cJSON_ArrayForEach(group, cJSON_GetObjectItemCaseSensitive(how, "config_groups")) {
        const cJSON *weights = cJSON_GetObjectItemCaseSensitive(group, "weights");
        take_int(weights, "num_bits", &s->bits);
        take_int(weights, "group_size", &s->group);
        take_blocks(cJSON_GetObjectItemCaseSensitive(weights, "block_structure"), s);
    }
    if (lq_name_ends(packing, "awq")) strcpy(s->method, "awq");
    // AutoRound's own packing has zero points as they are.
    if (strstr(s->method, "auto-round") && !*s->form)
        strcpy(s->form, lq_name_ends(packing, "auto_gptq") ? "gptq" : "gptq_v2");
    if (!*s->form) strcpy(s->form, "gptq");
}

// Of config.json, or of the file that the older tools wrote beside it. What does not parse others refuse.
static void read_config(lq_ckpt *c, lq_foreign_says *s) {
    static const char *const files[] = {"config.json", "quantize_config.json", "quant_config.json"};
    const lq_json_limits limits = {16u << 20, 64};
    bool found = false;
    for (int i = 0; i < 3 && !found; i++) {
        lq_bytes text;
        cJSON *o = NULL;
        if (!lq_ckpt_file(c, files[i], &text, NULL) || !text.p) continue;
        if (!lq_json_parse(text.p, text.n, limits, files[i], &o, NULL)) continue;
        const cJSON *in = cJSON_GetObjectItemCaseSensitive(o, "text_config"), *how = i ? o : NULL;
        const cJSON *const at[] = {o, in};
        for (int k = 0; k < 2 && !how; k++) {
            how = cJSON_GetObjectItemCaseSensitive(at[k], "quantization_config");
            if (!how) how = cJSON_GetObjectItemCaseSensitive(at[k], "compression_config");
        }
        found = cJSON_IsObject(how);
        if (found && i == 2 && !lq_json_str(how, "quant_method")) strcpy(s->method, "awq");
        if (found) take_how(how, s);
        cJSON_Delete(o);
    }
    if (!found) strcpy(s->form, "gptq");
}

// --- finding them ---

// A matrix of a stack has the parts and the type of the others: so zero points are stored for all weights of a
// checkpoint or for none, and so is an order of columns.
static bool zeros_differ(const lq_foreign *f, const lq_typed *w) {
    const lq_tensor *z = f->part[LQ_F_ZERO];
    const int bits = w->type.bits;
    const uint32_t want = ((1u << (bits - 1)) - f->less) & ((1u << bits) - 1);
    const size_t row = (size_t)z->shape[1] * 4;
    uint8_t *same = f->lie == LQ_LIE_WIDE ? NULL : malloc(row);
    bool differ = !same;
    for (int64_t i = 0; i < w->n && same; i++) lq_code_set(same, bits, i, want);
    for (int64_t g = 0; g < z->shape[0] && !differ; g++)
        differ = memcmp(same, (const char *)z->data + (size_t)g * row, row);
    free(same);
    return differ;
}

static bool order_differs(const lq_foreign *f, const lq_typed *w) {
    const lq_tensor *g = f->part[LQ_F_ORDER];
    for (int64_t i = 0; i < w->k && w->type.group; i++) {
        int32_t of;
        memcpy(&of, (const char *)g->data + (size_t)i * sizeof of, sizeof of);
        if (of != i / w->type.group) return true;
    }
    return false;
}

static void look_at_all(lq_ckpt *c) {
    bool asym = c->says.asym;
    for (size_t i = 0; i < c->typeds; i++) {
        const lq_foreign *f = &c->foreign[i];
        if (!c->orders && f->part[LQ_F_ORDER]) c->orders = order_differs(f, &c->typed[i]);
        if (!asym && f->part[LQ_F_CODES] && f->form->read == read_qweight) asym = zeros_differ(f, &c->typed[i]);
        c->packed |= f->form->kept;
    }
    for (size_t i = 0; i < c->typeds && !asym; i++)
        if (c->foreign[i].form->read == read_qweight) c->typed[i].type.asym = false;
}

bool lq_foreign_find(lq_ckpt *c, lq_err *err) {
    size_t count = 0, bytes = 0, stem;
    lq_foreign f;
    for (size_t i = 0; i < c->count; i++) {
        const lq_form *form = form_of(c, &c->tensor[i], &f, &stem);
        if (form) count++, bytes += stem + strlen(form->weight) + 1;
    }
    if (!count) return true;
    read_config(c, &c->says);
    lq_typed *all = realloc(c->typed, count * sizeof *all);
    if (all) c->typed = all;
    c->foreign = calloc(count, sizeof *c->foreign);
    char *at = c->foreign_names = malloc(bytes);
    if (!all || !at || !c->foreign)
        return lq_fail(err, LQ_E_MEMORY, "%s: no memory for the names of %zu weights", c->path, count);
    for (size_t i = 0; i < c->count; i++) {
        const lq_form *form = form_of(c, &c->tensor[i], &f, &stem);
        if (!form) continue;
        lq_typed w = {.name = at, .layout = LQ_ANY, .upright = form->upright};
        if (!form->read(&c->says, &f, &w, NULL)) continue;
        const size_t tail = strlen(form->weight);
        memcpy(at, c->tensor[i].name, stem);
        memcpy(at + stem, form->weight, tail + 1);
        at += stem + tail + 1;
        const lq_tensor *own = lq_ckpt_find(c, w.name);
        if (own && own != f.part[LQ_F_CODES])
            return lq_fail(err, LQ_E_FORMAT, "%s: weight %s is there twice", c->path, w.name);
        c->foreign[c->typeds] = f;
        c->typed[c->typeds++] = w;
    }
    look_at_all(c);
    return true;
}

bool lq_ckpt_foreign_check(const lq_ckpt *c, lq_err *err) {
    lq_foreign f;
    lq_typed w;
    size_t stem;
    for (size_t i = 0; i < c->count && c->shards && !c->shard->sum; i++) {
        const lq_form *form = form_of(c, &c->tensor[i], &f, &stem);
        w = (lq_typed){.layout = LQ_ANY};
        if (form && !form->read(&c->says, &f, &w, err)) return false;
    }
    return true;
}

// --- asking ---

const lq_foreign *lq_foreign_of(const lq_ckpt *c, const lq_typed *w) {
    return c->foreign ? &c->foreign[w - c->typed] : NULL;
}

bool lq_ckpt_packed(const lq_ckpt *c) { return c->packed; }

bool lq_ckpt_loose(const lq_ckpt *c, const lq_typed *w) {
    const lq_foreign *f = lq_foreign_of(c, w);
    return f && f->form->is == is_scaled;
}

// The weight of this form of which a tensor is a part.
static const lq_typed *weight_of(const lq_ckpt *c, const char *tensor, const lq_form *form, bool *has_codes) {
    char name[2 * LQ_NAME];
    for (int p = 0; p < LQ_F_PARTS; p++) {
        if (!form->part[p] || (*form->part[p] && !lq_name_ends(tensor, form->part[p]))) continue;
        const size_t stem = strlen(tensor) - strlen(form->part[p]);
        snprintf(name, sizeof name, "%.*s%s", (int)stem, tensor, form->weight);
        const lq_typed *w = lq_ckpt_typed(c, name);
        if (w && lq_foreign_of(c, w)->form == form) return *has_codes = p == LQ_F_CODES, w;
    }
    return NULL;
}

const lq_typed *lq_ckpt_part_of(const lq_ckpt *c, const char *tensor, bool *has_codes) {
    char name[LQ_NAME];
    const lq_typed *w = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && c->foreign && !w; i++)
        w = weight_of(c, tensor, &forms[i], has_codes);
    const size_t n = strlen(tensor), tail = lq_part_tail(tensor);
    if (w || c->foreign || !tail || n - tail >= sizeof name) return w;
    memcpy(name, tensor, n - tail);
    name[n - tail] = 0;
    w = lq_ckpt_typed(c, name);
    *has_codes = w && !strcmp(tensor + n - tail, lq_part_suffix(LQ_PART_Q));
    return w;
}
