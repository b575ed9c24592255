// arch_glm.c: GLM: Llama with gate and up as one tensor, and half of each head turned in pairs of neighbours. GLM-4 of
// April 2025: norms behind each part too; so the text part of GLM-4.1V and 4.6V. ChatGLM 2, 3 and GLM-4 as it
// first came: the same under names of their own, q, k and v as one tensor. Refuses ChatGLM 1.
#include "runtime/model/family.h"
#include <string.h>

const char *const lq_names_glm[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_GATE_UP] = LQ_LAYER "mlp.gate_up_proj",
    [LQ_R_NORM_POST_0] = LQ_LAYER "post_self_attn_layernorm", [LQ_R_NORM_POST_1] = LQ_LAYER "post_mlp_layernorm",
};
#define CHAT "transformer.encoder.layers.%d."
const char *const lq_names_chatglm[LQ_ROLES] = {
    [LQ_R_EMBED] = "transformer.embedding.word_embeddings", [LQ_R_HEAD] = "transformer.output_layer",
    [LQ_R_NORM_OUT] = "transformer.encoder.final_layernorm", [LQ_R_NORM_0] = CHAT "input_layernorm",
    [LQ_R_NORM_1] = CHAT "post_attention_layernorm", [LQ_R_QKV] = CHAT "self_attention.query_key_value",
    [LQ_R_Q] = CHAT "self_attention.q_proj", [LQ_R_K] = CHAT "self_attention.k_proj",
    [LQ_R_V] = CHAT "self_attention.v_proj", [LQ_R_O] = CHAT "self_attention.dense",
    [LQ_R_GATE_UP] = CHAT "mlp.dense_h_to_4h", [LQ_R_GATE] = CHAT "mlp.gate_proj", [LQ_R_UP] = CHAT "mlp.up_proj",
    [LQ_R_DOWN] = CHAT "mlp.dense_4h_to_h",
};
const char *const lq_ignores_chatglm[] = {"*rotary_pos_emb.inv_freq", NULL};

static bool describe(const cJSON *c, lq_desc *d, lq_norm_place place, lq_err *err) {
    static const int ends[] = {151329, 151336, 151338};
    lq_part part[2] = {{.kv_heads = 2, .head_dim = 128}};
    bool bias = true;
    d->norm_eps = 1.5625e-7f;
    d->ctx = 1 << 17;
    if (!lq_config_rms(c, d, part, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0.5, &d->rope[0], err))
        return false;
    d->rope[0].interleaved = true;
    d->ropes = 1;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = bias;
    part[1].gate_up = true;
    part[0].place = part[1].place = place;
    for (int i = 0; i < 3; i++)
        if (ends[i] < d->vocab) d->eos[d->eoses++] = ends[i];
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_glm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    (void)ckpt;
    return describe(c, d, LQ_PRE, err);
}

bool lq_describe_glm4(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    (void)ckpt;
    return describe(c, d, LQ_SANDWICH, err);
}

bool lq_describe_glm4v(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 2}};
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 15;
    if (!lq_config_rms(c, d, part, err) || !lq_heads_share(d, &part[0], err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 1, &d->rope[0], err))
        return false;
    d->rope[0].interleaved = true;
    d->ropes = 1;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = true;
    part[1].gate_up = true;
    part[0].place = part[1].place = LQ_SANDWICH;
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

// What no ChatGLM from the second on says otherwise.
static bool chatglm_is(const cJSON *c, const char *key, bool want, lq_err *err) {
    bool is = want;
    if (!lq_config_bool(c, key, &is, err)) return false;
    return is == want || lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s is %s", key, is ? "true" : "false");
}

bool lq_describe_chatglm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_size_keys keys = {"hidden_size", "num_layers", "num_attention_heads", "seq_length",
                                      .ffn = "ffn_hidden_size"};
    lq_part part[2] = {{0}}, *attn = &part[0];
    const char *name = lq_json_str(c, "_name_or_path");
    int groups = 0;
    bool bias = false;
    float ratio = 1;
    (void)ckpt;
    if (!cJSON_GetObjectItemCaseSensitive(c, "padded_vocab_size"))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: padded_vocab_size is missing: a ChatGLM before the second, "
                       "whose positions have two dimensions, is none that lq knows");
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-5f;
    if (!lq_config_need(c, "padded_vocab_size", 1, 1 << 24, &d->vocab, err) ||
        !lq_config_need(c, "kv_channels", 1, 4096, &attn->head_dim, err) ||
        !lq_config_need(c, "multi_query_group_num", 1, 1 << 14, &groups, err))
        return false;
    attn->kv_heads = groups;
    const int vocab = d->vocab;
    if (!lq_config_sizes_as(c, &keys, d, attn, &part[1], err) ||
        !lq_config_eps(c, "layernorm_epsilon", &d->norm_eps, err) || !lq_config_float(c, "rope_ratio", &ratio, err) ||
        !lq_config_bool(c, "add_qkv_bias", &bias, err) || !chatglm_is(c, "multi_query_attention", true, err) ||
        !chatglm_is(c, "rmsnorm", true, err) || !chatglm_is(c, "post_layer_norm", true, err) ||
        !chatglm_is(c, "add_bias_linear", false, err) ||
        !chatglm_is(c, "apply_residual_connection_post_layernorm", false, err))
        return false;
    d->vocab = vocab; // vocab_size is that of the tokenizer
    // The second's own code divides positions by it, later ones multiply the base.
    if (ratio == 0 || (ratio != 1 && name && strstr(name, "chatglm2")))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_ratio %g of %.64s", (double)ratio,
                       name ? name : "null");
    d->rope[0].theta = 1e4 * (double)ratio;
    if (!lq_rope_read(NULL, attn->head_dim, d->ctx, 0.5, &d->rope[0], err)) return false;
    d->rope[0].interleaved = true;
    d->ropes = 1;
    attn->qkv = LQ_QKV_ROWS;
    attn->q_bias = attn->k_bias = attn->v_bias = bias;
    part[1].gate_up = true;
    lq_ends(d, -1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}
