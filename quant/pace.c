// pace.c: how long a run will take on a machine that does nothing else: what each of its steps costs is measured, on
// small matrices of the model's own widths or of 512 columns, and multiplied by how often the plan does it. Owns what
// it measures on. An estimate: files may lie on slow disks.
#include "quant/pass.h"
#include <stdlib.h>
#include <string.h>

enum { WIDE = 512, ROWS = 512, TIMES = 4, TRIALS = 41 };
static const double ENOUGH = 0.02; // seconds of one step, after which it is not tried again

// Seconds of one: a multiply-add of rows with a matrix, of sums of moments; of what is made of moments, a column to the
// third power; an element that is rounded by itself; one that is rounded by moments, and of that what each column adds;
// the same of plain rounding whose loss is wanted; a byte that is read, a number that one thread looks at.
typedef struct pace { double mac, gram, cube, near, lin, quad, trial, trial_quad, byte, touch; } pace;

typedef struct bench {
    lq_plan *p;
    lq_dev *dev;
    const lq_recipe *r;  // of most matrices
    lq_rooms rooms;
    float *x;            // [ROWS][WIDE], of about the same size
    double sum;          // of such numbers
    int threads;         // that share products, sums and roundings; a factor is made by one
    lq_err *err;
} bench;

// Of all threads together, so that what other programs take from them is not counted, and on the wall's clock: under a
// limit of CPU time the first one goes on in steps of milliseconds.
typedef struct moment { double cpu, wall; } moment;

static moment now(void) { return (moment){lq_clock(CLOCK_PROCESS_CPUTIME_ID), lq_now()}; }

static double since(moment start, int threads) {
    const moment end = now();
    const double cpu = end.cpu - start.cpu, most = (end.wall - start.wall) * threads;
    return cpu > 0 && cpu < most ? cpu : most;
}

static void took(double *least, moment start, int threads) {
    const double t = since(start, threads);
    if (t < *least) *least = t;
}

// Whether a step is tried, the i-th time: once in any case.
static bool again(int i, moment first) { return i == 0 || (i < TIMES && lq_now() - first.wall < ENOUGH); }

static bool fill(bench *b) {
    uint32_t state = 1;
    b->x = malloc(sizeof *b->x * ROWS * WIDE);
    if (!b->x) return lq_fail(b->err, LQ_E_MEMORY, "no memory to measure what a run takes");
    for (size_t i = 0; i < (size_t)ROWS * WIDE; i++) {
        state = state * 1664525u + 1013904223u;
        b->x[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
    return true;
}

static lq_mat rows_of(const bench *b, int64_t rows, int64_t k) {
    return (lq_mat){.p = b->x, .type = LQ_F32, .rows = (int)rows, .cols = (int)k, .stride = (size_t)k};
}

static lq_weight matrix_of(const bench *b, int64_t n, int64_t k) {
    return (lq_weight){.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = n, .k = k, .q = b->x};
}

// --- what is measured ---

// A product of some rows with a matrix.
static bool time_product(const bench *b, int64_t k, double *mac) {
    const int64_t n = k, rows = 128;
    const lq_weight w = matrix_of(b, n, k);
    float *y = malloc((size_t)(rows * n) * sizeof *y);
    double t = 1e9;
    const moment first = now();
    bool done = y || lq_fail(b->err, LQ_E_MEMORY, "no memory to measure a product");
    for (int i = 0; done && again(i, first); i++) {
        const lq_act act = {.x = rows_of(b, rows, k)};
        const moment start = now();
        b->dev->ops.matmul(b->dev, &(lq_matmul_args){.x = &act, .count = 1, .w = {&w},
            .y = {{.p = y, .type = LQ_F32, .rows = (int)rows, .cols = (int)n, .stride = (size_t)n}}});
        done = b->dev->ops.sync(b->dev, b->err);
        took(&t, start, b->threads);
    }
    free(y);
    *mac = t / (double)(n * k * rows) / b->threads;
    return done;
}

// A matrix of n rows, rounded as the recipe says.
static bool time_round(const bench *b, const lq_recipe *r, lq_solve *solve, const float *weight, int64_t n,
                       int64_t k, double *seconds) {
    const lq_weight w = matrix_of(b, n, k);
    lq_weight_size size;
    lq_weight_out raw;
    if (!lq_weight_sizes(&r->type, n, k, &size)) return lq_fail(b->err, LQ_E_LIMIT, "it is too large");
    void *buf = aligned_alloc(64, (lq_module_bytes(&r->type, n, k) + 63) & ~(size_t)63);
    bool done = buf || lq_fail(b->err, LQ_E_MEMORY, "no memory to measure a rounding");
    double t = 1e9;
    const moment first = now();
    for (int i = 0; done && again(i, first); i++) {
        lq_lay_out(buf, &size, true, &raw);
        lq_matrix m = {.w = &w, .dev = b->dev, .solve = solve, .weight = weight, .q = raw.q, .scale = raw.scale,
                       .zero = raw.zero};
        const moment start = now();
        done = lq_quantize_matrix(r, &m, b->err);
        took(&t, start, b->threads);
    }
    free(buf);
    *seconds = t / b->threads;
    return done;
}

// Rows of a matrix that are rounded at once.
static int64_t band_of(int64_t k) { return (int64_t)(lq_band_bytes(k) / sizeof(float)) / k; }

// Of an input of k columns: the sums of its moments, what is made of them, rounding by them and plainly.
typedef struct timed { double gram, make, round, trial; } timed;

static bool time_moments(bench *b, int64_t k, timed *t) {
    const size_t cells = (size_t)k * (size_t)k;
    const int64_t rows = ROWS * WIDE / k < ROWS ? ROWS * WIDE / k : ROWS, n = band_of(k) < rows ? band_of(k) : rows;
    const lq_mat x = rows_of(b, rows, k);
    lq_watch w = {.rooms = &b->rooms, .k = k, .rows = rows};
    lq_solve s = {0};
    double gram = 1e9, make = 1e9;
    const moment first = now();
    float *work = malloc(cells * sizeof *work);
    bool done = work || lq_fail(b->err, LQ_E_MEMORY, "no memory to measure sums");
    done = done && (w.h = lq_room_open(&b->rooms, cells * sizeof *w.h, b->err)) != NULL &&
           (!b->p->paired || (w.g = lq_room_open(&b->rooms, cells * sizeof *w.g, b->err)) != NULL);
    for (int i = 0; done && again(i, first); i++) {
        moment start = now();
        lq_solve_close(&s);
        b->dev->ops.gram(b->dev, &(lq_gram_args){.x = x, .h = w.h, .work = work});
        if (w.g) b->dev->ops.gram(b->dev, &(lq_gram_args){.x = x, .with = &x, .h = w.g, .work = work});
        done = b->dev->ops.sync(b->dev, b->err);
        took(&gram, start, b->threads);
        start = now();
        done = done && lq_solve_make(b->dev, &w, b->r, &s, b->err);
        took(&make, start, 1);
    }
    t->gram = gram / (double)rows / b->threads, t->make = make;
    done = done && time_round(b, b->r, &s, s.weight, n, k, &t->round);
    lq_solve_close(&s);
    if (done && b->r->transform & LQ_T_AWQ)
        done = lq_solve_make(b->dev, &w, &(lq_recipe){0}, &s, b->err) &&
               time_round(b, &(lq_recipe){.type = b->r->type}, &s, NULL, n, k, &t->trial);
    lq_solve_close(&s);
    t->round /= (double)(n * k), t->trial /= (double)(n * k);
    lq_room_close(&b->rooms, w.h);
    lq_room_close(&b->rooms, w.g);
    free(work);
    return done;
}

// Bytes of the checkpoint, as many as tell.
static double time_bytes(const lq_plan *p) {
    const lq_tensor *most = NULL;
    uint64_t sum = 0, word;
    for (size_t i = 0; i < lq_ckpt_count(p->in); i++) {
        const lq_tensor *t = lq_ckpt_at(p->in, i);
        if (!most || t->bytes > most->bytes) most = t;
    }
    const size_t bytes = most && most->bytes < 8u << 20 ? most->bytes : 8u << 20;
    const moment start = now();
    for (size_t i = 0; most && i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, (const char *)most->data + i, sizeof word);
        sum += word;
    }
    const double seconds = since(start, 1) + (sum == 1 ? 1e-9 : 0);
    if (most) lq_ckpt_drop(p->in, most);
    return bytes ? seconds / (double)bytes : 0;
}

// Numbers that one thread sums up.
static double time_numbers(bench *b) {
    const moment first = now();
    double t = 1e9;
    for (int i = 0; again(i, first); i++) {
        const moment start = now();
        for (size_t j = 0; j < (size_t)ROWS * WIDE; j++) b->sum += (double)b->x[j];
        took(&t, start, 1);
    }
    return t / (ROWS * WIDE);
}

static bool measure(bench *b, pace *c) {
    const int64_t k = b->p->widest && b->p->widest < WIDE ? b->p->widest : WIDE, n = ROWS * WIDE / k < 1 ? 1 : ROWS;
    lq_recipe plain = {.type = b->r->type, .range = b->r->range, .steps = b->r->steps, .least = b->r->least};
    double seconds;
    c->byte = time_bytes(b->p);
    if (!time_round(b, &plain, NULL, NULL, n, k, &seconds)) return false;
    c->near = seconds / (double)(n * k);
    if (!b->p->calibrates) return true;
    const lq_dev_limits limits = {.rows = ROWS, .outs = 1, .k = (int)k, .n = (int)k, .vocab = 1};
    if (!b->dev->ops.reserve(b->dev, &limits, b->err) || !time_product(b, k, &c->mac)) return false;
    c->touch = time_numbers(b);
    if (!b->p->moments) return true;
    timed one = {0}, half = {0};
    if (!time_moments(b, k, &one) || !time_moments(b, k / 2, &half)) return false;
    c->gram = one.gram / (double)(k * k);
    c->cube = one.make / ((double)k * (double)k * (double)k);
    c->quad = one.round > half.round ? (one.round - half.round) / (double)(k - k / 2) : 0;
    c->lin = one.round - c->quad * (double)k;
    c->trial_quad = one.trial > half.trial ? (one.trial - half.trial) / (double)(k - k / 2) : 0;
    c->trial = one.trial - c->trial_quad * (double)k;
    return true;
}

// --- what is counted ---

static int used_of(const lq_desc *d, const lq_slot *s) {
    const lq_layer *l = &d->layer[s->layer];
    for (int i = 0; i < l->parts; i++)
        if (l->part[i].experts && l->part[i].experts == s->count) return l->part[i].experts_used;
    return 1;
}

// What reads an input of a layer: whether it is the first of those that do, in its kind.
static bool first_reader(const lq_plan *p, size_t block, size_t at) {
    const lq_slot *s = &p->items[at].slot;
    for (size_t i = p->first[block]; i < at; i++) {
        const lq_slot *o = &p->items[i].slot;
        if (o->k && p->items[i].round && o->input == s->input && !o->count == !s->count) return false;
    }
    return true;
}

// Seconds that the text takes through a layer once, or from an input of it on: products, attention (which sees half of
// a sequence), and what stands between them.
static double way(const lq_plan *p, const pace *c, size_t block, int from) {
    double macs = 0, rest = 0, read = 0;
    for (size_t i = p->first[block]; i < p->first[block + 1]; i++) {
        const lq_slot *s = &p->items[i].slot;
        if (s->role == LQ_ROLES || !s->k || s->flat || s->input < from) continue;
        macs += (double)s->n * (double)s->k * (s->count ? used_of(&p->desc, s) : 1);
        if (first_reader(p, block, i)) read += (double)s->k * (s->count ? used_of(&p->desc, s) : 1);
    }
    const lq_part *a = lq_layer_attn(&p->desc.layer[block - 1]);
    if (a && from <= 0) rest = 2 * (double)a->heads * (double)p->calib.len / 2 * (a->head_dim + a->v_dim);
    return ((macs + rest) * c->mac + 3 * read * c->touch) * (double)p->calib.samples * p->calib.len;
}

// What an input costs: the sums of its moments for all rows that it is given, and what is made of them.
static double watch(const lq_plan *p, const pace *c, const lq_slot *s) {
    const double k = (double)s->k, rows = (double)p->calib.samples * p->calib.len;
    const double count = s->count ? s->count : 1, times = s->count ? used_of(&p->desc, s) : 1;
    return rows * times * k * k * c->gram + count * k * k * k * c->cube;
}

// What factors of an input's columns cost a matrix that reads it.
static double seek(const lq_plan *p, const pace *c, const lq_item *it) {
    const lq_slot *s = &it->slot;
    const int64_t count = s->count ? s->count : 1;
    const double k = (double)s->k, rows = (double)count * (double)lq_seek_rows(s->k, s->n, count, LQ_TRIED);
    if (p->base.transform & LQ_T_AWQ)
        return (TRIALS * rows + 2 * (double)(s->n * count)) * k * (c->trial + c->trial_quad * k);
    return (LQ_ALPHAS + 1) * rows * k * (c->near + LQ_SOME * c->mac);
}

static double block_seconds(const lq_plan *p, const pace *c, size_t block) {
    const bool layer = block > 0 && block + 1 < p->blocks, searches = lq_searches(p->base.transform);
    double sum = 0;
    for (size_t i = p->first[block]; i < p->first[block + 1]; i++) {
        const lq_item *it = &p->items[i];
        const lq_slot *s = &it->slot;
        if (!it->round || !s->k || s->role == LQ_ROLES) continue;
        const double k = (double)s->k, all = (double)s->n * k * (s->count ? s->count : 1);
        const bool solves = lq_recipe_solves(&it->recipe);
        sum += all * (solves ? c->lin + c->quad * k : c->near);
        if (!layer || s->input < 0) continue;
        if (solves && first_reader(p, block, i)) sum += watch(p, c, s);
        if (!searches || !lq_searches(it->recipe.transform)) continue;
        sum += seek(p, c, it);
        if (p->base.transform & LQ_T_AWQ && first_reader(p, block, i)) sum += watch(p, c, s);
    }
    if (!layer || !p->calibrates) return sum;
    // As it is made: up to each input in turn and on from the last one, or, if nothing is looked at while it is made,
    // once; where factors are sought, and as it was: once.
    int last = 0;
    for (size_t i = p->first[block]; i < p->first[block + 1]; i++) {
        const lq_item *it = &p->items[i];
        if (it->round && lq_recipe_solves(&it->recipe) && it->slot.input > last) last = it->slot.input;
    }
    sum += (last ? way(p, c, block, last) : 0) + (1 + searches + p->paired) * way(p, c, block, -1);
    return sum;
}

bool lq_pace_make(lq_plan *p, lq_dev *dev, lq_err *err) {
    bench b = {.p = p, .dev = dev, .r = &p->base, .rooms = {NULL, SIZE_MAX}, .err = err,
               .threads = lq_pool_threads(dev->pool)};
    pace c = {0};
    p->pace = calloc(p->blocks + 1, sizeof *p->pace);
    if (!p->pace) return lq_fail(err, LQ_E_MEMORY, "no memory for a plan of %zu blocks", p->blocks);
    for (size_t i = p->count; i-- > 0;)
        if (p->items[i].round && p->items[i].slot.layer >= 0 && p->items[i].recipe.type.kind != LQ_W_PLAIN)
            b.r = &p->items[i].recipe;
    const bool done = fill(&b) && (b.r->type.kind == LQ_W_PLAIN || measure(&b, &c));
    free(b.x);
    if (!done) return false;
    const double bytes = c.byte * (double)(p->out_bytes + lq_ckpt_file_bytes(p->in));
    for (size_t i = 0; i < p->blocks; i++) p->pace[i] = block_seconds(p, &c, i) + bytes / (double)p->blocks;
    p->pace[p->blocks] = 0.1 + 2 * c.byte * (double)p->out_bytes; // synced, read back, and checked
    for (size_t i = 0; i <= p->blocks; i++) p->seconds += p->pace[i];
    return true;
}
