// arch.h: model architectures as descriptions. lq_archs[] is one of the four tables of lq: a row turns a config.json
// into an lq_desc; one forward (forward.c) reads it, and quant/ asks it which weights there are, where a checkpoint has
// their numbers, and what stands before each of them.
#ifndef LQ_ARCH_H
#define LQ_ARCH_H
#include "formats/ckpt.h"
#include "formats/json.h"
#include "kernels/ops.h"

// Layers of one window share the block tables of the KV cache; so many windows a model may have.
enum { LQ_KV_GROUPS = 4 };

// Positions: the scaling is resolved to frequencies when a model is bound (`--ctx` fixes what depends on length). NONE:
// nothing turns, but q may grow with the position.
typedef enum lq_rope_kind { LQ_ROPE_NONE, LQ_ROPE_DEFAULT, LQ_ROPE_LINEAR, LQ_ROPE_DYNAMIC, LQ_ROPE_YARN,
                           LQ_ROPE_LLAMA3, LQ_ROPE_LONG, LQ_ROPE_SHARE } lq_rope_kind;
enum { LQ_ROPES = 4, LQ_ROPE_DIM = 512, LQ_CTX_MAX = 1 << 24 };
typedef struct lq_rope {
    lq_rope_kind kind;
    int dim;              // rotated part of a head, at most LQ_ROPE_DIM
    bool interleaved;
    bool backward;        // by angles below 0
    double theta, factor, low_factor, high_factor, beta_fast, beta_slow;
    double share;         // SHARE: of the pairs, the others stand still
    double attn_factor;   // of cos and sin; 0: what the kind says
    bool truncate;        // YARN: borders of the ramp are rounded outward
    int original_ctx;
    double q_beta;        // q is also times 1 + q_beta * ln(1 + floor((position + q_ahead) / original_ctx)); 0: not
    int q_ahead;
    double short_mscale, long_mscale; // LONG, instead of attn_factor; 0: that
    float short_factor[LQ_ROPE_DIM / 2], long_factor[LQ_ROPE_DIM / 2]; // LONG
} lq_rope;
// inv_freq[dim / 2] at context length ctx, and the factor of cos and sin.
void lq_rope_resolve(const lq_rope *r, int ctx, float *inv_freq, float *mscale);
// ALiBi's slope of each head, in BF16 if coarse.
void lq_alibi_slopes(int heads, bool coarse, float *out /* [heads] */);
// Reads rope_theta and rope_scaling (transformers 4) or rope_parameters (5) of a config into *out, which it writes
// whole. Where the config is silent: `partial` of a head is rotated (0: always all of it), and the base is the theta
// that stands in *out (0: 10000). An original_ctx that stands there is that of every scaling, unless the config has it
// beside the scaling.
typedef struct lq_rope_keys {
    const char *theta, *share; // what stands beside the scaling
    double partial;
    bool inside;          // original_max_position_embeddings counts inside of the scaling alone
} lq_rope_keys;
bool lq_rope_read_as(const cJSON *config, const lq_rope_keys *keys, int head_dim, int ctx, lq_rope *out, lq_err *err);
bool lq_rope_read(const cJSON *config, int head_dim, int ctx, double partial, lq_rope *out, lq_err *err);
// The same of models whose layers with a window turn otherwise: rope_parameters has an object for each kind of layer;
// rope_theta and rope_scaling are of those without a window. A dim that stands in one is that of its layers' heads.
bool lq_rope_read_kinds(const cJSON *config, int head_dim, int ctx, lq_rope *full, lq_rope *sliding, lq_err *err);

// --- layers ---
//
// A layer is a list of parts; each reads the residual (through a norm) and adds to it. A kind of part is one row of
// lq_parts[] and one file (part.h): its weights, its scratch, its run.
typedef enum lq_part_kind { LQ_P_ATTN, LQ_P_MLA, LQ_P_MLP, LQ_P_MOE, LQ_P_TOKEN, LQ_PART_KINDS } lq_part_kind;
// Where a part's norm stands: before what it reads, behind what it adds, or both; or over the residual and what it has
// added, which is the residual from there on; or behind the sum of a part and those that it stands beside.
typedef enum lq_norm_place { LQ_PRE = 1, LQ_POST = 2, LQ_SANDWICH = 3, LQ_OVER = 4, LQ_SUM = 8 } lq_norm_place;
// How a checkpoint has q, k and v: a tensor each; one of all q rows, then k, then v; one of groups of [q heads][k][v];
// one of four times [a quarter of q][of v][of k]; or q and k, and v is what k is before its norm.
typedef enum lq_qkv_form {
    LQ_QKV_APART, LQ_QKV_ROWS, LQ_QKV_GROUPS, LQ_QKV_QUARTERS, LQ_QKV_TWO
} lq_qkv_form;

// A norm of q and k, of the description's kind: of each head, all with one weight or each with its
// own; or of all heads together; or of each head, without weights.
typedef enum lq_qk_norm { LQ_QK_PLAIN, LQ_QK_HEAD, LQ_QK_HEADS, LQ_QK_WHOLE, LQ_QK_BARE } lq_qk_norm;

typedef struct lq_part {
    lq_part_kind kind;
    lq_norm_place place;
    bool beside;          // reads what the part before it read and adds to the same sum (a parallel residual)
    bool own_norm;        // beside: through a norm of its own; else the same x
    float scale;          // of what it adds, to the residual or, beside, to the sum; 0: 1
    // attention
    int heads, kv_heads, head_dim, v_dim;
    int rope;             // index into desc.rope; -1: none
    int window, chunk;    // 0: all
    float attn_scale, attn_softcap;
    lq_qkv_form qkv;
    lq_qk_norm qk_norm;
    bool qk_norm_late;    // behind the rope
    bool v_norm;          // each head of v is normed too, without weights
    float v_scale;        // of v; 0: 1
    bool q_bias, k_bias, v_bias, o_bias, qk_norm_bias;
    bool alibi;           // scores fall with the distance, by slopes that follow from the number of heads
    bool alibi_coarse;    // in BF16's steps
    float clip;           // q, k and v are held to -clip..clip, behind their norms; 0: not
    bool attn_gate;       // what it mixed is times the sigmoid of a product of x, number by number
    bool sinks;           // the softmax of each head has one more score, which sees nothing
    // Latent attention: the latent of v_dim that all heads share, and the part of K that is rotated behind it, are
    // head_dim together and all that the cache keeps. A head's q is `nope` numbers, which its own matrix turns into
    // v_dim, then those that are rotated; another one turns the latents it has mixed into v_out.
    int q_rank;           // of q's latent; 0: q comes of x
    int nope, v_out;
    int nope_rope;        // index into desc.rope of one that makes those `nope` grow with the position; 0: none
    float latent_eps;     // of the norms of latents
    bool latent_bias;     // what makes latents has biases
    // MLP, each expert of a mixture, and what a layer is told of the token
    int ffn;
    bool gated, mlp_bias;
    bool gate_up;         // a checkpoint has gate and up (of all experts) as one tensor, gate's rows first
    bool shared;          // an MLP beside a mixture: all rows go through it, its roles are those of the shared expert
    bool shared_score;    // what it says of a row is times the sigmoid of a score of the row
    lq_unary act;
    float act_alpha, act_clamp, up_add; // as in lq_glu_args
    bool router_bias, expert_bias;
    bool expert_across;   // a checkpoint has the matrices of experts as [k][n]
    bool expert_turns;    // and gate and up as one, whose rows take turns
    int experts, experts_used;
    lq_route_kind route;
    bool route_renorm;
    bool route_bias;      // a number for each expert, for the choice alone
    int route_bias_of;    // its tensor is [route_bias_of][experts], of which the first row counts; 0: [experts]
    bool router_across;   // a checkpoint has the router as [k][n]
    int route_groups, route_top_groups; // only experts of the best groups are chosen from; 0: of all
    float route_scale, route_jitter;
    bool weigh_input;     // an expert's share is a factor of what it reads, and not of what it says
} lq_part;

enum { LQ_LAYER_PARTS = 3 };
typedef struct lq_layer {
    int parts;
    lq_part part[LQ_LAYER_PARTS];
    int group;            // of the layers with this window: they share block tables
    int kv_from;          // layer whose K and V are used, no later than this; its own index: this one's
} lq_layer;
const lq_part *lq_layer_attn(const lq_layer *l); // its attention; NULL: it has none

typedef struct lq_arch lq_arch;
typedef struct lq_sizes { int dim, layers, heads, ffn, vocab; } lq_sizes;
typedef struct lq_desc {
    const lq_arch *arch;
    const char *const *names; // the row's, or others of its family that this checkpoint has
    // [LQ_ROLES] What other people's files call what lies in them otherwise than in ours, which has it under `names`;
    // NULL, or a role without one: the same name.
    const char *const *sources;
    bool across;          // there the layers' matrices are [k][n]
    int bare;             // so many letters of all names, a prefix, are missing there
    // Of a text part: what stands there in place of "model.", and before names that begin otherwise; NULL: of no other.
    const char *body, *outer;
    const lq_sizes *silent; // what a text part's config takes that says less than the others; NULL: it must say all
    int dim, vocab, layers, ctx;
    int embed_dim;        // of the embedding and of what the head reads, with matrices to dim and back; 0: dim
    lq_norm_kind norm;
    float norm_eps;
    bool norm_plus_one;   // norms multiply by 1 + weight: a factor f of what follows makes a weight of (1 + w) f - 1
    bool norm_bias;
    bool head_raw;        // the head reads the residual as it is, through no norm
    bool norm_bare;       // norms have no weights at all
    bool embed_norm;      // a norm stands between the embedding and the first layer
    int token_dim;        // numbers that each layer is told of the token (LQ_P_TOKEN); 0: none is
    int token_vocab;      // rows of the table that has them for all layers
    float token_scale;    // which is times this
    bool kv_scaled;       // the checkpoint brings scales for a cache in fp8
    bool layer_scaled;    // behind each layer the residual is times a number
    int ctx_most;         // no context is longer, as lq does not compute what follows; 0: any
    int positions;        // learned ones, one more row of a table for each: no context is longer. 0: none
    int position_first;   // row of position 0 in other people's files
    bool head_bias;
    bool head_unit;       // rows of the head have length 1 before they are multiplied with
    bool tied;
    float embed_scale, logit_scale, logit_softcap; // 0: off
    lq_rope rope[LQ_ROPES];
    int ropes;
    lq_layer *layer;      // [layers], owned
    int guesses;          // layers behind the last, which guess further tokens: no forward reads them
    int groups, group_window[LQ_KV_GROUPS];
    int32_t bos;          // -1: none
    int32_t eos[16];
    int eoses;
} lq_desc;

struct lq_arch {
    const char *name;     // config.json's architectures[0]
    // [LQ_ROLES] patterns of tensor names without ".weight", or whole with a "=" behind them: the first %d is the
    // layer. A second one is the expert; the stack of all experts, as lq's own files have it, bears the name without
    // it. What the pattern of a role lacks has no tensor.
    const char *const *names;
    bool (*describe)(const lq_ckpt *c, const cJSON *config, lq_desc *d, lq_err *err);
    const char *const *ignores; // patterns (* is any text) of tensors that no forward reads; NULL ends, NULL: none.
    // Behind a + they are of another part of the model than its text, and carried along.
};
static inline int lq_desc_wide(const lq_desc *d) { return d->embed_dim ? d->embed_dim : d->dim; } // what the head reads
extern const lq_arch lq_archs[];
extern const size_t lq_arch_count;

// Reads config.json and generation_config.json of a checkpoint.
bool lq_desc_read(lq_ckpt *c, lq_desc *out, lq_err *err);
// The same with another config.json than the checkpoint's.
bool lq_desc_read_as(lq_ckpt *c, const lq_bytes *config, lq_desc *out, lq_err *err);
void lq_desc_free(lq_desc *d);

// --- the weights a description needs ---

typedef enum lq_role {
    // of the model
    LQ_R_EMBED, LQ_R_PROJECT_IN, LQ_R_POSITION, LQ_R_TOKENS, LQ_R_TOKENS_IN, LQ_R_NORM_TOKENS, LQ_R_NORM_EMBED,
    LQ_R_NORM_OUT, LQ_R_PROJECT_OUT, LQ_R_HEAD,
    // of a layer: the norm before and behind each of its parts
    LQ_R_NORM_0, LQ_R_NORM_1, LQ_R_NORM_2, LQ_R_NORM_POST_0, LQ_R_NORM_POST_1, LQ_R_NORM_POST_2,
    LQ_R_Q, LQ_R_K, LQ_R_V, LQ_R_O, LQ_R_Q_NORM, LQ_R_K_NORM, LQ_R_ATTN_GATE, LQ_R_SINKS,
    LQ_R_KV_SCALE, // [kv_heads][K, V], of a cache in fp8: under lq's own name in every architecture
    LQ_R_Q_A, LQ_R_Q_A_NORM, LQ_R_Q_B, LQ_R_KV_A, LQ_R_KV_A_NORM, LQ_R_K_B, LQ_R_V_B,
    LQ_R_GATE, LQ_R_UP, LQ_R_DOWN,
    LQ_R_ROUTER, LQ_R_ROUTE_BIAS, LQ_R_EXPERT_GATE, LQ_R_EXPERT_UP, LQ_R_EXPERT_DOWN,
    LQ_R_SHARED_GATE, LQ_R_SHARED_UP, LQ_R_SHARED_DOWN, LQ_R_SHARED_SCORE,
    LQ_R_TOKEN_GATE, LQ_R_TOKEN_OUT, LQ_R_LAYER_SCALE,
    LQ_R_XIELU_ABOVE, LQ_R_XIELU_BELOW, LQ_R_XIELU_BETA, LQ_R_XIELU_LEAST,
    // tensors of other people's files that several slots are parts of: names only, no slot has these roles
    LQ_R_QKV, LQ_R_KV_B, LQ_R_GATE_UP, LQ_R_EXPERT_GATE_UP, LQ_R_SHARED_GATE_UP, LQ_R_EXPERT_GATE_UP_BIAS,
    LQ_R_EXPERT_DOWN_BIAS,
    LQ_ROLES
} lq_role;

// What matrices of a layer read together, and what stands before it: where a factor of its columns can go.
typedef enum lq_before {
    LQ_B_NONE, // the residual itself, a nonlinearity, a state: nowhere
    LQ_B_NORM, // gamma and beta of role `by`
    LQ_B_ROWS, // row j of matrix `by` makes column j: up -> down
    LQ_B_V     // the same of V, but a KV head's rows serve its whole group of query heads: v -> o
} lq_before;
enum { LQ_INPUTS = 8 };
typedef struct lq_input {
    lq_before before;
    lq_role by;
    int count;            // experts: each reads its own rows of x; 0: all rows
    int64_t k;
} lq_input;
// The inputs of a layer (-1: of the model, for its head) in the order in which they are computed. Returns how many.
int lq_desc_inputs(const lq_desc *d, int layer, lq_input *out /* [LQ_INPUTS] */);

typedef struct lq_slot {
    char name[128];       // as lq's own files have it, "model.layers.3.mlp.up_proj.weight": always one slot, one weight
    lq_pick from;         // where other people's files have it, if no tensor has `name`; "%d": the index in a stack
    lq_role role;
    int input;            // index into lq_desc_inputs of the layer; -1: none
    int layer;            // -1: of the model
    int count;            // matrices or vectors of one shape that stand side by side (experts); 0: alone
    int64_t n, k;         // k = 0: a vector of n
    bool flat;            // [n][k] is one vector of n * k, row behind row
    int64_t at, of;       // a vector that is part of one of `of`, from `at` on; of 0: it is whole
    bool bias;            // the vector that is added to this role's output
    bool adds;            // what it makes is a part's output, which the residual takes; of such a bias too
    bool quantizable;     // a matrix that methods may quantize
} lq_slot;
// The slots of one layer (0..layers-1) or of the model itself (-1): the only list of what a model is made of.
// Allocated (free); NULL: no memory.
lq_slot *lq_desc_slots(const lq_desc *d, int layer, int *count);
// The name that other people's files have for a matrix of the model itself.
// False: they have none, or it would be too long.
bool lq_desc_source(const lq_desc *d, lq_role role, char *out, size_t size);
// Where matrix `at` of a stack stands in other people's files: `from` with its index put in.
// False: its name would be too long.
bool lq_slot_pick(const lq_slot *s, int at, lq_pick *out);

// All names that may stand in a checkpoint of this model, sorted once; both must live as long.
typedef struct lq_names lq_names;
bool lq_names_open(const lq_desc *d, const lq_ckpt *c, lq_names **out, lq_err *err);
void lq_names_close(lq_names *n);
typedef enum lq_known { LQ_STRANGE, LQ_KNOWN, LQ_HARMLESS /* no forward reads it */,
                       LQ_OTHER /* of another part of the model */ } lq_known;
// What a tensor of the checkpoint is: a slot, a source of slots or a part of such a weight; one that exporters write,
// or that lq was asked to keep (metadata lq.kept, a JSON array of names); one beside a text part; or a stranger.
lq_known lq_names_find(const lq_names *n, const char *tensor);
bool lq_names_kept(const lq_names *n, const char *tensor); // whether it is one of lq.kept
#endif
