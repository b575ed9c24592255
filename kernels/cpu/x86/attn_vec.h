// attn_vec.h: attention for the ISA this is compiled for. Owns nothing; refuses nothing that attn.c takes.
//
// A tile is up to TILE query vectors (rows x heads of one KV head's group) of a sequence. Per split of LQ_SPLIT
// positions K and V become cells once per tile and every product is the same small kernel, ROWS query vectors x COLS
// columns. A cell has the place of an f32: one number and its step a fused multiply-add, or with AVX-512 BF16 two of
// bf16 and its step vdpbf16ps, or (attn_amx.c) 16 cells' a product of tiles. A score is one chain of steps over dk, a
// weighted sum one chain over the split's positions, a sum of weights COLS chains by position mod COLS: none of them
// knows the tile, so a row has its bits in decode, in any prefill and on any number of threads. Positions that a row
// does not see have weight 0, which leaves a chain as it is. One row's splits may be computed by several threads (few
// rows, long cache): their results lie in the scratch and are merged in order, by the same code.
#include "kernels/cpu/attn.h"
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

#define queries_cells NAME(queries_cells)
#define dots NAME(dots)
#define kv_find NAME(kv_find)
#define k_read NAME(k_read)
#define v_read NAME(v_read)
#define kv_ask NAME(kv_ask)
#define ask_part NAME(ask_part)
#define split_range NAME(split_range)
#define split_scores NAME(split_scores)
#define biases NAME(biases)
#define score_log2 NAME(score_log2)
#define split_weigh NAME(split_weigh)
#define merge NAME(merge)
#define merge_o NAME(merge_o)
#define odd_values NAME(odd_values)
#define split_values NAME(split_values)
#define split_run NAME(split_run)
#define finish NAME(finish)
#define tile_set NAME(tile_set)
#define splits_ask NAME(splits_ask)
#define due_ask NAME(due_ask)
#define chunks_find NAME(chunks_find)
#define chunk_next NAME(chunk_next)
#define chunk_ask NAME(chunk_ask)
#define chunks_begin NAME(chunks_begin)
#define few_fits NAME(few_fits)
#define few_scores NAME(few_scores)
#define few_values NAME(few_values)
#define tile_run NAME(tile_run)
#define parts_merge NAME(parts_merge)

#if defined(__AVX512BF16__)
enum { PER = 2 }; // numbers in a cell
#else
enum { PER = 1 };
#endif
enum { TILE = 64, COLS = 2 * VEC, CELLS = 128, TASKS = 3 /* of a thread, where splits are dealt */ };
enum { DK = CELLS * PER, DEEP = CELLS * PER }; // of K at a time; positions of V at a time
#if defined(LQ_ATTN_TILES)
enum { ROWS = 16 };
#elif defined(__AVX512F__)
enum { ROWS = 8 }; // 2 * ROWS sums, 2 columns and a broadcast in 32 registers, or in 16
#else
enum { ROWS = 6 };
#endif

typedef struct job {
    const lq_attn_args *a;
    int32_t *first;    // [seqs + 1] tile (and split) a sequence begins with
    bool by_split;
    int splits, group; // splits per row of `part`; query heads per KV head
    int tasks, each;   // by_split: tasks of a tile, splits of one
    lq_partial *part;  // [rows][heads][splits]
    float *part_o;     // [rows][heads][splits][dv]
} job;

// Where VEC positions of K or V lie behind each other, in a page; those of a block that was freed are one that is 0.
typedef struct chunk {
    const char *p;
    size_t row;          // bytes from position to position
    const float *scales; // of each, or NULL
} chunk;

// Chunks of K and V of the split that is met and of the next one, at[split & 1] those of split has[split & 1]. Up to
// where they have been asked for: positions from .. j of those to `end` of a split, of all to `stop`; how many chunks
// have not been met yet, and may be.
typedef struct asked {
    int from, j, end, stop, ahead, most, split, has[2];
    bool v;
    size_t bytes; // of a chunk
    chunk at[2][2][LQ_SPLIT / VEC];
} asked;

typedef struct tile {
    int n, groups, kv_head, seq;
    int first, last;   // position that anyone sees
    int low[TILE / ROWS + 1], high[TILE / ROWS + 1]; // what each ROWS of them see of a split; low a multiple of COLS
    const float *q[TILE];
    float *y[TILE];
    int row[TILE], head[TILE];
    lq_sight see[TILE];
    float all_m[TILE], all_l[TILE], m[TILE], l[TILE], old[TILE], new[TILE];
    bool few;          // attn_few.h
    asked asked;
    _Alignas(64) float p[TILE][LQ_SPLIT]; // scores, then cells of weights
    _Alignas(64) float o[TILE][COLS];
    _Alignas(64) float kv[CELLS][COLS];   // cells of V, or of K across
    const char *at[DEEP];                 // where the numbers of some positions lie, and what they are times
    float by[DEEP];
#if defined(__AVX512BF16__)
    _Alignas(64) float q_cells[TILE][CELLS];
#endif
} tile;

// --- cells ---

#if defined(__AVX512BF16__)
INLINE __m512bh pairs(vf x) { return (__m512bh)_mm512_castps_si512(x); }
INLINE vf step(vf a, vf b, vf c) { return _mm512_dpbf16_ps(c, pairs(a), pairs(b)); }
INLINE vf narrow(vf low, vf high) { return _mm512_castsi512_ps((__m512i)_mm512_cvtne2ps_pbh(high, low)); }
INLINE vf seen(vf p, vf v) { // those of v whose weight is not 0
    const __mmask32 m = _mm512_test_epi16_mask(_mm512_castps_si512(p), _mm512_set1_epi16(0x7fff));
    return _mm512_castsi512_ps(_mm512_maskz_mov_epi16(m, _mm512_castps_si512(v)));
}

INLINE vf odd_of(vf x) { // the top bit of a half is set where a number is NaN or infinite
    const __m512i top = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi16(0x7f80));
    return _mm512_castsi512_ps(_mm512_add_epi16(top, _mm512_set1_epi16(0x80)));
}

INLINE bool odd_any(vf x) { return _mm512_movepi16_mask(_mm512_castps_si512(x)) != 0; }

// Weights of positions j .. j + COLS into the cells of p, and as they are there: first ones of cells, second ones.
INLINE void weights_store(float *p, int j, vf e[2]) {
    const __m512i x = _mm512_castps_si512(narrow(e[0], e[1]));
    _mm512_storeu_si512(p + j / PER, x);
    e[0] = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    e[1] = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
}

// Two positions become cells of both.
INLINE void positions(vf to[2], vf first, vf second) {
    const __m512i a = _mm512_castps_si512(first), b = _mm512_castps_si512(second);
    const __m512i from = _mm512_set_epi32( // word i of a, then of b
        0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007, 0x260006, 0x250005,
        0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    to[0] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, from, b));
    to[1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, _mm512_add_epi16(from, _mm512_set1_epi16(16)), b));
}
#else
INLINE vf step(vf a, vf b, vf c) { return vf_fma(a, b, c); }
INLINE vf seen(vf p, vf v) { return vf_pick(vf_equal(p, vf_zero()), vf_zero(), v); }
INLINE vf odd_of(vf x) { return vf_sub(x, x); } // 0, or NaN
INLINE bool odd_any(vf x) { return vf_any_nan(x); }
INLINE void weights_store(float *p, int j, vf e[2]) { EACH (int h = 0; h < 2; h++) vf_store(p + j + h * VEC, e[h]); }

INLINE void positions(vf to[2], vf low, vf high) { to[0] = low, to[1] = high; }
#endif

// --- the kernel: c[r][0..COLS) += sum over k cells of a[r][i] b[i][0..COLS), or = ---
// (By tiles rows of a and of c are a_row and c_row floats apart, and 16 of them are there, whatever the others hold; so
// are 16 cells where k is no multiple, of which those behind k are 0 in a or in b, and numbers in both.)

#if defined(LQ_ATTN_TILES)
static void dots(int rows, int k, const float *const *a, size_t a_row, const float *b, float *const *c, size_t c_row,
                 bool more) {
    const size_t across = COLS * sizeof *b;
    (void)rows;
    if (more) {
        tile_load(0, c[0], c_row * sizeof *b);
        tile_load(1, c[0] + VEC, c_row * sizeof *b);
    } else {
        tile_zero(0);
        tile_zero(1);
    }
    for (int i = 0; i < k; i += VEC, b += VEC * COLS) {
        tile_load(4, a[0] + i, a_row * sizeof *b);
        tile_load(6, b, across);
        tile_load(7, b + VEC, across);
        tile_dot_bf16(0, 4, 6);
        tile_dot_bf16(1, 4, 7);
    }
    tile_store(0, c[0], c_row * sizeof *b);
    tile_store(1, c[0] + VEC, c_row * sizeof *b);
}
#else
INLINE void dot_rows(const int rows, int k, const float *const *a, const float *b, float *const *c, bool more) {
    vf s[ROWS], t[ROWS];
    EACH (int r = 0; r < rows; r++) {
        s[r] = more ? vf_load(c[r]) : vf_zero();
        t[r] = more ? vf_load(c[r] + VEC) : vf_zero();
    }
    for (int i = 0; i < k; i++, b += COLS) {
        vf u = vf_load(b), v = vf_load(b + VEC);
        EACH (int r = 0; r < rows; r++) {
            vf x = vf_set(a[r][i]);
            s[r] = step(x, u, s[r]);
            t[r] = step(x, v, t[r]);
        }
    }
    EACH (int r = 0; r < rows; r++) {
        vf_store(c[r], s[r]);
        vf_store(c[r] + VEC, t[r]);
    }
}

static void dots(int rows, int k, const float *const *a, size_t a_row, const float *b, float *const *c, size_t c_row,
                 bool more) {
    (void)a_row, (void)c_row;
    switch (rows) {
    case 1: dot_rows(1, k, a, b, c, more); break;
    case 2: dot_rows(2, k, a, b, c, more); break;
    case 3: dot_rows(3, k, a, b, c, more); break;
    case 4: dot_rows(4, k, a, b, c, more); break;
    case 5: dot_rows(5, k, a, b, c, more); break;
#if defined(__AVX512F__)
    case 6: dot_rows(6, k, a, b, c, more); break;
    case 7: dot_rows(7, k, a, b, c, more); break;
#endif
    default: dot_rows(ROWS, k, a, b, c, more);
    }
}
#endif

// --- K and V as cells ---

static inline vf widen(lq_dtype type, const void *p) {
    switch (type) {
    case LQ_F16: return vf_of_f16(p);
    case LQ_BF16: return vf_of_bf16(p);
    case LQ_I8: return vf_of_i8(p);
    case LQ_E4M3: return vf_of_e4m3(p);
    default: return vf_load(p);
    }
}

INLINE size_t bytes_of(const lq_dtype type) { return type == LQ_F32 ? 4 : type == LQ_I8 || type == LQ_E4M3 ? 1 : 2; }

// VEC cells of what lies at p.
INLINE vf cells_of(const lq_dtype type, const char *p, vf by) {
    const bool scaled = type == LQ_I8 || type == LQ_E4M3;
#if defined(__AVX512BF16__)
    if (type == LQ_BF16) return vf_load((const float *)(const void *)p);
    vf low = widen(type, p), high = widen(type, p + VEC * bytes_of(type));
    return scaled ? narrow(vf_mul(low, by), vf_mul(high, by)) : narrow(low, high);
#else
    return scaled ? vf_mul(widen(type, p), by) : widen(type, p);
#endif
}

// The same of the n numbers at p, none of which is behind the last one; then 0.
INLINE vf cells_first(const lq_dtype type, const char *p, int n, vf by) {
    char rest[VEC * PER * 4] = {0};
    memcpy(rest, p, (size_t)n * bytes_of(type));
    return cells_of(type, rest, by);
}

// VEC cells of what there is of n numbers, which may be none.
INLINE vf cells_some(const lq_dtype type, const char *p, int n, vf by) {
    return n >= VEC * PER ? cells_of(type, p, by) : n > 0 ? cells_first(type, p, n, by) : vf_zero();
}

// to[c][i] = r[i][c], VEC x VEC; r is spoilt.
#if defined(__AVX512F__)
INLINE void across(vf r[VEC], vf to[VEC]) {
    __m512 s[16];
    EACH (int i = 0; i < 16; i += 2)
        s[i] = _mm512_unpacklo_ps(r[i], r[i + 1]), s[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    EACH (int i = 0; i < 16; i += 4)
        EACH (int h = 0; h < 2; h++) {
            __m512d x = _mm512_castps_pd(s[i + h]), y = _mm512_castps_pd(s[i + 2 + h]);
            r[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            r[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    EACH (int i = 0; i < 4; i++) { // quarter q of r[4 b + i] has column 4 q + i of rows 4 b .. 4 b + 3
        __m512 a = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88), b = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        __m512 c = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd), d = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
        to[i] = _mm512_shuffle_f32x4(a, b, 0x88), to[8 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
        to[4 + i] = _mm512_shuffle_f32x4(c, d, 0x88), to[12 + i] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
}
#else
INLINE void across(vf r[VEC], vf to[VEC]) {
    __m256 s[8];
    EACH (int i = 0; i < 4; i++) { // rows i and i + 4 side by side, columns 0-3 and 4-7
        __m256 x = r[i], y = r[i + 4];
        r[i] = _mm256_permute2f128_ps(x, y, 0x20);
        r[i + 4] = _mm256_permute2f128_ps(x, y, 0x31);
    }
    EACH (int h = 0; h < 8; h += 4) {
        s[h] = _mm256_unpacklo_ps(r[h], r[h + 1]), s[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        s[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]), s[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        to[h] = _mm256_shuffle_ps(s[h], s[h + 2], 0x44);
        to[h + 1] = _mm256_shuffle_ps(s[h], s[h + 2], 0xee);
        to[h + 2] = _mm256_shuffle_ps(s[h + 1], s[h + 3], 0x44);
        to[h + 3] = _mm256_shuffle_ps(s[h + 1], s[h + 3], 0xee);
    }
}
#endif

static const _Alignas(64) char zeros[CELLS * COLS]; // more bytes than a position has at a time

// From position `at` of page i on, up to its end.
INLINE chunk chunk_at(const lq_attn_args *a, const tile *t, bool v, int i, int at) {
    const lq_cache *c = &a->cache;
    const int32_t block = lq_rows_table(a->rows, t->seq)[i];
    const size_t row = (size_t)lq_cache_width(c, v) * lq_cache_bytes(c);
    if (block < 0) return (chunk){.p = zeros};
    return (chunk){.p = lq_cache_at(c, block, t->kv_head, v) + (size_t)at * row, .row = row,
                   .scales = c->type == LQ_I8 ? lq_cache_scale(c, block, t->kv_head, v) + at : NULL};
}

// Finds the numbers from d0 on of positions j .. j + n; then zeros, up to `all`.
static void kv_find(const lq_attn_args *a, tile *t, bool v, int j, int n, int all, int d0) {
    const size_t skip = (size_t)d0 * lq_dtype_size(a->cache.type);
    const float by = lq_cache_head_scale(&a->cache, t->kv_head, v);
    for (int i = n; i < all; i++) t->at[i] = zeros, t->by[i] = 0;
    for (int i = 0; i < n;) {
        const int at = (j + i) % a->cache.page, left = a->cache.page - at, end = left < n - i ? i + left : n;
        const chunk c = chunk_at(a, t, v, (j + i) / a->cache.page, at);
        const char *p = c.row ? c.p + skip : c.p;
        for (int k = 0; i < end; i++, k++, p += c.row) t->at[i] = p, t->by[i] = c.scales ? c.scales[k] : by;
    }
}

// What was found of COLS positions of K, `width` numbers of each, across.
INLINE void k_typed(const lq_dtype type, tile *t, int width) {
    for (int d = 0; d < width; d += VEC * PER)
        for (int r = 0; r < COLS; r += VEC) {
            const size_t skip = (size_t)d * bytes_of(type);
            vf x[VEC], k[VEC];
            if (width - d >= VEC * PER)
                EACH (int i = 0; i < VEC; i++) x[i] = cells_of(type, t->at[r + i] + skip, vf_set(t->by[r + i]));
            else
                for (int i = 0; i < VEC; i++)
                    x[i] = cells_first(type, t->at[r + i] + skip, width - d, vf_set(t->by[r + i]));
            across(x, k);
            EACH (int i = 0; i < VEC; i++) vf_store(&t->kv[d / PER + i][r], k[i]);
        }
}

// What was found of n positions of V, `width` numbers of each, COLS at most; then 0. Returns whether any is NaN or
// infinite.
INLINE bool v_typed(const lq_dtype type, tile *t, int n, int width) {
    vf odd = vf_zero();
    for (int i = 0; i < n; i += PER) {
        vf x[2]; // of PER positions, COLS numbers each
        EACH (int h = 0; h < 2; h++) {
            const int k = PER == 2 ? i + h : i, d = PER == 2 ? 0 : h * VEC;
            const char *p = t->at[k] + (size_t)d * bytes_of(type);
            x[h] = cells_some(type, p, width - d, vf_set(t->by[k]));
            odd = vf_or(odd, odd_of(x[h]));
        }
        positions(x, x[0], x[1]);
        EACH (int h = 0; h < 2; h++) vf_store(t->kv[i / PER] + h * VEC, x[h]);
    }
    return odd_any(odd);
}

static void k_read(const lq_attn_args *a, tile *t, int j, int n, int d0, int width) {
    kv_find(a, t, false, j, n, COLS, d0);
    switch (a->cache.type) {
    case LQ_F16: k_typed(LQ_F16, t, width); break;
    case LQ_BF16: k_typed(LQ_BF16, t, width); break;
    case LQ_I8: k_typed(LQ_I8, t, width); break;
    case LQ_E4M3: k_typed(LQ_E4M3, t, width); break;
    default: k_typed(LQ_F32, t, width);
    }
}

static bool v_read(const lq_attn_args *a, tile *t, int j, int n, int d0, int width) {
    kv_find(a, t, true, j, n, (n + PER - 1) / PER * PER, d0);
    switch (a->cache.type) {
    case LQ_F16: return v_typed(LQ_F16, t, n, width);
    case LQ_BF16: return v_typed(LQ_BF16, t, n, width);
    case LQ_I8: return v_typed(LQ_I8, t, n, width);
    case LQ_E4M3: return v_typed(LQ_E4M3, t, n, width);
    default: return v_typed(LQ_F32, t, n, width);
    }
}

// Asks for the K or V of positions j .. j + n, none behind `last`: pages are too short for the
// machine to foresee the next one.
static void kv_ask(const lq_attn_args *a, const tile *t, bool v, int j, int n, int last) {
    const int page = a->cache.page, end = j + n <= last ? j + n : last + 1;
    for (int at = j % page, some; j < end; j += some, at = 0) {
        const chunk c = chunk_at(a, t, v, j / page, at);
        some = page - at < end - j ? page - at : end - j;
        for (size_t i = 0; i < (size_t)some * c.row; i += 64) _mm_prefetch(c.p + i, _MM_HINT_T1);
    }
}

// The next K and this V in three parts, between which is other work: what is asked for at once waits for one another,
// and what is read meanwhile for all of it.
static void ask_part(const lq_attn_args *a, const tile *t, int j, int part) {
    const int half = COLS / 2, quarter = COLS / 4;
    if (part < 2) kv_ask(a, t, false, j + COLS + part * half, half, t->last);
    if (!a->cache.v_in_k) kv_ask(a, t, true, j + part * quarter, part < 2 ? quarter : half, t->last);
}

// --- a split of a tile ---

// The positions of the split from j0 on that each ROWS query vectors see, and all of them; false: nobody sees any.
static bool split_range(tile *t, int j0, int *low, int *high) {
    *low = LQ_SPLIT, *high = 0;
    for (int g = 0; g < t->groups; g++) {
        int from = LQ_SPLIT, to = 0;
        for (int r = g * ROWS; r < t->n && r < (g + 1) * ROWS; r++) {
            int f = t->see[r].from > j0 ? t->see[r].from - j0 : 0, e = t->see[r].at + 1 - j0;
            if (e > LQ_SPLIT) e = LQ_SPLIT;
            if (f >= e) continue;
            from = f < from ? f : from;
            to = e > to ? e : to;
        }
        t->low[g] = from / COLS * COLS;
        t->high[g] = to;
        if (from >= to) t->low[g] = t->high[g] = 0;
        else {
            *low = t->low[g] < *low ? t->low[g] : *low;
            *high = to > *high ? to : *high;
        }
    }
    return *low < *high;
}

// A chunk that is asked for bit by bit: what is left of it, and how much at a time, in whole lines.
typedef struct due {
    const char *p;
    size_t left, each;
} due;

INLINE void due_ask(due *d) {
    const size_t n = d->left < d->each ? d->left : d->each;
    for (size_t at = 0; at < n; at += 64) _mm_prefetch(d->p + at, _MM_HINT_T1);
    d->p += n, d->left -= n;
}

// VEC cells of `width` columns of a query, or of what there is.
INLINE vf query_cells(const float *x, int width) {
#if defined(__AVX512BF16__)
    return narrow(vf_load_m(vm_first(width), x), width > VEC ? vf_load_m(vm_first(width - VEC), x + VEC) : vf_zero());
#else
    return vf_load_m(vm_first(width), x);
#endif
}

// Columns d0 .. d0 + width of the queries.
static void queries_cells(tile *t, int d0, int width, const float **q) {
#if defined(__AVX512BF16__)
    for (int r = 0; r < t->n; r++) {
        for (int d = 0; d < width; d += 2 * VEC)
            vf_store(&t->q_cells[r][d / PER], query_cells(t->q[r] + d0 + d, width - d));
        q[r] = t->q_cells[r];
    }
#else
    (void)width;
    for (int r = 0; r < t->n; r++) q[r] = t->q[r] + d0;
#endif
}

#if defined(LQ_ATTN_TILES) // which have an order of their own
static bool few_fits(const lq_attn_args *a, const tile *t) { return (void)a, (void)t, false; }

static void few_scores(const lq_attn_args *a, tile *t, int j0, int low, int high) {
    (void)a, (void)t, (void)j0, (void)low, (void)high;
}

static int few_values(const lq_attn_args *a, tile *t, int j0, int low, int high, int d0) {
    return (void)a, (void)t, (void)j0, (void)low, (void)high, (void)d0, 0;
}

INLINE due chunk_due(const lq_attn_args *a, tile *t, size_t steps) { return (void)a, (void)t, (void)steps, (due){0}; }

static void chunks_begin(const lq_attn_args *a, tile *t, int from, int end, int stop) {
    (void)a, (void)t, (void)from, (void)end, (void)stop;
}
#else
#include "kernels/cpu/x86/attn_few.h"
#endif

static void split_scores(const lq_attn_args *a, tile *t, int j0, int low, int high) {
    const float *q[TILE];
    float *c[ROWS];
    for (int d0 = 0; d0 < a->cache.dk; d0 += DK) {
        int width = a->cache.dk - d0 < DK ? a->cache.dk - d0 : DK, cells = (width + PER - 1) / PER;
        queries_cells(t, d0, width, q);
        for (int j = low; j < high; j += COLS) {
            int have = high - j < COLS ? high - j : COLS;
            if (d0 == 0) ask_part(a, t, j0 + j, 0);
            k_read(a, t, j0 + j, have, d0, width);
            if (d0 == 0) ask_part(a, t, j0 + j, 1);
            for (int g = 0; g < t->groups; g++) {
                if (j < t->low[g] || j >= t->high[g]) continue;
                int rows = t->n - g * ROWS < ROWS ? t->n - g * ROWS : ROWS;
                for (int r = 0; r < rows; r++) c[r] = &t->p[g * ROWS + r][j];
                dots(rows, cells, q + g * ROWS, CELLS, t->kv[0], c, LQ_SPLIT, d0 > 0);
            }
            if (d0 == 0) ask_part(a, t, j0 + j, 2);
        }
    }
}

// What VEC positions from j on add to a score.
static vf biases(const lq_attn_args *a, int head, int at, int j) {
    float v[VEC];
    for (int i = 0; i < VEC; i++) v[i] = a->alibi_coarse ? lq_alibi(a, head, at, j + i) : (float)(j + i - at);
    return a->alibi_coarse ? vf_load(v) : vf_mul(vf_set(a->alibi[head]), vf_load(v));
}

// VEC scores from position j on as logarithms to base 2, in which all weights and maxima here are.
static vf score_log2(const lq_attn_args *a, int head, int at, int j, vf s) {
    const vf cap = vf_set(a->softcap);
    s = vf_mul(s, vf_set(a->scale));
    if (a->softcap != 0) s = vf_mul(cap, vf_tanh(vf_div(s, cap)));
    if (a->alibi) s = vf_add(s, biases(a, head, at, j));
    return vf_mul(s, vf_set(LQ_LOG2E));
}

// Scores to weights: t->p, and the maximum and sum of one query vector. Where few have a path of their own, what comes
// next is asked for meanwhile, and what the last COLS have behind the last VEC may be anything: nobody sees it.
static void split_weigh(const lq_attn_args *a, tile *t, int r, int j0, int low, int high) {
    const bool plain = a->softcap == 0 && !a->alibi && a->scale > 0; // then the largest is known before it is scaled
    const float by = plain ? a->scale * LQ_LOG2E : 1;
    vf most = vf_set(-FLT_MAX), sum[2] = {vf_zero(), vf_zero()};
    float *p = t->p[r];
    const lq_sight *see = &t->see[r]; // nearly always of all, from here to there:
    const int from = see->from - j0, to = (see->at < see->tree_base ? see->at + 1 : see->tree_base) - j0 - COLS;
    due next = {0};
    if (t->few) next = chunk_due(a, t, LQ_SPLIT / COLS);
    for (int j = low; j < high; j += COLS) {
        EACH (int h = 0, i = j; h < 2; h++, i += VEC) {
            vf s = vf_load(p + i);
            if (!plain) vf_store(p + i, s = score_log2(a, t->head[r], see->at, j0 + i, s));
            // NaN stays out: its weight is NaN all the same
            if (from <= j && j <= to) most = vf_max(s, most);
            else most = vf_pick(vm_bits(lq_sight_mask(see, j0 + i)), vf_max(s, most), most);
        }
        due_ask(&next);
    }
    const float top = vf_most(most), m = top * by;
    t->m[r] = top > -FLT_MAX && m > -FLT_MAX ? m : -FLT_MAX;
    most = vf_set(top);
    if (t->few) next = chunk_due(a, t, LQ_SPLIT / COLS);
    for (int j = low; j < high; j += COLS) {
        vf e[2];
        EACH (int h = 0, i = j; h < 2; h++, i += VEC) {
            e[h] = vf_exp2(vf_mul(vf_sub(vf_load(p + i), most), vf_set(by)));
            if (j < from || j > to) e[h] = vf_only(vm_bits(lq_sight_mask(see, j0 + i)), e[h]);
        }
        weights_store(p, j, e);
        EACH (int h = 0; h < 2; h++) sum[h] = vf_add(sum[h], e[h]);
        due_ask(&next);
    }
    t->l[r] = vf_sum(vf_add(sum[0], sum[1]));
}

// m and l of VEC query vectors take in those of a split; what there is is worth `old` from now on, the split's `new`.
static void merge(float *all_m, float *all_l, const float *m, const float *l, float *old, float *new) {
    vf a = vf_load(all_m), b = vf_load(m), c = vf_max(b, a), u = vf_exp2(vf_sub(a, c)), v = vf_exp2(vf_sub(b, c));
    vf_store(all_m, c);
    vf_store(all_l, vf_fma(vf_load(l), v, vf_mul(vf_load(all_l), u)));
    vf_store(old, u);
    vf_store(new, v);
}

static void merge_o(float *y, const float *o, int n, float old, float new) {
    for (int d = 0; d < n; d += VEC) {
        vm m = vm_first(n - d);
        vf_store_m(m, y + d, vf_fma(vf_load_m(m, o + d), vf_set(new), vf_mul(vf_load_m(m, y + d), vf_set(old))));
    }
}

// With NaN or infinity among the V of a tile: what a row does not see must not reach it even times 0.
#if defined(LQ_ATTN_TILES)
static void odd_values(const float *p, const float *v, int cells, float *o) { // 16 cells at a time, of one row
    _Alignas(64) float seen_v[VEC][COLS], weights[ROWS][VEC] = {{0}}, sums[ROWS][COLS] = {{0}};
    const float *const a = weights[0];
    float *const c = sums[0];
    memcpy(c, o, sizeof sums[0]);
    for (int i = 0; i < cells; i += VEC) {
        vf_store(weights[0], vf_load(p + i));
        for (int k = 0; k < VEC; k++, v += COLS)
            for (int d = 0; d < COLS; d += VEC) vf_store(seen_v[k] + d, seen(vf_set(p[i + k]), vf_load(v + d)));
        dots(1, VEC, &a, VEC, seen_v[0], &c, COLS, true);
    }
    memcpy(o, c, sizeof sums[0]);
}
#else
static void odd_values(const float *p, const float *v, int cells, float *o) {
    for (int i = 0; i < cells; i++, v += COLS)
        for (int d = 0; d < COLS; d += VEC) {
            vf by = vf_set(p[i]);
            vf_store(o + d, step(by, seen(by, vf_load(v + d)), vf_load(o + d)));
        }
}
#endif

// Columns d0 .. d0 + COLS of the weighted V of a split, into t->o.
static void split_values(const lq_attn_args *a, tile *t, int j0, int low, int high, int d0) {
    int width = a->cache.dv - d0 < COLS ? a->cache.dv - d0 : COLS;
    memset(t->o, 0, (size_t)t->n * sizeof *t->o);
    for (int j = low; j < high; j += DEEP) {
        int have = high - j < DEEP ? high - j : DEEP;
        bool odd = v_read(a, t, j0 + j, have, d0, width);
#if defined(LQ_ATTN_TILES)
        for (int i = (have + PER - 1) / PER; i % VEC; i++) memset(t->kv[i], 0, sizeof t->kv[i]);
#endif
        for (int g = 0; g < t->groups; g++) {
            int from = t->low[g] > j ? t->low[g] - j : 0, to = t->high[g] - j < have ? t->high[g] - j : have;
            int rows = t->n - g * ROWS < ROWS ? t->n - g * ROWS : ROWS, cells = (to - from + PER - 1) / PER;
            const float *p[ROWS], *v = t->kv[from / PER];
            float *c[ROWS];
            if (from >= to) continue;
            for (int r = 0; r < rows; r++) {
                p[r] = &t->p[g * ROWS + r][(j + from) / PER], c[r] = t->o[g * ROWS + r];
                if (odd) odd_values(p[r], v, cells, c[r]);
            }
            if (!odd) dots(rows, cells, p, LQ_SPLIT, v, c, COLS, true);
        }
    }
}

// One split of a tile: merged into y, or kept apart.
static void split_run(const job *b, tile *t, int split) {
    const lq_attn_args *a = b->a;
    int j0 = split * LQ_SPLIT, low, high;
    if (!split_range(t, j0, &low, &high)) return;
    if (t->few) few_scores(a, t, j0, low, high);
    else split_scores(a, t, j0, low, high);
    for (int r = 0; r < t->n; r++) split_weigh(a, t, r, j0, t->low[r / ROWS], t->high[r / ROWS]);
    for (int r = 0; r < t->n && !b->by_split; r += VEC)
        merge(t->all_m + r, t->all_l + r, t->m + r, t->l + r, t->old + r, t->new + r);
    for (int d = 0, units; d < a->cache.dv; d += units * COLS) {
        units = t->few ? few_values(a, t, j0, low, high, d) : 0;
        if (!units) split_values(a, t, j0, low, high, d), units = 1;
        const int width = a->cache.dv - d < units * COLS ? a->cache.dv - d : units * COLS;
        for (int r = 0; r < t->n; r++) {
            const float *o = t->o[r * units];
            size_t at = ((size_t)t->row[r] * (size_t)a->heads + (size_t)t->head[r]) * (size_t)b->splits + (size_t)split;
            if (!b->by_split) merge_o(t->y[r] + d, o, width, t->old[r], t->new[r]);
            else memcpy(b->part_o + at * (size_t)a->cache.dv + d, o, (size_t)width * sizeof(float));
            if (b->by_split && d == 0) b->part[at] = (lq_partial){t->m[r], t->l[r]};
        }
    }
}

// y / l; a sink is one more score, with no V.
static void finish(const lq_attn_args *a, int head, float m, float l, float *y) {
    float by = 1;
    if (a->sinks) {
        float sink = a->sinks[head] * LQ_LOG2E, c = sink > m ? sink : m;
        by = vf_first(vf_exp2(vf_set(m - c)));
        l = l * by + vf_first(vf_exp2(vf_set(sink - c)));
    }
    by = l == 0 ? 0 : by / l;
    for (int d = 0; d < a->cache.dv; d += VEC) { // + 0: a zero has no sign
        vm k = vm_first(a->cache.dv - d);
        vf_store_m(k, y + d, vf_fma(vf_load_m(k, y + d), vf_set(by), vf_zero()));
    }
}

static void tile_set(const job *b, tile *t, int seq, int index, int kv_head) {
    const lq_attn_args *a = b->a;
    int first = a->rows->first[seq], all = (a->rows->first[seq + 1] - first) * b->group, from = index * TILE;
    t->seq = seq, t->kv_head = kv_head;
    t->n = all - from < TILE ? all - from : TILE;
    t->groups = (t->n + ROWS - 1) / ROWS;
    for (int r = 0; r < TILE; r++) t->all_m[r] = t->m[r] = -FLT_MAX, t->all_l[r] = t->l[r] = 0;
    t->first = INT32_MAX, t->last = 0;
    for (int r = 0; r < t->n; r++) {
        t->row[r] = first + (from + r) / b->group;
        t->head[r] = kv_head * b->group + (from + r) % b->group;
        t->see[r] = r > 0 && t->row[r] == t->row[r - 1] ? t->see[r - 1] : lq_sight_of(a, a->rows, t->row[r]);
        t->q[r] = lq_mat_row(&a->q, t->row[r]) + (size_t)t->head[r] * (size_t)a->cache.dk;
        t->y[r] = lq_mat_row(&a->y, t->row[r]) + (size_t)t->head[r] * (size_t)a->cache.dv;
        t->first = t->see[r].from < t->first ? t->see[r].from : t->first;
        t->last = t->see[r].at > t->last ? t->see[r].at : t->last;
    }
    t->few = few_fits(a, t);
}

#if defined(LQ_ATTN_TILES)
static void tiles_use(void) { tiles_begin(TILE_WIDE, TILE_ROWS); }
static void tiles_leave(void) { tiles_end(); }
#else
static void tiles_use(void) {}
static void tiles_leave(void) {}
#endif

// Begins to ask for those of splits from .. stop that are seen, where that is done split by split.
static void splits_ask(const job *b, tile *t, int from, int stop) {
    const int first = t->first > from * LQ_SPLIT ? t->first / COLS * COLS : from * LQ_SPLIT;
    const int last = t->last < stop * LQ_SPLIT ? t->last + 1 : stop * LQ_SPLIT;
    if (t->few) chunks_begin(b->a, t, first, (first / LQ_SPLIT + 1) * LQ_SPLIT, last);
}

static void tile_run(void *arg, int task, int worker) {
    const job *b = arg;
    const lq_attn_args *a = b->a;
    (void)worker;
    tile t;
    tiles_use();
    int kv_heads = a->cache.kv_heads, seq = 0, end = a->rows->seqs;
    while (end - seq > 1) { // the last sequence that begins at or before this task
        int middle = (seq + end) / 2;
        if (b->first[middle] * kv_heads <= task) seq = middle;
        else end = middle;
    }
    // A sequence's tiles of one head follow one another, whose K and V a cache then has.
    const int of_seq = b->first[seq + 1] - b->first[seq], place = task - b->first[seq] * kv_heads;
    const int kv_head = place / of_seq, at = place % of_seq;
    if (b->by_split) {
        const int split = at % b->tasks * b->each, stop = split + b->each < b->splits ? split + b->each : b->splits;
        tile_set(b, &t, seq, at / b->tasks, kv_head);
        splits_ask(b, &t, split, stop);
        for (int s = split; s < stop; s++) split_run(b, &t, s);
        tiles_leave();
        return;
    }
    tile_set(b, &t, seq, at, kv_head);
    splits_ask(b, &t, t.first / LQ_SPLIT, t.last / LQ_SPLIT + 1);
    for (int r = 0; r < t.n; r++) memset(t.y[r], 0, (size_t)a->cache.dv * sizeof(float));
    for (int s = t.first / LQ_SPLIT; s <= t.last / LQ_SPLIT; s++) split_run(b, &t, s);
    tiles_leave();
    for (int r = 0; r < t.n; r++) finish(a, t.head[r], t.all_m[r], t.all_l[r], t.y[r]);
}

// The splits of one head of one row, in order.
static void parts_merge(void *arg, int task, int worker) {
    const job *b = arg;
    const lq_attn_args *a = b->a;
    (void)worker;
    int row = task / a->heads, head = task % a->heads;
    size_t dv = (size_t)a->cache.dv;
    float all_m[VEC], all_l[VEC], m[VEC], l[VEC], old[VEC], new[VEC];
    for (int i = 0; i < VEC; i++) all_m[i] = m[i] = -FLT_MAX, all_l[i] = l[i] = 0;
    lq_sight see = lq_sight_of(a, a->rows, row);
    float *y = lq_mat_row(&a->y, row) + (size_t)head * dv;
    memset(y, 0, dv * sizeof *y);
    for (int s = see.from / LQ_SPLIT; s <= see.at / LQ_SPLIT; s++) {
        size_t at = (size_t)task * (size_t)b->splits + (size_t)s;
        m[0] = b->part[at].m, l[0] = b->part[at].l;
        merge(all_m, all_l, m, l, old, new);
        merge_o(y, b->part_o + at * dv, (int)dv, old[0], new[0]);
    }
    finish(a, head, all_m[0], all_l[0], y);
}

void NAME(lq_attn)(lq_dev *d, const lq_attn_args *a) {
#if defined(__AVX512BF16__)
    if (lq_attn_type(d, a->cache.type, a->cache.dk) != LQ_BF16) {
        lq_attn_avx512(d, a);
        return;
    }
#endif
    const lq_rows *rows = a->rows;
    const lq_cpu *cpu = lq_cpu_of(d);
    job b = {.a = a, .first = cpu->work, .group = a->heads / a->cache.kv_heads, .splits = a->max_at / LQ_SPLIT + 1};
    int tiles = 0;
    for (int s = 0; s < rows->seqs; s++) {
        b.first[s] = tiles;
        tiles += ((rows->first[s + 1] - rows->first[s]) * b.group + TILE - 1) / TILE;
    }
    b.first[rows->seqs] = tiles;
    // Too few tiles for these threads, and room for partial results: each split is a task.
    size_t head = ((size_t)rows->seqs * sizeof(int32_t) + 4 + 63) & ~(size_t)63;
    size_t parts = (size_t)lq_rows_real(rows) * (size_t)a->heads * (size_t)b.splits;
    int threads = lq_pool_threads(d->pool);
    if (threads > 1 && b.splits > 1 && tiles * a->cache.kv_heads < 4 * threads &&
        head + parts * (sizeof(lq_partial) + (size_t)a->cache.dv * sizeof(float)) <= cpu->work_bytes) {
        b.by_split = true;
        b.part = (lq_partial *)(void *)((char *)cpu->work + head);
        b.part_o = (float *)(b.part + parts);
        b.each = b.splits * tiles * a->cache.kv_heads / (threads * TASKS);
        if (b.each < 1) b.each = 1;
        b.tasks = (b.splits + b.each - 1) / b.each;
        for (int s = 0; s <= rows->seqs; s++) b.first[s] *= b.tasks;
        tiles *= b.tasks;
    }
    lq_pool_run(d->pool, tile_run, &b, tiles * a->cache.kv_heads);
    if (b.by_split) lq_pool_run(d->pool, parts_merge, &b, lq_rows_real(rows) * a->heads);
    lq_rows_blank(rows, &a->y);
}
