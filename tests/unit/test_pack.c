// test_pack.c: layouts are permutations: there and back gives the same bytes, a row means the same in each, the bytes
// of x86 lie where docs/KERNELS.md says and those of cuda where docs/FORMAT.md does; and the rule of lq_act_type.
#include "formats/layout_cuda.h"
#include "kernels/ops.h"
#include "tests/unit/test.h"

static uint64_t state = 1234567;
static uint64_t rnd(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

typedef struct parts { lq_weight w; lq_weight_size size; void *q, *scale, *zero; } parts;

static parts parts_of(lq_layout layout, const lq_wtype *t, int64_t n, int64_t k) {
    parts p = {.w = {.type = *t, .layout = layout, .n = n, .k = k}};
    CHECK(lq_pack_sizes(layout, t, n, k, &p.size), "no sizes for %lld x %lld", (long long)n, (long long)k);
    p.q = malloc(p.size.q);
    p.scale = malloc(p.size.scale + 1);
    p.zero = p.size.zero ? malloc(p.size.zero) : NULL;
    memset(p.q, 0xEE, p.size.q); // every byte must be written
    memset(p.scale, 0xEE, p.size.scale);
    if (p.zero) memset(p.zero, 0xEE, p.size.zero);
    p.w.q = p.q;
    p.w.scale = p.scale;
    p.w.zero = p.zero;
    return p;
}

static void parts_free(parts *p) {
    free(p->q);
    free(p->scale);
    free(p->zero);
}

static bool parts_same(const parts *a, const parts *b) {
    return !memcmp(a->q, b->q, a->size.q) && !memcmp(a->scale, b->scale, a->size.scale) &&
           (!a->zero || !memcmp(a->zero, b->zero, a->size.zero));
}

static void fill(parts *p) {
    const lq_wtype *t = &p->w.type;
    const int64_t groups = lq_weight_groups(t, p->w.k);
    memset(p->q, 0, p->size.q);
    if (p->zero) memset(p->zero, 0, p->size.zero);
    for (size_t i = 0; t->kind == LQ_W_FLOAT && i < p->size.q; i++) ((uint8_t *)p->q)[i] = (uint8_t)(rnd() >> 20);
    for (int64_t r = 0; r < p->w.n; r++) {
        for (int64_t c = 0; c < p->w.k && t->kind != LQ_W_FLOAT; c++)
            lq_code_set((uint8_t *)p->q + (size_t)r * lq_code_row_bytes(t->bits, p->w.k), t->bits, c,
                        (uint32_t)(rnd() >> 20));
        for (int64_t g = 0; p->zero && g < groups; g++)
            lq_code_set((uint8_t *)p->zero + (size_t)r * lq_code_row_bytes(t->bits, groups), t->bits, g,
                        (uint32_t)(rnd() >> 20));
    }
    for (size_t i = 0; i < p->size.scale; i++) ((uint8_t *)p->scale)[i] = (uint8_t)(rnd() >> 30 & 0x3f);
}

// Each way from any to x86 that this machine has, to where a line of memory begins and to where none does.
static bool ways_same(const parts *any, const parts *x86) {
    bool same = true;
    const lq_weight_size *size = &x86->size;
    uint8_t *q = aligned_alloc(64, (size->q + 127) / 64 * 64);
    parts got = parts_of(LQ_X86, &any->w.type, any->w.n, any->w.k);
    for (int way = 1; way <= lq_turn_ways(); way++)
        for (size_t off = 0; off <= 16; off += 16) {
            lq_laid to = lq_laid_of(LQ_X86, &any->w.type, any->w.n, any->w.k);
            to.way = way;
            memset(q, 0xEE, (size->q + 127) / 64 * 64);
            memset(got.scale, 0xEE, size->scale);
            if (got.zero) memset(got.zero, 0xEE, size->zero);
            for (int64_t b = 0; b * LQ_BAND < any->w.n; b++)
                lq_band_pack(&any->w, b, &to, (lq_weight_out){q + off, got.scale, got.zero}, b);
            memcpy(got.q, q + off, size->q);
            same &= parts_same(&got, x86) && q[off + size->q] == 0xEE && (!off || q[off - 1] == 0xEE);
        }
    parts_free(&got);
    free(q);
    return same;
}

static void test_type(lq_wtype t, int64_t n, int64_t k, lq_pool *pool) {
    char name[64];
    lq_wtype_name(&t, name, sizeof name);
    parts any = parts_of(LQ_ANY, &t, n, k), x86 = parts_of(LQ_X86, &t, n, k), back = parts_of(LQ_ANY, &t, n, k),
          again = parts_of(LQ_X86, &t, n, k);
    fill(&any);
    lq_pack(&any.w, LQ_X86, (lq_weight_out){x86.q, x86.scale, x86.zero}, pool);
    lq_pack(&x86.w, LQ_ANY, (lq_weight_out){back.q, back.scale, back.zero}, NULL);
    lq_pack(&back.w, LQ_X86, (lq_weight_out){again.q, again.scale, again.zero}, NULL);
    CHECK(ways_same(&any, &x86), "%s %lld x %lld: a way to x86 has other bytes", name, (long long)n, (long long)k);
    CHECK(parts_same(&any, &back), "%s %lld x %lld: any -> x86 -> any", name, (long long)n, (long long)k);
    CHECK(parts_same(&x86, &again), "%s %lld x %lld: x86 -> any -> x86", name, (long long)n, (long long)k);
    float *a = malloc((size_t)k * 4), *b = malloc((size_t)k * 4);
    bool rows = true, place = true;
    const int64_t unit = lq_x86_group(&t), wide = (k + unit - 1) / unit * unit;
    for (int64_t r = 0; r < n; r++) {
        lq_weight_row_any(&any.w, r, a);
        lq_weight_row(&x86.w, r, b);
        rows &= !memcmp(a, b, (size_t)k * 4);
        const int low = t.bits == 8 ? 8 : t.bits >= 4 ? 4 : 2;
        for (int64_t c = 0; c < k; c++) { // from the drawing: tile, unit of 32, plane, vector, lane, byte, field
            const uint8_t *at = (uint8_t *)x86.q + (r / 16 * wide + c / 32 * 32) * 2 * t.bits + r % 16 * 4 + c % 4;
            uint32_t code = 0;
            for (int i = 0; i < t.bits; i++) {
                const bool first = i < low;
                const int bit = (int)(c % 32 / 4) * (first ? low : t.bits - low) + (first ? i : i - low);
                code |= (at[(first ? 0 : 64 * low) + bit / 8 * 64] >> bit % 8 & 1u) << i;
            }
            place &= code == lq_code_get((uint8_t *)any.q + (size_t)r * lq_code_row_bytes(t.bits, k), t.bits, c);
        }
    }
    CHECK(rows, "%s %lld x %lld: a row has another meaning in x86", name, (long long)n, (long long)k);
    CHECK(place, "%s %lld x %lld: a code stands elsewhere", name, (long long)n, (long long)k);
    parts copy = parts_of(LQ_ANY, &t, n, k);
    lq_pack(&any.w, LQ_ANY, (lq_weight_out){copy.q, copy.scale, copy.zero}, pool);
    CHECK(parts_same(&any, &copy), "%s: any -> any", name);
    parts_free(&any);
    parts_free(&x86);
    parts_free(&back);
    parts_free(&again);
    parts_free(&copy);
    free(a);
    free(b);
}

// --- cuda, from the words of docs/FORMAT.md ---

// Every field of every word, in the order of the bytes, goes to the code that it is of. Returns how many bytes those
// are.
static size_t cuda_read(const uint8_t *q, int bits, int64_t n, int64_t wide, uint8_t *code /* [n][wide] */) {
    static const int planes[9][2] = {[2] = {2}, [3] = {2, 1}, [4] = {4}, [5] = {4, 1}, [6] = {4, 2}, [8] = {8}};
    const uint8_t *at = q;
    const int unit = bits == 4 || bits == 8 ? 64 : 128;
    memset(code, 0, (size_t)(n * wide));
    for (int64_t block = 0; block < n / 64 * (wide / unit) * 4; block++) { // of 16 rows: stripe, unit, row block
        const int64_t row0 = block / 4 / (wide / unit) * 64 + block % 4 * 16, k0 = block / 4 % (wide / unit) * unit;
        for (int i = 0, shift = 0; i < 2; shift += planes[bits][i++]) {
            const int width = planes[bits][i], words = width == 1 ? 2 : 4;
            const int part = width == 4 ? 64 : width == 8 ? 32 : 128;
            for (int64_t k = k0; width && k < k0 + unit; k += part)
                for (int lane = 0; lane < 32; lane++)
                    for (int w = 0; w < words; w++, at += 4)
                        for (int bit = 0; bit < 32; bit += width) {
                            const uint32_t word = at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
                            int step = w * 4 / width + bit % 16 / width / 4, p = bit % 16 / width % 4;
                            if (width == 8) step = w / 2, p = w % 2 * 2 + (bit % 16 == 0);
                            const int64_t row = row0 + lane / 4 + 8 * (p & 1);
                            const int64_t c = k + step * 16 + lane % 4 * 2 + 8 * (p >> 1) + bit / 16;
                            code[row * wide + c] |= (uint8_t)((word >> bit & ((1u << width) - 1)) << shift);
                        }
        }
    }
    return (size_t)(at - q);
}

// Scales and zero points, in the order of the bytes.
static bool cuda_scales(const parts *any, const parts *cuda, int64_t groups) {
    const lq_wtype *t = &any->w.type;
    const size_t size = lq_dtype_size(t->scale), zero_row = lq_code_row_bytes(t->bits, groups);
    const uint8_t *s = cuda->scale, *z = cuda->zero, none[4] = {0};
    bool ok = true;
    if (t->rows > 1) return any->size.scale == cuda->size.scale && !memcmp(any->scale, s, any->size.scale);
    for (int64_t g = 0; g < groups; g++)
        for (int64_t row0 = 0; row0 < any->w.n; row0 += 64) {
            for (int i = 0; i < 64; i++, s += size) {
                const int64_t row = row0 + i / 16 * 16 + i % 16 / 2 + 8 * (i % 2);
                const bool real = row < any->w.n;
                ok &= lq_cuda_scale(any->w.n, row, g) * size == (size_t)(s - (uint8_t *)cuda->scale);
                ok &= !z || t->bits <= 4 || lq_cuda_zero(cuda->zero, t->bits, any->w.n, row, g) == *z;
                ok &= !memcmp(s, real ? (uint8_t *)any->scale + (size_t)(row * groups + g) * size : none, size);
                if (!z || t->bits <= 4) continue;
                ok &= *z++ == (real ? lq_code_get((uint8_t *)any->zero + (size_t)row * zero_row, t->bits, g) : 0);
            }
            for (int i = 0; i < 64 && z && t->bits <= 4; i++) { // nibbles: 8 words of 8
                const int64_t row = row0 + i % 8 / 2 * 16 + i / 8 + 8 * (i % 2);
                const uint32_t is = z[i / 2] >> i % 2 * 4 & 15;
                const uint8_t *of = (uint8_t *)any->zero + (size_t)row * zero_row;
                ok &= is == (uint32_t)lq_cuda_zero(cuda->zero, t->bits, any->w.n, row, g);
                ok &= is == (row < any->w.n ? lq_code_get(of, t->bits, g) : 0);
            }
            if (z && t->bits <= 4) z += 32;
        }
    return ok && s == (uint8_t *)cuda->scale + cuda->size.scale && (!z || z == (uint8_t *)cuda->zero + cuda->size.zero);
}

static bool cuda_codes(const parts *any, const parts *cuda, int64_t groups) {
    const lq_wtype *t = &any->w.type;
    const int64_t n = any->w.n, k = any->w.k, unit = t->bits == 4 || t->bits == 8 ? 64 : 128;
    const int64_t wide = (k + unit - 1) / unit * unit, high = (n + 63) / 64 * 64;
    const size_t bytes = t->kind == LQ_W_FLOAT ? (size_t)k : lq_code_row_bytes(t->bits, k);
    uint8_t *code = malloc((size_t)(high * wide));
    bool ok = cuda->size.q == (size_t)(high * wide * t->bits / 8);
    ok = ok && cuda_read(cuda->q, t->bits, high, wide, code) == cuda->size.q;
    for (int64_t r = 0; r < high; r++) {
        uint32_t pad = t->kind == LQ_W_INT && !t->asym ? 1u << (t->bits - 1) : 0;
        const size_t zeros = lq_code_row_bytes(t->bits, groups);
        if (t->asym && r < n) pad = lq_code_get((uint8_t *)any->zero + (size_t)r * zeros, t->bits, groups - 1);
        for (int64_t c = 0; c < wide; c++)
            ok &= lq_cuda_code(cuda->q, t->bits, wide, r, c) == code[r * wide + c] && code[r * wide + c] ==
                  (r < n && c < k ? lq_code_get((uint8_t *)any->q + (size_t)r * bytes, t->bits, c) : pad);
    }
    free(code);
    return ok;
}

static void test_meaning(const parts *any, const parts *cuda, const char *name) {
    const lq_wtype *t = &any->w.type;
    const int64_t n = any->w.n, k = any->w.k;
    float *a = malloc((size_t)k * 4), *b = malloc((size_t)k * 4);
    int32_t *sum = malloc((size_t)n * 4);
    bool rows = true, sums = true;
    for (int64_t r = 0; r < n; r++) {
        lq_weight_row_any(&any->w, r, a);
        lq_weight_row(&cuda->w, r, b);
        rows &= !memcmp(a, b, (size_t)k * 4);
    }
    if (t->kind == LQ_W_INT) lq_code_sums(&cuda->w, sum);
    for (int64_t r = 0; r < n && t->kind == LQ_W_INT; r++) {
        const int64_t groups = lq_weight_groups(t, k);
        for (int64_t c = 0; c < k; c++) {
            const int64_t g = t->group ? c / t->group : 0;
            sum[r] -= (int32_t)lq_code_get((uint8_t *)any->q + (size_t)r * lq_code_row_bytes(t->bits, k), t->bits, c);
            sum[r] += !t->asym ? 1 << (t->bits - 1) : (int32_t)lq_code_get(
                (uint8_t *)any->zero + (size_t)r * lq_code_row_bytes(t->bits, groups), t->bits, g);
        }
        sums &= !sum[r];
    }
    CHECK(rows, "%s: a row has another meaning in cuda", name);
    CHECK(sums, "%s: the codes of a row have another sum in cuda", name);
    free(a);
    free(b);
    free(sum);
}

static parts packed(const parts *from, lq_layout to, lq_pool *pool) {
    parts p = parts_of(to, &from->w.type, from->w.n, from->w.k);
    lq_pack(&from->w, to, (lq_weight_out){p.q, p.scale, p.zero}, pool);
    p.w.table = from->w.table, p.w.scale2 = from->w.scale2;
    return p;
}

static void test_cuda(const char *type, int64_t n, int64_t k, lq_pool *pool) {
    static const float scale2 = 0.375f;
    static float table[256];
    char name[128];
    lq_wtype t;
    CHECK(lq_wtype_parse(type, &t, NULL), "%s", type);
    snprintf(name, sizeof name, "%s %lldx%lld", type, (long long)n, (long long)k);
    for (int i = 0; i < 256; i++) table[i] = (float)(i * 37 % 101);
    parts any = parts_of(LQ_ANY, &t, n, k);
    any.w.table = t.book ? lq_wtype_table(&t) : table, any.w.scale2 = &scale2;
    fill(&any);
    parts cuda = packed(&any, LQ_CUDA, pool), back = packed(&cuda, LQ_ANY, NULL);
    CHECK(parts_same(&any, &back), "%s: any -> cuda -> any", name);
    CHECK(cuda_codes(&any, &cuda, lq_weight_groups(&t, k)), "%s: a code stands elsewhere, or a pad is another", name);
    CHECK(cuda_scales(&any, &cuda, lq_weight_groups(&t, k)), "%s: a scale or zero point stands elsewhere", name);
    test_meaning(&any, &cuda, name);
    if (lq_pack_has(LQ_X86, &t, n, k)) {
        parts x86 = packed(&any, LQ_X86, pool), there = packed(&cuda, LQ_X86, pool);
        parts here = packed(&x86, LQ_CUDA, NULL);
        CHECK(parts_same(&x86, &there) && parts_same(&cuda, &here), "%s: between x86 and cuda", name);
        parts_free(&x86);
        parts_free(&there);
        parts_free(&here);
    }
    parts_free(&any);
    parts_free(&cuda);
    parts_free(&back);
}

static void test_cuda_all(lq_pool *pool) {
    static const int64_t shapes[][2] = {{1, 1}, {64, 128}, {17, 129}, {65, 200}, {130, 389}, {200, 63}, {128, 512}};
    static const char *const types[] = {
        "int2 g64 sym f16", "int2 g16 asym f32", "int3 g32 sym bf16", "int3 g128 asym f16", "int4 g128 sym f16",
        "int4 g16 asym f16", "int4 row asym f32", "int4 g272 asym bf16", "int4 g32 r3 sym f16", "int5 g64 asym f16",
        "int5 row sym f32", "int6 g48 asym f32", "int6 g128 sym f16", "int8 row sym f16", "int8 g32 asym f16",
        "int8 tensor sym f32", "nf4 g64 f16", "fp4 g32 e8m0", "fp4 g16 e4m3", "table3 g64 f16", "table8 row f32",
        "e4m3 row f32", "e4m3 g128 r128 f32", "e5m2 g64 f16", "e4m3 tensor f32", "e4m3 g32 e8m0", "nf4 g64 dq256"};
    static const char *const not[] = {"int7 g64 sym f16", "table7 g64 f16", "bf16", "int8 row sym f32 act i8 row",
                                      "e4m3 row f32 act e4m3 row", "int4 g128 sym f16 act i8 g128"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            test_cuda(types[i], shapes[s][0], shapes[s][1], pool);
    for (size_t i = 0; i < sizeof not / sizeof *not; i++) {
        lq_wtype t;
        CHECK(lq_wtype_parse(not[i], &t, NULL) && !lq_pack_has(LQ_CUDA, &t, 64, 128), "cuda has %s", not[i]);
    }
    lq_weight_size size;
    lq_wtype t;
    CHECK(lq_wtype_parse("int8", &t, NULL) && !lq_pack_sizes(LQ_CUDA, &t, 0, 16, &size) &&
          !lq_pack_sizes(LQ_CUDA, &t, (int64_t)1 << 40, 16, &size), "impossible sizes in cuda");
}

// Plain numbers in x86: words of 4 bytes of one row, two columns or one, 16 rows side by side.
static void test_numbers(lq_dtype elem, int64_t n, int64_t k, lq_pool *pool) {
    const size_t size = lq_dtype_size(elem);
    const lq_wtype plain = {.kind = LQ_W_PLAIN, .elem = elem, .bits = (int)size * 8};
    const char *name = lq_dtypes[elem].name;
    parts any = parts_of(LQ_ANY, &plain, n, k);
    for (size_t i = 0; i < any.size.q; i++) ((uint8_t *)any.q)[i] = (uint8_t)(rnd() >> 20);
    for (size_t i = 1; i <= any.size.q / size; i++) ((uint8_t *)any.q)[size * i - 1] &= 0x3f; // finite ones
    parts x86 = packed(&any, LQ_X86, pool), alone = packed(&any, LQ_X86, NULL), back = packed(&x86, LQ_ANY, pool);
    CHECK(parts_same(&any, &back) && parts_same(&x86, &alone), "%s %lldx%lld: any -> x86 -> any", name, (long long)n,
          (long long)k);
    const int64_t each = 4 / (int64_t)size, words = (k + each - 1) / each, rows = (n + 15) / 16 * 16;
    bool same = x86.size.q == (size_t)(rows * words * 4);
    float *row = malloc((size_t)k * sizeof *row), *want = malloc((size_t)k * sizeof *want);
    for (int64_t r = 0; r < rows && same; r++) {
        for (int64_t c = 0; c < each * words; c++) {
            const int64_t word = (r / 16 * words + c / each) * 16 + r % 16;
            const char none[4] = {0}, *got = (const char *)x86.q + word * 4 + c % each * (int64_t)size;
            same &= !memcmp(got, r < n && c < k ? (const char *)any.q + (r * k + c) * (int64_t)size : none, size);
        }
        if (r >= n) continue;
        lq_weight_row(&x86.w, r, row);
        lq_weight_row(&any.w, r, want);
        same &= !memcmp(row, want, (size_t)k * sizeof *row);
    }
    CHECK(same, "%s %lldx%lld: a number stands elsewhere, or a pad is another", name, (long long)n, (long long)k);
    free(row);
    free(want);
    parts_free(&any);
    parts_free(&x86);
    parts_free(&alone);
    parts_free(&back);
}

static void test_rules(void) {
    const lq_wtype int4 = {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_F16},
                   int8 = {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16};
    const lq_wtype bf16 = {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16},
                   f16 = {.kind = LQ_W_PLAIN, .elem = LQ_F16, .bits = 16},
                   f32 = {.kind = LQ_W_PLAIN, .elem = LQ_F32, .bits = 32},
                   f64 = {.kind = LQ_W_PLAIN, .elem = LQ_F64, .bits = 64},
                   table = {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 64, .scale = LQ_F32};
    lq_wtype nf4 = table, block = int4, huge = int4, int3 = int4, thin3 = int4;
    nf4.book = lq_codebook_of("nf4");
    block.rows = 16;
    huge.group = 2 * LQ_GROUP_MAX;
    int3.bits = thin3.bits = 3;
    thin3.group = 16;
    lq_dev cpu = {.q8 = true}, exact = {.q8 = true, .numerics = LQ_NUM_EXACT}, gpu = {.q8 = false};
    lq_wtype w8a8 = int8, fp8 = {.kind = LQ_W_FLOAT, .elem = LQ_E4M3, .bits = 8, .group = 128, .rows = 128,
                                 .scale = LQ_F32};
    w8a8.act = (lq_atype){.elem = LQ_I8};
    fp8.act = (lq_atype){.elem = LQ_E4M3, .group = 128};
    lq_atype a = lq_act_type(&cpu, &int4);
    CHECK(a.elem == LQ_I8 && a.group == 32, "int4 g32");
    a = lq_act_type(&cpu, &int8);
    CHECK(a.elem == LQ_I8 && a.group == LQ_ROW_GROUP, "int8 row");
    CHECK(lq_act_type(&exact, &int4).elem == LQ_F32, "exact");
    CHECK(lq_act_type(&gpu, &int4).elem == LQ_F32, "a device that is not asked for int8");
    CHECK(lq_act_type(&cpu, &bf16).elem == LQ_F32, "bf16");
    a = lq_act_type(&cpu, &nf4);
    CHECK(a.elem == LQ_I8 && a.group == 64 && lq_act_type(&exact, &nf4).elem == LQ_F32, "nf4");
    CHECK(lq_act_type(&cpu, &table).elem == LQ_F32, "a table of the file");
    CHECK(lq_act_type(&cpu, &huge).elem == LQ_F32, "a group that does not fit int32");
    a = lq_act_type(&exact, &w8a8);
    CHECK(a.elem == LQ_I8 && a.group == 0, "what the type says holds in exact mode");
    a = lq_act_type(&gpu, &fp8);
    CHECK(a.elem == LQ_E4M3 && a.group == 128, "and on every device");
    CHECK(lq_pack_has(LQ_X86, &int4, 1, 1) && lq_pack_has(LQ_X86, &int8, 5, 7) && lq_pack_has(LQ_X86, &int3, 16, 16) &&
          !lq_pack_has(LQ_X86, &thin3, 16, 16), "x86 has int4, int8 and int3, but not by 16");
    CHECK(lq_pack_has(LQ_X86, &fp8, 16, 16) && lq_pack_has(LQ_X86, &f16, 16, 16) && lq_pack_has(LQ_X86, &f32, 16, 16) &&
          !lq_pack_has(LQ_X86, &f64, 16, 16) && !lq_pack_has(LQ_X86, &table, 16, 16) &&
          !lq_pack_has(LQ_X86, &block, 16, 16) && !lq_pack_has(LQ_X86, &huge, 16, 16),
          "x86 has what it should not have");
    CHECK(lq_pack_has(LQ_ANY, &nf4, 16, 16), "any has all");
    lq_weight_size size;
    CHECK(!lq_pack_sizes(LQ_X86, &int4, 0, 16, &size) && !lq_pack_sizes(LQ_X86, &int4, INT64_MAX, INT64_MAX, &size),
          "impossible sizes");
}

int main(void) {
    static const int64_t shapes[][2] = {{1, 1}, {16, 128}, {15, 100}, {17, 129}, {33, 389}, {64, 512}, {5, 1000},
                                       {32, 2336}};
    static const int groups[] = {0, 16, 32, 64, 128, 272};
    static const lq_dtype scales[] = {LQ_F16, LQ_BF16, LQ_F32};
    lq_err err;
    lq_pool *pool;
    CHECK(lq_pool_open(3, &pool, &err), "%s", err.text);
    for (int bits = 2; bits <= 8; bits++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (int v = 0; v < 6 && bits != 7 && (bits == 4 || bits == 8 || groups[g] % 32 == 0); v++)
                for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                    test_type(
                        (lq_wtype){
                            .kind = LQ_W_INT, .elem = LQ_U8, .bits = bits, .group = groups[g], .asym = v & 1,
                                .scale = scales[v / 2]},
                        shapes[s][0], shapes[s][1], pool);
    for (int book = 1; book <= lq_codebook_count; book++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                const lq_dtype scale = g % 2 ? LQ_E8M0 : LQ_F16;
                test_type((lq_wtype){.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .book = book, .group = groups[g],
                                     .scale = scale}, shapes[s][0], shapes[s][1], pool);
            }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        test_numbers(LQ_BF16, shapes[s][0], shapes[s][1], pool);
        test_numbers(LQ_F16, shapes[s][0], shapes[s][1], pool);
        test_numbers(LQ_F32, shapes[s][0], shapes[s][1], pool);
    }
    test_cuda_all(pool);
    test_rules();
    lq_pool_close(pool);
    return test_end();
}
