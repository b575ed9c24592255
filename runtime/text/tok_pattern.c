// tok_pattern.c: what a Split or Replace looks for: a literal text, a regular expression or a class of characters.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/text/tok_pattern.h"

enum { MATCH_LIMIT = 10000000, DEPTH_LIMIT = 100000, HEAP_KIB = 256 << 10, JIT_STACK = 16 << 20, PATTERN_MAX = 16384 };

bool lq_tok_regex_compile(lq_tok_pattern *p, const char *source, lq_err *err) {
    lq_tok_buf text = {0};
    if (strlen(source) > PATTERN_MAX)
        return lq_fail(err, LQ_E_LIMIT, "tokenizer.json: a regex of more than %d bytes", PATTERN_MAX);
    if (!lq_tok_regex_translate(source, &text, err)) {
        free(text.p);
        return false;
    }
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *how = pcre2_compile_context_create(NULL);
    if (how) pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    p->kind = LQ_TOK_P_REGEX;
    p->code = !how ? NULL : pcre2_compile((PCRE2_SPTR)text.p, text.n - 1,
                                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                          &code, &at, how);
    pcre2_compile_context_free(how);
    free(text.p);
    if (!how) return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for a regex");
    if (!p->code) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(code, why, sizeof why);
        return lq_fail(err, LQ_E_FORMAT, "tokenizer.json: regex %.120s: %s", source, (const char *)why);
    }
    p->n = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0; // where there is no JIT, the interpreter does it
    return true;
}

bool lq_tok_pattern_parse(const cJSON *json, const char *what, lq_tok_pattern *p, lq_err *err) {
    const char *s = lq_json_str(json, "String"), *re = lq_json_str(json, "Regex");
    if (!s == !re) return lq_fail(err, LQ_E_FORMAT,
                                  "tokenizer.json: %s: a pattern must be {\"String\": ..} or {\"Regex\": ..}", what);
    if (re) return lq_tok_regex_compile(p, re, err) || lq_fail_in(err, "%s", what);
    p->kind = LQ_TOK_P_LITERAL;
    p->n = strlen(s);
    p->text = lq_tok_text_copy(s, p->n, err);
    return p->text != NULL;
}

void lq_tok_pattern_free(lq_tok_pattern *p) {
    free(p->text);
    if (p->kind == LQ_TOK_P_REGEX) pcre2_code_free(p->code);
}

void lq_tok_matcher_free(lq_tok_matcher *m) {
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
}

static bool matcher_make(lq_tok_matcher *m, lq_err *err) {
    if (m->data) return true;
    m->context = pcre2_match_context_create(NULL);
    if (m->context) {
        pcre2_set_match_limit(m->context, MATCH_LIMIT);
        pcre2_set_depth_limit(m->context, DEPTH_LIMIT);
        pcre2_set_heap_limit(m->context, HEAP_KIB);
        m->data = pcre2_match_data_create(1, NULL);
    }
    return m->data || lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for a regex");
}

// The machine's stack is enough for nearly all; else a stack of its own, at last the interpreter.
static int regex_match(const lq_tok_pattern *p, lq_tok_matcher *m, const char *text, size_t n, size_t at) {
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    if (!p->n) return pcre2_match(p->code, s, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    int rc = pcre2_jit_match(p->code, s, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
        m->stack = pcre2_jit_stack_create(64 << 10, JIT_STACK, NULL);
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
        rc = pcre2_jit_match(p->code, s, n, at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, s, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    return rc;
}

static bool span_add(lq_tok_spans *s, size_t at, size_t end, bool hit, lq_err *err) {
    if (!lq_grow((void **)&s->p, s->n, &s->cap, sizeof *s->p))
        return lq_fail(err, LQ_E_MEMORY, "tokenizer: no memory for %zu pieces of a text", s->n);
    s->p[s->n++] = (lq_tok_span){at, end, hit};
    return true;
}

static bool regex_find(const lq_tok_pattern *p, lq_tok_matcher *m, const char *text, size_t n, lq_tok_spans *out,
                       lq_err *err) {
    if (!matcher_make(m, err)) return false;
    size_t covered = 0, at = 0, last = SIZE_MAX; // last: where the last match ended; no empty one may follow it at once
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    while (at <= n) {
        int rc = regex_match(p, m, text, n, at);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            PCRE2_UCHAR why[128];
            pcre2_get_error_message(rc, why, sizeof why);
            return lq_fail(err, LQ_E_LIMIT, "tokenizer: the regex of tokenizer.json failed at byte %zu of a text: %s",
                           at, (const char *)why);
        }
        size_t s = found[0], e = found[1];
        if (e < s) return lq_fail(err, LQ_E_UNSUPPORTED, "tokenizer.json: a regex match that ends before it begins");
        if (e == s && last == e) {
            size_t len = 1;
            if (at < n) lq_tok_char_get(text + at, &len);
            at += len;
            continue;
        }
        if (s < covered) return lq_fail(err, LQ_E_UNSUPPORTED,
                                        "tokenizer.json: a regex match that begins in the one before");
        at = last = e;
        if (covered != s && !span_add(out, covered, s, false, err)) return false;
        if (!span_add(out, s, e, true, err)) return false;
        covered = e;
    }
    return covered == n || span_add(out, covered, n, false, err);
}

static bool literal_find(const lq_tok_pattern *p, const char *text, size_t n, lq_tok_spans *out, lq_err *err) {
    size_t covered = 0;
    while (p->n) {
        const char *q = memmem(text + covered, n - covered, p->text, p->n);
        if (!q) break;
        size_t s = (size_t)(q - text);
        if (covered != s && !span_add(out, covered, s, false, err)) return false;
        if (!span_add(out, s, s + p->n, true, err)) return false;
        covered = s + p->n;
    }
    return covered == n || span_add(out, covered, n, false, err);
}

static bool class_find(const lq_tok_pattern *p, const char *text, size_t n, lq_tok_spans *out, lq_err *err) {
    size_t covered = 0;
    for (size_t i = 0, len; i < n; i += len) {
        if (!lq_tok_char_is(lq_tok_char_get(text + i, &len), p->cls)) continue;
        if (covered != i && !span_add(out, covered, i, false, err)) return false;
        if (!span_add(out, i, i + len, true, err)) return false;
        covered = i + len;
    }
    return covered == n || span_add(out, covered, n, false, err);
}

bool lq_tok_pattern_find(const lq_tok_pattern *p, lq_tok_matcher *m, const char *text, size_t n, lq_tok_spans *out,
                         lq_err *err) {
    if (!n) return span_add(out, 0, 0, false, err);
    switch (p->kind) {
    case LQ_TOK_P_REGEX: return regex_find(p, m, text, n, out, err);
    case LQ_TOK_P_LITERAL: return literal_find(p, text, n, out, err);
    case LQ_TOK_P_CLASS: return class_find(p, text, n, out, err);
    }
    return true;
}
