// eval_html.c: what lq eval has measured as one page that needs nothing else: no script, no other file. Charts first
// (perplexity and KL divergence against size, divergence by position, error by layer where OUT.report.json tells it),
// then the tables, then what was run and how. Light and dark, from a phone's width on.
#include "tools/eval.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char style[] =
    ":root{color-scheme:light dark;--paper:#f6f5f2;--card:#fff;--ink:#1f2328;--soft:#656d76;--rule:#e3e1dc;--grid:#eceae6;"
    "--accent:#2563a8;--s0:#2b6cb0;--s1:#c2570c;--s2:#2f855a;--s3:#a23b88;--s4:#6b4fc4;--s5:#b83232;--s6:#857018;--s7:#0e7f8f}"
    "@media(prefers-color-scheme:dark){:root{--paper:#15171a;--card:#1d2024;--ink:#e6e4df;--soft:#9aa1a9;--rule:#32363c;"
    "--grid:#2a2e33;--accent:#7db4ec;--s0:#6cabee;--s1:#f09a5c;--s2:#6cc495;--s3:#dd87c7;--s4:#a996f2;--s5:#ee8080;"
    "--s6:#cdb65a;--s7:#5cc4d2}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}"
    "main{max-width:1240px;margin:0 auto;padding:32px 20px 48px}h1{font-size:1.6rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}"
    "h2{font-size:1.05rem;margin:36px 0 10px}p{margin:6px 0;max-width:75ch}.soft{color:var(--soft)}"
    ".charts{display:grid;gap:16px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));margin-top:24px}"
    "figure{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:14px 16px 10px;min-width:0}"
    "figcaption b{display:block}figcaption{font-size:.87rem;color:var(--soft);margin-bottom:8px}figcaption b{color:var(--ink);"
    "font-size:.98rem}svg{display:block;width:100%;max-width:520px;height:auto;margin:0 auto;overflow:visible;"
    "font:11px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}"
    "svg .tick,svg .title{fill:var(--soft)}"
    "svg .name{fill:var(--ink);paint-order:stroke;stroke:var(--card);stroke-width:2.5px}"
    ".grid,.axis,.lead,.line,.curve{fill:none;stroke:var(--grid)}"
    ".axis,.lead{stroke:var(--soft)}.lead{stroke-width:.6}.line{stroke:var(--soft);stroke-dasharray:5 4}"
    "svg .curve{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.heat{fill:var(--accent)}"
    ".s0{fill:var(--s0);stroke:var(--s0)}.s1{fill:var(--s1);stroke:var(--s1)}.s2{fill:var(--s2);stroke:var(--s2)}"
    ".s3{fill:var(--s3);stroke:var(--s3)}.s4{fill:var(--s4);stroke:var(--s4)}.s5{fill:var(--s5);stroke:var(--s5)}"
    ".s6{fill:var(--s6);stroke:var(--s6)}.s7{fill:var(--s7);stroke:var(--s7)}svg circle{stroke:var(--card);stroke-width:1.5}"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 4px;padding:0;list-style:none;font-size:.85rem}"
    ".legend svg{display:inline-block;width:16px;height:10px;margin-right:6px}"
    ".scroll{overflow-x:auto;background:var(--card);border:1px solid var(--rule);border-radius:10px}"
    "table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}"
    "th,td{padding:7px 12px;text-align:right;white-space:nowrap;border-top:1px solid var(--rule)}"
    "thead th{border-top:0;color:var(--soft);font-weight:600}th:first-child,td:first-child,.left{text-align:left}"
    "th:first-child,td:first-child{position:sticky;left:0;background:var(--card);max-width:min(22rem,42vw);overflow:hidden;"
    "text-overflow:ellipsis}small{color:var(--soft);font-size:.9em}dl{display:grid;grid-template-columns:max-content 1fr;gap:6px 18px;margin:0;"
    "font-size:.9rem}dt{color:var(--soft)}dd{margin:0;min-width:0;overflow-wrap:anywhere}"
    "code{font:.86rem/1.5 ui-monospace,\"DejaVu Sans Mono\",Menlo,monospace}"
    "@media(max-width:520px){main{padding:20px 12px 32px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:10px}"
    "figure{padding:12px 10px 8px}th,td{padding:6px 9px}}";

static const char *mode_of(bool exact) { return exact ? "exact" : "as served"; }

static void element(lq_text *t, const char *open, const char *text, const char *close) {
    lq_text_fmt(t, "%s", open);
    lq_html_text(t, text);
    lq_text_fmt(t, "%s", close);
}

// --- charts ---

static void figure(lq_text *t, const char *title, const char *fmt, ...) LQ_PRINTF(3, 4);
static void figure(lq_text *t, const char *title, const char *fmt, ...) {
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    lq_text_fmt(t, "<figure><figcaption>");
    element(t, "<b>", title, "</b>");
    element(t, "", text, "</figcaption>");
}

// The rows of one protocol in one arithmetic stand together.
static int run_of(const eval_result *r, int from) {
    int n = from;
    while (n < r->row_count && r->rows[n].protocol == r->rows[from].protocol &&
           r->rows[n].exact == r->rows[from].exact) n++;
    return n - from;
}

static void size_chart(lq_text *t, const eval_result *r, const eval_row *rows, int n, bool kld, eval_point *points) {
    static const struct { double of; const char *title; } units[] = {
        {1e3, "file size, KB"}, {1e6, "file size, MB"}, {1e9, "file size, GB"}};
    double most = 0, least_y = INFINITY, most_y = 0;
    int count = 0, unit = 0;
    for (int i = 0; i < n; i++) most = fmax(most, r->models[rows[i].model].bytes);
    while (unit < 2 && most >= 2 * units[unit + 1].of) unit++;
    for (int i = 0; i < n; i++) {
        const double y = kld ? rows[i].kld.mean : rows[i].ppl.ppl;
        if (!isfinite(y) || !(y > 0)) continue; // the reference itself has no place on a logarithmic axis
        least_y = fmin(least_y, y), most_y = fmax(most_y, y);
        points[count++] = (eval_point){.x = r->models[rows[i].model].bytes / units[unit].of, .y = y,
                                       .label = r->models[rows[i].model].label, .color = rows[i].model};
    }
    if (!count) return;
    const eval_chart c = {.x_title = units[unit].title, .y_title = kld ? "mean KL divergence, nats" : "perplexity",
                          .log = kld || most_y > 4 * least_y, .line = !kld && r->against ? rows[0].kld.ref_ppl : 0,
                          .about = kld ? "mean KL divergence against file size" : "perplexity against file size"};
    figure(t, kld ? "Divergence against size" : "Perplexity against size",
           "%s, %s; nearer to the lower left is better%s", lq_ppl_name(rows[0].protocol),
           rows[0].exact ? "exact arithmetic" : "as served", c.line > 0 ? "; dashed: the reference" : "");
    lq_chart_points(t, &c, points, count);
    lq_text_fmt(t, "</figure>");
}

static void position_chart(lq_text *t, const eval_result *r, const eval_row *rows, int n, eval_line *lines) {
    int count = 0;
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        const eval_row *row = &rows[i];
        if (!(row->kld.mean > 0)) continue;
        const double scored = (double)row->ppl.tokens / (double)row->ppl.windows, end = row->ppl.window - 1;
        lines[count++] = (eval_line){.y = row->kld.at, .count = LQ_KLD_BINS, .x0 = end - scored, .x1 = end,
                                     .label = r->models[row->model].label, .color = row->model};
        for (int k = 0; k < LQ_KLD_BINS; k++)
            if (row->kld.at[k] > 0) least = fmin(least, row->kld.at[k]), most = fmax(most, row->kld.at[k]);
    }
    if (!count) return;
    figure(t, "Divergence by position", "%s, %s; mean over all windows", lq_ppl_name(rows[0].protocol),
           rows[0].exact ? "exact arithmetic" : "as served");
    const eval_chart c = {.x_title = "position in the window, tokens", .y_title = "mean KL divergence, nats",
                          .log = most > 20 * least, .about = "KL divergence by position in the window"};
    lq_chart_lines(t, &c, lines, count);
    lq_text_fmt(t, "<ul class=\"legend\">");
    for (int i = 0; i < count; i++) {
        lq_text_fmt(t, "<li><svg viewBox=\"0 0 16 10\"><path class=\"curve s%d\" d=\"M1 5H15\"/></svg>", lines[i].color % 8);
        element(t, "", lines[i].label, "</li>");
    }
    lq_text_fmt(t, "</ul></figure>");
}

// --- error by layer, of the report that lq quantize wrote beside a model ---

enum { KINDS = 32, LAYERS = 1024 };

typedef struct errors {
    char kind[KINDS][96];
    int kinds, layers;
    double sum[KINDS][LAYERS];
    int count[KINDS][LAYERS];
} errors;

// "model.layers.3.mlp.down_proj.weight" is layer 3, "mlp.down_proj"; numbers of experts become "*".
static bool split_name(const char *name, int *layer, char *kind, size_t size) {
    const char *p = name;
    while ((p = strchr(p, '.')) && !(p[1] >= '0' && p[1] <= '9')) p++;
    if (!p) return false;
    char *end;
    const long l = strtol(p + 1, &end, 10);
    if (*end != '.' || l < 0 || l >= LAYERS) return false;
    size_t n = 0;
    for (const char *q = end + 1; *q && n + 1 < size; q++) {
        const bool digit = *q >= '0' && *q <= '9', whole = digit && q[-1] == '.';
        if (whole && q[strspn(q, "0123456789")] == '.') kind[n++] = '*', q += strspn(q, "0123456789") - 1;
        else kind[n++] = *q;
    }
    kind[n] = '\0';
    if (n > 7 && !strcmp(kind + n - 7, ".weight")) kind[n - 7] = '\0';
    static const char *const known[] = {"self_attn.", "mlp.", "attention."};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(kind, known[i], strlen(known[i])))
            memmove(kind, kind + strlen(known[i]), strlen(kind) - strlen(known[i]) + 1);
    *layer = (int)l;
    return true;
}

static void add_error(errors *e, const char *name, double error) {
    char kind[96];
    int layer, k = 0;
    if (!split_name(name, &layer, kind, sizeof kind)) return;
    while (k < e->kinds && strcmp(e->kind[k], kind)) k++;
    if (k == KINDS) return;
    if (k == e->kinds) memcpy(e->kind[e->kinds++], kind, sizeof kind);
    e->sum[k][layer] += error;
    e->count[k][layer]++;
    if (layer >= e->layers) e->layers = layer + 1;
}

// A report that is not there, or is none of ours, is no chart.
static errors *read_errors(const char *model) {
    lq_text path = {0};
    lq_text_fmt(&path, "%s.report.json", model);
    char *text = NULL;
    size_t n = 0;
    cJSON *root = NULL;
    errors *e = NULL;
    struct stat st;
    if (!path.failed && !stat(path.p, &st) && S_ISREG(st.st_mode) &&
        lq_input_read(path.p, (size_t)256 << 20, &text, &n, NULL) &&
        lq_json_parse(text, n, (lq_json_limits){(size_t)256 << 20, 32}, path.p, &root, NULL))
        e = calloc(1, sizeof *e);
    const cJSON *m;
    if (e) cJSON_ArrayForEach(m, cJSON_GetObjectItemCaseSensitive(root, "modules")) {
        const char *name = lq_json_str(m, "name");
        double error = -1;
        if (name && lq_json_num(m, "rel_error", &error, "", NULL) && error >= 0) add_error(e, name, error);
    }
    cJSON_Delete(root);
    free(text);
    lq_text_free(&path);
    if (e && !e->kinds) free(e), e = NULL;
    return e;
}

static void error_chart(lq_text *t, const eval_model *m) {
    errors *e = read_errors(m->path);
    if (!e) return;
    const char *rows[KINDS];
    double *cells = calloc((size_t)e->kinds * (size_t)e->layers, sizeof *cells);
    for (int k = 0; k < e->kinds; k++) {
        rows[k] = e->kind[k];
        for (int l = 0; cells && l < e->layers; l++)
            cells[k * e->layers + l] = e->count[k][l] ? e->sum[k][l] / e->count[k][l] : NAN;
    }
    if (cells) {
        double low = INFINITY, high = 0;
        for (int i = 0; i < e->kinds * e->layers; i++) low = fmin(low, cells[i]), high = fmax(high, cells[i]);
        figure(t, "Error by layer", "%s: relative error of the rounded weights, pale %.3g to full %.3g", m->name, low,
               high);
        lq_chart_map(t, &(eval_map){e->kinds, e->layers, rows, cells}, "relative error by layer and kind of matrix");
        lq_text_fmt(t, "</figure>");
    }
    free(cells);
    free(e);
}

static void charts(lq_text *t, const eval_result *r) {
    eval_point *points = calloc((size_t)r->row_count + 1, sizeof *points);
    eval_line *lines = calloc((size_t)r->row_count + 1, sizeof *lines);
    t->failed = t->failed || !points || !lines;
    lq_text_fmt(t, "<div class=\"charts\">");
    for (int i = 0, n; points && lines && i < r->row_count; i += n) {
        n = run_of(r, i);
        if (!r->rows[i].exact && r->rows[0].exact) continue; // the tables have what differs by arithmetic
        size_chart(t, r, r->rows + i, n, false, points);
        if (!r->against) continue;
        size_chart(t, r, r->rows + i, n, true, points);
        position_chart(t, r, r->rows + i, n, lines);
    }
    for (int i = 0; i < r->model_count; i++) error_chart(t, &r->models[i]);
    lq_text_fmt(t, "</div>");
    free(points);
    free(lines);
}

// --- tables ---

static void heads(lq_text *t, const char *words) {
    lq_text_fmt(t, "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
    for (const char *p = words; *p;) {
        const size_t n = strcspn(p, "|");
        const int mark = *p == '<'; // a column of words
        lq_text_fmt(t, "<th%s>%.*s</th>", mark ? " class=\"left\"" : "", (int)n - mark, p + mark);
        p += n + (p[n] != 0);
    }
    lq_text_fmt(t, "</tr></thead><tbody>");
}

static void with_error(lq_text *t, double value, double error, int digits) {
    if (!isfinite(value)) lq_text_fmt(t, "<td>-</td>");
    else if (!isfinite(error)) lq_text_fmt(t, "<td>%.*f</td>", digits, value);
    else if (value >= 1e6) lq_text_fmt(t, "<td>%.4g <small>&#177; %.2g</small></td>", value, error);
    else lq_text_fmt(t, "<td>%.*f <small>&#177; %.*f</small></td>", digits, value, digits, error);
}

static void row_table(lq_text *t, const eval_result *r) {
    lq_text_fmt(t, r->against ? "<h2>Perplexity and divergence</h2>" : "<h2>Perplexity</h2>");
    heads(t, r->against ? "model|<protocol|<arithmetic|size|perplexity|KL divergence|median|p99|largest|same top|time"
                        : "model|<protocol|<arithmetic|size|perplexity|windows|tokens|time");
    for (int i = 0; i < r->row_count; i++) {
        const eval_row *row = &r->rows[i];
        const eval_model *m = &r->models[row->model];
        element(t, "<tr><td>", m->name, "</td>");
        lq_text_fmt(t, "<td class=\"left\">%s</td><td class=\"left\">%s</td><td>%s</td>", lq_ppl_name(row->protocol),
                    mode_of(row->exact), lq_say_bytes(m->bytes));
        with_error(t, row->ppl.ppl, row->ppl.error, 4);
        if (r->against) {
            with_error(t, row->kld.mean, row->kld.error, 6);
            lq_text_fmt(t, "<td>%.6f</td><td>%.4f</td><td>%.4f</td><td>%.2f %%</td>", row->kld.median, row->kld.p99,
                        row->kld.max, 100 * row->kld.same_top);
        } else lq_text_fmt(t, "<td>%zu of %d</td><td>%zu</td>", row->ppl.windows, row->ppl.window, row->ppl.tokens);
        lq_text_fmt(t, "<td>%s</td></tr>", lq_say_time(row->ppl.seconds));
    }
    lq_text_fmt(t, "</tbody></table></div>");
    lq_text_fmt(t, "<p class=\"soft\">%s</p>",
                "&#177; is the standard error of a mean over tokens. That of a perplexity says how much another text of "
                "this kind would change it; two models on the same text are told apart far better than that.");
}

static void score_table(lq_text *t, const eval_result *r) {
    lq_text_fmt(t, "<h2>Questions</h2>");
    heads(t, "model|<task|<arithmetic|acc|acc_norm|perplexity|questions|time");
    for (int i = 0; i < r->score_count; i++) {
        const eval_score *s = &r->scores[i];
        element(t, "<tr><td>", r->models[s->model].name, "</td>");
        element(t, "<td class=\"left\">", s->name, "</td>");
        lq_text_fmt(t, "<td class=\"left\">%s</td>", mode_of(s->exact));
        with_error(t, s->score.acc, s->score.acc_error, 4);
        with_error(t, s->score.acc_norm, s->score.acc_norm_error, 4);
        with_error(t, s->score.ppl, s->score.ppl_error, 4);
        lq_text_fmt(t, "<td>%zu</td><td>%s</td></tr>", s->score.questions, lq_say_time(s->score.seconds));
    }
    lq_text_fmt(t, "</tbody></table></div>");
}

static void model_table(lq_text *t, const eval_result *r) {
    lq_text_fmt(t, "<h2>Models</h2>");
    heads(t, "model|<file|<architecture|<weights|parameters|size|bits per weight");
    for (int i = 0; i < r->model_count; i++) {
        const eval_model *m = &r->models[i];
        element(t, "<tr><td>", m->name, "</td>");
        element(t, "<td class=\"left\">", m->path, "</td>");
        element(t, "<td class=\"left\">", m->info.arch, "</td>");
        element(t, "<td class=\"left\">", m->info.quant, "</td>");
        lq_text_fmt(t, "<td>%s</td><td>%s</td><td>%.2f</td></tr>", lq_say_count((double)m->info.params),
                    lq_say_bytes(m->bytes), m->info.params ? m->bytes * 8 / (double)m->info.params : 0.0);
    }
    lq_text_fmt(t, "</tbody></table></div>");
}

// --- what was run ---

// The command as it was typed, from the system; "" where that cannot be said.
static void command(lq_text *t) {
    char *text = NULL;
    size_t n = 0;
    if (!lq_input_read("/proc/self/cmdline", 1 << 20, &text, &n, NULL)) return;
    for (size_t at = 0; at < n; at += strlen(text + at) + 1) {
        const char *word = at ? text + at : "lq";
        const bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,=+:@%")];
        if (at) lq_text_fmt(t, " ");
        element(t, plain ? "" : "&#39;", word, plain ? "" : "&#39;");
    }
    free(text);
}

static void about(lq_text *t, const eval_result *r) {
    char date[40];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &utc));
    lq_text_fmt(t, "<h2>What was run</h2><dl><dt>command</dt><dd><code>");
    command(t);
    lq_text_fmt(t, "</code></dd>");
    if (r->text) element(t, "<dt>text</dt><dd>", r->text, "</dd>");
    if (r->against) {
        element(t, "<dt>reference</dt><dd>", r->against, ", ");
        element(t, "", r->reference, "</dd>");
    }
    static const char *const says[] = {
        "the text's lines joined by blank ones, BOS once, windows that do not overlap, every token but the first of each scored",
        "the text as it is, windows that begin with BOS, the second half of each scored"};
    for (int i = 0; i < r->row_count; i++) {
        const eval_row *row = &r->rows[i];
        if (i && (row->protocol == row[-1].protocol || row->exact != r->rows[0].exact)) continue;
        lq_text_fmt(t, "<dt>%s</dt><dd>%zu windows of %d tokens, %zu scored: %s</dd>", lq_ppl_name(row->protocol),
                    row->ppl.windows, row->ppl.window, row->ppl.tokens, says[row->protocol]);
    }
    const char *device = r->models[0].devices[r->models[0].devices[0][0] == 0];
    element(t, "<dt>device</dt><dd>", device, "</dd>");
    lq_text_fmt(t, "<dt>date</dt><dd>%s</dd><dt>program</dt><dd>lq %s</dd></dl>", date, lq_version());
}

static void page(lq_text *t, const eval_result *r) {
    lq_text_fmt(t, "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                   "content=\"width=device-width,initial-scale=1\"><title>lq eval: ");
    for (int i = 0; i < r->model_count && i < 4; i++) element(t, i ? ", " : "", r->models[i].name, "");
    lq_text_fmt(t, "</title><style>%s</style></head><body><main><h1>", style);
    if (r->model_count == 1) lq_html_text(t, r->models[0].name);
    else lq_text_fmt(t, "%d models", r->model_count);
    if (r->against) element(t, " against ", r->against, "");
    lq_text_fmt(t, "</h1>");
    if (r->text) element(t, "<p class=\"soft\">measured by lq on ", r->text, "</p>");
    charts(t, r);
    if (r->row_count) row_table(t, r);
    if (r->score_count) score_table(t, r);
    model_table(t, r);
    about(t, r);
    lq_text_fmt(t, "</main></body></html>\n");
}

bool lq_eval_html(const eval_result *r, const char *path, lq_err *err) {
    lq_text t = {0}, part = {0};
    page(&t, r);
    lq_text_fmt(&part, "%s.partial", path);
    bool done = (!t.failed && !part.failed) || lq_fail(err, LQ_E_MEMORY, "%s: no memory for the page", path);
    FILE *f = done ? fopen(part.p, "wb") : NULL;
    if (done) {
        done = f && fwrite(t.p, 1, t.n, f) == t.n;
        if (f && fclose(f)) done = false;
        done = done && rename(part.p, path) == 0;
        if (!done) lq_fail(err, LQ_E_IO, "%s: %s", path, strerror(errno));
        if (!done && f) unlink(part.p);
    }
    lq_text_free(&t);
    lq_text_free(&part);
    return done;
}
