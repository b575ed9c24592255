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

// While it is read, a post-processor's work so far stands in t->before: the ids around the text, TEXT for the text
// itself, and NEXT between pieces. A step sees as many texts as the step before it left pieces.
enum { TEXT = -1, NEXT = -2, NOTHING = 0, TEMPLATE, BERT, ROBERTA };

static size_t count_of(const lq_ids *list, int32_t what) {
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) n += list->p[i] == what;
    return n;
}

// Piece k, which is there.
static lq_ids piece_of(const lq_ids *list, size_t k) {
    size_t at = 0, end;
    for (; k; at++) k -= list->p[at] == NEXT;
    for (end = at; end < list->n && list->p[end] != NEXT; end++);
    return (lq_ids){list->p + at, end - at, 0};
}

static bool id_add(int32_t id, lq_ids *out, lq_err *err) { return lq_tok_ids_add(out, &id, 1, err); }

// Of one text `single` is made, of two `pair`, as if the second were another text.
static bool template_run(const cJSON *json, const lq_tokenizer *t, lq_ids *out, lq_err *err) {
    const size_t pieces = 1 + count_of(&t->before, NEXT);
    const char *key = pieces == 1 ? "single" : "pair";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key);
    const cJSON *specials = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    if (pieces > 2)
        return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: post_processor: a TemplateProcessing of %zu pieces, which "
                       "the steps before it made; it knows one or two", pieces);
    if (!cJSON_IsArray(list))
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor TemplateProcessing without %s", key);
    for (const cJSON *k = list->child; k; k = k->next) {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(k, "SpecialToken");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(k, "Sequence");
        if (!special == !text)
            return lq_fail(err, LQ_E_FORMAT,
                           "tokenizer.json: post_processor: a piece must be SpecialToken or Sequence");
        if (k != list->child && !id_add(NEXT, out, err)) return false;
        if (special && !template_token_add(special, specials, t, out, err)) return false;
        if (special) continue;
        const char *which = lq_json_str(text, "id");
        const size_t at = which && !strcmp(which, "B");
        if (at >= pieces)
            return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: post_processor: Sequence B in single, which has one text");
        const lq_ids piece = piece_of(&t->before, at);
        if (!lq_tok_ids_add(out, piece.p, piece.n, err)) return false;
    }
    const size_t texts = count_of(out, TEXT);
    return texts == 1 || lq_fail(err, LQ_E_UNSUPPORTED,
                                 "tokenizer.json: post_processor: the text stands %zu times in %s, not once", texts, key);
}

static bool pair_id(const cJSON *json, const char *key, const lq_tokenizer *t, int32_t *id, lq_err *err) {
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(json, key), *k = pair &&
        pair->child ? pair->child->next : NULL;
    if (!cJSON_IsNumber(k) || !(k->valuedouble >= 0 && k->valuedouble < t->vocab.count)) {
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: %s has no id of the vocabulary", key);
    }
    *id = (int32_t)k->valuedouble;
    return true;
}

// cls and sep around the first piece; behind it each has sep at its end, and RoBERTa's before it too.
static bool pair_run(const cJSON *json, int how, const lq_tokenizer *t, lq_ids *out, lq_err *err) {
    int32_t cls = -1, sep = -1;
    bool ok = pair_id(json, "cls", t, &cls, err) && pair_id(json, "sep", t, &sep, err) && id_add(cls, out, err);
    for (size_t i = 0; ok && i < t->before.n; i++) {
        const bool next = t->before.p[i] == NEXT;
        ok = (!next || id_add(sep, out, err)) && id_add(t->before.p[i], out, err) &&
             (!next || how != ROBERTA || id_add(sep, out, err));
    }
    return ok && id_add(sep, out, err);
}

static bool post_step_read(const cJSON *json, int how, lq_tokenizer *t, lq_err *err) {
    lq_ids out = {0};
    if (how == NOTHING) return true;
    const bool ok = how == TEMPLATE ? template_run(json, t, &out, err) : pair_run(json, how, t, &out, err);
    if (ok) {
        free(t->before.p);
        t->before = out;
    } else free(out.p);
    return ok;
}

// What became of the text, once all steps are read, without the marks.
static bool around_split(lq_tokenizer *t, lq_err *err) {
    size_t n = 0, at = 0;
    for (size_t i = 0; i < t->before.n; i++) {
        if (t->before.p[i] == TEXT) at = n;
        if (t->before.p[i] >= 0) t->before.p[n++] = t->before.p[i];
    }
    t->before.n = at;
    return lq_tok_ids_add(&t->after, t->before.p + at, n - at, err);
}

static const lq_tok_step rows[] = {
    {"TemplateProcessing", TEMPLATE, post_step_read}, {"BertProcessing", BERT, post_step_read},
    {"RobertaProcessing", ROBERTA, post_step_read},
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
    if (!id_add(TEXT, &t->before, err) || !lq_tok_steps_read(json, &steps, t, err) || !around_split(t, err))
        return false;
    const bool decides = class_decides(lq_json_str(config, "tokenizer_class"));
    if (!config || (!decides && json && !cJSON_IsNull(json))) return true;
    return lq_tok_around(config, decides, false, -1, -1, t, err);
}
