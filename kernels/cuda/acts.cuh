// acts.cuh: rows of bf16 as codes of int8 or e4m3 with their scales and sums, with the bits of kernels/element.h, which
// says what becomes of one number: the slot `quant`, and what norm and glu (rmsn.cuh, elem.cuh) do with the rows they
// make. A row stands in shared memory in bf16, with 0 in the columns that are kept apart; its spans (the columns that
// share a scale: all of them for a block of threads, a group for a warp) find their largest number, and become codes.
#ifndef LQ_ACTS_CUH
#define LQ_ACTS_CUH
#include "kernels/cuda/acts.h"
#include "kernels/cuda/simt.h"
#include "kernels/element.h"

namespace acts {
// Both are bits of f32, and so is the product.
LQ_DEV uint32_t product(uint32_t x, uint32_t by) { return bits_of(float_of(x) * float_of(by)); }

// Column c of a row in shared memory, as bits of f32.
LQ_DEV uint32_t column(smem x, uint32_t c) {
    const uint32_t pair = lds4(x + c / 2 * 4);
    return c % 2 ? pair & 0xffff0000u : pair << 16;
}

// A row in shared memory; turned: it is what is rounded, in stored order.
struct line { smem at; bool turned; };

// Stored columns j .. j + 3 as they are rounded.
LQ_DEV uint4 columns(const lq_act &a, line x, int j) {
    if (a.perm && !x.turned) {
        const uint4 c = ldg16(a.perm + j);
        const uint4 f = {column(x.at, c.x), column(x.at, c.y), column(x.at, c.z), column(x.at, c.w)};
        if (!a.smooth) return f;
        return {product(f.x, ldg4(a.smooth + c.x)), product(f.y, ldg4(a.smooth + c.y)),
                product(f.z, ldg4(a.smooth + c.z)), product(f.w, ldg4(a.smooth + c.w))};
    }
    const uint2 v = lds8(x.at + j * 2);
    const uint4 f = {v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u};
    if (!a.smooth || x.turned) return f;
    const uint4 s = ldg16(a.smooth + j);
    return {product(f.x, s.x), product(f.y, s.y), product(f.z, s.z), product(f.w, s.w)};
}

// Where the product wants the row in stored order, it is written there, rounded, and read back.
template <int THREADS> LQ_DEV line row_turned(const lq_acts_args &a, int row, smem x) {
    const lq_act &act = a.act;
    uint16_t *own = (uint16_t *)act.x.p + (size_t)row * act.x.stride;
    if (!act.x.p || act.x.p == a.x.p) return {x, false};
    for (int j = (int)threadIdx.x * 4; j < a.x.cols; j += THREADS * 4) {
        const uint4 f = columns(act, {x, false}, j);
        st8(own + j, {bf16x2_of(float_of(f.x), float_of(f.y)), bf16x2_of(float_of(f.z), float_of(f.w))});
    }
    if (act.type.elem == LQ_F32) return {x, true};
    __syncthreads();
    for (int j = (int)threadIdx.x * 4; j < a.x.cols; j += THREADS * 4) sts8(x + j * 2, ld8(own + j));
    __syncthreads();
    return {x, true};
}

// Columns that are kept apart count as 0: first those in the low halves of words, then the others.
template <int THREADS> LQ_DEV void row_cut(const lq_act &act, line x) {
    for (uint32_t half = 0; half < 2 && act.outliers; half++) {
        for (int o = (int)threadIdx.x; o < act.outliers; o += THREADS) {
            uint32_t c = ldg4(act.outlier + o);
            if (act.perm && !x.turned) c = ldg4(act.perm + c);
            const smem at = x.at + c / 2 * 4;
            if (c % 2 == half) sts4(at, lds4(at) & (half ? 0xffffu : 0xffff0000u));
        }
        __syncthreads();
    }
}

LQ_DEV uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The largest magnitude of columns from .. end, as bits, of which each of the threads has every `each`-th four.
LQ_DEV uint32_t top_of(const lq_act &a, line x, int from, int end, int each) {
    uint32_t top = 0;
    for (; from < end; from += each) {
        const uint4 f = columns(a, x, from);
        top =
            larger(larger(top, larger(f.x & 0x7fffffff, f.y & 0x7fffffff)), larger(f.z & 0x7fffffff, f.w & 0x7fffffff));
    }
    for (int apart = WARP / 2; apart; apart /= 2) top = larger(top, shfl_xor(top, apart));
    return top;
}

LQ_DEV uint32_t byte_at(uint32_t code, int i) { return (code & 255) << 8 * i; }

// A cell of int8, by a warp.
LQ_DEV void cell_coded(const lq_acts_args &a, int row, int cell, line x, const lq_q8_by &by) {
    const int lane = (int)threadIdx.x % WARP, size = (int)a.act.q_row, from = cell * size;
    const size_t u = (size_t)cell * (size_t)a.act.apart + (size_t)row;
    int32_t sum = 0;
    for (int i = lane * 4; i < size; i += WARP * 4) {
        uint32_t word = 0;
        if (from + i < a.x.cols && by.inverse != 0) {
            const uint4 f = columns(a.act, x, from + i);
            const int32_t c[4] = {lq_q8_code(float_of(f.x), &by), lq_q8_code(float_of(f.y), &by),
                                  lq_q8_code(float_of(f.z), &by), lq_q8_code(float_of(f.w), &by)};
            LQ_UNROLL
            for (int e = 0; e < 4; e++) {
                word |= byte_at((uint32_t)c[e], e);
                sum += c[e];
            }
        }
        st4((int8_t *)a.act.q + u * (size_t)size + i, word);
    }
    for (int apart = WARP / 2; apart; apart /= 2) sum += shfl_xor(sum, apart);
    if (lane) return;
    st4(a.act.scale + u, bits_of(by.scale));
    st4(a.act.sum + u, (uint32_t)sum);
}

LQ_DEV uint32_t e4m3_of(uint32_t x, float by) { return lq_e4m3_narrow(lq_e4m3_round(float_of(x) * by)); }

// Columns of e4m3 from .. end, of which each thread has every `each`-th four.
LQ_DEV void floats_coded(const lq_acts_args &a, int row, int from, int end, int each, line x, const lq_q8_by &by) {
    for (; from < end; from += each) {
        const uint4 f = columns(a.act, x, from);
        uint32_t word = 0;
        if (by.inverse != 0)
            word = byte_at(e4m3_of(f.x, by.inverse), 0) | byte_at(e4m3_of(f.y, by.inverse), 1) |
                   byte_at(e4m3_of(f.z, by.inverse), 2) | byte_at(e4m3_of(f.w, by.inverse), 3);
        st4((uint8_t *)a.act.q + (size_t)row * a.act.q_row + from, word);
    }
}

LQ_DEV void span_coded(const lq_acts_args &a, int row, int from, int end, int thread, int threads, line x,
                       uint32_t top) {
    const lq_q8_by by = lq_q8_scale(&a.act, top);
    const int warp = thread / WARP, warps = threads / WARP;
    if (a.act.type.elem == LQ_I8) {
        const int size = (int)a.act.q_row;
        for (int cell = from / size + warp; cell * size < end; cell += warps) cell_coded(a, row, cell, x, by);
    } else {
        const int size = (int)a.act.q_group;
        for (int cell = from / size + thread; (int64_t)cell * size < end; cell += threads)
            st4(a.act.scale + (size_t)cell * (size_t)a.act.apart + (size_t)row, bits_of(by.scale));
        floats_coded(a, row, from + thread * 4, end, threads * 4, x, by);
    }
    if (a.act.zero && from == 0 && thread == 0) st4(a.act.zero + row, (uint32_t)by.zero);
}

// The form of a block's row, which was put behind the first LQ_ACTS_HEAD bytes before a barrier.
template <int THREADS> LQ_DEV void coded(const lq_acts_args &a, int row) {
    constexpr int WARPS = THREADS / WARP;
    static_assert(WARPS * 4 <= LQ_ACTS_HEAD, "a word for each warp");
    const int k = a.x.cols, thread = (int)threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const int span = a.act.type.group ? a.act.type.group : k;
    const smem head = smem_base();
    const line x = row_turned<THREADS>(a, row, head + LQ_ACTS_HEAD);
    if (a.act.type.elem == LQ_F32) return;
    row_cut<THREADS>(a.act, x);
    if (span < k) {
        for (int from = warp * span; from < k; from += WARPS * span) {
            const int end = k - from < span ? k : from + span;
            span_coded(a, row, from, end, lane, WARP, x, top_of(a.act, x, from + lane * 4, end, WARP * 4));
        }
        return;
    }
    uint32_t top = top_of(a.act, x, thread * 4, k, THREADS * 4);
    if (lane == 0) sts4(head + warp * 4, top);
    __syncthreads();
    for (int i = 0; i < WARPS; i++) top = larger(top, lds4(head + i * 4));
    span_coded(a, row, 0, k, thread, THREADS, x, top);
}

// Grid: a block for each row.
LQ_DEV void rows(const lq_acts_args &a) {
    const uint16_t *x = (const uint16_t *)a.x.p + (size_t)blockIdx.x * a.x.stride;
    pdl_trigger();
    pdl_wait();
    for (int j = (int)threadIdx.x * 4; j < a.x.cols; j += LQ_ACTS_THREADS * 4)
        sts8(smem_base() + LQ_ACTS_HEAD + j * 2, ld8(x + j));
    __syncthreads();
    coded<LQ_ACTS_THREADS>(a, (int)blockIdx.x);
}
}
#endif
