// family.h: what the files of the families (arch_<family>.c) share: reading a config.json into a description, and the
// rows they give to lq_archs[]. Inside of model/ only.
//
// Every reader refuses what is of a wrong type or range in a line that names the key; an absent (or
// null) key leaves *out as it is.
#ifndef LQ_FAMILY_H
#define LQ_FAMILY_H
#include "runtime/model/arch.h"

bool lq_config_need(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err); // or an error
bool lq_config_int(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err);
bool lq_config_bool(const cJSON *c, const char *key, bool *out, lq_err *err);
bool lq_config_eps(const cJSON *c, const char *key, float *out, lq_err *err);   // between 0 and 1
bool lq_config_float(const cJSON *c, const char *key, float *out, lq_err *err); // more than 0; null: 0
bool lq_config_act(const cJSON *c, const char *key, lq_unary *out, lq_err *err);
bool lq_config_null(const cJSON *c, const char *key); // there, and null

// The sizes that every decoder has under the names of Llama: dim, layers, vocab, ctx, tied, and those of an attention
// and of an MLP (gated, silu), which are written whole. What a family takes where a config is silent stands in d->ctx
// (0: 2048), d->tied, attn->kv_heads (0, and null in the config: as many as heads), attn->head_dim (0: a share of
// hidden_size), d->vocab and attn->heads (0: refused) beforehand.
bool lq_config_sizes(const cJSON *c, lq_desc *d, lq_part *attn, lq_part *mlp, lq_err *err);
// The same under other names, which stand before those of Llama where a config has both.
typedef struct lq_size_keys {
    const char *dim, *layers, *heads, *ctx;
    const char *ffn;      // required; NULL: none
    int ffn_by;           // 0, or where it is absent: so many times the width
} lq_size_keys;
bool lq_config_sizes_as(const cJSON *c, const lq_size_keys *k, lq_desc *d, lq_part *attn, lq_part *mlp, lq_err *err);
// Those of Llama, and hidden_act and rms_norm_eps (silent: d->norm_eps; 0: 1e-6) of those with RMS norms.
bool lq_config_rms(const cJSON *c, lq_desc *d, lq_part part[2] /* attention, MLP */, lq_err *err);
// The same, and one rope for all layers (silent: d->rope[0].theta).
bool lq_config_llama(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err);
// A key that gives biases to q, k, v and o, or to none (silent: attn->q_bias).
bool lq_config_bias(const cJSON *c, const char *key, lq_part *attn, lq_err *err);
// What transformers takes for bos_token_id and eos_token_id where a config is silent; -1: none.
void lq_ends(lq_desc *d, int bos, int eos);
// Of models that have no head_dim of their own: no other than a share of the width.
bool lq_heads_share(const lq_desc *d, const lq_part *attn, lq_err *err);
// A mixture in place of an MLP: how many experts there are and are used (silent: as stands in *moe). A checkpoint may
// have gate and up of all experts as one tensor, as transformers 5 holds them: then its names are `sources`.
bool lq_config_experts(const cJSON *c, const lq_ckpt *ckpt, const char *const *sources, lq_desc *d, lq_part *moe,
                       lq_err *err);
// What a config calls the numbers of a mixture beside experts that all rows share (NULL: it has none), and what it
// takes in silence (0: refused).
typedef struct lq_mixture {
    const char *experts, *ffn, *shared, *scale, *dense;
    const char *const *fused;
    bool groups, choice;  // it has n_group and topk_group; norm_topk_prob, else shares of the chosen always make 1
    bool softmax;         // shares are of a softmax of all, in place of sigmoids with numbers for the choice alone
    bool renorm;
    int silent, used, silent_ffn, silent_shared, silent_dense;
    int silent_groups, silent_top; // 0: 1
    float silent_scale;
} lq_mixture;
// Layers of attention (part[0]), and of experts and what is shared in place of some MLPs (part[1], as it was read).
bool lq_config_mixture(const lq_ckpt *ckpt, const cJSON *c, const lq_mixture *m, lq_desc *d, lq_part part[3],
                       lq_err *err);
// All layers alike: these parts.
bool lq_layers_fill(lq_desc *d, const lq_part *part, int parts, lq_err *err);
// Of layers with a mixture as part 1 those that have an MLP instead: the first `dense`, or those that mlp_layer_types
// calls dense.
bool lq_layers_dense(const cJSON *c, lq_desc *d, const lq_part *mlp, int dense, lq_err *err);
// The windows that config.layer_types (if there is one) gives to layers instead of those they have; then layers of one
// window become groups of the KV cache. To be called last.
bool lq_layers_group(const cJSON *c, lq_desc *d, int window, lq_err *err);
// The same where without layer_types all layers from `from` on slide, or all but each `every`-th.
bool lq_layers_window(const cJSON *c, lq_desc *d, int window, int from, lq_err *err);
bool lq_layers_pattern(const cJSON *c, lq_desc *d, int window, int every, lq_err *err);
// EXAONE's: sliding_window and sliding_window_pattern; layers without a window then know no positions.
bool lq_layers_exaone(const cJSON *c, lq_desc *d, lq_err *err);
// lq_layers_pattern where those that slide turn by desc.rope[1].
bool lq_layers_ropes(const cJSON *c, lq_desc *d, int window, int every, lq_err *err);

// Refuses adapters, and weights that other programs quantized, in a line that names what they are.
bool lq_foreign_check(const lq_ckpt *c, const cJSON *config, lq_err *err);

// The root of a width by which Gemma multiplies an embedding, rounded as the model's type has it.
float lq_embed_root(const lq_ckpt *ckpt, const cJSON *c, const lq_desc *d, int dim);

#define LQ_LAYER "model.layers.%d."
#define LQ_NAMES_ENDS [LQ_R_EMBED] = "model.embed_tokens", [LQ_R_NORM_OUT] = "model.norm", [LQ_R_HEAD] = "lm_head"
#define LQ_NAMES_NORMS                                                                                                 \
    [LQ_R_NORM_0] = LQ_LAYER "input_layernorm", [LQ_R_NORM_1] = LQ_LAYER "post_attention_layernorm"
#define LQ_NAMES_ATTN                                                                                                  \
    [LQ_R_Q] = LQ_LAYER "self_attn.q_proj", [LQ_R_K] = LQ_LAYER "self_attn.k_proj",                                    \
    [LQ_R_V] = LQ_LAYER "self_attn.v_proj", [LQ_R_O] = LQ_LAYER "self_attn.o_proj",                                    \
    [LQ_R_Q_NORM] = LQ_LAYER "self_attn.q_norm", [LQ_R_K_NORM] = LQ_LAYER "self_attn.k_norm"
#define LQ_NAMES_EXPERTS                                                                                               \
    [LQ_R_ROUTER] = LQ_LAYER "mlp.gate", [LQ_R_EXPERT_GATE] = LQ_LAYER "mlp.experts.%d.gate_proj",                     \
    [LQ_R_EXPERT_UP] = LQ_LAYER "mlp.experts.%d.up_proj", [LQ_R_EXPERT_DOWN] = LQ_LAYER "mlp.experts.%d.down_proj"
#define LQ_NAMES_FUSED(block, router)                                                                                  \
    [LQ_R_ROUTER] = LQ_LAYER block router, [LQ_R_EXPERT_GATE_UP] = LQ_LAYER block "experts.gate_up_proj=",             \
    [LQ_R_EXPERT_DOWN] = LQ_LAYER block "experts.down_proj="
#define LQ_NAMES_MLP                                                                                                   \
    [LQ_R_GATE] = LQ_LAYER "mlp.gate_proj", [LQ_R_UP] = LQ_LAYER "mlp.up_proj", [LQ_R_DOWN] = LQ_LAYER "mlp.down_proj"
extern const char *const lq_names_llama[LQ_ROLES], *const lq_names_mixtral[LQ_ROLES], *const lq_names_phi3[LQ_ROLES],
    *const lq_names_neox[LQ_ROLES], *const lq_names_gemma2[LQ_ROLES], *const lq_names_olmo2[LQ_ROLES],
    *const lq_names_apertus[LQ_ROLES], *const lq_names_qwen[LQ_ROLES], *const lq_names_chatglm[LQ_ROLES],
    *const lq_ignores_chatglm[],
    *const lq_names_nanochat[LQ_ROLES],
    *const lq_names_gemma4[LQ_ROLES], *const lq_ignores_gemma4[], *const lq_names_glm[LQ_ROLES],
    *const lq_names_hunyuan[LQ_ROLES],
    *const lq_names_qwen_moe[LQ_ROLES], *const lq_names_granite_moe[LQ_ROLES], *const lq_sources_experts[LQ_ROLES],
    *const lq_names_olmoe[LQ_ROLES], *const lq_names_flex_olmo[LQ_ROLES], *const lq_names_gptoss[LQ_ROLES],
    *const lq_names_internlm2[LQ_ROLES], *const lq_names_exaone[LQ_ROLES], *const lq_names_baichuan[LQ_ROLES],
    *const lq_names_yi[LQ_ROLES], *const lq_names_dots[LQ_ROLES],
    *const lq_names_hunyuan_moe[LQ_ROLES], *const lq_ignores_glm4_moe[], *const lq_names_deepseek[LQ_ROLES],
    *const lq_names_axk1[LQ_ROLES],
    *const lq_ignores_deepseek3[], *const lq_ignores_glm4_lite[],
    *const lq_ignores_neox[];
extern const char *const lq_names_ernie_moe[LQ_ROLES], *const lq_ignores_ernie_moe[],
    *const lq_names_exaone_moe[LQ_ROLES], *const lq_names_hy3[LQ_ROLES], *const lq_names_minimax_m2[LQ_ROLES],
    *const lq_names_llama4[LQ_ROLES], *const lq_names_afmoe[LQ_ROLES], *const lq_names_cohere2_moe[LQ_ROLES],
    *const lq_names_mimo2[LQ_ROLES], *const lq_ignores_mimo2[],
    *const lq_names_ernie_vl[LQ_ROLES], *const lq_ignores_ernie_vl[],
    *const lq_ignores_glm4v_moe[], *const lq_ignores_exaone_moe[], *const lq_ignores_hy3[];
typedef bool lq_describe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err);
lq_describe lq_describe_llama, lq_describe_mistral, lq_describe_mixtral, lq_describe_qwen2, lq_describe_qwen3,
    lq_describe_phi3, lq_describe_neox, lq_describe_gemma, lq_describe_gemma2, lq_describe_gemma3,
    lq_describe_gemma4, lq_describe_vaultgemma, lq_describe_nanochat, lq_describe_internlm, lq_describe_internlm3,
    lq_describe_apertus, lq_describe_iquest,
    lq_describe_qwen, lq_describe_chatglm, lq_describe_glm4v, lq_describe_jais2,
    lq_describe_olmo2, lq_describe_olmo3, lq_describe_exaone4, lq_describe_granite, lq_describe_glm, lq_describe_glm4,
    lq_describe_smollm3, lq_describe_seed, lq_describe_ernie, lq_describe_hunyuan,
    lq_describe_qwen2_moe, lq_describe_qwen3_moe, lq_describe_granite_moe, lq_describe_granite_shared,
    lq_describe_phimoe, lq_describe_ministral3, lq_describe_hunyuan_moe, lq_describe_dots1, lq_describe_glm4_moe,
    lq_describe_internlm2, lq_describe_exaone, lq_describe_baichuan, lq_describe_minicpm, lq_describe_yi,
    lq_describe_text, lq_describe_arcee, lq_describe_helium, lq_describe_cwm, lq_describe_qwen3_vl,
    lq_describe_qwen3_vl_moe, lq_describe_qwen2_vl, lq_describe_olmoe, lq_describe_flex_olmo,
    lq_describe_gptoss;
lq_describe lq_describe_ernie_moe, lq_describe_glm4v_moe, lq_describe_solar, lq_describe_exaone_moe, lq_describe_hy3,
    lq_describe_minimax_m2, lq_describe_granite_hybrid, lq_describe_llama4, lq_describe_afmoe;
lq_describe lq_describe_deepseek, lq_describe_deepseek2, lq_describe_deepseek3, lq_describe_glm4_lite,
    lq_describe_youtu, lq_describe_minicpm3, lq_describe_cohere2_moe, lq_describe_mimo2,
    lq_describe_ernie_vl, lq_describe_axk1, lq_describe_mistral4;

// Decoders with LayerNorms.
extern const char *const lq_names_gpt2[LQ_ROLES], *const lq_ignores_gpt[], *const lq_names_gptj[LQ_ROLES],
    *const lq_names_phi[LQ_ROLES], *const lq_names_stablelm[LQ_ROLES], *const lq_names_starcoder2[LQ_ROLES],
    *const lq_names_falcon[LQ_ROLES], *const lq_names_mpt[LQ_ROLES], *const lq_names_bigcode[LQ_ROLES],
    *const lq_names_neo[LQ_ROLES], *const lq_names_opt[LQ_ROLES], *const lq_names_codegen[LQ_ROLES],
    *const lq_names_persimmon[LQ_ROLES], *const lq_ignores_opt[],
    *const lq_names_biogpt[LQ_ROLES];
lq_describe lq_describe_gpt2, lq_describe_gptj, lq_describe_phi, lq_describe_stablelm, lq_describe_starcoder2,
    lq_describe_nemotron, lq_describe_olmo, lq_describe_falcon, lq_describe_bloom, lq_describe_mpt, lq_describe_cohere,
    lq_describe_cohere2, lq_describe_bigcode, lq_describe_neo, lq_describe_opt, lq_describe_codegen,
    lq_describe_persimmon, lq_describe_biogpt, lq_describe_orion;
#endif
