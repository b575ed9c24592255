// cuda.h: what the files of the CUDA backend share: the private state of its device.
#ifndef LQ_CUDA_H
#define LQ_CUDA_H
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/w4s.h"
#include "kernels/ops.h"

// Matrices of a layer's experts, and their biases, as arrays on the device: put there when they are first used.
typedef struct lq_cuda_stack {
    const lq_weight *w;        // [host][experts] as the model has them
    const float *const *bias;
    int experts;
    lq_weight *copy;           // [host] what was put: [experts], then pointers to biases, then lq_w4s_matrix [experts]
    void *dev;                 // the same on the device
    bool fast;                 // all of them are as w4s has them
    struct lq_cuda_stack *next;
} lq_cuda_stack;

typedef struct lq_library lq_library;

// lq_dev.self of a CUDA device.
typedef struct lq_cuda {
    lq_gpu *gpu;
    lq_dev *cpu;               // what the host does for it, in portable C
    lq_cuda_stack *stacks;
    int processors;            // multiprocessors of the GPU
    void *metered;             // what the loops of meter.c leave
    int capability;            // 90: sm_90
    int sms;                   // multiprocessors that its architecture is taken to have
    bool large;                // products of many tokens go to w4l (w4l_pick.h)
    float *parts;              // of products whose k is cut (w4s.h)
    uint32_t *arrived;
    struct lq_cuda_sampler *sampler; // of sample.c
    lq_library *library; // of fast mode (fast_library.c)
    size_t shared;             // bytes of shared memory that a block may have
    float *apart;              // of attention whose splits are apart (pa.h)
    float *sums;               // of attn whose y is not f32: [rows][heads][dv]
    size_t sums_bytes, apart_bytes;
    struct lq_solver *solver;  // NULL: nothing was solved yet
    void *work;                // scratch of slots that quantize
    size_t work_bytes;
    bool recording, broken;    // broken: a slot could not do its work, `sync` says why
    lq_err why;
} lq_cuda;
static inline lq_cuda *lq_cuda_of(const lq_dev *d) { return (lq_cuda *)d->self; }

// The last of a stack's arrays, of its copy or on the device.
static inline lq_w4s_matrix *lq_stack_fast(const lq_cuda_stack *s, void *base) {
    return (lq_w4s_matrix *)(void *)((char *)base + (size_t)s->experts * (sizeof(lq_weight) + sizeof(float *)));
}

// A slot that could not do its work.
void lq_cuda_break(lq_dev *d, const lq_err *why);
void lq_cuda_stacks_free(lq_dev *d);
void lq_cuda_slots(lq_ops *o);       // of a forward (slots.c)
void lq_cuda_round_slots(lq_ops *o); // round, refine (round.c)
void lq_cuda_solve_slots(lq_ops *o); // gram, factor, solve, arrange (solve.c)
void lq_cuda_choose_slots(lq_ops *o); // choose (choose.c)
void lq_cuda_tries_slots(lq_ops *o); // tries (tries.c)
struct lq_solver *lq_cuda_solver(lq_dev *d); // opened at the first use; NULL: broken
void lq_cuda_host_round(lq_dev *d, const lq_round_args *a); // what no kernel rounds (hosted.c)
// Scratch of so many bytes, until the next call: it grows here, within a slot, and never shrinks. NULL: broken.
void *lq_cuda_work(lq_dev *d, size_t bytes);
bool lq_cuda_sample_open(lq_dev *d, lq_err *err); // sample.c
void lq_cuda_sample_close(lq_dev *d);
bool lq_cuda_sample_reserve(lq_dev *d, const lq_dev_limits *l, lq_err *err);
void lq_cuda_sample_slots(lq_ops *o);
bool lq_cuda_meter_open(lq_dev *d, lq_err *err); // meter.c
void lq_cuda_meter_slots(lq_ops *o);

// The border of the plug-in.
bool lq_cuda_open(int version, const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err);
void lq_cuda_close(lq_dev *d);
#endif
