// test_arch_rms.c: config.json of decoders with RMS norms, and of mixtures, from strangers: what transformers takes
// where it is silent, every key that changes a result read, or refused in one line that names it.
#include "tests/unit/config.h"

#define SIZES "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":5,\"num_attention_heads\":32,\"vocab_size\":200000"
#define OF(name) "{\"architectures\":[\"" name "\"]," SIZES

// What the configuration classes of transformers have as defaults.
static void silent(void) {
    static const struct {
        const char *name;
        int kv_heads, head_dim, ctx;
        float eps;
        double theta, partial;
        bool tied, interleaved, q_bias, o_bias;
        lq_norm_place place;
        lq_qk_norm qk;
        int bos, eos;
    } rows[] = {
        {"MinistralForCausalLM", 8, 2, 131072, 1e-6f, 1e4, 1, false, false, false, false, LQ_PRE, LQ_QK_PLAIN, 1, 2},
        {"Olmo2ForCausalLM", 32, 2, 2048, 1e-5f, 1e4, 1, false, false, false, false, LQ_POST, LQ_QK_WHOLE, -1, 50279},
        {"Olmo3ForCausalLM", 32, 2, 2048, 1e-5f, 5e5, 1, false, false, false, false, LQ_POST, LQ_QK_WHOLE, -1, 50279},
        {"OlmoeForCausalLM", 32, 2, 4096, 1e-5f, 1e4, 1, false, false, false, false, LQ_PRE, LQ_QK_WHOLE, -1, 50279},
        {"FlexOlmoForCausalLM", 32, 2, 4096, 1e-6f, 5e5, 1, false, false, false, false, LQ_POST, LQ_QK_WHOLE, -1,
         100257},
        {"CwmForCausalLM", 8, 128, 131072, 1e-5f, 1e6, 1, false, false, false, false, LQ_PRE, LQ_QK_PLAIN, 128000,
         128001},
        {"YiForCausalLM", 4, 2, 4096, 1e-5f, 5e6, 1, false, false, false, false, LQ_PRE, LQ_QK_PLAIN, 1, 2},
        {"InternLM2ForCausalLM", 32, 2, 2048, 1e-6f, 1e4, 1, false, false, true, true, LQ_PRE, LQ_QK_PLAIN, 1, 2},
        {"ExaoneForCausalLM", 32, 2, 2048, 1e-5f, 1e4, 1, true, false, false, false, LQ_PRE, LQ_QK_PLAIN, 0, 2},
        {"MiniCPMForCausalLM", 32, 2, 2048, 1e-6f, 1e4, 1, true, false, false, false, LQ_PRE, LQ_QK_PLAIN, 1, 2},
        {"Exaone4ForCausalLM", 32, 2, 2048, 1e-5f, 1e4, 1, false, false, false, false, LQ_POST, LQ_QK_HEAD, 0, 2},
        {"GraniteForCausalLM", 32, 2, 2048, 1e-6f, 1e4, 1, false, false, false, false, LQ_PRE, LQ_QK_PLAIN, 1, 2},
        {"GlmForCausalLM", 2, 128, 131072, 1.5625e-7f, 1e4, 0.5, false, true, true, false, LQ_PRE, LQ_QK_PLAIN, -1,
         151329},
        {"Glm4ForCausalLM", 2, 128, 131072, 1.5625e-7f, 1e4, 0.5, false, true, true, false, LQ_SANDWICH, LQ_QK_PLAIN,
         -1, 151329},
        {"SmolLM3ForCausalLM", 4, 2, 32768, 1e-6f, 2e6, 1, true, false, false, false, LQ_PRE, LQ_QK_PLAIN, 128000,
         128001},
        {"SeedOssForCausalLM", 8, 128, 524288, 1e-6f, 1e4, 1, false, false, true, false, LQ_PRE, LQ_QK_PLAIN, 0, 2},
        {"Ernie4_5ForCausalLM", 2, 128, 131072, 1e-5f, 5e5, 1, true, true, false, false, LQ_PRE, LQ_QK_PLAIN, 1, 2},
        {"HunYuanDenseV1ForCausalLM", 32, 2, 2048, 1e-5f, 1e4, 1, false, false, false, false, LQ_PRE, LQ_QK_HEAD, 1, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[400];
        snprintf(config, sizeof config, "{\"architectures\":[\"%s\"]," SIZES "}", rows[i].name);
        lq_desc d = accepted(config);
        if (!d.layer) continue;
        const lq_part *attn = &d.layer[0].part[0], *mlp = &d.layer[0].part[1];
        CHECK(attn->heads == 32 && attn->kv_heads == rows[i].kv_heads && attn->head_dim == rows[i].head_dim &&
              d.ctx == rows[i].ctx, "%s: %d of %d, context %d", config, attn->kv_heads, attn->head_dim, d.ctx);
        CHECK(d.norm == LQ_NORM_RMS && d.norm_eps == rows[i].eps && !d.norm_bias && !d.norm_plus_one, "%s: norms",
              config);
        CHECK(d.rope[0].theta == rows[i].theta && d.rope[0].dim == (int)(attn->head_dim * rows[i].partial) &&
              d.rope[0].interleaved == rows[i].interleaved, "%s: rope %g over %d", config, d.rope[0].theta,
                  d.rope[0].dim);
        CHECK(d.tied == rows[i].tied && attn->q_bias == rows[i].q_bias && attn->k_bias == rows[i].q_bias &&
              attn->v_bias == rows[i].q_bias && attn->o_bias == rows[i].o_bias && !mlp->mlp_bias, "%s: biases", config);
        CHECK(attn->place == rows[i].place && mlp->place == rows[i].place && attn->qk_norm == rows[i].qk, "%s: places",
              config);
        CHECK(mlp->gated && mlp->act == LQ_SILU && mlp->ffn == 160, "%s: MLP", config);
        CHECK(d.bos == rows[i].bos && d.eoses > 0 && d.eos[0] == rows[i].eos, "%s: ends %d, %d", config, d.bos,
              d.eos[0]);
        lq_desc_free(&d);
    }
}

// Windows and ropes of five layers; a rope of -1: no positions.
static void layers(const char *config, const int window[5], const int rope[5]) {
    lq_desc d = accepted(config);
    for (int i = 0; d.layer && i < 5; i++)
        CHECK(d.layer[i].part[0].window == window[i] && d.layer[i].part[0].rope == rope[i],
              "%s: layer %d has a window of %d and rope %d",
              config, i, d.layer[i].part[0].window, d.layer[i].part[0].rope);
    lq_desc_free(&d);
}

static void windows(void) {
#define FIVE(a, b, c, d, e) (const int[5]){a, b, c, d, e}
    const int *none = FIVE(0, 0, 0, 0, 0), *same = FIVE(0, 0, 0, 0, 0);
    layers(OF("MinistralForCausalLM") "}", FIVE(4096, 4096, 4096, 4096, 4096), same);
    layers(OF("MinistralForCausalLM") ",\"sliding_window\":null}", none, same);
    layers(OF("Olmo3ForCausalLM") "}", FIVE(4096, 4096, 4096, 0, 4096), FIVE(1, 1, 1, 0, 1));
    layers(OF("Olmo3ForCausalLM") ",\"sliding_window\":null,\"layer_types\":[\"full_attention\",\"full_attention\","
           "\"full_attention\",\"full_attention\",\"full_attention\"]}", none, same);
    layers(OF("Exaone4ForCausalLM") "}", FIVE(4096, 4096, 4096, 0, 4096), FIVE(0, 0, 0, -1, 0));
    layers(OF("Exaone4ForCausalLM") ",\"sliding_window\":9,\"sliding_window_pattern\":2}", FIVE(9, 0, 9, 0, 9),
           FIVE(0, -1, 0, -1, 0));
    layers(OF("Exaone4ForCausalLM") ",\"sliding_window\":null,\"sliding_window_pattern\":null}", none, same);
    layers(OF("Exaone4ForCausalLM") ",\"sliding_window\":9,\"sliding_window_pattern\":\"LG\","
           "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
           "\"full_attention\",\"full_attention\"]}",
           FIVE(9, 0, 9, 0, 0), FIVE(0, -1, 0, -1, -1));
    layers(OF("SmolLM3ForCausalLM") "}", none, FIVE(0, 0, 0, -1, 0));
    layers(OF("SmolLM3ForCausalLM") ",\"no_rope_layer_interval\":2}", none, FIVE(0, -1, 0, -1, 0));
    layers(OF("SmolLM3ForCausalLM") ",\"no_rope_layers\":[1,1,0,1,0],\"use_sliding_window\":true,\"sliding_window\":5}", FIVE(0, 0, 5, 0, 5),
           FIVE(0, 0, -1, 0, -1));
    layers(OF("SmolLM3ForCausalLM") ",\"sliding_window\":5,\"no_rope_layers\":[1,1,1,0,1,0,1]}", none,
           FIVE(0, 0, 0, -1, 0));
}

static void keys(void) {
    lq_desc d = accepted(OF("GraniteForCausalLM") "}");
    CHECK(d.embed_scale == 1 && d.logit_scale == 1 && d.layer[0].part[0].attn_scale == 1 &&
          d.layer[0].part[1].scale == 1, "multipliers");
    lq_desc_free(&d);
    d = accepted(OF("GraniteForCausalLM") ",\"embedding_multiplier\":12,\"attention_multiplier\":0.5,\"residual_multiplier\":0.25,"
                 "\"logits_scaling\":8,\"attention_bias\":true,\"mlp_bias\":true}");
    const lq_part *attn = &d.layer[4].part[0], *mlp = &d.layer[4].part[1];
    CHECK(d.embed_scale == 12 && d.logit_scale == 0.125f && attn->attn_scale == 0.5f && attn->scale == 0.25f &&
          mlp->scale == 0.25f &&
          attn->q_bias && attn->o_bias && mlp->mlp_bias, "multipliers that are said");
    lq_desc_free(&d);
    d = accepted(OF("Glm4ForCausalLM") ",\"partial_rotary_factor\":1,\"attention_bias\":false,\"eos_token_id\":7}");
    CHECK(d.rope[0].dim == 128 && !d.layer[0].part[0].q_bias && d.eoses == 1 && d.eos[0] == 7, "GLM-4");
    lq_desc_free(&d);
    d = accepted(OF("SeedOssForCausalLM") ",\"head_dim\":null,\"attention_bias\":false,\"attention_out_bias\":true,\"mlp_bias\":true}");
    CHECK(d.layer[0].part[0].head_dim == 2 && !d.layer[0].part[0].q_bias && d.layer[0].part[0].o_bias &&
          d.layer[0].part[1].mlp_bias, "Seed-OSS");
    lq_desc_free(&d);
    d = accepted(OF("Ernie4_5ForCausalLM") ",\"head_dim\":null,\"use_bias\":true}");
    CHECK(d.layer[0].part[0].head_dim == 2 && d.layer[0].part[0].q_bias && d.layer[0].part[0].o_bias &&
          d.layer[0].part[1].mlp_bias, "ERNIE");
    lq_desc_free(&d);
    d = accepted(OF("HunYuanDenseV1ForCausalLM") ",\"head_dim\":6,\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":16,\"factor\":1}}");
    CHECK(d.rope[0].kind == LQ_ROPE_DEFAULT && fabs(d.rope[0].theta - 640000) < 1e-6 &&
          d.layer[0].part[0].qk_norm_late, "base %.17g", d.rope[0].theta);
    lq_desc_free(&d);
    d = accepted(OF("Olmo3ForCausalLM") ",\"rope_theta\":7e4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}}");
    CHECK(d.rope[0].theta == 7e4 && d.rope[0].kind == LQ_ROPE_LINEAR && d.rope[1].theta == 5e5 &&
          d.rope[1].kind == LQ_ROPE_DEFAULT,
          "OLMo 3: only the layers without a window are scaled, and have the base that is said");
    lq_desc_free(&d);
}

static void mixtures(void) {
    lq_desc d = accepted(OF("Qwen2MoeForCausalLM") "}");
    const lq_layer *l = &d.layer[4];
    const lq_part *attn = &l->part[0], *moe = &l->part[1], *shared = &l->part[2];
    CHECK(l->parts == 3 && attn->kv_heads == 16 && attn->q_bias && attn->v_bias && !attn->o_bias && !attn->window,
          "Qwen2-MoE");
    CHECK(moe->kind == LQ_P_MOE && moe->experts == 60 && moe->experts_used == 4 && moe->ffn == 1408 &&
          !moe->route_renorm &&
          moe->route == LQ_ROUTE_SOFTMAX && !moe->gate_up, "60 experts, whose shares are of all");
    CHECK(shared->kind == LQ_P_MLP && shared->ffn == 5632 && shared->beside && !shared->own_norm && shared->shared &&
          shared->shared_score, "one that all rows share");
    lq_desc_free(&d);
    d = accepted(OF("Qwen2MoeForCausalLM") ",\"mlp_only_layers\":[3,-1,99,1e300,2.5,3],\"decoder_sparse_step\":2,\"norm_topk_prob\":true,\"qkv_bias\":false,"
                 "\"use_sliding_window\":true,\"sliding_window\":9,\"max_window_layers\":3}");
    for (int i = 0; i < 5; i++)
        CHECK(d.layer[i].parts == (i == 1 ? 3 : 2) && (d.layer[i].part[1].kind == LQ_P_MOE) == (i == 1) &&
              d.layer[i].part[0].window == (i == 0 || i == 2 ? 9 : 0), "layer %d", i);
    CHECK(d.layer[1].part[1].route_renorm && d.layer[0].part[1].ffn == 160 && !d.layer[0].part[0].q_bias, "as it says");
    lq_desc_free(&d);
    d = accepted(OF("Qwen3MoeForCausalLM") ",\"num_local_experts\":12,\"sliding_window\":0}");
    moe = &d.layer[0].part[1], attn = &d.layer[0].part[0];
    CHECK(d.layer[0].parts == 2 && moe->experts == 12 && moe->experts_used == 8 && moe->ffn == 768 &&
          attn->kv_heads == 4 &&
          attn->head_dim == 2 && attn->qk_norm == LQ_QK_HEAD && !attn->q_bias && !attn->window, "Qwen3-MoE");
    lq_desc_free(&d);
    d = accepted(OF("GraniteMoeForCausalLM") "}");
    moe = &d.layer[0].part[1];
    CHECK(d.layer[0].parts == 2 && moe->experts == 8 && moe->experts_used == 2 && moe->ffn == 160 && moe->gate_up &&
          moe->route == LQ_ROUTE_SOFTMAX_TOPK, "Granite-MoE");
    lq_desc_free(&d);
    d = accepted(OF("GraniteMoeSharedForCausalLM") ",\"shared_intermediate_size\":48,\"residual_multiplier\":0.5}");
    shared = &d.layer[0].part[2];
    CHECK(d.layer[0].parts == 3 && shared->ffn == 48 && shared->shared && !shared->shared_score && shared->gate_up &&
          d.layer[0].part[1].scale == 0.5f, "with one that all rows share");
    lq_desc_free(&d);
    d = accepted(OF("PhimoeForCausalLM") "}");
    moe = &d.layer[0].part[1];
    CHECK(moe->experts == 16 && moe->experts_used == 2 && moe->route == LQ_ROUTE_MIXER && moe->route_jitter == 0.01f &&
          d.norm == LQ_NORM_LAYER && d.norm_bias && d.norm_eps == 1e-5f && d.rope[0].theta == 1e6 && !d.head_bias,
              "Phi-MoE");
    lq_desc_free(&d);
    d = accepted(OF("Phi3ForCausalLM") ",\"head_dim\":4,\"num_key_value_heads\":4,\"max_position_embeddings\":16384,"
                 "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1],\"long_factor\":[2,3],\"original_max_position_embeddings\":7}}");
    CHECK(d.rope[0].original_ctx == 4096 && fabs(d.rope[0].attn_factor - sqrt(1 + log(4) / log(4096))) < 1e-12,
          "Phi-3: original length %d, which stands beside the scaling", d.rope[0].original_ctx);
    lq_desc_free(&d);
}

static void eyes(void) {
#define TEXT(type) "{\"architectures\":[\"Mistral3ForConditionalGeneration\"],\"text_config\":{\"model_type\":\"" type "\"," SIZES
    lq_desc d = accepted(TEXT("mistral") ",\"head_dim\":6,\"sliding_window\":null}}");
    CHECK(d.layer[0].part[0].head_dim == 6 && d.layer[0].part[0].kv_heads == 8 && d.rope[0].q_beta == 0 && d.tied,
          "mistral");
    lq_desc_free(&d);
    d = accepted(TEXT("ministral3") "}}");
    CHECK(d.layer[0].part[0].head_dim == 128 && d.layer[0].part[0].window == 0 && d.norm_eps == 1e-5f &&
          d.ctx == 262144, "ministral3");
    CHECK(d.rope[0].kind == LQ_ROPE_YARN && d.rope[0].theta == 1e6 && d.rope[0].factor == 16 &&
          d.rope[0].original_ctx == 16384 &&
          d.rope[0].q_beta == 0.1 && d.rope[0].dim == 128, "the rope of a config that is silent");
    lq_desc_free(&d);
    d = accepted(OF("Qwen2_5_VLForConditionalGeneration") ",\"sliding_window\":0,\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1]}}");
    CHECK(d.layer[0].part[0].kv_heads == 8 && d.layer[0].part[0].q_bias && !d.layer[0].part[0].o_bias &&
          d.norm_eps == 1e-5f &&
          d.rope[0].theta == 1e6 && d.rope[0].kind == LQ_ROPE_DEFAULT && !d.tied && d.bos == 151643 &&
              d.eos[0] == 151645, "Qwen2.5-VL");
    lq_desc_free(&d);
}

// Text parts that say less than the others.
static void texts(void) {
    lq_desc d = accepted("{\"architectures\":[\"LlavaForConditionalGeneration\"],\"text_config\":{\"model_type\":\"llama\","
                         "\"vocab_size\":32064,\"max_position_embeddings\":4096}}");
    CHECK(d.dim == 4096 && d.layers == 32 && d.layer[0].part[0].heads == 32 && d.layer[0].part[1].ffn == 11008 &&
          d.vocab == 32064 && d.ctx == 4096, "a llama that says its vocabulary");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"LlavaNextForConditionalGeneration\"],\"text_config\":{\"model_type\":\"mistral\","
                 "\"intermediate_size\":9,\"sliding_window\":null}}");
    CHECK(d.dim == 4096 && d.layer[0].part[0].kv_heads == 8 && d.layer[0].part[1].ffn == 9 && d.vocab == 32000,
          "a mistral");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"Mistral3ForConditionalGeneration\"],\"text_config\":{}}");
    CHECK(d.layer[0].part[0].kv_heads == 8 && d.layer[0].part[1].ffn == 14336, "a text_config that says nothing");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"InternVLForConditionalGeneration\"],\"text_config\":{}}");
    CHECK(d.vocab == 151936 && d.layer[0].part[0].q_bias, "that of an InternVL");
    lq_desc_free(&d);
    d = accepted(OF("ArceeForCausalLM") "}");
    CHECK(!d.layer[0].part[1].gated && d.layer[0].part[1].act == LQ_RELU2 && d.norm_eps == 1e-5f && d.ctx == 4096,
          "Arcee");
    lq_desc_free(&d);
    d = accepted(OF("Qwen3VLForConditionalGeneration") "}");
    CHECK(d.layer[0].part[0].head_dim == 128 && d.layer[0].part[0].qk_norm == LQ_QK_HEAD && d.ctx == 128000 &&
          d.rope[0].theta == 500000, "Qwen3-VL");
    lq_desc_free(&d);
    d = accepted(OF("Qwen3VLMoeForConditionalGeneration") ",\"norm_topk_prob\":false}");
    CHECK(d.layer[0].part[0].kv_heads == 16 && d.layer[0].part[0].head_dim == 2 && d.layer[0].part[1].route_renorm &&
          d.layer[0].part[1].experts == 60 && d.layer[0].part[1].ffn == 1408, "Qwen3-VL-MoE");
    lq_desc_free(&d);
    d = accepted(OF("HeliumForCausalLM") ",\"head_dim\":2,\"num_key_value_heads\":4}");
    CHECK(d.rope[0].interleaved && d.rope[0].theta == 100000 && d.norm_eps == 1e-8f, "Helium");
    lq_desc_free(&d);
}

// Of code that came with checkpoints.
static void remote(void) {
    lq_desc d = accepted(OF("BaichuanForCausalLM") ",\"model_max_length\":512}");
    CHECK(d.layer[0].part[0].alibi && d.layer[0].part[0].rope < 0 && !d.ropes && d.ctx == 512 &&
          d.layer[0].part[0].qkv == LQ_QKV_ROWS, "a Baichuan with ALiBi");
    lq_desc_free(&d);
    d = accepted(OF("BaiChuanForCausalLM") ",\"max_position_embeddings\":4096,\"model_max_length\":512}");
    CHECK(!d.layer[0].part[0].alibi && d.ropes == 1 && d.ctx == 4096, "a Baichuan with rope");
    lq_desc_free(&d);
    d = accepted(OF("MiniCPMForCausalLM") ",\"scale_emb\":12,\"scale_depth\":3,\"dim_model_base\":16}");
    CHECK(d.embed_scale == 12 && d.logit_scale == 0.25f && fabsf(d.layer[1].part[1].scale - 1.3416408f) < 1e-6f,
          "MiniCPM: %g", (double)d.layer[1].part[1].scale);
    lq_desc_free(&d);
}

// Experts that are drawn by sigmoids.
static void sigmoids(void) {
    lq_desc d = accepted(OF("Glm4MoeForCausalLM") ",\"head_dim\":8,\"num_key_value_heads\":8}");
    const lq_part *moe = &d.layer[1].part[1];
    CHECK(d.layer[0].parts == 2 && d.layer[0].part[1].kind == LQ_P_MLP && d.layer[1].parts == 3, "its first layer");
    CHECK(moe->experts == 128 && moe->experts_used == 8 && moe->ffn == 1408 && moe->route == LQ_ROUTE_SIGMOID &&
          moe->route_bias && moe->route_renorm && !moe->route_groups, "its experts");
    CHECK(d.layer[1].part[2].ffn == 1408 && d.rope[0].dim == 4 && d.norm_eps == 1e-5f, "a silent GLM-4.5");
    lq_desc_free(&d);
    d = accepted(OF("Dots1ForCausalLM") ",\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_group\":4,\"topk_group\":1,"
                 "\"n_shared_experts\":3,\"routed_scaling_factor\":2.5,\"max_window_layers\":2}");
    moe = &d.layer[0].part[1];
    CHECK(moe->experts == 8 && moe->route_groups == 4 && moe->route_top_groups == 1 && moe->route_scale == 2.5f &&
          !moe->route_renorm && d.layer[0].part[2].ffn == 3 * 1408 && d.layer[0].part[0].window == 0 &&
          d.layer[2].part[0].window == 4096 && d.layer[0].part[0].qk_norm == LQ_QK_HEAD, "a dots.llm1");
    lq_desc_free(&d);
}

static void oss(void) {
    lq_desc d = accepted(OF("GptOssForCausalLM") "}");
    const lq_part *attn = &d.layer[0].part[0], *moe = &d.layer[0].part[1];
    const lq_rope *r = &d.rope[0];
    CHECK(attn->kv_heads == 8 && attn->head_dim == 64 && attn->sinks && attn->q_bias && attn->o_bias && d.ctx == 131072,
          "attention of a silent gpt-oss");
    CHECK(moe->experts == 128 && moe->experts_used == 4 && moe->act_alpha == 1.702f && moe->act_clamp == 7 &&
          moe->up_add == 1 && moe->router_bias && moe->expert_bias && moe->route == LQ_ROUTE_SOFTMAX_TOPK,
          "its experts");
    CHECK(attn->window == 128 && !d.layer[1].part[0].window && d.layer[2].part[0].window == 128, "every second layer");
    CHECK(r->kind == LQ_ROPE_YARN && r->theta == 150000 && r->factor == 32 && r->original_ctx == 4096 && !r->truncate &&
          r->dim == 64, "positions of a silent gpt-oss");
    lq_desc_free(&d);
    d = accepted(OF("GptOssForCausalLM") ",\"rope_theta\":7,\"rope_scaling\":null,\"swiglu_limit\":3,\"head_dim\":null}");
    CHECK(d.rope[0].kind == LQ_ROPE_YARN && d.rope[0].theta == 7 && d.layer[0].part[1].act_clamp == 3 &&
          d.layer[0].part[0].head_dim == 2, "a base without a scaling");
    lq_desc_free(&d);
}

// What no length and no factor may change: the keys beside a scaling that transformers does not ask.
static void ropes(void) {
    float freq[LQ_ROPE_DIM / 2], by;
    lq_desc d = accepted(OF("LlamaForCausalLM") ",\"head_dim\":4,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"attention_factor\":3}}");
    lq_rope_resolve(&d.rope[0], 100, freq, &by);
    CHECK(by == 1 && freq[0] == 0.5f, "linear: factor %g of cos and sin", (double)by);
    lq_desc_free(&d);
    d = accepted(OF("LlamaForCausalLM") ",\"head_dim\":4,\"max_position_embeddings\":64,\"rope_scaling\":{\"rope_type\":\"dynamic\","
                 "\"factor\":2,\"original_max_position_embeddings\":16}}");
    lq_rope_resolve(&d.rope[0], 64, freq, &by);
    CHECK(fabs((double)freq[1] - 0.01) < 1e-8, "dynamic: grows past max_position_embeddings, not before: %g",
          (double)freq[1]);
    lq_desc_free(&d);
}

// The share of a head that turns is a word of some models alone; a rope's own numbers go before those beside it.
static void shares(void) {
    static const struct { const char *config; int dim; double theta; int original; } rows[] = {
        {OF("LlamaForCausalLM") ",\"head_dim\":8,\"partial_rotary_factor\":0.5}", 8, 1e4, 2048},
        {OF("LlamaForCausalLM") ",\"head_dim\":8,\"rope_scaling\":{}}", 8, 1e4, 2048},
        {OF("LlamaForCausalLM") ",\"head_dim\":8,\"rope_theta\":7,\"rope_scaling\":{\"rope_theta\":9}}", 8, 9, 2048},
        {OF("LlamaForCausalLM") ",\"head_dim\":8,\"rope_parameters\":{\"rope_theta\":5},\"rope_scaling\":{\"rope_theta\":9}}",
         8, 9, 2048},
        {OF("Phi3ForCausalLM") ",\"head_dim\":8,\"partial_rotary_factor\":0.5}", 4, 1e4, 4096},
        {OF("GPTNeoXForCausalLM") ",\"head_dim\":32,\"partial_rotary_factor\":0.5,\"rope_theta\":7}", 8, 1e4, 2048},
        {OF("GPTNeoXForCausalLM") ",\"head_dim\":32,\"rotary_pct\":1,\"rotary_emb_base\":7}", 32, 7, 2048},
        {OF("Gemma3ForCausalLM") ",\"original_max_position_embeddings\":5}", 256, 1e6, 131072},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lq_desc d = accepted(rows[i].config);
        CHECK(d.rope[0].dim == rows[i].dim && d.rope[0].theta == rows[i].theta &&
              d.rope[0].original_ctx == rows[i].original, "%s: %d turn by %g, made for %d", rows[i].config,
              d.rope[0].dim, d.rope[0].theta, d.rope[0].original_ctx);
        lq_desc_free(&d);
    }
    lq_desc d = accepted(OF("SmolLM3ForCausalLM") ",\"sliding_window\":7,\"layer_types\":[\"full_attention\","
                         "\"sliding_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}");
    CHECK(d.layer[1].part[0].window == 7 && d.layer[3].part[0].window == 0, "layer_types without use_sliding_window");
    lq_desc_free(&d);
}

#define LONG "\"short_factor\":[1],\"long_factor\":[2]"
static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
        {OF("GraniteForCausalLM") ",\"residual_multiplier\":0}", "residual_multiplier"},
        {OF("GraniteForCausalLM") ",\"logits_scaling\":-1}", "logits_scaling"},
        {OF("GraniteForCausalLM") ",\"attention_multiplier\":\"1\"}", "attention_multiplier"},
        {OF("GraniteForCausalLM") ",\"embedding_multiplier\":null}", "multiplier"},
        {OF("SmolLM3ForCausalLM") ",\"no_rope_layers\":[1,0]}", "no_rope_layers"},
        {OF("SmolLM3ForCausalLM") ",\"no_rope_layers\":[1,0,1,1,\"1\"]}", "no_rope_layers"},
        {OF("SmolLM3ForCausalLM") ",\"no_rope_layer_interval\":0}", "no_rope_layer_interval"},
        {OF("Exaone4ForCausalLM") ",\"sliding_window_pattern\":\"LLLG\"}", "sliding_window_pattern"},
        {OF("Exaone4ForCausalLM") ",\"layer_types\":[\"chunked_attention\"]}", "chunked_attention"},
        {OF("Olmo2ForCausalLM") ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5e5}}}", "full_attention"},
        {OF("Olmo3ForCausalLM") ",\"sliding_window\":null}", "layer_types"},
        {OF("Gemma3ForCausalLM") ",\"sliding_window\":null}", "layer_types"},
        {OF("Olmo3ForCausalLM") ",\"rope_parameters\":{\"rope_theta\":5e5}}", "rope_theta"},
        {OF("HunYuanDenseV1ForCausalLM") ",\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":-3,\"factor\":1}}",
         "alpha"},
        {OF("MllamaForConditionalGeneration") "}", "MllamaForConditionalGeneration"},
        {OF("MllamaForConditionalGeneration") "}", "attend to images"},
        {TEXT("qwen9") "}}", "qwen9"},
        {TEXT("ministral3") ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4}}}", "llama_4_scaling_beta"},
        {OF("Qwen2MoeForCausalLM") ",\"mlp_only_layers\":3}", "mlp_only_layers"},
        {OF("Qwen2MoeForCausalLM") ",\"mlp_only_layers\":[\"3\"]}", "mlp_only_layers"},
        {OF("Qwen3MoeForCausalLM") ",\"decoder_sparse_step\":0}", "decoder_sparse_step"},
        {OF("Qwen3MoeForCausalLM") ",\"num_experts\":4,\"num_experts_per_tok\":5}", "num_experts_per_tok"},
        {OF("Qwen3MoeForCausalLM") ",\"num_experts\":4}", "num_experts_per_tok"},
        {OF("Qwen3MoeForCausalLM") ",\"num_experts\":1e6}", "num_experts"},
        {OF("GptOssForCausalLM") ",\"swiglu_limit\":null}", "swiglu_limit"},
        {OF("HeliumForCausalLM") ",\"num_key_value_heads\":4}", "head_dim 128"},
        {"{\"architectures\":[\"LlavaForConditionalGeneration\"],\"text_config\":{\"model_type\":\"opt\"}}", "opt"},
        {OF("BaichuanForCausalLM") ",\"z_loss_weight\":0,\"tie_word_embeddings\":true}", "Baichuan 2"},
        {OF("MiniCPMForCausalLM") ",\"num_experts\":8}", "num_experts"},
        {OF("MiniCPMForCausalLM") ",\"scale_depth\":null}", "scale_depth"},
        {OF("HunYuanMoEV1ForCausalLM") ",\"num_experts\":4,\"moe_topk\":[2,2,1,2,2]}", "moe_topk"},
        {OF("HunYuanMoEV1ForCausalLM") ",\"num_experts\":4,\"moe_topk\":[2]}", "moe_topk"},
        {OF("HunYuanMoEV1ForCausalLM") ",\"num_experts\":4,\"moe_topk\":5}", "moe_topk"},
        {OF("Dots1ForCausalLM") ",\"n_routed_experts\":8}", "num_experts_per_tok"},
        {OF("Glm4MoeForCausalLM") ",\"head_dim\":8,\"n_routed_experts\":9,\"n_group\":2}", "n_group"},
        {OF("OlmoeForCausalLM") ",\"clip_qkv\":-1}", "clip_qkv"},
        {OF("GraniteMoeForCausalLM") ",\"num_local_experts\":0}", "num_local_experts"},
        {OF("GraniteMoeSharedForCausalLM") ",\"shared_intermediate_size\":-1}", "shared_intermediate_size"},
        {OF("PhimoeForCausalLM") ",\"num_experts_per_tok\":3}", "num_experts_per_tok"},
        {OF("PhimoeForCausalLM") ",\"router_jitter_noise\":-1}", "router_jitter_noise"},
        {OF("PhimoeForCausalLM") ",\"rope_scaling\":{\"type\":\"longrope\"," LONG "}}", "short_mscale"},
        {OF("PhimoeForCausalLM") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "longrope"},
        {OF("Phi3ForCausalLM") ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}}", "longrope"},
        {OF("Glm4ForCausalLM") ",\"partial_rotary_factor\":0}", "partial_rotary_factor"},
        {OF("Ernie4_5ForCausalLM") ",\"use_bias\":2}", "use_bias"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

int main(void) {
    if (!config_begin()) return 1;
    silent();
    windows();
    keys();
    mixtures();
    eyes();
    ropes();
    shares();
    oss();
    texts();
    sigmoids();
    remote();
    refused();
    return config_end();
}
