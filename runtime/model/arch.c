// arch.c: lq_archs[] (how each architecture's config becomes a description) and the list of weights a description needs.
// Refuses configs whose numbers make no sense, and whatever would change the result and is not modelled here.
#include "runtime/model/arch.h"
#include "formats/parts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const what = "config.json";

// --- names ---
#define LAYER "model.layers.%d."
static const char *const names_llama[LQ_ROLES] = {
    [LQ_R_EMBED] = "model.embed_tokens", [LQ_R_NORM_OUT] = "model.norm", [LQ_R_HEAD] = "lm_head",
    [LQ_R_NORM_MIX] = LAYER "input_layernorm", [LQ_R_NORM_MLP] = LAYER "post_attention_layernorm",
    [LQ_R_Q] = LAYER "self_attn.q_proj", [LQ_R_K] = LAYER "self_attn.k_proj",
    [LQ_R_V] = LAYER "self_attn.v_proj", [LQ_R_O] = LAYER "self_attn.o_proj",
    [LQ_R_GATE] = LAYER "mlp.gate_proj", [LQ_R_UP] = LAYER "mlp.up_proj", [LQ_R_DOWN] = LAYER "mlp.down_proj",
};

// --- reading ---
static bool need_int(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err) {
    int64_t v = INT64_MIN;
    if (!lq_json_int(c, key, min, max, &v, what, err)) return false;
    if (v == INT64_MIN) return lq_fail(err, LQ_E_FORMAT, "%s: %s is missing", what, key);
    *out = (int)v;
    return true;
}
static bool take_int(const cJSON *c, const char *key, int64_t min, int64_t max, int *out, lq_err *err) {
    int64_t v = *out;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(c, key);
    if (item && cJSON_IsNull(item)) return true;
    if (!lq_json_int(c, key, min, max, &v, what, err)) return false;
    *out = (int)v;
    return true;
}
static bool read_act(const cJSON *c, const char *key, lq_unary *out, lq_err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(c, key);
    if (item && !cJSON_IsString(item)) return lq_fail(err, LQ_E_FORMAT, "%s: %s is not a string", what, key);
    static const struct { const char *name; lq_unary fn; } rows[] = {
        {"silu", LQ_SILU}, {"swish", LQ_SILU}, {"gelu", LQ_GELU}, {"gelu_pytorch_tanh", LQ_GELU_TANH}, {"gelu_new", LQ_GELU_TANH}, {"relu", LQ_RELU},
    };
    const char *name = lq_json_str(c, key);
    if (!name) return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, name)) { *out = rows[i].fn; return true; }
    return lq_fail(err, LQ_E_UNSUPPORTED, "%s: %s \"%s\" is not one lq knows", what, key, name);
}
static bool read_eps(const cJSON *c, const char *key, float *out, lq_err *err) {
    double v = *out;
    if (!lq_json_num(c, key, &v, what, err)) return false;
    if (!(v > 0 && v < 1)) return lq_fail(err, LQ_E_FORMAT, "%s: %s %g, expected between 0 and 1", what, key, v);
    *out = (float)v;
    return true;
}

// The numbers that every decoder of the Llama family has under the same keys.
static bool read_decoder(const cJSON *c, lq_desc *d, lq_layer *l, lq_err *err) {
    if (!need_int(c, "hidden_size", 1, 1 << 20, &d->dim, err) || !need_int(c, "num_hidden_layers", 1, 4096, &d->layers, err) ||
        !need_int(c, "num_attention_heads", 1, 1 << 14, &l->heads, err) || !need_int(c, "intermediate_size", 1, 1 << 22, &l->ffn, err) ||
        !need_int(c, "vocab_size", 1, 1 << 24, &d->vocab, err))
        return false;
    l->kv_heads = l->heads;
    l->head_dim = d->dim / l->heads;
    d->ctx = 2048;
    if (!take_int(c, "num_key_value_heads", 1, 1 << 14, &l->kv_heads, err) || !take_int(c, "head_dim", 1, 4096, &l->head_dim, err) ||
        !take_int(c, "max_position_embeddings", 1, LQ_CTX_MAX, &d->ctx, err) || !lq_json_bool(c, "tie_word_embeddings", &d->tied, what, err))
        return false;
    if (l->heads % l->kv_heads)
        return lq_fail(err, LQ_E_FORMAT, "%s: num_attention_heads %d is not a multiple of num_key_value_heads %d", what, l->heads, l->kv_heads);
    if (l->head_dim < 1) return lq_fail(err, LQ_E_FORMAT, "%s: num_attention_heads %d is more than hidden_size %d", what, l->heads, d->dim);
    if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(c, "head_dim")) && d->dim % l->heads)
        return lq_fail(err, LQ_E_FORMAT, "%s: hidden_size %d is not a multiple of num_attention_heads %d", what, d->dim, l->heads);
    if ((int64_t)l->heads * l->head_dim > 1 << 22)
        return lq_fail(err, LQ_E_FORMAT, "%s: %d heads of %d, expected no more than %d in all", what, l->heads, l->head_dim, 1 << 22);
    l->v_dim = l->head_dim;
    l->gated = true;
    l->act = LQ_SILU;
    l->place = LQ_PRE;
    l->attn_scale = (float)(1 / sqrt(l->head_dim));
    return read_act(c, "hidden_act", &l->act, err);
}
// Layers with one window form a group of the KV cache.
static bool group_layers(lq_desc *d, lq_err *err) {
    d->groups = 0;
    for (int i = 0; i < d->layers; i++) {
        int g = 0;
        while (g < d->groups && d->group_window[g] != d->layer[i].window) g++;
        if (g == LQ_KV_GROUPS) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: more than %d different windows", what, LQ_KV_GROUPS);
        if (g == d->groups) d->group_window[d->groups++] = d->layer[i].window;
        d->layer[i].group = g;
    }
    return true;
}
// All layers alike.
static bool fill_layers(lq_desc *d, const lq_layer *l, lq_err *err) {
    d->layer = calloc((size_t)d->layers, sizeof *d->layer);
    if (!d->layer) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", d->layers);
    for (int i = 0; i < d->layers; i++) {
        d->layer[i] = *l;
        d->layer[i].kv_from = i;
    }
    return group_layers(d, err);
}

static bool describe_llama(const cJSON *c, lq_desc *d, lq_err *err) {
    lq_layer l = {.mixer = LQ_MIX_ATTN};
    bool bias = false;
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(c, "rope_interleaved"))) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: rope_interleaved is true", what);
    d->norm = LQ_NORM_RMS;
    d->norm_eps = 1e-6f;
    if (!read_decoder(c, d, &l, err) || !read_eps(c, "rms_norm_eps", &d->norm_eps, err) || !lq_json_bool(c, "attention_bias", &bias, what, err) ||
        !lq_json_bool(c, "mlp_bias", &l.mlp_bias, what, err) || !lq_rope_read(c, l.head_dim, d->ctx, &d->rope[0], err))
        return false;
    l.q_bias = l.k_bias = l.v_bias = l.o_bias = bias;
    d->ropes = 1;
    if (d->vocab > 2) d->bos = 1, d->eos[0] = 2, d->eoses = 1; // what transformers takes where a config is silent
    return fill_layers(d, &l, err);
}

const lq_arch lq_archs[] = {
    {"LlamaForCausalLM", names_llama, describe_llama},
    {"LLaMAForCausalLM", names_llama, describe_llama}, // as the first conversions spelt it
};
const size_t lq_arch_count = sizeof lq_archs / sizeof *lq_archs;

// --- the files ---
static const lq_json_limits limits = {16u << 20, 64};

// A token id; what is no id of the vocabulary is left out, as it can never come up.
static bool read_id(const cJSON *v, const lq_desc *d, int32_t *out) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < d->vocab) || v->valuedouble != floor(v->valuedouble)) return false;
    *out = (int32_t)v->valuedouble;
    return true;
}
// An absent key leaves what there is; null means none.
static bool read_ids(const cJSON *c, const char *file, lq_desc *d, lq_err *err) {
    const cJSON *bos = cJSON_GetObjectItemCaseSensitive(c, "bos_token_id"), *eos = cJSON_GetObjectItemCaseSensitive(c, "eos_token_id"), *v;
    if (bos && !read_id(bos, d, &d->bos)) d->bos = -1;
    if (eos) d->eoses = 0;
    if (!cJSON_IsArray(eos)) {
        d->eoses += eos && read_id(eos, d, &d->eos[0]);
        return true;
    }
    cJSON_ArrayForEach(v, eos) {
        if (!cJSON_IsNumber(v) || d->eoses == (int)(sizeof d->eos / sizeof *d->eos))
            return lq_fail(err, LQ_E_FORMAT, "%s: eos_token_id is not a list of up to 16 ids", file);
        d->eoses += read_id(v, d, &d->eos[d->eoses]);
    }
    return true;
}
static bool open_json(lq_ckpt *c, const char *name, cJSON **out, lq_err *err) {
    lq_bytes text;
    *out = NULL;
    if (!lq_ckpt_file(c, name, &text, err)) return false;
    return !text.p || lq_json_parse(text.p, text.n, limits, name, out, err);
}
static bool find_arch(const cJSON *config, const lq_arch **out, lq_err *err) {
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(config, "architectures"), 0);
    if (!cJSON_IsString(first)) return lq_fail(err, LQ_E_FORMAT, "%s: architectures names none", what);
    for (size_t i = 0; i < lq_arch_count; i++)
        if (!strcmp(lq_archs[i].name, first->valuestring)) { *out = &lq_archs[i]; return true; }
    return lq_fail(err, LQ_E_UNSUPPORTED, "%s: architecture \"%s\" is not one lq knows", what, first->valuestring);
}

bool lq_desc_read(lq_ckpt *c, lq_desc *d, lq_err *err) {
    cJSON *config = NULL, *generation = NULL;
    *d = (lq_desc){.bos = -1};
    bool done = open_json(c, what, &config, err);
    if (done && !config) done = lq_fail(err, LQ_E_FORMAT, "%s: there is no config.json beside it", lq_ckpt_path(c));
    done = done && find_arch(config, &d->arch, err) && d->arch->describe(config, d, err) && read_ids(config, what, d, err) &&
           open_json(c, "generation_config.json", &generation, err) && (!generation || read_ids(generation, "generation_config.json", d, err));
    cJSON_Delete(config);
    cJSON_Delete(generation);
    if (!done) {
        lq_desc_free(d);
        return err ? lq_fail_in(err, "%s", lq_ckpt_path(c)) : false;
    }
    return true;
}
void lq_desc_free(lq_desc *d) {
    free(d->layer);
    d->layer = NULL;
}

// --- slots ---
typedef struct list { const lq_desc *d; int layer; lq_slot *out; int n; } list; // out NULL: only counted

static void put(list *s, lq_role role, lq_set set, int64_t n, int64_t k, const char *suffix) {
    lq_slot *o = &(lq_slot){0};
    if (s->out) o = &s->out[s->n];
    s->n++;
    *o = (lq_slot){.role = role, .set = set, .layer = s->layer, .expert = -1, .n = n, .k = k, .bias = !strcmp(suffix, ".bias"), .quantizable = k > 0};
    char base[80];
    const char *pattern = s->d->arch->names[role], *mark = strstr(pattern, "%d");
    if (mark) snprintf(base, sizeof base, "%.*s%d%s", (int)(mark - pattern), pattern, s->layer, mark + 2);
    else snprintf(base, sizeof base, "%s", pattern);
    snprintf(o->name, sizeof o->name, "%s%s", base, suffix);
}
static void put_matrix(list *s, lq_role role, lq_set set, int64_t n, int64_t k, bool bias) {
    put(s, role, set, n, k, ".weight");
    if (bias) put(s, role, set, n, 0, ".bias");
}
static void put_norm(list *s, lq_role role, int64_t n) {
    put(s, role, LQ_SET_NONE, n, 0, ".weight");
    if (s->d->norm_bias) put(s, role, LQ_SET_NONE, n, 0, ".bias");
}

static int list_slots(const lq_desc *d, int layer, lq_slot *out) {
    list s = {d, layer, out, 0};
    if (layer < 0) {
        put_matrix(&s, LQ_R_EMBED, LQ_SET_NONE, d->vocab, d->dim, false);
        put_norm(&s, LQ_R_NORM_OUT, d->dim);
        if (!d->tied) put_matrix(&s, LQ_R_HEAD, LQ_SET_HEAD, d->vocab, d->dim, false);
        return s.n;
    }
    const lq_layer *l = &d->layer[layer];
    const int64_t q = (int64_t)l->heads * l->head_dim, k = (int64_t)l->kv_heads * l->head_dim, v = (int64_t)l->kv_heads * l->v_dim;
    put_norm(&s, LQ_R_NORM_MIX, d->dim);
    put_matrix(&s, LQ_R_Q, LQ_SET_QKV, q, d->dim, l->q_bias);
    put_matrix(&s, LQ_R_K, LQ_SET_QKV, k, d->dim, l->k_bias);
    put_matrix(&s, LQ_R_V, LQ_SET_QKV, v, d->dim, l->v_bias);
    put_matrix(&s, LQ_R_O, LQ_SET_O, d->dim, (int64_t)l->heads * l->v_dim, l->o_bias);
    put_norm(&s, LQ_R_NORM_MLP, d->dim);
    if (l->gated) put_matrix(&s, LQ_R_GATE, LQ_SET_GATE_UP, l->ffn, d->dim, l->mlp_bias);
    put_matrix(&s, LQ_R_UP, LQ_SET_GATE_UP, l->ffn, d->dim, l->mlp_bias);
    put_matrix(&s, LQ_R_DOWN, LQ_SET_DOWN, d->dim, l->ffn, l->mlp_bias);
    return s.n;
}
lq_slot *lq_desc_slots(const lq_desc *d, int layer, int *count) {
    *count = list_slots(d, layer, NULL);
    lq_slot *slots = calloc((size_t)*count, sizeof *slots);
    if (slots) list_slots(d, layer, slots);
    return slots;
}

// --- names that belong ---
static bool known_slot(const lq_desc *d, const char *name, size_t len) {
    const char *digits = strpbrk(name, "0123456789");
    int layer = -1, n = 0;
    if (digits && (size_t)(digits - name) < len && strlen(digits) < 200) {
        const long l = strtol(digits, NULL, 10);
        layer = l < d->layers ? (int)l : d->layers;
    }
    if (layer == d->layers) return false;
    lq_slot *slots = lq_desc_slots(d, layer, &n);
    bool found = false;
    for (int i = 0; slots && i < n && !found; i++) found = strlen(slots[i].name) == len && !memcmp(slots[i].name, name, len);
    free(slots);
    return found;
}
// Tensors that some exporters write and no forward reads.
static bool harmless(const lq_desc *d, const char *name) {
    const char *end = strstr(name, "rotary_emb.inv_freq");
    return (end && !strcmp(end, "rotary_emb.inv_freq")) || (d->tied && !strncmp(name, d->arch->names[LQ_R_HEAD], strlen(d->arch->names[LQ_R_HEAD])));
}
bool lq_desc_knows(const lq_desc *d, const char *name) {
    const size_t len = strlen(name), tail = lq_part_tail(name);
    return (tail && known_slot(d, name, len - tail)) || known_slot(d, name, len) || harmless(d, name);
}
