// test_arch.c: config.json from strangers. What makes no sense is refused in one line that names the key; what
// transformers accepts is read as it reads it: absent and null keys, both spellings of rope, lists of end tokens.
#include "tests/unit/config.h"

#define SIZES "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":260"
// A name that is spelt in full, and heads enough for what each takes in silence.
#define OF(arch, hidden) "\"architectures\":[\"" arch "\"],\"intermediate_size\":160,\"num_hidden_layers\":7," \
    "\"num_attention_heads\":16,\"vocab_size\":260,\"hidden_size\":" hidden
#define GEMMA_OF(hidden) OF("GemmaForCausalLM", hidden)
#define GEMMA GEMMA_OF("64")
#define GEMMA2 OF("Gemma2ForCausalLM", "64")
#define GEMMA4 "\"architectures\":[\"Gemma4ForCausalLM\"]"
#define S "\"sliding_attention\""
#define F "\"full_attention\""
#define GEMMA3 OF("Gemma3ForCausalLM", "64")
#define SIGHT "\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":{\"hidden_size\":64," \
    "\"intermediate_size\":160,\"num_hidden_layers\":2"
#define QWEN3 "\"architectures\":[\"Qwen3ForCausalLM\"],\"intermediate_size\":160,\"num_hidden_layers\":2," \
    "\"num_attention_heads\":32,\"vocab_size\":260,\"hidden_size\":64"
#define LLAMA "\"architectures\":[\"LlamaForCausalLM\"]," SIZES

static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
        {"", "config.json"}, {"[]", "config.json"}, {"{", "config.json"}, {"{}", "architectures"},
        {"{\"architectures\":[]}", "architectures"}, {"{\"architectures\":[\"Nobody\"]," SIZES "}", "Nobody"},
        {"{\"architectures\":[\"LlamaForCasualLM\"]," SIZES "}", "nearest are LlamaForCausalLM, Llama4ForCausalLM, "},
        {"{\"architectures\":[\"Gemma7ForCausalLM\"]," SIZES "}",
         "nearest are GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM"},
        {"{\"architectures\":[7]}", "architectures"},
        {"{\"architectures\":[\"LlamaForCausalLM\"]}", "hidden_size"},
        {"{" LLAMA ",\"hidden_size\":64}", "hidden_size"},
        {"{" LLAMA ",\"num_key_value_heads\":3}", "num_key_value_heads"},
        {"{" LLAMA ",\"num_key_value_heads\":0}", "num_key_value_heads"},
        {"{" LLAMA ",\"num_key_value_heads\":-4}", "num_key_value_heads"},
        {"{" LLAMA ",\"num_key_value_heads\":\"2\"}", "num_key_value_heads"},
        {"{" LLAMA ",\"head_dim\":0}", "head_dim"}, {"{" LLAMA ",\"head_dim\":15}", "rotary"},
        {"{" LLAMA ",\"head_dim\":1e9}", "head_dim"},
        {"{" LLAMA ",\"head_dim\":16.5}", "head_dim"}, {"{" LLAMA ",\"max_position_embeddings\":0}",
                                                        "max_position_embeddings"},
        {"{" LLAMA ",\"max_position_embeddings\":99999999999}", "max_position_embeddings"},
        {"{" LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps"}, {"{" LLAMA ",\"rms_norm_eps\":-1e-5}", "rms_norm_eps"},
        {"{" LLAMA ",\"rms_norm_eps\":2}", "rms_norm_eps"}, {"{" LLAMA ",\"rope_theta\":0}", "rope_theta"},
        {"{" LLAMA ",\"rope_theta\":-1}", "rope_theta"}, {"{" LLAMA ",\"rope_theta\":\"big\"}", "rope_theta"},
        {"{" LLAMA ",\"rope_scaling\":\"x\"}", "rope_scaling"}, {"{" LLAMA ",\"rope_scaling\":[1]}", "rope_scaling"},
        {"{" LLAMA ",\"rope_parameters\":7}", "rope_parameters"},
        {"{" LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5e5}}}", "full_attention"},
        {"{" LLAMA ",\"rope_scaling\":{\"factor\":2}}", "rope_type"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"odd\"}}", "odd"},
        {"{" LLAMA ",\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}}",
         "partial_rotary_factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", "factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":0}}", "factor"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", "original_max_position_embeddings"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"original_max_position_embeddings\":32,"
         "\"low_freq_factor\":4,\"high_freq_factor\":1}}", "low"},
        {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}}",
         "short_factor"},
        {"{" LLAMA ",\"rope_interleaved\":true}", "rope_interleaved"}, {"{" LLAMA ",\"hidden_act\":\"odd\"}", "odd"},
        {"{" LLAMA ",\"hidden_act\":3}", "hidden_act"},
        {"{" LLAMA ",\"attention_bias\":1}", "attention_bias"},
        {"{" LLAMA ",\"tie_word_embeddings\":\"yes\"}", "tie_word_embeddings"},
        {"{" LLAMA ",\"eos_token_id\":[1,\"x\"]}", "eos_token_id"},
        {"{" GEMMA ",\"hidden_act\":\"odd\"}", "odd"}, {"{" GEMMA ",\"hidden_act\":3}", "hidden_act"},
        {"{" GEMMA2 ",\"hidden_activation\":\"odd\"}", "odd"},
        {"{" GEMMA2 ",\"hidden_activation\":3}", "hidden_activation"},
        {"{" GEMMA2 ",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar"},
        {"{" GEMMA2 ",\"query_pre_attn_scalar\":null}", "query_pre_attn_scalar"},
        {"{" GEMMA2 ",\"attn_logit_softcapping\":-5}", "attn_logit_softcapping"},
        {"{" GEMMA2 ",\"final_logit_softcapping\":\"x\"}", "final_logit_softcapping"},
        {"{" GEMMA2 ",\"layer_types\":[\"full_attention\"]}", "layer_types"},
        {"{" GEMMA2 ",\"rope_parameters\":{\"full_attention\":{}}}", "full_attention"},
        {"{" GEMMA3 ",\"sliding_window_pattern\":0}", "sliding_window_pattern"},
        {"{" GEMMA3 ",\"attn_logit_softcapping\":50}", "attn_logit_softcapping"},
        {"{" GEMMA3 ",\"rope_parameters\":{\"rope_theta\":5e5}}", "rope_theta"},
        {"{" GEMMA3 ",\"rope_local_base_freq\":0.5}", "rope_theta"},
        {"{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"text_config\":7}", "text_config"},
        {"{" SIGHT "},\"tie_word_embeddings\":3}", "tie_word_embeddings"},
        {"{" SIGHT ",\"final_logit_softcapping\":30}}", "final_logit_softcapping"},
        {"{" GEMMA ",\"use_bidirectional_attention\":true}", "use_bidirectional_attention"},
        {"{" LLAMA ",\"is_causal\":false}", "is_causal"}, {"{" GEMMA2 ",\"is_causal\":1}", "is_causal"},
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":2147483648,"
         "\"intermediate_size\":1,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"vocab_size\":1}", "hidden_size"},
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,"
         "\"intermediate_size\":1,\"num_hidden_layers\":1000000,\"num_attention_heads\":4,\"vocab_size\":1}",
         "num_hidden_layers"},
        {"{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":4,"
         "\"intermediate_size\":1,\"num_hidden_layers\":1,\"num_attention_heads\":8,\"vocab_size\":1}",
         "num_attention_heads"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

static void read_as_transformers(void) {
    lq_desc d = accepted("{" LLAMA "}");
    CHECK(d.layer[0].part[0].kv_heads == 4 && d.layer[0].part[0].head_dim == 16 && d.rope[0].theta == 10000 &&
          !d.tied && d.ctx == 2048, "defaults");
    CHECK(d.bos == 1 && d.eoses == 1 && d.eos[0] == 2, "bos %d, %d end tokens", d.bos, d.eoses);
    lq_desc_free(&d);
    d = accepted("{" LLAMA ",\"num_key_value_heads\":null,\"head_dim\":null,\"rope_scaling\":null,"
                 "\"bos_token_id\":null,\"eos_token_id\":null,\"pretraining_tp\":2,\"dtype\":\"bfloat16\"}");
    CHECK(d.layer[0].part[0].kv_heads == 4 && d.layer[0].part[0].head_dim == 16 && d.bos == -1 && d.eoses == 0,
          "nulls");
    lq_desc_free(&d);
    d = accepted_with("{" LLAMA ",\"eos_token_id\":[3,4,5]}", "{\"eos_token_id\":[7,8],\"bos_token_id\":6}");
    CHECK(d.bos == 6 && d.eoses == 2 && d.eos[0] == 7 && d.eos[1] == 8, "generation_config.json has the last word");
    lq_desc_free(&d);
    d = accepted("{" LLAMA ",\"eos_token_id\":[3,-1,99999,1e300,2.5]}");
    CHECK(d.eoses == 1 && d.eos[0] == 3, "%d end tokens of which one exists", d.eoses);
    lq_desc_free(&d);
    d = accepted("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}}");
    CHECK(d.rope[0].theta == 5e5 && d.rope[0].kind == LQ_ROPE_DEFAULT, "rope_parameters");
    lq_desc_free(&d);
    d = accepted("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":5e5}}");
    CHECK(d.rope[0].kind == LQ_ROPE_DEFAULT, "rope_parameters without a type");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"LLaMAForCausalLM\"]," SIZES "}");
    lq_desc_free(&d);
}

static void gemma2(void) {
    lq_desc d = accepted("{" GEMMA2 "}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->kv_heads == 4 && attn->head_dim == 256 && attn->attn_scale == 0.0625f && d.tied, "heads");
    CHECK(attn->place == LQ_SANDWICH && mlp->place == LQ_SANDWICH && mlp->act == LQ_GELU_TANH, "norms on both sides");
    CHECK(attn->attn_softcap == 50 && d.logit_softcap == 30 && !attn->qk_norm && d.ctx == 8192, "caps");
    for (int i = 0; i < 7; i++) CHECK(d.layer[i].part[0].window == (i % 2 ? 0 : 4096), "window of layer %d", i);
    lq_desc_free(&d);
    d = accepted("{" GEMMA2 ",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null,"
                 "\"query_pre_attn_scalar\":100,\"sliding_window\":null}");
    CHECK(d.layer[0].part[0].attn_softcap == 0 && d.logit_softcap == 0 && d.layer[0].part[0].window == 0, "nulls");
    CHECK(d.layer[0].part[0].attn_scale == 0.1f, "scale %g", (double)d.layer[0].part[0].attn_scale);
    lq_desc_free(&d);
}

static void gemma3(void) {
    lq_desc d = accepted("{" GEMMA3 ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}");
    for (int i = 0; i < 7; i++) {
        const lq_part *attn = &d.layer[i].part[0];
        CHECK(attn->window == (i == 5 ? 0 : 4096) && attn->rope == (i != 5) && attn->qk_norm == LQ_QK_HEAD &&
              attn->attn_softcap == 0, "layer %d", i);
    }
    CHECK(d.rope[0].theta == 1e6 && d.rope[0].kind == LQ_ROPE_LINEAR && d.rope[1].theta == 10000 &&
          d.rope[1].kind == LQ_ROPE_DEFAULT && d.logit_softcap == 0 && d.ctx == 131072, "two ropes");
    lq_desc_free(&d);
    d = accepted("{" GEMMA3 ",\"sliding_window_pattern\":2,\"sliding_window\":9,\"rope_theta\":5e5,"
                 "\"rope_local_base_freq\":300}");
    CHECK(d.layer[0].part[0].window == 9 && d.layer[1].part[0].window == 0 && d.layer[3].part[0].window == 0 &&
          d.rope[0].theta == 5e5 && d.rope[1].theta == 300, "pattern and bases");
    lq_desc_free(&d);
    d = accepted("{" GEMMA3 ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7e5},"
                 "\"sliding_attention\":{\"rope_type\":\"linear\",\"factor\":3}}}");
    CHECK(d.rope[0].theta == 7e5 && d.rope[1].theta == 10000 && d.rope[1].kind == LQ_ROPE_LINEAR, "of transformers 5");
    lq_desc_free(&d);
    d = accepted("{" SIGHT "},\"eos_token_id\":[7,8]}"); // as those with eyes are: only what differs
    const lq_part *attn = &d.layer[1].part[0];
    CHECK(d.vocab == 262208 && attn->heads == 8 && attn->kv_heads == 4 && attn->head_dim == 256 && d.tied, "sizes");
    CHECK(d.bos == 2 && d.eoses == 2 && d.eos[0] == 7 && d.eos[1] == 8, "bos %d, %d end tokens", d.bos, d.eoses);
    CHECK(d.body && !strcmp(d.body, "model."), "names of the tensors beside it");
    lq_desc_free(&d);
}

// Heads by the kind of a layer, and whose K and V it uses.
static void gemma4(void) {
    lq_desc d = accepted("{" GEMMA4 ",\"num_hidden_layers\":7}");
    const lq_part *near = &d.layer[0].part[0], *far = &d.layer[5].part[0];
    CHECK(d.dim == 2304 && d.vocab == 262144 && d.ctx == 131072 && d.tied && d.layer_scaled && !d.norm_plus_one,
          "sizes");
    CHECK(near->heads == 8 && near->kv_heads == 4 && near->head_dim == 256 && near->window == 512 && near->rope == 1 &&
          near->v_norm && near->attn_scale == 1 && far->window == 0 && far->rope == 0 && far->head_dim == 512 &&
          far->v_dim == 512 && far->kv_heads == 4 && far->qkv == LQ_QKV_APART, "heads");
    CHECK(d.layer[6].part[0].window == 0 && d.layer[6].parts == 3 && d.layer[6].part[2].kind == LQ_P_TOKEN, "the last");
    CHECK(d.token_dim == 256 && d.token_vocab == 262144 && d.token_scale == 16, "of the token");
    CHECK(d.rope[0].kind == LQ_ROPE_SHARE && d.rope[0].share == 0.25 && d.rope[0].theta == 1e6 && d.rope[0].dim == 512,
          "a rope");
    CHECK(d.rope[1].kind == LQ_ROPE_DEFAULT && d.rope[1].theta == 1e4 && d.rope[1].dim == 256, "two ropes");
    lq_desc_free(&d);
    d = accepted("{" GEMMA4 ",\"num_hidden_layers\":5,\"layer_types\":[" S "," F "," S "," S "," S "],"
                 "\"num_kv_shared_layers\":2,"
                 "\"num_global_key_value_heads\":1,\"global_head_dim\":64,\"use_double_wide_mlp\":true}");
    CHECK(d.layer[3].kv_from == 2 && d.layer[4].kv_from == 1 && d.layer[2].kv_from == 2, "layers that share");
    CHECK(d.layer[2].part[1].ffn == 9216 && d.layer[3].part[1].ffn == 18432, "wider ones");
    CHECK(d.layer[1].part[0].kv_heads == 4 && d.layer[1].part[0].head_dim == 64, "heads that k does not share with v");
    lq_desc_free(&d);
    d = accepted("{" GEMMA4 ",\"num_hidden_layers\":2,\"attention_k_eq_v\":true,\"num_global_key_value_heads\":1}");
    CHECK(d.layer[1].part[0].kv_heads == 1 && d.layer[1].part[0].qkv == LQ_QKV_TWO && !d.layer[0].part[0].qkv,
          "one for two");
    lq_desc_free(&d);
    d = accepted("{\"architectures\":[\"Gemma4UnifiedForConditionalGeneration\"],\"text_config\":{\"num_hidden_layers\":2,"
                 "\"per_layer_config\":{\"1\":{\"num_key_value_heads\":2}},\"num_key_value_heads\":8}}");
    CHECK(d.layer[0].part[0].window == 1024 && d.ctx == 262144 && d.layer[0].parts == 2, "Unified");
    CHECK(d.layer[1].part[0].kv_heads == 2 && d.layer[1].part[0].head_dim == 256 && d.layer[0].part[0].kv_heads == 8,
          "per_layer_config");
    lq_desc_free(&d);
    static const char *const rows[][2] = {
        {"{" GEMMA4 ",\"enable_moe_block\":true}", "enable_moe_block"},
        {"{" GEMMA4 ",\"use_bidirectional_attention\":\"all\"}", "use_bidirectional_attention"},
        {"{" GEMMA4 ",\"vocab_size_per_layer_input\":9}", "vocab_size_per_layer_input 9"},
        {"{" GEMMA4 ",\"num_hidden_layers\":4,\"num_kv_shared_layers\":1}", "none of the first 3"},
        {"{" GEMMA4 ",\"per_layer_config\":{\"30\":{}}}", "per_layer_config has \"30\""},
        {"{" GEMMA4 ",\"per_layer_config\":{\"3\":{\"sliding_window\":4}}}", "layer 3 a \"sliding_window\""},
        {"{" GEMMA4 ",\"per_layer_config\":{\"3\":{\"head_dim\":128}}}", "head_dim is another number in layer 3"},
        {"{" GEMMA4 ",\"per_layer_config\":{\"5\":{\"num_key_value_heads\":3}}}", "not a multiple"},
        {"{" GEMMA4 ",\"global_head_dim\":640}", "rotary dimension 640"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

static void qwen3(void) {
    lq_desc d = accepted("{" QWEN3 "}");
    const lq_part *attn = &d.layer[1].part[0];
    CHECK(attn->kv_heads == 32 && attn->head_dim == 128 && attn->qk_norm == LQ_QK_HEAD && !attn->qk_norm_late, "heads");
    CHECK(!attn->q_bias && !attn->o_bias && attn->window == 0 && d.rope[0].theta == 10000 && d.ctx == 32768, "silent");
    CHECK(!d.tied && d.norm_eps == 1e-6f && d.bos == -1 && d.eoses == 0, "no ends, an untied head");
    lq_desc_free(&d);
    d = accepted("{" QWEN3 ",\"use_sliding_window\":true,\"sliding_window\":7,\"max_window_layers\":1}");
    CHECK(d.layer[0].part[0].window == 0 && d.layer[1].part[0].window == 7 && d.groups == 2, "windows");
    lq_desc_free(&d);
    d = accepted("{" QWEN3 ",\"use_sliding_window\":true,\"sliding_window\":null,\"max_window_layers\":1}");
    CHECK(d.layer[1].part[0].window == 0, "a window that is null");
    lq_desc_free(&d);
}

// The root of hidden_size in the type of the model. What bf16 makes of sqrt(3072) is told in
// transformers' modeling_gemma.py.
static void gemma_scale(const char *config, double want) {
    lq_desc d = accepted(config);
    const double got = (double)d.embed_scale;
    CHECK(fabs(got - want) < 1e-5, "%s: scale %.9g, expected %.9g", config, got, want);
    lq_desc_free(&d);
}

static void gemma(void) {
    lq_desc d = accepted("{" GEMMA ",\"hidden_act\":\"gelu\"}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->heads == 16 && attn->kv_heads == 16 && attn->head_dim == 256 && attn->v_dim == 256, "heads");
    CHECK(attn->attn_scale == 0.0625f && !attn->q_bias && !attn->o_bias, "one over the root of 256, no biases");
    CHECK(d.rope[0].theta == 10000 && d.rope[0].dim == 256, "rope over the whole head");
    CHECK(mlp->gated && mlp->act == LQ_GELU_TANH, "gelu of the first configs");
    CHECK(d.norm_plus_one && d.norm_eps == 1e-6f && d.tied, "norms of 1 + weight, the embedding is the head");
    CHECK(d.bos == 2 && d.eoses == 1 && d.eos[0] == 1, "bos %d, %d end tokens", d.bos, d.eoses);
    lq_desc_free(&d);
    d = accepted("{" GEMMA ",\"head_dim\":8,\"num_key_value_heads\":1,\"hidden_act\":\"relu\",\"hidden_activation\":\"gelu\","
                 "\"attention_bias\":true,\"tie_word_embeddings\":false}");
    attn = &d.layer[0].part[0], mlp = &d.layer[0].part[1];
    CHECK(attn->head_dim == 8 && attn->kv_heads == 1 && attn->q_bias && attn->o_bias, "attention as it says");
    CHECK(mlp->act == LQ_RELU && !mlp->mlp_bias && !d.tied, "hidden_act, an untied head");
    lq_desc_free(&d);
    d = accepted("{" GEMMA ",\"hidden_act\":\"gelu\",\"hidden_activation\":null,\"head_dim\":null}");
    CHECK(d.layer[0].part[0].head_dim == 256 && d.layer[0].part[1].act == LQ_GELU_TANH, "nulls");
    lq_desc_free(&d);
    gemma_scale("{" GEMMA "}", 8);
    gemma_scale("{" GEMMA_OF("3072") ",\"torch_dtype\":\"bfloat16\"}", 55.5);
    gemma_scale("{" GEMMA_OF("3072") ",\"dtype\":\"bfloat16\",\"torch_dtype\":\"float32\"}", 55.5);
    gemma_scale("{" GEMMA_OF("3072") ",\"dtype\":\"float16\"}", 55.4375);
    gemma_scale("{" GEMMA_OF("3072") ",\"dtype\":\"float32\"}", 55.42562584);
    gemma_scale("{" GEMMA_OF("3072") "}", 55.5); // of the tensors beside it, which are bf16
}

int main(void) {
    if (!config_begin()) return 1;
    refused();
    read_as_transformers();
    gemma();
    gemma2();
    gemma3();
    gemma4();
    qwen3();
    return config_end();
}
