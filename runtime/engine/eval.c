// eval.c: perplexity by the two protocols that published figures use, to the letter, so that figures can be compared,
// and beside it the distance from a reference (kld.c) on the same windows.
//   gptq2048    the text's lines as a row each (with its newline; a blank one is ""), joined by "\n\n"; "</s>" in it is
//               that token; BOS once at the start; windows of 2048 that do not overlap, the tail dropped; every token
//               of a window but its first is scored.
//   llamacpp512 the text as it is, "</s>" four letters; windows of 512, the first token of each replaced by BOS; the
//               second half of each is scored.
#include "runtime/engine/eval.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const lq_protocol lq_protocols[] = {
    [LQ_PPL_GPTQ2048] = {"gptq2048", 2048, true, false},
    [LQ_PPL_LLAMACPP512] = {"llamacpp512", 512, false, true},
};
enum { PROTOCOLS = sizeof lq_protocols / sizeof *lq_protocols };

const char *lq_ppl_name(size_t i) { return i < PROTOCOLS ? lq_protocols[i].name : NULL; }

// Lines become rows: a blank line (only white space) is an empty row, any other keeps its
// newline; rows are joined by "\n\n".
static char *join_rows(const char *text, size_t n, size_t *out) {
    char *p = malloc(n * 3 + 3);
    size_t len = 0;
    bool first = true;
    for (size_t at = 0; p && at < n; first = false) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t line = end ? (size_t)(end - text) + 1 - at : n - at;
        size_t blank = 0;
        while (blank < line && strchr(" \t\r\n\v\f", text[at + blank]) && text[at + blank]) blank++;
        if (!first) {
            memcpy(p + len, "\n\n", 2);
            len += 2;
        }
        if (blank < line) {
            memcpy(p + len, text + at, line);
            len += line;
        }
        at += line;
    }
    *out = len;
    return p;
}

// --- the windows ---

// One engine, and what its windows have given so far.
typedef struct lane {
    lq_engine *e;
    lq_sum nll;
    double seconds;
    size_t tokens;
    lq_klds klds;
} lane;

typedef struct job {
    const lq_ppl_opts *o;
    const lq_protocol *protocol;
    size_t window, windows, vocab, first, scored; // first: the first position that is scored
    int32_t *ids;        // of all windows
    lane *lanes;
    size_t count;
    float *rows;         // [scored][vocab] of the reference, or of what is saved; NULL: neither is wanted
    double *sums, floor; // [scored]; log_probs: of rows that are log-probabilities already 0
    size_t *best;        // [scored]
    bool log_probs;
    lq_saver *saver;
    // of the window that runs
    size_t at;
    lane *lane;          // NULL: the reference
    bool bad;
} job;

static const int32_t *window_ids(const job *j) { return j->ids + j->at * j->window; }

// A row of the reference, or of what is to be saved, is kept.
static bool keep(job *j, size_t row, const float *logits, double sum, size_t best) {
    memcpy(j->rows + row * j->vocab, logits, j->vocab * sizeof *logits);
    j->sums[row] = sum;
    j->best[row] = best;
    return true;
}

static bool on_logits(void *arg, size_t at, const float *logits) {
    job *j = arg;
    if (at + 1 >= j->window) return true;
    size_t best;
    const size_t row = at - j->first, token = (size_t)window_ids(j)[at + 1];
    const double sum = lq_logsum(logits, j->vocab, &best), nll = sum - (double)logits[token];
    j->bad = j->bad || isnan(nll);
    if (j->bad) return false;
    if (!j->lane) return keep(j, row, logits, sum, best);
    lane *l = j->lane;
    l->nll.window += nll;
    l->tokens++;
    if (j->saver && l == j->lanes) return keep(j, row, logits, sum, best);
    if (!j->rows) return true;
    const lq_ref_row ref = {j->rows + row * j->vocab, j->sums[row], j->floor, j->best[row]};
    lq_klds_add(&l->klds, &ref, logits, sum, best, j->vocab, token, (int)(row * LQ_KLD_BINS / j->scored));
    return true;
}

static lq_ppl result_of(const job *j, const lane *l, size_t windows) {
    const double n = (double)l->tokens, mean = l->nll.all / n;
    return (lq_ppl){.ppl = exp(mean), .error = exp(mean) * lq_sum_error(&l->nll, windows, l->tokens), .nll = mean,
                    .tokens = l->tokens, .windows = windows, .window = (int)j->window, .seconds = l->seconds};
}

static bool run_lane(job *j, lq_engine *e, lane *l, lq_err *err) {
    j->lane = l;
    const double started = lq_engine_clock();
    const bool done = lq_logits(e, window_ids(j), j->window, j->first, on_logits, j, err);
    if (l) l->seconds += lq_engine_clock() - started;
    if (done || !j->bad) return done;
    char why[400];
    lq_model_blame(lq_engine_model(e), why, sizeof why);
    return lq_fail(err, LQ_E_FORMAT, "%s (window %zu)", why, j->at);
}

// The reference's rows of the window.
static bool reference(job *j, lq_err *err) {
    if (j->o->against) return run_lane(j, j->o->against, NULL, err);
    if (!j->o->saved) return true;
    if (!lq_saved_rows(j->o->saved, j->at, j->rows, err)) return false;
    for (size_t r = 0; r < j->scored; r++) {
        const double sum = lq_logsum(j->rows + r * j->vocab, j->vocab, &j->best[r]);
        if (isnan(sum)) return lq_fail(err, LQ_E_FORMAT, "%s: row %zu of window %zu is not a number",
                                       lq_saved_path(j->o->saved), r, j->at);
        j->sums[r] = j->log_probs ? 0 : sum;
    }
    return true;
}

static bool run_windows(job *j, lq_ppl *out, lq_err *err) {
    const size_t total = j->windows * j->count;
    for (j->at = 0; j->at < j->windows; j->at++) {
        if (!reference(j, err)) return false;
        for (size_t i = 0; i < j->count; i++) {
            lane *l = &j->lanes[i];
            if (!run_lane(j, l->e, l, err)) return false;
            if (j->o->on_window)
                j->o->on_window(j->o->windows, i, window_ids(j), j->window, l->nll.window / (double)j->scored);
            lq_sum_end(&l->nll);
            if (j->rows) lq_klds_end(&l->klds);
            out[i] = result_of(j, l, j->at + 1);
            if (j->o->tick && !j->o->tick(j->o->arg, j->at * j->count + i + 1, total, out->ppl))
                return lq_fail(err, LQ_E_CANCELLED, "stopped after %zu of %zu windows", j->at, j->windows);
        }
        if (j->saver && !lq_saver_add(j->saver, j->rows, err)) return false;
    }
    return !j->saver || lq_saver_commit(j->saver, err);
}

// --- what must fit together ---

static const char *name_of(lq_engine *e) { return lq_ckpt_path(lq_engine_model(e)->ckpt); }

static bool same_tokens(const job *j, lq_engine *e, const char *text, size_t n, int flags, const lq_ids *want,
                        lq_err *err) {
    const lq_model *m = lq_engine_model(e);
    int32_t *ids = NULL;
    size_t count = 0;
    if ((size_t)m->desc.vocab != j->vocab)
        return lq_fail(err, LQ_E_USAGE, "%s: a vocabulary of %d, that of %s has %zu: they cannot be compared",
                       name_of(e), m->desc.vocab, name_of(j->lanes[0].e), j->vocab);
    if (!text) return true;
    if (!lq_tokenize(m, text, n, flags, &ids, &count, err)) return false;
    const bool same = count == want->n && !memcmp(ids, want->p, count * sizeof *ids);
    lq_free(ids);
    return same || lq_fail(err, LQ_E_USAGE, "%s: reads the text as other tokens than %s: they cannot be compared",
                           name_of(e), name_of(j->lanes[0].e));
}

// The text's tokens in j->ids, and that all engines mean the same by them.
static bool read_text(job *j, const char *text, size_t n, lq_ids *ids, lq_err *err) {
    char *joined = NULL;
    if (text && j->protocol->rows) {
        joined = join_rows(text, n, &n);
        if (!joined) return lq_fail(err, LQ_E_MEMORY, "no memory for a text of %zu bytes", n);
        text = joined;
    }
    const int flags = LQ_TOK_SPECIAL | (j->protocol->rows ? LQ_TOK_PARSE : 0);
    bool done = !text || lq_tokenize(lq_engine_model(j->lanes[0].e), text, n, flags, &ids->p, &ids->n, err);
    for (size_t i = 1; done && i < j->count; i++) done = same_tokens(j, j->lanes[i].e, text, n, flags, ids, err);
    if (done && j->o->against) done = same_tokens(j, j->o->against, text, n, flags, ids, err);
    free(joined);
    return done;
}

// The first token of each window is BOS where the protocol says so and the model has one.
static void put_bos(const job *j, int32_t *ids, size_t windows) {
    const int32_t bos = lq_tokenizer_bos(lq_engine_model(j->lanes[0].e)->tok);
    for (size_t w = 0; j->protocol->half && bos >= 0 && w < windows; w++) ids[w * j->window] = bos;
}

// A file's tokens take the place of the text's, which are to begin with the same windows.
static bool take_saved(job *j, lq_ids *ids, lq_err *err) {
    lq_saved_info info;
    lq_saved_describe(j->o->saved, &info);
    const char *path = lq_saved_path(j->o->saved);
    if (info.protocol != j->o->protocol)
        return lq_fail(err, LQ_E_USAGE, "%s: was made by protocol %s, not %s", path, lq_ppl_name(info.protocol),
                       j->protocol->name);
    if (j->o->window && j->o->window != info.window)
        return lq_fail(err, LQ_E_USAGE, "%s: has windows of %d tokens, not %d", path, info.window, j->o->window);
    if ((size_t)info.vocab != j->vocab)
        return lq_fail(err, LQ_E_USAGE, "%s: a vocabulary of %d, that of %s has %zu: they cannot be compared", path,
                       info.vocab, name_of(j->lanes[0].e), j->vocab);
    for (size_t i = 0; i < j->count; i++)
        if (!lq_saved_means(j->o->saved, lq_engine_model(j->lanes[i].e)->tok))
            return lq_fail(err, LQ_E_USAGE, "%s: its tokens are other pieces of text to %s: they cannot be compared",
                           path, name_of(j->lanes[i].e));
    const size_t n = info.windows * (size_t)info.window;
    int32_t *mine = malloc(n * sizeof *mine);
    if (!mine) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu tokens", n);
    memcpy(mine, lq_saved_tokens(j->o->saved), n * sizeof *mine);
    j->window = (size_t)info.window;
    put_bos(j, mine, info.windows);
    if (ids->p) put_bos(j, ids->p, ids->n / j->window);
    const bool same = !ids->p || (ids->n >= n && !memcmp(ids->p, mine, n * sizeof *mine));
    lq_free(ids->p);
    *ids = (lq_ids){.p = mine, .n = n};
    return same || lq_fail(err, LQ_E_USAGE, "%s: was made of another text, or its tokens by another tokenizer", path);
}

// How the text is cut: into windows that every context holds.
static bool cut(job *j, const lq_ids *ids, lq_err *err) {
    const bool fixed = j->o->saved != NULL;
    if (!fixed) j->window = j->o->window ? (size_t)j->o->window : (size_t)j->protocol->window;
    for (size_t i = 0; i <= j->count; i++) {
        lq_engine *e = i < j->count ? j->lanes[i].e : j->o->against;
        lq_engine_stats stats;
        if (!e) continue;
        lq_engine_describe(e, &stats);
        if (fixed && j->window > (size_t)stats.ctx)
            return lq_fail(err, LQ_E_LIMIT, "%s: windows of %zu tokens, the context of %s holds %d",
                           lq_saved_path(j->o->saved), j->window, name_of(e), stats.ctx);
        if (j->window > (size_t)stats.ctx) j->window = (size_t)stats.ctx;
    }
    if (j->window < 4) return lq_fail(err, LQ_E_USAGE, "a window of %zu tokens is too short to score", j->window);
    j->windows = ids->n / j->window;
    if (!j->windows)
        return lq_fail(err, LQ_E_USAGE, "the text has %zu tokens, less than one window of %zu", ids->n, j->window);
    if (j->o->max_windows && j->windows > j->o->max_windows) j->windows = j->o->max_windows;
    j->first = lq_scored_from(j->protocol, j->window);
    j->scored = lq_scored(j->protocol, j->window);
    j->ids = ids->p;
    put_bos(j, j->ids, j->windows);
    return true;
}

static bool open_rows(job *j, lq_err *err) {
    size_t row, bytes = 0, positions;
    const bool fits = lq_mul_size(j->vocab, sizeof *j->rows, &row) && lq_mul_size(row, j->scored, &bytes) &&
                      lq_mul_size(j->windows, j->scored, &positions);
    bool done = fits && (j->rows = malloc(bytes)) && (j->sums = malloc(j->scored * sizeof *j->sums)) &&
                (j->best = malloc(j->scored * sizeof *j->best));
    for (size_t i = 0; done && i < j->count; i++) done = lq_klds_open(&j->lanes[i].klds, positions);
    return done || lq_fail(err, LQ_E_MEMORY, "no memory for a window of logits (%zu bytes)", bytes);
}

static bool open_saver(job *j, lq_err *err) {
    const lq_model *m = lq_engine_model(j->lanes[0].e);
    lq_saved_info info = {.protocol = j->o->protocol, .window = (int)j->window, .vocab = (int)j->vocab,
                          .windows = j->windows};
    snprintf(info.arithmetic, sizeof info.arithmetic, "%s", lq_numerics_name(m->dev->numerics));
    snprintf(info.model, sizeof info.model, "%s", m->desc.arch->name);
    return lq_saver_open(j->o->save, j->o->force, &info, m->tok, j->ids, &j->saver, err);
}

bool lq_evaluate(lq_engine *const *e, size_t count, const char *text, size_t n, const lq_ppl_opts *o, lq_ppl *out,
                 lq_kld *kld, lq_err *err) {
    static const lq_ppl_opts none;
    lq_ids ids = {0};
    if (!o) o = &none;
    if (!count) return lq_fail(err, LQ_E_USAGE, "nothing to evaluate");
    if ((size_t)o->protocol >= PROTOCOLS) return lq_fail(err, LQ_E_USAGE, "there is no protocol %d", (int)o->protocol);
    if ((o->against != NULL) + (o->saved != NULL) + (o->save != NULL) > 1)
        return lq_fail(err, LQ_E_USAGE, "a reference, its saved logits and saving are three different things");
    if (!text && !o->saved) return lq_fail(err, LQ_E_USAGE, "there is no text");
    job j = {.o = o, .protocol = &lq_protocols[o->protocol], .count = count, .floor = -INFINITY,
             .vocab = (size_t)lq_engine_model(e[0])->desc.vocab, .lanes = calloc(count, sizeof *j.lanes)};
    if (!j.lanes) return lq_fail(err, LQ_E_MEMORY, "no memory for %zu models", count);
    for (size_t i = 0; i < count; i++) j.lanes[i].e = e[i], out[i] = (lq_ppl){0};
    if (o->saved) j.floor = lq_saved_floor(o->saved, &j.log_probs);
    const bool rows = o->against || o->saved || o->save;
    bool done = read_text(&j, text, n, &ids, err) && (!o->saved || take_saved(&j, &ids, err)) &&
                cut(&j, &ids, err) && (!rows || open_rows(&j, err)) && (!o->save || open_saver(&j, err)) &&
                run_windows(&j, out, err);
    for (size_t i = 0; i < count; i++) {
        if (done && kld) kld[i] = lq_klds_result(&j.lanes[i].klds);
        lq_klds_close(&j.lanes[i].klds);
    }
    lq_saver_close(j.saver);
    free(j.rows);
    free(j.sums);
    free(j.best);
    free(j.lanes);
    lq_free(ids.p);
    return done;
}

bool lq_perplexity(lq_engine *e, const char *text, size_t n, const lq_ppl_opts *o, lq_ppl *out, lq_err *err) {
    return lq_evaluate(&e, 1, text, n, o, out, NULL, err);
}
