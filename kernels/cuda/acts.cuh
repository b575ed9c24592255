// acts.cuh: rows of bf16 as codes of int8 or e4m3 with their scales and sums: the slot `quant`, with the bits of
// kernels/element.h, which says what becomes of one number. A row stands in shared memory in f32, in stored order, with
// 0 in the columns that are kept apart; then its spans (the columns that share a scale: all of them for a block of
// threads, a group for a warp) find their largest number, and become codes.
#ifndef LQ_ACTS_CUH
#define LQ_ACTS_CUH
#include "kernels/cuda/acts.h"
#include "kernels/cuda/simt.h"
#include "kernels/element.h"

namespace acts {
enum { WARPS = LQ_ACTS_THREADS / WARP };

// Both are bits of f32, and so is the product.
LQ_DEV uint32_t product(uint32_t x, uint32_t by) { return bits_of(float_of(x) * float_of(by)); }

// Stored columns j .. j + 3.
LQ_DEV uint4 columns(const lq_act &a, const uint16_t *x, int j) {
    uint4 f;
    if (a.perm) {
        const uint4 c = ldg16(a.perm + j);
        f = {ld2(x + c.x) << 16, ld2(x + c.y) << 16, ld2(x + c.z) << 16, ld2(x + c.w) << 16};
        if (!a.smooth) return f;
        return {product(f.x, ldg4(a.smooth + c.x)), product(f.y, ldg4(a.smooth + c.y)),
                product(f.z, ldg4(a.smooth + c.z)), product(f.w, ldg4(a.smooth + c.w))};
    }
    const uint2 v = ld8(x + j);
    f = {v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u};
    if (!a.smooth) return f;
    const uint4 s = ldg16(a.smooth + j);
    return {product(f.x, s.x), product(f.y, s.y), product(f.z, s.z), product(f.w, s.w)};
}

// The row in shared memory, and in `own` where the product wants it in this order.
LQ_DEV void row_read(const lq_acts_args &a, int row, smem v) {
    const lq_act &act = a.act;
    const uint16_t *x = (const uint16_t *)a.x.p + (size_t)row * a.x.stride;
    uint16_t *own = (uint16_t *)act.x.p + (size_t)row * act.x.stride;
    for (int j = (int)threadIdx.x * 4; j < a.x.cols; j += LQ_ACTS_THREADS * 4) {
        uint4 f = columns(act, x, j);
        if (act.x.p && act.x.p != a.x.p) {
            const uint2 h = {bf16x2_of(float_of(f.x), float_of(f.y)), bf16x2_of(float_of(f.z), float_of(f.w))};
            st8(own + j, h);
            f = {h.x << 16, h.x & 0xffff0000u, h.y << 16, h.y & 0xffff0000u};
        }
        sts16(v + j * 4, f);
    }
    __syncthreads();
    for (int o = (int)threadIdx.x; o < act.outliers; o += LQ_ACTS_THREADS) sts4(v + (int)ldg4(act.outlier + o) * 4, 0);
    __syncthreads();
}

LQ_DEV uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The largest magnitude of columns from .. end, as bits, of which each of the threads has every `each`-th four.
LQ_DEV uint32_t top_of(smem v, int from, int end, int each) {
    uint32_t top = 0;
    for (; from < end; from += each) {
        const uint4 f = lds16(v + from * 4);
        top =
            larger(larger(top, larger(f.x & 0x7fffffff, f.y & 0x7fffffff)), larger(f.z & 0x7fffffff, f.w & 0x7fffffff));
    }
    for (int apart = WARP / 2; apart; apart /= 2) top = larger(top, shfl_xor(top, apart));
    return top;
}

LQ_DEV uint32_t byte_at(uint32_t code, int i) { return (code & 255) << 8 * i; }

// A cell of int8, by a warp.
LQ_DEV void cell_coded(const lq_acts_args &a, int row, int cell, smem v, const lq_q8_by &by) {
    const int lane = (int)threadIdx.x % WARP, size = (int)a.act.q_row, from = cell * size;
    const size_t u = (size_t)cell * (size_t)a.x.rows + (size_t)row;
    int32_t sum = 0;
    for (int i = lane * 4; i < size; i += WARP * 4) {
        uint32_t word = 0;
        if (from + i < a.x.cols && by.inverse != 0) {
            const uint4 f = lds16(v + (from + i) * 4);
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
LQ_DEV void floats_coded(const lq_acts_args &a, int row, int from, int end, int each, smem v, const lq_q8_by &by) {
    for (; from < end; from += each) {
        const uint4 f = lds16(v + from * 4);
        uint32_t word = 0;
        if (by.inverse != 0)
            word = byte_at(e4m3_of(f.x, by.inverse), 0) | byte_at(e4m3_of(f.y, by.inverse), 1) |
                   byte_at(e4m3_of(f.z, by.inverse), 2) | byte_at(e4m3_of(f.w, by.inverse), 3);
        st4((uint8_t *)a.act.q + (size_t)row * a.act.q_row + from, word);
    }
}

LQ_DEV void span_coded(const lq_acts_args &a, int row, int from, int end, int thread, int threads, smem v,
                       uint32_t top) {
    const lq_q8_by by = lq_q8_scale(&a.act, top);
    const int warp = thread / WARP, warps = threads / WARP;
    if (a.act.type.elem == LQ_I8) {
        const int size = (int)a.act.q_row;
        for (int cell = from / size + warp; cell * size < end; cell += warps) cell_coded(a, row, cell, v, by);
    } else {
        const int size = (int)a.act.q_group;
        for (int cell = from / size + thread; (int64_t)cell * size < end; cell += threads)
            st4(a.act.scale + (size_t)cell * (size_t)a.x.rows + (size_t)row, bits_of(by.scale));
        floats_coded(a, row, from + thread * 4, end, threads * 4, v, by);
    }
    if (a.act.zero && from == 0 && thread == 0) st4(a.act.zero + row, (uint32_t)by.zero);
}

// Grid: a block for each row.
LQ_DEV void rows(const lq_acts_args &a) {
    const int row = (int)blockIdx.x, k = a.x.cols, thread = (int)threadIdx.x, warp = thread / WARP;
    const int span = a.act.type.group ? a.act.type.group : k;
    const smem head = smem_base(), v = head + LQ_ACTS_HEAD;
    pdl_trigger();
    pdl_wait();
    row_read(a, row, v);
    if (a.act.type.elem == LQ_F32) return;
    if (span < k) {
        for (int from = warp * span; from < k; from += WARPS * span) {
            const int end = k - from < span ? k : from + span;
            span_coded(a, row, from, end, thread % WARP, WARP, v, top_of(v, from + thread % WARP * 4, end, WARP * 4));
        }
        return;
    }
    uint32_t top = top_of(v, thread * 4, k, LQ_ACTS_THREADS * 4);
    if (thread % WARP == 0) sts4(head + warp * 4, top);
    __syncthreads();
    for (int i = 0; i < WARPS; i++) top = larger(top, lds4(head + i * 4));
    span_coded(a, row, 0, k, thread, LQ_ACTS_THREADS, v, top);
}
}
#endif
