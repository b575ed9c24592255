// arch_gemma.c: Gemma: Llama's tensors and layers; norms multiply by 1 + weight, the embedding by the root of
// its width, and the MLP's gate is a gelu. Gemma 2: norms behind each part too, soft caps, a window in every
// second layer. Gemma 3: norms of q and k instead of caps, other positions in the layers with a window.
// VaultGemma: Gemma 2 without norms behind its parts. Refuses attention in both directions.
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

const char *const lq_names_gemma2[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_ATTN, LQ_NAMES_MLP,
    [LQ_R_NORM_0] = LQ_LAYER "input_layernorm", [LQ_R_NORM_POST_0] = LQ_LAYER "post_attention_layernorm",
    [LQ_R_NORM_1] = LQ_LAYER "pre_feedforward_layernorm", [LQ_R_NORM_POST_1] = LQ_LAYER "post_feedforward_layernorm",
};

// transformers rounds the root to the type in which it holds the embedding, as training did: in bf16, sqrt(3072) is
// 55.5. That type is what the config says, else what the tensors are; a norm tells, as no method quantizes it.
float lq_embed_root(const lq_ckpt *ckpt, const cJSON *c, const lq_desc *d, int dim) {
    char tensor[LQ_NAME];
    const lq_tensor *norm =
        lq_desc_source(d, LQ_R_NORM_OUT, tensor, sizeof tensor) ? lq_ckpt_find(ckpt, tensor) : NULL;
    const char *name = lq_json_str(c, "dtype");
    const float root = (float)sqrt(dim);
    if (!name) name = lq_json_str(c, "torch_dtype");
    if (name ? !strcmp(name, "bfloat16") : norm && norm->type == LQ_BF16) return lq_bf16_f32(lq_f32_bf16(root));
    if (name ? !strcmp(name, "float16") : norm && norm->type == LQ_F16) return lq_f16_f32(lq_f32_f16(root));
    return root;
}

// What all of them say in the same words.
static bool read(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    bool both = false;
    d->norm = LQ_NORM_RMS;
    d->norm_plus_one = true;
    d->norm_eps = 1e-6f;
    d->tied = true;
    if (!lq_config_sizes(c, d, &part[0], &part[1], err) || !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err) ||
        !lq_config_bias(c, "attention_bias", &part[0], err) ||
        !lq_config_bool(c, "use_bidirectional_attention", &both, err))
        return false;
    if (both) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: use_bidirectional_attention is true");
    part[1].act = LQ_GELU_TANH;
    d->embed_scale = lq_embed_root(ckpt, c, d, d->dim);
    if (d->vocab > 2) lq_ends(d, 2, 1);
    return true;
}

bool lq_describe_gemma(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 16, .head_dim = 256}};
    const char *act = lq_json_str(c, "hidden_act");
    d->ctx = 8192;
    if (!read(ckpt, c, d, part, err) || !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err)) return false;
    d->ropes = 1;
    // The first configs say "gelu" of what was trained with the approximation.
    if (!(act && !strcmp(act, "gelu")) && !lq_config_act(c, "hidden_act", &part[1].act, err)) return false;
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

// Gemma 2 and 3.
static bool read_caps(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_part part[2], int *window, lq_err *err) {
    float scalar = 256, cap = part[0].attn_softcap;
    *window = lq_config_null(c, "sliding_window") ? 0 : 4096;
    if (!read(ckpt, c, d, part, err) || !lq_config_act(c, "hidden_activation", &part[1].act, err) ||
        !lq_config_float(c, "query_pre_attn_scalar", &scalar, err) ||
        !lq_config_float(c, "attn_logit_softcapping", &cap, err) ||
        !lq_config_float(c, "final_logit_softcapping", &d->logit_softcap, err) ||
        !lq_config_int(c, "sliding_window", 1, LQ_CTX_MAX, window, err))
        return false;
    if (scalar == 0) return lq_fail(err, LQ_E_FORMAT, "config.json: query_pre_attn_scalar is null");
    part[0].place = part[1].place = LQ_SANDWICH;
    part[0].attn_scale = (float)(1 / sqrt((double)scalar));
    part[0].attn_softcap = cap;
    return true;
}

static bool describe_caps(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_norm_place place, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 4, .head_dim = 256, .attn_softcap = 50}};
    int window;
    d->ctx = 8192;
    d->logit_softcap = 30;
    if (!read_caps(ckpt, c, d, part, &window, err) ||
        !lq_rope_read(c, part[0].head_dim, d->ctx, 0, &d->rope[0], err))
        return false;
    d->ropes = 1;
    part[0].place = part[1].place = place;
    return lq_layers_fill(d, part, 2, err) && lq_layers_pattern(c, d, window, 2, err);
}

bool lq_describe_gemma2(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    return describe_caps(ckpt, c, d, LQ_SANDWICH, err);
}

bool lq_describe_vaultgemma(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    return describe_caps(ckpt, c, d, LQ_PRE, err);
}

bool lq_describe_gemma3(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.heads = 8, .kv_heads = 4, .head_dim = 256}};
    int window, every = 6;
    d->ctx = 1 << 17;
    d->vocab = 262208; // the configs of those with eyes say only what differs
    d->rope[0].theta = 1e6;
    d->rope[1].theta = 10000;
    if (!read_caps(ckpt, c, d, part, &window, err) ||
        !lq_config_int(c, "sliding_window_pattern", 1, 1 << 12, &every, err) ||
        !lq_json_num(c, "rope_local_base_freq", &d->rope[1].theta, "config.json", err) ||
        !lq_rope_read_kinds(c, part[0].head_dim, d->ctx, &d->rope[0], &d->rope[1], err))
        return false;
    // transformers reads these keys and computes without what they say.
    if (part[0].attn_softcap != 0 || (d->body && d->logit_softcap != 0))
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: %s is not null",
                       part[0].attn_softcap != 0 ? "attn_logit_softcapping" : "final_logit_softcapping");
    d->ropes = 2;
    part[0].qk_norm = LQ_QK_HEAD;
    return lq_layers_fill(d, part, 2, err) && lq_layers_ropes(c, d, window, every, err);
}
