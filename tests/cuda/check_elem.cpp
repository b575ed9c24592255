// check_elem.cpp: the kernels of kernels/cuda/elem.cu on the emulated machine, against the plain definitions in f32 on
// widened numbers, rounded once: bit for bit.
#include <math.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include "kernels/ops.h"
}
#include "kernels/cuda/elem.h"
#include "kernels/element.h"
#include "tests/cuda/check.h"

typedef void elem_kernel(const void *);
extern "C" elem_kernel lq_elem_glu, lq_elem_add, lq_elem_scale, lq_elem_mix, lq_elem_embed,
    lq_elem_scale_f32, lq_elem_embed_coded;

// A matrix of bf16 on both machines; what stands between its rows is NaN and must stay so.
struct matrix {
    int rows, cols, stride;
    std::vector<uint16_t> v;
    lq_mat of;
};

static matrix matrix_of(int rows, int cols, float size) {
    matrix m = {rows, cols, cols + 16 * below(2), {}, {}};
    for (int i = 0; i < rows * m.stride; i++)
        m.v.push_back(i % m.stride < cols ? to_bf16(size * uniform() * (below(20) ? 1 : 8)) : 0x7fc1);
    return m;
}

static lq_mat *put(matrix &m, const char *name, bool changed) {
    void *p = changed ? emu::changed(m.v.data(), m.v.size() * 2, name) : input_of(m.v, name);
    m.of = {p, LQ_BF16, m.rows, m.cols, (size_t)m.stride};
    return &m.of;
}

static float at(const matrix &m, int row, int col) { return of_bf16(m.v[(size_t)(row * m.stride + col)]); }

// `want` has f32 of every number of m. Vectors of f32 (`by`) are read in two halves, which share sectors.
static void compare(const matrix &m, const std::vector<float> &want, const emu::result &got, const char *what) {
    const uint16_t *y = (const uint16_t *)m.of.p;
    if (!check(got.findings.empty(), "%s: %zu findings", what, got.findings.size())) got.print();
    bool equal = true;
    for (int i = 0; i < m.rows * m.stride; i++) {
        const int row = i / m.stride, col = i % m.stride;
        const uint32_t w = col < m.cols ? lq_bf16_narrow(want[(size_t)(row * m.cols + col)]) : 0x7fc1;
        const bool none = (w & 0x7fff) > 0x7f80 && (y[i] & 0x7fff) > 0x7f80 && col < m.cols;
        equal &= none || y[i] == w;
    }
    check(equal, "%s: other numbers", what);
    check(m.cols < 256 || got.worst(false) <= 2, "%s: %.2f sectors of the least", what, got.worst(false));
    check(emu::zones_whole(), "%s: wrote between the buffers", what);
}

static emu::result launch(elem_kernel *kernel, const void *args, int rows, int cols) {
    emu::options how;
    how.seed = random_bits(), how.resident = 1 + (unsigned)below(3);
    return emu::launch(dim3(lq_elem_blocks(rows, cols)), dim3(LQ_ELEM_THREADS), 0, how, [&] { kernel(args); });
}

static void check_glu(int rows, int cols, lq_unary fn) {
    emu::reset();
    matrix gate = matrix_of(rows, cols, 4), up = matrix_of(rows, cols, 2);
    const bool two = below(3), over = below(2);
    matrix y = over ? gate : matrix_of(rows, cols, 1);
    lq_glu_of a = {};
    a.a.fn = fn, a.a.alpha = below(2) ? 1.702f : 0, a.a.up_add = (float)below(2), a.a.clamp = below(2) ? 3 : 0;
    a.a.below = 0.8f, a.a.beta = 0.5f, a.a.least = -1e-6f;
    a.a.y = *put(y, "y", true);
    if (over) a.a.gate = a.a.y;
    else a.a.gate = *put(gate, "gate", false);
    if (two) a.a.up = *put(up, "up", false);
    check(lq_glu_fits(&a.a), "glu does not fit");
    std::vector<float> want;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            const float u = at(up, i, j);
            want.push_back(lq_glu_at(&a.a, at(gate, i, j), two ? &u : NULL));
        }
    compare(y, want, launch(lq_elem_glu, &a, rows, cols), "glu");
}

static void check_add(int rows, int cols) {
    emu::reset();
    matrix x = matrix_of(rows, cols, 4), y = matrix_of(rows, cols, 4);
    lq_add_of a = {};
    a.a.scale = below(2) ? 0.3f : 0, a.a.x = *put(x, "x", false), a.a.y = *put(y, "y", true);
    check(lq_add_fits(&a.a), "add does not fit");
    std::vector<float> want;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) want.push_back(at(y, i, j) + (a.a.scale != 0 ? a.a.scale : 1) * at(x, i, j));
    compare(y, want, launch(lq_elem_add, &a, rows, cols), "add");
}

static void check_scale(int rows, int cols) {
    emu::reset();
    matrix x = matrix_of(rows, cols, 4), y = x;
    std::vector<float> by;
    for (int i = 0; i < cols; i++) by.push_back(uniform());
    lq_scale_of a = {};
    a.a.scale = 1.7f, a.a.cap = below(2) ? 3.0f : 0, a.a.limit = below(2) ? 2.0f : 0;
    a.a.x = a.a.y = *put(y, "y", true);
    const bool some = below(2);
    if (some) a.a.by = (const float *)weights_of(by, "by");
    check(lq_scale_fits(&a.a), "scale does not fit");
    lq_scale_args host = a.a;
    host.by = some ? by.data() : NULL;
    std::vector<float> want;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) want.push_back(lq_scale_at(&host, at(x, i, j), j));
    compare(y, want, launch(lq_elem_scale, &a, rows, cols), "scale");
}

static void check_mix(int rows, int cols, int top_k) {
    emu::reset();
    matrix x = matrix_of(rows * top_k, cols, 4), y = top_k == 1 ? x : matrix_of(rows, cols, 2);
    std::vector<float> weight;
    for (int i = 0; i < rows * top_k; i++) weight.push_back(uniform());
    lq_mix_of a = {};
    const bool some = below(3);
    a.a.top_k = top_k, a.a.fresh = below(2), a.a.y = *put(y, "y", true);
    if (top_k == 1) a.a.x = a.a.y;
    else a.a.x = *put(x, "x", false);
    if (some) a.a.weight = (const float *)input_of(weight, "weight");
    check(lq_mix_fits(&a.a), "mix does not fit");
    std::vector<float> want;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float sum = 0;
            for (int s = 0; s < top_k; s++)
                sum += (some ? weight[(size_t)(i * top_k + s)] : 1) * at(x, i * top_k + s, j);
            want.push_back(a.a.fresh ? sum : at(y, i, j) + sum);
        }
    compare(y, want, launch(lq_elem_mix, &a, rows, cols), "mix");
}

static void check_embed(int rows, int cols, bool f32) {
    emu::reset();
    matrix y = matrix_of(rows, cols, 1);
    std::vector<uint16_t> w;
    std::vector<int32_t> ids;
    for (int i = 0; i < 50 * cols; i++) w.push_back(to_bf16(uniform()));
    for (int i = 0; i < rows; i++) ids.push_back(below(50));
    lq_embed_of a = {};
    a.w = (const uint16_t *)weights_of(w, "w"), a.ids = (const int32_t *)input_of(ids, "ids");
    a.scale = below(2) ? 11.3f : 0;
    std::vector<float> want;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            want.push_back(of_bf16(w[(size_t)(ids[(size_t)i] * cols + j)]) * (a.scale != 0 ? a.scale : 1));
    if (!f32) {
        a.y = *put(y, "y", true);
        compare(y, want, launch(lq_elem_embed, &a, rows, cols), "embed");
        return;
    }
    a.y = {emu::output(want.size() * 4, "y"), LQ_F32, rows, cols, (size_t)cols};
    const emu::result got = launch(lq_elem_embed, &a, rows, cols);
    check(got.findings.empty() && !memcmp(a.y.p, want.data(), want.size() * 4), "embed in f32: other numbers");
}

static emu::result launch_pieces(elem_kernel *kernel, const void *args, int rows, int cols) {
    emu::options how;
    how.seed = random_bits(), how.resident = 1 + (unsigned)below(3);
    return emu::launch(dim3((unsigned)(rows * LQ_ELEM_PIECES(cols))), dim3(LQ_ELEM_THREADS), 0, how,
                       [&] { kernel(args); });
}

// Logits of any vocabulary.
static void check_scale_f32(int rows, int cols) {
    emu::reset();
    std::vector<float> x, by, want;
    const int stride = cols + 3 * below(2);
    for (int i = 0; i < rows * stride; i++) x.push_back(i % stride < cols ? 5 * uniform() : NAN);
    for (int i = 0; i < cols; i++) by.push_back(uniform());
    lq_scale_of a = {};
    a.a.scale = 1.7f, a.a.cap = below(2) ? 3.0f : 0, a.a.limit = below(2) ? 2.0f : 0;
    a.a.x = a.a.y = {emu::changed(x.data(), x.size() * 4, "x"), LQ_F32, rows, cols, (size_t)stride};
    const bool some = below(2);
    if (some) a.a.by = (const float *)weights_of(by, "by");
    check(lq_scale_f32_fits(&a.a), "scale in f32 does not fit");
    lq_scale_args host = a.a;
    host.by = some ? by.data() : NULL;
    for (int i = 0; i < rows * stride; i++)
        want.push_back(i % stride < cols ? lq_scale_at(&host, x[(size_t)i], i % stride) : x[(size_t)i]);
    const emu::result got = launch_pieces(lq_elem_scale_f32, &a, rows, cols);
    check(got.findings.empty() && !memcmp(a.a.y.p, want.data(), want.size() * 4), "scale in f32: other numbers");
    check(cols < 256 || got.worst(false) <= 2, "scale in f32: %.2f sectors of the least", got.worst(false));
    check(emu::zones_whole(), "scale in f32: wrote between the buffers");
}

static lq_wtype type_of(lq_wkind kind, lq_dtype elem, int bits, int group, lq_dtype scale) {
    lq_wtype t = {};
    t.kind = kind, t.elem = elem, t.bits = bits, t.group = group, t.scale = scale, t.asym = bits == 4;
    return t;
}

// Weights as lq_weight_row says they are: int of 3, 4 and 8 bits, e4m3, f16, f32; with columns in another order and
// some apart.
static void check_coded(int k, bool f32, bool turned) {
    const lq_wtype types[] = {type_of(LQ_W_INT, LQ_U8, 8, 0, LQ_F32),    type_of(LQ_W_INT, LQ_U8, 4, 32, LQ_F16),
                              type_of(LQ_W_INT, LQ_U8, 3, 64, LQ_BF16),  type_of(LQ_W_FLOAT, LQ_E4M3, 8, 0, LQ_F32),
                              type_of(LQ_W_PLAIN, LQ_F16, 16, 0, LQ_F32), type_of(LQ_W_PLAIN, LQ_F32, 32, 0, LQ_F32)};
    const int n = 40, rows = 3;
    for (const lq_wtype &type : types) {
        if (turned && type.kind == LQ_W_PLAIN) continue;
        emu::reset();
        const size_t groups = type.group ? (size_t)((k + type.group - 1) / type.group) : 1;
        std::vector<uint32_t> q((size_t)n * (size_t)k), scale(n * groups), zero(n * groups);
        for (uint32_t &v : q) v = random_bits() & (type.kind == LQ_W_INT ? ~0u : 0x37373737u);
        for (uint32_t &v : scale) {
            const float s = 0.01f + 0.02f * fabsf(uniform());
            if (type.scale == LQ_F32) memcpy(&v, &s, 4);
            else if (type.scale == LQ_BF16) v = to_bf16(s) * 0x10001u;
            else v = 0x20002000u + (random_bits() & 0x3ff03ff);
        }
        for (uint32_t &v : zero) v = random_bits();
        std::vector<int32_t> perm, apart, ids;
        std::vector<uint16_t> apart_w;
        for (int i = 0; i < k; i++) perm.push_back((i * 7 + 3) % k);
        for (int i = 2; i < k; i += 17) apart.push_back(i);
        for (size_t i = 0; i < apart.size() * n; i++) apart_w.push_back(to_bf16(uniform()));
        for (int i = 0; i < rows; i++) ids.push_back(below(n));
        lq_weight w = {};
        w.type = type, w.layout = LQ_ANY, w.n = n, w.k = k;
        w.q = (decltype(w.q))q.data(), w.scale = (decltype(w.scale))scale.data();
        if (type.asym) w.zero = (decltype(w.zero))zero.data();
        if (turned) w.perm = perm.data(), w.outlier = apart.data(), w.outliers = (int)apart.size();
        if (turned) w.outlier_w = apart_w.data();
        lq_embed_coded_of a = {};
        a.scale = below(2) ? 11.3f : 0, a.w = w, a.ids = (const int32_t *)input_of(ids, "ids");
        a.w.q = (decltype(w.q))weights_of(q, "q"), a.w.scale = (decltype(w.scale))weights_of(scale, "scale");
        if (type.asym) a.w.zero = (decltype(w.zero))weights_of(zero, "zero");
        if (turned) {
            a.w.perm = (const int32_t *)weights_of(perm, "perm");
            a.w.outlier = (const int32_t *)weights_of(apart, "outlier");
            a.w.outlier_w = (const uint16_t *)weights_of(apart_w, "apart");
        }
        const size_t size = f32 ? 4 : 2, cells = (size_t)rows * (size_t)k;
        a.y = {emu::output(cells * size, "y"), f32 ? LQ_F32 : LQ_BF16, rows, k, (size_t)k};
        std::vector<float> row((size_t)k), want;
        for (int i = 0; i < rows; i++) {
            lq_weight_row(&w, ids[(size_t)i], row.data());
            for (float v : row) want.push_back(v * (a.scale != 0 ? a.scale : 1));
        }
        const emu::result got = launch_pieces(lq_elem_embed_coded, &a, rows, k);
        if (!check(got.findings.empty(), "embed of codes: %zu findings", got.findings.size())) got.print();
        bool equal = true;
        for (size_t i = 0; i < cells; i++)
            equal &= f32 ? !memcmp((float *)a.y.p + i, &want[i], 4)
                         : ((uint16_t *)a.y.p)[i] == lq_bf16_narrow(want[i]);
        check(equal && emu::zones_whole(), "embed of kind %d, %d bits, k %d: other numbers", type.kind, type.bits, k);
    }
}

static void check_harm() {
    emu::reset();
    matrix x = matrix_of(2, 64, 4), y = matrix_of(2, 64, 4);
    lq_add_of a = {};
    a.a.x = *put(x, "x", false), a.a.y = *put(y, "y", true);
    emu::options how;
    how.wrong = emu::NO_PDL_WAIT;
    const emu::result got = emu::launch(dim3(1), dim3(LQ_ELEM_THREADS), 0, how, [&] { lq_elem_add(&a); });
    check(got.has(emu::BEFORE_WAIT), "a kernel that does not wait is not found");
}

int main() {
    for (int cols : {8, 264, 2048})
        for (int i = 0; i < 3; i++) {
            for (int fn = LQ_SILU; fn <= LQ_XIELU; fn++) check_glu(1 + below(4), cols, (lq_unary)fn);
            check_add(1 + below(4), cols);
            check_scale(1 + below(4), cols);
            for (int top_k : {1, 2, 8}) check_mix(1 + below(3), cols, top_k);
            check_embed(1 + below(4), cols, i == 0);
        }
    for (int cols : {7, 259, 2049}) check_scale_f32(1 + below(4), cols);
    for (int k : {64, 264, 1096}) {
        check_coded(k, false, false);
        check_coded(k, true, true);
        check_coded(k, false, true);
    }
    if (emu::watched) check_harm();
    return closing();
}
