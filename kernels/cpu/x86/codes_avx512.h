// codes_avx512.h: codes of layout x86 (docs/KERNELS.md) as bytes: 4 k of 16 rows, a lane for each row.
#ifndef LQ_CODES_AVX512_H
#define LQ_CODES_AVX512_H
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

// Bits whose codes are in planes come 32 k at a time, others 16.
#define CODES_K(BITS) ((BITS) == 4 || (BITS) == 8 ? 16 : 32)

// Field `f` (of 4 k) of a plane of so many bits, shifted to bit `to`; the bits beside it are others'.
INLINE __m512i plane_field(const uint8_t *q, const int width, const int f, const int to) {
    const int per = 8 / width, from = f % per * width;
    const __m512i v = _mm512_loadu_si512(q + f / per * 64);
    if (from > to) return _mm512_srli_epi16(v, (unsigned)(from - to));
    return from < to ? _mm512_slli_epi16(v, (unsigned)(to - from)) : v;
}

// Codes 4f .. 4f + 3 of the CODES_K at q.
INLINE __m512i codes_4k(const uint8_t *q, const int bits, const int f) {
    const int low = bits == 8 ? 8 : bits >= 4 ? 4 : 2;
    const __m512i v = plane_field(q, low, f, 0), all = _mm512_set1_epi8((char)((1 << bits) - 1));
    if (bits == 8) return v;
    if (bits == low) return _mm512_and_si512(v, all);
    const __m512i high = plane_field(q + 64 * low, bits - low, f, low), mask = _mm512_set1_epi8((char)((1 << low) - 1));
    return _mm512_and_si512(_mm512_ternarylogic_epi32(v, high, mask, 0xe4 /* mask ? v : high */), all);
}
#endif
