// time_products.c: how long the slot matmul of a device takes for a type of weights, a shape and a number of rows, as
// CSV. Weights are random and lie in copies that no cache holds; products are recorded, and a replay of all copies is
// timed from its start until the device is idle; where activations are rounded, each product has its `quant`. Slots are
// asked for alone: what is timed is what a model runs.
//   time_products DEVICE [--bytes N] [--types "int4 g128,bf16"] [--rows 1,8] [--fast] [NxK]...
#include "formats/json.h"
#include "kernels/ops.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COPIES = 64, MOST = 32, REPEATS = 20 };
typedef struct job { lq_dev *d; lq_weight w[COPIES]; int copies; lq_mat x, y; void *act; } job;

static void die(const lq_err *e) {
    fprintf(stderr, "time_products: %s\n", e->text);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(lq_dev *d, size_t bytes) {
    lq_err err;
    void *p;
    if (!d->ops.alloc(d, bytes, &p, &err)) die(&err);
    return p;
}

static uint64_t state = 88172645463325252u;
static uint32_t random_bits(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

// `bytes` of random codes; scales (and numbers of 16 bits) of a size that sums keep finite.
static void *filled(lq_dev *d, size_t bytes, lq_dtype as) {
    uint8_t *host = malloc(bytes + 4), *p = memory(d, bytes);
    const size_t size = lq_dtype_size(as);
    for (size_t i = 0; i < bytes; i += 4) {
        const uint32_t r = random_bits();
        memcpy(host + i, &r, 4);
    }
    for (size_t i = 0; as != LQ_U8 && i + size <= bytes; i += size) {
        const float f = (float)((int)(random_bits() % 2001) - 1000) * 1e-5f;
        lq_dtypes[as].from_f32(&f, host + i, 1);
    }
    d->ops.put(d, p, host, bytes);
    free(host);
    return p;
}

static lq_weight weight(lq_dev *d, const lq_wtype *t, int64_t n, int64_t k) {
    lq_weight_size size;
    lq_weight w = {.type = *t, .n = n, .k = k, .layout = lq_pack_has(d->layout, t, n, k) ? d->layout : LQ_ANY};
    if (!lq_pack_sizes(w.layout, t, n, k, &size)) exit(1);
    w.q = filled(d, size.q, t->kind == LQ_W_PLAIN ? t->elem : LQ_U8);
    if (size.scale) w.scale = filled(d, size.scale, t->scale);
    if (size.zero) w.zero = filled(d, size.zero, LQ_U8);
    const float one = 1, *table = lq_wtype_table(t);
    float *scale2 = memory(d, sizeof one);
    d->ops.put(d, scale2, &one, sizeof one);
    w.scale2 = scale2;
    if (t->kind == LQ_W_TABLE) {
        float *to = memory(d, sizeof *to << t->bits);
        d->ops.put(d, to, table, sizeof *to << t->bits);
        w.table = to;
    }
    return w;
}

static void products(void *arg) {
    job *j = arg;
    lq_act x = {0};
    lq_act_bind(j->d, &x, &j->w[0], j->x.rows, j->act);
    x.x = j->x;
    for (int i = 0; i < j->copies; i++) {
        if (x.type.elem != LQ_F32) j->d->ops.quant(j->d, &(lq_quant_args){.x = j->x, .act = &x});
        j->d->ops.matmul(j->d, &(lq_matmul_args){.x = &x, .count = 1, .w = {&j->w[i]}, .y = {j->y}});
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void timed(job *j, const char *type, int rows, size_t bytes, double read) {
    lq_dev *d = j->d;
    lq_graph *g;
    lq_err err;
    double took[REPEATS];
    const double n = (double)j->w[0].n, k = (double)j->w[0].k;
    j->x.rows = j->y.rows = rows;
    products(j); // nothing is made ready within a recording
    if (!d->ops.sync(d, &err) || !d->ops.record(d, products, j, &g, &err)) die(&err);
    for (int i = -2; i < REPEATS; i++) {
        const double begin = now();
        d->ops.replay(d, g);
        if (!d->ops.sync(d, &err)) die(&err);
        if (i >= 0) took[i] = (now() - begin) / j->copies;
    }
    d->ops.forget(d, g);
    qsort(took, REPEATS, sizeof *took, by_size);
    const double s = took[REPEATS / 2];
    printf("%s,%.0f,%.0f,%d,%zu,%.3f,%.3f,%.1f,%.3f,%.2f\n", type, n, k, rows, bytes, s * 1e6, took[0] * 1e6,
           (double)bytes / s * 1e-9, read > 0 ? (double)bytes / s / read : 0, 2 * n * k * rows / s * 1e-12);
    fflush(stdout);
}

// Of this type and shape with each number of rows.
static void run(lq_dev *d, const char *name, int64_t n, int64_t k, const int *rows, int count, size_t all) {
    job *j = calloc(1, sizeof *j);
    lq_err err;
    lq_wtype type;
    lq_weight_size size;
    lq_span spans[COPIES];
    if (!lq_wtype_parse(name, &type, &err) || !lq_weight_sizes(&type, n, k, &size)) die(&err);
    const size_t bytes = size.q + size.scale + size.zero;
    const int most = rows[count - 1];
    j->d = d;
    j->copies = all / bytes < 2 ? 2 : all / bytes > COPIES ? COPIES : (int)(all / bytes);
    for (int i = 0; i < j->copies; i++) j->w[i] = weight(d, &type, n, k), spans[i] = (lq_span){j->w[i].q, size.q};
    const size_t row = (size_t)most * lq_dtype_size(d->act);
    j->x = (lq_mat){filled(d, row * (size_t)k, d->act), d->act, most, (int)k, (size_t)k};
    j->y = (lq_mat){memory(d, row * (size_t)n), d->act, most, (int)n, (size_t)n};
    const size_t act = lq_act_bytes(d, &j->w[0], most);
    if (act) j->act = memory(d, act);
    const double took = d->ops.read_time(d, spans, (size_t)j->copies);
    const double read = took > 0 ? (double)size.q * j->copies / took : 0;
    for (int i = 0; i < count; i++) timed(j, name, rows[i], bytes, read);
    const void *const parts[] = {j->x.p, j->y.p, j->act};
    for (int i = 0; i < j->copies; i++) {
        const lq_weight *w = &j->w[i];
        const void *const of[] = {w->q, w->scale, w->zero, w->scale2, w->table};
        for (size_t p = 0; p < sizeof of / sizeof *of; p++)
            if (of[p]) d->ops.free(d, (void *)(uintptr_t)of[p]);
    }
    for (int i = 0; i < 3; i++)
        if (parts[i]) d->ops.free(d, (void *)(uintptr_t)parts[i]);
    free(j);
}

int main(int argc, char **argv) {
    const char *shapes[MOST] = {"6144x4096", "4096x4096", "28672x4096", "4096x14336", "57344x8192"};
    const char *types = "int4 g128,bf16";
    char list[200] = "1,8,16,64,256,1024", words[200];
    int shape_count = 5, given = 0, rows[MOST], count = 0;
    size_t all = (size_t)512 << 20;
    lq_dev_opts o = {0};
    lq_err err;
    lq_dev *d;
    if (argc < 2) return 2;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--bytes") && i + 1 < argc) all = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--types") && i + 1 < argc) types = argv[++i];
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc) snprintf(list, sizeof list, "%s", argv[++i]);
        else if (!strcmp(argv[i], "--fast")) o.numerics = LQ_NUM_FAST;
        else if (given < MOST) shapes[given++] = argv[i], shape_count = given;
    }
    for (char *word = strtok(list, ","); word && count < MOST; word = strtok(NULL, ",")) rows[count++] = atoi(word);
    if (!lq_dev_open(argv[1], &o, &d, &err)) die(&err);
    const lq_dev_limits limits = {.rows = rows[count - 1], .outs = 1, .k = 65536, .n = 65536, .heads = 1, .dv = 64,
                                  .max_at = 64, .vocab = 64, .slots = 1};
    if (!d->ops.reserve(d, &limits, &err)) die(&err);
    printf("type,n,k,rows,bytes,us,us_best,gb_s,of_read,tflops\n");
    snprintf(words, sizeof words, "%s", types);
    for (char *at = words, *type; (type = at) && *at;) {
        at = strchr(type, ',');
        if (at) *at++ = 0;
        for (int i = 0; i < shape_count; i++) {
            long long n, k;
            if (sscanf(shapes[i], "%lldx%lld", &n, &k) != 2) return 2;
            run(d, type, n, k, rows, count, all);
        }
        if (!at) break;
    }
    lq_dev_close(d);
    return 0;
}
