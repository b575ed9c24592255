// check_mix.c: the slots route, mix, conv, scan, tally, gram, factor, solve, reduce and gather of a device
// against f64 written from ops.h.
#include "tests/checkkern/check_ops.h"

// --- route ---

typedef struct route_case {
    lq_route_kind kind;
    int experts, top_k, groups, top_groups;
    bool bias, renorm;
    float scale, jitter;
} route_case;

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(fabs(a), fabs(b)) + 1e-30; }

// Of MIXER: the part of the best of those that are not out, and which it is.
static double mixer_true(const route_case *c, const float *x, bool *out, int *best, bool *close) {
    double sum = 0, top = -INFINITY;
    for (int e = 0; e < c->experts; e++)
        if (!out[e] && (double)x[e] > top) top = (double)x[e], *best = e;
    for (int e = 0; e < c->experts; e++) {
        const double far = (top - (double)x[e]) / fmax(fabs((double)x[e]), top), most = 2 * (double)c->jitter;
        if (out[e]) continue;
        *close |= e != *best && (close_to((double)x[e], top) || close_to(far, most));
        if (e == *best || far <= most) sum += exp((double)x[e] - top);
    }
    out[*best] = true;
    return 1 / sum;
}

// The experts that the words of ops.h ask for, best first; *close: two scores are too near each other to tell.
static void route_true(const route_case *c, const float *x, const float *bias, int *expert, double *weight,
                       bool *close) {
    double p[LQ_EXPERTS], score[LQ_EXPERTS], sum = 0, most = -INFINITY;
    bool out[LQ_EXPERTS] = {false};
    for (int e = 0; e < c->experts; e++) most = fmax(most, (double)x[e]);
    for (int e = 0; e < c->experts; e++) {
        p[e] = c->kind == LQ_ROUTE_SIGMOID ? 1 / (1 + exp(-(double)x[e])) : c->kind == LQ_ROUTE_SOFTMAX
            ? exp((double)x[e] - most) : (double)x[e];
        sum += p[e];
    }
    for (int e = 0; e < c->experts; e++) {
        if (c->kind == LQ_ROUTE_SOFTMAX) p[e] /= sum;
        score[e] = p[e] + (c->bias ? (double)bias[e] : 0);
    }
    const int each = c->groups ? c->experts / c->groups : c->experts;
    for (int left = c->groups - c->top_groups; c->groups && left > 0; left--) { // the worst group goes
        int worst = -1;
        double least = INFINITY;
        for (int g = 0; g < c->groups; g++) {
            double a = -INFINITY, b = -INFINITY;
            for (int e = g * each; e < (g + 1) * each; e++) {
                if (score[e] > a) b = a, a = score[e];
                else if (score[e] > b) b = score[e];
            }
            const double s = c->kind == LQ_ROUTE_SIGMOID ? a + b : a;
            if (!out[g * each] && worst >= 0 && close_to(s, least)) *close = true;
            if (!out[g * each] && s <= least) least = s, worst = g;
        }
        for (int e = worst * each; e < (worst + 1) * each; e++) out[e] = true;
    }
    if (c->kind == LQ_ROUTE_MIXER) {
        for (int i = 0; i < c->top_k; i++) weight[i] = mixer_true(c, x, out, &expert[i], close);
        return;
    }
    sum = 0, most = -INFINITY;
    for (int i = 0; i < c->top_k; i++) {
        int best = -1;
        for (int e = 0; e < c->experts; e++) {
            if (best >= 0 && !out[e] && close_to(score[e], score[best])) *close = true;
            if (!out[e] && (best < 0 || score[e] > score[best])) best = e;
        }
        out[best] = true;
        expert[i] = best;
        weight[i] = p[best];
        most = fmax(most, p[best]);
    }
    for (int i = 0; i < c->top_k; i++)
        sum += weight[i] = c->kind == LQ_ROUTE_SOFTMAX_TOPK ? exp(weight[i] - most) : weight[i];
    for (int i = 0; i < c->top_k; i++) {
        if (c->renorm || c->kind == LQ_ROUTE_SOFTMAX_TOPK) weight[i] /= sum;
        weight[i] *= c->scale != 0 ? (double)c->scale : 1;
    }
}

static bool order_true(const int32_t *expert, int slots, int experts, const int32_t *order, const int32_t *start) {
    bool ok = start[0] == 0 && start[experts] == slots;
    for (int e = 0, at = 0; e < experts; e++) {
        for (int s = 0; s < slots; s++)
            if (expert[s] == e) ok &= order[at++] == s;
        ok &= start[e + 1] == at;
    }
    return ok;
}

static void check_route(lq_dev *dev) {
    static const route_case cases[] = {{LQ_ROUTE_SOFTMAX, 8, 2, 0, 0, false, true, 0, 0},
                                       {LQ_ROUTE_SOFTMAX, 60, 4, 0, 0, false, false, 2.5f, 0},
                                       {LQ_ROUTE_SIGMOID, 256, 8, 8, 4, true, true, 2.5f, 0},
                                       {LQ_ROUTE_SOFTMAX, 64, 6, 8, 3, false, false, 16, 0},
                                       {LQ_ROUTE_SOFTMAX_TOPK, 32, 4, 0, 0, false, false, 0, 0},
                                       {LQ_ROUTE_SOFTMAX_TOPK, 5, 5, 0, 0, false, false, 0, 0},
                                       {LQ_ROUTE_SIGMOID, 1024, 1, 0, 0, true, false, 0, 0},
                                       {LQ_ROUTE_MIXER, 16, 2, 0, 0, false, false, 0, 0.01f},
                                       {LQ_ROUTE_MIXER, 9, 2, 0, 0, false, false, 0, 0.4f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const route_case *c = &cases[i];
        const int rows = 33, slots = rows * c->top_k;
        lq_mat x = ck_mat(rows, c->experts, 3), bias = ck_mat(1, c->experts, 0);
        int32_t *expert = ck_buf((size_t)slots * 4, 4), *order = ck_buf((size_t)slots * 4, 0);
        int32_t *start = ck_buf((size_t)(c->experts + 1) * 4, 0);
        float *weight = ck_buf((size_t)slots * sizeof *weight, 4);
        const lq_route_args a = {.kind = c->kind, .logits = x, .bias = c->bias ? bias.p : NULL, .top_k = c->top_k,
                                 .groups = c->groups, .top_groups = c->top_groups, .renorm = c->renorm,
                                 .scale = c->scale, .jitter = c->jitter, .expert = expert, .weight = weight,
                                     .order = order, .start = start};
        for (int e = 0; e < c->experts; e++) lq_mat_row(&x, 5)[e] = 1; // all the same: the lower index wins
        dev->ops.route(dev, &a);
        int wrong = 0, close = 0;
        for (int r = 0; r < rows; r++) {
            int want[16];
            double w[16];
            bool near_tie = false;
            route_true(c, lq_mat_row(&x, r), bias.p, want, w, &near_tie);
            close += near_tie;
            for (int k = 0; k < c->top_k && (!near_tie || (r == 5 && !c->bias)); k++)
                wrong += expert[r * c->top_k + k] != want[k] ||
                    !near(weight[r * c->top_k + k], w[k], EPS * (c->experts + 40) * fabs(w[k]));
        }
        CHECK(wrong == 0 && close < rows / 2, "route %s case %zu: %d wrong, %d rows too close to tell", dev->isa, i,
              wrong, close);
        CHECK(order_true(expert, slots, c->experts, order, start), "route %s case %zu: order", dev->isa, i);
        lq_mat_row(&x, 2)[1] = NAN;
        for (int e = 0; e < c->experts; e++) lq_mat_row(&x, 3)[e] = NAN;
        dev->ops.route(dev, &a);
        CHECK(order_true(expert, slots, c->experts, order, start), "route %s case %zu: order with NaN", dev->isa, i);
        ck_done("route");
    }
}

static void check_mix_slot(lq_dev *dev, int cols, int top_k, bool fresh) {
    const int rows = 4;
    lq_mat x = ck_mat(rows * top_k, cols, 1), y = ck_mat(rows, cols, 5), w = ck_mat(1, rows * top_k, 0);
    float *was = ck_buf((size_t)rows * y.stride * sizeof *was, 0);
    memcpy(was, y.p, (size_t)rows * y.stride * sizeof *was);
    const float *weight = w.p;
    for (int r = 0; r < rows && fresh; r++) lq_mat_row(&y, r)[r] = NAN; // what was there is not looked at
    dev->ops.mix(dev, &(lq_mix_args){.x = x, .weight = weight, .top_k = top_k, .y = y, .fresh = fresh});
    int wrong = 0;
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            double t = fresh ? 0 : (double)was[(size_t)r * y.stride + (size_t)c], size = fabs(t);
            for (int s = 0; s < top_k; s++) {
                const double v = (double)weight[r * top_k + s] * (double)lq_mat_row(&x, r * top_k + s)[c];
                t += v, size += fabs(v);
            }
            wrong += !near(lq_mat_row(&y, r)[c], t, EPS * (top_k + 3) * size);
        }
    CHECK(wrong == 0 && ck_gaps(&y), "mix %s cols %d top_k %d", dev->isa, cols, top_k);
    ck_done("mix");
}

// One slot a row into its own place is a product; no weights are weights of one.
static void check_mix_odd(lq_dev *dev, int cols) {
    enum { ROWS = 3, USED = 2 };
    lq_mat x = ck_mat(ROWS * USED, cols, 2), y = ck_mat(ROWS, cols, 1), z = ck_mat(ROWS, cols, 4);
    lq_mat w = ck_mat(1, ROWS * USED, 0), ones = ck_mat(1, ROWS * USED, 0);
    for (int i = 0; i < ROWS * USED; i++) ((float *)ones.p)[i] = 1;
    dev->ops.mix(dev, &(lq_mix_args){.x = x, .top_k = USED, .y = y, .fresh = true});
    dev->ops.mix(dev, &(lq_mix_args){.x = x, .weight = ones.p, .top_k = USED, .y = z, .fresh = true});
    int wrong = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *first = lq_mat_row(&x, USED * r), *second = lq_mat_row(&x, USED * r + 1);
        for (int c = 0; c < cols; c++) {
            const float sum = lq_mat_row(&y, r)[c];
            wrong += sum != first[c] + second[c] || sum != lq_mat_row(&z, r)[c];
        }
    }
    float *was = ck_buf((size_t)ROWS * USED * x.stride * sizeof *was, 0);
    memcpy(was, x.p, (size_t)ROWS * USED * x.stride * sizeof *was);
    dev->ops.mix(dev, &(lq_mix_args){.x = x, .weight = w.p, .top_k = 1, .y = x, .fresh = true});
    for (int r = 0; r < ROWS * USED; r++)
        for (int c = 0; c < cols; c++)
            wrong += lq_mat_row(&x, r)[c] != ((float *)w.p)[r] * was[(size_t)r * x.stride + (size_t)c];
    CHECK(wrong == 0 && ck_gaps(&x) && ck_gaps(&y), "mix %s cols %d in place, without weights", dev->isa, cols);
    ck_done("mix");
}

// --- conv and scan: two sequences in swapped slots, whole and in chunks ---

enum { SEQS = 2, ROWS = 23 };
static const int32_t lens[SEQS] = {18, 5}, slots_of[SEQS] = {1, 0};

// Rows at .. at + n of both sequences, as far as they have some; from[i]: their places in [ROWS].
static int part_rows(int at, int n, int32_t *first, int *from) {
    int rows = 0;
    for (int s = 0, base = 0; s < SEQS; base += lens[s++]) {
        first[s] = rows;
        for (int i = at; i < at + n && i < lens[s]; i++) from[rows++] = base + i;
    }
    first[SEQS] = rows;
    return rows;
}

static lq_mat part_of(const lq_mat *all, const int *from, int rows) {
    lq_mat m = ck_mat(rows, all->cols, 3);
    for (int r = 0; r < rows; r++)
        memcpy(lq_mat_row(&m, r), lq_mat_row(all, from[r]), (size_t)all->cols * sizeof(float));
    return m;
}

static void conv_case(lq_dev *dev, int cols, int width, bool silu, bool biased) {
    lq_mat x = ck_mat(ROWS, cols, 2), y[3], w = ck_mat(1, cols * width, 0), bias = ck_mat(1, cols, 0);
    const size_t states = (size_t)SEQS * (size_t)(width - 1) * (size_t)cols;
    float *init = ck_buf(states * sizeof *init, 0), *state[3];
    ck_fill(init, states);
    for (int p = 0; p < 3; p++) { // in one piece, by 4, by 1 in place
        static const int pieces[3] = {ROWS, 4, 1};
        y[p] = ck_mat(ROWS, cols, 0);
        state[p] = ck_buf(states * sizeof **state, 4);
        memcpy(state[p], init, states * sizeof *init);
        for (int at = 0; at < lens[0]; at += pieces[p]) {
            int32_t first[SEQS + 1];
            int from[ROWS], n = part_rows(at, pieces[p], first, from);
            lq_rows rows = {.n = n, .seqs = SEQS, .first = first, .slot = slots_of};
            lq_mat in = part_of(&x, from, n), out = p == 2 ? in : part_of(&x, from, n);
            dev->ops.conv(dev, &(lq_conv_args){.rows = &rows, .x = in, .y = out, .w = w.p,
                                               .bias = biased ? bias.p : NULL, .width = width,
                                               .silu = silu, .state = state[p]});
            CHECK(ck_gaps(&out), "conv %s: gaps", dev->isa);
            for (int r = 0; r < n; r++)
                memcpy(lq_mat_row(&y[p], from[r]), lq_mat_row(&out, r), (size_t)cols * sizeof(float));
        }
        CHECK(ck_mat_same(&y[0], &y[p]) && !memcmp(state[0], state[p], states * sizeof *init),
              "conv %s cols %d width %d: pieces of %d", dev->isa, cols, width, pieces[p]);
    }
    int wrong = 0;
    for (int s = 0, base = 0; s < SEQS; base += lens[s++])
        for (int i = 0; i < lens[s]; i++)
            for (int c = 0; c < cols; c++) {
                double t = biased ? (double)((float *)bias.p)[c] : 0, size = fabs(t);
                for (int k = 0; k < width; k++) {
                    const int j = i - width + 1 + k; // below 0: of the state, whose last row is row -1
                    const float v = j >= 0 ? lq_mat_row(&x, base + j)[c]
                        : init[(slots_of[s] * (width - 1) + (width - 1 + j)) * cols + c];
                    t += (double)((float *)w.p)[c * width + k] * (double)v,
                        size += fabs((double)((float *)w.p)[c * width + k] * (double)v);
                }
                const double off = EPS * (width + 2) * size;
                const double want = silu ? t / (1 + exp(-t)) : t;
                const double room = silu ? 1.1 * off + EPS * (10 + 2 * fabs(t)) * fabs(t) : off;
                wrong += !near(lq_mat_row(&y[0], base + i)[c], want, room);
            }
    CHECK(wrong == 0, "conv %s cols %d width %d: %d wrong", dev->isa, cols, width, wrong);
    ck_done("conv");
}

typedef struct scan_case { int heads, groups, dk, dv; bool per_k, beta, delta; } scan_case;
// One step of a head's state in f64; `size` is the same step of magnitudes, which bounds what roundings add up to.
static void scan_step(const scan_case *c, double *s, double *size, const float *q, const float *k, const float *v,
                      const float *decay, double beta, double *y, double *y_size) {
    for (int e = 0; e < c->dv; e++) {
        double u = 0, u_size = 0;
        for (int i = 0; i < c->dk; i++) {
            const double a = exp((double)decay[c->per_k ? i : 0]);
            s[i * c->dv + e] *= a, size[i * c->dv + e] *= a;
            u += (double)k[i] * s[i * c->dv + e], u_size += fabs((double)k[i]) * size[i * c->dv + e];
        }
        u = beta * ((double)v[e] - (c->delta ? u : 0)),
            u_size = fabs(beta) * (fabs((double)v[e]) + (c->delta ? u_size : 0));
        y[e] = y_size[e] = 0;
        for (int i = 0; i < c->dk; i++) {
            s[i * c->dv + e] += (double)k[i] * u, size[i * c->dv + e] += fabs((double)k[i]) * u_size;
            y[e] += (double)q[i] * s[i * c->dv + e], y_size[e] += fabs((double)q[i]) * size[i * c->dv + e];
        }
    }
}

static void scan_run(lq_dev *dev, const scan_case *c, const lq_mat in[5], int piece, float *state, lq_mat *y) {
    for (int at = 0; at < lens[0]; at += piece) {
        int32_t first[SEQS + 1];
        int from[ROWS], n = part_rows(at, piece, first, from);
        lq_rows rows = {.n = n, .seqs = SEQS, .first = first, .slot = slots_of};
        lq_mat out = ck_mat(n, c->heads * c->dv, 2);
        const lq_mat q = part_of(&in[0], from, n), k = part_of(&in[1], from, n), v = part_of(&in[2], from, n);
        const lq_mat decay = part_of(&in[3], from, n);
        dev->ops.scan(dev, &(lq_scan_args){.rows = &rows, .heads = c->heads, .groups = c->groups, .dk = c->dk,
                                           .dv = c->dv, .q = q, .k = k, .v = v, .y = out, .decay = decay,
                                           .decay_per_k = c->per_k, .delta = c->delta, .state = state,
                                           .beta = c->beta ? part_of(&in[4], from, n) : (lq_mat){0}});
        CHECK(ck_gaps(&out), "scan %s: gaps", dev->isa);
        for (int r = 0; r < n; r++)
            memcpy(lq_mat_row(y, from[r]), lq_mat_row(&out, r), (size_t)y->cols * sizeof(float));
    }
}

static void check_scan_case(lq_dev *dev, const scan_case *c) {
    const size_t cells = (size_t)c->dk * (size_t)c->dv, states = (size_t)SEQS * (size_t)c->heads * cells;
    lq_mat in[5] = {ck_mat(ROWS, c->groups * c->dk, 1), ck_mat(ROWS, c->groups * c->dk, 2),
                    ck_mat(ROWS, c->heads * c->dv, 0),
                    ck_mat(ROWS, c->heads * (c->per_k ? c->dk : 1), 3), ck_mat(ROWS, c->heads, 1)};
    lq_mat y = ck_mat(ROWS, c->heads * c->dv, 0), z = ck_mat(ROWS, c->heads * c->dv, 0);
    float *init = ck_buf(states * sizeof *init, 0), *state = ck_buf(states * sizeof *init, 4);
    float *piece = ck_buf(states * sizeof *init, 4);
    ck_fill(init, states);
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < in[1].cols; i++) lq_mat_row(&in[1], r)[i] *= 0.1f;
        for (int i = 0; i < in[3].cols; i++) lq_mat_row(&in[3], r)[i] = (float)(-0.5 - 0.5 * ck_uniform());
        for (int i = 0; i < in[4].cols; i++) lq_mat_row(&in[4], r)[i] = (float)(0.5 + 0.5 * ck_uniform());
    }
    memcpy(state, init, states * sizeof *init);
    memcpy(piece, init, states * sizeof *init);
    scan_run(dev, c, in, ROWS, state, &y);
    scan_run(dev, c, in, 3, piece, &z);
    CHECK(ck_mat_same(&y, &z) && !memcmp(state, piece, states * sizeof *init), "scan %s: pieces of 3 have other bits",
          dev->isa);
    double *s = ck_buf(2 * cells * sizeof *s, 0), *out = ck_buf(2 * (size_t)c->dv * sizeof *out, 0);
    int wrong = 0;
    for (int q = 0, base = 0; q < SEQS; base += lens[q++])
        for (int h = 0; h < c->heads; h++) {
            const int g = h / (c->heads / c->groups);
            const size_t at = ((size_t)slots_of[q] * (size_t)c->heads + (size_t)h) * cells;
            for (size_t i = 0; i < cells; i++) s[i] = (double)init[at + i], s[cells + i] = fabs(s[i]);
            for (int i = 0; i < lens[q]; i++) {
                const int r = base + i;
                scan_step(c, s, s + cells, lq_mat_row(&in[0], r) + g * c->dk, lq_mat_row(&in[1], r) + g * c->dk,
                          lq_mat_row(&in[2], r) + h * c->dv, lq_mat_row(&in[3], r) + h * (c->per_k ? c->dk : 1),
                          c->beta ? (double)lq_mat_row(&in[4], r)[h] : 1, out, out + c->dv);
                for (int e = 0; e < c->dv; e++)
                    wrong += !near(lq_mat_row(&y, r)[h * c->dv + e], out[e],
                                   EPS * ((i + 1) * (c->dk + 8) + c->dk + 2) * out[c->dv + e]);
            }
            for (size_t i = 0; i < cells; i++)
                wrong += !near(state[at + i], s[i], EPS * (lens[q] * (c->dk + 8) + 2) * s[cells + i]);
        }
    CHECK(wrong == 0, "scan %s heads %d dk %d dv %d: %d wrong", dev->isa, c->heads, c->dk, c->dv, wrong);
    ck_done("scan");
}

// --- solving ---

// What sums of products may be off, times the sum of magnitudes. With AMX, which wants room for 32 rows of tiles, a
// product is 2^-15 off, and of at most 16 * 32 rows 16 + 1 + 3 * 16 sums are rounded; without, of at most 2048 rows
// each.
static double gram_bound(const lq_dev *dev, int rows, int m, int n) {
    const bool amx = dev->host && lq_cpu_of(dev)->isa & LQ_ISA_AMX;
    const bool tiles = amx && ((m + 31) / 32 + (n + 31) / 32) * 32 * 32 <= m * n;
    return tiles ? 0x1p-15 + EPS * 65 : EPS * ((rows < 2048 ? rows : 2048) + 4);
}

// with: columns of the second factor; 0: x is both. planted: magnitudes from 2^-70 to 2^50.
static void check_gram(lq_dev *dev, lq_dev *one, int rows, int cols, int with_cols, bool planted) {
    const bool pair = with_cols > 0;
    lq_mat x = ck_mat(rows, cols, 3), with = pair ? ck_mat(rows, with_cols, 5) : x;
    const size_t m = (size_t)cols, n = (size_t)with.cols;
    double *h = ck_buf(m * n * sizeof *h, 0), *same = ck_buf(m * n * sizeof *h, 0);
    float *work = ck_buf(m * n * sizeof *work, 0);
    for (int r = 0; planted && r < rows; r++)
        for (int c = 0; c < cols; c++) lq_mat_row(&x, r)[c] = ldexpf(lq_mat_row(&x, r)[c], (r * 7 + c * 13) % 121 - 70);
    for (size_t i = 0; i < m * n; i++) h[i] = same[i] = 1;
    dev->ops.gram(dev, &(lq_gram_args){.x = x, .with = pair ? &with : NULL, .h = h, .work = work});
    one->ops.gram(one, &(lq_gram_args){.x = x, .with = pair ? &with : NULL, .h = same, .work = work});
    CHECK(!memcmp(h, same, m * n * sizeof *h), "gram %s %d x %d: other bits on one thread", dev->isa, rows, cols);
    const double bound = gram_bound(dev, rows, cols, with.cols);
    int wrong = 0;
    for (size_t i = 0; i < m; i += cols > 100 ? 37 : 1)
        for (size_t j = 0; j < n; j++) {
            double t = 1, size = 0, small = 0; // small: of AMX's numbers and sums below 2^-126
            for (int r = 0; r < rows && (pair || j >= i); r++) {
                const double a = (double)lq_mat_row(&x, r)[i], b = (double)lq_mat_row(&with, r)[j];
                t += a * b, size += fabs(a * b), small += 0x1p-126 * (4 + fabs(a) + fabs(b));
            }
            const double off = bound * size + small + 0x1p-52 * (rows + 2) * (size + 1);
            wrong += !(fabs(h[i * n + j] - t) <= off);
        }
    CHECK(wrong == 0, "gram %s %d x %d with %d: %d wrong", dev->isa, rows, cols, with_cols, wrong);
    ck_done("gram");
}

// The same numbers, rounded to bf16, where a device has such activations: what they mean is in x.
static lq_mat halved(lq_mat *x) {
    lq_mat half = *x;
    uint16_t *to = ck_buf((size_t)x->rows * x->stride * sizeof *to, 0);
    for (size_t i = 0; i < (size_t)x->rows * x->stride; i++) {
        to[i] = lq_f32_bf16(((float *)x->p)[i]);
        ((float *)x->p)[i] = lq_bf16_f32(to[i]);
    }
    half.p = to, half.type = LQ_BF16;
    return half;
}

// Products of bf16 are exact in f32; they are summed as others are.
static void check_gram_half(lq_dev *dev, int rows, int cols, int with_cols) {
    lq_mat x = ck_mat(rows, cols, 3), y = ck_mat(rows, with_cols ? with_cols : cols, 8);
    const lq_mat half = halved(&x), other = halved(&y), *with = with_cols ? &y : &x;
    const size_t m = (size_t)cols, n = (size_t)with->cols;
    double *h = ck_buf(m * n * sizeof *h, 0);
    float *work = ck_buf(m * n * sizeof *work, 0);
    dev->ops.gram(dev, &(lq_gram_args){.x = half, .with = with_cols ? &other : NULL, .h = h, .work = work});
    CHECK(dev->ops.sync(dev, NULL), "gram %s: the device broke", dev->isa);
    int wrong = 0;
    for (size_t i = 0; i < m; i++)
        for (size_t j = with_cols ? 0 : i; j < n; j++) {
            double sum = 0, size = 0;
            for (int r = 0; r < rows; r++) {
                const double a = (double)lq_mat_row(&x, r)[i] * (double)lq_mat_row(with, r)[j];
                sum += a, size += fabs(a);
            }
            wrong += !(fabs(h[i * n + j] - sum) <= (EPS * ((rows < 2048 ? rows : 2048) + 4) + 0x1p-52 * rows) * size);
        }
    CHECK(wrong == 0, "gram %s %d x %d with %d of bf16: %d wrong", dev->isa, rows, cols, with_cols, wrong);
    ck_done("gram");
}

// In two calls, as chunks come. half: of bf16.
static void check_tally(lq_dev *dev, lq_dev *one, int rows, int cols, bool half) {
    lq_mat x = ck_mat(rows, cols, 5), seen = half ? halved(&x) : x;
    const size_t k = (size_t)cols;
    float *lo = ck_buf(2 * k * sizeof *lo, 0), *hi = lo + k;
    double *sum = ck_buf(4 * k * sizeof *sum, 0), *square = sum + k, *same = square + k;
    memset(lo, 0, 2 * k * sizeof *lo);
    memset(sum, 0, 4 * k * sizeof *sum);
    if (rows > 3) lq_mat_row(&x, 2)[0] = NAN, lq_mat_row(&x, 3)[cols - 1] = INFINITY;
    if (half) seen = halved(&x);
    for (int part = 0; part < 2; part++) {
        lq_mat m = seen;
        m.rows = part ? rows - rows / 3 : rows / 3;
        m.p = (char *)seen.p + (part ? (size_t)(rows / 3) * seen.stride : 0) * lq_dtype_size(seen.type);
        dev->ops.tally(dev, &(lq_tally_args){.x = m, .lo = lo, .hi = hi, .sum = sum, .square = square});
        one->ops.tally(one, &(lq_tally_args){.x = m, .sum = same, .square = same + k});
    }
    CHECK(dev->ops.sync(dev, NULL) && one->ops.sync(one, NULL), "tally %s: the device broke", dev->isa);
    CHECK(!memcmp(sum, same, 2 * k * sizeof *sum), "tally %s %d x %d: other bits on one thread", dev->isa, rows, cols);
    int wrong = 0;
    for (size_t c = 0; c < k; c++) {
        float least = 0, most = 0;
        long double size = 0, squares = 0;
        for (int r = 0; r < rows; r++) {
            const float v = lq_mat_row(&x, r)[c];
            least = fminf(least, v), most = fmaxf(most, v);
            size += (long double)fabsf(v), squares += (long double)v * v;
        }
        wrong += lo[c] != least || hi[c] != most;
        if (!isfinite(size)) wrong += isfinite(sum[c]) || isfinite(square[c]);
        else wrong += !(fabsl(sum[c] - size) <= 0x1p-53L * rows * size) ||
                      !(fabsl(square[c] - squares) <= 0x1p-53L * rows * squares);
    }
    CHECK(wrong == 0, "tally %s %d x %d%s: %d columns wrong", dev->isa, rows, cols, half ? " of bf16" : "", wrong);
    ck_done("tally");
}

static void check_tallies(lq_dev *dev) {
    static const int shapes[][2] = {{1, 1}, {5, 3}, {700, 97}, {33, 530}, {2, 64}};
    lq_dev *one = twin_open(dev, 1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int half = 0; half < 1 + !dev->host; half++) check_tally(dev, one, shapes[i][0], shapes[i][1], half);
    lq_dev_close(one);
}

// A number that is none spoils the sums of its column alone.
static void check_gram_bad(lq_dev *dev, float bad) {
    enum { ROWS_OF = 70, COLS = 81, AT = 37 };
    lq_mat x = ck_mat(ROWS_OF, COLS, 3);
    double h[COLS * COLS] = {0};
    float *work = ck_buf(sizeof h / 2, 0);
    lq_mat_row(&x, 41)[AT] = bad;
    dev->ops.gram(dev, &(lq_gram_args){.x = x, .h = h, .work = work});
    int wrong = 0;
    for (int i = 0; i < COLS; i++)
        for (int j = i; j < COLS; j++) wrong += isfinite(h[i * COLS + j]) != (i != AT && j != AT);
    CHECK(wrong == 0, "gram %s: %g in a column: %d sums wrong", dev->isa, (double)bad, wrong);
    ck_done("gram");
}

static void check_grams(lq_dev *dev) {
    static const int shapes[][3] = {{5, 3, 0}, {2500, 40, 0}, {33, 530, 0}, {5, 3, 3}, {2500, 40, 40}, {33, 530, 530},
                                    {33, 70, 600}, {9, 600, 300}, {1, 64, 0}, {31, 81, 0}, {4100, 70, 0}, {700, 97, 0},
                                    {300, 300, 0}, {513, 64, 129}, {1, 271, 90}};
    lq_dev *one = twin_open(dev, 1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int planted = 0; planted < 2; planted++)
            check_gram(dev, one, shapes[i][0], shapes[i][1], shapes[i][2], planted);
    for (int i = 0; !dev->host && i < 3; i++) check_gram_half(dev, 40 + 1100 * i, 7 + 30 * i, i % 2 * 19);
    check_gram_bad(dev, NAN);
    check_gram_bad(dev, INFINITY);
    lq_dev_close(one);
}

static void check_factor(lq_dev *dev, int n) {
    const size_t m = (size_t)n;
    double *h = ck_buf(m * m * sizeof *h, 0), *u = ck_buf(m * m * sizeof *h, 0);
    for (size_t i = 0; i < m; i++)
        for (size_t j = i; j < m; j++) { // strong diagonal: its inverse is well conditioned
            h[i * m + j] = i == j ? n + 1 + fabs(ck_uniform()) : ck_uniform();
            u[i * m + j] = h[j * m + i] = h[i * m + j];
            if (i != j) u[j * m + i] = NAN; // the lower half is not read
        }
    bool ok = false;
    dev->ops.factor(dev, &(lq_factor_args){.h = u, .n = n, .ok = &ok});
    double worst = 0;
    for (size_t i = 0; i < m && ok; i++)
        for (size_t j = 0; j < m; j++) { // U^T (U h) = 1
            double sum = i == j ? -1 : 0;
            for (size_t a = 0; a <= i; a++) {
                double s = 0;
                for (size_t b = a; b < m; b++) s += u[a * m + b] * h[b * m + j];
                sum += u[a * m + i] * s;
            }
            worst = fmax(worst, fabs(sum));
            if (j < i) ok &= u[i * m + j] == 0;
        }
    CHECK(ok && worst < 0x1p-52 * 16 * n, "factor %s n %d: off by %g", dev->isa, n, worst);
    h[m * m - 1] = -1;
    dev->ops.factor(dev, &(lq_factor_args){.h = h, .n = n, .ok = &ok});
    CHECK(!ok, "factor %s n %d: an indefinite matrix passed", dev->isa, n);
    for (size_t i = 0; i < m * m; i++) h[i] = i % (m + 1) ? 0 : 2;
    h[0] = NAN;
    dev->ops.factor(dev, &(lq_factor_args){.h = h, .n = n, .ok = &ok});
    CHECK(!ok, "factor %s n %d: a matrix passed that is none", dev->isa, n);
    ck_done("factor");
}

static void check_solve(lq_dev *dev, int n, int cols) {
    const size_t m = (size_t)n, w = (size_t)cols;
    double *u = ck_buf(m * m * sizeof *u, 0), *b = ck_buf(m * w * sizeof *b, 0), *out = ck_buf(m * w * sizeof *b, 0);
    double *mid = ck_buf(m * sizeof *mid, 0), *size = ck_buf(m * sizeof *size, 0);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++) u[i * m + j] = j < i ? 0 : ck_uniform();
    for (size_t i = 0; i < m * w; i++) b[i] = out[i] = ck_uniform();
    dev->ops.solve(dev, &(lq_solve_args){.u = u, .n = n, .b = out, .cols = cols});
    int wrong = 0;
    for (size_t c = 0; c < w; c++) {
        for (size_t i = 0; i < m; i++) {
            mid[i] = size[i] = 0;
            for (size_t j = i; j < m; j++) {
                const double v = u[i * m + j] * b[j * w + c];
                mid[i] += v, size[i] += fabs(v);
            }
        }
        for (size_t i = 0; i < m; i++) {
            double sum = 0, all = 0;
            for (size_t j = 0; j <= i; j++) sum += u[j * m + i] * mid[j], all += fabs(u[j * m + i]) * size[j];
            wrong += fabs(out[i * w + c] - sum) > 0x1p-52 * 2 * (n + 2) * all;
        }
    }
    CHECK(wrong == 0, "solve %s n %d, %d columns: %d wrong", dev->isa, n, cols, wrong);
    ck_done("solve");
}

static void check_solving(lq_dev *dev) {
    double one = 1;
    bool ok;
    lq_err err;
    dev->ops.factor(dev, &(lq_factor_args){.h = &one, .n = 1, .ok = &ok});
    if (!dev->ops.sync(dev, &err)) {
        SKIP("gram, factor, solve %s: %s", dev->isa, err.text);
        return;
    }
    check_grams(dev);
    for (int n = 1; n < 200; n = n * 3 + 1) check_factor(dev, n), check_solve(dev, n, n > 3 ? 300 : 2);
}

void check_mix(lq_dev *dev) {
    static const scan_case scans[] = {{4, 2, 16, 32, false, false, false}, {3, 3, 17, 70, true, false, false},
                                      {4, 1, 24, 20, false, true, true},
                                      {40, 1, 16, 1, true, true, false}};
    if (ck_begin("route", dev->isa)) check_route(dev);
    if (ck_begin("mix", dev->isa)) {
        for (int k = 1; k < 9; k += 3) check_mix_slot(dev, 63 + 3 * k, k, k == 4);
        for (int k = 5; k < 140; k += 33) check_mix_odd(dev, k);
    }
    if (ck_begin("conv", dev->isa)) {
        conv_case(dev, 70, 4, true, true);
        conv_case(dev, 1, 2, false, false);
        conv_case(dev, 129, 3, false, true);
        conv_case(dev, 16, 1, true, false);
    }
    if (ck_begin("scan", dev->isa))
        for (size_t i = 0; i < sizeof scans / sizeof *scans; i++) check_scan_case(dev, &scans[i]);
    if (ck_begin("tally", dev->isa)) check_tallies(dev);
    if (ck_begin("gram factor solve", dev->isa)) check_solving(dev);
    if (!ck_begin("reduce gather", dev->isa)) return;
    lq_mat x = ck_mat(3, 20, 1), y = ck_mat(3, 20, 4);
    dev->ops.reduce(dev, &(lq_reduce_args){.x = x});
    dev->ops.gather(dev, &(lq_gather_args){.part = x, .whole = y});
    CHECK(ck_mat_same(&x, &y) && ck_gaps(&y), "gather %s", dev->isa);
    ck_done("gather");
}
