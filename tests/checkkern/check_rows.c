// check_rows.c: what every slot that takes lq_rows owes a batch that is not dense: sequences without rows, slots in any
// order among slots of others, rows of padding behind the last sequence. The same rows as a plain batch (sequences
// numbered as they come, no slot, no padding) are the truth, bit for bit; what belongs to nobody in the batch must keep
// every byte. Padding rows have numbers (seq, pos, at) that point into the first sequence or nowhere; using the table
// of a foreign slot ends the program.
#include "tests/checkkern/check_ops.h"

enum { SEQS = 7, SLOTS = 11, PAD = 5, MOST = 700 };

// Rows of each sequence, and where its first one stands in the cache.
typedef struct shape { const char *name; int count[SEQS], past[SEQS]; } shape;
static const shape shapes[] = {
    {"decode", {0, 1, 0, 0, 1, 1, 0}, {0, 5, 9, 0, 33, 0, 2}},
    {"long decode", {1, 0, 0, 1, 0, 0, 0}, {1500, 3, 0, 700, 0, 0, 0}}, // few rows: splits become tasks of their own
    {"prefill", {0, 40, 1, 0, 130, 7, 0}, {0, 0, 60, 0, 20, 511, 0}},
    {"last has rows", {3, 0, 0, 0, 0, 0, 9}, {0, 0, 0, 0, 0, 0, 30}},
    {"nobody", {0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}},
};

typedef struct pair {
    lq_rows plain, odd; // odd: SEQS sequences in slots, padded; plain: the sequences with rows, one after another
    // real: the plain number of a sequence
    int32_t seq[2][MOST], pos[2][MOST], first[2][SEQS + 1], slot[SEQS], real[SEQS];
    int32_t *tables[2];
    int most_at;
} pair;

// Slots are a random choice of SLOTS; blocks of the plain tables are numbered as they come,
// and both name the same blocks.
static void pair_make(pair *p, const shape *s, int page) {
    int32_t slots[SLOTS];
    int rows = 0, seqs = 0, stride = 0;
    for (int i = 0; i < SLOTS; i++) slots[i] = i;
    for (int i = SLOTS - 1; i > 0; i--) {
        const int j = ck_below(i + 1), t = slots[i];
        slots[i] = slots[j], slots[j] = t;
    }
    for (int q = 0; q < SEQS; q++)
        stride = (s->past[q] + s->count[q]) / page + 1 > stride ? (s->past[q] + s->count[q]) / page + 1 : stride;
    p->tables[0] = ck_buf((size_t)SEQS * (size_t)stride * sizeof(int32_t), 4);
    p->tables[1] = ck_buf((size_t)SLOTS * (size_t)stride * sizeof(int32_t), 4);
    for (int i = 0; i < SLOTS * stride; i++) p->tables[1][i] = INT32_MAX / 2;
    p->most_at = 0;
    for (int q = 0; q < SEQS; q++) {
        p->slot[q] = slots[q];
        p->first[1][q] = rows;
        p->real[q] = s->count[q] ? seqs : -1;
        for (int i = 0; i < s->count[q]; i++, rows++) {
            p->seq[0][rows] = seqs, p->seq[1][rows] = q;
            p->pos[0][rows] = p->pos[1][rows] = s->past[q] + i;
            p->most_at = s->past[q] + i > p->most_at ? s->past[q] + i : p->most_at;
        }
        if (!s->count[q]) continue;
        for (int b = 0; b < stride; b++)
            p->tables[0][seqs * stride + b] = p->tables[1][slots[q] * stride + b] = seqs * stride + b;
        p->first[0][seqs++] = rows - s->count[q];
    }
    p->first[0][seqs] = p->first[1][SEQS] = rows;
    for (int r = rows; r < rows + PAD; r++)
        p->seq[1][r] = r % 2 ? INT32_MIN + 1 : 0, p->pos[1][r] = r % 2 ? INT32_MIN + 2 : 0;
    p->plain = (lq_rows){.n = rows, .seqs = seqs, .seq = p->seq[0], .pos = p->pos[0], .at = p->pos[0],
                         .first = p->first[0], .tables = p->tables[0], .table_stride = stride};
    p->odd = (lq_rows){.n = rows + PAD, .seqs = SEQS, .seq = p->seq[1], .pos = p->pos[1], .at = p->pos[1],
                       .first = p->first[1], .slot = p->slot, .tables = p->tables[1], .table_stride = stride};
}

// The rows of `m` and then padding of NaN.
static lq_mat padded(const lq_mat *m) {
    lq_mat p = ck_mat(m->rows + PAD, m->cols, 3);
    for (int r = 0; r < p.rows; r++) {
        if (r < m->rows) memcpy(lq_mat_row(&p, r), lq_mat_row(m, r), (size_t)m->cols * sizeof(float));
        for (int c = 0; c < m->cols && r >= m->rows; c++) lq_mat_row(&p, r)[c] = NAN;
    }
    return p;
}

// Real rows equal `plain`; those of padding are 0, or NaN still.
static bool padded_true(const lq_mat *odd, const lq_mat *plain, bool zero) {
    bool ok = ck_mat_same(plain, odd) && ck_gaps(odd);
    for (int r = plain->rows; r < odd->rows; r++)
        for (int c = 0; c < odd->cols; c++) ok &= zero ? lq_mat_row(odd, r)[c] == 0 : isnan(lq_mat_row(odd, r)[c]);
    return ok;
}

static void rows_rope(lq_dev *dev, const pair *p, const char *name) {
    lq_mat q = ck_mat(p->plain.n, 4 * 24, 3), k = ck_mat(p->plain.n, 2 * 24, 3), q1 = padded(&q), k1 = padded(&k);
    float freq[8];
    for (int i = 0; i < 8; i++) freq[i] = (float)(1 + ck_uniform() / 2);
    lq_rope_args a = {.rows = &p->plain, .inv_freq = freq, .dim = 16, .head_dim = 24, .q = q, .k = k};
    dev->ops.rope(dev, &a);
    a.rows = &p->odd, a.q = q1, a.k = k1;
    dev->ops.rope(dev, &a);
    CHECK(padded_true(&q1, &q, false) && padded_true(&k1, &k, false), "rope %s %s: padding, slots", dev->isa, name);
    ck_done("rope of odd rows");
}

static lq_mat copied(const lq_mat *m) {
    lq_mat c = ck_mat(m->rows, m->cols, 3);
    for (int r = 0; r < m->rows; r++) memcpy(lq_mat_row(&c, r), lq_mat_row(m, r), (size_t)m->cols * sizeof(float));
    return c;
}

// kv_write with a rope is rope and then kv_write.
static void rows_turned(lq_dev *dev, const pair *p, const char *name) {
    enum { KV_HEADS = 2, D = 24, PAGE = 16 };
    const size_t stride = KV_HEADS * PAGE * 2 * D * sizeof(float);
    const size_t bytes = stride * SEQS * (size_t)p->plain.table_stride;
    float freq[8];
    for (int i = 0; i < 8; i++) freq[i] = (float)(1 + ck_uniform() / 2);
    const lq_mat q = ck_mat(p->odd.n, 4 * D, 3), k = ck_mat(p->odd.n, KV_HEADS * D, 3), v = copied(&k);
    const lq_mat q1 = copied(&q), k1 = copied(&k);
    lq_rope_args turn = {.rows = &p->odd, .inv_freq = freq, .dim = 16, .head_dim = D, .q = q, .k = k};
    lq_kv_write_args a = {.rows = &p->odd, .k = k, .v = v};
    a.cache = (lq_cache){.type = LQ_F32, .page = PAGE, .kv_heads = KV_HEADS, .dk = D, .dv = D, .block_stride = stride};
    void *data[2];
    for (int i = 0; i < 2; i++) data[i] = memset(ck_buf(bytes, 0), 0xff, bytes);
    dev->ops.rope(dev, &turn);
    a.cache.data = data[0];
    dev->ops.kv_write(dev, &a);
    turn.q = q1, turn.k = k1;
    a.k = k1, a.rope = &turn, a.cache.data = data[1];
    dev->ops.kv_write(dev, &a);
    CHECK(ck_mat_same(&q, &q1) && ck_mat_same(&k, &k1) && !memcmp(data[0], data[1], bytes),
          "kv_write with a rope %s %s: other bits than by both", dev->isa, name);
    ck_done("kv_write with a rope");
}

// kv_write and attn. Both caches begin as NaN in every byte: what is not written stays that way.
static void rows_attn(lq_dev *dev, lq_dev *one, const pair *p, const char *name, lq_dtype type, bool v_in_k) {
    enum { HEADS = 4, KV_HEADS = 2, DK = 20, DV = 12, PAGE = 16 };
    const size_t blocks = (size_t)SEQS * (size_t)p->plain.table_stride, width = DK + (v_in_k ? 0 : DV);
    lq_cache cache[2];
    void *data[2];
    const size_t stride = KV_HEADS * PAGE * width * lq_dtype_size(type);
    const size_t scales = type == LQ_I8 ? blocks * KV_HEADS * 2 * PAGE : KV_HEADS * 2;
    lq_mat q = ck_mat(p->plain.n, HEADS * DK, 2), k = ck_mat(p->plain.n, KV_HEADS * DK, 2);
    lq_mat v = ck_mat(p->plain.n, KV_HEADS * DV, 2);
    lq_mat past_k = ck_mat((int)blocks * PAGE, KV_HEADS * DK, 0), past_v = ck_mat((int)blocks * PAGE, KV_HEADS * DV, 0);
    lq_mat y = ck_mat(p->plain.n, HEADS * DV, 2), y1 = padded(&y), y2 = padded(&y);
    for (int i = 0; i < 2; i++) {
        data[i] = ck_buf(stride * blocks, 0);
        memset(data[i], 0xff, stride * blocks);
        cache[i] = (lq_cache){.type = type, .data = data[i], .page = PAGE, .kv_heads = KV_HEADS, .dk = DK, .dv = DV,
                              .block_stride = stride, .v_in_k = v_in_k};
        if (type != LQ_I8 && type != LQ_E4M3) continue;
        cache[i].scale = ck_buf(scales * sizeof(float), 4);
        for (size_t s = 0; s < scales; s++) cache[i].scale[s] = type == LQ_I8 ? NAN : 0.25f;
    }
    for (int s = 0; s < p->plain.seqs; s++) // what came before this batch, token by token
        for (int at = 0; at < p->plain.pos[p->plain.first[s]]; at++) {
            const int32_t seq = s, pos = at;
            int32_t first[SEQS + 1] = {0};
            for (int i = s + 1; i <= p->plain.seqs; i++) first[i] = 1;
            const lq_rows row = {.n = 1, .seqs = p->plain.seqs, .seq = &seq, .pos = &pos, .at = &pos, .first = first,
                                 .tables = p->plain.tables, .table_stride = p->plain.table_stride};
            const lq_mat mk = row_of(&past_k, s * p->plain.table_stride * PAGE + at);
            const lq_mat mv = row_of(&past_v, s * p->plain.table_stride * PAGE + at);
            for (int i = 0; i < 2; i++)
                one->ops.kv_write(one, &(lq_kv_write_args){.rows = &row, .k = mk, .v = v_in_k ? (lq_mat){0} : mv,
                                                           .cache = cache[i]});
        }
    const lq_mat k1 = padded(&k), v1 = padded(&v), q1 = padded(&q);
    dev->ops.kv_write(dev, &(lq_kv_write_args){.rows = &p->plain, .k = k, .v = v_in_k ? (lq_mat){0} : v,
                                               .cache = cache[0]});
    dev->ops.kv_write(dev, &(lq_kv_write_args){.rows = &p->odd, .k = k1, .v = v_in_k ? (lq_mat){0} : v1,
                                               .cache = cache[1]});
    CHECK(!memcmp(data[0], data[1], stride * blocks) &&
          (type != LQ_I8 || !memcmp(cache[0].scale, cache[1].scale, scales * sizeof(float))),
          "kv_write %s %s %s: padding, slots", dev->isa, name, lq_dtypes[type].name);
    lq_attn_args a = {.rows = &p->plain, .q = q, .cache = cache[0], .heads = HEADS, .scale = 0.2f, .y = y,
                      .max_at = p->most_at};
    dev->ops.attn(dev, &a);
    a.rows = &p->odd, a.q = q1, a.y = y1, a.cache = cache[1];
    dev->ops.attn(dev, &a);
    CHECK(padded_true(&y1, &y, true), "attn %s %s %s: padding, slots", dev->isa, name, lq_dtypes[type].name);
    a.y = y2, a.max_at = p->most_at + 1300; // a bound
    one->ops.attn(one, &a);
    CHECK(padded_true(&y2, &y, true), "attn %s %s %s: padding, slots on one thread", dev->isa, name,
          lq_dtypes[type].name);
    dev->ops.attn(dev, &a);
    CHECK(padded_true(&y2, &y, true), "attn %s %s %s: max_at as a bound", dev->isa, name, lq_dtypes[type].name);
    ck_done("attn of odd rows");
}

// States of slots that are not in the batch, or whose sequence has no rows, keep what they had;
// the others are those of `plain`.
static bool states_true(const pair *p, const float *odd, const float *plain, const float *init, size_t cells) {
    bool ok = true;
    for (int s = 0; s < SLOTS; s++) {
        const float *want = init + (size_t)s * cells;
        for (int q = 0; q < SEQS; q++)
            if (p->slot[q] == s && p->real[q] >= 0) want = plain + (size_t)p->real[q] * cells;
        ok &= !memcmp(odd + (size_t)s * cells, want, cells * sizeof *want);
    }
    return ok;
}

// init [SLOTS][cells] random; odd a copy of it; plain what the sequences with rows have.
static void states_make(const pair *p, size_t cells, float **init, float **odd, float **plain) {
    *init = ck_buf(SLOTS * cells * sizeof(float), 4);
    *odd = ck_buf(SLOTS * cells * sizeof(float), 4);
    *plain = ck_buf(SEQS * cells * sizeof(float), 4);
    ck_fill(*init, SLOTS * cells);
    memcpy(*odd, *init, SLOTS * cells * sizeof(float));
    for (int q = 0; q < SEQS; q++)
        if (p->real[q] >= 0) memcpy(*plain + (size_t)p->real[q] * cells, *init + (size_t)p->slot[q] * cells,
                                    cells * sizeof(float));
}

static void rows_conv(lq_dev *dev, const pair *p, const char *name, bool in_place) {
    enum { COLS = 70, WIDTH = 4 };
    float *init, *odd, *plain;
    states_make(p, COLS * (WIDTH - 1), &init, &odd, &plain);
    lq_mat x = ck_mat(p->plain.n, COLS, 2), w = ck_mat(1, COLS * WIDTH, 0), x1 = padded(&x);
    lq_mat y = ck_mat(p->plain.n, COLS, 1), y1 = padded(&y);
    lq_conv_args a = {.rows = &p->plain, .x = x, .y = y, .w = w.p, .width = WIDTH, .silu = true, .state = plain};
    dev->ops.conv(dev, &a);
    a.rows = &p->odd, a.x = x1, a.y = in_place ? x1 : y1, a.state = odd;
    dev->ops.conv(dev, &a);
    CHECK(padded_true(&a.y, &y, true), "conv %s %s: padding, slots", dev->isa, name);
    CHECK(states_true(p, odd, plain, init, COLS * (WIDTH - 1)), "conv %s %s: states of others", dev->isa, name);
    ck_done("conv of odd rows");
}

static void rows_scan(lq_dev *dev, const pair *p, const char *name, bool delta) {
    enum { HEADS = 4, GROUPS = 2, DK = 9, DV = 70 };
    float *init, *odd, *plain;
    states_make(p, HEADS * DK * DV, &init, &odd, &plain);
    lq_mat m[5] = {ck_mat(p->plain.n, GROUPS * DK, 1), ck_mat(p->plain.n, GROUPS * DK, 1),
                   ck_mat(p->plain.n, HEADS * DV, 1),
                   ck_mat(p->plain.n, HEADS, 1), ck_mat(p->plain.n, HEADS * DV, 1)}, m1[5];
    for (int r = 0; r < p->plain.n; r++) {
        for (int i = 0; i < HEADS; i++) lq_mat_row(&m[3], r)[i] = (float)(-1 + ck_uniform() / 2);
        for (int i = 0; i < GROUPS * DK; i++) lq_mat_row(&m[1], r)[i] *= 0.05f;
    }
    for (int i = 0; i < 5; i++) m1[i] = padded(&m[i]);
    lq_scan_args a = {.rows = &p->plain, .heads = HEADS, .groups = GROUPS, .dk = DK, .dv = DV, .q = m[0], .k = m[1],
                      .v = m[2], .y = m[4], .decay = m[3], .delta = delta, .state = plain};
    dev->ops.scan(dev, &a);
    a.rows = &p->odd, a.q = m1[0], a.k = m1[1], a.v = m1[2], a.decay = m1[3], a.y = m1[4], a.state = odd;
    dev->ops.scan(dev, &a);
    CHECK(padded_true(&m1[4], &m[4], true), "scan %s %s: padding, slots", dev->isa, name);
    CHECK(states_true(p, odd, plain, init, HEADS * DK * DV), "scan %s %s: states of others", dev->isa, name);
    ck_done("scan of odd rows");
}

void check_rows(lq_dev *dev) {
    static const lq_dtype types[] = {LQ_F32, LQ_F16, LQ_BF16, LQ_I8, LQ_E4M3};
    static pair p;
    lq_dev *one = twin_open(dev, 1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        for (int t = 0; t < 5; t++) {
            pair_make(&p, s, 16);
            rows_attn(dev, one, &p, s->name, types[t], t == 1);
        }
        pair_make(&p, s, 16);
        rows_rope(dev, &p, s->name);
        pair_make(&p, s, 16);
        rows_turned(dev, &p, s->name);
        for (int way = 0; way < 2; way++) {
            pair_make(&p, s, 16);
            rows_conv(dev, &p, s->name, way);
            pair_make(&p, s, 16);
            rows_scan(dev, &p, s->name, way);
        }
    }
    lq_dev_close(one);
}
