// scan.cuh: S = a S + beta k u^T, y = q^T S of a head, row by row. The host's side is scan.h.
//
// Lane l of a warp has column l % 8 and of the rows of the state those in which i / 4 % 4 is l / 8:
// i = 16 j + 4 (l / 8) + e. Sums over i: e apart and j in order, by fma from 0; (0 + 1) + (2 + 3) of e; then lanes 8
// and 16 apart. So lanes of a column have the same bits, and nothing but dk decides them.
#ifndef LQ_SCAN_CUH
#define LQ_SCAN_CUH
#include "kernels/cuda/scan.h"
#include "kernels/cuda/simt.h"
#include "kernels/math.h"
#include "kernels/view.h"

namespace scan {
LQ_DEV const uint16_t *half_at(const lq_mat &m, int row, int col) {
    return (const uint16_t *)m.p + (size_t)row * m.stride + (size_t)col;
}

LQ_DEV const float *float_at(const lq_mat &m, int row, int col) {
    return (const float *)m.p + (size_t)row * m.stride + (size_t)col;
}

LQ_DEV float element(const lq_mat &m, int row, int col) { return float_of(ld4(float_at(m, row, col))); }

// What this block has: columns from `col` on of a head, the rows of a sequence.
struct place { int head, group, col, seq, first, end; };

// In shared memory, for the rows of a step: k, q and factors [8][DK], v and y [8][64], a factor and a beta of each row.
template <int DK> struct layout {
    enum { ROW = DK * 4, EACH = LQ_SCAN_ROWS * ROW, K = 0, Q = EACH, DECAY = 2 * EACH, V = 3 * EACH,
           Y = V + LQ_SCAN_ROWS * 256, BY = Y + LQ_SCAN_ROWS * 256, BETA = BY + LQ_SCAN_ROWS * 4 };
};

// What a thread brings of a step's rows: 8 numbers of k and q each, and of their factors; 8 of v; one factor, one beta.
struct brought {
    uint4 k, q, low, high, v;
    float decay, beta;
};

LQ_DEV brought bring(const lq_scan_of &a, const place &p, int base) {
    const int t = (int)threadIdx.x, each = a.a.dk / 8, row = base + t / each, i = t % each * 8;
    brought b = {};
    if (t < LQ_SCAN_ROWS * each && row < p.end) {
        b.k = ld16(half_at(a.a.k, row, p.group * a.a.dk + i));
        b.q = ld16(half_at(a.a.q, row, p.group * a.a.dk + i));
        if (a.a.decay_per_k) {
            b.low = ld16(float_at(a.a.decay, row, p.head * a.a.dk + i));
            b.high = ld16(float_at(a.a.decay, row, p.head * a.a.dk + i + 4));
        }
    }
    const int col = p.col + t % 8 * 8;
    if (t < 8 * LQ_SCAN_ROWS && base + t / 8 < p.end && col < a.a.dv)
        b.v = ld16(half_at(a.a.v, base + t / 8, p.head * a.a.dv + col));
    if (t < LQ_SCAN_ROWS && base + t < p.end) {
        if (!a.a.decay_per_k) b.decay = element(a.a.decay, base + t, p.head);
        b.beta = a.a.beta.p ? element(a.a.beta, base + t, p.head) : 1;
    }
    return b;
}

LQ_DEV void put_halves(smem at, uint4 v) {
    sts16(at, {v.x << 16, v.x & 0xffff0000u, v.y << 16, v.y & 0xffff0000u});
    sts16(at + 16, {v.z << 16, v.z & 0xffff0000u, v.w << 16, v.w & 0xffff0000u});
}

LQ_DEV uint32_t factor(uint32_t log) { return bits_of(lq_expf(float_of(log))); }

// Behind dk all of a state is 0, and so are k and q.
template <int DK> LQ_DEV void stage(const lq_scan_of &a, const brought &b) {
    typedef layout<DK> L;
    const int t = (int)threadIdx.x, each = a.a.dk / 8;
    const smem base = smem_base(), at = base + t / each * L::ROW + t % each * 32;
    if (t < LQ_SCAN_ROWS * each) {
        put_halves(at + L::K, b.k);
        put_halves(at + L::Q, b.q);
        if (a.a.decay_per_k) {
            sts16(at + L::DECAY, {factor(b.low.x), factor(b.low.y), factor(b.low.z), factor(b.low.w)});
            sts16(at + L::DECAY + 16, {factor(b.high.x), factor(b.high.y), factor(b.high.z), factor(b.high.w)});
        }
    }
    if (t < 8 * LQ_SCAN_ROWS) put_halves(base + L::V + t * 32, b.v);
    if (t >= LQ_SCAN_ROWS) return;
    sts4(base + L::BY + t * 4, factor(bits_of(b.decay)));
    sts4(base + L::BETA + t * 4, bits_of(b.beta));
}

struct four { float v[4]; };
LQ_DEV four four_at(smem at) {
    const uint4 v = lds16(at);
    return {{float_of(v.x), float_of(v.y), float_of(v.z), float_of(v.w)}};
}

// Of the four sums of a lane and of the lanes of its column.
LQ_DEV float whole(const four &s) {
    float v = (s.v[0] + s.v[1]) + (s.v[2] + s.v[3]);
    v += shfl_xor(v, 8);
    return v + shfl_xor(v, 16);
}

// One row of a step.
template <int DK, bool DELTA> LQ_DEV void row(float (&s)[DK / 4], const lq_scan_of &a, int r) {
    typedef layout<DK> L;
    const int lane = (int)threadIdx.x % WARP, c = (int)threadIdx.x / WARP * 8 + lane % 8;
    const smem base = smem_base(), at = base + r * L::ROW + lane / 8 * 16;
    const float by = float_of(lds4(base + L::BY + r * 4)), beta = float_of(lds4(base + L::BETA + r * 4));
    const float v = float_of(lds4(base + L::V + (r * LQ_SCAN_COLS + c) * 4));
    const bool per_k = a.a.decay_per_k;
    four sum = {}, y = {};
    LQ_UNROLL
    for (int j = 0; j < DK / 16; j++) {
        if (j * 16 >= a.a.dk) continue;
        four f = {{by, by, by, by}}, k = {};
        if (per_k) f = four_at(at + L::DECAY + j * 64);
        if (DELTA) k = four_at(at + L::K + j * 64);
        LQ_UNROLL
        for (int e = 0; e < 4; e++) {
            s[4 * j + e] *= f.v[e];
            if (DELTA) sum.v[e] = fmaf(k.v[e], s[4 * j + e], sum.v[e]);
        }
    }
    const float u = beta * (DELTA ? v - whole(sum) : v);
    LQ_UNROLL
    for (int j = 0; j < DK / 16; j++) {
        if (j * 16 >= a.a.dk) continue;
        const four k = four_at(at + L::K + j * 64), q = four_at(at + L::Q + j * 64);
        LQ_UNROLL
        for (int e = 0; e < 4; e++) {
            s[4 * j + e] = fmaf(k.v[e], u, s[4 * j + e]);
            y.v[e] = fmaf(q.v[e], s[4 * j + e], y.v[e]);
        }
    }
    const float all = whole(y);
    if (lane < 8) sts4(base + L::Y + (r * LQ_SCAN_COLS + c) * 4, bits_of(all));
}

// The 64 columns of a step's rows, 8 a thread.
template <int DK> LQ_DEV void write(const lq_scan_of &a, const place &p, int base) {
    const int t = (int)threadIdx.x, r = base + t / 8, col = p.col + t % 8 * 8;
    if (t >= 8 * LQ_SCAN_ROWS || r >= p.end || col >= a.a.dv) return;
    const smem at = smem_base() + layout<DK>::Y + t * 32;
    const four low = four_at(at), high = four_at(at + 16);
    st16((void *)(uintptr_t)half_at(a.a.y, r, p.head * a.a.dv + col),
         {bf16x2_of(low.v[0], low.v[1]), bf16x2_of(low.v[2], low.v[3]), bf16x2_of(high.v[0], high.v[1]),
          bf16x2_of(high.v[2], high.v[3])});
}

// Of rows that are nobody's.
LQ_DEV void blank(const lq_scan_of &a, const place &p) {
    const int t = (int)threadIdx.x, col = p.col + t % 8 * 8;
    for (int r = lq_rows_real(&a.rows) + t / 8; r < a.rows.n && col < a.a.dv; r += LQ_SCAN_THREADS / 8)
        st16((void *)(uintptr_t)half_at(a.a.y, r, p.head * a.a.dv + col), {0, 0, 0, 0});
}

// Grid: heads x parts of 64 columns, sequences and one more; LQ_SCAN_THREADS threads, LQ_SCAN_SHARED bytes.
template <int DK, bool DELTA> LQ_DEV void heads(const lq_scan_of &a) {
    const int parts = (a.a.dv + LQ_SCAN_COLS - 1) / LQ_SCAN_COLS, lane = (int)threadIdx.x % WARP;
    place p;
    p.head = (int)blockIdx.x / parts, p.group = p.head / (a.a.heads / a.a.groups);
    p.col = (int)blockIdx.x % parts * LQ_SCAN_COLS, p.seq = (int)blockIdx.y;
    if (p.seq == a.rows.seqs) {
        blank(a, p);
        return;
    }
    p.first = a.rows.first[p.seq], p.end = a.rows.first[p.seq + 1];
    if (p.first == p.end) return;
    const int col = p.col + (int)threadIdx.x / WARP * 8 + lane % 8, i0 = lane / 8 * 4;
    float *state = a.a.state + ((lq_rows_slot(&a.rows, p.seq) * (size_t)a.a.heads + (size_t)p.head) * (size_t)a.a.dk +
                                (size_t)i0) * (size_t)a.a.dv + (size_t)col;
    float s[DK / 4];
    LQ_UNROLL
    for (int i = 0; i < DK / 4; i++) {
        const int of = i / 4 * 16 + i % 4;
        s[i] = of + i0 < a.a.dk && col < a.a.dv ? float_of(ld4(state + (size_t)of * a.a.dv)) : 0;
    }
    brought next = bring(a, p, p.first);
    for (int base = p.first; base < p.end; base += LQ_SCAN_ROWS) {
        stage<DK>(a, next);
        __syncthreads();
        next = bring(a, p, base + LQ_SCAN_ROWS);
        const int count = p.end - base < LQ_SCAN_ROWS ? p.end - base : LQ_SCAN_ROWS;
        LQ_ROLLED
        for (int r = 0; r < count; r++) row<DK, DELTA>(s, a, r);
        __syncthreads();
        write<DK>(a, p, base);
    }
    LQ_UNROLL
    for (int i = 0; i < DK / 4; i++) {
        const int of = i / 4 * 16 + i % 4;
        if (of + i0 < a.a.dk && col < a.a.dv) st4(state + (size_t)of * a.a.dv, bits_of(s[i]));
    }
}

// --- heads of one column: a thread has all of a head's state; its sums are portable C's ---

LQ_DEV void eight_of(float *to, uint4 v) {
    to[0] = bf16_low(v.x), to[1] = bf16_high(v.x), to[2] = bf16_low(v.y), to[3] = bf16_high(v.y);
    to[4] = bf16_low(v.z), to[5] = bf16_high(v.z), to[6] = bf16_low(v.w), to[7] = bf16_high(v.w);
}

LQ_DEV void one_row(float (&s)[LQ_SCAN_ONE], const lq_scan_of &a, int r, int head, int group) {
    const int dk = a.a.dk;
    float k[LQ_SCAN_ONE], q[LQ_SCAN_ONE], sum = 0;
    const float v = bf16_low(ld2(half_at(a.a.v, r, head))), beta = a.a.beta.p ? element(a.a.beta, r, head) : 1;
    const float by = a.a.decay_per_k ? 1 : lq_expf(element(a.a.decay, r, head));
    LQ_UNROLL
    for (int i = 0; i < LQ_SCAN_ONE; i += 8) {
        if (i >= dk) continue;
        eight_of(k + i, ld16(half_at(a.a.k, r, group * dk + i)));
        eight_of(q + i, ld16(half_at(a.a.q, r, group * dk + i)));
    }
    LQ_UNROLL
    for (int i = 0; i < LQ_SCAN_ONE; i += 4) {
        if (i >= dk) continue;
        uint4 f = {bits_of(by), bits_of(by), bits_of(by), bits_of(by)};
        if (a.a.decay_per_k) {
            f = ld16(float_at(a.a.decay, r, head * dk + i));
            f = {factor(f.x), factor(f.y), factor(f.z), factor(f.w)};
        }
        s[i] *= float_of(f.x), s[i + 1] *= float_of(f.y), s[i + 2] *= float_of(f.z), s[i + 3] *= float_of(f.w);
        LQ_UNROLL
        for (int e = i; e < i + 4; e++) sum += k[e] * s[e];
    }
    const float u = beta * (a.a.delta ? v - sum : v);
    sum = 0;
    LQ_UNROLL
    for (int i = 0; i < LQ_SCAN_ONE; i++) {
        if (i >= dk) continue;
        s[i] += k[i] * u;
        sum += q[i] * s[i];
    }
    st2((void *)(uintptr_t)half_at(a.a.y, r, head), bf16x2_of(sum, 0));
}

// Grid: 256 heads a block, sequences and one more.
LQ_DEV void one(const lq_scan_of &a) {
    const int head = (int)(blockIdx.x * LQ_SCAN_THREADS + threadIdx.x), seq = (int)blockIdx.y;
    if (head >= a.a.heads) return;
    if (seq == a.rows.seqs) {
        for (int r = lq_rows_real(&a.rows); r < a.rows.n; r++) st2((void *)(uintptr_t)half_at(a.a.y, r, head), 0);
        return;
    }
    const int first = a.rows.first[seq], end = a.rows.first[seq + 1], group = head / (a.a.heads / a.a.groups);
    if (first == end) return;
    float *state = a.a.state + (lq_rows_slot(&a.rows, seq) * (size_t)a.a.heads + (size_t)head) * (size_t)a.a.dk;
    float s[LQ_SCAN_ONE] = {};
    LQ_UNROLL
    for (int i = 0; i < LQ_SCAN_ONE; i += 4) {
        if (i >= a.a.dk) continue;
        const uint4 v = ld16(state + i);
        s[i] = float_of(v.x), s[i + 1] = float_of(v.y), s[i + 2] = float_of(v.z), s[i + 3] = float_of(v.w);
    }
    for (int r = first; r < end; r++) one_row(s, a, r, head, group);
    LQ_UNROLL
    for (int i = 0; i < LQ_SCAN_ONE; i += 4)
        if (i < a.a.dk) st16(state + i, {bits_of(s[i]), bits_of(s[i + 1]), bits_of(s[i + 2]), bits_of(s[i + 3])});
}
}
#endif
