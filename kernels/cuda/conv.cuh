// conv.cuh: the causal convolution of each column, with what came before a sequence's first row in its state. The
// host's side is conv.h.
#ifndef LQ_CONV_CUH
#define LQ_CONV_CUH
#include "kernels/cuda/conv.h"
#include "kernels/cuda/simt.h"
#include "kernels/math.h"
#include "kernels/view.h"

namespace conv {
struct eight { float v[8]; };

LQ_DEV eight wide(uint4 v) {
    return {{bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y), bf16_low(v.z), bf16_high(v.z), bf16_low(v.w),
             bf16_high(v.w)}};
}

LQ_DEV eight floats(uint4 a, uint4 b) {
    return {{float_of(a.x), float_of(a.y), float_of(a.z), float_of(a.w), float_of(b.x), float_of(b.y), float_of(b.z),
             float_of(b.w)}};
}

LQ_DEV uint4 half_of(const eight &f, int from) {
    return {bits_of(f.v[from]), bits_of(f.v[from + 1]), bits_of(f.v[from + 2]), bits_of(f.v[from + 3])};
}

LQ_DEV uint16_t *at(const lq_mat &m, int row, int col) {
    return (uint16_t *)m.p + (size_t)row * m.stride + (size_t)col;
}

LQ_DEV void write(const lq_mat &m, int row, int col, const eight &f) {
    st16(at(m, row, col), {bf16x2_of(f.v[0], f.v[1]), bf16x2_of(f.v[2], f.v[3]), bf16x2_of(f.v[4], f.v[5]),
                           bf16x2_of(f.v[6], f.v[7])});
}

// Factors and bias of 8 columns.
template <int W> struct taps {
    float w[8 * W]; // [8][W]
    eight bias;

    LQ_METHOD void read(const lq_conv_args &a, int col) {
        LQ_UNROLL
        for (int i = 0; i < 2 * W; i++) {
            const uint4 v = ldg16(a.w + (size_t)col * W + 4 * i);
            w[4 * i] = float_of(v.x), w[4 * i + 1] = float_of(v.y);
            w[4 * i + 2] = float_of(v.z), w[4 * i + 3] = float_of(v.w);
        }
        bias = {};
        if (a.bias) bias = floats(ldg16(a.bias + col), ldg16(a.bias + col + 4));
    }

    // sum += w[t] * x
    LQ_METHOD void add(eight &sum, int t, const eight &x) const {
        LQ_UNROLL
        for (int i = 0; i < 8; i++) sum.v[i] += w[i * W + t] * x.v[i];
    }
};

LQ_DEV void ended(eight &sum, bool silu) {
    LQ_UNROLL
    for (int i = 0; i < 8; i++) sum.v[i] = silu ? sum.v[i] / (1.0f + lq_expf(-sum.v[i])) : sum.v[i];
}

LQ_DEV float *state_of(const lq_conv_of &a, int seq, int col, int width) {
    return a.a.state + lq_rows_slot(&a.rows, seq) * (size_t)(width - 1) * (size_t)a.a.x.cols + col;
}

// Of rows that are nobody's, 8 columns.
LQ_DEV void blank(const lq_conv_of &a, int from, int step, int col) {
    for (int r = lq_rows_real(&a.rows) + from; r < a.rows.n; r += step) st16(at(a.a.y, r, col), {0, 0, 0, 0});
}

template <int W> LQ_DEV void walk(const lq_conv_of &a) {
    const int col = (int)(blockIdx.x * LQ_CONV_THREADS + threadIdx.x) * 8, cols = a.a.x.cols, seq = (int)blockIdx.y;
    if (col >= cols) return;
    if (seq == a.rows.seqs) {
        blank(a, 0, 1, col);
        return;
    }
    const int first = a.rows.first[seq], end = a.rows.first[seq + 1];
    if (first == end) return;
    float *state = state_of(a, seq, col, W);
    taps<W> k;
    eight before[W - 1];
    k.read(a.a, col);
    LQ_UNROLL
    for (int t = 0; t < W - 1; t++)
        before[t] = floats(ld16(state + (size_t)t * cols), ld16(state + (size_t)t * cols + 4));
    for (int r = first; r < end; r++) {
        const eight now = wide(ld16(at(a.a.x, r, col)));
        eight sum = k.bias;
        LQ_UNROLL
        for (int t = 0; t < W - 1; t++) {
            k.add(sum, t, before[t]);
            before[t] = t + 2 < W ? before[t + 1] : now;
        }
        k.add(sum, W - 1, now);
        ended(sum, a.a.silu);
        write(a.a.y, r, col, sum);
    }
    LQ_UNROLL
    for (int t = 0; t < W - 1; t++) {
        st16(state + (size_t)t * cols, half_of(before[t], 0));
        st16(state + (size_t)t * cols + 4, half_of(before[t], 4));
    }
}

// Row i of the window in shared memory, which begins W - 1 rows before the first of a step; of 64 columns the lower
// halves of 8 stand before all upper ones.
LQ_DEV smem window(int i, int eighth) { return smem_base() + i * (LQ_CONV_COLS * 4) + eighth * 16; }

LQ_DEV eight kept(int i, int eighth) {
    const smem p = window(i, eighth);
    return floats(lds16(p), lds16(p + LQ_CONV_COLS * 2));
}

LQ_DEV void keep(int i, int eighth, const eight &f) {
    const smem p = window(i, eighth);
    sts16(p, half_of(f, 0));
    sts16(p + LQ_CONV_COLS * 2, half_of(f, 4));
}

template <int W> LQ_DEV void tile(const lq_conv_of &a) {
    const int eighth = (int)threadIdx.x % 8, row = (int)threadIdx.x / 8, cols = a.a.x.cols, seq = (int)blockIdx.y;
    const int col = (int)blockIdx.x * LQ_CONV_COLS + eighth * 8;
    const bool mine = col < cols;
    if (seq == a.rows.seqs) {
        if (mine) blank(a, row, LQ_CONV_ROWS, col);
        return;
    }
    const int first = a.rows.first[seq], end = a.rows.first[seq + 1];
    if (first == end) return;
    float *state = state_of(a, seq, col, W) + (size_t)row * cols;
    taps<W> k = {};
    if (mine) k.read(a.a, col);
    eight last = {};
    if (row < W - 1 && mine) last = floats(ld16(state), ld16(state + 4));
    for (int base = first; base < end; base += LQ_CONV_ROWS) {
        const bool there = mine && base + row < end;
        if (row < W - 1) keep(row, eighth, last);
        eight sum = k.bias;
        if (there) keep(W - 1 + row, eighth, wide(ld16(at(a.a.x, base + row, col))));
        __syncthreads();
        LQ_UNROLL
        for (int t = 0; t < W && there; t++) k.add(sum, t, kept(row + t, eighth));
        // The last rows of this step are the first of the next one's window.
        const int count = end - base < LQ_CONV_ROWS ? end - base : LQ_CONV_ROWS;
        if (row < W - 1 && mine) last = kept(count + row, eighth);
        ended(sum, a.a.silu);
        if (there) write(a.a.y, base + row, col, sum);
        __syncthreads();
    }
    if (row < W - 1 && mine) {
        st16(state, half_of(last, 0));
        st16(state + 4, half_of(last, 4));
    }
}
}
#endif
