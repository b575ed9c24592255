// round.c: the slot `round`: a matrix to codes, scales and zero points, to the nearest or with each column's error
// spread over the columns behind it. Owns nothing; needs no scratch but a worker's share. Rows (bands of rows that
// share scales) are independent and what is summed has one order, so threads decide no bit.
//
// Sums run over eight fixed lanes, written as vectors of four: the same bits from every compiler and on every machine.
#include "kernels/cpu/slots.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum {
    LANES = LQ_LOSS_LANES,
    STEP = 16,   // what groups are multiples of, and a chunk is padded to
    CHUNK = 512, // columns that are read at once
    RUN = 64,    // groups whose scales are stored at once
    BLOCK = 128, // columns whose errors are spread together
    TILE = 256,  // columns they are spread over together
    ROWS = 64    // rows that share what is read of `u`
};
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

typedef struct job {
    const lq_dev *d;
    const lq_round_args *a;
    int64_t n, k, groups, group, band; // columns that share a scale, rows that do
    int64_t rows;                      // of a task
    size_t elem, q_row, zero_row, scale;
    float top;                         // the largest value of a code: FLOAT, TABLE
    atomic_bool wide;
} job;

// What became of a row: error[row] is NaN where an element cannot be coded.
typedef struct sums { double error, norm, worst; } sums;

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t up16(size_t n) { return (n + STEP - 1) / STEP * STEP; }

// Columns c .. c + n of a row as f32, with zeros up to a multiple of 16.
static void take(const job *j, int64_t row, int64_t c, size_t n, float *x) {
    lq_dtypes[j->a->w.type].to_f32((const char *)j->a->w.p + ((size_t)row * j->a->w.stride + (size_t)c) * j->elem, x,
                                   n);
    memset(x + n, 0, (up16(n) - n) * sizeof *x);
}

// --- scales ---

// Smallest and largest of n elements (a multiple of 16) and what was there before. False: NaN, infinite or too large.
static bool widen_range(const float *w, size_t n, float *lo, float *hi) {
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
    return sum[0] + sum[1] + sum[2] + sum[3] == 0 && *hi <= LARGEST && *lo >= -LARGEST;
}

// Of columns c .. end of a row, 0 let in.
static bool row_range(const job *j, int64_t row, int64_t c, int64_t end, float *lo, float *hi) {
    float x[CHUNK];
    bool ok = true;
    for (; c < end && ok; c += CHUNK) {
        const size_t n = (size_t)least_of(end - c, CHUNK);
        take(j, row, c, n, x);
        ok = widen_range(x, up16(n), lo, hi);
    }
    if (!ok) j->a->error[row] = NAN;
    return ok;
}

// 2^(floor(log2 m) - floor(log2 top)), within E8M0.
static float power_of(float m, float top) {
    const int e = m > 0 ? ilogbf(m) - ilogbf(top) : -127;
    return ldexpf(1, e < -127 ? -127 : e > 127 ? 127 : e);
}

// Adding 0 makes the scale of a group of zeros +0.
static float scale_of(const job *j, float lo, float hi) {
    const lq_wtype *t = &j->a->type;
    const float m = hi > -lo ? hi : -lo, by = j->a->scale2;
    if (t->scale == LQ_E8M0) return power_of(m, j->top);
    if (t->scale == LQ_E4M3) return by > 0 ? fminf(m / (j->top * by), 448.0f) + 0.0f : 0;
    if (t->kind != LQ_W_INT) return m / j->top + 0.0f;
    if (t->asym) return (float)(((double)hi - (double)lo) / ((1 << t->bits) - 1));
    return (hi > -lo ? hi : lo) / (float)-(1 << (t->bits - 1)) + 0.0f;
}

static int32_t zero_of(const job *j, float lo, float s) {
    const lq_wtype *t = &j->a->type;
    const float top = (float)((1 << t->bits) - 1);
    if (!t->asym) return 1 << (t->bits - 1);
    if (!(s > 0)) return 0; // of codes of scales none may be near a small one
    const float z = rintf(-lo / s);
    return (int32_t)(z > top ? top : z);
}

static bool leaves(const job *j, float s) {
    return j->a->type.scale == LQ_F16 && s != 0 && !(fabsf(s) >= 0x1p-14f && fabsf(s) <= 65504.0f);
}

// Scales as they are stored, as they count.
static void read_scales(const job *j, const void *from, size_t n, float *s) {
    const lq_dtype t = j->a->type.scale;
    lq_dtypes[t].to_f32(from, s, n);
    for (size_t i = 0; t == LQ_E4M3 && i < n; i++) s[i] *= j->a->scale2;
}

// A scale as it will be stored.
static float stored(const job *j, int64_t band, int64_t g, float s) {
    const lq_round_args *a = j->a;
    uint32_t bytes;
    if (a->scale_by) {
        const float by = a->scale_by[band * j->groups + g];
        return lq_scale_value(a->scale_map, lq_scale_code(a->scale_map, by, a->scale_offset, s), by, a->scale_offset);
    }
    lq_dtypes[j->a->type.scale].from_f32(&s, &bytes, 1);
    read_scales(j, &bytes, 1, &s);
    return s;
}

static void *scale_at(const job *j, int64_t band, int64_t g) {
    return (char *)j->a->scale + (size_t)(band * j->groups + g) * j->scale;
}

static void put_scale(const job *j, int64_t band, int64_t g, float s) {
    if (j->a->scale_by) s = stored(j, band, g, s);
    lq_dtypes[j->a->type.scale].from_f32(&s, scale_at(j, band, g), 1);
}

static int32_t zero_at(const job *j, int64_t row, int64_t g) {
    const int bits = j->a->type.bits;
    if (!j->a->type.asym) return j->a->type.kind == LQ_W_INT ? 1 << (bits - 1) : 0;
    return (int32_t)lq_code_get((const uint8_t *)j->a->zero + (size_t)row * j->zero_row, bits, g);
}

static void put_zero(const job *j, int64_t row, int64_t g, int32_t z) {
    if (j->a->type.asym) lq_code_set((uint8_t *)j->a->zero + (size_t)row * j->zero_row, j->a->type.bits, g,
                                     (uint32_t)z);
}

// --- codes ---

static inline float magic_round(float x) { return x + 12582912.0f - 12582912.0f; } // 1.5 * 2^23; ties to even

// One element: its code, and what that stands for.
static float code_one(const job *j, float w, float s, int32_t z, uint32_t *q) {
    const lq_wtype *t = &j->a->type;
    float x = s == 0 ? 0 : w / s;
    if (t->kind == LQ_W_INT) {
        const float low = (float)-z, high = (float)((1 << t->bits) - 1 - z);
        x = magic_round(x < low ? low : x > high ? high : x);
        *q = (uint32_t)((int32_t)x + z);
        return x * s;
    }
    if (t->kind == LQ_W_FLOAT) {
        uint8_t byte;
        x = x < -j->top ? -j->top : x > j->top ? j->top : x;
        lq_dtypes[t->elem].from_f32(&x, &byte, 1);
        lq_dtypes[t->elem].to_f32(&byte, &x, 1);
        *q = byte;
        return x * s;
    }
    const float *table = j->a->table;
    uint32_t best = 0;
    for (uint32_t i = 1; i < 1u << t->bits; i++) {
        const float near = fabsf(x - table[i]), nearest = fabsf(x - table[best]);
        if (near < nearest || (near == nearest && best & 1 && !(i & 1))) best = i;
    }
    *q = best;
    return table[best] * s;
}

// A row's figures by lane, in units of the row's largest scale: the squares of extreme weights would overflow.
typedef struct lanes { v4 error[2], norm[2], max[2]; } lanes;

// Codes of n elements of an INT group (n a multiple of 16). `unit`: |s| over the row's largest one.
static void code_int(const float *w, size_t n, float s, int z, int bits, float unit, int32_t *q, lanes *sum) {
    const v4 low = all((float)-z), high = all((float)((1 << bits) - 1 - z)), step = all(s), part = all(unit);
    const v4 magic = all(12582912.0f);
    const i4 off = {z, z, z, z}, mask = {255, 255, 255, 255};
    lanes l = *sum;
    for (size_t i = 0; i < n; i += LANES)
        for (int h = 0; h < 2; h++) {
            const v4 t = load(w + i + 4 * h) / step, c = most(least(t, high), low) + magic;
            const i4 code = ((i4)c + off) & mask;
            memcpy(q + i + 4 * h, &code, sizeof code);
            const v4 e = (t - (c - magic)) * part, v = t * part;
            l.error[h] += e * e;
            l.norm[h] += v * v;
            l.max[h] = most(magnitude(e), l.max[h]);
        }
    *sum = l;
}

static void lanes_add(const lanes *l, double unit, sums *to) {
    double error = 0, norm = 0;
    for (int i = 0; i < LANES; i++) {
        error += (double)l->error[i / 4][i % 4];
        norm += (double)l->norm[i / 4][i % 4];
        const double m = (double)l->max[i / 4][i % 4] * unit;
        if (m > to->worst) to->worst = m;
    }
    to->error += error * unit * unit;
    to->norm += norm * unit * unit;
}

static void add_one(sums *to, float w, float v) {
    const double e = fabs((double)w - (double)v);
    to->error += e * e;
    to->norm += (double)w * (double)w;
    if (e > to->worst) to->worst = e;
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
static void code_chunk(const job *j, int64_t row, int64_t c, size_t n, float s, int32_t z, float top, lanes *l,
                       sums *to) {
    const lq_wtype *t = &j->a->type;
    uint8_t *dst = (uint8_t *)j->a->q + (size_t)row * j->q_row;
    float *back = j->a->back ? j->a->back + (size_t)row * (size_t)j->k + c : NULL;
    float x[CHUNK];
    int32_t q[CHUNK];
    take(j, row, c, n, x);
    if (t->kind == LQ_W_INT && s != 0) {
        code_int(x, up16(n), s, z, t->bits, fabsf(s) / top, q, l);
        for (size_t i = 0; back && i < n; i++) back[i] = (float)(q[i] - z) * s;
    } else {
        for (size_t i = 0; i < n; i++) {
            const float v = code_one(j, x[i], s, z, (uint32_t *)&q[i]);
            add_one(to, x[i], v);
            if (back) back[i] = v;
        }
    }
    if (t->kind == LQ_W_FLOAT)
        for (size_t i = 0; i < n; i++) dst[(size_t)c + i] = (uint8_t)q[i];
    else pack_codes(q, n, t->bits, dst + (size_t)c * (size_t)t->bits / 8); // c is a multiple of 16
}

// --- what fits a group ---

// The bits are those of code_one.
void lq_loss_c(const float *x, const float *weight, size_t n, float s, int32_t z, int bits, float *part) {
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

static double lanes_of(double loss, const float *part) {
    for (int i = 0; i < LANES; i++) loss += (double)part[i];
    return loss;
}

// Whether lanes_of would say at least `most`, for certain: another order of sums is not 2^-20 off.
static bool no_less(double loss, const float *part, double most) {
    const v4 sum = load(part) + load(part + 4);
    return loss + (double)((sum[0] + sum[1]) + (sum[2] + sum[3])) * (1 - 0x1p-20) >= most;
}

// What n elements would lose is added by lane.
static void add_losses(const job *j, const float *x, const float *weight, size_t n, float s, int32_t z, float *part) {
    const size_t wide = j->a->type.kind == LQ_W_INT && s != 0 ? n / LANES * LANES : 0;
    uint32_t q;
    if (wide) lq_cpu_of(j->d)->loss(x, weight, wide, s, z, j->a->type.bits, part);
    for (size_t i = wide; i < n; i++) {
        const float e = x[i] - code_one(j, x[i], s, z, &q);
        part[i % LANES] += weight ? weight[i] * e * e : e * e;
    }
}

// Sum of weighted squares of what a group of rows r .. end would lose; if that is no less than `most`, some number that
// is not, either: sums of squares only grow, so that the rest need not be looked at.
static double group_loss(const job *j, int64_t r, int64_t end, int64_t c0, int64_t c1, float s, int32_t z,
                         double most) {
    const lq_mat *w = &j->a->w;
    const size_t look = j->a->type.kind == LQ_W_INT && s != 0 ? 64 : STEP; // columns between two looks at the sum
    double loss = 0;
    for (; r < end; r++)
        for (int64_t c = c0; c < c1; c += CHUNK) {
            const size_t n = (size_t)least_of(c1 - c, CHUNK);
            float taken[CHUNK], part[LANES] = {0};
            const float *x = w->type == LQ_F32 ? lq_mat_row(w, (int)r) + c : taken;
            if (x == taken) take(j, r, c, n, taken);
            for (size_t i = 0; i < n; i += look) {
                if (i && no_less(loss, part, most)) return most;
                add_losses(j, x + i, j->a->weight ? j->a->weight + c + (int64_t)i : NULL, i + look < n ? look : n - i,
                           s, z, part);
            }
            if (no_less(loss, part, most)) return most;
            loss = lanes_of(loss, part);
        }
    return loss < most ? loss : most;
}

// Scale and zero point of group g for rows r .. end, whose range is lo .. hi: stored. False: they leave F16's range.
static void fit_group(job *j, int64_t r, int64_t end, int64_t g, float lo, float hi) {
    const lq_round_args *a = j->a;
    const int64_t c0 = g * j->group, c1 = least_of(c0 + j->group, j->k);
    float raw = scale_of(j, lo, hi);
    const int64_t band = r / j->band;
    const float s = stored(j, band, g, raw);
    int32_t z = zero_of(j, lo, s);
    bool out = leaves(j, raw);
    if (a->fit == LQ_FIT_SEARCH && !out && s != 0) {
        double best = group_loss(j, r, end, c0, c1, s, z, INFINITY);
        // A scale of few bits may have been rounded down, so that the largest elements have no code: the next one too.
        const float next = a->type.scale == LQ_E8M0 ? 2 : a->type.scale == LQ_E4M3 ? 1.125f : 1;
        for (int i = next > 1 ? 0 : 1; i < a->steps; i++) {
            const float share = i ? (float)(1 - (1 - (double)a->least) * i / (a->steps - 1)) : next;
            const float tried = scale_of(j, lo * share, hi * share);
            const float st = stored(j, band, g, tried);
            const int32_t zt = zero_of(j, lo * share, st);
            if (leaves(j, tried) || st == 0) break;
            const double loss = group_loss(j, r, end, c0, c1, st, zt, best);
            if (loss < best) best = loss, raw = tried, z = zt;
        }
    }
    if (out) atomic_store_explicit(&j->wide, true, memory_order_relaxed);
    put_scale(j, band, g, raw);
    for (; r < end; r++) put_zero(j, r, g, z);
}

// All groups of a row that has scales of its own, RUN at a time where nothing is searched.
static bool fit_row(job *j, int64_t row) {
    const lq_dtype_row *t = &lq_dtypes[j->a->type.scale];
    float lo[RUN], raw[RUN], s[RUN];
    for (int64_t g = 0; g < j->groups; g += RUN) {
        const int m = (int)least_of(j->groups - g, RUN);
        bool out = false;
        for (int i = 0; i < m; i++) {
            const int64_t c = (g + i) * j->group;
            float hi = lo[i] = 0;
            if (!row_range(j, row, c, least_of(c + j->group, j->k), &lo[i], &hi)) return false;
            if (j->a->fit == LQ_FIT_SEARCH) {
                fit_group(j, row, row + 1, g + i, lo[i], hi);
                continue;
            }
            raw[i] = scale_of(j, lo[i], hi);
            if (j->a->scale_by) raw[i] = stored(j, row, g + i, raw[i]);
            out |= leaves(j, raw[i]);
        }
        if (out) atomic_store_explicit(&j->wide, true, memory_order_relaxed);
        if (j->a->fit == LQ_FIT_SEARCH) continue;
        t->from_f32(raw, scale_at(j, row, g), (size_t)m);
        read_scales(j, scale_at(j, row, g), (size_t)m, s);
        for (int i = 0; i < m && j->a->type.asym; i++) put_zero(j, row, g + i, zero_of(j, lo[i], s[i]));
    }
    return true;
}

// --- rows ---

static void row_sums(const job *j, int64_t row, const sums *s) {
    j->a->error[row] = s->error;
    j->a->norm[row] = s->norm;
    if (j->a->worst) j->a->worst[row] = s->worst;
}

// To the nearest, once the scales are there.
static void code_row(const job *j, int64_t row) {
    const int64_t band = row / j->band;
    float s[RUN], top = 0;
    lanes l = {0};
    sums to = {0};
    for (int64_t g = 0; g < j->groups; g += RUN) {
        const int m = (int)least_of(j->groups - g, RUN);
        read_scales(j, scale_at(j, band, g), (size_t)m, s);
        for (int i = 0; i < m; i++) top = fabsf(s[i]) > top ? fabsf(s[i]) : top;
    }
    for (int64_t g = 0; g < j->groups; g++) {
        if (g % RUN == 0) read_scales(j, scale_at(j, band, g), (size_t)least_of(j->groups - g, RUN), s);
        const int32_t z = zero_at(j, row, g);
        const int64_t end = least_of((g + 1) * j->group, j->k);
        for (int64_t c = g * j->group; c < end; c += CHUNK)
            code_chunk(j, row, c, (size_t)least_of(end - c, CHUNK), s[g % RUN], z, top, &l, &to);
    }
    lanes_add(&l, (double)top, &to);
    row_sums(j, row, &to);
}

// Another plain type.
static void plain_row(const job *j, int64_t row) {
    const lq_dtype_row *t = &lq_dtypes[j->a->type.elem];
    float x[CHUNK], v[CHUNK];
    sums to = {0};
    for (int64_t c = 0; c < j->k; c += CHUNK) {
        const size_t n = (size_t)least_of(j->k - c, CHUNK);
        uint8_t *dst = (uint8_t *)j->a->q + (size_t)row * j->q_row + (size_t)c * t->bytes;
        take(j, row, c, n, x);
        bool fits = t->from_f32(x, dst, n);
        for (size_t i = 0; i < n; i++) fits &= isfinite(x[i]) != 0;
        if (!fits) {
            j->a->error[row] = NAN;
            return;
        }
        t->to_f32(dst, v, n);
        for (size_t i = 0; i < n; i++) add_one(&to, x[i], v[i]);
        if (j->a->back) memcpy(j->a->back + (size_t)row * (size_t)j->k + c, v, n * sizeof *v);
    }
    row_sums(j, row, &to);
}

static void clear_row(const job *j, int64_t row) {
    if (j->a->q && j->a->type.kind != LQ_W_PLAIN) memset((uint8_t *)j->a->q + (size_t)row * j->q_row, 0, j->q_row);
    if (j->a->type.asym && !j->a->given_zero) memset((uint8_t *)j->a->zero + (size_t)row * j->zero_row, 0, j->zero_row);
}

static void nearest_rows(void *arg, int task, int worker) {
    job *j = arg;
    (void)worker;
    for (int64_t r = task * j->rows, end = least_of(r + j->rows, j->n); r < end; r++) {
        if (isnan(j->a->error[r])) continue;
        if (atomic_load_explicit(&j->wide, memory_order_relaxed)) return;
        if (j->a->type.kind == LQ_W_PLAIN) {
            plain_row(j, r);
            continue;
        }
        if (j->band == 1) clear_row(j, r);
        if (j->band == 1 && !j->a->given_scale && !fit_row(j, r)) continue;
        if (j->a->q) code_row(j, r);
    }
}

// --- bands: rows that share their scales ---

// The range of each row of a matrix in one group, kept where its figures will stand.
static void ranges_run(void *arg, int task, int worker) {
    const job *j = arg;
    (void)worker;
    for (int64_t r = task * j->rows, end = least_of(r + j->rows, j->n); r < end; r++) {
        float lo = 0, hi = 0;
        if (!row_range(j, r, 0, j->k, &lo, &hi)) continue;
        j->a->error[r] = (double)lo;
        j->a->norm[r] = (double)hi;
    }
}

static void band_run(void *arg, int band, int worker) {
    job *j = arg;
    const int64_t first = band * j->band, end = least_of(first + j->band, j->n);
    (void)worker;
    for (int64_t r = first; r < end; r++) clear_row(j, r);
    if (j->a->given_scale) return;
    for (int64_t g = 0; g < j->groups; g++) {
        float lo = 0, hi = 0;
        bool ok = true;
        for (int64_t r = first; r < end && ok; r++) {
            if (j->groups > 1) {
                ok = row_range(j, r, g * j->group, least_of((g + 1) * j->group, j->k), &lo, &hi);
                continue;
            }
            ok = !isnan(j->a->error[r]);
            lo = (float)j->a->error[r] < lo ? (float)j->a->error[r] : lo;
            hi = (float)j->a->norm[r] > hi ? (float)j->a->norm[r] : hi;
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
            u[(b - b0) * TILE + (c - c0)] = (float)j->a->u[(size_t)b * (size_t)j->k + (size_t)c];
}

static float *spoilt(const job *j, int64_t row) { return (float *)j->a->w.p + (size_t)row * j->a->w.stride; }

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
    sums to[ROWS];
} band;

// Those of the rows that can be coded, from column c on, and their errors from `from` on.
static size_t hearers(const job *j, const band *b, int64_t c, int64_t from, lq_hearer *row) {
    size_t n = 0;
    for (int64_t r = b->first; r < b->end; r++)
        if (!isnan(j->a->error[r])) row[n++] = (lq_hearer){spoilt(j, r) + c, b->e + (r - b->first) * BLOCK + from};
    return n;
}

// Scale and zero point of a row from column c on, found if a group begins there.
static bool band_scale(job *j, band *b, int64_t row, int64_t c) {
    const int64_t g = c / j->group;
    if (c % j->group == 0 && !j->a->given_scale) {
        float lo = 0, hi = 0;
        if (!row_range(j, row, c, least_of(c + j->group, j->k), &lo, &hi)) return false;
        fit_group(j, row, row + 1, g, lo, hi);
    }
    read_scales(j, scale_at(j, row / j->band, g), 1, &b->s[row - b->first]);
    b->z[row - b->first] = zero_at(j, row, g);
    return true;
}

// Column c of a row; the columns before `end` hear of its error. u: its row of u, from column c on.
static void spread_column(const job *j, band *b, int64_t row, int64_t c, int64_t end, const float *u, float *e) {
    const lq_round_args *a = j->a;
    float *w = spoilt(j, row);
    uint32_t q;
    const float v = code_one(j, w[c], b->s[row - b->first], b->z[row - b->first], &q);
    uint8_t *dst = (uint8_t *)a->q + (size_t)row * j->q_row;
    if (a->type.kind == LQ_W_FLOAT) dst[c] = (uint8_t)q;
    else lq_code_set(dst, a->type.bits, c, q);
    if (a->back) a->back[(size_t)row * (size_t)j->k + (size_t)c] = v;
    add_one(&b->to[row - b->first], w[c], v);
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
                if (isnan(j->a->error[r])) continue;
                if ((c % j->group == 0 || c == b0) && !band_scale(j, b, r, c)) continue;
                spread_column(j, b, r, c, c1, u + (c - b0) * (TILE + 1), b->e + (r - b->first) * BLOCK + (c - b0));
            }
        lq_cpu_of(j->d)->spread(row, hearers(j, b, c1, c0 - b0, row), u + (c0 - b0) * TILE + (c1 - b0), TILE,
                                (size_t)(c1 - c0), (size_t)(b1 - c1));
    }
}

// Groups of up to BLOCK columns lie whole in a block, larger ones are cut: a group's range is
// taken when all before it are done.
static int64_t block_end(const job *j, int64_t b) {
    if (j->group <= BLOCK) return least_of(b + BLOCK / j->group * j->group, j->k);
    return least_of(least_of(b + BLOCK, (b / j->group + 1) * j->group), j->k);
}

static void spread_rows(void *arg, int task, int worker) {
    job *j = arg;
    float *u = lq_cpu_work(j->d, worker);
    band b = {.first = (int64_t)task * ROWS, .end = least_of((int64_t)(task + 1) * ROWS, j->n), .e = u + BLOCK * TILE};
    lq_hearer row[ROWS];
    for (int64_t r = b.first; r < b.end; r++) {
        float lo = 0, hi = 0;
        if (j->band == 1) clear_row(j, r);
        row_range(j, r, 0, j->k, &lo, &hi);
    }
    for (int64_t b0 = 0, b1; b0 < j->k; b0 = b1) {
        b1 = block_end(j, b0);
        read_u(j, b0, b1, b0, b1, u);
        spread_block(j, &b, b0, b1, u);
        for (int64_t c = b1; c < j->k; c += TILE) {
            const int64_t c1 = least_of(c + TILE, j->k);
            read_u(j, b0, b1, c, c1, u);
            lq_cpu_of(j->d)->spread(row, hearers(j, &b, c, 0, row), u, TILE, (size_t)(b1 - b0), (size_t)(c1 - c));
        }
    }
    for (int64_t r = b.first; r < b.end; r++)
        if (!isnan(j->a->error[r])) row_sums(j, r, &b.to[r - b.first]);
}

// --- the slot ---

// The first element that cannot be coded.
static void find_bad(const job *j) {
    const lq_wtype *t = &j->a->type;
    int64_t *bad = j->a->bad, c = 0;
    bad[0] = bad[1] = -1;
    for (int64_t r = 0; r < j->n && bad[0] < 0; r++)
        if (isnan(j->a->error[r])) bad[0] = r;
    if (bad[0] < 0) return;
    for (bool good = true; c < j->k; c++) {
        float x;
        uint64_t as;
        lq_dtypes[j->a->w.type].to_f32((const char *)j->a->w.p + ((size_t)bad[0] * j->a->w.stride + (size_t)c) *
                                       j->elem, &x, 1);
        if (t->kind == LQ_W_PLAIN) good = isfinite(x) && lq_dtypes[t->elem].from_f32(&x, &as, 1);
        else good = fabsf(x) <= LARGEST;
        if (!good) break;
    }
    bad[1] = c < j->k ? c : 0;
}

static float top_of(const lq_round_args *a) {
    float top = 0;
    if (a->type.kind == LQ_W_FLOAT) return a->type.elem == LQ_E5M2 ? 57344.0f : 448.0f;
    for (int i = 0; a->type.kind == LQ_W_TABLE && i < 1 << a->type.bits; i++)
        top = fabsf(a->table[i]) > top ? fabsf(a->table[i]) : top;
    return top;
}

static job job_of(const lq_dev *d, const lq_round_args *a) {
    const lq_wtype *t = &a->type;
    job j = {.d = d, .a = a, .n = a->w.rows, .k = a->w.cols, .elem = lq_dtype_size(a->w.type),
             .scale = lq_dtype_size(t->scale)};
    j.groups = lq_weight_groups(t, j.k);
    j.group = t->group ? t->group : (int64_t)up16((size_t)j.k);
    j.band = t->kind != LQ_W_PLAIN && t->rows > 1 ? t->rows : 1;
    j.q_row = t->kind == LQ_W_PLAIN || t->kind == LQ_W_FLOAT ? (size_t)j.k * lq_dtype_size(t->elem)
        : lq_code_row_bytes(t->bits, j.k);
    j.zero_row = lq_code_row_bytes(t->bits, j.groups);
    j.rows = j.k >= 1 << 16 ? 1 : (1 << 16) / j.k;
    j.top = top_of(a);
    atomic_init(&j.wide, false);
    return j;
}

void lq_round_c(lq_dev *d, const lq_round_args *a) {
    const lq_wtype *t = &a->type;
    lq_weight_size size;
    job j = job_of(d, a);
    for (int64_t r = 0; r < j.n; r++) a->error[r] = 0;
    const int tasks = (int)((j.n + j.rows - 1) / j.rows), bands = (int)((j.n + j.band - 1) / j.band);
    if (t->kind != LQ_W_PLAIN && a->given_scale && lq_weight_sizes(t, j.n, j.k, &size)) {
        if (a->scale != a->given_scale) memcpy(a->scale, a->given_scale, size.scale);
        if (t->asym && a->zero != a->given_zero) memcpy(a->zero, a->given_zero, size.zero);
    }
    if (j.band > 1 && j.groups == 1 && !a->given_scale) lq_pool_run(d->pool, ranges_run, &j, tasks);
    if (j.band > 1) lq_pool_run(d->pool, band_run, &j, bands);
    if (a->u) lq_pool_run(d->pool, spread_rows, &j, (int)((j.n + ROWS - 1) / ROWS));
    else lq_pool_run(d->pool, nearest_rows, &j, tasks);
    find_bad(&j);
    *a->wide = atomic_load(&j.wide);
}

// --- codes that are there already, made better ---

// Rows that read a row of h together; the most columns of a group whose scale is fitted.
enum { SIDE_BY_SIDE = 16, REFINED = 1024 };

static uint32_t code_at(const job *j, int64_t row, int64_t c) {
    const uint8_t *q = (const uint8_t *)j->a->q + (size_t)row * j->q_row;
    return j->a->type.kind == LQ_W_FLOAT ? q[c] : lq_code_get(q, j->a->type.bits, c);
}

// What a code stands for, of scale 1.
static float value_of(const job *j, uint32_t q, int32_t z) {
    const uint8_t byte = (uint8_t)q;
    float x;
    if (j->a->type.kind == LQ_W_INT) return (float)((int32_t)q - z);
    if (j->a->type.kind == LQ_W_TABLE) return j->a->table[q];
    lq_dtypes[j->a->type.elem].to_f32(&byte, &x, 1);
    return x;
}

static float scale_now(const job *j, int64_t row, int64_t g) {
    float s;
    read_scales(j, scale_at(j, row / j->band, g), 1, &s);
    return s;
}

// slope -= by[i] * (column c + i of h + damp), for some columns, of rows whose w is their slope and e their by.
static void slopes_less(const job *j, const lq_hearer *row, size_t rows, int64_t c, int64_t columns) {
    const size_t k = (size_t)j->k;
    lq_cpu_of(j->d)->spread(row, rows, j->a->h + (size_t)c * k, k, (size_t)columns, k);
    for (size_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++) row[r].w[c + i] -= row[r].e[i] * j->a->damp;
}

static float curve_of(const job *j, int64_t c) { return j->a->h[(size_t)c * (size_t)j->k + (size_t)c] + j->a->damp; }

// Whether the code that is nearest to where the loss is least is surely the one that is there: what integers stand for
// lies s apart, and f32 is not a hundredth of that off.
static bool stays(const job *j, float slope, float s, float curve) {
    const float half = 0.49f * fabsf(s) * curve;
    return j->a->type.kind == LQ_W_INT && fabsf(s) > 0x1p-100f && half > 0x1p-100f && fabsf(slope) < half;
}

// One column of some rows, whose scales are s: the code that is nearest to where the row's loss is least, the others as
// they are.
static bool refine_column(const job *j, int64_t first, int64_t end, int64_t c, const float *s) {
    const float curve = curve_of(j, c);
    bool changed = false;
    for (int64_t r = first; r < end && curve > 0; r++, s++) {
        float *slope = j->a->slope + (size_t)r * (size_t)j->k;
        if (stays(j, slope[c], *s, curve)) continue;
        const int32_t z = zero_at(j, r, c / j->group);
        const uint32_t was = code_at(j, r, c);
        const float old = value_of(j, was, z) * *s;
        uint32_t q;
        const float now = code_one(j, old + slope[c] / curve, *s, z, &q), by = now - old;
        if (q == was || !(by * (by * curve - 2 * slope[c]) < 0)) continue;
        uint8_t *to = (uint8_t *)j->a->q + (size_t)r * j->q_row;
        if (j->a->type.kind == LQ_W_FLOAT) to[c] = (uint8_t)q;
        else lq_code_set(to, j->a->type.bits, c, q);
        slopes_less(j, &(lq_hearer){slope, &by}, 1, c, 1);
        changed = true;
    }
    return changed;
}

// Whether another scale of a group of a row is better, by least squares: then v, its values of scale 1, is what they
// change by. less: -h v.
static bool refine_scale(const job *j, int64_t row, int64_t g, float *v, const float *less) {
    const float *slope = j->a->slope + (size_t)row * (size_t)j->k;
    const int64_t c0 = g * j->group, c1 = least_of(c0 + j->group, j->k);
    const float s = scale_now(j, row, g);
    double fall = 0, curve = 0;
    for (int64_t c = c0; c < c1; c++) {
        curve += ((double)j->a->damp * (double)v[c - c0] - (double)less[c - c0]) * (double)v[c - c0];
        fall += (double)slope[c] * (double)v[c - c0];
    }
    if (!(curve > 0)) return false;
    float raw = (float)((double)s + fall / curve);
    if (j->a->type.scale == LQ_E4M3) raw = j->a->scale2 > 0 ? raw / j->a->scale2 : 0;
    const float now = stored(j, row, g, raw), by = now - s; // the row is its own band
    if (by == 0 || !isfinite(now) || leaves(j, raw)) return false;
    if (!((double)by * ((double)by * curve - 2 * fall) < 0)) return false;
    put_scale(j, row, g, raw);
    for (int64_t i = 0; i < c1 - c0; i++) v[i] *= by;
    return true;
}

// The scales of a group of some rows. work: [2][SIDE_BY_SIDE][REFINED]
static bool refine_scales(const job *j, int64_t first, int64_t end, int64_t g, float *work) {
    const size_t k = (size_t)j->k;
    const int64_t c0 = g * j->group, columns = least_of(j->group, j->k - c0);
    lq_hearer row[SIDE_BY_SIDE];
    int64_t at[SIDE_BY_SIDE];
    size_t rows = 0, better = 0;
    if (columns > REFINED) return false;
    for (int64_t r = first; r < end; r++) {
        float *v = work + rows * REFINED, *less = v + SIDE_BY_SIDE * REFINED;
        if (scale_now(j, r, g) == 0) continue;
        const int32_t z = zero_at(j, r, g);
        for (int64_t i = 0; i < columns; i++) v[i] = value_of(j, code_at(j, r, c0 + i), z), less[i] = 0;
        row[rows] = (lq_hearer){less, v};
        at[rows++] = r;
    }
    lq_cpu_of(j->d)->spread(row, rows, j->a->h + (size_t)c0 * k + c0, k, (size_t)columns, (size_t)columns);
    for (size_t i = 0; i < rows; i++) {
        float *v = work + i * REFINED;
        if (refine_scale(j, at[i], g, v, row[i].w)) row[better++] = (lq_hearer){j->a->slope + (size_t)at[i] * k, v};
    }
    slopes_less(j, row, better, c0, columns);
    return better > 0;
}

static void refine_rows(void *arg, int task, int worker) {
    const job *j = arg;
    const int64_t first = (int64_t)task * SIDE_BY_SIDE, end = least_of(first + SIDE_BY_SIDE, j->n);
    float s[SIDE_BY_SIDE];
    bool changed = true;
    for (int sweep = 0; sweep < j->a->sweeps && changed; sweep++) {
        changed = false;
        for (int64_t c = 0; c < j->k; c++) {
            for (int64_t r = first; r < end && c % j->group == 0; r++) s[r - first] = scale_now(j, r, c / j->group);
            changed |= refine_column(j, first, end, c, s);
        }
        for (int64_t g = 0; g < j->groups && j->band == 1; g++)
            changed |= refine_scales(j, first, end, g, lq_cpu_work(j->d, worker));
    }
    for (int64_t r = first; r < end && j->a->back; r++)
        for (int64_t c = 0; c < j->k; c++)
            j->a->back[(size_t)r * (size_t)j->k + (size_t)c] =
                value_of(j, code_at(j, r, c), zero_at(j, r, c / j->group)) * scale_now(j, r, c / j->group);
}

void lq_refine_c(lq_dev *d, const lq_round_args *a) {
    job j = job_of(d, a);
    lq_pool_run(d->pool, refine_rows, &j, (int)((j.n + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE));
}
