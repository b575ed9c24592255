// load_say.c: what `lq bench serve` prints: the figures of vllm bench serve under its names, as a page or as JSON, and
// a line for each request. Owns nothing but what it sorts.
#include "tools/load.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- figures ---

typedef enum metric { TTFT, TPOT, ITL, E2EL, WAIT, ARRIVAL, METRICS } metric;
static const struct { const char *key, *name, *title; } metrics[METRICS] = {
    {"ttft", "TTFT", "Time to first token"},
    {"tpot", "TPOT", "Time per output token (the first left out)"},
    {"itl", "ITL", "Inter-token latency (between chunks)"},
    {"e2el", "E2EL", "End to end"},
    {"wait", "wait", "From arrival to sending"},
    {"ttft_arrival", "TTFT", "Time to first token, from arrival"},
};
static const double shares[] = {50, 90, 99};
enum { SHARES = sizeof shares / sizeof *shares };

typedef struct series { double *at; size_t n, cap; bool failed; } series; // ms
typedef struct figures { double mean, deviation, share[SHARES]; } figures;
typedef struct result {
    size_t good, failed;
    double input, output; // tokens
    series of[METRICS];
    double kept;          // requests that met the goal
} result;

static void put(series *s, double seconds) {
    void *p = s->at;
    if (!lq_grow(&p, s->n, &s->cap, sizeof *s->at)) {
        s->failed = true;
        return;
    }
    s->at = p;
    s->at[s->n++] = seconds * 1e3;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Of sorted numbers, between two of them in proportion, as numpy does.
static double share_of(const series *s, double percent) {
    if (!s->n) return NAN;
    const double at = percent / 100 * (double)(s->n - 1), low = floor(at);
    const size_t i = (size_t)low;
    return i + 1 < s->n ? s->at[i] + (s->at[i + 1] - s->at[i]) * (at - low) : s->at[s->n - 1];
}

static figures figures_of(series *s) {
    figures f = {.mean = NAN, .deviation = NAN};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->at[i];
    if (s->n) f.mean = sum / (double)s->n;
    for (size_t i = 0; i < s->n; i++) squares += (s->at[i] - f.mean) * (s->at[i] - f.mean);
    if (s->n) f.deviation = sqrt(squares / (double)s->n);
    if (s->n) qsort(s->at, s->n, sizeof *s->at, by_size);
    for (int i = 0; i < SHARES; i++) f.share[i] = share_of(s, shares[i]);
    return f;
}

static double input_of(const lq_load_request *q) { return (double)(q->input_said >= 0 ? q->input_said : q->input); }

// NaN: one token has no time after the first.
static double tpot_of(const lq_load_request *q) {
    return q->output_said > 1 ? (q->last - q->first) / (double)(q->output_said - 1) : NAN;
}

static bool meets(double limit, double seconds) { return !(limit > 0 && seconds * 1e3 > limit); }

static bool is_kept(const lq_load_request *q, const lq_load_goal *g) {
    bool kept = meets(g->ttft, q->first - q->sent) && meets(g->tpot, tpot_of(q)) && meets(g->e2el, q->last - q->sent);
    for (size_t i = 0; kept && i < q->gap_count; i++) kept = meets(g->itl, q->gaps[i]);
    return kept;
}

static bool collect(const lq_load *l, const lq_load_goal *g, result *r) {
    *r = (result){0};
    for (size_t i = 0; i < l->n; i++) {
        const lq_load_request *q = &l->q[i];
        r->failed += q->over && !q->good;
        if (!q->good) continue;
        r->good++;
        r->input += input_of(q);
        r->output += (double)q->output_said;
        r->kept += is_kept(q, g);
        put(&r->of[TTFT], q->first - q->sent);
        if (isfinite(tpot_of(q))) put(&r->of[TPOT], tpot_of(q));
        for (size_t k = 0; k < q->gap_count; k++) put(&r->of[ITL], q->gaps[k]);
        put(&r->of[E2EL], q->last - q->sent);
        put(&r->of[WAIT], q->sent - q->due);
        put(&r->of[ARRIVAL], q->first - q->due);
    }
    bool done = true;
    for (int m = 0; m < METRICS; m++) done &= !r->of[m].failed;
    return done;
}

static bool has_goal(const lq_load_goal *g) { return g->ttft > 0 || g->tpot > 0 || g->itl > 0 || g->e2el > 0; }

// --- the page ---

static void number(const char *name, double x, int digits) {
    if (isfinite(x)) printf("%-44s %.*f\n", name, digits, x);
    else printf("%-44s -\n", name);
}

static void rule(const char *title) {
    enum { WIDTH = 60 };
    const int n = (int)strlen(title), left = (WIDTH - n - 2) / 2;
    for (int i = 0; i < left; i++) putchar('-');
    printf(" %s ", title);
    for (int i = left + n + 2; i < WIDTH; i++) putchar('-');
    putchar('\n');
}

static void print_metric(metric m, series *s) {
    static const char *const names[SHARES] = {"Median", "P90", "P99"};
    const figures f = figures_of(s);
    char name[64];
    rule(metrics[m].title);
    snprintf(name, sizeof name, "Mean %s (ms):", metrics[m].name);
    number(name, f.mean, 2);
    for (int i = 0; i < SHARES; i++) {
        snprintf(name, sizeof name, "%s %s (ms):", names[i], metrics[m].name);
        number(name, f.share[i], 2);
    }
}

static void print_load(const lq_load *l, const lq_load_plan *p) {
    static const char *const baselines[] = {NULL, "static", "dynamic"};
    lq_say_line(stdout, "%-44s %s", "Model:", l->model);
    if (l->most < l->n) number("Requests at a time, at most:", (double)l->most, 0);
    if (l->baseline) printf("%-44s %s\n", "Batches as a baseline:", baselines[l->baseline]);
    if (l->closed) return;
    if (isinf(p->rate)) printf("%-44s all at once\n", "Arrivals:");
    else if (p->rate > 0) printf("%-44s Poisson, %g a second\n", "Arrivals:", p->rate);
    else printf("%-44s the trace's times, %g times as fast\n", "Arrivals:", p->speed);
}

// Of what the client itself adds to the times, the reader is told.
static void print_doubts(const lq_load *l, result *r) {
    const figures f = figures_of(&r->of[WAIT]);
    if (!l->closed && f.share[SHARES - 1] >= 1) {
        print_metric(WAIT, &r->of[WAIT]);
        print_metric(ARRIVAL, &r->of[ARRIVAL]);
    }
    if (l->cpu > 0.5 * l->seconds)
        lq_say_line(stderr, "lq: this client was busy for %.0f %% of the time: some of the delays are its own",
                    100 * l->cpu / l->seconds);
}

static void print_page(const lq_load *l, const lq_load_plan *p, const lq_load_goal *g, result *r) {
    rule("Serving benchmark");
    print_load(l, p);
    number("Successful requests:", (double)r->good, 0);
    number("Failed requests:", (double)r->failed, 0);
    for (int i = 0; i < LQ_LOAD_KINDS && l->kinds[i].n; i++) {
        char *name = lq_say_shown(l->kinds[i].name);
        printf("  %-42s %zu\n", name ? name : "", l->kinds[i].n);
        free(name);
    }
    if (l->stopped) number("Stopped before the end, not done:", (double)(l->n - r->good - r->failed), 0);
    number("Benchmark duration (s):", l->seconds, 2);
    number("Most requests at a time:", (double)l->peak, 0);
    number("Total input tokens:", r->input, 0);
    number("Total generated tokens:", r->output, 0);
    number("Request throughput (req/s):", (double)r->good / l->seconds, 2);
    if (has_goal(g)) number("Request goodput (req/s):", r->kept / l->seconds, 2);
    number("Output token throughput (tok/s):", r->output / l->seconds, 2);
    number("Total token throughput (tok/s):", (r->input + r->output) / l->seconds, 2);
    for (metric m = TTFT; r->good && m <= E2EL; m++) print_metric(m, &r->of[m]);
    print_doubts(l, r);
}

// --- JSON ---

static void add(lq_text *t, const char *key, double x) {
    lq_text_fmt(t, ",\"%s\":", key);
    lq_say_number(t, x, 10);
}

static void add_text(lq_text *t, const char *key, const char *text) {
    lq_text_fmt(t, ",\"%s\":", key);
    lq_text_json(t, text, strlen(text));
}

static void add_metric(lq_text *t, metric m, series *s) {
    static const char *const names[SHARES] = {"median", "p90", "p99"};
    const figures f = figures_of(s);
    lq_text_fmt(t, ",\"mean_%s_ms\":", metrics[m].key);
    lq_say_number(t, f.mean, 10);
    lq_text_fmt(t, ",\"std_%s_ms\":", metrics[m].key);
    lq_say_number(t, f.deviation, 10);
    for (int i = 0; i < SHARES; i++) {
        lq_text_fmt(t, ",\"%s_%s_ms\":", names[i], metrics[m].key);
        lq_say_number(t, f.share[i], 10);
    }
}

static int print_json(const lq_load *l, const lq_load_plan *p, const lq_load_goal *g, result *r) {
    lq_text t = {0};
    lq_text_fmt(&t, "{\"version\":\"%s\"", LQ_VERSION);
    add_text(&t, "model_id", l->model);
    add_text(&t, "endpoint", l->chat ? "chat/completions" : "completions");
    add_text(&t, "dataset", p->dataset);
    add(&t, "num_prompts", (double)l->n);
    lq_text_fmt(&t, ",\"closed_loop\":%s,\"stopped\":%s", l->closed ? "true" : "false", l->stopped ? "true" : "false");
    add(&t, "request_rate", p->rate > 0 ? p->rate : NAN);
    add(&t, "max_concurrency", l->most < SIZE_MAX ? (double)l->most : NAN);
    add(&t, "completed", (double)r->good);
    add(&t, "failed", (double)r->failed);
    lq_text_fmt(&t, ",\"errors\":{");
    for (int i = 0; i < LQ_LOAD_KINDS && l->kinds[i].n; i++) {
        if (i) lq_text_add(&t, ",", 1);
        lq_text_json(&t, l->kinds[i].name, strlen(l->kinds[i].name));
        lq_text_fmt(&t, ":%zu", l->kinds[i].n);
    }
    lq_text_fmt(&t, "}");
    if (l->error[0]) add_text(&t, "first_error", l->error);
    add(&t, "duration", l->seconds);
    add(&t, "client_cpu_seconds", l->cpu);
    add(&t, "max_concurrent_requests", (double)l->peak);
    add(&t, "total_input_tokens", r->input);
    add(&t, "total_output_tokens", r->output);
    add(&t, "request_throughput", (double)r->good / l->seconds);
    if (has_goal(g)) add(&t, "request_goodput", r->kept / l->seconds);
    add(&t, "output_throughput", r->output / l->seconds);
    add(&t, "total_token_throughput", (r->input + r->output) / l->seconds);
    for (metric m = 0; m < METRICS; m++) add_metric(&t, m, &r->of[m]);
    lq_text_fmt(&t, "}");
    return lq_say_json(&t);
}

int lq_load_print(const lq_load *l, const lq_load_plan *p, const lq_load_goal *goal, bool json) {
    const lq_err memory = {LQ_E_MEMORY, "no memory for the figures"};
    result r;
    int status = collect(l, goal, &r) ? 0 : lq_say_error(&memory);
    if (!status && json) status = print_json(l, p, goal, &r);
    else if (!status) print_page(l, p, goal, &r);
    for (int m = 0; m < METRICS; m++) free(r.of[m].at);
    return status;
}

// --- a line for each request ---

static void add_row(lq_text *t, const lq_load_request *q, size_t i) {
    lq_text_fmt(t, "{\"request\":%zu", i);
    add(t, "arrival", q->due);
    add(t, "sent", q->sent);
    lq_text_fmt(t, ",\"success\":%s", q->good ? "true" : "false");
    if (q->kind) add_text(t, "error", q->kind);
    if (q->status) add(t, "status", q->status);
    add(t, "input_tokens", input_of(q));
    add(t, "output_tokens", q->output_said < 0 ? 0 : (double)q->output_said);
    add(t, "asked_tokens", q->output);
    if (q->first > 0) add(t, "ttft", q->first - q->sent);
    if (q->last > 0) add(t, "e2el", q->last - q->sent);
    lq_text_fmt(t, ",\"itl\":[");
    for (size_t k = 0; k < q->gap_count; k++) {
        if (k) lq_text_add(t, ",", 1);
        lq_say_number(t, q->gaps[k], 9);
    }
    lq_text_fmt(t, "]}\n");
}

bool lq_load_save(const lq_load *l, const char *path, lq_err *err) {
    FILE *f = fopen(path, "we");
    lq_text t = {0};
    if (!f) return lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
    bool done = true;
    for (size_t i = 0; done && i < l->n; i++) {
        if (!l->q[i].over) continue; // stopped before
        t.n = 0;
        add_row(&t, &l->q[i], i);
        done = !t.failed && fwrite(t.p, 1, t.n, f) == t.n;
    }
    lq_text_free(&t);
    if (fclose(f) || !done) return lq_fail(err, LQ_E_IO, "%s: could not be written: %s", path, strerror(errno));
    return true;
}
