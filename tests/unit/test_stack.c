// test_stack.c: matrices under one name: written one after the other and read back as views, in each layout and where
// a matrix does not end at 64 bytes; picks of them; an interrupted stack goes on to the same bytes; reading back and
// dropping one; what is refused.
#include "formats/parts.h"
#include "kernels/pack.h"
#include "tests/unit/lq_make.h"

static char path[96];

static bool begin(bool resume, lq_layout layout, lq_writer **w, lq_err *err) {
    lq_writer_opts o = {.out = path, .fingerprint = "stack", .resume = resume, .overwrite = true,
                        .header_room = 2 * make_room()};
    return lq_writer_open(&o, w, err) && lq_writer_meta(*w, "lq.layout", lq_layout_names[layout], err);
}

// The e-th matrix of kind i as the file has it.
static lq_weight matrix(int i, int e, lq_layout layout, make_buffers *b) {
    static _Alignas(64) uint8_t room[3][1 << 16];
    lq_weight m = make_matrix(i, e, b), to = m;
    lq_weight_size size;
    if (layout == LQ_ANY || m.type.dq || !lq_layout_sizes(layout, &m.type, m.n, m.k, &size)) return m;
    to.layout = layout, to.q = room[0], to.scale = room[1], to.zero = m.zero ? room[2] : NULL;
    lq_pack(&m, layout, (lq_weight_out){room[0], room[1], room[2]}, NULL);
    return to;
}

static bool put(lq_writer *w, int i, lq_layout layout, int matrices, lq_err *err) {
    static make_buffers b;
    char name[16];
    const lq_weight like = make_weight(i, &b);
    snprintf(name, sizeof name, "s%d", i);
    bool ok = lq_writer_stack(w, name, &like.type, MAKE_STACK, MAKE_N, MAKE_K, err);
    for (int e = 0; e < matrices && ok; e++) {
        const lq_weight q = matrix(i, e, layout, &b);
        ok = lq_writer_stack_put(w, &q, err);
    }
    return ok;
}

static bool put_plain(lq_writer *w, lq_err *err) {
    const lq_wtype bf16 = {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16, .scale = LQ_F32};
    bool ok = lq_writer_stack(w, "plain", &bf16, MAKE_STACK, 5, 7, err);
    for (int e = 0; e < MAKE_STACK && ok; e++) {
        uint16_t q[35];
        for (int j = 0; j < 35; j++) q[j] = lq_f32_bf16((float)(100 * e + j));
        ok = lq_writer_stack_put(w, &(lq_weight){.type = bf16, .n = 5, .k = 7, .q = q}, err);
    }
    return ok;
}

static bool put_all(lq_writer *w, lq_layout layout, int from, lq_err *err) {
    bool ok = true;
    for (int i = from; i < MAKE_FEATURES && ok; i++)
        ok = put(w, i, layout, MAKE_STACK, err) && lq_writer_block(w, "", err);
    return ok && put_plain(w, err) && lq_writer_block(w, "", err) && lq_writer_commit(w, NULL, NULL, err);
}

static bool bind(lq_ckpt *c, const char *name, int64_t n, int64_t k, lq_weight out[MAKE_STACK], lq_err *err) {
    bool ok = true;
    for (lq_pick p = {.stack = MAKE_STACK}; ok && p.at < MAKE_STACK; p.at++) {
        snprintf(p.name, sizeof p.name, "%s", name);
        ok = lq_ckpt_pick(c, &p, n, k, &out[p.at], NULL, err);
    }
    return ok;
}

static void check_views(lq_ckpt *c, int i, lq_layout layout) {
    static make_buffers b;
    lq_weight out[MAKE_STACK], w;
    lq_err err = {0};
    char name[16];
    snprintf(name, sizeof name, "s%d", i);
    bool ok = bind(c, name, MAKE_N, MAKE_K, out, &err);
    CHECK(ok, "%s", err.text);
    for (int e = 0; e < MAKE_STACK && ok; e++) {
        const lq_weight want = matrix(i, e, layout, &b);
        bool same = out[e].layout == want.layout && out[e].outliers == want.outliers &&
                    lq_wtype_equal(&out[e].type, &want.type);
        float got[MAKE_K], row[MAKE_K];
        for (int64_t r = 0; r < MAKE_N && same; r++) {
            lq_weight_row(&out[e], r, got);
            lq_weight_row(&want, r, row);
            same = !memcmp(got, row, sizeof got);
        }
        same &= !out[e].smooth == !want.smooth;
        same = same && (!want.smooth || !memcmp(out[e].smooth, want.smooth, sizeof b.smooth));
        same &= !want.act_scale || (*out[e].act_scale == *want.act_scale && *out[e].act_zero == *want.act_zero);
        bool at64 = true;
        for (lq_part_id p = 0; p < LQ_PARTS; p++) at64 &= (uintptr_t)lq_part_get(p, &out[e]) % 64 == 0;
        CHECK(same && at64, "%s: matrix %d: the same %d, at multiples of 64 %d", name, e, same, at64);
        CHECK((const char *)out[e].q - (const char *)out[0].q == e * ((const char *)out[1].q - (const char *)out[0].q),
              "%s: distances", name);
        lq_pick p = {.stack = MAKE_STACK, .at = e, .first = 2, .run = 3, .step = 6};
        snprintf(p.name, sizeof p.name, "%s", name);
        same = lq_ckpt_pick(c, &p, 9, MAKE_K, &w, NULL, &err);
        for (int64_t r = 0; r < 9 && same; r++) {
            lq_weight_row(&w, r, got);
            lq_weight_row(&want, 2 + r / 3 * 6 + r % 3, row);
            same = !memcmp(got, row, sizeof got);
        }
        CHECK(same, "%s: rows picked of matrix %d: %s", name, e, err.text);
        lq_ckpt_done(c, &w);
    }
    lq_pick p = {.stack = MAKE_STACK, .at = MAKE_STACK};
    snprintf(p.name, sizeof p.name, "%s", name);
    CHECK(!lq_ckpt_pick(c, &p, MAKE_N, MAKE_K, &w, NULL, &err) && strstr(err.text, "of matrix 3 of 3"), "%s", err.text);
    CHECK(!lq_ckpt_weight(c, name, MAKE_N, MAKE_K, &w, &err) && strstr(err.text, "is 3x20x96, expected 20x96"), "%s",
          err.text);
    p.stack = 2, p.at = 0;
    CHECK(!lq_ckpt_pick(c, &p, MAKE_N, MAKE_K, &w, NULL, &err) &&
          strstr(err.text, "shape 3x20x96, expected 20x96, of matrix 0 of 2"), "%s", err.text);
}

static void test_layout(lq_layout layout) {
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_ckpt *c = NULL;
    bool ok = begin(false, layout, &w, &err) && put_all(w, layout, 0, &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(w, !ok);
    ok = ok && lq_ckpt_open(path, &c, &err) && lq_ckpt_verify(c, NULL, NULL, &err);
    CHECK(ok, "%s", err.text);
    for (int i = 0; i < MAKE_FEATURES && c; i++) check_views(c, i, layout);
    lq_weight out[MAKE_STACK];
    CHECK(c && bind(c, "plain", 5, 7, out, &err), "%s", err.text);
    for (int e = 0; e < MAKE_STACK && c; e++) {
        float row[7];
        lq_weight_row_any(&out[e], 4, row);
        CHECK(row[0] == (float)(100 * e + 28), "plain: matrix %d", e);
    }
    CHECK(c && !bind(c, "plain", 7, 5, out, &err) && strstr(err.text, "shape 3x5x7, expected 7x5, of matrix 0 of 3"),
          "%s", err.text);
    CHECK(c && !bind(c, "none", 7, 5, out, &err) && strstr(err.text, "missing"), "%s", err.text);
    lq_ckpt_close(c);
}

// However far the work had come, within a stack or between two, it ends in the same bytes.
static void test_resume(void) {
    const blob want = blob_read(path);
    for (int stop = 0; stop < MAKE_FEATURES; stop++) {
        lq_err err = {0};
        lq_writer *w = NULL;
        bool ok = begin(false, LQ_X86, &w, &err);
        for (int i = 0; i < stop && ok; i++) ok = put(w, i, LQ_X86, MAKE_STACK, &err) && lq_writer_block(w, "", &err);
        ok = ok && put(w, stop, LQ_X86, stop % 3 + 1, &err);
        CHECK(ok, "%s", err.text);
        lq_writer_close(w, false);
        w = NULL;
        ok = begin(true, LQ_X86, &w, &err);
        CHECK(ok && lq_writer_resumed(w) == (size_t)stop, "%zu blocks of %d: %s", w ? lq_writer_resumed(w) : 0, stop,
              err.text);
        ok = ok && put_all(w, LQ_X86, stop % 2 ? 0 : stop, &err); // what is there may be put again
        CHECK(ok, "stopped in %d: %s", stop, err.text);
        lq_writer_close(w, true);
        blob got = blob_read(path);
        CHECK(got.n == want.n && !memcmp(got.p, want.p, got.n), "stopped in %d: the same bytes", stop);
        free(got.p);
    }
    free(want.p);
}

static void check_back(lq_writer *w, int i) {
    static make_buffers b;
    lq_weight out[MAKE_STACK];
    lq_err err = {0};
    char name[16];
    snprintf(name, sizeof name, "s%d", i);
    CHECK(!lq_writer_weight_back(w, name, 0, out, &err) && strstr(err.text, name), "it is a stack: %s", err.text);
    CHECK(!lq_writer_weight_back(w, name, 2, out, &err) && strstr(err.text, name), "of three: %s", err.text);
    const bool ok = lq_writer_weight_back(w, name, MAKE_STACK, out, &err);
    CHECK(ok, "%s", err.text);
    for (int e = 0; e < MAKE_STACK && ok; e++) {
        const lq_weight want = matrix(i, e, LQ_X86, &b);
        float x[MAKE_K], y[MAKE_K];
        bool same = out[e].layout == want.layout;
        for (int64_t r = 0; r < MAKE_N && same; r++) {
            lq_weight_row(&out[e], r, x);
            lq_weight_row(&want, r, y);
            same = !memcmp(x, y, sizeof x);
        }
        CHECK(same, "%s: matrix %d comes back as it was written", name, e);
    }
}

// Stacks are read back once they are whole, in the run that wrote them and after a resume.
static void test_back(void) {
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_weight out[MAKE_STACK];
    bool ok = begin(false, LQ_X86, &w, &err);
    for (int i = 0; i < MAKE_FEATURES && ok; i++) {
        ok = put(w, i, LQ_X86, MAKE_STACK, &err) && lq_writer_block(w, "", &err);
        if (ok) check_back(w, i);
    }
    const lq_wtype bf16 = {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16, .scale = LQ_F32};
    const uint16_t q[35] = {0x3f80};
    ok = ok && lq_writer_stack(w, "plain", &bf16, MAKE_STACK, 5, 7, &err);
    for (int e = 0; e < MAKE_STACK && ok; e++) {
        CHECK(!lq_writer_weight_back(w, "plain", MAKE_STACK, out, &err) && strstr(err.text, "not written"), "%s",
              err.text);
        ok = lq_writer_stack_put(w, &(lq_weight){.type = bf16, .n = 5, .k = 7, .q = q}, &err);
    }
    ok = ok && lq_writer_weight_back(w, "plain", MAKE_STACK, out, &err);
    CHECK(ok && !memcmp(out[2].q, q, sizeof q) && out[2].n == 5 && out[2].k == 7, "%s", err.text);
    CHECK(!lq_writer_weight_back(w, "plain", 0, out, &err) && strstr(err.text, "no matrix"), "%s", err.text);
    lq_writer_close(w, false);
    w = NULL;
    ok = begin(true, LQ_X86, &w, &err);
    CHECK(ok && lq_writer_resumed(w) == MAKE_FEATURES, "%s", err.text);
    for (int i = 0; i < MAKE_FEATURES && ok; i++) check_back(w, i);
    lq_writer_close(w, true);
}

// A stack that was dropped and begun anew, as another type, leaves no trace.
static void test_drop(void) {
    const blob want = blob_read(path);
    static make_buffers b;
    lq_err err = {0};
    lq_writer *w = NULL;
    bool ok = begin(false, LQ_X86, &w, &err);
    if (ok) lq_writer_stack_drop(w); // there is none
    for (int i = 0; i < MAKE_FEATURES && ok; i++) {
        const int other = (i + 1) % MAKE_FEATURES;
        const lq_weight like = make_weight(other, &b);
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        ok = lq_writer_stack(w, name, &like.type, MAKE_STACK, MAKE_N, MAKE_K, &err);
        for (int e = 0; e < i % MAKE_STACK && ok; e++) {
            const lq_weight q = matrix(other, e, LQ_X86, &b);
            ok = lq_writer_stack_put(w, &q, &err);
        }
        lq_writer_stack_drop(w);
        ok = ok && put(w, i, LQ_X86, MAKE_STACK, &err) && lq_writer_block(w, "", &err);
    }
    ok = ok && put_plain(w, &err) && lq_writer_block(w, "", &err) && lq_writer_commit(w, NULL, NULL, &err);
    CHECK(ok, "%s", err.text);
    lq_writer_close(w, true);
    blob got = blob_read(path);
    CHECK(got.n == want.n && !memcmp(got.p, want.p, got.n), "after drops: the same bytes");
    free(got.p);
    free(want.p);
}

static void test_refused(void) {
    static make_buffers b;
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_weight q = make_matrix(1, 0, &b), other = q;
    CHECK(begin(false, LQ_ANY, &w, &err), "%s", err.text);
    CHECK(!lq_writer_stack_put(w, &q, &err) && strstr(err.text, "no stack"), "%s", err.text);
    CHECK(!lq_writer_stack(w, "s", &q.type, 0, MAKE_N, MAKE_K, &err) && strstr(err.text, "0 matrices"), "%s", err.text);
    CHECK(!lq_writer_stack(w, "lq.pad/0", &q.type, 2, MAKE_N, MAKE_K, &err), "%s", err.text);
    CHECK(lq_writer_stack(w, "s", &q.type, 3, MAKE_N, MAKE_K, &err) && lq_writer_stack_put(w, &q, &err), "%s",
          err.text);
    CHECK(!lq_writer_add(w, "v", LQ_F32, 1, (int64_t[]){3}, b.smooth, &err) &&
          strstr(err.text, "weight s: 1 of its 3 matrices"), "%s", err.text);
    CHECK(!lq_writer_weight(w, "v", &q, &err) && !lq_writer_block(w, "", &err) && strstr(err.text, "1 of its 3"), "%s",
          err.text);
    CHECK(!lq_writer_commit(w, NULL, NULL, &err) && strstr(err.text, "1 of its 3"), "%s", err.text);
    CHECK(!lq_writer_stack(w, "t", &q.type, 3, MAKE_N, MAKE_K, &err) && strstr(err.text, "1 of its 3"), "%s", err.text);
    other.type.scale = LQ_F32;
    CHECK(!lq_writer_stack_put(w, &other, &err) && strstr(err.text, "matrix 1 is int4 g32 asym f32 20x96"), "%s",
          err.text);
    other = q, other.n = 16;
    CHECK(!lq_writer_stack_put(w, &other, &err) && strstr(err.text, "16x96"), "%s", err.text);
    CHECK(lq_writer_stack_put(w, &q, &err), "what was refused did no harm: %s", err.text);
    other = q, other.smooth = NULL;
    CHECK(!lq_writer_stack_put(w, &other, &err) && strstr(err.text, "matrix 2 has no smooth, unlike the first"), "%s",
          err.text);
    CHECK(!lq_writer_stack_put(w, &q, &err) && strstr(err.text, "earlier"), "%s", err.text);
    lq_writer_close(w, true);
}

// Models of experts: with a stack for each kind of expert of a layer the header stays small.
static void test_header(void) {
    static const struct { const char *name; int layers, weights; } models[] = {
        {"Qwen3-235B-A22B: 4 of attention, router, 3 stacks", 94, 8},
        {"DeepSeek-V3: 6 of attention, router, 3 stacks, 3 shared", 61, 13}};
    lq_wtype t;
    lq_wtype_parse("int4 g128 asym", &t, NULL);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const size_t one = lq_writer_weight_room("model.layers.100.block_sparse_moe.experts.gate_up_proj.weight", &t);
        const size_t all = one * (size_t)(models[i].layers * models[i].weights);
        CHECK(all < 10 * 1000 * 1000, "%s: %zu bytes a weight, %zu in all", models[i].name, one, all);
    }
}

int main(void) {
    strcpy(folder, "/tmp/lq_stack_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/m.lq", folder);
    test_layout(LQ_ANY);
    test_layout(LQ_CUDA);
    test_layout(LQ_X86);
    test_resume();
    test_back();
    test_drop();
    test_refused();
    test_header();
    tree_remove(folder);
    return test_end();
}
