// choose.cu: the slot choose as plain kernels: what stands between its products and its roundings. Sums have the lanes
// of portable C, so that of the same numbers they have its bits. Compiled without contraction of products into fused
// multiply-adds.
#include "kernels/cuda/plain/choose.h"
#include "kernels/cuda/plain/task.h"
#include "kernels/round.h"

// --- rows in order ---

// Task: a column: where in the order it is.
LQ_TASK_KERNEL(choose_columns, lq_plain_choose) {
    const int64_t j = (int64_t)lq_task_id();
    if (j >= p.c.k) return;
    p.c.place[p.c.a.order ? p.c.a.order[j] : j] = (int32_t)j;
    p.c.apart[j] = 0;
}

// Task: a column that is kept apart.
LQ_TASK_KERNEL(choose_apart, lq_plain_choose) {
    const int64_t i = (int64_t)lq_task_id();
    if (i < p.c.a.aparts) p.c.apart[p.c.a.apart[i]] = 1;
}

// Task: an element in order.
LQ_TASK_KERNEL(choose_order, lq_plain_choose) {
    const int64_t task = (int64_t)lq_task_id(), row = task / p.c.k, j = task % p.c.k;
    if (row >= p.c.n) return;
    const int64_t from = p.c.a.order ? p.c.a.order[j] : j;
    float x = lq_elem_read(p.c.a.a.w.type, p.c.a.a.w.p, (size_t)row * p.c.a.a.w.stride + (size_t)from);
    if (p.repaid) x += p.c.y[row * p.c.k + from];
    p.c.w[task] = p.c.apart[from] ? 0 : x;
}

// Task: a group of a row: what its scale has that belongs to it.
LQ_TASK_KERNEL(choose_scales, lq_plain_choose) {
    const int64_t task = (int64_t)lq_task_id(), row = task / p.c.groups;
    if (row < p.c.n) p.c.by[task] = p.c.a.a.scale_by[row * p.c.groups + lq_choose_group(&p.c, task % p.c.groups)];
}

// --- what is lost ---

// Task: an element.
LQ_TASK_KERNEL(choose_differ, lq_plain_choose) {
    const int64_t task = (int64_t)lq_task_id();
    if (task >= p.c.n * p.c.k) return;
    p.c.work[task] = p.c.w[task] - p.c.back[task];
}

// Task: an element: y, which is (w - back) h, is more by the damping.
LQ_TASK_KERNEL(choose_damp, lq_plain_choose) {
    const int64_t task = (int64_t)lq_task_id();
    if (task < p.c.n * p.c.k) p.c.y[task] += p.c.a.a.damp * (p.c.w[task] - p.c.back[task]);
}

// Task: a lane of a row.
LQ_TASK_KERNEL(choose_dots, lq_plain_dots) {
    const int64_t task = (int64_t)lq_task_id(), row = task / LQ_CHOOSE_LANES, k = p.c.k;
    double sum = 0, most = 0;
    if (row >= p.c.n || (p.better && !lq_choose_spread(&p.c, row))) return;
    const float *x = p.x + row * k, *y = p.y + row * k;
    for (int64_t i = task % LQ_CHOOSE_LANES; i < k; i += LQ_CHOOSE_LANES) {
        const double v = (double)x[i], size = fabs(v);
        sum += v * (double)y[i];
        most = size > most ? size : most;
    }
    p.c.lane[task] = sum;
    p.c.lane[p.c.n * LQ_CHOOSE_LANES + task] = most;
}

// Task: a row.
LQ_TASK_KERNEL(choose_sums, lq_plain_dots) {
    const int64_t row = (int64_t)lq_task_id();
    if (row >= p.c.n || (p.better && !lq_choose_spread(&p.c, row))) return;
    const double *s = p.c.lane + row * LQ_CHOOSE_LANES, *m = s + p.c.n * LQ_CHOOSE_LANES;
    p.to[row] = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    if (!p.most) return;
    double most = 0;
    for (int i = 0; i < LQ_CHOOSE_LANES; i++) most = m[i] > most ? m[i] : most;
    p.most[row] = most;
}

// --- codes where they are stored ---

LQ_FN const lq_coded *coded_of(const lq_choosing *c, int64_t row) {
    return lq_choose_spread(c, row) ? &c->spread : &c->plain;
}

// Where in the order is what is stored at `at`, of things that are so many columns.
LQ_FN int64_t place_of(const lq_choosing *c, int64_t at, int64_t columns) {
    return c->a.stays ? c->place[at * columns] / columns : at;
}

// Word `at` of a row of so many dense codes, each of so many columns.
LQ_FN void put_codes(const lq_choosing *c, uint8_t *to, const uint8_t *from, int64_t at, int64_t count,
                     int64_t columns) {
    const int bits = c->a.a.type.bits;
    uint32_t word = 0;
    for (int64_t i = 32 * at / bits; i < count && i * bits < 32 * (at + 1); i++) {
        const int64_t shift = i * bits - 32 * at;
        const uint32_t code = lq_code_get(from, bits, place_of(c, i, columns));
        word |= shift < 0 ? code >> -shift : code << shift;
    }
    for (int b = 0; b < 4; b++) to[4 * at + b] = (uint8_t)(word >> 8 * b);
}

// Task: a word of a row's codes, or one of a float type.
LQ_TASK_KERNEL(choose_codes, lq_plain_choose) {
    const lq_wtype *t = &p.c.a.a.type;
    const lq_choosing *c = &p.c;
    const int64_t each = t->kind == LQ_W_FLOAT ? c->k : (int64_t)c->q_row / 4, task = (int64_t)lq_task_id();
    const int64_t row = task / each, at = task % each;
    if (row >= c->n) return;
    const uint8_t *from = coded_of(c, row)->q + (size_t)row * c->q_row;
    uint8_t *to = (uint8_t *)c->a.a.q + (size_t)row * c->q_row;
    if (t->kind == LQ_W_FLOAT) to[at] = from[place_of(c, at, 1)];
    else put_codes(c, to, from, at, c->k, 1);
}

// Task: a scale of rows that share it.
LQ_TASK_KERNEL(choose_groups, lq_plain_choose) {
    const lq_choosing *c = &p.c;
    const int64_t task = (int64_t)lq_task_id(), band = task / c->groups, at = task % c->groups;
    const size_t bytes = c->scale_row / (size_t)c->groups;
    if (band >= c->bands) return;
    const int64_t g = place_of(c, at, c->group);
    const uint8_t *from = coded_of(c, band * c->band)->scale + (size_t)band * c->scale_row + (size_t)g * bytes;
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)c->a.a.scale)[(size_t)task * bytes + i] = from[i];
}

// Task: a word of a row's zero points.
LQ_TASK_KERNEL(choose_zeros, lq_plain_choose) {
    const lq_choosing *c = &p.c;
    const int64_t words = (int64_t)c->zero_row / 4, task = (int64_t)lq_task_id(), row = task / words;
    if (row >= c->n) return;
    const uint8_t *from = coded_of(c, row)->zero + (size_t)row * c->zero_row;
    put_codes(c, (uint8_t *)c->a.a.zero + (size_t)row * c->zero_row, from, task % words, c->groups, c->group);
}

// Task: a row; the first also what the roundings said of elements that have no code, and of scales.
LQ_TASK_KERNEL(choose_end, lq_plain_choose) {
    const int64_t row = (int64_t)lq_task_id();
    if (row < p.c.n && !lq_choose_spread(&p.c, row)) p.c.a.loss[row] = p.c.a.plain[row];
    if (row > 0) return;
    p.c.a.a.bad[0] = p.c.a.a.bad[1] = -1;
    *p.c.a.a.wide = false;
    for (int i = 0; i < LQ_CHOOSE_ROUNDS; i++) {
        if (p.c.wide[i]) *p.c.a.a.wide = true;
        if (p.c.a.a.bad[0] >= 0 || p.c.bad[2 * i] < 0) continue;
        p.c.a.a.bad[0] = p.c.bad[2 * i];
        p.c.a.a.bad[1] = p.c.bad[2 * i + 1];
    }
}

LQ_PLAIN_CHOOSE_KERNELS(LQ_LAUNCH)
