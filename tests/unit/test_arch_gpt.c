// test_arch_gpt.c: config.json of decoders with LayerNorms from strangers: what transformers takes where it is silent,
// every key that changes a result read, or refused in one line that names it.
#include "tests/unit/config.h"

#define OF(name) "{\"architectures\":[\"" name "\"],\"vocab_size\":60000"
#define GPT2 OF("GPT2LMHeadModel") ",\"n_embd\":60,\"n_layer\":3,\"n_head\":4"

#define LLAMA(name) OF(name) ",\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":4"
#define GPTJ OF("GPTJForCausalLM") ",\"n_embd\":512,\"n_layer\":2,\"n_head\":4"
#define PHI LLAMA("PhiForCausalLM")
#define PERSIMMON LLAMA("PersimmonForCausalLM")
#define STABLELM LLAMA("StableLmForCausalLM")
#define STARCODER2 LLAMA("Starcoder2ForCausalLM")
#define NEMOTRON LLAMA("NemotronForCausalLM")
#define OLMO LLAMA("OlmoForCausalLM")
#define FALCON OF("FalconForCausalLM") ",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4"
#define NEW ",\"new_decoder_architecture\":true"
#define BLOOM OF("BloomForCausalLM") ",\"hidden_size\":64,\"n_layer\":2,\"n_head\":4"
#define MPT OF("MptForCausalLM") ",\"d_model\":64,\"n_layers\":2,\"n_heads\":4"
#define BIGCODE OF("GPTBigCodeForCausalLM") ",\"n_embd\":64,\"n_layer\":2,\"n_head\":4"
#define NEO OF("GPTNeoForCausalLM") ",\"hidden_size\":64,\"num_heads\":4,\"num_layers\":"
#define TYPES "3,\"attention_types\":"
#define OPT OF("OPTForCausalLM") ",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4"
#define OPT64 OPT ",\"ffn_dim\":160"
#define COHERE LLAMA("CohereForCausalLM")
#define COHERE2 LLAMA("Cohere2ForCausalLM")

static const char *const bad[][2] = { // config, a word of the line
    {OF("GPT2LMHeadModel") "}", "n_embd"},
    {GPT2 ",\"n_head\":7}", "n_head"},
    {OF("GPT2LMHeadModel") ",\"n_embd\":64,\"n_layer\":3,\"n_head\":7}", "n_head"},
    {OF("GPT2LMHeadModel") ",\"hidden_size\":0,\"n_layer\":3,\"n_head\":4}", "hidden_size"},
    {OF("GPT2LMHeadModel") ",\"n_embd\":1e99,\"n_layer\":3,\"n_head\":4}", "n_embd"},
    {GPT2 ",\"n_inner\":0}", "n_inner"},
    {GPT2 ",\"n_inner\":\"4\"}", "n_inner"},
    {GPT2 ",\"n_positions\":0}", "n_positions"},
    {GPT2 ",\"head_dim\":16}", "head_dim"},
    {GPT2 ",\"activation_function\":\"odd\"}", "odd"},
    {GPT2 ",\"layer_norm_epsilon\":0}", "layer_norm_epsilon"},
    {GPT2 ",\"scale_attn_weights\":1}", "scale_attn_weights"},
    {GPT2 ",\"scale_attn_by_inverse_layer_idx\":\"no\"}", "scale_attn_by_inverse_layer_idx"},
    {GPTJ ",\"rotary_dim\":null}", "rotary_dim"},
    {GPTJ ",\"rotary_dim\":130}", "rotary_dim"},
    {GPTJ ",\"rotary_dim\":7}", "rotary_dim"},
    {GPTJ ",\"rotary_dim\":-2}", "rotary_dim"},
    {OF("CodeGenForCausalLM") ",\"n_embd\":384,\"n_layer\":2,\"n_head\":6}", "n_head"},
    {OF("CodeGenForCausalLM") ",\"n_embd\":384,\"n_layer\":2,\"n_head\":4,\"rotary_dim\":97}", "rotary_dim"},
    {PERSIMMON ",\"head_dim\":8}", "head_dim"},
    {PERSIMMON ",\"qk_layernorm\":1}", "qk_layernorm"},
    {PHI ",\"partial_rotary_factor\":0.6}", "rotary"},
    {BLOOM ",\"slow_but_exact\":true,\"pretraining_tp\":2}", "slow_but_exact"},
    {PHI ",\"layer_norm_eps\":0}", "layer_norm_eps"},
    {PHI ",\"qk_layernorm\":\"yes\"}", "qk_layernorm"},
    {STABLELM "}", "num_key_value_heads"}, // 32 of 4 heads, as transformers takes it
    {STABLELM ",\"num_key_value_heads\":4,\"head_dim\":8}", "head_dim"},
    {STABLELM ",\"num_key_value_heads\":4,\"use_parallel_residual\":2}", "use_parallel_residual"},
    {STABLELM ",\"num_key_value_heads\":4,\"use_qkv_bias\":2}", "use_qkv_bias"},
    {STARCODER2 ",\"use_bias\":1}", "use_bias"},
    {STARCODER2 ",\"sliding_window\":0}", "sliding_window"},
    {STARCODER2 ",\"norm_epsilon\":\"small\"}", "norm_epsilon"},
    {NEMOTRON ",\"norm_eps\":1}", "norm_eps"},
    {NEMOTRON ",\"mlp_bias\":0}", "mlp_bias"},
    {OLMO ",\"clip_qkv\":0}", "clip_qkv"},
    {OLMO ",\"clip_qkv\":-8}", "clip_qkv"},
    {OLMO ",\"clip_qkv\":1e300}", "clip_qkv"},
    {OLMO ",\"clip_qkv\":\"8\"}", "clip_qkv"},
    {FALCON ",\"num_attention_heads\":5}", "num_attention_heads"},
    {FALCON ",\"head_dim\":32}", "head_dim"},
    {FALCON NEW ",\"num_kv_heads\":3}", "num_kv_heads"},
    {FALCON NEW ",\"num_kv_heads\":0}", "num_kv_heads"},
    {FALCON NEW ",\"parallel_attn\":false}", "parallel_attn"},
    {FALCON NEW ",\"num_ln_in_parallel_attn\":3}", "num_ln_in_parallel_attn"},
    {FALCON ",\"num_ln_in_parallel_attn\":2}", "num_ln_in_parallel_attn"},
    {FALCON ",\"multi_query\":1}", "multi_query"},
    {FALCON ",\"bias\":1}", "bias"},
    {FALCON ",\"alibi\":\"yes\"}", "alibi"},
    {FALCON ",\"activation\":\"odd\"}", "odd"},
    {FALCON ",\"ffn_hidden_size\":-1}", "ffn_hidden_size"},
    {FALCON ",\"n_embed\":0}", "n_embed"},
    {BLOOM ",\"apply_residual_connection_post_layernorm\":true}", "apply_residual_connection_post_layernorm"},
    {BLOOM ",\"head_dim\":32}", "head_dim"},
    {BLOOM ",\"seq_length\":0}", "seq_length"},
    {MPT ",\"attn_config\":7}", "attn_config"},
    {MPT ",\"attn_config\":{\"alibi\":false}}", "alibi"},
    {MPT ",\"attn_config\":{\"qk_ln\":true}}", "qk_ln"},
    {MPT ",\"attn_config\":{\"prefix_lm\":true}}", "prefix_lm"},
    {MPT ",\"attn_config\":{\"alibi_bias_max\":16}}", "alibi_bias_max"},
    {MPT ",\"attn_config\":{\"attn_type\":\"multiquery_attention\"}}", "multiquery_attention"},
    {MPT ",\"attn_config\":{\"attn_type\":1}}", "attn_type"},
    {MPT ",\"attn_config\":{\"clip_qkv\":-1}}", "clip_qkv"},
    {MPT ",\"attn_config\":{\"softmax_scale\":0}}", "softmax_scale"},
    {MPT ",\"no_bias\":false}", "no_bias"},
    {MPT ",\"expansion_ratio\":2}", "expansion_ratio"},
    {MPT ",\"norm_type\":\"rmsnorm\"}", "rmsnorm"},
    {MPT ",\"logit_scale\":\"inv_sqrt_d_model\"}", "logit_scale"},
    {BIGCODE ",\"multi_query\":0}", "multi_query"},
    {BIGCODE ",\"scale_attn_weights\":0}", "scale_attn_weights"},
    {NEO "3}", "attention_types"}, // silence means 24 layers
    {NEO TYPES "[]}", "attention_types"},
    {NEO TYPES "7}", "attention_types"},
    {NEO TYPES "[[[\"global\",\"local\"],2]]}", "attention_types"},
    {NEO TYPES "[[[\"global\"],1],[[\"local\"],1]]}", "attention_types"},
    {NEO TYPES "[[[],1e300]]}", "attention_types"},
    {NEO TYPES "[[[\"global\"],1e300]]}", "attention_types"},
    {NEO TYPES "[[[\"global\"],\"3\"]]}", "attention_types"},
    {NEO TYPES "[[[\"odd\"],3]]}", "odd"},
    {NEO TYPES "[[[3],3]]}", "attention_types"},
    {NEO TYPES "[[[\"local\"],3]],\"window_size\":0}", "window_size"},
    {OPT "}", "ffn_dim"},
    {OPT64 ",\"word_embed_proj_dim\":65}", "word_embed_proj_dim"},
    {OPT64 ",\"word_embed_proj_dim\":0}", "word_embed_proj_dim"},
    {OPT64 ",\"do_layer_norm_before\":0}", "do_layer_norm_before"},
    {OPT64 ",\"enable_bias\":1}", "enable_bias"},
    {OPT64 ",\"layer_norm_elementwise_affine\":1}", "layer_norm_elementwise_affine"},
    {OPT64 ",\"_remove_final_layer_norm\":1}", "_remove_final_layer_norm"},
    {OPT64 ",\"activation_function\":\"odd\"}", "odd"},
    {COHERE ",\"logit_scale\":null}", "logit_scale"},
    {COHERE ",\"logit_scale\":0}", "logit_scale"},
    {COHERE ",\"use_qk_norm\":2}", "use_qk_norm"},
    {COHERE2 ",\"sliding_window\":null}", "sliding_window"},
    {COHERE2 ",\"sliding_window_pattern\":0}", "sliding_window_pattern"},
    {COHERE2 ",\"head_dim\":8}", "head_dim"},
    {COHERE2 ",\"layer_types\":[\"full_attention\"]}", "layer_types"},
};

static void refused(void) {
    refused_all(bad, sizeof bad / sizeof *bad);
}

static void gpt2(void) {
    lq_desc d = accepted(GPT2 "}");
    const lq_part *attn = &d.layer[2].part[0], *mlp = &d.layer[2].part[1];
    CHECK(d.dim == 60 && d.layers == 3 && d.ctx == 1024 && d.positions == 1024 && d.tied && d.across, "sizes");
    CHECK(d.norm == LQ_NORM_LAYER && d.norm_bias && d.norm_eps == 1e-5f && d.ropes == 0, "norms");
    CHECK(attn->heads == 4 && attn->kv_heads == 4 && attn->head_dim == 15 && attn->rope < 0, "heads");
    CHECK(attn->attn_scale == (float)(1 / sqrt(15)) && attn->q_bias && attn->o_bias, "scale and biases");
    CHECK(mlp->ffn == 240 && mlp->act == LQ_GELU_TANH && !mlp->gated && mlp->mlp_bias && !mlp->beside, "MLP");
    CHECK(d.bos == 50256 && d.eoses == 1 && d.eos[0] == 50256, "bos %d, %d end tokens", d.bos, d.eoses);
    lq_desc_free(&d);
    d = accepted(OF("GPT2LMHeadModel") ",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
                 "\"max_position_embeddings\":77,\"n_inner\":null,\"head_dim\":32,\"tie_word_embeddings\":false}");
    CHECK(d.dim == 64 && d.layers == 2 && d.positions == 77 && d.layer[0].part[1].ffn == 256 && !d.tied,
          "the names that all know");
    lq_desc_free(&d);
    d = accepted(GPT2 ",\"n_inner\":100,\"scale_attn_weights\":false,\"scale_attn_by_inverse_layer_idx\":true}");
    CHECK(d.layer[0].part[1].ffn == 100 && d.layer[0].part[0].attn_scale == 1 &&
          d.layer[2].part[0].attn_scale == 1.0f / 3, "scales");
    lq_desc_free(&d);
}

static void gptj(void) {
    lq_desc d = accepted(GPTJ "}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(d.ctx == 2048 && !d.positions && !d.tied && d.head_bias && !d.across, "sizes");
    CHECK(d.rope[0].dim == 64 && d.rope[0].interleaved && d.rope[0].theta == 10000 && attn->rope == 0, "rope");
    CHECK(mlp->beside && !mlp->own_norm && mlp->mlp_bias && mlp->act == LQ_GELU_TANH && mlp->ffn == 2048, "MLP");
    CHECK(!attn->q_bias && !attn->o_bias && d.bos == 50256 && d.eos[0] == 50256, "no biases; ends");
    lq_desc_free(&d);
}

static void codegen_persimmon(void) {
    lq_desc d = accepted(OF("CodeGenForCausalLM") ",\"n_embd\":512,\"n_layer\":2,\"n_head\":8}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->qkv == LQ_QKV_QUARTERS && d.rope[0].dim == 64 && d.rope[0].interleaved && d.head_bias && !d.tied &&
          mlp->beside && !attn->q_bias && d.bos == 50256, "CodeGen");
    int n = 0;
    lq_slot *slots = lq_desc_slots(&d, 0, &n);
    for (int i = 0; slots && i < n; i++) // in quarters of 3 * 128 rows: q, v, k
        if (slots[i].role == LQ_R_K)
            CHECK(slots[i].from.first == 256 && slots[i].from.run == 128 && slots[i].from.step == 384, "k");
    free(slots);
    lq_desc_free(&d);
    d = accepted(PERSIMMON ",\"num_key_value_heads\":2}");
    attn = &d.layer[1].part[0], mlp = &d.layer[1].part[1];
    CHECK(attn->qkv == LQ_QKV_GROUPS && attn->kv_heads == 4 && attn->qk_norm == LQ_QK_HEAD && attn->qk_norm_bias &&
          attn->q_bias && attn->o_bias && d.rope[0].dim == 8 && d.ctx == 16384, "Persimmon");
    CHECK(mlp->act == LQ_RELU2 && !mlp->gated && mlp->mlp_bias && !mlp->beside && d.bos == 1 && d.eos[0] == 2 &&
          !d.head_bias, "Persimmon");
    lq_desc_free(&d);
}

static void phi(void) {
    lq_desc d = accepted(PHI ",\"num_key_value_heads\":null,\"layer_types\":[\"sliding_attention\"]}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(d.ctx == 2048 && !d.tied && d.head_bias && d.norm == LQ_NORM_LAYER && d.norm_bias && d.norm_eps == 1e-5f,
          "sizes");
    CHECK(d.rope[0].dim == 8 && attn->kv_heads == 4 && attn->q_bias && attn->o_bias && !attn->qk_norm && !attn->window,
          "half of a head rotated, biases");
    CHECK(mlp->beside && !mlp->own_norm && !mlp->gated && mlp->mlp_bias && mlp->act == LQ_GELU_TANH, "MLP");
    CHECK(d.bos == 1 && d.eoses == 1 && d.eos[0] == 2, "ends");
    lq_desc_free(&d);
    d = accepted(PHI ",\"qk_layernorm\":true,\"rope_parameters\":{\"rope_theta\":5e4}}");
    CHECK(d.layer[0].part[0].qk_norm == LQ_QK_HEAD && d.layer[0].part[0].qk_norm_bias && d.rope[0].dim == 8 &&
          d.rope[0].theta == 5e4, "norms of heads; rope_parameters that say no share");
    lq_desc_free(&d);
}

static void stablelm(void) {
    lq_desc d = accepted(STABLELM ",\"num_key_value_heads\":2}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(d.ctx == 4096 && d.rope[0].dim == 4 && !attn->q_bias && !attn->o_bias && !attn->qk_norm, "attention");
    CHECK(!mlp->beside && mlp->gated && mlp->act == LQ_SILU && !mlp->mlp_bias && d.bos == 0 && d.eos[0] == 0, "MLP");
    lq_desc_free(&d);
    d = accepted(STABLELM ",\"num_key_value_heads\":4,\"qk_layernorm\":true,\"use_qkv_bias\":true,"
                 "\"use_parallel_residual\":true}");
    attn = &d.layer[0].part[0];
    CHECK(attn->qk_norm == LQ_QK_HEADS && !attn->qk_norm_bias && attn->q_bias && attn->v_bias && !attn->o_bias &&
          d.layer[0].part[1].beside && !d.layer[0].part[1].own_norm, "norms, biases, side by side");
    int n = 0, norms = 0;
    lq_slot *slots = lq_desc_slots(&d, 1, &n);
    for (int i = 0; slots && i < n; i++) {
        const lq_slot *s = &slots[i];
        if (s->role != LQ_R_K_NORM) continue;
        CHECK(s->n == 16 && s->of == 64 && s->at == 16 * norms && !s->quantizable, "%s", s->name);
        CHECK(norms != 2 || !strcmp(s->name, "model.layers.1.self_attn.k_layernorm.norms.2.weight"), "%s", s->name);
        norms++;
    }
    CHECK(norms == 4, "%d norms of k", norms);
    free(slots);
    lq_desc_free(&d);
}

static void others(void) {
    lq_desc d = accepted(STARCODER2 ",\"layer_types\":[\"full_attention\"],\"sliding_window\":9}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->kv_heads == 2 && attn->q_bias && attn->o_bias && attn->window == 9 && d.tied && d.rope[0].dim == 16,
          "StarCoder2: transformers does not read layer_types");
    CHECK(mlp->mlp_bias && !mlp->gated && mlp->act == LQ_GELU_TANH && d.bos == 50256 && d.ctx == 4096, "StarCoder2");
    lq_desc_free(&d);
    d = accepted(STARCODER2 ",\"use_bias\":false,\"sliding_window\":null}");
    CHECK(!d.layer[0].part[0].k_bias && !d.layer[0].part[1].mlp_bias && !d.layer[0].part[0].window,
          "StarCoder2, plain");
    lq_desc_free(&d);
    d = accepted(NEMOTRON ",\"num_key_value_heads\":null,\"head_dim\":null}");
    attn = &d.layer[1].part[0], mlp = &d.layer[1].part[1];
    CHECK(d.norm_plus_one && d.norm_bias && d.norm == LQ_NORM_LAYER && d.rope[0].dim == 8 && attn->kv_heads == 4 &&
          !attn->q_bias, "Nemotron");
    CHECK(!mlp->gated && mlp->act == LQ_RELU2 && !mlp->mlp_bias && !d.tied && d.bos == 2 && d.eos[0] == 3, "Nemotron");
    lq_desc_free(&d);
    d = accepted(OLMO "}");
    attn = &d.layer[1].part[0], mlp = &d.layer[1].part[1];
    CHECK(d.norm_bare && d.norm == LQ_NORM_LAYER && d.norm_eps == 1e-5f && attn->clip == 0 && d.rope[0].dim == 16,
          "OLMo");
    CHECK(mlp->gated && mlp->act == LQ_SILU && !d.tied && d.bos == -1 && d.eos[0] == 50279, "OLMo");
    lq_input in[LQ_INPUTS];
    CHECK(lq_desc_inputs(&d, 0, in) == 4 && in[0].before == LQ_B_NONE && in[1].before == LQ_B_V &&
          in[3].before == LQ_B_ROWS,
          "a norm without weights takes no factor");
    lq_desc_free(&d);
    d = accepted(OLMO ",\"clip_qkv\":8,\"attention_bias\":true}");
    CHECK(d.layer[0].part[0].clip == 8 && d.layer[0].part[0].o_bias, "OLMo: bounds, biases");
    CHECK(lq_desc_inputs(&d, 0, in) == 4 && in[1].before == LQ_B_NONE && in[1].by == LQ_R_V,
          "bounds between v and o let no factor through");
    lq_desc_free(&d);
}

static void falcon(void) {
    lq_desc d = accepted(FALCON ",\"num_kv_heads\":2}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->kv_heads == 1 && attn->qkv == LQ_QKV_GROUPS && !attn->q_bias && !attn->alibi && d.rope[0].dim == 16,
          "one K and V for all heads, whatever num_kv_heads says");
    CHECK(mlp->beside && !mlp->own_norm && mlp->act == LQ_GELU && mlp->ffn == 256 && !mlp->mlp_bias, "MLP");
    CHECK(d.norm_bias && d.tied && d.ctx == 2048 && d.bos == 11 && d.eos[0] == 11, "the rest");
    lq_desc_free(&d);
    d = accepted(FALCON NEW ",\"num_kv_heads\":2,\"bias\":true,\"ffn_hidden_size\":100}");
    attn = &d.layer[0].part[0], mlp = &d.layer[0].part[1];
    CHECK(attn->kv_heads == 2 && attn->o_bias && mlp->beside && mlp->own_norm && mlp->mlp_bias && mlp->ffn == 100,
          "groups, two norms, biases");
    CHECK(strstr(d.names[LQ_R_NORM_1], "ln_mlp"), "%s", d.names[LQ_R_NORM_1]);
    lq_desc_free(&d);
    d = accepted(FALCON NEW ",\"num_kv_heads\":null,\"num_ln_in_parallel_attn\":1}");
    CHECK(d.layer[0].part[0].kv_heads == 4 && !d.layer[0].part[1].own_norm &&
          strstr(d.names[LQ_R_NORM_0], "input_layernorm"), "one norm");
    lq_desc_free(&d);
    d = accepted(FALCON ",\"multi_query\":null,\"parallel_attn\":null}");
    CHECK(d.layer[0].part[0].kv_heads == 4 && !d.layer[0].part[1].beside, "null is no");
    lq_desc_free(&d);
    d = accepted(FALCON ",\"multi_query\":false,\"alibi\":true,\"parallel_attn\":false,\"n_embed\":32}");
    attn = &d.layer[0].part[0];
    CHECK(d.dim == 32 && attn->kv_heads == 4 && attn->alibi && attn->alibi_coarse && attn->rope < 0 && d.ropes == 0 &&
          !d.layer[0].part[1].beside, "ALiBi, one after the other; n_embed has the last word");
    lq_desc_free(&d);
}

// Slopes as the paper has them for 8 and 12 heads.
static void alibi(void) {
    lq_desc d = accepted(BLOOM "}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->alibi && !attn->alibi_coarse && attn->rope < 0 && attn->qkv == LQ_QKV_GROUPS && attn->kv_heads == 4 &&
          attn->q_bias && attn->o_bias && d.embed_norm && d.norm_bias, "BLOOM");
    CHECK(mlp->act == LQ_GELU_TANH && mlp->ffn == 256 && mlp->mlp_bias && !mlp->beside && d.tied && d.bos == 1 &&
          d.eos[0] == 2 && d.ctx == 2048, "BLOOM");
    lq_desc_free(&d);
    d = accepted(OF("BloomForCausalLM") ",\"n_embed\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                 "\"seq_length\":99}");
    CHECK(d.dim == 32 && d.layer[0].part[0].heads == 2 && d.ctx == 99 && !d.positions, "BLOOM by other names");
    lq_desc_free(&d);
    d = accepted(MPT ",\"attn_config\":{\"softmax_scale\":null,\"clip_qkv\":null},\"logit_scale\":null}");
    attn = &d.layer[1].part[0], mlp = &d.layer[1].part[1];
    CHECK(attn->alibi && attn->qkv == LQ_QKV_ROWS && attn->attn_scale == 0.25f && attn->clip == 0 && !attn->q_bias &&
          !d.norm_bias && mlp->act == LQ_GELU && mlp->ffn == 256 && !mlp->mlp_bias && d.tied && d.bos == -1, "MPT");
    lq_desc_free(&d);
    d = accepted(MPT ",\"attn_config\":{\"softmax_scale\":0.5,\"clip_qkv\":6},\"max_seq_len\":77}");
    CHECK(d.layer[0].part[0].attn_scale == 0.5f && d.layer[0].part[0].clip == 6 && d.ctx == 77, "MPT");
    lq_desc_free(&d);
    float s[12];
    lq_alibi_slopes(8, false, s);
    for (int i = 0; i < 8; i++) CHECK(s[i] == ldexpf(1, -1 - i), "slope %d of 8: %g", i, (double)s[i]);
    lq_alibi_slopes(12, true, s);
    CHECK(s[7] == 0x1p-8f && s[8] == 0.70703125f && fabsf(s[11] / 0x1p-3f - 0.70703125f) < 1e-6f,
          "of 12: %g %g", (double)s[8], (double)s[11]);
}

static void bigcode_neo(void) {
    lq_desc d = accepted(BIGCODE "}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(attn->kv_heads == 1 && attn->qkv == LQ_QKV_GROUPS && attn->q_bias && attn->o_bias && attn->rope < 0 &&
          attn->attn_scale == 0.25f && !d.across && d.positions == 1024 && d.tied, "BigCode");
    CHECK(mlp->act == LQ_GELU_TANH && mlp->ffn == 256 && mlp->mlp_bias && d.eos[0] == 50256, "BigCode");
    lq_desc_free(&d);
    d = accepted(BIGCODE ",\"multi_query\":false,\"scale_attn_weights\":false}");
    CHECK(d.layer[0].part[0].kv_heads == 4 && d.layer[0].part[0].attn_scale == 1, "BigCode: a K and V for each head");
    lq_desc_free(&d);
    d = accepted(NEO "24}");
    attn = &d.layer[3].part[0], mlp = &d.layer[3].part[1];
    CHECK(attn->window == 256 && !d.layer[2].part[0].window && attn->attn_scale == 1 && !attn->q_bias && attn->o_bias &&
          d.positions == 2048 && d.groups == 2, "GPT-Neo");
    CHECK(mlp->act == LQ_GELU_TANH && mlp->ffn == 256 && mlp->mlp_bias && d.tied && d.bos == 50256, "GPT-Neo");
    lq_desc_free(&d);
    d = accepted(NEO TYPES "[[[\"local\"],2],[[\"global\"],1]],\"window_size\":9,\"attention_layers\":[\"odd\"]}");
    CHECK(d.layer[0].part[0].window == 9 && d.layer[1].part[0].window == 9 && !d.layer[2].part[0].window, "by types");
    lq_desc_free(&d);
}

static void opt(void) {
    lq_desc d = accepted(OPT64 ",\"word_embed_proj_dim\":64}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(d.positions == 2048 && d.position_first == 2 && d.ctx == 2048 && d.tied && !d.embed_dim && !d.head_raw &&
          d.norm_bias && !d.norm_bare && d.norm_eps == 1e-5f && d.bos == 2 && d.eos[0] == 2, "OPT");
    CHECK(attn->place == LQ_PRE && attn->q_bias && attn->o_bias && attn->rope < 0 && mlp->act == LQ_RELU &&
          !mlp->gated && mlp->mlp_bias && mlp->ffn == 160 && !mlp->beside, "OPT");
    int n = 0;
    lq_slot *slots = lq_desc_slots(&d, -1, &n);
    for (int i = 0; slots && i < n; i++)
        if (slots[i].role == LQ_R_POSITION)
            CHECK(slots[i].from.first == 2 && slots[i].n == 2048 && !slots[i].quantizable &&
                  !strcmp(slots[i].from.name, "model.decoder.embed_positions.weight") &&
                  strcmp(slots[i].name, slots[i].from.name) != 0, "%s of %s", slots[i].name, slots[i].from.name);
    free(slots);
    lq_desc_free(&d);
    d = accepted(OPT64 ",\"word_embed_proj_dim\":32,\"do_layer_norm_before\":false,\"enable_bias\":false,"
                 "\"tie_word_embeddings\":false}");
    CHECK(d.embed_dim == 32 && d.head_raw && d.layer[0].part[0].place == LQ_OVER && !d.layer[0].part[0].v_bias &&
          !d.layer[0].part[1].mlp_bias, "OPT 350M");
    lq_input in[LQ_INPUTS];
    CHECK(lq_desc_inputs(&d, -1, in) == 3 && in[0].k == 32 && in[1].k == 64 && in[1].before == LQ_B_NONE &&
          in[2].k == 32 && in[2].before == LQ_B_ROWS && in[2].by == LQ_R_PROJECT_OUT, "in, out, head");
    lq_desc_free(&d);
    d = accepted(OPT64 ",\"layer_norm_elementwise_affine\":false,\"_remove_final_layer_norm\":true}");
    CHECK(d.norm_bare && d.head_raw && d.layer[0].part[0].place == LQ_PRE, "norms without weights, none at the end");
    lq_desc_free(&d);
}

static void cohere(void) {
    lq_desc d = accepted(COHERE ",\"num_key_value_heads\":null,\"layer_types\":[]}");
    const lq_part *attn = &d.layer[1].part[0], *mlp = &d.layer[1].part[1];
    CHECK(d.logit_scale == 0.0625f && d.rope[0].theta == 500000 && d.rope[0].interleaved && !d.norm_bias && d.tied &&
          d.ctx == 8192, "Cohere");
    CHECK(!attn->qk_norm && !attn->q_bias && attn->kv_heads == 4 && mlp->beside && !mlp->own_norm && mlp->gated &&
          mlp->act == LQ_SILU && d.bos == 5, "Cohere");
    lq_desc_free(&d);
    d = accepted(COHERE ",\"use_qk_norm\":true,\"attention_bias\":true,\"num_key_value_heads\":2}");
    CHECK(d.layer[0].part[0].qk_norm == LQ_QK_HEADS && d.layer[0].part[0].o_bias, "Cohere: norms of heads");
    int n = 0;
    lq_slot *slots = lq_desc_slots(&d, 0, &n);
    for (int i = 0; slots && i < n; i++)
        if (slots[i].role == LQ_R_K_NORM)
            CHECK(slots[i].flat && slots[i].n == 2 && slots[i].k == 16 && !slots[i].quantizable, "%s", slots[i].name);
    free(slots);
    lq_desc_free(&d);
    d = accepted(OF("Cohere2ForCausalLM") ",\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":5,"
                 "\"num_attention_heads\":4}");
    for (int i = 0; i < 5; i++)
        CHECK(d.layer[i].part[0].window == (i == 3 ? 0 : 4096) && d.layer[i].part[0].rope == (i == 3 ? -1 : 0),
              "Cohere2: layer %d", i);
    CHECK(d.rope[0].theta == 10000 && d.rope[0].interleaved, "Cohere2");
    lq_desc_free(&d);
    d = accepted(COHERE2 ",\"sliding_window\":9,\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    CHECK(d.layer[0].part[0].rope == -1 && d.layer[1].part[0].window == 9 && d.layer[1].part[0].rope == 0, "by types");
    lq_desc_free(&d);
}

int main(void) {
    if (!config_begin()) return 1;
    refused();
    gpt2();
    gptj();
    codegen_persimmon();
    phi();
    stablelm();
    others();
    falcon();
    alibi();
    cohere();
    bigcode_neo();
    opt();
    return config_end();
}
