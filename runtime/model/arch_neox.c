// arch_neox.c: GPT-NeoX and Pythia: LayerNorms with biases, one query_key_value tensor by heads, an MLP without a gate
// that stands beside the attention and reads the residual through a norm of its own.
#include "runtime/model/family.h"

#define NEOX "gpt_neox.layers.%d."
const char *const lq_names_neox[LQ_ROLES] = {
    [LQ_R_EMBED] = "gpt_neox.embed_in", [LQ_R_NORM_OUT] = "gpt_neox.final_layer_norm", [LQ_R_HEAD] = "embed_out",
    [LQ_R_NORM_0] = NEOX "input_layernorm", [LQ_R_NORM_1] = NEOX "post_attention_layernorm",
    [LQ_R_QKV] = NEOX "attention.query_key_value", [LQ_R_Q] = NEOX "attention.query", [LQ_R_K] = NEOX "attention.key",
    [LQ_R_V] = NEOX "attention.value", [LQ_R_O] = NEOX "attention.dense",
    [LQ_R_UP] = NEOX "mlp.dense_h_to_4h", [LQ_R_DOWN] = NEOX "mlp.dense_4h_to_h",
};
// Masks.
const char *const lq_ignores_neox[] = {"gpt_neox.layers.*.attention.bias", "gpt_neox.layers.*.attention.masked_bias",
                                       NULL};

// As transformers 5 has it, and writes it if it is asked not to give it its old name.
static const char *const head_of_5[LQ_ROLES] = {[LQ_R_HEAD] = "lm_head"};

bool lq_describe_neox(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0], *mlp = &part[1];
    static const lq_rope_keys keys = {"rotary_emb_base", "rotary_pct", 0.25, false};
    bool parallel = true, bias = true;
    if (lq_ckpt_has_weight(ckpt, "lm_head.weight")) d->sources = head_of_5;
    d->norm = LQ_NORM_LAYER;
    d->norm_bias = true;
    d->norm_eps = 1e-5f;
    if (!lq_config_sizes(c, d, attn, mlp, err) || !lq_config_eps(c, "layer_norm_eps", &d->norm_eps, err) ||
        !lq_config_bool(c, "use_parallel_residual", &parallel, err) || !lq_config_bool(c, "attention_bias", &bias, err))
        return false;
    mlp->act = LQ_GELU;
    mlp->gated = false;
    mlp->mlp_bias = true;
    mlp->beside = mlp->own_norm = parallel;
    attn->qkv = LQ_QKV_GROUPS;
    attn->kv_heads = attn->heads;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = bias;
    if (!lq_config_act(c, "hidden_act", &mlp->act, err) ||
        !lq_rope_read_as(c, &keys, attn->head_dim, d->ctx, &d->rope[0], err))
        return false;
    d->ropes = 1;
    if (d->vocab > 2) d->bos = 0, d->eos[0] = 2, d->eoses = 1; // what transformers takes where a config is silent
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}
