// arch_gemma.c: Gemma: Llama's tensors and layers; norms multiply by 1 + weight, the embedding by the root of its
// width, and the MLP's gate is a gelu. Refuses attention in both directions.
#include "runtime/model/family.h"
#include <math.h>
#include <string.h>

// transformers rounds the root to the type in which it holds the embedding, as training did: in bf16, sqrt(3072) is
// 55.5. That type is what the config says, else what the tensors are; a norm tells, as no method quantizes it.
static float embed_scale(const lq_ckpt *ckpt, const cJSON *c, const lq_desc *d) {
    const lq_tensor *norm = lq_ckpt_find(ckpt, "model.norm.weight");
    const char *name = lq_json_str(c, "dtype");
    const float root = (float)sqrt(d->dim);
    if (!name) name = lq_json_str(c, "torch_dtype");
    if (name ? !strcmp(name, "bfloat16") : norm && norm->type == LQ_BF16) return lq_bf16_f32(lq_f32_bf16(root));
    if (name ? !strcmp(name, "float16") : norm && norm->type == LQ_F16) return lq_f16_f32(lq_f32_f16(root));
    return root;
}

bool lq_describe_gemma(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 16, .head_dim = 256}}, *attn = &part[0], *mlp = &part[1];
    bool bias = false, both = false;
    d->norm = LQ_NORM_RMS;
    d->norm_plus_one = true;
    d->norm_eps = 1e-6f;
    d->tied = true;
    d->ctx = 8192;
    if (!lq_config_sizes(c, d, attn, mlp, err) || !lq_config_eps(c, "rms_norm_eps", &d->norm_eps, err) ||
        !lq_config_bool(c, "attention_bias", &bias, err) ||
        !lq_config_bool(c, "use_bidirectional_attention", &both, err))
        return false;
    if (both) return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: use_bidirectional_attention is true");
    attn->q_bias = attn->k_bias = attn->v_bias = attn->o_bias = bias;
    mlp->act = LQ_GELU_TANH; // not hidden_act: the first configs say "gelu" of what was trained with this
    if (!lq_config_act(c, "hidden_activation", &mlp->act, err) ||
        !lq_rope_read(c, attn->head_dim, d->ctx, 1, &d->rope[0], err))
        return false;
    d->ropes = 1;
    d->embed_scale = embed_scale(ckpt, c, d);
    if (d->vocab > 2) d->bos = 2, d->eos[0] = 1, d->eoses = 1; // what transformers takes where a config is silent
    return lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}
