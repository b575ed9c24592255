// reply.c: one answer of a model as it comes: printed, kept, and its figures told. Owns the texts of an lq_reply.
#include "tools/run.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void keep_tokens(lq_reply *a, const lq_event *e) {
    for (int i = 0; i < e->count; i++) {
        lq_text_fmt(&a->ids, "%s%d", a->ids.n ? "," : "", (int)e->tokens[i]);
        const char *comma = a->logprobs.n ? "," : "";
        if (e->logprobs && isfinite(e->logprobs[i])) lq_text_fmt(&a->logprobs, "%s%.9g", comma, (double)e->logprobs[i]);
        else lq_text_fmt(&a->logprobs, "%snull", comma);
        if (!a->keep_draws || !e->logprobs || !lq_grow((void **)&a->draw, a->draws, &a->draw_cap, sizeof *a->draw))
            continue;
        lq_drew *d = &a->draw[a->draws++];
        *d = (lq_drew){.id = e->tokens[i], .logprob = e->logprobs[i], .tops = e->top_n < 3 ? e->top_n : 3};
        for (int k = 0; k < d->tops; k++) d->top[k] = e->top[i * e->top_n + k];
    }
}

// How many bytes at the end of text[0..n) begin a character whose rest is to come.
static size_t torn_bytes(const char *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)text[n - back];
        if (c >= 0xc0) return back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : 2u) ? back : 0;
        if (c < 0x80) break;
    }
    return 0;
}

// A terminal gets whole characters, and none that it would obey.
static void show(lq_reply *a, const char *text, size_t n) {
    char whole[sizeof a->torn + 256];
    while (n) {
        const size_t take = n < 256 ? n : 256;
        memcpy(whole, a->torn, a->torn_n);
        memcpy(whole + a->torn_n, text, take);
        const size_t have = a->torn_n + take, left = torn_bytes(whole, have);
        lq_say_text(stdout, whole, have - left, true);
        memcpy(a->torn, whole + have - left, left);
        a->torn_n = left;
        text += take, n -= take;
    }
}

static void put(lq_reply *a, const char *text, size_t n) {
    if (!n) return;
    a->newline = text[n - 1] == '\n';
    lq_text_add(&a->text, text, n);
    if (a->quiet) return;
    if (a->screen) show(a, text, n);
    else fwrite(text, 1, n, stdout);
    fflush(stdout);
}

// The tokens' own bytes, one after another: nothing that a text leaves out is left out.
static void put_tokens(lq_reply *a, const lq_event *e) {
    for (int i = 0; i < e->count; i++) {
        char bytes[256];
        size_t n = lq_token_bytes(a->model, e->tokens[i], bytes, sizeof bytes);
        put(a, bytes, n < sizeof bytes ? n : sizeof bytes);
    }
}

static bool on_event(void *arg, const lq_event *e) {
    lq_reply *a = arg;
    if (e->prompt) return true;
    if (e->count) {
        a->last = lq_seconds();
        if (!a->tokens) a->first = a->last;
        a->tokens += e->count;
    }
    a->prompt_tokens = e->prompt_tokens;
    a->cached = e->cached_tokens;
    a->finish = e->finish;
    keep_tokens(a, e);
    if (a->special) put_tokens(a, e);
    else put(a, e->text, e->text_len);
    return !lq_input_stopped();
}

bool lq_reply_get(lq_reply *a, const lq_model *m, lq_engine *e, const lq_request *ask, const char *prompt, size_t n,
                   int tok_flags, lq_err *err) {
    int32_t *ids = NULL;
    size_t count = 0;
    a->model = m;
    a->newline = true;
    a->screen = isatty(STDOUT_FILENO);
    a->begun = lq_seconds();
    if (!lq_tokenize(a->model, prompt, n, tok_flags, &ids, &count, err)) return false;
    if (!count) {
        lq_free(ids);
        return lq_fail(err, LQ_E_USAGE, "the prompt is empty, and this model has no token that begins a text");
    }
    lq_request q = *ask;
    q.prompt = ids;
    q.prompt_len = count;
    q.on_event = on_event;
    q.arg = a;
    if (a->keep_draws) q.logprobs = true, q.top_n = 3;
    const bool done = lq_generate(e, &q, err);
    lq_free(ids);
    return done || (a->finish == LQ_ABORTED && lq_input_stopped());
}

void lq_reply_end(lq_reply *a) {
    lq_say_text(stdout, a->torn, a->torn_n, true);
    a->torn_n = 0;
    if (!a->quiet && !a->newline) putchar('\n');
    fflush(stdout);
}

static const char *finish_name(lq_finish f) {
    static const char *const names[] = {"running", "stop", "length", "aborted", "failed"};
    return names[f];
}

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

int lq_reply_json(const lq_reply *a) {
    lq_text t = {0};
    const double decode = a->tokens > 1 ? a->last - a->first : 0;
    lq_text_fmt(&t, "{\"text\":");
    lq_text_json(&t, a->text.p ? a->text.p : "", a->text.n);
    lq_text_fmt(&t, ",\"ids\":[%.*s],\"logprobs\":[%.*s],\"finish\":\"%s\"", (int)a->ids.n, a->ids.p ? a->ids.p : "",
                (int)a->logprobs.n, a->logprobs.p ? a->logprobs.p : "", finish_name(a->finish));
    lq_text_fmt(&t, ",\"prompt_tokens\":%d,\"tokens\":%d,\"load_s\":%.6f,\"first_token_s\":%.6f,\"decode_s\":%.6f",
                a->prompt_tokens, a->tokens, a->loaded, a->tokens ? a->first - a->begun : 0, decode);
    lq_text_fmt(&t, ",\"prompt_tok_s\":%.3f,\"decode_tok_s\":%.3f}", rate(a->prompt_tokens, a->first - a->begun),
                rate(a->tokens - 1, decode));
    return lq_say_json(&t);
}

void lq_reply_summary(const lq_reply *a) {
    if (!a->tokens) return;
    const double wait = a->first - a->begun, decode = a->last - a->first;
    lq_say_style(stderr, "2");
    if (a->loaded > 0) fprintf(stderr, "loaded in %s; ", lq_say_time(a->loaded));
    fprintf(stderr, "%d prompt tokens", a->prompt_tokens);
    if (a->cached) fprintf(stderr, ", %d of them new", a->prompt_tokens - a->cached);
    fprintf(stderr, ", %.1f tok/s; first token after %s; %d tokens", rate(a->prompt_tokens - a->cached, wait),
            lq_say_time(wait), a->tokens);
    if (a->tokens > 1) fprintf(stderr, ", %.1f tok/s", rate(a->tokens - 1, decode));
    const size_t memory = lq_input_memory();
    if (memory) fprintf(stderr, "; %s beside the model's file", lq_say_bytes((double)memory));
    fprintf(stderr, "; ended by %s", finish_name(a->finish));
    lq_say_style(stderr, "");
    fputc('\n', stderr);
}

// --- how sure it was ---

// The text of a token, in quotes; allocated by nobody: of one of a few buffers.
static const char *token_text(const lq_model *m, int32_t id) {
    static char buf[4][160];
    static int at;
    char bytes[32], *out = buf[at++ & 3];
    const size_t n = lq_token_bytes(m, id, bytes, sizeof bytes);
    snprintf(out, sizeof buf[0], "'%.*s'", (int)(n < sizeof bytes ? n : sizeof bytes), bytes);
    return out;
}

static int by_logprob(const void *x, const void *y) {
    const lq_drew *a = *(const lq_drew *const *)x, *b = *(const lq_drew *const *)y;
    return a->logprob < b->logprob ? -1 : a->logprob > b->logprob ? 1 : a < b ? -1 : a > b;
}

void lq_reply_draws(const lq_reply *a) {
    enum { SHOWN = 8 };
    static const char *const head[] = {"token", "of the answer", "probability", "likelier"};
    double sum = 0;
    size_t best = 0;
    const lq_drew **order = calloc(a->draws + 1, sizeof *order);
    if (!order || !a->draws) {
        free(order);
        return;
    }
    for (size_t i = 0; i < a->draws; i++) {
        order[i] = &a->draw[i];
        sum += (double)a->draw[i].logprob;
        best += a->draw[i].tops > 0 && a->draw[i].top[0].id == a->draw[i].id;
    }
    qsort(order, a->draws, sizeof *order, by_logprob);
    fprintf(stderr, "%zu tokens: %.1f %% the likeliest, perplexity %.3f. The least likely:\n", a->draws,
            100.0 * (double)best / (double)a->draws, exp(-sum / (double)a->draws));
    lq_table *t = lq_table_new(4, head);
    for (size_t i = 0; i < a->draws && i < SHOWN; i++) {
        const lq_drew *d = order[i];
        char at[24], p[24], more[400] = "";
        snprintf(at, sizeof at, "%zu", (size_t)(d - a->draw) + 1);
        snprintf(p, sizeof p, "%.2f %%", 100 * exp((double)d->logprob));
        for (int k = 0; k < d->tops && d->top[k].id != d->id; k++)
            snprintf(more + strlen(more), sizeof more - strlen(more), "%s%s %.0f %%", k ? ", " : "",
                     token_text(a->model, d->top[k].id), 100 * exp((double)d->top[k].logprob));
        lq_table_row(t, (const char *[]){token_text(a->model, d->id), at, p, more});
    }
    lq_table_print(t, stderr);
    free(order);
}

void lq_reply_free(lq_reply *a) {
    lq_text_free(&a->text);
    lq_text_free(&a->ids);
    lq_text_free(&a->logprobs);
    free(a->draw);
    *a = (lq_reply){.quiet = a->quiet, .special = a->special, .keep_draws = a->keep_draws};
}
