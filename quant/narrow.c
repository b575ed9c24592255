// narrow.c: what a cut leaves of a model's description, and the config.json that says so. The description is made from
// the one that there was; config.json is edited key by key and read back as any other, and has to give the same. What
// an architecture cannot say (that its fourth layer, now the third, still has no window) is refused by what it is.
#include "quant/prune.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lq_cut_free(lq_cut *c) {
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

static bool expect(const lq_desc *was, const lq_cut *cut, lq_desc *out, lq_err *err) {
    *out = *was;
    out->layers = cut->layers;
    out->layer = calloc((size_t)cut->layers, sizeof *out->layer);
    if (!out->layer) return lq_fail(err, LQ_E_MEMORY, "no memory for %d layers", cut->layers);
    for (int i = 0; i < cut->layers; i++) {
        const int from = cut->layer[i];
        lq_layer *l = &out->layer[i];
        *l = was->layer[from];
        l->kv_from = new_index(cut, was->layer[from].kv_from);
        if (l->kv_from < 0)
            return lq_fail(err, LQ_E_UNSUPPORTED, "layer %d uses K and V of layer %d, which has to stay", from,
                           was->layer[from].kv_from);
    }
    group(out);
    return true;
}

// What two descriptions differ in; NULL: they are the same.
static const char *differ(const lq_desc *a, const lq_desc *b, int *layer) {
    lq_desc x = *a, y = *b;
    x.layer = y.layer = NULL;
    *layer = -1;
    if (x.layers != y.layers) return "the number of layers";
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
            if (memcmp(p, q, sizeof *p) != 0) return "its numbers";
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
        say_layers(all, was, &want, cut);
        if (inner) say_layers(text, was, &want, cut);
        if (inner && !cJSON_GetObjectItemCaseSensitive(text, "num_hidden_layers"))
            cJSON_AddNumberToObject(text, "num_hidden_layers", want.layers);
        done = read_back(in, all, &want, config, out, err);
        if (!done && err->code != LQ_E_MEMORY) {
            say_each(inner ? text : all, &want);
            done = read_back(in, all, &want, config, out, err);
        }
    }
    cJSON_Delete(all);
    lq_desc_free(&want);
    return done || lq_fail_in(err, "a %s", was->arch->name);
}
