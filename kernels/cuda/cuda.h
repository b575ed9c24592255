// cuda.h: what the files of the CUDA backend share: the private state of its device.
#ifndef LQ_CUDA_H
#define LQ_CUDA_H
#include "kernels/cuda/gpu.h"
#include "kernels/ops.h"

// Matrices of a layer's experts, and their biases, as arrays on the device: put there when they are first used.
typedef struct lq_cuda_stack {
    const lq_weight *w;        // [host][experts] as the model has them
    const float *const *bias;
    int experts;
    lq_weight *copy;           // [host] what was put: [experts], then pointers to biases
    void *dev;                 // lq_weight [experts], then pointers to biases
    struct lq_cuda_stack *next;
} lq_cuda_stack;

// lq_dev.self of a CUDA device.
typedef struct lq_cuda {
    lq_gpu *gpu;
    lq_dev *cpu;               // what the host does for it, in portable C
    lq_cuda_stack *stacks;
    int processors;            // multiprocessors of the GPU
    void *metered;             // what the loops of meter.c leave
    int sms;                   // multiprocessors that its architecture is taken to have
    float *parts;              // of products whose k is cut (w4s.h)
    uint32_t *arrived;
    struct lq_cuda_sampler *sampler; // of sample.c
    int shared;                // bytes of shared memory that a block may have
    float *apart;              // of attention whose splits are apart (pa.h)
    float *sums;               // of attn whose y is not f32: [rows][heads][dv]
    size_t sums_bytes, apart_bytes;
    bool recording, broken;    // broken: a slot could not do its work, `sync` says why
    lq_err why;
} lq_cuda;
static inline lq_cuda *lq_cuda_of(const lq_dev *d) { return (lq_cuda *)d->self; }

// A slot that could not do its work.
void lq_cuda_break(lq_dev *d, const lq_err *why);
void lq_cuda_slots(lq_ops *o);      // of a forward (slots.c)
void lq_cuda_host_slots(lq_ops *o); // that the host does (hosted.c)
void lq_cuda_stacks_free(lq_dev *d);
// sample.c
bool lq_cuda_sample_open(lq_dev *d, lq_err *err);
void lq_cuda_sample_close(lq_dev *d);
bool lq_cuda_sample_reserve(lq_dev *d, const lq_dev_limits *l, lq_err *err);
void lq_cuda_sample_slots(lq_ops *o);
bool lq_cuda_meter_open(lq_dev *d, lq_err *err); // meter.c
void lq_cuda_meter_slots(lq_ops *o);

// fast.c, of default mode: false: the plain kernel must do it.
bool lq_fast_open(lq_dev *d, int capability, lq_err *err);
void lq_fast_close(lq_dev *d);
bool lq_fast_norm(lq_dev *d, const lq_norm_args *a);
bool lq_fast_glu(lq_dev *d, const lq_glu_args *a);
bool lq_fast_add(lq_dev *d, const lq_add_args *a);
bool lq_fast_scale(lq_dev *d, const lq_scale_args *a);
bool lq_fast_mix(lq_dev *d, const lq_mix_args *a);
bool lq_fast_embed(lq_dev *d, const lq_embed_args *a);
bool lq_fast_route(lq_dev *d, const lq_route_args *a);
bool lq_fast_matmul(lq_dev *d, const lq_act *x, const lq_weight *w, const float *bias, const lq_mat *y);
bool lq_fast_rope(lq_dev *d, const lq_rope_args *a);
bool lq_fast_kv_write(lq_dev *d, const lq_kv_write_args *a);
bool lq_fast_attn(lq_dev *d, const lq_attn_args *a);

// The border of the plug-in.
bool lq_cuda_open(int version, const char *name, const lq_dev_opts *o, lq_dev **out, lq_err *err);
void lq_cuda_close(lq_dev *d);
#endif
