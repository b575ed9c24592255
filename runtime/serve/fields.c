// fields.c: bodies of requests: JSON objects whose members are rows of tables. A value that is wrong, and one that this
// server would have to ignore though it changes the answer, is refused by name and with a 400; a field that no
// table has is ignored.
#include "runtime/serve/protocol.h"
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_DEPTH = 64, MAX_STOPS = 16, MAX_STOP_BYTES = 4096, MAX_STOP_IDS = 64, MAX_BIASES = 4096 };

static bool refuse_at(const lq_place *at, const lq_field *f, const char *code, const char *fmt, va_list args) {
    char name[64], text[300];
    snprintf(name, sizeof name, "%s%.40s", at->in, f->name);
    vsnprintf(text, sizeof text, fmt, args);
    return lq_refuse(at->no, 400, name, code, "%s: %s", name, text);
}

bool lq_field_refuse(const lq_place *at, const lq_field *f, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    refuse_at(at, f, NULL, fmt, args);
    va_end(args);
    return false;
}

LQ_PRINTF(3, 4) static bool unsupported(const lq_place *at, const lq_field *f, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    refuse_at(at, f, "unsupported_value", fmt, args);
    va_end(args);
    return false;
}

static bool no_memory(const lq_place *at) {
    return lq_refuse(at->no, 500, NULL, NULL, "no memory for a request");
}

static bool asks_nothing(lq_field_kind kind, const cJSON *v) {
    switch (kind) {
    case LQ_F_TRUE: return cJSON_IsTrue(v);
    case LQ_F_ONE: return cJSON_IsNumber(v) && v->valuedouble == 1;
    default: return cJSON_IsFalse(v) || (cJSON_IsString(v) && !*v->valuestring) || (cJSON_IsArray(v) && !v->child);
    }
}

bool lq_read_int(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    const bool any = f->min == 0 && f->max == 0;
    void *to = (char *)base + f->offset;
    int64_t got = 0;
    lq_err err;
    (void)v;
    if (!lq_json_int(at->obj, f->name, any ? INT64_MIN : (int64_t)f->min, any ? INT64_MAX : (int64_t)f->max, &got,
                     "request", &err))
        return lq_field_refuse(at, f, "%s", err.text);
    if (f->kind == LQ_F_LONG) *(int64_t *)to = got;
    else *(int *)to = (int)got;
    return true;
}

static bool field_take(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    char *to = (char *)base + f->offset;
    switch (f->kind) {
    case LQ_F_INT:
    case LQ_F_LONG: return lq_read_int(at, f, v, base);
    case LQ_F_NUM:
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= f->min && v->valuedouble <= f->max))
            return lq_field_refuse(at, f, "expected a number from %g to %g", f->min, f->max);
        *(float *)(void *)to = (float)v->valuedouble;
        return true;
    case LQ_F_BOOL:
        if (!cJSON_IsBool(v)) return lq_field_refuse(at, f, "expected true or false");
        *(bool *)to = cJSON_IsTrue(v);
        return true;
    case LQ_F_TEXT:
        if (!cJSON_IsString(v)) return lq_field_refuse(at, f, "expected a text");
        *(const char **)(void *)to = v->valuestring;
        return true;
    case LQ_F_READ: return f->read(at, f, v, base);
    default: break;
    }
    return asks_nothing(f->kind, v) || unsupported(at, f, "this server supports only the default value");
}

static const lq_field *row_of(const lq_field *const *tables, const char *name) {
    for (; *tables; tables++)
        for (const lq_field *f = *tables; f->name; f++)
            if (!strcmp(f->name, name)) return f;
    return NULL;
}

bool lq_fields_read(const lq_place *at, const lq_field *const *tables, void *base) {
    for (cJSON *v = at->obj->child, *next; v; v = next) {
        const lq_field *f = row_of(tables, v->string);
        next = v->next; // a reader may put another in its place
        if (f && !cJSON_IsNull(v) && !field_take(at, f, v, base)) return false;
    }
    return true;
}

// The member of a body, which is JSON, that has this byte in its value; "": none.
static void member_at(const char *body, size_t n, size_t at, char name[64]) {
    lq_json_walk w = {body, body + n};
    *name = '\0';
    if (lq_json_next(&w) != '{') return;
    for (lq_json_take(&w); lq_json_next(&w) == '"';) {
        lq_json_walk key = w;
        lq_json_skip(&w);
        const char *behind = w.p;
        lq_json_skip(&w);
        if (at >= (size_t)(w.p - body)) continue;
        if (at >= (size_t)(behind - body) && behind - key.p < 64) name[lq_json_take_str(&key, name)] = '\0';
        return;
    }
}

bool lq_body_parse(const lq_api *api, const char *body, size_t n, cJSON **out, lq_refusal *no) {
    static const char what[] = "request";
    const lq_json_limits limits = {.bytes = api->max_body, .depth = MAX_DEPTH};
    lq_err err;
    size_t at;
    char name[64] = "";
    if (!lq_json_parse_exact(body, n, limits, what, out, &at, &err)) {
        if (lq_json_check(body, n, limits, what, NULL)) member_at(body, n, at, name); // JSON that lq does not take
        return lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, name, NULL, "%s%s", name,
                         err.text + (*name ? strlen(what) : 0));
    }
    if (cJSON_IsObject(*out)) return true;
    cJSON_Delete(*out);
    *out = NULL;
    return lq_refuse(no, 400, NULL, NULL, "the body must be a JSON object");
}

// --- readers ---

bool lq_read_model(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    if (!cJSON_IsString(v)) return lq_field_refuse(at, f, "expected a string");
    if (!strcmp(v->valuestring, at->api->name)) return true;
    return lq_refuse(at->no, 404, f->name, "model_not_found", "model: there is no %.100s here, only %.200s",
                     v->valuestring, at->api->name);
}

bool lq_ids_read(const lq_place *at, const lq_field *f, const cJSON *list, size_t max, int32_t **ids, size_t *count) {
    size_t n = 0;
    for (const cJSON *v = list->child; v; v = v->next, n++)
        if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0 && v->valuedouble < at->api->vocab) ||
            v->valuedouble != floor(v->valuedouble))
            return lq_field_refuse(at, f, "entry %zu is no token: expected a whole number from 0 to %d", n,
                                   at->api->vocab - 1);
    if (n > max) return lq_field_refuse(at, f, "%zu entries, expected at most %zu", n, max);
    if (!(*ids = malloc((n + 1) * sizeof **ids))) return no_memory(at);
    *count = 0;
    for (const cJSON *v = list->child; v; v = v->next) (*ids)[(*count)++] = (int32_t)v->valuedouble;
    return true;
}

bool lq_read_stop(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    const cJSON *first = cJSON_IsArray(v) ? v->child : v;
    if (!(c->ask.stop = c->stop = calloc(MAX_STOPS, sizeof *c->stop))) return no_memory(at);
    for (const cJSON *s = first; s; s = s == v ? NULL : s->next) {
        if (!cJSON_IsString(s) || !*s->valuestring)
            return lq_field_refuse(at, f, "expected a text that is not empty, or an array of them");
        if (c->ask.stops == MAX_STOPS) return lq_field_refuse(at, f, "expected at most %d texts", MAX_STOPS);
        if (strlen(s->valuestring) > MAX_STOP_BYTES)
            return lq_field_refuse(at, f, "text %d has %zu bytes, expected at most %d", c->ask.stops,
                                   strlen(s->valuestring), MAX_STOP_BYTES);
        c->stop[c->ask.stops++] = s->valuestring;
    }
    return true;
}

static bool read_stop_ids(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    size_t n = 0;
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array of tokens");
    if (!lq_ids_read(at, f, v, MAX_STOP_IDS, &c->stop_ids, &n)) return false;
    c->ask.stop_ids = c->stop_ids;
    c->ask.stop_id_count = (int)n;
    return true;
}

static bool read_bias(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    if (!cJSON_IsObject(v)) return lq_field_refuse(at, f, "expected an object of token: bias");
    const int n = cJSON_GetArraySize(v);
    if (n > MAX_BIASES) return lq_field_refuse(at, f, "%d entries, expected at most %d", n, MAX_BIASES);
    lq_sampling *sampling = &c->ask.sampling;
    sampling->bias_id = c->bias_id = malloc((size_t)(n + 1) * sizeof *c->bias_id);
    sampling->bias = c->bias = malloc((size_t)(n + 1) * sizeof *c->bias);
    if (!c->bias_id || !c->bias) return no_memory(at);
    for (const cJSON *b = v->child; b; b = b->next) {
        char *end;
        errno = 0;
        const long id = strtol(b->string, &end, 10);
        if (!isdigit((unsigned char)*b->string) || *end || errno || id >= at->api->vocab)
            return lq_field_refuse(at, f, "%.40s is no token: expected 0 to %d", b->string, at->api->vocab - 1);
        if (!cJSON_IsNumber(b) || !(b->valuedouble >= -100 && b->valuedouble <= 100))
            return lq_field_refuse(at, f, "the bias of %ld must be a number from -100 to 100", id);
        c->bias_id[sampling->biases] = (int32_t)id;
        c->bias[sampling->biases++] = (float)b->valuedouble;
    }
    return true;
}

// Some have seeds without a sign.
static bool seed_large(const cJSON *v, uint64_t *out) {
    const char *digits = cJSON_IsNumber(v) ? v->valuestring : NULL;
    lq_json_walk w = {digits, digits ? digits + strlen(digits) : NULL};
    return digits && lq_json_take_u64(&w, out);
}

bool lq_read_seed(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_sampling *s = &((lq_completion *)base)->ask.sampling;
    lq_field row = *f;
    row.kind = LQ_F_LONG;
    if (seed_large(v, &s->seed)) return s->seeded = true;
    return s->seeded = lq_read_int(at, &row, v, base);
}

bool lq_read_tool_choice(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    const char *word = cJSON_GetStringValue(v);
    if (word && !strcmp(word, "none")) ((lq_completion *)base)->talk.no_tools = true;
    else if (!word || strcmp(word, "auto"))
        return lq_refuse(at->no, 400, f->name, "unsupported_value",
                         "%s: this server cannot make a model call a tool: expected \"none\" or \"auto\"", f->name);
    return true;
}

// What has no effect here is of its type all the same.
bool lq_is_text(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    return cJSON_IsString(v) || lq_field_refuse(at, f, "expected a text");
}

bool lq_is_bool(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    return cJSON_IsBool(v) || lq_field_refuse(at, f, "expected true or false");
}

bool lq_is_object(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    return cJSON_IsObject(v) || lq_field_refuse(at, f, "expected an object");
}

bool lq_is_count(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    int none;
    const lq_field row = {f->name, LQ_F_INT, 0, 0, INT_MAX, NULL};
    (void)base;
    return lq_read_int(at, &row, v, &none);
}

static bool read_priority(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!lq_read_int(at, f, v, base)) return false;
    return !((lq_completion *)base)->ask.priority || at->api->priorities ||
           unsupported(at, f, "this server was started without --priorities");
}

// What requests of one word leave in the cache, no others find.
static bool read_salt(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsString(v) || !*v->valuestring) return lq_field_refuse(at, f, "expected a text that is not empty");
    const uint64_t salt = XXH64(v->valuestring, strlen(v->valuestring), 0);
    ((lq_completion *)base)->ask.salt = salt ? salt : 1;
    return true;
}

static bool read_stream_options(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    static const lq_field rows[] = {
        {"include_usage", LQ_F_BOOL, LQ_AT(usage), 0, 0, NULL},
        {"continuous_usage_stats", LQ_F_BOOL, LQ_AT(usage_each), 0, 0, NULL},
        {"include_obfuscation", LQ_F_OFF, 0, 0, 0, NULL},
        {NULL, LQ_F_OFF, 0, 0, 0, NULL},
    };
    const lq_field *const tables[] = {rows, NULL};
    if (!cJSON_IsObject(v)) return lq_field_refuse(at, f, "expected an object");
    ((lq_completion *)base)->stream_options = true;
    return lq_fields_read(&(lq_place){at->api, v, "stream_options.", at->no}, tables, base);
}

// {"type": "text"}; OpenAI's responses have it one deeper.
bool lq_read_format(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(v, "format");
    const char *type = cJSON_IsObject(v) ? lq_json_str(inner ? inner : v, "type") : NULL;
    if ((type && !strcmp(type, "text")) || (!strcmp(f->name, "text") && cJSON_IsObject(v) && !inner)) return true;
    return unsupported(at, f, "this server supports only {\"type\":\"text\"}");
}

// --- tables ---

const lq_field lq_sampling_fields[] = {
    {"model", LQ_F_READ, 0, 0, 0, lq_read_model},
    {"max_tokens", LQ_F_INT, LQ_AT(ask.max_tokens), 0, INT_MAX, NULL},
    {"min_tokens", LQ_F_INT, LQ_AT(ask.min_tokens), 0, INT_MAX, NULL},
    {"n", LQ_F_INT, LQ_AT(ask.n), 1, 128, NULL},
    {"stream", LQ_F_BOOL, LQ_AT(stream), 0, 0, NULL},
    {"stream_options", LQ_F_READ, 0, 0, 0, read_stream_options},
    {"temperature", LQ_F_NUM, LQ_AT(ask.sampling.temperature), 0, 100, NULL},
    {"top_p", LQ_F_NUM, LQ_AT(ask.sampling.top_p), 0, 1, NULL},
    {"min_p", LQ_F_NUM, LQ_AT(ask.sampling.min_p), 0, 1, NULL},
    {"typical_p", LQ_F_NUM, LQ_AT(ask.sampling.typical), 0, 1, NULL},
    {"top_k", LQ_F_INT, LQ_AT(ask.sampling.top_k), -1, INT_MAX, NULL},
    {"seed", LQ_F_READ, LQ_AT(ask.sampling.seed), 0, 0, lq_read_seed},
    {"presence_penalty", LQ_F_NUM, LQ_AT(ask.sampling.presence), -2, 2, NULL},
    {"frequency_penalty", LQ_F_NUM, LQ_AT(ask.sampling.frequency), -2, 2, NULL},
    {"repetition_penalty", LQ_F_NUM, LQ_AT(ask.sampling.repetition), 0.01, 100, NULL},
    {"logit_bias", LQ_F_READ, 0, 0, 0, read_bias},
    {"stop", LQ_F_READ, 0, 0, 0, lq_read_stop},
    {"stop_token_ids", LQ_F_READ, 0, 0, 0, read_stop_ids},
    {"include_stop_str_in_output", LQ_F_BOOL, LQ_AT(ask.keep_stop), 0, 0, NULL},
    {"use_beam_search", LQ_F_BOOL, LQ_AT(beam), 0, 0, NULL},
    {"length_penalty", LQ_F_NUM, LQ_AT(ask.length_penalty), -10, 10, NULL},
    {"ignore_eos", LQ_F_BOOL, LQ_AT(ask.ignore_eos), 0, 0, NULL},
    {"add_special_tokens", LQ_F_BOOL, LQ_AT(special), 0, 0, NULL},
    {"priority", LQ_F_READ, LQ_AT(ask.priority), INT_MIN, INT_MAX, read_priority},
    {"deadline_ms", LQ_F_INT, LQ_AT(ask.deadline_ms), 1, INT_MAX, NULL},
    {"cache_salt", LQ_F_READ, 0, 0, 0, read_salt},
    {"response_format", LQ_F_READ, 0, 0, 0, lq_read_format},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

#define NEVER(name) {name, LQ_F_OFF, 0, 0, 0, NULL}
const lq_field lq_never_fields[] = {
    NEVER("guided_json"), NEVER("guided_regex"), NEVER("guided_choice"), NEVER("guided_grammar"),
    NEVER("structured_outputs"), NEVER("structural_tag"), NEVER("logits_processors"), NEVER("allowed_token_ids"),
    NEVER("bad_words"), NEVER("prompt_embeds"), NEVER("prompt_logprobs"), NEVER("truncate_prompt_tokens"),
    NEVER("return_token_ids"), NEVER("return_tokens_as_token_ids"), NEVER("kv_transfer_params"), NEVER("vllm_xargs"),
    {"skip_special_tokens", LQ_F_TRUE, 0, 0, 0, NULL}, {"spaces_between_special_tokens", LQ_F_TRUE, 0, 0, 0, NULL},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

const lq_field lq_idle_fields[] = {
    {"store", LQ_F_READ, 0, 0, 0, lq_is_bool},
    {"service_tier", LQ_F_READ, 0, 0, 0, lq_is_text},
    {"prompt_cache_key", LQ_F_READ, 0, 0, 0, lq_is_text},
    {"safety_identifier", LQ_F_READ, 0, 0, 0, lq_is_text},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

void lq_fields_named(const char *const *names, size_t n, lq_field *rows) {
    for (size_t i = 0; i < n; i++)
        for (const lq_field *f = lq_sampling_fields; f->name; f++)
            if (!strcmp(f->name, names[i])) rows[i] = *f;
}
