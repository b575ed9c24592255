// attn.c: attention over a paged cache, portable: the definition of the slot. Owns nothing.
//
// A head of a row walks the splits of LQ_SPLIT cache positions from position 0 on: scores, their maximum,
// exponentials, their sum and the weighted V, each in order of position; a split's result is then merged into
// what there is. So the bits depend on the row's own positions alone. K and V are what the cache says, also for
// tokens that were written just now.
#include "kernels/cpu/attn.h"
#include "kernels/math.h"
#include "kernels/cpu/slots.h"

enum { DIMS = 64, MOST_ROWS = 8 };

// Elements d0 .. d0 + n of K or V at a position, as f32. A block that was freed behind the window reads as 0.
static void kv_read(const lq_attn_args *a, int32_t seq, int head, bool v, int position, int d0, int n, float *out) {
    const lq_cache *c = &a->cache;
    int32_t block = lq_rows_table(a->rows, seq)[position / c->page];
    int at = position % c->page;
    if (block < 0) {
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    }
    size_t first = (size_t)at * (size_t)lq_cache_width(c, v) + (size_t)d0;
    const char *src = lq_cache_at(c, block, head, v) + first * lq_dtype_size(c->type);
    if (c->type == LQ_I8) {
        float s = lq_cache_scale(c, block, head, v)[at];
        for (int i = 0; i < n; i++) out[i] = (float)((const int8_t *)src)[i] * s;
        return;
    }
    lq_dtypes[c->type].to_f32(src, out, (size_t)n);
    float s = lq_cache_head_scale(c, head, v);
    if (s != 1.0f)
        for (int i = 0; i < n; i++) out[i] *= s;
}

// p[i] = exp(score - m) of the n positions from j0 on, 0 where the row does not see; their maximum and sum.
static lq_partial split_weigh(const lq_attn_args *a, int row, int head, const lq_sight *see, int j0, int n, float *p) {
    const float *q = lq_mat_row(&a->q, row) + (size_t)head * (size_t)a->cache.dk;
    int kv_head = head / (a->heads / a->cache.kv_heads), dk = a->cache.dk;
    lq_partial out = {-FLT_MAX, 0};
    for (int i = 0; i < n; i++) {
        float k[DIMS], s = 0;
        p[i] = 0;
        if (!(lq_sight_mask(see, j0 + i) & 1)) continue;
        for (int d = 0; d < dk; d += DIMS) {
            int w = dk - d < DIMS ? dk - d : DIMS;
            kv_read(a, a->rows->seq[row], kv_head, false, j0 + i, d, w, k);
            for (int e = 0; e < w; e++) s += q[d + e] * k[e];
        }
        s *= a->scale;
        p[i] = a->softcap != 0 ? a->softcap * lq_tanhf(s / a->softcap) : s;
        if (a->alibi) p[i] += lq_alibi(a, head, see->at, j0 + i);
        out.m = p[i] > out.m ? p[i] : out.m;
    }
    for (int i = 0; i < n; i++)
        if (lq_sight_mask(see, j0 + i) & 1) out.l += p[i] = lq_expf(p[i] - out.m);
    return out;
}

static void attn_head(void *arg, int task, int worker) {
    const lq_attn_args *a = arg;
    const lq_cache *c = &a->cache;
    (void)worker;
    int row = task / a->heads, head = task % a->heads, kv_head = head / (a->heads / c->kv_heads);
    lq_sight see = lq_sight_of(a, a->rows, row);
    lq_partial all = {-FLT_MAX, 0};
    float *y = lq_mat_row(&a->y, row) + (size_t)head * (size_t)c->dv, p[LQ_SPLIT];
    for (int d = 0; d < c->dv; d++) y[d] = 0;

    for (int j0 = see.from / LQ_SPLIT * LQ_SPLIT; j0 <= see.at; j0 += LQ_SPLIT) {
        int n = see.at + 1 - j0 < LQ_SPLIT ? see.at + 1 - j0 : LQ_SPLIT;
        lq_partial part = split_weigh(a, row, head, &see, j0, n, p);
        float m = part.m > all.m ? part.m : all.m, old = lq_expf(all.m - m), new = lq_expf(part.m - m);
        all = (lq_partial){m, all.l * old + part.l * new};
        for (int d = 0; d < c->dv; d += DIMS) {
            int w = c->dv - d < DIMS ? c->dv - d : DIMS;
            float o[DIMS] = {0}, v[DIMS];
            for (int i = 0; i < n; i++) {
                if (p[i] == 0) continue; // whatever a position that is not seen holds, it adds nothing
                kv_read(a, a->rows->seq[row], kv_head, true, j0 + i, d, w, v);
                for (int e = 0; e < w; e++) o[e] += p[i] * v[e];
            }
            for (int e = 0; e < w; e++) y[d + e] = y[d + e] * old + o[e] * new;
        }
    }
    float by = 1;
    if (a->sinks) { // one more score, with no V
        float m = a->sinks[head] > all.m ? a->sinks[head] : all.m;
        by = lq_expf(all.m - m);
        all.l = all.l * by + lq_expf(a->sinks[head] - m);
    }
    by = all.l == 0 ? 0 : by / all.l;
    for (int d = 0; d < c->dv; d++) y[d] = y[d] * by + 0.0f; // + 0: a zero has no sign
}

void lq_attn_c(lq_dev *d, const lq_attn_args *a) {
    lq_attn_args copy = *a;
    lq_pool_run(d->pool, attn_head, &copy, lq_rows_real(a->rows) * a->heads);
    lq_rows_blank(a->rows, &a->y);
}

// The results of every split of the rows that decode at once; a batch with more rows keeps
// all threads busy without them.
size_t lq_attn_work(const lq_dev_limits *l) {
    size_t rows = (size_t)(l->rows < MOST_ROWS ? l->rows : MOST_ROWS), splits = (size_t)(l->max_at / LQ_SPLIT + 1);
    size_t parts = rows * (size_t)l->heads * splits * ((size_t)l->dv * sizeof(float) + sizeof(lq_partial));
    return parts + ((size_t)l->rows + 1) * sizeof(int32_t) + 4096;
}
