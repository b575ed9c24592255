// check_kvw.cpp: the kernels of kernels/cuda/kvw.cu on the emulated machine: every element of every block against the
// nearest number of its type, found by trying all of them; then with one thing wrong.
#include "kernels/cuda/kvw.h"
#include "tests/cuda/check.h"
#include <float.h>

typedef void kvw_kernel(const void *);
extern "C" kvw_kernel lq_kvw_bf16, lq_kvw_f16, lq_kvw_i8, lq_kvw_e4m3, lq_rope_bf16;
extern "C" kvw_kernel lq_kvw_turned_bf16, lq_kvw_turned_f16, lq_kvw_turned_i8, lq_kvw_turned_e4m3;
static const struct { const char *name; kvw_kernel *kernel, *turned; lq_dtype type; size_t bytes; } kernels[] = {
    {"lq_kvw_bf16", lq_kvw_bf16, lq_kvw_turned_bf16, LQ_BF16, 2},
    {"lq_kvw_f16", lq_kvw_f16, lq_kvw_turned_f16, LQ_F16, 2},
    {"lq_kvw_i8", lq_kvw_i8, lq_kvw_turned_i8, LQ_I8, 1},
    {"lq_kvw_e4m3", lq_kvw_e4m3, lq_kvw_turned_e4m3, LQ_E4M3, 1}};
enum { PAGE = 16, BLOCKS = 9, STRIDE = 3, FILL = 0x5a };

struct problem {
    int of, rows, real, heads, dk, dv;
    bool latent;
    std::vector<uint16_t> x; // [rows][K of all heads, V of all, 8 more]
    std::vector<int32_t> seq, at, first, tables;
    std::vector<float> head_scales;
};
struct answer { std::vector<unsigned char> data; std::vector<float> scales; emu::result got; };

static int width(const problem &p) { return p.heads * (p.dk + p.dv) + 16; }
static size_t head_size(const problem &p) { return (size_t)PAGE * (size_t)(p.latent ? p.dk : p.dk + p.dv); }

static problem problem_of(int of, int heads, int dk, int dv, bool latent) {
    problem p = {of, 9, 7, heads, dk, dv, latent, {}, {}, {}, {0, 4, 6, 7}, {}, {}};
    for (int b = 0; b < BLOCKS; b++) p.tables.push_back((b * 4 + 2) % BLOCKS);
    for (int i = 0; i < p.rows; i++) {
        p.seq.push_back(i < 4 ? 0 : i < 6 ? 1 : 2);
        p.at.push_back(i < 4 ? 14 + i : i < 6 ? i : 47);
    }
    for (int i = 0; i < p.rows * width(p); i++) p.x.push_back(to_bf16(uniform() * (i % 29 ? 1 : 900)));
    for (int i = 0; i < 2 * heads; i++) p.head_scales.push_back(0.02f + 0.01f * uniform());
    return p;
}

static answer run(const problem &p, const emu::options &how) {
    emu::reset();
    const size_t bytes = kernels[p.of].bytes, block = p.heads * head_size(p) * bytes;
    const std::vector<unsigned char> before(BLOCKS * block, FILL);
    const std::vector<float> scales((size_t)BLOCKS * p.heads * 2 * PAGE, -7);
    lq_kvw_args a = {};
    a.rows.n = p.rows, a.rows.seqs = 3, a.rows.table_stride = STRIDE;
    a.rows.seq = (int32_t *)weights_of(p.seq, "seq");
    a.rows.at = (int32_t *)weights_of(p.at, "at");
    a.rows.first = (int32_t *)weights_of(p.first, "first");
    a.rows.tables = (int32_t *)weights_of(p.tables, "tables");
    uint16_t *x = (uint16_t *)input_of(p.x, "x");
    a.a.k = {x, LQ_BF16, p.rows, p.heads * p.dk, (size_t)width(p)};
    if (!p.latent) a.a.v = {x + p.heads * p.dk, LQ_BF16, p.rows, p.heads * p.dv, (size_t)width(p)};
    void *data = emu::changed(before.data(), before.size(), "cache");
    float *scale = NULL;
    if (kernels[p.of].type == LQ_I8) scale = (float *)emu::changed(scales.data(), scales.size() * 4, "scales");
    if (kernels[p.of].type == LQ_E4M3) scale = (float *)input_of(p.head_scales, "head scales");
    a.a.cache = {kernels[p.of].type, data, scale, PAGE, p.heads, p.dk, p.dv, block, p.latent};
    check(lq_kvw_fits(&a.a), "%s: does not fit", kernels[p.of].name);
    answer r;
    r.got = emu::launch(dim3(lq_kvw_blocks(&a.a, p.rows)), dim3(LQ_KVW_THREADS), 0, how,
                        [&] { kernels[p.of].kernel(&a); });
    r.data.assign((unsigned char *)data, (unsigned char *)data + before.size());
    if (kernels[p.of].type == LQ_I8) r.scales.assign(scale, scale + scales.size());
    check(emu::zones_whole(), "%s: wrote between the buffers", kernels[p.of].name);
    return r;
}

static double meant(lq_dtype type, unsigned code) {
    if (type == LQ_I8) return (int8_t)code;
    const int fraction = type == LQ_F16 ? 10 : 3, bias = type == LQ_F16 ? 15 : 7, wide = type == LQ_F16 ? 31 : 15;
    const int e = (int)(code >> fraction) & wide, m = (int)code & ((1 << fraction) - 1);
    const double size = e ? ldexp(m + (1 << fraction), e - bias - fraction) : ldexp(m, 1 - bias - fraction);
    return code >> (type == LQ_F16 ? 15 : 7) & 1 ? -size : size;
}

// Whether a code is as near as any; of two that are as near, the even one.
static bool nearest(lq_dtype type, double x, unsigned code) {
    const unsigned low = type == LQ_F16 ? 0x7fff : 0x7f, sign = code & ~low;
    const double mine = fabs(meant(type, code) - x);
    if (type == LQ_I8) return mine <= 0.5 && (mine < 0.5 || code % 2 == 0);
    if (fabs(x) > 448 && type == LQ_E4M3) return (code & 0x7f) == 0x7e && (x < 0) == (sign != 0);
    if (x != 0 && (x < 0) != (sign != 0)) return false;
    for (unsigned step : {(code & low) - 1, (code & low) + 1}) {
        if (step > (type == LQ_F16 ? 0x7bffu : 0x7eu)) continue;
        const double other = fabs(meant(type, sign | step) - x);
        if (other < mine || (other == mine && code % 2)) return false;
    }
    return true;
}

static bool vector_agrees(const problem &p, const answer &r, int row, int h, bool v, std::vector<unsigned char> &left) {
    const lq_dtype type = kernels[p.of].type;
    const size_t bytes = kernels[p.of].bytes;
    const int at = p.at[(size_t)row], d = v ? p.dv : p.dk;
    const size_t block = (size_t)p.tables[(size_t)(p.seq[(size_t)row] * STRIDE + at / PAGE)];
    const size_t to = (block * p.heads + h) * head_size(p) + (v ? (size_t)PAGE * p.dk : 0) + (size_t)(at % PAGE * d);
    const uint16_t *x = &p.x[(size_t)row * width(p) + (v ? p.heads * p.dk : 0) + h * d];
    float most = 0, by = 1;
    for (int i = 0; i < d; i++) most = fmaxf(most, fabsf(of_bf16(x[i])));
    bool right = true;
    if (type == LQ_I8) {
        right = r.scales[((block * p.heads + h) * 2 + v) * PAGE + at % PAGE] == most / 127.0f;
        by = most > 0 ? 127.0f / most : 0;
    }
    if (type == LQ_E4M3) by = 1.0f / p.head_scales[(size_t)(2 * h + v)];
    for (int i = 0; i < d; i++) {
        const unsigned char *code = &r.data[(to + i) * bytes];
        const unsigned got = bytes == 2 ? code[0] | code[1] << 8 : code[0];
        right &= type == LQ_BF16 ? got == x[i] : nearest(type, (double)(of_bf16(x[i]) * by), got);
        for (size_t b = 0; b < bytes; b++) left[(to + i) * bytes + b] = r.data[(to + i) * bytes + b];
    }
    return right;
}

// Every vector stands where it should, and nothing else was written.
static bool agrees(const problem &p, const answer &r) {
    std::vector<unsigned char> left(r.data.size(), FILL);
    bool right = true;
    for (int row = 0; row < p.real; row++)
        for (int h = 0; h < p.heads; h++)
            for (int v = 0; v < (p.latent ? 1 : 2); v++) right &= vector_agrees(p, r, row, h, v, left);
    return right && left == r.data;
}

static void check_cache(problem p) {
    const char *name = kernels[p.of].name;
    emu::options how;
    const answer first = run(p, how);
    if (!check(first.got.findings.empty(), "%s: %zu findings", name, first.got.findings.size())) first.got.print();
    check(agrees(p, first), "%s: %d heads of %d and %d: differs", name, p.heads, p.dk, p.dv);
    double moved = 0;
    for (const emu::counter &c : first.got.counters)
        if (c.bytes >= 8 && c.least) moved = fmax(moved, (double)c.moved / (double)c.least);
    check(moved <= 1, "%s: %.2f sectors of the least", name, moved);
    how.seed = random_bits();
    check(run(p, how).data == first.data, "%s: other bits by another schedule", name);
    problem other = p;
    size_t most = (size_t)(2 * width(p));
    for (size_t i = most; i < (size_t)(2 * width(p) + p.dk); i++)
        if (fabsf(of_bf16(p.x[i])) > fabsf(of_bf16(p.x[most]))) most = i;
    other.x[most] ^= 0x8000;
    check(!agrees(other, first), "%s: a wrong number is not noticed", name);
    how.wrong = emu::NO_PDL_WAIT;
    check(!emu::watched || run(p, how).got.has(emu::BEFORE_WAIT), "%s: no finding before pdl_wait", name);
    // A vector of zeros, and one that is no number.
    for (int i = 0; i < p.dk; i++) p.x[(size_t)i] = 0;
    check(agrees(p, run(p, emu::options())), "%s: zeros differ", name);
    p.x[5] = 0x7f80;
    const answer odd = run(p, emu::options());
    const size_t at = (size_t)p.tables[0] * p.heads * head_size(p) + 14 * (size_t)p.dk + 5;
    if (kernels[p.of].type == LQ_I8)
        check(isnan(odd.scales[(size_t)p.tables[0] * p.heads * 2 * PAGE + 14]), "%s: infinity has a scale", name);
    else if (kernels[p.of].type == LQ_E4M3) check(odd.data[at] == 0x7e, "%s: infinity is not held", name);
    else check(odd.data[2 * at + 1] == (kernels[p.of].type == LQ_F16 ? 0x7c : 0x7f), "%s: infinity is lost", name);
}

// --- behind a rotation ---

struct turn { int q_heads, dim; bool interleaved, apart; }; // apart: in two launches

static answer run_turned(const problem &p, const turn &t, const emu::options &how) {
    emu::reset();
    const size_t block = p.heads * head_size(p) * kernels[p.of].bytes;
    const std::vector<unsigned char> before(BLOCKS * block, FILL);
    const std::vector<float> scales((size_t)BLOCKS * p.heads * 2 * PAGE, -7);
    const int stride = width(p) + t.q_heads * p.dk;
    std::vector<uint16_t> all; // [rows][Q, K, V, 8 more]
    std::vector<float> freq;
    std::vector<int32_t> pos;
    for (int i = 0; i < t.dim / 2; i++) freq.push_back(powf(10000, -2.0f * (float)i / (float)t.dim));
    for (int row = 0; row < p.rows; row++) {
        for (int i = 0; i < t.q_heads * p.dk; i++) all.push_back(to_bf16((float)((row * 37 + i * 11) % 64 - 32) / 16));
        all.insert(all.end(), p.x.begin() + row * width(p), p.x.begin() + (row + 1) * width(p));
        pos.push_back(p.at[(size_t)row] * 3 + 1);
    }
    lq_kvw_args a = {};
    lq_rope_args rope = {};
    a.rows.n = p.rows, a.rows.seqs = 3, a.rows.table_stride = STRIDE;
    a.rows.seq = (int32_t *)weights_of(p.seq, "seq");
    a.rows.at = (int32_t *)weights_of(p.at, "at");
    a.rows.pos = (int32_t *)weights_of(pos, "pos");
    a.rows.first = (int32_t *)weights_of(p.first, "first");
    a.rows.tables = (int32_t *)weights_of(p.tables, "tables");
    uint16_t *q = (uint16_t *)emu::changed(all.data(), all.size() * 2, "x"), *k = q + t.q_heads * p.dk;
    a.a.rows = &a.rows;
    a.a.k = {k, LQ_BF16, p.rows, p.heads * p.dk, (size_t)stride};
    a.a.v = {k + p.heads * p.dk, LQ_BF16, p.rows, p.heads * p.dv, (size_t)stride};
    void *data = emu::changed(before.data(), before.size(), "cache");
    float *scale = NULL;
    if (kernels[p.of].type == LQ_I8) scale = (float *)emu::changed(scales.data(), scales.size() * 4, "scales");
    if (kernels[p.of].type == LQ_E4M3) scale = (float *)input_of(p.head_scales, "head scales");
    a.a.cache = {kernels[p.of].type, data, scale, PAGE, p.heads, p.dk, p.dv, block, p.latent};
    rope.rows = &a.rows, rope.inv_freq = (float *)weights_of(freq, "inv_freq");
    rope.dim = t.dim, rope.head_dim = p.dk, rope.interleaved = t.interleaved, rope.k = a.a.k;
    if (t.q_heads) rope.q = {q, LQ_BF16, p.rows, t.q_heads * p.dk, (size_t)stride};
    a.a.rope = &rope;
    check(lq_kvw_turned_fits(&a.a), "%s: does not fit behind a rotation", kernels[p.of].name);
    const lq_kvw_turned_args both = lq_kvw_turned_of(&a.a);
    const lq_rope_bf16_args first = {rope, a.rows};
    answer r;
    if (!t.apart)
        r.got = emu::launch(dim3((unsigned)p.rows, lq_kvw_turned_blocks(&both)), dim3(LQ_ROPE_THREADS), LQ_ROPE_SHARED,
                            how, [&] { kernels[p.of].turned(&both); });
    else {
        emu::launch(dim3((unsigned)p.rows, lq_rope_parts(&rope)), dim3(LQ_ROPE_THREADS), LQ_ROPE_SHARED, how,
                    [&] { lq_rope_bf16(&first); });
        r.got = emu::launch(dim3(lq_kvw_blocks(&a.a, p.rows)), dim3(LQ_KVW_THREADS), 0, how,
                            [&] { kernels[p.of].kernel(&a); });
    }
    r.data.assign((unsigned char *)data, (unsigned char *)data + before.size());
    r.data.insert(r.data.end(), (unsigned char *)q, (unsigned char *)(q + all.size()));
    if (kernels[p.of].type == LQ_I8) r.scales.assign(scale, scale + scales.size());
    check(emu::zones_whole(), "%s: wrote between the buffers", kernels[p.of].name);
    return r;
}

// One launch leaves what two do: q, k, the cache.
static void check_turned(const problem &p, turn t) {
    const char *name = kernels[p.of].name;
    emu::options how;
    how.seed = random_bits();
    const answer one = run_turned(p, t, how);
    if (!check(one.got.findings.empty(), "%s, turned: %zu findings", name, one.got.findings.size())) one.got.print();
    check(!emu::watched || one.got.barriers.size() == 2, "%s, turned: %zu barriers", name, one.got.barriers.size());
    for (void *at : one.got.barriers) {
        bool found = !emu::watched;
        emu::options less;
        less.wrong = emu::NO_BARRIER, less.at = at;
        for (less.seed = 1; less.seed <= 3 && !found; less.seed++) found = run_turned(p, t, less).got.has(emu::RACE);
        check(found, "%s, turned: a barrier less: no race found", name);
    }
    t.apart = true;
    const answer two = run_turned(p, t, how);
    check(one.data == two.data && one.scales == two.scales, "%s, %d of %d turned: other bits than in two launches", name,
          t.dim, p.dk);
}

int main() {
    for (int of = 0; of < 4; of++) {
        check_cache(problem_of(of, 2, 128, 128, false));
        check_cache(problem_of(of, 3, 64, 96, false));
        check_cache(problem_of(of, 1, 576, 512, true));
        check_cache(problem_of(of, 1, 288, 256, false));
        check_turned(problem_of(of, 2, 128, 128, false), {8, 128, false, false});
        check_turned(problem_of(of, 3, 64, 96, false), {0, 32, true, false});
        check_turned(problem_of(of, 40, 32, 32, false), {40, 32, false, false});
    }
    return closing();
}
