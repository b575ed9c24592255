// check_conv.cpp: the kernels of kernels/cuda/conv.cu on the emulated machine, against the definition in f32 on widened
// numbers (kernels/cpu/scan.c, in one loop), rounded once: bit for bit, outputs and states, by both kernels; then with
// one thing wrong, which must be found.
#include "kernels/cuda/conv.h"
#include "formats/elem.h"
#include "kernels/math.h"
#include "tests/cuda/check.h"

typedef void conv_kernel(const void *);
#define DECLARED(width) extern "C" conv_kernel lq_conv_walk##width, lq_conv_tile##width;
#define LISTED(width) {width, lq_conv_walk##width, lq_conv_tile##width},
LQ_CONV_KERNELS(DECLARED)
static const struct { int width; conv_kernel *walk, *tile; } kernels[] = {LQ_CONV_KERNELS(LISTED)};

// Rows of sequences, some of which have none; gaps between rows hold NaN.
struct problem {
    int cols, stride, width, rows;
    bool silu, in_place;
    std::vector<int32_t> first, slot;
    std::vector<uint16_t> x;
    std::vector<float> w, bias, state; // bias may be empty
};

struct answer {
    std::vector<uint16_t> y;
    std::vector<float> state;
    emu::result got;
};

static problem problem_of(int width, int cols, const std::vector<int> &lengths) {
    problem p = {};
    p.cols = cols, p.stride = cols + 16 * below(2), p.width = width;
    p.silu = below(2), p.in_place = below(2);
    const int seqs = (int)lengths.size(), turn = below(seqs);
    for (int s = 0; s < seqs; s++) {
        p.first.push_back(p.rows), p.slot.push_back((s + turn) % seqs);
        p.rows += lengths[(size_t)s];
    }
    p.first.push_back(p.rows);
    p.rows += below(4); // padding
    for (int i = 0; i < p.rows * p.stride; i++)
        p.x.push_back(i % p.stride < cols ? to_bf16(2 * uniform()) : 0x7fc1);
    for (int i = 0; i < cols * width; i++) p.w.push_back(uniform());
    for (int i = 0; i < cols && below(4) + i; i++) p.bias.push_back(uniform());
    if ((int)p.bias.size() < cols) p.bias.clear();
    for (int i = 0; i < seqs * (width - 1) * cols; i++) p.state.push_back(uniform());
    return p;
}

static answer run(const problem &p, bool few, const emu::options &how) {
    emu::reset();
    lq_conv_of a = {};
    const int seqs = (int)p.slot.size();
    a.a.x = {p.in_place ? emu::changed(p.x.data(), p.x.size() * 2, "x") : input_of(p.x, "x"), LQ_BF16, p.rows, p.cols,
             (size_t)p.stride};
    a.a.y = a.a.x;
    if (!p.in_place) a.a.y.p = emu::changed(p.x.data(), p.x.size() * 2, "y");
    a.a.w = (const float *)weights_of(p.w, "w"), a.a.width = p.width, a.a.silu = p.silu;
    if (!p.bias.empty()) a.a.bias = (const float *)weights_of(p.bias, "bias");
    a.a.state = (float *)emu::changed(p.state.data(), p.state.size() * 4, "state");
    a.rows.n = p.rows, a.rows.seqs = seqs;
    a.rows.first = (const int32_t *)input_of(p.first, "first"), a.rows.slot = (const int32_t *)input_of(p.slot, "slot");
    check(lq_conv_fits(&a.a), "width %d cols %d: does not fit", p.width, p.cols);
    answer r;
    for (const auto &k : kernels) {
        if (k.width != p.width) continue;
        r.got = emu::launch(dim3(lq_conv_blocks(p.cols, few), (unsigned)seqs + 1), dim3(LQ_CONV_THREADS),
                            few ? 0 : (size_t)LQ_CONV_SHARED(p.width), how, [&] { (few ? k.walk : k.tile)(&a); });
    }
    r.y.assign((uint16_t *)a.a.y.p, (uint16_t *)a.a.y.p + p.x.size());
    r.state.assign(a.a.state, a.a.state + p.state.size());
    check(emu::zones_whole(), "width %d: wrote between the buffers", p.width);
    return r;
}

// What is wanted of y, with its gaps, and of the states.
static answer wanted(const problem &p) {
    answer r;
    r.y = p.x, r.state = p.state;
    for (int row = p.first.back(); row < p.rows; row++)
        for (int c = 0; c < p.cols; c++) r.y[(size_t)(row * p.stride + c)] = 0;
    for (size_t s = 0; s < p.slot.size(); s++)
        for (int row = p.first[s]; row < p.first[s + 1]; row++)
            for (int c = 0; c < p.cols; c++) {
                float *state = &r.state[(size_t)(p.slot[s] * (p.width - 1) * p.cols + c)];
                const float now = of_bf16(p.x[(size_t)(row * p.stride + c)]);
                float sum = p.bias.empty() ? 0 : p.bias[(size_t)c];
                for (int t = 0; t < p.width; t++) {
                    const float before = t < p.width - 1 ? state[t * p.cols] : now;
                    sum += p.w[(size_t)(c * p.width + t)] * before;
                }
                for (int t = 0; t < p.width - 1; t++)
                    state[t * p.cols] = t + 2 < p.width ? state[(t + 1) * p.cols] : now;
                sum = p.silu ? sum / (1.0f + lq_expf(-sum)) : sum;
                r.y[(size_t)(row * p.stride + c)] = (uint16_t)lq_bf16_narrow(sum);
            }
    return r;
}

static bool equal(const answer &a, const answer &b) {
    return a.y == b.y && !memcmp(a.state.data(), b.state.data(), a.state.size() * sizeof(float));
}

static double worst_shared;

static void check_case(int width, int cols, const std::vector<int> &lengths) {
    const problem p = problem_of(width, cols, lengths);
    answer want = wanted(p);
    for (bool few : {true, false})
        for (int i = 0; i < 2; i++) {
            emu::options how;
            how.seed = random_bits(), how.resident = 1 + (unsigned)below(3);
            const answer r = run(p, few, how);
            const char *name = few ? "walk" : "tile";
            if (!check(r.got.findings.empty(), "%s %d cols %d: %zu findings", name, width, cols, r.got.findings.size()))
                r.got.print();
            check(equal(r, want), "%s %d cols %d rows %d%s: other bits", name, width, cols, p.rows,
                  p.in_place ? ", in place" : "");
            if (cols % 64 == 0) worst_shared = fmax(worst_shared, r.got.worst(true));
            // Vectors of f32 are read in halves, of which the second finds the sectors that the first brought.
            for (const emu::counter &c : r.got.counters)
                check(c.shared || c.bytes < 16 || cols % 64 || c.moved <= 2 * c.least,
                      "%s %d: %.2f sectors of the least", name, width, (double)c.moved / (double)c.least);
        }
    want.y[(size_t)(p.stride + 1) % want.y.size()] ^= 1;
    check(!equal(run(p, true, emu::options()), want), "a number that is another is not noticed");
}

static void check_harm() {
    problem p = problem_of(4, 64, {70, 2});
    p.in_place = true;
    emu::options how;
    const answer right = run(p, false, how);
    check(right.got.barriers.size() == 2, "tile: %zu barriers", right.got.barriers.size());
    for (void *barrier : right.got.barriers) {
        bool found = false;
        how.wrong = emu::NO_BARRIER, how.at = barrier;
        for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, false, how).got.has(emu::RACE);
        check(found, "tile: no race is found without a barrier");
    }
    how.wrong = emu::NO_PDL_WAIT;
    for (bool few : {true, false})
        check(run(p, few, how).got.has(emu::BEFORE_WAIT), "a kernel that does not wait is not found");
}

int main() {
    for (const auto &k : kernels) {
        for (int i = 0; i < 3; i++) check_case(k.width, 64, {5, 0, 33, 1, 70});
        check_case(k.width, 2048 + 64, {1, 2, 1});
        check_case(k.width, 8, {3, 32});
        check_case(k.width, 200, {64, 31, 0, 2});
    }
    if (emu::watched) {
        check(worst_shared <= 1, "%.2f passes of the least", worst_shared);
        check_harm();
    }
    return closing();
}
