// quantize.h: lq quantize, between the file that asks for the work (lq_quantize.c) and the one that prints what it came
// to.
#ifndef LQ_QUANTIZE_TOOL_H
#define LQ_QUANTIZE_TOOL_H
#include "quant/quant.h"
#include "tools/verb.h"

// What --eval measures.
typedef struct quantize_eval {
    const char *source; // "built-in", or the text's file
    const char *text;   // [n]
    char *own;          // the same, if it came from a file
    size_t n;
    lq_ppl ppl[2];      // of the written model, in exact arithmetic and as it is served,
    lq_kld kld[2];      // and against what it was made of, exact
} quantize_eval;
// Before the work: the text (NULL: the built-in one) is read, and a tokenizer is there.
bool lq_quantize_eval_open(const char *in, const char *path, quantize_eval *e, lq_err *err);
void lq_quantize_eval_close(quantize_eval *e);
bool lq_quantize_eval_run(quantize_eval *e, const char *in, const char *out, int threads, bool quiet, lq_err *err);
void lq_quantize_eval_json(const quantize_eval *e, lq_text *t); // a member of the report
void lq_quantize_eval_print(const quantize_eval *e);

// The tables and lines at the end; `report`: where that stands.
void lq_quantize_print(const lq_quant_result *r, const char *out, const char *report);
// One module, as it is finished.
void lq_quantize_print_module(FILE *f, const lq_quant_row *row);
#endif
