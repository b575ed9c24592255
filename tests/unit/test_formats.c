// test_formats.c: element types against a reference made of ldexp and search, codes and weight types, JSON against
// JSONTestSuite (where the shared data is), the walk and the writing of JSON, the text of errors.
#include "formats/block.h"
#include "formats/json.h"
#include "tests/unit/lq_make.h"
#include <dirent.h>
#include <math.h>

// --- element types ---

// A small float described by its fields; `last` is its largest finite code.
typedef struct small { lq_dtype type; int mant, bias, size; uint32_t last, infinity; } small;
static const small smalls[] = {{LQ_F16, 10, 15, 2, 0x7bff, 0x7c00}, {LQ_BF16, 7, 127, 2, 0x7f7f, 0x7f80},
                               {LQ_E4M3, 3, 7, 1, 0x7e, 0x7f}, {LQ_E5M2, 2, 15, 1, 0x7b, 0x7c}};

static double small_value(const small *t, uint32_t code) {
    uint32_t exponent = code >> t->mant, mantissa = code & ((1u << t->mant) - 1);
    return exponent ? ldexp(1.0 + ldexp(mantissa, -t->mant), (int)exponent - t->bias)
        : ldexp(mantissa, 1 - t->bias - t->mant);
}

// The nearest code to |x| by search among the values, ties to the even code; one past `last` means overflow.
static uint32_t small_nearest(const small *t, double x) {
    uint32_t lo = 0, hi = t->last + 1;
    if (x >= small_value(t, hi)) return hi;
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (small_value(t, mid) <= x) lo = mid;
        else hi = mid;
    }
    double below = x - small_value(t, lo), above = small_value(t, hi) - x;
    return below < above || (below == above && !(lo & 1)) ? lo : hi;
}

static void check_widen(const small *t) {
    uint32_t sign = 1u << (8 * t->size - 1);
    int bad = 0;
    for (uint32_t code = 0; code < 2 * sign; code++) {
        float f;
        uint16_t wide = (uint16_t)code;
        uint8_t narrow = (uint8_t)code;
        lq_dtypes[t->type].to_f32(t->size == 2 ? (void *)&wide : (void *)&narrow, &f, 1);
        uint32_t mag = code & (sign - 1);
        bool nan = t->type == LQ_E4M3 ? mag == 0x7f : mag > t->infinity;
        double want = nan ? NAN : mag > t->last ? INFINITY : small_value(t, mag);
        bool same = nan ? isnan(f) : (double)f == (code & sign ? -want : want) && !signbit(f) == !(code & sign);
        bad += !same;
    }
    CHECK(!bad, "%s: %d codes widen wrongly", lq_dtypes[t->type].name, bad);
}

static void check_one(const small *t, float f, int *bad) {
    uint16_t got = 0;
    bool kept = lq_dtypes[t->type].from_f32(&f, &got, 1);
    uint32_t sign = 1u << (8 * t->size - 1), mag = got & (sign - 1);
    bool right;
    if (isnan(f)) {
        right = kept && (t->type == LQ_E4M3 ? mag == 0x7f : mag > t->infinity);
    } else {
        uint32_t want = isinf(f) ? t->last + 1 : small_nearest(t, fabs((double)f));
        right = mag == (want > t->last ? t->infinity : want) && kept == (isinf(f) || want <= t->last);
    }
    if ((!right || !(got & sign) != !signbit(f)) && (*bad)++ < 3)
        printf("%s of %a: %x\n", lq_dtypes[t->type].name, (double)f, got);
}

// Every value, every middle between two neighbours and the floats beside both, then random bits.
static void check_narrow(const small *t) {
    int bad = 0;
    for (uint32_t code = 0; code <= t->last; code++) {
        double a = small_value(t, code), b = small_value(t, code + 1);
        float around[] = {(float)a, (float)((a + b) / 2), nextafterf((float)((a + b) / 2), INFINITY),
                          nextafterf((float)((a + b) / 2), 0),
            nextafterf((float)a, INFINITY)};
        for (int i = 0; i < 5; i++) check_one(t, around[i], &bad), check_one(t, -around[i], &bad);
    }
    uint64_t seed = 1234567;
    for (int i = 0; i < 400000; i++) {
        float f;
        uint32_t u = (uint32_t)(next_random(&seed) >> 16);
        memcpy(&f, &u, 4);
        check_one(t, f, &bad);
        check_one(t, ldexpf((float)(u & 0xffffff), (int)(u >> 24) % 60 - 50), &bad);
    }
    CHECK(!bad, "%s: %d values narrow wrongly", lq_dtypes[t->type].name, bad);
}

static void test_small_floats(void) {
    for (size_t i = 0; i < sizeof smalls / sizeof *smalls; i++) check_widen(&smalls[i]), check_narrow(&smalls[i]);
    for (uint32_t u = 0; u < 65536; u++) {
        float f, g = lq_f16_f32((uint16_t)u);
        lq_dtypes[LQ_F16].to_f32(&u, &f, 1);
        if (memcmp(&f, &g, 4) || (!isnan(f) && lq_f32_f16(f) != u)) CHECK(0, "f16 %x does not come back", u);
    }
}

static void test_whole_numbers(void) {
    const float in[] = {-0.5f, 0.5f, 1.5f, 2.5f, -127.5f, 127.4f, 127.5f, -128.5f, -129, 3e9f, NAN, INFINITY,
                        -INFINITY};
    const int8_t want[] = {0, 0, 2, 2, -128, 127, 127, -128, -128, 127, 0, 127, -128};
    const bool kept[] = {true, true, true, true, true, true, false, true, false, false, false, false, false};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        int8_t got;
        bool k = lq_dtypes[LQ_I8].from_f32(&in[i], &got, 1);
        CHECK(got == want[i] && k == kept[i], "i8 of %g: %d %d", (double)in[i], got, k);
    }
    for (int code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        uint8_t again, above, below;
        float f, next;
        lq_dtypes[LQ_E8M0].to_f32(&byte, &f, 1);
        CHECK(code == 255 ? isnan(f) : (double)f == ldexp(1, code - 127), "e8m0 of %d: %g", code, (double)f);
        CHECK(lq_dtypes[LQ_E8M0].from_f32(&f, &again, 1) && again == byte, "e8m0 %d comes back as %d", code, again);
        if (code > 253) continue;
        next = f * 1.5f; // the middle belongs to the larger one
        lq_dtypes[LQ_E8M0].from_f32(&next, &above, 1);
        next = nextafterf(next, 0);
        lq_dtypes[LQ_E8M0].from_f32(&next, &below, 1);
        CHECK(above == code + 1 && below == code, "e8m0 between %d and the next: %d, %d", code, below, above);
    }
    const float none[] = {0, -0.0f, -1, -INFINITY, INFINITY, NAN, 0x1.8p127f};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        uint8_t got;
        const bool k = lq_dtypes[LQ_E8M0].from_f32(&none[i], &got, 1);
        CHECK(got == 255 && k == (i < 6), "e8m0 of %g: %d %d", (double)none[i], got, k);
    }
    uint64_t big = UINT64_MAX, back;
    float f;
    lq_dtypes[LQ_U64].to_f32(&big, &f, 1);
    CHECK(f == 0x1p64f, "u64 to f32: %g", (double)f);
    CHECK(!lq_dtypes[LQ_U64].from_f32(&f, &back, 1) && back == UINT64_MAX, "2^64 does not fit");
    f = -1;
    CHECK(!lq_dtypes[LQ_U32].from_f32(&f, &back, 1) && (uint32_t)back == 0, "-1 does not fit");
    double d = 1e300;
    lq_dtypes[LQ_F64].to_f32(&d, &f, 1);
    CHECK(isinf(f), "1e300 in f32 is %g", (double)f);
    for (int t = 0; t < LQ_DTYPES; t++) {
        const lq_dtype_row *r = &lq_dtypes[t];
        CHECK(r->name && lq_dtype_of(r->name) == (lq_dtype)t && lq_dtype_of_safetensors(r->safetensors) == (lq_dtype)t,
              "row %d", t);
        CHECK(!r->number || (r->to_f32 && r->from_f32), "row %s", r->name);
        if (!r->from_f32) continue;
        // Unaligned and in bulk: the same as one by one.
        unsigned char bytes[8 * 40 + 1];
        float src[40], dst[40];
        for (int i = 0; i < 40; i++) src[i] = (float)(i * 3);
        CHECK(r->from_f32(src, bytes + 1, 40), "%s takes small numbers", r->name);
        r->to_f32(bytes + 1, dst, 40);
        bool same = true;
        for (int i = 0; i < 40; i++) same &= t == LQ_E4M3 || t == LQ_E8M0 || t == LQ_E5M2 || dst[i] == src[i];
        CHECK(same, "%s in bulk", r->name);
    }
    CHECK(lq_dtype_of("f128") == LQ_DTYPES, "no f128");
}

// --- codes and weight types ---

static void test_codes(void) {
    for (int bits = 1; bits <= 8; bits++) {
        uint8_t row[64], plain[50];
        size_t bytes = lq_code_row_bytes(bits, 50);
        memset(row, 0xaa, sizeof row);
        uint64_t seed = 99;
        for (int i = 0; i < 50; i++) plain[i] = (uint8_t)(next_random(&seed) & ((1u << bits) - 1));
        for (int i = 49; i >= 0; i--) lq_code_set(row, bits, i, plain[i]);
        bool same = true, dense = true;
        for (int i = 0; i < 50; i++) {
            same &= lq_code_get(row, bits, i) == plain[i];
            for (int b = 0; b < bits; b++)
                dense &= (row[(i * bits + b) / 8] >> ((i * bits + b) % 8) & 1) == (plain[i] >> b & 1);
        }
        CHECK(same && dense, "%d bits: LSB first, dense", bits);
        CHECK(row[bytes] == 0xaa && bytes % 4 == 0 && bytes >= (size_t)(50 * bits + 7) / 8, "%d bits: %zu bytes a row",
              bits, bytes);
    }
}

static void test_names(void) {
    static const char *const pairs[][2] = {
        {"bf16", "bf16"}, {"f32", "f32"}, {"int4", "int4 g128 sym f16"}, {"int4 g32", "int4 g32 sym f16"},
        {"int8", "int8 row sym f16"}, {"int4 g128 asym", "int4 g128 asym f16"},
        {"int8 asym g64 f32", "int8 g64 asym f32"}, {"int4 row", "int4 row sym f16"},
        {"int2 g16", "int2 g16 sym f16"}, {"table4", "table4 g64 f16"}, {"e4m3", "e4m3"},
        {"e4m3 row", "e4m3 row f32"}, {"e4m3 g1048576 r2147483646", "e4m3 g1048576 r2147483646 f32"},
        {"e4m3 tensor", "e4m3 tensor f32"}, {"e4m3 g128 r128", "e4m3 g128 r128 f32"},
        {"e5m2 row bf16", "e5m2 row bf16"}, {"fp4", "fp4 g64 f16"}, {"fp4 g128 f32", "fp4 g128 f32"},
        {"mxfp4", "fp4 g32 e8m0"}, {"nvfp4", "fp4 g16 e4m3"}, {"e4m3 g32 e8m0", "e4m3 g32 e8m0"},
        {"table3 row e4m3", "table3 row e4m3"}, {"nf4 dq256", "nf4 g64 dq256"}, {"fp4 dq256", "fp4 g64 dq256"},
        {"int4 g32 dq256", "int4 g32 sym dq256"}, {"int8 dq256 asym", "int8 row asym dq256"},
        {"int8 act i8", "int8 row sym f16 act i8 row"}, {"int8 f32 act i8 row", "int8 row sym f32 act i8 row"},
        {"int4 g32 act i8 g32", "int4 g32 sym f16 act i8 g32"},
        {"int8 act i8 tensor", "int8 row sym f16 act i8 tensor"},
        {"int8 act i8 tensor asym", "int8 row sym f16 act i8 tensor asym"},
        {"e4m3 act e4m3", "e4m3 row f32 act e4m3 row"},
        {"e4m3 tensor act e4m3 tensor", "e4m3 tensor f32 act e4m3 tensor"},
        {"e5m2 g128 r128 act e4m3 g128", "e5m2 g128 r128 f32 act e4m3 g128"},
        {"int8 g1048576 asym bf16 act i8 g1048576", "int8 g1048576 asym bf16 act i8 g1048576"},
        {"e4m3 g1048576 r2147483646 bf16 act e4m3 g1048576", "e4m3 g1048576 r2147483646 bf16 act e4m3 g1048576"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        lq_wtype t, u;
        lq_err err = {0};
        char name[LQ_WTYPE_TEXT];
        bool ok = lq_wtype_parse(pairs[i][0], &t, &err);
        CHECK(ok, "%s: %s", pairs[i][0], err.text);
        if (!ok) continue;
        lq_wtype_name(&t, name, sizeof name);
        CHECK(!strcmp(name, pairs[i][1]), "%s is \"%s\", expected \"%s\"", pairs[i][0], name, pairs[i][1]);
        CHECK(lq_wtype_parse(name, &u, &err) && lq_wtype_equal(&t, &u), "%s comes back", name);
    }
    static const char *const bad[] = {"", " ", "int", "int9", "int1", "int44", "int4 g", "int4 g0", "int4 g-16",
                                      "int4 g24",
        "int4 g32 g32", "int4 sym asym", "int4 f64", "bf16 g32",
                                      "int4 g32 e8m0", "int8 e4m3", "mxfp4 f16 f16", "mxfp4 sym", "e8m0", "fp4 e5m2",
                                      "i8", "i8 sym", "i8 row f32", "table4 sym", "int4 asym r8", "fp4 sym", "fp",
                                      "fp4 table4", "nf4 dq", "nf4 dq128", "nf4 dq256 f16", "mxfp4 dq256 e8m0",
                                      "e4m3 g128 r128 dq256", "e4m3 tensor dq256", "dq256", "bf16 dq256",
                                      "int4 g99999999999", "int4 g1048592",
                                      "e4m3 row r2147483647", "e4m3 row r1", "int04", "int4 g032",
                                          "int4 row tensor r4", "e4m3 sym",
                                      "int4 g32 sym f16 and many more words than any type could ever have, so that the text is long"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lq_wtype t;
        lq_err err = {0};
        CHECK(!lq_wtype_parse(bad[i], &t, &err) && err.code == LQ_E_USAGE && err.text[0], "\"%s\" must be refused",
              bad[i]);
    }
    static const char *const acts[][2] = {
        {"int8 act", "nothing behind"}, {"int8 act row", "\"row\" does not fit"},
        {"int8 act i8 row row", "does not fit"}, {"int8 act i8 f32", "does not fit"}, {"int8 act i8 g24", "group 24"},
        {"int8 act i8 asym tensor", "does not fit"}, {"int8 act i8 tensor asym asym", "does not fit"},
        {"int8 act i8 act i8", "does not fit"}, {"int8 act bf16", "does not fit"},
        {"bf16 act i8 row", "does not fit"}, {"int8 act i8 row asym", "file's scale have a zero point"},
        {"e4m3 act e4m3 tensor asym", "only i8 activations"}, {"e4m3 act i8 row", "need an int weight"},
        {"int8 act e4m3 row", "need an e4m3 or e5m2 weight"}, {"table4 act i8 row", "need an int weight"},
        {"int8 act i8 tensor row", "does not fit"}, {"int8 act i8 sym", "does not fit"},
        {"i8 row f32", "expected one like"}};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        lq_wtype t;
        lq_err err = {0};
        CHECK(!lq_wtype_parse(acts[i][0], &t, &err) && strstr(err.text, acts[i][1]) && strstr(err.text, acts[i][0]),
              "\"%s\": %s", acts[i][0], err.text);
    }
    lq_wtype t, u;
    static const char *const others[] = {"int8", "int8 act i8 row", "int8 act i8 g64", "int8 act i8 tensor",
                                         "int8 act i8 tensor asym", "table4 g64", "fp4 g64"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (size_t j = 0; j < sizeof others / sizeof *others; j++)
            CHECK(lq_wtype_parse(others[i], &t, NULL) && lq_wtype_parse(others[j], &u, NULL) &&
                  lq_wtype_equal(&t, &u) == (i == j), "%s, %s", others[i], others[j]);
    lq_wtype_parse("int4 g128 sym f16", &t, NULL);
    CHECK(lq_wtype_bits(&t, 4096) == 4.125, "bits %g", lq_wtype_bits(&t, 4096));
    lq_wtype_parse("int8", &t, NULL);
    CHECK(lq_wtype_bits(&t, 4096) == 8 + 16.0 / 4096, "bits %g", lq_wtype_bits(&t, 4096));
}

// x >= 0 with so much of a normal distribution below it, by halving.
static double normal_quantile(double p) {
    double lo = 0, hi = 8;
    for (int i = 0; i < 60; i++) {
        const double x = (lo + hi) / 2;
        if (1 - 0.5 * erfc(x * sqrt(0.5)) < p) lo = x;
        else hi = x;
    }
    return lo;
}

// QLoRA, arXiv 2305.14314, section 3: quantiles at even steps from 0.9677083 to 0.5, 7 below 0 and 8 above,
// over the largest. Their probabilities were f32: an ulp of those over the least density is what a quantile may
// be off, and so may the largest.
static void test_normal_float(void) {
    lq_wtype t;
    CHECK(lq_wtype_parse("nf4", &t, NULL), "nf4");
    const float *value = lq_wtype_table(&t);
    const double top = normal_quantile(0.9677083), density = exp(-top * top / 2) / sqrt(2 * acos(-1));
    const double room = 0x1p-23 / density / top;
    for (int i = 0; i < 16; i++) {
        const int steps = i < 7 ? 7 : 8, from = i < 7 ? i : 15 - i; // the lower half has a value less
        const double q = i == 7 ? 0 : normal_quantile(0.9677083 + (0.5 - 0.9677083) * from / steps) / top;
        CHECK(fabs(fabs((double)value[i]) - q) <= room && (value[i] < 0) == (i < 7),
              "nf4: code %d is %.9g, expected %.9g", i, (double)value[i], q);
    }
}

// The named codebooks, from where their values come.
static void test_codebooks(void) {
    float e2m1[16]; // OCP Microscaling Formats (MX) v1.0, 5.3.3: sign, exponent of bias 1, mantissa; exponent 0: m / 2
    for (int c = 0; c < 16; c++) {
        const int e = c >> 1 & 3, m = c & 1;
        e2m1[c] = (c & 8 ? -1.0f : 1.0f) * (e ? (1 + (float)m / 2) * (float)(1 << (e - 1)) : (float)m / 2);
    }
    // bitsandbytes 0.50.2, get_4bit_type("nf4")
    static const float nf4[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
        -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f,
        0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
        0.7229568362236023f, 1.0f};
    const struct { const char *name; int bits; const float *value; } want[] = {{"fp4", 4, e2m1}, {"nf4", 4, nf4}};
    CHECK(lq_codebook_count == (int)(sizeof want / sizeof *want), "each codebook has its values here");
    for (int i = 0; i < lq_codebook_count; i++) {
        const lq_codebook *b = &lq_codebooks[i];
        char text[LQ_WTYPE_TEXT];
        lq_wtype t;
        CHECK(!strcmp(b->name, want[i].name) && b->bits == want[i].bits &&
              !memcmp(b->value, want[i].value, sizeof(float) << b->bits), "%s: values", b->name);
        CHECK(lq_codebook_of(b->name) == i + 1 && lq_wtype_parse(b->name, &t, NULL) && t.book == i + 1 &&
              t.bits == b->bits && lq_wtype_table(&t) == b->value, "%s", b->name);
        int largest = 0;
        for (int c = 0; c < 1 << b->bits; c++) {
            const double step = (double)b->whole[c] * (double)b->unit - (double)b->value[c];
            CHECK(fabs(step) <= (i ? 0.5 / 124.12 : 0), "%s: code %d in whole numbers is %g away", b->name, c, step);
            largest = abs(b->whole[c]) > largest ? abs(b->whole[c]) : largest;
        }
        CHECK(b->most == largest, "%s: the largest whole number", b->name);
        lq_wtype_name(&t, text, sizeof text);
        CHECK(!strncmp(text, b->name, strlen(b->name)) && text[strlen(b->name)] == ' ' && strlen(b->name) < 12 &&
              lq_dtype_of(b->name) == LQ_DTYPES, "%s", text);
    }
    lq_weight_size size;
    lq_wtype t = {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 3, .group = 64, .scale = LQ_F16, .book = 1};
    CHECK(!lq_weight_sizes(&t, 4, 64, &size), "a codebook of other bits");
    t.bits = 4, t.book = lq_codebook_count + 1;
    CHECK(!lq_weight_sizes(&t, 4, 64, &size) && lq_codebook_of("table4") == 0, "a codebook that is not there");
}

static void test_sizes(void) {
    static const struct { const char *type; lq_layout layout; int64_t n, k; bool ok; size_t q, scale,
                         zero; } cases[] = {
        {"int4 g32", LQ_ANY, 3, 100, true, 3 * 52, 3 * 4 * 2, 0},
        {"int4 g32 asym", LQ_ANY, 3, 100, true, 3 * 52, 3 * 4 * 2, 3 * 4},
        {"int3 g16 asym f32", LQ_ANY, 2, 96, true, 2 * 36, 2 * 6 * 4, 2 * 4},
        {"int8", LQ_ANY, 5, 7, true, 5 * 8, 5 * 2, 0},
        {"e4m3 g128 r128", LQ_ANY, 200, 300, true, 60000, 2 * 3 * 4, 0},
        {"e4m3 tensor", LQ_ANY, 200, 300, true, 60000, 4, 0},
        {"bf16", LQ_ANY, 2, 3, true, 12, 0, 0},
        {"int4 g32", LQ_X86, 17, 100, true, 32 * 128 / 2, 2 * 4 * 16 * 2, 0},
        {"int4 g128 asym", LQ_X86, 16, 256, true, 16 * 128, 2 * 16 * 2, 2 * 16},
        {"int8", LQ_X86, 20, 30, true, 32 * 128, 2 * 16 * 2, 0},
        {"int8 g64 asym f32", LQ_X86, 1, 65, true, 16 * 128, 2 * 16 * 4, 2 * 16},
        {"int3 g32 asym", LQ_X86, 17, 100, true, 32 * 128 * 3 / 8, 2 * 4 * 16 * 2, 2 * 4 * 16},
        {"int6 row", LQ_X86, 5, 30, true, 16 * 128 * 6 / 8, 16 * 2, 0},
        {"int3 g16", LQ_X86, 16, 64, false, 0, 0, 0}, {"int7 g64", LQ_X86, 16, 64, false, 0, 0, 0},
        {"int5 row act i8 g48", LQ_X86, 16, 64, false, 0, 0, 0}, {"bf16", LQ_X86, 16, 64, false, 0, 0, 0},
        {"table4", LQ_X86, 16, 64, false, 0, 0, 0}, {"nf4 g64 r2", LQ_X86, 16, 64, false, 0, 0, 0},
        {"nf4 g64", LQ_X86, 17, 100, true, 32 * 128 / 2, 2 * 2 * 16 * 2, 0},
        {"mxfp4", LQ_X86, 16, 33, true, 16 * 64 / 2, 2 * 16, 0},
        {"int4", LQ_CUDA, 64, 128, true, 64 * 64, 64 * 2, 0},
        {"int4 g32 asym", LQ_CUDA, 65, 100, true, 128 * 64, 4 * 128 * 2, 4 * 64},
        {"int3 g16 asym f32", LQ_CUDA, 2, 129, true, 64 * 96, 9 * 64 * 4, 9 * 32},
        {"int6 g64 asym", LQ_CUDA, 64, 128, true, 64 * 96, 2 * 64 * 2, 2 * 64},
        {"int8", LQ_CUDA, 20, 30, true, 64 * 64, 64 * 2, 0},
        {"e4m3 g128 r128", LQ_CUDA, 200, 300, true, 256 * 320, 2 * 3 * 4, 0},
        {"int7", LQ_CUDA, 64, 128, false, 0, 0, 0}, {"bf16", LQ_CUDA, 64, 128, false, 0, 0, 0},
        {"int8 act i8", LQ_CUDA, 64, 128, false, 0, 0, 0},
        {"int8", LQ_CUDA, INT32_MAX, INT32_MAX, true, (size_t)1 << 62, (size_t)1 << 32, 0},
        {"int4", LQ_ANY, 0, 128, false, 0, 0, 0}, {"int4", LQ_ANY, -1, 128, false, 0, 0, 0},
        {"int4", LQ_ANY, 1, INT64_MAX, false, 0, 0, 0},
        {"f32", LQ_ANY, (int64_t)1 << 40, (int64_t)1 << 40, false, 0, 0, 0},
        {"int8", LQ_X86, (int64_t)1 << 40, (int64_t)1 << 40, false, 0, 0, 0},
        {"int4 row", LQ_ANY, (int64_t)1 << 31, 8, false, 0, 0, 0},
        {"int4 row", LQ_ANY, 8, (int64_t)1 << 31, false, 0, 0, 0},
        {"int4 row", LQ_ANY, INT32_MAX, 8, true, (size_t)INT32_MAX * 4, (size_t)INT32_MAX * 2, 0},
        {"e4m3 tensor", LQ_ANY, INT32_MAX, 2, true, (size_t)INT32_MAX * 2, 4, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lq_wtype t;
        lq_weight_size s;
        lq_wtype_parse(cases[i].type, &t, NULL);
        bool ok = lq_layout_sizes(cases[i].layout, &t, cases[i].n, cases[i].k, &s);
        CHECK(ok == cases[i].ok, "%s case %zu", cases[i].type, i);
        if (ok) CHECK(s.q == cases[i].q && s.scale == cases[i].scale && s.zero == cases[i].zero,
                      "%s case %zu: %zu %zu %zu", cases[i].type,
            i, s.q, s.scale, s.zero);
    }
}

// The row function against the definition, one element at a time.
static void test_rows(void) {
    static make_buffers b;
    for (int i = 0; i < MAKE_FEATURES; i++) {
        lq_weight w = make_weight(i, &b);
        const lq_wtype *t = &w.type;
        float got[MAKE_K];
        int64_t groups = lq_weight_groups(t, w.k);
        size_t row_bytes = t->kind == LQ_W_FLOAT ? (size_t)w.k : lq_code_row_bytes(t->bits, w.k);
        bool same = true;
        for (int64_t r = 0; r < w.n; r++) {
            lq_weight_row_any(&w, r, got);
            for (int64_t c = 0; c < w.k; c++) {
                int64_t g = t->group ? c / t->group : 0, at = (t->rows > 1 ? r / t->rows : r) * groups + g;
                float s, v;
                if (t->dq) s = w.scale_map[w.scale_code[at]] * w.scale2[at / 256], s += *w.scale_offset;
                else lq_dtypes[t->scale].to_f32((const char *)w.scale + (size_t)at * lq_dtype_size(t->scale), &s, 1);
                if (t->scale == LQ_E4M3) s *= *w.scale2;
                const uint8_t *q = (const uint8_t *)w.q + (size_t)r * row_bytes;
                uint32_t z = w.zero ? lq_code_get(w.zero + (size_t)r * lq_code_row_bytes(t->bits, groups), t->bits, g)
                    : 1u << (t->bits - 1);
                if (t->kind == LQ_W_FLOAT) lq_dtypes[t->elem].to_f32(q + c, &v, 1);
                else if (t->kind == LQ_W_TABLE) v = (t->book ? lq_wtype_table(t) : w.table)[lq_code_get(q, t->bits, c)];
                else v = (float)((int)lq_code_get(q, t->bits, c) - (int)z);
                float want = v * s;
                int64_t logical = w.perm ? w.perm[c] : c;
                for (int o = 0; o < w.outliers; o++)
                    if (w.outlier[o] == c) want = lq_bf16_f32(w.outlier_w[r * w.outliers + o]);
                same &= got[logical] == want;
            }
        }
        CHECK(same, "rows of weight %d", i);
    }
}

// --- JSON ---

static const lq_json_limits lim = {1 << 24, 512};

static void test_json_suite(const char *suite) {
    DIR *d = opendir(suite);
    if (!d) {
        SKIP("JSONTestSuite is not there (%s)", suite);
        return;
    }
    int yes = 0, no = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[1] != '_') continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", suite, e->d_name);
        blob b = blob_read(path);
        lq_err err = {0};
        bool ok = lq_json_check((char *)b.p, b.n, lim, e->d_name, &err);
        cJSON *tree = NULL;
        bool parsed = lq_json_parse((char *)b.p, b.n, lim, e->d_name, &tree, NULL);
        cJSON_Delete(tree);
        // RFC 8259 leaves duplicate names open; this reader refuses them, and the parse what cJSON cannot hold.
        bool twice = strstr(e->d_name, "duplicated_key") != NULL;
        bool cjson = strstr(e->d_name, "null_escape") || strstr(e->d_name, "escaped_null") ||
                     strstr(e->d_name, "double_close_to_zero");
        if (e->d_name[0] == 'y') {
            CHECK(ok == !twice, "%s: %s", e->d_name, err.text);
            CHECK(parsed == (ok && !cjson), "%s: parse", e->d_name);
            yes++;
        } else if (e->d_name[0] == 'n') {
            CHECK(!ok && !parsed && err_good(&err, e->d_name), "%s was taken (%s)", e->d_name, err.text);
            no++;
        }
        free(b.p);
    }
    closedir(d);
    printf("JSONTestSuite: %d y_, %d n_\n", yes, no);
    CHECK(yes > 90 && no > 180, "the suite is whole: %d and %d", yes, no);
}

static void test_json_more(void) {
    static const struct { const char *text; bool ok; } cases[] = {
        {"{\"a\":1,\"b\":{\"a\":1},\"c\":[{\"a\":1},{\"a\":1}]}", true}, {"{\"a\":1,\"\\u0061\":2}", false},
        {"{\"a\":1,\"b\":2,\"a\":3}", false}, {"{\"a\":{\"x\":1,\"y\":1,\"x\":2}}", false},
        {"{\"\":1,\"a\":2}", true}, {"\"\\ud83d\\ude00\"", true}, {"\"\\ud83d\"", false},
        {"\"\\ude00\\ud83d\"", false}, {"\"\xf0\x9f\x98\x80\"", true}, {"\"\xed\xa0\x80\"", false},
        {"\"\xc0\x80\"", false}, {"\"\xf4\x90\x80\x80\"", false}, {"\"\xe2\x82\"", false}, {"[1,]", false},
        {"[1 2]", false}, {"{\"a\" 1}", false}, {"{\"a\":1,}", false}, {"{,}", false}, {"[}", false}, {"{]", false},
        {"1 2", false}, {"", false}, {" ", false}, {"-", false}, {"01", false}, {"1.", false}, {".5", false},
        {"1e", false}, {"-0.0e-0", true}, {"nul", false}, {"nulll", false}, {"true ", true},
        {"\xef\xbb\xbf{}", false}, {"{\"a\":1", false}, {"[[[[", false}, {"\"abc", false}, {"\"\\", false},
        {"\"\\u12", false}, {"\"a\nb\"", false}, {"{1:2}", false}, {"/**/1", false}, {"'a'", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lq_err err = {0};
        size_t n = strlen(cases[i].text);
        char *exact = malloc(n ? n : 1); // without a NUL behind it
        memcpy(exact, cases[i].text, n);
        bool ok = lq_json_check(exact, n, lim, "x.json", &err);
        CHECK(ok == cases[i].ok && (ok || err_good(&err, "x.json")), "%s: %d %s", cases[i].text, ok, err.text);
        free(exact);
    }
    char deep[2048];
    memset(deep, '[', 1024), memset(deep + 1024, ']', 1024);
    lq_err err = {0};
    CHECK(!lq_json_check(deep, 2048, lim, "deep", &err) && err.code == LQ_E_LIMIT, "%s", err.text);
    CHECK(lq_json_check(deep, 2048, (lq_json_limits){2048, 1024}, "deep", &err), "exactly deep enough: %s", err.text);
    CHECK(!lq_json_check(deep, 2048, (lq_json_limits){2047, 1024}, "deep", &err) && err.code == LQ_E_LIMIT, "%s",
          err.text);
}

static void test_json_reads(void) {
    static const char text[] = "{\"i\":9007199254740993,\"m\":-9223372036854775808,\"u\":9223372036854775808,\"f\":1.5,\"e\":1e3,\"n\":null,\"s\":\"a\\u00e9\",\"t\":true,"
                               "\"list\":[1,{\"x\":12345678901234567},[],{}],\"h\":1e999,\"I\":7}";
    cJSON *j;
    lq_err err = {0};
    CHECK(lq_json_parse(text, strlen(text), lim, "c.json", &j, &err), "%s", err.text);
    int64_t v = 5;
    CHECK(lq_json_int(j, "i", 0, INT64_MAX, &v, "c", &err) && v == 9007199254740993, "%lld", (long long)v);
    CHECK(lq_json_int(j, "m", INT64_MIN, 0, &v, "c", &err) && v == INT64_MIN, "%lld", (long long)v);
    CHECK(!lq_json_int(j, "u", 0, INT64_MAX, &v, "c.json", &err) && err_good(&err, "c.json") &&
          strstr(err.text, "\"u\""), "%s", err.text);
    v = 5;
    CHECK(lq_json_int(j, "absent", 0, 9, &v, "c", &err) && v == 5 && lq_json_int(j, "n", 0, 9, &v, "c", &err) && v == 5,
        "absent and null leave it");
    CHECK(!lq_json_int(j, "f", 0, 9, &v, "c", &err) && !lq_json_int(j, "s", 0, 9, &v, "c", &err) &&
          !lq_json_int(j, "e", 0, 9, &v, "c",
        &err), "wrong");
    CHECK(lq_json_int(j, "e", 0, 1000, &v, "c", &err) && v == 1000 && lq_json_int(j, "I", 0, 7, &v, "c", &err) &&
          v == 7, "case counts");
    double d = 0;
    bool b = false;
    CHECK(lq_json_num(j, "f", &d, "c", &err) && d == 1.5 && !lq_json_num(j, "h", &d, "c", &err) &&
          !lq_json_num(j, "t", &d, "c", &err),
        "numbers");
    CHECK(lq_json_bool(j, "t", &b, "c", &err) && b && !lq_json_bool(j, "i", &b, "c", &err), "bools");
    CHECK(!strcmp(lq_json_str(j, "s"), "a\xc3\xa9") && !lq_json_str(j, "i") && !lq_json_str(j, "absent"), "strings");
    const cJSON *x = cJSON_GetArrayItem(cJSON_GetObjectItem(j, "list"), 1);
    CHECK(lq_json_int(x, "x", 0, INT64_MAX, &v, "c", &err) && v == 12345678901234567, "inside: %lld", (long long)v);
    cJSON_Delete(j);

    lq_json_walk w = {text, text + strlen(text)};
    char key[64];
    int keys = 0;
    uint64_t u = 0;
    lq_json_take(&w);
    while (lq_json_next(&w) == '"') {
        key[lq_json_take_str(&w, key)] = 0;
        keys++;
        if (!strcmp(key, "u")) CHECK(lq_json_take_u64(&w, &u) && u == 9223372036854775808u, "u64");
        else if (!strcmp(key, "m") || !strcmp(key, "f")) CHECK(!lq_json_take_u64(&w, &u), "%s is not a u64", key);
        else lq_json_skip(&w);
    }
    CHECK(keys == 11 && lq_json_next(&w) == '}', "the walk saw %d names", keys);
}

// A number that was read exactly is told as it was, and means what it did.
static void test_json_exact(void) {
    static const char text[] = "[{\"a\":[9007199254740991,1.0,100.0,-0.0,1e5,1E+2,0.1,7,-9223372036854775808,18446744073709551615,123456789012345,-0],\"\":{},"
                               "\"s\":\"\\n\\u001f\"},[],[[null,true],false],1e999]";
    cJSON *j;
    lq_err err = {0};
    lq_text t = {0};
    CHECK(lq_json_parse_exact(text, strlen(text), lim, "e.json", &j, NULL, &err), "%s", err.text);
    lq_text_tree(&t, j);
    CHECK(!t.failed && !strcmp(t.p, text), "%s", t.p);
    t.n = 0;
    lq_text_tree(&t, j->child->next->next->child); // siblings are none of it
    lq_text_tree(&t, j->child->child->child);
    lq_text_tree(&t, NULL);
    CHECK(!strcmp(t.p, "[null,true]9007199254740991null"), "%s", t.p);
    cJSON_Delete(j);
    static const char object[] = "{\"i\":9007199254740993,\"w\":1.0,\"e\":1e3,\"f\":1.5}";
    int64_t v = 0;
    double d = 0;
    CHECK(lq_json_parse_exact(object, strlen(object), lim, "e.json", &j, NULL, &err), "%s", err.text);
    CHECK(lq_json_int(j, "i", 0, INT64_MAX, &v, "c", &err) && v == 9007199254740993, "%lld", (long long)v);
    CHECK(lq_json_int(j, "w", 0, 9, &v, "c", &err) && v == 1, "%lld", (long long)v);
    CHECK(lq_json_int(j, "e", 0, 1000, &v, "c", &err) && v == 1000, "%lld", (long long)v);
    CHECK(!lq_json_int(j, "f", 0, 9, &v, "c", &err) && lq_json_num(j, "f", &d, "c", &err) && d == 1.5, "%g", d);
    cJSON_Delete(j);
    size_t at = 0;
    CHECK(!lq_json_parse_exact("{\"a\":\"b\\u0000\"}", 14, lim, "e.json", &j, &at, &err) && !j && at == 7 && err.code == LQ_E_LIMIT &&
          !strcmp(err.text, "e.json: a text with a NUL at byte 7, which lq does not take"), "%zu: %s", at, err.text);
    t.n = 0;
    CHECK((j = cJSON_CreateNumber(0.1)) != NULL, "no memory"); // one that was never read
    lq_text_tree(&t, j);
    CHECK(strtod(t.p, NULL) == 0.1, "%s", t.p);
    cJSON_Delete(j);
    lq_text_free(&t);
}

static void test_json_writes(void) {
    lq_text t = {0};
    static const char raw[] =
        "a\"\\\n\t\r\x01\x7f\xc3\xa9\xff\xe2\x82z\xc2\x9b\xe2\x80\xae\xe2\x80\x8d\xef\xbb\xbf\xf0\x9f\x98";
    lq_text_json(&t, raw, sizeof raw - 1);
    CHECK(!strcmp(t.p, "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz\\u009b\\u202e\xe2\x80\x8d\\ufeff\xef\xbf\xbd\""),
          "%s", t.p);
    CHECK(lq_json_check(t.p, t.n, lim, "t", NULL), "what is written parses");
    lq_text_fmt(&t, "%d", 42);
    CHECK(!t.failed && !strcmp(t.p + t.n - 2, "42"), "fmt");
    lq_text_free(&t);
}

static void test_errors(void) {
    lq_err err;
    char name[2000];
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = 0;
    CHECK(!lq_fail(&err, LQ_E_IO, "f\n%s", name) && strlen(err.text) == sizeof err.text - 1 && !strchr(err.text, '\n'),
          "cut and clean");
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "%*s", 500 + i, "");
        strcat(name, "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80");
        lq_fail(&err, LQ_E_IO, "%s", name);
        CHECK(lq_json_check("\"\"", 2, lim, err.text, NULL), "never");
        lq_text t = {0};
        lq_text_json(&t, err.text, strlen(err.text));
        CHECK(!strstr(t.p, "\xef\xbf\xbd"), "no torn character at %d", i);
        lq_text_free(&t);
    }
    static const struct { const char *in, *out; } shown[] = {
        {"a\033[2Jb\177\n\r\tc", "a?[2Jb????c"},
        {"\xc2\x9b" "31m\xc2\x80\xc2\xa0", "?31m?\xc2\xa0"}, // C1 controls, and a space that is none
        {"\xe2\x80\xae" "abc\xe2\x80\xac\xe2\x81\xa6x\xe2\x81\xa9", "?abc??x?"},
        {"\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c\xe2\x80\xa8", "????"},
        {"\xff\xc3+\xe2\x82", "??+??"},
        {"\xed\xa0\x80\xc0\x80\xf5\x80\x80\x80", "?????????"},
        {"\xc3\xa9 \xd7\xa9 \xf0\x9f\x98\x80 \xe2\x80\x93", "\xc3\xa9 \xd7\xa9 \xf0\x9f\x98\x80 \xe2\x80\x93"}};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        lq_fail(&err, LQ_E_IO, "%s", shown[i].in);
        CHECK(!strcmp(err.text, shown[i].out), "%zu: \"%s\"", i, err.text);
        lq_fail(&err, LQ_E_IO, "inner");
        lq_fail_in(&err, "%s", shown[i].in);
        lq_fail_in(&err, "%s", shown[i].in);
        size_t n = strlen(shown[i].out);
        CHECK(!strncmp(err.text, shown[i].out, n) && !strcmp(err.text + n, ": inner"), "%zu in front, once: \"%s\"", i,
              err.text);
    }
    lq_fail(&err, LQ_E_FORMAT, "inner");
    CHECK(!lq_fail_in(&err, "outer %d", 1) && !strcmp(err.text, "outer 1: inner") && err.code == LQ_E_FORMAT, "%s",
          err.text);
    CHECK(!lq_fail_in(&err, "outer %d", 1) && !strcmp(err.text, "outer 1: inner"), "said once: %s", err.text);
    CHECK(!lq_fail(NULL, LQ_E_IO, "x") && !lq_fail_in(NULL, "x"), "without a place to write");
    size_t s;
    CHECK(!lq_mul_size(SIZE_MAX, 2, &s) && !lq_add_size(SIZE_MAX, 1, &s) && !lq_align_size(SIZE_MAX, 64, &s) &&
          lq_align_size(65, 64,
        &s) && s == 128, "sizes");
}

int main(void) {
    test_small_floats();
    test_whole_numbers();
    test_codes();
    test_names();
    test_normal_float();
    test_codebooks();
    test_sizes();
    test_rows();
    test_json_suite("../shared/data/hostile/JSONTestSuite/test_parsing");
    test_json_more();
    test_json_reads();
    test_json_exact();
    test_json_writes();
    test_errors();
    return test_end();
}
