// test_arch_moe.c: config.json of mixtures of experts, from strangers: what transformers takes where it is silent,
// which layers have experts, every key that changes a result read, or refused in one line that names it.
#include "tests/unit/config.h"

#define SIZES "\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":5,\"num_attention_heads\":32,\"vocab_size\":200000"
#define OF(name) "{\"architectures\":[\"" name "\"]," SIZES

// What the configuration classes of transformers have as defaults.
static void silent(void) {
    static const struct {
        const char *name;
        int kv_heads, head_dim, ctx;
        float eps;
        double theta;
        bool tied;
        int experts, used, ffn, shared, dense; // width of what all rows share, layers with an MLP
        lq_route_kind route;
        bool bias, renorm;
        float scale;
        int bos, eos;
    } rows[] = {
        {"Ernie4_5_MoeForCausalLM", 4, 2, 131072, 1e-5f, 5e5, true, 64, 6, 1536, 3072, 1, LQ_ROUTE_SOFTMAX, true, true,
         0, 1, 2},
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

// Which layers have experts, as a row of letters.
static void layers(void) {
    static const char *const rows[][2] = {
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_start_index\":0}", "eeeee"},
        {OF("Ernie4_5_MoEForCausalLM") ",\"moe_layer_end_index\":2}", "deedd"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_start_index\":2,\"moe_layer_interval\":2}", "ddded"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_start_index\":9}", "ddddd"},
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

static void refused(void) {
    static const char *const rows[][2] = { // config, a word of the line
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_num_experts\":[64,64]}", "moe_num_experts"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_k\":0}", "moe_k"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_num_experts\":4,\"moe_k\":5}", "moe_k"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_layer_interval\":0}", "moe_layer_interval"},
        {OF("Ernie4_5_MoeForCausalLM") ",\"moe_norm_min\":0.1}", "moe_norm_min"},
    };
    refused_all(rows, sizeof rows / sizeof *rows);
}

int main(void) {
    if (!config_begin()) return 1;
    silent();
    layers();
    keys();
    refused();
    return config_end();
}
