// ref.c: the plain slots of a CPU in portable C: each function is the definition of its slot; and the table of all
// portable ones. Owns nothing.
//
// A row of the result is one task and is computed by one thread, so that neither the
// batch nor the threads decide a bit.
#include "kernels/cpu/attn.h"
#include "kernels/element.h"
#include "kernels/cpu/sample.h"
#include "kernels/cpu/slots.h"

// What a task is given: the device and the arguments of the slot.
typedef struct job { lq_dev *d; const void *a; } job;
static void rows_run(lq_dev *d, lq_task *fn, const void *a, int rows) { lq_pool_rows(d->pool, fn, &(job){d, a}, rows); }

static void embed_row(void *arg, int row, int worker) {
    const lq_embed_args *a = ((job *)arg)->a;
    (void)worker;
    float *y = lq_mat_row(&a->y, row);
    lq_weight_row(a->w, a->ids[row], y);
    if (a->scale != 0)
        for (int i = 0; i < a->y.cols; i++) y[i] *= a->scale;
}

static void embed(lq_dev *d, const lq_embed_args *a) { rows_run(d, embed_row, a, a->y.rows); }

static void norm_row(void *arg, int row, int worker) {
    const job *j = arg;
    const lq_norm_args *a = j->a;
    (void)worker;
    int n = a->x.cols;
    float *x = lq_mat_row(&a->x, row), *y = lq_mat_row(&a->y, row);
    if (a->delta) {
        const float *delta = lq_mat_row(a->delta, row);
        for (int i = 0; i < n; i++) x[i] += delta[i];
    }
    double mean = 0, sum = 0;
    if (a->kind == LQ_NORM_LAYER) {
        for (int i = 0; i < n; i++) mean += x[i];
        mean /= n;
    }
    for (int i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
    float by = (float)(1 / sqrt((a->kind == LQ_NORM_L2 ? sum : sum / n) + a->eps)), one = a->plus_one ? 1.0f : 0.0f;
    const float *gamma = lq_norm_gamma(a, a->gamma, row), *beta = lq_norm_gamma(a, a->beta, row);
    for (int i = 0; i < n; i++) {
        float v = (float)(x[i] - mean) * by;
        if (gamma) v *= one + gamma[i];
        y[i] = beta ? v + beta[i] : v;
    }
    lq_cpu_row_act(j->d, y, a->act, row, worker);
}

static void norm(lq_dev *d, const lq_norm_args *a) { rows_run(d, norm_row, a, a->x.rows); }

// Rotates the pairs of every head of one row by the angles pos * inv_freq, an f32 product
// as the models were trained with.
static void rope_row(void *arg, int row, int worker) {
    const lq_rope_args *a = ((job *)arg)->a;
    (void)worker;
    float pos = (float)a->rows->pos[row], by = a->mscale != 0 ? a->mscale : 1.0f;
    int half = a->dim / 2, near = a->interleaved ? 2 : 1, far = a->interleaved ? 1 : half;
    const lq_mat *mats[2] = {&a->k, &a->q};
    const float q_by = lq_rope_q(a, a->rows->pos[row]);
    for (int i = 0; i < half; i++) {
        double sine, cosine;
        lq_sincos((double)(pos * a->inv_freq[i]), &sine, &cosine);
        float s = (float)sine * by, c = (float)cosine * by;
        for (int m = 0; m < 2; m++) {
            if (m == 1) s *= q_by, c *= q_by;
            if (!mats[m]->p) continue;
            float *x = lq_mat_row(mats[m], row) + i * near, *end = lq_mat_row(mats[m], row) + mats[m]->cols;
            for (; x < end; x += a->head_dim) {
                float u = x[0], v = x[far];
                x[0] = u * c - v * s;
                x[far] = v * c + u * s;
            }
        }
    }
}

static void rope(lq_dev *d, const lq_rope_args *a) { rows_run(d, rope_row, a, lq_rows_real(a->rows)); }

// One head's K or V into its place in the cache.
static void kv_store(const lq_q8 *by, const lq_cache *c, const float *x, int32_t block, int at, int head, bool v) {
    const int n = lq_cache_width(c, v);
    char *dst = lq_cache_at(c, block, head, v) + (size_t)at * (size_t)n * lq_dtype_size(c->type);
    if (c->type == LQ_F32) {
        memcpy(dst, x, (size_t)n * sizeof *x);
    } else if (c->type == LQ_I8) {
        const uint32_t top = by->top(x, n);
        const float most = lq_float(top), inverse = 127.0f / most;
        const lq_q8_by code = {.inverse = inverse > FLT_MAX ? FLT_MAX : inverse, .least = -127};
        const bool finite = top < 0x7f800000;
        lq_cache_scale(c, block, head, v)[at] = finite ? most / 127.0f : NAN;
        if (finite && top) by->codes(x, n, &code, (int8_t *)dst);
        else memset(dst, 0, (size_t)n);
    } else {
        by->narrow(x, n, c->type, c->type == LQ_E4M3 ? 1.0f / lq_cache_head_scale(c, head, v) : 1, dst);
    }
}

static void kv_write_row(void *arg, int row, int worker) {
    const lq_kv_write_args *a = ((job *)arg)->a;
    const lq_q8 *by = lq_cpu_of(((job *)arg)->d)->q8;
    const lq_cache *c = &a->cache;
    (void)worker;
    int at = a->rows->at[row];
    int32_t block = lq_rows_table(a->rows, a->rows->seq[row])[at / c->page];
    for (int h = 0; h < c->kv_heads; h++) {
        kv_store(by, c, lq_mat_row(&a->k, row) + (size_t)h * (size_t)c->dk, block, at % c->page, h, false);
        if (!c->v_in_k)
            kv_store(by, c, lq_mat_row(&a->v, row) + (size_t)h * (size_t)c->dv, block, at % c->page, h, true);
    }
}

static void kv_write(lq_dev *d, const lq_kv_write_args *a) {
    if (a->rope) d->ops.rope(d, a->rope);
    rows_run(d, kv_write_row, a, lq_rows_real(a->rows));
}

// In order, one after another: a block may be copied to and then from.
static void kv_copy(lq_dev *d, const lq_kv_copy_args *a) {
    (void)d;
    const lq_cache *c = &a->cache;
    size_t scales = (size_t)c->kv_heads * 2 * (size_t)c->page;
    for (int i = 0; i < a->n; i++) {
        size_t src = (size_t)a->src[i], dst = (size_t)a->dst[i];
        memcpy((char *)c->data + dst * c->block_stride, (char *)c->data + src * c->block_stride, c->block_stride);
        if (c->type == LQ_I8) memcpy(c->scale + dst * scales, c->scale + src * scales, scales * sizeof *c->scale);
    }
}

static void glu_row(void *arg, int row, int worker) {
    const job *j = arg;
    const lq_glu_args *a = j->a;
    (void)worker;
    const float *gate = lq_mat_row(&a->gate, row), *up = a->up.p ? lq_mat_row(&a->up, row) : NULL;
    float *y = lq_mat_row(&a->y, row);
    for (int i = 0; i < a->y.cols; i++) y[i] = lq_glu_at(a, gate[i], up ? up + i : NULL);
    lq_cpu_row_act(j->d, y, a->act, row, worker);
}

static void glu(lq_dev *d, const lq_glu_args *a) { rows_run(d, glu_row, a, a->y.rows); }

static void scale_row(void *arg, int row, int worker) {
    const lq_scale_args *a = ((job *)arg)->a;
    (void)worker;
    const float *x = lq_mat_row(&a->x, row);
    float *y = lq_mat_row(&a->y, row);
    for (int i = 0; i < a->x.cols; i++) y[i] = lq_scale_at(a, x[i], i);
}

static void scale(lq_dev *d, const lq_scale_args *a) { rows_run(d, scale_row, a, a->x.rows); }

static void add_row(void *arg, int row, int worker) {
    const lq_add_args *a = ((job *)arg)->a;
    (void)worker;
    const float *x = lq_mat_row(&a->x, row);
    float *y = lq_mat_row(&a->y, row), by = a->scale != 0 ? a->scale : 1.0f;
    for (int i = 0; i < a->x.cols; i++) y[i] += by * x[i];
}

static void add(lq_dev *d, const lq_add_args *a) { rows_run(d, add_row, a, a->x.rows); }

// One rank: a sum over ranks is what is there already, and the parts side by side are the one part.
static void reduce(lq_dev *d, const lq_reduce_args *a) { (void)d, (void)a; }
static void gather(lq_dev *d, const lq_gather_args *a) {
    (void)d;
    if (a->part.p == a->whole.p) return;
    for (int r = 0; r < a->part.rows; r++)
        memcpy(lq_mat_row(&a->whole, r), lq_mat_row(&a->part, r), (size_t)a->part.cols * sizeof(float));
}

// --- sample: the two passes of sample.h ---

enum { LANES = 16 };

static float most(const float *x, int n) {
    float best = -INFINITY, nan = 0;
    for (int i = 0; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        nan = x[i] != x[i] ? NAN : nan;
    }
    return nan == 0 ? best : nan;
}

static double exp_sum(const float *x, int n, float m) {
    double lane[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        float e[LANES];
        for (int k = 0; k < LANES; k++) e[k] = lq_expf(x[i + k] - m);
        for (int k = 0; k < LANES; k++) lane[k] += e[k];
    }
    for (int k = 0; i < n; i++, k++) lane[k] += lq_expf(x[i] - m);
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

static void sample(lq_dev *d, const lq_sample_args *a) {
    static const lq_logit_passes passes = {most, exp_sum};
    lq_sample_with(d, a, &passes);
}

void lq_cpu_c_slots(lq_ops *o) {
    o->embed = embed;
    o->norm = norm;
    o->quant = lq_quant_cpu;
    o->matmul = lq_matmul_cpu;
    o->rope = rope;
    o->kv_write = kv_write;
    o->kv_copy = kv_copy;
    o->attn = lq_attn_c;
    o->glu = glu;
    o->scale = scale;
    o->add = add;
    o->route = lq_route_c;
    o->moe = lq_moe_cpu;
    o->mix = lq_mix_c;
    o->conv = lq_conv_c;
    o->scan = lq_scan_c;
    o->sample = sample;
    o->tally = lq_tally_c;
    o->gram = lq_gram_c;
    o->solver = lq_solver_c;
    o->factor = lq_factor_c;
    o->solve = lq_solve_c;
    o->refine = lq_refine_c;
    o->round = lq_round_c;
    o->choose = lq_choose_c;
    o->arrange = lq_arrange_c;
    o->tries = lq_tries_cpu;
    o->reduce = reduce;
    o->gather = gather;
}
