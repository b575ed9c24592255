// tok_rank.c: tokenizers that are a list of byte strings and their ranks: tiktoken's files (a line of base64 and a
// number each) and Mistral's tekken.json. How a text is cut and which special tokens there are, such a file does not
// say: what is known of the families that ship one stands here.
// Refuses lines that are not so, ranks out of bounds, and lists in which a byte has no token.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define NO_HAN "&&[^\\p{Han}]"
#define TWO_CASES(more) UPPER more "]*" LOWER more "]+" CONTRACTIONS "?|" UPPER more "]+" LOWER more "]*" CONTRACTIONS "?"
const char lq_tok_words_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char lq_tok_words_qwen[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" WORDS_TAIL;
static const char words_cl100k[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" WORDS_TAIL;
static const char words_o200k[] = TWO_CASES("") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char words_kimi[] = "[\\p{Han}]+|" TWO_CASES(NO_HAN) "|\\p{N}{1,3}" WORDS_TAIL;

// --- what is known ---

// Special tokens of ids one after the other: `count` of them, %d is the number of each from `from` on; from -1: its id.
// No text: ids without a token.
typedef struct special { const char *text; int count, from; } special;
typedef struct family {
    const char *file, *class; // by the file's name, or the tokenizer's class
    const char *words;
    int first;                // the first special token's id; 0: behind the ranks
    bool nfc, by_line;        // by_line: a rank is the number of its line, without those that stood before
    bool bos;                 // the first special token begins a text
    const special *special;   // [], the last one has no count
} family;

static const special qwen[] = {{"<|endoftext|>", 1, 0}, {"<|im_start|>", 1, 0}, {"<|im_end|>", 1, 0},
                               {"<|extra_%d|>", 205, 0}, {0}};
static const special hunyuan[] = {{"<|endoftext|>", 1, 0}, {"<|startoftext|>", 1, 0}, {"<|bos|>", 1, 0},
                                  {"<|eos|>", 1, 0}, {"<|pad|>", 1, 0}, {"<|extra_%d|>", 205, 0}, {0}};
static const special llama3[] = {{"<|begin_of_text|>", 1, 0}, {"<|end_of_text|>", 1, 0},
                                 {"<|reserved_special_token_%d|>", 4, 0}, {"<|start_header_id|>", 1, 0},
                                 {"<|end_header_id|>", 1, 0}, {"<|reserved_special_token_%d|>", 1, 4},
                                 {"<|eot_id|>", 1, 0}, {"<|reserved_special_token_%d|>", 246, 5}, {0}};
static const special kimi[] = {{"<|reserved_token_%d|>", 256, -1}, {0}};
static const special endoftext[] = {{"<|endoftext|>", 1, 0}, {0}};
static const special cl100k[] = {{"<|endoftext|>", 1, 0}, {"<|fim_prefix|>", 1, 0}, {"<|fim_middle|>", 1, 0},
                                 {"<|fim_suffix|>", 1, 0}, {NULL, 15, 0}, {"<|endofprompt|>", 1, 0}, {0}};
static const special o200k[] = {{"<|endoftext|>", 1, 0}, {NULL, 18, 0}, {"<|endofprompt|>", 1, 0}, {0}};
static const special arcade[] = {
    {"<|endoftext|>", 1, 0}, {"<|fim_prefix|>", 1, 0}, {"<|fim_middle|>", 1, 0}, {"<|fim_suffix|>", 1, 0},
    {"<|fim_pad|>", 1, 0}, {"<gh_stars>", 1, 0}, {"<filename>", 1, 0}, {"<issue_start>", 1, 0},
    {"<issue_comment>", 1, 0}, {"<issue_closed>", 1, 0}, {"<jupyter_start>", 1, 0}, {"<jupyter_text>", 1, 0},
    {"<jupyter_code>", 1, 0}, {"<jupyter_output>", 1, 0}, {"<empty_output>", 1, 0}, {"<commit_before>", 1, 0},
    {"<commit_msg>", 1, 0}, {"<commit_after>", 1, 0}, {"<reponame>", 1, 0}, {"<|endofprompt|>", 1, 0},
    {"<|im_start|>", 1, 0}, {"<|im_end|>", 1, 0}, {"<|pause|>", 1, 0}, {"<|reg%d|>", 8, 0}, {"<|extra%d|>", 1, 0}, {0}};
static const special tekken[] = {
    {"<unk>", 1, 0}, {"<s>", 1, 0}, {"</s>", 1, 0}, {"[INST]", 1, 0}, {"[/INST]", 1, 0}, {"[AVAILABLE_TOOLS]", 1, 0},
    {"[/AVAILABLE_TOOLS]", 1, 0}, {"[TOOL_RESULTS]", 1, 0}, {"[/TOOL_RESULTS]", 1, 0}, {"[TOOL_CALLS]", 1, 0},
    {"[IMG]", 1, 0}, {"<pad>", 1, 0}, {"[IMG_BREAK]", 1, 0}, {"[IMG_END]", 1, 0}, {"[PREFIX]", 1, 0},
    {"[MIDDLE]", 1, 0}, {"[SUFFIX]", 1, 0}, {"[SYSTEM_PROMPT]", 1, 0}, {"[/SYSTEM_PROMPT]", 1, 0},
    {"[TOOL_CONTENT]", 1, 0}, {0}};

static const family families[] = {
    {.file = "qwen.tiktoken", .class = "QWenTokenizer", .words = lq_tok_words_qwen, .nfc = true, .special = qwen},
    {.file = "hy.tiktoken", .class = "HYTokenizer", .words = lq_tok_words_qwen, .nfc = true, .by_line = true,
     .special = hunyuan},
    {.file = "arcade100k.tiktoken", .class = "Arcade100kTokenizer", .words = lq_tok_words_qwen, .nfc = true,
     .first = 100257, .special = arcade},
    {.class = "TikTokenTokenizer", .words = words_kimi, .special = kimi},
    {.file = "cl100k_base.tiktoken", .words = words_cl100k, .first = 100257, .special = cl100k},
    {.file = "o200k_base.tiktoken", .words = words_o200k, .first = 199999, .special = o200k},
    {.file = "gpt2.tiktoken", .words = lq_tok_words_gpt2, .first = 50256, .special = endoftext},
    {.file = "r50k_base.tiktoken", .words = lq_tok_words_gpt2, .first = 50256, .special = endoftext},
    {.file = "p50k_base.tiktoken", .words = lq_tok_words_gpt2, .first = 50256, .special = endoftext},
    {.words = words_cl100k}, // others that are known: the pattern of cl100k, and the tokens their config names
};
// A tokenizer.model of Llama 3 that stands alone: told by its ranks.
static const family llama = {.words = words_cl100k, .special = llama3, .bos = true};
enum { LLAMA_RANKS = 128000, SPECIALS = 16384 };

static const family *family_of(const char *file, const char *class, int32_t ranks, bool named) {
    const family *f = families;
    while (f->file || f->class) {
        if ((f->file && !strcmp(file, f->file)) || (f->class && class && !strcmp(class, f->class))) return f;
        f++;
    }
    return ranks == LLAMA_RANKS && !named ? &llama : f;
}

// --- the list ---

typedef struct list {
    lq_tok_entries tokens;
    lq_tok_buf text;  // of all tokens, each byte as its character; offsets until the list is whole
    lq_tok_buf bytes; // of one
} list;

static bool token_add(list *l, const char *base64, size_t n, int32_t id, const char *what, lq_err *err) {
    l->bytes.n = 0;
    if (!lq_tok_base64(base64, n, &l->bytes, err) || !l->bytes.n)
        return lq_fail(err, LQ_E_FORMAT, "%s: token %zu is not base64 of a text", what, l->tokens.n);
    const size_t at = l->text.n;
    return lq_tok_bytes_map(l->bytes.p, l->bytes.n, &l->text, err) &&
           lq_tok_entry_add(&l->tokens, (lq_tok_entry){.n = l->text.n - at, .id = id, .kind = LQ_TOK_K_MODEL}, err);
}

// Texts no longer move: tokens get theirs.
static void list_close(list *l) {
    size_t at = 0;
    for (size_t i = 0; i < l->tokens.n; i++) {
        l->tokens.p[i].text = l->text.p + at;
        at += l->tokens.p[i].n;
    }
}

static void list_free(list *l) {
    free(l->tokens.p);
    free(l->text.p);
    free(l->bytes.p);
}

// base64[n] " " rank
static bool line_cut(const char *p, const char *end, size_t *n, int64_t *rank) {
    const char *space = memchr(p, ' ', (size_t)(end - p)), *q = space ? space + 1 : end;
    *n = space ? (size_t)(space - p) : 0;
    *rank = 0;
    for (; q < end && *q >= '0' && *q <= '9' && *rank < LQ_TOK_MAX_ID; q++) *rank = *rank * 10 + (*q - '0');
    if (q < end && *q == '\r') q++;
    return *n && q > space + 1 && q == end && *rank < LQ_TOK_MAX_ID;
}

bool lq_tok_ranks_are(lq_bytes file) {
    size_t n;
    int64_t rank;
    const char *end = file.n ? memchr(file.p, '\n', file.n) : NULL;
    lq_tok_buf bytes = {0};
    const bool are = file.n && line_cut(file.p, end ? end : file.p + file.n, &n, &rank) &&
                     lq_tok_base64(file.p, n, &bytes, NULL);
    free(bytes.p);
    return are;
}

static bool lines_read(lq_bytes file, const char *what, list *l, lq_err *err) {
    const char *end = file.p + file.n;
    size_t line = 0, n;
    int64_t rank;
    for (const char *p = file.p; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        line++;
        if (stop > p) {
            if (!line_cut(p, stop, &n, &rank))
                return lq_fail(err, LQ_E_FORMAT, "%s: line %zu is not base64, a space and a rank below %d", what, line,
                               LQ_TOK_MAX_ID);
            if (!token_add(l, p, n, (int32_t)rank, what, err)) return false;
        }
        p = stop + (stop < end);
    }
    return l->tokens.n || lq_fail(err, LQ_E_FORMAT, "%s: no ranks", what);
}

// --- the tokenizer ---

static bool json_steps(const char *json, bool (*parse)(const cJSON *, lq_tokenizer *, lq_err *), lq_tokenizer *t,
                       lq_err *err) {
    cJSON *tree = json ? cJSON_Parse(json) : NULL;
    const bool ok = json && !tree ? lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory") : parse(tree, t, err);
    cJSON_Delete(tree);
    return ok;
}

static bool words_set(const char *words, lq_tokenizer *t, lq_err *err) {
    static const char bytes[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}";
    cJSON *all = cJSON_CreateObject(), *steps = all ? cJSON_AddArrayToObject(all, "pretokenizers") : NULL;
    cJSON *split = cJSON_CreateObject(), *level = cJSON_Parse(bytes), *pattern;
    bool ok = steps && split && level && cJSON_AddStringToObject(all, "type", "Sequence") &&
              cJSON_AddStringToObject(split, "type", "Split") &&
              cJSON_AddStringToObject(split, "behavior", "Isolated") &&
              (pattern = cJSON_AddObjectToObject(split, "pattern")) && cJSON_AddStringToObject(pattern, "Regex", words);
    if (!ok || !cJSON_AddItemToArray(steps, split) || !cJSON_AddItemToArray(steps, level))
        ok = lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory");
    ok = ok && lq_tok_pre_parse(all, t, err);
    if (!steps || !cJSON_GetArraySize(steps)) cJSON_Delete(split);
    if (!steps || cJSON_GetArraySize(steps) < 2) cJSON_Delete(level);
    cJSON_Delete(all);
    return ok;
}

static bool special_add(cJSON *to, const char *text, int32_t id, lq_err *err) {
    cJSON *item = cJSON_CreateObject();
    if (item && cJSON_AddStringToObject(item, "content", text) && cJSON_AddNumberToObject(item, "id", id) &&
        cJSON_AddTrueToObject(item, "special") && cJSON_AddItemToArray(to, item)) return true;
    cJSON_Delete(item);
    return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for the added tokens");
}

// Those of the family that no config gave another name.
static bool specials_add(const special *s, int32_t id, cJSON *added, lq_err *err) {
    char text[64];
    bool ok = true;
    for (; ok && s && s->count; s++) {
        for (int i = 0; ok && i < s->count; i++, id++) {
            bool named = !s->text;
            for (const cJSON *k = added->child; k && !named; k = k->next) {
                const cJSON *at = cJSON_GetObjectItemCaseSensitive(k, "id");
                named = cJSON_IsNumber(at) && at->valuedouble == id;
            }
            if (named) continue;
            snprintf(text, sizeof text, s->text, s->from < 0 ? (int)id : s->from + i);
            ok = special_add(added, text, id, err);
        }
    }
    return ok;
}

static bool vocab_make(list *l, const cJSON *added, const char *what, lq_tokenizer *t, lq_err *err) {
    lq_tok_vocab *v = &t->vocab;
    char text[4];
    v->model = LQ_TOK_BPE;
    v->unk = -1;
    v->ignore_merges = true;
    if (!lq_tok_vocab_make(v, &l->tokens, added, true, what, err)) return false;
    for (int b = 0; b < 256; b++)
        if (lq_tok_vocab_find(v, text, lq_tok_char_put(lq_tok_byte_char((uint8_t)b), text)) < 0)
            return lq_fail(err, LQ_E_FORMAT, "%s: byte %d has no token", what, b);
    return lq_tok_merges_join(v, what, err);
}

static bool ranks_open(list *l, const family *f, int32_t first, const cJSON *config, cJSON *added, const char *what,
                       lq_tokenizer *t, lq_err *err) {
    static const char nfc[] = "{\"type\":\"NFC\"}", bytes[] = "{\"type\":\"ByteLevel\"}";
    list_close(l);
    bool ok = specials_add(f->special, first, added, err) && vocab_make(l, added, what, t, err) &&
              json_steps(f->nfc ? nfc : NULL, lq_tok_norm_parse, t, err);
    if (ok && f->nfc) t->norm[0].today = true; // Python's
    return ok && words_set(f->words, t, err) && json_steps(bytes, lq_tok_dec_parse, t, err) &&
           lq_tok_added_parse(added, t, err) &&
           lq_tok_around(config, f->bos, false, f->bos ? first : -1, -1, t, err);
}

bool lq_tok_ranks_parse(lq_bytes file, const char *name, const char *class, const cJSON *config, cJSON *added,
                        lq_tokenizer *t, lq_err *err) {
    list l = {0};
    bool ok = lines_read(file, name, &l, err);
    int32_t top = 0;
    const family *f = family_of(name, class, (int32_t)l.tokens.n, added->child != NULL);
    for (size_t i = 0; ok && i < l.tokens.n; i++) {
        if (f->by_line) l.tokens.p[i].id = (int32_t)i;
        if (l.tokens.p[i].id >= top) top = l.tokens.p[i].id + 1;
    }
    ok = ok && ranks_open(&l, f, f->first ? f->first : top, config, added, name, t, err);
    list_free(&l);
    return ok;
}

// --- tekken.json ---

bool lq_tok_tekken_parse(const cJSON *json, const cJSON *config, cJSON *added, lq_tokenizer *t, lq_err *err) {
    static const char what[] = "tekken.json";
    const cJSON *how = cJSON_GetObjectItemCaseSensitive(json, "config");
    const cJSON *vocab = cJSON_GetObjectItemCaseSensitive(json, "vocab");
    const cJSON *named = cJSON_GetObjectItemCaseSensitive(json, "special_tokens");
    int64_t size = 131072, specials = 1000;
    const char *words = lq_json_str(how, "pattern");
    list l = {0};
    bool ok = lq_json_int(how, "default_vocab_size", 1, LQ_TOK_MAX_ID, &size, what, err) &&
              lq_json_int(how, "default_num_special_tokens", 0, SPECIALS, &specials, what, err);
    if (ok && (!words || !cJSON_IsArray(vocab) || specials > size))
        ok = lq_fail(err, LQ_E_FORMAT, "%s: no pattern, no vocab, or more special tokens than tokens", what);
    for (const cJSON *k = vocab ? vocab->child : NULL; ok && k; k = k->next) {
        const char *bytes = lq_json_str(k, "token_bytes");
        int64_t rank = -1;
        ok = lq_json_int(k, "rank", 0, LQ_TOK_MAX_ID, &rank, what, err);
        if (ok && (!bytes || rank < 0))
            ok = lq_fail(err, LQ_E_FORMAT, "%s: vocab[%zu] has no rank or no token_bytes", what, l.tokens.n);
        if (ok && rank < size - specials)
            ok = token_add(&l, bytes, strlen(bytes), (int32_t)(rank + specials), what, err);
    }
    for (const cJSON *k = cJSON_IsArray(named) ? named->child : NULL; ok && k; k = k->next) {
        const char *text = lq_json_str(k, "token_str");
        int64_t rank = -1;
        ok = lq_json_int(k, "rank", 0, specials - 1, &rank, what, err);
        if (ok && (!text || rank < 0)) ok = lq_fail(err, LQ_E_FORMAT, "%s: a special token without rank or text", what);
        ok = ok && special_add(added, text, (int32_t)rank, err);
    }
    const special rest[] = {{"<SPECIAL_%d>", (int)specials, 0}, {0}};
    const family f = {.words = words, .special = rest};
    if (ok && !cJSON_IsArray(named)) ok = specials_add(tekken, 0, added, err);
    ok = ok && ranks_open(&l, &f, 0, config, added, what, t, err) &&
         lq_tok_around(config, true, false, lq_tok_added_id(t, "<s>", 3), -1, t, err);
    list_free(&l);
    return ok;
}
