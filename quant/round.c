// round.c: one matrix to codes, scales and zeros, by the rules that quant.h states. Rows are rounded independently, in blocks
// with fixed borders, so threads decide no bit. Refuses NaN and infinity by row and column, and types that have no rule.
//
// Sums run over eight fixed lanes, written as vectors of four: the same bits from every compiler and on every machine.
#include "quant/quant.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, STEP = 16 /* what groups and padded rows are multiples of */ };
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));

// Beyond it, half a step more than the largest element might be no number of f32.
#define LARGEST 0x1p127f

static inline v4 pick(i4 mask, v4 a, v4 b) { return (v4)((mask & (i4)a) | (~mask & (i4)b)); }
static inline v4 least(v4 a, v4 b) { return pick(a < b, a, b); }
static inline v4 most(v4 a, v4 b) { return pick(a > b, a, b); }
static inline v4 all(float x) { return (v4){x, x, x, x}; }
static inline v4 load(const float *p) { v4 v; memcpy(&v, p, sizeof v); return v; }
static inline v4 magnitude(v4 x) { return (v4)((i4)x & 0x7fffffff); }

// What a block of rows adds to the matrix's figures.
typedef struct block_stat {
    double error, norm, max_error;
    bool range;        // a scale left F16's normal range
    int64_t row, col;  // first element that cannot be coded; row -1: none
} block_stat;

typedef struct job {
    const lq_matrix *m;
    lq_wtype type;
    int64_t groups, rows; // rows of a block
    size_t k_pad, group, in_row, q_row, zero_row;
    block_stat *stat;     // [blocks]
    uint32_t *scratch;    // [workers][scratch_words], a multiple of 64 bytes
} job;

// A worker's scratch: the row as f32 with zeros behind it, its codes, and what its groups have.
typedef struct row_buf {
    float *w;             // [k_pad]
    int32_t *code;        // [k_pad]
    float *lo, *hi, *s;   // [groups]
    int32_t *z;           // [groups]
} row_buf;

static size_t up16(size_t n) { return (n + STEP - 1) / STEP * STEP; }
static size_t scratch_words(const job *j) { return 2 * j->k_pad + 4 * up16((size_t)j->groups); }

static row_buf row_buf_at(const job *j, int worker) {
    uint32_t *p = j->scratch + (size_t)worker * scratch_words(j);
    const size_t groups = up16((size_t)j->groups);
    float *w = (float *)(void *)p, *lo = w + 2 * j->k_pad;
    return (row_buf){w, (int32_t *)(void *)(w + j->k_pad), lo, lo + groups, lo + 2 * groups, (int32_t *)(void *)(lo + 3 * groups)};
}

// Smallest and largest of n elements and 0. NaN and infinity leave a NaN in `bad`.
static void find_range(const float *w, size_t n, float *lo, float *hi, v4 bad[2]) {
    v4 a[2] = {{0}}, b[2] = {{0}};
    for (size_t i = 0; i < n; i += LANES)
        for (int j = 0; j < 2; j++) {
            const v4 x = load(w + i + 4 * j);
            a[j] = least(x, a[j]);
            b[j] = most(x, b[j]);
            bad[j] += x * all(0);
        }
    const v4 small = least(a[0], a[1]), large = most(b[0], b[1]);
    *lo = *hi = 0;
    for (int j = 0; j < 4; j++) {
        *lo = small[j] < *lo ? small[j] : *lo;
        *hi = large[j] > *hi ? large[j] : *hi;
    }
}
static bool all_finite(const v4 bad[2]) {
    const v4 sum = bad[0] + bad[1];
    return sum[0] + sum[1] + sum[2] + sum[3] == 0;
}

// Adding 0 makes the scale of a group of zeros +0.
static float scale_of(const lq_wtype *t, float lo, float hi) {
    if (t->asym) return (float)(((double)hi - lo) / ((1 << t->bits) - 1));
    return (hi > -lo ? hi : lo) / (float)-(1 << (t->bits - 1)) + 0.0f;
}
static int32_t zero_of(const lq_wtype *t, float lo, float s) {
    const float top = (float)((1 << t->bits) - 1);
    if (!t->asym) return 1 << (t->bits - 1);
    if (s == 0) return 0;
    const float z = rintf(-lo / s);
    return (int32_t)(z > top ? top : z);
}

// A row's figures by lane, in units of the row's largest scale: the squares of extreme weights would overflow.
typedef struct lanes { v4 error[2], norm[2], max[2]; } lanes;

// Codes of one group. `unit`: |s| over the row's largest one.
static void round_group(const float *w, size_t n, float s, int z, int bits, float unit, int32_t *q, lanes *sum) {
    const v4 low = all((float)-z), high = all((float)((1 << bits) - 1 - z)), step = all(s), part = all(unit);
    const v4 magic = all(12582912.0f); // 1.5 * 2^23: adding it rounds to a whole number, ties to even, in the low bits
    const i4 off = {z, z, z, z}, mask = {255, 255, 255, 255};
    lanes l = *sum;
    for (size_t i = 0; i < n; i += LANES)
        for (int j = 0; j < 2; j++) {
            const v4 t = load(w + i + 4 * j) / step, c = most(least(t, high), low) + magic;
            const i4 code = ((i4)c + off) & mask;
            memcpy(q + i + 4 * j, &code, sizeof code);
            const v4 e = (t - (c - magic)) * part, v = t * part;
            l.error[j] += e * e;
            l.norm[j] += v * v;
            l.max[j] = most(magnitude(e), l.max[j]);
        }
    *sum = l;
}
static void lanes_add(const lanes *l, double unit, block_stat *st) {
    double error = 0, norm = 0;
    for (int j = 0; j < LANES; j++) {
        error += (double)l->error[j / 4][j % 4];
        norm += (double)l->norm[j / 4][j % 4];
        const double m = l->max[j / 4][j % 4] * unit;
        if (m > st->max_error) st->max_error = m;
    }
    st->error += error * unit * unit;
    st->norm += norm * unit * unit;
}
// A group whose stored scale is 0: every weight becomes 0.
static void zero_group(const float *w, size_t n, uint8_t z, int32_t *q, block_stat *st) {
    for (size_t i = 0; i < n; i++) {
        q[i] = z;
        const double x = fabs((double)w[i]);
        st->error += x * x;
        st->norm += x * x;
        if (x > st->max_error) st->max_error = x;
    }
}

// Codes, dense, least significant bit first; the bytes that pad the row are 0.
static void pack_row(const int32_t *code, int64_t n, int bits, uint8_t *dst, size_t bytes) {
    size_t at = 0;
    if (bits == 8) {
        for (; at < (size_t)n; at++) dst[at] = (uint8_t)code[at];
    } else if (bits == 4) {
        for (; at < (size_t)n / 2; at++) dst[at] = (uint8_t)(code[2 * at] | code[2 * at + 1] << 4);
        if (n & 1) dst[at++] = (uint8_t)code[n - 1];
    } else {
        uint32_t have = 0;
        int filled = 0;
        for (int64_t i = 0; i < n; i++) {
            have |= (uint32_t)code[i] << filled;
            for (filled += bits; filled >= 8; filled -= 8, have >>= 8) dst[at++] = (uint8_t)have;
        }
        if (filled) dst[at++] = (uint8_t)have;
    }
    memset(dst + at, 0, bytes - at);
}

// The first element of a row that is not a number up to `limit`.
static int64_t find_bad(const float *w, int64_t k, float limit) {
    int64_t i = 0;
    while (i < k && fabsf(w[i]) <= limit) i++;
    return i;
}

// The scales of a row's groups as they are stored, in b->s too. False: an element cannot be coded.
static bool scale_row(const job *j, row_buf *b, int64_t row, block_stat *st) {
    const lq_wtype *t = &j->type;
    const lq_dtype_row *scale = &lq_dtypes[t->scale];
    const size_t groups = (size_t)j->groups;
    uint8_t *stored = (uint8_t *)j->m->scale + (size_t)row * groups * scale->bytes;
    v4 bad[2] = {{0}};
    for (size_t g = 0, at = 0; g < groups; g++, at += j->group) {
        find_range(b->w + at, j->k_pad - at < j->group ? j->k_pad - at : j->group, &b->lo[g], &b->hi[g], bad);
        if (b->hi[g] > LARGEST || b->lo[g] < -LARGEST) return false;
        const float s = b->s[g] = scale_of(t, b->lo[g], b->hi[g]);
        if (t->scale == LQ_F16 && s != 0 && !(fabsf(s) >= 0x1p-14f && fabsf(s) <= 65504.0f)) st->range = true;
    }
    scale->from_f32(b->s, stored, groups);
    scale->to_f32(stored, b->s, groups);
    return all_finite(bad);
}
static bool int_row(const job *j, row_buf *b, int64_t row, block_stat *st) {
    const lq_wtype *t = &j->type;
    if (!scale_row(j, b, row, st)) return false;
    if (st->range) return true; // the matrix is rounded again with F32 scales
    float top = 0;
    for (int64_t g = 0; g < j->groups; g++) top = fabsf(b->s[g]) > top ? fabsf(b->s[g]) : top;
    lanes sum = {0};
    for (size_t g = 0, at = 0; g < (size_t)j->groups; g++, at += j->group) {
        const size_t n = j->k_pad - at < j->group ? j->k_pad - at : j->group;
        b->z[g] = zero_of(t, b->lo[g], b->s[g]);
        if (b->s[g] == 0) zero_group(b->w + at, n, b->z[g], b->code + at, st);
        else round_group(b->w + at, n, b->s[g], b->z[g], t->bits, fabsf(b->s[g]) / top, b->code + at, &sum);
    }
    lanes_add(&sum, top, st);
    pack_row(b->code, j->m->k, t->bits, (uint8_t *)j->m->q + (size_t)row * j->q_row, j->q_row);
    if (t->asym) pack_row(b->z, j->groups, t->bits, (uint8_t *)j->m->zero + (size_t)row * j->zero_row, j->zero_row);
    return true;
}

// Another plain type. `back` is the row as a reader will see it.
static bool plain_row(const job *j, row_buf *b, int64_t row, block_stat *st) {
    const lq_dtype_row *to = &lq_dtypes[j->type.elem];
    uint8_t *dst = (uint8_t *)j->m->q + (size_t)row * j->q_row;
    const size_t k = (size_t)j->m->k;
    float back[256], lo, hi;
    v4 bad[2] = {{0}};
    find_range(b->w, j->k_pad, &lo, &hi, bad);
    if (!all_finite(bad)) return false;
    for (size_t i = 0; i < k; i += 256) {
        const size_t n = k - i < 256 ? k - i : 256;
        if (!to->from_f32(b->w + i, dst + i * to->bytes, n)) {
            for (size_t c = i; c < i + n; c++)
                if (!to->from_f32(b->w + c, dst + c * to->bytes, 1)) return st->col = (int64_t)c, false;
        }
        to->to_f32(dst + i * to->bytes, back, n);
        for (size_t c = 0; c < n; c++) {
            const double e = fabs((double)b->w[i + c] - back[c]);
            st->error += e * e;
            st->norm += (double)b->w[i + c] * b->w[i + c];
            if (e > st->max_error) st->max_error = e;
        }
    }
    return true;
}

static void round_block(void *arg, int task, int worker) {
    const job *j = arg;
    block_stat *st = &j->stat[task];
    row_buf b = row_buf_at(j, worker);
    const int64_t first = task * j->rows, left = j->m->n - first, last = first + (left < j->rows ? left : j->rows);
    *st = (block_stat){.row = -1, .col = -1};
    memset(b.w, 0, j->k_pad * sizeof *b.w);
    for (int64_t r = first; r < last && !st->range; r++) {
        lq_dtypes[j->m->elem].to_f32((const uint8_t *)j->m->w + (size_t)r * j->in_row, b.w, (size_t)j->m->k);
        if (j->type.kind == LQ_W_PLAIN ? plain_row(j, &b, r, st) : int_row(j, &b, r, st)) continue;
        if (st->col < 0) st->col = find_bad(b.w, j->m->k, j->type.kind == LQ_W_INT ? LARGEST : FLT_MAX);
        st->row = r;
        return;
    }
}

static bool fail_element(const lq_matrix *m, const block_stat *st, const lq_wtype *t, lq_err *err) {
    float x;
    lq_dtypes[m->elem].to_f32((const uint8_t *)m->w + ((size_t)st->row * (size_t)m->k + (size_t)st->col) * lq_dtype_size(m->elem), &x, 1);
    char name[64];
    lq_wtype_name(t, name, sizeof name);
    if (isfinite(x)) return lq_fail(err, LQ_E_FORMAT, "row %lld, column %lld is %g, more than %s can hold", (long long)st->row,
                                    (long long)st->col, (double)x, name);
    return lq_fail(err, LQ_E_FORMAT, "row %lld, column %lld is %s, expected a finite number", (long long)st->row, (long long)st->col,
                   isnan(x) ? "NaN" : "infinite");
}

// One go over the matrix. *again: the scales need F32.
static bool run(job *j, int blocks, bool *again, lq_err *err) {
    *again = false;
    if (j->m->pool) lq_pool_run(j->m->pool, round_block, j, blocks);
    else for (int i = 0; i < blocks; i++) round_block(j, i, 0);
    for (int i = 0; i < blocks; i++) {
        if (j->stat[i].row >= 0) return fail_element(j->m, &j->stat[i], &j->type, err);
        *again |= j->stat[i].range;
    }
    return true;
}

bool lq_recipe_check(const lq_recipe *r, lq_err *err) {
    const lq_wtype *t = &r->type;
    char name[64];
    const bool rule = t->kind == LQ_W_PLAIN ? lq_dtypes[t->elem].number
                                            : t->kind == LQ_W_INT && t->bits >= 2 && t->bits <= 8 && t->rows <= 1 && t->group % 16 == 0;
    if (rule && r->rounding == LQ_ROUND_NEAREST && !r->stats && !r->transform && !r->salient) return true;
    lq_wtype_name(t, name, sizeof name);
    return lq_fail(err, LQ_E_UNSUPPORTED,
                   "%s: rounding to the nearest has rules for plain types and for int2 to int8 in groups of one row", name);
}

static bool prepare(job *j, const lq_recipe *r, lq_matrix *m, int64_t *blocks, lq_err *err) {
    const lq_wtype *t = &r->type;
    if (!lq_recipe_check(r, err)) return false;
    if (!lq_dtypes[m->elem].number) return lq_fail(err, LQ_E_UNSUPPORTED, "elements of type %s are no weights", lq_dtypes[m->elem].name);
    lq_weight_size size;
    size_t in;
    if (m->n < 1 || m->k < 1 || !lq_weight_sizes(t, m->n, m->k, &size) || !lq_mul_size((size_t)m->n, (size_t)m->k, &in) ||
        !lq_mul_size(in, 16, &in))
        return lq_fail(err, LQ_E_LIMIT, "a matrix of %lld x %lld cannot be handled", (long long)m->n, (long long)m->k);
    *j = (job){.m = m, .type = *t, .groups = lq_weight_groups(t, m->k)};
    j->k_pad = up16((size_t)m->k);
    j->group = t->group ? (size_t)t->group : j->k_pad;
    j->rows = m->k >= 1 << 16 ? 1 : (1 << 16) / m->k;
    *blocks = (m->n + j->rows - 1) / j->rows;
    j->in_row = (size_t)m->k * lq_dtype_size(m->elem);
    j->q_row = t->kind == LQ_W_PLAIN ? (size_t)m->k * lq_dtype_size(t->elem) : lq_code_row_bytes(t->bits, m->k);
    j->zero_row = lq_code_row_bytes(t->bits, j->groups);
    if (*blocks > INT32_MAX) return lq_fail(err, LQ_E_LIMIT, "a matrix of %lld rows cannot be handled", (long long)m->n);
    return true;
}

bool lq_quantize_matrix(const lq_recipe *r, lq_matrix *m, lq_err *err) {
    job j;
    int64_t blocks = 0;
    bool again, done;
    if (!prepare(&j, r, m, &blocks, err)) return false;
    const size_t workers = m->pool ? (size_t)lq_pool_threads(m->pool) : 1;
    j.scratch = aligned_alloc(64, workers * scratch_words(&j) * sizeof *j.scratch);
    j.stat = malloc((size_t)blocks * sizeof *j.stat);
    if (!j.scratch || !j.stat) done = lq_fail(err, LQ_E_MEMORY, "no memory to round a matrix of %lld x %lld", (long long)m->n,
                                              (long long)m->k);
    else {
        done = run(&j, (int)blocks, &again, err);
        if (done && again) {
            j.type.scale = LQ_F32;
            done = run(&j, (int)blocks, &again, err);
        }
    }
    m->type = j.type;
    m->error = m->norm = m->max_error = 0;
    for (int64_t i = 0; done && i < blocks; i++) {
        m->error += j.stat[i].error;
        m->norm += j.stat[i].norm;
        if (j.stat[i].max_error > m->max_error) m->max_error = j.stat[i].max_error;
    }
    free(j.scratch);
    free(j.stat);
    return done;
}
