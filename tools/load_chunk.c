// load_chunk.c: what one event of a stream, or a whole answer, says in JSON: text, usage, an error. Completions and
// chat alike. Refuses what is no JSON.
#include "tools/load.h"
#include <string.h>

static const cJSON *member(const cJSON *of, const char *key) {
    return cJSON_IsObject(of) ? cJSON_GetObjectItemCaseSensitive(of, key) : NULL;
}

// Servers say it as error.message (OpenAI), message (vLLM), detail or error.
static const char *message_of(const cJSON *root) {
    const cJSON *error = member(root, "error");
    const cJSON *const places[] = {member(error, "message"), error, member(root, "message"), member(root, "detail")};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (cJSON_IsString(places[i])) return places[i]->valuestring;
    return NULL;
}

static bool is_error(const cJSON *root) {
    const cJSON *error = member(root, "error"), *object = member(root, "object");
    return (error && !cJSON_IsNull(error)) || (cJSON_IsString(object) && !strcmp(object->valuestring, "error"));
}

static bool parse(const char *text, size_t n, cJSON **out, lq_err *err) {
    return lq_json_parse(text, n, (lq_json_limits){1 << 26, 64}, "an event of the answer", out, err);
}

// Text that a choice adds: "" where a token came whose text is held back, NULL where none came.
static const char *text_of(const cJSON *choice) {
    const cJSON *text = member(choice, "text"), *finish = member(choice, "finish_reason");
    const cJSON *delta = member(choice, "delta") ? member(choice, "delta") : member(choice, "message");
    static const char *const places[] = {"content", "reasoning_content", "reasoning"};
    const bool may_be_empty = !cJSON_IsString(finish) && !member(delta, "role");
    for (size_t i = 0; !text && i < 3; i++)
        if (cJSON_IsString(member(delta, places[i])) && (may_be_empty || *member(delta, places[i])->valuestring))
            text = member(delta, places[i]);
    if (!text && cJSON_IsArray(member(delta, "tool_calls"))) return "call";
    if (!cJSON_IsString(text)) return NULL;
    return *text->valuestring || may_be_empty ? text->valuestring : NULL;
}

static int64_t count_of(const cJSON *usage, const char *key) {
    const cJSON *n = member(usage, key);
    return cJSON_IsNumber(n) && n->valuedouble >= 0 && n->valuedouble < 1e15 ? (int64_t)n->valuedouble : -1;
}

bool lq_load_chunk_read(const char *text, size_t n, lq_load_chunk *c, lq_err *err) {
    cJSON *root;
    *c = (lq_load_chunk){.input = -1, .output = -1};
    if (!parse(text, n, &root, err)) return false;
    if (is_error(root)) {
        const char *message = message_of(root);
        c->failed = true;
        snprintf(c->error, sizeof c->error, "%s", message ? message : "an error that says nothing");
    }
    const cJSON *choices = member(root, "choices"), *choice;
    cJSON_ArrayForEach(choice, choices) {
        c->choice = true;
        c->content |= text_of(choice) != NULL;
    }
    const cJSON *usage = member(root, "usage");
    c->input = count_of(usage, "prompt_tokens");
    c->output = count_of(usage, "completion_tokens");
    cJSON_Delete(root);
    return true;
}

void lq_load_message(const char *body, size_t n, char *out, size_t size) {
    cJSON *root = NULL;
    const char *message = n && parse(body, n, &root, NULL) ? message_of(root) : NULL;
    if (message) snprintf(out, size, "%s", message);
    else snprintf(out, size, "%.*s", (int)(n < 160 ? n : 160), n ? body : "");
    cJSON_Delete(root);
}
