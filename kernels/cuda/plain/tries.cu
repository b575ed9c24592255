// tries.cu: the slot tries as plain kernels: a matrix under many factors at once is rounded as `round` does, element
// for element (kernels/round.h), but no code is kept: what is left is what it stands for, or what that is off. Products
// are a library's; sums of them have one order. Compiled without contraction of products into fused multiply-adds.
#include "kernels/cuda/plain/tries.h"
#include "kernels/cuda/plain/task.h"
#include "kernels/element.h"

LQ_FN int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

// Task: a try.
LQ_TASK_KERNEL(tries_begin, lq_plain_tries) {
    const int64_t t = (int64_t)lq_task_id();
    if (t < p.tries) p.bad[t] = p.wide[t] = 0;
}

LQ_FN float element_of(const lq_plain_tries *p, int64_t t, int64_t row, int64_t c) {
    return lq_round_element(&p->r.a, row, c) * p->by[t * p->r.k + c];
}

// Task: a group of a row.
LQ_TASK_KERNEL(tries_range, lq_plain_tries) {
    const int64_t task = (int64_t)lq_task_id(), g = task % p.r.groups, row = task / p.r.groups % p.r.n;
    const int64_t t = task / p.r.groups / p.r.n, c0 = g * p.r.group, end = least_of(c0 + p.r.group, p.r.k);
    float lo = 0, hi = 0;
    bool ok = true;
    if (t >= p.tries) return;
    for (int64_t c = c0; c < end; c++) {
        const float x = element_of(&p, t, row, c);
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
        ok &= fabsf(x) <= LQ_ROUND_LARGEST;
    }
    p.range[2 * task] = lo;
    p.range[2 * task + 1] = hi;
    if (!ok) p.bad[t] = 1;
}

// Task: a group of the rows that share a scale.
LQ_TASK_KERNEL(tries_fit, lq_plain_tries) {
    const int64_t task = (int64_t)lq_task_id(), g = task % p.r.groups, band = task / p.r.groups % p.bands;
    const int64_t t = task / p.r.groups / p.bands, first = band * p.r.band, end = least_of(first + p.r.band, p.r.n);
    float lo = 0, hi = 0;
    if (t >= p.tries) return;
    for (int64_t row = first; row < end; row++) {
        const float *range = p.range + 2 * ((t * p.r.n + row) * p.r.groups + g);
        lo = range[0] < lo ? range[0] : lo;
        hi = range[1] > hi ? range[1] : hi;
    }
    lq_rounding r = p.r;
    r.a.scale2 = p.scale2[t];
    r.a.scale_offset = p.offset[t];
    if (r.a.scale_by) r.a.scale_by += t * p.r.n * p.r.groups;
    const float raw = lq_round_scale(&r.a, lo, hi), s = lq_round_stored(&r, first, g, raw);
    p.scale[task] = s;
    p.z[task] = lq_round_zero(&r.a, lo, s);
    if (lq_round_leaves(&r.a, raw)) p.wide[t] = 1;
}

// Task: an element.
LQ_TASK_KERNEL(tries_round, lq_plain_tries) {
    const int64_t task = (int64_t)lq_task_id(), c = task % p.r.k, row = task / p.r.k % p.r.n, t = task / p.r.k / p.r.n;
    uint32_t q;
    if (t >= p.tries) return;
    const int64_t at = (t * p.bands + row / p.r.band) * p.r.groups + c / p.r.group;
    const float x = element_of(&p, t, row, c), v = lq_round_code(&p.r.a, x, p.scale[at], p.z[at], &q);
    p.d[task] = p.rows ? v : (x - v) / p.by[t * p.r.k + c];
}

// --- rows of the text ---

LQ_FN float divided(const lq_plain_tries *p, int64_t t, int64_t row, int64_t c) {
    return ((const float *)p->x.p)[(size_t)row * p->x.stride + (size_t)c] / p->by[t * p->r.k + c];
}

// Task: columns of a row that share a scale.
LQ_TASK_KERNEL(tries_top, lq_plain_tries) {
    const int64_t task = (int64_t)lq_task_id(), span = task % p.spans, row = task / p.spans % p.x.rows;
    const int64_t t = task / p.spans / p.x.rows, wide = p.act.group ? p.act.group : p.r.k;
    uint32_t top = 0;
    if (t >= p.tries) return;
    for (int64_t c = span * wide; c < least_of((span + 1) * wide, p.r.k); c++) {
        const uint32_t u = lq_bits(divided(&p, t, row, c)) & 0x7fffffff;
        top = u > top ? u : top;
    }
    p.top[task] = top;
}

// Task: an element: what its code means.
LQ_TASK_KERNEL(tries_act, lq_plain_tries) {
    const int64_t task = (int64_t)lq_task_id(), c = task % p.r.k, row = task / p.r.k % p.x.rows;
    const int64_t t = task / p.r.k / p.x.rows, wide = p.act.group ? p.act.group : p.r.k;
    if (t >= p.tries) return;
    const float x = divided(&p, t, row, c);
    if (p.act.elem == LQ_F32) {
        p.v[task] = x;
        return;
    }
    const float fixed = p.fixed[t];
    const int32_t zero = p.fixed_zero[t];
    lq_act act = {};
    act.type = p.act, act.fixed = &fixed, act.fixed_zero = &zero;
    const lq_q8_by by = lq_q8_scale(&act, p.top[(t * p.x.rows + row) * p.spans + c / wide]);
    if (by.inverse == 0) p.v[task] = 0 * by.scale;
    else if (p.act.elem == LQ_I8) p.v[task] = (float)(lq_q8_code(x, &by) - by.zero) * by.scale;
    else p.v[task] = lq_e4m3_round(x * by.inverse) * by.scale;
}

// --- sums ---

// Task: every so manieth column of a row.
LQ_TASK_KERNEL(tries_lanes, lq_plain_sums) {
    const int64_t task = (int64_t)lq_task_id(), row = task / LQ_TRIES_LANES;
    double sum = 0;
    if (row >= p.rows) return;
    const float *a = p.a + row * p.cols, *b = p.b + (size_t)(row % p.b_rows) * p.b_stride;
    for (int64_t c = task % LQ_TRIES_LANES; c < p.cols; c += LQ_TRIES_LANES) {
        const double e = (double)(a[c] - b[c]);
        sum += p.squares ? e * e : (double)a[c] * (double)b[c];
    }
    p.lane[task] = sum;
}

// Task: a row.
LQ_TASK_KERNEL(tries_sums, lq_plain_sums) {
    const int64_t row = (int64_t)lq_task_id();
    double sum = 0;
    if (row >= p.rows) return;
    for (int i = 0; i < LQ_TRIES_LANES; i++) sum += p.lane[row * LQ_TRIES_LANES + i];
    p.sum[row] = p.bad[row / p.each] ? (double)lq_float(0x7fc00000) : sum;
}

LQ_PLAIN_TRIES_KERNELS(LQ_LAUNCH)
