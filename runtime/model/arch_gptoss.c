// arch_gptoss.c: gpt-oss: Llama with biases of q, k, v and o, a window in every second layer, a score in each softmax
// that sees nothing, and a mixture in place of the MLP: of the best experts alone, with biases, whose gate is held from
// above and up from both sides. Their matrices are [k][n] in bf16, or as they come, [n][k] in mxfp4.
#include "runtime/model/family.h"
#include <string.h>

#define MLP LQ_LAYER "mlp."
const char *const lq_names_gptoss[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, [LQ_R_SINKS] = LQ_LAYER "self_attn.sinks=",
    [LQ_R_ROUTER] = MLP "router", [LQ_R_EXPERT_GATE] = MLP "experts.%d.gate_proj",
    [LQ_R_EXPERT_UP] = MLP "experts.%d.up_proj", [LQ_R_EXPERT_DOWN] = MLP "experts.%d.down_proj",
};
static const char *const sources[LQ_ROLES] = {
    LQ_NAMES_FUSED("mlp.", "router"), [LQ_R_EXPERT_GATE_UP_BIAS] = MLP "experts.gate_up_proj_bias=",
    [LQ_R_EXPERT_DOWN_BIAS] = MLP "experts.down_proj_bias=",
};

static bool rope(const cJSON *c, lq_desc *d, int head_dim, lq_err *err) {
    static const lq_rope silent = {
        .kind = LQ_ROPE_YARN, .factor = 32, .beta_fast = 32, .beta_slow = 1, .original_ctx = 4096,
    };
    const cJSON *of_5 = cJSON_GetObjectItemCaseSensitive(c, "rope_parameters");
    const cJSON *of_4 = cJSON_GetObjectItemCaseSensitive(c, "rope_scaling");
    lq_rope *r = &d->rope[0];
    r->theta = 150000;
    if (!lq_rope_read(c, head_dim, d->ctx, 0, r, err)) return false;
    const lq_rope read = *r;
    if (cJSON_IsObject(of_5) || (cJSON_IsObject(of_4) && of_4->child)) return true;
    *r = silent;
    r->theta = read.theta, r->dim = read.dim;
    if (read.original_ctx != d->ctx) r->original_ctx = read.original_ctx;
    return true;
}

bool lq_describe_gptoss(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 8, .head_dim = lq_config_null(c, "head_dim") ? 0 : 64}}, *moe = &part[1];
    int window = lq_config_null(c, "sliding_window") ? 0 : 128;
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    if (!lq_config_sizes(c, d, &part[0], moe, err) || !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err))
        return false;
    part[0].q_bias = part[0].sinks = true;
    moe->experts = 128;
    moe->experts_used = 4;
    moe->act_alpha = 1.702f;
    moe->act_clamp = 7;
    moe->up_add = 1;
    if (!lq_config_bias(c, "attention_bias", &part[0], err) || !rope(c, d, part[0].head_dim, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, &window, err) ||
        !lq_config_float(c, "swiglu_alpha", &moe->act_alpha, err) ||
        !lq_config_float(c, "swiglu_limit", &moe->act_clamp, err) ||
        !lq_config_experts(c, ckpt, sources, d, moe, err))
        return false;
    if (moe->act_alpha == 0 || moe->act_clamp == 0)
        return lq_fail(err, LQ_E_FORMAT, "config.json: swiglu_%s is null", moe->act_alpha == 0 ? "alpha" : "limit");
    d->ropes = 1;
    d->sources = sources;
    moe->gate_up = moe->expert_turns = true;
    moe->router_bias = moe->expert_bias = true;
    moe->expert_across = !lq_ckpt_typed(ckpt, "model.layers.0.mlp.experts.down_proj"); // else mxfp4
    moe->route = LQ_ROUTE_SOFTMAX_TOPK;
    return lq_layers_fill(d, part, 2, err) && lq_layers_pattern(c, d, window, 2, err);
}
