// test_quant.c: rounding by hand-worked examples and bounds, what is refused, and the pass over a small model:
// validation of files that lie, cancelling, layouts, experts, a rotated model. Bit for bit against numpy:
// tests/golden/check_rtn.py; kills: tests/cli/quantize_kill.py.
#include "kernels/pack.h"
#include "quant/quant.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"
#include <math.h>
#include <unistd.h>

static lq_recipe recipe_of(const char *type) {
    lq_recipe r = {0};
    lq_err err;
    CHECK(lq_wtype_parse(type, &r.type, &err), "%s: %s", type, err.text);
    return r;
}

static lq_dev *one, *three; // devices of one and of three threads

typedef struct rounded {
    lq_weight src;
    lq_matrix m;
    lq_weight_size size;
    bool done;
    lq_err err;
} rounded;

static rounded round_it(const char *type, const void *w, lq_dtype elem, int64_t n, int64_t k, lq_dev *dev) {
    const lq_recipe r = recipe_of(type);
    rounded x = {.src = {.type = {.kind = LQ_W_PLAIN, .elem = elem}, .n = n, .k = k, .q = w}, .m = {.dev = dev}};
    if (!lq_weight_sizes(&r.type, n, k, &x.size)) abort();
    x.m.q = malloc(x.size.q);
    x.m.scale = malloc(2 * x.size.scale + 1);
    x.m.zero = malloc(x.size.zero + 1);
    const lq_weight src = x.src;
    x.m.w = &src;
    x.done = lq_quantize_matrix(&r, &x.m, &x.err);
    x.m.w = NULL;
    return x;
}

static void rounded_free(rounded *x) {
    free(x->m.q);
    free(x->m.scale);
    free(x->m.zero);
}

static lq_weight weight_of(const rounded *x) {
    return (lq_weight){.type = x->m.type, .n = x->src.n, .k = x->src.k, .q = x->m.q, .scale = x->m.scale,
                       .zero = x->m.type.asym ? x->m.zero : NULL};
}

// --- by hand ---

static void check_codes(const char *type, const float *w, double scale, int zero, const int *codes) {
    rounded x = round_it(type, w, LQ_F32, 1, 16, one);
    CHECK(x.done, "%s: %s", type, x.err.text);
    float s;
    lq_dtypes[x.m.type.scale].to_f32(x.m.scale, &s, 1);
    CHECK((double)s == scale && !(scale == 0 && signbit(s)), "%s: scale %g, expected %g", type, (double)s, scale);
    for (int i = 0; i < 16; i++) {
        const int q = (int)lq_code_get(x.m.q, x.m.type.bits, i);
        CHECK(q == codes[i], "%s: code %d is %d, expected %d", type, i, q, codes[i]);
    }
    if (x.m.type.asym) CHECK((int)lq_code_get(x.m.zero, x.m.type.bits, 0) == zero, "%s: zero %u, expected %d", type,
                             lq_code_get(x.m.zero, x.m.type.bits, 0), zero);
    rounded_free(&x);
}

static void test_by_hand(void) {
    // Largest magnitude -8: scale 1, halves go to the even neighbour, 7.5 is cut to 7.
    static const float neg[16] = {-8, 7.5f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0, 7, 6.5f, -7.5f, 3.25f, -3.75f,
                                  0.49f, -0.51f};
    static const int neg_codes[16] = {0, 15, 8, 10, 10, 8, 6, 6, 8, 15, 14, 0, 11, 4, 8, 7};
    check_codes("int4 g16 sym", neg, 1, 8, neg_codes);
    // The same turned round: the scale is negative, the codes are the same.
    float pos[16];
    for (int i = 0; i < 16; i++) pos[i] = -neg[i];
    check_codes("int4 g16 sym", pos, -1, 8, neg_codes);
    // Equal magnitudes on both sides: the negative one leads.
    static const float both[16] = {2, -2, 1, -1, 0.125f, -0.125f};
    static const int both_codes[16] = {15, 0, 12, 4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}; // 0.125 / 0.25 is a half
    check_codes("int4 g16 sym", both, 0.25, 8, both_codes);
    // Asymmetric: -1 .. 14 in 15 steps of 1; of one sign: 0 is let in.
    static const float asym[16] = {-1, 14, 0, 1, 2, 0.5f, 1.5f, 13.5f, -0.5f, 3, 4, 5, 6, 7, 8, 9};
    static const int asym_codes[16] = {0, 15, 1, 2, 3, 1, 3, 15, 1, 4, 5, 6, 7, 8, 9, 10};
    check_codes("int4 g16 asym", asym, 1, 1, asym_codes);
    static const float over[16] = {15, 15, 15, 10, 5, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};
    static const int over_codes[16] = {15, 15, 15, 10, 5, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};
    check_codes("int4 g16 asym", over, 1, 0, over_codes);
    static const float none[16] = {0, -0.0f};
    static const int sym_none[16] = {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}, asym_none[16] = {0};
    check_codes("int4 g16 sym", none, 0, 8, sym_none);
    check_codes("int4 g16 asym", none, 0, 0, asym_none);
    static const float byte[16] = {-128, 127, 126.5f, 1, 0, -1};
    static const int byte_codes[16] = {0, 255, 254, 129, 128, 127, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128};
    check_codes("int8 row sym", byte, 1, 128, byte_codes);
}

// --- bounds, over types and shapes ---

static float noise(uint64_t *s) { return tiny_noise(s) * 0.05f; }

static void test_bounds(void) {
    static const char *const types[] = {"int4 g128", "int4 g32", "int4 g32 asym", "int8 row", "int8 g64 asym",
                                        "int3 g64",
                                        "int2 g16 asym", "int5 row", "int6 g48", "int7 g16 asym"};
    static const int64_t shapes[][2] = {{1, 16}, {1, 1}, {3, 37}, {17, 128}, {5, 1000}, {300, 257}};
    uint64_t seed = 99;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t n = shapes[s][0], k = shapes[s][1];
        uint8_t *raw = malloc((size_t)(n * k) * 2 + 1), *src = raw + 1; // on an odd address
        float *w = malloc((size_t)k * sizeof *w), *back = malloc((size_t)k * sizeof *w);
        for (int64_t i = 0; i < n * k; i++) {
            const uint16_t h = lq_f32_bf16(noise(&seed));
            memcpy(src + 2 * i, &h, 2);
        }
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            rounded a = round_it(types[t], src, LQ_BF16, n, k, one), b = round_it(types[t], src, LQ_BF16, n, k, three);
            CHECK(a.done && b.done, "%s %lldx%lld: %s", types[t], (long long)n, (long long)k, a.err.text);
            const size_t scales = a.size.scale * (a.m.type.scale == LQ_F32 ? 2 : 1);
            CHECK(!memcmp(a.m.q, b.m.q, a.size.q) && !memcmp(a.m.scale, b.m.scale, scales) &&
                  !memcmp(a.m.zero, b.m.zero, a.size.zero) && a.m.error == b.m.error &&
                  a.m.norm == b.m.norm && a.m.max_error == b.m.max_error,
                  "%s %lldx%lld: threads decide bits", types[t], (long long)n, (long long)k);
            const lq_weight q = weight_of(&a);
            double sum = 0, top = 0;
            for (int64_t r = 0; r < n; r++) {
                lq_dtypes[LQ_BF16].to_f32(src + 2 * r * k, w, (size_t)k);
                lq_weight_row_any(&q, r, back);
                for (int64_t c = 0; c < k; c++) {
                    const double e = fabs((double)w[c] - (double)back[c]);
                    sum += e * e;
                    top = e > top ? e : top;
                }
            }
            // Quotients are off by half an ulp of at most 2^bits; sums are in f32 over eight lanes.
            const double slack = 0x1p-23 * ((double)k / 8 + (1 << a.m.type.bits) + 4), size = sqrt(a.m.norm);
            CHECK(fabs(sqrt(sum) - sqrt(a.m.error)) <= slack * (sqrt(sum) + size / (1 << a.m.type.bits)),
                  "%s %lldx%lld: error %g, expected %g", types[t], (long long)n,
                  (long long)k, sqrt(a.m.error), sqrt(sum));
            CHECK(fabs(top - a.m.max_error) <= slack * (top + size), "%s: largest error %g, expected %g", types[t],
                  a.m.max_error, top);
            rounded_free(&a);
            rounded_free(&b);
        }
        free(raw);
        free(w);
        free(back);
    }
}

static void test_extremes(void) {
    float w[64] = {0};
    for (int i = 0; i < 64; i++) w[i] = (float)(i - 32) * 1e-3f;
    rounded x = round_it("int4 g16", w, LQ_F32, 2, 32, one);
    CHECK(x.done && x.m.type.scale == LQ_F16, "ordinary weights keep f16 scales");
    rounded_free(&x);
    static const float hard[] = {1e-9f, 1e-41f, 1e30f, 0x1p127f, -0x1p127f};
    for (size_t i = 0; i < sizeof hard / sizeof *hard; i++) {
        static const char *const types[] = {"int4 g16", "int4 g16 asym", "int2 row asym", "int8 row"};
        for (int t = 0; t < 4; t++) {
            w[40] = hard[i];
            for (int c = 32; c < 64; c++) w[c] = c == 40 ? hard[i] : hard[i] / 3;
            x = round_it(types[t], w, LQ_F32, 2, 32, one);
            CHECK(x.done && x.m.type.scale == LQ_F32, "%s %g: %s", types[t], (double)hard[i], x.err.text);
            float back[32];
            const lq_weight q = weight_of(&x);
            for (int r = 0; r < 2 && x.done; r++) {
                lq_weight_row_any(&q, r, back);
                bool finite = true;
                for (int c = 0; c < 32; c++) finite &= isfinite(back[c]) != 0;
                CHECK(finite && isfinite(x.m.error) && isfinite(x.m.max_error), "%s %g: something is not finite",
                      types[t], (double)hard[i]);
            }
            rounded_free(&x);
        }
    }
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    static const char *const words[] = {"NaN", "infinite", "infinite", "more than int4"};
    for (int i = 0; i < 4; i++) {
        for (int c = 0; c < 64; c++) w[c] = 1;
        w[45] = bad[i];
        x = round_it("int4 g16", w, LQ_F32, 2, 32, one);
        CHECK(!x.done && x.err.code == LQ_E_FORMAT && strstr(x.err.text, "row 1, column 13") &&
              strstr(x.err.text, words[i]), "%s", x.err.text);
        rounded_free(&x);
    }
    for (int c = 0; c < 64; c++) w[c] = 1.001f;
    x = round_it("bf16", w, LQ_F32, 2, 32, one);
    CHECK(x.done && ((uint16_t *)x.m.q)[63] == 0x3f80 && fabs(x.m.max_error - 0.001) < 1e-6, "f32 to bf16");
    rounded_free(&x);
    w[33] = 1e6f;
    x = round_it("f16", w, LQ_F32, 2, 32, one);
    CHECK(!x.done && strstr(x.err.text, "row 1, column 1") && strstr(x.err.text, "f16"), "%s", x.err.text);
    rounded_free(&x);
    lq_err err;
    lq_recipe r = recipe_of("int4 g128");
    CHECK(lq_recipe_check(&r, &err), "%s", err.text);
    r.rounding = LQ_ROUND_GPTQ;
    CHECK(lq_recipe_needs(&r) == LQ_STAT_HESSIAN, "gptq needs a Hessian");
    CHECK(lq_recipe_check(&r, &err), "%s", err.text);
    r = recipe_of("bf16");
    r.rounding = LQ_ROUND_GPTQ;
    CHECK(!lq_recipe_check(&r, &err) && err.code == LQ_E_UNSUPPORTED, "gptq of elements that have no codes");
    r.rounding = LQ_ROUND_NEAREST;
    r.transform = LQ_T_SMOOTH;
    CHECK(lq_recipe_check(&r, &err) && lq_recipe_needs(&r) == LQ_STAT_ABSMAX, "smooth needs maxima alone");
    r.rounding = LQ_ROUND_NEAREST;
    r.transform = LQ_T_ROTATE | LQ_T_SMOOTH | LQ_T_AWQ;
    CHECK(lq_recipe_needs(&r) == (LQ_STAT_ABSMAX | LQ_STAT_ABSMEAN | LQ_STAT_HESSIAN), "smooth and awq need all");
    r.type = recipe_of("int4 g128").type;
    r.transform = LQ_T_AWQ | LQ_T_CLIP;
    CHECK(lq_recipe_check(&r, &err) && lq_recipe_solves(&r), "%s", err.text);
    r.transform = LQ_T_ROTATE | LQ_T_AWQ;
    CHECK(!lq_recipe_check(&r, &err) && strstr(err.text, "turns bases"), "channels of a basis that is turned");
    r = recipe_of("table4 g64 f16");
    CHECK(!lq_recipe_check(&r, &err) && err.code == LQ_E_UNSUPPORTED, "a table that nobody has named");
}

// --- the pass ---

static char dir[256], in[300], out[300];

static bool quantize(const char *to, const char *type, const char *layout,
                     bool (*tick)(void *, double, size_t, const char *), void *arg, lq_quant_result *r, lq_err *err) {
    return lq_quantize(&(lq_quant_opts){.in = in, .out = to, .type = type, .layout = layout, .threads = 2,
                                        .overwrite = true, .tick = tick, .arg = arg}, r, err);
}

// Stops at what has such a name.
static bool stop_at(void *arg, double done, size_t blocks, const char *what) {
    (void)done;
    (void)blocks;
    return strncmp(what, arg, strlen(arg)) != 0;
}

// What is told of progress: never less than before, and something of a layer before it is done.
typedef struct progress { double done; size_t inside; bool falls; } progress;
static bool watch_progress(void *arg, double done, size_t blocks, const char *what) {
    progress *p = arg;
    p->falls |= done < p->done || done > (double)blocks || !what;
    p->inside += done > floor(done);
    p->done = done;
    return true;
}

// Copies a .lq file with one thing changed; what a lying writer would make.
typedef enum lie { LIE_NONE, LIE_NORM, LIE_ROWS, LIE_SCALE, LIE_MISSING, LIE_RECIPE } lie;
static bool tell_lie(const char *from, const char *to, lie how, lq_err *err) {
    static const char *const target = "model.layers.1.mlp.up_proj.weight";
    lq_ckpt *c;
    lq_desc d;
    lq_writer *w = NULL;
    lq_bytes file;
    if (!lq_ckpt_open(from, &c, err) || !lq_desc_read(c, &d, err)) return false;
    bool ok = lq_writer_open(&(lq_writer_opts){.out = to, .fingerprint = "lie", .overwrite = true,
                                               .header_room = 65536}, &w, err) &&
              lq_writer_meta(w, "lq.recipe", how == LIE_RECIPE ? "{" : lq_ckpt_meta(c, "lq.recipe"), err) &&
                  lq_writer_meta(w, "lq.layout", "any", err);
    for (int i = 0; ok && i < 3; i++) {
        const char *name = (const char *[]){"config.json", "tokenizer.json", "generation_config.json"}[i];
        char full[64];
        snprintf(full, sizeof full, "lq.file/%s", name);
        ok = lq_ckpt_file(c, name, &file, err) &&
             (!file.p || lq_writer_add(w, full, LQ_U8, 1, (int64_t[]){(int64_t)file.n}, file.p, err));
    }
    for (int l = -1; ok && l < d.layers; l++) {
        int n;
        lq_slot *slots = lq_desc_slots(&d, l, &n);
        for (int i = 0; ok && i < n; i++) {
            lq_weight q;
            static uint8_t buf[1 << 20];
            ok = lq_ckpt_weight(c, slots[i].name, slots[i].n, slots[i].k, &q, err);
            if (!ok) break;
            const bool hit = !strcmp(slots[i].name, target);
            if (how == LIE_MISSING && hit) continue;
            if (!slots[i].k) {
                memcpy(buf, q.q, (size_t)slots[i].n * lq_dtype_size(q.type.elem));
                if (how == LIE_NORM && l == 1) buf[2] ^= 1;
                ok = lq_writer_add(w, slots[i].name, q.type.elem, 1, (int64_t[]){slots[i].n}, buf, err);
                continue;
            }
            const size_t row = lq_code_row_bytes(q.type.bits, q.k);
            if (hit && how == LIE_ROWS) { // each row takes its neighbour's codes
                memcpy(buf, (const uint8_t *)q.q + row, row * (size_t)(q.n - 1));
                memcpy(buf + row * (size_t)(q.n - 1), q.q, row);
                q.q = buf;
            }
            if (hit && how == LIE_SCALE) {
                const size_t scales = (size_t)q.n * (size_t)lq_weight_groups(&q.type, q.k);
                memcpy(buf, q.scale, 2 * scales);
                buf[2 * scales - 1] = 0x7c, buf[2 * scales - 2] = 0;
                q.scale = buf;
            }
            ok = lq_writer_weight(w, slots[i].name, &q, err);
        }
        free(slots);
    }
    ok = ok && lq_writer_commit(w, NULL, NULL, err);
    if (w) lq_writer_close(w, true);
    lq_desc_free(&d);
    lq_ckpt_close(c);
    return ok;
}

static void test_lies(void) {
    static const struct { lie how; const char *word; bool alone; } rows[] = {
        {LIE_NONE, NULL, true}, {LIE_NORM, "differs", true}, {LIE_ROWS, "further than a step", true},
        {LIE_SCALE, "expected a finite number", false}, {LIE_MISSING, "model.layers.1.mlp.up_proj.weight", false},
        {LIE_RECIPE, "lq.recipe", false}};
    char path[320];
    snprintf(path, sizeof path, "%s/lie.lq", dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lq_err err = {0};
        lq_check check = {0};
        CHECK(tell_lie(out, path, rows[i].how, &err), "lie %zu: %s", i, err.text);
        const bool good = lq_validate(path, in, &check, &err);
        CHECK(good == !rows[i].word && (good || strstr(err.text, rows[i].word)), "lie %zu: %s", i, err.text);
        CHECK(lq_validate(path, NULL, NULL, &err) == rows[i].alone, "lie %zu without the checkpoint: %s", i, err.text);
        if (good) CHECK(check.weights == 1 + 2 * 7 + 1, "%zu weights", check.weights);
    }
}

static void test_layout(lq_layout layout) {
    char path[320];
    lq_err err = {0};
    lq_quant_result r;
    lq_ckpt *a = NULL, *b = NULL;
    lq_desc d;
    snprintf(path, sizeof path, "%s/%s.lq", dir, lq_layout_names[layout]);
    CHECK(quantize(path, "int4 g32", lq_layout_names[layout], NULL, NULL, &r, &err), "%s", err.text);
    lq_quant_result_free(&r);
    CHECK(lq_validate(path, in, NULL, &err), "%s", err.text);
    if (!lq_ckpt_open(out, &a, &err) || !lq_ckpt_open(path, &b, &err) || !lq_desc_read(a, &d, &err)) {
        CHECK(false, "%s", err.text);
        return;
    }
    int n;
    lq_slot *slots = lq_desc_slots(&d, 0, &n);
    for (int i = 0; i < n; i++) {
        lq_weight x, y;
        float p[512], q[512];
        if (!slots[i].k) continue;
        CHECK(lq_ckpt_weight(a, slots[i].name, slots[i].n, slots[i].k, &x, &err) &&
              lq_ckpt_weight(b, slots[i].name, slots[i].n, slots[i].k, &y, &err), "%s", err.text);
        bool same = true;
        for (int64_t row = 0; row < slots[i].n; row++) {
            lq_weight_row(&x, row, p);
            lq_weight_row(&y, row, q);
            same &= !memcmp(p, q, (size_t)slots[i].k * sizeof *p);
        }
        CHECK(same && x.layout == LQ_ANY && y.layout == layout, "%s: layout %s holds other weights", slots[i].name,
              lq_layout_names[layout]);
    }
    free(slots);
    lq_desc_free(&d);
    lq_ckpt_close(a);
    lq_ckpt_close(b);
}

static void test_pass(void) {
    lq_err err = {0};
    lq_quant_result r;
    snprintf(out, sizeof out, "%s/a.lq", dir);
    CHECK(quantize(out, "int4 g32", NULL, NULL, NULL, &r, &err), "%s", err.text);
    CHECK(r.count == 1 + 2 * 7 + 1 && r.blocks == 4 && r.resumed == 0 && r.out_bytes > 0 && r.bits > 4.5 &&
          r.bits < 8.5,
          "%zu rows, %zu blocks, %g bits", r.count, r.blocks, r.bits);
    const size_t whole = r.out_bytes;
    lq_quant_result_free(&r);
    CHECK(lq_validate(out, in, NULL, &err), "%s", err.text);
    test_lies();
    test_layout(LQ_X86);
    test_layout(LQ_CUDA);
    // Stopped before block 2, gone on from there.
    char path[320], data[360];
    char at[] = "layer 1";
    snprintf(path, sizeof path, "%s/b.lq", dir);
    snprintf(data, sizeof data, "%s.partial/data", path);
    CHECK(!quantize(path, "int4 g32", NULL, stop_at, at, &r, &err) && err.code == LQ_E_CANCELLED && !r.rows, "%s",
          err.text);
    CHECK(access(path, F_OK) != 0 && access(data, F_OK) == 0, "a stopped run leaves its blocks and no file");
    CHECK(quantize(path, "int4 g32", NULL, NULL, NULL, &r, &err), "%s", err.text);
    CHECK(r.resumed == 2 && r.count == 16 && r.out_bytes == whole, "%zu blocks resumed", r.resumed);
    for (size_t i = 0; i < r.count; i++)
        CHECK(r.rows[i].rel_error > 0 && r.rows[i].rel_error < 0.2 && r.rows[i].max_error > 0,
                                               "%s: error %g", r.rows[i].name, r.rows[i].rel_error);
    lq_quant_result_free(&r);
    // What must be refused.
    lq_quant_opts o = {.in = in, .out = path};
    CHECK(!lq_quantize(&o, &r, &err) && err.code == LQ_E_USAGE && strstr(err.text, "is there already"), "%s", err.text);
    o = (lq_quant_opts){.in = in, .out = path, .overwrite = true, .max_ram = 1000};
    CHECK(!lq_quantize(&o, &r, &err) && err.code == LQ_E_LIMIT && strstr(err.text, "memory"), "%s", err.text);
    o = (lq_quant_opts){.in = in, .out = path, .overwrite = true, .method = "magic"};
    CHECK(!lq_quantize(&o, &r, &err) && err.code == LQ_E_USAGE && strstr(err.text, "magic"), "%s", err.text);
    o = (lq_quant_opts){.in = in, .out = dir, .overwrite = true};
    CHECK(!lq_quantize(&o, &r, &err) && err.code == LQ_E_USAGE, "%s", err.text);
    o = (lq_quant_opts){.in = in, .out = path, .overwrite = true, .type = "table4 g64 f16"};
    CHECK(!lq_quantize(&o, &r, NULL), "an error that nobody wants to hear");
}

// A checkpoint whose experts 2 and 3 have each other's names, once.
static bool swap_experts(const char *model) {
    static char text[1 << 23];
    static const char *const names[] = {"layers.1.block_sparse_moe.experts.2.w1.",
                                        "layers.1.block_sparse_moe.experts.3.w1."};
    char path[340], *at[2];
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    FILE *f = fopen(path, "r+b");
    if (!f) return false;
    const size_t n = fread(text, 1, sizeof text, f);
    for (int i = 0; i < 2; i++) at[i] = memmem(text, n, names[i], strlen(names[i]));
    for (int i = 0; i < 2 && at[0] && at[1]; i++) memcpy(at[i], names[1 - i], strlen(names[i]));
    rewind(f);
    const bool done = at[0] && at[1] && n < sizeof text && fwrite(text, 1, n, f) == n;
    return fclose(f) == 0 && done;
}

// Each expert is held against its own source, coded and as it was.
static void test_mixture(void) {
    static const char *const stack = "model.layers.1.block_sparse_moe.experts.w1.weight";
    char swapped[300], path[340];
    lq_err err = {0};
    lq_quant_result r;
    snprintf(in, sizeof in, "%s/mixture", dir);
    snprintf(swapped, sizeof swapped, "%s/swapped", dir);
    CHECK(tiny_model_of(in, "MixtralForCausalLM", false, tiny_experts, &err) &&
          tiny_model_of(swapped, "MixtralForCausalLM", false, tiny_experts, &err) && swap_experts(swapped), "%s",
          err.text);
    for (int i = 0; i < 3; i++) {
        lq_check check = {0};
        const char *type = (const char *[]){"int4 g32", "bf16", "f32"}[i];
        snprintf(path, sizeof path, "%s/mixture%d.lq", dir, i);
        CHECK(quantize(path, type, NULL, NULL, NULL, &r, &err), "%s: %s", type, err.text);
        CHECK(lq_validate(path, in, &check, &err) && check.weights == 1 + 2 * (4 + 1 + 3) + 1, "%s: %zu weights %s",
              type, check.weights, err.text);
        CHECK(!lq_validate(path, swapped, NULL, &err) && strstr(err.text, stack) &&
              strstr(err.text, i == 1 ? "differs" : "further than a step"), "%s, swapped: %s", type, err.text);
        size_t stacks = 0;
        for (size_t j = 0; j < r.count; j++)
            stacks += r.rows[j].count == 4 && r.rows[j].worst_error >= r.rows[j].rel_error;
        CHECK(stacks == (i == 1 ? 0 : 2 * 3), "%s: %zu stacks in the report", type, stacks);
        lq_quant_result_free(&r);
    }
}

static bool same_files(const char *a, const char *b) {
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int x = 0, y = f && g ? 0 : 1;
    while (x == y && x != EOF) x = getc(f), y = getc(g);
    if (f) fclose(f);
    if (g) fclose(g);
    return x == y;
}

// Element (row, col) of a matrix of the model in `in`, set to NaN.
static bool spoil(const char *name, int64_t row, int64_t col) {
    char path[340];
    lq_err err;
    lq_ckpt *c;
    snprintf(path, sizeof path, "%s/model.safetensors", in);
    if (!lq_ckpt_open(in, &c, &err)) return false;
    const lq_tensor *t = lq_ckpt_find(c, name);
    static const uint16_t nan = 0x7fc0;
    uint16_t want[2];
    memcpy(want, (const uint8_t *)t->data + 2 * (row * t->shape[1] + col), sizeof want);
    FILE *f = fopen(path, "r+b");
    long at = 0;
    uint8_t have[4] = {0};
    // Where it stands in the file: these two elements, which random weights do not have twice.
    for (int ch; f && (ch = getc(f)) != EOF && memcmp(have, want, 4); at++) {
        memmove(have, have + 1, 3);
        have[3] = (uint8_t)ch;
    }
    lq_ckpt_close(c);
    const bool done = f && !fseek(f, at - 4, SEEK_SET) && fwrite(&nan, 2, 1, f) == 1;
    return f && !fclose(f) && done;
}

// Rotated: the same bytes with any number of threads and after a stop, a tied head becomes a matrix of its own, and an
// element that a turn would spread is named. Bit for bit against numpy: tests/golden/check_rotate.py.
static void test_rotate(void) {
    char path[3][340];
    char at[] = "layer 1";
    lq_err err = {0};
    lq_quant_result r;
    lq_check check;
    snprintf(in, sizeof in, "%s/tied", dir);
    CHECK(tiny_model(in, true, &err), "%s", err.text);
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/turned%d.lq", dir, i);
        lq_quant_opts o = {.in = in, .out = path[i], .method = "hadamard", .type = "int4 g32 asym", .embed = "keep",
                           .threads = 1 + i, .arg = at};
        if (i == 2) {
            o.tick = stop_at;
            CHECK(!lq_quantize(&o, &r, &err) && err.code == LQ_E_CANCELLED, "%s", err.text);
            o.tick = NULL;
        }
        progress seen = {0};
        o.tick = watch_progress, o.arg = &seen;
        CHECK(lq_quantize(&o, &r, &err), "%s", err.text);
        CHECK(!seen.falls && (seen.inside || i == 2) && seen.done <= (double)r.blocks, "progress: %zu", seen.inside);
        CHECK(r.count == 1 + 2 * 7 + 1 && r.resumed == (i == 2 ? 2 : 0), "%zu rows, %zu resumed", r.count, r.resumed);
        lq_quant_result_free(&r);
        CHECK(i == 0 || same_files(path[0], path[i]), "%s: other bytes", path[i]);
    }
    CHECK(lq_validate(path[0], in, &check, &err) && check.weights == 1 + 2 * 7 + 1, "%s", err.text);
    static const char *const names[] = {"model.layers.1.self_attn.o_proj.weight", "model.layers.0.mlp.up_proj.weight"};
    for (int i = 0; i < 2; i++) {
        CHECK(spoil(names[i], 3, 5), "%s", names[i]);
        const lq_quant_opts o = {.in = in, .out = path[0], .method = "hadamard", .overwrite = true};
        CHECK(!lq_quantize(&o, &r, &err) && strstr(err.text, names[i]) && strstr(err.text, "row 3, column 5 is NaN"),
              "%s", err.text);
    }
}

int main(void) {
    lq_err err = {0};
    CHECK(lq_dev_open("cpu", &(lq_dev_opts){.threads = 1}, &one, &err) &&
          lq_dev_open("cpu", &(lq_dev_opts){.threads = 3}, &three, &err), "%s",
          err.text);
    test_by_hand();
    test_bounds();
    test_extremes();
    lq_dev_close(one);
    lq_dev_close(three);
    snprintf(dir, sizeof dir, "/tmp/lq-test-quant-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(in, sizeof in, "%s/model", dir);
    CHECK(tiny_model(in, false, &err), "%s", err.text);
    test_pass();
    test_mixture();
    test_rotate();
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    if (system(command)) return 1;
    return test_end();
}
