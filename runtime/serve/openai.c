// openai.c: the OpenAI protocol: bodies of requests in, bodies and stream chunks of answers out.
// Owns lq_completion and lq_answer.
//
// A field is a row of a table. Refuses, by name and with a 400, every field that is not in its table and every
// value that this build would have to ignore; what cannot change the answer (user, metadata, ...) is accepted
// and dropped. Never sees a socket.
#include "runtime/serve/server.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_STOPS = 16, MAX_STOP_IDS = 64, MAX_BIASES = 4096, MAX_CHOICES = 1024, MAX_TOP = 5,
      TOKEN_BYTES = 512 };

// --- refusals ---

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

static const char *refusal_type(int status) {
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

static void json_or_null(lq_text *out, const char *s) {
    if (s && *s) lq_text_json(out, s, strlen(s));
    else lq_text_fmt(out, "null");
}

void lq_refusal_write(const lq_refusal *no, lq_text *out) {
    lq_text_fmt(out, "{\"error\":{\"message\":");
    lq_text_json(out, no->text, strlen(no->text));
    lq_text_fmt(out, ",\"type\":\"%s\",\"param\":", refusal_type(no->status));
    json_or_null(out, no->param);
    lq_text_fmt(out, ",\"code\":");
    json_or_null(out, no->code);
    lq_text_fmt(out, "}}");
}

// --- fields ---

typedef enum field_kind {
    IGNORED,    // cannot change the answer
    INT, LONG, NUM, BOOL, // int, int64_t, float, bool
    READ,       // by a function
    ONLY_FALSE, ONLY_TRUE, ONLY_ONE, ONLY_EMPTY // what others offer and lq does not: accepted where it asks for nothing
} field_kind;

typedef bool field_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no);
typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
    double min, max; // both 0: whatever the type holds
    field_read *read;
} field;

static bool asks_nothing(field_kind kind, const cJSON *v) {
    switch (kind) {
    case ONLY_FALSE: return cJSON_IsFalse(v);
    case ONLY_TRUE: return cJSON_IsTrue(v);
    case ONLY_ONE: return cJSON_IsNumber(v) && v->valuedouble == 1;
    default: return cJSON_IsString(v) && !*v->valuestring;
    }
}

static bool int_read(const field *f, const cJSON *obj, void *base, lq_refusal *no) {
    const bool any = f->min == 0 && f->max == 0;
    void *at = (char *)base + f->offset;
    int64_t v = 0;
    lq_err err;
    if (!lq_json_int(obj, f->name, any ? INT64_MIN : (int64_t)f->min, any ? INT64_MAX : (int64_t)f->max, &v, "request",
                     &err))
        return lq_refuse(no, 400, f->name, NULL, "%s", err.text);
    if (f->kind == INT) *(int *)at = (int)v;
    else *(int64_t *)at = v;
    return true;
}

static bool field_take(const lq_api *api, const field *f, const cJSON *obj, const cJSON *v, void *base,
                       lq_refusal *no) {
    float *num = (float *)(void *)((char *)base + f->offset);
    switch (f->kind) {
    case IGNORED: return true;
    case INT:
    case LONG: return int_read(f, obj, base, no);
    case NUM:
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= f->min && v->valuedouble <= f->max))
            return lq_refuse(no, 400, f->name, NULL, "%s: expected a number from %g to %g", f->name, f->min, f->max);
        *num = (float)v->valuedouble;
        return true;
    case BOOL:
        if (!cJSON_IsBool(v)) return lq_refuse(no, 400, f->name, NULL, "%s: expected true or false", f->name);
        *((bool *)base + f->offset) = cJSON_IsTrue(v);
        return true;
    case READ: return f->read(api, v, base, no);
    default: break;
    }
    return asks_nothing(f->kind, v) || lq_refuse(no, 400, f->name, "unsupported_value",
                                                 "%s: this server supports only the default value", f->name);
}

// null is the same as absent, in every field.
static bool fields_read(const lq_api *api, const field *rows, size_t count, const cJSON *obj, const char *in,
                        void *base, lq_refusal *no) {
    for (const cJSON *v = obj->child; v; v = v->next) {
        size_t i = 0;
        while (i < count && strcmp(rows[i].name, v->string)) i++;
        if (i == count) {
            char name[64];
            snprintf(name, sizeof name, "%s%.40s", in, v->string);
            return lq_refuse(no, 400, name, "unknown_parameter", "%s: this server does not know this field", name);
        }
        if (!cJSON_IsNull(v) && !field_take(api, &rows[i], obj, v, base, no)) return false;
    }
    return true;
}

static bool body_parse(const lq_api *api, const char *body, size_t n, cJSON **out, lq_refusal *no) {
    lq_err err;
    *out = NULL;
    if (!lq_json_parse(body, n, (lq_json_limits){.bytes = api->max_body, .depth = MAX_DEPTH}, "request", out, &err))
        return lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, NULL, NULL, "%s", err.text);
    if (cJSON_IsObject(*out)) return true;
    cJSON_Delete(*out);
    *out = NULL;
    return lq_refuse(no, 400, NULL, NULL, "the body must be a JSON object");
}

static bool model_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    (void)base;
    if (!cJSON_IsString(v)) return lq_refuse(no, 400, "model", NULL, "model: expected a string");
    if (!strcmp(v->valuestring, api->name)) return true;
    return lq_refuse(no, 404, "model", "model_not_found", "model: there is no %.100s here, only %.200s", v->valuestring,
                     api->name);
}

static bool ids_read(const lq_api *api, const char *name, const cJSON *list, size_t max, int32_t **ids, size_t *count,
                     lq_refusal *no) {
    size_t n = 0;
    for (const cJSON *v = list->child; v; v = v->next, n++)
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < api->vocab) ||
            v->valuedouble != floor(v->valuedouble))
            return lq_refuse(no, 400, name, NULL, "%s: entry %zu is no token: expected a whole number from 0 to %d",
                             name, n, api->vocab - 1);
    if (n > max) return lq_refuse(no, 400, name, NULL, "%s: %zu entries, expected at most %zu", name, n, max);
    if (!(*ids = malloc((n + 1) * sizeof **ids))) return lq_refuse(no, 500, name, NULL, "no memory for %zu tokens", n);
    *count = 0;
    for (const cJSON *v = list->child; v; v = v->next) (*ids)[(*count)++] = (int32_t)v->valuedouble;
    return true;
}

// --- the fields of a completion ---

static bool prompt_one(const lq_api *api, const cJSON *v, lq_prompt *p, lq_refusal *no) {
    if (cJSON_IsArray(v)) return ids_read(api, "prompt", v, INT_MAX, &p->ids, &p->count, no);
    if (!cJSON_IsString(v)) return lq_refuse(no, 400, "prompt", NULL, "prompt: expected texts or arrays of tokens");
    p->text = v->valuestring;
    p->len = strlen(v->valuestring);
    return true;
}

// A text, tokens, an array of texts, or an array of arrays of tokens.
static bool prompt_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    lq_completion *c = base;
    const bool one = cJSON_IsString(v) || (cJSON_IsArray(v) && (!v->child || cJSON_IsNumber(v->child)));
    const cJSON *first = one ? v : v->child;
    if (!one && !cJSON_IsArray(v))
        return lq_refuse(no, 400, "prompt", NULL, "prompt: expected a text, an array of texts, or tokens");
    int64_t n = 0;
    for (const cJSON *p = first; p; p = one ? NULL : p->next)
        if (++n > MAX_CHOICES)
            return lq_refuse(no, 400, "prompt", NULL, "prompt: expected at most %d of them in one request",
                             MAX_CHOICES);
    if (!(c->prompts = calloc((size_t)n, sizeof *c->prompts)))
        return lq_refuse(no, 500, NULL, NULL, "no memory for a request");
    for (const cJSON *p = first; c->prompt_count < n; p = p->next)
        if (!prompt_one(api, p, &c->prompts[c->prompt_count++], no)) return false;
    return true;
}

static bool stop_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    lq_completion *c = base;
    (void)api;
    const cJSON *first = cJSON_IsArray(v) ? v->child : v;
    if (!(c->ask.stop = c->stop = calloc(MAX_STOPS, sizeof *c->stop)))
        return lq_refuse(no, 500, NULL, NULL, "no memory for a request");
    for (const cJSON *s = first; s; s = s == v ? NULL : s->next) {
        if (!cJSON_IsString(s) || !*s->valuestring)
            return lq_refuse(no, 400, "stop", NULL, "stop: expected a text that is not empty, or an array of them");
        if (c->ask.stops == MAX_STOPS)
            return lq_refuse(no, 400, "stop", NULL, "stop: expected at most %d texts", MAX_STOPS);
        c->stop[c->ask.stops++] = s->valuestring;
    }
    return true;
}

static bool stop_ids_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    lq_completion *c = base;
    size_t n = 0;
    if (!cJSON_IsArray(v))
        return lq_refuse(no, 400, "stop_token_ids", NULL, "stop_token_ids: expected an array of tokens");
    if (!ids_read(api, "stop_token_ids", v, MAX_STOP_IDS, &c->stop_ids, &n, no)) return false;
    c->ask.stop_ids = c->stop_ids;
    c->ask.stop_id_count = (int)n;
    return true;
}

static bool bias_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    lq_completion *c = base;
    if (!cJSON_IsObject(v))
        return lq_refuse(no, 400, "logit_bias", NULL, "logit_bias: expected an object of token: bias");
    const int n = cJSON_GetArraySize(v);
    if (n > MAX_BIASES) return lq_refuse(no, 400, "logit_bias", NULL, "logit_bias: %d entries, expected at most %d", n,
                                         MAX_BIASES);
    lq_sampling *sampling = &c->ask.sampling;
    sampling->bias_id = c->bias_id = malloc((size_t)(n + 1) * sizeof *c->bias_id);
    sampling->bias = c->bias = malloc((size_t)(n + 1) * sizeof *c->bias);
    if (!c->bias_id || !c->bias) return lq_refuse(no, 500, NULL, NULL, "no memory for a request");
    for (const cJSON *b = v->child; b; b = b->next) {
        char *end;
        errno = 0;
        const long id = strtol(b->string, &end, 10);
        if (!isdigit((unsigned char)*b->string) || *end || errno || id >= api->vocab)
            return lq_refuse(no, 400, "logit_bias", NULL, "logit_bias: %.40s is no token: expected 0 to %d", b->string,
                             api->vocab - 1);
        if (!cJSON_IsNumber(b) || !(b->valuedouble >= -100 && b->valuedouble <= 100))
            return lq_refuse(no, 400, "logit_bias", NULL,
                             "logit_bias: the bias of %ld must be a number from -100 to 100", id);
        c->bias_id[sampling->biases] = (int32_t)id;
        c->bias[sampling->biases++] = (float)b->valuedouble;
    }
    return true;
}

static bool seed_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    static const field row = {"seed", LONG, offsetof(lq_completion, ask.sampling.seed), 0, 0, NULL};
    (void)api, (void)v;
    return ((lq_completion *)base)->ask.sampling.seeded = int_read(&row, ((lq_completion *)base)->tree, base, no);
}

static bool priority_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    static const field row = {"priority", INT, offsetof(lq_completion, ask.priority), INT_MIN, INT_MAX, NULL};
    (void)v;
    if (!int_read(&row, ((lq_completion *)base)->tree, base, no)) return false;
    return !((lq_completion *)base)->ask.priority || api->priorities ||
           lq_refuse(no, 400, "priority", "unsupported_value", "priority: this server was started without --priorities");
}

static bool stream_options_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    static const field rows[] = {
        {"include_usage", BOOL, offsetof(lq_completion, usage), 0, 0, NULL},
        {"include_obfuscation", ONLY_FALSE, 0, 0, 0, NULL},
        {"continuous_usage_stats", ONLY_FALSE, 0, 0, 0, NULL},
    };
    if (!cJSON_IsObject(v)) return lq_refuse(no, 400, "stream_options", NULL, "stream_options: expected an object");
    ((lq_completion *)base)->stream_options = true;
    return fields_read(api, rows, sizeof rows / sizeof *rows, v, "stream_options.", base, no);
}

static bool response_format_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    (void)api, (void)base;
    const char *type = cJSON_IsObject(v) ? lq_json_str(v, "type") : NULL;
    if (type && !strcmp(type, "text")) return true;
    return lq_refuse(no, 400, "response_format", "unsupported_value",
                     "response_format: this server supports only {\"type\":\"text\"}");
}

#define AT(member) offsetof(lq_completion, member)
static const field completion_fields[] = {
    {"model", READ, 0, 0, 0, model_read},
    {"prompt", READ, 0, 0, 0, prompt_read},
    {"max_tokens", INT, AT(ask.max_tokens), 0, INT_MAX, NULL},
    {"min_tokens", INT, AT(ask.min_tokens), 0, INT_MAX, NULL},
    {"n", INT, AT(ask.n), 1, 128, NULL},
    {"best_of", LONG, AT(best_of), 1, 128, NULL},
    {"logprobs", LONG, AT(logprobs), 0, MAX_TOP, NULL},
    {"echo", BOOL, AT(echo), 0, 0, NULL},
    {"stream", BOOL, AT(stream), 0, 0, NULL},
    {"stream_options", READ, 0, 0, 0, stream_options_read},
    {"temperature", NUM, AT(ask.sampling.temperature), 0, 100, NULL},
    {"top_p", NUM, AT(ask.sampling.top_p), 0, 1, NULL},
    {"min_p", NUM, AT(ask.sampling.min_p), 0, 1, NULL},
    {"typical_p", NUM, AT(ask.sampling.typical), 0, 1, NULL},
    {"top_k", INT, AT(ask.sampling.top_k), -1, INT_MAX, NULL},
    {"seed", READ, 0, 0, 0, seed_read},
    {"presence_penalty", NUM, AT(ask.sampling.presence), -2, 2, NULL},
    {"frequency_penalty", NUM, AT(ask.sampling.frequency), -2, 2, NULL},
    {"repetition_penalty", NUM, AT(ask.sampling.repetition), 0.01, 100, NULL},
    {"logit_bias", READ, 0, 0, 0, bias_read},
    {"stop", READ, 0, 0, 0, stop_read},
    {"stop_token_ids", READ, 0, 0, 0, stop_ids_read},
    {"include_stop_str_in_output", BOOL, AT(ask.keep_stop), 0, 0, NULL},
    {"ignore_eos", BOOL, AT(ask.ignore_eos), 0, 0, NULL},
    {"add_special_tokens", BOOL, AT(special), 0, 0, NULL},
    {"priority", READ, 0, 0, 0, priority_read},
    {"response_format", READ, 0, 0, 0, response_format_read},
    {"suffix", ONLY_EMPTY, 0, 0, 0, NULL},
    {"use_beam_search", ONLY_FALSE, 0, 0, 0, NULL},
    {"length_penalty", ONLY_ONE, 0, 0, 0, NULL},
    {"skip_special_tokens", ONLY_TRUE, 0, 0, 0, NULL},
    {"spaces_between_special_tokens", ONLY_TRUE, 0, 0, 0, NULL},
    {"user", IGNORED, 0, 0, 0, NULL},
    {"metadata", IGNORED, 0, 0, 0, NULL},
    {"store", IGNORED, 0, 0, 0, NULL},
    {"service_tier", IGNORED, 0, 0, 0, NULL},
    {"request_id", IGNORED, 0, 0, 0, NULL},
    {"safety_identifier", IGNORED, 0, 0, 0, NULL},
    {"prompt_cache_key", IGNORED, 0, 0, 0, NULL},
};

// What one field says about another.
static bool fields_agree(lq_completion *c, lq_refusal *no) {
    const lq_request *q = &c->ask;
    if (!c->prompt_count)
        return lq_refuse(no, 400, "prompt", NULL, "prompt: expected a text, an array of texts, or tokens");
    if (c->best_of && c->best_of != q->n)
        return lq_refuse(no, 400, "best_of", "unsupported_value",
                         "best_of: this server supports only best_of equal to n (%d)", q->n);
    if (c->prompt_count * q->n > MAX_CHOICES)
        return lq_refuse(no, 400, "n", NULL,
                         "n: %" PRId64 " prompts times n is %" PRId64 " choices, expected at most %d", c->prompt_count,
                         c->prompt_count * q->n, MAX_CHOICES);
    if (!q->max_tokens && !c->echo)
        return lq_refuse(no, 400, "max_tokens", NULL, "max_tokens: 0 asks for nothing without echo");
    if (!q->max_tokens && q->n > 1) return lq_refuse(no, 400, "n", NULL, "n: expected 1 where max_tokens is 0");
    if (q->min_tokens > q->max_tokens)
        return lq_refuse(no, 400, "min_tokens", NULL, "min_tokens: more than max_tokens (%d)", q->max_tokens);
    if (c->stream_options && !c->stream)
        return lq_refuse(no, 400, "stream_options", NULL, "stream_options: only with \"stream\": true");
    return true;
}

bool lq_openai_parse(const lq_api *api, const char *body, size_t n, lq_completion *c, lq_refusal *no) {
    *c = (lq_completion){.ask = {.max_tokens = 16, .n = 1, .sampling = {.temperature = 1, .top_p = 1, .repetition = 1}},
                         .logprobs = -1, .special = true};
    lq_sampling *s = &c->ask.sampling;
    if (!body_parse(api, body, n, &c->tree, no)) return false;
    if (!fields_read(api, completion_fields, sizeof completion_fields / sizeof *completion_fields, c->tree, "", c,
                     no) ||
        !fields_agree(c, no)) {
        lq_completion_free(c);
        return false;
    }
    // The engine reads 0 as "off"; here a top_p of 0 means the likeliest token alone, and a top_k of -1 is off.
    if (!(s->top_p > 0)) s->top_p = 1e-9f;
    if (s->top_k < 0) s->top_k = 0;
    c->ask.score_only = !c->ask.max_tokens;
    c->ask.logprobs = c->logprobs >= 0;
    c->ask.prompt_logprobs = c->ask.logprobs && c->echo;
    c->ask.top_n = c->logprobs > 0 ? (int)c->logprobs : 0;
    return true;
}

void lq_completion_free(lq_completion *c) {
    for (int64_t i = 0; i < c->prompt_count; i++) lq_free(c->prompts[i].ids);
    free(c->prompts);
    free(c->stop);
    free(c->stop_ids);
    free(c->bias_id);
    free(c->bias);
    cJSON_Delete(c->tree);
    *c = (lq_completion){0};
}

bool lq_openai_encode(const lq_api *api, lq_completion *c, lq_refusal *no) {
    const int flags = (c->special ? LQ_TOK_SPECIAL : 0) | LQ_TOK_PARSE;
    const size_t answer = (size_t)c->ask.max_tokens;
    for (int64_t i = 0; i < c->prompt_count; i++) {
        lq_prompt *p = &c->prompts[i];
        lq_err err;
        if (p->text && !lq_tokenize(api->model, p->text, p->len, flags, &p->ids, &p->count, &err))
            return lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, "prompt", NULL, "prompt: %s", err.text);
        if (!p->count) return lq_refuse(no, 400, "prompt", NULL, "prompt: it has no tokens");
        if (p->count + answer > (size_t)api->ctx)
            return lq_refuse(no, 400, "max_tokens", "context_length_exceeded",
                             "this model's context is %d tokens; the prompt has %zu and max_tokens asks for %zu more",
                             api->ctx, p->count, answer);
    }
    return true;
}

lq_request lq_openai_request(const lq_completion *c, int64_t prompt) {
    lq_request q = c->ask;
    q.prompt = c->prompts[prompt].ids;
    q.prompt_len = c->prompts[prompt].count;
    return q;
}

// --- answers ---

static bool continues(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

static bool answer_echo(lq_answer *a, const lq_completion *c) {
    for (int64_t i = 0; i < a->prompt_count; i++) {
        const lq_prompt *p = &c->prompts[i];
        char *text = NULL;
        size_t n = p->len;
        if (!p->text && !lq_detokenize(a->api->model, p->ids, p->count, false, &text, &n, NULL)) return false;
        const char *echo = p->text ? p->text : text;
        int64_t chars = 0;
        for (size_t k = 0; k < n; k++) chars += !continues(echo[k]);
        for (int64_t k = 0; k < a->n; k++) {
            lq_text_add(&a->choices[i * a->n + k].text, echo, n);
            a->choices[i * a->n + k].echoed = chars;
        }
        a->bytes += n * (size_t)a->n;
        lq_free(text);
    }
    return true;
}

bool lq_answer_begin(lq_answer *a, const lq_api *api, const lq_completion *c, uint64_t number, int64_t now) {
    *a = (lq_answer){.api = api, .created = now, .stream = c->stream, .usage = c->usage, .echo = c->echo,
                     .logprobs = c->ask.logprobs, .top_n = c->ask.top_n, .prompt_count = c->prompt_count, .n = c->ask.n,
                     .open = c->prompt_count * c->ask.n};
    snprintf(a->id, sizeof a->id, "cmpl-%016" PRIx64, number);
    if (!(a->choices = calloc((size_t)a->open, sizeof *a->choices))) return false;
    for (int64_t i = 0; i < a->prompt_count; i++) a->prompt_tokens += (int64_t)c->prompts[i].count;
    return !a->echo || answer_echo(a, c);
}

void lq_answer_free(lq_answer *a) {
    for (int64_t i = 0; a->choices && i < a->prompt_count * a->n; i++) {
        lq_choice *c = &a->choices[i];
        lq_text *const parts[] = {&c->text, &c->tokens, &c->values, &c->tops, &c->offsets};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) lq_text_free(parts[k]);
    }
    free(a->choices);
    lq_text_free(&a->out);
    *a = (lq_answer){0};
}

// --- logprobs ---

typedef struct token { char p[TOKEN_BYTES]; size_t n; } token;

static token token_get(const lq_model *m, int32_t id) {
    token t;
    t.n = lq_token_bytes(m, id, t.p, sizeof t.p);
    if (t.n > sizeof t.p) t.n = sizeof t.p;
    return t;
}

static bool is_utf8(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        const unsigned char c = (unsigned char)p[i++];
        const int more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 &&
            c < 0xF5 ? 3 : -1;
        if (more < 0 || n - i < (size_t)more) return false;
        const unsigned char d = more ? (unsigned char)p[i] : 0x80;
        if ((c == 0xE0 && d < 0xA0) || (c == 0xED && d > 0x9F) || (c == 0xF0 && d < 0x90) || (c == 0xF4 && d > 0x8F))
            return false;
        for (int k = 0; k < more; k++)
            if (!continues(p[i++])) return false;
    }
    return true;
}

// Part of a character has no text of its own: it is written as OpenAI does, "bytes:\xe2\x80".
static void token_write(lq_text *out, const token *t) {
    if (is_utf8(t->p, t->n)) {
        lq_text_json(out, t->p, t->n);
        return;
    }
    lq_text_fmt(out, "\"bytes:");
    for (size_t i = 0; i < t->n; i++) lq_text_fmt(out, "\\\\x%02x", (unsigned char)t->p[i]);
    lq_text_fmt(out, "\"");
}

static void logprob_write(lq_text *out, float v) {
    if (isnan(v)) lq_text_fmt(out, "null");
    else lq_text_fmt(out, "%.9g", isinf(v) ? -9999.0 : (double)v);
}

// The likeliest tokens, and the one that was drawn; of two that read the same, the likelier.
static void tops_write(const lq_answer *a, lq_choice *c, const lq_event *e, int i, const token *drawn) {
    token seen[MAX_TOP + 1];
    int count = 0;
    if (!a->top_n || !e->top || isnan(e->logprobs[i])) {
        lq_text_fmt(&c->tops, "null");
        return;
    }
    lq_text_fmt(&c->tops, "{");
    const int tops = e->top_n < a->top_n ? e->top_n : a->top_n;
    for (int k = 0; k <= tops; k++) {
        const lq_top top = k < tops ? e->top[(size_t)i * (size_t)e->top_n + (size_t)k]
            : (lq_top){e->tokens[i], e->logprobs[i]};
        seen[count] = k < tops ? token_get(a->api->model, top.id) : *drawn;
        int same = 0;
        while (same < count && (seen[same].n != seen[count].n || memcmp(seen[same].p, seen[count].p, seen[count].n)))
            same++;
        if (same < count || top.id < 0) continue;
        if (count) lq_text_fmt(&c->tops, ",");
        token_write(&c->tops, &seen[count++]);
        lq_text_fmt(&c->tops, ":");
        logprob_write(&c->tops, top.logprob);
    }
    lq_text_fmt(&c->tops, "}");
}

static void tokens_add(lq_answer *a, lq_choice *c, const lq_event *e) {
    for (int i = 0; i < e->count; i++) {
        const token t = token_get(a->api->model, e->tokens[i]);
        lq_text *const parts[] = {&c->tokens, &c->values, &c->tops, &c->offsets};
        for (size_t k = 0; k < sizeof parts / sizeof *parts && c->tokens.n; k++) lq_text_fmt(parts[k], ",");
        token_write(&c->tokens, &t);
        logprob_write(&c->values, e->logprobs[i]);
        tops_write(a, c, e, i, &t);
        // A prompt's text is echoed as it was given, which need not be what its tokens read.
        const int64_t at = e->offsets[i], whole = c->echoed;
        lq_text_fmt(&c->offsets, "%" PRId64, e->prompt ? (at < whole ? at : whole) : whole + at);
    }
}

// --- bodies and chunks ---

static const char *finish_name(lq_finish f) {
    return f == LQ_STOP ? "\"stop\"" : f == LQ_LENGTH ? "\"length\"" : "null";
}

static void list_write(lq_text *out, const char *name, const lq_text *inside) {
    lq_text_fmt(out, "\"%s\":[", name);
    if (inside->n) lq_text_add(out, inside->p, inside->n);
    lq_text_fmt(out, "]");
}

static void choice_write(lq_answer *a, int64_t index) {
    const lq_choice *c = &a->choices[index];
    lq_text *out = &a->out;
    lq_text_fmt(out, "{\"text\":");
    lq_text_json(out, c->text.n ? c->text.p : "", c->text.n);
    lq_text_fmt(out, ",\"index\":%" PRId64 ",\"logprobs\":", index);
    if (a->logprobs) {
        lq_text_fmt(out, "{");
        list_write(out, "tokens", &c->tokens);
        lq_text_fmt(out, ",");
        list_write(out, "token_logprobs", &c->values);
        lq_text_fmt(out, ",");
        if (a->top_n) list_write(out, "top_logprobs", &c->tops);
        else lq_text_fmt(out, "\"top_logprobs\":null");
        lq_text_fmt(out, ",");
        list_write(out, "text_offset", &c->offsets);
        lq_text_fmt(out, "}");
    } else lq_text_fmt(out, "null");
    lq_text_fmt(out, ",\"finish_reason\":%s}", finish_name(c->finish));
}

static void head_write(lq_answer *a) {
    lq_text_fmt(&a->out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%" PRId64 ",\"model\":", a->id,
                a->created);
    lq_text_json(&a->out, a->api->name, strlen(a->api->name));
    lq_text_fmt(&a->out, ",\"choices\":[");
}

static void usage_write(lq_answer *a) {
    lq_text_fmt(&a->out,
                "\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64
                ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "}}",
                a->prompt_tokens, a->sampled_tokens, a->prompt_tokens + a->sampled_tokens, a->cached_tokens);
}

// What came since the last chunk; nothing, if nothing a client could see did.
static void chunk_write(lq_answer *a, int64_t index) {
    lq_choice *c = &a->choices[index];
    if (!c->text.n && !c->tokens.n && c->finish == LQ_RUNNING) return;
    lq_text_fmt(&a->out, "data: ");
    head_write(a);
    choice_write(a, index);
    lq_text_fmt(&a->out, "]%s}\n\n", a->usage ? ",\"usage\":null" : "");
    lq_text *const parts[] = {&c->text, &c->tokens, &c->values, &c->tops, &c->offsets};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) parts[k]->n = 0;
}

static void answer_end(lq_answer *a) {
    for (int64_t i = 0; i < a->prompt_count * a->n; i++) {
        const lq_choice *c = &a->choices[i];
        if (c->text.failed || c->tokens.failed || c->values.failed || c->tops.failed || c->offsets.failed) {
            a->open = 1; // not ended yet: it ends with this
            lq_answer_fail(a, 500, "no memory for the answer");
            return;
        }
    }
    if (a->stream) {
        if (a->usage) {
            lq_text_fmt(&a->out, "data: ");
            head_write(a);
            lq_text_fmt(&a->out, "],");
            usage_write(a);
            lq_text_fmt(&a->out, "}\n\n");
        }
        lq_text_fmt(&a->out, "data: [DONE]\n\n");
        return;
    }
    head_write(a);
    for (int64_t i = 0; i < a->prompt_count * a->n; i++) {
        if (i) lq_text_fmt(&a->out, ",");
        choice_write(a, i);
    }
    lq_text_fmt(&a->out, "],");
    usage_write(a);
    lq_text_fmt(&a->out, "}");
}

void lq_answer_fail(lq_answer *a, int status, const char *text) {
    if (!a->open) return;
    a->open = 0;
    lq_refuse(&a->failure, status, NULL, NULL, "%s", text);
    if (!a->stream) return;
    lq_text_fmt(&a->out, "data: ");
    lq_refusal_write(&a->failure, &a->out);
    lq_text_fmt(&a->out, "\n\ndata: [DONE]\n\n");
}

// The logprobs of a prompt are told once, with its first choice, and belong to each.
static void prompt_event(lq_answer *a, int64_t prompt, const lq_event *e) {
    for (int64_t k = 0; k < a->n && a->echo && a->logprobs && !e->choice; k++) {
        tokens_add(a, &a->choices[prompt * a->n + k], e);
        if (a->stream) chunk_write(a, prompt * a->n + k);
    }
}

void lq_answer_event(lq_answer *a, int64_t prompt, const lq_event *e) {
    lq_choice *c = &a->choices[prompt * a->n + e->choice];
    if (!a->open || c->finish != LQ_RUNNING) return;
    const size_t before = c->text.n + c->tokens.n + c->values.n + c->tops.n + c->offsets.n;
    if (e->prompt) prompt_event(a, prompt, e);
    else {
        if (e->text_len) lq_text_add(&c->text, e->text, e->text_len);
        if (a->logprobs && e->logprobs) tokens_add(a, c, e);
    }
    if (!a->stream) a->bytes += c->text.n + c->tokens.n + c->values.n + c->tops.n + c->offsets.n - before;
    if (e->finish == LQ_FAILED || e->finish == LQ_ABORTED) {
        lq_answer_fail(a, e->finish == LQ_FAILED ? 500 : 503, e->finish == LQ_FAILED &&
                       e->error ? e->error : "the request was ended by the server");
        return;
    }
    if (e->finish != LQ_RUNNING) {
        c->finish = e->finish;
        a->open--;
        a->sampled_tokens += e->sampled_tokens;
        if (!e->choice) a->cached_tokens += e->cached_tokens;
    }
    if (a->stream) chunk_write(a, prompt * a->n + e->choice);
    if (!a->open) answer_end(a);
}

// --- tokens and models ---

typedef struct tokens_ask {
    const char *prompt;
    int32_t *ids;
    size_t count;
    bool special, strings, has_ids;
} tokens_ask;

static bool text_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    (void)api;
    if (!cJSON_IsString(v)) return lq_refuse(no, 400, "prompt", NULL, "prompt: expected a text");
    ((tokens_ask *)base)->prompt = v->valuestring;
    return true;
}

static bool tokens_read(const lq_api *api, const cJSON *v, void *base, lq_refusal *no) {
    tokens_ask *ask = base;
    if (!cJSON_IsArray(v)) return lq_refuse(no, 400, "tokens", NULL, "tokens: expected an array of tokens");
    return ask->has_ids = ids_read(api, "tokens", v, INT_MAX, &ask->ids, &ask->count, no);
}

static void tokenized_write(const lq_api *api, const tokens_ask *ask, lq_text *out) {
    lq_text_fmt(out, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", ask->count, api->ctx);
    for (size_t i = 0; i < ask->count; i++) lq_text_fmt(out, i ? ",%d" : "%d", ask->ids[i]);
    lq_text_fmt(out, "],\"token_strs\":%s", ask->strings ? "[" : "null}");
    for (size_t i = 0; ask->strings && i < ask->count; i++) {
        const token t = token_get(api->model, ask->ids[i]);
        if (i) lq_text_fmt(out, ",");
        token_write(out, &t);
    }
    if (ask->strings) lq_text_fmt(out, "]}");
}

bool lq_openai_tokenize(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no) {
    static const field rows[] = {
        {"model", READ, 0, 0, 0, model_read},
        {"prompt", READ, 0, 0, 0, text_read},
        {"add_special_tokens", BOOL, offsetof(tokens_ask, special), 0, 0, NULL},
        {"return_token_strs", BOOL, offsetof(tokens_ask, strings), 0, 0, NULL},
    };
    tokens_ask ask = {.special = true};
    cJSON *tree;
    lq_err err;
    if (!body_parse(api, body, n, &tree, no)) return false;
    bool done = fields_read(api, rows, sizeof rows / sizeof *rows, tree, "", &ask, no);
    if (done && !ask.prompt) done = lq_refuse(no, 400, "prompt", NULL, "prompt: expected a text");
    if (done && !lq_tokenize(api->model, ask.prompt, strlen(ask.prompt),
                             (ask.special ? LQ_TOK_SPECIAL : 0) | LQ_TOK_PARSE, &ask.ids, &ask.count, &err))
        done = lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, "prompt", NULL, "prompt: %s", err.text);
    if (done) tokenized_write(api, &ask, out);
    lq_free(ask.ids);
    cJSON_Delete(tree);
    return done;
}

bool lq_openai_detokenize(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no) {
    static const field rows[] = {{"model", READ, 0, 0, 0, model_read}, {"tokens", READ, 0, 0, 0, tokens_read}};
    tokens_ask ask = {0};
    cJSON *tree;
    lq_err err;
    char *text = NULL;
    size_t len = 0;
    if (!body_parse(api, body, n, &tree, no)) return false;
    bool done = fields_read(api, rows, sizeof rows / sizeof *rows, tree, "", &ask, no);
    if (done && !ask.has_ids) done = lq_refuse(no, 400, "tokens", NULL, "tokens: expected an array of tokens");
    if (done && !lq_detokenize(api->model, ask.ids, ask.count, true, &text, &len, &err))
        done = lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, "tokens", NULL, "tokens: %s", err.text);
    if (done) {
        lq_text_fmt(out, "{\"prompt\":");
        lq_text_json(out, text, len);
        lq_text_fmt(out, "}");
    }
    lq_free(text);
    lq_free(ask.ids);
    cJSON_Delete(tree);
    return done;
}

void lq_openai_model(const lq_api *api, bool list, int64_t created, lq_text *out) {
    lq_text_fmt(out, "%s{\"id\":", list ? "{\"object\":\"list\",\"data\":[" : "");
    lq_text_json(out, api->name, strlen(api->name));
    lq_text_fmt(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"lq\",\"max_model_len\":%d}%s",
                created, api->ctx, list ? "]}" : "");
}
