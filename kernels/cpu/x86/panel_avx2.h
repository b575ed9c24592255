// panel_avx2.h: Q8 activations x codes in layout x86 with AVX2 for LQ_MANY_ROWS rows and more; fewer are int_avx2.h's,
// which is included first. The bits are its bits.
//
// A part of K of a tile of weights becomes a panel that stays in the first cache, for a band of rows of activations
// that lie packed in the second. A block is a tile x a few rows. Sums of a span that ends behind the part wait in
// scratch.
//
// Bytes: codes of up to 6 bits, and codebooks of whole numbers up to LOW_MOST. What makes them unsigned, for
// vpmaddubsw, is taken off before they are multiplied: sums of 16 bits begin with what it will have added. So a sum
// wraps on its way, and ends as that of the numbers themselves, of which twice as many fit into 16 bits.
// Words: codes of 8 bits, and other codebooks, less their zero points, as int16, whose products vpmaddwd adds in pairs,
// exactly, in 32 bits. As bytes the halves of such a code would have to be multiplied apart.
#ifndef LQ_PANEL_AVX2_H
#define LQ_PANEL_AVX2_H

enum { MOST_ROWS = 384 /* at once */, PANEL = 16 * 1024 /* bytes */, BAND = 112 * 1024, PART_CELLS = 64,
       BLOCKS = 16 /* of a band */, ROWS_MOST = 6, UNROLLED = 4 /* steps of 4 k */, CELL_32 = 8 /* of a cell of 32 */,
       X_AHEAD = 256 /* k */ };

typedef struct panel_work { // what a call has of scratch
    uint8_t x[BAND];                            // of each block, see x_bytes and x_words
    uint8_t panel[PANEL];                       // [k / 4][16 rows][4], words [k / 4][k 0, 2, then 1, 3 of 16 rows]
    float scale[PART_CELLS][LQ_X86_ROWS];       // of each cell, or of all
    int32_t sum[LQ_MANY_TURN][MOST_ROWS][LQ_X86_ROWS];
} panel_work;
_Static_assert(sizeof(panel_work) <= LQ_MANY_BYTES, "what ukr.h says");

typedef struct panels {
    const lq_weight *w;
    const lq_act *a;
    int64_t G, span, end;   // k of a cell, of a span, of all
    int64_t k0, k1;         // of this part: whole spans, or what of one lies within a cell or in whole cells
    int64_t t0;             // of this turn: the first tile
    int m0;                 // and the first row
    int over, steps;        // bytes: what is added to a number, and of how many steps of 4 k products add in 16 bits
    float *y;
    size_t ldy;
    panel_work *work;
} panels;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE void store32(void *q, __m256i v) { _mm256_storeu_si256((__m256i *)q, v); }

// What is added to a number of the weight, so that none is below 0.
INLINE int over_of(const lq_weight *w) {
    if (TABLE) return lq_wtype_book(&w->type)->most;
    return w->type.asym ? (1 << BITS) - 1 : 1 << (BITS - 1);
}

INLINE int high(const bool words) { return words ? ROWS_MOST : TALL; } // rows of a block,
INLINE int fewest(const bool words) { return words ? 4 : 3; }          // and at least, of LQ_MANY_ROWS and more

// --- rows of activations, M of them from m0 on; both give where they end ---

// Of each cell, or what of one is in this part, first the scales of as many rows as a block may have.

typedef struct piece { const int8_t *x[ROWS_MOST]; int64_t k, end; } piece; // of k of one cell

INLINE piece piece_of(const panels *p, int64_t k, int m0, int M, const int high, uint8_t **to) {
    const int64_t cell = k / p->G;
    piece c = {.k = k, .end = least((cell + 1) * p->G, p->k1)};
    for (int m = 0; m < high; m++, *to += 4) {
        const int64_t row = cell * p->a->apart + m0 + (m < M ? m : M - 1);
        c.x[m] = (const int8_t *)p->a->q + row * p->G + k % p->G;
        memcpy(*to, p->a->scale + row, 4);
    }
    const int64_t on = X_AHEAD / p->G * p->a->apart * p->G;
    if (on) lines_ask((const uint8_t *)c.x[0] + on, (int)(M * p->G), true);
    return c;
}

// Bytes, of as many k as add in 16 bits: what the sums of each row begin with, then [k / 4][4 rows][4].
INLINE uint8_t *x_bytes(const panels *p, int m0, int M, uint8_t *to) {
    const __m128i ones = _mm_set1_epi8(1), less = _mm_set1_epi16((short)-p->over);
    for (int64_t k = p->k0; k < p->k1;)
        for (const piece c = piece_of(p, k, m0, M, TALL, &to); k < c.end;) {
            const int64_t next = least(c.end, k + 4 * p->steps);
            __m128i sum = _mm_setzero_si128(), *const begin = (__m128i *)(void *)to;
            for (; k < next; k += 8) {
                __m128i v[TALL];
                EACH (int m = 0; m < TALL; m++)
                    v[m] = _mm_loadl_epi64((const __m128i *)(const void *)(c.x[m] + (k - c.k)));
                const __m128i a = _mm_unpacklo_epi32(v[0], v[1]), b = _mm_unpacklo_epi32(v[2], v[3]);
                const __m128i one = _mm_unpacklo_epi64(a, b), two = _mm_unpackhi_epi64(a, b);
                sum = _mm_add_epi16(sum, _mm_add_epi16(_mm_maddubs_epi16(ones, one), _mm_maddubs_epi16(ones, two)));
                _mm_storeu_si128((__m128i *)(void *)(to += 16), one);
                _mm_storeu_si128((__m128i *)(void *)(to += 16), two);
            }
            _mm_storeu_si128(begin, _mm_mullo_epi16(sum, less));
            to += 16;
        }
    return to;
}

// Words: [k / 16][row][16], of 4 k 0, 2, 1, 3.
INLINE uint8_t *x_words(const panels *p, int m0, int M, uint8_t *to) {
    const __m128i pairs = _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    for (int64_t k = p->k0; k < p->k1;)
        for (const piece c = piece_of(p, k, m0, M, ROWS_MOST, &to); k < c.end; k += 16)
            for (int m = 0; m < M; m++, to += 32) {
                const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(c.x[m] + (k - c.k)));
                store32(to, _mm256_cvtepi8_epi16(_mm_shuffle_epi8(v, pairs)));
            }
    return to;
}

// --- weights ---

// 4 k of half a tile, from bytes with a sign.
INLINE void pairs_store(uint8_t *to, __m256i v) {
    store32(to, _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    store32(to + 64, _mm256_srai_epi16(v, 8));
}

// What of half a tile's codes of a cell becomes numbers: words less it, or bytes and it.
INLINE __m256i shift_of(const panels *p, const uint8_t *zero, const bool words) {
    if (!zero) return words ? _mm256_set1_epi16(128) : _mm256_setzero_si256();
    __m256i z = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)zero));
    if (words) return _mm256_or_si256(z, _mm256_slli_epi32(z, 16));
    z = _mm256_sub_epi32(_mm256_set1_epi32(p->over), z);
    return _mm256_shuffle_epi8(z, _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12,
                                                   0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
}

// The part of tile t, and its scales. next: what is asked for.
INLINE void panel_make(const panels *p, int64_t t, const uint8_t *q, const uint8_t *next, const bool words) {
    const lq_weight *w = p->w;
    const lq_codebook *named = TABLE ? lq_wtype_book(&w->type) : NULL;
    const bool grouped = w->type.group;
    const size_t size = lq_dtype_size(w->type.scale), cells = (size_t)lq_weight_groups(&w->type, w->k);
    const size_t cell = ((size_t)t * cells + (grouped ? (size_t)(p->k0 / p->G) : 0)) * LQ_X86_ROWS;
    const uint8_t *ws = (const uint8_t *)w->scale + cell * size, *wz = w->type.asym ? w->zero + cell : NULL;
    const int unit = BITS == 4 || BITS == 8 ? 32 / BITS : 32; // k that lie together
    __m256i book = _mm256_setzero_si256();
    if (TABLE) book = words ? book_of(named) : _mm256_add_epi8(book_of(named), _mm256_set1_epi8((char)named->most));
    uint8_t *to = p->work->panel;
    float *scale = p->work->scale[0];
    for (int64_t k = p->k0, end; k < p->k1; k = end) {
        const __m256i shift[2] = {shift_of(p, wz, words), shift_of(p, wz ? wz + HALF : NULL, words)};
        for (int h = 0; (grouped || k == p->k0) && h < 2; h++)
            _mm256_storeu_ps(scale + h * HALF, scales_of(w, ws + (size_t)(h * HALF) * size, named));
        if (grouped) ws += LQ_X86_ROWS * size, scale += LQ_X86_ROWS;
        if (grouped && wz) wz += LQ_X86_ROWS;
        end = least((k / p->G + 1) * p->G, p->k1);
        for (int64_t i = k; i < end; i += unit, q += 2 * BITS * unit, next += 2 * BITS * unit) {
            lines_ask(next, 2 * BITS * unit, false);
            EACH (int f = 0; f < unit / 4; f++, to += words ? 128 : 64)
                EACH (int h = 0; h < 2; h++) {
                    const __m256i v = codes4(q + 32 * h, f, book);
                    if (!words) store32(to + 32 * h, _mm256_add_epi8(v, shift[h]));
                    else if (TABLE) pairs_store(to + 32 * h, v);
                    else {
                        store32(to + 32 * h, _mm256_sub_epi16(_mm256_and_si256(v, _mm256_set1_epi16(255)), shift[h]));
                        store32(to + 32 * h + 64, _mm256_sub_epi16(_mm256_srli_epi16(v, 8), shift[h]));
                    }
                }
        }
    }
}

// --- products ---

// A sum and what is added to it, now: gcc 12 else adds products first, and has no registers left for sums.
INLINE __m256i add32(__m256i sum, __m256i v) {
    sum = _mm256_add_epi32(sum, v);
    __asm__("" : "+x"(sum));
    return sum;
}

typedef struct place { const uint8_t *q, *x; } place; // in a panel, and in a block's activations

// Of a cell, or what of one is here; both: the place behind it.
INLINE place cell_words(__m256i sum[2][ROWS_MOST], place at, int len, const int M) {
    EACH (int m = 0; m < M; m++) sum[0][m] = sum[1][m] = _mm256_setzero_si256();
    for (int k = 0; k < len; k += 16, at.x += 32 * M)
        ROLLED for (int i = 0; i < 16; i += 4, at.q += 128)
            EACH (int odd = 0; odd < 2; odd++) {
                const __m256i a = load32(at.q + 64 * odd), b = load32(at.q + 64 * odd + 32);
                EACH (int m = 0; m < M; m++) {
                    const __m256i v = bcast4(at.x + 32 * m + 2 * i + 4 * odd);
                    sum[0][m] = add32(sum[0][m], _mm256_madd_epi16(a, v));
                    sum[1][m] = add32(sum[1][m], _mm256_madd_epi16(b, v));
                }
            }
    return at;
}

// So many steps of 4 k, of which products add in 16 bits; more: to the sums that are there.
INLINE place bytes_add(__m256i sum[2][ROWS_MOST], place at, const int steps, const int unit, const bool more,
                       const int M) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i part[2][TALL];
    EACH (int m = 0; m < M; m++) part[0][m] = part[1][m] = bcast4(at.x + 4 * m);
    at.x += 16;
    ROLLED for (int i = 0; i < steps; i += unit, at.q += 64 * unit, at.x += 16 * unit)
        EACH (int f = 0; f < unit; f++) {
            const __m256i a = load32(at.q + 64 * f), b = load32(at.q + 64 * f + 32);
            EACH (int m = 0; m < M; m++) {
                const __m256i v = bcast4(at.x + 16 * f + 4 * m);
                part[0][m] = add16(part[0][m], _mm256_maddubs_epi16(a, v));
                part[1][m] = add16(part[1][m], _mm256_maddubs_epi16(b, v));
            }
        }
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) {
            const __m256i wide = _mm256_madd_epi16(part[h][m], ones);
            sum[h][m] = more ? _mm256_add_epi32(sum[h][m], wide) : wide;
        }
    return at;
}

// all: steps of the cell, CELL_32 where that is fixed; steps: as many as add in 16 bits.
INLINE place cell_bytes(__m256i sum[2][ROWS_MOST], place at, const int all, const int steps, const bool fixed,
                        const int M) {
    const int some = steps < CELL_32 ? steps : CELL_32, unit = steps < UNROLLED ? steps : UNROLLED;
    if (fixed) {
        EACH (int i = 0; i < CELL_32; i += some) at = bytes_add(sum, at, some, some, i, M);
        return at;
    }
    at = bytes_add(sum, at, all < steps ? all : steps, unit, false, M);
    for (int left = all - steps; left > 0; left -= steps)
        at = bytes_add(sum, at, left < steps ? left : steps, unit, true, M);
    return at;
}

INLINE __m256 y_begin(const panels *p, const float *y, int64_t left) {
    if (p->k0 < p->span && !p->a->more) return _mm256_setzero_ps();
    return left < HALF ? begin8(y, left) : _mm256_loadu_ps(y);
}

// What an activation's zero point adds to 8 rows' sums of a span.
INLINE __m256i x_shift(const panels *p, int64_t n, int64_t span, int m) {
    const __m256i codes = codes8(p->w->code_sum + n + span * LQ_X86_ROWS, p->w->n - n);
    return _mm256_mullo_epi32(codes, _mm256_set1_epi32(p->a->zero[m]));
}

// Tile t, whose panel is there, x M rows from m0 on, whose part is at x. carried: spans are not cells of this part.
// fixed: cells are of 32. steps: of bytes, as many as add in 16 bits; words: 0.
INLINE void panel_block(const panels *p, int64_t t, const uint8_t *x, int m0, const int M, const bool carried,
                        const bool fixed, const int steps) {
    const lq_weight *w = p->w;
    const lq_act *a = p->a;
    const int next = w->type.group ? LQ_X86_ROWS : 0;
    const int64_t n = t * LQ_X86_ROWS, left = w->n - n;
    const float *scale = p->work->scale[0];
    place at = {p->work->panel, x};
    int32_t (*wait)[LQ_X86_ROWS] = &p->work->sum[t - p->t0][m0 - p->m0];
    float *y = p->y + (size_t)m0 * p->ldy + (size_t)n;
    __m256 f[2][ROWS_MOST];
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) f[h][m] = y_begin(p, y + (size_t)m * p->ldy + h * HALF, left - h * HALF);
    for (int64_t k = p->k0, end; k < p->k1; scale += next, k = end) {
        const float *by = (const float *)(const void *)at.x;
        __m256i sum[2][ROWS_MOST];
        end = carried ? least((k / p->G + 1) * p->G, p->k1) : k + p->G;
        at.x += 4 * high(!steps);
        if (steps) at = cell_bytes(sum, at, (int)(end - k) / 4, steps, fixed, M);
        else at = cell_words(sum, at, (int)(end - k), M);
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
                if (carried && a->zero) dot = _mm256_sub_epi32(dot, x_shift(p, n + h * HALF, k / p->span, m0 + m));
                f[h][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(s, _mm256_set1_ps(by[m])), f[h][m]);
            }
        }
    }
    EACH (int h = 0; h < 2; h++)
        EACH (int m = 0; m < M; m++) put8(y + (size_t)m * p->ldy + h * HALF, left - h * HALF, f[h][m]);
}

// --- bands ---

typedef void panel_fn(const panels *p, int64_t t, const uint8_t *x, int m0);
#define PANEL_FN(NAME, M, ...)                                                  \
    static void NAME##M(const panels *p, int64_t t, const uint8_t *x, int m0) { \
        panel_block(p, t, x, m0, M, __VA_ARGS__);                               \
    }

// A part of K of tiles to t1 x a band of rows.
INLINE void band_run(const panels *p, int64_t t1, int m0, int m1, panel_fn *const *fns, const bool words) {
    const lq_weight *w = p->w;
    const int64_t unit = lq_x86_group(&w->type), tile = (w->k + unit - 1) / unit * unit * 2 * BITS;
    const uint8_t *const all = (const uint8_t *)w->q + p->t0 * tile;
    const int blocks = (m1 - m0 + high(words) - 1) / high(words);
    uint8_t *x[BLOCKS + 1] = {p->work->x};
    for (int64_t t = p->t0; t < t1; t++) {
        const uint8_t *q = all + (t - p->t0) * tile + p->k0 * 2 * BITS;
        panel_make(p, t, q, t + 1 < t1 ? q + tile : all + p->k1 * 2 * BITS, words);
        for (int b = 0, m = m0, rows; b < blocks; b++, m += rows) {
            rows = (m1 - m + blocks - b - 1) / (blocks - b);
            if (t == p->t0) x[b + 1] = words ? x_words(p, m, rows, x[b]) : x_bytes(p, m, rows, x[b]);
            fns[rows - fewest(words)](p, t, x[b], m);
        }
    }
}

// The part that begins at k, of at most so many.
static int64_t part_end(const panels *p, int64_t k, int64_t most) {
    if (p->span <= most) return least(k + most / p->span * p->span, p->end);
    const int64_t cells = p->G <= most ? most / p->G * p->G : least(most, p->G - k % p->G);
    return least(least(k + cells, (k / p->span + 1) * p->span), p->end);
}

// Of `left` rows as many as are taken at once: the last two times half each.
static int some_of(int left, int most) { return left > 2 * most ? most : left > most ? left / 2 : left; }

typedef struct panel_fns { // of cells, of cells of 32, and where spans are not cells of a part; by rows
    int steps;
    panel_fn *cells[3], *cells_32[3], *spans[3];
} panel_fns;

// few, many: functions of bytes of which few or more products add in 16 bits, or both those of words.
INLINE void panels_run(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1, float *y,
                       size_t ldy, void *scratch, const panel_fns *few, const panel_fns *many) {
    const bool words = !few->steps;
    panels p = {.w = w, .a = a, .G = (int64_t)a->q_row, .over = over_of(w), .y = y, .ldy = ldy, .work = scratch};
    const int64_t part = PANEL / LQ_X86_ROWS / (words ? 2 : 1);
    p.end = (w->k + p.G - 1) / p.G * p.G;
    p.span = least(lq_i8_span(w, a) / p.G * p.G, p.end);
    const panel_fns *fns = TABLE || w->type.asym || a->zero ? few : many;
    p.steps = fns->steps;
    panel_fn *const *fn = a->zero || p.span > p.G || p.G > part ? fns->spans
        : p.G == 4 * CELL_32 ? fns->cells_32 : fns->cells;
    for (p.t0 = t0; p.t0 < t1; p.t0 += LQ_MANY_TURN) {
        int end;
        for (p.m0 = m0; p.m0 < m1; p.m0 = end) {
            end = p.m0 + some_of(m1 - p.m0, MOST_ROWS);
            for (p.k0 = 0; p.k0 < p.end; p.k0 = p.k1) {
                p.k1 = part_end(&p, p.k0, part);
                for (int m = p.m0, n; m < end; m += n) {
                    n = some_of(end - m, BLOCKS * high(words));
                    band_run(&p, least(p.t0 + LQ_MANY_TURN, t1), m, m + n, fn, words);
                }
            }
        }
    }
}

// Functions of bytes, of which products of so many steps add in 16 bits, blocks of 3 or 4 rows; and of words, 4 to 6.
#define BYTES_FNS(NAME, STEPS)                                                                                        \
    PANEL_FN(NAME##_cells, 3, false, false, STEPS) PANEL_FN(NAME##_cells, 4, false, false, STEPS)                     \
    PANEL_FN(NAME##_32_, 3, false, true, STEPS) PANEL_FN(NAME##_32_, 4, false, true, STEPS)                           \
    PANEL_FN(NAME##_spans, 3, true, false, STEPS) PANEL_FN(NAME##_spans, 4, true, false, STEPS)                       \
    static const panel_fns NAME = {STEPS, {NAME##_cells3, NAME##_cells4}, {NAME##_32_3, NAME##_32_4},                 \
                                   {NAME##_spans3, NAME##_spans4}};
#define CELL_WORDS {word_cells4, word_cells5, word_cells6}
#define WORDS_FNS                                                                                                     \
    PANEL_FN(word_cells, 4, false, false, 0) PANEL_FN(word_cells, 5, false, false, 0)                                 \
    PANEL_FN(word_cells, 6, false, false, 0) PANEL_FN(word_spans, 4, true, false, 0)                                  \
    PANEL_FN(word_spans, 5, true, false, 0) PANEL_FN(word_spans, 6, true, false, 0)                                   \
    static const panel_fns in_words = {0, CELL_WORDS, CELL_WORDS, {word_spans4, word_spans5, word_spans6}};

#define MANY_UKR(OF, FEW_ADD, MANY_ADD)                                                                               \
    lq_ukr_many lq_many_f32_q8_##OF##x86_avx2;                                                                        \
    void lq_many_f32_q8_##OF##x86_avx2(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0, int m1,   \
                                       float *y, size_t ldy, void *scratch) {                                         \
        panels_run(w, a, t0, t1, m0, m1, y, ldy, scratch, &FEW_ADD, &MANY_ADD);                                       \
    }
#endif
