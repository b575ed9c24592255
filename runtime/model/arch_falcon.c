// arch_falcon.c: decoders whose files have one query_key_value: Falcon (by groups of heads; attention and MLP side by
// side, behind one norm or two, or one after the other; rope or ALiBi), BLOOM (by heads; ALiBi, a norm behind the
// embedding), MPT (all q, then k, then v; ALiBi, no biases).
#include "runtime/model/family.h"
#include <string.h>

#define H "transformer.h.%d."
#define ATTN [LQ_R_Q] = H "self_attention.query", [LQ_R_K] = H "self_attention.key", \
    [LQ_R_V] = H "self_attention.value", [LQ_R_O] = H "self_attention.dense", \
    [LQ_R_QKV] = H "self_attention.query_key_value"
#define ENDS [LQ_R_EMBED] = "transformer.word_embeddings", [LQ_R_NORM_OUT] = "transformer.ln_f", [LQ_R_HEAD] = "lm_head"
#define MLP [LQ_R_UP] = H "mlp.dense_h_to_4h", [LQ_R_DOWN] = H "mlp.dense_4h_to_h"
const char *const lq_names_falcon[LQ_ROLES] = {
    ENDS, ATTN, MLP, [LQ_R_NORM_0] = H "input_layernorm", [LQ_R_NORM_1] = H "post_attention_layernorm",
    [LQ_R_NORM_EMBED] = "transformer.word_embeddings_layernorm", // BLOOM's
};
static const char *const two_norms[LQ_ROLES] = {
    ENDS, ATTN, MLP, [LQ_R_NORM_0] = H "ln_attn", [LQ_R_NORM_1] = H "ln_mlp",
};

#define B "transformer.blocks.%d."
const char *const lq_names_mpt[LQ_ROLES] = {
    [LQ_R_EMBED] = "transformer.wte", [LQ_R_NORM_OUT] = "transformer.norm_f", [LQ_R_HEAD] = "lm_head",
    [LQ_R_NORM_0] = B "norm_1", [LQ_R_NORM_1] = B "norm_2", [LQ_R_QKV] = B "attn.Wqkv", [LQ_R_Q] = B "attn.Wq",
    [LQ_R_K] = B "attn.Wk", [LQ_R_V] = B "attn.Wv", [LQ_R_O] = B "attn.out_proj", [LQ_R_UP] = B "ffn.up_proj",
    [LQ_R_DOWN] = B "ffn.down_proj",
};

// What all of them say in the same words. A gelu, biases nowhere.
static bool read(const cJSON *c, const lq_size_keys *keys, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm = LQ_NORM_LAYER;
    d->norm_eps = 1e-5f;
    d->tied = true;
    if (!lq_config_sizes_as(c, keys, d, &part[0], &part[1], err) || !lq_heads_share(d, &part[0], err) ||
        !lq_config_eps(c, "layer_norm_epsilon", &d->norm_eps, err))
        return false;
    part[0].kv_heads = part[0].heads;
    part[0].rope = -1;
    part[1].gated = false;
    part[1].act = LQ_GELU;
    return true;
}

static void biases(lq_part part[2], bool bias) {
    lq_part *a = &part[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = part[1].mlp_bias = bias;
}

static bool fill(lq_desc *d, const lq_part part[2], lq_err *err) {
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}

// n_embed stands before hidden_size, as transformers has it.
static const char *width_key(const cJSON *c) {
    return cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "n_embed")) ? "n_embed" : "hidden_size";
}

// Who stands beside whom, and behind which norm. null is no, as transformers takes it; what it cannot run is refused.
static bool falcon_layout(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    lq_part *attn = &part[0], *mlp = &part[1];
    bool grouped = false, single = !lq_config_null(c, "multi_query"), beside = !lq_config_null(c, "parallel_attn");
    int norms = 0, kv_heads = attn->heads;
    if (!lq_config_bool(c, "new_decoder_architecture", &grouped, err) ||
        !lq_config_bool(c, "multi_query", &single, err) || !lq_config_bool(c, "parallel_attn", &beside, err) ||
        !lq_config_int(c, "num_ln_in_parallel_attn", 1, 2, &norms, err) ||
        !lq_config_int(c, "num_kv_heads", 1, 1 << 14, &kv_heads, err))
        return false;
    if (grouped && !beside)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: parallel_attn is false in a new_decoder_architecture");
    if (!grouped && beside && norms == 2)
        return lq_fail(err, LQ_E_UNSUPPORTED,
                       "config.json: num_ln_in_parallel_attn 2 without a new_decoder_architecture");
    if (attn->heads % kv_heads)
        return lq_fail(err, LQ_E_FORMAT, "config.json: num_attention_heads %d is not a multiple of num_kv_heads %d",
                       attn->heads, kv_heads);
    attn->qkv = LQ_QKV_GROUPS;
    attn->kv_heads = grouped ? kv_heads : single ? 1 : attn->heads;
    mlp->beside = beside;
    mlp->own_norm = grouped && norms != 1;
    if (mlp->own_norm) d->names = two_norms;
    return true;
}

bool lq_describe_falcon(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    const lq_size_keys keys = {width_key(c), "num_hidden_layers", "num_attention_heads", "max_position_embeddings",
                               "ffn_hidden_size", 4};
    lq_part part[2] = {{0}}, *attn = &part[0];
    bool bias = false, alibi = false;
    (void)ckpt;
    if (!read(c, &keys, d, part, err) || !falcon_layout(c, d, part, err) || !lq_config_bool(c, "bias", &bias, err) ||
        !lq_config_bool(c, "alibi", &alibi, err) || !lq_config_act(c, "activation", &part[1].act, err))
        return false;
    d->norm_bias = true;
    biases(part, bias);
    attn->alibi = attn->alibi_coarse = alibi;
    if (!alibi) {
        if (!lq_rope_read(c, attn->head_dim, d->ctx, 0, &d->rope[0], err)) return false;
        d->ropes = 1;
        attn->rope = 0;
    }
    lq_ends(d, 11, 11);
    return fill(d, part, err);
}

// Distances have no end: seq_length, which transformers does not read, is what the model was trained with.
bool lq_describe_bloom(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    const lq_size_keys keys = {width_key(c), "n_layer", "n_head", "seq_length", NULL, 4};
    lq_part part[2] = {{0}};
    bool normed = false, sliced = false;
    int slices = 1;
    (void)ckpt;
    if (!read(c, &keys, d, part, err) || !lq_config_bool(c, "slow_but_exact", &sliced, err) ||
        !lq_config_int(c, "pretraining_tp", 1, 1 << 20, &slices, err) ||
        !lq_config_bool(c, "apply_residual_connection_post_layernorm", &normed, err))
        return false;
    if (sliced && slices > 1) // transformers then leaves biases out
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: slow_but_exact is true with pretraining_tp %d", slices);
    if (normed)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: apply_residual_connection_post_layernorm is true");
    d->norm_bias = d->embed_norm = true;
    biases(part, true);
    part[0].qkv = LQ_QKV_GROUPS;
    part[0].alibi = true;
    part[1].act = LQ_GELU_TANH;
    lq_ends(d, 1, 2);
    return fill(d, part, err);
}

// What a config may ask for and transformers does not compute, though other programs did: refused, unless it is `want`.
static bool only(const cJSON *o, const char *key, bool want, lq_err *err) {
    bool v = want;
    if (!lq_config_bool(o, key, &v, err)) return false;
    return v == want || lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s is %s", key, v ? "true" : "false");
}

static bool only_word(const cJSON *o, const char *key, const char *want, const char *or, lq_err *err) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!v || cJSON_IsNull(v)) return true;
    if (!cJSON_IsString(v)) return lq_fail(err, LQ_E_FORMAT, "config.json: %s is not a string", key);
    return !strcmp(v->valuestring, want) || !strcmp(v->valuestring, or) ||
           lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s is \"%s\", expected %s", key, v->valuestring, want);
}

static bool mpt_attention(const cJSON *a, lq_part *attn, lq_err *err) {
    static const char *const type = "multihead_attention";
    int most = 8;
    if (a && !cJSON_IsNull(a) && !cJSON_IsObject(a))
        return lq_fail(err, LQ_E_FORMAT, "config.json: attn_config is not an object");
    return lq_config_float(a, "clip_qkv", &attn->clip, err) &&
           lq_config_float(a, "softmax_scale", &attn->attn_scale, err) && only(a, "alibi", true, err) &&
           only(a, "qk_ln", false, err) && only(a, "prefix_lm", false, err) &&
           lq_config_int(a, "alibi_bias_max", 8, 8, &most, err) && only_word(a, "attn_type", type, type, err);
}

bool lq_describe_mpt(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_size_keys keys = {"d_model", "n_layers", "n_heads", "max_seq_len", NULL, 4};
    lq_part part[2] = {{0}}, *attn = &part[0];
    int ratio = 4;
    (void)ckpt;
    if (!read(c, &keys, d, part, err)) return false;
    const float scale = attn->attn_scale;
    if (!mpt_attention(cJSON_GetObjectItemCaseSensitive(c, "attn_config"), attn, err) ||
        !only(c, "no_bias", true, err) || !lq_config_int(c, "expansion_ratio", 4, 4, &ratio, err) ||
        !only_word(c, "norm_type", "low_precision_layernorm", "layernorm", err))
        return false;
    if (attn->attn_scale == 0) attn->attn_scale = scale; // null
    const cJSON *logit = cJSON_GetObjectItemCaseSensitive(c, "logit_scale");
    if (logit && !cJSON_IsNull(logit)) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: logit_scale is not null");
    attn->qkv = LQ_QKV_ROWS;
    attn->alibi = true;
    return fill(d, part, err);
}
