// eval.h: what lq eval has measured, between the file that measures (lq_eval.c) and those that print it.
#ifndef LQ_EVAL_TOOL_H
#define LQ_EVAL_TOOL_H
#include "formats/ckpt.h"
#include "tools/verb.h"

typedef struct eval_model {
    const char *path;
    char name[128];     // the last part of its path, where no other model has the same
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
    eval_model *models;
    int model_count;
    eval_row *rows;             // by arithmetic, protocol, model
    int row_count;
    eval_score *scores;         // by arithmetic, task, model
    int score_count;
} eval_result;

void lq_eval_print_text(const eval_result *r);
int lq_eval_print_json(const eval_result *r);
#endif
