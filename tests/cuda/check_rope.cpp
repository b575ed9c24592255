// check_rope.cpp: the kernel of kernels/cuda/rope.cu on the emulated machine, against sines in f64 of the angle in f32;
// then with one thing wrong.
#include "kernels/cuda/rope.h"
#include "tests/cuda/check.h"

extern "C" void lq_rope_bf16(const void *);

struct problem {
    int rows, real, dim, head_dim, q_heads, k_heads;
    bool interleaved;
    float mscale, q_beta;
    int q_every, q_ahead;
    std::vector<int32_t> pos;
    std::vector<float> freq;
    std::vector<uint16_t> x; // [rows][stride]: q's heads, then k's
};
struct answer { std::vector<uint16_t> x; emu::result got; };

static int stride_of(const problem &p) { return (p.q_heads + p.k_heads) * p.head_dim + 16; }

static problem problem_of(int rows, int dim, int head_dim, int q_heads, int k_heads, bool interleaved) {
    problem p = {rows, rows - 1, dim, head_dim, q_heads, k_heads, interleaved, 0, 0, 0, 0, {}, {}, {}};
    for (int i = 0; i < rows; i++) p.pos.push_back(i == 0 ? 0 : below(130000));
    for (int i = 0; i < dim / 2; i++) p.freq.push_back(powf(10000, -2.0f * (float)i / (float)dim));
    for (int i = 0; i < rows * stride_of(p); i++) p.x.push_back(to_bf16(4 * uniform()));
    return p;
}

static answer run(const problem &p, const emu::options &how) {
    emu::reset();
    lq_rope_bf16_args a = {};
    const std::vector<int32_t> first = {0, p.real};
    const int stride = stride_of(p);
    uint16_t *x = (uint16_t *)emu::changed(p.x.data(), p.x.size() * 2, "x");
    a.rows.n = p.rows, a.rows.seqs = 1;
    a.rows.pos = (int32_t *)weights_of(p.pos, "pos");
    a.rows.first = (int32_t *)weights_of(first, "first");
    a.a.inv_freq = (float *)weights_of(p.freq, "inv_freq");
    a.a.dim = p.dim, a.a.head_dim = p.head_dim, a.a.mscale = p.mscale, a.a.interleaved = p.interleaved;
    a.a.q_beta = p.q_beta, a.a.q_every = p.q_every, a.a.q_ahead = p.q_ahead;
    a.a.q = {x, LQ_BF16, p.rows, p.q_heads * p.head_dim, (size_t)stride};
    if (p.k_heads) a.a.k = {x + p.q_heads * p.head_dim, LQ_BF16, p.rows, p.k_heads * p.head_dim, (size_t)stride};
    check(lq_rope_fits(&a.a), "dim %d of %d does not fit", p.dim, p.head_dim);
    answer r;
    r.got = emu::launch(dim3((unsigned)p.rows, lq_rope_parts(&a.a)), dim3(LQ_ROPE_THREADS), LQ_ROPE_SHARED, how,
                        [&] { lq_rope_bf16(&a); });
    r.x.assign(x, x + p.x.size());
    check(emu::zones_whole(), "wrote between the buffers");
    return r;
}

static double worst;

// Sine and cosine are rounded to f32 and times two factors; two products, a sum: 8 roundings of 2^-24; the factor of q
// is within another 2^-23. Then bf16.
static bool agrees(const problem &p, const answer &r, double *share) {
    const int stride = stride_of(p), half = p.dim / 2, near = p.interleaved ? 2 : 1, far = p.interleaved ? 1 : half;
    std::vector<uint16_t> want = p.x;
    bool right = true;
    for (int row = 0; row < p.real; row++)
        for (int h = 0; h < p.q_heads + p.k_heads; h++)
            for (int i = 0; i < half; i++) {
                const size_t at = (size_t)row * stride + h * p.head_dim + i * near;
                const int pos = p.pos[(size_t)row];
                const double angle = (double)((float)pos * p.freq[(size_t)i]);
                double by = p.mscale != 0 ? p.mscale : 1;
                if (h < p.q_heads && p.q_beta != 0) by *= 1 + p.q_beta * log(1.0 + (pos + p.q_ahead) / p.q_every);
                const double u = of_bf16(p.x[at]), v = of_bf16(p.x[at + far]), c = cos(angle) * by, s = sin(angle) * by;
                const double y[2] = {u * c - v * s, v * c + u * s};
                for (int j = 0; j < 2; j++) {
                    const size_t to = at + (size_t)(j * far);
                    const double bound = 0x1p-8 * fabs(y[j]) + 10 * 0x1p-24 * (fabs(u) + fabs(v)) * by;
                    const double error = fabs(of_bf16(r.x[to]) - y[j]);
                    *share = fmax(*share, error / bound);
                    right &= error <= bound;
                    want[to] = r.x[to];
                }
            }
    return right && want == r.x; // what is not turned, and rows of nobody, stay
}

static void check_rows(const problem &p) {
    emu::options how;
    const answer first = run(p, how);
    if (!check(first.got.findings.empty(), "dim %d: %zu findings", p.dim, first.got.findings.size())) first.got.print();
    check(agrees(p, first, &worst), "dim %d of %d: differs from f64", p.dim, p.head_dim);
    double moved = 0;
    for (const emu::counter &c : first.got.counters)
        if (!c.shared && c.bytes >= 8 && c.least) moved = fmax(moved, (double)c.moved / (double)c.least);
    if (p.dim % 32 == 0) // else a head ends within a sector
        check(moved <= 1 && first.got.worst(true) <= 1, "dim %d: %.2f passes, %.2f sectors of the least", p.dim,
              first.got.worst(true), moved);
    how.seed = random_bits();
    how.resident = 1;
    check(run(p, how).x == first.x, "dim %d: other bits by another schedule", p.dim);
    problem one = p;
    const size_t row = (size_t)below(p.real), stride = (size_t)stride_of(p);
    one.rows = one.real = 1;
    one.pos = {p.pos[row]};
    one.x.assign(p.x.begin() + (long)(row * stride), p.x.begin() + (long)((row + 1) * stride));
    const answer alone = run(one, how);
    check(!memcmp(alone.x.data(), &first.x[row * stride], stride * 2), "dim %d: a row has other bits alone", p.dim);
}

static void check_harm(problem p) {
    const answer right = run(p, emu::options());
    check(right.got.barriers.size() == 1, "%zu barriers", right.got.barriers.size());
    const struct { emu::harm wrong; emu::kind kind; } harms[] = {{emu::NO_BARRIER, emu::RACE},
                                                                 {emu::NO_PDL_WAIT, emu::BEFORE_WAIT}};
    for (const auto &h : harms) {
        bool found = false;
        emu::options how;
        how.wrong = h.wrong;
        how.at = right.got.barriers[0];
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(h.kind);
        check(found, "no finding \"%s\"", emu::kind_names[h.kind]);
    }
    double unused = 0;
    p.pos[1]++;
    check(!agrees(p, right, &unused), "a wrong position is not noticed");
}

int main() {
    check_rows(problem_of(5, 128, 128, 8, 2, false));
    check_rows(problem_of(3, 128, 128, 40, 8, true));
    check_rows(problem_of(4, 32, 80, 4, 4, false));
    check_rows(problem_of(3, 24, 64, 3, 1, false));
    check_rows(problem_of(3, 64, 192, 2, 0, true));
    check_rows(problem_of(2, 256, 256, 1, 1, false));
    problem p = problem_of(4, 64, 64, 6, 2, true);
    p.mscale = 1.25f, p.q_beta = 0.1f, p.q_every = 8192, p.q_ahead = 1;
    check_rows(p);
    p.interleaved = false;
    check_rows(p);
    if (emu::watched) check_harm(p);
    printf("worst error %.3f of its bound\n", worst);
    return closing();
}
