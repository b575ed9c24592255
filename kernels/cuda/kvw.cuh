// kvw.cuh: K and V of bf16 into the pages of a cache of BF16, F16, I8 or E4M3, with the bits that the slot's definition
// has. A warp takes one head's K or V of one row, 16 bytes a lane at a time. Behind a rotation of rope.cuh
// both are one launch.
#ifndef LQ_KVW_CUH
#define LQ_KVW_CUH
#include <float.h>
#include "kernels/cuda/simt.h"
#include "kernels/cuda/kvw.h"
#include "kernels/cuda/rope.cuh"
#include "kernels/view.h"

namespace kvw {
enum { CHUNKS = LQ_KVW_WIDE / 8 / WARP }; // of 8 numbers, of a lane

struct eight { float x[8]; };

LQ_DEV eight widened(uint4 v) {
    return {{bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y),
             bf16_low(v.z), bf16_high(v.z), bf16_low(v.w), bf16_high(v.w)}};
}

LQ_DEV uint32_t word_of(const uint32_t *byte) { return byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24; }

// What codes of I8 are times; the scale goes beside them. NaN and infinity make it NaN.
LQ_DEV float i8_scale(const uint4 (&v)[CHUNKS], int chunks, int lane, float *scale) {
    float most = 0, odd = 0;
    LQ_UNROLL
    for (int i = 0; i < CHUNKS; i++) {
        if (i * WARP + lane >= chunks) continue;
        const eight e = widened(v[i]);
        for (int j = 0; j < 8; j++) {
            most = fmaxf(most, fabsf(e.x[j]));
            odd += mul_rn(e.x[j], 0.0f);
        }
    }
    for (int apart = WARP / 2; apart; apart /= 2) {
        most = fmaxf(most, shfl_xor(most, apart));
        odd += shfl_xor(odd, apart);
    }
    if (lane == 0) st4(scale, bits_of(most / 127.0f + odd));
    if (!(most > 0 && odd == 0)) return 0;
    return fminf(127.0f / most, FLT_MAX);
}

// 8 numbers to where the element of that number stands.
template <lq_dtype T> LQ_DEV void stored(char *to, uint4 v, float by) {
    if (T == LQ_BF16) return st16(to, v);
    const eight e = widened(v);
    uint32_t code[8];
    LQ_UNROLL
    for (int i = 0; i < 8; i++) {
        if (T == LQ_F16) code[i] = lq_f16_narrow(e.x[i]);
        else if (T == LQ_I8) code[i] = by != 0 ? (uint32_t)(int32_t)rintf(mul_rn(e.x[i], by)) & 255 : 0;
        else {
            const float s = mul_rn(e.x[i], by);
            code[i] = lq_e4m3_narrow(s > 448.0f ? 448.0f : s < -448.0f ? -448.0f : s);
        }
    }
    if (T == LQ_F16)
        return st16(to, {code[0] | code[1] << 16, code[2] | code[3] << 16, code[4] | code[5] << 16,
                         code[6] | code[7] << 16});
    st8(to, {word_of(code), word_of(code + 4)});
}

// A warp: K (part 0) or V of one head of a row.
template <lq_dtype T>
LQ_DEV void vector_written(const lq_kv_write_args &a, const lq_rows &rows, int row, int part, int head) {
    const lq_cache &c = a.cache;
    const int lane = (int)threadIdx.x % WARP;
    const int at = rows.at[row], block = lq_rows_table(&rows, rows.seq[row])[at / c.page];
    if (block < 0) return;
    const int d = part ? c.dv : c.dk, chunks = d / 8;
    const lq_mat &m = part ? a.v : a.k;
    const uint16_t *x = (const uint16_t *)m.p + (size_t)row * m.stride + (size_t)head * d;
    char *to = lq_cache_at(&c, block, head, part) + (size_t)(at % c.page) * d * lq_cache_bytes(&c);
    uint4 v[CHUNKS];
    LQ_UNROLL
    for (int i = 0; i < CHUNKS; i++)
        if (i * WARP + lane < chunks) v[i] = ld16(x + (i * WARP + lane) * 8);
    float by = 1;
    if (T == LQ_I8) by = i8_scale(v, chunks, lane, lq_cache_scale(&c, block, head, part) + at % c.page);
    if (T == LQ_E4M3) by = 1.0f / lq_cache_head_scale(&c, head, part);
    LQ_UNROLL
    for (int i = 0; i < CHUNKS; i++)
        if (i * WARP + lane < chunks) stored<T>(to + (size_t)(i * WARP + lane) * 8 * lq_cache_bytes(&c), v[i], by);
}

template <lq_dtype T> LQ_DEV void vector(const lq_kvw_args &a) {
    pdl_trigger();
    pdl_wait();
    const int heads = a.a.cache.kv_heads, parts = a.a.cache.v_in_k ? 1 : 2;
    const int task = (int)(blockIdx.x * (LQ_KVW_THREADS / WARP) + threadIdx.x / WARP), row = task / (heads * parts);
    if (row < lq_rows_real(&a.rows)) vector_written<T>(a.a, a.rows, row, task / heads % parts, task % heads);
}

// Of one row in one launch: q and k turned, then K and V written. Grid: rows x (blocks of q, then of KV heads);
// LQ_ROPE_THREADS threads, LQ_ROPE_SHARED bytes.
template <lq_dtype T> LQ_DEV void turned_vectors(const lq_kvw_turned_args &a) {
    pdl_trigger();
    const int row = (int)blockIdx.x, block = (int)blockIdx.y - a.q_blocks, heads = a.kv.cache.kv_heads;
    const bool real = row < lq_rows_real(&a.rows);
    if (real) rope::angles(a.rope, a.rows.pos[row], a.rope.dim / 2);
    pdl_wait();
    if (!real) return;
    __syncthreads();
    const int each = a.rope.dim / 8, q = LQ_ROPE_HEADS(&a.rope, q) * each;
    if (block < 0) {
        const int from = (int)blockIdx.y * a.q_part;
        rope::turned(a.rope, row, from, from + a.q_part < q ? from + a.q_part : q);
        return;
    }
    const int first = block * a.kv_part, count = first + a.kv_part < heads ? a.kv_part : heads - first;
    rope::turned(a.rope, row, q + first * each, q + (first + count) * each);
    __syncthreads();
    for (int task = (int)threadIdx.x / WARP; task < 2 * count; task += LQ_ROPE_THREADS / WARP)
        vector_written<T>(a.kv, a.rows, row, task / count, first + task % count);
}
}
#endif
