// w4s_codes.cuh: what each kind of codes is to the products of w4s.cuh: which words a lane has of 16 rows x 128
// columns, and how eight of them become a register set of operand A. Numbers are exact in bf16, but those of a table,
// which are rounded to it.
//
// load() is called for k32 = 0 .. 3, columns 32 k32 on, and reads what that needs and has not; fragment() makes columns
// 16 k16 on, k16 = 0 .. 7. `more` is what the codes' group or matrix adds.
#ifndef LQ_W4S_CODES_CUH
#define LQ_W4S_CODES_CUH
#include "kernels/cuda/simt.h"
#include "kernels/cuda/w4s.h"

namespace w4s {
const uint32_t ONE = 0x3f803f80u, MAGIC = 0x43004300u; // pairs of 1 and of 128

// A field of `width` bits at bit `at` of both halves, moved to bit `to`.
LQ_DEV uint32_t moved(uint32_t word, int at, int to) { return at >= to ? word >> (at - to) : word << (to - at); }

// Integers in planes of 4, 2 and 1 bits, from the low bits up. Under the bits of 128.0 a code is 128 + q; times 1 minus
// (128 + z) is q - z.
template <int B> struct ints {
    enum { BITS = B, ZEROS = 1, TABLE = 0, HALVES = B & 1, LOW = B >= 4 ? 4 : 2 };
    uint4 low, two;
    uint2 one;

    LQ_METHOD void load(smem at, int lane, int k32) {
        if (LOW == 4 && k32 % 2 == 0) low = lds16(at + k32 / 2 * 512 + lane * 16);
        if (LOW == 2 && k32 == 0) low = lds16(at + lane * 16);
        if (B == 6 && k32 == 0) two = lds16(at + 1024 + lane * 16);
        if (HALVES && k32 == 0) one = lds8(at + (B / 4 + 1) * 512 + lane * 8);
    }

    LQ_METHOD void fragment(uint32_t (&a)[4], int k16, const uint2 &minus) const {
        const uint32_t words[4] = {low.x, low.y, low.z, low.w}, twos[4] = {two.x, two.y, two.z, two.w};
        LQ_UNROLL
        for (int p = 0; p < 4; p++) {
            uint32_t q;
            if (LOW == 4) q = and_or(words[k16 % 4] >> 4 * p, 0x000f000fu, MAGIC);
            else q = and_or(words[k16 / 2] >> 2 * (k16 % 2 * 4 + p), 0x00030003u, MAGIC);
            const int bit = k16 % 4 * 4 + p;
            if (HALVES) q = and_or(moved(k16 < 4 ? one.x : one.y, bit, LOW), 0x00010001u << LOW, q);
            if (B == 6) q = and_or(moved(twos[k16 / 2], 2 * (k16 % 2 * 4 + p), 4), 0x00300030u, q);
            a[p] = bf16x2_fma(q, ONE, p & 1 ? minus.y : minus.x);
        }
    }
};

// The 16 bytes of a part of 32 columns: of each word the upper bytes of both halves are one register, the lower ones
// the next.
struct bytes {
    uint4 part;
    LQ_METHOD void load(smem at, int lane, int k32) { part = lds16(at + k32 * 512 + lane * 16); }
    LQ_METHOD uint32_t word(int k16, int p) const {
        return k16 % 2 ? (p < 2 ? part.z : part.w) : (p < 2 ? part.x : part.y);
    }
};

// q - 128 is (128 + its low 7 bits) less 128 or 256; then 128 - z comes to it.
template <> struct ints<8> : bytes {
    enum { BITS = 8, ZEROS = 1, TABLE = 0, HALVES = 0 };
    LQ_METHOD void fragment(uint32_t (&a)[4], int k16, const uint2 &minus) const {
        LQ_UNROLL
        for (int p = 0; p < 4; p++) {
            const uint32_t q = p & 1 ? word(k16, p) : word(k16, p) >> 8;
            const uint32_t high = (q & 0x00800080u) ^ 0xc380c380u;
            a[p] = bf16x2_fma(bf16x2_fma(and_or(q, 0x007f007fu, MAGIC), ONE, high), ONE, p & 1 ? minus.y : minus.x);
        }
    }
};

// E4M3 and E5M2: sign, and what stands behind it moved under the exponent of bf16, times the power of two that it
// lacks. A code that is none or infinite counts as what its bits would be next: 480, 65536 and up.
struct floats : bytes {
    enum { BITS = 8, ZEROS = 0, TABLE = 0, HALVES = 0 };
    LQ_METHOD void fragment(uint32_t (&a)[4], int k16, const uint2 &form) const {
        LQ_UNROLL
        for (int p = 0; p < 4; p++) {
            const uint32_t q = p & 1 ? word(k16, p) << 8 : word(k16, p);
            a[p] = bf16x2_fma(and_or(q, 0x80008000u, (q & 0x7f007f00u) >> form.x), form.y, 0x80008000u);
        }
    }
};

// Codes of 4 bits that stand for 16 numbers: low and high bytes of eight of them are looked up by a byte permutation
// each, of the lower and of the upper half of the table, and bit 3 of the code chooses.
struct sixteen {
    enum { BITS = 4, ZEROS = 0, TABLE = 1, HALVES = 0 };
    uint4 words;
    struct table { uint32_t low[4], high[4]; };

    LQ_METHOD void load(smem at, int lane, int k32) {
        if (k32 % 2 == 0) words = lds16(at + k32 / 2 * 512 + lane * 16);
    }

    // Of the four codes of `select`, registers p and p + 2 of operand A.
    static LQ_METHOD void looked_up(uint32_t &a, uint32_t &b, uint32_t select, uint32_t upper, const table &t) {
        const uint32_t low = (prmt(t.low[2], t.low[3], select) & upper) | (prmt(t.low[0], t.low[1], select) & ~upper);
        const uint32_t high = (prmt(t.high[2], t.high[3], select) & upper) |
                              (prmt(t.high[0], t.high[1], select) & ~upper);
        a = prmt(low, high, 0x5140);
        b = prmt(low, high, 0x7362);
    }

    LQ_METHOD void fragment(uint32_t (&a)[4], int k16, const table &t) const {
        const uint32_t all[4] = {words.x, words.y, words.z, words.w}, w = all[k16 % 4], v = w >> 4;
        // p = 0 and 2, each with both halves: nibbles 0, 4, 2, 6; then 1, 5, 3, 7.
        looked_up(a[0], a[2], and_or(w, 0x0707, w >> 12 & 0x7070), prmt(w << 4, 0, 0xb9a8), t);
        looked_up(a[1], a[3], and_or(v, 0x0707, w >> 16 & 0x7070), prmt(w, 0, 0xb9a8), t);
    }
};

LQ_DEV sixteen::table table_of(const float *value) {
    sixteen::table t;
    LQ_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint4 v = ldg16(value + 4 * i);
        const uint32_t a = bf16x2_of(float_of(v.x), float_of(v.y)), b = bf16x2_of(float_of(v.z), float_of(v.w));
        t.low[i] = prmt(a, b, 0x6420);
        t.high[i] = prmt(a, b, 0x7531);
    }
    return t;
}

// Rows of BF16, or of F16, which are rounded to it. In shared memory a row has 256 bytes, its 16-byte chunks turned by
// it.
struct rows16 {
    enum { BITS = 16, ZEROS = 0, TABLE = 0, HALVES = 0 };
    smem at;
    uint32_t turned;

    LQ_METHOD void load(smem from, int lane, int) {
        at = from + (lane & 15) * 256;
        turned = (uint32_t)(lane / 16 ^ (lane & 7)) * 16;
    }

    LQ_METHOD void fragment(uint32_t (&a)[4], int k16, const uint2 &form) const {
        ldmatrix_x4(a, at + (k16 * 32 ^ turned));
        if (form.x)
            for (int p = 0; p < 4; p++) a[p] = bf16x2_of(f16_float(a[p] & 0xffff), f16_float(a[p] >> 16));
    }
};
}
#endif
