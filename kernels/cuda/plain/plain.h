// plain.h: the plain kernels: every slot of a forward in f32, with the bits of portable C. What each is given, and how
// it is launched.
#ifndef LQ_PLAIN_H
#define LQ_PLAIN_H
#include "kernels/cuda/gpu.h"
#include "kernels/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

// Arguments of a slot, with a copy of what they point to on the host; those pointers are NULL.
typedef struct lq_plain_embed { lq_embed_args a; lq_weight w; } lq_plain_embed;
typedef struct lq_plain_norm { lq_norm_args a; lq_mat delta; lq_act act; bool more, acts; } lq_plain_norm;
typedef struct lq_plain_quant { lq_quant_args a; lq_act act; } lq_plain_quant;
typedef struct lq_plain_matmul { lq_act x; lq_weight w; const float *bias; lq_mat y; } lq_plain_matmul;
typedef struct lq_plain_rope { lq_rope_args a; lq_rows rows; } lq_plain_rope;
typedef struct lq_plain_kv { lq_kv_write_args a; lq_rows rows; } lq_plain_kv;
typedef struct lq_plain_attn {
    lq_attn_args a;
    lq_rows rows;
    float *sums; // [rows][heads][dv] where y is not f32, else NULL
} lq_plain_attn;
typedef struct lq_plain_glu { lq_glu_args a; lq_act act; bool acts; } lq_plain_glu;
typedef struct lq_plain_moe {
    lq_act x;
    const lq_weight *w;          // [experts], on the device; NULL: there is one
    const float *const *bias;    // [experts], on the device, or NULL
    lq_weight one;
    const float *one_bias;
    lq_mat y;
    const int32_t *order, *start;
    int slots, top_k, experts;
    bool x_by_slot;
} lq_plain_moe;
typedef struct lq_plain_conv { lq_conv_args a; lq_rows rows; } lq_plain_conv;
typedef struct lq_plain_scan { lq_scan_args a; lq_rows rows; } lq_plain_scan;

// name, its arguments; a kernel has a thread for each task
#define LQ_PLAIN_KERNELS(X) \
    X(embed, lq_plain_embed) X(norm, lq_plain_norm) X(quant, lq_plain_quant) X(matmul, lq_plain_matmul) \
    X(rope, lq_plain_rope) X(kv_write, lq_plain_kv) X(attn, lq_plain_attn) X(glu, lq_plain_glu) \
    X(scale, lq_scale_args) X(add, lq_add_args) X(route, lq_route_args) X(sort, lq_route_args) X(moe, lq_plain_moe) \
    X(mix, lq_mix_args) X(conv, lq_plain_conv) X(scan, lq_plain_scan) X(gather, lq_gather_args)
#define LQ_PLAIN_LAUNCH(name, args) void lq_plain_##name##_run(lq_gpu *g, const args *a, size_t tasks);
LQ_PLAIN_KERNELS(LQ_PLAIN_LAUNCH)
#undef LQ_PLAIN_LAUNCH
bool lq_plain_prepare(lq_gpu *g, lq_err *err); // loads them all

#ifdef __cplusplus
}
#endif
#endif
