// products.h: what the checks of products share: types of weights, packed here by the words of docs/FORMAT.md, section
// 6.1; problems, and sums of them in f64; what the kernels of w4s make of one.
#ifndef CUDA_PRODUCTS_H
#define CUDA_PRODUCTS_H
#include "kernels/cuda/w4s_pick.h"
#include "tests/cuda/check.h"

// A type of weights; codes of a table stand for `values`.
struct type {
    const char *name;
    lq_wtype of;
    const float *values;
};

static const float fp4[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
static const float nf4[16] = {
    -1, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
    -0.18477343022823334f, -0.09105003625154495f, 0, 0.07958029955625534f, 0.16093020141124725f,
    0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1
};

static lq_wtype int_type(int bits, int group, bool asym, lq_dtype scale, int rows = 1) {
    lq_wtype t = {};
    t.kind = LQ_W_INT, t.elem = LQ_U8, t.bits = bits, t.group = group, t.rows = rows, t.asym = asym, t.scale = scale;
    return t;
}

static lq_wtype coded(lq_wkind kind, lq_dtype elem, int group, lq_dtype scale, int rows = 1) {
    lq_wtype t = int_type(kind == LQ_W_TABLE ? 4 : kind == LQ_W_PLAIN ? 16 : 8, group, false, scale, rows);
    t.kind = kind, t.elem = elem;
    return t;
}

static const type types[] = {
    {"int4 g32 asym f16", int_type(4, 32, true, LQ_F16), NULL},
    {"int4 g64 sym f32", int_type(4, 64, false, LQ_F32), NULL},
    {"int4 g128 asym bf16", int_type(4, 128, true, LQ_BF16), NULL},
    {"int4 g256 sym f16", int_type(4, 256, false, LQ_F16), NULL},
    {"int4 row asym bf16", int_type(4, 0, true, LQ_BF16), NULL},
    {"int8 g64 asym bf16", int_type(8, 64, true, LQ_BF16), NULL},
    {"int8 row sym f16", int_type(8, 0, false, LQ_F16), NULL},
    {"int8 g128 r16 sym f16", int_type(8, 128, false, LQ_F16, 16), NULL},
    {"int2 g32 asym f16", int_type(2, 32, true, LQ_F16), NULL},
    {"int2 g128 sym f16", int_type(2, 128, false, LQ_F16), NULL},
    {"int3 g64 asym bf16", int_type(3, 64, true, LQ_BF16), NULL},
    {"int3 g128 asym f16", int_type(3, 128, true, LQ_F16), NULL},
    {"int5 g32 asym f16", int_type(5, 32, true, LQ_F16), NULL},
    {"int5 row sym f32", int_type(5, 0, false, LQ_F32), NULL},
    {"int6 g32 sym bf16", int_type(6, 32, false, LQ_BF16), NULL},
    {"int6 g128 asym f16", int_type(6, 128, true, LQ_F16), NULL},
    {"nf4 g64 f32", coded(LQ_W_TABLE, LQ_U8, 64, LQ_F32), nf4},
    {"fp4 g32 e8m0", coded(LQ_W_TABLE, LQ_U8, 32, LQ_E8M0), fp4},
    {"fp4 g16 e4m3", coded(LQ_W_TABLE, LQ_U8, 16, LQ_E4M3), fp4},
    {"e4m3 g128 r128 f32", coded(LQ_W_FLOAT, LQ_E4M3, 128, LQ_F32, 128), NULL},
    {"e4m3 row bf16", coded(LQ_W_FLOAT, LQ_E4M3, 0, LQ_BF16), NULL},
    {"e4m3 g32 e8m0", coded(LQ_W_FLOAT, LQ_E4M3, 32, LQ_E8M0), NULL},
    {"e5m2 tensor f32", coded(LQ_W_FLOAT, LQ_E5M2, 0, LQ_F32, LQ_ROWS_ALL), NULL},
    {"bf16", coded(LQ_W_PLAIN, LQ_BF16, 0, LQ_F32), NULL},
    {"f16", coded(LQ_W_PLAIN, LQ_F16, 0, LQ_F32), NULL},
};

// --- numbers ---

// A float of so many bits of exponent and fraction; with `most` all exponents are finite, but for the last code.
static double small_float(uint32_t bits, int exponents, int fractions, bool most) {
    const int e = (int)(bits >> fractions & ((1u << exponents) - 1)), f = (int)(bits & ((1u << fractions) - 1));
    const int bias = (1 << (exponents - 1)) - 1, last = (1 << exponents) - 1;
    const bool negative = bits >> (exponents + fractions) & 1;
    double v = e ? ldexp(1 + ldexp(f, -fractions), e - bias) : ldexp(f, 1 - bias - fractions);
    if (e == last && !most) v = f ? NAN : INFINITY;
    if (e == last && most && f == (1 << fractions) - 1) v = NAN;
    return negative ? -v : v;
}

static double of_type(lq_dtype t, uint32_t bits) {
    float f;
    switch (t) {
    case LQ_F32: memcpy(&f, &bits, 4); return f;
    case LQ_BF16: return of_bf16((uint16_t)bits);
    case LQ_F16: return small_float(bits, 5, 10, false);
    case LQ_E4M3: return small_float(bits, 4, 3, true);
    case LQ_E5M2: return small_float(bits, 5, 2, false);
    default: return bits == 255 ? NAN : ldexp(1, (int)bits - 127);
    }
}

static uint32_t some_scale(lq_dtype t, int i) {
    const float size = (i % 5 == 1 ? -1.0f : 1.0f) * (0.01f + 0.01f * fabsf(uniform()));
    uint32_t bits;
    memcpy(&bits, &size, 4);
    if (t == LQ_E8M0) return (uint32_t)(118 + below(6));
    if (i % 17 == 5) return 0;
    return t == LQ_F32    ? bits
           : t == LQ_BF16 ? to_bf16(size)
           : t == LQ_F16  ? (uint32_t)(0x2000 + below(0x400))
                          : (uint32_t)(0x20 + below(0x30));
}

// --- a weight: its numbers as they are, and packed as the kernel reads them ---

struct matrix {
    const type *of;
    lq_w4s_form form;
    int n, k, group, groups, stripes, share;
    std::vector<uint32_t> q;      // [n][k]
    std::vector<uint8_t> z;       // [n][groups]
    std::vector<uint32_t> s;      // [n / share][groups]
    std::vector<float> b, scale2; // [n], [1]
    std::vector<uint8_t> w, scale, zero;
};

static double weight_at(const matrix &m, int n, int k) {
    const lq_wtype &t = m.of->of;
    const uint32_t q = m.q[(size_t)n * m.k + k];
    if (t.kind == LQ_W_PLAIN) return of_type(t.elem, q);
    const int g = k / m.group;
    double s = of_type(t.scale, m.s[(size_t)(n / m.share) * m.groups + g]);
    if (t.scale == LQ_E4M3) s = (float)(s * (double)m.scale2[0]);
    if (t.kind == LQ_W_INT) return s * ((int)q - (int)m.z[(size_t)n * m.groups + g]);
    return s * (t.kind == LQ_W_TABLE ? (double)m.of->values[q] : of_type(t.elem, q));
}

// Where the code of row r, column c of a unit lies, in its block: plane by plane.
static void put_code(uint8_t *block, int bits, int r, int c, uint32_t q) {
    const int g = r % 8, cc = c % 16, t = cc % 8 / 2, h = cc % 2, p = r / 8 + 2 * (cc / 8), lane = 4 * g + t;
    if (bits == 8) {
        const int word = c % 32 / 16 * 2 + p / 2;
        block[c / 32 * 512 + lane * 16 + word * 4 + 2 * h + (p % 2 ? 0 : 1)] = (uint8_t)q;
        return;
    }
    static const int planes[7][3] = {{}, {}, {2}, {2, 1}, {4}, {4, 1}, {4, 2}};
    for (int i = 0; i < 3 && planes[bits][i]; i++) {
        const int w = planes[bits][i], columns = w == 4 ? 64 : 128, words = w == 1 ? 2 : 4, step = c % columns / 16;
        const int bit = w * (4 * (step % (4 / w)) + p) + 16 * h;
        uint8_t *at = block + c / columns * 32 * words * 4 + lane * words * 4 + step / (4 / w) * 4 + bit / 8;
        const int mask = ((1 << w) - 1) << bit % 8;
        *at = (uint8_t)((*at & ~mask) | ((int)(q & ((1u << w) - 1)) << bit % 8));
        q >>= w;
        block += (bits == 4 ? 64 : 128) / columns * 32 * words * 4;
    }
}

static void put_number(std::vector<uint8_t> &to, size_t i, lq_dtype t, uint32_t v) {
    const size_t size = t == LQ_F32 ? 4 : t == LQ_F16 || t == LQ_BF16 ? 2 : 1;
    memcpy(&to[i * size], &v, size);
}

// Codes behind the matrix may be anything; scales there are 0.
static void pack(matrix &m) {
    const lq_wtype &t = m.of->of;
    if (t.kind == LQ_W_PLAIN) {
        m.w.resize(m.q.size() * 2);
        for (size_t i = 0; i < m.q.size(); i++) memcpy(&m.w[2 * i], &m.q[i], 2);
        return;
    }
    const int unit = t.bits == 4 || t.bits == 8 ? 64 : 128, units = (m.k + unit - 1) / unit, block = 2 * unit * t.bits;
    m.w.resize((size_t)m.stripes * units * 4 * block);
    for (uint8_t &byte : m.w) byte = (uint8_t)below(256);
    const size_t rows = m.share > 1 ? (size_t)(m.n + m.share - 1) / m.share : (size_t)m.stripes * 64;
    m.scale.assign(rows * m.groups * (t.scale == LQ_F32 ? 4 : t.scale == LQ_F16 || t.scale == LQ_BF16 ? 2 : 1), 0);
    m.zero.assign(t.asym ? (size_t)m.groups * m.stripes * (t.bits > 4 ? 64 : 32) : 0, 0);
    for (int n = 0; n < m.n; n++) {
        for (int k = 0; k < m.k; k++) {
            const size_t at = ((size_t)(n / 64) * units + k / unit) * 4 + n % 64 / 16;
            put_code(&m.w[at * block], t.bits, n % 16, k % unit, m.q[(size_t)n * m.k + k]);
        }
        const int r = n % 64 / 16, g = n % 8, hi = n % 16 / 8;
        for (int i = 0; i < m.groups; i++) {
            const size_t at = (size_t)i * m.stripes + n / 64;
            const uint32_t s = m.s[(size_t)(n / m.share) * m.groups + i], z = m.z[(size_t)n * m.groups + i];
            put_number(m.scale, m.share > 1 ? (size_t)(n / m.share) * m.groups + i : at * 64 + 16 * r + 2 * g + hi,
                       t.scale, s);
            if (t.asym && t.bits > 4) m.zero[at * 64 + 16 * r + 2 * g + hi] = (uint8_t)z;
            else if (t.asym) m.zero[at * 32 + 4 * g + r] |= (uint8_t)(z << 4 * hi);
        }
    }
}

static matrix matrix_of(const type *of, int n, int k) {
    matrix m = {};
    const lq_wtype &t = of->of;
    m.of = of, m.n = n, m.k = k;
    check(lq_w4s_fits(&t, t.kind == LQ_W_PLAIN ? LQ_ANY : LQ_CUDA, n, k, &m.form), "%s: no kernel", of->name);
    m.group = t.group ? t.group : k;
    m.groups = (k + m.group - 1) / m.group, m.stripes = (n + 63) / 64;
    m.share = t.rows == LQ_ROWS_ALL ? n + 1 : t.rows;
    for (int i = 0; i < n * k; i++) {
        uint32_t q = random_bits() & (t.bits == 16 ? 0xffffu : (1u << t.bits) - 1);
        if (t.kind == LQ_W_PLAIN)
            q = t.elem == LQ_BF16 ? to_bf16(uniform()) : 0x2000 + (uint32_t)below(0x1c00) + ((uint32_t)below(2) << 15);
        if (t.elem == LQ_E4M3 && (q & 127) == 127) q = 0;
        if (t.elem == LQ_E5M2) q = (q & 0x83) | (uint32_t)below(19) << 2; // up to 8
        m.q.push_back(q);
    }
    for (int i = 0; i < n * m.groups; i++)
        m.z.push_back((uint8_t)(!t.asym ? 1 << (t.bits - 1)
                                : i % 3 ? below(1 << t.bits)
                                : i % 2 ? (1 << t.bits) - 1
                                        : 0));
    for (int i = 0; i < (n + m.share - 1) / m.share * m.groups; i++) m.s.push_back(some_scale(t.scale, i));
    for (int i = 0; i < n; i++) m.b.push_back(uniform());
    m.scale2.push_back(0.003f);
    return m;
}

// --- a product ---

struct problem {
    std::vector<matrix> of; // of one, or of experts
    int m, cut, top_k;      // m: slots
    bool bias, f32;
    std::vector<int32_t> order, start;
    std::vector<uint16_t> x; // [m / top_k][x_stride]
    int x_stride, y_stride;
};

static problem problem_of(const type *of, int m, int n, int k, int cut, bool bias, bool f32) {
    problem p = {};
    p.of.push_back(matrix_of(of, n, k));
    p.m = m, p.cut = cut, p.bias = bias, p.f32 = f32, p.top_k = 1;
    const bool odd = m % 4 == 3; // rows that do not begin at a sector
    p.x_stride = odd ? (k + 7) / 8 * 8 : (k + 15) / 16 * 16;
    p.y_stride = odd ? n | 1 : (n + 15) / 16 * 16;
    for (int i = 0; i < m * p.x_stride; i++)
        p.x.push_back(i % p.x_stride < k ? to_bf16(uniform()) : 0x7fc0); // NaN behind the row
    return p;
}

// Scales of rows 9 and 68 that are infinite or no number, and a number of token 1 that is none.
static inline problem spoilt_problem(const type *of, int m) {
    problem p = problem_of(of, m, 70, 200, 1024, false, false);
    matrix &w = p.of[0];
    for (int g = 0; g < w.groups; g++) {
        w.s[(size_t)9 * w.groups + g] = of->of.scale == LQ_F16 ? 0x7c00 : 0x7f80;
        w.s[(size_t)68 * w.groups + g] = of->of.scale == LQ_F16 ? 0x7e00 : 0x7fc0;
    }
    p.x[(size_t)p.x_stride + 7] = 0x7fc0;
    return p;
}

struct answer {
    std::vector<uint32_t> y; // [m][y_stride], f32 or bf16
    emu::result got;
};

static lq_w4s_matrix given(matrix &m, bool bias) {
    lq_w4s_matrix a = {};
    pack(m);
    a.w = weights_of(m.w, "w");
    a.scale_type = m.form.scale;
    if (m.of->of.kind != LQ_W_PLAIN) a.scale = weights_of(m.scale, "scale");
    if (m.of->of.asym) a.zero = weights_of(m.zero, "zero");
    if (bias) a.bias = (const float *)weights_of(m.b, "bias");
    if (m.of->of.scale == LQ_E4M3) a.scale2 = (const float *)weights_of(m.scale2, "scale2");
    if (m.of->values) a.table = (const float *)emu::weights(m.of->values, 64, "table");
    return a;
}

// What a kernel is given, but for where blocks share cuts; y is NaN.
static lq_w4s_args arguments_of(problem &p) {
    const matrix &first = p.of[0];
    const lq_w4s_form &f = first.form;
    emu::reset();
    lq_w4s_args a = {};
    std::vector<lq_w4s_matrix> all;
    for (matrix &m : p.of) all.push_back(given(m, p.bias));
    lq_w4s_one &one = a.of[0];
    one.matrix = all[0], a.joined = 1;
    const int experts = (int)p.of.size();
    if (experts > 1) one.experts = (const lq_w4s_matrix *)weights_of(all, "experts");
    if (!p.order.empty())
        a.order = (const int32_t *)input_of(p.order, "order"), a.start = (const int32_t *)input_of(p.start, "start");
    a.x = (const uint16_t *)input_of(p.x, "x");
    one.y = emu::output((size_t)p.m * p.y_stride * (p.f32 ? 4 : 2), "y");
    a.x_stride = p.x_stride, one.y_stride = p.y_stride;
    a.m = p.m, one.n = first.n, a.k = first.k, one.cut = p.cut, a.side = one.side = 1;
    a.count = experts, a.top_k = p.top_k, one.f32 = p.f32;
    a.group_shift = f.group_shift, a.share_shift = f.share_shift, a.groups = f.groups, a.narrow = f.narrow;
    return a;
}

static std::vector<uint32_t> outputs_of(const problem &p, const lq_w4s_args &a) {
    std::vector<uint32_t> y;
    const void *from = a.of[0].y;
    for (int i = 0; i < p.m * p.y_stride; i++)
        y.push_back(p.f32 ? ((const uint32_t *)from)[i] : ((const uint16_t *)from)[i]);
    return y;
}

static std::vector<int> runs(LQ_W4S_COUNT); // of each kernel

enum cuts { ALONE, SHARED, MET }; // a block makes all; blocks share them; in a cluster

static const lq_w4s_kernel *w4s_of(const lq_w4s_form &f, int tokens) {
    for (const lq_w4s_kernel &some : lq_w4s_kernels)
        if (some.kind == f.kind && some.bits == f.bits && some.group == f.group && some.tokens == tokens) return &some;
    return NULL;
}

// By the kernel of w4s for so many tokens.
static answer run(problem &p, int tokens, int by, emu::options how) {
    const matrix &first = p.of[0];
    const lq_w4s_form &f = first.form;
    const lq_w4s_kernel *kernel = w4s_of(f, tokens);
    answer r;
    if (!check(kernel, "%s: no kernel for %d tokens", first.of->name, tokens)) return r;
    runs[(size_t)(kernel - lq_w4s_kernels)]++;
    lq_w4s_args a = arguments_of(p);
    const int experts = a.count, cuts = lq_w4s_cuts(first.k, p.cut), rows = LQ_W4S_ROWS(f.bits, tokens);
    if (by == MET && (cuts - 1 > kernel->met || cuts > LQ_W4S_CLUSTER_MOST)) by = SHARED;
    a.side = a.of[0].side = by ? cuts : 1;
    a.cluster = by == MET && cuts > 1;
    if (a.cluster) how.cluster = (unsigned)cuts;
    const int x = (first.n + rows - 1) / rows,
              tiles = experts == 1 ? (p.m + tokens - 1) / tokens : p.m / tokens + experts;
    if (a.side > 1 && !a.cluster) {
        a.parts = (float *)emu::output((size_t)tiles * x * cuts * tokens * rows * 4, "parts");
        a.arrived = (uint32_t *)emu::state((size_t)tiles * x * 4, "arrived");
    }
    void (*entry)(const void *) = (void (*)(const void *))(void *)kernel->entry;
    r.got = emu::launch(dim3((unsigned)x, (unsigned)(tiles * a.side)), dim3(LQ_W4S_THREADS), kernel->shared, how,
                        [&] { entry(&a); });
    r.y = outputs_of(p, a);
    if (!emu::zones_whole()) check(false, "%s: wrote between the buffers", kernel->name);
    return r;
}

static double worst_of_bound, worst_shared, worst_global;

// Of one output: the sum in f64, and how far it may be off: half a unit of bf16 if it is stored so, the same of every
// product if weights are rounded to bf16, and for each step of 16 columns, group and cut 2^-22 of the sum of absolute
// terms.
static bool near(const problem &p, const matrix &w, const uint16_t *x, int n, uint32_t y, double *of_bound) {
    double sum = p.bias ? (double)w.b[(size_t)n] : 0, size = fabs(sum);
    for (int k = 0; k < w.k; k++) {
        const double t = weight_at(w, n, k) * of_bf16(x[k]);
        sum += t;
        size += fabs(t);
    }
    const bool rounded = w.of->values == nf4 || w.of->of.elem == LQ_F16;
    const double error = fabs(of_type(p.f32 ? LQ_F32 : LQ_BF16, y) - sum);
    const int groups = w.form.group ? w.k / w.form.group + 1 : 1;
    const double bound = (p.f32 ? 0x1p-23 : 0x1p-8) * fabs(sum) + (rounded ? 0x1p-8 * size : 0) +
                         (w.k / 16 + groups + lq_w4s_cuts(w.k, p.cut) + 8) * 0x1p-22 * size + 0x1p-130;
    *of_bound = fmax(*of_bound, error / bound);
    return error <= bound;
}

static bool agrees(const problem &p, const answer &r, double *of_bound) {
    const matrix &w = p.of[0];
    for (int m = 0; m < p.m; m++) {
        for (int n = 0; n < w.n; n++)
            if (!near(p, w, &p.x[(size_t)m * p.x_stride], n, r.y[(size_t)m * p.y_stride + n], of_bound)) return false;
        for (int n = w.n; n < p.y_stride; n++)
            if (r.y[(size_t)m * p.y_stride + n] != (p.f32 ? 0xffffffffu : 0xffffu)) return false;
    }
    return true;
}
#endif
