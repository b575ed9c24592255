// eval_print.c: what lq eval has measured, as tables for people and as JSON for programs.
#include "tools/eval.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// --- JSON ---

static void text_member(lq_text *t, const char *key, const char *value) {
    lq_text_fmt(t, "\"%s\":", key);
    if (value) lq_text_json(t, value, strlen(value));
    else lq_text_fmt(t, "null");
}

static void number_member(lq_text *t, const char *key, double value) {
    lq_text_fmt(t, ",\"%s\":", key);
    lq_say_number(t, value, 9);
}

static void json_kld(lq_text *t, const lq_kld *k) {
    const struct { const char *key; double value; } members[] = {
        {"standard_error", k->error}, {"min", k->min}, {"median", k->median}, {"p90", k->p90}, {"p95", k->p95},
        {"p99", k->p99}, {"p99_9", k->p999}, {"max", k->max}, {"same_top", k->same_top},
        {"same_top_error", k->same_top_error}, {"p_difference", k->diff}, {"p_difference_error", k->diff_error},
        {"p_difference_rms", k->diff_rms}, {"p_difference_rms_error", k->diff_rms_error},
        {"reference_perplexity", k->ref_ppl}, {"reference_perplexity_error", k->ref_error},
        {"ln_perplexity_ratio", k->ln_ratio}, {"ln_perplexity_ratio_error", k->ln_ratio_error},
    };
    lq_text_fmt(t, ",\"kld\":{\"mean\":");
    lq_say_number(t, k->mean, 9);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) number_member(t, members[i].key, members[i].value);
    lq_text_fmt(t, ",\"by_position\":[");
    for (int i = 0; i < LQ_KLD_BINS; i++) {
        if (i) lq_text_fmt(t, ",");
        lq_say_number(t, k->at[i], 9);
    }
    lq_text_fmt(t, "]}");
}

static void json_row(lq_text *t, const eval_result *r, const eval_row *row) {
    const eval_model *m = &r->models[row->model];
    lq_text_fmt(t, "{");
    text_member(t, "model", m->path);
    lq_text_fmt(t, ",\"protocol\":\"%s\",\"mode\":\"%s\",", lq_ppl_name(row->protocol), lq_eval_mode(r, row->exact));
    text_member(t, "device", m->devices[row->exact]);
    number_member(t, "perplexity", row->ppl.ppl);
    number_member(t, "standard_error", row->ppl.error);
    number_member(t, "nll", row->ppl.nll);
    if (row->model > 0) {
        number_member(t, "ln_ratio_to_first", row->ratio);
        number_member(t, "ln_ratio_to_first_error", row->ratio_error);
    }
    lq_text_fmt(t, ",\"tokens\":%zu,\"windows\":%zu,\"window\":%d,\"seconds\":%.3f", row->ppl.tokens,
                row->ppl.windows, row->ppl.window, row->ppl.seconds);
    if (r->against) json_kld(t, &row->kld);
    lq_text_fmt(t, "}");
}

static void json_score(lq_text *t, const eval_result *r, const eval_score *s) {
    const lq_task_score *k = &s->score;
    lq_text_fmt(t, "{");
    text_member(t, "model", r->models[s->model].path);
    lq_text_fmt(t, ",");
    text_member(t, "task", s->name);
    lq_text_fmt(t, ",\"mode\":\"%s\",\"questions\":%zu,\"cut\":%zu", lq_eval_mode(r, s->exact), k->questions, k->cut);
    number_member(t, "acc", k->acc);
    number_member(t, "acc_error", k->acc_error);
    number_member(t, "acc_norm", k->acc_norm);
    number_member(t, "acc_norm_error", k->acc_norm_error);
    number_member(t, "perplexity", k->ppl);
    number_member(t, "perplexity_error", k->ppl_error);
    lq_text_fmt(t, ",\"seconds\":%.3f}", k->seconds);
}

int lq_eval_print_json(const eval_result *r) {
    lq_text t = {0};
    lq_text_fmt(&t, "{");
    text_member(&t, "text", r->text);
    lq_text_fmt(&t, ",");
    text_member(&t, "against", r->against);
    lq_text_fmt(&t, ",\"models\":[");
    for (int i = 0; i < r->model_count; i++) {
        const eval_model *m = &r->models[i];
        lq_text_fmt(&t, i ? ",{" : "{");
        text_member(&t, "model", m->path);
        lq_text_fmt(&t, ",\"arch\":\"%s\",\"quant\":\"%s\",\"bytes\":%.0f,\"params\":%lld}", m->info.arch,
                    m->info.quant, m->bytes, (long long)m->info.params);
    }
    lq_text_fmt(&t, "],\"results\":[");
    for (int i = 0; i < r->row_count; i++) {
        if (i) lq_text_fmt(&t, ",");
        json_row(&t, r, &r->rows[i]);
    }
    lq_text_fmt(&t, "],\"tasks\":[");
    for (int i = 0; i < r->score_count; i++) {
        if (i) lq_text_fmt(&t, ",");
        json_score(&t, r, &r->scores[i]);
    }
    lq_text_fmt(&t, "]}");
    return lq_say_json(&t);
}

// --- tables ---

enum { COLUMNS = 14, CELL = 40 };

// A row under construction: cells that are formatted and cells that are borrowed.
typedef struct cells {
    char text[COLUMNS][CELL];
    const char *cell[COLUMNS];
    int n;
} cells;

static void cell(cells *c, const char *text) { c->cell[c->n++] = text; }

static void LQ_PRINTF(2, 3) cell_fmt(cells *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text[c->n], CELL, fmt, ap);
    va_end(ap);
    c->cell[c->n] = c->text[c->n];
    c->n++;
}

// An error, or what stands for one of a single window.
static void error_cell(cells *c, double error, int digits) {
    if (isnan(error)) cell(c, "");
    else cell_fmt(c, "%.*f", digits, error);
}

// How a perplexity stands to the first model's, in percent.
static void first_cell(cells *c, const eval_row *row) {
    if (!row->model || isnan(row->ratio)) cell(c, "");
    else if (isnan(row->ratio_error)) cell_fmt(c, "%+.2f %%", 100 * expm1(row->ratio));
    else cell_fmt(c, "%+.2f +- %.2f %%", 100 * expm1(row->ratio), 100 * row->ratio_error);
}

static void kld_cells(cells *c, const lq_kld *k) {
    cell_fmt(c, "%.6f", k->mean);
    error_cell(c, k->error, 6);
    cell_fmt(c, "%.6f", k->median);
    cell_fmt(c, "%.4f", k->p99);
    cell_fmt(c, "%.4f", k->max);
    cell_fmt(c, "%.2f %%", 100 * k->same_top);
}

static void print_rows(const eval_result *r) {
    static const char *const kld_head[] = {"KLD", "+-", "median", "p99", "max", "same top"};
    static const char *const count_head[] = {"windows", "of", "tokens"};
    cells c = {0};
    if (r->model_count > 1) cell(&c, "model");
    cell(&c, "protocol"), cell(&c, "arithmetic"), cell(&c, "perplexity"), cell(&c, "+-");
    if (r->model_count > 1) cell(&c, "to the first");
    for (size_t i = 0; r->against && i < sizeof kld_head / sizeof *kld_head; i++) cell(&c, kld_head[i]);
    for (size_t i = 0; !r->against && i < sizeof count_head / sizeof *count_head; i++) cell(&c, count_head[i]);
    cell(&c, "time");
    lq_table *t = lq_table_new(c.n, c.cell);
    for (int i = 0; i < r->row_count; i++) {
        const eval_row *row = &r->rows[i];
        c.n = 0;
        if (r->model_count > 1) cell(&c, r->models[row->model].name);
        cell(&c, lq_ppl_name(row->protocol)), cell(&c, lq_eval_mode(r, row->exact));
        cell_fmt(&c, "%.4f", row->ppl.ppl);
        error_cell(&c, row->ppl.error, 4);
        if (r->model_count > 1) first_cell(&c, row);
        if (r->against) kld_cells(&c, &row->kld);
        else {
            cell_fmt(&c, "%zu", row->ppl.windows);
            cell_fmt(&c, "%d", row->ppl.window);
            cell_fmt(&c, "%zu", row->ppl.tokens);
        }
        cell(&c, lq_say_time(row->ppl.seconds));
        lq_table_row(t, c.cell);
    }
    lq_table_print(t, stdout);
}

// A share with its error, or what takes the place of one that this kind of task does not have.
static void number_cells(cells *c, double value, double error) {
    if (isnan(value)) cell(c, "-"), cell(c, "-");
    else cell_fmt(c, value < 1e5 ? "%.4f" : "%.4g", value), cell_fmt(c, error < 1e5 ? "%.4f" : "%.4g", error);
}

static void print_scores(const eval_result *r) {
    cells c = {0};
    size_t cut = 0;
    bool norm = false, ppl = false; // whether any task has such a figure
    for (int i = 0; i < r->score_count; i++) {
        norm = norm || r->scores[i].score.kind == LQ_TASK_CHOICES;
        ppl = ppl || r->scores[i].score.kind == LQ_TASK_LAST_WORD;
    }
    if (r->model_count > 1) cell(&c, "model");
    cell(&c, "task"), cell(&c, "arithmetic"), cell(&c, "acc"), cell(&c, "+-");
    if (norm) cell(&c, "acc_norm"), cell(&c, "+-");
    if (ppl) cell(&c, "perplexity"), cell(&c, "+-");
    cell(&c, "questions"), cell(&c, "time");
    lq_table *t = lq_table_new(c.n, c.cell);
    for (int i = 0; i < r->score_count; i++) {
        const eval_score *s = &r->scores[i];
        c.n = 0;
        if (r->model_count > 1) cell(&c, r->models[s->model].name);
        cell(&c, s->name), cell(&c, lq_eval_mode(r, s->exact));
        number_cells(&c, s->score.acc, s->score.acc_error);
        if (norm) number_cells(&c, s->score.acc_norm, s->score.acc_norm_error);
        if (ppl) number_cells(&c, s->score.ppl, s->score.ppl_error);
        cell_fmt(&c, "%zu", s->score.questions);
        cell(&c, lq_say_time(s->score.seconds));
        lq_table_row(t, c.cell);
        cut += s->score.cut;
    }
    lq_table_print(t, stdout);
    if (cut) lq_say_line(stdout, "%zu texts are longer than the context and lost their beginning", cut);
}

// What the reference is, what it scores itself, and on how much: once for each protocol.
static void print_reference(const eval_result *r) {
    lq_say_line(stdout, "against %s: %s", r->against, r->reference);
    for (size_t p = 0; lq_ppl_name(p); p++)
        for (int i = 0; i < r->row_count; i++) {
            const eval_row *row = &r->rows[i];
            if (row->protocol != (lq_ppl_protocol)p) continue;
            char error[40] = "";
            if (!isnan(row->kld.ref_error)) snprintf(error, sizeof error, " +- %.4f", row->kld.ref_error);
            lq_say_line(stdout, "%s: %zu window%s of %d, %zu tokens; perplexity of the reference %.4f%s",
                        lq_ppl_name(p), row->ppl.windows, row->ppl.windows == 1 ? "" : "s", row->ppl.window,
                        row->ppl.tokens, row->kld.ref_ppl, error);
            break;
        }
}

void lq_eval_print_text(const eval_result *r) {
    for (int i = 0; i < r->model_count; i++) {
        const eval_model *m = &r->models[i];
        lq_say_line(stdout, "%s: %s, %s, %s", m->path, m->info.arch, m->info.quant, m->devices[m->devices[0][0] == 0]);
    }
    if (r->against && r->row_count) print_reference(r);
    if (r->row_count) print_rows(r);
    if (r->row_count && r->score_count) putchar('\n');
    if (r->score_count) print_scores(r);
}
