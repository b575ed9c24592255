// test_arch_moe.c: config.json of mixtures of experts, from strangers: what transformers takes where it is silent,
// which layers have experts, every key that changes a result read, or refused in one line that names it.
#include "tests/unit/config.h"
#include <math.h>

#define SIZES "\"hidden_size\":256,\"intermediate_size\":160,\"num_hidden_layers\":5,\"num_attention_heads\":32,\"vocab_size\":200000"
#define OF(name) "{\"architectures\":[\"" name "\"]," SIZES

// What the configuration classes of transformers have as defaults.
static void silent(void) {
    static const struct {
        const char *name;
        int kv_heads, head_dim, ctx; // of the last layer
        float eps;
        double theta;
        bool tied;
        int experts, used, ffn, shared, dense; // width of what all rows share, layers with an MLP
        lq_route_kind route;
        bool bias, renorm;
        float scale;
        int bos, eos;
    } rows[] = {
        {"Ernie4_5_MoeForCausalLM", 4, 8, 131072, 1e-5f, 5e5, true, 64, 6, 1536, 3072, 1, LQ_ROUTE_SOFTMAX, true, true,
         0, 1, 2},
        {"Ernie4_5_VLMoeForConditionalGeneration", 4, 8, 131072, 1e-5f, 5e5, true, 64, 6, 1536, 3072, 1,
         LQ_ROUTE_SOFTMAX, true, true, 0, -1, -1},
        {"SolarOpenForCausalLM", 8, 128, 131072, 1e-5f, 1e6, false, 128, 8, 1280, 1280, 0, LQ_ROUTE_SIGMOID, true, true,
         1, -1, -1},
        {"Glm4vMoeForConditionalGeneration", 8, 8, 65536, 1e-5f, 1e4, false, 128, 8, 1408, 1408, 1, LQ_ROUTE_SIGMOID,
         true, true, 1, -1, -1},
        {"ExaoneMoEForCausalLM", 32, 8, 2048, 1e-5f, 1e4, false, 64, 8, 1024, 1024, 1, LQ_ROUTE_SIGMOID, true, true,
         2.5f, 1, 53},
        {"HYV3ForCausalLM", 8, 128, 131072, 1e-5f, 11158840, false, 192, 8, 1536, 1536, 1, LQ_ROUTE_SIGMOID, true, true,
         2.826f, -1, -1},
        {"AfmoeForCausalLM", 32, 128, 16384, 1e-5f, 1e4, false, 64, 6, 1408, 2816, 1, LQ_ROUTE_SIGMOID, true, true, 1,
         -1, -1},
        {"Cohere2MoeForCausalLM", 32, 128, 8192, 1e-5f, 1e4, true, 8, 2, 160, 0, 0, LQ_ROUTE_SOFTMAX_TOPK, false, false,
         0, 5, -1},
        {"MiMoV2FlashForCausalLM", 8, 192, 131072, 1e-5f, 5e6, false, 256, 8, 2048, 0, 1, LQ_ROUTE_SIGMOID, true, true,
         1, 1, -1},
        {"Llama4ForCausalLM", 8, 128, 131072, 1e-5f, 5e5, false, 16, 1, 160, 160, 0, LQ_ROUTE_SIGMOID, false, false, 0,
         1, 2},
        {"MiniMaxM2ForCausalLM", 8, 128, 196608, 1e-6f, 5e6, false, 256, 8, 160, 0, 0, LQ_ROUTE_SIGMOID, true, true, 1,
         -1, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[512];
        snprintf(config, sizeof config, OF("%s") "}", rows[i].name);
        lq_desc d = accepted(config);
        if (!d.layer) continue;
        const lq_layer *l = &d.layer[d.layers - 1];
        const lq_part *attn = &l->part[0], *moe = &l->part[1];
        int dense = 0;
        for (int k = 0; k < d.layers; k++) dense += d.layer[k].part[1].kind == LQ_P_MLP;
        CHECK(attn->kv_heads == rows[i].kv_heads && attn->head_dim == rows[i].head_dim && d.ctx == rows[i].ctx &&
              d.norm_eps == rows[i].eps && d.rope[0].theta == rows[i].theta && d.tied == rows[i].tied &&
              d.bos == rows[i].bos && d.eos[0] == (rows[i].eos < 0 ? 0 : rows[i].eos), "%s: %d KV heads of %d, context "
              "%d, eps %g, theta %g, tied %d, begin %d, end %d", rows[i].name, attn->kv_heads, attn->head_dim, d.ctx,
              (double)d.norm_eps, d.rope[0].theta, d.tied, d.bos, d.eos[0]);
        CHECK(moe->kind == LQ_P_MOE && moe->experts == rows[i].experts && moe->experts_used == rows[i].used &&
              moe->ffn == rows[i].ffn && (l->parts > 2 ? l->part[2].ffn : 0) == rows[i].shared &&
              dense == rows[i].dense, "%s: %d of %d experts of %d beside %d, %d layers with an MLP", rows[i].name,
              moe->experts_used, moe->experts, moe->ffn, l->parts > 2 ? l->part[2].ffn : 0, dense);
        CHECK(moe->route == rows[i].route && moe->route_bias == rows[i].bias && moe->route_renorm == rows[i].renorm &&
              moe->route_scale == rows[i].scale, "%s: route %d, bias %d, renorm %d, scale %g", rows[i].name, moe->route,
              moe->route_bias, moe->route_renorm, (double)moe->route_scale);
        lq_desc_free(&d);
    }
}

#define TYPES(last) "\"mlp_layer_types\":[\"dense\",\"sparse\",\"sparse\",\"sparse\",\"" last "\"]"
// Which layers have experts, as a row of letters.
static void layers(void) {
    static const char *const rows[][2] = {
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_start_index\":0}", "eeeee"},
        {OF("Ernie4_5_MoEForCausalLM") ",\"moe_layer_end_index\":2}", "deedd"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_start_index\":2,\"moe_layer_interval\":2}", "ddded"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_start_index\":9}", "ddddd"},
        {OF("Ernie4_5_VLMoeForConditionalGeneration") ",\"moe_layer_start_index\":[2,1]}", "ddeee"},
        {OF("Ernie4_5_VLMoeForConditionalGeneration") ",\"moe_layer_start_index\":[2,1]," TYPES("dense") "}", "deeed"},
        {OF("ExaoneMoeForCausalLM") ",\"first_k_dense_replace\":3}", "dddee"},
        {OF("ExaoneMoeForCausalLM") ",\"first_k_dense_replace\":3," TYPES("dense") "}", "deeed"},
        {OF("Cohere2MoeForCausalLM") ",\"first_k_dense_replace\":2}", "ddeee"},
        {OF("HYV3ForCausalLM") ",\"first_k_dense_replace\":3," TYPES("sparse") "}", "deeee"},
        {OF("SolarOpenForCausalLM") ",\"first_k_dense_replace\":3}", "eeeee"},
        {OF("Llama4ForCausalLM") ",\"interleave_moe_layer_step\":2}", "deded"},
        {OF("Llama4ForCausalLM") ",\"interleave_moe_layer_step\":2,\"moe_layers\":[0,4,9]}", "eddde"},
        {OF("Llama4ForCausalLM") ",\"moe_layers\":[]}", "ddddd"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lq_desc d = accepted(rows[i][0]);
        char seen[6] = "";
        for (int l = 0; l < d.layers && l < 5; l++) seen[l] = d.layer[l].part[1].kind == LQ_P_MOE ? 'e' : 'd';
        CHECK(!strcmp(seen, rows[i][1]), "%s: %s, expected %s", rows[i][0], seen, rows[i][1]);
        lq_desc_free(&d);
    }
}

static void keys(void) {
    lq_desc d = accepted(OF("Ernie4_5_MoeForCausalLM") ",\"use_bias\":true,\"moe_num_shared_experts\":0,\"head_dim\":8,"
                         "\"tie_word_embeddings\":false,\"moe_num_experts\":4}");
    CHECK(d.layer[0].part[1].mlp_bias && d.layer[0].part[0].o_bias && d.head_bias && !d.layer[1].part[1].mlp_bias &&
          d.layer[1].parts == 2 && d.layer[1].part[1].experts_used == 4 && d.rope[0].interleaved, "ERNIE with biases");
    lq_desc_free(&d);
}

static void mimo(void) {
    lq_desc d = accepted(OF("MiMoV2FlashForCausalLM") ",\"attention_value_scale\":null,"
                         "\"sliding_window_size\":128,\"sliding_window\":7,\"routed_scaling_factor\":null}");
    const lq_part *all = &d.layer[0].part[0], *near = &d.layer[1].part[0];
    CHECK(all->kv_heads == 4 && all->v_dim == 128 && !all->sinks && !all->window && all->rope == 0 &&
          all->v_scale == 0 && d.rope[0].dim == 64, "a layer that sees all: %d turn", d.rope[0].dim);
    CHECK(near->kv_heads == 8 && near->sinks && near->window == 129 && near->rope == 1 && d.rope[1].theta == 10000 &&
          d.layer[1].part[1].route_scale == 1, "a layer with a window");
    lq_desc_free(&d);
}

static void cohere(void) {
    lq_desc d = accepted(OF("Cohere2MoeForCausalLM") ",\"first_k_dense_replace\":2,\"num_shared_experts\":3,"
                         "\"prefix_dense_intermediate_size\":48,\"sliding_window_pattern\":2,\"expert_selection_fn\":\"sigmoid\"}");
    const lq_layer *l = d.layer;
    CHECK(l[0].part[1].ffn == 48 && l[0].part[1].scale == 0 && l[2].part[1].ffn == 160 && l[2].part[2].ffn == 480 &&
          l[2].part[1].scale == 0.5f && l[2].part[2].scale == 0.5f && l[2].part[1].route == LQ_ROUTE_SIGMOID &&
          l[2].part[1].route_renorm && l[2].part[1].beside && d.norm == LQ_NORM_LAYER, "Cohere's mixture");
    CHECK(!l[0].part[0].window && l[0].part[0].rope == 0 && l[2].part[0].window == 4096 && !l[3].part[0].window &&
          l[3].part[0].rope < 0, "its layers: those with an MLP see all and turn");
    lq_desc_free(&d);
    d = accepted(OF("Cohere2MoeForCausalLM") ",\"first_k_dense_replace\":2,\"prefix_dense_sliding_window_pattern\":2,"
                 "\"rms_norm_eps\":1e-3,\"num_shared_experts\":1,\"shared_expert_combination_strategy\":\"sum\"}");
    CHECK(d.layer[0].part[0].window == 4096 && d.layer[1].part[0].rope < 0 && d.layer[2].part[1].scale == 0 &&
          d.norm == LQ_NORM_RMS && d.norm_eps == 1e-3f, "Cohere's mixture with RMS norms");
    lq_desc_free(&d);
}

static void llama4(void) {
    lq_desc d = accepted(OF("Llama4ForCausalLM") ",\"no_rope_layers\":[],\"moe_layers\":[1]}");
    const lq_part *near = &d.layer[0].part[0], *far = &d.layer[3].part[0];
    CHECK(near->rope == 0 && near->chunk == 8192 && near->window == 8192 && near->qk_norm == LQ_QK_BARE &&
          near->qk_norm_late && d.rope[0].interleaved, "a layer that turns");
    CHECK(far->rope == 1 && !far->chunk && !far->window && far->qk_norm == LQ_QK_PLAIN &&
          d.rope[1].kind == LQ_ROPE_NONE && d.rope[1].q_beta == 0.1 && d.rope[1].original_ctx == 8192 &&
          d.rope[1].q_ahead == 1, "a layer that does not");
    CHECK(d.layer[0].part[1].ffn == 16384 && d.layer[1].part[1].ffn == 160 && d.layer[1].part[2].ffn == 160 &&
          d.layer[1].part[1].weigh_input && !d.layer[1].part[1].expert_across && d.groups == 2, "its MLPs");
    lq_desc_free(&d);
    d = accepted(OF("Llama4ForCausalLM") ",\"no_rope_layers\":[0,1,1,0,1,1],\"attn_temperature_tuning\":0,\"layer_types\":"
                 "[\"chunked_attention\",\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"],"
                 "\"attention_chunk_size\":7,\"use_qk_norm\":false}");
    CHECK(d.layer[0].part[0].rope < 0 && d.layer[0].part[0].chunk == 7 && d.layer[1].part[0].rope == 0 &&
          !d.layer[1].part[0].chunk && d.layer[1].part[0].qk_norm == LQ_QK_PLAIN && d.ropes == 1, "lists of layers");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"Llama4ForConditionalGeneration\"],\"text_config\":{\"attn_temperature_tuning\":4}}");
    CHECK(d.dim == 5120 && d.layers == 48 && d.layer[0].part[0].heads == 40 && d.vocab == 202048 && d.ropes == 2 &&
          d.layer[0].part[1].ffn == 8192, "a silent text part");
    lq_desc_free(&d);
    float f[4], by;
    const lq_rope r = {.kind = LQ_ROPE_LLAMA3, .dim = 8, .theta = 10000, .factor = 16, .low_factor = 1,
                       .high_factor = 1, .original_ctx = 64};
    lq_rope_resolve(&r, 64, f, &by);
    CHECK(f[0] == 1 && f[1] == 0.1f && fabsf(f[2] - 0.01f / 16) < 1e-9f, "llama3 with a border and no ramp");
}

#define ATTEND "\"layer_types\":[\"attention\",\"full_attention\",\"attention\",\"attention\",\"attention\"]"
// As the first configs are: flat, with lists of what is for text and what for images.
static void ernie(void) {
    lq_desc d = accepted(OF("Ernie4_5_VL_MoeForConditionalGeneration") ",\"moe_num_experts\":[8,4],\"moe_k\":2,"
                         "\"moe_intermediate_size\":[48,16],\"moe_layer_end_index\":[29,28],\"use_bias\":true,"
                         "\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[22,22,20]}}");
    const lq_part *moe = &d.layer[1].part[1];
    CHECK(moe->experts == 8 && moe->ffn == 48 && d.layer[1].part[2].ffn == 96 && !d.head_bias && !moe->router_across &&
          moe->route_bias_of == 1 && d.rope[0].interleaved, "an ERNIE with eyes");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"Ernie4_5_VLMoeForConditionalGeneration\"],\"text_config\":{}}");
    CHECK(d.dim == 2560 && d.layers == 28 && d.layer[0].part[0].heads == 20 && d.vocab == 103424, "a silent one");
    lq_desc_free(&d);
    d = accepted(OF("Ernie4_5_ForCausalLM") "}");
    CHECK(d.layer[0].parts == 2 && d.layer[0].part[0].head_dim == 128, "the dense one as it was first spelt");
    lq_desc_free(&d);
}

static void families(void) {
    lq_desc d = accepted("{\"architectures\":[\"SolarOpenForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,"
                         "\"num_attention_heads\":8,\"vocab_size\":260,\"partial_rotary_factor\":0.5}");
    CHECK(d.layer[0].part[1].ffn == 1280 && d.rope[0].dim == 64, "Solar Open without intermediate_size");
    lq_desc_free(&d);
    d = accepted(OF("MiniMaxM2ForCausalLM") ",\"rotary_dim\":64,\"attention_bias\":true}");
    CHECK(d.rope[0].dim == 64 && d.layer[0].part[0].qk_norm == LQ_QK_WHOLE && !d.layer[0].part[0].q_bias &&
          d.layer[0].parts == 2, "MiniMax-M2: %d turn", d.rope[0].dim);
    lq_desc_free(&d);
    d = accepted(OF("ExaoneMoEForCausalLM") ",\"sliding_window\":7,\"sliding_window_pattern\":2}");
    CHECK(d.layer[0].part[0].window == 7 && d.layer[0].part[0].rope == 0 && d.layer[1].part[0].rope < 0 &&
          d.layer[1].part[0].place == LQ_PRE, "K-EXAONE's layers");
    lq_desc_free(&d);
    d = accepted(OF("AfmoeForCausalLM") ",\"mup_enabled\":true,\"num_dense_layers\":2}");
    const lq_layer *l = d.layer;
    CHECK(d.embed_scale == 16 && l[0].part[0].attn_gate && l[0].part[1].place == LQ_SANDWICH && l[0].parts == 2 &&
          l[2].part[1].place == LQ_PRE && l[2].part[2].place == LQ_SUM && l[2].part[0].place == LQ_SANDWICH,
          "AFMoE's norms");
    CHECK(l[2].part[0].window == 1024 && l[2].part[0].rope == 0 && l[3].part[0].window == 0 && l[3].part[0].rope < 0 &&
          l[0].part[0].qk_norm == LQ_QK_HEAD, "AFMoE's layers");
    lq_desc_free(&d);
    d = accepted(OF("GraniteMoeHybridForCausalLM") "," ATTEND ",\"num_local_experts\":0}");
    CHECK(d.layer[0].parts == 2 && d.layer[0].part[1].kind == LQ_P_MLP && d.layer[0].part[1].ffn == 1024 && !d.ropes &&
          d.layer[4].part[0].rope < 0, "Granite 4.0 without experts and positions");
    lq_desc_free(&d);
    d = accepted(OF("GraniteMoeHybridForCausalLM") "," ATTEND ",\"position_embedding_type\":\"rope\"}");
    CHECK(d.layer[0].parts == 3 && d.layer[0].part[1].experts == 8 && d.ropes == 1, "Granite 4.0 with both");
    lq_desc_free(&d);
}

static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_num_experts\":[64,64]}", "moe_num_experts"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_k\":0}", "moe_k"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_num_experts\":4,\"moe_k\":5}", "moe_k"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_interval\":0}", "moe_layer_interval"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_norm_min\":0.1}", "moe_norm_min"},
        {OF("Ernie4_5_VLMoeForConditionalGeneration") ",\"moe_num_experts\":[]}", "moe_num_experts"},
        {OF("Ernie4_5_VLMoeForConditionalGeneration") ",\"moe_intermediate_size\":[\"1\"]}", "moe_intermediate_size"},
        {OF("Ernie4_5_VLMoeForConditionalGeneration") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "scaling"},
        {OF("ExaoneMoEForCausalLM") ",\"mlp_layer_types\":[\"dense\"]}", "mlp_layer_types"},
        {OF("HYV3ForCausalLM") "," TYPES("odd") "}", "mlp_layer_types"},
        {OF("HYV3ForCausalLM") ",\"mlp_layer_types\":7}", "mlp_layer_types"},
        {OF("HYV3ForCausalLM") ",\"router_scaling_factor\":null}", "router_scaling_factor"},
        {OF("SolarOpenForCausalLM") ",\"n_routed_experts\":9,\"n_group\":2}", "n_group"},
        {OF("MiniMaxM2ForCausalLM") ",\"num_local_experts\":4,\"num_experts_per_tok\":5}", "num_experts_per_tok"},
        {OF("MiniMaxM2ForCausalLM") ",\"rotary_dim\":129}", "rotary_dim"},
        {OF("ExaoneMoEForCausalLM") ",\"sliding_window_pattern\":\"LLLG\"}", "sliding_window_pattern"},
        {OF("MiMoV2FlashForCausalLM") ",\"num_key_value_heads\":32}", "num_key_value_heads"},
        {OF("MiMoV2FlashForCausalLM") ",\"v_head_dim\":0}", "v_head_dim"},
        {OF("MiMoV2FlashForCausalLM") ",\"attention_value_scale\":-1}", "attention_value_scale"},
        {OF("MiMoV2FlashForCausalLM") ",\"rope_parameters\":{\"rope_theta\":5}}", "full_attention"},
        {OF("MiMoV2FlashForCausalLM") ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"yarn\"}}}", "default"},
        {OF("Cohere2MoeForCausalLM") ",\"expert_selection_fn\":\"odd\"}", "expert_selection_fn"},
        {OF("Cohere2MoeForCausalLM") ",\"shared_expert_combination_strategy\":3}", "shared_expert_combination_strategy"},
        {OF("Cohere2MoeForCausalLM") ",\"sliding_window\":null}", "sliding_window"},
        {OF("Cohere2MoeForCausalLM") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}", "rope_parameters"},
        {OF("Cohere2MoeForCausalLM") ",\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {OF("AfmoeForCausalLM") ",\"sliding_window\":null}", "sliding_window"},
        {OF("AfmoeForCausalLM") ",\"global_attn_every_n_layers\":0}", "global_attn_every_n_layers"},
        {OF("AfmoeForCausalLM") ",\"route_scale\":0}", "route_scale"},
        {OF("Llama4ForCausalLM") ",\"attention_chunk_size\":null}", "attention_chunk_size"},
        {OF("Llama4ForCausalLM") ",\"no_rope_layers\":[1,0]}", "no_rope_layers"},
        {OF("Llama4ForCausalLM") ",\"no_rope_layers\":7}", "no_rope_layers"},
        {OF("Llama4ForCausalLM") ",\"layer_types\":[\"chunked_attention\"]}", "layer_types"},
        {OF("Llama4ForCausalLM") ",\"layer_types\":7}", "layer_types"},
        {OF("Llama4ForCausalLM") ",\"moe_layers\":{}}", "moe_layers"},
        {OF("Llama4ForCausalLM") ",\"moe_layers\":[\"1\"]}", "moe_layers"},
        {OF("Llama4ForCausalLM") ",\"floor_scale\":0}", "floor_scale"},
        {OF("Llama4ForCausalLM") ",\"attn_temperature_tuning\":\"yes\"}", "attn_temperature_tuning"},
        {OF("GraniteMoeHybridForCausalLM") "}", "mamba"},
        {OF("GraniteMoeHybridForCausalLM") ",\"layer_types\":[\"attention\",\"mamba\"]}", "mamba"},
        {OF("GraniteMoeHybridForCausalLM") ",\"layer_types\":[\"attention\"]}", "layer_types"},
        {OF("GraniteMoeHybridForCausalLM") "," ATTEND ",\"shared_intermediate_size\":0}", "shared_intermediate_size"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

int main(void) {
    if (!config_begin()) return 1;
    silent();
    layers();
    keys();
    ernie();
    families();
    mimo();
    cohere();
    llama4();
    refused();
    return config_end();
}
