// arch_deepseek.c: DeepSeek and those with its attention over latents: V2 (experts drawn by a softmax, of the best
// groups or of all), V3 and what was trained in its shape (drawn by sigmoids, as dots.llm1's), GLM-4.7-Flash, A.X K1 (a
// norm behind experts and what is shared), Mistral 4 (a softmax of all; q grows with the position), Youtu (an MLP in
// every layer), MiniCPM 3 (the same, with MiniCPM's factors). V1 has Llama's attention and V2's experts.
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

#define SHARED LQ_LAYER "mlp.shared_experts."
#define A LQ_LAYER "self_attn."
#define NAMES                                                                                                          \
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS, [LQ_R_Q_A] = A "q_a_proj",           \
    [LQ_R_Q_A_NORM] = A "q_a_layernorm", [LQ_R_Q_B] = A "q_b_proj", [LQ_R_KV_A] = A "kv_a_proj_with_mqa",              \
    [LQ_R_KV_A_NORM] = A "kv_a_layernorm", [LQ_R_KV_B] = A "kv_b_proj", [LQ_R_K_B] = A "k_b_proj",                     \
    [LQ_R_V_B] = A "v_b_proj", [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.gate.e_score_correction_bias=",                       \
    [LQ_R_SHARED_GATE] = SHARED "gate_proj", [LQ_R_SHARED_UP] = SHARED "up_proj",                                      \
    [LQ_R_SHARED_DOWN] = SHARED "down_proj"
const char *const lq_names_deepseek[LQ_ROLES] = {NAMES};
const char *const lq_names_axk1[LQ_ROLES] = {NAMES, [LQ_R_NORM_POST_2] = LQ_LAYER "post_mlp_layernorm"};
static const char *const axk1_fused[LQ_ROLES] = {
    LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_NORM_POST_2] = LQ_LAYER "mlp.post_mlp_layernorm",
};
// Layers that guess further tokens, of configs that do not say how many there are.
const char *const lq_ignores_deepseek3[] = {"model.layers.61.*", NULL};
const char *const lq_ignores_glm4_lite[] = {"model.layers.47.*", NULL};

// What a config that is silent means.
typedef struct silent {
    int q_rank, rank, nope, turned, v;
    bool grows;           // its rope is read elsewhere
} silent;
static const silent of_deepseek = {1536, 512, 128, 64, 128, false};

// yarn's factor of the scores: the scaling of `mscale_all_dim`, for q and for K.
static bool latent_scale(const cJSON *c, const lq_rope *r, float *scale, lq_err *err) {
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    double all = 0;
    if (!cJSON_IsObject(of)) of = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    if (r->kind == LQ_ROPE_DEFAULT) return true;
    if (!lq_json_num(of, "mscale_all_dim", &all, "config.json", err)) return false;
    const double by = all != 0 && r->factor > 1 ? 0.1 * all * log(r->factor) + 1 : 1;
    *scale = (float)(*scale * by * by);
    return true;
}

// The sizes of an attention over latents and of an MLP, and their rope.
static bool latents(const cJSON *c, lq_desc *d, lq_part part[2], silent s, bool pairs, lq_err *err) {
    lq_part *a = &part[0];
    bool bias = false;
    a->head_dim = s.nope + s.turned; // no share of the width
    if (!lq_config_rms(c, d, part, err)) return false;
    if (lq_config_null(c, "q_lora_rank")) s.q_rank = 0;
    if (!lq_config_int(c, "q_lora_rank", 1, 1 << 16, &s.q_rank, err) ||
        !lq_config_int(c, "kv_lora_rank", 1, 1 << 16, &s.rank, err) ||
        !lq_config_int(c, "qk_nope_head_dim", 1, 4096, &s.nope, err) ||
        !lq_config_int(c, "qk_rope_head_dim", 2, LQ_ROPE_DIM, &s.turned, err) ||
        !lq_config_int(c, "v_head_dim", 1, 4096, &s.v, err) || !lq_config_bool(c, "attention_bias", &bias, err) ||
        (!s.grows && !lq_rope_read(c, s.turned, d->ctx, 0, &d->rope[0], err)))
        return false;
    if (a->kv_heads != a->heads)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: num_key_value_heads %d, but all %d heads share one latent",
                       a->kv_heads, a->heads);
    const int widest = s.rank + s.turned > s.nope + s.turned ? s.rank + s.turned : s.nope + s.turned;
    if ((int64_t)a->heads * (widest > s.v ? widest : s.v) > 1 << 22)
        return lq_fail(err, LQ_E_FORMAT, "config.json: %d heads of %d, expected no more than %d in all", a->heads,
                       widest > s.v ? widest : s.v, 1 << 22);
    d->rope[0].interleaved = pairs;
    d->ropes = 1;
    a->kind = LQ_P_MLA;
    a->kv_heads = 1;
    a->head_dim = s.rank + s.turned, a->v_dim = s.rank;
    a->q_rank = s.q_rank, a->nope = s.nope, a->v_out = s.v;
    a->latent_eps = 1e-6f; // of all, whatever rms_norm_eps is
    a->latent_bias = a->o_bias = bias;
    a->attn_scale = (float)(1 / sqrt(s.nope + s.turned));
    return s.grows || latent_scale(c, &d->rope[0], &a->attn_scale, err);
}

// What a config means that says nothing of ropes.
static const lq_rope mistral4_rope = {
    .kind = LQ_ROPE_YARN, .theta = 1e4, .factor = 128, .beta_fast = 32, .beta_slow = 1, .attn_factor = 1,
    .truncate = true, .original_ctx = 8192, .q_beta = 0.1,
};

// q grows with the position, what is turned of it and what is not. The share of a head that turns may be said, too.
static bool growth(const cJSON *c, lq_desc *d, lq_part *a, lq_err *err) {
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    lq_rope *r = &d->rope[0];
    const int turned = a->head_dim - a->v_dim, dim = a->nope + turned;
    if (!cJSON_IsObject(rope)) rope = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    if (!cJSON_IsObject(rope)) {
        const double by = 0.1 * log(mistral4_rope.factor) + 1;
        *r = mistral4_rope, r->dim = turned;
        a->attn_scale = (float)(by * by / sqrt(dim));
    } else {
        *r = (lq_rope){0};
        if (!lq_rope_read(c, dim, d->ctx, (double)turned / dim, r, err) || !latent_scale(c, r, &a->attn_scale, err))
            return false;
        if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(rope, "llama_4_scaling_beta")))
            return lq_fail(err, LQ_E_FORMAT, "config.json: llama_4_scaling_beta is missing beside the rope's type");
        if (!lq_json_num(rope, "llama_4_scaling_beta", &r->q_beta, "config.json", err)) return false;
    }
    if (r->dim != turned || a->nope % 2 || a->nope > LQ_ROPE_DIM)
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %d of %d numbers of a head turn, expected qk_rope_head_dim "
                       "%d behind an even number up to %d", r->dim, dim, turned, LQ_ROPE_DIM);
    d->rope[1] = *r;
    d->rope[1].kind = LQ_ROPE_NONE, d->rope[1].dim = a->nope;
    d->ropes = 2;
    a->nope_rope = 1;
    return true;
}

#define MIXTURE                                                                                                        \
    "n_routed_experts", "moe_intermediate_size", "n_shared_experts", "routed_scaling_factor", "first_k_dense_replace", \
    lq_sources_experts, .choice = true

// A key that says how experts are drawn, of which a family has one way alone.
static bool only(const cJSON *c, const char *key, const char *word, lq_err *err) {
    const char *said = lq_json_str(c, key);
    return !said || !strcmp(said, word) ||
           lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s \"%.40s\", expected \"%s\"", key, said, word);
}

static bool every_layer(const cJSON *c, lq_err *err) {
    int every = 1;
    if (!lq_config_int(c, "moe_layer_freq", 1, 1 << 20, &every, err)) return false;
    return every == 1 || lq_fail(err, LQ_E_UNSUPPORTED, "config.json: moe_layer_freq %d, expected 1", every);
}

bool lq_describe_deepseek(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {MIXTURE, .softmax = true, .silent_ffn = 1407, .silent_scale = 1};
    lq_part part[3] = {{0}};
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !every_layer(c, err) || !only(c, "scoring_func", "softmax", err))
        return false;
    lq_ends(d, 100000, 100001);
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "n_routed_experts")))
        return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_deepseek2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_mixture m = {MIXTURE, .softmax = true, .silent = 64, .silent_ffn = 1407, .silent_shared = 2, .silent_scale = 1};
    lq_part part[3] = {{0}};
    const char *how = lq_json_str(c, "topk_method");
    m.groups = how && !strcmp(how, "group_limited_greedy");
    if (!latents(c, d, part, of_deepseek, true, err) || !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) ||
        !every_layer(c, err) || !only(c, "scoring_func", "softmax", err) ||
        (!m.groups && !only(c, "topk_method", "greedy", err)))
        return false;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "norm_topk_prob"))) // its makers' code and transformers differ
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: norm_topk_prob is true, expected false");
    lq_ends(d, 1, 2);
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_deepseek3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {MIXTURE, .groups = true, .renorm = true, .silent = 256, .used = 8, .silent_ffn = 2048,
                                 .silent_shared = 1, .silent_dense = 3, .silent_groups = 8, .silent_top = 4,
                                 .silent_scale = 2.5f};
    lq_part part[3] = {{.kv_heads = lq_config_null(c, "num_key_value_heads") ? 0 : 128}};
    bool pairs = true;
    d->names = lq_names_deepseek; // also where it is a text part
    d->ctx = 4096;
    if (!lq_config_bool(c, "rope_interleave", &pairs, err) || !latents(c, d, part, of_deepseek, pairs, err) ||
        !every_layer(c, err) || !only(c, "scoring_func", "sigmoid", err) || !only(c, "topk_method", "noaux_tc", err))
        return false;
    lq_ends(d, 0, 1);
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_glm4_lite(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {MIXTURE, .groups = true, .renorm = true, .silent = 64, .used = 4, .silent_ffn = 1536,
                                 .silent_shared = 1, .silent_dense = 1, .silent_scale = 1.8f};
    lq_part part[3] = {{.kv_heads = 20}};
    bool pairs = true;
    d->ctx = 202752;
    d->norm_eps = 1e-5f;
    if (!lq_config_bool(c, "rope_interleave", &pairs, err) ||
        !latents(c, d, part, (silent){768, 512, 192, 64, 256, false}, pairs, err))
        return false;
    lq_ends(d, 0, 1);
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_axk1(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {
        "n_routed_experts", "moe_intermediate_size", "n_shared_experts", "routed_scaling_factor",
        "first_k_dense_replace", axk1_fused, .choice = true, .groups = true, .renorm = true, .silent = 192, .used = 8,
        .silent_ffn = 2048, .silent_shared = 1, .silent_dense = 1, .silent_groups = 8, .silent_top = 4,
        .silent_scale = 2.5f,
    };
    lq_part part[3] = {{.kv_heads = 64}};
    bool pairs = true;
    d->ctx = 1 << 15;
    if (!lq_config_bool(c, "rope_interleave", &pairs, err) || !latents(c, d, part, of_deepseek, pairs, err) ||
        !every_layer(c, err) || !only(c, "scoring_func", "sigmoid", err) || !only(c, "topk_method", "noaux_tc", err) ||
        !lq_config_mixture(ckpt, c, &m, d, part, err))
        return false;
    for (int l = 0; l < d->layers; l++)
        if (d->layer[l].parts == 3) d->layer[l].part[2].place = LQ_SUM;
    lq_ends(d, 163691, 163691);
    return lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_mistral4(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {MIXTURE, .groups = true, .softmax = true, .renorm = true, .silent = 128, .used = 4,
                                 .silent_ffn = 2048, .silent_shared = 1, .silent_scale = 1};
    lq_part part[3] = {{.kv_heads = lq_config_null(c, "num_key_value_heads") ? 0 : 32}};
    bool pairs = true;
    int groups = 1;
    d->names = lq_names_deepseek; // also where it is a text part
    d->ctx = 1 << 20;
    if (!lq_config_bool(c, "rope_interleave", &pairs, err) || !lq_config_int(c, "n_group", 1, LQ_EXPERTS, &groups, err))
        return false;
    if (groups > 1) // whose scores are of two experts
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: n_group %d in a Mistral 4, expected 1", groups);
    if (!latents(c, d, part, (silent){1024, 256, 64, 64, 128, true}, pairs, err) || !growth(c, d, &part[0], err))
        return false;
    d->rope[0].interleaved = pairs;
    lq_ends(d, 1, 2);
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_youtu(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 16}};
    bool pairs = true;
    (void)ckpt;
    d->ctx = 1 << 17;
    d->tied = true;
    if (!lq_config_bool(c, "rope_interleave", &pairs, err) || !latents(c, d, part, of_deepseek, pairs, err))
        return false;
    lq_ends(d, 128000, 128001);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_minicpm3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 40}};
    silent s = {768, 256, 64, 32, 1, false};
    float base = 256, depth = 1.4f;
    (void)ckpt;
    d->ctx = 1 << 15;
    d->norm_eps = 1e-5f;
    d->tied = true;
    d->embed_scale = 12;
    if (!latents(c, d, part, s, false, err) || !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err) ||
        !lq_config_float(c, "scale_emb", &d->embed_scale, err) || !lq_config_float(c, "dim_model_base", &base, err) ||
        !lq_config_float(c, "scale_depth", &depth, err))
        return false;
    if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "v_head_dim"))) part[0].v_out = d->dim / part[0].heads;
    if (part[0].v_out < 1) return lq_fail(err, LQ_E_FORMAT, "config.json: more heads than hidden_size");
    if (d->embed_scale == 0) return lq_fail(err, LQ_E_FORMAT, "config.json: scale_emb is null");
    part[0].scale = part[1].scale = depth != 0 ? (float)(depth / sqrt(d->layers)) : 0;
    d->logit_scale = base != 0 ? base / (float)d->dim : 0;
    lq_ends(d, 1, 2);
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}
