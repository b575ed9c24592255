// quantize_print.c: what lq quantize has done, as tables: by part, by layer, the modules that lost most, and what was
// fallen back to.
#include "tools/quantize.h"
#include <stdlib.h>
#include <string.h>

enum { CELL = 64, WORST = 10 };

// A share; "" where it is not known.
static const char *share(char *to, double x) {
    *to = 0;
    if (x >= 0) snprintf(to, CELL, "%.5f", x);
    return to;
}

static void total_row(lq_table *t, const char *name, const lq_quant_total *s, bool rounded) {
    char matrices[CELL], bits[CELL], error[CELL], out[CELL], plain[CELL];
    snprintf(matrices, sizeof matrices, "%d", s->matrices);
    snprintf(bits, sizeof bits, "%.3f", s->weights > 0 ? 8 * s->after / s->weights : 0);
    lq_table_row(t, (const char *const[]){name, matrices, lq_say_count(s->weights), bits, lq_say_bytes(s->before),
                                          lq_say_bytes(s->after), share(error, rounded ? s->rel_error : -1),
                                          share(out, s->out_error), share(plain, s->out_plain)});
}

// Embedding, attention and so on, what was kept, and all of them.
static void print_parts(const lq_quant_result *r) {
    static const char *const head[] = {"part", "matrices", "weights", "bits", "before", "after", "weight error",
                                       "output error", "rounded plainly"};
    lq_table *t = lq_table_new(9, head);
    lq_quant_total all = lq_quant_sum(r, LQ_ALL_LAYERS, NULL);
    const lq_quant_total kept = {.matrices = r->kept, .weights = r->kept_weights, .before = r->kept_bytes,
                                 .after = r->kept_bytes, .out_error = -1, .out_plain = -1};
    for (int k = 0; k < LQ_KINDS; k++) {
        const lq_quant_total s = lq_quant_sum(r, LQ_ALL_LAYERS, lq_quant_kinds[k]);
        if (s.matrices) total_row(t, lq_quant_kinds[k], &s, true);
    }
    if (r->kept) total_row(t, "kept", &kept, false);
    all.matrices += kept.matrices, all.weights += kept.weights;
    all.before += kept.before, all.after += kept.after;
    total_row(t, "all", &all, r->count > 0);
    lq_table_trim(t);
    lq_table_print(t, stdout);
}

// Of each layer what its kinds of parts lost, and how far what stands behind it has gone from what stood there.
static void print_layers(const lq_quant_result *r) {
    static const char *const head[] = {"layer",      "attention", "its output",   "mlp",
                                       "its output", "experts",   "their output", "residual"};
    enum { FIRST = 1, SHOWN = 3 }; // kinds that are of layers
    lq_table *t = lq_table_new(2 + 2 * SHOWN, head);
    for (int l = 0; l < r->layers; l++) {
        char cell[2 + 2 * SHOWN][CELL];
        const char *row[2 + 2 * SHOWN];
        snprintf(cell[0], CELL, "%d", l);
        row[0] = cell[0];
        for (int k = 0; k < SHOWN; k++) {
            const lq_quant_total s = lq_quant_sum(r, l, lq_quant_kinds[FIRST + k]);
            row[1 + 2 * k] = share(cell[1 + 2 * k], s.matrices ? s.rel_error : -1);
            row[2 + 2 * k] = share(cell[2 + 2 * k], s.out_error);
        }
        row[1 + 2 * SHOWN] = share(cell[1 + 2 * SHOWN], r->drift ? r->drift[l] : -1);
        lq_table_row(t, row);
    }
    printf("\nErrors by layer%s:\n", r->drift ? ", of weights and outputs; how far what stands behind it has drifted" : "");
    lq_table_trim(t);
    lq_table_print(t, stdout);
}

// By what their outputs lost, where that is known; else by their weights.
static int worse(const void *x, const void *y) {
    const lq_quant_row *a = *(const lq_quant_row *const *)x, *b = *(const lq_quant_row *const *)y;
    if (a->out_error != b->out_error) return a->out_error < b->out_error ? 1 : -1;
    if (a->rel_error != b->rel_error) return a->rel_error < b->rel_error ? 1 : -1;
    return strcmp(a->name, b->name);
}

static void shape_of(const lq_quant_row *r, char *to) {
    if (r->count) snprintf(to, CELL, "%d x %lld x %lld", r->count, (long long)r->n, (long long)r->k);
    else snprintf(to, CELL, "%lld x %lld", (long long)r->n, (long long)r->k);
}

static void print_worst(const lq_quant_row *const *rows, size_t n) {
    static const char *const head[] = {"module", "type", "shape", "bits", "weight error", "output error",
                                       "rounded plainly", "worst of them"};
    lq_table *t = lq_table_new(8, head);
    if (n > WORST) printf("\nThe %d modules of %zu that lost most:\n", WORST, n);
    else printf("\nThe modules, from the one that lost most:\n");
    for (size_t i = 0; i < n && i < WORST; i++) {
        const lq_quant_row *r = rows[i];
        char shape[CELL], bits[CELL], error[CELL], out[CELL], plain[CELL], worst[CELL] = "";
        shape_of(r, shape);
        snprintf(bits, sizeof bits, "%.3f", r->bits);
        if (r->count) snprintf(worst, sizeof worst, "%d: %.5f", r->worst, r->worst_error);
        lq_table_row(t, (const char *const[]){r->name, r->type, shape, bits, share(error, r->rel_error),
                                              share(out, r->out_error), share(plain, r->out_plain), worst});
    }
    lq_table_trim(t);
    lq_table_print(t, stdout);
}

// Each reason once, with the modules that it is of.
static void print_fallen(const lq_quant_result *r) {
    enum { NAMES = 4 };
    for (size_t i = 0; i < r->count; i++) {
        const char *note = r->rows[i].note;
        size_t same = 0, at = i;
        for (size_t k = 0; k < r->count; k++)
            if (!strcmp(note, r->rows[k].note)) same++, at = k < at ? k : at;
        if (!*note || at < i) continue; // told with the first of them
        printf(same == 1 ? "\n1 module" : "\n%zu modules", same);
        lq_say_line(stdout, ": %s:", note);
        for (size_t k = i, told = 0; k < r->count && told < NAMES; k++)
            if (!strcmp(note, r->rows[k].note)) lq_say_line(stdout, "  %s", r->rows[k].name), told++;
        if (same > NAMES) printf("  and %zu more, which the report names\n", same - NAMES);
    }
}

static int by_count(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// How many rows of the text reached the experts of all layers: one line. A layer's stacks have the same counts.
static void print_reached(const lq_quant_result *r) {
    enum { FEW = 128 };
    size_t n = 0, all = 0, few = 0;
    int layer = -1;
    for (size_t i = 0; i < r->count; i++) all += r->rows[i].reached ? (size_t)r->rows[i].count : 0;
    int64_t *reached = malloc((all + 1) * sizeof *reached);
    for (size_t i = 0; reached && i < r->count; i++) {
        const lq_quant_row *row = &r->rows[i];
        if (!row->reached || row->layer == layer) continue;
        layer = row->layer;
        for (int e = 0; e < row->count; e++) reached[n++] = row->reached[e], few += row->reached[e] < FEW;
    }
    if (n) {
        qsort(reached, n, sizeof *reached, by_count);
        printf("\nRows of the text that reached an expert: least %lld, median %lld, most %lld; %zu of %zu had fewer than %d\n",
               (long long)reached[0], (long long)reached[n / 2], (long long)reached[n - 1], few, n, FEW);
    }
    free(reached);
}

void lq_quantize_print(const lq_quant_result *r, const char *out, const char *report) {
    const lq_quant_row **rows = malloc((r->count + 1) * sizeof *rows);
    print_parts(r);
    for (size_t i = 0; rows && i < r->count; i++) rows[i] = &r->rows[i];
    if (rows && r->count) {
        print_layers(r);
        qsort(rows, r->count, sizeof *rows, worse);
        print_worst(rows, r->count);
        print_reached(r);
        print_fallen(r);
    }
    free(rows);
    putchar('\n');
    lq_say_line(stdout, "%s: %s, %.3f bits per weight, %s before, %.2f times smaller", out,
                lq_say_bytes((double)r->out_bytes), r->bits, lq_say_bytes((double)r->in_bytes),
                (double)r->in_bytes / (double)r->out_bytes);
    lq_say_line(stdout, "%s, %s of the checkpoint a second, %s of memory at most, report in %s", lq_say_time(r->seconds),
                lq_say_bytes((double)r->in_bytes / r->seconds), lq_say_bytes((double)r->peak_bytes), report);
    if (r->resumed) printf("%zu of %zu blocks were taken over from an interrupted run\n", r->resumed, r->blocks);
}

void lq_quantize_print_module(FILE *f, const lq_quant_row *r) {
    char shape[CELL], out[2 * CELL] = "";
    shape_of(r, shape);
    if (r->out_error >= 0)
        snprintf(out, sizeof out, ", output error %.5f (rounded plainly %.5f)", r->out_error, r->out_plain);
    lq_say_line(f, "%s: %s, %s, %.3f bits, weight error %.5f%s%s%s", r->name, shape, r->type, r->bits, r->rel_error,
                out, *r->note ? "; " : "", r->note);
}
