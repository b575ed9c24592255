// quant_vec.h: activations in int8 for the ISA this is compiled for: the bits of lq_q8_c. Owns nothing.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

#define top_of NAME(top_of)
#define row_of NAME(row_of)
#define codes_of NAME(codes_of)

enum { STEP = 16, PARTS = STEP / VEC }; // k that are stored together, in vectors

// Of the magnitudes' bits; n a multiple of VEC.
INLINE uint32_t top_whole(const float *x, int n) {
    vi top = vi_set(0);
    for (int i = 0; i < n; i += VEC) top = vi_max(top, vi_and(vi_set(0x7fffffff), vi_bits(vf_load(x + i))));
    return (uint32_t)vi_most(top);
}

static uint32_t top_of(const float *x, int n) {
    const int whole = n / VEC * VEC;
    const uint32_t top = top_whole(x, whole), rest = lq_q8_c.top(x + whole, n - whole);
    return top > rest ? top : rest;
}

static void row_of(const float *x, int k, const lq_act *a, int row, int g0) {
    const int G = (int)a->q_row;
    for (int g = g0; k > 0; g++, x += G, k -= G) {
        if (k < G || G % STEP) {
            lq_q8_c.row(x, k, a, row, g);
            return;
        }
        const size_t u = (size_t)g * (size_t)a->apart + (size_t)row;
        int8_t *q = (int8_t *)a->q + u * (size_t)G;
        const uint32_t top = top_whole(x, G);
        const float absmax = lq_float(top);
        const bool some = top < 0x7f800000 && absmax >= 0x1p-100f;
        const vf inverse = vf_set(some ? 127.0f / absmax : 0);
        vi sum = vi_set(0), c[PARTS];
        for (int i = 0; i < G; i += STEP) {
            EACH (int p = 0; p < PARTS; p++) {
                c[p] = vi_of(vf_mul(vf_load(x + i + p * VEC), inverse));
                if (!some) c[p] = vi_set(0);
                sum = vi_add(sum, c[p]);
            }
            vi_store_i8(q + i, c);
        }
        a->scale[u] = absmax < 0x1p-100f ? 0 : absmax / 127.0f;
        a->sum[u] = vi_sum(sum);
    }
}

static int32_t codes_of(const float *x, int n, const lq_q8_by *by, int8_t *q) {
    const vf inverse = vf_set(by->inverse), far = vf_set(512.0f), near = vf_set(-512.0f);
    const vi zero = vi_set(by->zero), least = vi_set(by->least), most = vi_set(127);
    vi sum = vi_set(0), c[PARTS];
    int i = 0;
    for (; i + STEP <= n; i += STEP) {
        EACH (int p = 0; p < PARTS; p++) {
            const vf v = vf_max(vf_min(vf_mul(vf_load(x + i + p * VEC), inverse), far), near);
            c[p] = vi_min(vi_max(vi_add(vi_of(v), zero), least), most);
            sum = vi_add(sum, c[p]);
        }
        vi_store_i8(q + i, c);
    }
    return vi_sum(sum) + lq_q8_c.codes(x + i, n - i, by, q + i);
}

const lq_q8 NAME(lq_q8) = {row_of, top_of, codes_of, lq_e4m3_all, lq_narrow_all};
