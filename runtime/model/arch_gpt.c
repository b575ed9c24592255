// arch_gpt.c: GPT-2: learned positions, LayerNorms with biases, matrices that its files keep as [in][out] (Conv1D), one
// for q, k and v, an MLP without a gate, a head that is the embedding. GPT-BigCode: the same as [out][in], one K and V
// for all heads. GPT-Neo: windows in some layers, scores as they are. GPT-J: neighbours rotated in pairs, an MLP beside
// the attention that reads what that reads, a head with a bias. CodeGen: the same with one matrix for q, k and v.
#include "runtime/model/family.h"
#include <string.h>

#define H "transformer.h.%d."
#define ENDS                                                                                                           \
    [LQ_R_EMBED] = "transformer.wte", [LQ_R_POSITION] = "transformer.wpe", [LQ_R_NORM_OUT] = "transformer.ln_f",       \
    [LQ_R_HEAD] = "lm_head", [LQ_R_NORM_0] = H "ln_1", [LQ_R_NORM_1] = H "ln_2"
const char *const lq_names_gpt2[LQ_ROLES] = {
    ENDS, [LQ_R_Q] = H "attn.q_proj", [LQ_R_K] = H "attn.k_proj", [LQ_R_V] = H "attn.v_proj",
    [LQ_R_O] = H "attn.o_proj", [LQ_R_UP] = H "mlp.up_proj", [LQ_R_DOWN] = H "mlp.down_proj",
    [LQ_R_QKV] = H "attn.c_attn",
};
static const char *const conv1d[LQ_ROLES] = {
    [LQ_R_O] = H "attn.c_proj", [LQ_R_UP] = H "mlp.c_fc", [LQ_R_DOWN] = H "mlp.c_proj",
};
const char *const lq_names_bigcode[LQ_ROLES] = {
    ENDS, [LQ_R_Q] = H "attn.q_proj", [LQ_R_K] = H "attn.k_proj", [LQ_R_V] = H "attn.v_proj",
    [LQ_R_O] = H "attn.c_proj", [LQ_R_UP] = H "mlp.c_fc", [LQ_R_DOWN] = H "mlp.c_proj", [LQ_R_QKV] = H "attn.c_attn",
};
const char *const lq_names_neo[LQ_ROLES] = {
    ENDS, [LQ_R_Q] = H "attn.attention.q_proj", [LQ_R_K] = H "attn.attention.k_proj",
    [LQ_R_V] = H "attn.attention.v_proj", [LQ_R_O] = H "attn.attention.out_proj", [LQ_R_UP] = H "mlp.c_fc",
    [LQ_R_DOWN] = H "mlp.c_proj",
};
const char *const lq_names_gptj[LQ_ROLES] = {
    ENDS, [LQ_R_Q] = H "attn.q_proj", [LQ_R_K] = H "attn.k_proj", [LQ_R_V] = H "attn.v_proj",
    [LQ_R_O] = H "attn.out_proj", [LQ_R_UP] = H "mlp.fc_in", [LQ_R_DOWN] = H "mlp.fc_out",
};
const char *const lq_names_codegen[LQ_ROLES] = {
    ENDS, [LQ_R_Q] = H "attn.q_proj", [LQ_R_K] = H "attn.k_proj", [LQ_R_V] = H "attn.v_proj",
    [LQ_R_O] = H "attn.out_proj", [LQ_R_UP] = H "mlp.fc_in", [LQ_R_DOWN] = H "mlp.fc_out",
    [LQ_R_QKV] = H "attn.qkv_proj",
};
// masks
const char *const lq_ignores_gpt[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", "*h.*.attn.attention.bias",
                                      "*h.*.attn.attention.masked_bias", "*h.*.attn.causal_mask", NULL};

static const lq_size_keys keys_gpt2 = {"n_embd", "n_layer", "n_head", "n_positions", "n_inner", 4};

// What all of them say in the same words.
static bool read(const cJSON *c, const lq_size_keys *keys, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm = LQ_NORM_LAYER;
    d->norm_bias = true;
    d->norm_eps = 1e-5f;
    if (!lq_config_sizes_as(c, keys, d, &part[0], &part[1], err) || !lq_heads_share(d, &part[0], err) ||
        !lq_config_eps(c, "layer_norm_epsilon", &d->norm_eps, err))
        return false;
    part[0].rope = -1;
    part[0].kv_heads = part[0].heads;
    part[1].act = LQ_GELU_TANH;
    part[1].gated = false;
    part[1].mlp_bias = true;
    return lq_config_act(c, "activation_function", &part[1].act, err);
}

bool lq_describe_gpt2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0];
    bool scaled = true, by_layer = false;
    (void)ckpt;
    d->ctx = 1024;
    d->tied = true;
    if (!read(c, &keys_gpt2, d, part, err) || !lq_config_bool(c, "scale_attn_weights", &scaled, err) ||
        !lq_config_bool(c, "scale_attn_by_inverse_layer_idx", &by_layer, err))
        return false;
    attn->qkv = LQ_QKV_ROWS;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = true;
    if (!scaled) attn->attn_scale = 1;
    d->sources = conv1d;
    d->across = true;
    d->positions = d->ctx;
    lq_ends(d, 50256, 50256);
    if (!lq_layers_fill(d, part, 2, err)) return false;
    for (int i = 0; by_layer && i < d->layers; i++) d->layer[i].part[0].attn_scale /= (float)(i + 1);
    return lq_layers_window(NULL, d, 0, 0, err);
}

bool lq_describe_bigcode(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0];
    bool scaled = true, single = true;
    (void)ckpt;
    d->ctx = 1024;
    d->tied = true;
    if (!read(c, &keys_gpt2, d, part, err) || !lq_config_bool(c, "scale_attn_weights", &scaled, err) ||
        !lq_config_bool(c, "multi_query", &single, err))
        return false;
    attn->qkv = LQ_QKV_GROUPS;
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = true;
    if (single) attn->kv_heads = 1;
    if (!scaled) attn->attn_scale = 1;
    d->positions = d->ctx;
    lq_ends(d, 50256, 50256);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}

// attention_types: a list of [[kinds of layers that repeat], times].
static bool neo_kinds(const cJSON *types, lq_desc *d, int window, lq_err *err) {
    static const char *const what = "config.json: attention_types";
    const cJSON *item, *kind;
    int layers = 0;
    cJSON_ArrayForEach(item, types) {
        const cJSON *times = cJSON_GetArrayItem(item, 1);
        for (int t = 0; cJSON_IsNumber(times) && t < times->valuedouble && t <= d->layers; t++)
            cJSON_ArrayForEach(kind, cJSON_GetArrayItem(item, 0)) {
                const char *word = cJSON_IsString(kind) ? kind->valuestring : "";
                if (strcmp(word, "local") != 0 && strcmp(word, "global") != 0)
                    return lq_fail(err, LQ_E_UNSUPPORTED, "%s has \"%s\", expected global or local", what, word);
                if (layers == d->layers)
                    return lq_fail(err, LQ_E_FORMAT, "%s is of more layers than the %d there are", what, layers);
                d->layer[layers++].part[0].window = *word == 'l' ? window : 0;
            }
    }
    return layers == d->layers ||
           lq_fail(err, LQ_E_FORMAT, "%s is of %d layers, there are %d", what, layers, d->layers);
}

bool lq_describe_neo(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_size_keys keys = {"hidden_size", "num_layers", "num_heads", "max_position_embeddings",
                                      "intermediate_size", 4};
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(c, "attention_types");
    lq_part part[2] = {{0}}, *attn = &part[0];
    int window = 256;
    (void)ckpt;
    d->tied = true;
    if (!read(c, &keys, d, part, err) || !lq_config_int(c, "window_size", 1, LQ_CTX_MAX, &window, err)) return false;
    attn->o_bias = true;
    attn->attn_scale = 1;
    d->positions = d->ctx;
    lq_ends(d, 50256, 50256);
    if (!lq_layers_fill(d, part, 2, err)) return false;
    if (types && !cJSON_IsNull(types)) return neo_kinds(types, d, window, err) && lq_layers_group(NULL, d, 0, err);
    if (d->layers != 24) // as many as its silence means
        return lq_fail(err, LQ_E_FORMAT, "config.json: attention_types is missing for %d layers", d->layers);
    for (int i = 1; i < d->layers; i += 2) d->layer[i].part[0].window = window;
    return lq_layers_group(NULL, d, 0, err);
}

static bool describe_gptj(const cJSON *c, lq_qkv_form qkv, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}}, *attn = &part[0];
    int rotated = 64;
    if (!read(c, &keys_gpt2, d, part, err) || !lq_config_int(c, "rotary_dim", 2, LQ_ROPE_DIM, &rotated, err))
        return false;
    if (lq_config_null(c, "rotary_dim") || rotated % 2 || rotated > attn->head_dim)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rotary_dim is not an even number up to a head's %d",
                       attn->head_dim);
    d->rope[0] = (lq_rope){.kind = LQ_ROPE_DEFAULT, .dim = rotated, .interleaved = true, .theta = 10000, .factor = 1,
                           .original_ctx = d->ctx};
    d->ropes = 1;
    d->head_bias = true;
    attn->qkv = qkv;
    attn->rope = 0;
    part[1].beside = true;
    lq_ends(d, 50256, 50256);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(NULL, d, 0, 0, err);
}

bool lq_describe_gptj(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    (void)ckpt;
    return describe_gptj(c, LQ_QKV_APART, d, err);
}

bool lq_describe_codegen(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    (void)ckpt;
    if (!describe_gptj(c, LQ_QKV_QUARTERS, d, err)) return false;
    const int heads = d->layer[0].part[0].heads;
    return heads % 4 == 0 || lq_fail(err, LQ_E_UNSUPPORTED, "config.json: n_head %d is not a multiple of 4", heads);
}
