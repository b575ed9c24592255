// refuse.c: what a client is told instead of an answer, in the shape that its protocol knows. Owns lq_refusal.
#include "runtime/serve/protocol.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool lq_refuse(lq_refusal *no, int status, const char *param, const char *code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    *no = (lq_refusal){.status = status, .code = code};
    if (param) snprintf(no->param, sizeof no->param, "%s", param);
    vsnprintf(no->text, sizeof no->text, fmt, args);
    va_end(args);
    for (char *p = no->text; *p; p++)
        if (iscntrl((unsigned char)*p)) *p = '?';
    return false;
}

bool lq_refuse_error(lq_refusal *no, const char *param, const lq_err *err) {
    switch (err->code) {
    case LQ_E_BUSY: return lq_refuse(no, 429, NULL, "rate_limit_exceeded", "%s", err->text);
    case LQ_E_LIMIT: return lq_refuse(no, 400, param, "context_length_exceeded", "%s", err->text);
    case LQ_E_USAGE:
    case LQ_E_UNSUPPORTED: return lq_refuse(no, 400, param, NULL, "%s", err->text);
    default: return lq_refuse(no, 500, NULL, NULL, "%s", err->text);
    }
}

void lq_json_write(lq_text *out, const char *s) {
    if (s) lq_text_json(out, s, strlen(s));
    else lq_text_fmt(out, "null");
}

static const char *or_null(const char *s) { return s && *s ? s : NULL; }

void lq_refusal_openai(const lq_refusal *no, lq_text *out) {
    const char *type = no->status == 429 ? "rate_limit_error" : no->status >= 500 ? "server_error"
                                                                                  : "invalid_request_error";
    lq_text_fmt(out, "{\"error\":{\"message\":");
    lq_json_write(out, no->text);
    lq_text_fmt(out, ",\"type\":\"%s\",\"param\":", type);
    lq_json_write(out, or_null(no->param));
    lq_text_fmt(out, ",\"code\":");
    lq_json_write(out, or_null(no->code));
    lq_text_fmt(out, "}}");
}

typedef struct named { int status; const char *name; } named;

static const char *name_of(const named *rows, int status) {
    while (rows->status && rows->status != status) rows++;
    return rows->name;
}

static void refusal_messages(const lq_refusal *no, const char *id, lq_text *out) {
    static const named types[] = {
        {400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
        {404, "not_found_error"}, {405, "invalid_request_error"}, {413, "request_too_large"},
        {415, "invalid_request_error"}, {429, "rate_limit_error"}, {503, "overloaded_error"}, {0, "api_error"},
    };
    lq_text_fmt(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", name_of(types, no->status));
    lq_json_write(out, no->text);
    lq_text_fmt(out, "},\"request_id\":");
    lq_json_write(out, or_null(id));
    lq_text_fmt(out, "}");
}

static void refusal_generate(const lq_refusal *no, const char *id, lq_text *out) {
    static const named types[] = {
        {400, "validation"}, {422, "validation"}, {413, "validation"}, {415, "validation"}, {405, "validation"},
        {404, "not_found"}, {401, "unauthorized"}, {429, "overloaded"}, {503, "unhealthy"}, {0, "generation"},
    };
    (void)id;
    lq_text_fmt(out, "{\"error\":");
    lq_json_write(out, no->text);
    lq_text_fmt(out, ",\"error_type\":\"%s\"}", name_of(types, no->status));
}

static void refusal_openai(const lq_refusal *no, const char *id, lq_text *out) {
    (void)id;
    lq_refusal_openai(no, out);
}

void lq_refusal_write(const lq_refusal *no, const char *path, const char *id, lq_text *out) {
    static const struct { const char *begins; void (*write)(const lq_refusal *, const char *, lq_text *); } shapes[] = {
        {"/v1/messages", refusal_messages}, {"/generate", refusal_generate}, {"", refusal_openai},
    };
    size_t i = 0;
    if (path && !strcmp(path, "/")) path = "/generate"; // by another name
    while (strncmp(path ? path : "", shapes[i].begins, strlen(shapes[i].begins))) i++;
    shapes[i].write(no, id, out);
}
