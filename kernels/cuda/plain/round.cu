// round.cu: the slots round and refine as plain kernels: tasks that know nothing of each other, each a row, a group of
// it, a lane of its figures or an element. What a column's error changes is summed element by element in the order of
// columns, and figures as kernels/cpu/round.c does, whose bits these have; what becomes of one element stands in
// kernels/round.h. Compiled without contraction of products into fused multiply-adds.
#include "kernels/cuda/plain/round.h"
#include "kernels/cuda/plain/task.h"

enum { CHUNK = 512, LOOK = 16 }; // columns whose losses are summed in f32; between two looks at what is lost so far

LQ_FN int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }
LQ_FN bool is_bad(const lq_plain_round *p, int64_t row) { return p->r.a.error[row] != p->r.a.error[row]; }
LQ_FN void set_bad(const lq_plain_round *p, int64_t row) { p->r.a.error[row] = (double)lq_float(0x7fc00000); }

// --- scales ---

// Of columns c .. end of a row, 0 let in. False: NaN, infinite or too large.
LQ_FN bool row_range(const lq_plain_round *p, int64_t row, int64_t c, int64_t end, float *lo, float *hi) {
    bool ok = true;
    for (; c < end; c++) {
        const float x = lq_round_element(&p->r.a, row, c);
        *lo = x < *lo ? x : *lo;
        *hi = x > *hi ? x : *hi;
        ok &= fabsf(x) <= LQ_ROUND_LARGEST;
    }
    if (!ok) set_bad(p, row);
    return ok;
}

LQ_FN double lanes_of(double loss, const float *part) {
    for (int i = 0; i < LQ_ROUND_LANES; i++) loss += (double)part[i];
    return loss;
}

// Whether lanes_of would say at least `most`, for certain: another order of sums is not 2^-20 off.
LQ_FN bool no_less(double loss, const float *part, double most) {
    float sum = 0;
    for (int i = 0; i < LQ_ROUND_LANES; i++) sum += part[i];
    return loss + (double)sum * (1 - 0x1p-20) >= most;
}

// Sum of weighted squares of what columns c .. end of a row would lose; if that is no less than `most`, `most`.
LQ_FN double row_loss(const lq_plain_round *p, int64_t row, int64_t c, int64_t end, float s, int32_t z, double most) {
    const lq_round_args *a = &p->r.a;
    double loss = 0;
    uint32_t q;
    for (int64_t c1; c < end; c = c1) {
        float part[LQ_ROUND_LANES] = {0, 0, 0, 0, 0, 0, 0, 0};
        c1 = least_of(c + CHUNK, end);
        for (int64_t i = c; i < c1; i++) {
            if ((i - c) % LOOK == 0 && i > c && no_less(loss, part, most)) return most;
            const float x = lq_round_element(a, row, i), e = x - lq_round_code(a, x, s, z, &q);
            part[(i - c) % LQ_ROUND_LANES] += a->weight ? a->weight[i] * e * e : e * e;
        }
        loss = lanes_of(loss, part);
    }
    return loss < most ? loss : most;
}

// Scale and zero point of group g of rows that share it, of which `row` is the first and the only one where something
// is searched; the range is lo .. hi. The scale is stored.
LQ_FN int32_t fit_group(const lq_plain_round *p, int64_t row, int64_t g, float lo, float hi) {
    const lq_round_args *a = &p->r.a;
    const int64_t c0 = g * p->r.group, c1 = least_of(c0 + p->r.group, p->r.k);
    float raw = lq_round_scale(a, lo, hi);
    const float s = lq_round_stored(&p->r, row, g, raw);
    int32_t z = lq_round_zero(a, lo, s);
    const bool out = lq_round_leaves(a, raw);
    if (a->fit == LQ_FIT_SEARCH && !out && s != 0) {
        double best = row_loss(p, row, c0, c1, s, z, INFINITY);
        for (int i = lq_round_next(a) > 1 ? 0 : 1; i < a->steps; i++) {
            const float share = lq_round_share(a, i), tried = lq_round_scale(a, lo * share, hi * share);
            const float st = lq_round_stored(&p->r, row, g, tried);
            const int32_t zt = lq_round_zero(a, lo * share, st);
            if (lq_round_leaves(a, tried) || st == 0) break;
            const double loss = row_loss(p, row, c0, c1, st, zt, best);
            if (loss < best) best = loss, raw = tried, z = zt;
        }
    }
    if (out) *a->wide = true;
    lq_round_put_scale(&p->r, row, g, raw);
    return z;
}

// Task: a row.
LQ_TASK_KERNEL(round_begin, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    const lq_round_args *a = &p.r.a;
    if (row >= p.r.n) return;
    if (row == 0) *a->wide = false;
    a->error[row] = 0;
    if (!a->u) return;
    float lo = 0, hi = 0;
    p.to[row] = {0, 0, 0};
    row_range(&p, row, 0, p.r.k, &lo, &hi);
    for (size_t i = 0; i < p.r.q_row; i++) ((uint8_t *)a->q)[(size_t)row * p.r.q_row + i] = 0;
    for (size_t i = 0; a->type.asym && !a->given_zero && i < p.r.zero_row; i++)
        ((uint8_t *)a->zero)[(size_t)row * p.r.zero_row + i] = 0;
}

// Task: a group of a row that shares its scales with others.
LQ_TASK_KERNEL(round_range, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), row = task / p.r.groups, c = task % p.r.groups * p.r.group;
    if (row >= p.r.n) return;
    float *range = p.range + 2 * task;
    range[0] = range[1] = 0;
    row_range(&p, row, c, least_of(c + p.r.group, p.r.k), range, range + 1);
}

// Task: a group of the rows that share a scale.
LQ_TASK_KERNEL(round_fit, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), g = task % p.r.groups, first = task / p.r.groups * p.r.band;
    const int64_t end = least_of(first + p.r.band, p.r.n), c = g * p.r.group;
    float lo = 0, hi = 0;
    if (first >= p.r.n) return;
    if (p.r.band == 1 && !row_range(&p, first, c, least_of(c + p.r.group, p.r.k), &lo, &hi)) return;
    for (int64_t r = first; r < end && p.r.band > 1; r++) {
        const float *range = p.range + 2 * (r * p.r.groups + g);
        if (is_bad(&p, r)) return;
        lo = range[0] < lo ? range[0] : lo;
        hi = range[1] > hi ? range[1] : hi;
    }
    const int32_t z = fit_group(&p, first, g, lo, hi);
    for (int64_t r = first; r < end && p.r.a.type.asym; r++) p.z[r * p.r.groups + g] = z;
}

// --- to the nearest ---

// Four bytes of a row, in one piece where they lie so.
LQ_FN void put_word(void *row, int64_t i, uint32_t word) {
    uint8_t *to = (uint8_t *)row + 4 * i;
    if (((uintptr_t)to & 3) == 0) *(uint32_t *)(void *)to = word;
    else for (int b = 0; b < 4; b++) to[b] = (uint8_t)(word >> 8 * b);
}

// Code i of a dense row as it stands in word `at` of it.
LQ_FN uint32_t part_of_word(uint32_t code, int bits, int64_t i, int64_t at) {
    const int64_t shift = i * bits - 32 * at;
    return shift < 0 ? code >> -shift : code << shift;
}

// Task: a word of a row's zero points.
LQ_TASK_KERNEL(round_zeros, lq_plain_round) {
    const int64_t words = (int64_t)(p.r.zero_row / 4), task = (int64_t)lq_task_id(), row = task / words;
    const int64_t at = task % words;
    const int bits = p.r.a.type.bits;
    uint32_t word = 0;
    if (row >= p.r.n) return;
    for (int64_t i = 32 * at / bits; i < p.r.groups && i * bits < 32 * (at + 1); i++)
        word |= part_of_word((uint32_t)p.z[row * p.r.groups + i], bits, i, at);
    put_word((uint8_t *)p.r.a.zero + (size_t)row * p.r.zero_row, at, word);
}

// Task: a word of a row's codes, or an element of a float type.
LQ_TASK_KERNEL(round_codes, lq_plain_round) {
    const lq_round_args *a = &p.r.a;
    const bool apart = a->type.kind == LQ_W_FLOAT || a->type.kind == LQ_W_PLAIN;
    const int64_t each = apart ? p.r.k : (int64_t)(p.r.q_row / 4), task = (int64_t)lq_task_id(), row = task / each;
    const int64_t at = task % each;
    uint32_t q, word = 0;
    if (row >= p.r.n) return;
    if (a->type.kind == LQ_W_PLAIN) {
        const float x = lq_round_element(a, row, at);
        if (!lq_round_can(a, x)) set_bad(&p, row);
        lq_elem_write(a->type.elem, a->q, (size_t)task, x);
        return;
    }
    if (is_bad(&p, row)) return;
    const int bits = a->type.bits;
    const int64_t end = apart ? at + 1 : least_of((32 * at + 31) / bits + 1, p.r.k);
    for (int64_t c = apart ? at : 32 * at / bits; c < end; c++) {
        const int64_t g = c / p.r.group;
        lq_round_code(a, lq_round_element(a, row, c), lq_round_scale_at(&p.r, row, g), lq_round_zero_at(&p.r, row, g),
                      &q);
        word |= apart ? q : part_of_word(q, bits, c, at);
    }
    if (apart) ((uint8_t *)a->q)[task] = (uint8_t)word;
    else put_word((uint8_t *)a->q + (size_t)row * p.r.q_row, at, word);
}

// Task: a row.
LQ_TASK_KERNEL(round_top, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    float top = 0;
    if (row >= p.r.n) return;
    for (int64_t g = 0; g < p.r.groups; g++) {
        const float s = fabsf(lq_round_scale_at(&p.r, row, g));
        top = s > top ? s : top;
    }
    p.top[row] = top;
}

// Task: a lane of a row's figures, in units of the row's largest scale; groups whose scale is 0 are left out.
LQ_TASK_KERNEL(round_lanes, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), row = task / LQ_ROUND_LANES;
    const lq_round_args *a = &p.r.a;
    float error = 0, norm = 0, most = 0, s = 0, unit = 0;
    int32_t z = 0;
    if (row >= p.r.n || is_bad(&p, row)) return;
    for (int64_t c = task % LQ_ROUND_LANES, end = 0; c < p.r.k; c += LQ_ROUND_LANES) {
        if (c >= end) {
            const int64_t g = c / p.r.group;
            z = lq_round_zero_at(&p.r, row, g);
            s = lq_round_scale_at(&p.r, row, g);
            unit = fabsf(s) / p.top[row];
            end = (g + 1) * p.r.group;
        }
        if (s == 0) continue;
        const float t = lq_round_element(a, row, c) / s, v = t * unit;
        const float e = (t - lq_round_value(a, lq_round_code_at(&p.r, row, c), z)) * unit;
        error += e * e;
        norm += v * v;
        most = fabsf(e) > most ? fabsf(e) : most;
    }
    p.lane[3 * task] = error;
    p.lane[3 * task + 1] = norm;
    p.lane[3 * task + 2] = most;
}

LQ_FN void row_done(const lq_plain_round *p, int64_t row, const lq_figures *to) {
    p->r.a.error[row] = to->error;
    p->r.a.norm[row] = to->norm;
    if (p->r.a.worst) p->r.a.worst[row] = to->worst;
}

// Task: a row. Elements count one by one where the type is plain or the scale 0; of the others lanes are there.
LQ_TASK_KERNEL(round_figures, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    const lq_round_args *a = &p.r.a;
    const bool coded = a->type.kind != LQ_W_PLAIN;
    lq_figures to = {0, 0, 0};
    double error = 0, norm = 0;
    if (row >= p.r.n || is_bad(&p, row)) return;
    const double unit = coded ? (double)p.top[row] : 0;
    for (int64_t g = 0; g < p.r.groups; g++) {
        const int64_t end = least_of((g + 1) * p.r.group, p.r.k);
        if (coded && lq_round_scale_at(&p.r, row, g) != 0) continue;
        for (int64_t c = g * p.r.group; c < end; c++)
            lq_figures_add(&to, lq_round_element(a, row, c), coded ? lq_round_back(&p.r, row, c)
                : lq_elem_read(a->type.elem, a->q, (size_t)(row * p.r.k + c)));
    }
    for (int i = 0; coded && i < LQ_ROUND_LANES; i++) {
        const float *lane = p.lane + 3 * (row * LQ_ROUND_LANES + i);
        const double most = (double)lane[2] * unit;
        error += (double)lane[0];
        norm += (double)lane[1];
        if (most > to.worst) to.worst = most;
    }
    to.error += error * unit * unit;
    to.norm += norm * unit * unit;
    row_done(&p, row, &to);
}

// Task: an element.
LQ_TASK_KERNEL(round_back, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), row = task / p.r.k, c = task % p.r.k;
    if (row >= p.r.n || is_bad(&p, row)) return;
    p.r.a.back[task] = p.r.a.type.kind == LQ_W_PLAIN ? lq_elem_read(p.r.a.type.elem, p.r.a.q, (size_t)task)
        : lq_round_back(&p.r, row, c);
}

// Task: so many rows, the first of which that cannot be coded is looked for.
LQ_TASK_KERNEL(round_stripes, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), end = least_of((task + 1) * LQ_ROUND_STRIPE, p.r.n);
    int64_t row = task * LQ_ROUND_STRIPE;
    if (row >= p.r.n) return;
    while (row < end && !is_bad(&p, row)) row++;
    p.bad[task] = row < end ? row : -1;
}

// Task: the one.
LQ_TASK_KERNEL(round_bad, lq_plain_round) {
    const lq_round_args *a = &p.r.a;
    const int64_t stripes = (p.r.n + LQ_ROUND_STRIPE - 1) / LQ_ROUND_STRIPE;
    int64_t row = -1, c = 0;
    if (lq_task_id() > 0) return;
    for (int64_t i = 0; i < stripes && row < 0; i++) row = p.bad[i];
    while (row >= 0 && c < p.r.k && lq_round_can(a, lq_round_element(a, row, c))) c++;
    a->bad[0] = row;
    a->bad[1] = row < 0 ? -1 : c < p.r.k ? c : 0;
}

// --- errors spread over the columns behind ---

// Task: an element of the rows of u at hand.
LQ_TASK_KERNEL(round_u, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), row = p.b0 + task / p.r.k;
    if (row < p.b1) p.u[task] = (float)p.r.a.u[row * p.r.k + task % p.r.k];
}

// Scale and zero point of a row from column c on, found if a group begins there.
LQ_FN bool scale_from(const lq_plain_round *p, int64_t row, int64_t c, float *s, int32_t *z) {
    const lq_round_args *a = &p->r.a;
    const int64_t g = c / p->r.group;
    if (c % p->r.group == 0 && !a->given_scale) {
        float lo = 0, hi = 0;
        if (!row_range(p, row, c, least_of(c + p->r.group, p->r.k), &lo, &hi)) return false;
        *z = fit_group(p, row, g, lo, hi);
        if (a->type.asym) lq_code_set((uint8_t *)a->zero + (size_t)row * p->r.zero_row, a->type.bits, g, (uint32_t)*z);
    }
    *s = lq_round_scale_at(&p->r, row, g);
    *z = lq_round_zero_at(&p->r, row, g);
    return true;
}

// Task: a row; the columns at hand, one after the other, each of which the others at hand behind it hear.
LQ_TASK_KERNEL(round_block, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    const lq_round_args *a = &p.r.a;
    if (row >= p.r.n) return;
    float *w = (float *)a->w.p + (size_t)row * a->w.stride, s = 0;
    int32_t z = 0;
    uint32_t q;
    p.hears[row] = !is_bad(&p, row);
    for (int64_t c = p.b0; c < p.b1 && p.hears[row]; c++) {
        const float *u = p.u + (c - p.b0) * p.r.k;
        if ((c % p.r.group == 0 || c == p.b0) && !scale_from(&p, row, c, &s, &z)) {
            p.hears[row] = 0;
            break;
        }
        const float v = lq_round_code(a, w[c], s, z, &q), e = (w[c] - v) / u[c];
        lq_round_put_code(&p.r, row, c, q);
        if (a->back) a->back[row * p.r.k + c] = v;
        lq_figures_add(p.to + row, w[c], v);
        p.e[(c - p.b0) * p.r.n + row] = e;
        for (int64_t l = c + 1; l < p.b1; l++) w[l] -= e * u[l];
    }
}

// Task: a row.
LQ_TASK_KERNEL(round_end, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    if (row < p.r.n && !is_bad(&p, row)) row_done(&p, row, p.to + row);
}

// Task: a column of some rows.
LQ_TASK_KERNEL(spread, lq_plain_spread) {
    const int64_t left = p.from, columns = left + p.k - p.end, task = (int64_t)lq_task_id();
    const int64_t first = task / columns * LQ_ROUND_TOGETHER, at = task % columns;
    const int64_t c = at < left ? at : at - left + p.end;
    float x[LQ_ROUND_TOGETHER];
    bool hears[LQ_ROUND_TOGETHER], any = false;
    if (first >= p.n) return;
    for (int i = 0; i < LQ_ROUND_TOGETHER; i++) {
        hears[i] = first + i < p.n && p.hears[first + i];
        any |= hears[i];
        x[i] = hears[i] ? p.x[(size_t)(first + i) * p.x_stride + (size_t)c] : 0;
    }
    for (int64_t b = 0; b < p.b1 - p.b0 && any; b++) {
        const float u = p.u[(size_t)b * p.u_stride + (size_t)c];
        for (int i = 0; i < LQ_ROUND_TOGETHER; i++) {
            const float e = hears[i] ? p.e[b * p.n + first + i] : 0;
            if (hears[i] && (e != 0 || !p.sparse)) x[i] -= e * u;
        }
    }
    for (int i = 0; i < LQ_ROUND_TOGETHER; i++) {
        if (!hears[i]) continue;
        if (p.damps && c >= p.b0 && c < p.b1) x[i] -= p.e[(c - p.b0) * p.n + first + i] * p.damp;
        p.x[(size_t)(first + i) * p.x_stride + (size_t)c] = x[i];
    }
}

// --- codes that are there already, made better ---

// Task: a row.
LQ_TASK_KERNEL(refine_begin, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    if (row < p.r.n) p.live[row] = 1, p.changed[row] = 0;
}

// Task: a row; its codes of the columns at hand.
LQ_TASK_KERNEL(refine_block, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    if (row >= p.r.n) return;
    float *slope = p.r.a.slope + row * p.r.k, s = 0;
    bool changed = false;
    for (int64_t c = p.b0; c < p.b1 && p.live[row]; c++) {
        const float *h = p.r.a.h + c * p.r.k, curve = lq_refine_curve(&p.r, c);
        if (c == p.b0 || c % p.r.group == 0) s = lq_round_scale_at(&p.r, row, c / p.r.group);
        const float by = curve > 0 ? lq_refine_code(&p.r, row, c, slope[c], s, curve) : 0;
        p.e[(c - p.b0) * p.r.n + row] = by;
        if (by == 0) continue;
        for (int64_t l = p.b0; l < p.b1; l++) slope[l] -= by * h[l];
        slope[c] -= by * p.r.a.damp;
        changed = true;
    }
    p.hears[row] = changed;
    if (changed) p.changed[row] = 1;
}

// Whether the scale of the group at hand may move in this row.
LQ_FN bool moves(const lq_plain_round *p, int64_t row) {
    return p->live[row] && lq_round_scale_at(&p->r, row, p->b0 / p->r.group) != 0;
}

// Task: what a code of the group at hand stands for, of scale 1.
LQ_TASK_KERNEL(refine_values, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), row = task % p.r.n, c = p.b0 + task / p.r.n;
    if (c >= p.b1 || !moves(&p, row)) return;
    p.e[task] = lq_round_value(&p.r.a, lq_round_code_at(&p.r, row, c), lq_round_zero_at(&p.r, row, c / p.r.group));
}

// Task: a column of the group at hand of a row: minus the sum of those values times its column of h.
LQ_TASK_KERNEL(refine_less, lq_plain_round) {
    const int64_t task = (int64_t)lq_task_id(), row = task % p.r.n, c = p.b0 + task / p.r.n;
    float less = 0;
    if (c >= p.b1 || !moves(&p, row)) return;
    for (int64_t b = p.b0; b < p.b1; b++) less -= p.e[(b - p.b0) * p.r.n + row] * p.r.a.h[b * p.r.k + c];
    p.less[task] = less;
}

// Task: a row; the scale of the group at hand, and what the row is to hear of it.
LQ_TASK_KERNEL(refine_scale, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    double fall = 0, curve = 0;
    if (row >= p.r.n) return;
    p.hears[row] = 0;
    if (!moves(&p, row)) return;
    const float *slope = p.r.a.slope + row * p.r.k;
    for (int64_t c = p.b0; c < p.b1; c++) {
        const double v = (double)p.e[(c - p.b0) * p.r.n + row];
        curve += ((double)p.r.a.damp * v - (double)p.less[(c - p.b0) * p.r.n + row]) * v;
        fall += (double)slope[c] * v;
    }
    const float by = lq_refine_scale(&p.r, row, p.b0 / p.r.group, fall, curve);
    if (by == 0) return;
    for (int64_t c = p.b0; c < p.b1; c++) p.e[(c - p.b0) * p.r.n + row] *= by;
    p.hears[row] = p.changed[row] = 1;
}

// Task: a row. One that a sweep leaves as it was, all others would.
LQ_TASK_KERNEL(refine_turn, lq_plain_round) {
    const int64_t row = (int64_t)lq_task_id();
    if (row >= p.r.n) return;
    p.live[row] = p.changed[row];
    p.changed[row] = 0;
}

LQ_PLAIN_ROUND_KERNELS(LQ_LAUNCH)
