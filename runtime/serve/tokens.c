// tokens.c: tokens as clients see them: their texts and logprobs in answers, the endpoints that turn texts into tokens
// and back, and what is told of the model.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

lq_token_text lq_token_get(const lq_model *m, int32_t id) {
    lq_token_text t;
    t.n = lq_token_bytes(m, id, t.p, sizeof t.p);
    if (t.n > sizeof t.p) t.n = sizeof t.p;
    return t;
}

bool lq_token_is_text(const lq_token_text *t) {
    const unsigned char *p = (const unsigned char *)t->p, *end = p + t->n;
    while (p < end) {
        const size_t n = lq_utf8_len(p, end);
        if (!n) return false;
        p += n;
    }
    return true;
}

// Part of a character has no text of its own: it is written as OpenAI does.
void lq_token_write(lq_text *out, const lq_token_text *t) {
    if (lq_token_is_text(t)) {
        lq_text_json(out, t->p, t->n);
        return;
    }
    lq_text_fmt(out, "\"bytes:");
    for (size_t i = 0; i < t->n; i++) lq_text_fmt(out, "\\\\x%02x", (unsigned char)t->p[i]);
    lq_text_fmt(out, "\"");
}

void lq_logprob_write(lq_text *out, float v) {
    if (isnan(v)) lq_text_fmt(out, "null");
    else lq_text_fmt(out, "%.9g", isinf(v) ? -9999.0 : (double)v);
}

static void chat_token(lq_text *out, const lq_model *m, int32_t id, float logprob) {
    const lq_token_text t = lq_token_get(m, id);
    lq_text_fmt(out, "{\"token\":");
    lq_token_write(out, &t);
    lq_text_fmt(out, ",\"logprob\":");
    lq_logprob_write(out, logprob);
    lq_text_fmt(out, ",\"bytes\":[");
    for (size_t i = 0; i < t.n; i++) lq_text_fmt(out, "%s%d", LQ_LIST_COMMA(i), (unsigned char)t.p[i]);
    lq_text_fmt(out, "]");
}

void lq_tokens_chat(lq_answer *a, lq_choice *c, const lq_event *e) {
    const int tops = !e->top ? 0 : e->top_n < a->top_n ? e->top_n : a->top_n;
    for (int i = 0; i < e->count && !e->prompt; i++) {
        const char *comma = "";
        lq_text_fmt(&c->tokens, "%s", LQ_LIST_COMMA(c->tokens.n));
        chat_token(&c->tokens, a->api->model, e->tokens[i], e->logprobs[i]);
        lq_text_fmt(&c->tokens, ",\"top_logprobs\":[");
        for (int k = 0; k < tops; k++) {
            const lq_top top = e->top[i * e->top_n + k];
            if (top.id < 0) continue;
            lq_text_fmt(&c->tokens, "%s", comma);
            chat_token(&c->tokens, a->api->model, top.id, top.logprob);
            lq_text_fmt(&c->tokens, "}");
            comma = ",";
        }
        lq_text_fmt(&c->tokens, "]}");
    }
}

// --- texts to tokens and back ---

typedef struct tokens_ask {
    lq_completion c; // of which a conversation is read
    const char *prompt;
    int32_t *ids;
    size_t count;
    bool special, strings, has_ids;
} tokens_ask;

static bool read_special(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    if (!cJSON_IsBool(v)) return lq_field_refuse(at, f, "expected true or false");
    ((tokens_ask *)base)->special = cJSON_IsTrue(v);
    return true;
}

static bool read_ids(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    tokens_ask *ask = base;
    if (!cJSON_IsArray(v)) return lq_field_refuse(at, f, "expected an array of tokens");
    return ask->has_ids = lq_ids_read(at, f, v, INT_MAX, &ask->ids, &ask->count);
}

static void tokenized_write(const lq_api *api, const tokens_ask *ask, lq_text *out) {
    lq_text_fmt(out, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", ask->count, api->ctx);
    for (size_t i = 0; i < ask->count; i++) lq_text_fmt(out, "%s%d", LQ_LIST_COMMA(i), ask->ids[i]);
    lq_text_fmt(out, "],\"token_strs\":%s", ask->strings ? "[" : "null}");
    for (size_t i = 0; ask->strings && i < ask->count; i++) {
        const lq_token_text t = lq_token_get(api->model, ask->ids[i]);
        lq_text_fmt(out, "%s", LQ_LIST_COMMA(i));
        lq_token_write(out, &t);
    }
    if (ask->strings) lq_text_fmt(out, "]}");
}

static bool tokenize(const lq_api *api, tokens_ask *ask, lq_refusal *no) {
    const char *const what = ask->prompt ? "prompt" : "messages";
    const char *text = ask->prompt;
    size_t n = text ? strlen(text) : 0;
    lq_err err;
    if (ask->c.talk.messages) {
        if (text) return lq_refuse(no, 400, "messages", NULL, "messages: expected either these or a prompt");
        if (!lq_talk_render(api, &ask->c.talk, what, &ask->c.rendered, &n, no)) return false;
        text = ask->c.rendered;
    }
    if (!text) return lq_refuse(no, 400, "prompt", NULL, "prompt: expected a text, or messages in its place");
    const int flags = (ask->special ? LQ_TOK_SPECIAL : 0) | LQ_TOK_PARSE;
    return lq_tokenize(api->model, text, n, flags, &ask->ids, &ask->count, &err) ||
           lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, what, NULL, "%s: %s", what, err.text);
}

bool lq_tokenize_reply(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no) {
    static const lq_field rows[] = {
        {"model", LQ_F_READ, 0, 0, 0, lq_read_model},
        {"prompt", LQ_F_TEXT, offsetof(tokens_ask, prompt), 0, 0, NULL},
        {"add_special_tokens", LQ_F_READ, 0, 0, 0, read_special},
        {"return_token_strs", LQ_F_BOOL, offsetof(tokens_ask, strings), 0, 0, NULL},
        {NULL, LQ_F_OFF, 0, 0, 0, NULL},
    };
    // The completion stands first: its tables find its fields in a tokens_ask.
    static const lq_field *const tables[] = {rows, lq_talk_fields, NULL};
    tokens_ask ask = {0};
    cJSON *tree;
    lq_completion_begin(api, &ask.c);
    if (!lq_body_parse(api, body, n, &tree, no)) return false;
    ask.c.tree = tree;
    ask.special = !cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(tree, "messages")); // a template writes its own
    bool done = lq_fields_read(&(lq_place){api, tree, "", no}, tables, &ask) && tokenize(api, &ask, no);
    if (done) tokenized_write(api, &ask, out);
    lq_free(ask.ids);
    lq_completion_free(&ask.c);
    return done;
}

bool lq_detokenize_reply(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no) {
    static const lq_field rows[] = {{"model", LQ_F_READ, 0, 0, 0, lq_read_model},
                                    {"tokens", LQ_F_READ, 0, 0, 0, read_ids},
                                    {NULL, LQ_F_OFF, 0, 0, 0, NULL}};
    static const lq_field *const tables[] = {rows, NULL};
    tokens_ask ask = {0};
    cJSON *tree;
    lq_err err;
    char *text = NULL;
    size_t len = 0;
    if (!lq_body_parse(api, body, n, &tree, no)) return false;
    bool done = lq_fields_read(&(lq_place){api, tree, "", no}, tables, &ask);
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

// --- the model ---

bool lq_tokenizer_info_reply(const lq_api *api, const char *body, size_t n, lq_text *out, lq_refusal *no) {
    (void)body, (void)n, (void)no;
    lq_text_add(out, api->info, strlen(api->info));
    return true;
}

void lq_models_reply(const lq_api *api, bool list, int64_t created, lq_text *out) {
    lq_text_fmt(out, "%s{\"id\":", list ? "{\"object\":\"list\",\"data\":[" : "");
    lq_text_json(out, api->name, strlen(api->name));
    lq_text_fmt(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"lq\",\"max_model_len\":%d}%s",
                created, api->ctx, list ? "]}" : "");
}
