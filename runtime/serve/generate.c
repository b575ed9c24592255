// generate.c: POST /generate and /generate_stream of text-generation-inference, and POST /, which is either: a text in,
// what follows it out, and with "details" its tokens. A stream has an event for each token, and each has its logprob.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NEW_TOKENS = 100 }; // where a request does not say

// --- fields ---

static bool read_inputs(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    if (!cJSON_IsString(v)) return lq_field_refuse(at, f, "expected a text");
    if (!(c->prompts = calloc(1, sizeof *c->prompts)))
        return lq_refuse(at->no, 500, NULL, NULL, "no memory for a request");
    c->prompt_count = 1;
    c->prompts[0] = (lq_prompt){.text = v->valuestring, .len = strlen(v->valuestring)};
    return true;
}

static bool read_parameters(const lq_place *at, const lq_field *f, cJSON *v, void *base);
static const lq_field rows[] = {
    {"inputs", LQ_F_READ, 0, 0, 0, read_inputs},
    {"parameters", LQ_F_READ, 0, 0, 0, read_parameters},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

static const lq_field parameters[] = {
    {"best_of", LQ_F_LONG, LQ_AT(best_of), 1, 128, NULL},
    {"details", LQ_F_BOOL, LQ_AT(details), 0, 0, NULL},
    {"do_sample", LQ_F_BOOL, LQ_AT(draw), 0, 0, NULL},
    {"frequency_penalty", LQ_F_NUM, LQ_AT(ask.sampling.frequency), -2, 2, NULL},
    {"max_new_tokens", LQ_F_INT, LQ_AT(ask.max_tokens), 1, INT_MAX, NULL},
    {"repetition_penalty", LQ_F_NUM, LQ_AT(ask.sampling.repetition), 0.01, 100, NULL},
    {"return_full_text", LQ_F_BOOL, LQ_AT(echo), 0, 0, NULL},
    {"seed", LQ_F_READ, LQ_AT(ask.sampling.seed), 0, 0, lq_read_seed},
    {"stop", LQ_F_READ, 0, 0, 0, lq_read_stop},
    {"temperature", LQ_F_NUM, LQ_AT(ask.sampling.temperature), 0, 100, NULL},
    {"top_k", LQ_F_INT, LQ_AT(ask.sampling.top_k), 0, INT_MAX, NULL},
    {"top_n_tokens", LQ_F_LONG, LQ_AT(tops), 0, LQ_MAX_TOP, NULL},
    {"top_p", LQ_F_NUM, LQ_AT(ask.sampling.top_p), 0, 1, NULL},
    {"typical_p", LQ_F_NUM, LQ_AT(ask.sampling.typical), 0, 1, NULL},
    {"decoder_input_details", LQ_F_OFF, 0, 0, 0, NULL},
    {"grammar", LQ_F_OFF, 0, 0, 0, NULL},
    {"adapter_id", LQ_F_OFF, 0, 0, 0, NULL},
    {"truncate", LQ_F_OFF, 0, 0, 0, NULL},
    {"watermark", LQ_F_OFF, 0, 0, 0, NULL},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

static bool read_parameters(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    static const lq_field *const tables[] = {parameters, NULL};
    if (!cJSON_IsObject(v)) return lq_field_refuse(at, f, "expected an object");
    if (!lq_fields_read(&(lq_place){at->api, v, "parameters.", at->no}, tables, base)) return false;
    ((lq_completion *)base)->kept = cJSON_DetachItemFromObjectCaseSensitive(v, "seed");
    return true;
}

static bool fields_read(const lq_api *api, lq_completion *c, const lq_field *const *tables, lq_refusal *no) {
    lq_sampling *s = &c->ask.sampling;
    *s = (lq_sampling){.temperature = 1, .top_p = 1, .repetition = 1};
    c->ask.max_tokens = MAX_NEW_TOKENS;
    c->ask.keep_stop = true;
    if (!lq_fields_read(&(lq_place){api, c->tree, "", no}, tables, c)) return false;
    if (!c->prompt_count) return lq_refuse(no, 400, "inputs", NULL, "inputs: expected a text");
    // Whoever asks for a way to draw wants it done.
    const bool draws = c->draw || s->temperature != 1 || s->top_k || s->top_p < 1 || (s->typical > 0 && s->typical < 1);
    if (!draws) s->temperature = 0;
    if (c->details && c->tops > 0) c->logprobs = c->tops;
    c->ask.logprobs = c->details;
    return true;
}

static bool stream_begin(lq_completion *c, lq_refusal *no) {
    if (c->best_of > 1)
        return lq_refuse(no, 400, "parameters.best_of", NULL,
                         "parameters.best_of: which is the best is known at the end: not of a stream");
    c->stream = c->details = c->ask.logprobs = true;
    if (c->tops > 0) c->logprobs = c->tops;
    return true;
}

static bool read_generate(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const lq_field *const tables[] = {rows, NULL};
    return fields_read(api, c, tables, no);
}

static bool read_stream(const lq_api *api, lq_completion *c, lq_refusal *no) {
    return read_generate(api, c, no) && stream_begin(c, no);
}

static bool read_either(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const lq_field which[] = {{"stream", LQ_F_BOOL, LQ_AT(stream), 0, 0, NULL}, {NULL, LQ_F_OFF, 0, 0, 0, NULL}};
    static const lq_field *const tables[] = {rows, which, NULL};
    return fields_read(api, c, tables, no) && (!c->stream || stream_begin(c, no));
}

// --- tokens ---

static bool is_special(const lq_model *m, int32_t id, const lq_token_text *t) {
    char *text = NULL;
    size_t n = 0;
    const bool shown = !t->n || !lq_detokenize(m, &id, 1, false, &text, &n, NULL) || n;
    lq_free(text);
    return !shown;
}

// {"id","text","logprob","special"}; text: what is told in place of the token's own, or NULL.
static void token_write(lq_text *out, const lq_model *m, int32_t id, float logprob, const char *text, size_t n) {
    const lq_token_text t = lq_token_get(m, id);
    lq_text_fmt(out, "{\"id\":%d,\"text\":", id);
    lq_text_json(out, text ? text : t.p, text ? n : t.n);
    lq_text_fmt(out, ",\"logprob\":");
    lq_logprob_write(out, logprob);
    lq_text_fmt(out, ",\"special\":%s}", is_special(m, id, &t) ? "true" : "false");
}

static void tops_write(lq_answer *a, lq_choice *c, const lq_event *e, int i) {
    const int tops = !e->top ? 0 : e->top_n < a->top_n ? e->top_n : a->top_n;
    const char *comma = "";
    lq_text_fmt(&c->tops, "%s[", LQ_LIST_COMMA(c->tops.n));
    for (int k = 0; k < tops; k++) {
        const lq_top top = e->top[i * e->top_n + k];
        if (top.id < 0) continue;
        lq_text_fmt(&c->tops, "%s", comma);
        token_write(&c->tops, a->api->model, top.id, top.logprob, NULL, 0);
        comma = ",";
    }
    lq_text_fmt(&c->tops, "]");
}

static void event_write(lq_answer *a, lq_choice *c, bool last);

// Of a stream each token but the last of an event is told here; with the last comes the text of all.
static void tokens_add(lq_answer *a, lq_choice *c, const lq_event *e) {
    for (int i = 0; i < e->count && !e->prompt; i++) {
        const bool last = i == e->count - 1;
        const char *text = !a->stream ? NULL : last ? e->text : "";
        lq_text_fmt(&c->tokens, "%s", LQ_LIST_COMMA(c->tokens.n));
        token_write(&c->tokens, a->api->model, e->tokens[i], e->logprobs[i], text, last ? e->text_len : 0);
        if (a->top_n) tops_write(a, c, e, i);
        if (a->stream && !last) event_write(a, c, false);
    }
}

// --- what is told ---

static const char *finish_of(const lq_choice *c) {
    return c->finish == LQ_LENGTH ? "length" : c->stop_index >= 0 ? "stop_sequence" : "eos_token";
}

static void text_write(lq_answer *a, const lq_choice *c) {
    const lq_echo *echo = a->echoes;
    lq_json_pair(&a->out, echo ? echo->text : "", echo ? echo->n : 0, c->text.n ? c->text.p : "", c->text.n);
}

static void inside_write(lq_answer *a, const char *name, const lq_text *inside) {
    lq_text_fmt(&a->out, ",\"%s\":[", name);
    if (inside->n) lq_text_add(&a->out, inside->p, inside->n);
    lq_text_fmt(&a->out, "]");
}

static void details_begin(lq_answer *a, const lq_choice *c) {
    lq_text_fmt(&a->out, "{\"finish_reason\":\"%s\",\"generated_tokens\":%d,\"seed\":", finish_of(c), c->sampled);
    lq_text_tree(&a->out, a->kept);
}

static void details_write(lq_answer *a, const lq_choice *c) {
    details_begin(a, c);
    lq_text_fmt(&a->out, ",\"prefill\":[]");
    inside_write(a, "tokens", &c->tokens);
    if (a->top_n) inside_write(a, "top_tokens", &c->tops);
}

// The best was told; these are the others.
static void others_write(lq_answer *a) {
    lq_text_fmt(&a->out, ",\"best_of_sequences\":[");
    for (int64_t i = 1; i < a->n; i++) {
        lq_text_fmt(&a->out, "%s", LQ_LIST_COMMA(i - 1));
        details_write(a, &a->choices[i]);
        lq_text_fmt(&a->out, ",\"generated_text\":");
        text_write(a, &a->choices[i]);
        lq_text_fmt(&a->out, "}");
    }
    lq_text_fmt(&a->out, "]");
}

static void body(lq_answer *a) {
    lq_text_fmt(&a->out, "{\"generated_text\":");
    text_write(a, a->choices);
    if (a->details) {
        lq_text_fmt(&a->out, ",\"details\":");
        details_write(a, a->choices);
        if (a->n > 1) others_write(a);
        lq_text_fmt(&a->out, "}");
    }
    lq_text_fmt(&a->out, "}");
}

static void body_list(lq_answer *a) {
    lq_text_fmt(&a->out, "[");
    body(a);
    lq_text_fmt(&a->out, "]");
}

static void event_write(lq_answer *a, lq_choice *c, bool last) {
    lq_text_fmt(&a->out, "data:{\"index\":%" PRId64 ",\"token\":", ++a->events);
    lq_text_add(&a->out, c->tokens.p, c->tokens.n);
    if (a->top_n) {
        lq_text_fmt(&a->out, ",\"top_tokens\":");
        lq_text_add(&a->out, c->tops.p, c->tops.n);
    }
    c->tokens.n = c->tops.n = 0;
    lq_text_fmt(&a->out, ",\"generated_text\":");
    if (last) {
        text_write(a, c);
        lq_text_fmt(&a->out, ",\"details\":");
        details_begin(a, c);
        lq_text_fmt(&a->out, ",\"input_length\":%" PRId64 "}", a->prompt_tokens);
    } else lq_text_fmt(&a->out, "null,\"details\":null");
    lq_text_fmt(&a->out, "}\n\n");
}

static void chunk(lq_answer *a, int64_t index) {
    lq_choice *c = &a->choices[index];
    if (c->tokens.n) event_write(a, c, c->finish != LQ_RUNNING);
}

static void end(lq_answer *a) { (void)a; } // the last token's event was it

static void fail(lq_answer *a) {
    lq_text_fmt(&a->out, "data:");
    lq_refusal_write(&a->failure, a->dialect->path, NULL, &a->out);
    lq_text_fmt(&a->out, "\n\n");
}

const lq_dialect lq_dialect_generate = {
    .path = "/generate", .id = "gen-", .param = "inputs", .read = read_generate, .tokens = tokens_add, .body = body,
    .chunk = chunk, .end = end, .fail = fail, .invalid = 422, .whole = true};
const lq_dialect lq_dialect_generate_stream = {
    .path = "/generate_stream", .id = "gen-", .param = "inputs", .read = read_stream, .tokens = tokens_add,
    .body = body, .chunk = chunk, .end = end, .fail = fail, .invalid = 422, .whole = true};
const lq_dialect lq_dialect_generate_either = {
    .path = "/", .id = "gen-", .param = "inputs", .read = read_either, .tokens = tokens_add, .body = body_list,
    .chunk = chunk, .end = end, .fail = fail, .invalid = 422, .whole = true};
