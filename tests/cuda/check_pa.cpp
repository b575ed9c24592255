// check_pa.cpp: the kernels of kernels/cuda/pa.cu on the emulated machine, against softmax in f64 over what the cache
// means; rows alone, in other chunks and by other kernels, bit for bit; then with one thing wrong, which must be found.
#include "kernels/cuda/pa.h"
#include "tests/cuda/check.h"
#include "formats/elem.h"

typedef void pa_kernel(const void *);
#define DECLARED(name, dk, dv, type, wm, wc, blocks, places) extern "C" pa_kernel name;
LQ_PA_KERNELS(DECLARED)
#define ENTRY(name, dk, dv, type, wm, wc, blocks, places) {#name, name},
static const struct { const char *name; pa_kernel *kernel; } kernels[] = {LQ_PA_KERNELS(ENTRY)};
enum { SMS = 132, TIGHT = 99 << 10 };
static int room = emu::MOST_SHARED; // of a block: kernels are picked by it

// Sequences in a cache, with a query for each position; which of them are asked, and how, is a batch.
struct problem {
    lq_dtype type;
    int dk, dv, heads, kv_heads, page, stride; // stride: of the table
    bool latent;
    float scale, softcap;
    int window, chunk;
    bool sinks, alibi, coarse;
    std::vector<int> length;         // [seqs]
    std::vector<int32_t> tables;     // [seqs][stride]
    std::vector<unsigned char> data; // [blocks][block]
    std::vector<float> scales, head_scales, sink, slope;
    std::vector<uint16_t> q;         // [seqs][most positions][heads * dk]
    int most;
    std::vector<int> tree_base;      // [seqs], or empty
    std::vector<uint64_t> tree;      // [seqs][64]
};

struct span { int seq, from, count; };

static size_t element(const problem &p) { return p.type == LQ_BF16 ? 2 : 1; }
static size_t v_begin(const problem &p) { return p.latent ? 0 : (size_t)p.page * p.dk; }
static size_t both(const problem &p) { return (size_t)p.page * (p.latent ? p.dk : p.dk + p.dv); }

// Where element d of K or V stands, in elements of the cache; -1: its block was freed.
static int64_t place_of(const problem &p, int seq, int head, bool v, int j, int d) {
    const int block = p.tables[(size_t)seq * p.stride + j / p.page];
    if (block < 0) return -1;
    const int width = v && !p.latent ? p.dv : p.dk;
    return (int64_t)(((size_t)block * p.kv_heads + head) * both(p) + (v ? v_begin(p) : 0)) + j % p.page * width + d;
}

static size_t scale_at(const problem &p, int seq, int head, bool v, int j) {
    const size_t block = (size_t)p.tables[(size_t)seq * p.stride + j / p.page];
    return ((block * p.kv_heads + head) * 2 + (v && !p.latent)) * p.page + j % p.page;
}

static double value(const problem &p, int seq, int head, bool v, int j, int d) {
    const int64_t at = place_of(p, seq, head, v, j, d);
    if (at < 0) return 0;
    const unsigned char *x = &p.data[(size_t)at * element(p)];
    if (p.type == LQ_BF16) return of_bf16((uint16_t)(x[0] | x[1] << 8));
    if (p.type == LQ_I8) return (double)(int8_t)*x * p.scales[scale_at(p, seq, head, v, j)];
    return (double)lq_e4m3_widen(*x) * p.head_scales[head * 2 + (v && !p.latent)];
}

static void put(problem &p, int seq, int head, bool v, int j, int d, float x) {
    unsigned char *to = &p.data[(size_t)place_of(p, seq, head, v, j, d) * element(p)];
    if (p.type == LQ_BF16) to[0] = (unsigned char)to_bf16(x), to[1] = (unsigned char)(to_bf16(x) >> 8);
    else if (p.type == LQ_I8) *to = (unsigned char)(int8_t)rintf(x * 127);
    else *to = (unsigned char)lq_e4m3_narrow(x * 100);
}

// Blocks in a random order; whatever no position has written yet is no number.
static problem problem_of(lq_dtype type, int dk, int dv, int heads, int kv_heads, int page, std::vector<int> length) {
    problem p = {};
    p.type = type, p.dk = dk, p.dv = dv, p.heads = heads, p.kv_heads = kv_heads, p.page = page;
    p.latent = dk == 576 || dk == 80;
    p.latent = p.latent && dv < dk;
    p.scale = 1 / sqrtf((float)dk);
    p.length = length;
    for (int n : length) p.most = n > p.most ? n : p.most;
    p.stride = (p.most + page - 1) / page + 1;
    std::vector<int> free;
    for (int i = 0; i < (int)length.size() * p.stride; i++) free.push_back(i);
    p.data.assign(free.size() * p.kv_heads * both(p) * element(p), type == LQ_BF16 ? 0xff : 0x7f);
    p.scales.assign(free.size() * p.kv_heads * 2 * page, NAN);
    for (int i = 0; i < 2 * kv_heads; i++) p.head_scales.push_back(0.01f + 0.005f * fabsf(uniform()));
    for (int i = 0; i < heads; i++) {
        p.sink.push_back(2 * uniform());
        p.slope.push_back(0.01f * fabsf(uniform()));
    }
    p.tables.assign(length.size() * p.stride, 0x7fffffff);
    for (int s = 0; s < (int)length.size(); s++)
        for (int b = 0; b * page < length[(size_t)s]; b++) {
            const size_t pick = (size_t)below((int)free.size());
            p.tables[(size_t)s * p.stride + b] = free[pick];
            free.erase(free.begin() + (long)pick);
        }
    for (int s = 0; s < (int)length.size(); s++)
        for (int j = 0; j < length[(size_t)s]; j++)
            for (int h = 0; h < kv_heads; h++) {
                const float size = j % 37 == 5 ? 4.0f : 1.0f; // some scores stand out
                for (int d = 0; d < dk; d++) put(p, s, h, false, j, d, (type == LQ_BF16 ? size : 1) * uniform());
                for (int d = 0; d < dv && !p.latent; d++) put(p, s, h, true, j, d, uniform());
                for (int v = 0; v < 2; v++) p.scales[scale_at(p, s, h, v, j)] = 0.005f + 0.005f * fabsf(uniform());
            }
    for (size_t i = 0; i < length.size() * p.most * heads * dk; i++) p.q.push_back(to_bf16(2 * uniform()));
    return p;
}

struct answer {
    std::vector<uint16_t> y; // [rows][heads * dv], without what stands between rows
    bool padding;            // rows behind the last are 0
    emu::result got;
};

enum how_many { FEW, FEW_APART, MANY, PLANNED };

// The rows of a batch, and `pad` of nobody.
struct rows_of {
    int rows, most; // most: the largest position
    std::vector<int32_t> seq, pos, first, slot, base;
    std::vector<uint64_t> tree;
    std::vector<uint16_t> q;
};

static rows_of listed(const problem &p, const std::vector<span> &batch, int pad) {
    rows_of r = {};
    const int wide = p.heads * p.dk;
    r.first = {0};
    for (const span &s : batch) {
        for (int i = 0; i < s.count; i++) {
            const int at = s.from + i;
            r.seq.push_back((int)r.slot.size());
            r.pos.push_back(at);
            r.most = at > r.most ? at : r.most;
            const uint16_t *from = &p.q[((size_t)s.seq * p.most + at) * wide];
            r.q.insert(r.q.end(), from, from + wide);
            r.q.insert(r.q.end(), 16, 0x7fc0);
            if (!p.tree_base.empty())
                r.tree.push_back(at < p.tree_base[s.seq] ? 0 : p.tree[(size_t)s.seq * 64 + at - p.tree_base[s.seq]]);
        }
        r.slot.push_back(s.seq);
        r.base.push_back(p.tree_base.empty() ? 0 : p.tree_base[s.seq]);
        r.first.push_back((int)r.seq.size());
    }
    r.rows = (int)r.seq.size();
    for (int i = 0; i < pad; i++) {
        r.seq.push_back(0), r.pos.push_back(0), r.tree.push_back(0);
        r.q.insert(r.q.end(), wide + 16, 0x7fc0);
    }
    return r;
}

static void arranged(const problem &p, const rows_of &of, lq_rows &r, lq_attn_args &a) {
    const int wide = p.heads * p.dk, n = (int)of.seq.size();
    r = {};
    r.n = n, r.seqs = (int)of.slot.size();
    r.seq = (int32_t *)weights_of(of.seq, "seq");
    r.pos = (int32_t *)weights_of(of.pos, "pos");
    r.at = r.pos;
    r.first = (int32_t *)weights_of(of.first, "first");
    r.slot = (int32_t *)weights_of(of.slot, "slot");
    r.tables = (int32_t *)weights_of(p.tables, "tables");
    r.table_stride = p.stride;
    if (!p.tree_base.empty()) {
        r.tree = (uint64_t *)weights_of(of.tree, "tree");
        r.tree_base = (int32_t *)weights_of(of.base, "tree_base");
    }
    a = {};
    a.q = {input_of(of.q, "q"), LQ_BF16, n, wide, (size_t)wide + 16};
    const size_t y_stride = (size_t)p.heads * p.dv + 16;
    a.y = {emu::output((size_t)n * y_stride * 2, "y"), LQ_BF16, n, p.heads * p.dv, y_stride};
    a.cache = {p.type, input_of(p.data, "cache"), NULL, p.page, p.kv_heads, p.dk, p.dv,
               (size_t)p.kv_heads * both(p) * element(p), p.latent};
    if (p.type == LQ_I8) a.cache.scale = (float *)input_of(p.scales, "scales");
    if (p.type == LQ_E4M3) a.cache.scale = (float *)weights_of(p.head_scales, "head scales");
    a.heads = p.heads, a.scale = p.scale, a.softcap = p.softcap, a.window = p.window, a.chunk = p.chunk;
    a.sinks = p.sinks ? (float *)input_of(p.sink, "sinks") : NULL;
    a.alibi = p.alibi ? (float *)input_of(p.slope, "alibi") : NULL;
    a.alibi_coarse = p.coarse;
    a.max_at = of.most;
    check(lq_pa_fits(&a, room), "d %d: does not fit", p.dk);
}

static answer run(const problem &p, const std::vector<span> &batch, how_many which, const emu::options &how,
                  int pad = 0) {
    emu::reset();
    const rows_of of = listed(p, batch, pad);
    const int rows = of.rows, n = rows + pad, most = of.most, y_stride = p.heads * p.dv + 16;
    lq_rows r;
    lq_attn_args a;
    arranged(p, of, r, a);
    lq_pa_launch launches[2];
    int count = 1;
    const int splits = lq_pa_splits(most);
    if (which == PLANNED) count = lq_pa_plan(&a, &r, NULL, SIZE_MAX, room, SMS, launches);
    else launches[0] = lq_pa_launch_of(&a, &r, lq_pa_pick(&a.cache, which == MANY, room));
    if (which == FEW_APART) launches[0].y = (unsigned)splits;
    for (int i = 0; i < count; i++) {
        lq_pa_launch &l = launches[i];
        if (l.y == 1) continue;
        l.args.parts = (float *)emu::output((size_t)l.x * l.y * (size_t)lq_pa_kernel_of(l.id).item * 4, "parts");
        l.args.arrived = (uint32_t *)emu::state(l.x * 4, "arrived");
    }
    answer out;
    for (int i = 0; i < count; i++) {
        const lq_pa_launch &l = launches[i];
        const lq_pa_kernel k = lq_pa_kernel_of(l.id);
        out.got = emu::launch(dim3(l.x, l.y), dim3((unsigned)k.threads), (size_t)k.shared, how,
                              [&] { kernels[l.id].kernel(&l.args); });
        const size_t found = out.got.findings.size();
        if (!check(!found || how.wrong, "%s: %zu findings", kernels[l.id].name, found)) out.got.print();
    }
    const uint16_t *y = (const uint16_t *)a.y.p;
    for (int i = 0; i < rows; i++, y += y_stride) out.y.insert(out.y.end(), y, y + p.heads * p.dv);
    out.padding = true;
    for (int i = rows; i < n; i++, y += y_stride)
        for (int c = 0; c < p.heads * p.dv; c++) out.padding &= y[c] == 0;
    check(emu::zones_whole(), "d %d: wrote between the buffers", p.dk);
    return out;
}

// --- the reference ---

static bool seen(const problem &p, int seq, int at, int j) {
    if (j > at) return false;
    if (!p.tree_base.empty() && j >= p.tree_base[seq])
        return p.tree[(size_t)seq * 64 + at - p.tree_base[seq]] >> (j - p.tree_base[seq]) & 1;
    return (!p.window || j > at - p.window) && (!p.chunk || j / p.chunk == at / p.chunk);
}

struct weighed { std::vector<int> j; std::vector<double> w; double off; }; // off: relatively, of a weight

// An error of a score is one of its weight, times ln 2 in base 2. A step of 16 columns rounds 2^-22 of the sum of
// absolute terms; the score itself twice more, tanh by 2^-21 (exp2 and its reciprocal within 2^-22), a bias once more.
// Then exp2 (2^-22), and two roundings for each tile and split in which a maximum can change; to bf16 2^-8.
static weighed weigh(const problem &p, int seq, int at, int head) {
    weighed out = {};
    const int group = p.heads / p.kv_heads;
    double max = -INFINITY, sum = 0, off = 0;
    for (int j = 0; j <= at; j++) {
        if (!seen(p, seq, at, j)) continue;
        const uint16_t *q = &p.q[(((size_t)seq * p.most + at) * p.heads + head) * p.dk];
        double s = 0, size = 0;
        for (int d = 0; d < p.dk; d++) {
            const double t = of_bf16(q[d]) * value(p, seq, head / group, false, j, d);
            s += t;
            size += fabs(t);
        }
        s *= (double)p.scale;
        double e = (p.dk / 16 + 2) * 0x1p-22 * size * (double)p.scale;
        if (p.softcap != 0) {
            s = (double)p.softcap * tanh(s / (double)p.softcap);
            e += 0x1p-20 * (double)p.softcap;
        }
        if (p.alibi) {
            const float slope = p.slope[(size_t)head], coarse = of_bf16(to_bf16(slope * of_bf16(to_bf16((float)j))));
            const double b = p.coarse ? (double)p.scale * coarse : (double)slope * (j - at);
            s += b;
            e += 0x1p-22 * fabs(b);
        }
        off = fmax(off, e + 4 * 0x1p-24 * fabs(s));
        out.j.push_back(j);
        out.w.push_back(s);
        max = fmax(max, s);
    }
    if (p.sinks) max = fmax(max, (double)p.sink[(size_t)head]);
    for (double &w : out.w) sum += w = exp(w - max);
    if (p.sinks) sum += exp((double)p.sink[(size_t)head] - max);
    for (double &w : out.w) w /= sum;
    out.off = 2 * off + (3 + 2 * (at / 64 + at / LQ_SPLIT + 2)) * 0x1p-23 + 0x1p-8;
    return out;
}

// The sum in f64, and its bound: what weights are off moves y by that share of |v - y| (their own sum is off with them,
// a sink's part is not: |y|); products and their sums; I8: V rounded to bf16; the quotient and the output.
static bool near(const problem &p, int seq, int at, int head, const weighed &w, int d, uint16_t got, double *share) {
    double y = 0, size = 0, apart = 0;
    std::vector<double> v;
    for (size_t i = 0; i < w.j.size(); i++) {
        v.push_back(value(p, seq, head / (p.heads / p.kv_heads), true, w.j[i], d));
        y += w.w[i] * v[i];
        size += w.w[i] * fabs(v[i]);
    }
    for (size_t i = 0; i < v.size(); i++) apart += w.w[i] * fabs(v[i] - y);
    const double steps = at / 16 + 2 * (at / LQ_SPLIT) + 8;
    const double bound = 1.02 * (w.off * (apart + (p.sinks ? fabs(y) : 0)) + steps * 0x1p-22 * (size + fabs(y)) +
                                 (p.type == LQ_I8 ? 0x1p-8 * size : 0) + 0x1p-8 * fabs(y)) + 0x1p-120;
    const double error = fabs(of_bf16(got) - y);
    *share = fmax(*share, error / bound);
    return error <= bound;
}

static double worst;

static bool agrees(const problem &p, const std::vector<span> &batch, const answer &r, double *share, int every = 1) {
    size_t row = 0;
    bool right = r.padding;
    for (const span &s : batch)
        for (int i = 0; i < s.count; i++, row++) {
            if (row % every) continue;
            for (int h = 0; h < p.heads; h++) {
                const weighed w = weigh(p, s.seq, s.from + i, h);
                for (int d = 0; d < p.dv; d++)
                    right &= near(p, s.seq, s.from + i, h, w, d, r.y[(row * p.heads + h) * p.dv + d], share);
            }
        }
    return right;
}

// --- laws ---

static uint16_t *row_at(const problem &p, answer &r, int row) { return &r.y[(size_t)row * p.heads * p.dv]; }

static bool same(const problem &p, answer &a, int row, answer &b, int of) {
    return !memcmp(row_at(p, a, row), row_at(p, b, of), (size_t)p.heads * p.dv * 2);
}

static emu::options schedule() {
    emu::options how;
    how.seed = random_bits();
    how.resident = 1 + (unsigned)below(4);
    return how;
}

// Of global memory what moves 16 bytes a lane; a row's scales end where they end. A warp's 16 bytes a lane are four
// passes over the banks, however few lanes there are.
static void counted(const problem &p, const emu::result &got, const char *name) {
    double global = 0, shared = 0;
    for (const emu::counter &c : got.counters) {
        const double least = (double)(c.shared && c.bytes == 16 && c.least < 4 * c.requests ? 4 * c.requests : c.least);
        double &worse = c.shared ? shared : global;
        if (least > 0 && (c.shared || (c.bytes == 16 && p.type != LQ_I8))) worse = fmax(worse, (double)c.moved / least);
    }
    check(global <= 1 && shared <= 1, "%s: %.2f passes and %.2f sectors of the least", name, shared, global);
}

// A prompt by `many`, cut otherwise by `few`, its splits apart, in a batch beside others, as the plan would, and rows
// alone: all of them against each other, and some against f64.
static void check_shape(problem &p, const char *name, bool harmless = true) {
    const int n = p.length[0], seqs = (int)p.length.size();
    std::vector<span> batch = {{0, n > 150 ? n - 150 : 0, n > 150 ? 150 : n}};
    const int from = batch[0].from;
    lq_cache of = {p.type, NULL, NULL, p.page, p.kv_heads, p.dk, p.dv, 0, p.latent};
    answer whole = run(p, batch, lq_pa_pick(&of, true, room) >= 0 ? MANY : FEW, schedule());
    check(agrees(p, batch, whole, &worst, 41), "%s: a prompt differs from f64", name);
    if (harmless) counted(p, whole.got, name);
    const int cut = from + 1 + below(n - from - 2);
    std::vector<span> pieces = {{0, cut, n - cut}};
    for (int s = 1; s < seqs; s++) pieces.push_back({s, p.length[(size_t)s] - 1, 1});
    answer few = run(p, pieces, FEW, schedule(), 3);
    answer apart = run(p, pieces, FEW_APART, schedule());
    answer planned = run(p, pieces, PLANNED, schedule(), 2);
    check(agrees(p, pieces, few, &worst, 29) && planned.padding, "%s: pieces differ from f64", name);
    if (harmless) counted(p, apart.got, name);
    check(few.y == apart.y, "%s: splits apart have other bits than walked ones", name);
    check(few.y == planned.y, "%s: what is planned has other bits", name);
    bool equal = true;
    for (int i = cut; i < n; i++) equal &= same(p, whole, i - from, few, i - cut);
    check(equal, "%s: a prompt cut at %d has other bits", name, cut);
    for (int s = 1; s < seqs; s++) {
        answer one = run(p, {{s, p.length[(size_t)s] - 1, 1}}, FEW_APART, schedule());
        check(same(p, one, 0, few, n - cut + s - 1), "%s: sequence %d has other bits alone", name, s);
    }
    answer one = run(p, {{0, cut, 1}}, FEW_APART, schedule());
    check(same(p, one, 0, whole, cut - from), "%s: row %d has other bits alone", name, cut);
}

// V is 1, or one position has all the weight there is: y is known to the bit. Where blocks stand decides nothing.
static void check_exact(problem p, const char *name) {
    const problem before = p;
    const int n = p.length[0];
    const std::vector<span> batch = {{0, n - 3, 3}};
    if (p.type == LQ_BF16 && !p.latent) {
        for (int j = 0; j < n; j++)
            for (int h = 0; h < p.kv_heads; h++)
                for (int d = 0; d < p.dv; d++) put(p, 0, h, true, j, d, 1);
        bool one = true;
        for (uint16_t y : run(p, batch, FEW_APART, schedule()).y) one &= fabsf(of_bf16(y) - 1) <= 0x1p-8f;
        check(one, "%s: V of ones does not give 1", name);
    }
    p = before;
    p.window = 1;
    answer r = run(p, batch, FEW, schedule());
    bool equal = true;
    for (int i = 0; i < 3; i++)
        for (int h = 0; h < p.heads; h++)
            for (int d = 0; d < p.dv; d++) {
                const float v = (float)value(p, 0, h / (p.heads / p.kv_heads), true, n - 3 + i, d);
                equal &= row_at(p, r, i)[h * p.dv + d] == to_bf16(v);
            }
    check(equal, "%s: a single position does not give its V", name);
    p = before;
    answer here = run(p, batch, FEW, schedule());
    const size_t bytes = (size_t)p.kv_heads * both(p) * element(p), scales = (size_t)p.kv_heads * 2 * p.page;
    int32_t &a = p.tables[0], &b = p.tables[1];
    std::swap_ranges(p.data.begin() + a * bytes, p.data.begin() + (a + 1) * bytes, p.data.begin() + b * bytes);
    std::swap_ranges(p.scales.begin() + a * scales, p.scales.begin() + (a + 1) * scales, p.scales.begin() + b * scales);
    std::swap(a, b);
    check(run(p, batch, FEW, schedule()).y == here.y, "%s: other bits with pages elsewhere", name);
}

// A position that is no number, or infinite: rows that do not see it keep their bits.
static void check_spoilt(problem p, const char *name) {
    const int n = p.length[0], at = n - 20;
    const std::vector<span> batch = {{0, n - 40, 40}};
    for (how_many which : {FEW, MANY}) {
        lq_cache of = {p.type, NULL, NULL, p.page, p.kv_heads, p.dk, p.dv, 0, p.latent};
        if (lq_pa_pick(&of, which == MANY, room) < 0) continue;
        problem bad = p;
        answer good = run(p, batch, which, schedule());
        const bool i8 = p.type == LQ_I8;
        for (int h = 0; h < p.kv_heads; h++) {
            if (i8) bad.scales[scale_at(bad, 0, h, true, at)] = NAN;
            else put(bad, 0, h, true, at, 3, NAN);
            if (p.type == LQ_BF16) put(bad, 0, h, true, at, 5, INFINITY);
        }
        answer r = run(bad, batch, which, schedule());
        bool held = true;
        for (int i = 0; i < 40; i++) {
            const bool hit = seen(p, 0, n - 40 + i, at);
            if (!hit) held &= same(p, r, i, good, i);
            else held &= isnan(of_bf16(row_at(p, r, i)[3]));
            if (hit && p.type == LQ_BF16) held &= !isfinite(of_bf16(row_at(p, r, i)[5]));
            if (hit && !i8) held &= row_at(p, r, i)[4] == row_at(p, good, i)[4];
        }
        check(held, "%s: a number that is none has left its rows", name);
    }
}

// --- what is done wrong must be found, by what looks for it ---

static void check_harm(const problem &p, how_many which, const char *name) {
    const std::vector<span> batch = {{1, p.length[1] - 3, 3}, {0, 20, 1}};
    answer right = run(p, batch, which, emu::options());
    for (void *at : right.got.barriers) {
        bool found = false;
        for (unsigned seed = 1; seed <= 3 && !found; seed++) {
            emu::options how;
            how.seed = seed;
            how.wrong = emu::NO_BARRIER;
            how.at = at;
            const emu::result r = run(p, batch, which, how).got;
            found = r.has(emu::RACE) || r.has(emu::BLOCK_RACE) || r.has(emu::UNINITIALISED);
        }
        check(found, "%s: a barrier less: no race found", name);
    }
    const struct { emu::harm wrong; emu::kind kind; bool apart; } harms[] = {
        {emu::WEAK_WAIT, emu::IN_FLIGHT, false},     {emu::LOST_LANE, emu::DIVERGED, false},
        {emu::NO_PDL_WAIT, emu::BEFORE_WAIT, false}, {emu::NO_WRAP, emu::STATE_LEFT, true},
        {emu::NO_BARRIER, emu::BLOCK_RACE, true},
    };
    for (const auto &h : harms) {
        if (h.apart && which != FEW_APART) continue;
        for (size_t i = 0; i < (h.kind == emu::BLOCK_RACE ? right.got.fences.size() : 1); i++) {
            bool found = false;
            emu::options how;
            how.wrong = h.wrong;
            how.at = h.kind == emu::BLOCK_RACE ? right.got.fences[i] : NULL;
            for (how.seed = 1; how.seed <= 3 && !found; how.seed++) found = run(p, batch, which, how).got.has(h.kind);
            check(found, "%s: no finding \"%s\"", name, emu::kind_names[h.kind]);
        }
    }
    // The reference notices a query, a position and a weight that are wrong.
    double unused = 0;
    answer r = run(p, batch, which, emu::options());
    problem other = p;
    other.q[((size_t)p.most + p.length[1] - 2) * p.heads * p.dk + 5] ^= 0x8000;
    check(agrees(p, batch, r, &unused) && !agrees(other, batch, r, &unused), "%s: a wrong query is not noticed", name);
    other = p;
    other.window = p.length[1] - 5;
    check(!agrees(other, batch, r, &unused), "%s: a position more is not noticed", name);
    r.y[(size_t)p.dv + 7] = to_bf16(of_bf16(r.y[(size_t)p.dv + 7]) + 0.02f); // of numbers up to 1
    check(!agrees(p, batch, r, &unused), "%s: a number 0.02 off is not noticed", name);
}

// Launches cover every tile whatever the sequences, and stay within the workspace.
static void check_plans() {
    for (int n = 1; n < 3000; n = n * 3 / 2 + 1)
        for (int seqs = 1; seqs <= n && seqs <= 512; seqs = seqs * 2 + 1)
            for (int heads : {8, 40, 128})
                for (int max_at : {5, 3000, 131071}) {
                    lq_rows r = {};
                    lq_attn_args a = {};
                    r.n = n, r.seqs = seqs;
                    a.heads = heads, a.max_at = max_at;
                    a.cache = {LQ_BF16, NULL, NULL, 16, heads == 40 ? 40 : 4, 128, 128, 0, false};
                    const int group = heads / a.cache.kv_heads;
                    const lq_dev_limits l = {n, 1, 1, 1, heads, 128, max_at, 1, 1};
                    const size_t work = lq_pa_workspace(&l, SMS);
                    lq_pa_launch out[2];
                    const int count = lq_pa_plan(&a, &r, (void *)64, work, room, SMS, out);
                    bool right = out[0].args.blank && (count == 1 || !out[1].args.blank);
                    // all rows in one sequence, or as even as can be
                    for (int each : {1, (n + seqs - 1) / seqs, n - seqs + 1}) {
                        for (int i = 0; i < count; i++) {
                            const lq_pa_kernel k = lq_pa_kernel_of(out[i].id);
                            int left = n, tiles = 0;
                            for (int s = 0; s < seqs && left; s++) {
                                const int m = (each < left ? each : left) * group;
                                left -= each < left ? each : left;
                                if (m >= out[i].args.least && m <= out[i].args.most) tiles += (m + k.rows - 1) / k.rows;
                            }
                            right &= (size_t)tiles * (size_t)a.cache.kv_heads <= out[i].x;
                            const size_t items = (size_t)out[i].x * out[i].y * (size_t)k.item * 4;
                            right &= out[i].y == 1 || items + LQ_PA_COUNTERS * 4 <= work;
                        }
                    }
                    right &= count == 1 || (out[1].args.most + 1 == out[0].args.least);
                    check(right, "n %d seqs %d heads %d max_at %d: a plan leaves rows out", n, seqs, heads, max_at);
                }
}

static uint64_t ancestors(const std::vector<int> &parent, int node) {
    return 1ull << node | (parent[(size_t)node] < 0 ? 0 : ancestors(parent, parent[(size_t)node]));
}

int main(int argc, char **argv) {
    struct shape { const char *name; lq_dtype type; int dk, dv, heads, kv_heads, page; std::vector<int> length; };
    const shape shapes[] = {
        {"64 bf16", LQ_BF16, 64, 64, 3, 1, 32, {170, 520, 7}},     {"96 bf16", LQ_BF16, 80, 96, 2, 2, 16, {90, 70}},
        {"128 bf16", LQ_BF16, 128, 128, 4, 2, 16, {190, 600, 65}}, {"192 bf16", LQ_BF16, 192, 128, 2, 1, 64, {75, 66}},
        {"256 bf16", LQ_BF16, 256, 256, 2, 1, 16, {70, 66}},       {"mla bf16", LQ_BF16, 576, 512, 20, 1, 16, {70, 66}},
        {"64 i8", LQ_I8, 64, 64, 17, 1, 16, {72, 64}},             {"128 i8", LQ_I8, 112, 128, 2, 1, 64, {192, 600}},
        {"256 i8", LQ_I8, 256, 256, 2, 1, 16, {72, 64}},           {"64 e4m3", LQ_E4M3, 48, 64, 2, 1, 32, {130, 70}},
        {"128 e4m3", LQ_E4M3, 128, 128, 2, 2, 16, {130, 600}},     {"256 e4m3", LQ_E4M3, 256, 240, 2, 1, 16, {70, 66}},
        {"mla e4m3", LQ_E4M3, 576, 512, 3, 1, 16, {70, 66}},
    };
    check_plans();
    for (const shape &s : shapes) {
        if (argc > 1 && !strstr(s.name, argv[1])) continue;
        problem p = problem_of(s.type, s.dk, s.dv, s.heads, s.kv_heads, s.page, s.length);
        check_shape(p, s.name);
        check_exact(p, s.name);
        if (s.dk == 64 || s.dk == 128 || s.dk == 192) check_spoilt(p, s.name);
    }
    for (const shape &s : shapes) { // where a block has 99 KB
        lq_cache of = {s.type, NULL, NULL, s.page, s.kv_heads, s.dk, s.dv, 0, s.dk > 256};
        if ((argc > 1 && !strstr("tight", argv[1])) || lq_pa_pick(&of, false, TIGHT) < 0 ||
            (lq_pa_pick(&of, true, TIGHT) == lq_pa_pick(&of, true, room) &&
             lq_pa_pick(&of, false, TIGHT) == lq_pa_pick(&of, false, room))) continue;
        problem p = problem_of(s.type, s.dk, s.dv, s.heads, s.kv_heads, s.page, s.length);
        const std::vector<span> batch = {{0, 20, p.length[0] - 20}};
        const how_many which = lq_pa_pick(&of, true, TIGHT) < 0 ? FEW : MANY;
        const answer wide = run(p, batch, which, schedule());
        room = TIGHT;
        check(run(p, batch, which, schedule()).y == wide.y, "%s: other bits where there is less room", s.name);
        check_shape(p, s.name);
        check_exact(p, s.name);
        if (!of.v_in_k) check_spoilt(p, s.name);
        if (emu::watched && s.dk == 128) check_harm(problem_of(s.type, 128, 128, 2, 1, 16, {30, 150}), MANY, s.name);
        room = emu::MOST_SHARED;
    }
    struct option { const char *name; void (*set)(problem &); } options[] = {
        {"window", [](problem &p) {
            p.window = 70;
            for (int b = 0; b < (600 - 100) / p.page; b++) p.tables[(size_t)p.stride + b] = -1; // freed behind it
        }},
        {"chunk", [](problem &p) { p.chunk = 48; }},
        {"softcap", [](problem &p) { p.softcap = 5, p.scale *= 8; }},
        {"sinks", [](problem &p) { p.sinks = true; }},
        {"alibi", [](problem &p) { p.alibi = true; }},
        {"alibi as in Falcon", [](problem &p) { p.alibi = p.coarse = true, p.softcap = 20; }},
        {"tree", [](problem &p) {
            for (int s = 0; s < 2; s++) {
                p.tree_base.push_back(p.length[(size_t)s] - 24);
                std::vector<int> parent;
                for (int i = 0; i < 24; i++) parent.push_back(i ? below(i) : -1);
                for (int i = 0; i < 64; i++) p.tree.push_back(i < 24 ? ancestors(parent, i) : 0);
            }
        }},
    };
    for (const option &o : options) {
        if (argc > 1 && !strstr(o.name, argv[1])) continue;
        problem p = problem_of(LQ_BF16, 64, 64, 4, 2, 16, {130, 600});
        o.set(p);
        check_shape(p, o.name);
        check_spoilt(p, o.name);
    }
    if (emu::watched && (argc == 1 || !strcmp(argv[1], "harm")))
        for (lq_dtype type : {LQ_BF16, LQ_I8}) {
            const problem p = problem_of(type, 64, 64, 2, 1, 16, {30, 700});
            check_harm(p, FEW_APART, "few");
            check_harm(p, MANY, "many");
        }
    printf("worst error %.3f of its bound\n", worst);
    return closing();
}
