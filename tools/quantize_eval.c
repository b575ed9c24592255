// quantize_eval.c: lq quantize --eval: what a model lost, measured as soon as it is written: perplexity before and
// after and KL divergence on held-out text, in exact arithmetic and as it is served. Owns the models while they run.
#include "tools/quantize.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const char lq_test_text[]; // calib_data/test.txt, put in by the build
extern const size_t lq_test_text_size;

enum { WINDOWS = 32 }; // of the built-in text at most

bool lq_quantize_eval_open(const char *in, const char *path, quantize_eval *e, lq_err *err) {
    lq_tokenizer *tok;
    *e = (quantize_eval){.source = path ? path : "built-in", .text = lq_test_text, .n = lq_test_text_size};
    if (path) {
        if (!lq_input_read(path, (size_t)1 << 32, &e->own, &e->n, err)) return lq_fail_in(err, "eval");
        e->text = e->own;
    }
    // What cannot be read as tokens is told before hours of work.
    if (!lq_tokenizer_load(in, &tok, err)) return lq_fail_in(err, "eval");
    lq_tokenizer_close(tok);
    return true;
}

void lq_quantize_eval_close(quantize_eval *e) { free(e->own); }

static bool tick(void *bar, size_t done, size_t total, double ppl) {
    char note[48];
    snprintf(note, sizeof note, "perplexity %.4f", ppl);
    ((lq_bar *)bar)->total = total;
    lq_bar_at(bar, done, note);
    return !lq_input_stopped();
}

static bool open_one(const char *path, bool exact, int threads, lq_model *beside, lq_model **m, lq_engine **e,
                     lq_err *err) {
    enum { PAGE = 64, WINDOW = 512 };
    lq_model_info info;
    const lq_model_opts o = {.threads = threads, .exact = exact, .mapped = exact, .beside = beside};
    if (!lq_model_open(path, &o, m, err)) return false;
    lq_model_describe(*m, &info);
    const size_t window = info.ctx < WINDOW ? (size_t)info.ctx : WINDOW;
    const lq_engine_opts one = {.max_seqs = 1, .kv_bytes = (window + PAGE) * info.kv_token_bytes,
                                .no_prefix = true};
    return lq_engine_open(*m, &one, e, err);
}

bool lq_quantize_eval_run(quantize_eval *e, const char *in, const char *out, int threads, bool quiet, lq_err *err) {
    lq_model *m[3] = {0};
    lq_engine *engine[3] = {0};
    lq_bar bar;
    lq_bar_begin(&bar, "eval", "windows", 1, quiet);
    bool done = open_one(in, true, threads, NULL, &m[0], &engine[0], err) &&
                open_one(out, true, threads, m[0], &m[1], &engine[1], err) &&
                open_one(out, false, threads, NULL, &m[2], &engine[2], err);
    const lq_ppl_opts o = {.protocol = LQ_PPL_LLAMACPP512, .max_windows = e->own ? 0 : WINDOWS, .tick = tick,
                           .arg = &bar, .against = engine[0]};
    done = done && lq_evaluate(&engine[1], 2, e->text, e->n, &o, e->ppl, e->kld, err);
    lq_bar_end(&bar);
    for (int i = 3; i-- > 0;) {
        if (engine[i]) lq_engine_close(engine[i]);
        if (m[i]) lq_model_close(m[i]);
    }
    return done || lq_fail_in(err, "%s is written; eval", out);
}

static void number(lq_text *t, const char *key, double value) {
    lq_text_fmt(t, ", \"%s\": ", key);
    lq_say_number(t, value, 9);
}

// What there is of each arithmetic.
static void figures(lq_text *t, const lq_ppl *ppl, const lq_kld *kld) {
    number(t, "perplexity", ppl->ppl);
    number(t, "perplexity_error", ppl->error);
    number(t, "ln_perplexity_ratio", kld->ln_ratio);
    number(t, "ln_perplexity_ratio_error", kld->ln_ratio_error);
    number(t, "kld", kld->mean);
    number(t, "kld_error", kld->error);
    number(t, "same_top", kld->same_top);
    number(t, "same_top_error", kld->same_top_error);
}

void lq_quantize_eval_json(const quantize_eval *e, lq_text *t) {
    lq_text_fmt(t, "\"eval\": {\"text\": ");
    lq_text_json(t, e->source, strlen(e->source));
    lq_text_fmt(t, ", \"protocol\": \"%s\", \"arithmetic\": \"exact\", \"windows\": %zu, \"window\": %d, \"tokens\": %zu",
                lq_ppl_name(LQ_PPL_LLAMACPP512), e->ppl->windows, e->ppl->window, e->ppl->tokens);
    number(t, "perplexity_before", e->kld->ref_ppl);
    number(t, "perplexity_before_error", e->kld->ref_error);
    figures(t, &e->ppl[0], &e->kld[0]);
    lq_text_fmt(t, ", \"served\": {\"arithmetic\": \"default\"");
    figures(t, &e->ppl[1], &e->kld[1]);
    lq_text_fmt(t, "}}");
}

// "1.6584 +- 0.0614", in what `scale` counts; of one window there is no error.
static const char *with_error(char *to, size_t size, int digits, double x, double error, double scale) {
    const int n = snprintf(to, size, "%.*f", digits, scale * x);
    if (isnan(error) || n <= 0 || (size_t)n >= size) return to;
    snprintf(to + n, size - (size_t)n, " +- %.*f", digits, scale * error);
    return to;
}

void lq_quantize_eval_print(const quantize_eval *e) {
    static const char *const head[] = {"arithmetic", "perplexity before", "after", "change in %", "KL divergence",
                                       "same top in %"};
    static const char *const of[] = {"exact", "as served"};
    char before[64], after[64], change[64], kld[64], top[64];
    lq_table *t = lq_table_new(6, head);
    putchar('\n');
    lq_say(stdout, "Text %s", e->source);
    printf(", %s: %zu windows of %d, %zu tokens:\n", lq_ppl_name(LQ_PPL_LLAMACPP512), e->ppl->windows, e->ppl->window,
           e->ppl->tokens);
    for (int i = 0; i < 2; i++) {
        const lq_kld *k = &e->kld[i];
        lq_table_row(t, (const char *const[]){of[i],
            with_error(before, sizeof before, 4, k->ref_ppl, k->ref_error, 1),
            with_error(after, sizeof after, 4, e->ppl[i].ppl, e->ppl[i].error, 1),
            with_error(change, sizeof change, 2, expm1(k->ln_ratio), k->ln_ratio_error, 100),
            with_error(kld, sizeof kld, 6, k->mean, k->error, 1),
            with_error(top, sizeof top, 2, k->same_top, k->same_top_error, 100)});
    }
    lq_table_print(t, stdout);
}
