// matrix.c: lq_quantize_matrix: one matrix through the device's slot `round`, in bands of rows, so that somebody can be
// heard in between. Checks that there is a rule, says which element has none, and owns the bands' figures.
#include "kernels/pack.h"
#include "quant/pass.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Elements that are rounded in one call; of one that solves, which has copies, but no fewer rows than these, as each
// call reads all of an input's moments; and of those what is made for another device.
enum { BAND = 1 << 22, SOLVED = 1 << 17, SOLVED_ROWS = 128, LENT = 1 << 24 };

typedef struct banded {
    const lq_recipe *r;
    lq_matrix *m;
    lq_wtype type;
    int64_t rows;         // of a band
    size_t q_row, zero_row, scales; // bytes of a row, scales of a row
    double *error;        // [6][rows] error, norm, worst; with `solve` loss, of plain rounding, of all
    float *wide_rows;     // [rows][k] of a source that is not plain, or edited; with `solve` its own, of any
    int64_t first;        // where the band that is widened begins
    bool wide;
    bool finding;         // scales in f32 alone are wanted, for what codes of them are to span
    lq_levels levels;     // of type.dq: map and offset, and `by`
    float *by;            // [rows][scales] of a band: of each scale
} banded;

size_t lq_band_lent(void) { return LENT * sizeof(float); }

static int64_t solved_rows(int64_t k) { return k * SOLVED_ROWS < SOLVED ? SOLVED / k : SOLVED_ROWS; }

size_t lq_band_bytes(int64_t k) { return (size_t)solved_rows(k) * (size_t)k * sizeof(float); }

unsigned lq_recipe_needs(const lq_recipe *r) {
    unsigned needs = 0;
    if (r->rounding == LQ_ROUND_GPTQ) needs |= LQ_STAT_HESSIAN;
    if (r->transform & LQ_T_SMOOTH) needs |= LQ_STAT_ABSMAX;
    if (r->transform & LQ_T_AWQ) needs |= LQ_STAT_ABSMEAN | LQ_STAT_HESSIAN;
    if (r->transform & LQ_T_CLIP) needs |= LQ_STAT_HESSIAN;
    if (r->salient == LQ_SALIENT_OUTLIER) needs |= LQ_STAT_ABSMAX;
    if (r->salient == LQ_SALIENT_COLUMNS || lq_recipe_weighs(r)) needs |= LQ_STAT_SQUARE;
    if (r->type.act.fixed) needs |= LQ_STAT_ABSMAX;
    if (r->kv_scales) needs |= LQ_STAT_KV;
    return needs;
}

bool lq_recipe_weighs(const lq_recipe *r) {
    return r->range == LQ_RANGE_WEIGHTED && r->rounding == LQ_ROUND_NEAREST && r->type.kind != LQ_W_PLAIN;
}

bool lq_recipe_solves(const lq_recipe *r) {
    return r->type.kind != LQ_W_PLAIN && (r->rounding == LQ_ROUND_GPTQ || r->transform & LQ_T_CLIP);
}

static bool has_rule(const lq_wtype *t) {
    if (t->kind == LQ_W_PLAIN) return lq_dtypes[t->elem].number;
    if (t->group % 16 || t->bits > 8) return false;
    if (t->kind == LQ_W_TABLE) return lq_wtype_table(t);
    return t->kind == LQ_W_INT ? t->bits >= 2 : t->elem == LQ_E4M3 || t->elem == LQ_E5M2;
}

bool lq_recipe_check(const lq_recipe *r, lq_err *err) {
    char name[64];
    if (!has_rule(&r->type)) {
        lq_wtype_name(&r->type, name, sizeof name);
        return lq_fail(err, LQ_E_UNSUPPORTED,
                       "%s: there are rules for plain types, int2 to int8, e4m3, e5m2 and codebooks that have a name",
                       name);
    }
    const unsigned known = LQ_STAT_HESSIAN | LQ_STAT_ABSMEAN | LQ_STAT_ABSMAX | LQ_STAT_KV |
        LQ_STAT_SQUARE;
    if (r->rounding == LQ_ROUND_GPTQ && r->type.kind == LQ_W_PLAIN) {
        lq_wtype_name(&r->type, name, sizeof name);
        return lq_fail(err, LQ_E_UNSUPPORTED, "%s: gptq is for types that are coded", name);
    }
    if ((r->transform & (LQ_T_SMOOTH | LQ_T_AWQ)) == (LQ_T_SMOOTH | LQ_T_AWQ))
        return lq_fail(err, LQ_E_UNSUPPORTED, "a recipe that seeks factors twice, by smooth and by awq");
    if (r->transform & LQ_T_ROTATE && lq_searches(r->transform))
        return lq_fail(err, LQ_E_UNSUPPORTED, "a recipe that turns bases and then looks for channels that stand out");
    if (!(lq_recipe_needs(r) & ~known)) return true;
    return lq_fail(err, LQ_E_UNSUPPORTED, "a recipe that needs statistics that nobody takes so far");
}

static bool fail_element(const lq_matrix *m, int64_t row, int64_t col, const lq_wtype *t, lq_err *err) {
    char name[64];
    float *x = malloc((size_t)m->w->k * sizeof *x);
    if (!x) return lq_fail(err, LQ_E_FORMAT, "row %lld, column %lld cannot be coded", (long long)row, (long long)col);
    lq_weight_row(m->w, row, x);
    const int64_t odd = lq_edit_odd(x, m->w->k);
    if (odd >= 0) col = odd; // which an edit has spread
    else if (m->edit) lq_edit_row(m->edit, row, x, m->w->k);
    const double v = (double)x[col];
    free(x);
    lq_wtype_name(t, name, sizeof name);
    if (isfinite(v)) return lq_fail(err, LQ_E_FORMAT, "row %lld, column %lld is %g, more than %s can hold",
                                    (long long)row, (long long)col, v, name);
    return lq_fail(err, LQ_E_FORMAT, "row %lld, column %lld is %s, expected a finite number", (long long)row,
                   (long long)col, isnan(v) ? "NaN" : "infinite");
}

static void widen_row(void *arg, int task, int worker) {
    const banded *b = arg;
    float *row = b->wide_rows + (size_t)task * (size_t)b->m->w->k;
    (void)worker;
    lq_weight_row(b->m->w, b->first + task, row);
    if (b->m->edit) lq_edit_row(b->m->edit, b->first + task, row, b->m->w->k);
}

// Rows first .. first + n of the source, where they lie if that is rows of plain elements.
static lq_mat rows_of(banded *b, int64_t first, int64_t n) {
    const lq_weight *w = b->m->w;
    lq_mat mat = {.type = LQ_F32, .rows = (int)n, .cols = (int)w->k, .stride = (size_t)w->k, .p = b->wide_rows};
    if (b->wide_rows) {
        b->first = first;
        lq_pool_run(b->m->dev->pool, widen_row, b, (int)n);
    } else {
        mat.type = w->type.elem;
        mat.p = (void *)((uintptr_t)w->q + (uintptr_t)first * (uintptr_t)w->k * lq_dtype_size(w->type.elem));
    }
    return mat;
}

// What the scales of a band may be.
static const float *band_levels(banded *b, int64_t first, int64_t n) {
    if (!b->by || b->finding) return NULL;
    const size_t at = (size_t)first * b->scales;
    for (size_t i = 0; i < (size_t)n * b->scales; i++) b->by[i] = b->levels.by[(at + i) / LQ_DQ];
    return b->by;
}

static bool round_band(banded *b, int64_t first, int64_t n, lq_err *err) {
    const lq_wtype *t = &b->type;
    const lq_matrix *m = b->m;
    const bool searched = b->r->range != LQ_RANGE_FULL || (m->solve && b->r->transform & LQ_T_CLIP);
    const size_t band = (size_t)(first / (t->rows > 1 ? t->rows : 1));
    int64_t bad[2];
    lq_round_args a = {
        .w = rows_of(b, first, n), .type = *t, .table = lq_wtype_table(t), .scale2 = m->scale2,
        .scale_by = band_levels(b, first, n), .scale_map = b->levels.map,
        .scale_offset = b->levels.offset ? *b->levels.offset : 0,
        .fit = searched && !b->finding ? LQ_FIT_SEARCH : LQ_FIT_RANGE,
        .weight = b->r->range == LQ_RANGE_WEIGHTED ? m->weight : NULL,
        .steps = b->r->steps ? b->r->steps : 50, .least = b->r->least > 0 ? b->r->least : 0.5f,
        .q = b->finding ? NULL : (uint8_t *)m->q + (size_t)first * b->q_row,
        .scale = (uint8_t *)m->scale + band * b->scales * lq_dtype_size(t->scale),
        .zero = t->asym ? (uint8_t *)m->zero + (size_t)first * b->zero_row : NULL, .error = b->error,
        .norm = b->error + b->rows,
        .worst = b->error + 2 * b->rows, .bad = bad, .wide = &b->wide};
    if (m->solve && !b->finding) {
        const lq_solved loss = {b->error + 3 * b->rows, b->error + 4 * b->rows, b->error + 5 * b->rows};
        if (!lq_solve_rows(m->dev, m->solve, first, &a, &loss, err)) return false;
    } else {
        m->dev->ops.round(m->dev, &a);
        if (!m->dev->ops.sync(m->dev, err)) return false;
    }
    if (!b->wide && bad[0] >= 0) return fail_element(m, first + bad[0], bad[1], t, err);
    return true;
}

// All bands. b->wide: the scales need F32.
static bool round_all(banded *b, lq_err *err) {
    lq_matrix *m = b->m;
    m->error = m->norm = m->max_error = m->loss = m->loss_plain = m->loss_norm = 0;
    for (int64_t first = 0; first < m->w->n && !b->wide; first += b->rows) {
        const int64_t n = m->w->n - first < b->rows ? m->w->n - first : b->rows;
        if (m->tick && !m->tick(m->arg)) return lq_fail(err, LQ_E_CANCELLED, "stopped");
        if (!round_band(b, first, n, err)) return false;
        for (int64_t i = 0; i < n && !b->wide && !b->finding; i++) {
            m->error += b->error[i];
            m->norm += b->error[b->rows + i];
            m->max_error = fmax(m->max_error, b->error[2 * b->rows + i]);
            if (!m->solve) continue;
            m->loss += b->error[3 * b->rows + i];
            m->loss_plain += b->error[4 * b->rows + i];
            m->loss_norm += b->error[5 * b->rows + i];
        }
    }
    return true;
}

// The largest magnitude of each row of a band; what is no number is found later.
typedef struct tops { const lq_mat *mat; double *top; } tops;
static void top_row(void *arg, int task, int worker) {
    const tops *t = arg;
    const lq_dtype_row *row = &lq_dtypes[t->mat->type];
    float x[256], top = 0;
    (void)worker;
    for (int c = 0; c < t->mat->cols; c += 256) {
        const int n = t->mat->cols - c < 256 ? t->mat->cols - c : 256;
        row->to_f32((const char *)t->mat->p + ((size_t)task * t->mat->stride + (size_t)c) * row->bytes, x, (size_t)n);
        for (int i = 0; i < n; i++) top = fabsf(x[i]) > top && isfinite(x[i]) ? fabsf(x[i]) : top;
    }
    t->top[task] = (double)top;
}

float lq_scale2_of(const lq_wtype *t, float top) {
    const float *table = lq_wtype_table(t);
    float code = t->elem == LQ_E5M2 ? 57344.0f : 448.0f;
    for (int i = 0; table && i < 1 << t->bits; i++) code = i && fabsf(table[i]) < code ? code : fabsf(table[i]);
    return top / (code * 448.0f);
}

static void find_scale2(banded *b) {
    float top = 0;
    for (int64_t first = 0; first < b->m->w->n; first += b->rows) {
        const int64_t n = b->m->w->n - first < b->rows ? b->m->w->n - first : b->rows;
        const lq_mat mat = rows_of(b, first, n);
        lq_pool_run(b->m->dev->pool, top_row, &(tops){&mat, b->error}, (int)n);
        for (int64_t i = 0; i < n; i++) top = (float)b->error[i] > top ? (float)b->error[i] : top;
    }
    b->m->scale2 = lq_scale2_of(&b->type, top);
}

// What codes of scales stand for: the scales are found once, for themselves.
static bool find_levels(banded *b, lq_err *err) {
    const size_t count = (size_t)b->m->w->n * b->scales, blocks = lq_scale_blocks(count);
    float *own = malloc((256 + 1 + blocks) * sizeof *own);
    b->levels = (lq_levels){.map = own, .offset = own + 256, .by = own + 257};
    b->by = malloc((size_t)b->rows * b->scales * sizeof *b->by);
    if (!own || !b->by) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu scales", count);
    b->finding = true;
    const bool done = round_all(b, err);
    b->finding = false;
    if (done) lq_levels_span(b->r, b->m->scale, count, &b->levels);
    return done;
}

// Codes of scales, with all that belongs to them, where they are wanted.
static void put_levels(const banded *b) {
    const lq_levels *to = b->m->levels;
    const size_t count = (size_t)b->m->w->n * b->scales;
    memcpy(to->map, b->levels.map, 256 * sizeof *to->map);
    memcpy(to->by, b->levels.by, lq_scale_blocks(count) * sizeof *to->by);
    *to->offset = *b->levels.offset;
    lq_levels_code(b->m->scale, count, to);
}

static bool prepare(banded *b, const lq_recipe *r, lq_matrix *m, lq_err *err) {
    const lq_wtype *t = &r->type;
    const lq_weight *w = m->w;
    lq_weight_size size;
    size_t all;
    if (!lq_recipe_check(r, err)) return false;
    if (w->n < 1 || w->k < 1 || !lq_weight_sizes(t, w->n, w->k, &size) ||
        !lq_mul_size((size_t)w->n, (size_t)w->k, &all) || !lq_mul_size(all, 16, &all))
        return lq_fail(err, LQ_E_LIMIT, "a matrix of %lld x %lld cannot be handled", (long long)w->n, (long long)w->k);
    *b = (banded){.r = r, .m = m, .type = *t, .scales = (size_t)lq_weight_groups(t, w->k)};
    const bool plain = w->type.kind == LQ_W_PLAIN && w->layout == LQ_ANY && !w->perm && !w->outliers;
    const int64_t height = m->solve ? lq_solve_height(m->solve, t, w->n) : 0;
    const bool as_it_lies = plain && !m->edit && (!m->solve || (height && lq_dtypes[w->type.elem].number));
    b->rows = m->solve ? solved_rows(w->k) : w->k < BAND ? BAND / w->k : 1;
    if (height && !as_it_lies && LENT / w->k > b->rows) b->rows = LENT / w->k;
    if (height && (as_it_lies || b->rows > height)) b->rows = height;
    if (t->kind != LQ_W_PLAIN && t->rows > 1) b->rows = b->rows > t->rows ? b->rows / t->rows * t->rows : t->rows;
    if (b->rows > w->n) b->rows = w->n;
    const bool elements = t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT;
    b->q_row = elements ? (size_t)w->k * lq_dtype_size(t->elem) : lq_code_row_bytes(t->bits, w->k);
    b->zero_row = lq_code_row_bytes(t->bits, (int64_t)b->scales);
    b->error = malloc(6 * (size_t)b->rows * sizeof *b->error);
    if (m->solve && !lq_solve_room(m->solve, t, b->rows, !as_it_lies, err)) return false;
    if (as_it_lies) b->wide_rows = NULL;
    else if (m->solve) b->wide_rows = m->solve->band;
    else b->wide_rows = malloc((size_t)b->rows * (size_t)w->k * sizeof *b->wide_rows);
    return (b->error && (as_it_lies || b->wide_rows)) ||
           lq_fail(err, LQ_E_MEMORY, "no memory to round a matrix of %lld x %lld", (long long)w->n, (long long)w->k);
}

bool lq_quantize_matrix(const lq_recipe *r, lq_matrix *m, lq_err *err) {
    banded b = {0};
    m->scale2 = 0;
    bool done = prepare(&b, r, m, err);
    if (done && r->type.kind != LQ_W_PLAIN && r->type.scale == LQ_E4M3) find_scale2(&b);
    done = done && (!r->type.dq || find_levels(&b, err)) && round_all(&b, err);
    if (done && r->type.dq && m->levels) put_levels(&b);
    if (done && b.wide) {
        b.type.scale = LQ_F32;
        b.wide = false;
        done = round_all(&b, err);
    }
    m->type = b.type;
    free(b.error);
    if (!m->solve) free(b.wide_rows);
    free(b.levels.map);
    free(b.by);
    return done;
}
