// test_arch_gpt.c: config.json of decoders with LayerNorms from strangers: what transformers takes where it is silent,
// every key that changes a result read, or refused in one line that names it.
#include "runtime/model/arch.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"

static char dir[] = "/tmp/lq-test-arch-gpt-XXXXXX";
#define OF(name) "{\"architectures\":[\"" name "\"],\"vocab_size\":60000"
#define GPT2 OF("GPT2LMHeadModel") ",\"n_embd\":60,\"n_layer\":3,\"n_head\":4"

#define LLAMA(name) OF(name) ",\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":2,\"num_attention_heads\":4"
#define GPTJ OF("GPTJForCausalLM") ",\"n_embd\":512,\"n_layer\":2,\"n_head\":4"
#define PHI LLAMA("PhiForCausalLM")
#define STABLELM LLAMA("StableLmForCausalLM")
#define STARCODER2 LLAMA("Starcoder2ForCausalLM")
#define NEMOTRON LLAMA("NemotronForCausalLM")
#define OLMO LLAMA("OlmoForCausalLM")

static bool read_config(const char *config, lq_desc *d, lq_err *err) {
    lq_ckpt *c;
    *err = (lq_err){0};
    if (!tiny_text(dir, "config.json", config) || !lq_ckpt_open(dir, &c, err)) return false;
    const bool done = lq_desc_read(c, d, err);
    lq_ckpt_close(c);
    return done;
}

static lq_desc accepted(const char *config) {
    lq_desc d = {0};
    lq_err err;
    CHECK(read_config(config, &d, &err), "%s: %s", config, err.text);
    return d;
}

static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
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
        {PHI ",\"partial_rotary_factor\":0.6}", "rotary"},
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
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lq_desc d;
        lq_err err;
        const bool done = read_config(rows[i][0], &d, &err);
        CHECK(!done && strstr(err.text, rows[i][1]) && !strchr(err.text, '\n'), "%s gave \"%s\"", rows[i][0],
              done ? "a description" : err.text);
        if (done) lq_desc_free(&d);
    }
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

int main(void) {
    lq_err err;
    char rm[100];
    if (!mkdtemp(dir)) return 1;
    CHECK(tiny_model(dir, true, &err), "%s", err.text);
    refused();
    gpt2();
    gptj();
    phi();
    stablelm();
    others();
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    if (system(rm)) return 1;
    return test_end();
}
