// check_w4s.cpp: the kernels of kernels/cuda/w4s.cu on the emulated machine, against sums in f64 over the numbers that
// the codes mean; then each of them with one thing wrong, which must be found.
#include "kernels/cuda/w4s.h"
#include "tests/cuda/check.h"

typedef void w4s_kernel(const void *);
#define DECLARED(group) \
    extern "C" w4s_kernel lq_w4s_t8_##group##_bf16, lq_w4s_t8_##group##_bf16_zp, lq_w4s_t8_##group##_f16, lq_w4s_t8_##group##_f16_zp;
DECLARED(g32) DECLARED(g64) DECLARED(g128) DECLARED(row)

static const struct row { const char *name; w4s_kernel *kernel; int group; bool f16, zeros; } rows[] = {
#define ROW(kernel, group, f16, zeros) {#kernel, kernel, group, f16, zeros}
#define ROWS(name, group) \
    ROW(name##_bf16, group, false, false), ROW(name##_bf16_zp, group, false, true), ROW(name##_f16, group, true, false), ROW(name##_f16_zp, group, true, true)
    ROWS(lq_w4s_t8_g32, 32), ROWS(lq_w4s_t8_g64, 64), ROWS(lq_w4s_t8_g128, 128), ROWS(lq_w4s_t8_row, 0),
};

// A product: its numbers as they are, and packed as the kernel reads them.
struct problem {
    const row *of;
    int m, n, k, cut, group, groups, stripes, blocks;
    bool bias;
    std::vector<uint8_t> q, z;     // [n][k], [n][groups]
    std::vector<uint16_t> s, x, b; // [n][groups], [m][x_stride], [n]
    std::vector<uint32_t> w, zeros;
    std::vector<uint16_t> scales;
    int x_stride, y_stride;
};

static double scale_at(const problem &p, int n, int g) {
    const uint16_t bits = p.s[(size_t)n * p.groups + g];
    if (!p.of->f16) return of_bf16(bits);
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

// Rows behind n: scale 0. Columns behind k: the zero point of the last group.
static void pack(problem &p) {
    p.w.assign((size_t)p.stripes * p.blocks * 512, 0);
    p.scales.assign((size_t)p.groups * p.stripes * 64, 0);
    p.zeros.assign((size_t)p.groups * p.stripes * 8, 0);
    for (int n = 0; n < p.stripes * 64; n++) {
        const int row = n % 16, g = row % 8, high = row / 8, stripe = n / 64, rb = n % 64 / 16;
        for (int i = 0; i < p.groups; i++) {
            const size_t at = (size_t)i * p.stripes + stripe;
            const uint32_t z = n < p.n ? p.z[(size_t)n * p.groups + i] : 8;
            if (n < p.n) p.scales[at * 64 + rb * 16 + g * 2 + high] = p.s[(size_t)n * p.groups + i];
            p.zeros[at * 8 + g] |= z << 4 * (2 * rb + high);
        }
        for (int k = 0; k < p.blocks * 64; k++) {
            const uint32_t z = n < p.n ? p.z[(size_t)n * p.groups + p.groups - 1] : 8,
                           q = n < p.n && k < p.k ? p.q[(size_t)n * p.k + k] : z;
            const int c = k % 16, lane = g * 4 + c % 8 / 2, bit = 4 * (high + 2 * (c / 8)) + 16 * (c % 2);
            p.w[((((size_t)stripe * p.blocks + k / 64) * 4 + rb) * 32 + lane) * 4 + k % 64 / 16] |= q << bit;
        }
    }
}

static problem problem_of(const row *of, int m, int n, int k, int cut, bool bias) {
    problem p = {};
    p.of = of;
    p.m = m, p.n = n, p.k = k, p.cut = cut, p.bias = bias;
    p.stripes = (n + 63) / 64, p.blocks = (k + 63) / 64;
    p.group = of->group ? of->group : k;
    p.groups = (k + p.group - 1) / p.group;
    const bool odd = m % 4 == 3; // rows that do not begin at a sector
    p.x_stride = odd ? (k + 7) / 8 * 8 : (k + 15) / 16 * 16;
    p.y_stride = odd ? (n + 1) / 2 * 2 : (n + 15) / 16 * 16;
    for (int i = 0; i < n * k; i++) p.q.push_back((uint8_t)below(16));
    for (int i = 0; i < n * p.groups; i++) {
        p.z.push_back(!of->zeros ? 8 : i % 3 ? (uint8_t)below(16) : i % 2 ? 15 : 0);
        const float size = 0.01f + 0.01f * fabsf(uniform());
        const uint16_t f16 = (uint16_t)(0x2000 + below(0x400)); // 2^-7 to 2^-6
        p.s.push_back(i % 17 == 5 ? 0 : of->f16 ? f16 : to_bf16(size));
    }
    for (int i = 0; i < m * p.x_stride; i++)
        p.x.push_back(i % p.x_stride < k ? to_bf16(uniform()) : 0x7fc0); // NaN behind the row
    for (int i = 0; i < n; i++) p.b.push_back(to_bf16(uniform()));
    return p;
}

struct answer {
    std::vector<uint16_t> y;
    emu::result got;
};

static answer run(problem &p, const emu::options &how) {
    emu::reset();
    pack(p);
    lq_w4s_args a = {};
    const int cuts = lq_w4s_cuts(p.k, p.cut);
    a.w = weights_of(p.w, "w");
    a.scale = weights_of(p.scales, "scale");
    a.zero = p.of->zeros ? (const uint32_t *)weights_of(p.zeros, "zero") : NULL;
    a.bias = p.bias ? (const uint16_t *)weights_of(p.b, "bias") : NULL;
    a.x = (const uint16_t *)emu::input(p.x.data(), p.x.size() * 2, "x");
    a.y = (uint16_t *)emu::output((size_t)p.m * p.y_stride * 2, "y");
    a.x_stride = p.x_stride, a.y_stride = p.y_stride;
    a.m = p.m, a.n = p.n, a.k = p.k, a.cut = p.cut;
    if (cuts > 1) {
        a.parts = (float *)emu::output((size_t)cuts * p.stripes * LQ_W4S_TOKENS * 64 * 4, "parts");
        a.arrived = (uint32_t *)emu::state((size_t)p.stripes * 4, "arrived");
    }
    answer r;
    r.got = emu::launch(dim3((unsigned)p.stripes, (unsigned)cuts), dim3(LQ_W4S_THREADS), LQ_W4S_SHARED, how,
                        [&] { p.of->kernel(&a); });
    r.y.assign(a.y, a.y + (size_t)p.m * p.y_stride);
    if (!emu::zones_whole()) check(false, "%s: wrote between the buffers", p.of->name);
    return r;
}

// Of one output: the sum in f64, and how far it may be off: half a unit of bf16, and for each
// step of a product of 16 columns, group and cut 2^-22 of the sum of absolute terms.
static bool near(const problem &p, int m, int n, uint16_t y, double *of_bound) {
    double sum = p.bias ? of_bf16(p.b[(size_t)n]) : 0, size = fabs(sum);
    for (int k = 0; k < p.k; k++) {
        const int g = k / p.group;
        const double t = scale_at(p, n, g) * (p.q[(size_t)n * p.k + k] - p.z[(size_t)n * p.groups + g]) *
                         of_bf16(p.x[(size_t)m * p.x_stride + k]);
        sum += t;
        size += fabs(t);
    }
    const double error = fabs(of_bf16(y) - sum);
    const double bound = fabs(sum) / 256 + (p.k / 16 + p.groups + lq_w4s_cuts(p.k, p.cut) + 8) * 0x1p-22 * size +
                         0x1p-130;
    *of_bound = fmax(*of_bound, error / bound);
    return error <= bound;
}

static double worst_of_bound, worst_shared, worst_global;

static bool agrees(const problem &p, const answer &r, double *of_bound) {
    for (int m = 0; m < p.m; m++)
        for (int n = 0; n < p.n; n++)
            if (!near(p, m, n, r.y[(size_t)m * p.y_stride + n], of_bound)) return false;
    for (int m = 0; m < p.m; m++)
        for (int n = p.n; n < p.y_stride; n++)
            if (r.y[(size_t)m * p.y_stride + n] != 0xffff) return false;
    return true;
}

static void clean(const problem &p, const emu::result &got) {
    if (!check(got.findings.empty(), "%s m %d n %d k %d cut %d: %zu findings", p.of->name, p.m, p.n, p.k, p.cut,
               got.findings.size()))
        got.print();
    worst_shared = fmax(worst_shared, got.worst(true));
    if (p.x_stride % 16 == 0 && p.y_stride % 16 == 0) worst_global = fmax(worst_global, got.worst(false));
}

static void check_product(const row *of, int m, int n, int k, int cut, bool bias) {
    problem p = problem_of(of, m, n, k, cut, bias);
    emu::options how;
    how.resident = 1;
    const answer first = run(p, how);
    clean(p, first.got);
    check(agrees(p, first, &worst_of_bound), "%s m %d n %d k %d cut %d: differs from the sums in f64", of->name, m, n, k, cut);
    how.seed = random_bits();
    how.resident = 4;
    const answer again = run(p, how);
    clean(p, again.got);
    check(again.y == first.y, "%s m %d n %d k %d cut %d: other bits by another schedule", of->name, m, n, k, cut);
    // A row alone.
    const int row = below(m);
    problem alone = p;
    alone.m = 1;
    alone.x.assign(p.x.begin() + row * p.x_stride, p.x.begin() + (row + 1) * p.x_stride);
    const answer one = run(alone, how);
    clean(alone, one.got);
    check(!memcmp(one.y.data(), &first.y[(size_t)row * p.y_stride], (size_t)n * 2), "%s m %d n %d k %d cut %d: row %d has other bits alone", of->name, m, n, k,
          cut, row);
}

// A scale that is no number spoils the outputs of its row and no other; a token that is none its own.
static void check_spoilt(const row *of) {
    problem p = problem_of(of, 3, 70, 200, 1024, false);
    for (int g = 0; g < p.groups; g++) {
        p.s[(size_t)9 * p.groups + g] = of->f16 ? 0x7c00 : 0x7f80;
        p.s[(size_t)68 * p.groups + g] = of->f16 ? 0x7e00 : 0x7fc0;
    }
    p.x[(size_t)p.x_stride + 7] = 0x7fc0;
    const answer r = run(p, emu::options());
    clean(p, r.got);
    bool held = true;
    double unused = 0;
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < p.n; n++) {
            const uint16_t y = r.y[(size_t)m * p.y_stride + n];
            if (m == 1 || n == 9 || n == 68) held &= (y & 0x7f80) == 0x7f80;
            else held &= near(p, m, n, y, &unused);
        }
    check(held, "%s: bad numbers left their row", of->name);
}

// --- what is done wrong must be found, by what looks for it ---

static void finds(problem &p, emu::harm wrong, void *at, emu::kind what, const char *name) {
    bool found = false;
    emu::options how;
    how.wrong = wrong;
    how.at = at;
    for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, how).got.has(what);
    check(found, "%s: %s: no finding \"%s\"", p.of->name, name, emu::kind_names[what]);
}

// The reference must notice a wrong nibble, scale or zero point: only results see them.
static void notices(problem p, void (*spoil)(problem &), const char *name) {
    const problem right = p;
    spoil(p);
    double unused = 0;
    const answer r = run(p, emu::options());
    check(!agrees(right, r, &unused), "%s: %s is not noticed", right.of->name, name);
}

static void check_harm(const row *of) {
    problem p = problem_of(of, 5, 64, 1280, 256, false); // five cuts of one step
    const emu::result got = run(p, emu::options()).got;
    for (void *at : got.barriers) {
        bool found = false;
        for (int k : {256, 1280}) { // the ring's barriers matter where it goes round
            problem some = problem_of(of, 5, 64, 1280, k, false);
            emu::options how;
            how.wrong = emu::NO_BARRIER;
            how.at = at;
            const emu::result r = run(some, how).got;
            found |= r.has(emu::RACE) || r.has(emu::BLOCK_RACE) || r.has(emu::UNINITIALISED);
        }
        check(found, "%s: a barrier less: no race found", of->name);
    }
    check(got.barriers.size() == 5 && got.fences.size() == 2, "%s: %zu barriers and %zu fences", of->name,
          got.barriers.size(), got.fences.size());
    for (void *at : got.fences) finds(p, emu::NO_BARRIER, at, emu::BLOCK_RACE, "a fence less");
    finds(p, emu::WEAK_WAIT, NULL, emu::IN_FLIGHT, "a group is not waited for");
    finds(p, emu::LOST_LANE, NULL, emu::DIVERGED, "a lane less");
    finds(p, emu::NO_WRAP, NULL, emu::STATE_LEFT, "a counter that is not set back");
    finds(p, emu::NO_PDL_WAIT, NULL, emu::BEFORE_WAIT, "no wait for the kernel before");
    problem short_row = problem_of(of, 5, 64, 100, 1024, false);
    finds(short_row, emu::WHOLE_COPIES, NULL, emu::OUT_OF_BOUNDS, "copies behind the matrix");
    notices(p, [](problem &q) { q.q[300] ^= 8; }, "a wrong code");
    notices(p, [](problem &q) { q.s[7] = (uint16_t)(q.s[7] + 0x80); }, "a wrong scale");
    if (of->zeros) notices(p, [](problem &q) { q.z[7] ^= 8; }, "a wrong zero point");
}

// Cuts are whole trips of the kernel, cover k, and are no more than two blocks for each multiprocessor want.
static void check_cuts() {
    for (int n = 1; n < 40000; n = n * 3 / 2 + 1)
        for (int k = 1; k < 60000; k = k * 3 / 2 + 7)
            for (int sms : {108, 132}) {
                const int cut = lq_w4s_cut(n, k, sms), cuts = lq_w4s_cuts(k, cut), stripes = lq_w4s_stripes(n);
                bool right = cut % 1024 == 0 && cuts * cut >= k && (cuts - 1) * cut < k;
                right &= cuts == 1 || (cuts - 1) * stripes < 2 * sms;
                check(right, "n %d k %d: %d cuts of %d", n, k, cuts, cut);
            }
}

int main(int argc, char **argv) {
    const int shapes[][4] = {{1, 64, 64, 1024},   {2, 1, 1, 1024},    {3, 65, 96, 1024},   {8, 63, 200, 1024},
                             {5, 128, 256, 1024}, {7, 30, 1100, 256}, {4, 130, 1040, 512}, {6, 64, 1536, 1024}};
    check_cuts();
    for (const row &r : rows) {
        if (argc > 1 && !strstr(r.name, argv[1])) continue;
        // Kernels of the two types of scale share all but its conversion, and the shapes.
        int shape = r.f16;
        for (const auto &s : shapes)
            if (shape++ % 2) check_product(&r, s[0], s[1], s[2], s[3], below(2));
        check_spoilt(&r);
        if (!r.f16 && emu::watched) check_harm(&r);
    }
    check(worst_shared <= 1.0, "a request of shared memory takes %.2f times the passes it needs", worst_shared);
    check(worst_global <= 1.0, "a request of global memory takes %.2f times the sectors it needs", worst_global);
    printf("worst error %.3f of its bound; %.2f passes, %.2f sectors of the least\n", worst_of_bound, worst_shared, worst_global);
    return closing();
}
