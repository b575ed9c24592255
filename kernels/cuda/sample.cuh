// sample.cuh: from logits to tokens: the stages of kernels/cpu/sample.c, each a pass of a block of 512 threads over a
// row. A logit and its id are one number of 52 bits, larger for what is better, so that no two are alike and ties go to
// the lower id. How many of the best reach what is needed is found by halving the numbers twice in a pass: counts and
// weights are integers, whose sums have no order. Sums of f64 have the order of portable C.
#ifndef LQ_SAMPLE_CUH
#define LQ_SAMPLE_CUH
#include "kernels/cuda/sample.h"
#include "kernels/cuda/simt.h"
#include "kernels/draw.h"

namespace sample {
enum { THREADS = LQ_SAMPLE_CHOOSERS, WARPS = THREADS / WARP, ID_BITS = 20, LAST_ID = (1 << ID_BITS) - 1 };
enum { ASK = 1 << 30 }; // a token that is still to be chosen

// --- numbers that have the order of (logit, lower id) ---

LQ_DEV uint64_t rank_of(float x, int id) {
    const uint32_t u = bits_of(x + 0.0f); // -0 is 0
    const uint32_t image = x != x ? ~0u : u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t)image << ID_BITS | (uint32_t)(LAST_ID - id);
}

LQ_DEV float logit_of(uint64_t rank) {
    const uint32_t image = (uint32_t)(rank >> ID_BITS);
    return float_of(image >> 31 ? image & 0x7fffffffu : ~image);
}

LQ_DEV int id_of(uint64_t rank) { return LAST_ID - (int)((uint32_t)rank & LAST_ID); }
LQ_DEV bool is_number(uint64_t rank) { // neither NaN nor infinite
    const uint32_t image = (uint32_t)(rank >> ID_BITS);
    return image > 0x007fffffu && image < 0xff800000u;
}

// The least rank of a logit that is not below `least`, and not -infinity.
LQ_DEV uint64_t rank_from(float least) {
    return least == -INFINITY ? (uint64_t)0x00800000u << ID_BITS : rank_of(least, LAST_ID);
}

// --- 64 bits among threads ---

LQ_DEV uint64_t lds_word(smem at) {
    const uint2 v = lds8(at);
    return (uint64_t)v.y << 32 | v.x;
}

LQ_DEV void sts_word(smem at, uint64_t v) { sts8(at, {(uint32_t)v, (uint32_t)(v >> 32)}); }
LQ_DEV double double_of(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

LQ_DEV uint64_t word_of(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

LQ_DEV uint64_t shfl_word(uint64_t v, int lane) {
    const uint32_t low = shfl((uint32_t)v, lane);
    return (uint64_t)shfl((uint32_t)(v >> 32), lane) << 32 | low;
}

LQ_DEV uint64_t warp_sum(uint64_t v) {
    for (int apart = WARP / 2; apart; apart /= 2) v += shfl_word(v, (int)(threadIdx.x % WARP) ^ apart);
    return v;
}

LQ_DEV uint64_t warp_most(uint64_t v) {
    for (int apart = WARP / 2; apart; apart /= 2) {
        const uint64_t other = shfl_word(v, (int)(threadIdx.x % WARP) ^ apart);
        v = other > v ? other : v;
    }
    return v;
}

// The largest of a block of `warps` warps, in each thread; `at`: a word of 64 bits for each warp.
LQ_DEV uint64_t block_most(uint64_t v, int warps, smem at) {
    v = warp_most(v);
    if (threadIdx.x % WARP == 0) sts_word(at + threadIdx.x / WARP * 8, v);
    __syncthreads();
    const int lane = (int)(threadIdx.x % WARP);
    return warp_most(lane < warps ? lds_word(at + lane * 8) : 0);
}

// --- sums of f64 ---

// exp(l - most), or of `whole` weights what each adds to the expected surprise. Most tokens are far too unlikely.
struct term { float most; bool surprise; double whole, log_whole; };
LQ_DEV double term_of(const term &t, float l) {
    if (t.surprise) return lq_draw_surprise(l, t.whole, t.log_whole);
    return l - t.most < LQ_EXP_LEAST ? 0 : (double)lq_expf(l - t.most);
}

// What half a warp sums of 512 ids: each thread is a lane, then lanes in order. The same in each thread.
LQ_DEV double ids_sum(const float *l, int vocab, int block, const term &of) {
    const int lane = (int)(threadIdx.x % LQ_DRAW_LANES);
    double mine = 0, sum = 0;
    for (int i = lane; i < LQ_DRAW_BLOCK; i += LQ_DRAW_LANES) {
        const int id = block * LQ_DRAW_BLOCK + i;
        if (id < vocab) mine += term_of(of, l[id]);
    }
    for (int i = 0; i < LQ_DRAW_LANES; i++)
        sum += double_of(shfl_word(word_of(mine), (int)(threadIdx.x % WARP & LQ_DRAW_LANES) + i));
    return sum;
}

LQ_DEV double in_order(smem sums, int n) {
    double sum = 0;
    LQ_ROLLED
    for (int i = 0; i < n; i++) sum += double_of(lds_word(sums + i * 8));
    return sum;
}

// Shared memory of the third kernel: a list of candidates, or the sums and 512 weights; then words for each warp, twice
// three of them for what is found by halving; then words that one thread tells all.
enum { SUMS = 0, WEIGHTS = 16384, LIST = 0, EACH_WARP = LQ_SAMPLE_LIST * 16, TOLD = EACH_WARP + 768 };
static_assert(LQ_SAMPLE_VOCAB / LQ_DRAW_BLOCK * 8 <= WEIGHTS, "sums of a whole vocabulary");

// One row.
struct row {
    const float *x;          // [vocab] as the model gave them
    float *l;                // [vocab] as the stages leave them
    int vocab, blocks;
    const uint32_t *words;   // the block of wishes
    const lq_sample_row *want;
};

// What one thread has found, to all.
LQ_DEV double told(double v) {
    const smem at = smem_base() + TOLD;
    if (threadIdx.x == 0) sts_word(at, word_of(v));
    __syncthreads();
    return double_of(lds_word(at));
}

// Sums of all blocks of 512 ids into shared memory, and in order.
LQ_DEV double row_sum(const row &r, const term &of) {
    const smem sums = smem_base() + SUMS;
    const int half = (int)threadIdx.x / LQ_DRAW_LANES;
    for (int first = 0; first < r.blocks; first += THREADS / LQ_DRAW_LANES) {
        const double sum = ids_sum(r.l, r.vocab, first + half, of);
        if (threadIdx.x % LQ_DRAW_LANES == 0 && first + half < r.blocks)
            sts_word(sums + (first + half) * 8, word_of(sum));
    }
    __syncthreads();
    return told(threadIdx.x == 0 ? in_order(sums, r.blocks) : 0);
}

// --- candidates and how many of the best are wanted ---

// What orders the tokens of a row: their logits, or how near their surprise is to the expected one.
struct order {
    const float *l;
    bool typical;
    double log_whole, entropy;
};
LQ_DEV uint64_t rank_at(const order &by, int id) {
    const float x = by.l[id];
    return rank_of(by.typical ? lq_draw_typical(x, by.log_whole, by.entropy) : x, id);
}

// Where candidates are: a list in shared memory, rank and weight of each, or all tokens of a row.
struct cands { order by; bool listed; int n; };
LQ_DEV uint64_t listed_rank(int i) { return lds_word(smem_base() + LIST + i * 16); }
LQ_DEV uint64_t rank_at(const cands &c, int i) { return c.listed ? listed_rank(i) : rank_at(c.by, i); }
LQ_DEV uint64_t units_at(const cands &c, int i) {
    return c.listed ? lds_word(smem_base() + LIST + i * 16 + 8) : lq_draw_units(c.by.l[i]);
}

// The rank of the last one of the best that are needed to reach `need`, each counting 1 or its weight; `from`, from
// which on there are candidates, where all do not reach it.
LQ_DEV uint64_t reach(const cands &c, uint64_t from, uint64_t need, bool by_weight) {
    const int lane = (int)(threadIdx.x % WARP), warp = (int)(threadIdx.x / WARP);
    uint64_t found = 0;
    smem at = smem_base() + EACH_WARP;
    __syncthreads();
    LQ_ROLLED
    for (uint64_t step = (uint64_t)1 << 50; step; step >>= 2) {
        uint64_t one = 0, two = 0, three = 0;
        LQ_ROLLED
        for (int i = (int)threadIdx.x; i < c.n; i += THREADS) {
            const uint64_t rank = rank_at(c, i);
            if (rank < from || rank < found + step) continue;
            const uint64_t more = by_weight ? units_at(c, i) : 1;
            one += more;
            two += rank >= found + 2 * step ? more : 0;
            three += rank >= found + 3 * step ? more : 0;
        }
        one = warp_sum(one), two = warp_sum(two), three = warp_sum(three);
        if (lane == 0) {
            sts_word(at + warp * 8, one);
            sts_word(at + 256 + warp * 8, two);
            sts_word(at + 512 + warp * 8, three);
        }
        __syncthreads();
        const bool some = lane < WARPS;
        one = warp_sum(some ? lds_word(at + lane * 8) : 0);
        two = warp_sum(some ? lds_word(at + 256 + lane * 8) : 0);
        three = warp_sum(some ? lds_word(at + 512 + lane * 8) : 0);
        at ^= 1024; // the next sums go elsewhere, so that nobody waits twice
        const uint64_t steps = three >= need ? 3 : two >= need ? 2 : one >= need ? 1 : 0;
        found += steps * step;
        if (steps && (steps == 3 ? three : steps == 2 ? two : one) == need) break;
    }
    return found > from ? found : from;
}

// How many threads before this one hold, and of all.
LQ_DEV int before(int mine, int *all) {
    const int lane = (int)(threadIdx.x % WARP), warp = (int)(threadIdx.x / WARP);
    const smem at = smem_base() + EACH_WARP;
    int sum = mine;
    for (int apart = 1; apart < WARP; apart *= 2) {
        const int other = shfl(sum, (lane - apart) & 31);
        sum += lane >= apart ? other : 0;
    }
    __syncthreads();
    if (lane == WARP - 1) sts4(at + warp * 4, (uint32_t)sum);
    __syncthreads();
    int warps = lane < WARPS ? (int)lds4(at + lane * 4) : 0;
    for (int apart = 1; apart < WARP; apart *= 2) {
        const int other = shfl(warps, (lane - apart) & 31);
        warps += lane >= apart ? other : 0;
    }
    *all = shfl(warps, WARP - 1);
    return shfl(warps, (warp - 1) & 31) * (warp > 0) + sum - mine;
}

// The tokens from a rank on into the list. Returns how many there are; more than it holds: it is not filled.
LQ_DEV int list_fill(const order &by, int vocab, uint64_t from) {
    int mine = 0, all = 0;
    for (int i = (int)threadIdx.x; i < vocab; i += THREADS) mine += rank_at(by, i) >= from;
    int at = before(mine, &all);
    if (all > LQ_SAMPLE_LIST) return all;
    for (int i = (int)threadIdx.x; i < vocab && mine; i += THREADS) {
        const uint64_t rank = rank_at(by, i);
        if (rank < from) continue;
        sts_word(smem_base() + LIST + at * 16, rank);
        sts_word(smem_base() + LIST + at++ * 16 + 8, lq_draw_units(by.l[i]));
        mine--;
    }
    __syncthreads();
    return all;
}

// The best of each 512 ids into the list.
LQ_DEV void list_blocks(const order &by, int vocab, int blocks) {
    LQ_ROLLED
    for (int b = (int)(threadIdx.x / WARP); b < blocks; b += WARPS) {
        uint64_t most = 0;
        LQ_ROLLED
        for (int i = (int)(threadIdx.x % WARP); i < LQ_DRAW_BLOCK; i += WARP) {
            const int id = b * LQ_DRAW_BLOCK + i;
            const uint64_t rank = id < vocab ? rank_at(by, id) : 0;
            most = rank > most ? rank : most;
        }
        most = warp_most(most);
        if (threadIdx.x % WARP == 0) sts_word(smem_base() + LIST + b * 16, most);
    }
}

// What is wanted of the best tokens of an order.
struct wanted { order by; uint64_t from, need; bool by_weight, in_list; };

// As reach, of the tokens from a rank on. Where k are wanted, no token that is worse than the k-th best of the blocks
// of 512 ids is among them. in_list: those that are found go into the list, and there must be room for them.
LQ_DEV uint64_t last_of(const wanted &w, int vocab, int blocks, int *listed) {
    uint64_t from = w.from, last = 0;
    LQ_ROLLED
    for (int turn = !w.by_weight && w.need <= (uint64_t)blocks ? 0 : 1; turn < (w.in_list ? 3 : 2); turn++) {
        cands c = {w.by, true, blocks};
        if (turn == 0) list_blocks(w.by, vocab, blocks);
        else {
            c.n = *listed = list_fill(w.by, vocab, from);
            c.listed = c.n <= LQ_SAMPLE_LIST;
            if (!c.listed) c.n = vocab;
        }
        if (turn == 2) break;
        last = reach(c, turn ? from : 0, w.need, turn && w.by_weight);
        from = turn == 0 ? last & ~(uint64_t)LAST_ID : last;
    }
    return last;
}

// --- the stages ---

LQ_DEV bool allowed(const row &r, int id) {
    return !r.want->mask || r.words[r.want->mask + id / 32] >> (id % 32) & 1;
}

LQ_DEV void adjust(const row &r) {
    const lq_sample_row *w = r.want;
    const int32_t *ids = (const int32_t *)r.words + w->bias_id, *seen = (const int32_t *)r.words + w->seen;
    const float *bias = (const float *)r.words + w->bias;
    const uint16_t *seen_n = (const uint16_t *)(r.words + w->seen_n);
    for (int i = (int)threadIdx.x; i < r.vocab; i += THREADS) r.l[i] = allowed(r, i) ? r.x[i] : -INFINITY;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < w->biases; i += THREADS) {
        const int id = ids[i];
        bool mine = id >= 0 && id < r.vocab && allowed(r, id); // the first of an id does all of them, in order
        for (int j = 0; j < i && mine; j++) mine = ids[j] != id;
        for (int j = i; j < w->biases && mine; j++)
            if (ids[j] == id) r.l[id] += bias[j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < w->seens; i += THREADS) {
        const float n = seen_n[i], again = w->repetition;
        float l = r.l[seen[i]];
        if (again != 0) l = l > 0 ? l / again : l * again;
        r.l[seen[i]] = l - (w->frequency * n + (n > 0 ? w->presence : 0));
    }
    __syncthreads();
}

LQ_DEV uint64_t best_of(const row &r) {
    uint64_t most = 0;
    for (int i = (int)threadIdx.x; i < r.vocab; i += THREADS) {
        const uint64_t rank = rank_of(r.l[i], i);
        most = rank > most ? rank : most;
    }
    return block_most(most, WARPS, smem_base() + EACH_WARP);
}

LQ_DEV void drop_worse(const row &r, const order &by, uint64_t last) {
    for (int i = (int)threadIdx.x; i < r.vocab; i += THREADS)
        if (rank_at(by, i) < last) r.l[i] = -INFINITY;
    __syncthreads();
}

// The 512 weights of a block, walked by one thread in order of id.
struct walk { double sum, target; int last, found; };
LQ_DEV void walk_on(const row &r, int block, walk *w) {
    const smem weights = smem_base() + WEIGHTS;
    const int from = block * LQ_DRAW_BLOCK, n = r.vocab - from < LQ_DRAW_BLOCK ? r.vocab - from : LQ_DRAW_BLOCK;
    LQ_ROLLED
    for (int i = 0; i < n && w->found < 0; i++) {
        const float more = float_of(lds4(weights + i * 4));
        if (more == 0) continue;
        w->last = from + i;
        w->sum += more;
        if (w->sum > w->target) w->found = w->last;
    }
}

// Walks the weights in order of id, whole blocks first: their sums are in shared memory. The token, in each thread.
LQ_DEV int draw(const row &r, double whole) {
    const smem sums = smem_base() + SUMS, weights = smem_base() + WEIGHTS, told_at = smem_base() + TOLD;
    walk w = {0, lq_draw_uniform(r.want->seed, r.want->choice, r.want->position) * whole, -1, -1};
    int block = 0;
    LQ_ROLLED
    for (; block < r.blocks - 1; block++) { // every thread the same
        const double sum = w.sum + double_of(lds_word(sums + block * 8));
        if (!(sum <= w.target)) break;
        w.sum = sum;
    }
    const int first = block;
    LQ_ROLLED
    for (; block < r.blocks; block++) {
        const int i = (int)threadIdx.x, id = block * LQ_DRAW_BLOCK + i;
        if (i < LQ_DRAW_BLOCK && id < r.vocab) sts4(weights + i * 4, bits_of(lq_expf(r.l[id])));
        __syncthreads();
        if (i == 0) {
            walk_on(r, block, &w);
            sts4(told_at, (uint32_t)w.found);
        }
        __syncthreads();
        if ((int)lds4(told_at) >= 0) return (int)lds4(told_at);
    }
    // rounding left nothing behind the target: the last one that can be drawn
    LQ_ROLLED
    for (int i = first * LQ_DRAW_BLOCK; threadIdx.x == 0 && w.last < 0 && i-- > 0;)
        if (lq_expf(r.l[i]) != 0) w.last = i;
    __syncthreads();
    return (int)told(w.last);
}

// The logits as the wishes make them, over the temperature, the best 0; or which token it is without more ado.
LQ_DEV bool prepared(const row &r, int *token) {
    const lq_sample_row *w = r.want;
    adjust(r);
    const uint64_t first = best_of(r);
    *token = !is_number(first) ? -1 : id_of(first);
    if (*token < 0 || w->temperature == 0) return false;
    const float best = logit_of(first), least = w->min_p > 0 ? (float)lq_log(w->min_p) : -INFINITY;
    for (int i = (int)threadIdx.x; i < r.vocab; i += THREADS) {
        const float l = (r.l[i] - best) / w->temperature;
        r.l[i] = l < least ? -INFINITY : l;
    }
    __syncthreads();
    return true;
}

// The best n logits as the model gave them are in the list: where one stands says how many are better.
LQ_DEV void top_list(const row &r, int have, int n, double log_whole, int32_t *id, float *logprob) {
    for (int i = (int)threadIdx.x; i < have; i += THREADS) {
        const uint64_t mine = listed_rank(i);
        int at = 0;
        LQ_ROLLED
        for (int j = 0; j < have; j++) at += listed_rank(j) > mine;
        if (at < n) id[at] = id_of(mine), logprob[at] = (float)(r.x[id_of(mine)] - log_whole);
    }
}

enum stage { TOP_LIST, TOP_K, TOP_P, TYPICAL, DRAW };
LQ_DEV bool asked(const lq_sample_row *w, int stage, int vocab) {
    switch (stage) {
    case TOP_LIST: return w->top_n > 0;
    case TOP_K: return w->top_k > 0 && w->top_k < vocab;
    case TOP_P: return w->top_p > 0 && w->top_p < 1;
    case TYPICAL: return w->typical > 0 && w->typical < 1;
    default: return true;
    }
}

// What TOP_P and TYPICAL want: the fewest best with a share of p. All tokens under (1 - p) / vocab of the whole have
// less than 1 - p together, so TOP_P does not look at them (half of it, to be far from rounding).
LQ_DEV void share_wanted(const row &r, int stage, double whole, wanted *w) {
    const double p = stage == TOP_P ? r.want->top_p : r.want->typical, least = 0.5 * (1 - p) * whole / r.vocab;
    w->by_weight = true;
    w->need = lq_draw_need(p * whole);
    if (stage == TOP_P) w->from = rank_from(least > 1e-30 ? (float)lq_log(least) : -INFINITY);
    else w->by.typical = true;
}

// All stages of a row, one after another in one loop, so that what they share is there once. The token, or -1.
LQ_DEV int stages(const row &r, int token, double log_whole, int32_t *id, float *logprob) {
    LQ_ROLLED
    for (int stage = TOP_LIST; stage <= DRAW; stage++) {
        if (stage == TOP_K && (token != ASK || !prepared(r, &token))) return token;
        if (!asked(r.want, stage, r.vocab)) continue;
        wanted w = {{stage == TOP_LIST ? r.x : r.l, false, 0, 0}, stage == TOP_LIST ? 0 : rank_from(-INFINITY),
                    (uint64_t)(stage == TOP_LIST ? r.want->top_n : r.want->top_k), false, stage == TOP_LIST};
        if (stage >= TOP_P) {
            term of = {0, false, 0, 0};
            LQ_ROLLED
            for (int turn = 0; turn < (stage == TYPICAL ? 2 : 1); turn++) {
                const double sum = row_sum(r, of);
                if (turn == 0) of = {0, true, sum, stage == TYPICAL ? lq_log(sum) : 0};
                else w.by.log_whole = of.log_whole, w.by.entropy = sum;
            }
            if (stage == DRAW) return draw(r, of.whole);
            share_wanted(r, stage, of.whole, &w);
        }
        int n = 0;
        const uint64_t last = last_of(w, r.vocab, r.blocks, &n);
        if (stage == TOP_LIST) top_list(r, n, r.want->top_n, log_whole, id, logprob);
        else drop_worse(r, w.by, last);
        if (stage != TYPICAL) continue;
        const float best = logit_of(best_of(r));
        for (int i = (int)threadIdx.x; i < r.vocab; i += THREADS) r.l[i] -= best;
        __syncthreads();
    }
    return -1;
}

// --- the kernels ---

LQ_DEV void best(const lq_sample_of &a) {
    pdl_trigger();
    const int row = (int)blockIdx.x / a.parts, blocks = (a.vocab + LQ_DRAW_BLOCK - 1) / LQ_DRAW_BLOCK;
    const int first = (int)blockIdx.x % a.parts * LQ_SAMPLE_PART, lane = (int)(threadIdx.x % WARP);
    const float *x = a.logits + row * a.stride;
    pdl_wait();
    for (int i = (int)threadIdx.x / WARP; i < LQ_SAMPLE_PART && first + i < blocks; i += LQ_SAMPLE_THREADS / WARP) {
        const int b = first + i;
        uint64_t most = 0;
        LQ_UNROLL
        for (int j = 0; j < LQ_DRAW_BLOCK; j += WARP) {
            const int id = b * LQ_DRAW_BLOCK + j + lane;
            const uint64_t rank = id < a.vocab ? rank_of(x[id], id) : 0;
            most = rank > most ? rank : most;
        }
        most = warp_most(most);
        if (lane == 0) a.best[(int64_t)row * blocks + b] = most;
    }
}

// The best of a row, of what the first kernel left.
LQ_DEV uint64_t row_best(const lq_sample_of &a, int row, int blocks, int threads) {
    uint64_t most = 0;
    for (int i = (int)threadIdx.x; i < blocks; i += threads) {
        const uint64_t one = a.best[(int64_t)row * blocks + i];
        most = one > most ? one : most;
    }
    return block_most(most, threads / WARP, smem_base() + (threads == THREADS ? (int)EACH_WARP : 0));
}

LQ_DEV void sums(const lq_sample_of &a) {
    pdl_trigger();
    const int row = (int)blockIdx.x / a.parts, blocks = (a.vocab + LQ_DRAW_BLOCK - 1) / LQ_DRAW_BLOCK;
    const int b = (int)blockIdx.x % a.parts * LQ_SAMPLE_PART + (int)threadIdx.x / LQ_DRAW_LANES;
    pdl_wait();
    const float most = logit_of(row_best(a, row, blocks, LQ_SAMPLE_THREADS));
    const double sum = ids_sum(a.logits + row * a.stride, a.vocab, b, {most, false, 0, 0});
    if (b < blocks && threadIdx.x % LQ_DRAW_LANES == 0) a.sums[(int64_t)row * blocks + b] = sum;
}

LQ_DEV void one_row(const lq_sample_of &a, int at) {
    const row r = {a.logits + at * a.stride, a.work + (int64_t)blockIdx.x * a.vocab, a.vocab,
                   (a.vocab + LQ_DRAW_BLOCK - 1) / LQ_DRAW_BLOCK, a.wishes, (const lq_sample_row *)a.wishes + at};
    __syncthreads(); // the row before is done
    const uint64_t raw = row_best(a, at, r.blocks, THREADS);
    const int i = (int)threadIdx.x;
    int32_t *id = a.top_id + (int64_t)at * LQ_TOP;
    float *logprob = a.top_logprob + (int64_t)at * LQ_TOP;
    if (i == 0) a.out[at] = {-1, 0, 1};
    if (a.top_id && i < LQ_TOP) id[i] = -1, logprob[i] = -INFINITY;
    if (!is_number(raw)) return;
    const double *sum = a.sums + (int64_t)at * r.blocks;
    for (int b = i; b < r.blocks; b += THREADS) sts_word(smem_base() + SUMS + b * 8, word_of(sum[b]));
    __syncthreads();
    const double log_whole = logit_of(raw) + lq_log(told(i == 0 ? in_order(smem_base() + SUMS, r.blocks) : 0));
    const bool plain = !r.want->mask && !r.want->biases && !r.want->seens && r.want->temperature == 0;
    const int token = stages(r, r.want->given ? r.want->token : plain ? id_of(raw) : ASK, log_whole, id, logprob);
    if (i > 0) return;
    if (token < 0) a.out[at].token = token;
    else a.out[at] = {token, (float)(r.x[token] - log_whole), 0};
}

LQ_DEV void rows(const lq_sample_of &a) {
    pdl_trigger();
    pdl_wait();
    for (int at = (int)blockIdx.x; at < a.rows; at += (int)gridDim.x) one_row(a, at);
}
}
#endif
