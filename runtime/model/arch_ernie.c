// arch_ernie.c: ERNIE 4.5: Llama in which pairs of neighbours turn; dense, or with a mixture in place of some MLPs,
// drawn from the softmax of all experts with a number for each that counts for the drawing alone, beside experts that
// all rows share.
#include "runtime/model/family.h"

#define SHARED LQ_LAYER "mlp.shared_experts."
const char *const lq_names_ernie_moe[LQ_ROLES] = {
    LQ_NAMES_ENDS, LQ_NAMES_NORMS, LQ_NAMES_ATTN, LQ_NAMES_MLP, LQ_NAMES_EXPERTS,
    [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.moe_statics.e_score_correction_bias=", [LQ_R_SHARED_GATE] = SHARED "gate_proj",
    [LQ_R_SHARED_UP] = SHARED "up_proj", [LQ_R_SHARED_DOWN] = SHARED "down_proj",
};
// Layers that guess further tokens.
const char *const lq_ignores_ernie_moe[] = {"model.mtp_*", NULL};

static bool read(const cJSON *c, lq_desc *d, lq_part part[2], lq_err *err) {
    d->norm_eps = 1e-5f;
    d->ctx = 1 << 17;
    d->tied = true;
    d->rope[0].theta = 500000;
    if (!lq_config_llama(c, d, part, err) || !lq_config_bias(c, "use_bias", &part[0], err)) return false;
    part[1].mlp_bias = part[0].q_bias;
    d->rope[0].interleaved = true;
    lq_ends(d, 1, 2);
    return true;
}

bool lq_describe_ernie(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    lq_part part[2] = {{.kv_heads = 2, .head_dim = lq_config_null(c, "head_dim") ? 0 : 128}};
    (void)ckpt;
    return read(c, d, part, err) && lq_layers_fill(d, part, 2, err) && lq_layers_window(c, d, 0, 0, err);
}

bool lq_describe_ernie_moe(const lq_ckpt *ckpt, const cJSON *c, lq_desc *d, lq_err *err) {
    static const char *const fused[LQ_ROLES] = {
        LQ_NAMES_FUSED("mlp.", "gate"), [LQ_R_ROUTE_BIAS] = LQ_LAYER "mlp.gate.moe_statics.e_score_correction_bias=",
    };
    lq_part part[3] = {{.kv_heads = 4}}, *moe = &part[1], mlp;
    int experts = 64, used = 6, ffn = 1536, shared = 2, first = 1, last = -1, every = 1;
    float least = 0;
    if (!read(c, d, part, err) || !lq_config_int(c, "moe_num_experts", 1, LQ_EXPERTS, &experts, err) ||
        !lq_config_int(c, "moe_intermediate_size", 1, 1 << 20, &ffn, err) ||
        !lq_config_int(c, "moe_num_shared_experts", 0, 64, &shared, err) ||
        !lq_config_int(c, "moe_layer_start_index", 0, 1 << 20, &first, err) ||
        !lq_config_int(c, "moe_layer_end_index", -1, 1 << 20, &last, err) ||
        !lq_config_int(c, "moe_layer_interval", 1, 1 << 20, &every, err) ||
        !lq_config_float(c, "moe_norm_min", &least, err))
        return false;
    if (used > experts) used = experts;
    if (!lq_config_int(c, "moe_k", 1, experts, &used, err)) return false;
    if (least > 1e-6f) // what the shares of the chosen are divided by, if their sum is less
        return lq_fail(err, LQ_E_UNSUPPORTED, "config.json: moe_norm_min %g, expected next to nothing", (double)least);
    d->head_bias = moe->mlp_bias;
    part[2] = mlp = *moe;
    part[2].ffn = ffn * shared;
    part[2].beside = part[2].shared = true;
    moe->ffn = ffn;
    moe->mlp_bias = false;
    moe->experts = experts;
    moe->experts_used = used;
    moe->route = LQ_ROUTE_SOFTMAX;
    moe->route_bias = moe->route_bias_row = moe->route_renorm = true;
    if (!lq_config_experts(NULL, ckpt, fused, d, moe, err) || !lq_layers_fill(d, part, shared ? 3 : 2, err))
        return false;
    if (last < 0) last = d->layers - 1;
    for (int i = 0; i < d->layers; i++)
        if (i < first || i > last || (i + 1) % every) d->layer[i].parts = 2, d->layer[i].part[1] = mlp;
    return lq_layers_window(c, d, 0, 0, err);
}
