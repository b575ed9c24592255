// arch.h: model architectures as descriptions. lq_archs[] is one of the four tables of lq: a row turns a config.json into an
// lq_desc; one forward (model.c) reads it, and quant/ asks it which matrices there are and which share an input.
#ifndef LQ_ARCH_H
#define LQ_ARCH_H
#include "formats/ckpt.h"
#include "formats/json.h"
#include "kernels/ops.h"

enum { LQ_KV_GROUPS = 4 }; // layers of one window share the block tables of the KV cache; so many windows a model may have

typedef enum lq_mixer { LQ_MIX_ATTN, LQ_MIX_MLA, LQ_MIX_SSM, LQ_MIX_DELTA } lq_mixer;
typedef enum lq_norm_place { LQ_PRE = 1, LQ_POST = 2, LQ_SANDWICH = 3 } lq_norm_place;

// Positions: the scaling is resolved to frequencies when a model is bound (`--ctx` fixes what depends on length).
typedef enum lq_rope_kind { LQ_ROPE_NONE, LQ_ROPE_DEFAULT, LQ_ROPE_LINEAR, LQ_ROPE_DYNAMIC, LQ_ROPE_YARN, LQ_ROPE_LLAMA3, LQ_ROPE_LONG } lq_rope_kind;
enum { LQ_ROPES = 4, LQ_ROPE_DIM = 512, LQ_CTX_MAX = 1 << 24 };
typedef struct lq_rope {
    lq_rope_kind kind;
    int dim;              // rotated part of a head, at most LQ_ROPE_DIM
    bool interleaved;
    double theta, factor, low_factor, high_factor, beta_fast, beta_slow;
    double attn_factor;   // of cos and sin; 0: what the kind says
    bool truncate;        // YARN: borders of the ramp are rounded outward
    int original_ctx;
    float short_factor[LQ_ROPE_DIM / 2], long_factor[LQ_ROPE_DIM / 2]; // LONG
} lq_rope;
// inv_freq[dim / 2] at context length ctx, and the factor of cos and sin.
void lq_rope_resolve(const lq_rope *r, int ctx, float *inv_freq, float *mscale);
// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5) of a config.
bool lq_rope_read(const cJSON *config, int head_dim, int ctx, lq_rope *out, lq_err *err);

typedef struct lq_layer {
    lq_mixer mixer;
    lq_norm_place place;
    int heads, kv_heads, head_dim, v_dim;
    int rope;             // index into desc.rope; -1: none
    int window, chunk;    // 0: all
    int group;            // of the layers with this window: they share block tables
    int kv_from;          // layer whose K and V are used, no later than this; its own index: this one's
    bool q_bias, k_bias, v_bias, o_bias, mlp_bias, qk_norm, sinks;
    float attn_scale, attn_softcap;
    int ffn;              // width of the MLP, or of one expert
    bool gated;
    lq_unary act;
    int experts, experts_used, shared_ffn;
    lq_route_kind route;
    bool route_renorm;
    float route_scale;
    int q_lora, kv_lora, rope_dim, nope_dim;   // MLA
    int state_heads, state_k, state_v, conv;   // SSM, DELTA
    float residual_scale; // 0: 1
} lq_layer;

typedef struct lq_arch lq_arch;
typedef struct lq_desc {
    const lq_arch *arch;
    int dim, vocab, layers, ctx;
    lq_norm_kind norm;
    float norm_eps;
    bool norm_plus_one, norm_bias;
    bool tied;
    float embed_scale, logit_scale, logit_softcap; // 0: off
    lq_rope rope[LQ_ROPES];
    int ropes;
    lq_layer *layer;      // [layers], owned
    int groups, group_window[LQ_KV_GROUPS];
    int32_t bos;          // -1: none
    int32_t eos[16];
    int eoses;
} lq_desc;

struct lq_arch {
    const char *name;     // config.json's architectures[0]
    const char *const *names; // [LQ_ROLES] patterns of tensor names without ".weight"; %d is the layer, then the expert
    bool (*describe)(const cJSON *config, lq_desc *d, lq_err *err);
};
extern const lq_arch lq_archs[];
extern const size_t lq_arch_count;

// Reads config.json and generation_config.json of a checkpoint.
bool lq_desc_read(lq_ckpt *c, lq_desc *out, lq_err *err);
void lq_desc_free(lq_desc *d);

// --- the weights a description needs ---

typedef enum lq_role {
    LQ_R_EMBED, LQ_R_NORM_OUT, LQ_R_HEAD,                      // of the model
    LQ_R_NORM_MIX, LQ_R_NORM_MLP, LQ_R_NORM_MIX_POST, LQ_R_NORM_MLP_POST,
    LQ_R_Q, LQ_R_K, LQ_R_V, LQ_R_O, LQ_R_Q_NORM, LQ_R_K_NORM, LQ_R_SINKS,
    LQ_R_GATE, LQ_R_UP, LQ_R_DOWN,
    LQ_R_ROUTER, LQ_R_ROUTER_BIAS, LQ_R_SHARED_GATE, LQ_R_SHARED_UP, LQ_R_SHARED_DOWN,
    LQ_ROLES
} lq_role;

// Matrices of one layer with equal `set` read the same input; norm: the vector that is applied right before it, -1: none.
typedef enum lq_set { LQ_SET_NONE, LQ_SET_QKV, LQ_SET_O, LQ_SET_GATE_UP, LQ_SET_DOWN, LQ_SET_HEAD } lq_set;

typedef struct lq_slot {
    char name[96];        // of the tensor, "model.layers.3.mlp.up_proj.weight"
    lq_role role;
    lq_set set;
    int layer;            // -1: of the model
    int expert;           // -1: none
    int64_t n, k;         // k = 0: a vector of n
    bool bias;            // the vector that is added to this role's output
    bool quantizable;     // a matrix that methods may quantize
} lq_slot;
// The slots of one layer (0..layers-1) or of the model itself (-1): the only list of what a model is made of.
// Allocated (free); NULL: no memory.
lq_slot *lq_desc_slots(const lq_desc *d, int layer, int *count);
// Whether a tensor of this name is (a part of) one of the slots, or one that exporters write and no forward reads.
bool lq_desc_knows(const lq_desc *d, const char *name);
#endif
