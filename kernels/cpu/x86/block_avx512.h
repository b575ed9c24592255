// block_avx512.h: a cell of k of 2 tiles x 9 to 12 rows: 18 to 24 sums of vpdpbusd in registers, then their place in y.
// One statement of asm, because gcc 12 spills around sums that leave it five registers; a cell ends where they stand,
// since with cells of 32 k that is a third of the work. Part of int_avx512.h.
//
// zmm0.. and zmm12..: the sums of the first and of the second tile; 24: the mask; 25, 26: codes; 27: four k of a row.
// int4 goes through a cell twice, first for the high nibbles (16 * code: an AND and no shift), then, after a shift of
// the sums, for the low ones, which come from L1. The first pass fetches the tile after next into L2, the second the
// one behind it and the activations of the next rows.
#ifndef LQ_BLOCK_AVX512_H
#define LQ_BLOCK_AVX512_H

// What a cell's sums end with, where the statement finds it: z and scale of both tiles, y [rows][2][16], and of the
// activations of its rows sums and scales.
typedef struct cell_end {
    __m512i z[2];
    __m512 scale[2];
    void *y;
    const int32_t *xsum;
    const float *xscale;
} cell_end;
_Static_assert(offsetof(cell_end, y) == 256, "asm knows where it is");

#define ROWS9(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define ROWS10(X) ROWS9(X) X(9)
#define ROWS11(X) ROWS10(X) X(10)
#define ROWS12(X) ROWS11(X) X(11)

// Of row m: the sums of both tiles, and where its activations lie.
#define A(m) "%%zmm" #m
#define B(m) "%%zmm" B_##m
#define B_0 "12"
#define B_1 "13"
#define B_2 "14"
#define B_3 "15"
#define B_4 "16"
#define B_5 "17"
#define B_6 "18"
#define B_7 "19"
#define B_8 "20"
#define B_9 "21"
#define B_10 "22"
#define B_11 "23"
#define X_0 "(%[x])"
#define X_1 "(%[x],%[G])"
#define X_2 "(%[x],%[G],2)"
#define X_3 "(%[x],%[G3])"
#define X_4 "(%[x4])"
#define X_5 "(%[x4],%[G])"
#define X_6 "(%[x4],%[G],2)"
#define X_7 "(%[x4],%[G3])"
#define X_8 "(%[x8])"
#define X_9 "(%[x8],%[G])"
#define X_10 "(%[x8],%[G],2)"
#define X_11 "(%[x8],%[G3])"

#define LINE "\n\t"
#define ZERO(m) "vpxord " A(m) ", " A(m) ", " A(m) LINE "vpxord " B(m) ", " B(m) ", " B(m) LINE
#define DOT(m, at) "vpbroadcastd " at X_##m ", %%zmm27" LINE "vpdpbusd %%zmm27, %%zmm25, " A(m) LINE "vpdpbusd %%zmm27, %%zmm26, " B(m) LINE
#define DOT_HIGH(m) DOT(m, "4")
#define DOT_LOW(m) DOT(m, "0")
#define SHIFT(m) "vpsrad $4, " A(m) ", " A(m) LINE "vpsrad $4, " B(m) ", " B(m) LINE
#define NEXT(BYTES) "add $64, %[p]" LINE "add $" BYTES ", %[x]" LINE "add $" BYTES ", %[x4]" LINE "add $" BYTES ", %[x8]" LINE "dec %[k]" LINE
#define HALF(FETCH) "vpandd (%[p]), %%zmm24, %%zmm25" LINE "vpandd (%[p],%[tile]), %%zmm24, %%zmm26" LINE FETCH
#define AHEAD_X(BYTES) "prefetcht0 (%[ahead])" LINE "add $" BYTES ", %[ahead]" LINE

#define DOTS4(ROWS, M)                                                                                                        \
    ROWS(ZERO) "vpbroadcastd %[high], %%zmm24" LINE "1:" LINE                                                                   \
    HALF("prefetcht1 (%[p],%[tile],2)" LINE) ROWS(DOT_HIGH) NEXT("8") "jnz 1b" LINE ROWS(SHIFT)                                 \
    "vpbroadcastd %[low], %%zmm24" LINE "mov %[G], %[k]" LINE "shl $3, %[k]" LINE "sub %[k], %[p]" LINE "shr $6, %[k]" LINE       \
    "sub %[G], %[x]" LINE "sub %[G], %[x4]" LINE "sub %[G], %[x8]" LINE "2:" LINE                                               \
    HALF("prefetcht1 (%[p],%[tile3])" LINE AHEAD_X("8*" #M)) ROWS(DOT_LOW) NEXT("8") "jnz 2b" LINE

#define DOTS8(ROWS, M)                                                                                                        \
    ROWS(ZERO) "1:" LINE "vmovdqu64 (%[p]), %%zmm25" LINE "vmovdqu64 (%[p],%[tile]), %%zmm26" LINE                              \
    "prefetcht1 (%[p],%[tile],2)" LINE "prefetcht1 (%[p],%[tile3])" LINE AHEAD_X("4*" #M) ROWS(DOT_LOW) NEXT("4") "jnz 1b" LINE

// y = fma((float)(dot - zero * sum(x)), wscale * ascale, y): what `centre` and add_group do, for cells of up to 256 k.
#define ADD_TO(m, sum, z, scale, at)                                                                                          \
    "vpdpwssd 4*" #m "(%[x])%{1to16%}, " z ", " sum LINE "vcvtdq2ps " sum ", " sum LINE                                         \
    "vmulps 4*" #m "(%[x4])%{1to16%}, " scale ", %%zmm28" LINE "vfmadd213ps " at "(%[p]), %%zmm28, " sum LINE                   \
    "vmovaps " sum ", " at "(%[p])" LINE
#define ADD(m) ADD_TO(m, A(m), "%%zmm24", "%%zmm26", "128*" #m) ADD_TO(m, B(m), "%%zmm25", "%%zmm27", "64+128*" #m)
#define PUT(m) "vmovdqa32 " A(m) ", 128*" #m "(%[p])" LINE "vmovdqa32 " B(m) ", 64+128*" #m "(%[p])" LINE
#define END_ADD(ROWS)                                                                                                         \
    "vmovdqa64 (%[end]), %%zmm24" LINE "vmovdqa64 64(%[end]), %%zmm25" LINE "vmovaps 128(%[end]), %%zmm26" LINE                 \
    "vmovaps 192(%[end]), %%zmm27" LINE "mov 256(%[end]), %[p]" LINE "mov 264(%[end]), %[x]" LINE "mov 272(%[end]), %[x4]" LINE ROWS(ADD)
#define END_PUT(ROWS) "mov 256(%[end]), %[p]" LINE ROWS(PUT)

#define CELL(NAME, ROWS, M, BITS, DOTS, END)                                                                                  \
INLINE void NAME(const uint8_t *p, size_t tile, const int8_t *x, size_t G, const cell_end *end) {                             \
    static const uint32_t high = 0xf0f0f0f0, low = 0x0f0f0f0f;                                                                \
    const int8_t *x4 = x + 4 * G, *x8 = x + 8 * G, *ahead = x + M * G;                                                        \
    size_t k = G * BITS / 32;                                                                                                 \
    __asm__ volatile(DOTS(ROWS, M) END(ROWS)                                                                                  \
        : [p] "+r"(p), [x] "+r"(x), [x4] "+r"(x4), [x8] "+r"(x8), [ahead] "+r"(ahead), [k] "+r"(k)                              \
        : [tile] "r"(tile), [tile3] "r"(3 * tile), [G] "r"(G), [G3] "r"(3 * G), [end] "r"(end), [high] "m"(high), [low] "m"(low) \
        : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",      \
          "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24",    \
          "xmm25", "xmm26", "xmm27", "xmm28");                                                                                  \
}
#endif
