// talk.c: conversations: the messages of a body are checked, brought into the one form that chat templates know, and
// rendered. What is in them but text, calls of tools and what templates read by themselves, is refused by its place.
#include "runtime/serve/protocol.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- messages ---

typedef struct message {
    cJSON *v;
    const char *param;
    int at;
    lq_refusal *no;
} message;

LQ_PRINTF(2, 3) static bool refuse(const message *m, const char *fmt, ...) {
    char text[260];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return lq_refuse(m->no, 400, m->param, NULL, "%s[%d]: %s", m->param, m->at, text);
}

static bool no_memory(lq_refusal *no) { return lq_refuse(no, 500, NULL, NULL, "no memory for the conversation"); }

// Where parts of a type have their text; NULL: they have none.
static const char *part_field(const char *type) {
    static const char *const kinds[] = {"text", "input_text", "output_text", "refusal"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i])) return i == 3 ? "refusal" : "text";
    return NULL;
}

// Parts become one text, a line for each.
static bool parts_join(const message *m, const cJSON *parts, lq_text *out) {
    int i = 0;
    for (const cJSON *p = parts->child; p; p = p->next, i++) {
        const char *type = lq_json_str(p, "type"), *field = type ? part_field(type) : NULL;
        const char *text = cJSON_IsString(p) ? p->valuestring : field ? lq_json_str(p, field) : NULL;
        if (!text && !type) return refuse(m, "content[%d]: expected {\"type\":\"text\",\"text\":...}", i);
        if (!text && field) return refuse(m, "content[%d].%s: expected a text", i, field);
        if (!text)
            return refuse(m, "content[%d] is of type %.40s: this server reads parts of type text alone", i, type);
        if (i) lq_text_add(out, "\n", 1);
        lq_text_add(out, text, strlen(text));
    }
    return true;
}

static bool set_text(const message *m, cJSON *obj, const char *key, const char *text) {
    cJSON *v = cJSON_CreateString(text);
    cJSON_DeleteItemFromObjectCaseSensitive(obj, key);
    if (v && cJSON_AddItemToObject(obj, key, v)) return true;
    cJSON_Delete(v);
    return no_memory(m->no);
}

static bool content_read(const message *m) {
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(m->v, "content");
    const char *role = lq_json_str(m->v, "role"), *refusal = lq_json_str(m->v, "refusal");
    lq_text text = {0};
    if (cJSON_IsString(content)) return true;
    if (cJSON_IsArray(content)) {
        bool done = parts_join(m, content, &text);
        lq_text_add(&text, "", 1);
        done = done && (text.failed ? no_memory(m->no) : set_text(m, m->v, "content", text.p));
        lq_text_free(&text);
        return done;
    }
    if (content && !cJSON_IsNull(content)) return refuse(m, "content: expected a text or an array of parts");
    if (!strcmp(role, "assistant")) return !refusal || set_text(m, m->v, "content", refusal);
    return refuse(m, "it has no content");
}

// Templates want what a function was called with as an object; clients send it as the text of one.
static bool calls_read(const message *m) {
    static const lq_json_limits limits = {.bytes = 4 << 20, .depth = 32};
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(m->v, "tool_calls");
    if (!calls || cJSON_IsNull(calls)) return true;
    if (!cJSON_IsArray(calls)) return refuse(m, "tool_calls: expected an array");
    for (const cJSON *call = calls->child; call; call = call->next) {
        cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function"), *args = NULL;
        const char *text = lq_json_str(function, "arguments");
        lq_err err;
        if (!lq_json_str(function, "name")) return refuse(m, "tool_calls: a function has no name");
        if (!text) continue;
        if (!*text) text = "{}";
        if (!lq_json_parse_exact(text, strlen(text), limits, "arguments", &args, NULL, &err))
            return refuse(m, "tool_calls: %.150s", err.text);
        cJSON_DeleteItemFromObjectCaseSensitive(function, "arguments");
        if (!cJSON_AddItemToObject(function, "arguments", args)) {
            cJSON_Delete(args);
            return no_memory(m->no);
        }
    }
    if (!calls->child) cJSON_DeleteItemFromObjectCaseSensitive(m->v, "tool_calls");
    return true;
}

static bool message_read(const message *m) {
    const char *role = lq_json_str(m->v, "role");
    if (!cJSON_IsObject(m->v)) return refuse(m, "expected an object of role and content");
    if (!role || !*role) return refuse(m, "its role is no text");
    // What OpenAI's newer models call the system's.
    if (!strcmp(role, "developer") && !set_text(m, m->v, "role", "system")) return false;
    return content_read(m) && calls_read(m);
}

static bool messages_read(const lq_talk *talk, const char *param, lq_refusal *no) {
    int at = -talk->before;
    for (cJSON *v = talk->messages->child; v; v = v->next) {
        const message m = {v, param, at++, no};
        if (!message_read(&m)) return false;
    }
    return at > -talk->before || lq_refuse(no, 400, param, NULL, "%s: expected one message or more", param);
}

// --- what the template makes of it ---

enum { FIXED = 5, MAX_VARS = 64 };

typedef struct vars {
    lq_template_var v[FIXED + MAX_VARS];
    char *own[FIXED + MAX_VARS]; // what they point to
    size_t n;
    bool failed;
} vars;

static void var_add(vars *t, const char *name, const cJSON *v) {
    lq_text text = {0};
    lq_text_tree(&text, v);
    t->failed = t->failed || text.failed;
    t->own[t->n] = text.p;
    t->v[t->n++] = (lq_template_var){name, text.p, text.n};
}

static void vars_make(const lq_talk *talk, bool add, vars *t) {
    const cJSON yes = {.type = add ? cJSON_True : cJSON_False};
    const cJSON effort = {.type = cJSON_String, .valuestring = (char *)(uintptr_t)talk->effort};
    var_add(t, "messages", talk->messages);
    var_add(t, "add_generation_prompt", &yes);
    if (talk->tools && talk->tools->child && !talk->no_tools) var_add(t, "tools", talk->tools);
    if (talk->documents) var_add(t, "documents", talk->documents);
    if (talk->effort) var_add(t, "reasoning_effort", &effort);
    for (const cJSON *v = talk->vars ? talk->vars->child : NULL; v; v = v->next) var_add(t, v->string, v);
}

static void turn(const char *from, size_t n, char *to) {
    for (size_t i = 0; i < n; i++) to[i] = from[n - 1 - i];
}

// Where the last `said` of a text is; NULL: nowhere, or no memory. Turned around it is the first, which takes one walk.
static const char *last_of(const char *text, size_t n, const char *said, size_t len) {
    char *back = len && len <= n ? malloc(n + len) : NULL;
    if (!back) return NULL;
    turn(text, n, back);
    turn(said, len, back + n);
    const char *found = memmem(back, n, back + n, len);
    const size_t at = found ? n - len - (size_t)(found - back) : 0;
    free(back);
    return found ? text + at : NULL;
}

// What the template says behind the last message goes, as transformers cuts it: the answer goes on with that message.
static bool cut_behind(const lq_talk *talk, const char *param, char *text, size_t *n, lq_refusal *no) {
    const cJSON *last = cJSON_GetArrayItem(talk->messages, cJSON_GetArraySize(talk->messages) - 1);
    const char *said = lq_json_str(last, "content");
    const char *field = talk->begun ? param : "continue_final_message";
    while (said && lq_is_blank(*said)) said++;
    size_t whole = said ? strlen(said) : 0, len = whole;
    while (len && lq_is_blank(said[len - 1])) len--;
    const char *found = last_of(text, *n, said, len);
    if (!found)
        return lq_refuse(no, 400, field, NULL, "%s: the last message has no text, or the chat template leaves it out",
                         field);
    if (!strncmp(found, said, whole)) len = whole; // the template keeps the blanks at its end
    *n = (size_t)(found - text) + len;
    text[*n] = '\0';
    return true;
}

static bool asked_well(const lq_api *api, const lq_talk *talk, const char *param, lq_refusal *no) {
    if (!api->tmpl)
        return lq_refuse(no, 400, param, "no_chat_template",
                         "%s: this model has no chat template: use /v1/completions, or start the server with one "
                         "(--chat-template)", param);
    if (!cJSON_IsArray(talk->messages))
        return lq_refuse(no, 400, param, NULL, "%s: expected an array of messages", param);
    if (talk->go_on && talk->opened && talk->add_prompt)
        return lq_refuse(no, 400, "continue_final_message", NULL,
                         "continue_final_message: not together with add_generation_prompt");
    if (talk->vars && cJSON_GetArraySize(talk->vars) > MAX_VARS - (int)api->special_count)
        return lq_refuse(no, 400, "chat_template_kwargs", NULL, "chat_template_kwargs: expected at most %d of them",
                         MAX_VARS - (int)api->special_count);
    return true;
}

bool lq_talk_render(const lq_api *api, lq_talk *talk, const char *param, char **text, size_t *n, lq_refusal *no) {
    lq_err err = {0};
    vars *t;
    *text = NULL;
    if (!asked_well(api, talk, param, no) || !messages_read(talk, param, no)) return false;
    if (!(t = calloc(1, sizeof *t))) return no_memory(no);
    for (size_t i = 0; i < api->special_count; i++) t->v[t->n++] = api->special[i];
    vars_make(talk, talk->add_prompt && !talk->go_on, t);
    bool done = !t->failed || no_memory(no);
    if (done && !lq_template_render(api->tmpl, t->v, t->n, text, n, &err))
        done = lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, param, NULL, "%s: %s", param, err.text);
    for (size_t i = 0; i < t->n; i++) free(t->own[i]);
    free(t);
    return done && (!talk->go_on || cut_behind(talk, param, *text, n, no));
}

bool lq_talk_prompt(const lq_api *api, lq_completion *c, const char *param, lq_refusal *no) {
    size_t n = 0;
    if (!lq_talk_render(api, &c->talk, param, &c->rendered, &n, no)) return false;
    if (!(c->prompts = calloc(1, sizeof *c->prompts))) return no_memory(no);
    c->prompt_count = 1;
    c->prompts[0] = (lq_prompt){.text = c->rendered, .len = n};
    return true;
}

// --- fields ---

static bool read_list(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array");
    *(cJSON **)(void *)((char *)base + f->offset) = v;
    return true;
}

static bool are_objects(const cJSON *list) {
    const cJSON *v = list->child;
    while (v && cJSON_IsObject(v)) v = v->next;
    return cJSON_IsArray(list) && !v;
}

static bool read_documents(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    return are_objects(v) ? read_list(at, f, v, base) : lq_field_refuse(at, f, "expected an array of objects");
}

static bool read_tools(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!read_list(at, f, v, base)) return false;
    for (const cJSON *t = v->child; t; t = t->next)
        if (!lq_json_str(cJSON_GetObjectItemCaseSensitive(t, "function"), "name"))
            return lq_field_refuse(at, f, "expected {\"type\":\"function\",\"function\":{\"name\":...}} each");
    return true;
}

static bool read_vars(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsObject(v)) return lq_field_refuse(at, f, "expected an object");
    for (const cJSON *x = v->child; x; x = x->next) {
        if (!strcmp(x->string, "messages") || !strcmp(x->string, "chat_template"))
            return lq_field_refuse(at, f, "%s is none of them", x->string);
        const bool objects = !strcmp(x->string, "tools") || !strcmp(x->string, "documents");
        if (objects && !are_objects(x) && !cJSON_IsNull(x))
            return lq_field_refuse(at, f, "%s: expected an array of objects", x->string);
    }
    ((lq_completion *)base)->talk.vars = v;
    return true;
}

static bool read_add(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsBool(v)) return lq_field_refuse(at, f, "expected true or false");
    lq_talk *talk = &((lq_completion *)base)->talk;
    talk->opened = true;
    talk->add_prompt = cJSON_IsTrue(v);
    return true;
}

const lq_field lq_talk_fields[] = {
    {"messages", LQ_F_READ, LQ_AT(talk.messages), 0, 0, read_list},
    {"tools", LQ_F_READ, LQ_AT(talk.tools), 0, 0, read_tools},
    {"documents", LQ_F_READ, LQ_AT(talk.documents), 0, 0, read_documents},
    {"chat_template_kwargs", LQ_F_READ, 0, 0, 0, read_vars},
    {"reasoning_effort", LQ_F_TEXT, LQ_AT(talk.effort), 0, 0, NULL},
    {"add_generation_prompt", LQ_F_READ, 0, 0, 0, read_add},
    {"continue_final_message", LQ_F_BOOL, LQ_AT(talk.go_on), 0, 0, NULL},
    {"chat_template", LQ_F_OFF, 0, 0, 0, NULL}, // a stranger's program: not from a request
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

// --- making ---

bool lq_json_move(cJSON *to, const char *key, cJSON *item) {
    if (to && item && (key ? cJSON_AddItemToObject(to, key, item) : cJSON_AddItemToArray(to, item))) return true;
    cJSON_Delete(item);
    return false;
}

cJSON *lq_talk_message(cJSON *list, const char *role, cJSON *content) {
    cJSON *m = cJSON_CreateObject();
    const bool named = lq_json_move(m, "role", cJSON_CreateString(role));
    const bool done = lq_json_move(m, "content", content ? content : cJSON_CreateNull()) && named;
    if (done && cJSON_AddItemToArray(list, m)) return m;
    cJSON_Delete(m);
    return NULL;
}

cJSON *lq_talk_tool(cJSON *flat, const char *schema) {
    cJSON *tool = cJSON_CreateObject(), *function = cJSON_CreateObject();
    static const char *const parts[] = {"name", "description"};
    bool done = tool && function && lq_json_move(tool, "type", cJSON_CreateString("function"));
    for (size_t i = 0; done && i < 2; i++) {
        cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(flat, parts[i]);
        if (v) done = lq_json_move(function, parts[i], v);
    }
    cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(flat, schema);
    if (done && v) done = lq_json_move(function, "parameters", v);
    if (done) return cJSON_AddItemToObject(tool, "function", function) ? tool : NULL;
    cJSON_Delete(function);
    cJSON_Delete(tool);
    return NULL;
}

cJSON *lq_talk_call(const char *id, const char *name, cJSON *arguments) {
    cJSON *call = cJSON_CreateObject(), *function = cJSON_CreateObject();
    bool done = lq_json_move(function, "name", cJSON_CreateString(name));
    done = lq_json_move(function, "arguments", arguments ? arguments : cJSON_CreateObject()) && done;
    done = lq_json_move(call, "id", cJSON_CreateString(id ? id : "")) &&
           lq_json_move(call, "type", cJSON_CreateString("function")) && done;
    done = lq_json_move(call, "function", function) && done;
    if (done) return call;
    cJSON_Delete(call);
    return NULL;
}
