// rows_vec.h: coded weights of layout any as f32 rows, and plain ones that are narrower than f32, for the ISA this is
// compiled for: tiles for the loops of matmul.c. Each number is lq_weight_row's, bit for bit. Owns nothing.
//
// VEC codes of a row begin at a whole byte. Each is brought into a 32-bit lane, with what stands behind it in the
// row in the bits above. Few bits are then an index into registers that hold what the codes of
// this group stand for, scale and zero point included; more are arithmetic.
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

#define groups_of NAME(groups_of)
#define far_scale NAME(far_scale)
#define codes_sums NAME(codes_sums)

enum { CELLS = LQ_K_CUT / 16 + 1 }; // groups that a cut touches

// --- codes ---

// VEC codes from p on.
typedef struct spread { vi from, by; } spread;
#if defined(__AVX512F__)
enum { READ = 16 };
// Up to 4 bits: a lane shifts the 32 bits that begin with the first code (of 3 and 4 bits in the upper lanes: with the
// ninth). More: first it takes the two 16-bit words that its code is in.
INLINE spread spread_of(const int bits) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i half = _mm512_and_si512(lane, _mm512_set1_epi32(7)), bit = _mm512_mullo_epi32(lane, vi_set(bits));
    const __m512i word = _mm512_srli_epi32(bit, 4); // and the next one in the upper half of the lane
    const vi by = bits == 2 ? bit : bits <= 4 ? _mm512_mullo_epi32(half, vi_set(bits)) : vi_and(bit, vi_set(15));
    return (spread){vi_add(_mm512_mullo_epi32(word, vi_set(0x10001)), vi_set(0x10000)), by};
}

INLINE int32_t word_at(const uint8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE vi codes_at(const uint8_t *p, const spread *s, const int bits) {
    if (bits == 2) return _mm512_srlv_epi32(_mm512_set1_epi32(word_at(p)), s->by);
    if (bits <= 4)
        return _mm512_srlv_epi32(_mm512_mask_set1_epi32(_mm512_set1_epi32(word_at(p)), 0xff00, word_at(p + bits)),
                                 s->by);
    const __m512i v = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_srlv_epi32(_mm512_permutexvar_epi16(s->from, v), s->by);
}

INLINE vf look_up(const vf *t, vi code, const int bits) {
    return bits <= 4 ? _mm512_permutexvar_ps(code, t[0]) : _mm512_permutex2var_ps(t[0], code, t[1]);
}

INLINE vf gather(const float *table, vi code) { return _mm512_i32gather_ps(code, table, 4); }
INLINE vf vf_of_vi(vi x) { return _mm512_cvtepi32_ps(x); }
#else
enum { READ = 8 };
INLINE spread spread_of(const int bits) { // a lane takes the two bytes that its code is in
    const __m256i bit = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), vi_set(bits));
    const __m256i byte = _mm256_srli_epi32(bit, 3), both = _mm256_mullo_epi32(byte, vi_set(0x101));
    return (spread){vi_add(both, vi_set((int32_t)0x80800100)), vi_and(bit, vi_set(7))};
}

INLINE vi codes_at(const uint8_t *p, const spread *s, const int bits) {
    (void)bits;
    int64_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_srlv_epi32(_mm256_shuffle_epi8(_mm256_set1_epi64x(v), s->from), s->by);
}

INLINE vf pick8(const vf *t, vi code) { return _mm256_permutevar8x32_ps(t[0], code); }
INLINE vf pick16(const vf *t, vi code) { // by bit 3
    return _mm256_blendv_ps(pick8(t, code), pick8(t + 1, code), _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

INLINE vf look_up(const vf *t, vi code, const int bits) {
    if (bits <= 3) return pick8(t, code);
    if (bits == 4) return pick16(t, code);
    return _mm256_blendv_ps(pick16(t, code), pick16(t + 2, code), _mm256_castsi256_ps(_mm256_slli_epi32(code, 27)));
}

INLINE vf gather(const float *table, vi code) { return _mm256_i32gather_ps(table, code, 4); }
INLINE vf vf_of_vi(vi x) { return _mm256_cvtepi32_ps(x); }
#endif
enum { LOOK_BITS = 5, TABLES = 32 / VEC }; // a table of up to 5 bits is looked up in registers

// Nothing behind the row is read.
INLINE vi codes_within(const uint8_t *p, const uint8_t *end, const spread *s, const int bits) {
    uint8_t part[READ] = {0};
    if (end - p >= READ) return codes_at(p, s, bits);
    memcpy(part, p, (size_t)(end - p));
    return codes_at(part, s, bits);
}

INLINE void store_first(float *dst, vf v, int64_t n) {
    if (n >= VEC) vf_store(dst, v);
    else vf_store_m(vm_first((int)n), dst, v);
}

// --- scales and zero points of a row ---

INLINE float half_of(const char *p, const lq_dtype t) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return t == LQ_F16 ? _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))) : lq_bf16_f32(h);
}

INLINE void halves(const char *p, int n, float *s, const lq_dtype t) {
    int i = 0;
    for (; i + VEC <= n; i += VEC) vf_store(s + i, t == LQ_F16 ? vf_of_f16(p + 2 * i) : vf_of_bf16(p + 2 * i));
    for (; i < n; i++) s[i] = half_of(p + 2 * i, t);
}

// What a byte of E8M0 and of E4M3 is; up to VEC numbers more than n are written.
INLINE void powers(const uint8_t *p, int n, float *s) {
    uint8_t part[VEC] = {0};
    for (int i = 0; i < n; i += VEC) {
        vf_store(s + i, vf_of_e8m0(memcpy(part, p + i, (size_t)(n - i < VEC ? n - i : VEC))));
    }
}

INLINE void smalls(const uint8_t *p, int n, float by, float *s) {
    uint8_t part[VEC] = {0};
    for (int i = 0; i < n; i += VEC) {
        memcpy(part, p + i, (size_t)(n - i < VEC ? n - i : VEC));
        vf_store(s + i, vf_mul(vf_of_e4m3(part), vf_set(by)));
    }
}

// Groups that columns k0..k1 are in: the same in every row.
typedef struct span { int64_t group, first, all; size_t size; int n; } span;
INLINE span span_of(const lq_weight *w, int64_t k0, int64_t k1) {
    const lq_wtype *t = &w->type;
    span p = {.group = w->k, .all = 1, .n = 1, .size = lq_dtype_size(t->scale)};
    if (!t->group) return p;
    p.group = t->group;
    p.first = k0 / t->group;
    p.all = lq_weight_groups(t, w->k);
    p.n = (int)((k1 - 1) / t->group - p.first + 1);
    return p;
}

// Their scales and zero points in one row.
typedef struct cells { float s[CELLS + VEC], z[CELLS + 2 * VEC]; } cells;

// Returns the zero points: s[g - first], z[g - first].
static const float *groups_of(const lq_weight *w, int64_t row, const span *of, cells *c) {
    const lq_wtype *t = &w->type;
    const int n = of->n;
    const int64_t groups = of->all, band = t->rows > 1 ? row / t->rows : row;
    const char *p = (const char *)w->scale + (size_t)(band * groups + of->first) * of->size;
    if (t->rows <= 1) _mm_prefetch(p + LQ_ANY_ROWS * (size_t)groups * of->size, _MM_HINT_T0);
    if (t->scale == LQ_F32) memcpy(c->s, p, (size_t)n * sizeof *c->s);
    else if (t->scale == LQ_F16) halves(p, n, c->s, LQ_F16);
    else if (t->scale == LQ_BF16) halves(p, n, c->s, LQ_BF16);
    else if (t->scale == LQ_E8M0) powers((const uint8_t *)p, n, c->s);
    else smalls((const uint8_t *)p, n, *w->scale2, c->s);
    if (t->kind != LQ_W_INT) return c->z;
    const vi mask = vi_set((1 << t->bits) - 1);
    if (!t->asym) {
        for (int i = 0; i < n; i += VEC) vf_store(c->z + i, vf_set((float)(1 << (t->bits - 1))));
        return c->z;
    }
    const spread s = spread_of(t->bits);
    const int64_t from = of->first / VEC * VEC; // codes begin at whole bytes there
    const uint8_t *z = w->zero + (size_t)row * lq_code_row_bytes(t->bits, groups), *end = z +
        lq_code_row_bytes(t->bits, groups);
    for (int64_t g = from; g < of->first + n; g += VEC)
        vf_store(c->z + (g - from), vf_of_vi(vi_and(mask, codes_within(z + g * t->bits / 8, end, &s, t->bits))));
    return c->z + (of->first - from);
}

// --- int and table codes ---

// What codes 0 .. 2^bits - 1 are before scale and zero point, in as many registers as that takes; shorter tables are
// repeated, so that what stands above a code in its lane does not matter.
INLINE void table_load(const float *table, vf t[TABLES], const int bits) {
    EACH (int i = 0; i < TABLES; i++) {
        int32_t code[VEC];
        EACH (int l = 0; l < VEC; l++) code[l] = (i * VEC + l) & ((1 << bits) - 1);
        const vi at = vi_load(code);
        t[i] = !table ? vf_of_vi(at) : 1 << bits >= VEC ? vf_load(table + code[0]) : gather(table, at);
    }
}

// What a code of a group stands for.
typedef struct meaning { vf t[TABLES], s, zero; const float *table; } meaning;
INLINE vf value_of(const meaning *m, vi code, const int bits, const bool table) {
    if (bits <= LOOK_BITS) return look_up(m->t, code, bits);
    code = vi_and(code, vi_set((1 << bits) - 1));
    return vf_mul(table ? gather(m->table, code) : vf_sub(vf_of_vi(code), m->zero), m->s);
}

INLINE int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE void coded_row(const lq_weight *w, const span *of, int64_t row, int64_t k0, int64_t k1, float *dst,
                      const int bits, const bool table) {
    enum { STEPS = 4 };
    const size_t bytes = lq_code_row_bytes(bits, w->k), step = VEC * (size_t)bits / 8;
    const uint8_t *q = (const uint8_t *)w->q + (size_t)row * bytes, *const end = q + bytes;
    const spread by = spread_of(bits);
    vf base[TABLES];
    cells c;
    const float *z = groups_of(w, row, of, &c);
    q += (size_t)k0 / 8 * (size_t)bits;
    for (size_t b = 0; b < (size_t)(k1 - k0) * (size_t)bits / 8; b += 64) // the same part of the next tile
        _mm_prefetch((const char *)q + b + LQ_ANY_ROWS * bytes, _MM_HINT_T0);
    if (bits <= LOOK_BITS) table_load(table ? w->table : NULL, base, bits);
    const int64_t left = end - q >= READ ? (int64_t)((size_t)(end - q - READ) / step + 1) * VEC : 0;
    const float *const safe = dst + left; // up to there all that a step reads lies in the row
    for (int64_t k = k0, g = 0; k < k1; g++) {
        meaning m = {.s = vf_set(c.s[g]), .zero = table ? vf_zero() : vf_set(z[g]), .table = w->table};
        if (bits <= LOOK_BITS)
            EACH (int i = 0; i < TABLES; i++) m.t[i] = vf_mul(table ? base[i] : vf_sub(base[i], m.zero), m.s);
        const int64_t n = least_of((of->first + g + 1) * of->group, k1) - k;
        const float *const last = dst + n, *const whole = last < safe ? last : safe;
        for (; whole - dst >= STEPS * VEC; dst += STEPS * VEC, q += STEPS * step)
            EACH (int i = 0; i < STEPS; i++)
                vf_store(dst + i * VEC, value_of(&m, codes_at(q + i * step, &by, bits), bits, table));
        for (; whole - dst >= VEC; dst += VEC, q += step)
            vf_store(dst, value_of(&m, codes_at(q, &by, bits), bits, table));
        for (int64_t rest; (rest = last - dst) > 0; dst += rest < VEC ? rest : VEC, q += step)
            store_first(dst, value_of(&m, codes_within(q, end, &by, bits), bits, table), rest);
        k += n;
    }
}

INLINE void coded_tile(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row, const int bits,
                       const bool table) {
    const span of = span_of(w, k0, k1);
    for (int64_t n = t * LQ_ANY_ROWS; n < (t + 1) * LQ_ANY_ROWS && n < w->n; n++, dst += row)
        coded_row(w, &of, n, k0, k1, dst, bits, table);
}

#define CODED_TILES(TABLE)                                          \
    switch (w->type.bits) {                                         \
    case 2: coded_tile(w, t, k0, k1, dst, row, 2, TABLE); break;    \
    case 3: coded_tile(w, t, k0, k1, dst, row, 3, TABLE); break;    \
    case 4: coded_tile(w, t, k0, k1, dst, row, 4, TABLE); break;    \
    case 5: coded_tile(w, t, k0, k1, dst, row, 5, TABLE); break;    \
    case 6: coded_tile(w, t, k0, k1, dst, row, 6, TABLE); break;    \
    case 7: coded_tile(w, t, k0, k1, dst, row, 7, TABLE); break;    \
    default: coded_tile(w, t, k0, k1, dst, row, 8, TABLE);          \
    }

lq_ukr_rows NAME(lq_rows_f32_f32_intany), NAME(lq_rows_f32_f32_tableany); // named in ukr.c
void NAME(lq_rows_f32_f32_intany)(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    CODED_TILES(false)
}

void NAME(lq_rows_f32_f32_tableany)(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    CODED_TILES(true)
}

// --- 8-bit floats, as they are (PLAIN) or times their scales ---

enum { CODES = 16 }; // that become halves at once

// E5M2 is the upper byte of a half. E4M3 shifted into place is one of 2^-8 of its value, but for NaN.
INLINE __m256i fp8_halves(const uint8_t *q, const lq_dtype e) {
    const __m128i code = _mm_loadu_si128((const __m128i *)(const void *)q);
    if (e == LQ_E5M2) return _mm256_slli_epi16(_mm256_cvtepu8_epi16(code), 8);
    return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(code), 7), _mm256_set1_epi16((short)0xbf80));
}

// The largest of what came before and of 32 codes without their signs; of n.
INLINE __m256i most32(__m256i most, const void *q) {
    return _mm256_max_epu8(most, _mm256_and_si256(_mm256_loadu_si256(q), _mm256_set1_epi8(0x7f)));
}

INLINE __m256i most_of(__m256i most, const uint8_t *q, int n) {
    int i = 0;
    for (; i + 128 <= n; i += 128) EACH (int j = 0; j < 128; j += 32) most = most32(most, q + i + j);
    for (; i < n; i += 32) {
        uint8_t rest[32] = {0};
        most = most32(most, n - i < 32 ? memcpy(rest, q + i, (size_t)(n - i)) : q + i);
    }
    return most;
}

INLINE bool any_7f(__m256i most) {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(0x7f))) != 0;
}

// A scale that does not take 2^8 of a half: the same product in two steps.
static void far_scale(const uint16_t *h, int64_t n, float s, float *dst) {
    for (int64_t i = 0; i < n; i += VEC)
        store_first(dst + i, vf_mul(vf_mul(vf_of_f16(h + i), vf_set(256.0f)), vf_set(s)), n - i);
}

INLINE void fp8_row(const lq_weight *w, int64_t row, int64_t k0, int64_t k1, float *dst, const lq_dtype e) {
    const uint8_t *q = (const uint8_t *)w->q + (size_t)(row * w->k + k0);
    const int n = (int)(k1 - k0);
    _Alignas(64) uint16_t h[LQ_K_CUT + 32];
    cells c;
    const span of = span_of(w, k0, k1);
    if (w->type.kind == LQ_W_FLOAT) groups_of(w, row, &of, &c);
    else c.s[0] = 1;
    for (int b = 0; b < n; b += 64) _mm_prefetch((const char *)q + b + LQ_ANY_ROWS * (size_t)w->k, _MM_HINT_T0);
    const bool odd = e == LQ_E4M3 && any_7f(most_of(_mm256_setzero_si256(), q, n));
    const int whole = n / CODES * CODES;
    uint8_t rest[CODES] = {0};
    for (int i = 0; i < whole; i += CODES) _mm256_storeu_si256((__m256i *)(void *)(h + i), fp8_halves(q + i, e));
    memcpy(rest, q + whole, (size_t)(n - whole));
    _mm256_storeu_si256((__m256i *)(void *)(h + whole), fp8_halves(rest, e));
    for (int64_t k = k0, g = 0; k < k1; g++) {
        const int64_t len = least_of((of.first + g + 1) * of.group, k1) - k;
        const uint16_t *from = h + (k - k0);
        const vf s = vf_set(e == LQ_E4M3 ? c.s[g] * 256.0f : c.s[g]);
        float *to = dst + (k - k0);
        int64_t i = 0;
        for (; i + VEC <= len; i += VEC) vf_store(to + i, vf_mul(vf_of_f16(from + i), s));
        if (i < len) store_first(to + i, vf_mul(vf_of_f16(from + i), s), len - i);
        if (e == LQ_E4M3 && fabsf(c.s[g]) >= 0x1p119f) far_scale(from, len, c.s[g], to);
        k += len;
    }
    for (int i = 0; odd && i < n; i++)
        if ((q[i] & 0x7f) == 0x7f) dst[i] = NAN;
}

lq_ukr_rows NAME(lq_rows_f32_f32_fp8any), NAME(lq_rows_f32_f32_halfany);
void NAME(lq_rows_f32_f32_fp8any)(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    for (int64_t n = t * LQ_ANY_ROWS; n < (t + 1) * LQ_ANY_ROWS && n < w->n; n++, dst += row)
        if (w->type.elem == LQ_E4M3) fp8_row(w, n, k0, k1, dst, LQ_E4M3);
        else fp8_row(w, n, k0, k1, dst, LQ_E5M2);
}

// --- f16 and bf16 ---

INLINE void half_row(const char *p, int64_t n, float *dst, const lq_dtype e) {
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) vf_store(dst + i, e == LQ_F16 ? vf_of_f16(p + 2 * i) : vf_of_bf16(p + 2 * i));
    for (; i < n; i++) dst[i] = half_of(p + 2 * i, e);
}

void NAME(lq_rows_f32_f32_halfany)(const lq_weight *w, int64_t t, int64_t k0, int64_t k1, float *dst, size_t row) {
    for (int64_t n = t * LQ_HALF_ROWS; n < (t + 1) * LQ_HALF_ROWS && n < w->n; n++, dst += row) {
        const char *p = (const char *)w->q + (size_t)(n * w->k + k0) * 2;
        if (w->type.elem == LQ_F16) half_row(p, k1 - k0, dst, LQ_F16);
        else half_row(p, k1 - k0, dst, LQ_BF16);
    }
}

// --- codes as int8 of layout x86: ints, and what a codebook has in whole numbers ---

// 16 codes of a row as bytes.
INLINE __m128i codes16_at(const uint8_t *q, const uint8_t *end, const spread *s, const int bits) {
    const vi mask = vi_set((1 << bits) - 1);
#if defined(__AVX512F__)
    return _mm512_cvtepi32_epi8(vi_and(mask, codes_within(q, end, s, bits)));
#else
    const vi a = vi_and(mask, codes_within(q, end, s, bits));
    const vi b = vi_and(mask, end - q > bits ? codes_within(q + bits, end, s, bits) : a);
    const __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
#endif
}

// 16 columns of 16 rows: four steps of int8, each with four columns of all rows.
INLINE void steps_store(const __m128i row[LQ_X86_ROWS], uint8_t *to) {
    EACH (int i = 0; i < LQ_X86_ROWS; i += 4) {
        const __m128i a = _mm_unpacklo_epi32(row[i], row[i + 1]), b = _mm_unpacklo_epi32(row[i + 2], row[i + 3]);
        const __m128i c = _mm_unpackhi_epi32(row[i], row[i + 1]), d = _mm_unpackhi_epi32(row[i + 2], row[i + 3]);
        _mm_storeu_si128((__m128i *)(void *)(to + 4 * i), _mm_unpacklo_epi64(a, b));
        _mm_storeu_si128((__m128i *)(void *)(to + 64 + 4 * i), _mm_unpackhi_epi64(a, b));
        _mm_storeu_si128((__m128i *)(void *)(to + 128 + 4 * i), _mm_unpacklo_epi64(c, d));
        _mm_storeu_si128((__m128i *)(void *)(to + 192 + 4 * i), _mm_unpackhi_epi64(c, d));
    }
}

INLINE void codes_tile(const lq_weight *w, int64_t t, const lq_ukr_tile *to, const int bits, const lq_codebook *book) {
    const __m128i look = book ? _mm_add_epi8(_mm_load_si128((const __m128i *)(const void *)book->whole),
                                             _mm_set1_epi8((char)book->most)) : _mm_setzero_si128();
    const size_t bytes = lq_code_row_bytes(bits, w->k), first = (size_t)to->k0 / 8 * (size_t)bits;
    const int64_t n = t * LQ_X86_ROWS, left = w->k - to->k0;
    const int64_t wide = (to->k1 - to->k0 + to->unit - 1) / to->unit * to->unit;
    const size_t part = (size_t)(to->k1 - to->k0) * (size_t)bits / 8;
    const uint8_t *q[LQ_X86_ROWS], *end[LQ_X86_ROWS];
    const spread s = spread_of(bits);
    for (int r = 0; r < LQ_X86_ROWS; r++) { // rows behind the last one repeat it, times 0
        q[r] = (const uint8_t *)w->q + (size_t)(n + r < w->n ? n + r : w->n - 1) * bytes + first;
        end[r] = q[r] + (bytes - first);
        for (size_t b = 0; b < part; b += 64) _mm_prefetch((const char *)q[r] + b + LQ_X86_ROWS * bytes, _MM_HINT_T1);
    }
    for (int64_t k = 0; k < wide; k += 16) {
        __m128i row[LQ_X86_ROWS];
        const size_t at = (size_t)k / 8 * (size_t)bits;
        EACH (int r = 0; r < LQ_X86_ROWS; r++)
            row[r] = k < left ? codes16_at(q[r] + at, end[r], &s, bits) : _mm_setzero_si128();
        EACH (int r = 0; r < LQ_X86_ROWS; r++)
            if (book) row[r] = _mm_shuffle_epi8(look, row[r]);
        steps_store(row, to->q + k * LQ_X86_ROWS);
    }
}

// Scales and zero points of a tile, one for each cell (to->group), or of whole rows.
INLINE void codes_scales(const lq_weight *w, int64_t t, const lq_ukr_tile *to, const lq_codebook *book) {
    const int64_t cell = to->group ? to->group : to->k1 - to->k0;
    for (int r = 0; r < LQ_X86_ROWS; r++) {
        const bool there = t * LQ_X86_ROWS + r < w->n;
        const int64_t row = there ? t * LQ_X86_ROWS + r : w->n - 1;
        for (int64_t k = to->k0, end; k < to->k1; k = end) {
            cells c;
            end = to->group ? least_of(k + LQ_K_CUT / cell * cell + (cell > LQ_K_CUT ? cell : 0), to->k1) : to->k1;
            const span of = span_of(w, k, end);
            const float *z = groups_of(w, row, &of, &c);
            for (int64_t i = k; i < end; i += cell) {
                const int64_t at = (i - to->k0) / cell * LQ_X86_ROWS + r, g = i / of.group - of.first;
                to->scale[at] = there ? c.s[g] * (book ? book->unit : 1) : 0;
                to->zero[at] = (uint8_t)(book ? (float)book->most : z[g]);
            }
        }
    }
}

static void codes_sums(const lq_ukr_tile *to) {
    const int64_t len = to->k1 - to->k0;
    for (int64_t s = 0, end; s < len; s = end) {
        const uint8_t *zero = to->zero + (to->group ? s / to->group * LQ_X86_ROWS : 0);
        int32_t *sum = to->code_sum + s / to->span * LQ_X86_ROWS;
        end = least_of(s + to->span, len);
        for (int r = 0; r < LQ_X86_ROWS; r++) sum[r] = -(int32_t)(end - s) * zero[r];
        for (int64_t k = s; k < end; k += 4) { // what stands behind the last column is not counted
            const uint32_t some = end - k < 4 ? (1u << (end - k) * 8) - 1 : ~0u;
            for (int r = 0; r < LQ_X86_ROWS; r++) {
                uint32_t v;
                memcpy(&v, to->q + k * LQ_X86_ROWS + r * 4, sizeof v);
                v &= some;
                sum[r] += (int32_t)((v & 255) + (v >> 8 & 255) + (v >> 16 & 255) + (v >> 24));
            }
        }
    }
}

lq_ukr_codes NAME(lq_codes_u8_q8_intany), NAME(lq_codes_u8_q8_tableany);
void NAME(lq_codes_u8_q8_intany)(const lq_weight *w, int64_t t, const lq_ukr_tile *to) {
    switch (w->type.bits) {
    case 2: codes_tile(w, t, to, 2, NULL); break;
    case 3: codes_tile(w, t, to, 3, NULL); break;
    case 4: codes_tile(w, t, to, 4, NULL); break;
    case 5: codes_tile(w, t, to, 5, NULL); break;
    case 6: codes_tile(w, t, to, 6, NULL); break;
    case 7: codes_tile(w, t, to, 7, NULL); break;
    default: codes_tile(w, t, to, 8, NULL);
    }
    codes_scales(w, t, to, NULL);
    if (to->code_sum) codes_sums(to);
}

void NAME(lq_codes_u8_q8_tableany)(const lq_weight *w, int64_t t, const lq_ukr_tile *to) {
    const lq_codebook *book = lq_wtype_book(&w->type);
    codes_tile(w, t, to, 4, book);
    codes_scales(w, t, to, book);
}
