// completions.c: POST /v1/completions of OpenAI, with what vLLM adds to it: texts or tokens in, what follows them out.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_ECHO = 1 << 20 }; // bytes: what a stream's client may have before it
enum { AHEAD = 16, MISSED = 256 }; // bytes: how far a token is looked for, beside those not found, and of them

// --- fields ---

static bool prompt_one(const lq_place *at, const lq_field *f, const cJSON *v, lq_prompt *p) {
    if (cJSON_IsArray(v)) return lq_ids_read(at, f, v, INT_MAX, &p->ids, &p->count);
    if (!cJSON_IsString(v)) return lq_field_refuse(at, f, "expected texts or arrays of tokens");
    p->text = v->valuestring;
    p->len = strlen(v->valuestring);
    return true;
}

static const char *const wanted = "expected a text, an array of texts, or tokens";

// A text, tokens, an array of texts, or an array of arrays of tokens.
bool lq_read_prompt(const lq_place *at, const lq_field *f, cJSON *v, void *base) {
    lq_completion *c = base;
    const bool one = cJSON_IsString(v) || (cJSON_IsArray(v) && (!v->child || cJSON_IsNumber(v->child)));
    const cJSON *first = one ? v : v->child;
    if (!one && !cJSON_IsArray(v)) return lq_field_refuse(at, f, "%s", wanted);
    int64_t n = 0;
    for (const cJSON *p = first; p; p = one ? NULL : p->next)
        if (++n > LQ_MAX_CHOICES)
            return lq_field_refuse(at, f, "expected at most %d of them in one request", LQ_MAX_CHOICES);
    if (!(c->prompts = calloc((size_t)n, sizeof *c->prompts)))
        return lq_refuse(at->no, 500, NULL, NULL, "no memory for a request");
    for (const cJSON *p = first; c->prompt_count < n; p = p->next)
        if (!prompt_one(at, f, p, &c->prompts[c->prompt_count++])) return false;
    return true;
}

static const lq_field rows[] = {
    {"prompt", LQ_F_READ, 0, 0, 0, lq_read_prompt},
    {"best_of", LQ_F_LONG, LQ_AT(best_of), 1, 128, NULL},
    {"logprobs", LQ_F_LONG, LQ_AT(logprobs), 0, LQ_MAX_TOP, NULL},
    {"echo", LQ_F_BOOL, LQ_AT(echo), 0, 0, NULL},
    {"suffix", LQ_F_OFF, 0, 0, 0, NULL},
    {"user", LQ_F_READ, 0, 0, 0, lq_is_text},
    {NULL, LQ_F_OFF, 0, 0, 0, NULL},
};

// Told before it is made: n times what is echoed.
static bool echo_fits(const lq_completion *c, lq_refusal *no) {
    const size_t most = c->stream ? STREAM_ECHO : LQ_MAX_ANSWER;
    size_t all = 0;
    for (int64_t i = 0; i < c->prompt_count; i++) all += c->prompts[i].len * (size_t)c->ask.n;
    return !c->echo || all <= most ||
           lq_refuse(no, 400, "echo", NULL, "echo: %zu bytes of all choices together, expected at most %zu", all, most);
}

static bool read_completion(const lq_api *api, lq_completion *c, lq_refusal *no) {
    static const lq_field *const tables[] = {rows, lq_sampling_fields, lq_never_fields, NULL};
    const lq_request *q = &c->ask;
    c->ask.max_tokens = 16;
    if (!lq_fields_read(&(lq_place){api, c->tree, "", no}, tables, c)) return false;
    if (!c->prompt_count) return lq_refuse(no, 400, "prompt", NULL, "prompt: %s", wanted);
    if (c->best_of && c->best_of < q->n)
        return lq_refuse(no, 400, "best_of", NULL, "best_of: expected n (%d) or more", q->n);
    if (c->best_of > q->n && c->stream)
        return lq_refuse(no, 400, "best_of", NULL, "best_of: which are the best is known at the end: not of a stream");
    if (!q->max_tokens && !c->echo)
        return lq_refuse(no, 400, "max_tokens", NULL, "max_tokens: 0 asks for nothing without echo");
    if (!q->max_tokens && (q->n > 1 || c->best_of > 1))
        return lq_refuse(no, 400, "n", NULL, "n: expected 1 where max_tokens is 0");
    if (!q->max_tokens && q->min_tokens)
        return lq_refuse(no, 400, "min_tokens", NULL, "min_tokens: more than max_tokens (0)");
    c->ask.score_only = !q->max_tokens;
    return echo_fits(c, no);
}

// --- logprobs ---

// The likeliest tokens, and the one that was drawn; of two that read the same, the likelier.
static void tops_write(const lq_answer *a, lq_choice *c, const lq_event *e, int i, const lq_token_text *drawn) {
    lq_token_text seen[LQ_MAX_TOP + 1];
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
        seen[count] = k < tops ? lq_token_get(a->api->model, top.id) : *drawn;
        int same = 0;
        while (same < count && (seen[same].n != seen[count].n || memcmp(seen[same].p, seen[count].p, seen[count].n)))
            same++;
        if (same < count || top.id < 0) continue;
        lq_text_fmt(&c->tops, "%s", LQ_LIST_COMMA(count));
        lq_token_write(&c->tops, &seen[count++]);
        lq_text_fmt(&c->tops, ":");
        lq_logprob_write(&c->tops, top.logprob);
    }
    lq_text_fmt(&c->tops, "}");
}

// A prompt's text is echoed as it was given, which need not be what its tokens read: blanks may be fewer or others, and
// a character may have become another. Where the next token stands in what is left of it; false: it does not.
static bool echo_find(const lq_choice *c, const lq_echo *e, const lq_token_text *t, size_t *from, size_t *to) {
    const char *p = e->text + c->echo_at, *core = t->p, *found = NULL;
    const size_t left = e->n - c->echo_at;
    size_t n = t->n, blanks = 0;
    if (n <= left && !memcmp(p, core, n)) return *to = n, true;
    while (n && lq_is_blank(*core)) core++, n--;
    if (!n) return true; // one that the tokenizer put there
    const size_t window = c->missed + n + AHEAD;
    while (blanks < left && blanks < MISSED && lq_is_blank(p[blanks])) blanks++;
    if (n <= left - blanks && !memcmp(p + blanks, core, n)) found = p + blanks;
    else if (c->missed) found = memmem(p, left < window ? left : window, core, n);
    if (!found) return false;
    *to = (size_t)(found - p) + n;
    *from = (size_t)(found - p) - (n < t->n && found > p && lq_is_blank(found[-1]));
    return true;
}

// Where it begins, in characters.
static int64_t echo_offset(lq_choice *c, const lq_echo *e, const lq_token_text *t) {
    const char *p = e->text + c->echo_at;
    size_t from = 0, to = 0;
    if (echo_find(c, e, t, &from, &to)) c->missed = 0;
    else if (c->missed < MISSED) c->missed += t->n;
    const bool inside = c->echo_at + from < e->n && ((unsigned char)p[from] & 0xC0) == 0x80; // a character
    const int64_t at = c->echo_chars + lq_characters(p, from) - inside;
    c->echo_chars += lq_characters(p, to);
    c->echo_at += to;
    return at;
}

static void tokens_add(lq_answer *a, lq_choice *c, const lq_event *e) {
    const lq_echo *echo = a->echoes ? &a->echoes[(c - a->choices) / a->n] : NULL;
    const int64_t whole = echo ? echo->chars : 0;
    for (int i = 0; i < e->count; i++) {
        const lq_token_text t = lq_token_get(a->api->model, e->tokens[i]);
        lq_text *const parts[] = {&c->tokens, &c->values, &c->tops, &c->offsets};
        for (size_t k = 0; k < sizeof parts / sizeof *parts && c->tokens.n; k++) lq_text_fmt(parts[k], ",");
        lq_token_write(&c->tokens, &t);
        lq_logprob_write(&c->values, e->logprobs[i]);
        tops_write(a, c, e, i, &t);
        const int64_t at = !e->prompt ? whole + e->offsets[i] : echo->given ? echo_offset(c, echo, &t) : e->offsets[i];
        lq_text_fmt(&c->offsets, "%" PRId64, at);
    }
}

// --- bodies and chunks ---

static void list_write(lq_text *out, const char *name, const lq_text *inside) {
    lq_text_fmt(out, "\"%s\":[", name);
    if (inside->n) lq_text_add(out, inside->p, inside->n);
    lq_text_fmt(out, "]");
}

static void logprobs_write(lq_answer *a, const lq_choice *c) {
    lq_text *out = &a->out;
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
}

static void choice_write(lq_answer *a, int64_t at, int64_t index) {
    const lq_choice *c = &a->choices[at];
    const lq_echo *echo = a->echoes && !c->begun ? &a->echoes[at / a->n] : NULL;
    lq_text *out = &a->out;
    lq_text_fmt(out, "{\"text\":");
    lq_json_pair(out, echo ? echo->text : "", echo ? echo->n : 0, c->text.n ? c->text.p : "", c->text.n);
    lq_text_fmt(out, ",\"index\":%" PRId64 ",\"logprobs\":", index);
    if (a->logprobs) logprobs_write(a, c);
    else lq_text_fmt(out, "null");
    lq_text_fmt(out, ",\"finish_reason\":%s}", lq_finish_name(c->finish));
}

static void head_write(lq_answer *a) {
    lq_text_fmt(&a->out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%" PRId64 ",\"model\":", a->id,
                a->created);
    lq_json_write(&a->out, a->api->name);
    lq_text_fmt(&a->out, ",\"choices\":[");
}

static void usage_end(lq_answer *a) {
    lq_text_fmt(&a->out, "],\"usage\":");
    lq_usage_write(a);
    lq_text_fmt(&a->out, "}");
}

static void chunk(lq_answer *a, int64_t index) {
    lq_text_fmt(&a->out, "data: ");
    head_write(a);
    choice_write(a, index, index);
    if (a->usage && a->usage_each) usage_end(a);
    else lq_text_fmt(&a->out, "]%s}", a->usage ? ",\"usage\":null" : "");
    lq_text_fmt(&a->out, "\n\n");
}

static void end(lq_answer *a) {
    if (a->usage) {
        lq_text_fmt(&a->out, "data: ");
        head_write(a);
        usage_end(a);
        lq_text_fmt(&a->out, "\n\n");
    }
    lq_text_fmt(&a->out, "data: [DONE]\n\n");
}

static void body(lq_answer *a) {
    head_write(a);
    for (int64_t i = 0; i < a->prompt_count * a->shown; i++) {
        lq_text_fmt(&a->out, "%s", LQ_LIST_COMMA(i));
        choice_write(a, i / a->shown * a->n + i % a->shown, i);
    }
    usage_end(a);
}

const lq_dialect lq_dialect_completions = {
    .path = "/v1/completions", .id = "cmpl-", .param = "prompt", .read = read_completion, .tokens = tokens_add,
    .body = body, .chunk = chunk, .end = end, .fail = lq_fail_openai};
