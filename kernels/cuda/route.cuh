// route.cuh: which experts a row goes to, a warp for each row, and slots sorted by expert, a warp for each expert. What
// is an expert's own its lane makes; sums go by one order, that of kernels/route.h. The sort is stable and needs no
// atomics: a warp counts the slots of experts before its own, then writes its own in their order.
#ifndef LQ_CUDA_ROUTE_CUH
#define LQ_CUDA_ROUTE_CUH
#include "kernels/cuda/route.h"
#include "kernels/cuda/simt.h"
#include "kernels/math.h"

namespace route {
// Numbers that have the order of scores; 0: taken. NaN counts as the least.
LQ_DEV uint32_t image_of(float x) {
    const uint32_t u = bits_of(x != x ? -INFINITY : x + 0.0f);
    return u >> 31 ? ~u : u | 0x80000000u;
}

// The index of the largest of n words (ties to the lower), which becomes 0, in each lane.
LQ_DEV int take_best(smem words, int n) {
    const int lane = (int)(threadIdx.x % WARP);
    uint32_t most = 0;
    int best = INT32_MAX;
    sync_warp();
    for (int i = lane; i < n; i += WARP) {
        const uint32_t one = lds4(words + i * 4);
        if (one > most) most = one, best = i;
    }
    for (int apart = WARP / 2; apart; apart /= 2) {
        const uint32_t one = shfl_xor(most, apart);
        const int index = shfl_xor(best, apart);
        if (one > most || (one == most && index < best)) most = one, best = index;
    }
    sync_warp();
    if (lane == 0 && best < n) sts4(words + best * 4, 0);
    return best;
}

LQ_DEV float sum_in_order(smem words, int n) {
    float sum = 0;
    sync_warp();
    for (int i = 0; i < n; i++) sum += float_of(lds4(words + i * 4));
    sync_warp();
    return sum;
}

// Leaves only the experts of the best groups; `work`: a word for each group.
LQ_DEV void keep_groups(const lq_route_args &a, smem score, smem work) {
    const int n = a.logits.cols, each = n / a.groups, lane = (int)(threadIdx.x % WARP);
    sync_warp();
    for (int g = lane; g < a.groups; g += WARP) {
        uint32_t first = image_of(-INFINITY), second = first;
        for (int e = g * each; e < (g + 1) * each; e++) {
            const uint32_t one = lds4(score + e * 4);
            second = one > first ? first : one > second ? one : second;
            first = one > first ? one : first;
        }
        const float best = float_of(first >> 31 ? first & 0x7fffffffu : ~first);
        const float next = float_of(second >> 31 ? second & 0x7fffffffu : ~second);
        sts4(work + g * 4, image_of(a.kind == LQ_ROUTE_SIGMOID && each > 1 ? best + next : best));
    }
    for (int i = 0; i < a.top_groups; i++) take_best(work, a.groups);
    sync_warp();
    for (int e = lane; e < n; e += WARP)
        if (lds4(work + e / each * 4)) sts4(score + e * 4, 0);
}

// The part that the best has in the softmax over those left that are near it.
LQ_DEV float mixer(const lq_route_args &a, smem part, smem score, smem work, int best) {
    const int n = a.logits.cols;
    sync_warp();
    const float top = float_of(lds4(part + best * 4));
    for (int e = (int)(threadIdx.x % WARP); e < n; e += WARP) {
        const float x = float_of(lds4(part + e * 4)), far = fmaxf(fabsf(x), top);
        const bool left = e == best || lds4(score + e * 4);
        sts4(work + e * 4, bits_of(!left || (top - x) / far > 2 * a.jitter ? 0 : lq_expf(x - top)));
    }
    return 1 / sum_in_order(work, n);
}

LQ_DEV void weights(const lq_route_args &a, smem part, smem chosen, smem work, float *weight) {
    const int lane = (int)(threadIdx.x % WARP);
    float most = -INFINITY;
    sync_warp();
    for (int i = 0; i < a.top_k; i++) {
        const float one = float_of(lds4(part + lds4(chosen + i * 4) * 4));
        most = one > most ? one : most;
    }
    for (int i = lane; i < a.top_k; i += WARP) {
        const float one = float_of(lds4(part + lds4(chosen + i * 4) * 4));
        sts4(work + i * 4, bits_of(a.kind == LQ_ROUTE_SOFTMAX_TOPK ? lq_expf(one - most) : one));
    }
    const float sum = sum_in_order(work, a.top_k);
    for (int i = lane; i < a.top_k; i += WARP) {
        float w = float_of(lds4(work + i * 4));
        if (a.kind == LQ_ROUTE_SOFTMAX_TOPK || a.renorm) w /= sum + 1e-20f;
        if (a.scale != 0) w *= a.scale;
        weight[i] = w;
    }
}

LQ_DEV void row(const lq_route_args &a, int at, smem part) {
    const int n = a.logits.cols, lane = (int)(threadIdx.x % WARP);
    const float *x = (const float *)a.logits.p + (size_t)at * a.logits.stride;
    const smem score = part + n * 4, work = score + n * 4, chosen = work + n * 4;
    int32_t *expert = a.expert + (size_t)at * (size_t)a.top_k;
    float *weight = a.weight + (size_t)at * (size_t)a.top_k, most = -INFINITY;
    for (int e = lane; e < n; e += WARP) most = x[e] > most ? x[e] : most;
    for (int apart = WARP / 2; apart; apart /= 2) {
        const float other = shfl_xor(most, apart);
        most = other > most ? other : most;
    }
    for (int e = lane; e < n; e += WARP) {
        const float v = x[e];
        sts4(part + e * 4, bits_of(a.kind == LQ_ROUTE_SIGMOID ? lq_sigmoidf(v)
                                   : a.kind == LQ_ROUTE_SOFTMAX ? lq_expf(v - most) : v));
    }
    const float sum = a.kind == LQ_ROUTE_SOFTMAX ? sum_in_order(part, n) : 1;
    for (int e = lane; e < n; e += WARP) {
        float p = float_of(lds4(part + e * 4));
        if (a.kind == LQ_ROUTE_SOFTMAX) sts4(part + e * 4, bits_of(p /= sum));
        sts4(score + e * 4, image_of(a.bias ? p + a.bias[e] : p));
    }
    if (a.groups > 1) keep_groups(a, score, work);
    for (int i = 0; i < a.top_k; i++) {
        const int best = take_best(score, n);
        const float part_of = a.kind == LQ_ROUTE_MIXER ? mixer(a, part, score, work, best) : 0;
        if (lane) continue;
        expert[i] = best;
        sts4(chosen + i * 4, (uint32_t)best);
        if (a.kind == LQ_ROUTE_MIXER) weight[i] = part_of;
    }
    if (a.kind != LQ_ROUTE_MIXER) weights(a, part, chosen, work, weight);
}

LQ_DEV void rows(const lq_route_of &of) {
    pdl_trigger();
    const int at = (int)(blockIdx.x * (LQ_ROUTE_THREADS / WARP) + threadIdx.x / WARP);
    const smem mine = smem_base() + (uint32_t)(threadIdx.x / WARP * ((3 * of.a.logits.cols + of.a.top_k + 3) / 4 * 16));
    pdl_wait();
    if (at < of.a.logits.rows) row(of.a, at, mine);
}

LQ_DEV void sort(const lq_sort_of &a) {
    pdl_trigger();
    const int lane = (int)(threadIdx.x % WARP);
    const int e = (int)(blockIdx.x * (LQ_SORT_THREADS / WARP) + threadIdx.x / WARP);
    if (e >= a.experts) return;
    int before = 0;
    pdl_wait();
    for (int s = lane; s < a.slots; s += WARP) before += a.expert[s] < e;
    for (int apart = WARP / 2; apart; apart /= 2) before += shfl_xor(before, apart);
    if (lane == 0) a.start[e] = before;
    for (int first = 0; first < a.slots; first += WARP) {
        const int s = first + lane;
        const bool mine = s < a.slots && a.expert[s] == e;
        const uint32_t all = vote_ballot(mine);
        if (mine) a.order[before + bits_set(all & ((1u << lane) - 1))] = s;
        before += bits_set(all);
    }
    if (lane == 0 && e == a.experts - 1) a.start[a.experts] = before;
}
}
#endif
