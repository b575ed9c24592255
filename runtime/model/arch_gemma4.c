// arch_gemma4.c: Gemma 4: Gemma 3's layers with norms that multiply by their weights; layers without a window have
// heads of another size, of which v may be k; the last layers use K and V of the last one of their kind before them;
// behind each layer the residual is times a number, and before that it may be told of the token once more.
// Refuses its mixtures, and attention in both directions.
#include "runtime/model/family.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const lq_names_gemma4[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_MLP,
    [LQ_R_NORM_0] = LQ_LAYER "input_layernorm", [LQ_R_NORM_POST_0] = LQ_LAYER "post_attention_layernorm",
    [LQ_R_NORM_1] = LQ_LAYER "pre_feedforward_layernorm", [LQ_R_NORM_POST_1] = LQ_LAYER "post_feedforward_layernorm",
    [LQ_R_NORM_POST_2] = LQ_LAYER "post_per_layer_input_norm", [LQ_R_TOKENS] = "model.embed_tokens_per_layer",
    [LQ_R_TOKENS_IN] = "model.per_layer_model_projection", [LQ_R_NORM_TOKENS] = "model.per_layer_projection_norm",
    [LQ_R_TOKEN_GATE] = LQ_LAYER "per_layer_input_gate", [LQ_R_TOKEN_OUT] = LQ_LAYER "per_layer_projection",
    [LQ_R_LAYER_SCALE] = LQ_LAYER "layer_scalar=",
};
// Layers that use others' K and V may have their own in a checkpoint.
const char *const lq_ignores_gemma4[] = {
    "model.layers.*.self_attn.k_*", "model.layers.*.self_attn.v_*",
    "model.language_model.layers.*.self_attn.k_*", "model.language_model.layers.*.self_attn.v_*", NULL,
};

// That of 12 B, with another name for its eyes and ears.
static bool unified(const lq_desc *d) { return !strncmp(d->arch->name, "Gemma4Unified", 13); }

static bool sizes(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[3], lq_err *err) {
    static const lq_sizes silent = {2304, 30, 8, 9216, 262144};
    const char *both = lq_json_str(c, "use_bidirectional_attention"); // "vision": of images alone
    bool experts = false;
    d->silent = &silent;
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-6f;
    d->tied = true;
    d->ctx = unified(d) ? 1 << 18 : 1 << 17;
    if (!lq_config_sizes(c, d, &part[0], &part[1], err) || !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err) ||
        !lq_config_bias(c, "attention_bias", &part[0], err) || !lq_config_bool(c, "enable_moe_block", &experts, err) ||
        !lq_config_act(c, "hidden_activation", &part[1].act, err) ||
        !lq_config_float(c, "final_logit_softcapping", &d->logit_softcap, err))
        return false;
    if (experts) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: enable_moe_block is true");
    if (both && strcmp(both, "vision") != 0)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: use_bidirectional_attention is \"%.32s\"", both);
    if (!lq_json_str(c, "hidden_activation")) part[1].act = LQ_GELU_TANH;
    d->embed_scale = lq_embed_root(ckpt, c, d, d->dim);
    part[0].place = part[1].place = LQ_SANDWICH;
    part[0].qk_norm = LQ_QK_HEAD;
    part[0].v_norm = true;
    part[0].attn_scale = 1;
    lq_ends(d, 2, 1);
    return true;
}

// Heads of a layer that differ from the others': of an object of per_layer_config, or of keys for all without a window.
static bool heads_of(const cJSON *c, const char *dim, const char *kv, lq_part *attn, lq_err *err) {
    if (!lq_config_int(c, dim, 1, 4096, &attn->head_dim, err) ||
        !lq_config_int(c, kv, 1, 1 << 14, &attn->kv_heads, err))
        return false;
    attn->v_dim = attn->head_dim;
    if (attn->heads % attn->kv_heads)
        return lq_fail(err, LQ_E_FORMAT, "config.json: num_attention_heads %d is not a multiple of %s %d", attn->heads,
                       kv, attn->kv_heads);
    return (int64_t)attn->heads * attn->head_dim <= 1 << 22 ||
           lq_fail(err, LQ_E_FORMAT, "config.json: %d heads of %d, expected no more than %d in all", attn->heads,
                   attn->head_dim, 1 << 22);
}

static bool heads_of_layers(const cJSON *c, lq_desc *d, bool two, lq_err *err) {
    const cJSON *each = cJSON_GetObjectItemCaseSensitive(c, "per_layer_config"), *v, *key;
    if (each && !cJSON_IsObject(each)) return lq_fail(err, LQ_E_FORMAT, "config.json: per_layer_config is no object");
    for (int i = 0; i < d->layers; i++) {
        lq_part *attn = &d->layer[i].part[0];
        if (attn->window) continue;
        attn->qkv = two ? LQ_QKV_TWO : LQ_QKV_APART;
        if (each) continue;
        attn->head_dim = 512;
        if (!heads_of(c, "global_head_dim", two ? "num_global_key_value_heads" : "", attn, err)) return false;
    }
    cJSON_ArrayForEach(v, each) {
        char *end;
        const long at = strtol(v->string, &end, 10);
        if (end == v->string || *end || at < 0 || at >= d->layers || !cJSON_IsObject(v))
            return lq_fail(err, LQ_E_FORMAT, "config.json: per_layer_config has \"%.32s\", expected an object for each of "
                           "some of %d layers", v->string, d->layers);
        cJSON_ArrayForEach(key, v)
            if (strcmp(key->string, "head_dim") != 0 && strcmp(key->string, "num_key_value_heads") != 0)
                return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: per_layer_config gives layer %ld a \"%.32s\"", at,
                               key->string);
        if (!heads_of(v, "head_dim", "num_key_value_heads", &d->layer[at].part[0], err)) return false;
    }
    return true;
}

// The last `shared` layers use K and V of the last one before them with the same window.
static bool share_kv(lq_desc *d, int shared, bool wider, lq_err *err) {
    const int first = d->layers - shared;
    for (int i = first; i < d->layers; i++) {
        const lq_part *a = &d->layer[i].part[0];
        int from = first - 1;
        while (from >= 0 && d->layer[from].part[0].window != a->window) from--;
        const lq_part *b = from < 0 ? NULL : &d->layer[from].part[0];
        if (!b)
            return lq_fail(err, LQ_E_FORMAT, "config.json: layer %d uses K and V of one of its kind, but none of the "
                           "first %d is", i, first);
        if (a->head_dim != b->head_dim || a->kv_heads != b->kv_heads)
            return lq_fail(err, LQ_E_FORMAT, "config.json: layer %d uses K and V of layer %d, whose heads are others", i,
                           from);
        d->layer[i].kv_from = from;
        if (wider) d->layer[i].part[1].ffn *= 2;
    }
    return true;
}

static bool ropes(const cJSON *c, lq_desc *d, lq_err *err) {
    const bool silent = !cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(c, "rope_parameters"));
    int dim[2] = {0};
    for (int i = 0; i < d->layers; i++) {
        lq_part *a = &d->layer[i].part[0];
        a->rope = a->window > 0;
        if (dim[a->rope] && dim[a->rope] != a->head_dim)
            return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: head_dim is another number in layer %d", i);
        dim[a->rope] = a->head_dim;
    }
    d->rope[0].dim = dim[0], d->rope[1].dim = dim[1];
    if (!lq_rope_read_kinds(c, dim[0], d->ctx, &d->rope[0], &d->rope[1], err)) return false;
    if (silent) d->rope[0].kind = LQ_ROPE_SHARE, d->rope[0].share = 0.25, d->rope[0].theta = 1e6;
    d->ropes = 2;
    return true;
}

// What each layer is told of the token.
static bool told(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[3], int *parts, lq_err *err) {
    int dim = unified(d) ? 0 : 256;
    d->token_vocab = 262144;
    if (!lq_config_int(c, "hidden_size_per_layer_input", 0, 1 << 14, &dim, err) ||
        !lq_config_int(c, "vocab_size_per_layer_input", 1, 1 << 24, &d->token_vocab, err))
        return false;
    if (lq_config_null(c, "hidden_size_per_layer_input")) dim = 0;
    if (!dim) return true;
    if (d->token_vocab < d->vocab)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: vocab_size_per_layer_input %d, but vocab_size %d",
                       d->token_vocab, d->vocab);
    if ((int64_t)dim * d->layers > 1 << 22)
        return lq_fail(err, LQ_E_FORMAT, "config.json: hidden_size_per_layer_input %d for %d layers, expected no more "
                       "than %d in all", dim, d->layers, 1 << 22);
    d->token_dim = dim;
    d->token_scale = lq_embed_root(ckpt, c, d, dim);
    part[2] = (lq_part){.kind = LQ_P_TOKEN, .place = LQ_POST, .ffn = dim, .act = part[1].act};
    *parts = 3;
    return true;
}

bool lq_describe_gemma4(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[3] = {{.kv_heads = 4, .head_dim = 256}};
    int window = unified(d) ? 1024 : 512, shared = 0, parts = 2;
    bool two = false, wider = false;
    if (!sizes(ckpt, c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_bool(c, "attention_k_eq_v", &two, err) || !lq_config_bool(c, "use_double_wide_mlp", &wider, err) ||
        !lq_config_int(c, "num_kv_shared_layers", 0, d->layers - 1, &shared, err) ||
        !told(ckpt, c, d, part, &parts, err) || !lq_layers_fill(d, part, parts, err) ||
        !lq_layers_pattern(c, d, window, 6, err))
        return false;
    d->layer_scaled = true;
    d->layer[d->layers - 1].part[0].window = 0; // whatever a config says
    return heads_of_layers(c, d, two, err) && share_kv(d, shared, wider, err) && ropes(c, d, err) &&
           lq_layers_group(NULL, d, window, err);
}
