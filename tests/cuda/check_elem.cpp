// check_elem.cpp: the kernels of kernels/cuda/elem.cu on the emulated machine, against the plain definitions in f32 on
// widened numbers, rounded once: bit for bit.
#include "kernels/cuda/elem.h"
#include "kernels/element.h"
#include "tests/cuda/check.h"

typedef void elem_kernel(const void *);
extern "C" elem_kernel lq_elem_glu, lq_elem_add, lq_elem_scale, lq_elem_mix, lq_elem_embed;

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
    if (emu::watched) check_harm();
    return closing();
}
