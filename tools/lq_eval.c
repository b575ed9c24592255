// lq_eval.c: lq eval: perplexity of a model on a text, by both protocols that others publish, in exact arithmetic first
// and then as the model is served. The computation is lq_perplexity's; here it is asked for and printed.
#include "tools/verb.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct eval_args {
    lq_common common;
    lq_model_args model;
    const char *text, *protocol;
    int64_t windows, window;
    bool served;
} eval_args;

static const char *protocol_choice(size_t i) { return i ? lq_ppl_name(i - 1) : "all"; }

typedef struct row { const char *protocol, *mode; lq_ppl ppl; } row;

typedef struct progress { lq_bar bar; } progress;

static bool tick(void *arg, size_t done, size_t total, double ppl) {
    progress *p = arg;
    char note[48];
    p->bar.total = total;
    snprintf(note, sizeof note, "perplexity %.4f", ppl);
    lq_bar_at(&p->bar, done, note);
    return !lq_input_stopped();
}

enum { ROWS = 16 };

typedef struct job {
    const eval_args *a;
    const char *path, *text;
    size_t n;
    row rows[ROWS];
    int count;
    lq_model_info info; // of the model in its last mode
    char devices[2][96];
} job;

static bool measure(job *j, lq_engine *e, const char *mode, lq_err *err) {
    const char *want = j->a->protocol ? j->a->protocol : "all", *protocol;
    for (size_t p = 0; (protocol = lq_ppl_name(p)) && j->count < ROWS; p++) {
        if (strcmp(want, "all") && strcmp(want, protocol)) continue;
        char what[48];
        snprintf(what, sizeof what, "%s %s", protocol, mode);
        progress bar;
        lq_bar_begin(&bar.bar, what, "windows", 1, j->a->common.quiet);
        lq_ppl_opts o = {.protocol = (lq_ppl_protocol)p, .window = (int)j->a->window,
                         .max_windows = (size_t)j->a->windows, .tick = tick, .arg = &bar};
        row *r = &j->rows[j->count];
        *r = (row){.protocol = protocol, .mode = mode};
        bool done = lq_perplexity(e, j->text, j->n, &o, &r->ppl, err);
        lq_bar_end(&bar.bar);
        if (!done) return false;
        j->count++;
    }
    return true;
}

// One arithmetic: the model is opened for it, because exactness is decided where weights and buffers are bound.
static bool measure_mode(job *j, bool exact, lq_err *err) {
    lq_model_opts mo = lq_model_args_opts(&j->a->model);
    lq_engine_opts eo = {.max_seqs = 1};
    lq_model *m = NULL;
    lq_engine *e = NULL;
    mo.exact = exact;
    bool done = lq_model_open(j->path, &mo, &m, err) && lq_engine_open(m, &eo, &e, err);
    if (done) {
        lq_model_describe(m, &j->info);
        memcpy(j->devices[!exact], j->info.device, sizeof j->info.device);
        done = measure(j, e, exact ? "exact" : "default", err);
    }
    if (e) lq_engine_close(e);
    if (m) lq_model_close(m);
    return done;
}

static int print_json(const job *j) {
    lq_text t = {0};
    lq_text_fmt(&t, "{\"model\":");
    lq_text_json(&t, j->path, strlen(j->path));
    lq_text_fmt(&t, ",\"arch\":\"%s\",\"quant\":\"%s\",\"text\":", j->info.arch, j->info.quant);
    lq_text_json(&t, j->a->text, strlen(j->a->text));
    lq_text_fmt(&t, ",\"results\":[");
    for (int i = 0; i < j->count; i++) {
        const row *r = &j->rows[i];
        lq_text_fmt(&t, "%s{\"protocol\":\"%s\",\"mode\":\"%s\",\"device\":", i ? "," : "", r->protocol, r->mode);
        const char *device = j->devices[strcmp(r->mode, "exact") != 0];
        lq_text_json(&t, device, strlen(device));
        lq_text_fmt(&t, ",\"perplexity\":");
        lq_say_number(&t, r->ppl.ppl, 9);
        lq_text_fmt(&t, ",\"standard_error\":");
        lq_say_number(&t, r->ppl.error, 9);
        lq_text_fmt(&t, ",\"nll\":");
        lq_say_number(&t, r->ppl.nll, 9);
        lq_text_fmt(&t, ",\"tokens\":%zu,\"windows\":%zu,\"window\":%d,\"seconds\":%.3f}", r->ppl.tokens,
                    r->ppl.windows, r->ppl.window, r->ppl.seconds);
    }
    lq_text_fmt(&t, "]}");
    return lq_say_json(&t);
}

static void print_text(const job *j) {
    lq_say_line(stdout, "%s: %s, %s, %s", j->path, j->info.arch, j->info.quant, j->devices[j->devices[0][0] ? 0 : 1]);
    static const char *const head[] = {"protocol", "arithmetic", "perplexity", "+-", "windows", "of", "tokens", "time"};
    lq_table *t = lq_table_new(8, head);
    for (int i = 0; i < j->count; i++) {
        const lq_ppl *p = &j->rows[i].ppl;
        char ppl[32], error[32], windows[24], window[24], tokens[24];
        snprintf(ppl, sizeof ppl, "%.4f", p->ppl);
        snprintf(error, sizeof error, "%.4f", p->error);
        snprintf(windows, sizeof windows, "%zu", p->windows);
        snprintf(window, sizeof window, "%d", p->window);
        snprintf(tokens, sizeof tokens, "%zu", p->tokens);
        lq_table_row(t, (const char *[]){j->rows[i].protocol, j->rows[i].mode, ppl, error, windows, window, tokens,
                                         lq_say_time(p->seconds)});
    }
    lq_table_print(t, stdout);
}

static int run(void *args, int argc, char **argv) {
    (void)argc;
    const eval_args *a = args;
    lq_err err = {0};
    char *text = NULL;
    if (!a->text) return lq_say_usage("eval", "--text FILE is missing: what the model is measured on");
    if (a->model.exact && a->served)
        return lq_say_usage("eval", "--exact and --served exclude each other; without them both are measured");
    job j = {.a = a, .path = argv[0]};
    if (!lq_input_read(a->text, (size_t)1 << 32, &text, &j.n, &err)) return lq_say_error(&err);
    j.text = text;
    lq_input_catch();
    bool done = (a->served || measure_mode(&j, true, &err)) && (a->model.exact || measure_mode(&j, false, &err));
    free(text);
    if (!done) return lq_say_error(&err);
    if (a->common.json) return print_json(&j);
    print_text(&j);
    return 0;
}

static const lq_opt opts[] = {
    {"text", 0, LQ_OPT_FILE, offsetof(eval_args, text), "FILE", "the text that is measured on; -: standard input", NULL,
     0, 0},
    {"protocol", 0, LQ_OPT_CHOICE, offsetof(eval_args, protocol), "NAME",
     "how the text is cut and scored (default: all)", protocol_choice, 0, 0},
    {"windows", 0, LQ_OPT_INT, offsetof(eval_args, windows), "N", "measure the first N windows alone", NULL, 1, 1e9},
    {"window", 0, LQ_OPT_INT, offsetof(eval_args, window), "N",
     "tokens in a window (default: the protocol's, at most the context)", NULL, 2, 1 << 24},
    {"served", 0, LQ_OPT_FLAG, offsetof(eval_args, served), NULL,
     "only the arithmetic a server uses, not the exact one", NULL, 0, 0},
    LQ_MODEL_OPTS(eval_args, model),
};
static const char *const examples[] = {
    "lq eval demo.lq --text test.txt", "both protocols, exact and as served",
    "lq eval demo.lq --text test.txt --protocol gptq2048 --exact --json", "one figure, for a script", NULL};
const lq_verb lq_verb_eval = {
    .name = "eval", .synopsis = "MODEL", .summary = "Measure perplexity on a text",
    .detail = "gptq2048: the text is cut into windows of 2048 tokens that do not overlap, every token but the first is scored, the rest is "
              "dropped. llamacpp512: windows of 512 that begin with BOS, the second half of each is scored. Exact arithmetic (f32 "
              "activations and cache) says what the weights lost; the default one is what `lq serve` computes.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(eval_args),
    .min_args = 1, .max_args = 1, .run = run};
