// lq_bench.c: lq bench: how fast models run here, beside what this machine could do. Here is what may be asked; the
// measuring goes on in a thread of its own, so that Ctrl-C is answered with what there is whatever a step takes.
#include "tools/bench.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct bench_args {
    lq_common common;
    lq_model_args model;
    int64_t repeats;
    const char *prompts, *tokens, *depths, *batches, *threads, *output;
    lq_list mixed;
    bool kernels;
} bench_args;

enum { TOKENS_MOST = 1 << 20, TEST_MOST = 4096 };

// --- lists ---

// Numbers from least to most, like 1,4,16. Returns 0 or a usage error.
static int read_list(const char *option, const char *text, int least, int most, lq_bench_list *out) {
    out->n = 0;
    for (const char *p = text;; p++) {
        char *end;
        const long n = strtol(p, &end, 10);
        if (end == p || *p < '0' || *p > '9' || (*end && *end != ','))
            return lq_say_usage("bench", "--%s: %s is no list like 1,4,16", option, text);
        if (n < least || n > most)
            return lq_say_usage("bench", "--%s: %.*s is no whole number from %d to %d", option, (int)(end - p), p,
                                least, most);
        if (out->n == LQ_BENCH_LIST) return lq_say_usage("bench", "--%s: more than %d numbers", option, LQ_BENCH_LIST);
        out->at[out->n++] = (int)n;
        p = end;
        if (!*p) return 0;
    }
}

static int add_test(lq_bench *b, lq_bench_test t) {
    if (!t.prompt && !t.tokens) return 0;
    if (b->test_count == TEST_MOST) return lq_say_usage("bench", "more than %d tests", TEST_MOST);
    b->tests[b->test_count++] = t;
    return 0;
}

// At each depth and batch: the prefills, the decodes, the mixed ones.
static int make_tests(lq_bench *b, const bench_args *a) {
    lq_bench_list p, n, d, s, pg[LQ_BENCH_LIST];
    int status = read_list("prompt", a->prompts ? a->prompts : "512", 0, TOKENS_MOST, &p);
    if (!status) status = read_list("tokens", a->tokens ? a->tokens : "128", 0, TOKENS_MOST, &n);
    if (!status) status = read_list("depth", a->depths ? a->depths : "0", 0, TOKENS_MOST, &d);
    if (!status) status = read_list("batch", a->batches ? a->batches : "1", 1, 4096, &s);
    if (a->mixed.n > LQ_BENCH_LIST) return lq_say_usage("bench", "--pg: more than %d of them", LQ_BENCH_LIST);
    for (size_t i = 0; !status && i < a->mixed.n; i++) {
        status = read_list("pg", a->mixed.p[i], 1, TOKENS_MOST, &pg[i]);
        if (!status && pg[i].n != 2) status = lq_say_usage("bench", "--pg: %s is no pair like 512,128", a->mixed.p[i]);
    }
    if (status) return status;
    b->tests = calloc(TEST_MOST, sizeof *b->tests);
    if (!b->tests) return lq_say_usage("bench", "out of memory");
    for (int i = 0; i < d.n * s.n; i++) {
        const lq_bench_test at = {.depth = d.at[i / s.n], .batch = s.at[i % s.n]};
        for (int k = 0; !status && k < p.n + n.n + (int)a->mixed.n; k++) {
            lq_bench_test t = at;
            if (k < p.n) t.prompt = p.at[k];
            else if (k < p.n + n.n) t.tokens = n.at[k - p.n];
            else t.prompt = pg[k - p.n - n.n].at[0], t.tokens = pg[k - p.n - n.n].at[1];
            status = add_test(b, t);
        }
    }
    if (status || b->test_count) return status;
    return lq_say_usage("bench", "nothing is measured with -p 0 and -n 0");
}

static const char *const formats[] = {"md", "csv", "json", NULL};
static const char *format_name(size_t i) { return i < 3 ? formats[i] : NULL; }

// --- words ---

// With --kernels a word that is no file and does not look like one is part of a kernel's name.
static bool is_path(const char *word) { return strchr(word, '/') || strstr(word, ".lq") || access(word, F_OK) == 0; }

static int take_words(lq_bench *b, int argc, char **argv) {
    static const char **paths; // they outlive the words' array
    paths = calloc((size_t)argc + 1, sizeof *paths);
    if (!paths) return lq_say_usage("bench", "out of memory");
    for (int i = 0; i < argc; i++) {
        if (!b->kernels || is_path(argv[i])) paths[b->models++] = argv[i];
        else if (b->name) return lq_say_usage("bench", "%s and %s: one name of kernels at a time", b->name, argv[i]);
        else b->name = argv[i];
    }
    b->paths = paths;
    if (!b->kernels && !b->models) return lq_say_usage("bench", "an argument is missing: lq bench MODEL...");
    if (b->models > LQ_BENCH_LIST) return lq_say_usage("bench", "more than %d models", LQ_BENCH_LIST);
    if (b->name && !lq_meter_known(b->name))
        return lq_say_usage("bench", "%s: no kernel has this in its name, and there is no such file", b->name);
    return 0;
}

static int take_options(lq_bench *b, const bench_args *a) {
    b->repeats = a->repeats ? (int)a->repeats : 5;
    b->kernels = a->kernels;
    b->quiet = a->common.quiet;
    b->opts = lq_model_args_opts(&a->model);
    if (lq_model_args_check("bench", &a->model)) return 2;
    for (size_t i = 0; a->output && formats[i]; i++)
        if (!strcmp(a->output, formats[i])) b->format = (lq_bench_format)i;
    if (a->common.json && a->output && b->format != LQ_BENCH_JSON)
        return lq_say_usage("bench", "--json and --output %s: one of them", a->output);
    if (a->common.json) b->format = LQ_BENCH_JSON;
    if (b->kernels && (a->prompts || a->tokens || a->depths || a->batches || a->mixed.n))
        return lq_say_usage("bench", "--kernels has heights of its own: not with -p, -n, -d, -b or --pg");
    b->threads = (lq_bench_list){.n = 1}; // 0: one a core
    const int status = a->threads ? read_list("threads", a->threads, 1, 1024, &b->threads) : 0;
    return status || b->kernels ? status : make_tests(b, a);
}

// --- the measuring, beside a thread that hears Ctrl-C ---

static void *measure(void *arg) {
    lq_bench *b = arg;
    lq_err err = {0};
    const bool done = b->kernels ? lq_bench_kernels(b, &err) : lq_bench_measure(b, &err);
    pthread_mutex_lock(&b->lock);
    b->over = true;
    b->done = done;
    b->err = err;
    pthread_cond_signal(&b->bell);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

// Until the measuring is over, or half a second after it was asked to stop. Returns with the lock held.
static void wait_for(lq_bench *b) {
    double asked = 0;
    pthread_mutex_lock(&b->lock);
    while (!b->over && !(asked && lq_seconds() - asked > 0.5)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 50000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&b->bell, &b->lock, &until);
        if (!asked && lq_input_stopped()) asked = lq_seconds();
    }
    b->stopped = asked || !b->over;
}

static bool anything(const lq_bench *b) { return b->line_count || (b->rows && b->test_count && b->rows[0].count); }

static int run(void *args, int argc, char **argv) {
    static lq_bench b; // a measuring that nobody waits for still uses it
    lq_err err = {0};
    pthread_t thread;
    int status = take_options(&b, args);
    if (!status) status = take_words(&b, argc, argv);
    if (status) {
        free(b.tests);
        free((void *)(uintptr_t)b.paths);
        return status;
    }
    lq_machine_name(b.machine, sizeof b.machine);
    lq_input_catch();
    pthread_mutex_init(&b.lock, NULL);
    pthread_cond_init(&b.bell, NULL);
    bool done = lq_bench_open(&b, &err);
    if (done && pthread_create(&thread, NULL, measure, &b))
        done = lq_fail(&err, LQ_E_MEMORY, "no thread to measure in");
    if (!done) status = lq_say_error(&err);
    else {
        wait_for(&b);
        if (b.over) err = b.err;
        else lq_fail(&err, LQ_E_CANCELLED, "stopped");
        if (anything(&b) && (!b.over || b.done || b.err.code == LQ_E_CANCELLED)) status = lq_bench_print(&b);
        fflush(stdout);
        if (!b.over || !b.done) status = lq_say_error(&err);
        const bool over = b.over;
        pthread_mutex_unlock(&b.lock);
        if (!over) return status; // its memory is in use until the program ends
        pthread_join(thread, NULL);
    }
    lq_bench_close(&b);
    free((void *)(uintptr_t)b.paths);
    return status;
}

static const lq_opt opts[] = {
    {"prompt", 'p', LQ_OPT_TEXT, offsetof(bench_args, prompts), "LIST", "tokens of a prefill, 0: none (default: 512)",
     NULL, 0, 0},
    {"tokens", 'n', LQ_OPT_TEXT, offsetof(bench_args, tokens), "LIST", "tokens of a decode, 0: none (default: 128)",
     NULL, 0, 0},
    {"pg", 0, LQ_OPT_LIST, offsetof(bench_args, mixed), "P,N",
     "a prefill and then a decode, as one time; may be repeated", NULL, 0, 0},
    {"depth", 'd', LQ_OPT_TEXT, offsetof(bench_args, depths), "LIST",
     "tokens that are in the cache before (default: 0)", NULL, 0, 0},
    {"batch", 'b', LQ_OPT_TEXT, offsetof(bench_args, batches), "LIST", "sequences at once, like 1,16 (default: 1)",
     NULL, 0, 0},
    {"threads", 't', LQ_OPT_TEXT, offsetof(bench_args, threads), "LIST", "CPU threads (default: one per core)", NULL, 0,
     0},
    {"repeats", 'r', LQ_OPT_INT, offsetof(bench_args, repeats), "N", "repetitions (default: 5)", NULL, 1,
     LQ_BENCH_REPEATS},
    {"output", 'o', LQ_OPT_CHOICE, offsetof(bench_args, output), "FORM", "what is printed (default: md)", format_name,
     0, 0},
    {"kernels", 0, LQ_OPT_FLAG, offsetof(bench_args, kernels), NULL,
     "time the micro-kernels, a quarter of an hour and more, or those with NAME in their name", NULL, 0, 0},
    {"device", 0, LQ_OPT_TEXT, offsetof(bench_args, model.device), "DEV", "where to run: cpu, cuda, cuda:1", NULL, 0,
     0},
    {"isa", 0, LQ_OPT_CHOICE, offsetof(bench_args, model.isa), "ISA", "no better instructions than these", lq_isa_name,
     0, 0},
    LQ_MODEL_NUMERICS(bench_args, model),
};
static const char *const examples[] = {
    "lq bench demo.lq", "prefill of 512 and decode of 128 tokens, five times",
    "lq bench int4.lq int8.lq -p 512,2048 -d 0,4096 -t 1,2", "two models in turn, how much faster the second is",
    "lq bench demo.lq -p 0 -n 64 -b 1,4,16 -r 9 -o json", "decoding at three batch sizes, every sample",
    "lq bench demo.lq --pg 256,64 -o csv", "a prompt and its answer as one time, for a spreadsheet",
    "lq bench --kernels int4", "the micro-kernels for 4 bits, beside the machine's ceilings",
    "lq bench --kernels int4 demo.lq", "the same at the shapes of a model", NULL};
const lq_verb lq_verb_bench = {
    .name = "bench", .synopsis = "MODEL... [NAME]", .summary = "Measure speed beside what the machine could do",
    .detail = "Every repetition runs each test by each model in turn, and measures before and after each what the machine does at "
              "that moment at most: a plain read of the same weights by as many threads, and the bare instruction of the products.\n\n"
              "`of read`: bytes of weights and cache that a decode reads a second, over the plain read's. `of peak`: the time that the "
              "multiply-adds would take at the instructions' rate, over the time they took. `ratio`: to the first model, repetition by repetition.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(bench_args),
    .min_args = 0, .max_args = -1, .run = run};
