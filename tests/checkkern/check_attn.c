// check_attn.c: kv_write, kv_copy and attention of a device. The truth is f64 over the bytes of the cache, read with
// this file's own understanding of the layout; every byte of the cache that nobody wrote is NaN. Then bits: a row in
// one piece of prefill, in chunks of 1, 7 and 64, in decode, beside other sequences, on 1, 2 and 3 threads.
#include "tests/checkkern/check_ops.h"

typedef struct world {
    const char *name;
    lq_dtype type;
    int page, heads, kv_heads, dk, dv, window, chunk;
    float softcap;
    bool sinks, v_in_k;
    int seqs, len[4]; // positions that each sequence ends with
    int alibi;        // 1: by distance, 2: coarse
} world;

typedef struct scene {
    const world *w;
    lq_cache cache;
    int blocks, table_stride, total;
    int32_t *tables;        // [seqs][table_stride]
    lq_mat q, k, v, sinks, slopes; // all rows of all sequences
} scene;

static int lengths(const world *w) {
    int n = 0;
    for (int s = 0; s < w->seqs; s++) n += w->len[s];
    return n;
}

static scene scene_make(const world *w) {
    scene c = {.w = w, .total = lengths(w)};
    int longest = 0;
    for (int s = 0; s < w->seqs; s++) longest = w->len[s] > longest ? w->len[s] : longest;
    c.table_stride = longest / w->page + 2;
    c.blocks = w->seqs * c.table_stride;
    c.tables = ck_buf((size_t)c.blocks * sizeof *c.tables, 4);
    for (int i = 0; i < c.blocks; i++) c.tables[i] = i;
    for (int i = c.blocks - 1; i > 0; i--) {
        const int j = ck_below(i + 1), t = c.tables[i];
        c.tables[i] = c.tables[j];
        c.tables[j] = t;
    }
    const size_t head = (size_t)w->page * (size_t)(w->dk + (w->v_in_k ? 0 : w->dv)) * lq_dtype_size(w->type);
    c.cache = (lq_cache){.type = w->type, .page = w->page, .kv_heads = w->kv_heads, .dk = w->dk, .dv = w->dv,
                         .v_in_k = w->v_in_k, .block_stride = head * (size_t)w->kv_heads + 64};
    c.cache.data = ck_buf(c.cache.block_stride * (size_t)c.blocks, 0);
    const size_t scales = w->type == LQ_I8 ? (size_t)c.blocks * (size_t)w->kv_heads * 2 * (size_t)w->page
        : (size_t)w->kv_heads * 2;
    if (w->type == LQ_I8 || w->type == LQ_E4M3) c.cache.scale = ck_buf(scales * sizeof(float), 4);
    for (size_t i = 0; w->type == LQ_E4M3 && i < scales; i++) c.cache.scale[i] = 0.05f + (float)i * 0.01f;
    c.q = ck_mat(c.total, w->heads * w->dk, 3);
    c.k = ck_mat(c.total, w->kv_heads * w->dk, 5);
    c.v = ck_mat(c.total, w->kv_heads * w->dv, 1);
    c.sinks = ck_mat(1, w->heads, 0);
    c.slopes = ck_mat(1, w->heads, 0);
    for (int h = 0; h < w->heads; h++) // the largest that models have is 1/2
        lq_mat_row(&c.slopes, 0)[h] = lq_bf16_f32(lq_f32_bf16(0.7f / (float)(1 << h)));
    return c;
}

static void scene_clear(scene *c) {
    memset(c->cache.data, 0xff, c->cache.block_stride * (size_t)c->blocks);
    if (c->w->type == LQ_I8)
        memset(c->cache.scale, 0xff, (size_t)c->blocks * (size_t)c->w->kv_heads * 2 * (size_t)c->w->page *
               sizeof(float));
}

// What the cache holds, in the words of ops.h.
static double stored(const scene *c, int seq, int head, bool v, int position, int d) {
    const world *w = c->w;
    const int block = c->tables[seq * c->table_stride + position / w->page], at = position % w->page;
    const size_t size = lq_dtype_size(w->type), k_bytes = (size_t)w->page * (size_t)w->dk * size;
    const size_t v_bytes = w->v_in_k ? 0 : (size_t)w->page * (size_t)w->dv * size;
    const char *p = (const char *)c->cache.data + (size_t)block * c->cache.block_stride + (size_t)head *
        (k_bytes + v_bytes);
    const bool own = v && !w->v_in_k;
    if (own) p += k_bytes;
    p += ((size_t)at * (size_t)(own ? w->dv : w->dk) + (size_t)d) * size;
    if (w->type == LQ_I8) {
        const float s = c->cache.scale[((size_t)(block * w->kv_heads + head) * 2 + own) * (size_t)w->page + (size_t)at];
        return (double)*(const int8_t *)p * (double)s;
    }
    float f;
    lq_dtypes[w->type].to_f32(p, &f, 1);
    return (double)f * (w->type == LQ_E4M3 ? (double)c->cache.scale[head * 2 + own] : 1);
}

// The rows first[s] .. first[s] + count[s] of each sequence as one batch.
typedef struct batch {
    lq_rows rows;
    int32_t seq[1100], pos[1100], first[5], from[1100]; // from: the row's place among all rows
} batch;
static void batch_make(const scene *c, batch *b, const int *first, const int *count) {
    int n = 0, base = 0;
    for (int s = 0; s < c->w->seqs; s++) {
        b->first[s] = n;
        for (int i = 0; i < count[s]; i++, n++)
            b->seq[n] = s, b->pos[n] = first[s] + i, b->from[n] = base + first[s] + i;
        base += c->w->len[s];
    }
    b->first[c->w->seqs] = n;
    b->rows = (lq_rows){.n = n, .seqs = c->w->seqs, .seq = b->seq, .pos = b->pos, .at = b->pos, .first = b->first,
                        .tables = c->tables, .table_stride = c->table_stride};
}

static lq_mat rows_taken(const batch *b, const lq_mat *all) {
    lq_mat m = ck_mat(b->rows.n, all->cols, 2);
    for (int r = 0; r < b->rows.n; r++)
        memcpy(lq_mat_row(&m, r), lq_mat_row(all, b->from[r]), (size_t)all->cols * sizeof(float));
    return m;
}

static lq_attn_args args_of(const scene *c, const lq_rows *rows, lq_mat q, lq_mat y) {
    const world *w = c->w;
    lq_attn_args a = {.rows = rows, .q = q, .cache = c->cache, .heads = w->heads, .scale = 1 / sqrtf((float)w->dk),
                      .softcap = w->softcap,
                      .window = w->window, .chunk = w->chunk, .sinks = w->sinks ? c->sinks.p : NULL,
                      .alibi = w->alibi ? c->slopes.p : NULL, .alibi_coarse = w->alibi == 2, .y = y};
    for (int r = 0; r < rows->n; r++) a.max_at = rows->at[r] > a.max_at ? rows->at[r] : a.max_at;
    return a;
}

// Writes and attends the rows of a batch; the results go to their places in y.
static void batch_run(lq_dev *d, const scene *c, const int *first, const int *count, lq_mat *y) {
    static batch b;
    batch_make(c, &b, first, count);
    lq_mat q = rows_taken(&b, &c->q), k = rows_taken(&b, &c->k), v = rows_taken(&b, &c->v);
    lq_mat out = ck_mat(b.rows.n, c->w->heads * c->w->dv, 4);
    d->ops.kv_write(d, &(lq_kv_write_args){.rows = &b.rows, .k = k, .v = c->w->v_in_k ? (lq_mat){0} : v,
                                           .cache = c->cache});
    const lq_attn_args a = args_of(c, &b.rows, q, out);
    d->ops.attn(d, &a);
    CHECK(ck_gaps(&out), "attn %s %s: gaps", d->isa, c->w->name);
    for (int r = 0; r < b.rows.n; r++)
        memcpy(lq_mat_row(y, b.from[r]), lq_mat_row(&out, r), (size_t)y->cols * sizeof(float));
}

static bool sees(const lq_attn_args *a, int row, int j) {
    const lq_rows *r = a->rows;
    if (j > r->at[row]) return false;
    if (r->tree && j >= r->tree_base[r->seq[row]]) return r->tree[row] >> (j - r->tree_base[r->seq[row]]) & 1;
    if (a->window && j <= r->pos[row] - a->window) return false;
    return !a->chunk || j / a->chunk == r->pos[row] / a->chunk;
}

// To 8 bits of mantissa, ties to even: by arithmetic, not by bits.
static double coarse(double x) {
    int e;
    const double m = frexp(x, &e);
    return ldexp(rint(ldexp(m, 8)), e - 8);
}

static double bias_of(const lq_attn_args *a, int head, int at, int j) {
    const double slope = (double)a->alibi[head];
    return a->alibi_coarse ? (double)a->scale * coarse(slope * coarse(j)) : slope * (j - at);
}

// A device with bf16 rounds what it multiplies to that, but where the cache has f32 or heads are small.
static bool coarsely(const lq_dev *dev, const world *w) { return dev->bf16 && w->type != LQ_F32 && w->dk >= 32; }
static double taken(const lq_dev *dev, const scene *c, double x) {
    return coarsely(dev, c->w) ? coarse((double)(float)x) : x;
}

// The rows of `a` against f64. A score is off by EPS for each of dk products and a few for its scale, and so is what it
// is compared with, a sink too; exp's argument is rounded by EPS of its size up to four times (three of them its
// scale's, to base 2); a sum has up to 512 terms and then one per split. With bf16 each weight and the sum of weights
// are off by 2^-9 more.
static int attn_wrong(const lq_dev *dev, const scene *c, const lq_attn_args *a) {
    static double p[4096];
    const world *w = c->w;
    const double weight_off = coarsely(dev, w) ? 0x1p-8 : 0;
    int wrong = 0;
    for (int r = 0; r < a->rows->n; r++)
        for (int h = 0; h < w->heads; h++) {
            const int seq = a->rows->seq[r], kv = h / (w->heads / w->kv_heads), n = a->rows->at[r] + 1;
            const float *q = lq_mat_row(&a->q, r) + h * w->dk;
            double most = a->sinks ? (double)a->sinks[h] : -INFINITY, l = 0;
            double off = a->sinks ? EPS * 2 * fabs((double)a->sinks[h]) : 0;
            for (int j = 0; j < n; j++) {
                double s = 0, size = 0;
                for (int d = 0; d < w->dk && sees(a, r, j); d++) {
                    const double x = taken(dev, c, (double)q[d]) * taken(dev, c, stored(c, seq, kv, false, j, d));
                    s += x, size += fabs(x);
                }
                const double chain = EPS * (w->dk + 4) * size * (double)a->scale;
                p[j] = s * (double)a->scale;
                off = fmax(off, chain);
                if (a->softcap != 0) p[j] = (double)a->softcap * tanh(p[j] / (double)a->softcap),
                    off = fmax(off, chain + EPS * 12 * fabs(p[j]));
                if (w->alibi) {
                    const double bias = bias_of(a, h, a->rows->at[r], j);
                    p[j] += bias;
                    off = fmax(off, EPS * (w->dk + 8) * size * (double)a->scale + EPS * 3 * (fabs(bias) + fabs(p[j])));
                }
                if (sees(a, r, j)) most = fmax(most, p[j]);
            }
            for (int j = 0; j < n; j++) l += p[j] = sees(a, r, j) ? exp(p[j] - most) : 0;
            if (a->sinks) l += exp((double)a->sinks[h] - most);
            for (int d = 0; d < w->dv; d++) {
                double sum = 0, room = 0;
                for (int j = 0; j < n; j++) {
                    if (p[j] == 0) continue;
                    const double v = taken(dev, c, stored(c, seq, kv, true, j, d));
                    sum += p[j] * v;
                    room += fabs(v) * 0x1p-126; // weights below the least normal number are 0
                    room += fabs(p[j] * v) * (2 * off + weight_off + EPS *
                                              ((n < 512 ? n : 512) + 12 * (n / 512 + 1) + 16 - 4 * log(p[j])));
                }
                wrong += !near(lq_mat_row(&a->y, r)[h * w->dv + d], sum / l, room / l);
            }
        }
    return wrong;
}

static void world_check(lq_dev *dev, lq_dev *one, lq_dev *two, const world *w) {
    static const int chunks[] = {1, 7, 64};
    static batch b;
    scene c = scene_make(w);
    lq_mat whole = ck_mat(c.total, w->heads * w->dv, 4), y = ck_mat(c.total, w->heads * w->dv, 4);
    const int zero[4] = {0};
    scene_clear(&c);
    batch_run(dev, &c, zero, w->len, &whole);
    batch_make(&c, &b, zero, w->len);
    lq_attn_args a = args_of(&c, &b.rows, c.q, whole);
    const int wrong = attn_wrong(dev, &c, &a);
    CHECK(wrong == 0, "attn %s %s: %d of %d values", dev->isa, w->name, wrong, c.total * w->heads * w->dv);
    a.y = y;
    one->ops.attn(one, &a);
    CHECK(ck_mat_same(&y, &whole), "attn %s %s: one thread has other bits", dev->isa, w->name);
    for (int i = 0; i < 3; i++) {
        scene_clear(&c);
        for (int at = 0;; at += chunks[i]) { // each sequence advances by a chunk until it has all its rows
            int first[4], count[4], any = 0;
            for (int s = 0; s < w->seqs; s++) {
                first[s] = at < w->len[s] ? at : w->len[s];
                count[s] = w->len[s] - first[s] < chunks[i] ? w->len[s] - first[s] : chunks[i];
                any += count[s];
                for (int p = 0; w->window && (p + 1) * w->page <= at - w->window; p++) // freed behind the window
                    c.tables[s * c.table_stride + p] |= INT32_MIN;
            }
            if (!any) break;
            static int32_t keep[4096];
            memcpy(keep, c.tables, (size_t)c.blocks * sizeof *keep);
            for (int t = 0; t < c.blocks; t++) c.tables[t] = c.tables[t] < 0 ? -1 : c.tables[t];
            batch_run(i == 1 ? two : dev, &c, first, count, &y);
            memcpy(c.tables, keep, (size_t)c.blocks * sizeof *keep);
        }
        for (int t = 0; t < c.blocks; t++) c.tables[t] &= INT32_MAX;
        CHECK(ck_mat_same(&y, &whole), "attn %s %s: chunks of %d have other bits", dev->isa, w->name, chunks[i]);
    }
    ck_done(w->name);
}

static const world worlds[] = {
    {"f32 mha page 16", LQ_F32, 16, 3, 3, 20, 20, 0, 0, 0, false, false, 2, {70, 33, 0, 0}, 0},
    {"f16 gqa page 32", LQ_F16, 32, 8, 2, 64, 64, 0, 0, 0, false, false, 3, {130, 1, 77, 0}, 0},
    {"bf16 gqa long page 64", LQ_BF16, 64, 4, 1, 32, 32, 0, 0, 0, false, false, 2, {700, 40, 0, 0}, 0},
    {"bf16 eight heads share K", LQ_BF16, 32, 16, 2, 64, 64, 0, 0, 0, false, false, 2, {100, 3, 0, 0}, 0},
    {"f16 seven heads, odd", LQ_F16, 16, 7, 1, 83, 70, 0, 0, 0, false, false, 2, {90, 21, 0, 0}, 0},
    {"f32 five heads, window", LQ_F32, 64, 5, 1, 128, 128, 50, 0, 0, false, false, 2, {150, 64, 0, 0}, 0},
    {"i8 six heads, wide", LQ_I8, 32, 6, 1, 256, 128, 0, 0, 0, false, false, 2, {50, 33, 0, 0}, 0},
    {"e4m3 eight heads", LQ_E4M3, 32, 8, 1, 64, 64, 0, 0, 0, false, false, 2, {80, 9, 0, 0}, 0},
    {"f16 several splits a task", LQ_F16, 32, 4, 4, 8, 8, 0, 0, 0, false, false, 1, {1060, 0, 0, 0}, 0},
    {"i8 page 32 sinks", LQ_I8, 32, 6, 2, 48, 48, 0, 0, 0, true, false, 2, {90, 12, 0, 0}, 0},
    {"bf16 window, sinks, softcap, odd", LQ_BF16, 16, 6, 2, 71, 35, 33, 0, 20, true, false, 2, {131, 7, 0, 0}, 0},
    {"f16 alibi, odd", LQ_F16, 16, 6, 6, 45, 19, 0, 0, 0, false, false, 2, {77, 33, 0, 0}, 1},
    {"e4m3 page 16 softcap", LQ_E4M3, 16, 4, 2, 33, 17, 0, 0, 20, false, false, 2, {60, 61, 0, 0}, 0},
    {"f32 window", LQ_F32, 16, 4, 2, 16, 16, 40, 0, 0, false, false, 2, {150, 30, 0, 0}, 0},
    {"f16 window long, sinks, softcap", LQ_F16, 32, 2, 1, 16, 16, 100, 0, 30, true, false, 1, {800, 0, 0, 0}, 0},
    {"bf16 chunk", LQ_BF16, 16, 2, 2, 24, 40, 0, 48, 0, false, false, 2, {130, 50, 0, 0}, 0},
    {"f32 mla", LQ_F32, 32, 5, 1, 144, 96, 0, 0, 0, false, true, 2, {80, 20, 0, 0}, 0},
    {"f16 mla", LQ_F16, 16, 3, 1, 288, 256, 0, 0, 0, false, true, 2, {45, 31, 0, 0}, 0},
    {"i8 mla", LQ_I8, 32, 2, 1, 576, 512, 0, 0, 0, false, true, 1, {20, 0, 0, 0}, 0},
    {"f32 alibi", LQ_F32, 16, 6, 6, 20, 20, 0, 0, 0, false, false, 2, {150, 33, 0, 0}, 1},
    {"f16 alibi long, window", LQ_F16, 32, 4, 1, 16, 16, 300, 0, 0, false, false, 1, {560, 0, 0, 0}, 1},
    {"f16 coarse alibi", LQ_F16, 32, 4, 2, 16, 16, 0, 0, 0, false, false, 2, {530, 20, 0, 0}, 2},
    {"f16 one row", LQ_F16, 64, 16, 2, 128, 128, 0, 0, 0, false, false, 4, {1, 2, 1, 3}, 0},
};

// A decode far into the cache, where a row's splits may be spread over threads; and a copied
// block is as good as the first.
static void check_long(lq_dev *dev, lq_dev *one) {
    static const world w = {"f16 decode", LQ_F16, 32, 8, 2, 40, 40, 0, 0, 0, false, false, 3, {1700, 513, 5, 0}, 0};
    static batch b;
    scene c = scene_make(&w);
    // first, count
    static const int steps[3][2][4] = {{{0, 0, 0}, {600, 480, 5}}, {{600, 480, 5}, {600, 33, 0}},
                                       {{1200, 513, 5}, {500, 0, 0}}};
    const int last[4] = {1699, 512, 4, 0}, ones[4] = {1, 1, 1, 0};
    lq_mat y = ck_mat(c.total, w.heads * w.dv, 4), z = ck_mat(c.total, w.heads * w.dv, 4);
    scene_clear(&c);
    for (int i = 0; i < 3; i++) batch_run(dev, &c, steps[i][0], steps[i][1], &y);
    batch_run(dev, &c, last, ones, &z);
    bool ok = true;
    for (int s = 0, base = 0; s < 3; base += w.len[s++])
        ok &= !memcmp(lq_mat_row(&y, base + last[s]), lq_mat_row(&z, base + last[s]), (size_t)y.cols * sizeof(float));
    CHECK(ok, "attn %s: a decode over many splits has other bits than prefill", dev->isa);
    batch_run(one, &c, last, ones, &z);
    for (int s = 0, base = 0; s < 3; base += w.len[s++])
        ok &= !memcmp(lq_mat_row(&y, base + last[s]), lq_mat_row(&z, base + last[s]), (size_t)y.cols * sizeof(float));
    CHECK(ok, "attn %s: a decode over many splits has other bits on one thread", dev->isa);
    // The last block of sequence 0 moves to the spare one at the end of its table.
    int32_t *t = c.tables + 1699 / 32, src = t[0], dst = c.tables[c.table_stride - 1];
    dev->ops.kv_copy(dev, &(lq_kv_copy_args){.cache = c.cache, .n = 1, .src = &src, .dst = &dst});
    *t = dst;
    memset((char *)c.cache.data + (size_t)src * c.cache.block_stride, 0xff, c.cache.block_stride);
    batch_make(&c, &b, last, ones);
    lq_mat q = rows_taken(&b, &c.q), out = ck_mat(3, w.heads * w.dv, 0);
    const lq_attn_args a = args_of(&c, &b.rows, q, out);
    dev->ops.attn(dev, &a);
    CHECK(!memcmp(out.p, lq_mat_row(&y, 1699), (size_t)y.cols * sizeof(float)), "kv_copy %s", dev->isa);
    ck_done("decode");
}

// However large scores are, the largest has weight 1, and a row that sees one position has its V.
static void check_huge(lq_dev *dev, lq_dtype type) {
    const world w = {"huge", type, 16, 4, 2, 40, 48, 0, 0, 0, false, false, 1, {40, 0, 0, 0}, 0};
    scene c = scene_make(&w);
    const int zero[4] = {0};
    lq_mat y = ck_mat(40, w.heads * w.dv, 4);
    int wrong = 0;
    for (int r = 0; r < 40; r++)
        for (int i = 0; i < c.q.cols; i++) lq_mat_row(&c.q, r)[i] *= 1e15f;
    scene_clear(&c);
    batch_run(dev, &c, zero, w.len, &y);
    for (int i = 0; i < y.cols; i++) {
        const int kv = i / w.dv / (w.heads / w.kv_heads);
        const double want = taken(dev, &c, stored(&c, 0, kv, true, 0, i % w.dv));
        wrong += (double)lq_mat_row(&y, 0)[i] != want;
        for (int r = 1; r < 40; r++) wrong += !isfinite(lq_mat_row(&y, r)[i]);
    }
    CHECK(wrong == 0, "attn %s, %d: %d values of huge scores", dev->isa, type, wrong);
    ck_done("huge");
}

// A token that is infinite or NaN reaches nobody before it; a tree hides its other branches.
static void check_hidden(lq_dev *dev, lq_dtype type) {
    const world w = {"hidden", type, 16, 4, 2, 40, 48, 0, 0, 0, false, false, 1, {40, 0, 0, 0}, 0};
    static batch b;
    scene c = scene_make(&w);
    const int zero[4] = {0};
    lq_mat y = ck_mat(40, w.heads * w.dv, 4), z = ck_mat(40, w.heads * w.dv, 4);
    for (int r = 0; r < 40; r++) // so that every position has a weight
        for (int i = 0; i < c.q.cols; i++) lq_mat_row(&c.q, r)[i] *= 0.02f;
    scene_clear(&c);
    batch_run(dev, &c, zero, w.len, &y);
    for (int i = 0; i < w.kv_heads * w.dv; i++) lq_mat_row(&c.v, 25)[i] = i % 2 ? INFINITY : NAN;
    lq_mat_row(&c.k, 30)[3] = NAN;
    scene_clear(&c);
    batch_run(dev, &c, zero, w.len, &z);
    lq_mat head_y = y, head_z = z;
    head_y.rows = head_z.rows = 25;
    CHECK(ck_mat_same(&head_y, &head_z), "attn %s: a later token's NaN reached an earlier one", dev->isa);
    bool ok = true;
    for (int r = 25; r < 40; r++)
        for (int i = 0; i < w.heads * w.dv; i++) ok &= !isfinite(lq_mat_row(&z, r)[i]);
    CHECK(ok, "attn %s: a NaN was lost", dev->isa);

    ck_fill(lq_mat_row(&c.v, 25), (size_t)c.v.cols);
    ck_fill(lq_mat_row(&c.k, 30), (size_t)c.k.cols);
    // Cache positions 30 .. 39 are a tree on 0 .. 29: two branches and their leaves.
    uint64_t tree[10];
    int32_t base = 30, pos[10];
    static const int parent[10] = {-1, 0, 1, 0, 3, 4, -1, 6, 7, 2};
    for (int i = 0; i < 10; i++) {
        tree[i] = (uint64_t)1 << i | (parent[i] < 0 ? 0 : tree[parent[i]]);
        pos[i] = parent[i] < 0 ? 30 : pos[parent[i]] + 1;
    }
    const int from[4] = {30, 0, 0, 0}, ten[4] = {10, 0, 0, 0};
    scene_clear(&c);
    batch_run(dev, &c, zero, w.len, &y);
    batch_make(&c, &b, from, ten);
    b.rows.pos = pos;
    b.rows.tree = tree;
    b.rows.tree_base = &base;
    lq_mat q = rows_taken(&b, &c.q), out = ck_mat(10, w.heads * w.dv, 4);
    const lq_attn_args a = args_of(&c, &b.rows, q, out);
    dev->ops.attn(dev, &a);
    CHECK(attn_wrong(dev, &c, &a) == 0, "attn %s: tree", dev->isa);
    ck_done("hidden");
}

// What kv_write leaves, value by value.
static void check_kv_write(lq_dev *dev) {
    static const lq_dtype types[] = {LQ_F32, LQ_F16, LQ_BF16, LQ_I8, LQ_E4M3};
    for (int t = 0; t < 5; t++) {
        const world w = {"kv_write", types[t], 16, 2, 2, 19, 7, 0, 0, 0, false, false, 2, {37, 5, 0, 0}, 0};
        static batch b;
        const int zero[4] = {0};
        scene c = scene_make(&w);
        scene_clear(&c);
        lq_mat_row(&c.k, 3)[2] = NAN;
        lq_mat_row(&c.k, 4)[20] = 1e6f;
        lq_mat_row(&c.v, 6)[1] = -INFINITY;
        for (int d = 0; d < 2 * w.dk; d++) {
            lq_mat_row(&c.k, 5)[d] = 0;
            lq_mat_row(&c.k, 7)[d] *= 1e-36f;
            lq_mat_row(&c.k, 8)[d] *= 1e-40f; // 127 over it is no number
        }
        batch_make(&c, &b, zero, w.len);
        dev->ops.kv_write(dev, &(lq_kv_write_args){.rows = &b.rows, .k = c.k, .v = c.v, .cache = c.cache});
        int wrong = 0;
        for (int r = 0; r < c.total; r++)
            for (int h = 0; h < 2; h++)
                for (int v = 0; v < 2; v++) {
                    const int n = v ? w.dv : w.dk;
                    const float *x = lq_mat_row(v ? &c.v : &c.k, r) + h * n;
                    double top = 0;
                    bool odd = false;
                    for (int d = 0; d < n; d++) top = fmax(top, fabs((double)x[d])), odd |= !isfinite(x[d]);
                    for (int d = 0; d < n; d++) {
                        const double got = stored(&c, b.seq[r], h, v, b.pos[r], d);
                        float want = x[d];
                        if (types[t] == LQ_I8) {
                            const double off = top < 0x1p-120 ? top : top / 127 * (0.5 + 127 * 0x1p-21);
                            wrong += odd ? !isnan(got) : !(fabs(got - (double)want) <= off);
                            continue;
                        }
                        const float s = types[t] == LQ_E4M3 ? c.cache.scale[h * 2 + v] : 1;
                        char code[4];
                        want *= 1 / s;
                        if (types[t] == LQ_E4M3) want = want > 448 ? 448 : want < -448 ? -448 : want;
                        lq_dtypes[types[t]].from_f32(&want, code, 1);
                        lq_dtypes[types[t]].to_f32(code, &want, 1);
                        wrong += isnan(want) ? !isnan(got) : got != (double)want * (double)s;
                    }
                }
        CHECK(wrong == 0, "kv_write %s %s: %d wrong", dev->isa, lq_dtypes[types[t]].name, wrong);
        ck_done("kv_write");
    }
}

void check_attn(lq_dev *dev) {
    if (!ck_begin("kv_write kv_copy attn", dev->isa)) return;
    lq_dev *one = twin_open(dev, 1), *two = twin_open(dev, 2);
    check_kv_write(dev);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) world_check(dev, one, two, &worlds[i]);
    check_long(dev, one);
    check_hidden(dev, LQ_F32);
    check_hidden(dev, LQ_BF16);
    check_huge(dev, LQ_F32);
    check_huge(dev, LQ_BF16);
    lq_dev_close(one);
    lq_dev_close(two);
}
