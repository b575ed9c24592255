// w4l.cuh: y = x W^T (+ bias) for many tokens of bf16 and packed weights, by the products of warpgroups that sm_90a
// has; for each token alone, or for the slots of experts. The kernels are instantiated in w4l.cu; what codes are is
// w4s_codes.cuh, what the work is w4s.cuh.
//
// A block makes 128 outputs of 128 tokens. One warpgroup brings stages of 64 columns: weights by bulk copies, tokens by
// cp.async into a tile whose chunks are turned as wgmma wants them. Two multiply, each a stripe of 64 rows: operand A
// is made of codes in registers, 16 columns while those before are multiplied, operand B is the tile. mbarriers say
// which stages are full and which are empty.
//
// Sums are those of w4s.cuh: columns in order within the halves of 128 of each 256, group by group; both halves; cuts
// of k in order. So a cut is walked twice, by its lower halves and by its upper ones, and what the first gave is laid
// aside.
#ifndef LQ_W4L_CUH
#define LQ_W4L_CUH
#include "kernels/cuda/simt.h"
#include "kernels/cuda/w4l.h"
#include "kernels/cuda/w4s.cuh"

namespace w4l {
using w4s::least;
using w4s::place;

enum { GROUP = 128, HALF = 128 }; // threads of a warpgroup; columns of half a step

template <class C, int G> struct shape {
    enum {
        STAGES = LQ_W4L_STAGES(C::BITS),
        BEHIND = STAGES - 2,           // stages from the one that is asked for to the one that is waited for
        STAGE = LQ_W4L_STAGE(C::BITS), // tokens, then weights of both stripes
        UNIT = 512 * C::BITS,          // bytes of a stripe's 64 columns
        KEPT_AT = STAGES * STAGE,      // of each warpgroup that multiplies: two sums of each lane's 64 numbers
        KEPT = LQ_W4L_KEPT / 2,
        FULL_AT = KEPT_AT + 2 * LQ_W4L_KEPT,
        EMPTY_AT = FULL_AT + 8 * STAGES,
        RAWS = HALF / G                // groups of half a step
    };
};

// A launch has one matrix.
LQ_DEV int cut_of(const lq_w4s_args &a) { return a.of[0].cut; }
LQ_DEV int cuts_of(const lq_w4s_args &a) { return (a.k + cut_of(a) - 1) / cut_of(a); }

// Where a walk over the columns stands, in the order in which they are added up; the same for all warpgroups.
struct walk {
    int cut, half, step, steps; // steps of 256 columns of this cut
    LQ_METHOD void begin(const lq_w4s_args &a, int of) {
        cut = of, half = 0, step = 0;
        steps = (least(a.k - cut * cut_of(a), cut_of(a)) + LQ_W4S_STEP - 1) / LQ_W4S_STEP;
    }

    LQ_METHOD int column(const lq_w4s_args &a) const { return cut * cut_of(a) + step * LQ_W4S_STEP + half * HALF; }

    // Where the half of a step behind this one begins.
    LQ_METHOD int following(const lq_w4s_args &a) const {
        if (step + 1 < steps) return column(a) + LQ_W4S_STEP;
        return half == 0 ? cut * cut_of(a) + HALF : (cut + 1) * cut_of(a);
    }

    // To the next half of a step. False: that was the last one of the cut's half.
    LQ_METHOD bool next() { return ++step < steps; }
};

// A stage of the ring: its number goes round, its phase changes when it does.
struct stage_of {
    int at, phase;
    template <int STAGES> LQ_METHOD void next() {
        at = at + 1 == STAGES ? 0 : at + 1;
        phase ^= at == 0;
    }
};

// --- the warpgroup that brings ---

template <class C, int G> struct bringer {
    typedef shape<C, G> S;
    const unsigned char *w; // this block's first stripe, and from one to the next
    size_t stripe;
    int stripes, units;
    uint32_t at[8]; // of tokens t / 8 + 16 i, in 16 bytes
    int there;      // of those tokens
    smem to;        // within a tile
    l2_policy once;

    LQ_METHOD void begin(const lq_w4s_args &a, const place &p) {
        const int t = thread_again(), stripe0 = (int)blockIdx.x * 2;
        units = (a.k + LQ_W4L_COLUMNS - 1) / LQ_W4L_COLUMNS;
        stripe = (size_t)units * S::UNIT;
        stripes = least(w4s::stripes_of(a.of[0].n) - stripe0, 2);
        w = (const unsigned char *)w4s::matrix_of(a, p).w + stripe0 * stripe;
        there = (p.tokens - t / 8 + 15) / 16;
        LQ_UNROLL
        for (int i = 0; i < 8; i++) {
            const int slot = i < there ? w4s::slot_of(a, p, t / 8 + 16 * i) : 0;
            at[i] = (uint32_t)(a.top_k > 1 ? slot / a.top_k : slot) * (uint32_t)(a.x_stride / 8);
        }
        to = t / 8 * 128 + (t % 8 ^ t / 8 % 8) * 16;
        once = l2_evict_first();
    }

    // 64 columns on. Behind the last unit and the last stripe the last one comes again: it meets tokens that are 0, or
    // makes rows that nobody stores.
    LQ_METHOD void bring(const lq_w4s_args &a, int column, int end, smem stage, smem full) {
        const int k = column + thread_again() % 8 * 8, left = (end - k) * 2;
        const unsigned bytes = left >= 16 ? 16 : left > 0 ? (unsigned)left : 0;
        if (thread_again() == 0) {
            const size_t unit = (size_t)least(column / LQ_W4L_COLUMNS, units - 1) * S::UNIT;
            mbar_arrive_expect(full, 2 * S::UNIT);
            for (int i = 0; i < 2; i++)
                copy_bulk(stage + LQ_W4L_TILE + i * S::UNIT, w + least(i, stripes - 1) * stripe + unit, S::UNIT, full,
                          once);
        }
        LQ_UNROLL
        for (int i = 0; i < 8; i++)
            cp_async16(stage + to + i * 2048, a.x + k + (size_t)at[i] * 8, i < there ? bytes : 0);
    }
};

// A stage is full when its weights have come and each warp has said that its tokens have.
template <class C, int G> LQ_DEV void bring_all(const lq_w4s_args &a, const place &p, smem base) {
    typedef shape<C, G> S;
    bringer<C, G> b;
    stage_of s = {0, 0}, waited = {0, 0};
    const int cuts = cuts_of(a);
    int asked = 0;
    b.begin(a, p);
    walk at;
    LQ_ROLLED
    for (int cut = 0; cut < cuts; cut++) {
        const int end = least(a.k, (cut + 1) * cut_of(a));
        at.begin(a, cut);
        LQ_ROLLED
        for (int i = 0; i < at.steps * 4; i++) {
            mbar_wait(base + S::EMPTY_AT + 8 * s.at, s.phase ^ 1);
            b.bring(a, at.column(a) + i % 2 * LQ_W4L_COLUMNS, end, base + s.at * S::STAGE,
                    base + S::FULL_AT + 8 * s.at);
            cp_async_commit();
            s.next<S::STAGES>();
            if (i % 2 && !at.next()) at.half++, at.step = 0;
            if (asked < S::BEHIND) {
                asked++;
                continue;
            }
            cp_async_wait<S::BEHIND>();
            fence_proxy_async();
            sync_warp();
            if (thread_again() % WARP == 0) mbar_arrive(base + S::FULL_AT + 8 * waited.at);
            waited.next<S::STAGES>();
        }
    }
    cp_async_wait<0>();
    fence_proxy_async();
    sync_warp();
    for (; asked > 0; asked--) {
        if (thread_again() % WARP == 0) mbar_arrive(base + S::FULL_AT + 8 * waited.at);
        waited.next<S::STAGES>();
    }
}

// --- the warpgroups that multiply ---

struct lane_place { int stripe, pair; }; // of rows r and r + 8 of this thread

// Scales and zero points of one thread's rows, of the groups of 128 columns; where one is taken that of the columns
// behind these is read, and has until then to come.
template <class C, int G> struct scales {
    typedef shape<C, G> S;
    typedef w4s::shape<C, G, 32> panel_shape;
    w4s::panels<C, G, panel_shape> of;
    lane_place at;
    place where;
    w4s::raw next[S::RAWS];

    LQ_METHOD void begin(const lq_w4s_args &a, const place &p, lane_place mine) {
        of.begin(a, p);
        at = mine;
        where = p;
        LQ_UNROLL
        for (int i = 0; i < S::RAWS; i++) of.read_one(next[i], a, where, i, at.stripe, at.pair);
    }

    LQ_METHOD uint4 taken(const lq_w4s_args &a, int i, int column) {
        const uint4 entry = of.entry_of(next[i]);
        of.read_one(next[i], a, where, column / G + i, at.stripe, at.pair);
        return entry;
    }
};

// This warp reads a stage no more.
LQ_DEV void released(smem empty) {
    sync_warp();
    if (thread_again() % WARP == 0) mbar_arrive(empty);
}

// 128 columns, of two stages. Everything is waited for at the end.
template <class C, int G>
LQ_DEV void multiply_half(float (&sum)[64], float (&part)[64], scales<C, G> &s, stage_of &at, smem base,
                          const lq_w4s_args &args, int following, const w4s::more &m, int group, uint32_t (&a)[2][4]) {
    typedef shape<C, G> S;
    const int lane = thread_again() % WARP, warp = thread_again() / WARP % 4;
    C codes = {};
    uint4 entry = {0, 0, 0, 0};
    smem empty = 0;
    LQ_UNROLL
    for (int k16 = 0; k16 < 8; k16++) {
        const smem stage = base + at.at * S::STAGE;
        if (k16 % 4 == 0) mbar_wait(base + S::FULL_AT + 8 * at.at, at.phase);
        if (k16 % 2 == 0)
            codes.load(stage + LQ_W4L_TILE + group * S::UNIT + warp * (S::UNIT / 4), lane, k16 / 2 % 2);
        if (k16 * 16 % G == 0) entry = s.taken(args, k16 * 16 / G, following);
        codes.fragment(a[k16 % 2], k16, w4s::more_of(codes, m, entry));
        wgmma_fence(a[k16 % 2]);
        wgmma_bf16(part, a[k16 % 2], tile_rows128(stage) + k16 % 4 * 2, k16 * 16 % G != 0);
        wgmma_commit();
        if ((k16 + 1) * 16 % G == 0) {
            wgmma_wait<0>(part);
            LQ_UNROLL
            for (int i = 0; i < 64; i++)
                sum[i] = fmaf(float_of(i % 4 < 2 ? entry.x : entry.y), part[i], sum[i]);
        } else wgmma_wait<1>();
        if (k16 == 4) released(empty); // what is under way is of the second stage
        if (k16 % 4 == 3) {
            empty = base + S::EMPTY_AT + 8 * at.at;
            at.next<S::STAGES>();
        }
    }
    released(empty);
}

// Sums that this thread lays aside, four at a time.
LQ_DEV void kept_put(smem at, const float (&v)[64]) {
    LQ_UNROLL
    for (int i = 0; i < 64; i += 4)
        sts16(at + i * (GROUP * 4), {bits_of(v[i]), bits_of(v[i + 1]), bits_of(v[i + 2]), bits_of(v[i + 3])});
}

// v = (what is kept + v), or the other way round: both are the same number.
LQ_DEV void kept_added(smem at, float (&v)[64]) {
    LQ_UNROLL
    for (int i = 0; i < 64; i += 4) {
        const uint4 u = lds16(at + i * (GROUP * 4));
        v[i] = float_of(u.x) + v[i];
        v[i + 1] = float_of(u.y) + v[i + 1];
        v[i + 2] = float_of(u.z) + v[i + 2];
        v[i + 3] = float_of(u.w) + v[i + 3];
    }
}

// All cuts; leaves their sum.
template <class C, int G>
LQ_DEV void multiply_all(float (&sum)[64], const lq_w4s_args &a, const place &p, smem base, int group) {
    typedef shape<C, G> S;
    const int t = thread_again() % GROUP, cuts = cuts_of(a);
    const smem kept = base + S::KEPT_AT + group * (2 * S::KEPT) + t * 16;
    const lane_place mine = {(int)blockIdx.x * 2 + group, t / WARP * 8 + t % WARP / 4};
    scales<C, G> s;
    stage_of stage = {0, 0};
    w4s::more m = {{0, 0}, {}};
    uint32_t fragments[2][4];
    float part[64];
    if constexpr (C::TABLE != 0) m.table = w4s::table_of(w4s::matrix_of(a, p).table);
    else m.form = a.narrow ? uint2{3, 0x77807780u} : uint2{4, 0x7b807b80u};
    s.begin(a, p, mine);
    LQ_ROLLED
    for (int cut = 0; cut < cuts; cut++) {
        walk at;
        at.begin(a, cut);
        LQ_ROLLED
        for (at.half = 0; at.half < 2; at.half++) {
            LQ_UNROLL
            for (int i = 0; i < 64; i++) sum[i] = 0;
            LQ_ROLLED
            for (at.step = 0; at.step < at.steps; at.step++)
                multiply_half<C, G>(sum, part, s, stage, base, a, at.following(a), m, group, fragments);
            if (at.half == 0) kept_put(kept, sum);
        }
        kept_added(kept, sum);
        if (cut > 0) kept_added(kept + S::KEPT, sum);
        else
            LQ_UNROLL
            for (int i = 0; i < 64; i++) sum[i] = 0 + sum[i];
        if (cut + 1 < cuts) kept_put(kept + S::KEPT, sum);
    }
}

// By way of shared memory: warp w of four has tokens w, w + 4 .., each lane rows 2 lane and the next.
template <class C, int G>
LQ_DEV void stored(const float (&sum)[64], const lq_w4s_args &a, const place &p, smem base, int group) {
    typedef shape<C, G> S;
    enum { PITCH = 68 }; // of a token's 64 rows: 8 lanes x 4 tokens fall on 32 banks
    const int t = thread_again() % GROUP, lane = t % WARP, warp = t / WARP;
    const smem at = base + S::KEPT_AT + group * (2 * S::KEPT);
    sync_named(1 + group, GROUP); // what others have laid aside is not read any more
    LQ_UNROLL
    for (int i = 0; i < 64; i++) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2, row = warp * 16 + lane / 4 + i % 4 / 2 * 8;
        sts4(at + (token * PITCH + row) * 4, bits_of(sum[i]));
    }
    sync_named(1 + group, GROUP);
    const float *bias = w4s::matrix_of(a, p).bias;
    const int row = ((int)blockIdx.x * 2 + group) * LQ_W4S_STRIPE + 2 * lane;
    if (row >= a.of[0].n) return;
    for (int token = warp; token < p.tokens; token += 4) {
        const uint2 v = lds8(at + (token * PITCH + 2 * lane) * 4);
        w4s::pair_stored({float_of(v.x), float_of(v.y)}, a.of[0], bias, w4s::slot_of(a, p, token), row);
    }
}

// Grid: blocks of 128 rows x tiles of 128 tokens; LQ_W4L_THREADS threads, LQ_W4L_SHARED bytes.
template <class C, int G> LQ_DEV void product(const lq_w4s_args &a) {
    typedef shape<C, G> S;
    pdl_trigger();
    const smem base = smem_base();
    const int group = thread_again() / GROUP - 1;
    const int first = (int)blockIdx.y * LQ_W4L_TOKENS;
    place p = {0, 0, 0, first, least(a.m - first, LQ_W4L_TOKENS), 0};
    pdl_wait();
    if (a.of[0].experts && !w4s::tile_found(p, a, (int)blockIdx.y, LQ_W4L_TOKENS)) return;
    if (thread_again() == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            mbar_init(base + S::FULL_AT + 8 * i, 5); // who asks for weights, and four warps that bring tokens
            mbar_init(base + S::EMPTY_AT + 8 * i, 8);
        }
        fence_proxy_async();
    }
    __syncthreads();
    if (group < 0) {
        registers_down<40>();
        bring_all<C, G>(a, p, base);
    } else {
        float sum[64];
        registers_up<232>();
        multiply_all<C, G>(sum, a, p, base, group);
        stored<C, G>(sum, a, p, base, group);
    }
}
}
#endif
