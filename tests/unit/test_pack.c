// test_pack.c: layouts are permutations: there and back gives the same bytes, a row means the same in each, the bytes
// of x86 lie where docs/KERNELS.md says; and the rule of lq_act_type.
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
    for (int64_t r = 0; r < p->w.n; r++) {
        for (int64_t c = 0; c < p->w.k; c++)
            lq_code_set((uint8_t *)p->q + (size_t)r * lq_code_row_bytes(t->bits, p->w.k), t->bits, c,
                        (uint32_t)(rnd() >> 20));
        for (int64_t g = 0; p->zero && g < groups; g++)
            lq_code_set((uint8_t *)p->zero + (size_t)r * lq_code_row_bytes(t->bits, groups), t->bits, g,
                        (uint32_t)(rnd() >> 20));
    }
    for (size_t i = 0; i < p->size.scale; i++) ((uint8_t *)p->scale)[i] = (uint8_t)(rnd() >> 30 & 0x3f);
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
    CHECK(parts_same(&any, &back), "%s %lld x %lld: any -> x86 -> any", name, (long long)n, (long long)k);
    CHECK(parts_same(&x86, &again), "%s %lld x %lld: x86 -> any -> x86", name, (long long)n, (long long)k);
    float *a = malloc((size_t)k * 4), *b = malloc((size_t)k * 4);
    bool rows = true, place = true;
    const int64_t unit = lq_x86_group(&t), wide = (k + unit - 1) / unit * unit;
    for (int64_t r = 0; r < n; r++) {
        lq_weight_row_any(&any.w, r, a);
        lq_weight_row(&x86.w, r, b);
        rows &= !memcmp(a, b, (size_t)k * 4);
        for (int64_t c = 0; c < k; c++) { // from the drawing: tile, step, lane, byte, nibble
            const int64_t per = t.bits == 4 ? 8 : 4;
            const uint8_t byte = ((uint8_t *)x86.q)[(r / 16 * (wide / per) + c / per) * 64 + r % 16 * 4 + c % 4];
            const uint32_t code = t.bits == 8 ? byte : c % 8 < 4 ? byte & 15u : byte >> 4;
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

static void test_rules(void) {
    const lq_wtype int4 = {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 4, .group = 32, .scale = LQ_F16},
                   int8 = {.kind = LQ_W_INT, .elem = LQ_U8, .bits = 8, .scale = LQ_F16};
    const lq_wtype bf16 = {.kind = LQ_W_PLAIN, .elem = LQ_BF16, .bits = 16},
                   nf4 = {.kind = LQ_W_TABLE, .elem = LQ_U8, .bits = 4, .group = 64, .scale = LQ_F32};
    lq_wtype block = int4, huge = int4, int3 = int4;
    block.rows = 16;
    huge.group = 2 * LQ_GROUP_MAX;
    int3.bits = 3;
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
    CHECK(lq_act_type(&cpu, &nf4).elem == LQ_F32, "nf4");
    CHECK(lq_act_type(&cpu, &huge).elem == LQ_F32, "a group that does not fit int32");
    a = lq_act_type(&exact, &w8a8);
    CHECK(a.elem == LQ_I8 && a.group == 0, "what the type says holds in exact mode");
    a = lq_act_type(&gpu, &fp8);
    CHECK(a.elem == LQ_E4M3 && a.group == 128, "and on every device");
    CHECK(lq_pack_has(LQ_X86, &int4, 1, 1) && lq_pack_has(LQ_X86, &int8, 5, 7), "x86 has int4 and int8");
    CHECK(!lq_pack_has(LQ_X86, &bf16, 16, 16) && !lq_pack_has(LQ_X86, &nf4, 16, 16) &&
          !lq_pack_has(LQ_X86, &block, 16, 16) &&
          !lq_pack_has(LQ_X86, &int3, 16, 16) && !lq_pack_has(LQ_X86, &huge, 16, 16),
          "x86 has what it should not have");
    CHECK(lq_pack_has(LQ_ANY, &nf4, 16, 16), "any has all");
    lq_weight_size size;
    CHECK(!lq_pack_sizes(LQ_X86, &int4, 0, 16, &size) && !lq_pack_sizes(LQ_X86, &int4, INT64_MAX, INT64_MAX, &size),
          "impossible sizes");
}

int main(void) {
    static const int64_t shapes[][2] = {{1, 1}, {16, 128}, {15, 100}, {17, 129}, {33, 389}, {64, 512}, {5, 1000}};
    static const int groups[] = {0, 16, 32, 64, 128, 272};
    static const lq_dtype scales[] = {LQ_F16, LQ_BF16, LQ_F32};
    lq_err err;
    lq_pool *pool;
    CHECK(lq_pool_open(3, &pool, &err), "%s", err.text);
    for (int bits = 4; bits <= 8; bits += 4)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (int v = 0; v < 6; v++)
                for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                    test_type(
                        (lq_wtype){
                            .kind = LQ_W_INT, .elem = LQ_U8, .bits = bits, .group = groups[g], .asym = v & 1,
                                .scale = scales[v / 2]},
                        shapes[s][0], shapes[s][1], pool);
    test_rules();
    lq_pool_close(pool);
    return test_end();
}
