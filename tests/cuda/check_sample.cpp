// check_sample.cpp: the kernels of kernels/cuda/sample.cu on the emulated machine, against portable C's sampling, bit
// for bit: tokens, logprobs, lists of the best, over all wishes; then with one thing wrong.
#include "tests/cuda/check.h"
extern "C" {
#include "kernels/cuda/sample.h"
}

typedef void sample_kernel(const void *);
extern "C" sample_kernel lq_sample_best, lq_sample_sums, lq_sample_rows;

// Rows of logits and what each wishes for; arrays of a row live as long as it.
struct wishes {
    std::vector<uint32_t> mask;
    std::vector<int32_t> bias_id, seen;
    std::vector<float> bias;
    std::vector<uint16_t> seen_n;
};
struct problem {
    int rows, vocab, stride;
    std::vector<float> logits;
    std::vector<wishes> of;
    std::vector<lq_draw> draw;
};
struct answer {
    std::vector<lq_drawn> out;
    std::vector<int32_t> top_id;
    std::vector<float> top_logprob;
    emu::result got[3];
};

static lq_dev *cpu;

static void wish(wishes *w, lq_draw *d, int vocab, int kind) {
    *d = {};
    d->seed = (uint64_t)random_bits() << 32 | random_bits();
    d->choice = (uint32_t)below(3), d->position = random_bits() % 1000;
    d->top_n = below(3) ? 0 : below(LQ_TOP + 1);
    if (kind == 0) return; // greedy
    if (kind == 1) {
        d->given = true, d->token = below(vocab);
        return;
    }
    d->temperature = kind == 2 ? 0 : below(3) ? 0.3f + (float)below(100) / 50 : 1;
    if (below(3) == 0) d->min_p = (float)below(100) / 1000;
    if (below(2)) d->top_k = 1 + below(below(2) ? 5 : vocab + 5);
    if (below(2)) d->top_p = below(4) ? (float)below(1001) / 1000 : 0.99999f;
    if (below(3) == 0) d->typical = (float)(1 + below(999)) / 1000;
    if (below(3) == 0) {
        for (int i = 0; i < (vocab + 31) / 32; i++) w->mask.push_back(random_bits() | random_bits());
        d->mask = w->mask.data();
    }
    if (below(3) == 0) {
        for (int i = 0; i < 40; i++) {
            w->bias_id.push_back(below(5) ? below(vocab) : below(4)); // some twice
            w->bias.push_back(below(9) ? 3 * uniform() : -INFINITY);
        }
        d->bias_id = w->bias_id.data(), d->bias = w->bias.data(), d->biases = 40;
    }
    if (below(3)) return;
    for (int id = below(7); id < vocab; id += 1 + below(vocab / 30 + 1)) {
        w->seen.push_back(id);
        w->seen_n.push_back((uint16_t)below(4));
    }
    d->seen = w->seen.data(), d->seen_n = w->seen_n.data(), d->seens = (int)w->seen.size();
    d->repetition = below(2) ? 1.1f : 0, d->presence = (float)below(3) / 2, d->frequency = (float)below(3) / 4;
}

// kind of a row: peaked, flat, all of a few values (ties, -0), or broken.
static problem problem_of(int rows, int vocab, int kind) {
    problem p;
    p.rows = rows, p.vocab = vocab, p.stride = vocab + below(4);
    p.of.resize((size_t)rows);
    p.draw.resize((size_t)rows);
    for (int i = 0; i < rows; i++) {
        const int look = below(8);
        wish(&p.of[(size_t)i], &p.draw[(size_t)i], vocab, kind < 0 ? below(8) : kind);
        for (int j = 0; j < p.stride; j++) {
            const float u = uniform() + uniform() + uniform();
            const float few = (float)below(9) * 0.5f - 2;
            p.logits.push_back(look < 3 ? 4 * u : look < 5 ? u / 100 : look < 7 ? few : 30 * u * u);
            if (look == 6 && below(9) == 0) p.logits.back() = below(2) ? -0.0f : -INFINITY;
            if (j >= vocab) p.logits.back() = NAN;
        }
        if (look == 7 && below(3) == 0) p.logits[(size_t)(i * p.stride + below(vocab))] = below(2) ? NAN : INFINITY;
        if (below(40) == 0)
            for (int j = 0; j < vocab; j++) p.logits[(size_t)(i * p.stride + j)] = -INFINITY;
    }
    return p;
}

static lq_sample_of args_of(const problem &p, int work_rows) {
    std::vector<uint32_t> block((size_t)p.rows * sizeof(lq_sample_row) / 4);
    size_t words = block.size(), at = words;
    for (const lq_draw &d : p.draw) words += lq_sample_words(&d, p.vocab);
    block.resize(words);
    for (int i = 0; i < p.rows; i++) lq_sample_pack(block.data(), &at, i, &p.draw[(size_t)i], p.vocab);
    check(at <= words, "the block of wishes has %zu words, %zu were said", at, words);
    block.resize(at);
    const size_t blocks = (size_t)lq_sample_blocks(p.vocab), rows = (size_t)p.rows;
    lq_sample_of a = {};
    a.logits = (const float *)input_of(p.logits, "logits");
    a.stride = p.stride, a.rows = p.rows, a.vocab = p.vocab;
    a.parts = lq_sample_parts(p.vocab);
    a.wishes = (const uint32_t *)input_of(block, "wishes");
    a.best = (uint64_t *)emu::output(rows * blocks * 8, "best");
    a.sums = (double *)emu::output(rows * blocks * 8, "sums");
    a.work_rows = work_rows;
    a.work = (float *)emu::output((size_t)a.work_rows * (size_t)p.vocab * 4, "work");
    a.out = (lq_drawn *)emu::output(rows * sizeof *a.out, "out");
    a.top_id = (int32_t *)emu::output(rows * LQ_TOP * 4, "top_id");
    a.top_logprob = (float *)emu::output(rows * LQ_TOP * 4, "top_logprob");
    return a;
}

static answer run(const problem &p, const emu::options *how, int work_rows) {
    emu::reset();
    const lq_sample_of a = args_of(p, work_rows);
    const unsigned small = (unsigned)(a.rows * a.parts);
    answer r;
    r.got[0] = emu::launch(dim3(small), dim3(LQ_SAMPLE_THREADS), 0, how[0], [&] { lq_sample_best(&a); });
    r.got[1] = emu::launch(dim3(small), dim3(LQ_SAMPLE_THREADS), 128, how[1], [&] { lq_sample_sums(&a); });
    r.got[2] = emu::launch(dim3((unsigned)a.work_rows), dim3(LQ_SAMPLE_CHOOSERS), LQ_SAMPLE_SHARED, how[2],
                           [&] { lq_sample_rows(&a); });
    r.out.assign(a.out, a.out + p.rows);
    r.top_id.assign(a.top_id, a.top_id + p.rows * LQ_TOP);
    r.top_logprob.assign(a.top_logprob, a.top_logprob + p.rows * LQ_TOP);
    check(emu::zones_whole(), "wrote between the buffers");
    return r;
}

static bool same(const lq_drawn &a, const lq_drawn &b) {
    return a.token == b.token && a.bad == b.bad && !memcmp(&a.logprob, &b.logprob, 4);
}

// Portable C's answer; what it leaves alone is -1 and -infinity.
static answer expected(const problem &p) {
    answer r;
    r.out.resize((size_t)p.rows);
    r.top_id.assign((size_t)p.rows * LQ_TOP, -1);
    r.top_logprob.assign((size_t)p.rows * LQ_TOP, -INFINITY);
    lq_sample_args a = {};
    a.logits = {const_cast<float *>(p.logits.data()), LQ_F32, p.rows, p.vocab, (size_t)p.stride};
    a.draw = p.draw.data(), a.out = r.out.data();
    a.top_id = r.top_id.data(), a.top_logprob = r.top_logprob.data();
    cpu->ops.sample(cpu, &a);
    return r;
}

static int tokens[2]; // bad rows and others

static void check_rows(int rows, int vocab, int kind) {
    const problem p = problem_of(rows, vocab, kind);
    emu::options how[3];
    const answer want = expected(p), first = run(p, how, 2);
    for (int k = 0; k < 3; k++)
        if (!check(first.got[k].findings.empty(), "vocab %d kind %d: %zu findings in kernel %d", vocab, kind,
                   first.got[k].findings.size(), k)) first.got[k].print();
    for (int i = 0; i < rows; i++) {
        const lq_drawn &w = want.out[(size_t)i], &g = first.out[(size_t)i];
        const lq_draw &d = p.draw[(size_t)i];
        tokens[w.bad == 0]++;
        check(same(w, g), "vocab %d: token %d %.9g bad %d, portable C %d %.9g %d; t %g k %d p %g typical %g min_p %g mask %d "
              "biases %d seens %d", vocab, g.token, g.logprob, g.bad, w.token, w.logprob, w.bad,
              d.temperature, d.top_k, d.top_p, d.typical, d.min_p, d.mask != NULL, d.biases, d.seens);
        const size_t from = (size_t)i * LQ_TOP;
        check(!memcmp(&want.top_id[from], &first.top_id[from], LQ_TOP * 4) &&
              !memcmp(&want.top_logprob[from], &first.top_logprob[from], LQ_TOP * 4),
              "vocab %d row %d: other %d best", vocab, i, d.top_n);
    }
    for (emu::options &h : how) h.seed = random_bits(), h.resident = 1;
    const answer again = run(p, how, rows);
    bool equal = again.top_id == first.top_id;
    for (int i = 0; i < rows; i++) equal &= same(again.out[(size_t)i], first.out[(size_t)i]);
    check(equal, "vocab %d: others by another schedule", vocab);
}

// Each barrier of each kernel.
static void check_harm() {
    problem p = problem_of(2, 600, 3);
    // A row that is no good, and one that goes through all stages.
    lq_draw &d = p.draw[1];
    wishes *w = &p.of[1];
    for (int j = 0; j < p.vocab; j++) p.logits[(size_t)j] = NAN, p.logits[(size_t)(p.stride + j)] = uniform();
    p.draw[0] = d = {};
    d.temperature = 1, d.top_k = 2, d.top_p = 0.9f, d.typical = 0.9f, d.min_p = 0.01f, d.top_n = 2;
    w->seen = {300, 5}, w->seen_n = {1, 1}, w->bias_id = {5}, w->bias = {1.0f};
    d.seen = w->seen.data(), d.seen_n = w->seen_n.data(), d.seens = 2, d.presence = 1;
    d.bias_id = w->bias_id.data(), d.bias = w->bias.data(), d.biases = 1;
    emu::options right[3];
    right[2].resident = 1;
    const answer r = run(p, right, 1);
    for (int k = 0; k < 3; k++) {
        for (void *barrier : r.got[k].barriers) {
            emu::options how[3];
            how[k].wrong = emu::NO_BARRIER, how[k].at = barrier;
            const bool found = !run(p, how, 1).got[k].findings.empty();
            check(found, "kernel %d: nothing is found without barrier %p", k, barrier);
        }
        emu::options how[3];
        how[k].wrong = emu::NO_PDL_WAIT;
        check(run(p, how, 1).got[k].has(emu::BEFORE_WAIT), "kernel %d does not wait", k);
    }
    printf("%zu + %zu + %zu barriers\n", r.got[0].barriers.size(), r.got[1].barriers.size(), r.got[2].barriers.size());
}

int main() {
    lq_err err;
    lq_dev_opts o = {};
    o.threads = 1, o.isa = "c";
    lq_dev_limits l = {};
    l.rows = l.outs = 64, l.vocab = 20000;
    if (!lq_dev_open("cpu", &o, &cpu, &err) || !cpu->ops.reserve(cpu, &l, &err)) return 2;
    for (int kind = 0; kind < 3; kind++) check_rows(3, 700, kind);
    for (int i = 0; i < 5; i++) check_rows(5, 1 + below(2000), -1);
    check_rows(6, 600, 3);
    check_rows(4, 3000 + below(3000), -1);
    check_rows(2, 12000, 3);
    check(tokens[1] > 4 * tokens[0], "%d tokens, %d broken rows", tokens[1], tokens[0]);
    if (emu::watched) check_harm();
    lq_dev_close(cpu);
    return closing();
}
