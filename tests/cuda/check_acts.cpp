// check_acts.cpp: the kernels that make activations of 8 bits, of kernels/cuda/acts.cu and, behind a norm and a glu, of
// rmsn.cu and elem.cu, on the emulated machine, against `quant` of portable C on the same numbers, bit for bit: codes,
// scales, sums, zero points, the row in the order of the weight. What norm and glu make themselves is what the kernels
// without a form make. Then each with one thing wrong.
#include <math.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include "kernels/ops.h"
}
#include "kernels/cuda/elem.h"
#include "kernels/cuda/rmsn.h"
#include "tests/cuda/check.h"

typedef void acts_kernel(const void *);
extern "C" acts_kernel lq_acts_rows, lq_rmsn_k256, lq_rmsn_k4096, lq_rmsn_k16384, lq_rmsn_act_k4096,
    lq_rmsn_act_k16384, lq_elem_glu, lq_elem_glu_act;

static lq_dev *cpu;

// How activations are made; `own`: the product wants the row in its order.
struct form {
    const char *name;
    lq_atype type;
    int group; // of the weight, 0: a row
    bool smooth, perm, apart, own;
};

static const form forms[] = {
    {"i8 row", {LQ_I8, 0, false, false}, 0, false, false, false, false},
    {"i8 row, smooth", {LQ_I8, 0, false, false}, 0, true, false, false, false},
    {"i8 row, smooth, own", {LQ_I8, 0, false, false}, 0, true, false, false, true},
    {"i8 row, perm, own", {LQ_I8, 0, false, false}, 0, false, true, false, true},
    {"i8 row, apart", {LQ_I8, 0, false, false}, 0, false, false, true, false},
    {"i8 row, smooth, perm, apart, own", {LQ_I8, 0, false, false}, 0, true, true, true, true},
    {"i8 row, smooth, perm", {LQ_I8, 0, false, false}, 0, true, true, false, false},
    {"i8 row of g32", {LQ_I8, 0, false, false}, 32, false, false, true, false},
    {"i8 g128", {LQ_I8, 128, false, false}, 0, false, false, false, false},
    {"i8 g48", {LQ_I8, 48, false, false}, 48, true, false, false, false},
    {"i8 g256 of g64", {LQ_I8, 256, false, false}, 64, false, false, false, false},
    {"i8 tensor", {LQ_I8, 0, true, false}, 0, false, false, false, false},
    {"i8 tensor asym", {LQ_I8, 0, true, true}, 0, false, false, true, false},
    {"e4m3 row", {LQ_E4M3, 0, false, false}, 0, false, false, false, false},
    {"e4m3 row, perm, own", {LQ_E4M3, 0, false, false}, 0, false, true, false, true},
    {"e4m3 g128", {LQ_E4M3, 128, false, false}, 128, false, false, false, false},
    {"e4m3 g32 of g16", {LQ_E4M3, 32, false, false}, 16, true, false, true, false},
    {"e4m3 tensor", {LQ_E4M3, 0, true, false}, 0, false, false, false, false},
    {"own alone", {LQ_F32, 0, false, false}, 0, true, true, false, true},
};

// Who makes what is coded.
enum maker { QUANT, NORM, GLU };
static const char *const makers[] = {"quant", "norm", "glu"};

// x [rows][stride] of bf16, which a norm adds `more` to and a glu multiplies by it; all that the form says is the
// weight's.
struct problem {
    const form *of;
    maker by;
    int rows, k, stride;
    std::vector<uint16_t> x, more;
    std::vector<float> smooth, fixed, gamma;
    std::vector<int32_t> perm, apart, zero;
    lq_weight w;
};

struct answer {
    std::vector<uint8_t> q;
    std::vector<float> scale;
    std::vector<int32_t> sum, zero;
    std::vector<uint16_t> own, y; // y [rows][k]: what a norm or a glu made
    emu::result got;
};

static problem problem_of(const form *of, maker by, int rows, int k) {
    problem p = {};
    p.of = of, p.by = by, p.rows = rows, p.k = k, p.stride = k + 16 * below(2);
    for (int i = 0; i < rows * p.stride; i++)
        p.x.push_back(i % p.stride < k ? to_bf16(uniform() * (below(60) ? 1 : 300)) : 0x7fc0);
    for (int i = 0; by != QUANT && i < rows * p.stride; i++) p.more.push_back(to_bf16(uniform()));
    for (int i = 0; by == NORM && i < k; i++) p.gamma.push_back(uniform());
    for (int i = 0; i < k; i++) p.smooth.push_back(0.5f + fabsf(uniform())), p.perm.push_back(i);
    for (int i = k - 1; i > 0; i--) std::swap(p.perm[(size_t)i], p.perm[(size_t)below(i + 1)]);
    for (int i = 3; i < k; i += 7 + below(30)) p.apart.push_back(i);
    p.fixed.push_back(0.003f), p.zero.push_back(-11);
    return p;
}

// What lq_act_bind and the file say of it.
static lq_act bound(problem &p, void *base) {
    lq_act a = {};
    p.w.type.kind = p.of->type.elem == LQ_E4M3 ? LQ_W_FLOAT : LQ_W_INT;
    p.w.type.bits = 8, p.w.type.group = p.of->group, p.w.type.scale = LQ_F32, p.w.type.act = p.of->type, p.w.k = p.k;
    if (p.of->smooth) p.w.smooth = p.smooth.data();
    if (p.of->perm) p.w.perm = p.perm.data();
    if (p.of->apart) p.w.outlier = p.apart.data(), p.w.outliers = (int)p.apart.size();
    p.w.act_scale = p.fixed.data(), p.w.act_zero = p.zero.data();
    lq_act_bind(cpu, &a, &p.w, p.rows, base);
    return a;
}

static size_t cells_of(const lq_act &a, int k) {
    const size_t cell = a.type.elem == LQ_I8 ? a.q_row : a.q_group;
    return cell ? ((size_t)k + cell - 1) / cell : 0;
}

// What is there of the rows of all cells, `size` for each.
template <typename T> static std::vector<T> rows_of(const T *from, const lq_act &a, const problem &p, size_t size) {
    std::vector<T> all;
    for (size_t c = 0; c < cells_of(a, p.k); c++, from += (size_t)a.apart * size)
        all.insert(all.end(), from, from + (size_t)p.rows * size);
    return all;
}

// Portable C on f32. Where the row in its order is rounded to bf16 on the way, it is so here.
static answer expected(problem p) {
    std::vector<float> x, v((size_t)p.rows * p.k);
    answer r;
    for (int i = 0; i < p.rows * p.k; i++) x.push_back(of_bf16(p.x[(size_t)(i / p.k * p.stride + i % p.k)]));
    if (p.of->own) {
        lq_act turn = {};
        turn.x = {v.data(), LQ_F32, p.rows, p.k, (size_t)p.k};
        turn.smooth = p.of->smooth ? p.smooth.data() : NULL, turn.perm = p.of->perm ? p.perm.data() : NULL;
        const lq_quant_args q = {{x.data(), LQ_F32, p.rows, p.k, (size_t)p.k}, &turn};
        cpu->ops.quant(cpu, &q);
        for (float &f : v) r.own.push_back(to_bf16(f)), f = of_bf16(to_bf16(f));
        x = v;
    }
    if (p.of->type.elem == LQ_F32) return r;
    std::vector<uint64_t> room(lq_act_bytes(cpu, &p.w, p.rows) / 8 + (size_t)p.rows * p.k + 4096);
    lq_act a = bound(p, room.data());
    if (p.of->own) a.smooth = NULL, a.perm = NULL;
    a.x.p = NULL;
    const lq_quant_args q = {{x.data(), LQ_F32, p.rows, p.k, (size_t)p.k}, &a};
    cpu->ops.quant(cpu, &q);
    r.scale = rows_of(a.scale, a, p, 1);
    if (a.sum) r.sum = rows_of(a.sum, a, p, 1);
    if (a.zero) r.zero.assign(a.zero, a.zero + p.rows);
    if (a.type.elem == LQ_I8) r.q = rows_of((uint8_t *)a.q, a, p, a.q_row);
    for (int i = 0; a.type.elem == LQ_E4M3 && i < p.rows * p.k; i++) {
        const float f = ((const float *)a.q)[(size_t)(i / p.k) * a.q_row + (size_t)(i % p.k)];
        uint8_t code = 0;
        for (int c = 0; c < 256; c++) {
            float back;
            const uint8_t byte = (uint8_t)c;
            lq_dtypes[LQ_E4M3].to_f32(&byte, &back, 1);
            if (!memcmp(&back, &f, 4)) code = byte;
        }
        r.q.push_back(code);
    }
    return r;
}

// Its arguments on the emulated machine, of a form (NULL: none); y has no gaps.
static lq_norm_args norm_of(problem &p, lq_mat *delta) {
    lq_norm_args n = {};
    n.eps = 1e-5f, n.x = {emu::changed(p.x.data(), p.x.size() * 2, "x"), LQ_BF16, p.rows, p.k, (size_t)p.stride};
    n.kind = p.k % 3 ? LQ_NORM_RMS : LQ_NORM_LAYER;
    *delta = {input_of(p.more, "delta"), LQ_BF16, p.rows, p.k, (size_t)p.stride};
    n.delta = delta, n.gamma = (const float *)weights_of(p.gamma, "gamma");
    n.y = {emu::output((size_t)p.rows * p.k * 2, "y"), LQ_BF16, p.rows, p.k, (size_t)p.k};
    check(lq_rmsn_fits(&n), "a norm does not fit");
    return n;
}

static lq_glu_args glu_of(problem &p) {
    lq_glu_args g = {};
    g.fn = LQ_SILU;
    g.gate = {input_of(p.x, "gate"), LQ_BF16, p.rows, p.k, (size_t)p.stride};
    g.up = {input_of(p.more, "up"), LQ_BF16, p.rows, p.k, (size_t)p.stride};
    g.y = {emu::output((size_t)p.rows * p.k * 2, "y"), LQ_BF16, p.rows, p.k, (size_t)p.k};
    check(lq_glu_fits(&g), "a glu does not fit");
    return g;
}

static emu::result launch(acts_kernel *kernel, const void *args, unsigned blocks, unsigned threads, size_t shared,
                          const emu::options &how) {
    return emu::launch(dim3(blocks), dim3(threads), shared, how, [&] { kernel(args); });
}

// What a norm or a glu makes without a form.
static std::vector<uint16_t> made(problem p) {
    emu::reset();
    lq_mat y, delta;
    emu::options how;
    if (p.by == NORM) {
        const lq_norm_args n = norm_of(p, &delta);
        const lq_rmsn_args a = lq_rmsn_of(&n);
        acts_kernel *kernel = p.k <= 256 ? lq_rmsn_k256 : p.k <= 4096 ? lq_rmsn_k4096 : lq_rmsn_k16384;
        launch(kernel, &a, lq_rmsn_blocks(&a), LQ_RMSN_THREADS, LQ_RMSN_SHARED, how);
        y = n.y;
    } else {
        const lq_glu_of a = {glu_of(p)};
        launch(lq_elem_glu, &a, lq_elem_blocks(p.rows, p.k), LQ_ELEM_THREADS, 0, how);
        y = a.a.y;
    }
    const uint16_t *at = (const uint16_t *)y.p;
    return std::vector<uint16_t>(at, at + p.rows * p.k);
}

// The kernel with this form, of which act has everything but where its x comes from.
static emu::result coded(problem &p, lq_act act, lq_mat *x, const emu::options &how) {
    const bool own = act.x.p;
    lq_mat delta;
    if (p.by == QUANT) *x = {input_of(p.x, "x"), LQ_BF16, p.rows, p.k, (size_t)p.stride};
    lq_norm_args n = {};
    lq_glu_args g = {};
    if (p.by == NORM) *x = (n = norm_of(p, &delta)).y;
    if (p.by == GLU) *x = (g = glu_of(p)).y;
    if (!own) {
        act.x = *x;
        if (p.of->smooth || p.of->perm) act.x.p = NULL;
    }
    check(lq_acts_fits(x, &act, 1 << 17), "%s k %d: does not fit", p.of->name, p.k);
    const size_t shared = lq_acts_shared(p.k);
    const lq_acts_args a = {*x, act};
    if (p.by == QUANT) return launch(lq_acts_rows, &a, (unsigned)p.rows, LQ_ACTS_THREADS, shared, how);
    if (p.by == NORM) {
        const lq_rmsn_act_args both = {lq_rmsn_of(&n), a};
        return launch(p.k <= 4096 ? lq_rmsn_act_k4096 : lq_rmsn_act_k16384, &both, (unsigned)p.rows, LQ_RMSN_THREADS,
                      shared, how);
    }
    const lq_glu_act_of both = {g, a};
    return launch(lq_elem_glu_act, &both, (unsigned)p.rows, LQ_GLU_THREADS, shared, how);
}

static answer run(problem p, const emu::options &how) {
    emu::reset();
    static uint64_t nowhere[8];
    lq_act act = bound(p, nowhere);
    const size_t n = cells_of(act, p.k) * (size_t)act.apart, rows = (size_t)p.rows;
    const size_t bytes = act.type.elem == LQ_I8 ? n * act.q_row : rows * act.q_row;
    act.x = {NULL, LQ_BF16, p.rows, p.k, (size_t)p.k};
    if (p.of->own) act.x.p = emu::output(rows * p.k * 2, "own");
    if (p.of->type.elem != LQ_F32) {
        act.q = emu::output(bytes, "q");
        act.scale = (float *)emu::output(n * 4, "scale");
        if (act.type.elem == LQ_I8) act.sum = (int32_t *)emu::output(n * 4, "sum");
        if (act.type.asym) act.zero = (int32_t *)emu::output(rows * 4, "zero");
        if (act.fixed) act.fixed = (const float *)weights_of(p.fixed, "fixed");
        if (act.fixed_zero) act.fixed_zero = (const int32_t *)weights_of(p.zero, "fixed zero");
    }
    if (act.smooth) act.smooth = (const float *)weights_of(p.smooth, "smooth");
    if (act.perm) act.perm = (const int32_t *)weights_of(p.perm, "perm");
    if (act.outliers) act.outlier = (const int32_t *)weights_of(p.apart, "outlier");
    answer r;
    lq_mat x;
    r.got = coded(p, act, &x, how);
    if (p.by != QUANT) r.y.assign((uint16_t *)x.p, (uint16_t *)x.p + rows * p.k);
    if (p.of->own) r.own.assign((uint16_t *)act.x.p, (uint16_t *)act.x.p + rows * p.k);
    if (act.type.elem == LQ_I8) r.q = rows_of((uint8_t *)act.q, act, p, act.q_row);
    for (size_t i = 0; act.type.elem == LQ_E4M3 && i < rows * p.k; i++)
        r.q.push_back(((uint8_t *)act.q)[i / p.k * act.q_row + i % p.k]);
    if (act.scale) r.scale = rows_of(act.scale, act, p, 1);
    if (act.sum) r.sum = rows_of(act.sum, act, p, 1);
    if (act.zero) r.zero.assign(act.zero, act.zero + p.rows);
    check(emu::zones_whole(), "%s: wrote between the buffers", p.of->name);
    return r;
}

// What it has to be: of the numbers that a norm or a glu makes without a form.
static answer wanted(problem p) {
    std::vector<uint16_t> y;
    if (p.by != QUANT) p.x = y = made(p), p.stride = p.k;
    answer r = expected(p);
    r.y = y;
    return r;
}

// NaN is NaN, whichever.
static bool same_floats(const std::vector<float> &a, const std::vector<float> &b) {
    bool same = a.size() == b.size();
    for (size_t i = 0; same && i < a.size(); i++)
        same = !memcmp(&a[i], &b[i], 4) || (isnan(a[i]) && isnan(b[i]));
    return same;
}

static bool same(const answer &a, const answer &b) {
    return a.q == b.q && same_floats(a.scale, b.scale) && a.sum == b.sum && a.zero == b.zero && a.own == b.own &&
           a.y == b.y;
}

static void check_form(const form *of, maker by, int rows, int k) {
    problem p = problem_of(of, by, rows, k);
    const bool odd = by == QUANT && rows > 2 && !of->own;
    for (int i = 0; i < k; i++) p.x[(size_t)i] = 0;                                   // a row of zeros,
    for (int i = 0; by != QUANT && i < k; i++) p.more[(size_t)i] = 0;
    if (odd) p.x[(size_t)p.stride + 5] = of->smooth ? 0x7f80 : 0xff80;                // one with an infinity,
    for (int i = 0; rows > 3 && i < k; i++) p.x[(size_t)(2 * p.stride + i)] = 0x0001; // one far below 2^-100
    emu::options how;
    how.seed = random_bits();
    const answer first = run(p, how);
    if (!check(first.got.findings.empty(), "%s of %s k %d: %zu findings", of->name, makers[by], k,
               first.got.findings.size())) first.got.print();
    check(same(first, wanted(p)), "%s of %s, %d rows, k %d: other than portable C", of->name, makers[by], rows, k);
    if (k % 64 == 0 && p.stride % 16 == 0)
        for (const emu::counter &c : first.got.counters)
            if (by == QUANT && (c.bytes == 16 || (c.bytes == 8 && !c.shared)))
                check(c.moved <= c.least, "%s k %d: %.2f of the least", of->name, k, (double)c.moved / (double)c.least);
    how.seed = random_bits();
    how.resident = 1;
    check(same(run(p, how), first), "%s of %s k %d: other bits by another schedule", of->name, makers[by], k);
}

// barriers: of a row with columns apart, and of a LayerNorm.
static void check_harm(maker by, size_t barriers) {
    problem p = problem_of(&forms[4], by, 2, 504);
    emu::options how;
    const emu::result right = run(p, how).got;
    check(right.barriers.size() == barriers, "%s: %zu barriers", makers[by], right.barriers.size());
    for (void *barrier : right.barriers) {
        bool found = false;
        how.wrong = emu::NO_BARRIER;
        how.at = barrier;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(emu::RACE);
        check(found, "%s: no race is found without a barrier", makers[by]);
    }
    const struct { emu::harm wrong; emu::kind kind; } harms[] = {{emu::LOST_LANE, emu::DEADLOCK},
                                                                 {emu::NO_PDL_WAIT, emu::BEFORE_WAIT}};
    for (const auto &h : harms) {
        bool found = false;
        how.wrong = h.wrong;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) {
            const emu::result got = run(p, how).got;
            found = got.has(h.kind) || (h.wrong == emu::LOST_LANE && got.has(emu::DIVERGED));
        }
        check(found, "%s: no finding \"%s\"", makers[by], emu::kind_names[h.kind]);
    }
    answer r = run(p, emu::options());
    const answer right_one = wanted(p);
    r.q[77] ^= 1;
    check(!same(r, right_one), "a wrong code is not noticed");
    r.q[77] ^= 1, r.sum[1] += 1;
    check(!same(r, right_one), "a wrong sum is not noticed");
}

int main() {
    lq_err err;
    lq_dev_opts o = {};
    o.isa = "c", o.threads = 1, o.numerics = LQ_NUM_EXACT;
    lq_dev_limits most = {};
    most.rows = 64, most.k = 8192, most.n = 64, most.outs = 1;
    if (!check(lq_dev_open("cpu", &o, &cpu, &err) && cpu->ops.reserve(cpu, &most, &err), "no portable C"))
        return closing();
    for (const form &f : forms) {
        check_form(&f, QUANT, 4, 512);
        check_form(&f, QUANT, 3, 16 * (3 + below(20)));
        check_form(&f, QUANT, 2, 4 * (5 + below(200)));
        check_form(&f, QUANT, 1, 3328);
        for (maker by : {NORM, GLU}) {
            check_form(&f, by, 4, 512);
            check_form(&f, by, 2, 8 * (3 + below(28)));
            check_form(&f, by, 1, by == NORM ? 6144 : 4608);
        }
    }
    if (emu::watched) {
        check_harm(QUANT, 3);
        check_harm(NORM, 5);
        check_harm(GLU, 3);
    }
    lq_dev_close(cpu);
    return closing();
}
