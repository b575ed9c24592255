// lq_bench_serve.c: lq bench serve: load on a server that speaks OpenAI's protocol, and what its clients see of it.
// Here is what may be asked. It opens no model.
#include "tools/load.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct serve_args {
    lq_common common;
    const char *dataset, *rate, *model, *baseline, *seed, *save;
    int64_t count, input, output, prefix, concurrency, warm, vocab;
    double speed, range, temperature, wait, timeout;
    bool chat, ignore_eos;
    lq_list goals;
} serve_args;

static const char *const verb = "bench serve";
static const serve_args init = {.dataset = "random", .count = -1, .speed = 1, .wait = 50, .timeout = 600};
static const char *const baselines[] = {"static", "dynamic"};
static const char *baseline_name(size_t i) { return i < 2 ? baselines[i] : NULL; }

// --- what is asked ---

// ttft:500, or several with commas. False: it is none.
static bool read_goals(const char *text, lq_load_goal *g) {
    const struct { const char *name; double *to; } names[] = {
        {"ttft:", &g->ttft}, {"tpot:", &g->tpot}, {"itl:", &g->itl}, {"e2e:", &g->e2el}, {"e2el:", &g->e2el}};
    for (const char *p = text;; p++) {
        double *to = NULL;
        for (size_t i = 0; i < sizeof names / sizeof *names && !to; i++)
            if (!strncmp(p, names[i].name, strlen(names[i].name))) to = names[i].to, p += strlen(names[i].name);
        char *end;
        const double ms = strtod(p, &end);
        if (!to || end == p || !isfinite(ms) || ms <= 0 || (*end && *end != ',')) return false;
        *to = ms;
        p = end;
        if (!*p) return true;
    }
}

// --goodput takes the words behind it too, as vLLM's does; the one that is no goal is the URL.
static int take_words(const serve_args *a, int argc, char **argv, const char **url, lq_load_goal *g) {
    for (size_t i = 0; i < a->goals.n; i++)
        if (!read_goals(a->goals.p[i], g))
            return lq_say_usage(verb, "--goodput: %s is no goal in ms like ttft:500, tpot:50, itl:50 or e2e:5000", a->goals.p[i]);
    for (int i = 0; i < argc; i++) {
        if (a->goals.n && read_goals(argv[i], g)) continue;
        if (*url) return lq_say_usage(verb, "%s is one word too many", argv[i]);
        *url = argv[i];
    }
    return *url ? 0 : lq_say_usage(verb, "an argument is missing: lq bench serve URL");
}

static int take_rate(const serve_args *a, lq_load_plan *p) {
    char *end;
    if (!a->rate) return 0;
    p->rate = strtod(a->rate, &end);
    if (end != a->rate && !*end && p->rate > 0) return 0;
    return lq_say_usage(verb, "--rate: %s is no number of requests a second, nor inf", a->rate);
}

// Random requests and conversations are a closed loop unless they are given a rate; a trace keeps its times. A baseline
// needs batches.
static int take_load(const serve_args *a, lq_load *l, lq_load_plan *p) {
    const bool file = strcmp(p->dataset, "random") != 0, trace = file && !strstr(p->dataset, ".json");
    if (a->baseline) l->baseline = strcmp(a->baseline, "static") ? LQ_LOAD_DYNAMIC : LQ_LOAD_STATIC;
    l->closed = !a->rate && !(trace && !a->concurrency) && !(file && strstr(p->dataset, ".jsonl") && !a->concurrency);
    l->most = a->concurrency ? (size_t)a->concurrency : l->closed || l->baseline ? 16 : SIZE_MAX;
    if (a->speed != 1 && (l->closed || a->rate))
        return lq_say_usage(verb, "--speed is of a trace's own times: not with --rate or --concurrency");
    return 0;
}

static int take_options(const serve_args *a, lq_load *l, lq_load_plan *p) {
    uint64_t seed = 0;
    *p = (lq_load_plan){.dataset = a->dataset, .range = a->range, .speed = a->speed};
    const bool random = !strcmp(a->dataset, "random");
    p->count = a->count >= 0 ? (size_t)a->count : 100;
    p->input = a->input ? (int)a->input : 512;
    p->output = a->output ? (int)a->output : random ? 128 : 0;
    if (random && !p->count) return lq_say_usage(verb, "--num-prompts 0 is all of a file; random has no end");
    if (!random && (a->input || a->range > 0))
        return lq_say_usage(verb, "--input-len and --range are of the random dataset; %s has lengths of its own", a->dataset);
    if (a->seed && lq_opts_seed(verb, a->seed, UINT64_MAX, &seed)) return 2;
    l->seed = seed;
    l->chat = a->chat;
    l->quiet = a->common.quiet;
    l->prefix = (int)a->prefix;
    l->vocab = (int)a->vocab;
    l->temperature = a->temperature;
    l->ignore_eos = a->ignore_eos;
    l->wait = a->wait * 1e-3;
    l->timeout = a->timeout;
    l->model = a->model;
    l->key = getenv("LQ_API_KEY");
    if (l->key && !*l->key) l->key = NULL;
    for (const char *k = l->key; k && *k; k++)
        if (*k <= ' ' || *k > '~') return lq_say_usage(verb, "LQ_API_KEY holds what no header may: blanks or controls");
    const int status = take_rate(a, p);
    return status ? status : take_load(a, l, p);
}

static int run(void *args, int argc, char **argv) {
    const serve_args *a = args;
    lq_load l = {0};
    lq_load_plan p;
    lq_load_goal goal = {0};
    lq_err err = {0};
    const char *url = NULL;
    int status = take_words(a, argc, argv, &url, &goal);
    if (!status) status = take_options(a, &l, &p);
    if (status) return status;
    if (!lq_load_url(&l, url, &err)) return lq_say_error(&err);
    lq_input_catch();
    const bool done = lq_load_make(&l, &p, &err) && lq_load_meet(&l, &err) && lq_load_run(&l, (size_t)a->warm, &err);
    if (done && l.seconds > 0) status = lq_load_print(&l, &p, &goal, a->common.json);
    if (done && !status && a->save && !lq_load_save(&l, a->save, &err)) status = lq_say_error(&err);
    if (!done) status = lq_say_error(&err);
    else if (l.stopped) lq_fail(&err, LQ_E_CANCELLED, "stopped"), status = lq_say_error(&err);
    else if (!status && l.error[0])
        lq_fail(&err, LQ_E_IO, "a request failed; the first one: %s", l.error), status = lq_say_error(&err);
    lq_load_free(&l);
    return status;
}

static const lq_opt opts[] = {
    {"dataset", 0, LQ_OPT_FILE, offsetof(serve_args, dataset), "WHAT",
     "random, a ShareGPT .json, a trace (.csv, .jsonl) or prompts (.jsonl)", NULL, 0, 0},
    {"num-prompts", 'n', LQ_OPT_INT, offsetof(serve_args, count), "N",
     "requests, 0: all of a file (default: 100)", NULL, 0, 1 << 26},
    {"rate", 'r', LQ_OPT_TEXT, offsetof(serve_args, rate), "R",
     "arrivals a second, Poisson; inf: all at once", NULL, 0, 0},
    {"speed", 0, LQ_OPT_NUM, offsetof(serve_args, speed), "X",
     "a trace's own times pass so many times as fast", NULL, 1e-6, 1e9},
    {"concurrency", 'c', LQ_OPT_INT, offsetof(serve_args, concurrency), "C",
     "requests at a time, at most; without --rate the next one begins when one ends (default: 16)", NULL, 1, 1 << 20},
    {"baseline", 0, LQ_OPT_CHOICE, offsetof(serve_args, baseline), "HOW",
     "begin C together when the C before are done, as a server without continuous batching would", baseline_name, 0, 0},
    {"max-wait", 0, LQ_OPT_NUM, offsetof(serve_args, wait), "MS",
     "how long a dynamic batch waits to be full (default: 50)", NULL, 0, 1e7},
    {"input-len", 'p', LQ_OPT_INT, offsetof(serve_args, input), "N",
     "tokens of a random prompt (default: 512)", NULL, 1, LQ_LOAD_TOKENS},
    {"output-len", 0, LQ_OPT_INT, offsetof(serve_args, output), "N",
     "most tokens of an answer (default: 128, a file's own)", NULL, 1, LQ_LOAD_TOKENS},
    {"range", 0, LQ_OPT_NUM, offsetof(serve_args, range), "X",
     "random lengths from 1 - X to 1 + X times these (default: 0)", NULL, 0, 1},
    {"prefix-len", 0, LQ_OPT_INT, offsetof(serve_args, prefix), "N",
     "tokens before each made-up prompt that all share", NULL, 0, LQ_LOAD_TOKENS},
    {"vocab", 0, LQ_OPT_INT, offsetof(serve_args, vocab), "N",
     "token ids of made-up prompts are below N (default: it is tried out)", NULL, 2, 1 << 24},
    {"chat", 0, LQ_OPT_FLAG, offsetof(serve_args, chat), NULL,
     "/v1/chat/completions in place of /v1/completions", NULL, 0, 0},
    {"model", 'm', LQ_OPT_TEXT, offsetof(serve_args, model), "NAME",
     "the model to ask for (default: the server's first)", NULL, 0, 0},
    {"temperature", 0, LQ_OPT_NUM, offsetof(serve_args, temperature), "T", "of the answers (default: 0)", NULL, 0, 10},
    {"ignore-eos", 0, LQ_OPT_FLAG, offsetof(serve_args, ignore_eos), NULL, "no end token ends an answer", NULL, 0, 0},
    {"goodput", 0, LQ_OPT_LIST, offsetof(serve_args, goals), "GOAL",
     "count requests within ttft:MS tpot:MS itl:MS e2e:MS", NULL, 0, 0},
    {"warmup", 0, LQ_OPT_INT, offsetof(serve_args, warm), "N",
     "requests before, which are not counted", NULL, 0, 1 << 20},
    {"timeout", 0, LQ_OPT_NUM, offsetof(serve_args, timeout), "S",
     "seconds that a request may take (default: 600)", NULL, 0.001, 1e6},
    {"seed", 0, LQ_OPT_TEXT, offsetof(serve_args, seed), "N", "of what is random (default: 0)", NULL, 0, 0},
    {"save", 0, LQ_OPT_FILE, offsetof(serve_args, save), "FILE", "write a line of JSON for each request", NULL, 0, 0},
};
static const char *const examples[] = {
    "lq bench serve http://127.0.0.1:8080 -c 32 -n 500", "32 clients, each asks again when it is answered",
    "lq bench serve http://127.0.0.1:8080 --rate 10 --goodput ttft:500 tpot:50",
    "ten arrivals a second, and how many were served in time",
    "lq bench serve http://127.0.0.1:8080 --dataset trace.csv --speed 2 --save rows.jsonl",
    "a trace's arrivals and lengths, twice as fast",
    "LQ_API_KEY=... lq bench serve http://127.0.0.1:8080/v1 --chat --dataset sharegpt.json --rate 4", "conversations, with a key", NULL};
const lq_verb lq_verb_bench_serve = {
    .name = "bench serve", .synopsis = "URL", .summary = "Measure a running server under load",
    .detail = "Sends requests to any server that speaks OpenAI's protocol (lq, vLLM, llama.cpp), reads the streams, and prints what "
              "`vllm bench serve` prints, under its names. Requests arrive by a clock (--rate, a trace) however slow the server is, or one ends before "
              "the next begins (--concurrency alone).\n\n"
              "TTFT is from sending, connecting included, to the first text; where requests had to wait in this client, also from arrival. "
              "TPOT is the rest of the time over the rest of the tokens, ITL the time between chunks.\n\n"
              "A key is read from the environment's LQ_API_KEY. https is not spoken. The exit status is 1 when a request failed.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(serve_args),
    .init = &init, .min_args = 0, .max_args = -1, .run = run};
