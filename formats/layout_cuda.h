// layout_cuda.h: where one code, scale or zero point lies in layout cuda, for those that read them one by one, on the
// host and in CUDA kernels (layout.c moves them by the piece). docs/KERNELS.md draws the layout.
#ifndef LQ_LAYOUT_CUDA_H
#define LQ_LAYOUT_CUDA_H
#include "formats/fn.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

LQ_FN int lq_cuda_unit(int bits) { return bits == 4 || bits == 8 ? 64 : 128; }

// The planes of a code of so many bits, from the low ones up: their widths, 0 behind the last.
LQ_FN int lq_cuda_plane(int bits, int i) {
    const int first = bits == 2 || bits == 3 ? 2 : bits == 8 ? 8 : 4;
    return i ? i == 1 ? bits - first : 0 : first;
}

// Of a matrix whose rows have so many columns with their padding.
LQ_FN uint32_t lq_cuda_code(const void *q, int bits, int64_t wide, int64_t row, int64_t k) {
    const int unit = lq_cuda_unit(bits), c = (int)(k % unit), g = (int)(row % 8), t = c % 8 / 2;
    const int i = c / 16 * 4 + (int)(row % 16 / 8) + c % 16 / 8 * 2; // field of a half word
    const uint8_t *at = (const uint8_t *)q +
                        ((row / 64 * (wide / unit) + k / unit) * 4 + row % 64 / 16) * 2 * unit * bits;
    uint32_t code = 0;
    for (int p = 0, shift = 0, width; p < 2 && (width = lq_cuda_plane(bits, p)); p++, shift += width) {
        const int words = unit / 16 * width / 4, together = words < 4 ? words : 4, u = i * width / 16;
        const int bit = (width == 8 ? (i & 1 ? 0 : 8) : i * width % 16) + c % 2 * 16;
        uint32_t word;
        memcpy(&word, at + ((u / together * 32 + 4 * g + t) * together + u % together) * 4, 4);
        code |= (word >> bit & ((1u << width) - 1)) << shift;
        at += words * 128;
    }
    return code;
}

// Which of the scales, where each row has its own.
LQ_FN size_t lq_cuda_scale(int64_t n, int64_t row, int64_t group) {
    return (size_t)(row / 16 * 16 + row % 8 * 2 + row % 16 / 8 + group * ((n + 63) / 64 * 64));
}

LQ_FN int lq_cuda_zero(const uint8_t *zero, int bits, int64_t n, int64_t row, int64_t group) {
    if (bits > 4) return zero[lq_cuda_scale(n, row, group)];
    const size_t at = (size_t)(row / 64 * 64 + row % 8 * 8 + row % 64 / 16 * 2 + row % 16 / 8 +
                               group * ((n + 63) / 64 * 64));
    return zero[at / 2] >> 4 * (at % 2) & 15;
}
#endif
