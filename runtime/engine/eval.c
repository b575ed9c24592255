// eval.c: perplexity by the two protocols that published figures use, to the letter, so that figures can be compared.
//   gptq2048    the text's lines as a row each (with its newline; a blank one is ""), joined by "\n\n"; "</s>" in it is
//               that
//               token; BOS once at the start; windows of 2048 that do not overlap, the tail dropped; every token of a
//               window
//               but its first is scored.
//   llamacpp512 the text as it is, "</s>" four letters; windows of 512, the first token of each replaced by BOS; the
//   second half
//               of each is scored.
#include "runtime/engine/request.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A protocol as data: how many tokens a window has, whether the text's lines are joined as rows and its tokens read,
// and whether a window begins with BOS and its second half is scored.
typedef struct protocol { const char *name; int window; bool rows, half; } protocol;
static const protocol protocols[] = {
    [LQ_PPL_GPTQ2048] = {"gptq2048", 2048, true, false},
    [LQ_PPL_LLAMACPP512] = {"llamacpp512", 512, false, true},
};
enum { PROTOCOLS = sizeof protocols / sizeof *protocols };

const char *lq_ppl_name(size_t i) { return i < PROTOCOLS ? protocols[i].name : NULL; }

typedef struct scorer {
    const int32_t *ids;  // of the window
    size_t window, vocab;
    double nll, nll2;
    size_t tokens;
    bool bad;
} scorer;

static bool on_logits(void *arg, size_t at, const float *logits) {
    scorer *s = arg;
    if (at + 1 >= s->window) return true;
    float top = logits[0];
    for (size_t i = 1; i < s->vocab; i++) top = logits[i] > top ? logits[i] : top;
    double sum = 0;
    for (size_t i = 0; i < s->vocab; i++) sum += exp((double)logits[i] - (double)top);
    const double nll = log(sum) + (double)top - (double)logits[s->ids[at + 1]];
    s->bad = s->bad || isnan(nll);
    s->nll += nll;
    s->nll2 += nll * nll;
    s->tokens++;
    return !s->bad;
}

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

static lq_ppl result_of(const scorer *s, size_t windows, int window, double started) {
    const double n = (double)s->tokens, mean = s->nll / n, var = n > 1 ? (s->nll2 / n - mean * mean) / (n - 1) : 0;
    return (lq_ppl){.ppl = exp(mean), .error = var > 0 ? exp(mean) * sqrt(var) : 0, .nll = mean, .tokens = s->tokens,
                    .windows = windows, .window = window, .seconds = lq_engine_clock() - started};
}

static bool score(lq_engine *e, const lq_model *m, int32_t *ids, size_t count, const lq_ppl_opts *o, lq_ppl *out,
                  lq_err *err) {
    const bool second_half = protocols[o->protocol].half;
    int window = o->window ? o->window : protocols[o->protocol].window;
    lq_engine_stats stats;
    lq_engine_describe(e, &stats);
    if (window > stats.ctx) window = stats.ctx;
    if (window < 4) return lq_fail(err, LQ_E_USAGE, "a window of %d tokens is too short to score", window);
    size_t windows = count / (size_t)window;
    if (!windows) return lq_fail(err, LQ_E_USAGE, "the text has %zu tokens, less than one window of %d", count, window);
    if (o->max_windows && windows > o->max_windows) windows = o->max_windows;
    scorer s = {.window = (size_t)window, .vocab = (size_t)m->desc.vocab};
    const double started = lq_engine_clock();
    for (size_t w = 0; w < windows; w++) {
        int32_t *at = ids + w * (size_t)window;
        if (second_half && lq_tokenizer_bos(m->tok) >= 0) at[0] = lq_tokenizer_bos(m->tok);
        s.ids = at;
        if (!lq_logits(e, at, (size_t)window, second_half ? (size_t)window / 2 : 0, on_logits, &s, err))
            return s.bad ? lq_fail(err, LQ_E_FORMAT, "the model's output is not a number (window %zu)", w) : false;
        *out = result_of(&s, w + 1, window, started);
        if (o->tick && !o->tick(o->arg, w + 1, windows, out->ppl))
            return lq_fail(err, LQ_E_CANCELLED, "stopped after %zu of %zu windows", w + 1, windows);
    }
    return true;
}

bool lq_perplexity(lq_engine *e, const char *text, size_t n, const lq_ppl_opts *o, lq_ppl *out, lq_err *err) {
    static const lq_ppl_opts none;
    const lq_model *m = lq_engine_model(e);
    char *joined = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    *out = (lq_ppl){0};
    if (!o) o = &none;
    if ((size_t)o->protocol >= PROTOCOLS) return lq_fail(err, LQ_E_USAGE, "there is no protocol %d", (int)o->protocol);
    if (protocols[o->protocol].rows) {
        joined = join_rows(text, n, &n);
        if (!joined) return lq_fail(err, LQ_E_MEMORY, "no memory for a text of %zu bytes", n);
        text = joined;
    }
    const int flags = LQ_TOK_SPECIAL | (protocols[o->protocol].rows ? LQ_TOK_PARSE : 0);
    const bool done = lq_tokenize(m, text, n, flags, &ids, &count, err) && score(e, m, ids, count, o, out, err);
    free(joined);
    lq_free(ids);
    return done;
}
