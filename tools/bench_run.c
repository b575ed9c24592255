// bench_run.c: the measuring of `lq bench`. The loop over repetitions is the outermost: each of them runs every test by
// every model, and before and after each one measures what the machine could do at that moment, so that a neighbour's
// noise hits all alike. Owns the models and engines.
#include "tools/bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PAGE = 32, WARM_TOKENS = 2 };

// --- one test, once ---

typedef struct load { int ended; bool failed; char error[256]; } load;

static bool on_event(void *arg, const lq_event *e) {
    load *l = arg;
    if (e->finish != LQ_RUNNING) l->ended++;
    if (e->finish == LQ_FAILED) {
        l->failed = true;
        snprintf(l->error, sizeof l->error, "%s", e->error ? e->error : "a request failed");
    }
    return true;
}

static bool step(lq_engine *e, load *l, lq_err *err) {
    if (lq_input_stopped()) return lq_fail(err, LQ_E_CANCELLED, "stopped");
    if (!lq_engine_step(e, NULL, err)) return false;
    return l->failed ? lq_fail(err, LQ_E_DEVICE, "%s", l->error) : true;
}

// A decode alone feeds one token of the prompt in its first step: each of its steps is alike. Behind a prefill the
// first token is the prefill's.
static int prompt_of(const lq_bench_test *t) { return t->depth + (t->prompt ? t->prompt : 1); }
static int made_by(const lq_bench_test *t) { return t->tokens + (t->prompt > 0); }

static bool submit(lq_bench_runner *r, const lq_bench_test *t, load *l, uint64_t *ids, int *open, lq_err *err) {
    static uint32_t draw = 1;
    const int n = prompt_of(t);
    int32_t *prompt = malloc((size_t)n * sizeof *prompt);
    bool done = prompt || lq_fail(err, LQ_E_MEMORY, "no memory for a prompt of %d tokens", n);
    for (int b = 0; done && b < t->batch; b++) {
        for (int i = 0; i < n; i++)
            prompt[i] = (int32_t)(((draw = draw * 1664525u + 1013904223u) >> 8) % (uint32_t)r->info.vocab);
        const lq_request q = {.prompt = prompt, .prompt_len = (size_t)n, .max_tokens = made_by(t), .ignore_eos = true,
                              .on_event = on_event, .arg = l};
        done = lq_submit(r->e, &q, &ids[b], err);
        *open += done;
    }
    free(prompt);
    return done;
}

// Every sequence up to the test's depth.
static bool fill(lq_engine *e, const lq_bench_test *t, load *l, uint64_t before, lq_err *err) {
    lq_engine_stats now = {.prompt_tokens = before};
    bool done = true;
    while (done && now.prompt_tokens - before < (uint64_t)t->depth * (uint64_t)t->batch) {
        done = step(e, l, err);
        lq_engine_describe(e, &now);
    }
    return done;
}

// *seconds from the moment in which all sequences have their depth until all have what the test wants of them.
static bool run_once(lq_bench_runner *r, const lq_bench_test *t, double *seconds, lq_err *err) {
    load l = {0};
    lq_engine_stats before;
    int open = 0;
    uint64_t *ids = calloc((size_t)t->batch, sizeof *ids);
    if (!ids) return lq_fail(err, LQ_E_MEMORY, "no memory for %d requests", t->batch);
    lq_engine_describe(r->e, &before);
    lq_engine_hold(r->e, t->depth);
    bool done = submit(r, t, &l, ids, &open, err) && fill(r->e, t, &l, before.prompt_tokens, err);
    lq_engine_hold(r->e, 0);
    const double begin = lq_seconds();
    while (done && l.ended < t->batch) done = step(r->e, &l, err);
    *seconds = lq_seconds() - begin;
    // No request may outlive what its events are told to.
    for (int i = 0; !done && i < open; i++) lq_cancel(r->e, ids[i]);
    while (l.ended < open) lq_engine_step(r->e, NULL, NULL);
    free(ids);
    return done;
}

// --- opening ---

static bool open_runner(lq_bench *b, lq_bench_runner *r, lq_err *err) {
    lq_model_opts o = b->opts;
    o.threads = r->threads;
    if (!lq_model_open(r->path, &o, &r->m, err)) return false;
    lq_model_describe(r->m, &r->info);
    r->threads = r->info.threads;
    for (int i = 0; i < b->test_count; i++) {
        const lq_bench_test *t = &b->tests[i];
        if (t->depth + t->prompt + t->tokens < r->info.ctx) continue;
        return lq_fail(err, LQ_E_USAGE, "%s: %d tokens do not fit a context of %d; ask for fewer with -d, -p and -n",
                       r->path, t->depth + t->prompt + t->tokens + 1, r->info.ctx);
    }
    return true;
}

static size_t cache_bytes(const lq_bench *b, const lq_bench_runner *r, int *seqs) {
    size_t most = 0;
    *seqs = 0;
    for (int i = 0; i < b->test_count; i++) {
        const lq_bench_test *t = &b->tests[i];
        // A block that begins, and one that admission keeps free for each.
        const size_t each = (size_t)(prompt_of(t) + made_by(t)) / PAGE * PAGE + 3 * PAGE;
        if (each * (size_t)t->batch > most) most = each * (size_t)t->batch;
        if (t->batch > *seqs) *seqs = t->batch;
    }
    return most * r->info.kv_token_bytes;
}

static size_t held_bytes(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (size_t)use.ru_maxrss * 1024;
}

// Weights that are not in memory yet and caches of the models that are open have to fit, or the disk would be measured.
static bool check_memory(const lq_bench *b, int open, lq_err *err) {
    int seqs;
    size_t weights = 0, caches = 0, held = held_bytes(), room = SIZE_MAX;
    for (int i = 0; i < open; i++) {
        const lq_bench_runner *r = &b->runners[i];
        const size_t left = lq_model_room(r->m);
        if (i < b->models) weights += r->info.weight_bytes; // those of the other threads are the same pages
        caches += cache_bytes(b, r, &seqs);
        if (left < room) room = left;
    }
    weights = weights > held ? weights - held : 0;
    if (weights <= room && caches <= room - weights) return true;
    return lq_fail(err, LQ_E_MEMORY,
                   "%s of weights that are not read yet and %s of KV cache, %s of memory are free; ask for fewer with -b and -d",
                   lq_say_bytes((double)weights), lq_say_bytes((double)caches), lq_say_bytes((double)room));
}

// Rows of a test: what they ask for.
static void count_work(const lq_bench_runner *r, lq_bench_row *row) {
    const lq_bench_test *t = &row->test;
    lq_work part;
    if (t->prompt) lq_model_work(r->m, t->batch, t->depth, t->prompt, &row->work);
    for (int i = 0; i < t->tokens; i++) {
        lq_model_work(r->m, t->batch, t->depth + t->prompt + i, 1, &part);
        row->work.dots += part.dots;
        row->work.halves += part.halves;
        row->work.fmas += part.fmas;
        row->work.bytes += part.bytes;
    }
    if (t->prompt) row->work.bytes = 0;
}

bool lq_bench_open(lq_bench *b, lq_err *err) {
    b->runner_count = b->models * (b->kernels ? 1 : b->threads.n); // of kernels only the shapes are asked
    b->runners = calloc((size_t)b->runner_count, sizeof *b->runners);
    b->rows = calloc((size_t)b->runner_count * (size_t)b->test_count + 1, sizeof *b->rows);
    if (!b->runners || !b->rows) return lq_fail(err, LQ_E_MEMORY, "no memory for the results");
    for (int i = 0; i < b->runner_count; i++) {
        lq_bench_runner *r = &b->runners[i];
        *r = (lq_bench_runner){.path = b->paths[i % b->models], .model = i % b->models,
                               .threads = b->kernels ? 1 : b->threads.at[i / b->models]};
        // What does not fit is told before the next model is opened.
        if (!open_runner(b, r, err) || (b->test_count && !check_memory(b, i + 1, err))) return false;
    }
    if (!b->test_count) return true;
    for (int i = 0; i < b->runner_count; i++) {
        lq_bench_runner *r = &b->runners[i];
        lq_engine_opts eo = {.kv_page = PAGE, .no_prefix = true, .max_prefill = INT16_MAX};
        eo.kv_bytes = cache_bytes(b, r, &eo.max_seqs);
        eo.max_queue = eo.max_seqs;
        if (!lq_engine_open(r->m, &eo, &r->e, err)) return false;
        for (int t = 0; t < b->test_count; t++) {
            lq_bench_row *row = &b->rows[t * b->runner_count + i];
            *row = (lq_bench_row){.runner = i, .test = b->tests[t]};
            count_work(r, row);
        }
    }
    return true;
}

void lq_bench_close(lq_bench *b) {
    for (int i = 0; i < b->runner_count && b->runners; i++) {
        if (b->runners[i].e) lq_engine_close(b->runners[i].e);
        if (b->runners[i].m) lq_model_close(b->runners[i].m);
    }
    free(b->runners);
    free(b->rows);
    free(b->lines);
    free(b->tests);
}

// --- all of them ---

static bool warm_up(lq_bench *b, lq_err *err) {
    double skip;
    for (int i = 0; i < b->runner_count; i++)
        for (int k = 0; k < b->test_count; k++) {
            lq_bench_test t = b->tests[k];
            t.depth = 0;
            if (t.tokens > WARM_TOKENS) t.tokens = WARM_TOKENS;
            if (!run_once(&b->runners[i], &t, &skip, err)) return false;
        }
    b->peak = held_bytes();
    return true;
}

static bool measure_row(lq_bench *b, lq_bench_row *row, lq_err *err) {
    lq_bench_runner *r = &b->runners[row->runner];
    lq_work before, after;
    double seconds;
    lq_model_ceiling(r->m, &before);
    if (!run_once(r, &row->test, &seconds, err)) return false;
    lq_model_ceiling(r->m, &after);
    pthread_mutex_lock(&b->lock);
    row->seconds[row->count] = seconds;
    row->ceiling[row->count++] = (lq_work){fmax(before.bytes, after.bytes), fmax(before.dots, after.dots),
                                           fmax(before.halves, after.halves), fmax(before.fmas, after.fmas)};
    b->peak = held_bytes();
    pthread_mutex_unlock(&b->lock);
    return true;
}

static void tell(lq_bench *b, lq_bar *bar, size_t done, const char *note) {
    pthread_mutex_lock(&b->lock);
    if (!b->stopped) lq_bar_at(bar, done, note);
    pthread_mutex_unlock(&b->lock);
}

bool lq_bench_measure(lq_bench *b, lq_err *err) {
    const int rows = b->test_count * b->runner_count;
    lq_bar bar;
    if (!warm_up(b, err)) return false;
    lq_bar_begin(&bar, "bench", "runs", (size_t)rows * (size_t)b->repeats, b->quiet);
    bool done = true;
    for (int k = 0; done && k < b->repeats; k++)
        for (int i = 0; done && i < rows; i++) {
            done = measure_row(b, &b->rows[i], err);
            tell(b, &bar, (size_t)(k * rows + i + 1), b->runners[b->rows[i].runner].path);
        }
    lq_bar_end(&bar);
    return done;
}

// --- micro-kernels ---

typedef struct kernel_run { lq_bench *b; int threads; bool memory; const char *last; } kernel_run;

static bool on_line(void *arg, const lq_meter_line *line) {
    kernel_run *k = arg;
    lq_bench *b = k->b;
    if (lq_input_stopped()) return false;
    pthread_mutex_lock(&b->lock);
    k->memory = lq_grow((void **)&b->lines, b->line_count, &b->line_cap, sizeof *b->lines);
    if (k->memory) b->lines[b->line_count++] = (lq_bench_line){k->threads, *line};
    if (!b->quiet && !b->stopped && k->last != line->kernel) fprintf(stderr, "bench: %s\n", line->kernel);
    pthread_mutex_unlock(&b->lock);
    k->last = line->kernel;
    return k->memory;
}

bool lq_bench_kernels(lq_bench *b, lq_err *err) {
    enum { SHAPES = 64 };
    lq_meter_shape shapes[SHAPES];
    int count = 0;
    for (int i = 0; i < b->models; i++)
        for (size_t k = 0; count < SHAPES; k++) {
            int same = 0;
            if (!lq_model_shape(b->runners[i].m, k, &shapes[count].n, &shapes[count].k)) break;
            while (shapes[same].n != shapes[count].n || shapes[same].k != shapes[count].k) same++;
            count += same == count;
        }
    for (int i = 0; i < b->threads.n; i++) {
        kernel_run k = {.b = b, .threads = b->threads.at[i], .memory = true};
        const lq_meter_opts o = {.name = b->name, .isa = b->opts.isa, .threads = k.threads, .repeats = b->repeats,
                                 .shapes = shapes, .count = count, .on = on_line, .arg = &k};
        if (!lq_meter_kernels(&o, err)) return false;
        if (!k.memory) return lq_fail(err, LQ_E_MEMORY, "no memory for the results");
        if (lq_input_stopped()) return lq_fail(err, LQ_E_CANCELLED, "stopped");
    }
    if (b->line_count) return true;
    return lq_fail(err, LQ_E_UNSUPPORTED, "--kernels %s: none of them runs %s%s", b->name,
                   b->opts.isa ? "with --isa " : "on this CPU", b->opts.isa ? b->opts.isa : "");
}
