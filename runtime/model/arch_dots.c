// arch_dots.c: mixtures whose experts are drawn by sigmoids, with a number for each expert that counts for the drawing
// alone, beside experts that all rows share, behind some layers with an MLP: dots.llm1 (norms of each head's q and k,
// windows), GLM-4.5 and 4.6 (half of a head turns; norms of q and k where the config says so), alone and with eyes,
// Solar Open (no MLPs), K-EXAONE (EXAONE 4's windows and positions), Hy3 (one number for all shares), MiniMax-M2
// (Mixtral's names, norms of all of q and of k, nothing shared), AFMoE (Arcee's Trinity: gates behind attention, norms
// behind the parts too, no positions in the layers without a window), MiMo-V2-Flash (narrower heads of v, twice as many
// KV heads and sinks in the layers with a window, which turn otherwise).
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

#define SHARED(block)                                                                                                  \
    [LQ_R_SHARED_GATE] = LQ_LAYER block "gate_proj", [LQ_R_SHARED_UP] = LQ_LAYER block "up_proj",                      \
    [LQ_R_SHARED_DOWN] = LQ_LAYER block "down_proj"
#define NAMES LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS
#define BIAS LQ_LAYER "mlp.gate.e_score_correction_bias="
const char *const lq_names_dots[LQ_ROLES] = {NAMES, [LQ_R_ROUTE_BIAS] = BIAS, SHARED("mlp.shared_experts.")};
const char *const lq_names_exaone_moe[LQ_ROLES] = {
    NAMES, [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.e_score_correction_bias=", SHARED("mlp.shared_experts."),
};
static const char *const exaone_fused[LQ_ROLES] = {LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_ROUTE_BIAS] = BIAS};
const char *const lq_names_hy3[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_ROUTER] = LQ_LAYER "mlp.router.gate",
    [LQ_R_EXPERT_GATE] = LQ_LAYER "mlp.experts.%d.gate_proj", [LQ_R_EXPERT_UP] = LQ_LAYER "mlp.experts.%d.up_proj",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "mlp.experts.%d.down_proj", [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.expert_bias=",
    SHARED("mlp.shared_mlp."),
};
static const char *const hy3_fused[LQ_ROLES] = {
    LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.e_score_correction_bias=",
    SHARED("mlp.shared_experts."),
};
#define MOE LQ_LAYER "block_sparse_moe."
const char *const lq_names_minimax_m2[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, [LQ_R_ROUTER] = MOE "gate", [LQ_R_EXPERT_GATE] = MOE "experts.%d.w1",
    [LQ_R_EXPERT_UP] = MOE "experts.%d.w3", [LQ_R_EXPERT_DOWN] = MOE "experts.%d.w2",
    [LQ_R_ROUTE_BIAS] = MOE "e_score_correction_bias=",
};
static const char *const minimax_fused[LQ_ROLES] = {
    LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.e_score_correction_bias=",
};

const char *const lq_names_afmoe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_MLP, [LQ_R_ATTN_GATE] = LQ_LAYER "self_attn.gate_proj",
    [LQ_R_NORM_0] = LQ_LAYER "input_layernorm", [LQ_R_NORM_POST_0] = LQ_LAYER "post_attention_layernorm",
    [LQ_R_NORM_1] = LQ_LAYER "pre_mlp_layernorm", [LQ_R_NORM_POST_1] = LQ_LAYER "post_mlp_layernorm",
    [LQ_R_NORM_POST_2] = LQ_LAYER "post_mlp_layernorm", [LQ_R_ROUTER] = LQ_LAYER "mlp.router.gate",
    [LQ_R_EXPERT_GATE] = LQ_LAYER "mlp.experts.%d.gate_proj", [LQ_R_EXPERT_UP] = LQ_LAYER "mlp.experts.%d.up_proj",
    [LQ_R_EXPERT_DOWN] = LQ_LAYER "mlp.experts.%d.down_proj", [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.expert_bias=",
    SHARED("mlp.shared_experts."),
};
static const char *const afmoe_fused[LQ_ROLES] = {LQ_NAMES_FUSED("mlp.", "router.gate")};

const char *const lq_names_mimo2[LQ_ROLES] = {
    NAMES, [LQ_R_ROUTE_BIAS] = BIAS, [LQ_R_SINKS] = LQ_LAYER "self_attn.attention_sink_bias=",
};
static const char *const mimo2_fused[LQ_ROLES] = {
    LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_SINKS] = LQ_LAYER "self_attn.sinks=",
};

// Layers that guess further tokens, which transformers leaves out too.
const char *const lq_ignores_glm4_moe[] = {"model.layers.46.*", "model.layers.92.*", NULL};
const char *const lq_ignores_glm4v_moe[] = {
    "model.language_model.layers.46.*", "model.language_model.layers.92.*", NULL,
};
const char *const lq_ignores_exaone_moe[] = {"mtp.*", NULL};
const char *const lq_ignores_hy3[] = {"model.layers.80.*", NULL};
const char *const lq_ignores_mimo2[] = {"model.mtp.*", NULL};

bool lq_layers_dense(const cJSON *c, lq_desc *d, const lq_part *mlp, int dense, lq_err *err) {
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(c, "mlp_layer_types"), *v;
    int i = 0;
    for (int l = 0; l < d->layers && l < dense && !cJSON_IsArray(types); l++)
        d->layer[l].parts = 2, d->layer[l].part[1] = *mlp;
    if (!types || cJSON_IsNull(types)) return true;
    cJSON_ArrayForEach(v, types) {
        const bool full = cJSON_IsString(v) && !strcmp(v->valuestring, "dense");
        if (i == d->layers || (!full && !(cJSON_IsString(v) && !strcmp(v->valuestring, "sparse")))) break;
        if (full) d->layer[i].parts = 2, d->layer[i].part[1] = *mlp;
        i++;
    }
    return (cJSON_IsArray(types) && !v && i == d->layers) ||
           lq_fail(err, LQ_E_FORMAT, "config.json: mlp_layer_types is not a list of %d words, dense or sparse",
                   d->layers);
}

bool lq_config_mixture(const lq_ckpt *ckpt, const cJSON *c, const lq_mixture *m, lq_desc *d, lq_part part[3],
                       lq_err *err) {
    lq_part *moe = &part[1];
    const lq_part mlp = *moe;
    int experts = m->silent, used = m->used, shared = m->silent_shared, dense = m->silent_dense;
    int groups = m->silent_groups ? m->silent_groups : 1, of = m->silent_top ? m->silent_top : 1;
    float scale = m->silent_scale;
    moe->ffn = m->silent_ffn ? m->silent_ffn : mlp.ffn;
    moe->mlp_bias = false;
    moe->route_renorm = m->renorm;
    if (!(experts ? lq_config_int : lq_config_need)(c, m->experts, 1, LQ_EXPERTS, &experts, err)) return false;
    if (used > experts) used = experts;
    if (!(used ? lq_config_int : lq_config_need)(c, "num_experts_per_tok", 1, experts, &used, err) ||
        !lq_config_int(c, m->ffn, 1, 1 << 20, &moe->ffn, err) ||
        (m->shared && !lq_config_int(c, m->shared, 1, 64, &shared, err)) ||
        (m->groups && !lq_config_int(c, "n_group", 1, experts, &groups, err)) ||
        (m->groups && !lq_config_int(c, "topk_group", 1, groups, &of, err)) ||
        (m->dense && !lq_config_int(c, m->dense, 0, 1 << 20, &dense, err)) ||
        (m->choice && !lq_config_bool(c, "norm_topk_prob", &moe->route_renorm, err)) ||
        (m->scale && !lq_config_float(c, m->scale, &scale, err)))
        return false;
    const int least = m->groups && !m->softmax ? 2 : 1; // experts of a group that its score is of
    if (experts % groups || experts / groups < least || of > groups || used > experts / groups * of || scale == 0)
        return lq_fail(err, LQ_E_FORMAT,
                       "config.json: %s %d, n_group %d, topk_group %d, num_experts_per_tok %d and %s %g do not go "
                       "together", m->experts, experts, groups, of, used, m->scale ? m->scale : "a scale of",
                       (double)scale);
    moe->experts = experts;
    moe->experts_used = used;
    moe->route = m->softmax ? LQ_ROUTE_SOFTMAX : LQ_ROUTE_SIGMOID;
    moe->route_bias = !m->softmax;
    moe->route_scale = scale;
    if (groups > 1) moe->route_groups = groups, moe->route_top_groups = of;
    part[2] = mlp;
    part[2].ffn = moe->ffn * shared;
    part[2].beside = part[2].shared = true;
    return lq_config_experts(NULL, ckpt, m->fused, d, moe, err) && lq_layers_fill(d, part, shared ? 3 : 2, err) &&
           lq_layers_dense(c, d, &mlp, dense, err);
}

bool lq_describe_dots1(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {
        "n_routed_experts", "moe_intermediate_size", "n_shared_experts", "routed_scaling_factor",
        "first_k_dense_replace", lq_sources_experts, .groups = true, .choice = true, .silent_ffn = 1408,
        .silent_shared = 1, .silent_scale = 1,
    };
    lq_part part[3] = {{.kv_heads = 32}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 4096, full = 62;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "max_window_layers", 0, 1 << 20, &full, err))
        return false;
    part[0].qk_norm = LQ_QK_HEAD;
    if (full > d->layers) full = d->layers;
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, window, full, err);
}

// Biases of q, k and v, a part of each head that turns.
static bool glm(const cJSON *c, lq_desc *d, lq_part *attn, bool bias, double share, lq_err *err) {
    if (!lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_rope_read(c, attn->head_dim, d->ctx, share, &d->rope[0], err))
        return false;
    d->ropes = 1;
    attn->q_bias = attn->k_bias = attn->v_bias = bias;
    return true;
}

#define GLM(dense)                                                                                                     \
    "n_routed_experts", "moe_intermediate_size", "n_shared_experts", "routed_scaling_factor", dense,                   \
    lq_sources_experts, .groups = true, .choice = true, .renorm = true, .silent = 128,        \
    .used = 8, .silent_shared = 1, .silent_scale = 1
bool lq_describe_glm4_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {GLM("first_k_dense_replace"), .silent_ffn = 1408, .silent_dense = 1};
    lq_part part[3] = {{.kv_heads = 8}};
    bool norms = false;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    if (!lq_config_rms(c, d, part, err) || !glm(c, d, part, false, 0.5, err) ||
        !lq_config_bool(c, "use_qk_norm", &norms, err))
        return false;
    if (norms) part[0].qk_norm = LQ_QK_HEAD;
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_glm4v_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {GLM("first_k_dense_replace"), .silent_ffn = 1408, .silent_dense = 1};
    static const lq_sizes silent = {4096, 46, 96, 10944, 151424};
    lq_part part[3] = {{.kv_heads = 8}};
    d->silent = &silent;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 16;
    return lq_config_rms(c, d, part, err) && glm(c, d, part, true, 0.5, err) &&
           lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

// No layer has a plain MLP, whose width may be missing.
bool lq_describe_solar(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {GLM(NULL), .silent_ffn = 1280};
    static const lq_size_keys sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                       "max_position_embeddings", NULL, 0};
    lq_part part[3] = {{.kv_heads = 8, .head_dim = 128}};
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    d->rope[0].theta = 1e6;
    return lq_config_sizes_as(c, &sizes, d, &part[0], &part[1], err) &&
           lq_config_act(c, "hidden_act", &part[1].act, err) && lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err) &&
           glm(c, d, part, false, 1, err) && lq_config_mixture(ckpt, c, &m, d, part, err) &&
           lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_exaone_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {
        "num_experts", "moe_intermediate_size", "num_shared_experts", "routed_scaling_factor", "first_k_dense_replace",
        exaone_fused, .groups = true, .choice = true, .renorm = true, .silent = 64, .used = 8, .silent_ffn = 1024,
        .silent_shared = 1, .silent_dense = 1, .silent_scale = 2.5f,
    };
    lq_part part[3] = {{.kv_heads = 32}};
    d->norm_eps = 1e-5f;
    if (!lq_config_llama(c, d, part, err)) return false;
    part[0].qk_norm = LQ_QK_HEAD;
    lq_ends(d, 1, 53);
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_exaone(c, d, err);
}

bool lq_describe_hy3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {
        "num_experts", "moe_intermediate_size", "num_shared_experts", "router_scaling_factor", NULL, hy3_fused,
        .renorm = true, .silent = 192, .used = 8, .silent_ffn = 1536, .silent_shared = 1, .silent_dense = 1,
        .silent_scale = 2.826f,
    };
    lq_part part[3] = {{.kv_heads = 8, .head_dim = 128}};
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    d->rope[0].theta = 11158840;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "mlp_bias", &part[1].mlp_bias, err))
        return false;
    part[0].qk_norm = LQ_QK_HEAD;
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_minimax_m2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {
        "num_local_experts", "intermediate_size", .fused = minimax_fused, .renorm = true, .silent = 256, .used = 8,
        .silent_scale = 1,
    };
    lq_part part[3] = {{.kv_heads = 8, .head_dim = 128}};
    int turns = 0;
    d->ctx = 196608;
    d->rope[0].theta = 5e6;
    if (!lq_config_rms(c, d, part, err) || !lq_config_int(c, "rotary_dim", 1, part[0].head_dim, &turns, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, turns ? (double)turns / part[0].head_dim : 1, &d->rope[0], err))
        return false;
    d->ropes = 1;
    part[0].qk_norm = LQ_QK_WHOLE;
    lq_ends(d, 200034, 200020);
    return lq_config_mixture(ckpt, c, &m, d, part, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_afmoe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const lq_mixture m = {
        "num_experts", "moe_intermediate_size", "num_shared_experts", "route_scale", "num_dense_layers", afmoe_fused,
        .renorm = true, .silent = 64, .used = 6, .silent_ffn = 1408, .silent_shared = 2, .silent_dense = 1,
        .silent_scale = 1,
    };
    lq_part part[3] = {{.head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    int window = lq_config_null(c, "sliding_window") ? 0 : 1024, every = 4;
    bool grown = false;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 14;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "global_attn_every_n_layers", 1, 1 << 12, &every, err) ||
        !lq_config_bool(c, "mup_enabled", &grown, err))
        return false;
    if (grown) d->embed_scale = (float)sqrt(d->dim);
    part[0].qk_norm = LQ_QK_HEAD;
    part[0].attn_gate = true;
    part[0].place = part[1].place = LQ_SANDWICH;
    if (!lq_config_mixture(ckpt, c, &m, d, part, err) || !lq_layers_ropes(c, d, window, every, err)) return false;
    for (int l = 0; l < d->layers; l++) {
        lq_part *p = d->layer[l].part;
        p[0].rope = p[0].window ? 0 : -1;
        if (p[1].kind == LQ_P_MOE) p[1].place = LQ_PRE, p[2].place = LQ_SUM;
    }
    return true;
}

// rope_parameters has an object for each kind of layer, and nothing beside it counts.
static bool mimo2_rope(const cJSON *c, const char *kind, const lq_part *attn, int ctx, double theta, lq_rope *r,
                       lq_err *err) {
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(all, kind);
    const char *type = lq_json_str(own, "rope_type");
    if (all && !cJSON_IsNull(all) && (!cJSON_IsObject(own) || (type && strcmp(type, "default") != 0)))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: rope_parameters.%s is not an object of rope_type default",
                       kind);
    r->theta = theta;
    return lq_rope_read(own, attn->head_dim, ctx, 0.334, r, err);
}

bool lq_describe_mimo2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_mixture m = {
        "n_routed_experts", "moe_intermediate_size", NULL, "routed_scaling_factor", NULL, mimo2_fused, .groups = true,
        .choice = true, .renorm = true, .silent = 256, .used = 8, .silent_ffn = 2048, .silent_dense = 1,
        .silent_scale = 1,
    };
    lq_part part[3] = {{.kv_heads = 4, .head_dim = 192}}, *attn = &part[0];
    int window = 129, before = 0, v_dim = 128;
    bool bias = false;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    if (lq_config_null(c, m.scale)) m.scale = NULL;
    if (!lq_config_rms(c, d, part, err) || !mimo2_rope(c, "full_attention", attn, d->ctx, 5e6, &d->rope[0], err) ||
        !mimo2_rope(c, "sliding_attention", attn, d->ctx, 10000, &d->rope[1], err) ||
        !lq_config_bool(c, "attention_bias", &bias, err) || !lq_config_int(c, "v_head_dim", 1, 4096, &v_dim, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_int(c, "sliding_window_size", 0, LQ_CTX_MAX - 1, &before, err))
        return false;
    attn->v_scale = 0.707f;
    if (!lq_config_float(c, "attention_value_scale", &attn->v_scale, err)) return false; // null: 0, which is none
    if (cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "sliding_window_size"))) window = before + 1;
    if (attn->heads % (2 * attn->kv_heads))
        return lq_fail(err, LQ_E_FORMAT, "config.json: num_attention_heads %d is not a multiple of twice "
                       "num_key_value_heads %d", attn->heads, attn->kv_heads);
    attn->v_dim = v_dim;
    attn->q_bias = attn->k_bias = attn->v_bias = bias;
    d->ropes = 2;
    if (!lq_config_mixture(ckpt, c, &m, d, part, err)) return false;
    for (int l = 1; l < d->layers; l++)
        if ((l + 1) % 6) d->layer[l].part[0].window = window;
    if (!lq_layers_group(c, d, window, err)) return false;
    for (int l = 0; l < d->layers; l++) {
        lq_part *p = &d->layer[l].part[0];
        if (p->window) p->kv_heads *= 2, p->sinks = true, p->rope = 1;
    }
    lq_ends(d, 1, -1);
    return true;
}
