// fuzz_tokenizer.c: the first byte picks a small tokenizer of ours, the rest is a text; or (first byte '{') all of it
// is a tokenizer.json, which, if it opens, gets a text. Ids must be of the vocabulary, text must be whole UTF-8, and
// where a tokenizer changes nothing, text -> ids -> text must be the same bytes.
#include <stdlib.h>
#include <string.h>
#include "formats/json.h"
#include "runtime/lq.h"
#include "runtime/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define LLAMA3                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" \
    "\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(re, b) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" re "\"},\"behavior\":\"" b "\",\"invert\":false}"
#define BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define STEPS(...) "{\"type\":\"Sequence\",\"pretokenizers\":[" __VA_ARGS__ "]}"
static const struct { bool bytes, same; const char *norm, *pre, *dec; } kinds[] = {
    {true, true, "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "{\"type\":\"ByteLevel\"}"},
    {true, true, "null", STEPS(SPLIT(LLAMA3, "Isolated") "," BYTES), "{\"type\":\"ByteLevel\"}"},
    {true, false, "{\"type\":\"NFC\"}",
     STEPS("{\"type\":\"Punctuation\"},{\"type\":\"Digits\"}," SPLIT("\\\\b", "MergedWithNext") "," BYTES),
     "{\"type\":\"ByteLevel\"}"},
    {true, false, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"StripAccents\"},{\"type\":\"Lowercase\"},{\"type\":\"Strip\"}]}",
     STEPS("{\"type\":\"BertPreTokenizer\"},{\"type\":\"ByteLevel\"}," SPLIT("[\\\\w&&[^\\\\d]]+|x*", "Contiguous")),
     "{\"type\":\"ByteLevel\"}"},
    {false, false, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}",
     "null", "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
     "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"},
    {false, false, "{\"type\":\"NFKC\"}", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}",
     "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}"},
};
enum { KINDS = sizeof kinds / sizeof *kinds, TEXT_MAX = 1 << 16 };
static const char merges[] =
    "[\"a b\",\"ab ab\",\"t h\",\"th e\",\"_ the\",\"0 0\",\"00 00\",\"e e\",\"ee ee\",\"_ _\",\"__ __\"]";
static const char *const merged[] = {"ab", "abab", "th", "the", "_the", "00", "0000", "ee", "eeee", "__", "____"};

static lq_tokenizer *kind_open(int k) {
    lq_text t = {0};
    lq_tokenizer *out = NULL;
    int id = 0;
    lq_text_fmt(&t, "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"added_tokens\":[{\"id\":400,\"content\":\"<s>\",\"special\":true},"
                "{\"id\":401,\"content\":\"  \",\"normalized\":false,\"special\":false},{\"id\":402,\"content\":\"<e>\",\"rstrip\":true,\"lstrip\":true,"
                "\"special\":true,\"normalized\":true}],\"model\":{\"byte_fallback\":%s,\"type\":\"BPE\",\"merges\":%s,\"vocab\":{", kinds[k].norm, kinds[k].pre,
                kinds[k].dec, kinds[k].bytes ? "false" : "true", merges);
    // The byte alphabet: printable Latin-1, then from 256 on.
    for (int c = 33, extra = 256; kinds[k].bytes && id < 256; c++) {
        bool printable = c <= 126 || (c >= 161 && c <= 255 && c != 173);
        if (c > 255) c = extra++;
        else if (!printable) continue;
        if (c == '"' || c == '\\') lq_text_fmt(&t, "\"\\%c\":%d,", c, id++);
        else if (c < 128) lq_text_fmt(&t, "\"%c\":%d,", c, id++);
        else lq_text_fmt(&t, "\"%c%c\":%d,", 0xc0 | c >> 6, 0x80 | (c & 63), id++);
        if (c > 255) c = 256;
    }
    for (int b = 0; !kinds[k].bytes && b < 256; b++) lq_text_fmt(&t, "\"<0x%02X>\":%d,", (unsigned)b, id++);
    for (const char *c = "abehtrx0_"; !kinds[k].bytes && *c; c++) lq_text_fmt(&t, "\"%c\":%d,", *c, id++);
    for (size_t i = 0; i < sizeof merged / sizeof *merged; i++)
        lq_text_fmt(&t, "\"%s\":%d%s", merged[i], id++, i + 1 < sizeof merged / sizeof *merged ? "," : "}}}");
    lq_err err = {0};
    if (!lq_tokenizer_parse((lq_bytes){t.p, t.n}, (lq_bytes){"", 0}, &out, &err)) abort();
    lq_text_free(&t);
    return out;
}

static bool text_is_valid(const char *p, size_t n) {
    lq_text t = {0};
    lq_text_json(&t, p, n);
    bool valid = lq_json_check(t.p, t.n, (lq_json_limits){SIZE_MAX, 1}, "text", NULL) &&
                 (n < 3 || !memmem(t.p, t.n, "\xef\xbf\xbd", 3) || memmem(p, n, "\xef\xbf\xbd", 3));
    lq_text_free(&t);
    return valid;
}

static void text_run(const lq_tokenizer *t, const char *p, size_t n, int flags, bool same) {
    lq_ids ids = {0};
    lq_err err = {0};
    lq_detok d = {.special = true};
    if (!lq_tokenizer_encode(t, p, n, flags, &ids, &err)) {
        if (same || err.code == LQ_E_NONE) abort();
        free(ids.p);
        return;
    }
    size_t room = LQ_DETOK_ROOM(0), done = 0;
    for (size_t i = 0; i < ids.n; i++) {
        if (ids.p[i] < 0 || ids.p[i] >= lq_tokenizer_vocab(t)) abort();
        room += LQ_DETOK_ROOM(lq_tokenizer_bytes(t, ids.p[i]).n);
    }
    char *text = malloc(room);
    for (size_t i = 0; i < ids.n; i++) {
        size_t wrote = lq_detok_next(t, &d, ids.p[i], text + done);
        if (wrote > LQ_DETOK_ROOM(lq_tokenizer_bytes(t, ids.p[i]).n) || !text_is_valid(text + done, wrote)) abort();
        done += wrote;
    }
    done += lq_detok_end(&d, text + done);
    if (same && !(flags & LQ_TOK_PARSE) && text_is_valid(p, n) && !memmem(p, n, "\xef\xbf\xbd", 3) &&
        (done != n || memcmp(text, p, n))) {
        if (!memmem(text, done, "\xef\xbf\xbd", 3)) abort(); // bytes that are no UTF-8 came back as U+FFFD
    }
    free(text);
    free(ids.p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static lq_tokenizer *open[KINDS];
    static const char sample[] = "The th\xc3\xa9 abab 1234 \xf0\x9f\x98\x80\n\n  x<s> <e> '\xc5\xbf'S e\xcc\x81\xff";
    if (!n || n > TEXT_MAX) return 0;
    const char *p = (const char *)data;
    if (*p == '{') {
        lq_tokenizer *t = NULL;
        lq_err err = {0};
        bool ok = lq_tokenizer_parse((lq_bytes){p, n}, (lq_bytes){"", 0}, &t, &err);
        if (ok != (t != NULL) || (!ok && (!*err.text || strchr(err.text, '\n')))) abort();
        if (ok) text_run(t, sample, sizeof sample - 1, LQ_TOK_SPECIAL | LQ_TOK_PARSE, false);
        lq_tokenizer_close(t);
        return 0;
    }
    int k = *data % KINDS;
    if (!open[k]) open[k] = kind_open(k);
    text_run(open[k], p + 1, n - 1, *data & 64 ? LQ_TOK_PARSE : 0, kinds[k].same);
    return 0;
}
