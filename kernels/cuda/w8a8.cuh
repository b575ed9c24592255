// w8a8.cuh: y = x W^T (+ bias) where both are codes of 8 bits: int8 by mma.m16n8k32, whose sums are exact; e4m3 and
// e5m2 as the numbers of bf16 that they are, by mma.m16n8k16. For each token alone, or for the slots of experts. The
// kernels are instantiated in w8a8.cu; the host's side is w8a8.h.
//
// Weights are operand A of mma (16 rows of outputs), tokens operand B (8 columns). A block walks all of K, so that
// cells meet their scales in one order, that of the columns: sums of integers have the bits of portable C. Rows of both
// come by cp.async into a ring, 128 bytes of each in a stage, 16-byte chunks turned by the row so that ldmatrix finds
// no bank twice. Columns that are kept apart are a product of bf16 behind the loop.
#ifndef LQ_W8A8_CUH
#define LQ_W8A8_CUH
#include "formats/elem.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/w4s.cuh"
#include "kernels/cuda/w8a8.h"

namespace w8a8 {
enum { PITCH = LQ_W8A8_STEP };

template <int T> struct shape {
    enum {
        THREADS = LQ_W8A8_THREADS(T),
        DOWN = LQ_W8A8_DOWN(T),
        ROWS = LQ_W8A8_ROWS(T),                   // of a block of threads
        BLOCKS = ROWS / DOWN / 16,                // of 16 rows, of a warp; TILES: of 8 tokens
        TILES = T / LQ_W8A8_ACROSS(T) / 8,
        TOKENS = T,
        PASS = THREADS / 8,                       // rows that all threads copy at once
        X_AT = ROWS * PITCH,                      // tokens stand behind the weights of a stage
        STAGE = LQ_W8A8_STAGE(T),
        AHEAD = LQ_W8A8_STAGES(T) - 1,
        RING = LQ_W8A8_STAGES(T) * STAGE,         // then the rows of x of the tokens
        SUM_PITCH = ROWS + 4                      // of a token's sums: 8 lanes x 4 tokens fall on 32 banks
    };
};

// What a block reads of a weight.
struct matrix {
    const uint8_t *q, *zero;
    const void *scale;
    const float *scale2, *bias;
    const uint16_t *apart;
    const int32_t *code_sum;
    lq_dtype type; // of scales
    bool narrow;   // e5m2
    int one, n;    // which of all that are joined; its rows
};

LQ_DEV matrix matrix_from(const lq_weight &w, const float *bias, int one, int n) {
    return {(const uint8_t *)w.q, w.zero, w.scale, w.scale2, bias, w.outlier_w, w.code_sum, w.type.scale,
            w.type.elem == LQ_E5M2, one, n};
}

// That of this block of the grid.
LQ_DEV matrix matrix_of(const lq_w8a8_args &a, int expert) {
    int one = 0;
    LQ_UNROLL
    for (int i = 1; i < LQ_MATS; i++) one += i < a.joined && (int)blockIdx.y >= a.of[i].first;
    const lq_w8a8_one &of = a.of[one];
    if (!of.experts) return matrix_from(of.w, of.bias, one, of.n);
    return matrix_from(of.experts[expert], of.biases ? of.biases[expert] : NULL, one, of.n);
}

// This block's first row.
template <class S> LQ_DEV int first_of(const lq_w8a8_args &a, const matrix &m) {
    return ((int)blockIdx.y - a.of[m.one].first) * S::ROWS;
}

LQ_DEV int least(int a, int b) { return a < b ? a : b; }

// --- scales ---

// Where a lane's outputs are: rows first + 16 r + 8 h, tokens token + 8 t + j of the block's.
struct spot { int lane, warp_row, row, token; };

template <class S> LQ_DEV spot spot_of(const lq_w8a8_args &a, const matrix &m) {
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int down = warp % S::DOWN * S::BLOCKS * 16;
    return {lane, down, first_of<S>(a, m) + down + lane / 4, warp / S::DOWN * S::TILES * 8 + lane % 4 * 2};
}

template <class S> struct scales { float w[S::BLOCKS][2], x[S::TILES][2]; };

// The row of x of a token of this block.
template <class S> LQ_DEV size_t x_row(smem base, const spot &at, int t, int j) {
    return lds4(base + S::RING + (at.token + 8 * t + j) * 4);
}

LQ_DEV float scale_of(const matrix &m, size_t i, int size, float by) {
    if (size == 4) return float_of(ldg4((const float *)m.scale + i));
    if (size == 1) {
        const uint32_t byte = ldg1((const uint8_t *)m.scale + i);
        return m.type == LQ_E8M0 ? lq_e8m0_widen(byte) : lq_e4m3_widen(byte) * by;
    }
    const uint32_t half = ldg2((const uint16_t *)m.scale + i);
    return m.type == LQ_F16 ? f16_float(half) : bf16_low(half);
}

// Scales that have so many bytes, of a lane's rows.
template <class S>
LQ_DEV void w_scales(scales<S> &to, const lq_w8a8_args &a, const matrix &m, const spot &at, int group, int size) {
    const float by = size == 1 && m.type == LQ_E4M3 ? float_of(ldg4(m.scale2)) : 1.0f;
    LQ_UNROLL
    for (int i = 0; i < 2 * S::BLOCKS; i++) {
        const int row = least(at.row + i / 2 * 16 + i % 2 * 8, m.n - 1);
        to.w[i / 2][i % 2] = scale_of(m, (size_t)(row >> a.share_shift) * (size_t)a.groups + (size_t)group, size, by);
    }
}

template <class S>
LQ_DEV void scales_read(scales<S> &to, const lq_w8a8_args &a, const matrix &m, smem base, const spot &at, int cell) {
    const int group = cell >> a.group_shift;
    if (m.type == LQ_F32) w_scales<S>(to, a, m, at, group, 4);
    else if (m.type == LQ_F16 || m.type == LQ_BF16) w_scales<S>(to, a, m, at, group, 2);
    else w_scales<S>(to, a, m, at, group, 1);
    LQ_UNROLL
    for (int i = 0; i < 2 * S::TILES; i++)
        to.x[i / 2][i % 2] =
            float_of(ld4(a.x.scale + (size_t)cell * (size_t)a.x.apart + x_row<S>(base, at, i / 2, i % 2)));
}

// --- the ring: a thread copies 16 bytes of rows i / 8, i / 8 + PASS .. ---

template <class S> struct weights_copier {
    const uint8_t *from;
    smem to;
    int rows, left; // of the matrix from this thread's first on; columns from its chunk on
    l2_policy once;

    LQ_METHOD void begin(const lq_w8a8_args &a, const matrix &m, smem base) {
        const int i = (int)threadIdx.x, row = i / 8, chunk = i % 8;
        from = m.q + (size_t)(first_of<S>(a, m) + row) * (size_t)a.k + chunk * 16;
        to = base + row * PITCH + (chunk ^ row % 8) * 16;
        rows = m.n - first_of<S>(a, m) - row;
        left = a.k - chunk * 16;
        once = l2_evict_first();
    }

    LQ_METHOD void copy(int k) {
        LQ_UNROLL
        for (int i = 0; i < S::ROWS / S::PASS; i++)
            cp_async16(to + i * S::PASS * PITCH, from + (size_t)(i * S::PASS) * (size_t)k,
                       i * S::PASS < rows && left > 0 ? 16 : 0, once);
        to = w4s::stage_on<S>(to);
        from += PITCH;
        left -= PITCH;
    }
};

// Of integers k is cut into cells of q_row columns, in each of which all rows lie one behind the other.
template <class S> struct tokens_copier {
    const uint8_t *x;
    smem to;
    int k, mask, shift, end, there; // the column of this thread's chunk; tokens from its first on
    size_t cell;                    // bytes from cell to cell
    uint32_t at[S::TOKENS / S::PASS]; // of a token in a cell, in 16 bytes

    LQ_METHOD void begin(const lq_w8a8_args &a, int tokens, smem base) {
        const int i = (int)threadIdx.x, token = i / 8, chunk = i % 8;
        const bool cells = a.x.type.elem == LQ_I8;
        x = (const uint8_t *)a.x.q;
        to = base + S::X_AT + token * PITCH + (chunk ^ token % 8) * 16;
        k = chunk * 16, end = a.k;
        mask = cells ? (int)a.x.q_row - 1 : 0x7fffffff;
        shift = cells ? bits_set((uint32_t)mask) : 31;
        cell = a.x.q_row * (size_t)a.x.apart;
        there = tokens - token;
        LQ_UNROLL
        for (int c = 0; c < S::TOKENS / S::PASS; c++)
            at[c] = lds4(base + S::RING + (token + c * S::PASS) * 4) * (uint32_t)(a.x.q_row / 16);
    }

    LQ_METHOD void copy(smem stage) {
        const uint8_t *from = x + (size_t)(k >> shift) * cell + (k & mask);
        LQ_UNROLL
        for (int c = 0; c < S::TOKENS / S::PASS; c++)
            cp_async16(stage + to + c * S::PASS * PITCH, k < end ? from + (size_t)at[c] * 16 : x,
                       k < end && c * S::PASS < there ? 16 : 0);
        k += PITCH;
    }
};

// --- what codes are: 32 bytes of 16 rows as operand A, of 8 tokens as operand B; both bring columns in one order ---

// A code of int8 is 128 more than a number of s8.
struct ints {
    typedef int32_t sum;
    enum { INTS = 1, APART = 0 };
    struct left { uint32_t v[4]; };

    LQ_METHOD left left_of(const uint32_t (&raw)[4]) const {
        return {{raw[0] ^ 0x80808080u, raw[1] ^ 0x80808080u, raw[2] ^ 0x80808080u, raw[3] ^ 0x80808080u}};
    }

    LQ_METHOD uint2 right_of(uint32_t b0, uint32_t b1) const { return {b0, b1}; }
    LQ_METHOD void multiply(sum (&to)[4], const left &a, const uint2 &b) const { mma_s8(to, a.v, b.x, b.y, to); }
};

// Small floats: sign, and what stands behind it moved under the exponent of bf16, times the power of two that it lacks;
// of four bytes the odd ones and the even ones. A code that is no number counts as what its bits would be next.
struct floats {
    typedef float sum;
    enum { INTS = 0, APART = 0 };
    struct left { uint32_t v[2][4]; };
    int shift;   // of the weights' codes: e4m3, or e5m2
    uint32_t by;

    static LQ_METHOD uint32_t wide(uint32_t q, int shift, uint32_t by) {
        return bf16x2_fma(and_or(q, 0x80008000u, (q & 0x7f007f00u) >> shift), by, 0x80008000u);
    }

    LQ_METHOD left left_of(const uint32_t (&raw)[4]) const {
        left a;
        LQ_UNROLL
        for (int i = 0; i < 4; i++) {
            a.v[i / 2][i % 2] = wide(raw[i], shift, by);
            a.v[i / 2][i % 2 + 2] = wide(raw[i] << 8, shift, by);
        }
        return a;
    }

    LQ_METHOD uint4 right_of(uint32_t b0, uint32_t b1) const {
        return {wide(b0, 4, 0x7b807b80u), wide(b0 << 8, 4, 0x7b807b80u), wide(b1, 4, 0x7b807b80u),
                wide(b1 << 8, 4, 0x7b807b80u)};
    }

    LQ_METHOD void multiply(sum (&to)[4], const left &a, const uint4 &b) const {
        mma_bf16(to, a.v[0], b.x, b.y, to);
        mma_bf16(to, a.v[1], b.z, b.w, to);
    }
};

// Numbers of bf16, 16 columns: of columns that are kept apart.
struct halves {
    typedef float sum;
    enum { APART = 1 };
    struct left { uint32_t v[4]; };
    LQ_METHOD left left_of(const uint32_t (&raw)[4]) const { return {{raw[0], raw[1], raw[2], raw[3]}}; }
    LQ_METHOD uint2 right_of(uint32_t b0, uint32_t b1) const { return {b0, b1}; }
    LQ_METHOD void multiply(sum (&to)[4], const left &a, const uint2 &b) const { mma_bf16(to, a.v, b.x, b.y, to); }
};

LQ_DEV ints codes_of(const ints *, const matrix &) { return {}; }
LQ_DEV floats codes_of(const floats *, const matrix &m) {
    if (m.narrow) return {3, 0x77807780u};
    return {4, 0x7b807b80u};
}

// --- a step ---

// Where a lane reads in a stage.
struct reader { smem w, x; uint32_t w_turned, x_turned; };

template <class S> LQ_DEV reader reader_of(smem base) {
    const int l = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, two = S::TILES > 1;
    const int row = warp % S::DOWN * S::BLOCKS * 16 + l % 16;
    const int token = warp / S::DOWN * S::TILES * 8 + l % 8 + (two ? l / 16 * 8 : 0);
    return {base + row * PITCH, base + S::X_AT + token * PITCH, (uint32_t)(l / 16 ^ row % 8) * 16,
            (uint32_t)((two ? l / 8 % 2 : l / 8) ^ token % 8) * 16};
}

template <class S, class N> struct sums { N of[S::BLOCKS][S::TILES][4]; };

// The i-th 32 bytes of a stage; b is kept from one to the next where 8 tokens are all.
template <class S, class OP>
LQ_DEV void multiply_part(sums<S, typename OP::sum> &to, const OP &op, const reader &at, smem stage, int i,
                          uint32_t (&b)[4]) {
    typename OP::left a[S::BLOCKS];
    LQ_UNROLL
    for (int r = 0; r < S::BLOCKS; r++) {
        uint32_t raw[4];
        ldmatrix_x4(raw, stage + at.w + r * 16 * PITCH + (i * 32 ^ at.w_turned));
        a[r] = op.left_of(raw);
    }
    if (S::TILES == 1) {
        if (i % 2 == 0) ldmatrix_x4(b, stage + at.x + (i * 32 ^ at.x_turned));
        const auto right = op.right_of(b[i % 2 * 2], b[i % 2 * 2 + 1]);
        LQ_UNROLL
        for (int r = 0; r < S::BLOCKS; r++) op.multiply(to.of[r][0], a[r], right);
    }
    LQ_UNROLL
    for (int t = 0; t + 1 < S::TILES; t += 2) {
        ldmatrix_x4(b, stage + at.x + t * 8 * PITCH + (i * 32 ^ at.x_turned));
        LQ_UNROLL
        for (int j = 0; j < 2; j++) {
            const auto right = op.right_of(b[2 * j], b[2 * j + 1]);
            LQ_UNROLL
            for (int r = 0; r < S::BLOCKS; r++) op.multiply(to.of[r][t + j], a[r], right);
        }
    }
}

// --- cells ---

// The sums of x over all cells, of each token, go where the ring was.
template <class S> LQ_DEV void x_sums(const lq_w8a8_args &a, smem base) {
    const int cells = (a.k + (int)a.x.q_row - 1) / (int)a.x.q_row, lane = (int)threadIdx.x % WARP;
    LQ_ROLLED
    for (int token = (int)threadIdx.x / WARP; token < S::TOKENS; token += S::THREADS / WARP) {
        const size_t row = lds4(base + S::RING + token * 4);
        uint32_t sum = 0;
        LQ_ROLLED
        for (int c = lane; c < cells; c += WARP) sum += ld4(a.x.sum + (size_t)c * (size_t)a.x.apart + row);
        for (int apart = 1; apart < WARP; apart *= 2) sum += shfl_xor(sum, apart);
        if (lane == 0) sts4(base + token * 4, sum);
    }
    __syncthreads();
}

// Sums of int8 codes less 128 become those of codes less their zero points. whole: x_sums has been there.
template <class S>
LQ_DEV void zeros_taken(sums<S, int32_t> &part, const lq_w8a8_args &a, const matrix &m, smem base, const spot &at,
                        int cell, bool whole) {
    const int groups = (a.groups + 3) / 4 * 4;
    uint32_t z[2 * S::BLOCKS];
    LQ_UNROLL
    for (int i = 0; i < 2 * S::BLOCKS; i++) {
        const int row = least(at.row + i / 2 * 16 + i % 2 * 8, m.n - 1);
        z[i] = ldg1(m.zero + (size_t)row * (size_t)groups + (size_t)(cell >> a.group_shift)) - 128;
    }
    LQ_UNROLL
    for (int t = 0; t < 2 * S::TILES; t++) {
        const uint32_t sum = whole
                                 ? lds4(base + (at.token + t / 2 * 8 + t % 2) * 4)
                                 : ld4(a.x.sum + (size_t)cell * (size_t)a.x.apart + x_row<S>(base, at, t / 2, t % 2));
        LQ_UNROLL
        for (int i = 0; i < 2 * S::BLOCKS; i++) {
            int32_t *to = &part.of[i / 2][t / 2][i % 2 * 2 + t % 2];
            *to = (int32_t)((uint32_t)*to - z[i] * sum);
        }
    }
}

// The activations' zero points, each times its row's sum of codes.
template <class S>
LQ_DEV void x_zeros_taken(sums<S, int32_t> &part, const lq_w8a8_args &a, const matrix &m, smem base, const spot &at) {
    LQ_UNROLL
    for (int t = 0; t < 2 * S::TILES; t++) {
        const uint32_t z = ld4(a.x.zero + x_row<S>(base, at, t / 2, t % 2));
        LQ_UNROLL
        for (int i = 0; i < 2 * S::BLOCKS; i++) {
            const uint32_t sum = ldg4(m.code_sum + least(at.row + i / 2 * 16 + i % 2 * 8, m.n - 1));
            int32_t *to = &part.of[i / 2][t / 2][i % 2 * 2 + t % 2];
            *to = (int32_t)((uint32_t)*to - z * sum);
        }
    }
}

LQ_DEV float scaled(int32_t part, float by, float sum) { return fmaf((float)part, by, sum); }
LQ_DEV float scaled(float part, float by, float sum) { return sum + part * by; }

// A cell has ended: its sums meet their scales; the next begins at 0.
template <class S, class N> LQ_DEV void cell_ended(sums<S, float> &sum, sums<S, N> &part, const scales<S> &s) {
    LQ_UNROLL
    for (int r = 0; r < S::BLOCKS; r++)
        LQ_UNROLL
        for (int t = 0; t < S::TILES; t++)
            LQ_UNROLL
            for (int i = 0; i < 4; i++) {
                sum.of[r][t][i] = scaled(part.of[r][t][i], s.w[r][i / 2] * s.x[t][i % 2], sum.of[r][t][i]);
                part.of[r][t][i] = 0;
            }
}

// Scales for each G columns, or (0) for all.
template <class OP, int G, class S>
LQ_DEV void multiply(sums<S, float> &sum, const lq_w8a8_args &a, const matrix &m, int tokens, smem base) {
    enum { PARTS = LQ_W8A8_STEP / 32, SMALL = G > 0 && G < LQ_W8A8_STEP, UNIT = SMALL ? 32 : LQ_W8A8_STEP };
    const OP op = codes_of((const OP *)NULL, m);
    const reader at = reader_of<S>(base);
    const spot mine = spot_of<S>(a, m);
    const int steps = (a.k + LQ_W8A8_STEP - 1) / LQ_W8A8_STEP, last = G ? a.cell / UNIT - 1 : 0;
    const int shift = bits_set((uint32_t)last); // a cell is 1 << shift units
    tokens_copier<S> x;
    weights_copier<S> w;
    sums<S, typename OP::sum> part = {};
    scales<S> s[SMALL ? PARTS : 1];
    w.begin(a, m, base);
    LQ_UNROLL
    for (int i = 0; i < S::AHEAD; i++) w.copy(a.k);
    pdl_wait();
    __syncthreads(); // the rows of x are known
    x.begin(a, tokens, base);
    LQ_UNROLL
    for (int i = 0; i < S::AHEAD; i++) {
        x.copy(i * S::STAGE);
        cp_async_commit();
    }
    smem from = 0, to = S::AHEAD * S::STAGE;
    for (int step = 0; step < steps; step++) {
        const bool ends = G && !SMALL && ((step & last) == last || step + 1 == steps);
        if (ends) scales_read<S>(s[0], a, m, base, mine, step >> shift);
        LQ_UNROLL
        for (int i = 0; SMALL && i < PARTS; i++)
            if ((i & last) == last && ((step * PARTS + i) >> shift) * a.cell < a.k)
                scales_read<S>(s[i], a, m, base, mine, (step * PARTS + i) >> shift);
        cp_async_wait<S::AHEAD - 1>();
        __syncthreads();
        w.copy(a.k);
        x.copy(to);
        cp_async_commit();
        uint32_t b[4];
        LQ_UNROLL
        for (int i = 0; i < PARTS; i++) {
            multiply_part<S>(part, op, at, from, i, b);
            const int cell = (step * PARTS + i) >> shift;
            if (!SMALL || (i & last) != last || cell * a.cell >= a.k) continue;
            if constexpr (OP::INTS != 0) if (m.zero) zeros_taken<S>(part, a, m, base, mine, cell, false);
            cell_ended(sum, part, s[i]);
        }
        if (ends) {
            if constexpr (OP::INTS != 0) if (m.zero) zeros_taken<S>(part, a, m, base, mine, step >> shift, false);
            cell_ended(sum, part, s[0]);
        }
        to = from;
        from = from + S::STAGE == S::RING ? 0 : from + S::STAGE;
    }
    cp_async_wait<0>();
    __syncthreads(); // the ring is not read any more
    if (G) return;
    scales_read<S>(s[0], a, m, base, mine, 0);
    if constexpr (OP::INTS != 0) {
        if (m.zero) {
            x_sums<S>(a, base);
            zeros_taken<S>(part, a, m, base, mine, 0, true);
            __syncthreads();
        }
        if (a.x.zero) x_zeros_taken<S>(part, a, m, base, mine);
    }
    cell_ended(sum, part, s[0]);
}

// --- columns that are kept apart ---

LQ_DEV uint32_t two_of(const uint16_t *p, int i, int left) {
    return left > 1 ? ldg2(p + i) | ldg2(p + i + 1) << 16 : left > 0 ? ldg2(p + i) : 0;
}

// 64 of them at a time: gathered from x, and the weights' own, as rows of a stage; their sum is added to what is there.
template <class S>
LQ_DEV void apart_added(sums<S, float> &sum, const lq_w8a8_args &a, const matrix &m, int tokens, smem base) {
    const reader at = reader_of<S>(base);
    const int all = a.x.outliers;
    sums<S, float> part = {};
    for (int o0 = 0; o0 < all; o0 += 64) {
        if (o0) __syncthreads();
        for (int i = (int)threadIdx.x; i < (S::ROWS + S::TOKENS) * 32; i += S::THREADS) {
            const int row = i / 32, o = o0 + i % 32 * 2, left = all - o;
            uint32_t v = 0;
            if (row >= S::ROWS) {
                const int token = row - S::ROWS;
                const uint16_t *x = (const uint16_t *)a.x.x.p + (size_t)lds4(base + S::RING + token * 4) * a.x.x.stride;
                if (token < tokens && left > 0) v = ld2(x + ldg4(a.x.outlier + o));
                if (token < tokens && left > 1) v |= ld2(x + ldg4(a.x.outlier + o + 1)) << 16;
            } else if (first_of<S>(a, m) + row < m.n)
                v = two_of(m.apart + (size_t)(first_of<S>(a, m) + row) * (size_t)all, o, left);
            sts4(base + row * PITCH + ((i % 32 / 4 ^ row % 8) * 16) + i % 4 * 4, v);
        }
        __syncthreads();
        uint32_t b[4];
        LQ_UNROLL
        for (int i = 0; i < 4; i++) multiply_part<S>(part, halves(), at, 0, i, b);
    }
    __syncthreads();
    LQ_UNROLL
    for (int i = 0; i < S::BLOCKS * S::TILES * 4; i++) {
        float *to = &sum.of[i / 4 / S::TILES][i / 4 % S::TILES][i % 4];
        *to += part.of[i / 4 / S::TILES][i / 4 % S::TILES][i % 4];
    }
}

// --- from sums to outputs ---

// more: it is added to what y holds.
LQ_DEV void pair_stored(float low, float high, const lq_w8a8_one &a, const float *bias, int slot, int row, bool more) {
    const bool both = row + 1 < a.n, wide = both && a.y.stride % 2 == 0;
    const size_t at = (size_t)slot * a.y.stride + (size_t)row;
    float *f32 = (float *)a.y.p + at;
    uint16_t *bf16 = (uint16_t *)a.y.p + at;
    if (bias) {
        low += float_of(ldg4(bias + row));
        if (both) high += float_of(ldg4(bias + row + 1));
    }
    if (a.y.type == LQ_F32) {
        if (more) low += float_of(ld4(f32)), high += both ? float_of(ld4(f32 + 1)) : 0;
        if (wide) st8(f32, {bits_of(low), bits_of(high)});
        else st4(f32, bits_of(low));
        if (both && !wide) st4(f32 + 1, bits_of(high));
        return;
    }
    if (more) low += bf16_low(ld2(bf16)), high += both ? bf16_low(ld2(bf16 + 1)) : 0;
    const uint32_t out = bf16x2_of(low, high);
    if (wide) st4(bf16, out);
    else st2(bf16, out);
    if (both && !wide) st2(bf16 + 1, out >> 16);
}

// Through shared memory, where a token's rows lie side by side.
template <class S>
LQ_DEV void stored(const sums<S, float> &sum, const lq_w8a8_args &a, const lq_w4s_args &slots, const w4s::place &p,
                   const matrix &m, smem base, bool more) {
    const spot at = spot_of<S>(a, m);
    LQ_UNROLL
    for (int r = 0; r < S::BLOCKS; r++)
        LQ_UNROLL
        for (int t = 0; t < S::TILES; t++)
            LQ_UNROLL
            for (int i = 0; i < 4; i++)
                sts4(base +
                         ((at.token + 8 * t + i % 2) * S::SUM_PITCH + at.warp_row + r * 16 + at.lane / 4 + i / 2 * 8) *
                             4,
                     bits_of(sum.of[r][t][i]));
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.tokens * (S::ROWS / 2); i += S::THREADS) {
        const int token = i / (S::ROWS / 2), pair = i % (S::ROWS / 2), row = first_of<S>(a, m) + 2 * pair;
        const uint2 v = lds8(base + (token * S::SUM_PITCH + 2 * pair) * 4);
        if (row < m.n)
            pair_stored(float_of(v.x), float_of(v.y), a.of[m.one], m.bias, w4s::slot_of(slots, p, token), row,
                        more);
    }
}

// Grid: tiles of tokens x blocks of rows, of one matrix behind the other; LQ_W8A8_THREADS threads, LQ_W8A8_SHARED
// bytes.
template <class OP, int G, int T> LQ_DEV void product(const lq_w8a8_args &a) {
    typedef shape<T> S;
    pdl_trigger();
    const smem base = smem_base();
    lq_w4s_args slots = {};
    slots.order = a.order, slots.start = a.start, slots.m = a.m, slots.count = a.count;
    w4s::place p = {};
    p.first = (int)blockIdx.x * T;
    p.tokens = least(a.m - p.first, T);
    if (a.order || a.count > 1) {
        pdl_wait();
        if (!w4s::tile_found(p, slots, (int)blockIdx.x, T)) return;
    }
    const matrix m = matrix_of(a, p.expert);
    for (int i = (int)threadIdx.x; i < T; i += S::THREADS) {
        const int slot = w4s::slot_of(slots, p, least(i, p.tokens - 1));
        sts4(base + S::RING + i * 4, (uint32_t)(a.top_k > 1 ? slot / a.top_k : slot));
    }
    sums<S, float> sum = {};
    if constexpr (OP::APART != 0) {
        pdl_wait();
        __syncthreads(); // the rows of x are known
    } else multiply<OP, G, S>(sum, a, m, p.tokens, base);
    if (a.x.outliers) apart_added<S>(sum, a, m, p.tokens, base);
    stored<S>(sum, a, slots, p, m, base, OP::APART != 0);
}
}
#endif
