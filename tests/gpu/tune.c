// tune.c: which kernel of w4s and w8a8 a GPU is fastest with, for each type of weights, shape and number of tokens: all
// that make the same bits are timed, as CSV; what was found is written as rows of kernels/cuda/tuned.h.
//   tune [--types "int4 g128,bf16"] [--rows 1,8] [--bytes N] [--repeats N] [--table FILE] [NxK]...
// Weights are random and lie in copies that no cache holds. A rule of the two families that is as good as the best, but
// for what times differ by from run to run, stays.
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/w4s_pick.h"
#include "kernels/cuda/w8a8_pick.h"
#include "kernels/pack.h"
#include <stdio.h>
#include <stdlib.h>

enum { COPIES = 32, MOST = 32, PARTS = 4 << 20 };
static const double margin = 0.03; // times of two kernels that are nearer are the same

typedef struct choice { int tokens, side; } choice;
typedef struct job {
    lq_gpu *g;
    lq_gpu_info on;
    lq_w4s_on room;
    lq_wtype type;
    lq_w4s_form form;             // of W4S
    int family, n, k, m, group;
    lq_weight w[COPIES];
    int copies;
    void *x, *y, *scale, *sum;    // scale, sum: of activations of 8 bits
    float *parts;
    uint32_t *arrived;
    choice now;
    int repeats;
} job;

static void die(const lq_err *e) {
    fprintf(stderr, "tune: %s\n", e->text);
    exit(1);
}

static void *memory(lq_gpu *g, size_t bytes) {
    lq_err err;
    void *p;
    if (!lq_gpu_alloc(g, bytes, &p, &err)) die(&err);
    return p;
}

static uint32_t random_bits(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

// `bytes` of random codes, or of small numbers of a type.
static void *filled(lq_gpu *g, size_t bytes, lq_dtype as) {
    uint8_t *host = malloc(bytes + 4), *p = memory(g, bytes);
    const size_t size = lq_dtype_size(as);
    for (size_t i = 0; i < bytes; i += 4) {
        const uint32_t r = random_bits();
        memcpy(host + i, &r, 4);
    }
    for (size_t i = 0; as != LQ_U8 && i + size <= bytes; i += size) {
        const float f = (float)((int)(random_bits() % 2001) - 1000) * 1e-5f;
        lq_dtypes[as].from_f32(&f, host + i, 1);
    }
    lq_gpu_put(g, p, host, bytes);
    free(host);
    return p;
}

static lq_weight weight(lq_gpu *g, const lq_wtype *t, lq_layout layout, int64_t n, int64_t k) {
    lq_weight_size size;
    lq_weight w = {.type = *t, .n = n, .k = k, .layout = layout};
    if (!lq_pack_sizes(layout, t, n, k, &size)) exit(1);
    w.q = filled(g, size.q, t->kind == LQ_W_PLAIN ? t->elem : LQ_U8);
    if (size.scale) w.scale = filled(g, size.scale, t->scale);
    if (size.zero) w.zero = filled(g, size.zero, LQ_U8);
    w.scale2 = filled(g, sizeof(float), LQ_F32);
    if (t->kind == LQ_W_TABLE) w.table = filled(g, sizeof(float) << t->bits, LQ_F32);
    return w;
}

static void free_all(lq_gpu *g, const void *const *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) lq_gpu_free(g, (void *)(uintptr_t)p[i]);
}

// --- one candidate ---

static lq_tuned like_of(const job *j) {
    return j->family == LQ_TUNED_W4S ? lq_w4s_tuned(&j->form, j->on.capability)
                                     : lq_w8a8_tuned(LQ_W8A8_INTS, j->group, j->on.capability);
}

static lq_w4s_plan plan_of(const job *j, const lq_tuned *row) {
    return lq_w4s_plan_of(&j->form, j->m, 0, &j->n, 1, j->k, &j->room, row);
}

static void w4s_launch(const job *j, const lq_weight *w, const lq_tuned *row) {
    const lq_w4s_plan p = plan_of(j, row);
    lq_w4s_args a = {.x = j->x, .x_stride = j->k, .m = j->m, .k = j->k, .joined = 1, .parts = j->parts,
                     .arrived = j->arrived, .count = 1, .top_k = 1};
    a.of[0] = (lq_w4s_one){.y = j->y, .y_stride = (j->n + 1) / 2 * 2, .n = j->n};
    a.of[0].matrix = (lq_w4s_matrix){.w = w->q, .scale = w->scale, .zero = w->zero, .scale2 = w->scale2,
                                     .table = w->table, .scale_type = j->form.scale};
    lq_w4s_set(&a, &j->form, &p, j->room.sms);
    lq_gpu_launch(j->g, (const void *)(uintptr_t)p.kernel->entry, &a, sizeof a,
                  (lq_gpu_grid){.blocks = p.x, .threads = LQ_W4S_THREADS, .shared = p.kernel->shared, .rows = p.y,
                                .cluster = p.cluster ? (unsigned)p.side : 0, .simt = true, .early = true});
}

static lq_act act_of(const job *j) {
    lq_act a = {.type = j->type.act, .q = j->x, .scale = j->scale, .sum = j->sum, .q_row = LQ_W8A8_STEP,
                .apart = j->m};
    a.x = (lq_mat){NULL, LQ_BF16, j->m, j->k, (size_t)j->k};
    return a;
}

static lq_mat y_of(const job *j) { return (lq_mat){j->y, LQ_BF16, j->m, j->n, (size_t)(j->n + 1) / 2 * 2}; }

static void w8a8_launch(const job *j, const lq_weight *w, const lq_tuned *row) {
    lq_w8a8_form f;
    lq_w8a8_args a = {.x = act_of(j), .joined = 1, .m = j->m, .k = j->k, .count = 1, .top_k = 1};
    a.of[0] = (lq_w8a8_one){.w = *w, .y = y_of(j), .n = j->n};
    if (!lq_w8a8_fits(&a.x, w, &a.of[0].y, &f)) exit(1);
    lq_w8a8_set(&a, &f);
    const lq_w8a8_plan p = lq_w8a8_plan_of(f.kind, f.group, j->m, 0, &j->n, 1, j->room.shared, row);
    lq_gpu_launch(j->g, (const void *)(uintptr_t)p.kernel->entry, &a, sizeof a,
                  (lq_gpu_grid){.blocks = p.x, .threads = p.threads, .shared = p.kernel->shared, .rows = p.y,
                                .simt = true, .early = true});
}

static void submit(void *arg) {
    const job *j = arg;
    lq_tuned row = like_of(j);
    row.tokens = j->now.tokens, row.side = j->now.side;
    for (int i = 0; i < j->copies; i++) (j->family == LQ_TUNED_W4S ? w4s_launch : w8a8_launch)(j, &j->w[i], &row);
}

typedef struct replayed { lq_gpu *g; lq_gpu_graph *graph; } replayed;
static void replay(void *arg) {
    const replayed *r = arg;
    lq_gpu_replay(r->g, r->graph);
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Seconds of one product, the median.
static double timed(job *j, choice c) {
    double took[MOST];
    lq_gpu_graph *graph;
    lq_err err;
    j->now = c;
    if (!lq_gpu_record(j->g, &err)) die(&err);
    submit(j);
    if (!lq_gpu_recorded(j->g, &graph, &err)) die(&err);
    for (int i = -1; i < j->repeats; i++) {
        const double s = lq_gpu_seconds(j->g, replay, &(replayed){j->g, graph}) / j->copies;
        if (i >= 0) took[i] = s;
    }
    lq_gpu_forget(j->g, graph);
    if (!lq_gpu_sync(j->g, &err)) die(&err);
    qsort(took, (size_t)j->repeats, sizeof *took, by_size);
    return took[j->repeats / 2];
}

// --- all of one number of tokens ---

// What the rules say.
static choice rule_of(const job *j) {
    if (j->family == LQ_TUNED_W8A8)
        return (choice){
            lq_w8a8_plan_of(LQ_W8A8_INTS, j->group, j->m, 0, &j->n, 1, j->room.shared, NULL).kernel->tokens, 0};
    const lq_w4s_plan p = plan_of(j, NULL);
    return (choice){p.kernel->tokens, p.side > 1};
}

// The tiles that the kernels of this form have, on this GPU.
static int tiles_of(const job *j, int *tokens) {
    int n = 0;
    for (int i = 0; j->family == LQ_TUNED_W4S && i < LQ_W4S_COUNT; i++) {
        const lq_w4s_kernel *of = &lq_w4s_kernels[i];
        if (of->kind == j->form.kind && of->bits == j->form.bits && of->group == j->form.group &&
            of->shared <= j->room.shared) tokens[n++] = of->tokens;
    }
    for (int i = 0; j->family == LQ_TUNED_W8A8 && i < LQ_W8A8_COUNT; i++) {
        const lq_w8a8_kernel *of = &lq_w8a8_kernels[i];
        if (of->kind == LQ_W8A8_INTS && of->group == j->group && of->shared <= j->room.shared) tokens[n++] = of->tokens;
    }
    return n;
}

static choice best_of(job *j, const char *type) {
    const choice rule = rule_of(j);
    choice best = rule;
    double least = 0, ruled = 0;
    int tokens[MOST];
    const int tiles = tiles_of(j, tokens);
    for (int i = 0; i < tiles; i++)
        for (int side = 0; side < 2; side++) {
            const choice c = {tokens[i], side};
            lq_tuned row = like_of(j);
            row.tokens = c.tokens, row.side = c.side;
            if (side && (j->family == LQ_TUNED_W8A8 || plan_of(j, &row).side == 1)) continue;
            const double s = timed(j, c);
            printf("%s,%d,%d,%d,%d,%d,%.3f\n", type, j->n, j->k, j->m, c.tokens, c.side, s * 1e6);
            fflush(stdout);
            if (c.tokens == rule.tokens && c.side == rule.side) ruled = s;
            if (least == 0 || s < least) least = s, best = c;
        }
    return ruled > 0 && ruled <= least * (1 + margin) ? rule : best;
}

// --- a type and a shape ---

static void job_open(job *j, size_t all) {
    lq_weight_size size;
    const lq_layout layout = j->family == LQ_TUNED_W8A8 || j->type.kind == LQ_W_PLAIN ? LQ_ANY : LQ_CUDA;
    if (!lq_weight_sizes(&j->type, j->n, j->k, &size)) exit(1);
    const size_t fit = all / size.q;
    j->copies = fit < 2 ? 2 : fit > COPIES ? COPIES : (int)fit;
    for (int i = 0; i < j->copies; i++) j->w[i] = weight(j->g, &j->type, layout, j->n, j->k);
    const size_t most = (size_t)j->m;
    j->x = filled(j->g, most * ((size_t)j->k + LQ_W8A8_STEP) * 2, j->family == LQ_TUNED_W8A8 ? LQ_U8 : LQ_BF16);
    j->y = memory(j->g, most * (size_t)(j->n + 1) * 2);
    j->scale = filled(j->g, most * 4, LQ_F32);
    j->sum = memory(j->g, most * 4);
}

static void job_close(job *j) {
    for (int i = 0; i < j->copies; i++) {
        const lq_weight *w = &j->w[i];
        free_all(j->g, (const void *const[]){w->q, w->scale, w->zero, w->scale2, w->table}, 5);
    }
    free_all(j->g, (const void *const[]){j->x, j->y, j->scale, j->sum}, 4);
}

// Rows of the table: numbers of tokens that want the same are one.
static void tell(FILE *to, const job *j, const int *rows, const choice *best, int count) {
    const lq_tuned like = like_of(j);
    for (int i = 0, first = 0; to && i < count; i++) {
        if (i + 1 < count && best[i + 1].tokens == best[first].tokens && best[i + 1].side == best[first].side) continue;
        fprintf(to, "    {%d, %d, %d, %d, %d, %d, %d, %d, %d, %d, %d},\n", like.capability, like.family, like.kind,
                like.bits, like.group, j->n, j->k, first ? rows[first - 1] : 0, rows[i], best[first].tokens,
                best[first].side);
        first = i + 1;
    }
}

static void tune(job *j, const char *type, const int *rows, int count, size_t all, FILE *to) {
    choice best[MOST];
    lq_err err;
    if (!lq_wtype_parse(type, &j->type, &err)) die(&err);
    j->family = j->type.act.elem == LQ_I8 ? LQ_TUNED_W8A8 : LQ_TUNED_W4S;
    const lq_layout layout = j->type.kind == LQ_W_PLAIN ? LQ_ANY : LQ_CUDA;
    if (j->family == LQ_TUNED_W4S ? !lq_w4s_fits(&j->type, layout, j->n, j->k, &j->form) : j->type.group != 0) {
        fprintf(stderr, "tune: %s: no kernel is to be chosen\n", type);
        exit(1);
    }
    j->m = rows[count - 1];
    job_open(j, all);
    for (int i = 0; i < count; i++) {
        j->m = rows[i];
        best[i] = best_of(j, type);
    }
    tell(to, j, rows, best, count);
    job_close(j);
}

static void prepare(job *j) {
    lq_err err;
    for (int i = 0; i < LQ_W4S_COUNT; i++)
        if (lq_w4s_kernels[i].shared <= j->room.shared &&
            !lq_gpu_prepare(j->g, (const void *)(uintptr_t)lq_w4s_kernels[i].entry, lq_w4s_kernels[i].shared, &err))
            die(&err);
    for (int i = 0; i < LQ_W8A8_COUNT; i++)
        if (lq_w8a8_kernels[i].shared <= j->room.shared &&
            !lq_gpu_prepare(j->g, (const void *)(uintptr_t)lq_w8a8_kernels[i].entry, lq_w8a8_kernels[i].shared, &err))
            die(&err);
    j->parts = memory(j->g, PARTS * sizeof *j->parts);
    j->arrived = memory(j->g, 2 * (size_t)j->room.sms * sizeof *j->arrived);
}

int main(int argc, char **argv) {
    const char *shapes[MOST] = {"6144x4096", "4096x4096", "28672x4096", "4096x14336"}, *table = NULL;
    char types[400] = "int4 g128,int4 g32,int8 row,nf4 g64,bf16,int8 row f32 act i8 row",
         list[200] = "1,8,16,32,64,128,256,512";
    int shape_count = 4, given = 0, rows[MOST], count = 0, repeats = 11;
    size_t all = (size_t)256 << 20;
    lq_err err;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bytes") && i + 1 < argc) all = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--types") && i + 1 < argc) snprintf(types, sizeof types, "%s", argv[++i]);
        else if (!strcmp(argv[i], "--rows") && i + 1 < argc) snprintf(list, sizeof list, "%s", argv[++i]);
        else if (!strcmp(argv[i], "--repeats") && i + 1 < argc) repeats = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--table") && i + 1 < argc) table = argv[++i];
        else if (given < MOST) shapes[given++] = argv[i], shape_count = given;
    }
    for (char *word = strtok(list, ","); word && count < MOST; word = strtok(NULL, ",")) rows[count++] = atoi(word);
    job *j = calloc(1, sizeof *j);
    if (repeats < 1 || repeats > MOST) return 2;
    if (!j || !count || !lq_gpu_open(0, &j->g, &j->on, &err)) die(&err);
    j->repeats = repeats;
    j->room = (lq_w4s_on){j->on.capability, lq_w4s_sms(j->on.capability), lq_w4s_shared(j->on.capability), PARTS,
                          2 * (size_t)lq_w4s_sms(j->on.capability)};
    prepare(j);
    FILE *to = table ? fopen(table, "w") : NULL;
    if (to) fprintf(to, "// tuned_rows.h: rows of tuned.h, as tests/gpu/check.sh tune wrote them on %s.\n", j->on.name);
    printf("type,n,k,rows,tokens,side,us\n");
    for (char *at = types, *type; (type = at) && *at;) {
        at = strchr(type, ',');
        if (at) *at++ = 0;
        for (int i = 0; i < shape_count; i++) {
            if (sscanf(shapes[i], "%dx%d", &j->n, &j->k) != 2) return 2;
            tune(j, type, rows, count, all, to);
        }
        if (!at) break;
    }
    free_all(j->g, (const void *const[]){j->parts, j->arrived}, 2);
    lq_gpu_close(j->g);
    free(j);
    return to && fclose(to) ? 1 : 0;
}
