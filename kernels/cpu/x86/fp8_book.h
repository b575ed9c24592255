// fp8_book.h: the bf16 numbers of the codes of 8-bit floats, and one call's view of a weight of them. Owns nothing.
//
// A code without its sign is looked up by vpermi2b among 128, once for each byte of the bf16 number that it is. Scales
// that are shifts (mxfp8) are taken into the number: it is looked up 2^128 times as large, beyond what bf16 has, and
// the exponent is made less by 128 less the shift; what is below 1 then becomes 0, what is beyond all numbers infinite
// or NaN.
#ifndef LQ_FP8_BOOK_H
#define LQ_FP8_BOOK_H
#include "kernels/cpu/ukr.h"
#include "kernels/cpu/x86/unroll.h"
#include <immintrin.h>

// The numbers of codes 0 .. 127: those below 2^-6 (2^-14) are one by one, then the exponent has another bias.
#define E4M3(C) ((C) == 127 ? 0x7fc0 : (C) > 7 ? ((C) << 4) + (120 << 7) : (C) > 3 ? 0x3c00 + ((C) & 3) * 32 \
                 : (C) > 1 ? 0x3b80 + ((C) & 1) * 64 : (C) * 0x3b00)
#define E5M2(C) ((C) > 124 ? 0x7fc0 : (C) == 124 ? 0x7f80 : (C) > 3 ? ((C) << 5) + (112 << 7) \
                 : (C) > 1 ? 0x3800 + ((C) & 1) * 64 : (C) * 0x3780)
#define RAISED(F, C) ((C) == 0 ? 0 : F(C) >= 0x7f80 ? 0xffff : F(C) + (128 << 7))
#define E4M3_RAISED(C) RAISED(E4M3, C)
#define E5M2_RAISED(C) RAISED(E5M2, C)
#define LOW(N) ((N) & 255)
#define HIGH(N) ((N) >> 8)
#define EIGHT(BYTE, F, C) BYTE(F(C)), BYTE(F(C + 1)), BYTE(F(C + 2)), BYTE(F(C + 3)), BYTE(F(C + 4)), BYTE(F(C + 5)), \
    BYTE(F(C + 6)), BYTE(F(C + 7))
#define HALF(BYTE, F, C) EIGHT(BYTE, F, C), EIGHT(BYTE, F, C + 8), EIGHT(BYTE, F, C + 16), EIGHT(BYTE, F, C + 24), \
    EIGHT(BYTE, F, C + 32), EIGHT(BYTE, F, C + 40), EIGHT(BYTE, F, C + 48), EIGHT(BYTE, F, C + 56)
#define BYTES(F) {{HALF(LOW, F, 0), HALF(LOW, F, 64)}, {HALF(HIGH, F, 0), HALF(HIGH, F, 64)}}
static const _Alignas(64) uint8_t e4m3[2][2][128] = {BYTES(E4M3), BYTES(E4M3_RAISED)},
                                  e5m2[2][2][128] = {BYTES(E5M2), BYTES(E5M2_RAISED)};

typedef struct book { __m512i low[2], high[2]; } book;
INLINE book book_of(const lq_wtype *t) {
    const bool raised = lq_fp8_shifts(t);
    const uint8_t(*b)[128] = t->elem == LQ_E4M3 ? e4m3[raised] : e5m2[raised];
    return (book){{_mm512_load_si512(b[0]), _mm512_load_si512(b[0] + 64)},
                  {_mm512_load_si512(b[1]), _mm512_load_si512(b[1] + 64)}};
}

// 64 codes as bf16, what two unpacks make of them. less: they are raised, and their exponents less by so much.
typedef struct halves { __m512i first, second; } halves;
INLINE halves halves_of(__m512i v, const book *b, const bool less, __m512i by_first, __m512i by_second) {
    const __m512i low = _mm512_permutex2var_epi8(b->low[0], v, b->low[1]);
    __m512i high = _mm512_permutex2var_epi8(b->high[0], v, b->high[1]);
    if (!less) {
        high = _mm512_ternarylogic_epi32(high, v, _mm512_set1_epi8((char)0x80), 0xf8 /* high | (v & sign) */);
        return (halves){_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
    }
    const __m512i sign = _mm512_set1_epi16((short)0x8000), nan = _mm512_set1_epi16(0x7fc0);
    const __m512i first = _mm512_min_epu16(_mm512_subs_epu16(_mm512_unpacklo_epi8(low, high), by_first), nan);
    const __m512i second = _mm512_min_epu16(_mm512_subs_epu16(_mm512_unpackhi_epi8(low, high), by_second), nan);
    return (halves){_mm512_ternarylogic_epi32(first, _mm512_unpacklo_epi8(v, v), sign, 0xf8),
                    _mm512_ternarylogic_epi32(second, _mm512_unpackhi_epi8(v, v), sign, 0xf8)};
}

typedef struct area { // of one call
    const lq_weight *w;
    const uint16_t *x;
    const float *ascale;    // [cell][all], of E4M3; else NULL
    size_t x_row, all, row; // row: bytes of one in layout x86
    int64_t n, k, cell, group; // group: columns of a scale, `each` cells
    int64_t groups, each;
    float *y;
    size_t ldy;
    bool shifts;
    book b;
} area;

INLINE area area_of(const lq_weight *w, const lq_act *act, float *y, size_t ldy) {
    const bool e4m3_act = act->type.elem == LQ_E4M3;
    area a = {.w = w, .x = act->q, .ascale = e4m3_act ? act->scale : NULL, .x_row = act->q_row,
              .all = (size_t)act->apart, .row = lq_x86_row(&w->type, w->k), .n = w->n, .k = w->k,
              .cell = lq_fp8_cell(w, act), .group = w->type.kind == LQ_W_FLOAT && w->type.group ? w->type.group : w->k,
              .groups = lq_weight_groups(&w->type, w->k), .y = y, .ldy = ldy, .shifts = lq_fp8_shifts(&w->type),
              .b = book_of(&w->type)};
    a.each = (a.group + a.cell - 1) / a.cell;
    return a;
}
#endif
