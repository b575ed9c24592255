// arch_opt.c: OPT: learned positions from the third row of their table on, LayerNorms before each part or (350M) over
// the residual behind it, biases, an MLP without a gate, an embedding that may be narrower than the model. BioGPT: the
// same with an embedding that is times the root of its width.
#include "runtime/model/family.h"
#include <math.h>

#define L "model.decoder.layers.%d."
const char *const lq_names_opt[LQ_ROLES] = {
    [LQ_R_EMBED] = "model.decoder.embed_tokens", [LQ_R_POSITION] = "model.decoder.positions",
    [LQ_R_PROJECT_IN] = "model.decoder.project_in", [LQ_R_PROJECT_OUT] = "model.decoder.project_out",
    [LQ_R_NORM_OUT] = "model.decoder.final_layer_norm", [LQ_R_HEAD] = "lm_head",
    [LQ_R_NORM_0] = L "self_attn_layer_norm", [LQ_R_NORM_1] = L "final_layer_norm",
    [LQ_R_NORM_POST_0] = L "self_attn_layer_norm", [LQ_R_NORM_POST_1] = L "final_layer_norm",
    [LQ_R_Q] = L "self_attn.q_proj", [LQ_R_K] = L "self_attn.k_proj", [LQ_R_V] = L "self_attn.v_proj",
    [LQ_R_O] = L "self_attn.out_proj", [LQ_R_UP] = L "fc1", [LQ_R_DOWN] = L "fc2",
};
const char *const lq_ignores_opt[] = {"*decoder.version", NULL}; // of the program it was trained with
static const char *const table[LQ_ROLES] = {[LQ_R_POSITION] = "model.decoder.embed_positions"};

#define B "biogpt.layers.%d."
const char *const lq_names_biogpt[LQ_ROLES] = {
    [LQ_R_EMBED] = "biogpt.embed_tokens", [LQ_R_POSITION] = "biogpt.positions", [LQ_R_NORM_OUT] = "biogpt.layer_norm",
    [LQ_R_HEAD] = "output_projection", [LQ_R_NORM_0] = B "self_attn_layer_norm", [LQ_R_NORM_1] = B "final_layer_norm",
    [LQ_R_Q] = B "self_attn.q_proj", [LQ_R_K] = B "self_attn.k_proj", [LQ_R_V] = B "self_attn.v_proj",
    [LQ_R_O] = B "self_attn.out_proj", [LQ_R_UP] = B "fc1", [LQ_R_DOWN] = B "fc2",
};
static const char *const biogpt_table[LQ_ROLES] = {[LQ_R_POSITION] = "biogpt.embed_positions"};

bool lq_describe_opt(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_size_keys keys = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                      "max_position_embeddings", .ffn = "ffn_dim"};
    lq_part part[2] = {{0}}, *attn = &part[0], *mlp = &part[1];
    bool before = true, raw = false, bias = true, weights = true;
    (void)ckpt;
    d->norm = LQ_NORM_LAYER;
    d->norm_bias = d->tied = true;
    d->norm_eps = 1e-5f;
    if (!lq_config_sizes_as(c, &keys, d, attn, mlp, err) || !lq_heads_share(d, attn, err) ||
        !lq_config_bool(c, "do_layer_norm_before", &before, err) ||
        !lq_config_bool(c, "_remove_final_layer_norm", &raw, err) || !lq_config_bool(c, "enable_bias", &bias, err) ||
        !lq_config_bool(c, "layer_norm_elementwise_affine", &weights, err) ||
        !lq_config_int(c, "word_embed_proj_dim", 1, d->dim, &d->embed_dim, err))
        return false;
    mlp->act = LQ_RELU;
    if (!lq_config_act(c, "activation_function", &mlp->act, err)) return false;
    if (d->embed_dim == d->dim) d->embed_dim = 0;
    if (!before) attn->place = mlp->place = LQ_OVER;
    d->head_raw = raw || !before;
    d->norm_bare = !weights;
    d->sources = table;
    d->positions = d->ctx;
    d->position_first = 2;
    attn->rope = -1;
    attn->kv_heads = attn->heads;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = mlp->mlp_bias = bias;
    mlp->gated = false;
    lq_ends(d, 2, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}

bool lq_describe_biogpt(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0], *mlp = &part[1];
    bool scaled = true;
    (void)ckpt;
    d->norm = LQ_NORM_LAYER;
    d->norm_bias = d->tied = true;
    d->norm_eps = 1e-5f; // transformers does not ask layer_norm_eps
    d->ctx = 1024;
    if (!lq_config_sizes(c, d, attn, mlp, err) || !lq_heads_share(d, attn, err) ||
        !lq_config_bool(c, "scale_embedding", &scaled, err))
        return false;
    mlp->act = LQ_GELU;
    if (!lq_config_act(c, "hidden_act", &mlp->act, err)) return false;
    d->embed_scale = scaled ? (float)sqrt(d->dim) : 1;
    d->sources = biogpt_table;
    d->positions = d->ctx;
    d->position_first = 2;
    attn->rope = -1;
    attn->kv_heads = attn->heads;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = mlp->mlp_bias = true;
    mlp->gated = false;
    lq_ends(d, 0, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}
