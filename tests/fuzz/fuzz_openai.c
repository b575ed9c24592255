// fuzz_openai.c: any bytes as the body of a request in every protocol. What is refused has a status, a reason and a
// JSON error; what is taken is within its limits, and the answer to it is JSON, whatever its text is made of.
#include "runtime/serve/server.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const lq_json_limits whole = {.bytes = (size_t)1 << 30, .depth = 32};

static void must(bool cond) {
    if (!cond) abort();
}

static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
                                    "/generate", "/generate_stream", "/", "/v1/embeddings"};

static void refused(const lq_refusal *no, const char *path) {
    lq_text out = {0};
    must((no->status == 400 || no->status == 422 || no->status == 404 || no->status == 500) && no->text[0]);
    lq_refusal_write(no, path, "req-1", &out);
    must(!out.failed && lq_json_check(out.p, out.n, whole, "error", NULL));
    lq_text_free(&out);
}

static void taken(const lq_completion *c, const lq_api *api) {
    const lq_request *q = &c->ask;
    const lq_sampling *s = &q->sampling;
    must(c->prompt_count > 0 && q->n >= 1 && q->n <= 128 && q->max_tokens >= 0 && c->logprobs >= -1 &&
         c->logprobs <= 20);
    must(s->temperature >= 0 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 && s->min_p <= 1 && s->repetition > 0 &&
         s->top_k >= 0);
    for (int64_t i = 0; i < c->prompt_count; i++) {
        const lq_prompt *p = &c->prompts[i];
        must(p->text ? strlen(p->text) == p->len : p->ids != NULL);
        for (size_t k = 0; k < p->count; k++) must(p->ids[k] >= 0 && p->ids[k] < api->vocab);
    }
    for (int64_t i = 0; i < q->stops; i++) must(q->stop[i] && *q->stop[i]);
    for (int64_t i = 0; i < s->biases; i++) must(s->bias_id[i] >= 0 && s->bias_id[i] < api->vocab);
    for (int64_t i = 0; i < c->prompt_count; i++) must(lq_completion_request(c, i).n == q->n);
}

// Events, of which one may be named before its data; each is JSON but OpenAI's last.
static void stream_check(const lq_text *out) {
    size_t at = 0;
    while (at < out->n) {
        const char *line = out->p + at, *end = memmem(line, out->n - at, "\n\n", 2);
        must(end != NULL);
        if (!memcmp(line, "event: ", 7)) line = memchr(line, '\n', (size_t)(end - line)), must(line++ != NULL);
        must(!memcmp(line, "data:", 5));
        line += 5;
        if (*line == ' ') line++;
        at = (size_t)(end + 2 - out->p);
        must((at == out->n && !memcmp(line, "[DONE]", 6)) ||
             lq_json_check(line, (size_t)(end - line), whole, "chunk", NULL));
    }
}

// The engine's part: the bytes of the request come back as text, a few at a time, to every choice in turn.
static void answered(const lq_api *api, lq_completion *c, const char *text, size_t n) {
    lq_answer a;
    c->echo = c->echo && c->prompts[0].text && c->prompt_count == 1; // tokens to echo would need a model
    c->ask.logprobs = false;
    must(lq_answer_begin(&a, api, c, 1, 2));
    const int64_t choices = c->prompt_count * c->ask.n;
    for (int64_t i = 0; i < choices; i++)
        for (size_t at = 0, step; at <= n; at += step) {
            step = 1 + (at + (size_t)i) % 7;
            if (step > n - at) step = n - at + 1;
            const size_t len = at + step > n ? n - at : step;
            lq_answer_event(&a, i / c->ask.n, &(lq_event){.choice = (int)(i % c->ask.n), .text = text + at,
                                                          .text_len = len, .stop_index = -1,
                                                      .finish = at + step > n ? LQ_STOP : LQ_RUNNING,
                                                      .sampled_tokens = 3});
        }
    must(a.open == 0 && !a.out.failed && !a.failure.status);
    if (a.stream) stream_check(&a.out);
    else must(lq_json_check(a.out.p, a.out.n, whole, "answer", NULL));
    lq_answer_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ tools }}";
    static lq_template *tmpl;
    if (!tmpl) must(lq_template_parse(text, sizeof text - 1, "template", &tmpl, NULL));
    const lq_api api = {.name = "demo", .vocab = 32000, .ctx = 4096, .max_body = 1 << 16, .tmpl = tmpl,
                        .defaults = {.temperature = 1, .top_p = 1, .repetition = 1}};
    const char *body = (const char *)data;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        lq_completion c;
        lq_refusal no = {0};
        if (!lq_completion_parse(&api, lq_dialect_at(paths[i]), body, size, &c, &no)) {
            refused(&no, paths[i]);
            continue;
        }
        taken(&c, &api);
        if (c.prompt_count * c.ask.n <= 8 && size <= 4096) answered(&api, &c, body, size);
        lq_completion_free(&c);
    }
    return 0;
}
