// pa.h: attention over a paged cache by tensor cores, as the host sees it: arguments, the table of kernels, what they
// can do, workspace and grids. Plain C, for the host that launches and for the kernels alike.
//
// A kernel makes M rows: a query vector each, the heads of one KV head side by side, then the next row of the sequence.
// `few` takes 16 or 32 of them a block and can give each split of a sequence to a block of its own; `many` takes 32 to
// 128 and walks the splits. Both have the same bits, so which one runs is free.
#ifndef LQ_PA_H
#define LQ_PA_H
#include "kernels/ops.h"

typedef enum lq_pa_type { LQ_PA_BF16, LQ_PA_I8, LQ_PA_E4M3 } lq_pa_type; // of the cache

typedef struct lq_pa_args {
    lq_attn_args a;    // rows NULL; q and y of bf16
    lq_rows rows;
    int least, most;   // this launch takes sequences with so many M rows of a KV head
    bool blank;        // and sets rows to 0 that belong to no sequence
    float *parts;      // results of splits, [blocks x][blocks y][LQ_PA_ITEM]; blocks y is 1: not used
    uint32_t *arrived; // [blocks x], zero before and after
} lq_pa_args;

// name, widest dk and dv, type of the cache, warps down the M rows (16 each) and across V's columns, blocks on a
// multiprocessor, places for tiles. dk != dv: V is the first dv of K. The large ones need more shared memory than sm_80
// has, the tight ones do with 99 KB: one place, so that a block copies or computes, not both.
#define LQ_PA_SMALL(X) \
    X(lq_pa_64_bf16_few, 64, 64, LQ_PA_BF16, 1, 4, 2, 2) \
    X(lq_pa_64_bf16_many, 64, 64, LQ_PA_BF16, 8, 1, 1, 2) \
    X(lq_pa_96_bf16_few, 96, 96, LQ_PA_BF16, 1, 2, 2, 2) \
    X(lq_pa_96_bf16_many, 96, 96, LQ_PA_BF16, 8, 1, 1, 2) \
    X(lq_pa_128_bf16_few, 128, 128, LQ_PA_BF16, 1, 4, 2, 2) \
    X(lq_pa_128_bf16_many, 128, 128, LQ_PA_BF16, 8, 1, 1, 2) \
    X(lq_pa_192_bf16_few, 192, 192, LQ_PA_BF16, 1, 4, 1, 2) \
    X(lq_pa_192_bf16_many, 192, 192, LQ_PA_BF16, 4, 2, 1, 2) \
    X(lq_pa_256_bf16_few, 256, 256, LQ_PA_BF16, 1, 4, 1, 2) X(lq_pa_64_i8_few, 64, 64, LQ_PA_I8, 1, 4, 2, 2) \
    X(lq_pa_64_i8_many, 64, 64, LQ_PA_I8, 8, 1, 1, 2) X(lq_pa_128_i8_few, 128, 128, LQ_PA_I8, 1, 4, 2, 2) \
    X(lq_pa_128_i8_many, 128, 128, LQ_PA_I8, 8, 1, 1, 2) X(lq_pa_256_i8_few, 256, 256, LQ_PA_I8, 1, 4, 1, 2) \
    X(lq_pa_64_e4m3_few, 64, 64, LQ_PA_E4M3, 1, 4, 2, 2) \
    X(lq_pa_64_e4m3_many, 64, 64, LQ_PA_E4M3, 8, 1, 1, 2) \
    X(lq_pa_128_e4m3_few, 128, 128, LQ_PA_E4M3, 1, 4, 2, 2) \
    X(lq_pa_128_e4m3_many, 128, 128, LQ_PA_E4M3, 8, 1, 1, 2) \
    X(lq_pa_256_e4m3_few, 256, 256, LQ_PA_E4M3, 1, 4, 1, 2)
#define LQ_PA_LARGE(X) \
    X(lq_pa_256_bf16_many, 256, 256, LQ_PA_BF16, 4, 2, 1, 2) \
    X(lq_pa_mla_bf16_few, 576, 512, LQ_PA_BF16, 2, 4, 1, 2) \
    X(lq_pa_256_i8_many, 256, 256, LQ_PA_I8, 4, 2, 1, 2) \
    X(lq_pa_256_e4m3_many, 256, 256, LQ_PA_E4M3, 4, 2, 1, 2) \
    X(lq_pa_mla_e4m3_few, 576, 512, LQ_PA_E4M3, 2, 4, 1, 2)
#define LQ_PA_TIGHT(X) \
    X(lq_pa_128_bf16_many_tight, 128, 128, LQ_PA_BF16, 8, 1, 1, 1) \
    X(lq_pa_192_bf16_few_tight, 192, 192, LQ_PA_BF16, 1, 4, 1, 1) \
    X(lq_pa_192_bf16_many_tight, 192, 192, LQ_PA_BF16, 4, 2, 1, 1) \
    X(lq_pa_256_bf16_few_tight, 256, 256, LQ_PA_BF16, 1, 4, 1, 1) \
    X(lq_pa_256_bf16_many_tight, 256, 256, LQ_PA_BF16, 2, 4, 1, 1) \
    X(lq_pa_mla_bf16_few_tight, 576, 512, LQ_PA_BF16, 1, 4, 1, 1) \
    X(lq_pa_128_i8_many_tight, 128, 128, LQ_PA_I8, 8, 1, 1, 1) \
    X(lq_pa_128_e4m3_many_tight, 128, 128, LQ_PA_E4M3, 8, 1, 1, 1)
#define LQ_PA_KERNELS(X) LQ_PA_SMALL(X) LQ_PA_LARGE(X) LQ_PA_TIGHT(X)

// Shared memory: K and V of a tile of 64 positions as bf16, 16 bytes behind each row so that
// ldmatrix finds eight of them in different banks: one in each place, or one and codes in each
// place, with the scales of I8; then Q; then scores on their way between warps.
#define LQ_PA_PITCH(d) ((d) * 2 + 16)
#define LQ_PA_TILE(dk, dv) (64 * (LQ_PA_PITCH(dk) + ((dk) == (dv) ? LQ_PA_PITCH(dv) : 0)))
#define LQ_PA_CODES(dk, dv, type) \
    ((type) == LQ_PA_BF16 ? 0 : 64 * ((dk) + ((dk) == (dv) ? (dv) : 0)) + ((type) == LQ_PA_I8 ? 512 : 0))
#define LQ_PA_Q_AT(dk, dv, type, places) \
    (((type) == LQ_PA_BF16 ? (places) : 1) * LQ_PA_TILE(dk, dv) + (places) * LQ_PA_CODES(dk, dv, type))
#define LQ_PA_SCORES_AT(dk, dv, type, wm, places) (LQ_PA_Q_AT(dk, dv, type, places) + 16 * (wm) * LQ_PA_PITCH(dk))
#define LQ_PA_SHARED(dk, dv, type, wm, wc, places) \
    (LQ_PA_SCORES_AT(dk, dv, type, wm, places) + ((wc) > 1 ? (wm) * 4096 : 0))
#define LQ_PA_ITEM(dv, wm, wc) (32 * (wm) * (wc) * 4 + 16 * (wm) * (dv)) // floats of a split's result

typedef struct lq_pa_kernel {
    int dk, dv;
    lq_pa_type type;
    int rows, threads, shared, item;
    bool many, latent; // latent: V is in K
} lq_pa_kernel;
enum {
#define LQ_PA_ID(name, dk, dv, type, wm, wc, blocks, places) name##_id,
    LQ_PA_KERNELS(LQ_PA_ID)
#undef LQ_PA_ID
    LQ_PA_COUNT,
    LQ_PA_COUNTERS = 1 << 12,  // blocks x whose splits may be apart
    LQ_PA_WORK = 256 << 20     // most bytes of their results
};

static inline lq_pa_kernel lq_pa_kernel_of(int id) {
    static const lq_pa_kernel kernels[] = {
#define LQ_PA_ROW(name, dk, dv, type, wm, wc, blocks, places)                                                   \
    {dk, dv, type, 16 * (wm), 32 * (wm) * (wc), LQ_PA_SHARED(dk, dv, type, wm, wc, places), LQ_PA_ITEM(dv, wm, wc), \
     (wm) > 2 || ((wm) == 2 && (dk) == (dv)), (dk) != (dv)},
        LQ_PA_KERNELS(LQ_PA_ROW)
#undef LQ_PA_ROW
    };
    return kernels[id];
}

// The narrowest kernel of a kind that such a cache fits, in `shared` bytes of a block; -1: none.
static inline int lq_pa_pick(const lq_cache *c, bool many, int shared) {
    const lq_pa_type type = c->type == LQ_I8 ? LQ_PA_I8 : c->type == LQ_E4M3 ? LQ_PA_E4M3 : LQ_PA_BF16;
    for (int id = 0; id < LQ_PA_COUNT; id++) {
        const lq_pa_kernel k = lq_pa_kernel_of(id);
        if (k.type == type && k.many == many && k.latent == c->v_in_k && c->dk <= k.dk && c->dv <= k.dv &&
            k.shared <= shared)
            return id;
    }
    return -1;
}

static inline bool lq_pa_aligned(const void *p, size_t stride_bytes) {
    return ((uintptr_t)p | stride_bytes) % 16 == 0;
}

// Whether these kernels can: never by the number of rows. shared: what a block of this GPU may have.
static inline bool lq_pa_fits(const lq_attn_args *a, int shared) {
    const lq_cache *c = &a->cache;
    const int each = c->type == LQ_BF16 ? 2 : 1, step = 16 / each;
    if (c->type != LQ_BF16 && c->type != LQ_I8 && c->type != LQ_E4M3) return false;
    if (c->dk % step || c->dv % step || c->dk < 16 || c->dv < 16) return false;
    if (c->page != 16 && c->page != 32 && c->page != 64) return false;
    if (c->kv_heads < 1 || a->heads % c->kv_heads || !(a->scale > 0)) return false;
    if (a->q.type != LQ_BF16 || a->y.type != LQ_BF16) return false;
    if (!lq_pa_aligned(a->q.p, a->q.stride * 2) || !lq_pa_aligned(a->y.p, a->y.stride * 2)) return false;
    if (!lq_pa_aligned(c->data, c->block_stride) || (c->type == LQ_I8 && !lq_pa_aligned(c->scale, 0))) return false;
    return lq_pa_pick(c, false, shared) >= 0;
}

static inline int lq_pa_splits(int max_at) { return max_at / LQ_SPLIT + 1; }

// Blocks x that may have their splits apart: more of them keep a GPU busy as they are.
static inline size_t lq_pa_most_apart(int sms) { return 4 * (size_t)sms; }

// Bytes of workspace, zero at first, for these limits on a GPU of so many multiprocessors. With less splits are walked.
static inline size_t lq_pa_workspace(const lq_dev_limits *l, int sms) {
    const size_t rows = (size_t)l->rows * (size_t)l->heads, most = lq_pa_most_apart(sms);
    const size_t width = (size_t)(l->dv + 63) / 64 * 64 + 32, item = (l->dv > 256 ? 32 : 16) * width * sizeof(float);
    const size_t results = (rows < most ? rows : most) * (size_t)lq_pa_splits(l->max_at) * item;
    return LQ_PA_COUNTERS * sizeof(uint32_t) + (results < LQ_PA_WORK ? results : (size_t)LQ_PA_WORK);
}

typedef struct lq_pa_launch { int id; unsigned x, y; lq_pa_args args; } lq_pa_launch;

// Most tiles of `rows` M rows that sequences can have: each leaves at most one that is not full.
static inline size_t lq_pa_tiles(int n, int seqs, int group, int rows) {
    const size_t full = (size_t)n * (size_t)group / (size_t)rows + (size_t)seqs;
    const size_t each = (size_t)n * (size_t)((group + rows - 1) / rows);
    return full < each ? full : each;
}

static inline lq_pa_launch lq_pa_launch_of(const lq_attn_args *a, const lq_rows *r, int id) {
    lq_pa_launch l = {id, 1, 1, {*a, *r, 1, INT32_MAX, true, NULL, NULL}};
    l.args.a.rows = NULL;
    const size_t tiles = lq_pa_tiles(r->n, r->seqs, a->heads / a->cache.kv_heads, lq_pa_kernel_of(id).rows);
    l.x = (unsigned)(tiles * (size_t)a->cache.kv_heads);
    return l;
}

// How a call is launched: returns how many of `out` there are. By bounds alone (rows, sequences, heads, max_at), so
// that a recording stays true; blocks for which there is nothing leave at once. sms: multiprocessors of the GPU.
static inline int lq_pa_plan(const lq_attn_args *a, const lq_rows *r, void *work, size_t bytes, int shared, int sms,
                             lq_pa_launch out[2]) {
    const int group = a->heads / a->cache.kv_heads, narrow = lq_pa_pick(&a->cache, false, shared);
    const int wide = lq_pa_pick(&a->cache, true, shared), splits = lq_pa_splits(a->max_at);
    const lq_pa_kernel k = lq_pa_kernel_of(narrow);
    const bool many = wide >= 0 && (int64_t)r->n * group > (int64_t)64 * r->seqs;
    int count = 0;
    if (many) {
        out[0] = lq_pa_launch_of(a, r, wide);
        if (r->seqs == 1) return 1;
        out[0].args.least = k.rows + 1;
        count = 1;
    }
    lq_pa_launch *few = &out[count++];
    *few = lq_pa_launch_of(a, r, narrow);
    if (many) {
        few->args.most = k.rows;
        few->args.blank = false;
        few->x = (unsigned)r->seqs * (unsigned)a->cache.kv_heads;
    }
    const size_t counters = LQ_PA_COUNTERS * sizeof(uint32_t), room = bytes > counters ? bytes - counters : 0;
    if (splits > 1 && few->x < lq_pa_most_apart(sms) && few->x <= LQ_PA_COUNTERS &&
        (size_t)few->x * (size_t)splits * (size_t)k.item * sizeof(float) <= room) {
        few->y = (unsigned)splits;
        few->args.arrived = (uint32_t *)work;
        few->args.parts = (float *)((char *)work + counters);
    }
    return count;
}
#endif
