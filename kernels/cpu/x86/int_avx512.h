// int_avx512.h: Q8 activations x int weights, or those of a codebook, in layout x86 with AVX-512 VNNI, instantiated by
// w2_avx512.c and so on: BITS is how many a code has, TABLE whether it is looked up.
// Within a group all is integer and exact; over groups y = fma((float)dot, wscale * ascale, y), in order, from +0, or
// from y where a part of K follows another. Where weights and activations have one scale for the whole row, groups are
// added as integers up to LQ_I8_SPAN k; where activations have zero points, so is a group or as many (both: `whole`).
// No kernel does anything else and none splits K, hence all give the same bits.
//
// A group of a codebook's codes is `brief` up to 128 k: its dot, with or without what their offset adds, is less than
// 2^22. Its sum begins with the bits of the float 1.5 * 2^23 and so ends as a float, of which that number and what the
// offset added are taken off at once.
//
// thin: 1 to 12 rows x one tile, which is one contiguous stream; sums and y stay in registers.
// pair: 6 rows x two tiles, likewise; each activation is broadcast once for both.
// few: 1 to 4 rows x four tiles, read side by side.
// pair, and thin of more than JOIN_ROWS rows: a group's sums join y behind its last products row by row (not `whole`),
// so that what this takes lies between products.
#ifndef LQ_INT_AVX512_H
#define LQ_INT_AVX512_H
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/codes_avx512.h"
#include "kernels/cpu/x86/vec.h"
#include <math.h>
#include <string.h>

#ifndef TABLE
#define TABLE false
#endif

enum { AHEAD_BYTES = 4096, FAR_BYTES = 16384, STREAM_AHEAD = 2048 /* where there are several */,
       PAGES_AHEAD = 8192, SCALE_AHEAD = 512, TALL = 12, PAIR = 6,
       FEW_ROWS = 4, JOIN_ROWS = 8 /* up to so many have sums of the next group under way */, STREAMS = 4,
       PASS_BYTES = 256 * 1024 /* of tiles that stay in the second cache */ };

// One call's view of a weight and of its activations. Tiles, groups and their steps in bytes.
typedef struct cut {
    const uint8_t *q, *scale, *zero;        // of the first tile; zero NULL: symmetric
    size_t q_tile, scale_tile, zero_tile;   // from tile to tile
    size_t scale_group, zero_group;         // from group to group: 0 where a row has one scale
    lq_dtype scale_type;
    const lq_codebook *book;                // or NULL; of it:
    float unit, scale2, by;                 // by: where `quick`, what vf_of_e4m3_small is multiplied by
    _Alignas(16) uint8_t look[16];          // its whole numbers and `most`
    int groups, G, all;                     // all: rows from group to group
    const int8_t *x;                        // [groups][all][G]
    const float *xscale;                    // [groups][all]
    const int32_t *xsum;                    // [groups][all]
    const int32_t *xzero, *code_sum;        // [all], [span][tile][16]: activations with zero points; else NULL
    int64_t n;
    int span;                               // groups that are added as integers
    bool whole, more, quick;                // quick: scales are e4m3 and their numbers far from the ends of floats'
    bool passing;                           // each tile's turn comes once
} cut;

INLINE cut cut_of(const lq_weight *w, const lq_act *a) {
    const int G = (int)a->q_row, unit = lq_x86_group(&w->type), groups = (int)((w->k + G - 1) / G);
    const size_t cells = (size_t)lq_weight_groups(&w->type, w->k) * LQ_X86_ROWS, size = lq_dtype_size(w->type.scale);
    const lq_codebook *book = lq_wtype_book(&w->type);
    cut c = {.q = w->q, .scale = w->scale, .zero = w->type.asym ? w->zero : NULL,
                 .q_tile = (size_t)((w->k + unit - 1) / unit * unit) * LQ_X86_ROWS * (size_t)w->type.bits / 8,
                 .scale_tile = cells * size, .zero_tile = cells, .scale_group = w->type.group ? LQ_X86_ROWS * size : 0,
                 .zero_group = w->type.group ? LQ_X86_ROWS : 0, .scale_type = w->type.scale, .groups = groups, .G = G,
                 .all = a->apart, .x = a->q, .xscale = a->scale, .xsum = a->sum, .xzero = a->zero,
                 .code_sum = w->code_sum, .n = w->n, .span = (int)(lq_i8_span(w, a) / G),
                 .whole = a->zero || lq_i8_span(w, a) > G, .more = a->more, .book = book};
    if (!book) return c;
    c.unit = book->unit;
    c.scale2 = w->type.scale == LQ_E4M3 ? *w->scale2 : 1;
    c.by = c.unit * c.scale2 * 256;
    int power;
    c.quick = w->type.scale == LQ_E4M3 && frexpf(c.unit, &power) == 0.5f && c.by > 0x1p-100f && c.by < 0x1p100f;
    for (int i = 0; i < 16; i++) c.look[i] = (uint8_t)(book->whole[i] + book->most);
    return c;
}

// Where the scales of a tile's rows in group g are, and these.
INLINE const uint8_t *scales_at(const cut *c, int64_t t, int g) {
    return c->scale + (size_t)t * c->scale_tile + (size_t)g * c->scale_group;
}

INLINE __m512 scales_of(const cut *c, int64_t t, int g, const bool table, const bool quick) {
    if (quick) return vf_mul(vf_of_e4m3_small(scales_at(c, t, g)), vf_set(c->by));
    const __m512 s = vf_of_scales(scales_at(c, t, g), c->scale_type, c->scale2, table);
    return table ? vf_mul(s, vf_set(c->unit)) : s;
}

// Minus their zero points; the upper halves of the lanes are 0 for vpdpwssd.
INLINE __m512i minus_zeros_of(const cut *c, int64_t t, int g) {
    const uint8_t *zero = c->zero + (size_t)t * c->zero_tile + (size_t)g * c->zero_group;
    const __m512i z = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zero));
    return _mm512_and_si512(_mm512_sub_epi32(_mm512_setzero_si512(), z), _mm512_set1_epi32(0xffff));
}

// dot - zero * sum(x) of tile t: what the codes' offset added is taken off, which without zero points is one number for
// all rows. short_sum: xsum fits 16 bits.
INLINE __m512i centre(const cut *c, __m512i dot, int64_t t, int g, int32_t xsum, const int bits, const bool short_sum,
                      const bool asym) {
    if (TABLE) return _mm512_sub_epi32(dot, _mm512_set1_epi32(xsum * c->book->most));
    if (!asym) return _mm512_sub_epi32(dot, _mm512_set1_epi32(xsum * (1 << (bits - 1))));
    __m512i z = minus_zeros_of(c, t, g);
    if (short_sum) return _mm512_dpwssd_epi32(dot, z, _mm512_set1_epi32(xsum));
    z = _mm512_srai_epi32(_mm512_slli_epi32(z, 16), 16);
    return _mm512_add_epi32(dot, _mm512_mullo_epi32(z, _mm512_set1_epi32(xsum)));
}

// vpdpbusd with the four activations broadcast, and broadcast from memory. As asm for gcc 12, which spills the sums
// around the intrinsic; clang 14 spills them around the asm.
typedef int32_t __attribute__((may_alias, aligned(1))) quad;
INLINE __m512i quad_of(const int8_t *x) { return _mm512_set1_epi32(*(const quad *)(const void *)x); }

INLINE void dot4(__m512i *sum, __m512i codes, __m512i quads) {
#ifdef __clang__
    *sum = _mm512_dpbusd_epi32(*sum, codes, quads);
#else
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*sum) : "v"(codes), "v"(quads));
#endif
}

INLINE void dot4_from(__m512i *sum, __m512i codes, const int8_t *x) {
#ifdef __clang__
    *sum = _mm512_dpbusd_epi32(*sum, codes, quad_of(x));
#else
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(*sum) : "v"(codes), "m"(*(const quad *)(const void *)x));
#endif
}

enum { BRIEF = 0x4b400000 };
INLINE bool is_brief(int G, bool whole) { return TABLE && !whole && G <= 128; }

INLINE __m512 add_scaled(__m512 y, __m512 dot, __m512 wscale, float ascale) { // the one rounding order of all kernels
    return _mm512_fmadd_ps(dot, _mm512_mul_ps(wscale, _mm512_set1_ps(ascale)), y);
}

INLINE __m512 add_group(__m512 y, __m512i dot, __m512 wscale, float ascale) {
    return add_scaled(y, _mm512_cvtepi32_ps(dot), wscale, ascale);
}

INLINE __mmask16 columns(int64_t n, int64_t t) { // of tile t that are in the result
    const int64_t left = n - t * LQ_X86_ROWS;
    return left >= 16 ? 0xffff : (__mmask16)((1u << left) - 1);
}

// Groups of `whole` are added as integers, which join y behind the last group of a span. Only a tile that is part of K,
// or has groups, has more than one span of code sums.
INLINE bool span_ends(const cut *c, int g) { return g + 1 == c->groups || (g + 1) % c->span == 0; }
INLINE __m512i code_sums(const cut *c, int64_t t, int g) {
    const int32_t *sum = c->xzero ? c->code_sum + (t + g / c->span) * LQ_X86_ROWS : NULL;
    return sum ? _mm512_maskz_loadu_epi32(columns(c->n, t), sum) : _mm512_setzero_si512();
}

// Sums of the activations of up to 16 rows from m on over the groups of the span that ends with g.
INLINE void span_sums(const cut *c, int g, int m, const int rows, int32_t to[16]) {
    const __mmask16 some = (__mmask16)((1u << rows) - 1);
    __m512i sum = _mm512_setzero_si512();
    for (int i = g / c->span * c->span; i <= g; i++)
        sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(some, c->xsum + (size_t)i * (size_t)c->all + (size_t)m));
    _mm512_store_si512(to, sum);
}

// A dot of row m and tile t that ends with group g, added to y. xsum: of the activations; codes: sums of these, where
// activations have a zero point.
INLINE __m512 add_dot(const cut *c, __m512 y, __m512i dot, int64_t t, int g, int m, int32_t xsum, __m512 scale,
                      __m512i codes, const int bits, const int G, const bool whole, const bool asym) {
    const float ascale = c->xscale[(size_t)g * (size_t)c->all + (size_t)m];
    if (is_brief(G, whole)) {
        const __m512 base = _mm512_castsi512_ps(_mm512_set1_epi32(BRIEF + xsum * c->book->most));
        return add_scaled(y, _mm512_sub_ps(_mm512_castsi512_ps(dot), base), scale, ascale);
    }
    dot = centre(c, dot, t, g, xsum, bits, !whole && G <= 256, asym);
    if (whole && c->xzero) dot = _mm512_sub_epi32(dot, _mm512_mullo_epi32(codes, _mm512_set1_epi32(c->xzero[m])));
    return add_group(y, dot, scale, ascale);
}

// That of a group alone.
INLINE __m512 add_own(const cut *c, __m512 y, __m512i dot, int64_t t, int g, int m, __m512 scale, const int bits,
                      const int G, const bool asym) {
    const int32_t xsum = c->xsum[(size_t)g * (size_t)c->all + (size_t)m];
    return add_dot(c, y, dot, t, g, m, xsum, scale, _mm512_setzero_si512(), bits, G, false, asym);
}

// What the sums of a row of a tile begin with.
INLINE __m512 begin(const cut *c, const float *y, __mmask16 some) {
    return c->more ? _mm512_maskz_loadu_ps(some, y) : _mm512_setzero_ps();
}

// Sums of M rows of a tile: several of each where there are registers for them, which hides vpdpbusd's latency, and up
// to 4 rows one for each nibble. High nibbles are not shifted down then: they give 16 * code, and their sum is shifted
// once, which is exact. (Not where codes are looked up.) Where groups are short the next one hides it: `alone`.
typedef struct dots { __m512i h[TALL][2], l[FEW_ROWS][2]; } dots;
INLINE void dots_begin(dots *s, const bool brief, const bool alone, const int M) {
    const __m512i zero = _mm512_setzero_si512(), begin = _mm512_set1_epi32(brief ? BRIEF : 0);
    EACH (int m = 0; m < M; m++) {
        s->h[m][0] = begin;
        if (M <= FEW_ROWS && !alone) s->h[m][1] = s->l[m][0] = s->l[m][1] = zero;
    }
}

INLINE __m512i dots_whole(const dots *s, const int m, const int bits, const bool alone, const int M) {
    if (M > FEW_ROWS || alone) return s->h[m][0];
    __m512i dot = M <= 2 ? _mm512_add_epi32(s->h[m][0], s->h[m][1]) : s->h[m][0];
    if (bits == 4 && !TABLE) dot = _mm512_srai_epi32(dot, 4);
    return _mm512_add_epi32(dot, M <= 2 ? _mm512_add_epi32(s->l[m][0], s->l[m][1]) : s->l[m][0]);
}

// What is asked for of the lines behind those at hand. A processor that has its hands full looks ahead too little, and
// forgets what it is asked for: all of a stream is, from afar and again. Bytes of few rows leave it time enough but for
// their pages: PAGES, a line of each group from afar, so that its page is found, and the machine's own reading ahead
// begun there, in time. passing: lines whose turn comes once go to the first cache and nowhere else.
typedef enum asks { PAGES, TWICE, STREAMED } asks;

INLINE void line_ask(const uint8_t *q, const asks how, bool passing) {
    if (how == STREAMED) _mm_prefetch((const char *)q + STREAM_AHEAD, _MM_HINT_T0);
    if (how == TWICE && passing) {
        _mm_prefetch((const char *)q + FAR_BYTES, _MM_HINT_NTA);
        _mm_prefetch((const char *)q + AHEAD_BYTES, _MM_HINT_NTA);
    } else if (how == TWICE) {
        _mm_prefetch((const char *)q + FAR_BYTES, _MM_HINT_T1);
        _mm_prefetch((const char *)q + AHEAD_BYTES, _MM_HINT_T1);
    }
}

// Field f of CODES_K k of one tile; against up to FEW_ROWS rows high nibbles stay where they are.
INLINE __m512i field_of(const uint8_t *q, const int f, __m512i look, const int bits, const int M) {
    const __m512i nibble[2] = {_mm512_set1_epi8(0x0f), _mm512_set1_epi8((char)0xf0)};
    const bool in_place = bits == 4 && M <= FEW_ROWS && !TABLE;
    const __m512i v = in_place ? _mm512_and_si512(_mm512_loadu_si512(q + f / 2 * 64), nibble[f & 1])
                               : codes_4k(q, bits, f);
    return TABLE ? _mm512_shuffle_epi8(look, v) : v;
}

// The first `count` of them against M rows.
INLINE void dots_more(dots *s, const uint8_t *q, const int8_t *x, __m512i look, const int bits, const asks how,
                      bool passing, const bool alone, const int M, const int G, const int count) {
    const int lines = CODES_K(bits) * bits / 32;
    EACH (int f = 0; f < count; f++) {
        const __m512i v = field_of(q, f, look, bits, M);
        if (f < lines) line_ask(q + f * 64, how, passing);
        const bool low = M <= FEW_ROWS && !alone && f % 2 == 0;
        const int second = M <= 2 && !alone ? f >> 1 & 1 : 0;
        EACH (int m = 0; m < M; m++)
            dot4_from(low ? &s->l[m][second] : &s->h[m][second], v, x + m * G + f * 4);
    }
}

// The last one, of more than JOIN_ROWS rows; each row's sum joins y.
INLINE void dots_last(const cut *c, dots *s, __m512 y[TALL], const uint8_t *q, const int8_t *x, int64_t t, int g,
                      int m0, __m512i look, const int bits, const bool quick, const int M, const int G,
                      const bool asym) {
    const int f = CODES_K(bits) / 4 - 1;
    const __m512 scale = scales_of(c, t, g, TABLE, quick);
    const __m512i v = field_of(q, f, look, bits, M);
    if (bits == 8) line_ask(q + f * 64, TWICE, c->passing);
    EACH (int m = 0; m < M; m++) {
        dot4_from(&s->h[m][0], v, x + m * G + f * 4);
        y[m] = add_own(c, y[m], s->h[m][0], t, g, m0 + m, scale, bits, G, asym);
    }
}

INLINE __m512i look_of(const cut *c) {
    return _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)(const void *)c->look));
}

INLINE void thin(const cut *c, int64_t t, int m0, float *y, size_t ldy, __mmask16 some, const int bits, const int M,
                 const int G, const bool whole, const bool quick) {
    const int K = CODES_K(bits);
    const uint8_t *q = c->q + (size_t)t * c->q_tile;
    __m512 f[TALL];
    _Alignas(64) int32_t sums[16];
    const __m512i look = look_of(c);
    const bool brief = is_brief(G, whole);
    dots s;
    bool begins = true;
    y += (size_t)m0 * ldy + (size_t)t * 16;
    EACH (int m = 0; m < M; m++) f[m] = begin(c, y + (size_t)m * ldy, some);
    for (int g = 0; g < c->groups; g++) {
        const int8_t *x = c->x + ((size_t)g * (size_t)c->all + (size_t)m0) * (size_t)G;
        if (begins) dots_begin(&s, brief, quick, M);
        // Scales are a stream too thin for the machine to look ahead in.
        if (M <= FEW_ROWS && c->scale_group)
            _mm_prefetch((const char *)scales_at(c, t, g) + SCALE_AHEAD, _MM_HINT_T0);
        const asks how = bits == 8 && M < FEW_ROWS ? PAGES : TWICE;
        if (how == PAGES) _mm_prefetch((const char *)q + PAGES_AHEAD, _MM_HINT_T1);
        const bool rows = M > JOIN_ROWS && !whole; // join y one by one
        ROLLED for (int k = rows ? K : 0; k < G; k += K, q += K * 2 * bits, x += K)
            dots_more(&s, q, x, look, bits, how, c->passing, quick, M, G, K / 4);
        if (rows) {
            dots_more(&s, q, x, look, bits, how, c->passing, quick, M, G, K / 4 - 1);
            if (!TABLE && c->zero) dots_last(c, &s, f, q, x, t, g, m0, look, bits, quick, M, G, true);
            else dots_last(c, &s, f, q, x, t, g, m0, look, bits, quick, M, G, false);
            q += K * 2 * bits;
            continue;
        }
        begins = !whole || span_ends(c, g);
        if (!begins) continue;
        const __m512 scale = scales_of(c, t, g, TABLE, quick);
        const __m512i codes = whole ? code_sums(c, t, g) : _mm512_setzero_si512();
        const int32_t *xsum = whole ? sums : c->xsum + (size_t)g * (size_t)c->all + (size_t)m0;
        if (whole) span_sums(c, g, m0, M, sums);
        EACH (int m = 0; m < M; m++) {
            const __m512i dot = dots_whole(&s, m, bits, quick, M);
            f[m] = add_dot(c, f[m], dot, t, g, m0 + m, xsum[m], scale, codes, bits, G, whole, c->zero);
        }
    }
    EACH (int m = 0; m < M; m++) _mm512_mask_storeu_ps(y + (size_t)m * ldy, some, f[m]);
}

// Field n of CODES_K k of two tiles, which lie at q and r, against row m.
INLINE void pair_dot(__m512i s[2][PAIR], __m512i v, __m512i w, const int8_t *x, const int n, const int m, const int G) {
    const __m512i quads = quad_of(x + m * G + n * 4);
    dot4(&s[0][m], v, quads);
    dot4(&s[1][m], w, quads);
}

// The first `count` of them against PAIR rows.
INLINE void pair_more(__m512i s[2][PAIR], const uint8_t *q, const uint8_t *r, const int8_t *x, __m512i look,
                      const int bits, const int G, const int count) {
    EACH (int n = 0; n < count; n++) {
        const __m512i v = field_of(q, n, look, bits, PAIR), w = field_of(r, n, look, bits, PAIR);
        EACH (int m = 0; m < PAIR; m++) pair_dot(s, v, w, x, n, m, G);
    }
}

// The last one; each row's sums join y.
INLINE void pair_last(const cut *c, __m512i s[2][PAIR], __m512 y[2][PAIR], const uint8_t *q, const uint8_t *r,
                      const int8_t *x, int64_t t, int g, int m0, __m512i look, const int bits, const int G,
                      const bool quick, const bool asym) {
    const int n = CODES_K(bits) / 4 - 1;
    const __m512 scale[2] = {scales_of(c, t, g, TABLE, quick), scales_of(c, t + 1, g, TABLE, quick)};
    const __m512i v = field_of(q, n, look, bits, PAIR), w = field_of(r, n, look, bits, PAIR);
    EACH (int m = 0; m < PAIR; m++) {
        pair_dot(s, v, w, x, n, m, G);
        EACH (int i = 0; i < 2; i++)
            y[i][m] = add_own(c, y[i][m], s[i][m], t + i, g, m0 + m, scale[i], bits, G, asym);
    }
}

// Of tiles that are in the second cache: nothing is asked for.
INLINE void pair(const cut *c, int64_t t, int m0, float *y, size_t ldy, __mmask16 some, const int bits, const int G,
                 const bool whole, const bool quick) {
    const __mmask16 columns_of[2] = {0xffff, some};
    const int K = CODES_K(bits);
    const uint8_t *q = c->q + (size_t)t * c->q_tile;
    const __m512i look = look_of(c);
    const bool brief = is_brief(G, whole);
    __m512 f[2][PAIR];
    __m512i s[2][PAIR];
    _Alignas(64) int32_t sums[16];
    bool begins = true;
    y += (size_t)m0 * ldy + (size_t)t * 16;
    EACH (int i = 0; i < 2; i++)
        EACH (int m = 0; m < PAIR; m++) f[i][m] = begin(c, y + (size_t)m * ldy + i * 16, columns_of[i]);
    for (int g = 0; g < c->groups; g++) {
        const int8_t *x = c->x + ((size_t)g * (size_t)c->all + (size_t)m0) * (size_t)G;
        if (begins) EACH (int m = 0; m < PAIR; m++) s[0][m] = s[1][m] = _mm512_set1_epi32(brief ? BRIEF : 0);
        ROLLED for (int k = whole ? 0 : K; k < G; k += K, q += K * 2 * bits, x += K)
            pair_more(s, q, q + c->q_tile, x, look, bits, G, K / 4);
        if (!whole) {
            pair_more(s, q, q + c->q_tile, x, look, bits, G, K / 4 - 1);
            if (!TABLE && c->zero) pair_last(c, s, f, q, q + c->q_tile, x, t, g, m0, look, bits, G, quick, true);
            else pair_last(c, s, f, q, q + c->q_tile, x, t, g, m0, look, bits, G, quick, false);
            q += K * 2 * bits;
            continue;
        }
        begins = span_ends(c, g);
        if (!begins) continue;
        span_sums(c, g, m0, PAIR, sums);
        EACH (int i = 0; i < 2; i++) {
            const __m512 scale = scales_of(c, t + i, g, TABLE, quick);
            const __m512i codes = code_sums(c, t + i, g);
            EACH (int m = 0; m < PAIR; m++)
                f[i][m] = add_dot(c, f[i][m], s[i][m], t + i, g, m0 + m, sums[m], scale, codes, bits, G, true, c->zero);
        }
    }
    EACH (int i = 0; i < 2; i++)
        EACH (int m = 0; m < PAIR; m++)
            _mm512_mask_storeu_ps(y + (size_t)m * ldy + i * 16, columns_of[i], f[i][m]);
}

// Four tiles, group by group in turn; y and the integers of a span wait in memory.
INLINE void few(const cut *c, int64_t t0, int m0, float *y, size_t ldy, __mmask16 tail, const int bits, const int M,
                const int G, const bool whole, const bool quick) {
    _Alignas(64) float f[STREAMS][FEW_ROWS][16];
    _Alignas(64) int32_t sum[STREAMS][FEW_ROWS][16], sums[16];
    const __m512i look = look_of(c);
    const bool brief = is_brief(G, whole);
    y += (size_t)m0 * ldy + (size_t)t0 * 16;
    EACH (int t = 0; t < STREAMS; t++)
        EACH (int m = 0; m < M; m++) {
            _mm512_store_ps(f[t][m], begin(c, y + (size_t)m * ldy + t * 16, t == STREAMS - 1 ? tail : 0xffff));
            if (whole) _mm512_store_si512(sum[t][m], _mm512_setzero_si512());
        }
    for (int g = 0; g < c->groups; g++) {
        const bool ends = !whole || span_ends(c, g);
        const int32_t *xsum = whole ? sums : c->xsum + (size_t)g * (size_t)c->all + (size_t)m0;
        if (whole && ends) span_sums(c, g, m0, M, sums);
        ROLLED for (int t = 0; t < STREAMS; t++) {
            const uint8_t *q = c->q + (size_t)(t0 + t) * c->q_tile + (size_t)g * (size_t)(G * 2 * bits);
            const int8_t *x = c->x + ((size_t)g * (size_t)c->all + (size_t)m0) * (size_t)G;
            dots s;
            dots_begin(&s, brief, quick, M);
            ROLLED for (int k = 0; k < G; k += CODES_K(bits), q += CODES_K(bits) * 2 * bits, x += CODES_K(bits))
                dots_more(&s, q, x, look, bits, STREAMED, false, quick, M, G, CODES_K(bits) / 4);
            const __m512 scale = scales_of(c, t0 + t, g, TABLE, quick);
            const __m512i codes = whole && ends ? code_sums(c, t0 + t, g) : _mm512_setzero_si512();
            EACH (int m = 0; m < M; m++) {
                __m512i dot = dots_whole(&s, m, bits, quick, M);
                if (whole) {
                    dot = _mm512_add_epi32(dot, _mm512_load_si512(sum[t][m]));
                    _mm512_store_si512(sum[t][m], ends ? _mm512_setzero_si512() : dot);
                }
                if (!ends) continue;
                const __m512 y0 = _mm512_load_ps(f[t][m]);
                _mm512_store_ps(f[t][m], add_dot(c, y0, dot, t0 + t, g, m0 + m, xsum[m], scale, codes, bits, G, whole,
                                                 c->zero));
            }
        }
        __asm__ volatile("" ::: "memory");
    }
    EACH (int t = 0; t < STREAMS; t++)
        EACH (int m = 0; m < M; m++)
            _mm512_mask_storeu_ps(y + (size_t)m * ldy + t * 16, t == STREAMS - 1 ? tail : 0xffff,
                                  _mm512_load_ps(f[t][m]));
}

// Every height and the usual groups as constants, 16 where scales are `quick`. GROUP 0 is any other one, `whole` or not
// (and all under a sanitizer, to build in time); ROW is `whole` with groups of LQ_ROW_GROUP, which those of a codebook
// never are.
#define G_0 c->G
#define G_16 16
#define G_32 32
#define G_64 64
#define G_128 128
#define G_ROW LQ_ROW_GROUP
#define WHOLE_0 c->whole
#if TABLE
#define FIFTH 16
#else
#define FIFTH ROW
#endif
enum { WHOLE_16 = 0, WHOLE_32 = 0, WHOLE_64 = 0, WHOLE_128 = 0, WHOLE_ROW = 1, WAYS = 5 };
enum { QUICK_0 = 0, QUICK_16 = 1, QUICK_32 = 0, QUICK_64 = 0, QUICK_128 = 0, QUICK_ROW = 0 };
typedef void tile_fn(const cut *, int64_t t, int m, float *y, size_t ldy, __mmask16);
typedef struct tile_fns { tile_fn *thin[TALL], *few[FEW_ROWS] /* by the number of rows */, *pair; } tile_fns;
#define TILE_FN(KERNEL, GROUP, M)                                                                                      \
    static void KERNEL##GROUP##_##M(const cut *c, int64_t t, int m, float *y, size_t ldy, __mmask16 some) {            \
        KERNEL(c, t, m, y, ldy, some, BITS, M, G_##GROUP, WHOLE_##GROUP, QUICK_##GROUP);                               \
    }
#define PAIR_FN(GROUP)                                                                                                 \
    static void pair##GROUP(const cut *c, int64_t t, int m, float *y, size_t ldy, __mmask16 some) {                    \
        pair(c, t, m, y, ldy, some, BITS, G_##GROUP, WHOLE_##GROUP, QUICK_##GROUP);                                    \
    }
#define PAIR_NAME(GROUP) pair##GROUP
#define TO_4(X, KERNEL, GROUP) X(KERNEL, GROUP, 1) X(KERNEL, GROUP, 2) X(KERNEL, GROUP, 3) X(KERNEL, GROUP, 4)
#define TO_12(X, KERNEL, GROUP) TO_4(X, KERNEL, GROUP) X(KERNEL, GROUP, 5) X(KERNEL, GROUP, 6) X(KERNEL, GROUP, 7)     \
    X(KERNEL, GROUP, 8) X(KERNEL, GROUP, 9) X(KERNEL, GROUP, 10) X(KERNEL, GROUP, 11) X(KERNEL, GROUP, 12)
#define GROUP_FNS(GROUP) TO_12(TILE_FN, thin, GROUP) TO_4(TILE_FN, few, GROUP) PAIR_FN(GROUP)
#define TILE_NAME(KERNEL, GROUP, M) KERNEL##GROUP##_##M,
#define GROUP_ROW(GROUP) {{TO_12(TILE_NAME, thin, GROUP)}, {TO_4(TILE_NAME, few, GROUP)}, PAIR_NAME(GROUP)}
#ifdef LQ_SANITIZED
#define ALL_FNS GROUP_FNS(0)
#define ALL_ROWS {GROUP_ROW(0), GROUP_ROW(0), GROUP_ROW(0), GROUP_ROW(0), GROUP_ROW(0)}
#else
#define ALL_FNS GROUP_FNS(0) GROUP_FNS(32) GROUP_FNS(64) GROUP_FNS(128) GROUP_FNS(FIFTH)
#define ALL_ROWS {GROUP_ROW(0), GROUP_ROW(32), GROUP_ROW(64), GROUP_ROW(128), GROUP_ROW(FIFTH)}
#endif

// More than 12 rows: a thin part, which brings as many tiles from memory as stay in the second cache, then pairs.
INLINE void walk(const lq_weight *w, const lq_act *a, const tile_fns *all, int64_t t0, int64_t t1, int m0, int m1,
                 float *y, size_t ldy) {
    cut c = cut_of(w, a);
    const int plain = c.G == 128 ? 3 : c.G == 64 ? 2 : c.G == 32 ? 1 : c.quick && c.G == 16 ? 4 : 0;
    const tile_fns *fns = &all[!c.whole ? plain : c.G == LQ_ROW_GROUP ? 4 : 0];
    const int rows = m1 - m0, pairs = rows <= TALL ? 0 : (rows - TALL + PAIR - 1) / PAIR, first = rows - pairs * PAIR;
    c.passing = !pairs && is_zen5();
    // Intel's cores alone read several streams faster than one; Zen 4 reads them at 0.7 to 0.8 of one's rate.
    const bool streams = rows <= FEW_ROWS && !__builtin_cpu_is("amd");
    for (; streams && t1 - t0 >= STREAMS; t0 += STREAMS)
        fns->few[rows - 1](&c, t0, m0, y, ldy, columns(c.n, t0 + STREAMS - 1));
    const int64_t pass = 2 + (int64_t)(PASS_BYTES / (c.q_tile + 1)) / 2 * 2;
    for (int64_t end; t0 < t1; t0 = end) {
        end = t1 - t0 < pass ? t1 : t0 + pass;
        for (int64_t t = t0; t < end; t++) fns->thin[first - 1](&c, t, m0, y, ldy, columns(c.n, t));
        for (int m = m0 + first; m < m1; m += PAIR) {
            int64_t t = t0;
            for (; t + 2 <= end; t += 2) fns->pair(&c, t, m, y, ldy, columns(c.n, t + 1));
            if (t < end) fns->thin[PAIR - 1](&c, t, m, y, ldy, columns(c.n, t));
        }
    }
}

// The kernel of weights of this name, whose codes have so many BITS.
#define X86_UKR(OF)                                                                                                   \
    ALL_FNS                                                                                                            \
    static const tile_fns all[WAYS] = ALL_ROWS;                                                                        \
    lq_ukr_run lq_matmul_f32_q8_##OF##x86_avx512;                                                                    \
    void lq_matmul_f32_q8_##OF##x86_avx512(const lq_weight *w, const lq_act *a, int64_t t0, int64_t t1, int m0,      \
                                             int m1, float *y, size_t ldy) {                                           \
        walk(w, a, all, t0, t1, m0, m1, y, ldy);                                                                       \
    }
#endif
