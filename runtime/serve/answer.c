// answer.c: an answer while it is collected: events in, and when there is something to tell, the dialect tells it.
// Owns lq_answer. A stream's bytes are written as they come, a whole answer's when the last of its choices ended.
#include "runtime/serve/protocol.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lq_is_blank(char c) { return c && strchr(" \t\n\v\f\r", c) != NULL; }

int64_t lq_characters(const char *p, size_t n) {
    int64_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)p[i] & 0xC0) != 0x80;
    return chars;
}

// One copy for all choices of a prompt.
static bool echo_keep(lq_answer *a, const lq_completion *c) {
    if (!(a->echoes = calloc((size_t)a->prompt_count, sizeof *a->echoes))) return false;
    for (int64_t i = 0; i < a->prompt_count; i++) {
        const lq_prompt *p = &c->prompts[i];
        lq_echo *e = &a->echoes[i];
        const char *text = p->echo ? p->echo : p->text;
        if (text) {
            e->n = p->echo ? p->echo_len : p->len;
            if (!(e->text = malloc(e->n + 1))) return false;
            memcpy(e->text, text, e->n);
        } else if (!lq_detokenize(a->api->model, p->ids, p->count, false, &e->text, &e->n, NULL)) return false;
        e->chars = lq_characters(e->text, e->n);
        e->given = text != NULL;
        a->bytes += e->n * (size_t)a->shown;
    }
    return true;
}

bool lq_answer_begin(lq_answer *a, const lq_api *api, lq_completion *c, uint64_t number, int64_t now) {
    *a = (lq_answer){.api = api, .dialect = c->dialect, .created = now, .stream = c->stream, .usage = c->usage,
                     .usage_each = c->usage_each, .echo = c->echo, .logprobs = c->logprobs >= 0, .details = c->details,
                     .base64 = c->base64, .top_n = c->ask.top_n, .prompt_count = c->prompt_count, .n = c->ask.n,
                     .shown = c->n, .open = c->prompt_count * c->ask.n, .kept = c->kept};
    c->kept = NULL;
    snprintf(a->id, sizeof a->id, "%s%016" PRIx64, c->dialect->id, number);
    if (!(a->choices = calloc((size_t)a->open, sizeof *a->choices))) return false;
    for (int64_t i = 0; i < a->open; i++) a->choices[i].stop_index = -1;
    for (int64_t i = 0; i < a->prompt_count; i++) a->prompt_tokens += (int64_t)c->prompts[i].count;
    return !a->echo || echo_keep(a, c);
}

#define PARTS(c) {&(c)->text, &(c)->tokens, &(c)->values, &(c)->tops, &(c)->offsets}
enum { PART_COUNT = 5 };

void lq_answer_free(lq_answer *a) {
    for (int64_t i = 0; a->choices && i < a->prompt_count * a->n; i++) {
        lq_text *const parts[] = PARTS(&a->choices[i]);
        for (size_t k = 0; k < PART_COUNT; k++) lq_text_free(parts[k]);
    }
    for (int64_t i = 0; a->echoes && i < a->prompt_count; i++) lq_free(a->echoes[i].text);
    free(a->choices);
    free(a->echoes);
    cJSON_Delete(a->kept);
    lq_text_free(&a->out);
    *a = (lq_answer){0};
}

void lq_choice_said(lq_choice *c) {
    lq_text *const parts[] = PARTS(c);
    for (size_t k = 0; k < PART_COUNT; k++) parts[k]->n = 0;
    c->begun = true;
}

static size_t held(const lq_choice *c) { return c->text.n + c->tokens.n + c->values.n + c->tops.n + c->offsets.n; }

// What came since the last chunk; nothing, if nothing a client could see did.
static void chunk(lq_answer *a, int64_t index) {
    lq_choice *c = &a->choices[index];
    if (c->text.n == c->sent && !c->tokens.n && c->finish == LQ_RUNNING) return;
    a->dialect->chunk(a, index);
    c->begun = true;
    if (!a->dialect->whole) lq_choice_said(c);
    else c->sent = c->text.n;
}

static double mean(const lq_choice *c) { return c->count ? c->logprob / (double)c->count : 0; }

static int better(const void *x, const void *y) {
    const lq_choice *a = x, *b = y;
    return mean(a) > mean(b) ? -1 : mean(a) < mean(b);
}

static void answer_end(lq_answer *a) {
    for (int64_t i = 0; i < a->prompt_count * a->n; i++) {
        const lq_choice *c = &a->choices[i];
        if (c->text.failed || c->tokens.failed || c->values.failed || c->tops.failed || c->offsets.failed) {
            a->open = 1; // not ended yet: it ends with this
            lq_answer_fail(a, 500, "no memory for the answer");
            return;
        }
    }
    for (int64_t i = 0; i < a->prompt_count && a->n > a->shown; i++)
        qsort(a->choices + i * a->n, (size_t)a->n, sizeof *a->choices, better);
    if (a->stream) a->dialect->end(a);
    else a->dialect->body(a);
}

void lq_answer_fail(lq_answer *a, int status, const char *text) {
    if (!a->open) return;
    a->open = 0;
    lq_refuse(&a->failure, status, NULL, NULL, "%s", text);
    if (a->stream) a->dialect->fail(a);
}

// The logprobs of a prompt are told once, with its first choice, and belong to each.
static void prompt_event(lq_answer *a, int64_t prompt, const lq_event *e) {
    for (int64_t k = 0; k < a->n && a->echo && a->logprobs && !e->choice; k++) {
        lq_choice *c = &a->choices[prompt * a->n + k];
        const size_t before = held(c);
        a->dialect->tokens(a, c, e);
        if (!a->stream) a->bytes += held(c) - before;
        if (a->stream) chunk(a, prompt * a->n + k);
    }
}

static void count(lq_answer *a, lq_choice *c, const lq_event *e) {
    a->sampled_tokens += e->sampled_tokens - c->sampled;
    c->sampled = e->sampled_tokens;
    if (!e->choice) { // all choices share one prompt
        a->cached_tokens += e->cached_tokens - c->cached;
        c->cached = e->cached_tokens;
    }
    for (int i = 0; i < e->count && e->logprobs; i++) c->logprob += (double)e->logprobs[i];
    c->count += e->count;
}

static void choice_event(lq_answer *a, lq_choice *c, const lq_event *e) {
    const size_t before = held(c);
    count(a, c, e);
    if (e->text_len) lq_text_add(&c->text, e->text, e->text_len);
    if (((a->logprobs || a->details) && e->logprobs) || e->embedding) a->dialect->tokens(a, c, e);
    if (!a->stream) a->bytes += held(c) - before;
}

void lq_answer_event(lq_answer *a, int64_t prompt, const lq_event *e) {
    lq_choice *c = &a->choices[prompt * a->n + e->choice];
    if (!a->open || c->finish != LQ_RUNNING) return;
    if (e->prompt) prompt_event(a, prompt, e);
    else choice_event(a, c, e);
    if (e->finish == LQ_FAILED || e->finish == LQ_ABORTED) {
        lq_answer_fail(a, e->finish == LQ_FAILED ? 500 : 503, e->finish == LQ_FAILED &&
                       e->error ? e->error : "the request was ended by the server");
        return;
    }
    if (e->finish == LQ_LATE && !a->sampled_tokens) {
        lq_answer_fail(a, 504, "the request's time was over before its first token");
        return;
    }
    if (!a->stream && a->bytes > LQ_MAX_ANSWER) {
        lq_answer_fail(a, 400, "the answer has grown past 64 MiB: ask for less in one request");
        return;
    }
    if (e->finish != LQ_RUNNING) {
        c->finish = e->finish == LQ_LATE ? LQ_LENGTH : e->finish; // what there is was cut
        c->stop_index = e->stop_index;
        a->open--;
    }
    if (a->stream) chunk(a, prompt * a->n + e->choice);
    if (!a->open) answer_end(a);
}

// --- words of OpenAI's dialects ---

const char *lq_finish_name(lq_finish f) {
    return f == LQ_STOP ? "\"stop\"" : f == LQ_LENGTH ? "\"length\"" : "null";
}

void lq_usage_write(lq_answer *a) {
    lq_text_fmt(&a->out,
                "{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64
                ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "}}",
                a->prompt_tokens, a->sampled_tokens, a->prompt_tokens + a->sampled_tokens, a->cached_tokens);
}

void lq_fail_openai(lq_answer *a) {
    lq_text_fmt(&a->out, "data: ");
    lq_refusal_openai(&a->failure, &a->out);
    lq_text_fmt(&a->out, "\n\ndata: [DONE]\n\n");
}

void lq_json_pair(lq_text *out, const char *a, size_t an, const char *b, size_t bn) {
    lq_text_json(out, a, an);
    if (!bn || out->failed) return;
    const size_t seam = out->n - 1; // the first one's end and the second one's beginning go
    lq_text_json(out, b, bn);
    if (out->failed) return;
    memmove(out->p + seam, out->p + seam + 2, out->n - seam - 2);
    out->n -= 2;
}
