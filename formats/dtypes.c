// dtypes.c: the table of element types and their conversions. Plain C without branches in the loops, so that compilers
// vectorise it; sources and destinations may have any alignment. Conversions from f32 round to nearest even and do not
// depend on whether the machine flushes denormals.
#include "formats/block.h"
#include "formats/elem.h"
#include <math.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and are mapped as they are");

uint16_t lq_f32_bf16(float f) { return (uint16_t)lq_bf16_narrow(f); }
float lq_f16_f32(uint16_t h) { return lq_f16_widen(h); }
uint16_t lq_f32_f16(float f) { return (uint16_t)lq_f16_narrow(f); }

// A narrowed code that is infinite or NaN though its source is finite was lost.
#define FLOAT_ROW(id, code, widen, narrowing, special)                          \
    static void id##_to(const void *src, float *dst, size_t n) {                \
        const unsigned char *s = src;                                           \
        for (size_t i = 0; i < n; i++) {                                        \
            code c;                                                             \
            memcpy(&c, s + i * sizeof c, sizeof c);                             \
            dst[i] = widen(c);                                                  \
        }                                                                       \
    }                                                                           \
    static bool id##_from(const float *src, void *dst, size_t n) {              \
        unsigned char *d = dst;                                                 \
        uint32_t lost = 0;                                                      \
        for (size_t i = 0; i < n; i++) {                                        \
            code c = (code)narrowing(src[i]);                                   \
            uint32_t finite = (lq_bits(src[i]) & 0x7f800000) != 0x7f800000;     \
            lost |= finite & (uint32_t)((c & (special)) == (special));          \
            memcpy(d + i * sizeof c, &c, sizeof c);                             \
        }                                                                       \
        return !lost;                                                           \
    }
FLOAT_ROW(f16, uint16_t, lq_f16_widen, lq_f16_narrow, 0x7c00)
FLOAT_ROW(bf16, uint16_t, lq_bf16_f32, lq_bf16_narrow, 0x7f80)
FLOAT_ROW(e4m3, uint8_t, lq_e4m3_widen, lq_e4m3_narrow, 0x7f)
FLOAT_ROW(e5m2, uint8_t, lq_e5m2_widen, lq_e5m2_narrow, 0x7c)

static void f32_to(const void *src, float *dst, size_t n) { memcpy(dst, src, n * sizeof *dst); }
static bool f32_from(const float *src, void *dst, size_t n) {
    memcpy(dst, src, n * sizeof *src);
    return true;
}

static void f64_to(const void *src, float *dst, size_t n) {
    const unsigned char *s = src;
    for (size_t i = 0; i < n; i++) {
        double d;
        memcpy(&d, s + i * sizeof d, sizeof d);
        dst[i] = (float)d;
    }
}

static bool f64_from(const float *src, void *dst, size_t n) {
    unsigned char *o = dst;
    for (size_t i = 0; i < n; i++) {
        double d = src[i];
        memcpy(o + i * sizeof d, &d, sizeof d);
    }
    return true;
}

static void e8m0_to(const void *src, float *dst, size_t n) {
    const unsigned char *s = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = lq_e8m0_widen(s[i]);
}

static bool e8m0_from(const float *src, void *dst, size_t n) {
    unsigned char *d = dst;
    bool kept = true;
    for (size_t i = 0; i < n; i++) {
        d[i] = (unsigned char)lq_e8m0_narrow(src[i]);
        kept &= d[i] != 255 || lq_bits(src[i]) - 1 >= 0x7f800000u - 1;
    }
    return kept;
}

// Integers: to the nearest float; from a float to the nearest even, held to the range, false if it left it. `lo` and
// `hi` are the type's least value and one past its largest, both exact in f32.
#define INT_ROW(id, type, lo, hi, largest)                                      \
    static void id##_to(const void *src, float *dst, size_t n) {                \
        const unsigned char *s = src;                                           \
        for (size_t i = 0; i < n; i++) {                                        \
            type v;                                                             \
            memcpy(&v, s + i * sizeof v, sizeof v);                             \
            dst[i] = (float)v;                                                  \
        }                                                                       \
    }                                                                           \
    static bool id##_from(const float *src, void *dst, size_t n) {              \
        unsigned char *d = dst;                                                 \
        bool kept = true;                                                       \
        for (size_t i = 0; i < n; i++) {                                        \
            float f = rintf(src[i]);                                            \
            bool below = !(f >= (lo)), above = f >= (hi);                       \
            type v = below ? (type)(isnan(f) ? 0 : (lo)) : above ? (largest) : (type)f; \
            kept &= !below & !above;                                            \
            memcpy(d + i * sizeof v, &v, sizeof v);                             \
        }                                                                       \
        return kept;                                                            \
    }
INT_ROW(i8, int8_t, -128.0f, 128.0f, INT8_MAX)
INT_ROW(u8, uint8_t, 0.0f, 256.0f, UINT8_MAX)
INT_ROW(i16, int16_t, -32768.0f, 32768.0f, INT16_MAX)
INT_ROW(u16, uint16_t, 0.0f, 65536.0f, UINT16_MAX)
INT_ROW(i32, int32_t, -0x1p31f, 0x1p31f, INT32_MAX)
INT_ROW(u32, uint32_t, 0.0f, 0x1p32f, UINT32_MAX)
INT_ROW(i64, int64_t, -0x1p63f, 0x1p63f, INT64_MAX)
INT_ROW(u64, uint64_t, 0.0f, 0x1p64f, UINT64_MAX)

const lq_dtype_row lq_dtypes[LQ_DTYPES] = {
    [LQ_F32] = {"f32", "F32", 4, true, f32_to, f32_from},
    [LQ_F16] = {"f16", "F16", 2, true, f16_to, f16_from},
    [LQ_BF16] = {"bf16", "BF16", 2, true, bf16_to, bf16_from},
    [LQ_F64] = {"f64", "F64", 8, true, f64_to, f64_from},          // to f32: to the nearest
    [LQ_E4M3] = {"e4m3", "F8_E4M3", 1, true, e4m3_to, e4m3_from},  // largest 448, no infinity, NaN 0x7f and 0xff
    [LQ_E5M2] = {"e5m2", "F8_E5M2", 1, true, e5m2_to, e5m2_from},
    [LQ_E8M0] = {"e8m0", "F8_E8M0", 1, false, e8m0_to, e8m0_from}, // no sign, no 0, NaN 0xff
    [LQ_I8] = {"i8", "I8", 1, false, i8_to, i8_from},
    [LQ_U8] = {"u8", "U8", 1, false, u8_to, u8_from},
    [LQ_I16] = {"i16", "I16", 2, false, i16_to, i16_from},
    [LQ_U16] = {"u16", "U16", 2, false, u16_to, u16_from},
    [LQ_I32] = {"i32", "I32", 4, false, i32_to, i32_from},
    [LQ_U32] = {"u32", "U32", 4, false, u32_to, u32_from},
    [LQ_I64] = {"i64", "I64", 8, false, i64_to, i64_from},
    [LQ_U64] = {"u64", "U64", 8, false, u64_to, u64_from},
    [LQ_BOOL] = {"bool", "BOOL", 1, false, NULL, NULL},
};

lq_dtype lq_dtype_of(const char *name) {
    int i = 0;
    while (i < LQ_DTYPES && strcmp(lq_dtypes[i].name, name) != 0) i++;
    return (lq_dtype)i;
}

lq_dtype lq_dtype_of_safetensors(const char *name) {
    int i = 0;
    while (i < LQ_DTYPES && (!lq_dtypes[i].safetensors || strcmp(lq_dtypes[i].safetensors, name) != 0)) i++;
    return (lq_dtype)i;
}

size_t lq_dtype_size(lq_dtype t) { return lq_dtypes[t].bytes; }
