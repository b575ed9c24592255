// check_rmsn.cpp: the kernels of kernels/cuda/rmsn.cu on the emulated machine, against f64; then each with one thing
// wrong.
#include "kernels/cuda/rmsn.h"
#include "tests/cuda/check.h"

typedef void rmsn_kernel(const void *);
extern "C" rmsn_kernel lq_rmsn_k256, lq_rmsn_k4096, lq_rmsn_k16384;

static const struct row { const char *name; rmsn_kernel *kernel; int most; } kernels[] = {
    {"lq_rmsn_k256", lq_rmsn_k256, 256},
    {"lq_rmsn_k4096", lq_rmsn_k4096, 4096},
    {"lq_rmsn_k16384", lq_rmsn_k16384, 16384}};

// What is asked for, and matrices of a row that is `gap` wider than it needs; gaps hold NaN.
struct problem {
    const row *of;
    lq_norm_args a;
    bool more, in_place;
    int gap;
    lq_mat delta;
    std::vector<uint16_t> x, d;
    std::vector<float> gamma, beta;
};

struct answer {
    std::vector<uint16_t> y, x; // with their gaps
    emu::result got;
};

static int stride(const problem &p) { return p.a.x.cols + p.gap; }

static problem problem_of(const row *of, int rows, int k) {
    problem p = {};
    p.of = of;
    p.a.kind = (lq_norm_kind)below(3);
    p.a.eps = 1e-5f;
    p.a.plus_one = below(2);
    p.a.gammas = below(2) ? 3 : 0;
    p.more = below(2), p.in_place = below(2), p.gap = 16 * below(2);
    p.a.x.rows = rows, p.a.x.cols = k;
    for (int i = 0; i < rows * stride(p); i++) {
        const bool inside = i % stride(p) < k;
        p.x.push_back(inside ? to_bf16(uniform() * (below(50) ? 1 : 100) + 0.5f) : 0x7fff);
        p.d.push_back(inside ? to_bf16(uniform()) : 0x7fff);
    }
    const int each = k * (p.a.gammas ? p.a.gammas : 1);
    if (below(4)) p.gamma.resize((size_t)each);
    if (below(2)) p.beta.resize((size_t)each);
    for (float &g : p.gamma) g = uniform();
    for (float &b : p.beta) b = uniform();
    return p;
}

static answer run(problem p, const emu::options &how) {
    emu::reset();
    const size_t n = p.x.size();
    p.a.x.type = p.delta.type = LQ_BF16;
    p.a.x.stride = (size_t)stride(p);
    p.delta.stride = p.a.x.stride;
    p.a.x.p = p.more || p.in_place ? emu::changed(p.x.data(), n * 2, "x") : input_of(p.x, "x");
    p.a.y = p.a.x;
    if (!p.in_place) p.a.y.p = emu::output(n * 2, "y");
    if (p.more) p.delta.p = input_of(p.d, "delta"), p.a.delta = &p.delta;
    if (!p.gamma.empty()) p.a.gamma = (const float *)weights_of(p.gamma, "gamma");
    if (!p.beta.empty()) p.a.beta = (const float *)weights_of(p.beta, "beta");
    check(lq_rmsn_fits(&p.a), "%s k %d: does not fit", p.of->name, p.a.x.cols);
    const lq_rmsn_args a = lq_rmsn_of(&p.a);
    answer r;
    r.got = emu::launch(dim3(lq_rmsn_blocks(&a)), dim3(LQ_RMSN_THREADS), LQ_RMSN_SHARED, how,
                        [&] { p.of->kernel(&a); });
    r.y.assign(a.y, a.y + n);
    r.x.assign(a.x, a.x + n);
    check(emu::zones_whole(), "%s: wrote between the buffers", p.of->name);
    return r;
}

static double worst;

// The row in f64. A sum of n numbers by threads, lanes and warps has chains of at most `chain` roundings: the mean is
// off by chain * 2^-24 of mean |v|, the sum of squares by its own chain and by what the mean is off. rsqrt is within
// 2^-22.9, four more roundings follow, and that of gamma + 1; then half a unit of bf16 of what is stored.
static bool row_agrees(const problem &p, const answer &r, int at, double *of_bound) {
    const int k = p.a.x.cols;
    const size_t from = (size_t)at * stride(p), g = (size_t)(at % (p.a.gammas ? p.a.gammas : 1)) * k;
    const double e = 0x1p-24, chain = (p.of->most > 256 ? 8 * ((k + 2047) / 2048) : 8) + 5 + 8 + 2;
    std::vector<double> v;
    double mean = 0, size = 0, sum = 0;
    for (int i = 0; i < k; i++) {
        float x = of_bf16(p.x[from + i]);
        if (p.more) {
            x = of_bf16(to_bf16(x + of_bf16(p.d[from + i])));
            if (!p.in_place && r.x[from + i] != to_bf16(x)) return false;
        }
        v.push_back(x);
        mean += x, size += fabs(x);
    }
    mean = p.a.kind == LQ_NORM_LAYER ? mean / k : 0;
    const double mean_off = p.a.kind == LQ_NORM_LAYER ? (chain + 1) * e * size / k : 0;
    for (int i = 0; i < k; i++) v[(size_t)i] -= mean, sum += v[(size_t)i] * v[(size_t)i];
    const double over = p.a.kind == LQ_NORM_L2 ? 1 : k, under = sum / over + (double)p.a.eps;
    // (|v| + mean_off)^2 summed: 2 mean_off sum |v| is at most 2 mean_off sqrt(k sum)
    const double sum_off = (2 * chain + 2) * e * sum + 2 * mean_off * sqrt(k * sum) + k * mean_off * mean_off;
    const double share = 0.5 * (sum_off / over / under + 2 * e) + 0x1p-22 + 5 * e;
    for (int i = 0; i < k; i++) {
        const double gamma = p.gamma.empty() ? 1 : (double)p.gamma[g + i] + (p.a.plus_one ? 1 : 0);
        const double beta = p.beta.empty() ? 0 : (double)p.beta[g + i], v1 = v[(size_t)i] / sqrt(under) * gamma;
        const double y = v1 + beta;
        const double off = fabs(v1) * share + 1.01 * mean_off / sqrt(under) * fabs(gamma) + e * fabs(y);
        const double bound = off + 0x1p-8 * (fabs(y) + off) + 0x1p-134;
        const double error = fabs(of_bf16(r.y[from + i]) - y);
        *of_bound = fmax(*of_bound, error / bound);
        if (!(error <= bound)) return false;
    }
    for (int i = k; i < stride(p); i++)
        if (r.x[from + i] != 0x7fff || (p.in_place && r.y[from + i] != 0x7fff)) return false;
    return true;
}

static void check_row(const row *of, int rows, int k) {
    problem p = problem_of(of, rows, k);
    emu::options how;
    const answer first = run(p, how);
    if (!check(first.got.findings.empty(), "%s k %d: %zu findings", of->name, k, first.got.findings.size()))
        first.got.print();
    for (int i = 0; i < rows; i++)
        check(row_agrees(p, first, i, &worst), "%s kind %d rows %d k %d: row %d differs from f64", of->name, p.a.kind,
              rows, k, i);
    // Other rows do not begin at a sector. Vectors of f32 are read in two halves, of which the second finds the sectors
    // that the first brought.
    const double sectors = p.gamma.empty() && p.beta.empty() ? 1 : 2;
    if (k % 64 == 0)
        check(first.got.worst(true) <= 1 && first.got.worst(false) <= sectors,
              "%s k %d: %.2f passes, %.2f sectors of the least", of->name, k, first.got.worst(true),
              first.got.worst(false));
    how.seed = random_bits();
    how.resident = 1;
    const answer again = run(p, how);
    check(again.y == first.y && again.x == first.x, "%s k %d: other bits by another schedule", of->name, k);
    // Without the two rows in front every third row is where it was, in gammas too.
    if (rows > 3) {
        problem last = p;
        last.a.x.rows -= 3;
        last.x.erase(last.x.begin(), last.x.begin() + 3 * stride(p));
        last.d.erase(last.d.begin(), last.d.begin() + 3 * stride(p));
        const answer alone = run(last, how);
        bool same = true;
        for (int i = 0; i < (rows - 3) * stride(p); i++)
            same &= i % stride(p) >= k || alone.y[(size_t)i] == first.y[(size_t)(i + 3 * stride(p))];
        check(same, "%s k %d: a row has other bits in another batch", of->name, k);
    }
    // A row of zeros becomes beta; one that is not a number spoils itself alone.
    for (int i = 0; i < k; i++) p.x[(size_t)i] = p.d[(size_t)i] = 0;
    p.x[(size_t)stride(p) + 3] = 0x7f80;
    const answer odd = run(p, how);
    check(row_agrees(p, odd, 2, &worst) && row_agrees(p, odd, 0, &worst) &&
          isnan(of_bf16(odd.y[(size_t)stride(p) + 3])), "%s k %d: zeros or infinities went astray", of->name, k);
}

static void check_harm(const row *of) {
    problem p = problem_of(of, 2, of->most > 256 ? 1000 : 200);
    p.a.kind = LQ_NORM_LAYER;
    emu::options how;
    const emu::result right = run(p, how).got;
    const size_t barriers = of->most > 256 ? 2 : 0;
    check(right.barriers.size() == barriers, "%s: %zu barriers", of->name, right.barriers.size());
    for (void *barrier : right.barriers) {
        bool found = false;
        how.wrong = emu::NO_BARRIER;
        how.at = barrier;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(emu::RACE);
        check(found, "%s: no race is found without a barrier", of->name);
    }
    const struct { emu::harm wrong; emu::kind kind; } harms[] = {
        {emu::LOST_LANE, of->most > 256 ? emu::DEADLOCK : emu::DIVERGED}, {emu::NO_PDL_WAIT, emu::BEFORE_WAIT}};
    for (const auto &h : harms) {
        bool found = false;
        how.wrong = h.wrong;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(h.kind);
        check(found, "%s: no finding \"%s\"", of->name, emu::kind_names[h.kind]);
    }
    answer r = run(p, emu::options());
    r.y[77] = (uint16_t)(r.y[77] + 3);
    double unused = 0;
    check(!row_agrees(p, r, 0, &unused), "%s: a number that is three units off is not noticed", of->name);
}

int main() {
    for (const row &r : kernels) {
        if (r.most == 256)
            for (int k : {8, 64, 72, 128, 200, 256})
                for (int i = 0; i < 4; i++) check_row(&r, 3 + 11 * i, k);
        else
            for (int k : {264, 512, 520, r.most - 8, r.most}) check_row(&r, k == 520 ? 7 : 4, k);
        check_row(&r, 3, r.most);
        if (emu::watched) check_harm(&r);
    }
    printf("worst error %.3f of its bound\n", worst);
    return closing();
}
