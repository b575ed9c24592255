// lq_bench.c: lq bench: how fast a model runs here, beside what the machine's memory can give. Each repetition
// times a prefill, a decode and a plain read of the weights themselves, one right after another, so that a
// neighbour's noise hits all three.
#include "tools/verb.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct bench_args {
    lq_common common;
    lq_model_args model;
    int64_t prompt, tokens, repeats;
    const char *batches;
} bench_args;

enum { BATCHES = 16, REPEATS = 100, LEAD = 8 /* prompt tokens before a timed decode */ };

// --- the plain read ---

// Seconds of a plain read of the weights. Small ones are read several times, up to a GB in all, and come
// from the cache as in a decode.
static double read_time(lq_model *m, size_t bytes, int steps) {
    const size_t most = ((size_t)1 << 30) / (bytes + 1);
    const int times = most < 1 ? 1 : most < (size_t)steps ? (int)most : steps;
    const double begin = lq_seconds();
    for (int i = 0; i < times; i++) lq_model_read(m);
    return (lq_seconds() - begin) / times;
}

// --- the model ---

typedef struct load { int begun, ended, tokens, steps; bool failed; char error[256]; } load;

static bool on_event(void *arg, const lq_event *e) {
    load *l = arg;
    if (e->prompt) return true;
    if (e->count && e->sampled_tokens == e->count) l->begun++;
    l->tokens += e->count;
    if (e->finish != LQ_RUNNING) l->ended++;
    if (e->finish == LQ_FAILED) {
        l->failed = true;
        snprintf(l->error, sizeof l->error, "%s", e->error ? e->error : "a request failed");
    }
    return true;
}

static bool step(lq_engine *e, load *l, lq_err *err) {
    if (lq_input_stopped()) return lq_fail(err, LQ_E_CANCELLED, "stopped");
    l->steps++;
    if (!lq_engine_step(e, NULL, err)) return false;
    return l->failed ? lq_fail(err, LQ_E_DEVICE, "%s", l->error) : true;
}

// What was timed: the prefill until all sequences have their first token, the decode from
// there until the first of them ends.
typedef struct timing { double prefill, decode; int tokens, steps; /* of the decode */ } timing;

// `batch` sequences of `prompt` tokens each make `tokens` tokens.
static bool work(lq_engine *e, int vocab, int batch, int prompt, int tokens, timing *t, lq_err *err) {
    load l = {0};
    int32_t *ids = malloc((size_t)prompt * sizeof *ids);
    if (!ids) return lq_fail(err, LQ_E_MEMORY, "no memory for the prompt");
    bool done = true;
    uint32_t draw = 1;
    uint64_t first = 0, id = 0;
    int open = 0;
    for (int b = 0; done && b < batch; b++) {
        for (int i = 0; i < prompt; i++) ids[i] = (int32_t)((draw = draw * 1664525u + 1013904223u) >> 8) % vocab;
        lq_request q = {.prompt = ids, .prompt_len = (size_t)prompt, .max_tokens = tokens, .ignore_eos = true,
                        .on_event = on_event, .arg = &l};
        done = lq_submit(e, &q, &id, err);
        if (done && !open++) first = id;
    }
    free(ids);
    double begin = lq_seconds();
    while (done && l.begun < batch) done = step(e, &l, err);
    t->prefill = lq_seconds() - begin;
    l.tokens = l.steps = 0;
    begin = lq_seconds();
    while (done && l.ended == 0) done = step(e, &l, err);
    *t = (timing){t->prefill, lq_seconds() - begin, l.tokens, l.steps};
    while (done && l.ended < batch) done = step(e, &l, err);
    // No request may outlive what its events are told to.
    for (uint64_t i = first; !done && open && i <= id; i++) lq_cancel(e, i);
    while (l.ended < open) lq_engine_step(e, NULL, NULL);
    return done;
}

typedef struct series { double at[REPEATS]; int n; } series;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void series_sort(series *s) { qsort(s->at, (size_t)s->n, sizeof *s->at, by_value); }
static double series_median(const series *s) { return (s->at[(s->n - 1) / 2] + s->at[s->n / 2]) / 2; }

typedef struct result { int batch; series prefill, decode, bytes, read, share; } result;

typedef struct bench {
    const bench_args *a;
    lq_model *m;
    lq_engine *e;
    lq_model_info info;
    int prompt, tokens, repeats, batches[BATCHES], batch_count;
    size_t peak;
    result results[BATCHES];
} bench;

static void add(series *s, double x) { s->at[s->n++] = x; }

static bool measure_once(bench *b, result *r, lq_err *err) {
    timing first = {0}, rest = {0};
    // The decode is measured from short prompts, as if the sequences had just begun; the
    // prefill ends with the first token.
    if (!work(b->e, b->info.vocab, r->batch, b->prompt, 1, &first, err)) return false;
    if (!work(b->e, b->info.vocab, r->batch, LEAD, b->tokens + 1, &rest, err)) return false;
    double read = read_time(b->m, b->info.weight_bytes, rest.steps), bytes = (double)b->info.weight_bytes;
    add(&r->prefill, r->batch * (double)b->prompt / first.prefill);
    add(&r->decode, rest.tokens / rest.decode);
    add(&r->bytes, bytes * rest.steps / rest.decode);
    add(&r->read, bytes / read);
    add(&r->share, rest.steps * read / rest.decode);
    return true;
}

static bool measure(bench *b, lq_err *err) {
    lq_bar bar;
    timing skip = {0};
    for (int i = 0; i < b->batch_count; i++) // warm-up, and the memory that the model itself takes
        if (!work(b->e, b->info.vocab, b->batches[i], b->prompt, 2, &skip, err)) return false;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    b->peak = (size_t)use.ru_maxrss * 1024;
    lq_bar_begin(&bar, "bench", "runs", (size_t)(b->batch_count * b->repeats), b->a->common.quiet);
    bool done = true;
    for (int i = 0; done && i < b->batch_count; i++) {
        result *r = &b->results[i];
        r->batch = b->batches[i];
        for (int k = 0; done && k < b->repeats; k++) {
            done = measure_once(b, r, err);
            lq_bar_at(&bar, (size_t)(i * b->repeats + k + 1), NULL);
        }
        series_sort(&r->prefill), series_sort(&r->decode), series_sort(&r->bytes), series_sort(&r->read),
            series_sort(&r->share);
    }
    lq_bar_end(&bar);
    return done;
}

// --- what is printed ---

static void spread(const series *s, char *buf, size_t size) {
    snprintf(buf, size, "%.1f (%.1f-%.1f)", series_median(s), s->at[0], s->at[s->n - 1]);
}

static void print_text(const bench *b, const char *path) {
    lq_say_line(stdout, "%s: %s, %s, %s", path, b->info.arch, b->info.quant, b->info.device);
    printf("%s parameters, %s of weights, peak memory %s; %d repetitions, median (least-most)\n",
           lq_say_count((double)b->info.params),
           lq_say_bytes((double)b->info.weight_bytes), lq_say_bytes((double)b->peak), b->repeats);
    char prefill_head[32], decode_head[32];
    snprintf(prefill_head, sizeof prefill_head, "prefill %d tok/s", b->prompt);
    snprintf(decode_head, sizeof decode_head, "decode %d tok/s", b->tokens);
    lq_table *t = lq_table_new(6, (const char *[]){"batch", prefill_head, decode_head, "weights GB/s",
                                                   "plain read GB/s", "share"});
    for (int i = 0; i < b->batch_count; i++) {
        const result *r = &b->results[i];
        char batch[16], prefill[64], decode[64], bytes[32], read[32], share[32];
        snprintf(batch, sizeof batch, "%d", r->batch);
        spread(&r->prefill, prefill, sizeof prefill);
        spread(&r->decode, decode, sizeof decode);
        snprintf(bytes, sizeof bytes, "%.2f", series_median(&r->bytes) * 1e-9);
        snprintf(read, sizeof read, "%.2f", series_median(&r->read) * 1e-9);
        snprintf(share, sizeof share, "%.0f %%", series_median(&r->share) * 100);
        lq_table_row(t, (const char *[]){batch, prefill, decode, bytes, read, share});
    }
    lq_table_print(t, stdout);
}

static void json_series(lq_text *t, const char *key, const series *s) {
    lq_text_fmt(t, ",\"%s\":{\"median\":", key);
    lq_say_number(t, series_median(s), 6);
    lq_text_fmt(t, ",\"min\":");
    lq_say_number(t, s->at[0], 6);
    lq_text_fmt(t, ",\"max\":");
    lq_say_number(t, s->at[s->n - 1], 6);
    lq_text_fmt(t, "}");
}

static int print_json(const bench *b, const char *path) {
    lq_text t = {0};
    lq_text_fmt(&t, "{\"model\":");
    lq_text_json(&t, path, strlen(path));
    lq_text_fmt(&t, ",\"quant\":\"%s\",\"device\":\"%s\",\"params\":%lld,\"weight_bytes\":%zu,\"peak_bytes\":%zu",
                b->info.quant, b->info.device, (long long)b->info.params, b->info.weight_bytes, b->peak);
    lq_text_fmt(&t, ",\"prompt\":%d,\"tokens\":%d,\"repeats\":%d,\"batches\":[", b->prompt, b->tokens, b->repeats);
    for (int i = 0; i < b->batch_count; i++) {
        const result *r = &b->results[i];
        lq_text_fmt(&t, "%s{\"batch\":%d", i ? "," : "", r->batch);
        json_series(&t, "prefill_tok_s", &r->prefill);
        json_series(&t, "decode_tok_s", &r->decode);
        json_series(&t, "weight_bytes_s", &r->bytes);
        json_series(&t, "read_bytes_s", &r->read);
        json_series(&t, "share_of_read", &r->share);
        lq_text_fmt(&t, "}");
    }
    lq_text_fmt(&t, "]}");
    return lq_say_json(&t);
}

// --- what is asked ---

static int read_batches(bench *b, const char *text) {
    for (const char *p = text; *p;) {
        char *end;
        long n = strtol(p, &end, 10);
        if (end == p || n < 1 || n > 4096 || (*end && *end != ',') || b->batch_count == BATCHES)
            return lq_say_usage("bench", "--batch: %s is no list like 1,4,16", text);
        b->batches[b->batch_count++] = (int)n;
        p = *end ? end + 1 : end;
    }
    return b->batch_count ? 0 : lq_say_usage("bench", "--batch: the list is empty");
}

static bool open_engine(bench *b, const char *path, lq_err *err) {
    lq_model_opts mo = lq_model_args_opts(&b->a->model);
    if (!lq_model_open(path, &mo, &b->m, err)) return false;
    lq_model_describe(b->m, &b->info);
    int most = 0, longest = b->tokens + LEAD + 1 > b->prompt + 2 ? b->tokens + LEAD + 1 : b->prompt + 2;
    for (int i = 0; i < b->batch_count; i++)
        if (b->batches[i] > most) most = b->batches[i];
    if (longest > b->info.ctx)
        return lq_fail(err, LQ_E_USAGE, "%s: %d tokens do not fit a context of %d; ask for fewer with -p and -n", path,
                       longest, b->info.ctx);
    size_t pages = (size_t)(longest + 32) * (size_t)most;
    lq_engine_opts eo = {.max_seqs = most, .kv_bytes = pages * b->info.kv_token_bytes};
    return lq_engine_open(b->m, &eo, &b->e, err);
}

static int run(void *args, int argc, char **argv) {
    (void)argc;
    const bench_args *a = args;
    static bench b;
    b = (bench){.a = a, .prompt = a->prompt ? (int)a->prompt : 512, .tokens = a->tokens ? (int)a->tokens : 128,
                .repeats = a->repeats ? (int)a->repeats : 5};
    int status = read_batches(&b, a->batches ? a->batches : "1");
    if (status) return status;
    lq_err err = {0};
    lq_input_catch();
    bool done = open_engine(&b, argv[0], &err) && measure(&b, &err);
    if (done && a->common.json) status = print_json(&b, argv[0]);
    else if (done) print_text(&b, argv[0]);
    if (b.e) lq_engine_close(b.e);
    if (b.m) lq_model_close(b.m);
    return done ? status : lq_say_error(&err);
}

static const lq_opt opts[] = {
    {"prompt", 'p', LQ_OPT_INT, offsetof(bench_args, prompt), "N", "tokens of the timed prefill (default: 512)", NULL,
     1, 1 << 20},
    {"tokens", 'n', LQ_OPT_INT, offsetof(bench_args, tokens), "N", "tokens of the timed decode (default: 128)", NULL, 1,
     1 << 20},
    {"repeats", 'r', LQ_OPT_INT, offsetof(bench_args, repeats), "N", "repetitions (default: 5)", NULL, 1, REPEATS},
    {"batch", 'b', LQ_OPT_TEXT, offsetof(bench_args, batches), "LIST", "sequences at once, like 1,4,16 (default: 1)",
     NULL, 0, 0},
    LQ_MODEL_OPTS(bench_args, model),
};
static const char *const examples[] = {"lq bench demo.lq", "prefill of 512 and decode of 128 tokens, five times",
                                       "lq bench demo.lq -p 128 -n 64 -r 9 -b 1,4,16 --json",
                                       "at three batch sizes, for a script", NULL};
const lq_verb lq_verb_bench = {
    .name = "bench", .synopsis = "MODEL", .summary = "Measure speed beside what memory can give",
    .detail = "Each repetition times a prefill, a decode, and a plain read of the same weights by as many threads. Decode "
              "reads every weight once for each step, so its bytes per second over the plain read's say how near it is to the machine's limit.",
    .examples = examples, .opts = opts, .opt_count = sizeof opts / sizeof *opts, .size = sizeof(bench_args),
    .min_args = 1, .max_args = 1, .run = run};
