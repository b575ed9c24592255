// cpu.h: what the files of kernels/cpu share: a CPU device's private state and its scratch.
//
// From the bottom up: attn.h and sample.h; quant.c and sample.c, which portable slots and those of an ISA both
// use; the slots (ref.c, attn.c, moe.c, scan.c, solve.c, matmul.c and x86/); cpu.c, which puts them into a table: the
// portable ones into every slot, then each ISA this machine has overwrites what it does better. quant, kv_write,
// matmul, moe, round and refine are the same functions on all: they find what differs in lq_cpu. Files compiled for an
// ISA are entered only through tables, so that no wide instruction runs where it may not.
#ifndef LQ_CPU_H
#define LQ_CPU_H
#include "kernels/element.h"
#include "kernels/view.h"
#include <stdatomic.h>
#include <string.h>

// avx2 + fma + f16c + bmi2; avx512 f, bw, vl, dq + vnni; amx tile, bf16, int8 + avx512 bf16; avx512 bf16, vbmi
enum { LQ_ISA_AVX2 = 1, LQ_ISA_AVX512 = 2, LQ_ISA_AMX = 4, LQ_ISA_BF16 = 8, LQ_ISA_VNNI = 16 /* AVX-VNNI */,
       LQ_ISA_ROUGH = 32 /* of lq_ukr_choose: plain weights stay rows, as which tiles_rough reads f32 */ };

// What an ISA does of it; all versions give equal bits.
typedef struct lq_q8 {
    // k columns of row `row` of an I8 activation whose cells have a scale each, from cell g0 on: q, scale and sum. k is
    // whole cells, or ends where the row ends.
    void (*row)(const float *x, int k, const lq_act *a, int row, int g0);
    uint32_t (*top)(const float *x, int n); // the largest magnitude, as the bits of an f32
    int32_t (*codes)(const float *x, int n, const lq_q8_by *by, int8_t *q); // x finite; gives the sum of q
    void (*small)(const float *x, int n, float inverse, void *q, bool halves); // E4M3's numbers, as lq_act has them
    void (*narrow)(const float *x, int n, lq_dtype t, float by, void *q); // lq_narrow_all
} lq_q8;
extern const lq_q8 lq_q8_c, lq_q8_avx2, lq_q8_avx512;

// Of each row w[c] -= e[0] * u[c], then e[1] * u[stride + c] and so on, for n columns; all versions give equal bits.
typedef struct lq_hearer { float *w; const float *e; } lq_hearer;
typedef void lq_spread_fn(const lq_hearer *row, size_t rows, const float *u, size_t stride, size_t errors, size_t n);
lq_spread_fn lq_spread_c, lq_spread_avx2, lq_spread_avx512;

// What an ISA does of `round`, whose sums have LQ_LANES lanes (column mod that); all versions give equal bits. n is a
// multiple of LQ_LANES, for `range` of two of them, s not 0; an element's code is that of the nearest of the values
// s * q, -z <= q < 2^bits - z.
enum { LQ_LANES = 8 };
typedef struct lq_lanes { float error[LQ_LANES], norm[LQ_LANES], max[LQ_LANES]; } lq_lanes;
typedef struct lq_rounds {
    // The least of x and *lo, the largest of x and *hi; false: some of x is NaN, infinite or beyond LQ_ROUND_LARGEST.
    bool (*range)(const float *x, size_t n, float *lo, float *hi);
    // Codes q + z, and what x and the differences to it come to, in units of s / unit.
    void (*codes)(const float *x, size_t n, float s, int32_t z, int bits, float unit, int32_t *q, lq_lanes *sum);
    // The squares of the differences, times weight[i] (NULL: once), are added to part[LQ_LANES].
    void (*loss)(const float *x, const float *weight, size_t n, float s, int32_t z, int bits, float *part);
} lq_rounds;
extern const lq_rounds lq_rounds_c, lq_rounds_avx2;

// Products of f32 by tiles of bf16 (x86/amx.h). Strips of 16 rows of x and of w, [steps of 32 k][hi, lo][16][16][2];
// those behind the last row are 0, and so is k behind the last one.
enum { LQ_STRIP = 16, LQ_STEP = 32, LQ_STEP_BYTES = 2048 };
typedef struct lq_rough {
    // A strip of `rows` rows of x, or (turned) of w, `cols` columns wide.
    void (*strip)(const float *x, size_t stride, int rows, int64_t cols, bool turned, char *to);
    // y[m][n] = sum over so many steps of the strips x and w; more: y += it. x_strip, w_strip: bytes from one to the
    // next. half: w has no lo.
    void (*product)(const char *x, size_t x_strip, int rows, const char *w, size_t w_strip, int cols, int steps,
                    bool half, bool more, float *y, size_t ldy);
} lq_rough;
extern const lq_rough lq_rough_amx;

// lq_dev.self of a CPU device.
typedef struct lq_cpu {
    unsigned isa;       // LQ_ISA_* bits this device uses
    const lq_q8 *q8;
    lq_spread_fn *spread;
    const lq_rounds *rounds;
    const lq_rough *rough; // what `matmul` multiplies f32 with; NULL: the micro-kernels
    const struct lq_ukr **ukr; // the micro-kernels chosen for this machine, NULL ends (ukr.h)
    void *work;         // scratch, grown only by `reserve`
    size_t work_bytes;
    size_t share;       // bytes of it that each worker has
    bool broken;        // a slot could not do its work; `sync` says why
    lq_err why;
    struct { _Alignas(64) atomic_int run; } *next; // [threads] where each worker's share of a matmul stands
} lq_cpu;
static inline lq_cpu *lq_cpu_of(const lq_dev *d) { return d->self; }

bool lq_cpu_open(const lq_dev_opts *o, lq_dev **out, lq_err *err);
void lq_cpu_close(lq_dev *d);
size_t lq_room_cpu(lq_dev *d); // kernels/cpu/room.c

// Scratch: a slot may use all of lq_cpu.work while it runs, no slot leaves anything in it. Each worker has an aligned
// share of lq_cpu_share(d) bytes, at least LQ_SHARE without a reserve.
enum { LQ_SHARE = 1284 * 1024 };
static inline size_t lq_cpu_share(const lq_dev *d) { return lq_cpu_of(d)->share; }
static inline void *lq_cpu_work(const lq_dev *d, int worker) {
    return (char *)lq_cpu_of(d)->work + (size_t)worker * lq_cpu_share(d);
}

// 0 as the result of padding: what follows reads it, and whatever lay there might be slow numbers.
static inline void lq_rows_blank(const lq_rows *r, const lq_mat *y) {
    for (int row = lq_rows_real(r); row < r->n; row++) memset(lq_mat_row(y, row), 0, (size_t)y->cols * sizeof(float));
}

// What norm and glu do for their `act`, and quant for each row: `x` as row `row` of a, in the
// scratch of `worker`. a NULL: nothing.
void lq_cpu_row_act(const lq_dev *d, const float *x, lq_act *a, int row, int worker);
// The same for columns first..end of a row, x being those, where each part can be made by itself: of how many columns'
// multiples such parts are, 0: they cannot, as what makes a column asks for others. y: what the rows are of.
int lq_cpu_act_part(const lq_mat *y, const lq_act *a);
void lq_cpu_part_act(const lq_dev *d, const float *x, lq_act *a, int row, int first, int end);
#endif
