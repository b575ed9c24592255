// lq_run.c: lq run: asks a model: a conversation where it has a chat template, else a text that is continued. The
// answer goes to stdout as it comes and nothing else does; figures go to stderr. Ctrl-C ends it after a token.
#include "tools/run.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run_args {
    lq_common common;
    lq_model_args model;
    const char *prompt, *prompt_file, *seed, *system, *messages;
    lq_request ask; // what the engine is asked, as the options say it
    lq_list stop, vars;
    lq_template_var *var; // [vars.n] what they say
    bool special, raw, no_special, draw;
} run_args;

// --- what is asked ---

enum { PROMPT_LIMIT = 64 << 20 };

// The prompt from wherever it was given; *owned is to be freed. Left NULL where a user is asked for it, and where
// --messages end with what is to be answered.
static int read_prompt(const run_args *a, int argc, char **argv, const char **prompt, size_t *n, char **owned) {
    lq_err err;
    const char *word = argc > 1 ? argv[1] : NULL;
    if ((word != NULL) + (a->prompt != NULL) + (a->prompt_file != NULL) > 1)
        return lq_say_usage("run", "more than one prompt");
    const char *file = a->prompt_file;
    if (!word) word = a->prompt;
    if (!word && !file && isatty(STDIN_FILENO)) {
        if (a->common.json && !a->messages)
            return lq_say_usage("run", "no prompt: give one after the model, or pipe it in");
        return 0;
    }
    if (!word && (file || !a->messages)) {
        if (!lq_input_read(file ? file : "-", PROMPT_LIMIT, owned, n, &err)) return lq_say_error(&err);
        *prompt = *owned;
    } else if (word) {
        *prompt = word;
        *n = strlen(word);
    }
    return 0;
}

static int read_vars(run_args *a) {
    static const lq_err memory = {LQ_E_MEMORY, "no memory for --var"};
    int status = 0;
    a->var = calloc(a->vars.n + 1, sizeof *a->var);
    if (!a->var) return lq_say_error(&memory);
    for (size_t i = 0; i < a->vars.n && !status; i++) status = lq_opts_var("run", a->vars.p[i], &a->var[i]);
    return status;
}

// The template of a model that has one, unless the prompt is to be taken as it is.
static bool open_template(const run_args *a, const lq_model *m, lq_template **out, lq_err *err) {
    *out = NULL;
    if (a->raw || lq_template_of(m, NULL, out, err)) return true;
    if (err->code != LQ_E_UNSUPPORTED) return lq_fail_in(err, "--raw goes on without it");
    return (!a->system && !a->messages && !a->vars.n) || lq_fail_in(err, "--system, --messages and --var need one");
}

static int run_model(const char *path, const run_args *a, const char *prompt, size_t n) {
    lq_err err = {0};
    lq_model *m = NULL;
    lq_engine *e = NULL;
    lq_template *t = NULL;
    lq_model_opts mo = lq_model_args_opts(&a->model);
    lq_engine_opts eo = {.max_seqs = 1};
    int status = 0;
    const double start = lq_seconds();
    const bool done = lq_model_open(path, &mo, &m, &err) && lq_engine_open(m, &eo, &e, &err) &&
                      open_template(a, m, &t, &err);
    if (done) {
        const lq_chat_opts o = {.model = m, .engine = e, .tmpl = t, .ask = &a->ask, .system = a->system,
                                .messages = a->messages, .vars = a->var, .var_count = a->vars.n, .json = a->common.json,
                                .quiet = a->common.quiet, .draw = a->draw, .special = a->special,
                                .no_special = a->no_special, .loaded = lq_seconds() - start};
        const bool talk = !prompt && isatty(STDIN_FILENO) && !a->common.json;
        status = talk ? lq_chat_talk(&o) : lq_chat_once(&o, prompt, n);
    }
    lq_template_close(t);
    if (e) lq_engine_close(e);
    if (m) lq_model_close(m);
    return done ? status : lq_say_error(&err);
}

static int run(void *args, int argc, char **argv) {
    run_args *a = args;
    a->ask.stop = a->stop.p;
    a->ask.stops = (int)a->stop.n;
    a->ask.logprobs = a->common.json;
    if (lq_model_args_check("run", &a->model)) return 2;
    if (a->raw && (a->system || a->messages || a->vars.n))
        return lq_say_usage("run", "--raw takes no --system, --messages or --var: there is no conversation");
    a->ask.sampling.seeded = a->seed != NULL;
    if (a->seed && lq_opts_seed("run", a->seed, UINT64_MAX, &a->ask.sampling.seed)) return 2;
    const char *prompt = NULL;
    char *owned = NULL;
    size_t n = 0;
    int status = read_vars(a);
    if (!status) status = read_prompt(a, argc, argv, &prompt, &n, &owned);
    if (!status) status = run_model(argv[0], a, prompt, n);
    for (size_t i = 0; a->var && i < a->vars.n; i++) free((char *)(uintptr_t)a->var[i].name);
    free(a->var);
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
     "continue the prompt as it is, also where the model has a chat template", NULL, 0, 0},
    {"no-special", 0, LQ_OPT_FLAG, offsetof(run_args, no_special), NULL,
     "of a prompt as it is: add no token that begins a text, read none in it", NULL, 0, 0},
    {"system", 0, LQ_OPT_TEXT, offsetof(run_args, system), "TEXT", "what the conversation begins with: who answers, and how",
     NULL, 0, 0},
    {"messages", 0, LQ_OPT_FILE, offsetof(run_args, messages), "FILE",
     "go on with a conversation, a JSON list of {\"role\": ..., \"content\": ...}", NULL, 0, 0},
    {"var", 0, LQ_OPT_LIST, offsetof(run_args, vars), "NAME=JSON",
     "a variable of the chat template, enable_thinking=false say; may be given again", NULL, 0, 0},
    {"draw", 0, LQ_OPT_FLAG, offsetof(run_args, draw), NULL,
     "tell how sure the model was, and of which tokens the least", NULL, 0, 0},
    LQ_MODEL_OPTS(run_args, model),
};
static const char *const examples[] = {
    "lq run chat.lq", "a conversation; /help says what else it does",
    "lq run chat.lq \"Why is the sky blue?\" --system \"Answer in a line.\"", "one question",
    "lq run demo.lq \"Once upon a time\" -n 40", "a model without a chat template goes on: 40 tokens, always the likeliest",
    "lq run demo.lq -p \"The river\" --temp 0.8 --top-p 0.95 --seed 7", "drawn, and the same text each time",
    "cat question.txt | lq run demo.lq --json", "the prompt from a pipe; ids, logprobs and times as JSON", NULL};
const lq_verb lq_verb_run = {
    .name = "run", .synopsis = "MODEL [PROMPT]", .summary = "Talk to a model, or let it continue a text",
    .detail = "Where the model has a chat template, the prompt is what a user says and the model answers; without a prompt on a terminal, a "
              "conversation begins. Else, and with --raw, the prompt is continued as it is. The text goes to standard output, figures to "
              "standard error. Ctrl-C ends an answer cleanly, twice the program.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(run_args),
    .min_args = 1, .max_args = 2, .run = run};
