// test_pick.c: rows picked out of tensors and coded weights are the rows that the rule names: ranges, runs, matrices of
// a stack, tensors stored across; where they are borrowed, what a copy keeps, what is refused.
#include "formats/ckpt.h"
#include "kernels/pack.h"
#include "tests/unit/lq_make.h"

enum { N = 40, K = 96, STACK = 3 };
static char path[96];

static int64_t row_of(const lq_pick *p, int64_t i) {
    return p->run ? p->first + i / p->run * p->step + i % p->run : p->first + i;
}

static const struct { int64_t first, run, step, n; } picks[] = {
    {0, 0, 0, N}, {0, 0, 0, N - 1}, {8, 0, 0, 8}, {16, 0, 0, 16}, {32, 0, 0, 8}, {5, 0, 0, 20}, {N - 1, 0, 0, 1},
    {0, 4, 12, 12}, {4, 4, 12, 12}, {8, 4, 12, 12}, {0, 1, 2, 20}, {1, 1, 2, 20}, {0, 8, 16, 24}, {8, 8, 16, 16},
    {0, 20, 20, N}, {3, 5, 5, 11}, {0, 16, 0, 48}, {4, 2, 0, 9}, {0, 16, 16, 16}, {16, 16, 24, 24}, {7, 3, 8, 14}};
enum { PICKS = sizeof picks / sizeof *picks };

static bool fits(const lq_pick *p, int64_t n) {
    if (!p->first && !p->run && !p->step) return n == N;
    for (int64_t i = 0; i < n; i++)
        if (row_of(p, i) >= N) return false;
    return true;
}

static float value(int tensor, int64_t at, int64_t row, int64_t col) {
    return (float)((tensor * 64 + at * 16 + row) * 8 + col % 8) + (float)(col / 8) * 0.125f;
}

// --- plain tensors ---

static const struct { const char *name; lq_dtype type; int64_t stack; bool across, vector; } tensors[] = {
    {"m", LQ_F32, 0, false, false}, {"h", LQ_BF16, 0, false, false}, {"d", LQ_F64, 0, true, false},
    {"t", LQ_F32, 0, true, false}, {"s", LQ_F16, STACK, false, false}, {"x", LQ_BF16, STACK, true, false},
    {"b", LQ_F32, 0, true, true}, {"v", LQ_BF16, STACK, false, true}};
enum { TENSORS = sizeof tensors / sizeof *tensors, WIDE = 11 };

static bool plain_make(const char *to, lq_err *err) {
    lq_writer *w = NULL;
    lq_writer_opts o = {.out = to, .fingerprint = "", .plain = true, .overwrite = true, .header_room = 20000};
    bool ok = lq_writer_open(&o, &w, err);
    ok = ok && lq_writer_add(w, "odd", LQ_U8, 1, (int64_t[]){1}, "x", err); // what follows is not aligned
    for (int i = 0; i < TENSORS && ok; i++) {
        const int64_t wide = tensors[i].vector ? 1 : WIDE, stack = tensors[i].stack ? tensors[i].stack : 1;
        float f[STACK * N * WIDE];
        double raw[STACK * N * WIDE];
        for (int64_t e = 0; e < stack; e++)
            for (int64_t r = 0; r < N; r++)
                for (int64_t c = 0; c < wide; c++)
                    f[e * N * wide + (tensors[i].across && wide > 1 ? c * N + r : r * wide + c)] =
                        lq_bf16_f32(lq_f32_bf16(value(i, e, r, c) / 64));
        lq_dtypes[tensors[i].type].from_f32(f, raw, (size_t)(stack * N * wide));
        int64_t shape[3];
        int rank = 0;
        if (tensors[i].stack) shape[rank++] = stack;
        if (wide > 1 && tensors[i].across) shape[rank++] = wide;
        shape[rank++] = N;
        if (wide > 1 && !tensors[i].across) shape[rank++] = wide;
        ok = lq_writer_add(w, tensors[i].name, tensors[i].type, rank, shape, raw, err);
    }
    ok = ok && lq_writer_commit(w, NULL, NULL, err);
    lq_writer_close(w, !ok);
    return ok;
}

static void plain_check(lq_ckpt *c, int i, lq_pick p, int64_t n) {
    const int64_t k = tensors[i].vector ? 0 : WIDE;
    const bool good = fits(&p, n);
    lq_weight w;
    lq_err err = {0};
    bool plain = true, ok = lq_ckpt_pick(c, &p, n, k, &w, &plain, &err);
    CHECK(ok == good, "%s %lld %lld %lld n %lld: %s", p.name, (long long)p.first, (long long)p.run, (long long)p.step,
          (long long)n, err.text);
    if (!ok) CHECK(err_good(&err, path) && strstr(err.text, p.name), "%s", err.text);
    if (!ok || !good) return;
    bool same = w.type.kind == LQ_W_PLAIN && w.type.elem == tensors[i].type && !plain && w.n == n && w.k == (k ? k : 1);
    for (int64_t r = 0; r < n && same; r++) {
        float got[WIDE];
        lq_weight_row_any(&w, r, got);
        for (int64_t j = 0; j < w.k; j++)
            same &= got[j] == lq_bf16_f32(lq_f32_bf16(value(i, p.at, row_of(&p, r), j) / 64));
    }
    CHECK(same, "%s at %lld: %lld %lld %lld n %lld: values", p.name, (long long)p.at, (long long)p.first,
          (long long)p.run, (long long)p.step, (long long)n);
    const lq_tensor *t = lq_ckpt_find(c, p.name);
    const bool inside = (uintptr_t)w.q >= (uintptr_t)t->data && (uintptr_t)w.q < (uintptr_t)t->data + t->bytes;
    const bool lies = (uintptr_t)t->data % lq_dtype_size(t->type) == 0 && (k == 0 || !p.across) &&
                      (!p.run || n <= p.run || p.run == p.step);
    CHECK(inside == lies, "%s: %s", p.name, inside ? "borrowed" : "copied");
    lq_ckpt_done(c, &w);
}

static void test_plain(void) {
    lq_err err = {0};
    lq_ckpt *c = NULL;
    CHECK(plain_make(path, &err) && lq_ckpt_open(path, &c, &err), "%s", err.text);
    if (!c) return;
    for (int i = 0; i < TENSORS; i++)
        for (int64_t at = 0; at < (tensors[i].stack ? STACK : 1); at++)
            for (int j = 0; j < PICKS; j++) {
                lq_pick p = {.stack = tensors[i].stack, .at = at, .first = picks[j].first, .run = picks[j].run,
                             .step = picks[j].step, .across = tensors[i].across};
                snprintf(p.name, sizeof p.name, "%s", tensors[i].name);
                plain_check(c, i, p, picks[j].n);
            }
    lq_weight w;
    CHECK(lq_ckpt_pick(c, &(lq_pick){.name = "t", .across = true}, N, WIDE, &w, NULL, &err),
          "a copy that nobody is done with: %s", err.text);
    lq_ckpt_close(c);
}

// Matrices that are rows of a larger one: 40 rows are four of 10, of each of which some are picked, as they are or
// turned.
static void test_each(void) {
    lq_err err = {0};
    lq_ckpt *c = NULL;
    lq_weight whole, w;
    CHECK(lq_ckpt_open(path, &c, &err) && lq_ckpt_weight(c, "m", N, WIDE, &whole, &err), "%s", err.text);
    for (int i = 0; c && i < 8; i++) {
        const lq_pick p = {.name = "m", .stack = 4, .at = i / 2, .each = 10, .first = 3, .across = i % 2};
        const int64_t n = p.across ? WIDE : 6, k = p.across ? 6 : WIDE;
        const bool done = lq_ckpt_pick(c, &p, n, k, &w, NULL, &err);
        bool same = done;
        CHECK(done, "%s", err.text);
        for (int64_t r = 0; same && r < 6; r++) {
            float from[WIDE], row[WIDE];
            lq_weight_row(&whole, p.at * 10 + 3 + r, from);
            if (!p.across) lq_weight_row(&w, r, row);
            for (int64_t j = 0; j < WIDE; j++) {
                float turned[6];
                if (p.across) lq_weight_row_any(&w, j, turned), row[j] = turned[r];
                same &= row[j] == from[j];
            }
        }
        CHECK(same, "matrix %d%s", i / 2, i % 2 ? " across" : "");
        if (done) lq_ckpt_done(c, &w);
    }
    lq_ckpt_close(c);
}

static void test_refused(void) {
    static const struct { lq_pick p; int64_t n, k; const char *why; } cases[] = {
        {{.name = "absent"}, N, WIDE, "tensor absent is missing"},
        {{.name = "odd"}, 1, 0, "is u8, expected a float type"},
        {{.name = "m"}, N, WIDE + 1, "shape 40x11, expected 40x12"},
        {{.name = "m"}, N, 0, "shape 40x11, expected 40"},
        {{.name = "b"}, N, 1, "shape 40, expected 40x1"},
        {{.name = "m"}, N - 1, WIDE, "shape 40x11, expected 39x11"},
        {{.name = "m", .first = 30}, 11, WIDE, "expected 11x11 from row 30 on"},
        {{.name = "m", .first = -1}, 2, WIDE, "from row -1"},
        {{.name = "m", .first = 3, .run = 4, .step = 12}, 14, WIDE, "from row 3 on, 4 of every 12"},
        {{.name = "m", .run = 4, .step = 3}, 8, WIDE, "4 of every 3"},
        {{.name = "m", .run = -4, .step = 3}, 8, WIDE, "-4 of every 3"},
        {{.name = "m", .run = 1, .step = INT64_MAX}, 3, WIDE, "expected 3x11"},
        {{.name = "m", .run = INT64_MAX, .step = INT64_MAX}, 3, WIDE, "expected 3x11"},
        {{.name = "m", .first = INT64_MAX}, 3, WIDE, "expected 3x11"},
        {{.name = "m", .first = 1, .run = 1}, INT64_MAX, WIDE, "shape 40x11"},
        {{.name = "m", .first = 1, .run = 1}, INT32_MAX, WIDE, "shape 40x11"},
        {{.name = "m", .first = 1}, 0, WIDE, "expected 0x11"},
        {{.name = "m", .first = 1}, 4, -1, "expected 4x-1"},
        {{.name = "m", .across = true}, N, WIDE, "stored across"},
        {{.name = "m", .stack = 3}, N, WIDE, "of matrix 0 of 3"},
        {{.name = "s"}, N, WIDE, "shape 3x40x11, expected 40x11"},
        {{.name = "s", .stack = 2}, N, WIDE, "of matrix 0 of 2"},
        {{.name = "s", .stack = 3, .at = 3}, N, WIDE, "of matrix 3 of 3"},
        {{.name = "s", .stack = 3, .at = -1}, N, WIDE, "of matrix -1 of 3"},
        {{.name = "s", .stack = -3}, N, WIDE, "shape 3x40x11"},
        {{.name = "m", .stack = 4, .each = 11}, 4, WIDE, "from row 0 of each 11 on, of matrix 0 of 4"},
        {{.name = "m", .stack = 5, .each = 10}, 4, WIDE, "of matrix 0 of 5"},
        {{.name = "m", .stack = 4, .at = 4, .each = 10}, 4, WIDE, "of matrix 4 of 4"},
        {{.name = "m", .stack = 4, .each = 10, .first = 7}, 4, WIDE, "from row 7 of each 10 on"},
        {{.name = "m", .stack = 4, .each = 10, .first = INT64_MAX}, 4, WIDE, "of each 10 on"},
        {{.name = "m", .stack = 4, .each = 10, .first = 7, .across = true}, WIDE, 4, "stored across"},
        {{.name = "m", .stack = 4, .each = 10, .across = true}, WIDE + 1, 4, "stored across"},
        {{.name = "m", .stack = 4, .each = 10, .run = 1, .step = 2}, 2, WIDE, "of each 10 on"},
        {{.name = "b", .stack = 4, .each = 10}, 4, 0, "shape 40"},
        {{.name = "x", .stack = 3, .at = 1, .first = 39, .across = true}, 2, WIDE,
         "from row 39 on, of matrix 1 of 3, stored across"}};
    lq_err err;
    lq_ckpt *c = NULL;
    CHECK(lq_ckpt_open(path, &c, &err), "%s", err.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && c; i++) {
        lq_weight w;
        err = (lq_err){0};
        CHECK(!lq_ckpt_pick(c, &cases[i].p, cases[i].n, cases[i].k, &w, NULL, &err) && err_good(&err, path) &&
              strstr(err.text, cases[i].why) && strstr(err.text, cases[i].p.name), "%zu: %s", i, err.text);
    }
    lq_pick endless;
    lq_weight w;
    memset(&endless, 'a', sizeof endless);
    CHECK(c && !lq_ckpt_pick(c, &endless, 1, 1, &w, NULL, &err) && err.code == LQ_E_USAGE, "a name without an end");
    lq_ckpt_close(c);
}

// --- coded weights ---

static const struct { const char *type; bool perm, smooth, outliers; } coded[] = {
    {"int4 g32", false, false, false}, {"int4 g32 asym", true, true, false}, {"int8", false, false, true},
    {"int8 g48 asym", false, true, false}, {"int3 g16 asym f32", true, false, false},
    {"int2 g32", false, false, false}, {"int3 row", false, true, false}, {"int5 g32 asym", true, false, true},
    {"int6 row f32", false, false, false},
    {"table4 g16", false, false, false}, {"e4m3 g32 r8 f32", false, true, false},
    {"e4m3 g32 r16 f32", false, false, false}, {"e4m3 tensor f32", false, false, false},
    {"int4 tensor", false, false, false}, {"e5m2 row f16", false, false, false},
    {"nf4 g64 f16", false, true, true}, {"fp4 g32 e8m0", true, false, false},
    {"nf4 g16 dq256", false, false, false}, {"int4 g32 asym dq256", true, false, true}};
enum { CODED = sizeof coded / sizeof *coded };

static bool coded_put(lq_writer *w, int i, lq_layout layout, lq_err *err) {
    static uint8_t q[N * K], scale[N * K], zero[N * K], room[3][N * K * 4];
    static int32_t perm[K], cols[3] = {7, 90, 31};
    static float smooth[K], table[16], map[256], by[1 + N * K / 16 / 256];
    static uint16_t values[N * 3];
    uint64_t seed = 88172645463325252u + (uint64_t)i;
    lq_weight m = {.n = N, .k = K, .q = q, .scale = scale};
    if (!lq_wtype_parse(coded[i].type, &m.type, err)) return false;
    for (size_t j = 0; j < sizeof q; j++)
        q[j] = (uint8_t)(next_random(&seed) % 120), zero[j] = (uint8_t)next_random(&seed);
    for (size_t j = 0; j < sizeof scale / 4; j++) {
        const float s = 0.01f + (float)(next_random(&seed) % 1000) / 1000;
        if (m.type.scale == LQ_F32) memcpy(scale + 4 * j, &s, 4);
        else if (m.type.scale == LQ_E8M0) lq_dtypes[LQ_E8M0].from_f32(&s, scale + j, 1);
        else memcpy(scale + 2 * j, &(uint16_t){lq_f32_f16(s)}, 2);
    }
    for (int j = 0; j < K; j++) perm[j] = (j * 5 + 3) % K, smooth[j] = 1.0f + (float)j / 8;
    for (int j = 0; j < 16; j++) table[j] = (float)j - 7.5f;
    for (int j = 0; j < N * 3; j++) values[j] = lq_f32_bf16((float)j - 11);
    if (m.type.asym) m.zero = zero;
    if (m.type.kind == LQ_W_TABLE && !m.type.book) m.table = table;
    for (int j = 0; j < 256; j++) map[j] = (float)j / 256;
    for (int j = 0; j < 1 + N * K / 16 / 256; j++) by[j] = 1 + (float)j;
    if (m.type.dq) m.scale = NULL, m.scale_code = scale, m.scale_map = map, m.scale2 = by, m.scale_offset = &map[7];
    if (coded[i].perm) m.perm = perm;
    if (coded[i].smooth) m.smooth = smooth;
    if (coded[i].outliers) m.outlier = cols, m.outlier_w = values, m.outliers = 3;
    lq_weight_size size;
    if (layout != LQ_ANY && !m.type.dq && lq_layout_sizes(layout, &m.type, N, K, &size)) {
        lq_weight packed = m;
        packed.layout = layout, packed.q = room[0], packed.scale = room[1], packed.zero = m.zero ? room[2] : NULL;
        lq_pack(&m, layout, (lq_weight_out){room[0], room[1], room[2]}, NULL);
        m = packed;
    }
    char name[16];
    snprintf(name, sizeof name, "w%d", i);
    return lq_writer_weight(w, name, &m, err);
}

static bool coded_make(lq_layout layout, lq_err *err) {
    lq_writer *w = NULL;
    lq_writer_opts o = {.out = path, .fingerprint = "", .overwrite = true, .header_room = make_room() * 2};
    bool ok = lq_writer_open(&o, &w, err) && lq_writer_meta(w, "lq.layout", lq_layout_names[layout], err);
    for (int i = 0; i < CODED && ok; i++) ok = coded_put(w, i, layout, err);
    ok = ok && lq_writer_commit(w, NULL, NULL, err);
    lq_writer_close(w, !ok);
    return ok;
}

static void coded_check(lq_ckpt *c, const lq_weight *whole, lq_pick p, int64_t n) {
    lq_weight w;
    lq_err err = {0};
    bool plain = true, good = fits(&p, n), ok = lq_ckpt_pick(c, &p, n, K, &w, &plain, &err);
    CHECK(ok == good, "%s %lld %lld %lld n %lld: %s", p.name, (long long)p.first, (long long)p.run, (long long)p.step,
          (long long)n, err.text);
    if (!ok || !good) return;
    bool same = !plain && w.layout == whole->layout && w.type.bits == whole->type.bits && w.n == n && w.k == K;
    const bool cut = whole->type.rows > 1 && whole->type.rows < N;
    same &= w.type.rows == whole->type.rows || (cut && w.type.rows <= 1);
    for (int64_t r = 0; r < n && same; r++) {
        float got[K], want[K];
        lq_weight_row(&w, r, got);
        lq_weight_row(whole, row_of(&p, r), want);
        same = !memcmp(got, want, sizeof got);
    }
    same &= w.perm == whole->perm && w.smooth == whole->smooth && w.outlier == whole->outlier &&
            w.outliers == whole->outliers;
    same &= (uintptr_t)w.q % 64 == 0 && (uintptr_t)w.scale % 64 == 0 && (uintptr_t)w.zero % 64 == 0;
    char type[64];
    lq_wtype_name(&whole->type, type, sizeof type);
    CHECK(same, "%s %s: %lld %lld %lld n %lld", type, lq_layout_names[w.layout], (long long)p.first, (long long)p.run,
          (long long)p.step, (long long)n);
    if (!p.first && !p.run)
        CHECK(w.q == whole->q && (w.scale == whole->scale || w.type.dq), "%s: the whole is borrowed", type);
    lq_ckpt_done(c, &w);
}

// Stored across: the weight itself is [K][N] then, so its rows are our columns.
static void across_check(lq_ckpt *c, const char *name, const lq_weight *whole) {
    lq_pick p = {.first = 3, .run = 5, .step = 20, .across = true};
    snprintf(p.name, sizeof p.name, "%s", name);
    lq_weight w;
    lq_err err = {0};
    bool plain = false, ok = lq_ckpt_pick(c, &p, 25, N, &w, &plain, &err);
    CHECK(ok && plain && w.type.kind == LQ_W_PLAIN && w.type.elem == LQ_F32 && !w.smooth, "%s", err.text);
    if (!ok) return;
    bool same = true;
    for (int64_t j = 0; j < N; j++) {
        float row[K];
        lq_weight_row(whole, j, row);
        for (int64_t i = 0; i < 25; i++) {
            const int64_t r = row_of(&p, i);
            same &= ((const float *)w.q)[i * N + j] == (whole->smooth ? row[r] * whole->smooth[r] : row[r]);
        }
    }
    CHECK(same, "%s across", name);
    lq_ckpt_done(c, &w);
}

// Rows of several stripes that are picked are, padding and all, what these rows become by themselves.
static void test_stripes(const char *type, int64_t bytes, int64_t groups, int64_t zeros) {
    enum { ROWS = 150, COLS = 200 };
    static const struct { lq_pick p; int64_t n; } picks_of[] = {{{.first = 7}, 100}, {{.first = 16}, 64},
        {{.first = 2, .run = 9, .step = 30}, 45}, {{.run = 3, .step = 0}, 90}, {{.first = 149}, 1}};
    static uint8_t q[ROWS * COLS], scale[ROWS * 64], zero[ROWS * 64], own[3][ROWS * COLS], room[3][192 * 256];
    static uint8_t want[3][192 * 256];
    uint64_t seed = 4711;
    lq_err err = {0};
    lq_ckpt *c = NULL;
    lq_writer *w = NULL;
    lq_writer_opts o = {.out = path, .fingerprint = "", .overwrite = true, .header_room = make_room()};
    lq_weight m = {.n = ROWS, .k = COLS, .q = q, .scale = scale, .zero = zeros ? zero : NULL}, file = m;
    for (size_t i = 0; i < sizeof q; i++) q[i] = (uint8_t)(next_random(&seed) % 112);
    for (size_t i = 0; i < sizeof scale; i++)
        scale[i] = (uint8_t)(next_random(&seed) % 60), zero[i] = (uint8_t)next_random(&seed);
    CHECK(lq_wtype_parse(type, &m.type, &err), "%s", err.text);
    file.type = m.type, file.layout = LQ_CUDA, file.q = room[0], file.scale = room[1];
    file.zero = zeros ? room[2] : NULL;
    lq_pack(&m, LQ_CUDA, (lq_weight_out){room[0], room[1], room[2]}, NULL);
    bool ok = lq_writer_open(&o, &w, &err) && lq_writer_meta(w, "lq.layout", "cuda", &err) &&
              lq_writer_weight(w, "w", &file, &err) && lq_writer_commit(w, NULL, NULL, &err);
    lq_writer_close(w, !ok);
    CHECK(ok && lq_ckpt_open(path, &c, &err), "%s", err.text);
    for (size_t i = 0; i < sizeof picks_of / sizeof *picks_of && c; i++) {
        lq_weight got, rows = m;
        lq_pick p = picks_of[i].p;
        lq_weight_size size;
        snprintf(p.name, sizeof p.name, "w");
        CHECK(lq_ckpt_pick(c, &p, picks_of[i].n, COLS, &got, NULL, &err), "%s: %s", type, err.text);
        rows.n = picks_of[i].n, rows.type = got.type, rows.q = own[0], rows.scale = own[1];
        rows.zero = zeros ? own[2] : NULL;
        for (int64_t r = 0; r < rows.n; r++) {
            const int64_t from = row_of(&p, r), band = m.type.rows > 1 ? from / m.type.rows : from;
            const int64_t to = rows.type.rows > 1 ? r / rows.type.rows : r;
            memcpy(own[0] + r * bytes, q + from * bytes, (size_t)bytes);
            memcpy(own[1] + to * groups, scale + band * groups, (size_t)groups);
            memcpy(own[2] + r * zeros, zero + from * zeros, (size_t)zeros);
        }
        lq_pack(&rows, LQ_CUDA, (lq_weight_out){want[0], want[1], want[2]}, NULL);
        CHECK(got.layout == LQ_CUDA && lq_layout_sizes(LQ_CUDA, &got.type, got.n, got.k, &size) &&
              !memcmp(got.q, want[0], size.q) && !memcmp(got.scale, want[1], size.scale) &&
              (!zeros || !memcmp(got.zero, want[2], size.zero)), "%s: pick %zu", type, i);
        lq_ckpt_done(c, &got);
    }
    lq_ckpt_close(c);
}

static void test_coded(lq_layout layout) {
    lq_err err = {0};
    lq_ckpt *c = NULL;
    bool ok = coded_make(layout, &err) && lq_ckpt_open(path, &c, &err);
    CHECK(ok, "%s", err.text);
    for (int i = 0; i < CODED && c; i++) {
        char name[16];
        lq_weight whole, w;
        snprintf(name, sizeof name, "w%d", i);
        ok = lq_ckpt_weight(c, name, N, K, &whole, &err);
        CHECK(ok, "%s", err.text);
        for (int j = 0; j < PICKS && ok; j++) {
            lq_pick p = {.first = picks[j].first, .run = picks[j].run, .step = picks[j].step};
            snprintf(p.name, sizeof p.name, "%s", name);
            coded_check(c, &whole, p, picks[j].n);
        }
        if (ok) across_check(c, name, &whole);
        lq_pick p = {0};
        snprintf(p.name, sizeof p.name, "%s", name);
        CHECK(!lq_ckpt_pick(c, &p, N, 0, &w, NULL, &err) && strstr(err.text, "shape 40x96, expected 40"), "%s",
              err.text);
        CHECK(!lq_ckpt_pick(c, &p, N, K - 1, &w, NULL, &err) && strstr(err.text, name), "%s", err.text);
        p.stack = 1;
        CHECK(!lq_ckpt_pick(c, &p, N, K, &w, NULL, &err) && strstr(err.text, "of matrix 0 of 1"), "%s", err.text);
    }
    lq_ckpt_close(c);
}

// --- scales that are codes ---

enum { TALL = 100, BROAD = 128, EACH = BROAD / 16 }; // 32 rows have the 256 scales of a block
static uint8_t scale_codes[TALL * EACH];
static float scale_map[256], scale_by[TALL * EACH / 256 + 1], scale_offset = 0.375f;

// What docs/FORMAT.md says of scale g of a row.
static float scale_says(int64_t row, int64_t g) {
    const size_t i = (size_t)row * EACH + (size_t)g;
    const float product = scale_map[scale_codes[i]] * scale_by[i / 256];
    return product + scale_offset;
}

static bool codes_make(lq_err *err) {
    static uint8_t q[TALL * BROAD / 2];
    uint64_t seed = 88172645463325252u;
    lq_weight m = {.n = TALL, .k = BROAD, .q = q, .scale_code = scale_codes, .scale_map = scale_map,
                   .scale2 = scale_by, .scale_offset = &scale_offset};
    for (size_t i = 0; i < sizeof q; i++) q[i] = (uint8_t)next_random(&seed);
    for (size_t i = 0; i < sizeof scale_codes; i++) scale_codes[i] = (uint8_t)next_random(&seed);
    for (int i = 0; i < 256; i++) scale_map[i] = ((float)i - 128.3f) / 77;
    for (size_t i = 0; i < sizeof scale_by / sizeof *scale_by; i++) scale_by[i] = 0.1f + (float)i;
    lq_writer *w = NULL;
    lq_writer_opts o = {.out = path, .fingerprint = "", .overwrite = true, .header_room = 20000};
    bool ok = lq_wtype_parse("nf4 g16 dq256", &m.type, err) && lq_writer_open(&o, &w, err) &&
              lq_writer_weight(w, "m", &m, err) && lq_writer_commit(w, NULL, NULL, err);
    lq_writer_close(w, !ok);
    return ok;
}

// Every pick has the scales in f32; their codes are there too where rows begin a block and lie together.
static void test_codes(void) {
    static const struct { lq_pick p; int64_t n; bool codes; } cases[] = {
        {{.name = "m"}, TALL, true}, {{.name = "m", .first = 32}, 64, true}, {{.name = "m", .first = 64}, 36, true},
        {{.name = "m", .first = 64}, 3, true}, {{.name = "m", .first = 31}, 32, false},
        {{.name = "m", .first = 8}, 16, false}, {{.name = "m", .first = 32, .run = 2, .step = 3}, 20, false},
        {{.name = "m", .stack = 2, .at = 1, .each = 50}, 50, false},
        {{.name = "m", .stack = 2, .at = 0, .each = 50}, 50, true}};
    lq_err err = {0};
    lq_ckpt *c = NULL;
    bool ok = codes_make(&err) && lq_ckpt_open(path, &c, &err);
    CHECK(ok, "%s", err.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && ok; i++) {
        const lq_pick *p = &cases[i].p;
        const int64_t first = p->each ? p->at * p->each : p->first;
        lq_weight w;
        CHECK(lq_ckpt_pick(c, p, cases[i].n, BROAD, &w, NULL, &err), "%s", err.text);
        CHECK(w.type.dq == cases[i].codes && !w.scale_code == !w.type.dq && w.type.scale == LQ_F32, "%zu: codes", i);
        CHECK(lq_ckpt_codes_stay(lq_ckpt_typed(c, "m"), p, cases[i].n) == w.type.dq, "%zu: is not what was said", i);
        bool same = true;
        for (int64_t r = 0; r < cases[i].n; r++)
            for (int64_t g = 0; g < EACH; g++) {
                const float want = scale_says(p->each ? first + r : lq_pick_row(p, r), g);
                lq_weight raw = w;
                raw.scale = NULL;
                same &= lq_scale_get(&w, (size_t)(r * EACH + g)) == want;
                same &= !w.type.dq || lq_scale_get(&raw, (size_t)(r * EACH + g)) == want;
            }
        CHECK(same, "%zu: other scales", i);
        lq_ckpt_done(c, &w);
    }
    lq_ckpt_close(c);
}

// --- pages ---

static void test_pages(void) {
    enum { ROWS = 4096, COLS = 2048, BYTES = ROWS * COLS * 2 };
    lq_err err = {0};
    lq_writer *w = NULL;
    lq_ckpt *c = NULL;
    lq_writer_opts o = {.out = path, .fingerprint = "", .overwrite = true, .header_room = 20000};
    void *p = calloc(1, BYTES);
    bool ok = p && lq_writer_open(&o, &w, &err) && lq_writer_add(w, "m", LQ_BF16, 2, (int64_t[]){ROWS, COLS}, p,
                                                                 &err) && lq_writer_commit(w, NULL, NULL, &err);
    lq_writer_close(w, !ok);
    free(p);
    ok = ok && lq_ckpt_open(path, &c, &err);
    CHECK(ok, "%s", err.text);
    static const lq_pick way[] = {{.name = "m"}, {.name = "m", .run = 1, .step = 2}, {.name = "m", .across = true}};
    const int64_t n[] = {ROWS, ROWS / 2, COLS}, k[] = {COLS, COLS, ROWS};
    for (int i = 0; i < 3 && ok; i++) {
        const size_t before = pages_mapped();
        lq_weight m;
        CHECK(lq_ckpt_pick(c, &way[i], n[i], k[i], &m, NULL, &err), "%s", err.text);
        float sum = 0, row[ROWS];
        for (int64_t r = 0; r < n[i]; r++) lq_weight_row_any(&m, r, row), sum += row[0];
        const size_t during = pages_mapped();
        lq_ckpt_done(c, &m);
        const size_t after = pages_mapped();
        CHECK(sum == 0 && during > before + BYTES / 4 && after < before + BYTES / 8, "way %d: %zu, %zu, %zu", i, before,
              during, after);
    }
    lq_ckpt_close(c);
}

int main(void) {
    strcpy(folder, "/tmp/lq_pick_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    test_plain();
    test_each();
    test_refused();
    test_codes();
    test_coded(LQ_ANY);
    test_coded(LQ_X86);
    test_coded(LQ_CUDA);
    test_stripes("int4 g32 asym f16", 100, 14, 4); // bytes of a row's codes, scales and zero points
    test_stripes("int3 g64 asym bf16", 76, 8, 4);
    test_stripes("int8 g64 asym f16", 200, 8, 4);
    test_stripes("e4m3 g32 r10 f16", 200, 14, 0);
    test_pages();
    tree_remove(folder);
    return test_end();
}
