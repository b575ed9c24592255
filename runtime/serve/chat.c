// chat.c: POST /v1/chat/completions of OpenAI, with what vLLM adds to it: a conversation in, what is said next out.
// Tools are told to the template; whether the answer calls one is for its reader to see.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <string.h>

// --- fields ---

static bool read_logprobs(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsBool(v)) return lq_field_refuse(at, f, "expected true or false");
    if (cJSON_IsTrue(v) && ((lq_completion *)base)->logprobs < 0) ((lq_completion *)base)->logprobs = 0;
    return true;
}

static bool read_modalities(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    (void)base;
    for (const cJSON *m = cJSON_IsArray(v) ? v->child : v; m; m = m->next)
        if (!cJSON_IsString(m) || strcmp(m->valuestring, "text"))
            return lq_field_refuse(at, f, "only text is made here");
    return true;
}

static const lq_field rows[] = {
    {"max_tokens", LQ_F_INT, LQ_AT(ask.max_tokens), 1, INT_MAX, NULL},
    {"max_completion_tokens", LQ_F_INT, LQ_AT(most), 1, INT_MAX, NULL},
    {"logprobs", LQ_F_READ, 0, 0, 0, read_logprobs},
    {"top_logprobs", LQ_F_LONG, LQ_AT(tops), 0, LQ_MAX_TOP, NULL},
    {"tool_choice", LQ_F_READ, 0, 0, 0, lq_read_tool_choice},
    {"function_call", LQ_F_READ, 0, 0, 0, lq_read_tool_choice},
    {"functions", LQ_F_OFF, 0, 0, 0, NULL},
    {"modalities", LQ_F_READ, 0, 0, 0, read_modalities},
    {"audio", LQ_F_OFF, 0, 0, 0, NULL},
    {"web_search_options", LQ_F_OFF, 0, 0, 0, NULL},
    {"echo", LQ_F_BOOL, LQ_AT(echo), 0, 0, NULL},
    {"user", LQ_F_READ, 0, 0, 0, lq_is_text},
    {"metadata", LQ_F_READ, 0, 0, 0, lq_read_metadata},
    {"parallel_tool_calls", LQ_F_READ, 0, 0, 0, lq_is_bool},
    {"prediction", LQ_F_READ, 0, 0, 0, lq_is_object},
    {"verbosity", LQ_F_READ, 0, 0, 0, lq_is_text},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

// vLLM's echo: the message that the answer goes on with, or that the same speaker said before, stands before it.
static void echo_find(lq_completion *c) {
    const cJSON *list = c->talk.messages, *last = cJSON_GetArrayItem(list, cJSON_GetArraySize(list) - 1);
    const char *role = lq_json_str(last, "role"), *text = lq_json_str(last, "content");
    const bool answers = c->talk.add_prompt && !c->talk.go_on;
    c->echo = c->echo && text && (!answers || !strcmp(role, "assistant"));
    if (!c->echo) return;
    c->prompts[0].echo = text;
    c->prompts[0].echo_len = strlen(text);
}

static bool read_chat(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const lq_field *const tables[] = {rows, lq_talk_fields, lq_sampling_fields, lq_idle_fields, lq_never_fields,
                                            NULL};
    c->special = false; // a template writes its own
    if (!lq_fields_read(&(lq_place){api, c->tree, "", no}, tables, c)) return false;
    if (!c->talk.messages) return lq_refuse(no, 400, "messages", NULL, "messages: expected an array of messages");
    if (c->tops > 0 && c->logprobs < 0)
        return lq_refuse(no, 400, "top_logprobs", NULL, "top_logprobs: only with \"logprobs\": true");
    if (c->tops > 0) c->logprobs = c->tops;
    if (c->most) c->ask.max_tokens = c->most;
    if (!lq_talk_prompt(api, c, "messages", no)) return false;
    echo_find(c);
    return true;
}

// --- bodies and chunks ---

static void head_write(lq_answer *a, const char *object) {
    lq_text_fmt(&a->out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", a->id, object,
                a->created);
    lq_json_write(&a->out, a->api->name);
    lq_text_fmt(&a->out, ",\"system_fingerprint\":\"lq-%s\",\"choices\":[", LQ_VERSION);
}

static void logprobs_write(lq_answer *a, const lq_choice *c) {
    if (!a->logprobs) {
        lq_text_fmt(&a->out, ",\"logprobs\":null");
        return;
    }
    lq_text_fmt(&a->out, ",\"logprobs\":{\"content\":[");
    if (c->tokens.n) lq_text_add(&a->out, c->tokens.p, c->tokens.n);
    lq_text_fmt(&a->out, "],\"refusal\":null}");
}

static void content_write(lq_answer *a, int64_t at) {
    const lq_choice *c = &a->choices[at];
    const lq_echo *echo = a->echoes && !c->begun ? &a->echoes[at / a->n] : NULL;
    lq_json_pair(&a->out, echo ? echo->text : "", echo ? echo->n : 0, c->text.n ? c->text.p : "", c->text.n);
}

static void usage_add(lq_answer *a) {
    lq_text_fmt(&a->out, ",\"usage\":");
    lq_usage_write(a);
}

static void body(lq_answer *a) {
    head_write(a, "chat.completion");
    for (int64_t i = 0; i < a->n; i++) {
        const lq_choice *c = &a->choices[i];
        lq_text_fmt(&a->out, "%s{\"index\":%" PRId64 ",\"message\":{\"role\":\"assistant\",\"content\":",
                    LQ_LIST_COMMA(i), i);
        content_write(a, i);
        lq_text_fmt(&a->out, ",\"refusal\":null}");
        logprobs_write(a, c);
        lq_text_fmt(&a->out, ",\"finish_reason\":%s}", lq_finish_name(c->finish));
    }
    lq_text_fmt(&a->out, "]");
    usage_add(a);
    lq_text_fmt(&a->out, "}");
}

static void chunk_begin(lq_answer *a) {
    lq_text_fmt(&a->out, "data: ");
    head_write(a, "chat.completion.chunk");
}

static void chunk_end(lq_answer *a) {
    lq_text_fmt(&a->out, "]");
    if (a->usage && a->usage_each) usage_add(a);
    else if (a->usage) lq_text_fmt(&a->out, ",\"usage\":null");
    lq_text_fmt(&a->out, "}\n\n");
}

static void chunk(lq_answer *a, int64_t index) {
    const lq_choice *c = &a->choices[index];
    if (!c->begun) { // who speaks
        chunk_begin(a);
        lq_text_fmt(&a->out, "{\"index\":%" PRId64 ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"
                    ",\"logprobs\":null,\"finish_reason\":null}", index);
        chunk_end(a);
    }
    chunk_begin(a);
    lq_text_fmt(&a->out, "{\"index\":%" PRId64 ",\"delta\":{", index);
    if (c->text.n || (a->echoes && !c->begun)) {
        lq_text_fmt(&a->out, "\"content\":");
        content_write(a, index);
    }
    lq_text_fmt(&a->out, "}");
    if (c->tokens.n) logprobs_write(a, c);
    else lq_text_fmt(&a->out, ",\"logprobs\":null");
    lq_text_fmt(&a->out, ",\"finish_reason\":%s}", lq_finish_name(c->finish));
    chunk_end(a);
}

static void end(lq_answer *a) {
    if (a->usage) {
        chunk_begin(a);
        lq_text_fmt(&a->out, "]");
        usage_add(a);
        lq_text_fmt(&a->out, "}\n\n");
    }
    lq_text_fmt(&a->out, "data: [DONE]\n\n");
}

const lq_dialect lq_dialect_chat = {
    .path = "/v1/chat/completions", .id = "chatcmpl-", .param = "messages", .read = read_chat, .tokens = lq_tokens_chat,
    .body = body, .chunk = chunk, .end = end, .fail = lq_fail_openai};
