// tiles_emu.c: AMX's tiles in plain C (kernels/cpu/x86/tiles.h with LQ_TILES_EMU): a set for each thread. What a
// machine answers by a fault, or by numbers that nobody meant, is counted: shapes that do not fit each other or a
// register, a register twice in one product, one that is read before it was written, tiles that nobody configured.
// Loads and stores touch the bytes that a machine would, so that guards and ASan see them.
#include "kernels/cpu/x86/tiles.h"
#include "tests/checkkern/emulated.h"
#include <float.h>
#include <stdatomic.h>

enum { TILES = 8 };
static _Thread_local struct {
    bool ready, written[TILES];
    int rows[TILES], bytes[TILES];
    _Alignas(64) uint8_t row[TILES][TILE_ROWS][TILE_WIDE];
} own;
static atomic_int faults;
static _Atomic(const char *) what;

static void fault(const char *text) {
    const char *none = NULL;
    atomic_compare_exchange_strong(&what, &none, text);
    atomic_fetch_add(&faults, 1);
}

int ck_emu_faults(const char **first) {
    *first = atomic_load(&what);
    return atomic_load(&faults);
}

void ck_emu_forget(void) {
    atomic_store(&faults, 0);
    atomic_store(&what, NULL);
}

bool ck_emu_released(void) { return !own.ready; }

void lq_emu_config(const lq_tiles *c) {
    bool ok = c->palette == 1 && c->start == 0;
    for (size_t i = 0; i < sizeof c->zero; i++) ok &= c->zero[i] == 0;
    for (int t = 0; t < 16; t++) {
        ok &= c->rows[t] <= (t < TILES ? TILE_ROWS : 0) && c->bytes[t] <= (t < TILES ? TILE_WIDE : 0);
        ok &= !c->rows[t] == !c->bytes[t];
    }
    memset(&own, 0, sizeof own);
    if (!ok) {
        fault("a configuration that is none");
        return;
    }
    own.ready = true;
    for (int t = 0; t < TILES; t++) own.rows[t] = c->rows[t], own.bytes[t] = c->bytes[t];
}

void lq_emu_release(void) {
    if (!own.ready) fault("a release of tiles that are not configured");
    memset(&own, 0, sizeof own);
}

static bool usable(int t) {
    const bool ok = own.ready && t >= 0 && t < TILES && own.rows[t] > 0;
    if (!ok) fault("a tile that is not configured");
    return ok;
}

void lq_emu_zero(int t) {
    if (!usable(t)) return;
    memset(own.row[t], 0, sizeof own.row[t]);
    own.written[t] = true;
}

void lq_emu_load(int t, const void *p, size_t stride) {
    if (!usable(t)) return;
    if (stride < (size_t)own.bytes[t]) fault("a load of rows that overlap");
    memset(own.row[t], 0, sizeof own.row[t]);
    for (int r = 0; r < own.rows[t]; r++)
        memcpy(own.row[t][r], (const char *)p + (size_t)r * stride, (size_t)own.bytes[t]);
    own.written[t] = true;
}

void lq_emu_store(int t, void *p, size_t stride) {
    if (!usable(t)) return;
    if (stride < (size_t)own.bytes[t]) fault("a store to rows that overlap");
    if (!own.written[t]) fault("a store of a tile that nobody wrote");
    for (int r = 0; r < own.rows[t]; r++)
        memcpy((char *)p + (size_t)r * stride, own.row[t][r], (size_t)own.bytes[t]);
}

static bool product_ok(int sum, int a, int b) {
    if (!usable(sum) || !usable(a) || !usable(b)) return false;
    if (sum == a || sum == b || a == b) fault("a product of one tile with itself");
    if (!own.written[sum] || !own.written[a] || !own.written[b]) fault("a product of a tile that nobody wrote");
    const bool ok = own.rows[sum] == own.rows[a] && own.bytes[sum] == own.bytes[b] && own.bytes[sum] % 4 == 0 &&
                    own.bytes[a] % 4 == 0 && own.bytes[a] / 4 == own.rows[b];
    if (!ok) fault("a product of tiles that do not fit each other");
    return ok;
}

// TDPBSSD: in int32, which wraps.
void lq_emu_dot_i8(int sum, int a, int b) {
    if (!product_ok(sum, a, b)) return;
    int8_t column[4][TILE_ROWS][16] = {{{0}}}; // [byte of four][row of b][n]
    for (int k = 0; k < own.rows[b]; k++)
        for (int n = 0; n < 16; n++)
            for (int j = 0; j < 4; j++) column[j][k][n] = (int8_t)own.row[b][k][4 * n + j];
    for (int m = 0; m < own.rows[sum]; m++) {
        uint32_t s[16];
        memcpy(s, own.row[sum][m], sizeof s);
        for (int k = 0; k < own.rows[b]; k++)
            for (int j = 0; j < 4; j++) {
                const int x = (int8_t)own.row[a][m][4 * k + j];
                for (int n = 0; n < 16; n++) s[n] += (uint32_t)(x * column[j][k][n]);
            }
        memcpy(own.row[sum][m], s, (size_t)own.bytes[sum]);
    }
}

static inline float flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }

static inline float widened(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return flushed(x);
}

// TDPBF16PS: even and odd k are chains of fused multiply-adds from 0, which are added to each other, and then to the
// sum; to nearest, and what is below 2^-126 is 0 everywhere.
void lq_emu_dot_bf16(int sum, int a, int b) {
    if (!product_ok(sum, a, b)) return;
    float column[2][TILE_ROWS][16] = {{{0}}};
    for (int k = 0; k < own.rows[b]; k++)
        for (int n = 0; n < 16; n++)
            for (int j = 0; j < 2; j++) column[j][k][n] = widened(own.row[b][k] + 4 * n + 2 * j);
    for (int m = 0; m < own.rows[sum]; m++) {
        float s[16], chain[2][16] = {{0}};
        memcpy(s, own.row[sum][m], sizeof s);
        for (int k = 0; k < own.rows[b]; k++)
            for (int j = 0; j < 2; j++) {
                const float x = widened(own.row[a][m] + 4 * k + 2 * j);
                for (int n = 0; n < 16; n++) chain[j][n] = flushed(fmaf(x, column[j][k][n], chain[j][n]));
            }
        for (int n = 0; n < 16; n++) s[n] = flushed(flushed(s[n]) + flushed(chain[0][n] + chain[1][n]));
        memcpy(own.row[sum][m], s, (size_t)own.bytes[sum]);
    }
}
