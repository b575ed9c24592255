// check_dq.cpp: the kernels of kernels/cuda/dq.cu on the emulated machine: rows of bf16 of weights in layout cuda,
// against what the host makes of the same weight in layout any (lq_weight_row), rounded to bf16: bit for bit; then with
// one thing wrong, which must be found.
#include <math.h>
#include <string.h>
extern "C" {
#include "kernels/pack.h"
}
#include "formats/elem.h"
#include "kernels/cuda/dq.h"
#include "kernels/cuda/w4s_pick.h"
#include "tests/cuda/check.h"

typedef void dq_kernel(const void *);
extern "C" dq_kernel lq_dq_f16, lq_dq_bias;
#define DECLARED(name, kind, codes, bits) extern "C" dq_kernel name;
#define LISTED(name, kind, codes, bits) {#name, name, kind, bits},
LQ_DQ_KERNELS(DECLARED)
static const struct row { const char *name; dq_kernel *kernel; int kind, bits; } kernels[] = {LQ_DQ_KERNELS(LISTED)};
static int runs[sizeof kernels / sizeof *kernels];

static const char *const types[] = {
    "int2 g32 asym f16", "int2 g128 sym f32", "int3 g64 asym bf16", "int3 row sym f16", "int4 g32 asym f16",
    "int4 g64 sym f32", "int4 g128 asym bf16", "int4 g512 sym f16", "int4 row asym f16", "int5 g32 asym f16",
    "int5 row sym f32", "int6 g32 sym bf16", "int6 g128 asym f16", "int8 g32 asym f16", "int8 row sym f16",
    "int8 g128 r16 sym f16", "int8 tensor sym f32", "nf4 g64 f32", "fp4 g32 e8m0", "fp4 g16 e4m3", "e4m3 g128 r128 f32",
    "e4m3 row bf16", "e4m3 g32 e8m0", "e5m2 tensor f32"};

// A weight in layout any and the same in layout cuda.
struct matrix {
    lq_wtype t;
    lq_w4s_form form;
    int n, k;
    std::vector<uint8_t> q, scale, zero, cuda_q, cuda_scale, cuda_zero;
    std::vector<float> table, scale2;
    lq_weight any;
};

static void fill_scales(matrix &m) {
    const size_t size = m.t.scale == LQ_F32 ? 4 : m.t.scale == LQ_F16 || m.t.scale == LQ_BF16 ? 2 : 1;
    for (size_t i = 0; i < m.scale.size() / size; i++) {
        const float s = (i % 5 == 1 ? -1.0f : 1.0f) * (0.01f + 0.01f * fabsf(uniform()));
        const uint32_t bits = m.t.scale == LQ_F32    ? lq_bits(s)
                              : m.t.scale == LQ_BF16 ? to_bf16(s)
                              : m.t.scale == LQ_F16  ? (uint32_t)(0x2000 + below(0x400)) | (i % 5 == 1 ? 0x8000u : 0)
                              : m.t.scale == LQ_E8M0 ? (uint32_t)(118 + below(6))
                                                     : (uint32_t)(0x20 + below(0x30));
        memcpy(&m.scale[i * size], &bits, size);
    }
}

static matrix matrix_of(const char *type, int n, int k) {
    matrix m = {};
    lq_weight_size size, cuda;
    m.n = n, m.k = k;
    check(lq_wtype_parse(type, &m.t, NULL) && lq_weight_sizes(&m.t, n, k, &size) &&
          lq_pack_sizes(LQ_CUDA, &m.t, n, k, &cuda) && lq_w4s_fits(&m.t, LQ_CUDA, n, k, &m.form), "%s: no kernel",
          type);
    m.q.resize(size.q), m.scale.resize(size.scale), m.zero.resize(size.zero);
    m.cuda_q.resize(cuda.q), m.cuda_scale.resize(cuda.scale), m.cuda_zero.resize(cuda.zero);
    for (uint8_t &q : m.q) {
        q = (uint8_t)below(256);
        if (m.t.elem == LQ_E4M3 && (q & 127) == 127) q = 0; // codes that are no number
        if (m.t.elem == LQ_E5M2 && (q & 124) == 124) q = 0;
    }
    for (uint8_t &z : m.zero) z = (uint8_t)below(256);
    fill_scales(m);
    m.scale2.push_back(0.003f);
    if (m.t.kind == LQ_W_TABLE) m.table.assign(lq_wtype_table(&m.t), lq_wtype_table(&m.t) + 16);
    m.any.type = m.t, m.any.n = n, m.any.k = k;
    m.any.q = m.q.data(), m.any.scale = m.scale.data(), m.any.zero = m.t.asym ? m.zero.data() : NULL;
    m.any.table = m.table.data(), m.any.scale2 = m.scale2.data();
    lq_weight_out to = {m.cuda_q.data(), m.cuda_scale.data(), m.t.asym ? m.cuda_zero.data() : NULL};
    lq_pack(&m.any, LQ_CUDA, to, NULL);
    return m;
}

struct answer {
    std::vector<uint16_t> y; // [rows][k]
    emu::result got;
};

static answer run(matrix &m, int first, int rows, const emu::options &how) {
    answer r;
    const row *of = NULL;
    for (const row &some : kernels)
        if (some.kind == m.form.kind && some.bits == m.form.bits) of = &some;
    runs[of - kernels]++;
    emu::reset();
    lq_dq_args a = {};
    a.w.w = weights_of(m.cuda_q, "w"), a.w.scale = weights_of(m.cuda_scale, "scale"), a.w.scale_type = m.form.scale;
    if (m.t.asym) a.w.zero = weights_of(m.cuda_zero, "zero");
    if (m.t.scale == LQ_E4M3) a.w.scale2 = (const float *)weights_of(m.scale2, "scale2");
    if (!m.table.empty()) a.w.table = (const float *)weights_of(m.table, "table");
    const size_t numbers = (size_t)rows * (size_t)m.k;
    a.to = (uint16_t *)emu::output(numbers * 2, "rows");
    a.n = m.n, a.k = m.k, a.first = first, a.rows = rows;
    a.share_shift = m.form.share_shift, a.groups = m.form.groups, a.narrow = m.form.narrow;
    lq_dq_grouped(&a, m.t.group);
    const dim3 grid((unsigned)(rows + 63) / 64, (unsigned)(m.k + LQ_DQ_COLUMNS - 1) / LQ_DQ_COLUMNS);
    r.got = emu::launch(grid, dim3(LQ_DQ_THREADS), (size_t)LQ_DQ_SHARED(of->bits), how, [&] { of->kernel(&a); });
    r.y.assign(a.to, a.to + numbers);
    check(emu::zones_whole(), "%s: wrote between the buffers", of->name);
    return r;
}

static bool same(uint16_t a, uint16_t b) { return a == b || ((a & 0x7fff) > 0x7f80 && (b & 0x7fff) > 0x7f80); }

static bool agrees(const matrix &m, int first, const std::vector<uint16_t> &y) {
    std::vector<float> row((size_t)m.k);
    for (size_t i = 0; i < y.size() / (size_t)m.k; i++) {
        lq_weight_row(&m.any, first + (int64_t)i, row.data());
        for (int c = 0; c < m.k; c++)
            if (!same(y[i * (size_t)m.k + (size_t)c], (uint16_t)lq_bf16_narrow(row[(size_t)c]))) return false;
    }
    return true;
}

static double worst_global, worst_shared;

static void check_type(const char *type, int n, int k) {
    matrix m = matrix_of(type, n, k);
    emu::options how;
    for (int first = 0; first < n; first += 64) {
        if (first > 64) break;
        how.seed = random_bits(), how.resident = 1 + (unsigned)below(3);
        const answer r = run(m, first, n - first, how);
        if (!check(r.got.findings.empty(), "%s %dx%d: %zu findings", type, n, k, r.got.findings.size())) r.got.print();
        check(agrees(m, first, r.y), "%s %dx%d from row %d: not the host's numbers", type, n, k, first);
        worst_shared = fmax(worst_shared, r.got.worst(true));
        // Codes and rows of whole sectors; what scales and zero points are read for is a sixteenth of that or less.
        for (const emu::counter &c : r.got.counters)
            if (!c.shared && c.bytes == 16 && k % 64 == 0)
                worst_global = fmax(worst_global, (double)c.moved / (double)c.least);
        answer other = r;
        other.y[other.y.size() / 2] ^= 1;
        check(!agrees(m, first, other.y), "%s: a number that is another is not noticed", type);
    }
}

static void check_f16(int rows, int k) {
    emu::reset();
    std::vector<uint16_t> w;
    for (int i = 0; i < rows * k; i++) w.push_back((uint16_t)random_bits());
    lq_dq_f16_args a = {(const uint16_t *)weights_of(w, "w"), (uint16_t *)emu::output(w.size() * 2, "rows"),
                        (int64_t)rows * k};
    const emu::result got = emu::launch(dim3(lq_dq_blocks(a.numbers)), dim3(LQ_DQ_THREADS), 0, emu::options(),
                                        [&] { lq_dq_f16(&a); });
    bool right = got.findings.empty() && emu::zones_whole() && got.worst(false) <= 1;
    for (size_t i = 0; i < w.size(); i++) right &= same(a.to[i], (uint16_t)lq_bf16_narrow(lq_f16_widen(w[i])));
    check(right, "f16 %dx%d: other numbers", rows, k);
}

static void check_bias(int m, int n, bool f32) {
    emu::reset();
    const int stride = n + 8;
    std::vector<float> bias, wide;
    std::vector<uint16_t> y;
    for (int i = 0; i < n; i++) bias.push_back(uniform());
    for (int i = 0; i < m * stride; i++) y.push_back(to_bf16(4 * uniform())), wide.push_back(4 * uniform());
    void *at = f32 ? emu::changed(wide.data(), wide.size() * 4, "y") : emu::changed(y.data(), y.size() * 2, "y");
    lq_dq_bias_args a = {at, (const float *)weights_of(bias, "bias"), stride, m, n, f32};
    const emu::result got = emu::launch(dim3(lq_dq_blocks((int64_t)m * n)), dim3(LQ_DQ_THREADS), 0, emu::options(),
                                        [&] { lq_dq_bias(&a); });
    bool right = got.findings.empty() && emu::zones_whole();
    for (int i = 0; i < m * stride; i++) {
        const int c = i % stride;
        const size_t j = (size_t)i;
        const float by = c < n ? bias[(size_t)c] : 0;
        if (f32) right &= ((float *)a.y)[i] == (c < n ? wide[j] + by : wide[j]);
        else right &= ((uint16_t *)a.y)[i] == (c < n ? lq_bf16_narrow(of_bf16(y[j]) + by) : y[j]);
    }
    check(right, "bias %dx%d f32 %d: other numbers", m, n, f32);
}

static void check_harm() {
    // Of 64 columns more than a piece the second unit of 64 is none.
    const struct { emu::harm wrong; emu::kind kind; const char *type; } harms[] = {
        {emu::NO_PDL_WAIT, emu::BEFORE_WAIT, "int4 g32 asym f16"}, {emu::WEAK_WAIT, emu::IN_FLIGHT, "int8 row sym f16"},
        {emu::WHOLE_COPIES, emu::OUT_OF_BOUNDS, "int4 g64 sym f32"},
        {emu::LOST_LANE, emu::DIVERGED, "int3 row sym f16"}};
    for (const auto &h : harms) {
        matrix m = matrix_of(h.type, 64, 192);
        bool found = false;
        emu::options how;
        how.wrong = h.wrong;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(m, 0, 64, how).got.has(h.kind);
        check(found, "%s: no finding \"%s\"", h.type, emu::kind_names[h.kind]);
    }
}

int main() {
    for (const char *type : types) {
        check_type(type, 64, 256);
        check_type(type, 72 + 8 * below(6), 8 * (40 + below(40)));
        check_type(type, 137, 64);
    }
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) check(runs[i] > 0, "%s was not run", kernels[i].name);
    check_f16(3, 1000);
    check_f16(1, 8);
    for (bool f32 : {false, true}) check_bias(5, 264, f32), check_bias(1, 8, f32);
    if (emu::watched) {
        check(worst_global <= 1, "%.2f sectors of the least", worst_global);
        check(worst_shared <= 1, "%.2f passes of the least", worst_shared);
        check_harm();
    }
    return closing();
}
