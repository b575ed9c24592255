// plain_avx2.c: what plain_vec.h has with AVX2 and FMA, and the same sums for LQ_MANY_ROWS rows and more. Owns nothing.
//
// many: a part of a cut of a tile stays in the first cache for a band of rows, which lie packed in the second. A block
// is a tile x up to HIGH rows. Sums wait in scratch until their cut is over.
#include "kernels/cpu/x86/plain_vec.h"

enum { PART_BYTES = 16 * 1024 /* of a tile */, PART = PART_BYTES / TILE / 2 /* k at most */,
       BLOCKS = 16 /* of a band */, LEAST = 4 /* rows of a block, of LQ_MANY_ROWS and more */ };
_Static_assert(CUT % PART == 0, "a part lies in a cut");

typedef struct part_work {
    float x[BLOCKS][HIGH][PART];
    vf sum[LQ_MANY_TURN][BLOCKS][HIGH][PARTS];
} part_work;
_Static_assert(sizeof(part_work) <= LQ_MANY_BYTES, "what ukr.h says");

typedef struct part { // k up to `end`, of tiles from t0 on
    const area *a;
    int64_t t0, k, end;
    part_work *work;
} part;

// Tile t x block b, M rows from m on.
INLINE void part_block(const part *p, int64_t t, int b, int m, ahead next, const int M, const lq_dtype e) {
    const area *a = p->a;
    const bool begins = p->k % CUT == 0, ends = p->end % CUT == 0 || p->end == a->k;
    vf (*sum)[PARTS] = p->work->sum[t - p->t0][b];
    EACH (int i = 0; i < SWEEPS; i++) {
        vf s[TALL][WIDE][PARTS];
        EACH (int r = 0; r < M; r++)
            EACH (int j = 0; j < PARTS / SWEEPS; j++)
                s[r][0][j] = begins ? vf_zero() : sum[r][part_of(i, j, SWEEPS, e)];
        sweep(s, weights_at(a, t, p->k, e), 0, p->work->x[b][0], PART, p->end - p->k, &next, i ? NOTHING : BEHIND, i,
              SWEEPS, M, 1, e);
        EACH (int r = 0; r < M; r++)
            EACH (int j = 0; j < PARTS / SWEEPS; j++) sum[r][part_of(i, j, SWEEPS, e)] = s[r][0][j];
    }
    for (int r = 0; ends && r < M; r++) join(a, t, m + r, p->k >= CUT || a->more, sum[r], e);
}

typedef void part_fn(const part *p, int64_t t, int b, int m, ahead next);
#define PART_FN(M, E)                                                             \
    static void part_##E##M(const part *p, int64_t t, int b, int m, ahead next) { \
        part_block(p, t, b, m, next, M, LQ_##E);                                  \
    }
#define PART_FNS(E, NAMED)                    \
    PART_FN(4, E) PART_FN(5, E) PART_FN(6, E) \
    static part_fn *const NAMED[] = {part_##E##4, part_##E##5, part_##E##6};
PART_FNS(F32, f32_parts) PART_FNS(F16, f16_parts) PART_FNS(BF16, bf16_parts)

// Block b's share of the part of the tile behind t, or of what lies behind this part of the first one (behind the last
// part of K that is a line or two that are here already: what comes then is another band's or turn's).
INLINE ahead share_of(const part *p, int64_t t, int64_t t1, int b, int blocks, const lq_dtype e) {
    const bool last = t + 1 == t1;
    const char *w = weights_at(p->a, last ? p->t0 : t + 1, last ? p->end : p->k, e);
    const size_t step = (2 * TILE * size_of(e) + (size_t)blocks - 1) / (size_t)blocks; // of two k
    return (ahead){w + (size_t)b * step * (size_t)(p->end - p->k) / 2, step};
}

// Each of the tiles up to t1 asks for some lines of x of the part behind this one, of M rows from m on.
INLINE void x_ask(const part *p, int64_t t, int64_t t1, int m, int M) {
    const size_t begin = (size_t)(t - p->t0) * LINE, step = (size_t)(t1 - p->t0) * LINE;
    const size_t bytes = (size_t)(p->end - p->k) * 4;
    for (int r = 0; r < M; r++) {
        const char *x = (const char *)(p->a->x + (size_t)(m + r) * p->a->x_row + p->end);
        for (size_t at = begin; at < bytes; at += step) _mm_prefetch(x + at, _MM_HINT_T1);
    }
}

// Tiles up to t1 x a band of rows.
INLINE void band_run(const part *p, int64_t t1, int m0, int m1, part_fn *const *fns, const lq_dtype e) {
    const int blocks = (m1 - m0 + HIGH - 1) / HIGH;
    for (int64_t t = p->t0; t < t1; t++)
        for (int b = 0, m = m0, rows; b < blocks; b++, m += rows) {
            rows = (m1 - m + blocks - b - 1) / (blocks - b);
            for (int r = 0; t == p->t0 && r < rows; r++)
                memcpy(p->work->x[b][r], p->a->x + (size_t)(m + r) * p->a->x_row + p->k, (size_t)(p->end - p->k) * 4);
            x_ask(p, t, t1, m, rows);
            fns[rows - LEAST](p, t, b, m, share_of(p, t, t1, b, blocks, e));
        }
}

INLINE void bands_run(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1, float *y,
                      size_t ldy, void *scratch, part_fn *const *fns, const lq_dtype e) {
    const area a = area_of(w, act, y, ldy);
    const int bands = (m1 - m0 + BLOCKS * HIGH - 1) / (BLOCKS * HIGH);
    const int64_t most = PART_BYTES / TILE / (int64_t)size_of(e);
    part p = {.a = &a, .work = scratch};
    for (int64_t to; t0 < t1; t0 = to) {
        p.t0 = t0;
        to = cut_end(t0, t1, LQ_MANY_TURN);
        for (int b = 0, m = m0, rows; b < bands; b++, m += rows) {
            rows = (m1 - m + bands - b - 1) / (bands - b);
            for (p.k = 0; p.k < a.k; p.k = p.end) {
                p.end = cut_end(p.k, a.k, most);
                band_run(&p, to, m, m + rows, fns, e);
            }
        }
    }
}

#define MANY_UKR(OF, E)                                                                                               \
    void NAME(lq_many_f32_f32_##OF##x86)(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, \
                                         float *y, size_t ldy, void *scratch) {                                       \
        bands_run(w, a, t0, t1, m0, m1, y, ldy, scratch, OF##_parts, LQ_##E);                                         \
    }
MANY_UKR(f32, F32) MANY_UKR(f16, F16) MANY_UKR(bf16, BF16)
