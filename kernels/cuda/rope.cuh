// rope.cuh: the rotation of queries and keys of bf16 in place. A row's sines and cosines are made once in a block, in
// f64 (some 40 operations of it a pair), as the definition of the slot has them, and serve all its heads; what is
// turned is rounded as there and then once to bf16.
#ifndef LQ_ROPE_CUH
#define LQ_ROPE_CUH
#include "kernels/cuda/simt.h"
#include "kernels/cuda/rope.h"
#include "kernels/element.h"
#include "kernels/view.h"

namespace rope {
struct four { float x[4]; };

LQ_DEV four of_words(uint4 v) { return {{float_of(v.x), float_of(v.y), float_of(v.z), float_of(v.w)}}; }

// u c - v s and v c + u s of two pairs: the first and the second of each in one word.
LQ_DEV void turn(uint32_t &u, uint32_t &v, const float *c, const float *s) {
    const float a = bf16_low(u), b = bf16_high(u), x = bf16_low(v), y = bf16_high(v);
    u = bf16x2_of(mul_rn(a, c[0]) - mul_rn(x, s[0]), mul_rn(b, c[1]) - mul_rn(y, s[1]));
    v = bf16x2_of(mul_rn(x, c[0]) + mul_rn(a, s[0]), mul_rn(y, c[1]) + mul_rn(b, s[1]));
}

// Sines and cosines in shared memory: four arrays of `half`, for k and with what q is times, for q.
LQ_DEV void angles(const lq_rope_args &a, int pos, int half) {
    const float by = a.mscale != 0 ? a.mscale : 1.0f, q_by = lq_rope_q(&a, pos);
    for (int i = (int)threadIdx.x; i < half; i += LQ_ROPE_THREADS) {
        double sine, cosine;
        lq_sincos((double)mul_rn((float)pos, a.inv_freq[i]), &sine, &cosine);
        const float c = mul_rn((float)cosine, by), s = mul_rn((float)sine, by);
        const smem to = smem_base() + (smem)i * 4, array = (smem)half * 4;
        sts4(to, bits_of(c));
        sts4(to + array, bits_of(s));
        sts4(to + 2 * array, bits_of(mul_rn(c, q_by)));
        sts4(to + 3 * array, bits_of(mul_rn(s, q_by)));
    }
}

// Pairs 4 i to 4 i + 3 of the head at x.
LQ_DEV void head_turned(uint16_t *x, int i, int half, bool interleaved, const four &c, const four &s) {
    if (interleaved) {
        uint4 v = ld16(x + 8 * i);
        uint32_t near[2] = {prmt(v.x, v.y, 0x5410), prmt(v.z, v.w, 0x5410)};
        uint32_t far[2] = {prmt(v.x, v.y, 0x7632), prmt(v.z, v.w, 0x7632)};
        for (int j = 0; j < 2; j++) turn(near[j], far[j], c.x + 2 * j, s.x + 2 * j);
        st16(x + 8 * i, {prmt(near[0], far[0], 0x5410), prmt(near[0], far[0], 0x7632),
                         prmt(near[1], far[1], 0x5410), prmt(near[1], far[1], 0x7632)});
        return;
    }
    uint2 near = ld8(x + 4 * i), far = ld8(x + half + 4 * i);
    turn(near.x, far.x, c.x, s.x);
    turn(near.y, far.y, c.x + 2, s.x + 2);
    st8(x + 4 * i, near);
    st8(x + half + 4 * i, far);
}

// Of a row's heads, q's and then k's, four pairs each: `from` to `end` of these.
LQ_DEV void turned(const lq_rope_args &a, int row, int from, int end) {
    const int half = a.dim / 2, each = half / 4, q_heads = LQ_ROPE_HEADS(&a, q);
    for (int task = from + (int)threadIdx.x; task < end; task += LQ_ROPE_THREADS) {
        const int head = task / each, i = task % each;
        const bool q = head < q_heads;
        const lq_mat &m = q ? a.q : a.k;
        const smem at = smem_base() + (smem)(q ? 2 * half : 0) * 4 + (smem)i * 16;
        uint16_t *x = (uint16_t *)m.p + (size_t)row * m.stride + (size_t)(q ? head : head - q_heads) * a.head_dim;
        head_turned(x, i, half, a.interleaved, of_words(lds16(at)), of_words(lds16(at + (smem)half * 4)));
    }
}

// Grid: rows x lq_rope_parts.
LQ_DEV void row(const lq_rope_bf16_args &a) {
    pdl_trigger();
    const int row = (int)blockIdx.x, tasks = LQ_ROPE_TASKS(&a.a), from = (int)blockIdx.y * LQ_ROPE_PART;
    const bool real = row < lq_rows_real(&a.rows);
    if (real) angles(a.a, a.rows.pos[row], a.a.dim / 2);
    pdl_wait();
    if (!real) return;
    __syncthreads();
    turned(a.a, row, from, from + LQ_ROPE_PART < tasks ? from + LQ_ROPE_PART : tasks);
}
}
#endif
