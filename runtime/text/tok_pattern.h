// tok_pattern.h: what the steps of a tokenizer look for in a text, and the spans they find.
#ifndef LQ_TOK_PATTERN_H
#define LQ_TOK_PATTERN_H
#include "formats/json.h"
#include "runtime/text/tok_text.h"

typedef enum lq_tok_pattern_kind { LQ_TOK_P_LITERAL, LQ_TOK_P_REGEX, LQ_TOK_P_CLASS } lq_tok_pattern_kind;
typedef struct lq_tok_pattern {
    lq_tok_pattern_kind kind;
    char *text;      // literal
    size_t n;
    void *code;      // compiled regex
    lq_tok_class cls; // of its characters
} lq_tok_pattern;

// A text is covered by hits and what lies between them.
typedef struct lq_tok_span { size_t at, end; bool hit; } lq_tok_span;
typedef struct lq_tok_spans { lq_tok_span *p; size_t n, cap; } lq_tok_spans;

typedef struct lq_tok_matcher { void *data, *context, *stack; } lq_tok_matcher; // of one call
void lq_tok_matcher_free(lq_tok_matcher *m);

bool lq_tok_regex_compile(lq_tok_pattern *p, const char *source, lq_err *err); // source: as Oniguruma reads it
// From {"String": ..} or {"Regex": ..}.
bool lq_tok_pattern_parse(const cJSON *json, const char *what, lq_tok_pattern *p, lq_err *err);
void lq_tok_pattern_free(lq_tok_pattern *p);
bool lq_tok_pattern_find(const lq_tok_pattern *p, lq_tok_matcher *m, const char *text, size_t n, lq_tok_spans *out,
                         lq_err *err);
// Oniguruma's syntax and Unicode classes in PCRE2's words.
bool lq_tok_regex_translate(const char *source, lq_tok_buf *out, lq_err *err);
#endif
