// wide_avx2.h: Q8 activations x codes of 8 bits, or those of a codebook, in layout x86 with AVX2, for LQ_MANY_ROWS rows
// and more; fewer are int_avx2.h's, which is included first. The bits are its bits.
//
// In 16 bits the halves of such a code would have to be multiplied apart. Here both sides are widened to int16 instead,
// whose products vpmaddwd adds in pairs, exactly, in 32 bits: a part of K of a band of rows of activations, and of a
// tile of weights less their zero points, a panel that stays in the first cache. A block is a tile x up to 6 rows. Sums
// of a span that ends behind the part wait in scratch.
#ifndef LQ_WIDE_AVX2_H
#define LQ_WIDE_AVX2_H

enum { WIDE_ROWS = 6, WIDE_BAND = 96, WIDE_MOST = 768 /* rows at once */, WIDE_TILES = 8, PART = 512 /* k */,
       PART_CELLS = PART / 16 };

typedef struct wide_work { // what a call has of scratch
    int16_t x[WIDE_BAND * PART];            // of each block [k / 16][row][16]: of 4 k 0, 2, 1, 3
    int16_t panel[LQ_X86_ROWS * PART];      // [k / 4][16 rows, k 0 and 2, then 1 and 3]
    float scale[PART_CELLS][LQ_X86_ROWS];   // of each cell, or of all
    int32_t sum[WIDE_TILES][WIDE_MOST][LQ_X86_ROWS];
} wide_work;
_Static_assert(sizeof(wide_work) <= LQ_MANY_BYTES, "what ukr.h says");

typedef struct wide {
    const lq_weight *w;
    const lq_act *a;
    int64_t G, span, end;   // k of a cell, of a span, of all
    int64_t k0, k1;         // of this part: whole spans, or what of one lies within a cell or in whole cells
    int64_t t0;             // of this turn: the first tile
    int m0;                 // and the first row
    float *y;
    size_t ldy;
    wide_work *work;
} wide;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// A block of M rows.
static void x_widen(const wide *p, int m0, int M, int16_t *to) {
    const __m128i pairs = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    for (int64_t k = p->k0, end; k < p->k1; to += (end - k) * M, k = end) {
        end = least((k / p->G + 1) * p->G, p->k1);
        for (int m = 0; m < M; m++) {
            const int64_t cell = k / p->G * p->a->apart + m0 + m;
            const int8_t *x = (const int8_t *)p->a->q + cell * p->G + k % p->G;
            for (int64_t i = 0; i < end - k; i += 16) {
                const __m128i v = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(x + i)), pairs);
                _mm256_storeu_si256((__m256i *)(void *)(to + i * M + m * 16), _mm256_cvtepi8_epi16(v));
            }
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

// The part of tile t, and its scales. next: what is asked for.
static void panel_make(const wide *p, int64_t t, const uint8_t *q, const uint8_t *next) {
    const lq_weight *w = p->w;
    const lq_codebook *named = TABLE ? lq_wtype_book(&w->type) : NULL;
    const bool grouped = w->type.group;
    const size_t size = lq_dtype_size(w->type.scale), cells = (size_t)lq_weight_groups(&w->type, w->k);
    const size_t cell = ((size_t)t * cells + (grouped ? (size_t)(p->k0 / p->G) : 0)) * LQ_X86_ROWS;
    const uint8_t *ws = (const uint8_t *)w->scale + cell * size, *wz = w->type.asym ? w->zero + cell : NULL;
    const __m256i low = _mm256_set1_epi16(TABLE ? 0x0f0f : 0x00ff);
    const __m256i book = TABLE ? book_of(named) : low;
    int16_t *to = p->work->panel;
    float *scale = p->work->scale[0];
    for (int64_t k = p->k0, end; k < p->k1; k = end) {
        __m256i zero[2] = {_mm256_set1_epi16(128), _mm256_set1_epi16(128)}; // of each half's rows, twice
        for (int h = 0; wz && h < 2; h++) {
            zero[h] = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(wz + h * HALF)));
            zero[h] = _mm256_or_si256(zero[h], _mm256_slli_epi32(zero[h], 16));
        }
        for (int h = 0; (grouped || k == p->k0) && h < 2; h++)
            _mm256_storeu_ps(scale + h * HALF, scales_of(w, ws + (size_t)(h * HALF) * size, named));
        if (grouped) ws += LQ_X86_ROWS * size, scale += LQ_X86_ROWS;
        if (grouped && wz) wz += LQ_X86_ROWS;
        end = least((k / p->G + 1) * p->G, p->k1);
        for (int64_t i = k; i < end; i += TABLE ? 8 : 4, q += 64, next += 64) {
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

// Of a cell, or what of one is here.
INLINE void cell_sums(__m256i sum[2][WIDE_ROWS], const int16_t *q, const int16_t *x, int len, const int M) {
    EACH (int m = 0; m < M; m++) sum[0][m] = sum[1][m] = _mm256_setzero_si256();
    for (int k = 0; k < len; k += 16, x += 16 * M)
        ROLLED for (int i = 0; i < 16; i += 4, q += 64)
            EACH (int odd = 0; odd < 2; odd++) {
                const __m256i a = load32(q + 32 * odd), b = load32(q + 32 * odd + 16);
                EACH (int m = 0; m < M; m++) {
                    const __m256i v = bcast4(x + 16 * m + i + 2 * odd);
                    sum[0][m] = add32(sum[0][m], _mm256_madd_epi16(a, v));
                    sum[1][m] = add32(sum[1][m], _mm256_madd_epi16(b, v));
                }
            }
}

INLINE __m256 y_begin(const wide *p, const float *y, int64_t left) {
    if (p->k0 < p->span && !p->a->more) return _mm256_setzero_ps();
    return left < HALF ? begin8(y, left) : _mm256_loadu_ps(y);
}

// What an activation's zero point adds to 8 rows' sums of a span.
INLINE __m256i shift(const wide *p, int64_t n, int64_t span, int m) {
    const __m256i codes = codes8(p->w->code_sum + n + span * LQ_X86_ROWS, p->w->n - n);
    return _mm256_mullo_epi32(codes, _mm256_set1_epi32(p->a->zero[m]));
}

// Tile t, whose panel is there, x M rows from m0 on, whose part is at x. carried: spans are not cells of this part.
INLINE void wide_block(const wide *p, int64_t t, const int16_t *x, int m0, const int M, const bool carried) {
    const lq_weight *w = p->w;
    const lq_act *a = p->a;
    const int next = w->type.group ? LQ_X86_ROWS : 0;
    const int64_t n = t * LQ_X86_ROWS, left = w->n - n;
    const float *scale = p->work->scale[0];
    const int16_t *q = p->work->panel;
    int32_t (*wait)[LQ_X86_ROWS] = &p->work->sum[t - p->t0][m0 - p->m0];
    float *y = p->y + (size_t)m0 * p->ldy + (size_t)n;
    __m256 f[2][WIDE_ROWS];
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) f[h][m] = y_begin(p, y + (size_t)m * p->ldy + h * HALF, left - h * HALF);
    for (int64_t k = p->k0, end; k < p->k1; q += (end - k) * LQ_X86_ROWS, x += (end - k) * M, scale += next, k = end) {
        const float *by = a->scale + k / p->G * a->apart + m0;
        __m256i sum[2][WIDE_ROWS];
        end = carried ? least((k / p->G + 1) * p->G, p->k1) : k + p->G;
        cell_sums(sum, q, x, (int)(end - k), M);
        if (carried && k % p->span)
            EACH (int h = 0; h < 2; h++)
                EACH (int m = 0; m < M; m++) sum[h][m] = _mm256_add_epi32(sum[h][m], load32(&wait[m][h * HALF]));
        if (carried && end % p->span && end < p->end) {
            EACH (int h = 0; h < 2; h++) EACH (int m = 0; m < M; m++) store32(&wait[m][h * HALF], sum[h][m]);
            continue;
        }
        EACH (int h = 0; h < 2; h++) {
            const __m256 s = _mm256_loadu_ps(scale + h * HALF);
            EACH (int m = 0; m < M; m++) {
                __m256i dot = sum[h][m];
                if (carried && a->zero) dot = _mm256_sub_epi32(dot, shift(p, n + h * HALF, k / p->span, m0 + m));
                f[h][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(s, _mm256_set1_ps(by[m])), f[h][m]);
            }
        }
    }
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) put8(y + (size_t)m * p->ldy + h * HALF, left - h * HALF, f[h][m]);
}

typedef void wide_fn(const wide *p, int64_t t, const int16_t *x, int m0);
#define WIDE_FN(NAME, M, CARRIED)                                             \
    static void NAME##M(const wide *p, int64_t t, const int16_t *x, int m0) { \
        wide_block(p, t, x, m0, M, CARRIED);                                  \
    }
WIDE_FN(wide_cells, 4, false) WIDE_FN(wide_cells, 5, false) WIDE_FN(wide_cells, 6, false)
WIDE_FN(wide_spans, 4, true) WIDE_FN(wide_spans, 5, true) WIDE_FN(wide_spans, 6, true)
static wide_fn *const wide_fns[2][3] = {{wide_cells4, wide_cells5, wide_cells6},
                                        {wide_spans4, wide_spans5, wide_spans6}};

// A part of K of tiles to t1 x a band of rows: at least LQ_MANY_ROWS, so that no block has fewer than 4.
static void band_run(const wide *p, int64_t t1, int m0, int m1) {
    const lq_weight *w = p->w;
    const int64_t unit = lq_x86_group(&w->type), tile = (w->k + unit - 1) / unit * unit * 2 * BITS;
    const uint8_t *const all = (const uint8_t *)w->q + p->t0 * tile;
    const int blocks = (m1 - m0 + WIDE_ROWS - 1) / WIDE_ROWS;
    wide_fn *const *fns = wide_fns[p->a->zero || p->span > p->G || p->G > PART];
    for (int64_t t = p->t0; t < t1; t++) {
        const uint8_t *q = all + (t - p->t0) * tile + p->k0 * 2 * BITS;
        panel_make(p, t, q, t + 1 < t1 ? q + tile : all + p->k1 * 2 * BITS);
        for (int b = 0, m = m0, rows; b < blocks; b++, m += rows) {
            int16_t *x = p->work->x + (m - m0) * (p->k1 - p->k0);
            rows = (m1 - m + blocks - b - 1) / (blocks - b);
            if (t == p->t0) x_widen(p, m, rows, x);
            fns[rows - 4](p, t, x, m);
        }
    }
}

// The part that begins at k.
static int64_t part_end(const wide *p, int64_t k) {
    if (p->span <= PART) return least(k + PART / p->span * p->span, p->end);
    const int64_t cells = p->G <= PART ? PART / p->G * p->G : least(PART, p->G - k % p->G);
    return least(least(k + cells, (k / p->span + 1) * p->span), p->end);
}

// Of `left` rows as many as are taken at once: the last two times half each.
static int some_of(int left, int most) { return left > 2 * most ? most : left > most ? left / 2 : left; }

static void wide_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y, size_t ldy,
                     void *scratch) {
    wide p = {.w = w, .a = a, .G = (int64_t)a->q_row, .y = y, .ldy = ldy, .work = scratch};
    p.end = (w->k + p.G - 1) / p.G * p.G;
    p.span = least(lq_i8_span(w, a) / p.G * p.G, p.end);
    for (p.t0 = t0; p.t0 < t1; p.t0 += WIDE_TILES) {
        int end;
        for (p.m0 = m0; p.m0 < m1; p.m0 = end) {
            end = p.m0 + some_of(m1 - p.m0, WIDE_MOST);
            for (p.k0 = 0; p.k0 < p.end; p.k0 = p.k1) {
                p.k1 = part_end(&p, p.k0);
                for (int m = p.m0, n; m < end; m += n) {
                    n = some_of(end - m, WIDE_BAND);
                    band_run(&p, least(p.t0 + WIDE_TILES, t1), m, m + n);
                }
            }
        }
    }
}
#endif
