// plain_vec.h: f32 activations x f32, f16 or bf16 weights in layout x86 for the ISA this is compiled for. Owns nothing.
//
// 4 bytes of each of a tile's 16 rows lie beside each other: one contiguous stream of weights, which meets activations
// that are broadcast, and as many sums as there are registers.
//
// Order of sums, the same at every M and on every ISA: k is cut at multiples of CUT; in a cut the even k are added in
// order by fma, from 0, the odd ones likewise, then both; cuts are added in order.
//
// thin: up to TALL rows x one tile, as it comes from memory.
// block: HIGH rows x WIDE tiles, of which a cut is in the second cache (AVX2: of LQ_MANY_ROWS rows and more,
// plain_avx2.c).
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/packed.h"

#define walk NAME(walk_packed)

enum { TILE = LQ_X86_ROWS, CUT = LQ_K_CUT, PARTS = 2 * TILE / VEC /* vectors of two k of a tile */,
       PASS_BYTES = 256 * 1024 /* of a cut of tiles that stay in the second cache */ };
#if defined(__AVX512F__)
enum { WIDE = 4, TALL = 12, ONCE = TALL, KINDS = 2 };
#else
enum { WIDE = 1, TALL = 6, ONCE = 2 /* rows whose sums are there at once */, KINDS = 1 };
#endif
enum { HIGH = 6, SWEEPS = 2 /* over a cut, where they are not */ };

typedef struct area { // of one call
    const char *w;
    const float *x;
    size_t tile, x_row; // bytes of a tile, columns of x's rows
    int64_t n, k;
    float *y;
    size_t ldy;
    bool more;          // y has the sums of columns before them
} area;

INLINE size_t size_of(const lq_dtype e) { return e == LQ_F32 ? 4 : 2; }

INLINE const char *weights_at(const area *a, int64_t t, int64_t k, const lq_dtype e) {
    return a->w + (size_t)t * a->tile + (size_t)k * TILE * size_of(e);
}

// Part i of two k of a tile. f32 and bf16: the first k of VEC rows, the second, then of the rows behind them. f16: both
// k of a row beside each other.
INLINE vf weights(const char *w, const int i, const lq_dtype e) {
    const size_t half = (size_t)(i / 2) * VEC * 4;
    if (e == LQ_F16) return vf_of_f16(w + i * VEC * 2);
    if (e == LQ_F32) return vf_load((const float *)(const void *)(w + (size_t)(i % 2) * LINE + half));
    return vf_of_couple(w + half, i % 2);
}

// The activations that it meets.
INLINE vf activations(const float *x, const int i, const lq_dtype e) {
    return e == LQ_F16 ? vf_set_two(x) : vf_set(x[i % 2]);
}

// Part number j of sweep p of so many over a cut: such as meet the same activations.
INLINE int part_of(const int p, const int j, const int sweeps, const lq_dtype e) {
    return sweeps == 1 ? j : e == LQ_F16 ? p * PARTS / 2 + j : 2 * j + p;
}

// The sums of VEC rows.
INLINE vf whole(const vf s[2], const lq_dtype e) {
    return e == LQ_F16 ? vf_add(vf_evens(s[0], s[1]), vf_odds(s[0], s[1])) : vf_add(s[0], s[1]);
}

// A cut's sums of a row and a tile join those of the cuts before.
INLINE void join(const area *a, int64_t t, int m, bool more, const vf s[PARTS], const lq_dtype e) {
    EACH (int i = 0; i < PARTS; i += 2) {
        const int64_t n = t * TILE + i / 2 * VEC;
        float *y = a->y + (size_t)m * a->ldy + (size_t)n;
        const vf sum = whole(s + i, e);
        if (n + VEC <= a->n) { // what masks do takes AVX2 longer
            vf_store(y, more ? vf_add(vf_load(y), sum) : sum);
            continue;
        }
        const vm some = columns(a->n, n);
        vf_store_m(some, y, more ? vf_add(vf_load_m(some, y), sum) : sum);
    }
}

// Two k, at w and x, of N tiles x M rows.
INLINE void step(vf s[TALL][WIDE][PARTS], const char *w, size_t tile, const float *x, size_t x_row, const int p,
                 const int sweeps, const int M, const int N, const lq_dtype e) {
    vf v[WIDE][PARTS];
    EACH (int j = 0; j < N; j++)
        EACH (int i = 0; i < PARTS / sweeps; i++)
            v[j][i] = weights(w + (size_t)j * tile, part_of(p, i, sweeps, e), e);
    const float *from = x; // of three rows: what is added for a fourth would lie in memory
    EACH (int r = 0; r < M; r++) {
        if (r && r % 3 == 0) {
            from += 3 * x_row;
            __asm__("" : "+r"(from));
        }
        EACH (int i = 0; i < PARTS / sweeps; i++) {
            const vf u = activations(from + (size_t)(r % 3) * x_row, part_of(p, i, sweeps, e), e);
            EACH (int j = 0; j < N; j++) s[r][j][i] = vf_fma(v[j][i], u, s[r][j][i]);
        }
    }
}

// What a sweep asks for: its own lines twice, of tiles that come again or pass by once, what is behind it, or nothing.
typedef enum asks { STAYING, PASSING, BEHIND, NOTHING } asks;

// One over so many k.
INLINE void sweep(vf s[TALL][WIDE][PARTS], const char *w, size_t tile, const float *x, size_t x_row, int64_t len,
                  ahead *next, const asks how, const int p, const int sweeps, const int M, const int N,
                  const lq_dtype e) {
    const size_t bytes = 2 * TILE * size_of(e);
    ROLLED for (int64_t n = len / 2; n > 0; n--, w += bytes, x += 2) {
        if (how == BEHIND) ahead_ask(next);
        else EACH (size_t line = 0; how != NOTHING && line < bytes; line += LINE) line_ask(w + line, how == PASSING);
        step(s, w, tile, x, x_row, p, sweeps, M, N, e);
    }
    if (len % 2) { // nothing behind the last k is read
        _Alignas(64) char lines[WIDE][2 * LINE] = {{0}};
        float two[TALL][2] = {{0}};
        EACH (int j = 0; j < N; j++) memcpy(lines[j], w + (size_t)j * tile, LINE);
        EACH (int r = 0; r < M; r++) two[r][0] = x[(size_t)r * x_row];
        step(s, lines[0], sizeof lines[0], two[0], 2, p, sweeps, M, N, e);
    }
}

// A cut of N tiles x M rows.
INLINE void cut_add(const area *a, int64_t t, int m, int64_t k, int64_t end, ahead next, const asks how,
                    const int sweeps, const int M, const int N, const lq_dtype e) {
    vf all[TALL][WIDE][PARTS];
    EACH (int p = 0; p < sweeps; p++) {
        const float *x = a->x + (size_t)m * a->x_row + k;
        vf s[TALL][WIDE][PARTS];
        EACH (int r = 0; r < M; r++)
            EACH (int j = 0; j < N; j++) EACH (int i = 0; i < PARTS / sweeps; i++) s[r][j][i] = vf_zero();
        sweep(s, weights_at(a, t, k, e), a->tile, x, a->x_row, end - k, &next, how, p, sweeps, M, N, e);
        EACH (int r = 0; r < M; r++)
            EACH (int j = 0; j < N; j++)
                EACH (int i = 0; i < PARTS / sweeps; i++) all[r][j][part_of(p, i, sweeps, e)] = s[r][j][i];
    }
    EACH (int r = 0; r < M; r++) EACH (int j = 0; j < N; j++) join(a, t + j, m + r, k || a->more, all[r][j], e);
}

typedef void cut_fn(const area *a, int64_t t, int m, int64_t k, int64_t end, ahead next);
typedef struct cut_fns { cut_fn *thin[KINDS][TALL], *block; } cut_fns; // staying, and passing, by rows
#define THIN(KIND, M, E, HOW)                                                                                         \
    static void NAME(KIND##M)(const area *a, int64_t t, int m, int64_t k, int64_t end, ahead next) {                  \
        cut_add(a, t, m, k, end, next, M <= ONCE ? HOW : BEHIND, M <= ONCE ? 1 : SWEEPS, M, 1, LQ_##E);               \
    }
#define THIN_NAME(KIND, M, ...) NAME(KIND##M),
#define BLOCK(E)                                                                                                      \
    static void NAME(block_##E)(const area *a, int64_t t, int m, int64_t k, int64_t end, ahead next) {                \
        cut_add(a, t, m, k, end, next, BEHIND, SWEEPS, HIGH, WIDE, LQ_##E);                                           \
    }
#if defined(__AVX512F__)
#define TO_TALL TO_12
#define PASS_FNS(E) TO_12(THIN, pass_##E##_, E, PASSING)
#define PASS_NAMES(E) , {TO_12(THIN_NAME, pass_##E##_, )}
#else
#define TO_TALL TO_6
#define PASS_FNS(E)
#define PASS_NAMES(E)
#endif
#define FNS(E, NAMED)                                                                                                 \
    TO_TALL(THIN, stay_##E##_, E, STAYING) PASS_FNS(E) BLOCK(E)                                                       \
    static const cut_fns NAMED = {{{TO_TALL(THIN_NAME, stay_##E##_, )} PASS_NAMES(E)}, NAME(block_##E)};
FNS(F32, f32_fns) FNS(F16, f16_fns) FNS(BF16, bf16_fns)

INLINE area area_of(const lq_weight *w, const lq_act *act, float *y, size_t ldy) {
    return (area){.w = w->q, .x = act->x.p, .tile = lq_x86_row(&w->type, w->k) * TILE, .x_row = act->x.stride,
                  .n = w->n, .k = w->k, .y = y, .ldy = ldy, .more = act->more};
}

static void walk(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                 const cut_fns *fns) {
    const area a = area_of(w, act, y, ldy);
    const int first = first_part(m1 - m0, TALL, HIGH), blocks = (m1 - m0 - first) / HIGH;
    const size_t column = TILE * lq_dtype_size(w->type.elem);
    packed all = {.w = a.w, .tile = a.tile, .column = column, .tiles = (a.n + TILE - 1) / TILE, .k = a.k, .cut = CUT,
                  .pass = 1, .wide = 1, .steps = SWEEPS, .blocks = 1};
#if defined(__AVX512F__)
    cut_fn *const thin = fns->thin[!blocks && is_zen5()][first - 1];
#else
    cut_fn *const thin = fns->thin[0][first - 1];
#endif
    if (!blocks) {
        for (int64_t t = t0; t < t1; t++)
            for (int64_t k = 0; k < a.k; k += CUT)
                thin(&a, t, m0, k, cut_end(k, a.k, CUT), first > ONCE ? ahead_of(&all, t, k, 0) : (ahead){a.w, 0});
        return;
    }
    all.pass = (int64_t)(PASS_BYTES / column / CUT);
    all.wide = WIDE;
    all.blocks = blocks;
    for (int64_t from = t0, to; from < t1; from = to) {
        to = t1 - from < all.pass ? t1 : from + all.pass;
        for (int64_t k = 0, end; k < a.k; k = end) {
            end = cut_end(k, a.k, CUT);
            for (int64_t t = from; t < to; t++) thin(&a, t, m0, k, end, (ahead){a.w, 0});
            for (int b = 0, m = m0 + first; b < blocks; b++, m += HIGH) {
                int64_t t = from;
                for (; t + WIDE <= to; t += WIDE) fns->block(&a, t, m, k, end, ahead_of(&all, t, k, b));
                for (; t < to; t++) fns->thin[0][HIGH - 1](&a, t, m, k, end, (ahead){a.w, 0});
            }
        }
    }
}

#define PLAIN_UKR(OF, FNS_OF)                                                                                         \
    void NAME(lq_matmul_f32_f32_##OF)(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,    \
                                      float *y, size_t ldy) {                                                         \
        walk(w, a, t0, t1, m0, m1, y, ldy, &FNS_OF);                                                                  \
    }
PLAIN_UKR(f32x86, f32_fns) PLAIN_UKR(f16x86, f16_fns) PLAIN_UKR(bf16x86, bf16_fns)
