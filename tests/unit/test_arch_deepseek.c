// test_arch_deepseek.c: attention over latents and DeepSeek's mixtures: what a silent config means, as transformers
// reads it; which matrices a checkpoint's kv_b_proj is; what is refused.
#include "runtime/model/model.h"
#include "tests/unit/config.h"

#define OF(arch) "{\"architectures\":[\"" arch "\"],\"hidden_size\":64,\"intermediate_size\":160," \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"vocab_size\":260"
#define V2 OF("DeepseekV2ForCausalLM") ",\"num_experts_per_tok\":6"
#define V3 OF("DeepseekV3ForCausalLM")
#define YARN "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"original_max_position_embeddings\":4096,\"mscale\":1.0," \
    "\"mscale_all_dim\":1.0}"

static bool near(float a, double b) { return fabs(a - b) < 1e-6 * fabs(b); }

static void silent(void) {
    lq_desc d = accepted(V3 "}");
    const lq_part *a = &d.layer[0].part[0], *moe = &d.layer[3].part[1];
    CHECK(a->kind == LQ_P_MLA && a->heads == 4 && a->kv_heads == 1 && a->head_dim == 576 && a->v_dim == 512 &&
          a->nope == 128 && a->v_out == 128 && a->q_rank == 1536, "a silent V3's latents");
    CHECK(near(a->attn_scale, 1 / sqrt(192)) && a->latent_eps == 1e-6f && !a->latent_bias && !a->o_bias, "its scale");
    CHECK(d.rope[0].dim == 64 && d.rope[0].interleaved && d.rope[0].theta == 10000 && d.ctx == 4096 &&
          !d.tied, "its rope");
    CHECK(moe->experts == 256 && moe->experts_used == 8 && moe->ffn == 2048 && moe->route_groups == 8 &&
          moe->route_top_groups == 4 && moe->route_renorm && moe->route_scale == 2.5f && moe->route_bias &&
          moe->route == LQ_ROUTE_SIGMOID && d.layer[2].parts == 2 && d.layer[3].part[2].ffn == 2048, "its experts");
    lq_desc_free(&d);
    d = accepted(V2 "}");
    moe = &d.layer[0].part[1];
    CHECK(d.layer[0].part[0].q_rank == 1536 && moe->experts == 64 && moe->ffn == 1407 && !moe->route_groups &&
          !moe->route_renorm && !moe->route_bias && moe->route_scale == 1 && moe->route == LQ_ROUTE_SOFTMAX &&
          d.layer[0].part[2].ffn == 2 * 1407 && d.rope[0].interleaved && d.ctx == 2048, "a silent V2");
    lq_desc_free(&d);
    d = accepted(OF("Glm4MoeLiteForCausalLM") "}");
    a = &d.layer[0].part[0], moe = &d.layer[1].part[1];
    CHECK(a->q_rank == 768 && a->nope == 192 && a->v_out == 256 && d.norm_eps == 1e-5f && d.ctx == 202752 &&
          d.layer[0].parts == 2 && moe->experts == 64 && moe->experts_used == 4 && moe->ffn == 1536 &&
          moe->route_scale == 1.8f && moe->route_renorm, "a silent GLM-4.7-Flash");
    lq_desc_free(&d);
    d = accepted(OF("AXK1ForCausalLM") "}");
    moe = &d.layer[1].part[1];
    CHECK(d.layer[0].parts == 2 && moe->experts == 192 && moe->route_groups == 8 && moe->place == LQ_PRE &&
          d.layer[1].part[2].place == LQ_SUM && d.layer[0].part[1].place == LQ_PRE && d.ctx == 32768,
          "a silent A.X K1");
    lq_desc_free(&d);
    d = accepted(OF("Mistral4ForCausalLM") "}");
    a = &d.layer[0].part[0], moe = &d.layer[0].part[1];
    const double m = 0.1 * log(128) + 1;
    CHECK(a->q_rank == 1024 && a->v_dim == 256 && a->nope == 64 && a->head_dim == 320 && a->v_out == 128 &&
          near(a->attn_scale, m * m / sqrt(128)), "a silent Mistral 4's latents");
    CHECK(d.rope[0].kind == LQ_ROPE_YARN && d.rope[0].q_beta == 0.1 && d.rope[0].dim == 64 && d.rope[0].interleaved &&
          a->nope_rope == 1 && d.rope[1].dim == 64 && d.rope[1].q_beta == 0.1 && d.rope[1].original_ctx == 8192,
          "its rope");
    CHECK(moe->experts == 128 && moe->experts_used == 4 && moe->route == LQ_ROUTE_SOFTMAX && moe->route_renorm &&
          !moe->route_bias && moe->route_scale == 1, "its experts");
    lq_desc_free(&d);
    d = accepted(OF("YoutuForCausalLM") "}");
    CHECK(d.tied && d.ctx == 131072 && d.layer[3].parts == 2 && d.layer[3].part[1].kind == LQ_P_MLP, "a silent Youtu");
    lq_desc_free(&d);
    d = accepted(OF("MiniCPM3ForCausalLM") "}");
    a = &d.layer[0].part[0];
    CHECK(a->q_rank == 768 && a->v_dim == 256 && a->nope == 64 && a->head_dim == 288 && a->v_out == 16 &&
          !d.rope[0].interleaved && d.tied && d.embed_scale == 12 && near(a->scale, 0.7) &&
          near(d.logit_scale, 4) && d.ctx == 32768, "a silent MiniCPM 3");
    lq_desc_free(&d);
}

static void said(void) {
    lq_desc d = accepted(V3 ",\"q_lora_rank\":null,\"attention_bias\":true,\"rope_interleave\":false,"
                         "\"n_group\":1,\"topk_group\":1,\"first_k_dense_replace\":1," YARN "}");
    const lq_part *a = &d.layer[0].part[0];
    const double m = 0.1 * log(40) + 1;
    CHECK(!a->q_rank && a->latent_bias && a->o_bias && !d.rope[0].interleaved, "no latent of q, biases");
    CHECK(near(a->attn_scale, m * m / sqrt(192)) && d.rope[0].attn_factor == 1, "the scores have yarn's factor");
    CHECK(!d.layer[1].part[1].route_groups && d.layer[0].parts == 2 && d.layer[1].parts == 3, "one group of experts");
    lq_desc_free(&d);
    d = accepted(V2 ",\"topk_method\":\"group_limited_greedy\",\"n_group\":8,\"topk_group\":3,\"mlp_bias\":true}");
    CHECK(d.layer[0].part[1].route_groups == 8 && d.layer[0].part[1].route_top_groups == 3 &&
          d.layer[0].part[2].mlp_bias, "the best groups");
    lq_desc_free(&d);
    d = accepted(V2 ",\"topk_method\":\"greedy\",\"n_group\":8,\"topk_group\":3}");
    CHECK(!d.layer[0].part[1].route_groups, "groups that are not asked for");
    lq_desc_free(&d);
    d = accepted(OF("Glm4MoeLiteForCausalLM") ",\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\",\"sparse\"]}");
    CHECK(d.layer[0].parts == 3 && d.layer[1].parts == 2 && d.layer[2].parts == 3, "layers by name");
    lq_desc_free(&d);
    d = accepted(OF("DeepseekForCausalLM") ",\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_shared_experts\":2,"
                 "\"first_k_dense_replace\":1,\"moe_intermediate_size\":24}");
    CHECK(d.layer[0].parts == 2 && d.layer[1].part[0].kind == LQ_P_ATTN && d.layer[1].part[1].experts == 8 &&
          d.layer[1].part[2].ffn == 48 && !d.layer[1].part[1].route_renorm, "V1");
    lq_desc_free(&d);
    d = accepted(OF("DeepseekForCausalLM") "}");
    CHECK(d.layer[3].parts == 2 && d.layer[3].part[1].kind == LQ_P_MLP, "V1 without experts");
    lq_desc_free(&d);
}

// kv_b_proj has for each head the rows of K, then those of V; lq's own files have a stack of each, K's turned around.
static void slots(void) {
    lq_desc d = accepted(V3 ",\"qk_nope_head_dim\":6,\"v_head_dim\":10,\"kv_lora_rank\":20,\"qk_rope_head_dim\":4}");
    int n, seen = 0;
    lq_slot *s = lq_desc_slots(&d, 0, &n);
    for (int i = 0; s && i < n; i++) {
        lq_pick p;
        if ((s[i].role != LQ_R_K_B && s[i].role != LQ_R_V_B) || !lq_slot_pick(&s[i], 3, &p)) continue;
        const bool k = s[i].role == LQ_R_K_B;
        CHECK(s[i].count == 4 && s[i].n == (k ? 20 : 10) && s[i].k == (k ? 6 : 20) && s[i].quantizable, "%s",
              s[i].name);
        CHECK(!strcmp(p.name, "model.layers.0.self_attn.kv_b_proj.weight") && p.stack == 4 && p.at == 3 &&
              p.each == 16 && p.first == (k ? 0 : 6) && p.across == k, "%s of %s", s[i].name, p.name);
        seen++;
    }
    CHECK(seen == 2, "%d stacks", seen);
    free(s);
    lq_desc_free(&d);
}

// What a token leaves in the cache, and what reading it costs: the latent and what is rotated, once for all heads.
static void cache(void) {
    lq_desc d = accepted(V3 ",\"qk_nope_head_dim\":6,\"v_head_dim\":10,\"kv_lora_rank\":20,\"qk_rope_head_dim\":4}");
    lq_bound (*none)[LQ_ROLES] = calloc(4, sizeof *none);
    lq_dev dev = {.host = true};
    lq_model m = {.desc = d, .dev = &dev, .kv_type = LQ_F16, .layer = none};
    lq_work w = {0};
    CHECK(lq_kv_token_bytes(&m, -1) == 4 * 24 * 2, "%zu bytes a token", lq_kv_token_bytes(&m, -1));
    if (none) lq_model_work(&m, 1, 99, 1, &w);
    CHECK(w.bytes == 4 * 100 * 24 * 2 && w.fmas == 4 * 100 * 4 * (24 + 20) && w.dots == 0,
          "%g bytes, %g products", w.bytes, w.fmas);
    free(none);
    lq_desc_free(&d);
}

static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
        {V3 ",\"kv_lora_rank\":0}", "kv_lora_rank"},
        {V3 ",\"kv_lora_rank\":1e9}", "kv_lora_rank"},
        {V3 ",\"q_lora_rank\":0}", "q_lora_rank"},
        {V3 ",\"qk_nope_head_dim\":0}", "qk_nope_head_dim"},
        {V3 ",\"qk_rope_head_dim\":7}", "rotary dimension 7"},
        {V3 ",\"qk_rope_head_dim\":514}", "qk_rope_head_dim"},
        {V3 ",\"v_head_dim\":\"128\"}", "v_head_dim"},
        {V3 ",\"rope_interleave\":1}", "rope_interleave"},
        {V3 ",\"scoring_func\":\"softmax\"}", "scoring_func"},
        {V3 ",\"topk_method\":\"greedy\"}", "topk_method"},
        {V3 ",\"moe_layer_freq\":2}", "moe_layer_freq"},
        {V3 ",\"n_group\":7}", "n_group"},
        {V3 ",\"topk_group\":9}", "topk_group"},
        {V3 ",\"num_experts_per_tok\":129}", "num_experts_per_tok"},
        {V3 ",\"num_nextn_predict_layers\":-1}", "num_nextn_predict_layers"},
        {V2 ",\"norm_topk_prob\":true}", "norm_topk_prob"},
        {V2 ",\"topk_method\":\"noaux_tc\"}", "topk_method"},
        {OF("DeepseekV2ForCausalLM") "}", "num_experts_per_tok"},
        {OF("Glm4MoeLiteForCausalLM") ",\"mlp_layer_types\":[\"sparse\",\"dense\",\"thin\",\"sparse\"]}",
         "mlp_layer_types"},
        {OF("Glm4MoeLiteForCausalLM") ",\"mlp_layer_types\":[\"dense\"]}", "mlp_layer_types"},
        {OF("MiniCPM3ForCausalLM") ",\"scale_emb\":null}", "scale_emb"},
        {OF("Mistral4ForCausalLM") ",\"n_group\":2}", "n_group"},
        {OF("Mistral4ForCausalLM") ",\"qk_nope_head_dim\":63}", "numbers of a head turn"},
        {OF("Mistral4ForCausalLM") ",\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25,"
         "\"llama_4_scaling_beta\":0.1}}", "32 of 128 numbers of a head turn"},
        {OF("Mistral4ForCausalLM") ",\"rope_parameters\":{\"rope_type\":\"default\"}}", "llama_4_scaling_beta"},
        {"{\"architectures\":[\"YoutuForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":160,"
         "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":260}",
         "num_key_value_heads 2"},
        {"{\"architectures\":[\"YoutuForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":160,\"vocab_size\":260,"
         "\"num_hidden_layers\":4,\"num_attention_heads\":16000,\"num_key_value_heads\":16000}", "16000 heads"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

int main(void) {
    if (!config_begin()) return 1;
    silent();
    said();
    slots();
    cache();
    refused();
    return config_end();
}
