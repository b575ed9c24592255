// elem.cuh: element by element over matrices of bf16, 8 columns of a row a thread; logits and coded embeddings number
// by number. What becomes of one number is kernels/element.h's, in f32; it is rounded once.
#ifndef LQ_ELEM_CUH
#define LQ_ELEM_CUH
#include "kernels/cuda/acts.cuh"
#include "kernels/cuda/elem.h"
#include "kernels/cuda/number.h"
#include "kernels/element.h"

namespace elem {
struct eight { float v[8]; };
struct place { int row, col; };

// Where a thread stands; behind the last row: row is `rows` or more.
LQ_DEV place place_of(int cols) {
    const int64_t at = (int64_t)blockIdx.x * LQ_ELEM_THREADS + threadIdx.x, each = cols / 8;
    return {(int)(at / each), (int)(at % each) * 8};
}

LQ_DEV const uint16_t *at(const lq_mat &m, int row, int col) {
    return (const uint16_t *)m.p + (size_t)row * m.stride + (size_t)col;
}

LQ_DEV eight wide(uint4 v) {
    return {{bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y), bf16_low(v.z), bf16_high(v.z), bf16_low(v.w),
             bf16_high(v.w)}};
}

LQ_DEV eight read(const lq_mat &m, int row, int col) { return wide(ld16(at(m, row, col))); }
LQ_DEV eight floats(const float *p) {
    const uint4 a = ldg16(p), b = ldg16(p + 4);
    return {{float_of(a.x), float_of(a.y), float_of(a.z), float_of(a.w), float_of(b.x), float_of(b.y), float_of(b.z),
             float_of(b.w)}};
}

LQ_DEV uint4 rounded(const eight &f) {
    return {bf16x2_of(f.v[0], f.v[1]), bf16x2_of(f.v[2], f.v[3]), bf16x2_of(f.v[4], f.v[5]),
            bf16x2_of(f.v[6], f.v[7])};
}

LQ_DEV void write(const lq_mat &m, int row, int col, const eight &f) {
    st16((uint16_t *)m.p + (size_t)row * m.stride + (size_t)col, rounded(f));
}

// With the function known while this is compiled.
template <lq_unary FN> LQ_DEV void glu_of(const lq_glu_args &given, eight *gate, const eight &up, bool two) {
    lq_glu_args a = given;
    a.fn = FN;
    LQ_UNROLL
    for (int i = 0; i < 8; i++) gate->v[i] = lq_glu_pair(&a, gate->v[i], two, up.v[i]);
}

LQ_DEV eight glu_at(const lq_glu_args &a, int row, int col) {
    const bool two = a.up.p != NULL;
    eight gate = read(a.gate, row, col), up = {};
    if (two) up = read(a.up, row, col);
    switch (a.fn) {
    case LQ_SILU: glu_of<LQ_SILU>(a, &gate, up, two); break;
    case LQ_GELU: glu_of<LQ_GELU>(a, &gate, up, two); break;
    case LQ_GELU_TANH: glu_of<LQ_GELU_TANH>(a, &gate, up, two); break;
    case LQ_RELU: glu_of<LQ_RELU>(a, &gate, up, two); break;
    case LQ_RELU2: glu_of<LQ_RELU2>(a, &gate, up, two); break;
    case LQ_SIGMOID: glu_of<LQ_SIGMOID>(a, &gate, up, two); break;
    case LQ_TANH: glu_of<LQ_TANH>(a, &gate, up, two); break;
    case LQ_XIELU: glu_of<LQ_XIELU>(a, &gate, up, two); break;
    }
    return gate;
}

LQ_DEV void glu(const lq_glu_args &a) {
    const place p = place_of(a.y.cols);
    if (p.row < a.y.rows) write(a.y, p.row, p.col, glu_at(a, p.row, p.col));
}

// A row for a block, which also makes its form.
LQ_DEV void glu_coded(const lq_glu_act_of &a) {
    const int row = (int)blockIdx.x;
    for (int col = (int)threadIdx.x * 8; col < a.a.y.cols; col += LQ_GLU_THREADS * 8) {
        const uint4 y = rounded(glu_at(a.a, row, col));
        st16((uint16_t *)a.a.y.p + (size_t)row * a.a.y.stride + (size_t)col, y);
        sts16(smem_base() + LQ_ACTS_HEAD + col * 2, y);
    }
    __syncthreads();
    acts::coded<LQ_GLU_THREADS>(a.quant, row);
}

LQ_DEV void add(const lq_add_args &a) {
    const place p = place_of(a.x.cols);
    const float by = a.scale != 0 ? a.scale : 1.0f;
    if (p.row >= a.x.rows) return;
    const eight x = read(a.x, p.row, p.col);
    eight y = read(a.y, p.row, p.col);
    LQ_UNROLL
    for (int i = 0; i < 8; i++) y.v[i] += by * x.v[i];
    write(a.y, p.row, p.col, y);
}

LQ_DEV void scale(const lq_scale_args &a) {
    const place p = place_of(a.x.cols);
    if (p.row >= a.x.rows) return;
    lq_scale_args one = a;
    eight x = read(a.x, p.row, p.col), by = {};
    if (a.by) by = floats(a.by + p.col);
    LQ_UNROLL
    for (int i = 0; i < 8; i++) {
        one.by = NULL;
        x.v[i] = lq_scale_at(&one, a.by ? x.v[i] * by.v[i] : x.v[i], 0);
    }
    write(a.y, p.row, p.col, x);
}

LQ_DEV void scale_f32(const lq_scale_args &a) {
    const int pieces = LQ_ELEM_PIECES(a.x.cols), row = (int)blockIdx.x / pieces;
    const int from = (int)blockIdx.x % pieces * LQ_ELEM_PIECE + (int)threadIdx.x;
    const float *x = (const float *)a.x.p + (size_t)row * a.x.stride;
    float *y = (float *)a.y.p + (size_t)row * a.y.stride;
    for (int col = from; col < a.x.cols && col < from + LQ_ELEM_PIECE; col += LQ_ELEM_THREADS)
        y[col] = lq_scale_at(&a, x[col], col);
}

LQ_DEV void mix(const lq_mix_args &a) {
    const place p = place_of(a.y.cols);
    if (p.row >= a.y.rows) return;
    eight sum = {};
    for (int s = 0; s < a.top_k; s++) {
        const int slot = p.row * a.top_k + s;
        const eight x = read(a.x, slot, p.col);
        const float weight = a.weight ? a.weight[slot] : 1.0f;
        LQ_UNROLL
        for (int i = 0; i < 8; i++) sum.v[i] += weight * x.v[i];
    }
    if (!a.fresh) {
        const eight y = read(a.y, p.row, p.col);
        LQ_UNROLL
        for (int i = 0; i < 8; i++) sum.v[i] = y.v[i] + sum.v[i];
    }
    write(a.y, p.row, p.col, sum);
}

LQ_DEV void embed(const lq_embed_of &a) {
    const place p = place_of(a.y.cols);
    if (p.row >= a.y.rows) return;
    eight v = wide(ldg16(a.w + (size_t)a.ids[p.row] * (size_t)a.y.cols + (size_t)p.col));
    LQ_UNROLL
    for (int i = 0; i < 8; i++) v.v[i] = a.scale != 0 ? v.v[i] * a.scale : v.v[i];
    if (a.y.type != LQ_F32) {
        write(a.y, p.row, p.col, v);
        return;
    }
    float *y = (float *)a.y.p + (size_t)p.row * a.y.stride + (size_t)p.col;
    st16(y, {bits_of(v.v[0]), bits_of(v.v[1]), bits_of(v.v[2]), bits_of(v.v[3])});
    st16(y + 4, {bits_of(v.v[4]), bits_of(v.v[5]), bits_of(v.v[6]), bits_of(v.v[7])});
}

// Of any weight: a piece of a row of it for a block.
LQ_DEV void embed_coded(const lq_embed_coded_of &a) {
    const int pieces = LQ_ELEM_PIECES((int)a.w.k), row = (int)blockIdx.x / pieces;
    const int from = (int)blockIdx.x % pieces * LQ_ELEM_PIECE, end = from + LQ_ELEM_PIECE;
    const int64_t id = a.ids[row];
    const number::line y = number::line_of(&a.y, row);
    const float by = a.scale != 0 ? a.scale : 1.0f;
    for (int c = from + (int)threadIdx.x; c < a.w.k && c < end; c += LQ_ELEM_THREADS)
        number::put(y, a.w.perm ? a.w.perm[c] : c, number::weight_at(&a.w, id, c, false) * by);
    if (!a.w.outliers) return;
    __syncthreads();
    for (int o = (int)threadIdx.x; o < a.w.outliers; o += LQ_ELEM_THREADS) {
        const int c = a.w.outlier[o];
        if (c >= from && c < end)
            number::put(y, a.w.perm ? a.w.perm[c] : c, lq_bf16_widen(a.w.outlier_w[id * a.w.outliers + o]) * by);
    }
}
}
#endif
