// w4s.cuh: y = x W^T (+ bias) for up to 8 tokens of bf16 and weights of 4 bits, (q - z) * scale, groups of 32, 64 or
// 128 columns or one for the row. The kernels are instantiated in w4s.cu; the host's side is w4s.h.
//
// Weights are operand A of mma (16 rows of outputs), tokens operand B (8 columns). q - z is an integer that bf16 holds
// exactly; a group's sum meets its scale in f32. A block of 8 warps makes 64 outputs: warp w has rows 16 (w % 4) on,
// and of each step of 256 columns the half w / 4. Weights come by cp.async into a ring, each lane's 16 bytes to the
// lane that will read them; only the tokens, which all warps share, need the barrier. Sums: columns in order within a
// half, then the halves, then the cuts.
#ifndef LQ_W4S_CUH
#define LQ_W4S_CUH
#include "kernels/cuda/simt.h"
#include "kernels/cuda/w4s.h"

namespace w4s {
enum { ROW = 0 }; // as a group: one scale for the whole row
enum scale_type { BF16, F16 };
enum {
    BLOCK = 512,                           // bytes of 16 rows x 64 columns
    X_AT = 64 * LQ_W4S_STEP / 2,           // tokens stand behind the weights of a stage
    X_PITCH = LQ_W4S_STEP * 2,             // bytes of a token
    SUM_PITCH = 68,                        // of 64 sums of a token: 8 lanes x 4 tokens fall on 32 banks
    HALF_SUMS = LQ_W4S_TOKENS * SUM_PITCH * 4,
    AHEAD = LQ_W4S_STAGES - 1
};

// Where this thread stands.
struct place {
    int thread, lane, warp, row_block, half, stripe, stripes;
    int blocks, block, end; // of 64 columns: in a row; this warp's first; behind the last of this cut
};

// What a thread copies in a step: two blocks' worth of its own weights, and 16 bytes of one token.
struct copier {
    const unsigned char *w, *x;
    smem w_to, x_to;    // within a stage
    int w_block, w_end; // next block of 64 columns to copy, and behind the last
    int x_left;         // bytes of the token from x on
    l2_policy once;
};

LQ_DEV void copy_weights(copier &c, smem stage) {
    cp_async16(stage + c.w_to, c.w, c.w_block < c.w_end ? 16 : 0, c.once);
    cp_async16(stage + c.w_to + BLOCK, c.w + 4 * BLOCK, c.w_block + 1 < c.w_end ? 16 : 0, c.once);
    c.w += 4 * 4 * BLOCK;
    c.w_block += LQ_W4S_STEP / 64;
}

LQ_DEV void copy_tokens(copier &c, smem stage) {
    const int bytes = c.x_left < 16 ? c.x_left : 16;
    cp_async16(stage + c.x_to, c.x, bytes > 0 ? (unsigned)bytes : 0);
    c.x += LQ_W4S_STEP * 2;
    c.x_left -= LQ_W4S_STEP * 2;
}

LQ_DEV copier copier_of(const lq_w4s_args &a, const place &p, smem ring) {
    copier c;
    const int token = p.warp, chunk = p.lane, k = p.block / 4 * LQ_W4S_STEP + 8 * chunk;
    const bool there = token < a.m;
    c.w = (const unsigned char *)a.w + ((size_t)p.stripe * p.blocks + p.block) * (4 * BLOCK) + p.row_block * BLOCK +
          p.lane * 16;
    c.w_to = ring + p.warp * (2 * BLOCK) + p.lane * 16;
    c.w_block = p.block;
    c.w_end = p.end;
    c.x = (const unsigned char *)(a.x + (there ? token * a.x_stride : 0) + k);
    c.x_to = ring + X_AT + token * X_PITCH + (chunk ^ token) * 16;
    c.x_left = there ? ((a.k < p.end * 64 ? a.k : p.end * 64) - k) * 2 : 0;
    c.once = l2_evict_first();
    return c;
}

// Scales and zero points of one group, of rows g and g + 8 of the row block; of a zero point -(128 + z), twice.
struct group {
    uint32_t scales, minus_low, minus_high;
};

struct groups {
    const uint32_t *scale, *zero;
    uint32_t scale_at, zero_at, scale_step, zero_step; // words: of the next group, from one to the next
    int left;                                          // columns from there to the end of this cut
    int shift;                                         // of this row block's nibbles
};

template <int G, bool ZEROS> LQ_DEV groups groups_of(const lq_w4s_args &a, const place &p) {
    const uint32_t first = G ? (uint32_t)(p.block * 64 / (G ? G : 1)) : 0;
    groups s;
    s.scale = (const uint32_t *)a.scale;
    s.scale_step = (uint32_t)p.stripes * 32;
    s.scale_at = first * s.scale_step + (uint32_t)(p.stripe * 32 + p.row_block * 8 + p.lane / 4);
    s.zero = ZEROS ? a.zero : NULL;
    s.zero_step = (uint32_t)p.stripes * 8;
    s.zero_at = first * s.zero_step + (uint32_t)(p.stripe * 8 + p.lane / 4);
    s.left = (a.k < p.end * 64 ? a.k : p.end * 64) - p.block * 64;
    s.shift = 8 * p.row_block;
    return s;
}

// The i-th group from the next on. `there`: outside of the matrix a group has scale 0, so that 0 stays 0.
template <bool ZEROS> LQ_DEV group group_read(const groups &s, uint32_t i, bool there) {
    group g = {0, 0xc308c308u, 0xc308c308u};
    if (there) g.scales = ldg4(s.scale + (s.scale_at + i * s.scale_step));
    if (ZEROS) {
        uint32_t z = 0;
        if (there) z = ldg4(s.zero + (s.zero_at + i * s.zero_step));
        z >>= s.shift;
        g.minus_low = 0xc300c300u + (z & 15) * 0x10001u;
        g.minus_high = 0xc300c300u + (z >> 4 & 15) * 0x10001u;
    }
    return g;
}

template <scale_type S> LQ_DEV float scale_low(uint32_t pair) {
    return S == BF16 ? bf16_low(pair) : f16_float(pair & 0xffff);
}

template <scale_type S> LQ_DEV float scale_high(uint32_t pair) {
    return S == BF16 ? bf16_high(pair) : f16_float(pair >> 16);
}

// The sum of a group's products is scaled and added; the next group begins at 0.
template <scale_type S> LQ_DEV void group_ended(float (&sum)[4], float (&part)[4], const group &g) {
    const float low = scale_low<S>(g.scales), high = scale_high<S>(g.scales);
    sum[0] = fmaf(low, part[0], sum[0]);
    sum[1] = fmaf(low, part[1], sum[1]);
    sum[2] = fmaf(high, part[2], sum[2]);
    sum[3] = fmaf(high, part[3], sum[3]);
    for (int i = 0; i < 4; i++) part[i] = 0;
}

// 16 rows x 16 columns times 8 tokens. A nibble under the bits of 128.0 is 128 + q; times 1 minus (128 + z) is q - z.
LQ_DEV void multiply16(float (&part)[4], uint32_t nibbles, const group &g, uint32_t b0, uint32_t b1) {
    const uint32_t one = 0x3f803f80u, mask = 0x000f000fu, magic = 0x43004300u;
    const uint32_t a[4] = {
        bf16x2_fma(and_or(nibbles, mask, magic), one, g.minus_low),
        bf16x2_fma(and_or(nibbles >> 4, mask, magic), one, g.minus_high),
        bf16x2_fma(and_or(nibbles >> 8, mask, magic), one, g.minus_low),
        bf16x2_fma(and_or(nibbles >> 12, mask, magic), one, g.minus_high),
    };
    mma_bf16(part, a, b0, b1, part);
}

// One block of 64 columns: two groups of 32 in it, or a part of one.
template <int G, scale_type S> LQ_DEV void multiply64(float (&sum)[4], float (&part)[4], smem w, smem x_low,
                                                      smem x_high, const group &first, const group &second) {
    const uint4 q = lds16(w);
    uint32_t b[4];
    ldmatrix_x4(b, x_low);
    multiply16(part, q.x, first, b[0], b[1]);
    multiply16(part, q.y, first, b[2], b[3]);
    if (G == 32) group_ended<S>(sum, part, first);
    ldmatrix_x4(b, x_high);
    multiply16(part, q.z, second, b[0], b[1]);
    multiply16(part, q.w, second, b[2], b[3]);
    if (G == 32 || G == 64) group_ended<S>(sum, part, second);
}

// The groups that a warp's half of a step, 128 columns, falls into; AT0 to AT3: those of its four times 32 columns.
template <int G> struct of_step {
    enum { GROUPS = G == 32 ? 4 : G == 64 ? 2 : 1, AT0 = 0, AT1 = GROUPS / 4, AT2 = GROUPS / 2, AT3 = GROUPS * 3 / 4 };
};

template <int G, bool ZEROS> LQ_DEV void step_groups(group (&to)[of_step<G>::GROUPS], groups &s) {
    for (int i = 0; i < of_step<G>::GROUPS; i++) to[i] = group_read<ZEROS>(s, (uint32_t)i, i * G < s.left);
    const uint32_t passed = LQ_W4S_STEP / (G ? G : 1);
    s.scale_at += passed * s.scale_step;
    s.zero_at += passed * s.zero_step;
    s.left -= LQ_W4S_STEP;
}

// The loop over the columns of this cut; leaves a warp's sums of its halves.
template <int G, scale_type S, bool ZEROS>
LQ_DEV void multiply(float (&sum)[4], const lq_w4s_args &a, const place &p, smem ring) {
    copier c = copier_of(a, p, ring);
    groups s = groups_of<G, ZEROS>(a, p);
    const int row = p.lane & 7, steps = (p.end - p.block / 4 * 4 + 3) / 4;
    for (int i = 0; i < AHEAD; i++) copy_weights(c, i * LQ_W4S_STAGE);
    pdl_wait();
    for (int i = 0; i < AHEAD; i++) {
        copy_tokens(c, i * LQ_W4S_STAGE);
        cp_async_commit();
    }
    // Of token `row`, the 16-byte chunks of 32 columns from this warp's half on; chunks are turned by the token.
    smem x[4];
    for (int i = 0; i < 4; i++) x[i] = ring + X_AT + row * X_PITCH + ((p.half * 16 + i * 4 + p.lane / 8) ^ row) * 16;
    const smem w = ring + p.warp * (2 * BLOCK) + p.lane * 16;
    group now[of_step<G>::GROUPS], next[of_step<G>::GROUPS];
    if (G == ROW) now[0] = group_read<ZEROS>(s, 0, true);
    else step_groups<G, ZEROS>(now, s);
    float part[4] = {0, 0, 0, 0};
    smem from = 0, to = AHEAD * LQ_W4S_STAGE;
    for (int i = 0; i < steps; i++) {
        cp_async_wait<AHEAD - 1>();
        __syncthreads();
        copy_weights(c, to);
        copy_tokens(c, to);
        cp_async_commit();
        if (G != ROW) step_groups<G, ZEROS>(next, s);
        typedef of_step<G> g;
        multiply64<G, S>(sum, part, from + w, from + x[0], from + x[1], now[g::AT0], now[g::AT1]);
        multiply64<G, S>(sum, part, from + w + BLOCK, from + x[2], from + x[3], now[g::AT2], now[g::AT3]);
        if (G == 128) group_ended<S>(sum, part, now[0]);
        if (G != ROW)
            for (int j = 0; j < g::GROUPS; j++) now[j] = next[j];
        to = from;
        from = from + LQ_W4S_STAGE == LQ_W4S_SHARED ? 0 : from + LQ_W4S_STAGE;
    }
    if (G == ROW) group_ended<S>(sum, part, now[0]);
    cp_async_wait<0>();
}

struct pair { float low, high; }; // of rows 2 lane and 2 lane + 1 of the stripe, token `warp`

// The sums of both halves meet in shared memory; warp w leaves with token w, each lane with two rows.
LQ_DEV pair halves_added(const float (&sum)[4], const place &p, smem at) {
    const int g = p.lane / 4, t = p.lane % 4;
    __syncthreads(); // the ring is not read any more
    for (int i = 0; i < 4; i++) {
        const int token = 2 * t + (i & 1), r = p.row_block * 16 + g + 8 * (i >> 1);
        sts4(at + p.half * HALF_SUMS + (token * SUM_PITCH + r) * 4, bits_of(sum[i]));
    }
    __syncthreads();
    const smem mine = at + (p.warp * SUM_PITCH + 2 * p.lane) * 4;
    const uint2 low = lds8(mine), high = lds8(mine + HALF_SUMS);
    return {float_of(low.x) + float_of(high.x), float_of(low.y) + float_of(high.y)};
}

// Of a k that is cut: leaves this cut's sums, and in the block that comes last makes the sum of all, in their order.
// False: not the last.
LQ_DEV bool cuts_added(pair &v, const lq_w4s_args &a, const place &p, int cut, int cuts, smem flag) {
    const size_t stride = (size_t)p.stripes * LQ_W4S_TOKENS * 64;
    float *mine = a.parts + ((size_t)p.stripe * LQ_W4S_TOKENS + p.warp) * 64 + 2 * p.lane;
    st8(mine + cut * stride, {bits_of(v.low), bits_of(v.high)});
    __syncthreads();
    if (p.thread == 0) {
        __threadfence(); // what the block has written, before it says so
        sts4(flag, atomic_inc(a.arrived + p.stripe, (uint32_t)cuts - 1));
        __threadfence(); // and what others have, before it is read
    }
    __syncthreads();
    if (lds4(flag) != (uint32_t)cuts - 1) return false;
    v = {0, 0};
    for (int i = 0; i < cuts; i++) {
        const uint2 of = ld8(mine + i * stride);
        v.low += float_of(of.x);
        v.high += float_of(of.y);
    }
    return true;
}

LQ_DEV void stored(pair v, const lq_w4s_args &a, const place &p) {
    const int row = p.stripe * LQ_W4S_STRIPE + 2 * p.lane;
    if (p.warp >= a.m || row >= a.n) return;
    const bool both = row + 1 < a.n;
    uint16_t *y = a.y + p.warp * a.y_stride + row;
    if (a.bias) {
        const uint32_t bias = both ? ldg4(a.bias + row) : ldg2(a.bias + row);
        v.low += bf16_low(bias);
        v.high += bf16_high(bias);
    }
    const uint32_t out = bf16x2_of(v.low, v.high);
    if (both) st4(y, out);
    else st2(y, out);
}

// Grid: stripes x cuts; LQ_W4S_THREADS threads, LQ_W4S_SHARED bytes.
template <int G, scale_type S, bool ZEROS> LQ_DEV void product(const lq_w4s_args &a) {
    pdl_trigger();
    const smem ring = smem_base();
    const int cut = (int)blockIdx.y, cuts = (int)gridDim.y, cut_blocks = a.cut / 64;
    place p;
    p.thread = (int)threadIdx.x;
    p.lane = p.thread % WARP;
    p.warp = p.thread / WARP;
    p.row_block = p.warp % 4;
    p.half = p.warp / 4;
    p.stripe = (int)blockIdx.x;
    p.stripes = (int)gridDim.x;
    p.blocks = (a.k + 63) / 64;
    p.block = cut * cut_blocks + 2 * p.half;
    p.end = cut + 1 < cuts ? (cut + 1) * cut_blocks : p.blocks;
    float sum[4] = {0, 0, 0, 0};
    multiply<G, S, ZEROS>(sum, a, p, ring);
    pair v = halves_added(sum, p, ring);
    if (cuts == 1 || cuts_added(v, a, p, cut, cuts, ring + 2 * HALF_SUMS)) stored(v, a, p);
}
}
#endif
