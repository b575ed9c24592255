// check_scan.cpp: the kernels of kernels/cuda/scan.cu on the emulated machine, against the recurrence in f64 of the
// same numbers; whole and in pieces, alone and beside others, by other schedules: the same bits; then with one thing
// wrong, which must be found.
#include "kernels/cuda/scan.h"
#include "tests/cuda/check.h"

typedef void scan_kernel(const void *);
#define DECLARED(name, dk, delta, blocks) extern "C" scan_kernel name;
#define LISTED(name, dk, delta, blocks) {#name, name, dk, delta},
LQ_SCAN_KERNELS(DECLARED)
extern "C" scan_kernel lq_scan_one;
static const struct row { const char *name; scan_kernel *kernel; int dk; bool delta; } kernels[] = {
    LQ_SCAN_KERNELS(LISTED)};
static int runs[sizeof kernels / sizeof *kernels];

struct form { int heads, groups, dk, dv; bool per_k, beta, delta; };

// Numbers as rows hold them; gaps between rows are NaN.
struct matrix {
    int cols, stride;
    std::vector<uint16_t> half;
    std::vector<float> wide;
};

struct problem {
    form f;
    int rows;
    std::vector<int32_t> first, slot;
    matrix q, k, v, decay, beta;
    std::vector<float> state;
};

struct answer {
    std::vector<uint16_t> y; // [rows][heads * dv]
    std::vector<float> state;
    emu::result got;
};

static matrix matrix_of(int rows, int cols, bool wide, float from, float to) {
    matrix m = {cols, cols + (wide ? 8 : 16) * below(2), {}, {}};
    for (int i = 0; i < rows * m.stride; i++) {
        const float x = i % m.stride < cols ? from + (to - from) * (0.5f + 0.5f * uniform()) : NAN;
        if (wide) m.wide.push_back(x);
        else m.half.push_back(i % m.stride < cols ? to_bf16(x) : 0x7fc1);
    }
    return m;
}

static problem problem_of(const form &f, const std::vector<int> &lengths) {
    problem p = {};
    p.f = f;
    const int seqs = (int)lengths.size(), turn = below(seqs);
    for (int s = 0; s < seqs; s++) {
        p.first.push_back(p.rows), p.slot.push_back((s + turn) % seqs);
        p.rows += lengths[(size_t)s];
    }
    p.first.push_back(p.rows);
    p.rows += below(3); // padding
    const float size = 1 / sqrtf((float)f.dk);
    p.q = matrix_of(p.rows, f.groups * f.dk, false, -1, 1);
    p.k = matrix_of(p.rows, f.groups * f.dk, false, -size, size);
    p.v = matrix_of(p.rows, f.heads * f.dv, false, -1, 1);
    p.decay = matrix_of(p.rows, f.heads * (f.per_k ? f.dk : 1), true, -1, 0);
    p.beta = matrix_of(p.rows, f.heads, true, 0, 1);
    for (int i = 0; i < seqs * f.heads * f.dk * f.dv; i++) p.state.push_back(uniform());
    return p;
}

static lq_mat put(const matrix &m, int rows, const char *name) {
    const bool wide = !m.wide.empty();
    return {wide ? input_of(m.wide, name) : input_of(m.half, name), wide ? LQ_F32 : LQ_BF16, rows, m.cols,
            (size_t)m.stride};
}

static answer run(const problem &p, const emu::options &how) {
    emu::reset();
    lq_scan_of a = {};
    const form &f = p.f;
    const int seqs = (int)p.slot.size(), cols = f.heads * f.dv, stride = (cols + 7) / 8 * 8;
    a.a.heads = f.heads, a.a.groups = f.groups, a.a.dk = f.dk, a.a.dv = f.dv;
    a.a.q = put(p.q, p.rows, "q"), a.a.k = put(p.k, p.rows, "k"), a.a.v = put(p.v, p.rows, "v");
    a.a.decay = put(p.decay, p.rows, "decay"), a.a.decay_per_k = f.per_k, a.a.delta = f.delta;
    if (f.beta) a.a.beta = put(p.beta, p.rows, "beta");
    a.a.y = {emu::output((size_t)(p.rows * stride) * 2, "y"), LQ_BF16, p.rows, cols, (size_t)stride};
    a.a.state = (float *)emu::changed(p.state.data(), p.state.size() * 4, "state");
    a.rows.n = p.rows, a.rows.seqs = seqs;
    a.rows.first = (const int32_t *)input_of(p.first, "first"), a.rows.slot = (const int32_t *)input_of(p.slot, "slot");
    const bool one = f.dv == 1;
    check(one ? lq_scan_one_fits(&a.a) : lq_scan_fits(&a.a), "dk %d dv %d: does not fit", f.dk, f.dv);
    scan_kernel *kernel = one ? lq_scan_one : NULL;
    size_t shared = 0;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && !kernel; i++)
        if (kernels[i].dk >= f.dk && kernels[i].delta == f.delta)
            kernel = kernels[i].kernel, shared = (size_t)LQ_SCAN_SHARED(kernels[i].dk), runs[i]++;
    answer r;
    r.got = emu::launch(dim3(lq_scan_blocks(&a.a), (unsigned)seqs + 1), dim3(LQ_SCAN_THREADS), shared, how,
                        [&] { kernel(&a); });
    for (int i = 0; i < p.rows; i++)
        for (int c = 0; c < cols; c++) r.y.push_back(((uint16_t *)a.a.y.p)[i * stride + c]);
    r.state.assign(a.a.state, a.a.state + p.state.size());
    check(emu::zones_whole(), "dk %d dv %d: wrote between the buffers", f.dk, f.dv);
    return r;
}

static float half(const matrix &m, int row, int col) { return of_bf16(m.half[(size_t)(row * m.stride + col)]); }
static float wide(const matrix &m, int row, int col) { return m.wide[(size_t)(row * m.stride + col)]; }

static double worst;

static bool near(double got, double want, double bound) {
    worst = fmax(worst, fabs(got - want) / bound);
    return fabs(got - want) <= bound;
}

// A column of a head's state in f64, row by row, and the same of magnitudes. A row multiplies a number by a factor,
// which is within 2 units of the last place, adds to it once, and with `delta` takes off a sum of dk terms, so that
// after `done` rows it is off by done * (dk + 8) roundings of 2^-24 of the magnitudes; y is a sum of dk more, rounded
// to bf16.
static bool column_agrees(const problem &p, const answer &r, int seq, int head, int c) {
    const form &f = p.f;
    const size_t base = ((size_t)(p.slot[(size_t)seq] * f.heads + head) * f.dk) * f.dv + c;
    const int group = head / (f.heads / f.groups) * f.dk;
    std::vector<double> s, size;
    const double e = 0x1p-24;
    bool right = true;
    int done = 0;
    for (int i = 0; i < f.dk; i++) s.push_back(p.state[base + (size_t)(i * f.dv)]), size.push_back(fabs(s[(size_t)i]));
    for (int row = p.first[(size_t)seq]; row < p.first[(size_t)seq + 1]; row++) {
        double u = 0, u_size = 0, y = 0, y_size = 0;
        for (int i = 0; i < f.dk; i++) {
            const double a = exp((double)wide(p.decay, row, f.per_k ? head * f.dk + i : head));
            const double k = half(p.k, row, group + i);
            s[(size_t)i] *= a, size[(size_t)i] *= a;
            u += k * s[(size_t)i], u_size += fabs(k) * size[(size_t)i];
        }
        const double v = half(p.v, row, head * f.dv + c), beta = f.beta ? wide(p.beta, row, head) : 1;
        u = beta * (v - (f.delta ? u : 0));
        u_size = beta * (fabs(v) + (f.delta ? u_size : 0));
        for (int i = 0; i < f.dk; i++) {
            const double k = half(p.k, row, group + i), q = half(p.q, row, group + i);
            s[(size_t)i] += k * u, size[(size_t)i] += fabs(k) * u_size;
            y += q * s[(size_t)i], y_size += fabs(q) * size[(size_t)i];
        }
        const double off = e * (++done * (f.dk + 8) + f.dk + 2) * y_size;
        const double got = of_bf16(r.y[(size_t)(row * f.heads * f.dv + head * f.dv + c)]);
        right &= near(got, y, off + 0x1p-8 * (fabs(y) + off) + 0x1p-134);
    }
    for (int i = 0; i < f.dk; i++)
        right &= near(r.state[base + (size_t)(i * f.dv)], s[(size_t)i],
                      e * (done * (f.dk + 8) + 2) * size[(size_t)i] + 0x1p-149);
    return right;
}

static bool agrees(const problem &p, const answer &r) {
    bool right = true;
    for (int s = 0; s < (int)p.slot.size(); s++)
        for (int h = 0; h < p.f.heads; h++)
            for (int c = 0; c < p.f.dv; c++) right &= column_agrees(p, r, s, h, c);
    for (size_t i = (size_t)(p.first.back() * p.f.heads * p.f.dv); i < r.y.size(); i++) right &= r.y[i] == 0;
    return right;
}

static bool equal(const answer &a, const answer &b) {
    return a.y == b.y && !memcmp(a.state.data(), b.state.data(), a.state.size() * sizeof(float));
}

// Rows from .. of the first sequence alone, whose state is as `state` has it.
static problem piece_of(const problem &p, int from, int count, const std::vector<float> &state) {
    problem part = p;
    part.first = {0, count}, part.slot = {p.slot[0]}, part.rows = count, part.state = state;
    for (matrix *m : {&part.q, &part.k, &part.v, &part.decay, &part.beta}) {
        const auto begin = from * m->stride, end = (from + count) * m->stride;
        if (m->wide.empty()) m->half = std::vector<uint16_t>(m->half.begin() + begin, m->half.begin() + end);
        else m->wide = std::vector<float>(m->wide.begin() + begin, m->wide.begin() + end);
    }
    return part;
}

static void check_form(const form &f, const std::vector<int> &lengths) {
    const problem p = problem_of(f, lengths);
    emu::options how;
    const answer first = run(p, how);
    if (!check(first.got.findings.empty(), "dk %d dv %d: %zu findings", f.dk, f.dv, first.got.findings.size()))
        first.got.print();
    check(agrees(p, first), "heads %d dk %d dv %d%s%s%s: differs from f64", f.heads, f.dk, f.dv,
          f.per_k ? " per k" : "", f.beta ? " beta" : "", f.delta ? " delta" : "");
    how.seed = random_bits(), how.resident = 1;
    check(equal(run(p, how), first), "dk %d dv %d: other bits by another schedule", f.dk, f.dv);
    // Outputs and state are written in whole sectors; a request of the state has 4 rows of 8 columns.
    for (const emu::counter &c : first.got.counters)
        if (!c.shared && c.write && f.dv % 16 == 0)
            check(c.moved <= c.least, "dk %d dv %d: %.2f sectors of the least", f.dk, f.dv,
                  (double)c.moved / (double)c.least);
    answer pieces;
    pieces.state = p.state;
    for (int from = 0, count; from < lengths[0]; from += count) {
        count = 1 + below(11);
        if (from + count > lengths[0]) count = lengths[0] - from;
        const answer r = run(piece_of(p, from, count, pieces.state), how);
        pieces.y.insert(pieces.y.end(), r.y.begin(), r.y.end()), pieces.state = r.state;
    }
    const size_t cells = (size_t)(f.heads * f.dk * f.dv), at = (size_t)p.slot[0] * cells;
    check(!memcmp(pieces.y.data(), first.y.data(), pieces.y.size() * 2) &&
          !memcmp(&pieces.state[at], &first.state[at], cells * 4), "dk %d dv %d: other bits in pieces", f.dk, f.dv);
    const double honest = worst;
    answer other = first;
    other.y[other.y.size() / 3] ^= 8;
    other.state[at] += 0.01f;
    check(!agrees(p, other), "dk %d dv %d: a number that is another is not noticed", f.dk, f.dv);
    worst = honest;
}

static void check_harm() {
    const problem p = problem_of({1, 1, 64, 64, true, true, true}, {19});
    emu::options how;
    const answer right = run(p, how);
    check(right.got.barriers.size() == 2, "%zu barriers", right.got.barriers.size());
    for (void *barrier : right.got.barriers) {
        bool found = false;
        how.wrong = emu::NO_BARRIER, how.at = barrier;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(emu::RACE);
        check(found, "no race is found without a barrier");
    }
    how.wrong = emu::NO_PDL_WAIT;
    check(run(p, how).got.has(emu::BEFORE_WAIT), "a kernel that does not wait is not found");
    how.wrong = emu::LOST_LANE;
    const answer lost = run(p, how);
    check(lost.got.has(emu::DIVERGED) || lost.got.has(emu::DEADLOCK), "a lane that is lost is not found");
}

int main() {
    for (bool delta : {false, true})
        for (bool per_k : {false, true}) {
            check_form({4, 2, 16, 32, per_k, true, delta}, {18, 0, 5});
            check_form({2, 1, 64, 64, per_k, !per_k, delta}, {9, 1});
            check_form({2, 2, 80, 72, per_k, true, delta}, {8, 3});
            check_form({1, 1, 128, 128, per_k, false, delta}, {17});
            check_form({1, 1, 256, 64, per_k, true, delta}, {10, 1});
            check_form({300, 1, 16, 1, per_k, true, delta}, {7, 0, 1});
            check_form({6, 2, 8, 1, per_k, false, delta}, {3, 12});
        }
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) check(runs[i] > 0, "%s was not run", kernels[i].name);
    if (emu::watched) check_harm();
    printf("worst error %.3f of its bound\n", worst);
    return closing();
}
