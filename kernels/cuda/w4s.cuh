// w4s.cuh: y = x W^T (+ bias) for tokens of bf16 and packed weights; for each token alone, or for the slots of experts.
// The kernels are instantiated in w4s.cu; the host's side is w4s.h, what codes are is w4s_codes.cuh.
//
// Weights are operand A of mma (16 rows of outputs), tokens operand B (8 columns). A code less its zero point is exact
// in bf16; a group's sum meets its scale in f32. A block of 8 warps makes 64 or 128 outputs of T tokens: warp w has one
// or two blocks of 16 rows, w % 4 on, and of each step of 256 columns the half w / 4. Weights come by cp.async into a
// ring, each lane's 16 bytes to the lane that will read them; tokens and scales, which warps share, need the barrier.
//
// Sums, whatever T is: columns in order within a half, group by group; then the halves; then the cuts, from 0.
#ifndef LQ_W4S_CUH
#define LQ_W4S_CUH
#include "formats/elem.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/w4s.h"
#include "kernels/cuda/w4s_codes.cuh"

namespace w4s {
// The shape of a kernel: codes C, scales for each G columns (0: none), T tokens.
template <class C, int G, int T> struct shape {
    enum {
        BITS = C::BITS,
        ROWS = LQ_W4S_ROWS(BITS, T), // of a block of threads; BLOCKS: of 16 rows, of a warp; TILES: of 8 tokens
        BLOCKS = ROWS / 64,
        TILES = T / 8,
        UNIT = BITS == 4 || BITS == 8 ? 64 : 128,          // columns that lie together
        PIECE = 256 * BITS,                                // bytes of 16 rows x 128 columns
        X_AT = 8 * BLOCKS * PIECE,                         // tokens stand behind the weights of a stage
        X_PITCH = LQ_W4S_STEP * 2,                         // bytes of a token
        STAGE = LQ_W4S_STAGE(BITS, T),
        RING = LQ_W4S_STAGES(BITS, T) * STAGE,
        AHEAD = LQ_W4S_STAGES(BITS, T) - 1,
        PAIRS = ROWS / 2,                                  // of rows r and r + 8, which have one entry of a panel
        GROUPS = LQ_W4S_GROUPS(G, BITS, T),                // of a panel
        PANEL = GROUPS * PAIRS * 16,
        STEPS = GROUPS ? GROUPS * G / LQ_W4S_STEP : 1 << 20, // for which a panel has scales
        ENTRIES = GROUPS * PAIRS / LQ_W4S_THREADS,         // that a thread makes of a panel
        SUM_PITCH = ROWS + 4,                              // of a token's sums: 8 lanes x 4 tokens fall on 32 banks
        HALF_SUMS = LQ_W4S_HALF(BITS, T),
        KEPT = LQ_W4S_KEPT(BITS, T), KEPT_AT = RING + 2 * PANEL
    };
};

// What this block has: rows of one matrix, and tokens.
struct place {
    int one;           // the matrix
    int from, end;     // columns of this cut
    int first, tokens; // slots, in their order, and how many
    int expert;
};

// Where this thread stands: made anew where it is needed, so that it has no registers between.
struct thread {
    int index, lane, warp, half;
};

LQ_DEV thread here() {
    const int i = thread_again();
    return {i, i % WARP, i / WARP, i / WARP / 4};
}

// The matrix of this block of the grid.
LQ_DEV int one_found(const lq_w4s_args &a) {
    int one = 0;
    LQ_UNROLL
    for (int i = 1; i < LQ_W4S_JOINED; i++) one += i < a.joined && (int)blockIdx.x >= a.of[i].first;
    return one;
}

LQ_DEV const lq_w4s_one &one_of(const lq_w4s_args &a, const place &p) { return a.of[p.one]; }
LQ_DEV int block_of(const lq_w4s_args &a, const place &p) { return (int)blockIdx.x - one_of(a, p).first; }
LQ_DEV lq_w4s_matrix matrix_of(const lq_w4s_args &a, const place &p) {
    const lq_w4s_one &one = one_of(a, p);
    return one.experts ? one.experts[p.expert] : one.matrix;
}

LQ_DEV int stripes_of(int n) { return (n + LQ_W4S_STRIPE - 1) / LQ_W4S_STRIPE; }

// The first row of warp w.
template <class S> LQ_DEV int row_of(const lq_w4s_args &a, const place &p, int warp) {
    return block_of(a, p) * S::ROWS + warp % 4 * S::BLOCKS * 16;
}

LQ_DEV int slot_of(const lq_w4s_args &a, const place &p, int token) {
    const int s = p.first + token;
    return a.order ? (int)ld4(a.order + s) : s * a.count + p.expert;
}

LQ_DEV int least(int a, int b) { return a < b ? a : b; }

// --- copies into the ring ---

// The same place of the next stage. Weights' addresses go on by this instead of having a stage's offset added: a copy
// with an L2 policy to [register + what all lanes share] loses the latter's number in ptxas 13.0 for sm_90a, and is an
// illegal instruction then (sass.py: LOST).
template <class S> LQ_DEV smem stage_on(smem at) {
    const smem next = at + S::STAGE;
    return next >= smem_base() + S::RING ? next - S::RING : next;
}

// What a thread copies of the weights in a step: of each of its blocks of 16 rows its 16 bytes of each 512.
template <class S> struct weights_copier {
    enum { COPIES = S::PIECE / 512, TAIL = S::PIECE % 512 != 0, UNITS = 128 / S::UNIT, SIZE = S::UNIT * 2 * S::BITS };
    const unsigned char *from;
    smem to;       // in the stage that is next
    int left;      // units from the next to copy on
    l2_policy once;

    LQ_METHOD void begin(const lq_w4s_args &a, const place &p, smem ring) {
        const thread t = here();
        const int units = (a.k + S::UNIT - 1) / S::UNIT, row = row_of<S>(a, p, t.warp), stripe = row / LQ_W4S_STRIPE;
        const int unit = p.from / S::UNIT + t.half * UNITS;
        left = stripe < stripes_of(one_of(a, p).n) ? (p.end + S::UNIT - 1) / S::UNIT - unit : 0;
        from = (const unsigned char *)matrix_of(a, p).w +
               (((size_t)stripe * units + unit) * 4 + row % LQ_W4S_STRIPE / 16) * SIZE + t.lane * 16;
        to = ring + t.warp * (S::BLOCKS * S::PIECE) + t.lane * 16;
        once = l2_evict_first();
    }

    LQ_METHOD void copy() {
        LQ_UNROLL
        for (int i = 0; i < S::BLOCKS * COPIES; i++) {
            const int block = i / COPIES, part = i % COPIES, of = part * UNITS / COPIES;
            cp_async16(to + block * S::PIECE + part * 512,
                       from + (of * 4 + block) * SIZE + part % (COPIES / UNITS) * 512, of < left ? 16 : 0, once);
        }
        if (TAIL && threadIdx.x % WARP < 16) {
            LQ_UNROLL
            for (int i = 0; i < S::BLOCKS; i++)
                cp_async16(to + i * S::PIECE + COPIES * 512, from + i * SIZE + COPIES * 512, left > 0 ? 16 : 0,
                           once);
        }
        to = stage_on<S>(to);
        from += 2 * UNITS * 4 * SIZE;
        left -= 2 * UNITS;
    }
};

// Of rows of 16 bits half a warp copies 256 bytes of one.
template <class S> struct rows_copier {
    const unsigned char *from;
    size_t two; // bytes from a row to the next but one
    smem to;
    int rows, left; // of the matrix from this lane's first on; bytes of a row from its chunk on
    l2_policy once;

    LQ_METHOD void begin(const lq_w4s_args &a, const place &p, smem ring) {
        const thread t = here();
        const int row = row_of<S>(a, p, t.warp) + t.lane / 16, k = p.from + t.half * 128 + t.lane % 16 * 8;
        from = (const unsigned char *)matrix_of(a, p).w + ((size_t)row * a.k + k) * 2;
        two = (size_t)a.k * 4;
        to = ring + t.warp * S::PIECE + t.lane / 16 * 256 + (t.lane % 16 ^ t.lane / 16) * 16;
        rows = one_of(a, p).n - row;
        left = (p.end - k) * 2;
        once = l2_evict_first();
    }

    LQ_METHOD void copy() {
        const unsigned bytes = left >= 16 ? 16 : left > 0 ? (unsigned)left : 0;
        LQ_UNROLL
        for (int i = 0; i < 8; i++)
            cp_async16((to ^ i % 4 * 32) + i * 512, from + i * two, 2 * i < rows ? bytes : 0, once);
        to = stage_on<S>(to);
        from += LQ_W4S_STEP * 2;
        left -= LQ_W4S_STEP * 2;
    }
};

template <class C, class S> struct copier_of { typedef weights_copier<S> type; };
template <class S> struct copier_of<rows16, S> { typedef rows_copier<S> type; };

// Warp w copies tokens w, w + 8 and so on, each lane 16 bytes; chunks are turned by the token.
template <class S> struct tokens_copier {
    const unsigned char *from;
    uint32_t at; // of token w + 8 (lane % 8), in 16 bytes
    smem to;
    int there, left; // of those tokens; bytes of each from this lane's on

    LQ_METHOD void begin(const lq_w4s_args &a, const place &p, smem ring) {
        const thread t = here();
        const int k = p.from + 8 * t.lane, i = S::TILES > 1 ? t.lane % 8 : 0;
        there = (p.tokens - t.warp + 7) / 8;
        from = (const unsigned char *)(a.x + k);
        const int slot = i < there ? slot_of(a, p, t.warp + 8 * i) : 0;
        at = (uint32_t)(a.top_k > 1 ? slot / a.top_k : slot) * (uint32_t)(a.x_stride / 8);
        to = ring + S::X_AT + t.warp * S::X_PITCH + (t.lane ^ t.warp) * 16;
        left = S::TILES > 1 || there ? (p.end - k) * 2 : 0;
    }

    LQ_METHOD void copy(smem stage) {
        const unsigned bytes = left >= 16 ? 16 : left > 0 ? (unsigned)left : 0;
        LQ_UNROLL
        for (int i = 0; i < S::TILES; i++) {
            const uint32_t of = S::TILES > 1 ? shfl(at, i) : at;
            cp_async16(stage + to + i * 8 * S::X_PITCH, from + (size_t)of * 16, S::TILES == 1 || i < there ? bytes : 0);
        }
        from += LQ_W4S_STEP * 2;
        left -= LQ_W4S_STEP * 2;
    }
};

// --- panels of scales: f32 and what zero points become, of every type in one form ---

struct raw { uint2 scale; uint32_t zero; };

// An entry of a panel: the scales of rows r and r + 8; -(128 + z) of each, twice; of 8 bits 128 - z.
template <class C, int G, class S> struct panels {
    enum { BETWEEN = LQ_W4S_THREADS / S::PAIRS }; // groups from one entry of a thread to the next
    const unsigned char *scale, *zero;
    lq_w4s_scale type;
    float by;  // which every scale is times
    int group; // of G columns, the next

    LQ_METHOD void begin(const lq_w4s_args &a, const place &p) {
        const lq_w4s_matrix m = matrix_of(a, p);
        scale = (const unsigned char *)m.scale;
        zero = (const unsigned char *)m.zero;
        type = m.scale_type;
        by = type == LQ_W4S_E4M3 ? float_of(ldg4(m.scale2)) : 1;
        group = p.from / G + here().index / S::PAIRS;
    }

    // The scales of rows r and r + 8, which lie side by side, or which other rows share.
    LQ_METHOD uint2 scales_read(const lq_w4s_args &a, int n, int of, int stripe, int pair) const {
        const int size = type == LQ_W4S_F32 ? 2 : type <= LQ_W4S_F16 ? 1 : 0; // 1 << size bytes
        if (a.share_shift) {
            const int row = least(stripe * 64 + pair / 8 * 16 + pair % 8, n - 1), next = least(row + 8, n - 1);
            const unsigned char *low = scale + (((size_t)(row >> a.share_shift) * a.groups + of) << size);
            const unsigned char *high = scale + (((size_t)(next >> a.share_shift) * a.groups + of) << size);
            if (size == 2) return {ldg4(low), ldg4(high)};
            return size ? uint2{ldg2(low), ldg2(high)} : uint2{ldg1(low), ldg1(high)};
        }
        const unsigned char *at = scale + ((((size_t)of * stripes_of(n) + stripe) * 64 + 2 * pair) << size);
        if (size == 2) return ldg8(at);
        const uint32_t two = size ? ldg4(at) : ldg2(at);
        return size ? uint2{two & 0xffff, two >> 16} : uint2{two & 0xff, two >> 8};
    }

    LQ_METHOD void read_one(raw &to, const lq_w4s_args &a, const place &p, int of, int stripe, int pair) const {
        const int n = one_of(a, p).n;
        of >>= a.group_shift;
        to = {{0, 0}, 0};
        if (stripe >= stripes_of(n) || of >= a.groups) return;
        to.scale = scales_read(a, n, of, stripe, pair);
        if (!C::ZEROS || !zero) return;
        const size_t block = (size_t)of * stripes_of(n) + stripe;
        if (S::BITS > 4) to.zero = ldg2(zero + block * 64 + 2 * pair);
        else to.zero = ldg4(zero + block * 32 + pair % 8 * 4) >> pair / 8 * 8;
    }

    LQ_METHOD void read(raw (&to)[S::ENTRIES], const lq_w4s_args &a, const place &p) {
        const int i0 = here().index, pair = i0 % 32, stripe = block_of(a, p) * (S::ROWS / 64) + i0 % S::PAIRS / 32;
        LQ_UNROLL
        for (int i = 0; i < S::ENTRIES; i++) read_one(to[i], a, p, group + i * BETWEEN, stripe, pair);
        group += S::GROUPS;
    }

    LQ_METHOD uint2 widened(uint2 v) const {
        float low = float_of(v.x), high = float_of(v.y);
        if (type == LQ_W4S_BF16) {
            low = bf16_low(v.x);
            high = bf16_low(v.y);
        } else if (type == LQ_W4S_F16) {
            low = f16_float(v.x);
            high = f16_float(v.y);
        } else if (type == LQ_W4S_E8M0) {
            low = lq_e8m0_widen(v.x);
            high = lq_e8m0_widen(v.y);
        } else if (type == LQ_W4S_E4M3) {
            low = lq_e4m3_widen(v.x) * by;
            high = lq_e4m3_widen(v.y) * by;
        }
        return {bits_of(low), bits_of(high)};
    }

    LQ_METHOD uint32_t minus(uint32_t z) const {
        if (S::BITS == 8) return (bits_of(128 - (float)(int)z) >> 16) * 0x10001u;
        return 0xc300c300u + z * 0x10001u;
    }

    LQ_METHOD uint4 entry_of(const raw &from) const {
        const uint32_t middle = 1u << (S::BITS - 1) % 8, mask = S::BITS > 4 ? 255 : 15;
        const uint32_t low = zero ? from.zero & mask : middle;
        const uint32_t high = zero ? from.zero >> (S::BITS > 4 ? 8 : 4) & mask : middle;
        const uint2 f32 = widened(from.scale);
        return {f32.x, f32.y, C::ZEROS ? minus(low) : 0, C::ZEROS ? minus(high) : 0};
    }

    LQ_METHOD void write(const raw (&from)[S::ENTRIES], smem panel) const {
        LQ_UNROLL
        for (int i = 0; i < S::ENTRIES; i++) {
            const uint4 entry = entry_of(from[i]);
            sts16(panel + (here().index + i * LQ_W4S_THREADS) * 16, entry);
        }
    }
};

// --- a step ---

template <class S> struct sums { float of[S::BLOCKS][S::TILES][4]; };

// Sums of a group's products are scaled and added; the next group begins at 0.
template <class S> LQ_DEV void group_ended(sums<S> &sum, sums<S> &part, const uint4 (&entry)[S::BLOCKS]) {
    LQ_UNROLL
    for (int r = 0; r < S::BLOCKS; r++)
        LQ_UNROLL
        for (int t = 0; t < S::TILES; t++)
            LQ_UNROLL
            for (int i = 0; i < 4; i++) {
                float *to = &sum.of[r][t][i];
                *to = fmaf(float_of(i < 2 ? entry[r].x : entry[r].y), part.of[r][t][i], *to);
                part.of[r][t][i] = 0;
            }
}

// What fragments need beside their codes: of integers the entry's zero points; else what the matrix says.
struct more {
    uint2 form;
    sixteen::table table;
};

template <int B> LQ_DEV uint2 more_of(const ints<B> &, const more &, const uint4 &entry) { return {entry.z, entry.w}; }
LQ_DEV const uint2 &more_of(const floats &, const more &m, const uint4 &) { return m.form; }
LQ_DEV const uint2 &more_of(const rows16 &, const more &m, const uint4 &) { return m.form; }
LQ_DEV const sixteen::table &more_of(const sixteen &, const more &m, const uint4 &) { return m.table; }

// Where a lane reads in a stage: its warp's weights; chunks of tokens, by which ldmatrix brings two steps of 16 columns
// of 8 tokens or one of 16; and its entries of a panel.
struct reader {
    smem w, x, entry;
    uint32_t turned;
};

template <class C, int G, class S> LQ_DEV reader reader_of(smem ring) {
    const thread t = here();
    const int l = t.lane, two = S::TILES > 1;
    reader r;
    r.w = ring + t.warp * (S::BLOCKS * S::PIECE);
    r.x = ring + S::X_AT + (l % 8 + (two ? l / 16 * 8 : 0)) * S::X_PITCH + t.half * 256;
    r.turned = (uint32_t)((two ? l / 8 % 2 : l / 8) ^ l % 8) * 16;
    r.entry = ring + S::RING + (t.half * 128 / (G ? G : 128) * S::PAIRS + t.warp % 4 * S::BLOCKS * 8 + l / 4) * 16;
    return r;
}

// 128 columns.
template <class C, int G, class S>
LQ_DEV void multiply_step(sums<S> &sum, sums<S> &part, const reader &at, smem stage, smem panel, int lane,
                          const more &m) {
    enum { GROUP = G ? G : 1 << 20 };
    C codes[S::BLOCKS];
    uint4 entry[S::BLOCKS];
    uint32_t b[4], a[S::BLOCKS][4];
    LQ_UNROLL
    for (int k16 = 0; k16 < 8; k16++) {
        if (k16 % 2 == 0) {
            LQ_UNROLL
            for (int r = 0; r < S::BLOCKS; r++) codes[r].load(stage + at.w + r * S::PIECE, lane, k16 / 2);
        }
        if (G && k16 * 16 % GROUP == 0) {
            LQ_UNROLL
            for (int r = 0; r < S::BLOCKS; r++)
                entry[r] = lds16(panel + at.entry + (k16 * 16 / GROUP * S::PAIRS + r * 8) * 16);
        }
        LQ_UNROLL
        for (int r = 0; r < S::BLOCKS; r++) codes[r].fragment(a[r], k16, more_of(codes[r], m, entry[r]));
        if (S::TILES == 1) {
            if (k16 % 2 == 0) ldmatrix_x4(b, stage + at.x + (k16 * 32 ^ at.turned));
            mma_bf16(part.of[0][0], a[0], b[k16 % 2 * 2], b[k16 % 2 * 2 + 1], part.of[0][0]);
        }
        LQ_UNROLL
        for (int t = 0; t + 1 < S::TILES; t += 2) {
            ldmatrix_x4(b, stage + at.x + t * 8 * S::X_PITCH + (k16 * 32 ^ at.turned));
            LQ_UNROLL
            for (int i = 0; i < 2 * S::BLOCKS; i++) {
                float(&to)[4] = part.of[i / 2][t + i % 2];
                mma_bf16(to, a[i / 2], b[i % 2 * 2], b[i % 2 * 2 + 1], to);
            }
        }
        if (G && (k16 + 1) * 16 % GROUP == 0) group_ended<S>(sum, part, entry);
    }
}

// The loop over the columns of a cut; leaves a warp's sums of its halves.
template <class C, int G, class S> LQ_DEV void multiply(sums<S> &sum, const lq_w4s_args &a, const place &p, smem ring) {
    enum { EARLY = S::TILES <= 2 }; // scales come before pdl_wait; of more tokens there are no registers for it
    typename copier_of<C, S>::type w;
    tokens_copier<S> x;
    panels<C, G, S> s;
    raw next[S::ENTRIES > 0 ? S::ENTRIES : 1];
    const reader at = reader_of<C, G, S>(ring);
    const int lane = here().lane;
    more m = {{0, 0}, {}};
    w.begin(a, p, ring);
    LQ_UNROLL
    for (int i = 0; i < S::AHEAD; i++) w.copy();
    if constexpr (G != 0 && EARLY) {
        s.begin(a, p);
        s.read(next, a, p);
    }
    pdl_wait();
    x.begin(a, p, ring);
    LQ_UNROLL
    for (int i = 0; i < S::AHEAD; i++) {
        x.copy(i * S::STAGE);
        cp_async_commit();
    }
    if constexpr (C::TABLE != 0) m.table = table_of(matrix_of(a, p).table);
    else if (S::BITS == 8) m.form = a.narrow ? uint2{3, 0x77807780u} : uint2{4, 0x7b807b80u};
    else m.form = {(uint32_t)a.narrow, 0};
    if constexpr (G != 0 && !EARLY) {
        s.begin(a, p);
        s.read(next, a, p);
    }
    sums<S> part = {};
    smem from = 0, to = S::AHEAD * S::STAGE, panel = 0;
    for (int left = (p.end - p.from + LQ_W4S_STEP - 1) / LQ_W4S_STEP; left > 0; left -= S::STEPS) {
        smem entries = panel;
        if constexpr (G != 0) { // nobody reads this panel: all have come to a step of the other
            s.write(next, ring + S::RING + panel);
            s.read(next, a, p);
            panel ^= S::PANEL;
        }
        for (int steps = least(left, S::STEPS); steps > 0; steps--) {
            cp_async_wait<S::AHEAD - 1>();
            __syncthreads();
            w.copy();
            x.copy(to);
            cp_async_commit();
            multiply_step<C, G, S>(sum, part, at, from, entries, lane, m);
            entries += LQ_W4S_STEP / (G ? G : LQ_W4S_STEP) * S::PAIRS * 16;
            to = from;
            from = from + S::STAGE == S::RING ? 0 : from + S::STAGE;
        }
    }
    if (G == 0) sum = part;
    cp_async_wait<0>();
}

// --- from sums to outputs: warp w has tokens w, w + 8 .., each lane rows 2 lane + 64 j and the next ---

struct pair { float low, high; };
template <class S> struct outputs { pair of[S::TILES][S::BLOCKS]; };

// The sums of both halves meet in shared memory and are added to those of the cuts before; `rest`: more will come.
template <class S>
LQ_DEV void halves_added(outputs<S> &v, const sums<S> &sum, smem at, bool first, bool rest) {
    const thread p = here();
    const int g = p.lane / 4, t = p.lane % 4;
    __syncthreads(); // the ring is not read any more
    LQ_UNROLL
    for (int r = 0; r < S::BLOCKS; r++)
        LQ_UNROLL
        for (int j = 0; j < S::TILES; j++)
            LQ_UNROLL
            for (int i = 0; i < 4; i++) {
                const int token = j * 8 + 2 * t + (i & 1), row = (p.warp % 4 * S::BLOCKS + r) * 16 + g + 8 * (i >> 1);
                sts4(at + p.half * S::HALF_SUMS + (token * S::SUM_PITCH + row) * 4, bits_of(sum.of[r][j][i]));
            }
    __syncthreads();
    LQ_UNROLL
    for (int j = 0; j < S::TILES; j++)
        LQ_UNROLL
        for (int r = 0; r < S::BLOCKS; r++) {
            const smem mine = at + ((p.warp + 8 * j) * S::SUM_PITCH + 2 * p.lane + 64 * r) * 4;
            const uint2 low = lds8(mine), high = lds8(mine + S::HALF_SUMS);
            const smem kept = at + S::KEPT_AT + ((p.warp + 8 * j) * S::SUM_PITCH + 2 * p.lane + 64 * r) * 4;
            pair *to = &v.of[j][r];
            if (S::KEPT != 0 || first) *to = {0, 0};
            if (S::KEPT != 0 && !first) {
                const uint2 before = lds8(kept);
                *to = {float_of(before.x), float_of(before.y)};
            }
            to->low += float_of(low.x) + float_of(high.x);
            to->high += float_of(low.y) + float_of(high.y);
            if (S::KEPT != 0 && rest) sts8(kept, {bits_of(to->low), bits_of(to->high)});
        }
}

// Where blocks share the cuts: leaves this one's sums, and in the block that comes last makes the sum of all, in their
// order. False: not the last.
template <class S> LQ_DEV bool cuts_added(outputs<S> &v, const lq_w4s_args &a, uint32_t cuts, smem flag) {
    const thread p = here();
    const uint32_t most = (uint32_t)a.side, cut = blockIdx.y % most, work = blockIdx.y / most * gridDim.x + blockIdx.x;
    float *mine = a.parts + (size_t)work * most * (S::TILES * 8 * S::ROWS) + p.warp * S::ROWS + 2 * p.lane;
    LQ_UNROLL
    for (int i = 0; i < S::TILES * S::BLOCKS; i++) {
        const pair &of = v.of[i / S::BLOCKS][i % S::BLOCKS];
        st8(mine + (cut * (S::TILES * 8) + i / S::BLOCKS * 8) * S::ROWS + i % S::BLOCKS * 64,
            {bits_of(of.low), bits_of(of.high)});
    }
    __syncthreads();
    if (p.index == 0) sts4(flag, atomic_inc_ordered(a.arrived + work, cuts - 1));
    __syncthreads();
    if (lds4(flag) != cuts - 1) return false;
    v = {};
    for (uint32_t c = 0; c < cuts; c++)
        LQ_UNROLL
        for (int i = 0; i < S::TILES * S::BLOCKS; i++) {
            const uint2 of = ld8(mine + (c * (S::TILES * 8) + i / S::BLOCKS * 8) * S::ROWS + i % S::BLOCKS * 64);
            v.of[i / S::BLOCKS][i % S::BLOCKS].low += float_of(of.x);
            v.of[i / S::BLOCKS][i % S::BLOCKS].high += float_of(of.y);
        }
    return true;
}

// The same where those blocks are a cluster: the others leave their sums where the first one's ring was.
template <class S> LQ_DEV bool cuts_met(outputs<S> &v, int cut, int cuts, smem sums) {
    const thread p = here();
    const smem mine = sums + (p.warp * S::ROWS + 2 * p.lane) * 4;
    cluster_sync();
    if (cut) {
        LQ_UNROLL
        for (int i = 0; i < S::TILES * S::BLOCKS; i++) {
            const pair &of = v.of[i / S::BLOCKS][i % S::BLOCKS];
            st8_cluster(mine + (((cut - 1) * (S::TILES * 8) + i / S::BLOCKS * 8) * S::ROWS + i % S::BLOCKS * 64) * 4, 0,
                        {bits_of(of.low), bits_of(of.high)});
        }
    }
    cluster_sync();
    if (cut) return false;
    LQ_UNROLL
    for (int i = 0; i < S::TILES * S::BLOCKS; i++) {
        pair *to = &v.of[i / S::BLOCKS][i % S::BLOCKS];
        *to = {0 + to->low, 0 + to->high};
        for (int c = 0; c < cuts - 1; c++) {
            const uint2 of = lds8(mine + ((c * (S::TILES * 8) + i / S::BLOCKS * 8) * S::ROWS + i % S::BLOCKS * 64) * 4);
            to->low += float_of(of.x);
            to->high += float_of(of.y);
        }
    }
    return true;
}

LQ_DEV void pair_stored(pair v, const lq_w4s_one &a, const float *bias, int slot, int row) {
    const bool both = row + 1 < a.n, wide = both && a.y_stride % 2 == 0;
    if (bias) {
        const uint2 b = both ? ldg8(bias + row) : uint2{ldg4(bias + row), 0};
        v.low += float_of(b.x);
        v.high += float_of(b.y);
    }
    const size_t at = (size_t)slot * (size_t)a.y_stride + (size_t)row;
    const uint32_t out = bf16x2_of(v.low, v.high);
    float *f32 = (float *)a.y + at;
    uint16_t *bf16 = (uint16_t *)a.y + at;
    if (a.f32 && wide) st8(f32, {bits_of(v.low), bits_of(v.high)});
    else if (a.f32) st4(f32, bits_of(v.low));
    else if (wide) st4(bf16, out);
    else st2(bf16, out);
    if (!both || wide) return;
    if (a.f32) st4(f32 + 1, bits_of(v.high));
    else st2(bf16 + 1, out >> 16);
}

template <class S> LQ_DEV void stored(const outputs<S> &v, const lq_w4s_args &a, const place &p) {
    const float *bias = matrix_of(a, p).bias;
    const thread t = here();
    LQ_UNROLL
    for (int j = 0; j < S::TILES; j++) {
        if (t.warp + 8 * j >= p.tokens) return;
        const int slot = slot_of(a, p, t.warp + 8 * j);
        LQ_UNROLL
        for (int r = 0; r < S::BLOCKS; r++) {
            const int row = block_of(a, p) * S::ROWS + 2 * t.lane + 64 * r;
            if (row < one_of(a, p).n) pair_stored(v.of[j][r], one_of(a, p), bias, slot, row);
        }
    }
}

// --- which tokens ---

// Of the tiles of all experts' slots, expert by expert, the z-th. False: there are fewer.
LQ_DEV bool tile_found(place &p, const lq_w4s_args &a, int z, int tokens) {
    if (!a.order) {
        const int each = (a.m / a.count + tokens - 1) / tokens;
        p.expert = z / each;
        p.first = z % each * tokens;
        p.tokens = least(a.m / a.count - p.first, tokens);
        return p.expert < a.count;
    }
    const int lane = here().lane;
    for (int e = lane, before = 0; e - lane < a.count; e += WARP) {
        const int from = e < a.count ? (int)ld4(a.start + e) : 0, end = e < a.count ? (int)ld4(a.start + e + 1) : 0;
        const int tiles = (end - from + tokens - 1) / tokens;
        int up_to = tiles;
        for (int i = 1; i < WARP; i *= 2) {
            const int other = shfl(up_to, lane - i);
            if (lane >= i) up_to += other;
        }
        up_to += before;
        const int passed = bits_set(vote_ballot(up_to <= z));
        if (passed < WARP) {
            const int tile = z - shfl(up_to - tiles, passed);
            p.expert = shfl(e, passed);
            p.first = shfl(from, passed) + tile * tokens;
            p.tokens = least(shfl(end, passed) - p.first, tokens);
            return true;
        }
        before = shfl(up_to, WARP - 1);
    }
    return false;
}

// Grid: blocks of rows, of one matrix behind the other x (tiles of tokens, and of each side by side the blocks that
// share its cuts; of a matrix that has fewer the last leave); LQ_W4S_THREADS threads, LQ_W4S_SHARED bytes.
template <class C, int G, int T> LQ_DEV void product(const lq_w4s_args &a) {
    typedef shape<C, G, T> S;
    pdl_trigger();
    const smem ring = smem_base();
    const int tile = (int)blockIdx.y / a.side, mine = (int)blockIdx.y % a.side;
    place p;
    p.one = one_found(a);
    const lq_w4s_one &one = one_of(a, p);
    if (mine >= one.side) return;
    p.expert = 0;
    p.first = tile * T;
    p.tokens = least(a.m - p.first, T);
    if (one.experts) {
        pdl_wait();
        if (!tile_found(p, a, tile, T)) return;
    }
    outputs<S> v;
    for (int cut = mine; cut * one.cut < a.k; cut += one.side) {
        if (cut > mine) __syncthreads(); // halves of the cut before have been read
        p.from = cut * one.cut;
        p.end = least(a.k, p.from + one.cut);
        sums<S> sum = {};
        multiply<C, G, S>(sum, a, p, ring);
        halves_added<S>(v, sum, ring, cut == mine, (cut + one.side) * one.cut < a.k);
    }
    bool last = one.side == 1;
    if (!last && a.cluster) last = cuts_met<S>(v, mine, one.side, ring + 2 * S::HALF_SUMS);
    else if (!last) last = cuts_added<S>(v, a, (uint32_t)one.side, ring + 2 * S::HALF_SUMS);
    if (last) stored<S>(v, a, p);
}
}
#endif
