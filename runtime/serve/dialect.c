// dialect.c: what happens to a request in every protocol alike: it is parsed, held against the model, and becomes a
// request of the engine; and what the server knows of its model. Owns lq_completion and what lq_api_open made.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const lq_dialect *const dialects[] = {
    &lq_dialect_completions, &lq_dialect_chat, &lq_dialect_responses, &lq_dialect_messages, &lq_dialect_generate,
    &lq_dialect_generate_stream, &lq_dialect_generate_either, &lq_dialect_embeddings,
};

const lq_dialect *lq_dialect_at(const char *path) {
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (!strcmp(dialects[i]->path, path)) return dialects[i];
    return NULL;
}

void lq_completion_begin(const lq_api *api, lq_completion *c) {
    *c = (lq_completion){.ask = {.n = 1, .length_penalty = 1, .sampling = api->defaults},
                         .logprobs = -1, .tops = -1, .special = true, .talk = {.add_prompt = true}};
}

// As many beginnings as n says, or best_of. How tokens are drawn has no say.
static bool settle_beams(lq_completion *c, lq_refusal *no) {
    lq_request *q = &c->ask;
    lq_sampling *s = &q->sampling;
    const bool more = c->best_of > q->n;
    const struct { const char *name; bool said; } never[] = {
        {"stop", q->stops > 0}, {"min_tokens", q->min_tokens > 0}, {"logit_bias", s->biases > 0},
        {"presence_penalty", s->presence != 0}, {"frequency_penalty", s->frequency != 0},
    };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (never[i].said)
            return lq_refuse(no, 400, never[i].name, "unsupported_value", "%s: not with use_beam_search",
                             never[i].name);
    q->beams = more ? (int)c->best_of : q->n;
    if (q->beams > LQ_BEAMS)
        return lq_refuse(no, 400, more ? "best_of" : "n", NULL, "%s: %d beams, expected at most %d",
                         more ? "best_of" : "n", q->beams, LQ_BEAMS);
    s->repetition = 0;
    c->best_of = 0;
    if (q->length_penalty == 0) q->length_penalty = 1e-9f; // the engine reads 0 as 1
    return true;
}

bool lq_completion_settle(lq_completion *c, lq_refusal *no) {
    lq_request *q = &c->ask;
    lq_sampling *s = &q->sampling;
    const bool more = c->best_of > q->n;
    const int64_t all = c->prompt_count * (more ? c->best_of : q->n);
    const char *const which = more ? "best_of" : "n";
    if (all > LQ_MAX_CHOICES)
        return lq_refuse(no, 400, which, NULL, "%s: %" PRId64 " prompts times it is %" PRId64
                         " choices, expected at most %d", which, c->prompt_count, all, LQ_MAX_CHOICES);
    if (q->max_tokens && q->min_tokens > q->max_tokens)
        return lq_refuse(no, 400, "min_tokens", NULL, "min_tokens: more than max_tokens (%d)", q->max_tokens);
    if (c->stream_options && !c->stream)
        return lq_refuse(no, 400, "stream_options", NULL, "stream_options: only with \"stream\": true");
    c->n = q->n;
    if (c->beam) {
        if (!settle_beams(c, no)) return false;
    } else if (more) { // the best are known by their logprobs
        q->n = (int)c->best_of;
        q->logprobs = true;
    }
    // The engine reads 0 as "off"; here a top_p of 0 means the likeliest token alone, and a top_k of -1 is off.
    if (!(s->top_p > 0)) s->top_p = 1e-9f;
    if (s->top_k < 0) s->top_k = 0;
    q->logprobs = q->logprobs || c->logprobs >= 0;
    q->prompt_logprobs = c->logprobs >= 0 && c->echo;
    q->top_n = c->logprobs > 0 ? (int)c->logprobs : 0;
    return true;
}

static bool refused(const lq_dialect *d, lq_refusal *no) {
    if (no->status == 400 && d->invalid) no->status = d->invalid;
    return false;
}

bool lq_completion_parse(const lq_api *api, const lq_dialect *d, const char *body, size_t n, lq_completion *c,
                         lq_refusal *no) {
    cJSON *tree;
    lq_completion_begin(api, c);
    if (!lq_body_parse(api, body, n, &tree, no)) return refused(d, no);
    c->tree = tree;
    c->dialect = d;
    if (d->read(api, c, no) && lq_completion_settle(c, no)) {
        int *deadline = &c->ask.deadline_ms;
        if (api->deadline_ms && (!*deadline || *deadline > api->deadline_ms)) *deadline = api->deadline_ms;
        return true;
    }
    lq_completion_free(c);
    return refused(d, no);
}

void lq_completion_free(lq_completion *c) {
    for (int64_t i = 0; i < c->prompt_count; i++) lq_free(c->prompts[i].ids);
    free(c->prompts);
    free(c->stop);
    free(c->stop_ids);
    free(c->bias_id);
    free(c->bias);
    lq_free(c->rendered);
    cJSON_Delete(c->tree);
    cJSON_Delete(c->made);
    cJSON_Delete(c->kept);
    *c = (lq_completion){0};
}

static bool too_long(const lq_api *api, const lq_completion *c, const lq_prompt *p, lq_refusal *no) {
    const int answer = c->ask.max_tokens;
    if (answer && p->count < (size_t)api->ctx)
        return lq_refuse(no, 400, "max_tokens", "context_length_exceeded",
                         "this model's context is %d tokens; the prompt has %zu and max_tokens asks for %d more",
                         api->ctx, p->count, answer);
    return lq_refuse(no, 400, c->dialect->param, "context_length_exceeded",
                     "this model's context is %d tokens; %s has %zu", api->ctx, c->dialect->param, p->count);
}

// A text that has no room whatever its tokens are is not looked at. (Spaces that a tokenizer drops count here.)
static bool hopeless(const lq_api *api, const lq_completion *c, const lq_prompt *p, lq_refusal *no) {
    const size_t most = (size_t)api->ctx * (size_t)(api->longest ? api->longest : INT_MAX / 2);
    if (!p->text || p->len <= most || c->keep) return true;
    return lq_refuse(no, 400, c->dialect->param, "context_length_exceeded",
                     "this model's context is %d tokens, of at most %d bytes; %s has %zu bytes", api->ctx, api->longest,
                     c->dialect->param, p->len);
}

// Leaves the first tokens of a prompt; of a text those of its tokens that stand before what the tokenizer puts at its
// end, which stays.
static bool shorten(const lq_api *api, const lq_completion *c, lq_prompt *p, lq_err *err) {
    const size_t most = c->keep < 0 ? (size_t)api->ctx : (size_t)c->keep;
    size_t bare = 0, head = 0;
    int32_t *ids = NULL;
    if (!c->keep || p->count <= most) return true;
    const bool ends = p->text && c->special;
    if (ends && !lq_tokenize(api->model, p->text, p->len, LQ_TOK_PARSE, &ids, &bare, err)) return false;
    while (ids && head + bare < p->count && memcmp(p->ids + head, ids, bare * sizeof *ids)) head++;
    const size_t tail = ids && head + bare < p->count ? p->count - bare - head : 0;
    lq_free(ids);
    if (tail < most) memmove(p->ids + most - tail, p->ids + p->count - tail, tail * sizeof *p->ids);
    p->count = most;
    return true;
}

static bool encode(const lq_api *api, lq_completion *c, lq_refusal *no) {
    const int flags = (c->special ? LQ_TOK_SPECIAL : 0) | LQ_TOK_PARSE;
    const size_t answer = c->ask.score_only ? 0 : c->ask.max_tokens ? (size_t)c->ask.max_tokens : 1;
    const char *what = c->dialect->param;
    for (int64_t i = 0; i < c->prompt_count; i++) {
        lq_prompt *p = &c->prompts[i];
        lq_err err;
        if (!hopeless(api, c, p, no)) return false;
        if ((p->text && !lq_tokenize(api->model, p->text, p->len, flags, &p->ids, &p->count, &err)) ||
            !shorten(api, c, p, &err))
            return lq_refuse(no, err.code == LQ_E_MEMORY ? 500 : 400, what, NULL, "%s: %s", what, err.text);
        if (!p->count) return lq_refuse(no, 400, what, NULL, "%s: it has no tokens", what);
        if (p->count + answer > (size_t)api->ctx) return too_long(api, c, p, no);
    }
    return true;
}

bool lq_completion_encode(const lq_api *api, lq_completion *c, lq_refusal *no) {
    return encode(api, c, no) || refused(c->dialect, no);
}

lq_request lq_completion_request(const lq_completion *c, int64_t prompt) {
    lq_request q = c->ask;
    q.prompt = c->prompts[prompt].ids;
    q.prompt_len = c->prompts[prompt].count;
    return q;
}

const char *lq_completion_param(const lq_completion *c) { return c->dialect->param; }

// --- the model ---

static bool read_defaults(lq_api *api, lq_err *err) {
    static const char *const name = "generation_config.json";
    static const char *const words[] = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"};
    enum { WORDS = sizeof words / sizeof *words };
    lq_field rows[WORDS + 1] = {0};
    const lq_field *const tables[] = {rows, NULL};
    lq_completion c = {.ask = {.sampling = {.temperature = 1, .top_p = 1, .repetition = 1}}};
    lq_refusal no;
    cJSON *tree = NULL;
    char *text = NULL;
    size_t n = 0;
    bool done = !api->model || lq_model_file(api->model, name, &text, &n, err);
    if (done && text) done = lq_json_parse(text, n, (lq_json_limits){.bytes = n, .depth = 64}, name, &tree, err);
    lq_fields_named(words, WORDS, rows);
    if (done && cJSON_IsObject(tree) && !lq_fields_read(&(lq_place){api, tree, "", &no}, tables, &c))
        done = lq_fail(err, LQ_E_FORMAT, "%s: %s", name, no.text);
    api->defaults = c.ask.sampling;
    cJSON_Delete(tree);
    lq_free(text);
    return done;
}

// A model whose embeddings are of another kind answers all else.
static bool read_pooling(lq_api *api, lq_err *err) {
    lq_model_info info;
    if (!api->model) return true;
    lq_model_describe(api->model, &info);
    api->embedding = info.embedding;
    if (lq_model_pooling(api->model, &api->pool, &api->pool_raw, &api->no_pool)) return true;
    if (api->no_pool.code == LQ_E_UNSUPPORTED) return true;
    if (err) *err = api->no_pool;
    return false;
}

// A model need not have one: then conversations are refused, and nothing else.
static bool read_template(lq_api *api, const lq_serve_opts *o, lq_err *err) {
    lq_err why;
    if (o->chat_template)
        return lq_template_parse(o->chat_template, strlen(o->chat_template), "chat template", &api->tmpl, err);
    if (!api->model || lq_template_of(api->model, NULL, &api->tmpl, &why) || why.code == LQ_E_UNSUPPORTED) return true;
    if (err) *err = why;
    return false;
}

// A token that is an object with its text as "content" becomes that text, wherever it stands.
static bool plain_tokens(cJSON *tree) {
    for (cJSON *v = tree->child, *next; v; v = next) {
        next = v->next;
        const char *text = cJSON_IsObject(v) ? lq_json_str(v, "content") : NULL;
        cJSON *plain = text ? cJSON_CreateString(text) : NULL;
        if (!text && !plain_tokens(v)) return false;
        if (!text) continue;
        if (!plain || !(v->string ? cJSON_ReplaceItemInObjectCaseSensitive(tree, v->string, plain)
                                  : cJSON_ReplaceItemViaPointer(tree, v, plain))) {
            cJSON_Delete(plain);
            return false;
        }
    }
    return true;
}

static bool put_text(cJSON *tree, const char *name, const char *text) {
    cJSON_DeleteItemFromObjectCaseSensitive(tree, name);
    return cJSON_AddStringToObject(tree, name, text);
}

static bool put_token(const lq_model *m, cJSON *tree, const char *name, int32_t id) {
    char *text;
    size_t n;
    if (id < 0) return true;
    if (!lq_detokenize(m, &id, 1, true, &text, &n, NULL)) return false;
    const bool done = put_text(tree, name, text);
    lq_free(text);
    return done;
}

// What the tokenizer itself knows, of a model that has no file to tell.
static cJSON *own_info(const lq_api *api) {
    cJSON *tree = cJSON_CreateObject();
    const int32_t bos = lq_token_bos(api->model);
    int32_t eos = 0;
    while (eos < api->vocab && !lq_token_is_end(api->model, eos)) eos++;
    const bool done = tree && put_token(api->model, tree, "bos_token", bos) &&
                      put_token(api->model, tree, "eos_token", eos < api->vocab ? eos : -1) &&
                      cJSON_AddBoolToObject(tree, "add_bos_token", bos >= 0) &&
                      cJSON_AddNumberToObject(tree, "model_max_length", api->ctx);
    if (done) return tree;
    cJSON_Delete(tree);
    return NULL;
}

// The template that conversations are rendered by, where tokenizer_config.json is not what has it.
static bool put_template(const lq_api *api, const lq_serve_opts *o, cJSON *tree, lq_err *err) {
    char *own = NULL;
    size_t n;
    if (!o->chat_template && !lq_model_file(api->model, "chat_template.jinja", &own, &n, err)) return false;
    const char *text = o->chat_template ? o->chat_template : own;
    const bool done = !text || put_text(tree, "chat_template", text);
    lq_free(own);
    return done || lq_fail(err, LQ_E_MEMORY, "no memory for the chat template");
}

// The special tokens, for a template that came from elsewhere.
static bool read_special(lq_api *api, const cJSON *tree, lq_err *err) {
    static const char *const tokens[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(tree, tokens[i]);
        if (!cJSON_IsString(v)) continue;
        char *json = cJSON_PrintUnformatted(v);
        if (!json) return lq_fail(err, LQ_E_MEMORY, "no memory for the special tokens");
        api->special[api->special_count++] = (lq_template_var){tokens[i], json, strlen(json)};
    }
    return true;
}

// tokenizer_config.json, its tokens as texts, and the template.
static bool read_info(lq_api *api, const lq_serve_opts *o, lq_err *err) {
    static const char *const name = "tokenizer_config.json";
    cJSON *tree = NULL;
    char *text;
    size_t n;
    if (!api->model || !lq_model_file(api->model, name, &text, &n, err)) return !api->model;
    const bool parsed = !text || lq_json_parse(text, n, (lq_json_limits){.bytes = n, .depth = 64}, name, &tree, err);
    lq_free(text);
    if (!parsed) return false;
    if (!tree) tree = own_info(api);
    bool done = tree && plain_tokens(tree);
    if (!done) lq_fail(err, LQ_E_MEMORY, "no memory for %s", name);
    done = done && put_template(api, o, tree, err) && (!o->chat_template || read_special(api, tree, err));
    if (done && !(api->info = cJSON_PrintUnformatted(tree)))
        done = lq_fail(err, LQ_E_MEMORY, "no memory for %s", name);
    cJSON_Delete(tree);
    return done;
}

bool lq_api_open(lq_api *api, const lq_serve_opts *o, lq_err *err) {
    char byte[1];
    for (int i = 0; api->model && i < api->vocab; i++) {
        const size_t n = lq_token_bytes(api->model, i, byte, sizeof byte);
        if (n > (size_t)api->longest && n < INT_MAX / 2) api->longest = (int)n;
    }
    return read_defaults(api, err) && read_pooling(api, err) && read_template(api, o, err) && read_info(api, o, err);
}

void lq_api_close(lq_api *api) {
    lq_template_close(api->tmpl);
    cJSON_free(api->info);
    for (size_t i = 0; i < api->special_count; i++) cJSON_free((char *)(uintptr_t)api->special[i].json);
}
