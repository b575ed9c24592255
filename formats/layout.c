// layout.c: the places of codes, scales and zero points in the layouts any, x86 and cuda, and 16 rows from one into
// another. Owns nothing and cannot fail: sizes are checked before (lq_layout_sizes). Words are little-endian, as
// files are.
#include "formats/layout.h"
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// The planes of layouts x86 and cuda, from the low bits up; a type of other bits has no form there.
static const uint8_t planes[9][3] = {[2] = {2}, [3] = {2, 1}, [4] = {4}, [5] = {4, 1}, [6] = {4, 2}, [8] = {8}};

static int64_t cuda_unit(int bits) { return bits == 4 || bits == 8 ? 64 : 128; }

static int64_t up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

int64_t lq_laid_wide(lq_layout layout, const lq_wtype *t, int64_t k) {
    return layout == LQ_ANY ? k : up(k, layout == LQ_CUDA ? cuda_unit(t->bits) : t->group ? t->group : 128);
}

int64_t lq_laid_rows(lq_layout layout, int64_t n) {
    return layout == LQ_ANY ? n : up(n, layout == LQ_CUDA ? LQ_CUDA_ROWS : LQ_BAND);
}

lq_laid lq_laid_of(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k) {
    lq_laid l = {.layout = layout, .bits = t->bits, .rows = t->rows > 1 ? t->rows : 1, .n = n, .k = k};
    l.wide = lq_laid_wide(layout, t, k);
    l.groups = lq_weight_groups(t, k);
    l.row_bytes = t->kind == LQ_W_FLOAT ? (size_t)k : lq_code_row_bytes(t->bits, k);
    l.zero_bytes = lq_code_row_bytes(t->bits, l.groups);
    l.scale_size = lq_dtype_size(t->scale);
    return l;
}

// --- any: 8 codes are as many bytes as one has bits ---

static uint64_t load(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint64_t ones(int bits) { return ((uint64_t)1 << bits) - 1; }

static uint64_t spread(uint64_t v, int b) { // 8 codes side by side to 8 bytes
    const uint64_t four = ones(4 * b), two = ones(2 * b) * 0x100000001, one = ones(b) * 0x0001000100010001;
    v = (v & four) | (v << (32 - 4 * b) & four << 32);
    v = (v & two) | (v << (16 - 2 * b) & two << 16);
    return (v & one) | (v << (8 - b) & one << 8);
}

static uint64_t gather(uint64_t v, int b) { // and back
    const uint64_t four = ones(4 * b), two = ones(2 * b) * 0x100000001, one = ones(b) * 0x0001000100010001;
    v = (v & one) | (v >> (8 - b) & one << b);
    v = (v & two) | (v >> (16 - 2 * b) & two << 2 * b);
    return (v & four) | (v >> (32 - 4 * b) & four << 4 * b);
}

// A call for each number of bits, so that the compiler knows its shifts.
#define BY_BITS(BITS, CALL, ...)                                                                                        \
    switch (BITS) {                                                                                                     \
    case 2: CALL(2, __VA_ARGS__); break;                                                                                \
    case 3: CALL(3, __VA_ARGS__); break;                                                                                \
    case 4: CALL(4, __VA_ARGS__); break;                                                                                \
    case 5: CALL(5, __VA_ARGS__); break;                                                                                \
    case 6: CALL(6, __VA_ARGS__); break;                                                                                \
    case 7: CALL(7, __VA_ARGS__); break;                                                                                \
    default: CALL(8, __VA_ARGS__);                                                                                      \
    }

static inline void widen(const int bits, const uint8_t *raw, uint8_t *dst) {
    for (int i = 0; i < LQ_PIECE / 8; i++) {
        const uint64_t v = spread(load(raw + i * bits), bits);
        memcpy(dst + 8 * i, &v, 8);
    }
}

static inline void narrow(const int bits, const uint8_t *src, uint8_t *raw) {
    for (int i = 0; i < LQ_PIECE / 8; i++) {
        const uint64_t v = gather(load(src + 8 * i), bits);
        memcpy(raw + i * bits, &v, 8);
    }
}

static void any_get(const uint8_t *src, int bits, int64_t count, uint8_t *dst) {
    uint8_t raw[LQ_PIECE + 8] = {0};
    memcpy(bits == 8 ? dst : raw, src, (size_t)(count * bits + 7) / 8);
    if (bits < 8) BY_BITS(bits, widen, raw, dst)
}

// `bytes`: of the row, from these columns on.
static void any_put(const uint8_t *src, int bits, int64_t count, size_t bytes, uint8_t *dst) {
    uint8_t raw[LQ_PIECE + 8];
    const size_t end = (size_t)(count * bits), all = (size_t)LQ_PIECE * (size_t)bits / 8;
    if (bits == 8) memcpy(raw, src, LQ_PIECE);
    else BY_BITS(bits, narrow, src, raw)
    if (count < LQ_PIECE) {
        raw[end / 8] &= (uint8_t)ones((int)(end % 8));
        memset(raw + end / 8 + 1, 0, sizeof raw - end / 8 - 1);
    }
    memcpy(dst, raw, bytes < all ? bytes : all);
}

// --- x86: a word is 32 bits of one row, of fields of 1, 2, 4 or 8 bits: field f of byte j is k = 4f + j ---

// Words of a plane of so many bits that `count` codes fill, from field to field 4 codes.
static inline void x86_plane_get(const uint8_t *src, int width, int shift, int count, uint8_t *dst) {
    const uint32_t mask = (uint32_t)ones(width) * 0x01010101;
    for (int i = 0; i < count; src += 64) {
        uint32_t v;
        memcpy(&v, src, 4);
        for (int f = 0; f < 8; f += width, i += 4) {
            uint32_t codes = 0;
            if (shift) memcpy(&codes, dst + i, 4);
            codes |= (v >> f & mask) << shift;
            memcpy(dst + i, &codes, 4);
        }
    }
}

static inline void x86_plane_put(const uint8_t *src, int width, int shift, int count, uint8_t *dst) {
    const uint32_t mask = (uint32_t)ones(width) * 0x01010101;
    for (int i = 0; i < count; dst += 64) {
        uint32_t v = 0;
        for (int f = 0; f < 8; f += width, i += 4) {
            uint32_t codes;
            memcpy(&codes, src + i, 4);
            v |= (codes >> shift & mask) << f;
        }
        memcpy(dst, &v, 4);
    }
}

static inline void x86_codes_get(const int bits, const uint8_t *src, int64_t count, uint8_t *dst) {
    if (bits == 7) return; // has no form
    const int low = planes[bits][0], high = planes[bits][1], unit = high ? 32 : 32 / low;
    for (int64_t i = 0; i < count; i += unit, src += unit * bits * 2) {
        x86_plane_get(src, low, 0, unit, dst + i);
        if (high) x86_plane_get(src + 64 * low, high, low, unit, dst + i);
    }
}

static inline void x86_codes_put(const int bits, const uint8_t *src, int64_t count, uint8_t *dst) {
    if (bits == 7) return; // has no form
    const int low = planes[bits][0], high = planes[bits][1], unit = high ? 32 : 32 / low;
    for (int64_t i = 0; i < count; i += unit, dst += unit * bits * 2) {
        x86_plane_put(src + i, low, 0, unit, dst);
        if (high) x86_plane_put(src + i, high, low, unit, dst + 64 * low);
    }
}

void lq_x86_get(const uint8_t *src, int bits, int64_t count, uint8_t *dst) {
    BY_BITS(bits, x86_codes_get, src, count, dst)
}

static void x86_put(const uint8_t *src, int bits, int64_t count, uint8_t *dst) {
    BY_BITS(bits, x86_codes_put, src, count, dst)
}

void lq_x86_fill(void *q, size_t bytes, int bits) {
    uint8_t zero[32], unit[64 * 8];
    memset(zero, 1 << (bits - 1), sizeof zero);
    for (int r = 0; r < LQ_BAND; r++) x86_put(zero, bits, sizeof zero, unit + 4 * r);
    for (size_t at = 0, all = (size_t)bits * 64, n; at < bytes; at += n) {
        n = bytes - at < all ? bytes - at : all;
        memcpy((uint8_t *)q + at, unit, n);
    }
}

// --- cuda: half a word has 16 / width fields, the low half those of even columns, the high one of odd ---

// Words of a lane in a unit; up to four lie together, then come the next of all lanes.
typedef struct plane { int width, shift, words; } plane;

// Where field i of a lane, which is p = i % 4 of step i / 4, stands in its half word. Of 8 bits the first of two is the
// upper, so that a mask and a shift give a pair.
static int field(int width, int i) { return width * (width == 8 ? (i ^ 1) & 1 : i % (16 / width)); }

static size_t word_at(const plane *p, int g, int u) {
    const int together = p->words < 4 ? p->words : 4;
    return (size_t)((u / together * 32 + 4 * g) * together + u % together) * 4;
}

static uint64_t fields(const plane *p) { return ones(p->width) * 0x0101010101010101; }

static const uint64_t even_bytes = 0x00ff00ff00ff00ff;

static inline void plane_put(const plane *p, lq_piece in, int64_t first, int g, uint8_t *dst) {
    const int per = 16 / p->width;
    const size_t lane = 4 * (size_t)(p->words < 4 ? p->words : 4);
    for (int u = 0; u < p->words; u++) {
        uint64_t even = 0, odd = 0; // of lanes t = 0 .. 3
        for (int i = u * per; i < (u + 1) * per; i++) {
            const uint64_t v = load(in[i & 1] + first + i / 2 * 8) >> p->shift & fields(p);
            even |= (v & even_bytes) << field(p->width, i);
            odd |= (v >> 8 & even_bytes) << field(p->width, i);
        }
        for (int t = 0; t < 4; t++) {
            const uint32_t word = (uint16_t)(even >> 16 * t) | (uint32_t)(uint16_t)(odd >> 16 * t) << 16;
            memcpy(dst + word_at(p, g, u) + (size_t)t * lane, &word, 4);
        }
    }
}

static inline void plane_get(const plane *p, const uint8_t *src, int g, int64_t first, lq_piece out) {
    const int per = 16 / p->width;
    const size_t lane = 4 * (size_t)(p->words < 4 ? p->words : 4);
    for (int u = 0; u < p->words; u++) {
        uint64_t even = 0, odd = 0;
        for (int t = 0; t < 4; t++) {
            uint32_t word;
            memcpy(&word, src + word_at(p, g, u) + (size_t)t * lane, 4);
            even |= (uint64_t)(word & 0xffff) << 16 * t;
            odd |= (uint64_t)(word >> 16) << 16 * t;
        }
        for (int i = u * per; i < (u + 1) * per; i++) {
            uint8_t *at = out[i & 1] + first + i / 2 * 8;
            const uint64_t mine = fields(p) & even_bytes;
            const uint64_t e = even >> field(p->width, i) & mine, o = odd >> field(p->width, i) & mine;
            const uint64_t v = (e | o << 8) << p->shift | (p->shift ? load(at) : 0);
            memcpy(at, &v, 8);
        }
    }
}

// The unit of columns from `first` of a piece on, of rows g and g + 8 of a block: to the words of lanes 4g .. 4g + 3 or
// from them. Each width by itself, so that the compiler knows the shifts.
static void unit_put(int bits, lq_piece in, int64_t first, int g, uint8_t *dst) {
    const int steps = (int)cuda_unit(bits) / 16;
    for (int i = 0, shift = 0; i < 3 && planes[bits][i]; i++) {
        const int width = planes[bits][i], words = steps * width / 4;
        switch (width) {
        case 1: plane_put(&(plane){1, shift, words}, in, first, g, dst); break;
        case 2: plane_put(&(plane){2, shift, words}, in, first, g, dst); break;
        case 4: plane_put(&(plane){4, shift, words}, in, first, g, dst); break;
        default: plane_put(&(plane){8, 0, 8}, in, first, g, dst);
        }
        shift += width, dst += words * 128;
    }
}

static void unit_get(int bits, const uint8_t *src, int g, int64_t first, lq_piece out) {
    const int steps = (int)cuda_unit(bits) / 16;
    for (int i = 0, shift = 0; i < 3 && planes[bits][i]; i++) {
        const int width = planes[bits][i], words = steps * width / 4;
        switch (width) {
        case 1: plane_get(&(plane){1, shift, words}, src, g, first, out); break;
        case 2: plane_get(&(plane){2, shift, words}, src, g, first, out); break;
        case 4: plane_get(&(plane){4, shift, words}, src, g, first, out); break;
        default: plane_get(&(plane){8, 0, 8}, src, g, first, out);
        }
        shift += width, src += words * 128;
    }
}

// --- pieces ---

// Bytes before the words of a row at column `first`: of x86 its own, of cuda its block's.
static size_t place(const lq_laid *l, int64_t row, int64_t first) {
    if (l->layout == LQ_X86) return (size_t)((row / LQ_BAND * l->wide + first) * 2 * l->bits + row % LQ_BAND * 4);
    const int64_t unit = cuda_unit(l->bits), stripe = row / LQ_CUDA_ROWS * (l->wide / unit);
    return (size_t)(((stripe + first / unit) * 4 + row % LQ_CUDA_ROWS / LQ_BAND) * 2 * unit * l->bits);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

void lq_codes_get(const lq_laid *l, const void *q, int64_t row, int64_t first, lq_piece out) {
    const uint8_t *src = q;
    const int64_t count = least(l->wide - first, LQ_PIECE), unit = cuda_unit(l->bits);
    if (l->layout == LQ_CUDA)
        for (int64_t i = 0; i < count; i += unit)
            unit_get(l->bits, src + place(l, row, first + i), (int)(row % 8), i, out);
    for (int h = 0; h < 2 && l->layout != LQ_CUDA; h++) {
        const int64_t r = row + 8 * h;
        if (l->layout == LQ_X86) lq_x86_get(src + place(l, r, first), l->bits, count, out[h]);
        else if (r < l->n)
            any_get(src + (size_t)r * l->row_bytes + (size_t)(first * l->bits / 8), l->bits, count, out[h]);
    }
}

void lq_codes_put(const lq_laid *l, void *q, int64_t row, int64_t first, lq_piece in) {
    uint8_t *dst = q;
    const int64_t count = least(l->wide - first, LQ_PIECE), unit = cuda_unit(l->bits);
    if (l->layout == LQ_CUDA)
        for (int64_t i = 0; i < count; i += unit)
            unit_put(l->bits, in, i, (int)(row % 8), dst + place(l, row, first + i));
    for (int h = 0; h < 2 && l->layout != LQ_CUDA; h++) {
        const int64_t r = row + 8 * h;
        const size_t before = (size_t)(first * l->bits / 8);
        if (l->layout == LQ_X86) x86_put(in[h], l->bits, count, dst + place(l, r, first));
        else if (r < l->n)
            any_put(in[h], l->bits, count, l->row_bytes - before, dst + (size_t)r * l->row_bytes + before);
    }
}

// --- scales and zero points ---

// Those of a row: that of group g is number first + g * step of an array, of zero points one of codes of so many bits.
typedef struct run { int64_t first, step; } run;

static run scales_of(const lq_laid *l, int64_t row) {
    if (l->rows > 1) return (run){row / l->rows * l->groups, 1};
    if (l->layout == LQ_ANY) return (run){row * l->groups, 1};
    if (l->layout == LQ_X86) return (run){row / LQ_BAND * l->groups * LQ_BAND + row % LQ_BAND, LQ_BAND};
    return (run){row / LQ_BAND * LQ_BAND + row % 8 * 2 + row % 16 / 8, lq_laid_rows(LQ_CUDA, l->n)};
}

static run zeros_of(const lq_laid *l, int64_t row, size_t *base, int *bits) {
    const bool any = l->layout == LQ_ANY, nibbles = l->layout == LQ_CUDA && l->bits <= 4;
    const run bytes = scales_of(l, row);
    *base = any ? (size_t)row * l->zero_bytes : 0;
    *bits = any ? l->bits : nibbles ? 4 : 8;
    if (any) return (run){0, 1};
    if (!nibbles) return bytes;
    const int64_t nibble = row % 8 * 8 + row % LQ_CUDA_ROWS / 16 * 2 + row % 16 / 8;
    return (run){row / LQ_CUDA_ROWS * LQ_CUDA_ROWS + nibble, bytes.step};
}

size_t lq_laid_scale(const lq_laid *l, int64_t row, int64_t g) {
    const run at = scales_of(l, row);
    return (size_t)(at.first + g * at.step);
}

uint8_t lq_zero_get(const lq_laid *l, const uint8_t *zero, int64_t row, int64_t g) {
    size_t base;
    int bits;
    const run at = zeros_of(l, row, &base, &bits);
    return (uint8_t)lq_code_get(zero + base, bits, at.first + g * at.step);
}

static void scales_pack(const lq_weight *w, const lq_laid *from, int64_t row, const lq_laid *to, void *scale,
                        int64_t at) {
    static const uint8_t none[4];
    const run f = scales_of(from, row), t = scales_of(to, at);
    const size_t size = to->scale_size;
    for (int64_t g = 0; g < to->groups; g++) {
        uint8_t *dst = (uint8_t *)scale + (size_t)(t.first + g * t.step) * size;
        const uint8_t *src = row < from->n ? (const uint8_t *)w->scale + (size_t)(f.first + g * f.step) * size : none;
        if (size == 2) memcpy(dst, src, 2);
        else if (size == 4) memcpy(dst, src, 4);
        else *dst = *src;
    }
}

static void zeros_pack(const lq_weight *w, const lq_laid *from, int64_t row, const lq_laid *to, uint8_t *zero,
                       int64_t at) {
    size_t f_base, t_base;
    int f_bits, t_bits;
    const run f = zeros_of(from, row, &f_base, &f_bits), t = zeros_of(to, at, &t_base, &t_bits);
    if (to->layout == LQ_ANY) memset(zero + t_base, 0, to->zero_bytes);
    for (int64_t g = 0; g < to->groups; g++) {
        const uint32_t z = row < from->n ? lq_code_get(w->zero + f_base, f_bits, f.first + g * f.step) : 0;
        if (t_bits == 8) zero[t_base + (size_t)(t.first + g * t.step)] = (uint8_t)z;
        else lq_code_set(zero + t_base, t_bits, t.first + g * t.step, z);
    }
}

// --- from any to x86, which a load waits for ---

typedef struct turn {
    // So many whole pieces of a band's codes.
    void (*pieces)(int bits, const uint8_t *src, size_t row_bytes, int64_t count, uint8_t *dst);
    // 16 bytes of each row of a band, numbers of `size` bytes, to rows of the band's 16 numbers.
    void (*numbers)(int size, const uint8_t *src, size_t row_bytes, uint8_t *dst);
} turn;

#if defined(__x86_64__)
enum { AHEAD = 512 }; // bytes of a row that are asked for before they are read

#define LANES 1
#define TARGET
#define FN(name) name##_sse2
#define OP(name) _mm_##name
#define JOIN(p, step) ((void)(step), _mm_loadu_si128((const __m128i *)(const void *)(p)))
#define PAST(p, v) _mm_stream_si128((__m128i *)(void *)(p), (__m128i)(v))
#include "formats/turn_vec.h"

#define LANES 2
#define TARGET __attribute__((target("avx2")))
#define FN(name) name##_avx2
#define OP(name) _mm256_##name
#define LANE(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define PAIR(p, step) _mm256_inserti128_si256(_mm256_castsi128_si256(LANE(p)), LANE((p) + (step)), 1)
#define JOIN(p, step) PAIR(p, step)
#define PAST(p, v) _mm256_stream_si256((__m256i *)(void *)(p), (__m256i)(v))
#include "formats/turn_vec.h"

#define LANES 4
#define TARGET __attribute__((target("avx2,avx512f,avx512bw")))
#define FN(name) name##_avx512
#define OP(name) _mm512_##name
#define JOIN(p, step) _mm512_inserti64x4(_mm512_castsi256_si512(PAIR(p, step)), PAIR((p) + 2 * (step), step), 1)
#define PAST(p, v) _mm512_stream_si512((void *)(p), (__m512i)(v))
#include "formats/turn_vec.h"

#undef LANE
#undef PAIR

static const turn turns[] = {{turn_pieces_sse2, turn_numbers_sse2},
                             {turn_pieces_avx2, turn_numbers_avx2},
                             {turn_pieces_avx512, turn_numbers_avx512}};

int lq_turn_ways(void) {
    if (!__builtin_cpu_supports("avx2")) return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? 3 : 2;
}
#else
static const turn turns[1];
int lq_turn_ways(void) { return 0; }
#endif

// NULL: this machine has none.
static const turn *turn_of(const lq_laid *to) {
    const int way = to->way ? to->way : lq_turn_ways();
    return way ? &turns[way - 1] : NULL;
}

// Columns of a band's rows, `step` elements each, to rows of its 16 elements.
static inline void band_turn(const turn *by, const size_t size, const uint8_t *src, size_t step, int64_t count,
                             uint8_t *dst) {
    const size_t row = step * size, once = 16 / size;
    size_t g = 0;
    for (; g + once <= (size_t)count; g += once)
        by->numbers((int)size, src + g * size, row, dst + g * LQ_BAND * size);
    for (; g < (size_t)count; g++)
        for (size_t r = 0; r < LQ_BAND; r++) memcpy(dst + (g * LQ_BAND + r) * size, src + r * row + g * size, size);
}

// The band that has all its rows: its scales, unless several rows share them, and its zero points.
static void sides_to_x86(const turn *by, const lq_weight *w, const lq_laid *from, int64_t band, const lq_laid *to,
                         lq_weight_out dst, int64_t at) {
    const size_t groups = (size_t)to->groups, first = (size_t)band * LQ_BAND, put = (size_t)at * LQ_BAND * groups;
    const uint8_t *src = (const uint8_t *)w->scale + first * groups * to->scale_size;
    uint8_t *scale = (uint8_t *)dst.scale + put * to->scale_size, zeros[LQ_BAND][LQ_PIECE];
    switch (to->rows > 1 ? 0 : to->scale_size) {
    case 4: band_turn(by, 4, src, groups, to->groups, scale); break;
    case 2: band_turn(by, 2, src, groups, to->groups, scale); break;
    case 1: band_turn(by, 1, src, groups, to->groups, scale);
    }
    for (int64_t g = 0; w->type.asym && g < to->groups; g += LQ_PIECE) {
        const int64_t count = least(to->groups - g, LQ_PIECE);
        const uint8_t *zero = w->zero + first * from->zero_bytes + (size_t)(g * to->bits / 8);
        for (size_t r = 0; r < LQ_BAND; r++) any_get(zero + r * from->zero_bytes, to->bits, count, zeros[r]);
        band_turn(by, 1, zeros[0], LQ_PIECE, count, (uint8_t *)dst.zero + put + (size_t)g * LQ_BAND);
    }
}

// Rows behind n: scale 0 and code = zero point, so that they are 0 whatever is done with them. Columns behind k have
// the zero point of the row's last group. (Of tables code 0, which may stand for anything: activations there are 0.)
void lq_band_pack(const lq_weight *w, int64_t band, const lq_laid *to, lq_weight_out dst, int64_t at) {
    const lq_wtype *t = &w->type;
    const lq_laid from = lq_laid_of(w->layout, t, w->n, w->k);
    const turn *by = turn_of(to);
    const bool straight = by && w->layout == LQ_ANY && to->layout == LQ_X86 && (band + 1) * LQ_BAND <= w->n;
    uint8_t none[LQ_BAND];
    if (straight && w->scale) sides_to_x86(by, w, &from, band, to, dst, at);
    for (int r = 0; r < LQ_BAND; r++) {
        const int64_t row = band * LQ_BAND + r;
        none[r] = t->kind != LQ_W_INT ? 0 : !t->asym ? (uint8_t)(1 << (t->bits - 1))
            : row < w->n ? lq_zero_get(&from, w->zero, row, from.groups - 1) : 0;
        if (straight || (to->layout == LQ_ANY && at * LQ_BAND + r >= to->n)) continue;
        if (to->rows == 1 && w->scale) scales_pack(w, &from, row, to, dst.scale, at * LQ_BAND + r);
        if (t->asym) zeros_pack(w, &from, row, to, dst.zero, at * LQ_BAND + r);
    }
    int64_t first = 0;
    if (straight) {
        const uint8_t *src = (const uint8_t *)w->q + (size_t)(band * LQ_BAND) * from.row_bytes;
        const int64_t whole = w->k / LQ_PIECE;
        by->pieces(to->bits, src, from.row_bytes, whole, (uint8_t *)dst.q + place(to, at * LQ_BAND, 0));
        first = whole * LQ_PIECE;
    }
    for (; first < to->wide; first += LQ_PIECE) {
        for (int g = 0; g < 8; g++) {
            const int64_t row = band * LQ_BAND + g;
            lq_piece p;
            if (row < w->n && first < w->k) lq_codes_get(&from, w->q, row, first, p);
            for (int h = 0; h < 2; h++) {
                const int64_t count = row + 8 * h < w->n && first < w->k ? least(w->k - first, LQ_PIECE) : 0;
                if (count < LQ_PIECE) memset(p[h] + count, none[g + 8 * h], (size_t)(LQ_PIECE - count));
            }
            lq_codes_put(to, dst.q, at * LQ_BAND + g, first, p);
        }
    }
}
