// ukr.c: lq_ukrs[], every micro-kernel of the CPU, and which of them a device uses.
#include "kernels/cpu/ukr.h"

#define HALVES(NAME) lq_ukr_halves NAME;
#define RUN(NAME) lq_ukr_run NAME;
#define MANY(NAME) lq_ukr_many NAME;
#define ROWS(NAME) lq_ukr_rows NAME;
#define CODES(NAME) lq_ukr_codes NAME;
RUN(lq_matmul_f32_q8_codedany_c) RUN(lq_matmul_f32_q8_codedx86_c)
RUN(lq_matmul_f32_f32_f32any_c) RUN(lq_matmul_f32_f32_f16any_c) RUN(lq_matmul_f32_f32_bf16any_c)
ROWS(lq_rows_f32_f32_codedx86_c) ROWS(lq_rows_f32_f32_codedany_c)
#if defined(__x86_64__)
#define X86_NAMES(OF)                                                                           \
    MANY(lq_matmul_f32_q8_##OF##x86_amx) RUN(lq_matmul_f32_q8_##OF##x86_avx512)                 \
    RUN(lq_matmul_f32_q8_##OF##x86_avxvnni) RUN(lq_matmul_f32_q8_##OF##x86_avx2)                \
    MANY(lq_many_f32_q8_##OF##x86_avx2)
X86_NAMES(int2) X86_NAMES(int3) X86_NAMES(int4) X86_NAMES(int5) X86_NAMES(int6) X86_NAMES(int8) X86_NAMES(table4)
CODES(lq_codes_u8_q8_tableany_avx512) CODES(lq_codes_u8_q8_tableany_avx2) MANY(lq_matmul_f32_bf16_bf16any_amx)
MANY(lq_matmul_f32_bf16_bf16x86_amx)
RUN(lq_matmul_f32_f32_f32any_avx512) RUN(lq_matmul_f32_f32_f16any_avx512) RUN(lq_matmul_f32_f32_bf16any_avx512)
RUN(lq_matmul_f32_f32_intany_avx512) RUN(lq_matmul_f32_f32_tableany_avx512) RUN(lq_matmul_f32_f32_fp8any_avx512)
ROWS(lq_rows_f32_f32_codedx86_avx512) ROWS(lq_rows_f32_f32_intany_avx512) ROWS(lq_rows_f32_f32_tableany_avx512)
RUN(lq_matmul_f32_bf16_bf16any_avx512bf16) RUN(lq_matmul_f32_bf16_bf16x86_avx512bf16)
RUN(lq_matmul_f32_bf16_fp8x86_avx512bf16) MANY(lq_many_f32_bf16_fp8x86_avx512bf16)
HALVES(lq_rows_bf16_bf16_fp8any_avx512bf16)
RUN(lq_matmul_f32_bf16_fp8any_avx512bf16)
CODES(lq_codes_u8_q8_intany_avx512) ROWS(lq_rows_f32_f32_fp8any_avx512) ROWS(lq_rows_f32_f32_halfany_avx512)
RUN(lq_matmul_f32_f32_f32x86_avx512) RUN(lq_matmul_f32_f32_f16x86_avx512) RUN(lq_matmul_f32_f32_bf16x86_avx512)
RUN(lq_matmul_f32_f32_f32x86_avx2) RUN(lq_matmul_f32_f32_f16x86_avx2) RUN(lq_matmul_f32_f32_bf16x86_avx2)
MANY(lq_many_f32_f32_f32x86_avx2) MANY(lq_many_f32_f32_f16x86_avx2) MANY(lq_many_f32_f32_bf16x86_avx2)
RUN(lq_matmul_f32_f32_f32any_avx2) RUN(lq_matmul_f32_f32_f16any_avx2) RUN(lq_matmul_f32_f32_bf16any_avx2)
ROWS(lq_rows_f32_f32_codedx86_avx2) ROWS(lq_rows_f32_f32_intany_avx2) ROWS(lq_rows_f32_f32_tableany_avx2)
RUN(lq_matmul_f32_f32_fp8any_avx2)
CODES(lq_codes_u8_q8_intany_avx2) ROWS(lq_rows_f32_f32_fp8any_avx2) ROWS(lq_rows_f32_f32_halfany_avx2)
#endif

#define ROW(ISA, ACT, KIND, ELEM, LAYOUT, TILE, FN) \
    .name = #FN, .needs = ISA, .act = ACT, .kind = KIND, .elem = ELEM, .layout = LAYOUT, .tile_n = TILE
#define Q8(KIND, B, LAYOUT, TILE, ISA, FN) {ROW(ISA, LQ_I8, KIND, LQ_U8, LAYOUT, TILE, FN), .bits = B, .run = FN}
#define Q8_CODED(LAYOUT, TILE, FN) Q8(LQ_W_INT, 0, LAYOUT, TILE, 0, FN), Q8(LQ_W_TABLE, 0, LAYOUT, TILE, 0, FN)
#define Q8_BOTH(KIND, B, ISA, FN, FEW, ALL, TURNS) \
    {ROW(ISA, LQ_I8, KIND, LQ_U8, LQ_X86, LQ_X86_ROWS, FN), .bits = B, .run = FEW, .many = ALL, .turns = TURNS}
#define X86_AVX512(KIND, OF, B)                                                        \
    Q8_BOTH(KIND, B, LQ_ISA_AVX512 | LQ_ISA_AMX, lq_matmul_f32_q8_##OF##x86_amx,       \
            lq_matmul_f32_q8_##OF##x86_avx512, lq_matmul_f32_q8_##OF##x86_amx, false), \
    Q8(KIND, B, LQ_X86, LQ_X86_ROWS, LQ_ISA_AVX512, lq_matmul_f32_q8_##OF##x86_avx512)
#define X86_VNNI(KIND, OF, B) \
    Q8(KIND, B, LQ_X86, LQ_X86_ROWS, LQ_ISA_AVX2 | LQ_ISA_VNNI, lq_matmul_f32_q8_##OF##x86_avxvnni)
#define X86_AVX2(KIND, OF, B)                                                             \
    X86_VNNI(KIND, OF, B), Q8_BOTH(KIND, B, LQ_ISA_AVX2, lq_matmul_f32_q8_##OF##x86_avx2, \
                                   lq_matmul_f32_q8_##OF##x86_avx2, lq_many_f32_q8_##OF##x86_avx2, true)
#define RECODE(KIND, ISA, FN) {ROW(ISA, LQ_I8, KIND, LQ_U8, LQ_ANY, LQ_X86_ROWS, FN), .codes = FN}
#define FLOAT(ELEM, TILE, ISA, FN) {ROW(ISA, LQ_F32, LQ_W_PLAIN, ELEM, LQ_ANY, TILE, FN), .run = FN}
#define FP8(ROW_OF, ...)                                                                    \
    ROW_OF(LQ_W_FLOAT, LQ_E4M3, __VA_ARGS__), ROW_OF(LQ_W_FLOAT, LQ_E5M2, __VA_ARGS__),     \
    ROW_OF(LQ_W_PLAIN, LQ_E4M3, __VA_ARGS__), ROW_OF(LQ_W_PLAIN, LQ_E5M2, __VA_ARGS__)
#define FEW(KIND, ELEM, BITS, ISA, FN, TALL) \
    {ROW(ISA, LQ_F32, KIND, ELEM, LQ_ANY, LQ_ANY_ROWS, FN), .bits = BITS, .run = FN, .rows = TALL, .few = LQ_FEW_ROWS}
#define FEW_CODED(KIND, ISA, FN, TALL) \
    FEW(KIND, LQ_U8, 2, ISA, FN, TALL), FEW(KIND, LQ_U8, 3, ISA, FN, TALL), FEW(KIND, LQ_U8, 4, ISA, FN, TALL)
#define HALF(ELEM, ISA, FN, TALL)                                                           \
    {ROW(ISA, LQ_F32, LQ_W_PLAIN, ELEM, LQ_ANY, LQ_HALF_ROWS, FN), .run = FN, .rows = TALL, \
     .few = LQ_RUN_ROWS}
#define PACKED(ELEM, ISA, FN, ALL, TURNS)                                                            \
    {ROW(ISA, LQ_F32, LQ_W_PLAIN, ELEM, LQ_X86, LQ_X86_ROWS, FN), .unless = LQ_ISA_ROUGH, .run = FN, \
     .many = ALL, .turns = TURNS}
#define PACKED_AVX2(ELEM, OF) \
    PACKED(ELEM, LQ_ISA_AVX2, lq_matmul_f32_f32_##OF##_avx2, lq_many_f32_f32_##OF##_avx2, true)
#define UNPACK_X86(KIND, ISA, FN) {ROW(ISA, LQ_F32, KIND, LQ_U8, LQ_X86, LQ_X86_ROWS, FN), .rows = FN}
#define UNPACK(ISA, FN) UNPACK_X86(LQ_W_INT, ISA, FN), UNPACK_X86(LQ_W_TABLE, ISA, FN)
#define UNPACK_KIND(KIND, ELEM, ISA, FN) {ROW(ISA, LQ_F32, KIND, ELEM, LQ_ANY, LQ_ANY_ROWS, FN), .rows = FN}
#define HALVE(KIND, ELEM, ISA, FN) {ROW(ISA, LQ_BF16, KIND, ELEM, LQ_ANY, LQ_ANY_ROWS, FN), .halves = FN}
#define SMALL(KIND, ELEM, ISA, FN) {ROW(ISA, LQ_BF16, KIND, ELEM, LQ_ANY, 4, FN), .run = FN}
#define SMALL_X86(KIND, ELEM, ISA, FN) {ROW(ISA, LQ_BF16, KIND, ELEM, LQ_X86, LQ_X86_ROWS, FN), .unless = LQ_ISA_AMX, \
    .run = FN, .many = lq_many_f32_bf16_fp8x86_avx512bf16}
#define UNPACK_ANY(FN) {ROW(0, LQ_F32, LQ_W_INT, LQ_U8, LQ_ANY, 1, FN), .any_kind = true, .rows = FN}

const lq_ukr lq_ukrs[] = {
#if defined(__x86_64__)
    X86_AVX512(LQ_W_INT, int4, 4), X86_AVX512(LQ_W_INT, int8, 8), X86_AVX512(LQ_W_INT, int2, 2),
    X86_AVX512(LQ_W_INT, int3, 3), X86_AVX512(LQ_W_INT, int5, 5), X86_AVX512(LQ_W_INT, int6, 6),
    X86_AVX512(LQ_W_TABLE, table4, 4), RECODE(LQ_W_INT, LQ_ISA_AVX512, lq_codes_u8_q8_intany_avx512),
    RECODE(LQ_W_TABLE, LQ_ISA_AVX512, lq_codes_u8_q8_tableany_avx512),
    {ROW(LQ_ISA_AVX512 | LQ_ISA_AMX, LQ_BF16, LQ_W_PLAIN, LQ_BF16, LQ_ANY, 16, lq_matmul_f32_bf16_bf16any_amx),
     .many = lq_matmul_f32_bf16_bf16any_amx},
    {ROW(LQ_ISA_AVX512 | LQ_ISA_AMX, LQ_BF16, LQ_W_PLAIN, LQ_BF16, LQ_X86, LQ_X86_ROWS,
         lq_matmul_f32_bf16_bf16x86_amx), .many = lq_matmul_f32_bf16_bf16x86_amx},
    {ROW(LQ_ISA_AVX512 | LQ_ISA_BF16, LQ_BF16, LQ_W_PLAIN, LQ_BF16, LQ_ANY, 4, lq_matmul_f32_bf16_bf16any_avx512bf16),
     .run = lq_matmul_f32_bf16_bf16any_avx512bf16},
    {ROW(LQ_ISA_AVX512 | LQ_ISA_BF16, LQ_BF16, LQ_W_PLAIN, LQ_BF16, LQ_X86, LQ_X86_ROWS,
         lq_matmul_f32_bf16_bf16x86_avx512bf16), .run = lq_matmul_f32_bf16_bf16x86_avx512bf16},
    FP8(HALVE, LQ_ISA_AVX512 | LQ_ISA_BF16 | LQ_ISA_AMX, lq_rows_bf16_bf16_fp8any_avx512bf16),
    FP8(SMALL, LQ_ISA_AVX512 | LQ_ISA_BF16, lq_matmul_f32_bf16_fp8any_avx512bf16),
    FP8(SMALL_X86, LQ_ISA_AVX512 | LQ_ISA_BF16, lq_matmul_f32_bf16_fp8x86_avx512bf16),
    FLOAT(LQ_F32, 4, LQ_ISA_AVX512, lq_matmul_f32_f32_f32any_avx512),
    HALF(LQ_F16, LQ_ISA_AVX512, lq_matmul_f32_f32_f16any_avx512, lq_rows_f32_f32_halfany_avx512),
    HALF(LQ_BF16, LQ_ISA_AVX512, lq_matmul_f32_f32_bf16any_avx512, lq_rows_f32_f32_halfany_avx512),
    PACKED(LQ_F32, LQ_ISA_AVX512, lq_matmul_f32_f32_f32x86_avx512, NULL, false),
    PACKED(LQ_F16, LQ_ISA_AVX512, lq_matmul_f32_f32_f16x86_avx512, NULL, false),
    PACKED(LQ_BF16, LQ_ISA_AVX512, lq_matmul_f32_f32_bf16x86_avx512, NULL, false),
    UNPACK(LQ_ISA_AVX512, lq_rows_f32_f32_codedx86_avx512),
    FEW_CODED(LQ_W_INT, LQ_ISA_AVX512, lq_matmul_f32_f32_intany_avx512, lq_rows_f32_f32_intany_avx512),
    FEW_CODED(LQ_W_TABLE, LQ_ISA_AVX512, lq_matmul_f32_f32_tableany_avx512, lq_rows_f32_f32_tableany_avx512),
    UNPACK_KIND(LQ_W_INT, LQ_U8, LQ_ISA_AVX512, lq_rows_f32_f32_intany_avx512),
    UNPACK_KIND(LQ_W_TABLE, LQ_U8, LQ_ISA_AVX512, lq_rows_f32_f32_tableany_avx512),
    FP8(FEW, 0, LQ_ISA_AVX512, lq_matmul_f32_f32_fp8any_avx512, lq_rows_f32_f32_fp8any_avx512),
    X86_AVX2(LQ_W_INT, int4, 4), X86_AVX2(LQ_W_INT, int8, 8), X86_AVX2(LQ_W_INT, int2, 2),
    X86_AVX2(LQ_W_INT, int3, 3), X86_AVX2(LQ_W_INT, int5, 5), X86_AVX2(LQ_W_INT, int6, 6),
    X86_AVX2(LQ_W_TABLE, table4, 4), RECODE(LQ_W_INT, LQ_ISA_AVX2, lq_codes_u8_q8_intany_avx2),
    RECODE(LQ_W_TABLE, LQ_ISA_AVX2, lq_codes_u8_q8_tableany_avx2),
    FLOAT(LQ_F32, 4, LQ_ISA_AVX2, lq_matmul_f32_f32_f32any_avx2),
    HALF(LQ_F16, LQ_ISA_AVX2, lq_matmul_f32_f32_f16any_avx2, lq_rows_f32_f32_halfany_avx2),
    HALF(LQ_BF16, LQ_ISA_AVX2, lq_matmul_f32_f32_bf16any_avx2, lq_rows_f32_f32_halfany_avx2),
    PACKED_AVX2(LQ_F32, f32x86), PACKED_AVX2(LQ_F16, f16x86), PACKED_AVX2(LQ_BF16, bf16x86),
    UNPACK(LQ_ISA_AVX2, lq_rows_f32_f32_codedx86_avx2),
    UNPACK_KIND(LQ_W_INT, LQ_U8, LQ_ISA_AVX2, lq_rows_f32_f32_intany_avx2),
    UNPACK_KIND(LQ_W_TABLE, LQ_U8, LQ_ISA_AVX2, lq_rows_f32_f32_tableany_avx2),
    FP8(FEW, 0, LQ_ISA_AVX2, lq_matmul_f32_f32_fp8any_avx2, lq_rows_f32_f32_fp8any_avx2),
#endif
    Q8_CODED(LQ_X86, LQ_X86_ROWS, lq_matmul_f32_q8_codedx86_c), Q8_CODED(LQ_ANY, 1, lq_matmul_f32_q8_codedany_c),
    FLOAT(LQ_F32, 1, 0, lq_matmul_f32_f32_f32any_c),
    FLOAT(LQ_F16, 1, 0, lq_matmul_f32_f32_f16any_c),
    FLOAT(LQ_BF16, 1, 0, lq_matmul_f32_f32_bf16any_c),
    UNPACK(0, lq_rows_f32_f32_codedx86_c),
    UNPACK_ANY(lq_rows_f32_f32_codedany_c),
};
const int lq_ukr_count = (int)(sizeof lq_ukrs / sizeof *lq_ukrs);

bool lq_ukr_fits(const lq_ukr *u, const lq_wtype *w, lq_layout layout, lq_dtype act) {
    if (act == LQ_E4M3 && w->kind == LQ_W_FLOAT) act = LQ_F32; // both are f32 by then
    if (u->act != act || u->layout != layout) return false;
    if (u->any_kind) return true;
    const bool coded = w->kind == LQ_W_INT || w->kind == LQ_W_TABLE;
    return u->kind == w->kind && (!u->bits || u->bits == w->bits) && (coded || u->elem == w->elem);
}

static bool same_kind(const lq_ukr *a, const lq_ukr *b) {
    return a->act == b->act && a->layout == b->layout && a->any_kind == b->any_kind && a->kind == b->kind &&
           a->bits == b->bits && a->elem == b->elem;
}

void lq_ukr_choose(unsigned isa, const lq_ukr **out) {
    int n = 0;
    for (int i = 0; i < lq_ukr_count; i++) {
        bool have = false;
        for (int j = 0; j < n; j++) have |= same_kind(out[j], &lq_ukrs[i]);
        if (!have && (lq_ukrs[i].needs & ~isa) == 0 && !(lq_ukrs[i].unless & isa)) out[n++] = &lq_ukrs[i];
    }
    out[n] = NULL;
}

const lq_ukr *lq_ukr_find(const lq_dev *d, const lq_weight *w, lq_dtype act) {
    const lq_ukr **u = lq_cpu_of(d)->ukr;
    while (*u && !lq_ukr_fits(*u, &w->type, w->layout, act)) u++;
    return *u;
}
