// check_w4l.cpp: the kernels of kernels/cuda/w4l.cu on the emulated machine: against sums in f64 (products.h), and bit
// for bit against what w4s makes of the same: here the question is the order of sums alone, on a GPU whether an HGMMA
// rounds as an HMMA does. Then with one thing wrong, which must be found.
#include "kernels/cuda/w4l_pick.h"
#include "tests/cuda/products.h"
#include <algorithm>

static int launches[LQ_W4L_COUNT];

static const lq_w4l_kernel *kernel_of(const lq_w4s_form &f) {
    for (const lq_w4l_kernel &k : lq_w4l_kernels)
        if (k.kind == f.kind && k.bits == f.bits && k.group == f.group) return &k;
    return NULL;
}

static answer run_large(problem &p, const emu::options &how) {
    const lq_w4l_kernel *kernel = kernel_of(p.of[0].form);
    answer r;
    if (!check(kernel, "%s: no kernel", p.of[0].of->name)) return r;
    launches[kernel - lq_w4l_kernels]++;
    void (*entry)(const void *) = (void (*)(const void *))(void *)kernel->entry;
    lq_w4s_args a = arguments_of(p);
    const int x = (a.of[0].n + LQ_W4L_ROWS - 1) / LQ_W4L_ROWS;
    const int tiles = a.count == 1 ? (p.m + LQ_W4L_TOKENS - 1) / LQ_W4L_TOKENS : p.m / LQ_W4L_TOKENS + a.count;
    r.got = emu::launch(dim3((unsigned)x, (unsigned)tiles), dim3(LQ_W4L_THREADS), kernel->shared, how,
                        [&] { entry(&a); });
    r.y = outputs_of(p, a);
    if (!emu::zones_whole()) check(false, "%s: wrote between the buffers", kernel->name);
    return r;
}

static void clean(const problem &p, const emu::result &got) {
    if (!check(got.findings.empty(), "%s, m %d n %d k %d: %zu findings", p.of[0].of->name, p.m, p.of[0].n, p.of[0].k,
               got.findings.size()))
        got.print();
    worst_shared = fmax(worst_shared, got.worst(true));
    if (p.x_stride % 16 == 0 && p.y_stride % 16 == 0 && p.of[0].share == 1 && p.of[0].k % 16 == 0)
        worst_global = fmax(worst_global, got.worst(false));
}

static void same_bits(const problem &p, const answer &large, const answer &small) {
    size_t n = 0;
    for (size_t i = 0; i < large.y.size() && i < small.y.size(); i++) n += large.y[i] != small.y[i];
    check(n == 0 && large.y.size() == small.y.size(), "%s m %d n %d k %d: %zu numbers have other bits than by w4s",
          p.of[0].of->name, p.m, p.of[0].n, p.of[0].k, n);
}

// By two schedules, and by w4s: the same bits.
static void check_product(const type *of, int m, int n, int k, int cut, bool bias, bool f32) {
    problem p = problem_of(of, m, n, k, cut, bias, f32);
    emu::options how;
    how.seed = random_bits();
    how.resident = 1 + (unsigned)below(2);
    const answer r = run_large(p, how);
    clean(p, r.got);
    check(agrees(p, r, &worst_of_bound), "%s m %d n %d k %d cut %d: differs from the sums in f64", of->name, m, n, k,
          cut);
    how.seed = random_bits();
    const answer again = run_large(p, how);
    check(again.y == r.y, "%s m %d n %d k %d cut %d: other bits by another schedule", of->name, m, n, k, cut);
    same_bits(p, r, run(p, 32, false, emu::options()));
}

// Slots of experts, of which some have none, one more than a tile.
static void check_experts(const type *of, int experts, int slots, int top_k) {
    const int n = 70, k = 264;
    problem p = problem_of(of, slots, n, k, 256, true, false);
    for (int e = 1; e < experts; e++) p.of.push_back(matrix_of(of, n, k));
    p.top_k = top_k;
    p.x.resize((size_t)(slots / top_k) * p.x_stride);
    std::vector<int> expert;
    for (int s = 0; s < slots; s++) expert.push_back(s % 7 == 3 ? -1 : s % 5 ? 1 : s % 3 ? 3 : 0);
    sort_slots(expert, experts, p.order, p.start);
    const answer r = run_large(p, emu::options());
    clean(p, r.got);
    same_bits(p, r, run(p, 8, false, emu::options()));
}

// A scale that is infinite or no number, a token that is none: what w4s makes of it, NaN for NaN.
static void check_spoilt(const type *of) {
    problem p = spoilt_problem(of, 5);
    const answer r = run_large(p, emu::options());
    clean(p, r.got);
    same_bits(p, r, run(p, 8, false, emu::options()));
}

// --- what is done wrong must be found, by what looks for it ---

static void finds(problem p, emu::harm wrong, void *at, std::vector<emu::kind> any, const char *name) {
    bool found = false;
    emu::options how;
    how.wrong = wrong;
    how.at = at;
    for (how.seed = 1; how.seed <= 3 && !found; how.seed++) {
        const emu::result got = run_large(p, how).got;
        for (emu::kind what : any) found |= got.has(what);
    }
    check(found, "%s: %s: no finding \"%s\"", p.of[0].of->name, name, emu::kind_names[any[0]]);
}

static void check_harm(const type *of) {
    // Two cuts; the ring goes round an odd number of times.
    problem p = problem_of(of, 130, 128, 784, 512, false, false);
    const emu::result got = run_large(p, emu::options()).got;
    check(got.barriers.size() == 3 && got.fences.size() == 4 && got.waits.size() == 2,
          "%s: %zu barriers, %zu fences, %zu waits", of->name, got.barriers.size(), got.fences.size(),
          got.waits.size());
    for (void *at : got.barriers)
        finds(p, emu::NO_BARRIER, at, {emu::RACE, emu::UNINITIALISED, emu::MBARRIER}, "a barrier less");
    for (void *at : got.fences) finds(p, emu::NO_BARRIER, at, {emu::PROXY, emu::OPERANDS}, "a fence less");
    for (void *at : got.waits)
        finds(p, emu::WRONG_PARITY, at, {emu::IN_FLIGHT, emu::RACE, emu::UNINITIALISED, emu::DEADLOCK}, "other parity");
    finds(p, emu::WRONG_BYTES, NULL, {emu::DEADLOCK}, "more bytes than come");
    finds(p, emu::WEAK_WAIT, NULL, {emu::IN_FLIGHT, emu::RACE}, "a group of copies is not waited for");
    finds(p, emu::WEAK_PRODUCTS, NULL, {emu::OPERANDS}, "a group of products is not waited for");
    finds(p, emu::LOST_LANE, NULL, {emu::DIVERGED, emu::DEADLOCK}, "a lane less");
    finds(p, emu::NO_PDL_WAIT, NULL, {emu::BEFORE_WAIT}, "no wait for the kernel before");
    finds(problem_of(of, 5, 64, 104, 1024, false, false), emu::WHOLE_COPIES, NULL, {emu::OUT_OF_BOUNDS},
          "copies behind the matrix");
}

static void check_noticed(const type *of) {
    problem p = problem_of(of, 5, 64, 256, 1024, false, false);
    const problem right = p;
    double unused = 0;
    p.x[5] = 0x3f80; // 1.0 meets another code
    p.of[0].q[5] ^= 1u << (of->of.bits - 2);
    problem meant = right;
    meant.x[5] = 0x3f80;
    check(!agrees(meant, run_large(p, emu::options()), &unused), "%s: a wrong code is not noticed", of->name);
}

// Few tokens and few blocks are w4s's; else there are tiles for all slots.
static void check_plans() {
    lq_w4s_form f = {};
    f.kind = LQ_W4S_INTS, f.bits = 4, f.group = 128;
    for (int m = 1; m < 5000; m = m * 3 / 2 + 1)
        for (int experts : {0, 1, 60})
            for (int n : {64, 1536, 20000}) {
                const lq_w4l_plan p = lq_w4l_plan_of(&f, m, experts, n, 132);
                const int some = experts ? std::min(experts, m) : 1;
                const unsigned x = (unsigned)(n + 127) / 128, tiles = (unsigned)((m - some) / 128 + some);
                if (m / some <= 64) check(!p.kernel, "%d tokens, %d experts, %d rows are taken", m, experts, n);
                if (p.kernel) check(p.x == x && p.y >= tiles, "%d tokens: %u x %u blocks", m, p.x, p.y);
            }
    check(lq_w4l_plan_of(&f, 512, 0, 4096, 132).kernel, "512 tokens are not taken");
    check(!lq_w4l_plan_of(&f, 128, 0, 1536, 132).kernel, "12 blocks are taken");
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : "";
    if (!emu::has_90a()) {
        skipped++;
        return closing();
    }
    check_plans();
    int i = 0;
    for (const type &t : types) {
        const matrix w = matrix_of(&t, 64, 256);
        if (!strstr(t.name, only) || !kernel_of(w.form)) continue;
        i++;
        check_product(&t, 129 + i % 3, 66 + 2 * i, 784, 512, i % 2, i % 4 == 1);
        if (t.of.group == 128) check_product(&t, 70, i % 2 ? 200 : 128, 1296, 1024, i % 2 == 0, false);
        check_product(&t, 1 + i % 8, i % 2 ? 63 : 1, 40, 1024, i % 4 == 1, i % 2);
        if (i < 4) check_experts(&t, 5, 330, 1 + i % 2);
        if ((t.of.scale == LQ_F16 || t.of.scale == LQ_BF16) && t.of.rows == 1) check_spoilt(&t);
        check_noticed(&t);
        if (emu::watched && t.of.group == 128 && t.of.bits == 4) check_harm(&t);
    }
    if (!*only)
        for (int k = 0; k < LQ_W4L_COUNT; k++) check(launches[k] > 0, "%s was never run", lq_w4l_kernels[k].name);
    check(worst_shared <= 1.0, "a request of shared memory takes %.2f times the passes it needs", worst_shared);
    check(worst_global <= 1.0, "a request of global memory takes %.2f times the sectors it needs", worst_global);
    printf("worst error %.3f of its bound; %.2f passes, %.2f sectors of the least\n", worst_of_bound, worst_shared,
           worst_global);
    return closing();
}
