// check_route.cpp: the kernels of kernels/cuda/route.cu on the emulated machine: which experts rows go to, against
// kernels/route.h bit for bit; slots sorted by expert, against std::stable_sort; then with one thing wrong.
#include "kernels/cuda/route.h"
#include "kernels/route.h"
#include "tests/cuda/check.h"
#include <algorithm>

typedef void route_kernel(const void *);
extern "C" route_kernel lq_route_rows, lq_route_sort;

struct problem {
    lq_route_args a;
    std::vector<float> x, bias;
};
struct answer {
    std::vector<int32_t> expert;
    std::vector<float> weight;
    emu::result got;
};

// look: random, of a few values (ties, -0), or with numbers that are none.
static problem problem_of(int rows, int experts, lq_route_kind kind, int look) {
    problem p = {};
    p.a.kind = kind;
    p.a.logits = {NULL, LQ_F32, rows, experts, (size_t)experts + (size_t)below(3)};
    for (size_t i = 0; i < (size_t)rows * p.a.logits.stride; i++) {
        const bool odd = look == 2 && below(5) == 0;
        p.x.push_back(look ? (float)(below(7) - 3) * (below(2) ? 1 : -1) : 4 * uniform() + 1);
        if (odd) p.x.back() = below(3) ? NAN : -INFINITY;
    }
    if (below(2) && kind != LQ_ROUTE_MIXER)
        for (int e = 0; e < experts; e++) p.bias.push_back(uniform());
    p.a.top_k = kind == LQ_ROUTE_MIXER ? 2 : 1 + below(experts < 8 ? experts : 8);
    if (below(2) && experts % 8 == 0 && kind != LQ_ROUTE_MIXER) {
        p.a.groups = 4, p.a.top_groups = 1 + below(3);
        if (p.a.top_k > experts / 4) p.a.top_k = experts / 4;
    }
    p.a.renorm = below(2), p.a.scale = below(2) ? 2.5f : 0, p.a.jitter = 0.01f + 0.3f * (float)below(2);
    return p;
}

static answer run(problem p, const emu::options &how) {
    emu::reset();
    const size_t n = (size_t)p.a.logits.rows * (size_t)p.a.top_k;
    answer r;
    lq_route_of a = {p.a};
    a.a.logits.p = input_of(p.x, "logits");
    if (!p.bias.empty()) a.a.bias = (const float *)weights_of(p.bias, "bias");
    a.a.expert = (int32_t *)emu::output(n * 4, "expert");
    a.a.weight = (float *)emu::output(n * 4, "weight");
    r.got = emu::launch(dim3(lq_route_blocks(&p.a)), dim3(LQ_ROUTE_THREADS), lq_route_shared(&p.a), how,
                        [&] { lq_route_rows(&a); });
    r.expert.assign(a.a.expert, a.a.expert + n);
    r.weight.assign(a.a.weight, a.a.weight + n);
    check(emu::zones_whole(), "wrote between the buffers");
    return r;
}

static bool same_weight(float a, float b) { return (a != a && b != b) || !memcmp(&a, &b, 4); }

static void check_rows(int rows, int experts, lq_route_kind kind, int look) {
    const problem p = problem_of(rows, experts, kind, look);
    const size_t n = (size_t)rows * (size_t)p.a.top_k;
    std::vector<float> x = p.x, weight(n);
    std::vector<int32_t> expert(n);
    lq_route_args a = p.a;
    a.logits.p = x.data(), a.bias = p.bias.empty() ? NULL : p.bias.data();
    a.expert = expert.data(), a.weight = weight.data();
    for (int i = 0; i < rows; i++) lq_route_row(&a, i);
    emu::options how;
    const answer first = run(p, how);
    const size_t found = first.got.findings.size();
    if (!check(!found, "%d experts kind %d: %zu findings", experts, kind, found)) first.got.print();
    check(first.expert == expert, "%d experts kind %d look %d groups %d: other experts", experts, kind, look, a.groups);
    bool equal = true;
    for (size_t i = 0; i < n; i++) equal &= same_weight(first.weight[i], weight[i]);
    check(equal, "%d experts kind %d look %d groups %d: other weights", experts, kind, look, a.groups);
    if (kind == LQ_ROUTE_MIXER) // else lanes look at groups, or at what was chosen
        check(first.got.worst(true) <= 1, "%d experts: %.2f passes over the banks", experts, first.got.worst(true));
    how.seed = random_bits(), how.resident = 1;
    const answer again = run(p, how);
    check(again.expert == first.expert && !memcmp(again.weight.data(), first.weight.data(), n * 4),
          "%d experts: others by another schedule", experts);
}

static emu::result sort_run(const std::vector<int32_t> &expert, int experts, const emu::options &how,
                            std::vector<int32_t> *order, std::vector<int32_t> *start) {
    emu::reset();
    lq_sort_of a = {(const int32_t *)input_of(expert, "expert"), (int32_t *)emu::output(expert.size() * 4, "order"),
                    (int32_t *)emu::output((size_t)experts * 4 + 4, "start"), (int)expert.size(), experts};
    const emu::result got = emu::launch(dim3(lq_sort_blocks(experts)), dim3(LQ_SORT_THREADS), 0, how,
                                        [&] { lq_route_sort(&a); });
    order->assign(a.order, a.order + expert.size());
    start->assign(a.start, a.start + experts + 1);
    check(emu::zones_whole(), "sort wrote between the buffers");
    return got;
}

static void check_sort(int slots, int experts, int used) {
    std::vector<int32_t> expert, order, start, want, again;
    for (int i = 0; i < slots; i++) {
        expert.push_back(below(used) * (experts / used));
        want.push_back(i);
    }
    std::stable_sort(want.begin(), want.end(), [&](int a, int b) { return expert[(size_t)a] < expert[(size_t)b]; });
    emu::options how;
    const emu::result got = sort_run(expert, experts, how, &order, &start);
    if (!check(got.findings.empty(), "sort of %d: %zu findings", slots, got.findings.size())) got.print();
    check(order == want, "%d slots of %d experts: another order", slots, experts);
    bool borders = start[0] == 0 && start[(size_t)experts] == slots;
    for (int e = 0; e < experts; e++)
        for (int i = start[(size_t)e]; borders && i < start[(size_t)e + 1]; i++)
            borders = expert[(size_t)order[(size_t)i]] == e;
    check(borders, "%d slots of %d experts: borders", slots, experts);
    how.seed = 77, how.resident = 1;
    sort_run(expert, experts, how, &again, &start);
    check(again == order, "%d slots: another order by another schedule", slots);
}

static void check_harm() {
    const problem p = problem_of(2, 40, LQ_ROUTE_SOFTMAX, 0);
    emu::options how;
    how.wrong = emu::NO_PDL_WAIT;
    check(run(p, how).got.has(emu::BEFORE_WAIT), "route does not wait");
    how.wrong = emu::LOST_LANE;
    check(run(p, how).got.has(emu::DIVERGED), "a lane that is lost is not found");
    std::vector<int32_t> order, start;
    how.wrong = emu::NO_PDL_WAIT;
    check(sort_run({1, 0, 1}, 2, how, &order, &start).has(emu::BEFORE_WAIT), "sort does not wait");
}

int main() {
    for (int kind = LQ_ROUTE_SOFTMAX; kind <= LQ_ROUTE_MIXER; kind++)
        for (int look = 0; look < (kind == LQ_ROUTE_MIXER ? 2 : 3); look++)
            for (int experts : {4, 8, 64, 129, 256}) check_rows(3, experts, (lq_route_kind)kind, look);
    check_rows(1, LQ_EXPERTS, LQ_ROUTE_SIGMOID, 0);
    check_sort(1, 4, 2);
    check_sort(333, 60, 60);
    check_sort(1000, 256, 4);
    check_sort(64, 17, 1);
    check_sort(500, LQ_EXPERTS, 256);
    if (emu::watched) check_harm();
    return closing();
}
