// bf16x86_avx512bf16.c: bf16 activations x bf16 weights in layout x86 with vdpbf16ps. Owns nothing.
//
// A vector of a tile has two k of each of its 16 rows, and meets these two of a row of activations, broadcast: one
// contiguous stream of weights, no lanes to be added, and as many sums as there are registers.
//
// Order of sums, the same at every M: k is cut at multiples of CUT; in a cut the pairs of k that are even, counted from
// 0, are added in order, the odd ones likewise, then both; cuts are added in order. In a pair k + 1 is before k, as the
// instruction has it. Products are exact in f32, each sum is rounded once; numbers and sums below 2^-126 are 0 to it.
//
// thin: 1 to 12 rows x one tile, as it comes from memory, even and odd pairs beside each other.
// block: 6 rows x two tiles, of which a cut stays in the second cache, with two more; what comes next is asked for into
// that on the way.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/couples.h"

enum { TILE = LQ_X86_ROWS, ASKING = 4 /* rows: fewer leave the machine time to look ahead itself */ };

typedef struct area { // of one call
    const char *w;
    const uint16_t *x;
    size_t tile, x_row; // bytes of a tile, columns of x's rows
    int64_t n, k;
    float *y;
    size_t ldy;
} area;

INLINE float *sums_at(const area *a, int64_t t, int m) { return a->y + (size_t)m * a->ldy + (size_t)t * TILE; }

// A cut's sums join those of the cuts before.
INLINE void join(const area *a, int64_t t, int m, vm some, int64_t k, __m512 even, __m512 odd) {
    float *y = sums_at(a, t, m);
    const __m512 sum = vf_add(even, odd);
    vf_store_m(some, y, k ? vf_add(vf_load_m(some, y), sum) : sum);
}

// A pair of k, at w and x, against M rows.
INLINE void pair_add(const area *a, __m512 s[TALL], const char *w, const uint16_t *x, const int M) {
    const __m512i v = _mm512_loadu_si512(w);
    EACH (int m = 0; m < M; m++) s[m] = dot2(s[m], v, couple_of(x + (size_t)m * a->x_row));
}

INLINE void thin(const area *a, int64_t t, int m, int64_t k0, int64_t k1, const bool passing, const int M) {
    const vm some = columns(a->n, t * TILE);
    const char *w = a->w + (size_t)t * a->tile + (size_t)k0 / 2 * LINE;
    for (int64_t k = k0, i = k0; k < k1; k += CUT) {
        const int64_t end = cut_end(k, k1, CUT);
        __m512 even[TALL], odd[TALL];
        const uint16_t *x = a->x + (size_t)m * a->x_row + k;
        EACH (int r = 0; r < M; r++) even[r] = odd[r] = vf_zero();
        for (; i + 4 <= end; i += 4, w += 2 * LINE, x += 4) {
            if (M >= ASKING) line_ask(w, passing), line_ask(w + LINE, passing);
            pair_add(a, even, w, x, M);
            pair_add(a, odd, w + LINE, x + 2, M);
        }
        if (i < end) pair_add(a, even, w, x, M);
        if (i + 2 < end) pair_add(a, odd, w + LINE, x + 2, M);
        EACH (int r = 0; r < M; r++) join(a, t, m + r, some, k, even[r], odd[r]);
    }
}

typedef void thin_fn(const area *a, int64_t t, int m, int64_t k0, int64_t k1);
#define THIN(NAME, M, PASSING)                                                                                        \
    static void NAME##M(const area *a, int64_t t, int m, int64_t k0, int64_t k1) {                                    \
        thin(a, t, m, k0, k1, PASSING, M);                                                                            \
    }
TO_12(THIN, pass, true) TO_12(THIN, stay, false)
static thin_fn *const thins[2][TALL] = {{TO_12(NAME_OF, stay, )}, {TO_12(NAME_OF, pass, )}};

static void block(const area *a, int64_t t, int m, int64_t k, int64_t end, ahead *next) {
    __m512 even[HIGH][SIDES], odd[HIGH][SIDES];
    couples_dot(a->w + (size_t)t * a->tile + (size_t)k / 2 * LINE, a->tile, a->x + (size_t)m * a->x_row + k, a->x_row,
                (end - k) / 4, even, odd, next, SIDES);
    EACH (int r = 0; r < HIGH; r++)
        EACH (int i = 0; i < SIDES; i++)
            join(a, t + i, m + r, columns(a->n, (t + i) * TILE), k, even[r][i], odd[r][i]);
}

lq_ukr_run lq_matmul_f32_bf16_bf16x86_avx512bf16; // named in ukr.c
void lq_matmul_f32_bf16_bf16x86_avx512bf16(const lq_weight *w, const lq_act *act, int64_t t0, int64_t t1, int m0,
                                           int m1, float *y, size_t ldy) {
    const int first = first_part(m1 - m0, TALL, HIGH);
    const int blocks = (m1 - m0 - first) / HIGH;
    const area a = {.w = w->q, .x = act->q, .tile = lq_x86_row(&w->type, w->k) * TILE, .x_row = act->q_row, .n = w->n,
                    .k = w->k, .y = y, .ldy = ldy};
    const packed all = {.w = a.w, .tile = a.tile, .column = LINE / 2, .tiles = (a.n + TILE - 1) / TILE, .k = a.k,
                        .cut = CUT, .pass = WIDE, .wide = WIDE, .steps = 1, .blocks = blocks};
    thin_fn *const *by = thins[!blocks && is_zen5()];
    if (!blocks) {
        for (int64_t t = t0; t < t1; t++) by[first - 1](&a, t, m0, 0, a.k);
        return;
    }
    for (int64_t from = t0, to; from < t1; from = to) {
        to = t1 - from < WIDE ? t1 : from + WIDE;
        for (int64_t k = 0, end; k < a.k; k = end) {
            end = cut_end(k, a.k, CUT);
            for (int64_t t = from; t < to; t++) by[first - 1](&a, t, m0, k, end);
            for (int b = 0, m = m0 + first; b < blocks; b++, m += HIGH) {
                if (to - from < WIDE || end % 4) {
                    for (int64_t t = from; t < to; t++) by[HIGH - 1](&a, t, m, k, end);
                    continue;
                }
                ahead next = ahead_of(&all, from, k, b);
                for (int64_t t = from; t < to; t += SIDES) block(&a, t, m, k, end, &next);
            }
        }
    }
}
