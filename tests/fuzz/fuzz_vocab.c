// fuzz_vocab.c: vocabularies without a tokenizer.json from strangers: the first byte says which file the rest is (and
// how it is asked for), 0 a tokenizer.model. Whatever it holds, it opens or is refused in one line; what opens encodes
// a text to ids of its own, and makes valid UTF-8 of them token by token.
#include <stdlib.h>
#include <string.h>
#include "formats/json.h"
#include "runtime/text/tokenizer.h"

typedef struct files { const char *name; lq_bytes file, config; } files;

// A vocab.json has its merges.txt behind a NUL.
static bool get(void *from, const char *name, lq_bytes *out, lq_err *err) {
    const files *f = from;
    const char *cut = f->file.n ? memchr(f->file.p, 0, f->file.n) : NULL;
    const bool two = !strcmp(f->name, "vocab.json") && cut;
    (void)err;
    if (!strcmp(name, f->name)) *out = (lq_bytes){f->file.p, two ? (size_t)(cut - f->file.p) : f->file.n};
    if (two && !strcmp(name, "merges.txt"))
        *out = (lq_bytes){cut + 1, f->file.n - (size_t)(cut + 1 - f->file.p)};
    if (!strcmp(name, "tokenizer_config.json") && f->config.n) *out = f->config;
    return true;
}

static void text_run(const lq_tokenizer *t, const char *p, size_t n, int flags) {
    lq_ids ids = {0};
    lq_err err = {0};
    lq_detok d = {.special = flags & LQ_TOK_SPECIAL};
    if (!lq_tokenizer_encode(t, p, n, flags, &ids, &err) && (!*err.text || ids.n)) abort();
    for (size_t i = 0; i < ids.n; i++) {
        const size_t room = LQ_DETOK_ROOM(lq_tokenizer_bytes(t, ids.p[i]).n);
        char *text = malloc(room + 1);
        if (ids.p[i] < 0 || ids.p[i] >= lq_tokenizer_vocab(t)) abort();
        const size_t wrote = lq_detok_next(t, &d, ids.p[i], text);
        if (wrote > room) abort();
        for (size_t k = 0; k < wrote;) {
            const size_t len = lq_utf8_len((const unsigned char *)text + k, (const unsigned char *)text + wrote);
            if (!len) abort();
            k += len;
        }
        free(text);
    }
    free(ids.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const names[] = {"tokenizer.model", "qwen.tiktoken", "tekken.json", "vocab.txt", "vocab.json",
                                        "tiktoken.model"};
    static const char *const configs[] = {
        "", "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true}",
        ("{\"tokenizer_class\":\"Qwen2Tokenizer\",\"legacy\":true,\"add_eos_token\":true,"
         "\"added_tokens_decoder\":{\"3\":{\"content\":\"<e>\",\"special\":true},\"900\":{\"content\":\"ab\"}}}"),
    };
    static const char sample[] = " The th\xc3\xa9 abab 1234 \xf0\x9f\x98\x80\n\n  x<s> <e> '\xc5\xbf'S e\xcc\x81\xff  ";
    if (!n || n > 1 << 16) return 0;
    const char *config = configs[*data / 8 % 3];
    files f = {names[*data % 8 % 6], {(const char *)data + 1, n - 1}, {config, strlen(config)}};
    const lq_tok_files from = {get, &f, *data & 128 ? f.name : NULL};
    lq_tokenizer *t = NULL;
    lq_err err = {0};
    const bool ok = lq_tokenizer_read(&from, &t, &err);
    if (ok != (t != NULL) || (!ok && (!*err.text || strchr(err.text, '\n')))) abort();
    if (ok) {
        text_run(t, sample, sizeof sample - 1, 0);
        text_run(t, sample, sizeof sample - 1, LQ_TOK_SPECIAL | LQ_TOK_PARSE);
    }
    lq_tokenizer_close(t);
    return 0;
}
