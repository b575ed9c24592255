// quant.c: the slot `quant` and the fused `act` of norm and glu: activations in the form a matmul reads, row by row.
// The rule stands in ops.h. Owns nothing; a worker's scratch holds columns that are scaled, reordered or left out.
#include "kernels/element.h"
#include "kernels/cpu/slots.h"
#include <math.h>
#include <string.h>

static uint32_t magnitude(float x) { return lq_bits(x) & 0x7fffffff; }

static uint32_t top_of(const float *x, int n) {
    uint32_t top = 0;
    for (int i = 0; i < n; i++) top = magnitude(x[i]) > top ? magnitude(x[i]) : top;
    return top;
}

static void row_of(const float *x, int k, const lq_act *a, int row, int g0) {
    const int G = (int)a->q_row;
    for (int g = g0; k > 0; g++, x += G, k -= G) {
        const size_t u = (size_t)g * (size_t)a->apart + (size_t)row;
        const int n = k < G ? k : G;
        int8_t *q = (int8_t *)a->q + u * (size_t)G;
        const uint32_t top = top_of(x, n);
        const float absmax = lq_float(top);
        const bool some = top < 0x7f800000 && absmax >= 0x1p-100f;
        const float inverse = some ? 127.0f / absmax : 0;
        int32_t sum = 0;
        for (int i = 0; i < n; i++) {
            q[i] = some ? (int8_t)lrintf(x[i] * inverse) : 0;
            sum += q[i];
        }
        if (n < G) memset(q + n, 0, (size_t)(G - n));
        a->scale[u] = absmax < 0x1p-100f ? 0 : absmax / 127.0f;
        a->sum[u] = sum;
    }
}

static int32_t codes_of(const float *x, int n, const lq_q8_by *by, int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) sum += q[i] = (int8_t)lq_q8_code(x[i], by);
    return sum;
}

const lq_q8 lq_q8_c = {row_of, top_of, codes_of, lq_e4m3_all, lq_narrow_all};

// --- a row ---

// Columns of a row as they are to be rounded: x itself, or v in scratch, a part of the row at a time.
typedef struct source {
    const lq_act *a;
    const float *x;
    float *v;
    int part, have; // columns that v has room for; where those in it begin, -1: nowhere
    bool turn, cut; // perm or smooth; outliers
} source;

static void turn(const lq_act *a, const float *x, int j0, int n, float *v) {
    for (int j = 0; j < n; j++) {
        const int c = a->perm ? a->perm[j0 + j] : j0 + j;
        v[j] = a->smooth ? x[c] * a->smooth[c] : x[c];
    }
}

static const float *columns(source *s, int j, int n) {
    if (!s->turn && !s->cut) return s->x + j;
    if (s->have == j) return s->v;
    s->have = j;
    if (s->turn) turn(s->a, s->x, j, n, s->v);
    else memcpy(s->v, s->x + j, (size_t)n * sizeof(float));
    for (int i = 0; i < s->a->outliers; i++)
        if (s->a->outlier[i] >= j && s->a->outlier[i] < j + n) s->v[s->a->outlier[i] - j] = 0;
    return s->v;
}

static int part_end(const source *s, int j, int end) { return end - j < s->part ? end : j + s->part; }

// Columns j..end, which share a scale.
static void i8_span(source *s, const lq_cpu *c, int row, int j, int end, const lq_q8_by *by) {
    const lq_act *a = s->a;
    const int G = (int)a->q_row;
    for (int stop; j < end; j = stop) {
        stop = part_end(s, j, end);
        const float *x = columns(s, j, stop - j);
        for (int k = j; k < stop; k += G, x += G) {
            const size_t u = (size_t)(k / G) * (size_t)a->apart + (size_t)row;
            const int n = stop - k < G ? stop - k : G;
            int8_t *q = (int8_t *)a->q + u * (size_t)G;
            a->scale[u] = by->scale;
            a->sum[u] = 0;
            if (by->inverse != 0) a->sum[u] = c->q8->codes(x, n, by, q);
            else memset(q, 0, (size_t)n);
            if (n < G) memset(q + n, 0, (size_t)(G - n));
        }
    }
}

static void e4m3_span(source *s, const lq_cpu *c, int row, int j, int end, const lq_q8_by *by) {
    const lq_act *a = s->a;
    const int G = (int)a->q_group;
    const size_t size = a->halves ? sizeof(uint16_t) : sizeof(float);
    char *q = (char *)a->q + (size_t)row * a->q_row * size;
    for (int k = j / G * G; k < end; k += G) a->scale[(size_t)(k / G) * (size_t)a->apart + (size_t)row] = by->scale;
    for (int stop; j < end; j = stop) {
        stop = part_end(s, j, end);
        const float *x = columns(s, j, stop - j);
        char *to = q + (size_t)j * size;
        if (by->inverse != 0) c->q8->small(x, stop - j, by->inverse, to, a->halves);
        else memset(to, 0, (size_t)(stop - j) * size);
    }
}

// Columns that share a scale, if they have one.
static int span_of(const lq_act *a) { return a->type.group ? a->type.group : a->x.cols; }

// Each cell is made of its own columns alone.
static bool by_cells(const lq_act *a) {
    return a->type.elem == LQ_BF16 || (a->type.elem == LQ_I8 && span_of(a) == (int)a->q_row && !a->type.fixed);
}

void lq_cpu_part_act(const lq_dev *d, const float *x, lq_act *a, int row, int first, int end) {
    if (!a || a->type.elem == LQ_F32) return;
    if (a->type.elem == LQ_I8) {
        lq_cpu_of(d)->q8->row(x, end - first, a, row, first / (int)a->q_row);
        return;
    }
    uint16_t *q = (uint16_t *)a->q + (size_t)row * a->q_row;
    lq_cpu_of(d)->q8->narrow(x, end - first, LQ_BF16, 1, q + first);
    if (end == a->x.cols) memset(q + end, 0, (a->q_row - (size_t)end) * sizeof *q);
}

int lq_cpu_act_part(const lq_mat *y, const lq_act *a) {
    if (!a) return 16;
    if (a->smooth || a->perm || a->outliers || (a->x.p && a->x.p != y->p)) return 0;
    if (a->type.elem == LQ_F32) return 16;
    return !by_cells(a) ? 0 : a->type.elem == LQ_I8 ? (int)a->q_row : 16;
}

void lq_cpu_row_act(const lq_dev *d, const float *x, lq_act *a, int row, int worker) {
    if (!a) return;
    const lq_cpu *c = d->self;
    const int k = a->x.cols, cell = a->type.elem == LQ_I8 ? (int)a->q_row : 16;
    const int span = span_of(a);
    source s = {.a = a, .x = x, .v = lq_cpu_work(d, worker), .have = -1, .turn = a->smooth || a->perm,
                .cut = a->outliers > 0};
    if (a->x.p && lq_mat_row(&a->x, row) != x) {
        float *v = lq_mat_row(&a->x, row);
        turn(a, x, 0, k, v);
        s.x = v;
        s.turn = false;
    }
    if (a->type.elem == LQ_F32) return;
    const int room = (int)(lq_cpu_share(d) / sizeof(float));
    s.part = s.turn || s.cut ? room / cell * cell : k;
    if (by_cells(a)) {
        for (int j = 0, end; j < k; j = end) {
            end = part_end(&s, j, k);
            lq_cpu_part_act(d, columns(&s, j, end - j), a, row, j, end);
        }
        return;
    }
    for (int j = 0; j < k; j += span) {
        const int end = k - j < span ? k : j + span;
        uint32_t top = 0;
        for (int i = j; i < end; i = part_end(&s, i, end)) {
            const uint32_t t = c->q8->top(columns(&s, i, part_end(&s, i, end) - i), part_end(&s, i, end) - i);
            top = t > top ? t : top;
        }
        const lq_q8_by by = lq_q8_scale(a, top);
        if (a->type.elem == LQ_I8) i8_span(&s, c, row, j, end, &by);
        else e4m3_span(&s, c, row, j, end, &by);
        if (a->zero) a->zero[row] = by.zero;
    }
    if (a->halves) memset((uint16_t *)a->q + (size_t)row * a->q_row + k, 0, (a->q_row - (size_t)k) * sizeof(uint16_t));
}

// --- the slot ---

typedef struct quant_job { lq_dev *d; const lq_quant_args *a; } quant_job;

static void quant_row(void *arg, int row, int worker) {
    const quant_job *j = arg;
    lq_cpu_row_act(j->d, lq_mat_row(&j->a->x, row), j->a->act, row, worker);
}

void lq_quant_cpu(lq_dev *d, const lq_quant_args *a) {
    const int64_t fork = 16384; // elements: about as long as a fork takes
    const lq_act *act = a->act;
    if (act->type.elem == LQ_F32 && (!act->x.p || act->x.p == a->x.p)) return;
    quant_job j = {d, a};
    if ((int64_t)a->x.rows * a->x.cols > fork) lq_pool_rows(d->pool, quant_row, &j, a->x.rows);
    else for (int row = 0; row < a->x.rows; row++) quant_row(&j, row, 0);
}
