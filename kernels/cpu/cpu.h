// cpu.h: what the files of kernels/cpu share: the parts a CPU device's table is made of, its private state and its scratch.
//
// A table is filled from the bottom up: lq_cpu_c writes every slot, then each ISA this CPU has overwrites what it does better.
// quant, matmul and moe are the same functions on all: they find what differs in lq_cpu.q8 and lq_dev.ukr.
// Files compiled for an ISA are entered only through the functions here, so that no wide instruction runs where it may not.
#ifndef LQ_CPU_H
#define LQ_CPU_H
#include "kernels/ops.h"
#include <stdatomic.h>
#include <string.h>

enum { LQ_ISA_AVX2 = 1, LQ_ISA_AVX512 = 2 }; // avx2 + fma + f16c + bmi2; avx512 f, bw, vl, dq + vnni

// How x becomes int8. All versions give equal bits.
typedef struct lq_q8_by { float scale, inverse; int32_t zero, least; } lq_q8_by; // q = rint(v * inverse) + zero, held to least..127
typedef struct lq_q8 {
    // k columns of row `row` of an I8 activation whose cells have a scale each, from cell g0 on: q, scale and sum. k is whole cells, or
    // ends where the row ends.
    void (*row)(const float *x, int k, const lq_act *a, int row, int g0);
    uint32_t (*top)(const float *x, int n); // the largest magnitude, as the bits of an f32
    int32_t (*codes)(const float *x, int n, const lq_q8_by *by, int8_t *q); // x finite; gives the sum of q
} lq_q8;
extern const lq_q8 lq_q8_c, lq_q8_avx2, lq_q8_avx512;

// lq_dev.self of a CPU device.
typedef struct lq_cpu {
    unsigned isa;       // LQ_ISA_* bits this device uses
    const lq_q8 *q8;
    size_t share;       // bytes of scratch that each worker has
    struct { _Alignas(64) atomic_int run; } *next; // [threads] where each worker's share of a matmul stands
} lq_cpu;

void lq_cpu_c(lq_ops *o);            // kernels/cpu/matmul.c: quant, matmul, moe and then lq_cpu_ref_slots

// All slots but memory, control, quant, matmul and moe.
void lq_cpu_ref_slots(lq_ops *o);    // kernels/cpu/ref.c
void lq_cpu_avx2_slots(lq_ops *o);   // kernels/cpu/x86/ops_avx2.c
void lq_cpu_avx512_slots(lq_ops *o); // kernels/cpu/x86/ops_avx512.c

// Scratch: a slot may use all of d->work while it runs, no slot leaves anything in it. Each worker has an aligned share of
// lq_cpu_share(d) bytes, at least LQ_SHARE without a reserve.
enum { LQ_SHARE = 320 * 1024 };
// Bytes of d->work that the slots of ref.c and its ISA versions need for batches within `l`.
size_t lq_cpu_slots_work(const lq_dev_limits *l, int threads); // kernels/cpu/ref.c
static inline size_t lq_cpu_share(const lq_dev *d) { return ((const lq_cpu *)d->self)->share; }
static inline void *lq_cpu_work(const lq_dev *d, int worker) { return (char *)d->work + (size_t)worker * lq_cpu_share(d); }

static inline float *lq_mat_row(const lq_mat *m, int row) { return (float *)m->p + (size_t)row * m->stride; }

// Rows that belong to a sequence; the others are padding.
static inline int lq_rows_real(const lq_rows *r) { return r->first[r->seqs]; }
static inline size_t lq_rows_slot(const lq_rows *r, int seq) { return (size_t)(r->slot ? r->slot[seq] : seq); }
static inline const int32_t *lq_rows_table(const lq_rows *r, int seq) { return r->tables + lq_rows_slot(r, seq) * (size_t)r->table_stride; }
// 0 as the result of padding: what follows reads it, and whatever lay there might be slow numbers.
static inline void lq_rows_blank(const lq_rows *r, const lq_mat *y) {
    for (int row = lq_rows_real(r); row < r->n; row++) memset(lq_mat_row(y, row), 0, (size_t)y->cols * sizeof(float));
}

void lq_quant_cpu(lq_dev *d, const lq_quant_args *a); // the slot, of all ISAs
// What norm and glu do for their `act`, and quant for each row: `x` as row `row` of a, in the scratch of `worker`. a NULL: nothing.
void lq_cpu_row_act(const lq_dev *d, const float *x, lq_act *a, int row, int worker);
#endif
