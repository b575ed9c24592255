// arch_llama.c: Llama and those in its shape: an RMS norm before each of attention and a gated MLP. Mistral (windows;
// Ministral 3: scores that grow with the position), Mixtral (a mixture in place of the MLP), Arcee (no gate), Apertus
// (xIELU in its place, by numbers of each layer), NanoChat (norms without weights, positions turn backward), Helium
// (pairs of neighbours turn), CWM (windows in three of four layers), SmolLM3 (no positions in some layers), Seed-OSS,
// Hunyuan (norms of q and k behind the rope; with a mixture beside an MLP that all rows share).
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

const char *const lq_names_llama[LQ_ROLES] = {LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP};
#define HUNYUAN_ATTN                                                                                                   \
    [LQ_R_Q] = LQ_LAYER "self_attn.q_proj", [LQ_R_K] = LQ_LAYER "self_attn.k_proj",                                    \
    [LQ_R_V] = LQ_LAYER "self_attn.v_proj", [LQ_R_O] = LQ_LAYER "self_attn.o_proj",                                    \
    [LQ_R_Q_NORM] = LQ_LAYER "self_attn.query_layernorm", [LQ_R_K_NORM] = LQ_LAYER "self_attn.key_layernorm"
const char *const lq_names_hunyuan[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_MLP, HUNYUAN_ATTN,
};
#define XIELU LQ_LAYER "mlp.act_fn."
const char *const lq_names_apertus[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_MLP,
    [LQ_R_NORM_0] = LQ_LAYER "attention_layernorm", [LQ_R_NORM_1] = LQ_LAYER "feedforward_layernorm",
    [LQ_R_XIELU_ABOVE] = XIELU "alpha_p=", [LQ_R_XIELU_BELOW] = XIELU "alpha_n=", [LQ_R_XIELU_BETA] = XIELU "beta=",
    [LQ_R_XIELU_LEAST] = XIELU "eps=",
};
const char *const lq_names_nanochat[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, [LQ_R_UP] = LQ_LAYER "mlp.fc1", [LQ_R_DOWN] = LQ_LAYER "mlp.fc2",
};
#define SHARED LQ_LAYER "mlp.shared_mlp."
const char *const lq_names_hunyuan_moe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, HUNYUAN_ATTN, [LQ_R_ROUTER] = LQ_LAYER "mlp.gate.wg",
    [LQ_R_EXPERT_GATE] = LQ_LAYER "mlp.experts.%d.gate_proj", [LQ_R_EXPERT_UP] = LQ_LAYER "mlp.experts.%d.up_proj",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "mlp.experts.%d.down_proj",
    [LQ_R_SHARED_GATE] = SHARED "gate_proj", [LQ_R_SHARED_UP] = SHARED "up_proj",
    [LQ_R_SHARED_DOWN] = SHARED "down_proj",
};
const char *const lq_names_mixtral[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN,
    [LQ_R_ROUTER] = LQ_LAYER "block_sparse_moe.gate",
    [LQ_R_EXPERT_GATE] = LQ_LAYER "block_sparse_moe.experts.%d.w1",
    [LQ_R_EXPERT_UP] = LQ_LAYER "block_sparse_moe.experts.%d.w3",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "block_sparse_moe.experts.%d.w2",
};

const char *const lq_sources_experts[LQ_ROLES] = {LQ_NAMES_FUSED("mlp.", "gate")};

bool lq_describe_llama(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "rope_interleaved")))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_interleaved is true");
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    if (d->vocab > 2) lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_mistral(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096;
    (void)ckpt;
    d->ctx = 1 << 17;
    if (!lq_config_llama(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

// What a config has that says nothing of ropes.
static const lq_rope ministral3_rope = {
    .kind = LQ_ROPE_YARN, .theta = 1e6, .factor = 16, .beta_fast = 32, .beta_slow = 1, .attn_factor = 1,
    .truncate = true, .original_ctx = 16384, .q_beta = 0.1,
};

bool lq_describe_ministral3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    if (!cJSON_IsObject(rope)) rope = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    int window = 0;
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 18;
    if (!lq_config_llama(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    lq_rope *r = &d->rope[0];
    if (!cJSON_IsObject(rope)) *r = ministral3_rope, r->dim = part[0].head_dim;
    else if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(rope, "llama_4_scaling_beta")))
        return lq_fail(err, LQ_E_FORMAT, "config.json: llama_4_scaling_beta is missing beside the rope's type");
    else if (!lq_json_num(rope, "llama_4_scaling_beta", &r->q_beta, "config.json", err)) return false;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

bool lq_describe_arcee(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 4096;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    part[1].gated = false;
    if (!lq_json_str(c, "hidden_act")) part[1].act = LQ_RELU2;
    lq_ends(d, 128000, 128001);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_helium(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 20, .head_dim = 128}};
    bool bias = false;
    (void)ckpt;
    d->norm_eps = 1e-8f;
    d->ctx = 4096;
    d->rope[0].theta = 100000;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) || !lq_heads_share(d, &part[0], err))
        return false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = bias;
    d->rope[0].interleaved = true;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_nanochat(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    d->norm_bare = d->embed_norm = true;
    d->logit_softcap = 15;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_float(c, "final_logit_softcapping", &d->logit_softcap, err))
        return false;
    d->rope[0].backward = true;
    part[0].qk_norm = LQ_QK_HEAD;
    part[0].qk_norm_late = true;
    part[1].gated = false;
    if (!lq_json_str(c, "hidden_act")) part[1].act = LQ_RELU2;
    lq_ends(d, 0, 1);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

// The rope of a config that says nothing of one; a base that stands alone is not asked for.
static bool rope_or(const cJSON *c, int head_dim, lq_desc *d, const lq_rope *silent, lq_err *err) {
    lq_rope *r = &d->rope[0];
    const cJSON *of_5 = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    const cJSON *of_4 = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    r->theta = silent->theta;
    if (!lq_rope_read(c, head_dim, d->ctx, 0, r, err)) return false;
    if (cJSON_IsObject(of_5) || (cJSON_IsObject(of_4) && of_4->child)) return true;
    const int original = r->original_ctx;
    *r = *silent;
    r->dim = head_dim;
    if (original != d->ctx) r->original_ctx = original;
    return true;
}

bool lq_describe_apertus(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_rope silent = {.kind = LQ_ROPE_LLAMA3, .theta = 12e6, .factor = 8, .low_factor = 1,
                                   .high_factor = 4, .original_ctx = 8192};
    lq_part part[2] = {{0}};
    const char *act = lq_json_str(c, "hidden_act");
    (void)ckpt;
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 16;
    if (!lq_config_sizes(c, d, &part[0], &part[1], err) || !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err) ||
        !rope_or(c, part[0].head_dim, d, &silent, err) || !lq_config_bias(c, "attention_bias", &part[0], err))
        return false;
    part[1].act = LQ_XIELU;
    if (act && strcmp(act, "xielu") != 0 && !lq_config_act(c, "hidden_act", &part[1].act, err)) return false;
    d->ropes = 1;
    part[0].qk_norm = LQ_QK_HEAD;
    part[1].gated = false;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_cwm(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const int ends[] = {128001, 128008, 128009};
    static const lq_rope silent = {.kind = LQ_ROPE_LLAMA3, .theta = 1e6, .factor = 16, .low_factor = 1,
                                   .high_factor = 4, .original_ctx = 8192};
    lq_part part[2] = {{.kv_heads = 8, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 8192;
    (void)ckpt;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    if (!lq_config_rms(c, d, part, err) || !rope_or(c, part[0].head_dim, d, &silent, err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) ||
        !lq_config_int(c, "sliding_window", 0, LQ_CTX_MAX, &window, err))
        return false;
    d->ropes = 1;
    if (128000 < d->vocab) d->bos = 128000;
    for (int i = 0; i < 3; i++)
        if (ends[i] < d->vocab) d->eos[d->eoses++] = ends[i];
    if (!lq_layers_fill(d, part, 2, err)) return false;
    for (int i = 0; i < d->layers; i++)
        if (i % 4) d->layer[i].part[0].window = window;
    return lq_layers_group(c, d, window, err);
}

bool lq_describe_mixtral(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8}}, *moe = &part[1];
    int window = 0;
    d->norm_eps = 1e-5f;
    d->rope[0].theta = 1e6;
    d->ctx = 1 << 17;
    if (!lq_config_llama(c, d, part, err) || !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    moe->experts = 8;
    moe->experts_used = 2;
    if (!lq_config_experts(c, ckpt, lq_sources_experts, d, moe, err)) return false;
    moe->route = LQ_ROUTE_SOFTMAX;
    moe->route_renorm = true;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, window, 0, err);
}

// Which layers have positions: of no_rope_layers, or all but each no_rope_layer_interval-th.
static bool smollm3_ropes(const cJSON *c, lq_desc *d, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(c, "no_rope_layers"), *v;
    int every = 4, i = 0;
    if (!lq_config_int(c, "no_rope_layer_interval", 1, 1 << 12, &every, err)) return false;
    for (int l = 0; l < d->layers; l++) d->layer[l].part[0].rope = (l + 1) % every ? 0 : -1;
    if (!list || cJSON_IsNull(list)) return true;
    cJSON_ArrayForEach(v, list) {
        if (!cJSON_IsNumber(v) || i == d->layers) break;
        d->layer[i++].part[0].rope = v->valuedouble != 0 ? 0 : -1;
    }
    return i == d->layers || lq_fail(err, LQ_E_FORMAT, "config.json: no_rope_layers is not a list of %d numbers",
                                     d->layers);
}

bool lq_describe_smollm3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 4}};
    bool slides = false;
    int window = 0;
    (void)ckpt;
    d->ctx = 1 << 15;
    d->tied = true;
    d->rope[0].theta = 2e6;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) ||
        !lq_config_bool(c, "use_sliding_window", &slides, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err))
        return false;
    lq_ends(d, 128000, 128001);
    if (!lq_layers_fill(d, part, 2, err) || !smollm3_ropes(c, d, err)) return false;
    for (int l = 0; l < d->layers; l++)
        if (d->layer[l].part[0].rope < 0) d->layer[l].part[0].window = slides ? window : 0;
    return lq_layers_group(c, d, window, err);
}

bool lq_describe_seed(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    bool bias = true;
    (void)ckpt;
    d->ctx = 1 << 19;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_config_bool(c, "attention_out_bias", &part[0].o_bias, err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    part[0].q_bias = part[0].k_bias = part[0].v_bias = bias;
    lq_ends(d, 0, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

static bool hunyuan(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    lq_rope *r = &d->rope[0];
    double alpha = 0;
    d->norm_eps = 1e-5f;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err)) return false;
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    if (!cJSON_IsObject(rope)) rope = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    if (!lq_json_num(rope, "alpha", &alpha, "config.json", err)) return false;
    if (r->kind == LQ_ROPE_DYNAMIC && alpha != 0) { // called dynamic, but the same at every length
        if (!(alpha > 0 && alpha < 1e9) || r->dim < 4)
            return lq_fail(err, LQ_E_FORMAT, "config.json: alpha %g of rope, expected more than 0", alpha);
        r->theta *= pow(alpha, (double)r->dim / (r->dim - 2));
        r->kind = LQ_ROPE_DEFAULT;
    }
    part[0].qk_norm = LQ_QK_HEAD;
    part[0].qk_norm_late = true;
    lq_ends(d, 1, 2);
    return true;
}

bool lq_describe_hunyuan(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{0}};
    (void)ckpt;
    return hunyuan(c, d, part, err) && lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

// A number, or a list of one for each layer, which must all be the same.
static bool same_of_layers(const cJSON *c, const char *key, const lq_desc *d, int most, int *out, lq_err *err) {
    const cJSON *v, *list = cJSON_GetObjectItemCaseSensitive(c, key);
    if (!cJSON_IsArray(list)) return lq_config_int(c, key, 1, most, out, err);
    int n = 0;
    cJSON_ArrayForEach(v, list) {
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= 1 && v->valuedouble <= most))
            return lq_fail(err, LQ_E_FORMAT, "config.json: %s is not a list of numbers up to %d", key, most);
        if (n && v->valuedouble != *out)
            return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s is another number in layer %d", key, n);
        *out = (int)v->valuedouble, n++;
    }
    return n >= d->layers || lq_fail(err, LQ_E_FORMAT, "config.json: %s is not a list of %d numbers", key, d->layers);
}

bool lq_describe_hunyuan_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const char *const fused[LQ_ROLES] = {LQ_NAMES_FUSED("mlp.", "gate.wg")};
    lq_part part[3] = {{0}}, *moe = &part[1];
    int used = 1, experts = 1;
    if (!hunyuan(c, d, part, err) || !same_of_layers(c, "num_experts", d, LQ_EXPERTS, &experts, err) ||
        !same_of_layers(c, "moe_topk", d, experts, &used, err))
        return false;
    part[2] = part[1];
    part[2].beside = part[2].shared = true;
    moe->experts = experts;
    moe->experts_used = used;
    moe->route = LQ_ROUTE_SOFTMAX;
    moe->route_renorm = true;
    return lq_config_experts(NULL, ckpt, fused, d, moe, err) && lq_layers_fill(d, part, 3, err) &&
           lq_layers_window(c, d, 0, 0, err);
}
