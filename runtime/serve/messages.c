// messages.c: POST /v1/messages of Anthropic, of texts and of what tools gave; and how many tokens such a request has.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// --- fields ---

static bool read_messages(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array of messages");
    ((lq_completion *)base)->talk.messages = v;
    return true;
}

static bool read_system(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    if (!cJSON_IsString(v) && !cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected a text or an array of blocks");
    for (const cJSON *b = cJSON_IsArray(v) ? v->child : NULL; b; b = b->next)
        if (!lq_json_str(b, "text")) return lq_field_refuse(at, f, "expected blocks of type text");
    c->talk.first = v;
    return true;
}

static bool read_stops(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    return cJSON_IsArray(v) ? lq_read_stop(at, f, v, base) : lq_field_refuse(at, f, "expected an array of texts");
}

static bool read_tools(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array");
    for (const cJSON *t = v->child; t; t = t->next)
        if (!lq_json_str(t, "name") || !cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(t, "input_schema")))
            return lq_field_refuse(at, f, "expected {\"name\":...,\"input_schema\":{...}} each");
    ((lq_completion *)base)->talk.tools = v;
    return true;
}

static bool read_choice(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    const char *type = lq_json_str(v, "type");
    if (type && !strcmp(type, "none")) ((lq_completion *)base)->talk.no_tools = true;
    return (type && (!strcmp(type, "auto") || !strcmp(type, "none"))) ||
           lq_field_refuse(at, f, "this server cannot make a model call a tool: expected type auto or none");
}

static bool read_thinking(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    const char *type = lq_json_str(v, "type");
    (void)base;
    return (type && !strcmp(type, "disabled")) ||
           lq_field_refuse(at, f, "this server tells thoughts with the text: expected type disabled");
}

static bool read_output(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    static const lq_field inside[] = {{"format", LQ_F_OFF, 0, 0, 0, NULL}, {NULL, LQ_F_OFF, 0, 0, 0, NULL}};
    static const lq_field *const tables[] = {inside, NULL};
    if (!cJSON_IsObject(v)) return lq_field_refuse(at, f, "expected an object");
    return lq_fields_read(&(lq_place){at->api, v, "output_config.", at->no}, tables, base);
}

static const lq_field rows[] = {
    {"model", LQ_F_READ, 0, 0, 0, lq_read_model},
    {"messages", LQ_F_READ, 0, 0, 0, read_messages},
    {"system", LQ_F_READ, 0, 0, 0, read_system},
    {"max_tokens", LQ_F_INT, LQ_AT(ask.max_tokens), 1, INT_MAX, NULL},
    {"stop_sequences", LQ_F_READ, 0, 0, 0, read_stops},
    {"stream", LQ_F_BOOL, LQ_AT(stream), 0, 0, NULL},
    {"temperature", LQ_F_NUM, LQ_AT(ask.sampling.temperature), 0, 1, NULL},
    {"top_p", LQ_F_NUM, LQ_AT(ask.sampling.top_p), 0, 1, NULL},
    {"top_k", LQ_F_INT, LQ_AT(ask.sampling.top_k), 0, INT_MAX, NULL},
    {"tools", LQ_F_READ, 0, 0, 0, read_tools},
    {"tool_choice", LQ_F_READ, 0, 0, 0, read_choice},
    {"thinking", LQ_F_READ, 0, 0, 0, read_thinking},
    {"metadata", LQ_F_READ, 0, 0, 0, lq_is_object},
    {"service_tier", LQ_F_READ, 0, 0, 0, lq_is_text},
    {"output_config", LQ_F_READ, 0, 0, 0, read_output},
    {"output_format", LQ_F_OFF, 0, 0, 0, NULL},
    {"mcp_servers", LQ_F_OFF, 0, 0, 0, NULL},
    {"container", LQ_F_OFF, 0, 0, 0, NULL},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

// --- messages ---

typedef struct making {
    cJSON *list;
    int at;
    lq_refusal *no;
} making;

static bool no_memory(lq_refusal *no) { return lq_refuse(no, 500, NULL, NULL, "no memory for the conversation"); }

static bool refuse_block(const making *m, int block, const char *why) {
    return lq_refuse(m->no, 400, "messages", NULL, "messages[%d]: content[%d]: %s", m->at, block, why);
}

// What a tool gave is a message of its own in a chat template.
static bool result_add(const making *m, cJSON *block) {
    const char *id = lq_json_str(block, "tool_use_id");
    cJSON *content = cJSON_DetachItemFromObjectCaseSensitive(block, "content");
    cJSON *to = lq_talk_message(m->list, "tool", content ? content : cJSON_CreateString(""));
    return (to && lq_json_move(to, "tool_call_id", cJSON_CreateString(id ? id : ""))) || no_memory(m->no);
}

static bool block_read(const making *m, cJSON *block, int i, cJSON *parts, cJSON *calls) {
    const char *type = lq_json_str(block, "type");
    if (!type) return refuse_block(m, i, "it has no type");
    if (!strcmp(type, "text"))
        return lq_json_str(block, "text") ? lq_json_move(parts, NULL, cJSON_Duplicate(block, true)) || no_memory(m->no)
                                          : refuse_block(m, i, "its text is none");
    if (!strcmp(type, "tool_result")) return result_add(m, block);
    if (!strcmp(type, "tool_use")) {
        const char *name = lq_json_str(block, "name");
        if (!name) return refuse_block(m, i, "the tool has no name");
        return lq_json_move(calls, NULL, lq_talk_call(lq_json_str(block, "id"), name,
                                                      cJSON_DetachItemFromObjectCaseSensitive(block, "input"))) ||
               no_memory(m->no);
    }
    return !strcmp(type, "thinking") || !strcmp(type, "redacted_thinking") ||
           refuse_block(m, i, "this server reads blocks of type text, tool_use and tool_result alone");
}

static bool blocks_read(const making *m, const char *role, const cJSON *content) {
    cJSON *parts = cJSON_CreateArray(), *calls = cJSON_CreateArray();
    bool done = (parts && calls) || no_memory(m->no);
    int i = 0;
    for (cJSON *b = content->child; b && done; b = b->next) done = block_read(m, b, i++, parts, calls);
    if (done && (parts->child || calls->child)) {
        cJSON *text = parts->child ? parts : NULL;
        if (text) parts = NULL;
        cJSON *to = lq_talk_message(m->list, role, text);
        done = to != NULL || no_memory(m->no);
        if (done && calls->child) {
            done = lq_json_move(to, "tool_calls", calls) || no_memory(m->no);
            calls = NULL;
        }
    }
    cJSON_Delete(parts);
    cJSON_Delete(calls);
    return done;
}

static bool message_read(const making *m, cJSON *v) {
    const char *role = lq_json_str(v, "role");
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(v, "content");
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        return lq_refuse(m->no, 400, "messages", NULL, "messages[%d]: its role must be user or assistant", m->at);
    if (cJSON_IsArray(content)) return blocks_read(m, role, content);
    if (!cJSON_IsString(content))
        return lq_refuse(m->no, 400, "messages", NULL, "messages[%d]: content: expected a text or an array of blocks",
                         m->at);
    return lq_talk_message(m->list, role, cJSON_DetachItemFromObjectCaseSensitive(v, "content")) || no_memory(m->no);
}

// Nothing but blanks, and no call of a tool.
static bool is_empty(const cJSON *m) {
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(m, "content");
    if (cJSON_GetObjectItemCaseSensitive(m, "tool_calls")) return false;
    for (const cJSON *p = cJSON_IsArray(content) ? content->child : content; p; p = p == content ? NULL : p->next) {
        const char *text = p == content ? cJSON_GetStringValue(p) : lq_json_str(p, "text");
        while (text && lq_is_blank(*text)) text++;
        if (!text || *text) return false;
    }
    return true;
}

// Whether the last message is the assistant's, which the answer goes on with. One that says nothing goes.
static bool goes_on(cJSON *list) {
    for (cJSON *last; (last = list->child ? list->child->prev : NULL); // the first knows the last
         cJSON_Delete(cJSON_DetachItemViaPointer(list, last))) {
        const char *role = lq_json_str(last, "role");
        if (!role || strcmp(role, "assistant")) return false;
        if (!is_empty(last)) return true;
    }
    return false;
}

static bool messages_make(lq_completion *c, lq_refusal *no) {
    cJSON *system = c->talk.first, *tools = NULL, *list = NULL;
    bool done = (c->made = cJSON_CreateObject()) && (list = cJSON_AddArrayToObject(c->made, "messages")) &&
                (tools = cJSON_AddArrayToObject(c->made, "tools"));
    if (done && system) done = lq_talk_message(list, "system", cJSON_Duplicate(system, true)) != NULL;
    for (cJSON *t = c->talk.tools ? c->talk.tools->child : NULL; t && done; t = t->next)
        done = lq_json_move(tools, NULL, lq_talk_tool(t, "input_schema"));
    if (!done) return no_memory(no);
    making m = {list, 0, no};
    for (cJSON *v = c->talk.messages->child; v; v = v->next, m.at++)
        if (!message_read(&m, v)) return false;
    c->talk.go_on = c->talk.begun = goes_on(list);
    c->talk.before = system != NULL;
    c->talk.messages = list;
    c->talk.tools = tools;
    return true;
}

static bool fields_read(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const lq_field *const tables[] = {rows, NULL};
    c->special = false;
    if (!lq_fields_read(&(lq_place){api, c->tree, "", no}, tables, c)) return false;
    if (!c->talk.messages) return lq_refuse(no, 400, "messages", NULL, "messages: expected an array of messages");
    return messages_make(c, no) && lq_talk_prompt(api, c, "messages", no);
}

static bool read_message(const lq_api *api, lq_completion *c, lq_refusal *no) {
    if (!fields_read(api, c, no)) return false;
    if (!c->ask.max_tokens) return lq_refuse(no, 400, "max_tokens", NULL, "max_tokens: expected a number of tokens");
    cJSON *stops = cJSON_DetachItemFromObjectCaseSensitive(c->tree, "stop_sequences");
    c->kept = stops; // which of them it was is told
    return true;
}

bool lq_count_reply(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no) {
    lq_completion c;
    int32_t *ids = NULL;
    size_t count = 0;
    lq_err err;
    lq_completion_begin(api, &c);
    c.dialect = &lq_dialect_messages;
    if (!lq_body_parse(api, body, n, &c.tree, no)) return false;
    bool done = fields_read(api, &c, no);
    if (done && !lq_tokenize(api->model, c.prompts[0].text, c.prompts[0].len, LQ_TOK_PARSE, &ids, &count, &err))
        done = lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, "messages", NULL, "messages: %s", err.text);
    if (done) lq_text_fmt(out, "{\"input_tokens\":%zu}", count);
    lq_free(ids);
    lq_completion_free(&c);
    return done;
}

// --- what is told ---

static void stop_write(lq_answer *a) {
    const lq_choice *c = a->choices;
    const cJSON *said = c->stop_index >= 0 ? cJSON_GetArrayItem(a->kept, c->stop_index) : NULL;
    lq_text_fmt(&a->out, "\"stop_reason\":%s,\"stop_sequence\":", c->finish == LQ_LENGTH ? "\"max_tokens\"" : said
                ? "\"stop_sequence\"" : c->finish == LQ_STOP ? "\"end_turn\"" : "null");
    lq_json_write(&a->out, cJSON_GetStringValue(said));
}

// What the cache had is not counted among what was read.
static void usage_write(lq_answer *a) {
    lq_text_fmt(&a->out, "\"usage\":{\"input_tokens\":%" PRId64 ",\"cache_creation_input_tokens\":0,"
                "\"cache_read_input_tokens\":%" PRId64 ",\"output_tokens\":%" PRId64 "}",
                a->prompt_tokens - a->cached_tokens, a->cached_tokens, a->sampled_tokens);
}

static void message_write(lq_answer *a, bool full) {
    const lq_choice *c = a->choices;
    lq_text_fmt(&a->out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
    lq_json_write(&a->out, a->api->name);
    lq_text_fmt(&a->out, ",\"content\":[");
    if (full) {
        lq_text_fmt(&a->out, "{\"type\":\"text\",\"text\":");
        lq_text_json(&a->out, c->text.n ? c->text.p : "", c->text.n);
        lq_text_fmt(&a->out, "}");
    }
    lq_text_fmt(&a->out, "],");
    if (full) stop_write(a);
    else lq_text_fmt(&a->out, "\"stop_reason\":null,\"stop_sequence\":null");
    lq_text_fmt(&a->out, ",");
    usage_write(a);
    lq_text_fmt(&a->out, "}");
}

static void body(lq_answer *a) { message_write(a, true); }

static void event(lq_answer *a, const char *type) {
    lq_text_fmt(&a->out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void event_end(lq_answer *a) { lq_text_fmt(&a->out, "}\n\n"); }

static void stream_begin(lq_answer *a) {
    event(a, "message_start");
    lq_text_fmt(&a->out, ",\"message\":");
    message_write(a, false);
    event_end(a);
    event(a, "content_block_start");
    lq_text_fmt(&a->out, ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
    event_end(a);
    event(a, "ping");
    event_end(a);
}

static void chunk(lq_answer *a, int64_t index) {
    const lq_choice *c = &a->choices[index];
    if (!c->begun) stream_begin(a);
    if (!c->text.n) return;
    event(a, "content_block_delta");
    lq_text_fmt(&a->out, ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":");
    lq_text_json(&a->out, c->text.p, c->text.n);
    lq_text_fmt(&a->out, "}");
    event_end(a);
}

static void end(lq_answer *a) {
    event(a, "content_block_stop");
    lq_text_fmt(&a->out, ",\"index\":0");
    event_end(a);
    event(a, "message_delta");
    lq_text_fmt(&a->out, ",\"delta\":{");
    stop_write(a);
    lq_text_fmt(&a->out, "},");
    usage_write(a);
    event_end(a);
    event(a, "message_stop");
    event_end(a);
}

static void fail(lq_answer *a) {
    lq_text_fmt(&a->out, "event: error\ndata: ");
    lq_refusal_write(&a->failure, a->dialect->path, NULL, &a->out);
    lq_text_fmt(&a->out, "\n\n");
}

const lq_dialect lq_dialect_messages = {
    .path = "/v1/messages", .id = "msg_", .param = "messages", .read = read_message, .tokens = lq_tokens_chat,
    .body = body, .chunk = chunk, .end = end, .fail = fail};
