// bytes_avx2.h: the products of int_avx2.h, which is included first, of codes that lie in planes for LQ_MANY_ROWS rows
// and more: a tile's codes are unpacked to bytes in scratch, once for all rows instead of for each four.
#ifndef LQ_BYTES_AVX2_H
#define LQ_BYTES_AVX2_H

enum { TILES = 8 /* at once */, LEAST = 3 /* rows of a block */ };

// Codes of tile t, with what fills its last cell, as they lie of 8 bits.
static void tile_unpack(const lq_weight *w, int64_t t, int64_t wide, uint8_t *to) {
    const int64_t unit = lq_x86_group(&w->type), tile = (w->k + unit - 1) / unit * unit * 2 * BITS;
    const __m256i none = _mm256_setzero_si256();
    const uint8_t *q = (const uint8_t *)w->q + t * tile;
    for (int64_t k = 0; k < wide; k += 32, q += 64 * BITS) {
        lines_ask(q + AHEAD, 64 * BITS, false);
        for (int f = 0; f < 8; f++, to += 64)
            EACH (int h = 0; h < 2; h++)
                _mm256_storeu_si256((__m256i *)(void *)(to + 32 * h), codes4(q + 32 * h, f, none, BITS));
    }
}

#define BYTES_FN(NAME, ...) FN(NAME, 3, 2, 8, __VA_ARGS__) FN(NAME, 4, 2, 8, __VA_ARGS__)
BYTES_FN(bytes_any, false, 0) BYTES_FN(bytes_32_, false, 32) BYTES_FN(bytes_whole, true, 0)
static block_fn *const bytes_fns[3][2] = {{bytes_any3, bytes_any4}, {bytes_32_3, bytes_32_4},
                                          {bytes_whole3, bytes_whole4}};

// Rows that are too wide for scratch go the way of few.
static void bytes_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                      uint8_t *scratch, lq_ukr_run *few) {
    const int64_t G = (int64_t)a->q_row, wide = (w->k + G - 1) / G * G, tile = wide * LQ_X86_ROWS;
    const int64_t fit = LQ_MANY_BYTES / tile < TILES ? LQ_MANY_BYTES / tile : TILES;
    const int blocks = (m1 - m0 + TALL - 1) / TALL;
    block_fn *const *fns = bytes_fns[a->zero || lq_i8_span(w, a) > G ? 2 : G == 32];
    if (!fit) {
        few(w, a, t0, t1, m0, m1, y, ldy);
        return;
    }
    for (int64_t t = t0, end; t < t1; t = end) {
        end = t1 - t < fit ? t1 : t + fit;
        for (int64_t i = t; i < end; i++) tile_unpack(w, i, wide, scratch + (i - t) * tile);
        for (int b = 0, m = m0, rows; b < blocks; b++, m += rows) {
            rows = (m1 - m + blocks - b - 1) / (blocks - b);
            for (int64_t i = t; i < end; i++)
                fns[rows - LEAST](w, a, i, 0, m, false, scratch + (i - t) * tile, y, ldy);
        }
    }
}

#define BYTES_UKR(OF)                                                                                               \
    lq_ukr_many lq_many_f32_q8_##OF##x86_avx2;                                                                      \
    void lq_many_f32_q8_##OF##x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, \
                                       float *y, size_t ldy, void *scratch) {                                       \
        bytes_run(w, a, t0, t1, m0, m1, y, ldy, scratch, lq_matmul_f32_q8_##OF##x86_avx2);                          \
    }
#endif
