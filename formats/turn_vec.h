// turn_vec.h: what a band of rows of layout any has side by side becomes lines of layout x86, a line being one word of
// each row. layout.c compiles it once for each width of vectors it knows: LANES (of 16 bytes), the functions' TARGET
// and their names FN(name), what is called OP(name) in immintrin.h, and
//   JOIN(p, step)   16 bytes at p and each `step` bytes further, lane by lane
//   PAST(p, v)      to memory, past the caches
//
// A line of memory of each row is read whole before the next: rows lie often a power of two apart, and the first cache
// has room for few lines of such addresses.
#define WIDE FN(wide)
#define QUARTERS (4 / LANES) // of rows: vectors of a line
#define INLINE TARGET static inline __attribute__((always_inline))
typedef uint32_t WIDE __attribute__((vector_size(16 * LANES)));
typedef uint16_t FN(wide_16) __attribute__((vector_size(8 * LANES)));
typedef uint8_t FN(wide_8) __attribute__((vector_size(4 * LANES)));

// `count` words of each row, up to 16: to as many lines. `ahead`: bytes to what is wanted later.
INLINE void FN(words)(const uint8_t *src, size_t row_bytes, const int count, size_t ahead, WIDE (*line)[QUARTERS]) {
    WIDE v[4][QUARTERS][4];
    for (size_t r = 0; r < 4; r++)
        for (size_t q = 0; q < QUARTERS; q++) {
            const uint8_t *at = src + (4 * LANES * q + r) * row_bytes;
            for (size_t l = 0; l < LANES; l++) __builtin_prefetch(at + 4 * l * row_bytes + ahead, 0, 2);
            for (int i = 0; i < count / 4; i++) v[i][q][r] = (WIDE)JOIN(at + 16 * i, 4 * row_bytes);
        }
    for (int i = 0; i < count / 4; i++)
        for (size_t q = 0; q < QUARTERS; q++) {
            const __typeof__(OP(unpacklo_epi32)(JOIN(src, 0), JOIN(src, 0))) *r = (const void *)v[i][q];
            const __typeof__(*r) a = OP(unpacklo_epi32)(r[0], r[1]), b = OP(unpackhi_epi32)(r[0], r[1]);
            const __typeof__(*r) c = OP(unpacklo_epi32)(r[2], r[3]), d = OP(unpackhi_epi32)(r[2], r[3]);
            line[4 * i][q] = (WIDE)OP(unpacklo_epi64)(a, c), line[4 * i + 1][q] = (WIDE)OP(unpackhi_epi64)(a, c);
            line[4 * i + 2][q] = (WIDE)OP(unpacklo_epi64)(b, d), line[4 * i + 3][q] = (WIDE)OP(unpackhi_epi64)(b, d);
        }
}

// The bits of `mask` change places with those `by` above them.
INLINE WIDE FN(swap)(WIDE v, int by, uint32_t mask) {
    const WIDE t = (v ^ v >> by) & mask;
    return v ^ t ^ t << by;
}

// A word of one plane: 8 codes of 4 bits or 16 of 2 change places.
INLINE WIDE FN(word)(const int bits, WIDE v) {
    if (bits == 4) return FN(swap)(FN(swap)(v, 8, 0x0000ff00), 4, 0x00f000f0);
    return bits == 2 ? FN(swap)(FN(swap)(v, 6, 0x00cc00cc), 12, 0x0000f0f0) : v;
}

// 32 codes of two planes: `bits` words there and as many back.
INLINE void FN(unit)(const int bits, WIDE (*word)[QUARTERS], size_t q) {
    const int low = planes[bits][0], high = planes[bits][1];
    const uint32_t two = (uint32_t)ones(2 * bits), one = (uint32_t)ones(bits);
    WIDE out[8];
    for (int i = 0; i < bits; i++) out[i] = (WIDE){0};
    for (int f = 0; f < 8; f++) { // codes 4 f .. 4 f + 3, to a byte each
        const int at = 4 * bits * f / 32, from = 4 * bits * f % 32;
        WIDE v = word[at][q] >> from;
        if (from + 4 * bits > 32) v |= word[at + 1][q] << (32 - from);
        v = (v & two) | (v << (16 - 2 * bits) & two << 16);
        v = (v & one * 0x00010001) | (v << (8 - bits) & one * 0x01000100);
        out[f * low / 8] |= (v & (uint32_t)ones(low) * 0x01010101) << f * low % 8;
        out[low + f * high / 8] |= (v >> low & (uint32_t)ones(high) * 0x01010101) << f * high % 8;
    }
    for (int i = 0; i < bits; i++) word[i][q] = out[i];
}

INLINE void FN(pieces)(const int bits, const uint8_t *src, size_t row_bytes, int64_t count, uint8_t *dst) {
    if (bits == 7) return; // has no form
    const bool past = (uintptr_t)dst % 64 == 0, two = planes[bits][1];
    const int words = 4 * bits;
    for (int64_t left = count * 4 * words; left > 0; left -= 4 * words, src += 4 * words, dst += 64 * words) {
        const size_t ahead = AHEAD + (left > AHEAD ? 0 : (LQ_BAND - 1) * row_bytes); // behind this band comes the next
        WIDE line[4 * 8][QUARTERS];
        for (int i = 0; i < words; i += 16)
            FN(words)(src + 4 * i, row_bytes, words - i < 16 ? words - i : 16, ahead, line + i);
        for (int i = 0; two && i < words; i += bits)
            for (size_t q = 0; q < QUARTERS; q++) FN(unit)(bits, line + i, q);
        for (int i = 0; i < words; i++)
            for (size_t q = 0; q < QUARTERS; q++) {
                const WIDE v = two ? line[i][q] : FN(word)(bits, line[i][q]);
                uint8_t *to = dst + 64 * i + 16 * LANES * q;
                if (past) PAST(to, v);
                else memcpy(to, &v, sizeof v);
            }
    }
    if (past) _mm_sfence(); // other threads read it
}

INLINE void FN(numbers)(const int size, const uint8_t *src, size_t row_bytes, uint8_t *dst) {
    WIDE line[4][QUARTERS];
    FN(words)(src, row_bytes, 4, 0, line);
    for (int i = 0; i < 16 / size; i++)
        for (size_t q = 0; q < QUARTERS; q++) {
            const WIDE v = line[i * size / 4][q] >> i * size % 4 * 8;
            const FN(wide_16) half = __builtin_convertvector(v, FN(wide_16));
            const FN(wide_8) byte = __builtin_convertvector(v, FN(wide_8));
            const void *from = size == 4 ? (const void *)&v : size == 2 ? (const void *)&half : &byte;
            memcpy(dst + size * (LQ_BAND * i + 4 * LANES * (int)q), from, (size_t)size * 4 * LANES);
        }
}

TARGET static void FN(turn_pieces)(int bits, const uint8_t *src, size_t row_bytes, int64_t count, uint8_t *dst) {
    BY_BITS(bits, FN(pieces), src, row_bytes, count, dst)
}

TARGET static void FN(turn_numbers)(int size, const uint8_t *src, size_t row_bytes, uint8_t *dst) {
    if (size == 4) FN(numbers)(4, src, row_bytes, dst);
    else if (size == 2) FN(numbers)(2, src, row_bytes, dst);
    else FN(numbers)(1, src, row_bytes, dst);
}
#undef WIDE
#undef QUARTERS
#undef INLINE
#undef LANES
#undef TARGET
#undef FN
#undef OP
#undef JOIN
#undef PAST
