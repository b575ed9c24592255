// test_arch_remote.c: config.json of decoders whose code came with their checkpoints, of some in Llama's shape and of
// text parts: what is taken where it is silent, and what is refused in one line that names it.
#include "tests/unit/config.h"

#define SIZES "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":200000"
#define OF(name) "{\"architectures\":[\"" name "\"]," SIZES
#define CHAT                                                                                                           \
    "{\"architectures\":[\"ChatGLMModel\"],\"hidden_size\":64,\"ffn_hidden_size\":160,\"num_layers\":2,\"num_attention_heads\":4," \
    "\"kv_channels\":8,\"padded_vocab_size\":300,\"multi_query_group_num\":2,\"vocab_size\":290"

static void llamas(void) {
    static const struct { const char *name; int kv_heads, head_dim, ctx; float eps; bool bias; } rows[] = {
        {"InternLMForCausalLM", 4, 16, 2048, 1e-6f, true}, {"InternLM3ForCausalLM", 2, 128, 32768, 1e-5f, false},
        {"IQuestCoderForCausalLM", 8, 128, 131072, 1e-5f, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[400];
        snprintf(config, sizeof config, "{\"architectures\":[\"%s\"],\"hidden_size\":64,\"intermediate_size\":160,"
                 "\"num_hidden_layers\":2,\"num_attention_heads\":%d,\"vocab_size\":9}", rows[i].name,
                 rows[i].kv_heads == 8 ? 8 : 4);
        lq_desc d = accepted(config);
        if (!d.layer) continue;
        const lq_part *attn = &d.layer[0].part[0];
        CHECK(attn->kv_heads == rows[i].kv_heads && attn->head_dim == rows[i].head_dim && d.ctx == rows[i].ctx &&
              d.norm_eps == rows[i].eps && attn->q_bias == rows[i].bias && attn->o_bias == rows[i].bias &&
              !d.layer[0].part[1].mlp_bias && !d.tied && d.bos == 1 && d.eos[0] == 2, "%s", rows[i].name);
        lq_desc_free(&d);
    }
    lq_desc d = accepted(OF("InternLM3ForCausalLM") ",\"qkv_bias\":true,\"bias\":false}");
    CHECK(d.layer[0].part[0].v_bias && !d.layer[0].part[0].o_bias && !d.layer[0].part[1].mlp_bias, "qkv_bias");
    lq_desc_free(&d);
    d = accepted(OF("InternLM3ForCausalLM") ",\"qkv_bias\":false,\"bias\":true}");
    CHECK(!d.layer[0].part[0].v_bias && d.layer[0].part[0].o_bias && d.layer[0].part[1].mlp_bias, "bias");
    lq_desc_free(&d);
    d = accepted(OF("InternLMForCausalLM") "}");
    CHECK(d.rope[0].kind == LQ_ROPE_DYNAMIC && d.rope[0].factor == 1, "a rope that grows");
    lq_desc_free(&d);
    d = accepted(OF("InternLMForCausalLM") ",\"rotary\":{\"type\":\"origin\",\"base\":7},\"bias\":false}");
    CHECK(d.rope[0].kind == LQ_ROPE_DEFAULT && d.rope[0].theta == 7 && !d.layer[0].part[0].q_bias, "origin");
    lq_desc_free(&d);
    d = accepted(OF("BaichuanForCausalLM") ",\"z_loss_weight\":0}");
    CHECK(d.head_unit && !d.tied, "Baichuan 2");
    lq_desc_free(&d);
    d = accepted(OF("BaichuanForCausalLM") "}");
    CHECK(!d.head_unit, "Baichuan 1");
    lq_desc_free(&d);
    d = accepted(OF("ApertusForCausalLM") ",\"rope_theta\":5}");
    CHECK(d.rope[0].kind == LQ_ROPE_LLAMA3 && d.rope[0].theta == 12e6 && d.rope[0].factor == 8 &&
          d.rope[0].original_ctx == 8192 && d.rope[0].dim == 16 && d.ctx == 65536, "positions of a silent Apertus");
    CHECK(d.layer[0].part[1].act == LQ_XIELU && !d.layer[0].part[1].gated && d.layer[0].part[0].qk_norm == LQ_QK_HEAD &&
          d.norm_eps == 1e-5f && d.eos[0] == 2, "Apertus");
    lq_desc_free(&d);
    d = accepted(OF("ApertusForCausalLM") ",\"hidden_act\":\"relu2\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    CHECK(d.layer[0].part[1].act == LQ_RELU2 && d.rope[0].kind == LQ_ROPE_LINEAR && d.rope[0].theta == 12e6, "another");
    lq_desc_free(&d);
    d = accepted(OF("NanoChatForCausalLM") "}");
    CHECK(d.norm_bare && d.embed_norm && d.rope[0].backward && d.logit_softcap == 15 && !d.layer[0].part[1].gated &&
          d.layer[0].part[1].act == LQ_RELU2 && d.bos == 0 && d.eos[0] == 1, "NanoChat");
    lq_desc_free(&d);
    d = accepted(OF("Jais2ForCausalLM") "}");
    CHECK(d.norm == LQ_NORM_LAYER && d.norm_bias && d.ctx == 8192 && d.layer[0].part[0].o_bias &&
          d.layer[0].part[1].mlp_bias && d.layer[0].part[1].act == LQ_RELU2 && !d.layer[0].part[1].gated &&
          d.eos[0] == 150024 && d.rope[0].dim == 16, "Jais 2");
    lq_desc_free(&d);
    d = accepted(OF("OrionForCausalLM") ",\"rms_norm_eps\":0.25}");
    CHECK(d.norm == LQ_NORM_LAYER && d.norm_bias && d.norm_eps == 0.25f && d.ctx == 4096 && !d.tied &&
          d.layer[0].part[1].gated && d.layer[0].part[1].act == LQ_SILU && !d.layer[0].part[0].q_bias, "Orion");
    lq_desc_free(&d);
    d = accepted(OF("VaultGemmaForCausalLM") "}");
    CHECK(d.layer[0].part[0].place == LQ_PRE && d.layer[0].part[1].place == LQ_PRE && d.norm_plus_one && d.tied &&
          d.layer[0].part[0].window == 4096 && !d.layer[1].part[0].window && d.logit_softcap == 30, "VaultGemma");
    lq_desc_free(&d);
}

static void biogpt(void) {
    lq_desc d = accepted(OF("BioGptForCausalLM") ",\"layer_norm_eps\":1e-12}");
    CHECK(d.tied && d.positions == 1024 && d.position_first == 2 && d.embed_scale == 8 && d.norm_eps == 1e-5f &&
          d.layer[0].part[1].act == LQ_GELU && !d.layer[0].part[1].gated && d.bos == 0 && d.eos[0] == 2, "BioGPT");
    lq_desc_free(&d);
    d = accepted(OF("BioGptForCausalLM") ",\"scale_embedding\":false,\"hidden_act\":\"relu\"}");
    CHECK(d.embed_scale == 1 && d.layer[0].part[1].act == LQ_RELU, "one that is not scaled");
    lq_desc_free(&d);
}

static void glm_and_qwen(void) {
    lq_desc d = accepted(CHAT "}");
    const lq_part *attn = &d.layer[0].part[0], *mlp = &d.layer[0].part[1];
    CHECK(d.vocab == 300 && d.ctx == 2048 && attn->heads == 4 && attn->kv_heads == 2 && attn->head_dim == 8 &&
          attn->qkv == LQ_QKV_ROWS && !attn->q_bias && mlp->ffn == 160 && mlp->gate_up && !d.tied, "ChatGLM");
    CHECK(d.rope[0].dim == 4 && d.rope[0].interleaved && d.rope[0].theta == 1e4 && d.norm_eps == 1e-5f, "its rope");
    lq_desc_free(&d);
    d = accepted(CHAT ",\"rope_ratio\":500,\"add_qkv_bias\":true,\"seq_length\":131072}");
    CHECK(d.rope[0].theta == 5e6 && d.layer[0].part[0].k_bias && d.ctx == 131072, "GLM-4");
    lq_desc_free(&d);
    d = accepted(OF("QWenLMHeadModel") ",\"kv_channels\":16,\"seq_length\":2048}");
    CHECK(d.layer[0].part[1].ffn == 80 && d.layer[0].part[0].q_bias && !d.layer[0].part[0].o_bias && d.ctx == 2048 &&
          d.ctx_most == 2048 && d.norm_eps == 1e-6f && d.eos[0] == 151643, "Qwen 1");
    lq_desc_free(&d);
    d = accepted(OF("QWenLMHeadModel") ",\"kv_channels\":16,\"use_logn_attn\":false,\"use_dynamic_ntk\":false}");
    CHECK(d.ctx == 8192 && !d.ctx_most, "a Qwen 1 that does not change with the length");
    lq_desc_free(&d);
}

#define TEXT(name, config) "{\"architectures\":[\"" name "ForConditionalGeneration\"],\"text_config\":{" config "}}"
#define VOXTRAL SIZES ",\"num_key_value_heads\":4,\"head_dim\":16,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":99"
static void texts(void) {
    static const struct { const char *config; int kv_heads, vocab, ffn; bool q_bias, o_bias; } rows[] = {
        {TEXT("Qwen2Audio", ""), 32, 151936, 22016, true, false}, {TEXT("Ovis2", ""), 32, 151936, 22016, true, false},
        {TEXT("FastVlm", ""), 32, 151936, 22016, true, false},
        {TEXT("LightOnOcr", ""), 32, 151936, 22016, false, false},
        {TEXT("Cohere2Vision", "\"num_key_value_heads\":8"), 8, 256000, 22528, false, false},
        {TEXT("Granite4Vision", ""), 32, 32000, 11008, false, false},
        {TEXT("LlavaNext", "\"model_type\":\"granite\""), 32, 32000, 11008, false, false},
        {TEXT("Idefics2", ""), 8, 32000, 14336, false, false}, {TEXT("VideoLlava", ""), 32, 32000, 11008, false, false},
        {TEXT("Glm4v", ""), 2, 151552, 13696, true, false}, {TEXT("Glm46V", ""), 2, 151552, 13696, true, false},
        {TEXT("Voxtral", VOXTRAL ",\"rope_theta\":1e8"), 4, 200000, 160, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lq_desc d = accepted(rows[i].config);
        if (!d.layer) continue;
        const lq_part *attn = &d.layer[0].part[0];
        CHECK(attn->kv_heads == rows[i].kv_heads && d.vocab == rows[i].vocab && d.layer[0].part[1].ffn == rows[i].ffn &&
              attn->q_bias == rows[i].q_bias && attn->o_bias == rows[i].o_bias, "%s: %d, %d, %d", rows[i].config,
              attn->kv_heads, d.vocab, d.layer[0].part[1].ffn);
        lq_desc_free(&d);
    }
    lq_desc d = accepted(TEXT("Glm4v", "\"rope_scaling\":{\"type\":\"default\",\"mrope_section\":[8,12,12]},\"partial_rotary_factor\":0.5"));
    CHECK(d.rope[0].dim == 64 && d.rope[0].interleaved && d.layer[0].part[0].place == LQ_SANDWICH && d.ctx == 32768,
          "GLM-4.1V: %d turn", d.rope[0].dim);
    lq_desc_free(&d);
}

static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
        {OF("PaliGemmaForConditionalGeneration") "}", "both directions"}, {OF("Gemma3nForCausalLM") "}", "residuals"},
        {OF("BitNetForCausalLM") "}", "BitNetForCausalLM"},
        {"{\"architectures\":[\"ChatGLMModel\"],\"num_layers\":28,\"vocab_size\":130528}", "padded_vocab_size"},
        {CHAT ",\"add_bias_linear\":true}", "add_bias_linear"}, {CHAT ",\"rmsnorm\":false}", "rmsnorm"},
        {CHAT ",\"multi_query_attention\":false}", "multi_query_attention"}, {CHAT ",\"rope_ratio\":null}", "rope_ratio"},
        {CHAT ",\"rope_ratio\":16,\"_name_or_path\":\"THUDM/chatglm2-6b-32k\"}", "chatglm2-6b-32k"},
        {OF("QWenLMHeadModel") ",\"no_bias\":false}", "no_bias"},
        {OF("QWenLMHeadModel") ",\"num_key_value_heads\":2}", "num_key_value_heads 2"},
        {OF("InternLMForCausalLM") ",\"rotary\":{\"type\":\"yarn\"}}", "yarn"},
        {OF("InternLMForCausalLM") ",\"rotary\":{\"base\":-1}}", "base -1"},
        {OF("IQuestCoderForCausalLM") ",\"num_key_value_heads\":4,\"clip_qkv\":3}", "clip_qkv"},
        {OF("IQuestCoderForCausalLM") ",\"num_key_value_heads\":4,\"use_sliding_window\":true}", "use_sliding_window"},
        {TEXT("Voxtral", VOXTRAL), "rope_theta is missing"}, {TEXT("Voxtral", SIZES), "num_key_value_heads is missing"},
        {TEXT("Glm4v", "\"head_dim\":7"), "head_dim 7"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

int main(void) {
    if (!config_begin()) return 1;
    llamas();
    glm_and_qwen();
    biogpt();
    texts();
    refused();
    return config_end();
}
