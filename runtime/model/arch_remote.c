// arch_remote.c: decoders in Llama's shape whose code came with their checkpoints, under names of their own: InternLM 2
// (q, k and v by groups), EXAONE 3, Baichuan 1 (q, k and v as one; rope, or ALiBi in that of 13 B), MiniCPM (factors as
// Granite's, from other numbers), Yi's first form, XVERSE, Aquila. Refuses Baichuan 2, whose head has rows of length 1.
#include "runtime/model/family.h"
#include <math.h>

#define L2 LQ_LAYER "attention."
#define FF LQ_LAYER "feed_forward."
const char *const lq_names_internlm2[LQ_ROLES] = {
    [LQ_R_EMBED] = "model.tok_embeddings", [LQ_R_NORM_OUT] = "model.norm", [LQ_R_HEAD] = "output",
    [LQ_R_NORM_0] = LQ_LAYER "attention_norm", [LQ_R_NORM_1] = LQ_LAYER "ffn_norm", [LQ_R_QKV] = L2 "wqkv",
    [LQ_R_Q] = L2 "wq", [LQ_R_K] = L2 "wk", [LQ_R_V] = L2 "wv", [LQ_R_O] = L2 "wo",
    [LQ_R_GATE] = FF "w1", [LQ_R_UP] = FF "w3", [LQ_R_DOWN] = FF "w2",
};
#define H "transformer.h.%d."
#define HA H "attn.attention."
const char *const lq_names_exaone[LQ_ROLES] = {
    [LQ_R_EMBED] = "transformer.wte", [LQ_R_NORM_OUT] = "transformer.ln_f", [LQ_R_HEAD] = "lm_head",
    [LQ_R_NORM_0] = H "ln_1", [LQ_R_NORM_1] = H "ln_2", [LQ_R_Q] = HA "q_proj", [LQ_R_K] = HA "k_proj",
    [LQ_R_V] = HA "v_proj", [LQ_R_O] = HA "out_proj",
    [LQ_R_GATE] = H "mlp.c_fc_0", [LQ_R_UP] = H "mlp.c_fc_1", [LQ_R_DOWN] = H "mlp.c_proj",
};
const char *const lq_names_baichuan[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_QKV] = LQ_LAYER "self_attn.W_pack",
};
const char *const lq_names_yi[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_NORM_0] = LQ_LAYER "ln1", [LQ_R_NORM_1] = LQ_LAYER "ln2",
};

static bool plain(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_internlm2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    if (!lq_config_llama(c, d, part, err)) return false;
    part[0].q_bias = true; // what its own class takes
    if (!lq_config_bias(c, "bias", &part[0], err)) return false;
    part[0].qkv = LQ_QKV_GROUPS;
    return plain(c, d, part, err);
}

bool lq_describe_exaone(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_size_keys keys = {"hidden_size", "num_layers", "num_attention_heads", "max_position_embeddings",
                                      .ffn = "intermediate_size", 4};
    lq_part part[2] = {{0}};
    (void)ckpt;
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-5f;
    d->tied = true;
    if (!lq_config_sizes_as(c, &keys, d, &part[0], &part[1], err) ||
        !lq_config_act(c, "activation_function", &part[1].act, err) ||
        !lq_config_eps(c, "layer_norm_epsilon", &d->norm_eps, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err))
        return false;
    d->ropes = 1;
    lq_ends(d, 0, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_baichuan(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_size_keys keys = {"hidden_size", "num_hidden_layers", "num_attention_heads", "model_max_length",
                                      .ffn = "intermediate_size"};
    lq_part part[2] = {{0}};
    const bool alibi = !cJSON_GetObjectItemCaseSensitive(c, "max_position_embeddings") &&
                       cJSON_GetObjectItemCaseSensitive(c, "model_max_length");
    (void)ckpt;
    if (cJSON_GetObjectItemCaseSensitive(c, "z_loss_weight"))
        return lq_fail(err, LQ_E_UNSUPPORTED,
                       "config.json: z_loss_weight is of Baichuan 2, whose head has rows of length 1: lq has none such");
    d->ctx = 4096;
    if (!alibi && !lq_config_llama(c, d, part, err)) return false;
    if (alibi) {
        d->norm = LQ_NORM_RMS;
        d->norm_eps = 1e-6f;
        if (!lq_config_sizes_as(c, &keys, d, &part[0], &part[1], err) ||
            !lq_config_act(c, "hidden_act", &part[1].act, err) || !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err))
            return false;
        part[0].alibi = true;
        part[0].rope = -1;
    }
    if (part[0].kv_heads != part[0].heads)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: num_key_value_heads %d of a Baichuan with %d heads",
                       part[0].kv_heads, part[0].heads);
    part[0].qkv = LQ_QKV_ROWS;
    return plain(c, d, part, err);
}

bool lq_describe_minicpm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    float base = 1, depth = 1;
    int experts = 0;
    (void)ckpt;
    d->tied = true;
    d->embed_scale = 1;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_float(c, "scale_emb", &d->embed_scale, err) || !lq_config_float(c, "dim_model_base", &base, err) ||
        !lq_config_float(c, "scale_depth", &depth, err) || !lq_config_int(c, "num_experts", 0, 1 << 16, &experts, err))
        return false;
    if (d->embed_scale == 0 || base == 0 || depth == 0)
        return lq_fail(err, LQ_E_FORMAT, "config.json: scale_emb, dim_model_base or scale_depth is null");
    if (experts) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: num_experts is %d in a MiniCPM", experts);
    part[0].scale = part[1].scale = (float)(depth / sqrt(d->layers));
    d->logit_scale = base / (float)d->dim;
    return plain(c, d, part, err);
}

bool lq_describe_yi(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 4}};
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 4096;
    d->rope[0].theta = 5e6;
    return lq_config_llama(c, d, part, err) && plain(c, d, part, err);
}
