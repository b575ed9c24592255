// lq_eval.c: lq eval: what models lost: perplexity on a text by the protocols that others publish, KL divergence from a
// reference on the same windows. Here models are opened and measured; eval_print.c prints. Without a reference one
// model is open at a time, with one all are.
#include "tools/eval.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct eval_args {
    lq_common common;
    lq_model_args model;
    const char *text, *protocol, *against, *save, *tasks, *html;
    int64_t windows, window, limit;
    bool served, force, no_bos;
} eval_args;

static const char *protocol_choice(size_t i) { return i ? lq_ppl_name(i - 1) : "all"; }

// A model that is open in one arithmetic. path NULL: there is none.
typedef struct lane { const char *path; int model; bool exact; lq_model *m; lq_engine *e; } lane;

typedef struct job {
    const eval_args *a;
    eval_result r;
    const char *text;
    size_t n;
    lq_saved *saved;
    lq_saved_info saved_info;
    lane *lanes, ref;    // lanes: of a group, those that are open at once
    int count;
    char reference[512];
} job;

static bool go_on(lq_bar *bar, size_t done, size_t total, const char *what, double figure) {
    char note[48];
    bar->total = total;
    snprintf(note, sizeof note, "%s %.4f", what, figure);
    lq_bar_at(bar, done, note);
    return !lq_input_stopped();
}

static bool tick(void *bar, size_t done, size_t all, double ppl) { return go_on(bar, done, all, "perplexity", ppl); }
static bool task_tick(void *bar, size_t done, size_t all, double acc) { return go_on(bar, done, all, "acc", acc); }

// --- models ---

// An engine of one sequence, whose cache holds one window.
static bool open_engine(const job *j, lane *l, lq_err *err) {
    enum { LONGEST = 2048, PAGE = 64 };
    lq_model_info info;
    lq_model_describe(l->m, &info);
    size_t window = j->a->window ? (size_t)j->a->window : j->saved ? (size_t)j->saved_info.window : LONGEST;
    if (window > (size_t)info.ctx) window = (size_t)info.ctx;
    lq_engine_opts o = {.max_seqs = 1, .kv_bytes = (window + PAGE) * info.kv_token_bytes, .no_prefix = true};
    return lq_engine_open(l->m, &o, &l->e, err);
}

// beside: one that is open in the same arithmetic, or NULL.
static bool open_lane(job *j, lane *l, lq_model *beside, lq_err *err) {
    lq_model_opts o = lq_model_args_opts(&j->a->model);
    o.exact = l->exact;
    o.fast = o.fast && !l->exact;
    o.mapped = l->exact; // packed numbers are added in another order: what is measured may not hang on memory
    o.beside = beside;
    if (l->model < 0) o.kv = NULL; // what others are compared with has all of its cache
    if (!lq_model_open(l->path, &o, &l->m, err) || !open_engine(j, l, err)) return false;
    if (l->model < 0) return true;
    eval_model *m = &j->r.models[l->model];
    lq_model_describe(l->m, &m->info);
    memcpy(m->devices[l->exact], m->info.device, sizeof m->info.device);
    return true;
}

static void close_lane(lane *l) {
    if (l->e) lq_engine_close(l->e);
    if (l->m) lq_model_close(l->m);
    l->e = NULL;
    l->m = NULL;
}

static bool open_group(job *j, lq_err *err) {
    lq_model *first[2] = {NULL, NULL};
    if (j->ref.path) {
        if (!open_lane(j, &j->ref, NULL, err)) return false;
        first[1] = j->ref.m;
    }
    for (int i = 0; i < j->count; i++) {
        lane *l = &j->lanes[i];
        if (!open_lane(j, l, first[l->exact], err)) return false;
        if (!first[l->exact]) first[l->exact] = l->m;
    }
    return true;
}

static void close_group(job *j) {
    for (int i = 0; i < j->count; i++) close_lane(&j->lanes[i]);
    close_lane(&j->ref);
}

// --- measuring ---

static bool wanted(const job *j, size_t protocol) {
    if (j->saved && !j->a->protocol) return protocol == (size_t)j->saved_info.protocol;
    return !j->a->protocol || !strcmp(j->a->protocol, "all") || !strcmp(j->a->protocol, lq_ppl_name(protocol));
}

// A window is kept with its row; without memory for it the row stays without what comes of windows.
static void on_window(void *arg, size_t engine, const int32_t *ids, size_t count, double nll) {
    eval_row *row = (eval_row *)arg + engine;
    for (size_t i = 0; i < count; i++) row->tokens = (row->tokens ^ (uint32_t)ids[i]) * 0x100000001b3u;
    if (lq_grow((void **)&row->nll, row->nlls, &row->cap, sizeof *row->nll)) row->nll[row->nlls++] = nll;
}

// Each row beside that of the first model in the same arithmetic, by the same protocol.
static void compare_rows(eval_result *r) {
    for (int i = 0; i < r->row_count; i++) {
        eval_row *row = &r->rows[i], *first = row;
        double sum = 0, squares = 0;
        for (int k = 0; k < r->row_count; k++)
            if (!r->rows[k].model && r->rows[k].exact == row->exact && r->rows[k].protocol == row->protocol)
                first = &r->rows[k];
        const bool same = row->tokens == first->tokens && row->nlls == first->nlls && row->nlls;
        const double n = (double)row->nlls;
        for (size_t w = 0; same && w < row->nlls; w++) {
            const double d = row->nll[w] - first->nll[w];
            sum += d, squares += d * d;
        }
        row->ratio = same ? sum / n : NAN;
        row->ratio_error = same && n > 1 ? sqrt(fmax(squares / n - sum / n * (sum / n), 0) / (n - 1)) : NAN;
    }
}

static bool measure_protocol(job *j, size_t protocol, lq_err *err) {
    char what[80];
    lq_bar bar;
    const size_t n = (size_t)j->count;
    lq_engine **engines = calloc(n, sizeof *engines);
    lq_ppl *ppl = calloc(n, sizeof *ppl);
    lq_kld *kld = calloc(n, sizeof *kld);
    eval_row *rows = realloc(j->r.rows, ((size_t)j->r.row_count + n) * sizeof *rows);
    if (rows) j->r.rows = rows;
    bool done = (engines && ppl && kld && rows) || lq_fail(err, LQ_E_MEMORY, "no memory for %zu models", n);
    if (rows) memset(rows + j->r.row_count, 0, n * sizeof *rows);
    for (size_t i = 0; done && i < n; i++) engines[i] = j->lanes[i].e;
    if (n == 1) snprintf(what, sizeof what, "%s %s", lq_ppl_name(protocol), lq_eval_mode(&j->r, j->lanes[0].exact));
    else snprintf(what, sizeof what, "%s of %zu", lq_ppl_name(protocol), n);
    lq_bar_begin(&bar, what, "windows", 1, j->a->common.quiet);
    lq_ppl_opts o = {.protocol = (lq_ppl_protocol)protocol, .window = (int)j->a->window,
                     .max_windows = (size_t)j->a->windows, .tick = tick, .arg = &bar, .against = j->ref.e,
                     .on_window = on_window, .windows = rows ? rows + j->r.row_count : NULL, .saved = j->saved,
                     .save = j->r.row_count ? NULL : j->a->save, .force = j->a->force};
    done = done && lq_evaluate(engines, n, j->text, j->n, &o, ppl, kld, err);
    lq_bar_end(&bar);
    for (size_t i = 0; rows && i < n; i++) {
        eval_row *row = &rows[j->r.row_count++];
        row->model = j->lanes[i].model;
        row->protocol = (lq_ppl_protocol)protocol;
        row->exact = j->lanes[i].exact;
        if (done) row->ppl = ppl[i], row->kld = kld[i];
    }
    free(engines);
    free(ppl);
    free(kld);
    return done;
}

static bool measure_task(job *j, const lane *l, const char *path, int place, lq_err *err) {
    eval_score s = {.model = l->model, .task = place, .exact = l->exact}, *scores;
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    char *text = NULL;
    size_t n = 0;
    lq_bar bar;
    snprintf(s.name, sizeof s.name, "%.*s", (int)(dot && dot > base ? dot - base : (long)strlen(base)), base);
    if (!lq_input_read(path, (size_t)1 << 30, &text, &n, err)) return false;
    lq_bar_begin(&bar, s.name, "questions", 1, j->a->common.quiet);
    const lq_task_opts o = {.limit = (size_t)j->a->limit, .no_bos = j->a->no_bos, .tick = task_tick, .arg = &bar};
    bool done = lq_task_run(l->e, path, text, n, &o, &s.score, err);
    lq_bar_end(&bar);
    free(text);
    if (!done) return false;
    scores = realloc(j->r.scores, ((size_t)j->r.score_count + 1) * sizeof *scores);
    if (!scores) return lq_fail(err, LQ_E_MEMORY, "no memory for a score");
    j->r.scores = scores;
    scores[j->r.score_count++] = s;
    return true;
}

// All tasks with one model: its engine now takes many sequences.
static bool measure_tasks(job *j, lane *l, lq_err *err) {
    char *list = strdup(j->a->tasks), *save = NULL;
    int place = 0;
    if (l->e) lq_engine_close(l->e);
    l->e = NULL;
    bool done = (list || lq_fail(err, LQ_E_MEMORY, "no memory for a list")) && lq_engine_open(l->m, NULL, &l->e, err);
    for (char *p = done ? strtok_r(list, ",", &save) : NULL; p && done; p = strtok_r(NULL, ",", &save))
        done = measure_task(j, l, p, place++, err);
    free(list);
    return done;
}

static bool measure_group(job *j, lq_err *err) {
    bool done = open_group(j, err);
    for (size_t p = 0; done && lq_ppl_name(p); p++)
        if ((j->text || j->saved) && wanted(j, p)) done = measure_protocol(j, p, err);
    for (int i = 0; done && j->a->tasks && i < j->count; i++) done = measure_tasks(j, &j->lanes[i], err);
    close_group(j);
    return done;
}

// One lane after the other, or all together where a reference is to run once.
static bool measure(job *j, lq_err *err) {
    lane *all = calloc(2 * (size_t)j->r.model_count, sizeof *all);
    int n = 0;
    if (!all) return lq_fail(err, LQ_E_MEMORY, "no memory for %d models", j->r.model_count);
    for (int i = 0; i < j->r.model_count; i++) {
        const char *path = j->r.models[i].path;
        if (!j->a->served) all[n++] = (lane){.path = path, .model = i, .exact = true};
        if (!lq_model_args_opts(&j->a->model).exact) all[n++] = (lane){.path = path, .model = i};
    }
    bool done = true;
    const int together = j->r.against ? n : 1;
    for (int i = 0; done && i < n; i += together) {
        j->lanes = all + i;
        j->count = together;
        done = measure_group(j, err);
    }
    free(all);
    return done;
}

static int by_place(const void *a, const void *b) {
    const eval_row *x = a, *y = b;
    if (x->exact != y->exact) return y->exact - x->exact;
    if (x->protocol != y->protocol) return (int)x->protocol - (int)y->protocol;
    return x->model - y->model;
}

static int by_task(const void *a, const void *b) {
    const eval_score *x = a, *y = b;
    if (x->exact != y->exact) return y->exact - x->exact;
    return x->task != y->task ? x->task - y->task : x->model - y->model;
}

// --- what is asked ---

// The beginning of a name that is too long for a chart.
static void cut_label(eval_model *m) {
    enum { LONGEST = 26 };
    const unsigned char *p = (const unsigned char *)m->name, *end = p + strlen(m->name);
    const bool fits = lq_say_width(m->name) <= LONGEST && end - p < (long)sizeof m->label;
    size_t n = fits ? (size_t)(end - p) : 0;
    while (!fits && p + n < end && n < LONGEST) n += lq_utf8_len(p + n, end) ? lq_utf8_len(p + n, end) : 1;
    snprintf(m->label, sizeof m->label, "%.*s%s", (int)n, m->name, fits ? "" : "...");
}

// What the models are called in tables: the last part of the path, or all of it where that says more.
static bool name_models(job *j, int argc, char **argv, lq_err *err) {
    j->r.models = calloc((size_t)argc, sizeof *j->r.models);
    if (!j->r.models) return lq_fail(err, LQ_E_MEMORY, "no memory for %d models", argc);
    j->r.model_count = argc;
    for (int i = 0; i < argc; i++) {
        eval_model *m = &j->r.models[i];
        lq_ckpt *c = NULL;
        m->path = argv[i];
        if (!lq_ckpt_open(argv[i], &c, err)) return false;
        m->bytes = (double)lq_ckpt_file_bytes(c);
        lq_ckpt_close(c);
        size_t n = strlen(argv[i]);
        while (n > 1 && argv[i][n - 1] == '/') n--;
        size_t at = n;
        while (at && argv[i][at - 1] != '/') at--;
        snprintf(m->name, sizeof m->name, "%.*s", (int)(n - at), argv[i] + at);
    }
    for (int i = 0; i < argc; i++)
        for (int k = 0; k < argc; k++)
            if (k != i && !strcmp(j->r.models[i].name, j->r.models[k].name)) {
                snprintf(j->r.models[i].name, sizeof j->r.models[i].name, "%s", argv[i]);
                break;
            }
    for (int i = 0; i < argc; i++) cut_label(&j->r.models[i]);
    return true;
}

static bool open_reference(job *j, lq_err *err) {
    const char *path = j->a->against;
    if (!path) return true;
    j->r.against = path;
    j->r.reference = j->reference;
    if (!lq_saved_open(path, &j->saved, err)) return false;
    if (!j->saved) {
        j->ref = (lane){.path = path, .model = -1, .exact = true};
        snprintf(j->reference, sizeof j->reference, "exact arithmetic");
        return true;
    }
    lq_saved_describe(j->saved, &j->saved_info);
    snprintf(j->reference, sizeof j->reference, "saved logits of %s%s%s", j->saved_info.model,
             j->saved_info.arithmetic[0] ? ", " : "", j->saved_info.arithmetic);
    return true;
}

static int check_words(const eval_args *a, int argc) {
    if (!a->text && !a->against && !a->tasks)
        return lq_say_usage("eval", "--text FILE is missing: what the model is measured on (or --tasks FILE)");
    const int status = lq_model_args_check("eval", &a->model);
    if (status) return status;
    if (lq_model_args_opts(&a->model).exact && a->served)
        return lq_say_usage("eval", "--exact and --served exclude each other; without them both are measured");
    if (a->html && !a->force && !access(a->html, F_OK))
        return lq_say_usage("eval", "--html %s: is there already; --force replaces it", a->html);
    if (!a->save) return 0;
    if (argc > 1 || a->against)
        return lq_say_usage("eval", "--save-logits is of one model, and without --against");
    if (!a->protocol || !strcmp(a->protocol, "all"))
        return lq_say_usage("eval", "--save-logits is of one protocol: say which with --protocol");
    return 0;
}

static int run(void *args, int argc, char **argv) {
    const eval_args *a = args;
    lq_err err = {0};
    char *text = NULL;
    int status = check_words(a, argc);
    if (status) return status;
    job j = {.a = a, .r = {.text = a->text, .fast = lq_model_args_opts(&a->model).fast}};
    lq_input_catch();
    bool done = (!a->text || lq_input_read(a->text, (size_t)1 << 32, &text, &j.n, &err)) && open_reference(&j, &err);
    j.text = text;
    if (done && a->against && !text && !j.saved)
        status = lq_say_usage("eval", "--text FILE is missing: only saved logits know their own");
    else {
        done = done && name_models(&j, argc, argv, &err) && measure(&j, &err);
        if (done && j.r.row_count) qsort(j.r.rows, (size_t)j.r.row_count, sizeof *j.r.rows, by_place);
        compare_rows(&j.r);
        if (done && j.r.score_count) qsort(j.r.scores, (size_t)j.r.score_count, sizeof *j.r.scores, by_task);
        done = done && (!a->html || lq_eval_html(&j.r, a->html, &err));
        if (!done) status = lq_say_error(&err);
        else if (a->common.json) status = lq_eval_print_json(&j.r);
        else lq_eval_print_text(&j.r);
    }
    lq_saved_close(j.saved);
    free(j.r.models);
    for (int i = 0; i < j.r.row_count; i++) free(j.r.rows[i].nll);
    free(j.r.rows);
    free(j.r.scores);
    free(text);
    return status;
}

#define FIELD(f) offsetof(eval_args, f)
static const lq_opt opts[] = {
    {"text", 0, LQ_OPT_FILE, FIELD(text), "FILE", "the text that is measured on; -: standard input", NULL, 0, 0},
    {"against", 0, LQ_OPT_FILE, FIELD(against), "REF", "KL divergence from REF: a model or saved logits", NULL, 0, 0},
    {"save-logits", 0, LQ_OPT_FILE, FIELD(save), "FILE", "save the logits for a later --against FILE", NULL, 0, 0},
    {"html", 0, LQ_OPT_FILE, FIELD(html), "FILE", "also write a page with charts and tables", NULL, 0, 0},
    {"force", 'f', LQ_OPT_FLAG, FIELD(force), NULL, "replace such a file if it is there", NULL, 0, 0},
    {"protocol", 0, LQ_OPT_CHOICE, FIELD(protocol), "NAME", "how the text is cut and scored (default: all)",
     protocol_choice, 0, 0},
    {"windows", 0, LQ_OPT_INT, FIELD(windows), "N", "measure the first N windows alone", NULL, 1, 1e9},
    {"window", 0, LQ_OPT_INT, FIELD(window), "N", "tokens in a window (default: the protocol's, at most the context)",
     NULL, 2, 1 << 24},
    {"tasks", 0, LQ_OPT_FILE, FIELD(tasks), "FILE[,..]", "questions to answer, a JSON object a line", NULL, 0, 0},
    {"limit", 0, LQ_OPT_INT, FIELD(limit), "N", "the first N questions of each task alone", NULL, 1, 1e9},
    {"no-bos", 0, LQ_OPT_FLAG, FIELD(no_bos), NULL, "no BOS before the questions' texts", NULL, 0, 0},
    {"served", 0, LQ_OPT_FLAG, FIELD(served), NULL, "only the arithmetic a server uses, not the exact one", NULL, 0, 0},
    LQ_MODEL_OPTS(eval_args, model),
};
static const char *const examples[] = {
    "lq eval demo.lq --text test.txt", "both protocols, exact and as served",
    "lq eval a.lq b.lq --text test.txt --against demo --html report.html",
    "how far two models are from the one that they were made of, as a page too",
    "lq eval demo --text test.txt --protocol llamacpp512 --exact --save-logits ref.safetensors", "the reference's logits, once",
    "lq eval a.lq --against ref.safetensors --exact --json", "one figure, for a script",
    "lq eval a.lq --tasks piqa.jsonl,lambada.jsonl --limit 500", "questions", NULL};
const lq_verb lq_verb_eval = {
    .name = "eval", .synopsis = "MODEL...", .summary = "Measure perplexity, and KL divergence from a reference",
    .detail = "Perplexity depends on how the text is cut, so there are two protocols, each as others publish it. gptq2048 is that of papers "
              "on quantization (GPTQ, AWQ): the lines of the text are joined by blank ones, BOS stands once at its beginning, windows of 2048 "
              "tokens do not overlap, every token but the first of a window is scored. llamacpp512 is that of llama.cpp: the text as it is, "
              "windows of 512 that begin with BOS, the second half of each is scored, so that each token has at least 256 before it. Figures "
              "of different protocols, texts or tokenizers cannot be compared. What does not fill a window is dropped.\n\n"
              "Standard errors (+-) come from the means of windows, as tokens of one window depend on each other. Of several models each "
              "perplexity stands beside the first model's, window by window: what both find hard cancels.\n\n"
              "Exact arithmetic (f32 activations and cache) says what the weights lost; the default one is what `lq serve` computes, "
              "with --numerics fast what it computes with that. "
              "--against REF runs REF in exact arithmetic on the same windows and says, in nats, how far each model's probabilities are "
              "from REF's (KL divergence, mean with its standard error, median, 99th percentile, largest), and how often both have the "
              "same likeliest token. REF may be a model, a file of --save-logits, or one of llama.cpp's --kl-divergence-base.\n\n"
              "--tasks scores questions as lm-evaluation-harness does: {\"query\", \"choices\", \"gold\"} takes the choice that is likeliest "
              "(acc), or likeliest for each of its characters (acc_norm); {\"context_options\", \"continuation\", \"gold\"} the context "
              "behind which the rest is likeliest; of {\"context\", \"continuation\"} all tokens must be what the model would say.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(eval_args),
    .min_args = 1, .max_args = -1, .run = run};
