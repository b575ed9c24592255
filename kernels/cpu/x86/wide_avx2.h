// wide_avx2.h: Q8 activations x codes of 8 bits, or those of a codebook, in layout x86 with AVX2, for LQ_MANY_ROWS rows
// and more; fewer are int_avx2.h's, which is included first. The bits are its bits.
//
// In 16 bits the halves of such a code would have to be multiplied apart. Here both sides are widened to int16 instead,
// whose products vpmaddwd adds in pairs, exactly, in 32 bits: a part of K of a band of rows of activations, and of a
// tile of weights less their zero points, a panel that stays in the first cache. A block is a tile x up to 6 rows.
#ifndef LQ_WIDE_AVX2_H
#define LQ_WIDE_AVX2_H

enum { WIDE_ROWS = 6, WIDE_BAND = 96, PART = 512 /* k, or one span */, PART_MOST = 2048 };

typedef struct wide {
    const lq_weight *w;
    const lq_act *a;
    int G, groups, span;    // k of a cell; cells in all, of a span
    int g0, g1;             // cells of this part
    float *y;
    size_t ldy;
    int16_t *x;             // of each block [k / 16][row][16]: of 4 k 0, 2, 1, 3
    int16_t *panel;         // [k / 4][16 rows, k 0 and 2, then 1 and 3]
    float *scale;           // of each cell's 16 rows; of all of them
} wide;
enum { WIDE_CELLS = PART_MOST / 16 };
_Static_assert((WIDE_BAND + LQ_X86_ROWS) * PART_MOST * 2 + WIDE_CELLS * LQ_X86_ROWS * 4 <= LQ_MANY_BYTES,
               "what ukr.h says");

// A block of M rows.
static void x_widen(const wide *p, int m0, int M, int16_t *to) {
    const __m128i pairs = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    const int G = p->G;
    for (int g = p->g0; g < p->g1; g++, to += G * M)
        for (int m = 0; m < M; m++) {
            const size_t cell = (size_t)g * (size_t)p->a->x.rows + (size_t)(m0 + m);
            const int8_t *x = (const int8_t *)p->a->q + cell * (size_t)G;
            for (int k = 0; k < G; k += 16) {
                const __m128i v = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(x + k)), pairs);
                _mm256_storeu_si256((__m256i *)(void *)(to + k * M + m * 16), _mm256_cvtepi8_epi16(v));
            }
        }
}

INLINE __m256i load32(const void *q) { return _mm256_loadu_si256((const __m256i *)q); }
INLINE void store32(void *q, __m256i v) { _mm256_storeu_si256((__m256i *)q, v); }

// 4 k of half a tile, from bytes with a sign.
INLINE void pairs_store(int16_t *to, __m256i v) {
    store32(to, _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    store32(to + 32, _mm256_srai_epi16(v, 8));
}

// q: the codes of this part of the tile whose first cell this is. What comes next is asked for.
static void panel_make(const wide *p, const uint8_t *q, const uint8_t *next, size_t cell) {
    const lq_weight *w = p->w;
    const lq_codebook *named = TABLE ? lq_wtype_book(&w->type) : NULL;
    const bool grouped = w->type.group;
    const size_t size = lq_dtype_size(w->type.scale);
    const uint8_t *ws = (const uint8_t *)w->scale + cell * size, *wz = w->type.asym ? w->zero + cell : NULL;
    const __m256i low = _mm256_set1_epi16(TABLE ? 0x0f0f : 0x00ff);
    const __m256i book = TABLE ? book_of(named) : low;
    int16_t *to = p->panel;
    for (int g = p->g0; g < p->g1; g++) {
        __m256i zero[2] = {_mm256_set1_epi16(128), _mm256_set1_epi16(128)}; // of each half's rows, twice
        for (int h = 0; wz && h < 2; h++) {
            zero[h] = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(wz + h * HALF)));
            zero[h] = _mm256_or_si256(zero[h], _mm256_slli_epi32(zero[h], 16));
        }
        if (wz && grouped) wz += LQ_X86_ROWS;
        for (int h = 0; (grouped || g == p->g0) && h < 2; h++)
            _mm256_storeu_ps(p->scale + (g - p->g0) * LQ_X86_ROWS + h * HALF,
                             scales_of(w, ws + (size_t)(h * HALF) * size, named));
        if (grouped) ws += LQ_X86_ROWS * size;
        for (int k = 0; k < p->G; k += TABLE ? 8 : 4, q += 64, next += 64) {
            _mm_prefetch((const char *)next, _MM_HINT_T1);
            for (int step = 0; step < (TABLE ? 2 : 1); step++, to += 64)
                EACH (int h = 0; h < 2; h++) {
                    __m256i v = load32(q + 32 * h);
                    if (TABLE) {
                        v = _mm256_and_si256(step ? _mm256_srli_epi16(v, 4) : v, low);
                        pairs_store(to + 16 * h, _mm256_shuffle_epi8(book, v));
                    } else {
                        store32(to + 16 * h, _mm256_sub_epi16(_mm256_and_si256(v, low), zero[h]));
                        store32(to + 16 * h + 32, _mm256_sub_epi16(_mm256_srli_epi16(v, 8), zero[h]));
                    }
                }
        }
    }
}

// A sum and what is added to it, now: gcc 12 else adds products first, and has no registers left for sums.
INLINE __m256i add32(__m256i sum, __m256i v) {
    sum = _mm256_add_epi32(sum, v);
    __asm__("" : "+x"(sum));
    return sum;
}

INLINE __m256i pair_of(const int16_t *x) {
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}

// A cell.
INLINE void cell_sums(__m256i sum[2][WIDE_ROWS], const int16_t *q, const int16_t *x, int G, const int M) {
    EACH (int m = 0; m < M; m++) sum[0][m] = sum[1][m] = _mm256_setzero_si256();
    for (int k = 0; k < G; k += 16, x += 16 * M)
        ROLLED for (int i = 0; i < 16; i += 4, q += 64)
            EACH (int odd = 0; odd < 2; odd++) {
                const __m256i a = load32(q + 32 * odd), b = load32(q + 32 * odd + 16);
                EACH (int m = 0; m < M; m++) {
                    const __m256i v = pair_of(x + 16 * m + i + 2 * odd);
                    sum[0][m] = add32(sum[0][m], _mm256_madd_epi16(a, v));
                    sum[1][m] = add32(sum[1][m], _mm256_madd_epi16(b, v));
                }
            }
}

INLINE __m256 y_begin(const wide *p, const float *y, int64_t left) {
    if (p->g0 == 0 && !p->a->more) return _mm256_setzero_ps();
    return left < HALF ? begin8(y, left) : _mm256_loadu_ps(y);
}

// Tile t, whose panel is there, x M rows, whose part is at x.
INLINE void wide_block(const wide *p, int64_t t, const int16_t *x, int m0, const int M, const bool whole) {
    const lq_weight *w = p->w;
    const lq_act *a = p->a;
    const int next = w->type.group ? LQ_X86_ROWS : 0;
    const float *scale = p->scale;
    const int64_t n = t * LQ_X86_ROWS;
    const int16_t *q = p->panel;
    float *y = p->y + (size_t)m0 * p->ldy + (size_t)n;
    __m256 f[2][WIDE_ROWS];
    __m256i total[2][WIDE_ROWS];
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) {
            f[h][m] = y_begin(p, y + (size_t)m * p->ldy + h * HALF, w->n - n - h * HALF);
            total[h][m] = _mm256_setzero_si256();
        }
    for (int g = p->g0; g < p->g1; g++, q += p->G * LQ_X86_ROWS, x += p->G * M, scale += next) {
        const size_t u = (size_t)g * (size_t)a->x.rows + (size_t)m0;
        const bool ends = whole && ((g + 1) % p->span == 0 || g + 1 == p->groups);
        __m256i sum[2][WIDE_ROWS];
        cell_sums(sum, q, x, p->G, M);
        EACH (int h = 0; h < 2; h++) {
            const __m256 s = _mm256_loadu_ps(scale + h * HALF);
            EACH (int m = 0; m < M; m++) {
                __m256i dot = sum[h][m];
                if (whole) {
                    dot = total[h][m] = _mm256_add_epi32(total[h][m], dot);
                    if (!ends) continue;
                    if (a->zero) {
                        const __m256i codes = codes8(w->code_sum + n + h * HALF + g / p->span * LQ_X86_ROWS,
                                                     w->n - n - h * HALF);
                        dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(codes, _mm256_set1_epi32(a->zero[m0 + m])));
                    }
                    total[h][m] = _mm256_setzero_si256();
                }
                f[h][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                                          _mm256_mul_ps(s, _mm256_set1_ps(a->scale[u + (size_t)m])), f[h][m]);
            }
        }
    }
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) put8(y + (size_t)m * p->ldy + h * HALF, w->n - n - h * HALF, f[h][m]);
}

typedef void wide_fn(const wide *p, int64_t t, const int16_t *x, int m0);
#define WIDE_FN(NAME, M, WHOLE)                                               \
    static void NAME##M(const wide *p, int64_t t, const int16_t *x, int m0) { \
        wide_block(p, t, x, m0, M, WHOLE);                                    \
    }
WIDE_FN(wide_any, 4, false) WIDE_FN(wide_any, 5, false) WIDE_FN(wide_any, 6, false)
WIDE_FN(wide_whole, 4, true) WIDE_FN(wide_whole, 5, true) WIDE_FN(wide_whole, 6, true)
static wide_fn *const wide_fns[2][3] = {{wide_any4, wide_any5, wide_any6}, {wide_whole4, wide_whole5, wide_whole6}};

// A part of K of a band of rows: at least LQ_MANY_ROWS, so that no block has fewer than 4.
static void band_run(const wide *p, int64_t t0, int64_t t1, int m0, int m1, const int bits) {
    const lq_weight *w = p->w;
    const int unit = lq_x86_group(&w->type), blocks = (m1 - m0 + WIDE_ROWS - 1) / WIDE_ROWS;
    const size_t tile = (size_t)((w->k + unit - 1) / unit * unit) * (size_t)(2 * bits);
    const size_t part = (size_t)(p->g1 - p->g0) * (size_t)p->G * (size_t)(2 * bits);
    const size_t cells = (size_t)lq_weight_groups(&w->type, w->k);
    const uint8_t *const all = (const uint8_t *)w->q + (size_t)p->g0 * (size_t)p->G * (size_t)(2 * bits);
    wide_fn *const *fns = wide_fns[p->a->zero || p->span > 1];
    for (int64_t t = t0; t < t1; t++) {
        const size_t cell = (size_t)t * cells + (w->type.group ? (size_t)p->g0 : 0);
        const uint8_t *next = t + 1 < t1 ? all + (size_t)(t + 1) * tile : all + (size_t)t0 * tile + part;
        panel_make(p, all + (size_t)t * tile, next, cell * LQ_X86_ROWS);
        for (int b = 0, m = m0, rows; b < blocks; b++, m += rows) {
            int16_t *x = p->x + (m - m0) * (p->g1 - p->g0) * p->G;
            rows = (m1 - m + blocks - b - 1) / (blocks - b);
            if (t == t0) x_widen(p, m, rows, x);
            fns[rows - 4](p, t, x, m);
        }
    }
}

INLINE int64_t span_of(const lq_weight *w, const lq_act *a) { // in cells
    const int64_t G = (int64_t)a->q_row, all = (w->k + G - 1) / G, span = lq_i8_span(w, a) / G;
    return span < all ? span : all;
}

static void wide_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                     int16_t *scratch, const int bits) {
    wide p = {.w = w, .a = a, .G = (int)a->q_row, .span = (int)span_of(w, a), .y = y, .ldy = ldy, .x = scratch,
              .panel = scratch + WIDE_BAND * PART_MOST};
    p.scale = (float *)(void *)(p.panel + LQ_X86_ROWS * PART_MOST);
    p.groups = (int)((w->k + p.G - 1) / p.G);
    const int fit = PART / (p.span * p.G), part = fit > 1 ? fit * p.span : p.span;
    for (p.g0 = 0; p.g0 < p.groups; p.g0 = p.g1) {
        p.g1 = p.groups - p.g0 < part ? p.groups : p.g0 + part;
        for (int m = m0, end; m < m1; m = end) {
            const int left = m1 - m;
            end = left > 2 * WIDE_BAND ? m + WIDE_BAND : left > WIDE_BAND ? m + left / 2 : m1;
            band_run(&p, t0, t1, m, end, bits);
        }
    }
}

// Spans that scratch has no room for go the way of few rows, and so does a codebook whose bytes need no halves.
INLINE bool wide_takes(const lq_weight *w, const lq_act *a) {
    return span_of(w, a) * (int64_t)a->q_row <= PART_MOST && (!TABLE || lq_wtype_book(&w->type)->most > LOW_MOST);
}

#define WIDE_UKR(OF)                                                                                        \
    lq_ukr_many lq_many_f32_q8_##OF##x86_avx2;                                                              \
    void lq_many_f32_q8_##OF##x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, \
                                              int m1, float *y, size_t ldy, void *scratch) {                \
        if (wide_takes(w, a)) wide_run(w, a, t0, t1, m0, m1, y, ldy, scratch, BITS);                        \
        else lq_matmul_f32_q8_##OF##x86_avx2(w, a, t0, t1, m0, m1, y, ldy);                                 \
    }
#endif
