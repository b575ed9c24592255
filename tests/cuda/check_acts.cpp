// check_acts.cpp: the kernel of kernels/cuda/acts.cu on the emulated machine, against `quant` of portable C on the same
// numbers, bit for bit: codes, scales, sums, zero points, the row in the order of the weight; then with one thing
// wrong.
#include <math.h>
#include <stdint.h>
#include <string.h>
extern "C" {
#include "kernels/ops.h"
}
#include "kernels/cuda/acts.h"
#include "tests/cuda/check.h"

extern "C" void lq_acts_rows(const void *);

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

// x [rows][stride] of bf16; all that the form says is the weight's.
struct problem {
    const form *of;
    int rows, k, stride;
    std::vector<uint16_t> x;
    std::vector<float> smooth, fixed;
    std::vector<int32_t> perm, apart, zero;
    lq_weight w;
};

struct answer {
    std::vector<uint8_t> q;
    std::vector<float> scale;
    std::vector<int32_t> sum, zero;
    std::vector<uint16_t> own;
    emu::result got;
};

static problem problem_of(const form *of, int rows, int k) {
    problem p = {};
    p.of = of, p.rows = rows, p.k = k, p.stride = k + 16 * below(2);
    for (int i = 0; i < rows * p.stride; i++)
        p.x.push_back(i % p.stride < k ? to_bf16(uniform() * (below(60) ? 1 : 300)) : 0x7fc0);
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
    const size_t n = cells_of(a, p.k) * (size_t)p.rows;
    r.scale.assign(a.scale, a.scale + n);
    if (a.sum) r.sum.assign(a.sum, a.sum + n);
    if (a.zero) r.zero.assign(a.zero, a.zero + p.rows);
    if (a.type.elem == LQ_I8) r.q.assign((uint8_t *)a.q, (uint8_t *)a.q + n * a.q_row);
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

static answer run(problem p, const emu::options &how) {
    emu::reset();
    static uint64_t nowhere[8];
    lq_acts_args a = {};
    a.act = bound(p, nowhere);
    lq_act *act = &a.act;
    const size_t n = cells_of(*act, p.k) * (size_t)p.rows, rows = (size_t)p.rows;
    const size_t bytes = act->type.elem == LQ_I8 ? n * act->q_row : rows * act->q_row;
    a.x = {input_of(p.x, "x"), LQ_BF16, p.rows, p.k, (size_t)p.stride};
    act->x = a.x;
    if (p.of->own) act->x = {emu::output(rows * p.k * 2, "own"), LQ_BF16, p.rows, p.k, (size_t)p.k};
    else if (p.of->smooth || p.of->perm) act->x.p = NULL;
    if (p.of->type.elem != LQ_F32) {
        act->q = emu::output(bytes, "q");
        act->scale = (float *)emu::output(n * 4, "scale");
        if (act->type.elem == LQ_I8) act->sum = (int32_t *)emu::output(n * 4, "sum");
        if (act->type.asym) act->zero = (int32_t *)emu::output(rows * 4, "zero");
        if (act->fixed) act->fixed = (const float *)weights_of(p.fixed, "fixed");
        if (act->fixed_zero) act->fixed_zero = (const int32_t *)weights_of(p.zero, "fixed zero");
    }
    if (act->smooth) act->smooth = (const float *)weights_of(p.smooth, "smooth");
    if (act->perm) act->perm = (const int32_t *)weights_of(p.perm, "perm");
    if (act->outliers) act->outlier = (const int32_t *)weights_of(p.apart, "outlier");
    check(lq_acts_fits(&a.x, act, 1 << 17), "%s k %d: does not fit", p.of->name, p.k);
    answer r;
    r.got =
        emu::launch(dim3((unsigned)p.rows), dim3(LQ_ACTS_THREADS), lq_acts_shared(p.k), how, [&] { lq_acts_rows(&a); });
    if (p.of->own) r.own.assign((uint16_t *)act->x.p, (uint16_t *)act->x.p + rows * p.k);
    if (act->type.elem == LQ_I8) r.q.assign((uint8_t *)act->q, (uint8_t *)act->q + bytes);
    for (size_t i = 0; act->type.elem == LQ_E4M3 && i < rows * p.k; i++)
        r.q.push_back(((uint8_t *)act->q)[i / p.k * act->q_row + i % p.k]);
    if (act->scale) r.scale.assign(act->scale, act->scale + n);
    if (act->sum) r.sum.assign(act->sum, act->sum + n);
    if (act->zero) r.zero.assign(act->zero, act->zero + p.rows);
    check(emu::zones_whole(), "%s: wrote between the buffers", p.of->name);
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
    return a.q == b.q && same_floats(a.scale, b.scale) && a.sum == b.sum && a.zero == b.zero && a.own == b.own;
}

static void check_form(const form *of, int rows, int k) {
    problem p = problem_of(of, rows, k);
    for (int i = 0; i < k; i++) p.x[(size_t)i] = 0;                           // a row of zeros,
    if (rows > 2 && !of->own) p.x[(size_t)p.stride + 5] = of->smooth ? 0x7f80 : 0xff80; // one with an infinity,
    for (int i = 0; rows > 3 && i < k; i++) p.x[(size_t)(2 * p.stride + i)] = 0x0001; // one far below 2^-100
    emu::options how;
    how.seed = random_bits();
    const answer first = run(p, how), wanted = expected(p);
    if (!check(first.got.findings.empty(), "%s k %d: %zu findings", of->name, k, first.got.findings.size()))
        first.got.print();
    check(same(first, wanted), "%s, %d rows, k %d: other than portable C", of->name, rows, k);
    if (k % 64 == 0 && p.stride % 16 == 0)
        for (const emu::counter &c : first.got.counters)
            if (c.bytes == 16 || (c.bytes == 8 && !c.shared))
                check(c.moved <= c.least, "%s k %d: %.2f of the least", of->name, k, (double)c.moved / (double)c.least);
    how.seed = random_bits();
    how.resident = 1;
    check(same(run(p, how), first), "%s k %d: other bits by another schedule", of->name, k);
}

static void check_harm() {
    problem p = problem_of(&forms[4], 2, 512);
    emu::options how;
    const emu::result right = run(p, how).got;
    check(right.barriers.size() == 3, "%zu barriers", right.barriers.size());
    for (void *barrier : right.barriers) {
        bool found = false;
        how.wrong = emu::NO_BARRIER;
        how.at = barrier;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(emu::RACE);
        check(found, "no race is found without a barrier");
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
        check(found, "no finding \"%s\"", emu::kind_names[h.kind]);
    }
    answer r = run(p, emu::options());
    r.q[77] ^= 1;
    check(!same(r, expected(p)), "a wrong code is not noticed");
    r.q[77] ^= 1, r.sum[1] += 1;
    check(!same(r, expected(p)), "a wrong sum is not noticed");
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
        check_form(&f, 4, 512);
        check_form(&f, 3, 16 * (3 + below(20)));
        check_form(&f, 2, 4 * (5 + below(200)));
        check_form(&f, 1, 3328);
    }
    if (emu::watched) check_harm();
    lq_dev_close(cpu);
    return closing();
}
