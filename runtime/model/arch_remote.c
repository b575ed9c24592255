// arch_remote.c: decoders in Llama's shape whose code came with their checkpoints, under names of their own: InternLM 1
// (biases), 2 (q, k and v by groups) and 3, IQuest-Coder, Qwen 1 (q, k and v as one; no further than seq_length),
// EXAONE 3, Baichuan 1 (q, k and v as one; rope, or ALiBi in that of 13 B), MiniCPM (factors as Granite's, from other
// numbers), Yi's first form, XVERSE, Aquila. Baichuan 2: rows of the head are made 1 long.
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

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
#define QW "transformer.h.%d."
const char *const lq_names_qwen[LQ_ROLES] = {
    [LQ_R_EMBED] = "transformer.wte", [LQ_R_NORM_OUT] = "transformer.ln_f", [LQ_R_HEAD] = "lm_head",
    [LQ_R_NORM_0] = QW "ln_1", [LQ_R_NORM_1] = QW "ln_2", [LQ_R_QKV] = QW "attn.c_attn", [LQ_R_Q] = QW "attn.q_proj",
    [LQ_R_K] = QW "attn.k_proj", [LQ_R_V] = QW "attn.v_proj", [LQ_R_O] = QW "attn.c_proj",
    [LQ_R_GATE] = QW "mlp.w2", [LQ_R_UP] = QW "mlp.w1", [LQ_R_DOWN] = QW "mlp.c_proj",
};

static bool plain(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_internlm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    const cJSON *rotary = cJSON_GetObjectItemCaseSensitive(c, "rotary");
    const char *type = lq_json_str(rotary, "type");
    lq_part part[2] = {{0}};
    lq_rope *r = &d->rope[0];
    (void)ckpt;
    if (!lq_config_llama(c, d, part, err)) return false;
    part[0].q_bias = true; // what its own class takes
    if (!lq_config_bias(c, "bias", &part[0], err) ||
        !lq_json_num(rotary, "base", &r->theta, "config.json: rotary", err) ||
        !lq_json_num(rotary, "scaling_factor", &r->factor, "config.json: rotary", err))
        return false;
    if (!(r->theta > 1 && r->theta < 1e30) || !(r->factor > 0 && r->factor < 1e9))
        return lq_fail(err, LQ_E_FORMAT, "config.json: rotary has base %g and scaling_factor %g", r->theta, r->factor);
    if (type && strcmp(type, "origin") != 0 && strcmp(type, "dynamic") != 0)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: unknown rotary.type \"%.32s\"", type);
    if (r->kind == LQ_ROPE_DEFAULT && !(type && !strcmp(type, "origin"))) r->kind = LQ_ROPE_DYNAMIC;
    return plain(c, d, part, err);
}

bool lq_describe_internlm3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 2, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}}, *attn = &part[0];
    bool qkv = false, bias = false;
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 15;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bool(c, "attention_bias", &qkv, err) ||
        !lq_config_bool(c, "qkv_bias", &qkv, err) || !lq_config_bool(c, "mlp_bias", &bias, err) ||
        !lq_config_bool(c, "bias", &bias, err))
        return false;
    attn->q_bias = attn->k_bias = attn->v_bias = qkv;
    attn->o_bias = part[1].mlp_bias = bias;
    return plain(c, d, part, err);
}

bool lq_describe_iquest(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    float clip = 0;
    bool slides = false;
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) || !lq_config_float(c, "clip_qkv", &clip, err) ||
        !lq_config_bool(c, "use_sliding_window", &slides, err))
        return false;
    if (clip != 0 || slides)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s of an IQuest-Coder",
                       slides ? "use_sliding_window is true" : "clip_qkv");
    return plain(c, d, part, err);
}

bool lq_describe_qwen(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.head_dim = 128}}, *attn = &part[0], *mlp = &part[1];
    bool bare = true, logn = true, ntk = true;
    (void)ckpt;
    d->ctx = 8192;
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-6f;
    if (!lq_config_int(c, "kv_channels", 1, 4096, &attn->head_dim, err) ||
        !lq_config_sizes(c, d, attn, mlp, err) || !lq_config_eps(c, "layer_norm_epsilon", &d->norm_eps, err) ||
        !lq_config_bool(c, "no_bias", &bare, err) || !lq_config_bool(c, "use_logn_attn", &logn, err) ||
        !lq_config_bool(c, "use_dynamic_ntk", &ntk, err) ||
        !lq_config_int(c, "seq_length", 1, LQ_CTX_MAX, &d->ctx, err) ||
        !lq_rope_read_as(c, &(lq_rope_keys){"rotary_emb_base", "rotary_pct", 1, false}, attn->head_dim, d->ctx,
                         &d->rope[0], err))
        return false;
    if (!bare) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: no_bias is false");
    if (attn->kv_heads != attn->heads || mlp->ffn < 2)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: num_key_value_heads %d and intermediate_size %d of a Qwen with "
                       "%d heads", attn->kv_heads, mlp->ffn, attn->heads);
    d->ropes = 1;
    if (logn || ntk) d->ctx_most = d->ctx; // behind it both change what stands before it
    mlp->ffn /= 2; // of gate and up together
    attn->q_bias = attn->k_bias = attn->v_bias = true;
    attn->qkv = LQ_QKV_ROWS;
    lq_ends(d, -1, 151643);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
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
    // Of the second alone; some say no more than how many words it has.
    d->head_unit = cJSON_GetObjectItemCaseSensitive(c, "z_loss_weight") || d->vocab == 125696;
    if (d->head_unit && d->tied)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: tie_word_embeddings is true in a Baichuan 2");
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
