// fuzz_template.c: a template, rendered with a conversation of ours; where it holds a NUL, what stands before it is the
// messages' JSON. A text that comes out must be whole UTF-8, an error one line with words in it, and the same again.
#include <stdlib.h>
#include <string.h>
#include "formats/json.h"
#include "runtime/lq.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char chat[] =
    "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\\u00fc <&>\\n\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"r\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,true,null]}}}]},"
    "{\"role\":\"tool\",\"content\":\"4\"}]";
static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\"}}}}}]";

static void whole(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    while (p < end) {
        const size_t len = lq_utf8_len(p, end);
        if (!len) abort();
        p += len;
    }
}

static void told(const lq_err *err) {
    if (!*err->text || strchr(err->text, '\n')) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const char *text = (const char *)data, *nul = n ? memchr(text, 0, n) : NULL;
    lq_template_var vars[] = {{"messages", chat, sizeof chat - 1}, {"tools", tools, sizeof tools - 1}, {"bos_token", "\"<s>\"", 5}};
    lq_template *t;
    lq_err err = {0}, again_err = {0};
    char *out, *again;
    size_t len, again_len;
    if (nul) {
        vars[0].json = text;
        vars[0].n = (size_t)(nul - text);
        n -= vars[0].n + 1;
        text = nul + 1;
    }
    if (!lq_template_parse(text, n, "t", &t, &err)) return told(&err), 0;
    const bool done = lq_template_render(t, vars, 3, &out, &len, &err);
    if (done) whole(out, len);
    else told(&err);
    if (lq_template_render(t, vars, 3, &again, &again_len, &again_err) != done) abort();
    const bool clock = n >= 8 && memmem(text, n, "strftime", 8);
    if (done && !clock && (len != again_len || memcmp(out, again, len))) abort();
    if (!done && strcmp(err.text, again_err.text)) abort();
    lq_free(out);
    lq_free(again);
    lq_template_close(t);
    return 0;
}
