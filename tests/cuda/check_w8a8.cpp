// check_w8a8.cpp: the kernels of kernels/cuda/w8a8.cu on the emulated machine: products of integers against portable C,
// bit for bit; of small floats, and with columns apart, against sums in f64 with a derived bound; all numbers of tokens
// against each other; slots of experts against each expert's own product; then with one thing wrong, which must be
// found.
#include <math.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include "kernels/ops.h"
}
#include "kernels/cuda/w8a8_pick.h"
#include "tests/cuda/check.h"
#include <algorithm>

static std::vector<int> runs(LQ_W8A8_COUNT); // of each kernel
static lq_dev *cpu;

static const char *const types[] = {
    "int8 row sym f32 act i8 row",     "int8 row asym f16 act i8 row",    "int8 row sym bf16 act i8 tensor",
    "int8 row asym f32 act i8 tensor asym", "int8 tensor sym f32 act i8 row", "int8 g128 sym f32 act i8 row",
    "int8 g256 asym f16 act i8 row",   "int8 row sym f32 act i8 g128",    "int8 g32 asym bf16 act i8 row",
    "int8 g64 sym f16 act i8 g64",     "int8 g128 r4 sym f32 act i8 row", "int8 g512 sym f32 act i8 g128",
    "e4m3 row f32 act e4m3 row",       "e4m3 tensor f32 act e4m3 tensor", "e4m3 g128 r128 f32 act e4m3 g128",
    "e5m2 row bf16 act e4m3 row",      "e4m3 g256 e8m0 act e4m3 row",     "e4m3 g128 e4m3 act e4m3 row",
    "e5m2 row f32 act e4m3 g128",
};

// --- a weight in layout any ---

struct matrix {
    lq_weight w; // of the host's memory below
    std::vector<uint8_t> q, scale, zero;
    std::vector<float> scale2, bias;
    std::vector<int32_t> code_sum;
    std::vector<uint16_t> apart;
};

// What pointers of the host are, once the matrix stands where it stays.
static void settle(matrix &m, const std::vector<int32_t> &apart, const std::vector<float> &fixed,
                   const std::vector<int32_t> &zero) {
    lq_weight &w = m.w;
    w.q = m.q.data(), w.scale = m.scale.data(), w.zero = w.type.asym ? m.zero.data() : NULL, w.scale2 = m.scale2.data();
    w.outlier = apart.empty() ? NULL : apart.data(), w.outliers = (int)apart.size();
    w.outlier_w = m.apart.empty() ? NULL : m.apart.data();
    w.act_scale = fixed.data(), w.act_zero = zero.data(), w.code_sum = NULL;
    if (!w.type.act.asym) return;
    m.code_sum.resize((size_t)w.n);
    lq_code_sums(&w, m.code_sum.data());
    w.code_sum = m.code_sum.data();
}

static uint32_t some_scale(lq_dtype t) {
    const float size = (below(5) ? 1.0f : -1.0f) * (0.01f + 0.01f * fabsf(uniform()));
    uint32_t bits;
    memcpy(&bits, &size, 4);
    return t == LQ_F32 ? bits : t == LQ_BF16 ? to_bf16(size) : t == LQ_F16 ? (uint32_t)(0x2000 + below(0x400))
           : t == LQ_E8M0 ? (uint32_t)(118 + below(6)) : (uint32_t)(0x20 + below(0x30));
}

static matrix matrix_of(const char *name, int n, int k, const std::vector<int32_t> &apart) {
    matrix m = {};
    lq_err err;
    check(lq_wtype_parse(name, &m.w.type, &err), "%s: %s", name, err.text);
    const lq_wtype &t = m.w.type;
    m.w.layout = LQ_ANY, m.w.n = n, m.w.k = k;
    const int groups = (int)lq_weight_groups(&t, k), wide = (groups + 3) / 4 * 4;
    for (int i = 0; i < n * k; i++) { // now and then all codes of a row are the least, or the largest
        uint8_t q = (uint8_t)(i / k % 9 == 4 ? 0 : i / k % 9 == 7 ? 255 : below(256));
        if (t.elem == LQ_E4M3 && (q & 127) == 127) q = 0x7e;
        if (t.elem == LQ_E5M2) q = (uint8_t)((q & 0x83) | below(19) << 2);
        m.q.push_back(q);
    }
    for (int i = 0; i < n * wide; i++) m.zero.push_back((uint8_t)(i % 3 ? below(256) : i % 2 ? 255 : 0));
    for (int o : apart)
        for (int r = 0; r < n; r++) m.q[(size_t)r * k + o] = t.kind == LQ_W_INT ? 128 : 0;
    for (size_t i = 0; i < apart.size() * (size_t)n; i++) m.apart.push_back(to_bf16(uniform()));
    const size_t count = lq_scale_count(&t, n, k), size = lq_dtype_size(t.scale);
    m.scale.resize(count * size);
    for (size_t i = 0; i < count; i++) {
        const uint32_t s = some_scale(t.scale);
        memcpy(&m.scale[i * size], &s, size);
    }
    for (int i = 0; i < n; i++) m.bias.push_back(uniform());
    m.scale2.push_back(0.003f);
    return m;
}

// --- a product ---

struct problem {
    std::vector<matrix> of; // of one, or of experts
    int m, rows, top_k, n, k, y_stride; // m: slots, rows: of x
    bool bias, f32;
    std::vector<int32_t> order, start, apart, zero;
    std::vector<float> fixed;
    std::vector<uint16_t> x;     // [rows][k]
    std::vector<uint16_t> there; // [m][y_stride] of bf16: y, where columns apart alone are added to it
    lq_act act;              // of portable C; in `room`
    std::vector<uint64_t> room;
};

// Activations as portable C makes them.
static void quantize(problem &p) {
    std::vector<float> x;
    for (uint16_t h : p.x) x.push_back(of_bf16(h));
    for (matrix &m : p.of) settle(m, p.apart, p.fixed, p.zero);
    p.room.assign(lq_act_bytes(cpu, &p.of[0].w, p.rows) / 8 + 64, 0);
    p.act = {};
    lq_act_bind(cpu, &p.act, &p.of[0].w, p.rows, p.room.data());
    const lq_quant_args q = {{x.data(), LQ_F32, p.rows, p.k, (size_t)p.k}, &p.act};
    cpu->ops.quant(cpu, &q);
}

static problem problem_of(const char *name, int m, int n, int k, int apart, bool bias, bool f32) {
    problem p = {};
    for (int i = 0; i < apart; i++) p.apart.push_back(k / apart * i + below(k / apart));
    p.fixed.push_back(0.009f), p.zero.push_back(17);
    p.of.push_back(matrix_of(name, n, k, p.apart));
    p.m = p.rows = m, p.top_k = 1, p.n = n, p.k = k, p.bias = bias, p.f32 = f32;
    p.y_stride = m % 4 == 3 ? n | 1 : (n + 15) / 16 * 16; // or rows that begin at any number
    for (int i = 0; i < m * k; i++) // row 3: as large as can be; row 4: zeros
        p.x.push_back(to_bf16(i / k == 3   ? (below(2) ? 1.0f : -1.0f)
                              : i / k == 4 ? 0
                                           : uniform() * (below(40) ? 1 : 5)));
    return p;
}

struct answer {
    std::vector<uint32_t> y; // [m][y_stride], f32 or bf16
    emu::result got;
};

static uint8_t e4m3_code(float f) {
    static float all[256];
    if (all[1] == 0)
        for (int c = 0; c < 256; c++) {
            const uint8_t byte = (uint8_t)c;
            lq_dtypes[LQ_E4M3].to_f32(&byte, &all[c], 1);
        }
    for (int c = 0; c < 256; c++)
        if (!memcmp(&all[c], &f, 4)) return (uint8_t)c;
    return 0;
}

// The activations' parts on the device.
static lq_act act_given(const problem &p) {
    lq_act a = p.act;
    const size_t cell = a.type.elem == LQ_I8 ? a.q_row : a.q_group,
                 n = ((size_t)p.k + cell - 1) / cell * (size_t)a.apart;
    std::vector<uint8_t> q;
    if (a.type.elem == LQ_I8) q.assign((const uint8_t *)a.q, (const uint8_t *)a.q + n * cell);
    else
        for (size_t i = 0; i < (size_t)p.rows * a.q_row; i++)
            q.push_back((int)(i % a.q_row) < p.k ? e4m3_code(((const float *)a.q)[i]) : 0x7f);
    a.q = input_of(q, "q");
    a.scale = (float *)emu::input(a.scale, n * 4, "scales of x");
    if (a.sum) a.sum = (int32_t *)emu::input(a.sum, n * 4, "sums of x");
    if (a.zero) a.zero = (int32_t *)emu::input(a.zero, (size_t)p.rows * 4, "zeros of x");
    a.x = {p.apart.empty() ? NULL : input_of(p.x, "x"), LQ_BF16, p.rows, p.k, (size_t)p.k};
    if (!p.apart.empty()) a.outlier = (const int32_t *)weights_of(p.apart, "columns apart");
    return a;
}

static lq_weight weight_given(const matrix &m) {
    lq_weight w = m.w;
    w.q = weights_of(m.q, "w");
    w.scale = weights_of(m.scale, "scale");
    if (w.zero) w.zero = (const uint8_t *)weights_of(m.zero, "zero");
    w.scale2 = (const float *)weights_of(m.scale2, "scale2");
    if (w.code_sum) w.code_sum = (const int32_t *)weights_of(m.code_sum, "sums of codes");
    if (w.outlier_w) w.outlier_w = (const uint16_t *)weights_of(m.apart, "weights apart");
    return w;
}

// The matrices of p, and where y goes.
static lq_w8a8_one one_given(const problem &p) {
    std::vector<lq_weight> all;
    std::vector<const float *> biases;
    for (const matrix &m : p.of) {
        all.push_back(weight_given(m));
        biases.push_back((const float *)weights_of(m.bias, "bias"));
    }
    lq_w8a8_one one = {};
    one.w = all[0], one.bias = p.bias ? biases[0] : NULL;
    if (p.of.size() > 1) {
        one.experts = (const lq_weight *)weights_of(all, "experts");
        if (p.bias) one.biases = (const float *const *)weights_of(biases, "biases");
    }
    const size_t bytes = (size_t)p.m * p.y_stride * (p.f32 ? 4 : 2);
    void *y = p.there.empty() ? emu::output(bytes, "y") : emu::changed(p.there.data(), bytes, "y");
    one.y = {y, p.f32 ? LQ_F32 : LQ_BF16, p.m, p.n, (size_t)p.y_stride};
    one.n = p.n;
    return one;
}

static std::vector<uint32_t> outputs_of(const problem &p, const lq_w8a8_one &one) {
    std::vector<uint32_t> y;
    for (int i = 0; i < p.m * p.y_stride; i++)
        y.push_back(p.f32 ? ((uint32_t *)one.y.p)[i] : ((uint16_t *)one.y.p)[i]);
    return y;
}

// By the kernel for so many tokens. `more`: of other matrices that read the same x, joined in one launch; their outputs
// stand behind the first's.
static answer run(problem &p, int tokens, const emu::options &how, std::vector<problem> more = {}) {
    answer r;
    emu::reset();
    quantize(p);
    lq_w8a8_args a = {};
    a.of[a.joined++] = one_given(p);
    if (!p.order.empty())
        a.order = (const int32_t *)input_of(p.order, "order"), a.start = (const int32_t *)input_of(p.start, "start");
    a.x = act_given(p);
    a.m = p.m, a.k = p.k, a.count = (int)p.of.size(), a.top_k = p.top_k;
    lq_w8a8_form f = {};
    f.kind = LQ_W8A8_APART;
    const lq_w8a8_kernel *kernel = NULL;
    if (p.there.empty() && !check(lq_w8a8_fits(&a.x, &a.of[0].w, &a.of[0].y, &f), "k %d: does not fit", p.k)) return r;
    lq_w8a8_set(&a, &f);
    for (const lq_w8a8_kernel &some : lq_w8a8_kernels)
        if (some.kind == f.kind && some.group == f.group && some.tokens == tokens) kernel = &some;
    runs[(size_t)(kernel - lq_w8a8_kernels)]++;
    const int rows = LQ_W8A8_ROWS(tokens), experts = a.count;
    int blocks = (p.n + rows - 1) / rows;
    for (problem &q : more) {
        quantize(q);
        lq_w8a8_one &one = a.of[a.joined++];
        one = one_given(q);
        one.first = blocks;
        blocks += (q.n + rows - 1) / rows;
    }
    const unsigned x = (unsigned)(experts == 1 ? (p.m + tokens - 1) / tokens : p.m / tokens + experts);
    void (*entry)(const void *) = (void (*)(const void *))(void *)kernel->entry;
    r.got = emu::launch(dim3(x, (unsigned)blocks), dim3((unsigned)LQ_W8A8_THREADS(tokens)),
                        kernel->shared, how, [&] { entry(&a); });
    r.y = outputs_of(p, a.of[0]);
    for (size_t i = 0; i < more.size(); i++) {
        const std::vector<uint32_t> y = outputs_of(more[i], a.of[i + 1]);
        r.y.insert(r.y.end(), y.begin(), y.end());
    }
    if (!emu::zones_whole()) check(false, "%s: wrote between the buffers", kernel->name);
    return r;
}

// --- what is expected ---

static std::vector<float> portable(problem &p, int expert) { // [rows][n]
    std::vector<float> y((size_t)p.rows * p.n), x;
    quantize(p);
    for (uint16_t h : p.x) x.push_back(of_bf16(h));
    lq_matmul_args a = {};
    lq_act act = p.act;
    act.x = {x.data(), LQ_F32, p.rows, p.k, (size_t)p.k};
    a.x = &act, a.count = 1, a.w[0] = &p.of[(size_t)expert].w;
    a.bias[0] = p.bias ? p.of[(size_t)expert].bias.data() : NULL;
    a.y[0] = {y.data(), LQ_F32, p.rows, p.n, (size_t)p.n};
    cpu->ops.matmul(cpu, &a);
    return y;
}

static uint32_t bits_as(float f, bool f32) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return f32 ? u : to_bf16(f);
}

static double worst_of_bound, worst_shared, worst_global;

// Of one output: the sum in f64, and how far it may be off: half a unit of what is stored; for each step of 16 columns,
// each cell and the roundings behind them 2^-22 of the sum of absolute terms.
static bool near(const problem &p, int row, int n, uint32_t y, double *of_bound) {
    const matrix &m = p.of[0];
    const lq_act &a = p.act;
    const size_t cell = a.type.elem == LQ_I8 ? a.q_row : a.q_group;
    double sum = p.bias ? (double)m.bias[(size_t)n] : 0, size = fabs(sum);
    std::vector<float> w((size_t)p.k);
    lq_weight bare = m.w;
    bare.outliers = 0;
    lq_weight_row_any(&bare, n, w.data());
    for (int k = 0; k < p.k; k++) {
        const size_t u = (size_t)k / cell * (size_t)a.apart + (size_t)row;
        const int zero = a.zero ? a.zero[row] : 0;
        const double q = a.type.elem == LQ_I8 ? (double)(((const int8_t *)a.q)[u * cell + (size_t)k % cell] - zero)
                                              : (double)((const float *)a.q)[(size_t)row * a.q_row + (size_t)k];
        const double t = q * (double)a.scale[u] * (double)w[(size_t)k];
        sum += t, size += fabs(t);
    }
    for (size_t o = 0; o < p.apart.size(); o++) {
        const double t =
            (double)of_bf16(p.x[(size_t)row * p.k + p.apart[o]]) * of_bf16(m.apart[(size_t)n * p.apart.size() + o]);
        sum += t, size += fabs(t);
    }
    const uint32_t bits = p.f32 ? y : y << 16;
    float got;
    memcpy(&got, &bits, 4);
    const double error = fabs((double)got - sum), steps = (p.k + (double)p.apart.size()) / 16 + p.k / (double)cell;
    const double bound = (p.f32 ? 0x1p-23 : 0x1p-8) * fabs(sum) + (steps + 10) * 0x1p-22 * size + 0x1p-130;
    *of_bound = fmax(*of_bound, error / bound);
    return error <= bound;
}

static bool exact(const problem &p) { return p.act.type.elem == LQ_I8 && p.apart.empty(); }

static bool agrees(problem &p, const answer &r, double *of_bound) {
    const std::vector<float> y = portable(p, 0);
    for (int m = 0; m < p.m; m++) {
        for (int n = 0; n < p.n; n++) {
            const uint32_t got = r.y[(size_t)m * p.y_stride + n];
            if (exact(p) ? got != bits_as(y[(size_t)m * p.n + n], p.f32) : !near(p, m, n, got, of_bound)) return false;
        }
        for (int n = p.n; n < p.y_stride; n++)
            if (r.y[(size_t)m * p.y_stride + n] != (p.f32 ? 0xffffffffu : 0xffffu)) return false;
    }
    return true;
}

static void clean(const problem &p, const emu::result &got, int tokens, const char *name) {
    if (!check(got.findings.empty(), "%s, %d tokens, m %d n %d k %d: %zu findings", name, tokens, p.m, p.n, p.k,
               got.findings.size()))
        got.print();
    worst_shared = fmax(worst_shared, got.worst(true));
    for (const emu::counter &c : got.counters)
        if (!c.shared && (c.bytes == 16 || (c.write && p.n % 32 == 0 && p.y_stride % 16 == 0)) && p.k % 32 == 0)
            worst_global = fmax(worst_global, (double)c.moved / (double)c.least);
}

static std::vector<int> tokens_of(const problem &p) {
    lq_w8a8_form f = {};
    lq_act x = p.act;
    lq_mat y = {NULL, LQ_F32, 1, p.n, 2};
    std::vector<int> all;
    x.q = NULL, x.x.type = LQ_BF16;
    x.x.p = &x;
    lq_weight w = p.of[0].w;
    w.q = NULL;
    if (!check(lq_w8a8_fits(&x, &w, &y, &f), "no kernel")) return all;
    for (const lq_w8a8_kernel &some : lq_w8a8_kernels)
        if (some.kind == f.kind && some.group == f.group) all.push_back(some.tokens);
    return all;
}

// All numbers of tokens, other schedules, and a row alone: the same bits.
static void check_product(const char *name, int m, int n, int k, int apart, bool bias, bool f32) {
    problem p = problem_of(name, m, n, k, apart, bias, f32);
    std::vector<uint32_t> y;
    quantize(p);
    for (int tokens : tokens_of(p)) {
        if (tokens > 8 && tokens >= 2 * m) continue;
        emu::options how;
        how.seed = random_bits();
        how.resident = 1 + (unsigned)below(4);
        const answer r = run(p, tokens, how);
        clean(p, r.got, tokens, name);
        if (y.empty()) {
            y = r.y;
            check(agrees(p, r, &worst_of_bound), "%s m %d n %d k %d apart %d: differs from the reference", name, m, n, k, apart);
        }
        check(r.y == y, "%s m %d n %d k %d: other bits by %d tokens", name, m, n, k, tokens);
    }
    const int row = below(m);
    problem alone = p;
    alone.m = alone.rows = 1;
    alone.x.assign(p.x.begin() + row * k, p.x.begin() + (row + 1) * k);
    const answer one = run(alone, 8, emu::options());
    clean(alone, one.got, 8, name);
    check(std::equal(one.y.begin(), one.y.begin() + n, y.begin() + row * p.y_stride),
          "%s m %d n %d k %d: row %d has other bits alone", name, m, n, k, row);
}

// Slots of experts, some without any; each has the bits of portable C with its expert. Scales may be of two types.
static void check_experts(const char *name, const char *other, int experts, int slots, int top_k, int tokens,
                          bool ordered) {
    const int n = 70, k = 272;
    problem p = problem_of(name, slots / top_k, n, k, 0, true, false);
    for (int e = 1; e < experts; e++) p.of.push_back(matrix_of(e % 2 ? other : name, n, k, p.apart));
    p.m = slots, p.top_k = top_k;
    const std::vector<int> expert = experts_of(slots, experts, ordered);
    if (ordered) sort_slots(expert, experts, p.order, p.start);
    emu::options how;
    how.seed = random_bits();
    const answer r = run(p, tokens, how);
    clean(p, r.got, tokens, name);
    bool held = true;
    for (int e = 0; e < experts; e++) {
        const std::vector<float> y = portable(p, e);
        for (int s = 0; s < slots; s++)
            for (int i = 0; i < n && expert[(size_t)s] == e; i++)
                held &= r.y[(size_t)s * p.y_stride + i] == bits_as(y[(size_t)(s / top_k) * n + i], false);
    }
    for (int s = 0; s < slots; s++)
        for (int i = 0; i < p.y_stride; i++)
            held &= expert[(size_t)s] >= 0 || r.y[(size_t)s * p.y_stride + i] == 0xffff;
    check(held, "%s, %d slots of experts, %d tokens: other than portable C", name, slots, tokens);
}

// Columns apart alone, added to what is there; so are those of experts. The bound as above, of y and their terms.
static void check_apart(int m, int n, int apart, int experts) {
    const char *name = types[0];
    problem p = problem_of(name, m, n, 256, apart, false, false);
    for (int e = 1; e < experts; e++) p.of.push_back(matrix_of(name, n, 256, p.apart));
    for (int i = 0; i < m * p.y_stride; i++) p.there.push_back(to_bf16(uniform()));
    std::vector<uint32_t> y;
    for (int tokens : {8, 64}) {
        emu::options how;
        how.seed = random_bits();
        const answer r = run(p, tokens, how);
        clean(p, r.got, tokens, "columns apart");
        check(y.empty() || y == r.y, "%d columns apart: other bits by %d tokens", apart, tokens);
        y = r.y;
    }
    bool held = true;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < p.y_stride; j++) {
            const uint16_t there = p.there[(size_t)i * p.y_stride + j];
            const double got = of_bf16((uint16_t)y[(size_t)i * p.y_stride + j]);
            double sum = of_bf16(there), size = fabs(sum);
            for (int o = 0; o < apart && j < n; o++) {
                const double t = (double)of_bf16(p.x[(size_t)i * p.k + p.apart[(size_t)o]]) *
                                 of_bf16(p.of[(size_t)(i % experts)].apart[(size_t)j * apart + o]);
                sum += t, size += fabs(t);
            }
            const double bound = 0x1p-8 * fabs(sum) + (apart / 16 + 10) * 0x1p-22 * size;
            held &= j < n ? fabs(got - sum) <= bound : y[(size_t)i * p.y_stride + j] == there;
        }
    check(held, "%d columns apart, %d of %d outputs, %d experts: differs from f64", apart, m, n, experts);
}

// Sums as large as int32 holds: codes and activations at their ends, over as many columns as fit.
static void check_largest(const char *name, int k) {
    problem p = problem_of(name, 3, 16, k, 0, false, true);
    for (matrix &m : p.of)
        for (size_t i = 0; i < m.q.size(); i++) m.q[i] = i / k % 2 ? 255 : 0;
    for (uint8_t &z : p.of[0].zero) z = (uint8_t)(below(2) ? 255 : 0);
    for (int i = 0; i < 3 * k; i++) p.x[(size_t)i] = to_bf16(i / k == 1 ? -100.0f : 100.0f);
    const answer r = run(p, 8, emu::options());
    clean(p, r.got, 8, name);
    double unused = 0;
    check(agrees(p, r, &unused), "%s k %d: the largest sums differ from portable C", name, k);
}

// A row of x with an infinity, a scale that is no number: they spoil their row of y and no other.
static void check_spoilt(const char *name, int tokens) {
    problem p = problem_of(name, 3, 70, 256, 0, false, false), right = p;
    const answer good = run(right, tokens, emu::options());
    p.x[(size_t)p.k + 7] = 0x7f80;
    const uint32_t nan = 0x7fc00000;
    for (size_t i = 0, groups = p.of[0].scale.size() / 4 / 70; i < groups; i++)
        memcpy(&p.of[0].scale[(9 * groups + i) * 4], &nan, 4);
    const answer r = run(p, tokens, emu::options());
    bool held = true;
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < p.n; n++) {
            const uint32_t y = r.y[(size_t)m * p.y_stride + n];
            if (n == 9) held &= (y & 0x7fff) > 0x7f80;
            else if (m == 1) held &= p.act.type.group ? true : (y & 0x7f80) == 0x7f80;
            else held &= y == good.y[(size_t)m * p.y_stride + n];
        }
    check(held, "%s: bad numbers left their row", name);
}

// --- what is done wrong must be found, by what looks for it ---

static bool found(problem &p, int tokens, emu::harm wrong, void *at, std::vector<emu::kind> any) {
    emu::options how;
    how.wrong = wrong;
    how.at = at;
    for (how.seed = 1; how.seed <= 3; how.seed++) {
        const emu::result got = run(p, tokens, how).got;
        for (emu::kind what : any)
            if (got.has(what)) return true;
    }
    return false;
}

static void check_harm(const char *name, int tokens, size_t barriers) {
    problem p = problem_of(name, 5, 64, 1280, 70, false, false);
    const emu::result got = run(p, tokens, emu::options()).got;
    check(got.barriers.size() == barriers, "%s: %zu barriers", name, got.barriers.size());
    for (void *at : got.barriers)
        check(found(p, tokens, emu::NO_BARRIER, at, {emu::RACE, emu::UNINITIALISED, emu::IN_FLIGHT}),
              "%s, %d tokens: a barrier less: no race found", name, tokens);
    check(found(p, tokens, emu::WEAK_WAIT, NULL, {emu::IN_FLIGHT}), "%s: a group that is not waited for is not found",
          name);
    check(found(p, tokens, emu::LOST_LANE, NULL, {emu::DIVERGED, emu::DEADLOCK}), "%s: a lane less is not found", name);
    check(found(p, tokens, emu::NO_PDL_WAIT, NULL, {emu::BEFORE_WAIT}),
          "%s: no wait for the kernel before is not found", name);
    problem narrow = problem_of(name, 5, 64, 112, 0, false, false);
    check(found(narrow, tokens, emu::WHOLE_COPIES, NULL, {emu::OUT_OF_BOUNDS}),
          "%s: copies behind the matrix are not found", name);
}

static void notices(problem p, void (*spoil)(problem &), const char *name, const char *what) {
    problem right = p;
    spoil(p);
    double unused = 0;
    const answer r = run(p, 8, emu::options());
    check(!agrees(right, r, &unused), "%s: %s is not noticed", name, what);
}

static void check_noticed(const char *name, int apart) {
    problem p = problem_of(name, 2, 32, 256, apart, false, true);
    p.of[0].q[5] = 0x40, p.x[5] = 0x3f80; // a number, which meets another
    notices(p, [](problem &w) { w.of[0].q[5] ^= 0x20; }, name, "a wrong code");
    notices(p, [](problem &w) { w.x[5] ^= 0x100; }, name, "a wrong activation");
    notices(
        p, [](problem &w) { w.of[0].scale[lq_dtype_size(w.of[0].w.type.scale) - 1] ^= 0x02; }, name, "a wrong scale");
    if (p.of[0].w.type.asym) notices(p, [](problem &w) { w.of[0].zero[0] ^= 1; }, name, "a wrong zero point");
    if (apart) notices(p, [](problem &w) { w.of[0].apart[1] ^= 0x8000; }, name, "a wrong weight apart");
}

// --- the host's side ---

static void check_plans() {
    for (int kind = 0; kind < 2; kind++)
        for (int group : {0, 128})
            for (int m = 1; m < 5000; m = m * 3 / 2 + 1)
                for (int experts : {0, 1, 60})
                    for (size_t shared : {101376, 166912, 232448}) {
                        const int n = 1000;
                        const lq_w8a8_plan p = lq_w8a8_plan_of(kind, group, m, experts, &n, 1, shared, NULL);
                        if (!check(p.kernel && p.kernel->shared <= shared, "no kernel for %d tokens", m)) continue;
                        const size_t some = experts ? (size_t)std::min(experts, m) : 1,
                                     tokens = (size_t)p.kernel->tokens;
                        check(p.kernel->kind == kind && p.kernel->group == group &&
                                  p.x >= ((size_t)m - some) / tokens + some &&
                                  p.y * (unsigned)LQ_W8A8_ROWS((int)tokens) >= 1000,
                              "%d tokens, %d experts: %u x %u blocks", m, experts, p.x, p.y);
                    }
}

// Each kernel that has room is had for the asking.
static void check_tuned() {
    for (int i = 0; i < LQ_W8A8_COUNT; i++) {
        const lq_w8a8_kernel *of = &lq_w8a8_kernels[i];
        const lq_tuned row = {90, LQ_TUNED_W8A8, of->kind, 8, of->group, 1000, 1000, 0, 999, of->tokens, 0};
        const int n = 1000;
        for (int m : {1, 8, 9, 100})
            check(lq_w8a8_plan_of(of->kind, of->group, m, 0, &n, 1, 232448, &row).kernel == of, "%s is not taken",
                  of->name);
    }
}

static void check_refused() {
    const struct { const char *name; int k;
    } refused[] = {{"int8 row sym f32 act i8 row", 1000},
                   {"int8 row sym f32 act i8 row", 65552},
                   {"int8 g48 sym f32 act i8 row", 960},
                   {"int8 g16 sym f32 act i8 row", 960},
                   {"int8 g64 asym f32 act i8 tensor asym", 960},
                   {"int4 g32 sym f16 act i8 row", 960},
                   {"e4m3 g32 f32 act e4m3 row", 960},
                   {"int8 g128 r3 sym f32 act i8 row", 960}};
    for (const auto &r : refused) {
        problem p = problem_of(r.name, 1, 2, r.k, 0, false, true);
        quantize(p);
        lq_mat y = {NULL, LQ_F32, 1, 2, 2};
        lq_w8a8_form f;
        p.act.q = NULL, p.act.x.type = LQ_BF16;
        lq_weight w = p.of[0].w;
        w.q = NULL;
        check(!lq_w8a8_fits(&p.act, &w, &y, &f), "%s of %d columns fits", r.name, r.k);
    }
}

// Several matrices that read the same rows, in one launch: each has the bits of its own.
static void check_joined(const char *name, int m, int tokens) {
    const int n[] = {70, 200, 17};
    std::vector<problem> all;
    std::vector<uint32_t> alone;
    for (int i = 0; i < 3; i++) {
        problem p = problem_of(name, m, n[i], 528, 0, i % 2, i == 2);
        if (i) p.x = all[0].x;
        const std::vector<uint32_t> y = run(p, 8, emu::options()).y;
        alone.insert(alone.end(), y.begin(), y.end());
        all.push_back(p);
    }
    emu::options how;
    how.seed = random_bits();
    problem first = all[0];
    const answer r = run(first, tokens, how, {all[1], all[2]});
    clean(first, r.got, tokens, name);
    check(r.y == alone, "%s, %d tokens, joined: other bits than of each matrix alone", name, tokens);
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : "";
    lq_err err;
    lq_dev_opts o = {};
    o.isa = "c", o.threads = 1, o.numerics = LQ_NUM_EXACT;
    lq_dev_limits most = {};
    most.rows = 256, most.k = 1 << 17, most.n = 1024, most.outs = 1;
    if (!check(lq_dev_open("cpu", &o, &cpu, &err) && cpu->ops.reserve(cpu, &most, &err), "no portable C"))
        return closing();
    check_plans();
    check_tuned();
    check_refused();
    int i = 0;
    for (const char *name : types) {
        i++;
        if (!strstr(name, only)) continue;
        check_product(name, 17 + i % 3, 66 + 2 * i, 528, 0, i % 2, i % 4 == 1);
        check_product(name, 1 + i % 8, i % 2 ? 63 : 1, i % 2 ? 1040 : 48, 0, i % 4 == 1, i % 2);
        if (i % 3 == 0 || i % 12 == 1)
            check_product(name, i % 12 == 1 ? 130 : 70, 128, 256, i % 2 ? 0 : 70, true, false);
        if (i % 4 == 1) check_product(name, 9, 40, 512, 5 + 60 * (i % 3), true, true);
        if (i % 3 == 2) check_joined(name, 9 + i % 4, i % 2 ? 32 : 8);
        check_noticed(name, i % 2 * 4);
    }
    if (!*only) {
        check_experts(types[0], "int8 row sym f16 act i8 row", 5, 40, 1, 8, true);
        check_experts(types[1], types[1], 5, 60, 4, 32, true);
        check_experts(types[8], types[8], 5, 40, 2, 32, true);
        check_experts(types[5], types[5], 5, 20, 2, 8, false);
        check_experts(types[0], types[0], 40, 50, 2, 16, true);
        check_apart(70, 66, 5, 1);
        check_apart(3, 130, 129, 1);
        check_apart(20, 33, 64, 4);
        check_largest(types[0], 65536);
        check_largest(types[1], 65536);
        check_largest(types[3], 32768);
        check_spoilt(types[0], 8);
        check_spoilt(types[5], 32);
        if (emu::watched) {
            check_harm(types[0], 8, 7);
            check_harm(types[1], 128, 9);
            check_harm(types[6], 64, 7);
            check_harm(types[12], 16, 7);
        }
        for (int k = 0; k < LQ_W8A8_COUNT; k++) check(runs[(size_t)k] > 0, "%s was never run", lq_w8a8_kernels[k].name);
    }
    check(worst_shared <= 1.0, "a request of shared memory takes %.2f times the passes it needs", worst_shared);
    check(worst_global <= 1.0, "a request of global memory takes %.2f times the sectors it needs", worst_global);
    printf("worst error %.3f of its bound; %.2f passes, %.2f sectors of the least\n", worst_of_bound, worst_shared, worst_global);
    lq_dev_close(cpu);
    return closing();
}
