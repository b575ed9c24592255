// responses.c: POST /v1/responses of OpenAI, of texts: nothing is stored, so that a response goes on with none before
// it; and no tool is called.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// --- fields ---

static bool read_input(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsString(v) && !cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected a text or an array of items");
    ((lq_completion *)base)->talk.messages = v;
    return true;
}

static bool read_instructions(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    ((lq_completion *)base)->talk.first = v;
    return cJSON_IsString(v) || lq_field_refuse(at, f, "expected a text");
}

static bool read_truncation(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    return (cJSON_IsString(v) && !strcmp(v->valuestring, "disabled")) ||
           lq_field_refuse(at, f, "this server cuts no conversation: expected \"disabled\"");
}

static bool read_tools(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array");
    for (const cJSON *t = v->child; t; t = t->next)
        if (!lq_json_str(t, "type") || strcmp(lq_json_str(t, "type"), "function") != 0 || !lq_json_str(t, "name"))
            return lq_field_refuse(at, f, "expected {\"type\":\"function\",\"name\":...} each");
    ((lq_completion *)base)->talk.tools = v;
    return true;
}

static bool read_reasoning(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    static const lq_field inside[] = {{"effort", LQ_F_TEXT, LQ_AT(talk.effort), 0, 0, NULL},
                                      {NULL, LQ_F_OFF, 0, 0, 0, NULL}};
    static const lq_field *const tables[] = {inside, NULL};
    if (!cJSON_IsObject(v)) return lq_field_refuse(at, f, "expected an object");
    return lq_fields_read(&(lq_place){at->api, v, "reasoning.", at->no}, tables, base);
}

static bool read_include(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array");
    for (const cJSON *x = v->child; x; x = x->next) {
        if (!cJSON_IsString(x)) return lq_field_refuse(at, f, "expected an array of texts");
        if (!strcmp(x->valuestring, "message.output_text.logprobs") && c->logprobs < 0) c->logprobs = 0;
    }
    return true;
}

enum { MAX_PAIRS = 16, MAX_VALUE = 512, MAX_USER = 512 }; // OpenAI's own

bool lq_read_metadata(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    int n = 0;
    (void)base;
    for (const cJSON *p = cJSON_IsObject(v) ? v->child : NULL; p; p = p->next)
        if (++n > MAX_PAIRS || !cJSON_IsString(p) || strlen(p->valuestring) > MAX_VALUE ||
            strlen(p->string) > MAX_VALUE)
            return lq_field_refuse(at, f, "expected at most %d texts of at most %d bytes", MAX_PAIRS, MAX_VALUE);
    return cJSON_IsObject(v) || lq_field_refuse(at, f, "expected an object of texts");
}

static bool read_user(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    return (cJSON_IsString(v) && strlen(v->valuestring) <= MAX_USER) ||
           lq_field_refuse(at, f, "expected a text of at most %d bytes", MAX_USER);
}

static const lq_field rows[] = {
    {"input", LQ_F_READ, 0, 0, 0, read_input},
    {"instructions", LQ_F_READ, 0, 0, 0, read_instructions},
    {"max_output_tokens", LQ_F_INT, LQ_AT(most), 1, INT_MAX, NULL},
    {"top_logprobs", LQ_F_LONG, LQ_AT(tops), 0, LQ_MAX_TOP, NULL},
    {"include", LQ_F_READ, 0, 0, 0, read_include},
    {"tools", LQ_F_READ, 0, 0, 0, read_tools},
    {"tool_choice", LQ_F_READ, 0, 0, 0, lq_read_tool_choice},
    {"truncation", LQ_F_READ, 0, 0, 0, read_truncation},
    {"reasoning", LQ_F_READ, 0, 0, 0, read_reasoning},
    {"text", LQ_F_READ, 0, 0, 0, lq_read_format},
    {"stream_options", LQ_F_READ, 0, 0, 0, lq_is_object},
    {"metadata", LQ_F_READ, 0, 0, 0, lq_read_metadata},
    {"user", LQ_F_READ, 0, 0, 0, read_user},
    {"parallel_tool_calls", LQ_F_READ, 0, 0, 0, lq_is_bool},
    {"max_tool_calls", LQ_F_READ, 0, 0, 0, lq_is_count},
    {"n", LQ_F_ONE, 0, 0, 0, NULL},
    {"previous_response_id", LQ_F_OFF, 0, 0, 0, NULL},
    {"conversation", LQ_F_OFF, 0, 0, 0, NULL},
    {"prompt", LQ_F_OFF, 0, 0, 0, NULL},
    {"background", LQ_F_OFF, 0, 0, 0, NULL},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

// --- items ---

static bool no_memory(lq_refusal *no) { return lq_refuse(no, 500, NULL, NULL, "no memory for the conversation"); }

// A call of a tool belongs to what the assistant said before it.
static bool call_add(cJSON *list, const cJSON *item, int i, lq_refusal *no) {
    const char *name = lq_json_str(item, "name"), *args = lq_json_str(item, "arguments");
    cJSON *last = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
    const char *role = lq_json_str(last, "role");
    if (!name) return lq_refuse(no, 400, "input", NULL, "input[%d]: the function has no name", i);
    if (!role || strcmp(role, "assistant")) last = lq_talk_message(list, "assistant", NULL);
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(last, "tool_calls");
    if (last && !calls) calls = cJSON_AddArrayToObject(last, "tool_calls");
    return lq_json_move(calls, NULL, lq_talk_call(lq_json_str(item, "call_id"), name,
                                                  cJSON_CreateString(args ? args : "{}"))) ||
           no_memory(no);
}

static bool item_add(cJSON *list, cJSON *item, int i, lq_refusal *no) {
    const char *type = lq_json_str(item, "type"), *role = lq_json_str(item, "role");
    if (!type || !strcmp(type, "message")) {
        if (!role) return lq_refuse(no, 400, "input", NULL, "input[%d]: its role is no text", i);
        cJSON *content = cJSON_DetachItemFromObjectCaseSensitive(item, "content");
        return lq_talk_message(list, role, content) || no_memory(no);
    }
    if (!strcmp(type, "function_call")) return call_add(list, item, i, no);
    if (!strcmp(type, "function_call_output")) {
        const char *id = lq_json_str(item, "call_id");
        cJSON *m = lq_talk_message(list, "tool", cJSON_DetachItemFromObjectCaseSensitive(item, "output"));
        return (m && lq_json_move(m, "tool_call_id", cJSON_CreateString(id ? id : ""))) || no_memory(no);
    }
    return !strcmp(type, "reasoning") ||
           lq_refuse(no, 400, "input", NULL, "input[%d]: an item of type %.40s: this server reads messages and calls of "
                     "functions alone", i, type);
}

static bool items_read(lq_completion *c, lq_refusal *no) {
    cJSON *input = c->talk.messages, *list = NULL, *tools = NULL;
    int i = 0;
    bool done = (c->made = cJSON_CreateObject()) && (list = cJSON_AddArrayToObject(c->made, "messages")) &&
                (tools = cJSON_AddArrayToObject(c->made, "tools"));
    if (done && c->talk.first)
        done = lq_talk_message(list, "system", cJSON_Duplicate(c->talk.first, true)) != NULL;
    if (done && cJSON_IsString(input))
        done = lq_talk_message(list, "user", cJSON_CreateString(input->valuestring)) != NULL;
    for (cJSON *t = c->talk.tools ? c->talk.tools->child : NULL; t && done; t = t->next) {
        cJSON *own = cJSON_Duplicate(t, true); // the answer says them again
        done = lq_json_move(tools, NULL, lq_talk_tool(own, "parameters"));
        cJSON_Delete(own);
    }
    if (!done) return no_memory(no);
    for (cJSON *v = cJSON_IsArray(input) ? input->child : NULL; v; v = v->next)
        if (!item_add(list, v, i++, no)) return false;
    c->talk.before = c->talk.first != NULL;
    c->talk.messages = list;
    c->talk.tools = tools;
    return true;
}

// What the answer says again, and how where it was not asked. (What reads text alone needs not say so from the body.)
static const struct { const char *name, *value; } asked[] = {
    {"instructions", "null"}, {"max_output_tokens", "null"}, {"metadata", "{}"}, {"parallel_tool_calls", "true"},
    {"temperature", NULL}, {"tool_choice", "\"auto\""}, {"tools", "[]"}, {"top_logprobs", "0"}, {"top_p", NULL},
    {"user", "null"}, {"background", "false"}, {"max_tool_calls", "null"}, {"previous_response_id", "null"},
    {"reasoning", "{\"effort\":null,\"summary\":null}"}, {"service_tier", "\"default\""},
    {"text", "{\"format\":{\"type\":\"text\"}}"}, {"truncation", "\"disabled\""},
};
enum { ASKED = sizeof asked / sizeof *asked, KEPT = 10 }; // those from the body come first

static bool keep_asked(lq_completion *c) {
    c->kept = cJSON_CreateObject();
    for (size_t i = 0; i < KEPT && c->kept; i++) {
        cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(c->tree, asked[i].name);
        if (v && !lq_json_move(c->kept, asked[i].name, v)) return false;
    }
    return c->kept != NULL;
}

static bool read_response(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const lq_field *const tables[] = {rows, lq_sampling_fields, lq_idle_fields, lq_never_fields, NULL};
    c->special = false;
    if (!lq_fields_read(&(lq_place){api, c->tree, "", no}, tables, c)) return false;
    if (!c->talk.messages) return lq_refuse(no, 400, "input", NULL, "input: expected a text or an array of items");
    if (c->logprobs >= 0 && c->tops > 0) c->logprobs = c->tops;
    c->ask.max_tokens = c->most;
    if (!items_read(c, no) || !lq_talk_prompt(api, c, "input", no)) return false;
    return keep_asked(c) || no_memory(no);
}

// --- what is told ---

typedef enum state { BEGUN, ENDED, FAILED } state;

static void part_write(lq_answer *a, bool full) {
    const lq_choice *c = a->choices;
    lq_text_fmt(&a->out, "{\"type\":\"output_text\",\"text\":");
    lq_text_json(&a->out, full && c->text.n ? c->text.p : "", full ? c->text.n : 0);
    lq_text_fmt(&a->out, ",\"annotations\":[],\"logprobs\":[");
    if (full && c->tokens.n) lq_text_add(&a->out, c->tokens.p, c->tokens.n);
    lq_text_fmt(&a->out, "]}");
}

static const char *status_of(const lq_answer *a, state s) {
    return s == BEGUN ? "in_progress" : s == FAILED ? "failed" : a->choices->finish == LQ_LENGTH ? "incomplete"
                                                                                              : "completed";
}

// The rest of the id is the message's too.
static void item_id(lq_answer *a) { lq_text_fmt(&a->out, "\"msg_%s\"", a->id + strlen(a->dialect->id)); }

static void item_write(lq_answer *a, state s) {
    lq_text_fmt(&a->out, "{\"id\":");
    item_id(a);
    lq_text_fmt(&a->out, ",\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[",
                status_of(a, s));
    if (s == ENDED) part_write(a, true);
    lq_text_fmt(&a->out, "]}");
}

static void usage_write(lq_answer *a) {
    lq_text_fmt(&a->out,
                "{\"input_tokens\":%" PRId64 ",\"input_tokens_details\":{\"cached_tokens\":%" PRId64
                "},\"output_tokens\":%" PRId64 ",\"output_tokens_details\":{\"reasoning_tokens\":0}"
                ",\"total_tokens\":%" PRId64 "}",
                a->prompt_tokens, a->cached_tokens, a->sampled_tokens, a->prompt_tokens + a->sampled_tokens);
}

static void asked_write(lq_answer *a) {
    const lq_sampling *d = &a->api->defaults;
    for (size_t i = 0; i < ASKED; i++) {
        const cJSON *v = i < KEPT ? cJSON_GetObjectItemCaseSensitive(a->kept, asked[i].name) : NULL;
        lq_text_fmt(&a->out, ",\"%s\":", asked[i].name);
        if (v && !cJSON_IsNull(v)) lq_text_tree(&a->out, v);
        else if (asked[i].value) lq_text_fmt(&a->out, "%s", asked[i].value);
        else lq_text_fmt(&a->out, "%.6g", (double)(strcmp(asked[i].name, "top_p") ? d->temperature : d->top_p));
    }
}

static void response_write(lq_answer *a, state s) {
    lq_text_fmt(&a->out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64, a->id, a->created);
    lq_text_fmt(&a->out, ",\"status\":\"%s\",\"error\":", status_of(a, s));
    if (s == FAILED) {
        lq_text_fmt(&a->out, "{\"code\":\"server_error\",\"message\":");
        lq_json_write(&a->out, a->failure.text);
        lq_text_fmt(&a->out, "}");
    } else lq_text_fmt(&a->out, "null");
    const bool cut = s == ENDED && a->choices->finish == LQ_LENGTH;
    lq_text_fmt(&a->out, ",\"incomplete_details\":%s,\"model\":", cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    lq_json_write(&a->out, a->api->name);
    lq_text_fmt(&a->out, ",\"output\":[");
    if (s == ENDED) item_write(a, s);
    lq_text_fmt(&a->out, "],\"store\":false");
    asked_write(a);
    lq_text_fmt(&a->out, ",\"usage\":");
    if (s == ENDED) usage_write(a);
    else lq_text_fmt(&a->out, "null");
    lq_text_fmt(&a->out, "}");
}

static void body(lq_answer *a) { response_write(a, ENDED); }

// --- a stream ---

static void event(lq_answer *a, const char *type) {
    lq_text_fmt(&a->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%" PRId64, type, type, a->events++);
}

static void event_end(lq_answer *a) { lq_text_fmt(&a->out, "}\n\n"); }

static void event_response(lq_answer *a, const char *type, state s) {
    event(a, type);
    lq_text_fmt(&a->out, ",\"response\":");
    response_write(a, s);
    event_end(a);
}

static void event_item(lq_answer *a, const char *type, state s) {
    event(a, type);
    lq_text_fmt(&a->out, ",\"output_index\":0,\"item\":");
    item_write(a, s);
    event_end(a);
}

static void event_in_item(lq_answer *a, const char *type) {
    event(a, type);
    lq_text_fmt(&a->out, ",\"item_id\":");
    item_id(a);
    lq_text_fmt(&a->out, ",\"output_index\":0,\"content_index\":0");
}

static void event_part(lq_answer *a, const char *type, bool full) {
    event_in_item(a, type);
    lq_text_fmt(&a->out, ",\"part\":");
    part_write(a, full);
    event_end(a);
}

static void stream_begin(lq_answer *a) {
    event_response(a, "response.created", BEGUN);
    event_response(a, "response.in_progress", BEGUN);
    event_item(a, "response.output_item.added", BEGUN);
    event_part(a, "response.content_part.added", false);
    a->choices->begun = true;
}

static void logprobs_write(lq_answer *a, size_t from) {
    const lq_text *t = &a->choices->tokens;
    if (from < t->n && t->p[from] == ',') from++;
    lq_text_fmt(&a->out, ",\"logprobs\":[");
    if (from < t->n) lq_text_add(&a->out, t->p + from, t->n - from);
    lq_text_fmt(&a->out, "]");
}

static void chunk(lq_answer *a, int64_t index) {
    lq_choice *c = &a->choices[index];
    if (!c->begun) stream_begin(a);
    if (c->text.n == c->sent) return;
    event_in_item(a, "response.output_text.delta");
    lq_text_fmt(&a->out, ",\"delta\":");
    lq_text_json(&a->out, c->text.p + c->sent, c->text.n - c->sent);
    logprobs_write(a, c->told);
    event_end(a);
    c->told = c->tokens.n;
}

static void end(lq_answer *a) {
    const lq_choice *c = a->choices;
    event_in_item(a, "response.output_text.done");
    lq_text_fmt(&a->out, ",\"text\":");
    lq_text_json(&a->out, c->text.n ? c->text.p : "", c->text.n);
    logprobs_write(a, 0);
    event_end(a);
    event_part(a, "response.content_part.done", true);
    event_item(a, "response.output_item.done", ENDED);
    event_response(a, c->finish == LQ_LENGTH ? "response.incomplete" : "response.completed", ENDED);
}

static void fail(lq_answer *a) {
    if (!a->choices->begun) stream_begin(a);
    event_response(a, "response.failed", FAILED);
}

const lq_dialect lq_dialect_responses = {
    .path = "/v1/responses", .id = "resp_", .param = "input", .read = read_response, .tokens = lq_tokens_chat,
    .body = body, .chunk = chunk, .end = end, .fail = fail, .whole = true};
