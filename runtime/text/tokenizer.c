// tokenizer.c: opens a tokenizer.json and turns text into ids. It owns the whole lq_tokenizer; the parts stand in tok_*.c.
// Refuses what is not BPE and every component that it does not know, in one line that names it.
#include <stdlib.h>
#include <string.h>
#include "runtime/lq.h"
#include "runtime/text/tok.h"

enum { JSON_BYTES = 256 << 20, JSON_DEPTH = 64, NESTED = 8, CELLS_FROM = 8192, CELLS = 4096 };

// --- steps ---

bool lq_tok_steps_walk(const cJSON *json, const char *what, const char *list, lq_tok_on_step *on, lq_tokenizer *t, lq_err *err) {
    const cJSON *next[NESTED];
    int depth = 0;
    if (!json || cJSON_IsNull(json)) return true;
    for (const cJSON *k = json;;) {
        const char *type = lq_json_str(k, "type");
        if (!type) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: %s without a type", what);
        bool sequence = !strcmp(type, "Sequence");
        if (!sequence && !on(k, type, t, err)) return false;
        if (sequence) {
            const cJSON *items = cJSON_GetObjectItemCaseSensitive(k, list);
            if (!cJSON_IsArray(items)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: %s Sequence without %s", what, list);
            if (depth == NESTED) return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: %s: more than %d nested Sequences", what, NESTED);
            next[depth++] = k == json ? NULL : k->next;
            k = items->child;
        } else k = k == json ? NULL : k->next;
        while (!k && depth) k = next[--depth];
        if (!k) return true;
    }
}

// --- what is put around a text ---

static bool around_add(lq_ids *ids, int32_t id, lq_err *err) {
    if (!lq_tok_ids_room(ids, 1, err)) return false;
    ids->p[ids->n++] = id;
    return true;
}

static bool template_token_add(const cJSON *json, const cJSON *specials, const lq_tokenizer *t, lq_ids *out, lq_err *err) {
    const char *name = lq_json_str(json, "id");
    const cJSON *token = name ? cJSON_GetObjectItemCaseSensitive(specials, name) : NULL;
    const cJSON *ids = cJSON_GetObjectItemCaseSensitive(token, "ids");
    if (!cJSON_IsArray(ids)) {
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: special token %.60s is not described", name ? name : "");
    }
    for (const cJSON *k = ids->child; k; k = k->next) {
        if (!cJSON_IsNumber(k) || !(k->valuedouble >= 0 && k->valuedouble < t->vocab.count)) {
            return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: special token %.60s has no id of the vocabulary", name);
        }
        if (!around_add(out, (int32_t)k->valuedouble, err)) return false;
    }
    return true;
}

static bool template_read(const cJSON *json, const lq_tokenizer *t, lq_ids *before, lq_ids *after, lq_err *err) {
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(json, "single");
    const cJSON *specials = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    int texts = 0;
    if (!cJSON_IsArray(single)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor TemplateProcessing without single");
    for (const cJSON *k = single->child; k; k = k->next) {
        const cJSON *special = cJSON_GetObjectItemCaseSensitive(k, "SpecialToken"), *text = cJSON_GetObjectItemCaseSensitive(k, "Sequence");
        if (!special == !text) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: a piece must be SpecialToken or Sequence");
        if (text) texts++;
        else if (!template_token_add(special, specials, t, texts ? after : before, err)) return false;
    }
    return texts == 1 || lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: post_processor: the text stands %d times in single, not once", texts);
}

static bool pair_read(const cJSON *json, const char *key, const lq_tokenizer *t, lq_ids *out, lq_err *err) {
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(json, key), *id = pair && pair->child ? pair->child->next : NULL;
    if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < t->vocab.count)) {
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: post_processor: %s has no id of the vocabulary", key);
    }
    return around_add(out, (int32_t)id->valuedouble, err);
}

static bool ids_join(lq_ids *a, const lq_ids *b, lq_err *err) {
    if (!lq_tok_ids_room(a, b->n, err)) return false;
    if (b->n) memcpy(a->p + a->n, b->p, b->n * sizeof *b->p);
    a->n += b->n;
    return true;
}

static bool post_step_read(const cJSON *json, const char *type, lq_tokenizer *t, lq_err *err) {
    lq_ids before = {0}, after = {0};
    bool ok = true;
    if (!strcmp(type, "TemplateProcessing")) ok = template_read(json, t, &before, &after, err);
    else if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")) {
        ok = pair_read(json, "cls", t, &before, err) && pair_read(json, "sep", t, &after, err);
    } else if (strcmp(type, "ByteLevel")) { // which moves offsets, not ids
        ok = lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: post_processor of type %s is not known", type);
    }
    ok = ok && ids_join(&before, &t->before, err) && ids_join(&t->after, &after, err);
    if (ok) {
        lq_ids swap = t->before;
        t->before = before;
        before = swap;
    }
    free(before.p);
    free(after.p);
    return ok;
}

static const char *config_token(const cJSON *config, const char *key) {
    const cJSON *k = cJSON_GetObjectItemCaseSensitive(config, key);
    return cJSON_IsObject(k) ? lq_json_str(k, "content") : cJSON_IsString(k) ? k->valuestring : NULL;
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

static bool config_around(const cJSON *config, bool has_post, lq_tokenizer *t, lq_err *err) {
    bool decides = class_decides(lq_json_str(config, "tokenizer_class")), bos = decides, eos = false;
    static const char what[] = "tokenizer_config.json";
    if (!decides && has_post) return true;
    const cJSON *flag = cJSON_GetObjectItemCaseSensitive(config, "add_bos_token");
    if (flag && !cJSON_IsNull(flag) && !lq_json_bool(config, "add_bos_token", &bos, what, err)) return false;
    flag = cJSON_GetObjectItemCaseSensitive(config, "add_eos_token");
    if (flag && !cJSON_IsNull(flag) && !lq_json_bool(config, "add_eos_token", &eos, what, err)) return false;
    const char *b = config_token(config, "bos_token"), *e = config_token(config, "eos_token");
    int32_t bos_id = b ? lq_tokenizer_id(t, b, strlen(b)) : -1, eos_id = e ? lq_tokenizer_id(t, e, strlen(e)) : -1;
    if (bos && b && bos_id < 0) return lq_fail(err, LQ_E_FORMAT, "%s: bos_token %.60s is not in the vocabulary", what, b);
    if (eos && e && eos_id < 0) return lq_fail(err, LQ_E_FORMAT, "%s: eos_token %.60s is not in the vocabulary", what, e);
    if ((bos && bos_id < 0) || (eos && eos_id < 0)) return true; // not said which
    t->before.n = t->after.n = 0;
    return (!bos || around_add(&t->before, bos_id, err)) && (!eos || around_add(&t->after, eos_id, err));
}

bool lq_tok_post_parse(const cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err) {
    if (!lq_tok_steps_walk(json, "post_processor", "processors", post_step_read, t, err)) return false;
    return !config || config_around(config, json && !cJSON_IsNull(json), t, err);
}

// --- opening ---

static int text_order(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

// Tokens that only tokenizer_config.json names are added tokens too.
static bool config_tokens_add(cJSON *added, const cJSON *config, lq_err *err) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder");
    size_t n = 0, i = 0;
    if (!cJSON_IsObject(list)) return true;
    for (const cJSON *k = added->child; k; k = k->next) n++;
    const char **known = malloc((n + 1) * sizeof *known);
    if (!known) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu added tokens", n);
    for (const cJSON *k = added->child; k; k = k->next) {
        const char *s = lq_json_str(k, "content");
        known[i++] = s ? s : "";
    }
    if (n) qsort(known, n, sizeof *known, text_order);
    bool ok = true;
    for (const cJSON *k = list->child; ok && k; k = k->next) {
        const char *s = lq_json_str(k, "content");
        char *end;
        double id = strtod(k->string, &end);
        if (!s || *end || end == k->string) {
            ok = lq_fail(err, LQ_E_FORMAT, "tokenizer_config.json: added_tokens_decoder: \"%.20s\" is not an id with content", k->string);
        } else if (!n || !bsearch(&s, known, n, sizeof *known, text_order)) {
            cJSON *item = cJSON_Duplicate(k, true);
            cJSON_DeleteItemFromObjectCaseSensitive(item, "id");
            ok = item && cJSON_AddNumberToObject(item, "id", id) && cJSON_AddItemToArray(added, item);
            if (!ok) lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
        }
    }
    free(known);
    return ok;
}

static bool parts_parse(cJSON *json, const cJSON *config, lq_tokenizer *t, lq_err *err) {
    cJSON *added = cJSON_GetObjectItemCaseSensitive(json, "added_tokens");
    if (!added || cJSON_IsNull(added)) {
        cJSON_DeleteItemFromObjectCaseSensitive(json, "added_tokens");
        added = cJSON_AddArrayToObject(json, "added_tokens");
    }
    if (!cJSON_IsArray(added)) return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: added_tokens is not an array");
    return (!config || config_tokens_add(added, config, err)) &&
           lq_tok_vocab_parse(cJSON_GetObjectItemCaseSensitive(json, "model"), added, &t->vocab, err) &&
           lq_tok_norm_parse(cJSON_GetObjectItemCaseSensitive(json, "normalizer"), t, err) &&
           lq_tok_pre_parse(cJSON_GetObjectItemCaseSensitive(json, "pre_tokenizer"), t, err) &&
           lq_tok_dec_parse(cJSON_GetObjectItemCaseSensitive(json, "decoder"), t, err) && lq_tok_added_parse(added, t, err) &&
           lq_tok_post_parse(cJSON_GetObjectItemCaseSensitive(json, "post_processor"), config, t, err) &&
           lq_tok_vocab_index(&t->vocab, err) && lq_tok_added_index(t, err) && lq_tok_dec_index(t, err);
}

bool lq_tokenizer_parse(lq_bytes json, lq_bytes config, lq_tokenizer **out, lq_err *err) {
    static const lq_json_limits limits = {JSON_BYTES, JSON_DEPTH};
    cJSON *tree = NULL, *side = NULL;
    lq_tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    bool ok = lq_json_parse(json.p, json.n, limits, "tokenizer.json", &tree, err) &&
              (!config.n || lq_json_parse(config.p, config.n, limits, "tokenizer_config.json", &side, err)) && parts_parse(tree, side, t, err);
    cJSON_Delete(tree);
    cJSON_Delete(side);
    if (ok) *out = t;
    else lq_tokenizer_close(t);
    return ok;
}

bool lq_tokenizer_open(lq_ckpt *c, lq_tokenizer **out, lq_err *err) {
    lq_bytes json, config;
    *out = NULL;
    if (!lq_ckpt_file(c, "tokenizer.json", &json, err) || !lq_ckpt_file(c, "tokenizer_config.json", &config, err)) return false;
    if (!json.p) return lq_fail(err, LQ_E_UNSUPPORTED, "%s: there is no tokenizer.json", lq_ckpt_path(c));
    if (!config.p) config = (lq_bytes){"", 0};
    return lq_tokenizer_parse(json, config, out, err) || lq_fail_in(err, "%s", lq_ckpt_path(c));
}

void lq_tokenizer_close(lq_tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->norms; i++) {
        lq_tok_pattern_free(&t->norm[i].pattern);
        free(t->norm[i].text);
    }
    for (int i = 0; i < t->decs; i++) {
        lq_tok_pattern_free(&t->dec[i].pattern);
        free(t->dec[i].text);
    }
    for (int i = 0; t->pre && i < LQ_TOK_MAX_OPS; i++) lq_tok_pattern_free(&t->pre[i].pattern);
    for (size_t i = 0; i < t->addeds; i++) free(t->added[i].content);
    free(t->norm);
    free(t->pre);
    free(t->dec);
    free(t->added);
    lq_tok_trie_free(&t->exact);
    lq_tok_trie_free(&t->normal);
    lq_tok_vocab_free(&t->vocab);
    free(t->before.p);
    free(t->after.p);
    free(t->bytes.p);
    free(t->bytes.at);
    free(t->first.p);
    free(t->first.at);
    free(t);
}

// --- asking ---

int32_t lq_tokenizer_bos(const lq_tokenizer *t) { return t->before.n ? t->before.p[0] : -1; }
int lq_tokenizer_vocab(const lq_tokenizer *t) { return t->vocab.count; }

int32_t lq_tokenizer_id(const lq_tokenizer *t, const char *token, size_t n) {
    int32_t id = lq_tok_vocab_find(&t->vocab, token, n);
    for (size_t i = 0; id < 0 && i < t->addeds; i++) {
        if (t->added[i].n == n && !memcmp(t->added[i].content, token, n)) id = t->added[i].id;
    }
    return id;
}

bool lq_tokenizer_is_special(const lq_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.count && (t->vocab.kind[id] & LQ_TOK_K_SPECIAL);
}

// --- encoding ---

static bool words_encode(lq_tok_work *w, lq_err *err) {
    if (!lq_tok_pre_run(w->t, w, err)) return false;
    for (size_t i = 0; i < w->words.n; i++) {
        const lq_tok_word *k = &w->words.p[i];
        if (!lq_tok_bpe_word(w, w->a.p + k->at, k->end - k->at, err)) return false;
    }
    return true;
}

// A stretch of text with no token that is looked for before normalizing.
static bool section_encode(lq_tok_work *w, const char *p, size_t n, bool first, bool parse, lq_err *err) {
    const lq_tokenizer *t = w->t;
    w->a.n = 0;
    if (!lq_tok_buf_add(&w->a, p, n, err) || !lq_tok_norm_run(t, w, &first, err)) return false;
    lq_tok_buf swap = w->section;
    w->section = w->a;
    w->a = swap;
    if (!lq_tok_added_find(t, &t->normal, w->section.p, w->section.n, parse, &w->inner, err)) return false;
    for (size_t i = 0; i < w->inner.n; i++) {
        const lq_tok_piece *k = &w->inner.p[i];
        if (k->id >= 0) {
            if (!around_add(w->out, k->id, err)) return false;
            continue;
        }
        w->a.n = w->words.n = 0;
        if (!lq_tok_buf_add(&w->a, w->section.p + k->at, k->end - k->at, err) ||
            !lq_tok_words_add(&w->words, 0, w->a.n, first && k->at == 0, err) || !words_encode(w, err)) {
            return false;
        }
    }
    return true;
}

static bool text_encode(lq_tok_work *w, const char *text, size_t n, int flags, lq_err *err) {
    const lq_tokenizer *t = w->t;
    bool changed, parse = flags & LQ_TOK_PARSE;
    if (n > LQ_TOK_MAX_TEXT / 4) return lq_fail(err, LQ_E_LIMIT, "tokenizer: a text of %zu bytes, more than %d", n, LQ_TOK_MAX_TEXT / 4);
    if (!lq_tok_utf8_clean(text, n, &w->clean, &changed, err)) return false;
    if (changed) {
        text = w->clean.p;
        n = w->clean.n;
    }
    if (n >= CELLS_FROM) w->cells = calloc(CELLS, sizeof *w->cells); // without it, it is only slower
    if ((flags & LQ_TOK_SPECIAL) && !ids_join(w->out, &t->before, err)) return false;
    if (!lq_tok_added_find(t, &t->exact, text, n, parse, &w->outer, err)) return false;
    for (size_t i = 0; i < w->outer.n; i++) {
        const lq_tok_piece *k = &w->outer.p[i];
        bool ok = k->id >= 0 ? around_add(w->out, k->id, err) : section_encode(w, text + k->at, k->end - k->at, k->at == 0, parse, err);
        if (!ok) return false;
    }
    return !(flags & LQ_TOK_SPECIAL) || ids_join(w->out, &t->after, err);
}

bool lq_tokenizer_encode(const lq_tokenizer *t, const char *text, size_t n, int flags, lq_ids *out, lq_err *err) {
    lq_tok_work w = {.t = t, .out = out};
    size_t had = out->n;
    bool ok = text_encode(&w, text, n, flags, err);
    if (!ok) out->n = had;
    free(w.clean.p);
    free(w.section.p);
    free(w.a.p);
    free(w.b.p);
    free(w.spans.p);
    free(w.words.p);
    free(w.next.p);
    free(w.outer.p);
    free(w.inner.p);
    free(w.sym.p);
    free(w.link);
    free(w.heap);
    free(w.cells);
    lq_tok_matcher_free(&w.matcher);
    return ok;
}
