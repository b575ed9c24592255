// report.c: lq_report.json: what was done to a model and what it cost, module by module (docs/QUANT.md lists the
// fields). Two runs of one command give the same text but for its last member, "run". Written beside its name, and
// renamed when the output has its own: no report tells of a file that is not there.
#include "quant/prune.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void text_string(lq_text *t, const char *s) { lq_text_json(t, s, strlen(s)); }

static void add_module(lq_text *t, const lq_quant_row *r) {
    lq_text_fmt(t, "    {\"name\": ");
    text_string(t, r->name);
    lq_text_fmt(t, ", \"type\": \"%s\", ", r->type);
    if (r->count) lq_text_fmt(t, "\"count\": %d, ", r->count);
    lq_text_fmt(t, "\"n\": %lld, \"k\": %lld, \"bits\": %.6g, \"rel_error\": %.9g, ", (long long)r->n, (long long)r->k,
                r->bits, r->rel_error);
    if (r->count) lq_text_fmt(t, "\"worst\": %d, \"worst_error\": %.9g, ", r->worst, r->worst_error);
    if (r->alpha > 0) lq_text_fmt(t, "\"alpha\": %.3g, ", r->alpha);
    if (r->outliers) lq_text_fmt(t, "\"outliers\": %d, ", r->outliers);
    for (int e = 0; r->reached && e < r->count; e++)
        lq_text_fmt(t, e ? ", %lld" : "\"reached\": [%lld", (long long)r->reached[e]);
    if (r->reached) lq_text_fmt(t, "], ");
    if (r->out_error >= 0) lq_text_fmt(t, "\"out_error\": %.9g, \"out_plain\": %.9g, ", r->out_error, r->out_plain);
    lq_text_fmt(t, "\"max_error\": %.9g, \"note\": ", r->max_error);
    text_string(t, r->note);
    lq_text_fmt(t, "}");
}

// What the matrices of a layer, of a kind came to together; false: there are none.
static bool add_total(lq_text *t, const lq_quant_result *r, int layer, int kind, const char *before) {
    const lq_quant_total s = lq_quant_sum(r, layer, lq_quant_kinds[kind]);
    if (!s.matrices) return false;
    lq_text_fmt(t, "%s{\"kind\": \"%s\", \"matrices\": %d, \"weights\": %.0f, \"bits\": %.6g, \"bytes_before\": %.0f, "
                "\"bytes\": %.0f, \"rel_error\": %.9g", before, lq_quant_kinds[kind], s.matrices, s.weights,
                8 * s.after / s.weights, s.before, s.after, s.rel_error);
    if (s.out_error >= 0) lq_text_fmt(t, ", \"out_error\": %.9g, \"out_plain\": %.9g", s.out_error, s.out_plain);
    lq_text_fmt(t, "}");
    return true;
}

static void add_totals(lq_text *t, const lq_quant_result *r) {
    bool any = false;
    lq_text_fmt(t, "  \"parts\": [");
    for (int k = 0; k < LQ_KINDS; k++) any |= add_total(t, r, LQ_ALL_LAYERS, k, any ? ",\n    " : "\n    ");
    lq_text_fmt(t, "%s],\n  \"by_layer\": [", any ? "\n  " : "");
    for (int l = 0; l < r->layers; l++) {
        lq_text_fmt(t, l ? ",\n    {\"layer\": %d, " : "\n    {\"layer\": %d, ", l);
        if (r->drift) lq_text_fmt(t, "\"drift\": %.9g, ", r->drift[l]);
        lq_text_fmt(t, "\"parts\": [");
        any = false;
        for (int k = 0; k < LQ_KINDS; k++) any |= add_total(t, r, l, k, any ? ", " : "");
        lq_text_fmt(t, "]}");
    }
    lq_text_fmt(t, "%s],\n", r->layers ? "\n  " : "");
}

// Which sequences of the text were looked at.
static void add_calib(lq_text *t, const lq_calib *c) {
    lq_text_fmt(t, "  \"calib\": {\"source\": ");
    text_string(t, c->source);
    lq_text_fmt(t, ", \"sequences\": %zu, \"drawn\": [", c->of);
    for (size_t i = 0; i < c->samples; i++) lq_text_fmt(t, i ? ", %zu" : "%zu", c->drawn[i]);
    lq_text_fmt(t, "]},\n");
}

static void add_all(lq_text *t, const lq_plan *p, const lq_quant_result *r, int threads) {
    lq_text_fmt(t, "{\n  \"report\": %d,\n  \"numerics\": %d,\n  \"input\": {\"path\": ", LQ_QUANT_REPORT,
                LQ_QUANT_NUMERICS);
    text_string(t, p->o->pruned ? p->o->pruned->in : lq_ckpt_path(p->in));
    lq_text_fmt(t, ", \"container\": \"%s\", \"bytes\": %zu},\n  \"output\": {\"path\": ", lq_ckpt_container(p->in),
                r->in_bytes);
    text_string(t, p->o->out);
    lq_text_fmt(t, ", \"layout\": \"%s\", \"bytes\": %zu},\n", lq_layout_names[p->layout], r->out_bytes);
    lq_text_fmt(t, "  \"arch\": \"%s\",\n  \"layers\": %d,\n  \"tied\": %s,\n  \"weights\": %lld,\n",
                p->desc.arch->name, p->desc.layers, p->desc.tied ? "true" : "false", (long long)p->weights);
    lq_text_fmt(t, "  \"recipe\": %s,\n  \"fingerprint\": \"%s\",\n  \"bits_per_weight\": %.6g,\n  \"ratio\": %.6g,\n",
                p->recipe.p, p->fingerprint, r->bits, (double)r->in_bytes / (double)r->out_bytes);
    if (p->automatic.n) lq_text_fmt(t, "  \"auto\": %s,\n", p->automatic.p);
    if (p->calibrates) add_calib(t, &p->calib);
    add_totals(t, r);
    lq_text_fmt(t, "  \"dropped\": [%s],\n  \"kept_unknown\": [%s],\n  \"modules\": [\n",
                p->dropped.n ? p->dropped.p : "", p->kept.n ? p->kept.p : "");
    for (size_t i = 0; i < r->count; i++) {
        add_module(t, &r->rows[i]);
        lq_text_fmt(t, i + 1 < r->count ? ",\n" : "\n");
    }
    lq_text_fmt(t, "  ],\n  \"run\": {\"seconds\": %.3f, \"plan_seconds\": %.3g, \"threads\": %d, \"plan_bytes\": %zu, \"peak_bytes\": %zu, ",
                r->seconds, r->plan_seconds, threads, r->plan_bytes, r->peak_bytes);
    if (p->automatic.n) lq_text_fmt(t, "\"measured\": %zu, ", p->measured);
    lq_text_fmt(t, "\"blocks\": %zu, \"resumed_blocks\": %zu}\n}\n", r->blocks, r->resumed);
}

bool lq_report_make(const lq_plan *p, const lq_quant_result *r, int threads, char **text, lq_err *err) {
    lq_text t = {0};
    add_all(&t, p, r, threads);
    *text = t.failed ? NULL : t.p;
    if (!t.failed) return true;
    lq_text_free(&t);
    return lq_fail(err, LQ_E_MEMORY, "no memory for the report");
}

static bool part_name(const char *path, lq_text *part, lq_err *err) {
    lq_text_fmt(part, "%s.partial", path);
    return !part->failed || lq_fail(err, LQ_E_MEMORY, "%s: no memory for its name", path);
}

bool lq_report_put(const char *path, const char *text, lq_err *err) {
    lq_text part = {0};
    if (!part_name(path, &part, err)) return false;
    unlink(part.p); // of a run that was killed
    const int fd = open(part.p, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    bool done = f && fputs(text, f) >= 0 && fflush(f) == 0 && fsync(fd) == 0;
    if (f && fclose(f)) done = false;
    if (!done) lq_fail(err, LQ_E_IO, "%s: the report could not be written: %s", path, strerror(errno));
    if (!done && fd >= 0) unlink(part.p);
    lq_text_free(&part);
    return done;
}

bool lq_report_publish(const char *path, lq_err *err) {
    lq_text part = {0};
    if (!part_name(path, &part, err)) return false;
    const bool done = rename(part.p, path) == 0 || lq_fail(err, LQ_E_IO, "%s: the report cannot take its name: %s",
                                                           path, strerror(errno));
    lq_text_free(&part);
    return done;
}

void lq_report_forget(const char *path) {
    lq_text part = {0};
    if (part_name(path, &part, NULL)) unlink(part.p);
    lq_text_free(&part);
}

bool lq_quant_report_add(lq_quant_result *r, const char *path, const char *member, lq_err *err) {
    static const char last[] = "  \"run\": ";
    char *at = r->report, *found = NULL;
    while ((at = strstr(at, last))) found = at++;
    lq_text t = {0};
    if (!found) return lq_fail(err, LQ_E_FORMAT, "the report has no end that is known");
    lq_text_add(&t, r->report, (size_t)(found - r->report));
    lq_text_fmt(&t, "  %s,\n%s", member, found);
    if (t.failed) {
        lq_text_free(&t);
        return lq_fail(err, LQ_E_MEMORY, "no memory for the report");
    }
    free(r->report);
    r->report = t.p;
    return !path || (lq_report_put(path, r->report, err) && lq_report_publish(path, err));
}
