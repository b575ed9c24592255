// lq_batch.c: lq batch: a file of requests is answered into another. The work is lq_batch_run's; here is what may be
// asked, the bar, Ctrl-C, and what it came to.
#include "tools/verb.h"
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct batch_args {
    lq_common common;
    lq_model_args model;
    lq_answer_args answer;
    bool resume, force;
    lq_bar bar;
    bool begun;
} batch_args;

// --- what a person sees ---

static bool tick(void *arg, const lq_batch_state *now) {
    batch_args *a = arg;
    char note[64];
    if (!a->begun) {
        lq_bar_begin(&a->bar, "batch", "requests", (size_t)now->total, a->common.quiet);
        a->bar.from = (double)now->before;
        a->begun = true;
    }
    snprintf(note, sizeof note, "%s tok/s%s", lq_say_count((double)now->running_tokens / (now->seconds + 1e-9)),
             now->failed ? ", some failed" : "");
    lq_bar_at(&a->bar, (size_t)(now->before + now->done), note);
    return !lq_input_stopped();
}

static double rate(const lq_batch_state *s) { return (double)s->sampled_tokens / (s->seconds + 1e-9); }

static int print_json(const lq_batch_state *s) {
    lq_text t = {0};
    const struct { const char *name; uint64_t value; } rows[] = {
        {"requests", s->before + s->done}, {"before", s->before}, {"failed", s->before_failed + s->failed},
        {"prompt_tokens", s->prompt_tokens}, {"cached_tokens", s->cached_tokens},
        {"completion_tokens", s->sampled_tokens}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        lq_text_fmt(&t, "%s\"%s\":%" PRIu64, i ? "," : "{", rows[i].name, rows[i].value);
    lq_text_fmt(&t, ",\"seconds\":");
    lq_say_number(&t, s->seconds, 6);
    lq_text_fmt(&t, ",\"tokens_per_second\":");
    lq_say_number(&t, rate(s), 6);
    lq_text_fmt(&t, "}");
    return lq_say_json(&t);
}

static void print_line(const lq_batch_state *s, FILE *to) {
    lq_say(to, "%" PRIu64 " requests", s->done);
    if (s->before) lq_say(to, " and %" PRIu64 " before", s->before);
    if (s->failed) lq_say(to, ", %" PRIu64 " failed", s->failed);
    lq_say(to, "; %" PRIu64 " prompt tokens", s->prompt_tokens);
    if (s->cached_tokens) lq_say(to, " (%" PRIu64 " of them from the cache)", s->cached_tokens);
    lq_say_line(to, ", %" PRIu64 " sampled, %.1f tok/s; %s", s->sampled_tokens, rate(s), lq_say_time(s->seconds));
}

// Of a run that came to its end: its figures, and whether all went well.
static int tell_result(const batch_args *a, const lq_batch_state *s, const char *out) {
    const uint64_t failed = s->before_failed + s->failed;
    lq_err err;
    if (a->common.json && print_json(s)) return 1;
    if (!a->common.json && !a->common.quiet) print_line(s, strcmp(out, "-") ? stdout : stderr);
    if (!failed) return 0;
    lq_fail(&err, LQ_E_FORMAT, "%" PRIu64 " of %" PRIu64 " requests failed%s%s", failed, s->before + s->done,
            *s->failure ? "; the first one: " : ", all before this run", s->failure);
    return lq_say_error(&err);
}

// Of one that broke off: how far it came, and how it goes on.
static int tell_break(const batch_args *a, const lq_batch_state *s, const char *out, const lq_err *why) {
    lq_err err;
    char of[32] = "";
    (void)a;
    if (s->total) snprintf(of, sizeof of, " of %" PRIu64, s->total);
    lq_fail(&err, why->code, "%.300s; %" PRIu64 "%s requests are answered%s", why->text, s->before + s->done, of,
            strcmp(out, "-") ? ", --resume goes on with the others" : "");
    return lq_say_error(&err);
}

// --- the run ---

static bool answer(batch_args *a, lq_batch *b, const char *path, lq_err *err) {
    const lq_model_opts mo = lq_model_args_opts(&a->model);
    lq_engine_opts eo = lq_answer_args_opts(&a->answer);
    lq_model *m = NULL;
    lq_engine *e = NULL;
    if (!eo.max_prefill) eo.max_prefill = INT16_MAX; // nobody waits for a stream
    eo.max_queue = eo.max_seqs ? eo.max_seqs : 64; // as many wait as run: a step is never short of them
    bool done = lq_model_open(path, &mo, &m, err) && lq_engine_open(m, &eo, &e, err) && lq_engine_warm(e, err);
    if (done) {
        if (!a->common.quiet) lq_ctx_warn("batch", m);
        lq_input_catch();
        done = lq_batch_run(b, m, e, tick, a, err);
    }
    if (a->begun) lq_bar_end(&a->bar);
    if (e) lq_engine_close(e);
    if (m) lq_model_close(m);
    return done;
}

static int run(void *args, int argc, char **argv) {
    batch_args *a = args;
    const char *out = argv[2];
    lq_err err = {0};
    lq_batch *b = NULL;
    char *texts[2];
    int status;
    (void)argc;
    if (lq_model_args_check("batch", &a->model)) return 2;
    if (lq_answer_args_check("batch", &a->answer)) return 2;
    if (a->resume && a->force) return lq_say_usage("batch", "--resume and --force exclude each other");
    if (!strcmp(out, "-") && a->common.json)
        return lq_say_usage("batch", "--json: standard output is where the answers go");
    signal(SIGPIPE, SIG_IGN); // answers that nobody reads are an error of the write
    bool done = lq_answer_args_read(&a->answer, argv[0], texts, &err);
    const lq_batch_opts o = {.in = argv[1], .out = out, .resume = a->resume, .force = a->force,
                             .name = a->answer.name, .chat_template = a->answer.chat_template,
                             .max_body = a->answer.max_body};
    done = done && lq_batch_open(&o, &b, &err);
    if (!done) status = lq_say_error(&err);
    else {
        lq_batch_state s;
        done = answer(a, b, argv[0], &err);
        lq_batch_describe(b, &s);
        if (done) status = tell_result(a, &s, out);
        else status = a->begun ? tell_break(a, &s, out, &err) : lq_say_error(&err);
    }
    lq_batch_close(b);
    for (int i = 0; i < 2; i++) free(texts[i]);
    return status;
}

static const lq_opt opts[] = {
    {"resume", 0, LQ_OPT_FLAG, offsetof(batch_args, resume), NULL,
     "go on with what an interrupted run left: what OUT has answers to is not asked again", NULL, 0, 0},
    {"force", 'f', LQ_OPT_FLAG, offsetof(batch_args, force), NULL,
     "begin OUT anew if it has a batch's answers", NULL, 0, 0},
    LQ_ANSWER_OPTS(batch_args, answer),
    LQ_MODEL_OPTS(batch_args, model),
};
static const char *const examples[] = {
    "lq batch demo.lq in.jsonl out.jsonl", "answer every request of in.jsonl",
    "lq batch demo.lq in.jsonl out.jsonl --resume", "go on after Ctrl-C, a kill or a full disk",
    "lq batch demo.lq in.jsonl out.jsonl --name gpt-4o-mini", "requests that were written for another model",
    "lq batch demo.lq - - <in.jsonl | grep -v '\"error\":null'", "in a pipe: what failed", NULL};
const lq_verb lq_verb_batch = {
    .name = "batch", .synopsis = "MODEL IN OUT", .summary = "Answer a file of requests",
    .detail = "IN has lines as OpenAI's batches have them: {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", "
              "\"body\": {...}}, of every path whose answers `lq serve` makes with the model. Each is answered as the server "
              "would answer it, by a line of OUT with the same custom_id, in the order in which they end: {\"id\", \"custom_id\", \"response\": "
              "{\"status_code\", \"request_id\", \"body\"}, \"error\"}. IN and OUT may be -.\n\n"
              "What is refused is answered too: error is not null, and response has the status and the body that the server would have sent. "
              "So is a line that is no request: its custom_id and its response are null, error.line says which it is. "
              "A custom_id that stands twice is told before anything is asked.\n\n"
              "Ctrl-C, a kill or a full disk leave whole answers in OUT: the same command with --resume goes on from there. "
              "The exit status is 1 when a request failed.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(batch_args),
    .min_args = 3, .max_args = 3, .run = run};
