// eval.h: what lq eval has measured, between the file that measures (lq_eval.c) and those that print it.
#ifndef LQ_EVAL_TOOL_H
#define LQ_EVAL_TOOL_H
#include "formats/ckpt.h"
#include "tools/verb.h"

typedef struct eval_model {
    const char *path;
    char name[128];     // the last part of its path, where no other model has the same
    char label[96];     // as much of it as has room in a chart
    lq_model_info info; // as it was opened last
    char devices[2][96]; // [default, exact]; "": it was not run so
    double bytes;       // on disk
} eval_model;

// One line of the table: a model, by one protocol, in one arithmetic.
typedef struct eval_row {
    int model;
    lq_ppl_protocol protocol;
    bool exact;
    lq_ppl ppl;
    lq_kld kld;         // where eval_result.against is not NULL
    double *nll;        // [nlls] of each window
    size_t nlls, cap;
    uint64_t tokens;    // a hash of all of them
    // ln(perplexity / that of the first model in the same arithmetic), and its standard error from the differences of
    // windows; NaN: they read other tokens
    double ratio, ratio_error;
} eval_row;

// A model's score in one task.
typedef struct eval_score {
    int model, task; // task: place on the command line
    char name[64];   // of the task: its file's, without folder and ending
    bool exact;
    lq_task_score score;
} eval_score;

typedef struct eval_result {
    const char *text, *against; // as the command line has them, or NULL
    const char *reference;      // what `against` is, in words
    bool fast;                  // what is not exact has fast numerics
    eval_model *models;
    int model_count;
    eval_row *rows;             // by arithmetic, protocol, model
    int row_count;
    eval_score *scores;         // by arithmetic, task, model
    int score_count;
} eval_result;

// --- charts (eval_chart.c): appended to t as inline SVG, texts of others escaped ---

typedef struct eval_chart {
    const char *x_title, *y_title, *about; // about: for who cannot see it
    bool log;    // y is logarithmic: values are above 0
    double line; // a line across at this height; 0: none
} eval_chart;
typedef struct eval_point { double x, y; const char *label; int color; } eval_point;
typedef struct eval_line { const double *y; int count; double x0, x1; const char *label; int color; } eval_line;
typedef struct eval_map { int rows, columns; const char *const *row; const double *cell; } eval_map; // NaN: no cell

void lq_chart_points(lq_text *t, const eval_chart *c, const eval_point *p, int n);
void lq_chart_lines(lq_text *t, const eval_chart *c, const eval_line *l, int n);
void lq_chart_map(lq_text *t, const eval_map *m, const char *about);
void lq_html_text(lq_text *t, const char *s);

// The whole page (eval_html.c), to a file that appears when it is whole.
bool lq_eval_html(const eval_result *r, const char *path, lq_err *err);

// What an arithmetic is called.
static inline const char *lq_eval_mode(const eval_result *r, bool exact) {
    return exact ? "exact" : r->fast ? "fast" : "default";
}

void lq_eval_print_text(const eval_result *r);
int lq_eval_print_json(const eval_result *r);
#endif
