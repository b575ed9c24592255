// lq_tokenize.c: lq tokenize: a text as a model's tokens, and tokens as a text again. Only the tokenizer is opened.
// What it reads is text as it is, any bytes; what it writes with --decode is too, but for a terminal.
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct tokenize_args {
    lq_common common;
    const char *text;
    bool no_special, no_parse, decode;
} tokenize_args;

#define TEXT_LIMIT ((size_t)256 << 20)

static void token_json(lq_text *t, const lq_tokenizer *tok, int32_t id, bool first) {
    size_t n;
    const char *p = lq_tokenizer_piece(tok, id, &n);
    if (!first) lq_text_add(t, ",", 1);
    lq_text_json(t, p ? p : "", n);
}

static int encode(const tokenize_args *a, const lq_tokenizer *tok, const char *text, size_t n) {
    const int flags = (a->no_special ? 0 : LQ_TOK_SPECIAL) | (a->no_parse ? 0 : LQ_TOK_PARSE);
    int32_t *ids;
    size_t count;
    lq_err err;
    if (!lq_tokenizer_ids(tok, text, n, flags, &ids, &count, &err)) return lq_say_error(&err);
    lq_text t = {0};
    if (a->common.json) lq_text_fmt(&t, "{\"ids\":[");
    for (size_t i = 0; i < count && a->common.json; i++) lq_text_fmt(&t, "%s%d", i ? "," : "", (int)ids[i]);
    if (a->common.json) lq_text_fmt(&t, "],\"pieces\":[");
    for (size_t i = 0; i < count; i++) {
        size_t len;
        const char *p = lq_tokenizer_piece(tok, ids[i], &len);
        if (a->common.json) {
            token_json(&t, tok, ids[i], i == 0);
            continue;
        }
        printf("%d\t", (int)ids[i]);
        lq_say_text(stdout, p ? p : "", len, false);
        putchar('\n');
    }
    lq_free(ids);
    if (!a->common.json) return 0;
    lq_text_fmt(&t, "]}");
    return lq_say_json(&t);
}

// Numbers between anything that is none: "1 2 3", "[1, 2, 3]", a number a line.
static bool ids_read(const char *text, size_t n, int32_t **out, size_t *count, lq_err *err) {
    size_t cap = 0;
    *out = NULL;
    *count = 0;
    for (size_t i = 0; i < n;) {
        if (strchr(" \t\r\n,[]", text[i]) && text[i]) {
            i++;
            continue;
        }
        int64_t id = 0;
        const size_t at = i;
        for (; i < n && text[i] >= '0' && text[i] <= '9' && id <= INT32_MAX; i++) id = id * 10 + (text[i] - '0');
        if (i == at || id > INT32_MAX || (i < n && !memchr(" \t\r\n,[]", text[i], 7)))
            return lq_fail(err, LQ_E_USAGE, "token %zu (byte %zu) is no id, expected whole numbers", *count, at);
        if (!lq_grow((void **)out, *count, &cap, sizeof **out))
            return lq_fail(err, LQ_E_MEMORY, "no memory for %zu tokens", *count);
        (*out)[(*count)++] = (int32_t)id;
    }
    return true;
}

static int decode(const tokenize_args *a, const lq_tokenizer *tok, const char *in, size_t n) {
    int32_t *ids;
    size_t count, len, none;
    char *text = NULL;
    lq_err err;
    bool ok = ids_read(in, n, &ids, &count, &err);
    for (size_t i = 0; ok && i < count; i++)
        if (!lq_tokenizer_piece(tok, ids[i], &none))
            ok = lq_fail(&err, LQ_E_USAGE, "token %zu is %d, which the vocabulary does not have", i, (int)ids[i]);
    ok = ok && lq_tokenizer_text(tok, ids, count, !a->no_special, &text, &len, &err);
    free(ids);
    if (!ok) return lq_say_error(&err);
    int status = 0;
    if (a->common.json) {
        lq_text t = {0};
        lq_text_fmt(&t, "{\"text\":");
        lq_text_json(&t, text, len);
        lq_text_fmt(&t, "}");
        status = lq_say_json(&t);
    } else if (isatty(STDOUT_FILENO)) {
        lq_say_text(stdout, text, len, true);
        putchar('\n');
    } else fwrite(text, 1, len, stdout);
    lq_free(text);
    return status;
}

static int run(void *args, int argc, char **argv) {
    const tokenize_args *a = args;
    const char *file = argc > 1 ? argv[1] : NULL, *text = a->text;
    char *owned = NULL;
    size_t n = text ? strlen(text) : 0;
    lq_tokenizer *tok;
    lq_err err;
    if (file && text) return lq_say_usage("tokenize", "a text and a file: give one of them");
    if (!file && !text && isatty(STDIN_FILENO))
        return lq_say_usage("tokenize", "no text: give one with -p, a file after the model, or pipe it in");
    if (!lq_tokenizer_load(argv[0], &tok, &err)) return lq_say_error(&err);
    if (!text && !lq_input_read(file ? file : "-", TEXT_LIMIT, &owned, &n, &err)) {
        lq_tokenizer_close(tok);
        return lq_say_error(&err);
    }
    if (owned) text = owned;
    const int status = a->decode ? decode(a, tok, text, n) : encode(a, tok, text, n);
    free(owned);
    lq_tokenizer_close(tok);
    return status;
}

static const lq_opt opts[] = {
    {"text", 'p', LQ_OPT_TEXT, offsetof(tokenize_args, text), "TEXT",
     "the text; else the file after MODEL, else standard input", NULL, 0, 0},
    {"no-special", 0, LQ_OPT_FLAG, offsetof(tokenize_args, no_special), NULL,
     "without BOS and the like around; with --decode: without special tokens", NULL, 0, 0},
    {"no-parse", 0, LQ_OPT_FLAG, offsetof(tokenize_args, no_parse), NULL,
     "special tokens that the text names are text", NULL, 0, 0},
    {"decode", 0, LQ_OPT_FLAG, offsetof(tokenize_args, decode), NULL, "read ids, write their text", NULL, 0, 0},
};
static const char *const examples[] = {
    "lq tokenize demo.lq -p 'Once upon a time'", "a line for each token: its id, a tab, its piece",
    "lq tokenize tokenizer.model story.txt --json", "ids and pieces of a file, for a script",
    "lq tokenize demo.lq story.txt --no-special | cut -f1 | lq tokenize demo.lq --decode", "there and back", NULL};
const lq_verb lq_verb_tokenize = {
    .name = "tokenize", .synopsis = "MODEL|FILE [FILE]", .summary = "Turn a text into tokens, or tokens into a text",
    .detail = "The tokenizer is that of a model, of a folder, or one file that holds it: tokenizer.json, tekken.json, tokenizer.model (of "
              "sentencepiece, or ranks as tiktoken has them), *.tiktoken, vocab.json with merges.txt beside it, vocab.txt. Of several in a "
              "folder the first of this list is taken. A piece is printed as the vocabulary writes it. Bytes that are not UTF-8 become "
              "U+FFFD before anything else.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(tokenize_args),
    .min_args = 1, .max_args = 2,
    .run = run};
