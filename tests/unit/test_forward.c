// test_forward.c: the parts of a forward that a streaming pass uses: the residual between layers is whole and can be
// put in, an observer sees each input once and can stop, and what was stopped goes on; a step as data gives the same
// bits on a device that cannot read the host's memory.
#include "quant/quant.h"
#include "runtime/model/model.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"
#include <unistd.h>

enum { N = 23, PAGE = 16, BLOCKS = 4, DIM = 64, VOCAB = 260 };
static char dir[] = "/tmp/lq-test-forward-XXXXXX";

typedef struct world {
    lq_model *m;
    lq_buffers *b;
    lq_kvpool kv;
    lq_batch batch;
    int32_t ids[N], seq[N], pos[N], first[2], slot[1], table[2 * BLOCKS];
} world;

static void world_open(world *w, const lq_model_opts *o) {
    lq_err err = {0};
    const int blocks[LQ_KV_GROUPS] = {BLOCKS, BLOCKS, BLOCKS, BLOCKS};
    *w = (world){0};
    CHECK(lq_model_open(dir, o, &w->m, &err), "%s", err.text);
    if (!w->m) exit(1);
    for (int i = 0; i < N; i++) w->ids[i] = (i * 37 + 11) % 256, w->pos[i] = i;
    for (int i = 0; i < BLOCKS; i++) w->table[BLOCKS + i] = (i + 2) % BLOCKS; // of slot 1, out of order
    w->first[1] = N;
    w->slot[0] = 1;
    w->batch = (lq_batch){.ids = w->ids, .max_at = N - 1, .rows = {.n = N, .seqs = 1, .seq = w->seq, .pos = w->pos,
                                                                   .at = w->pos, .first = w->first,
                                                                  .slot = w->slot, .table_stride = BLOCKS}};
    for (int g = 0; g < LQ_KV_GROUPS; g++) w->batch.tables[g] = w->table;
    CHECK(lq_kvpool_open(w->m, PAGE, blocks, &w->kv, &err), "%s", err.text);
    CHECK(lq_buffers_open(w->m, &(lq_buffer_sizes){.rows = N, .outs = 5, .max_len = PAGE * BLOCKS, .slots = 2,
                                                   .table_stride = BLOCKS}, &w->b, &err), "%s", err.text);
}

static void world_close(world *w) {
    lq_buffers_close(w->m, w->b);
    lq_kvpool_close(w->m, &w->kv);
    lq_model_close(w->m);
}

static void keep(lq_mat h, float *to) { memcpy(to, h.p, (size_t)h.rows * (size_t)h.cols * sizeof(float)); }

static void residual(const lq_model_opts *o) {
    static float mid[N * DIM], end[N * DIM], again[N * DIM], settled[N * DIM], embedded[N * DIM];
    world w;
    lq_run c;
    world_open(&w, o);
    lq_forward_begin(&c, w.m, w.b, &w.kv, &w.batch, NULL);
    keep(lq_forward_settle(&c), embedded);
    lq_forward_layer(&c, 0);
    lq_forward_layer(&c, 1);
    keep(lq_forward_settle(&c), end);
    lq_forward_begin(&c, w.m, w.b, &w.kv, &w.batch, NULL);
    lq_forward_layer(&c, 0);
    keep(lq_forward_settle(&c), mid);
    lq_forward_layer(&c, 1);
    keep(lq_forward_settle(&c), settled);
    CHECK(memcmp(mid, embedded, sizeof mid) != 0 && memcmp(mid, end, sizeof mid) != 0, "layers change the residual");
    CHECK(!memcmp(end, settled, sizeof end), "a residual that was settled between layers goes on to the same bits");
    const lq_mat kept = {.p = mid, .type = LQ_F32, .rows = N, .cols = DIM, .stride = DIM};
    lq_forward_begin(&c, w.m, w.b, &w.kv, &w.batch, &kept);
    lq_forward_layer(&c, 1);
    keep(lq_forward_settle(&c), again);
    CHECK(!memcmp(end, again, sizeof end), "a residual that was kept goes on to the same bits");
    world_close(&w);
}

typedef struct watch { int seen[8], count, stop_at; int64_t k[8]; bool kv; } watch;
static bool on_seen(void *arg, const lq_seen *s) {
    watch *w = arg;
    w->seen[w->count] = s->input;
    w->k[w->count++] = s->x.cols;
    if (s->k) w->kv = s->v && s->k->cols == 32 && s->v->cols == 32;
    return s->input != w->stop_at;
}

// Each input of a layer is left and gone on from, other rows having been through the buffers in between: that input is
// shown once more, and what stands behind the layer has the same bits.
static void left(const world *w, int inputs) {
    static float end[N * DIM], again[N * DIM];
    int32_t others[N];
    lq_run c;
    lq_batch batch = w->batch;
    const size_t bytes = lq_forward_kept(&w->m->desc, 0, N);
    char *kept = malloc(bytes);
    lq_forward_begin(&c, w->m, w->b, (lq_kvpool *)(uintptr_t)&w->kv, &w->batch, NULL);
    lq_forward_layer(&c, 0);
    keep(lq_forward_settle(&c), end);
    for (int i = 0; i < N; i++) others[i] = (i * 11 + 3) % 256;
    for (int from = 0; kept && from < inputs; from++) {
        watch seen = {.stop_at = from}, more = {.stop_at = -1};
        lq_forward_begin(&c, w->m, w->b, (lq_kvpool *)(uintptr_t)&w->kv, &w->batch, NULL);
        c.see = on_seen, c.arg = &seen;
        lq_forward_layer(&c, 0);
        memset(kept, 0x55, bytes);
        lq_forward_keep(&c, kept, false);
        batch.ids = others;
        lq_forward_begin(&c, w->m, w->b, (lq_kvpool *)(uintptr_t)&w->kv, &batch, NULL);
        lq_forward_layer(&c, 0);
        lq_forward_begin(&c, w->m, w->b, (lq_kvpool *)(uintptr_t)&w->kv, &batch, NULL);
        c.see = on_seen, c.arg = &more, c.left = kept, c.from = from;
        lq_forward_layer(&c, 0);
        keep(lq_forward_settle(&c), again);
        CHECK(more.count > 0 && more.seen[0] == from, "input %d is the first that is seen again", from);
        CHECK(!memcmp(end, again, sizeof end), "left at input %d it goes on to the same bits", from);
    }
    CHECK(kept, "memory");
    free(kept);
}

static void observer(void) {
    world w;
    lq_run c;
    lq_input in[LQ_INPUTS];
    world_open(&w, &(lq_model_opts){.exact = true, .threads = 1});
    const int inputs = lq_desc_inputs(&w.m->desc, 0, in);
    CHECK(inputs == 4 && in[0].before == LQ_B_NORM && in[0].by == LQ_R_NORM_0 && in[1].before == LQ_B_V &&
          in[1].by == LQ_R_V &&
          in[2].before == LQ_B_NORM && in[2].by == LQ_R_NORM_1 && in[3].before == LQ_B_ROWS && in[3].by == LQ_R_UP,
          "inputs of a Llama's layer");
    for (int stop = -1; stop < inputs; stop++) {
        watch seen = {.stop_at = stop};
        lq_forward_begin(&c, w.m, w.b, &w.kv, &w.batch, NULL);
        c.see = on_seen;
        c.arg = &seen;
        lq_forward_layer(&c, 0);
        bool order = seen.count == (stop < 0 ? inputs : stop + 1);
        for (int i = 0; i < seen.count; i++) order &= seen.seen[i] == i && seen.k[i] == in[i].k;
        CHECK(order, "stopped at input %d: %d were seen", stop, seen.count);
        CHECK(seen.kv == (stop < 0 || stop > 0), "K and V are shown with the input of o");
        CHECK(c.stopped == (stop >= 0), "stopped");
    }
    left(&w, inputs);
    world_close(&w);
}

// A mixture: its router and its experts read one input; experts are shown with who gets which row.
static bool on_experts(void *arg, const lq_seen *s) {
    int *seen = arg;
    if (!s->order) return true;
    bool all[2 * N] = {false};
    for (int i = 0; i < 2 * N; i++) all[s->order[i]] = true;
    for (int i = 0; i < 2 * N; i++) seen[0] += all[i];
    CHECK(s->start[0] == 0 && s->start[4] == 2 * N, "borders %d to %d", s->start[0], s->start[4]);
    CHECK(s->x.rows == (s->top_k == 1 ? 2 * N : N), "input %d: %d rows for top_k %d", s->input, s->x.rows, s->top_k);
    seen[1 + s->input]++;
    return true;
}

static void experts(void) {
    world w;
    lq_run c;
    lq_err err = {0};
    lq_input in[LQ_INPUTS];
    int seen[1 + LQ_INPUTS] = {0};
    CHECK(tiny_model_of(dir, "MixtralForCausalLM", false, tiny_experts, &err), "%s", err.text);
    world_open(&w, &(lq_model_opts){.exact = true, .threads = 2});
    CHECK(lq_desc_inputs(&w.m->desc, 0, in) == 4 && in[2].count == 4 && in[3].count == 4 && in[3].by == LQ_R_EXPERT_UP,
          "inputs of a Mixtral's layer");
    lq_forward_begin(&c, w.m, w.b, &w.kv, &w.batch, NULL);
    c.see = on_experts;
    c.arg = seen;
    lq_forward_layer(&c, 0);
    CHECK(seen[0] == 4 * N && seen[3] == 1 && seen[4] == 1, "every slot belongs to one expert: %d of %d", seen[0],
          4 * N);
    left(&w, 4);
    world_close(&w);
}

static bool on_logits(void *arg, int out, const float *logits) {
    memcpy((float *)arg + (size_t)out * VOCAB, logits, VOCAB * sizeof *logits);
    return true;
}

static bool on_position(void *arg, size_t at, const float *logits) { return on_logits(arg, (int)at, logits); }
static void device_apart(void) {
    static float here[N * VOCAB], there[N * VOCAB];
    int32_t out[N], changed[] = {1};
    lq_err err = {0};
    for (int i = 0; i < N; i++) out[i] = i;
    for (int apart = 0; apart < 2; apart++) {
        world w;
        world_open(&w, &(lq_model_opts){.exact = true, .threads = 2});
        lq_buffers_close(w.m, w.b);
        w.m->dev->host = !apart; // what is put there is copied, as for a device with memory of its own
        CHECK(lq_buffers_open(w.m, &(lq_buffer_sizes){.rows = N, .outs = 5, .max_len = PAGE * BLOCKS, .slots = 2,
                                                      .table_stride = BLOCKS}, &w.b, &err), "%s", err.text);
        lq_step s = {.batch = w.batch, .on_logits = on_logits, .arg = apart ? there : here};
        s.batch.out = out;
        s.batch.outs = N;
        s.batch.changed = changed;
        s.batch.changes = 1;
        CHECK(lq_step_run(w.m, w.b, &w.kv, &s, &err), "%s", err.text);
        memset(w.table, -1, sizeof w.table); // the device has its own
        s.batch.changes = 0;
        if (apart) CHECK(lq_step_run(w.m, w.b, &w.kv, &s, &err), "%s", err.text);
        lq_buffers_close(w.m, w.b);
        w.m->dev->host = true;
        w.b = NULL;
        world_close(&w);
    }
    CHECK(!memcmp(here, there, sizeof here), "the same logits where indices are copied to the device");
}

static void on_hidden(void *arg, int i, const float *h) {
    memcpy((float *)arg + (size_t)(N + i) * VOCAB, h, DIM * sizeof *h);
}

// Where few rows are asked for, or none, those have the bits that they have among all, and the cache too.
static void trimmed(const lq_model_opts *o) {
    static float all[(N + 1) * VOCAB], few[(N + 1) * VOCAB];
    static const int32_t some[] = {22, 4, 22, 9, 4, 0}, inner[] = {13}; // more than the buffers take at a time
    int32_t every[N];
    lq_err err = {0};
    world a, b;
    for (int i = 0; i < N; i++) every[i] = i;
    world_open(&a, o);
    world_open(&b, o);
    const size_t bytes = lq_kv_block_bytes(a.m, &a.kv, 0);
    char *left = malloc(2 * BLOCKS * bytes);
    lq_step s = {.batch = a.batch, .on_logits = on_logits, .arg = all, .hidden = inner, .hiddens = 1,
                 .on_hidden = on_hidden};
    s.batch.out = every, s.batch.outs = N;
    CHECK(left && lq_step_run(a.m, a.b, &a.kv, &s, &err), "%s", err.text);
    for (int none = 0; none < 2 && left; none++) {
        s.batch = b.batch, s.arg = few, s.hiddens = !none;
        s.batch.out = some, s.batch.outs = none ? 0 : 6;
        CHECK(lq_step_run(b.m, b.b, &b.kv, &s, &err), "%s", err.text);
        bool same = !memcmp(all + N * VOCAB, few + N * VOCAB, DIM * sizeof *all);
        for (int i = 0; i < s.batch.outs; i++)
            same &= !memcmp(all + some[i] * VOCAB, few + i * VOCAB, VOCAB * sizeof *all);
        CHECK(same, "the rows that are asked for have other bits");
        lq_kv_out(a.m, &a.kv, 0, BLOCKS, a.table + BLOCKS, left);
        lq_kv_out(b.m, &b.kv, 0, BLOCKS, b.table + BLOCKS, left + BLOCKS * bytes);
        CHECK(!memcmp(left, left + BLOCKS * bytes, BLOCKS * bytes), "other K and V, %d asked for", s.batch.outs);
        memset(b.kv.layer[0].data, 0, BLOCKS * b.kv.layer[0].block_stride);
        memset(b.kv.layer[1].data, 0, BLOCKS * b.kv.layer[1].block_stride);
    }
    free(left);
    world_close(&a);
    world_close(&b);
}

static void beside(void) {
    static float alone[N * VOCAB], second[N * VOCAB];
    lq_err err = {0};
    int32_t out[N];
    world a, b;
    for (int i = 0; i < N; i++) out[i] = i;
    world_open(&a, &(lq_model_opts){.threads = 2});
    world_open(&b, &(lq_model_opts){.beside = a.m});
    CHECK(a.m->dev == b.m->dev, "two models on one device");
    lq_model *none = NULL;
    CHECK(!lq_model_open(dir, &(lq_model_opts){.beside = a.m, .exact = true}, &none, &err) && strstr(err.text, "exact"),
          "%s", err.text);
    for (int i = 0; i < 2; i++) {
        world *w = i ? &b : &a;
        lq_step s = {.batch = w->batch, .on_logits = on_logits, .arg = i ? second : alone};
        s.batch.out = out;
        s.batch.outs = N;
        CHECK(lq_step_run(w->m, w->b, &w->kv, &s, &err), "%s", err.text);
        if (!i) world_close(&a); // the device lives as long as its last user
    }
    CHECK(!memcmp(alone, second, sizeof alone), "the same logits");
    world_close(&b);
}

// Weights that are numbers, as a device wants them or where the file has them.
static void mapped(void) {
    for (int i = 0; i < 4; i++) {
        world w;
        world_open(&w, &(lq_model_opts){.exact = i < 3, .mapped = i == 1, .rough = i == 2});
        const lq_layout found = w.m->layer[0][LQ_R_DOWN].w.layout, want = i == 1 || i == 2 ? LQ_ANY : w.m->dev->layout;
        CHECK(found == want, "model %d: found layout %d, expected %d", i, found, want);
        world_close(&w);
    }
}

// The model with the matrices of layer 0 that read x coded and their columns scaled; `odd`: k's by other factors.
static bool write_smooth(const char *out, bool odd, lq_err *err) {
    static uint8_t q[160 * 64];
    static float scale[160], smooth[2][64], act[1] = {1 / 16.0f};
    lq_ckpt *in;
    lq_desc d;
    lq_writer *w;
    lq_dev *dev;
    lq_recipe recipe = lq_method_find("rtn")->recipe;
    for (int i = 0; i < 64; i++) smooth[0][i] = smooth[1][i] = i % 2 ? 0.5f : 2;
    if (odd) smooth[1][5] = 4;
    if (!lq_ckpt_open(dir, &in, err) || !lq_desc_read(in, &d, err) || !lq_dev_open("cpu", NULL, &dev, err) ||
        !lq_wtype_parse("int8 row sym f32", &recipe.type, err) ||
        !lq_writer_open(&(lq_writer_opts){.out = out, .fingerprint = "smooth", .overwrite = true,
                                          .header_room = 1 << 16}, &w, err) ||
        !lq_writer_meta(w, "lq.layout", "any", err))
        return false;
    bool done = true;
    for (int l = -1; l < d.layers && done; l++) {
        int n;
        lq_slot *s = lq_desc_slots(&d, l, &n);
        for (int i = 0; i < n && done; i++) {
            lq_weight src;
            done = lq_ckpt_pick(in, &s[i].from, s[i].n, s[i].k, &src, NULL, err);
            if (done && l == 0 && s[i].input == 0 && s[i].k) {
                float copy[64], all[160 * 64];
                for (int64_t r = 0; r < s[i].n; r++) {
                    lq_weight_row(&src, r, copy);
                    for (int c = 0; c < 64; c++) all[r * 64 + c] = copy[c] / smooth[s[i].role == LQ_R_K][c];
                }
                const lq_weight changed = {.type = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32}, .n = s[i].n,
                                           .k = 64, .q = all};
                lq_matrix m = {.w = &changed, .dev = dev, .q = q, .scale = scale};
                done = lq_quantize_matrix(&recipe, &m, err);
                m.type.act = (lq_atype){.elem = LQ_I8, .fixed = true};
                done = done &&
                       lq_writer_weight(w, s[i].name, &(lq_weight){.type = m.type, .n = s[i].n, .k = 64, .q = q,
                                                                   .scale = scale,
                                                                   .smooth = smooth[s[i].role == LQ_R_K],
                                                                   .act_scale = act}, err);
            } else if (done) {
                done = lq_writer_add(w, s[i].name, src.type.elem, s[i].k ? 2 : 1, (int64_t[]){s[i].n, s[i].k}, src.q,
                                     err);
            }
        }
        free(s);
    }
    for (size_t i = 0; lq_side_files[i] && done; i++) {
        lq_bytes file;
        char name[64];
        snprintf(name, sizeof name, "lq.file/%s", lq_side_files[i]);
        done = lq_ckpt_file(in, lq_side_files[i], &file, err) &&
               (!file.p || lq_writer_add(w, name, LQ_U8, 1, &(int64_t){(int64_t)file.n}, file.p, err));
    }
    done = done && lq_writer_commit(w, NULL, NULL, err);
    lq_writer_close(w, !done);
    lq_dev_close(dev);
    lq_desc_free(&d);
    lq_ckpt_close(in);
    return done;
}

static int quants, normed; // forms that `quant` made, and those that a norm made
static void (*quant_of)(lq_dev *, const lq_quant_args *);
static void (*norm_of)(lq_dev *, const lq_norm_args *);
static void norm_counted(lq_dev *d, const lq_norm_args *a) {
    normed += a->act != NULL;
    norm_of(d, a);
}

static void quant_counted(lq_dev *d, const lq_quant_args *a) {
    quants++;
    quant_of(d, a);
}

static void shared_inputs(void) {
    char out[200];
    lq_err err = {0};
    snprintf(out, sizeof out, "%s/smooth.lq", dir);
    for (int odd = 0; odd < 2; odd++) {
        CHECK(write_smooth(out, odd, &err), "%s", err.text);
        lq_model *m = NULL;
        lq_engine *e = NULL;
        CHECK(lq_model_open(out, &(lq_model_opts){.exact = true}, &m, &err) && lq_engine_open(m, NULL, &e, &err), "%s",
              err.text);
        if (!e) continue;
        static float logits[N * VOCAB];
        int32_t ids[N];
        for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 256;
        quant_of = m->dev->ops.quant, norm_of = m->dev->ops.norm;
        m->dev->ops.quant = quant_counted, m->dev->ops.norm = norm_counted;
        quants = normed = 0;
        CHECK(lq_logits(e, ids, N, 0, on_position, logits, &err), "%s", err.text);
        CHECK(normed == 1 && quants == odd, "x took its form %d + %d times for q, k and v whose factors are %s", normed,
              quants, odd ? "not all alike" : "alike");
        lq_engine_close(e);
        lq_model_close(m);
    }
}

int main(void) {
    lq_err err;
    char rm[100];
    if (!mkdtemp(dir)) return 1;
    CHECK(tiny_model(dir, false, &err), "%s", err.text);
    residual(&(lq_model_opts){.exact = true, .threads = 1});
    residual(&(lq_model_opts){.threads = 2, .isa = "c"});
    observer();
    trimmed(&(lq_model_opts){.exact = true, .threads = 1});
    trimmed(&(lq_model_opts){.threads = 2});
    trimmed(&(lq_model_opts){.threads = 2, .isa = "c", .kv = "int8"});
    device_apart();
    beside();
    mapped();
    shared_inputs();
    experts();
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    if (system(rm)) return 1;
    return test_end();
}
