// check_w4s.cpp: the kernels of kernels/cuda/w4s.cu on the emulated machine, against sums in f64 over the numbers that
// the codes mean, packed here by the words of docs/FORMAT.md, section 6.1; all numbers of tokens against each other,
// bit for bit; slots of experts against each expert's own product; then with one thing wrong, which must be found.
#include "tests/cuda/products.h"
#include <algorithm>

enum { SMS = 108, ROOM = 232448 };

static void clean(const problem &p, const emu::result &got, int tokens) {
    if (!check(got.findings.empty(), "%s, %d tokens, m %d n %d k %d: %zu findings", p.of[0].of->name, tokens, p.m,
               p.of[0].n, p.of[0].k, got.findings.size()))
        got.print();
    worst_shared = fmax(worst_shared, got.worst(true));
    if (p.x_stride % 16 == 0 && p.y_stride % 16 == 0 && p.of[0].share == 1 && p.of[0].k % 16 == 0)
        worst_global = fmax(worst_global, got.worst(false));
}

static std::vector<int> tokens_of(const lq_w4s_form &f) {
    std::vector<int> all;
    for (const lq_w4s_kernel &some : lq_w4s_kernels)
        if (some.kind == f.kind && some.bits == f.bits && some.group == f.group) all.push_back(some.tokens);
    return all;
}

// All numbers of tokens, cuts in one block and side by side, other schedules, and a row alone: the same bits.
static void check_product(const type *of, int m, int n, int k, int cut, bool bias, bool f32) {
    problem p = problem_of(of, m, n, k, cut, bias, f32);
    std::vector<uint32_t> y;
    int turn = below(3);
    for (int tokens : tokens_of(p.of[0].form)) {
        if (tokens > 8 && tokens >= 2 * m) continue;
        emu::options how;
        how.seed = random_bits();
        how.resident = 1 + (unsigned)below(4);
        const answer r = run(p, tokens, turn++ % 3, how);
        clean(p, r.got, tokens);
        if (y.empty()) {
            y = r.y;
            check(agrees(p, r, &worst_of_bound), "%s m %d n %d k %d cut %d: differs from the sums in f64", of->name, m, n, k, cut);
        }
        check(r.y == y, "%s m %d n %d k %d cut %d: other bits by %d tokens", of->name, m, n, k, cut, tokens);
    }
    const int row = below(m);
    problem alone = p;
    alone.m = 1;
    alone.x.assign(p.x.begin() + row * p.x_stride, p.x.begin() + (row + 1) * p.x_stride);
    const answer one = run(alone, 8, turn % 3, emu::options());
    clean(alone, one.got, 8);
    check(std::equal(one.y.begin(), one.y.begin() + n, y.begin() + row * p.y_stride), "%s m %d n %d k %d cut %d: row %d has other bits alone", of->name, m, n, k,
          cut, row);
}

// Slots of experts, some without any: each has the bits that its expert's own product has. Scales may be of two types.
static void check_experts(const type *of, const type *other, int experts, int slots, int top_k, int tokens, bool side,
                          bool ordered) {
    const int n = 70, k = 264;
    problem p = problem_of(of, slots, n, k, 256, true, false);
    for (int e = 1; e < experts; e++) p.of.push_back(matrix_of(e % 2 ? other : of, n, k));
    p.top_k = top_k;
    p.x.resize((size_t)(slots / top_k) * p.x_stride);
    const std::vector<int> expert = experts_of(slots, experts, ordered);
    if (ordered) sort_slots(expert, experts, p.order, p.start);
    emu::options how;
    how.seed = random_bits();
    const answer r = run(p, tokens, side, how);
    clean(p, r.got, tokens);
    bool held = true;
    for (int e = 0; e < experts; e++) {
        problem one = problem_of(of, 1, n, k, 256, true, false);
        one.of[0] = p.of[(size_t)e];
        one.m = 0, one.x.clear(), one.x_stride = p.x_stride, one.y_stride = p.y_stride;
        std::vector<int> mine;
        for (int s = 0; s < slots; s++) {
            if (expert[(size_t)s] != e) continue;
            const auto row = p.x.begin() + s / top_k * p.x_stride;
            one.x.insert(one.x.end(), row, row + p.x_stride);
            mine.push_back(s);
        }
        one.m = (int)mine.size();
        if (!one.m) continue;
        const answer alone = run(one, 8, !side, emu::options());
        for (int i = 0; i < one.m; i++)
            held &= std::equal(alone.y.begin() + i * p.y_stride, alone.y.begin() + i * p.y_stride + n,
                               r.y.begin() + mine[(size_t)i] * p.y_stride);
    }
    for (int s = 0; s < slots; s++)
        for (int i = 0; i < p.y_stride; i++)
            held &= expert[(size_t)s] >= 0 || r.y[(size_t)s * p.y_stride + i] == 0xffff;
    check(held, "%s, %d slots of experts, %d tokens: other bits than an expert's own product", of->name, slots, tokens);
}

// Several matrices that read the same rows, in one launch: each has the bits of its own.
static void check_joined(const type *of, int m, int tokens, int by) {
    const int k = 1032, n[] = {70, 200, 17}, cut[] = {512, 256, 2048}, rows = LQ_W4S_ROWS(of->of.bits, tokens);
    problem one[3];
    std::vector<uint32_t> alone[3];
    for (int i = 0; i < 3; i++) {
        one[i] = problem_of(of, m, n[i], k, cut[i], i % 2, i == 2);
        one[i].x = one[0].x, one[i].x_stride = one[0].x_stride;
        alone[i] = run(one[i], 8, by, emu::options()).y;
    }
    const lq_w4s_kernel *kernel = w4s_of(one[0].of[0].form, tokens);
    if (!check(kernel, "%s: no kernel for %d tokens", of->name, tokens)) return;
    lq_w4s_args a = arguments_of(one[0]);
    int x = 0;
    for (int i = 0; i < 3; i++) {
        lq_w4s_one *to = &a.of[i];
        if (i) {
            to->matrix = given(one[i].of[0], one[i].bias);
            to->y = emu::output((size_t)m * one[i].y_stride * (one[i].f32 ? 4 : 2), "y");
            to->y_stride = one[i].y_stride, to->n = n[i], to->f32 = one[i].f32, to->cut = cut[i];
        }
        to->side = by ? lq_w4s_cuts(k, cut[i]) : 1;
        to->first = x;
        x += (n[i] + rows - 1) / rows;
        a.side = std::max(a.side, to->side);
    }
    a.joined = 3;
    const int tiles = (m + tokens - 1) / tokens;
    a.parts = (float *)emu::output((size_t)tiles * x * a.side * tokens * rows * 4, "parts");
    a.arrived = (uint32_t *)emu::state((size_t)tiles * x * 4, "arrived");
    a.cluster = by == MET && a.side > 1 && a.side - 1 <= kernel->met;
    emu::options how;
    how.seed = random_bits();
    how.cluster = a.cluster ? (unsigned)a.side : 1;
    void (*entry)(const void *) = (void (*)(const void *))(void *)kernel->entry;
    const emu::result got = emu::launch(dim3((unsigned)x, (unsigned)(tiles * a.side)), dim3(LQ_W4S_THREADS),
                                        kernel->shared, how, [&] { entry(&a); });
    clean(one[0], got, tokens);
    check(emu::zones_whole(), "%s, joined: wrote between the buffers", of->name);
    for (int i = 0; i < 3; i++) {
        bool held = true;
        for (size_t j = 0; j < alone[i].size(); j++)
            held &= alone[i][j] == (one[i].f32 ? ((uint32_t *)a.of[i].y)[j] : ((uint16_t *)a.of[i].y)[j]);
        check(held, "%s, %d tokens, %d rows: joined matrix %d has other bits", of->name, tokens, m, i);
    }
}

// A scale that is no number spoils the outputs of its row and no other; a token that is none its own.
static void check_spoilt(const type *of, int tokens) {
    problem p = spoilt_problem(of, 3);
    const matrix &w = p.of[0];
    const answer r = run(p, tokens, false, emu::options());
    clean(p, r.got, tokens);
    bool held = true;
    double unused = 0;
    for (int m = 0; m < 3; m++)
        for (int n = 0; n < w.n; n++) {
            const uint32_t y = r.y[(size_t)m * p.y_stride + n];
            if (m == 1 || n == 9 || n == 68) held &= (y & 0x7f80) == 0x7f80;
            else held &= near(p, w, &p.x[(size_t)m * p.x_stride], n, y, &unused);
        }
    check(held, "%s: bad numbers left their row", of->name);
}

// --- what is done wrong must be found, by what looks for it ---

static void finds(problem p, int tokens, int by, emu::harm wrong, void *at, std::vector<emu::kind> any,
                  const char *name) {
    bool found = false;
    emu::options how;
    how.wrong = wrong;
    how.at = at;
    for (how.seed = 1; how.seed <= 3 && !found; how.seed++) {
        const emu::result got = run(p, tokens, by, how).got;
        for (emu::kind what : any) found |= got.has(what);
    }
    check(found, "%s, %d tokens: %s: no finding \"%s\"", p.of[0].of->name, tokens, name, emu::kind_names[any[0]]);
}

// The reference must notice a wrong nibble, scale or zero point: only results see them.
static void notices(problem p, void (*spoil)(matrix &), const char *name) {
    const problem right = p;
    spoil(p.of[0]);
    double unused = 0;
    const answer r = run(p, 8, false, emu::options());
    check(!agrees(right, r, &unused), "%s: %s is not noticed", right.of[0].of->name, name);
}

static void check_harm(const type *of, int tokens) {
    // Five cuts of one step, side by side or by one block, and one cut in which the ring goes round.
    problem p = problem_of(of, 5, 64, 1280, 256, false, false),
            long_cut = problem_of(of, 5, 64, 1280, 1280, false, false);
    const emu::result got = run(p, tokens, true, emu::options()).got;
    for (void *at : got.barriers) {
        bool found = false;
        for (int way = 0; way < 3; way++) {
            emu::options how;
            how.wrong = emu::NO_BARRIER;
            how.at = at;
            const emu::result r = run(way == 2 ? long_cut : p, tokens, way == 1, how).got;
            found |= r.has(emu::RACE) || r.has(emu::BLOCK_RACE) || r.has(emu::UNINITIALISED);
        }
        check(found, "%s, %d tokens: a barrier less: no race found", of->name, tokens);
    }
    std::vector<void *> all = got.barriers;
    for (void *at : run(p, tokens, false, emu::options()).got.barriers)
        if (std::find(all.begin(), all.end(), at) == all.end()) {
            all.push_back(at);
            finds(p, tokens, false, emu::NO_BARRIER, at, {emu::RACE, emu::UNINITIALISED, emu::IN_FLIGHT},
                  "a barrier less between cuts");
        }
    size_t met = 0;
    for (void *at : run(p, tokens, MET, emu::options()).got.barriers)
        if (std::find(all.begin(), all.end(), at) == all.end()) {
            met++;
            finds(p, tokens, MET, emu::NO_BARRIER, at, {emu::BLOCK_RACE, emu::EXITED}, "a barrier of a cluster less");
        }
    const int most = w4s_of(p.of[0].form, tokens)->met;
    check(met == (most >= 4 ? 2 : 0), "%s, %d tokens: %zu barriers of a cluster", of->name, tokens, met);
    check(all.size() == 6 && got.fences.size() == 2, "%s: %zu barriers and %zu fences", of->name, all.size(),
          got.fences.size());
    for (void *at : got.fences) finds(p, tokens, true, emu::NO_BARRIER, at, {emu::BLOCK_RACE}, "a fence less");
    finds(p, tokens, true, emu::WEAK_WAIT, NULL, {emu::IN_FLIGHT}, "a group is not waited for");
    finds(p, tokens, true, emu::LOST_LANE, NULL, {emu::DIVERGED, emu::DEADLOCK}, "a lane less");
    finds(p, tokens, true, emu::NO_WRAP, NULL, {emu::STATE_LEFT}, "a counter that is not set back");
    finds(p, tokens, true, emu::NO_PDL_WAIT, NULL, {emu::BEFORE_WAIT}, "no wait for the kernel before");
    finds(problem_of(of, 5, 64, 104, 1024, false, false), tokens, false, emu::WHOLE_COPIES, NULL, {emu::OUT_OF_BOUNDS},
          "copies behind the matrix");
}

static void check_noticed(const type *of) {
    problem p = problem_of(of, 5, 64, 256, 1024, false, false);
    const lq_wtype &t = of->of;
    p.x[5] = 0x3f80; // 1.0 meets a large weight
    p.of[0].q[5] = t.kind == LQ_W_PLAIN ? 0x3f80 : t.elem == LQ_E5M2 ? 0x48 : (1u << t.bits) - 2;
    notices(p, [](matrix &w) { w.q[5] ^= 1u << (w.of->of.bits - 2); }, "a wrong code");
    if (t.kind != LQ_W_PLAIN)
        notices(
            p,
            [](matrix &w) {
                w.s[0] ^= w.of->of.scale == LQ_F32    ? 1 << 23
                          : w.of->of.scale == LQ_BF16 ? 0x80
                          : w.of->of.scale == LQ_F16  ? 0x400
                                                      : 8;
            },
            "a wrong scale");
    if (t.asym) notices(p, [](matrix &w) { w.z[0] ^= (uint8_t)(1 << (w.of->of.bits - 1)); }, "a wrong zero point");
}

// --- the host's side ---

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

// What a plan says of the one matrix of a call.
static lq_w4s_one set_by(const lq_w4s_form &f, const lq_w4s_plan &p, int n, int k) {
    lq_w4s_args a = {};
    a.joined = 1, a.k = k, a.of[0].n = n;
    lq_w4s_set(&a, &f, &p, SMS);
    return a.of[0];
}

// A plan has a kernel of the form that has room, tiles for all slots, and what it uses is there.
static void check_plans(const type &t) {
    lq_w4s_form f;
    check(lq_w4s_fits(&t.of, t.of.kind == LQ_W_PLAIN ? LQ_ANY : LQ_CUDA, 4096, 4096, &f), "%s: no kernel", t.name);
    for (int m = 1; m < 5000; m = m * 3 / 2 + 1)
        for (int experts : {0, 1, 60})
            for (size_t shared : {101376, 166912, 232448}) {
                const lq_w4s_on on = {90, SMS, shared, 1 << 20, 1 << 10};
                const int n = 1536;
                const lq_w4s_plan p = lq_w4s_plan_of(&f, m, experts, &n, 1, 4096, &on, NULL);
                if (!check(p.kernel && p.kernel->shared <= shared, "%s: no kernel for %d tokens", t.name, m)) continue;
                const size_t some = experts ? (size_t)std::min(experts, m) : 1, tokens = (size_t)p.kernel->tokens;
                bool right = p.kernel->group == f.group && p.kernel->bits == f.bits && p.parts <= 1 << 20 &&
                             p.arrived <= 1 << 10;
                right &= p.y == p.side * (((size_t)m - some) / tokens + some) ||
                         p.y > p.side * (((size_t)m - some) / tokens + some);
                right &= set_by(f, p, n, 4096).cut == lq_w4s_cut(n, 4096, SMS) &&
                         p.x * (unsigned)LQ_W4S_ROWS(f.bits, (int)tokens) >= 1536;
                check(right, "%s: %d tokens, %d experts: %u x %u blocks", t.name, m, experts, p.x, p.y);
            }
}

// Each kernel of the form that has room is had for the asking, with cuts side by side or not; where k is cut stays.
static void check_tuned(const type &t) {
    lq_w4s_form f;
    lq_w4s_fits(&t.of, t.of.kind == LQ_W_PLAIN ? LQ_ANY : LQ_CUDA, 4096, 4096, &f);
    const lq_w4s_on on = {90, SMS, lq_w4s_shared(90), 1 << 20, 1 << 10}, small = {90, SMS, on.shared, 0, 0};
    for (int i = 0; i < LQ_W4S_COUNT; i++) {
        const lq_w4s_kernel *of = &lq_w4s_kernels[i];
        if (of->kind != f.kind || of->bits != f.bits || of->group != f.group) continue;
        for (int side : {0, 1})
            for (int m : {1, 8, 9, 100}) {
                const lq_tuned like = lq_w4s_tuned(&f, 90);
                const lq_tuned row = {90, like.family, f.kind, f.bits, f.group, 1536, 4096, 0, 100, of->tokens, side};
                const int n = 1536, k = m % 2 ? 4096 : 2048, cut = lq_w4s_cut(n, k, SMS), cuts = lq_w4s_cuts(k, cut);
                const lq_w4s_plan p = lq_w4s_plan_of(&f, m, 0, &n, 1, k, &on, &row),
                                  q = lq_w4s_plan_of(&f, m, 0, &n, 1, k, &small, &row);
                const bool met = side && of->tokens <= LQ_W4S_CLUSTER_TOKENS && cuts <= LQ_W4S_CLUSTER;
                const lq_w4s_one a = set_by(f, p, n, k), b = set_by(f, q, n, k);
                check(p.kernel == of && a.cut == cut && a.side == p.side && p.side == (side ? cuts : 1) &&
                          b.cut == cut && b.side == q.side && q.side == (met ? cuts : 1) && p.cluster == met &&
                          q.cluster == met && (!met || cuts - 1 <= of->met),
                      "%s: %d tokens: %s on %d sides of %d", t.name, m, p.kernel->name, p.side, cuts);
            }
    }
}

// The row of the nearest shape, also where that has none for so many tokens.
static void check_rows() {
    const lq_tuned rows[] = {{90, 0, 0, 4, 128, 4096, 4096, 0, 8, 8, 1},  {90, 0, 0, 4, 128, 4096, 4096, 8, 64, 32, 0},
                             {90, 0, 0, 4, 128, 8192, 4096, 0, 64, 16, 0}, {80, 0, 0, 4, 128, 4096, 4096, 0, 64, 64, 0},
                             {90, 1, 0, 8, 0, 4096, 4096, 0, 999, 128, 0}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}};
    const lq_tuned g128 = {90, 0, 0, 4, 128, 0, 0, 0, 0, 0, 0}, g64 = {90, 0, 0, 4, 64, 0, 0, 0, 0, 0, 0},
                   ampere = {80, 0, 0, 4, 128, 0, 0, 0, 0, 0, 0}, ints = {90, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0}, none = {};
    const struct { lq_tuned like; int n, k, m, found; } asked[] = {
        {g128, 4096, 4096, 1, 0},  {g128, 4096, 4096, 8, 0},   {g128, 4096, 4096, 9, 1},  {g128, 4096, 4096, 65, -1},
        {g128, 6144, 4096, 9, 2},  {g128, 2048, 4096, 9, 1},   {g128, 1024, 4096, 9, -1}, {g128, 2900, 2900, 64, 1},
        {ampere, 4096, 4096, 9, 3}, {g64, 4096, 4096, 9, -1}, {ints, 4096, 8192, 999, 4}, {none, 4096, 4096, 1, -1}};
    for (const auto &a : asked) {
        const lq_tuned *r = lq_tuned_find(rows, 6, &a.like, a.n, a.k, a.m);
        check(r == (a.found < 0 ? NULL : &rows[a.found]), "%d x %d, %d tokens: row %d", a.n, a.k, a.m,
              r ? (int)(r - rows) : -1);
    }
}

static void check_refused() {
    lq_w4s_form f;
    lq_wtype odd = int_type(4, 96, false, LQ_F16), rows = int_type(4, 128, false, LQ_F16, 48),
             wide = int_type(7, 0, false, LQ_F16);
    const lq_wtype plain = coded(LQ_W_PLAIN, LQ_BF16, 0, LQ_F32), good = int_type(4, 128, false, LQ_F16);
    check(!lq_w4s_fits(&odd, LQ_CUDA, 64, 960, &f) && !lq_w4s_fits(&rows, LQ_CUDA, 64, 960, &f),
          "groups and rows of odd sizes fit");
    check(!lq_w4s_fits(&wide, LQ_ANY, 64, 960, &f) && !lq_w4s_fits(&good, LQ_ANY, 64, 960, &f),
          "codes of layout any fit");
    check(!lq_w4s_fits(&plain, LQ_ANY, 64, 964, &f), "rows that begin anywhere fit");
}

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : "";
    check_cuts();
    check_rows();
    check_refused();
    int i = 0;
    for (const type &t : types) {
        i++;
        if (!strstr(t.name, only)) continue;
        const bool many = i % 3 == 0;
        check_plans(t);
        check_tuned(t);
        check_product(&t, 17 + i % 3, 66 + 2 * i, 520, 256, i % 2, i % 4 == 1);
        check_product(&t, 1 + i % 8, i % 2 ? 63 : 1, i % 2 ? 1104 : 40, 1024, i % 4 == 1, i % 2);
        if (many || t.of.group == 128) check_product(&t, 70, 128, 272, 1024, true, false);
        if (i % 4 == 3 || t.of.kind == LQ_W_PLAIN) check_joined(&t, 9 + i % 3, i % 8 == 3 ? 32 : 8, i % 3);
        check_noticed(&t);
    }
    if (!*only) {
        const type halves = {"int4 g128 asym f16", int_type(4, 128, true, LQ_F16), NULL};
        const type &int4 = types[2], &scaled = types[3], &table = types[17], &plain = types[23];
        check_experts(&int4, &int4, 5, 40, 1, 8, true, true);
        check_experts(&int4, &int4, 5, 40, 2, 16, false, true);
        check_experts(&types[0], &types[0], 5, 60, 4, 32, true, true);
        check_experts(&plain, &plain, 5, 20, 2, 8, false, false);
        check_experts(&plain, &plain, 5, 30, 2, 64, true, true);
        check_experts(&int4, &halves, 40, 50, 2, 8, true, true);
        check_spoilt(&int4, 8);
        check_spoilt(&scaled, 32);
        if (emu::watched) {
            check_harm(&int4, 8);
            check_harm(&int4, 64);
            check_harm(&table, 8);
            check_harm(&plain, 16);
        }
        for (int k = 0; k < LQ_W4S_COUNT; k++) check(runs[(size_t)k] > 0, "%s was never run", lq_w4s_kernels[k].name);
    }
    check(worst_shared <= 1.0, "a request of shared memory takes %.2f times the passes it needs", worst_shared);
    check(worst_global <= 1.0, "a request of global memory takes %.2f times the sectors it needs", worst_global);
    printf("worst error %.3f of its bound; %.2f passes, %.2f sectors of the least\n", worst_of_bound, worst_shared, worst_global);
    return closing();
}
