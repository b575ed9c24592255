// eval.h: what the files of evaluation share: a reference's rows, wherever they come from, and the sums that a
// comparison with them fills.
#ifndef LQ_EVAL_H
#define LQ_EVAL_H
#include "runtime/engine/request.h"

// What is said of one protocol, as data: how many tokens a window has, whether the text's lines are joined as rows and
// its tokens read, and whether a window begins with BOS and only its second half is scored.
typedef struct lq_protocol { const char *name; int window; bool rows, half; } lq_protocol;
extern const lq_protocol lq_protocols[];
// The first position of a window whose successor is scored, and how many are.
static inline size_t lq_scored_from(const lq_protocol *p, size_t window) { return p->half ? window / 2 : 0; }
static inline size_t lq_scored(const lq_protocol *p, size_t window) {
    return window - 1 - lq_scored_from(p, window);
}

// --- kld.c: one position ---

// ln of the sum of exp(x): what logits lack to be log-probabilities, in f64. *best: the first largest.
double lq_logsum(const float *x, size_t n, size_t *best);

// The reference at one position: ln p[i] = x[i] - sum. What is not above `floor` counts as impossible.
typedef struct lq_ref_row { const float *x; double sum, floor; size_t best; } lq_ref_row;

// A figure of each position, summed: positions of one window depend on each other, so what is known of its mean's
// error comes from the means of windows.
typedef struct lq_sum { double all, window, squares; } lq_sum; // squares: of the sums of finished windows
void lq_sum_end(lq_sum *s);                                    // of a window
double lq_sum_error(const lq_sum *s, size_t windows, size_t positions); // of the mean; NaN of less than two windows

typedef struct lq_klds {
    lq_sum nll, ref, ratio, kld, diff, diff2, same; // nll and ref: -ln p of the given token, here and of the reference
    size_t n, windows, cap;
    double *value;                       // [n] of each position
    double bin[LQ_KLD_BINS];
    size_t bins[LQ_KLD_BINS];
} lq_klds;
bool lq_klds_open(lq_klds *s, size_t positions);
void lq_klds_close(lq_klds *s);
void lq_klds_add(lq_klds *s, const lq_ref_row *ref, const float *logits, double sum, size_t best, size_t vocab,
                 size_t token, int bin);
void lq_klds_end(lq_klds *s);            // of a window; all have as many positions
// Sorts the values; call it once, at the end.
lq_kld lq_klds_result(lq_klds *s);

// --- saved.c: logits in files ---

// Copies the rows of a window, [scored][vocab], in the form that `row` describes them.
bool lq_saved_rows(const lq_saved *s, size_t window, float *rows, lq_err *err);
const int32_t *lq_saved_tokens(const lq_saved *s); // [windows][window]
const char *lq_saved_path(const lq_saved *s);
bool lq_saved_means(const lq_saved *s, const lq_tokenizer *t); // its tokens are the same pieces there
// ln p of an entry that the file has cut off is not above this; -INFINITY: nothing was cut. log_probs: they are
// log-probabilities already.
double lq_saved_floor(const lq_saved *s, bool *log_probs);

typedef struct lq_saver lq_saver;
bool lq_saver_open(const char *path, bool force, const lq_saved_info *info, const lq_tokenizer *t,
                   const int32_t *tokens /* as above */, lq_saver **out, lq_err *err);
bool lq_saver_add(lq_saver *s, const float *rows, lq_err *err); // of the next window
bool lq_saver_commit(lq_saver *s, lq_err *err);
void lq_saver_close(lq_saver *s); // what was not committed is thrown away
#endif
