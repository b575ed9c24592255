// block.c: weight types in words and in bytes: names, sizes of parts in each layout, codes, one row dequantized.
// Refuses (by returning false) sizes that do not fit and types a layout has no form for.
#include "formats/layout.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const lq_layout_names[LQ_LAYOUTS] = {[LQ_ANY] = "any", [LQ_X86] = "x86", [LQ_CUDA] = "cuda"};

// --- sizes ---

// Integers meet integers, E4M3 what is eight bits wide; one scale for all rows is the file's, and
// only such a one has a zero point.
static const char *act_fault(const lq_wtype *t) {
    const lq_atype *a = &t->act;
    if (a->elem == LQ_F32)
        return a->group || a->fixed || a->asym ? "activations that are not rounded have no scale" : NULL;
    if (a->elem != LQ_I8 && a->elem != LQ_E4M3) return "activations are i8 or e4m3";
    if (a->elem == LQ_I8 && t->kind != LQ_W_INT) return "i8 activations need an int weight";
    if (a->elem == LQ_E4M3 && t->kind != LQ_W_FLOAT) return "e4m3 activations need an e4m3 or e5m2 weight";
    if (a->group < 0 || a->group % 16) return "a group is a multiple of 16";
    if (a->fixed && a->group) return "activations have one scale in the file, or one for each row or group";
    if (a->asym && (!a->fixed || a->elem != LQ_I8))
        return "only i8 activations with the file's scale have a zero point";
    return NULL;
}

static const char *type_fault(const lq_wtype *t) {
    if (t->elem < 0 || t->elem >= LQ_DTYPES || t->kind < LQ_W_PLAIN || t->kind > LQ_W_FLOAT)
        return "an element that is not known";
    if (t->kind == LQ_W_PLAIN) return act_fault(t);
    if (t->kind == LQ_W_FLOAT && t->elem != LQ_E4M3 && t->elem != LQ_E5M2) return "codes with a sign are int8";
    if (t->bits < 2 || t->bits > 8) return "codes have 2 to 8 bits";
    if (t->group < 0 || t->group % 16 || t->rows < 0) return "a group is a multiple of 16";
    const bool small = t->scale == LQ_E8M0 || t->scale == LQ_E4M3;
    if (t->scale != LQ_F16 && t->scale != LQ_F32 && t->scale != LQ_BF16 && !small)
        return "a scale is f16, f32 or bf16, or e8m0 or e4m3";
    if (small && t->kind == LQ_W_INT) return "scales e8m0 and e4m3 belong to tables and 8-bit floats";
    if (t->dq && (t->scale != LQ_F32 || t->rows > 1)) return "scales dq256 need one for each row";
    if (t->asym && (t->kind != LQ_W_INT || t->rows > 1)) return "zero points need a scale for each row";
    if (t->book && (t->kind != LQ_W_TABLE || t->book < 0 || t->book > lq_codebook_count ||
                    lq_codebooks[t->book - 1].bits != t->bits))
        return "a codebook of another kind";
    return act_fault(t);
}

static bool type_ok(const lq_wtype *t) { return !type_fault(t); }

// Rows and columns are counted in an int32 by perm, by outlier columns and by LQ_ROWS_ALL.
static bool shape_ok(int64_t n, int64_t k) { return n > 0 && k > 0 && n <= INT32_MAX && k <= INT32_MAX; }

bool lq_weight_sizes(const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out) {
    *out = (lq_weight_size){0};
    if (!type_ok(t) || !shape_ok(n, k)) return false;
    size_t rows = (size_t)n, row = (size_t)k;
    if (t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT) {
        if (!lq_mul_size(row, lq_dtype_size(t->elem), &row)) return false;
    } else {
        row = lq_code_row_bytes(t->bits, k);
    }
    if (!lq_mul_size(rows, row, &out->q)) return false;
    if (t->kind == LQ_W_PLAIN) return true;
    int64_t groups = lq_weight_groups(t, k);
    size_t bands = t->rows > 1 ? (size_t)((n - 1) / t->rows + 1) : rows;
    if (!lq_mul_size(bands, (size_t)groups * lq_dtype_size(t->scale), &out->scale)) return false;
    return !t->asym || lq_mul_size(rows, lq_code_row_bytes(t->bits, groups), &out->zero);
}

// x86: ints, and tables that have a name, in tiles of 16 rows, codes in planes (layout.c), but for those of 4 and 8
// bits 32 k at a time. N is padded to 16, K to the group, or to 128 where a row has one scale (the activations' group,
// so that no kernel meets a part of one). A dot product over a larger group would leave int32. Kernels want activations
// in cells of the weight's group, or in parts of 128 where a row has one scale; with zero points only where a row's
// products are one int32.
static bool x86_act_ok(const lq_wtype *t, int64_t k) {
    if (t->act.elem != LQ_I8) return t->act.elem == LQ_F32;
    if (t->act.asym) return !t->group && k <= 32768;
    return !t->group || t->act.group % t->group == 0;
}

static bool x86_sizes(const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out) {
    *out = (lq_weight_size){0};
    if (!type_ok(t) || !shape_ok(n, k) || (t->kind != LQ_W_INT && !lq_wtype_book(t)) || t->bits == 7) return false;
    if (t->bits != 4 && t->bits != 8 && (t->group % 32 || t->act.group % 32)) return false;
    if (t->rows > 1 || t->group > 32768 || !x86_act_ok(t, k)) return false;
    const size_t wide = (size_t)lq_laid_wide(LQ_X86, t, k);
    const size_t tiles = ((size_t)n + 15) / 16, groups = (size_t)lq_weight_groups(t, k);
    return lq_mul_size(tiles, wide * (size_t)t->bits * 2, &out->q) &&
           lq_mul_size(tiles, groups * 16 * lq_dtype_size(t->scale), &out->scale) &&
           (!t->asym || lq_mul_size(tiles, groups * 16, &out->zero));
}

// cuda: stripes of 64 rows, N and K padded to whole blocks. Tensor cores read rows of types whose activations are 8
// bits wide, as layout any has them.
static bool cuda_sizes(const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out) {
    *out = (lq_weight_size){0};
    if (!type_ok(t) || !shape_ok(n, k) || t->kind == LQ_W_PLAIN || t->act.elem != LQ_F32) return false;
    if (t->bits == 7 || (t->kind == LQ_W_FLOAT && t->bits != 8)) return false;
    const size_t rows = (size_t)lq_laid_rows(LQ_CUDA, n), groups = (size_t)lq_weight_groups(t, k);
    if (!lq_weight_sizes(t, n, k, out)) return false;
    const size_t row = (size_t)lq_laid_wide(LQ_CUDA, t, k) * (size_t)t->bits / 8;
    return lq_mul_size(rows, row, &out->q) &&
           (t->rows > 1 || lq_mul_size(rows, groups * lq_dtype_size(t->scale), &out->scale)) &&
           (!t->asym || lq_mul_size(t->bits > 4 ? rows : rows / 2, groups, &out->zero));
}

bool lq_layout_sizes(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k, lq_weight_size *out) {
    if (layout == LQ_ANY) return lq_weight_sizes(t, n, k, out);
    if (layout == LQ_X86) return x86_sizes(t, n, k, out);
    return cuda_sizes(t, n, k, out);
}

lq_layout lq_layout_in(lq_layout file, const lq_wtype *t, int64_t n, int64_t k) {
    lq_weight_size size;
    return !t->dq && lq_layout_sizes(file, t, n, k, &size) ? file : LQ_ANY;
}

// --- rows ---

size_t lq_scale_count(const lq_wtype *t, int64_t n, int64_t k) {
    return (size_t)(t->rows > 1 ? (n - 1) / t->rows + 1 : n) * (size_t)lq_weight_groups(t, k);
}

float lq_scale_get(const lq_weight *w, size_t i) {
    if (!w->scale && w->type.dq)
        return lq_scale_value(w->scale_map, w->scale_code[i], w->scale2[i / LQ_DQ], *w->scale_offset);
    const char *p = (const char *)w->scale + i * lq_dtype_size(w->type.scale);
    if (w->type.scale == LQ_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return f;
    }
    if (w->type.scale == LQ_E8M0 || w->type.scale == LQ_E4M3) {
        float f;
        lq_dtypes[w->type.scale].to_f32(p, &f, 1);
        return w->type.scale == LQ_E4M3 ? f * *w->scale2 : f;
    }
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return w->type.scale == LQ_F16 ? lq_f16_f32(h) : lq_bf16_f32(h);
}

// Codes first..end of a row less z, as floats (or looked up in the table).
static void codes_widen(const lq_weight *w, const uint8_t *row, int64_t first, int64_t end, float z, float *dst) {
    if (w->type.kind == LQ_W_FLOAT) {
        lq_dtypes[w->type.elem].to_f32(row + (size_t)first * lq_dtype_size(w->type.elem), dst, (size_t)(end - first));
    } else if (w->type.kind == LQ_W_TABLE) {
        const float *table = w->type.book ? lq_wtype_table(&w->type) : w->table;
        for (int64_t i = first; i < end; i++) dst[i - first] = table[lq_code_get(row, w->type.bits, i)];
    } else if (w->type.bits == 8) {
        for (int64_t i = first; i < end; i++) dst[i - first] = (float)row[i] - z;
    } else if (w->type.bits == 4) {
        for (int64_t i = first; i < end; i++) dst[i - first] = (float)(row[i >> 1] >> (i & 1) * 4 & 15) - z;
    } else {
        for (int64_t i = first; i < end; i++) dst[i - first] = (float)lq_code_get(row, w->type.bits, i) - z;
    }
}

void lq_weight_row_any(const lq_weight *w, int64_t row, float *dst) {
    const lq_wtype *t = &w->type;
    size_t elem = lq_dtype_size(t->elem);
    if (t->kind == LQ_W_PLAIN) {
        lq_dtypes[t->elem].to_f32((const char *)w->q + (size_t)row * (size_t)w->k * elem, dst, (size_t)w->k);
        return;
    }
    size_t row_bytes = t->kind == LQ_W_FLOAT ? (size_t)w->k * elem : lq_code_row_bytes(t->bits, w->k);
    const uint8_t *q = (const uint8_t *)w->q + (size_t)row * row_bytes;
    int64_t groups = lq_weight_groups(t, w->k), band = t->rows > 1 ? row / t->rows : row;
    int64_t group = t->group ? t->group : w->k;
    const uint8_t *zeros = w->zero ? w->zero + (size_t)row * lq_code_row_bytes(t->bits, groups) : NULL;
    for (int64_t g = 0; g < groups; g++) {
        int64_t first = g * group, end = first + group < w->k ? first + group : w->k;
        float s = lq_scale_get(w, (size_t)(band * groups + g));
        float z = zeros ? (float)lq_code_get(zeros, t->bits, g) : (float)(1 << (t->bits - 1));
        float part[256];
        for (int64_t at = first; at < end; at += 256) {
            int64_t stop = at + 256 < end ? at + 256 : end;
            codes_widen(w, q, at, stop, z, part);
            if (w->perm)
                for (int64_t i = at; i < stop; i++) dst[w->perm[i]] = part[i - at] * s;
            else
                for (int64_t i = at; i < stop; i++) dst[i] = part[i - at] * s;
        }
    }
    for (int32_t i = 0; i < w->outliers; i++)
        dst[w->perm ? w->perm[w->outlier[i]] : w->outlier[i]] =
            lq_bf16_f32(w->outlier_w[(size_t)row * (size_t)w->outliers + (size_t)i]);
}

// --- names ---

static int group_name(char *buf, size_t size, int group, bool all) {
    return group ? snprintf(buf, size, " g%d", group) : snprintf(buf, size, all ? " tensor" : " row");
}

// Each piece has its bound, and all of them together are below LQ_WTYPE_TEXT.
void lq_wtype_name(const lq_wtype *t, char *buf, size_t size) {
    const char *elem = lq_dtypes[t->elem].name;
    if (t->kind == LQ_W_PLAIN) {
        snprintf(buf, size, "%s", elem);
        return;
    }
    char head[16], group[16], rows[16] = "", act[40] = "";
    const bool all = t->rows == LQ_ROWS_ALL && !t->group;
    if (t->kind == LQ_W_FLOAT || t->book)
        snprintf(head, sizeof head, "%s", t->book ? lq_codebooks[t->book - 1].name : elem);
    else snprintf(head, sizeof head, "%s%d", t->kind == LQ_W_INT ? "int" : "table", t->bits);
    group_name(group, sizeof group, t->group, all);
    if (t->rows > 1 && !all) snprintf(rows, sizeof rows, " r%d", t->rows);
    if (t->act.elem != LQ_F32) {
        const int n = snprintf(act, sizeof act, " act %s", lq_dtypes[t->act.elem].name);
        const int m = group_name(act + n, sizeof act - (size_t)n, t->act.group, t->act.fixed);
        snprintf(act + n + m, sizeof act - (size_t)(n + m), "%s", t->act.asym ? " asym" : "");
    }
    const char *sym = t->kind != LQ_W_INT ? "" : t->asym ? " asym" : " sym";
    const char *scale = t->dq ? "dq256" : lq_dtypes[t->scale].name;
    snprintf(buf, size, "%s%s%s%s %s%s", head, group, rows, sym, scale, act);
}

bool lq_wtype_equal(const lq_wtype *a, const lq_wtype *b) {
    if (a->kind != b->kind || a->elem != b->elem || a->bits != b->bits) return false;
    if (a->kind == LQ_W_PLAIN) return true;
    int ra = a->rows > 1 ? a->rows : 1, rb = b->rows > 1 ? b->rows : 1;
    const lq_atype *x = &a->act, *y = &b->act;
    return a->group == b->group && ra == rb && a->asym == b->asym && a->scale == b->scale && a->dq == b->dq &&
           a->book == b->book && x->elem == y->elem && x->group == y->group && x->fixed == y->fixed &&
           x->asym == y->asym;
}

// A number of at most `max` in plain digits without a leading zero; -1 if it is not one.
static int word_number(const char *s, int max) {
    if (*s < '1' || *s > '9') return -1;
    int64_t v = 0;
    for (; *s >= '0' && *s <= '9'; s++)
        if ((v = v * 10 + (*s - '0')) > max) return -1;
    return *s ? -1 : (int)v;
}

static bool head_parse(const char *word, lq_wtype *t) {
    lq_dtype d = lq_dtype_of(word);
    if (d != LQ_DTYPES && lq_dtypes[d].number) {
        *t = (lq_wtype){.kind = LQ_W_PLAIN, .elem = d, .bits = 8 * (int)lq_dtype_size(d), .scale = LQ_F32};
        return true;
    }
    const bool mx = !strcmp(word, "mxfp4"), nv = !strcmp(word, "nvfp4");
    const int book = lq_codebook_of(mx || nv ? "fp4" : word);
    const bool table = book || !strncmp(word, "table", 5);
    const int bits = book ? lq_codebooks[book - 1].bits
                          : table ? word_number(word + 5, 8) : !strncmp(word, "int", 3) ? word_number(word + 3, 8) : -1;
    if (bits < 2) return false;
    *t = (lq_wtype){.kind = table ? LQ_W_TABLE : LQ_W_INT, .elem = LQ_U8, .bits = bits, .scale = LQ_F16, .book = book};
    t->group = mx ? 32 : nv ? 16 : table ? 64 : bits == 8 ? 0 : 128;
    if (mx || nv) t->scale = mx ? LQ_E8M0 : LQ_E4M3;
    return true;
}

// Each word sets one thing and may be said once; `said` has a bit per thing. Behind "act" they are the activations'.
enum { GROUP = 1, ROWS = 2, SYM = 4, SCALE = 8, ACT = 16, ACT_ELEM = 32, ACT_GROUP = 64, ACT_SYM = 128 };

static unsigned act_word(const char *word, lq_atype *a, unsigned said) {
    int v;
    if (!(said & ACT_ELEM)) {
        a->elem = lq_dtype_of(word);
        return a->elem == LQ_I8 || a->elem == LQ_E4M3 ? ACT_ELEM : 0;
    }
    if (said & ACT_SYM) return 0; // the last word
    if (!strcmp(word, "row")) return ACT_GROUP;
    if (!strcmp(word, "tensor")) return a->fixed = true, ACT_GROUP;
    if (!strcmp(word, "asym")) return a->asym = true, ACT_SYM;
    if (word[0] == 'g' && (v = word_number(word + 1, 1 << 20)) > 0) return a->group = v, ACT_GROUP;
    return 0;
}

static unsigned weight_word(const char *word, lq_wtype *t) {
    int v;
    const lq_dtype d = lq_dtype_of(word);
    if (!strcmp(word, "act")) return ACT;
    if (!strcmp(word, "row")) return t->group = 0, GROUP;
    if (!strcmp(word, "tensor")) return t->group = 0, t->rows = LQ_ROWS_ALL, GROUP | ROWS;
    if (word[0] == 'g' && (v = word_number(word + 1, 1 << 20)) > 0) return t->group = v, GROUP;
    if (word[0] == 'r' && (v = word_number(word + 1, LQ_ROWS_ALL - 1)) > 1) return t->rows = v, ROWS;
    if (t->kind == LQ_W_INT && (!strcmp(word, "sym") || !strcmp(word, "asym"))) return t->asym = word[0] == 'a', SYM;
    if (!strcmp(word, "dq256")) return t->scale = LQ_F32, t->dq = true, SCALE;
    if (d == LQ_F16 || d == LQ_F32 || d == LQ_BF16 || d == LQ_E8M0 || d == LQ_E4M3) return t->scale = d, SCALE;
    return 0;
}

bool lq_wtype_parse(const char *text, lq_wtype *out, lq_err *err) {
    const char *hint = "expected one like \"bf16\", \"int4 g128 sym f16\", \"int8\", \"nf4\" or \"e4m3 row f32\"";
    char buf[96], *save = NULL;
    if (strlen(text) >= sizeof buf) return lq_fail(err, LQ_E_USAGE, "weight type \"%.40s...\": %s", text, hint);
    memcpy(buf, text, strlen(text) + 1);
    lq_wtype t;
    unsigned said = 0;
    char *word = strtok_r(buf, " ", &save);
    if (!word || !head_parse(word, &t)) return lq_fail(err, LQ_E_USAGE, "weight type \"%s\": %s", text, hint);
    while ((word = strtok_r(NULL, " ", &save))) {
        if (t.kind == LQ_W_PLAIN && (t.elem == LQ_E4M3 || t.elem == LQ_E5M2)) t.kind = LQ_W_FLOAT;
        const unsigned thing = t.kind == LQ_W_PLAIN ? 0 : said & ACT ? act_word(word, &t.act, said)
            : weight_word(word, &t);
        if (!thing || said & thing)
            return lq_fail(err, LQ_E_USAGE, "weight type \"%s\": \"%s\" does not fit here; %s", text, word, hint);
        said |= thing;
    }
    if (said & ACT && !(said & ACT_ELEM))
        return lq_fail(err, LQ_E_USAGE, "weight type \"%s\": nothing behind \"act\"; expected i8 or e4m3", text);
    if (t.group % 16 || t.act.group % 16)
        return lq_fail(err, LQ_E_USAGE, "weight type \"%s\": group %d is not a multiple of 16", text,
                       t.group % 16 ? t.group : t.act.group);
    const char *fault = type_fault(&t);
    if (fault) return lq_fail(err, LQ_E_USAGE, "weight type \"%s\": %s", text, fault);
    *out = t;
    return true;
}

double lq_wtype_bits(const lq_wtype *t, int64_t k) {
    if (t->kind == LQ_W_PLAIN || k <= 0) return t->bits;
    double per_row = (double)lq_weight_groups(t, k) / (double)k;
    double rows = t->rows > 1 ? t->rows : 1;
    const double scale = t->dq ? 1 + 4.0 / LQ_DQ : (double)lq_dtype_size(t->scale);
    return t->bits + per_row * (8.0 * scale / rows + (t->asym ? t->bits : 0));
}
