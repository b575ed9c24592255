// tok_post.c: what LQ_TOK_SPECIAL puts around a text: post-processors, and what tokenizer_config.json says of BOS and
// EOS. Refuses templates in which the text does not stand once.
#include "runtime/text/tok.h"
#include <stdlib.h>
#include <string.h>

static bool template_token_add(const cJSON *json, const cJSON *specials, const lq_tokenizer *t, lq_ids *out,
                               lq_err *err) {
    const char *name = lq_json_str(json, "id");
    const cJSON *token = name ? cJSON_GetObjectItemCaseSensitive(specials, name) : NULL;
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(token, "ids");
    if (!cJSON_IsArray(ids)) {
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: special token %.60s is not described",
                       name ? name : "");
    }
    for (const cJSON *k = ids->child; k; k = k->next) {
        if (!cJSON_IsNumber(k) || !(k->valuedouble >= 0 && k->valuedouble < t->vocab.count)) {
            return lq_fail(err, LQ_E_FORMAT,
                           "tokenizer.json: post_processor: special token %.60s has no id of the vocabulary", name);
        }
        const int32_t id = (int32_t)k->valuedouble;
        if (!lq_tok_ids_add(out, &id, 1, err)) return false;
    }
    return true;
}

static bool template_read(const cJSON *json, const lq_tokenizer *t, lq_ids *before, lq_ids *after, lq_err *err) {
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(json, "single");
    const cJSON *specials = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    int texts = 0;
    if (!cJSON_IsArray(single))
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor TemplateProcessing without single");
    for (const cJSON *k = single->child; k; k = k->next) {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(k, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(k, "Sequence");
        if (!special == !text)
            return lq_fail(err, LQ_E_FORMAT,
                           "tokenizer.json: post_processor: a piece must be SpecialToken or Sequence");
        if (text) texts++;
        else if (!template_token_add(special, specials, t, texts ? after : before, err)) return false;
    }
    return texts == 1 || lq_fail(err, LQ_E_UNSUPPORTED,
                                 "tokenizer.json: post_processor: the text stands %d times in single, not once", texts);
}

static bool pair_read(const cJSON *json, const char *key, const lq_tokenizer *t, lq_ids *out, lq_err *err) {
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(json, key), *k = pair &&
        pair->child ? pair->child->next : NULL;
    if (!cJSON_IsNumber(k) || !(k->valuedouble >= 0 && k->valuedouble < t->vocab.count)) {
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: %s has no id of the vocabulary", key);
    }
    const int32_t id = (int32_t)k->valuedouble;
    return lq_tok_ids_add(out, &id, 1, err);
}

enum { NOTHING, TEMPLATE, PAIR };
static bool post_step_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_ids before = {0}, after = {0};
    bool ok = true;
    if (how == TEMPLATE) ok = template_read(json, t, &before, &after, err);
    if (how == PAIR) ok = pair_read(json, "cls", t, &before, err) && pair_read(json, "sep", t, &after, err);
    ok = ok && lq_tok_ids_add(&before, t->before.p, t->before.n, err) &&
         lq_tok_ids_add(&t->after, after.p, after.n, err);
    if (ok) {
        lq_ids swap = t->before;
        t->before = before;
        before = swap;
    }
    free(before.p);
    free(after.p);
    return ok;
}

static const lq_tok_step rows[] = {
    {"TemplateProcessing", TEMPLATE, post_step_read}, {"BertProcessing", PAIR, post_step_read},
    {"RobertaProcessing", PAIR, post_step_read},
    {"ByteLevel", NOTHING, post_step_read}, // it moves offsets, not ids
};
static const lq_tok_steps steps = {"post_processor", "processors", rows, sizeof rows / sizeof *rows};

static const char *config_token(const cJSON *config, const char *key) {
    const cJSON *k = cJSON_GetObjectItemCaseSensitive(config, key);
    return cJSON_IsObject(k) ? lq_json_str(k, "content") : cJSON_IsString(k) ? k->valuestring : NULL;
}

int32_t lq_tok_end(const lq_tokenizer *t, const cJSON *config, const cJSON *map) {
    const char *s = config_token(config, "eos_token");
    if (!s) s = config_token(map, "eos_token");
    return s ? lq_tok_added_id(t, s, strlen(s)) : -1;
}

// Tokens that end a turn wherever they are: a config of a model may know of none of them.
static const char *const turn_ends[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<end_of_turn>", "<|end_of_turn|>", "<|endofturn|>",
    "<|END_OF_TURN_TOKEN|>", "<|return|>", "<|call|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "[EOT]",
};

// The token of this name, unless it is one that the model makes of any text; -1: none.
static int32_t named_token(const lq_tokenizer *t, const char *name) {
    const int32_t id = lq_tok_added_id(t, name, strlen(name));
    return id >= 0 && (t->vocab.kind[id] & (LQ_TOK_K_ADDED | LQ_TOK_K_SPECIAL | LQ_TOK_K_USER)) ? id : -1;
}

size_t lq_tokenizer_ends(const lq_tokenizer *t, int32_t *ids, size_t cap) {
    const bool parts = named_token(t, "<|return|>") >= 0; // "<|end|>" is behind each part of an answer then
    size_t n = 0;
    if (t->end >= 0 && n < cap) ids[n++] = t->end;
    for (size_t i = 0; i < sizeof turn_ends / sizeof *turn_ends && n < cap; i++) {
        const int32_t id = named_token(t, turn_ends[i]);
        if (id >= 0 && id != t->end && !(parts && !strcmp(turn_ends[i], "<|end|>"))) ids[n++] = id;
    }
    return n;
}

// These classes build their template from add_bos_token and add_eos_token, whatever tokenizer.json says.
static bool class_decides(const char *name) {
    static const char *const names[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"};
    size_t n = name ? strlen(name) : 0;
    if (n > 4 && !strcmp(name + n - 4, "Fast")) n -= 4;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (n == strlen(names[i]) && !memcmp(name, names[i], n)) return true;
    }
    return false;
}

bool lq_tok_around(const cJSON *config, bool bos, bool eos, int32_t bos_id, int32_t eos_id, lq_tokenizer *t,
                   lq_err *err) {
    static const char what[] = "tokenizer_config.json";
    if (!lq_json_bool(config, "add_bos_token", &bos, what, err) ||
        !lq_json_bool(config, "add_eos_token", &eos, what, err)) return false;
    const char *b = config_token(config, "bos_token"), *e = config_token(config, "eos_token");
    if (b) bos_id = lq_tok_added_id(t, b, strlen(b));
    if (e) eos_id = lq_tok_added_id(t, e, strlen(e));
    if (bos && b && bos_id < 0)
        return lq_fail(err, LQ_E_FORMAT, "%s: bos_token %.60s is not in the vocabulary", what, b);
    if (eos && e && eos_id < 0)
        return lq_fail(err, LQ_E_FORMAT, "%s: eos_token %.60s is not in the vocabulary", what, e);
    if ((bos && bos_id < 0) || (eos && eos_id < 0)) return true; // not said which
    t->before.n = t->after.n = 0;
    return (!bos || lq_tok_ids_add(&t->before, &bos_id, 1, err)) &&
           (!eos || lq_tok_ids_add(&t->after, &eos_id, 1, err));
}

bool lq_tok_post_parse(const cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err) {
    if (!lq_tok_steps_read(json, &steps, t, err)) return false;
    const bool decides = class_decides(lq_json_str(config, "tokenizer_class"));
    if (!config || (!decides && json && !cJSON_IsNull(json))) return true;
    return lq_tok_around(config, decides, false, -1, -1, t, err);
}
