// narrow.c: what a cut leaves of a model's description, and the config.json that says so. The description is made from
// the one that there was; config.json is edited key by key and read back as any other, and has to give the same. What
// an architecture cannot say (that its fourth layer, now the third, still has no window) is refused by what it is.
#include "quant/prune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lq_cut_free(lq_cut *c) {
    for (int i = 0; i < LQ_WIDTHS; i++) {
        for (int l = 0; c->of[i] && l < c->was; l++) free(c->of[i][l]);
        free(c->of[i]);
    }
    free(c->channel);
    free(c->layer);
    *c = (lq_cut){0};
}

// --- the description ---

static int new_index(const lq_cut *c, int layer) {
    for (int i = 0; i < c->layers; i++)
        if (c->layer[i] == layer) return i;
    return -1;
}

// Layers of one window share block tables, in the order of their first.
static void group(lq_desc *d) {
    d->groups = 0;
    memset(d->group_window, 0, sizeof d->group_window);
    for (int i = 0; i < d->layers; i++) {
        const lq_part *a = lq_layer_attn(&d->layer[i]);
        int g = 0;
        if (!a) continue;
        while (g < d->groups && d->group_window[g] != a->window) g++;
        if (g == d->groups) d->group_window[d->groups++] = a->window;
        d->layer[i].group = g;
    }
}

// Why it cannot have fewer heads, or a narrower residual; NULL: it can.
static const char *no_widths(const lq_desc *was, const lq_prune *what) {
    if (what->hidden > 0 && was->embed_dim) return "has an embedding of another width than its residual";
    if (what->hidden > 0 && was->token_dim) return "tells each layer numbers of a token";
    const char *norm = was->names[LQ_R_Q_NORM], *mark = norm ? strstr(norm, "%d") : NULL;
    for (int l = 0; what->heads > 0 && l < was->layers; l++) {
        const lq_part *a = lq_layer_attn(&was->layer[l]);
        if (!a) continue;
        if (a->kind != LQ_P_ATTN) return "has latents that all heads share";
        if (a->alibi) return "has slopes that follow from the number of heads";
        if (was->layer[l].kv_from != l) return "has layers that use others' K and V";
        if (a->qk_norm == LQ_QK_HEADS && mark && strstr(mark + 2, "%d"))
            return "has a tensor for the norm of each head";
    }
    return NULL;
}

static void narrow_layer(const lq_desc *was, const lq_layer *from, const lq_prune *what, lq_layer *to) {
    for (int i = 0; i < to->parts; i++) {
        lq_part *p = &to->part[i];
        const int share = p->kv_heads ? p->heads / p->kv_heads : 0;
        if (p->kind == LQ_P_MLP || p->kind == LQ_P_MOE) p->ffn = lq_keep_ffn(was, from, &from->part[i], what);
        if (p->kind == LQ_P_ATTN) p->kv_heads = lq_keep_kv(&from->part[i], what), p->heads = share * p->kv_heads;
    }
}

static bool expect(const lq_desc *was, const lq_cut *cut, lq_desc *out, lq_err *err) {
    const char *why = no_widths(was, &cut->what);
    *out = *was;
    out->layer = NULL;
    if (why) return lq_fail(err, LQ_E_UNSUPPORTED, "it %s", why);
    out->dim = lq_keep(was->dim, cut->what.hidden, cut->what.group);
    out->layers = cut->layers;
    out->layer = calloc((size_t)cut->layers, sizeof *out->layer);
    if (!out->layer) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", cut->layers);
    for (int i = 0; i < cut->layers; i++) {
        const int from = cut->layer[i];
        lq_layer *l = &out->layer[i];
        *l = was->layer[from];
        narrow_layer(was, &was->layer[from], &cut->what, l);
        l->kv_from = new_index(cut, was->layer[from].kv_from);
        if (l->kv_from < 0)
            return lq_fail(err, LQ_E_UNSUPPORTED, "layer %d uses K and V of layer %d, which has to stay", from,
                           was->layer[from].kv_from);
    }
    group(out);
    return true;
}

// Whether two parts compute the same; how other people's files have their tensors is no matter.
static bool alike(const lq_part *a, const lq_part *b) {
    lq_part x = *a;
    x.qkv = b->qkv, x.gate_up = b->gate_up, x.expert_across = b->expert_across, x.expert_turns = b->expert_turns;
    x.router_across = b->router_across, x.route_bias_of = b->route_bias_of;
    return !memcmp(&x, b, sizeof x);
}

// What two descriptions differ in; NULL: they are the same.
static const char *differ(const lq_desc *a, const lq_desc *b, int *layer) {
    lq_desc x = *a, y = *b;
    x.layer = y.layer = NULL;
    *layer = -1;
    if (x.layers != y.layers) return "the number of layers";
    if (x.dim != y.dim) return "the width of the residual";
    if (x.embed_scale != y.embed_scale) return "another scale of the embedding than follows from its width";
    for (int i = 0; i < x.layers; i++) {
        const lq_layer *l = &a->layer[i], *m = &b->layer[i];
        *layer = i;
        if (l->kv_from != m->kv_from) return "whose K and V it uses";
        if (l->parts != m->parts) return "what parts it has";
        for (int k = 0; k < l->parts; k++) {
            const lq_part *p = &l->part[k], *q = &m->part[k];
            if (p->kind != q->kind) return "what parts it has";
            if (p->window != q->window || p->chunk != q->chunk) return "its window";
            if (p->rope != q->rope) return "its positions";
            if (p->heads != q->heads || p->kv_heads != q->kv_heads) return "its heads";
            if (p->head_dim != q->head_dim || p->v_dim != q->v_dim) return "the width of its heads";
            if (p->ffn != q->ffn) return "its inner width";
            if (!alike(p, q)) return "its numbers";
        }
    }
    *layer = -1;
    return memcmp(&x, &y, sizeof x) ? "numbers of the whole" : NULL;
}

// --- config.json ---

static void set_number(cJSON *o, const char *key, double v) {
    cJSON *item = cJSON_GetObjectItemCaseSensitive(o, key);
    if (cJSON_IsNumber(item)) cJSON_SetNumberValue(item, v);
}

// How many layers of those that stay were among the first `n`.
static int stay_of(const lq_cut *cut, int n) {
    int stay = 0;
    while (stay < cut->layers && cut->layer[stay] < n) stay++;
    return stay;
}

static bool is_mixture(const lq_layer *l) {
    for (int i = 0; i < l->parts; i++)
        if (l->part[i].kind == LQ_P_MOE) return true;
    return false;
}

// Lists that have an entry for each layer.
static void cut_lists(cJSON *o, const lq_desc *was, const lq_cut *cut) {
    static const char *const keys[] = {
        "layer_types", "mlp_layer_types", "no_rope_layers", "layers_block_type", "attention_layers", "num_experts",
        "moe_topk", "moe_intermediate_size", "intermediate_size", "moe_layer_freq", "hybrid_layer_pattern",
        "attn_type_list", "num_key_value_heads", "num_attention_heads",
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        cJSON *list = cJSON_GetObjectItemCaseSensitive(o, keys[i]);
        if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < was->layers) continue;
        cJSON *all = cJSON_CreateArray(), *v = list->child;
        for (int l = 0; v && l < was->layers; l++) {
            cJSON *next = v->next;
            cJSON *own = cJSON_DetachItemViaPointer(list, v);
            if (new_index(cut, l) < 0) cJSON_Delete(own);
            else cJSON_AddItemToArray(all, own);
            v = next;
        }
        cJSON_ReplaceItemInObjectCaseSensitive(o, keys[i], all);
    }
}

// An object whose keys are layers.
static void cut_objects(cJSON *o, const lq_cut *cut) {
    static const char *const key = "per_layer_config";
    cJSON *was = cJSON_GetObjectItemCaseSensitive(o, key), *v;
    if (!cJSON_IsObject(was)) return;
    cJSON *now = cJSON_CreateObject();
    while ((v = was->child)) {
        char *end, name[32];
        const long at = strtol(v->string, &end, 10);
        const int stays = end == v->string || *end || at < 0 || at > 4096 ? -1 : new_index(cut, (int)at);
        snprintf(name, sizeof name, "%d", stays);
        v = cJSON_DetachItemViaPointer(was, v);
        if (stays < 0) cJSON_Delete(v);
        else cJSON_AddItemToObject(now, name, v);
    }
    cJSON_ReplaceItemInObjectCaseSensitive(o, key, now);
}

static cJSON *indexes(const lq_desc *d, bool mixtures) {
    cJSON *all = cJSON_CreateArray();
    for (int l = 0; l < d->layers; l++)
        if (is_mixture(&d->layer[l]) == mixtures) cJSON_AddItemToArray(all, cJSON_CreateNumber(l));
    return all;
}

// Which layers have a mixture, where a list or a range of them says so.
static void say_mixtures(cJSON *o, const lq_desc *d) {
    int first = 0, last = d->layers - 1;
    while (first < d->layers && !is_mixture(&d->layer[first])) first++;
    while (last >= 0 && !is_mixture(&d->layer[last])) last--;
    set_number(o, "first_k_dense_replace", first);
    set_number(o, "num_dense_layers", first);
    static const char *const ends[] = {"moe_layer_start_index", "moe_layer_end_index"};
    for (int i = 0; i < 2; i++) {
        cJSON *v = cJSON_GetObjectItemCaseSensitive(o, ends[i]);
        if (cJSON_IsArray(v)) v = v->child;
        if (cJSON_IsNumber(v) && (i == 0 || v->valuedouble >= 0)) cJSON_SetNumberValue(v, i ? last : first);
    }
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(o, "mlp_only_layers")))
        cJSON_ReplaceItemInObjectCaseSensitive(o, "mlp_only_layers", indexes(d, false));
    if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(o, "moe_layers")))
        cJSON_ReplaceItemInObjectCaseSensitive(o, "moe_layers", indexes(d, true));
}

// GPT-Neo's: [[words of layers, how many times]].
static void say_neo(cJSON *o, const lq_desc *d) {
    static const char *const key = "attention_types";
    if (!cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(o, key))) return;
    cJSON *all = cJSON_CreateArray(), *one = cJSON_CreateArray(), *words = cJSON_CreateArray();
    for (int l = 0; l < d->layers; l++)
        cJSON_AddItemToArray(words, cJSON_CreateString(d->layer[l].part[0].window ? "local" : "global"));
    cJSON_AddItemToArray(one, words);
    cJSON_AddItemToArray(one, cJSON_CreateNumber(1));
    cJSON_AddItemToArray(all, one);
    cJSON_ReplaceItemInObjectCaseSensitive(o, key, all);
}

static void say_layers(cJSON *o, const lq_desc *was, const lq_desc *d, const lq_cut *cut) {
    static const char *const counts[] = {"num_hidden_layers", "num_layers", "n_layers", "n_layer"};
    cJSON *v;
    for (int i = 0; i < 4; i++) {
        v = cJSON_GetObjectItemCaseSensitive(o, counts[i]);
        if (cJSON_IsNumber(v) && (int)v->valuedouble == was->layers) cJSON_SetNumberValue(v, d->layers);
    }
    cut_lists(o, was, cut);
    cut_objects(o, cut);
    say_mixtures(o, d);
    say_neo(o, d);
    v = cJSON_GetObjectItemCaseSensitive(o, "scale_depth"); // MiniCPM divides it by the root of the number of layers
    if (cJSON_IsNumber(v)) cJSON_SetNumberValue(v, v->valuedouble * sqrt((double)d->layers / was->layers));
    v = cJSON_GetObjectItemCaseSensitive(o, "max_window_layers");
    if (cJSON_IsNumber(v) && v->valuedouble < was->layers)
        cJSON_SetNumberValue(v, stay_of(cut, v->valuedouble > 0 ? (int)v->valuedouble : 0));
    v = cJSON_GetObjectItemCaseSensitive(o, "num_kv_shared_layers");
    if (cJSON_IsNumber(v) && v->valuedouble > 0 && v->valuedouble < was->layers)
        cJSON_SetNumberValue(v, d->layers - stay_of(cut, was->layers - (int)v->valuedouble));
}

static void put(cJSON *o, const char *key, cJSON *v) {
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    cJSON_AddItemToObject(o, key, v);
}

// What a rule said of layers by their index ("each fourth") is said of each.
static void say_each(cJSON *o, const lq_desc *d) {
    cJSON *types = cJSON_CreateArray(), *turns = cJSON_CreateArray();
    bool mixed = false;
    for (int l = 0; l < d->layers; l++) {
        const lq_part *a = &d->layer[l].part[0];
        const char *type = a->chunk ? "chunked_attention" : a->window ? "sliding_attention" : "full_attention";
        cJSON_AddItemToArray(types, cJSON_CreateString(type));
        cJSON_AddItemToArray(turns, cJSON_CreateNumber(a->rope == 0));
        mixed |= is_mixture(&d->layer[l]) != is_mixture(&d->layer[0]);
    }
    put(o, "layer_types", types);
    put(o, "no_rope_layers", turns);
    if (!mixed) return;
    cJSON *const steps[] = {cJSON_GetObjectItemCaseSensitive(o, "decoder_sparse_step"),
                            cJSON_GetObjectItemCaseSensitive(o, "interleave_moe_layer_step"),
                            cJSON_GetObjectItemCaseSensitive(o, "moe_layer_interval")};
    for (int i = 0; i < 3; i++)
        if (cJSON_IsNumber(steps[i])) cJSON_SetNumberValue(steps[i], 1);
    put(o, "mlp_only_layers", indexes(d, false));
    put(o, "moe_layers", indexes(d, true));
}

// --- widths ---

// Numbers that say a width: what they were and what they become.
typedef struct sizes { int was[64], now[64], n; } sizes;

static void add_size(sizes *s, int was, int now) {
    for (int i = 0; i < s->n; i++)
        if (s->was[i] == was) return;
    if (s->n < 64) s->was[s->n] = was, s->now[s->n++] = now;
}

static void exchange(cJSON *v, const sizes *s) {
    for (int i = 0; cJSON_IsNumber(v) && i < s->n; i++)
        if (v->valuedouble == s->was[i]) {
            cJSON_SetNumberValue(v, s->now[i]);
            return;
        }
}

static void exchange_all(cJSON *o, const char *const *keys, const sizes *s) {
    for (; *keys; keys++) {
        cJSON *v = cJSON_GetObjectItemCaseSensitive(o, *keys), *of;
        exchange(v, s);
        if (cJSON_IsArray(v)) cJSON_ArrayForEach(of, v) exchange(of, s);
    }
}

static void add_part(const lq_part *was, const lq_part *now, sizes *ffn, sizes *heads, sizes *kv) {
    if (was->kind == LQ_P_ATTN) add_size(heads, was->heads, now->heads), add_size(kv, was->kv_heads, now->kv_heads);
    if (was->kind != LQ_P_MLP && was->kind != LQ_P_MOE) return;
    add_size(ffn, was->ffn, now->ffn);
}

static void say_widths(cJSON *o, const lq_desc *was, const lq_desc *d, const lq_cut *cut) {
    static const char *const of_ffn[] = {
        "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size",
        "intermediate_size_mlp", "prefix_dense_intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", NULL};
    static const char *const of_heads[] = {"num_attention_heads", "n_head", "n_heads", "num_heads", NULL};
    static const char *const of_kv[] = {"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num",
                                        "num_global_key_value_heads", NULL};
    static const char *const of_dim[] = {"hidden_size", "n_embd", "d_model", NULL};
    sizes ffn = {.n = 0}, heads = {.n = 0}, kv = {.n = 0}, dim = {.n = 0};
    for (int l = 0; l < d->layers; l++)
        for (int i = 0; i < d->layer[l].parts; i++)
            add_part(&was->layer[cut->layer[l]].part[i], &d->layer[l].part[i], &ffn, &heads, &kv);
    const int own = ffn.n; // Qwen counts gate and up together
    for (int i = 0; i < own; i++) add_size(&ffn, 2 * ffn.was[i], 2 * ffn.now[i]);
    add_size(&dim, was->dim, d->dim);
    exchange_all(o, of_ffn, &ffn);
    exchange_all(o, of_heads, &heads);
    exchange_all(o, of_kv, &kv);
    exchange_all(o, of_dim, &dim);
    cJSON *base = cJSON_GetObjectItemCaseSensitive(o, "dim_model_base"); // MiniCPM: the width is divided by it
    if (cJSON_IsNumber(base)) cJSON_SetNumberValue(base, base->valuedouble * d->dim / was->dim);
}

// What followed from other sizes is said by itself.
static void say_sizes(cJSON *o, const lq_desc *d, const lq_prune *what) {
    const lq_part *a = lq_layer_attn(&d->layer[0]);
    const bool share = what->heads > 0 || what->hidden > 0;
    if (a && share && !cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(o, "head_dim")))
        put(o, "head_dim", cJSON_CreateNumber(a->head_dim));
    if (a && what->heads > 0 && !cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(o, "num_key_value_heads")))
        put(o, "num_key_value_heads", cJSON_CreateNumber(a->kv_heads));
    for (int i = 0; (what->mlp > 0 || what->hidden > 0) && i < d->layer[0].parts; i++) {
        static const char *const keys[] = {"n_inner", "ffn_hidden_size", "intermediate_size"};
        if (d->layer[0].part[i].kind != LQ_P_MLP) continue;
        for (int k = 0; k < 3; k++)
            if (!cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(o, keys[k])))
                put(o, keys[k], cJSON_CreateNumber(d->layer[0].part[i].ffn));
    }
}

// --- both ---

// config.json as `config` says; whether it gives what is expected.
static bool read_back(lq_ckpt *in, const cJSON *config, const lq_desc *want, lq_text *text, lq_desc *out, lq_err *err) {
    int layer;
    char *words = cJSON_Print(config);
    lq_text_free(text);
    if (words) lq_text_fmt(text, "%s\n", words);
    cJSON_free(words);
    if (!words || text->failed) return lq_fail(err, LQ_E_MEMORY, "no memory for config.json");
    if (!lq_desc_read_as(in, &(lq_bytes){text->p, text->n}, out, err)) return false;
    const char *what = differ(want, out, &layer);
    if (!what) return true;
    lq_desc_free(out);
    if (layer < 0) return lq_fail(err, LQ_E_UNSUPPORTED, "its config.json cannot say %s", what);
    return lq_fail(err, LQ_E_UNSUPPORTED, "its config.json cannot say of what is then layer %d %s", layer, what);
}

bool lq_narrow(lq_ckpt *in, const lq_desc *was, const lq_cut *cut, lq_desc *out, lq_text *config, lq_err *err) {
    const lq_json_limits limits = {16u << 20, 64};
    lq_bytes file;
    lq_desc want;
    cJSON *all = NULL;
    bool done = expect(was, cut, &want, err) && lq_ckpt_file(in, "config.json", &file, err) &&
                lq_json_parse(file.p, file.n, limits, "config.json", &all, err);
    if (done) {
        cJSON *text = cJSON_GetObjectItemCaseSensitive(all, "text_config");
        const bool inner = cJSON_IsObject(text);
        if (want.layers < was->layers) say_layers(all, was, &want, cut);
        if (want.layers < was->layers && inner) say_layers(text, was, &want, cut);
        say_widths(all, was, &want, cut);
        if (inner) say_widths(text, was, &want, cut);
        if (inner && !cJSON_GetObjectItemCaseSensitive(text, "num_hidden_layers"))
            cJSON_AddNumberToObject(text, "num_hidden_layers", want.layers);
        done = read_back(in, all, &want, config, out, err);
        if (!done && err->code != LQ_E_MEMORY) {
            if (want.layers < was->layers) say_each(inner ? text : all, &want);
            say_sizes(inner ? text : all, &want, &cut->what);
            done = read_back(in, all, &want, config, out, err);
        }
    }
    cJSON_Delete(all);
    lq_desc_free(&want);
    return done || lq_fail_in(err, "a %s", was->arch->name);
}
