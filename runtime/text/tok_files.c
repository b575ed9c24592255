// tok_files.c: which files a model's tokenizer is, and what its class says that those files don't.
// tokenizer.json says everything. Without it there is a vocabulary alone, and how text is cut, what is special and what
// stands around a text come from tokenizer_config.json, from the class it names, or from the kind of model.
// Refuses folders without any of them, and vocabularies of classes that nobody here knows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/lq.h"
#include "runtime/text/tok.h"

enum { JSON_DEPTH = 64 };
#define JSON_BYTES ((size_t)256 << 20)

typedef struct opening {
    const lq_tok_files *files;
    cJSON *config, *model, *map; // tokenizer_config.json, config.json, special_tokens_map.json; NULL: absent
    cJSON *added;                // an array of added tokens
    lq_tokenizer *t;
    lq_err *err;
} opening;

static bool file_get(const opening *o, const char *name, lq_bytes *out) {
    *out = (lq_bytes){0};
    return o->files->get(o->files->from, name, out, o->err);
}

static bool json_get(const opening *o, const char *name, cJSON **out) {
    static const lq_json_limits limits = {JSON_BYTES, JSON_DEPTH};
    lq_bytes file;
    *out = NULL;
    return file_get(o, name, &file) && (!file.p || lq_json_parse(file.p, file.n, limits, name, out, o->err));
}

// --- what the files beside it say ---

static const char *token_text(const cJSON *k) {
    return cJSON_IsObject(k) ? lq_json_str(k, "content") : cJSON_GetStringValue(k);
}

static bool is_special(const opening *o, const char *text) {
    const cJSON *from[] = {o->map, o->config};
    for (size_t i = 0; i < 2; i++) {
        for (const cJSON *k = from[i] ? from[i]->child : NULL; k; k = k->next) {
            const char *s = token_text(k);
            if (s && !strcmp(s, text) && strstr(k->string, "_token")) return true;
            for (const cJSON *l = cJSON_IsArray(k) ? k->child : NULL; l; l = l->next)
                if ((s = token_text(l)) != NULL && !strcmp(s, text)) return true;
        }
    }
    return false;
}

static bool token_add(opening *o, const char *text, double id, bool special) {
    cJSON *item = cJSON_CreateObject();
    if (item && cJSON_AddStringToObject(item, "content", text) && cJSON_AddNumberToObject(item, "id", id) &&
        cJSON_AddBoolToObject(item, "special", special) && cJSON_AddItemToArray(o->added, item)) return true;
    cJSON_Delete(item);
    return lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
}

// added_tokens.json: {"text": id}, of the time before tokenizer_config.json had them.
static bool old_tokens_add(opening *o) {
    cJSON *old;
    bool ok = json_get(o, "added_tokens.json", &old) && json_get(o, "special_tokens_map.json", &o->map);
    for (const cJSON *k = old ? old->child : NULL; ok && k; k = k->next) {
        if (!k->string || !cJSON_IsNumber(k))
            ok = lq_fail(o->err, LQ_E_FORMAT, "added_tokens.json: not an object of tokens and ids");
        else ok = token_add(o, k->string, k->valuedouble, is_special(o, k->string));
    }
    cJSON_Delete(old);
    return ok;
}

static bool beside_read(opening *o) {
    o->added = cJSON_CreateArray();
    if (!o->added) return lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory");
    if (!json_get(o, "config.json", &o->model)) return false;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o->config, "added_tokens_decoder");
    return cJSON_IsObject(list) ? lq_tok_added_merge(o->added, list, o->err) : old_tokens_add(o);
}

// The class without "Fast"; "": nobody says.
static void class_name(const opening *o, char out[64]) {
    const char *s = lq_json_str(o->config, "tokenizer_class");
    if (!s) s = lq_json_str(o->model, "tokenizer_class");
    snprintf(out, 64, "%s", s ? s : "");
    const size_t n = strlen(out);
    if (n > 4 && !strcmp(out + n - 4, "Fast")) out[n - 4] = 0;
}

// --- vocab.json and merges.txt, vocab.txt: as the tokenizer.json that they would be ---

typedef struct known { const char *class, *kinds, *norm, *words, *special; } known;
static const known classes[] = { // the first one where neither class nor kind is said
    {"GPT2Tokenizer", " gpt2 gpt_neo gptj gpt_bigcode starcoder2 opt openelm ", NULL, NULL, "<|endoftext|>"},
    {"CodeGenTokenizer", " codegen phi phi-msft mixformer-sequential ", NULL, NULL, "<|endoftext|>"},
    {"Qwen2Tokenizer", " qwen2 qwen2_moe qwen3 qwen3_moe ", "{\"type\":\"NFC\"}", lq_tok_words_qwen, "<|endoftext|>"},
    {"GPTNeoXTokenizer", " gpt_neox mpt ", "{\"type\":\"NFC\"}", NULL, "<|endoftext|>"},
};

static const known *class_find(const opening *o) {
    char name[64], kind[80];
    const char *type = lq_json_str(o->model, "model_type");
    class_name(o, name);
    snprintf(kind, sizeof kind, " %.60s ", type ? type : "");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (*name ? !strcmp(name, classes[i].class) : !type || strstr(classes[i].kinds, kind)) return &classes[i];
    lq_fail(o->err, LQ_E_UNSUPPORTED, "vocab.json of class %.60s, model_type %.60s: it is not known how it cuts a text",
            *name ? name : "(none)", type ? type : "(none)");
    return NULL;
}

static bool text_put(lq_text *t, cJSON *whole, const char *key) {
    lq_text_add(t, "", 1);
    return !t->failed && cJSON_AddItemToObject(whole, key, cJSON_Parse(t->p));
}

static bool steps_put(const opening *o, const known *k, cJSON *whole) {
    static const char level[] = "{\"type\":\"ByteLevel\"}";
    lq_text t = {0};
    bool prefix = false;
    if (!lq_json_bool(o->config, "add_prefix_space", &prefix, "tokenizer_config.json", o->err)) return false;
    if (k->words) lq_text_fmt(&t, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\","
                              "\"pattern\":{\"Regex\":");
    if (k->words) lq_text_json(&t, k->words, strlen(k->words));
    lq_text_fmt(&t, "%s{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":%s}%s", k->words ? "}}," : "",
                prefix ? "true" : "false", k->words ? "false" : "true", k->words ? "]}" : "");
    bool ok = text_put(&t, whole, "pre_tokenizer") && cJSON_AddItemToObject(whole, "decoder", cJSON_Parse(level)) &&
              (!k->norm || cJSON_AddItemToObject(whole, "normalizer", cJSON_Parse(k->norm)));
    lq_text_free(&t);
    return ok || lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory");
}

// A line each, without its end; an empty one at the end is none.
static const char *line_next(const char **p, const char *end, size_t *n) {
    const char *line = *p, *stop = *p < end ? memchr(*p, '\n', (size_t)(end - *p)) : NULL;
    if (line == end) return NULL;
    if (!stop) stop = end;
    *p = stop + (stop < end);
    *n = (size_t)(stop - line);
    if (*n && line[*n - 1] == '\r') --*n;
    return line;
}

static bool merges_put(const opening *o, lq_bytes file, cJSON *model) {
    cJSON *list = cJSON_AddArrayToObject(model, "merges");
    const char *p = file.p, *line;
    size_t n;
    bool ok = list != NULL;
    while (ok && (line = line_next(&p, file.p + file.n, &n))) {
        if (!n || !strncmp(line, "#version", n < 8 ? n : 8)) continue;
        char *text = memchr(line, 0, n) ? NULL : lq_tok_text_copy(line, n, o->err);
        if (!text) return lq_fail(o->err, LQ_E_FORMAT, "merges.txt: a line with a NUL");
        ok = cJSON_AddItemToArray(list, cJSON_CreateString(text));
        free(text);
    }
    return ok || lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory for merges.txt");
}

// A token that the class or a config names is special where the vocabulary has it.
static bool specials_put(opening *o, const cJSON *vocab, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const cJSON *named = cJSON_GetObjectItemCaseSensitive(o->config, names[i]);
        const char *text = named ? token_text(named) : names[i];
        const cJSON *id = text ? cJSON_GetObjectItemCaseSensitive(vocab, text) : NULL;
        bool there = !cJSON_IsNumber(id);
        for (const cJSON *k = o->added->child; k && !there; k = k->next) {
            const char *s = lq_json_str(k, "content");
            there = s && !strcmp(s, text);
        }
        if (!there && !token_add(o, text, id->valuedouble, true)) return false;
    }
    return true;
}

static bool whole_open(opening *o, cJSON *whole, const cJSON *config) {
    if (!cJSON_AddItemToObject(whole, "added_tokens", o->added))
        return lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory");
    o->added = NULL;
    return lq_tok_json_parse(whole, config, o->t, o->err);
}

static bool vocab_open(opening *o, cJSON *vocab) {
    const known *k = class_find(o);
    cJSON *whole = cJSON_CreateObject(), *model = whole ? cJSON_AddObjectToObject(whole, "model") : NULL;
    lq_bytes merges = {0};
    bool put = false;
    bool ok = (model && cJSON_AddStringToObject(model, "type", "BPE")) ||
              lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory");
    ok = ok && k && file_get(o, "merges.txt", &merges);
    if (ok && !merges.p) ok = lq_fail(o->err, LQ_E_UNSUPPORTED, "vocab.json: there is no merges.txt beside it");
    if (ok) {
        const char *const names[] = {k->special, "bos_token", "eos_token", "unk_token", "pad_token"};
        ok = specials_put(o, vocab, names, sizeof names / sizeof *names) && steps_put(o, k, whole) &&
             merges_put(o, merges, model);
    }
    if (ok) ok = put = cJSON_AddItemToObject(model, "vocab", vocab);
    if (!put) cJSON_Delete(vocab);
    ok = ok && whole_open(o, whole, o->config);
    cJSON_Delete(whole);
    return ok;
}

// BERT's: a token a line.
static bool words_read(const opening *o, lq_bytes file, cJSON *vocab) {
    const char *p = file.p, *line;
    size_t n;
    int id = 0;
    while ((line = line_next(&p, file.p + file.n, &n))) {
        bool valid = !memchr(line, 0, n);
        for (size_t i = 0; valid && i < n;) i += lq_tok_char_check((const uint8_t *)line + i, n - i, &valid);
        if (!valid) return lq_fail(o->err, LQ_E_FORMAT, "vocab.txt: line %d is not UTF-8", id + 1);
        char *text = lq_tok_text_copy(line, n, o->err);
        const bool ok = text && cJSON_AddItemToObject(vocab, text, cJSON_CreateNumber(id++));
        free(text);
        if (!ok) return lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory for vocab.txt");
    }
    return true;
}

static bool bert_put(const opening *o, const cJSON *vocab, cJSON *whole) {
    const cJSON *cls = cJSON_GetObjectItemCaseSensitive(vocab, "[CLS]");
    const cJSON *sep = cJSON_GetObjectItemCaseSensitive(vocab, "[SEP]");
    cJSON *norm = cJSON_GetObjectItemCaseSensitive(whole, "normalizer");
    const cJSON *accents = cJSON_GetObjectItemCaseSensitive(o->config, "strip_accents");
    bool lower = true, cjk = true, ok = true;
    if (!lq_json_bool(o->config, "do_lower_case", &lower, "tokenizer_config.json", o->err) ||
        !lq_json_bool(o->config, "tokenize_chinese_chars", &cjk, "tokenizer_config.json", o->err)) return false;
    if (cls && sep) {
        lq_text t = {0};
        lq_text_fmt(&t, "{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",%d],\"sep\":[\"[SEP]\",%d]}", cls->valueint,
                    sep->valueint);
        ok = text_put(&t, whole, "post_processor");
        lq_text_free(&t);
    }
    return (ok && cJSON_AddBoolToObject(norm, "lowercase", lower) &&
            cJSON_AddBoolToObject(norm, "handle_chinese_chars", cjk) &&
            (!accents || cJSON_AddItemToObject(norm, "strip_accents", cJSON_Duplicate(accents, true)))) ||
           lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory");
}

static bool words_open(opening *o, lq_bytes file) {
    static const char rest[] = "{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\"},"
        "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
        "\"max_input_chars_per_word\":100,\"vocab\":{}},\"normalizer\":{\"type\":\"BertNormalizer\"}}";
    static const char *const names[] = {"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
    cJSON *whole = cJSON_Parse(rest);
    cJSON *vocab = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(whole, "model"), "vocab");
    bool ok = vocab || lq_fail(o->err, LQ_E_MEMORY, "tokenizer: no memory");
    ok = ok && words_read(o, file, vocab) && specials_put(o, vocab, names, sizeof names / sizeof *names) &&
         bert_put(o, vocab, whole) && whole_open(o, whole, NULL);
    cJSON_Delete(whole);
    return ok;
}

// --- which file ---

static bool model_open(opening *o, const char *name, lq_bytes file) {
    char class[64];
    class_name(o, class);
    if (lq_tok_ranks_are(file)) return lq_tok_ranks_parse(file, name, class, o->config, o->added, o->t, o->err);
    return lq_tok_spm_parse(file, o->config, o->added, o->t, o->err) ||
           (strcmp(name, "tokenizer.model") && lq_fail_in(o->err, "%s", name));
}

// A .json by what is in it.
static bool json_open(opening *o, const char *name, lq_bytes file) {
    static const lq_json_limits limits = {JSON_BYTES, JSON_DEPTH};
    cJSON *tree = NULL;
    if (!lq_json_parse(file.p, file.n, limits, name, &tree, o->err)) return false;
    const bool whole = !strcmp(name, "tokenizer.json") ||
                       cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(tree, "model"));
    const bool tekken = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(tree, "vocab"));
    if (!whole && !beside_read(o)) return cJSON_Delete(tree), false;
    if (!whole && !tekken && cJSON_IsObject(tree)) return vocab_open(o, tree);
    const bool ok = whole ? lq_tok_json_parse(tree, o->config, o->t, o->err)
                          : lq_tok_tekken_parse(tree, o->config, o->added, o->t, o->err);
    cJSON_Delete(tree);
    return ok;
}

static bool ends_in(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

static bool file_open(opening *o, const char *name, lq_bytes file) {
    if (ends_in(name, ".json")) return json_open(o, name, file);
    if (!beside_read(o)) return false;
    return ends_in(name, ".txt") ? words_open(o, file) : model_open(o, name, file);
}

static bool any_open(opening *o) {
    lq_bytes file;
    const char *name = o->files->only;
    if (name) return file_get(o, name, &file) && (file.p ? file_open(o, name, file)
                                                         : lq_fail(o->err, LQ_E_IO, "%s: there is no such file", name));
    for (size_t i = 0; (name = lq_vocab_files[i]); i++) {
        if (!file_get(o, name, &file)) return false;
        if (file.p) return file_open(o, name, file);
    }
    return lq_fail(o->err, LQ_E_UNSUPPORTED,
                   "there is no tokenizer.json, tekken.json, tokenizer.model, *.tiktoken, vocab.json or vocab.txt");
}

bool lq_tokenizer_read(const lq_tok_files *files, lq_tokenizer **out, lq_err *err) {
    opening o = {.files = files, .err = err, .t = calloc(1, sizeof *o.t)};
    *out = NULL;
    bool ok = (o.t || lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory")) &&
              json_get(&o, "tokenizer_config.json", &o.config) && any_open(&o) &&
              lq_tok_vocab_index(&o.t->vocab, err) && lq_tok_added_index(o.t, err) && lq_tok_dec_index(o.t, err) &&
              (o.map || json_get(&o, "special_tokens_map.json", &o.map));
    if (ok) o.t->end = lq_tok_end(o.t, o.config, o.map);
    cJSON_Delete(o.config);
    cJSON_Delete(o.model);
    cJSON_Delete(o.map);
    cJSON_Delete(o.added);
    if (ok) *out = o.t;
    else lq_tokenizer_close(o.t);
    return ok;
}

// --- where they come from ---

typedef struct memory { lq_bytes json, config; } memory;

static bool memory_get(void *from, const char *name, lq_bytes *out, lq_err *err) {
    const memory *m = from;
    (void)err;
    if (!strcmp(name, "tokenizer.json")) *out = m->json.p ? m->json : (lq_bytes){"", 0};
    if (!strcmp(name, "tokenizer_config.json") && m->config.n) *out = m->config;
    return true;
}

bool lq_tokenizer_parse(lq_bytes json, lq_bytes config, lq_tokenizer **out, lq_err *err) {
    memory m = {json, config};
    return lq_tokenizer_read(&(lq_tok_files){memory_get, &m, NULL}, out, err);
}

static bool ckpt_get(void *from, const char *name, lq_bytes *out, lq_err *err) {
    return lq_ckpt_file(from, name, out, err);
}

bool lq_tokenizer_open(lq_ckpt *c, lq_tokenizer **out, lq_err *err) {
    return lq_tokenizer_read(&(lq_tok_files){ckpt_get, c, NULL}, out, err) || lq_fail_in(err, "%s", lq_ckpt_path(c));
}
