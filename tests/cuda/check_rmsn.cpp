// check_rmsn.cpp: the kernels of kernels/cuda/rmsn.cu on the emulated machine, against f64; then each with one thing
// wrong.
#include "kernels/cuda/rmsn.h"
#include "tests/cuda/check.h"

typedef void rmsn_kernel(const void *);
extern "C" rmsn_kernel lq_rmsn_k4096, lq_rmsn_k4096_add, lq_rmsn_k16384, lq_rmsn_k16384_add;

static const struct row { const char *name; rmsn_kernel *kernel; int most; bool add; } kernels[] = {
    {"lq_rmsn_k4096", lq_rmsn_k4096, 4096, false},
    {"lq_rmsn_k4096_add", lq_rmsn_k4096_add, 4096, true},
    {"lq_rmsn_k16384", lq_rmsn_k16384, 16384, false},
    {"lq_rmsn_k16384_add", lq_rmsn_k16384_add, 16384, true},
};

struct problem {
    const row *of;
    int rows, k;
    float eps, plus;
    std::vector<uint16_t> x, residual, gain;
};

struct answer {
    std::vector<uint16_t> y, residual;
    emu::result got;
};

static problem problem_of(const row *of, int rows, int k) {
    problem p = {of, rows, k, 1e-5f, below(2) ? 1.0f : 0.0f, {}, {}, {}};
    for (int i = 0; i < rows * k; i++) {
        p.x.push_back(to_bf16(uniform() * (below(50) ? 1 : 100)));
        p.residual.push_back(to_bf16(uniform()));
    }
    for (int i = 0; i < k; i++) p.gain.push_back(to_bf16(uniform()));
    return p;
}

static answer run(const problem &p, const emu::options &how) {
    emu::reset();
    const size_t n = (size_t)p.rows * p.k;
    lq_rmsn_args a = {};
    a.x = (const uint16_t *)input_of(p.x, "x");
    a.gain = (const uint16_t *)weights_of(p.gain, "gain");
    a.y = (uint16_t *)emu::output(n * 2, "y");
    a.residual = p.of->add ? (uint16_t *)emu::changed(p.residual.data(), n * 2, "residual") : NULL;
    a.rows = p.rows, a.k = p.k, a.eps = p.eps, a.plus = p.plus;
    answer r;
    r.got = emu::launch(dim3((unsigned)p.rows), dim3(LQ_RMSN_THREADS), LQ_RMSN_SHARED, how, [&] { p.of->kernel(&a); });
    r.y.assign(a.y, a.y + n);
    if (a.residual) r.residual.assign(a.residual, a.residual + n);
    check(emu::zones_whole(), "%s: wrote between the buffers", p.of->name);
    return r;
}

static double worst;

// The sum is rounded once to f32 and once to bf16. Of the norm: a sum of at most k/256 + 13 squares in a chain, halved
// by the root, rsqrt (2^-22.9) and five more roundings to f32; then half a unit of bf16.
static bool row_agrees(const problem &p, const answer &r, int row, double *of_bound) {
    std::vector<float> v;
    double sum = 0;
    for (int i = row * p.k; i < (row + 1) * p.k; i++) {
        float x = of_bf16(p.x[(size_t)i]);
        if (p.of->add) {
            x = of_bf16(to_bf16(x + of_bf16(p.residual[(size_t)i])));
            if (r.residual[(size_t)i] != to_bf16(x)) return false;
        }
        v.push_back(x);
        sum += (double)x * x;
    }
    const double off = ((p.k / 256 + 13) / 2.0 + 2.2 + 5) * 0x1p-24, bound = off + 0x1p-8 * (1 + off);
    for (int i = 0; i < p.k; i++) {
        const double y = v[(size_t)i] / sqrt(sum / p.k + (double)p.eps) *
                         ((double)of_bf16(p.gain[(size_t)i]) + (double)p.plus);
        const double error = fabs(of_bf16(r.y[(size_t)row * p.k + i]) - y);
        if (y != 0) *of_bound = fmax(*of_bound, error / (bound * fabs(y)));
        if (!(error <= bound * fabs(y))) return false;
    }
    return true;
}

static void check_row(const row *of, int rows, int k) {
    problem p = problem_of(of, rows, k);
    emu::options how;
    const answer first = run(p, how);
    if (!check(first.got.findings.empty(), "%s k %d: %zu findings", of->name, k, first.got.findings.size()))
        first.got.print();
    for (int i = 0; i < rows; i++)
        check(row_agrees(p, first, i, &worst), "%s rows %d k %d: row %d differs from f64", of->name, rows, k, i);
    if (k % 16 == 0) // else rows do not begin at a sector
        check(first.got.worst(true) <= 1 && first.got.worst(false) <= 1,
              "%s k %d: %.2f passes, %.2f sectors of the least", of->name, k, first.got.worst(true),
              first.got.worst(false));
    how.seed = random_bits();
    how.resident = 1;
    const answer again = run(p, how);
    check(again.y == first.y && again.residual == first.residual, "%s k %d: other bits by another schedule", of->name,
          k);
    problem last = p;
    last.rows = 1;
    last.x.erase(last.x.begin(), last.x.end() - k);
    last.residual.erase(last.residual.begin(), last.residual.end() - k);
    const answer alone = run(last, how);
    check(!memcmp(alone.y.data(), &first.y[(size_t)(rows - 1) * k], (size_t)k * 2),
          "%s k %d: a row has other bits alone", of->name, k);
    // A row of zeros stays one; one that is not a number spoils itself alone.
    for (int i = 0; i < k; i++) p.x[(size_t)i] = p.residual[(size_t)i] = 0;
    p.x[(size_t)k + 3] = 0x7f80;
    const answer odd = run(p, how);
    bool held = row_agrees(p, odd, 2, &worst) && isnan(of_bf16(odd.y[(size_t)k + 3]));
    for (int i = 0; i < k; i++) held &= (odd.y[(size_t)i] & 0x7fff) == 0;
    check(held, "%s k %d: zeros or infinities went astray", of->name, k);
}

static void check_harm(const row *of) {
    const problem p = problem_of(of, 2, 1000);
    emu::options how;
    const emu::result right = run(p, how).got;
    check(right.barriers.size() == 1, "%s: %zu barriers", of->name, right.barriers.size());
    const struct { emu::harm wrong; emu::kind kind; } harms[] = {
        {emu::NO_BARRIER, emu::RACE}, {emu::LOST_LANE, emu::DEADLOCK}, {emu::NO_PDL_WAIT, emu::BEFORE_WAIT}};
    for (const auto &h : harms) {
        bool found = false;
        how.wrong = h.wrong;
        how.at = right.barriers.empty() ? NULL : right.barriers[0];
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
        check_row(&r, 3, 8);
        check_row(&r, 5, 520);
        check_row(&r, 3, r.most - 8);
        check_row(&r, 3, r.most);
        if (emu::watched) check_harm(&r);
    }
    printf("worst error %.3f of its bound\n", worst);
    return closing();
}
