// bench_say.c: what `lq bench` prints. A result is a record of named values; csv and json print all of them in one
// order, md the ones that a reader compares.
#include "tools/bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// --- figures ---

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct series { double at[LQ_BENCH_REPEATS]; int n; } series;
typedef struct figures { double median, min, max, mean, deviation; } figures;

// NaN for all where one of them is no number.
static figures figures_of(series s) {
    const double none = NAN;
    figures f = {none, none, none, none, none};
    double sum = 0, squares = 0;
    for (int i = 0; i < s.n; i++) sum += s.at[i];
    if (!s.n || !isfinite(sum)) return f;
    qsort(s.at, (size_t)s.n, sizeof *s.at, by_value);
    f = (figures){(s.at[(s.n - 1) / 2] + s.at[s.n / 2]) / 2, s.at[0], s.at[s.n - 1], sum / s.n, 0};
    for (int i = 0; i < s.n; i++) squares += (s.at[i] - f.mean) * (s.at[i] - f.mean);
    f.deviation = s.n > 1 ? sqrt(squares / (s.n - 1)) : 0;
    return f;
}

static double median(series s) { return figures_of(s).median; }
static double over(double x, double y) { return y > 0 ? x / y : NAN; }

static double tokens_of(const lq_bench_row *r) { return (double)r->test.batch * (r->test.prompt + r->test.tokens); }

static series rates(const lq_bench_row *r) {
    series s = {.n = r->count};
    for (int i = 0; i < s.n; i++) s.at[i] = tokens_of(r) / r->seconds[i];
    return s;
}

static series shares_of_read(const lq_bench_row *r) {
    series s = {.n = r->count};
    for (int i = 0; i < s.n; i++)
        s.at[i] = r->work.bytes > 0 ? over(r->work.bytes / r->seconds[i], r->ceiling[i].bytes) : NAN;
    return s;
}

// The time that the multiply-adds take at the instructions' rate, over the time that was taken.
static series shares_of_peak(const lq_bench_row *r) {
    series s = {.n = r->count};
    for (int i = 0; i < s.n; i++) {
        const lq_work *c = &r->ceiling[i];
        const double dots = r->work.dots > 0 ? over(r->work.dots, c->dots) : 0;
        const double halves = r->work.halves > 0 ? over(r->work.halves, c->halves) : 0;
        s.at[i] = (dots + halves + over(r->work.fmas, c->fmas)) / r->seconds[i];
    }
    return s;
}

// To the first model's run of the same repetition; both were measured one right after the other.
static series ratios(const lq_bench *b, const lq_bench_row *r) {
    const lq_bench_row *first = r - b->runners[r->runner].model;
    series s = {.n = r->count < first->count ? r->count : first->count};
    for (int i = 0; i < s.n; i++) s.at[i] = first->seconds[i] / r->seconds[i];
    return s;
}

// --- records ---

typedef struct value { const char *key, *text; double number; } value; // text NULL: a number, NaN: none
typedef struct samples { const char *key; const double *at; size_t step; } samples; // one behind `step` others
enum { VALUES = 48, SAMPLES = 5 };
typedef struct record {
    value value[VALUES];
    int values;
    samples list[SAMPLES]; // each has as many numbers as there were repetitions
    int lists, count;
    char test[64];
} record;

static void put(record *r, const char *key, double number) { r->value[r->values++] = (value){key, NULL, number}; }
static void put_text(record *r, const char *key, const char *text) { r->value[r->values++] = (value){key, text, 0}; }

static void put_samples(record *r, const char *key, const double *at, size_t step) {
    r->list[r->lists++] = (samples){key, at, step};
}

// As llama-bench calls them: "pp512", "tg128 @ d4096", "pp512+tg128".
static void test_name(const lq_bench_test *t, char *out, size_t size) {
    size_t n = 0;
    if (t->prompt) n += (size_t)snprintf(out + n, size - n, "pp%d", t->prompt);
    if (t->tokens) n += (size_t)snprintf(out + n, size - n, "%stg%d", t->prompt ? "+" : "", t->tokens);
    if (t->depth) snprintf(out + n, size - n, " @ d%d", t->depth);
}

// The median of rates that were measured beside a row; NaN: they could not be.
static double ceiling_of(const double *at, size_t step, int count) {
    series s = {.n = count};
    for (int i = 0; i < count; i++) s.at[i] = at[(size_t)i * step] > 0 ? at[(size_t)i * step] : NAN;
    return median(s);
}

enum { STEP = sizeof(lq_work) / sizeof(double) }; // from one lq_work to the next

static void bench_record(const lq_bench *b, const lq_bench_row *row, record *r) {
    const lq_bench_runner *from = &b->runners[row->runner];
    const lq_bench_test *t = &row->test;
    const figures rate = figures_of(rates(row));
    *r = (record){.count = row->count};
    test_name(t, r->test, sizeof r->test);
    put_text(r, "model", from->path);
    put_text(r, "arch", from->info.arch);
    put_text(r, "type", from->info.quant);
    put(r, "file_bytes", (double)from->info.file_bytes);
    put(r, "params", (double)from->info.params);
    put(r, "weight_bytes", (double)from->info.weight_bytes);
    put_text(r, "device", from->info.device);
    put(r, "threads", from->threads);
    put_text(r, "test", r->test);
    put(r, "prompt", t->prompt);
    put(r, "tokens", t->tokens);
    put(r, "depth", t->depth);
    put(r, "batch", t->batch);
    put(r, "repetitions", row->count);
    put(r, "tokens_each_repetition", tokens_of(row));
    put(r, "tok_s", rate.median);
    put(r, "tok_s_min", rate.min);
    put(r, "tok_s_max", rate.max);
    put(r, "tok_s_mean", rate.mean);
    put(r, "tok_s_deviation", rate.deviation);
    put(r, "tok_s_each_sequence", rate.median / t->batch);
    put(r, "bytes_per_token", row->work.bytes > 0 ? row->work.bytes / tokens_of(row) : NAN);
    put(r, "macs_per_token", (row->work.dots + row->work.halves + row->work.fmas) / tokens_of(row));
    put(r, "read_bytes_s", ceiling_of(&row->ceiling[0].bytes, STEP, row->count));
    put(r, "dot_macs_s", ceiling_of(&row->ceiling[0].dots, STEP, row->count));
    put(r, "bf16_macs_s", ceiling_of(&row->ceiling[0].halves, STEP, row->count));
    put(r, "fma_macs_s", ceiling_of(&row->ceiling[0].fmas, STEP, row->count));
    put(r, "share_of_read", median(shares_of_read(row)));
    put(r, "share_of_peak", median(shares_of_peak(row)));
    put(r, "ratio", median(ratios(b, row)));
    put_samples(r, "samples_seconds", row->seconds, 1);
    put_samples(r, "samples_read_bytes_s", &row->ceiling[0].bytes, STEP);
    put_samples(r, "samples_dot_macs_s", &row->ceiling[0].dots, STEP);
    put_samples(r, "samples_bf16_macs_s", &row->ceiling[0].halves, STEP);
    put_samples(r, "samples_fma_macs_s", &row->ceiling[0].fmas, STEP);
}

typedef struct kernel_figures { figures seconds; double bytes_s, macs_s, of_read, of_peak; } kernel_figures;

static kernel_figures kernel_figures_of(const lq_meter_line *l) {
    const double macs = (double)l->n * (double)l->k * l->rows;
    series seconds = {.n = l->count}, of_read = seconds, of_peak = seconds;
    for (int i = 0; i < l->count; i++) {
        seconds.at[i] = l->seconds[i];
        of_read.at[i] = (double)l->bytes / l->seconds[i] / l->read[i];
        of_peak.at[i] = over(macs / l->seconds[i], l->peak[i]);
    }
    const figures took = figures_of(seconds);
    return (kernel_figures){took, (double)l->bytes / took.median, l->rows ? macs / took.median : NAN, median(of_read),
                            median(of_peak)};
}

static void kernel_record(const lq_bench_line *from, record *r) {
    const lq_meter_line *l = &from->at;
    const kernel_figures f = kernel_figures_of(l);
    *r = (record){.count = l->count};
    put_text(r, "kernel", l->kernel);
    put_text(r, "type", l->type);
    put(r, "n", (double)l->n);
    put(r, "k", (double)l->k);
    put(r, "rows", l->rows);
    put(r, "threads", from->threads);
    put(r, "weight_bytes", (double)l->bytes);
    put(r, "repetitions", l->count);
    put(r, "seconds", f.seconds.median);
    put(r, "seconds_min", f.seconds.min);
    put(r, "seconds_max", f.seconds.max);
    put(r, "bytes_s", f.bytes_s);
    put(r, "macs_s", f.macs_s);
    put(r, "read_bytes_s", ceiling_of(l->read, 1, l->count));
    put(r, "peak_macs_s", ceiling_of(l->peak, 1, l->count));
    put(r, "share_of_read", f.of_read);
    put(r, "share_of_peak", f.of_peak);
    put_samples(r, "samples_seconds", l->seconds, 1);
    put_samples(r, "samples_read_bytes_s", l->read, 1);
    put_samples(r, "samples_peak_macs_s", l->peak, 1);
}

// Whole numbers as they are, measures to six digits.
static void add_number(lq_text *t, double x, bool none) {
    if (!isfinite(x)) lq_text_fmt(t, none ? "null" : "");
    else lq_say_number(t, x, x == floor(x) && fabs(x) < 1e15 ? 15 : 6);
}

static void add_json(lq_text *t, const record *r) {
    for (int i = 0; i < r->values; i++) {
        const value *v = &r->value[i];
        lq_text_fmt(t, "%s\"%s\":", i ? "," : "{", v->key);
        if (v->text) lq_text_json(t, v->text, strlen(v->text));
        else add_number(t, v->number, true);
    }
    for (int i = 0; i < r->lists; i++) {
        lq_text_fmt(t, ",\"%s\":[", r->list[i].key);
        for (int k = 0; k < r->count; k++) {
            if (k) lq_text_add(t, ",", 1);
            lq_say_number(t, r->list[i].at[(size_t)k * r->list[i].step], 9);
        }
        lq_text_fmt(t, "]");
    }
    lq_text_fmt(t, "}");
}

// A cell with a comma, a quotation mark or a line's end stands in quotation marks.
static void add_cell(lq_text *t, const char *text) {
    char *safe = lq_say_shown(text);
    const char *p = safe ? safe : "";
    const bool quoted = strpbrk(p, ",\"\r\n") != NULL;
    if (quoted) lq_text_add(t, "\"", 1);
    for (; *p; p++) lq_text_add(t, *p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
    if (quoted) lq_text_add(t, "\"", 1);
    free(safe);
}

static void add_csv(lq_text *t, const record *r, bool head) {
    for (int i = 0; head && i < r->values; i++) lq_text_fmt(t, "%s%s", i ? "," : "", r->value[i].key);
    if (head) lq_text_add(t, "\n", 1);
    for (int i = 0; i < r->values; i++) {
        if (i) lq_text_add(t, ",", 1);
        if (r->value[i].text) add_cell(t, r->value[i].text);
        else add_number(t, r->value[i].number, false);
    }
    lq_text_add(t, "\n", 1);
}

static size_t records(const lq_bench *b) {
    return b->kernels ? b->line_count : (size_t)b->runner_count * (size_t)b->test_count;
}

// False: nothing of it was measured.
static bool record_at(const lq_bench *b, size_t i, record *r) {
    if (b->kernels) kernel_record(&b->lines[i], r);
    else bench_record(b, &b->rows[i], r);
    return r->count > 0;
}

static int print_csv(const lq_bench *b) {
    const lq_err memory = {LQ_E_MEMORY, "no memory for the result"};
    lq_text t = {0};
    record r;
    for (size_t i = 0; i < records(b); i++)
        if (record_at(b, i, &r)) add_csv(&t, &r, t.n == 0);
    const int status = t.failed ? lq_say_error(&memory) : 0;
    if (!status && t.n) fwrite(t.p, 1, t.n, stdout);
    lq_text_free(&t);
    return status;
}

static int print_json(const lq_bench *b) {
    lq_text t = {0};
    record r;
    bool any = false;
    lq_text_fmt(&t, "{\"version\":\"%s\",\"cpu\":", LQ_VERSION);
    lq_text_json(&t, b->machine, strlen(b->machine));
    lq_text_fmt(&t, ",\"asked_repetitions\":%d,\"stopped\":%s", b->repeats, b->stopped ? "true" : "false");
    if (!b->kernels) lq_text_fmt(&t, ",\"peak_bytes\":%zu", b->peak);
    lq_text_fmt(&t, ",\"%s\":[", b->kernels ? "kernels" : "results");
    for (size_t i = 0; i < records(b); i++) {
        if (!record_at(b, i, &r)) continue;
        if (any) lq_text_add(&t, ",", 1);
        add_json(&t, &r);
        any = true;
    }
    lq_text_fmt(&t, "]}");
    return lq_say_json(&t);
}

// --- md ---

enum { CELL = 64 };
typedef struct cells { char at[16][CELL]; const char *head[16]; int n; } cells;

static char *cell(cells *c, const char *head) {
    c->head[c->n] = head;
    c->at[c->n][0] = '\0';
    return c->at[c->n++];
}

static void cell_number(cells *c, const char *head, double x, const char *form) {
    char *to = cell(c, head);
    if (isfinite(x)) snprintf(to, CELL, form, x);
    else snprintf(to, CELL, "-");
}

// Four digits of whatever size.
static void digits(double x, char *to) {
    snprintf(to, CELL / 2, "%.*f", x >= 999.95 ? 0 : x >= 99.995 ? 1 : x >= 9.9995 ? 2 : 3, x);
}

static void cell_rate(cells *c, const char *head, double x) { digits(x, cell(c, head)); }

static void cell_range(cells *c, const char *head, const figures *f) {
    char low[CELL / 2], high[CELL / 2];
    digits(f->min, low);
    digits(f->max, high);
    snprintf(cell(c, head), CELL, "%.30s..%.30s", low, high);
}

static void cell_text(cells *c, const char *head, const char *text) { snprintf(cell(c, head), CELL, "%s", text); }

static void bench_cells(const lq_bench *b, const lq_bench_row *row, bool batches, cells *c) {
    const lq_bench_runner *from = &b->runners[row->runner];
    const figures rate = figures_of(rates(row));
    const char *name = strrchr(from->path, '/');
    char test[CELL];
    test_name(&row->test, test, sizeof test);
    cell_text(c, "model", name && name[1] ? name + 1 : from->path);
    cell_text(c, "type", from->info.quant);
    cell_text(c, "size", lq_say_bytes((double)from->info.file_bytes));
    cell_text(c, "params", lq_say_count((double)from->info.params));
    cell_number(c, "threads", from->threads, "%.0f");
    cell_text(c, "test", test);
    if (batches) cell_number(c, "batch", row->test.batch, "%.0f");
    cell_rate(c, "tok/s", rate.median);
    cell_range(c, "min..max", &rate);
    if (batches) cell_rate(c, "tok/s each", rate.median / row->test.batch);
    cell_number(c, "of read", 100 * median(shares_of_read(row)), "%.0f %%");
    cell_number(c, "of peak", 100 * median(shares_of_peak(row)), "%.0f %%");
    if (b->models > 1) cell_number(c, "ratio", median(ratios(b, row)), "%.3f");
}

static void kernel_cells(const lq_bench *b, const lq_bench_line *from, cells *c) {
    const lq_meter_line *l = &from->at;
    const kernel_figures f = kernel_figures_of(l);
    cell_text(c, "kernel", l->kernel);
    cell_text(c, "type", l->type);
    snprintf(cell(c, "n x k"), CELL, "%lld x %lld", (long long)l->n, (long long)l->k);
    cell_number(c, "M", l->rows ? l->rows : NAN, "%.0f");
    if (b->threads.n > 1) cell_number(c, "threads", from->threads, "%.0f");
    cell_number(c, "ms", f.seconds.median * 1e3, "%.3f");
    cell_number(c, "GB/s", f.bytes_s * 1e-9, "%.2f");
    cell_number(c, "of read", 100 * f.of_read, "%.0f %%");
    cell_number(c, "GOPS", f.macs_s * 2e-9, "%.1f");
    cell_number(c, "of peak", 100 * f.of_peak, "%.0f %%");
}

static bool has_batches(const lq_bench *b) {
    for (int i = 0; i < b->test_count; i++)
        if (b->tests[i].batch > 1) return true;
    return false;
}

static void add_cells(lq_table **t, const cells *c) {
    const char *at[16];
    for (int i = 0; i < c->n; i++) at[i] = c->at[i];
    if (!*t) *t = lq_table_new(c->n, c->head);
    lq_table_row(*t, at);
}

// What the machine did at most beside a runner, over all of its rows.
static void print_ceiling(const lq_bench *b, int runner) {
    const lq_bench_runner *r = &b->runners[runner];
    double best[4] = {0};
    for (int t = 0; t < b->test_count; t++) {
        const lq_bench_row *row = &b->rows[t * b->runner_count + runner];
        series s[4] = {{.n = row->count}, {.n = row->count}, {.n = row->count}, {.n = row->count}};
        for (int i = 0; i < row->count; i++) {
            const lq_work *c = &row->ceiling[i];
            s[0].at[i] = c->bytes, s[1].at[i] = c->dots, s[2].at[i] = c->fmas, s[3].at[i] = c->halves;
        }
        for (int k = 0; k < 4; k++) best[k] = fmax(best[k], row->count ? median(s[k]) : 0);
    }
    if (!best[0]) return;
    lq_say(stdout, "- %s, %d thread%s: a plain read %.2f GB/s", r->path, r->threads, r->threads == 1 ? "" : "s",
           best[0] * 1e-9);
    if (best[1] > 0) printf(", int8 %.0f GOPS, f32 %.0f GOPS", best[1] * 2e-9, best[2] * 2e-9);
    if (best[3] > 0) printf(", bf16 %.0f GFLOPS", best[3] * 2e-9);
    putchar('\n');
}

static int print_md(const lq_bench *b) {
    const bool batches = has_batches(b);
    lq_table *t = NULL;
    if (b->kernels) printf("%s, %d repetitions, medians\n\n", b->machine, b->repeats);
    else {
        const char *device = b->runners[0].info.device;
        lq_say_line(stdout, "%s, %.*s", b->machine, (int)strcspn(device, ","), device);
        printf("%d repetitions%s, median and min..max; peak memory %s\n\n", b->repeats,
               b->stopped ? " (stopped before the end)" : "", lq_say_bytes((double)b->peak));
    }
    for (size_t i = 0; i < records(b); i++) {
        cells c = {.n = 0};
        if (b->kernels) kernel_cells(b, &b->lines[i], &c);
        else if (b->rows[i].count) bench_cells(b, &b->rows[i], batches, &c);
        if (c.n) add_cells(&t, &c);
    }
    if (t) lq_table_markdown(t, stdout);
    for (int i = 0; !b->kernels && i < b->runner_count; i++) {
        if (!i) putchar('\n');
        print_ceiling(b, i);
    }
    return 0;
}

int lq_bench_print(lq_bench *b) {
    if (b->format == LQ_BENCH_JSON) return print_json(b);
    return b->format == LQ_BENCH_CSV ? print_csv(b) : print_md(b);
}
