// test_arch_gpt.c: config.json of decoders with LayerNorms from strangers: what transformers takes where it is silent,
// every key that changes a result read, or refused in one line that names it.
#include "runtime/model/arch.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny.h"

static char dir[] = "/tmp/lq-test-arch-gpt-XXXXXX";
#define OF(name) "{\"architectures\":[\"" name "\"],\"vocab_size\":60000"
#define GPT2 OF("GPT2LMHeadModel") ",\"n_embd\":60,\"n_layer\":3,\"n_head\":4"

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

int main(void) {
    lq_err err;
    char rm[100];
    if (!mkdtemp(dir)) return 1;
    CHECK(tiny_model(dir, true, &err), "%s", err.text);
    refused();
    gpt2();
    snprintf(rm, sizeof rm, "rm -rf %s", dir);
    if (system(rm)) return 1;
    return test_end();
}
