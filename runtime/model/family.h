// family.h: what the files of the families (arch_<family>.c) share: reading a config.json into a description, and the
// rows they give to lq_archs[]. Inside of model/ only.
//
// Every reader refuses what is of a wrong type or range in a line that names the key; an absent (or null) key leaves
// *out as it is.
#ifndef LQ_FAMILY_H
#define LQ_FAMILY_H
#include "runtime/model/arch.h"

// absent: an error
bool lq_config_need(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err);
bool lq_config_int(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err);
bool lq_config_bool(const cJSON *c, const char *key, bool *out, lq_err *err);
bool lq_config_eps(const cJSON *c, const char *key, float *out, lq_err *err);     // between 0 and 1
bool lq_config_act(const cJSON *c, const char *key, lq_unary *out, lq_err *err);
bool lq_config_null(const cJSON *c, const char *key); // there, and null

// The sizes that every decoder has under the names of Llama: dim, layers, vocab, ctx, tied, and those of an attention
// and of an MLP (gated, silu), which are written whole. What a family takes where a config is silent stands in d->ctx
// (0: 2048), d->tied, attn->kv_heads (0, and null in the config: as many as heads) and attn->head_dim (0: a share of
// hidden_size) beforehand.
bool lq_config_sizes(const cJSON *c, lq_desc *d, lq_part *attn, lq_part *mlp, lq_err *err);
// All layers alike: these parts.
bool lq_layers_fill(lq_desc *d, const lq_part *part, int parts, lq_err *err);
// The window of each layer whose entry in config.layer_types (if there is one) or `sliding` says so; then layers of one
// window become groups of the KV cache. To be called last.
bool lq_layers_window(const cJSON *c, lq_desc *d, int window,
                      int from /* first layer that slides without layer_types */, lq_err *err);

#define LQ_LAYER "model.layers.%d."
extern const char *const lq_names_llama[LQ_ROLES], *const lq_names_mixtral[LQ_ROLES], *const lq_names_phi3[LQ_ROLES],
    *const lq_names_neox[LQ_ROLES], *const lq_ignores_neox[];
typedef bool lq_describe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err);
lq_describe lq_describe_llama, lq_describe_mistral, lq_describe_mixtral, lq_describe_qwen2, lq_describe_phi3,
    lq_describe_neox, lq_describe_gemma;
#endif
