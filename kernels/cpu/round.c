// round.c: the slot `round`: a matrix to codes, scales and zero points, to the nearest or with each column's error
// spread over the columns behind it. Owns nothing; needs no scratch but a worker's share. Rows (bands of rows that
// share scales) are independent and what is summed has one order, so threads decide no bit.
//
// Sums run over eight fixed lanes, written as vectors of four: the same bits from every compiler and on every machine.
#include "kernels/cpu/slots.h"
#include "kernels/round.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    LANES = LQ_LANES,
    STEP = 16,   // what groups are multiples of, and a chunk is padded to
    CHUNK = 512, // columns that are read at once
    RUN = 64,    // groups whose scales are stored at once
    BLOCK = 128, // columns whose errors are spread together
    TILE = 256,  // columns they are spread over together
    ROWS = 64    // rows that share what is read of `u`
};
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));

static inline v4 pick(i4 mask, v4 a, v4 b) { return (v4)((mask & (i4)a) | (~mask & (i4)b)); }
static inline v4 least(v4 a, v4 b) { return pick(a < b, a, b); }
static inline v4 most(v4 a, v4 b) { return pick(a > b, a, b); }
static inline v4 all(float x) { return (v4){x, x, x, x}; }
static inline v4 load(const float *p) { v4 v; memcpy(&v, p, sizeof v); return v; }
static inline v4 magnitude(v4 x) { return (v4)((i4)x & 0x7fffffff); }

// Up to 16 values of a table in order, and from where on each is the nearest: the least number of f32 whose code is
// its own or that of a greater one. Those behind the last begin nowhere.
enum { VALUES = 16 };
typedef struct ladder {
    v4 from[VALUES - 1]; // of the values but the first; the same in each lane
    float value[VALUES];
    uint8_t code[VALUES];
} ladder;

typedef struct job {
    lq_rounding r;
    bool ordered; // the type is a table that `near` has
    ladder near;
    const lq_dev *d;
    int64_t rows; // of a task
    atomic_bool wide;
} job;

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t up16(size_t n) { return (n + STEP - 1) / STEP * STEP; }

// Columns c .. c + n of a row as f32, with zeros up to a multiple of 16.
static void take(const job *j, int64_t row, int64_t c, size_t n, float *x) {
    const lq_mat *w = &j->r.a.w;
    lq_dtypes[w->type].to_f32((const char *)w->p + ((size_t)row * w->stride + (size_t)c) * j->r.elem, x, n);
    memset(x + n, 0, (up16(n) - n) * sizeof *x);
}

// --- scales ---

static bool range_of(const float *w, size_t n, float *lo, float *hi) {
    v4 a[2] = {{0}}, b[2] = {{0}}, bad[2] = {{0}};
    for (size_t i = 0; i < n; i += LANES)
        for (int h = 0; h < 2; h++) {
            const v4 x = load(w + i + 4 * h);
            a[h] = least(x, a[h]);
            b[h] = most(x, b[h]);
            bad[h] += x * all(0);
        }
    const v4 small = least(a[0], a[1]), large = most(b[0], b[1]), sum = bad[0] + bad[1];
    for (int i = 0; i < 4; i++) {
        *lo = small[i] < *lo ? small[i] : *lo;
        *hi = large[i] > *hi ? large[i] : *hi;
    }
    return sum[0] + sum[1] + sum[2] + sum[3] == 0 && *hi <= LQ_ROUND_LARGEST && *lo >= -LQ_ROUND_LARGEST;
}

// Of columns c .. end of a row, 0 let in.
static bool row_range(const job *j, int64_t row, int64_t c, int64_t end, float *lo, float *hi) {
    float x[CHUNK];
    bool ok = true;
    for (; c < end && ok; c += CHUNK) {
        const size_t n = (size_t)least_of(end - c, CHUNK);
        take(j, row, c, n, x);
        ok = lq_cpu_of(j->d)->rounds->range(x, up16(n), lo, hi);
    }
    if (!ok) j->r.a.error[row] = NAN;
    return ok;
}

// Scales as they are stored, as they count.
static void read_scales(const job *j, const void *from, size_t n, float *s) {
    const lq_dtype t = j->r.a.type.scale;
    lq_dtypes[t].to_f32(from, s, n);
    for (size_t i = 0; t == LQ_E4M3 && i < n; i++) s[i] *= j->r.a.scale2;
}

static void *scale_at(const job *j, int64_t row, int64_t g) {
    return (char *)j->r.a.scale + lq_round_at(&j->r, row, g) * j->r.scale;
}

static void put_zero(const job *j, int64_t row, int64_t g, int32_t z) {
    if (!j->r.a.type.asym) return;
    lq_code_set((uint8_t *)j->r.a.zero + (size_t)row * j->r.zero_row, j->r.a.type.bits, g, (uint32_t)z);
}

// --- codes ---

// The least number that is coded as more than the value `below`, as `from` is.
static float begins(const lq_round_args *a, float below, float from) {
    const float value = below;
    uint32_t q;
    for (;;) {
        const float x = below + (from - below) / 2;
        if (!(x > below && x < from)) return from;
        if (lq_round_code(a, x, 1, 0, &q) > value) from = x;
        else below = x;
    }
}

static void ladder_of(const lq_round_args *a, ladder *l) {
    float last = -INFINITY;
    for (int n = 0; n < VALUES; n++) {
        float x = INFINITY;
        for (int i = 0; i < 1 << a->type.bits; i++) x = a->table[i] > last && a->table[i] < x ? a->table[i] : x;
        if (n) l->from[n - 1] = all(x < INFINITY ? begins(a, last, x) : x);
        if (!(x < INFINITY)) continue;
        uint32_t q;
        l->value[n] = lq_round_code(a, x, 1, 0, &q);
        l->code[n] = (uint8_t)q;
        last = x;
    }
}

// n elements (a multiple of 4) over s, which is not 0.
static void divide(const float *x, size_t n, float s, float *t) {
    for (size_t i = 0; i < n; i += 4) {
        const v4 v = load(x + i) / all(s);
        memcpy(t + i, &v, sizeof v);
    }
}

// Codes of n elements (a multiple of 8) of scale 1, and what they stand for.
static void nearest_values(const job *j, const float *t, size_t n, int32_t z, int32_t *q, float *value) {
    if (j->ordered) {
        const ladder *l = &j->near;
        for (size_t i = 0; i < n; i += 8) {
            const v4 a = load(t + i), b = load(t + i + 4);
            i4 at[2] = {{0}};
            for (int k = 0; k < VALUES - 1; k++) {
                at[0] -= a >= l->from[k];
                at[1] -= b >= l->from[k];
            }
            for (size_t k = 0; k < 8; k++) {
                const int v = at[k / 4][k % 4];
                q[i + k] = l->code[v];
                value[i + k] = l->value[v];
            }
        }
    } else if (j->r.a.type.kind == LQ_W_FLOAT) {
        const lq_dtype_row *elem = &lq_dtypes[j->r.a.type.elem];
        const float top = lq_round_top(&j->r.a);
        uint8_t code[CHUNK];
        for (size_t i = 0; i < n; i += 4) {
            const v4 held = most(least(load(t + i), all(top)), all(-top));
            memcpy(value + i, &held, sizeof held);
        }
        elem->from_f32(value, code, n);
        elem->to_f32(code, value, n);
        for (size_t i = 0; i < n; i++) q[i] = code[i];
    } else {
        for (size_t i = 0; i < n; i++) value[i] = lq_round_code(&j->r.a, t[i], 1, z, (uint32_t *)&q[i]);
    }
}

// A row's figures by lane, in units of the row's largest scale: the squares of extreme weights would overflow.
typedef struct lanes { v4 error[2], norm[2], max[2]; } lanes;
_Static_assert(sizeof(lanes) == sizeof(lq_lanes), "the same");
static inline lanes lanes_of(const lq_lanes *from) { lanes l; memcpy(&l, from, sizeof l); return l; }

// What eight elements, their halves over s in t, add to the figures of theirs; `part`: |s| over the row's largest one.
static inline void lanes_take(lanes *l, int h, v4 t, v4 value, v4 part) {
    const v4 e = (t - value) * part, v = t * part;
    l->error[h] += e * e;
    l->norm[h] += v * v;
    l->max[h] = most(magnitude(e), l->max[h]);
}

static void codes_of(const float *w, size_t n, float s, int32_t z, int bits, float unit, int32_t *q, lq_lanes *sum) {
    const v4 low = all((float)-z), high = all((float)((1 << bits) - 1 - z)), step = all(s), part = all(unit);
    const v4 magic = all(12582912.0f);
    const i4 off = {z, z, z, z}, mask = {255, 255, 255, 255};
    lanes l = lanes_of(sum);
    for (size_t i = 0; i < n; i += LANES)
        for (int h = 0; h < 2; h++) {
            const v4 t = load(w + i + 4 * h) / step, c = most(least(t, high), low) + magic;
            const i4 code = ((i4)c + off) & mask;
            memcpy(q + i + 4 * h, &code, sizeof code);
            lanes_take(&l, h, t, c - magic, part);
        }
    memcpy(sum, &l, sizeof l);
}

// The figures of n elements (a multiple of 16) over their scale, whose codes stand for `value`.
static void add_figures(const float *t, const float *value, size_t n, float unit, lq_lanes *sum) {
    lanes l = lanes_of(sum);
    for (size_t i = 0; i < n; i += LANES)
        for (int h = 0; h < 2; h++) lanes_take(&l, h, load(t + i + 4 * h), load(value + i + 4 * h), all(unit));
    memcpy(sum, &l, sizeof l);
}

static void lanes_add(const lq_lanes *l, double unit, lq_figures *to) {
    double error = 0, norm = 0;
    for (int i = 0; i < LANES; i++) {
        error += (double)l->error[i];
        norm += (double)l->norm[i];
        const double m = (double)l->max[i] * unit;
        if (m > to->worst) to->worst = m;
    }
    to->error += error * unit * unit;
    to->norm += norm * unit * unit;
}

// Codes, dense, least significant bit first; the bits behind the last are 0.
static void pack_codes(const int32_t *code, size_t n, int bits, uint8_t *dst) {
    size_t at = 0;
    if (bits == 8) {
        for (; at < n; at++) dst[at] = (uint8_t)code[at];
    } else if (bits == 4) {
        for (; at < n / 2; at++) dst[at] = (uint8_t)(code[2 * at] | code[2 * at + 1] << 4);
        if (n & 1) dst[at] = (uint8_t)code[n - 1];
    } else {
        uint32_t have = 0;
        int filled = 0;
        for (size_t i = 0; i < n; i++) {
            have |= (uint32_t)code[i] << filled;
            for (filled += bits; filled >= 8; filled -= 8, have >>= 8) dst[at++] = (uint8_t)have;
        }
        if (filled) dst[at] = (uint8_t)have;
    }
}

// Columns c .. c + n of a row, all of group g: codes and figures.
static void code_chunk(const job *j, int64_t row, int64_t c, size_t n, float s, int32_t z, float top, lq_lanes *l,
                       lq_figures *to) {
    const lq_wtype *t = &j->r.a.type;
    uint8_t *dst = (uint8_t *)j->r.a.q + (size_t)row * j->r.q_row;
    float *back = j->r.a.back ? j->r.a.back + (size_t)row * (size_t)j->r.k + c : NULL;
    float x[CHUNK];
    int32_t q[CHUNK];
    take(j, row, c, n, x);
    if (t->kind == LQ_W_INT && s != 0) {
        lq_cpu_of(j->d)->rounds->codes(x, up16(n), s, z, t->bits, fabsf(s) / top, q, l);
        for (size_t i = 0; back && i < n; i++) back[i] = (float)(q[i] - z) * s;
    } else if (s != 0) {
        float value[CHUNK];
        divide(x, up16(n), s, x);
        nearest_values(j, x, up16(n), z, q, value);
        for (size_t i = n; i < up16(n); i++) value[i] = 0; // as x has there, whatever number of the table is nearest
        add_figures(x, value, up16(n), fabsf(s) / top, l);
        for (size_t i = 0; back && i < n; i++) back[i] = value[i] * s;
    } else {
        for (size_t i = 0; i < n; i++) {
            const float v = lq_round_code(&j->r.a, x[i], s, z, (uint32_t *)&q[i]);
            lq_figures_add(to, x[i], v);
            if (back) back[i] = v;
        }
    }
    if (t->kind == LQ_W_FLOAT)
        for (size_t i = 0; i < n; i++) dst[(size_t)c + i] = (uint8_t)q[i];
    else pack_codes(q, n, t->bits, dst + (size_t)c * (size_t)t->bits / 8); // c is a multiple of 16
}

// --- what fits a group ---

static void loss_of(const float *x, const float *weight, size_t n, float s, int32_t z, int bits, float *part) {
    const v4 low = all((float)-z), high = all((float)((1 << bits) - 1 - z)), step = all(s), magic = all(12582912.0f);
    v4 sum[2] = {load(part), load(part + 4)};
    for (size_t i = 0; i < n; i += LANES)
        for (int h = 0; h < 2; h++) {
            const v4 w = load(x + i + 4 * h);
            const v4 e = w - (most(least(w / step, high), low) + magic - magic) * step;
            sum[h] += weight ? load(weight + i + 4 * h) * e * e : e * e;
        }
    memcpy(part, sum, sizeof sum);
}

const lq_rounds lq_rounds_c = {range_of, codes_of, loss_of};

static double parts_of(double loss, const float *part) {
    for (int i = 0; i < LANES; i++) loss += (double)part[i];
    return loss;
}

// Whether parts_of would say at least `most`, for certain: another order of sums is not 2^-20 off.
static bool no_less(double loss, const float *part, double most) {
    const v4 sum = load(part) + load(part + 4);
    return loss + (double)((sum[0] + sum[1]) + (sum[2] + sum[3])) * (1 - 0x1p-20) >= most;
}

// What n elements would lose is added by lane.
static void add_losses(const job *j, const float *x, const float *weight, size_t n, float s, int32_t z, float *part) {
    const size_t wide = s != 0 ? n / LANES * LANES : 0;
    uint32_t q;
    if (wide && j->r.a.type.kind == LQ_W_INT) {
        lq_cpu_of(j->d)->rounds->loss(x, weight, wide, s, z, j->r.a.type.bits, part);
    } else if (wide) {
        float over[CHUNK], value[CHUNK];
        int32_t code[CHUNK];
        divide(x, wide, s, over);
        nearest_values(j, over, wide, z, code, value);
        for (size_t i = 0; i < wide; i += 4) {
            const v4 e = load(x + i) - load(value + i) * all(s);
            const v4 sum = load(part + i % LANES) + (weight ? load(weight + i) * e * e : e * e);
            memcpy(part + i % LANES, &sum, sizeof sum);
        }
    }
    for (size_t i = wide; i < n; i++) {
        const float e = x[i] - lq_round_code(&j->r.a, x[i], s, z, &q);
        part[i % LANES] += weight ? weight[i] * e * e : e * e;
    }
}

// Sum of weighted squares of what a group of rows r .. end would lose; if that is no less than `most`, some number that
// is not, either: sums of squares only grow, so that the rest need not be looked at.
static double group_loss(const job *j, int64_t r, int64_t end, int64_t c0, int64_t c1, float s, int32_t z,
                         double most) {
    const lq_mat *w = &j->r.a.w;
    const size_t look = s != 0 ? 64 : STEP; // columns between two looks at the sum
    double loss = 0;
    for (; r < end; r++)
        for (int64_t c = c0; c < c1; c += CHUNK) {
            const size_t n = (size_t)least_of(c1 - c, CHUNK);
            float taken[CHUNK], part[LANES] = {0};
            const float *x = w->type == LQ_F32 ? lq_mat_row(w, (int)r) + c : taken;
            if (x == taken) take(j, r, c, n, taken);
            for (size_t i = 0; i < n; i += look) {
                if (i && no_less(loss, part, most)) return most;
                add_losses(j, x + i, j->r.a.weight ? j->r.a.weight + c + (int64_t)i : NULL, i + look < n ? look : n - i,
                           s, z, part);
            }
            if (no_less(loss, part, most)) return most;
            loss = parts_of(loss, part);
        }
    return loss < most ? loss : most;
}

// Scale and zero point of group g for rows r .. end, whose range is lo .. hi: stored. False: they leave F16's range.
static void fit_group(job *j, int64_t r, int64_t end, int64_t g, float lo, float hi) {
    const lq_round_args *a = &j->r.a;
    const int64_t c0 = g * j->r.group, c1 = least_of(c0 + j->r.group, j->r.k);
    float raw = lq_round_scale(a, lo, hi);
    const float s = lq_round_stored(&j->r, r, g, raw);
    int32_t z = lq_round_zero(a, lo, s);
    bool out = lq_round_leaves(a, raw);
    if (a->fit == LQ_FIT_SEARCH && !out && s != 0) {
        double best = group_loss(j, r, end, c0, c1, s, z, INFINITY);
        for (int i = lq_round_next(a) > 1 ? 0 : 1; i < a->steps; i++) {
            const float share = lq_round_share(a, i);
            const float tried = lq_round_scale(a, lo * share, hi * share);
            const float st = lq_round_stored(&j->r, r, g, tried);
            const int32_t zt = lq_round_zero(a, lo * share, st);
            if (lq_round_leaves(a, tried) || st == 0) break;
            const double loss = group_loss(j, r, end, c0, c1, st, zt, best);
            if (loss < best) best = loss, raw = tried, z = zt;
        }
    }
    if (out) atomic_store_explicit(&j->wide, true, memory_order_relaxed);
    lq_round_put_scale(&j->r, r, g, raw);
    for (; r < end; r++) put_zero(j, r, g, z);
}

// All groups of a row that has scales of its own, RUN at a time where nothing is searched.
static bool fit_row(job *j, int64_t row) {
    const lq_round_args *a = &j->r.a;
    const lq_dtype_row *t = &lq_dtypes[a->type.scale];
    float lo[RUN], raw[RUN], s[RUN];
    for (int64_t g = 0; g < j->r.groups; g += RUN) {
        const int m = (int)least_of(j->r.groups - g, RUN);
        bool out = false;
        for (int i = 0; i < m; i++) {
            const int64_t c = (g + i) * j->r.group;
            float hi = lo[i] = 0;
            if (!row_range(j, row, c, least_of(c + j->r.group, j->r.k), &lo[i], &hi)) return false;
            if (a->fit == LQ_FIT_SEARCH) {
                fit_group(j, row, row + 1, g + i, lo[i], hi);
                continue;
            }
            raw[i] = lq_round_scale(a, lo[i], hi);
            if (a->scale_by) raw[i] = lq_round_stored(&j->r, row, g + i, raw[i]);
            out |= lq_round_leaves(a, raw[i]);
        }
        if (out) atomic_store_explicit(&j->wide, true, memory_order_relaxed);
        if (a->fit == LQ_FIT_SEARCH) continue;
        t->from_f32(raw, scale_at(j, row, g), (size_t)m);
        read_scales(j, scale_at(j, row, g), (size_t)m, s);
        for (int i = 0; i < m && a->type.asym; i++) put_zero(j, row, g + i, lq_round_zero(a, lo[i], s[i]));
    }
    return true;
}

// --- rows ---

static void row_sums(const job *j, int64_t row, const lq_figures *s) {
    j->r.a.error[row] = s->error;
    j->r.a.norm[row] = s->norm;
    if (j->r.a.worst) j->r.a.worst[row] = s->worst;
}

// To the nearest, once the scales are there.
static void code_row(const job *j, int64_t row) {
    float s[RUN], top = 0;
    lq_lanes l = {{0}, {0}, {0}};
    lq_figures to = {0};
    for (int64_t g = 0; g < j->r.groups; g += RUN) {
        const int m = (int)least_of(j->r.groups - g, RUN);
        read_scales(j, scale_at(j, row, g), (size_t)m, s);
        for (int i = 0; i < m; i++) top = fabsf(s[i]) > top ? fabsf(s[i]) : top;
    }
    for (int64_t g = 0; g < j->r.groups; g++) {
        if (g % RUN == 0) read_scales(j, scale_at(j, row, g), (size_t)least_of(j->r.groups - g, RUN), s);
        const int32_t z = lq_round_zero_at(&j->r, row, g);
        const int64_t end = least_of((g + 1) * j->r.group, j->r.k);
        for (int64_t c = g * j->r.group; c < end; c += CHUNK)
            code_chunk(j, row, c, (size_t)least_of(end - c, CHUNK), s[g % RUN], z, top, &l, &to);
    }
    lanes_add(&l, (double)top, &to);
    row_sums(j, row, &to);
}

// Another plain type.
static void plain_row(const job *j, int64_t row) {
    const lq_dtype_row *t = &lq_dtypes[j->r.a.type.elem];
    float x[CHUNK], v[CHUNK];
    lq_figures to = {0};
    for (int64_t c = 0; c < j->r.k; c += CHUNK) {
        const size_t n = (size_t)least_of(j->r.k - c, CHUNK);
        uint8_t *dst = (uint8_t *)j->r.a.q + (size_t)row * j->r.q_row + (size_t)c * t->bytes;
        take(j, row, c, n, x);
        bool fits = t->from_f32(x, dst, n);
        for (size_t i = 0; i < n; i++) fits &= isfinite(x[i]) != 0;
        if (!fits) {
            j->r.a.error[row] = NAN;
            return;
        }
        t->to_f32(dst, v, n);
        for (size_t i = 0; i < n; i++) lq_figures_add(&to, x[i], v[i]);
        if (j->r.a.back) memcpy(j->r.a.back + (size_t)row * (size_t)j->r.k + c, v, n * sizeof *v);
    }
    row_sums(j, row, &to);
}

static void clear_row(const job *j, int64_t row) {
    const lq_rounding *r = &j->r;
    if (r->a.q && r->a.type.kind != LQ_W_PLAIN) memset((uint8_t *)r->a.q + (size_t)row * r->q_row, 0, r->q_row);
    if (r->a.type.asym && !r->a.given_zero) memset((uint8_t *)r->a.zero + (size_t)row * r->zero_row, 0, r->zero_row);
}

static void nearest_rows(void *arg, int task, int worker) {
    job *j = arg;
    (void)worker;
    for (int64_t r = task * j->rows, end = least_of(r + j->rows, j->r.n); r < end; r++) {
        if (isnan(j->r.a.error[r])) continue;
        if (atomic_load_explicit(&j->wide, memory_order_relaxed)) return;
        if (j->r.a.type.kind == LQ_W_PLAIN) {
            plain_row(j, r);
            continue;
        }
        if (j->r.band == 1) clear_row(j, r);
        if (j->r.band == 1 && !j->r.a.given_scale && !fit_row(j, r)) continue;
        if (j->r.a.q) code_row(j, r);
    }
}

// --- bands: rows that share their scales ---

// The range of each row of a matrix in one group, kept where its figures will stand.
static void ranges_run(void *arg, int task, int worker) {
    const job *j = arg;
    (void)worker;
    for (int64_t r = task * j->rows, end = least_of(r + j->rows, j->r.n); r < end; r++) {
        float lo = 0, hi = 0;
        if (!row_range(j, r, 0, j->r.k, &lo, &hi)) continue;
        j->r.a.error[r] = (double)lo;
        j->r.a.norm[r] = (double)hi;
    }
}

static void band_run(void *arg, int band, int worker) {
    job *j = arg;
    const int64_t first = band * j->r.band, end = least_of(first + j->r.band, j->r.n);
    (void)worker;
    for (int64_t r = first; r < end; r++) clear_row(j, r);
    if (j->r.a.given_scale) return;
    for (int64_t g = 0; g < j->r.groups; g++) {
        float lo = 0, hi = 0;
        bool ok = true;
        for (int64_t r = first; r < end && ok; r++) {
            if (j->r.groups > 1) {
                ok = row_range(j, r, g * j->r.group, least_of((g + 1) * j->r.group, j->r.k), &lo, &hi);
                continue;
            }
            ok = !isnan(j->r.a.error[r]);
            lo = (float)j->r.a.error[r] < lo ? (float)j->r.a.error[r] : lo;
            hi = (float)j->r.a.norm[r] > hi ? (float)j->r.a.norm[r] : hi;
        }
        if (!ok) return;
        fit_group(j, first, end, g, lo, hi);
    }
}

// --- errors spread over the columns behind ---

// Rows of u, [b0, b1) x [c0, c1), as f32.
static void read_u(const job *j, int64_t b0, int64_t b1, int64_t c0, int64_t c1, float *u) {
    for (int64_t b = b0; b < b1; b++)
        for (int64_t c = c0; c < c1; c++)
            u[(b - b0) * TILE + (c - c0)] = (float)j->r.a.u[(size_t)b * (size_t)j->r.k + (size_t)c];
}

static float *spoilt(const job *j, int64_t row) { return (float *)j->r.a.w.p + (size_t)row * j->r.a.w.stride; }

// w[c] -= e * u[c] for n columns, in f32.
static inline void spread(float *w, const float *u, float e, size_t n) {
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const v4 x = load(w + i) - all(e) * load(u + i);
        memcpy(w + i, &x, sizeof x);
    }
    for (; i < n; i++) w[i] -= e * u[i];
}

void lq_spread_c(const lq_hearer *row, size_t rows, const float *u, size_t stride, size_t errors, size_t n) {
    for (size_t r = 0; r < rows; r++)
        for (size_t b = 0; b < errors; b++) spread(row[r].w, u + b * stride, row[r].e[b], n);
}

// Some rows, and what each has at hand: the errors of a block's columns, scale and zero point of its group.
typedef struct band {
    int64_t first, end;
    float *e, s[ROWS]; // e [ROWS][BLOCK]
    int32_t z[ROWS];
    lq_figures to[ROWS];
} band;

// Those of the rows that can be coded, from column c on, and their errors from `from` on.
static size_t hearers(const job *j, const band *b, int64_t c, int64_t from, lq_hearer *row) {
    size_t n = 0;
    for (int64_t r = b->first; r < b->end; r++)
        if (!isnan(j->r.a.error[r])) row[n++] = (lq_hearer){spoilt(j, r) + c, b->e + (r - b->first) * BLOCK + from};
    return n;
}

// Scale and zero point of a row from column c on, found if a group begins there.
static bool band_scale(job *j, band *b, int64_t row, int64_t c) {
    const int64_t g = c / j->r.group;
    if (c % j->r.group == 0 && !j->r.a.given_scale) {
        float lo = 0, hi = 0;
        if (!row_range(j, row, c, least_of(c + j->r.group, j->r.k), &lo, &hi)) return false;
        fit_group(j, row, row + 1, g, lo, hi);
    }
    b->s[row - b->first] = lq_round_scale_at(&j->r, row, g);
    b->z[row - b->first] = lq_round_zero_at(&j->r, row, g);
    return true;
}

// Column c of a row; the columns before `end` hear of its error. u: its row of u, from column c on.
static void spread_column(const job *j, band *b, int64_t row, int64_t c, int64_t end, const float *u, float *e) {
    const lq_round_args *a = &j->r.a;
    float *w = spoilt(j, row);
    uint32_t q;
    const float v = lq_round_code(&j->r.a, w[c], b->s[row - b->first], b->z[row - b->first], &q);
    lq_round_put_code(&j->r, row, c, q);
    if (a->back) a->back[(size_t)row * (size_t)j->r.k + (size_t)c] = v;
    lq_figures_add(&b->to[row - b->first], w[c], v);
    *e = (w[c] - v) / u[0];
    spread(w + c + 1, u + 1, *e, (size_t)(end - c - 1));
}

// Columns b0 .. b1 of some rows, one column after the other: while a row waits for its own quotients others go on. The
// errors of STEP columns are spread over the rest of the block together.
static void spread_block(job *j, band *b, int64_t b0, int64_t b1, const float *u) {
    lq_hearer row[ROWS];
    for (int64_t c0 = b0, c1; c0 < b1; c0 = c1) {
        c1 = least_of(c0 + STEP, b1);
        for (int64_t c = c0; c < c1; c++)
            for (int64_t r = b->first; r < b->end; r++) {
                if (isnan(j->r.a.error[r])) continue;
                if ((c % j->r.group == 0 || c == b0) && !band_scale(j, b, r, c)) continue;
                spread_column(j, b, r, c, c1, u + (c - b0) * (TILE + 1), b->e + (r - b->first) * BLOCK + (c - b0));
            }
        lq_cpu_of(j->d)->spread(row, hearers(j, b, c1, c0 - b0, row), u + (c0 - b0) * TILE + (c1 - b0), TILE,
                                (size_t)(c1 - c0), (size_t)(b1 - c1));
    }
}

// Groups of up to BLOCK columns lie whole in a block, larger ones are cut: a group's range is
// taken when all before it are done.
static int64_t block_end(const job *j, int64_t b) {
    if (j->r.group <= BLOCK) return least_of(b + BLOCK / j->r.group * j->r.group, j->r.k);
    return least_of(least_of(b + BLOCK, (b / j->r.group + 1) * j->r.group), j->r.k);
}

static void spread_rows(void *arg, int task, int worker) {
    job *j = arg;
    float *u = lq_cpu_work(j->d, worker);
    const int64_t first = (int64_t)task * ROWS;
    band b = {.first = first, .end = least_of(first + ROWS, j->r.n), .e = u + BLOCK * TILE};
    lq_hearer row[ROWS];
    for (int64_t r = b.first; r < b.end; r++) {
        float lo = 0, hi = 0;
        if (j->r.band == 1) clear_row(j, r);
        row_range(j, r, 0, j->r.k, &lo, &hi);
    }
    for (int64_t b0 = 0, b1; b0 < j->r.k; b0 = b1) {
        b1 = block_end(j, b0);
        read_u(j, b0, b1, b0, b1, u);
        spread_block(j, &b, b0, b1, u);
        for (int64_t c = b1; c < j->r.k; c += TILE) {
            const int64_t c1 = least_of(c + TILE, j->r.k);
            read_u(j, b0, b1, c, c1, u);
            lq_cpu_of(j->d)->spread(row, hearers(j, &b, c, 0, row), u, TILE, (size_t)(b1 - b0), (size_t)(c1 - c));
        }
    }
    for (int64_t r = b.first; r < b.end; r++)
        if (!isnan(j->r.a.error[r])) row_sums(j, r, &b.to[r - b.first]);
}

// --- the slot ---

// The first element that cannot be coded.
static void find_bad(const job *j) {
    const lq_round_args *a = &j->r.a;
    int64_t c = 0;
    a->bad[0] = a->bad[1] = -1;
    for (int64_t r = 0; r < j->r.n && a->bad[0] < 0; r++)
        if (isnan(a->error[r])) a->bad[0] = r;
    if (a->bad[0] < 0) return;
    while (c < j->r.k && lq_round_can(a, lq_round_element(a, a->bad[0], c))) c++;
    a->bad[1] = c < j->r.k ? c : 0;
}

lq_rounding lq_rounding_of(const lq_round_args *a) {
    const lq_wtype *t = &a->type;
    lq_rounding r = {.a = *a, .n = a->w.rows, .k = a->w.cols, .elem = lq_dtype_size(a->w.type),
                     .scale = lq_dtype_size(t->scale), .groups = lq_weight_groups(t, a->w.cols)};
    r.group = t->group ? t->group : (int64_t)up16((size_t)r.k);
    r.band = t->kind != LQ_W_PLAIN && t->rows > 1 ? t->rows : 1;
    r.q_row = t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT ? (size_t)r.k * lq_dtype_size(t->elem)
        : lq_code_row_bytes(t->bits, r.k);
    r.zero_row = lq_code_row_bytes(t->bits, r.groups);
    return r;
}

static job job_of(const lq_dev *d, const lq_round_args *a) {
    job j = {.d = d, .r = lq_rounding_of(a)};
    j.rows = j.r.k >= 1 << 16 ? 1 : (1 << 16) / j.r.k;
    j.ordered = a->type.kind == LQ_W_TABLE && 1 << a->type.bits <= VALUES;
    if (j.ordered) ladder_of(a, &j.near);
    atomic_init(&j.wide, false);
    return j;
}

void lq_round_c(lq_dev *d, const lq_round_args *a) {
    const lq_wtype *t = &a->type;
    lq_weight_size size;
    job j = job_of(d, a);
    for (int64_t r = 0; r < j.r.n; r++) a->error[r] = 0;
    const int tasks = (int)((j.r.n + j.rows - 1) / j.rows), bands = (int)((j.r.n + j.r.band - 1) / j.r.band);
    if (t->kind != LQ_W_PLAIN && a->given_scale && lq_weight_sizes(t, j.r.n, j.r.k, &size)) {
        if (a->scale != a->given_scale) memcpy(a->scale, a->given_scale, size.scale);
        if (t->asym && a->zero != a->given_zero) memcpy(a->zero, a->given_zero, size.zero);
    }
    if (j.r.band > 1 && j.r.groups == 1 && !a->given_scale) lq_pool_run(d->pool, ranges_run, &j, tasks);
    if (j.r.band > 1) lq_pool_run(d->pool, band_run, &j, bands);
    if (a->u) lq_pool_run(d->pool, spread_rows, &j, (int)((j.r.n + ROWS - 1) / ROWS));
    else lq_pool_run(d->pool, nearest_rows, &j, tasks);
    find_bad(&j);
    *a->wide = atomic_load(&j.wide);
}

// --- codes that are there already, made better ---

enum { SIDE_BY_SIDE = 16 }; // rows that read a row of h together

// slope -= by[i] * (column c + i of h + damp), for some columns, of rows whose w is their slope and e their by.
static void slopes_less(const job *j, const lq_hearer *row, size_t rows, int64_t c, int64_t columns) {
    const size_t k = (size_t)j->r.k;
    lq_cpu_of(j->d)->spread(row, rows, j->r.a.h + (size_t)c * k, k, (size_t)columns, k);
    for (size_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++) row[r].w[c + i] -= row[r].e[i] * j->r.a.damp;
}

// One column of some rows, whose scales are s: the code that is nearest to where the row's loss is least, the others as
// they are.
static bool refine_column(const job *j, int64_t first, int64_t end, int64_t c, const float *s) {
    const float curve = lq_refine_curve(&j->r, c);
    bool changed = false;
    for (int64_t r = first; r < end && curve > 0; r++, s++) {
        float *slope = j->r.a.slope + (size_t)r * (size_t)j->r.k;
        const float by = lq_refine_code(&j->r, r, c, slope[c], *s, curve);
        if (by == 0) continue;
        slopes_less(j, &(lq_hearer){slope, &by}, 1, c, 1);
        changed = true;
    }
    return changed;
}

// Whether another scale of a group of a row is better, by least squares: then v, its values of scale 1, is what they
// change by. less: -h v.
static bool refine_scale(const job *j, int64_t row, int64_t g, float *v, const float *less) {
    const float *slope = j->r.a.slope + (size_t)row * (size_t)j->r.k;
    const int64_t c0 = g * j->r.group, c1 = least_of(c0 + j->r.group, j->r.k);
    double fall = 0, curve = 0;
    for (int64_t c = c0; c < c1; c++) {
        curve += ((double)j->r.a.damp * (double)v[c - c0] - (double)less[c - c0]) * (double)v[c - c0];
        fall += (double)slope[c] * (double)v[c - c0];
    }
    const float by = lq_refine_scale(&j->r, row, g, fall, curve);
    for (int64_t i = 0; i < c1 - c0; i++) v[i] *= by;
    return by != 0;
}

// The scales of a group of some rows. work: [2][SIDE_BY_SIDE][LQ_REFINED]
static bool refine_scales(const job *j, int64_t first, int64_t end, int64_t g, float *work) {
    const size_t k = (size_t)j->r.k;
    const int64_t c0 = g * j->r.group, columns = least_of(j->r.group, j->r.k - c0);
    lq_hearer row[SIDE_BY_SIDE];
    int64_t at[SIDE_BY_SIDE];
    size_t rows = 0, better = 0;
    if (columns > LQ_REFINED) return false;
    for (int64_t r = first; r < end; r++) {
        float *v = work + rows * LQ_REFINED, *less = v + SIDE_BY_SIDE * LQ_REFINED;
        if (lq_round_scale_at(&j->r, r, g) == 0) continue;
        const int32_t z = lq_round_zero_at(&j->r, r, g);
        for (int64_t i = 0; i < columns; i++) {
            v[i] = lq_round_value(&j->r.a, lq_round_code_at(&j->r, r, c0 + i), z);
            less[i] = 0;
        }
        row[rows] = (lq_hearer){less, v};
        at[rows++] = r;
    }
    lq_cpu_of(j->d)->spread(row, rows, j->r.a.h + (size_t)c0 * k + c0, k, (size_t)columns, (size_t)columns);
    for (size_t i = 0; i < rows; i++) {
        float *v = work + i * LQ_REFINED;
        if (refine_scale(j, at[i], g, v, row[i].w)) row[better++] = (lq_hearer){j->r.a.slope + (size_t)at[i] * k, v};
    }
    slopes_less(j, row, better, c0, columns);
    return better > 0;
}

static void refine_rows(void *arg, int task, int worker) {
    const job *j = arg;
    const int64_t first = (int64_t)task * SIDE_BY_SIDE, end = least_of(first + SIDE_BY_SIDE, j->r.n);
    float s[SIDE_BY_SIDE];
    bool changed = true;
    for (int sweep = 0; sweep < j->r.a.sweeps && changed; sweep++) {
        changed = false;
        for (int64_t c = 0; c < j->r.k; c++) {
            for (int64_t r = first; r < end && c % j->r.group == 0; r++)
                s[r - first] = lq_round_scale_at(&j->r, r, c / j->r.group);
            changed |= refine_column(j, first, end, c, s);
        }
        for (int64_t g = 0; g < j->r.groups && j->r.band == 1; g++)
            changed |= refine_scales(j, first, end, g, lq_cpu_work(j->d, worker));
    }
    for (int64_t r = first; r < end && j->r.a.back; r++)
        for (int64_t c = 0; c < j->r.k; c++) j->r.a.back[r * j->r.k + c] = lq_round_back(&j->r, r, c);
}

void lq_refine_c(lq_dev *d, const lq_round_args *a) {
    job j = job_of(d, a);
    lq_pool_run(d->pool, refine_rows, &j, (int)((j.r.n + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE));
}
