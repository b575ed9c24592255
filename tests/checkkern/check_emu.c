// check_emu.c: devices whose AMX is tiles_emu.c; these tiles against the words of the instructions' definition, and
// faults that they have to see. Devices whose vpdpbusd of AVX-VNNI is that of AVX-512.
#include "kernels/cpu/slots.h"
#include "kernels/cpu/x86/tiles.h"
#include "tests/checkkern/emulated.h"

#if defined(__x86_64__)
lq_ukr_many lq_matmul_f32_q8_int2x86_emu, lq_matmul_f32_q8_int3x86_emu, lq_matmul_f32_q8_int4x86_emu,
    lq_matmul_f32_q8_int5x86_emu, lq_matmul_f32_q8_int6x86_emu, lq_matmul_f32_q8_int8x86_emu,
    lq_matmul_f32_q8_table4x86_emu, lq_matmul_f32_bf16_bf16any_emu, lq_matmul_f32_bf16_bf16x86_emu;
lq_ukr_run lq_matmul_f32_q8_int2x86_evex, lq_matmul_f32_q8_int3x86_evex, lq_matmul_f32_q8_int4x86_evex,
    lq_matmul_f32_q8_int5x86_evex, lq_matmul_f32_q8_int6x86_evex, lq_matmul_f32_q8_int8x86_evex,
    lq_matmul_f32_q8_table4x86_evex;
void lq_gram_emu(lq_dev *d, const lq_gram_args *a);
void lq_attn_emu(lq_dev *d, const lq_attn_args *a);
extern const lq_rough lq_rough_emu;

static bool on;

bool ck_emu_can(const char *isa) {
    lq_dev *d;
    const unsigned wanted = strcmp(isa, "amx") ? LQ_ISA_AVX512 : LQ_ISA_BF16;
    if (!lq_dev_open("cpu", &(lq_dev_opts){.isa = "avx512bf16", .threads = 1}, &d, NULL)) return false;
    const bool has = lq_cpu_of(d)->isa & wanted;
    lq_dev_close(d);
    return has;
}

void ck_emu_begin(void) { on = true; }
void ck_emu_end(void) { on = false; }
bool ck_emu_is(void) { return on; }

void ck_emu_rows(const lq_ukr **chosen) {
#define BOTH(OF)                                                                  \
    {"lq_matmul_f32_q8_" #OF "x86_amx", lq_matmul_f32_q8_##OF##x86_emu, NULL},    \
    {"lq_matmul_f32_q8_" #OF "x86_avxvnni", NULL, lq_matmul_f32_q8_##OF##x86_evex}
    enum { ROWS = 16 };
    static lq_ukr rows[ROWS];
    static const struct { const char *name; lq_ukr_many *many; lq_ukr_run *run; } all[ROWS] = {
        BOTH(int2), BOTH(int3), BOTH(int4), BOTH(int5), BOTH(int6), BOTH(int8), BOTH(table4),
        {"lq_matmul_f32_bf16_bf16any_amx", lq_matmul_f32_bf16_bf16any_emu, NULL},
        {"lq_matmul_f32_bf16_bf16x86_amx", lq_matmul_f32_bf16_bf16x86_emu, NULL},
    };
    for (; *chosen; chosen++)
        for (int i = 0; i < ROWS; i++) {
            if (strcmp((*chosen)->name, all[i].name)) continue;
            rows[i] = **chosen;
            if (all[i].many) rows[i].many = all[i].many;
            else rows[i].run = all[i].run;
            *chosen = &rows[i];
        }
}

bool ck_open(const lq_dev_opts *o, lq_dev **out, lq_err *err) {
    lq_dev_opts below = *o;
    const bool amx = on && o->isa && !strcmp(o->isa, "amx"), vnni = on && o->isa && !strcmp(o->isa, "avxvnni");
    if (amx || vnni) below.isa = amx ? "avx512bf16" : "avx2";
    if (!lq_dev_open("cpu", &below, out, err) || !(amx || vnni)) return *out != NULL;
    lq_cpu *c = lq_cpu_of(*out);
    c->isa |= amx ? LQ_ISA_AMX : LQ_ISA_VNNI;
    lq_ukr_choose(c->isa | (o->rough ? LQ_ISA_ROUGH : 0u), c->ukr);
    ck_emu_rows(c->ukr);
    if (vnni) {
        snprintf((*out)->isa, sizeof (*out)->isa, "avx2 vnni emulated");
        return true;
    }
    (*out)->ops.gram = lq_gram_emu;
    (*out)->ops.attn = lq_attn_emu;
    if (o->rough) c->rough = &lq_rough_emu;
    snprintf((*out)->isa, sizeof (*out)->isa, "avx512 vnni bf16 amx emulated");
    return true;
}

// --- the tiles themselves ---

static lq_tiles config_of(int rows, int k_bytes, int cols) {
    lq_tiles c = {.palette = 1};
    c.rows[0] = c.rows[1] = (uint8_t)rows;
    c.bytes[0] = c.bytes[2] = (uint16_t)(4 * cols);
    c.bytes[1] = (uint16_t)k_bytes;
    c.rows[2] = (uint8_t)(k_bytes / 4);
    return c;
}

static void check_dot_i8(int rows, int k, int cols) {
    enum { STRIDE = 80 };
    int8_t *a = ck_buf(TILE_ROWS * STRIDE, 0), *b = ck_buf(TILE_ROWS * STRIDE, 0);
    int32_t *sum = ck_buf(TILE_ROWS * STRIDE, 0);
    for (int i = 0; i < TILE_ROWS * STRIDE; i++) a[i] = (int8_t)ck_rand(), b[i] = (int8_t)ck_rand();
    for (int i = 0; i < TILE_ROWS * STRIDE / 4; i++) sum[i] = ck_below(1000) - 500;
    const lq_tiles c = config_of(rows, k, cols);
    lq_emu_config(&c);
    lq_emu_load(0, sum, STRIDE);
    lq_emu_load(1, a, STRIDE);
    lq_emu_load(2, b, STRIDE);
    lq_emu_dot_i8(0, 1, 2);
    int32_t *got = ck_buf(TILE_ROWS * STRIDE, 0);
    memcpy(got, sum, TILE_ROWS * STRIDE);
    lq_emu_store(0, got, STRIDE);
    lq_emu_release();
    int wrong = 0;
    for (int m = 0; m < TILE_ROWS; m++)
        for (int n = 0; n < STRIDE / 4; n++) {
            int32_t want = sum[m * STRIDE / 4 + n];
            for (int i = 0; m < rows && n < cols && i < k; i++)
                want += a[m * STRIDE + i] * b[i / 4 * STRIDE + 4 * n + i % 4];
            wrong += got[m * STRIDE / 4 + n] != want;
        }
    CHECK(wrong == 0, "int8 tiles %d x %d x %d: %d wrong", rows, k, cols, wrong);
    ck_done("int8 tiles");
}

// Numbers that show the order: 2^24 and 1 apart in the two chains, and what is too small to be there.
static void check_dot_bf16(void) {
    static const struct { float a[4], b[4], sum, want; } cases[] = {
        {{0x1p24f, 1, -0x1p24f, 0}, {1, 1, 1, 0}, 0, 1},             // 1 is in the other chain
        {{0x1p24f, 0, 1, 0}, {1, 0, 1, 0}, -0x1p24f, 0},             // and here in the same: it is lost
        {{1, 0, 0x1p24f, 0}, {1, 0, 1, 0}, -0x1p24f, 0},
        {{0, 1, 0, 0}, {0, 1, 0, 0}, 0x1p24f, 0x1p24f},              // the sum is added last
        {{0x1p-126f, 0, 0, 0}, {0x1p-1f, 0, 0, 0}, 0, 0},            // below 2^-126
        {{0x1p-127f, 0, 0, 0}, {0x1p20f, 0, 0, 0}, 1, 1},            // as a factor
        {{0, 0, 0, 0}, {0, 0, 0, 0}, 0x1p-130f, 0},                  // as a sum
        {{1.5f, 2, -3, 0.25f}, {2, 0.5f, 1, 8}, 10, 13},
        {{0x1.02p0f, 0, 0x1.02p0f, 0}, {0x1.02p0f, 0, -0x1.02p0f, 0}, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t a[4], b[4];
        float sum = cases[i].sum;
        for (int k = 0; k < 4; k++) a[k] = lq_f32_bf16(cases[i].a[k]), b[k] = lq_f32_bf16(cases[i].b[k]);
        const lq_tiles c = config_of(1, 8, 1);
        lq_emu_config(&c);
        lq_emu_load(0, &sum, 4);
        lq_emu_load(1, a, 8);
        lq_emu_load(2, b, 4);
        lq_emu_dot_bf16(0, 1, 2);
        lq_emu_store(0, &sum, 4);
        lq_emu_release();
        CHECK(sum == cases[i].want, "bf16 tiles, case %zu: found %a, expected %a", i, (double)sum,
              (double)cases[i].want);
    }
}

// What has to be seen: each leaves one fault.
static void plant(int which) {
    uint8_t bytes[TILE_ROWS * TILE_WIDE] = {0};
    lq_tiles c = config_of(16, 64, 16);
    if (which == 0) c.rows[3] = 17, c.bytes[3] = 64;
    if (which == 1) c.bytes[3] = 68, c.rows[3] = 16;
    if (which == 2) c.palette = 2;
    if (which == 3) c.rows[2] = 15;
    if (which == 4) c.rows[1] = 8;
    if (which == 5) c.bytes[2] = 32;
    lq_emu_config(&c);
    if (which < 3) return;
    lq_emu_zero(0);
    lq_emu_load(1, bytes, which == 6 ? 32 : 64);
    if (which != 7) lq_emu_zero(2);
    if (which == 8) lq_emu_zero(5);
    else if (which == 9) lq_emu_dot_i8(0, 2, 2);
    else lq_emu_dot_i8(0, 1, 2);
    lq_emu_release();
    if (which == 10) lq_emu_zero(0);
}

void check_emu(void) {
    enum { PLANTED = 11 };
    const char *first;
    if (!ck_begin("tiles", "emulated")) return;
    ck_emu_forget();
    for (int rows = 1; rows <= 16; rows += 5)
        for (int k = 4; k <= 64; k += 20)
            for (int cols = 1; cols <= 16; cols += 5) check_dot_i8(rows, k, cols);
    check_dot_bf16();
    CHECK(ck_emu_faults(&first) == 0, "tiles: %s", first);
    for (int i = 0; i < PLANTED; i++) {
        ck_emu_forget();
        plant(i);
        CHECK(ck_emu_faults(&first) == 1, "tiles: planted fault %d was not seen once: %d", i, ck_emu_faults(&first));
    }
    ck_emu_forget();
    CHECK(ck_emu_released(), "tiles: not released");
}

void check_emu_gram(lq_dev *dev) {
    enum { ROWS = 700, COLS = 97 };
    if (!ck_begin("gram", "amx, beside the emulated one")) return;
    const lq_mat x = ck_mat(ROWS, COLS, 3);
    double *h = ck_buf(COLS * COLS * sizeof *h, 0), *same = ck_buf(COLS * COLS * sizeof *h, 0);
    float *work = ck_buf(COLS * COLS * sizeof *work, 0);
    memset(h, 0, COLS * COLS * sizeof *h);
    memset(same, 0, COLS * COLS * sizeof *h);
    for (int i = 0; i < COLS; i++) lq_mat_row(&x, i)[i] *= 0x1p-120f;
    dev->ops.gram(dev, &(lq_gram_args){.x = x, .h = h, .work = work});
    lq_gram_emu(dev, &(lq_gram_args){.x = x, .h = same, .work = work});
    CHECK(!memcmp(h, same, COLS * COLS * sizeof *h), "gram: other bits on tiles in plain C");
    ck_done("gram");
}

#else
bool ck_emu_can(const char *isa) {
    (void)isa;
    return false;
}

void ck_emu_begin(void) {}
void ck_emu_end(void) {}
bool ck_emu_is(void) { return false; }
void ck_emu_rows(const lq_ukr **chosen) { (void)chosen; }
bool ck_open(const lq_dev_opts *o, lq_dev **out, lq_err *err) { return lq_dev_open("cpu", o, out, err); }
void check_emu(void) {}
void check_emu_gram(lq_dev *dev) { (void)dev; }
#endif
