// tiles.h: AMX's tile registers by name, what amx.h and the files of AMX are written in. In the library a name is one
// intrinsic. With LQ_TILES_EMU, a build of the same files for tests alone, it is a function in portable C that computes
// the same and checks what it is asked (tests/checkkern/tiles_emu.c), so that they run on machines that have no tiles.
//
// Everywhere tiles 0 to 3 are sums, 4 and 5 what has its rows, 6 and 7 what has its columns.
#ifndef LQ_TILES_H
#define LQ_TILES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TILE_ROWS = 16, TILE_WIDE = 64 }; // at most, of a register: rows, bytes of a row

// What ldtilecfg reads: bytes of a row, and rows, of each register.
typedef struct lq_tiles {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} lq_tiles;
_Static_assert(sizeof(lq_tiles) == 64, "64 bytes");

#if defined(LQ_TILES_EMU)
void lq_emu_config(const lq_tiles *c);
void lq_emu_release(void);
void lq_emu_zero(int t);
void lq_emu_load(int t, const void *p, size_t stride);
void lq_emu_store(int t, void *p, size_t stride);
void lq_emu_dot_i8(int sum, int a, int b);
void lq_emu_dot_bf16(int sum, int a, int b);
#define tile_config lq_emu_config
#define tile_release lq_emu_release
#define tile_zero lq_emu_zero
#define tile_load lq_emu_load
#define tile_store lq_emu_store
#define tile_dot_i8 lq_emu_dot_i8
#define tile_dot_bf16 lq_emu_dot_bf16
#else
#include <immintrin.h>
// gcc 12's intrinsics do not say what memory they read; what was written before has to be there.
static inline void tiles_see(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

#define tile_config(c) (tiles_see(c), _tile_loadconfig(c))
#define tile_release() _tile_release()
#define tile_zero(t) _tile_zero(t)
#define tile_load(t, p, stride) do { tiles_see(p); _tile_loadd(t, p, stride); } while (0)
#define tile_store(t, p, stride) _tile_stored(t, p, stride)
#define tile_dot_i8(sum, a, b) _tile_dpbssd(sum, a, b)     // sum[m][n] += a[m][k] b[k / 4][n][k % 4], of int8, in int32
#define tile_dot_bf16(sum, a, b) _tile_dpbf16ps(sum, a, b) // as amx.h says
#endif

// A thread's, from here to tiles_end: sums of `high` rows x 16, rows of `wide` bytes, columns of as many, four a row.
static inline void tiles_begin(int wide, int high) {
    lq_tiles c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.bytes[t] = t == 4 || t == 5 ? (uint16_t)wide : TILE_WIDE;
        c.rows[t] = (uint8_t)(t < 6 ? high : wide / 4);
    }
    tile_config(&c);
}

static inline void tiles_end(void) { tile_release(); }

// The sums of a block of two strips of rows (high; else one) x two tiles of columns (wide; else one): the first strip's
// with both tiles, then the second one's, each TILE_BYTES of memory.
enum { TILE_BYTES = TILE_ROWS * TILE_WIDE };
static inline void sums_zero(const bool high, const bool wide) {
    tile_zero(0);
    if (wide) tile_zero(1);
    if (high) tile_zero(2);
    if (high && wide) tile_zero(3);
}

static inline void sums_load(const void *from, const bool high, const bool wide) {
    const char *p = from;
    tile_load(0, p, TILE_WIDE);
    if (wide) tile_load(1, p + TILE_BYTES, TILE_WIDE);
    if (high) tile_load(2, p + 2 * TILE_BYTES, TILE_WIDE);
    if (high && wide) tile_load(3, p + 3 * TILE_BYTES, TILE_WIDE);
}

static inline void sums_store(void *to, const bool high, const bool wide) {
    char *p = to;
    tile_store(0, p, TILE_WIDE);
    if (wide) tile_store(1, p + TILE_BYTES, TILE_WIDE);
    if (high) tile_store(2, p + 2 * TILE_BYTES, TILE_WIDE);
    if (high && wide) tile_store(3, p + 3 * TILE_BYTES, TILE_WIDE);
}
#endif
