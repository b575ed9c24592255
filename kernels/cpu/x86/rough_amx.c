// rough_amx.c: lq_rough_amx, products of f32 by tiles (amx.h). Owns nothing.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/x86/amx.h"
#include <string.h>

enum { SIDE = 2 * TILE };
_Static_assert((int)TILE == LQ_STRIP && (int)DEEP == LQ_STEP && (int)PAIR_BYTES == LQ_STEP_BYTES, "one kind of tile");

static __m512 load_some(const float *x, int64_t left) {
    const __mmask16 some = left >= TILE ? 0xffff : left > 0 ? (__mmask16)((1u << left) - 1) : 0;
    return some ? _mm512_maskz_loadu_ps(some, x) : _mm512_setzero_ps();
}

static __m512 widened(__m256i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)); }

// 32 k of a row, in order.
static void split_row(const float *x, int64_t left, __m512i *hi, __m512i *lo) {
    const __m512 a = load_some(x, left), b = load_some(x + TILE, left - TILE);
    *hi = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    *lo = (__m512i)_mm512_cvtne2ps_pbh(_mm512_sub_ps(b, widened(_mm512_extracti64x4_epi64(*hi, 1))),
                                       _mm512_sub_ps(a, widened(_mm512_castsi512_si256(*hi))));
}

static void strip(const float *x, size_t stride, int rows, int64_t cols, bool turned, char *to) {
    __m512i hi[TILE], lo[TILE];
    for (int r = rows; r < TILE; r++) hi[r] = lo[r] = _mm512_setzero_si512();
    for (int64_t k = 0; k < cols; k += DEEP, to += PAIR_BYTES) {
        for (int r = 0; r < rows; r++) split_row(x + (size_t)r * stride + k, cols - k, &hi[r], &lo[r]);
        if (turned) {
            turn(hi, to);
            turn(lo, to + TILE_BYTES);
            continue;
        }
        for (int r = 0; r < TILE; r++) {
            _mm512_storeu_si512(to + 64 * r, hi[r]);
            _mm512_storeu_si512(to + TILE_BYTES + 64 * r, lo[r]);
        }
    }
}

// At the border: rows and columns of a block that are in y, from it or to it.
static void part_of(float *block, int rows, int cols, bool store, float *y, size_t ldy) {
    for (int r = 0; r < rows; r++)
        if (store) memcpy(y + (size_t)r * ldy, block + r * SIDE, (size_t)cols * sizeof *y);
        else memcpy(block + r * SIDE, y + (size_t)r * ldy, (size_t)cols * sizeof *y);
}

static void product_of(const char *x, size_t x_strip, int rows, const char *w, size_t w_strip, int cols, int steps,
                       bool half, bool more, float *y, size_t ldy) {
    _Alignas(64) float part[SIDE * SIDE] = {0};
    tiles_begin(TILE_WIDE, TILE);
    for (int m = 0; m < rows; m += SIDE, x += 2 * x_strip)
        for (int n = 0; n < cols; n += SIDE) {
            const char *b = w + (size_t)(n / TILE) * w_strip;
            const char *const as[2] = {x, rows - m > TILE ? x + x_strip : x};
            const char *const bs[2] = {b, cols - n > TILE ? b + w_strip : b};
            const int high = rows - m < SIDE ? rows - m : SIDE, wide = cols - n < SIDE ? cols - n : SIDE;
            const bool whole = high == SIDE && wide == SIDE;
            float *at = y + (size_t)m * ldy + (size_t)n, *to = whole ? at : part;
            const size_t ld = whole ? ldy : SIDE;
            if (!whole && more) part_of(part, high, wide, false, at, ldy);
            if (half) product(as, bs, steps, true, more, to, ld);
            else product(as, bs, steps, false, more, to, ld);
            if (!whole) part_of(part, high, wide, true, at, ldy);
        }
    tiles_end();
}

const lq_rough lq_rough_amx = {strip, product_of};
