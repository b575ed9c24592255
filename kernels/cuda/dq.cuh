// dq.cuh: weights of layout cuda as rows of bf16. A warp has 16 rows x 128 columns: their codes come to shared memory
// by cp.async, which are weights and need not wait; each lane makes the numbers of rows g and g + 8 that its words
// hold, and 64 columns of 16 rows are turned in a tile, so that 8 lanes store 128 bytes of a row. The host's side is
// dq.h; what codes are is w4s_codes.cuh.
#ifndef LQ_DQ_CUH
#define LQ_DQ_CUH
#include "formats/elem.h"
#include "kernels/cuda/dq.h"
#include "kernels/cuda/number.h"
#include "kernels/cuda/simt.h"
#include "kernels/cuda/w4s_codes.cuh"

namespace dq {
using w4s::floats;
using w4s::ints;
using w4s::sixteen;

// Where a warp is: a block of 16 rows of a stripe, 128 columns from `column` on.
struct place { int lane, block, stripe, column; };

// What the rows g and g + 8 of a lane have for a group; `form`: of integers their zero points (w4s_codes.cuh), of
// floats which they are.
struct group { float low, high; uint2 form; };

LQ_DEV int least(int a, int b) { return a < b ? a : b; }

template <class C> LQ_DEV void copy_codes(const lq_dq_args &a, const place &p, smem to) {
    enum { BITS = C::BITS, UNIT = BITS == 4 || BITS == 8 ? 64 : 128, UNITS = 128 / UNIT, SIZE = UNIT * 2 * BITS,
           PIECE = 256 * BITS, COPIES = PIECE / 512 };
    const int units = (a.k + UNIT - 1) / UNIT, unit = p.column / UNIT, left = units - unit;
    const unsigned char *from = (const unsigned char *)a.w.w +
                                (((size_t)p.stripe * units + unit) * 4 + p.block) * SIZE + p.lane * 16;
    const l2_policy once = l2_evict_first();
    LQ_UNROLL
    for (int i = 0; i < COPIES; i++) {
        const int of = i * UNITS / COPIES;
        cp_async16(to + i * 512 + p.lane * 16, from + of * 4 * SIZE + i % (COPIES / UNITS) * 512, of < left ? 16 : 0,
                   once);
    }
    if (PIECE % 512 != 0 && p.lane < 16)
        cp_async16(to + COPIES * 512 + p.lane * 16, from + COPIES * 512, 16, once);
    cp_async_commit();
}

LQ_DEV float scale_at(const lq_dq_args &a, size_t i, float by) {
    switch (a.w.scale_type) {
    case LQ_W4S_BF16: return bf16_low(ldg2((const uint16_t *)a.w.scale + i));
    case LQ_W4S_F16: return f16_float(ldg2((const uint16_t *)a.w.scale + i));
    case LQ_W4S_E8M0: return lq_e8m0_widen(ldg1((const uint8_t *)a.w.scale + i));
    case LQ_W4S_E4M3: return lq_e4m3_widen(ldg1((const uint8_t *)a.w.scale + i)) * by;
    default: return float_of(ldg4((const float *)a.w.scale + i));
    }
}

LQ_DEV uint32_t minus(int bits, uint32_t z) {
    return bits == 8 ? (bits_of(128 - (float)(int)z) >> 16) * 0x10001u : 0xc300c300u + z * 0x10001u;
}

// Of the group that a step of 16 columns is in.
template <class C> LQ_DEV group group_of(const lq_dq_args &a, const place &p, int step, float by) {
    const int of = least(step >> a.step_shift, a.groups - 1), g = p.lane / 4;
    const int row = p.stripe * 64 + p.block * 16 + g, stripes = (a.n + 63) / 64;
    const size_t at = ((size_t)of * stripes + p.stripe) * 64 + p.block * 16 + 2 * g;
    size_t low = at, high = at + 1;
    if (a.share_shift) {
        low = (size_t)(least(row, a.n - 1) >> a.share_shift) * a.groups + of;
        high = (size_t)(least(row + 8, a.n - 1) >> a.share_shift) * a.groups + of;
    }
    group v = {scale_at(a, low, by), scale_at(a, high, by), {0, 0}};
    if (C::ZEROS) {
        uint32_t z = (1u << (C::BITS - 1)) * 0x0101u;
        if (a.w.zero && C::BITS > 4) z = ldg2((const uint8_t *)a.w.zero + at);
        else if (a.w.zero) {
            const uint32_t two = ldg1((const uint8_t *)a.w.zero + ((size_t)of * stripes + p.stripe) * 32 + g * 4 +
                                      p.block);
            z = (two & 15) | (two & 0xf0) << 4;
        }
        v.form = {minus(C::BITS, z & 255), minus(C::BITS, z >> 8)};
    } else v.form = a.narrow ? uint2{3, 0x77807780u} : uint2{4, 0x7b807b80u};
    return v;
}

// What the codes of step k16 stand for: numbers 2p and 2p + 1 are of row g + 8 (p & 1).
template <class C> LQ_DEV void numbers(float (&v)[8], const C &codes, int k16, const group &of, smem) {
    uint32_t a[4];
    codes.fragment(a, k16, of.form);
    LQ_UNROLL
    for (int p = 0; p < 4; p++) {
        v[2 * p] = bf16_low(a[p]);
        v[2 * p + 1] = bf16_high(a[p]);
    }
}

LQ_DEV void numbers(float (&v)[8], const sixteen &codes, int k16, const group &, smem table) {
    const uint32_t all[4] = {codes.words.x, codes.words.y, codes.words.z, codes.words.w}, w = all[k16 % 4];
    LQ_UNROLL
    for (int i = 0; i < 8; i++) v[i] = float_of(lds4(table + (w >> (4 * (i / 2) + 16 * (i % 2)) & 15) * 4));
}

// The tile's 64 columns from `column` on go to the rows; 16-byte chunks are turned by the row.
LQ_DEV void store_tile(const lq_dq_args &a, const place &p, int column, smem tile) {
    LQ_UNROLL
    for (int i = 0; i < 4; i++) {
        const int row = i * 4 + p.lane / 8, chunk = p.lane % 8, at = p.stripe * 64 + p.block * 16 + row - a.first;
        const uint4 v = lds16(tile + row * 128 + (chunk ^ row % 8) * 16);
        if (at < a.rows && column + chunk * 8 < a.k) st16(a.to + (size_t)at * a.k + column + chunk * 8, v);
    }
}

// Grid: stripes of 64 rows x parts of 256 columns; LQ_DQ_THREADS threads, LQ_DQ_SHARED bytes.
template <class C> LQ_DEV void rows(const lq_dq_args &a) {
    const int warp = (int)threadIdx.x / WARP, g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    const place p = {(int)threadIdx.x % WARP, warp % 4, a.first / 64 + (int)blockIdx.x,
                     (int)blockIdx.y * LQ_DQ_COLUMNS + warp / 4 * 128};
    const smem stage = smem_base() + warp * LQ_DQ_WARP(C::BITS), tile = stage + 256 * C::BITS,
               table = tile + LQ_DQ_TILE;
    pdl_trigger();
    if (p.column >= a.k) return;
    copy_codes<C>(a, p, stage);
    pdl_wait();
    const float by = a.w.scale_type == LQ_W4S_E4M3 ? float_of(ldg4(a.w.scale2)) : 1;
    if (C::TABLE && p.lane < 16) sts4(table + p.lane * 4, ldg4(a.w.table + p.lane));
    cp_async_wait<0>();
    sync_warp();
    C codes = {};
    group of = {};
    LQ_UNROLL
    for (int k16 = 0; k16 < 8; k16++) {
        const int step = p.column / 16 + k16;
        float v[8];
        if (k16 % 2 == 0) codes.load(stage, p.lane, k16 / 2);
        if (k16 == 0 || (step & a.every) == 0) of = group_of<C>(a, p, step, by);
        numbers(v, codes, k16, of, table);
        LQ_UNROLL
        for (int i = 0; i < 4; i++) {
            const float s = i & 1 ? of.high : of.low;
            const int chunk = k16 % 4 * 2 + (i >> 1);
            sts4(tile + (g + 8 * (i & 1)) * 128 + (chunk ^ g) * 16 + t * 4,
                 bf16x2_of(v[2 * i] * s, v[2 * i + 1] * s));
        }
        if (k16 % 4 != 3) continue;
        sync_warp();
        store_tile(a, p, p.column + k16 / 4 * 64, tile);
        sync_warp();
    }
}

LQ_DEV void rows_of_f16(const lq_dq_f16_args &a) {
    const int64_t at = ((int64_t)blockIdx.x * LQ_DQ_THREADS + threadIdx.x) * 8;
    if (at >= a.numbers) return;
    const uint4 v = ldg16(a.w + at);
    const uint32_t from[4] = {v.x, v.y, v.z, v.w};
    uint32_t to[4];
    LQ_UNROLL
    for (int i = 0; i < 4; i++) to[i] = bf16x2_of(f16_float(from[i] & 0xffff), f16_float(from[i] >> 16));
    st16(a.to + at, {to[0], to[1], to[2], to[3]});
}

LQ_DEV void scales(const lq_dq_scales_args &a) {
    const int row = (int)(blockIdx.x * LQ_DQ_THREADS + threadIdx.x);
    if (row < a.w.n) a.to[row] = number::scale_at(&a.w, row, 0);
}

LQ_DEV void bias(const lq_dq_bias_args &a) {
    const int64_t at = (int64_t)blockIdx.x * LQ_DQ_THREADS + threadIdx.x, each = a.n / 8;
    const int row = (int)(at / each), column = (int)(at % each) * 8;
    if (row >= a.m) return;
    const size_t y = (size_t)row * a.stride + column;
    const uint4 low = ldg16(a.bias + column), high = ldg16(a.bias + column + 4);
    const float b[8] = {float_of(low.x), float_of(low.y), float_of(low.z), float_of(low.w),
                        float_of(high.x), float_of(high.y), float_of(high.z), float_of(high.w)};
    if (a.f32) {
        float *to = (float *)a.y + y;
        LQ_UNROLL
        for (int i = 0; i < 2; i++) {
            const uint4 v = ld16(to + 4 * i);
            st16(to + 4 * i, {bits_of(float_of(v.x) + b[4 * i]), bits_of(float_of(v.y) + b[4 * i + 1]),
                              bits_of(float_of(v.z) + b[4 * i + 2]), bits_of(float_of(v.w) + b[4 * i + 3])});
        }
        return;
    }
    uint16_t *to = (uint16_t *)a.y + y;
    const uint4 v = ld16(to);
    st16(to, {bf16x2_of(bf16_low(v.x) + b[0], bf16_high(v.x) + b[1]),
              bf16x2_of(bf16_low(v.y) + b[2], bf16_high(v.y) + b[3]),
              bf16x2_of(bf16_low(v.z) + b[4], bf16_high(v.z) + b[5]),
              bf16x2_of(bf16_low(v.w) + b[6], bf16_high(v.w) + b[7])});
}
}
#endif
