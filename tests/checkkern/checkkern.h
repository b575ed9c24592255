// checkkern.h: what the files of checkkern share: counting, guarded buffers, random numbers and weights, equal bits.
#ifndef CHECKKERN_H
#define CHECKKERN_H
#include "kernels/cpu/ukr.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int ck_passed, ck_failed, ck_skipped;
void ck_fail(const char *file, int line, const char *cond, const char *fmt, ...) LQ_PRINTF(4, 5);
#define CHECK(cond, ...)                                          \
    do {                                                          \
        if (cond) ck_passed++;                                    \
        else ck_fail(__FILE__, __LINE__, #cond, __VA_ARGS__);     \
    } while (0)
#define SKIP(...) do { ck_skipped++; printf("SKIPPED: "); printf(__VA_ARGS__); printf("\n"); } while (0)

// Memory is watched: each path is walked once, on few rows; what sums come to is release's to check at full size.
#if defined(__SANITIZE_ADDRESS__)
#define CK_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CK_WATCHED 1
#endif
#endif
#ifndef CK_WATCHED
#define CK_WATCHED 0
#endif

// A buffer between guard bytes, `off` bytes away from a 64-byte border. ck_done checks the guards of all buffers, names
// `what` if one was written to, and frees them. Under ASan there are no guards: it sees reads too.
void *ck_buf(size_t bytes, size_t off);
void ck_done(const char *what);

// Whether the checks of this kernel or slot are wanted. Says its name first, and begins its own sequence of random
// numbers, so that it does alone what it does among all.
bool ck_begin(const char *name, const char *isa);
uint64_t ck_rand(void);
double ck_uniform(void);           // -1 .. 1
int ck_below(int n);               // 0 .. n-1
// The longest chain of f32 sums of a part of k: eight side by side or more, of packed plain numbers two.
int64_t ck_chain(const lq_wtype *t, lq_layout layout, lq_dtype act, int64_t k);
void ck_fill(float *x, size_t n);  // values of very different sizes

// The types to try, see types.c.
const lq_wtype *ck_types(int *n);

// A random weight in layout any; in another layout: the same one packed, its parts ck_bufs. Perm, smooth and outliers
// are off; what its type says of activations is there.
lq_weight ck_weight(const lq_wtype *t, int64_t n, int64_t k, size_t off);
lq_weight ck_weight_in(const lq_weight *any, lq_layout layout, size_t off);
lq_weight ck_weight_on(lq_dev *dev, const lq_weight *any); // as this device wants it
float ck_scale(const lq_weight *any, int64_t row, int64_t group);
// A weight (without codes) whose activations take the form t; an activation of x [rows][k] in that
// form, made by the portable code.
lq_weight ck_reader(lq_atype t, int64_t k);
lq_act ck_act(const lq_mat *x, lq_atype t);
lq_act ck_act_of(const lq_mat *x, const lq_weight *w, bool bf16); // as w wants it in default mode, on a device with it
double ck_small(const lq_act *a, int row, int64_t col);            // what a code of E4M3 stands for
lq_mat ck_mat(int rows, int cols, size_t gap); // F32, random, stride = cols + gap, the gap is NaN
bool ck_gaps(const lq_mat *m);                 // still NaN

// One NaN is as good as another.
static inline bool ck_same(float a, float b) { return (a != a && b != b) || memcmp(&a, &b, 4) == 0; }
bool ck_mat_same(const lq_mat *a, const lq_mat *b);

// A CPU, or one whose tiles are emulated (emulated.h).
bool ck_open(const lq_dev_opts *o, lq_dev **out, lq_err *err);
bool ck_reserve(lq_dev *d, lq_err *err); // for whatever checkkern asks of a device

// Every slot but quant, matmul and moe, of `dev` against `ref` (portable, one thread).
void check_ops(lq_dev *ref, lq_dev *dev);
// quant, matmul and moe.
void check_matmul(lq_dev *ref, lq_dev *dev);
void check_rough(void); // matmul by tiles, of this machine
// Rows of lq_ukrs[] that a CPU with these ISA bits can run; with AMX, those that need it.
void check_ukrs(unsigned isa, lq_dev *ref);
void check_bf16(lq_dev *ref, lq_dev *dev);
#endif
