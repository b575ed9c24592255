// ops_vec.h: norm, rope, glu, scale, add, mix and the passes of sample for the ISA this is compiled for. Owns nothing.
//
// As in ref.c a row is one task, but glu of few rows has several. Sums are f64 in VEC lanes (column mod VEC), which are
// added at the end in order.
#include "kernels/cpu/sample.h"
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

#define rows_run NAME(rows_run)
#define mean_of NAME(mean_of)
#define squares NAME(squares)
#define squares_about NAME(squares_about)
#define norm_row NAME(norm_row)
#define heads_rotate NAME(heads_rotate)
#define rope_row NAME(rope_row)
#define glu_part NAME(glu_part)
#define scale_row NAME(scale_row)
#define add_row NAME(add_row)
#define mix_row NAME(mix_row)
#define exp_sum NAME(exp_sum)
#define slots_fill NAME(slots_fill)

typedef struct job { lq_dev *d; const void *a; } job;
static void rows_run(lq_dev *d, lq_task *fn, const void *a, int rows) { lq_pool_rows(d->pool, fn, &(job){d, a}, rows); }

// --- norm ---

static double mean_of(const float *x, int n) {
    vd sum = vd_set(0);
    for (int i = 0; i < n; i += VEC) sum = vd_add(sum, vd_of(vf_load_m(vm_first(n - i), x + i)));
    return vd_sum(sum) / n;
}

// The squares of x; what delta holds is added to x on the way.
static double squares(float *x, const float *delta, int n) {
    vd sum = vd_set(0);
    for (int i = 0; i < n; i += VEC) {
        vm k = vm_first(n - i);
        vf v = vf_load_m(k, x + i);
        if (delta) vf_store_m(k, x + i, v = vf_add(v, vf_load_m(k, delta + i)));
        sum = vd_square(vd_of(v), sum);
    }
    return vd_sum(sum);
}

static double squares_about(const float *x, int n, double mean) {
    vd sum = vd_set(0), m = vd_set(mean);
    int i = 0;
    for (; i + VEC <= n; i += VEC) sum = vd_square(vd_sub(vd_of(vf_load(x + i)), m), sum);
    double rest = 0;
    for (; i < n; i++) rest += (x[i] - mean) * (x[i] - mean);
    return vd_sum(sum) + rest;
}

static void norm_row(void *arg, int row, int worker) {
    const job *j = arg;
    const lq_norm_args *a = j->a;
    (void)worker;
    int n = a->x.cols;
    float *x = lq_mat_row(&a->x, row), *y = lq_mat_row(&a->y, row);
    double mean = 0, sum = squares(x, a->delta ? lq_mat_row(a->delta, row) : NULL, n);
    if (a->kind == LQ_NORM_LAYER) {
        mean = mean_of(x, n);
        sum = squares_about(x, n, mean);
    }
    vf by = vf_set((float)(1 / sqrt((a->kind == LQ_NORM_L2 ? sum : sum / n) + a->eps)));
    vf one = vf_set(a->plus_one ? 1.0f : 0.0f);
    vd m = vd_set(mean);
    const float *gamma = lq_norm_gamma(a, a->gamma, row), *beta = lq_norm_gamma(a, a->beta, row);
    for (int i = 0; i < n; i += VEC) {
        vm k = vm_first(n - i);
        vf v = vf_load_m(k, x + i);
        if (mean != 0) v = vf_of(vd_sub(vd_of(v), m));
        v = vf_mul(v, by);
        if (gamma) v = vf_mul(v, vf_add(one, vf_load_m(k, gamma + i)));
        if (beta) v = vf_add(v, vf_load_m(k, beta + i));
        vf_store_m(k, y + i, v);
    }
    lq_cpu_row_act(j->d, y, a->act, row, worker);
}

static void NAME(norm)(lq_dev *d, const lq_norm_args *a) { rows_run(d, norm_row, a, a->x.rows); }

// --- rope ---

// Rotates up to VEC pairs from pair i on, in each head.
static void heads_rotate(const lq_rope_args *a, const lq_mat *m, int row, int i, int n, const float *s,
                         const float *c) {
    float *x = lq_mat_row(m, row), *end = x + m->cols;
    if (a->interleaved) {
        for (x += 2 * i; x < end; x += a->head_dim)
            for (int p = 0; p < n; p++) {
                float u = x[2 * p], v = x[2 * p + 1];
                x[2 * p] = u * c[p] - v * s[p];
                x[2 * p + 1] = v * c[p] + u * s[p];
            }
        return;
    }
    vm k = vm_first(n);
    vf sine = vf_load(s), cosine = vf_load(c);
    int half = a->dim / 2;
    for (x += i; x < end; x += a->head_dim) {
        vf u = vf_load_m(k, x), v = vf_load_m(k, x + half);
        vf_store_m(k, x, vf_fnma(v, sine, vf_mul(u, cosine)));
        vf_store_m(k, x + half, vf_fma(u, sine, vf_mul(v, cosine)));
    }
}

static void rope_row(void *arg, int row, int worker) {
    const lq_rope_args *a = ((job *)arg)->a;
    (void)worker;
    float pos = (float)a->rows->pos[row], by = a->mscale != 0 ? a->mscale : 1.0f;
    const float q_by = lq_rope_q(a, a->rows->pos[row]);
    for (int i = 0; i < a->dim / 2; i += VEC) {
        int n = a->dim / 2 - i < VEC ? a->dim / 2 - i : VEC;
        float s[VEC] = {0}, c[VEC] = {0};
        for (int p = 0; p < n; p++) {
            double sine, cosine;
            lq_sincos((double)(pos * a->inv_freq[i + p]), &sine, &cosine);
            s[p] = (float)sine * by, c[p] = (float)cosine * by;
        }
        if (a->k.p) heads_rotate(a, &a->k, row, i, n, s, c);
        for (int p = 0; p < n; p++) s[p] *= q_by, c[p] *= q_by;
        if (a->q.p) heads_rotate(a, &a->q, row, i, n, s, c);
    }
}

static void NAME(rope)(lq_dev *d, const lq_rope_args *a) { rows_run(d, rope_row, a, lq_rows_real(a->rows)); }

// --- glu ---

INLINE vf unary(const lq_unary fn, vf x, vf alpha) {
    switch (fn) {
    case LQ_SILU: return vf_silu(x, alpha);
    case LQ_GELU: return vf_mul(x, vf_phi(x));
    case LQ_GELU_TANH: {
        vf u = vf_add(x, vf_mul(vf_mul(vf_mul(vf_set(0.044715f), x), x), x));
        return vf_div(x, vf_add(vf_set(1.0f), vf_exp(vf_mul(vf_set(-1.59576912f), u))));
    }
    case LQ_RELU: return vf_max(vf_zero(), x);
    case LQ_RELU2: return vf_mul(vf_max(vf_zero(), x), vf_max(vf_zero(), x));
    case LQ_SIGMOID: return vf_sigmoid(x);
    case LQ_TANH: return vf_tanh(x);
    case LQ_XIELU: break; // of several numbers
    }
    return x;
}

INLINE vf xielu(const lq_glu_args *a, vf x) {
    vf held = vf_min(vf_set(a->least), x), half = vf_mul(held, vf_set(0.5f)), line = vf_mul(vf_set(a->beta), x);
    vf grown = vf_mul(vf_tanh(half), vf_add(vf_exp(held), vf_set(1.0f))); // exp(x) - 1, precise near 0 too
    vf low = vf_fma(vf_set(a->below), vf_sub(grown, x), line);
    return vf_pick(vf_less(vf_zero(), x), vf_fma(vf_mul(vf_set(a->alpha), x), x, line), low);
}

INLINE void glu_cols(const lq_unary fn, const lq_glu_args *a, int row, int first, int end) {
    const float *gate = lq_mat_row(&a->gate, row), *up = a->up.p ? lq_mat_row(&a->up, row) : NULL;
    float *y = lq_mat_row(&a->y, row);
    vf alpha = vf_set(a->alpha != 0 ? a->alpha : 1.0f), most = vf_set(a->clamp), add = vf_set(a->up_add);
    for (int i = first; i < end; i += VEC) {
        vm k = vm_first(end - i);
        vf g = vf_load_m(k, gate + i), u = up ? vf_load_m(k, up + i) : vf_zero();
        if (a->clamp != 0) {
            g = vf_min(most, g);
            u = vf_max(vf_minus(most), vf_min(most, u));
        }
        g = fn == LQ_XIELU ? xielu(a, g) : unary(fn, g, alpha);
        vf_store_m(k, y + i, up ? vf_mul(g, vf_add(u, add)) : g);
    }
}

// Of few rows each is done in parts: columns, a whole row where that has to be.
enum { GLU_PART = 1024 };
typedef struct glu_job { lq_dev *d; const lq_glu_args *a; int parts, cols; } glu_job;

static void glu_part(void *arg, int task, int worker) {
    const glu_job *j = arg;
    const lq_glu_args *a = j->a;
    const int row = task / j->parts, first = task % j->parts * j->cols;
    const int end = a->y.cols - first < j->cols ? a->y.cols : first + j->cols;
    switch (a->fn) {
    case LQ_SILU: glu_cols(LQ_SILU, a, row, first, end); break;
    case LQ_GELU: glu_cols(LQ_GELU, a, row, first, end); break;
    case LQ_GELU_TANH: glu_cols(LQ_GELU_TANH, a, row, first, end); break;
    case LQ_RELU: glu_cols(LQ_RELU, a, row, first, end); break;
    case LQ_RELU2: glu_cols(LQ_RELU2, a, row, first, end); break;
    case LQ_SIGMOID: glu_cols(LQ_SIGMOID, a, row, first, end); break;
    case LQ_TANH: glu_cols(LQ_TANH, a, row, first, end); break;
    case LQ_XIELU: glu_cols(LQ_XIELU, a, row, first, end); break;
    }
    if (j->parts > 1) lq_cpu_part_act(j->d, lq_mat_row(&a->y, row) + first, a->act, row, first, end);
    else lq_cpu_row_act(j->d, lq_mat_row(&a->y, row), a->act, row, worker);
}

static void NAME(glu)(lq_dev *d, const lq_glu_args *a) {
    const int cols = a->y.cols, most = cols / GLU_PART, unit = lq_cpu_act_part(&a->y, a->act);
    const int wanted = a->y.rows ? lq_pool_threads(d->pool) / a->y.rows : 1, parts = wanted < most ? wanted : most;
    glu_job j = {.d = d, .a = a, .parts = 1, .cols = cols};
    if (unit && parts > 1) {
        j.cols = ((cols + parts - 1) / parts + unit - 1) / unit * unit;
        j.parts = (cols + j.cols - 1) / j.cols;
    }
    lq_pool_rows(d->pool, glu_part, &j, a->y.rows * j.parts);
}

// --- scale, add, mix ---

static void scale_row(void *arg, int row, int worker) {
    const lq_scale_args *a = ((job *)arg)->a;
    (void)worker;
    const float *x = lq_mat_row(&a->x, row);
    float *y = lq_mat_row(&a->y, row);
    vf by = vf_set(a->scale), cap = vf_set(a->cap), limit = vf_set(a->limit);
    for (int i = 0; i < a->x.cols; i += VEC) {
        vm k = vm_first(a->x.cols - i);
        vf v = vf_load_m(k, x + i);
        v = vf_mul(a->by ? vf_mul(v, vf_load_m(k, a->by + i)) : v, by);
        if (a->cap != 0) v = vf_mul(vf_tanh(vf_div(v, cap)), cap);
        if (a->limit != 0) v = vf_max(vf_minus(limit), vf_min(limit, v)); // the second where one is NaN
        vf_store_m(k, y + i, v);
    }
}

static void NAME(scale)(lq_dev *d, const lq_scale_args *a) { rows_run(d, scale_row, a, a->x.rows); }

static void add_row(void *arg, int row, int worker) {
    const lq_add_args *a = ((job *)arg)->a;
    (void)worker;
    const float *x = lq_mat_row(&a->x, row);
    float *y = lq_mat_row(&a->y, row);
    vf by = vf_set(a->scale != 0 ? a->scale : 1.0f);
    for (int i = 0; i < a->x.cols; i += VEC) {
        vm k = vm_first(a->x.cols - i);
        vf_store_m(k, y + i, vf_fma(vf_load_m(k, x + i), by, vf_load_m(k, y + i)));
    }
}

static void NAME(add)(lq_dev *d, const lq_add_args *a) { rows_run(d, add_row, a, a->x.rows); }

static void mix_row(void *arg, int row, int worker) {
    const lq_mix_args *a = ((job *)arg)->a;
    (void)worker;
    const float *weight = a->weight ? a->weight + (size_t)row * (size_t)a->top_k : NULL;
    float *y = lq_mat_row(&a->y, row);
    for (int i = 0; i < a->y.cols; i += VEC) {
        vm k = vm_first(a->y.cols - i);
        vf sum = vf_zero();
        for (int s = 0; s < a->top_k; s++)
            sum = vf_fma(vf_set(weight ? weight[s] : 1), vf_load_m(k, lq_mat_row(&a->x, row * a->top_k + s) + i), sum);
        vf_store_m(k, y + i, a->fresh ? sum : vf_add(vf_load_m(k, y + i), sum));
    }
}

static void NAME(mix)(lq_dev *d, const lq_mix_args *a) { rows_run(d, mix_row, a, a->y.rows); }

// --- sample ---

static float NAME(most)(const float *x, int n) {
    vf best = vf_set(-INFINITY);
    bool nan = false;
    for (int i = 0; i < n; i += VEC) {
        vm k = vm_first(n - i);
        vf v = vf_pick(k, vf_load_m(k, x + i), best);
        nan |= vf_any_nan(v);
        best = vf_max(v, best);
    }
    return nan ? NAN : vf_most(best);
}

static double exp_sum(const float *x, int n, float m) {
    vd sum = vd_set(0);
    for (int i = 0; i < n; i += VEC) {
        vm k = vm_first(n - i);
        sum = vd_add(sum, vd_of(vf_only(k, vf_exp(vf_sub(vf_load_m(k, x + i), vf_set(m))))));
    }
    return vd_sum(sum);
}

static void NAME(sample)(lq_dev *d, const lq_sample_args *a) {
    static const lq_logit_passes passes = {NAME(most), exp_sum};
    lq_sample_with(d, a, &passes);
}

static void slots_fill(lq_ops *o) {
    o->norm = NAME(norm);
    o->rope = NAME(rope);
    o->attn = NAME(lq_attn);
    o->glu = NAME(glu);
    o->scale = NAME(scale);
    o->add = NAME(add);
    o->mix = NAME(mix);
    o->sample = NAME(sample);
}
