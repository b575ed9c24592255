// lq_run.c: lq run: generates text from a prompt and streams it to standard output as it comes.
// The text goes to stdout and nothing else does; the summary of speed goes to stderr.
// Ctrl-C ends after the current token.
#include "tools/verb.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run_args {
    lq_common common;
    lq_model_args model;
    const char *prompt, *prompt_file, *seed;
    lq_request ask; // what the engine is asked, as the options say it
    lq_list stop;
    bool special, raw;
} run_args;

// One generation: what a step says is printed, and kept for --json.
typedef struct reply {
    const run_args *a;
    const lq_model *model;
    lq_text text, ids, logprobs;
    double begun, first, last;
    int prompt_tokens, tokens;
    lq_finish finish;
    bool newline, screen; // screen: standard output is a terminal
    char torn[4];         // the beginning of a character, where tokens are parts of one
    size_t torn_n;
} reply;

static void keep_tokens(reply *r, const lq_event *e) {
    for (int i = 0; i < e->count; i++) {
        lq_text_fmt(&r->ids, "%s%d", r->ids.n ? "," : "", (int)e->tokens[i]);
        const char *comma = r->logprobs.n ? "," : "";
        if (e->logprobs && isfinite(e->logprobs[i])) lq_text_fmt(&r->logprobs, "%s%.9g", comma, (double)e->logprobs[i]);
        else lq_text_fmt(&r->logprobs, "%snull", comma);
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
static void show(reply *r, const char *text, size_t n) {
    char whole[sizeof r->torn + 256];
    while (n) {
        const size_t take = n < 256 ? n : 256;
        memcpy(whole, r->torn, r->torn_n);
        memcpy(whole + r->torn_n, text, take);
        const size_t have = r->torn_n + take, left = torn_bytes(whole, have);
        lq_say_text(stdout, whole, have - left, true);
        memcpy(r->torn, whole + have - left, left);
        r->torn_n = left;
        text += take, n -= take;
    }
}

static void put(reply *r, const char *text, size_t n) {
    if (!n) return;
    r->newline = text[n - 1] == '\n';
    lq_text_add(&r->text, text, n);
    if (r->a->common.json) return;
    if (r->screen) show(r, text, n);
    else fwrite(text, 1, n, stdout);
    fflush(stdout);
}

// --special: the tokens' own bytes, one after another: nothing that a text leaves out is left out.
static void put_tokens(reply *r, const lq_event *e) {
    for (int i = 0; i < e->count; i++) {
        char bytes[256];
        size_t n = lq_token_bytes(r->model, e->tokens[i], bytes, sizeof bytes);
        put(r, bytes, n < sizeof bytes ? n : sizeof bytes);
    }
}

static bool on_event(void *arg, const lq_event *e) {
    reply *r = arg;
    if (e->prompt) return true;
    if (e->count) {
        r->last = lq_seconds();
        if (!r->tokens) r->first = r->last;
        r->tokens += e->count;
    }
    r->prompt_tokens = e->prompt_tokens;
    r->finish = e->finish;
    keep_tokens(r, e);
    if (r->a->special) put_tokens(r, e);
    else put(r, e->text, e->text_len);
    return !lq_input_stopped();
}

static const char *finish_name(lq_finish f) {
    static const char *const names[] = {"running", "stop", "length", "aborted", "failed"};
    return names[f];
}

static double rate(double n, double seconds) { return seconds > 0 ? n / seconds : 0; }

static int print_json(const reply *r) {
    lq_text t = {0};
    double decode = r->tokens > 1 ? r->last - r->first : 0;
    lq_text_fmt(&t, "{\"text\":");
    lq_text_json(&t, r->text.p ? r->text.p : "", r->text.n);
    lq_text_fmt(&t, ",\"ids\":[%.*s],\"logprobs\":[%.*s],\"finish\":\"%s\"", (int)r->ids.n, r->ids.p ? r->ids.p : "",
                (int)r->logprobs.n, r->logprobs.p ? r->logprobs.p : "", finish_name(r->finish));
    lq_text_fmt(&t, ",\"prompt_tokens\":%d,\"tokens\":%d,\"first_token_s\":%.6f,\"decode_s\":%.6f", r->prompt_tokens,
                r->tokens, r->tokens ? r->first - r->begun : 0, decode);
    lq_text_fmt(&t, ",\"prompt_tok_s\":%.3f,\"decode_tok_s\":%.3f}", rate(r->prompt_tokens, r->first - r->begun),
                rate(r->tokens - 1, decode));
    return lq_say_json(&t);
}

static void print_summary(const reply *r) {
    if (!r->tokens) return;
    double wait = r->first - r->begun, decode = r->last - r->first;
    lq_say_style(stderr, "2");
    fprintf(stderr, "%d prompt tokens, %.1f tok/s; first token after %s; %d tokens", r->prompt_tokens,
            rate(r->prompt_tokens, wait),
            lq_say_time(wait), r->tokens);
    if (r->tokens > 1) fprintf(stderr, ", %.1f tok/s", rate(r->tokens - 1, decode));
    fprintf(stderr, "; ended by %s", finish_name(r->finish));
    lq_say_style(stderr, "");
    fputc('\n', stderr);
}

// --- what is asked ---

enum { PROMPT_LIMIT = 64 << 20 };

// The prompt from wherever it was given; *owned is to be freed.
static int read_prompt(const run_args *a, int argc, char **argv, const char **prompt, size_t *n, char **owned) {
    lq_err err;
    const char *word = argc > 1 ? argv[1] : NULL;
    if ((word != NULL) + (a->prompt != NULL) + (a->prompt_file != NULL) > 1)
        return lq_say_usage("run", "more than one prompt");
    const char *file = a->prompt_file;
    if (!word) word = a->prompt;
    if (!word && !file && isatty(STDIN_FILENO))
        return lq_say_usage("run", "no prompt: give one after the model, or pipe it in");
    if (!word) {
        if (!lq_input_read(file ? file : "-", PROMPT_LIMIT, owned, n, &err)) return lq_say_error(&err);
        *prompt = *owned;
    } else {
        *prompt = word;
        *n = strlen(word);
    }
    return 0;
}

static bool generate(lq_model *m, lq_engine *e, const run_args *a, const char *prompt, size_t n, reply *r,
                     lq_err *err) {
    int32_t *ids = NULL;
    size_t count = 0;
    if (!lq_tokenize(m, prompt, n, a->raw ? 0 : LQ_TOK_SPECIAL | LQ_TOK_PARSE, &ids, &count, err)) return false;
    if (!count) {
        lq_free(ids);
        return lq_fail(err, LQ_E_USAGE, "the prompt is empty, and this model has no token that begins a text");
    }
    lq_request q = a->ask;
    q.prompt = ids;
    q.prompt_len = count;
    q.on_event = on_event;
    q.arg = r;
    r->begun = lq_seconds();
    bool done = lq_generate(e, &q, err);
    lq_free(ids);
    return done || (r->finish == LQ_ABORTED && lq_input_stopped());
}

static int run_model(const char *path, const run_args *a, const char *prompt, size_t n) {
    lq_err err = {0};
    lq_model *m = NULL;
    lq_engine *e = NULL;
    lq_model_opts mo = lq_model_args_opts(&a->model);
    lq_engine_opts eo = {.max_seqs = 1};
    int status = 0;
    reply r = {.a = a, .newline = true, .screen = isatty(STDOUT_FILENO)};
    bool done = lq_model_open(path, &mo, &m, &err) && lq_engine_open(m, &eo, &e, &err);
    if (done) {
        lq_input_catch();
        r.model = m;
        done = generate(m, e, a, prompt, n, &r, &err);
        if (done && a->common.json) status = print_json(&r);
        lq_say_text(stdout, r.torn, r.torn_n, true);
        if (!a->common.json && !r.newline) putchar('\n');
        fflush(stdout);
        if (done && !a->common.json && !a->common.quiet) print_summary(&r);
    }
    lq_text_free(&r.text);
    lq_text_free(&r.ids);
    lq_text_free(&r.logprobs);
    if (e) lq_engine_close(e);
    if (m) lq_model_close(m);
    return done ? status : lq_say_error(&err);
}

static int run(void *args, int argc, char **argv) {
    run_args *a = args;
    a->ask.stop = a->stop.p;
    a->ask.stops = (int)a->stop.n;
    a->ask.logprobs = a->common.json;
    if (a->seed) {
        char *end;
        errno = 0;
        a->ask.sampling.seeded = true;
        a->ask.sampling.seed = strtoull(a->seed, &end, 10);
        if (*a->seed < '0' || *a->seed > '9' || *end || errno)
            return lq_say_usage("run", "--seed: %s is no whole number from 0 to %llu", a->seed,
                                (unsigned long long)UINT64_MAX);
    }
    const char *prompt = NULL;
    char *owned = NULL;
    size_t n = 0;
    int status = read_prompt(a, argc, argv, &prompt, &n, &owned);
    if (!status) status = run_model(argv[0], a, prompt, n);
    free(owned);
    return status;
}

#define ASK(field) offsetof(run_args, ask.field)
static const lq_opt opts[] = {
    {"prompt", 'p', LQ_OPT_TEXT, offsetof(run_args, prompt), "TEXT",
     "what to continue; else the word after MODEL, else standard input", NULL, 0, 0},
    {"prompt-file", 0, LQ_OPT_FILE, offsetof(run_args, prompt_file), "FILE", "read the prompt from a file", NULL, 0, 0},
    {"max-tokens", 'n', LQ_OPT_INT32, ASK(max_tokens), "N", "stop after N tokens (default: the context's end)", NULL, 1,
     1 << 24},
    {"min-tokens", 0, LQ_OPT_INT32, ASK(min_tokens), "N", "do not end before N tokens", NULL, 0, 1 << 24},
    {"temp", 0, LQ_OPT_FLOAT, ASK(sampling.temperature), "X", "temperature; 0 (default): always the likeliest token",
     NULL, 0, 100},
    {"top-k", 0, LQ_OPT_INT32, ASK(sampling.top_k), "N", "draw from the N likeliest tokens; 0: off", NULL, 0, 1 << 24},
    {"top-p", 0, LQ_OPT_FLOAT, ASK(sampling.top_p), "X",
     "draw from the likeliest tokens that together have probability X; 0: off", NULL, 0, 1},
    {"min-p", 0, LQ_OPT_FLOAT, ASK(sampling.min_p), "X",
     "leave out tokens less likely than X times the likeliest; 0: off", NULL, 0, 1},
    {"typical", 0, LQ_OPT_FLOAT, ASK(sampling.typical), "X",
     "draw from the most typical tokens of probability X; 0: off", NULL, 0, 1},
    {"repeat-penalty", 0, LQ_OPT_FLOAT, ASK(sampling.repetition), "X",
     "make tokens that were there less likely; 0 or 1: off", NULL, 0, 100},
    {"presence-penalty", 0, LQ_OPT_FLOAT, ASK(sampling.presence), "X",
     "take X from tokens that were sampled already; 0: off", NULL, -100, 100},
    {"frequency-penalty", 0, LQ_OPT_FLOAT, ASK(sampling.frequency), "X", "take X for each time they were; 0: off", NULL,
     -100, 100},
    {"seed", 0, LQ_OPT_TEXT, offsetof(run_args, seed), "N",
     "the same seed draws the same text (default: a new one each time)", NULL, 0, 0},
    {"stop", 0, LQ_OPT_LIST, offsetof(run_args, stop), "TEXT", "end before this text; may be given again", NULL, 0, 0},
    {"ignore-eos", 0, LQ_OPT_FLAG, ASK(ignore_eos), NULL, "go on past the token that ends a text", NULL, 0, 0},
    {"special", 0, LQ_OPT_FLAG, offsetof(run_args, special), NULL, "print every token as it is, special ones too", NULL,
     0, 0},
    {"raw", 0, LQ_OPT_FLAG, offsetof(run_args, raw), NULL,
     "the prompt as it is: add no token that begins a text, read none in it", NULL, 0, 0},
    LQ_MODEL_OPTS(run_args, model),
};
static const char *const examples[] = {
    "lq run demo.lq \"Once upon a time\" -n 40", "40 tokens, always the likeliest",
    "lq run demo.lq -p \"The river\" --temp 0.8 --top-p 0.95 --seed 7", "drawn, and the same text each time",
    "cat question.txt | lq run demo.lq --json", "the prompt from a pipe; ids, logprobs and times as JSON", NULL};
const lq_verb lq_verb_run = {
    .name = "run", .synopsis = "MODEL [PROMPT]", .summary = "Generate text",
    .detail = "Continues a prompt and prints the text as it comes. The summary of speed goes to standard error. Ctrl-C ends the text cleanly.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(run_args),
    .min_args = 1, .max_args = 2, .run = run};
