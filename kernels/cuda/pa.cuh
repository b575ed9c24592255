// pa.cuh: attention over a paged cache by mma.sync, decode and prefill. pa.cu has the instances, pa.h the host's side.
//
// A row's bits depend on that row alone: whatever block makes it, it has tiles of 64 positions, in a tile the same
// sums in the same order, splits of LQ_SPLIT positions from position 0 on, each begun anew, and their results merged in
// order. A tile or a split that a row does not see leaves its bits: the maximum stays, so all is times exactly 1, and
// what is added is 0. The sum of weights is a column of V that is all ones: what rounds a weight to bf16 does so above
// and below the line.
//
// A block has WM x WC warps. Each has 16 M rows and all their scores; V's columns are shared among WC, which make the
// scores by parts and pass them on. K and V come by cp.async into two places in turn, or one; codes become bf16 in
// another.
#ifndef LQ_PA_CUH
#define LQ_PA_CUH
#include <float.h>
#include "kernels/cuda/simt.h"
#include "kernels/cuda/pa.h"
#include "kernels/view.h"

namespace pa {
enum { TILE = 64, RUN = 16 }; // positions; of a run all stand in one page
#define LOG2E 1.44269504f

template <int DK_, int DV_, lq_pa_type T_, int WM_, int WC_, int PLACES_> struct shape {
    static constexpr lq_pa_type T = T_;
    static constexpr bool LATENT = DK_ != DV_, CODED = T_ != LQ_PA_BF16;
    // What a block has is found before pdl_wait, with ids of cache blocks; others have no registers for it.
    static constexpr bool EARLY = WM_ == 1 && DK_ <= 256;
    enum {
        DK = DK_, DV = DV_, WM = WM_, WC = WC_, PLACES = PLACES_, ROWS = 16 * WM, THREADS = 32 * WM * WC,
        COLUMNS = DV / WC, BLOCKS = COLUMNS / 8,              // of V, of a warp
        PITCH = LQ_PA_PITCH(DK), V_AT = LATENT ? 0 : TILE * PITCH, TILE_BYTES = LQ_PA_TILE(DK, DV),
        CODES_AT = TILE_BYTES, CODES = LQ_PA_CODES(DK, DV, T_), // coded: behind the one tile of bf16
        SCALES_AT = TILE * (DK + (LATENT ? 0 : DV)),          // of I8, in the codes: K's, then V's
        Q_AT = LQ_PA_Q_AT(DK, DV, T_, PLACES), SCORES_AT = LQ_PA_SCORES_AT(DK, DV, T_, WM, PLACES),
        ITEM = LQ_PA_ITEM(DV, WM, WC)
    };
};

// The M rows of this block, and of this lane two: g and g + 8 of its warp's 16.
struct place {
    int thread, lane, warp, down, across; // down: which 16 M rows, across: which columns of V
    int group, kv_head, seq;
    int row, m, ms;                       // first row of the sequence; first M row of the block; M rows of the sequence
    int lo, hi;                           // least and largest position that any row of the block sees
    int from, to, full_from, full_to;     // what the warp's rows see: any of them, all of them
};

LQ_DEV uint4 words_of(const float (&x)[4]) { return {bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])}; }

LQ_DEV void floats_of(float (&x)[4], uint4 v) {
    x[0] = float_of(v.x), x[1] = float_of(v.y), x[2] = float_of(v.z), x[3] = float_of(v.w);
}

LQ_DEV int lowest_bit(uint32_t v) { return (int)(bits_of((float)(v & (0 - v))) >> 23) - 127; }
LQ_DEV int smaller(int a, int b) { return a < b ? a : b; }
LQ_DEV int larger(int a, int b) { return a > b ? a : b; }
LQ_DEV int row_of(const place &p, int m) { return p.row + smaller(m, p.ms - 1) / p.group; }
LQ_DEV int head_of(const place &p, int m) { return p.kv_head * p.group + smaller(m, p.ms - 1) % p.group; }

// The sequence that tile `index` belongs to; false: there are fewer tiles.
template <class S> LQ_DEV bool find_tile(const lq_pa_args &a, place &p, int index) {
    for (int base = 0; base < a.rows.seqs; base += WARP) {
        const int seq = base + p.lane, first = seq < a.rows.seqs ? a.rows.first[seq] : 0;
        const int ms = seq < a.rows.seqs ? (a.rows.first[seq + 1] - first) * p.group : 0;
        const int tiles = ms >= a.least && ms <= a.most ? (ms + S::ROWS - 1) / S::ROWS : 0;
        int sum = tiles;
        for (int apart = 1; apart < WARP; apart *= 2) {
            const int before = shfl(sum, p.lane - apart);
            if (p.lane >= apart) sum += before;
        }
        const uint32_t behind = vote_ballot(sum > index);
        if (behind) {
            const int lane = lowest_bit(behind);
            p.seq = base + lane;
            p.row = shfl(first, lane);
            p.ms = shfl(ms, lane);
            p.m = (index - shfl(sum - tiles, lane)) * S::ROWS;
            return true;
        }
        index -= shfl(sum, WARP - 1);
    }
    return false;
}

// Behind the last position from the tree's base on nothing is certain.
LQ_DEV int full_to(const lq_sight &s) { return smaller(s.at, s.tree_base - 1); }

template <class S> LQ_DEV void find_bounds(const lq_pa_args &a, place &p) {
    const int last = row_of(p, p.m + S::ROWS - 1);
    p.lo = INT32_MAX, p.hi = -1;
    for (int row = row_of(p, p.m) + p.lane; row <= last; row += WARP) {
        const lq_sight s = lq_sight_of(&a.a, &a.rows, row);
        p.lo = smaller(p.lo, s.from);
        p.hi = larger(p.hi, s.at);
    }
    const int m = p.m + p.down * 16 + p.lane / 4;
    const lq_sight low = lq_sight_of(&a.a, &a.rows, row_of(p, m)), high = lq_sight_of(&a.a, &a.rows, row_of(p, m + 8));
    p.from = smaller(low.from, high.from);
    p.to = larger(low.at, high.at);
    p.full_from = larger(low.from, high.from);
    p.full_to = smaller(full_to(low), full_to(high));
    for (int apart = WARP / 2; apart; apart /= 2) {
        p.lo = smaller(p.lo, shfl_xor(p.lo, apart));
        p.hi = larger(p.hi, shfl_xor(p.hi, apart));
        p.from = smaller(p.from, shfl_xor(p.from, apart));
        p.to = larger(p.to, shfl_xor(p.to, apart));
        p.full_from = larger(p.full_from, shfl_xor(p.full_from, apart));
        p.full_to = smaller(p.full_to, shfl_xor(p.full_to, apart));
    }
    if (p.m + p.down * 16 >= p.ms) p.to = -1; // no row of this warp is real
}

// --- K and V into shared memory ---

struct source {
    const unsigned char *k;
    size_t stride, v;  // from block to block; from K to V
    const int32_t *table;
    int shift, mask;   // of a page
    int at, now, next; // ids of the blocks of 32 runs from position `at` on, one a lane; and of the 32 behind them
};

LQ_DEV int block_of(const source &s, const place &p, int at) {
    const int position = at + p.lane * RUN;
    return position <= p.hi && position + RUN > p.lo ? s.table[position >> s.shift] : -1;
}

template <class S> LQ_DEV source source_of(const lq_pa_args &a, const place &p, int begin) {
    const lq_cache &c = a.a.cache;
    const size_t row = (size_t)c.page * (S::CODED ? 1 : 2), k = row * (size_t)c.dk;
    source s;
    s.v = S::LATENT ? 0 : k;
    s.k = (const unsigned char *)c.data + (size_t)p.kv_head * (S::LATENT ? k : k + row * (size_t)c.dv);
    s.stride = c.block_stride;
    s.table = lq_rows_table(&a.rows, p.seq);
    s.shift = c.page == 16 ? 4 : c.page == 32 ? 5 : 6;
    s.mask = c.page - 1;
    s.at = begin / LQ_SPLIT * LQ_SPLIT;
    s.now = block_of(s, p, s.at);
    s.next = block_of(s, p, s.at + LQ_SPLIT);
    return s;
}

// 64 rows of `width` bytes from K or V, each position's beside the last, `pitch` apart at `to`; what no row of the
// block sees, and what stands behind the width, is 0.
template <class S, int WIDE> LQ_DEV void copy_rows(const source &s, const place &p, int tile, const unsigned char *from,
                                                   smem to, int pitch, int width) {
    enum { CHUNKS = WIDE / 16, LANES = S::CODED ? CHUNKS : (CHUNKS + 7) / 8 * 8 }; // 8 lanes: of one row
    LQ_ROLLED
    for (int i = 0; i < TILE * LANES / S::THREADS; i++) {
        const int n = i * S::THREADS + p.thread, position = n / LANES, chunk = n % LANES;
        const int block = shfl(s.now, (tile % LQ_SPLIT + position) / RUN);
        const bool there = block >= 0 && tile + position <= p.hi && chunk * 16 < width;
        const unsigned char *at = from + (size_t)(there ? block : 0) * s.stride +
                                  (size_t)(((tile + position) & s.mask) * width + (there ? chunk * 16 : 0));
        if (chunk < CHUNKS) cp_async16(to + position * pitch + chunk * 16, there ? at : from, there ? 16 : 0);
    }
}

// Scales of I8: four positions in 16 bytes.
template <class S> LQ_DEV void copy_scales(const lq_pa_args &a, const source &s, const place &p, int tile, smem to) {
    const lq_cache &c = a.a.cache;
    const int part = p.thread % 32 / 16, position = tile + p.thread % 16 * 4, left = p.hi + 1 - position;
    const int block = shfl(s.now, position % LQ_SPLIT / RUN);
    if (p.warp) return;
    const bool there = block >= 0 && left > 0;
    const float *at = there ? lq_cache_scale(&c, block, p.kv_head, part) + (position & s.mask) : c.scale;
    cp_async16(to + S::SCALES_AT + p.thread * 16, at, there ? (left < 4 ? (unsigned)left * 4 : 16) : 0);
}

template <class S> LQ_DEV void copy_tile(const lq_pa_args &a, source &s, const place &p, int tile) {
    const int turn = tile / TILE % S::PLACES;
    const smem to = smem_base() + (S::CODED ? S::CODES_AT + turn * S::CODES : turn * S::TILE_BYTES);
    const int dk = a.a.cache.dk, dv = a.a.cache.dv;
    if (tile >= s.at + LQ_SPLIT) {
        s.at += LQ_SPLIT;
        s.now = s.next;
        s.next = block_of(s, p, s.at + LQ_SPLIT);
    }
    if (S::CODED) {
        copy_rows<S, S::DK>(s, p, tile, s.k, to, S::DK, dk);
        if (!S::LATENT) copy_rows<S, S::DV>(s, p, tile, s.k + s.v, to + TILE * S::DK, S::DV, dv);
        if (S::T == LQ_PA_I8) copy_scales<S>(a, s, p, tile, to);
    } else {
        copy_rows<S, S::DK * 2>(s, p, tile, s.k, to, S::PITCH, dk * 2);
        if (!S::LATENT) copy_rows<S, S::DV * 2>(s, p, tile, s.k + s.v, to + S::V_AT, S::PITCH, dv * 2);
    }
}

// The M rows of the block; behind the last, and behind dk, 0.
template <class S> LQ_DEV void copy_q(const lq_pa_args &a, const place &p) {
    enum { CHUNKS = S::DK / 8, LANES = (CHUNKS + 7) / 8 * 8 };
    const int dk = a.a.cache.dk;
    const uint16_t *q = (const uint16_t *)a.a.q.p;
    LQ_ROLLED
    for (int i = 0; i < S::ROWS * LANES / S::THREADS; i++) {
        const int n = i * S::THREADS + p.thread, r = n / LANES, chunk = n % LANES, m = p.m + r;
        const bool there = m < p.ms && chunk * 8 < dk;
        const uint16_t *from = q + (size_t)row_of(p, m) * a.a.q.stride + (size_t)head_of(p, m) * dk + chunk * 8;
        if (chunk < CHUNKS)
            cp_async16(smem_base() + S::Q_AT + r * S::PITCH + chunk * 16, there ? from : q, there ? 16 : 0);
    }
}

// --- codes ---

// Four codes of int8, each as 2^23 + 128 + code; times a scale where there is one.
LQ_DEV uint2 bf16_of_i8(uint32_t codes, float by) {
    float f[4];
    LQ_UNROLL
    for (uint32_t i = 0; i < 4; i++)
        f[i] = mul_rn(float_of(prmt(codes ^ 0x80808080u, 0x4b000000u, 0x7440u + i)) - 8388736.0f, by);
    return {bf16x2_of(f[0], f[1]), bf16x2_of(f[2], f[3])};
}

// Two codes of E4M3 in the high bytes of halves: their bits are those of a bf16 that is 2^120 too small.
LQ_DEV uint32_t bf16_of_e4m3(uint32_t high) {
    const uint32_t small = (high & 0x80008000u) | (high & 0x7f007f00u) >> 4;
    uint32_t v = bf16x2_fma(small, 0x7b807b80u, 0x80008000u); // - 0: a zero keeps its sign
    if ((high & 0x7f00u) == 0x7f00u) v |= 0x7fc0u;
    if ((high & 0x7f000000u) == 0x7f000000u) v |= 0x7fc00000u;
    return v;
}

template <class S> LQ_DEV uint4 bf16_of(uint2 codes, float by) {
    if (S::T == LQ_PA_I8) {
        const uint2 low = bf16_of_i8(codes.x, by), high = bf16_of_i8(codes.y, by);
        return {low.x, low.y, high.x, high.y};
    }
    return {bf16_of_e4m3(prmt(codes.x, 0, 0x1404)), bf16_of_e4m3(prmt(codes.x, 0, 0x3424)),
            bf16_of_e4m3(prmt(codes.y, 0, 0x1404)), bf16_of_e4m3(prmt(codes.y, 0, 0x3424))};
}

// 64 rows of codes into the tile of bf16, 8 at a time. V's scales of I8 are in it, K's are not: they meet the scores.
template <class S, int WIDE> LQ_DEV void convert_rows(const place &p, smem from, smem to, smem scales, bool scaled) {
    enum { CHUNKS = WIDE / 8 };
    LQ_UNROLL_4
    for (int i = 0; i < TILE * CHUNKS / S::THREADS; i++) {
        const int n = i * S::THREADS + p.thread, position = n / CHUNKS, chunk = n % CHUNKS;
        const float by = S::T == LQ_PA_I8 && scaled ? float_of(lds4(scales + position * 4)) : 1;
        sts16(to + position * S::PITCH + chunk * 16, bf16_of<S>(lds8(from + n * 8), by));
    }
}

template <class S> LQ_DEV void convert_tile(const place &p, int tile) {
    const smem to = smem_base(), from = to + S::CODES_AT + tile / TILE % S::PLACES * S::CODES;
    const smem scales = from + S::SCALES_AT;
    convert_rows<S, S::DK>(p, from, to, scales, false);
    if (!S::LATENT) convert_rows<S, S::DV>(p, from + TILE * S::DK, to + S::V_AT, scales + TILE * 4, true);
    __syncthreads();
}

// --- a tile ---

struct result { // of two M rows: the maximum of scores in base 2; the sum of weights, as mma leaves it; what follows
    float max[2], sum[4];
};

template <class S> struct running {
    result r;
    float y[S::BLOCKS][4];
};

template <class S> LQ_DEV void begin(running<S> &s) {
    s.r.max[0] = s.r.max[1] = -FLT_MAX;
    LQ_UNROLL
    for (int i = 0; i < 4; i++) s.r.sum[i] = 0;
    LQ_UNROLL
    for (int n = 0; n < S::BLOCKS; n++)
        for (int i = 0; i < 4; i++) s.y[n][i] = 0;
}

// What a score is made of: it is times `before`, changed where it is special, and then times `by` in base 2.
struct scoring {
    float before, by;
    bool special; // softcap or alibi
};

template <class S> LQ_DEV scoring scoring_of(const lq_pa_args &a, const place &p) {
    scoring s;
    s.before = mul_rn(a.a.scale, lq_cache_head_scale(&a.a.cache, p.kv_head, false));
    s.special = a.a.softcap != 0 || a.a.alibi;
    s.by = s.special ? LOG2E : mul_rn(s.before, LOG2E);
    return s;
}

// Scores in natural units: under a cap, and with what a distance or a position adds.
LQ_DEV void cap_scores(float (&score)[8][4], float cap) {
    const float by = 2 * LOG2E / cap; // tanh(x) = 1 - 2 / (e^2x + 1)
    LQ_UNROLL
    for (int i = 0; i < 32; i++) {
        float &s = score[i / 4][i % 4];
        s = mul_rn(cap, fmaf(-2.0f, rcp_approx(exp2_approx(mul_rn(s, by)) + 1.0f), 1.0f));
    }
}

LQ_DEV void bend_scores(float (&score)[8][4], const lq_pa_args &a, const place &p, int tile) {
    const int m = p.m + p.down * 16 + p.lane / 4, t = p.lane % 4 * 2;
    for (int r = 0; r < 2; r++) {
        const float slope = a.a.alibi[head_of(p, m + 8 * r)];
        const int from = a.a.alibi_coarse ? 0 : a.rows.at[row_of(p, m + 8 * r)];
        LQ_UNROLL
        for (int n = 0; n < 8; n++) {
            float low = (float)(tile + n * 8 + t - from), high = low + 1;
            if (a.a.alibi_coarse) {
                const uint32_t at = bf16x2_of(low, high);
                const uint32_t by = bf16x2_of(mul_rn(slope, bf16_low(at)), mul_rn(slope, bf16_high(at)));
                low = bf16_low(by), high = bf16_high(by);
            }
            const float times = a.a.alibi_coarse ? a.a.scale : slope;
            score[n][2 * r] = fmaf(times, low, score[n][2 * r]);
            score[n][2 * r + 1] = fmaf(times, high, score[n][2 * r + 1]);
        }
    }
}

// Scores of this warp's 16 rows x positions 8 block to 8 (block + BLOCKS).
template <class S, int BLOCKS> LQ_DEV void multiply_k(float (&score)[BLOCKS][4], const place &p, smem k, int block) {
    const smem q = smem_base() + S::Q_AT + (p.down * 16 + p.lane % 16) * S::PITCH + p.lane / 16 * 16;
    k += (block * 8 + p.lane % 8 + p.lane / 16 * 8) * S::PITCH + p.lane / 8 % 2 * 16;
    LQ_UNROLL
    for (int n = 0; n < BLOCKS; n++)
        for (int i = 0; i < 4; i++) score[n][i] = 0;
    LQ_UNROLL_4
    for (int d = 0; d < S::DK / 16; d++) {
        uint32_t of_q[4], of_k[4];
        ldmatrix_x4(of_q, q + d * 32);
        LQ_UNROLL
        for (int n = 0; n < BLOCKS; n += 2) {
            ldmatrix_x4(of_k, k + n * 8 * S::PITCH + d * 32);
            mma_bf16(score[n], of_q, of_k[0], of_k[1], score[n]);
            mma_bf16(score[n + 1], of_q, of_k[2], of_k[3], score[n + 1]);
        }
    }
}

// All scores of the warp's rows; where columns of V are shared out, warps make a part each.
template <class S> LQ_DEV void score_tile(float (&score)[8][4], const place &p, smem k, bool sees) {
    if (S::WC == 1) {
        if (sees) multiply_k<S, 8>(score, p, k, 0);
        return;
    }
    const smem at = smem_base() + S::SCORES_AT + p.down * 4096 + p.lane * 16;
    if (sees) {
        float part[8 / S::WC][4];
        multiply_k<S, 8 / S::WC>(part, p, k, p.across * (8 / S::WC));
        LQ_UNROLL
        for (int n = 0; n < 8 / S::WC; n++)
            sts16(at + (p.across * (8 / S::WC) + n) * 512, words_of(part[n]));
    }
    __syncthreads();
    if (!sees) return;
    LQ_UNROLL
    for (int n = 0; n < 8; n++) floats_of(score[n], lds16(at + n * 512));
}

// Scores as they are: scales of K, what makes them special, and -infinity where a row does not see.
template <class S> LQ_DEV void finish_scores(float (&score)[8][4], const lq_pa_args &a, const place &p,
                                             const scoring &how, int tile, bool whole) {
    const int m = p.m + p.down * 16 + p.lane / 4, t = p.lane % 4 * 2;
    if (S::T == LQ_PA_I8) {
        const smem scales = smem_base() + S::CODES_AT + tile / TILE % S::PLACES * S::CODES + S::SCALES_AT + t * 4;
        LQ_UNROLL
        for (int n = 0; n < 8; n++) {
            const uint2 s = lds8(scales + n * 32);
            for (int i = 0; i < 4; i++) score[n][i] = mul_rn(score[n][i], float_of(i & 1 ? s.y : s.x));
        }
    }
    if (how.special) {
        LQ_UNROLL
        for (int i = 0; i < 32; i++) score[i / 4][i % 4] = mul_rn(score[i / 4][i % 4], how.before);
        if (a.a.softcap != 0) cap_scores(score, a.a.softcap);
        if (a.a.alibi) bend_scores(score, a, p, tile);
    }
    if (whole) return;
    for (int r = 0; r < 2; r++) {
        const lq_sight see = lq_sight_of(&a.a, &a.rows, row_of(p, m + 8 * r));
        LQ_UNROLL
        for (int n = 0; n < 8; n += 2) {
            const uint32_t mask = (uint32_t)lq_sight_mask(&see, tile + n * 8) >> t;
            for (int i = 0; i < 4; i++)
                if (!(mask >> (i / 2 * 8 + i % 2) & 1)) score[n + i / 2][2 * r + i % 2] = -INFINITY;
        }
    }
}

// Weights in bf16 as operand A, their sum, and what there is brought under the new maximum.
template <class S> LQ_DEV void weigh(uint32_t (&weight)[4][4], float (&score)[8][4], running<S> &s, float by) {
    float old[2];
    LQ_UNROLL
    for (int r = 0; r < 2; r++) {
        float most = -INFINITY;
        LQ_UNROLL
        for (int n = 0; n < 8; n++) most = fmaxf(most, fmaxf(score[n][2 * r], score[n][2 * r + 1]));
        most = fmaxf(most, shfl_xor(most, 1));
        most = fmaxf(most, shfl_xor(most, 2));
        const float max = fmaxf(s.r.max[r], mul_rn(most, by));
        old[r] = exp2_approx(s.r.max[r] - max);
        s.r.max[r] = max;
        LQ_UNROLL
        for (int n = 0; n < 8; n++) {
            const float low = exp2_approx(fmaf(score[n][2 * r], by, -max));
            const float high = exp2_approx(fmaf(score[n][2 * r + 1], by, -max));
            weight[n / 2][n % 2 * 2 + r] = bf16x2_of(low, high);
        }
    }
    if (vote_any(!(old[0] == 1 && old[1] == 1))) {
        LQ_UNROLL
        for (int i = 0; i < 4; i++) s.r.sum[i] = mul_rn(s.r.sum[i], old[i / 2]);
        LQ_UNROLL
        for (int n = 0; n < S::BLOCKS; n++)
            for (int i = 0; i < 4; i++) s.y[n][i] = mul_rn(s.y[n][i], old[i / 2]);
    }
    const uint32_t ones = 0x3f803f80u;
    LQ_UNROLL
    for (int j = 0; j < 4; j++) mma_bf16(s.r.sum, weight[j], ones, ones, s.r.sum);
}

// Where this lane's row of V's matrices begins: 16 positions x 16 columns at a time.
template <class S> LQ_DEV smem v_of(const place &p, smem v) {
    return v + p.lane % 16 * S::PITCH + p.across * (S::COLUMNS * 2) + p.lane / 16 * 16;
}

template <class S> LQ_DEV void multiply_v(running<S> &s, const uint32_t (&weight)[4][4], smem v) {
    LQ_UNROLL
    for (int j = 0; j < 4; j++) {
        LQ_UNROLL
        for (int n = 0; n < S::BLOCKS; n += 2) {
            uint32_t of_v[4];
            ldmatrix_x4_trans(of_v, v + j * 16 * S::PITCH + n * 16);
            mma_bf16(s.y[n], weight[j], of_v[0], of_v[1], s.y[n]);
            mma_bf16(s.y[n + 1], weight[j], of_v[2], of_v[3], s.y[n + 1]);
        }
    }
}

// Whether some number of V is none, or infinite: 0 times it is not 0.
template <class S> LQ_DEV bool odd_v(smem v) {
    uint32_t odd = 0;
    for (int j = 0; j < 4; j++)
        for (int n = 0; n < S::BLOCKS; n += 2) {
            uint32_t of_v[4];
            ldmatrix_x4_trans(of_v, v + j * 16 * S::PITCH + n * 16);
            for (int i = 0; i < 4; i++) odd |= ((of_v[i] & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
        }
    return vote_any(odd != 0);
}

// As multiply_v, for one row of the batch after another, from each V what that row does not see taken away.
template <class S> LQ_DEV void multiply_odd_v(running<S> &s, const uint32_t (&weight)[4][4], const lq_pa_args &a,
                                              const place &p, smem v, int tile) {
    const int m = p.m + p.down * 16, mine[2] = {row_of(p, m + p.lane / 4), row_of(p, m + p.lane / 4 + 8)};
    for (int row = row_of(p, m); row <= row_of(p, m + 15); row++) {
        const lq_sight see = lq_sight_of(&a.a, &a.rows, row);
        LQ_UNROLL
        for (int n = 0; n < S::BLOCKS; n += 2) {
            float y[2][4];
            for (int i = 0; i < 8; i++) y[i / 4][i % 4] = s.y[n + i / 4][i % 4];
            LQ_UNROLL
            for (int j = 0; j < 4; j++) {
                const uint32_t seen = (uint32_t)lq_sight_mask(&see, tile + j * 16) >> p.lane % 4 * 2;
                const uint32_t near = (seen & 1 ? 0xffffu : 0) | (seen & 2 ? 0xffff0000u : 0);
                const uint32_t far = (seen >> 8 & 1 ? 0xffffu : 0) | (seen >> 8 & 2 ? 0xffff0000u : 0);
                uint32_t of_v[4];
                ldmatrix_x4_trans(of_v, v + j * 16 * S::PITCH + n * 16);
                mma_bf16(y[0], weight[j], of_v[0] & near, of_v[1] & far, y[0]);
                mma_bf16(y[1], weight[j], of_v[2] & near, of_v[3] & far, y[1]);
            }
            for (int i = 0; i < 8; i++)
                if (mine[i % 4 / 2] == row) s.y[n + i / 4][i % 4] = y[i / 4][i % 4];
        }
    }
}

// --- splits ---

// What there is of the splits before, and one more.
template <class S> LQ_DEV void merge(running<S> &all, const running<S> &part) {
    float old[2], now[2];
    for (int r = 0; r < 2; r++) {
        const float max = fmaxf(all.r.max[r], part.r.max[r]);
        old[r] = exp2_approx(all.r.max[r] - max);
        now[r] = exp2_approx(part.r.max[r] - max);
        all.r.max[r] = max;
    }
    LQ_UNROLL
    for (int i = 0; i < 4; i++) all.r.sum[i] = fmaf(all.r.sum[i], old[i / 2], mul_rn(part.r.sum[i], now[i / 2]));
    LQ_UNROLL
    for (int n = 0; n < S::BLOCKS; n++)
        for (int i = 0; i < 4; i++) all.y[n][i] = fmaf(all.y[n][i], old[i / 2], mul_rn(part.y[n][i], now[i / 2]));
}

template <class S> LQ_DEV void part_left(const running<S> &part, float *item, const place &p) {
    item += p.thread * 4;
    st16(item, {bits_of(part.r.max[0]), bits_of(part.r.sum[0]), bits_of(part.r.max[1]), bits_of(part.r.sum[2])});
    LQ_UNROLL
    for (int n = 0; n < S::BLOCKS; n++)
        st16(item + (n + 1) * S::THREADS * 4, words_of(part.y[n]));
}

template <class S> LQ_DEV void part_read(running<S> &part, const float *item, const place &p) {
    item += p.thread * 4;
    const uint4 r = ld16(item);
    part.r.max[0] = float_of(r.x), part.r.max[1] = float_of(r.z);
    part.r.sum[0] = part.r.sum[1] = float_of(r.y);
    part.r.sum[2] = part.r.sum[3] = float_of(r.w);
    LQ_UNROLL
    for (int n = 0; n < S::BLOCKS; n++) floats_of(part.y[n], ld16(item + (n + 1) * S::THREADS * 4));
}

// Leaves the result of split `mine`; the block that comes last merges all, in order. False: not the last.
template <class S> LQ_DEV bool splits_merged(running<S> &all, running<S> &part, const lq_pa_args &a, const place &p,
                                             int mine, int first, int last) {
    float *items = a.parts + (size_t)blockIdx.x * gridDim.y * S::ITEM;
    const smem flag = smem_base(); // K and V are not read any more
    part_left<S>(part, items + (size_t)mine * S::ITEM, p);
    __syncthreads();
    if (p.thread == 0) sts4(flag, atomic_inc_ordered(a.arrived + blockIdx.x, (uint32_t)(last - first)));
    __syncthreads();
    if (lds4(flag) != (uint32_t)(last - first)) return false;
    for (int i = first; i <= last; i++) {
        part_read<S>(part, items + (size_t)i * S::ITEM, p);
        merge<S>(all, part);
    }
    return true;
}

// --- the end ---

// Divided, rounded, gathered in the rows' place in Q, which nobody reads any more, and stored 16 bytes at a time.
template <class S> LQ_DEV void stored(running<S> &s, const lq_pa_args &a, const place &p) {
    const int m = p.m + p.down * 16, dv = a.a.cache.dv;
    const smem rows = smem_base() + S::Q_AT + p.down * 16 * S::PITCH, out = rows + p.across * (S::COLUMNS * 2);
    const float scale = lq_cache_head_scale(&a.a.cache, p.kv_head, true);
    sync_warp(); // all lanes have read Q
    for (int r = 0; r < 2; r++) {
        float sum = s.r.sum[2 * r], by = 1;
        if (a.a.sinks) { // one more score, with no V
            const float sink = mul_rn(a.a.sinks[head_of(p, m + p.lane / 4 + 8 * r)], LOG2E);
            const float max = fmaxf(s.r.max[r], sink);
            by = exp2_approx(s.r.max[r] - max);
            sum = fmaf(sum, by, exp2_approx(sink - max));
        }
        by = sum == 0 ? 0 : mul_rn(by, scale) / sum; // below, + 0: a zero has no sign
        LQ_UNROLL
        for (int n = 0; n < S::BLOCKS; n++)
            sts4(out + (p.lane / 4 + 8 * r) * S::PITCH + n * 16 + p.lane % 4 * 4,
                 bf16x2_of(fmaf(s.y[n][2 * r], by, 0.0f), fmaf(s.y[n][2 * r + 1], by, 0.0f)));
    }
    if (S::WC > 1) __syncthreads();
    else sync_warp();
    enum { CHUNKS = S::DV / 8, LANES = (CHUNKS + 7) / 8 * 8 };
    for (int i = p.across * WARP + p.lane; i < 16 * LANES; i += WARP * S::WC) {
        const int r = i / LANES, column = i % LANES * 8;
        if (m + r >= p.ms || column >= dv) continue;
        uint16_t *y = (uint16_t *)a.a.y.p + (size_t)row_of(p, m + r) * a.a.y.stride + (size_t)head_of(p, m + r) * dv;
        st16(y + column, lds16(rows + r * S::PITCH + column * 2));
    }
}

// Rows that belong to no sequence.
template <class S> LQ_DEV void blanked(const lq_pa_args &a) {
    const int chunks = a.a.heads * a.a.cache.dv / 8;
    for (int row = lq_rows_real(&a.rows) + (int)blockIdx.x; row < a.rows.n; row += (int)gridDim.x)
        for (int i = (int)threadIdx.x; i < chunks; i += S::THREADS)
            st16((uint16_t *)a.a.y.p + (size_t)row * a.a.y.stride + i * 8, {0, 0, 0, 0});
}

template <class S> LQ_DEV void tile_added(running<S> &part, const lq_pa_args &a, const place &p, const scoring &how,
                                          int tile) {
    const smem k = smem_base() + (S::CODED ? 0 : tile / TILE % S::PLACES * S::TILE_BYTES), v = v_of<S>(p, k + S::V_AT);
    const bool sees = tile <= p.to && tile + TILE > p.from, whole = tile >= p.full_from && tile + TILE - 1 <= p.full_to;
    float score[8][4];
    uint32_t weight[4][4];
    score_tile<S>(score, p, k, sees);
    if (!sees) return;
    finish_scores<S>(score, a, p, how, tile, whole);
    weigh<S>(weight, score, part, how.by);
    if (!whole && odd_v<S>(v)) multiply_odd_v<S>(part, weight, a, p, v, tile);
    else multiply_v<S>(part, weight, v);
}

template <class S> LQ_DEV void next_copied(const lq_pa_args &a, source &s, const place &p, int tile, int to) {
    if (tile + TILE <= to) copy_tile<S>(a, s, p, tile + TILE);
    cp_async_commit();
}

// What a block does of its tile of M rows: its split, where each has a block of its own; positions.
struct task { int first, last, mine, from, to; bool apart; };

// False: nothing.
LQ_DEV bool task_of(task &t, const place &p) {
    t.first = p.lo / LQ_SPLIT, t.last = p.hi / LQ_SPLIT, t.mine = (int)blockIdx.y;
    t.apart = gridDim.y > 1 && t.first < t.last;
    if (gridDim.y > 1 && (t.apart ? t.mine < t.first || t.mine > t.last : t.mine != 0)) return false;
    t.from = t.apart ? larger(p.lo, t.mine * LQ_SPLIT) : p.lo;
    t.to = t.apart ? smaller(p.hi, t.mine * LQ_SPLIT + LQ_SPLIT - 1) : p.hi;
    return true;
}

template <class S> LQ_DEV place place_of(const lq_pa_args &a) {
    place p = {};
    p.thread = (int)threadIdx.x;
    p.lane = p.thread % WARP;
    p.warp = p.thread / WARP;
    p.down = p.warp / S::WC;
    p.across = p.warp % S::WC;
    p.group = a.a.heads / a.a.cache.kv_heads;
    p.kv_head = (int)blockIdx.x % a.a.cache.kv_heads;
    return p;
}

// The last tiles of a long prompt see most: they go first.
template <class S> LQ_DEV bool tile_found(const lq_pa_args &a, place &p) {
    const int heads = a.a.cache.kv_heads, tiles = (int)gridDim.x / heads;
    return find_tile<S>(a, p, tiles - 1 - (int)blockIdx.x / heads);
}

template <class S>
LQ_DEV void walked(const lq_pa_args &a, const place &p, const task &t, const scoring &how, source &s) {
    running<S> all, part;
    begin<S>(all);
    begin<S>(part);
    copy_q<S>(a, p);
    copy_tile<S>(a, s, p, t.from / TILE * TILE);
    cp_async_commit();
    for (int tile = t.from / TILE * TILE; tile <= t.to; tile += TILE) {
        cp_async_wait<0>();
        __syncthreads();
        if (S::PLACES == 2) next_copied<S>(a, s, p, tile, t.to);
        if (S::CODED) convert_tile<S>(p, tile);
        if (S::PLACES == 1 && S::T == LQ_PA_E4M3) next_copied<S>(a, s, p, tile, t.to); // its codes have been read
        tile_added<S>(part, a, p, how, tile);
        if (S::PLACES == 1 && S::T != LQ_PA_E4M3) {
            __syncthreads(); // nobody reads this tile, or its scales, any more
            next_copied<S>(a, s, p, tile, t.to);
        }
        if (t.apart || ((tile + TILE) % LQ_SPLIT && tile + TILE <= t.to)) continue;
        merge<S>(all, part);
        begin<S>(part);
    }
    if (!t.apart || splits_merged<S>(all, part, a, p, t.mine, t.first, t.last)) stored<S>(all, a, p);
}

// Grid: x = tiles of M rows x KV heads, y = splits, or 1: a block walks them. S::THREADS threads.
template <class S> LQ_DEV void attention(const lq_pa_args &a) {
    pdl_trigger();
    task t = {};
    if constexpr (S::EARLY) {
        place p = place_of<S>(a);
        source s = {};
        bool has = tile_found<S>(a, p);
        if (has) {
            find_bounds<S>(a, p);
            has = task_of(t, p);
        }
        const scoring how = scoring_of<S>(a, p);
        if (has) s = source_of<S>(a, p, t.from);
        pdl_wait();
        if (a.blank && blockIdx.y == 0) blanked<S>(a);
        if (has) walked<S>(a, p, t, how, s);
    } else {
        pdl_wait();
        place p = place_of<S>(a);
        if (a.blank && blockIdx.y == 0) blanked<S>(a);
        if (!tile_found<S>(a, p)) return;
        find_bounds<S>(a, p);
        if (!task_of(t, p)) return;
        const scoring how = scoring_of<S>(a, p);
        source s = source_of<S>(a, p, t.from);
        walked<S>(a, p, t, how, s);
    }
}
}
#undef LOG2E
#endif
